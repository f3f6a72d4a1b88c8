//! The receiver's machine: it judges every arrival and orders the work of the disk.
//!
//! In: control messages, and reports of the disk and the lanes (`handle_*`). Out:
//! [`ReceiverAction`]s (`poll_action`), in the order of the promise: write, sync, (journal), seal,
//! barrier, publish, sync directories, settle. Payload never comes here; a [`Ticket`] stands for
//! it. Knows nothing of sockets, descriptors or threads.
//!
//! States and their events: `SessionPhase`, `EntryState`, `LargeStage`, `ChunkState`, `BatchStage`.

mod arrivals;
#[cfg(test)]
mod audit;
mod bundles;
mod chunks;
mod commit;
mod compare;
mod dirs;
mod doubt;
mod drain;
mod entries;
mod flow;
mod journal;
mod judge;
mod lanes;
mod large;
mod order;
mod partial;
mod policy;
mod readback;
mod room;
mod says;
mod skipped;
mod window;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::digest::Hash32;
use longhaul_core::limits::{ENTRIES_UNSETTLED_MAX, MESSAGE_BYTES_MAX, PAGE_ENTRIES_MAX, PAGES_UNANSWERED_MAX};
use longhaul_core::{Blame, BundleId, EntryKind, Fault, FaultCode, FileId, RelPath};

use crate::time::Timestamp;
use crate::wire::bundle::bundled_max;
use crate::wire::message::{Ending, Message, Offer, Outcome, PageCredit, Settlement, Tally};

use arrivals::Arrivals;
use bundles::{Bundles, Reading};
pub use chunks::{ChunkEvent, ChunkState};
use commit::Committer;
use dirs::OpenDirs;
use drain::Drain;
pub use journal::JournalEntry;
use journal::JournalFlow;
use lanes::ReceivingLanes;
use large::{LargeTarget, Unsynced};
pub use order::{
    Base, Created, EntryRef, Landed, LandedRow, ReadBackReason, ReceiverAction, ReceiverConfig, Replace,
    SkippedDigests, Surveyed, SyncGroup, Ticket,
};
pub use partial::{Partial, Source};
pub use policy::{Landing, Policy, Seen, is_same};
pub use room::Room;
use room::Rooms;
use says::Says;
use window::Window;

/// The machine. See the module.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    actions: VecDeque<ReceiverAction>,
    says: Says,
    /// Entries without an outcome, by id.
    entries: BTreeMap<FileId, PendingEntry>,
    /// Bytes that the names of all entries occupy.
    entries_bytes: usize,
    /// Number of entries that are ends of directories.
    dir_ends: usize,
    /// Placed paths of files and links that are on their way, so that no two entries share one.
    busy: BTreeSet<RelPath>,
    /// The id that the next page must begin with.
    next_entry: FileId,
    open_dirs: OpenDirs,
    pages: Pages,
    /// Large files that are open or wait, and the chunks that are asked for.
    window: Window,
    rooms: Rooms,
    /// Bundles that have no verdict yet, or are wanted again.
    bundles: Bundles,
    lanes: ReceivingLanes,
    arrivals: Arrivals,
    unsynced: Unsynced,
    journal: JournalFlow,
    committer: Committer,
    finishing_dirs: bool,
    tally: Tally,
    bytes_resent: u64,
    /// A fault of one file that every other file would meet too. It ends the session.
    fatal: Option<Fault>,
    /// When a full disk ends the session, even if staged files are not committed. `None` before.
    end_by: Option<Timestamp>,
    /// More waits for the connection or the disk than an honest sender causes.
    is_backlogged: bool,
    /// There is no memory for more entries.
    is_cramped: bool,
    phase: SessionPhase,
    drain: Option<Drain>,
}

/// An entry without outcome, and its state.
#[derive(Debug)]
struct PendingEntry {
    entry: Arc<EntryRef>,
    state: EntryState,
    /// Whether it holds its path in [`Receiver::busy`].
    busy: bool,
    /// The bundle that the file came in, if the verdict on the bundle waits for this file.
    bundle: Option<BundleId>,
    /// Whether its rename may replace a standing file. Never, if nothing stood under its name.
    replace: Replace,
}

/// The state of an entry until it is settled: each with its next states and their events.
/// ```text
/// (page)      -> Surveyed: it has a place; Unplaced: it has none; DirEnd: end of a directory
/// Surveyed    -> Staging: link; Wanted: small file to send; Comparing: small file to compare;
///                Large: file in chunks; Digesting: skipped, root wanted; settled: any other
/// Unplaced    -> settled (failed): its page is surveyed
/// Digesting   -> settled: the root is read, or not
/// Comparing   -> Compared: the root is read; Wanted: unreadable; settled: no right to replace
/// Compared    -> Retouching: the source has its root; Staging: it has another; settled (failed)
/// Wanted      -> Staging: it came in a bundle; settled (failed): wrong digest, or not sent
/// Retouching  -> settled (equal): unchanged, and its metadata is set; settled (failed)
/// Staging     -> Staged: written under a temporary name; settled (failed): not written
/// Staged      -> Wanted: read back and spoilt, attempts left; settled: its batch is over
/// Large       -> settled: see LargeStage
/// DirEnd      -> settled: everything before it is settled, and its mode and times are set
/// ```
#[derive(Debug)]
enum EntryState {
    /// The disk looks up its name.
    Surveyed,
    /// It has no place beneath the destination. It fails when its page is answered.
    Unplaced(Fault),
    /// A small file: the root of the standing file is being read.
    Comparing,
    /// A skipped file: the standing file is being read for its root.
    Digesting,
    /// A small file that is wanted unless the source has this root, which the standing file has.
    Compared(Hash32),
    /// A small file that stands with this root, as in the source: its metadata is being set.
    Retouching(Hash32),
    /// A small file that is wanted.
    Wanted,
    /// A small file (its root) or a link (`None`) that is written under a temporary name.
    Staging(Option<Hash32>),
    /// A small file (its root) or a link (`None`) that waits for its batch or is in it.
    Staged(Option<Hash32>),
    /// A file that comes in chunks.
    Large(Box<LargeTarget>),
    /// The end of a directory. It waits until everything before it is settled.
    DirEnd,
}

/// The flow of manifest pages: how many were taken, answered and asked for.
#[derive(Debug, Default)]
struct Pages {
    entries_taken: u64,
    answered: u64,
    credit: u64,
    last_seen: bool,
}

/// The phase of the session. A drain (`drain`) runs beside it.
/// ```text
/// Running     -> Tidying (action Tidy): all pages answered, no entry left, journal idle
/// Tidying     -> Completing (send Complete): the destination is tidied
/// Completing  -> Over (action Finished): Bye
/// any         -> Over (action Abort): fault, and the drain is over
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionPhase {
    Running,
    /// Every entry is settled. The doer syncs standing names and removes journals that are done.
    Tidying,
    /// `Complete` is said; the sender's `Bye` is awaited.
    Completing,
    Over,
}

impl Receiver {
    /// A receiver that begins with its offer. `base` is the path of the destination, for people.
    pub fn new(config: ReceiverConfig, base: String) -> Receiver {
        let renamed = config.landing.renamed().map(<[u8]>::to_vec);
        let offer = Offer { pages: PAGES_UNANSWERED_MAX, renamed, base: base.into() };
        Receiver {
            actions: VecDeque::from([ReceiverAction::Send(Message::Offer(offer))]),
            says: Says::default(),
            entries: BTreeMap::new(),
            entries_bytes: 0,
            dir_ends: 0,
            busy: BTreeSet::new(),
            next_entry: FileId(0),
            open_dirs: OpenDirs::default(),
            pages: Pages { credit: PAGES_UNANSWERED_MAX, ..Pages::default() },
            window: Window::default(),
            rooms: Rooms::default(),
            bundles: Bundles::default(),
            lanes: ReceivingLanes::default(),
            arrivals: Arrivals::default(),
            unsynced: Unsynced::default(),
            journal: JournalFlow::default(),
            committer: Committer::default(),
            finishing_dirs: false,
            tally: Tally::default(),
            bytes_resent: 0,
            fatal: None,
            end_by: None,
            is_backlogged: false,
            is_cramped: false,
            phase: SessionPhase::Running,
            drain: None,
            config: ReceiverConfig {
                bundled_max: bundled_max(config.chunk, config.bundled_max),
                group: readback::group(&config),
                ..config
            },
        }
    }

    /// The next action. Verdicts and settlements come last, so that many leave together.
    pub fn poll_action(&mut self) -> Option<ReceiverAction> {
        if self.actions.is_empty() {
            self.says.flush(&mut self.actions);
        }
        self.actions.pop_front()
    }

    /// The time at which [`Receiver::handle_timeout`] must be called at the latest.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        if let Some(drain) = &self.drain {
            return Some(drain.deadline());
        }
        let group = self.unsynced.deadline(self.config.group);
        let (batch, room) = (self.committer.deadline(), self.rooms.deadline());
        [group, self.arrivals_deadline(), batch, room, self.end_by].into_iter().flatten().min()
    }

    /// The time of [`Receiver::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if !self.is_draining() && self.arrivals_deadline().is_some_and(|deadline| now >= deadline) {
            let fault = Fault::new(FaultCode::Lost, Blame::Path, "data arrived that the sender never announced");
            return self.abort(fault.hint("run the same command again, or with --protect private"));
        }
        self.settle_down(now);
    }

    /// When the oldest arrival has waited too long. `None` if the session is to end.
    fn arrivals_deadline(&self) -> Option<Timestamp> {
        self.arrivals.deadline().filter(|_| self.fatal.is_none())
    }

    /// A control message came.
    pub fn handle_message(&mut self, now: Timestamp, message: Message) {
        if self.phase == SessionPhase::Over || self.is_draining() {
            return;
        }
        let result = match message {
            Message::Page(page) => self.on_page(page),
            Message::Digests(list) => self.on_digests(list),
            Message::FileEnd(end) => self.on_file_end(end),
            Message::FileFault(fault) => self.on_file_fault(fault),
            Message::Bye(ending) => self.on_bye(ending),
            Message::LaneLost(lost) => self.on_lane_lost(lost.lane),
            Message::Heartbeat(_) => Ok(()),
            Message::Refuse(fault) => Err(fault.seen_from_afar()),
            other => Err(Fault::protocol(format_args!("a sender does not say {}", other.name()))),
        };
        self.after(now, result);
    }

    /// Whether more waits for the connection or the disk than an honest sender causes. If so, no
    /// page is asked for, no file is begun and no chunk wanted; arrivals are taken in all the same.
    pub fn handle_backlog(&mut self, now: Timestamp, is_backlogged: bool) {
        if std::mem::replace(&mut self.is_backlogged, is_backlogged) != is_backlogged && !self.is_over() {
            self.settle_down(now);
        }
    }

    /// Whether memory for more entries is lacking: no page is asked for, and batches do not wait.
    pub fn handle_cramped(&mut self, now: Timestamp, is_cramped: bool) {
        if std::mem::replace(&mut self.is_cramped, is_cramped) != is_cramped && !self.is_over() {
            self.settle_down(now);
        }
    }

    /// The counters of this session.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Payload bytes that arrived as second or third attempts.
    pub fn bytes_resent(&self) -> u64 {
        self.bytes_resent
    }

    /// Whether the sender has declared units that have not arrived.
    pub fn is_owed_arrivals(&self) -> bool {
        self.arrivals.is_owed()
    }

    /// Whether the session is draining after a fault: it takes nothing in any more.
    pub fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// Whether the session is over for this machine.
    pub fn is_over(&self) -> bool {
        self.phase == SessionPhase::Over
    }

    /// Whether a batch is under way, from its barrier to the outcome of its files.
    pub fn has_batch(&self) -> bool {
        self.committer.is_busy()
    }

    /// Number of entries without outcome.
    pub fn unsettled(&self) -> usize {
        self.entries.len()
    }

    /// Whether the sender has named everything.
    pub fn has_every_name(&self) -> bool {
        self.pages.last_seen
    }

    /// Bytes that the names of unsettled entries occupy.
    pub fn names_bytes(&self) -> usize {
        self.entries_bytes
    }

    /// Ends an event: aborts the session if it failed, and settles down.
    fn after(&mut self, now: Timestamp, result: Result<(), Fault>) {
        match result {
            Ok(()) => {}
            Err(fault) => self.abort(fault),
        }
        self.settle_down(now);
    }

    /// Restores the invariants after any change: credits given, wants issued, groups synced,
    /// batches moved, end said.
    fn settle_down(&mut self, now: Timestamp) {
        self.rooms.look_anew();
        let is_ending = self.fatal.is_some();
        // Files that are staged, or being staged, are committed before a full disk ends the
        // session, unless the disk hangs.
        let waits = is_ending
            && self.is_short_of_room()
            && (self.committer.has_any() || self.is_staging())
            && now < *self.end_by.get_or_insert(now.after(ENDING_MAX));
        if !waits && let Some(fault) = self.fatal.take() {
            self.abort(fault);
        }
        if self.phase == SessionPhase::Over {
            return;
        }
        if self.is_draining() {
            return self.drain_down(now);
        }
        if !self.is_backlogged && !is_ending {
            if !self.is_cramped {
                self.grant_pages();
            }
            self.create_and_want(now);
            if self.fatal.is_some() {
                return self.settle_down(now);
            }
        }
        self.sync_groups(now);
        self.write_journal();
        // A session that is to end finishes no directories: some entries have no outcome.
        if !is_ending {
            self.finish_dirs();
        }
        self.move_batch(now);
        let all_answered = self.pages.last_seen && self.pages.answered == self.pages.entries_taken;
        if self.phase == SessionPhase::Running
            && !is_ending
            && all_answered
            && self.entries.is_empty()
            && self.journal.is_idle()
        {
            self.phase = SessionPhase::Tidying;
            self.says.flush(&mut self.actions);
            self.actions.push_back(ReceiverAction::Tidy);
        }
    }

    /// Whether small files or links are being written under temporary names.
    fn is_staging(&self) -> bool {
        self.entries.values().any(|slot| matches!(slot.state, EntryState::Staging(_)))
    }

    /// Whether the session is to end because the destination is full.
    fn is_short_of_room(&self) -> bool {
        self.fatal.as_ref().is_some_and(|fault| fault.code == FaultCode::NoSpace)
    }

    /// Spent journals are removed and the standing names are durable. Or that failed.
    pub fn handle_tidy(&mut self, result: Result<(), Fault>) {
        if let Err(fault) = result {
            return self.abort(fault);
        }
        if self.phase == SessionPhase::Tidying && !self.is_draining() {
            self.phase = SessionPhase::Completing;
            self.says.flush(&mut self.actions);
            self.actions.push_back(ReceiverAction::Send(Message::Complete(Ending { cpu_us: 0, tally: self.tally })));
        }
    }

    /// Grants the sender more pages, as far as their entries fit the bounds.
    fn grant_pages(&mut self) {
        let entries = ENTRIES_UNSETTLED_MAX.saturating_sub(self.entries.len()) / PAGE_ENTRIES_MAX;
        let bytes = ENTRIES_BYTES_MAX.saturating_sub(self.entries_bytes) / PAGE_NAME_BYTES_MAX;
        let upto = self.pages.answered + (entries.min(bytes) as u64).min(PAGES_UNANSWERED_MAX);
        if upto > self.pages.credit && !self.pages.last_seen {
            self.pages.credit = upto;
            self.actions.push_back(ReceiverAction::Send(Message::PageCredit(PageCredit { upto })));
        }
    }

    fn on_bye(&mut self, ending: Ending) -> Result<(), Fault> {
        if self.phase != SessionPhase::Completing {
            return Err(Fault::protocol("the sender says goodbye while files are outstanding"));
        }
        self.phase = SessionPhase::Over;
        self.actions.push_back(ReceiverAction::Finished(ending));
        Ok(())
    }

    /// Settles an entry: says its outcome, removes it, frees its resources. Nothing else does.
    fn finish(&mut self, id: FileId, outcome: Outcome) {
        let Some(slot) = self.entries.remove(&id) else { return };
        self.entries_bytes -= slot.entry.name_bytes();
        if slot.busy {
            self.busy.remove(&slot.entry.placed);
        }
        match &slot.state {
            EntryState::DirEnd => self.dir_ends -= 1,
            EntryState::Large(large) => self.release(id, large),
            _ => {}
        }
        if matches!(outcome, Outcome::Committed(_)) {
            self.journal.forget(id);
        }
        if let (Outcome::Committed(_), EntryKind::File { len, .. }) = (&outcome, &slot.entry.entry.kind) {
            self.tally.committed = self.tally.committed.saturating_add(*len);
            self.tally.files += 1;
        }
        // A fault that ends the session concerns every file, so it is said only of the first, and
        // of none if descriptors ran out: none has failed, and the next session sends them again.
        let mut is_told = true;
        if let Outcome::Failed(fault) = &outcome
            && fault.code.ends_session()
        {
            is_told = fault.code != FaultCode::Exhausted && self.fatal.is_none() && !self.is_draining();
            self.fatal.get_or_insert_with(|| fault.clone());
        }
        if is_told {
            self.actions.push_back(ReceiverAction::Settled(slot.entry, outcome.clone()));
            let outcome = self.outcome_for_sender(outcome);
            self.says.settled(Settlement { file: id, outcome }, &mut self.actions);
        }
        if let Some(bundle) = slot.bundle {
            self.read_of_bundle(bundle, Reading::Over);
        }
    }
}

/// How long a full disk may commit files. A batch has at most 256 MiB unsynced: 16 MB/s suffice.
const ENDING_MAX: Duration = Duration::from_secs(20);
/// Bytes of the names of unsettled entries. A usual window of 32 Ki entries takes two fifths of it.
const ENTRIES_BYTES_MAX: usize = 16 << 20;
/// Bytes that one page may add: names as sent, as placed (maybe under a longer top), as reserved.
const PAGE_NAME_BYTES_MAX: usize = 3 * MESSAGE_BYTES_MAX + 2 * 256 * PAGE_ENTRIES_MAX;
const _: () = assert!(PAGES_UNANSWERED_MAX as usize * PAGE_NAME_BYTES_MAX <= ENTRIES_BYTES_MAX);
