//! The figures of the road: what a session does to the path that it takes, and what it finds there.
//!
//! In: rounds of a path, from whatever controls the rate there. Out: their sums, and the figures
//! that these come to. It judges nothing, and must not know which transport or which control it
//! is: each fills in what it knows.

use std::time::Duration;

/// A round of a path, as the control of that path saw it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoadRound {
    /// Its length in seconds.
    pub seconds: f64,
    /// The shortest round trip of late, in seconds: that of an empty queue.
    pub base: f64,
    /// The time by which the queue of the path made round trips longer, in seconds. `None` if it
    /// was not seen.
    pub queue: Option<f64>,
    /// Packets of which it is known by now whether they arrived.
    pub packets: f64,
    /// Packets among them that were lost.
    pub lost: f64,
    /// The part of its packets that the path loses by itself, as far as is known.
    pub own_loss: f64,
    /// Bytes that arrived.
    pub delivered: f64,
    /// Bytes/s that the path was seen to carry.
    pub carries: f64,
    /// Whether others on the path left this session less than there is.
    pub is_shared: bool,
}

/// The sums of rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoadSums {
    /// Seconds of rounds in which the queue was seen; seconds of queue and of round trip, each
    /// times the seconds for which it stood.
    seen: f64,
    queued: f64,
    base: f64,
    packets: f64,
    lost: f64,
    /// The one of the last round.
    own_loss: f64,
    /// Seconds beside others, bytes that arrived in them, and bytes that the path would have
    /// carried.
    beside: f64,
    beside_had: f64,
    beside_whole: f64,
}

impl RoadSums {
    /// Adds a round.
    pub fn add(&mut self, round: &RoadRound) {
        if let Some(queue) = round.queue.filter(|_| round.base > 0.0) {
            self.seen += round.seconds;
            self.queued += queue.max(0.0) * round.seconds;
            self.base += round.base * round.seconds;
        }
        self.packets += round.packets;
        self.lost += round.lost;
        self.own_loss = round.own_loss;
        if round.is_shared {
            self.beside += round.seconds;
            self.beside_had += round.delivered;
            self.beside_whole += round.carries * round.seconds;
        }
    }

    /// Adds the sums of another path, or of another time.
    pub fn add_all(&mut self, other: &RoadSums) {
        let packets = self.packets + other.packets;
        if packets > 0.0 {
            self.own_loss = (self.own_loss * self.packets + other.own_loss * other.packets) / packets;
        }
        self.seen += other.seen;
        self.queued += other.queued;
        self.base += other.base;
        self.packets = packets;
        self.lost += other.lost;
        self.beside += other.beside;
        self.beside_had += other.beside_had;
        self.beside_whole += other.beside_whole;
    }

    /// The sums of what came after `earlier`, which are sums of the same rounds until then.
    pub fn since(&self, earlier: &RoadSums) -> RoadSums {
        let less = |now: f64, before: f64| (now - before).max(0.0);
        RoadSums {
            seen: less(self.seen, earlier.seen),
            queued: less(self.queued, earlier.queued),
            base: less(self.base, earlier.base),
            packets: less(self.packets, earlier.packets),
            lost: less(self.lost, earlier.lost),
            own_loss: self.own_loss,
            beside: less(self.beside, earlier.beside),
            beside_had: less(self.beside_had, earlier.beside_had),
            beside_whole: less(self.beside_whole, earlier.beside_whole),
        }
    }

    /// The mean time by which the queue made round trips longer. `None` if it was not seen.
    pub fn queue(&self) -> Option<Duration> {
        seconds(self.queued / self.seen)
    }

    /// The same as a part of the round trip: the queue in bandwidth-delay products of the path, as
    /// both are bytes at the rate of the path.
    pub fn queue_bdp(&self) -> Option<f64> {
        finite(self.queued / self.base)
    }

    /// The mean of the shortest round trips. `None` if none was seen.
    pub fn round_trip(&self) -> Option<Duration> {
        seconds(self.base / self.seen)
    }

    /// The part of all packets that the path loses by itself. `None` if none was sent.
    pub fn own_loss(&self) -> Option<f64> {
        (self.packets > 0.0).then_some(self.own_loss)
    }

    /// The part of all packets that was lost beyond that. `None` if none was sent.
    pub fn loss_beyond(&self) -> Option<f64> {
        finite(self.lost / self.packets).map(|part| (part - self.own_loss).max(0.0))
    }

    /// The part that this session had of what the path was seen to carry, while others were there.
    /// `None` if none were.
    pub fn share_beside(&self) -> Option<f64> {
        finite(self.beside_had / self.beside_whole)
    }

    /// The time in which others were there.
    pub fn beside(&self) -> Duration {
        seconds(self.beside).unwrap_or_default()
    }
}

/// A figure that is a number: what is divided by nothing is not known.
fn finite(figure: f64) -> Option<f64> {
    Some(figure).filter(|figure| figure.is_finite())
}

fn seconds(figure: f64) -> Option<Duration> {
    finite(figure).and_then(|figure| Duration::try_from_secs_f64(figure).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND: RoadRound = RoadRound {
        seconds: 1.0,
        base: 0.1,
        queue: Some(0.01),
        packets: 1000.0,
        lost: 12.0,
        own_loss: 0.01,
        delivered: 100e6,
        carries: 125e6,
        is_shared: false,
    };

    fn near(figure: Option<f64>, want: f64) -> bool {
        figure.is_some_and(|figure| (figure - want).abs() < 1e-9)
    }

    #[test]
    fn nothing_is_known_of_a_road_that_nobody_took() {
        let none = RoadSums::default();
        assert_eq!((none.queue(), none.queue_bdp(), none.round_trip()), (None, None, None));
        assert_eq!((none.own_loss(), none.loss_beyond(), none.share_beside()), (None, None, None));
        assert_eq!(none.beside(), Duration::ZERO);
    }

    #[test]
    fn figures_are_means_over_the_time_and_the_packets() {
        let mut sums = RoadSums::default();
        sums.add(&ROUND);
        sums.add(&RoadRound { seconds: 3.0, queue: Some(0.05), packets: 3000.0, lost: 44.0, ..ROUND });
        assert_eq!(sums.queue(), Some(Duration::from_millis(40)));
        assert!(near(sums.queue_bdp(), 0.4));
        assert_eq!(sums.round_trip(), Some(Duration::from_millis(100)));
        assert!(near(sums.own_loss(), 0.01) && near(sums.loss_beyond(), 0.004), "{sums:?}");
        assert_eq!(sums.share_beside(), None, "nobody else was there");
        sums.add(&RoadRound { queue: None, packets: 0.0, lost: 0.0, ..ROUND });
        assert_eq!(sums.queue(), Some(Duration::from_millis(40)), "a queue that was not seen is none of 0");
    }

    #[test]
    fn a_path_that_loses_no_more_than_by_itself_lost_nothing_beyond() {
        let mut sums = RoadSums::default();
        sums.add(&RoadRound { lost: 5.0, ..ROUND });
        assert_eq!(sums.loss_beyond(), Some(0.0));
    }

    #[test]
    fn only_rounds_beside_others_count_for_the_share() {
        let mut sums = RoadSums::default();
        sums.add(&ROUND);
        sums.add(&RoadRound { is_shared: true, seconds: 2.0, delivered: 50e6, ..ROUND });
        assert!(near(sums.share_beside(), 0.2), "{sums:?}");
        assert_eq!(sums.beside(), Duration::from_secs(2));
    }

    #[test]
    fn sums_of_two_paths_and_of_two_times_are_those_of_their_rounds() {
        // Numbers whose sums are exact.
        let round = RoadRound { base: 0.125, queue: Some(0.25), ..ROUND };
        let rounds = [round, RoadRound { is_shared: true, lost: 20.0, ..round }, RoadRound { seconds: 0.5, ..round }];
        let sum = |rounds: &[RoadRound]| {
            let mut sums = RoadSums::default();
            rounds.iter().for_each(|round| sums.add(round));
            sums
        };
        let (first, all) = (sum(&rounds[..1]), sum(&rounds));
        assert_eq!(all.since(&first), sum(&rounds[1..]));
        let mut both = first;
        both.add_all(&sum(&rounds[1..]));
        assert!(near(both.loss_beyond(), all.loss_beyond().unwrap_or(1.0)) && both.queue() == all.queue());
    }
}
