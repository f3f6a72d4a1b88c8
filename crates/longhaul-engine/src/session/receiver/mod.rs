//! Owns the receiver's session loop: one machine, one destination side, and the lanes that fill it.
//!
//! In: events of the control link, of lanes and of workers. Out: orders, messages to the sender,
//! events to observers. `wait` changes nothing, `absorb` is synchronous, `settle` has the machine's
//! actions carried out. It knows no sockets and no system calls.

mod extras;
mod figures;
mod intake;
mod sums;
mod targets;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use longhaul_core::{AccountMap, Fault, FileId};
use longhaul_disk::{ChunkIo, StreamOutput, TargetTree};
use longhaul_proto::Message;
use longhaul_proto::receiver::{EntryRef, Receiver, ReceiverAction, ReceiverConfig, Replace};
use longhaul_proto::wire::message::{Ending, Outcome};
use longhaul_sys::Slab;

use self::extras::ExtrasWatch;
use self::figures::ReceiveFigures;
use self::intake::Intake;
use self::targets::TargetWatch;
use super::SessionEvent;
use super::allowed::Allowed;
use super::control::{ControlLink, Incoming, RoundState, Wake};
use super::course::ReceiveCourse;
use super::destination::{DestinationDone, DestinationOptions, DestinationWorkers, Keeping, Whereabouts};
use super::overhead::ENTRY_BYTES;
use super::settled::tell_settled;
use crate::api::OwnFacts;
use crate::lanes::JoinedLane;
use crate::lanes::bottleneck::WaitsFor;

/// The parts of a receiving session.
pub(crate) struct Receiving {
    /// The tree to which it writes.
    pub(crate) tree: Arc<dyn TargetTree>,
    /// Its buffers.
    pub(crate) slab: Arc<Slab>,
    /// Its chunk I/O.
    pub(crate) io: ChunkIo,
    /// The values agreed in the handshake.
    pub(crate) config: ReceiverConfig,
    /// The rules of its destination's workers.
    pub(crate) options: DestinationOptions,
    /// The entries that may come.
    pub(crate) allowed: Allowed,
    /// The place of the destination, for people.
    pub(crate) base: String,
    /// The same place on this host, for people.
    pub(crate) place: String,
    /// Its journal, the claim by which it publishes, and the dataset that it receives.
    pub(crate) keeping: Keeping,
    /// The stream as which everything goes out. `None` for a tree.
    pub(crate) stream: Option<Arc<StreamOutput>>,
    /// How this side maps accounts.
    pub(crate) accounts: AccountMap,
    /// Whether the sender is told which names were replaced.
    pub(crate) tells_replaced: bool,
}

/// The receiving side of a session. It owns the machine, and nothing else changes that.
///
/// Lanes, the destination's workers and the control connection run elsewhere and report through one
/// queue of events, so that one thing happens at a time here and no lock is needed. A round of the
/// loop has three steps:
///
/// 1. [`ControlLink::wait`] waits for an event, for the machine's timeout or for the next second.
///    It changes nothing.
/// 2. [`ReceiverLoop::absorb`] takes the event in: a message goes to the machine's
///    `handle_message`, a report of a worker to the `handle_*` of its name, an arrival to
///    `handle_landed`. Up to [`EVENTS_AT_ONCE`] more that are there already follow, so that
///    verdicts leave together.
/// 3. [`ReceiverLoop::settle`] has the machine's actions done until it orders no more: messages
///    leave, the destination's workers are given their jobs. It tells observers and the sender how
///    far the session is.
///
/// The loop ends when the machine gives its verdict.
struct ReceiverLoop<'a> {
    link: ControlLink,
    machine: Receiver,
    workers: DestinationWorkers,
    intake: Intake,
    allowed: Allowed,
    names: TakenNames,
    course: &'a mut ReceiveCourse,
    figures: ReceiveFigures,
    verdict: Option<Result<Ending, Fault>>,
    refused_by_peer: bool,
    /// Whether the batch that was under way has ended.
    batch_over: bool,
    stream: Option<Arc<StreamOutput>>,
}

/// The names that files take at the destination.
struct TakenNames {
    /// Whether the one source takes the destination's name.
    renamed: bool,
    /// Files under whose names something stands, as far as their renames are ordered.
    replaced: HashSet<FileId>,
    /// Replaced files of which the sender hears next. `None`: it did not ask.
    told: Option<Vec<FileId>>,
}

/// Runs a receiving session to its end. The course's totals then hold the fault, if any.
pub(crate) async fn run(link: ControlLink, receiving: Receiving, course: &mut ReceiveCourse) {
    course.begin();
    if receiving.keeping.dataset.as_ref().is_some_and(|dataset| dataset.is_listed()) {
        course.forget_committed();
        course.totals.stages_all = true;
    }
    let options = receiving.options;
    let whereabouts = Whereabouts::new(&receiving.place);
    let targets = TargetWatch::new(receiving.tree.loads());
    let extras = ExtrasWatch::new(&receiving.tree, options.preserve, receiving.accounts);
    let started = DestinationWorkers::start(
        receiving.tree,
        receiving.io.clone(),
        (receiving.keeping, whereabouts.clone()),
        options,
        link.times().clone(),
        link.sink(),
    );
    let renamed = receiving.config.landing.renamed().is_some();
    let digests = receiving.config.digests;
    let mut machine = Receiver::new(receiving.config, receiving.base).named(whereabouts.name());
    let writing = match started {
        Ok(writing) => writing,
        Err(fault) => {
            let mut link = link;
            link.refuse(&fault, false);
            link.end().await;
            course.totals.fault = Some(fault);
            return;
        }
    };
    machine.handle_timeout(link.now());
    let mut this = ReceiverLoop {
        link,
        machine,
        workers: writing,
        intake: Intake::new(
            receiving.slab,
            options.chunk,
            receiving.io.affinity().clone(),
            options.preserve.sums.by_chunk(),
        ),
        allowed: receiving.allowed,
        names: TakenNames { renamed, replaced: HashSet::new(), told: receiving.tells_replaced.then(Vec::new) },
        course,
        figures: ReceiveFigures::new(digests, targets, extras),
        verdict: None,
        refused_by_peer: false,
        batch_over: false,
        stream: receiving.stream,
    };
    this.settle();
    while this.verdict.is_none() {
        let timeout = this.machine.poll_timeout();
        let wake = this.link.wait(timeout).await;
        this.absorb(wake);
        // Events that are there are taken in before anything is ordered: verdicts leave together.
        for _ in 0..EVENTS_AT_ONCE {
            match this.link.try_next() {
                Some(wake) => this.absorb(wake),
                None => break,
            }
        }
        this.watch_lanes();
        this.machine.handle_timeout(this.link.now());
        this.settle();
    }
    this.tell_stream();
    this.finish(receiving.io).await;
}

/// Events absorbed before their consequences are ordered.
const EVENTS_AT_ONCE: usize = 64;

impl ReceiverLoop<'_> {
    fn absorb(&mut self, wake: Wake) {
        let Some(incoming) = self.link.absorb(wake) else { return };
        let now = self.link.now();
        match incoming {
            Incoming::Stop(fault) => self.machine.abort(fault),
            Incoming::Message(message) => {
                self.refused_by_peer |= matches!(message, Message::Refuse(_));
                let message = match message {
                    Message::Losses(rows) => return self.hear_losses(rows),
                    Message::Extras(extras) => Message::Extras(self.figures.extras.mapped(extras)),
                    Message::Unasked(unasked) => return self.come_unasked(&unasked.bundle),
                    message => message,
                };
                let asked = if let Message::Page(page) = &message { self.allowed.check(&page.entries) } else { Ok(()) };
                match asked {
                    Ok(()) => self.machine.handle_message(now, message),
                    Err(fault) => self.machine.abort(fault),
                }
            }
            Incoming::Event(SessionEvent::Lane(joined)) => {
                if let Err(fault) = self.start_lane(joined) {
                    self.machine.abort(fault);
                }
            }
            Incoming::Event(SessionEvent::LaneEnded(end)) => {
                self.machine.handle_lane_ended(now, end.id, end.landed);
                self.intake.fit_buffers(&self.link);
            }
            Incoming::Event(SessionEvent::Arrived(mut arrival, pass)) => {
                self.course.progressed = Some(Instant::now());
                self.course.totals.units.arrived(1);
                self.intake.arrived(&arrival.landed.piece, pass);
                self.workers.hold_payload(&mut arrival);
                self.machine.handle_landed(now, arrival.landed);
            }
            Incoming::Event(SessionEvent::Wrote(report)) => self.absorb_report(report),
            // All is settled and sent: an end of the sender without a word changes nothing. (If its
            // last message was among the events absorbed just now, the machine is over and reports
            // it.)
            Incoming::Event(SessionEvent::ControlEnded(_)) if !self.machine.is_over() => {
                self.verdict = Some(Ok(Ending::default()))
            }
            // The link handles messages about lanes and rates itself.
            Incoming::Event(
                SessionEvent::Inbound(_)
                | SessionEvent::ControlEnded(_)
                | SessionEvent::Undialled(_)
                | SessionEvent::OwnRate(_)
                | SessionEvent::WayFound(_)
                | SessionEvent::Sent(..)
                | SessionEvent::StreamCame
                | SessionEvent::Read(_),
            ) => {}
        }
    }

    /// Small files came that nobody asked for.
    fn come_unasked(&mut self, bundle: &[u8]) {
        match self.intake.land_unasked(bundle) {
            Ok(Some(mut arrival)) => {
                self.course.progressed = Some(Instant::now());
                self.workers.hold_payload(&mut arrival);
                self.machine.handle_unasked(self.link.now(), arrival.landed);
            }
            Ok(None) => self.machine.handle_unasked_dropped(self.link.now()),
            Err(fault) => self.machine.abort(fault),
        }
    }

    fn start_lane(&mut self, joined: JoinedLane) -> Result<(), Fault> {
        // The sender gave the lane up before it stood here. It is dropped and thereby closed.
        if !self.machine.handle_lane_joined(joined.id()) {
            return Ok(());
        }
        self.intake.start_lane(joined, &mut self.link)
    }

    /// Gives up lanes: units reported as sent must come, over another lane if need
    /// be. If no unit came since lanes were last given up, lanes are not the cause.
    fn watch_lanes(&mut self) {
        let stalled = self.link.lanes_to_give_up(|| self.machine.lanes_owing());
        if let Some(fault) = self.intake.find_hopeless(&stalled) {
            return self.machine.abort(fault);
        }
        stalled.into_iter().for_each(|lane| self.machine.lose_lane(lane));
        if let Some(fault) = self.intake.find_overdue(&self.link, &self.machine) {
            self.machine.abort(fault);
        }
    }

    fn absorb_report(&mut self, report: DestinationDone) {
        let now = self.link.now();
        match report {
            DestinationDone::Survey { first, found } => self.machine.handle_survey(now, first, found),
            DestinationDone::MeasureRoom(room) => self.machine.handle_measure_room(now, room),
            DestinationDone::Create(file, result) => {
                let result = self.workers.created(file, result);
                self.machine.handle_create(now, file, result);
            }
            DestinationDone::Write { file, index, result } => self.machine.handle_write(now, file, index, result),
            DestinationDone::SyncData((file, result)) => self.machine.handle_sync_data(now, file, result),
            DestinationDone::ReadBack { file, results } => self.machine.handle_read_back(now, file, results),
            DestinationDone::ReadInOrder { file, results, hashing } => {
                self.workers.read_in_order_so_far(file, hashing);
                self.machine.handle_read_in_order(now, file, results);
            }
            DestinationDone::ReadStaged(results) => {
                self.machine.handle_read_staged(now, results);
                self.batch_over = !self.machine.has_batch();
            }
            DestinationDone::ReadStanding(results) => self.machine.handle_read_standing(now, results),
            DestinationDone::ReadStandingChunks { file, results } => {
                self.machine.handle_read_standing_chunks(now, file, results)
            }
            DestinationDone::DigestProgress(bytes) => self.machine.handle_digest_progress(bytes),
            DestinationDone::DigestSkipped(results) => self.machine.handle_digest_skipped(now, results),
            DestinationDone::Retouch(results) => self.machine.handle_retouch(now, results),
            DestinationDone::Journal(result) => self.machine.handle_journal(now, result),
            DestinationDone::Tidy(result) => self.machine.handle_tidy(result),
            DestinationDone::SumChunks(file, sums) => self.workers.summed_chunks(file, sums),
            DestinationDone::SumSmall(files) => self.workers.summed_small(&files),
            DestinationDone::Stage(results) => {
                let results = self.workers.staged(results);
                self.machine.handle_stage(now, results);
            }
            DestinationDone::Name(file, made, root) => {
                let named = self.workers.named(file, made, root);
                self.machine.handle_name(now, file, named);
            }
            DestinationDone::Barrier(result) => {
                let result = self.workers.barrier_over(result);
                self.machine.handle_barrier(now, result);
                self.batch_over = !self.machine.has_batch();
            }
            DestinationDone::Publish(results) => self.machine.handle_publish(now, results),
            DestinationDone::PublishRefused(fault) => {
                self.machine.handle_publish_refused(now, &fault);
                self.batch_over = !self.machine.has_batch();
            }
            DestinationDone::SyncDirs(result) => {
                self.machine.handle_sync_dirs(now, result);
                self.batch_over = !self.machine.has_batch();
            }
            DestinationDone::FinishDirs(results) => self.machine.handle_finish_dirs(now, results),
            DestinationDone::FinishDirsRefused(fault) => self.machine.handle_finish_dirs_refused(now, &fault),
        }
    }

    /// Has the machine's actions carried out, and reports the counters.
    fn settle(&mut self) {
        let entries_bytes = self.machine.names_bytes() + self.machine.unsettled() * ENTRY_BYTES;
        let named = (self.workers.named_bytes(), || self.workers.forget_named());
        let is_cramped = self.link.is_cramped(entries_bytes, named);
        self.course.totals.scanned = self.machine.has_every_name();
        self.machine.handle_cramped(self.link.now(), is_cramped);
        let is_backlogged = self.link.is_backlogged() || self.workers.is_swamped();
        self.machine.handle_backlog(self.link.now(), is_backlogged);
        while self.verdict.is_none()
            && let Some(action) = self.machine.poll_action()
        {
            self.act(action);
        }
        self.intake.settle();
        if self.machine.is_draining() {
            self.workers.hurry();
        }
        self.tell_stream();
        // Not before the outcome of its files was ordered.
        if std::mem::take(&mut self.batch_over) {
            self.workers.end_batch();
        }
        let state = RoundState {
            waits_for: if self.workers.is_full() { WaitsFor::Target } else { WaitsFor::Buffers },
            at_work: self.workers.is_at_work(),
            remaining: None,
        };
        if self.verdict.is_none() {
            self.tell();
        }
        self.link.settle(state);
    }

    /// Tells the stream what is still to come. A session that ends brings nothing more: whoever
    /// waits for the stream shall not wait.
    fn tell_stream(&self) {
        let Some(output) = &self.stream else { return };
        if self.machine.is_draining() || self.verdict.is_some() {
            output.give_up();
        } else {
            output.expect_chunks(self.machine.chunks_wanted());
        }
    }

    /// Has skipped files read for their roots.
    fn digest_skipped(&mut self, files: Vec<Arc<EntryRef>>) {
        // Entries that an earlier session reported need no report and no reading.
        // The list of a dataset needs all roots.
        let needs_all = self.workers.has_dataset();
        let is_told = |held: &Arc<EntryRef>| !needs_all && self.course.was_told(&held.entry);
        let (told, files): (Vec<_>, Vec<_>) = files.into_iter().partition(is_told);
        if !files.is_empty() {
            self.workers.digest_skipped(files);
        }
        if !told.is_empty() {
            let told = told.iter().map(|held| (held.id, Ok(None))).collect();
            self.machine.handle_digest_skipped(self.link.now(), told);
        }
    }

    fn act(&mut self, action: ReceiverAction) {
        match action {
            ReceiverAction::Send(Message::Complete(ending)) => {
                self.link.judge();
                let cpu_us = self.link.cpu_us();
                self.link.say_last(Message::Complete(Ending { cpu_us, ..ending }));
            }
            ReceiverAction::Send(message) => self.say(message),
            ReceiverAction::Survey(page) => {
                for held in &page {
                    self.course.totals.found(&held.entry.kind);
                    self.intake.announce(held);
                }
                self.workers.survey(page, self.allowed.expected(), self.course.committed.before());
            }
            ReceiverAction::MeasureRoom { entry, behind_discards } => self.workers.measure_room(entry, behind_discards),
            ReceiverAction::Create(held, partial, chunk) => self.workers.create(held, partial, chunk),
            ReceiverAction::MakeLink(held) => self.workers.make_link(held),
            ReceiverAction::MakeName { entry, first } => {
                self.workers.make_name(entry, first, self.course.committed.before());
            }
            ReceiverAction::Write { file, index, ticket } => self.workers.write(file, index, ticket),
            ReceiverAction::WriteBundle { ticket, files } => self.workers.write_bundle(ticket, files),
            ReceiverAction::ReadStanding(files) => self.workers.read_standing(files),
            ReceiverAction::DigestSkipped(files) => self.digest_skipped(files),
            ReceiverAction::ReadStandingChunks { base, chunks } => self.workers.read_standing_chunks(base, chunks),
            ReceiverAction::Copy { base, index, digest } => self.workers.copy(base, index, digest),
            ReceiverAction::Retouch { files, metadata } => self.workers.retouch(files, metadata),
            ReceiverAction::DropPayload(ticket) => self.workers.drop_payload(ticket),
            ReceiverAction::SyncData(file) => self.workers.sync_data(file),
            ReceiverAction::ReadBack { file, chunks } => self.workers.read_back(file, chunks),
            ReceiverAction::ReadInOrder { file, chunks } => self.workers.read_in_order(file, chunks),
            ReceiverAction::ReadStaged { files, why } => self.workers.read_staged(files, why),
            ReceiverAction::BarrierAgain(files) => self.workers.barrier_again(files),
            ReceiverAction::Journal(records) => self.workers.journal(records),
            ReceiverAction::Tidy => self.workers.tidy(),
            ReceiverAction::Seal(held) => self.workers.seal(held),
            ReceiverAction::Barrier(files) => {
                self.batch_over = false;
                self.workers.barrier(&files);
            }
            ReceiverAction::Publish(renames) => {
                let replaces = renames.iter().filter(|(_, replace)| *replace == Replace::Allowed);
                self.names.replaced.extend(replaces.map(|(file, _)| *file));
                self.workers.publish(renames);
            }
            ReceiverAction::SyncDirs(_) => self.workers.sync_dirs(),
            ReceiverAction::SyncDirsAgain(_) => self.workers.sync_dirs_again(),
            ReceiverAction::FinishDirs(dirs) => self.workers.finish_dirs(dirs),
            ReceiverAction::Discard(file) => self.workers.discard(file),
            ReceiverAction::Release(file) => self.workers.release(file),
            ReceiverAction::CloseLane(lane) => self.link.close_lane(lane),
            ReceiverAction::Settled(held, outcome) => {
                self.intake.forget(held.id);
                self.settled(&held, outcome);
            }
            ReceiverAction::Finished(ending) => {
                self.course.has_parted = true;
                self.verdict = Some(Ok(ending));
            }
            ReceiverAction::Abort(fault) => self.verdict = Some(Err(fault)),
        }
    }

    fn say(&mut self, message: Message) {
        match message {
            Message::WantChunks(_) => self.course.totals.units.begin(),
            Message::Settled(_) => {
                self.tell_losses();
                self.tell_sums();
                if let Some(told) = self.names.told.as_mut().filter(|told| !told.is_empty()) {
                    self.link.say(Message::Replaced(std::mem::take(told)));
                }
            }
            _ => {}
        }
        self.intake.say(&message);
        self.link.say(message);
    }

    fn settled(&mut self, held: &Arc<EntryRef>, outcome: Outcome) {
        let replaced = self.names.replaced.remove(&held.id);
        if replaced && matches!(outcome, Outcome::Committed(_) | Outcome::Linked(_)) {
            self.names.told.iter_mut().for_each(|told| told.push(held.id));
        }
        let own = OwnFacts { replaced, stood: Some(replaced), source: None };
        let sums = self.settled_sums(held.id, &outcome);
        self.course.settled(&held.entry, &outcome);
        self.workers.settled(held, &outcome, &sums);
        if self.course.is_news(&held.entry) {
            let told = (outcome, sums);
            tell_settled((held, self.names.renamed), own, told, &mut self.course.totals, self.link.observer());
        }
    }
}
