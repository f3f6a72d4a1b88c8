//! The cutting of a campaign's manifests into shards.
//!
//! In: sealed manifests, one for each source. Out: segments and shards as rows of the queue, one
//! transaction for each segment: a run that was killed goes on behind the last one. Directories are
//! in no shard's sums: they come with what lies in them. Must not know how manifests are made.

use std::num::NonZero;

use longhaul_core::{Blame, Fault, FaultCode};
use longhaul_jobs::queue::{
    LinkLimits, SiteLimits, add_commit, add_link, add_segment, begin_campaign, note_omitted, site_named,
    take_back_segments,
};
use longhaul_jobs::{Amount, Calendar, Campaign, Cut, JobsError, LinkId, PlanLimits, Planner, Rows, Segment, Store};
use longhaul_manifest::{ItemKind, Sealed};
use longhaul_net::Identity;

use super::faults::{fault_of_jobs, fault_of_manifest};
use super::signing::sign_plan;
use super::spec::CampaignSpec;

/// A campaign that was planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CampaignPlan {
    /// Its shards.
    pub shards: u64,
    /// Their files and bytes.
    pub total: Amount,
}

/// The movers that a link and a site allow at a time. On one host more of them share its disks.
const MOVERS_OF_LINK: NonZero<u32> = NonZero::<u32>::MIN.saturating_add(7);
const MOVERS_OF_SITE: NonZero<u32> = NonZero::<u32>::MIN.saturating_add(63);
/// The limits of a site that nobody has set.
pub const SITE_LIMITS: SiteLimits = SiteLimits { movers_in: MOVERS_OF_SITE, movers_out: MOVERS_OF_SITE };

/// Cuts the manifests of a campaign, has its owner sign them if one signed the campaign, and lets
/// it begin. `stopped` says that it is to end early: then the queue is left as it was.
///
/// # Errors
/// The fault of a manifest that cannot be read, or is another one than an earlier run had begun to
/// cut, and those of the queue; one with the code of what stopped it.
pub fn plan_shards(
    store: &mut impl Store,
    campaign: &Campaign,
    spec: &CampaignSpec,
    (manifests, owner): (&[Sealed], Option<&Identity>),
    stopped: &dyn Fn() -> Option<FaultCode>,
) -> Result<CampaignPlan, Fault> {
    need_all_names(spec, manifests)?;
    let mut added = Vec::new();
    let cut = cut_all(store, (campaign, spec), (manifests, owner), stopped, &mut added);
    let Err(fault) = cut else { return cut };
    if stopped() != Some(fault.code) {
        return Err(fault);
    }
    let taken_back = store.transact(|rows| take_back_segments(rows, campaign.id, &added));
    taken_back.map_err(|error| fault_of_jobs(&error))?;
    Err(fault)
}

/// Refuses a campaign whose files shall appear together, if names could not be read: it would move
/// all others, and never appear.
///
/// # Errors
/// A fault of code [`FaultCode::Incomplete`].
pub fn need_all_names(spec: &CampaignSpec, manifests: &[Sealed]) -> Result<(), Fault> {
    let omitted = manifests.iter().fold(0, |sum: u64, sealed| sum.saturating_add(sealed.head().omitted));
    if spec.dataset.is_none() || omitted == 0 {
        return Ok(());
    }
    let names = if omitted == 1 { "1 name".to_owned() } else { format!("{omitted} names") };
    let message = format_args!("{names} of the sources could not be read, and the campaign's files appear all or none");
    let fault = Fault::new(FaultCode::Incomplete, Blame::Local, message);
    Err(fault.hint_in_words("let this user read them, or exclude them from the campaign, and plan it again"))
}

/// Cuts all manifests. `added` has the numbers of the segments that this run added.
fn cut_all(
    store: &mut impl Store,
    (campaign, spec): (&Campaign, &CampaignSpec),
    (manifests, owner): (&[Sealed], Option<&Identity>),
    stopped: &dyn Fn() -> Option<FaultCode>,
    added: &mut Vec<u64>,
) -> Result<CampaignPlan, Fault> {
    let known = |error: JobsError| fault_of_jobs(&error);
    let (link, rate) = store
        .transact(|rows| {
            let link = link_between(rows, &spec.site_from(), &spec.to.site())?;
            let rate = rows.link(link)?.map_or(0, |link| link.meter.rate);
            Ok((link, rate))
        })
        .map_err(known)?;
    let (id, limits) = (campaign.id, limits(spec, (rate > 0).then_some(rate)));
    let (mut number, mut digests) = (0, Vec::new());
    for sealed in manifests {
        let mut items = sealed.items();
        for found in &sealed.head().segments {
            let (cuts, total) = cuts_of(&mut items, found.items, (limits, spec), stopped)?;
            let segment = Segment { campaign: id, number, digest: found.digest, total };
            let is_new = store.transact(|rows| add_once(rows, &segment, link, &cuts)).map_err(known)?;
            added.extend(is_new.then_some(number));
            digests.push(found.digest);
            number += 1;
        }
    }
    unless_stopped(stopped)?;
    let sums = store.transact(|rows| {
        if rows.segments(id)?.len() as u64 != number {
            return Err(JobsError::PlanTakenBack(id));
        }
        // Planners that list at the same time note other sums meanwhile: this one is of all
        // sources.
        let omitted = manifests.iter().fold(0, |sum: u64, sealed| sum.saturating_add(sealed.head().omitted));
        note_omitted(rows, id, omitted, &[])?;
        if let Some(owner) = owner {
            sign_plan(rows, campaign, owner, (manifests.iter().map(Sealed::digest).collect(), &digests))?;
        }
        if spec.dataset.is_some() {
            add_commit(rows, id, link)?;
        }
        begin_campaign(rows, id)?;
        rows.shard_sums(id)
    });
    let mut planned = CampaignPlan::default();
    for sum in sums.map_err(known)? {
        planned.shards += sum.shards;
        planned.total = planned.total.plus(sum.total).unwrap_or(planned.total);
    }
    Ok(planned)
}

/// The fault of a run that is to end early, if it is.
fn unless_stopped(stopped: &dyn Fn() -> Option<FaultCode>) -> Result<(), Fault> {
    let Some(code) = stopped() else { return Ok(()) };
    let message = "stopped while the campaign was planned: nothing of it is planned";
    let fault = Fault::new(code, Blame::Local, message);
    Err(fault.hint_in_words("plan it again: a source that was listed to its end is not listed anew"))
}

/// Adds a segment with its shards, unless an earlier planner or another one at this time has done
/// so. Gives whether it did.
fn add_once(rows: &mut dyn Rows, segment: &Segment, link: LinkId, cuts: &[Cut]) -> Result<bool, JobsError> {
    let stands = rows.segments(segment.campaign)?.into_iter().find(|known| known.number == segment.number);
    match stands {
        None => add_segment(rows, segment, link, cuts).map(|_| true),
        Some(known) if known == *segment => Ok(false),
        Some(_) => Err(JobsError::BadRow("a segment is planned with another content")),
    }
}

fn limits(spec: &CampaignSpec, rate: Option<u64>) -> PlanLimits {
    let bounds = spec.bounds;
    if bounds.files.is_none() && bounds.bytes.is_none() {
        return PlanLimits::of_rate(rate);
    }
    let (files, bytes) = (bounds.files.unwrap_or(SHARD_FILES), bounds.bytes.unwrap_or(SHARD_BYTES));
    PlanLimits::of_amount(Amount { files, bytes })
}

/// The bound of a shard of which only the other one was given: those of the planner.
const SHARD_FILES: u64 = 10_000;
const SHARD_BYTES: u64 = 1 << 40;

/// Names between two looks whether the run is to end.
const ITEMS_PER_LOOK: u64 = 4096;

/// The cuts of the next segment, counted in its items, and the sums of its files.
fn cuts_of(
    items: &mut longhaul_manifest::Items<'_>,
    count: u64,
    (limits, spec): (PlanLimits, &CampaignSpec),
    stopped: &dyn Fn() -> Option<FaultCode>,
) -> Result<(Vec<Cut>, Amount), Fault> {
    let (mut cuts, mut planner, mut total) = (Vec::new(), Planner::new(limits), Amount::default());
    let mut first = 0;
    for at in 0..count {
        if at.is_multiple_of(ITEMS_PER_LOOK) {
            unless_stopped(stopped)?;
        }
        let Some(item) = items.next() else { break };
        let item = item.map_err(|error| fault_of_manifest(&error))?;
        let is_moved = match item.kind {
            ItemKind::File { .. } => true,
            ItemKind::Link { .. } => spec.settings.metadata.preserve.links,
            ItemKind::Dir => false,
        };
        if !is_moved {
            continue;
        }
        let too_much = || fault_of_jobs(&JobsError::TooMuch("files or bytes of a segment"));
        total = total.plus(Amount { files: 1, bytes: item.bytes() }).ok_or_else(too_much)?;
        if let Some(cut) = planner.push(item.bytes()).map_err(|error| fault_of_jobs(&error))? {
            cuts.push(Cut { first, end: at, total: cut.total });
            first = at;
        }
    }
    if let Some(cut) = planner.finish().map_err(|error| fault_of_jobs(&error))? {
        cuts.push(Cut { first, end: count, total: cut.total });
    }
    Ok((cuts, total))
}

/// The link between two sites by their names, which is added if there is none.
fn link_between(rows: &mut dyn Rows, from: &str, to: &str) -> Result<LinkId, JobsError> {
    let (from, to) = (site_named(rows, from, SITE_LIMITS)?, site_named(rows, to, SITE_LIMITS)?);
    if let Some(link) = rows.links()?.into_iter().find(|link| (link.from, link.to) == (from, to)) {
        return Ok(link.id);
    }
    let limits = LinkLimits { movers: MOVERS_OF_LINK, rate: None };
    add_link(rows, (from, to), limits, &Calendar::default())
}

#[cfg(test)]
mod tests {
    use longhaul_core::RelPath;
    use longhaul_engine::Settings;
    use longhaul_jobs::queue::{NewCampaign, add_campaign};
    use longhaul_jobs::{CampaignKey, Memory, Micros};
    use longhaul_manifest::{Draft, Item, Lists, Sums};

    use super::*;
    use crate::jobs::{CampaignPlace, CampaignSource, ShardBounds};

    /// A campaign of one directory whose manifest has a few files, with the manifest.
    fn campaign_of_files(store: &mut Memory, out: &std::path::Path) -> (Campaign, CampaignSpec, Sealed) {
        let mut draft = Draft::begin(out).unwrap();
        for name in ["a", "b", "c"] {
            let (path, kind) = (RelPath::new(name).unwrap(), ItemKind::File { bytes: Some(10) });
            draft.add(&Item { path, kind, mtime: None, sums: Sums::default() }).unwrap();
        }
        let sealed = draft.seal(Lists::ALL, 0).unwrap();
        let source = CampaignSource { top: CampaignPlace::Here("/from".into()), only: None, onto: RelPath::root() };
        let bounds = ShardBounds { files: Some(1), bytes: None };
        let to = CampaignPlace::Here("/to".into());
        let spec = CampaignSpec::new(vec![source], to, Settings::default(), bounds);
        let new = NewCampaign { name: "a".to_owned(), ..NewCampaign::default() };
        let campaign = store.transact(|rows| {
            let id = add_campaign(rows, &new)?;
            rows.campaign(id)
        });
        (campaign.unwrap().unwrap(), spec, sealed)
    }

    #[test]
    fn a_planner_that_is_stopped_leaves_the_queue_as_it_was_and_the_next_one_plans_all() {
        let out = tempfile::tempdir().unwrap();
        let mut store = Memory::at(Micros(1_000_000));
        let (campaign, spec, sealed) = campaign_of_files(&mut store, &out.path().join("m"));
        let rows_of = |store: &mut Memory| {
            let rows = |rows: &mut dyn Rows| {
                Ok((rows.campaign(campaign.id)?, rows.segments(campaign.id)?, rows.shard_sums(campaign.id)?))
            };
            store.transact(rows).unwrap()
        };
        let before = rows_of(&mut store);
        // The signal comes behind so many looks: before the first name, and behind the last
        // segment.
        for calm in 0..2 {
            let looks = std::cell::Cell::new(0);
            let stopped = || {
                looks.set(looks.get() + 1);
                (looks.get() > calm).then_some(FaultCode::Terminated)
            };
            let manifests = std::slice::from_ref(&sealed);
            let fault = plan_shards(&mut store, &campaign, &spec, (manifests, None), &stopped).unwrap_err();
            assert_eq!(fault.code, FaultCode::Terminated);
            assert!(fault.message.contains("nothing of it is planned"), "{fault:?}");
            assert_eq!(rows_of(&mut store), before, "behind {calm} looks");
        }
        let planned = plan_shards(&mut store, &campaign, &spec, (&[sealed], None), &|| None).unwrap();
        assert_eq!((planned.shards, planned.total), (3, Amount { files: 3, bytes: 30 }));
    }

    #[test]
    fn a_planner_that_was_slower_does_not_take_names_from_the_count_of_those_that_could_not_be_read() {
        let out = tempfile::tempdir().unwrap();
        let mut store = Memory::at(Micros(1_000_000));
        let (campaign, spec, first) = campaign_of_files(&mut store, &out.path().join("0"));
        let second = Draft::begin(&out.path().join("1")).unwrap().seal(Lists::ALL, 5).unwrap();
        // The other planner noted the sum behind both sources, and this came from one that has
        // looked at the first source alone.
        for count in [5, 0] {
            store.transact(|rows| note_omitted(rows, campaign.id, count, &[])).unwrap();
        }
        plan_shards(&mut store, &campaign, &spec, (&[first, second], None), &|| None).unwrap();
        let planned = store.transact(|rows| rows.campaign(campaign.id)).unwrap().unwrap();
        assert_eq!((planned.omitted, planned.state), (5, longhaul_jobs::CampaignState::Running));
    }

    #[test]
    fn a_dataset_of_which_names_could_not_be_read_is_not_begun() {
        let out = tempfile::tempdir().unwrap();
        let mut store = Memory::at(Micros(1_000_000));
        let (campaign, spec, first) = campaign_of_files(&mut store, &out.path().join("0"));
        let spec = spec.as_dataset(Some(longhaul_core::DatasetName::new("run-7").unwrap()));
        let second = Draft::begin(&out.path().join("1")).unwrap().seal(Lists::ALL, 2).unwrap();
        let fault = plan_shards(&mut store, &campaign, &spec, (&[first, second], None), &|| None).unwrap_err();
        assert_eq!(fault.code, FaultCode::Incomplete);
        assert!(fault.message.contains("2 names"), "{fault:?}");
        let row = store.transact(|rows| rows.campaign(campaign.id)).unwrap().unwrap();
        assert_eq!(row.state, longhaul_jobs::CampaignState::Planning);
    }

    #[test]
    fn two_planners_at_once_add_each_segment_once_and_another_content_is_refused() {
        let mut store = Memory::at(Micros(1_000_000));
        let total = Amount { files: 3, bytes: 30 };
        let cuts = [Cut { first: 0, end: 3, total }];
        let (campaign, link) = store
            .transact(|rows| {
                let new = NewCampaign {
                    key: CampaignKey([1; 16]),
                    name: "a".to_owned(),
                    priority: Default::default(),
                    weight: Default::default(),
                    deadline: None,
                    calendar: Calendar::default(),
                    retry: Default::default(),
                    spec: Vec::new(),
                    hooks: longhaul_jobs::HookWishes::default(),
                };
                Ok((add_campaign(rows, &new)?, link_between(rows, "here", "there")?))
            })
            .unwrap();
        let segment = Segment { campaign, number: 0, digest: [7; 32], total };
        for is_new in [true, false] {
            let added = store.transact(|rows| add_once(rows, &segment, link, &cuts)).unwrap();
            assert_eq!(added, is_new);
        }
        let sums = store.transact(|rows| rows.shard_sums(campaign)).unwrap();
        assert_eq!(sums.iter().map(|sum| (sum.shards, sum.total)).collect::<Vec<_>>(), [(1, total)]);
        let other = Segment { digest: [8; 32], ..segment };
        assert!(store.transact(|rows| add_once(rows, &other, link, &cuts)).is_err());
    }
}
