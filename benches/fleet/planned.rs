//! A campaign of very many files is planned: no file is on any disk, a generator stands in for the
//! scan, and feeds the same draft of a manifest.
//!
//! Takes the manifest's draft and the planner; gives memory, bytes and times. Must not know movers.

use std::fs;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use longhaul::jobs::plan::plan_shards;
use longhaul::jobs::{CampaignPlace, CampaignSource, CampaignSpec, ShardBounds};
use longhaul_core::{Mtime, RelPath};
use longhaul_engine::Settings;
use longhaul_jobs::left::left;
use longhaul_jobs::queue::{NewCampaign, add_campaign};
use longhaul_jobs::{Campaign, Store};
use longhaul_jobs_postgres::{Passwords, Place, PostgresStore};
use longhaul_jobs_sqlite::SqliteStore;
use longhaul_manifest::{Draft, Item, ItemKind, Lists, Sealed, Sums};
use serde::Serialize;

use crate::kit::{Bench, Longhaul, median, run as run_command, table};
use crate::postgres::Postgres;

/// Files of a directory of the dataset that is made up.
const FILES_OF_DIR: u64 = 1000;
/// Looks at what is left, of which the middle one is told.
const LOOKS: usize = 21;

/// The figures of a queue.
#[derive(Serialize)]
struct Planned {
    queue: &'static str,
    files: u64,
    shards: u64,
    scan_s: f64,
    cut_s: f64,
    peak_bytes: u64,
    manifest_bytes: u64,
    queue_bytes: u64,
    left_ms: f64,
    command_ms: f64,
}

/// The figures of the manifest, which both queues share.
struct Scanned {
    sealed: Sealed,
    seconds: f64,
    bytes: u64,
}

/// Plans it for a queue of each kind.
pub(crate) fn run(bench: &Bench, longhaul: &Longhaul) -> Result<()> {
    let files = bench.options.amount(100_000_000, 1_000_000);
    let dir = bench.scratch.subdir("planned")?;
    forget_peak()?;
    let scanned = scan(&dir.join("manifest"), files)?;
    let server = Postgres::with(&[]);
    let url = server.url("postgres");
    let place = Place::parse(&url)?;
    let mut database = PostgresStore::open_or_make(&place, &Passwords::default())?;
    let size = || -> Result<u64> {
        let sum = "SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c JOIN pg_namespace n
            ON n.oid = c.relnamespace WHERE n.nspname = 'longhaul' AND c.relkind = 'r'";
        Ok(server.sql("postgres", sum).parse()?)
    };
    let in_database = plan(&mut database, &scanned, "PostgreSQL")?;
    let path = dir.join("queue.db");
    fs::write(&path, "")?;
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    let mut file = SqliteStore::open(&path)?;
    let in_file = plan(&mut file, &scanned, "SQLite")?;
    drop(file);
    let rows = [
        Planned { queue_bytes: size()?, command_ms: command(longhaul, &url)?, ..in_database },
        Planned { queue_bytes: bytes_beneath(&path)?, command_ms: command(longhaul, path_text(&path)?)?, ..in_file },
    ];
    for row in &rows {
        bench.recorder.record_cell("plan", row)?;
    }
    print(&rows);
    fs::remove_dir_all(&dir)?;
    Ok(())
}

/// Feeds the draft, as a scan does.
fn scan(out: &Path, files: u64) -> Result<Scanned> {
    let begun = Instant::now();
    let mut draft = Draft::begin(out)?;
    for number in 0..files {
        if number.is_multiple_of(FILES_OF_DIR) {
            draft.add(&Item::dir(RelPath::new(dir_of(number))?))?;
        }
        // Sizes and times that do not compress to nothing.
        let noise = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let path = RelPath::new(format!("{}/event-{number:09}.{:05x}.root", dir_of(number), noise >> 44))?;
        let mtime = Mtime::said(1_700_000_000 + (noise >> 40) as i64, (noise % 1_000_000_000) as u32);
        let kind = ItemKind::File { bytes: Some(noise >> 50) };
        draft.add(&Item { path, kind, mtime: Some(mtime), sums: Sums::default() })?;
    }
    let sealed = draft.seal(Lists::ALL, 0)?;
    Ok(Scanned { sealed, seconds: begun.elapsed().as_secs_f64(), bytes: bytes_beneath(out)? })
}

fn dir_of(number: u64) -> String {
    format!("run-{:07}-detector", number / FILES_OF_DIR)
}

/// Plans a campaign of the manifest, and looks at what is left of it.
fn plan(store: &mut impl Store, scanned: &Scanned, queue: &'static str) -> Result<Planned> {
    let source = CampaignSource { top: CampaignPlace::Here("/from".into()), only: None, onto: RelPath::root() };
    let to = CampaignPlace::Here("/to".into());
    let spec = CampaignSpec::new(vec![source], to, Settings::default(), ShardBounds::default());
    let encoded = spec.encode()?;
    let new = NewCampaign { name: "all".to_owned(), spec: encoded, ..NewCampaign::default() };
    let campaign: Option<Campaign> = store.transact(|rows| {
        let id = add_campaign(rows, &new)?;
        rows.campaign(id)
    })?;
    let campaign = campaign.context("the campaign is there")?;
    let begun = Instant::now();
    let planned = plan_shards(store, &campaign, &spec, (std::slice::from_ref(&scanned.sealed), None), &|| None)?;
    let cut_s = begun.elapsed().as_secs_f64();
    let mut looks = Vec::new();
    for _ in 0..LOOKS {
        let begun = Instant::now();
        let sums = store.transact(|rows| left(rows, campaign.id))?;
        looks.push(begun.elapsed().as_secs_f64() * 1e3);
        anyhow::ensure!(sums.left == planned.total, "{sums:?} is not what was planned");
    }
    Ok(Planned {
        queue,
        files: planned.total.files,
        shards: planned.shards,
        scan_s: scanned.seconds,
        cut_s,
        peak_bytes: peak()?,
        manifest_bytes: scanned.bytes,
        queue_bytes: 0,
        left_ms: median(&looks),
        command_ms: 0.0,
    })
}

/// The time of `job left` as a user runs it, milliseconds.
fn command(longhaul: &Longhaul, queue: &str) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..LOOKS {
        let begun = Instant::now();
        run_command(longhaul.job(queue, "left").arg("all"))?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(median(&times))
}

fn path_text(path: &Path) -> Result<&str> {
    path.to_str().context("a path of text")
}

/// Has the kernel forget the most memory that this process held.
fn forget_peak() -> Result<()> {
    Ok(fs::write("/proc/self/clear_refs", "5")?)
}

fn peak() -> Result<u64> {
    crate::kit::peak_rss(std::process::id())
}

/// The bytes of a file with its companions (as `queue.db-wal`), or of all files of a directory.
fn bytes_beneath(path: &Path) -> Result<u64> {
    let is_dir = path.is_dir();
    let (dir, name) = match is_dir {
        true => (path, std::ffi::OsStr::new("")),
        false => (path.parent().context("a directory")?, path.file_name().context("a name")?),
    };
    let mut sum = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(name.as_encoded_bytes()) && entry.file_type()?.is_file() {
            sum += entry.metadata()?.len();
        }
    }
    Ok(sum)
}

fn print(planned: &[Planned]) {
    let head = [
        "plan",
        "files",
        "shards",
        "scan s",
        "cut s",
        "peak MB",
        "manifest B/file",
        "queue MB",
        "left ms",
        "command ms",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for one in planned {
        rows.push(vec![
            one.queue.to_owned(),
            one.files.to_string(),
            one.shards.to_string(),
            format!("{:.1}", one.scan_s),
            format!("{:.1}", one.cut_s),
            format!("{:.0}", one.peak_bytes as f64 / 1e6),
            format!("{:.1}", one.manifest_bytes as f64 / one.files as f64),
            format!("{:.2}", one.queue_bytes as f64 / 1e6),
            format!("{:.1}", one.left_ms),
            format!("{:.1}", one.command_ms),
        ]);
    }
    print!("{}", table(&rows));
    println!("targets: 200 B a file in manifests, 20 MB in the queue, 50 ms for what is left");
}
