//! The order in which shards become ready.
//!
//! In: campaigns side by side. Out: whose shards come first.

use super::*;

/// Claims so many shards, one after the other, and counts those of each campaign.
fn turns(bench: &mut Bench, of: &[CampaignId], shards: usize) -> Vec<usize> {
    let mut counts = vec![0; of.len()];
    for _ in 0..shards {
        let granted = bench.must_claim();
        bench.pass(1);
        bench.finish(&granted, 10, Outcome::Through(vec![]));
        counts[of.iter().position(|id| *id == granted.campaign.id).unwrap()] += 1;
    }
    counts
}

#[test]
fn campaigns_of_one_priority_share_a_link_by_their_weights() {
    let mut bench = Bench::new(2, None);
    let weight = |weight| Weight::new(weight).unwrap();
    let light = bench.campaign(NewCampaign { weight: weight(10), ..named("light") }, 100);
    let heavy = bench.campaign(NewCampaign { weight: weight(30), ..named("heavy") }, 100);
    let counts = turns(&mut bench, &[light, heavy], 80);
    assert!((18..=30).contains(&counts[0]), "{counts:?}");
}

#[test]
fn a_campaign_that_joins_later_owes_nothing_and_is_owed_nothing() {
    let mut bench = Bench::new(1, None);
    let old = bench.campaign(named("old"), 100);
    turns(&mut bench, &[old], 50);
    let new = bench.campaign(named("new"), 100);
    let counts = turns(&mut bench, &[old, new], 20);
    assert!(counts[0] >= 8 && counts[1] >= 8, "{counts:?}");
}

#[test]
fn a_campaign_that_joins_is_owed_nothing_for_what_one_of_a_lower_priority_did_not_have() {
    let mut bench = Bench::new(1, None);
    let priority = Priority::new(9).unwrap();
    bench.campaign(named("low"), 100);
    let old = bench.campaign(NewCampaign { priority, ..named("old") }, 100);
    turns(&mut bench, &[old], 50);
    let new = bench.campaign(NewCampaign { priority, ..named("new") }, 100);
    let counts = turns(&mut bench, &[old, new], 20);
    assert!(counts[0] >= 8 && counts[1] >= 8, "{counts:?}");
}

#[test]
fn a_higher_priority_goes_first_and_a_deadline_at_risk_before_it() {
    let mut bench = Bench::new(1, None);
    let priority = Priority::new(9).unwrap();
    let usual = bench.campaign(named("usual"), 20);
    let urgent = bench.campaign(NewCampaign { priority, ..named("urgent") }, 30);
    assert_eq!(turns(&mut bench, &[usual, urgent], 10)[0], 0);
    // The link moves some 100 bytes a second, and 1000 are left.
    bench.pass(50);
    assert_eq!(turns(&mut bench, &[usual, urgent], 5)[0], 0);
    let rate = bench.link().meter.rate_at(bench.store.now);
    assert!(rate > 0);
    let soon = Micros(bench.store.now.0 + 1_000_000 * 1000 / rate);
    let deadline = bench.campaign(NewCampaign { deadline: Some(soon), ..named("deadline") }, 10);
    let counts = turns(&mut bench, &[usual, urgent, deadline], 6);
    assert!(counts[2] >= 3, "{counts:?}: what was ready before comes first");
}

#[test]
fn only_the_leader_of_the_present_term_schedules() {
    let (mut bench, _) = Bench::one_campaign(3);
    let (one, two) = (MoverId([1; 16]), MoverId([2; 16]));
    let ask = |store: &mut Memory, who| store.transact(|rows| lead(rows, who)).unwrap();
    assert_eq!(ask(&mut bench.store, one), Some(1));
    assert_eq!(ask(&mut bench.store, two), None);
    bench.pass(15);
    assert_eq!(ask(&mut bench.store, two), Some(2));
    assert_eq!(ask(&mut bench.store, one), None);
    assert_eq!(bench.store.transact(|rows| schedule(rows, one, 1)).unwrap(), None);
    assert_eq!(bench.store.transact(|rows| schedule(rows, one, 2)).unwrap(), None, "it is another one's term");
    assert!(bench.store.transact(|rows| schedule(rows, two, 2)).unwrap().is_some());
}

#[test]
fn ready_shards_are_bounded_by_the_permits_of_their_link() {
    let (mut bench, _) = Bench::one_campaign(100);
    assert_eq!(bench.schedule().readied, 4);
    assert_eq!(bench.schedule().readied, 0);
}

#[test]
fn the_sizes_of_one_campaign_stop_no_other() {
    let mut bench = Bench::new(2, None);
    let good = bench.campaign(named("good"), 3);
    let bad = bench.campaign(NewCampaign { priority: Priority::new(9).unwrap(), ..named("bad") }, 3);
    let mut rows = bench.store.all_shards().filter(|shard| shard.campaign == bad).cloned().collect::<Vec<_>>();
    rows[0].done = Amount { files: 11, bytes: 100 };
    bench.store.transact(|to| to.put_shard(&rows[0])).unwrap();
    let turn = bench.schedule();
    assert_eq!((turn.skipped, turn.readied), (1, 3));
    assert_eq!(bench.claim().unwrap().campaign.id, good);
    rows[0].done = Amount::default();
    bench.store.transact(|to| to.put_shard(&rows[0])).unwrap();
    assert_eq!(bench.schedule().skipped, 0);
}

#[test]
fn a_campaign_that_is_larger_than_can_be_counted_is_refused_where_its_shards_are_added() {
    let mut bench = Bench::new(2, None);
    let link = bench.link;
    let campaign = bench.store.transact(|rows| add_campaign(rows, &named("large"))).unwrap();
    let mut add = |number, bytes| {
        let total = Amount { files: 1, bytes };
        let segment = Segment { campaign, number, digest: [0; 32], total };
        let cut = Cut { first: 0, end: 1, total };
        bench.store.transact(|rows| add_segment(rows, &segment, link, &[cut]))
    };
    assert!(matches!(add(0, (1 << 60) + 1), Err(JobsError::TooMuch(_))));
    assert!(matches!(add(0, u64::MAX), Err(JobsError::TooMuch(_))));
    add(0, 1 << 60).unwrap();
    assert!(matches!(add(1, 1), Err(JobsError::TooMuch(_))), "it is the sum that counts");
    add(1, 0).unwrap();
    bench.store.transact(|rows| begin_campaign(rows, campaign)).unwrap();
    let least = Weight::new(1).unwrap();
    let other = bench.campaign(NewCampaign { weight: least, ..named("other") }, 1);
    for id in [campaign, other] {
        bench.store.transact(|rows| rows.put_share_used(id, link, i64::MAX as u64)).unwrap();
    }
    assert_eq!(bench.schedule().readied, 3, "shares end at the largest number that is kept");
}

#[test]
fn the_store_in_memory_refuses_the_numbers_that_a_file_refuses() {
    let (mut bench, campaign) = Bench::one_campaign(1);
    let (link, mut shard) = (bench.link, bench.store.all_shards().next().unwrap().clone());
    let share = bench.store.transact(|rows| rows.put_share_used(campaign, link, 1 << 63));
    assert!(matches!(share, Err(JobsError::TooMuch(_))));
    shard.total.bytes = 1 << 63;
    assert!(matches!(bench.store.transact(|rows| rows.put_shard(&shard)), Err(JobsError::TooMuch(_))));
    let rate = Some(1 << 63);
    let fast = crate::rows::Link { rate, ..bench.link() };
    assert!(matches!(bench.store.transact(|rows| rows.put_link(&fast)), Err(JobsError::TooMuch(_))));
}

/// The share of a link that a campaign has used.
fn used(bench: &mut Bench, campaign: CampaignId) -> u64 {
    let link = bench.link;
    bench.store.transact(|rows| rows.share_used(campaign, link)).unwrap()
}

#[test]
fn what_a_campaign_has_used_on_one_link_is_not_counted_on_another() {
    let mut bench = Bench::new(1, None);
    let first = bench.link;
    let limits = LinkLimits { movers: NonZero::new(1).unwrap(), rate: None };
    let (from, to) = (bench.link().from, bench.link().to);
    let second = bench.store.transact(|rows| add_link(rows, (from, to), limits, &"".parse().unwrap())).unwrap();
    let total = Amount { files: 10, bytes: 100 };
    let cuts: Vec<Cut> = (0..60).map(|at| Cut { first: at * 10, end: at * 10 + 10, total }).collect();
    let wide = bench.store.transact(|rows| {
        let campaign = add_campaign(rows, &named("wide"))?;
        let segment = Segment { campaign, number: 0, digest: [0; 32], total };
        add_segment(rows, &segment, first, &cuts)?;
        add_segment(rows, &segment, second, &cuts)?;
        begin_campaign(rows, campaign)?;
        Ok(campaign)
    });
    let wide = wide.unwrap();
    turns(&mut bench, &[wide], 50);
    bench.link = second;
    let narrow = bench.campaign(named("narrow"), 100);
    let counts = turns(&mut bench, &[wide, narrow], 20);
    assert!(counts[0] >= 8 && counts[1] >= 8, "{counts:?}");
    bench.link = first;
    assert_eq!(used(&mut bench, narrow), 0, "it has nothing there");
}

#[test]
fn a_campaign_that_is_released_or_runs_again_stands_where_the_others_do() {
    let mut bench = Bench::new(1, None);
    let (held, done) = (bench.campaign(named("held"), 50), bench.campaign(named("done"), 1));
    bench.store.transact(|rows| hold(rows, held)).unwrap();
    let granted = bench.must_claim();
    bench.finish(&granted, 9, Outcome::Through(vec![fault("a", FaultCode::NotFound)]));
    bench.schedule();
    assert_eq!(bench.state(done), CampaignState::Done);
    let other = bench.campaign(named("other"), 100);
    turns(&mut bench, &[other], 40);
    let least = used(&mut bench, other);
    assert!(used(&mut bench, held) < least && used(&mut bench, done) < least);
    bench.store.transact(|rows| release(rows, held)).unwrap();
    bench.store.transact(|rows| retry(rows, done, Selection::All, ShardId(0))).unwrap();
    assert_eq!((used(&mut bench, held), used(&mut bench, done)), (least, least));
}

#[test]
fn a_campaign_of_more_than_a_thousand_shards_is_changed_as_a_whole() {
    let (mut bench, campaign) = Bench::one_campaign(2500);
    let states = |bench: &Bench, state| bench.store.all_shards().filter(|shard| shard.state == state).count();
    let held: Vec<_> = bench.store.all_shards().cloned().collect();
    let put = |bench: &mut Bench, state| {
        let work = |rows: &mut dyn crate::Rows| {
            held.iter().try_for_each(|shard| rows.put_shard(&crate::rows::Shard { state, ..shard.clone() }))
        };
        bench.store.transact(work).unwrap();
    };
    put(&mut bench, ShardState::Held(Hold::Lapsed(5)));
    bench.store.transact(|rows| release(rows, campaign)).unwrap();
    assert_eq!(states(&bench, ShardState::Planned), 2500);
    put(&mut bench, ShardState::Ready);
    bench.store.transact(|rows| hold(rows, campaign)).unwrap();
    assert_eq!(states(&bench, ShardState::Planned), 2500);
    bench.store.transact(|rows| cancel(rows, campaign)).unwrap();
    assert_eq!(states(&bench, ShardState::Cancelled), 2500);
}

#[test]
fn movers_that_read_and_movers_that_write_are_bounded_by_the_limits_of_their_own_sites() {
    let movers = |count| NonZero::new(count).unwrap();
    for (out, into, most) in [((1, 9), (9, 9), 9), ((9, 1), (9, 9), 1), ((9, 9), (1, 9), 1), ((9, 9), (9, 1), 9)] {
        let mut bench = Bench::new(9, None);
        let (near, far) = (
            SiteLimits { movers_in: movers(out.0), movers_out: movers(out.1) },
            SiteLimits { movers_in: movers(into.0), movers_out: movers(into.1) },
        );
        let limits = LinkLimits { movers: movers(9), rate: None };
        let link = bench.store.transact(|rows| {
            let (from, to) = (add_site(rows, "near", near)?, add_site(rows, "far", far)?);
            add_link(rows, (from, to), limits, &"".parse().unwrap())
        });
        bench.link = link.unwrap();
        bench.campaign(named("one"), 20);
        bench.schedule();
        let claimed = (0..20).filter(|_| bench.claim().is_some()).count();
        assert_eq!(claimed, most, "(in, out) {out:?} to {into:?}");
    }
}

#[test]
fn names_that_could_not_be_read_are_counted_and_the_first_of_them_are_kept() {
    let mut bench = Bench::new(1, None);
    let campaign = bench.store.transact(|rows| add_campaign(rows, &named("one"))).unwrap();
    let name = |at: usize| OmittedName {
        campaign,
        source: 0,
        object: PlainText::of(format_args!("{at:05}")),
        code: FaultCode::Denied,
        message: PlainText::from("it cannot be read"),
    };
    let names: Vec<_> = (0..OMITTED_NAMES_MAX + 5).map(name).collect();
    let (some, others) = names.split_at(3);
    bench.store.transact(|rows| note_omitted(rows, campaign, 3, some)).unwrap();
    bench.store.transact(|rows| note_omitted(rows, campaign, 9999, others)).unwrap();
    let kept = bench.store.transact(|rows| rows.omitted(campaign)).unwrap();
    assert_eq!((kept.len(), &kept[..3]), (OMITTED_NAMES_MAX, some));
    let left = bench.left(campaign);
    assert_eq!((left.omitted, left.total.files), (9999, 0), "they are in no other figure");
    bench.store.transact(|rows| begin_campaign(rows, campaign)).unwrap();
    bench.store.transact(|rows| note_omitted(rows, campaign, 1, &[])).unwrap_err();
    assert_eq!(bench.left(campaign).omitted, 9999);
}

/// The admission of all campaigns but one.
struct AllBut(CampaignId);

impl Admission for AllBut {
    fn admits(&self, _: &mut dyn Rows, campaign: &crate::rows::Campaign) -> Result<bool, JobsError> {
        Ok(campaign.id != self.0)
    }
}

#[test]
fn a_campaign_that_a_mover_passes_over_stops_no_other_and_stays_for_those_that_move_it() {
    let mut bench = Bench::new(2, None);
    let urgent = NewCampaign { priority: Priority::new(9).unwrap(), ..named("urgent") };
    let (passed_over, other) = (bench.campaign(urgent, 100), bench.campaign(named("other"), 10));
    let (among, who, link) = (AllBut(passed_over), MoverId([9; 16]), [bench.link]);
    // The leader trusts both, so that the urgent one has all of the room. Another one leads then.
    bench.schedule();
    bench.store.transact(|rows| resign(rows, who)).unwrap();
    let who = MoverId([8; 16]);
    let mut claimed = Vec::new();
    for number in 0..12 {
        let ask = Ask { mover: who, links: &link, id: ClaimId([100 + number; 16]) };
        let granted = bench.store.transact(|rows| {
            let term = lead(rows, who)?.unwrap();
            schedule_among(rows, who, term, &among)?;
            claim_among(rows, &ask, &among)
        });
        let Some(granted) = granted.unwrap() else { continue };
        claimed.push(granted.campaign.id);
        bench.finish(&granted, 10, Outcome::Through(Vec::new()));
    }
    assert_eq!(claimed, [other; 10]);
    let ready = bench.store.all_shards().filter(|shard| shard.state == ShardState::Ready).count();
    assert_eq!(ready, 4, "what it passes over is ready for others, and no more than there is room for");
    assert_eq!(bench.claim().unwrap().campaign.id, passed_over, "another mover claims it");
}

/// Campaigns of these alone.
struct Only(Vec<CampaignId>);

impl Admission for Only {
    fn admits(&self, _: &mut dyn Rows, campaign: &crate::rows::Campaign) -> Result<bool, JobsError> {
        Ok(self.0.contains(&campaign.id))
    }
}

/// A campaign that is said to be of an owner.
fn owned(bench: &mut Bench, name: &str, owner: u8) -> CampaignId {
    let campaign = bench.campaign(named(name), 20);
    let signature =
        crate::rows::CampaignSignature { campaign, owner: [owner; 32], at: Micros(1), spec: [0; 64], manifest: None };
    bench.store.transact(|rows| rows.put_signature(&signature)).unwrap();
    campaign
}

#[test]
fn a_campaign_that_nobody_moves_takes_no_room_of_owners_whom_the_leader_does_not_trust() {
    let mut bench = Bench::new(2, None);
    let stuck = owned(&mut bench, "stuck", 1);
    let (beside, other, own) =
        (owned(&mut bench, "beside", 1), owned(&mut bench, "other", 2), owned(&mut bench, "own", 3));
    // Whoever leads moves one of three owners' campaigns; nobody moves the first one.
    let (who, link) = (MoverId([8; 16]), [bench.link]);
    let claim = |bench: &mut Bench, moved: CampaignId, number: u8| {
        let ask = Ask { mover: MoverId([number; 16]), links: &link, id: ClaimId([number; 16]) };
        let granted = bench.store.transact(|rows| {
            let term = lead(rows, who)?.unwrap();
            schedule_among(rows, who, term, &Only(vec![own]))?;
            claim_among(rows, &ask, &Only(vec![moved]))
        });
        let granted = granted.unwrap();
        if let Some(granted) = &granted {
            bench.finish(granted, 10, Outcome::Through(Vec::new()));
        }
        granted.is_some()
    };
    // All of its room is taken before another campaign of its owner comes to its turn.
    for _ in 0..3 {
        assert!(claim(&mut bench, stuck, 100));
    }
    for number in 0..20 {
        for moved in [beside, other, own] {
            assert!(claim(&mut bench, moved, 101 + number), "shard {number} of {moved:?}");
        }
    }
    let ready = bench.store.all_shards().filter(|shard| shard.state == ShardState::Ready).count();
    assert!(ready <= 5, "{ready}: the room of an owner, and a shard for each campaign");
}

#[test]
fn a_mover_passes_over_any_number_of_campaigns_to_come_to_its_own() {
    let mut bench = Bench::new(2, None);
    for number in 0..40 {
        owned(&mut bench, &format!("other{number}"), number);
    }
    let (own, who, link) = (bench.campaign(named("own"), 1), MoverId([8; 16]), [bench.link]);
    let (among, ask) = (Only(vec![own]), Ask { mover: who, links: &link, id: ClaimId([100; 16]) });
    let granted = bench.store.transact(|rows| {
        let term = lead(rows, who)?.unwrap();
        schedule_among(rows, who, term, &among)?;
        claim_among(rows, &ask, &among)
    });
    assert_eq!(granted.unwrap().map(|granted| granted.campaign.id), Some(own));
}

#[test]
fn a_site_of_hosts_bounds_the_links_to_all_of_them_together() {
    let movers = |count| NonZero::new(count).unwrap();
    let wide = SiteLimits { movers_in: movers(9), movers_out: movers(9) };
    let mut bench = Bench::new(9, None);
    let link_to = |bench: &mut Bench, name: &str| {
        let limits = LinkLimits { movers: movers(9), rate: None };
        let link = bench.store.transact(|rows| {
            let (from, to) = (site_named(rows, "near", wide)?, site_named(rows, name, wide)?);
            add_link(rows, (from, to), limits, &"".parse().unwrap())
        });
        bench.link = link.unwrap();
        bench.campaign(named(name), 20);
        bench.link
    };
    let links = [link_to(&mut bench, "one"), link_to(&mut bench, "two")];
    let wish = SiteWish { name: "both".to_owned(), ..SiteWish::default() };
    let joined = SiteWish { joining: vec!["one".into(), "two".into()], movers_in: Some(movers(3)), ..wish.clone() };
    bench.store.transact(|rows| set_site(rows, &joined, wide)).unwrap();
    bench.schedule();
    let claim_all = |bench: &mut Bench| {
        let mut granted = Vec::new();
        for at in 0..40 {
            bench.link = links[at % 2];
            granted.extend(bench.claim());
        }
        granted
    };
    let granted = claim_all(&mut bench);
    let count = |link| granted.iter().filter(|granted| granted.shard.link == link).count();
    assert_eq!((granted.len(), count(links[0]), count(links[1])), (3, 2, 1), "three at both together");
    bench.finish(&granted[0], 10, Outcome::Through(Vec::new()));
    assert_eq!(claim_all(&mut bench).len(), 1, "its permit is free again");
    let left = SiteWish { leaving: vec!["two".into()], ..wish };
    bench.store.transact(|rows| set_site(rows, &left, wide)).unwrap();
    let more = claim_all(&mut bench);
    assert!(more.len() > 3 && more.iter().all(|granted| granted.shard.link == links[1]), "{}", more.len());
}

#[test]
fn a_host_belongs_to_one_site_and_no_site_of_hosts_to_another() {
    let one = NonZero::<u32>::MIN;
    let limits = SiteLimits { movers_in: one, movers_out: one };
    let mut store = Memory::at(Micros(1));
    let mut set = |name: &str, joining: &[&str], leaving: &[&str]| {
        let texts = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let (joining, leaving) = (texts(joining), texts(leaving));
        let wish = SiteWish { name: name.to_owned(), joining, leaving, ..SiteWish::default() };
        store.transact(|rows| {
            let id = set_site(rows, &wish, limits)?;
            Ok(hosts_of(rows, id)?.into_iter().map(|host| host.name).collect::<Vec<_>>())
        })
    };
    assert_eq!(set("a", &["x", "y"], &[]).unwrap(), ["x", "y"]);
    assert_eq!(set("b", &["y", "z"], &[]).unwrap(), ["y", "z"], "it is taken from the other one");
    assert_eq!(set("a", &[], &[]).unwrap(), ["x"]);
    for (name, joining, leaving) in [
        ("a", ["b"].as_slice(), [].as_slice()),
        ("a", &["a"], &[]),
        ("x", &["w"], &[]),
        ("a", &[], &["z"]),
        ("", &[], &[]),
    ] {
        let refused = set(name, joining, leaving);
        assert!(matches!(refused, Err(JobsError::BadSite(..))), "{name} {joining:?} {leaving:?}: {refused:?}");
    }
    assert_eq!(set("a", &[], &["x"]).unwrap(), [""; 0]);
}
