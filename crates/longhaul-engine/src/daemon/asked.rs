//! A request as it is recorded, before it is known whether it is allowed.
//!
//! In: a request that was heard. Out: its root, its path and its kind, as texts. It judges nothing.

use longhaul_core::{PlainText, RelPath};
use longhaul_net::PublicKey;
use longhaul_proto::wire::message::{Far, Request};

use std::net::SocketAddr;
use std::time::Instant;

use super::Daemon;
use super::audit::{AuditDeed, AuditRecord, AuditWho};
use super::deputy::{AskedWords, Outcome};
use crate::session::handshake::HeardRequest;
use longhaul_core::{Fault, FaultCode};

/// A request of a known key.
pub(super) struct Asked {
    root: Option<String>,
    path: Option<String>,
    what: &'static str,
    key: PublicKey,
    peer: SocketAddr,
    at: Instant,
}

impl Asked {
    /// A grant that was shown before anything was asked for.
    pub(super) fn by_grant(peer: (PublicKey, SocketAddr)) -> Asked {
        Asked { what: "grant", ..Asked::heard(None, peer) }
    }

    /// The request that was heard, if one was, with what was shown around it.
    pub(super) fn heard(heard: Option<&HeardRequest>, (key, peer): (PublicKey, SocketAddr)) -> Asked {
        let removes = heard.is_some_and(|heard| heard.shown.removes);
        let reads = heard.is_some_and(|heard| heard.shown.reads);
        let is_order = heard.is_some_and(|heard| heard.shown.order.is_some());
        let (place, what) = match heard.map(|heard| &heard.request) {
            None => (None, "nothing that could be understood"),
            Some(Request::Roots) => (None, "roots"),
            Some(Request::List { root, path }) if removes => (Some((root, path)), "removal"),
            Some(Request::List { root, path }) if reads => (Some((root, path)), "reading"),
            Some(Request::List { root, path }) => (Some((root, path)), "list"),
            Some(Request::Partials { root, path }) => (Some((root, path)), "list of partials"),
            Some(Request::Order { .. }) => (None, "end of an order"),
            Some(Request::Transfer(transfer)) => match &transfer.far {
                Far::Destination { root, path, .. } => (Some((root, path)), "push"),
                Far::Sources { sources, .. } => (sources.first().map(|first| (&first.root, &first.path)), "pull"),
                Far::Memory { .. } => (None, "measurement"),
            },
        };
        let escaped = |path: &RelPath| path.escaped().to_string();
        let (root, path) = place.map(|(root, path)| (root.to_string(), escaped(path))).unzip();
        let what = if is_order { "order" } else { what };
        Asked { root, path, what, key, peer, at: Instant::now() }
    }

    /// Records that its names were told, or why not all of them were.
    pub(super) fn listed(&self, daemon: &Daemon, code: Option<FaultCode>) {
        daemon.live.link.iter().for_each(|link| link.outcome(Outcome::Listed(self.words(), code)));
        daemon.live.tallies.listed();
        self.record(daemon, AuditDeed::Listed, code);
    }

    /// Records that it was refused.
    pub(super) fn refused(&self, daemon: &Daemon, fault: &Fault) {
        daemon.live.link.iter().for_each(|link| link.outcome(Outcome::Refused(self.words(), fault.code)));
        daemon.live.tallies.refused(fault.code);
        let client = daemon.client(&self.key).map_or("", |client| &client.name);
        let place = self.root.as_ref().zip(self.path.as_ref()).map(|(root, path)| format!(" {root}/{path}"));
        daemon.live.tallies.fault(client, &format!("{}{}", self.what, place.unwrap_or_default()), fault);
        self.record(daemon, AuditDeed::Refused, Some(fault.code));
    }

    fn words(&self) -> AskedWords {
        let text = |text: &String| PlainText::from(text.as_str());
        AskedWords { root: self.root.as_ref().map(text), path: self.path.as_ref().map(text), what: self.what.into() }
    }

    fn record(&self, daemon: &Daemon, deed: AuditDeed, code: Option<FaultCode>) {
        let client = daemon.client(&self.key).ok().map(|client| client.name.as_str());
        let (key, peer) = (self.key.to_string(), self.peer.to_string());
        daemon.live.audit.keep(&AuditRecord {
            deed,
            who: AuditWho { session: None, client, key: Some(&key), peer: Some(&peer) },
            root: self.root.as_deref(),
            path: self.path.as_deref(),
            what: Some(self.what),
            seconds: Some(self.at.elapsed().as_secs_f64()),
            code,
            ..AuditRecord::default()
        });
    }
}
