//! The rates that a path carried.
//!
//! In: the rate of each round. Out: recent ones and the highest of a minute. It judges nothing.

use std::collections::VecDeque;

/// The delivered rates of late, bytes/s.
#[derive(Clone, Debug, Default)]
pub(super) struct CarriedMost {
    recent: VecDeque<f64>,
    /// The most of each five seconds of a minute, the newest last, and the seconds of the newest.
    most: VecDeque<f64>,
    seconds: f64,
}

impl CarriedMost {
    /// Adds the rate of a round, by which what is known becomes so many seconds older.
    pub(super) fn add(&mut self, rate: f64, seconds: f64) {
        self.recent.push_back(rate);
        if self.recent.len() > ROUNDS_KEPT {
            self.recent.pop_front();
        }
        self.seconds += seconds;
        if self.seconds > SPAN_SECONDS || self.most.is_empty() {
            self.seconds = 0.0;
            self.most.push_back(0.0);
            if self.most.len() > SPANS_KEPT {
                self.most.pop_front();
            }
        }
        // A single round may have caught packets of another one.
        let sure = self.recent();
        if let Some(last) = self.most.back_mut() {
            *last = last.max(sure);
        }
    }

    /// Forgets all but the last two rounds.
    pub(super) fn forget(&mut self) {
        let recent = self.recent();
        self.recent.drain(..self.recent.len().saturating_sub(2));
        self.most.clear();
        self.most.push_back(recent);
        self.seconds = 0.0;
    }

    /// The mean of the last two rounds.
    pub(super) fn recent(&self) -> f64 {
        let last = self.recent.iter().rev().take(2);
        let count = last.len().max(1) as f64;
        last.sum::<f64>() / count
    }

    /// The most of the last rounds.
    pub(super) fn most(&self) -> f64 {
        self.recent.iter().copied().fold(0.0, f64::max)
    }

    /// The most of the last minute.
    pub(super) fn highest(&self) -> f64 {
        self.most.iter().copied().fold(0.0, f64::max)
    }
}

const ROUNDS_KEPT: usize = 6;
const SPANS_KEPT: usize = 12;
const SPAN_SECONDS: f64 = 5.0;
