//! One end of a UDP lane, once it has joined: what its thread sends through and receives from.
//!
//! Owns the connected socket and the keys. In: headers and payload, which are sealed into runs of
//! datagrams. Out: datagrams and the key that opens them. It waits only where the caller says how
//! long. It must not know what packets say.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use longhaul_sys::udp::{Arrived, Inbox, RUN_BYTES_MAX, RUN_DATAGRAMS_MAX, Readiness, Sent};
use rustix::net::sockopt;

use super::carrier::LaneSocket;
use super::dial::UdpDial;
use super::keys::{LaneEnd, Opener, SEAL_BYTES, Sealer, UdpSecret};
use super::port::UdpSeat;
use super::state::{UdpFigure, UdpHandle};
use crate::error::NetError;
use crate::interface::interface_to;

/// One end of a UDP lane, for one thread.
#[derive(Debug)]
pub struct UdpLane {
    /// To send.
    pub send: UdpSendHalf,
    /// To receive.
    pub receive: UdpReceiveHalf,
    /// For other threads.
    pub handle: UdpHandle,
}

impl UdpLane {
    /// The dialler's end of the lane with these keys.
    ///
    /// # Errors
    /// [`NetError::Crypto`].
    pub fn dialled(dial: UdpDial, secret: &UdpSecret, context: &[u8]) -> Result<UdpLane, NetError> {
        UdpLane::over(LaneSocket::Own(dial.socket), dial.peer, secret.keys(context, LaneEnd::Dialer)?)
    }

    /// The acceptor's end of the lane with these keys, at the socket that [`super::Knocks::seat`]
    /// gave.
    ///
    /// # Errors
    /// [`NetError::Crypto`].
    pub fn accepted(seat: UdpSeat, secret: &UdpSecret, context: &[u8]) -> Result<UdpLane, NetError> {
        UdpLane::over(seat.socket, seat.peer, secret.keys(context, LaneEnd::Acceptor)?)
    }

    fn over(socket: LaneSocket, peer: SocketAddr, (sealer, opener): (Sealer, Opener)) -> Result<UdpLane, NetError> {
        let ends = Ends { socket: Arc::new(socket), peer };
        let handle = UdpHandle::new(&ends.socket);
        // Who does not take part in marks gets losses in their place.
        let _ = ends.socket.set_class(CAPABLE);
        Ok(UdpLane {
            send: UdpSendHalf {
                ends: ends.clone(),
                handle: handle.clone(),
                sealer,
                run: vec![0; RUN_BYTES_MAX],
                filled: 0,
                datagrams: 0,
                datagram_bytes: 0,
                cuts: true,
            },
            receive: UdpReceiveHalf {
                ends,
                handle: handle.clone(),
                opener,
                inbox: Inbox::new(Inbox::RUNS),
                again: false,
            },
            handle,
        })
    }

    /// The other end's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.send.ends.peer
    }

    /// The index of the network interface that it runs over. `None` where the kernel does not say.
    pub fn interface(&self) -> Option<u32> {
        interface_to(self.peer_addr().ip(), self.local_addr().map(|local| local.ip()))
    }

    /// This end's address.
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.send.ends.socket.local_addr()
    }
}

/// The socket of a lane, and its peer.
#[derive(Clone, Debug)]
struct Ends {
    socket: Arc<LaneSocket>,
    peer: SocketAddr,
}

impl Ends {
    /// The error of a call on the socket. Of a lane that was closed meanwhile it is that, and of
    /// one whose socket another process has that it is lost.
    fn failed(&self, handle: &UdpHandle, source: std::io::Error) -> NetError {
        if handle.is_closed() {
            return NetError::Closed { peer: self.peer.to_string() };
        }
        if matches!(*self.socket, LaneSocket::Passed { .. }) {
            // The process that has the socket passes nothing on any more: other lanes go on.
            return NetError::Lost { peer: self.peer.to_string(), source };
        }
        NetError::Socket { addr: self.peer.to_string(), doing: "use the socket of a UDP lane", source }
    }

    fn check_open(&self, handle: &UdpHandle) -> Result<(), NetError> {
        if handle.is_closed() { Err(NetError::Closed { peer: self.peer.to_string() }) } else { Ok(()) }
    }

    fn wait(&self, handle: &UdpHandle, readiness: Readiness, at_most: Duration) -> Result<(), NetError> {
        self.check_open(handle)?;
        self.socket.wait(readiness, at_most).map_err(|e| self.failed(handle, e))?;
        self.check_open(handle)
    }
}

/// The half that sends: it gathers sealed datagrams of one length into a run, and sends runs.
pub struct UdpSendHalf {
    ends: Ends,
    handle: UdpHandle,
    sealer: Sealer,
    run: Vec<u8>,
    filled: usize,
    datagrams: usize,
    /// The length of each datagram of the run but the last.
    datagram_bytes: usize,
    /// Whether the kernel cuts runs into datagrams. It did until it did not.
    cuts: bool,
}

impl UdpSendHalf {
    /// The number of the packet that is sealed next, which its header must say.
    ///
    /// # Errors
    /// [`NetError::Crypto`] when there are no more.
    pub fn number(&self) -> Result<u64, NetError> {
        self.sealer.number().ok_or(NetError::Crypto { doing: "number a packet of a UDP lane" })
    }

    /// How many datagrams of this length go into the run, if they follow one another from its
    /// beginning.
    pub fn run_room(datagram_bytes: u16) -> usize {
        (RUN_BYTES_MAX / usize::from(datagram_bytes.max(1))).min(RUN_DATAGRAMS_MAX)
    }

    /// Whether a datagram of this length goes into the run: all have the length of the first, but
    /// for the last, which may be shorter.
    pub fn has_room(&self, datagram_bytes: usize) -> bool {
        self.datagrams == 0
            || datagram_bytes <= self.datagram_bytes
                && self.filled == self.datagrams * self.datagram_bytes
                && self.datagrams < RUN_DATAGRAMS_MAX
                && self.filled + datagram_bytes <= RUN_BYTES_MAX
    }

    /// Seals a packet into the run.
    ///
    /// # Errors
    /// [`NetError::Crypto`].
    ///
    /// # Panics
    /// Unless [`UdpSendHalf::has_room`] for `header`, `plain` and [`SEAL_BYTES`].
    pub fn push(&mut self, header: &[u8], plain: &[u8]) -> Result<(), NetError> {
        let len = header.len() + plain.len() + SEAL_BYTES;
        assert!(self.has_room(len), "callers ask");
        let sealed = self.sealer.seal(header, plain, &mut self.run[self.filled..])?;
        if self.datagrams == 0 {
            self.datagram_bytes = sealed;
        }
        self.filled += sealed;
        self.datagrams += 1;
        Ok(())
    }

    /// Whether there is nothing in the run.
    pub fn is_empty(&self) -> bool {
        self.datagrams == 0
    }

    /// Sends the run, and begins another. While the socket is full it waits, 0.1 ms at least. Gives
    /// [`Sent::TooLong`] if this host's way out is too narrow for its datagrams; [`Sent::Dropped`]
    /// are lost as on the way.
    ///
    /// # Errors
    /// [`NetError::Closed`], [`NetError::Socket`].
    pub fn flush(&mut self) -> Result<Sent, NetError> {
        let (filled, datagram_bytes) = (self.filled, self.datagram_bytes);
        (self.filled, self.datagrams) = (0, 0);
        let Ok(cut) = u16::try_from(datagram_bytes) else { return Ok(Sent::TooLong) };
        let (ends, handle) = (self.ends.clone(), self.handle.clone());
        let failed = |e| ends.failed(&handle, e);
        let mut begin = 0;
        while begin < filled {
            self.ends.check_open(&self.handle)?;
            let rest = &self.run[begin..filled];
            let (dealt, sent) = if self.cuts {
                (0, self.ends.socket.send_run(rest, cut).map_err(failed)?)
            } else {
                self.ends.socket.send_each(rest, cut).map_err(failed)?
            };
            begin += dealt * datagram_bytes;
            match sent {
                Sent::NotCut | Sent::TooLong if self.cuts && rest.len() > datagram_bytes => {
                    // Kernels give the same error for datagrams that are too long for the way out.
                    let first = self.ends.socket.send_run(&rest[..datagram_bytes], cut);
                    match first.map_err(failed)? {
                        Sent::TooLong => return Ok(Sent::TooLong),
                        Sent::Full => self.ends.wait(&self.handle, Readiness::Outgoing, FULL_WAIT)?,
                        _ => {
                            begin += datagram_bytes;
                            // Only that says something of cutting.
                            if sent == Sent::NotCut {
                                self.cut_no_more();
                            }
                        }
                    }
                }
                Sent::Full => self.ends.wait(&self.handle, Readiness::Outgoing, FULL_WAIT)?,
                // One by one, the next may get through.
                Sent::Dropped if !self.cuts => begin += datagram_bytes,
                sent => {
                    self.handle.said(filled as u64);
                    return Ok(sent);
                }
            }
        }
        self.handle.said(filled as u64);
        Ok(Sent::Taken)
    }

    fn cut_no_more(&mut self) {
        self.cuts = false;
        let peer = self.ends.peer;
        tracing::debug!(%peer, "datagrams leave one by one: this host does not cut them");
    }

    /// Sends a packet alone, after the run.
    ///
    /// # Errors
    /// As [`UdpSendHalf::push`] and [`UdpSendHalf::flush`].
    pub fn send_alone(&mut self, header: &[u8], plain: &[u8]) -> Result<Sent, NetError> {
        if !self.is_empty() {
            self.flush()?;
        }
        self.push(header, plain)?;
        self.flush()
    }

    /// Seals a packet and sends it alone, once, also on a lane that was closed: the last word, by
    /// which the other end need not wait to find out. What is in the run is forgotten.
    ///
    /// # Errors
    /// [`NetError::Crypto`], [`NetError::Socket`].
    pub fn send_last(&mut self, header: &[u8], plain: &[u8]) -> Result<(), NetError> {
        (self.filled, self.datagrams) = (0, 0);
        self.push(header, plain)?;
        let filled = std::mem::take(&mut self.filled);
        self.datagrams = 0;
        self.send_plain(&self.run[..filled]).map(drop)
    }

    /// Sends a datagram that is not sealed: a join, or its answer.
    ///
    /// # Errors
    /// [`NetError::Socket`].
    pub fn send_plain(&self, datagram: &[u8]) -> Result<Sent, NetError> {
        self.handle.said(datagram.len() as u64);
        self.ends.socket.send_run(datagram, u16::MAX).map_err(|e| self.ends.failed(&self.handle, e))
    }

    /// Whether the kernel still cuts runs into datagrams.
    pub fn cuts(&self) -> bool {
        self.cuts
    }
}

/// The half that receives.
pub struct UdpReceiveHalf {
    ends: Ends,
    handle: UdpHandle,
    opener: Opener,
    inbox: Inbox,
    /// Whether what came last is to be given once more.
    again: bool,
}

impl UdpReceiveHalf {
    /// Waits for datagrams, at most so long, and receives all that there are up to 16 runs. Gives
    /// the number of runs, 0 if none came. Whether they are of the other end is not known here:
    /// [`UdpHandle::heard`] is the caller's to say.
    ///
    /// # Errors
    /// [`NetError::Closed`], [`NetError::Socket`].
    pub fn receive(&mut self, at_most: Duration) -> Result<usize, NetError> {
        self.ends.check_open(&self.handle)?;
        if std::mem::take(&mut self.again) {
            return Ok(self.inbox.runs().count());
        }
        if !at_most.is_zero() {
            self.ends.wait(&self.handle, Readiness::Incoming, at_most)?;
        }
        let runs = self.ends.socket.receive(&mut self.inbox).map_err(|e| self.ends.failed(&self.handle, e))?;
        if runs > 0 {
            self.handle.set(UdpFigure::Dropped, self.inbox.dropped().into());
            self.handle.set(UdpFigure::Forged, self.opener.forged());
        }
        Ok(runs)
    }

    /// Whether the last call brought as much as one can, so that more may be there already.
    pub fn is_full(&self) -> bool {
        self.inbox.runs().count() == self.inbox.room()
    }

    /// The runs that came last, and what opens their packets.
    pub fn parts(&mut self) -> (impl Iterator<Item = Arrived<'_>>, &mut Opener) {
        (self.inbox.runs(), &mut self.opener)
    }

    /// Gives the runs that came last once more at the next call.
    pub fn give_again(&mut self) {
        self.again = true;
    }

    /// Gives the socket a receive buffer of so many bytes, or the least that the system takes. It
    /// has as much as the system gives from the beginning.
    ///
    /// # Errors
    /// [`NetError::Socket`].
    pub fn set_buffer(&self, bytes: usize) -> Result<(), NetError> {
        let set = sockopt::set_socket_recv_buffer_size(self.ends.socket.as_fd(), bytes);
        set.map_err(|e| self.ends.failed(&self.handle, e.into()))
    }

    /// Datagrams that came and that the socket had no room for. Wraps around.
    pub fn dropped(&self) -> u32 {
        self.inbox.dropped()
    }
}

impl std::fmt::Debug for UdpSendHalf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UdpSendHalf").field("ends", &self.ends).field("cuts", &self.cuts).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for UdpReceiveHalf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UdpReceiveHalf").field("ends", &self.ends).finish_non_exhaustive()
    }
}

/// ECT(0) of RFC 3168, in the traffic class.
pub(super) const CAPABLE: u8 = 2;
/// The wait for room in the socket.
const FULL_WAIT: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::handle::LaneHold;

    #[test]
    fn an_error_of_a_lane_that_was_closed_is_that_it_was_closed() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let peer = socket.local_addr().expect("bound");
        socket.connect(peer).expect("connected");
        let socket = Arc::new(LaneSocket::Own(socket));
        let (handle, ends) = (UdpHandle::new(&socket), Ends { socket: socket.clone(), peer });
        let broken = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        let is_closed = |handle: &UdpHandle| matches!(ends.failed(handle, broken()), NetError::Closed { .. });
        assert!(!is_closed(&handle), "an error of a lane that nobody closed");
        handle.close();
        assert!(is_closed(&handle));
        // The last word passes all the same.
        assert_eq!(socket.send_run(b"x", 1).expect("open for sending"), Sent::Taken);
    }

    #[test]
    fn a_lane_whose_datagrams_are_passed_on_no_more_is_lost_and_no_fault_of_this_host() {
        let (pair, other) = longhaul_sys::passing::pair().expect("a pair");
        drop(other);
        let peer = "127.0.0.1:9".parse().expect("an address");
        let socket = Arc::new(LaneSocket::passed(pair, peer, peer));
        let (handle, ends) = (UdpHandle::new(&socket), Ends { socket: socket.clone(), peer });
        let received = socket.receive(&mut Inbox::new(1)).expect_err("its end");
        let sent = socket.send_run(b"x", 1).expect_err("nobody hears");
        for error in [received, sent, std::io::ErrorKind::InvalidData.into()] {
            let kind = error.kind();
            assert!(matches!(ends.failed(&handle, error), NetError::Lost { .. }), "{kind}");
        }
    }

    #[test]
    fn a_lane_of_less_importance_says_so_and_that_it_hears_of_a_full_path() {
        let socket = Arc::new(LaneSocket::Own(UdpSocket::bind("127.0.0.1:0").expect("a port")));
        LaneHold::set_scavenger(&UdpHandle::new(&socket));
        assert_eq!(rustix::net::sockopt::ip_tos(&*socket).expect("known"), 0b0000_0110);
    }
}
