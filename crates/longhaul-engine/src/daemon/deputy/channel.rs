//! Owns the socket between the daemon and a deputy: messages in order, each with its bounds and at
//! most one descriptor.
//!
//! In: messages to say. Out: messages that were heard. A message that is longer than any may be
//! ends the channel. It knows no content.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use longhaul_sys::passing::{self, Passing};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixDatagram;

/// One end. Clones are of the same one. (The runtime has no type for this kind of socket, which
/// keeps the bounds of messages and knows its end; it waits for it as for any other.)
#[derive(Clone, Debug)]
pub(super) struct Channel(Arc<UnixDatagram>);

impl Channel {
    /// This end of a pair of sockets.
    pub(super) fn over(socket: OwnedFd) -> io::Result<Channel> {
        let socket = std::os::unix::net::UnixDatagram::from(socket);
        socket.set_nonblocking(true)?;
        Ok(Channel(Arc::new(UnixDatagram::from_std(socket)?)))
    }

    /// Ends it for both sides.
    pub(super) fn close(&self) {
        // It fails only if the other side has gone already.
        let _ = rustix::net::shutdown(&*self.0, rustix::net::Shutdown::Both);
    }

    /// Says a message, with a descriptor if there is one.
    pub(super) async fn say(&self, message: &impl Serialize, descriptor: Option<OwnedFd>) -> io::Result<()> {
        let bytes = encode(message)?;
        let say = || passing::send(&*self.0, &bytes, descriptor.as_ref().map(AsFd::as_fd));
        self.0.async_io(Interest::WRITABLE, say).await
    }

    /// Hears the next message. `None` when the other end is closed.
    pub(super) async fn hear<T: DeserializeOwned>(&self, passing: Passing) -> io::Result<Option<(T, Option<OwnedFd>)>> {
        let mut room = vec![0; SAID_BYTES_MAX];
        let hear = || passing::receive(&*self.0, &mut room, passing);
        let Some((len, descriptor)) = self.0.async_io(Interest::READABLE, hear).await? else { return Ok(None) };
        let message = postcard::from_bytes(&room[..len]);
        Ok(Some((message.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?, descriptor)))
    }
}

/// The bytes of a message.
pub(super) fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let bytes = postcard::to_allocvec(message).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    match bytes.len() <= SAID_BYTES_MAX {
        true => Ok(bytes),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "a message that is longer than any may be")),
    }
}

/// Bytes of a message at most: the configuration of a client with some hundred roots.
pub(super) const SAID_BYTES_MAX: usize = 64 << 10;
