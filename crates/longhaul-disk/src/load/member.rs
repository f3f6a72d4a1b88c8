//! [`Membership`]: a target as one of a set, which tells errors of the target from errors of a
//! file.
//!
//! In: results of calls that write to the target. Out: the same results; where the target failed or
//! is full and another one can take what was to go there, an error that says so. It probes targets
//! that failed. It knows no sessions.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use longhaul_core::{RelPath, TargetId};
use rustix::io::Errno;

use super::health::{SetHealth, TargetCondition};
use super::recent::RecentFiles;
use crate::error::{DiskError, SetError};
use crate::set_id::SetId;

/// Looks whether a target is the one that it was, and takes a file.
pub(crate) type Probe = Arc<dyn Fn() -> Result<(), DiskError> + Send + Sync>;

/// A target as one of its set.
#[derive(Clone)]
pub(crate) struct Membership {
    health: Arc<SetHealth>,
    /// The number of targets that were there when the set was opened.
    there: usize,
    probe: Probe,
}

impl Membership {
    /// The membership of a target with this probe, in a set of which so many targets are there.
    pub(crate) fn new(set: SetId, there: usize, probe: Probe) -> Membership {
        Membership { health: SetHealth::of(set), there, probe }
    }

    /// The condition of the target of this number. One that failed is probed meanwhile, each time
    /// that is due.
    pub(super) fn condition(&self, (target, dir): (TargetId, &Path)) -> TargetCondition {
        let now = Instant::now();
        if self.health.takes_probe(target, now) {
            let (health, probe, dir) = (Arc::clone(&self.health), Arc::clone(&self.probe), dir.to_owned());
            // The probe of a disk that hangs must not hang who asks. A thread that cannot be
            // started leaves the target as it is.
            let probing = thread::Builder::new().name("probe".to_owned()).spawn(move || {
                if probe().is_ok() {
                    health.recovered(target, &dir);
                }
                health.end_probe(target);
            });
            if let Err(error) = probing {
                self.health.end_probe(target);
                tracing::warn!(target: "longhaul::disk", number = target.0, %error, "a target that failed cannot be probed");
            }
        }
        self.health.condition(target, now)
    }

    /// Notes that a call on a target has not come back for so long.
    pub(super) fn hangs(&self, (target, dir): (TargetId, &Path), waited: Duration) {
        let why = format!("it has not answered for {:.1} s", waited.as_secs_f64());
        self.health.note((target, dir), TargetCondition::Hung, &why, Instant::now());
    }

    /// Notes that a call on a target came back well.
    pub(super) fn answered(&self, (target, dir): (TargetId, &Path)) {
        self.health.answered(target, dir);
    }

    /// The error of something that can only go to a target that failed.
    pub(super) fn down(&self, target: TargetId) -> DiskError {
        SetError::Down { number: target.0, why: self.health.why(target) }.into()
    }

    /// Notes that a file is committed on the target: see [`SetHealth::committed`].
    pub(super) fn committed(&self, target: TargetId, name: RelPath) {
        self.health.committed(target, name);
    }

    /// The files there that are at risk and of which nobody was told yet.
    pub(super) fn take_at_risk(&self, target: TargetId) -> Option<RecentFiles> {
        self.health.take_at_risk(target)
    }

    /// Judges the result of a call that writes to a target: a device that failed, and a file system
    /// that is full, fail the target.
    pub(super) fn judged<T>(
        &self,
        (target, dir): (TargetId, &Path),
        result: Result<T, DiskError>,
    ) -> Result<T, DiskError> {
        let Err(error) = result else { return result };
        let Some(condition) = condition_of(&error) else { return Err(error) };
        let (now, why) = (Instant::now(), error.fault().message.as_str().to_owned());
        self.health.note((target, dir), condition, &why, now);
        if self.health.others_unwell(target, now) + 1 >= self.there {
            return Err(error);
        }
        Err(SetError::Elsewhere { number: target.0, why }.into())
    }
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Membership").field("health", &self.health).field("there", &self.there).finish_non_exhaustive()
    }
}

/// The condition in which a target is that failed with an error. `None` if the error is one of the
/// file alone.
fn condition_of(error: &DiskError) -> Option<TargetCondition> {
    let source = match error {
        DiskError::Call { source, .. } => source,
        // The sync of another file failed at the same time.
        DiskError::Doubted { .. } => return Some(TargetCondition::Failed),
        _ => return None,
    };
    match source.raw_os_error().map(Errno::from_raw_os_error)? {
        Errno::NOSPC | Errno::DQUOT => Some(TargetCondition::Full),
        // A file system that met errors calls itself read-only or damaged; a device that is gone
        // has a name for that.
        Errno::IO
        | Errno::ROFS
        | Errno::NODEV
        | Errno::NXIO
        | Errno::REMOTEIO
        | Errno::SHUTDOWN
        | Errno::UCLEAN
        | Errno::BADMSG => Some(TargetCondition::Failed),
        _ => None,
    }
}

/// Whether an error is the one of [`Membership::judged`]: another target can take what was to go
/// there.
pub(crate) fn may_go_elsewhere(error: &DiskError) -> bool {
    matches!(error, DiskError::Set(SetError::Elsewhere { .. }))
}
