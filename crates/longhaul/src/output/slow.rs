//! Names the slow one of several targets, with the evidence, when it becomes slow and when it is so
//! no more.
//!
//! In: the figures of all targets, once a second. Out: sentences. It judges nothing by itself.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use longhaul_core::Escaped;
use longhaul_engine::{TargetFigures, TargetState};

/// The targets that were named as slow.
#[derive(Debug, Default)]
pub(super) struct SlowTargets(BTreeSet<u32>);

impl SlowTargets {
    /// The sentences about targets whose state has changed.
    pub(super) fn news(&mut self, figures: &[TargetFigures]) -> Vec<String> {
        let mut news = Vec::new();
        for target in figures {
            let (number, is_slow) = (target.target.0, target.state == TargetState::Slow);
            match is_slow {
                true if self.0.insert(number) => news.push(slow(target, figures)),
                false if self.0.remove(&number) => {
                    news.push(format!("{} keeps up with the other targets again", shown(target)));
                }
                _ => {}
            }
        }
        news
    }
}

fn slow(target: &TargetFigures, all: &[TargetFigures]) -> String {
    let siblings: Vec<u64> =
        all.iter().filter(|other| other.target != target.target).filter_map(|other| other.busy_bytes_per_s).collect();
    let p99 = target.latency.map_or(Duration::ZERO, |latency| latency.p99).as_millis();
    let (low, high) = (siblings.iter().min(), siblings.iter().max());
    let siblings = match (low, high) {
        (Some(low), Some(high)) => format!("; its siblings {} to {} MB/s", low / 1_000_000, high / 1_000_000),
        _ => String::new(),
    };
    let rate = target.busy_bytes_per_s.unwrap_or(0) / 1_000_000;
    format!("limited by {}: {rate} MB/s, p99 {p99} ms{siblings}", shown(target))
}

fn shown(target: &TargetFigures) -> String {
    // Those of the other side have none.
    if target.dir.as_os_str().is_empty() {
        return format!("target {}", target.target.0);
    }
    format!("target {} ({})", target.target.0, Escaped(target.dir.as_os_str().as_bytes()))
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
    }
}
