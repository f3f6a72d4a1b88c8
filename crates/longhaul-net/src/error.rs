//! Errors of connections, keys and key files, with the address or path in each.
//!
//! Takes I/O and TLS errors from every file of this crate and classifies them; gives `engine` a
//! [`NetErrorKind`] to decide by. Must not know retries or exit codes.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use longhaul_core::Transport;
use quinn::{ConnectionError, TransportErrorCode};
use rustls::{AlertDescription, CertificateError};
use thiserror::Error;

use crate::public_key::{BadKey, PublicKey};

/// The reason why a connection could not be made or went away, or why a key or a key file cannot be
/// used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NetError {
    /// The text is not `host:port`.
    #[error("{addr:?} is not an address of the form HOST:PORT")]
    BadAddress {
        /// The text that was given.
        addr: String,
    },
    /// There is no host of this name, or it has no address.
    #[error("there is no host {host}")]
    UnknownHost {
        /// The name asked for.
        host: String,
        /// The resolver's answer.
        source: io::Error,
    },
    /// The resolver has no answer now; it may have one later.
    #[error("cannot look the host {host} up")]
    Resolve {
        /// The name asked for.
        host: String,
        /// The resolver's answer.
        source: io::Error,
    },
    /// Nothing came back in time, neither a connection nor a refusal.
    #[error("no answer from {peer} {}", .over.silence(*seconds))]
    NoAnswer {
        /// The address dialled.
        peer: String,
        /// The time that it had, in seconds.
        seconds: u64,
        /// The protocol of the dial.
        over: Over,
    },
    /// A connection was accepted, and nothing was said on it in time.
    #[error(
        "{peer} accepts connections and says nothing on them for {seconds} s: something that is not longhaul may listen there"
    )]
    Silent {
        /// The address dialled.
        peer: String,
        /// The time that it had, in seconds.
        seconds: u64,
    },
    /// This host has no such address to dial from.
    #[error("this host has no address {addr} to dial from")]
    LocalAddress {
        /// The address asked for.
        addr: IpAddr,
        /// The kernel's answer.
        source: io::Error,
    },
    /// No program accepts connections there, or no route leads there.
    #[error("cannot connect to {peer}")]
    Unreachable {
        /// The address dialled.
        peer: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// A standing connection broke.
    #[error("lost the connection to {peer}")]
    Lost {
        /// The other end, as it was named.
        peer: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// The stream ended too early: inside a value, or without TLS's own end.
    #[error("the connection to {peer} ended early")]
    Truncated {
        /// The other end, as it was named.
        peer: String,
    },
    /// This side closed the stream, from another thread.
    #[error("the connection to {peer} was closed by this side")]
    Closed {
        /// The other end, as it was named.
        peer: String,
    },
    /// A deadline passed.
    #[error("{peer} took too long: {doing}")]
    TimedOut {
        /// The other end, as it was named.
        peer: String,
        /// The step that was waited for.
        doing: &'static str,
    },
    /// No answer comes while segments are large: the path may drop them silently.
    #[error("{peer} does not answer segments of {segment_bytes} bytes")]
    Swallowed {
        /// The other end, as it was named.
        peer: String,
        /// Payload of a full segment.
        segment_bytes: u32,
    },
    /// Too many connections were being greeted, and this was the oldest of them.
    #[error("{peer} gave way to newer connections before it was authenticated")]
    Crowded {
        /// The other end, as it was named.
        peer: String,
    },
    /// The peer shows another key than the one it is known by.
    #[error("{peer} has the key {got}, not {expected}")]
    PeerKeyMismatch {
        /// The other end, as it was named.
        peer: String,
        /// The pinned key.
        expected: PublicKey,
        /// The key that it shows; its proof is not looked at.
        got: PublicKey,
    },
    /// The peer does not take this side's key.
    #[error("{peer} refuses this side's key")]
    KeyRefused {
        /// The other end, as it was named.
        peer: String,
        /// The alert that it sent.
        source: rustls::Error,
    },
    /// TLS failed: a damaged or forged record, or a peer that breaks the protocol.
    #[error("TLS with {peer} failed")]
    Tls {
        /// The other end, as it was named.
        peer: String,
        /// The error of rustls.
        source: rustls::Error,
    },
    /// The other end does not speak longhaul.
    #[error("{peer} does not speak longhaul ({saw})")]
    NotLonghaul {
        /// The other end, as it was named.
        peer: String,
        /// A description of what the peer showed instead.
        saw: String,
    },
    /// The kernel does not give this congestion control.
    #[error("this kernel does not offer the congestion control {asked:?}, it offers: {offered}")]
    Congestion {
        /// The name asked for.
        asked: String,
        /// The congestion controls that it offers, separated by spaces.
        offered: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// Lanes over QUIC or UDP have no congestion control of this name.
    #[error("lanes over {over} have no congestion control {asked:?}, {offered}")]
    NoSuchControl {
        /// The name asked for.
        asked: String,
        /// The transport.
        over: Transport,
        /// Its own, if it has any.
        offered: &'static str,
    },
    /// A socket could not be made or set up on this side.
    #[error("cannot {doing} for {addr}")]
    Socket {
        /// The local or remote address concerned.
        addr: String,
        /// The step that failed.
        doing: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The cryptographic library refused a step that never fails on a sound machine.
    #[error("cannot {doing}")]
    Crypto {
        /// The step that failed.
        doing: &'static str,
    },
    /// The text is not a public key.
    #[error(transparent)]
    BadKey(#[from] BadKey),
    /// A key file cannot be read or written.
    #[error("cannot {doing} {}", path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// The step that failed.
        doing: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The private key may be read by others.
    #[error("{} is accessible by others (mode {mode:04o}): chmod 600 it, or make a new one if it was ever exposed", path.display())]
    IdentityExposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A directory, a pipe or a device stands where a private key was expected.
    #[error("{} is not a file: an identity is one file", path.display())]
    IdentityKind {
        /// Its path.
        path: PathBuf,
    },
    /// The file holds no Ed25519 private key.
    #[error("{} holds no Ed25519 private key in PEM (PKCS #8)", path.display())]
    IdentityFormat {
        /// The file.
        path: PathBuf,
    },
    /// A line of known_hosts is malformed.
    #[error("{}:{line}: {why}", path.display())]
    KnownHostLine {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The reason why the line is wrong.
        why: &'static str,
    },
    /// The host is known by another key already.
    #[error("{}:{line}: {host} is known by {known}; remove that line to trust another key", path.display())]
    KnownHostConflict {
        /// The file.
        path: PathBuf,
        /// The line that names the host, from 1.
        line: usize,
        /// `host:port`.
        host: String,
        /// The key that stands there.
        known: PublicKey,
    },
}

/// The protocol that a peer was dialled over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// TCP: the control connection, and lanes over TCP.
    Tcp,
    /// UDP: lanes over QUIC.
    Udp,
}

impl Over {
    /// The message for no answer. Over UDP only lanes are dialled, to the control connection's own
    /// port, so it is known that the host is up.
    fn silence(self, seconds: u64) -> String {
        match self {
            Over::Tcp => format!("in {seconds} s: a firewall that drops, or the wrong port"),
            Over::Udp => format!("over UDP in {seconds} s, though TCP gets through: a firewall that drops UDP"),
        }
    }
}

/// The system's words for an error, in lower case as parts of a sentence, without its number.
pub fn system_words(error: &io::Error) -> String {
    let text = error.to_string();
    let words = match error.raw_os_error() {
        Some(_) => text.split(" (os error ").next().unwrap_or_default(),
        None => text.strip_prefix("failed to lookup address information: ").unwrap_or(&text),
    };
    let mut letters = words.chars();
    let first = letters.next().map(|letter| letter.to_ascii_lowercase());
    // An abbreviation keeps its capitals.
    match letters.as_str().starts_with(|second: char| second.is_uppercase()) {
        true => words.to_owned(),
        false => first.into_iter().chain(letters).collect(),
    }
}

/// The meaning of a [`NetError`] to the code that decides what to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NetErrorKind {
    /// The peer could not be reached; it may be reached later.
    Unreachable,
    /// No host has the name.
    UnknownHost,
    /// A standing connection is gone; a new one may do.
    Lost,
    /// A deadline passed.
    TimedOut,
    /// The other side, or this one, had too much to do.
    Busy,
    /// This side closed it.
    Closed,
    /// The peer is not who it should be.
    PeerKeyMismatch {
        /// The pinned key.
        expected: PublicKey,
        /// The key that was shown.
        got: PublicKey,
    },
    /// The peer does not take this side's key.
    KeyRefused,
    /// Damage, forgery or a broken protocol.
    Tls,
    /// Another protocol.
    NotLonghaul,
    /// The request cannot be carried out here: an address, an option, a key or a key file is wrong.
    Config,
    /// This host would not give a socket or a key.
    Local,
}

impl NetError {
    /// The kind of this error.
    pub fn kind(&self) -> NetErrorKind {
        match self {
            NetError::Resolve { .. } | NetError::Unreachable { .. } => NetErrorKind::Unreachable,
            NetError::Lost { .. } | NetError::Truncated { .. } => NetErrorKind::Lost,
            NetError::Closed { .. } => NetErrorKind::Closed,
            NetError::UnknownHost { .. } => NetErrorKind::UnknownHost,
            NetError::TimedOut { .. }
            | NetError::NoAnswer { .. }
            | NetError::Silent { .. }
            | NetError::Swallowed { .. } => NetErrorKind::TimedOut,
            NetError::Crowded { .. } => NetErrorKind::Busy,
            &NetError::PeerKeyMismatch { expected, got, .. } => NetErrorKind::PeerKeyMismatch { expected, got },
            NetError::KeyRefused { .. } => NetErrorKind::KeyRefused,
            NetError::Tls { .. } => NetErrorKind::Tls,
            NetError::NotLonghaul { .. } => NetErrorKind::NotLonghaul,
            NetError::Socket { .. } | NetError::Crypto { .. } => NetErrorKind::Local,
            NetError::BadAddress { .. }
            | NetError::LocalAddress { .. }
            | NetError::Congestion { .. }
            | NetError::NoSuchControl { .. }
            | NetError::BadKey(_)
            | NetError::KeyFile { .. }
            | NetError::IdentityExposed { .. }
            | NetError::IdentityKind { .. }
            | NetError::IdentityFormat { .. }
            | NetError::KnownHostLine { .. }
            | NetError::KnownHostConflict { .. } => NetErrorKind::Config,
        }
    }

    /// Whether the same attempt may work later without a change by a human.
    pub fn is_temporary(&self) -> bool {
        matches!(
            self.kind(),
            NetErrorKind::Unreachable | NetErrorKind::Lost | NetErrorKind::TimedOut | NetErrorKind::Busy
        )
    }

    /// Classifies an error of rustls during a handshake.
    pub(crate) fn tls(peer: &str, source: rustls::Error) -> NetError {
        let peer = peer.to_owned();
        if let Some(&KeyMismatch { expected, got }) = key_mismatch(&source) {
            return NetError::PeerKeyMismatch { peer, expected, got };
        }
        match &source {
            rustls::Error::AlertReceived(alert) if refuses_key(*alert) => NetError::KeyRefused { peer, source },
            rustls::Error::AlertReceived(AlertDescription::NoApplicationProtocol)
            | rustls::Error::NoApplicationProtocol
            | rustls::Error::PeerIncompatible(_)
            | rustls::Error::InvalidMessage(_) => NetError::NotLonghaul { peer, saw: source.to_string() },
            _ => NetError::Tls { peer, source },
        }
    }

    /// Classifies an error of rustls after the handshake, when the peer has shown that it speaks
    /// longhaul. A dialler learns only here that its key was refused.
    pub(crate) fn record(peer: &str, source: rustls::Error) -> NetError {
        let peer = peer.to_owned();
        match &source {
            rustls::Error::AlertReceived(alert) if refuses_key(*alert) => NetError::KeyRefused { peer, source },
            _ => NetError::Tls { peer, source },
        }
    }

    /// Classifies the end of a QUIC connection. An alert of TLS travels as a code of QUIC's own
    /// (RFC 9001, section 4.8).
    pub(crate) fn quic(peer: &str, error: ConnectionError) -> NetError {
        let peer = peer.to_owned();
        let alert = |code: TransportErrorCode| {
            let alert = u64::from(code).checked_sub(CRYPTO_ERROR_FIRST).and_then(|alert| u8::try_from(alert).ok())?;
            Some(AlertDescription::from(alert))
        };
        let lost = |source: ConnectionError| NetError::Lost { peer: peer.clone(), source: io::Error::other(source) };
        match &error {
            ConnectionError::ConnectionClosed(close) => match alert(close.error_code) {
                Some(AlertDescription::NoApplicationProtocol) => NetError::NotLonghaul { peer, saw: error.to_string() },
                Some(alert) => NetError::tls(&peer, rustls::Error::AlertReceived(alert)),
                None => lost(error),
            },
            ConnectionError::TransportError(fault) if alert(fault.code).is_some() => {
                NetError::Tls { peer, source: rustls::Error::General(fault.to_string()) }
            }
            ConnectionError::VersionMismatch => NetError::NotLonghaul { peer, saw: error.to_string() },
            ConnectionError::ApplicationClosed(_) => NetError::Truncated { peer },
            ConnectionError::LocallyClosed => NetError::Closed { peer },
            _ => lost(error),
        }
    }

    /// Classifies an error of a standing connection; rustls's own may be inside.
    pub(crate) fn io(peer: &str, source: io::Error) -> NetError {
        match source.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(tls) => NetError::tls(peer, tls.clone()),
            None if source.kind() == io::ErrorKind::UnexpectedEof => NetError::Truncated { peer: peer.to_owned() },
            None => NetError::Lost { peer: peer.to_owned(), source },
        }
    }
}

/// The error that the verifier passes through rustls when the peer proved another key than the
/// pinned one.
#[derive(Debug, Error)]
#[error("the peer has the key {got}, not {expected}")]
pub(crate) struct KeyMismatch {
    pub(crate) expected: PublicKey,
    pub(crate) got: PublicKey,
}

/// The first of the 256 codes that stand for alerts of TLS.
const CRYPTO_ERROR_FIRST: u64 = 0x100;

fn key_mismatch(error: &rustls::Error) -> Option<&KeyMismatch> {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(other)) => other.0.downcast_ref(),
        _ => None,
    }
}

fn refuses_key(alert: AlertDescription) -> bool {
    matches!(
        alert,
        AlertDescription::AccessDenied
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateRequired
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::UnknownCA
    )
}
