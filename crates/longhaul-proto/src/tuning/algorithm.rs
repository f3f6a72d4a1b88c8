//! Which congestion control carries more on this path: lanes with each run side by side, and the
//! better one takes all.
//!
//! In: samples of lanes that are compared at the same time over the same path. Out: the place of
//! the better one. Side by side a loss-blind control takes its share from one that backs off; that
//! is the share it would take from others as well.

use super::LaneSample;

/// What the lanes of each algorithm delivered since it was begun to compare.
#[derive(Clone, Debug, Default)]
pub(super) struct AlgorithmTrial {
    /// Bytes and lane-samples, by place.
    samples: Vec<(u64, u64)>,
}

/// The result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Better {
    pub(super) algorithm: usize,
    /// Bytes of a lane in a sample, and those of the other.
    pub(super) better: u64,
    pub(super) worse: u64,
}

impl AlgorithmTrial {
    /// Takes a second in.
    pub(super) fn add(&mut self, lanes: &[LaneSample]) {
        for sample in lanes {
            let Some(place) = sample.algorithm else { continue };
            if self.samples.len() <= place {
                self.samples.resize(place + 1, (0, 0));
            }
            self.samples[place].0 += sample.acked;
            self.samples[place].1 += 1;
        }
    }

    /// The better one, if there are several and one is clearly better.
    pub(super) fn better(&self) -> Option<Better> {
        let mean = |(bytes, samples): &(u64, u64)| bytes.checked_div(*samples);
        let mut means: Vec<_> =
            self.samples.iter().enumerate().filter_map(|(place, seen)| Some((mean(seen)?, place))).collect();
        means.sort_unstable();
        let [.., (worse, _), (better, algorithm)] = means[..] else { return None };
        (better > worse + worse / CLEARLY).then_some(Better { algorithm, better, worse })
    }

    pub(super) fn clear(&mut self) {
        self.samples.clear();
    }
}

/// A lead of less than a quarter may be chance: lanes share unevenly even with the same control.
const CLEARLY: u64 = 4;
