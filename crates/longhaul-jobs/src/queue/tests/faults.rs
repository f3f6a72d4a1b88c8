//! Faults of files, of shards and of links.
//!
//! In: reports of movers. Out: rows of failed files, pauses and holds.

use super::*;

/// A session that failed after it had begun.
fn broken(code: FaultCode) -> Outcome {
    Outcome::Broken { code, at: BreakPlace::Link, welcome: true }
}

#[test]
fn a_missing_file_gets_a_row_at_once_and_blocks_nothing() {
    let (mut bench, campaign) = Bench::one_campaign(1);
    let granted = bench.must_claim();
    let faults = vec![fault("a", FaultCode::NotFound), fault("b", FaultCode::Denied)];
    assert_eq!(bench.finish(&granted, 8, Outcome::Through(faults)), ShardState::Partial);
    let sums = bench.left(campaign);
    assert_eq!((sums.done.files, sums.failed.files, sums.left.files), (8, 2, 0));
    let given_up: Vec<_> = sums.faults.iter().map(|fault| (fault.code, fault.given_up.files)).collect();
    assert_eq!(given_up, [(FaultCode::Denied, 1), (FaultCode::NotFound, 1)]);
}

#[test]
fn a_changed_file_is_tried_three_times_with_longer_pauses_and_is_left_until_then() {
    let (mut bench, campaign) = Bench::one_campaign(1);
    for pause in [30, 60] {
        let granted = bench.must_claim();
        let faults = vec![fault("a", FaultCode::Changed)];
        assert_eq!(bench.finish(&granted, 9, Outcome::Through(faults)), ShardState::Planned);
        let sums = bench.left(campaign);
        assert_eq!((sums.done.files, sums.left.files, sums.faults[0].waiting.files), (9, 1, 1));
        bench.pass(pause - 1);
        assert_eq!(bench.schedule().readied, 0);
        bench.pass(1);
    }
    let granted = bench.must_claim();
    assert_eq!(bench.finish(&granted, 9, Outcome::Through(vec![fault("a", FaultCode::Changed)])), ShardState::Partial);
    assert_eq!(bench.left(campaign).failed.files, 1);
}

#[test]
fn a_file_that_stands_at_a_later_try_has_no_row_any_more() {
    let (mut bench, campaign) = Bench::one_campaign(1);
    let granted = bench.must_claim();
    bench.finish(&granted, 9, Outcome::Through(vec![fault("a", FaultCode::Changed)]));
    bench.pass(60);
    let granted = bench.must_claim();
    assert_eq!(bench.finish(&granted, 10, Outcome::Through(vec![])), ShardState::Done);
    assert_eq!((bench.store.all_faults().count(), bench.left(campaign).done.files), (0, 10));
}

#[test]
fn a_report_that_does_not_add_up_is_refused_and_changes_nothing() {
    let (mut bench, campaign) = Bench::one_campaign(1);
    let granted = bench.must_claim();
    let before = bench.store.clone();
    let missing = |path| fault(path, FaultCode::NotFound);
    for (files, faults) in [(9, vec![]), (10, vec![missing("a")]), (7, vec![missing("a"), missing("b")])] {
        let refused = bench.report(&granted, files, Outcome::Through(faults));
        assert!(matches!(refused, Err(JobsError::Miscounted { .. })), "{refused:?}");
    }
    let light = FileFault { bytes: 9, ..missing("a") };
    assert!(matches!(bench.report(&granted, 9, Outcome::Through(vec![light])), Err(JobsError::Miscounted { .. })));
    let twice = bench.report(&granted, 8, Outcome::Through(vec![missing("a"), missing("a")]));
    assert!(matches!(twice, Err(JobsError::NamedTwice(_))));
    assert!(matches!(bench.report(&granted, 11, Outcome::HandedBack), Err(JobsError::Miscounted { .. })));
    assert_eq!(bench.store, before);
    assert_eq!(bench.left(campaign).left.files, 10);
}

#[test]
fn faults_that_are_tried_again_leave_the_others_as_they_are() {
    let (mut bench, campaign) = Bench::one_campaign(1);
    let granted = bench.must_claim();
    let faults = vec![fault("a", FaultCode::NotFound), fault("b", FaultCode::Denied)];
    bench.finish(&granted, 8, Outcome::Through(faults));
    bench.schedule();
    let selection = Selection::Code(FaultCode::NotFound);
    let retried = bench.store.transact(|rows| retry(rows, campaign, selection, ShardId(0))).unwrap();
    assert_eq!((retried, bench.state(campaign)), ((1, None), CampaignState::Running));
    let granted = bench.must_claim();
    let given_up: Vec<_> = granted.given_up.iter().map(|fault| fault.path.as_slice()).collect();
    assert_eq!(given_up, [b"b"]);
    assert_eq!(bench.finish(&granted, 9, Outcome::Through(vec![])), ShardState::Partial);
    let states: Vec<_> = bench.store.all_faults().map(|fault| (fault.path.clone(), fault.state)).collect();
    assert_eq!(states, [(b"b".to_vec(), FaultState::GivenUp)]);
}

#[test]
fn a_link_that_fails_pauses_and_is_tried_by_one_mover_until_something_goes_well() {
    let (mut bench, _) = Bench::one_campaign(9);
    let (one, two) = (bench.must_claim(), bench.claim().unwrap());
    bench.finish(&one, 0, broken(FaultCode::Lost));
    bench.finish(&two, 0, broken(FaultCode::Unreachable));
    assert_eq!(bench.link().back_off.failures, 1, "they are of one outage");
    bench.schedule();
    bench.pass(9);
    assert!(bench.claim().is_none());
    bench.pass(1);
    let probe = bench.must_claim();
    assert!(probe.shard.id != one.shard.id && probe.shard.id != two.shard.id, "those that failed go behind");
    assert!(bench.claim().is_none(), "one tries alone");
    bench.finish(&probe, 0, broken(FaultCode::Lost));
    assert_eq!(bench.link().back_off.failures, 2);
    bench.pass(20);
    let probe = bench.must_claim();
    bench.beat(&probe, 1);
    assert_eq!(bench.link().back_off.failures, 0);
    assert!(bench.claim().is_some());
}

#[test]
fn a_shard_that_breaks_a_link_on_which_others_go_well_is_held() {
    let (mut bench, _) = Bench::one_campaign(40);
    let poison = bench.must_claim();
    let mut granted = poison.clone();
    for tries in 1..=5 {
        let state = bench.finish(&granted, 0, broken(FaultCode::Lost));
        assert_eq!(state == ShardState::Held(Hold::Broken(FaultCode::Lost)), tries == 5, "{tries}");
        if tries == 5 {
            break;
        }
        loop {
            bench.pass(10);
            bench.schedule();
            let Some(next) = bench.claim() else { continue };
            if next.shard.id == poison.shard.id {
                granted = next;
                break;
            }
            bench.finish(&next, 10, Outcome::Through(vec![]));
        }
    }
}

#[test]
fn a_link_is_tried_again_with_another_shard_than_the_one_that_failed() {
    let (mut bench, _) = Bench::one_campaign(2);
    let link = crate::rows::Link { movers: 1, ..bench.link() };
    bench.store.transact(|rows| rows.put_link(&link)).unwrap();
    let failed = bench.must_claim();
    let ready = bench.claim();
    assert!(ready.is_none());
    bench.finish(&failed, 0, broken(FaultCode::Lost));
    bench.pass(10);
    let probe = bench.must_claim();
    assert_ne!(probe.shard.id, failed.shard.id);
    bench.finish(&probe, 0, broken(FaultCode::Lost));
    bench.pass(19);
    assert_eq!(bench.schedule().readied, 0, "the first one waits for 30 s");
    bench.pass(1);
    assert_eq!(bench.must_claim().shard.id, failed.shard.id);
}

#[test]
fn an_outage_holds_no_shard_however_long_it_is() {
    let (mut bench, _) = Bench::one_campaign(2);
    for _ in 0..50 {
        bench.pass(1200);
        let unheard = Outcome::Broken { code: FaultCode::Lost, at: BreakPlace::Link, welcome: false };
        for outcome in [broken(FaultCode::Unreachable), unheard] {
            bench.pass(1200);
            let probe = bench.must_claim();
            assert_eq!(bench.finish(&probe, 0, outcome), ShardState::Planned);
        }
    }
}

#[test]
fn a_fault_of_the_movers_host_touches_no_link_and_holds_a_shard_only_behind_many_tries() {
    let (mut bench, campaign) = Bench::one_campaign(2);
    let failed = |code| Outcome::Broken { code, at: BreakPlace::Host, welcome: false };
    let first = bench.must_claim();
    assert_eq!(bench.finish(&first, 0, failed(FaultCode::NoSpace)), ShardState::Planned);
    let other = bench.must_claim();
    assert_ne!(other.shard.id, first.shard.id, "the first one waits for 30 s, and the other one goes on");
    for code in [FaultCode::Denied, FaultCode::NotFound, FaultCode::Usage] {
        let again = if code == FaultCode::Denied { other.clone() } else { bench.must_claim() };
        assert_eq!(bench.finish(&again, 0, failed(code)), ShardState::Planned, "another host may have it: {code:?}");
        bench.pass(1200);
    }
    let mut tries = 4;
    while bench.left(campaign).held.files == 0 {
        let again = bench.must_claim();
        bench.finish(&again, 0, failed(FaultCode::Denied));
        bench.pass(1200);
        tries += 1;
    }
    assert!(tries >= 20, "{tries}");
    let link = bench.link();
    assert_eq!((link.state, link.back_off.failures), (LinkState::Open, 0));
}

#[test]
fn a_shard_of_which_the_manifest_cannot_be_understood_is_held_at_once() {
    let (mut bench, _) = Bench::one_campaign(2);
    let granted = bench.must_claim();
    let outcome = Outcome::Broken { code: FaultCode::Mismatch, at: BreakPlace::Shard, welcome: false };
    let held = ShardState::Held(Hold::Broken(FaultCode::Mismatch));
    assert_eq!(bench.finish(&granted, 0, outcome), held);
    assert_ne!(bench.must_claim().shard.id, granted.shard.id);
}

#[test]
fn bytes_that_were_told_before_a_claim_was_raised_are_no_progress_behind_it() {
    let (mut bench, _) = Bench::one_campaign(1);
    let mut granted = bench.must_claim();
    bench.beat_moved(&granted, 1_000_000);
    let (refused, fresh) = ((granted.shard.id, granted.shard.claim), ClaimId([8; 16]));
    granted.shard.claim = bench.store.transact(|rows| raise(rows, refused, Fence(9), fresh)).unwrap().unwrap();
    let failing = crate::rows::Link { back_off: BackOff { failures: 3, ..BackOff::default() }, ..bench.link() };
    bench.store.transact(|rows| rows.put_link(&failing)).unwrap();
    bench.beat_moved(&granted, 1_000_000);
    assert_eq!(bench.link().back_off.failures, 3, "no byte came since");
    bench.beat_moved(&granted, 1_000_001);
    assert_eq!(bench.link().back_off.failures, 0);
}

#[test]
fn a_shard_that_another_queue_has_taken_waits_for_a_user_and_none_of_its_files_has_failed() {
    let (mut bench, campaign) = Bench::one_campaign(1);
    let granted = bench.must_claim();
    let state = bench.finish(&granted, 3, broken(FaultCode::Superseded));
    assert_eq!(state, ShardState::Held(Hold::Broken(FaultCode::Superseded)));
    let left = bench.left(campaign);
    assert_eq!((left.failed.files, left.held.files, bench.link().back_off.failures), (0, 7, 0));
}

#[test]
fn shards_that_were_moved_without_a_claim_are_counted_until_one_is_shown() {
    let (mut bench, campaign) = Bench::one_campaign(1);
    for (unclaimed, count) in [(true, 1), (false, 0)] {
        let granted = bench.must_claim();
        let (shard, claim) = (granted.shard.id, granted.shard.claim);
        let outcome = Outcome::HandedBack;
        let report = Report { shard, claim, done: Amount::default(), moved: 0, outcome, unclaimed, chance: 0 };
        bench.store.transact(|rows| finish(rows, &report)).unwrap();
        assert_eq!(bench.left(campaign).unclaimed, count);
    }
}

#[test]
fn a_denied_session_closes_its_link_until_somebody_opens_it() {
    let (mut bench, _) = Bench::one_campaign(3);
    let granted = bench.must_claim();
    assert_eq!(bench.finish(&granted, 0, broken(FaultCode::Denied)), ShardState::Planned);
    assert_eq!(bench.link().state, LinkState::Closed(Some(FaultCode::Denied)));
    bench.pass(100_000);
    bench.schedule();
    assert!(bench.claim().is_none());
    let link = bench.link;
    bench.store.transact(|rows| set_link_state(rows, link, LinkState::Open)).unwrap();
    bench.must_claim();
}

#[test]
fn a_link_with_more_than_ten_mismatches_closes_itself() {
    let (mut bench, _) = Bench::one_campaign(5);
    for (shard, state) in
        [(0, LinkState::Open), (1, LinkState::Open), (2, LinkState::Closed(Some(FaultCode::Mismatch)))]
    {
        let granted = bench.must_claim();
        let names: Vec<String> = (0..5).map(|file| format!("{shard}/{file}")).collect();
        let faults = names.iter().take(if shard == 2 { 1 } else { 5 }).map(|name| fault(name, FaultCode::Mismatch));
        let faults: Vec<_> = faults.collect();
        bench.finish(&granted, 10 - faults.len() as u64, Outcome::Through(faults));
        assert_eq!(bench.link().state, state, "{shard}");
    }
}

#[test]
fn a_shard_whose_files_fail_alike_is_held_and_gets_no_rows() {
    let (mut bench, campaign) = Bench::one_campaign(1);
    let granted = bench.must_claim();
    let hold = Hold::Alike { code: FaultCode::NotFound, alike: 9, of: 10 };
    assert_eq!(bench.finish(&granted, 1, Outcome::Alike(hold)), ShardState::Held(hold));
    let sums = bench.left(campaign);
    assert_eq!((bench.store.all_faults().count(), sums.left.files, sums.held.files), (0, 9, 9));
}

#[test]
fn a_shard_that_breaks_sessions_alone_on_its_link_is_held_in_the_end() {
    let (mut bench, _) = Bench::one_campaign(1);
    for tries in 1..=20 {
        bench.pass(1200);
        let granted = bench.must_claim();
        let state = bench.finish(&granted, 0, broken(FaultCode::Lost));
        let held = state == ShardState::Held(Hold::Broken(FaultCode::Lost));
        assert_eq!(held, tries == 20, "{tries}: {state:?}");
    }
}

#[test]
fn a_shard_that_comes_farther_each_time_is_not_held_though_its_sessions_break_and_no_file_is_whole() {
    let (mut bench, _) = Bench::one_campaign(1);
    for _ in 0..50 {
        bench.pass(1200);
        let granted = bench.must_claim();
        bench.beat_moved(&granted, 1_000_000);
        assert_eq!(bench.finish(&granted, 0, broken(FaultCode::Lost)), ShardState::Planned);
    }
}

#[test]
fn a_shard_that_was_held_as_its_files_fail_alike_goes_on_when_it_is_released() {
    let (mut bench, campaign) = Bench::one_campaign(1);
    let granted = bench.must_claim();
    assert!(!granted.shard.news.judged);
    let hold = Hold::Alike { code: FaultCode::NotFound, alike: 8, of: 10 };
    bench.finish(&granted, 0, Outcome::Alike(hold));
    bench.store.transact(|rows| release(rows, campaign)).unwrap();
    let granted = bench.must_claim();
    let mut watch = crate::AlikeWatch::of(&granted.shard);
    assert!((0..1000).all(|_| watch.settle(Some(FaultCode::NotFound)).is_none()) && watch.finish().is_none());
    let names: Vec<String> = (0..8).map(|file| file.to_string()).collect();
    let faults = names.iter().map(|name| fault(name, FaultCode::NotFound)).collect();
    assert_eq!(bench.finish(&granted, 2, Outcome::Through(faults)), ShardState::Partial);
    assert_eq!(bench.left(campaign).done.files, 2);
}

#[test]
fn a_shard_that_was_held_for_another_reason_is_watched_as_before() {
    let (mut bench, campaign) = Bench::one_campaign(1);
    let granted = bench.must_claim();
    bench.finish(&granted, 0, broken(FaultCode::Internal));
    bench.store.transact(|rows| release(rows, campaign)).unwrap();
    assert!(!bench.must_claim().shard.news.judged);
}

#[test]
fn a_fence_that_is_spent_does_not_hold_a_shard_of_a_cancelled_campaign() {
    let (mut bench, campaign) = Bench::one_campaign(1);
    let granted = bench.must_claim();
    bench.store.transact(|rows| cancel(rows, campaign)).unwrap();
    let refused = (granted.shard.id, granted.shard.claim);
    let raised = bench.store.transact(|rows| raise(rows, refused, Fence(i64::MAX as u64), ClaimId([8; 16])));
    assert_eq!(raised.unwrap(), None);
    assert_eq!(bench.store.all_shards().next().unwrap().state, ShardState::Cancelled);
}

#[test]
fn files_of_a_cancelled_campaign_do_not_wait_for_another_try() {
    let (mut bench, campaign) = Bench::one_campaign(1);
    let granted = bench.must_claim();
    bench.finish(&granted, 9, Outcome::Through(vec![fault("a", FaultCode::Changed)]));
    bench.store.transact(|rows| cancel(rows, campaign)).unwrap();
    let sums = bench.left(campaign);
    assert_eq!((sums.faults, sums.cancelled.files), (vec![], 1));
}
