//! Refusals of a mover: one change of a row at a time, as whoever writes to the database can make
//! it.
//!
//! In: a campaign that its owner signed and planned. Out: the refusal, or none.

use longhaul_core::{Filter, Pattern, RelPath, Rule, RuleKind};
use longhaul_engine::Settings;
use longhaul_jobs::queue::{LinkLimits, NewCampaign, SiteLimits, add_campaign, add_link, add_segment, add_site};
use longhaul_jobs::queue::{begin_campaign, cancel};
use longhaul_jobs::{Amount, CampaignKey, Cut, Memory, Segment, Store};

use super::*;
use crate::jobs::owners::{Owners, Refusal, Unsigned};
use crate::jobs::spec::{CampaignPlace, CampaignSource, CampaignSpec, ShardBounds};

const QUEUE: QueueId = QueueId([7; 16]);
const ROOT: Hash32 = [3; 32];

fn spec(to: &str, settings: Settings) -> Vec<u8> {
    let source = CampaignSource { top: CampaignPlace::Here("/from".into()), only: None, onto: RelPath::root() };
    CampaignSpec::new(vec![source], CampaignPlace::Here(to.into()), settings, ShardBounds::default()).encode().unwrap()
}

/// A campaign that runs, signed and planned by an owner.
struct Planned {
    store: Memory,
    owner: Identity,
    id: CampaignId,
}

impl Planned {
    fn new() -> Planned {
        let owner = Identity::generate().unwrap();
        let mut store = Memory::at(Micros(1_000_000));
        let id = store.transact(|rows| {
            let new = NewCampaign { key: CampaignKey([1; 16]), name: "one".to_owned(), ..NewCampaign::default() };
            let new = NewCampaign { spec: spec("/to", Settings::default()), ..new };
            let id = add_campaign(rows, &new)?;
            sign_campaign(rows, (id, &new), (&owner, QUEUE))?;
            plan(rows, id, 1)?;
            let campaign = rows.campaign(id)?.unwrap();
            sign_plan(rows, &campaign, &owner, (vec![ROOT], &[[1; 32]]))?;
            begin_campaign(rows, id)?;
            Ok(id)
        });
        Planned { store, owner, id: id.unwrap() }
    }

    /// Changes its row.
    fn change(&mut self, change: impl Fn(&mut Campaign)) {
        let id = self.id;
        let changed = self.store.transact(|rows| {
            let mut campaign = rows.campaign(id)?.unwrap();
            change(&mut campaign);
            rows.put_campaign(&campaign)
        });
        changed.unwrap();
    }

    /// The answer of a mover that trusts the owner, and nobody else.
    fn admitted(&mut self) -> Result<Option<Vec<Hash32>>, Refusal> {
        admitted(&mut self.store, self.id, &Owners::these([self.owner.public()], Unsigned::Refused))
    }
}

fn admitted(store: &mut Memory, id: CampaignId, owners: &Owners) -> Result<Option<Vec<Hash32>>, Refusal> {
    let said = store.transact(|rows| {
        let campaign = rows.campaign(id)?.unwrap();
        Ok((campaign.name.clone(), signed(rows, &campaign)?))
    });
    let (name, said) = said.unwrap();
    owners.admit(&name, said)
}

fn plan(rows: &mut dyn Rows, campaign: CampaignId, content: u8) -> Result<(), JobsError> {
    let one = std::num::NonZero::<u32>::MIN;
    let limits = SiteLimits { movers_in: one, movers_out: one };
    let (from, to) = (add_site(rows, "from", limits)?, add_site(rows, "to", limits)?);
    let link = add_link(rows, (from, to), LinkLimits { movers: one, rate: None }, &"".parse().unwrap())?;
    let total = Amount { files: 1, bytes: 10 };
    let segment = Segment { campaign, number: 0, digest: [content; 32], total };
    add_segment(rows, &segment, link, &[Cut { first: 0, end: 1, total }]).map(drop)
}

#[test]
fn a_campaign_as_its_owner_signed_it_is_moved_and_so_is_one_whose_turn_or_hours_were_changed() {
    let mut planned = Planned::new();
    assert_eq!(planned.admitted(), Ok(Some(vec![ROOT])));
    planned.change(|campaign| {
        campaign.priority = longhaul_jobs::Priority::new(9).unwrap();
        campaign.deadline = Some(Micros(5));
        campaign.calendar = "in UTC: days closed".parse().unwrap();
        campaign.retry = "changed=5".parse().unwrap();
        campaign.omitted = 3;
    });
    assert_eq!(planned.admitted(), Ok(Some(vec![ROOT])));
    planned.store.transact(|rows| cancel(rows, planned.id)).unwrap();
    assert!(planned.admitted().is_ok());
}

#[test]
fn a_changed_destination_filter_name_key_or_hook_is_refused() {
    let filtered = || {
        let rule = Rule { kind: RuleKind::Exclude, pattern: Pattern::try_from(b"*.key".to_vec()).unwrap() };
        let filter = Filter::new(vec![rule]).unwrap();
        spec("/to", Settings { filter, ..Settings::default() })
    };
    type Change<'a> = &'a dyn Fn(&mut Campaign);
    let changes: [(&str, Change<'_>); 6] = [
        ("destination", &|campaign| campaign.spec = spec("/elsewhere", Settings::default())),
        ("filter", &|campaign| campaign.spec = filtered()),
        ("name", &|campaign| campaign.name = "two".to_owned()),
        ("key", &|campaign| campaign.key = CampaignKey([2; 16])),
        ("hook", &|campaign| campaign.hooks = "mail:campaign".parse().unwrap()),
        ("a byte of no meaning", &|campaign| campaign.spec.push(b' ')),
    ];
    for (what, change) in changes {
        let mut planned = Planned::new();
        planned.change(change);
        let owner = planned.owner.public();
        assert_eq!(planned.admitted(), Err(Refusal::Altered(Some(owner))), "{what}");
    }
}

#[test]
fn a_signed_campaign_is_no_campaign_of_another_number_queue_or_time() {
    let mut planned = Planned::new();
    let (owner, id) = (planned.owner.public(), planned.id);
    // Its rows, copied behind another number and name.
    let copied = planned.store.transact(|rows| {
        let (campaign, kept) = (rows.campaign(id)?.unwrap(), rows.signature(id)?.unwrap());
        let copy = CampaignId(rows.next_number()?);
        rows.put_campaign(&Campaign { id: copy, name: "again".to_owned(), ..campaign })?;
        rows.put_signature(&CampaignSignature { campaign: copy, ..kept })?;
        let segment = rows.segments(id)?.remove(0);
        rows.put_segment(&Segment { campaign: copy, ..segment })?;
        Ok(copy)
    });
    let owners = Owners::these([owner], Unsigned::Refused);
    let altered = Err(Refusal::Altered(Some(owner)));
    let copied = copied.unwrap();
    assert_eq!(admitted(&mut planned.store, copied, &owners), altered, "another number and name");
    let named = planned.store.transact(|rows| {
        let copy = rows.campaign(copied)?.unwrap();
        rows.put_campaign(&Campaign { name: "one".to_owned(), ..copy })
    });
    named.unwrap();
    assert_eq!(admitted(&mut planned.store, copied, &owners), altered, "another number");
    let mut later = Planned::new();
    let kept = later.store.transact(|rows| rows.signature(later.id)).unwrap().unwrap();
    later.store.transact(|rows| rows.put_signature(&CampaignSignature { at: Micros(9), ..kept.clone() })).unwrap();
    assert_eq!(later.admitted(), Err(Refusal::Altered(Some(later.owner.public()))), "another time");
    planned.store.transact(|rows| rows.put_queue_id(QueueId([8; 16]))).unwrap();
    assert_eq!(planned.admitted(), altered, "another queue");
}

#[test]
fn an_owner_who_is_not_named_is_refused_though_the_signature_is_right() {
    let mut planned = Planned::new();
    let (owner, stranger) = (planned.owner.public(), Identity::generate().unwrap());
    let owners = Owners::these([stranger.public()], Unsigned::Moved);
    assert_eq!(admitted(&mut planned.store, planned.id, &owners), Err(Refusal::Owner(owner)));
    // Whoever signs what the owner signed is no owner by that, nor by taking the owner's name.
    let id = planned.id;
    let signed_by_stranger = planned.store.transact(|rows| {
        let Campaign { key, name, hooks, spec, .. } = rows.campaign(id)?.unwrap();
        let new = NewCampaign { key, name, hooks, spec, ..NewCampaign::default() };
        sign_campaign(rows, (id, &new), (&stranger, QUEUE))
    });
    signed_by_stranger.unwrap();
    assert_eq!(planned.admitted(), Err(Refusal::Owner(stranger.public())));
    let kept = planned.store.transact(|rows| rows.signature(id)).unwrap().unwrap();
    let forged = CampaignSignature { owner: *owner.as_bytes(), ..kept };
    planned.store.transact(|rows| rows.put_signature(&forged)).unwrap();
    assert_eq!(planned.admitted(), Err(Refusal::Altered(Some(owner))));
    assert!(admitted(&mut planned.store, id, &Owners::any(Unsigned::Moved)).is_err(), "not even of a file");
}

#[test]
fn a_campaign_that_nobody_signed_is_moved_where_that_is_allowed_and_nowhere_else() {
    let mut store = Memory::at(Micros(1_000_000));
    let id = store.transact(|rows| {
        let new = NewCampaign { name: "one".to_owned(), ..NewCampaign::default() };
        let id = add_campaign(rows, &NewCampaign { spec: spec("/to", Settings::default()), ..new })?;
        plan(rows, id, 1)?;
        begin_campaign(rows, id)?;
        Ok(id)
    });
    let id = id.unwrap();
    for (owners, is_moved) in [
        (Owners::any(Unsigned::Moved), true),
        (Owners::any(Unsigned::Refused), false),
        (Owners::these([], Unsigned::Moved), true),
        (Owners::these([], Unsigned::Named(["one".to_owned()].into())), true),
        (Owners::these([], Unsigned::Named(["two".to_owned()].into())), false),
        (Owners::these([], Unsigned::Refused), false),
    ] {
        let said = admitted(&mut store, id, &owners);
        assert_eq!(said, if is_moved { Ok(None) } else { Err(Refusal::Unsigned) }, "{owners:?}");
    }
}

#[test]
fn another_plan_than_the_signed_one_is_refused() {
    let mut swapped = Planned::new();
    let (id, owner) = (swapped.id, swapped.owner.public());
    let plan = Err(Refusal::Plan(owner));
    let segment = swapped.store.transact(|rows| rows.segments(id)).unwrap().remove(0);
    swapped.store.transact(|rows| rows.put_segment(&Segment { digest: [2; 32], ..segment.clone() })).unwrap();
    assert_eq!(swapped.admitted(), plan, "another content");
    swapped.store.transact(|rows| rows.put_segment(&segment)).unwrap();
    swapped.store.transact(|rows| rows.put_segment(&Segment { number: 1, ..segment.clone() })).unwrap();
    assert_eq!(swapped.admitted(), plan, "one more segment");
    swapped.store.transact(|rows| rows.remove_segment(id, 1)).unwrap();
    assert!(swapped.admitted().is_ok());

    let kept = swapped.store.transact(|rows| rows.signature(id)).unwrap().unwrap();
    let manifest = kept.manifest.clone().unwrap();
    let roots = ManifestSignature { roots: vec![[4; 32]], ..manifest };
    swapped
        .store
        .transact(|rows| rows.put_signature(&CampaignSignature { manifest: Some(roots.clone()), ..kept.clone() }))
        .unwrap();
    assert_eq!(swapped.admitted(), plan, "another manifest");
    swapped.store.transact(|rows| rows.put_signature(&CampaignSignature { manifest: None, ..kept.clone() })).unwrap();
    assert_eq!(swapped.admitted(), plan, "a plan that nobody signed");
}

#[test]
fn a_plan_is_signed_by_the_owner_of_the_campaign_alone_and_only_as_it_was_planned() {
    let stranger = Identity::generate().unwrap();
    let mut planned = Planned::new();
    let (id, owner) = (planned.id, planned.owner.clone());
    let campaign = planned.store.transact(|rows| rows.campaign(id)).unwrap().unwrap();
    let sign = |planned: &mut Planned, campaign: &Campaign, by: &Identity, segments: &[Hash32]| {
        let before = planned.store.clone();
        let signed = planned.store.transact(|rows| sign_plan(rows, campaign, by, (vec![[4; 32]], segments)));
        assert!(signed.is_ok() || planned.store == before, "nothing is signed");
        signed.map_err(|error| matches!(error, JobsError::Altered(_)))
    };
    assert_eq!(sign(&mut planned, &campaign, &stranger, &[[1; 32]]), Err(true), "a stranger");
    assert_eq!(sign(&mut planned, &campaign, &owner, &[[2; 32]]), Err(true), "segments of no manifest");
    assert_eq!(sign(&mut planned, &campaign, &owner, &[[1; 32], [2; 32]]), Err(true), "one segment less");
    planned.change(|campaign| campaign.spec.push(b' '));
    assert_eq!(sign(&mut planned, &campaign, &owner, &[[1; 32]]), Err(true), "the row was changed meanwhile");
    let changed = planned.store.transact(|rows| rows.campaign(id)).unwrap().unwrap();
    assert_eq!(sign(&mut planned, &changed, &owner, &[[1; 32]]), Err(true), "the owner of something else");
    planned.change(|row| row.spec = campaign.spec.clone());
    assert_eq!(sign(&mut planned, &campaign, &owner, &[[1; 32]]), Ok(()));
}

#[test]
fn what_was_asked_for_is_signed_and_nothing_that_the_store_made_of_it() {
    let asked = NewCampaign { name: "one".to_owned(), spec: b"{}".to_vec(), ..NewCampaign::default() };
    type Change = fn(&mut Campaign);
    let changes: [(&str, Change); 4] = [
        ("spec", |campaign| campaign.spec.push(b' ')),
        ("name", |campaign| campaign.name = "two".to_owned()),
        ("key", |campaign| campaign.key = CampaignKey([2; 16])),
        ("hook", |campaign| campaign.hooks = "mail:campaign".parse().unwrap()),
    ];
    for (what, change) in changes {
        let (mut store, owner) = (Memory::at(Micros(1_000_000)), Identity::generate().unwrap());
        let signed = store.transact(|rows| {
            let id = add_campaign(rows, &asked)?;
            let mut campaign = rows.campaign(id)?.unwrap();
            change(&mut campaign);
            rows.put_campaign(&campaign)?;
            sign_campaign(rows, (id, &asked), (&owner, QUEUE))
        });
        assert!(matches!(signed, Err(JobsError::Altered(_))), "{what}: {signed:?}");
    }
}

#[test]
fn the_messages_that_are_signed_stay_as_they_are() {
    let mut planned = Planned::new();
    let id = planned.id;
    let campaign = planned.store.transact(|rows| rows.campaign(id)).unwrap().unwrap();
    let campaign = Campaign { spec: b"{}".to_vec(), hooks: "mail:fault".parse().unwrap(), ..campaign };
    let owner = PublicKey::from_bytes([5; 32]);
    let signed = campaign_message(QUEUE, SignedPart::of(&campaign), (&owner, Micros(258)));
    let (queue, key, of_owner) = ("\x07".repeat(16), "\x01".repeat(16), "\x05".repeat(32));
    let id = char::from(u8::try_from(id.0).unwrap());
    let expected = format!(
        "longhaul campaign 1\n\x10{z}{queue}\x08{z}{id}{z}\x10{z}{key}\x03{z}one\x20{z}{of_owner}\x08{z}\x02\x01{z6}\
         \x0a{z}mail:fault\x02{z}{{}}",
        z = "\0".repeat(7),
        z6 = "\0".repeat(6),
    );
    assert_eq!(signed, expected.as_bytes());
    let plan = plan_message(b"abc", &[[1; 32], [2; 32]], &[]);
    let words = &b"longhaul campaign plan 1\n\x03\0\0\0\0\0\0\0abc\x40\0\0\0\0\0\0\0"[..];
    assert_eq!(plan, [words, &[1; 32], &[2; 32], &[0; 8]].concat());
}
