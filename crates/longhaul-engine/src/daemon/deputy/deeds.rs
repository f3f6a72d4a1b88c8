//! Owns the records of files in a deputy, on their way to the audit log of the daemon.
//!
//! In: records of a session in the deputy. Out: messages to the daemon, which stamps them with the
//! client, the session and the time that it knows itself, and keeps them. A record is on its way
//! before the outcome of its session is. It keeps nothing itself, and knows no file.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_core::{Fault, FaultCode, PlainText};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::super::audit::{AuditDeed, AuditLog, AuditLost, AuditRecord, SessionAudit};
use super::message::TalkId;

/// A record of a file, as a deputy tells it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Deed {
    deed: AuditDeed,
    root: String,
    path: String,
    bytes: Option<u64>,
    b3: Option<[u8; 32]>,
    code: Option<FaultCode>,
}

impl Deed {
    /// The record of a file. `None`: it is of something else, which the daemon sees itself.
    fn of(record: &AuditRecord<'_>) -> Option<Deed> {
        let &AuditRecord { deed, bytes, b3, code, .. } = record;
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        deed.is_of_a_file().then(|| Deed { deed, root: text(record.root), path: text(record.path), bytes, b3, code })
    }

    /// Keeps it as a record of a session. A deputy is not believed in anything else.
    pub(super) fn keep(self, audit: &SessionAudit) {
        let Deed { deed, root, path, bytes, b3, code } = self;
        if !deed.is_of_a_file() {
            return;
        }
        // A deputy escapes them, if it is what it should be.
        let (root, path) = (PlainText::from(root), PlainText::from(path));
        let record = AuditRecord { deed, bytes, b3, code, ..AuditRecord::default() };
        audit.keep(AuditRecord { root: Some(&root), path: Some(&path), ..record });
    }

    /// The memory that it takes, roughly.
    fn weight(&self) -> usize {
        size_of::<Deed>() + self.root.len() + self.path.len()
    }
}

/// Both ends of the queue of a deputy's records.
pub(super) fn queue() -> (DeedSender, DeedReceiver) {
    let ((sender, receiver), weight) = (mpsc::unbounded_channel(), Arc::<AtomicUsize>::default());
    (DeedSender { sender, weight: weight.clone() }, DeedReceiver { receiver, weight })
}

/// The end that sessions have. Clones are of the same queue.
#[derive(Clone)]
pub(super) struct DeedSender {
    sender: mpsc::UnboundedSender<(TalkId, Deed)>,
    weight: Arc<AtomicUsize>,
}

/// The end from which the daemon is told.
pub(super) struct DeedReceiver {
    receiver: mpsc::UnboundedReceiver<(TalkId, Deed)>,
    weight: Arc<AtomicUsize>,
}

impl DeedReceiver {
    /// Waits for the next one.
    pub(super) async fn next(&mut self) -> Option<(TalkId, Deed)> {
        let next = self.receiver.recv().await?;
        self.weight.fetch_sub(next.1.weight(), Ordering::Relaxed);
        Some(next)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.receiver.len()
    }
}

/// The audit log as a conversation of a deputy sees it.
pub(super) struct DaemonsLog {
    talk: TalkId,
    deeds: DeedSender,
    /// Whether records could be kept when the conversation began. A session asks the daemon again.
    ready: Result<(), Fault>,
}

impl DaemonsLog {
    /// The log of a conversation.
    pub(super) fn new(talk: TalkId, deeds: DeedSender, ready: Result<(), Fault>) -> DaemonsLog {
        DaemonsLog { talk, deeds, ready }
    }
}

impl AuditLog for DaemonsLog {
    /// Sends a record on its way. It is lost only if the daemon has not listened for very long;
    /// then its session ends whether or not records may be lost, as the daemon cannot count it.
    fn keep(&self, record: &AuditRecord<'_>) -> Result<(), AuditLost> {
        let Some(deed) = Deed::of(record) else { return Ok(()) };
        let weight = deed.weight();
        if self.deeds.weight.fetch_add(weight, Ordering::Relaxed) + weight > QUEUED_BYTES_MAX {
            self.deeds.weight.fetch_sub(weight, Ordering::Relaxed);
            return Err(AuditLost);
        }
        self.deeds.sender.send((self.talk, deed)).map_err(|_| AuditLost)
    }

    fn ready(&self) -> Result<(), Fault> {
        self.ready.clone()
    }
}

/// Bytes of records that wait to be told at most: some 50,000 of them.
const QUEUED_BYTES_MAX: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_for_which_there_is_no_room_is_lost_and_one_that_was_told_makes_room() {
        let (deeds, mut told) = queue();
        let log = DaemonsLog::new(7, deeds, Ok(()));
        let path = "p".repeat(1 << 20);
        let record = AuditRecord { deed: AuditDeed::Opened, path: Some(&path), ..AuditRecord::default() };
        let kept = (0..9).take_while(|_| log.keep(&record).is_ok()).count();
        assert_eq!(kept, 7, "8 MiB, less what a record takes besides its path");
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (talk, deed) = runtime.block_on(told.next()).expect("the first one");
        assert_eq!((talk, deed.path.len(), told.count()), (7, 1 << 20, 6));
        assert_eq!(log.keep(&record), Ok(()));
        assert_eq!(log.keep(&record), Err(AuditLost));
        let began = AuditRecord { deed: AuditDeed::SessionBegan, ..AuditRecord::default() };
        assert_eq!((log.keep(&began), told.count()), (Ok(()), 7), "the daemon records that itself");
    }
}
