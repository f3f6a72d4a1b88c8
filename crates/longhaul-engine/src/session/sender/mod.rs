//! Owns the sender's session loop: one machine, one source side, and the lanes that empty it.
//!
//! In: events of the control link, lanes, workers and the scan. Out: orders, messages to the
//! receiver, events to observers. `wait` changes nothing, `absorb` is synchronous, `settle` has the
//! machine's actions carried out. Scanned entries are taken only while the machine has room, so
//! that the scan goes no faster than the receiver's credit. It knows no sockets and no system
//! calls.

mod figures;
pub(crate) mod first_page;
mod losses;
mod offered;
mod outcome;
mod read_ahead;
mod sums;
mod unasked;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Instant;

use longhaul_core::limits::{CHUNK_BYTES_USER_MIN, PAGE_ENTRIES_MAX};
use longhaul_core::{Algorithms, ChunkSize, Entry, EntryKind, Fault, FaultCode, Preserve};
use longhaul_disk::{ChunkIo, Identity, Scanned, SourceRef, SourceTree};
use longhaul_proto::Message;
use longhaul_proto::sender::{Sender, SenderAction, SenderConfig, Small};
use longhaul_proto::wire::message::{Ending, Finding};
use longhaul_sys::Slab;
use tokio::sync::mpsc;

use self::figures::SendFigures;
use self::first_page::SaidPage;
use self::offered::OfferedEntries;
use self::read_ahead::ReadAhead;
use self::sums::SentSums;
use super::control::{ControlLink, Incoming, RoundState, Wake};
use super::course::{EntrySource, ScanWish, SendCourse, UnsettledEntry};
use super::orders::ChunkOrder;
use super::overhead::ENTRY_BYTES;
use super::source::{Origin, SourceDone, SourceWorkers};
use super::timed_source::TimedSourceEnd;
use super::unasked::FirstFlight;
use super::{SessionEvent, unsent};
use crate::lanes::JoinedLane;
use crate::lanes::bottleneck::WaitsFor;
use crate::lanes::event::LaneEnd;
use crate::lanes::rules::LaneControls;
use crate::lanes::worker::hole_costs::HoleCosts;
use crate::lanes::{udp, worker};

/// The parts of a sending session.
pub(crate) struct Sending {
    /// The tree from which it reads.
    pub(crate) tree: Arc<dyn SourceTree>,
    /// Its buffers.
    pub(crate) slab: Arc<Slab>,
    /// Its chunk I/O.
    pub(crate) io: ChunkIo,
    /// The values agreed in the handshake.
    pub(crate) chunk: ChunkSize,
    pub(crate) chunk_max: ChunkSize,
    pub(crate) bundled_max: u64,
    /// The entries of the sources that are sent.
    pub(crate) wanted: ScanWish,
    /// Whether the source ends by the clock. Then the bytes read by that time are delivered first.
    pub(crate) timed: bool,
    /// The flight in which its first page shall fit, unless that is out already.
    pub(crate) flight: FirstFlight,
    /// Further checksums that it computes too, to compare them with the receiver's.
    pub(crate) compared: Algorithms,
    /// Whether the receiver says which names it replaced.
    pub(crate) hears_replaced: bool,
    /// How holes of the sources count.
    pub(crate) holes: HoleCosts,
}

/// The sending side of a session. It owns the machine, and nothing else changes that.
///
/// Lanes, the source's workers and the control connection run elsewhere and report through one
/// queue of events, so that one thing happens at a time here and no lock is needed. A round of the
/// loop has three steps:
///
/// 1. [`ControlLink::wait`] waits for an event or the next second, and beside it the scan for its
///    next entry, while there is room for one. Neither changes anything, so the one that is
///    cancelled loses nothing and is waited for again.
/// 2. [`SenderLoop::absorb`] takes an event in: a message goes to the machine's `handle_message`, a
///    lane's report to `handle_sent`, a worker's to the `handle_*` of its name.
///    [`SenderLoop::take_ready`] takes further events that are there already, and offers entries.
/// 3. [`SenderLoop::settle`] has the machine's actions done until it orders no more: messages
///    leave, chunks and bundles are read. It tells observers how far the session is.
///
/// The loop ends when the machine gives its verdict.
struct SenderLoop<'a> {
    link: ControlLink,
    machine: Sender,
    workers: SourceWorkers,
    buffers: ReadAhead,
    course: &'a mut SendCourse,
    offered: OfferedEntries,
    scan_end_said: bool,
    preserve: Preserve,
    timed_end: Option<TimedSourceEnd>,
    figures: SendFigures,
    verdict: Option<Result<Ending, Fault>>,
    refused_by_peer: bool,
}

/// Runs a sending session to its end. Entries without outcome then stay in the course, whose totals
/// hold the fault, if any.
pub(crate) async fn run(mut link: ControlLink, sending: Sending, course: &mut SendCourse) {
    let Sending { tree, slab, io, chunk, chunk_max, bundled_max, wanted, timed, flight, compared, .. } = sending;
    let Sending { hears_replaced, holes, .. } = sending;
    let preserve = wanted.preserve;
    let source = tree.clone();
    let started =
        SourceWorkers::start(tree.clone(), slab.clone(), io.clone(), chunk, link.times().clone(), link.sink())
            .and_then(|reading| course.begin(tree, wanted).map(|()| reading));
    let reading = match started {
        Ok(reading) => reading,
        Err(fault) => {
            link.refuse(&fault, false);
            link.end().await;
            course.totals.fault = Some(fault);
            return;
        }
    };
    let chunk_min = ChunkSize::from_bytes(CHUNK_BYTES_USER_MIN).map_or(chunk, |least| least.min(chunk));
    let config = SenderConfig { chunk, chunk_min, chunk_max, bundled_max };
    let flight = if course.said.is_none() { flight } else { FirstFlight::UNBOUNDED };
    let SaidPage { machine, mut offered, is_last, patience, .. } = unasked::begin(course.said.take(), config, flight);
    offered.sums = SentSums::new(preserve.sums, compared);
    offered.replaced = hears_replaced.then(HashSet::new);
    let mut this = SenderLoop {
        link,
        machine,
        workers: reading.patient(patience, holes),
        buffers: ReadAhead::new(slab, io.clone()),
        course,
        offered,
        scan_end_said: is_last,
        preserve,
        timed_end: timed.then(TimedSourceEnd::default),
        figures: SendFigures::default(),
        verdict: None,
        refused_by_peer: false,
    };
    let reading_end = ReadingEnd(source);
    if let Some(stream) = &this.course.stream {
        stream.wake(this.link.sink());
    }
    // What was scanned meanwhile leaves before the loop waits for anything else.
    this.scan_first_page(flight).await;
    this.take_ready();
    this.settle();
    while this.verdict.is_none() {
        let has_room = this.has_room();
        let wake = match this.course.scan() {
            Some(scan) if has_room => tokio::select! {
                biased;
                wake = this.link.wait(None) => Some(wake),
                scanned = scan.recv() => {
                    this.take_scanned(scanned);
                    None
                }
            },
            _ => Some(this.link.wait(None).await),
        };
        if let Some(wake) = wake {
            this.absorb(wake);
        }
        this.take_ready();
        this.lose_stalled();
        this.settle();
    }
    // Requests that nobody wants any more shall not hold up the end of the reading threads.
    drop(reading_end);
    this.finish(io).await;
}

/// Tells the source that a session is over, when it is dropped.
struct ReadingEnd(Arc<dyn SourceTree>);

impl Drop for ReadingEnd {
    fn drop(&mut self) {
        self.0.session_ended();
    }
}

impl SenderLoop<'_> {
    /// Whether another entry can be offered: offered entries and their work are bounded.
    fn has_room(&self) -> bool {
        self.machine.has_room() && self.offered.have_room() && !self.workers.is_swamped()
    }

    /// Takes entries and events that are there already, as far as there is room.
    fn take_ready(&mut self) {
        for _ in 0..EVENTS_AT_ONCE {
            match self.link.try_next() {
                Some(wake) => self.absorb(wake),
                None => break,
            }
        }
        while self.has_room()
            && let Some(known) = self.course.again.pop_front()
        {
            self.offer_again(known);
        }
        while self.has_room()
            && let Some(scanned) = self.course.next.take()
        {
            self.take_scanned(Some(scanned));
        }
        // A page or two: in between the loop checks if the receiver takes them in.
        for _ in 0..ENTRIES_AT_ONCE {
            let Some(scan) = self.has_room().then(|| self.course.scan()).flatten() else { break };
            match scan.try_recv() {
                Ok(scanned) => self.take_scanned(Some(scanned)),
                Err(mpsc::error::TryRecvError::Empty) => return self.machine.handle_scan_idle(),
                Err(mpsc::error::TryRecvError::Disconnected) => self.take_scanned(None),
            }
        }
        if self.course.totals.scanned && self.course.again.is_empty() && !self.scan_end_said {
            self.scan_end_said = true;
            self.machine.handle_scan_end();
        }
    }

    fn take_scanned(&mut self, scanned: Option<Scanned>) {
        match scanned {
            None => {
                self.course.scan_is_over();
                self.tell_losses();
            }
            Some(Scanned::Entry { entry, source, identity }) => {
                let source = readable(&entry, source, identity, self.preserve);
                self.offer_new(entry, source);
            }
            Some(Scanned::Skipped { path, why }) => {
                self.offer_new(unsent::entry(path, None, why), EntrySource::Special);
            }
            Some(Scanned::Reserved { dir, name }) => {
                self.offer_new(unsent::reserved(dir, &name), EntrySource::Special);
            }
            Some(Scanned::Failed { path, error }) => {
                let fault = error.fault();
                if fault.code == FaultCode::Exhausted {
                    return self.machine.abort(fault);
                }
                self.offer_new(
                    unsent::entry(path, Some(fault.code), fault.message.clone()),
                    EntrySource::Failed(fault),
                );
            }
        }
    }

    fn offer_new(&mut self, entry: Entry, source: EntrySource) {
        self.course.totals.found(&entry.kind);
        if let Some(stream) = &mut self.course.stream {
            stream.offered(&entry.kind);
        }
        let id = self.machine.handle_scanned(entry.clone());
        self.offered.add(id, entry, |held| UnsettledEntry { held, source, begun: false, is_reported: false });
    }

    /// Offers an entry that an earlier session left without outcome.
    fn offer_again(&mut self, known: UnsettledEntry) {
        let entry = known.held.entry.clone();
        let id = self.machine.handle_scanned(entry.clone());
        self.offered.add(id, entry, |held| UnsettledEntry { held, ..known });
    }

    fn absorb(&mut self, wake: Wake) {
        let Some(incoming) = self.link.absorb(wake) else { return };
        match incoming {
            Incoming::Stop(fault) => self.machine.abort(fault),
            Incoming::Message(message) => self.hear(message),
            Incoming::Event(SessionEvent::Lane(joined)) => {
                if let Err(fault) = self.start_lane(joined) {
                    self.machine.abort(fault);
                }
            }
            Incoming::Event(SessionEvent::LaneEnded(end)) => {
                match end.fault {
                    Some(_) => self.machine.handle_lane_ended(end.id, end.unfinished),
                    None => self.machine.handle_lane_retired(end.id),
                }
                self.buffers.fit(&self.link, &self.workers);
            }
            Incoming::Event(SessionEvent::Sent(sent, sums)) => self.sent(sent, sums),
            Incoming::Event(SessionEvent::Read(SourceDone::Unreadable(file, fault))) => match &mut self.timed_end {
                Some(drain) => drain.unreadable(file, fault),
                None => self.machine.handle_unreadable(file, &fault),
            },
            Incoming::Event(SessionEvent::Read(SourceDone::Pack { bundle, missing, empty })) => {
                self.machine.handle_pack(bundle, missing, empty)
            }
            Incoming::Event(SessionEvent::Read(SourceDone::CheckSource((file, result)))) => {
                self.machine.handle_check_source(file, result)
            }
            Incoming::Event(SessionEvent::Read(SourceDone::PackUnasked(packed))) => self.say_unasked(packed),
            // The link handles messages about lanes and rates itself.
            Incoming::Event(
                SessionEvent::Inbound(_)
                | SessionEvent::ControlEnded(_)
                | SessionEvent::Undialled(_)
                | SessionEvent::OwnRate(_)
                | SessionEvent::WayFound(_)
                | SessionEvent::Arrived(..)
                | SessionEvent::StreamCame
                | SessionEvent::Wrote(_),
            ) => {}
        }
    }

    fn start_lane(&mut self, joined: JoinedLane) -> Result<(), Fault> {
        let (queue, times, sink) = (self.workers.queue(), self.link.times().clone(), self.link.sink());
        let (affinity, sums) = (self.workers.affinity(), self.offered.sums.compared());
        let holes = self.workers.holes.clone();
        self.machine.handle_lane_joined(joined.id());
        self.link.start_lane(joined, move |joined, LaneControls { pulse, quit, pacer, path, .. }| {
            worker::bind(&affinity, &joined);
            let id = joined.id();
            let source = worker::send::SendFeed {
                queue: &queue,
                quit: &quit,
                pacer: &pacer,
                times: &times,
                pulse: &pulse,
                sums,
                holes: &holes,
            };
            let report = |sent, sums| drop(sink.send(SessionEvent::Sent(sent, sums)));
            let result = match joined {
                JoinedLane::Stream(lane) => worker::send::run(lane, &source, report)
                    .map_err(|(fault, unfinished)| (fault, unfinished.into_iter().collect())),
                JoinedLane::Udp(lane) => udp::feed::run(*lane, &source, &path, report),
            };
            let (fault, unfinished) =
                result.err().map_or((None, Vec::new()), |(fault, unfinished)| (Some(fault), unfinished));
            LaneEnd { id, fault, unfinished, landed: 0.into() }
        })?;
        self.buffers.fit(&self.link, &self.workers);
        Ok(())
    }

    fn lose_stalled(&mut self) {
        for lane in self.link.lanes_to_give_up(BTreeSet::new) {
            self.machine.lose_lane(lane);
        }
    }

    fn hear(&mut self, message: Message) {
        self.refused_by_peer |= matches!(message, Message::Refuse(_));
        let message = match message {
            Message::Losses(rows) => return self.hear_losses(rows),
            Message::SettledSums(list) => return self.hear_sums(&list),
            Message::Replaced(files) => return self.hear_replaced(&files),
            message => message,
        };
        match &message {
            Message::Offer(offer) => {
                self.course.renamed.get_or_insert_with(|| offer.renamed.clone());
                if let Some(name) = &offer.renamed {
                    self.offered.rename(name.clone());
                }
            }
            Message::Answer(_)
            | Message::WantChunks(_)
            | Message::CheckChunks(_)
            | Message::CheckFiles(_)
            | Message::Verdicts(_)
            | Message::Settled(_) => {
                self.course.progressed = Some(Instant::now());
            }
            _ => {}
        }
        if matches!(message, Message::Tally(_) | Message::Complete(_)) {
            self.figures.count(self.link.seconds());
        }
        if let Message::Verdicts(verdicts) = &message {
            self.course.totals.units.arrived(verdicts.iter().filter(|v| matches!(v.finding, Finding::Good(_))).count());
            if let Some(drain) = &mut self.timed_end {
                drain.judged(verdicts.len());
            }
        }
        self.machine.handle_message(message);
    }

    fn settle(&mut self) {
        let entries_bytes = self.offered.names_bytes() + self.machine.unsettled() * ENTRY_BYTES;
        let names = &self.course.names_memory;
        let is_cramped = self.link.is_cramped(entries_bytes, (names.bytes(), || names.refuse()));
        let is_backlogged = self.link.is_backlogged();
        self.machine.handle_backlog(is_backlogged || is_cramped);
        self.workers.hold(is_backlogged);
        if let Some((file, fault)) = self.timed_end.as_mut().and_then(|drain| drain.drained(Instant::now())) {
            self.machine.handle_unreadable(file, &fault);
        }
        if let Some(stream) = &mut self.course.stream {
            let came = stream.follow(&mut self.machine);
            self.course.totals.stream_came(came);
        }
        while self.verdict.is_none()
            && let Some(action) = self.machine.poll_action()
        {
            self.act(action);
        }
        if self.buffers.is_outdated(&self.workers) {
            self.buffers.fit(&self.link, &self.workers);
        }
        let state = RoundState {
            remaining: self.course.totals.left_to_send(self.machine.bytes_done()),
            at_work: self.workers.is_at_work() || self.is_scanning(),
            waits_for: self.waits_for(),
        };
        if self.verdict.is_none() && self.figures.is_second_over(self.link.seconds()) {
            self.link.judge();
            self.tell_progress();
        }
        self.link.settle(state);
    }

    /// The reason for which a lane has nothing in hand.
    fn waits_for(&mut self) -> WaitsFor {
        if self.workers.is_behind() || self.is_scanning() { WaitsFor::Source } else { WaitsFor::Wants }
    }

    /// Whether entries are waiting for the scan, not for the receiver's credit.
    fn is_scanning(&mut self) -> bool {
        self.has_room() && self.course.scan().is_some()
    }

    fn act(&mut self, action: SenderAction) {
        match action {
            SenderAction::Send(Message::Bye(ending)) => {
                self.link.judge();
                let cpu_us = self.link.cpu_us();
                self.link.say_last(Message::Bye(Ending { cpu_us, ..ending }));
            }
            SenderAction::Send(message) => {
                if let Message::FileFault(fault) = &message {
                    self.workers.forget(fault.file);
                }
                self.link.say(message);
            }
            SenderAction::ReadChunk { file, index, attempt, map, expect } => {
                self.course.totals.units.begin();
                if let Some(drain) = &mut self.timed_end {
                    drain.ordered();
                }
                if let Some(origin) = self.offered.origin(file) {
                    self.workers.chunk(ChunkOrder { file, index, attempt, map, expect, origin });
                }
            }
            SenderAction::Pack { bundle, attempt, files } => {
                let origin = |small: Small| self.offered.origin(small.file).map(|origin| (small, origin));
                self.workers.bundle(bundle, attempt, files.into_iter().filter_map(origin));
            }
            SenderAction::PackUnasked(files) => self.pack_unasked(files),
            SenderAction::CheckSource { file, root } => {
                if let Some(stream) = &mut self.course.stream {
                    let proven = stream.prove(root);
                    self.machine.handle_check_source(file, proven);
                } else if let Some(origin) = self.offered.origin(file) {
                    self.workers.check(file, origin);
                }
            }
            SenderAction::Release { start, count, size, .. } => {
                if let Some(stream) = &self.course.stream {
                    stream.release(start, count, size);
                }
            }
            SenderAction::CloseLane(lane) => self.link.close_lane(lane),
            SenderAction::Settled(file, outcome) => self.settled(file, outcome),
            SenderAction::Finished(ending) => self.verdict = Some(Ok(ending)),
            SenderAction::Abort(fault) => self.verdict = Some(Err(fault)),
        }
    }
}

/// Where an entry is read that the scan found at `at`.
fn readable(entry: &Entry, at: SourceRef, identity: Identity, preserve: Preserve) -> EntrySource {
    let sparse = preserve.sparse && matches!(entry.kind, EntryKind::File { sparse: true, .. });
    EntrySource::Readable(Arc::new(Origin { at, identity, sparse }))
}

/// Events absorbed before their consequences are ordered.
const EVENTS_AT_ONCE: usize = 64;
/// Scanned entries taken before their pages are sent.
const ENTRIES_AT_ONCE: usize = 2 * PAGE_ENTRIES_MAX;
