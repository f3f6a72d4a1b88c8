//! The load of one target, as all sessions that write to it make it: what it was given, what it
//! wrote, and how long that took.
//!
//! In: files that are begun there, and their requests ([`ChunkIo`](crate::ChunkIo)). Out: figures
//! for people, and what the choice among targets needs. Knows no files.

mod health;
mod member;
mod recent;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::load::patience;
use longhaul_core::{Latency, LoadMeter, RelPath, TargetId};

use crate::error::DiskError;

pub use health::TargetCondition;
pub(crate) use health::{PROBE_EVERY, SetHealth};
pub(crate) use member::{Membership, Probe, may_go_elsewhere};
pub use recent::RecentFiles;

/// The load of one target. One for each target in a process.
#[derive(Debug)]
pub struct TargetLoad {
    id: TargetId,
    dir: PathBuf,
    began: Instant,
    meter: Mutex<LoadMeter>,
    /// Bytes of files that were begun there, less those that were written.
    assigned: AtomicU64,
    /// Bytes that were written there.
    written: AtomicU64,
    /// Its place in its set. `None`: it is in none.
    member: Option<Membership>,
}

/// The figures of a target at a moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadFigures {
    /// Bytes written since the process began to use it.
    pub written_bytes: u64,
    /// Bytes of requests that wait or are under way.
    pub queued_bytes: u64,
    /// Requests that wait or are under way.
    pub queued: u64,
    /// Bytes per second while it was busy, recent times counting most. `None`: not known yet.
    pub rate: Option<f64>,
    /// Quantiles of the latency of its recent requests. `None` before the first.
    pub latency: Option<Latency>,
    /// Whether it takes what it is given.
    pub condition: TargetCondition,
}

/// The part of a target's load that one file is: what of its bytes is still to be written there.
/// Dropping it takes the rest off.
#[derive(Debug)]
pub(crate) struct LoadShare {
    load: Arc<TargetLoad>,
    left: AtomicU64,
}

impl TargetLoad {
    /// The load of the target of this number, which the operator knows by `dir`.
    pub(crate) fn of(id: TargetId, dir: &Path) -> Arc<TargetLoad> {
        TargetLoad::new(id, dir, None)
    }

    /// The load of a target of a set.
    pub(crate) fn in_set(id: TargetId, dir: &Path, member: Membership) -> Arc<TargetLoad> {
        TargetLoad::new(id, dir, Some(member))
    }

    fn new(id: TargetId, dir: &Path, member: Option<Membership>) -> Arc<TargetLoad> {
        Arc::new(TargetLoad {
            id,
            dir: dir.to_owned(),
            began: Instant::now(),
            meter: Mutex::default(),
            assigned: AtomicU64::new(0),
            written: AtomicU64::new(0),
            member,
        })
    }

    /// The condition of the target. One that is in no set is well.
    pub(crate) fn condition(&self) -> TargetCondition {
        let Some(member) = &self.member else { return TargetCondition::Well };
        let hangs = self.meter().hangs(self.began.elapsed());
        hangs.into_iter().for_each(|waited| member.hangs((self.id, &self.dir), waited));
        member.condition((self.id, &self.dir))
    }

    /// The error of something that can only go there, once it failed.
    pub(crate) fn down(&self) -> Option<DiskError> {
        let member = self.member.as_ref().filter(|_| self.condition() == TargetCondition::Failed)?;
        Some(member.down(self.id))
    }

    /// Judges the result of a call that writes to the target: see [`Membership::judged`].
    pub(crate) fn judged<T>(&self, result: Result<T, DiskError>) -> Result<T, DiskError> {
        match &self.member {
            Some(member) if result.is_err() => member.judged((self.id, &self.dir), result),
            _ => result,
        }
    }

    /// Notes that a call on the target has not come back for so long: in a set it is given nothing
    /// until it answers.
    pub(crate) fn hangs(&self, waited: Duration) {
        self.member.iter().for_each(|member| member.hangs((self.id, &self.dir), waited));
    }

    /// The time for which no write there has come back although some are under way. `None`: none
    /// is.
    pub(crate) fn silent_for(&self) -> Option<Duration> {
        self.meter().silent_for(self.began.elapsed())
    }

    /// The time that a call there is given which is no write, and may have to wait for what the
    /// file system writes besides: none is left if it has waited that long, and the target has
    /// answered no write meanwhile.
    pub(crate) fn patience_left(&self, waited: Duration) -> Duration {
        let meter = self.meter();
        let patience = CALL_PATIENCE * patience(meter.latency());
        patience.saturating_sub(waited.min(meter.since_answer(self.began.elapsed())))
    }

    /// Notes that a call on the target came back well.
    pub(crate) fn answered(&self) {
        self.member.iter().for_each(|member| member.answered((self.id, &self.dir)));
    }

    /// Notes that a file of this name beneath the top of the set, or a part of it, is committed
    /// there.
    pub(crate) fn committed(&self, name: RelPath) {
        if let Some(member) = &self.member {
            member.committed(self.id, name);
        }
    }

    /// The files that were committed there before it failed, and of which nobody was told yet. The
    /// caller tells of them. `None`: there are none.
    pub fn take_at_risk(&self) -> Option<RecentFiles> {
        self.member.as_ref()?.take_at_risk(self.id)
    }

    /// The number of the target.
    pub fn id(&self) -> TargetId {
        self.id
    }

    /// Its directory, as the operator named it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Its figures now.
    pub fn figures(&self) -> LoadFigures {
        let condition = self.condition();
        let meter = self.meter();
        LoadFigures {
            condition,
            written_bytes: self.written.load(Ordering::Relaxed),
            queued_bytes: meter.queued_bytes(),
            queued: meter.queued_requests(),
            rate: meter.rate(self.began.elapsed()),
            latency: meter.latency(),
        }
    }

    /// Bytes of files that were begun there and are still to be written.
    pub(crate) fn assigned_bytes(&self) -> u64 {
        self.assigned.load(Ordering::Relaxed)
    }

    /// Bytes per second while it was busy. `None`: not known yet.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.meter().rate(self.began.elapsed())
    }

    /// Begins a file that has so many bytes still to be written there.
    pub(crate) fn begin(self: &Arc<Self>, bytes: u64) -> LoadShare {
        self.assigned.fetch_add(bytes, Ordering::Relaxed);
        LoadShare { load: Arc::clone(self), left: AtomicU64::new(bytes) }
    }

    fn meter(&self) -> MutexGuard<'_, LoadMeter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LoadShare {
    /// The target.
    pub(crate) fn target(&self) -> TargetId {
        self.load.id
    }

    /// Judges the result of a write there: see [`Membership::judged`].
    pub(crate) fn judged<T>(&self, result: Result<T, DiskError>) -> Result<T, DiskError> {
        self.load.judged(result)
    }

    /// Notes a request of so many bytes that waits from now on.
    pub(crate) fn queue(&self, bytes: u64) {
        let load = &self.load;
        load.meter().queue(load.began.elapsed(), bytes);
    }

    /// Notes that a request of so many bytes is over. `took` is how long the system had it; `None`:
    /// it failed.
    pub(crate) fn serve(&self, bytes: u64, took: Option<Duration>) {
        let load = &self.load;
        load.meter().serve(load.began.elapsed(), bytes, took);
        if took.is_some() {
            load.written.fetch_add(bytes, Ordering::Relaxed);
            self.take_off(bytes);
            load.answered();
        }
    }

    /// Adds bytes that are to be written there as well.
    pub(crate) fn add(&self, bytes: u64) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
        self.load.assigned.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes bytes off that were written, or are not to be written there any more.
    pub(crate) fn take_off(&self, bytes: u64) {
        let before =
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| Some(left.saturating_sub(bytes)));
        let gone = before.unwrap_or(0).min(bytes);
        self.load.assigned.fetch_sub(gone, Ordering::Relaxed);
    }
}

impl Drop for LoadShare {
    fn drop(&mut self) {
        self.take_off(u64::MAX);
    }
}

/// A call that is no write is given so many times the patience of a write.
const CALL_PATIENCE: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_weighs_on_its_target_until_it_is_written_or_given_up() {
        let load = TargetLoad::of(TargetId::FIRST, Path::new("/d1"));
        let (one, other) = (load.begin(100), load.begin(50));
        assert_eq!(load.assigned_bytes(), 150);
        one.queue(60);
        assert_eq!((load.figures().queued_bytes, load.figures().queued), (60, 1));
        one.serve(60, Some(Duration::from_millis(1)));
        assert_eq!((load.assigned_bytes(), load.figures().written_bytes), (90, 60));
        other.queue(50);
        other.serve(50, None);
        assert_eq!(load.assigned_bytes(), 90, "what failed is still to be written");
        drop(other);
        assert_eq!(load.assigned_bytes(), 40);
        // A chunk that is written twice is no less to do.
        one.queue(60);
        one.serve(60, Some(Duration::from_millis(1)));
        assert_eq!(load.assigned_bytes(), 0);
        drop(one);
        assert_eq!((load.assigned_bytes(), load.figures().written_bytes), (0, 120));
    }
}
