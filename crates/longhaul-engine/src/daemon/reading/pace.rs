//! The rate at which a conversation has files read: its share of the caps of the daemon, as it is
//! now, and the time that is owed behind an order.
//!
//! In: rates that are set, and bytes. Out: a rate whenever it changes, and waits. Must not know
//! files.

use std::time::{Duration, Instant};

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::sleep;

use crate::api::RATE_MIN;
use crate::session::SessionEvent;

/// The share of a conversation.
pub(super) struct ReadingPace(Mutex<GrantedRate>);

struct GrantedRate {
    /// In bytes/s. `None`: no cap holds it.
    rate: Option<u64>,
    changes: UnboundedReceiver<SessionEvent>,
}

/// The pace of one order, from its beginning.
pub(super) struct OrderPace<'p> {
    granted: MutexGuard<'p, GrantedRate>,
    /// The rate that the client asked for, bytes/s. `None`: as fast as it goes.
    asked: Option<u64>,
    dues: ByteDues,
}

impl ReadingPace {
    /// The share now, in bytes/s, and what tells of its changes.
    pub(super) fn new(rate: Option<u64>, changes: UnboundedReceiver<SessionEvent>) -> ReadingPace {
        ReadingPace(Mutex::new(GrantedRate { rate, changes }))
    }

    /// The pace of an order that asks for this rate, bytes/s. 0 asks for none. There is one order
    /// at a time.
    pub(super) async fn begin(&self, asked: u64) -> OrderPace<'_> {
        let mut granted = self.0.lock().await;
        while let Ok(event) = granted.changes.try_recv() {
            granted.hear(&event);
        }
        let asked = (asked > 0).then_some(asked);
        let dues = ByteDues::begin(granted.lowest(asked), Instant::now());
        OrderPace { granted, asked, dues }
    }
}

impl GrantedRate {
    fn hear(&mut self, event: &SessionEvent) {
        if let SessionEvent::OwnRate(rate) = event {
            self.rate = *rate;
        }
    }

    /// The lower one of the share and a rate that is asked for.
    fn lowest(&self, asked: Option<u64>) -> Option<u64> {
        [asked, self.rate].into_iter().flatten().min().map(|rate| rate.max(RATE_MIN))
    }
}

impl OrderPace<'_> {
    /// The rate now, bytes/s. `None`: as fast as it goes.
    pub(super) fn rate(&self) -> Option<u64> {
        self.dues.rate
    }

    /// Waits for the end of some work, and gives `hear` each other rate that comes meanwhile.
    pub(super) async fn while_at<T>(&mut self, work: impl Future<Output = T>, mut hear: impl FnMut(Option<u64>)) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                rate = self.changed() => hear(rate),
            }
        }
    }

    /// Waits until so many bytes of the order have taken their time at the rates that held. Without
    /// that, orders of one small file each would be free.
    pub(super) async fn pay(&mut self, bytes: u64) {
        loop {
            let owed = self.dues.owed(bytes, Instant::now());
            if owed.is_zero() {
                return;
            }
            tokio::select! {
                () = sleep(owed) => {}
                _ = self.changed() => {}
            }
        }
    }

    /// Waits for another rate. Cancelled, it loses none.
    async fn changed(&mut self) -> Option<u64> {
        while let Some(event) = self.granted.changes.recv().await {
            self.granted.hear(&event);
            let rate = self.granted.lowest(self.asked);
            if rate != self.dues.rate {
                self.dues.change(rate, Instant::now());
                return rate;
            }
        }
        std::future::pending().await
    }
}

/// The bytes that the rates of an order have let through so far.
struct ByteDues {
    /// The rate since `since`, bytes/s. `None`: any number of bytes takes no time.
    rate: Option<u64>,
    since: Instant,
    /// The bytes until then.
    before: f64,
}

impl ByteDues {
    fn begin(rate: Option<u64>, now: Instant) -> ByteDues {
        ByteDues { rate, since: now, before: 0.0 }
    }

    fn change(&mut self, rate: Option<u64>, now: Instant) {
        self.before += match self.rate {
            Some(rate) => rate as f64 * now.saturating_duration_since(self.since).as_secs_f64(),
            None => f64::INFINITY,
        };
        (self.rate, self.since) = (rate, now);
    }

    /// The time until so many bytes are let through.
    fn owed(&self, bytes: u64, now: Instant) -> Duration {
        let Some(rate) = self.rate else { return Duration::ZERO };
        let seconds = (bytes as f64 - self.before).max(0.0) / rate.max(1) as f64;
        let takes = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        takes.saturating_sub(now.saturating_duration_since(self.since))
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn set(sink: &UnboundedSender<SessionEvent>, rate: Option<u64>) {
        sink.send(SessionEvent::OwnRate(rate)).expect("heard");
    }

    async fn rate_of(pace: &ReadingPace, asked: u64) -> Option<u64> {
        pace.begin(asked).await.rate()
    }

    #[tokio::test]
    async fn a_rate_that_was_set_before_an_order_holds_and_the_lower_one_counts() {
        let (sink, changes) = unbounded_channel();
        let pace = ReadingPace::new(None, changes);
        assert_eq!((rate_of(&pace, 0).await, rate_of(&pace, 5 * MIB).await), (None, Some(5 * MIB)));
        set(&sink, Some(9 * MIB));
        set(&sink, Some(3 * MIB));
        assert_eq!((rate_of(&pace, 0).await, rate_of(&pace, MIB).await), (Some(3 * MIB), Some(MIB)));
        assert_eq!(rate_of(&pace, 1).await, Some(RATE_MIN));
        set(&sink, None);
        assert_eq!(rate_of(&pace, 0).await, None);
    }

    #[tokio::test]
    async fn a_rate_that_is_set_while_a_file_is_read_is_heard_at_once() {
        let (sink, changes) = unbounded_channel();
        let pace = ReadingPace::new(Some(MIB), changes);
        let mut order = pace.begin(8 * MIB).await;
        let (heard_all, is_over) = tokio::sync::oneshot::channel();
        let (mut heard_all, mut heard) = (Some(heard_all), Vec::new());
        // The last of them changes nothing, as the client asks for less.
        [Some(2 * MIB), Some(2 * MIB), None, Some(9 * MIB)].into_iter().for_each(|rate| set(&sink, rate));
        let hear = |rate| {
            heard.push(rate);
            if let Some(heard_all) = heard_all.take_if(|_| rate == Some(8 * MIB)) {
                heard_all.send(()).expect("it waits");
            }
        };
        order.while_at(is_over, hear).await.expect("all was heard");
        assert_eq!(heard, [Some(2 * MIB), Some(8 * MIB)]);
    }

    #[tokio::test]
    async fn what_is_owed_at_a_low_rate_is_owed_no_more_without_one() {
        let (sink, changes) = unbounded_channel();
        let pace = ReadingPace::new(Some(RATE_MIN), changes);
        let mut order = pace.begin(0).await;
        set(&sink, None);
        order.pay(u64::MAX).await;
        assert_eq!(order.rate(), None);
    }

    #[test]
    fn bytes_are_owed_by_the_rates_that_held() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut dues = ByteDues::begin(Some(MIB), begun);
        assert_eq!(dues.owed(10 * MIB, at(0)), Duration::from_secs(10));
        assert_eq!((dues.owed(10 * MIB, at(4)), dues.owed(10 * MIB, at(20))), (Duration::from_secs(6), Duration::ZERO));
        dues.change(Some(3 * MIB), at(4));
        assert_eq!(dues.owed(10 * MIB, at(4)), Duration::from_secs(2));
        dues.change(None, at(5));
        assert_eq!(dues.owed(u64::MAX, at(5)), Duration::ZERO);
        dues.change(Some(1), at(6));
        assert_eq!(dues.owed(u64::MAX, at(6)), Duration::ZERO, "as fast as it went, all of it may have been read");
        assert_eq!(ByteDues::begin(Some(1), begun).owed(u64::MAX, begun).as_secs(), u64::MAX);
    }
}
