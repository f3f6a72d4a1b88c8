//! The engine's names in words for users.
//!
//! In: values of the engine. Out: words. Knows no lines.

use std::borrow::Cow;

use longhaul_engine::{Limit, StartNote};

/// The words behind `limited by`. `capped`: the rate that was asked for is the limit.
pub(super) fn limit(by: Limit, capped: bool) -> &'static str {
    match by {
        Limit::Source => "the source disk",
        Limit::Target => "the target disk",
        Limit::Hash => "hashing",
        Limit::Cpu => "the processors",
        Limit::NetworkLoss => "packet loss",
        Limit::NetworkWindow => "TCP buffers",
        // The limit does not tell whether the line or an option set the rate.
        Limit::NetworkRate if capped => "--rate",
        Limit::NetworkRate => "the network",
        Limit::NetworkShared => "others on the network",
        Limit::Receiver => "the receiver",
        Limit::Memory => "--memory",
    }
}

/// A fact of a session that a user would not guess.
pub(super) fn note(note: StartNote) -> Cow<'static, str> {
    match note {
        StartNote::FewerLanes { lanes, wanted } => {
            let plural = if lanes == 1 { "" } else { "s" };
            format!("{lanes} lane{plural} instead of {wanted}: more do not fit the memory or the limits of one side")
                .into()
        }
        StartNote::NotEncrypted => {
            "NOT ENCRYPTED: --protect safe, whoever is on the way can read the data; every chunk is verified".into()
        }
        StartNote::WithinProcess => {
            "between two local directories data is not encrypted: nothing leaves this process".into()
        }
        StartNote::ReadOnce => {
            "a stream is read once: if this command ends early, nobody can go on with what it has sent".into()
        }
        StartNote::OverSsh => {
            "data goes through ssh until a direct way to the other host is open: that encrypts it once more and \
                               carries no more than one connection and one core do; if none opens, let a port in \
                               (--port-range)"
                .into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_that_was_asked_for_is_named_by_its_option() {
        assert_eq!((limit(Limit::NetworkRate, true), limit(Limit::NetworkRate, false)), ("--rate", "the network"));
        assert_eq!(limit(Limit::Target, true), "the target disk");
    }
}
