//! Lanes that go from the process that accepted them to another one of this host.
//!
//! Owns the form of a lane on its way: a descriptor, and [`LaneParts`]. In: lanes that were
//! greeted, with the `secrets` of their handshakes. Out: the parts, and on the other side the same
//! lane. Must not know who the other process is.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use serde::{Deserialize, Serialize};
use socket2::Socket;

use crate::error::NetError;
use crate::lane::LaneStream;
use crate::private::{Private, PrivateParts};
use crate::tcp::TcpLane;
use crate::wire::{Congestion, Wire};

/// A lane over TCP without its socket.
#[derive(Serialize, Deserialize)]
pub struct LaneParts {
    peer: SocketAddr,
    private: Option<PrivateParts>,
}

impl LaneStream {
    /// Takes a lane apart that was accepted and of which nothing was sent or received since.
    /// `None`, and the lane is closed, if it is not over TCP, or was greeted by a server that does
    /// not hand lanes over.
    #[must_use]
    pub fn take_apart(self) -> Option<(OwnedFd, LaneParts)> {
        let lane = self.into_tcp()?;
        let (wire, private) = lane.into_parts()?;
        let peer = wire.peer_addr()?;
        let private = match private {
            Some(private) => Some(private.into_parts()?),
            None => None,
        };
        let socket = wire.observed().0.upgrade()?.try_clone().ok()?;
        Some((OwnedFd::from(socket), LaneParts { peer, private }))
    }

    /// Puts a lane together that another process of this host has taken apart.
    ///
    /// # Errors
    /// [`NetError::Socket`] if the descriptor is no connected socket, [`NetError::Crypto`] if the
    /// parts are not those of a lane.
    pub fn put_together(socket: OwnedFd, parts: LaneParts) -> Result<LaneStream, NetError> {
        let wire = Wire::tcp(Socket::from(socket), parts.peer, &Congestion::Auto)?;
        let lane = match parts.private {
            None => TcpLane::safe(wire),
            Some(private) => {
                let private = Private::from_parts(private).ok_or(NetError::Crypto { doing: "take a lane over" })?;
                TcpLane::private(wire, private)
            }
        };
        Ok(LaneStream::over(lane))
    }
}

impl fmt::Debug for LaneParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneParts").field("peer", &self.peer).finish_non_exhaustive()
    }
}
