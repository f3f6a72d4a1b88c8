//! The first page of a sending session, which needs no answer: it is scanned while the receiver is
//! being reached, and said right behind the hello.
//!
//! In: a source. Out: messages for the handshake, and then a machine that has said them, and its
//! entries, to the course of the run. An entry that is not simply there to be read is left to the
//! session loop, and so is everything behind it. It does not wait for the scan: what is not scanned
//! when the hello leaves follows later. Small files are read and said with it, unasked.
//!
//! A sender that was reached has no such time, as its scan begins with its session. On a long path
//! its loop waits a moment for the page.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::{ChunkSize, Entry, EntryKind, Fault, Preserve};
use longhaul_disk::{NamesMemory, Scanned, SourceTree};
use longhaul_proto::Message;
use longhaul_proto::receiver::EntryRef;
use longhaul_proto::sender::{Sender, SenderAction, SenderConfig, Small};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

use super::SenderLoop;
use super::offered::OfferedEntries;
use super::readable;
use super::unasked::said;
use crate::session::course::{ScanWish, UnsettledEntry, start_scan};
use crate::session::unasked::{self, FirstFlight, PackedUnasked};
use crate::workers::blocking;

/// The first page. See the module.
pub(crate) struct FirstPage {
    tree: Arc<dyn SourceTree>,
    preserve: Preserve,
    /// The entries behind it.
    pub(in crate::session) scan: mpsc::Receiver<Scanned>,
    /// The files that the scan remembers.
    pub(in crate::session) names: Arc<NamesMemory>,
    /// Taken off the scan, and left to the session loop.
    pub(in crate::session) next: Option<Scanned>,
    /// The page as far as it was said.
    pub(in crate::session) said: SaidPage,
}

/// The state of a sender that has said its first page, or nothing yet.
pub(in crate::session) struct SaidPage {
    /// The machine that has said it.
    pub(in crate::session) machine: Sender,
    /// The entries in it.
    pub(in crate::session) offered: OfferedEntries,
    /// The kinds of the entries in it.
    pub(in crate::session) kinds: Vec<EntryKind>,
    /// Whether the page was said to be the last.
    pub(in crate::session) is_last: bool,
    /// The time for which it waits for small files that are said before it.
    pub(in crate::session) patience: Duration,
}

impl FirstPage {
    /// Begins the scan, of which the page is to be made.
    ///
    /// # Errors
    /// A [`Fault`] if there is no thread for it.
    pub(crate) fn begin(tree: Arc<dyn SourceTree>, wanted: ScanWish, chunk: ChunkSize) -> Result<FirstPage, Fault> {
        // What is agreed on later decides nothing before the first answer.
        let config = SenderConfig { chunk, chunk_min: chunk, chunk_max: chunk, bundled_max: 0 };
        let preserve = wanted.preserve;
        let names = Arc::new(NamesMemory::default());
        let scan = start_scan(tree.clone(), wanted, names.clone())?;
        let said = SaidPage::none(Sender::new(config), FirstFlight::UNBOUNDED);
        Ok(FirstPage { tree, preserve, scan, names, next: None, said })
    }

    /// The page as far as it is scanned and `flight` has room for it, and before it small files
    /// that are read in time: no message if nothing is scanned.
    pub(crate) async fn take(&mut self, flight: FirstFlight) -> Vec<Message> {
        flight.prepare(&mut self.said.machine);
        self.said.patience = flight.patience;
        while self.next.is_none() && self.said.machine.has_room() && self.said.offered.have_room() {
            match self.scan.try_recv() {
                Ok(Scanned::Entry { entry, source, identity }) => {
                    let source = readable(&entry, source, identity, self.preserve);
                    self.said.offer(entry, |held| UnsettledEntry { held, source, begun: false, is_reported: false });
                }
                Ok(other) => self.next = Some(other),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => {
                    // Losses are told before the last page.
                    if !self.preserve.may_lose() || self.tree.losses().is_empty() {
                        self.said.is_last = true;
                        self.said.machine.handle_scan_end();
                    }
                    break;
                }
            }
        }
        self.said.machine.handle_scan_idle();
        let mut messages = Vec::new();
        while let Some(action) = self.said.machine.poll_action() {
            match action {
                SenderAction::Send(message) => messages.push(message),
                SenderAction::PackUnasked(files) => {
                    let packed = self.pack(files).await;
                    messages.extend(said(&mut self.said.machine, packed));
                }
                _ => {}
            }
        }
        messages
    }

    /// Reads small files, if that does not take too long.
    async fn pack(&self, files: Vec<Small>) -> PackedUnasked {
        let origin = |small: Small| self.said.offered.origin(small.file).map(|origin| (small, origin));
        let files: Vec<_> = files.into_iter().filter_map(origin).collect();
        let tree = self.tree.clone();
        let reading = blocking(move || Ok(unasked::pack(&*tree, &files)));
        match tokio::time::timeout(self.said.patience, reading).await {
            Ok(Ok(packed)) => packed,
            _ => PackedUnasked::default(),
        }
    }
}

impl SenderLoop<'_> {
    /// Takes what is scanned until the first page is full, the scan is over, or `flight` has no
    /// more patience. Only one page leaves before the first answer, so that what the scan finds a
    /// moment later, be it that it is over, would wait for a whole round trip. Nothing is heard
    /// meanwhile.
    pub(super) async fn scan_first_page(&mut self, flight: FirstFlight) {
        if !flight.is_bound() || self.course.next.is_some() || !self.course.again.is_empty() {
            return;
        }
        let over = tokio::time::Instant::now() + flight.patience.min(SCAN_WAIT_MAX);
        while self.has_room()
            && let Some(scan) = self.course.scan()
            && let Ok(scanned) = tokio::time::timeout_at(over, scan.recv()).await
        {
            self.take_scanned(scanned);
        }
    }
}

/// The longest wait for a page: the other end makes the round trip as long as it likes, and who
/// stops the session waits too.
const SCAN_WAIT_MAX: Duration = Duration::from_secs(1);

impl SaidPage {
    /// Nothing was said. `machine` will, and its first page shall fit `flight`.
    pub(super) fn none(machine: Sender, flight: FirstFlight) -> SaidPage {
        let (offered, kinds, patience) = (OfferedEntries::new(), Vec::new(), flight.patience);
        SaidPage { machine, offered, kinds, is_last: false, patience }
    }

    fn offer(&mut self, entry: Entry, known: impl FnOnce(Arc<EntryRef>) -> UnsettledEntry) {
        self.kinds.push(entry.kind.clone());
        let id = self.machine.handle_scanned(entry.clone());
        self.offered.add(id, entry, known);
    }
}

#[cfg(test)]
mod tests {
    use longhaul_disk::VoidSource;

    use super::*;

    #[tokio::test]
    async fn what_was_scanned_while_the_daemon_was_dialled_leaves_behind_the_hello() {
        let tree = Arc::new(VoidSource { len: 0, files: 3 });
        let wanted = ScanWish {
            filter: Default::default(),
            names: None,
            preserve: Preserve::default(),
            accounts: Default::default(),
        };
        let mut first = FirstPage::begin(tree, wanted, ChunkSize::DEFAULT).expect("a thread");
        // The dial takes its time.
        while first.scan.len() < 3 {
            tokio::task::yield_now().await;
        }
        let messages = first.take(FirstFlight::UNBOUNDED).await;
        let pages = messages.iter().filter_map(|message| match message {
            Message::Page(page) => Some(page.entries.len()),
            _ => None,
        });
        assert_eq!(pages.collect::<Vec<_>>(), [3]);
    }
}
