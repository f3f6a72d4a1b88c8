//! Notices to hooks: when they are written, and who tells them.
//!
//! In: campaigns with hooks. Out: notices.

use super::*;
use crate::queue::notices::{bound_waiting, note_end};
use crate::rows::{HookKey, NoticeKind};

const MINUTE: Duration = Duration::from_secs(60);

fn with_hooks(hooks: &str, shards: u64) -> (Bench, CampaignId) {
    let mut bench = Bench::new(4, None);
    let campaign = bench.campaign(NewCampaign { hooks: hooks.parse().unwrap(), ..named("one") }, shards);
    (bench, campaign)
}

fn events(bench: &Bench) -> Vec<(String, NoticeKind, String)> {
    let event = |notice: &crate::rows::Notice| {
        (notice.hook.as_str().to_owned(), notice.event.kind, notice.event.state.to_string())
    };
    bench.store.all_notices().map(event).collect()
}

fn take(bench: &mut Bench, keys: &[&str], taker: u8) -> Option<TakenNotice> {
    let keys: Vec<_> = keys.iter().map(|key| HookKey::new(key).unwrap()).collect();
    bench.store.transact(|rows| take_notice(rows, &keys, (ClaimId([taker; 16]), MINUTE))).unwrap()
}

fn settle(bench: &mut Bench, taken: &TakenNotice, telling: &Telling) {
    bench.store.transact(|rows| settle_notice(rows, &taken.notice, telling)).unwrap();
}

fn failed(tries_max: u32) -> Telling {
    Telling::Failed { words: PlainText::from("no"), tries_max, chance: 0 }
}

#[test]
fn hooks_are_told_of_the_events_that_their_campaign_wishes_and_of_no_others() {
    let (mut bench, _) = with_hooks("all:shard,campaign,fault ends:campaign", 2);
    let (one, two) = (bench.must_claim(), bench.must_claim());
    bench.finish(&one, 10, Outcome::Through(vec![]));
    let broken = |code| Outcome::Broken { code, at: BreakPlace::Link, welcome: true };
    bench.finish(&two, 0, broken(FaultCode::Lost));
    bench.pass(60);
    let two = bench.must_claim();
    bench.finish(&two, 0, Outcome::HandedBack);
    let two = bench.must_claim();
    bench.finish(&two, 8, Outcome::Through(vec![fault("a", FaultCode::Denied), fault("b", FaultCode::Denied)]));
    bench.schedule();
    let told = |hook: &str, kind, state: &str| (hook.to_owned(), kind, state.to_owned());
    let all = [
        told("all", NoticeKind::Shard, "done"),
        told("all", NoticeKind::Fault, "planned"),
        told("all", NoticeKind::Shard, "partial"),
        told("all", NoticeKind::Campaign, "done"),
        told("ends", NoticeKind::Campaign, "done"),
    ];
    assert_eq!(events(&bench), all);
    let last = bench.store.all_notices().last().unwrap().event.clone();
    assert_eq!((last.total.files, last.done.files, last.failed.files), (20, 18, 2));
    let lost = bench.store.all_notices().nth(1).unwrap().event.clone();
    assert_eq!((lost.code, lost.shard.unwrap().fence), (Some(FaultCode::Lost), Fence(1)));
    bench.schedule();
    assert_eq!(events(&bench).len(), 5, "an end is told once");
}

#[test]
fn a_shard_that_is_held_and_a_campaign_that_is_cancelled_are_told_once() {
    let (mut bench, campaign) = with_hooks("h", 1);
    let granted = bench.must_claim();
    let hold = Hold::Alike { code: FaultCode::NotFound, alike: 8, of: 10 };
    bench.finish(&granted, 0, Outcome::Alike(hold));
    for _ in 0..2 {
        bench.store.transact(|rows| cancel(rows, campaign)).unwrap();
    }
    let told = events(&bench);
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!((told[0].1, told[0].2.as_str()), (NoticeKind::Fault, "held"));
    assert_eq!((told[1].1, told[1].2.as_str()), (NoticeKind::Campaign, "cancelled"));
}

#[test]
fn a_notice_is_told_by_whoever_has_the_hook_and_again_where_that_mover_died() {
    let (mut bench, campaign) = with_hooks("h:campaign", 1);
    bench.store.transact(|rows| cancel(rows, campaign)).unwrap();
    assert_eq!(take(&mut bench, &["other"], 1), None);
    let first = take(&mut bench, &["other", "h"], 1).unwrap();
    assert_eq!((first.campaign.id, first.notice.delivery.tries), (campaign, 1));
    bench.pass(59);
    assert_eq!(take(&mut bench, &["h"], 2), None, "somebody tells it");
    bench.pass(1);
    let second = take(&mut bench, &["h"], 2).unwrap();
    settle(&mut bench, &first, &Telling::Told);
    assert_eq!(bench.store.all_notices().count(), 1, "the first one was not heard of in time");
    settle(&mut bench, &second, &Telling::Told);
    assert_eq!(bench.store.all_notices().count(), 0);
}

#[test]
fn a_hook_that_fails_is_tried_again_with_longer_pauses_and_then_given_up() {
    let (mut bench, campaign) = with_hooks("h:campaign", 1);
    bench.store.transact(|rows| cancel(rows, campaign)).unwrap();
    for pause in [10, 20] {
        let taken = take(&mut bench, &["h"], 1).unwrap();
        settle(&mut bench, &taken, &failed(3));
        bench.pass(pause - 1);
        assert_eq!(take(&mut bench, &["h"], 1), None);
        bench.pass(1);
    }
    let taken = take(&mut bench, &["h"], 1).unwrap();
    settle(&mut bench, &taken, &Telling::HandedBack);
    let taken = take(&mut bench, &["h"], 1).unwrap();
    assert_eq!(taken.notice.delivery.tries, 3, "one that was handed back counts as no try");
    settle(&mut bench, &taken, &failed(3));
    bench.pass(10_000);
    assert_eq!(take(&mut bench, &["h"], 1), None);
    let kept = bench.store.all_notices().next().unwrap().delivery.clone();
    assert_eq!((kept.given_up, kept.failure_text()), (true, Some("no")));
}

#[test]
fn a_campaign_keeps_so_many_notices_and_its_end_beside_them() {
    let (mut bench, campaign) = with_hooks("h:shard,campaign", 1);
    let granted = bench.must_claim();
    bench.finish(&granted, 10, Outcome::Through(vec![]));
    let one = bench.store.all_notices().next().unwrap().clone();
    let fill = |rows: &mut dyn Rows| {
        (1..NOTICES_MAX)
            .try_for_each(|at| rows.put_notice(&crate::rows::Notice { number: 1_000_000 + at, ..one.clone() }))
    };
    bench.store.transact(fill).unwrap();
    let campaign = bench.store.transact(|rows| campaign_of(rows, campaign)).unwrap();
    bench.store.transact(|rows| note_end(rows, &campaign, &granted.shard, &Outcome::HandedBack)).unwrap();
    let mut done = granted.shard.clone();
    done.state = ShardState::Done;
    let through = Outcome::Through(vec![]);
    bench.store.transact(|rows| note_end(rows, &campaign, &done, &through)).unwrap();
    assert_eq!(bench.store.all_notices().count() as u64, NOTICES_MAX + 1);
    bench.schedule();
    assert_eq!(bench.store.all_notices().count() as u64, NOTICES_MAX + 1);
    let of_shards = bench.store.all_notices().filter(|notice| notice.event.kind == NoticeKind::Shard);
    assert_eq!(of_shards.count() as u64, NOTICES_MAX, "the end of the campaign is beside them");
    assert!(bench.store.all_notices().all(|notice| notice.number != 1_000_000 + NOTICES_MAX - 1), "the last one goes");
}

#[test]
fn a_hook_that_is_full_or_gave_up_silences_no_other_one_and_the_last_that_were_given_up_are_kept() {
    let (mut bench, campaign) = with_hooks("h:shard,campaign other:shard", 2);
    let granted = bench.must_claim();
    bench.finish(&granted, 10, Outcome::Through(vec![]));
    let one = take(&mut bench, &["h"], 1).unwrap().notice;
    let fill = |given_up: bool| {
        let one = one.clone();
        move |rows: &mut dyn Rows| {
            (1..NOTICES_MAX).try_for_each(|at| {
                let delivery = crate::rows::Delivery { given_up, ..one.delivery.clone() };
                rows.put_notice(&crate::rows::Notice { number: 1_000_000 + at, delivery, ..one.clone() })
            })
        }
    };
    let counts = |bench: &Bench| {
        ["h", "other"].map(|key| bench.store.all_notices().filter(|notice| notice.hook.as_str() == key).count() as u64)
    };
    bench.store.transact(fill(false)).unwrap();
    let full = bench.must_claim();
    bench.finish(&full, 10, Outcome::Through(vec![]));
    let bound = |bench: &mut Bench| {
        bench.store.transact(|rows| campaign_of(rows, campaign).and_then(|of| bound_waiting(rows, &of))).unwrap();
    };
    bound(&mut bench);
    assert_eq!(counts(&bench), [NOTICES_MAX, 2]);
    bench.store.transact(fill(true)).unwrap();
    let (of, mut done) = (bench.store.transact(|rows| campaign_of(rows, campaign)).unwrap(), full.shard.clone());
    done.state = ShardState::Done;
    bench.store.transact(|rows| note_end(rows, &of, &done, &Outcome::Through(vec![]))).unwrap();
    bound(&mut bench);
    assert_eq!(counts(&bench), [NOTICES_MAX + 2, 3]);
    let taken = take(&mut bench, &["h"], 2).unwrap();
    settle(&mut bench, &taken, &failed(1));
    let [kept, _] = counts(&bench);
    assert_eq!(kept, 1002, "a thousand that were given up, and the two that wait");
    assert!(bench.store.all_notices().any(|notice| notice.number == 1_000_000 + NOTICES_MAX - 1), "the last ones");
}

#[test]
fn hooks_take_the_order_in_which_they_are_asked_for() {
    let (mut bench, campaign) = with_hooks("a:campaign b:campaign", 1);
    bench.store.transact(|rows| cancel(rows, campaign)).unwrap();
    assert_eq!(take(&mut bench, &["b", "a"], 1).unwrap().notice.hook.as_str(), "b");
    assert_eq!(take(&mut bench, &["b", "a"], 1).unwrap().notice.hook.as_str(), "a");
}

#[test]
fn a_campaign_whose_figures_make_no_sense_is_cancelled_and_told_without_them() {
    let (mut bench, campaign) = with_hooks("h:campaign", 2);
    for mut shard in [bench.must_claim().shard, bench.must_claim().shard] {
        (shard.state, shard.total.bytes) = (ShardState::Done, u64::MAX >> 1);
        bench.store.transact(|rows| rows.put_shard(&shard)).unwrap();
    }
    assert!(bench.store.transact(|rows| left(rows, campaign)).is_err());
    bench.store.transact(|rows| cancel(rows, campaign)).unwrap();
    let told = bench.store.all_notices().next().unwrap().event.clone();
    assert_eq!((told.state.as_str(), told.total.files, told.total.bytes), ("cancelled", 0, 0));
}

/// The admission of no campaign.
struct AdmitNone;

impl Admission for AdmitNone {
    fn admits(&self, _: &mut dyn Rows, _: &crate::rows::Campaign) -> Result<bool, JobsError> {
        Ok(false)
    }
}

#[test]
fn a_mover_that_does_not_move_a_campaign_leaves_its_notices_to_one_that_does() {
    let (mut bench, campaign) = with_hooks("h:campaign", 1);
    bench.store.transact(|rows| cancel(rows, campaign)).unwrap();
    let (before, key) = (bench.store.clone(), [HookKey::new("h").unwrap()]);
    let take = |bench: &mut Bench, among: &dyn Admission| {
        let taking = (ClaimId([1; 16]), MINUTE);
        bench.store.transact(|rows| take_notice_among(rows, &key, taking, among)).unwrap()
    };
    for _ in 0..3 {
        assert_eq!(take(&mut bench, &AdmitNone), None);
        assert_eq!(bench.store, before, "no try is counted, and nobody has to wait");
    }
    assert_eq!(take(&mut bench, &AdmitAll).unwrap().notice.delivery.tries, 1);
}

#[test]
fn a_notice_that_its_campaign_does_not_wish_is_told_to_nobody() {
    let (mut bench, campaign) = with_hooks("h:campaign", 1);
    bench.store.transact(|rows| cancel(rows, campaign)).unwrap();
    let wished = bench.store.all_notices().next().unwrap().clone();
    let forged = bench.store.transact(|rows| {
        rows.remove_notice(wished.number)?;
        let event = crate::rows::NoticeEvent { kind: NoticeKind::Fault, ..wished.event.clone() };
        let (of_kind, number) = (crate::rows::Notice { event, ..wished.clone() }, rows.next_number()?);
        rows.put_notice(&of_kind)?;
        rows.put_notice(&crate::rows::Notice { number, hook: HookKey::new("other").unwrap(), ..wished.clone() })
    });
    forged.unwrap();
    assert_eq!(take(&mut bench, &["h", "other"], 1), None);
    assert_eq!(bench.store.all_notices().count(), 0, "nor do they stay");
}
