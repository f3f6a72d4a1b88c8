//! Lanes: full-duplex connections for payload, blocking, used by one thread each.
//!
//! Owns the choice of transport: how a lane over each is dialled and what is known of each. Takes
//! addresses and keys from `engine`; gives it a [`LaneStream`] that is the same over all of them.
//! Must not know frames, chunks or how a lane joins a session.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use longhaul_core::Transport;

use crate::error::NetError;
use crate::facts::{Protection, TransportFacts};
use crate::handle::LaneHandle;
use crate::interface::interface_to;
use crate::keys::Identity;
use crate::public_key::PublicKey;
use crate::quic::{self, QuicListener};
use crate::tcp::{self, TcpLane};
use crate::transport::{LaneTransport, PieceRoom, ReceivedPiece, UnitPart};
use crate::udp;
use crate::wire::{Congestion, LaneOptions, More};

/// Either end of a lane. Dropping it without [`LaneStream::finish`] tells the peer that something
/// went wrong.
pub struct LaneStream(Box<dyn LaneTransport>);

impl LaneStream {
    /// A lane over this transport.
    pub fn over(transport: impl LaneTransport) -> LaneStream {
        LaneStream(Box::new(transport))
    }

    /// Dials a lane over `transport`. A safe lane takes neither key.
    ///
    /// # Errors
    /// The errors of [`LaneStream::dial_safe`], [`LaneStream::dial_private`] and
    /// [`LaneStream::dial_quic`].
    pub fn dial(
        (transport, protection): (Transport, Protection),
        addr: SocketAddr,
        identity: &Identity,
        pinned: PublicKey,
        options: &LaneOptions,
    ) -> Result<LaneStream, NetError> {
        match (transport, protection) {
            (Transport::Tcp, Protection::Safe) => LaneStream::dial_safe(addr, options),
            (Transport::Tcp, Protection::Private) => LaneStream::dial_private(addr, identity, pinned, options),
            (Transport::Quic, _) => LaneStream::dial_quic(addr, identity, pinned, options),
            (Transport::Ssh, _) => Err(NetError::Unreachable {
                peer: addr.to_string(),
                source: io::Error::new(io::ErrorKind::Unsupported, "no ssh session leads there"),
            }),
            (Transport::Udp, _) => Err(NetError::Unreachable {
                peer: addr.to_string(),
                source: io::Error::new(io::ErrorKind::Unsupported, "datagrams are no stream of bytes"),
            }),
        }
    }

    /// Dials a lane without encryption. The options' deadline still holds until
    /// [`LaneStream::set_deadline`] is called.
    ///
    /// # Errors
    /// [`NetError::Unreachable`], [`NetError::TimedOut`], [`NetError::Congestion`],
    /// [`NetError::Socket`]. As long as the deadline holds, each call that waits for the other end
    /// may give [`NetError::Swallowed`].
    pub fn dial_safe(addr: SocketAddr, options: &LaneOptions) -> Result<LaneStream, NetError> {
        TcpLane::dial_safe(addr, options).map(LaneStream::over)
    }

    /// Dials an encrypted lane to the holder of `pinned`. The options' deadline still holds until
    /// [`LaneStream::set_deadline`] is called. If the peer refuses this side's key, the first
    /// receive says so.
    ///
    /// # Errors
    /// As [`LaneStream::dial_safe`], and [`NetError::PeerKeyMismatch`], [`NetError::NotLonghaul`],
    /// [`NetError::Tls`].
    pub fn dial_private(
        addr: SocketAddr,
        identity: &Identity,
        pinned: PublicKey,
        options: &LaneOptions,
    ) -> Result<LaneStream, NetError> {
        TcpLane::dial_private(addr, identity, pinned, options).map(LaneStream::over)
    }

    /// Dials an encrypted lane to whoever is there, and returns the key that it has proved: until
    /// that was compared, nothing may be said on the lane.
    ///
    /// # Errors
    /// As [`LaneStream::dial_private`].
    pub fn dial_private_observing(
        addr: SocketAddr,
        identity: &Identity,
        options: &LaneOptions,
    ) -> Result<(LaneStream, PublicKey), NetError> {
        let (lane, key) = TcpLane::dial_private_observing(addr, identity, options)?;
        Ok((LaneStream::over(lane), key))
    }

    /// Dials a lane over QUIC, which is always encrypted, to the holder of `pinned`. The options'
    /// deadline is for this call alone. A firewall in the way drops datagrams silently: only the
    /// deadline shows it.
    ///
    /// # Errors
    /// As [`LaneStream::dial_private`]; [`NetError::NoSuchControl`].
    pub fn dial_quic(
        addr: SocketAddr,
        identity: &Identity,
        pinned: PublicKey,
        options: &LaneOptions,
    ) -> Result<LaneStream, NetError> {
        quic::dial(addr, identity, pinned, options).map(LaneStream::over)
    }

    /// Sends all of the parts, gathered. On a private lane each part begins a record of its own (22
    /// bytes more), so that the peer opens it in place when it asks for the same parts.
    ///
    /// # Errors
    /// [`NetError::Lost`], [`NetError::Closed`], [`NetError::TimedOut`]; the lane is then of no
    /// more use.
    pub fn send(&mut self, parts: &[&[u8]]) -> Result<(), NetError> {
        self.0.send(parts, More::No)
    }

    /// Sends the next part of a unit. If more follows, the kernel may keep a partial segment back
    /// for it (up to 200 ms, if nothing comes).
    ///
    /// # Errors
    /// As [`LaneStream::send`].
    pub fn send_part(&mut self, part: &UnitPart<'_>) -> Result<(), NetError> {
        self.0.send_part(part)
    }

    /// Waits for the next piece of the unit whose header was received, and writes it to its place,
    /// which may be anywhere in the unit: see [`LaneTransport::receive_piece`].
    ///
    /// # Errors
    /// As [`LaneStream::recv_exact`].
    pub fn receive_piece(&mut self, room: PieceRoom<'_>) -> Result<ReceivedPiece, NetError> {
        self.0.receive_piece(room)
    }

    /// Fills `buf`.
    ///
    /// # Errors
    /// [`NetError::Truncated`] if the stream ends before, in good order or not; [`NetError::Lost`],
    /// [`NetError::Closed`], [`NetError::TimedOut`], [`NetError::Tls`], [`NetError::KeyRefused`].
    /// The lane is then of no more use, and the content of `buf` is undefined.
    pub fn recv_exact(&mut self, buf: &mut [u8]) -> Result<(), NetError> {
        match self.recv_or_end(buf)? {
            true => Ok(()),
            false => Err(self.truncated()),
        }
    }

    /// Fills `buf`, or returns false if the peer ended the stream before its first byte. On a safe
    /// lane a peer that died may look the same as one that finished.
    ///
    /// # Errors
    /// As [`LaneStream::recv_exact`].
    pub fn recv_or_end(&mut self, buf: &mut [u8]) -> Result<bool, NetError> {
        match self.0.receive(buf)? {
            n if n == buf.len() => Ok(true),
            0 => Ok(false),
            _ => Err(self.truncated()),
        }
    }

    /// Ends this side's sending in good order; receiving goes on.
    pub fn finish(&mut self) {
        self.0.finish();
    }

    /// A hold on this lane for another thread.
    pub fn handle(&self) -> LaneHandle {
        self.0.handle()
    }

    /// The congestion control in use; `none` for a pair of local sockets.
    pub fn congestion(&self) -> String {
        self.0.congestion()
    }

    /// Chooses another congestion control; for accepted lanes, where the dialler asks for one.
    ///
    /// # Errors
    /// [`NetError::Congestion`] if the kernel refuses it, [`NetError::NoSuchControl`] over QUIC.
    pub fn set_congestion(&self, congestion: &Congestion) -> Result<(), NetError> {
        self.0.set_congestion(congestion)
    }

    /// The other end's address; `None` for a pair within this process.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.0.peer_addr()
    }

    /// The index of the network interface that it runs over. `None` for a pair within this process,
    /// and where the kernel does not say.
    pub fn interface(&self) -> Option<u32> {
        interface_to(self.peer_addr()?.ip(), self.0.local_ip())
    }

    /// The protection of its payload.
    pub fn protection(&self) -> Protection {
        self.0.protection()
    }

    /// The largest segment that it was dialled with. `None` where the network cards decide, and at
    /// accepted lanes.
    pub fn segment_max(&self) -> Option<u32> {
        self.0.segment_max()
    }

    /// Bytes that fill a segment, to try the path with. 0 where no trial is needed: within a host,
    /// at accepted lanes, where the handshake has filled segments both ways, and over QUIC, which
    /// finds out by itself.
    pub fn trial_bytes(&self) -> u32 {
        self.0.trial_bytes()
    }

    /// Asks for the buffers that a long path fills, before its peer says anything that could fill
    /// them: the next segment tells it of the room. A lane without a deadline has them anyway.
    pub fn make_room(&self) {
        self.0.make_room();
    }

    /// Gives all further sending and receiving together the time `left`, however slowly bytes
    /// trickle; `None` takes the limit away. Meant for handshakes: it costs system calls.
    ///
    /// # Errors
    /// [`NetError::Socket`] if the kernel refuses it.
    pub fn set_deadline(&mut self, left: Option<Duration>) -> Result<(), NetError> {
        self.0.set_deadline(left)
    }

    /// The lane over TCP that it is. `None` over anything else.
    pub(crate) fn into_tcp(self) -> Option<TcpLane> {
        let transport: Box<dyn std::any::Any> = self.0;
        transport.downcast().ok().map(|lane| *lane)
    }

    fn truncated(&self) -> NetError {
        NetError::Truncated { peer: self.0.peer().to_owned() }
    }

    /// The lane over TCP, for tests that reach below its protection.
    #[cfg(test)]
    pub(crate) fn tcp(&self) -> &TcpLane {
        let transport: &dyn std::any::Any = &*self.0;
        transport.downcast_ref().expect("only TCP has a stream of bytes below it")
    }

    /// The state of a private lane over TCP, for tests that renew keys early.
    #[cfg(test)]
    pub(crate) fn private_mut(&mut self) -> Option<&mut crate::private::Private> {
        let transport: &mut dyn std::any::Any = &mut *self.0;
        transport.downcast_mut::<TcpLane>()?.private_mut()
    }
}

impl TransportFacts {
    /// The facts of lanes over `transport`.
    pub const fn of(transport: Transport) -> TransportFacts {
        match transport {
            Transport::Tcp => tcp::FACTS,
            Transport::Quic => quic::FACTS,
            Transport::Ssh => tcp::TUNNEL_FACTS,
            Transport::Udp => udp::FACTS,
        }
    }
}

impl Congestion {
    /// Whether lanes over `transport` may use it here.
    ///
    /// # Errors
    /// [`NetError::Congestion`] if the kernel does not let this process use it;
    /// [`NetError::Socket`] if there is no socket to try it on; [`NetError::NoSuchControl`] if QUIC
    /// or UDP has none of this name.
    pub fn try_over(&self, transport: Transport) -> Result<(), NetError> {
        match transport {
            Transport::Tcp => self.try_out(),
            Transport::Quic => self.try_over_quic(),
            // The connection below it is not this process's.
            Transport::Ssh => Ok(()),
            Transport::Udp => self.try_over_udp(),
        }
    }

    /// Whether lanes over `transport` may use it when another host names it.
    ///
    /// # Errors
    /// As [`Congestion::try_over`].
    pub fn try_for_peer(&self, transport: Transport) -> Result<(), NetError> {
        match transport {
            Transport::Tcp => self.try_out_for_peer(),
            Transport::Quic => self.try_over_quic(),
            // The connection below it is not this process's.
            Transport::Ssh => Ok(()),
            Transport::Udp => self.try_over_udp(),
        }
    }
}

impl QuicListener {
    /// The next lane, with the key that its dialler has proved; whether it may join is yet to be
    /// shown. `None` when the socket is of no more use.
    pub async fn accept(&mut self) -> Option<(LaneStream, PublicKey)> {
        let (stream, key) = self.next().await?;
        Some((LaneStream::over(stream), key))
    }
}

impl fmt::Debug for LaneStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneStream").field("peer", &self.0.peer()).field("protection", &self.protection()).finish()
    }
}
