//! The figures of targets on their way to the other side, and from it.
//!
//! In: the figures of this side's targets, or the other side's message. Out: the message, or
//! figures for observers, without directories. A peer may claim anything: its claims are shown, at
//! most once in half a second, and nothing is decided by them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use longhaul_core::{Latency, TargetId};
use longhaul_proto::wire::message::{TARGETS_TOLD_MAX, TargetReport, TargetStanding};

use crate::api::{TargetFigures, TargetState};

/// The targets of the other side.
#[derive(Debug, Default)]
pub(super) struct FarTargets {
    /// When figures were taken last. `None` before the first.
    heard: Option<Instant>,
}

impl FarTargets {
    /// The figures in a message. `None` if it comes too soon after the one before, or tells none.
    pub(super) fn hear(&mut self, now: Instant, reports: &[TargetReport]) -> Option<Vec<TargetFigures>> {
        let is_soon = self.heard.is_some_and(|heard| now.saturating_duration_since(heard) < HEARD_EVERY);
        if is_soon || reports.is_empty() || reports.len() > TARGETS_TOLD_MAX {
            return None;
        }
        self.heard = Some(now);
        Some(reports.iter().map(figures).collect())
    }
}

/// The message about these targets.
pub(super) fn reports(figures: &[TargetFigures]) -> Vec<TargetReport> {
    figures.iter().take(TARGETS_TOLD_MAX).map(report).collect()
}

fn report(figures: &TargetFigures) -> TargetReport {
    let us = |took: Duration| u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    TargetReport {
        target: figures.target.0,
        bytes_per_s: figures.bytes_per_s,
        busy_bytes_per_s: figures.busy_bytes_per_s,
        queued_bytes: figures.queued_bytes,
        queued: figures.queued,
        latency_us: figures.latency.map(|latency| [latency.p50, latency.p90, latency.p99].map(us)),
        thousandths: (figures.share.clamp(0.0, 1.0) * 1000.0).round() as u16,
        state: match figures.state {
            TargetState::Ok => TargetStanding::Ok,
            TargetState::Slow => TargetStanding::Slow,
            TargetState::Full => TargetStanding::Full,
            TargetState::Failed => TargetStanding::Failed,
            TargetState::Hung => TargetStanding::Hung,
        },
    }
}

fn figures(report: &TargetReport) -> TargetFigures {
    let latency = report.latency_us.map(|us| us.map(Duration::from_micros));
    TargetFigures {
        target: TargetId(report.target),
        dir: PathBuf::new(),
        bytes_per_s: report.bytes_per_s,
        busy_bytes_per_s: report.busy_bytes_per_s,
        queued_bytes: report.queued_bytes,
        queued: report.queued,
        latency: latency.map(|[p50, p90, p99]| Latency { p50, p90, p99 }),
        share: f64::from(report.thousandths.min(1000)) / 1000.0,
        state: match report.state {
            TargetStanding::Ok => TargetState::Ok,
            TargetStanding::Slow => TargetState::Slow,
            TargetStanding::Full => TargetState::Full,
            TargetStanding::Failed => TargetState::Failed,
            TargetStanding::Hung => TargetState::Hung,
        },
    }
}

/// Figures that come sooner after the ones before are dropped: an honest side sends them once a
/// second.
const HEARD_EVERY: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    fn told(target: u32, state: TargetState) -> TargetFigures {
        TargetFigures {
            target: TargetId(target),
            dir: "/d1".into(),
            bytes_per_s: 7,
            busy_bytes_per_s: Some(21_000_000),
            queued_bytes: 8,
            queued: 9,
            latency: Some(Latency {
                p50: Duration::from_micros(3),
                p90: Duration::from_millis(2),
                p99: Duration::from_secs(1),
            }),
            share: 0.25,
            state,
        }
    }

    #[test]
    fn figures_travel_whole_but_for_the_directory() {
        let states = [TargetState::Ok, TargetState::Slow, TargetState::Full, TargetState::Failed, TargetState::Hung];
        let ours: Vec<_> = (0..).zip(states).map(|(number, state)| told(number, state)).collect();
        let theirs = FarTargets::default().hear(Instant::now(), &reports(&ours)).expect("the first");
        let bare: Vec<_> = ours.into_iter().map(|figures| TargetFigures { dir: PathBuf::new(), ..figures }).collect();
        assert_eq!(theirs, bare);
    }

    #[test]
    fn a_peer_that_tells_too_much_is_not_heard() {
        let (now, mut far) = (Instant::now(), FarTargets::default());
        let one = report(&told(0, TargetState::Slow));
        assert_eq!(far.hear(now, &[]), None);
        assert_eq!(far.hear(now, &vec![one.clone(); TARGETS_TOLD_MAX + 1]), None);
        let claims = TargetReport { thousandths: u16::MAX, latency_us: Some([u64::MAX; 3]), ..one.clone() };
        let heard = far.hear(now, &[claims]).expect("the first");
        assert_eq!(heard[0].share, 1.0);
        assert_eq!(far.hear(now + HEARD_EVERY / 2, std::slice::from_ref(&one)), None, "too soon");
        assert!(far.hear(now + HEARD_EVERY, &[one]).is_some());
    }
}
