//! Watches the targets of a destination that has several, and names the slow one while it is slow.
//!
//! In: the load of each target, once a second. Out: an event, and lines in the log when a target
//! becomes slow and when it is so no more. It decides nothing; the choice among targets is made
//! where files are begun.

use std::sync::Arc;

use longhaul_core::{TargetId, slow};
use longhaul_disk::{TargetCondition, TargetLoad};

use crate::api::{FilesAtRisk, TargetFigures, TargetState};

/// The targets of a destination.
pub(super) struct TargetWatch {
    targets: Vec<WatchedTarget>,
    /// When they were looked at last, in seconds of the session.
    looked: f64,
}

struct WatchedTarget {
    load: Arc<TargetLoad>,
    /// Bytes written there when it was looked at last.
    written: u64,
    state: TargetState,
}

impl TargetWatch {
    /// Watches these targets. One alone has nothing to be compared with, and is not watched.
    pub(super) fn new(loads: Vec<Arc<TargetLoad>>) -> TargetWatch {
        let watched = |load: Arc<TargetLoad>| {
            let written = load.figures().written_bytes;
            WatchedTarget { load, written, state: TargetState::Ok }
        };
        let targets = if loads.len() > 1 { loads.into_iter().map(watched).collect() } else { Vec::new() };
        TargetWatch { targets, looked: 0.0 }
    }

    /// The figures of all targets at this second of the session. `None` if there is one target.
    pub(super) fn look(&mut self, seconds: f64) -> Option<Vec<TargetFigures>> {
        if self.targets.is_empty() {
            return None;
        }
        let passed = (seconds - self.looked).max(0.001);
        self.looked = seconds;
        let figures: Vec<_> = self.targets.iter().map(|target| target.load.figures()).collect();
        let written: Vec<u64> =
            self.targets.iter().zip(&figures).map(|(target, now)| now.written_bytes - target.written).collect();
        let all: u64 = written.iter().sum();
        let slow = slow(&figures.iter().map(|figures| figures.rate).collect::<Vec<_>>());
        let mut told = Vec::new();
        for (((target, now), bytes), slow) in self.targets.iter_mut().zip(&figures).zip(written).zip(slow) {
            let before = target.state;
            target.written = now.written_bytes;
            target.state = match now.condition {
                TargetCondition::Failed => TargetState::Failed,
                TargetCondition::Hung => TargetState::Hung,
                TargetCondition::Full => TargetState::Full,
                TargetCondition::Well if slow => TargetState::Slow,
                TargetCondition::Well => TargetState::Ok,
            };
            let figures = TargetFigures {
                target: target.load.id(),
                dir: target.load.dir().to_owned(),
                bytes_per_s: (bytes as f64 / passed) as u64,
                busy_bytes_per_s: now.rate.map(|rate| rate as u64),
                queued_bytes: now.queued_bytes,
                queued: now.queued,
                latency: now.latency,
                share: if all > 0 { bytes as f64 / all as f64 } else { 0.0 },
                state: target.state,
            };
            if (before == TargetState::Slow) != (target.state == TargetState::Slow) {
                say(&figures);
            }
            told.push(figures);
        }
        Some(told)
    }

    /// The files on targets that failed since the last call.
    pub(super) fn at_risk(&self) -> Vec<FilesAtRisk> {
        let on = |WatchedTarget { load, .. }: &WatchedTarget| {
            let files = load.take_at_risk()?;
            let names = files.names().cloned().collect();
            Some(FilesAtRisk { target: load.id(), dir: load.dir().to_owned(), files: files.count(), names })
        };
        self.targets.iter().filter_map(on).collect()
    }
}

/// Says in the log that a target became slow, or is so no more.
fn say(figures: &TargetFigures) {
    let TargetId(number) = figures.target;
    let (dir, rate) = (figures.dir.display(), figures.busy_bytes_per_s.unwrap_or(0));
    let p99_ms = figures.latency.map_or(0, |latency| latency.p99.as_millis() as u64);
    match figures.state {
        TargetState::Slow => {
            tracing::warn!(target: "longhaul::disk", number, %dir, bytes_per_s = rate, p99_ms, "a target is far slower than its siblings");
        }
        // Who met the error has said so.
        TargetState::Full | TargetState::Failed | TargetState::Hung => {}
        TargetState::Ok => {
            tracing::info!(target: "longhaul::disk", number, %dir, bytes_per_s = rate, p99_ms, "a target is as fast as its siblings again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_target_alone_is_not_watched() {
        assert!(TargetWatch::new(Vec::new()).look(1.0).is_none());
    }
}
