//! Sums for how long each target of a destination was slow or full, failed or hung, with the
//! evidence.
//!
//! In: the figures of all targets, about once a second of a session. Out: the targets that were
//! anything but well, for the report. It judges none: the state of a target comes with its figures.
//! Those may be claims of a peer, so that what is kept of them is bounded.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use longhaul_core::TargetId;
use longhaul_proto::wire::message::TARGETS_TOLD_MAX;

use crate::api::{TargetFigures, TargetState, TroubledTarget};

/// The troubles of the targets of a destination.
#[derive(Clone, Debug, Default)]
pub(crate) struct TargetTroubles {
    /// The second of the session at which figures were heard last.
    heard_s: f64,
    /// The targets that were not well at least once.
    targets: BTreeMap<TargetId, Trouble>,
}

/// The troubles of one target.
#[derive(Clone, Debug, Default)]
struct Trouble {
    dir: PathBuf,
    slow_s: f64,
    full_s: f64,
    failed_s: f64,
    hung_s: f64,
    /// Its own rate while it was slow.
    rate: Mean,
    /// The rate of its slowest and of its fastest sibling meanwhile.
    siblings: [Mean; 2],
    /// Bytes that it wrote meanwhile, and that all targets did.
    written: [f64; 2],
    /// The largest p99 of its requests meanwhile. `None`: not known.
    p99: Option<Duration>,
}

/// A mean over time.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    seconds: f64,
    /// The sum of each value times the seconds for which it held.
    weighted: f64,
}

impl TargetTroubles {
    /// Hears the figures of all targets at this second of the session. They hold for the time since
    /// the figures before.
    pub(crate) fn hear(&mut self, now_s: f64, figures: &[TargetFigures]) {
        let passed_s = (now_s - self.heard_s).max(0.0);
        self.heard_s = now_s;
        for target in figures.iter().filter(|target| target.state != TargetState::Ok) {
            let has_room = self.targets.len() < TARGETS_TOLD_MAX || self.targets.contains_key(&target.target);
            if passed_s > 0.0 && has_room {
                self.targets.entry(target.target).or_default().hear(passed_s, target, figures);
            }
        }
    }

    /// Adds the troubles of a session that is over.
    pub(crate) fn add(&mut self, session: TargetTroubles) {
        for (target, trouble) in session.targets {
            if self.targets.len() < TARGETS_TOLD_MAX || self.targets.contains_key(&target) {
                self.targets.entry(target).or_default().add(trouble);
            }
        }
    }

    /// The targets that were not well, by their numbers.
    pub(super) fn into_report(self) -> Vec<TroubledTarget> {
        self.targets.into_iter().map(|(target, trouble)| trouble.into_report(target)).collect()
    }
}

impl Trouble {
    /// Counts `passed_s` seconds in which the target had these figures, beside those of all.
    fn hear(&mut self, passed_s: f64, target: &TargetFigures, all: &[TargetFigures]) {
        self.dir.clone_from(&target.dir);
        match target.state {
            TargetState::Ok => {}
            TargetState::Full => self.full_s += passed_s,
            TargetState::Failed => self.failed_s += passed_s,
            TargetState::Hung => self.hung_s += passed_s,
            TargetState::Slow => {
                self.slow_s += passed_s;
                let siblings = all.iter().filter(|other| other.target != target.target);
                let rates = siblings.filter_map(|other| other.busy_bytes_per_s);
                let (low, high) = rates.fold((None, None), |(low, high): (Option<u64>, Option<u64>), rate| {
                    (Some(low.map_or(rate, |low| low.min(rate))), high.max(Some(rate)))
                });
                let [slowest, fastest] = &mut self.siblings;
                for (mean, rate) in [(&mut self.rate, target.busy_bytes_per_s), (slowest, low), (fastest, high)] {
                    if let Some(rate) = rate {
                        mean.hear(passed_s, rate as f64);
                    }
                }
                let [own, of_all] = &mut self.written;
                *own += target.bytes_per_s as f64 * passed_s;
                *of_all += all.iter().map(|target| target.bytes_per_s as f64).sum::<f64>() * passed_s;
                self.p99 = self.p99.max(target.latency.map(|latency| latency.p99));
            }
        }
    }

    fn add(&mut self, later: Trouble) {
        self.dir = later.dir;
        self.slow_s += later.slow_s;
        self.full_s += later.full_s;
        self.failed_s += later.failed_s;
        self.hung_s += later.hung_s;
        self.rate.add(later.rate);
        self.siblings.iter_mut().zip(later.siblings).for_each(|(mean, later)| mean.add(later));
        self.written.iter_mut().zip(later.written).for_each(|(bytes, later)| *bytes += later);
        self.p99 = self.p99.max(later.p99);
    }

    fn into_report(self, target: TargetId) -> TroubledTarget {
        let rate = |mean: Mean| mean.value().map(|rate| rate as u64);
        let [slowest, fastest] = self.siblings.map(rate);
        let [own, of_all] = self.written;
        TroubledTarget {
            target,
            dir: self.dir,
            slow_s: self.slow_s,
            full_s: self.full_s,
            failed_s: self.failed_s,
            hung_s: self.hung_s,
            busy_bytes_per_s: rate(self.rate),
            siblings_bytes_per_s: slowest.zip(fastest),
            p99: self.p99,
            share: (of_all > 0.0).then(|| own / of_all),
        }
    }
}

impl Mean {
    fn hear(&mut self, passed_s: f64, value: f64) {
        self.add(Mean { seconds: passed_s, weighted: passed_s * value });
    }

    fn add(&mut self, later: Mean) {
        self.seconds += later.seconds;
        self.weighted += later.weighted;
    }

    /// The mean. `None` if nothing was heard.
    fn value(self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.weighted / self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::Latency;

    use super::*;

    fn figures(number: u32, mb_per_s: u64, state: TargetState) -> TargetFigures {
        let p99 = Duration::from_millis(1000 / mb_per_s.max(1));
        TargetFigures {
            target: TargetId(number),
            dir: format!("/d{number}").into(),
            bytes_per_s: mb_per_s,
            busy_bytes_per_s: Some(mb_per_s * 1_000_000),
            queued_bytes: 0,
            queued: 0,
            latency: Some(Latency { p50: p99, p90: p99, p99 }),
            share: 0.0,
            state,
        }
    }

    /// Four targets, of which the last has this rate and state.
    fn second(mb_per_s: u64, state: TargetState) -> Vec<TargetFigures> {
        let mut all: Vec<_> =
            (0..).zip([98, 101, 100]).map(|(number, rate)| figures(number, rate, TargetState::Ok)).collect();
        all.push(figures(3, mb_per_s, state));
        all
    }

    #[test]
    fn targets_that_were_well_are_not_told() {
        let mut troubles = TargetTroubles::default();
        troubles.hear(1.0, &second(99, TargetState::Ok));
        assert_eq!(troubles.into_report(), []);
    }

    #[test]
    fn a_slow_target_is_told_with_the_means_of_the_seconds_in_which_it_was_slow() {
        let mut troubles = TargetTroubles::default();
        troubles.hear(1.0, &second(99, TargetState::Ok));
        troubles.hear(2.0, &second(20, TargetState::Slow));
        troubles.hear(5.0, &second(10, TargetState::Slow));
        troubles.hear(6.0, &second(99, TargetState::Ok));
        let told = troubles.into_report();
        let want = TroubledTarget {
            target: TargetId(3),
            dir: "/d3".into(),
            slow_s: 4.0,
            full_s: 0.0,
            failed_s: 0.0,
            hung_s: 0.0,
            busy_bytes_per_s: Some(12_500_000),
            siblings_bytes_per_s: Some((98_000_000, 101_000_000)),
            p99: Some(Duration::from_millis(100)),
            // 50 of 1246 bytes.
            share: Some(50.0 / 1246.0),
        };
        assert_eq!(told, [want]);
    }

    #[test]
    fn full_and_failed_targets_are_told_over_all_sessions() {
        let (mut first, mut next) = (TargetTroubles::default(), TargetTroubles::default());
        first.hear(1.0, &second(50, TargetState::Full));
        first.hear(3.0, &second(50, TargetState::Failed));
        next.hear(0.5, &second(50, TargetState::Failed));
        let mut run = TargetTroubles::default();
        run.add(first);
        run.add(next);
        let told = run.into_report();
        let [TroubledTarget { slow_s, full_s, failed_s, busy_bytes_per_s, share, .. }] = &told[..] else {
            panic!("{told:?}")
        };
        assert_eq!((*slow_s, *full_s, *failed_s, *busy_bytes_per_s, *share), (0.0, 1.0, 2.5, None, None));
    }

    #[test]
    fn a_peer_that_names_ever_new_targets_fills_no_memory() {
        let mut troubles = TargetTroubles::default();
        for number in 0..3 * TARGETS_TOLD_MAX as u32 {
            troubles.hear(f64::from(number + 1), &[figures(number, 1, TargetState::Slow)]);
        }
        let mut run = TargetTroubles::default();
        run.add(troubles.clone());
        run.add(troubles);
        assert_eq!(run.into_report().len(), TARGETS_TOLD_MAX);
    }
}
