//! Answers about orders behind which nothing goes on: what this daemon knows to do with them, and
//! that the claim is kept by which a daemon is to send here.
//!
//! In: the daemon, or the admission of a push that only shows its claim. Out: the message to its
//! client, and a record of the claim in the log and the audit log. It admits nothing itself.

use std::net::SocketAddr;

use longhaul_core::{Blame, Fault, FaultCode, ShardClaim, hint};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{ClaimKept, OrderSkills};

use crate::daemon::Daemon;
use crate::daemon::admission::Admission;
use crate::daemon::audit::{AuditDeed, AuditRecord};
use crate::daemon::side::Side;

/// The things that this daemon knows to do with orders. A client that is a user of this host has
/// neither orders nor grants.
pub(in crate::daemon) fn skills(daemon: &Daemon) -> Message {
    let is_of_user = is_of_user(daemon);
    Message::OrderSkills(OrderSkills { lists: !is_of_user, stops: !is_of_user })
}

/// Whether its clients are users of this host, and have neither orders nor grants.
fn is_of_user(daemon: &Daemon) -> bool {
    daemon.live.link.is_some() || daemon.roots.account.is_some()
}

/// Refuses to keep a claim for another daemon where none could show a grant.
///
/// # Errors
/// [`FaultCode::Unsupported`] of a client that is a user of this host.
pub(in crate::daemon) fn need_lending(daemon: &Daemon) -> Result<(), Fault> {
    if !is_of_user(daemon) {
        return Ok(());
    }
    let why = "keys that are served as a user of the daemon's host cannot lend a claim";
    Err(Fault::new(FaultCode::Unsupported, Blame::Local, why).hint(hint::Program::UpdateOrShowNoClaim))
}

/// The answer to a push that only shows its claim, which was kept as its destination was opened;
/// its client comes from this address. Sessions by a grant show the same claim again.
///
/// # Errors
/// [`FaultCode::Unsupported`] of a destination that keeps no claims.
pub(in crate::daemon) fn kept(
    claim: &ShardClaim,
    (admission, peer): (&Admission, SocketAddr),
) -> Result<Message, Fault> {
    let ShardClaim { shard, fence, .. } = *claim;
    match &admission.side {
        Side::Receive(destination, _) if destination.claim.is_some() => {
            let (root, client) = (&destination.place, &admission.client);
            let why = "a claim is kept for copies by another daemon";
            tracing::info!(target: "longhaul::session", %peer, %client, root, shard, fence, "{why}");
            let what = format!("claim on shard {shard} with fence {fence}, {}", admission.description);
            let record = AuditRecord { deed: AuditDeed::ClaimKept, what: Some(&what), ..AuditRecord::default() };
            admission.holdings.audit.keep(record);
            Ok(Message::ClaimKept(ClaimKept { shard, fence }))
        }
        _ => {
            let why = "the destination keeps no claims on shards";
            Err(Fault::new(FaultCode::Unsupported, Blame::Local, why).hint(hint::Program::UpdateOrShowNoClaim))
        }
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::Rights;
    use longhaul_disk::DirectMode;

    use super::*;
    use crate::daemon::account::PipeAccount;
    use crate::daemon::live::tests::daemon;

    #[test]
    fn of_a_client_that_is_a_user_of_the_host_no_order_is_known_and_no_claim_is_lent() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut daemon = daemon(dir.path(), None, Rights::default());
        let said = |daemon: &Daemon| (skills(daemon), need_lending(daemon).map_err(|fault| fault.code));
        let known = |lists, stops| Message::OrderSkills(OrderSkills { lists, stops });
        assert_eq!(said(&daemon), (known(true, true), Ok(())));
        let account = PipeAccount::open(None, Vec::new(), (DirectMode::Auto, 1), None).expect("nothing is opened");
        daemon.roots.account = Some(std::sync::Arc::new(account));
        assert_eq!(said(&daemon), (known(false, false), Err(FaultCode::Unsupported)));
    }
}
