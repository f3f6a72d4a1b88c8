//! Tells how far a receiving session is: to the sender twice a second, to observers each second,
//! and both at its end.
//!
//! In: counters of the machine and the lanes. Out: tallies, progress, and the sums of the run. It
//! decides nothing.

use std::time::Duration;

use longhaul_disk::ChunkIo;
use longhaul_proto::Message;
use longhaul_proto::receiver::SkippedDigests;
use longhaul_proto::wire::message::{SettledSums, Tally};

use super::ReceiverLoop;
use super::extras::ExtrasWatch;
use super::targets::TargetWatch;
use crate::api::{self, Progress};
use crate::session::totals::{Moved, TargetTroubles};

/// The figures that a receiving session remembers.
pub(super) struct ReceiveFigures {
    /// The last second whose counters were reported to observers.
    reported_second: u64,
    /// The counters that the sender was told last, and when.
    sent_tally: (f64, Tally),
    /// The most payload bytes that were here so far, pieces of units included.
    received_most: u64,
    /// Whether the sender is told the roots of skipped files.
    tells_digests: bool,
    targets: TargetWatch,
    troubles: TargetTroubles,
    /// Maps accounts, and looks at metadata that could not be kept.
    pub(super) extras: ExtrasWatch,
    /// Further checksums of files whose outcome the sender hears next.
    pub(super) sums: Vec<SettledSums>,
}

impl ReceiveFigures {
    /// The figures of a session that begins. `digests`: whose roots of skipped files are told.
    pub(super) fn new(digests: SkippedDigests, targets: TargetWatch, extras: ExtrasWatch) -> ReceiveFigures {
        let tells_digests = digests == SkippedDigests::Told;
        let sent_tally = (0.0, Tally::default());
        let troubles = TargetTroubles::default();
        let (reported_second, received_most, sums) = (0, 0, Vec::new());
        ReceiveFigures { reported_second, sent_tally, received_most, tells_digests, targets, troubles, extras, sums }
    }

    /// Whether the sender is to hear the counters now.
    fn is_tally_due(&self, seconds: f64) -> bool {
        seconds - self.sent_tally.0 >= SAY_EVERY.as_secs_f64()
    }

    /// The counters for the sender. `None` if it knows them.
    fn news(&mut self, seconds: f64, tally: Tally) -> Option<Tally> {
        // A sender that is not told the roots is not told either how many bytes were read for
        // them. It hears instead that this disk is the slow part.
        let tally = Tally { standing: if self.tells_digests { tally.standing } else { 0 }, ..tally };
        let is_new = tally != self.sent_tally.1;
        self.sent_tally = (seconds, tally);
        is_new.then_some(tally)
    }

    /// Whether a second is over that was not reported. It counts as reported then.
    fn is_second_over(&mut self, seconds: f64) -> bool {
        let is_over = seconds as u64 > self.reported_second;
        self.reported_second = self.reported_second.max(seconds as u64);
        is_over
    }

    /// The most payload bytes that were here so far, if it is `here` now. A unit is judged a moment
    /// after its lane has nothing in hand. Until then its bytes count as arriving.
    fn most_received(&mut self, here: u64) -> u64 {
        self.received_most = self.received_most.max(here);
        self.received_most
    }
}

impl ReceiverLoop<'_> {
    /// Tells the sender and observers how far the session is, as often as each is to hear it.
    pub(super) fn tell(&mut self) {
        if self.link.judged_for() >= SAY_EVERY {
            self.link.judge();
        }
        let seconds = self.link.seconds();
        if self.figures.is_tally_due(seconds) {
            let tally = self.tally();
            if let Some(tally) = self.figures.news(seconds, tally) {
                self.link.say(Message::Tally(tally));
            }
        }
        if self.figures.is_second_over(seconds) {
            self.tell_progress();
        }
    }

    /// The machine's counters, and the bytes here of incomplete units.
    fn tally(&mut self) -> Tally {
        let tally = self.machine.tally();
        let here = tally.received + self.link.in_hand();
        let here = if self.verdict.is_some() { here } else { self.figures.most_received(here) };
        Tally { arriving: here - tally.received, ..tally }
    }

    /// Tells observers how far the session is.
    fn tell_progress(&mut self) {
        let tally = self.tally();
        let arrived = self.course.totals.arrived_of(&tally);
        let progress = self.course.totals.progress_with(&Progress {
            seconds: self.link.seconds(),
            counted_s: self.link.seconds(),
            bytes_received: tally.received.saturating_add(tally.arriving),
            bytes_arrived: arrived,
            bytes_resumed: tally.resumed,
            silent_s: self.link.silent_for(arrived).as_secs_f64(),
            bytes_durable: self.course.totals.durable_of(tally.durable, tally.resumed),
            limited_by: self.link.limited().map(Into::into),
            bytes_digested: tally.standing,
            ..Progress::default()
        });
        self.link.observer().lanes(self.link.lanes());
        self.link.observer().event(api::Event::Progress(progress));
        let seconds = self.link.seconds();
        if let Some(figures) = self.figures.targets.look(seconds) {
            self.figures.troubles.hear(seconds, &figures);
            self.link.tell_targets(&figures);
            self.link.observer().event(api::Event::Targets(figures));
        }
        for files in self.figures.targets.at_risk() {
            self.course.totals.files_at_risk += files.files;
            self.link.observer().event(api::Event::AtRisk(files));
        }
    }

    /// Ends everything in order: lanes, then disk work, then unpublished files are removed.
    pub(super) async fn finish(mut self, io: ChunkIo) {
        self.link.judge();
        self.tell_progress();
        let (tally, resent) = (self.tally(), self.machine.bytes_resent());
        let unopened = self.machine.held_unopened();
        let totals = &mut self.course.totals;
        match self.verdict.take() {
            Some(Ok(ending)) => totals.costs.set_sender(Some(ending.cpu_us).filter(|us| *us > 0)),
            Some(Err(fault)) => {
                // The sender tells its user how many bytes are held.
                self.link.say(Message::Tally(Tally { durable: tally.durable.saturating_add(unopened), ..tally }));
                self.link.refuse(&fault, self.refused_by_peer);
                totals.fault = Some(fault);
                self.workers.give_up();
            }
            None => {}
        }
        let fresh = tally.durable.saturating_sub(tally.resumed);
        totals.session_over(&Moved {
            seconds: self.link.seconds(),
            sent: 0,
            received: tally.received.saturating_add(tally.arriving),
            durable: tally.durable,
            resumed: tally.resumed,
            holes: tally.holes,
            held: tally.held().saturating_add(unopened),
            read_back: tally.read_back,
            misread: tally.misread,
            digested: tally.standing,
            resent,
            lost: tally.received.saturating_sub(fresh),
        });
        totals.costs.add_session(self.link.limits(), self.link.times().seconds(), io.report());
        totals.costs.add_receiver(self.link.cpu_us());
        totals.road.add(&self.link.road());
        totals.troubles.add(std::mem::take(&mut self.figures.troubles));
        self.intake.close();
        let ReceiverLoop { link, workers: writing, .. } = self;
        link.end().await;
        // Waits for outstanding work, but not on the runtime's own threads.
        let _ = tokio::task::spawn_blocking(move || drop((writing, io))).await;
    }
}

/// How often this side reports limit and counters, for the sender's report each second.
const SAY_EVERY: Duration = Duration::from_millis(500);
