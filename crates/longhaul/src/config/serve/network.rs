//! `listen`, and `dial` of `[limits]`: where a daemon listens, and where it dials.
//!
//! In: the values of these keys. Out: addresses and rules, or the mistake at its place. Resolves
//! and opens nothing.

use longhaul_engine::DialRule;

use super::file::{Text, Wrong, at, wrong};
use crate::location::DEFAULT_PORT;

/// Judges where the daemon may dial.
pub(super) fn dial(rules: Option<Vec<Text>>) -> Result<Vec<DialRule>, Wrong> {
    let rule = |text: &Text| at(text, DialRule::parse(text.get_ref(), DEFAULT_PORT));
    rules.iter().flatten().map(rule).collect()
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
