//! The rules of what a receiver says, and of the order in which directories end.
//!
//! Takes messages, and directories that are to be finished, beside what was settled; panics where
//! they do not agree. Keeps nothing.

use std::sync::Arc;

use longhaul_core::limits::CHUNKS_WANTED_MAX;
use longhaul_proto::Message;
use longhaul_proto::receiver::EntryRef;

use crate::watched::Seen;

/// A directory ends behind everything that lies in it.
pub(super) fn check_dirs(dirs: &[Arc<EntryRef>], seen: &Seen) {
    for entry in dirs {
        let before = seen.outcomes.range(..entry.id).count() as u64;
        let ends = dirs.iter().filter(|dir| dir.id < entry.id).count() as u64;
        assert_eq!(before + ends, entry.id.0, "a directory ends before what lies in it");
    }
}

/// A message says nothing that was not settled, and asks for no more than there may be.
pub(super) fn check_said(message: &Message, seen: &Seen) {
    match message {
        Message::Settled(list) => {
            for settlement in list {
                let said = &seen.outcomes[&settlement.file];
                assert_eq!(std::mem::discriminant(said), std::mem::discriminant(&settlement.outcome));
            }
        }
        Message::WantChunks(want) => assert!(want.count as usize <= CHUNKS_WANTED_MAX),
        Message::SendAgain(again) => assert!(again.chunks.len() <= CHUNKS_WANTED_MAX),
        _ => {}
    }
}
