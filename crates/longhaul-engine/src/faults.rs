//! Turns errors of the crates below into faults, the form in which people and peers get them.
//!
//! In: errors of the network and of the system. Out: a [`Fault`] with code, blame and hint. It
//! knows no sessions and no files.

use std::io;

use longhaul_core::{Blame, Fault, FaultCode};
use longhaul_net::{NetError, NetErrorKind, Over, system_words};

/// A connection's error as a fault.
pub(crate) fn net_fault(error: &NetError) -> Fault {
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

/// The fault of a control connection that could not be dialled. `again`: in the middle of a run. A
/// server that answers in the place of a daemon may be gone later, like a daemon that is away; in
/// the middle of a run the same holds of a name that was found before.
pub(crate) fn dial_fault(error: &NetError, again: bool) -> Fault {
    let fault = net_fault(error);
    let passing = |message: &str| Fault::new(FaultCode::Unreachable, Blame::Path, message).hint(&fault.hint);
    match (error, error.kind()) {
        (NetError::NotLonghaul { peer, saw }, _) => {
            tracing::debug!(target: "longhaul::session", %peer, %saw, "another protocol");
            passing(&format!("what listens at {peer} is not a longhaul daemon"))
        }
        (_, NetErrorKind::UnknownHost) if again => passing(&fault.message),
        _ => fault,
    }
}

/// The error and its causes on one line.
fn words(error: &NetError) -> String {
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    match error {
        // The message of these has the kernel's words already.
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

/// The hint of an error.
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

/// The error of a lane that was joined as a fault: an error of its protection is damage on the
/// path.
pub(crate) fn lane_fault(error: &NetError) -> Fault {
    let fault = net_fault(error);
    match error.kind() {
        NetErrorKind::Tls => {
            Fault::new(FaultCode::Lost, Blame::Path, format_args!("a lane was damaged on the way: {}", fault.message))
                .hint("run the same command again")
        }
        _ => fault,
    }
}

/// The fault of a thread or runtime that the system does not give.
pub(crate) fn system_fault(what: &str, error: &std::io::Error) -> Fault {
    Fault::new(FaultCode::Unsupported, Blame::Local, format_args!("cannot start {what}: {error}"))
        .hint("check the limits on processes and memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_firewall_a_wrong_port_and_another_server_are_told_apart() {
        let no_answer = |over| NetError::NoAnswer { peer: "node:7214 (192.0.2.7)".to_owned(), seconds: 10, over };
        let refused = || NetError::Unreachable {
            peer: "node:7214 (192.0.2.7)".to_owned(),
            source: io::Error::from_raw_os_error(111),
        };
        let unknown = || NetError::UnknownHost { host: "nod".to_owned(), source: io::Error::other("no such name") };
        let other = NetError::NotLonghaul { peer: "node:80".to_owned(), saw: "bytes".to_owned() };
        for (error, again, code, message, hint) in [
            (
                no_answer(Over::Tcp),
                false,
                FaultCode::TimedOut,
                "no answer from node:7214 (192.0.2.7) in 10 s: a firewall",
                "TCP port 7214",
            ),
            (
                no_answer(Over::Udp),
                false,
                FaultCode::TimedOut,
                "over UDP in 10 s, though TCP gets through",
                "UDP port 7214",
            ),
            (
                refused(),
                false,
                FaultCode::Unreachable,
                "cannot connect to node:7214 (192.0.2.7): connection refused",
                "check host and port",
            ),
            (unknown(), false, FaultCode::NotFound, "there is no host nod: no such name", "getent hosts"),
            (unknown(), true, FaultCode::Unreachable, "there is no host nod: no such name", "getent hosts"),
            (other, false, FaultCode::Unreachable, "what listens at node:80 is not a longhaul daemon", "host and port"),
        ] {
            let fault = dial_fault(&error, again);
            assert_eq!(fault.code, code, "{error}");
            assert!(fault.message.contains(message), "{fault:?}");
            assert!(fault.hint.contains(hint), "{fault:?}");
            assert!(!fault.message.contains("os error"), "{fault:?}");
        }
    }
}
