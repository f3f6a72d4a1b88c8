//! `[third_party]`: where a daemon dials for its clients.
//!
//! In: the values of the table. Out: rules, or the mistake at its place. Resolves and opens
//! nothing.

use longhaul_engine::DialRule;
use serde::Deserialize;

use super::file::{Text, Wrong, at};
use crate::location::DEFAULT_PORT;

/// Copies from one daemon to another, which clients order. A reload does not change it.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ThirdParty {
    /// Where this daemon dials for clients that order it to fetch from another daemon, or to send
    /// there: host names, addresses and networks as `192.0.2.0/24`, each with a port behind it
    /// (`NAME:PORT`, `[2001:db8::]/32:PORT`) or 7214. A name counts at public addresses alone: name
    /// the network for a private one. [default: []]
    dial: Option<Vec<Text>>,
}

/// Judges where the daemon may dial.
pub(super) fn dial(table: ThirdParty) -> Result<Vec<DialRule>, Wrong> {
    let rule = |text: &Text| at(text, DialRule::parse(text.get_ref(), DEFAULT_PORT));
    table.dial.iter().flatten().map(rule).collect()
}
