//! The states of a chunk at the receiver, as a table: what can happen in each, and what it then is.
//!
//! Pure; `large` holds the chunks themselves.

/// Where a chunk stands at the receiver. A chunk that is durable is no longer held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkState {
    /// Asked for.
    Wanted,
    /// Its digest is the declared one; being written.
    Verified,
    /// The write was seen to complete.
    Written,
    /// A sync of its file is under way that began after the write.
    Syncing,
    /// Synced; its journal record is not durable yet. Where chunks are read back, it is being read
    /// back.
    Synced,
    /// Read back from the medium as it was written; its journal record is not durable yet.
    Checked,
    /// Synced, and so is its journal record.
    Durable,
}

/// What happens to a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkEvent {
    /// It arrived and its digest is right.
    Accept,
    /// It arrived and its digest is wrong.
    Reject,
    /// Its write completed.
    Written,
    /// A sync of its file was submitted.
    SyncBegun,
    /// That sync completed.
    Synced,
    /// The medium gave back what was written.
    Checked,
    /// It gave back something else.
    Spoilt,
    /// The journal was synced with its record.
    Journalled,
}

impl ChunkState {
    /// The state after `event`; none where the event cannot happen.
    pub const fn on(self, event: ChunkEvent) -> Option<ChunkState> {
        match (self, event) {
            (ChunkState::Wanted, ChunkEvent::Accept) => Some(ChunkState::Verified),
            (ChunkState::Wanted, ChunkEvent::Reject) => Some(ChunkState::Wanted),
            (ChunkState::Verified, ChunkEvent::Written) => Some(ChunkState::Written),
            (ChunkState::Written, ChunkEvent::SyncBegun) => Some(ChunkState::Syncing),
            (ChunkState::Syncing, ChunkEvent::Synced) => Some(ChunkState::Synced),
            (ChunkState::Synced, ChunkEvent::Checked) => Some(ChunkState::Checked),
            (ChunkState::Synced, ChunkEvent::Spoilt) => Some(ChunkState::Wanted),
            (ChunkState::Synced | ChunkState::Checked, ChunkEvent::Journalled) => Some(ChunkState::Durable),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_transitions() {
        use ChunkEvent as E;
        use ChunkState as S;
        let mut table = String::new();
        for state in [S::Wanted, S::Verified, S::Written, S::Syncing, S::Synced, S::Checked, S::Durable] {
            for event in
                [E::Accept, E::Reject, E::Written, E::SyncBegun, E::Synced, E::Checked, E::Spoilt, E::Journalled]
            {
                if let Some(next) = state.on(event) {
                    table += &format!("{state:?} {event:?} {next:?}\n");
                }
            }
        }
        let want = "Wanted Accept Verified\nWanted Reject Wanted\nVerified Written Written\nWritten SyncBegun Syncing\n\
                    Syncing Synced Synced\nSynced Checked Checked\nSynced Spoilt Wanted\nSynced Journalled Durable\n\
                    Checked Journalled Durable\n";
        assert_eq!(table, want);
    }
}
