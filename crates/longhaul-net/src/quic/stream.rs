//! The byte stream of a QUIC lane: blocks out, blocks in, in order, blocking.
//!
//! Owns the connection of a lane at one end, and the windows that its memory allows. Takes a
//! connection that stands from `dial` or `listen`; gives `lane` a transport like every other. Must
//! not know frames.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::Transport;
use quinn::{Connection, ConnectionError, ReadError, RecvStream, SendStream, VarInt, WriteError};
use tokio::sync::oneshot;

use super::config::{FIRST_WINDOW_BYTES, STRANGERS_WINDOW_BYTES, blocks, varint};
use super::figures::{Algorithm, Figures};
use super::handle::QuicHold;
use super::wait::wait;
use super::{BLOCK_BYTES, DONE, GIVEN_UP};
use crate::error::NetError;
use crate::facts::Protection;
use crate::handle::LaneHandle;
use crate::transport::LaneTransport;
use crate::wire::{Congestion, More, canonical};

/// One end of a lane over QUIC.
pub(crate) struct QuicStream {
    shared: Arc<Shared>,
    /// The block being sent, and the bytes that it still takes.
    sending: Option<(SendStream, usize)>,
    /// The block being received, and whether any of its bytes were.
    receiving: Option<(RecvStream, bool)>,
    /// Whether this side, or the other, has ended in good order.
    finished: bool,
    heard_end: bool,
    deadline: Option<Instant>,
    window: Window,
    /// Dropped when the lane is: the driver then sees the connection to its end.
    _lives: oneshot::Sender<()>,
}

/// The state that a lane and its handles share.
pub(crate) struct Shared {
    pub(crate) connection: Connection,
    pub(crate) figures: Arc<Figures>,
    pub(crate) local: Option<IpAddr>,
    peer: String,
    closed: AtomicBool,
    /// The bytes carried, which a handle tells when the connection is gone.
    pub(crate) carried: Arc<AtomicU64>,
    /// The most bytes that may wait here, unread or not acknowledged.
    window_max: AtomicU64,
}

/// The bytes that the other end may send before they are read here, and the bytes that this end may
/// hold before they are acknowledged there.
struct Window {
    receive: usize,
    send: u64,
    block_began: Instant,
}

impl Shared {
    pub(crate) fn new(connection: Connection, figures: Arc<Figures>, local: Option<IpAddr>) -> Arc<Shared> {
        let addr = connection.remote_address();
        Arc::new(Shared {
            connection,
            figures,
            local,
            peer: canonical(addr).to_string(),
            closed: AtomicBool::new(false),
            carried: Arc::default(),
            window_max: AtomicU64::new(FIRST_WINDOW_BYTES as u64),
        })
    }

    /// Ends the lane from any thread.
    pub(crate) fn give_up(&self) {
        self.closed.store(true, Ordering::Release);
        self.figures.leave_path();
        self.connection.close(VarInt::from_u32(GIVEN_UP), b"given up");
    }

    /// Lets `bytes` wait here: see [`crate::LaneHold::set_window`].
    pub(crate) fn set_window(&self, bytes: usize) {
        self.window_max.store(bytes.max(BLOCK_BYTES) as u64, Ordering::Relaxed);
    }

    fn window_max(&self) -> usize {
        self.window_max.load(Ordering::Relaxed) as usize
    }

    fn broken(&self, error: ConnectionError) -> NetError {
        if self.closed.load(Ordering::Acquire) || error == ConnectionError::LocallyClosed {
            return NetError::Closed { peer: self.peer.clone() };
        }
        NetError::quic(&self.peer, error)
    }

    fn not_written(&self, error: WriteError) -> NetError {
        match error {
            WriteError::ConnectionLost(error) => self.broken(error),
            // No code of ours stops a stream: it is as good as gone.
            _ => NetError::Truncated { peer: self.peer.clone() },
        }
    }

    fn not_read(&self, error: ReadError) -> NetError {
        match error {
            ReadError::ConnectionLost(error) => self.broken(error),
            _ => NetError::Truncated { peer: self.peer.clone() },
        }
    }

    fn timed_out(&self) -> NetError {
        NetError::TimedOut { peer: self.peer.clone(), doing: "opening a lane" }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.figures.leave_path();
        let received = self.connection.stats().udp_rx.bytes;
        self.carried.store(self.figures.acked.load(Ordering::Relaxed) + received, Ordering::Release);
    }
}

impl QuicStream {
    pub(crate) fn new(shared: Arc<Shared>, lives: oneshot::Sender<()>) -> QuicStream {
        QuicStream {
            shared,
            sending: None,
            receiving: None,
            finished: false,
            heard_end: false,
            deadline: None,
            window: Window {
                receive: STRANGERS_WINDOW_BYTES,
                send: FIRST_WINDOW_BYTES as u64,
                block_began: Instant::now(),
            },
            _lives: lives,
        }
    }

    fn write(&mut self, mut part: &[u8]) -> Result<(), NetError> {
        while !part.is_empty() {
            let (stream, left) = match &mut self.sending {
                Some(block) => block,
                None => {
                    let stream = self.open_block()?;
                    self.sending.insert((stream, BLOCK_BYTES))
                }
            };
            let (now, rest) = part.split_at(part.len().min(*left));
            let written = wait(stream.write_all(now), self.deadline).ok_or_else(|| self.shared.timed_out())?;
            written.map_err(|e| self.shared.not_written(e))?;
            part = rest;
            if let Some((mut stream, left)) = self.sending.take() {
                match left - now.len() {
                    // It fails only if the connection is gone, which the next block finds out.
                    0 => drop(stream.finish()),
                    left => self.sending = Some((stream, left)),
                }
            }
        }
        Ok(())
    }

    /// Waits until the other end admits another block.
    fn open_block(&mut self) -> Result<SendStream, NetError> {
        let shared = &self.shared;
        // A little more waits than may be on its way, so that the driver never waits; all of it is
        // this side's memory.
        let wanted = (shared.figures.window.load(Ordering::Relaxed) + AHEAD_BYTES).min(shared.window_max() as u64);
        if wanted != self.window.send {
            self.window.send = wanted;
            shared.connection.set_send_window(wanted);
        }
        let opened = wait(shared.connection.open_uni(), self.deadline).ok_or_else(|| self.shared.timed_out())?;
        opened.map_err(|e| shared.broken(e))
    }

    /// The next block. `None` if the other end has closed in good order.
    fn next_block(&mut self) -> Result<Option<RecvStream>, NetError> {
        let accepted =
            wait(self.shared.connection.accept_uni(), self.deadline).ok_or_else(|| self.shared.timed_out())?;
        match accepted {
            Ok(stream) => Ok(Some(stream)),
            Err(ConnectionError::ApplicationClosed(close)) if close.error_code == VarInt::from_u32(DONE) => Ok(None),
            Err(error) => Err(self.shared.broken(error)),
        }
    }

    /// Admits as much as the path holds at the pace of the last block, twice: a block that waits
    /// for a repair must not stop those behind it.
    fn widen(&mut self) {
        let now = Instant::now();
        let took = now.saturating_duration_since(std::mem::replace(&mut self.window.block_began, now));
        let held = BLOCK_BYTES as f64 * self.shared.connection.rtt().as_secs_f64() / took.as_secs_f64().max(1e-6);
        // The window shrinks only where others came to share the memory; quinn takes it off the
        // next reads.
        if self.window.receive > self.shared.window_max() {
            self.window.receive = self.shared.window_max();
            self.shared.connection.set_receive_window(varint(self.window.receive));
        }
        self.admit((2.0 * held) as usize + FIRST_WINDOW_BYTES);
    }

    /// Lets the other end have this many unread bytes on their way, as far as there is memory;
    /// never fewer than before.
    fn admit(&mut self, bytes: usize) {
        let wanted = bytes.min(self.shared.window_max());
        if wanted > self.window.receive && self.deadline.is_none() {
            self.window.receive = wanted;
            self.shared.connection.set_receive_window(varint(wanted));
            self.shared.connection.set_max_concurrent_uni_streams(blocks(wanted));
        }
    }
}

impl LaneTransport for QuicStream {
    fn send(&mut self, parts: &[&[u8]], _more: More) -> Result<(), NetError> {
        parts.iter().try_for_each(|part| self.write(part))
    }

    fn receive(&mut self, into: &mut [u8]) -> Result<usize, NetError> {
        let mut filled = 0;
        while filled < into.len() && !self.heard_end {
            let Some((stream, began)) = &mut self.receiving else {
                match self.next_block()? {
                    Some(stream) => self.receiving = Some((stream, false)),
                    None => self.heard_end = true,
                }
                continue;
            };
            let read = wait(stream.read(&mut into[filled..]), self.deadline).ok_or_else(|| self.shared.timed_out())?;
            match read.map_err(|e| self.shared.not_read(e))? {
                Some(n) => {
                    *began = true;
                    filled += n;
                    self.shared.figures.note_read(n);
                }
                // A block without a byte is the end.
                None => {
                    self.heard_end = !*began;
                    self.receiving = None;
                    self.widen();
                }
            }
        }
        Ok(filled)
    }

    fn finish(&mut self) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        if let Some((mut stream, _)) = self.sending.take() {
            let _ = stream.finish();
        }
        // If the connection is gone, the peer cannot be told.
        if let Ok(mut end) = self.open_block() {
            let _ = end.finish();
        }
    }

    fn handle(&self) -> LaneHandle {
        LaneHandle::new(QuicHold::new(&self.shared))
    }

    fn peer(&self) -> &str {
        &self.shared.peer
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        Some(self.shared.connection.remote_address())
    }

    fn local_ip(&self) -> Option<IpAddr> {
        self.shared.connection.local_ip()
    }

    fn protection(&self) -> Protection {
        Protection::Private
    }

    fn congestion(&self) -> String {
        self.shared.figures.wanted().name().to_owned()
    }

    fn set_congestion(&self, congestion: &Congestion) -> Result<(), NetError> {
        self.shared.figures.want(algorithm(congestion)?);
        Ok(())
    }

    /// Sets the deadline. A lane whose deadline is taken away has joined, and its window opens.
    fn set_deadline(&mut self, left: Option<Duration>) -> Result<(), NetError> {
        self.deadline = left.map(|left| Instant::now() + left);
        if left.is_none() {
            self.window.block_began = Instant::now();
            self.admit(FIRST_WINDOW_BYTES);
        }
        Ok(())
    }
}

impl Drop for QuicStream {
    fn drop(&mut self) {
        if !self.finished {
            self.shared.connection.close(VarInt::from_u32(GIVEN_UP), b"given up");
        }
    }
}

impl fmt::Debug for QuicStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuicStream").field("peer", &self.shared.peer).finish_non_exhaustive()
    }
}

/// The control that a name stands for.
pub(crate) fn algorithm(congestion: &Congestion) -> Result<Algorithm, NetError> {
    match congestion {
        Congestion::Auto => Ok(Algorithm::default()),
        Congestion::Named(name) => Algorithm::named(name).ok_or_else(|| NetError::NoSuchControl {
            asked: name.clone(),
            over: Transport::Quic,
            offered: "they have: rate bbr cubic",
        }),
    }
}

/// Keeps a connection until its end: when the lane is dropped in good order, the other end may
/// still read.
pub(crate) async fn outlive(connection: Connection, lane: oneshot::Receiver<()>) {
    tokio::select! {
        _ = connection.closed() => return,
        _ = lane => {}
    }
    let _ = tokio::time::timeout(LINGER_MAX, connection.closed()).await;
    connection.close(VarInt::from_u32(DONE), b"done");
}

/// Bytes that wait for the driver besides those that may be on their way.
const AHEAD_BYTES: u64 = 2 << 20;
/// The time that a live peer has to read to the end before its connection is closed.
const LINGER_MAX: Duration = Duration::from_secs(60);
