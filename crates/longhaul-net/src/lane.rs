//! Lanes: full-duplex byte streams for payload, blocking, used by one thread each.
//!
//! Owns dialling and the two protections behind one set of calls. Takes addresses and keys from `engine`; gives it bytes
//! received straight into its buffers. Must not know frames, chunks or how a lane joins a session.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::error::NetError;
use crate::handshake::{Handshake, Turn};
use crate::keys::{Identity, PublicKey};
use crate::private::Private;
use crate::tls::{LANE, PeerCheck, client_config};
use crate::wire::{Congestion, LaneHandle, LaneOptions, More, Want, Wire};

/// How a lane protects what it carries, in GridFTP's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protection {
    /// Encrypted and authenticated.
    Private,
    /// Neither: whoever is on the way can read and change it. That every chunk is verified is the business of those above.
    Safe,
}

/// Either end of a lane. Dropping it without [`LaneStream::finish`] tells the peer that something went wrong.
pub struct LaneStream {
    wire: Wire,
    private: Option<Box<Private>>,
}

impl LaneStream {
    /// Dials a lane without encryption. The options' deadline still holds until [`LaneStream::set_deadline`] is called.
    ///
    /// # Errors
    /// [`NetError::Unreachable`], [`NetError::TimedOut`], [`NetError::Congestion`], [`NetError::Socket`]. As long as the deadline
    /// holds, whatever waits for the other end may give [`NetError::Swallowed`].
    pub fn dial_safe(addr: SocketAddr, options: &LaneOptions) -> Result<LaneStream, NetError> {
        let wire = Wire::connect(addr, options)?;
        wire.send(&[&SAFE_MAGIC], More::No)?;
        Ok(LaneStream::safe(wire))
    }

    /// Dials an encrypted lane to the holder of `pinned`. The options' deadline still holds until
    /// [`LaneStream::set_deadline`] is called. If the peer refuses this side's key, the first receive says so.
    ///
    /// # Errors
    /// As [`LaneStream::dial_safe`], and [`NetError::PeerKeyMismatch`], [`NetError::NotLonghaul`], [`NetError::Tls`].
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

    pub(crate) fn safe(wire: Wire) -> LaneStream {
        LaneStream { wire, private: None }
    }

    pub(crate) fn private(wire: Wire, private: Private) -> LaneStream {
        LaneStream { wire, private: Some(Box::new(private)) }
    }

    /// Sends all of the parts, gathered. On a private lane each part begins a record of its own (22 bytes more), so that the
    /// peer opens it in place when it asks for the same parts.
    ///
    /// # Errors
    /// [`NetError::Lost`], [`NetError::Closed`], [`NetError::TimedOut`]; the lane is then of no more use.
    pub fn send(&mut self, parts: &[&[u8]]) -> Result<(), NetError> {
        self.send_with(parts, More::No)
    }

    /// As [`LaneStream::send`], when another send follows at once: the kernel may keep a partial segment back for it
    /// (up to 200 ms, if none comes).
    ///
    /// # Errors
    /// As [`LaneStream::send`].
    pub fn send_more(&mut self, parts: &[&[u8]]) -> Result<(), NetError> {
        self.send_with(parts, More::Follows)
    }

    fn send_with(&mut self, parts: &[&[u8]], more: More) -> Result<(), NetError> {
        match &mut self.private {
            Some(private) => private.send(&self.wire, parts, more),
            None => self.wire.send(parts, more),
        }
    }

    /// Fills `buf`.
    ///
    /// # Errors
    /// [`NetError::Truncated`] if the stream ends before, in good order or not; [`NetError::Lost`], [`NetError::Closed`],
    /// [`NetError::TimedOut`], [`NetError::Tls`], [`NetError::KeyRefused`]. The lane is then of no more use, and what
    /// stands in `buf` means nothing.
    pub fn recv_exact(&mut self, buf: &mut [u8]) -> Result<(), NetError> {
        match self.recv_or_end(buf)? {
            true => Ok(()),
            false => Err(self.truncated()),
        }
    }

    /// Fills `buf`, or returns false if the peer ended the stream before its first byte. On a safe lane a peer that died
    /// may look the same as one that finished.
    ///
    /// # Errors
    /// As [`LaneStream::recv_exact`].
    pub fn recv_or_end(&mut self, buf: &mut [u8]) -> Result<bool, NetError> {
        let filled = match &mut self.private {
            Some(private) => private.recv(&self.wire, buf)?,
            None => self.wire.recv(buf, Want::All)?,
        };
        match filled {
            n if n == buf.len() => Ok(true),
            0 => Ok(false),
            _ => Err(self.truncated()),
        }
    }

    /// Ends this side's sending in good order; receiving goes on.
    pub fn finish(&mut self) {
        match &mut self.private {
            Some(private) => private.finish(&self.wire),
            None => self.wire.end(),
        }
    }

    /// A handle that ends this lane from another thread.
    pub fn handle(&self) -> LaneHandle {
        self.wire.handle()
    }

    /// The congestion control that the kernel reports; `none` for a pair of local sockets.
    pub fn congestion(&self) -> String {
        self.wire.congestion()
    }

    /// Chooses another; for accepted lanes, where the dialler asks for one.
    ///
    /// # Errors
    /// [`NetError::Congestion`] if the kernel refuses it.
    pub fn set_congestion(&self, congestion: &Congestion) -> Result<(), NetError> {
        self.wire.set_congestion(congestion)
    }

    /// The other end's address; `None` for a pair within this process.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.wire.peer_addr()
    }

    /// How it protects what it carries.
    pub fn protection(&self) -> Protection {
        if self.private.is_some() { Protection::Private } else { Protection::Safe }
    }

    /// The largest segment that it was dialled with; none where the network cards decide, and at accepted lanes.
    pub fn segment_max(&self) -> Option<u32> {
        self.wire.segment_max()
    }

    /// Bytes that fill a segment, to try the path with; zero where there is none to try: within a host, at accepted lanes, and where
    /// the handshake has filled segments both ways.
    pub fn trial_bytes(&self) -> u32 {
        self.wire.trial_bytes()
    }

    /// From now on, all sending and receiving together must be over within `left`, however slowly bytes trickle; `None` takes
    /// the limit away. Meant for handshakes: it costs system calls.
    ///
    /// # Errors
    /// [`NetError::Socket`] if the kernel refuses it.
    pub fn set_deadline(&mut self, left: Option<Duration>) -> Result<(), NetError> {
        self.wire.set_deadline(left)
    }

    fn truncated(&self) -> NetError {
        NetError::Truncated { peer: self.wire.peer().to_owned() }
    }

    /// For tests that put bytes past the protection.
    #[cfg(test)]
    pub(crate) fn wire(&self) -> &Wire {
        &self.wire
    }

    /// For tests that renew keys early.
    #[cfg(test)]
    pub(crate) fn private_mut(&mut self) -> Option<&mut Private> {
        self.private.as_deref_mut()
    }
}

impl fmt::Debug for LaneStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneStream").field("wire", &self.wire).field("protection", &self.protection()).finish()
    }
}

/// Drives a handshake over a blocking socket. Gives the bytes that each end has sent at once, too: the smaller number.
fn shake_hands(wire: &Wire, mut handshake: Handshake) -> Result<(Private, usize), NetError> {
    let (mut say, mut heard) = (Vec::new(), vec![0; HEARD_BYTES]);
    let (mut hello, mut answer) = (0, 0);
    loop {
        let turn = handshake.advance(&mut say);
        wire.send(&[&say], More::No)?;
        hello = hello.max(say.len());
        say.clear();
        if turn.map_err(|e| NetError::tls(wire.peer(), e))? == Turn::Done {
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

/// A whole flight of the handshake is smaller.
const HEARD_BYTES: usize = 16 << 10;
/// The first bytes of a safe lane. The first of them begins neither a TLS record (0x16) nor any text.
pub const SAFE_MAGIC: [u8; 8] = *b"\xf5lhlane1";
