//! For tests: every counter of the machine, counted anew and compared, and every bound that it
//! promises.

use std::collections::BTreeSet;

use longhaul_core::FileId;
use longhaul_core::limits::ENTRIES_UNSETTLED_MAX;

use super::chunks::ChunkState;
use super::large::{LargeStage, LargeTarget};
use super::{EntryState, Receiver};

impl Receiver {
    /// Panics at the first counter that has drifted and the first bound that is broken.
    pub(crate) fn audit(&self) {
        assert!(self.entries.len() <= ENTRIES_UNSETTLED_MAX, "{} entries", self.entries.len());
        let held = self.entries.values().map(|slot| slot.entry.name_bytes()).sum::<usize>();
        assert_eq!(self.entries_bytes, held, "bytes of names");
        let dir_ends = self.entries.values().filter(|slot| matches!(slot.state, EntryState::DirEnd)).count();
        assert_eq!(self.dir_ends, dir_ends, "ends of directories");
        let busy: BTreeSet<_> =
            self.entries.values().filter(|slot| slot.busy).map(|slot| slot.entry.placed.clone()).collect();
        assert_eq!(self.busy, busy, "busy paths");
        self.audit_large();
    }

    /// Whether [`Receiver::poll_action`] has something to give.
    pub(crate) fn has_actions(&self) -> bool {
        !self.actions.is_empty() || !self.says.is_empty()
    }

    fn audit_large(&self) {
        let large: Vec<_> = self
            .entries
            .iter()
            .filter_map(|(id, slot)| match &slot.state {
                EntryState::Large(large) => Some((*id, &**large)),
                _ => None,
            })
            .collect();
        large.iter().for_each(|(_, large)| audit_one(large));
        let waits = |id: FileId, large: &LargeTarget| large.is_at_disk() || self.journal.speaks_of(id);
        assert!(
            large.iter().all(|(id, l)| l.failed.is_none() || waits(*id, l)),
            "a failed file that waits for nothing"
        );
        let sum = |part: fn(&LargeTarget) -> u64| large.iter().map(|(_, l)| part(l)).sum::<u64>();
        let ids = |which: fn(&LargeTarget) -> bool| {
            large.iter().filter(|(_, l)| which(l)).map(|(id, _)| *id).collect::<BTreeSet<_>>()
        };
        let room = sum(|l| l.room.map_or(0, |room| room.bytes()));
        assert_eq!(self.rooms.reserved(), room, "room that is kept");
        assert_eq!(self.unsynced.undurable, sum(LargeTarget::undurable), "bytes not durable");
        let syncable = ids(|l| l.stage == LargeStage::Open && l.failed.is_none() && l.written > 0);
        assert!(self.unsynced.files.is_superset(&syncable), "files that no sync will reach");
        let waiting: u64 =
            large.iter().filter(|(id, _)| self.unsynced.files.contains(id)).map(|(_, l)| l.written).sum();
        assert_eq!(self.unsynced.bytes, waiting, "bytes that wait for a sync");
        let wanting = ids(|l| matches!(l.stage, LargeStage::Open | LargeStage::Comparing) && l.has_chunks_to_want());
        let waiting = ids(|l| l.stage == LargeStage::Waiting);
        let (open, chunks) = (sum(|l| l.is_open() as u64), sum(|l| l.wanted as u64));
        self.window.audit(&waiting, &wanting, open as usize, chunks as usize);
        assert_eq!(self.unsynced.since.is_some(), !self.unsynced.files.is_empty(), "the clock of the next sync");
    }
}

fn audit_one(large: &LargeTarget) {
    let count = |state| large.chunks.values().filter(|chunk| chunk.state == state).count();
    let bytes = |state| {
        let of = large.chunks.iter().filter(|(_, chunk)| chunk.state == state);
        of.map(|(index, _)| large.map.len_of(*index).unwrap_or(0)).sum::<u64>()
    };
    let (wanted, writing) = (count(ChunkState::Wanted), count(ChunkState::Verified));
    assert_eq!(large.writing, writing, "chunks being written");
    let unchecked = match large.checks.are_on() {
        true => count(ChunkState::Written) + count(ChunkState::Syncing) + count(ChunkState::Synced),
        false => 0,
    };
    assert!(large.wanted == wanted + writing + unchecked || large.failed.is_some(), "part of the window");
    large.checks.audit(count(ChunkState::Synced));
    assert_eq!(large.synced, bytes(ChunkState::Synced) + bytes(ChunkState::Checked), "bytes synced and not durable");
    assert_eq!(large.written, bytes(ChunkState::Written), "bytes written");
    assert_eq!(large.syncing, bytes(ChunkState::Syncing), "bytes being synced");
}
