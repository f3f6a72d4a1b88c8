//! Campaigns that wait for their turn on one or two links, with the real scheduler and a store in
//! memory; nothing goes wrong but what users do.
//!
//! In: a seed, and a bug to plant. Out: what happened, or the first broken promise. A shard becomes
//! ready only in open hours, only while there is room, and only if no campaign with a deadline at
//! risk, or else of a higher priority, has another one; campaigns of one priority are served by
//! their weights, within one shard of each. It is claimed in open hours, before what became ready
//! later. Whoever is of a higher priority therefore waits for no more than the room of its link,
//! which was given away before. Must not know how the scheduler counts.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::num::NonZero;

use longhaul_jobs::queue::{
    Ask, Granted, LinkLimits, NewCampaign, Outcome, Report, SiteLimits, add_campaign, add_link, add_segment, add_site,
    begin_campaign, claim, finish, hold, lead, release, schedule,
};
use longhaul_jobs::{
    Amount, Campaign, CampaignId, CampaignState, Cut, JobsError, Link, LinkId, Memory, Micros, MoverId, Priority, Rows,
    Segment, Shard, ShardState, Store, Weight,
};

use crate::bent::Bent;
use crate::hours::{Closed, Hours};
use crate::mutants::Mutant;
use crate::world::{Rng, SECOND, START};

const ORDER_STEPS: u32 = 90;
/// Shards of each campaign on each link: more than are claimed in a world.
const SHARDS: u64 = 40;
const SHARD_BYTES: u64 = 100_000;
/// Campaigns of a world, those that join later included.
const CAMPAIGNS: usize = 5;
/// The lowest of the weights.
const WEIGHT_LEAST: u64 = 50;
const LEADER: MoverId = MoverId([9; 16]);

/// Events, of one world or of all.
#[derive(Clone, Debug, Default)]
pub(crate) struct OrderTally {
    pub(crate) readied: u64,
    pub(crate) claimed: u64,
    pub(crate) closed: u64,
    pub(crate) urgent: u64,
    pub(crate) preferred: u64,
    pub(crate) shared: u64,
    pub(crate) joined: u64,
}

impl OrderTally {
    pub(crate) fn add(&mut self, other: &OrderTally) {
        self.readied += other.readied;
        self.claimed += other.claimed;
        self.closed += other.closed;
        self.urgent += other.urgent;
        self.preferred += other.preferred;
        self.shared += other.shared;
        self.joined += other.joined;
    }
}

/// The rules by which campaigns of a world differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OrderKind {
    /// By priorities and weights: shares are exact.
    Plain,
    /// By deadlines and hours too.
    Full,
}

/// The place of a campaign among others: its deadline, if that is at risk, and its priority. Less
/// is earlier.
type Urgent = (bool, u64, Reverse<u8>);

/// The share that each of two campaigns of a link had since both of them wait there.
#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    served: [u64; 2],
    shards: u64,
}

struct OrderWorld {
    rng: Rng,
    kind: OrderKind,
    mutant: Option<Mutant>,
    store: Memory,
    links: Vec<LinkId>,
    campaigns: Vec<CampaignId>,
    hours: Hours,
    held: Option<CampaignId>,
    granted: Vec<Granted>,
    pairs: BTreeMap<(LinkId, CampaignId, CampaignId), Pair>,
    tally: OrderTally,
}

/// Plays a world.
pub(crate) fn play_order(seed: u64, mutant: Option<Mutant>) -> Result<OrderTally, String> {
    let mut rng = Rng::of(seed);
    let kind = if rng.one_in(2) { OrderKind::Plain } else { OrderKind::Full };
    let mut world = OrderWorld {
        rng,
        kind,
        mutant,
        store: Memory::at(Micros(START)),
        links: Vec::new(),
        campaigns: Vec::new(),
        hours: Hours::default(),
        held: None,
        granted: Vec::new(),
        pairs: BTreeMap::new(),
        tally: OrderTally::default(),
    };
    world.set_up().map_err(|error| error.to_string())?;
    (0..ORDER_STEPS).try_for_each(|_| world.step())?;
    Ok(world.tally)
}

impl OrderWorld {
    fn set_up(&mut self) -> Result<(), JobsError> {
        let many = NonZero::new(99).unwrap_or(NonZero::<u32>::MIN);
        let limits = SiteLimits { movers_in: many, movers_out: many };
        let sites = ["near", "far"].map(|name| self.store.transact(|rows| add_site(rows, name, limits)));
        let [near, far] = sites;
        let ends = (near?, far?);
        for _ in 0..1 + self.rng.below(2) {
            let movers = NonZero::new(1 + self.rng.below(3) as u32).unwrap_or(NonZero::<u32>::MIN);
            let closed = Closed::drawn(&mut self.rng, 3);
            let limits = LinkLimits { movers, rate: self.rng.one_in(3).then_some(1_000_000) };
            let link = self.store.transact(|rows| add_link(rows, ends, limits, &closed.calendar()))?;
            self.hours.links.insert(link, closed);
            self.links.push(link);
        }
        for _ in 0..2 + self.rng.below(2) {
            self.add()?;
        }
        Ok(())
    }

    /// A campaign joins.
    fn add(&mut self) -> Result<(), JobsError> {
        let is_full = self.kind == OrderKind::Full;
        let pick = |rng: &mut Rng, all: &[u16]| all[rng.index(all.len())];
        let closed = if is_full { Closed::drawn(&mut self.rng, 3) } else { Closed::default() };
        let deadline = is_full && self.rng.one_in(3);
        let new = NewCampaign {
            name: format!("campaign {}", self.campaigns.len()),
            priority: Priority::new(pick(&mut self.rng, &[5, 5, 8]) as u8).unwrap_or_default(),
            weight: Weight::new(pick(&mut self.rng, &[50, 100, 200, 400])).unwrap_or_default(),
            deadline: deadline.then(|| Micros(self.store.now.0 + self.rng.below(900) * SECOND)),
            calendar: closed.calendar(),
            ..NewCampaign::default()
        };
        let bytes: Vec<u64> = (0..SHARDS).map(|_| SHARD_BYTES / 2 + self.rng.below(SHARD_BYTES / 2)).collect();
        let links = self.links.clone();
        let id = self.store.transact(|rows| {
            let id = add_campaign(rows, &new)?;
            for (number, link) in (0..).zip(&links) {
                let total = Amount { files: SHARDS, bytes: bytes.iter().sum() };
                let segment = Segment { campaign: id, number, digest: [0; 32], total };
                let cut = |(first, bytes): (u64, &u64)| Cut {
                    first,
                    end: first + 1,
                    total: Amount { files: 1, bytes: *bytes },
                };
                let cuts: Vec<Cut> = (0..).zip(&bytes).map(cut).collect();
                add_segment(rows, &segment, *link, &cuts)?;
            }
            begin_campaign(rows, id)?;
            Ok(id)
        })?;
        self.hours.campaigns.insert(id, closed);
        self.campaigns.push(id);
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        let failed = |error: JobsError| error.to_string();
        self.store.now = Micros(self.store.now.0 + self.rng.below(5) * SECOND);
        match self.rng.below(16) {
            0..=3 => self.turn(),
            4..=9 => self.claim(),
            10..=12 => self.finish(),
            13 => {
                let pass = if self.rng.one_in(4) { 120 } else { 20 };
                self.store.now = Micros(self.store.now.0 + pass * SECOND);
                Ok(())
            }
            14 if self.campaigns.len() < CAMPAIGNS => {
                self.tally.joined += 1;
                self.add().map_err(failed)
            }
            _ => self.hold_or_release().map_err(failed),
        }
    }

    /// A user holds a campaign, or releases the one that is held. What others had meanwhile is not
    /// made up for.
    fn hold_or_release(&mut self) -> Result<(), JobsError> {
        let id = match self.held.take() {
            Some(id) => {
                self.tally.joined += 1;
                self.store.transact(|rows| release(rows, id))?;
                id
            }
            None => {
                let id = self.campaigns[self.rng.index(self.campaigns.len())];
                // One that alone is of its priority is behind nobody when it comes back, and those
                // that joined meanwhile are behind it.
                if self.kind == OrderKind::Plain && !self.has_peer(id)? {
                    return Ok(());
                }
                self.store.transact(|rows| hold(rows, id))?;
                self.held = Some(id);
                id
            }
        };
        self.pairs.retain(|(_, one, two), _| *one != id && *two != id);
        Ok(())
    }

    /// Whether another campaign of a campaign's priority waits beside it.
    fn has_peer(&mut self, id: CampaignId) -> Result<bool, JobsError> {
        let campaigns = self.store.transact(|rows| rows.campaigns())?;
        let own = campaigns.iter().find(|campaign| campaign.id == id).map(|campaign| campaign.priority);
        Ok(campaigns.iter().any(|other| other.id != id && Some(other.priority) == own))
    }

    /// A transaction of the rules.
    fn rules<T>(&mut self, work: impl Fn(&mut dyn Rows) -> Result<T, JobsError>) -> Result<T, String> {
        let mutant = self.mutant;
        self.store.transact(|rows| work(&mut Bent::new(rows, mutant))).map_err(|error| error.to_string())
    }

    fn finish(&mut self) -> Result<(), String> {
        if self.granted.is_empty() {
            return Ok(());
        }
        let at = self.rng.index(self.granted.len());
        let Granted { shard, .. } = self.granted.swap_remove(at);
        let (outcome, chance) = (Outcome::Through(Vec::new()), self.rng.next());
        let (done, moved) = (shard.total, shard.total.bytes);
        let report = Report { shard: shard.id, claim: shard.claim, done, moved, outcome, unclaimed: false, chance };
        self.rules(|rows| finish(rows, &report)).map(drop)
    }

    fn claim(&mut self) -> Result<(), String> {
        let mut links = self.links.clone();
        let by = self.rng.index(links.len());
        links.rotate_left(by);
        let (id, mover) = (self.rng.claim_id(), MoverId([1; 16]));
        let Some(granted) = self.rules(|rows| claim(rows, &Ask { mover, links: &links, id }))? else { return Ok(()) };
        let shard = &granted.shard;
        let mut ready = self.store.all_shards().filter(|other| other.link == shard.link && is_ready(other));
        if let Some(other) = ready.find(|other| other.turn.rank < shard.turn.rank) {
            return Err(format!("{:?} was claimed before {:?}", shard.id, other.id));
        }
        if self.hours.are_closed(shard, self.store.now) {
            return Err(format!("{:?} was claimed in closed hours", shard.id));
        }
        if self.held == Some(shard.campaign) {
            return Err(format!("{:?} was claimed, and its campaign is held", shard.id));
        }
        self.tally.claimed += 1;
        self.granted.push(granted);
        Ok(())
    }

    /// A leader's turn, and what it may have done.
    fn turn(&mut self) -> Result<(), String> {
        let (links, campaigns) = self.store.transact(|rows| Ok((rows.links()?, rows.campaigns()?))).map_err(text)?;
        let before = self.store.clone();
        let scheduled = self.rules(|rows| {
            let Some(term) = lead(rows, LEADER)? else { return Ok(None) };
            schedule(rows, LEADER, term)
        })?;
        if scheduled.is_none() {
            return Err("the only leader does not lead".to_owned());
        }
        // Those whose leases had lapsed wait again in this turn.
        let is_taken_back = |shard: &Shard| matches!(shard.state, ShardState::Planned | ShardState::Ready);
        let waited = |shard: &&Shard| match shard.state {
            ShardState::Planned => true,
            ShardState::Leased(_) => self.store.all_shards().any(|now| now.id == shard.id && is_taken_back(now)),
            _ => false,
        };
        let waiting: Vec<Shard> = before.all_shards().filter(waited).cloned().collect();
        let readied = self.store.all_shards().filter(|shard| is_ready(shard));
        let waited = |shard: &&Shard| waiting.iter().any(|was| was.id == shard.id);
        let mut readied: Vec<Shard> = readied.filter(waited).cloned().collect();
        readied.sort_by_key(|shard| shard.turn.rank);
        for link in &links {
            let of_link: Vec<&Shard> = readied.iter().filter(|shard| shard.link == link.id).collect();
            self.check_link(link, &campaigns, (&before, &waiting, &of_link))?;
        }
        Ok(())
    }

    /// Holds the promises of a link: `before` is the store before a turn, `waiting` are the shards
    /// that were planned then, and `readied` are those that became ready, in their order.
    fn check_link(
        &mut self,
        link: &Link,
        campaigns: &[Campaign],
        (before, waiting, readied): (&Memory, &[Shard], &[&Shard]),
    ) -> Result<(), String> {
        let now = self.store.now;
        let mut planned: BTreeMap<CampaignId, u64> = BTreeMap::new();
        let of_link = |shard: &&Shard| shard.link == link.id;
        let (mut open, mut is_closed) = (BTreeMap::new(), false);
        for shard in waiting.iter().filter(of_link) {
            let campaign = campaigns.iter().find(|campaign| campaign.id == shard.campaign);
            let Some(campaign) = campaign.filter(|campaign| campaign.state == CampaignState::Running) else { continue };
            if self.hours.are_closed(shard, now) {
                is_closed = true;
                continue;
            }
            *planned.entry(campaign.id).or_default() += 1;
            open.entry(campaign.id).or_insert_with(|| urgency(campaign, link, before));
        }
        self.tally.closed += u64::from(is_closed);
        let contended = planned.clone();
        for shard in readied {
            let Some(own) = open.get(&shard.campaign).copied() else {
                return Err(format!("{:?} became ready, and its campaign or its link stands still", shard.id));
            };
            let mut others = open.iter().filter(|(id, _)| planned.get(*id).is_some_and(|left| *left > 0));
            if let Some((other, urgent)) = others.find(|(_, urgent)| **urgent < own) {
                return Err(format!("{:?} of {own:?} became ready before one of {other:?}, {urgent:?}", shard.id));
            }
            planned.entry(shard.campaign).and_modify(|left| *left -= 1);
            self.tally.readied += 1;
            self.tally.urgent += u64::from(!own.0);
            self.tally.preferred += u64::from(open.values().any(|urgent| *urgent > own));
        }
        let ready = self.store.all_shards().filter(of_link).filter(|shard| is_ready(shard)).count() as u64;
        let (room, is_more) = (u64::from(link.movers) * 2, planned.values().any(|left| *left > 0));
        if ready < room && is_more || ready > room && !readied.is_empty() {
            return Err(format!("{ready} shards are ready on {:?} with room for {room}", link.id));
        }
        if self.kind == OrderKind::Plain {
            let even: Vec<_> = open.keys().filter(|id| contended[*id] > 0 && planned[*id] > 0).copied().collect();
            self.check_shares(link.id, campaigns, (&even, readied))?;
        }
        Ok(())
    }

    /// Campaigns of one priority that waited on a link before a turn, and do so behind it, were
    /// served by their weights.
    fn check_shares(
        &mut self,
        link: LinkId,
        campaigns: &[Campaign],
        (even, readied): (&[CampaignId], &[&Shard]),
    ) -> Result<(), String> {
        let find = |id: &CampaignId| campaigns.iter().find(|campaign| campaign.id == *id);
        self.pairs.retain(|(of, one, two), _| *of != link || even.contains(one) && even.contains(two));
        for (at, one) in even.iter().enumerate() {
            for two in &even[at + 1..] {
                let (Some(first), Some(second)) = (find(one), find(two)) else { continue };
                if first.priority != second.priority {
                    continue;
                }
                let pair = self.pairs.entry((link, *one, *two)).or_default();
                for shard in readied {
                    for (side, campaign) in [first, second].into_iter().enumerate() {
                        if shard.campaign == campaign.id {
                            pair.served[side] += shard.total.bytes / u64::from(campaign.weight.get());
                            pair.shards += 1;
                        }
                    }
                }
                // Each began within one shard of the other, and each shard is rounded.
                let most = 2 * (SHARD_BYTES / WEIGHT_LEAST + 1) + pair.shards;
                if pair.served[0].abs_diff(pair.served[1]) > most {
                    return Err(format!(
                        "{one:?} and {two:?} had {pair:?} on {link:?}, which differ by more than {most}"
                    ));
                }
                self.tally.shared += u64::from(pair.shards > 0);
            }
        }
        Ok(())
    }
}

fn text(error: JobsError) -> String {
    error.to_string()
}

fn is_ready(shard: &Shard) -> bool {
    shard.state == ShardState::Ready
}

/// The place of a campaign on a link: one whose deadline is to come, and needs half of the time
/// until then, goes first.
fn urgency(campaign: &Campaign, link: &Link, store: &Memory) -> Urgent {
    let usual = (true, 0, Reverse(campaign.priority.get()));
    let Some(deadline) = campaign.deadline.filter(|deadline| *deadline > store.now) else { return usual };
    let of_campaign = store.all_shards().filter(|shard| shard.link == link.id && shard.campaign == campaign.id);
    let left: u64 = of_campaign.map(|shard| shard.total.bytes - shard.done.bytes).sum();
    let rate = link.meter.rate_at(store.now);
    let until = deadline.0 - store.now.0;
    let is_at_risk = rate > 0 && u128::from(left) * 2 >= u128::from(rate) * u128::from(until) / u128::from(SECOND);
    if is_at_risk { (false, deadline.0, Reverse(campaign.priority.get())) } else { usual }
}
