//! Ten movers of one queue, killed at random moments and replaced: of one in PostgreSQL, whose
//! server is killed too, and of one in a file.
//!
//! At each kill: a file that stood before is the same one. At the end: what was published is the
//! source, each file stands or failed, each claim was another one, no fence fell, no shard was
//! settled twice, and no permit is left. `FLEET_FILES` (240) and `FLEET_KILLS` (8) set the length,
//! `FLEET_SEED` the moments. Must not know the rules of the queue.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::queue::FleetQueue;
use super::{Fleet, LAPSE, told};
use crate::fixture::postgres::Postgres;
use crate::fixture::random::{seed, variable};
use crate::fixture::tree::{self, Tree};
use crate::fixture::{Outcome, Random, Running, Site, files};
use crate::jobs::counts;

const MOVERS: usize = 10;
/// Files of a directory.
const FILES_OF_DIR: u64 = 500;
/// One in so many files is gone when its shard is moved.
const GONE_EVERY: u64 = 97;
/// The longest that a mover may take, of which each file adds some.
const PATIENCE: Duration = Duration::from_secs(90);
const PATIENCE_OF_FILE: Duration = Duration::from_millis(20);

/// A fleet whose movers die.
struct Dying<'a> {
    fleet: Fleet<'a>,
    movers: Vec<Running>,
    patience: Duration,
    /// The outcomes of movers that are gone.
    outcomes: Vec<Outcome>,
    top: PathBuf,
    /// The inodes of files that stand.
    stood: BTreeMap<PathBuf, u64>,
    random: Random,
}

impl Dying<'_> {
    fn start_one(&mut self) {
        let run = self.fleet.run(["job", "run", "all", "--drain", "--json"]).within(self.patience);
        self.movers.push(run.start());
    }

    /// Kills one of the movers, and starts another one. A minute passes for what the dead one had,
    /// and at times for all.
    fn kill_one(&mut self, queue: &FleetQueue) {
        let victim = self.random.below(self.movers.len() as u64) as usize;
        let dead = self.movers.swap_remove(victim);
        dead.signal(Signal::KILL);
        let outcome = dead.finish();
        if self.random.below(4) == 0 {
            queue.change(LAPSE);
        } else if let Some((shard, fence)) = held(&outcome) {
            queue.change(&format!(
                "UPDATE shard SET lease_until = 0 WHERE id = {shard} AND fence = {fence} AND state = 2;
                UPDATE permit SET until = 0 WHERE shard = {shard} AND fence = {fence};
                UPDATE leader SET until = 0"
            ));
        }
        self.outcomes.push(outcome);
        self.start_one();
        self.look();
    }

    /// Files that stood are the same ones.
    fn look(&mut self) {
        for dir in fs::read_dir(&self.top).into_iter().flatten().map(Result::unwrap) {
            let Ok(names) = fs::read_dir(dir.path()) else { continue };
            for name in names.map(Result::unwrap).filter(|name| !name.file_name().as_encoded_bytes().starts_with(b"."))
            {
                let (path, inode) = (name.path(), name.ino());
                let before = *self.stood.entry(path.clone()).or_insert(inode);
                assert_eq!(before, inode, "{} was published twice", path.display());
            }
        }
    }
}

/// The shard that a mover had when it died, and the fence of its claim.
fn held(outcome: &Outcome) -> Option<(u64, u64)> {
    let last = told(outcome).pop()?;
    (last["state"] == "claimed").then(|| (last["shard"].as_u64().unwrap(), last["fence"].as_u64().unwrap()))
}

/// Waits until so many shards are settled.
fn wait_until_settled(least: u64, queue: &FleetQueue, patience: Duration) {
    let until = Instant::now() + patience;
    while queue.count("shard WHERE state IN (3, 4)") < least {
        assert!(Instant::now() < until, "{least} shards were never settled");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Makes the source, and gives the files that are to be gone.
fn plant(top: &Path, count: u64) -> Vec<PathBuf> {
    for number in 0..count {
        files::make(top.join(format!("{}/{number}", number / FILES_OF_DIR)), number, 100 + (number % 40) as usize * 97);
    }
    (0..count)
        .step_by(GONE_EVERY as usize)
        .map(|number| top.join(format!("{}/{number}", number / FILES_OF_DIR)))
        .collect()
}

/// Each claim is another one, none was told behind a higher one that had settled its shard, and no
/// shard was settled twice.
fn check_claims(outcomes: &[Outcome], queue: &FleetQueue) {
    let (mut claims, mut settled) = (BTreeSet::new(), BTreeSet::new());
    for event in outcomes.iter().flat_map(told) {
        let (shard, fence) = (event["shard"].as_u64().unwrap(), event["fence"].as_u64().unwrap());
        match event["state"].as_str().unwrap() {
            "claimed" => assert!(claims.insert((shard, fence)), "given out twice: {event}"),
            "done" | "partial" => assert!(settled.insert(shard), "settled twice: {event}"),
            _ => {}
        }
    }
    for row in queue.numbers("SELECT id, fence FROM shard") {
        let (id, fence) = (row[0], row[1]);
        let highest = claims.range((id, 0)..=(id, u64::MAX)).next_back();
        assert!(highest.is_none_or(|(_, given)| *given <= fence), "shard {id}: the fence fell to {fence}");
    }
}

#[test]
fn ten_movers_of_a_database_that_are_killed_again_and_again_move_each_file_once() {
    // It syncs: what it said to be committed has to be there after it was killed.
    play(FleetQueue::Database(Postgres::with(&[])));
}

#[test]
fn ten_movers_of_a_file_that_are_killed_again_and_again_move_each_file_once() {
    let directory = tempfile::tempdir().unwrap();
    play(FleetQueue::File(directory.path().join("queue.db")));
}

fn play(mut queue: FleetQueue) {
    let (total, kills) = (variable("FLEET_FILES").unwrap_or(240), variable("FLEET_KILLS").unwrap_or(8));
    let seed = seed("FLEET_SEED");
    println!("FLEET_FILES={total} FLEET_KILLS={kills} FLEET_SEED={seed}");
    let site = Site::new();
    let host = &site.client;
    let gone = plant(&host.path("ds"), total);
    let fleet = Fleet { host, queue: queue.name() };
    let (files_of_shard, to) = ((total / 60).max(4).to_string(), site.url("in"));
    fleet.run(["job", "add", "--name", "all", "--shard-files", &files_of_shard, "ds", &to]).succeed();
    fleet.run(["job", "plan", "all"]).within(PATIENCE + PATIENCE_OF_FILE * total as u32).succeed();
    gone.iter().for_each(|path| fs::remove_file(path).unwrap());
    queue.change("UPDATE link SET movers = 10");
    let shards = queue.count("shard");

    let mut dying = Dying {
        fleet,
        movers: Vec::new(),
        patience: PATIENCE + PATIENCE_OF_FILE * total as u32,
        outcomes: Vec::new(),
        top: site.root().join("in/ds"),
        stood: BTreeMap::new(),
        random: Random(seed),
    };
    (0..MOVERS).for_each(|_| dying.start_one());
    for kill in 0..kills {
        // All are killed while three of four shards are under way.
        wait_until_settled(kill * shards * 3 / (kills * 4), &queue, dying.patience);
        if kill == kills / 2 {
            queue.kill_server();
        }
        dying.kill_one(&queue);
    }
    let movers = std::mem::take(&mut dying.movers);
    for outcome in movers.into_iter().map(Running::finish) {
        // One that began while the server was away has done nothing.
        let begun = outcome.code != 5 || !queue.has_server() || !told(&outcome).is_empty();
        assert!(!begun || outcome.code == 23, "some files were gone: {outcome}");
        dying.outcomes.push(outcome);
    }
    dying.look();

    let failed = gone.len() as u64;
    assert_eq!(counts(&dying.fleet.left("all")), [total - failed, failed, 0]);
    assert_eq!(queue.count("fault WHERE given_up = 1 AND code = 'not-found'"), failed);
    assert_eq!(queue.count("permit"), 0, "permits are left");
    check_claims(&dying.outcomes, &queue);
    let (from, to) = (Tree::of(host.path("ds")), Tree::of(&dying.top));
    tree::assert_same(&from.without_dir_times(), &to.without_dir_times(), "what was moved");
}
