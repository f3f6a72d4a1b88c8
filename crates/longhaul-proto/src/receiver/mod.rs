//! The receiver's machine: it judges what arrives and orders what happens to it.
//!
//! In: control messages, and what the disk and the lanes report (`handle_*`). Out: [`Action`]s
//! (`poll_action`), in the order of the promise: write, sync, (journal), seal, barrier, publish,
//! sync directories, settle. A file's states are distinct: received, verified, written, synced,
//! durable, committed. Payload never comes here; a [`Ticket`] stands for it. Knows nothing of
//! sockets, descriptors or threads.

mod arrivals;
#[cfg(test)]
mod audit;
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

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::digest::Hash32;
use longhaul_core::limits::{ENTRIES_UNSETTLED_MAX, MESSAGE_BYTES_MAX, PAGE_ENTRIES_MAX, PAGES_UNANSWERED_MAX};
use longhaul_core::{Attempt, Blame, BundleId, EntryKind, Fault, FaultCode, FileId, RelPath};

use crate::time::Timestamp;
use crate::wire::bundle::bundled_max;
use crate::wire::message::{Ending, Message, Offer, Outcome, PageCredit, Settlement, Tally};

use arrivals::Arrivals;
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
use readback::{Reading, Unread};
pub use room::Room;
use room::Rooms;
use says::Says;

/// The machine. See the module.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    actions: VecDeque<ReceiverAction>,
    says: Says,
    /// Entries without an outcome, by id.
    entries: BTreeMap<FileId, PendingEntry>,
    /// What the names of all entries cost.
    entries_bytes: usize,
    /// How many entries are ends of directories.
    dir_ends: usize,
    /// Placed paths of files and links that are on their way, so that no two entries share one.
    busy: BTreeSet<RelPath>,
    /// The id that the next page must begin with.
    next_entry: FileId,
    open_dirs: OpenDirs,
    pages: Pages,
    /// Large files that wait for a descriptor, and those that still have chunks to want.
    to_create: BTreeSet<FileId>,
    to_want: BTreeSet<FileId>,
    /// Large files with chunks to copy from what stands under their names.
    to_copy: BTreeSet<FileId>,
    large_open: usize,
    rooms: Rooms,
    chunks_wanted: usize,
    /// Bundles that are wanted again: the attempt that is admitted.
    bundles_again: HashMap<BundleId, Attempt>,
    /// Bundles whose files are being read back.
    bundles_unread: HashMap<BundleId, Unread>,
    lanes: ReceivingLanes,
    arrivals: Arrivals,
    unsynced: Unsynced,
    journal: JournalFlow,
    committer: Committer,
    finishing_dirs: bool,
    tally: Tally,
    bytes_resent: u64,
    /// A failure of one file that will be every other's, too.
    fatal: Option<Fault>,
    /// Until then what has its place is waited for before a full disk ends the session.
    end_by: Option<Timestamp>,
    /// More waits for the connection, or for the disk, than the sender is behind with.
    is_backlogged: bool,
    /// There is no memory for more entries.
    is_cramped: bool,
    phase: SessionPhase,
    drain: Option<Drain>,
}

/// An unsettled entry and what it is about to become.
#[derive(Debug)]
struct PendingEntry {
    entry: Arc<EntryRef>,
    state: EntryState,
    /// Whether it holds its path in [`Receiver::busy`].
    busy: bool,
    /// The bundle that it came in and whose verdict waits for it.
    bundle: Option<BundleId>,
    /// Whether its rename may replace: never where nothing was seen under its name.
    replace: Replace,
}

/// Where an entry stands.
#[derive(Debug)]
enum EntryState {
    /// The disk is asked what stands there.
    Surveyed,
    /// It has no place beneath the destination: fails with its page's answer.
    Unplaced(Fault),
    /// A small file: what stands under its name is being read.
    Comparing,
    /// A file that is skipped: what stands there is being read for its root.
    Digesting,
    /// A small file that is wanted, if it has not this root, which stands there.
    Compared(Hash32),
    /// A small file that stands as it would be sent: its metadata is being looked at.
    Retouching(Hash32),
    /// A small file that is wanted.
    Wanted,
    /// A small file (its root) or a link (none): bytes are being written under a temporary name.
    Staging(Option<Hash32>),
    /// A small file or link that waits for its batch or is in it.
    Staged(Option<Hash32>),
    /// A file that comes in chunks.
    Large(Box<LargeTarget>),
    /// The end of a directory: waits for everything before it.
    DirEnd,
}

/// Manifest flow.
#[derive(Debug, Default)]
struct Pages {
    entries_taken: u64,
    answered: u64,
    credit: u64,
    last_seen: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionPhase {
    Running,
    /// All is settled; what was written down for others is being put away.
    Tidying,
    /// `Complete` is said, `Bye` awaited.
    Completing,
    Over,
}

impl Receiver {
    /// A receiver that begins with its offer. `base` is where the destination stands, for people.
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
            to_create: BTreeSet::new(),
            to_want: BTreeSet::new(),
            to_copy: BTreeSet::new(),
            large_open: 0,
            rooms: Rooms::default(),
            chunks_wanted: 0,
            bundles_again: HashMap::new(),
            bundles_unread: HashMap::new(),
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

    /// What to do next, if anything. Verdicts and settlements come last, so that many leave in one
    /// message.
    pub fn poll_action(&mut self) -> Option<ReceiverAction> {
        if self.actions.is_empty() {
            self.says.flush(&mut self.actions);
        }
        self.actions.pop_front()
    }

    /// When [`Receiver::handle_timeout`] wants to be called at the latest.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        if let Some(drain) = &self.drain {
            return Some(drain.deadline());
        }
        let group = self.unsynced.deadline(self.config.group);
        let (batch, room) = (self.committer.deadline(), self.rooms.deadline());
        [group, self.arrivals_deadline(), batch, room, self.end_by].into_iter().flatten().min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if !self.is_draining() && self.arrivals_deadline().is_some_and(|deadline| now >= deadline) {
            let fault = Fault::new(FaultCode::Lost, Blame::Path, "data arrived that the sender never announced");
            return self.abort(fault.hint("run the same command again, or with --protect private"));
        }
        self.settle_down(now);
    }

    /// When the oldest arrival has waited too long. Of a session that is to end none is waited for.
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

    /// Whether more waits for the connection than an honest sender is behind with, or for the disk:
    /// then no page is asked for, no file is begun and no chunk wanted. What is owed already is
    /// taken in and said all the same.
    pub fn handle_backlog(&mut self, now: Timestamp, is_backlogged: bool) {
        if std::mem::replace(&mut self.is_backlogged, is_backlogged) != is_backlogged && !self.is_over() {
            self.settle_down(now);
        }
    }

    /// Whether there is no memory for more entries: then no page is asked for. Those that are held
    /// go their way, and wait for no others to be committed with.
    pub fn handle_cramped(&mut self, now: Timestamp, is_cramped: bool) {
        if std::mem::replace(&mut self.is_cramped, is_cramped) != is_cramped && !self.is_over() {
            self.settle_down(now);
        }
    }

    /// The counters.
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

    /// Whether the session is on its way to its end by a fault: nothing is taken in any more.
    pub fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// Whether everything was said that is to be said.
    pub fn is_over(&self) -> bool {
        self.phase == SessionPhase::Over
    }

    /// Whether a batch is under way, from its barrier to the outcome of its files.
    pub fn has_batch(&self) -> bool {
        self.committer.is_busy()
    }

    /// Entries held.
    pub fn unsettled(&self) -> usize {
        self.entries.len()
    }

    /// Whether the sender has named everything.
    pub fn has_every_name(&self) -> bool {
        self.pages.last_seen
    }

    /// Bytes of their names.
    pub fn names_bytes(&self) -> usize {
        self.entries_bytes
    }

    /// Ends an event: with the session if it failed.
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
        // What has its place, or is about to, comes to its name before a full disk ends the
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
        // Of a session that is to end not everything that lies in them was told.
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

    /// Whether the session is to end for want of room on the target.
    fn is_short_of_room(&self) -> bool {
        self.fatal.as_ref().is_some_and(|fault| fault.code == FaultCode::NoSpace)
    }

    /// What was written down for another session is put away, and every name that stands is durable
    /// (or not).
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

    /// Lets the sender send more pages, as far as the entries they may bring fit the bounds.
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

    /// Ends an entry: it is said, shown and forgotten, and what it occupied is free. Nothing else
    /// removes entries.
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
        // What ends the session ails every file alike: it is said of the first. Of a process that
        // is out of descriptors not even that: none has failed, and all are sent again by whoever
        // goes on.
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

/// A batch has 256 MiB at most that no sync has spoken for: a disk that takes 16 MB/s has them by
/// then.
const ENDING_MAX: Duration = Duration::from_secs(20);
/// What the names of unsettled entries may cost: an ordinary window of 16 Ki entries needs a fifth
/// of it.
const ENTRIES_BYTES_MAX: usize = 16 << 20;
/// What one page may add to that: names as sent, as placed (maybe under a longer top) and as
/// reserved.
const PAGE_NAME_BYTES_MAX: usize = 3 * MESSAGE_BYTES_MAX + 2 * 256 * PAGE_ENTRIES_MAX;
const _: () = assert!(PAGES_UNANSWERED_MAX as usize * PAGE_NAME_BYTES_MAX <= ENTRIES_BYTES_MAX);
