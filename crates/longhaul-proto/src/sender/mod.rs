//! The sender's machine: it offers entries, sends the units that are wanted, and takes verdicts and
//! outcomes.
//!
//! In: scanned entries, control messages, and reports of the disk and the lanes (`handle_*`). Out:
//! [`SenderAction`]s. It keeps no payload: a unit that is wanted again is read again, and must then
//! have the digest that it had before. Knows nothing of sockets, descriptors or threads. The states
//! of an entry are listed at `OfferState`.

#[cfg(any(test, feature = "audit"))]
mod audit;
mod bundles;
mod files;
mod lanes;
mod lost;
mod manifest;
mod outstanding;
mod stream;
mod unasked;

use std::collections::{BTreeMap, VecDeque};

use longhaul_core::digest::{Digest, Hash32};
use longhaul_core::limits::{ATTEMPTS_MAX, ENTRIES_UNSETTLED_MAX, UDP_UNITS_OPEN_MAX};
use longhaul_core::{Attempt, BundleId, ChunkIndex, ChunkMap, ChunkSize, Fault, FaultCode, FileId, LaneId, Unit};

use crate::steps;
use crate::wire::bundle::bundled_max;
use crate::wire::message::{Declared, Ending, FileFault, Finding, Message, Outcome, Settlement, Tally, Verdict};

use bundles::{Bundle, SentBundles};
use files::LargeSource;
pub use lanes::Unfinished;
use lanes::{Carrier, SendingLanes};
use manifest::Manifest;
use outstanding::Outstanding;
pub use stream::StreamInput;

/// An order of the sender, to be carried out once.
#[derive(Clone, Debug)]
pub enum SenderAction {
    /// Send this message to the receiver.
    Send(Message),
    /// Read this chunk and hand it to a lane: [`Sender::handle_sent`] or
    /// [`Sender::handle_unreadable`]. The doer may skip it once the file is settled.
    ReadChunk {
        /// The file.
        file: FileId,
        /// The chunk.
        index: ChunkIndex,
        /// Which sending.
        attempt: Attempt,
        /// The file's geometry: its length in the manifest, and its own chunk size.
        map: ChunkMap,
        /// The digest of the chunk that the receiver has in this place; a chunk that still has it
        /// is declared without payload. `None` if the receiver has none.
        expect: Option<Digest>,
    },
    /// Pack these files into a bundle and hand it to a lane: [`Sender::handle_pack`] for files that
    /// dropped out, then [`Sender::handle_sent`]. A file with the root of the standing file at the
    /// receiver is named without its bytes.
    Pack {
        /// The bundle.
        bundle: BundleId,
        /// Which sending.
        attempt: Attempt,
        /// The files, in order.
        files: Vec<Small>,
    },
    /// Read these files of the first page into a bundle and say it by a [`Message::Unasked`]. The
    /// page waits for the report, [`Sender::handle_pack_unasked`]. Files that cannot be read at
    /// once are left out.
    PackUnasked(Vec<Small>),
    /// Check whether this file, of which every chunk was read, is unchanged since it was opened:
    /// [`Sender::handle_check_source`].
    CheckSource {
        /// The file.
        file: FileId,
        /// Its root, made of what was read.
        root: Hash32,
    },
    /// These chunks of a stream are durable at the receiver: they need not be kept any longer.
    Release {
        /// The stream.
        file: FileId,
        /// The first chunk.
        start: ChunkIndex,
        /// How many.
        count: u64,
        /// The size of a chunk.
        size: ChunkSize,
    },
    /// Close this side's end of this lane, if it is open: [`Sender::handle_lane_ended`].
    CloseLane(LaneId),
    /// An entry is settled with this outcome, and nothing of it is needed any more: close it,
    /// forget it, report it.
    Settled(FileId, Outcome),
    /// Every entry is settled: the session is over.
    Finished(Ending),
    /// The session cannot go on. Always the last action.
    Abort(Fault),
}

/// A file that goes in a bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Small {
    /// The file.
    pub file: FileId,
    /// Its length.
    pub len: u64,
    /// The root of the standing file at the receiver, if that is to be compared. `None` if the file
    /// is to be sent.
    pub standing_root: Option<Hash32>,
}

/// A unit that was handed to a lane whole.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The unit.
    pub unit: Unit,
    /// Which sending.
    pub attempt: Attempt,
    /// Its digest.
    pub digest: Digest,
    /// Payload bytes of it that went over the lane; 0 for a hole, and for what the receiver has.
    pub len: u64,
    /// Its length, whatever went over the lane.
    pub unit_len: u64,
    /// The lane that carried it.
    pub lane: LaneId,
    /// Its number on that lane.
    pub seq: u64,
    /// Whether the lane carried the digest too. If not, it must be declared over control.
    pub declared: bool,
}

/// The terms that both sides agreed on for the session.
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    /// The chunk size of files of which the receiver holds no part.
    pub chunk: ChunkSize,
    /// The smallest chunk size in which a receiver may hold part of a file: the smallest that any
    /// session may have begun it with.
    pub chunk_min: ChunkSize,
    /// The largest chunk that buffers hold.
    pub chunk_max: ChunkSize,
    /// Files up to this length go in bundles, as far as [`crate::wire::bundle::bundled_max`]
    /// allows.
    pub bundled_max: u64,
}

impl SenderConfig {
    /// The same, with bundles as long as the format allows.
    fn bounded(self) -> SenderConfig {
        SenderConfig { bundled_max: bundled_max(self.chunk, self.bundled_max), ..self }
    }
}

/// The machine. See the module.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    actions: VecDeque<SenderAction>,
    manifest: Manifest,
    /// Entries without an outcome, by id.
    entries: BTreeMap<FileId, OfferState>,
    bundles: SentBundles,
    lanes: SendingLanes,
    /// Digests of units that were sent on `safe` lanes and are not declared yet.
    undeclared: Vec<Declared>,
    outstanding: Outstanding,
    /// More messages wait for the connection than an honest receiver causes.
    is_backlogged: bool,
    payload: PayloadBytes,
    /// The receiver's counters, as it said them last.
    tally: Tally,
    is_over: bool,
}

/// Payload bytes that were handed to lanes.
#[derive(Debug, Default)]
struct PayloadBytes {
    all: u64,
    /// The bytes of them that were sent before, in part at least.
    again: u64,
    /// The lengths of what is not to be sent for the first time any more.
    done: u64,
}

/// The state of an entry, from its offer to its outcome. An entry that is settled is removed,
/// whatever its state.
///
/// ```text
/// state    event                                               next state
/// (new)    the scan found it, and it joins a page              Offered
/// Offered  wanted or to be compared; length within bundles     Small
/// Offered  wanted; longer, or a stream                         Large
/// Small    it dropped out of its bundle, or that was given up  Idle
/// Large    it cannot be read, or its source has changed        Idle
/// any      its outcome came                                    (settled)
/// ```
///
/// On the way to `Idle` its fault is said to the receiver, which answers with the outcome.
#[derive(Debug)]
enum OfferState {
    /// It is offered: the receiver has not answered, or does not want its content.
    Offered(OfferedContent),
    /// Its fault is said; it waits for its outcome.
    Idle,
    /// A small file that is packed, or about to be.
    Small,
    /// A file that goes in chunks.
    Large(Box<LargeSource>),
}

/// The content of an offered entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfferedContent {
    /// None: it is no file.
    Nothing,
    /// The bytes of a file, of which there are so many.
    Bytes(u64),
    /// The bytes of a stream.
    Stream,
}

impl Sender {
    /// A sender that may say its first page before it hears the receiver's offer.
    pub fn new(config: SenderConfig) -> Sender {
        Sender {
            config: config.bounded(),
            actions: VecDeque::new(),
            manifest: Manifest::default(),
            entries: BTreeMap::new(),
            bundles: SentBundles::default(),
            lanes: SendingLanes::default(),
            undeclared: Vec::new(),
            outstanding: Outstanding::default(),
            is_backlogged: false,
            payload: PayloadBytes::default(),
            tally: Tally::default(),
            is_over: false,
        }
    }

    /// The terms are agreed on. What was done before, scanning and the first page, needs none.
    pub fn handle_agreed(&mut self, config: SenderConfig) {
        self.config = config.bounded();
    }

    /// The next action, or `None`. Declarations come last, so that many leave in one message.
    pub fn poll_action(&mut self) -> Option<SenderAction> {
        if self.actions.is_empty() && !self.is_over {
            self.say_undeclared();
        }
        self.actions.pop_front()
    }

    /// The receiver's counters, as it said them last.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Payload bytes handed to lanes, and those of them that were sent before.
    pub fn bytes_sent(&self) -> (u64, u64) {
        (self.payload.all, self.payload.again)
    }

    /// Bytes of files that are not to be sent for the first time any more, each of them once: parts
    /// that the receiver holds, and units that were handed to lanes whole, holes and units that the
    /// receiver has among them. Units that a lost lane had in hand are still to be sent. Files that
    /// turned out to be equal count with their outcomes, and not here.
    pub fn bytes_done(&self) -> u64 {
        self.payload.done
    }

    /// Whether the receiver wanted the content of an entry that has no outcome, or has it unasked
    /// and did not ask for it.
    pub fn is_begun(&self, file: FileId) -> bool {
        match self.entries.get(&file) {
            Some(OfferState::Small | OfferState::Large(_)) => true,
            Some(OfferState::Offered(_)) => self.was_taken_unasked(file),
            _ => false,
        }
    }

    /// Whether the session is over for this machine.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// A control message came.
    pub fn handle_message(&mut self, message: Message) {
        if self.is_over {
            return;
        }
        let result = match message {
            Message::Offer(offer) => self.on_offer(&offer),
            Message::PageCredit(credit) => self.on_page_credit(&credit),
            Message::Answer(answer) => self.on_answer(&answer),
            Message::Resume(resume) => self.on_resume(&resume),
            Message::WantChunks(want) => self.on_want_chunks(want.file, want.start, want.count, None),
            Message::CheckChunks(check) => {
                let count = check.digests.len() as u64;
                self.on_want_chunks(check.file, check.start, count, Some(&check.digests))
            }
            Message::CheckFiles(check) => self.on_check_files(check),
            Message::SendAgain(again) => self.on_send_again(&again),
            Message::WantLast(want) => self.on_want_last(want.file),
            Message::DurableChunks(durable) => self.on_durable_chunks(&durable),
            Message::Verdicts(list) => list.into_iter().try_for_each(|v| self.on_verdict(v)),
            Message::Settled(list) => list.into_iter().try_for_each(|s| self.on_settled(s)),
            Message::Tally(tally) => {
                self.tally = tally;
                Ok(())
            }
            Message::LaneLost(lost) => {
                self.on_lane_lost(lost.lane);
                Ok(())
            }
            Message::LaneClosed(closed) => {
                self.on_lane_closed(closed.lane, closed.landed.into());
                Ok(())
            }
            Message::UdpLaneClosed(closed) => {
                match closed.landed.beyond.len() <= UDP_UNITS_OPEN_MAX as usize {
                    true => self.on_lane_closed(closed.lane, closed.landed),
                    false => return self.abort(Fault::protocol("more units of a lane landed than there can be")),
                }
                Ok(())
            }
            Message::Complete(ending) => self.on_complete(ending),
            Message::Heartbeat(_) => Ok(()),
            Message::Refuse(fault) => Err(fault.seen_from_afar()),
            other => Err(Fault::protocol(format_args!("a receiver does not say {}", other.name()))),
        };
        if let Err(fault) = result {
            self.abort(fault);
        }
    }

    /// Ends the session with `fault`. Later reports change nothing.
    pub fn abort(&mut self, fault: Fault) {
        if !self.is_over {
            self.is_over = true;
            self.actions.push_back(SenderAction::Abort(fault));
        }
    }

    /// A unit was handed to a lane whole.
    pub fn handle_sent(&mut self, sent: Sent) {
        if self.is_over {
            return;
        }
        self.payload.all += sent.len;
        if sent.attempt > Attempt::FIRST || self.carrier_of(sent.unit) == Carrier::Lost {
            self.payload.again += sent.len;
        }
        let handed = self.hand(sent.unit, sent.unit_len);
        self.payload.done = self.payload.done.saturating_add(handed);
        if !sent.declared {
            self.declare(Declared {
                lane: sent.lane,
                seq: sent.seq,
                unit: sent.unit,
                attempt: sent.attempt,
                digest: sent.digest,
            });
        }
        match sent.unit {
            Unit::Chunk { file, index } => self.chunk_sent(file, index, &sent),
            Unit::Bundle(id) => self.bundle_sent(id, &sent),
        }
    }

    /// Notes that a lane had a unit of `len` bytes whole. Gives `len` if that is the first time, 0
    /// else: a unit may be damaged, lost with its lane and lost by the receiver in any order.
    fn hand(&mut self, unit: Unit, len: u64) -> u64 {
        match unit {
            Unit::Chunk { file, index } => self.large(file).map_or(0, |large| large.hand(index, len)),
            Unit::Bundle(id) => {
                let is_first = |bundle: &mut Bundle| !std::mem::replace(&mut bundle.is_handed, true);
                if self.bundles.get_mut(id).is_some_and(is_first) { len } else { 0 }
            }
        }
    }

    fn declare(&mut self, declared: Declared) {
        self.undeclared.push(declared);
        if self.undeclared.len() >= DECLARATIONS_MAX {
            self.say_undeclared();
        }
    }

    fn say_undeclared(&mut self) {
        if !self.undeclared.is_empty() {
            let list = std::mem::take(&mut self.undeclared);
            self.actions.push_back(SenderAction::Send(Message::Digests(list)));
        }
    }

    fn on_verdict(&mut self, verdict: Verdict) -> Result<(), Fault> {
        match verdict.unit {
            Unit::Chunk { file, index } => self.on_chunk_verdict(file, index, verdict.attempt, verdict.finding),
            Unit::Bundle(id) => self.on_bundle_verdict(id, verdict.attempt, verdict.finding),
        }
    }

    fn on_settled(&mut self, settlement: Settlement) -> Result<(), Fault> {
        let Settlement { file, outcome } = settlement;
        let not_outstanding =
            || Fault::protocol(format_args!("an outcome of entry {}, which is not outstanding", file.0));
        if !self.manifest.was_sent(file) {
            return Err(not_outstanding());
        }
        let state = self.entries.remove(&file).ok_or_else(not_outstanding)?;
        steps::end(&state);
        self.settle_unasked(file, &state, &outcome)?;
        if let OfferState::Large(large) = state {
            self.outstanding.release(&large);
            if !matches!(outcome, Outcome::Committed(_)) {
                // Its bytes are those of its outcome now.
                self.payload.done = self.payload.done.saturating_sub(large.bytes_done);
            }
            let root = match outcome {
                Outcome::Committed(root) => Some(root),
                Outcome::Equal(root) => Some(Some(root)),
                _ => None,
            };
            if root.is_some_and(|root| root.is_none() || root != large.root_said()) {
                return Err(Fault::protocol(format_args!(
                    "the receiver has entry {} with another digest than was sent",
                    file.0
                )));
            }
        }
        self.actions.push_back(SenderAction::Settled(file, outcome));
        Ok(())
    }

    fn on_complete(&mut self, ending: Ending) -> Result<(), Fault> {
        if !self.entries.is_empty() || !self.manifest.is_all_sent() {
            return Err(Fault::protocol("the receiver is complete before every entry has an outcome"));
        }
        self.is_over = true;
        self.tally = ending.tally;
        self.actions.push_back(SenderAction::Send(Message::Bye(Ending::default())));
        self.actions.push_back(SenderAction::Finished(ending));
        Ok(())
    }

    /// Says that a file cannot be sent. The receiver gives its outcome.
    fn say_file_fault(&mut self, file: FileId, fault: &Fault) {
        // Every other file would fail as well, and none of them for a reason of its own.
        if fault.code == FaultCode::Exhausted {
            return self.abort(fault.clone());
        }
        let Some(state) = self.entries.get_mut(&file) else { return };
        let before = steps::replace(state, OfferState::Idle);
        if let OfferState::Large(large) = before {
            self.outstanding.release(&large);
        }
        let (code, message) = (fault.code, fault.message.clone());
        self.actions.push_back(SenderAction::Send(Message::FileFault(FileFault { file, code, message })));
    }
}

/// Whether a receiver may say this after so many sendings: the last one cannot be wanted again, and
/// no earlier one given up.
fn may_be_said(unit: Unit, sendings: u32, finding: Finding) -> Result<(), Fault> {
    let what = match finding {
        Finding::Again if sendings >= ATTEMPTS_MAX => "wants it again",
        Finding::GivenUp if sendings < ATTEMPTS_MAX => "gives it up",
        _ => return Ok(()),
    };
    Err(Fault::protocol(format_args!("after {sendings} of {ATTEMPTS_MAX} sendings of {unit} the receiver {what}")))
}

/// The fault of a receiver that acknowledges another digest than was sent: its build or its memory
/// is broken.
fn wrong_digest(unit: Unit) -> Fault {
    Fault::protocol(format_args!("the receiver acknowledges another digest of {unit} than was sent"))
}

/// The most declarations in one message; at some 80 bytes each they stay below the message bound.
const DECLARATIONS_MAX: usize = 1024;
/// The most files in bundles, likewise, ...
const FILES_BUNDLED_MAX: usize = 2 * ENTRIES_UNSETTLED_MAX;
/// ... and the most entries without outcome, whatever credit the receiver gives. An honest receiver
/// never lets it come to this.
const ENTRIES_OUTSTANDING_MAX: usize = 2 * ENTRIES_UNSETTLED_MAX;
