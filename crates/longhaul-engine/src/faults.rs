//! Errors of the crates below as faults: the form in which they are told to people and peers.

use longhaul_core::{Blame, Fault, FaultCode};
use longhaul_net::{NetError, NetErrorKind};

/// A connection's error as a fault.
pub(crate) fn net_fault(error: &NetError) -> Fault {
    use NetErrorKind as K;
    let mut message = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(source) = cause {
        message = format!("{message}: {source}");
        cause = source.source();
    }
    let (code, blame, hint) = match error.kind() {
        K::Unreachable => (
            FaultCode::Unreachable,
            Blame::Path,
            "check host, port and firewall, and that a longhaul daemon runs there",
        ),
        K::Lost | K::Closed => (FaultCode::Lost, Blame::Path, "run the same command again"),
        K::Busy => (FaultCode::Busy, Blame::Peer, "try again later"),
        K::TimedOut => (FaultCode::TimedOut, Blame::Path, "run the same command again"),
        K::PeerKeyMismatch { .. } => (
            FaultCode::Denied,
            Blame::Peer,
            "the daemon's key changed or someone stands between; ask its administrator before trusting the new key",
        ),
        K::KeyRefused => {
            (FaultCode::Denied, Blame::Peer, "ask the daemon's administrator to authorise this key: longhaul key show")
        }
        K::Tls | K::NotLonghaul => {
            (FaultCode::Protocol, Blame::Peer, "check the address: something else may listen there")
        }
        K::Config => (FaultCode::Usage, Blame::Local, ""),
        _ => (FaultCode::Unclassified, Blame::Local, ""),
    };
    Fault::new(code, blame, message).hint(hint)
}

/// The error of a lane that was joined as a fault: what breaks its protection then is damage on the way.
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

/// A thread or runtime that the system does not give.
pub(crate) fn system_fault(what: &str, error: &std::io::Error) -> Fault {
    Fault::new(FaultCode::Unsupported, Blame::Local, format_args!("cannot start {what}: {error}"))
        .hint("check the limits on processes and memory")
}
