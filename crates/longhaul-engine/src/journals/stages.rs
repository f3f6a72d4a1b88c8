//! Looks after datasets that are staged beneath a root and were never committed.
//!
//! In: the root's tree, whose shelf has a note of each, and how long one must have been left alone.
//! Out: those that nobody came back for are gone, with a log line and a word to who counts what is
//! stored; a list of a principal's; and a refusal to one that has left too many. What a session has
//! is never touched: `disk` takes its lock first.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use longhaul_core::{Blame, Fault, FaultCode, Meta, Mtime, RelPath, TempName, hint};
use longhaul_disk::{CountLeft, DatasetStage, Removed, StageNote, TargetSet};
use longhaul_proto::wire::message::{Listed, ListedKind, ListedPartial};

use super::RootJournals;
use super::listing::{bytes, name_beneath};

impl RootJournals {
    /// Ends what a crash cut off of datasets' last steps, and removes staged datasets that were
    /// last used longer than `age` before `now`; with no `age`, none. Those of campaigns stay for
    /// half a year at least: their shards are told as done, and nobody brings them again by
    /// himself. `on_removed` hears the principal and the names that went, as they go. One that
    /// cannot be removed stays, is named in the log, and is tried again the next time.
    ///
    /// # Errors
    /// A [`Fault`] when the shelf cannot be looked at.
    pub(crate) fn look_after_stages(
        &self,
        set: &TargetSet,
        (age, now): (Option<Duration>, SystemTime),
        on_removed: &dyn Fn(&str, Removed),
    ) -> Result<(), Fault> {
        if set.is_set() {
            return Ok(());
        }
        let secs_before = |age: Duration| {
            let then = now.checked_sub(age)?.duration_since(UNIX_EPOCH).ok()?;
            Some(i64::try_from(then.as_secs()).unwrap_or(i64::MAX))
        };
        let before = age.and_then(secs_before);
        let campaigns_before = age.map(|age| age.max(CAMPAIGN_AGE)).and_then(secs_before);
        let noted_before = before.or_else(|| secs_before(NOTE_AGE)).unwrap_or(i64::MIN);
        self.shelf.remove_unwritten_stages(secs_before(UNWRITTEN_AGE).unwrap_or(i64::MIN))?;
        for note in self.shelf.stages()? {
            let (path, principal) = (note.place.escaped(), note.owner());
            let before = if note.is_of_campaign() { campaigns_before } else { before };
            let hears = &mut |more| on_removed(principal, more);
            match DatasetStage::look_after(set.first(), &note, (before, noted_before), hears) {
                Ok(Some(removed)) => {
                    let Removed { files, bytes, .. } = removed;
                    tracing::info!(target: "longhaul::dataset", %path, %principal, files, bytes, "an abandoned dataset was removed");
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(target: "longhaul::dataset", %path, %principal, %error, "a staged dataset cannot be looked after");
                }
            }
        }
        Ok(())
    }

    /// Refuses to stage another dataset for a principal that has left too many, and a campaign's
    /// that another principal stages too: neither would ever have all of its files.
    ///
    /// # Errors
    /// A [`Fault`] of code [`FaultCode::NoSpace`] or [`FaultCode::Usage`] that says what to do.
    pub(crate) fn need_room_for_stage(&self, set: &TargetSet, own: &StageNote) -> Result<(), Fault> {
        let stages = self.shelf.stages().map_err(Fault::from)?;
        let stands = |note: &&StageNote| DatasetStage::stands(set.first(), note).unwrap_or(true);
        if stages.iter().filter(|note| own.has_rival(note)).any(|note| stands(&note)) {
            let why = "another key stages shards of the same campaign here, and its files appear together by one key";
            let fault = Fault::new(FaultCode::Usage, Blame::Peer, why).about(own.place.escaped());
            return Err(fault.hint_in_words("give all movers of the campaign the same key"));
        }
        let others = || stages.iter().filter(|note| note.owner() == own.owner() && *note != own);
        if others().count() < self.unfinished_max() {
            return Ok(());
        }
        // A note may have outlived what it tells of.
        let staged = others().filter(stands).count();
        if staged < self.unfinished_max() {
            return Ok(());
        }
        let why = format_args!("{staged} datasets of the same client are staged here, and no more are kept");
        Err(Fault::new(FaultCode::NoSpace, Blame::Local, why).hint(hint::Daemon::FinishOrAskForUnfinished))
    }

    /// Lists the staged datasets of `principal` at `beneath` and under it, named from there, as
    /// [`RootJournals::partials_within`] does with partials.
    ///
    /// # Errors
    /// A [`Fault`] when the shelf cannot be looked at, and those of `room`.
    pub(crate) fn stages_within(
        &self,
        set: &TargetSet,
        (principal, beneath): (&str, &RelPath),
        room: &mut dyn FnMut(u64) -> Result<(), Fault>,
    ) -> Result<Vec<Listed>, Fault> {
        let (mut found, mut left) = (Vec::new(), CountLeft::default());
        if set.is_set() {
            return Ok(found);
        }
        for note in self.shelf.stages()?.into_iter().filter(|note| note.owner() == principal) {
            let Some(name) = name_beneath(&note.place, beneath) else { continue };
            let Some(listed) = listed(name, (set, &mut left), &note)? else { continue };
            room(bytes(&listed))?;
            found.push(listed);
        }
        Ok(found)
    }
}

/// The line of a staged dataset. `None` if nothing is staged any more.
fn listed(name: Vec<u8>, (set, left): (&TargetSet, &mut CountLeft), note: &StageNote) -> Result<Option<Listed>, Fault> {
    let Some(facts) = DatasetStage::facts(set.first(), note, left)? else { return Ok(None) };
    let kind = ListedKind::Partial(Box::new(ListedPartial {
        held: facts.bytes,
        since_unix: u64::try_from(facts.used).unwrap_or(0),
        principal: note.owner().into(),
        owner: note.owner().into(),
        temp: TempName::of(facts.holder),
        user: facts.in_use.then(|| note.owner().into()),
    }));
    // Nobody knows how long it would have been.
    let meta = Meta::new(MODE, Mtime::said(facts.used, 0));
    Ok(Some(Listed { name, kind, len: facts.bytes, meta }))
}

/// How long a note of nothing is kept where partials are kept for ever: what it tells of may lie on
/// a file system that is not mounted now.
const NOTE_AGE: Duration = Duration::from_secs(14 * 24 * 3600);
/// How long at least what is staged of a campaign is kept behind its last session, unless partials
/// are kept longer.
const CAMPAIGN_AGE: Duration = Duration::from_secs(180 * 24 * 3600);
/// No session takes so long to write a note.
const UNWRITTEN_AGE: Duration = Duration::from_secs(3600);
/// The mode of a holder.
const MODE: u32 = 0o700;

#[cfg(test)]
mod tests {
    use longhaul_core::DatasetName;
    use longhaul_disk::{DatasetOrder, ModePolicy, Replace, StagePart, Tree};

    use super::*;

    fn root(dir: &std::path::Path) -> std::sync::Arc<TargetSet> {
        TargetSet::plain(Tree::open(dir).expect("a tree"))
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "the test sets its scratch up directly")]
    fn what_is_staged_of_a_campaign_outlives_other_partials_by_half_a_year() {
        let dir = tempfile::tempdir().expect("scratch");
        let set = root(dir.path());
        let store = RootJournals::keeping(set.first().shelf(), 9);
        for (name, part) in [("all", StagePart::All), ("shards", StagePart::Shard([1; 16]))] {
            let name = DatasetName::new(name).expect("a name");
            let order = DatasetOrder { name: &name, principal: "key:a", replace: Replace::Never, part };
            let place = &RelPath::root();
            let stage =
                DatasetStage::beneath((set.first(), place, ModePolicy::Keep), order, Duration::ZERO).expect("staged");
            std::fs::create_dir_all(stage.tree().named().join("tree")).expect("made");
            std::fs::write(stage.tree().named().join("tree/f"), "text").expect("written");
        }
        let fortnight = Duration::from_secs(14 * 24 * 3600);
        let looks = [(Some(fortnight), 13, 2), (Some(fortnight), 100, 1), (None, 999, 1), (Some(fortnight), 181, 0)];
        for (age, days, stand) in looks {
            let now = SystemTime::now() + Duration::from_secs(days * 24 * 3600);
            store.look_after_stages(&set, (age, now), &|_, _| ()).expect("looked after");
            let notes = store.shelf.stages().expect("read");
            assert_eq!(notes.len(), stand, "{days} days: {notes:?}");
        }
    }

    #[test]
    fn datasets_of_one_name_and_several_campaigns_count_each_and_another_key_is_refused() {
        let dir = tempfile::tempdir().expect("scratch");
        let set = root(dir.path());
        let store = RootJournals::keeping(set.first().shelf(), 2);
        let name = DatasetName::new("run-7").expect("a name");
        let stages: Vec<DatasetStage> = [1, 2]
            .map(|campaign| {
                let part = StagePart::Shard([campaign; 16]);
                let order = DatasetOrder { name: &name, principal: "key:a", replace: Replace::Never, part };
                let place = &RelPath::root();
                DatasetStage::beneath((set.first(), place, ModePolicy::Keep), order, Duration::ZERO).expect("staged")
            })
            .into();
        let asked = |principal: &str, campaign: u8| {
            let part = StagePart::Shard([campaign; 16]);
            let order = DatasetOrder { name: &name, principal, replace: Replace::Never, part };
            let note = StageNote { place: RelPath::new("run-7").expect("a path"), principal: order.stager() };
            store.need_room_for_stage(&set, &note).map_err(|fault| fault.code)
        };
        assert_eq!(asked("key:a", 1), Ok(()), "it goes on with its own");
        assert_eq!(asked("key:a", 3), Err(FaultCode::NoSpace));
        assert_eq!(asked("key:b", 3), Ok(()));
        assert_eq!(asked("key:b", 1), Err(FaultCode::Usage));
        drop(stages);
        assert_eq!(asked("key:b", 1), Ok(()), "nothing is left of it");
    }
}
