//! Which congestion control carries more on this path: lanes with each run side by side, and the
//! better one takes all.
//!
//! In: samples of lanes that are compared at the same time over the same path. Out: the index of
//! the better one. Side by side, a control that ignores losses takes its share from one that backs
//! off; it would take that share from others as well.

use super::LaneSample;

/// The bytes that the lanes of each algorithm delivered since the comparison began.
#[derive(Clone, Debug, Default)]
pub(super) struct AlgorithmTrial {
    /// Bytes and number of lane samples, by index of the algorithm.
    samples: Vec<(u64, u64)>,
}

/// The result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Better {
    pub(super) algorithm: usize,
    /// Mean bytes of a lane in a sample, and those of the other algorithm.
    pub(super) better: u64,
    pub(super) worse: u64,
}

impl AlgorithmTrial {
    /// Adds the samples of a second.
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

    /// The better algorithm. `None` if there is only one, or none is clearly better.
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

/// The lead that counts, a quarter (1/4). A smaller one may be chance, as lanes share unevenly even
/// with the same control.
const CLEARLY: u64 = 4;
