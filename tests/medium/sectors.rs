//! Sectors that take no write: the errors of written-back pages come late, once, and to the first
//! that asks.
//!
//! All files that are told to be committed are on the medium all the same; and once the disk is
//! healed the same command brings the rest, and is not misled by files of the right size and time
//! that hold zeros.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::fixture::device::{BAD_SECTOR, Fault, Kind, Overlay, SectorSize, UPPER, Volume};
use crate::fixture::tree::{self, Tree};
use crate::fixture::{Host, Outcome, files};

use super::{assert_kept, promised, standing};

const FILE_BYTES: usize = 4096;
/// The distance of bad files if the fault lasts: one file in this many has a bad sector.
const LASTING_EVERY: usize = 200;
/// The first bad file if the fault passes: all files from this one on have a bad sector, in the
/// order in which they are sent. They are staged while the batch before them is made durable, and
/// written back with it.
const PASSING_FROM: usize = 1200;
/// The rate of files: two seconds for 4000 of them, a quarter of which makes a batch.
const RATE: &str = "8MB/s";

/// The target of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// The file system itself.
    Volume,
    /// An overlay whose upper directory lies on it.
    Overlay,
}

impl Target {
    /// The number of files that are sent. An overlay has each of them synced by itself, which takes
    /// the disk many writes.
    fn files(self) -> usize {
        if self == Target::Overlay { 1000 } else { 4000 }
    }

    /// The time that each write takes the disk: on the volume batches must meet.
    fn write_delay(self) -> Duration {
        Duration::from_millis(if self == Target::Overlay { 0 } else { 2 })
    }
}

/// Makes files, some of which begin with bytes that the disk does not take.
fn make_source(top: &Path, files: usize, fault: Fault) {
    for n in 0..files {
        files::make(top.join(format!("{:02}/{n:04}", n / 500)), n as u64, FILE_BYTES);
    }
    for (n, path) in in_order(top).iter().flat_map(|dir| in_order(dir)).enumerate() {
        let is_bad = match fault {
            Fault::Lasting => n % LASTING_EVERY == LASTING_EVERY / 2,
            Fault::Passing => n >= PASSING_FROM,
        };
        if is_bad {
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[..BAD_SECTOR.len()].copy_from_slice(BAD_SECTOR);
            std::fs::write(path, bytes).unwrap();
        }
    }
}

/// The entries of a directory, as the file system lists them: the order in which they are sent.
fn in_order(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Pushes the source to the target, and forgets the cache.
fn push(client: &Host, volume: &Volume, engine: &str, target: Target) -> Outcome {
    let overlay = (target == Target::Overlay).then(|| Overlay::new(volume.path()));
    let top = overlay.as_ref().map_or(volume.path(), Overlay::path);
    let dest = format!("{}/dst/", top.display());
    let outcome = client.run(["push", "--json", "--engine", engine, "--rate", RATE, "src/", &dest]).finish();
    overlay.into_iter().for_each(Overlay::close);
    volume.reopen();
    outcome
}

/// Pushes to a disk with bad sectors, and once more when it is healed.
fn endure(kind: Kind, target: Target, fault: Fault, engine: &str) {
    let client = Host::new();
    make_source(&client.path("src"), target.files(), fault);
    let source = Tree::of(client.path("src"));
    let volume = Volume::new(kind, SectorSize::Page);
    let dest = volume.path().join(if target == Target::Overlay { UPPER } else { "" }).join("dst");
    volume.disk().spoil(fault, target.write_delay());
    let outcome = push(&client, &volume, engine, target);
    let context =
        format!("{kind:?}, {target:?}, {fault:?}, engine {engine}, exit {}: {}", outcome.code, outcome.stderr);
    assert!(volume.disk().failed_writes() > 0, "no bad sector was met: {context}");
    assert_kept(&source, &standing(&dest), &promised(&outcome), &context);
    assert_ne!(outcome.code, 0, "{context}: {outcome}");
    let outcome = push(&client, &volume, engine, target);
    assert_eq!(outcome.code, 0, "healed, {context}: {outcome}");
    tree::assert_same(&source, &Tree::of(&dest), format!("healed, {context}"));
    assert_eq!(tree::leftovers(volume.path()), [""; 0], "healed, {context}");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn bad_sectors_fail_the_files_that_they_hit() {
    endure(Kind::Ext4, Target::Volume, Fault::Lasting, "auto");
    endure(Kind::Xfs, Target::Volume, Fault::Lasting, "threads");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn bad_sectors_of_ext4_that_pass_fail_the_files_that_they_hit_and_not_those_of_another_batch() {
    endure(Kind::Ext4, Target::Volume, Fault::Passing, "threads");
    endure(Kind::Ext4, Target::Volume, Fault::Passing, "auto");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn bad_sectors_of_xfs_that_pass_fail_the_files_that_they_hit_and_not_those_of_another_batch() {
    endure(Kind::Xfs, Target::Volume, Fault::Passing, "threads");
    endure(Kind::Xfs, Target::Volume, Fault::Passing, "auto");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn bad_sectors_beneath_an_overlay_fail_the_files_that_they_hit() {
    endure(Kind::Ext4, Target::Overlay, Fault::Lasting, "threads");
    endure(Kind::Xfs, Target::Overlay, Fault::Lasting, "auto");
}
