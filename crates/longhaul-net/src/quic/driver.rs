//! Drives quinn's connections: in turns, and with as few system calls and wake-ups as may be.
//!
//! Owns the tasks in which quinn's drivers run. Takes those from quinn, and turns from the account
//! of a lane's rate; lets them make packets, and gives these to the socket in large batches. Must
//! not know QUIC.
//!
//! Quinn notes when a packet is sent as it makes it. A packet that then waits for its turn has a
//! round trip that is longer by the wait, and says nothing of the path's queue. So here nothing is
//! made before its turn: until then the driver sleeps, and what wakes it (acknowledgements, more to
//! send) waits with it. In its turn a driver is asked again and again, as quinn makes no more than
//! 20 datagrams at a time, and all of them leave in batches when it has done.
//!
//! Whose lane a driver drives is told by the congestion control that quinn asks in its poll, and
//! not by the address to which it sends: several connections may go to one address.
//!
//! A lane that receives rests for a moment when it has got something: else each batch that comes
//! wakes the lane's thread, and each of its reads the driver.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use quinn::udp::Transmit;
use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, TokioRuntime, UdpPoller};
use tokio::time::{Sleep, sleep_until};

use super::batch::Batch;
use super::figures::Figures;
use super::host_socket::{HostSocket, Importance};
use crate::shared_path::bucket::SendTurn;

/// Tokio's runtime, in which drivers have turns: see the module.
#[derive(Debug)]
pub(crate) struct TurnRuntime;

impl Runtime for TurnRuntime {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        TokioRuntime.new_timer(at)
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        tokio::spawn(Driver {
            quinns: future,
            waker: Arc::default(),
            sleep: None,
            writable: None,
            outgoing: Outgoing::default(),
            turn: None,
            rest: (0, Instant::now()),
        });
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        TokioRuntime.wrap_udp_socket(socket)
    }

    fn now(&self) -> Instant {
        TokioRuntime.now()
    }
}

/// The datagrams of the driver that is being polled on this thread, and whose they are.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    batch: Batch,
    socket: Option<Arc<HostSocket>>,
    of: OutgoingOf,
    /// When the poll began. For quinn, everything that is received in it came then.
    polled: Option<Instant>,
}

/// The kind of a driver, which shows in what it does.
#[derive(Debug, Default)]
enum OutgoingOf {
    /// It has asked no lane's congestion control yet, nor received anything.
    #[default]
    Unknown,
    /// An endpoint's, which receives.
    Endpoint,
    /// A lane's.
    Lane(Arc<Figures>),
}

impl OutgoingOf {
    fn importance(&self) -> Importance {
        match self {
            OutgoingOf::Lane(lane) => lane.importance(),
            OutgoingOf::Unknown | OutgoingOf::Endpoint => Importance::Usual,
        }
    }
}

thread_local! {
    /// Quinn's driver calls the socket on the thread on which it is polled, and only the socket
    /// sees what it sends.
    static OUTGOING: RefCell<Option<Outgoing>> = const { RefCell::new(None) };
}

impl Outgoing {
    /// Notes that the driver that is polled now receives.
    pub(crate) fn note_receiving() {
        OUTGOING.with_borrow_mut(|outgoing| {
            if let Some(outgoing) = outgoing {
                outgoing.of = OutgoingOf::Endpoint;
            }
        });
    }

    /// Notes whose congestion control the driver that is polled now asks.
    pub(crate) fn note_lane(lane: &Arc<Figures>) {
        OUTGOING.with_borrow_mut(|outgoing| {
            if let Some(Outgoing { of: of @ OutgoingOf::Unknown, .. }) = outgoing {
                *of = OutgoingOf::Lane(lane.clone());
            }
        });
    }

    /// Whether the poll of the driver that is polled now began so long ago that what is received
    /// now would seem to have come much too early.
    pub(crate) fn is_late() -> bool {
        OUTGOING.with_borrow(|outgoing| {
            let polled = outgoing.as_ref().and_then(|outgoing| outgoing.polled);
            polled.is_some_and(|polled| polled.elapsed() > LATE_MAX)
        })
    }

    /// Does something as a driver whose poll began then.
    #[cfg(test)]
    pub(crate) fn within<T>(polled: Instant, doing: impl FnOnce() -> T) -> T {
        OUTGOING.set(Some(Outgoing { polled: Some(polled), ..Outgoing::default() }));
        let done = doing();
        OUTGOING.set(None);
        done
    }

    /// Takes a transmission of the driver that is polled now, or sends it if there is none.
    pub(crate) fn send(socket: &Arc<HostSocket>, transmit: &Transmit<'_>) -> io::Result<()> {
        OUTGOING.with_borrow_mut(|outgoing| match outgoing {
            Some(outgoing) => outgoing.take(socket, transmit),
            None => socket.send(transmit, Importance::Usual),
        })
    }

    /// Bytes that the lane of the driver that is polled now may still send in its turn. `None` if
    /// it has none, or no turns.
    pub(crate) fn turn_left() -> Option<usize> {
        OUTGOING.with_borrow(|outgoing| match outgoing.as_ref().map(|outgoing| &outgoing.of) {
            Some(OutgoingOf::Lane(lane)) => usize::try_from(lane.end_poll().0).ok(),
            _ => None,
        })
    }

    fn take(&mut self, socket: &Arc<HostSocket>, transmit: &Transmit<'_>) -> io::Result<()> {
        self.socket.get_or_insert_with(|| socket.clone());
        let segments_max = socket.max_transmit_segments();
        if !self.batch.push(transmit, segments_max) {
            self.flush()?;
            self.batch.push(transmit, segments_max);
        }
        if let OutgoingOf::Lane(lane) = &self.of {
            lane.charge(transmit.contents.len());
        }
        Ok(())
    }

    /// Has what waits leave.
    ///
    /// # Errors
    /// `WouldBlock` if the socket takes no more; it then waits on.
    fn flush(&mut self) -> io::Result<()> {
        let (Some(socket), Some(transmit)) = (&self.socket, self.batch.transmit()) else { return Ok(()) };
        match socket.send(&transmit, self.of.importance()) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(error),
            // What does not leave is lost, as on the way.
            sent => {
                if let Err(error) = sent {
                    tracing::debug!(%error, "datagrams could not be sent");
                }
                self.batch.clear();
                Ok(())
            }
        }
    }
}

/// A driver of quinn's and its turns.
struct Driver {
    quinns: Pin<Box<dyn Future<Output = ()> + Send>>,
    waker: Arc<TurnWaker>,
    /// The end of its sleep, if it does.
    sleep: Option<Pin<Box<Sleep>>>,
    /// Waits for the socket, if that takes no more.
    writable: Option<Pin<Box<dyn UdpPoller>>>,
    outgoing: Outgoing,
    turn: Option<SendTurn>,
    /// Bytes that the lane had read when the driver had last nothing to do, and when that was.
    rest: (u64, Instant),
}

/// The next step of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DriverStep {
    /// It has more to do at once.
    Again,
    /// It has nothing to do until it is woken.
    Rest,
    /// It has nothing to do until then.
    Sleep(Instant),
}

impl Driver {
    /// Gives the lane a turn, or what is left of it. `Some` if it comes later.
    fn open_turn(&mut self, now: Instant) -> Option<Instant> {
        let OutgoingOf::Lane(lane) = &self.outgoing.of else { return None };
        if self.turn.is_none() {
            self.turn = lane.bucket().turn(now);
        } else if let Some(turn) = &mut self.turn {
            turn.follow(now);
        }
        let (left, until) = match &self.turn {
            None => (i64::MAX, None),
            Some(turn) if turn.at() > now => (0, Some(turn.at())),
            Some(turn) => (turn.left(), None),
        };
        lane.begin_poll(left);
        until
    }

    /// Settles what was sent in a poll. Gives what comes next.
    fn settle(&mut self, now: Instant, until: Option<Instant>) -> DriverStep {
        let is_woken = self.waker.is_woken.load(Ordering::SeqCst);
        let OutgoingOf::Lane(lane) = &self.outgoing.of else {
            return if is_woken { DriverStep::Again } else { DriverStep::Rest };
        };
        let (left, is_full) = lane.end_poll();
        if let Some(turn) = &mut self.turn {
            if let Some(until) = until {
                // Acknowledgements and probes went before the turn began.
                turn.leave(turn.left() + left);
                return DriverStep::Sleep(until.min(now + LOOK_EACH));
            }
            turn.leave(left);
            if left <= 0 {
                self.turn = None;
                return DriverStep::Again;
            }
        }
        if is_woken {
            return DriverStep::Again;
        }
        // The other lanes of its path use their turns meanwhile.
        self.turn = None;
        let read = lane.read();
        let (before, since) = std::mem::replace(&mut self.rest, (read, now));
        if is_full {
            DriverStep::Sleep(now + FULL_EACH)
        } else if naps(read.saturating_sub(before), now.saturating_duration_since(since)) {
            DriverStep::Sleep(now + NAP)
        } else {
            DriverStep::Rest
        }
    }

    /// Polls quinn's driver once.
    fn poll_quinns(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.outgoing.polled = Some(Instant::now());
        let outer = OUTGOING.replace(Some(std::mem::take(&mut self.outgoing)));
        let polled = self.quinns.as_mut().poll(cx);
        self.outgoing = OUTGOING.replace(outer).unwrap_or_default();
        polled
    }

    /// Whether the socket takes no more.
    fn is_blocked(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            if let Some(writable) = &mut self.writable {
                if writable.as_mut().poll_writable(cx).is_pending() {
                    return true;
                }
                self.writable = None;
            }
            if self.outgoing.flush().is_ok() {
                return false;
            }
            self.writable = self.outgoing.socket.clone().map(AsyncUdpSocket::create_io_poller);
        }
    }

    /// Whether it still sleeps.
    fn is_asleep(&mut self, cx: &mut Context<'_>) -> bool {
        let sleeps = self.sleep.as_mut().is_some_and(|sleep| Future::poll(sleep.as_mut(), cx).is_pending());
        if !sleeps {
            self.sleep = None;
        }
        sleeps
    }
}

/// Whether a lane rests that has read so many bytes in this time.
fn naps(read: u64, elapsed: Duration) -> bool {
    read >= NAP_BYTES && read as f64 <= NAP_RATE_MAX * elapsed.as_secs_f64()
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        this.waker.hold(cx.waker());
        if this.is_asleep(cx) || this.is_blocked(cx) {
            return Poll::Pending;
        }
        let (waker, mut rests) = (Waker::from(this.waker.clone()), false);
        for _ in 0..POLLS_MAX {
            this.waker.is_woken.store(false, Ordering::SeqCst);
            let until = this.open_turn(Instant::now());
            if this.poll_quinns(&mut Context::from_waker(&waker)).is_ready() {
                // Its last words. Nobody waits for them.
                let _ = this.outgoing.flush();
                return Poll::Ready(());
            }
            match this.settle(Instant::now(), until) {
                DriverStep::Again => {}
                DriverStep::Rest => {
                    rests = true;
                    break;
                }
                DriverStep::Sleep(until) => {
                    this.sleep = Some(Box::pin(sleep_until(until.into())));
                    if this.is_asleep(cx) {
                        let _ = this.is_blocked(cx);
                        return Poll::Pending;
                    }
                }
            }
        }
        if this.is_blocked(cx) {
            return Poll::Pending;
        }
        this.waker.release();
        if !rests {
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver").field("turn", &self.turn).finish_non_exhaustive()
    }
}

/// The waker that quinn's driver gets. While that is polled, sleeps or waits for the socket, it
/// only notes that somebody called.
#[derive(Debug, Default)]
struct TurnWaker {
    task: Mutex<Option<Waker>>,
    is_held: AtomicBool,
    is_woken: AtomicBool,
}

impl TurnWaker {
    /// Notes calls for `task` from now on.
    fn hold(&self, task: &Waker) {
        self.is_held.store(true, Ordering::SeqCst);
        let mut known = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_none_or(|known| !known.will_wake(task)) {
            *known = Some(task.clone());
        }
    }

    /// Passes calls on from now on, and those that came meanwhile.
    fn release(&self) {
        self.is_held.store(false, Ordering::SeqCst);
        if self.is_woken.load(Ordering::SeqCst) {
            self.call();
        }
    }

    fn call(&self) {
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Wake for TurnWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::SeqCst);
        if !self.is_held.load(Ordering::SeqCst) {
            self.call();
        }
    }
}

/// Quinn receives for 50 microseconds at a time. What is received later than this after the poll
/// began came while the thread had no processor, and would make a round trip that is too short.
const LATE_MAX: Duration = Duration::from_micros(250);
/// Polls of quinn's driver in a row: other tasks have the thread then.
const POLLS_MAX: usize = 64;
/// A lane that waits for its turn takes what came, and sees to its timers, as often as this. It
/// acknowledges what came if it has nothing else to send: quinn adds no acknowledgement where data
/// waits for a window.
const LOOK_EACH: Duration = Duration::from_millis(10);
/// The time for which a lane rests that receives, if it read so many bytes since the last time. At
/// more than the rate, in bytes/s, much comes at a time anyway, and a window would be too small for
/// a rest.
const NAP: Duration = Duration::from_millis(4);
const NAP_BYTES: u64 = 32 << 10;
const NAP_RATE_MAX: f64 = 50e6;
/// A lane may have nothing on its way while others have all that may be: nobody wakes it when that
/// becomes less.
const FULL_EACH: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_rests_that_reads_more_than_a_little_and_not_too_fast() {
        let millis = Duration::from_millis;
        for (read, elapsed, want) in [
            (0, millis(3), false),
            (NAP_BYTES - 1, millis(3), false),
            (NAP_BYTES, millis(3), true),
            (150_000, millis(3), true),
            (150_001, millis(3), false),
            (NAP_BYTES, Duration::ZERO, false),
        ] {
            assert_eq!(naps(read, elapsed), want, "{read} in {elapsed:?}");
        }
    }

    #[test]
    fn calls_for_a_driver_that_is_held_are_passed_on_once_it_is_released() {
        let (task, driver) = (Arc::<TurnWaker>::default(), Arc::<TurnWaker>::default());
        let calls = || task.is_woken.swap(false, Ordering::SeqCst);
        driver.hold(&Waker::from(task.clone()));
        let waker = Waker::from(driver.clone());
        waker.wake_by_ref();
        assert!(!calls() && driver.is_woken.load(Ordering::SeqCst), "it is noted, and nobody is woken");
        driver.release();
        assert!(calls());
        driver.is_woken.store(false, Ordering::SeqCst);
        driver.release();
        assert!(!calls(), "nobody called");
        waker.wake();
        assert!(calls(), "nothing holds it any more");
    }
}
