//! Models the medium beneath a destination: programs see a scratch directory, and here lie the
//! bytes that would be left of it.
//!
//! In: every call that changes or syncs the destination, before and after. Out: answers to syncs,
//! failures, and the content of the medium. A change is volatile when its call ends, and durable
//! when a sync that covers it ends well that began after that (`syncing`). It knows temporaries and
//! journals only by their names.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_disk::{Call, InodeId, Interposer, Passage, Replace};
use rustix::io::Errno;

use super::faults::{Failure, Faults, Mutant, Nature, SyncFs};
use super::rng::Rng;
use super::state::{State, Step, What};
use super::view::{NodeId, View, text};

/// A medium and the scratch directory above it.
#[derive(Debug)]
pub(crate) struct Medium {
    pub(crate) scratch: PathBuf,
    state: Mutex<State>,
}

impl Medium {
    /// A medium on which everything in `scratch` is durable.
    pub(crate) fn of(scratch: &Path, nature: Nature, rng: Rng) -> Arc<Medium> {
        let state = State::of(scratch, nature, rng);
        Arc::new(Medium { scratch: scratch.to_owned(), state: Mutex::new(state) })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The start values of another medium of the same kind.
    pub(crate) fn nature(&self) -> (Nature, Rng) {
        let state = self.state();
        (state.nature, state.rng.clone())
    }

    /// Begins another process, on a disk that is whole again, with these faults to come.
    pub(crate) fn begin_run(&self, faults: Faults) {
        let state = &mut *self.state();
        state.errors.forget_descriptors();
        state.bad.clear();
        state.steps.clear();
        state.under_way.clear();
        state.faults = faults;
        (state.calls, state.writes, state.journal_syncs) = (0, 0, 0);
        (state.intruded, state.revised) = (None, None);
        state.run_began = state.number();
    }

    /// Records a report of the program.
    pub(crate) fn said(&self, what: What, path: &[u8]) {
        self.state().steps.push(Step { what, path: path.to_vec() });
    }

    /// Puts a file of another program under a name that is free and about to be taken.
    fn intrude(&self, state: &mut State, dir: NodeId, name: &[u8]) {
        let path = state.path_in(dir, name);
        let (Some(0), None) = (state.faults.intruder_in, state.seen(&path)) else {
            state.faults.intruder_in = state.faults.intruder_in.map(|renames| renames.saturating_sub(1));
            return;
        };
        state.faults.intruder_in = None;
        let bytes = state.rng.bytes(777);
        std::fs::write(self.scratch.join(text(&path)), &bytes).expect("somebody else's file is written");
        state.adopt(&self.scratch, &path, &bytes);
        state.intruded = Some((path, bytes));
    }

    /// Removes the file that a rename is about to meet, so that it replaces one that it must not.
    fn make_way(&self, state: &mut State, dir: NodeId, to: &[u8]) {
        let path = state.path_in(dir, to);
        let _ = std::fs::remove_file(self.scratch.join(text(&path)));
    }
}

impl Interposer for Medium {
    fn begin(&self, call: &Call<'_>) -> Passage {
        let state = &mut *self.state();
        if state.image.is_some() {
            return Passage::Answered(Err(Errno::IO));
        }
        state.calls += 1;
        if state.counts(call) {
            state.cut();
            return Passage::Answered(Err(Errno::IO));
        }
        if let Call::Rename { dir, to, .. } = *call {
            let dir = state.node(dir);
            self.intrude(state, dir, to);
        }
        let background = state.faults.background;
        if state.rng.permille(background) {
            state.write_back_something();
        }
        let is_sync = matches!(call, Call::Sync { .. } | Call::SyncFileSystem { .. });
        if is_sync && state.faults.fail_behind_rename && state.steps.iter().any(|step| step.what == What::Renamed) {
            return Passage::Answered(Err(Errno::IO));
        }
        let due = state.faults.fail_at.is_some_and(|at| state.calls >= at);
        match (state.faults.failure, call) {
            (Failure::Once(errno), _) if due => {
                state.faults.failure = Failure::None;
                return Passage::Answered(Err(errno));
            }
            (Failure::FromThen(errno), _) if due => return Passage::Answered(Err(errno)),
            (Failure::Short, Call::Write { file, offset, bytes }) if due && bytes.len() > 1 => {
                state.faults.failure = Failure::None;
                let bytes = &bytes[..bytes.len() / 2];
                let doing = state.doing(&Call::Write { file: *file, offset: *offset, bytes });
                return Passage::Short(state.make(doing), bytes.len());
            }
            _ => {}
        }
        match *call {
            Call::SyncData { of } => Passage::Answered(state.sync(of, What::SyncedData)),
            Call::Sync { of } => Passage::Answered(state.sync(of, What::Synced)),
            Call::SyncFileSystem { of } => Passage::Answered(state.sync_file_system(of)),
            Call::Watch { of } => {
                let node = state.node(of.inode);
                state.errors.open(of, node);
                Passage::Answered(Ok(()))
            }
            _ if state.left_out(call) => Passage::Answered(Ok(())),
            Call::Rename { dir, to, replace: Replace::Never, .. }
                if state.faults.mutant == Some(Mutant::ReplacesAnyway) =>
            {
                let dir = state.node(dir);
                self.make_way(state, dir, to);
                let doing = state.doing(call);
                Passage::Made(state.make(doing))
            }
            _ => {
                let doing = state.doing(call);
                Passage::Made(state.make(doing))
            }
        }
    }

    fn end(&self, token: u64, outcome: Result<Option<InodeId>, Errno>) {
        let state = &mut *self.state();
        let Some(doing) = state.under_way.remove(&token) else { return };
        if let Ok(made) = outcome
            && state.image.is_none()
        {
            state.done(doing, made);
        }
    }

    fn read_medium(&self, file: InodeId, offset: u64, into: &mut [u8]) -> Option<usize> {
        let state = &mut *self.state();
        let node = state.known(file)?;
        state.write_back(node);
        let mut view = View::default();
        if let Some(known) = state.medium.nodes.get(&node) {
            view.nodes.insert(node, known.clone());
        }
        state
            .log
            .iter()
            .filter(|(_, change)| change.data_of() == Some(node))
            .for_each(|(_, change)| view.apply(change));
        let bytes = view.bytes(node).get(offset as usize..).unwrap_or_default();
        let len = bytes.len().min(into.len());
        into[..len].copy_from_slice(&bytes[..len]);
        Some(len)
    }

    fn file_system_type(&self) -> Option<u64> {
        let state = self.state();
        let is_mistaken = state.faults.mutant == Some(Mutant::FileSystemMistaken);
        Some(if is_mistaken { SyncFs::Whole } else { state.nature.syncfs }.magic())
    }
}
