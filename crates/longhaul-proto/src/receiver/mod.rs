//! The receiver's machine: it judges every arrival and orders the work of the disk.
//!
//! In: control messages, and reports of the disk and the lanes (`handle_*`). Out:
//! [`ReceiverAction`]s (`poll_action`), in the order of the promise: write, sync, (journal), seal,
//! barrier, publish, sync directories, settle. Payload never comes here; a [`Ticket`] stands for
//! it. Knows nothing of sockets, descriptors or threads.
//!
//! States and their events: `SessionPhase`, `EntryState`, `LargeStage`, `ChunkState`, `BatchStage`.

mod actions;
mod arrivals;
#[cfg(any(test, feature = "audit"))]
mod audit;
mod bundles;
mod chunks;
mod commit;
mod compare;
mod dirs;
mod drain;
mod entries;
mod flow;
mod in_order;
mod journal;
mod judge;
mod lanes;
mod large;
mod lost;
mod manifest;
mod names;
mod order;
mod partial;
mod policy;
mod readback;
mod room;
mod session;
mod skipped;
mod stream;
mod unasked;
mod unsynced;
mod window;

use longhaul_core::limits::PAGES_UNANSWERED_MAX;
use longhaul_core::{Blame, EntryKind, Fault, FaultCode, FileId, hint};

use crate::time::Timestamp;
use crate::wire::bundle::bundled_max;
use crate::wire::message::{Ending, Message, Offer, Outcome, PageCredit, Settlement, Tally};

use actions::ActionQueue;
use bundles::{Bundles, Reading};
pub use chunks::{ChunkEvent, ChunkState};
use commit::Committer;
pub use in_order::FILES_IN_ORDER_MAX;
pub use journal::JournalEntry;
use journal::JournalFlow;
use lanes::ReceivingLanes;
use manifest::{EntryState, ReceivedManifest};
pub use names::Named;
pub use order::{
    Base, Created, Cut, EntryRef, Landed, LandedRow, ReadBackReason, ReceiverAction, ReceiverConfig, Replace,
    SkippedDigests, Surveyed, SyncGroup, Ticket, WantOrder,
};
pub use partial::{Partial, Source};
pub use policy::{Landing, Policy, Seen, is_same};
pub use room::Room;
use room::Rooms;
use session::{Pressure, SessionPhase, SessionState};
use unsynced::Unsynced;
use window::Window;

/// The machine. It routes: each part has its own state, which no other part changes.
#[derive(Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    /// Actions that are not taken yet.
    actions: ActionQueue,
    /// Whether the session goes on, is held up, or ends.
    session: SessionState,
    /// Entries without an outcome.
    manifest: ReceivedManifest,
    /// Large files that are open or wait, and the chunks that are asked for.
    window: Window,
    /// Bundles that have no verdict yet, or are wanted again.
    bundles: Bundles,
    /// Lanes, and the units that they brought.
    lanes: ReceivingLanes,
    /// The room at the destination.
    rooms: Rooms,
    /// Bytes that are written and not durable.
    unsynced: Unsynced,
    /// Records on their way into the journal.
    journal: JournalFlow,
    /// Staged files on their way to their final names.
    committer: Committer,
    tally: Tally,
}

impl Receiver {
    /// A receiver that begins with its offer. `base` is the path of the destination, for people.
    pub fn new(config: ReceiverConfig, base: String) -> Receiver {
        let renamed = config.landing.renamed().map(<[u8]>::to_vec);
        let offer = Offer { pages: PAGES_UNANSWERED_MAX, renamed, base: base.into() };
        let mut actions = ActionQueue::default();
        actions.say(Message::Offer(offer));
        Receiver {
            actions,
            session: SessionState::new(),
            manifest: ReceivedManifest::new(PAGES_UNANSWERED_MAX),
            window: Window::new(config.order),
            bundles: Bundles::default(),
            lanes: ReceivingLanes::default(),
            rooms: Rooms::default(),
            unsynced: Unsynced::default(),
            journal: JournalFlow::default(),
            committer: Committer::default(),
            tally: Tally::default(),
            config: ReceiverConfig {
                bundled_max: bundled_max(config.chunk, config.bundled_max),
                group: readback::group(&config),
                ..config
            },
        }
    }

    /// The next action. Verdicts and settlements come last, so that many leave together.
    pub fn poll_action(&mut self) -> Option<ReceiverAction> {
        self.actions.poll()
    }

    /// The time at which [`Receiver::handle_timeout`] must be called at the latest.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        if self.is_draining() {
            return self.session.drain_deadline();
        }
        let group = self.unsynced.deadline(self.config.group);
        let (batch, room) = (self.committer.deadline(), self.rooms.deadline());
        [group, self.arrivals_deadline(), batch, room, self.session.end_by()].into_iter().flatten().min()
    }

    /// The time of [`Receiver::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if !self.is_draining() && self.arrivals_deadline().is_some_and(|deadline| now >= deadline) {
            let fault = Fault::new(FaultCode::Lost, Blame::Path, "data arrived that the sender never announced");
            return self.abort(fault.hint(hint::Again::Encrypted));
        }
        self.settle_down(now);
    }

    /// When the oldest arrival has waited too long. `None` if the session is to end.
    fn arrivals_deadline(&self) -> Option<Timestamp> {
        self.lanes.deadline().filter(|_| !self.session.is_ending())
    }

    /// A control message came.
    pub fn handle_message(&mut self, now: Timestamp, message: Message) {
        if self.is_over() || self.is_draining() {
            return;
        }
        let result = match message {
            Message::Extras(extras) => self.on_extras(extras),
            Message::Names(names) => self.on_names(names),
            Message::Page(page) => self.on_page(page),
            Message::Digests(list) => self.on_digests(list),
            Message::FileEnd(end) => self.on_file_end(end),
            Message::StreamEnd(end) => self.on_stream_end(&end),
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
        if self.session.press(Pressure { is_backlogged, ..self.session.pressure() }) && !self.is_over() {
            self.settle_down(now);
        }
    }

    /// Whether memory for more entries is lacking: no page is asked for, and batches do not wait.
    pub fn handle_cramped(&mut self, now: Timestamp, is_cramped: bool) {
        if self.session.press(Pressure { is_cramped, ..self.session.pressure() }) && !self.is_over() {
            self.settle_down(now);
        }
    }

    /// The counters of this session.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Payload bytes that arrived as second or third attempts.
    pub fn bytes_resent(&self) -> u64 {
        self.lanes.bytes_resent()
    }

    /// Whether the sender has declared units that have not arrived.
    pub fn is_owed_arrivals(&self) -> bool {
        self.lanes.is_owed()
    }

    /// Chunks that are asked for and not written.
    pub fn chunks_wanted(&self) -> usize {
        self.window.chunks()
    }

    /// Whether the session is draining after a fault: it takes nothing in any more.
    pub fn is_draining(&self) -> bool {
        self.session.is_draining()
    }

    /// Whether the session is over for this machine.
    pub fn is_over(&self) -> bool {
        self.session.is_over()
    }

    /// Whether a batch is under way, from its barrier to the outcome of its files.
    pub fn has_batch(&self) -> bool {
        self.committer.is_busy()
    }

    /// Number of entries without outcome.
    pub fn unsettled(&self) -> usize {
        self.manifest.len()
    }

    /// Whether the sender has named everything.
    pub fn has_every_name(&self) -> bool {
        self.manifest.has_every_name()
    }

    /// Bytes that the names of unsettled entries occupy.
    pub fn names_bytes(&self) -> usize {
        self.manifest.names_bytes()
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
        let is_ending = self.session.is_ending();
        // Files that are staged, or being staged, are committed before a full disk ends the
        // session, unless the disk hangs.
        let waits = is_ending
            && self.session.is_short_of_room()
            && (self.committer.has_any() || self.manifest.is_staging())
            && self.session.may_commit_first(now);
        if !waits && let Some(fault) = self.session.take_fatal() {
            self.abort(fault);
        }
        if self.is_over() {
            return;
        }
        if self.is_draining() {
            return self.drain_down(now);
        }
        let Pressure { is_backlogged, is_cramped } = self.session.pressure();
        if !is_backlogged && !is_ending {
            if !is_cramped && let Some(upto) = self.manifest.grant() {
                self.actions.say(Message::PageCredit(PageCredit { upto }));
            }
            self.create_and_want(now);
            if self.session.is_ending() {
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
        let is_done = !is_ending && self.manifest.is_over() && self.journal.is_idle();
        if is_done && self.session.phase() == SessionPhase::Running {
            self.session.enter(SessionPhase::Tidying);
            self.actions.flush();
            self.actions.push(ReceiverAction::Tidy);
        }
    }

    /// Spent journals are removed and the standing names are durable. Or that failed.
    pub fn handle_tidy(&mut self, result: Result<(), Fault>) {
        if let Err(fault) = result {
            return self.abort(fault);
        }
        if self.session.phase() == SessionPhase::Tidying && !self.is_draining() {
            self.session.enter(SessionPhase::Completing);
            self.actions.flush();
            self.actions.say(Message::Complete(Ending { cpu_us: 0, tally: self.tally }));
        }
    }

    fn on_bye(&mut self, ending: Ending) -> Result<(), Fault> {
        if self.session.phase() != SessionPhase::Completing {
            return Err(Fault::protocol("the sender says goodbye while files are outstanding"));
        }
        self.session.enter(SessionPhase::Over);
        self.actions.push(ReceiverAction::Finished(ending));
        Ok(())
    }

    /// Settles an entry: says its outcome, removes it, frees its resources. Nothing else does.
    fn finish(&mut self, id: FileId, outcome: Outcome) {
        let Some(slot) = self.manifest.remove(id) else { return };
        if let EntryState::Large(large) = &slot.state {
            self.release(id, large);
        }
        let stands = !matches!(outcome, Outcome::Failed(_) | Outcome::Unsent | Outcome::Planned);
        let waiting = if slot.busy || matches!(slot.state, EntryState::Digesting) {
            self.manifest.waiting.settled(&slot.entry.placed)
        } else {
            Vec::new()
        };
        if matches!(outcome, Outcome::Committed(_) | Outcome::Linked(_)) {
            self.journal.forget(id);
        }
        self.tally.files += u64::from(matches!(outcome, Outcome::Linked(_)));
        if let (Outcome::Committed(_), EntryKind::File { len, .. }) = (&outcome, &slot.entry.entry.kind) {
            self.tally.committed = self.tally.committed.saturating_add(*len);
            self.tally.files += 1;
        }
        // A fault that ends the session concerns every file, so it is said only of the first, and
        // of none if that fault spares them: then none has failed, and the next session sends them
        // again.
        let mut is_told = true;
        if let Outcome::Failed(fault) = &outcome
            && (fault.code.ends_session() || self.session.is_barred())
        {
            is_told = !fault.code.spares_files() && !self.session.is_ending() && !self.is_draining();
            self.session.end_by_file(fault);
        }
        if is_told {
            self.actions.push(ReceiverAction::Settled(slot.entry, outcome.clone()));
            let outcome = self.outcome_for_sender(outcome);
            self.actions.settled(Settlement { file: id, outcome });
        }
        if let Some(bundle) = slot.bundle {
            self.read_of_bundle(bundle, Reading::Over);
        }
        if stands {
            self.first_name_stands(waiting);
        } else {
            self.first_name_failed(waiting);
        }
    }
}
