//! [`LaneRules`]: how a side treats its lanes, as its session was agreed; and [`LaneControls`]: the
//! means of a lane's thread.
//!
//! In: nothing; `session/plan.rs` makes the rules, and `pool` the means. Out: plain data for `pool`
//! and for the threads. It knows no lanes.

use std::time::Duration;

use crossbeam_channel::Receiver;
use longhaul_core::Role;
use longhaul_proto::wire::message::Transport;

use super::replace::Replacement;
use super::tune::TuningRules;
use super::udp::path::UdpPath;
use super::udp::sharers::SlotSharers;
use super::worker::pacer::{LaneRates, Pacer};
use super::worker::pulse::Pulse;

/// How a side treats its lanes.
#[derive(Debug)]
pub(crate) struct LaneRules {
    /// The role of this side.
    pub(crate) role: Role,
    /// The number of lanes that there should be.
    pub(crate) target: u32,
    /// The number of lanes that there may come to be.
    pub(crate) lanes_max: u32,
    /// How a sending side finds their number. `None` if the number was given.
    pub(crate) tuning: Option<TuningRules>,
    /// The rates that all of them keep together.
    pub(crate) rates: LaneRates,
    /// The path of UDP lanes, as an earlier session left it, and the share that a sending side
    /// takes.
    pub(crate) path: UdpPath,
    /// Whether the other side knows [`Limit::NetworkShared`].
    ///
    /// [`Limit::NetworkShared`]: longhaul_proto::wire::message::Limit::NetworkShared
    pub(crate) peer_knows_shared: bool,
    /// The transport of the first lanes.
    pub(crate) transport: Transport,
    /// How it may change.
    pub(crate) changes: TransportChanges,
    /// Bytes that the windows of all lanes together may take in this process.
    pub(crate) windows: u64,
    /// A lane that stands still for this long while others move is given up.
    pub(crate) stall_after: Duration,
    /// How lost lanes are replaced.
    pub(crate) replacement: Replacement,
}

/// How the transport of lanes may change in a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TransportChanges {
    /// Whether the other side may not change it, but from TCP to UDP and back where both mix.
    pub(crate) is_kept: bool,
    /// Whether lanes over UDP and TCP may stand side by side, as both sides know them.
    pub(crate) mixes_udp: bool,
    /// Whether the other side dials lanes over QUIC whatever it is granted.
    pub(crate) keeps_quic: bool,
}

/// The means of a lane's thread besides its stream.
#[derive(Debug)]
pub(crate) struct LaneControls {
    /// The pulse on which it beats.
    pub(crate) pulse: Pulse,
    /// Says that the lane shall end in order, and is closed when the lane is given up, for a thread
    /// that waits for something else than its stream.
    pub(crate) quit: Receiver<()>,
    /// Lets a sending lane send, and a receiving lane read.
    pub(crate) pacer: Pacer,
    /// The lanes with which a UDP lane shares the slots of a receiving side.
    pub(crate) slots: SlotSharers,
    /// The path of UDP lanes.
    pub(crate) path: UdpPath,
}
