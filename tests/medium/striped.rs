//! Power that is cut while striped files are written to a target set on two disks, each with a
//! volatile cache of its own: a flush of one is none of the other.
//!
//! After every cut, as the medium has it: each final name is absent or shows exactly the content of
//! the source through `set export`; all files that were told to be committed stand. Then the same
//! command completes, every chunk is what its record says, and nothing is left but orphans, which
//! `set collect` removes. `CUTS` sets the number of cuts, `CUTS_SEED` their moments.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use crate::fixture::device::{Kind, SectorSize, Volume};
use crate::fixture::tree::{self, Tree};
use crate::fixture::{Host, Random, Run, files, random};

use super::{assert_kept, assert_nothing_torn, promised, standing};

struct Outage {
    client: Host,
    source: Tree,
    volumes: [Volume; 2],
    random: Random,
    promised: BTreeSet<String>,
}

impl Outage {
    fn new(kind: Kind, seed: u64) -> Outage {
        let client = Host::new();
        for n in 0..4 {
            files::make(client.path(format!("src/large-{n}")), n, 5_000_000 + n as usize * 1_900_000);
        }
        for n in 0..40 {
            files::make(client.path(format!("src/small/{n}")), n, 100 * n as usize);
        }
        let source = Tree::of(client.path("src")).beneath();
        let sector = if kind == Kind::Xfs { SectorSize::Page } else { SectorSize::Small };
        let volumes = [(); 2].map(|()| Volume::new(kind, sector));
        let outage = Outage { client, source, volumes, random: Random(seed), promised: BTreeSet::new() };
        outage.targets().iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
        let init = outage.client.run(["set", "init", "--layout", "stripe"]);
        init.args(outage.targets()).succeed();
        outage
    }

    fn targets(&self) -> [PathBuf; 2] {
        [0, 1].map(|n| self.volumes[n].path().join("dir"))
    }

    /// The command: the same one each time.
    fn run(&self) -> Run {
        let targets = self.targets().into_iter().flat_map(|dir| ["--target".into(), dir.into_os_string()]);
        let run = self.client.run(["copy", "--json", "--stripe-from", "2MiB"]).args(targets);
        run.args(["--chunk-size", "1MiB", "--sync-interval", "50ms", "src/", "dst"])
    }

    fn set(&self, verb: &str) -> Run {
        self.client.run(["set", verb]).arg(&self.targets()[1])
    }

    /// The tree that stands in the set, as longhaul reads it.
    fn exported(&self) -> Tree {
        if !self.targets().iter().any(|dir| dir.join("dst").exists()) {
            return Tree::default();
        }
        let run = self.client.run(["set", "export", "--set"]).arg(&self.targets()[0]);
        run.args(["dst/", "back"]).succeed();
        let tree = standing(&self.client.path("back")).beneath();
        std::fs::remove_dir_all(self.client.path("back")).unwrap();
        tree
    }

    /// Runs the command until a moment at which the power is cut. Returns true if it had ended
    /// well.
    fn run_and_cut(&mut self, number: u64) -> bool {
        let rate = *self.random.one_of(&["10MB/s", "20MB/s", "60MB/s"]);
        let longest = *self.random.one_of(&[200, 600, 1500]);
        let life = Duration::from_millis(self.random.below(longest));
        let running = self.run().args(["--rate", rate]).start();
        running.wait_type("start");
        running.ended_within(life);
        let percent = *self.random.one_of(&[0, 30, 50, 90, 100]);
        for volume in &self.volumes {
            volume.disk().cut(percent, &mut self.random);
        }
        let outcome = running.finish();
        let context = format!("cut {number} after {life:?}: {}", outcome.stderr);
        assert!(outcome.code != 101 && !outcome.stderr.contains("panicked"), "{context}");
        self.promised.extend(promised(&outcome));
        self.volumes.iter().for_each(Volume::reopen);
        let stands = self.exported();
        assert_nothing_torn(&self.source, &stands, &context);
        assert_kept(&self.source, &stands, &self.promised, &context);
        outcome.code == 0
    }

    /// Runs the command to its end; then begins anew.
    fn complete(&mut self) {
        let outcome = self.run().succeed();
        tree::assert_same(&self.source, &self.exported(), format!("complete: {outcome}"));
        self.set("verify").succeed();
        self.set("collect").args(["--apply"]).succeed();
        self.set("check").succeed();
        self.targets().iter().for_each(|dir| _ = std::fs::remove_dir_all(dir.join("dst")));
        self.set("collect").args(["--apply"]).succeed();
        for volume in &self.volumes {
            rustix::fs::syncfs(std::fs::File::open(volume.path()).unwrap()).unwrap();
        }
        self.promised.clear();
    }
}

fn survive(kind: Kind, cuts: u64) {
    if !kind.is_there() {
        return;
    }
    let cuts = random::variable("CUTS").unwrap_or(cuts);
    let seed = random::seed("CUTS_SEED");
    eprintln!("{kind:?}: {cuts} cuts, CUTS_SEED={seed}");
    let mut outage = Outage::new(kind, seed);
    for number in 0..cuts {
        if outage.run_and_cut(number) || outage.random.below(3) == 0 {
            outage.complete();
        }
    }
    outage.complete();
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn power_cuts_on_ext4_tear_no_striped_file() {
    survive(Kind::Ext4, 6);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn power_cuts_on_xfs_tear_no_striped_file() {
    survive(Kind::Xfs, 6);
}
