//! The lanes that a side should have: how many, and over what.
//!
//! In: the rules of a session, then whatever `pool` decides. Out: plain data for it. It knows no
//! lanes that stand.

use longhaul_proto::wire::message::Transport;

use super::quic::QuicReturn;
use crate::lanes::rules::LaneRules;

/// The lanes that there should be.
#[derive(Debug)]
pub(super) struct WantedLanes {
    /// Their number.
    pub(super) count: u32,
    /// The most that it may become.
    pub(super) most: u32,
    /// Whether somebody asked for just the most.
    pub(super) is_given: bool,
    /// The transport of the first lanes.
    pub(super) first_transport: Transport,
    /// The transport of lanes that are added from now on. A search may try another than the first,
    /// and settle on either.
    pub(super) transport: Transport,
    /// Whether lanes over UDP and TCP may stand side by side.
    pub(super) mixes_udp: bool,
    /// The way back to QUIC, where a breaker has ended that.
    pub(super) quic_return: QuicReturn,
}

impl WantedLanes {
    /// The lanes of a session that begins by these rules.
    pub(super) fn of(rules: &LaneRules) -> WantedLanes {
        WantedLanes {
            count: rules.target,
            most: rules.lanes_max.max(rules.target),
            is_given: rules.tuning.is_none(),
            first_transport: rules.transport,
            transport: rules.transport,
            mixes_udp: rules.changes.mixes_udp,
            quic_return: QuicReturn::of(rules.transport),
        }
    }
}
