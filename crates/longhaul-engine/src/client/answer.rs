//! Judges the answer to a request: it may grant less than was asked for, and nothing else.
//!
//! In: a request, and what the other side agrees to. Out: the request as it was agreed on, or a
//! refusal. It dials nothing.

use std::time::Duration;

use longhaul_core::limits::{CHUNK_BYTES_USER_MIN, LANES_EVER_MAX};
use longhaul_core::{Blame, ByteCount, Fault, FaultCode, PathShare, Role, hint};
use longhaul_net::Protection;
use longhaul_proto::wire::message::{
    CAP_KNOWS_SHARED, CAP_REPLACED, CAP_UDP_BESIDE_TCP, GrantedLanes, Transfer, Welcome,
};

use crate::session::handshake;

/// Takes in whether UDP may stand beside TCP. Refuses an answer that grants more than was asked
/// for, smaller chunks than there may be, or less metadata.
pub(super) fn accept_answer(transfer: &mut Transfer, welcome: &Welcome, granted: &GrantedLanes) -> Result<(), Fault> {
    transfer.flow.tells_replaced &= transfer.role == Role::Sender && welcome.caps & CAP_REPLACED != 0;
    transfer.flow.udp_beside_tcp &= welcome.caps & CAP_UDP_BESIDE_TCP != 0;
    let sizes = [welcome.chunk.bytes(), welcome.chunk_max.bytes(), transfer.chunk_max.bytes()];
    if welcome.chunk.bytes() > transfer.chunk.bytes() || !sizes.is_sorted() {
        return Err(Fault::protocol("the other side chose larger chunks than were offered"));
    }
    if welcome.chunk.bytes() < CHUNK_BYTES_USER_MIN || granted.count > transfer.lanes {
        return Err(Fault::protocol("the other side chose smaller chunks or more lanes than there may be"));
    }
    if granted.first.0.checked_add(granted.count).is_none_or(|end| end > LANES_EVER_MAX) {
        return Err(Fault::protocol("the other side grants lanes beyond those that there may ever be"));
    }
    // Whoever sends keeps the share, and an older build takes what it can.
    if transfer.role == Role::Receiver && welcome.caps & CAP_KNOWS_SHARED == 0 {
        if transfer.flow.share == PathShare::Polite {
            let what = "the other side does not know how to send politely";
            return Err(Fault::new(FaultCode::Unsupported, Blame::Peer, what).hint(hint::Program::UpdateOrTakeShare));
        }
        tracing::warn!(target: "longhaul::session", "the other side is older, and leaves others on the path no share");
    }
    handshake::need_metadata(transfer.preserve, welcome)
}

/// Writes an agreement to the log.
pub(super) fn log_agreed(welcome: &Welcome, granted: &GrantedLanes, protection: Protection, answered_after: Duration) {
    let hex: String = welcome.session.iter().map(|byte| format!("{byte:02x}")).collect();
    tracing::debug!(
        target: "longhaul::session",
        session = %hex,
        chunks = %ByteCount(welcome.chunk.bytes()),
        chunks_at_most = %ByteCount(welcome.chunk_max.bytes()),
        files_in_bundles_up_to = %ByteCount(welcome.bundled_max),
        lanes = granted.count,
        lanes_at_most = welcome.lanes_max,
        daemons_rate = welcome.rate,
        protection = ?protection,
        answered_after_ms = answered_after.as_millis() as u64,
        "the daemon agrees to a session"
    );
}
