//! A lane over UDP that its acceptor has answered, until its other end shows that it heard.
//!
//! In: a JOIN that has verified, and a seat at the port. Out: a [`JoinedUdp`] with the first sealed
//! packet. The same JOIN is answered again until then. It knows no table of sessions.

use std::time::{Duration, Instant};

use longhaul_core::LaneId;
use longhaul_core::limits::HANDSHAKE_SECONDS_MAX;
use longhaul_net::{Loss, NetError, Seat, UdpHandle, UdpLane, UdpSeat};
use longhaul_proto::udp::join::{JOIN_BYTES, UdpJoin, UdpJoined, key_context};
use longhaul_proto::udp::packet::Outer;
use longhaul_sys::Slot;

use super::join::{JoinedUdp, UdpTerms, index, no_first_packet, route_bytes};
use crate::lanes::join::Unjoined;
use crate::random::nonce;

/// Answers a JOIN that has verified, from this seat. The lane promises the slots `claimed`.
pub(super) fn accept(
    (datagram, seat): (&[u8], UdpSeat),
    join: &UdpJoin,
    terms: &UdpTerms,
    claimed: Vec<Slot>,
) -> Result<AcceptedUdp, Unjoined> {
    let mut said = [0; JOIN_BYTES];
    // It has verified.
    said.copy_from_slice(datagram);
    let joined = UdpJoined {
        route_bytes: route_bytes(seat.route_bytes),
        dialer_index: join.index,
        index: index()?,
        nonce: nonce()?,
        admit: claimed.len() as u32,
    };
    let peer = seat.peer_addr();
    let lane = UdpLane::accepted(seat, &terms.secret, &key_context(join, &joined))?;
    let answer = joined.encode(&terms.key, &said);
    lane.send.send_plain(&answer)?;
    tracing::debug!(target: "longhaul::lanes", lane = join.lane.0, %peer, "a UDP lane is answered");
    let routes = [joined.route_bytes, join.route_bytes];
    let (here, there, round_trip) = (joined.index, join.index, terms.round_trip);
    let (id, admit, greeting) = (join.lane, join.admit, datagram.into());
    let lane = JoinedUdp { id, lane, here, there, routes, admit, claimed, round_trip, greeting };
    Ok(AcceptedUdp { lane, session: terms.session, answer, begun: Instant::now(), place: None })
}

/// A lane that was answered, and whose other end has not shown yet that it heard.
#[derive(Debug)]
pub(crate) struct AcceptedUdp {
    /// The session that it proved to belong to.
    pub(crate) session: [u8; 16],
    lane: JoinedUdp,
    answer: [u8; JOIN_BYTES],
    /// When it was answered.
    begun: Instant,
    place: Option<(Seat, Loss)>,
}

impl AcceptedUdp {
    /// A hold on it for other threads.
    pub(crate) fn handle(&self) -> UdpHandle {
        self.lane.lane.handle.clone()
    }

    /// Its id.
    pub(crate) fn id(&self) -> LaneId {
        self.lane.id
    }

    /// The same with a seat, which it has while it waits. `None` if seats are not counted.
    pub(super) fn seated(self, place: Option<(Seat, Loss)>) -> AcceptedUdp {
        AcceptedUdp { place, ..self }
    }

    /// Takes the seat that it has while it waits. It is the caller's to give it back after that,
    /// and to close the lane if the seat is lost.
    pub(crate) fn take_place(&mut self) -> Option<(Seat, Loss)> {
        self.place.take()
    }

    /// Waits for the first sealed packet, and answers the same JOIN until then. The packet is still
    /// to be received from the lane.
    pub(crate) fn first(self) -> Result<JoinedUdp, Unjoined> {
        self.first_within(FIRST_WITHIN)
    }

    /// The same, for so long.
    pub(super) fn first_within(mut self, at_most: Duration) -> Result<JoinedUdp, Unjoined> {
        loop {
            let left = at_most.saturating_sub(self.begun.elapsed());
            if left.is_zero() {
                return Err(no_first_packet(&self.lane.lane).into());
            }
            self.lane.lane.receive.receive(left)?;
            match self.look()? {
                Came::Sealed => {
                    let JoinedUdp { id, routes, .. } = &self.lane;
                    tracing::debug!(target: "longhaul::lanes", lane = id.0, ?routes, "a UDP lane stands");
                    self.lane.lane.receive.give_again();
                    return Ok(self.lane);
                }
                Came::Join => {
                    self.lane.lane.send.send_plain(&self.answer)?;
                }
                Came::Nothing => {}
            }
        }
    }

    fn look(&mut self) -> Result<Came, NetError> {
        let (here, mut scratch) = (self.lane.here, Vec::new());
        let (runs, opener) = self.lane.lane.receive.parts();
        let mut came = Came::Nothing;
        for datagram in runs.flat_map(|run| run.datagrams()) {
            if *datagram == *self.lane.greeting {
                came = Came::Join;
            }
            let Some(outer) = Outer::parse(datagram).ok().filter(|outer| outer.index == here) else { continue };
            let (header, sealed) = datagram.split_at(outer.bytes());
            scratch.resize(outer.plain_bytes(datagram.len()), 0);
            if opener.open(outer.number.get(), header, sealed, &mut scratch).is_ok() {
                return Ok(Came::Sealed);
            }
        }
        Ok(came)
    }
}

/// The news of a lane that was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    Nothing,
    /// The JOIN once more: its answer was lost, or is still on its way.
    Join,
    Sealed,
}

/// The time from the answer to the first sealed packet.
const FIRST_WITHIN: Duration = Duration::from_secs(HANDSHAKE_SECONDS_MAX);
