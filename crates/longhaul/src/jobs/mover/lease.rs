//! The lease of a claim: heartbeats from the claim to the report, and the news that they bring.
//!
//! In: a shard that was granted, and its figures. Out: [`LeaseNews`] for whoever moves the shard.
//! If no heartbeat is answered in time, the shard is ordered back before its lease ends, whatever
//! holds the answer up. Must not know transfers.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use longhaul_jobs::queue::{Beat, BeatAnswer, Granted, beat};
use longhaul_jobs::{Amount, JobsError, Tenure};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::Mover;
use super::claim::ClaimInHand;
use super::tally::Tally;
use crate::jobs::faults::fault_of_jobs;

/// The news of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LeaseNews {
    /// The mover's part of the link's rate, bytes/s. `None`: all of it.
    pub(super) rate: Option<u64>,
    /// The order to stop. `None`: it goes on.
    pub(super) stop: Option<LeaseStop>,
}

/// An order to stop: a later one counts more than an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LeaseStop {
    /// The shard is handed back.
    HandBack,
    /// The shard is another mover's.
    Gone,
}

/// The keeper of a lease.
pub(super) struct LeaseKeeper<'a> {
    /// The mover, whose queue is told.
    pub(super) mover: &'a Mover,
    /// The shard.
    pub(super) granted: &'a Granted,
    /// Its claim, as it is by now.
    pub(super) claim: &'a ClaimInHand,
    /// When the claim was asked for, by this process's clock.
    pub(super) asked: Instant,
    /// The count of its files, once there is one.
    pub(super) tally: &'a OnceLock<Arc<Tally>>,
    /// Where the news goes.
    pub(super) news: watch::Sender<LeaseNews>,
}

impl LeaseKeeper<'_> {
    /// Keeps the lease for as long as it is polled.
    pub(super) async fn keep(&self) -> Infallible {
        let mut tenure = Tenure::new(Duration::ZERO);
        loop {
            sleep_until(self.asked + tenure.next_beat()).await;
            let asked = self.asked.elapsed();
            let late = || self.stop(LeaseStop::HandBack);
            match answered(self.beat(), self.asked + tenure.stop_at(), late).await {
                Ok(answer) => {
                    tenure = Tenure::new(asked);
                    self.hear(answer);
                }
                Err(error) => {
                    self.mover.observer.trouble(&fault_of_jobs(&error));
                    sleep(BEAT_PAUSE).await;
                }
            }
        }
    }

    async fn beat(&self) -> Result<BeatAnswer, JobsError> {
        let figures = self.tally.get().map(|tally| tally.figures());
        let (done, moved) = figures.map_or((Amount::default(), 0), |figures| (figures.done, figures.moved));
        let claim = self.claim.hold().await;
        let news = Beat { shard: self.granted.shard.id, claim: *claim, done, moved };
        self.mover.queue.transact_beat(move |rows| beat(rows, &news)).await
    }

    fn hear(&self, answer: BeatAnswer) {
        match answer {
            BeatAnswer::GoOn(rate) => self.news.send_modify(|news| news.rate = rate),
            BeatAnswer::Stop(_) => self.stop(LeaseStop::HandBack),
            BeatAnswer::Gone => self.stop(LeaseStop::Gone),
        }
    }

    fn stop(&self, order: LeaseStop) {
        self.news.send_modify(|news| news.stop = news.stop.max(Some(order)));
    }
}

/// The answer to a question. If there is none at `stop_at`, `late` is called, and it is waited for
/// all the same.
async fn answered<T>(question: impl Future<Output = T>, stop_at: Instant, late: impl FnOnce()) -> T {
    tokio::pin!(question);
    tokio::select! {
        answer = &mut question => return answer,
        () = sleep_until(stop_at) => late(),
    }
    question.await
}

/// The pause behind a heartbeat that failed.
const BEAT_PAUSE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mover_is_told_to_stop_while_the_queue_still_owes_it_an_answer() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let (told, question) = tokio::sync::oneshot::channel();
        // The answer comes only once the mover was told to stop.
        let answer = answered(question, Instant::now(), || told.send(7).unwrap());
        assert_eq!(runtime.block_on(answer), Ok(7));
        let in_time = answered(async { 8 }, Instant::now() + LONG, || panic!("it was answered"));
        assert_eq!(runtime.block_on(in_time), 8);
    }

    #[test]
    fn a_shard_that_is_gone_stays_gone_and_one_that_is_handed_back_is_not_kept() {
        let mut stop = None;
        for (order, then) in [
            (LeaseStop::HandBack, LeaseStop::HandBack),
            (LeaseStop::Gone, LeaseStop::Gone),
            (LeaseStop::HandBack, LeaseStop::Gone),
        ] {
            stop = stop.max(Some(order));
            assert_eq!(stop, Some(then));
        }
    }

    const LONG: Duration = Duration::from_secs(600);
}
