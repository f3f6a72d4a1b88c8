//! Turns away connections that are not heard, because their key is no client's, or too many of that
//! key's are being heard.
//!
//! In: a control connection that has proved a key. Out: a refusal to it, or the rights that a
//! client lends it by a grant. No other word of a stranger is read into, so that it costs the
//! daemon no more than the handshake and one signature did. It knows no roots and no sessions.

use std::net::SocketAddr;
use std::time::Duration;

use longhaul_core::limits::MESSAGE_BYTES_MAX;
use longhaul_core::{Blame, Fault, FaultCode, hint};
use longhaul_net::{Control, PublicKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::Daemon;
use super::asked::Asked;
use super::audit::{AuditRecord, AuditWho};
use super::grants::LentRights;
use crate::session::channel::write_message;
use crate::session::handshake::HANDSHAKE;
use longhaul_proto::Message;
use longhaul_proto::wire::frame::{LENGTH_BYTES, announced};
use longhaul_proto::wire::grant::{GRANT_BYTES_MAX, SignedGrant};

/// Hears a grant that a stranger shows before anything else, and whether it is honoured. `None` if
/// it shows none: no other word of it is read.
pub(super) async fn hear_grant(daemon: &Daemon, control: &mut Control) -> Option<Result<LentRights, Fault>> {
    if !daemon.may_honour() {
        return None;
    }
    let (_seat, loss) = daemon.lobby.stranger(control.peer_addr.ip());
    let hearing = async {
        let mut header = [0; LENGTH_BYTES];
        control.reader.read_exact(&mut header).await.ok()?;
        let length = announced(header).ok().filter(|length| *length <= GRANT_MESSAGE_BYTES_MAX)?;
        let mut number = [0];
        control.reader.read_exact(&mut number).await.ok()?;
        if number[0] != Message::ShownGrant(SignedGrant::default()).number() {
            return None;
        }
        let mut bytes = vec![number[0]; length];
        control.reader.read_exact(&mut bytes[1..]).await.ok()?;
        match Message::decode(&bytes) {
            Ok(Message::ShownGrant(grant)) => Some(grant),
            _ => Some(SignedGrant::default()),
        }
    };
    let heard = tokio::select! {
        heard = timeout(GRANT_WITHIN, hearing) => heard.ok().flatten(),
        () = loss.happens() => None,
    };
    Some(daemon.honour(&heard?, control.peer_key))
}

/// Refuses a stranger whose grant is not honoured.
pub(super) async fn refuse_grant(daemon: &Daemon, control: Control, fault: Fault) {
    let asked = Asked::by_grant((control.peer_key, control.peer_addr));
    record_refused(daemon, &asked, (control.peer_addr, control.peer_key), &fault);
    turn_away_within(daemon, control, fault, AFTER_GRANT).await;
}

/// Records that a stranger's grant was refused, or what it asked for by a good one: each time in
/// the sums, and in the logs as often as other strangers.
pub(super) fn record_refused(daemon: &Daemon, asked: &Asked, stranger: (SocketAddr, PublicKey), fault: &Fault) {
    if daemon.notices.grant_refused(stranger, fault) {
        asked.refused(daemon, fault);
    } else {
        daemon.live.tallies.refused(fault.code);
    }
}

/// Refuses a stranger.
pub(super) async fn refuse(daemon: &Daemon, control: Control) {
    daemon.live.tallies.stranger();
    if daemon.notices.refused(control.peer_addr, control.peer_key) {
        let (peer, key) = (control.peer_addr.to_string(), control.peer_key.to_string());
        let (peer, key) = (Some(&*peer), Some(&*key));
        daemon.live.audit.keep(&AuditRecord {
            who: AuditWho { peer, key, ..AuditWho::default() },
            code: Some(FaultCode::Denied),
            ..AuditRecord::default()
        });
    }
    let fault = unknown(&control.peer_key);
    turn_away_within(daemon, control, fault, AFTER_GRANT).await;
}

/// Refuses a connection, and waits until it has hung up: a connection that is closed with its
/// request unread would be reset, and the refusal be lost on the way. As many are refused at a time
/// as there may be strangers.
pub(super) async fn turn_away(daemon: &Daemon, control: Control, why: Fault) {
    turn_away_within(daemon, control, why, HANDSHAKE).await;
}

async fn turn_away_within(daemon: &Daemon, mut control: Control, why: Fault, within: Duration) {
    let (_seat, loss) = daemon.lobby.stranger(control.peer_addr.ip());
    let told = async {
        if write_message(&mut control.writer, &Message::Refuse(why)).await.is_err()
            || control.writer.shutdown().await.is_err()
        {
            return;
        }
        let (mut unheard, mut bytes) = (vec![0; 4096], 0);
        while let Ok(n @ 1..) = control.reader.read(&mut unheard).await {
            bytes += n;
            if bytes > UNHEARD_BYTES_MAX {
                return;
            }
        }
    };
    tokio::select! {
        _ = timeout(within, told) => {}
        () = loss.happens() => {}
    }
}

/// The fault of a key that is no client's. The newcomer is told how to be let in, on its own side;
/// the daemon's log has no line to paste for a stranger.
pub(super) fn unknown(key: &PublicKey) -> Fault {
    Fault::new(FaultCode::Denied, Blame::Local, format_args!("this daemon does not know the key {key}"))
        .hint(hint::Daemon::SendKey)
}

/// Bytes of a message with a grant at most: its number, its length and its signature besides.
const GRANT_MESSAGE_BYTES_MAX: usize = GRANT_BYTES_MAX + 1 + 3 + 64;
/// A stranger that shows a grant does so at once.
const GRANT_WITHIN: Duration = Duration::from_secs(5);
/// A stranger that was heard for a grant is sent away in what is left of the time of a handshake.
const AFTER_GRANT: Duration = HANDSHAKE.saturating_sub(GRANT_WITHIN);
/// Bytes of a request that are skipped at most: twice the longest of an honest client.
const UNHEARD_BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;
