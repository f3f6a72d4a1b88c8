//! Power that is cut at random moments of a push, again and again, while the disk holds writes in a
//! volatile cache.
//!
//! After every cut, as the medium has it: each final name is absent or has exactly the content of
//! the source; all files that were told to be committed stand, and all bytes that were told to be
//! durable stand or are journalled. Then the same command completes, whatever the next cut does to
//! it. `CUTS` sets the number of cuts of each file system, `CUTS_SEED` their moments.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::fixture::device::{Kind, SectorSize, Volume};
use crate::fixture::tree::{self, Tree};
use crate::fixture::{Host, Outcome, Random, Run, files, random};
use crate::kills::kept::kept;
use crate::kills::told_durable;

use super::vouched::assert_vouched;
use super::{assert_kept, assert_nothing_torn, promised, standing};

/// A source, and a disk whose power is cut while it is pushed there.
struct Outage {
    client: Host,
    source: Tree,
    volume: Volume,
    random: Random,
    mode: [&'static str; 4],
    /// The files that runs have told to stand, since the destination was empty.
    promised: BTreeSet<String>,
    cuts: u64,
}

impl Outage {
    fn new(kind: Kind, mode: [&'static str; 4], seed: u64) -> Outage {
        let client = Host::new();
        make_source(&client.path("src"));
        let source = Tree::of(client.path("src"));
        // XFS takes a block of metadata for as new as its header says, so that one of several
        // sectors that is torn can keep it from being mounted. ext4 and btrfs bear that.
        let sector = if kind == Kind::Xfs { SectorSize::Page } else { SectorSize::Small };
        let volume = Volume::new(kind, sector);
        Outage { client, source, volume, random: Random(seed), mode, promised: BTreeSet::new(), cuts: 0 }
    }

    fn dest(&self) -> PathBuf {
        self.volume.path().join("dst")
    }

    /// The command: the same one each time.
    fn run(&self) -> Run {
        let dest = format!("{}/", self.dest().display());
        let run = self.client.run(["push", "--json", "--chunk-size", "1MiB", "src/", &dest]);
        run.args(self.mode).args(["--sync-interval", "100ms"])
    }

    /// Cuts the power of the disk, and gives it back with the content that the medium kept.
    fn cut(&mut self) {
        let percent = *self.random.one_of(&[0, 30, 50, 90, 100]);
        self.cuts += 1;
        self.volume.disk().cut(percent, &mut self.random);
    }

    /// Runs the command until a moment at which the power is cut, or a little after its end.
    /// Returns true if it had ended well.
    fn run_and_cut(&mut self) -> bool {
        let rate = *self.random.one_of(&["12MB/s", "20MB/s", "40MB/s"]);
        let longest = *self.random.one_of(&[100, 300, 800, 1600]);
        let life = Duration::from_millis(self.random.below(longest));
        let running = self.run().args(["--rate", rate]).start();
        running.wait_type("start");
        running.ended_within(life);
        self.cut();
        let outcome = running.finish();
        let moment = format!("{:?}, cut {} after {life:?}", self.mode, self.cuts);
        assert!(outcome.code != 101 && !outcome.stderr.contains("panicked"), "{moment}: {outcome}");
        self.promised.extend(promised(&outcome));
        self.volume.reopen();
        let (stands, context) = (standing(&self.dest()), format!("{moment}: {}", outcome.stderr));
        assert_nothing_torn(&self.source, &stands, &context);
        assert_kept(&self.source, &stands, &self.promised, &context);
        assert_vouched(&self.source, &self.dest(), &context);
        let (kept, told) = (kept(&self.client.path("src"), &self.dest()), told_durable(&outcome));
        assert!(kept.total() >= told, "{told} bytes were told to be durable, {kept:?} are: {context}");
        eprintln!("{moment}: {told} bytes told, {kept:?}");
        outcome.code == 0
    }

    /// Runs the command to its end, which is a good one; its files outlive a cut right after it.
    /// Then begins anew.
    fn complete(&mut self) {
        let outcome = self.finish();
        let context = format!("{:?}, after cut {}: {}", self.mode, self.cuts, outcome.stderr);
        tree::assert_same(&self.source, &Tree::of(self.dest()), &context);
        self.cut();
        self.volume.reopen();
        tree::assert_same(&self.source.clone().beneath(), &standing(&self.dest()).beneath(), &context);
        // The removal of a journal that is not needed any more is not synced: if it comes back, the
        // next run removes it again.
        let again = self.finish();
        assert_eq!(again.counts().0, 0, "{context}, and again: {again}");
        std::fs::remove_dir_all(self.dest()).unwrap();
        rustix::fs::syncfs(std::fs::File::open(self.volume.path()).unwrap()).unwrap();
        self.promised.clear();
    }

    /// Runs the command to its end, which is a good one, with nothing of ours left.
    fn finish(&self) -> Outcome {
        let outcome = self.run().finish();
        assert_eq!(outcome.code, 0, "{:?}, after cut {}: {outcome}", self.mode, self.cuts);
        let left = tree::leftovers(self.volume.path());
        assert_eq!(left, [""; 0], "{:?}, after cut {}: {outcome}", self.mode, self.cuts);
        outcome
    }
}

/// Makes some large files, some of a few chunks, many small ones in directories, and links.
fn make_source(top: &Path) {
    let mut random = Random(7);
    let small = (0..600).map(|n| (format!("many/{}/{}/{n}", n % 9, n % 3), 1 + random.below(9000)));
    let middle = (0..6).map(|n| (format!("middle-{n}"), 270_000 + n * 230_000));
    let large = (0..3).map(|n| (format!("large-{n}"), 5_000_000 + n * 1_900_000));
    let all: Vec<(String, u64)> = small.chain(middle).chain(large).collect();
    for (n, (name, len)) in all.into_iter().enumerate() {
        files::make(top.join(name), n as u64, len as usize);
    }
    (0..12).for_each(|n| files::link(format!("{n}"), top.join(format!("many/link-{n}"))));
}

const AUTO: [&str; 4] = ["--engine", "auto", "--io", "auto"];
const THREADS: [&str; 4] = ["--engine", "threads", "--io", "auto"];
/// Options for buffered I/O: unsynced data is in the page cache alone, and no flush of another file
/// takes it along.
const BUFFERED: [&str; 4] = ["--engine", "threads", "--io", "buffered"];

/// Plays `cuts` cuts, and in the end the command without any.
fn survive(kind: Kind, mode: [&'static str; 4], cuts: u64) {
    if !kind.is_there() {
        return;
    }
    let cuts = random::variable("CUTS").unwrap_or(cuts);
    let seed = random::seed("CUTS_SEED");
    eprintln!("{kind:?}, {mode:?}: {cuts} cuts, CUTS_SEED={seed}");
    let mut outage = Outage::new(kind, mode, seed);
    while outage.cuts < cuts {
        if outage.run_and_cut() || outage.random.below(3) == 0 {
            outage.complete();
        }
    }
    outage.complete();
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn power_cuts_on_ext4_lose_nothing_that_was_committed() {
    survive(Kind::Ext4, AUTO, 8);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn power_cuts_on_xfs_lose_nothing_that_was_committed() {
    survive(Kind::Xfs, AUTO, 4);
    survive(Kind::Xfs, BUFFERED, 4);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn power_cuts_on_btrfs_lose_nothing_that_was_committed() {
    survive(Kind::Btrfs, THREADS, 5);
}
