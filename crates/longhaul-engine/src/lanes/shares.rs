//! What the lanes of a side share: the rate that all of them keep together, and this process's room
//! for lanes over QUIC.
//!
//! In: the rates asked for, the lanes that stand. Out: to each connection its part. Knows no
//! threads, and not why lanes come and go.

use longhaul_core::Role;
use longhaul_net::LaneHandle;

use super::worker::pacer::{LaneRates, Pacer};

/// See the module.
#[derive(Debug)]
pub(crate) struct LaneShares {
    role: Role,
    rates: LaneRates,
    pacer: Pacer,
    /// Whether the kernel was told to pace.
    paced: bool,
    windows: u64,
}

impl LaneShares {
    /// `windows`: bytes that lanes over QUIC may keep in this process, all together.
    pub(crate) fn new(role: Role, rates: LaneRates, windows: u64) -> LaneShares {
        LaneShares { role, rates, pacer: Pacer::new(pace(role, rates)), paced: false, windows }
    }

    /// The account of the rate, on which all lanes draw.
    pub(crate) fn pacer(&self) -> &Pacer {
        &self.pacer
    }

    /// Keeps other rates from now on: [`LaneShares::divide_rate`] is to follow.
    pub(crate) fn set_rates(&mut self, change: impl FnOnce(&mut LaneRates)) {
        change(&mut self.rates);
        self.pacer.set_rate(pace(self.role, self.rates));
    }

    /// Has the kernel pace each of the lanes that stand, if this side sends, besides the account
    /// that all of them share.
    pub(crate) fn divide_rate<'a>(&mut self, lanes: impl Iterator<Item = &'a LaneHandle> + Clone) {
        let share = self.pacer.share(lanes.clone().count()).filter(|_| self.role == Role::Sender);
        if share.is_some() || self.paced {
            lanes.for_each(|lane| lane.set_pace(share));
            self.paced = share.is_some();
        }
    }

    /// Gives those of the lanes that run over QUIC, where so many may come to, their parts of this
    /// side's memory.
    pub(crate) fn divide_windows<'a>(&self, lanes: impl Iterator<Item = &'a LaneHandle> + Clone, quic_expected: usize) {
        let quic = lanes.filter(|lane| lane.is_quic());
        let window = self.windows / quic.clone().count().max(quic_expected).max(1) as u64;
        let window = usize::try_from(window).unwrap_or(usize::MAX);
        quic.for_each(|lane| lane.set_window(window));
    }
}

/// The rate of the account: a receiver only sees to it that its own is kept, and gives a sender
/// that keeps it some room.
fn pace(role: Role, rates: LaneRates) -> Option<u64> {
    match role {
        Role::Sender => rates.lowest(),
        Role::Receiver => rates.own_rate.map(|rate| rate.saturating_add(rate / 10)),
    }
}
