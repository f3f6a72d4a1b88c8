//! Rules of links and campaigns that a user changes while shards are moved.
//!
//! In: wishes. Out: what movers hear and claim, and rows.

use super::*;
use crate::calendar::Allowance;
use crate::rows::LinkWait;

impl Bench {
    /// Carries out a wish for the link.
    fn wish(&mut self, wish: &LinkWish) -> LinkFigures {
        let link = self.link;
        let set = self.store.transact(|rows| {
            set_link(rows, link, wish)?;
            link_figures(rows, link)
        });
        set.unwrap()
    }
}

#[test]
fn rules_of_a_link_reach_its_movers_with_their_next_heartbeat_and_touch_no_claim() {
    let (mut bench, campaign) = Bench::one_campaign(4);
    let granted = bench.must_claim();
    let movers = NonZero::new(1);
    let slow = bench.wish(&LinkWish { movers, rate: Change::Set(1000), ..LinkWish::default() });
    assert_eq!((slow.link.movers, slow.movers_busy, slow.allowance), (1, 1, Allowance::Rate(1000)));
    assert!(bench.claim().is_none(), "one mover is there already");
    assert_eq!(bench.beat(&granted, 0), BeatAnswer::GoOn(Some(1000)));

    let closed = Change::Set("in UTC: else closed".parse().unwrap());
    let shut = bench.wish(&LinkWish { calendar: closed, ..LinkWish::default() });
    assert_eq!((shut.link.rate, shut.waits), (Some(1000), Some(LinkWait::LinkHours)));
    assert_eq!(bench.left(campaign).links[0].waits, Some(LinkWait::LinkHours));
    assert_eq!(bench.beat(&granted, 0), BeatAnswer::Stop(Stopping::Hours));
    assert_eq!(bench.finish(&granted, 0, Outcome::HandedBack), ShardState::Planned);
    bench.schedule();
    assert!(bench.claim().is_none());

    let free = LinkWish { calendar: Change::Remove, rate: Change::Remove, ..LinkWish::default() };
    assert_eq!(bench.wish(&free).allowance, Allowance::Open);
    assert_eq!(bench.left(campaign).links[0].waits, None);
    assert_eq!(bench.must_claim().rate, None);
}

#[test]
fn a_wish_that_says_nothing_changes_nothing_and_opening_forgets_failures() {
    let (mut bench, campaign) = Bench::one_campaign(2);
    let granted = bench.must_claim();
    bench.finish(&granted, 0, Outcome::Broken { code: FaultCode::Lost, at: BreakPlace::Link, welcome: false });
    let before = bench.link();
    assert_eq!(bench.wish(&LinkWish::default()).link, before);
    assert_eq!(bench.left(campaign).links[0].waits, Some(LinkWait::Pause));
    let open = bench.wish(&LinkWish { state: Some(LinkState::Open), ..LinkWish::default() });
    assert_eq!((open.link.back_off.failures, open.waits), (0, None));
    let shut = bench.wish(&LinkWish { state: Some(LinkState::Closed(None)), ..LinkWish::default() });
    assert_eq!((shut.link.state, shut.waits), (LinkState::Closed(None), None));
}

#[test]
fn movers_beyond_a_lower_bound_hand_their_shards_back_and_the_others_go_on() {
    let mut bench = Bench::new(3, None);
    let campaign = bench.campaign(named("one"), 9);
    let granted: Vec<_> = (0..3).map(|_| bench.must_claim()).collect();
    bench.wish(&LinkWish { movers: NonZero::new(1), ..LinkWish::default() });
    let answers: Vec<_> = granted.iter().map(|granted| bench.beat(granted, 1)).collect();
    let stop = BeatAnswer::Stop(Stopping::Bound);
    assert_eq!(answers, [BeatAnswer::GoOn(None), stop, stop]);
    assert_eq!(bench.left(campaign).done.files, 3, "their news counts");
    bench.finish(&granted[0], 10, Outcome::Through(vec![]));
    // One may be there: the next one in the line goes on.
    assert_eq!(bench.beat(&granted[1], 1), BeatAnswer::GoOn(None));
    assert_eq!(bench.beat(&granted[2], 1), stop);
    bench.finish(&granted[2], 1, Outcome::HandedBack);
    assert!(bench.claim().is_none());

    let movers = |count| NonZero::new(count).unwrap();
    let (two, limits) = (movers(2), SiteLimits { movers_in: movers(9), movers_out: movers(9) });
    bench.wish(&LinkWish { movers: NonZero::new(3), ..LinkWish::default() });
    let more: Vec<_> = (0..2).map(|_| bench.must_claim()).collect();
    let wish = SiteWish { name: "to".to_owned(), movers_in: Some(two), ..SiteWish::default() };
    bench.store.transact(|rows| set_site(rows, &wish, limits)).unwrap();
    let beats = [&granted[1], &more[0], &more[1]].map(|granted| bench.beat(granted, 1));
    assert_eq!(beats.iter().filter(|answer| **answer == stop).count(), 1, "{beats:?}");
}

#[test]
fn a_link_is_found_by_the_names_of_its_hosts() {
    let (mut bench, _) = Bench::one_campaign(1);
    let link = bench.link;
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    for (from, to, want) in [
        (names(&["no", "from"]), names(&["to"]), Some(link)),
        (names(&["to"]), names(&["from"]), None),
        (names(&["from"]), names(&[]), None),
    ] {
        assert_eq!(bench.store.transact(|rows| link_between(rows, (&from, &to))).unwrap(), want, "{from:?} {to:?}");
    }
}

#[test]
fn rules_of_a_campaign_count_for_what_is_scheduled_next_and_at_once_for_hours() {
    let mut bench = Bench::new(1, None);
    let one = bench.campaign(named("one"), 9);
    let two = bench.campaign(named("two"), 9);
    let set = |bench: &mut Bench, id, wish: &CampaignWish| bench.store.transact(|rows| set_campaign(rows, id, wish));
    let first = CampaignWish { priority: Priority::new(9), ..CampaignWish::default() };
    set(&mut bench, two, &first).unwrap();
    let granted = bench.must_claim();
    assert_eq!(granted.campaign.id, two);

    let closed = Change::Set("in UTC: else closed".parse().unwrap());
    let (weight, retry) = (Weight::new(7), Change::Set("not-found=2".parse().unwrap()));
    let deadline = Change::Set(Micros(u64::MAX >> 1));
    let wish = CampaignWish { weight, deadline, calendar: closed, retry, ..CampaignWish::default() };
    set(&mut bench, two, &wish).unwrap();
    assert_eq!(bench.beat(&granted, 0), BeatAnswer::Stop(Stopping::Hours));
    assert_eq!(bench.left(two).links[0].waits, Some(LinkWait::CampaignHours));
    bench.finish(&granted, 0, Outcome::HandedBack);
    assert_eq!(bench.must_claim().campaign.id, one);
    let row = bench.store.transact(|rows| campaign_of(rows, two)).unwrap();
    assert_eq!((row.priority.get(), row.weight.get(), row.retry.tries(FaultCode::NotFound)), (9, 7, 2));

    let none = CampaignWish { deadline: Change::Remove, calendar: Change::Remove, ..CampaignWish::default() };
    set(&mut bench, two, &none).unwrap();
    let row = bench.store.transact(|rows| campaign_of(rows, two)).unwrap();
    assert_eq!((row.deadline, row.calendar.text(), row.weight.get()), (None, "", 7));
}

#[test]
fn a_campaign_that_has_ended_has_no_rules_to_be_changed() {
    let (mut bench, campaign) = Bench::one_campaign(1);
    bench.store.transact(|rows| cancel(rows, campaign)).unwrap();
    let refused = bench.store.transact(|rows| set_campaign(rows, campaign, &CampaignWish::default()));
    assert!(matches!(refused, Err(JobsError::WrongState { state: "cancelled", .. })), "{refused:?}");
}
