//! Messages between processes of this host, and descriptors that go with them.
//!
//! Owns pairs of sockets that keep the bounds of messages. In: bytes, and at most one descriptor
//! with them. Out: the same at the other end. It knows no content.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Whether descriptors are taken that come with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passing {
    /// One with each message, if it has one.
    Taken,
    /// None: a message with one is an error.
    Refused,
}

/// Two connected ends. Both are closed in programs that this process starts.
///
/// # Errors
/// The system's error.
pub fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one message, which is not empty.
///
/// # Errors
/// The system's error.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = SendAncillaryBuffer::new(&mut room);
    let passed = descriptor.map(|descriptor| [descriptor]);
    if let Some(passed) = &passed
        && !with.push(SendAncillaryMessage::ScmRights(passed))
    {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let sent = loop {
        match sendmsg(&socket, &[IoSlice::new(bytes)], &mut with, SendFlags::NOSIGNAL) {
            Err(rustix::io::Errno::INTR) => {}
            sent => break sent?,
        }
    };
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives one message: its length in `room`, and the descriptor that came with it. `None` when
/// the other end is closed.
///
/// # Errors
/// The system's error; `InvalidData` for a message that is longer than `room`, or that has a
/// descriptor too many.
pub fn receive(socket: impl AsFd, room: &mut [u8], passing: Passing) -> io::Result<Option<(usize, Option<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut with = match passing {
        Passing::Taken => RecvAncillaryBuffer::new(&mut space),
        Passing::Refused => RecvAncillaryBuffer::default(),
    };
    let received = loop {
        match recvmsg(&socket, &mut [IoSliceMut::new(room)], &mut with, RecvFlags::CMSG_CLOEXEC) {
            Err(rustix::io::Errno::INTR) => {}
            received => break received?,
        }
    };
    let mut taken = None;
    for message in with.drain() {
        if let RecvAncillaryMessage::ScmRights(passed) = message {
            // Those beyond the first are closed here.
            taken = passed.fold(taken, |first, one| first.or(Some(one)));
        }
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a message that is longer than any may be"));
    }
    Ok((received.bytes > 0).then_some((received.bytes, taken)))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_message_keeps_its_bounds_and_brings_its_descriptor() {
        let (here, there) = pair().expect("a pair");
        let (mut kept, passed) = UnixStream::pair().expect("a pair");
        send(&here, b"first", Some(passed.as_fd())).expect("sent");
        send(&here, b"second", None).expect("sent");
        drop(passed);
        let mut room = [0; 16];
        let (len, descriptor) = receive(&there, &mut room, Passing::Taken).expect("received").expect("a message");
        assert_eq!(&room[..len], b"first");
        UnixStream::from(descriptor.expect("one came")).write_all(b"through").expect("written");
        let mut said = String::new();
        kept.read_to_string(&mut said).expect("read");
        assert_eq!(said, "through");
        let (len, descriptor) = receive(&there, &mut room, Passing::Taken).expect("received").expect("a message");
        assert!(&room[..len] == b"second" && descriptor.is_none());
        drop(here);
        assert!(receive(&there, &mut room, Passing::Taken).expect("received").is_none());
    }

    #[test]
    fn a_message_that_is_too_long_or_has_an_unwanted_descriptor_is_refused() {
        let (here, there) = pair().expect("a pair");
        send(&here, &[7; 17], None).expect("sent");
        send(&here, b"x", Some(here.as_fd())).expect("sent");
        for _ in 0..2 {
            let refused = receive(&there, &mut [0; 16], Passing::Refused).expect_err("too much");
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        }
    }
}
