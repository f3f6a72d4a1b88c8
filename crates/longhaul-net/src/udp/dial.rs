//! The dialler's end of a UDP lane before it is one: a connected socket, and a question that is
//! repeated until it is answered.
//!
//! In: an address, a datagram. Out: whatever the caller takes for the answer. It must not know what
//! either says.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_sys::udp::{self, Inbox, Readiness};

use super::socket::{connected_payload, dialling};
use crate::error::{NetError, Over};
use crate::wire::bind_error;

/// A socket that is connected to a port where lanes may be had.
#[derive(Debug)]
pub struct UdpDial {
    /// The socket, which is connected.
    pub(crate) socket: UdpSocket,
    /// The port.
    pub(crate) peer: SocketAddr,
}

/// How long to ask.
#[derive(Clone, Debug)]
pub struct Asking {
    /// The time between two datagrams.
    pub every: Duration,
    /// The time after which nobody answers.
    pub at_most: Duration,
    /// Ends it earlier, or has it said at once. `None` if nobody does.
    pub handle: Option<AskingHandle>,
}

/// A hold on a question for other threads. Clones hold the same one. What they order is done within
/// a tenth of a second.
#[derive(Clone, Debug, Default)]
pub struct AskingHandle(Arc<AskingOrders>);

#[derive(Debug, Default)]
struct AskingOrders {
    is_ended: AtomicBool,
    is_urged: AtomicBool,
}

impl AskingHandle {
    /// Ends it.
    pub fn end(&self) {
        self.0.is_ended.store(true, Ordering::Relaxed);
    }

    /// Has it said once more, before that is due.
    pub fn urge(&self) {
        self.0.is_urged.store(true, Ordering::Relaxed);
    }

    /// Whether it was ended.
    pub fn is_ended(&self) -> bool {
        self.0.is_ended.load(Ordering::Relaxed)
    }
}

impl Asking {
    /// As udp lanes ask: each 3 round trips, 0.3 s at least, for 4 s, after which UDP is taken for
    /// blocked.
    pub fn over(round_trip: Duration) -> Asking {
        Asking { every: (3 * round_trip).clamp(EVERY_MIN, AT_MOST / 2), at_most: AT_MOST, handle: None }
    }

    /// The same for a lane that is dialled before its session is agreed on: until it is ended. Only
    /// whoever waits for the session knows how long its other end may take to answer, and a lane
    /// whose question is given up sooner may be given away to a socket that is closed.
    pub fn early(round_trip: Duration, handle: AskingHandle) -> Asking {
        Asking { at_most: Duration::MAX, handle: Some(handle), ..Asking::over(round_trip) }
    }

    fn is_ended(&self) -> bool {
        self.handle.as_ref().is_some_and(AskingHandle::is_ended)
    }

    /// Whether somebody urges it, which is done once.
    fn take_urge(&self) -> bool {
        self.handle.as_ref().is_some_and(|handle| handle.0.is_urged.swap(false, Ordering::Relaxed))
    }
}

impl UdpDial {
    /// A socket to `peer` from `local`, or from where the route leads.
    ///
    /// # Errors
    /// [`NetError::LocalAddress`], [`NetError::Unreachable`], [`NetError::Socket`].
    pub fn new(peer: SocketAddr, local: Option<IpAddr>) -> Result<UdpDial, NetError> {
        let failed = |doing| move |source| NetError::Socket { addr: peer.to_string(), doing, source };
        let socket = dialling(peer, local).map_err(|source| match local {
            Some(local) => bind_error(local, source),
            None => failed("make a UDP socket")(source),
        })?;
        socket.connect(peer).map_err(|source| NetError::Unreachable { peer: peer.to_string(), source })?;
        udp::prepare(&socket).map_err(failed("set a UDP socket up"))?;
        Ok(UdpDial { socket, peer })
    }

    /// The largest UDP payload that the route takes at this host, bytes.
    pub fn route_bytes(&self) -> u16 {
        connected_payload(&self.socket, self.peer)
    }

    /// Sends `question` again and again until `answer` gives something of a datagram that came.
    ///
    /// # Errors
    /// [`NetError::NoAnswer`]; [`NetError::Closed`] if it was ended; [`NetError::Socket`].
    pub fn ask<T>(
        &self,
        question: &[u8],
        asking: &Asking,
        mut answer: impl FnMut(&[u8]) -> Option<T>,
    ) -> Result<T, NetError> {
        let failed = |source| NetError::Socket { addr: self.peer.to_string(), doing: "use a UDP socket", source };
        let (begun, mut inbox, mut asked) = (Instant::now(), Inbox::new(1), 0);
        loop {
            // Looked at before the socket: an answer that came by then counts.
            let (is_ended, spent) = (asking.is_ended(), begun.elapsed());
            inbox.receive(&self.socket).map_err(failed)?;
            if let Some(answer) = inbox.runs().flat_map(|run| run.datagrams()).find_map(&mut answer) {
                return Ok(answer);
            }
            if is_ended {
                return Err(NetError::Closed { peer: self.peer.to_string() });
            }
            if spent >= asking.at_most {
                let (peer, seconds) = (self.peer.to_string(), asking.at_most.as_secs());
                return Err(NetError::NoAnswer { peer, seconds, over: Over::Udp });
            }
            let due = asking.every.saturating_mul(asked);
            if asking.take_urge() {
                udp::send_run(&self.socket, question, u16::MAX).map_err(failed)?;
            }
            if spent >= due {
                // A datagram that this host drops is asked again like one that the network drops.
                udp::send_run(&self.socket, question, u16::MAX).map_err(failed)?;
                asked += 1;
                continue;
            }
            let patience = due.min(asking.at_most).saturating_sub(spent);
            let patience = if asking.handle.is_some() { patience.min(ORDERS_LOOK) } else { patience };
            // One look at the socket each time, and at the clock before it: whoever floods the
            // socket gains no more time than others.
            udp::wait(&self.socket, Readiness::Incoming, patience).map_err(failed)?;
        }
    }
}

/// The time between two looks at what the handle of a question orders.
const ORDERS_LOOK: Duration = Duration::from_millis(100);
const EVERY_MIN: Duration = Duration::from_millis(300);
const AT_MOST: Duration = Duration::from_secs(4);
