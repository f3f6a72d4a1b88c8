//! Owns the thread of a UDP lane's end that sends files: it takes units, seals pieces of them from
//! where they lie, and sends again what did not come.
//!
//! In: units from a [`UdpFeed`], statuses from the other end, turns from the account of the rate.
//! Out: datagrams, and units that are whole at the other end, whose buffers are free then. Hashing
//! is ahead of sending by 256 KiB at most, so that bytes are in cache when they are sealed. It
//! knows no files and no messages.

use std::collections::VecDeque;
use std::ops::Deref;
use std::time::Duration;

use longhaul_core::{Fault, FaultCode};
use longhaul_net::UdpFigure;
use longhaul_proto::time::Timestamp;
use longhaul_proto::udp::control::UdpLaneLimit;
use longhaul_proto::udp::packet::{CloseReason, Outer, OuterBody, Serial, encode_end};
use longhaul_proto::udp::plan::{Purpose, UdpPlan, UnitPlan};
use longhaul_proto::udp::sending::{UdpHeard, UdpSending, UdpSendingConfig};
use longhaul_proto::udp::status::Status;
use longhaul_sys::udp::Sent;

use super::hearing::Hearing;
use super::hold::{DataLeave, FlightHold};
use super::join::JoinedUdp;
use super::open_unit::OpenUnit;
use super::packets::{HELLO_EACH, LaneClock, look_after, lost, net, next_number, open, push, send_last, stamp};
use super::path::UdpPath;
use super::turns::{message_room, turn_bytes};
use super::units::{FeedNext, UdpFeed, UnsentUnits};
use crate::cpu::{Stage, StageTimes};
use crate::lanes::worker::pacer::Pacer;
use crate::lanes::worker::pulse::Pulse;

/// The means of a UDP lane's thread that sends.
#[derive(Clone, Copy)]
pub(crate) struct UdpSendMeans<'a> {
    /// Says when it may send.
    pub(crate) pacer: &'a Pacer,
    /// Where CPU time is counted.
    pub(crate) times: &'a StageTimes,
    /// Its signs of life.
    pub(crate) pulse: &'a Pulse,
    /// The path, which says how much may be sent. `None` for as much as the account allows.
    pub(crate) path: Option<&'a UdpPath>,
    /// A lane is lost whose other end says nothing for so long, or of which nothing lands.
    pub(crate) patience: Duration,
}

/// Sends units until the feed is over and the receiver has all. Gives the units that it had in hand
/// otherwise.
///
/// # Errors
/// A [`Fault`] when the lane breaks.
pub(crate) fn run<F: UdpFeed>(
    joined: JoinedUdp,
    round_trip: Duration,
    means: UdpSendMeans<'_>,
    feed: &mut F,
) -> Result<(), (Fault, UnsentUnits<F::Bytes>)> {
    let clock = LaneClock::start();
    let config = UdpSendingConfig { routes: joined.routes, admit: Serial(joined.admit), round_trip };
    let mut thread = SendThread {
        machine: UdpSending::new(clock.now(), config),
        joined,
        clock,
        means,
        row: UnitRow { units: VecDeque::new(), first: 0 },
        is_over: false,
        is_ended: false,
        must_hash: false,
        hearing: Hearing::new(clock.now(), means.patience),
        hold: FlightHold::new(clock.now()),
        limit: UdpLaneLimit::Path,
    };
    let id = thread.joined.id;
    if let Some(path) = means.path {
        path.begin(id, round_trip, means.pacer);
    }
    let result = thread.drive(feed);
    if let Some(path) = means.path {
        path.end(id);
    }
    let is_breach = result.as_ref().is_err_and(|fault| fault.code == FaultCode::Protocol);
    let reason = match &result {
        Ok(()) => CloseReason::Over,
        Err(_) if is_breach => CloseReason::Breach,
        Err(_) => CloseReason::GivenUp,
    };
    let now = thread.clock.now();
    send_last(&mut thread.joined.lane.send, thread.joined.there, now, OuterBody::Close, &reason.encode());
    let units = std::mem::take(&mut thread.row.units);
    result.map_err(|fault| (fault, units.into_iter().flatten().map(|open| open.unit).collect()))
}

struct SendThread<'a, B> {
    machine: UdpSending,
    joined: JoinedUdp,
    clock: LaneClock,
    means: UdpSendMeans<'a>,
    row: UnitRow<B>,
    /// Whether the feed is over.
    is_over: bool,
    /// Whether the receiver has all there is.
    is_ended: bool,
    /// Whether something was sent since bytes were hashed last.
    must_hash: bool,
    hearing: Hearing,
    hold: FlightHold,
    /// The reason why no more was sent since the last sample.
    limit: UdpLaneLimit,
}

/// The units of a lane that are not whole at the receiver, in the order of their serials.
struct UnitRow<B> {
    /// The units from serial `first` on; `None` for those that are whole.
    units: VecDeque<Option<OpenUnit<B>>>,
    first: u32,
}

/// The state of a lane's turns.
struct SendRound {
    /// Bytes that may still be sent in this turn; below 0 what the last message took beyond it.
    left: i64,
    /// When a sign goes to an end that has said nothing yet.
    hello: Timestamp,
    last_sent: Timestamp,
}

/// The fate of a message.
enum MessageFate {
    Yes,
    /// Its datagrams are too long for the way out of this host.
    TooLong,
}

impl<B: Deref<Target = [u8]>> SendThread<'_, B> {
    fn drive<F: UdpFeed<Bytes = B>>(&mut self, feed: &mut F) -> Result<(), Fault> {
        let mut round = SendRound { left: 0, hello: self.clock.now(), last_sent: self.clock.now() };
        while !self.is_ended {
            self.means.times.count(Stage::Net, || self.drive_once(&mut round, feed))?;
        }
        Ok(())
    }

    /// Hears, begins units, and sends what may leave in a turn, or waits.
    fn drive_once<F: UdpFeed<Bytes = B>>(&mut self, round: &mut SendRound, feed: &mut F) -> Result<(), Fault> {
        self.hear(Duration::ZERO, feed)?;
        if self.is_ended {
            return Ok(());
        }
        let now = self.clock.now();
        if self.machine.last_heard().is_none() && now >= round.hello {
            // An acceptor waits for something sealed, and data may be too large, or not there yet.
            self.carry_out(&self.machine.sign(), feed)?;
            round.hello = now.after(HELLO_EACH.max(2 * self.machine.round_trip()));
        }
        self.begin(feed);
        let (rate, datagram) = (self.means.pacer.rate(), self.machine.datagram_bytes());
        let room = message_room(rate, datagram.into());
        let turn = turn_bytes(rate, room.bytes);
        // The rate may have fallen.
        round.left = round.left.min(turn as i64);
        let mut sent_any = false;
        loop {
            let now = self.clock.now();
            let Some(plan) = self.machine.next(now, room) else { break };
            if !plan.is_word() && !self.has_leave(now, feed)? {
                break;
            }
            // A word is said at once whatever the rate, which counts it.
            if round.left <= 0 && !plan.is_word() {
                if sent_any {
                    break;
                }
                round.left += self.pace(turn, feed)? as i64;
                // Statuses that came meanwhile say what to send, and that the path is there.
                self.hear(Duration::ZERO, feed)?;
                continue;
            }
            sent_any = true;
            round.left -= plan.bytes() as i64;
            self.carry_out(&plan, feed)?;
        }
        self.hash_ahead();
        if sent_any {
            round.last_sent = now;
            return Ok(());
        }
        self.wait(round.last_sent, feed)
    }

    /// Waits for a turn, and returns its bytes. It is one of the lanes over TCP as well if all of
    /// them are to keep a rate together.
    fn pace<F: UdpFeed<Bytes = B>>(&mut self, turn: usize, feed: &mut F) -> Result<usize, Fault> {
        let UdpSendMeans { pacer, path, .. } = self.means;
        let turn = self.pace_by(pacer, turn, feed)?;
        path.and_then(UdpPath::beside).map_or(Ok(turn), |beside| self.pace_by(beside, turn, feed))
    }

    /// Waits for a turn of an account. Meanwhile the other end is heard, and hears that this one is
    /// there.
    fn pace_by<F: UdpFeed<Bytes = B>>(&mut self, pacer: &Pacer, turn: usize, feed: &mut F) -> Result<usize, Fault> {
        let (pulse, mut said) = (self.means.pulse, self.clock.now());
        pulse.paced_while(pacer, turn, || {
            self.hear(Duration::ZERO, feed)?;
            if let Some(path) = self.means.path {
                path.pace(self.means.pacer);
            }
            let now = self.clock.now();
            if now.since(said) >= SIGN_EACH {
                said = now;
                self.carry_out(&self.machine.sign(), feed)?;
            }
            Ok(())
        })
    }

    /// Whether data may be sent now. Where nothing but signs of life may, says one each second.
    fn has_leave<F: UdpFeed<Bytes = B>>(&mut self, now: Timestamp, feed: &mut F) -> Result<bool, Fault> {
        let Some(path) = self.means.path else { return Ok(true) };
        let leave = path.leave(self.means.pacer);
        match self.hold.judge(now, leave, self.machine.round_trip()) {
            DataLeave::Given => Ok(true),
            DataLeave::Held => Ok(false),
            DataLeave::Silent { sign } => {
                self.limit = UdpLaneLimit::Breaker;
                if sign {
                    self.carry_out(&self.machine.sign(), feed)?;
                }
                Ok(false)
            }
            DataLeave::Over(why) => Err(lost(why)),
        }
    }

    /// Takes units as long as the receiver admits them and the feed has them.
    fn begin<F: UdpFeed<Bytes = B>>(&mut self, feed: &mut F) {
        if !self.is_over && self.machine.credit() == 0 && feed.is_over() {
            self.is_over = true;
            self.machine.finish();
        }
        while !self.is_over && self.machine.credit() > 0 && self.unsent() < UNITS_AHEAD {
            let unit = match feed.next() {
                FeedNext::Unit(unit) => unit,
                FeedNext::NotNow => {
                    self.note_idle(UdpLaneLimit::Source);
                    return;
                }
                FeedNext::Over => {
                    self.is_over = true;
                    self.machine.finish();
                    break;
                }
            };
            let mut open = OpenUnit::new(unit);
            let Some(begun) = self.machine.begin(open.payload().len() as u64) else { return };
            let known = open.unit.digest.is_some();
            if open.hash_beyond(0, self.means.times) || known {
                self.machine.digest_known(begun.serial);
            }
            self.means.pulse.begin_sending_another(open.fresh_bytes());
            self.row.units.push_back(Some(open));
        }
        if self.is_over {
            self.note_idle(UdpLaneLimit::Source);
        } else if self.machine.credit() == 0 {
            self.note_idle(UdpLaneLimit::Credit);
        }
    }

    /// Notes why nothing new is sent, if so.
    fn note_idle(&mut self, limit: UdpLaneLimit) {
        if self.unsent() == 0 {
            self.limit = limit;
        }
    }

    /// Units that were begun last and of which a part was never sent.
    fn unsent(&self) -> usize {
        self.row.units.iter().rev().take(UNITS_AHEAD).flatten().filter(|open| !open.is_sent).count()
    }

    /// Seals and sends a message.
    fn carry_out<F: UdpFeed<Bytes = B>>(&mut self, plan: &UdpPlan, feed: &mut F) -> Result<(), Fault> {
        let first = next_number(&self.joined.lane.send)?;
        let now = self.clock.now();
        let carried = match plan {
            UdpPlan::Unit(unit) => self.send_unit(now, unit, feed)?,
            UdpPlan::Probe(..) => {
                for datagram in plan.datagrams() {
                    self.push(now, datagram.body, &vec![0; datagram.plain_bytes()])?;
                }
                self.flush()?
            }
            UdpPlan::End(units) => {
                self.push(now, OuterBody::End, &encode_end(*units))?;
                self.flush()?
            }
        };
        self.machine.sent(now, plan, first);
        if let MessageFate::TooLong = carried {
            self.machine.refused(plan.segment_bytes());
        }
        if !matches!(plan, UdpPlan::Probe(..)) {
            self.hearing.sent(now);
        }
        Ok(())
    }

    fn send_unit<F: UdpFeed<Bytes = B>>(
        &mut self,
        now: Timestamp,
        plan: &UnitPlan,
        feed: &mut F,
    ) -> Result<MessageFate, Fault> {
        // Once the system has it, the receiver may have all of the unit, whatever becomes of the
        // lane here.
        self.note_sent(plan, feed);
        let (send, to, sent) = (&mut self.joined.lane.send, self.joined.there, stamp(now));
        let at = plan.serial.0.wrapping_sub(self.row.first) as usize;
        let Some(Some(open)) = self.row.units.get(at) else { return Ok(MessageFate::Yes) };
        let payload = open.payload();
        for datagram in plan.datagrams() {
            match datagram.body {
                OuterBody::Data(_) => {
                    let piece = &payload[datagram.at.start as usize..datagram.at.end as usize];
                    push(send, to, sent, datagram.body, piece)?;
                }
                body => push(send, to, sent, body, &open.described(plan.serial, plan.piece_bytes).encode())?,
            }
        }
        let bytes: usize = plan.pieces.iter().map(|run| run.len() * usize::from(plan.piece_bytes.get())).sum();
        if let Some(path) = self.means.path {
            path.sent(self.joined.id, bytes as u64);
        }
        match plan.purpose {
            Purpose::New => self.means.pulse.beat(),
            // A lane that only repeats itself does not get on.
            _ => self.joined.lane.handle.add(UdpFigure::Resent, bytes as u64),
        }
        self.flush()
    }

    /// A message of a unit is about to be sent: a unit that may be whole by it is reported now.
    fn note_sent<F: UdpFeed<Bytes = B>>(&mut self, plan: &UnitPlan, feed: &mut F) {
        let at = plan.serial.0.wrapping_sub(self.row.first) as usize;
        let Some(Some(open)) = self.row.units.get_mut(at) else { return };
        if plan.purpose == Purpose::New {
            let end = plan.pieces.last().map_or(0, |run| usize::from(run.end) * usize::from(plan.piece_bytes.get()));
            let (before, len) = (open.sent, open.payload().len());
            open.sent = before.max(end.min(len));
            open.is_sent |= end >= len;
            self.means.pulse.carried(open.sent - before);
            self.must_hash = true;
        }
        if let Some(digest) = open.unit.digest.filter(|_| open.is_sent) {
            open.report(plan.serial.0, digest, feed, self.means.pulse);
        }
    }

    /// Hashes what is sent next, between two turns: the messages of a turn follow one another, so
    /// that the receiver wakes once for all of them.
    fn hash_ahead(&mut self) {
        if !std::mem::take(&mut self.must_hash) {
            return;
        }
        // All others were sent, and so hashed.
        for at in self.row.units.len().saturating_sub(UNITS_AHEAD)..self.row.units.len() {
            let Some(open) = &mut self.row.units[at] else { continue };
            if open.hash_beyond(open.sent, self.means.times) {
                self.machine.digest_known(Serial(self.row.first.wrapping_add(at as u32)));
            }
        }
    }

    fn push(&mut self, now: Timestamp, body: OuterBody, plain: &[u8]) -> Result<(), Fault> {
        push(&mut self.joined.lane.send, self.joined.there, stamp(now), body, plain)
    }

    fn flush(&mut self) -> Result<MessageFate, Fault> {
        match self.joined.lane.send.flush().map_err(net)? {
            Sent::TooLong => Ok(MessageFate::TooLong),
            _ => Ok(MessageFate::Yes),
        }
    }

    /// Waits until the receiver says something, or the machine has something to say. New units are
    /// looked for now and then. Nothing was sent since `busy`.
    fn wait<F: UdpFeed<Bytes = B>>(&mut self, busy: Timestamp, feed: &mut F) -> Result<(), Fault> {
        let now = self.clock.now();
        let due = self.machine.timeout().map_or(IDLE_LOOK, |due| due.since(now));
        let looks = !self.is_over && self.machine.credit() > 0;
        let least = if self.hold.is_held() { HELD_LOOK } else { LEAST_WAIT };
        let at_most = due.min(if looks { look_after(now.since(busy)) } else { IDLE_LOOK }).max(least);
        self.hear(at_most, feed)
    }

    /// Takes what the receiver says.
    fn hear<F: UdpFeed<Bytes = B>>(&mut self, at_most: Duration, feed: &mut F) -> Result<(), Fault> {
        let mut wait = at_most;
        for _ in 0..LOOKS_MOST {
            if self.joined.lane.receive.receive(wait).map_err(net)? > 0 {
                self.take_in(self.clock.now(), feed)?;
            }
            if self.is_ended || !self.joined.lane.receive.is_full() {
                break;
            }
            wait = Duration::ZERO;
        }
        let now = self.clock.now();
        if self.is_ended || self.row.units.is_empty() && !self.is_over {
            self.hearing.owes_nothing(now);
        }
        self.hearing.judge(now).map_or(Ok(()), |why| Err(lost(why)))
    }

    fn take_in<F: UdpFeed<Bytes = B>>(&mut self, now: Timestamp, feed: &mut F) -> Result<(), Fault> {
        let (runs, opener) = self.joined.lane.receive.parts();
        let mut heard = Vec::new();
        for (datagram, came) in runs.flat_map(|run| run.datagrams().map(move |datagram| (datagram, run.came))) {
            let outer = Outer::parse(datagram).ok().filter(|outer| outer.index == self.joined.here);
            let Some(outer) = outer else { continue };
            if outer.body == OuterBody::Status && !self.machine.is_news(outer.number) {
                continue;
            }
            let Some(plain) = open(opener, &outer, datagram, &mut self.hearing.scratch)? else { continue };
            match outer.body {
                OuterBody::Status if !self.hearing.statuses.take(now) => {}
                OuterBody::Status => {
                    self.joined.lane.handle.heard(datagram.len() as u64);
                    let status = Status::decode(plain).map_err(Fault::protocol)?;
                    // A round trip ends when its status comes, and not when this thread runs.
                    let came = self.hearing.arrivals.note(self.clock, came);
                    heard.push(self.machine.status(came, outer.number, &status).map_err(Fault::protocol)?);
                }
                OuterBody::Close => return Err(lost("the other end has closed a UDP lane")),
                _ => {}
            }
        }
        for news in heard {
            self.is_ended |= news.ended;
            self.learn(now, news, feed);
        }
        Ok(())
    }

    fn learn<F: UdpFeed<Bytes = B>>(&mut self, now: Timestamp, news: UdpHeard, feed: &mut F) {
        if let Some(sample) = &news.sample {
            // That the other end answers is a sign of life and moves nothing.
            if self.hearing.heard(now, sample.counts.bytes, news.whole.len()) {
                self.means.pulse.beat();
            }
            feed.observe(now, sample);
            let limit = std::mem::replace(&mut self.limit, UdpLaneLimit::Path);
            if let Some(path) = self.means.path {
                path.observe(self.joined.id, sample, limit, self.means.pacer);
            }
            let set = |figure, value| self.joined.lane.handle.set(figure, value);
            set(UdpFigure::Acked, sample.counts.bytes);
            set(UdpFigure::Delivered, sample.counts.packets);
            set(UdpFigure::Unacked, sample.flying_bytes / u64::from(self.machine.datagram_bytes().max(1)));
            set(UdpFigure::RttUs, self.machine.round_trip().as_micros() as u64);
            set(UdpFigure::DatagramBytes, self.machine.datagram_bytes().into());
            if let Some(round_trip) = sample.round_trip.map(|rtt| (rtt.as_micros() as u64).max(1)) {
                let least = self.joined.lane.handle.get(UdpFigure::RttMinUs);
                set(UdpFigure::RttMinUs, if least == 0 { round_trip } else { least.min(round_trip) });
            }
        }
        for serial in news.whole {
            let at = serial.0.wrapping_sub(self.row.first) as usize;
            let Some(mut open) = self.row.units.get_mut(at).and_then(Option::take) else { continue };
            // No unit is whole whose digest was not said.
            if let Some(digest) = open.unit.digest {
                open.report(serial.0, digest, feed, self.means.pulse);
                feed.whole(serial.0, open.unit, digest);
            }
            self.means.pulse.done_with_one(0);
        }
        while let Some(None) = self.row.units.front() {
            self.row.units.pop_front();
            self.row.first += 1;
        }
    }
}

/// Units that were begun and not all sent: the next one is hashed while one is sent, not more.
const UNITS_AHEAD: usize = 2;
/// Looks at the socket in one go: what comes beyond that waits until something was sent.
const LOOKS_MOST: usize = 4;
/// The time between two looks whether the lane was closed, or is lost.
const IDLE_LOOK: Duration = Duration::from_millis(100);
/// The shortest wait: what is due sooner is due together.
const LEAST_WAIT: Duration = Duration::from_micros(200);
/// The wait where enough is on its way: what comes meanwhile ends it.
const HELD_LOOK: Duration = Duration::from_millis(2);
/// The time between two signs of life of a lane that waits for its rate: as of one that is idle.
const SIGN_EACH: Duration = Duration::from_secs(5);
/// A lane is lost whose other end owes a status for so long, or of which nothing lands.
pub(crate) const SILENT_MOST: Duration = Duration::from_secs(20);
