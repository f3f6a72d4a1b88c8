//! Divides among the lanes of a side what they share: the rate that they keep together, the path of
//! UDP lanes, and this process's memory for windows, if there are some.
//!
//! In: the rates asked for, and the lanes that stand. Out: to each connection its share. It knows
//! no threads, and not why lanes come and go.

use longhaul_core::Role;
use longhaul_net::{LaneHandle, LaneMemory};
use longhaul_proto::wire::message::Transport;

use super::manners::AccountSeen;
use super::udp::path::UdpPath;
use super::udp::sharers::SlotSharers;
use super::worker::pacer::{LaneRates, Pacer};

/// The shared rate and memory of one side's lanes. See the module.
#[derive(Debug)]
pub(crate) struct LaneShares {
    role: Role,
    rates: LaneRates,
    pacer: Pacer,
    /// Whether the kernel was told to pace.
    paced: bool,
    windows: u64,
    /// The path of UDP lanes.
    path: UdpPath,
    /// The account of UDP lanes: at a sender the rate of their path must hold up no others.
    udp_pacer: Pacer,
    /// The lanes that share the slots of a receiver.
    slots: SlotSharers,
}

impl LaneShares {
    /// `windows`: bytes that the windows of all lanes together may take in this process; `path`:
    /// that of UDP lanes.
    pub(crate) fn new(role: Role, rates: LaneRates, windows: u64, path: UdpPath) -> LaneShares {
        let pacer = Pacer::new(pace(role, rates));
        let udp_pacer = match role {
            Role::Sender => Pacer::new(pace(role, rates)),
            Role::Receiver => pacer.clone(),
        };
        let (path, slots) = (path.beside_lanes_of(pacer.clone()), SlotSharers::default());
        LaneShares { role, rates, pacer, paced: false, windows, path, udp_pacer, slots }
    }

    /// The path of UDP lanes, which all of them share.
    pub(crate) fn path(&self) -> &UdpPath {
        &self.path
    }

    /// The lanes that share the slots of a receiver.
    pub(crate) fn slots(&self) -> &SlotSharers {
        &self.slots
    }

    /// The account on which lanes over a transport draw.
    pub(crate) fn pacer_of(&self, transport: Transport) -> &Pacer {
        if transport == Transport::Udp { &self.udp_pacer } else { &self.pacer }
    }

    /// Has lanes that wait for their turns check whether they were closed.
    pub(crate) fn wake(&self) {
        self.pacer.wake();
        self.udp_pacer.wake();
    }

    /// Lets everything through from now on, because the session ends.
    pub(crate) fn close(&self) {
        self.pacer.close();
        self.udp_pacer.close();
    }

    /// The account of the rate, on which all lanes draw but those over UDP.
    pub(crate) fn pacer(&self) -> &Pacer {
        &self.pacer
    }

    /// Changes the rates from now on. A call of [`LaneShares::divide_rate`] is to follow.
    pub(crate) fn set_rates(&mut self, change: impl FnOnce(&mut LaneRates)) {
        change(&mut self.rates);
        self.pacer.set_rate(pace(self.role, self.rates));
        self.udp_pacer.set_rate(pace(self.role, self.rates));
    }

    /// The account as manners see it, where so many lanes stand.
    pub(crate) fn account(&self, lanes: usize) -> AccountSeen {
        let pacer = &self.pacer;
        AccountSeen { given: pacer.share(lanes), is_asked: pacer.is_asked(), unused: pacer.unused() }
    }

    /// Has the kernel pace each lane that stands, if this side sends, in addition to the shared
    /// account: at the lower of its share and the pace that manners told it, if they did.
    pub(crate) fn divide_rate<'a>(&mut self, lanes: impl Iterator<Item = (Option<u64>, &'a LaneHandle)> + Clone) {
        let share = self.pacer.share(lanes.clone().count()).filter(|_| self.role == Role::Sender);
        if share.is_some() || self.paced {
            lanes.for_each(|(told, lane)| lane.set_pace(share.into_iter().chain(told).min()));
            self.paced = share.is_some();
        }
    }

    /// Gives each lane that has a window its share of this side's memory. `expected`: the number of
    /// such lanes that there may come to be.
    pub(crate) fn divide_windows<'a>(&self, lanes: impl Iterator<Item = &'a LaneHandle> + Clone, expected: usize) {
        let with_window = lanes.filter(|lane| matches!(lane.facts().memory, LaneMemory::Window { .. }));
        let window = self.windows / with_window.clone().count().max(expected).max(1) as u64;
        let window = usize::try_from(window).unwrap_or(usize::MAX);
        with_window.for_each(|lane| lane.set_window(window));
    }
}

/// The rate of the account. A receiver only checks that its own rate is kept, and so allows a
/// sender that keeps it some room.
fn pace(role: Role, rates: LaneRates) -> Option<u64> {
    match role {
        Role::Sender => rates.lowest(),
        Role::Receiver => rates.own_rate.map(|rate| rate.saturating_add(rate / 10)),
    }
}
