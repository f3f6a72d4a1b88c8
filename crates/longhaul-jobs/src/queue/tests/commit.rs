//! The commit of a campaign whose files appear together: when it can be claimed, and when never.
//!
//! In: shards that end in each way. Out: the row of the commit.

use super::*;
use crate::rows::ShardKind;

impl Bench {
    /// A campaign of so many shards, and with a commit.
    fn dataset(shards: u64) -> (Bench, CampaignId) {
        let mut bench = Bench::new(2, None);
        let link = bench.link;
        let total = Amount { files: 10, bytes: 100 };
        let cuts: Vec<Cut> = (0..shards).map(|at| Cut { first: at * 10, end: at * 10 + 10, total }).collect();
        let added = bench.store.transact(|rows| {
            let campaign = add_campaign(rows, &named("one"))?;
            let total = Amount { files: shards * 10, bytes: shards * 100 };
            add_segment(rows, &Segment { campaign, number: 0, digest: [0; 32], total }, link, &cuts)?;
            let commit = add_commit(rows, campaign, link)?;
            assert_eq!(add_commit(rows, campaign, link)?, commit, "there is one");
            begin_campaign(rows, campaign)?;
            Ok(campaign)
        });
        (bench, added.unwrap())
    }

    fn commit(&mut self, campaign: CampaignId) -> crate::rows::Shard {
        self.store.transact(|rows| rows.commit_of(campaign)).unwrap().expect("it has one")
    }

    fn awaits(&mut self, campaign: CampaignId) -> bool {
        self.commit(campaign).state == ShardState::Held(Hold::AwaitsShards)
    }
}

#[test]
fn a_commit_is_claimed_behind_the_last_shard_that_is_done_and_ends_the_campaign() {
    let (mut bench, campaign) = Bench::dataset(2);
    let (one, two) = (bench.must_claim(), bench.must_claim());
    assert_eq!(bench.finish(&one, 10, Outcome::Through(vec![])), ShardState::Done);
    bench.schedule();
    assert!(bench.awaits(campaign) && bench.claim().is_none(), "one shard is not done yet");
    assert_eq!(bench.finish(&two, 10, Outcome::Through(vec![])), ShardState::Done);
    assert_eq!(bench.commit(campaign).state, ShardState::Planned, "at once, so that no mover ends before");
    assert_eq!(bench.left(campaign).left.files, 0);
    let commit = bench.must_claim();
    assert!(commit.shard.part.is_commit() && commit.shard.total == Amount::default());
    assert_eq!(bench.claim(), None, "no second mover has it");
    assert_eq!(bench.state(campaign), CampaignState::Running);
    assert_eq!(bench.finish(&commit, 0, Outcome::Through(vec![])), ShardState::Done);
    bench.schedule();
    assert_eq!(bench.state(campaign), CampaignState::Done);
    assert_eq!(bench.left(campaign).commit, Some(ShardState::Done));
}

#[test]
fn a_file_that_is_given_up_holds_the_commit_until_it_was_tried_again_and_stands() {
    let (mut bench, campaign) = Bench::dataset(1);
    let granted = bench.must_claim();
    let missing = vec![fault("a", FaultCode::NotFound)];
    assert_eq!(bench.finish(&granted, 9, Outcome::Through(missing)), ShardState::Partial);
    bench.schedule();
    assert!(bench.awaits(campaign) && bench.state(campaign) == CampaignState::Running);
    bench.store.transact(|rows| release(rows, campaign)).unwrap();
    bench.schedule();
    assert!(bench.awaits(campaign), "no user lets it go over a file that is not there");
    let retried = bench.store.transact(|rows| retry(rows, campaign, Selection::All, ShardId(0))).unwrap();
    assert_eq!(retried.0, 1);
    let granted = bench.must_claim();
    assert_eq!(bench.finish(&granted, 10, Outcome::Through(vec![])), ShardState::Done);
    assert!(bench.must_claim().shard.part.is_commit());
}

#[test]
fn names_that_could_not_be_read_hold_the_commit() {
    let (mut bench, campaign) = Bench::dataset(1);
    let mut row = bench.store.transact(|rows| campaign_of(rows, campaign)).unwrap();
    row.omitted = 1;
    bench.store.transact(|rows| rows.put_campaign(&row)).unwrap();
    let granted = bench.must_claim();
    bench.finish(&granted, 10, Outcome::Through(vec![]));
    bench.schedule();
    assert!(bench.awaits(campaign));
}

#[test]
fn a_commit_whose_mover_dies_or_fails_is_claimed_again_with_a_higher_fence() {
    let (mut bench, campaign) = Bench::dataset(1);
    let granted = bench.must_claim();
    bench.finish(&granted, 10, Outcome::Through(vec![]));
    let first = bench.must_claim();
    bench.pass(3600);
    let second = bench.must_claim();
    assert!(second.shard.part.is_commit() && second.shard.claim.fence > first.shard.claim.fence);
    assert_eq!(bench.report(&first, 0, Outcome::Through(vec![])).unwrap(), Finished::Gone);
    let broken = Outcome::Broken { code: FaultCode::Exists, at: BreakPlace::Link, welcome: false };
    assert_eq!(bench.finish(&second, 0, broken), ShardState::Held(Hold::Broken(FaultCode::Exists)));
    bench.store.transact(|rows| release(rows, campaign)).unwrap();
    assert!(bench.must_claim().shard.part.is_commit(), "a user has made room for it");
}

#[test]
fn a_commit_that_was_let_go_too_early_is_held_again_when_it_is_claimed() {
    let (mut bench, campaign) = Bench::dataset(1);
    let mut commit = bench.commit(campaign);
    commit.state = ShardState::Ready;
    bench.store.transact(|rows| rows.put_shard(&commit)).unwrap();
    assert_eq!(bench.claim(), None);
    assert!(bench.awaits(campaign));
}

#[test]
fn a_campaign_that_is_cancelled_or_has_no_files_does_with_its_commit_what_it_does_with_a_shard() {
    let (mut bench, campaign) = Bench::dataset(1);
    bench.store.transact(|rows| cancel(rows, campaign)).unwrap();
    assert_eq!(bench.commit(campaign).state.kind(), ShardKind::Cancelled);
    let (mut bench, _) = Bench::dataset(0);
    assert!(bench.must_claim().shard.part.is_commit(), "a dataset without files appears too");
}

#[test]
fn shards_whose_staged_files_are_gone_are_moved_again_once_a_user_asks_for_it() {
    let (mut bench, campaign) = Bench::dataset(2);
    let again = |bench: &mut Bench, selection| {
        bench.store.transact(|rows| retry_commit(rows, campaign, selection, ShardId(0))).unwrap()
    };
    for _ in 0..2 {
        let granted = bench.must_claim();
        bench.finish(&granted, 10, Outcome::Through(vec![]));
    }
    let as_it_was = CommitRetried::default();
    assert_eq!(again(&mut bench, Selection::All), as_it_was, "nothing is known to be gone");
    let broken = |code| Outcome::Broken { code, at: BreakPlace::Link, welcome: true };
    let commit = bench.must_claim();
    bench.finish(&commit, 0, broken(FaultCode::Exists));
    let let_go = CommitRetried { state: Some(ShardState::Planned), ..as_it_was };
    assert_eq!(again(&mut bench, Selection::All), let_go, "the files are well");
    let commit = bench.must_claim();
    bench.finish(&commit, 0, broken(FaultCode::Changed));
    assert_eq!(again(&mut bench, Selection::Code(FaultCode::NotFound)), as_it_was);
    let waits = CommitRetried { state: Some(ShardState::Held(Hold::AwaitsShards)), files: 20, next: None };
    assert_eq!(again(&mut bench, Selection::All), waits);
    assert!(bench.awaits(campaign));
    assert_eq!(bench.left(campaign).left.files, 20);
    for _ in 0..2 {
        let granted = bench.must_claim();
        assert!(!granted.shard.part.is_commit());
        bench.finish(&granted, 10, Outcome::Through(vec![]));
    }
    let commit = bench.must_claim();
    assert!(commit.shard.part.is_commit());
    bench.finish(&commit, 0, Outcome::Through(vec![]));
    bench.schedule();
    assert_eq!(bench.state(campaign), CampaignState::Done);
}

#[test]
fn a_commit_that_finds_a_session_of_a_shard_waits_by_itself_and_its_link_is_well() {
    let (mut bench, campaign) = Bench::dataset(1);
    let granted = bench.must_claim();
    bench.finish(&granted, 10, Outcome::Through(vec![]));
    for _ in 0..30 {
        let commit = bench.must_claim();
        let busy = Outcome::Broken { code: FaultCode::Busy, at: BreakPlace::Link, welcome: false };
        assert_eq!(bench.finish(&commit, 0, busy), ShardState::Planned);
        assert_eq!(bench.link().back_off.failures, 0);
        bench.schedule();
        assert_eq!(bench.claim(), None, "it waits a while");
        bench.pass(3600);
    }
    assert_eq!(bench.state(campaign), CampaignState::Running);
}

#[test]
fn what_a_commit_reads_is_progress_and_no_traffic_of_its_link() {
    let (mut bench, campaign) = Bench::dataset(1);
    let granted = bench.must_claim();
    bench.finish(&granted, 10, Outcome::Through(vec![]));
    let rate = bench.link().meter.rate;
    for round in 1..=30 {
        let commit = bench.must_claim();
        bench.pass(30);
        bench.beat_moved(&commit, round << 40);
        let lost = Outcome::Broken { code: FaultCode::Lost, at: BreakPlace::Link, welcome: true };
        assert_eq!(bench.finish(&commit, 0, lost), ShardState::Planned);
        bench.pass(3600);
    }
    assert!(bench.link().meter.rate <= rate);
    assert_eq!(bench.state(campaign), CampaignState::Running);
}

/// A commit that has read so many bytes and breaks with a fault. Gives its state.
fn breaks(bench: &mut Bench, moved: u64, code: FaultCode) -> ShardState {
    bench.pass(3600);
    let commit = bench.must_claim();
    assert!(commit.shard.part.is_commit());
    bench.beat_moved(&commit, moved);
    bench.finish(&commit, 0, Outcome::Broken { code, at: BreakPlace::Link, welcome: true })
}

#[test]
fn a_commit_to_which_the_disk_fails_at_the_same_place_each_time_is_held_and_its_link_is_well() {
    let (mut bench, campaign) = Bench::dataset(1);
    let granted = bench.must_claim();
    bench.finish(&granted, 10, Outcome::Through(vec![]));
    let held = ShardState::Held(Hold::Broken(FaultCode::Io));
    assert_eq!(breaks(&mut bench, 400, FaultCode::Io), ShardState::Planned);
    let first = bench.commit(campaign).turn.not_before.since(bench.store.now);
    bench.schedule();
    assert!(first >= Duration::from_secs(30) && bench.claim().is_none(), "it waits a while");
    for round in 1..=5 {
        // It reads what it had read, and fails at the name behind that again.
        let state = breaks(&mut bench, 500, FaultCode::Io);
        assert_eq!(state == held, round == 5, "{round}: {state:?}");
        assert_eq!((bench.link().state, bench.link().back_off.failures), (LinkState::Open, 0));
        let pause = bench.commit(campaign).turn.not_before.since(bench.store.now);
        assert!(round == 1 || round == 5 || pause > first, "{round}: {pause:?}");
    }
    assert_eq!(bench.left(campaign).commit, Some(held));
    bench.schedule();
    assert_eq!((bench.claim(), bench.state(campaign)), (None, CampaignState::Running));
    let again = |bench: &mut Bench, selection| {
        bench.store.transact(|rows| retry_commit(rows, campaign, selection, ShardId(0))).unwrap()
    };
    assert_eq!(again(&mut bench, Selection::Code(FaultCode::NotFound)), CommitRetried::default());
    assert_eq!(bench.commit(campaign).state, held, "it is not held with that");
    assert_eq!(again(&mut bench, Selection::Code(FaultCode::Io)).state, Some(ShardState::Planned));
    assert_eq!(breaks(&mut bench, 500, FaultCode::Io), ShardState::Planned, "it begins anew");
    bench.pass(3600);
    let commit = bench.must_claim();
    assert_eq!(bench.finish(&commit, 0, Outcome::Through(vec![])), ShardState::Done);
}

#[test]
fn a_commit_that_is_lost_is_held_unless_it_has_read_more_than_before() {
    for (farther, rounds_max) in [(true, 60), (false, 21)] {
        let (mut bench, campaign) = Bench::dataset(1);
        let granted = bench.must_claim();
        bench.finish(&granted, 10, Outcome::Through(vec![]));
        let moved = |round: u64| if farther { 1000 + round } else { 1000 };
        let held =
            (1..=rounds_max).find(|round| breaks(&mut bench, moved(*round), FaultCode::Lost) != ShardState::Planned);
        assert_eq!(held.is_some(), !farther, "{held:?}");
        let state = bench.commit(campaign).state;
        assert_eq!(state == ShardState::Held(Hold::Broken(FaultCode::Lost)), !farther, "{state:?}");
        bench.store.transact(|rows| release(rows, campaign)).unwrap();
        assert_eq!(breaks(&mut bench, 1000, FaultCode::Lost), ShardState::Planned);
    }
}

#[test]
fn a_commit_that_reads_again_what_it_had_read_shows_that_its_link_is_well() {
    let (mut bench, _) = Bench::dataset(1);
    let granted = bench.must_claim();
    bench.finish(&granted, 10, Outcome::Through(vec![]));
    assert_eq!(breaks(&mut bench, 1000, FaultCode::Lost), ShardState::Planned);
    assert_eq!(bench.link().back_off.failures, 1);
    bench.pass(3600);
    let commit = bench.must_claim();
    bench.beat_moved(&commit, 0);
    assert_eq!(bench.link().back_off.failures, 1, "it has read nothing yet");
    bench.beat_moved(&commit, 1);
    assert_eq!(bench.link().back_off.failures, 0, "others may move over it");
}

#[test]
fn a_commit_that_may_not_use_a_name_is_held_at_once_and_no_link_closes_for_it() {
    let (mut bench, campaign) = Bench::dataset(1);
    let granted = bench.must_claim();
    bench.finish(&granted, 10, Outcome::Through(vec![]));
    assert_eq!(breaks(&mut bench, 5, FaultCode::Denied), ShardState::Held(Hold::Broken(FaultCode::Denied)));
    assert_eq!(bench.link().state, LinkState::Open);
    bench.store.transact(|rows| release(rows, campaign)).unwrap();
    assert!(bench.must_claim().shard.part.is_commit());
}

#[test]
fn a_commit_that_has_begun_is_not_stopped_by_the_hours_of_its_campaign() {
    let (mut bench, campaign) = Bench::dataset(1);
    let granted = bench.must_claim();
    bench.finish(&granted, 10, Outcome::Through(vec![]));
    let commit = bench.must_claim();
    let mut row = bench.store.transact(|rows| campaign_of(rows, campaign)).unwrap();
    row.calendar = "in UTC: else closed".parse().unwrap();
    bench.store.transact(|rows| rows.put_campaign(&row)).unwrap();
    assert_eq!(bench.beat(&commit, 0), BeatAnswer::GoOn(None));
}

#[test]
fn nothing_is_read_back_before_the_dataset_has_appeared() {
    let (mut bench, campaign) = Bench::dataset(1);
    let granted = bench.must_claim();
    bench.finish(&granted, 10, Outcome::Through(vec![]));
    let ask = |id| VerifyAsk { campaign, cycle: Duration::from_secs(9), begun: Micros(0), id: ClaimId([id; 16]) };
    let turn = bench.store.transact(|rows| take_to_verify(rows, &ask(1))).unwrap();
    assert_eq!(turn, VerifyTurn::NothingDue(None));
    let commit = bench.must_claim();
    bench.finish(&commit, 0, Outcome::Through(vec![]));
    let turn = bench.store.transact(|rows| take_to_verify(rows, &ask(2))).unwrap();
    assert!(matches!(turn, VerifyTurn::Shard(_)), "{turn:?}");
}
