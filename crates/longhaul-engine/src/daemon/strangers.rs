//! Turns away connections that are not heard, because their key is no client's, or too many of that
//! key's are being heard.
//!
//! In: a control connection that has proved a key. Out: a refusal to it. A stranger's request is
//! not read into, so that it costs the daemon no more than the handshake did. It knows no roots and
//! no sessions.

use longhaul_core::limits::MESSAGE_BYTES_MAX;
use longhaul_core::{Blame, Fault, FaultCode, hint};
use longhaul_net::{Control, PublicKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::Daemon;
use super::audit::{AuditRecord, AuditWho};
use crate::session::channel::write_message;
use crate::session::handshake::HANDSHAKE;
use longhaul_proto::Message;

/// Refuses a stranger.
pub(super) async fn refuse(daemon: &Daemon, control: Control) {
    let (peer, key) = (Some(control.peer_addr), Some(control.peer_key));
    daemon.live.tallies.stranger();
    if daemon.notices.refused(control.peer_addr, control.peer_key) {
        daemon.live.audit.keep(&AuditRecord {
            who: AuditWho { peer, key, ..AuditWho::default() },
            code: Some(FaultCode::Denied),
            ..AuditRecord::default()
        });
    }
    let fault = unknown(&control.peer_key);
    turn_away(daemon, control, fault).await;
}

/// Refuses a connection, and waits until it has hung up: a connection that is closed with its
/// request unread would be reset, and the refusal be lost on the way. As many are refused at a time
/// as there may be strangers.
pub(super) async fn turn_away(daemon: &Daemon, mut control: Control, why: Fault) {
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
        _ = timeout(HANDSHAKE, told) => {}
        () = loss.happens() => {}
    }
}

/// The fault of a key that is no client's. The newcomer is told how to be let in, on its own side;
/// the daemon's log has no line to paste for a stranger.
pub(super) fn unknown(key: &PublicKey) -> Fault {
    Fault::new(FaultCode::Denied, Blame::Local, format_args!("this daemon does not know the key {key}"))
        .hint(hint::Daemon::SendKey)
}

/// Bytes of a request that are skipped at most: twice the longest of an honest client.
const UNHEARD_BYTES_MAX: usize = 2 * MESSAGE_BYTES_MAX;
