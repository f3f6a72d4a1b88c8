//! How many lanes, with which congestion control, over what ([`transport`]): found while data
//! flows, by what was delivered. And [`limit`]: what limits.
//!
//! In: what each lane did in the last second. Out: decisions, each with its reason. Sans-I/O: the
//! engine reads the kernel's counters, and adds, retires and switches lanes. Knows no sockets, no
//! messages and no clock.

mod algorithm;
mod lanes;
pub mod limit;
#[cfg(test)]
mod tests;
pub mod transport;

use std::fmt;
use std::time::Duration;

use longhaul_core::LaneId;

pub use lanes::{Tuner, TuningConfig};

/// What one sending lane did in the last second or so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneSample {
    /// Which.
    pub lane: LaneId,
    /// Its congestion control, as a place in [`Config::algorithms`]; none if it is not one of
    /// these.
    pub algorithm: Option<usize>,
    /// Bytes that the other host acknowledged.
    pub acked: u64,
    /// Thousandths of the time in which the lane had nothing in hand.
    pub idle: u16,
    /// Thousandths of the time in which the other host took no more.
    pub held_back: u16,
    /// The smoothed round trip.
    pub rtt: Duration,
    /// Bytes that it has taken and that are not acknowledged yet.
    pub backlog: u64,
}

/// The last second.
#[derive(Clone, Copy, Debug)]
pub struct Second<'a> {
    /// How long it was.
    pub elapsed: Duration,
    /// The lanes that stood all the while.
    pub lanes: &'a [LaneSample],
    /// The rate that the transfer was given, if any, bytes/s: more lanes cannot pass it.
    pub rate: Option<u64>,
    /// Bytes that no lane has yet; none where nobody knows.
    pub remaining: Option<u64>,
}

/// What to do about the lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneDecision {
    /// Add so many.
    Add(u32, Why),
    /// Let these finish what they have in hand, and no more.
    Retire(Vec<LaneId>, Why),
    /// Give these up: others send again what they have in hand.
    Lose(Vec<LaneId>, Why),
    /// Have these use the congestion control at this place in [`Config::algorithms`].
    Switch(Vec<LaneId>, usize, Why),
    /// Leave it at what there is, for now.
    Stay(Why),
}

/// Why. Rates are bytes/s over all lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The network limits: perhaps more lanes carry more.
    Trying {
        /// What the lanes deliver now.
        rate: u64,
    },
    /// More lanes carried more.
    Paid {
        /// What there was before.
        before: u64,
        /// And with them.
        after: u64,
    },
    /// More lanes carried no more.
    DidNotPay {
        /// What there was before.
        before: u64,
        /// And with them.
        after: u64,
    },
    /// There may be no more lanes.
    AtMost {
        /// What these deliver.
        rate: u64,
    },
    /// The lanes deliver less than they did.
    Fell {
        /// What they did.
        from: u64,
        /// What they do now.
        to: u64,
    },
    /// Something else than the network limits, and has for a while.
    NotTheNetwork,
    /// Everything is on its way but what these lanes have in hand, and others can send it again
    /// sooner.
    WaitedFor {
        /// How long the slowest would take; none for one that does not move.
        left: Option<Duration>,
    },
    /// The end is near: what these lanes took now would arrive after everything else.
    TooSlowForTheEnd {
        /// Bytes that no lane has yet.
        remaining: u64,
    },
    /// With lanes over QUIC besides, more was carried.
    QuicPaid {
        /// What there was before.
        before: u64,
        /// And with them.
        after: u64,
    },
    /// It was hardly more.
    QuicDidNotPay {
        /// What there was before.
        before: u64,
        /// And with them.
        after: u64,
    },
    /// No lane over QUIC came to stand.
    NoQuic {
        /// For so long one was waited for.
        waited: Duration,
    },
    /// With the one congestion control a lane delivered this much, with the other that much.
    Delivers {
        /// The better one's rate of a lane.
        better: u64,
        /// The other one's.
        worse: u64,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |rate: &u64| *rate as f64 / 1e6;
        match self {
            Why::Trying { rate } => write!(f, "the network limits at {:.1} MB/s", mb(rate)),
            Why::Paid { before, after } => {
                write!(f, "more lanes carried more: {:.1} MB/s before, {:.1} after", mb(before), mb(after))
            }
            Why::DidNotPay { before, after } => {
                write!(f, "more lanes carried no more: {:.1} MB/s before, {:.1} after", mb(before), mb(after))
            }
            Why::AtMost { rate } => write!(f, "there may be no more lanes than these, at {:.1} MB/s", mb(rate)),
            Why::Fell { from, to } => write!(f, "the lanes carry less: {:.1} MB/s, {:.1} before", mb(to), mb(from)),
            Why::TooSlowForTheEnd { remaining } => {
                write!(f, "{:.1} MB are left, which others send sooner", mb(remaining))
            }
            Why::WaitedFor { left: Some(left) } => {
                write!(f, "only they are waited for, for {:.1} s; others send that again sooner", left.as_secs_f64())
            }
            Why::WaitedFor { left: None } => f.write_str("only they are waited for, and one of them does not move"),
            Why::QuicPaid { before, after } => {
                write!(f, "lanes over QUIC carry more: {:.1} MB/s before, {:.1} with them", mb(before), mb(after))
            }
            Why::QuicDidNotPay { before, after } => {
                write!(f, "lanes over QUIC carry no more: {:.1} MB/s before, {:.1} with them", mb(before), mb(after))
            }
            Why::NoQuic { waited } => {
                write!(f, "no lane over QUIC joined in {} s: a firewall may drop UDP", waited.as_secs())
            }
            Why::NotTheNetwork => f.write_str("it is not the network that limits"),
            Why::Delivers { better, worse } => {
                write!(f, "a lane delivers {:.1} MB/s with it, {:.1} with the other", mb(better), mb(worse))
            }
        }
    }
}
