//! Owns one direction of a link as a machine without clock or device: the queue before the rate,
//! the line behind it, and the fate of each packet. Takes shapes and times, gives pieces to
//! deliver. Must not know bytes, threads or descriptors.

use std::collections::VecDeque;

use crate::Path;
use crate::counters::Counters;
use crate::cut::Cut;
use crate::fate::{Damage, Fate, Fates};
use crate::line::{Line, Time};
use crate::packet::{Protocol, Shape};
use crate::path::{Queue, nanos};

/// Consecutive segments of a frame that go on as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece<T> {
    pub(crate) of: T,
    pub(crate) shape: Shape,
    pub(crate) cut: Cut,
}

/// An order for a frame's piece. In either case one hold on the frame ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery<T> {
    Deliver(Piece<T>),
    Discard(T),
}

/// A piece in the queue.
#[derive(Debug, Clone, Copy)]
struct Waiting<T> {
    piece: Piece<T>,
    /// Bytes that it costs the rate.
    wire: u64,
    fate: Fate,
}

/// Limits that follow from a path, computed once.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Whether no dice are needed.
    even: bool,
    queue_bytes: u64,
    /// Whether these are a policer's bucket: nothing waits.
    polices: bool,
    /// The longest piece in bytes. A piece arrives with its last bit: one that takes long on the
    /// wire is cut, so that its first bits do not wait for that.
    run_bytes: u64,
}

/// One direction. `T` stands for a frame that the caller keeps.
#[derive(Debug)]
pub(crate) struct Pipe<T> {
    path: Path,
    limits: Limits,
    fates: Fates,
    queue: VecDeque<Waiting<T>>,
    /// Bytes of all that is in the queue.
    queued: u64,
    /// The time when the head of the queue has been sent.
    head_leaves: Time,
    /// The time when the last piece that left had been sent: the rate's clock. Of a policer, the
    /// time when its bucket is full again.
    free_at: Time,
    line: Line<Piece<T>>,
    counters: Counters,
}

impl<T: Copy> Pipe<T> {
    pub(crate) fn new(path: Path, fates: Fates) -> Pipe<T> {
        Pipe {
            limits: Limits::of(&path),
            path,
            fates,
            queue: VecDeque::new(),
            queued: 0,
            head_leaves: 0,
            free_at: 0,
            line: Line::default(),
            counters: Counters::default(),
        }
    }

    /// Takes a frame that arrives. Returns how many deliveries will concern it.
    pub(crate) fn handle_frame(&mut self, now: Time, of: T, shape: Shape) -> u32 {
        self.advance(now);
        self.count(shape);
        let mut backlog = self.backlog(now);
        let mut run: Option<Waiting<T>> = None;
        let mut holds = 0;
        for index in 0..shape.segments {
            let bytes = shape.packet_bytes(index);
            let wire = u64::from(bytes + self.path.overhead);
            let Some(fate) = self.admit(&shape, bytes, backlog, wire) else {
                holds += self.enqueue(now, run.take());
                continue;
            };
            backlog += wire;
            match &mut run {
                Some(run) if run.goes_on_with(fate, run.wire + wire <= self.limits.run_bytes) => {
                    run.piece.cut.count += 1;
                    run.wire += wire;
                }
                _ => {
                    let cut = Cut { first: index, count: 1, damage: fate.damage };
                    let next = Waiting { piece: Piece { of, shape, cut }, wire, fate };
                    holds += self.enqueue(now, run.replace(next));
                }
            }
        }
        holds += self.enqueue(now, run);
        if self.path.rate.is_some() {
            self.counters.queue_bytes_max = self.counters.queue_bytes_max.max(backlog);
        }
        holds
    }

    /// Counts a frame that arrives and for which there is no memory.
    pub(crate) fn handle_overflow(&mut self, shape: Shape) {
        self.count(shape);
        self.counters.dropped_emulator += u64::from(shape.segments);
    }

    /// Counts a piece that the receiving device refused.
    pub(crate) fn handle_refusal(&mut self, piece: &Piece<T>) {
        self.counters.delivered_frames -= 1;
        self.counters.delivered_packets -= u64::from(piece.cut.count);
        self.counters.delivered_bytes -= piece.bytes();
        self.counters.dropped_emulator += u64::from(piece.cut.count);
    }

    /// Replaces the path from now on. Waiting packets leave at the new rate; packets that have left
    /// arrive as they would have.
    pub(crate) fn change(&mut self, now: Time, path: Path) {
        self.advance(now);
        if let (Some(old), Some(new), false) = (self.path.rate, path.rate, self.queue.is_empty()) {
            let left = self.head_leaves.saturating_sub(now);
            let stretched = u128::from(left) * u128::from(old.as_bits()) / u128::from(new.as_bits());
            self.head_leaves = now.saturating_add(u64::try_from(stretched).unwrap_or(u64::MAX));
        }
        self.limits = Limits::of(&path);
        self.path = path;
        if self.path.rate.is_none() {
            self.head_leaves = now;
            self.advance(now);
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The next piece that is due by now, in the order of arrival.
    pub(crate) fn poll_delivery(&mut self, now: Time) -> Option<Delivery<T>> {
        self.advance(now);
        let (due, piece) = self.line.pop(now)?;
        let packets = u64::from(piece.cut.count);
        if self.path.down {
            self.counters.dropped_outage += packets;
            return Some(Delivery::Discard(piece.of));
        }
        self.counters.delivered_frames += 1;
        self.counters.delivered_packets += packets;
        self.counters.delivered_bytes += piece.bytes();
        self.counters.late_ns_sum += now - due;
        self.counters.late_us_max = self.counters.late_us_max.max((now - due) / 1000);
        Some(Delivery::Deliver(piece))
    }

    /// The time when the next piece will be due, if nothing else happens.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let head = self.queue.front().map(|_| self.head_leaves.saturating_add(nanos(self.path.delay)));
        self.line.next().into_iter().chain(head).min()
    }

    /// The time until which waiting packets take the rate: a frame that comes earlier would only
    /// wait too.
    pub(crate) fn poll_idle(&self, now: Time) -> Time {
        if self.limits.polices {
            return now;
        }
        let taken = self.path.rate.map_or(0, |rate| rate.nanos_for(self.backlog(now)));
        now.saturating_add(taken)
    }

    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    /// Throws the dice for a packet. Returns its fate if it is let into the queue.
    fn admit(&mut self, shape: &Shape, bytes: u32, backlog: u64, wire: u64) -> Option<Fate> {
        // Thrown for every packet that arrives, so that the n-th one's fate depends on nothing but
        // n.
        let fate = if self.limits.even { Fate::default() } else { self.fates.throw(&self.path) };
        let blocked = match shape.protocol {
            Protocol::Tcp => self.path.blocked.tcp,
            Protocol::Udp => self.path.blocked.udp,
            Protocol::StrangeUdp => self.path.blocked.udp || self.path.blocked.strange_udp,
            Protocol::Icmp => self.path.blocked.icmp,
            Protocol::Other => false,
        };
        let counter = if self.path.down {
            &mut self.counters.dropped_outage
        } else if blocked {
            &mut self.counters.dropped_blocked
        } else if self.path.hole.is_some_and(|most| bytes > most) {
            &mut self.counters.dropped_hole
        } else if backlog > 0 && backlog + wire > self.limits.queue_bytes {
            &mut self.counters.dropped_queue
        } else {
            let spared = matches!(fate.damage, Some(Damage::Silent(_))) && !shape.has_checked_payload();
            return Some(if spared { Fate { damage: None, ..fate } } else { fate });
        };
        *counter += 1;
        None
    }

    /// Puts a piece at the end of the queue. Returns how many holds on its frame it needs.
    fn enqueue(&mut self, now: Time, run: Option<Waiting<T>>) -> u32 {
        let Some(run) = run else { return 0 };
        if let Some(rate) = self.path.rate {
            if self.limits.polices {
                self.free_at = self.free_at.max(now).saturating_add(rate.nanos_for(run.wire));
                self.depart(now, run);
                return run.holds();
            }
            if self.queue.is_empty() {
                self.head_leaves = self.free_at.max(now).saturating_add(rate.nanos_for(run.wire));
            }
            self.queue.push_back(run);
            self.queued += run.wire;
        } else {
            self.depart(now, run);
        }
        run.holds()
    }

    /// Moves the pieces that have been sent by now from the queue to the line.
    fn advance(&mut self, now: Time) {
        while self.head_leaves <= now {
            let Some(head) = self.queue.pop_front() else { return };
            self.queued -= head.wire;
            self.free_at = self.head_leaves;
            self.depart(self.free_at, head);
            if let (Some(next), Some(rate)) = (self.queue.front(), self.path.rate) {
                self.head_leaves = self.free_at.saturating_add(rate.nanos_for(next.wire));
            }
        }
    }

    /// Puts a piece on the wire.
    fn depart(&mut self, at: Time, sent: Waiting<T>) {
        let Waiting { piece, fate, .. } = sent;
        let packets = u64::from(piece.cut.count);
        if fate.lost {
            self.counters.dropped_loss += packets;
            return;
        }
        match fate.damage {
            Some(Damage::Told(_)) => self.counters.corrupted += packets,
            Some(Damage::Silent(_)) => self.counters.corrupted_silently += packets,
            None => {}
        }
        let mut due = at.saturating_add(nanos(self.path.delay));
        if fate.late {
            self.counters.reordered += packets;
            due = due.saturating_add(nanos(self.path.reorder_by));
        }
        self.line.push(due, piece);
        if fate.duplicate {
            self.counters.duplicated += packets;
            self.line.push(due, piece);
        }
    }

    /// Bytes that wait now; of the head only the part that has not been sent yet. Of a policer, the
    /// bytes that its bucket lacks.
    fn backlog(&self, now: Time) -> u64 {
        if let (true, Some(rate)) = (self.limits.polices, self.path.rate) {
            return rate.bytes_in(self.free_at.saturating_sub(now));
        }
        let (Some(head), Some(rate)) = (self.queue.front(), self.path.rate) else { return 0 };
        let left = rate.bytes_in(self.head_leaves.saturating_sub(now)).min(head.wire);
        self.queued - head.wire + left
    }

    fn count(&mut self, shape: Shape) {
        self.counters.frames += 1;
        self.counters.packets += u64::from(shape.segments);
        self.counters.bytes += shape.bytes_of(0, shape.segments);
    }
}

impl Limits {
    fn of(path: &Path) -> Limits {
        let run_bytes = path.rate.map_or(u64::MAX, |rate| rate.bytes_in(RUN_NANOS_MAX));
        let polices = matches!(path.queue, Queue::Bucket(_));
        Limits { even: path.is_even(), queue_bytes: path.queue_bytes(), polices, run_bytes }
    }
}

impl<T> Piece<T> {
    /// The bytes of the piece, as packets.
    fn bytes(&self) -> u64 {
        self.shape.bytes_of(self.cut.first, self.cut.count)
    }
}

impl<T> Waiting<T> {
    /// Holds on its frame: one for each delivery.
    fn holds(&self) -> u32 {
        if self.fate.lost { 0 } else { 1 + u32::from(self.fate.duplicate) }
    }

    /// Whether the next packet can be part of the same piece: only packets to which nothing
    /// happens, or packets that are all lost, go together.
    fn goes_on_with(&self, next: Fate, fits: bool) -> bool {
        let plain = Fate { lost: self.fate.lost, ..Fate::default() };
        self.fate == plain && next == plain && fits
    }
}

/// A super-packet of 64 KiB and its headers stays whole from 1 Gbit/s on; no packet is later than
/// this for being part of one.
const RUN_NANOS_MAX: u64 = 560_000;

#[cfg(test)]
#[path = "pipe/tests.rs"]
mod tests;
