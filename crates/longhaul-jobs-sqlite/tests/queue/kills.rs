//! A process that is killed in the middle of its transactions, again and again.
//!
//! In: the queue's file. Out: after each kill, all that was said to be committed is there, and no
//! transaction is there in part. Must not know how SQLite does it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use longhaul_core::{Blame, FaultCode, PlainText};
use longhaul_jobs::left::left;
use longhaul_jobs::queue::{Ask, Beat, FileFault, Outcome, Report, beat, claim, finish, lead, schedule};
use longhaul_jobs::{Amount, CampaignId, ClaimId, Micros, MoverId, ShardId, ShardKind, ShardState, Store};
use longhaul_jobs_sqlite::SqliteStore;

use crate::random::{Random, begin};

const KILLS: u64 = 40;
const SHARDS: u64 = 3000;
/// Some transactions take so long.
const MOMENT_MICROS: u64 = 8000;
/// The variable that makes a worker of this test, and says at which file and in which round.
const WORKER: &str = "LONGHAUL_JOBS_WORKER";

fn open(path: &Path, round: u64) -> SqliteStore {
    // Each round is five minutes later, so that the leases of the one before have passed.
    let now = Micros(1_700_000_000_000_000 + round * 300_000_000);
    SqliteStore::open_with_clock(path, Box::new(move || now)).unwrap()
}

/// The worker: it claims, beats and reports until it is killed, and says what was committed.
#[test]
fn worker_of_the_kills() {
    let Ok(told) = std::env::var(WORKER) else { return };
    let (round, path) = told.split_once(' ').unwrap();
    let round: u64 = round.parse().unwrap();
    let mut store = open(Path::new(path), round);
    let mut random = Random(round);
    let mut out = std::io::stdout();
    let mut say = |line: String| {
        out.write_all(line.as_bytes()).unwrap();
        out.flush().unwrap();
    };
    let links: Vec<_> = store.transact(|rows| rows.links()).unwrap().iter().map(|link| link.id).collect();
    let me = MoverId(random.id());
    for _ in 0..SHARDS * 10 {
        if let Some(term) = store.transact(|rows| lead(rows, me)).unwrap() {
            store.transact(|rows| schedule(rows, me, term)).unwrap();
        }
        let ask = Ask { mover: me, links: &links, id: ClaimId(random.id()) };
        let Some(granted) = store.transact(|rows| claim(rows, &ask)).unwrap() else { continue };
        let (shard, claim) = (granted.shard.id, granted.shard.claim);
        say(format!("\nclaimed {} {}\n", shard.0, claim.fence.0));
        let done = Amount { files: 3, bytes: 30 };
        store.transact(|rows| beat(rows, &Beat { shard, claim, done, moved: 30 })).unwrap();
        let failed = random.below(6);
        let fault = |at: u64| FileFault {
            path: at.to_be_bytes().to_vec(),
            bytes: 10,
            code: FaultCode::NotFound,
            blame: Blame::Local,
            message: PlainText::from("it is missing"),
        };
        let outcome = Outcome::Through((0..failed).map(fault).collect());
        let done = Amount { files: 10 - failed, bytes: 100 - failed * 10 };
        store
            .transact(|rows| {
                let (moved, outcome) = (done.bytes, outcome.clone());
                finish(rows, &Report { shard, claim, done, moved, outcome, unclaimed: false, chance: 0 })
            })
            .unwrap();
        say(format!("\nfinished {} {failed}\n", shard.0));
    }
}

/// Runs a worker, kills it after so many lines and a moment of chance, wherever it is by then, and
/// gives all that it said.
fn run_and_kill(path: &Path, round: u64, (lines, moment): (usize, Duration)) -> Vec<String> {
    let mut worker = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::worker_of_the_kills", "--nocapture"])
        .env(WORKER, format!("{round} {}", path.display()))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(worker.stdout.take().unwrap()).lines();
    let said = |line: &String| line.starts_with("claimed ") || line.starts_with("finished ");
    let mut heard: Vec<String> = out.by_ref().map_while(Result::ok).filter(said).take(lines).collect();
    let heard_at = Instant::now();
    while heard_at.elapsed() < moment {
        std::hint::spin_loop();
    }
    worker.kill().unwrap();
    heard.extend(out.map_while(Result::ok).filter(said));
    worker.wait().unwrap();
    heard
}

#[test]
fn everything_that_was_committed_survives_kill_9_and_nothing_is_there_in_part() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("queue.db");
    let (_, campaigns) = open(&path, 0).transact(|rows| begin(rows, 1, SHARDS)).unwrap();
    let mut random = Random(1);
    let (mut fences, mut finished) = (BTreeMap::new(), BTreeMap::new());
    for round in 1..=KILLS {
        let lines = 2 + random.below(20) as usize;
        let moment = Duration::from_micros(random.below(MOMENT_MICROS));
        let heard = run_and_kill(&path, round, (lines, moment));
        assert!(heard.len() >= lines, "the worker ended by itself: {heard:?}");
        for line in heard {
            let words: Vec<&str> = line.split(' ').collect();
            let (shard, number) = (ShardId(words[1].parse().unwrap()), words[2].parse::<u64>().unwrap());
            if words[0] == "claimed" {
                fences.insert(shard, number)
            } else {
                finished.insert(shard, number)
            };
        }
        let mut store = open(&path, round);
        store.check().unwrap();
        look(&mut store, campaigns[0], &fences, &finished);
    }
    assert!(finished.len() as u64 >= KILLS);
}

fn look(
    store: &mut SqliteStore,
    campaign: CampaignId,
    fences: &BTreeMap<ShardId, u64>,
    finished: &BTreeMap<ShardId, u64>,
) {
    let (sums, leased) = store
        .transact(|rows| {
            for (id, fence) in fences {
                let shard = rows.shard(*id)?.unwrap();
                assert!(shard.claim.fence.0 >= *fence, "{shard:?} was claimed with {fence}");
            }
            for (id, failed) in finished {
                let shard = rows.shard(*id)?.unwrap();
                assert!(matches!(shard.state, ShardState::Done | ShardState::Partial), "{shard:?} was finished");
                assert_eq!((shard.failed.files, rows.faults_of(*id)?.len() as u64), (*failed, *failed));
            }
            Ok((left(rows, campaign)?, rows.shards(campaign, ShardKind::Leased, ShardId(0), 1000)?))
        })
        .unwrap();
    assert_eq!(sums.total.files, SHARDS * 10);
    assert_eq!(sums.done.files + sums.failed.files + sums.left.files, sums.total.files);
    assert_eq!(sums.faults.iter().map(|fault| fault.given_up.files).sum::<u64>(), sums.failed.files);
    for shard in leased {
        let permits = store.transact(|rows| rows.permits_of(shard.id)).unwrap();
        let own = permits.iter().filter(|permit| permit.claim == shard.claim).count();
        assert_eq!(own, 3, "a claim has its permits: {shard:?} {permits:?}");
    }
}
