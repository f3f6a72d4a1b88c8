//! For tests and simulators: every counter of the machine, counted anew and compared, and every
//! bound that it promises.

use std::collections::BTreeSet;

use longhaul_core::FileId;

use super::Receiver;
use super::chunks::ChunkState;
use super::large::{LargeStage, LargeTarget};

impl Receiver {
    /// Panics at the first counter that has drifted and the first bound that is broken.
    pub fn audit(&self) {
        self.manifest.audit();
        self.audit_large();
    }

    fn audit_large(&self) {
        let large: Vec<_> = self.manifest.all_large().collect();
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
        let syncable = ids(|l| l.stage == LargeStage::Open && l.failed.is_none() && l.written > 0);
        self.unsynced.audit(&large, &syncable);
        let wanting = ids(|l| matches!(l.stage, LargeStage::Open | LargeStage::Comparing) && l.has_chunks_to_want());
        let waiting = ids(|l| l.stage == LargeStage::Waiting);
        let (open, chunks) = (sum(|l| l.is_open() as u64), sum(|l| l.wanted as u64));
        self.manifest.waiting.audit();
        self.window.in_order.audit(ids(|l| l.checks.in_order.is_under_way()).len());
        self.window.audit(&waiting, &wanting, open as usize, chunks as usize);
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
    let awaited = large.chunks.values().filter(|chunk| chunk.before.is_some()).count();
    large.lost.audit(count(ChunkState::Lost), large.failed.is_none().then_some(awaited));
    assert_eq!(large.synced, bytes(ChunkState::Synced) + bytes(ChunkState::Checked), "bytes synced and not durable");
    assert_eq!(large.written, bytes(ChunkState::Written), "bytes written");
    assert_eq!(large.syncing, bytes(ChunkState::Syncing), "bytes being synced");
}
