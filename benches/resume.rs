//! `resume`: the time from the start of a push that continues an interrupted one to its first new
//! byte of payload on a lane: for a file of 1 TiB, journalled except its end, and for a tree of
//! 1,000,000 small files, half of which stand.
//!
//! See docs/BENCHMARKS.md.

#![allow(clippy::disallowed_methods, reason = "benches set up and count their own scratch files")]

mod kit;
#[path = "resume/relay.rs"]
mod relay;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use kit::{Bench, Longhaul, Options, Running, make_cold, median, table};
use longhaul_core::{ChunkIndex, ChunkMap, ChunkSize, Mtime, RelPath, SessionTag, SourceStamp, TempName};
use longhaul_proto::journal::{FileRecord, JournalId, Opened, Record, Run, Writer};
use relay::Relay;
use rustix::process::Signal;
use serde::Serialize;

/// One start.
#[derive(Serialize)]
struct Start {
    what: &'static str,
    caches: &'static str,
    round: usize,
    seconds: f64,
}

/// A partial to continue.
struct Case<'a> {
    what: &'static str,
    source: &'a Path,
    target: &'a Path,
    /// The first new payload is of this chunk, or this entry, or of a later one.
    from: u64,
    /// Lays down the partial that is to be continued.
    prepare: &'a dyn Fn() -> Result<()>,
}

fn main() -> Result<()> {
    let Some(options) = Options::parse() else { return Ok(()) };
    let bench = Bench::start("resume", env!("CARGO_TARGET_TMPDIR"), options)?;
    let longhaul = bench.longhaul(env!("CARGO_BIN_EXE_longhaul"))?;
    let mut starts = Vec::new();

    let bytes = bench.options.amount(1 << 40, 1 << 36);
    let (source, target) = (large(&bench, bytes)?, bench.scratch.subdir("target")?);
    let map = ChunkMap::new(bytes, ChunkSize::DEFAULT);
    let from = map.chunks() - MISSING_CHUNKS;
    let prepare = || journal(&longhaul, &source, &target, map, from);
    run(
        &bench,
        &longhaul,
        &Case { what: LARGE, source: &source, target: &target, from, prepare: &prepare },
        &mut starts,
    )?;

    let files = bench.options.amount(1_000_000, 20_000);
    let tree = bench.scratch.tree("tree", files, bench.options.amount(1000, 200), 4)?.path;
    let half = bench.scratch.subdir("half")?;
    copy_half(&tree, &half.join("tree"))?;
    let prepare = || Ok(());
    run(
        &bench,
        &longhaul,
        &Case { what: SMALL, source: &tree, target: &half, from: files / 2, prepare: &prepare },
        &mut starts,
    )?;

    println!("{} chunks journalled of a file of {bytes} bytes; half of {files} files", from);
    print(&starts);
    bench.finish();
    Ok(())
}

fn print(starts: &[Start]) {
    let mut rows = vec![["", "caches", "median s", "all s", "target s"].map(str::to_owned).to_vec()];
    for (what, target) in [(LARGE, "2"), (SMALL, "20")] {
        for caches in CACHES {
            let of = starts.iter().filter(|start| (start.what, start.caches) == (what, caches));
            let seconds: Vec<f64> = of.map(|start| start.seconds).collect();
            let all = seconds.iter().map(|s| format!("{s:.2}")).collect::<Vec<_>>().join(" ");
            rows.push(vec![what.into(), caches.into(), format!("{:.2}", median(&seconds)), all, target.into()]);
        }
    }
    print!("{}", table(&rows));
}

fn run(bench: &Bench, longhaul: &Longhaul, case: &Case<'_>, starts: &mut Vec<Start>) -> Result<()> {
    for round in 0..bench.options.rounds() {
        for caches in CACHES {
            (case.prepare)()?;
            if caches == "cold" {
                // Drops all names and inodes there are; pages of the data itself are hardly read.
                make_cold(&bench.scratch.subdir("nothing")?)?;
                fs::remove_dir(bench.scratch.path().join("nothing"))?;
            }
            let seconds = start(longhaul, case)?;
            eprintln!("  {}, {caches}: {seconds:.3} s", case.what);
            starts.push(Start { what: case.what, caches, round, seconds });
            bench.recorder.record(starts.last().context("just pushed")?)?;
        }
    }
    Ok(())
}

/// One push, until its first payload; that never arrives, so the target stays as it is.
fn start(longhaul: &Longhaul, case: &Case<'_>) -> Result<f64> {
    let daemon = longhaul.serve(case.target)?;
    let relay = Relay::start(daemon.addr())?;
    kit::run(&mut longhaul.warm_up().context("a program")?)?;
    let mut push = longhaul.push_to(&daemon, &relay.addr.to_string(), "safe", case.source, "");
    let begun = Instant::now();
    let client = Running::start(&mut push)?;
    let first = relay.first();
    client.signal(Signal::KILL)?;
    let ran = client.wait()?;
    let first = first.with_context(|| ran.err.clone())?;
    ensure!(first.number >= case.from, "it began at {} and not at {}: nothing was resumed", first.number, case.from);
    Ok((first.at - begun).as_secs_f64())
}

/// A sparse file that has data at its end only.
fn large(bench: &Bench, bytes: u64) -> Result<PathBuf> {
    let path = bench.scratch.hole("large", bytes)?;
    let file = File::options().write(true).open(&path)?;
    let tail = vec![7; usize::try_from(MISSING_CHUNKS * ChunkSize::DEFAULT.bytes())?];
    file.write_all_at(&tail, bytes - tail.len() as u64)?;
    file.sync_all()?;
    Ok(path)
}

/// Lays down the journal of a session that had all but the end of a file. Its digests are made up:
/// they are believed for an unchanged source, unless they are to be read back.
fn journal(longhaul: &Longhaul, source: &Path, target: &Path, map: ChunkMap, held: u64) -> Result<()> {
    let meta = fs::metadata(source)?;
    let time = |secs, nanos: i64| Ok::<_, anyhow::Error>(Mtime { secs, nanos: u32::try_from(nanos)? });
    let stamp = SourceStamp {
        len: meta.len(),
        mtime: time(meta.mtime(), meta.mtime_nsec())?,
        ctime: time(meta.ctime(), meta.ctime_nsec())?,
        dev: meta.dev(),
        ino: meta.ino(),
    };
    let tag = SessionTag([1; 8]);
    let temp = TempName::new(tag, [2; 8]);
    let opened = Opened {
        principal: format!("key:{}", longhaul.client_key()),
        owner: "client 'bench'".to_owned(),
        generation: 1,
        ..Opened::default()
    };
    let digests = (0..held).map(|index| *blake3::hash(&index.to_le_bytes()).as_bytes()).collect();
    let path = RelPath::new("large")?;
    let mut bytes = Vec::new();
    let mut writer = Writer::begin(JournalId([3; 16]), &mut bytes);
    for record in [
        Record::Opened(opened),
        Record::File(FileRecord { number: 0, path, map, source: stamp, sparse: true, temp }),
        Record::Chunks { number: 0, runs: vec![Run { start: ChunkIndex(0), digests }] },
    ] {
        writer.record(&record, &mut bytes);
    }
    let shelf = target.join(".longhaul");
    if shelf.exists() {
        fs::remove_dir_all(&shelf)?;
    }
    fs::create_dir(&shelf)?;
    fs::write(shelf.join(format!("{tag}.journal")), bytes)?;
    Ok(File::create(target.join(temp.to_string()))?.set_len(map.len())?)
}

/// Copies the half of a tree's directories that are read first, so that all of it has to be passed
/// over before the first new file. Times are those of the source: by them the files count as
/// standing.
fn copy_half(tree: &Path, target: &Path) -> Result<()> {
    let dirs = fs::read_dir(tree)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    for dir in &dirs[..dirs.len() / 2] {
        let to = target.join(dir.file_name().context("a name")?);
        fs::create_dir_all(&to)?;
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let mut file = File::create(to.join(entry.file_name()))?;
            file.write_all(&[0; 4])?;
            file.set_modified(entry.metadata()?.modified()?)?;
        }
    }
    Ok(())
}

const LARGE: &str = "large file, journalled";
const SMALL: &str = "small files, half there";
const CACHES: [&str; 2] = ["warm", "cold"];
const MISSING_CHUNKS: u64 = 16;
