//! Owns the thread of a UDP lane's end that receives files: it opens pieces straight into their
//! slots, hashes them, and says how things stand.
//!
//! In: datagrams; slots from an [`UdpSink`], claimed before the sender may begin a unit. Out: units
//! that are whole, each with its slot and digest; statuses. Each unit is hashed as far as it is
//! there without a gap; what waits for a gap is hashed when that closes. It knows no files and no
//! messages.

use std::time::Duration;

use longhaul_core::digest::Digest;
use longhaul_core::limits::UDP_DATAGRAM_BYTES_SAFE;
use longhaul_core::{Fault, FaultCode};
use longhaul_net::{Opener, ReceivedPiece, UdpFigure, UdpHandle};
use longhaul_proto::time::Timestamp;
use longhaul_proto::udp::packet::{
    CloseReason, DataPlace, LaneIndex, OUTER_BYTES, Outer, OuterBody, Serial, SizeSearch, TAG_BYTES, UnitBody,
    check_probe, decode_end,
};
use longhaul_proto::udp::receiving::{Arrived, Look, UdpReceiving, UdpReceivingConfig};
use longhaul_proto::wire::data::Piece;
use longhaul_sys::Slot;
use longhaul_sys::udp::Mark;

use super::join::JoinedUdp;
use super::packets::{Arrivals, HELLO_EACH, LaneClock, look_after, lost, net, open, open_into, send_alone, send_last};
use super::places::Slots;
use crate::cpu::StageTimes;
use crate::lanes::worker::pulse::Pulse;
use crate::lanes::worker::receive::start_of;

/// A unit that came whole.
#[derive(Debug)]
pub(crate) struct UdpArrival {
    /// Its number in the lane.
    pub(crate) serial: u32,
    /// Its header.
    pub(crate) header: Piece,
    /// Its bytes. `None` for a hole, and for a unit that this side has.
    pub(crate) slot: Option<Slot>,
    /// The digest that the sender says.
    pub(crate) declared: [u8; 32],
    /// The digest of the bytes that came. `None` if none did.
    pub(crate) computed: Option<Digest>,
}

/// Where a lane has its slots from, and where units go.
pub(crate) trait UdpSink {
    /// A free slot, without waiting. `None` if there is none now.
    fn claim(&mut self) -> Option<Slot>;

    /// Units that the sender may have begun, or begin, beyond those that are whole. It changes as
    /// lanes join and leave.
    fn window(&self) -> u32;

    /// A unit came whole.
    fn deliver(&mut self, arrival: UdpArrival);
}

/// The means of a UDP lane's thread that receives.
#[derive(Clone, Copy)]
pub(crate) struct UdpReceiveMeans<'a> {
    /// Where CPU time is counted.
    pub(crate) times: &'a StageTimes,
    /// Its signs of life.
    pub(crate) pulse: &'a Pulse,
    /// Bytes of each slot.
    pub(crate) slot_bytes: usize,
}

/// Receives units until the sender has no more.
///
/// Gives the units that came whole: their serials are all below the first, and these beyond it.
///
/// # Errors
/// A [`Fault`] when the lane breaks, or the sender breaks the protocol.
pub(crate) fn run(
    mut joined: JoinedUdp,
    round_trip: Duration,
    means: UdpReceiveMeans<'_>,
    sink: &mut impl UdpSink,
) -> (UdpLanded, Result<(), Fault>) {
    let (clock, claimed) = (LaneClock::start(), std::mem::take(&mut joined.claimed));
    let admit = Serial(claimed.len() as u32);
    let config = UdpReceivingConfig { slot_bytes: means.slot_bytes as u64, admit, round_trip };
    let now = clock.now();
    let machine = UdpReceiving::new(now, config);
    let slots = Slots::promised(now, claimed, round_trip);
    // An end that sends nothing that is answered measures none.
    joined.lane.handle.set(UdpFigure::RttMinUs, joined.round_trip.as_micros() as u64);
    let here = joined.here;
    let (scratch, used) = (Vec::new(), clock.now());
    let core = Core { machine, slots, means, here, scratch, has_moved: false, used, closed: None };
    let mut thread = ReceiveThread { core, joined, clock, arrivals: Arrivals::default(), round_trip };
    let result = thread.drive(sink);
    if let Err(fault) = &result {
        let is_breach = fault.code == FaultCode::Protocol;
        let reason = if is_breach { CloseReason::Breach } else { CloseReason::GivenUp };
        let now = thread.clock.now();
        send_last(&mut thread.joined.lane.send, thread.joined.there, now, OuterBody::Close, &reason.encode());
    }
    let (machine, joined_again) = (&thread.core.machine, thread.joined.lane.handle.get(UdpFigure::JoinedAgain));
    if machine.counts().wrong > 0 || joined_again > 0 {
        let (wrong, packets) = (machine.counts().wrong, machine.counts().packets);
        tracing::info!(target: "longhaul::lanes", wrong, joined_again, packets, "datagrams came to a UDP lane that were not its other end's, or joins that came again");
    }
    let beyond = machine.whole_beyond().map(|serial| serial.0).collect();
    (UdpLanded { below: machine.below().0, beyond }, result)
}

/// The units of a lane that came whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UdpLanded {
    /// All below this serial.
    pub(crate) below: u32,
    /// And these, which ascend.
    pub(crate) beyond: Vec<u32>,
}

struct ReceiveThread<'a> {
    core: Core<'a>,
    joined: JoinedUdp,
    clock: LaneClock,
    arrivals: Arrivals,
    round_trip: Duration,
}

/// The machine and the slots, behind the socket and the keys.
struct Core<'a> {
    machine: UdpReceiving,
    slots: Slots,
    means: UdpReceiveMeans<'a>,
    /// The index of this end.
    here: LaneIndex,
    scratch: Vec<u8>,
    /// Whether a piece or a description came that was not there. Other packets are signs of life:
    /// they move nothing.
    has_moved: bool,
    /// When the sender last moved anything, or had no slot to use.
    used: Timestamp,
    /// The reason that the other end gave for closing the lane.
    closed: Option<CloseReason>,
}

impl ReceiveThread<'_> {
    fn drive(&mut self, sink: &mut impl UdpSink) -> Result<(), Fault> {
        let (mut heard, mut hello, mut is_heard) = (self.clock.now(), self.clock.now(), false);
        loop {
            let now = self.clock.now();
            let is_idle = self.core.is_idle(now, self.round_trip) || now.since(heard) >= SILENT_FOR;
            let demand = if is_idle { SlotDemand::Idle } else { SlotDemand::Busy };
            let seen = self.seen(now);
            self.core.keep_slots(seen, demand, sink);
            if !is_heard && now >= hello {
                // An end that accepted the lane says nothing before it hears something sealed.
                self.say(now, OuterBody::Probe(SizeSearch(0)), &[])?;
                hello = now.after(HELLO_EACH.max(2 * self.round_trip));
            }
            for status in self.core.machine.report(seen, STATUS_BYTES) {
                self.say(now, OuterBody::Status, &status.encode())?;
            }
            // Whatever comes meanwhile: it may be anybody's.
            let quiet = now.since(heard);
            if self.core.machine.is_over() && quiet >= FAREWELL_MOST.max(6 * self.round_trip) {
                return Ok(());
            }
            if quiet >= SILENT_MOST {
                return Err(lost("the other end of a UDP lane says nothing"));
            }
            if self.joined.lane.receive.receive(self.wait(now, quiet, demand)).map_err(net)? == 0 {
                continue;
            }
            let now = self.clock.now();
            if self.take_in(now, sink)? {
                (heard, is_heard) = (now, true);
            }
            match self.core.closed {
                Some(CloseReason::Over) if self.core.machine.is_over() => return Ok(()),
                Some(_) => return Err(lost("the other end has closed a UDP lane")),
                None => {}
            }
        }
    }

    /// The time up to which all that came was taken in. Where more lies in the socket, a status
    /// says how things stood then: a packet that lies there was not overtaken for longer.
    fn seen(&self, now: Timestamp) -> Timestamp {
        if self.joined.lane.receive.is_full() { self.arrivals.latest() } else { now }
    }

    fn say(&mut self, now: Timestamp, body: OuterBody, plain: &[u8]) -> Result<(), Fault> {
        send_alone(&mut self.joined.lane.send, self.joined.there, now, body, plain)
    }

    /// The time until something is due. Nothing came for `quiet`. An idle lane looks for no slots.
    fn wait(&self, now: Timestamp, quiet: Duration, demand: SlotDemand) -> Duration {
        let due = self.core.machine.timeout().since(now).clamp(LEAST_WAIT, IDLE_LOOK);
        let looks = self.core.slots.is_short() && !self.core.machine.is_over() && demand == SlotDemand::Busy;
        if looks { due.min(look_after(quiet)) } else { due }
    }

    /// Takes in all that came. Gives whether any of it is of the other end: opened, and not played
    /// again.
    fn take_in(&mut self, now: Timestamp, sink: &mut impl UdpSink) -> Result<bool, Fault> {
        self.core.machine.dropped(self.joined.lane.receive.dropped());
        if self.core.slots.owed() > 0 {
            // What comes after a silence finds the slots that it was promised, if there are any.
            self.core.claim_owed(sink);
        }
        let (runs, opener) = self.joined.lane.receive.parts();
        let mut heard = 0;
        for run in runs {
            let came = self.arrivals.note(self.clock, run.came);
            for datagram in run.datagrams() {
                if *datagram == *self.joined.greeting {
                    greeted_again(&self.joined.lane.handle, &mut self.core.machine);
                    continue;
                }
                if !self.core.take_in(came, datagram, opener, sink)? {
                    continue;
                }
                heard += datagram.len();
                if run.mark == Mark::Congested {
                    self.core.machine.marked(1);
                }
            }
        }
        if std::mem::take(&mut self.core.has_moved) {
            self.core.used = now;
            self.core.means.pulse.beat();
        }
        if heard > 0 {
            self.joined.lane.handle.heard(heard as u64);
        }
        Ok(heard > 0)
    }
}

/// Counts a join, or the answer to it, that came once more. A few are explained by answers that
/// were late or lost; more are somebody's who recorded it, and count as what others made up.
fn greeted_again(handle: &UdpHandle, machine: &mut UdpReceiving) {
    if handle.get(UdpFigure::JoinedAgain) < GREETINGS_EXPECTED {
        handle.add(UdpFigure::JoinedAgain, 1);
    } else {
        machine.refused();
    }
}

/// The use that the sender makes of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SlotDemand {
    /// It has units under way, or begins some.
    Busy,
    /// It has begun none for a while.
    Idle,
}

impl Core<'_> {
    /// Whether the sender makes no use of the slots that it was promised. One that has none is not
    /// idle: it waits for this side.
    fn is_idle(&mut self, now: Timestamp, round_trip: Duration) -> bool {
        if !self.slots.has_open() {
            self.used = now;
        }
        let patience = TAKEN_BACK_AFTER.max(4 * round_trip);
        self.machine.open_units() == 0 && now.since(self.used) >= patience
    }

    /// Takes slots for what the sender may begin, which statuses from `now` on say. A lane that is
    /// idle keeps none.
    fn keep_slots(&mut self, now: Timestamp, demand: SlotDemand, sink: &mut impl UdpSink) {
        match demand {
            SlotDemand::Idle => self.slots.take_back(),
            SlotDemand::Busy => self.admit(now, sink),
        }
    }

    /// Claims slots for units that were promised one.
    fn claim_owed(&mut self, sink: &mut impl UdpSink) {
        while self.slots.owed() > 0
            && let Some(slot) = sink.claim()
        {
            self.slots.claimed.push(slot);
        }
    }

    /// Claims slots and admits as many units.
    fn admit(&mut self, now: Timestamp, sink: &mut impl UdpSink) {
        if self.machine.is_over() {
            // No unit comes any more: others have a use for its slots while the sender is answered.
            self.slots.claimed.clear();
            return self.means.pulse.release();
        }
        self.slots.bound(sink.window());
        self.claim_owed(sink);
        while self.slots.is_short()
            && let Some(slot) = sink.claim()
        {
            self.slots.claimed.push(slot);
        }
        let spare = self.slots.spare();
        if spare > 0 {
            let admitted = self.machine.admit(now, spare);
            self.slots.promise(now, admitted);
        }
        let is_short = self.slots.is_short();
        // The sender may begin nothing as long as this side has no slot.
        match is_short && self.slots.promised == self.slots.whole {
            true => self.means.pulse.hold(),
            false => self.means.pulse.release(),
        }
        match is_short {
            true => self.machine.set_held(),
            false => self.machine.set_free(),
        }
    }

    /// Takes a datagram in that came at `now`. Gives whether it is of the other end: opened, and
    /// not played again.
    fn take_in(
        &mut self,
        now: Timestamp,
        datagram: &[u8],
        opener: &mut Opener,
        sink: &mut impl UdpSink,
    ) -> Result<bool, Fault> {
        let Some(outer) = Outer::parse(datagram).ok().filter(|outer| outer.index == self.here) else {
            self.machine.refused();
            return Ok(false);
        };
        let is_newer = self.machine.is_newer(outer.number);
        let arrived = Arrived { number: outer.number, sent: outer.sent, at: now };
        if let OuterBody::Data(place) = outer.body {
            let piece = IncomingPiece { outer, place, bytes: outer.plain_bytes(datagram.len()), datagram, arrived };
            let fate = self.take_piece(&piece, opener)?;
            if let PieceFate::Whole(body) = &fate {
                self.deliver(now, body, sink);
            }
            return Ok(!matches!(fate, PieceFate::Dropped));
        }
        let Some(plain) = open(opener, &outer, datagram, &mut self.scratch)? else {
            self.machine.refused();
            return Ok(false);
        };
        match outer.body {
            OuterBody::Unit(cut) => {
                let body = UnitBody::decode(plain).map_err(Fault::protocol)?;
                start_of(&body.header)?;
                let news = self.machine.unit(arrived, cut, &body).map_err(Fault::protocol)?;
                self.has_moved |= news.first.is_some();
                let first = news.first.filter(|first| first.payload() > 0);
                if let Some((first, place)) =
                    first.and_then(|first| Some((first, self.slots.place(now, first.serial.0, self.means.pulse)?)))
                {
                    place.describe(cut, &first.header);
                }
                if let Some(body) = news.whole {
                    self.deliver(now, &body, sink);
                }
            }
            OuterBody::Probe(search) => {
                check_probe(plain).map_err(Fault::protocol)?;
                self.machine.probe(arrived, search, datagram.len() as u16);
            }
            OuterBody::End => {
                let units = decode_end(plain).map_err(Fault::protocol)?;
                self.machine.end(arrived, units).map_err(Fault::protocol)?;
                self.slots.end_at(units);
            }
            OuterBody::Close => self.closed = Some(CloseReason::decode(plain).map_err(Fault::protocol)?),
            OuterBody::Status | OuterBody::Data(_) => {}
        }
        Ok(is_newer)
    }

    /// Opens a piece to where it belongs.
    fn take_piece(&mut self, piece: &IncomingPiece<'_>, opener: &mut Opener) -> Result<PieceFate, Fault> {
        let serial = piece.place.serial.0;
        let (is_first, opened) = match self.machine.look(&piece.place, piece.bytes) {
            Look::Land(at) => {
                // A unit of which something landed has a slot.
                let Some(place) = self.slots.place(piece.arrived.at, serial, self.means.pulse) else {
                    return Ok(PieceFate::Dropped);
                };
                let into = &mut place.slot[at.start as usize..at.end as usize];
                (false, open_into(opener, &piece.outer, piece.datagram, into)?)
            }
            // A unit that was promised a slot finds none where that was taken back: as if lost.
            Look::First if !self.slots.has_room(serial) => return Ok(PieceFate::Dropped),
            Look::First => (true, open(opener, &piece.outer, piece.datagram, &mut self.scratch)?.is_some()),
            Look::Seen if self.machine.is_newer(piece.outer.number) => {
                if open(opener, &piece.outer, piece.datagram, &mut self.scratch)?.is_none() {
                    self.machine.refused();
                    return Ok(PieceFate::Dropped);
                }
                self.machine.again(piece.arrived);
                return Ok(PieceFate::Taken);
            }
            Look::Seen => {
                let looks = self.machine.samples();
                if looks && open(opener, &piece.outer, piece.datagram, &mut self.scratch)?.is_none() {
                    self.machine.refused_sample();
                }
                return Ok(PieceFate::Dropped);
            }
            Look::Beyond | Look::Wrong => return Ok(PieceFate::Dropped),
        };
        if !opened {
            self.machine.refused();
            return Ok(PieceFate::Dropped);
        }
        let landed = self.machine.landed(piece.arrived, &piece.place, piece.bytes);
        let Some(landed) = landed else { return Ok(PieceFate::Dropped) };
        let Some(place) = self.slots.place(piece.arrived.at, serial, self.means.pulse) else {
            return Ok(PieceFate::Dropped);
        };
        let at = landed.at.start as usize..landed.at.end as usize;
        if is_first {
            place.slot[at.clone()].copy_from_slice(&self.scratch);
        }
        self.has_moved = true;
        self.means.pulse.carried(piece.bytes);
        place.land(piece.place.cut, ReceivedPiece { offset: at.start, len: at.len() }, self.means.times);
        Ok(landed.whole.map_or(PieceFate::Taken, PieceFate::Whole))
    }

    /// Hands a unit on that is whole.
    fn deliver(&mut self, now: Timestamp, body: &UnitBody, sink: &mut impl UdpSink) {
        let place = self.slots.take(now, body.serial.0);
        match &place {
            Some(_) => self.means.pulse.done_with_one(body.payload()),
            None => self.means.pulse.done_at_once(),
        }
        let (slot, computed) = match place {
            Some(place) if body.payload() > 0 => {
                let (slot, computed) = place.finish(&body.header, self.means.times);
                (Some(slot), computed)
            }
            // A later cut of it has no payload.
            Some(place) => {
                self.slots.claimed.push(place.slot);
                (None, None)
            }
            None => (None, None),
        };
        self.slots.forget_below(self.machine.below().0);
        // The machine holds no unit for whole whose digest was not said.
        let declared = body.digest.unwrap_or_default();
        sink.deliver(UdpArrival { serial: body.serial.0, header: body.header, slot, declared, computed });
    }
}

/// The fate of a datagram with a piece.
enum PieceFate {
    /// It did not open, or anybody may have recorded it.
    Dropped,
    /// It is of the other end.
    Taken,
    /// With it its unit is whole.
    Whole(UnitBody),
}

/// A datagram with a piece.
struct IncomingPiece<'a> {
    outer: Outer,
    place: DataPlace,
    /// Bytes of the piece.
    bytes: usize,
    datagram: &'a [u8],
    arrived: Arrived,
}

/// Joins that come again, or answers to them, that need no attacker: a dialler says one each 0.3 s
/// or three round trips, and the other end takes them apart until the lane stands.
const GREETINGS_EXPECTED: u64 = 16;
/// Bytes of a status: it passes wherever the join has passed.
const STATUS_BYTES: usize = UDP_DATAGRAM_BYTES_SAFE as usize - OUTER_BYTES - TAG_BYTES;
/// The time between two looks whether the lane was closed, or is lost.
const IDLE_LOOK: Duration = Duration::from_millis(100);
/// The shortest wait: what is due sooner is due together.
const LEAST_WAIT: Duration = Duration::from_micros(200);
/// The time for which a lane that is over answers a sender that did not hear so.
const FAREWELL_MOST: Duration = Duration::from_secs(1);
/// Slots that were promised are taken back from a sender that has begun no unit for so long, or
/// for a few round trips: others have a use for them.
const TAKEN_BACK_AFTER: Duration = Duration::from_secs(2);
/// They are taken back too from a sender of which nothing was heard for so long, whatever it has
/// begun. One that is there gives a sign of life each 5 s.
const SILENT_FOR: Duration = Duration::from_secs(8);
/// A lane is lost on which nothing comes for so long: a sender gives a sign of life each 5 s.
const SILENT_MOST: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests;
