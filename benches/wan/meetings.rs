//! Owns the list of meetings on a path: who a session meets there, the queue, and the share and the
//! transport that it has. Takes the command line; must not know how anything is run.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use longhaul_wan::Rate;
use serde::{Serialize, Serializer};

use crate::flow::Congestion;

/// The others whom a session meets on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Others {
    /// Nobody.
    Nobody,
    /// One TCP connection under cubic.
    #[value(name = "1-cubic")]
    OneCubic,
    /// One TCP connection under BBR.
    #[value(name = "1-bbr")]
    OneBbr,
    /// Ten under cubic.
    #[value(name = "10-cubics")]
    TenCubics,
    /// Another session of the same kind.
    Session,
}

/// The queue of a path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PathQueue {
    /// Room for so many round trips at the rate.
    Bdp(f64),
    /// None, but a policer whose bucket holds [`BUCKET`] at the rate.
    Policer,
}

/// One meeting.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MeetingCell {
    pub(crate) transport: String,
    #[serde(skip)]
    pub(crate) rate: Rate,
    #[serde(skip)]
    pub(crate) rtt: Duration,
    #[serde(serialize_with = "text")]
    pub(crate) queue: PathQueue,
    pub(crate) share: String,
    #[serde(rename = "beside", serialize_with = "text")]
    pub(crate) others: Others,
}

/// The meetings that were asked for: the product of all these, as far as it has a sense.
#[derive(Debug)]
pub(crate) struct BesideChoice {
    pub(crate) rate: Rate,
    pub(crate) rtts: Vec<Duration>,
    pub(crate) queues: Vec<PathQueue>,
    pub(crate) shares: Vec<String>,
    pub(crate) transports: Vec<String>,
    pub(crate) others: Vec<Others>,
}

impl BesideChoice {
    /// All meetings. Those on one path stand together, as what a flow has alone there is measured
    /// once.
    pub(crate) fn cells(&self) -> Vec<MeetingCell> {
        let mut cells = Vec::new();
        for &queue in &self.queues {
            for &rtt in &self.rtts {
                for transport in &self.transports {
                    for (share, &others) in
                        self.shares.iter().flat_map(|share| self.others.iter().map(move |o| (share, o)))
                    {
                        let (transport, share) = (transport.clone(), share.clone());
                        cells.push(MeetingCell { transport, rate: self.rate, rtt, queue, share, others });
                    }
                }
            }
        }
        cells.retain(MeetingCell::has_a_sense);
        cells
    }
}

impl MeetingCell {
    /// The name of the cell.
    pub(crate) fn name(&self) -> String {
        let MeetingCell { transport, rate, rtt, queue, share, others } = self;
        format!("beside {transport} {rate} {}ms {queue} {share} {others}", rtt.as_millis())
    }

    /// Whether a table has a row for it: shares other than `fair` are told by one cubic flow, and
    /// by nobody.
    fn has_a_sense(&self) -> bool {
        self.share == "fair" || matches!(self.others, Others::OneCubic | Others::Nobody)
    }
}

impl Others {
    /// All of them.
    pub(crate) const ALL: [Others; 5] =
        [Others::OneCubic, Others::OneBbr, Others::TenCubics, Others::Session, Others::Nobody];

    /// The congestion control of the flows, and their number. `None` if there are none.
    pub(crate) fn flows(self) -> Option<(Congestion, usize)> {
        match self {
            Others::Nobody | Others::Session => None,
            Others::OneCubic => Some((Congestion::Cubic, 1)),
            Others::OneBbr => Some((Congestion::Bbr, 1)),
            Others::TenCubics => Some((Congestion::Cubic, 10)),
        }
    }
}

impl fmt::Display for Others {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Others::Nobody => "nobody",
            Others::OneCubic => "1-cubic",
            Others::OneBbr => "1-bbr",
            Others::TenCubics => "10-cubics",
            Others::Session => "session",
        })
    }
}

impl fmt::Display for PathQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathQueue::Bdp(times) => write!(f, "{times}bdp"),
            PathQueue::Policer => f.write_str("policer"),
        }
    }
}

impl FromStr for PathQueue {
    type Err = String;

    fn from_str(text: &str) -> Result<PathQueue, String> {
        if text == "policer" {
            return Ok(PathQueue::Policer);
        }
        let times = text.strip_suffix("bdp").unwrap_or(text).parse().map_err(|_| "a number of BDPs, or `policer`")?;
        Ok(PathQueue::Bdp(times))
    }
}

impl PathQueue {
    /// The setting of `longhaul-wan` for it, at this rate.
    pub(crate) fn setting(self, rate: Rate) -> String {
        match self {
            PathQueue::Bdp(times) => format!("queue={times}bdp"),
            PathQueue::Policer => {
                format!("queue=bucket:{}", (rate.as_bits() as f64 / 8.0 * BUCKET.as_secs_f64()) as u64)
            }
        }
    }
}

fn text<T: fmt::Display, S: Serializer>(what: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(what)
}

/// A policer's bucket, in time at its rate: as routers are often set, some milliseconds.
const BUCKET: Duration = Duration::from_millis(10);
