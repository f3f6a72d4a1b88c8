//! Network errors as faults, the form in which users and peers get them.
//!
//! In: a [`NetError`]. Out: a [`Fault`] with its code and blame, the error with its causes on one
//! line, and a hint. Knows no session.

use std::io;

use longhaul_core::{Blame, Fault, FaultCode};

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
        Fault::new(code, blame, words(error)).hint(hint(error))
    }
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
fn hint(error: &NetError) -> String {
    use NetErrorKind as K;
    let fixed = match error {
        NetError::Resolve { .. } => "check the network and /etc/resolv.conf, or name the daemon by its address",
        NetError::UnknownHost { .. } => "check its spelling; 'getent hosts NAME' asks the same resolver",
        NetError::LocalAddress { .. } => "'ip address' shows the addresses that it has",
        NetError::NoAnswer { peer, over: Over::Tcp, .. } => {
            return format!(
                "check host and port; at the daemon's host, and on the way to it, {} must be let in",
                open_port("TCP", peer)
            );
        }
        NetError::NoAnswer { peer, over: Over::Udp, .. } => {
            return format!(
                "let {} in at the daemon's host and on the way to it, or use --transport tcp",
                open_port("UDP", peer)
            );
        }
        NetError::Silent { .. } => {
            "check host and port; if a longhaul daemon listens there, its host may be overloaded"
        }
        NetError::Unreachable { source, .. } => match source.kind() {
            io::ErrorKind::ConnectionRefused => {
                "no longhaul daemon listens there, or a firewall refuses: check host and port, and that it runs"
            }
            io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                "the host is down, no route leads to it, or a firewall refuses: check the host and the network"
            }
            _ => "check host, port and firewall, and that a longhaul daemon runs there",
        },
        _ => match error.kind() {
            K::Lost | K::Closed | K::TimedOut => "run the same command again",
            K::Busy => "try again later",
            K::PeerKeyMismatch { .. } => {
                "the daemon's key changed or someone stands between; ask its administrator before trusting the new key"
            }
            K::KeyRefused => "ask the daemon's administrator to authorise this key: longhaul key show",
            K::Tls | K::NotLonghaul => "check host and port: something else may listen there",
            _ => "",
        },
    };
    fixed.to_owned()
}

/// `TCP port 7214`, of a peer `node:7214` or `node:7214 (192.0.2.7)`.
fn open_port(protocol: &str, peer: &str) -> String {
    let addr = peer.split_once(' ').map_or(peer, |(addr, _)| addr);
    let port = addr.rsplit_once(':').map_or("", |(_, port)| port);
    format!("{protocol} port {port}")
}
