//! Tells the end of a session: its line in the log, its record, and the daemon's sums.
//!
//! In: what the session was and what it came to. Out: one line that says who, from where, what, how
//! much, how it ended and what limited it. It decides nothing.

use std::time::Instant;

use longhaul_core::FaultCode;
use longhaul_net::PublicKey;

use super::Daemon;
use super::audit::{AuditDeed, AuditRecord, SessionAudit};
use super::deputy::Outcome;
use super::live::Counts;
use super::tallies::COMPLETE;
use crate::cpu::Stage;
use crate::session::totals::Totals;

/// A session that is over.
pub(super) struct EndedSession<'a> {
    /// The name of its client.
    pub(super) client: &'a str,
    /// The key of its client.
    pub(super) key: PublicKey,
    /// The address that it came from.
    pub(super) peer: std::net::SocketAddr,
    /// Its doing, as the log says it.
    pub(super) what: &'a str,
    /// The kind of lane that it began with.
    pub(super) transport: &'static str,
    /// When it began.
    pub(super) begun: Instant,
    /// Its counters.
    pub(super) counts: Counts,
    /// Bytes for its line.
    pub(super) bytes: u64,
    /// Its counters as its loop left them.
    pub(super) totals: &'a Totals,
}

impl EndedSession<'_> {
    /// Tells of it.
    pub(super) fn tell(&self, daemon: &Daemon, audit: &SessionAudit) {
        let EndedSession { client, key, peer, what, bytes, totals, .. } = *self;
        let Counts { files, failed, digests, .. } = self.counts;
        let fault = totals.fault.as_ref();
        let code = fault.map(|fault| fault.code);
        let end = fault.map_or_else(|| COMPLETE.to_owned(), |fault| format!("{}: {fault}", fault.code.name()));
        let limited_by = totals.costs.limits().first().map_or("unknown", |limited| limited.by.name());
        let session = audit.name();
        let (result, seconds) = (code.map_or(COMPLETE, FaultCode::name), self.begun.elapsed().as_secs_f64());
        tracing::info!(
            target: "longhaul::session",
            session,
            %peer,
            %client,
            %key,
            result,
            files,
            failed,
            bytes,
            digests,
            limited_by,
            seconds = (seconds * 1e3).round() / 1e3,
            cpu_s = %cpu_seconds(totals.costs.stages()),
            "ended: {what}: {end}"
        );
        daemon.live.link.iter().for_each(|link| link.outcome(Outcome::Ended(self.counts, code)));
        daemon.live.tallies.ended(self.transport, code);
        fault.iter().for_each(|fault| daemon.live.tallies.fault(client, what, fault));
        let record = AuditRecord { deed: AuditDeed::SessionEnded, what: Some(what), code, ..AuditRecord::default() };
        audit.keep(AuditRecord { bytes: Some(bytes), count: Some(files), ..record });
    }
}

/// CPU seconds of this side by stage, as a word of a log line: `hash:0.412,net:0.360,files:0.020`.
fn cpu_seconds(stages: &[(Stage, f64)]) -> String {
    if stages.is_empty() {
        return "none".to_owned();
    }
    stages.iter().map(|(stage, seconds)| format!("{stage}:{seconds:.3}")).collect::<Vec<_>>().join(",")
}
