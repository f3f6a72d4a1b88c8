//! Runs of datagrams between two processes of this host: one has the UDP socket, the other has what
//! is in them.
//!
//! Owns the form of a message of a pair of sockets that keeps the bounds of messages
//! ([`crate::passing::pair`]): a head of [`HEAD_BYTES`], then the bytes of a run. In: runs that
//! came or are to be sent, with what is known of them. Out: the same at the other end. It must not
//! know what a datagram means. A message that is no such run is one of the other process, and ends
//! the pair.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg};

use super::{Mark, RUN_BYTES_MAX, Sent};

/// The head of a run, or of an order to the process that has the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassedHead {
    /// A run.
    Run {
        /// The length of each of its datagrams, of which the last may be shorter; 1 at least.
        datagram_bytes: u16,
        /// The congestion mark with which it came.
        mark: Mark,
        /// Datagrams that the socket had no room for, since it was made.
        dropped: u32,
    },
    /// An order: from now on packets have this class and mark ([`super::set_class`]). No bytes
    /// follow.
    Class(u8),
}

impl PassedHead {
    /// A run that is to be sent in datagrams of this length.
    pub fn cut(datagram_bytes: u16) -> PassedHead {
        PassedHead::Run { datagram_bytes, mark: Mark::Deaf, dropped: 0 }
    }

    /// Its bytes.
    fn encode(self) -> [u8; HEAD_BYTES] {
        match self {
            PassedHead::Run { datagram_bytes, mark, dropped } => {
                let ([a, b], [c, d, e, f]) = (datagram_bytes.to_le_bytes(), dropped.to_le_bytes());
                [RUN, mark as u8, a, b, c, d, e, f]
            }
            PassedHead::Class(class) => [CLASS, class, 0, 0, 0, 0, 0, 0],
        }
    }

    /// Reads the head of a message of so many bytes.
    pub(super) fn decode(message: &[u8]) -> Option<PassedHead> {
        let [kind, mark, a, b, c, d, e, f] = *message.first_chunk::<HEAD_BYTES>()?;
        let len = message.len() - HEAD_BYTES;
        match kind {
            RUN => {
                let datagram_bytes = u16::from_le_bytes([a, b]);
                let mark =
                    [Mark::Deaf, Mark::Capable, Mark::Congested].into_iter().find(|known| *known as u8 == mark)?;
                let is_sound = datagram_bytes > 0 && (1..=RUN_BYTES_MAX).contains(&len);
                let dropped = u32::from_le_bytes([c, d, e, f]);
                is_sound.then_some(PassedHead::Run { datagram_bytes, mark, dropped })
            }
            CLASS if len == 0 => Some(PassedHead::Class(mark)),
            _ => None,
        }
    }
}

/// Passes a message on to the other process, without waiting: [`Sent::Taken`], or [`Sent::Full`]
/// while that has not taken in what came before. A run of more than [`RUN_BYTES_MAX`] is
/// [`Sent::TooLong`], and is not passed on: over IPv6 anybody can send a datagram of that length.
///
/// # Errors
/// The error of `sendmsg`, such as `BrokenPipe` when the other end is closed.
pub fn pass_on(socket: impl AsFd, head: PassedHead, run: &[u8]) -> io::Result<Sent> {
    if run.len() > RUN_BYTES_MAX {
        return Ok(Sent::TooLong);
    }
    let head = head.encode();
    let parts = [IoSlice::new(&head), IoSlice::new(run)];
    loop {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match sendmsg(&socket, &parts, &mut SendAncillaryBuffer::default(), flags) {
            Err(rustix::io::Errno::INTR) => {}
            // The host has no memory for it now.
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS | rustix::io::Errno::NOMEM) => {
                return Ok(Sent::Full);
            }
            sent => return sent.map(|_| Sent::Taken).map_err(io::Error::from),
        }
    }
}

/// Bytes of a head.
pub(super) const HEAD_BYTES: usize = 8;
const RUN: u8 = 1;
const CLASS: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(head: PassedHead, run: usize) -> Vec<u8> {
        [&head.encode()[..], &vec![7; run]].concat()
    }

    #[test]
    fn a_head_is_read_as_it_was_written_and_nothing_else_is_one() {
        let run = PassedHead::Run { datagram_bytes: 1472, mark: Mark::Congested, dropped: 0x0102_0304 };
        for (head, len) in [(run, 1), (run, RUN_BYTES_MAX), (PassedHead::cut(9000), 20), (PassedHead::Class(6), 0)] {
            assert_eq!(PassedHead::decode(&message(head, len)), Some(head));
        }
        let (empty, mut kind, mut mark) = (message(run, 0), message(run, 10), message(run, 10));
        (kind[0], mark[1]) = (3, 3);
        let no_length = message(PassedHead::cut(0), 10);
        let long = message(run, RUN_BYTES_MAX + 1);
        for bad in [empty, kind, mark, no_length, long, message(PassedHead::Class(6), 1), vec![1; 7], vec![]] {
            assert_eq!(PassedHead::decode(&bad), None, "{:?}", &bad[..bad.len().min(8)]);
        }
    }

    #[test]
    fn a_run_that_the_other_process_would_not_take_is_not_passed_on() {
        let (here, there) = crate::passing::pair().expect("a pair");
        let (head, run) = (PassedHead::cut(1472), vec![7; RUN_BYTES_MAX + 1]);
        assert_eq!(pass_on(&here, head, &run).expect("open"), Sent::TooLong);
        assert_eq!(pass_on(&here, head, &run[1..]).expect("open"), Sent::Taken);
        let mut inbox = super::super::Inbox::new(2);
        assert_eq!(inbox.receive_passed(&there, drop).expect("sound"), 1);
        assert_eq!(inbox.runs().map(|run| run.bytes.len()).collect::<Vec<_>>(), [RUN_BYTES_MAX]);
    }
}
