//! Tells how far a sending session is, each second and at its end.
//!
//! In: counters of the machine, the lanes and the receiver. Out: progress for observers, and the
//! sums of the run. It decides nothing.

use longhaul_core::{Blame, Fault, FaultCode};
use longhaul_disk::ChunkIo;
use longhaul_proto::tuning::road::RoadSums;
use longhaul_proto::wire::message::Tally;

use super::SenderLoop;
use crate::api::{self, Progress, RoadFigures};
use crate::session::course::UnsettledEntry;
use crate::session::totals::Moved;

/// The figures that a sending session remembers.
#[derive(Default)]
pub(super) struct SendFigures {
    /// The last second that was reported to observers.
    reported_second: u64,
    /// When the receiver's counters were last heard, in seconds of the session.
    counted_s: f64,
    /// The most payload bytes that were handed to lanes so far, pieces of units included.
    sent_most: u64,
    /// The road as it was last reported.
    road: RoadSums,
}

impl SendFigures {
    /// Whether a second is over that was not reported. It counts as reported then.
    pub(super) fn is_second_over(&mut self, seconds: f64) -> bool {
        let is_over = seconds as u64 > self.reported_second;
        self.reported_second = self.reported_second.max(seconds as u64);
        is_over
    }

    /// Records that the receiver's counters were heard.
    pub(super) fn count(&mut self, seconds: f64) {
        self.counted_s = seconds;
    }

    /// The most payload bytes that were sent so far, if it is `sent` now. A unit that was sent
    /// whole is reported a moment after its lane has nothing in hand.
    fn most_sent(&mut self, sent: u64) -> u64 {
        self.sent_most = self.sent_most.max(sent);
        self.sent_most
    }
}

impl SenderLoop<'_> {
    /// Tells observers how far the session is.
    pub(super) fn tell_progress(&mut self) {
        let tally = self.machine.tally();
        // A receiver that ends by a fault has sent its last counters already.
        let tally = Tally { durable: Moved::by_last_words(&tally).durable, ..tally };
        let arrived = self.course.totals.arrived_of(&tally);
        let sent = self.machine.bytes_sent().0 + self.link.in_hand();
        let sent = if self.verdict.is_some() { sent } else { self.figures.most_sent(sent) };
        let progress = self.course.totals.progress_with(&Progress {
            seconds: self.link.seconds(),
            counted_s: self.figures.counted_s,
            bytes_sent: sent,
            bytes_received: tally.received.saturating_add(tally.arriving),
            bytes_arrived: arrived,
            bytes_resumed: tally.resumed,
            silent_s: self.link.silent_for(arrived).as_secs_f64(),
            bytes_durable: self.course.totals.durable_of(tally.durable, tally.resumed),
            bytes_committed: tally.committed,
            files_committed: tally.files,
            bytes_digested: tally.standing,
            limited_by: self.link.limited().map(Into::into),
            ..Progress::default()
        });
        self.link.observer().lanes(self.link.lanes());
        self.link.observer().event(api::Event::Progress(progress));
        let road = self.link.road().sums;
        let lately = road.since(&std::mem::replace(&mut self.figures.road, road));
        if let Some(figures) = RoadFigures::of(&lately) {
            self.link.observer().event(api::Event::Road(figures));
        }
    }

    /// Ends everything in order: the lanes' queue, the lanes, the reads.
    pub(super) async fn finish(mut self, io: ChunkIo) {
        self.link.judge();
        self.tell_progress();
        let (sent, resent) = self.machine.bytes_sent();
        let totals = &mut self.course.totals;
        match self.verdict.take() {
            Some(Ok(ending)) => totals.costs.set_receiver(ending.cpu_us),
            Some(Err(fault)) => {
                self.link.refuse(&fault, self.refused_by_peer);
                totals.fault = Some(fault);
            }
            None => totals.fault = Some(Fault::new(FaultCode::Internal, Blame::Bug, "a session without a verdict")),
        }
        let (tally, seconds) = (self.machine.tally(), self.link.seconds());
        totals.costs.add_session(self.link.limits(), self.link.times().seconds(), io.report());
        totals.costs.add_sender(self.link.cpu_us());
        totals.road.add(&self.link.road());
        totals.troubles.add(self.link.take_troubles());
        let (machine, (unsettled, dirs)) = (&self.machine, self.offered.into_parts());
        let unsettled = unsettled.map(|(id, known)| {
            let begun = known.begun || machine.is_begun(id);
            UnsettledEntry { begun, ..known }
        });
        self.course.keep(unsettled, dirs);
        self.workers.close();
        let SenderLoop { link, workers: reading, course, .. } = self;
        // The lanes' queue ends when the last read is through, so reading goes first.
        let _ = tokio::task::spawn_blocking(move || drop((reading, io))).await;
        let came = tally.received.saturating_add(tally.arriving);
        let tally = link.end().await.unwrap_or(tally);
        let moved = Moved::by_last_words(&tally);
        course.totals.session_over(&Moved {
            seconds,
            sent,
            // Pieces that were cut off in the middle were received as well.
            received: came.max(tally.received),
            resent,
            lost: (sent - resent).saturating_sub(moved.fresh()),
            ..moved
        });
    }
}
