//! Passes the bytes of a client's control connection on to the deputy of its user, and back.
//!
//! In: a control connection of a client that has a user. Out: the same bytes at the deputy, and the
//! facts that were proved of it. Nothing of them is read here: they are the deputy's to understand,
//! as the client's user. A client for which there is no deputy is refused.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::{Blame, Fault, FaultCode};
use longhaul_net::{Control, Seat};
use tokio::io::{AsyncWriteExt, copy};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::super::audit::{AuditDeed, AuditRecord, AuditWho};
use super::super::current::Current;
use super::super::{ClientConfig, Daemon, ServeConfig, strangers};
use super::conversation::{Conversation, Talker};
use super::message::{ControlFacts, TalkOpening, ToDeputy};
use crate::random::nonce;

/// Serves a client as the user `uid`.
pub(in super::super) async fn serve(current: Arc<Current>, control: Control, uid: u32, seat: Seat) {
    let daemon = current.now();
    let client = Talker { key: control.peer_key, uid, peer: control.peer_addr };
    match hand_over(&current, &daemon, ControlFacts::of(&control), (client, seat)).await {
        Ok((stream, conversation)) => pass(control, stream, &conversation).await,
        Err(fault) => {
            let (peer, code) = (control.peer_addr, fault.code.name());
            tracing::info!(target: "longhaul::session", %peer, code, "refused: {fault}");
            daemon.live.tallies.refused(fault.code);
            let name = daemon.client(&client.key).ok().map(|client| client.name.as_str());
            let (key, from) = (client.key.to_string(), peer.to_string());
            let who = AuditWho { session: None, client: name, key: Some(&key), peer: Some(&from) };
            let (deed, what) = (AuditDeed::Refused, Some("a connection of a client with a user"));
            let record = AuditRecord { deed, who, what, code: Some(fault.code), ..AuditRecord::default() };
            daemon.live.audit.keep(&record);
            strangers::turn_away(&daemon, control, fault).await;
        }
    }
}

/// A conversation that is taken out as this is dropped.
struct EnteredTalk(Arc<Conversation>, Arc<super::deputies::Deputy>, Arc<Daemon>);

impl Drop for EnteredTalk {
    fn drop(&mut self) {
        self.2.live.deputies.leave(&self.1, self.0.talk, &self.0.session);
    }
}

/// Opens a conversation with the deputy. Returns the way to it.
async fn hand_over(
    current: &Arc<Current>,
    daemon: &Arc<Daemon>,
    facts: ControlFacts,
    (client, seat): (Talker, Seat),
) -> Result<(UnixStream, EnteredTalk), Fault> {
    let (config, session) = (config_for(daemon, daemon.client(&client.key)?), nonce()?);
    let begin = |talk, deputy: &Arc<_>| Conversation::new((talk, session), client, current.clone(), Arc::clone(deputy));
    let terms = facts.udp_terms(session);
    let (deputy, conversation) = daemon.live.deputies.enter(client.uid, terms, begin).await?;
    let entered = EnteredTalk(conversation.clone(), deputy.clone(), daemon.clone());
    conversation.sit(seat);
    let failed = |error: std::io::Error| Fault::new(FaultCode::Io, Blame::Local, error);
    let (here, there) = UnixStream::pair().map_err(failed)?;
    let there = OwnedFd::from(there.into_std().map_err(failed)?);
    let (recorded, has_udp) = (daemon.live.audit.state(), !daemon.registry.bars_udp());
    let opening = TalkOpening { talk: conversation.talk, session, facts, config, recorded, has_udp };
    let converse = ToDeputy::Converse(Box::new(opening));
    // One that cannot be said would end all others of this user.
    super::channel::encode(&converse).map_err(failed)?;
    deputy.say(converse, Some(there))?;
    Ok((here, entered))
}

/// The configuration as far as it concerns a client.
fn config_for(daemon: &Daemon, client: &ClientConfig) -> ServeConfig {
    let config = &daemon.config;
    let roots = config.roots.iter().filter(|root| client.roots.contains_key(&root.name)).cloned().collect();
    ServeConfig { file: None, listen: Vec::new(), roots, clients: vec![client.clone()], ..config.clone() }
}

/// Passes bytes both ways until both sides have said everything, or one is gone.
async fn pass(control: Control, stream: UnixStream, conversation: &EnteredTalk) {
    let Control { mut reader, mut writer, .. } = control;
    let (mut from, mut to) = stream.into_split();
    let up = async {
        let _ = copy(&mut reader, &mut to).await;
        let _ = to.shutdown().await;
    };
    let down = async {
        let _ = copy(&mut from, &mut writer).await;
        let _ = writer.shutdown().await;
    };
    tokio::pin!(up, down);
    let (mut has_heard, mut has_said) = (false, false);
    loop {
        tokio::select! {
            () = &mut up, if !has_heard => has_heard = true,
            () = &mut down, if !has_said => has_said = true,
            () = conversation.0.over.notified() => break,
        }
    }
    if !has_said {
        // What it has said last is on its way to the client.
        let _ = timeout(LAST_WORDS, down).await;
    }
}

/// How long a client may take to hear the last words of a deputy that has closed its end.
const LAST_WORDS: Duration = Duration::from_secs(10);
