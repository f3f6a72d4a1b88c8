//! `listen` and `[third_party]`: the addresses at which a daemon listens, and those that it dials.
//!
//! In: the values of these keys. Out: addresses and rules, or the mistake at its place. Resolves
//! and opens nothing.

use longhaul_engine::DialRule;
use serde::Deserialize;

use super::file::{Text, Wrong, at, wrong};
use crate::location::DEFAULT_PORT;

/// Copies from one daemon to another, which a client orders.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ThirdParty {
    /// Where this daemon dials for clients that order it to fetch from another daemon: host names,
    /// addresses and networks as `192.0.2.0/24`, each with a port behind it (`NAME:PORT`,
    /// `[2001:db8::]/32:PORT`) or 7214. A name counts at public addresses alone: name the network
    /// for a private one. [default: []]
    dial: Option<Vec<Text>>,
}

/// Judges where the daemon may dial.
pub(super) fn dial(table: ThirdParty) -> Result<Vec<DialRule>, Wrong> {
    let rule = |text: &Text| at(text, DialRule::parse(text.get_ref(), DEFAULT_PORT));
    table.dial.iter().flatten().map(rule).collect()
}

/// Judges an address to listen on.
pub(super) fn listen(address: Text) -> Result<String, Wrong> {
    let port = address.get_ref().rsplit_once(':').and_then(|(host, port)| {
        let bracketed = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
        port.parse::<u16>().ok().filter(|_| !host.is_empty() && bracketed)
    });
    match port {
        Some(_) => Ok(address.into_inner()),
        None => Err(wrong(&address, "an address to listen on is HOST:PORT, as [::]:7214")),
    }
}
