//! Turns errors of the crates below into faults, the form in which people and peers get them.
//!
//! In: errors of the network and of the system. Out: a [`Fault`] with code, blame and hint. It
//! knows no sessions and no files.

use longhaul_core::{Blame, Fault, FaultCode, hint};
use longhaul_net::{NetError, NetErrorKind};

/// The fault of a control connection that could not be dialled. `again`: in the middle of a run. A
/// server that answers in the place of a daemon may be gone later, like a daemon that is away; in
/// the middle of a run the same holds of a name that was found before.
pub(crate) fn dial_fault(error: &NetError, again: bool) -> Fault {
    let fault = Fault::from(error);
    let passing =
        |message: &str| Fault { hint: fault.hint.clone(), ..Fault::new(FaultCode::Unreachable, Blame::Path, message) };
    match (error, error.kind()) {
        (NetError::NotLonghaul { peer, saw }, _) => {
            tracing::debug!(target: "longhaul::session", %peer, %saw, "another protocol");
            passing(&format!("what listens at {peer} is not a longhaul daemon"))
        }
        (_, NetErrorKind::UnknownHost) if again => passing(&fault.message),
        _ => fault,
    }
}

/// The error of a lane that was joined as a fault: an error of its protection is damage on the
/// path.
pub(crate) fn lane_fault(error: &NetError) -> Fault {
    let fault = Fault::from(error);
    match error.kind() {
        NetErrorKind::Tls => {
            Fault::new(FaultCode::Lost, Blame::Path, format_args!("a lane was damaged on the way: {}", fault.message))
                .hint(hint::Again::Now)
        }
        _ => fault,
    }
}

/// The fault of a thread or runtime that the system does not give.
pub(crate) fn system_fault(what: &str, error: &std::io::Error) -> Fault {
    Fault::new(FaultCode::Unsupported, Blame::Local, format_args!("cannot start {what}: {error}"))
        .hint(hint::Storage::RaiseProcesses)
}

#[cfg(test)]
mod tests {
    use std::io;

    use longhaul_core::hint::Network;
    use longhaul_net::Over;

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
                Network::OpenTcpPort { port: 7214 },
            ),
            (
                no_answer(Over::Udp),
                false,
                FaultCode::TimedOut,
                "over UDP in 10 s, though TCP gets through",
                Network::OpenUdpPort { port: 7214 },
            ),
            (
                refused(),
                false,
                FaultCode::Unreachable,
                "cannot connect to node:7214 (192.0.2.7): connection refused",
                Network::StartDaemon,
            ),
            (unknown(), false, FaultCode::NotFound, "there is no host nod: no such name", Network::CheckSpelling),
            (unknown(), true, FaultCode::Unreachable, "there is no host nod: no such name", Network::CheckSpelling),
            (
                other,
                false,
                FaultCode::Unreachable,
                "what listens at node:80 is not a longhaul daemon",
                Network::CheckListener,
            ),
        ] {
            let fault = dial_fault(&error, again);
            assert_eq!(fault.code, code, "{error}");
            assert!(fault.message.contains(message), "{fault:?}");
            assert_eq!(fault.hint, Some(hint.into()));
            assert!(!fault.message.contains("os error"), "{fault:?}");
        }
    }
}
