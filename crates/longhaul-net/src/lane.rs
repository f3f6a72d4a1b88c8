//! Lanes: full-duplex byte streams for payload, blocking, used by one thread each.
//!
//! Owns dialling, the two protections and the two transports behind one set of calls. Takes
//! addresses and keys from `engine`; gives it bytes received straight into its buffers. Must not
//! know frames, chunks or how a lane joins a session.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::error::NetError;
use crate::handle::LaneHandle;
use crate::handshake::{Handshake, HandshakeTurn};
use crate::keys::Identity;
use crate::private::Private;
use crate::public_key::PublicKey;
use crate::quic::{self, QuicListener, QuicStream};
use crate::tls::{LANE, PeerCheck, client_config};
use crate::wire::{Congestion, LaneOptions, More, Want, Wire};

/// The protection of a lane's payload, in GridFTP's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protection {
    /// Encrypted and authenticated.
    Private,
    /// Neither encrypted nor authenticated: everyone on the way can read and change it. The layers
    /// above verify each chunk.
    Safe,
}

/// Either end of a lane. Dropping it without [`LaneStream::finish`] tells the peer that something
/// went wrong.
pub struct LaneStream(LaneKind);

/// The transport of a lane, and its protection.
enum LaneKind {
    Safe(Wire),
    Private(Wire, Box<Private>),
    Quic(Box<QuicStream>),
}

impl LaneStream {
    /// Dials a lane without encryption. The options' deadline still holds until
    /// [`LaneStream::set_deadline`] is called.
    ///
    /// # Errors
    /// [`NetError::Unreachable`], [`NetError::TimedOut`], [`NetError::Congestion`],
    /// [`NetError::Socket`]. As long as the deadline holds, each call that waits for the other end
    /// may give [`NetError::Swallowed`].
    pub fn dial_safe(addr: SocketAddr, options: &LaneOptions) -> Result<LaneStream, NetError> {
        let wire = Wire::connect(addr, options)?;
        wire.send(&[&SAFE_MAGIC], More::No)?;
        Ok(LaneStream::safe(wire))
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
        let config = client_config(identity, PeerCheck::Pinned(pinned), LANE)?;
        let mut wire = Wire::connect(addr, options)?;
        let handshake = Handshake::client(config, wire.peer())?;
        let (private, passed) = shake_hands(&wire, handshake)?;
        wire.has_passed(passed);
        Ok(LaneStream::private(wire, private))
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
        quic::dial(addr, identity, pinned, options).map(LaneStream::quic)
    }

    pub(crate) fn safe(wire: Wire) -> LaneStream {
        LaneStream(LaneKind::Safe(wire))
    }

    pub(crate) fn private(wire: Wire, private: Private) -> LaneStream {
        LaneStream(LaneKind::Private(wire, Box::new(private)))
    }

    fn quic(stream: QuicStream) -> LaneStream {
        LaneStream(LaneKind::Quic(Box::new(stream)))
    }

    /// Sends all of the parts, gathered. On a private lane each part begins a record of its own (22
    /// bytes more), so that the peer opens it in place when it asks for the same parts.
    ///
    /// # Errors
    /// [`NetError::Lost`], [`NetError::Closed`], [`NetError::TimedOut`]; the lane is then of no
    /// more use.
    pub fn send(&mut self, parts: &[&[u8]]) -> Result<(), NetError> {
        self.send_with(parts, More::No)
    }

    /// Like [`LaneStream::send`], when another send follows at once: the kernel may keep a partial
    /// segment back for it (up to 200 ms, if none comes).
    ///
    /// # Errors
    /// As [`LaneStream::send`].
    pub fn send_more(&mut self, parts: &[&[u8]]) -> Result<(), NetError> {
        self.send_with(parts, More::Follows)
    }

    fn send_with(&mut self, parts: &[&[u8]], more: More) -> Result<(), NetError> {
        match &mut self.0 {
            LaneKind::Safe(wire) => wire.send(parts, more),
            LaneKind::Private(wire, private) => private.send(wire, parts, more),
            LaneKind::Quic(quic) => quic.send(parts),
        }
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
        let filled = match &mut self.0 {
            LaneKind::Safe(wire) => wire.recv(buf, Want::All)?,
            LaneKind::Private(wire, private) => private.recv(wire, buf)?,
            LaneKind::Quic(quic) => quic.recv(buf)?,
        };
        match filled {
            n if n == buf.len() => Ok(true),
            0 => Ok(false),
            _ => Err(self.truncated()),
        }
    }

    /// Ends this side's sending in good order; receiving goes on.
    pub fn finish(&mut self) {
        match &mut self.0 {
            LaneKind::Safe(wire) => wire.end(),
            LaneKind::Private(wire, private) => private.finish(wire),
            LaneKind::Quic(quic) => quic.finish(),
        }
    }

    /// A hold on this lane for another thread.
    pub fn handle(&self) -> LaneHandle {
        match &self.0 {
            LaneKind::Safe(wire) | LaneKind::Private(wire, _) => {
                let (socket, closed, carried) = wire.observed();
                LaneHandle::socket(socket, closed, carried)
            }
            LaneKind::Quic(quic) => LaneHandle::quic(quic.handle()),
        }
    }

    /// The congestion control in use; `none` for a pair of local sockets.
    pub fn congestion(&self) -> String {
        match &self.0 {
            LaneKind::Safe(wire) | LaneKind::Private(wire, _) => wire.congestion(),
            LaneKind::Quic(quic) => quic.congestion().to_owned(),
        }
    }

    /// Chooses another congestion control; for accepted lanes, where the dialler asks for one.
    ///
    /// # Errors
    /// [`NetError::Congestion`] if the kernel refuses it, [`NetError::NoSuchControl`] over QUIC.
    pub fn set_congestion(&self, congestion: &Congestion) -> Result<(), NetError> {
        match &self.0 {
            LaneKind::Safe(wire) | LaneKind::Private(wire, _) => wire.set_congestion(congestion),
            LaneKind::Quic(quic) => quic.set_congestion(congestion),
        }
    }

    /// The other end's address; `None` for a pair within this process.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        match &self.0 {
            LaneKind::Safe(wire) | LaneKind::Private(wire, _) => wire.peer_addr(),
            LaneKind::Quic(quic) => Some(quic.peer_addr()),
        }
    }

    /// The protection of its payload.
    pub fn protection(&self) -> Protection {
        match &self.0 {
            LaneKind::Safe(_) => Protection::Safe,
            LaneKind::Private(..) | LaneKind::Quic(_) => Protection::Private,
        }
    }

    /// The largest segment that it was dialled with. `None` where the network cards decide, and at
    /// accepted lanes.
    pub fn segment_max(&self) -> Option<u32> {
        match &self.0 {
            LaneKind::Safe(wire) | LaneKind::Private(wire, _) => wire.segment_max(),
            LaneKind::Quic(_) => None,
        }
    }

    /// Bytes that fill a segment, to try the path with. 0 where no trial is needed: within a host,
    /// at accepted lanes, and where the handshake has filled segments both ways.
    pub fn trial_bytes(&self) -> u32 {
        match &self.0 {
            LaneKind::Safe(wire) | LaneKind::Private(wire, _) => wire.trial_bytes(),
            // QUIC finds out by itself.
            LaneKind::Quic(_) => 0,
        }
    }

    /// Gives all further sending and receiving together the time `left`, however slowly bytes
    /// trickle; `None` takes the limit away. Meant for handshakes: it costs system calls.
    ///
    /// # Errors
    /// [`NetError::Socket`] if the kernel refuses it.
    pub fn set_deadline(&mut self, left: Option<Duration>) -> Result<(), NetError> {
        match &mut self.0 {
            LaneKind::Safe(wire) | LaneKind::Private(wire, _) => wire.set_deadline(left),
            LaneKind::Quic(quic) => {
                quic.set_deadline(left);
                Ok(())
            }
        }
    }

    fn peer(&self) -> &str {
        match &self.0 {
            LaneKind::Safe(wire) | LaneKind::Private(wire, _) => wire.peer(),
            LaneKind::Quic(quic) => quic.peer(),
        }
    }

    fn truncated(&self) -> NetError {
        NetError::Truncated { peer: self.peer().to_owned() }
    }

    /// The socket, for tests that put bytes past the protection.
    #[cfg(test)]
    pub(crate) fn wire(&self) -> &Wire {
        match &self.0 {
            LaneKind::Safe(wire) | LaneKind::Private(wire, _) => wire,
            LaneKind::Quic(_) => panic!("a lane over QUIC has no stream of bytes below it"),
        }
    }

    /// The state of a private lane, for tests that renew keys early.
    #[cfg(test)]
    pub(crate) fn private_mut(&mut self) -> Option<&mut Private> {
        match &mut self.0 {
            LaneKind::Private(_, private) => Some(private),
            LaneKind::Safe(_) | LaneKind::Quic(_) => None,
        }
    }
}

impl QuicListener {
    /// The next lane, with the key that its dialler has proved; whether it may join is yet to be
    /// shown. `None` when the socket is of no more use.
    pub async fn accept(&mut self) -> Option<(LaneStream, PublicKey)> {
        let (stream, key) = self.next().await?;
        Some((LaneStream::quic(stream), key))
    }
}

impl fmt::Debug for LaneStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneStream").field("peer", &self.peer()).field("protection", &self.protection()).finish()
    }
}

/// Drives a handshake over a blocking socket. Also returns how many bytes both ends have sent in
/// one flight: the smaller of the two numbers.
fn shake_hands(wire: &Wire, mut handshake: Handshake) -> Result<(Private, usize), NetError> {
    let (mut say, mut heard) = (Vec::new(), vec![0; HEARD_BYTES]);
    let (mut hello, mut answer) = (0, 0);
    loop {
        let turn = handshake.advance(&mut say);
        wire.send(&[&say], More::No)?;
        hello = hello.max(say.len());
        say.clear();
        if turn.map_err(|e| NetError::tls(wire.peer(), e))? == HandshakeTurn::Done {
            let secured = handshake.finish().map_err(|e| NetError::tls(wire.peer(), e))?;
            return Ok((Private::new(secured), hello.min(answer)));
        }
        match wire.recv(&mut heard, Want::Some)? {
            0 => return Err(NetError::Truncated { peer: wire.peer().to_owned() }),
            n => {
                // All that it says is one flight.
                answer += n;
                handshake.hear(&heard[..n]);
            }
        }
    }
}

/// Bytes read at a time. A whole flight of the handshake is smaller.
const HEARD_BYTES: usize = 16 << 10;
/// The first bytes of a safe lane. The first of them begins neither a TLS record (0x16) nor any
/// text.
pub const SAFE_MAGIC: [u8; 8] = *b"\xf5lhlane1";
