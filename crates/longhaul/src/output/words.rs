//! Names for scripts, in words for users.
//!
//! In: names of the engine. Out: words. Knows no lines.

/// The name of a limit, as it follows `limited by`. `capped`: the rate that was asked for is the
/// limit.
pub(super) fn limit(by: &'static str, capped: bool) -> &'static str {
    match by {
        "source" => "the source disk",
        "target" => "the target disk",
        "hash" => "hashing",
        "cpu" => "the processors",
        "network:loss" => "packet loss",
        "network:window" => "TCP buffers",
        NETWORK_RATE if capped => "--rate",
        NETWORK_RATE => "the network",
        "receiver" => "the receiver",
        "memory" => "--memory",
        other => other,
    }
}

/// The network's rate, or one that was asked for: the name does not tell which.
pub(super) const NETWORK_RATE: &str = "network:rate";

#[cfg(test)]
mod tests {
    use longhaul_proto::wire::message::Limit;

    use super::*;

    #[test]
    fn every_limit_has_words() {
        for name in Limit::ALL.map(Limit::name) {
            assert_ne!(limit(name, false), name);
        }
        assert_eq!((limit("network:rate", true), limit("target", true)), ("--rate", "the target disk"));
    }
}
