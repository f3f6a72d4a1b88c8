//! How units stand at the receiver, taken in by the sender's end.
//!
//! In: a status. Out: units that are whole, pieces that landed or are missing. A status that cannot
//! be is refused. Knows no plan of what to send.

use std::cmp::Ordering;
use std::time::Duration;

use longhaul_core::limits::{UDP_DATAGRAM_BYTES_MAX, UDP_DATAGRAM_BYTES_SAFE};

use super::unit::Moved;
use super::{SendingStage, UdpSending};
use crate::time::Timestamp;
use crate::udp::UdpBreach;
use crate::udp::packet::{PieceBytes, Serial};
use crate::udp::status::{Counts, Gap, PartUnit, Status, UnitStanding};

impl UdpSending {
    /// Whether a status can be true of this lane, as far as it speaks of whole units.
    pub(super) fn check(&self, status: &Status) -> Result<(), UdpBreach> {
        let (below, end) = (status.below.0, self.end());
        let largest = status.largest.map(|largest| largest.number.get());
        let last = self.heard.map_or((None, 0), |heard| (heard.largest, heard.below));
        let sound = largest.is_none_or(|largest| largest < self.flight.next())
            && largest >= last.0
            && (last.1..=end).contains(&below)
            && status.admit.0 >= self.admit
            && status.standing.end() <= u64::from(end)
            && (!status.ended || (self.stage != SendingStage::Open && below == end))
            && self.may_count(&status.counts);
        if sound { Ok(()) } else { Err(UdpBreach::Status) }
    }

    /// Whether totals of what arrived can be true: they never sink, and are no more than was sent.
    /// The other counts are not bounded: a path may copy packets, and a stranger may send any.
    fn may_count(&self, counts: &Counts) -> bool {
        let last = self.heard.map(|heard| heard.counts).unwrap_or_default();
        let (packets, bytes) = (self.flight.next(), u64::from(UDP_DATAGRAM_BYTES_MAX));
        (last.packets..=packets).contains(&counts.packets)
            && (last.bytes..=packets.saturating_mul(bytes)).contains(&counts.bytes)
    }

    /// Takes the round trip of the largest number, if that is new.
    pub(super) fn time_round_trip(&mut self, now: Timestamp, status: &Status) -> Option<Duration> {
        let largest = status.largest?;
        if self.heard.and_then(|heard| heard.largest).is_some_and(|last| largest.number.get() <= last) {
            return None;
        }
        let waited = Duration::from_micros(u64::from(largest.waited_us));
        let round_trip = now.since(self.flight.at(largest.number.get())?).saturating_sub(waited);
        self.times.took(round_trip);
        Some(round_trip)
    }

    /// Packets below this number were overtaken: what is not there of them is missing.
    pub(super) fn overtaken(&self, now: Timestamp, status: &Status) -> u64 {
        let Some(largest) = status.largest else { return 0 };
        let Some(sent) = self.flight.at(largest.number.get()) else { return 0 };
        let by = sent.after(Duration::from_micros(u64::from(largest.waited_us))).0;
        let Some(by) = by.min(now.0).checked_sub(self.times.overtaking().as_micros() as u64) else { return 0 };
        self.flight.sent_by(Timestamp(by)).min(largest.number.get())
    }

    /// Takes in how units stand.
    pub(super) fn absorb(
        &mut self,
        status: &Status,
        overtaken: u64,
        whole: &mut Vec<Serial>,
    ) -> Result<Moved, UdpBreach> {
        let mut moved = Moved::default();
        (self.first..status.below.0).try_for_each(|serial| self.whole(serial, whole, &mut moved))?;
        let (mut serial, mut gaps) = (status.standing.from.0, status.standing.gaps.as_slice());
        for standing in &status.standing.units {
            let end = serial + standing.count();
            match standing {
                UnitStanding::Whole(_) => {
                    (serial..end).try_for_each(|serial| self.whole(serial, whole, &mut moved))?;
                }
                UnitStanding::Absent(_) => (serial..end).for_each(|serial| self.absent(serial, overtaken, &mut moved)),
                UnitStanding::Part(part) => {
                    let (own, rest) = gaps.split_at(usize::from(part.gaps));
                    gaps = rest;
                    self.part(serial, (part, own), overtaken, &mut moved)?;
                }
            }
            serial = end;
        }
        if status.standing.complete {
            (serial..self.end()).for_each(|serial| self.absent(serial, overtaken, &mut moved));
        }
        while let Some(None) = self.units.front() {
            self.units.pop_front();
            self.first += 1;
        }
        Ok(moved)
    }

    /// The receiver has a part of a unit. A part of an earlier cut is nothing of this one.
    fn part(
        &mut self,
        serial: u32,
        (part, gaps): (&PartUnit, &[Gap]),
        overtaken: u64,
        moved: &mut Moved,
    ) -> Result<(), UdpBreach> {
        let Some(unit) = self.unit(serial) else { return Ok(()) };
        match unit.cut.cmp(&part.cut) {
            Ordering::Less => return Err(UdpBreach::Status),
            Ordering::Greater => self.absent(serial, overtaken, moved),
            Ordering::Equal => {
                let (news, bytes) = (unit.heard(part, gaps, overtaken)?, unit.piece_bytes);
                self.moved(serial, bytes, news, moved);
            }
        }
        Ok(())
    }

    /// The receiver has nothing of a unit.
    fn absent(&mut self, serial: u32, overtaken: u64, moved: &mut Moved) {
        let Some(unit) = self.unit(serial) else { return };
        let (news, bytes) = (unit.heard_nothing(overtaken), unit.piece_bytes);
        self.moved(serial, bytes, news, moved);
    }

    /// The receiver has all of a unit.
    fn whole(&mut self, serial: u32, whole: &mut Vec<Serial>, moved: &mut Moved) -> Result<(), UdpBreach> {
        let at = serial.checked_sub(self.first).map(|at| at as usize);
        let Some(place) = at.and_then(|at| self.units.get_mut(at)) else { return Ok(()) };
        if place.as_ref().is_some_and(|unit| !unit.was_sent) {
            return Err(UdpBreach::Status);
        }
        if let Some(unit) = place.take() {
            let news = Moved { landed: unit.lacks(), down: unit.flying(), lost: 0 };
            self.moved(serial, unit.piece_bytes, news, moved);
            whole.push(Serial(serial));
        }
        Ok(())
    }

    fn moved(&mut self, serial: u32, bytes: PieceBytes, news: Moved, all: &mut Moved) {
        self.sizes.flying_bytes -= u64::from(news.down) * u64::from(bytes.get());
        self.sizes.counts.lost += u64::from(news.lost);
        self.sizes.counts.landed += u64::from(news.landed);
        if news.landed > 0 && bytes.datagram() > UDP_DATAGRAM_BYTES_SAFE {
            self.sizes.mtu.landed();
        }
        if news.lost > 0 {
            self.gaps_from = self.gaps_from.min(serial);
        }
        all.landed += news.landed;
        all.lost += news.lost;
    }

    /// Takes the probes that came, and finds out whether large datagrams pass no longer.
    pub(super) fn find_size(&mut self, now: Timestamp, status: &Status) -> Option<PieceBytes> {
        let was_doubted = self.sizes.mtu.is_doubted();
        let mtu = &mut self.sizes.mtu;
        mtu.came(status.search, status.probe);
        // A standing that is not complete may leave out large pieces that landed.
        let largest = status.largest.filter(|_| status.standing.complete);
        let fell = largest.is_some_and(|largest| mtu.fell(now, largest.number.get(), self.times.round_trip()));
        if mtu.is_doubted() && !was_doubted {
            // Small ones that follow the next large ones soon tell whether these pass.
            self.timers.asks = 0;
        }
        if fell { self.cut_anew() } else { None }
    }

    /// Cuts all units anew whose pieces are larger than the path carries.
    pub(super) fn cut_anew(&mut self) -> Option<PieceBytes> {
        let bytes = PieceBytes::filling(self.sizes.mtu.size()).unwrap_or(PieceBytes::SAFE);
        let mut any = None;
        for unit in self.units.iter_mut().flatten().filter(|unit| unit.piece_bytes > bytes) {
            let old = u64::from(unit.piece_bytes.get());
            let Some(flying) = unit.cut_anew(bytes) else { continue };
            self.sizes.flying_bytes -= u64::from(flying) * old;
            any = Some(bytes);
        }
        self.sizes.counts.cuts += u64::from(any.is_some());
        self.news_from = self.first;
        any
    }
}
