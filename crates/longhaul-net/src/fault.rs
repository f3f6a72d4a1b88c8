//! Network errors as faults, the form in which users and peers get them.
//!
//! In: a [`NetError`]. Out: a [`Fault`] with its code and blame, the error with its causes on one
//! line, and a hint. Knows no session.

use std::io;

use longhaul_core::hint::{Again, Daemon, Network};
use longhaul_core::{Blame, Fault, FaultCode, Hint};

use crate::error::{NetError, NetErrorKind, Over, system_words};

impl From<NetError> for Fault {
    fn from(error: NetError) -> Fault {
        Fault::from(&error)
    }
}

impl From<&NetError> for Fault {
    fn from(error: &NetError) -> Fault {
        use NetErrorKind as K;
        let (code, blame) = match error.kind() {
            K::Unreachable => (FaultCode::Unreachable, Blame::Path),
            K::UnknownHost => (FaultCode::NotFound, Blame::Local),
            K::Lost | K::Closed => (FaultCode::Lost, Blame::Path),
            K::Busy => (FaultCode::Busy, Blame::Peer),
            K::TimedOut => (FaultCode::TimedOut, Blame::Path),
            K::PeerKeyMismatch { .. } | K::KeyRefused => (FaultCode::Denied, Blame::Peer),
            K::Tls | K::NotLonghaul => (FaultCode::Protocol, Blame::Peer),
            K::Config => (FaultCode::Usage, Blame::Local),
            _ => (FaultCode::Unclassified, Blame::Local),
        };
        Fault { hint: hint(error), ..Fault::new(code, blame, words(error)) }.with_os_error(os_error(error))
    }
}

/// The system's number of the call that failed, if one did.
fn os_error(error: &NetError) -> Option<i32> {
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        if let Some(number) = source.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(number);
        }
        cause = source.source();
    }
    None
}

/// The error and its causes on one line.
fn words(error: &NetError) -> String {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    match error {
        // The messages of these have the kernel's words already.
        NetError::Congestion { .. } | NetError::LocalAddress { .. } => return message,
        _ => {}
    }
    while let Some(source) = cause {
        let words = source.downcast_ref().map_or_else(|| source.to_string(), system_words);
        message = format!("{message}: {words}");
        cause = source.source();
    }
    message
}

/// The hint what to do about the error.
fn hint(error: &NetError) -> Option<Hint> {
    use NetErrorKind as K;
    Some(match error {
        NetError::Resolve { .. } => Network::CheckResolver.into(),
        NetError::UnknownHost { .. } => Network::CheckSpelling.into(),
        NetError::LocalAddress { .. } => Network::SeeAddresses.into(),
        NetError::NoAnswer { peer, over, .. } => match (port_of(peer), over) {
            (Some(port), Over::Tcp) => Network::OpenTcpPort { port }.into(),
            (Some(port), Over::Udp) => Network::OpenUdpPort { port }.into(),
            (None, _) => Network::CheckHost.into(),
        },
        NetError::Silent { .. } => Network::SuspectOverload.into(),
        NetError::Unreachable { source, .. } => match source.kind() {
            io::ErrorKind::ConnectionRefused => Network::StartDaemon.into(),
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => Network::CheckRoute.into(),
            _ => Network::CheckHost.into(),
        },
        _ => match error.kind() {
            K::Lost | K::Closed | K::TimedOut => Again::Now.into(),
            K::Busy => Again::Later.into(),
            K::PeerKeyMismatch { .. } => Daemon::AskAboutNewKey.into(),
            K::KeyRefused => Daemon::AskForAuthorisation.into(),
            K::Tls | K::NotLonghaul => Network::CheckListener.into(),
            _ => return None,
        },
    })
}

/// The port of a peer `node:7214` or `node:7214 (192.0.2.7)`.
fn port_of(peer: &str) -> Option<u16> {
    let addr = peer.split_once(' ').map_or(peer, |(addr, _)| addr);
    addr.rsplit_once(':')?.1.parse().ok()
}
