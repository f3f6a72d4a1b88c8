//! Measures manifests of made-up datasets: `scale write|plain|read|diff|sort DIR ITEMS`.
//!
//! In: a directory for what is written, and the number of items. Out: a line with the time, the
//! bytes of an item on disk and the largest memory of the process; run each step as a process of
//! its own. The figures of docs/MANIFEST.md come from here.

#![allow(clippy::disallowed_methods, reason = "a measurement handles files of its own")]

use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

use longhaul_core::{Mtime, RelPath};
use longhaul_manifest::{Algorithm, Draft, Item, ItemKind, Lists, Sealed, Sorter, Sums, diff};

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [step, dir, items] = words.as_slice() else { return Err("scale write|plain|read|diff|sort DIR ITEMS".into()) };
    let (dir, items) = (Path::new(dir), items.parse()?);
    let begun = Instant::now();
    match step.as_str() {
        "write" => write(dir, (0..items).map(|number| item(number, Digests::Known)))?,
        "plain" => write(dir, (0..items).map(|number| item(number, Digests::Unknown)))?,
        "read" => read(dir)?,
        "diff" => compare(dir)?,
        "sort" => sort(dir, items)?,
        _ => return Err("no such step".into()),
    }
    let seconds = begun.elapsed().as_secs_f64();
    let bytes: u64 = std::fs::read_dir(dir)?.map(|name| Ok(name?.metadata()?.len())).sum::<Outcome<u64>>()?;
    let each = bytes as f64 / items as f64;
    println!(
        "{step}: {seconds:.1} s, {:.0} items/s, {each:.1} bytes an item, peak {}",
        items as f64 / seconds,
        peak()?
    );
    Ok(())
}

/// Whether files have a BLAKE3.
#[derive(Clone, Copy)]
enum Digests {
    Known,
    Unknown,
}

fn write(dir: &Path, items: impl Iterator<Item = Outcome<Item>>) -> Outcome<()> {
    let mut draft = Draft::begin(dir)?;
    for item in items {
        draft.add(&item?)?;
    }
    draft.seal(Lists::ALL, 0)?;
    Ok(())
}

fn read(dir: &Path) -> Outcome<()> {
    let sealed = Sealed::open(dir)?;
    let mut count = 0;
    for item in sealed.items() {
        count += u64::from(item?.is_file());
    }
    assert_eq!(count, sealed.head().files());
    Ok(())
}

fn compare(dir: &Path) -> Outcome<()> {
    let (one, other) = (Sealed::open(dir)?, Sealed::open(dir)?);
    let mut count = 0u64;
    diff(one.items(), other.items(), Lists::ALL, |_, _| {
        count += 1;
        ControlFlow::Continue(())
    })?;
    assert_eq!(count, one.head().items());
    Ok(())
}

fn sort(dir: &Path, items: u64) -> Outcome<()> {
    let draft = Draft::begin(dir)?;
    let mut sorter = Sorter::new(dir, SORT_BYTES);
    for number in 0..items {
        sorter.add(item(number * STRIDE % items, Digests::Known)?)?;
    }
    drop(draft);
    write(dir, sorter.finish()?.map(|item| Ok(item?)))
}

/// A file of a climate archive: thousands in a directory, lengths and times of no order.
fn item(number: u64, digests: Digests) -> Outcome<Item> {
    let (model, member, file) = (number / 200_000, number / 2_000 % 100, number % 2_000);
    let path = format!("CMIP6/model-{model:04}/r{member:03}i1p1f1/Amon/tas/gn/v20190815/tas_Amon_{file:08}.nc");
    let digest = blake3::hash(&number.to_le_bytes());
    let [a, b, c, d, e, f, ..] = *digest.as_bytes();
    let bytes = Some(u64::from(u32::from_le_bytes([a, b, c, d])));
    let mtime =
        Some(Mtime::said(1_700_000_000 + i64::from(e) * 86_400, u32::from_le_bytes([f, e, d, c]) % 1_000_000_000));
    let sums = match digests {
        Digests::Known => Sums::one(Algorithm::Blake3, digest.as_bytes()).unwrap_or_default(),
        Digests::Unknown => Sums::default(),
    };
    Ok(Item { path: RelPath::new(path)?, kind: ItemKind::File { bytes }, mtime, sums })
}

/// The largest memory of this process so far.
fn peak() -> Outcome<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    Ok(line.unwrap_or("unknown").trim().to_owned())
}

/// The memory of the sort, as the program gives it.
const SORT_BYTES: usize = 128 << 20;
/// A prime: its multiples visit each number once, far from the one before.
const STRIDE: u64 = 7_368_787;
