//! The states of a chunk at the receiver, and the table of its events.
//!
//! Pure rules; `large` holds the chunks themselves.

/// The state of a chunk at the receiver. A durable chunk is no longer held.
///
/// ```text
/// state     event      next state
/// Wanted    Accept     Verified
/// Wanted    Reject     Wanted
/// Verified  Written    Written
/// Written   SyncBegun  Syncing
/// Written   Lost       Lost
/// Syncing   Synced     Synced
/// Syncing   Lost       Lost
/// Lost      AskedAgain Wanted
/// Synced    Checked    Checked
/// Synced    Spoilt     Wanted
/// Synced    Journalled Durable
/// Checked   Journalled Durable
/// ```
///
/// A chunk whose write failed is forgotten, as its file fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkState {
    /// The sender is asked for it.
    Wanted,
    /// It arrived with the declared digest and is being written.
    Verified,
    /// The write was seen to complete.
    Written,
    /// A sync of its file is under way that began after the write.
    Syncing,
    /// A sync gave its bytes up. It waits until the sender may be asked for it again.
    Lost,
    /// It is synced; its journal record is not durable yet. If chunks are read back, it is being
    /// read back.
    Synced,
    /// It was read back from the medium with the right digest; its journal record is not durable
    /// yet.
    Checked,
    /// It is synced, and so is its journal record.
    Durable,
}

/// An event of a chunk.
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
    /// The sync completed.
    Synced,
    /// A sync completed for others, and its bytes are given up.
    Lost,
    /// The sender is asked for it once more.
    AskedAgain,
    /// It was read back with its digest.
    Checked,
    /// It was read back with another digest.
    Spoilt,
    /// The journal was synced with its record.
    Journalled,
}

impl ChunkState {
    /// The state after `event`. `None` if the event cannot happen in this state.
    pub const fn on(self, event: ChunkEvent) -> Option<ChunkState> {
        match (self, event) {
            (ChunkState::Wanted, ChunkEvent::Accept) => Some(ChunkState::Verified),
            (ChunkState::Wanted, ChunkEvent::Reject) => Some(ChunkState::Wanted),
            (ChunkState::Verified, ChunkEvent::Written) => Some(ChunkState::Written),
            (ChunkState::Written, ChunkEvent::SyncBegun) => Some(ChunkState::Syncing),
            (ChunkState::Syncing, ChunkEvent::Synced) => Some(ChunkState::Synced),
            (ChunkState::Written | ChunkState::Syncing, ChunkEvent::Lost) => Some(ChunkState::Lost),
            (ChunkState::Lost, ChunkEvent::AskedAgain) => Some(ChunkState::Wanted),
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
        for state in [S::Wanted, S::Verified, S::Written, S::Syncing, S::Lost, S::Synced, S::Checked, S::Durable] {
            for event in [
                E::Accept,
                E::Reject,
                E::Written,
                E::SyncBegun,
                E::Synced,
                E::Lost,
                E::AskedAgain,
                E::Checked,
                E::Spoilt,
                E::Journalled,
            ] {
                if let Some(next) = state.on(event) {
                    table += &format!("{state:?} {event:?} {next:?}\n");
                }
            }
        }
        let want = "Wanted Accept Verified\nWanted Reject Wanted\nVerified Written Written\nWritten SyncBegun Syncing\nWritten Lost Lost\n\
                    Syncing Synced Synced\nSyncing Lost Lost\nLost AskedAgain Wanted\nSynced Checked Checked\nSynced Spoilt Wanted\nSynced Journalled Durable\n\
                    Checked Journalled Durable\n";
        assert_eq!(table, want);
    }
}
