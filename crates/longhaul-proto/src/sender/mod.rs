//! The sender's machine: what it says it has, what of it is wanted, what was sent, what became of
//! it.
//!
//! In: scanned entries, control messages, and what the disk and the lanes report (`handle_*`). Out:
//! [`SenderAction`]s. It keeps no payload: a unit that is wanted again is read again, and must then
//! give the digest it gave before. Knows nothing of sockets, descriptors or threads.

#[cfg(test)]
mod audit;
mod bundles;
mod files;
mod lanes;
mod manifest;

use std::collections::{BTreeMap, HashMap, VecDeque};

use longhaul_core::digest::{Digest, Hash32};
use longhaul_core::limits::{ATTEMPTS_MAX, CHUNKS_WANTED_MAX, ENTRIES_UNSETTLED_MAX};
use longhaul_core::{Attempt, BundleId, ChunkIndex, ChunkMap, ChunkSize, Fault, FaultCode, FileId, LaneId, Unit};

use crate::wire::bundle::bundled_max;
use crate::wire::message::{Declared, Ending, FileFault, Finding, Message, Outcome, Settlement, Tally, Verdict};

use bundles::Bundle;
use files::LargeSource;
use lanes::SendingLanes;
pub use lanes::Unfinished;
use manifest::Manifest;

/// What is to be done next.
#[derive(Clone, Debug)]
pub enum SenderAction {
    /// Say this to the receiver.
    Send(Message),
    /// Read this chunk and hand it to a lane: [`Sender::handle_sent`] or
    /// [`Sender::handle_unreadable`]. May be left undone once the file is settled.
    ReadChunk {
        /// The file.
        file: FileId,
        /// The chunk.
        index: ChunkIndex,
        /// Which sending.
        attempt: Attempt,
        /// The file's geometry: its length as frozen by the manifest, and its own chunk size.
        map: ChunkMap,
        /// The receiver holds a chunk of this digest: if it is that still, it is declared without
        /// payload.
        expect: Option<Digest>,
    },
    /// Pack these files into a bundle and hand it to a lane: [`Sender::handle_pack`] for files that
    /// dropped out, then [`Sender::handle_sent`]. A file that has the root that stands at the
    /// receiver is named without its bytes.
    Pack {
        /// The bundle.
        bundle: BundleId,
        /// Which sending.
        attempt: Attempt,
        /// The files, in order.
        files: Vec<Small>,
    },
    /// Everything of this file was read: is it still what it was when it was opened?
    /// [`Sender::handle_check_source`].
    CheckSource(FileId),
    /// Close this side's end of this lane, if it is there: [`Sender::handle_lane_ended`].
    CloseLane(LaneId),
    /// An entry came to its end; nothing of it is needed any more (close it, forget it, say it).
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
    /// The root of what stands at the receiver, where that is to be compared.
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
    /// Payload bytes of it that went over the lane: none for a hole.
    pub len: u64,
    /// The lane that carried it.
    pub lane: LaneId,
    /// Its number on that lane.
    pub seq: u64,
    /// Whether the lane carried the digest too; else it must be declared over control.
    pub declared: bool,
}

/// What was agreed for the session.
#[derive(Clone, Copy, Debug)]
pub struct SenderConfig {
    /// The chunk size of files that the receiver does not hold part of.
    pub chunk: ChunkSize,
    /// The smallest chunk in which a receiver may hold part of a file: what any session may have
    /// begun it with.
    pub chunk_min: ChunkSize,
    /// The largest chunk that buffers hold.
    pub chunk_max: ChunkSize,
    /// Files up to this length go in bundles, as far as [`crate::wire::bundle::bundled_max`]
    /// allows.
    pub bundled_max: u64,
}

/// The machine. See the module.
#[derive(Debug)]
pub struct Sender {
    config: SenderConfig,
    actions: VecDeque<SenderAction>,
    manifest: Manifest,
    /// Entries without an outcome, by id.
    entries: BTreeMap<FileId, OfferState>,
    /// Bundles until they were sent and found good, and how many files are in them.
    bundles: HashMap<BundleId, Bundle>,
    files_bundled: usize,
    next_bundle: BundleId,
    lanes: SendingLanes,
    /// What was sent on `safe` lanes and not yet declared.
    undeclared: Vec<Declared>,
    chunks_outstanding: usize,
    /// Files of chunks that the receiver has begun and that have no outcome.
    files_begun: usize,
    /// Pieces in which the receiver said that it holds files without outcome.
    parts_held: usize,
    /// More waits for the connection than the receiver is behind with.
    is_backlogged: bool,
    bytes_sent: u64,
    bytes_resent: u64,
    tally: Tally,
    is_over: bool,
}

/// Where an entry stands.
#[derive(Debug)]
enum OfferState {
    /// The receiver has not answered.
    Offered { len: Option<u64> },
    /// Not wanted, or its fault is said: waits for its outcome.
    Idle,
    /// A small file, packed or about to be.
    Small,
    /// A file that goes in chunks.
    Large(Box<LargeSource>),
}

impl Sender {
    /// A sender that waits for the receiver's offer.
    pub fn new(config: SenderConfig) -> Sender {
        Sender {
            config: SenderConfig { bundled_max: bundled_max(config.chunk, config.bundled_max), ..config },
            actions: VecDeque::new(),
            manifest: Manifest::default(),
            entries: BTreeMap::new(),
            bundles: HashMap::new(),
            files_bundled: 0,
            next_bundle: BundleId(0),
            lanes: SendingLanes::default(),
            undeclared: Vec::new(),
            chunks_outstanding: 0,
            files_begun: 0,
            parts_held: 0,
            is_backlogged: false,
            bytes_sent: 0,
            bytes_resent: 0,
            tally: Tally::default(),
            is_over: false,
        }
    }

    /// What to do next, if anything. Declarations come last, so that many leave in one message.
    pub fn poll_action(&mut self) -> Option<SenderAction> {
        if self.actions.is_empty() && !self.is_over {
            self.say_undeclared();
        }
        self.actions.pop_front()
    }

    /// The receiver's counters, as far as known.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Payload bytes handed to lanes, and how many of them were sent before.
    pub fn bytes_sent(&self) -> (u64, u64) {
        (self.bytes_sent, self.bytes_resent)
    }

    /// Whether the receiver wanted the content of an entry that has no outcome.
    pub fn is_begun(&self, file: FileId) -> bool {
        matches!(self.entries.get(&file), Some(OfferState::Small | OfferState::Large(_)))
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
                self.on_lane_closed(&closed);
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

    /// Ends the session with `fault`. From here on, what is reported changes nothing any more.
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
        self.bytes_sent += sent.len;
        if sent.attempt > Attempt::FIRST || self.was_lost(sent.unit) {
            self.bytes_resent += sent.len;
        }
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
        if let OfferState::Large(large) = state {
            self.release(&large);
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

    /// Gives back what a file of chunks occupied.
    fn release(&mut self, large: &LargeSource) {
        self.chunks_outstanding -= large.outstanding();
        self.parts_held -= large.parts_held();
        self.files_begun -= usize::from(large.is_begun());
    }

    /// Says that a file cannot be sent; its outcome is the receiver's to give.
    fn say_file_fault(&mut self, file: FileId, fault: &Fault) {
        // Every other file would fail as well, and none of them for a reason of its own.
        if fault.code == FaultCode::Exhausted {
            return self.abort(fault.clone());
        }
        let Some(state) = self.entries.get_mut(&file) else { return };
        if let OfferState::Large(large) = std::mem::replace(state, OfferState::Idle) {
            self.release(&large);
        }
        let (code, message) = (fault.code, fault.message.clone());
        self.actions.push_back(SenderAction::Send(Message::FileFault(FileFault { file, code, message })));
    }
}

/// Whether a receiver may find this of a sending: the last one is not wanted again, and no other
/// given up.
fn may_be_said(unit: Unit, attempt: Attempt, finding: Finding) -> Result<(), Fault> {
    let what = match finding {
        Finding::Again if attempt.0 >= ATTEMPTS_MAX => "wants it again",
        Finding::GivenUp if attempt.0 < ATTEMPTS_MAX => "gives it up",
        _ => return Ok(()),
    };
    let sendings = attempt.0;
    Err(Fault::protocol(format_args!("after {sendings} of {ATTEMPTS_MAX} sendings of {unit} the receiver {what}")))
}

/// A receiver that acknowledges what was not sent: its build or its memory is broken.
fn wrong_digest(unit: Unit) -> Fault {
    Fault::protocol(format_args!("the receiver acknowledges another digest of {unit} than was sent"))
}

/// Declarations in one message; at some 80 bytes each they stay below the message bound.
const DECLARATIONS_MAX: usize = 1024;
/// Chunks that a receiver may have outstanding here before it is taken for broken: as many as it
/// may want, and those that it found good before their lanes reported them.
const CHUNKS_OUTSTANDING_MAX: usize = 2 * CHUNKS_WANTED_MAX;
/// Files in bundles likewise, ...
const FILES_BUNDLED_MAX: usize = 2 * ENTRIES_UNSETTLED_MAX;
/// ... and entries without an outcome, whatever credit the receiver gives: an honest one never lets
/// it come to this.
const ENTRIES_OUTSTANDING_MAX: usize = 2 * ENTRIES_UNSETTLED_MAX;
