//! `listen` of `serve.toml`: the addresses on which a daemon accepts.
//!
//! In: a text. Out: the same text, if it can be an address. Asks nobody for names.

use super::file::{Text, Wrong, wrong};

/// Takes an address with its port.
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
