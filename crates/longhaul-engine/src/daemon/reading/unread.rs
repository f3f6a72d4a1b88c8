//! The names of an order to read on which there is no finding yet.
//!
//! In: the files that the engine reads, as it tells of them, and what was found in another way.
//! Out: one finding on each name. Reads nothing itself.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::{FaultCode, RelPath};
use longhaul_proto::wire::message::{FoundName, FoundThing};

use super::files::ReadingTree;
use super::findings::Findings;
use crate::api::{Event, FileEvent, FileStatus, Observer, StopTrigger};

/// The names of an order that were not told yet. Hears of the files that the engine reads.
pub(super) struct Unread {
    tree: Arc<ReadingTree>,
    /// All names of the order.
    asked: HashSet<RelPath>,
    places: Mutex<HashMap<RelPath, u32>>,
    /// Bytes of files that were read.
    bytes: AtomicU64,
    findings: Findings,
    /// Ends a reading of files that nobody asked about.
    stray: StopTrigger,
}

impl Unread {
    /// All names of an order, which go to `findings` as they are told.
    pub(super) fn new(
        tree: Arc<ReadingTree>,
        names: Vec<RelPath>,
        (findings, stray): (Findings, StopTrigger),
    ) -> Unread {
        let asked = names.iter().cloned().collect();
        let places = Mutex::new(names.into_iter().zip(0..).collect());
        Unread { tree, asked, places, bytes: AtomicU64::new(0), findings, stray }
    }

    /// The names, in their order.
    pub(super) fn names(&self) -> Vec<RelPath> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let mut names: Vec<_> = places.iter().map(|(name, at)| (*at, name.clone())).collect();
        names.sort_unstable_by_key(|(at, _)| *at);
        names.into_iter().map(|(_, name)| name).collect()
    }

    /// Bytes of the files that were read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Tells a name, unless it was told. For threads that may block.
    pub(super) fn tell(&self, name: &RelPath, found: FoundThing) {
        if let Some(at) = self.take(name) {
            self.findings.tell(FoundName { at, found });
        }
    }

    /// Tells what the loop of the session could not. For threads that may block.
    pub(super) fn tell_noted(&self) {
        self.findings.tell_noted();
    }

    /// Tells a name from the loop of the session, unless it was told.
    fn note(&self, name: &RelPath, found: FoundThing) {
        if let Some(at) = self.take(name) {
            self.findings.note(FoundName { at, found });
        }
    }

    fn take(&self, name: &RelPath) -> Option<u32> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner).remove(name)
    }
}

impl Observer for Unread {
    fn event(&self, event: Event) {
        let Event::File(FileEvent { path, status, bytes, b3, .. }) = event else { return };
        match (status, b3) {
            // What stands there now is looked for at the end.
            (FileStatus::Failed(fault), _) if is_absence(fault.code) => {}
            (FileStatus::Failed(fault), _) => self.note(&path, FoundThing::Failed(self.tree.unread(fault))),
            // A directory has come in place of a file, and the list means everything in it.
            (_, Some(_)) if !self.asked.contains(&path) => self.stray.stop(FaultCode::Changed),
            (_, Some(b3)) => {
                self.bytes.fetch_add(bytes, Ordering::Relaxed);
                self.note(&path, FoundThing::Read { bytes, b3 });
            }
            (_, None) => {}
        }
    }
}

/// Whether a name failed because nothing stands there, or no file does.
fn is_absence(code: FaultCode) -> bool {
    matches!(code, FaultCode::NotFound | FaultCode::Vanished | FaultCode::InTheWay)
}
