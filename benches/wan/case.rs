//! Owns the list of measured paths, and the target of each. Takes the command line; must not know
//! how anything is run.

use std::time::Duration;

use clap::Parser;
use longhaul_wan::{Rate, units};
use serde::{Serialize, Serializer};

use crate::kit::Options;
use crate::meetings::{BesideChoice, Others, PathQueue};

/// Goodput over emulated paths. Without a choice: all of what docs/BENCHMARKS.md lists; with one,
/// the product of what is chosen
#[derive(Debug, Parser)]
pub(crate) struct Plan {
    #[command(flatten)]
    pub(crate) common: Options,
    /// Round trips [default with another choice: 20ms,100ms,300ms]
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = units::time)]
    rtt: Vec<Duration>,
    /// Shares of packets lost [default with another choice: 0,1e-4,1e-3,1e-2]
    #[arg(long, value_name = "SHARE", value_delimiter = ',', value_parser = units::share)]
    loss: Vec<f64>,
    /// Largest packets [default with another choice: 9000]
    #[arg(long, value_name = "BYTES", value_delimiter = ',')]
    mtu: Vec<u32>,
    /// Rates [default with another choice: 1Gbit/s]
    #[arg(long, value_name = "RATE", value_delimiter = ',')]
    rate: Vec<Rate>,
    /// The length of the large file [default: 30 s of data at the rate, with --quick 3 s]
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    pub(crate) bytes: Option<u64>,
    /// Only the small files
    #[arg(long)]
    small: bool,
    /// Only the round trips of short transfers
    #[arg(long)]
    short: bool,
    /// Only QUIC at a rate, and what that does to a TCP connection beside it; with --loss, at these
    /// only
    #[arg(long)]
    quic: bool,
    /// Only sessions beside others: TCP connections, another session, or nobody; with --rtt,
    /// --rate, --queue, --share, --transport or --others, at these only
    #[arg(long)]
    beside: bool,
    /// Queues, in round trips at the rate, or `policer`, for --beside [default:
    /// 0.05,0.25,1,4,policer]
    #[arg(long, value_name = "BDP", value_delimiter = ',')]
    queue: Vec<PathQueue>,
    /// The others whom a session meets, for --beside [default: all of them]
    #[arg(long, value_name = "WHO", value_delimiter = ',')]
    others: Vec<Others>,
    /// Shares, for --beside [default: fair,polite,all]
    #[arg(long, value_name = "SHARE", value_delimiter = ',')]
    share: Vec<String>,
    /// The transports for --beside, and the one for --short [default: for --beside tcp,udp,quic,
    /// for --short as the program chooses]
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub(crate) transport: Vec<String>,
    /// Only cells whose names have all of these words, as in --only='udp 20ms 1-cubic'; may be
    /// repeated, for cells that have those of another one [default: all cells]
    #[arg(long, value_name = "WORDS")]
    pub(crate) only: Vec<String>,
    /// Print the names of the chosen cells, and measure nothing
    #[arg(long)]
    pub(crate) list: bool,
    /// Print the tables of all cells that were ever measured, the last time of each, and measure
    /// nothing
    #[arg(long)]
    pub(crate) table: bool,
    /// An option for the push of the large file, as in `--with=--transport --with=quic`; may be
    /// repeated [default: none]
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    pub(crate) with: Vec<String>,
}

/// A path to measure; its queue is one BDP.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Case {
    #[serde(rename = "rate_bits_per_s", serialize_with = "bits")]
    pub(crate) rate: Rate,
    #[serde(rename = "rtt_ms", serialize_with = "millis")]
    pub(crate) rtt: Duration,
    pub(crate) loss: f64,
    pub(crate) mtu: u32,
}

impl Plan {
    /// Whether the small files are to be measured.
    pub(crate) fn has_small_files(&self) -> bool {
        self.small || !self.is_choice()
    }

    /// Whether the short transfers are to be measured.
    pub(crate) fn has_short_transfers(&self) -> bool {
        self.short || !self.is_choice()
    }

    /// The shares lost at which QUIC is to be measured at a rate. Empty if it is not.
    pub(crate) fn quic_losses(&self) -> Vec<f64> {
        match self.quic {
            false => Vec::new(),
            true if self.loss.is_empty() => LOSS_QUIC.to_vec(),
            true => self.loss.clone(),
        }
    }

    /// The meetings of sessions with others. `None` if they are not to be measured.
    pub(crate) fn beside(&self) -> Option<BesideChoice> {
        let of = |chosen: &[String], all: &[&str]| -> Vec<String> {
            if chosen.is_empty() { all.iter().map(|&one| one.to_owned()).collect() } else { chosen.to_vec() }
        };
        self.beside.then(|| BesideChoice {
            rate: self.rate.first().copied().unwrap_or(Rate::bits(GIGABIT)),
            rtts: if self.rtt.is_empty() {
                RTT_MS[..2].iter().copied().map(Duration::from_millis).collect()
            } else {
                self.rtt.clone()
            },
            queues: if self.queue.is_empty() { QUEUES.to_vec() } else { self.queue.clone() },
            shares: of(&self.share, &["fair", "polite", "all"]),
            transports: of(&self.transport, &["tcp", "udp", "quic"]),
            others: if self.others.is_empty() { Others::ALL.to_vec() } else { self.others.clone() },
        })
    }

    /// The paths for the large file, those of one rate together.
    pub(crate) fn cases(&self) -> Vec<Case> {
        if self.small || self.short || self.quic || self.beside {
            return Vec::new();
        }
        if self.is_choice() {
            let or = |chosen: &[u64], all: &[u64]| if chosen.is_empty() { all.to_vec() } else { chosen.to_vec() };
            let rates = or(&self.rate.iter().map(|rate| rate.as_bits()).collect::<Vec<_>>(), &[GIGABIT]);
            let mtus = or(&self.mtu.iter().map(|mtu| u64::from(*mtu)).collect::<Vec<_>>(), &[u64::from(JUMBO)]);
            let rtts = if self.rtt.is_empty() { RTT_MS.map(Duration::from_millis).to_vec() } else { self.rtt.clone() };
            let losses = if self.loss.is_empty() { LOSS.to_vec() } else { self.loss.clone() };
            let mtus: Vec<u32> = mtus.iter().map(|mtu| *mtu as u32).collect();
            return product(&rates, &mtus, &rtts, &losses);
        }
        let hundred = [Duration::from_millis(100)];
        if self.common.quick {
            return product(&[GIGABIT], &[JUMBO], &hundred, &[0.0, 1e-2]);
        }
        let mut cases = product(&[GIGABIT], &[JUMBO, 1500], &RTT_MS.map(Duration::from_millis), &LOSS);
        cases.extend(product(&[3 * GIGABIT], &[JUMBO], &hundred, &[0.0, 1e-4]));
        cases
    }

    fn is_choice(&self) -> bool {
        let paths = self.rtt.len() + self.loss.len() + self.mtu.len() + self.rate.len();
        self.small || self.short || self.quic || self.beside || paths + self.with.len() > 0
    }
}

impl Case {
    /// The name of the case, for users.
    pub(crate) fn name(&self) -> String {
        let loss = if self.loss == 0.0 { "0".to_owned() } else { format!("{:e}", self.loss) };
        format!("{} {} ms, loss {loss}, MTU {}", self.rate, self.rtt.as_millis(), self.mtu)
    }

    /// The share of the rate that is aimed at.
    pub(crate) fn target(&self) -> Option<f64> {
        let at = |rtt: u64| self.rtt == Duration::from_millis(rtt);
        if self.rate.as_bits() == 3 * GIGABIT {
            return (at(100) && self.loss <= 1e-4 && self.mtu == JUMBO).then_some(0.85);
        }
        let row = RTT_MS.iter().position(|rtt| at(*rtt))?;
        let column = LOSS.iter().position(|loss| *loss == self.loss)?;
        let target = TARGETS[row][column];
        match self.mtu {
            _ if self.rate.as_bits() != GIGABIT => None,
            JUMBO => Some(target),
            1500 => Some(target - 0.03),
            _ => None,
        }
    }
}

fn product(rates: &[u64], mtus: &[u32], rtts: &[Duration], losses: &[f64]) -> Vec<Case> {
    let mut cases = Vec::new();
    for rate in rates {
        for mtu in mtus {
            for rtt in rtts {
                let case = |loss: &f64| Case { rate: Rate::bits(*rate), rtt: *rtt, loss: *loss, mtu: *mtu };
                cases.extend(losses.iter().map(case));
            }
        }
    }
    cases
}

fn bits<S: Serializer>(rate: &Rate, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_u64(rate.as_bits())
}

fn millis<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(time.as_secs_f64() * 1e3)
}

const GIGABIT: u64 = 1_000_000_000;
const JUMBO: u32 = 9000;
const RTT_MS: [u64; 3] = [20, 100, 300];
const LOSS: [f64; 4] = [0.0, 1e-4, 1e-3, 1e-2];
const QUEUES: [PathQueue; 5] =
    [PathQueue::Bdp(0.05), PathQueue::Bdp(0.25), PathQueue::Bdp(1.0), PathQueue::Bdp(4.0), PathQueue::Policer];
const LOSS_QUIC: [f64; 2] = [0.0, 1e-2];
/// The target shares, by round trip, then by loss.
const TARGETS: [[f64; 4]; 3] = [[0.95, 0.95, 0.93, 0.90], [0.93, 0.93, 0.90, 0.88], [0.88, 0.88, 0.85, 0.80]];
