//! The first messages of an ssh session, read from and written to its pipe by either end.
//!
//! In: the pipe that ssh has made, what came ahead of it, and what the other end is to be told.
//! Out: its hello. Lengths are bounded before they are believed. It starts no process and opens no
//! port.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use longhaul_core::{Blame, Escaped, Fault, FaultCode, hint};
use longhaul_proto::wire::frame::{FrameError, LENGTH_BYTES, announced};
use longhaul_proto::wire::ssh::{SSH_LINE, SSH_LINE_ANY};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

/// The kind of a connection through the tunnel: its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionKind {
    /// A control connection or a lane, which says the same as one over TCP.
    Greeted,
    /// The signals of the session.
    Signals,
}

impl ConnectionKind {
    /// Its byte.
    pub(crate) const fn byte(self) -> u8 {
        match self {
            ConnectionKind::Greeted => b'c',
            ConnectionKind::Signals => b's',
        }
    }

    /// The kind with this byte.
    pub(crate) fn of(byte: u8) -> Option<ConnectionKind> {
        [ConnectionKind::Greeted, ConnectionKind::Signals].into_iter().find(|kind| kind.byte() == byte)
    }
}

/// The first bytes of the initiator as a word of any shell. `None` for more than a command line
/// should have: they pass through the pipe in any case.
pub(crate) fn word_of(first: &[u8]) -> Option<String> {
    let digits = || first.iter().map(|byte| format!("{byte:02x}")).collect();
    (first.len() <= AHEAD_BYTES_MAX).then(digits)
}

/// The bytes of such a word. Empty for any other word.
fn bytes_of(word: &str) -> Vec<u8> {
    let digits: Option<Vec<u32>> = word.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() <= 2 * AHEAD_BYTES_MAX).unwrap_or_default();
    let (pairs, []) = digits.as_chunks() else { return Vec::new() };
    pairs.iter().map(|[high, low]| (high * 16 + low) as u8).collect()
}

/// A pipe of which the first bytes came ahead, by another way: sshd lets nothing into it before it
/// has told the other end that the command runs, a round trip after it began to run. They come
/// through the pipe once more, and are left out there.
pub(crate) struct AheadOfPipe<R> {
    ahead: Vec<u8>,
    /// Bytes of them that were read, and that came through the pipe again.
    read: usize,
    again: usize,
    pipe: R,
}

impl<R> AheadOfPipe<R> {
    /// The pipe, and the word that came ahead of it. A word that is none of ours is nothing.
    pub(crate) fn new(word: Option<&str>, pipe: R) -> AheadOfPipe<R> {
        AheadOfPipe { ahead: word.map(bytes_of).unwrap_or_default(), read: 0, again: 0, pipe }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for AheadOfPipe<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(left) = this.ahead.get(this.read..).filter(|left| !left.is_empty()) {
            let count = left.len().min(into.remaining());
            into.put_slice(&left[..count]);
            this.read += count;
            return Poll::Ready(Ok(()));
        }
        while this.again < this.ahead.len() {
            let mut space = [0; 512];
            let count = space.len().min(this.ahead.len() - this.again);
            let mut same = ReadBuf::new(&mut space[..count]);
            ready!(Pin::new(&mut this.pipe).poll_read(cx, &mut same))?;
            if same.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            this.again += same.filled().len();
        }
        Pin::new(&mut this.pipe).poll_read(cx, into)
    }
}

/// Reads the other end's first message, behind whatever else is printed before it. `None` if the
/// pipe ends before it.
///
/// # Errors
/// A fault if the other end speaks another form of it, or something else for too long.
pub(crate) async fn read_hello<T>(
    reader: &mut (impl AsyncRead + Unpin),
    decode: fn(&[u8]) -> Result<T, FrameError>,
) -> Result<Option<T>, Fault> {
    // As if a line had ended before: the message may be the first that is said.
    let mut heard = vec![b'\n'];
    while !heard.ends_with(SSH_LINE) {
        let Ok(byte) = reader.read_u8().await else { return Ok(None) };
        heard.push(byte);
        if byte == b'\n' && is_of_another_form(&heard) {
            let why = "the longhaul over there begins an ssh session in another way than this one";
            return Err(Fault::new(FaultCode::Unsupported, Blame::Peer, why).hint(hint::Program::SameVersion));
        }
        if heard.len() > NOISE_BYTES_MAX {
            let first = &heard[1..heard.len().min(80)];
            let why =
                format_args!("the other host says something else over ssh than longhaul does: {}", Escaped(first));
            return Err(Fault::new(FaultCode::Protocol, Blame::Peer, why));
        }
    }
    let mut header = [0; LENGTH_BYTES];
    if reader.read_exact(&mut header).await.is_err() {
        return Ok(None);
    }
    let mut body = vec![0; announced(header).map_err(Fault::protocol)?];
    if reader.read_exact(&mut body).await.is_err() {
        return Ok(None);
    }
    decode(&body).map(Some).map_err(Fault::protocol)
}

/// Whether the last line that was heard begins a message of another form.
fn is_of_another_form(heard: &[u8]) -> bool {
    let line = heard[..heard.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    heard[line..].starts_with(SSH_LINE_ANY) && &heard[line..] != SSH_LINE
}

/// Start files of a shell may print so much before longhaul speaks.
const NOISE_BYTES_MAX: usize = 64 << 10;
/// Bytes that may come ahead of the pipe. A hello with some paths and the first flight of TLS, with
/// a key against quantum computers, are 2 KiB; Linux takes words of up to 128 KiB.
const AHEAD_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use longhaul_proto::wire::ssh::FarHello;

    use super::*;

    fn heard(bytes: &[u8]) -> Result<Option<FarHello>, Fault> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(read_hello(&mut &bytes[..], FarHello::decode))
    }

    fn hello() -> (FarHello, Vec<u8>) {
        let hello = FarHello { version: "1".into(), key: [3; 32], port: Some(7), at: None };
        let encoded = hello.encode().expect("it fits");
        (hello, encoded)
    }

    #[test]
    fn what_came_ahead_of_the_pipe_is_read_once() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let read = |word: Option<&str>, pipe: &[u8]| {
            let mut read = Vec::new();
            let all = runtime.block_on(AheadOfPipe::new(word, pipe).read_to_end(&mut read));
            all.map(|_| read).expect("read")
        };
        let first: Vec<u8> = (0..2000u32).map(|n| n as u8).collect();
        let whole = [&first[..], b"and more"].concat();
        let word = word_of(&first).expect("it is short");
        assert_eq!(read(Some(&word), &whole), whole);
        assert_eq!(read(Some(&word), &whole[..700]), first, "the pipe ended within it");
        for word in [None, Some(""), Some("0"), Some("+1"), Some("xy"), Some(&*format!("{word}0"))] {
            assert_eq!(read(word, &whole), whole, "{word:?} is nothing");
        }
        assert_eq!(word_of(&vec![0; AHEAD_BYTES_MAX + 1]), None);
        assert_eq!(read(Some(&"00".repeat(AHEAD_BYTES_MAX + 1)), &whole), whole, "nor is more than that");
    }

    #[test]
    fn what_a_shell_prints_before_longhaul_speaks_does_no_harm() {
        let (hello, encoded) = hello();
        for noise in [&b""[..], b"Welcome to node7\n", b"no end of line", b"longhaul-ssh", b"\n\n"] {
            assert_eq!(heard(&[noise, &encoded].concat()).ok(), Some(Some(hello.clone())), "{}", Escaped(noise));
        }
        assert_eq!(heard(&encoded[1..]).ok(), Some(Some(hello)), "it may be the first thing that is said");
    }

    #[test]
    fn another_form_an_early_end_and_endless_noise_are_told_apart() {
        let code = |bytes: &[u8]| heard(bytes).map_err(|fault| fault.code);
        assert_eq!(code(b"\nlonghaul-ssh 1\nwhatever"), Err(FaultCode::Unsupported));
        assert_eq!(code(b"bash: longhaul: command not found\n"), Ok(None));
        let (_, encoded) = hello();
        assert_eq!(code(&encoded[..encoded.len() - 1]), Ok(None));
        assert_eq!(code(&vec![b'x'; 1 << 20]), Err(FaultCode::Protocol));
        let endless = [SSH_LINE, &u32::MAX.to_le_bytes()].concat();
        assert_eq!(code(&endless), Err(FaultCode::Protocol));
    }
}
