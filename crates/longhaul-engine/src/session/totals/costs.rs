//! Sums what a transfer cost its hosts: processor time by side and by stage, the requests of the
//! disk engine, and the time for which each part was the limit.
//!
//! In: the counters of each session that ends. Out: the same for the report. It knows no entries.

use longhaul_disk::EngineReport;
use longhaul_proto::tuning::limit::Spent;

use crate::api::Limited;
use crate::cpu::Stage;

/// The costs of a transfer.
#[derive(Clone, Debug, Default)]
pub(crate) struct TransferCosts {
    /// CPU microseconds of the sending process. `None` as long as no session said so.
    sender_us: Option<u64>,
    /// CPU microseconds of the receiving process. `None` as long as no session said so.
    receiver_us: Option<u64>,
    /// CPU seconds by stage.
    stages: Vec<(Stage, f64)>,
    /// The requests of the last session's disk engine. `None` before the first session ends.
    io: Option<EngineReport>,
    limits: Spent,
}

impl TransferCosts {
    /// Adds CPU microseconds of the sending process.
    pub(crate) fn add_sender(&mut self, us: u64) {
        let sum = self.sender_us.get_or_insert(0);
        *sum = sum.saturating_add(us);
    }

    /// Adds CPU microseconds of the receiving process.
    pub(crate) fn add_receiver(&mut self, us: u64) {
        let sum = self.receiver_us.get_or_insert(0);
        *sum = sum.saturating_add(us);
    }

    /// Sets CPU microseconds of the sending process as that counts them. `None` if it does not.
    pub(crate) fn set_sender(&mut self, us: Option<u64>) {
        self.sender_us = us;
    }

    /// Sets CPU microseconds of the receiving process as that counts them.
    pub(crate) fn set_receiver(&mut self, us: u64) {
        self.receiver_us = Some(us);
    }

    /// Adds what this side knows of a session that is over.
    pub(crate) fn add_session(&mut self, limits: &Spent, stages: Vec<(Stage, f64)>, io: EngineReport) {
        self.limits.add_all(limits);
        self.io = Some(io);
        if self.stages.is_empty() {
            self.stages = stages;
        } else {
            self.stages.iter_mut().zip(stages).for_each(|((_, sum), (_, more))| *sum += more);
        }
    }

    /// Joins the costs of the receiving half of a copy within one process to those of the sending
    /// half. Their CPU time cannot be told apart but by stage.
    pub(crate) fn join(&mut self, received: &TransferCosts) {
        self.sender_us = Some(self.stages_us());
        self.receiver_us = Some(received.stages_us());
        self.stages = self.stages.iter().zip(&received.stages).map(|((stage, a), (_, b))| (*stage, a + b)).collect();
    }

    fn stages_us(&self) -> u64 {
        (self.stages.iter().map(|(_, seconds)| seconds).sum::<f64>() * 1e6) as u64
    }

    /// CPU seconds by stage.
    pub(crate) fn stages(&self) -> &[(Stage, f64)] {
        &self.stages
    }

    /// CPU seconds of the sending process. `None` if nobody counted them.
    pub(crate) fn sender(&self) -> Option<f64> {
        self.sender_us.map(|us| us as f64 / 1e6)
    }

    /// CPU seconds of the receiving process. `None` if nobody counted them.
    pub(crate) fn receiver(&self) -> Option<f64> {
        self.receiver_us.map(|us| us as f64 / 1e6)
    }

    /// The requests of the last session's disk engine. `None` before the first session ends.
    pub(crate) fn io(&self) -> Option<EngineReport> {
        self.io.clone()
    }

    /// The share of the time for which each part was the limit.
    pub(crate) fn limits(&self) -> Vec<Limited> {
        self.limits.shares().into_iter().map(Limited::from).collect()
    }
}
