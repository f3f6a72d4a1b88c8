//! The manifest as it is sent: entries gather into pages, pages leave under the receiver's credit,
//! answers come back.
//!
//! Takes entries from the scan and answers from the receiver; gives each wanted file on to `files`
//! or to a bundle. Knows nothing of their sending.

use std::collections::VecDeque;
use std::sync::Arc;

use longhaul_core::limits::{
    BUNDLE_BYTES_MAX, BUNDLE_FILES_MAX, PAGE_BYTES_MAX, PAGE_ENTRIES_MAX, PAGE_EXTRAS_COST, PAGES_UNASKED,
    PEER_TEXT_BYTES_MAX,
};

use longhaul_core::{Attempt, ChunkMap, Entry, EntryKind, Fault, FileId};

use super::files::LargeSource;
use super::unasked::SaidUnasked;
use super::{ENTRIES_OUTSTANDING_MAX, FILES_BUNDLED_MAX, OfferState, OfferedContent, Sender, SenderAction, Small};
use crate::steps;
use crate::wire::bundle::table_bytes;
use crate::wire::message::{Answer, CheckFiles, Message, Offer, Page, PageCredit, PageExtras, PageNames};

/// The page that is being filled, and the credit for pages.
#[derive(Debug)]
pub(super) struct Manifest {
    page: Vec<Entry>,
    page_bytes: usize,
    /// The bytes at which the first page is closed.
    first_bytes_max: usize,
    /// The small files that go before the first page.
    pub(super) unasked: SaidUnasked,
    /// The cost of the extras and of the several names of its entries.
    extras_cost: usize,
    next: FileId,
    offered: bool,
    sent: u64,
    answered: u64,
    credit: u64,
    scanned: bool,
    last_sent: bool,
}

impl Default for Manifest {
    /// Nothing is scanned, and the first page needs no offer.
    fn default() -> Manifest {
        Manifest {
            page: Vec::new(),
            page_bytes: 0,
            first_bytes_max: PAGE_BYTES_MAX,
            unasked: SaidUnasked::default(),
            extras_cost: 0,
            next: FileId(0),
            offered: false,
            sent: 0,
            answered: 0,
            credit: PAGES_UNASKED,
            scanned: false,
            last_sent: false,
        }
    }
}

impl Manifest {
    pub(super) fn is_all_sent(&self) -> bool {
        self.last_sent
    }

    /// Whether the entry has left in a page.
    pub(super) fn was_sent(&self, id: FileId) -> bool {
        id.0 < self.next.0 - self.page.len() as u64
    }

    /// The entries of the page that is being filled, with their ids. `None` if others left before.
    pub(super) fn first_page(&self) -> Option<impl Iterator<Item = (FileId, &Entry)>> {
        (self.sent == 0).then(|| (0..).map(FileId).zip(&self.page))
    }

    /// The most bytes that the page that is being filled has by now, with what goes before it.
    pub(super) fn page_bytes(&self) -> u64 {
        (self.page_bytes + self.extras_cost) as u64
    }

    /// Whether the page takes no more. While files are read that go before it, it does not: they
    /// were chosen by the room that it left them.
    fn is_full(&self) -> bool {
        if self.unasked.is_being_read() {
            return true;
        }
        let bytes_max = if self.sent == 0 { self.first_bytes_max } else { PAGE_BYTES_MAX };
        self.page.len() >= PAGE_ENTRIES_MAX || self.page_bytes >= bytes_max || self.extras_cost >= PAGE_EXTRAS_COST
    }
}

impl Sender {
    /// Has the first page closed when it has so many bytes, but at least one entry: as many as go
    /// out at once on a fresh connection. A longer one is there round trips later, and the files on
    /// it are wanted only then.
    pub fn fit_first_page(&mut self, bytes: u64) {
        self.manifest.first_bytes_max =
            usize::try_from(bytes).map_or(PAGE_BYTES_MAX, |bytes| bytes.clamp(1, PAGE_BYTES_MAX));
    }

    /// Whether another scanned entry can be taken now.
    pub fn has_room(&self) -> bool {
        !self.manifest.scanned
            && !self.manifest.is_full()
            && self.entries.len() < ENTRIES_OUTSTANDING_MAX
            && !self.is_backlogged
    }

    /// Whether more messages wait for the connection than an honest receiver causes. While that is
    /// so, no page leaves and no entry is taken.
    pub fn handle_backlog(&mut self, is_backlogged: bool) {
        let was = std::mem::replace(&mut self.is_backlogged, is_backlogged);
        if was && !is_backlogged && !self.is_over && (self.manifest.is_full() || self.manifest.scanned) {
            self.send_page();
        }
    }

    /// Entries without outcome.
    pub fn unsettled(&self) -> usize {
        self.entries.len()
    }

    /// The scan found an entry, which may be given only when [`Sender::has_room`]. Gives its id.
    pub fn handle_scanned(&mut self, entry: Entry) -> FileId {
        let manifest = &mut self.manifest;
        let id = manifest.next;
        manifest.next = FileId(id.0 + 1);
        manifest.page_bytes += entry_bytes(&entry);
        manifest.extras_cost += entry.meta.extras.as_ref().map_or(0, |extras| extras.cost());
        manifest.extras_cost += entry.meta.names.as_ref().map_or(0, |names| names.cost());
        let offered = OfferState::Offered(match entry.kind {
            EntryKind::File { len, .. } => OfferedContent::Bytes(len),
            EntryKind::Stream { .. } => OfferedContent::Stream,
            _ => OfferedContent::Nothing,
        });
        steps::begin(&offered);
        self.entries.insert(id, offered);
        manifest.page.push(entry);
        if manifest.is_full() {
            self.send_page();
        }
        id
    }

    /// The scan has nothing more at this moment: the open page may leave, unless pages are under
    /// way anyway.
    pub fn handle_scan_idle(&mut self) {
        if self.manifest.sent == self.manifest.answered {
            self.send_page();
        }
    }

    /// The scan is over.
    pub fn handle_scan_end(&mut self) {
        self.manifest.scanned = true;
        self.send_page();
    }

    pub(super) fn on_offer(&mut self, offer: &Offer) -> Result<(), Fault> {
        if std::mem::replace(&mut self.manifest.offered, true) {
            return Err(Fault::protocol("a second offer"));
        }
        self.manifest.credit = offer.pages;
        if self.manifest.is_full() || self.manifest.scanned {
            self.send_page();
        }
        Ok(())
    }

    pub(super) fn on_page_credit(&mut self, credit: &PageCredit) -> Result<(), Fault> {
        self.manifest.credit = self.manifest.credit.max(credit.upto);
        if self.manifest.is_full() || self.manifest.scanned {
            self.send_page();
        }
        Ok(())
    }

    /// Sends the open page if there is credit and it is not empty. The scan may find more when the
    /// session is over: that goes nowhere.
    pub(super) fn send_page(&mut self) {
        let last = self.manifest.scanned;
        if self.is_over
            || self.manifest.last_sent
            || self.manifest.sent >= self.manifest.credit
            || self.is_backlogged
            || (self.manifest.page.is_empty() && !last)
            || self.must_pack_unasked()
        {
            return;
        }
        let manifest = &mut self.manifest;
        let mut entries = std::mem::take(&mut manifest.page);
        (manifest.page_bytes, manifest.extras_cost) = (0, 0);
        manifest.sent += 1;
        manifest.last_sent = last;
        let first = FileId(manifest.next.0 - entries.len() as u64);
        let extras = extras_of(first, &mut entries);
        if !extras.entries.is_empty() {
            self.actions.push_back(SenderAction::Send(Message::Extras(extras)));
        }
        let names = names_of(first, &mut entries);
        if !names.entries.is_empty() {
            self.actions.push_back(SenderAction::Send(Message::Names(names)));
        }
        self.actions.push_back(SenderAction::Send(Message::Page(Page { first, last, entries })));
    }

    pub(super) fn on_answer(&mut self, answer: &Answer) -> Result<(), Fault> {
        self.manifest.answered += 1;
        if self.manifest.answered > self.manifest.sent || answer.wanted.len() > PAGE_ENTRIES_MAX.div_ceil(8) {
            return Err(Fault::protocol("an answer to a page that was not sent"));
        }
        self.manifest.unasked.hear_answer(answer.first);
        let mut small = VecDeque::new();
        for at in 0..answer.wanted.len() * 8 {
            if answer.wanted[at / 8] & (1 << (at % 8)) != 0 {
                let id = FileId(answer.first.0.saturating_add(at as u64));
                small.extend(self.want(id)?.map(|len| Small { file: id, len, standing_root: None }));
            }
        }
        self.pack(small)
    }

    /// Takes an entry as wanted. Gives its length if it goes in a bundle.
    fn want(&mut self, id: FileId) -> Result<Option<u64>, Fault> {
        let refused = |what: &str| Err(Fault::protocol(format_args!("the receiver wants entry {}, {what}", id.0)));
        if !self.manifest.was_sent(id) {
            return refused("which was not sent");
        }
        // An entry without state failed at the receiver, and its outcome overtook this.
        let Some(state) = self.entries.get_mut(&id) else { return Ok(None) };
        let large = match *state {
            OfferState::Offered(OfferedContent::Bytes(len)) if len <= self.config.bundled_max => {
                steps::step(state, OfferState::Small);
                return Ok(Some(len));
            }
            OfferState::Offered(OfferedContent::Bytes(len)) => LargeSource::new(ChunkMap::new(len, self.config.chunk)),
            OfferState::Offered(OfferedContent::Stream) => LargeSource::unended(self.config.chunk),
            _ => return refused("which has no content to give"),
        };
        steps::step(state, OfferState::Large(Box::new(large)));
        Ok(None)
    }

    /// Small files are wanted if they differ from the standing files at the receiver. Without a
    /// standing file any file is wanted: it was to become a name of another one, and cannot.
    pub(super) fn on_check_files(&mut self, check: CheckFiles) -> Result<(), Fault> {
        let mut small = VecDeque::with_capacity(check.files.len());
        for (file, stands) in check.files {
            match self.entries.get(&file) {
                Some(OfferState::Offered(content)) if stands.is_some() && !self.is_bundled(*content) => {
                    return Err(Fault::protocol(format_args!(
                        "entry {} is compared whole, but goes in chunks",
                        file.0
                    )));
                }
                _ => small.extend(self.want(file)?.map(|len| Small { file, len, standing_root: stands })),
            }
        }
        self.pack(small)
    }

    /// Whether what is offered goes in a bundle, or has no content to go in anything.
    fn is_bundled(&self, content: OfferedContent) -> bool {
        match content {
            OfferedContent::Nothing => true,
            OfferedContent::Bytes(len) => len <= self.config.bundled_max,
            OfferedContent::Stream => false,
        }
    }

    /// Packs small files that are wanted, in order. No file waits for a bundle to fill.
    fn pack(&mut self, mut small: VecDeque<Small>) -> Result<(), Fault> {
        let unit_max = self.config.chunk.bytes().min(BUNDLE_BYTES_MAX);
        while !small.is_empty() {
            let (mut files, mut bytes) = (Vec::new(), 0);
            while let Some(next) = small.front().copied() {
                let len = next.len;
                let fits = bytes + len + table_bytes(files.len() + 1) as u64 <= unit_max;
                if !files.is_empty() && (!fits || files.len() >= BUNDLE_FILES_MAX) {
                    break;
                }
                small.pop_front();
                bytes += len;
                files.push(next);
            }
            let bundle = self.bundles.add(files.clone());
            self.actions.push_back(SenderAction::Pack { bundle, attempt: Attempt::FIRST, files });
        }
        if self.bundles.files() > FILES_BUNDLED_MAX {
            return Err(Fault::protocol("more files wanted than a receiver may have outstanding"));
        }
        Ok(())
    }
}

/// Takes the extras out of the entries of a page that begins with `first`.
fn extras_of(first: FileId, entries: &mut [Entry]) -> PageExtras {
    let with_extras = (first.0..).zip(entries).filter_map(|(id, entry)| {
        let extras = entry.meta.extras.take()?;
        Some((FileId(id), Arc::unwrap_or_clone(extras)))
    });
    PageExtras { entries: with_extras.collect() }
}

/// Takes the several names of files out of the entries of a page that begins with `first`.
fn names_of(first: FileId, entries: &mut [Entry]) -> PageNames {
    let with_names = (first.0..).zip(entries).filter_map(|(id, entry)| {
        let names = entry.meta.names.take()?;
        Some((FileId(id), Arc::unwrap_or_clone(names)))
    });
    PageNames { entries: with_names.collect() }
}

/// The most bytes that an entry adds to a page: its path, its link or text, and the numbers in
/// their longest encoding.
fn entry_bytes(entry: &Entry) -> usize {
    let text = match &entry.kind {
        EntryKind::Symlink { target } => target.len() + 3,
        EntryKind::Unsent { why, .. } => why.len().min(PEER_TEXT_BYTES_MAX) + 5,
        _ => 0,
    };
    entry.path.as_bytes().len() + text + ENTRY_NUMBERS_BYTES
}

/// Kind, length, sparse, inode, mode, seconds, nanoseconds and the path's length as postcard
/// varints.
const ENTRY_NUMBERS_BYTES: usize = 1 + 10 + 1 + 35 + 5 + 10 + 5 + 3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sender::SenderConfig;
    use longhaul_core::{ChunkSize, Inode, Meta, RelPath};

    fn offered(path: &str, len: u64) -> Entry {
        let path = RelPath::new(path.as_bytes()).expect("a path");
        let kind = EntryKind::File { len, sparse: false, inode: Inode::default() };
        Entry { path, kind, meta: Meta::default() }
    }

    #[test]
    fn one_page_leaves_before_the_offer_and_the_next_under_its_credit() {
        let chunk = ChunkSize::DEFAULT;
        let mut sender = Sender::new(SenderConfig { chunk, chunk_min: chunk, chunk_max: chunk, bundled_max: 0 });
        let pages = |sender: &mut Sender| {
            let actions = std::iter::from_fn(|| sender.poll_action());
            actions.filter(|action| matches!(action, SenderAction::Send(Message::Page(_)))).count()
        };
        let mut scanned = 0;
        while sender.has_room() {
            assert!(scanned < 2 * PAGE_ENTRIES_MAX, "the scan waits for credit");
            sender.handle_scanned(offered(&format!("a-file-{scanned}"), 1));
            scanned += 1;
        }
        assert_eq!(pages(&mut sender), 1, "the second page waits");
        sender.handle_message(Message::Offer(Offer { pages: 8, renamed: None, base: Default::default() }));
        assert_eq!(pages(&mut sender), 1);
        assert!(sender.has_room());
    }

    #[test]
    fn the_first_page_alone_is_closed_when_it_fits_no_more_into_a_flight() {
        let chunk = ChunkSize::DEFAULT;
        let mut sender = Sender::new(SenderConfig { chunk, chunk_min: chunk, chunk_max: chunk, bundled_max: 0 });
        sender.fit_first_page(1000);
        sender.handle_message(Message::Offer(Offer { pages: 8, renamed: None, base: Default::default() }));
        for scanned in 0..60 {
            sender.handle_scanned(offered(&format!("a-file-of-30-letters-{scanned:09}"), 1));
        }
        sender.handle_scan_end();
        let actions = std::iter::from_fn(|| sender.poll_action());
        let pages: Vec<_> = actions
            .filter_map(|action| match action {
                SenderAction::Send(Message::Page(page)) => Some(page.entries.len()),
                _ => None,
            })
            .collect();
        // Each entry is reckoned with 100 bytes.
        assert_eq!(pages, [10, 50]);
    }

    #[test]
    fn a_first_page_takes_an_entry_however_little_room_the_flight_has() {
        let chunk = ChunkSize::DEFAULT;
        let mut sender = Sender::new(SenderConfig { chunk, chunk_min: chunk, chunk_max: chunk, bundled_max: 0 });
        sender.fit_first_page(0);
        assert!(sender.has_room());
        sender.handle_scanned(offered("a", 1));
        let action = sender.poll_action();
        assert!(matches!(&action, Some(SenderAction::Send(Message::Page(page))) if page.entries.len() == 1));
    }

    #[test]
    fn a_bundle_is_short_enough_to_share_files_among_lanes_and_a_longer_file_goes_alone() {
        let chunk = ChunkSize::DEFAULT;
        let mut sender =
            Sender::new(SenderConfig { chunk, chunk_min: chunk, chunk_max: chunk, bundled_max: 256 << 10 });
        sender.handle_message(Message::Offer(Offer { pages: 8, renamed: None, base: Default::default() }));
        let lens = [vec![4096; 64], vec![200 << 10, 100]].concat();
        for (at, len) in lens.iter().enumerate() {
            sender.handle_scanned(offered(&format!("f{at}"), *len));
        }
        sender.handle_scan_end();
        sender.handle_message(Message::Answer(Answer { first: FileId(0), wanted: [vec![0xff; 8], vec![3]].concat() }));
        // With their table, 31 of 4 KiB fit 128 KiB.
        assert_eq!(packed(&mut sender), [31, 31, 2, 1, 1]);
    }

    /// The files of each bundle that is to be packed.
    fn packed(sender: &mut Sender) -> Vec<usize> {
        let actions = std::iter::from_fn(|| sender.poll_action());
        let files = |action| if let SenderAction::Pack { files, .. } = action { Some(files.len()) } else { None };
        actions.filter_map(files).collect()
    }
}
