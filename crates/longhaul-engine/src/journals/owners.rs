//! Owns the record of which session writes to which path: one session at a time for each path.
//!
//! In: paths that sessions of this process want or release. Out: the path, or the fault that names
//! its owner. A newcomer is refused if the owner lives, and takes its place if it does not. It
//! knows no journals.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use longhaul_core::{Blame, Fault, FaultCode, RelPath, SessionTag, hint};

use super::presence::{Presence, Question};

/// The session that owns a path.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) tag: SessionTag,
    pub(super) owner: String,
    pub(super) since: SystemTime,
    pub(super) presence: Arc<Presence>,
}

/// The state of a path when it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathTaken {
    /// It had no owner, or the same one.
    Free,
    /// Another session owned it, which was told to end.
    Over,
}

/// The questions that a newcomer has asked of the owners that it met. Each owner is asked once in a
/// while, and all of them at the same time, so that a newcomer waits once however many paths and
/// owners are in its way.
#[derive(Debug, Default)]
pub(super) struct Questions(HashMap<SessionTag, PendingQuestion>);

#[derive(Debug)]
struct PendingQuestion {
    question: Question,
    /// When the owner was told to end because it had not answered. `None` if it was not.
    evicted: Option<Instant>,
}

/// Paths and their owners.
#[derive(Debug)]
pub(super) struct PathOwners {
    paths: Mutex<HashMap<RelPath, Arc<Holder>>>,
    released: Condvar,
    /// A sign of life within this time keeps a path for its owner.
    patience: Duration,
}

impl Default for PathOwners {
    fn default() -> PathOwners {
        PathOwners { paths: Mutex::default(), released: Condvar::new(), patience: PATIENCE }
    }
}

impl PathOwners {
    /// Takes a path for `me`. Returns whether another session owned it until now. Blocks while an
    /// owner is asked whether it lives, and until one that does not has let go.
    ///
    /// # Errors
    /// A [`Fault`] of code [`FaultCode::Busy`] that names the owner, if that lives.
    pub(super) fn take(&self, path: &RelPath, me: &Arc<Holder>, questions: &mut Questions) -> Result<PathTaken, Fault> {
        let mut taken = PathTaken::Free;
        loop {
            let holder = {
                let mut paths = self.paths();
                match paths.get(path) {
                    Some(holder) if holder.tag != me.tag => holder.clone(),
                    _ => {
                        paths.insert(path.clone(), me.clone());
                        return Ok(taken);
                    }
                }
            };
            self.ask(&holder, me, questions);
            let Some(asked) = questions.0.get_mut(&holder.tag) else { continue };
            if holder.presence.answers(asked.question, self.patience) {
                return Err(busy_path(path, &holder.owner, holder.since));
            }
            let until = *asked.evicted.get_or_insert_with(Instant::now) + LETTING_GO_MAX;
            if Instant::now() >= until {
                return Err(busy_path(path, &holder.owner, holder.since));
            }
            taken = PathTaken::Over;
            holder.presence.evict();
            self.wait_for(path, holder.tag, until);
        }
    }

    /// Asks an owner whether it lives, and all others at the same time, unless they were asked of
    /// late.
    fn ask(&self, holder: &Holder, me: &Holder, questions: &mut Questions) {
        let now = Instant::now();
        let fresh = |asked: &PendingQuestion| now.duration_since(asked.question.at()) < ASKED_FOR;
        if questions.0.get(&holder.tag).is_some_and(fresh) {
            return;
        }
        questions.0.retain(|_, asked| fresh(asked));
        for other in self.paths().values().filter(|other| other.tag != me.tag) {
            questions
                .0
                .entry(other.tag)
                .or_insert_with(|| PendingQuestion { question: other.presence.ask(), evicted: None });
        }
        // An owner that let go meanwhile is asked in vain.
        questions
            .0
            .entry(holder.tag)
            .or_insert_with(|| PendingQuestion { question: holder.presence.ask(), evicted: None });
    }

    /// The owner of a path, for people. `None` if nobody owns it.
    pub(super) fn owner(&self, path: &RelPath) -> Option<String> {
        self.paths().get(path).map(|holder| holder.owner.clone())
    }

    /// Releases a path.
    pub(super) fn release(&self, path: &RelPath, tag: SessionTag) {
        let mut paths = self.paths();
        if paths.get(path).is_some_and(|holder| holder.tag == tag) {
            paths.remove(path);
        }
        drop(paths);
        self.released.notify_all();
    }

    /// Releases all paths that a session owns.
    pub(super) fn release_all(&self, tag: SessionTag) {
        self.paths().retain(|_, holder| holder.tag != tag);
        self.released.notify_all();
    }

    fn wait_for(&self, path: &RelPath, tag: SessionTag, until: Instant) {
        let mut paths = self.paths();
        while paths.get(path).is_some_and(|holder| holder.tag == tag)
            && let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
        {
            paths = self.released.wait_timeout(paths, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn paths(&self) -> MutexGuard<'_, HashMap<RelPath, Arc<Holder>>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The fault that a newcomer gets.
pub(super) fn busy_path(path: &RelPath, owner: &str, since: SystemTime) -> Fault {
    let seconds = since.elapsed().unwrap_or_default().as_secs();
    Fault::new(
        FaultCode::Busy,
        Blame::Peer,
        format_args!("it is being written by another session, of {owner}, for {seconds} s"),
    )
    .about(path.escaped())
    .hint(hint::Again::AfterItsOwner)
}

/// How long an owner may take to answer. One with a slow link needs this (the session's design).
const PATIENCE: Duration = Duration::from_secs(5);
/// An owner's answer, or its silence, is believed for this long: longer than a page of names takes.
/// An answer is due in the sixth part of it.
const ASKED_FOR: Duration = Duration::from_secs(30);
/// How long a session that is told to end has for the writes that it has under way.
const LETTING_GO_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(tag: u8) -> Arc<Holder> {
        let (owner, since) = (format!("client {tag}"), SystemTime::now());
        Arc::new(Holder { tag: SessionTag([tag; 8]), owner, since, presence: Arc::default() })
    }

    fn path() -> RelPath {
        RelPath::new("a/b").expect("a path")
    }

    #[test]
    fn a_holder_that_lives_keeps_its_path_and_one_that_lets_go_does_not() {
        let (holds, first, second) = (PathOwners::default(), holder(1), holder(2));
        let take = |holder: &Arc<Holder>| holds.take(&path(), holder, &mut Questions::default());
        assert!(take(&first).is_ok() && take(&first).is_ok());
        let alive = first.presence.clone();
        let answering = std::thread::spawn(move || {
            while !alive.take_question() {
                std::thread::yield_now();
            }
            alive.hear();
        });
        let fault = take(&second).expect_err("it is held");
        answering.join().expect("it answers");
        assert_eq!(fault.code, FaultCode::Busy);
        assert!(fault.message.contains("client 1"), "{fault}");
        holds.release_all(first.tag);
        assert!(take(&second).is_ok());
        holds.release(&path(), first.tag);
        assert!(holds.paths().contains_key(&path()), "only its holder lets go");
    }

    #[test]
    fn a_holder_that_is_dead_is_told_to_end_and_followed_when_it_has() {
        let holds = Arc::new(PathOwners { patience: Duration::from_millis(1), ..PathOwners::default() });
        let (dead, next) = (holder(1), holder(2));
        holds.take(&path(), &dead, &mut Questions::default()).expect("it is free");
        let (ending, at) = (dead.clone(), holds.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(ending.presence.evicted());
            at.release_all(ending.tag);
        });
        assert_eq!(holds.take(&path(), &next, &mut Questions::default()).ok(), Some(PathTaken::Over));
        thread.join().expect("it ends");
    }

    #[test]
    fn a_newcomer_waits_once_however_many_names_and_holders_are_in_its_way() {
        let (holds, newcomer) = (PathOwners::default(), holder(0));
        let holders: Vec<_> = (1..9).map(holder).collect();
        let name = |n: usize| RelPath::new(format!("f{n}")).expect("a path");
        for n in 0..1000 {
            holds.take(&name(n), &holders[n % 8], &mut Questions::default()).expect("it is free");
        }
        let alive: Vec<_> = holders.iter().map(|holder| holder.presence.clone()).collect();
        let answering = std::thread::spawn(move || {
            // Each owner answers its first question, and no other.
            for presence in alive {
                while !presence.take_question() {
                    std::thread::yield_now();
                }
                presence.hear();
            }
        });
        let mut questions = Questions::default();
        holds.take(&name(0), &newcomer, &mut questions).expect_err("it is held");
        // All owners were asked with the first.
        answering.join().expect("they answer");
        for n in 0..1000 {
            assert_eq!(holds.take(&name(n), &newcomer, &mut questions).expect_err("held").code, FaultCode::Busy);
        }
        assert!(holders.iter().all(|holder| !holder.presence.take_question()), "nobody is asked again");
    }
}
