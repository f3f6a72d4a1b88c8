//! The first messages of an ssh session, read from and written to its pipe by either end.
//!
//! In: the pipe that ssh has made, and what the other end is to be told. Out: its hello. Lengths
//! are bounded before they are believed. It starts no process and opens no port.

use longhaul_core::{Blame, Escaped, Fault, FaultCode, hint};
use longhaul_proto::wire::frame::{FrameError, LENGTH_BYTES, announced};
use longhaul_proto::wire::ssh::{SSH_LINE, SSH_LINE_ANY};
use tokio::io::{AsyncRead, AsyncReadExt};

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
