//! A hold on a lane for another thread, whatever the lane runs over.
//!
//! Takes sockets from `wire` and connections from `quic`, without keeping either open; gives
//! `engine` a way to end a lane, to ask for its state, and to steer how it sends. Must not know
//! what a lane carries.

use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use longhaul_sys::tcp::ConnectionState;
use socket2::Socket;

use crate::quic::QuicHandle;
use crate::wire::{congestion, within_host};

/// A hold on a lane for another thread: it ends the lane (blocked calls on it then return), tells
/// its state, and steers how it sends. Holding one does not keep the lane open.
#[derive(Clone, Debug)]
pub struct LaneHandle(HandleKind);

#[derive(Clone, Debug)]
enum HandleKind {
    Socket { socket: Weak<Socket>, closed: Arc<AtomicBool>, carried: Arc<AtomicU64> },
    Quic(QuicHandle),
}

impl LaneHandle {
    pub(crate) fn socket(socket: Weak<Socket>, closed: Arc<AtomicBool>, carried: Arc<AtomicU64>) -> LaneHandle {
        LaneHandle(HandleKind::Socket { socket, closed, carried })
    }

    pub(crate) fn quic(handle: QuicHandle) -> LaneHandle {
        LaneHandle(HandleKind::Quic(handle))
    }

    /// Closes both directions. The lane's own calls then give [`crate::NetError::Closed`]; the peer
    /// sees a truncated stream.
    pub fn close(&self) {
        match &self.0 {
            HandleKind::Socket { socket, closed, .. } => {
                closed.store(true, Ordering::Release);
                if let Some(socket) = socket.upgrade() {
                    // It fails only if the connection is gone already.
                    let _ = socket.shutdown(Shutdown::Both);
                }
            }
            HandleKind::Quic(quic) => quic.close(),
        }
    }

    /// How long ago payload came in on this lane, whether it was read or not. Over TCP the kernel
    /// knows it; over QUIC it is as of the last call. `None` for a lane that is gone or runs
    /// between two ends in this process.
    pub fn quiet(&self) -> Option<Duration> {
        match &self.0 {
            HandleKind::Socket { .. } => longhaul_sys::tcp::quiet(&*self.upgrade()?).ok(),
            HandleKind::Quic(quic) => quic.quiet(),
        }
    }

    /// The state of the lane as a sender. `None` for a lane that is gone or runs between two ends
    /// in this process. A lane over QUIC gives the same fields, as far as they have a meaning
    /// there.
    pub fn state(&self) -> Option<ConnectionState> {
        match &self.0 {
            HandleKind::Socket { .. } => longhaul_sys::tcp::state(&*self.upgrade()?).ok(),
            HandleKind::Quic(quic) => quic.state(),
        }
    }

    /// Bytes that the lane sent and had acknowledged, plus those that it received, until now or
    /// until it was gone. For a lane that ended in order it counts all sent bytes, though some were
    /// still on their way. 0 for a pair within this process.
    pub fn carried(&self) -> u64 {
        match (self.state(), &self.0) {
            (Some(state), _) => state.acked + state.received,
            (None, HandleKind::Socket { carried, .. }) => carried.load(Ordering::Acquire),
            (None, HandleKind::Quic(quic)) => quic.carried(),
        }
    }

    /// Lets the lane send at most `bytes_per_s` from now on; `None` takes the limit away. Over TCP
    /// the kernel paces (see [`longhaul_sys::tcp::set_pace`]), over QUIC the lane's own bucket; a
    /// pair within this process stays as it is.
    pub fn set_pace(&self, bytes_per_s: Option<u64>) {
        match &self.0 {
            HandleKind::Socket { .. } => {
                if let Some(socket) = self.upgrade() {
                    let _ = longhaul_sys::tcp::set_pace(&*socket, bytes_per_s);
                }
            }
            HandleKind::Quic(quic) => quic.set_pace(bytes_per_s),
        }
    }

    /// Lets `bytes` wait at this end, unread or not acknowledged, from now on. It acts on lanes
    /// over QUIC, which keep them in this process; the kernel's buffers see to TCP.
    pub fn set_window(&self, bytes: usize) {
        if let HandleKind::Quic(quic) = &self.0 {
            quic.set_window(bytes);
        }
    }

    /// Has the lane use the congestion control `name` from now on; false if there is none of this
    /// name.
    pub fn set_congestion(&self, name: &str) -> bool {
        match &self.0 {
            HandleKind::Socket { .. } => {
                self.upgrade().is_some_and(|socket| socket.set_tcp_congestion(name.as_bytes()).is_ok())
            }
            HandleKind::Quic(quic) => quic.set_congestion(name),
        }
    }

    /// The congestion control in use. `None` for a lane that is gone or has none.
    pub fn congestion(&self) -> Option<String> {
        match &self.0 {
            HandleKind::Socket { .. } => congestion(&*self.upgrade()?),
            HandleKind::Quic(quic) => quic.congestion(),
        }
    }

    /// Whether the lane runs over QUIC.
    pub fn is_quic(&self) -> bool {
        matches!(self.0, HandleKind::Quic(_))
    }

    /// Whether both ends are addresses of this host.
    pub fn is_within_host(&self) -> bool {
        let peer = |socket: &Socket| socket.peer_addr().ok().and_then(|peer| peer.as_socket());
        match &self.0 {
            HandleKind::Socket { .. } => {
                self.upgrade().is_some_and(|socket| peer(&socket).is_none_or(|peer| within_host(&socket, peer)))
            }
            HandleKind::Quic(quic) => quic.is_within_host(),
        }
    }

    /// How long the other host has acknowledged nothing, while data is on its way to it. `None`
    /// when no data is, or when the lane runs within this process. See
    /// [`longhaul_sys::tcp::unacknowledged`].
    pub fn unacknowledged(&self) -> Option<Duration> {
        match &self.0 {
            HandleKind::Socket { .. } => longhaul_sys::tcp::unacknowledged(&*self.upgrade()?).ok()?,
            HandleKind::Quic(quic) => quic.unacknowledged(),
        }
    }

    fn upgrade(&self) -> Option<Arc<Socket>> {
        match &self.0 {
            HandleKind::Socket { socket, .. } => socket.upgrade(),
            HandleKind::Quic(_) => None,
        }
    }
}
