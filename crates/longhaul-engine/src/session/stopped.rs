//! The words in which a session, or a conversation of orders, tells the other side that it is ended
//! from outside.
//!
//! In: the code of a stop. Out: the fault that is said and logged. A code that has a meaning within
//! the daemon alone is told as one that the other side knows. It stops nothing.

use longhaul_core::{Blame, Fault, FaultCode, hint};

use crate::api::KICKED;

/// The fault of a session that is stopped with this code.
pub(crate) fn stopped(code: FaultCode) -> Fault {
    let why = match code {
        FaultCode::Terminated => "terminated",
        FaultCode::Busy => "the daemon is shutting down",
        FaultCode::TimedOut => "it took longer than it may",
        FaultCode::Unreachable => {
            return Fault::new(
                FaultCode::Busy,
                Blame::Local,
                "nothing moved, and another key needed the session's place",
            )
            .hint(hint::Again::WhereItEnded);
        }
        KICKED => {
            let why = "the daemon's administrator ended this session";
            return Fault::new(FaultCode::Busy, Blame::Local, why).hint(hint::Again::WhereItEnded);
        }
        FaultCode::Denied => {
            let why = "the daemon's administrator has changed what this key may do, and this is not allowed any more";
            return Fault::new(code, Blame::Local, why).hint(hint::Daemon::AskForRight);
        }
        FaultCode::Io => {
            let why = "the daemon must record what is done to its files, and its audit log cannot be written";
            return Fault::new(code, Blame::Local, why).hint(hint::Again::Later);
        }
        FaultCode::NoSpace => {
            let why = "others have filled the file system of this root down to what its daemon keeps in reserve";
            return Fault::new(code, Blame::Local, why).hint(hint::Storage::AskForRoom);
        }
        FaultCode::Lost => "the client dialled again and goes on in another session",
        _ => "interrupted",
    };
    Fault::new(code, Blame::Local, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_after_which_a_client_may_dial_again_are_told_as_busy_and_a_lost_right_as_denied() {
        for code in [KICKED, FaultCode::Unreachable, FaultCode::Busy] {
            assert_eq!(stopped(code).code, FaultCode::Busy, "{code:?}");
        }
        for code in [FaultCode::Denied, FaultCode::Io, FaultCode::Lost] {
            assert_eq!(stopped(code).code, code);
        }
    }
}
