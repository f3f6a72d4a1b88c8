//! [`SetHealth`]: which targets of a set failed or are full, as all that use the set in this
//! process know it.
//!
//! In: errors of calls that write to a target, the outcome of probes, and names of committed files.
//! Out: whether a target may be given something, and which files are at risk as it failed. It lives
//! as long as the process, so that a set that is opened again knows what failed a moment ago. It
//! opens no files.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::{RelPath, TargetId};

use super::recent::RecentFiles;
use crate::set_id::SetId;

/// The targets of one set that have trouble.
#[derive(Debug, Default)]
pub(crate) struct SetHealth {
    troubled: Mutex<BTreeMap<TargetId, Trouble>>,
    /// Targets with a probe under way, which hangs as long as the target does.
    probed: Mutex<BTreeSet<TargetId>>,
    files: Mutex<BTreeMap<TargetId, CommittedFiles>>,
}

/// The files that this process has committed on a target.
#[derive(Debug, Default)]
struct CommittedFiles {
    /// The files since it was last well.
    recent: RecentFiles,
    /// The files that are at risk as it failed, and that nobody was told of.
    at_risk: RecentFiles,
}

/// The trouble of one target.
#[derive(Clone, Debug)]
struct Trouble {
    condition: TargetCondition,
    why: String,
    /// When it was last seen or looked for.
    seen: Instant,
}

/// The condition of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetCondition {
    /// It takes what it is given.
    Well,
    /// A write had no room a short while ago.
    Full,
    /// A call on it has not come back, and it answered nothing since.
    Hung,
    /// A call on it failed, and no probe passed since.
    Failed,
}

impl SetHealth {
    /// The health of the set of this id: one for the whole process.
    pub(crate) fn of(set: SetId) -> Arc<SetHealth> {
        static KNOWN: LazyLock<Mutex<HashMap<SetId, Arc<SetHealth>>>> = LazyLock::new(Mutex::default);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.entry(set).or_default())
    }

    /// The condition of a target at a moment.
    pub(crate) fn condition(&self, target: TargetId, now: Instant) -> TargetCondition {
        match self.troubled().get(&target) {
            Some(trouble) if trouble.condition != TargetCondition::Full || !trouble.is_due(now) => trouble.condition,
            _ => TargetCondition::Well,
        }
    }

    /// The reason why a target is not well. Empty if it is.
    pub(crate) fn why(&self, target: TargetId) -> String {
        self.troubled().get(&target).map(|trouble| trouble.why.clone()).unwrap_or_default()
    }

    /// The number of other targets that are not well.
    pub(crate) fn others_unwell(&self, than: TargetId, now: Instant) -> usize {
        let ids: Vec<TargetId> = self.troubled().keys().copied().filter(|id| *id != than).collect();
        ids.into_iter().filter(|id| self.condition(*id, now) != TargetCondition::Well).count()
    }

    /// Notes that a target failed, hangs or is full.
    pub(crate) fn note(&self, (target, dir): (TargetId, &Path), condition: TargetCondition, why: &str, now: Instant) {
        let mut troubled = self.troubled();
        let before = troubled.get(&target).map(|trouble| trouble.condition);
        // What failed does not hang less, and what hangs may be full besides.
        if before == Some(TargetCondition::Failed) && condition != TargetCondition::Failed
            || before == Some(TargetCondition::Hung) && condition == TargetCondition::Full
        {
            return;
        }
        troubled.insert(target, Trouble { condition, why: why.to_owned(), seen: now });
        drop(troubled);
        let (number, dir) = (target.0, dir.display());
        if before == Some(condition) {
            return;
        }
        match condition {
            TargetCondition::Failed => {
                let (files, some) = self.put_at_risk(target);
                tracing::warn!(
                    target: "longhaul::disk", number, %dir, why, files, some,
                    "a target failed and is given nothing until a probe passes; files that were committed there are at risk, and are to be checked ('longhaul set verify', 'longhaul check')"
                );
            }
            TargetCondition::Hung => tracing::warn!(
                target: "longhaul::disk", number, %dir, why,
                "a target hangs and is given nothing until it answers"
            ),
            _ => tracing::warn!(target: "longhaul::disk", number, %dir, why, "a target is full"),
        }
    }

    /// Notes that a file of this name beneath the top of the set is committed on a target, or a
    /// part of it.
    pub(crate) fn committed(&self, target: TargetId, name: RelPath) {
        let failed = self.troubled().get(&target).is_some_and(|trouble| trouble.condition == TargetCondition::Failed);
        let mut files = self.files();
        let files = files.entry(target).or_default();
        if failed { files.at_risk.add(name) } else { files.recent.add(name) }
    }

    /// The files on a target that failed which nobody was told of yet. The caller tells of them.
    pub(crate) fn take_at_risk(&self, target: TargetId) -> Option<RecentFiles> {
        let files = self.files().get_mut(&target).map(|files| std::mem::take(&mut files.at_risk));
        files.filter(|files| files.count() > 0)
    }

    /// Puts the files of a target at risk. Returns how many, and some names.
    fn put_at_risk(&self, target: TargetId) -> (u64, String) {
        let mut files = self.files();
        let files = files.entry(target).or_default();
        let recent = std::mem::take(&mut files.recent);
        let some: Vec<String> = recent.names().take(NAMES_IN_LOG).map(|name| name.escaped().to_string()).collect();
        let count = recent.count();
        files.at_risk.extend(recent);
        (count, some.join(", "))
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<TargetId, CommittedFiles>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a target that failed or hangs is to be probed now. The caller that hears so does it,
    /// and nobody else for [`PROBE_EVERY`].
    pub(crate) fn takes_probe(&self, target: TargetId, now: Instant) -> bool {
        match self.troubled().get_mut(&target) {
            Some(trouble) if trouble.condition != TargetCondition::Full && trouble.is_due(now) => {
                trouble.seen = now;
                self.probed().insert(target)
            }
            _ => false,
        }
    }

    /// Notes that the probe of a target is over, whether it passed or not.
    pub(crate) fn end_probe(&self, target: TargetId) {
        self.probed().remove(&target);
    }

    fn probed(&self) -> MutexGuard<'_, BTreeSet<TargetId>> {
        self.probed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a probe passed.
    pub(crate) fn recovered(&self, target: TargetId, dir: &Path) {
        if self.troubled().remove(&target).is_some() {
            tracing::info!(target: "longhaul::disk", number = target.0, dir = %dir.display(), "a target that failed is well again");
        }
    }

    /// Notes that a call on a target came back well: it does not hang. One that failed stays so.
    pub(crate) fn answered(&self, target: TargetId, dir: &Path) {
        let mut troubled = self.troubled();
        if troubled.get(&target).is_none_or(|trouble| trouble.condition != TargetCondition::Hung) {
            return;
        }
        troubled.remove(&target);
        drop(troubled);
        tracing::info!(target: "longhaul::disk", number = target.0, dir = %dir.display(), "a target that hung answers again");
    }

    fn troubled(&self) -> MutexGuard<'_, BTreeMap<TargetId, Trouble>> {
        self.troubled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trouble {
    fn is_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.seen) >= PROBE_EVERY
    }
}

/// A target that failed is probed so often; one that was full is tried again after the same time.
pub(crate) const PROBE_EVERY: Duration = Duration::from_secs(30);
/// Names of files at risk that the log has at most.
const NAMES_IN_LOG: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: (TargetId, &str) = (TargetId(1), "/d1");

    fn note(health: &SetHealth, condition: TargetCondition, now: Instant) {
        health.note((DISK.0, Path::new(DISK.1)), condition, "it broke", now);
    }

    #[test]
    fn a_target_that_failed_stays_so_until_a_probe_passes() {
        let (health, now) = (SetHealth::default(), Instant::now());
        note(&health, TargetCondition::Failed, now);
        let later = now + 10 * PROBE_EVERY;
        assert_eq!(health.condition(DISK.0, later), TargetCondition::Failed);
        assert_eq!(health.why(DISK.0), "it broke");
        assert!(!health.takes_probe(DISK.0, now), "not at once");
        assert!(health.takes_probe(DISK.0, later));
        assert!(!health.takes_probe(DISK.0, later), "one probe at a time");
        assert!(!health.takes_probe(DISK.0, later + PROBE_EVERY), "nor while that one hangs");
        health.end_probe(DISK.0);
        assert!(health.takes_probe(DISK.0, later + 2 * PROBE_EVERY));
        health.end_probe(DISK.0);
        note(&health, TargetCondition::Full, later);
        assert_eq!(health.condition(DISK.0, later), TargetCondition::Failed, "it did not fail less");
        health.recovered(DISK.0, Path::new(DISK.1));
        assert_eq!(health.condition(DISK.0, later), TargetCondition::Well);
        assert!(!health.takes_probe(DISK.0, later + PROBE_EVERY));
    }

    #[test]
    fn a_target_that_was_full_is_tried_again_after_a_while() {
        let (health, now) = (SetHealth::default(), Instant::now());
        note(&health, TargetCondition::Full, now);
        assert_eq!(health.condition(DISK.0, now), TargetCondition::Full);
        assert_eq!((health.others_unwell(DISK.0, now), health.others_unwell(TargetId(0), now)), (0, 1));
        assert!(!health.takes_probe(DISK.0, now + PROBE_EVERY), "nothing is probed");
        assert_eq!(health.condition(DISK.0, now + PROBE_EVERY), TargetCondition::Well);
        assert_eq!(health.others_unwell(TargetId(0), now + PROBE_EVERY), 0);
    }

    #[test]
    fn a_target_that_hangs_is_well_once_it_answers_and_one_that_failed_is_not() {
        let (health, now) = (SetHealth::default(), Instant::now());
        note(&health, TargetCondition::Hung, now);
        note(&health, TargetCondition::Full, now);
        assert_eq!(health.condition(DISK.0, now + 10 * PROBE_EVERY), TargetCondition::Hung);
        assert_eq!(health.others_unwell(TargetId(0), now), 1);
        assert!(health.takes_probe(DISK.0, now + PROBE_EVERY));
        health.answered(DISK.0, Path::new(DISK.1));
        assert_eq!(health.condition(DISK.0, now), TargetCondition::Well);
        note(&health, TargetCondition::Failed, now);
        note(&health, TargetCondition::Hung, now);
        health.answered(DISK.0, Path::new(DISK.1));
        assert_eq!(health.condition(DISK.0, now), TargetCondition::Failed);
    }

    #[test]
    fn files_that_a_target_took_are_at_risk_once_it_fails_and_are_told_once() {
        let (health, now) = (SetHealth::default(), Instant::now());
        let commit = |name: &str| health.committed(DISK.0, RelPath::new(name).expect("a name"));
        let told = || {
            let files = health.take_at_risk(DISK.0)?;
            Some(files.names().map(|name| name.escaped().to_string()).collect::<Vec<_>>())
        };
        commit("a");
        commit("b");
        health.committed(TargetId(0), RelPath::new("elsewhere").expect("a name"));
        note(&health, TargetCondition::Full, now);
        assert_eq!(told(), None, "it has only no room");
        note(&health, TargetCondition::Failed, now);
        assert_eq!(told(), Some(vec!["b".to_owned(), "a".to_owned()]));
        assert_eq!(told(), None);
        commit("one that was under way");
        note(&health, TargetCondition::Failed, now);
        assert_eq!(told(), Some(vec!["one that was under way".to_owned()]));
        health.recovered(DISK.0, Path::new(DISK.1));
        commit("later");
        assert_eq!((told(), health.take_at_risk(TargetId(0))), (None, None));
        note(&health, TargetCondition::Failed, now);
        assert_eq!(told(), Some(vec!["later".to_owned()]), "not again what was told before");
    }

    #[test]
    fn a_set_has_one_health_in_a_process() {
        let one = SetHealth::of(SetId([9; 16]));
        note(&one, TargetCondition::Failed, Instant::now());
        assert_eq!(SetHealth::of(SetId([9; 16])).condition(DISK.0, Instant::now()), TargetCondition::Failed);
        assert_eq!(SetHealth::of(SetId([8; 16])).condition(DISK.0, Instant::now()), TargetCondition::Well);
    }
}
