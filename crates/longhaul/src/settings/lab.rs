//! The measurements of disks that the options of `bench` ask for.
//!
//! In: unparsed texts; engine and direct I/O have the same layers as for transfers. Out: one struct
//! for each command, to `commands`. Options that only `bench` has are taken from flags alone. It
//! opens nothing.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::thread::available_parallelism;
use std::time::Duration;

use longhaul_core::ByteCount;
use longhaul_core::limits::CHUNK_BYTES_USER_MAX;
use longhaul_engine::lab::{
    Access, FillRun, LabDevices, PileupRun, RandomCase, RandomPlace, RandomRun, SWEEP_DEPTH_MAX, ScanRun, SweepCell,
    SweepRun,
};
use longhaul_engine::{MEMORY_DEFAULT, host_memory};

use super::Layers;
use crate::cli::{BenchDiskArgs, BenchFillArgs, BenchIopsArgs, BenchPileupArgs, BenchScanArgs, LabOptions};
use crate::config::ClientFile;
use crate::error::{Error, Flaw};
use crate::values::{self, PlotPlace};

/// The options of every measurement of a disk.
#[derive(Clone, Debug)]
pub struct LabTalk {
    /// The file that takes a plot. `None`: no plot is drawn.
    pub plot: Option<PlotPlace>,
    /// Engine and direct I/O.
    pub devices: LabDevices,
}

/// Sequential reads and writes.
#[derive(Clone, Debug)]
pub struct DiskBench {
    /// The sweep.
    pub run: SweepRun,
    /// Its cells, those that may not fit among them.
    pub cells: Vec<SweepCell>,
    /// Plot, engine, direct I/O.
    pub lab: LabTalk,
}

/// Random requests.
#[derive(Clone, Debug)]
pub struct IopsBench {
    /// The requests and their place.
    pub run: RandomRun,
    /// One case for each combination.
    pub cases: Vec<RandomCase>,
    /// Plot, engine, direct I/O.
    pub lab: LabTalk,
}

/// Threads that read at random.
#[derive(Clone, Debug)]
pub struct PileupBench {
    /// The files.
    pub run: PileupRun,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Plot, engine, direct I/O.
    pub lab: LabTalk,
}

/// A fill.
#[derive(Clone, Debug)]
pub struct FillBench {
    /// How far.
    pub run: FillRun,
    /// Plot, engine, direct I/O.
    pub lab: LabTalk,
}

/// A scan.
#[derive(Clone, Debug)]
pub struct ScanBench {
    /// The file or device.
    pub run: ScanRun,
    /// Plot, engine, direct I/O.
    pub lab: LabTalk,
}

/// Merges and types all options of `bench disk`.
///
/// # Errors
/// The first option that cannot be used.
pub fn disk_bench(args: &BenchDiskArgs, layers: &Layers) -> Result<DiskBench, Error> {
    let flags = flags();
    let quick = |quick: &[u64], whole: &[u64]| if args.quick { quick.to_vec() } else { whole.to_vec() };
    let chunks = flags.parsed("chunk-size", &args.chunk_size, chunk_sizes)?;
    let chunks = chunks.unwrap_or_else(|| quick(&CHUNKS_QUICK, &CHUNKS));
    let depths = flags.parsed("depth", &args.depth, depths)?;
    let depths = depths.unwrap_or_else(|| quick(&DEPTHS_QUICK, &DEPTHS));
    let accesses = flags.parsed("access", &args.access, accesses)?.unwrap_or(vec![Access::Read, Access::Write]);
    let time = flags.parsed("time", &args.time, lab_time)?;
    let lab = lab(&args.lab, layers)?;
    let run = SweepRun {
        dirs: args.dirs.iter().map(PathBuf::from).collect(),
        bytes: flags.parsed("bytes", &args.bytes, values::file_size)?.unwrap_or(LAB_FILE),
        time: time.unwrap_or(if args.quick { TIME_QUICK } else { TIME_OF_A_CELL }),
        memory: flags.parsed("memory", &args.memory, lab_memory)?.unwrap_or(MEMORY_DEFAULT),
        devices: lab.devices,
    };
    let mut cells = Vec::new();
    for targets in 1..=run.dirs.len() {
        for &access in &accesses {
            // Buffers are made once for each chunk size.
            for &chunk_bytes in &chunks {
                let cell = |&depth: &u64| SweepCell { access, targets, chunk_bytes, depth: depth as usize };
                cells.extend(depths.iter().map(cell));
            }
        }
    }
    Ok(DiskBench { run, cells, lab })
}

/// Merges and types all options of `bench iops`.
///
/// # Errors
/// The first option that cannot be used.
pub fn iops_bench(args: &BenchIopsArgs, layers: &Layers) -> Result<IopsBench, Error> {
    let flags = flags();
    let bytes = flags.parsed("bytes", &args.bytes, values::file_size)?.unwrap_or(LAB_FILE);
    let cores = available_parallelism().map_or(1, |cores| cores.get() as u64);
    let workers = flags.parsed("workers", &args.workers, numbers)?.unwrap_or(vec![WORKERS.min(cores)]);
    let outstanding = flags.parsed("outstanding", &args.outstanding, numbers)?.unwrap_or(vec![OUTSTANDING]);
    let lab = lab(&args.lab, layers)?;
    let run = RandomRun {
        place: place(&args.place, bytes),
        request_bytes: flags.parsed("request", &args.request, request_of_iops)?,
        reads_percent: flags.parsed("reads", &args.reads, share_of_reads)?.unwrap_or(100),
        time: flags.parsed("time", &args.time, lab_time)?.unwrap_or(TIME_OF_A_ROW),
        devices: lab.devices,
    };
    let cases = |workers: &u64| {
        let workers = *workers as usize;
        let case = move |outstanding: &u64| RandomCase { workers, outstanding: *outstanding as usize };
        outstanding.iter().map(case).collect::<Vec<_>>()
    };
    Ok(IopsBench { run, cases: workers.iter().flat_map(cases).collect(), lab })
}

/// Merges and types all options of `bench pileup`.
///
/// # Errors
/// The first option that cannot be used.
pub fn pileup_bench(args: &BenchPileupArgs, layers: &Layers) -> Result<PileupBench, Error> {
    let flags = flags();
    let threads = flags.parsed("threads", &args.threads, numbers)?.unwrap_or(DEPTHS.to_vec());
    let lab = lab(&args.lab, layers)?;
    let run = PileupRun {
        dir: PathBuf::from(&args.dir),
        files: flags.parsed("files", &args.files, number)?.unwrap_or(FILES) as usize,
        bytes: flags.parsed("bytes", &args.bytes, values::file_size)?.unwrap_or(PILEUP_FILE),
        request_bytes: flags.parsed("request", &args.request, request_of_pileup)?.unwrap_or(PILEUP_REQUEST),
        time: flags.parsed("time", &args.time, lab_time)?.unwrap_or(TIME_OF_A_ROW),
        devices: lab.devices,
    };
    Ok(PileupBench { run, threads: threads.into_iter().map(|threads| threads as usize).collect(), lab })
}

/// Merges and types all options of `bench fill`.
///
/// # Errors
/// The first option that cannot be used.
pub fn fill_bench(args: &BenchFillArgs, layers: &Layers) -> Result<FillBench, Error> {
    let flags = flags();
    let lab = lab(&args.lab, layers)?;
    let run = FillRun {
        dir: PathBuf::from(&args.dir),
        to: flags.parsed("to", &args.to, share_to_fill)?.unwrap_or(90) as f64 / 100.0,
        reserve: flags.parsed("reserve", &args.reserve, values::size)?.unwrap_or(FILL_RESERVE),
        devices: lab.devices,
    };
    Ok(FillBench { run, lab })
}

/// Merges and types all options of `bench scan`.
///
/// # Errors
/// The first option that cannot be used.
pub fn scan_bench(args: &BenchScanArgs, layers: &Layers) -> Result<ScanBench, Error> {
    let flags = flags();
    let lab = lab(&args.lab, layers)?;
    let run = ScanRun {
        path: PathBuf::from(&args.path),
        region: flags.parsed("region", &args.region, values::amount)?,
        sample: flags.parsed("sample", &args.sample, values::amount)?,
        devices: lab.devices,
    };
    Ok(ScanBench { run, lab })
}

fn lab(args: &LabOptions, layers: &Layers) -> Result<LabTalk, Error> {
    let direct = layers.parsed("io", &args.io, values::io)?.unwrap_or_default();
    let engine = layers.parsed("engine", &args.engine, values::engine)?.unwrap_or_default();
    let plot = flags().parsed("plot", &args.plot, values::plot)?;
    Ok(LabTalk { plot, devices: LabDevices { direct, engine } })
}

fn flags() -> Layers<'static> {
    Layers::new(&|_| None, ClientFile::default())
}

/// A directory takes a file of `bytes`; anything else is only read, if it is there.
fn place(given: &OsStr, bytes: ByteCount) -> RandomPlace {
    let path = PathBuf::from(OsString::from(given));
    if path.is_dir() { RandomPlace::Directory(path, bytes) } else { RandomPlace::File(path) }
}

fn chunk_sizes(text: &str) -> Result<Vec<u64>, Flaw> {
    let form = "a list of powers of two from 64KiB to 64MiB";
    let allowed = CHUNKS[0]..=CHUNK_BYTES_USER_MAX;
    let sizes = values::list(text, values::size)?.into_iter().map(ByteCount::get).collect::<Vec<_>>();
    let fits = sizes.iter().all(|size| size.is_power_of_two() && allowed.contains(size));
    if fits { Ok(sizes) } else { Err(Flaw::Form { given: text.to_owned(), form }) }
}

fn depths(text: &str) -> Result<Vec<u64>, Flaw> {
    values::list(text, |text| whole(text, SWEEP_DEPTH_MAX as u32))
}

fn numbers(text: &str) -> Result<Vec<u64>, Flaw> {
    values::list(text, number)
}

fn number(text: &str) -> Result<u64, Flaw> {
    whole(text, NUMBER_MAX)
}

fn whole(text: &str, most: u32) -> Result<u64, Flaw> {
    let number = text.parse().ok().filter(|n| (1..=most).contains(n));
    number.map(u64::from).ok_or_else(|| Flaw::Number { given: text.to_owned(), least: 1, most })
}

fn accesses(text: &str) -> Result<Vec<Access>, Flaw> {
    match text {
        "read" => Ok(vec![Access::Read]),
        "write" => Ok(vec![Access::Write]),
        "both" => Ok(vec![Access::Read, Access::Write]),
        _ => Err(values::unknown(text, "read, write, both")),
    }
}

fn request_of_iops(text: &str) -> Result<u64, Flaw> {
    request(text, 512..=8 << 10, "a power of two from 512 to 8KiB")
}

fn request_of_pileup(text: &str) -> Result<u64, Flaw> {
    request(text, 4 << 10..=1 << 20, "a power of two from 4KiB to 1MiB")
}

fn request(text: &str, allowed: std::ops::RangeInclusive<u64>, form: &'static str) -> Result<u64, Flaw> {
    let size = values::size(text)?.get();
    let fits = size.is_power_of_two() && allowed.contains(&size);
    if fits { Ok(size) } else { Err(Flaw::Form { given: text.to_owned(), form }) }
}

fn share_of_reads(text: &str) -> Result<u64, Flaw> {
    percent(text, 0, "a share from 0% to 100%")
}

fn share_to_fill(text: &str) -> Result<u64, Flaw> {
    percent(text, 1, "a share from 1% to 100%")
}

/// Reads whole per cent, with or without their sign.
fn percent(text: &str, least: u64, form: &'static str) -> Result<u64, Flaw> {
    let number = text.strip_suffix('%').unwrap_or(text).trim_end().parse().ok();
    let fits = number.filter(|number| (least..=100).contains(number));
    fits.ok_or_else(|| Flaw::Form { given: text.to_owned(), form })
}

fn lab_time(text: &str) -> Result<Duration, Flaw> {
    values::time_between(text, Duration::from_millis(100)..=Duration::from_secs(3600), "a time from 100ms to 1h")
}

fn lab_memory(text: &str) -> Result<ByteCount, Flaw> {
    let given = values::size(text)?;
    if given > host_memory() {
        return Err(Flaw::MemoryTooLarge { given, most: host_memory() });
    }
    let fits = given.get() >= 4 << 20;
    if fits { Ok(given) } else { Err(Flaw::Form { given: text.to_owned(), form: "a size of at least 4MiB" }) }
}

/// Chunk sizes of a whole sweep: from below the smallest of a transfer to half of its largest.
const CHUNKS: [u64; 10] =
    [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 32 << 20];
const CHUNKS_QUICK: [u64; 3] = [1 << 20, 4 << 20, 16 << 20];
const DEPTHS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];
const DEPTHS_QUICK: [u64; 3] = [1, 4, 16];
/// The file of a measurement: a second of a fast disk.
const LAB_FILE: ByteCount = ByteCount(1 << 30);
const TIME_OF_A_CELL: Duration = Duration::from_secs(2);
const TIME_QUICK: Duration = Duration::from_millis(500);
/// The time of a row of random requests: short bursts of a drive's cache are over by then.
const TIME_OF_A_ROW: Duration = Duration::from_secs(5);
/// Workers and requests that keep a large array of drives busy; each worker needs a core.
const WORKERS: u64 = 14;
const OUTSTANDING: u64 = 38;
const FILES: u64 = 16;
const PILEUP_FILE: ByteCount = ByteCount(64 << 20);
const PILEUP_REQUEST: u64 = 64 << 10;
const FILL_RESERVE: ByteCount = ByteCount(1 << 30);
/// Workers, outstanding requests, threads and files.
const NUMBER_MAX: u32 = 128;

#[cfg(test)]
mod tests {
    use clap::Parser;
    use longhaul_core::Fault;

    use super::*;
    use crate::cli::{BenchVerb, Cli, Verb};

    fn verb(args: &[&str]) -> BenchVerb {
        let line = ["longhaul", "bench"].iter().chain(args);
        let Verb::Bench(verb) = Cli::try_parse_from(line).unwrap().command else { panic!("not bench") };
        verb
    }

    fn flaw(args: &[&str]) -> String {
        let layers = Layers::new(&|_| None, ClientFile::default());
        let outcome = match verb(args) {
            BenchVerb::Disk(args) => disk_bench(&args, &layers).map(|_| ()),
            BenchVerb::Iops(args) => iops_bench(&args, &layers).map(|_| ()),
            BenchVerb::Pileup(args) => pileup_bench(&args, &layers).map(|_| ()),
            BenchVerb::Fill(args) => fill_bench(&args, &layers).map(|_| ()),
            BenchVerb::Scan(args) => scan_bench(&args, &layers).map(|_| ()),
            other => panic!("{other:?}"),
        };
        Fault::from(outcome.expect_err("a flaw")).message.to_string()
    }

    #[test]
    fn a_sweep_has_a_cell_for_each_combination() {
        let layers = Layers::new(&|_| None, ClientFile::default());
        let cells = |args: &[&str]| {
            let BenchVerb::Disk(args) = verb(args) else { panic!("not disk") };
            disk_bench(&args, &layers).unwrap().cells
        };
        assert_eq!(cells(&["disk", "/a"]).len(), 2 * 10 * 7);
        assert_eq!(cells(&["disk", "/a", "/b", "--quick"]).len(), 2 * 2 * 3 * 3);
        let one = cells(&["disk", "/a", "--depth", "5", "--chunk-size", "2MiB", "--access", "write"]);
        assert_eq!(one, [SweepCell { access: Access::Write, targets: 1, chunk_bytes: 2 << 20, depth: 5 }]);
    }

    #[test]
    fn random_requests_use_the_cores_that_there_are() {
        let layers = Layers::new(&|_| None, ClientFile::default());
        let cases = |args: &[&str]| {
            let BenchVerb::Iops(args) = verb(args) else { panic!("not iops") };
            iops_bench(&args, &layers).unwrap().cases
        };
        let [case] = cases(&["iops", "/"])[..] else { panic!("one case") };
        assert!((1..=14).contains(&case.workers) && case.outstanding == 38, "{case:?}");
        let cases = cases(&["iops", "/", "--workers", "1,2", "--outstanding", "4,8"]);
        let told: Vec<_> = cases.iter().map(|case| (case.workers, case.outstanding)).collect();
        assert_eq!(told, [(1, 4), (1, 8), (2, 4), (2, 8)]);
    }

    #[test]
    fn values_outside_of_their_range_are_usage_errors() {
        for (args, start) in [
            (&["disk", "/", "--depth", "65"][..], "--depth: '65' is not a whole number from 1 to 64"),
            (&["disk", "/", "--chunk-size", "3MiB"], "--chunk-size: '3MiB' is not a list of powers of two"),
            (&["disk", "/", "--access", "up"], "--access: 'up' is not one of read, write, both"),
            (&["disk", "/", "--time", "99ms"], "--time: '99ms' is not a time from 100ms to 1h"),
            (&["disk", "/", "--plot", "a.png"], "--plot: 'a.png' is not a file name that ends in .svg or .html"),
            (&["iops", "/", "--reads", "101%"], "--reads: '101%' is not a share from 0% to 100%"),
            (&["iops", "/", "--request", "16KiB"], "--request: '16KiB' is not a power of two from 512 to 8KiB"),
            (&["iops", "/", "--workers", "0"], "--workers: '0' is not a whole number from 1 to 128"),
            (&["pileup", "/", "--files", "129"], "--files: '129' is not a whole number from 1 to 128"),
            (&["fill", "/", "--to", "0%"], "--to: '0%' is not a share from 1% to 100%"),
            (&["scan", "/", "--region", "1K"], "--region: '1K' is not a size of at least 1MiB"),
        ] {
            let message = flaw(args);
            assert!(message.starts_with(start), "{message} / {start}");
        }
    }
}
