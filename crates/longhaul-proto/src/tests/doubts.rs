//! Tests of a receiver with names whose sync failed, event by event.

use std::time::Duration;

use longhaul_core::{Blame, ChunkIndex, Entry, EntryKind, Fault, FaultCode, FileId, Meta, RelPath};

use super::items::{CHUNK, file};
use super::victim::{CV, NOW, Victim, chunk};
use crate::receiver::{JournalEntry, ReceiverAction};
use crate::time::Timestamp;
use crate::wire::message::Outcome;

fn later() -> Timestamp {
    NOW.after(Duration::from_secs(2))
}

fn broken() -> Fault {
    Fault::new(FaultCode::Io, Blame::Local, "the disk is broken")
}

fn link() -> Entry {
    let kind = EntryKind::Symlink { target: b"target".to_vec() };
    Entry { path: RelPath::new("link").expect("a path"), kind, meta: Meta::default() }
}

/// The names that are to be written down as doubtful.
fn doubtful(actions: &[ReceiverAction]) -> usize {
    let records = actions.iter().filter_map(|action| match action {
        ReceiverAction::Journal(records) => Some(records),
        _ => None,
    });
    let names = records.flatten().map(|record| match record {
        JournalEntry::Doubtful(names) => names.len(),
        _ => 0,
    });
    names.sum()
}

/// A receiver with a large file (entry 0), one chunk of which is being journalled, and a link
/// (entry 1) that is renamed.
fn renamed_beside_a_journal() -> Victim {
    let mut victim = Victim::new();
    victim.page(vec![file("large", 4 * CHUNK).entry, link()]);
    victim.obey();
    let landed = victim.landed(chunk(0), 1, CV, Some(CV));
    victim.land(landed);
    victim.obey();
    victim.receiver.handle_write(NOW, FileId(0), ChunkIndex(0), Ok(()));
    victim.receiver.handle_stage(NOW, vec![(FileId(1), Ok(()))]);
    victim.receiver.handle_timeout(later());
    let actions = victim.obey();
    assert!(actions.iter().any(|action| matches!(action, ReceiverAction::Barrier(_))), "{actions:?}");
    victim.receiver.handle_sync_data(later(), FileId(0), Ok(Vec::new()));
    let actions = victim.obey();
    assert!(actions.iter().any(|action| matches!(action, ReceiverAction::Journal(_))), "{actions:?}");
    victim.receiver.handle_barrier(later(), Ok(Vec::new()));
    victim.obey();
    victim.receiver.handle_publish(later(), vec![(FileId(1), Ok(()))]);
    victim.obey();
    victim
}

#[test]
fn names_whose_sync_failed_are_written_down_though_the_journal_fails_at_the_same_time() {
    let mut victim = renamed_beside_a_journal();
    victim.receiver.handle_sync_dirs(later(), Err(broken()));
    assert_eq!(doubtful(&victim.obey()), 0, "the journal is busy");
    victim.receiver.handle_journal(later(), Err(broken()));
    assert_eq!(doubtful(&victim.obey()), 1);
}

#[test]
fn names_whose_sync_failed_are_written_down_before_anything_else_is_done_about_them() {
    let mut victim = renamed_beside_a_journal();
    victim.receiver.handle_journal(later(), Ok(()));
    victim.obey();
    victim.receiver.handle_sync_dirs(later(), Err(broken()));
    let actions = victim.obey();
    assert_eq!(doubtful(&actions), 1, "{actions:?}");
    assert!(actions.iter().any(|action| matches!(action, ReceiverAction::SyncDirsAgain(_))), "{actions:?}");
    assert!(!actions.iter().any(|action| matches!(action, ReceiverAction::Settled(..))), "not before it is known");
    victim.receiver.handle_sync_dirs(later(), Ok(()));
    let told = |action: &ReceiverAction| matches!(action, ReceiverAction::Settled(_, Outcome::Committed(_)));
    assert!(victim.obey().iter().any(told), "its commit ends the doubt");
}
