//! Packets of one end of a lane: numbered, stamped and sealed on the way out; told apart and opened
//! on the way in.
//!
//! In: kinds and plain texts. Out: datagrams; and of those that come, the small ones, opened.
//! Pieces are opened elsewhere, straight into their slots. It knows no machine and no unit.

use std::time::{Duration, Instant};

use longhaul_core::{Blame, FaultCode};
use longhaul_core::{Fault, hint};
use longhaul_net::{NetError, NotOpened, Opener, UdpSendHalf};
use longhaul_proto::time::Timestamp;
use longhaul_proto::udp::packet::{LaneIndex, Outer, OuterBody, PacketNumber, SendTime};

use crate::faults::lane_fault;

/// The time of a lane, from its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneClock(Instant);

impl LaneClock {
    /// A clock that begins now.
    pub(super) fn start() -> LaneClock {
        LaneClock(Instant::now())
    }

    /// The time since it began.
    pub(super) fn now(self) -> Timestamp {
        self.at(Instant::now())
    }

    /// The time from when it began to this moment. Zero for one before.
    fn at(self, moment: Instant) -> Timestamp {
        let micros = moment.saturating_duration_since(self.0).as_micros();
        Timestamp(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

/// The times at which datagrams came, of one end of a lane: a thread that the system let wait takes
/// them later, and that is no queue on the way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrivals {
    latest: Timestamp,
}

impl Arrivals {
    /// Notes that a run came at this moment. Gives that by the clock of its lane; it never goes
    /// back, though the clock that the system stamps by may be set.
    pub(super) fn note(&mut self, clock: LaneClock, came: Instant) -> Timestamp {
        self.latest = self.latest.max(clock.at(came));
        self.latest
    }

    /// When the last run came.
    pub(super) fn latest(&self) -> Timestamp {
        self.latest
    }
}

/// The stamp of what is sent now.
pub(super) fn stamp(now: Timestamp) -> SendTime {
    SendTime((now.0 / 100) as u16)
}

/// The number of the packet that is sealed next.
pub(super) fn next_number(send: &UdpSendHalf) -> Result<PacketNumber, Fault> {
    let number = send.number().ok().and_then(PacketNumber::new);
    number.ok_or_else(|| lost("a UDP lane has used up its packets"))
}

/// Seals a packet into the run of its lane.
pub(super) fn push(
    send: &mut UdpSendHalf,
    to: LaneIndex,
    sent: SendTime,
    body: OuterBody,
    plain: &[u8],
) -> Result<(), Fault> {
    let outer = Outer { index: to, number: next_number(send)?, sent, body };
    send.push(outer.encode().as_ref(), plain).map_err(|e| lane_fault(&e))
}

/// Seals a packet and sends it alone. Of what the system does with it nothing is said: it may be
/// lost on the way as well.
pub(super) fn send_alone(
    send: &mut UdpSendHalf,
    to: LaneIndex,
    now: Timestamp,
    body: OuterBody,
    plain: &[u8],
) -> Result<(), Fault> {
    push(send, to, stamp(now), body, plain)?;
    send.flush().map(drop).map_err(|e| lane_fault(&e))
}

/// Seals a packet and sends it alone, also if this end was closed. The control connection says the
/// same for sure, so nothing is said of what becomes of it.
pub(super) fn send_last(send: &mut UdpSendHalf, to: LaneIndex, now: Timestamp, body: OuterBody, plain: &[u8]) {
    let Ok(number) = next_number(send) else { return };
    let outer = Outer { index: to, number, sent: stamp(now), body };
    let _ = send.send_last(outer.encode().as_ref(), plain);
}

/// Opens a packet whose plain text goes nowhere in particular. `None` if it does not open.
pub(super) fn open<'s>(
    opener: &mut Opener,
    outer: &Outer,
    datagram: &[u8],
    scratch: &'s mut Vec<u8>,
) -> Result<Option<&'s [u8]>, Fault> {
    scratch.resize(outer.plain_bytes(datagram.len()), 0);
    Ok(open_into(opener, outer, datagram, scratch)?.then_some(&scratch[..]))
}

/// Opens a packet into its place, which is as long as its plain text. Gives whether it opened.
pub(super) fn open_into(opener: &mut Opener, outer: &Outer, datagram: &[u8], into: &mut [u8]) -> Result<bool, Fault> {
    let (header, sealed) = datagram.split_at(outer.bytes());
    match opener.open(outer.number.get(), header, sealed, into) {
        Ok(()) => Ok(true),
        Err(NotOpened::Forged) => Ok(false),
        Err(NotOpened::TooMany) => Err(lost("too many packets of a UDP lane were forged")),
    }
}

/// The time between two words of an end that has heard nothing yet, in 2 round trips at least.
pub(super) const HELLO_EACH: Duration = Duration::from_millis(100);

/// The time until the next look for what nobody announces (a unit to send, a free slot), after
/// there was none for `quiet`: an eighth of that, so that it is found late by no more, and an idle
/// lane wakes 62 times a second and not 500.
pub(super) fn look_after(quiet: Duration) -> Duration {
    (quiet / 8).clamp(Duration::from_millis(2), Duration::from_millis(16))
}

/// The fault of a lane that is lost, and can be replaced.
pub(super) fn lost(why: &str) -> Fault {
    Fault::new(FaultCode::Lost, Blame::Path, why).hint(hint::Again::Now)
}

/// The fault of a lane that this side has closed, or whose socket failed.
pub(super) fn net(error: NetError) -> Fault {
    lane_fault(&error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_datagram_comes_before_one_that_was_taken_before_it_or_before_its_lane_began() {
        let (mut arrivals, clock) = (Arrivals::default(), LaneClock::start());
        assert_eq!(clock.0.checked_sub(Duration::from_micros(1)).map(|early| arrivals.note(clock, early).0), Some(0));
        let came = [700, 900, 900, 850, 1210, 0].map(|micros| clock.0 + Duration::from_micros(micros));
        assert_eq!(came.map(|came| arrivals.note(clock, came).0), [700, 900, 900, 900, 1210, 1210]);
    }

    #[test]
    fn an_idle_lane_looks_less_and_less_often() {
        for (quiet, want) in [(0, 2), (16, 2), (24, 3), (80, 10), (128, 16), (3_600_000, 16)] {
            assert_eq!(look_after(Duration::from_millis(quiet)), Duration::from_millis(want), "{quiet} ms");
        }
    }
}
