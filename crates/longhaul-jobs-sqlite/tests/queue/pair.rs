//! A store and the one in memory, side by side: each rule gives the same answer over both, and
//! leaves the same rows. The tests of each backend use it.
//!
//! In: a store, and seeds, each a long series of calls of all rules. Out: the first difference.
//! Must not know which of the two is right, nor which backend it is.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use longhaul_core::{Blame, FaultCode, PlainText};
use longhaul_jobs::left::left;
use longhaul_jobs::queue::{
    Admission, Ask, Beat, BreakPlace, CampaignWish, Change, FileFault, FoundBad, LinkWish, NewCampaign, Outcome,
    Report, Selection, Telling, VerifyAsk, VerifyNews, VerifyNext, VerifyTurn, add_campaign, add_commit, add_segment,
    beat, begin_campaign, cancel, claim_among, finish, hold, lead, link_between, link_figures, note_omitted,
    note_verified, queue_id, raise, release, retry, schedule_among, set_campaign, set_link, set_link_state,
    settle_notice, take_back_segments, take_notice, take_to_verify, verify_figures,
};
use longhaul_jobs::{
    Amount, BadKind, Calendar, Campaign, CampaignId, CampaignSignature, Claim, ClaimId, Cut, Fence, Hold, HookKey,
    JobsError, LinkId, LinkState, ManifestSignature, Memory, Micros, MoverId, OmittedName, PermitPlace, Priority,
    QueueId, Rows, Segment, ShardId, ShardKind, SiteId, Store, Weight,
};

use crate::random::{Random, begin};

const VERIFY_NEXT: [VerifyNext; 4] =
    [VerifyNext::GoesOn, VerifyNext::GivesBack, VerifyNext::Fails, VerifyNext::IsThrough];

/// The time at which a seed begins.
pub(crate) const START: u64 = 1_700_000_000_000_000;

struct Pair<S> {
    memory: Memory,
    store: S,
    clock: Arc<AtomicU64>,
    random: Random,
    link: LinkId,
    campaigns: Vec<CampaignId>,
    /// Claims that were given out, old ones too.
    claims: Vec<(ShardId, Claim)>,
}

/// The admission of all campaigns but one.
struct AllBut(Option<CampaignId>);

impl Admission for AllBut {
    fn admits(&self, _: &mut dyn Rows, campaign: &Campaign) -> Result<bool, JobsError> {
        Ok(self.0 != Some(campaign.id))
    }
}

impl<S: Store> Pair<S> {
    /// The same transaction in both.
    fn both<T: Debug>(&mut self, work: impl Fn(&mut dyn Rows) -> Result<T, JobsError>) -> Option<T> {
        let said = |result: &Result<T, JobsError>| match result {
            Ok(value) => format!("{value:?}"),
            Err(error) => format!("error: {error}"),
        };
        let (one, two) = (self.memory.transact(&work), self.store.transact(&work));
        assert_eq!(said(&one), said(&two));
        one.ok()
    }

    fn step(&mut self) {
        let (link, chance) = (self.link, self.random.next());
        let campaign = self.campaigns[self.random.below(self.campaigns.len() as u64) as usize];
        let (shard, known) = *self.pick();
        match self.random.below(24) {
            0..4 => {
                let who = MoverId([self.random.below(2) as u8; 16]);
                let term = self.both(|rows| lead(rows, who)).flatten().unwrap_or(self.random.below(3));
                let others = (self.random.below(3) == 0).then_some(campaign);
                self.both(|rows| schedule_among(rows, who, term, &AllBut(others)));
            }
            4..9 => {
                let ask = Ask { mover: MoverId([9; 16]), links: &[link], id: ClaimId(self.random.id()) };
                let others = (self.random.below(3) == 0).then_some(campaign);
                let granted = self.both(|rows| claim_among(rows, &ask, &AllBut(others))).flatten();
                self.claims.extend(granted.map(|granted| (granted.shard.id, granted.shard.claim)));
            }
            9..12 => {
                let files = self.random.below(12);
                let news = Beat {
                    shard,
                    claim: known,
                    done: Amount { files, bytes: files * 10 },
                    moved: self.random.below(200),
                };
                self.both(|rows| beat(rows, &news));
            }
            12..18 => {
                let is_commit = self.memory.all_shards().any(|row| row.id == shard && row.part.is_commit());
                let (outcome, files) = if is_commit { (Outcome::Through(vec![]), 0) } else { self.outcome() };
                let done = Amount { files, bytes: files * 10 };
                let (moved, unclaimed) = (self.random.below(200), self.random.below(2) == 0);
                let report = Report { shard, claim: known, done, moved, outcome, unclaimed, chance };
                self.both(|rows| finish(rows, &report));
            }
            18 => {
                let (kept, fresh) = (Fence(self.random.below(20)), ClaimId(self.random.id()));
                let raised = self.both(|rows| raise(rows, (shard, known), kept, fresh)).flatten();
                self.claims.extend(raised.map(|claim| (shard, claim)));
            }
            19 => {
                let state = [LinkState::Open, LinkState::Drain, LinkState::Closed(Some(FaultCode::Denied))];
                let state = state[self.random.below(3) as usize];
                self.both(|rows| set_link_state(rows, link, state));
                self.both(|rows| set_link_state(rows, link, LinkState::Open));
                self.give_rules(campaign, chance);
            }
            20 => {
                self.both(|rows| hold(rows, campaign));
            }
            21 => {
                self.both(|rows| release(rows, campaign));
            }
            22 => {
                let selection = [Selection::All, Selection::Code(FaultCode::NotFound)][self.random.below(2) as usize];
                self.both(|rows| retry(rows, campaign, selection, ShardId(0)));
            }
            _ if self.random.below(20) == 0 => {
                self.both(|rows| cancel(rows, campaign));
            }
            _ => {}
        }
        self.tell_hooks();
        self.sign(campaign);
        self.verify(campaign);
        self.both(|rows| left(rows, campaign));
    }

    /// Gives the link and a campaign other rules.
    fn give_rules(&mut self, campaign: CampaignId, chance: u64) {
        let hours: Calendar = "in UTC: nights 8 Mbit/s, else 1 Mbit/s".parse().unwrap();
        let calendar = [Change::Keep, Change::Remove, Change::Set(hours)][chance as usize % 3].clone();
        let (movers, rate) =
            (NonZero::new(2 + chance as u32 % 2), [Change::Remove, Change::Set(chance % 1_000_000 + 1)]);
        let of_link =
            LinkWish { movers, rate: rate[chance as usize % 2], calendar: calendar.clone(), ..LinkWish::default() };
        let link = self.link;
        self.both(|rows| {
            set_link(rows, link, &of_link)?;
            link_figures(rows, link)
        });
        let of_campaign = CampaignWish {
            priority: Priority::new((chance % 10) as u8),
            weight: Weight::new((chance % 1000 + 1) as u16),
            deadline: [Change::Remove, Change::Set(Micros(START + chance % (1 << 40)))][chance as usize % 2],
            calendar,
            retry: Change::Set("changed=3, denied=1".parse().unwrap()),
        };
        self.both(|rows| set_campaign(rows, campaign, &of_campaign));
        self.both(|rows| rows.campaign(campaign));
        let names = (["from".to_owned()], ["to".to_owned()]);
        self.both(|rows| link_between(rows, (&names.0, &names.1)));
    }

    /// Signs a campaign anew, before or behind its planning, and has the one site belong to the
    /// other, or not.
    fn sign(&mut self, campaign: CampaignId) {
        let (queue, at) = (QueueId(self.random.id()), Micros(self.random.below(1 << 40)));
        let manifest = (self.random.below(2) == 0).then(|| {
            let roots = (0..self.random.below(3)).map(|root| [root as u8; 32]).collect();
            ManifestSignature { roots, signature: [self.random.below(256) as u8; 64] }
        });
        let owner = [self.random.below(256) as u8; 32];
        let signature = CampaignSignature { campaign, owner, at, spec: [7; 64], manifest };
        let (host, above) = (SiteId(1), (self.random.below(2) == 0).then_some(SiteId(2)));
        self.both(|rows| {
            rows.put_site_above(host, above)?;
            let before = (rows.signature(campaign)?, queue_id(rows, queue)?, rows.site_above(host)?);
            rows.put_signature(&signature)?;
            Ok((before, rows.signature(campaign)?, queue_id(rows, queue)?))
        });
    }

    /// Reads a part of a shard, finds some files bad, and has some copied anew.
    fn verify(&mut self, campaign: CampaignId) {
        let ask =
            VerifyAsk { campaign, cycle: Duration::from_secs(300), begun: Micros(0), id: ClaimId(self.random.id()) };
        let turn = self.both(|rows| take_to_verify(rows, &ask));
        self.both(|rows| verify_figures(rows, campaign, ask.cycle));
        let Some(VerifyTurn::Shard(given)) = turn else { return };
        let next = VERIFY_NEXT[self.random.below(4) as usize];
        let path = |at: u64| vec![b'/', 255, at as u8];
        let kind = BadKind::ALL[self.random.below(4) as usize];
        let found = |at| FoundBad { path: path(at), bytes: 10, kind, message: PlainText::from("it is bad") };
        // Sometimes more of them than have rows.
        let count = [0, 0, 1, 103][self.random.below(4) as usize];
        let bad = (5..5 + count).map(found).collect();
        let id = [ask.id, ClaimId([1; 16])][usize::from(self.random.below(8) == 0)];
        let entry = self.random.below(10);
        let news = VerifyNews { shard: given.shard.id, id, entry, well: vec![path(0), path(4)], bad, next };
        self.both(|rows| note_verified(rows, &news));
    }

    /// Takes a notice, and says how it went, or nothing, as a mover does that dies.
    fn tell_hooks(&mut self) {
        let hooks = ["none", "chat", "mail"].map(|key| HookKey::new(key).unwrap());
        let (taker, chance) = (ClaimId(self.random.id()), self.random.next());
        let taken = self.both(|rows| take_notice(rows, &hooks, (taker, Duration::from_secs(30)))).flatten();
        let Some(taken) = taken else { return };
        let words = PlainText::from("it says no");
        let telling = match self.random.below(4) {
            0 => Telling::Told,
            1 => Telling::Failed { words, tries_max: 2, chance },
            2 => Telling::HandedBack,
            _ => return,
        };
        self.both(|rows| settle_notice(rows, &taken.notice, &telling));
    }

    /// A claim that was given out, mostly one of the last.
    fn pick(&mut self) -> &(ShardId, Claim) {
        let farthest = if self.random.below(4) == 0 { 20 } else { 3 };
        let back = self.random.below(farthest);
        let last = self.claims.len() - 1;
        &self.claims[last.saturating_sub(back as usize)]
    }

    fn outcome(&mut self) -> (Outcome, u64) {
        let codes = [FaultCode::NotFound, FaultCode::Changed, FaultCode::Mismatch, FaultCode::Lost, FaultCode::Denied];
        let code = codes[self.random.below(5) as usize];
        match self.random.below(8) {
            0 => {
                let at = [BreakPlace::Link, BreakPlace::Host, BreakPlace::Shard][self.random.below(3) as usize];
                let (code, welcome) = (codes[self.random.below(4) as usize], self.random.below(2) == 0);
                (Outcome::Broken { code, at, welcome }, 0)
            }
            1 => (Outcome::HandedBack, self.random.below(10)),
            2 => (Outcome::Alike(Hold::Alike { code, alike: 8, of: 10 }), 0),
            _ => {
                let failed = self.random.below(4);
                let message = PlainText::from("it failed");
                let fault = |at: u64| {
                    let path = vec![b'/', 255, at as u8];
                    FileFault { path, bytes: 10, code, blame: Blame::Peer, message: message.clone() }
                };
                (Outcome::Through((0..failed).map(fault).collect()), 10 - failed)
            }
        }
    }

    /// A campaign that is being planned, with names that could not be read.
    fn omit_names(&mut self) {
        let new = NewCampaign { name: "planning".to_owned(), ..NewCampaign::default() };
        let campaign = self.both(|rows| add_campaign(rows, &new)).unwrap();
        let name = |at: u64| {
            let (object, message) = (PlainText::of(format_args!("a/{at}")), PlainText::from("it cannot be read"));
            OmittedName { campaign, source: at % 2, object, code: FaultCode::Denied, message }
        };
        let names: Vec<_> = (0..5).map(name).collect();
        self.both(|rows| note_omitted(rows, campaign, 7, &names)).unwrap();
        let segment = |number| Segment { campaign, number, digest: [7; 32], total: Amount { files: 2, bytes: 20 } };
        let cuts = [Cut { first: 0, end: 2, total: Amount { files: 2, bytes: 20 } }];
        let link = self.link;
        for number in 0..3 {
            self.both(|rows| add_segment(rows, &segment(number), link, &cuts)).unwrap();
        }
        self.both(|rows| take_back_segments(rows, campaign, &[0, 2])).unwrap();
        let kept = self.both(|rows| Ok((rows.segments(campaign)?, rows.shard_sums(campaign)?))).unwrap();
        assert_eq!((kept.0.len(), kept.1[0].shards), (1, 1));
        self.campaigns.push(campaign);
        self.both(|rows| left(rows, campaign));
    }

    /// A campaign of one shard whose files appear together.
    fn commit_one(&mut self) {
        let new = NewCampaign { name: "dataset".to_owned(), ..NewCampaign::default() };
        let total = Amount { files: 10, bytes: 100 };
        let link = self.link;
        let campaign = self.both(|rows| {
            let campaign = add_campaign(rows, &new)?;
            let segment = Segment { campaign, number: 0, digest: [7; 32], total };
            add_segment(rows, &segment, link, &[Cut { first: 0, end: 10, total }])?;
            add_commit(rows, campaign, link)?;
            begin_campaign(rows, campaign)?;
            Ok(campaign)
        });
        self.campaigns.push(campaign.unwrap());
    }

    /// All rows, in both.
    fn compare(&mut self) {
        let campaigns = self.campaigns.clone();
        self.both(|rows| Ok((rows.campaigns()?, rows.sites()?, rows.links()?, rows.leader()?)));
        self.both(|rows| rows.campaign_ids());
        self.both(|rows| {
            let places = [PermitPlace::Link(LinkId(3)), PermitPlace::From(SiteId(1)), PermitPlace::To(SiteId(2))];
            places.into_iter().map(|place| rows.permits(place)).collect::<Result<Vec<_>, _>>()
        });
        for campaign in campaigns {
            self.both(|rows| rows.share_used(campaign, LinkId(3)));
            self.both(|rows| Ok((rows.segments(campaign)?, rows.shard_sums(campaign)?, rows.fault_sums(campaign)?)));
            self.both(|rows| Ok((rows.omitted(campaign)?, rows.commit_of(campaign)?)));
            self.both(|rows| rows.bad_sums(campaign));
            self.both(|rows| Ok((rows.bad_shard(campaign, ShardId(0))?, rows.bad_shard(campaign, ShardId(2))?)));
            self.both(|rows| {
                let all = rows.notices(campaign, 7, 1000)?;
                rows.trim_waiting(campaign, &HookKey::new("chat").unwrap(), 2)?;
                Ok((all, rows.notices(campaign, 7, 1000)?))
            });
            for kind in ShardKind::ALL {
                let shards = self.both(|rows| rows.shards(campaign, kind, ShardId(0), 1000)).unwrap();
                for shard in shards {
                    self.both(|rows| Ok((rows.faults_of(shard.id)?, rows.permits_of(shard.id)?)));
                    self.both(|rows| Ok((rows.verification(shard.id)?, rows.bad_files_of(shard.id)?)));
                }
            }
        }
    }
}

/// Plays a seed over a store whose time is that of `clock`, and gives the states that shards came
/// to.
pub(crate) fn play<S: Store>(seed: u64, mut store: S, clock: Arc<AtomicU64>) -> BTreeSet<ShardKind> {
    let mut memory = Memory::at(Micros(START));
    let (link, campaigns) = memory.transact(|rows| begin(rows, 2, 6)).unwrap();
    store.transact(|rows| begin(rows, 2, 6)).unwrap();
    let (random, claims) = (Random(seed), vec![(ShardId(5), Claim::default())]);
    let mut pair = Pair { memory, store, clock, random, link, campaigns, claims };
    pair.omit_names();
    pair.commit_one();
    for _ in 0..150 {
        let pause = [0, 1, 5, 20, 70][pair.random.below(5) as usize] * 1_000_000;
        pair.memory.now = Micros(pair.memory.now.0 + pause);
        pair.clock.store(pair.memory.now.0, Ordering::Relaxed);
        pair.step();
    }
    pair.compare();
    pair.memory.all_shards().map(|shard| shard.state.kind()).collect()
}
