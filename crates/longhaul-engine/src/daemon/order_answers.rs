//! Answers about orders behind which nothing goes on: what this daemon knows to do with them, and
//! that the claim is kept by which a daemon is to send here.
//!
//! In: the daemon, or the destination of a push that only shows its claim. Out: the message to its
//! client. It reads and writes nothing itself, and knows no admission.

use longhaul_core::{Blame, Fault, FaultCode, ShardClaim, hint};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{ClaimKept, OrderSkills};

use super::Daemon;
use super::side::Side;

/// The things that this daemon knows to do with orders. A client that is a user of this host has
/// neither orders nor grants.
pub(super) fn skills(daemon: &Daemon) -> Message {
    let is_of_user = daemon.live.link.is_some() || daemon.roots.account.is_some();
    Message::OrderSkills(OrderSkills { lists: !is_of_user, stops: !is_of_user })
}

/// The answer to a push that only shows its claim, which was kept as its destination was opened.
/// Sessions by a grant show the same claim again.
///
/// # Errors
/// [`FaultCode::Unsupported`] of a destination that keeps no claims.
pub(super) fn kept(claim: &ShardClaim, side: &Side) -> Result<Message, Fault> {
    let ShardClaim { shard, fence, .. } = *claim;
    match side {
        Side::Receive(destination, _) if destination.claim.is_some() => {
            let root = &destination.place;
            tracing::info!(target: "longhaul::session", root, shard, fence, "a claim is kept for copies by another daemon");
            Ok(Message::ClaimKept(ClaimKept { shard, fence }))
        }
        _ => {
            let why = "the destination keeps no claims on shards";
            Err(Fault::new(FaultCode::Unsupported, Blame::Local, why).hint(hint::Program::UpdateOrShowNoClaim))
        }
    }
}
