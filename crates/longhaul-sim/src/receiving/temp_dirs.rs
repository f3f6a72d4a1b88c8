//! Steps about the directories in which temporaries of a session lie: they are named before, looked
//! through at the end, and forgotten then.
//!
//! The keeper's machine decides; this file turns that into operations when a step is reached. It
//! knows no files.

use longhaul_core::{FileId, RelPath, SessionTag, TempName};
use longhaul_proto::journal::Record;
use longhaul_proto::journal::keeper::{self, KeeperStep, TempDirs};

use super::book::{Book, JournalOnDisk, JournalStep, steps_of, text};
use super::job::Step;
use crate::env::Env;
use crate::events::SessionNo;
use crate::fs::{Op, parent};
use crate::mutants::Mutant;
use crate::names;

/// A step about directories of temporaries.
#[derive(Clone, Debug)]
pub(super) enum DirsStep {
    /// Names directories in the session's own journal before temporaries of these entries are made
    /// there.
    Name(Vec<(RelPath, FileId)>),
    /// The session's own journal stands.
    Begun,
    /// The own journal names these directories, durably.
    Named(Vec<(RelPath, FileId)>),
    /// A directory is at its end, which is that entry.
    Leave(RelPath, FileId),
    /// Removes from the directories that a journal names the temporaries of which no record speaks.
    LookThrough(SessionTag),
    /// Appends that a journal forgets these directories.
    Forget(SessionTag, Vec<Record>),
    /// Removes a journal that nobody needs.
    PutAway(SessionTag),
}

/// The end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// Every entry is settled.
    AllSettled,
    /// It was cut off.
    Cut,
}

impl DirsStep {
    /// The step of a job that takes it.
    pub(super) fn step(self) -> Step {
        Step::journal(JournalStep::Dirs(self))
    }
}

impl Book {
    /// The operations of a step that is reached.
    pub(super) fn resolve_dirs(&mut self, env: &mut Env, no: SessionNo, step: DirsStep) -> Vec<Step> {
        match step {
            DirsStep::Name(wanted) => {
                let new = self.dirs.unnamed(wanted);
                if new.is_empty() {
                    return Vec::new();
                }
                if !self.is_begun {
                    let begin = self.begin(env, no);
                    return begin.into_iter().chain([DirsStep::Begun.step(), DirsStep::Name(new).step()]).collect();
                }
                if env.is(Mutant::DirUnnamed) {
                    return Vec::new();
                }
                let naming = TempDirs::naming(self.tag, &new).into_iter().flat_map(|step| steps_of(step, "", &[]));
                naming.chain([DirsStep::Named(new).step()]).collect()
            }
            DirsStep::Begun => {
                self.is_begun = true;
                Vec::new()
            }
            DirsStep::Named(dirs) => {
                self.dirs.named(dirs);
                Vec::new()
            }
            // They are looked for at the end.
            DirsStep::Leave(..) if self.is_adopted => Vec::new(),
            DirsStep::Leave(dir, end) => match self.dirs.left(self.tag, &dir, end) {
                Some(KeeperStep::Append { journal, records }) => {
                    self.resolve_dirs(env, no, DirsStep::Forget(journal, records))
                }
                _ => Vec::new(),
            },
            DirsStep::LookThrough(tag) => self.look_through(env, tag),
            DirsStep::Forget(tag, records) => {
                for record in &records {
                    if let Record::Left { path } = record {
                        env.check_left(tag, &text(path));
                    }
                }
                vec![Step::journal(JournalStep::Append(tag, records))]
            }
            DirsStep::PutAway(tag) => {
                let is_spent = self.journals.get(&tag).is_some_and(|journal| journal.machine.is_spent());
                is_spent.then(|| Step::new(Op::Unlink(names::journal(tag)))).into_iter().collect()
            }
        }
    }

    /// The steps that look through the directories of a journal, and put it away if nobody needs
    /// it.
    fn look_through(&self, env: &Env, tag: SessionTag) -> Vec<Step> {
        let Some(JournalOnDisk { machine, .. }) = self.journals.get(&tag) else { return Vec::new() };
        let (names, mut steps, mut looked) = (&env.fs.cached().names, Vec::new(), Vec::new());
        for dir in machine.dirs() {
            let is_orphan = |temp: TempName| temp.tag() == tag && !machine.speaks_of(&temp);
            let orphan = |name: &&String| parent(name) == text(&dir) && names::temp(name).is_some_and(is_orphan);
            steps.extend(names.keys().filter(orphan).cloned().map(Op::Unlink).map(Step::new));
            looked.push((dir.clone(), dir));
        }
        let mut ordered = keeper::left_behind(tag, machine, looked);
        if env.is(Mutant::LeftBeforeSync) {
            ordered.reverse();
        }
        for step in ordered {
            match step {
                KeeperStep::Append { journal, records } => {
                    steps.push(DirsStep::Forget(journal, records).step());
                }
                // A directory whose name a crash took has no temporaries any more.
                KeeperStep::SyncNames(dirs) => {
                    let stands = |dir: &String| dir.is_empty() || names.contains_key(dir);
                    steps.extend(dirs.iter().map(text).filter(stands).map(Op::SyncDir).map(Step::new));
                }
                step => steps.extend(steps_of(step, "", &[])),
            }
        }
        steps.push(DirsStep::PutAway(tag).step());
        steps
    }

    /// The steps by which the session's own journal is put away if nobody needs it, and those of
    /// earlier sessions too if all is settled.
    pub(super) fn put_away(&self, after: After) -> Vec<Step> {
        let others = self.journals.keys().filter(|tag| after == After::AllSettled && **tag != self.tag);
        let tags = std::iter::once(&self.tag).chain(others);
        // What fails of one journal does not keep another one.
        let entry = |at: usize| FileId(u64::MAX - at as u64);
        tags.enumerate().map(|(at, tag)| DirsStep::LookThrough(*tag).step().of(entry(at))).collect()
    }
}
