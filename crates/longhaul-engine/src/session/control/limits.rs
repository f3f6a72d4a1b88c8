//! Keeps what limits a session: the bottleneck search, the inputs that it takes from the loop, and
//! the targets of the other side.
//!
//! In: looks at the lanes, what a lane of this side waits for, processor time, figures of targets.
//! Out: the part that limited each second, and those figures for observers. It sends nothing.

use std::time::{Duration, Instant};

use longhaul_core::{LaneId, Role};
use longhaul_net::LaneHandle;
use longhaul_proto::tuning::limit::Spent;
use longhaul_proto::wire::message::{Limited, TargetReport};

use super::far_targets::FarTargets;
use crate::api::TargetFigures;
use crate::cpu::{Stage, StageTimes};
use crate::lanes::bottleneck::{Limiter, PathView, WaitsFor};
use crate::lanes::worker::pulse::Doing;
use crate::session::totals::TargetTroubles;

/// The limits of a session. See the module.
pub(super) struct SessionLimits {
    limiter: Limiter,
    /// The reason for which a lane of this side has nothing to do now.
    waits_for: WaitsFor,
    times: StageTimes,
    /// The targets of the other side, as it tells of them.
    far: FarTargets,
    /// The troubles of those targets.
    troubles: TargetTroubles,
}

/// The processor time of this side.
#[derive(Clone, Copy, Debug)]
pub(super) struct MovingCosts {
    /// Processor time that lanes have spent on moving bytes so far, encryption included.
    pub(super) spent: Duration,
    /// The same, with the hashing of them.
    pub(super) worked: Duration,
    /// Whether this process used up the processors in the last second.
    pub(super) is_pressed: bool,
}

impl SessionLimits {
    /// The limits of a session that begins.
    pub(super) fn new(role: Role) -> SessionLimits {
        SessionLimits {
            limiter: Limiter::new(role),
            waits_for: WaitsFor::Other,
            times: StageTimes::default(),
            far: FarTargets::default(),
            troubles: TargetTroubles::default(),
        }
    }

    /// Hears how the targets of the other side do at this second of the session: see
    /// [`FarTargets::hear`].
    pub(super) fn hear_targets(
        &mut self,
        now: Instant,
        seconds: f64,
        reports: &[TargetReport],
    ) -> Option<Vec<TargetFigures>> {
        let figures = self.far.hear(now, reports)?;
        self.troubles.hear(seconds, &figures);
        Some(figures)
    }

    /// Takes the troubles of those targets, at the end of the session.
    pub(super) fn take_troubles(&mut self) -> TargetTroubles {
        std::mem::take(&mut self.troubles)
    }

    /// The processor time of the session, by stage.
    pub(super) fn times(&self) -> &StageTimes {
        &self.times
    }

    /// The processor time of this side: see [`MovingCosts`].
    pub(super) fn moving(&self) -> MovingCosts {
        let spent = Duration::from_secs_f64(self.times.of(Stage::Net));
        let worked = spent + Duration::from_secs_f64(self.times.of(Stage::Hash));
        MovingCosts { spent, worked, is_pressed: self.limiter.is_pressed() }
    }

    /// Sets the reason for which a lane of this side has nothing to do from now on.
    pub(super) fn set_state(&mut self, waits_for: WaitsFor) {
        self.waits_for = waits_for;
    }

    /// Counts a look at what the lanes do.
    pub(super) fn look(&mut self, lanes: &[Doing]) {
        self.limiter.look(lanes, self.waits_for);
    }

    /// Records the other side's report, which came at `now`.
    pub(super) fn hear(&mut self, now: std::time::Instant, by: Option<Limited>) {
        self.limiter.hear(now, by);
    }

    /// Closes a second on a path that its control sees so. See [`Limiter::second`].
    pub(super) fn second<'a>(
        &mut self,
        lanes: impl Iterator<Item = (LaneId, &'a LaneHandle)>,
        path: PathView,
    ) -> Option<Option<Limited>> {
        self.limiter.set_path(path);
        self.limiter.second(lanes, &self.times)
    }

    /// The time since a second was last closed.
    pub(super) fn judged_for(&self) -> Duration {
        self.limiter.since().elapsed()
    }

    /// The part that limited the last second. `None` if it is not known.
    pub(super) fn limited(&self) -> Option<Limited> {
        self.limiter.limited()
    }

    /// How long each part limited the session.
    pub(super) fn spent(&self) -> &Spent {
        self.limiter.spent()
    }
}
