//! Reports an entry that is settled: counts it, and tells observers.
//!
//! In: an outcome from either session loop. Out: to the totals and to the observer. It decides
//! nothing and knows no machine.

use longhaul_core::{EntryKind, Sums};
use longhaul_proto::receiver::EntryRef;
use longhaul_proto::wire::message::Outcome;

use super::totals::Totals;
use super::unsent;
use crate::api::{Event, FileEvent, FileStatus, Observer, OwnFacts};

/// Counts a settled entry and tells observers of it. They hear of a directory only if it failed.
/// `renamed`: the one source took the destination's name; `own`: what only this side knows of it;
/// `sums`: the further checksums of a file that is committed.
pub(super) fn tell_settled(
    (held, renamed): (&EntryRef, bool),
    own: OwnFacts,
    (outcome, sums): (Outcome, Sums),
    totals: &mut Totals,
    observer: &dyn Observer,
) {
    let (status, b3) = match outcome {
        Outcome::Committed(root) if totals.stages_all => (FileStatus::Staged, root),
        Outcome::Committed(root) => (FileStatus::Committed, root),
        Outcome::Skipped => (FileStatus::Skipped, None),
        Outcome::Equal(root) | Outcome::Stands(root) => (FileStatus::Skipped, Some(root)),
        Outcome::Linked(root) => (FileStatus::Linked, root),
        Outcome::Planned => (FileStatus::Planned, None),
        Outcome::Failed(fault) => (FileStatus::Failed(fault), None),
        Outcome::Unsent => {
            if let EntryKind::Unsent { why, .. } = &held.entry.kind {
                observer.event(unsent::event(&held.entry, &held.placed, why));
            }
            return;
        }
    };
    if !totals.is_first_failure(&held.entry, &status) {
        return;
    }
    totals.settled(&held.entry.kind, &status);
    let dir = matches!(held.entry.kind, EntryKind::Dir | EntryKind::DirEnd);
    if !dir || matches!(status, FileStatus::Failed(_)) {
        observer.event(Event::File(FileEvent { renamed, own, sums, ..file_event(held, status, b3) }));
    }
}

fn file_event(held: &EntryRef, status: FileStatus, b3: Option<[u8; 32]>) -> FileEvent {
    let (regular, bytes) = match held.entry.kind {
        EntryKind::File { len, .. } => (true, len),
        _ => (false, 0),
    };
    // What would become another name of a file would not be sent for it.
    let is_further = held.entry.meta.names.as_ref().is_some_and(|names| names.first.is_some());
    let bytes = if is_further && status == FileStatus::Planned { 0 } else { bytes };
    let (path, placed) = (held.entry.path.clone(), held.placed.clone());
    let (own, sums) = Default::default();
    FileEvent { path, placed, status, bytes, b3, regular, renamed: false, own, sums }
}
