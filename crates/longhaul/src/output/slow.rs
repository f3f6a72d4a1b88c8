//! Names the slow one of several targets, with the evidence: when it becomes slow, when it is so no
//! more, and at the end of a run.
//!
//! In: the figures of all targets, once a second; at the end those that were not well. Out:
//! sentences. It judges nothing by itself.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use longhaul_core::Escaped;
use longhaul_engine::{TargetFigures, TargetId, TargetState, TroubledTarget};

/// The targets that were named as slow, or as those that do not answer.
#[derive(Debug, Default)]
pub(super) struct SlowTargets(BTreeMap<u32, TargetState>);

impl SlowTargets {
    /// The sentences about targets whose state has changed.
    pub(super) fn news(&mut self, figures: &[TargetFigures]) -> Vec<String> {
        let mut news = Vec::new();
        for target in figures {
            let (number, state) = (target.target.0, target.state);
            if !matches!(state, TargetState::Slow | TargetState::Hung) {
                match self.0.remove(&number) {
                    Some(TargetState::Hung) => news.push(format!("{} answers again", named(target))),
                    Some(_) => news.push(format!("{} keeps up with the other targets again", named(target))),
                    None => {}
                }
            } else if self.0.insert(number, state) != Some(state) {
                news.push(match state {
                    TargetState::Hung => {
                        format!("{} does not answer: its share goes to the other targets meanwhile", named(target))
                    }
                    _ => slow(target, figures),
                });
            }
        }
        news
    }
}

fn slow(target: &TargetFigures, all: &[TargetFigures]) -> String {
    let siblings: Vec<u64> =
        all.iter().filter(|other| other.target != target.target).filter_map(|other| other.busy_bytes_per_s).collect();
    let siblings = siblings.iter().min().copied().zip(siblings.iter().max().copied());
    let p99 = target.latency.map(|latency| latency.p99);
    format!("limited by {}: {}", named(target), evidence(target.busy_bytes_per_s, p99, siblings))
}

/// The sentence about a target that was not well, at the end of a run.
pub(super) fn trouble(troubled: &TroubledTarget) -> String {
    let TroubledTarget { target, dir, slow_s, full_s, failed_s, hung_s, share, .. } = troubled;
    let times =
        [(slow_s, "slow"), (full_s, "full"), (failed_s, "out of use after a failure"), (hung_s, "without an answer")];
    let times = times.into_iter().filter(|(seconds, _)| **seconds > 0.0);
    let times: Vec<_> = times.map(|(seconds, was)| format!("{was} for {seconds:.1} s")).collect();
    let mut sentence = format!("{} was {}", shown(*target, dir), times.join(", "));
    if *slow_s > 0.0 {
        let TroubledTarget { busy_bytes_per_s, p99, siblings_bytes_per_s, .. } = *troubled;
        sentence.push_str(&format!(": {}", evidence(busy_bytes_per_s, p99, siblings_bytes_per_s)));
    }
    if let Some(share) = share {
        sentence.push_str(&format!("; it took {:.0} % of the bytes meanwhile", share * 100.0));
    }
    sentence
}

/// The figures that show that a target is slow.
fn evidence(rate: Option<u64>, p99: Option<Duration>, siblings: Option<(u64, u64)>) -> String {
    let (rate, p99_ms) = (rate.unwrap_or(0) / 1_000_000, p99.unwrap_or_default().as_millis());
    let siblings = siblings
        .map(|(low, high)| format!("; its siblings {} to {} MB/s", low / 1_000_000, high / 1_000_000))
        .unwrap_or_default();
    format!("{rate} MB/s, p99 {p99_ms} ms{siblings}")
}

fn named(target: &TargetFigures) -> String {
    shown(target.target, &target.dir)
}

fn shown(TargetId(number): TargetId, dir: &Path) -> String {
    // Those of the other side have none.
    if dir.as_os_str().is_empty() {
        return format!("target {number}");
    }
    format!("target {number} ({})", Escaped(dir.as_os_str().as_bytes()))
}

#[cfg(test)]
mod tests {
    use longhaul_engine::{Latency, TargetId};

    use super::*;

    fn figures(number: u32, rate: u64, state: TargetState) -> TargetFigures {
        let p99 = Duration::from_millis(410);
        TargetFigures {
            target: TargetId(number),
            dir: format!("/d{number}").into(),
            bytes_per_s: rate,
            busy_bytes_per_s: Some(rate),
            queued_bytes: 0,
            queued: 0,
            latency: Some(Latency { p50: p99, p90: p99, p99 }),
            share: 0.25,
            state,
        }
    }

    #[test]
    fn a_slow_target_is_named_once_with_its_evidence_and_once_more_when_it_recovers() {
        let mut slow = SlowTargets::default();
        let second = |state| {
            let rates: [(u64, TargetState); 4] =
                [(98, TargetState::Ok), (101, TargetState::Ok), (100, TargetState::Ok), (21, state)];
            let figures = |(number, (rate, state)): (u32, (u64, TargetState))| figures(number, rate * 1_000_000, state);
            (0..).zip(rates).map(figures).collect::<Vec<_>>()
        };
        assert!(slow.news(&second(TargetState::Ok)).is_empty());
        let told = slow.news(&second(TargetState::Slow));
        assert_eq!(told, ["limited by target 3 (/d3): 21 MB/s, p99 410 ms; its siblings 98 to 101 MB/s"]);
        assert!(slow.news(&second(TargetState::Slow)).is_empty());
        assert_eq!(slow.news(&second(TargetState::Ok)), ["target 3 (/d3) keeps up with the other targets again"]);
        let told = slow.news(&second(TargetState::Hung));
        assert_eq!(told, ["target 3 (/d3) does not answer: its share goes to the other targets meanwhile"]);
        assert!(slow.news(&second(TargetState::Hung)).is_empty());
        assert_eq!(slow.news(&second(TargetState::Ok)), ["target 3 (/d3) answers again"]);
    }

    #[test]
    fn a_target_that_was_not_well_is_named_at_the_end() {
        let slow = TroubledTarget {
            target: TargetId(3),
            dir: "/d3".into(),
            slow_s: 12.04,
            full_s: 0.0,
            failed_s: 0.0,
            hung_s: 0.0,
            busy_bytes_per_s: Some(21_000_000),
            siblings_bytes_per_s: Some((98_000_000, 101_000_000)),
            p99: Some(Duration::from_millis(410)),
            share: Some(0.06),
        };
        assert_eq!(
            trouble(&slow),
            "target 3 (/d3) was slow for 12.0 s: 21 MB/s, p99 410 ms; its siblings 98 to 101 MB/s; it took 6 % of the bytes meanwhile"
        );
        let failed = TroubledTarget { slow_s: 0.0, full_s: 1.0, failed_s: 2.0, share: None, dir: "".into(), ..slow };
        assert_eq!(trouble(&failed), "target 3 was full for 1.0 s, out of use after a failure for 2.0 s");
        let hung = TroubledTarget { full_s: 0.0, failed_s: 0.0, hung_s: 10.2, ..failed };
        assert_eq!(trouble(&hung), "target 3 was without an answer for 10.2 s");
    }
}
