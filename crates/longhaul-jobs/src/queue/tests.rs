//! The rules, one at a time, over a store in memory.
//!
//! In: small queues. Out: their rows. The model (`tests/model`) plays them all together.

use std::num::NonZero;
use std::time::Duration;

use longhaul_core::{Blame, FaultCode, PlainText};

use super::*;
use crate::ids::{Amount, CampaignId, Claim, ClaimId, Fence, LinkId, Micros, MoverId, ShardId};
use crate::left::{Left, TimeLeft, left};
use crate::memory::Memory;
use crate::plan::Cut;
use crate::rows::{CampaignState, FaultState, Hold, LinkState, OmittedName, Priority, Segment, ShardState, Weight};
use crate::store::Store;

mod commit;
mod faults;
mod notices;
mod order;
mod rules;
mod verify;

/// A queue with one link, on which so many movers may be.
struct Bench {
    store: Memory,
    link: LinkId,
    claims: u8,
}

impl Bench {
    fn new(movers: u32, rate: Option<u64>) -> Bench {
        let mut store = Memory::at(Micros(1_000_000_000_000));
        let movers = NonZero::new(movers).unwrap();
        let link = store.transact(|rows| {
            let limits = SiteLimits { movers_in: NonZero::new(100).unwrap(), movers_out: NonZero::new(100).unwrap() };
            let (from, to) = (add_site(rows, "from", limits)?, add_site(rows, "to", limits)?);
            add_link(rows, (from, to), LinkLimits { movers, rate }, &"".parse().unwrap())
        });
        Bench { store, link: link.unwrap(), claims: 0 }
    }

    /// A campaign that runs, with so many shards of ten files of ten bytes.
    fn campaign(&mut self, new: NewCampaign, shards: u64) -> CampaignId {
        let total = Amount { files: 10, bytes: 100 };
        let cuts: Vec<Cut> = (0..shards).map(|at| Cut { first: at * 10, end: at * 10 + 10, total }).collect();
        let link = self.link;
        let added = self.store.transact(|rows| {
            let campaign = add_campaign(rows, &new)?;
            let total = Amount { files: shards * 10, bytes: shards * 100 };
            let segment = Segment { campaign, number: 0, digest: [0; 32], total };
            add_segment(rows, &segment, link, &cuts)?;
            begin_campaign(rows, campaign)?;
            Ok(campaign)
        });
        added.unwrap()
    }

    fn one_campaign(shards: u64) -> (Bench, CampaignId) {
        let mut bench = Bench::new(2, None);
        let campaign = bench.campaign(named("one"), shards);
        (bench, campaign)
    }

    fn pass(&mut self, seconds: u64) {
        self.store.now = self.store.now.plus(Duration::from_secs(seconds));
    }

    fn schedule(&mut self) -> Scheduled {
        let who = MoverId([9; 16]);
        let turn = self.store.transact(|rows| {
            let term = lead(rows, who)?.unwrap();
            schedule(rows, who, term)
        });
        turn.unwrap().unwrap()
    }

    fn claim(&mut self) -> Option<Granted> {
        self.claims += 1;
        let (link, id) = ([self.link], ClaimId([self.claims; 16]));
        let ask = Ask { mover: MoverId([1; 16]), links: &link, id };
        self.store.transact(|rows| claim(rows, &ask)).unwrap()
    }

    fn must_claim(&mut self) -> Granted {
        self.schedule();
        self.claim().expect("a shard is ready")
    }

    fn beat(&mut self, of: &Granted, files: u64) -> BeatAnswer {
        let done = Amount { files, bytes: files * 10 };
        let news = Beat { shard: of.shard.id, claim: of.shard.claim, done, moved: done.bytes };
        self.store.transact(|rows| beat(rows, &news)).unwrap()
    }

    /// A heartbeat of a mover with no file that is whole, and so many bytes of one that is not.
    fn beat_moved(&mut self, of: &Granted, moved: u64) {
        let news = Beat { shard: of.shard.id, claim: of.shard.claim, done: Amount::default(), moved };
        let answer = self.store.transact(|rows| beat(rows, &news)).unwrap();
        assert_eq!(answer, BeatAnswer::GoOn(None));
    }

    fn report(&mut self, of: &Granted, files: u64, outcome: Outcome) -> Result<Finished, JobsError> {
        let done = Amount { files, bytes: files * 10 };
        let (claim, moved, unclaimed) = (of.shard.claim, done.bytes, false);
        let report = Report { shard: of.shard.id, claim, done, moved, outcome, unclaimed, chance: 0 };
        self.store.transact(|rows| finish(rows, &report))
    }

    fn finish(&mut self, of: &Granted, files: u64, outcome: Outcome) -> ShardState {
        match self.report(of, files, outcome).unwrap() {
            Finished::Recorded(state) => state,
            Finished::Gone => panic!("it is gone"),
        }
    }

    fn link(&mut self) -> crate::rows::Link {
        let link = self.link;
        self.store.transact(|rows| link_of(rows, link)).unwrap()
    }

    fn left(&mut self, campaign: CampaignId) -> Left {
        self.store.transact(|rows| left(rows, campaign)).unwrap()
    }

    fn state(&mut self, campaign: CampaignId) -> CampaignState {
        self.store.transact(|rows| campaign_of(rows, campaign)).unwrap().state
    }
}

fn named(name: &str) -> NewCampaign {
    NewCampaign { name: name.to_owned(), ..NewCampaign::default() }
}

fn fault(path: &str, code: FaultCode) -> FileFault {
    let message = PlainText::from("it failed");
    FileFault { path: path.as_bytes().to_vec(), bytes: 10, code, blame: Blame::Local, message }
}

#[test]
fn a_claim_has_a_higher_fence_each_time_and_lapses_without_heartbeats() {
    let (mut bench, _) = Bench::one_campaign(1);
    let first = bench.must_claim();
    assert_eq!(first.shard.claim.fence, Fence(1));
    assert!(bench.claim().is_none());
    bench.pass(59);
    assert_eq!(bench.beat(&first, 3), BeatAnswer::GoOn(None));
    bench.pass(59);
    assert_eq!(bench.schedule().lapsed, 0);
    bench.pass(1);
    assert_eq!(bench.schedule().lapsed, 1);
    let second = bench.must_claim();
    assert_eq!((second.shard.id, second.shard.claim.fence), (first.shard.id, Fence(2)));
    assert_eq!(bench.beat(&first, 4), BeatAnswer::Gone);
    assert_eq!(bench.report(&first, 10, Outcome::Through(vec![])).unwrap(), Finished::Gone);
    assert_eq!(bench.finish(&second, 10, Outcome::Through(vec![])), ShardState::Done);
    assert_eq!(bench.store.all_permits().count(), 0);
}

#[test]
fn a_leader_that_resigns_lets_another_one_lead_at_once_and_in_a_new_term() {
    let mut store = Memory::at(Micros(1_000_000_000_000));
    let (one, other) = (MoverId([1; 16]), MoverId([2; 16]));
    let terms = store.transact(|rows| {
        let first = lead(rows, one)?;
        resign(rows, other)?;
        let refused = lead(rows, other)?;
        resign(rows, one)?;
        Ok((first, refused, lead(rows, other)?))
    });
    assert_eq!(terms.unwrap(), (Some(1), None, Some(2)));
}

#[test]
fn a_lease_that_has_passed_is_good_as_long_as_nobody_else_was_given_the_shard() {
    let (mut bench, _) = Bench::one_campaign(1);
    let granted = bench.must_claim();
    bench.pass(3600);
    assert_eq!(bench.beat(&granted, 1), BeatAnswer::GoOn(None));
    assert_eq!(bench.schedule().lapsed, 0);
}

#[test]
fn a_shard_whose_movers_lapse_five_times_is_held_and_says_so() {
    let (mut bench, campaign) = Bench::one_campaign(1);
    for _ in 0..5 {
        bench.must_claim();
        bench.pass(61);
    }
    bench.schedule();
    let states: Vec<_> = bench.store.all_shards().map(|shard| shard.state).collect();
    assert_eq!(states, [ShardState::Held(Hold::Lapsed(5))]);
    assert_eq!(bench.left(campaign).held.files, 10);
    bench.store.transact(|rows| release(rows, campaign)).unwrap();
    bench.must_claim();
    bench.pass(61);
    bench.must_claim();
}

#[test]
fn lapses_are_counted_anew_once_a_shard_has_come_farther() {
    let (mut bench, _) = Bench::one_campaign(1);
    for files in 0..8 {
        let granted = bench.must_claim();
        if files % 4 == 3 {
            bench.beat(&granted, files);
        }
        bench.pass(61);
    }
    bench.must_claim();
}

#[test]
fn a_link_whose_movers_are_lowered_gives_out_no_permit_before_enough_have_left() {
    let (mut bench, _) = Bench::one_campaign(5);
    let (one, two) = (bench.must_claim(), bench.claim().unwrap());
    let link = crate::rows::Link { movers: 1, ..bench.link() };
    bench.store.transact(|rows| rows.put_link(&link)).unwrap();
    bench.finish(&one, 10, Outcome::Through(vec![]));
    assert!(bench.claim().is_none(), "the one that is there has the second slot");
    bench.finish(&two, 10, Outcome::Through(vec![]));
    assert!(bench.claim().is_some());
}

#[test]
fn permits_bound_the_movers_at_a_link_and_share_its_rate() {
    let mut bench = Bench::new(2, Some(1000));
    bench.campaign(named("one"), 5);
    let one = bench.must_claim();
    assert_eq!(one.rate, Some(1000));
    let two = bench.claim().unwrap();
    assert_eq!(two.rate, Some(500));
    assert!(bench.claim().is_none());
    assert_eq!(bench.beat(&one, 0), BeatAnswer::GoOn(Some(500)));
    bench.finish(&two, 10, Outcome::Through(vec![]));
    assert_eq!(bench.beat(&one, 0), BeatAnswer::GoOn(Some(1000)));
    assert!(bench.claim().is_some());
}

#[test]
fn a_claim_that_a_destination_refused_is_raised_above_the_fence_that_is_kept_there() {
    let (mut bench, _) = Bench::one_campaign(1);
    let granted = bench.must_claim();
    let (id, claim) = (granted.shard.id, granted.shard.claim);
    let mut raise_to =
        |kept, of: Claim| bench.store.transact(|rows| raise(rows, (id, of), Fence(kept), ClaimId([7; 16]))).unwrap();
    let raised = raise_to(40, claim).unwrap();
    assert_eq!(raised, Claim { fence: Fence(41), id: ClaimId([7; 16]) });
    assert_eq!(raise_to(50, claim), None, "the claim before it is no one's any more");
    assert_eq!(raise_to(i64::MAX as u64, raised), None);
    assert_eq!(bench.store.all_shards().next().unwrap().state, ShardState::Held(Hold::FenceSpent));
    assert_eq!(bench.store.all_permits().count(), 0);
}

#[test]
fn a_campaign_that_is_held_stops_its_movers_and_goes_on_when_it_is_released() {
    let (mut bench, campaign) = Bench::one_campaign(3);
    let granted = bench.must_claim();
    bench.store.transact(|rows| hold(rows, campaign)).unwrap();
    assert!(bench.store.all_shards().all(|shard| shard.state != ShardState::Ready), "they get their turn anew");
    assert_eq!(bench.beat(&granted, 2), BeatAnswer::Stop(Stopping::Campaign(CampaignState::Held)));
    assert_eq!(bench.finish(&granted, 3, Outcome::HandedBack), ShardState::Planned);
    bench.schedule();
    assert!(bench.claim().is_none());
    bench.store.transact(|rows| release(rows, campaign)).unwrap();
    bench.must_claim();
}

#[test]
fn a_campaign_that_is_cancelled_keeps_what_stands_and_ends_with_its_movers() {
    let (mut bench, campaign) = Bench::one_campaign(3);
    let granted = bench.must_claim();
    bench.store.transact(|rows| cancel(rows, campaign)).unwrap();
    assert_eq!(bench.beat(&granted, 2), BeatAnswer::Stop(Stopping::Campaign(CampaignState::Cancelled)));
    assert_eq!(bench.finish(&granted, 4, Outcome::HandedBack), ShardState::Cancelled);
    let sums = bench.left(campaign);
    assert_eq!((sums.done.files, sums.cancelled.files, sums.left.files), (4, 26, 0));
    assert!(matches!(bench.store.transact(|rows| release(rows, campaign)), Err(JobsError::WrongState { .. })));
}

#[test]
fn a_shard_of_a_cancelled_campaign_is_not_planned_again_however_its_mover_loses_it() {
    let (mut bench, campaign) = Bench::one_campaign(2);
    let mut other = NewCampaign { name: "other".to_owned(), ..NewCampaign::default() };
    other.priority = Priority::new(0).unwrap();
    bench.campaign(other, 9);
    let (one, two) = (bench.must_claim(), bench.claim().unwrap());
    bench.store.transact(|rows| cancel(rows, campaign)).unwrap();
    bench.pass(60);
    // Their permits go to others, who come before the leader sees that the leases have passed.
    bench.claim().unwrap();
    bench.claim().unwrap();
    assert_eq!(bench.beat(&one, 1), BeatAnswer::Gone);
    let refused = (two.shard.id, two.shard.claim);
    let raised = bench.store.transact(|rows| raise(rows, refused, Fence(9), ClaimId([8; 16])));
    assert_eq!(raised.unwrap(), None);
    let states: Vec<_> = bench.store.all_shards().take(2).map(|shard| shard.state).collect();
    assert_eq!(states, [ShardState::Cancelled; 2]);
}

#[test]
fn hours_that_close_stop_movers_and_let_none_begin() {
    let mut bench = Bench::new(2, None);
    // 12 days after 1970 began, at 13:46.
    let calendar = "in UTC: 13:00-14:00 open, else closed".parse().unwrap();
    bench.campaign(NewCampaign { calendar, ..named("one") }, 3);
    let granted = bench.must_claim();
    bench.pass(15 * 60);
    assert_eq!(bench.beat(&granted, 0), BeatAnswer::Stop(Stopping::Hours));
    bench.schedule();
    assert!(bench.claim().is_none());
    bench.pass(23 * 3600);
    bench.must_claim();
}

#[test]
fn a_link_that_drains_lets_movers_finish_and_a_closed_one_stops_them() {
    let (mut bench, _) = Bench::one_campaign(3);
    let granted = bench.must_claim();
    let link = bench.link;
    bench.store.transact(|rows| set_link_state(rows, link, LinkState::Drain)).unwrap();
    assert!(bench.claim().is_none());
    assert_eq!(bench.beat(&granted, 0), BeatAnswer::GoOn(None));
    bench.store.transact(|rows| set_link_state(rows, link, LinkState::Closed(None))).unwrap();
    assert_eq!(bench.beat(&granted, 0), BeatAnswer::Stop(Stopping::Link));
    bench.store.transact(|rows| set_link_state(rows, link, LinkState::Open)).unwrap();
    assert!(bench.claim().is_some());
}

#[test]
fn what_is_left_is_exact_and_takes_time_at_the_present_rate() {
    let (mut bench, campaign) = Bench::one_campaign(3);
    let before = bench.left(campaign);
    assert_eq!((before.left, before.time), (Amount { files: 30, bytes: 300 }, TimeLeft::StandsStill));
    let granted = bench.must_claim();
    bench.beat(&granted, 0);
    bench.pass(59);
    bench.beat(&granted, 6);
    bench.pass(1);
    bench.beat(&granted, 6);
    // 60 bytes in 60 s.
    let sums = bench.left(campaign);
    assert_eq!((sums.links[0].rate, sums.left.bytes), (1, 240));
    assert_eq!(sums.time, TimeLeft::Takes(Duration::from_secs(240)));
    bench.pass(121);
    assert_eq!(bench.left(campaign).time, TimeLeft::StandsStill);
}

#[test]
fn bytes_of_a_file_that_is_not_whole_count_for_the_rate_and_against_lapses_and_not_for_the_sums() {
    let (mut bench, campaign) = Bench::one_campaign(1);
    for _ in 0..9 {
        let granted = bench.must_claim();
        bench.beat_moved(&granted, 0);
        bench.pass(30);
        bench.beat_moved(&granted, 6000);
        bench.pass(30);
        bench.beat_moved(&granted, 6000);
        assert_eq!(bench.link().meter.rate_at(bench.store.now), 100, "6000 bytes in a minute");
        let sums = bench.left(campaign);
        assert_eq!((sums.done.files, sums.left.bytes, sums.time), (0, 100, TimeLeft::Takes(Duration::from_secs(1))));
        bench.pass(61);
        bench.schedule();
    }
    assert_eq!(bench.store.all_shards().next().unwrap().tries.lapses, 1);
    let granted = bench.must_claim();
    bench.beat_moved(&granted, u64::MAX);
    bench.beat_moved(&granted, 5);
}

#[test]
fn bytes_of_a_file_that_is_not_whole_end_the_back_off_of_a_link() {
    let (mut bench, _) = Bench::one_campaign(9);
    let granted = bench.must_claim();
    bench.finish(&granted, 0, Outcome::Broken { code: FaultCode::Lost, at: BreakPlace::Link, welcome: false });
    bench.pass(10);
    let probe = bench.must_claim();
    bench.beat_moved(&probe, 0);
    assert_eq!(bench.link().back_off.failures, 1);
    bench.beat_moved(&probe, 1);
    assert_eq!(bench.link().back_off.failures, 0);
}

#[test]
fn a_campaign_is_done_when_its_last_shard_is() {
    let (mut bench, campaign) = Bench::one_campaign(1);
    let granted = bench.must_claim();
    bench.finish(&granted, 10, Outcome::Through(vec![]));
    assert_eq!(bench.state(campaign), CampaignState::Running);
    assert_eq!(bench.schedule().done, 1);
    assert_eq!(bench.state(campaign), CampaignState::Done);
    assert_eq!(bench.left(campaign).time, TimeLeft::Nothing);
}

#[test]
fn names_of_campaigns_are_checked_and_taken_once() {
    let mut bench = Bench::new(1, None);
    bench.campaign(named("one"), 0);
    for (name, want) in [("one", "already"), ("", "cannot be the name"), ("a\u{1b}[2J", "cannot be the name")] {
        let error = bench.store.transact(|rows| add_campaign(rows, &named(name))).unwrap_err();
        assert!(error.to_string().contains(want), "{error}");
    }
}
