//! The world of a seed: its campaigns, its actors, and everything that goes wrong.
//!
//! In: a seed, and a bug to plant. Out: what happened, or the first broken promise. Must not know
//! the promises.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::FaultCode;
use longhaul_jobs::queue::{Selection, cancel, hold, lead, release, retry, schedule};
use longhaul_jobs::{
    CampaignId, CampaignState, Claim, ClaimId, JobsError, LinkId, Memory, Micros, MoverId, PermitPlace, Rows,
    SessionId, ShardId, ShardKind, Store,
};

use crate::bent::Bent;
use crate::destination::{Destination, FileNo};
use crate::hours::Hours;
use crate::mover::Mover;
use crate::mutants::Mutant;

/// Bytes of each file.
pub(crate) const FILE_BYTES: u64 = 1000;
pub(crate) const SECOND: u64 = 1_000_000;
const HOUR: u64 = 3600 * SECOND;
/// The time at which worlds begin, far enough from 0 for a clock to be set back: 16:00 in UTC.
pub(crate) const START: u64 = 1000 * HOUR;
/// Turns within which a world in which nothing goes wrong any more comes to its end.
const CALM_TURNS: u32 = 4000;

/// Events, of one world or of all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) published: u64,
    pub(crate) refused: u64,
    pub(crate) raised: u64,
    pub(crate) restored: u64,
    pub(crate) lapsed: u64,
    pub(crate) stale: u64,
    pub(crate) held: u64,
    pub(crate) given_up: u64,
    pub(crate) compared: u64,
    pub(crate) retried: u64,
    pub(crate) shown_again: u64,
    pub(crate) changed: u64,
    /// Daemons that paused while they had sessions.
    pub(crate) slept: u64,
    /// Times that the store lost what it had said to be committed.
    pub(crate) lost: u64,
    /// Datasets that appeared.
    pub(crate) committed: u64,
    /// Claims for which something was ready and that came in closed hours, and those that had a
    /// rate.
    pub(crate) closed: u64,
    pub(crate) rated: u64,
    /// The steps that shards took from state to state.
    pub(crate) steps: BTreeSet<(ShardKind, ShardKind)>,
}

impl Tally {
    pub(crate) fn add(&mut self, other: &Tally) {
        self.published += other.published;
        self.refused += other.refused;
        self.raised += other.raised;
        self.restored += other.restored;
        self.lapsed += other.lapsed;
        self.stale += other.stale;
        self.held += other.held;
        self.given_up += other.given_up;
        self.compared += other.compared;
        self.retried += other.retried;
        self.shown_again += other.shown_again;
        self.changed += other.changed;
        self.slept += other.slept;
        self.lost += other.lost;
        self.committed += other.committed;
        self.closed += other.closed;
        self.rated += other.rated;
        self.steps.extend(&other.steps);
    }
}

/// A seeded stream of numbers (splitmix64).
pub(crate) struct Rng(u64);

impl Rng {
    /// The stream of a seed.
    pub(crate) fn of(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x2545_f491_4f6c_dd1d))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn bytes(&mut self) -> [u8; 16] {
        let (high, low) = (self.next(), self.next());
        ((u128::from(high) << 64) | u128::from(low)).to_be_bytes()
    }

    pub(crate) fn claim_id(&mut self) -> ClaimId {
        ClaimId(self.bytes())
    }

    pub(crate) fn session_id(&mut self) -> SessionId {
        SessionId(self.bytes())
    }
}

pub(crate) struct World {
    pub(crate) rng: Rng,
    pub(crate) mutant: Option<Mutant>,
    /// Microseconds by which everything but the store's clock goes.
    pub(crate) time: u64,
    clock: i64,
    pub(crate) clock_was_set: bool,
    pub(crate) store: Memory,
    backup: Option<Memory>,
    /// The store before a turn whose commits will be lost.
    losing: Option<Memory>,
    away_until: u64,
    calm: bool,
    pub(crate) destination: Destination,
    pub(crate) movers: Vec<Mover>,
    /// Processes that schedule: who they are, the term that they know, and until when they pause.
    leaders: Vec<(MoverId, Option<u64>, u64)>,
    pub(crate) links: Vec<LinkId>,
    pub(crate) campaigns: Vec<CampaignId>,
    pub(crate) permits: BTreeMap<PermitPlace, u32>,
    pub(crate) hours: Hours,
    /// Files that cannot be read: with which fault, and how many times more.
    pub(crate) bad: BTreeMap<FileNo, (FaultCode, u64)>,
    /// The versions of files at the source, of those that changed there.
    pub(crate) versions: BTreeMap<FileNo, u64>,
    /// The last claim of each shard that the store had.
    pub(crate) fences: BTreeMap<ShardId, Claim>,
    highest_term: u64,
    pub(crate) tally: Tally,
    pub(crate) broken: Option<String>,
}

pub(crate) fn path_of(shard: ShardId, file: u64) -> Vec<u8> {
    format!("{}/{file}", shard.0).into_bytes()
}

/// Plays a world.
pub(crate) fn play(seed: u64, mutant: Option<Mutant>) -> Result<Tally, String> {
    let mut world = World::new(seed, mutant);
    world.set_up(seed).map_err(|error| error.to_string())?;
    let turns = 60 + world.rng.below(240);
    for _ in 0..turns {
        world.go_wrong();
        world.turn();
        world.broken()?;
    }
    world.calm_down();
    for _ in 0..CALM_TURNS {
        world.turn();
        world.broken()?;
        if world.is_through() {
            world.check_end();
            world.broken()?;
            let (published, refused) = (world.destination.published.len() as u64, world.destination.refused);
            return Ok(Tally { published, refused, ..world.tally });
        }
    }
    let open = world.store.all_shards().filter(|shard| !shard.state.kind().is_settled());
    Err(format!("it does not come to its end: {:?}", open.map(|shard| (shard.id, shard.state)).collect::<Vec<_>>()))
}

impl World {
    fn new(seed: u64, mutant: Option<Mutant>) -> World {
        let mut rng = Rng::of(seed);
        let movers = 2 + rng.below(2);
        let movers = (0..movers).map(|_| Mover { id: MoverId(rng.bytes()), paused_until: 0, holding: None }).collect();
        let leaders = (0..2).map(|_| (MoverId(rng.bytes()), None, 0)).collect();
        World {
            rng,
            mutant,
            time: START,
            clock: 0,
            clock_was_set: false,
            store: Memory::at(Micros(START)),
            backup: None,
            losing: None,
            away_until: 0,
            calm: false,
            destination: Destination::new(mutant),
            movers,
            leaders,
            links: Vec::new(),
            campaigns: Vec::new(),
            permits: BTreeMap::new(),
            hours: Hours::default(),
            bad: BTreeMap::new(),
            versions: BTreeMap::new(),
            fences: BTreeMap::new(),
            highest_term: 0,
            tally: Tally::default(),
            broken: None,
        }
    }

    fn broken(&mut self) -> Result<(), String> {
        match self.broken.take().or_else(|| self.destination.broken.take()) {
            Some(promise) => Err(promise),
            None => Ok(()),
        }
    }

    /// The fault of a file that is read now.
    pub(crate) fn source_fault(&mut self, shard: ShardId, file: u64) -> Option<FaultCode> {
        if self.destination.published.contains_key(&(shard, file)) {
            return None;
        }
        let (code, times) = self.bad.get_mut(&(shard, file))?;
        if *times == 0 {
            return None;
        }
        *times = times.saturating_sub(u64::from(*times != u64::MAX));
        Some(*code)
    }

    /// Something goes wrong, at times.
    fn go_wrong(&mut self) {
        let (mover, leader) = (self.rng.index(self.movers.len()), self.rng.index(2));
        let pause = self.time + 90 * SECOND;
        match self.rng.below(160) {
            0 | 11 | 12 => self.movers[mover].paused_until = pause,
            1 | 2 => {
                let fresh = Mover { id: MoverId(self.rng.bytes()), paused_until: 0, holding: None };
                let dead = std::mem::replace(&mut self.movers[mover], fresh);
                if let Some(held) = dead.holding.filter(|_| self.rng.one_in(2)) {
                    self.destination.leave(held.daemon, held.shard, held.kept());
                }
            }
            3 => {
                let (daemon, stands) = (self.rng.index(2), self.rng.next());
                self.destination.crash(daemon, stands);
            }
            4 => self.away_until = pause,
            5 => {
                self.clock = [0, -(HOUR as i64), HOUR as i64][self.rng.index(3)];
                self.clock_was_set = true;
            }
            6 => self.leaders[leader].2 = pause,
            7 | 8 => self.backup = Some(self.store.clone()),
            9 | 10 => {
                if let Some(backup) = self.backup.clone() {
                    self.restore(backup);
                }
            }
            13..=15 => self.user_acts(),
            16..=30 => self.change_source(),
            31 | 32 => {
                let daemon = self.rng.index(2);
                self.tally.slept += u64::from(self.destination.pause(daemon, pause));
            }
            33 => self.losing = Some(self.store.clone()),
            _ => {}
        }
    }

    /// The store is again as it was at some time.
    fn restore(&mut self, store: Memory) {
        self.store = store;
        self.fences = self.store.all_shards().map(|shard| (shard.id, shard.claim)).collect();
        self.highest_term = 0;
        self.tally.restored += 1;
    }

    /// Somebody writes to a file at the source.
    fn change_source(&mut self) {
        let shards = self.store.all_shards().filter(|shard| !shard.part.is_commit());
        let shards: Vec<_> = shards.map(|shard| (shard.id, shard.total.files)).collect();
        let (shard, files) = shards[self.rng.index(shards.len())];
        let file = self.rng.below(files);
        *self.versions.entry((shard, file)).or_default() += 1;
        self.tally.changed += 1;
    }

    /// Whether something goes wrong yet.
    pub(crate) fn goes_wrong(&self) -> bool {
        !self.calm
    }

    /// A user holds, releases or cancels a campaign, or has its faults tried again.
    fn user_acts(&mut self) {
        let id = self.campaigns[self.rng.index(self.campaigns.len())];
        let (state, choice) = (self.state_of(id), self.rng.below(3));
        match (state, choice) {
            (Some(CampaignState::Running | CampaignState::Held), _) if self.rng.one_in(12) => {
                self.store(None, |rows| cancel(rows, id));
            }
            (Some(CampaignState::Running), 0) => {
                self.store(None, |rows| hold(rows, id));
            }
            (Some(CampaignState::Running | CampaignState::Held), 1) => {
                self.store(None, |rows| release(rows, id));
            }
            (Some(CampaignState::Running | CampaignState::Held | CampaignState::Done), _) => {
                let retried = self.store(None, |rows| retry(rows, id, Selection::All, ShardId(0)));
                self.tally.retried += retried.map_or(0, |(files, _)| files);
            }
            _ => {}
        }
    }

    fn state_of(&mut self, id: CampaignId) -> Option<CampaignState> {
        let campaign = self.store.transact(|rows| rows.campaign(id));
        campaign.ok().flatten().map(|campaign| campaign.state)
    }

    /// Nothing goes wrong any more, and nothing is held back.
    fn calm_down(&mut self) {
        self.calm = true;
        self.away_until = 0;
        for id in self.campaigns.clone() {
            if self.state_of(id) == Some(CampaignState::Held) {
                self.store(None, |rows| release(rows, id));
            }
        }
    }

    fn turn(&mut self) {
        let longest = if self.rng.one_in(8) { 20 * SECOND } else { 2 * SECOND };
        self.time += self.rng.below(longest);
        self.store.now = Micros(self.time.saturating_add_signed(self.clock));
        self.destination.now = self.time;
        self.act();
        if let Some(before) = self.losing.take() {
            self.restore(before);
            self.tally.lost += 1;
        }
    }

    /// One of the actors has its turn.
    fn act(&mut self) {
        match self.rng.below(10) {
            0 | 1 => {
                let (daemon, chance) = (self.rng.index(2), self.rng.next());
                self.destination.step(daemon, chance);
            }
            2 => {
                let leader = self.rng.index(2);
                self.step_leader(leader);
            }
            _ => {
                let mover = self.rng.index(self.movers.len());
                self.step_mover(mover);
                let (daemon, chance) = (self.rng.index(2), self.rng.next());
                self.destination.step(daemon, chance);
            }
        }
    }

    fn step_leader(&mut self, at: usize) {
        let (who, known, paused_until) = self.leaders[at];
        if paused_until > self.time && !self.calm {
            return;
        }
        let term = if known.is_none() || self.rng.one_in(2) {
            self.store(None, |rows| lead(rows, who)).flatten()
        } else {
            known
        };
        self.leaders[at].1 = term;
        let Some(term) = term else { return };
        match self.store_as(None, Some(term), |rows| schedule(rows, who, term)) {
            Some(Some(scheduled)) => {
                self.tally.lapsed += scheduled.lapsed;
                if term < self.highest_term {
                    self.breaks(format!("the leader of term {term} had a turn after that of {}", self.highest_term));
                }
                self.highest_term = term;
                self.check_leases();
            }
            Some(None) => {
                self.tally.stale += 1;
                self.leaders[at].1 = None;
            }
            None => {}
        }
    }

    /// A transaction. `None` if the store is away, or its answer was lost on the way.
    pub(crate) fn store<T>(
        &mut self,
        claim: Option<Claim>,
        work: impl Fn(&mut dyn Rows) -> Result<T, JobsError>,
    ) -> Option<T> {
        self.store_as(claim, None, work)
    }

    fn store_as<T>(
        &mut self,
        claim: Option<Claim>,
        term: Option<u64>,
        work: impl Fn(&mut dyn Rows) -> Result<T, JobsError>,
    ) -> Option<T> {
        if self.away_until > self.time {
            return None;
        }
        let mutant = self.mutant;
        let mut steps = Vec::new();
        let result = self.store.transact(|rows| {
            let mut bent = Bent::new(rows, mutant);
            bent.believed = claim.filter(|_| mutant == Some(Mutant::AnybodyReports));
            bent.term = term;
            let result = work(&mut bent);
            steps = bent.steps;
            result
        });
        self.tally.steps.extend(steps);
        let result = match result {
            Ok(result) => result,
            Err(error) => {
                self.breaks(format!("a rule failed: {error}"));
                return None;
            }
        };
        self.check_rows();
        (self.calm || !self.rng.one_in(50)).then_some(result)
    }

    fn is_through(&self) -> bool {
        let settled = |kind: ShardKind| kind.is_settled() || kind == ShardKind::Held;
        self.store.all_shards().all(|shard| settled(shard.state.kind()))
            && self.movers.iter().all(|mover| mover.holding.is_none())
    }
}
