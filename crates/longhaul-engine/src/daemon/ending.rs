//! Tells the end of a session or of a conversation of orders: its line in the log, its record, and
//! the daemon's sums; and to the client of such a conversation its fault.
//!
//! In: what it was and what it came to. Out: one line that says who, from where, what, how much and
//! how it ended, and of a session what limited it. It decides nothing.

use std::time::{Duration, Instant};

use longhaul_core::{Fault, FaultCode};
use longhaul_net::{Control, PublicKey};
use longhaul_proto::Message;
use tokio::io::{AsyncWriteExt, copy, sink};
use tokio::time::timeout;

use super::Daemon;
use super::audit::{AuditDeed, AuditRecord, SessionAudit};
use super::deputy::Outcome;
use super::live::Counts;
use super::tallies::COMPLETE;
use crate::cpu::Stage;
use crate::session::channel::write_message;
use crate::session::totals::Totals;

/// A session or a conversation that is over.
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
    /// The fault by which it ended. `None`: it is complete.
    pub(super) fault: Option<&'a Fault>,
    /// Its kind.
    pub(super) kind: EndedKind<'a>,
}

/// The kind of a session that is over, which says what is told of it.
#[derive(Clone, Copy)]
pub(super) enum EndedKind<'a> {
    /// It moved files over lanes: bytes for its line, and its counters as its loop left them.
    Transfer(u64, &'a Totals),
    /// Files were read where they lie.
    Reading,
    /// Names were moved away.
    Removal,
}

impl EndedSession<'_> {
    /// Tells of it.
    pub(super) fn tell(&self, daemon: &Daemon, audit: &SessionAudit) {
        let EndedSession { client, key, peer, what, fault, kind, .. } = *self;
        let Counts { files, failed, digests, moved_away, read, .. } = self.counts;
        let code = fault.map(|fault| fault.code);
        let end = fault.map_or_else(|| COMPLETE.to_owned(), |fault| format!("{}: {fault}", fault.code.name()));
        let session = audit.name();
        let (result, seconds) = (code.map_or(COMPLETE, FaultCode::name), self.begun.elapsed().as_secs_f64());
        // A field without a value is left out of the line.
        let moved = match kind {
            EndedKind::Transfer(bytes, totals) => Some((bytes, totals)),
            EndedKind::Reading | EndedKind::Removal => None,
        };
        let costs = moved.map(|(_, totals)| &totals.costs);
        let limited_by = costs.map(|costs| costs.limits().first().map_or("unknown", |limited| limited.by.name()));
        tracing::info!(
            target: "longhaul::session",
            session,
            %peer,
            %client,
            %key,
            result,
            files = moved.map(|_| files),
            moved_away = matches!(kind, EndedKind::Removal).then_some(moved_away),
            files_read = matches!(kind, EndedKind::Reading).then_some(read),
            failed,
            bytes = moved.map(|(bytes, _)| bytes),
            digests = moved.map(|_| digests),
            limited_by,
            seconds = (seconds * 1e3).round() / 1e3,
            cpu_s = costs.map(|costs| tracing::field::display(cpu_seconds(costs.stages()))),
            "ended: {what}: {end}"
        );
        daemon.live.link.iter().for_each(|link| link.outcome(Outcome::Ended(self.counts, code)));
        daemon.live.tallies.ended(self.transport, code);
        fault.iter().for_each(|fault| daemon.live.tallies.fault(client, what, fault));
        let (bytes, count) = match kind {
            EndedKind::Transfer(bytes, _) => (Some(bytes), files),
            EndedKind::Reading => (Some(self.counts.pace.bytes_committed), read),
            EndedKind::Removal => (None, moved_away),
        };
        let record = AuditRecord { deed: AuditDeed::SessionEnded, what: Some(what), code, ..AuditRecord::default() };
        audit.keep(AuditRecord { bytes, count: Some(count), ..record });
    }
}

/// Ends a conversation of orders: says the fault by which it ends, and closes the connection. One
/// that is lost hears nothing any more.
pub(super) async fn part(control: &mut Control, fault: Option<&Fault>) {
    let fault = fault.filter(|fault| fault.code != FaultCode::Lost);
    if let Some(fault) = fault {
        let _ =
            timeout(LAST_WORD_TAKEN_WITHIN, write_message(&mut control.writer, &Message::Refuse(fault.clone()))).await;
    }
    let _ = timeout(LAST_WORD_TAKEN_WITHIN, control.writer.shutdown()).await;
    if fault.is_some() {
        // A connection that is closed on words which nobody read takes the fault with it.
        let _ = timeout(HEARD_OUT_FOR, copy(&mut control.reader, &mut sink())).await;
    }
}

/// CPU seconds of this side by stage, as a word of a log line: `hash:0.412,net:0.360,files:0.020`.
fn cpu_seconds(stages: &[(Stage, f64)]) -> String {
    if stages.is_empty() {
        return "none".to_owned();
    }
    stages.iter().map(|(stage, seconds)| format!("{stage}:{seconds:.3}")).collect::<Vec<_>>().join(",")
}

/// How long the last word of a conversation may take to leave.
const LAST_WORD_TAKEN_WITHIN: Duration = Duration::from_secs(5);
/// How long a client that was told a fault may take to go.
const HEARD_OUT_FOR: Duration = Duration::from_secs(2);
