//! Either end killed at random moments, again and again, while a large file and a tree are under
//! way; each time the same command is run again.
//!
//! After every kill: each final name is absent or holds exactly the source's bytes; bytes that the
//! client was told to be durable stand or are journalled. In every run: bytes that stood or were
//! journalled before are not sent again. `KILLS` sets the number of kills (20), `KILLS_SEED` their
//! moments. `kills/kept.rs` reads journals and names.

pub(crate) mod kept;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::fixture::tree::{self, Tree};
use crate::fixture::{Daemon, Outcome, Random, Run, Site, files, random};
use crate::hostile::proxy::{Kind, Proxy};
use crate::hostile::{Direction, daemon_addr};
use kept::{Kept, kept};

const MIB: u64 = 1 << 20;
/// The file that takes several runs.
const LARGE_BYTES: u64 = 200 * MIB + 17;
/// The rate of the link between the ends: at this rate the large file takes five seconds, several
/// group syncs.
const BYTES_PER_S: u64 = 40 * MIB;
/// The moments of death lie within this time from the start of a run.
const LIFE_MAX: Duration = Duration::from_secs(3);
/// The bytes that a kill may cost. A group of chunks is open for a second and is then synced and
/// journalled while the next one, which is as long at most, is received. Besides, bytes on the way
/// are lost: the buffers of both ends and of the sockets.
const LOST_MAX: u64 = 2 * BYTES_PER_S + 2 * MEMORY_BYTES;
const MEMORY_BYTES: u64 = 16 * MIB;

/// Bytes over the lanes of one run, at the rate of the link.
struct Flow {
    passed: AtomicU64,
    free_at: Mutex<Instant>,
}

impl Flow {
    fn new() -> Arc<Flow> {
        Arc::new(Flow { passed: AtomicU64::new(0), free_at: Mutex::new(Instant::now()) })
    }

    /// Waits as long as the link takes. (Waiting is the only way to be a slow link.)
    fn pass(&self, bytes: u64) {
        self.passed.fetch_add(bytes, Ordering::Relaxed);
        let now = Instant::now();
        let until = {
            let mut free_at = self.free_at.lock().unwrap();
            *free_at = (*free_at).max(now) + Duration::from_nanos(bytes * 1_000_000_000 / BYTES_PER_S);
            *free_at
        };
        std::thread::sleep(until.saturating_duration_since(now));
    }

    fn passed(&self) -> u64 {
        self.passed.load(Ordering::Relaxed)
    }
}

/// The end that dies.
#[derive(Clone, Copy, Debug)]
enum Victim {
    Client,
    Daemon,
}

/// A client and a daemon over a slow link, and the progress of a tree from one to the other.
struct Storm {
    site: Site,
    proxy: Proxy,
    direction: Direction,
    flow: Arc<Mutex<Arc<Flow>>>,
    /// The daemon that runs now, if it is not the site's first.
    daemon: Option<Daemon>,
    /// The number of copies made.
    round: usize,
    /// The bytes to send.
    total: u64,
}

impl Storm {
    fn new(direction: Direction) -> Storm {
        let site = Site::new();
        let flow = Arc::new(Mutex::new(Flow::new()));
        let current = flow.clone();
        let proxy = Proxy::start(daemon_addr(&site), move |kind, way| {
            let flow = current.lock().unwrap().clone();
            let payload = kind != Kind::Control && way == direction.way();
            payload.then(|| Box::new(move |bytes: &mut Vec<u8>| flow.pass(bytes.len() as u64)) as _)
        });
        let mut storm = Storm { site, proxy, direction, flow, daemon: None, round: 0, total: 0 };
        storm.total = make_source(&storm.source());
        storm
    }

    fn source(&self) -> PathBuf {
        match self.direction {
            Direction::Push => self.site.client.path("src"),
            Direction::Pull => self.site.root().join("src"),
        }
    }

    /// The directory with the copies of all rounds.
    fn target(&self) -> PathBuf {
        match self.direction {
            Direction::Push => self.site.root(),
            Direction::Pull => self.site.client.dir().to_owned(),
        }
    }

    fn dest(&self) -> PathBuf {
        self.target().join(self.dest_name())
    }

    fn dest_name(&self) -> String {
        format!("copy-{}", self.round)
    }

    /// The command: the same one in each run of a round.
    fn run(&self) -> Run {
        let (name, addr) = (self.dest_name(), self.proxy.addr());
        let (verb, from, to) = match self.direction {
            Direction::Push => ("push", "src/".to_owned(), format!("lh://{addr}/data/{name}/")),
            Direction::Pull => ("pull", format!("lh://{addr}/data/src/"), format!("{name}/")),
        };
        let run = self.site.client.run([verb, "--json", "--retry-for", "0", "--peer-key", self.site.daemon.key()]);
        let memory = MEMORY_BYTES.to_string();
        run.args(["--lanes", "2", "--chunk-size", "1MiB", "--memory", &memory, &from, &to])
    }

    fn kept(&self) -> Kept {
        kept(&self.source(), &self.dest())
    }

    /// Runs the command until it ends or its moment has come. Returns true if an end was killed.
    fn run_and_kill(&mut self, victim: Victim, life: Duration) -> bool {
        let before = self.kept();
        let flow = Flow::new();
        *self.flow.lock().unwrap() = flow.clone();
        let running = self.run().start();
        let context = format!("{:?}, round {}, {victim:?} after {life:?}", self.direction, self.round);
        if running.ended_within(life) {
            let outcome = running.finish();
            self.assert_not_sent_again(&before, &flow, &context);
            self.finish_round(&outcome, &context);
            return false;
        }
        let outcome = self.kill(victim, running);
        assert!([137, 5, 0].contains(&outcome.code), "{context}: {outcome}");
        let after = self.kept();
        let told = told_durable(&outcome);
        assert!(after.total() >= told, "{context}: {told} bytes were told to be durable, {after:?} are: {outcome}");
        assert!(after.total() >= before.total(), "{context}: {before:?} became {after:?}: {outcome}");
        self.assert_not_sent_again(&before, &flow, &context);
        let lost = flow.passed().saturating_sub(after.total() - before.total());
        assert!(lost <= LOST_MAX, "{context}: {lost} bytes were lost: {before:?}, {after:?}: {outcome}");
        eprintln!("{context}: {} of {} kept, {} passed, {lost} lost", after.total(), self.total, flow.passed());
        true
    }

    fn kill(&mut self, victim: Victim, running: crate::fixture::Running) -> Outcome {
        match victim {
            Victim::Client => {
                running.signal(Signal::KILL);
                running.finish()
            }
            Victim::Daemon => {
                self.daemon.as_ref().unwrap_or(&self.site.daemon).kill();
                let outcome = running.finish();
                self.daemon = Some(self.site.restarted());
                outcome
            }
        }
    }

    /// Fails if a run sent bytes again that were kept before. Headers, seals and tables of bundles
    /// are less than the allowance.
    #[track_caller]
    fn assert_not_sent_again(&self, before: &Kept, flow: &Flow, context: &str) {
        let missing = self.total.saturating_sub(before.total());
        let passed = flow.passed();
        assert!(passed <= missing + missing / 100 + MIB, "{context}: {before:?}, yet {passed} bytes passed");
    }

    /// Checks that the whole tree stands and nothing else does; the next run makes another copy.
    #[track_caller]
    fn finish_round(&mut self, outcome: &Outcome, context: &str) {
        assert_eq!(outcome.code, 0, "{context}: {outcome}");
        tree::assert_same(&Tree::of(self.source()), &Tree::of(self.dest()), context);
        // Sessions whose clients were killed may still be on their way out: the daemon waits for
        // them.
        let daemon = self.daemon.as_ref().unwrap_or(&self.site.daemon);
        daemon.signal(Signal::TERM);
        daemon.wait_gone();
        std::fs::remove_dir_all(self.dest()).unwrap();
        self.daemon = Some(self.site.restarted());
        assert_eq!(tree::leftovers(self.target()), [""; 0], "{context}: {outcome}");
        self.round += 1;
    }
}

/// Makes a large file, three of a few chunks, and three hundred small ones in directories. Returns
/// their bytes.
fn make_source(top: &Path) -> u64 {
    let small = (0..300).map(|n| (format!("dir-{}/below/{n}", n % 20), 10 + n * 17));
    let middle = (0..3).map(|n| (format!("middle-{n}"), (2 + n) << 20));
    let all = small.chain(middle).chain([("large".to_owned(), LARGE_BYTES)]);
    let mut total = 0;
    for (n, (name, len)) in all.enumerate() {
        files::make(top.join(name), n as u64, usize::try_from(len).unwrap());
        total += len;
    }
    std::fs::create_dir_all(top.join("empty/below")).unwrap();
    files::link("large", top.join("link"));
    files::set_mtime(top, 1_000_000_000, 7);
    total
}

/// The last number of durable bytes that the client told. (A killed client may die in the middle of
/// a line.)
pub(crate) fn told_durable(outcome: &Outcome) -> u64 {
    let lines = outcome.stdout.split(|byte| *byte == b'\n');
    let events = lines.filter_map(|line| serde_json::from_slice::<serde_json::Value>(line).ok());
    events.filter_map(|event| event["bytes_durable"].as_u64()).next_back().unwrap_or(0)
}

/// Plays half of the kills in one direction, and then the command until it has run to its end.
fn storm(direction: Direction) {
    let seed = random::seed("KILLS_SEED");
    let kills = random::variable("KILLS").unwrap_or(20).div_ceil(2);
    eprintln!("{direction:?}: {kills} kills, KILLS_SEED={seed}");
    let mut random = Random(seed ^ direction as u64);
    let mut storm = Storm::new(direction);
    let mut killed = 0;
    while killed < kills {
        let victim = if random.below(2) == 0 { Victim::Client } else { Victim::Daemon };
        let life = Duration::from_millis(random.below(LIFE_MAX.as_millis() as u64));
        killed += u64::from(storm.run_and_kill(victim, life));
    }
    let last = storm.round;
    while storm.round == last {
        assert!(!storm.run_and_kill(Victim::Client, Duration::from_secs(60)), "it ends if nobody kills it");
    }
}

#[test]
fn a_push_survives_every_kill() {
    storm(Direction::Push);
}

#[test]
fn a_pull_survives_every_kill() {
    storm(Direction::Pull);
}
