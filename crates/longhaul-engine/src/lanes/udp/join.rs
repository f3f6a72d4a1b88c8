//! Joins a native UDP lane at the end that dials, and makes its keys at either end.
//!
//! In: the secrets of a session, a port. Out: a [`JoinedUdp`], whose other end has proved that it
//! holds the session's key. It sends no payload and knows no session but its secrets.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use longhaul_core::LaneId;
use longhaul_net::{Asking, AskingHandle, Control, NetError, UdpDial, UdpLane, UdpSecret};
use longhaul_proto::join::JoinKey;
use longhaul_proto::udp::join::{UdpJoin, UdpJoined, early_session, key_context};
use longhaul_proto::udp::packet::{CloseReason, LaneIndex, OuterBody};
use longhaul_sys::Slot;

use super::packets::{LaneClock, send_last};
use crate::lanes::join::Unjoined;
use crate::random::nonce;

/// The secrets of a session that its UDP lanes need.
#[derive(Clone)]
pub(crate) struct UdpTerms {
    /// The session.
    pub(crate) session: [u8; 16],
    /// The key of the proofs.
    pub(crate) key: JoinKey,
    /// The secret from which the lanes' keys are made.
    pub(crate) secret: UdpSecret,
    /// The round trip that the control connection knows.
    pub(crate) round_trip: Duration,
}

impl UdpTerms {
    /// The secrets of a session over this control connection, whose name is not known yet.
    pub(crate) fn of(control: &Control) -> UdpTerms {
        let (key, secret) = (JoinKey(control.exporter), control.udp.clone());
        UdpTerms { session: [0; 16], key, secret, round_trip: control.rtt }
    }
}

/// One end of a lane that has joined.
#[derive(Debug)]
pub(crate) struct JoinedUdp {
    /// Its id.
    pub(crate) id: LaneId,
    /// Its sockets and keys.
    pub(crate) lane: UdpLane,
    /// The index by which this end knows it.
    pub(crate) here: LaneIndex,
    /// The index by which the other end knows it.
    pub(crate) there: LaneIndex,
    /// Most payload bytes of a datagram on both routes: this end's, and the other's.
    pub(crate) routes: [u16; 2],
    /// Units that the other end has slots for, if it receives files.
    pub(crate) admit: u32,
    /// The slots that this end has promised to the other in the join, if it receives files: as many
    /// units may come before its first status.
    pub(crate) claimed: Vec<Slot>,
    /// The round trip that the control connection knows.
    pub(crate) round_trip: Duration,
    /// The datagram by which the other end joined, or answered that. It may come again.
    pub(crate) greeting: Box<[u8]>,
}

impl JoinedUdp {
    /// Closes the lane before it has carried anything: its other end need not wait for the slots
    /// that were promised.
    pub(crate) fn refuse(mut self) {
        let (now, why) = (LaneClock::start().now(), CloseReason::GivenUp.encode());
        send_last(&mut self.lane.send, self.there, now, OuterBody::Close, &why);
    }
}

/// A lane to be dialled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UdpOrder {
    /// The port.
    pub(crate) to: SocketAddr,
    /// The local address to dial from. `None` for the route's.
    pub(crate) local: Option<IpAddr>,
    /// Its id, which the other end has named.
    pub(crate) id: LaneId,
    /// Units that this end has slots for; 0 if it sends files, or says so by its first status,
    /// which reaches the other end with the first sealed packet.
    pub(crate) admit: u32,
}

/// Dials a lane and waits until its other end has taken it. It has no slots: whoever said in the
/// order that there are some gives them to it.
pub(crate) fn dial(order: &UdpOrder, terms: &UdpTerms) -> Result<JoinedUdp, Unjoined> {
    ask(UdpDial::new(order.to, order.local)?, order, terms, &Asking::over(terms.round_trip))
}

/// Dials a lane before its session is agreed on, by the name that both ends know already. Asks
/// until `handle` ends that. `None` if there is no socket to ask from: nobody heard of the lane.
pub(crate) fn dial_early(
    order: &UdpOrder,
    terms: &UdpTerms,
    handle: AskingHandle,
) -> Option<Result<JoinedUdp, Unjoined>> {
    let terms = UdpTerms { session: early_session(&terms.key), ..terms.clone() };
    let dial = UdpDial::new(order.to, order.local).ok()?;
    Some(ask(dial, order, &terms, &Asking::early(terms.round_trip, handle)))
}

fn ask(dial: UdpDial, order: &UdpOrder, terms: &UdpTerms, asking: &Asking) -> Result<JoinedUdp, Unjoined> {
    let join = UdpJoin {
        route_bytes: route_bytes(dial.route_bytes()),
        index: index()?,
        session: terms.session,
        lane: order.id,
        nonce: nonce()?,
        admit: order.admit,
    };
    let said = join.encode(&terms.key);
    let answer = |datagram: &[u8]| Some((UdpJoined::verify(datagram, &terms.key, &said).ok()?, datagram.into()));
    let (joined, greeting) = dial.ask(&said, asking, answer)?;
    let lane = UdpLane::dialled(dial, &terms.secret, &key_context(&join, &joined))?;
    let routes = [join.route_bytes, joined.route_bytes];
    let (here, there, round_trip) = (join.index, joined.index, terms.round_trip);
    let (id, admit, claimed) = (order.id, joined.admit, Vec::new());
    Ok(JoinedUdp { id, lane, here, there, routes, admit, claimed, round_trip, greeting })
}

/// An index that nobody can foretell.
pub(super) fn index() -> Result<LaneIndex, Unjoined> {
    let [a, b, c, d, ..] = nonce()?;
    Ok(LaneIndex(u32::from_le_bytes([a, b, c, d])))
}

/// A route's datagrams as a join may name them.
pub(super) fn route_bytes(bytes: u16) -> u16 {
    bytes.max(longhaul_core::limits::UDP_DATAGRAM_BYTES_SAFE)
}

/// The error of an end that did not say in time that it is there.
pub(super) fn no_first_packet(lane: &UdpLane) -> NetError {
    NetError::TimedOut { peer: lane.peer_addr().to_string(), doing: "the first packet of a UDP lane" }
}
