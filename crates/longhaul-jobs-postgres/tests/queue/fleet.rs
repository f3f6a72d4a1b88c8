//! Many movers over one database, while the server is killed and connections are ended under them.
//!
//! In: threads with stores of their own. Out: each shard was settled once, no fence fell, and no
//! permit is left. Must not know statements.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use longhaul_jobs::left::left;
use longhaul_jobs::queue::{Ask, Beat, Finished, Outcome, Report, beat, claim, finish, lead, schedule};
use longhaul_jobs::{
    Amount, CampaignId, ClaimId, Fence, JobsError, LinkId, Micros, MoverId, PermitPlace, Rows, ShardId, ShardKind,
    Store,
};
use longhaul_jobs_postgres::{PostgresError, PostgresStore};

use crate::open;
use crate::postgres::Postgres;
use crate::random::{Random, begin};

const MOVERS: u64 = 10;
/// The longest that anything here may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// The movers of a queue, and all that they share.
struct Fleet {
    url: String,
    link: LinkId,
    /// The time of the queue, which the test sets: leases lapse when it says so.
    clock: Arc<AtomicU64>,
    finished: AtomicUsize,
    /// Transactions whose failure a mover heard of.
    failures: AtomicUsize,
    stopped: AtomicBool,
    /// How often a report of a shard was recorded, as its movers were told.
    recorded: Mutex<BTreeMap<ShardId, u64>>,
    /// The fences that movers were given.
    fences: Mutex<BTreeSet<(ShardId, Fence)>>,
}

impl Fleet {
    fn new(url: &str, shards: usize) -> (Fleet, CampaignId) {
        let clock = Arc::new(AtomicU64::new(1_700_000_000_000_000));
        let mut store = with_clock(open(url).unwrap(), &clock);
        let (link, campaigns) = store.transact(|rows| begin(rows, 1, shards as u64)).unwrap();
        // As many movers as there are here may work at a time.
        store.transact(|rows| widen(rows, link)).unwrap();
        let fleet = Fleet {
            url: url.to_owned(),
            link,
            clock,
            finished: AtomicUsize::new(0),
            failures: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            recorded: Mutex::default(),
            fences: Mutex::default(),
        };
        (fleet, campaigns[0])
    }

    fn is_over(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// A transaction, again and again until the server answers. A mover that hears of a failure
    /// cannot know more.
    fn insist<T>(&self, store: &mut PostgresStore, work: impl Fn(&mut dyn Rows) -> Result<T, JobsError>) -> Option<T> {
        loop {
            match store.transact(&work) {
                Ok(value) => return Some(value),
                Err(JobsError::Store { source }) if self.may_fail(source.downcast_ref()) => {
                    self.failures.fetch_add(1, Ordering::Relaxed);
                    if self.is_over() {
                        return None;
                    }
                }
                Err(error) => {
                    self.stopped.store(true, Ordering::Relaxed);
                    panic!("{error}");
                }
            }
        }
    }

    fn may_fail(&self, error: Option<&PostgresError>) -> bool {
        matches!(
            error,
            Some(PostgresError::Away { .. } | PostgresError::CommitUnknown { .. } | PostgresError::Busy { .. })
        )
    }

    /// A mover: it leads if it may, claims, beats and reports.
    fn work(&self, number: u64) {
        let mut store = loop {
            match open(&self.url) {
                Ok(store) => break with_clock(store, &self.clock),
                Err(_) if self.is_over() => return,
                Err(_) => {}
            }
        };
        let mut random = Random(number);
        let me = MoverId(random.id());
        while !self.is_over() {
            let id = ClaimId(random.id());
            let granted = self.insist(&mut store, |rows| {
                let ask = Ask { mover: me, links: &[self.link], id };
                if let Some(granted) = claim(rows, &ask)? {
                    return Ok(Some(granted));
                }
                if let Some(term) = lead(rows, me)? {
                    schedule(rows, me, term)?;
                }
                claim(rows, &ask)
            });
            let Some(Some(granted)) = granted else { continue };
            let shard = granted.shard;
            let fresh = self.fences.lock().unwrap().insert((shard.id, shard.claim.fence));
            assert!(fresh, "a fence was given out twice: {shard:?}");
            let done = Amount { files: 5, bytes: 50 };
            let news = Beat { shard: shard.id, claim: shard.claim, done, moved: 50 };
            self.insist(&mut store, |rows| beat(rows, &news));
            let (done, moved) = (shard.total, shard.total.bytes);
            let settled = self.insist(&mut store, |rows| {
                let outcome = Outcome::Through(vec![]);
                let report =
                    Report { shard: shard.id, claim: shard.claim, done, moved, outcome, unclaimed: false, chance: 0 };
                finish(rows, &report)
            });
            if let Some(Finished::Recorded(_)) = settled {
                *self.recorded.lock().unwrap().entry(shard.id).or_default() += 1;
                self.finished.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Lets all leases lapse, as those of claims are whose mover was told nothing.
    fn lapse(&self) {
        self.clock.fetch_add(61_000_000, Ordering::Relaxed);
    }
}

fn with_clock(store: PostgresStore, clock: &Arc<AtomicU64>) -> PostgresStore {
    let clock = Arc::clone(clock);
    store.with_clock(Box::new(move || Micros(clock.load(Ordering::Relaxed))))
}

/// Ten movers at a time on the link and at both of its sites.
fn widen(rows: &mut dyn Rows, link: LinkId) -> Result<(), JobsError> {
    let mut link = rows.link(link)?.unwrap();
    link.movers = MOVERS as u32;
    rows.put_link(&link)?;
    for mut site in rows.sites()? {
        (site.movers_in, site.movers_out) = (MOVERS as u32, MOVERS as u32);
        rows.put_site(&site)?;
    }
    Ok(())
}

/// All shards are done, each once, and nothing is left of those who did them.
fn check(fleet: &Fleet, campaign: CampaignId, shards: usize) {
    let mut store = open(&fleet.url).unwrap();
    let (sums, done, places) = store
        .transact(|rows| {
            let mut places = vec![PermitPlace::Link(fleet.link)];
            places.extend(rows.sites()?.iter().flat_map(|site| [PermitPlace::From(site.id), PermitPlace::To(site.id)]));
            Ok((left(rows, campaign)?, rows.shards(campaign, ShardKind::Done, ShardId(0), shards + 1)?, places))
        })
        .unwrap();
    assert_eq!((sums.done, sums.left.files, done.len()), (sums.total, 0, shards));
    let recorded = fleet.recorded.lock().unwrap();
    assert!(recorded.values().all(|times| *times == 1), "a shard was settled twice: {recorded:?}");
    let fences = fleet.fences.lock().unwrap();
    for shard in done {
        let highest = fences.range((shard.id, Fence(0))..=(shard.id, Fence(u64::MAX))).next_back();
        assert!(highest.is_none_or(|(_, fence)| shard.claim.fence >= *fence), "{shard:?} fell behind {highest:?}");
    }
    let permits = store.transact(|rows| places.iter().map(|place| rows.permits(*place)).collect::<Result<Vec<_>, _>>());
    assert_eq!(permits.unwrap().concat(), [], "permits are left");
}

/// Shards that are done, by the server.
fn count_done(server: &Postgres) -> usize {
    server.sql("postgres", "SELECT count(*) FROM longhaul.shard WHERE state = 3").parse().unwrap()
}

/// Has the movers work until all shards are done, and does something meanwhile, again and again.
fn run(fleet: &Fleet, server: &mut Postgres, shards: usize, mut meanwhile: impl FnMut(&mut Postgres, usize)) {
    let until = Instant::now() + PATIENCE;
    std::thread::scope(|scope| {
        (0..MOVERS).for_each(|number| drop(scope.spawn(move || fleet.work(number))));
        loop {
            let done = count_done(server);
            if done == shards || fleet.is_over() || Instant::now() > until {
                fleet.stopped.store(true, Ordering::Relaxed);
                assert_eq!(done, shards, "shards are done");
                return;
            }
            meanwhile(server, done);
            std::thread::sleep(Duration::from_millis(200));
        }
    });
}

#[test]
fn movers_that_share_the_database_get_each_shard_once() {
    const SHARDS: usize = 400;
    let mut server = Postgres::start();
    let (fleet, campaign) = Fleet::new(&server.url("postgres"), SHARDS);
    run(&fleet, &mut server, SHARDS, |_, _| {});
    check(&fleet, campaign, SHARDS);
    assert_eq!(fleet.failures.load(Ordering::Relaxed), 0, "others in the way are no failure");
    let fences = fleet.fences.lock().unwrap();
    assert!(fences.iter().all(|(_, fence)| *fence == Fence(1)), "{fences:?}");
    let conflicts = server.sql("postgres", "SELECT xact_rollback FROM pg_stat_database WHERE datname = 'postgres'");
    println!("{conflicts} transactions were taken back, and run again");
    assert!(conflicts.parse::<u64>().unwrap() > 0, "ten movers were never in each other's way");
}

#[test]
fn movers_go_on_when_the_server_is_killed_and_connections_are_ended() {
    const SHARDS: usize = 1000;
    const KILLS: usize = 3;
    // It syncs: what it said to be committed has to be there after it was killed.
    let mut server = Postgres::with(&[]);
    let (fleet, campaign) = Fleet::new(&server.url("postgres"), SHARDS);
    let (mut kills, mut turns) = (0, 0);
    run(&fleet, &mut server, SHARDS, |server, done| {
        turns += 1;
        if kills < KILLS && done > (kills + 1) * SHARDS / (KILLS + 2) {
            server.kill();
            server.restart();
            kills += 1;
        }
        if turns % 5 != 0 {
            return;
        }
        let some = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
            WHERE application_name = 'longhaul' AND random() < 0.3";
        server.sql("postgres", some);
        if turns % 10 == 0 {
            fleet.lapse();
        }
    });
    assert_eq!(kills, KILLS);
    check(&fleet, campaign, SHARDS);
}

#[test]
fn a_long_transaction_gets_its_turn_while_movers_beat() {
    const SHARDS: usize = 1500;
    const BEATING: u64 = 4;
    let server = Postgres::start();
    let (fleet, campaign) = Fleet::new(&server.url("postgres"), SHARDS);
    let mut store = with_clock(open(&fleet.url).unwrap(), &fleet.clock);
    let leader = MoverId([9; 16]);
    store
        .transact(|rows| {
            let term = lead(rows, leader)?.unwrap();
            schedule(rows, leader, term)
        })
        .unwrap();
    let begun = std::sync::Barrier::new(BEATING as usize + 1);
    std::thread::scope(|scope| {
        for number in 0..BEATING {
            let (fleet, begun) = (&fleet, &begun);
            scope.spawn(move || {
                let mut store = with_clock(open(&fleet.url).unwrap(), &fleet.clock);
                let mut random = Random(number);
                let (me, id) = (MoverId(random.id()), ClaimId(random.id()));
                let ask = Ask { mover: me, links: &[fleet.link], id };
                let shard = store.transact(|rows| claim(rows, &ask)).unwrap().unwrap().shard;
                begun.wait();
                let done = Amount { files: 0, bytes: 0 };
                let news = Beat { shard: shard.id, claim: shard.claim, done, moved: 0 };
                while !fleet.is_over() {
                    // Once its campaign is cancelled, it hears of that.
                    if let Err(error @ JobsError::Store { .. }) = store.transact(|rows| beat(rows, &news)) {
                        panic!("{error}");
                    }
                }
            });
        }
        begun.wait();
        let cancelled = store.transact(|rows| longhaul_jobs::queue::cancel(rows, campaign));
        fleet.stopped.store(true, Ordering::Relaxed);
        cancelled.map(drop).unwrap();
    });
}
