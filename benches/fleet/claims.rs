//! The time of a claim, while as many movers as a fleet has claim, beat, lead and report. They move
//! nothing: each keeps a shard for some seconds.
//!
//! Takes a store for each mover; gives times. Must not know statements.

use std::num::NonZero;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use longhaul_jobs::queue::{
    Ask, Beat, Granted, LinkLimits, NewCampaign, Outcome, Report, SiteLimits, add_campaign, add_link, add_segment,
    add_site, beat, begin_campaign, claim, finish, lead, schedule,
};
use longhaul_jobs::{Amount, Calendar, ClaimId, Cut, JobsError, LinkId, MoverId, Rows, Segment, Store};
use longhaul_jobs_postgres::{Passwords, Place, PostgresStore};
use longhaul_jobs_sqlite::SqliteStore;
use serde::Serialize;

use crate::kit::{Bench, table};
use crate::postgres::Postgres;

const LINKS: usize = 10;
const MOVERS_OF_LINK: NonZero<u32> = NonZero::<u32>::MIN.saturating_add(19);
/// The time for which a mover keeps a shard: from this, to three times as long.
const WORK_MIN: Duration = Duration::from_secs(5);
/// A leader's turn comes so often, and so does a question of a mover that has no shard. Those are
/// the times of `job run`.
const SCHEDULE_EVERY: Duration = Duration::from_secs(2);
const CLAIM_EVERY: Duration = Duration::from_secs(1);

/// The times of one queue, milliseconds.
#[derive(Serialize)]
struct ClaimTimes {
    queue: &'static str,
    movers: usize,
    claims: usize,
    seconds: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// CPU seconds of a mover's own side for a claim, a beat and a report together.
    mover_cpu_ms: f64,
}

/// A mover's claims: how long each took, and what all of its transactions cost.
#[derive(Default)]
struct Claims {
    took: Vec<Duration>,
    cpu_s: f64,
}

/// Measures both queues.
pub(crate) fn run(bench: &Bench) -> Result<()> {
    let time = Duration::from_secs(bench.options.amount(120, 20));
    let server = Postgres::with(&["max_connections=300", "shared_buffers=128MB"]);
    let place = Place::parse(&server.url("postgres"))?;
    let database = || Ok(PostgresStore::open_or_make(&place, &Passwords::default())?);
    let dir = bench.scratch.subdir("claims")?;
    let path = dir.join("queue.db");
    std::fs::write(&path, "")?;
    let file = || Ok(SqliteStore::open(&path)?);
    let rows = [measure("PostgreSQL", &database, 200, time)?, measure("SQLite", &file, 20, time)?];
    for row in &rows {
        bench.recorder.record_cell("claims", row)?;
    }
    print(&rows);
    std::fs::remove_dir_all(&dir)?;
    Ok(())
}

fn measure<S: Store + Send>(
    queue: &'static str,
    open: &(impl Fn() -> Result<S> + Sync),
    movers: usize,
    time: Duration,
) -> Result<ClaimTimes> {
    let shards = movers as u64 * (time.as_secs() / WORK_MIN.as_secs() + 2);
    let links = set_up(&mut open()?, shards)?;
    let ready = Barrier::new(movers);
    let done: Vec<Claims> = std::thread::scope(|scope| {
        let (links, ready) = (&links, &ready);
        let works: Vec<_> = (0..movers)
            .map(|number| {
                scope.spawn(move || {
                    let store = open();
                    // All wait for each other, also for one that has failed.
                    ready.wait();
                    Worker { store: store?, number: number as u64, links: rotated(links, number), draws: 0 }.work(time)
                })
            })
            .collect();
        let joined = works.into_iter().map(|work| work.join().map_err(|_| anyhow!("a mover panicked"))?);
        joined.collect::<Result<_>>()
    })?;
    let mut took: Vec<f64> = done.iter().flat_map(|claims| &claims.took).map(|took| took.as_secs_f64() * 1e3).collect();
    took.sort_by(f64::total_cmp);
    let at =
        |part: usize| took.get((took.len() * part / 100).min(took.len() - 1)).copied().context("there were claims");
    let cpu_s: f64 = done.iter().map(|claims| claims.cpu_s).sum();
    Ok(ClaimTimes {
        queue,
        movers,
        claims: took.len(),
        seconds: time.as_secs_f64(),
        p50_ms: at(50)?,
        p99_ms: at(99)?,
        max_ms: at(100)?,
        mover_cpu_ms: cpu_s * 1e3 / took.len() as f64,
    })
}

/// Links of as many sites, and a campaign whose shards are spread over them.
fn set_up(store: &mut impl Store, shards: u64) -> Result<Vec<LinkId>> {
    let all = NonZero::<u32>::MIN.saturating_add(999);
    let limits = SiteLimits { movers_in: all, movers_out: all };
    let each = shards.div_ceil(LINKS as u64);
    let rows = |rows: &mut dyn Rows| {
        let campaign = add_campaign(rows, &NewCampaign { name: "all".to_owned(), ..NewCampaign::default() })?;
        let from = add_site(rows, "from", limits)?;
        let mut links = Vec::new();
        for number in 0..LINKS as u64 {
            let to = add_site(rows, &format!("to{number}"), limits)?;
            let of_link = LinkLimits { movers: MOVERS_OF_LINK, rate: None };
            let link = add_link(rows, (from, to), of_link, &Calendar::default())?;
            let cut = |at| Cut { first: at * 10, end: at * 10 + 10, total: Amount { files: 10, bytes: 100 } };
            let cuts: Vec<Cut> = (0..each).map(cut).collect();
            let total = Amount { files: each * 10, bytes: each * 100 };
            add_segment(rows, &Segment { campaign, number, digest: [0; 32], total }, link, &cuts)?;
            links.push(link);
        }
        begin_campaign(rows, campaign)?;
        Ok(links)
    };
    Ok(store.transact(rows)?)
}

fn rotated(links: &[LinkId], by: usize) -> Vec<LinkId> {
    let mut links = links.to_vec();
    let count = links.len();
    links.rotate_left(by % count);
    links
}

/// A mover that only waits.
struct Worker<S> {
    store: S,
    number: u64,
    links: Vec<LinkId>,
    draws: u64,
}

impl<S: Store> Worker<S> {
    /// A number from the seed of the mover.
    fn draw(&mut self) -> u64 {
        self.draws += 1;
        let mut z = (self.number << 32 | self.draws).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^ (z >> 27)
    }

    fn id(&mut self) -> [u8; 16] {
        (u128::from(self.draw()) << 64 | u128::from(self.draw())).to_be_bytes()
    }

    /// Claims and reports for so long. Movers begin within the time of a shard.
    fn work(mut self, time: Duration) -> Result<Claims> {
        let me = MoverId(self.id());
        let (mut claims, until) = (Claims::default(), Instant::now() + time);
        let start = self.draw() % WORK_MIN.as_millis() as u64;
        std::thread::sleep(Duration::from_millis(start));
        while Instant::now() < until {
            let (id, links) = (ClaimId(self.id()), self.links.clone());
            let (begun, cpu) = (Instant::now(), crate::kit::thread_cpu_s());
            let ask = Ask { mover: me, links: &links, id };
            let granted = self.store.transact(|rows| claimed(rows, &ask))?;
            claims.cpu_s += crate::kit::thread_cpu_s() - cpu;
            let Some(granted) = granted else {
                std::thread::sleep(CLAIM_EVERY);
                continue;
            };
            claims.took.push(begun.elapsed());
            self.settle(me, &granted, &mut claims)?;
        }
        Ok(claims)
    }

    /// Keeps a shard for a while, with leader's turns and a beat, and reports it.
    fn settle(&mut self, me: MoverId, granted: &Granted, claims: &mut Claims) -> Result<()> {
        let work = WORK_MIN + Duration::from_millis(self.draw() % (2 * WORK_MIN.as_millis() as u64));
        let (until, shard) = (Instant::now() + work, &granted.shard);
        let mut left = work;
        while !left.is_zero() {
            std::thread::sleep(left.min(SCHEDULE_EVERY));
            self.store.transact(|rows| turn(rows, me))?;
            left = until.saturating_duration_since(Instant::now());
        }
        let cpu = crate::kit::thread_cpu_s();
        let (id, claim, done, moved) = (shard.id, shard.claim, shard.total, shard.total.bytes);
        self.store.transact(|rows| beat(rows, &Beat { shard: id, claim, done, moved }))?;
        let outcome = Outcome::Through(Vec::new());
        let report = Report { shard: id, claim, done, moved, outcome, unclaimed: false, chance: 0 };
        self.store.transact(|rows| finish(rows, &report))?;
        claims.cpu_s += crate::kit::thread_cpu_s() - cpu;
        Ok(())
    }
}

/// A claim, as `job run` makes it: if nothing is ready, whoever may lead schedules first.
fn claimed(rows: &mut dyn Rows, ask: &Ask) -> Result<Option<Granted>, JobsError> {
    if let Some(granted) = claim(rows, ask)? {
        return Ok(Some(granted));
    }
    turn(rows, ask.mover)?;
    claim(rows, ask)
}

fn turn(rows: &mut dyn Rows, me: MoverId) -> Result<(), JobsError> {
    let Some(term) = lead(rows, me)? else { return Ok(()) };
    schedule(rows, me, term).map(drop)
}

fn print(times: &[ClaimTimes]) {
    let head = ["claims", "movers", "claims", "per s", "p50 ms", "p99 ms", "max ms", "mover's CPU ms a shard"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for one in times {
        rows.push(vec![
            one.queue.to_owned(),
            one.movers.to_string(),
            one.claims.to_string(),
            format!("{:.1}", one.claims as f64 / one.seconds),
            format!("{:.2}", one.p50_ms),
            format!("{:.2}", one.p99_ms),
            format!("{:.2}", one.max_ms),
            format!("{:.2}", one.mover_cpu_ms),
        ]);
    }
    print!("{}", table(&rows));
    println!("target: p99 of 20 ms, with 200 movers on PostgreSQL");
}
