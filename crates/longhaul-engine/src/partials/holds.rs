//! Paths that sessions of this process are writing: one at a time each.
//!
//! A newcomer is refused if the holder lives, and takes its place if it does not. Knows nothing of journals.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use longhaul_core::{Blame, Fault, FaultCode, RelPath, SessionTag};

use crate::presence::Presence;

/// Who holds a path.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) tag: SessionTag,
    pub(super) owner: String,
    pub(super) since: SystemTime,
    pub(super) presence: Arc<Presence>,
}

/// How a path was when it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// Nobody's, or one's own.
    Free,
    /// Another session's, which was told to end.
    Over,
}

/// Paths and their holders.
#[derive(Debug)]
pub(super) struct Holds {
    paths: Mutex<HashMap<RelPath, Holder>>,
    released: Condvar,
    /// A sign of life within this time keeps a path for its holder.
    patience: Duration,
}

impl Default for Holds {
    fn default() -> Holds {
        Holds { paths: Mutex::default(), released: Condvar::new(), patience: PATIENCE }
    }
}

impl Holds {
    /// Takes a path for `me`; says whether it was another's until now. Blocks while a holder is asked whether it lives, and
    /// until one that does not has let go.
    ///
    /// # Errors
    /// A [`Fault`] of code [`FaultCode::Busy`] that names the holder, if that lives.
    pub(super) fn take(&self, path: &RelPath, me: &Holder) -> Result<Taken, Fault> {
        let mut taken = Taken::Free;
        let until = Instant::now() + LETTING_GO_MAX;
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
            if holder.presence.answers_within(self.patience) || Instant::now() >= until {
                return Err(held(path, &holder.owner, holder.since));
            }
            taken = Taken::Over;
            holder.presence.evict();
            self.wait_for(path, holder.tag, until);
        }
    }

    /// Who holds a path, for people.
    pub(super) fn owner(&self, path: &RelPath) -> Option<String> {
        self.paths().get(path).map(|holder| holder.owner.clone())
    }

    /// Lets go of a path.
    pub(super) fn release(&self, path: &RelPath, tag: SessionTag) {
        let mut paths = self.paths();
        if paths.get(path).is_some_and(|holder| holder.tag == tag) {
            paths.remove(path);
        }
        drop(paths);
        self.released.notify_all();
    }

    /// Lets go of everything that a session holds.
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

    fn paths(&self) -> MutexGuard<'_, HashMap<RelPath, Holder>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a newcomer is told.
pub(super) fn held(path: &RelPath, owner: &str, since: SystemTime) -> Fault {
    let seconds = since.elapsed().unwrap_or_default().as_secs();
    Fault::new(
        FaultCode::Busy,
        Blame::Peer,
        format_args!("it is being written by another session, of {owner}, for {seconds} s"),
    )
    .about(path.escaped())
    .hint("wait until that is over, then run the same command again: it continues what is left then")
}

/// What a holder whose link is slow needs to be heard (the session's design).
const PATIENCE: Duration = Duration::from_secs(5);
/// A session that is told to end has this long for the writes that it has under way.
const LETTING_GO_MAX: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(tag: u8) -> Holder {
        let (owner, since) = (format!("client {tag}"), SystemTime::now());
        Holder { tag: SessionTag([tag; 8]), owner, since, presence: Arc::default() }
    }

    fn path() -> RelPath {
        RelPath::new("a/b").expect("a path")
    }

    #[test]
    fn a_holder_that_lives_keeps_its_path_and_one_that_lets_go_does_not() {
        let (holds, first, second) = (Holds::default(), holder(1), holder(2));
        assert!(holds.take(&path(), &first).is_ok() && holds.take(&path(), &first).is_ok());
        let alive = first.presence.clone();
        let answering = std::thread::spawn(move || {
            while !alive.take_question() {
                std::thread::yield_now();
            }
            alive.hear();
        });
        let fault = holds.take(&path(), &second).expect_err("it is held");
        answering.join().expect("it answers");
        assert_eq!(fault.code, FaultCode::Busy);
        assert!(fault.message.contains("client 1"), "{fault}");
        holds.release_all(first.tag);
        assert!(holds.take(&path(), &second).is_ok());
        holds.release(&path(), first.tag);
        assert!(holds.paths().contains_key(&path()), "only its holder lets go");
    }

    #[test]
    fn a_holder_that_is_dead_is_told_to_end_and_followed_when_it_has() {
        let holds = Arc::new(Holds { patience: Duration::from_millis(1), ..Holds::default() });
        let (dead, next) = (holder(1), holder(2));
        holds.take(&path(), &dead).expect("it is free");
        let (ending, at) = (dead.clone(), holds.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            runtime.block_on(ending.presence.evicted());
            at.release_all(ending.tag);
        });
        assert_eq!(holds.take(&path(), &next).ok(), Some(Taken::Over));
        thread.join().expect("it ends");
    }
}
