//! Owns the thread that moves one direction: it reads one device, keeps the frames that wait, and
//! writes the other device when they are due. Takes changes from the caller, gives counters. Must
//! not decide what happens to a packet.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::counters::Counters;
use crate::cut::Cutter;
use crate::device::Device;
use crate::fate::Fates;
use crate::line::Time;
use crate::packet::{FRAME_BYTES_MAX, Shape};
use crate::path::nanos;
use crate::pipe::{Delivery, Pipe};
use crate::store::{Span, Store};
use crate::{Change, Error, Path};

/// The parts with which a direction begins.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) from: Arc<Device>,
    pub(crate) to: Arc<Device>,
    pub(crate) path: Path,
    pub(crate) seed: u64,
    /// The scheduled changes, the earliest first.
    pub(crate) schedule: Vec<(Duration, Change)>,
    /// The time when the network was made: times of the schedule count from here.
    pub(crate) began: Instant,
}

/// A direction whose thread runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Driver {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// The state that the thread and its owner share.
#[derive(Debug)]
struct Shared {
    orders: Mutex<Orders>,
    counters: Mutex<Counters>,
    wake: OwnedFd,
}

#[derive(Debug, Default)]
struct Orders {
    changes: Vec<Change>,
    stop: bool,
}

impl Driver {
    pub(crate) fn start(start: Start) -> Result<Driver, Error> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = wake.map_err(|error| Error::system("open", "an eventfd", error.into()))?;
        let shared = Arc::new(Shared { orders: Mutex::default(), counters: Mutex::default(), wake });
        let mover = Mover::new(start, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("wan".into()).spawn(move || mover.run());
        let thread = thread.map_err(|error| Error::system("start", "a thread", error))?;
        Ok(Driver { shared, thread: Some(thread) })
    }

    pub(crate) fn change(&self, change: Change) {
        lock(&self.shared.orders).changes.push(change);
        self.wake();
    }

    pub(crate) fn counters(&self) -> Counters {
        *lock(&self.shared.counters)
    }

    fn wake(&self) {
        // It fails only when the counter is full, and then the thread is awake.
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        lock(&self.shared.orders).stop = true;
        self.wake();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so on stderr; there is nothing left to do for it.
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Mover {
    from: Arc<Device>,
    to: Arc<Device>,
    pipe: Pipe<Span>,
    store: Store,
    cutter: Cutter,
    /// The buffer for a frame for which there is no memory.
    spill: Box<[u8]>,
    /// The changes still to come, the next one last.
    schedule: Vec<(Duration, Change)>,
    began: Instant,
    shared: Arc<Shared>,
    cpu_us: u64,
    cpu_read_at: Time,
}

impl Mover {
    fn new(start: Start, shared: Arc<Shared>) -> Mover {
        Mover {
            store: Store::with_room_for(start.path.held_bytes()),
            from: start.from,
            to: start.to,
            pipe: Pipe::new(start.path, Fates::seeded(start.seed)),
            cutter: Cutter::new(),
            spill: vec![0; FRAME_BYTES_MAX].into_boxed_slice(),
            schedule: start.schedule.into_iter().rev().collect(),
            began: start.began,
            shared,
            cpu_us: 0,
            cpu_read_at: 0,
        }
    }

    fn run(mut self) {
        // Without this the kernel may deliver every timer 50 us late, to save power.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        // A path does not wait for the hosts' programs. It is for this thread alone. A user that
        // may not ask for it has a path that is late more often, and counters that show it.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        loop {
            if self.obey() {
                return;
            }
            self.deliver();
            // The device goes only with the namespace, and that with the whole network.
            let Ok(more) = self.take_in() else { return };
            self.deliver();
            self.publish();
            if !more {
                self.wait();
            }
        }
    }

    /// Carries out orders and scheduled changes. Returns whether to stop.
    fn obey(&mut self) -> bool {
        let now = self.now();
        let orders = std::mem::take(&mut *lock(&self.shared.orders));
        let mut path = self.pipe.path().clone();
        while let Some((_, change)) = self.schedule.pop_if(|(at, _)| nanos(*at) <= now) {
            change.apply(&mut path);
        }
        for change in &orders.changes {
            change.apply(&mut path);
        }
        if path != *self.pipe.path() {
            self.store.grow_to(path.held_bytes());
            self.pipe.change(now, path);
        }
        orders.stop
    }

    /// Reads the frames that the sending host has handed over. Returns whether there may be more.
    fn take_in(&mut self) -> io::Result<bool> {
        for _ in 0..FRAMES_AT_A_TIME {
            let room = self.store.room();
            let kept = room.is_some();
            let room = room.unwrap_or(&mut self.spill);
            let Some(len) = self.from.read(room)? else { return Ok(false) };
            // A frame that is no IP packet, or is meant for the neighbour alone, is not for a path.
            let Some(shape) = Shape::read(&room[..len]).filter(|shape| !shape.local) else { continue };
            match self.store.span(len).filter(|_| kept) {
                Some(span) => {
                    let holds = self.pipe.handle_frame(self.now(), span, shape);
                    self.store.keep(span, holds);
                }
                None => self.pipe.handle_overflow(shape),
            }
        }
        Ok(true)
    }

    fn deliver(&mut self) {
        while let Some(delivery) = self.pipe.poll_delivery(self.now()) {
            let span = match delivery {
                Delivery::Discard(span) => span,
                Delivery::Deliver(piece) => {
                    let (head, body) = self.cutter.render(self.store.bytes(piece.of), &piece.shape, &piece.cut);
                    if self.to.write(head, body).is_err() {
                        self.pipe.handle_refusal(&piece);
                    }
                    piece.of
                }
            };
            self.store.release(span);
        }
    }

    fn publish(&mut self) {
        let now = self.now();
        if now >= self.cpu_read_at {
            let used = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
            self.cpu_us = (used.tv_sec as u64) * 1_000_000 + (used.tv_nsec as u64) / 1000;
            self.cpu_read_at = now + CPU_READ_NANOS;
        }
        let counters = Counters { cpu_us: self.cpu_us, ..self.pipe.counters() };
        *lock(&self.shared.counters) = counters;
    }

    /// Sleeps until there is a frame, an order, or something due.
    fn wait(&self) {
        let now = self.now();
        let scheduled = self.schedule.last().map(|(at, _)| nanos(*at));
        let next = self.pipe.poll_timeout().into_iter().chain(scheduled).min();
        let left = next.map(|due| due.saturating_sub(now));
        // A frame that would only wait for the rate is read when something is due anyway: half as
        // many wake-ups.
        let soon = next.filter(|due| due.saturating_sub(now) <= UNREAD_NANOS_MAX);
        let deaf = soon.is_some_and(|due| due < self.pipe.poll_idle(now));
        let ears = if deaf { PollFlags::empty() } else { PollFlags::IN };
        let mut sources = [PollFd::new(&*self.from, ears), PollFd::new(&self.shared.wake, PollFlags::IN)];
        let left = left.map(|left| Timespec { tv_sec: (left / SECOND) as i64, tv_nsec: (left % SECOND) as i64 });
        // The loop looks at everything anew, whatever the result.
        let _ = poll(&mut sources, left.as_ref());
        if sources[1].revents().contains(PollFlags::IN) {
            let _ = rustix::io::read(&self.shared.wake, &mut [0u8; 8]);
        }
    }

    fn now(&self) -> Time {
        nanos(self.began.elapsed())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Frames read before due deliveries are looked at again: some 100 us at 64 KiB each.
const FRAMES_AT_A_TIME: usize = 16;
/// The time for which a frame may be left with the kernel, whose own queue is long enough for that.
const UNREAD_NANOS_MAX: Time = 1_000_000;
const SECOND: u64 = 1_000_000_000;
/// The niceness of the thread: the highest priority of an ordinary scheduling class.
const NICENESS: i32 = -20;
/// The time between two reads of the processor time. Each is a system call, which is too much for
/// every frame.
const CPU_READ_NANOS: Time = 5_000_000;
