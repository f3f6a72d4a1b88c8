//! The tuning of lanes while data flows: their number, their congestion control, and their
//! transport ([`transport`]), judged by the bytes that they deliver; the rate that they keep
//! together ([`manners`]); the part that limits the transfer ([`limit`]); what a session does to
//! its path ([`road`]); and the number of lanes over UDP ([`udp_lanes`]).
//!
//! In: samples of each lane, once a second. Out: decisions, each with its reason. Sans-I/O: the
//! engine reads the kernel's counters, and adds, retires and switches lanes. Knows no sockets, no
//! messages and no clock.

mod algorithm;
mod lanes;
pub mod limit;
pub mod manners;
pub mod road;
#[cfg(test)]
mod tests;
pub mod transport;
pub mod udp_lanes;

use std::fmt;
use std::time::Duration;

use longhaul_core::LaneId;
use serde::{Deserialize, Serialize};

pub use lanes::{Tuner, TuningConfig};

/// A sample of one sending lane over the last second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneSample {
    /// The lane.
    pub lane: LaneId,
    /// Its congestion control, as an index into [`TuningConfig::algorithms`]. `None` if it is not
    /// one of these.
    pub algorithm: Option<usize>,
    /// Bytes that the other host acknowledged.
    pub acked: u64,
    /// The time in which the lane had nothing in hand, in thousandths.
    pub idle: u16,
    /// The time in which the other host took no more, in thousandths.
    pub held_back: u16,
    /// The smoothed round trip time.
    pub rtt: Duration,
    /// Bytes that it has taken and the other host has not acknowledged yet.
    pub backlog: u64,
}

/// The samples of the last second.
#[derive(Clone, Copy, Debug)]
pub struct Second<'a> {
    /// Its length.
    pub elapsed: Duration,
    /// The lanes that were open all the while.
    pub lanes: &'a [LaneSample],
    /// The rate that the transfer keeps, in bytes/s, which more lanes cannot pass. `None` if there
    /// is no such rate.
    pub rate: Option<u64>,
    /// Whether the path is full, or others have their part of it: more lanes would carry no more
    /// than these, or take it from others.
    pub full: bool,
    /// Thousandths of the packets of late that were lost beyond what the path loses by itself. 0
    /// where no control says so.
    pub excess_loss: u16,
    /// Bytes that no lane has taken yet. `None` if that is unknown.
    pub remaining: Option<u64>,
}

/// A decision on the lanes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneDecision {
    /// Add this number of lanes.
    Add(u32, Why),
    /// Let these lanes finish their units in hand, and then end them.
    Retire(Vec<LaneId>, Why),
    /// Give these lanes up: others send their units in hand again.
    Lose(Vec<LaneId>, Why),
    /// Let these lanes use the congestion control at this index of [`TuningConfig::algorithms`].
    Switch(Vec<LaneId>, usize, Why),
    /// Keep the lanes as they are, for now.
    Stay(Why),
}

/// The reason of a decision. Rates are bytes/s over all lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Why {
    /// The network limits, and more lanes may carry more.
    Trying {
        /// The rate now.
        rate: u64,
    },
    /// More lanes carried more.
    Paid {
        /// The rate before.
        before: u64,
        /// The rate with them.
        after: u64,
    },
    /// More lanes carried no more.
    DidNotPay {
        /// The rate before.
        before: u64,
        /// The rate with them.
        after: u64,
    },
    /// The most lanes are open.
    AtMost {
        /// Their rate.
        rate: u64,
    },
    /// The lanes deliver less than they did.
    Fell {
        /// The rate before.
        from: u64,
        /// The rate now.
        to: u64,
    },
    /// More than a little is lost beyond what the path loses by itself: fewer lanes lose less.
    LosesTooMuch {
        /// Thousandths of all packets that were lost beyond it.
        lost: u16,
    },
    /// They are those beyond the usual number, with which a session over a long path begins, and
    /// more lanes are of no use.
    OfTheStart {
        /// The rate with them.
        rate: u64,
    },
    /// Without the lanes of the start, less was carried.
    FewerCarryLess {
        /// The rate before.
        before: u64,
        /// The rate without them.
        after: u64,
    },
    /// The threads of lanes over UDP have hardly any time left, and their path would carry more.
    LanesBusy {
        /// Thousandths of the time in which they work.
        thousandths: u16,
    },
    /// The processors of one of the hosts limit lanes over UDP, and their path would carry more.
    ProcessorsBusy,
    /// The receiver's system drops datagrams of lanes over UDP that carry much each.
    ReceiverDrops {
        /// The rate of all of them.
        rate: u64,
    },
    /// Another part than the network has limited for a while.
    NotTheNetwork,
    /// Only the units in hand of these lanes are missing, and other lanes can send them again
    /// sooner.
    WaitedFor {
        /// The time that the slowest of them would take. `None` if one does not move.
        left: Option<Duration>,
    },
    /// The end is near: units that these lanes took now would arrive after all others.
    TooSlowForTheEnd {
        /// Bytes that no lane has taken yet.
        remaining: u64,
    },
    /// Lanes over TCP and QUIC together carried more than TCP alone.
    QuicPaid {
        /// The rate before.
        before: u64,
        /// The rate with them.
        after: u64,
    },
    /// Lanes over TCP and QUIC together carried hardly more than TCP alone.
    QuicDidNotPay {
        /// The rate before.
        before: u64,
        /// The rate with them.
        after: u64,
    },
    /// No lane over QUIC joined.
    NoQuic {
        /// The time that was waited for one.
        waited: Duration,
    },
    /// A lane over UDP and those over TCP together carried more than TCP alone.
    UdpPaid {
        /// The rate before.
        before: u64,
        /// The rate with it.
        after: u64,
    },
    /// A lane over UDP and those over TCP together carried hardly more than TCP alone.
    UdpDidNotPay {
        /// The rate before.
        before: u64,
        /// The rate with it.
        after: u64,
    },
    /// A lane over UDP carried less by itself than TCP did.
    UdpCarriesLess {
        /// The rate of TCP.
        before: u64,
        /// The rate of the lane.
        after: u64,
    },
    /// A lane over UDP carried as much by itself as TCP did, and it cost more processor time.
    UdpCostsMore {
        /// The cost of TCP, nanoseconds of processor time a MB.
        before: u64,
        /// The cost of the lane.
        after: u64,
    },
    /// No lane over UDP joined.
    NoUdp {
        /// The time that was waited for one.
        waited: Duration,
    },
    /// One lane more over UDP was asked for, and did not join.
    NoMoreUdp {
        /// The time that was waited for it.
        waited: Duration,
    },
    /// The breaker of lanes over UDP has opened: the path loses too much of what they send.
    UdpBroken,
    /// The last lane over UDP was lost.
    UdpLost,
    /// The breaker of lanes over QUIC has opened: the path loses too much of what they send.
    QuicBroken,
    /// The breaker of lanes over QUIC was open for its time.
    QuicMended,
    /// The breaker of an earlier session of the run is still open on this path.
    StillBroken {
        /// The time until lanes over UDP and QUIC may be tried there again.
        left: Duration,
    },
    /// The path is full: faster lanes would only fill its queue.
    PathFull {
        /// The most that it was seen to carry in the last minute.
        most: u64,
    },
    /// Others use the path too.
    PathShared {
        /// The most that it was seen to carry in the last minute.
        most: u64,
    },
    /// A lane delivered more with one congestion control than with the other.
    Delivers {
        /// The rate of a lane with the better one.
        better: u64,
        /// The rate of a lane with the other one.
        worse: u64,
    },
    /// Half of the rate that an earlier session left is tried.
    KnownRateTried {
        /// The rate that it left.
        left: u64,
    },
    /// It was tried, and arrived as it was sent.
    KnownRateProven {
        /// The rate that the earlier session left.
        left: u64,
    },
    /// It was tried, and the path does not carry it.
    KnownRateWrong {
        /// The rate that the earlier session left.
        left: u64,
        /// The first sign of that.
        sign: KnownRateSign,
    },
    /// It was tried, and another part than the path left too little to send to judge it.
    KnownRateUnproven {
        /// The rate that the earlier session left.
        left: u64,
    },
    /// Less than half of what was sent arrived, where the session takes all: it takes a fair share
    /// from now on.
    AllArrivesInPart,
}

/// The sign by which the path showed that it does not carry a known rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KnownRateSign {
    /// More packets were lost than some paths lose by themselves.
    Lost,
    /// A queue stood.
    Queued,
    /// The first packets arrived further apart than they were sent, or in part.
    Late,
    /// For some rounds no more arrived than before.
    Full,
}

impl fmt::Display for KnownRateSign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KnownRateSign::Lost => "packets were lost",
            KnownRateSign::Queued => "a queue stood",
            KnownRateSign::Late => "its first packets came late",
            KnownRateSign::Full => "no more arrived than before",
        })
    }
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
            Why::LosesTooMuch { lost } => {
                write!(f, "{:.1} % is lost beyond what the path loses by itself", f64::from(*lost) / 10.0)
            }
            Why::OfTheStart { rate } => {
                write!(f, "they were for the start, and more lanes do not carry more than {:.1} MB/s", mb(rate))
            }
            Why::FewerCarryLess { before, after } => {
                write!(f, "fewer lanes carried less: {:.1} MB/s before, {:.1} after", mb(before), mb(after))
            }
            Why::TooSlowForTheEnd { remaining } => {
                write!(f, "{:.1} MB are left, which others send sooner", mb(remaining))
            }
            Why::WaitedFor { left: Some(left) } => {
                write!(f, "only they are waited for, for {:.1} s; others send that again sooner", left.as_secs_f64())
            }
            Why::WaitedFor { left: None } => f.write_str("only they are waited for, and one of them does not move"),
            Why::PathFull { most } => {
                write!(f, "the path is full at {:.1} MB/s, and its queue is kept short", mb(most))
            }
            Why::PathShared { most } => {
                write!(f, "others use the path too, on which {:.1} MB/s were seen", mb(most))
            }
            Why::NotTheNetwork => f.write_str("it is not the network that limits"),
            Why::Delivers { better, worse } => {
                write!(f, "a lane delivers {:.1} MB/s with it, {:.1} with the other", mb(better), mb(worse))
            }
            of_transport => of_transport.write_of_transport(f),
        }
    }
}

impl Why {
    /// Writes a reason that has to do with the transport of lanes.
    fn write_of_transport(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |rate: &u64| *rate as f64 / 1e6;
        match self {
            Why::QuicPaid { before, after } => {
                write!(f, "lanes over QUIC carry more: {:.1} MB/s before, {:.1} with them", mb(before), mb(after))
            }
            Why::QuicDidNotPay { before, after } => {
                write!(f, "lanes over QUIC carry no more: {:.1} MB/s before, {:.1} with them", mb(before), mb(after))
            }
            Why::NoQuic { waited } => {
                write!(f, "no lane over QUIC joined in {} s: a firewall may drop UDP", waited.as_secs())
            }
            Why::UdpPaid { before, after } => {
                write!(f, "a lane over UDP carries more: {:.1} MB/s before, {:.1} with it", mb(before), mb(after))
            }
            Why::UdpDidNotPay { before, after } => {
                write!(f, "a lane over UDP carries no more: {:.1} MB/s before, {:.1} with it", mb(before), mb(after))
            }
            Why::UdpCarriesLess { before, after } => {
                write!(f, "a lane over UDP carries less by itself: {:.1} MB/s, and TCP {:.1}", mb(after), mb(before))
            }
            Why::UdpCostsMore { before, after } => {
                let (tcp, udp) = (*before as f64 / 1e6, *after as f64 / 1e6);
                write!(f, "a lane over UDP costs more: {udp:.2} CPU seconds a GB, and TCP {tcp:.2}")
            }
            Why::NoUdp { waited } => {
                write!(f, "no lane over UDP joined in {} s: a firewall may drop UDP", waited.as_secs())
            }
            Why::NoMoreUdp { waited } => {
                write!(f, "no other lane over UDP joined in {} s: the other end may have no room", waited.as_secs())
            }
            Why::UdpBroken => f.write_str("the path loses too much of what lanes over UDP send"),
            Why::UdpLost => f.write_str("the last lane over UDP was lost"),
            Why::StillBroken { left } => write!(
                f,
                "the path lost too much of what lanes over UDP or QUIC sent, which are tried again in {} s at the \
                 earliest",
                left.as_secs_f64().ceil()
            ),
            Why::QuicBroken => f.write_str("the path loses too much of what lanes over QUIC send"),
            Why::QuicMended => f.write_str("the time is over for which the path lost too much for lanes over QUIC"),
            Why::LanesBusy { thousandths } => {
                write!(f, "the lanes' threads are busy for {} % of the time, and the path has room", thousandths / 10)
            }
            Why::ReceiverDrops { rate } => {
                write!(f, "the receiver's system drops datagrams at {:.1} MB/s, and the path has room", mb(rate))
            }
            Why::ProcessorsBusy => f.write_str("the processors of a host are busy with lanes, and the path has room"),
            of_control => of_control.write_of_control(f),
        }
    }

    /// Writes a reason of the control of lanes over UDP or QUIC.
    fn write_of_control(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mb = |rate: &u64| *rate as f64 / 1e6;
        match self {
            Why::KnownRateTried { left } => {
                write!(f, "an earlier session left {:.1} MB/s, of which half is tried", mb(left))
            }
            Why::KnownRateProven { left } => {
                write!(f, "half of the {:.1} MB/s that an earlier session left arrived as it was sent", mb(left))
            }
            Why::KnownRateWrong { left, sign } => {
                write!(f, "half of the {:.1} MB/s that an earlier session left is too much: {sign}", mb(left))
            }
            Why::KnownRateUnproven { left } => {
                write!(f, "too little could be sent to prove the {:.1} MB/s that an earlier session left", mb(left))
            }
            Why::AllArrivesInPart => {
                f.write_str("less than half of what was sent arrived, so that not all of the path is taken any more")
            }
            other => write!(f, "{other:?}"),
        }
    }
}
