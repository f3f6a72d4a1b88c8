//! The measurements that the options of `bench` ask for: lists become one case for each
//! combination.
//!
//! In: unparsed texts, with the same layers as for transfers, so that a default run measures a
//! default transfer. Out: [`NetBench`] and [`MatrixBench`] to `commands`. Options that only `bench`
//! has are taken from flags alone.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::ByteCount;
use longhaul_engine::{Congestion, Protection, Settings, Transport, Way};

use super::{Keys, Layers, buffers, devices, encrypted, keys};
use crate::cli::{BenchMatrixArgs, BenchNetArgs, BufferOptions};
use crate::config::ClientFile;
use crate::error::{Error, Flaw};
use crate::values;

/// Measurements between this host and a daemon.
#[derive(Debug)]
pub struct NetBench {
    /// The cases, one for each run.
    pub cases: Vec<NetCase>,
    /// The most bytes of each run. `None`: the daemon's limit.
    pub bytes: Option<ByteCount>,
    /// The time for which each run reads new data. `None`: no limit.
    pub time: Option<Duration>,
    /// The settings that all runs share.
    pub engine: Settings,
    /// Keys and whom to trust.
    pub keys: Keys,
}

/// The case that one run measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetCase {
    /// The direction of the data.
    pub way: Way,
    /// The transport of the lanes.
    pub transport: Transport,
    /// The protection of the lanes.
    pub protect: Protection,
    /// The number of lanes. `None`: it is found while data flows.
    pub lanes: Option<u32>,
    /// The rate to keep, in bytes/s. `None`: no limit.
    pub rate: Option<u64>,
}

impl NetCase {
    /// The settings of its run.
    pub fn settings(&self, common: &Settings) -> Settings {
        let NetCase { protect, lanes, rate, transport, .. } = *self;
        Settings { protect: Some(protect), lanes, rate, transport, ..common.clone() }
    }
}

/// Merges and types all options of `bench net`.
///
/// # Errors
/// The first option that cannot be used; [`Error::Combination`] for more runs than a user can mean.
pub fn net_bench(args: &BenchNetArgs, layers: &Layers) -> Result<NetBench, Error> {
    let flags = Layers::new(&|_| None, ClientFile::default());
    let (bytes, seconds) =
        (flags.parsed("bytes", &args.bytes, values::amount)?, flags.parsed("seconds", &args.seconds, values::seconds)?);
    let ways = flags.parsed("direction", &args.direction, ways)?.unwrap_or(vec![Way::Push, Way::Pull]);
    let transports = layers.parsed("transport", &args.transport, transports)?.unwrap_or(vec![Transport::Tcp]);
    let protections = layers.parsed("protect", &args.protect, protections)?.unwrap_or(vec![Protection::Private]);
    let lanes = layers.parsed("lanes", &args.lanes, lanes)?.unwrap_or(vec![None]);
    let rates = layers.parsed("rate", &args.rate, rates)?.unwrap_or(vec![None]);
    let share = layers.parsed("share", &args.sending.share, values::share)?.unwrap_or_default();
    let mut cases = Vec::new();
    for &way in &ways {
        for &transport in &transports {
            // Only the combinations that exist.
            for &protect in protections.iter().filter(|&&protect| exists(transport, protect)) {
                for &lanes in &lanes {
                    cases.extend(rates.iter().map(|&rate| NetCase { way, transport, protect, lanes, rate }));
                }
            }
        }
    }
    if cases.is_empty() {
        let first = transports.first().copied().unwrap_or_default();
        encrypted(first, Some(Protection::Safe))?;
    }
    if cases.len() > CASES_MAX {
        let why = "these lists make more than 256 runs";
        return Err(Error::Combination { why, hint: "measure fewer combinations at a time" });
    }
    Ok(NetBench {
        cases,
        bytes,
        // An amount that is given decides alone, unless a time is given too.
        time: seconds.or(bytes.is_none().then_some(TIME_DEFAULT)),
        engine: Settings { share, ..common(&args.buffers, &args.sending.congestion, layers)? },
        keys: keys(&args.keys, layers)?,
    })
}

/// The stages of a transfer within this process.
#[derive(Debug)]
pub struct MatrixBench {
    /// The directory in which files are made.
    pub dir: PathBuf,
    /// The length of each file.
    pub bytes: ByteCount,
    /// Runs of each cell.
    pub rounds: u32,
    /// The settings that all runs share.
    pub engine: Settings,
}

/// Merges and types all options of `bench matrix`.
///
/// # Errors
/// The first option that cannot be used.
pub fn matrix_bench(args: &BenchMatrixArgs, layers: &Layers) -> Result<MatrixBench, Error> {
    let flags = Layers::new(&|_| None, ClientFile::default());
    let common = common(&args.buffers, &None, layers)?;
    let (depth, io, engine) = devices(&args.devices, layers)?;
    let pin = layers.parsed("pin", &args.devices.pin, values::pin)?.unwrap_or_default();
    Ok(MatrixBench {
        dir: args.dir.as_ref().map_or_else(|| PathBuf::from("."), PathBuf::from),
        bytes: flags.parsed("bytes", &args.bytes, values::file_size)?.unwrap_or(FILE_DEFAULT),
        rounds: flags.parsed("rounds", &args.rounds, values::rounds)?.unwrap_or(ROUNDS_DEFAULT),
        engine: Settings {
            lanes: layers.parsed("lanes", &args.lanes, values::lanes)?.flatten(),
            // Two halves share one process's memory; here each stands for a process of its own.
            memory: ByteCount(common.memory.get().saturating_mul(2)),
            depth,
            io,
            engine,
            pin,
            ..common
        },
    })
}

/// The settings that every measurement shares with every transfer.
fn common(args: &BufferOptions, congestion: &Option<OsString>, layers: &Layers) -> Result<Settings, Error> {
    let (chunk, memory) = buffers(args, layers)?;
    let congestion = layers.parsed("congestion", congestion, values::congestion)?.unwrap_or(Congestion::Auto);
    Ok(Settings { congestion, chunk, memory, retry_for: Duration::ZERO, ..Settings::default() })
}

fn exists(transport: Transport, protect: Protection) -> bool {
    !matches!(transport, Transport::Quic | Transport::Udp) || protect == Protection::Private
}

fn ways(text: &str) -> Result<Vec<Way>, Flaw> {
    match text {
        "push" => Ok(vec![Way::Push]),
        "pull" => Ok(vec![Way::Pull]),
        "both" => Ok(vec![Way::Push, Way::Pull]),
        _ => Err(values::unknown(text, "push, pull, both")),
    }
}

fn transports(text: &str) -> Result<Vec<Transport>, Flaw> {
    values::list(text, values::transport)
}

fn protections(text: &str) -> Result<Vec<Protection>, Flaw> {
    values::list(text, values::protect)
}

fn lanes(text: &str) -> Result<Vec<Option<u32>>, Flaw> {
    values::list(text, values::lanes)
}

fn rates(text: &str) -> Result<Vec<Option<u64>>, Flaw> {
    values::list(text, |text| if text == "none" { Ok(None) } else { values::rate(text).map(Some) })
}

/// The default time of a run: long enough for lanes to have found their number on a path of 100 ms.
const TIME_DEFAULT: Duration = Duration::from_secs(10);
/// The default length of a file: a second or two of a fast disk.
const FILE_DEFAULT: ByteCount = ByteCount(1 << 30);
const ROUNDS_DEFAULT: u32 = 3;
/// The most runs: at ten seconds each they take three quarters of an hour.
const CASES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use clap::Parser;
    use longhaul_core::Fault;

    use super::*;
    use crate::cli::{BenchVerb, Cli, Verb};

    fn merged(args: &[&str], variable: Option<&str>) -> Result<NetBench, Fault> {
        let line = ["longhaul", "bench", "net"].iter().chain(args).chain(&["lh://h"]);
        let Verb::Bench(BenchVerb::Net(args)) = Cli::try_parse_from(line).unwrap().command else { panic!("not net") };
        let environment = |name: &str| variable.filter(|_| name == "LONGHAUL_LANES").map(OsString::from);
        Ok(net_bench(&args, &Layers::new(&environment, ClientFile::default()))?)
    }

    #[test]
    fn lists_make_a_case_for_each_combination() {
        let bench = merged(&["--direction", "push", "--lanes", "1,auto", "--rate", "none,8Mbit/s"], None).unwrap();
        let case = |lanes, rate| NetCase {
            way: Way::Push,
            transport: Transport::Tcp,
            protect: Protection::Private,
            lanes,
            rate,
        };
        let (one, rate) = (Some(1), Some(1_000_000));
        assert_eq!(bench.cases, [case(one, None), case(one, rate), case(None, None), case(None, rate)]);
        let settings = bench.cases[1].settings(&bench.engine);
        assert_eq!((settings.lanes, settings.rate), (one, rate));
        assert_eq!(settings.protect, Some(Protection::Private));
    }

    #[test]
    fn of_the_combinations_those_that_there_are_become_cases() {
        let bench =
            merged(&["--direction", "push", "--transport", "tcp,quic,udp", "--protect", "private,safe"], None).unwrap();
        let cases: Vec<_> = bench.cases.iter().map(|case| (case.transport, case.protect)).collect();
        let (tcp, quic, udp) = (Transport::Tcp, Transport::Quic, Transport::Udp);
        let (private, safe) = (Protection::Private, Protection::Safe);
        assert_eq!(cases, [(tcp, private), (tcp, safe), (quic, private), (udp, private)]);
    }

    #[test]
    fn ten_seconds_each_way_unless_it_is_said_how_much() {
        let limits = |args: &[&str]| {
            let bench = merged(args, None).unwrap();
            (bench.cases.len(), bench.bytes, bench.time.map(|time| time.as_secs()))
        };
        assert_eq!(limits(&[]), (2, None, Some(10)));
        assert_eq!(limits(&["--bytes", "1G"]), (2, Some(ByteCount(1 << 30)), None));
        assert_eq!(limits(&["--bytes", "1G", "--seconds", "3"]), (2, Some(ByteCount(1 << 30)), Some(3)));
    }

    #[test]
    fn what_a_transfer_would_do_is_what_is_measured() {
        assert_eq!(merged(&[], Some("6")).unwrap().cases[0].lanes, Some(6));
        assert_eq!(merged(&["--lanes", "auto"], Some("6")).unwrap().cases[0].lanes, None);
    }

    #[test]
    fn what_cannot_be_measured_is_a_usage_error() {
        for (args, start) in [
            (&["--direction", "up"][..], "--direction: 'up' is not one of push, pull, both"),
            (&["--transport", "tcp,sctp"], "--transport: 'sctp' is not one of auto, tcp, quic, udp"),
            (&["--transport", "udp", "--protect", "safe"], "lanes over UDP are always encrypted"),
            (&["--transport", "quic", "--protect", "safe"], "lanes over QUIC are always encrypted"),
            (&["--lanes", "1,129"], "--lanes: '129' is not a whole number from 1 to 128"),
            (&["--rate", "1Gbit"], "--rate: "),
            (&["--seconds", "0"], "--seconds: '0' is not a whole number from 1 to 3600"),
            (&["--bytes", "1K"], "--bytes: '1K' is not a size of at least 1MiB"),
            (
                &[
                    "--lanes",
                    "1,2,3,4,5,6,7,8,9,10,11,12",
                    "--rate",
                    "1MB/s,2MB/s,3MB/s,4MB/s,5MB/s,6MB/s,7MB/s,8MB/s,9MB/s,10MB/s,11MB/s",
                ],
                "these lists make more than 256 runs",
            ),
        ] {
            let fault = merged(args, None).unwrap_err();
            assert!(fault.message.starts_with(start), "{} / {start}", fault.message);
            assert_eq!(fault.code, longhaul_core::FaultCode::Usage, "{start}");
        }
    }
}
