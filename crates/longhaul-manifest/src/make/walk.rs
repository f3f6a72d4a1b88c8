//! The order of a scan: which names are looked at next, and which directories are listed ahead.
//!
//! In: listed directories. Out: jobs for the threads of the scan, and slots in the order in which
//! their finds are wanted. Looks at nothing itself.

use std::collections::VecDeque;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use longhaul_core::Fault;

use super::tree::{Listed, StepKind};
use super::{Find, Job, Slot};

/// A walk through a tree in the order of its paths.
pub(super) struct Walk {
    jobs: Sender<Job>,
    levels: Vec<Level>,
    /// The path up to which all is done already.
    last: Vec<u8>,
    names_at_once: usize,
    /// Finds that wait for their turn, which has come.
    odd: Vec<Find>,
}

/// A directory whose steps are taken.
struct Level {
    listed: Arc<Listed>,
    next: usize,
    /// The first step that was not looked at for listing ahead.
    ahead: usize,
    /// Directories that are being listed: their steps, and where they will come.
    listing: VecDeque<(usize, Receiver<Result<Listed, Fault>>)>,
}

/// Whether a directory that is being listed is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// It is: there is nothing else to do.
    Waits,
    /// It is not.
    None,
}

/// The next part of a walk.
pub(super) enum Next {
    /// Finds will come there.
    Slot(Slot),
    /// It depends on a directory that is being listed still.
    NotYet,
    /// A thread that it depends on is gone.
    Lost,
    /// All was given.
    End,
}

impl Walk {
    /// Begins at the top, behind the path `last`, with so many names in a job.
    pub(super) fn new(jobs: Sender<Job>, top: Listed, last: Vec<u8>, names_at_once: usize) -> Walk {
        let mut walk = Walk { jobs, levels: Vec::new(), last, names_at_once, odd: Vec::new() };
        walk.enter(top);
        walk
    }

    /// The next part.
    pub(super) fn next(&mut self, patience: Patience) -> Next {
        loop {
            if !self.odd.is_empty() {
                return Next::Slot(ready(std::mem::take(&mut self.odd)));
            }
            self.list_ahead();
            let Some(level) = self.levels.last_mut() else { return Next::End };
            match level.listed.kind(level.next) {
                None => drop(self.levels.pop()),
                Some(StepKind::Item) => return Next::Slot(self.read()),
                Some(StepKind::Content) => match self.listed_content(patience) {
                    Err(next) => return next,
                    Ok(Ok(listed)) => self.enter(listed),
                    Ok(Err(fault)) => self.odd.push(Find::Fault(fault)),
                },
            }
        }
    }

    fn enter(&mut self, mut listed: Listed) {
        let next = if self.last.is_empty() { 0 } else { listed.first_behind(&self.last) };
        // An earlier run that has come further has told these.
        if next == 0 {
            self.odd.append(&mut listed.odd);
        }
        self.levels.push(Level { listed: Arc::new(listed), next, ahead: next, listing: VecDeque::new() });
    }

    /// Has names read, as many as follow each other without the content of a directory between.
    fn read(&mut self) -> Slot {
        let (reply, finds) = bounded(1);
        let Some(level) = self.levels.last_mut() else { return ready(Vec::new()) };
        let from = level.next;
        let end = from + self.names_at_once;
        let is_item = |at: &usize| *at < end && level.listed.kind(*at) == Some(StepKind::Item);
        let to = (from..).find(|at| !is_item(at)).unwrap_or(end);
        level.next = to;
        let listed = Arc::clone(&level.listed);
        // If no thread lives any more, the slot tells.
        let _ = self.jobs.send(Job::Read { listed, from, to, reply });
        Slot { finds, names: to - from }
    }

    /// The directory of the step whose turn it is, or why it is not there.
    fn listed_content(&mut self, patience: Patience) -> Result<Result<Listed, Fault>, Next> {
        let level = self.levels.last_mut().ok_or(Next::End)?;
        let at = level.next;
        if level.listing.front().is_none_or(|(step, _)| *step != at) {
            let asked = ask(&self.jobs, &level.listed, at);
            level.listing.push_front((at, asked));
        }
        let (_, coming) = level.listing.front().ok_or(Next::NotYet)?;
        let listed = match patience {
            Patience::Waits => coming.recv().map_err(|_| Next::Lost)?,
            Patience::None => coming.try_recv().map_err(|error| match error {
                TryRecvError::Empty => Next::NotYet,
                TryRecvError::Disconnected => Next::Lost,
            })?,
        };
        level.listing.pop_front();
        level.next += 1;
        Ok(listed)
    }

    /// Has directories listed whose turn comes soon: first those of the deepest level.
    fn list_ahead(&mut self) {
        let most = if self.levels.len() > LEVELS_WIDE_MAX { 1 } else { LISTED_AHEAD_MAX };
        for level in self.levels.iter_mut().rev() {
            level.ahead = level.ahead.max(level.next);
            while level.listing.len() < most {
                let Some(kind) = level.listed.kind(level.ahead) else { break };
                if kind == StepKind::Content {
                    let asked = ask(&self.jobs, &level.listed, level.ahead);
                    level.listing.push_back((level.ahead, asked));
                }
                level.ahead += 1;
            }
        }
    }
}

fn ask(jobs: &Sender<Job>, listed: &Arc<Listed>, at: usize) -> Receiver<Result<Listed, Fault>> {
    let (reply, coming) = bounded(1);
    // If no thread lives any more, the receiver tells.
    let _ = jobs.send(Job::List { above: Arc::clone(listed), at, reply });
    coming
}

/// A slot whose finds are there.
fn ready(finds: Vec<Find>) -> Slot {
    let (reply, coming) = bounded(1);
    let names = finds.len();
    // There is room for one.
    let _ = reply.send(finds);
    Slot { finds: coming, names }
}

/// Directories of one level that are listed ahead. Each holds a descriptor and its names.
const LISTED_AHEAD_MAX: usize = 16;
/// Levels from which on only one is: a tree of thousands of levels must not use up all descriptors.
const LEVELS_WIDE_MAX: usize = 32;
