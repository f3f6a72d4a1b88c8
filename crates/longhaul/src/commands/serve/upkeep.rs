//! Does what an administrator asks a running daemon for.
//!
//! In: requests that came through the socket. Out: figures of the engine as bodies of answers, and
//! lines in the log for whatever changes the daemon. Knows no connection.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use longhaul_core::Fault;
use longhaul_engine::{ClientFigures, Protection, RateOf, SessionFigures, StoredFigures};

use super::mover::MoverFigures;
use super::reload::{Reloader, changes};
use crate::admin::{Answer, Request, Upkeep};
use crate::output::{
    self, AdminClientBody, AdminDoneBody, AdminGrantBody, AdminLoadBody, AdminRootBody, AdminSessionBody,
    AdminStatusBody, AdminStoredBody,
};

/// A running daemon, as its administrator asks it.
pub(super) struct Asked(pub(super) Arc<Reloader>, pub(super) MoverFigures);

impl Upkeep for Asked {
    async fn answer(&self, request: Request) -> Vec<Answer> {
        match request {
            Request::Status => vec![Answer::Status(Box::new(self.status()))],
            Request::Sessions => {
                let sessions = self.0.service().sessions().into_iter();
                sessions.map(|session| Answer::Session(Box::new(body(session)))).collect()
            }
            Request::Clients => {
                let clients = self.0.service().clients().into_iter();
                clients.map(|client| Answer::Client(Box::new(client_body(client)))).collect()
            }
            deed => vec![match self.act(deed).await {
                Ok(done) => {
                    let told = done.details.join("; ");
                    // A reload has its line already.
                    if done.did != "reload" {
                        tracing::info!(target: "longhaul::serve", "admin {}: {}", done.did, output::clean(&told));
                    }
                    Answer::Done(done)
                }
                Err(fault) => Answer::Fault(Box::new(fault)),
            }],
        }
    }
}

impl Asked {
    /// Does what changes the daemon.
    async fn act(&self, deed: Request) -> Result<AdminDoneBody, Fault> {
        let service = self.0.service();
        match deed {
            Request::Reload => {
                let reloaded = self.0.reload("admin").await?;
                let mut details = changes(&reloaded);
                if details.is_empty() {
                    details.push("nothing has changed".to_owned());
                }
                Ok(done("reload", reloaded.ended.len(), details))
            }
            Request::Drain { deadline_ms } => {
                let deadline = deadline_ms.map(Duration::from_millis);
                let running = service.drain(deadline);
                let until = match deadline {
                    Some(time) => format!("ended in {} s", time.as_secs()),
                    None => "to the end".to_owned(),
                };
                let count = output::count(running as u64, "session");
                Ok(done("drain", running, vec![format!("no session begins any more; running: {count} ({until})")]))
            }
            Request::EndDrain => {
                service.end_drain();
                Ok(done("end-drain", 0, vec!["sessions may begin again".to_owned()]))
            }
            Request::SetRate { bytes_per_s, client, root } => {
                let (of, whose) = match (client, root) {
                    (Some(name), _) => (RateOf::Client(name.clone()), format!("the client '{name}'")),
                    (None, Some(name)) => (RateOf::Root(name.clone()), format!("the root '{name}'")),
                    (None, None) => (RateOf::All, "all sessions".to_owned()),
                };
                service.set_rate(&of, bytes_per_s)?;
                let rate = bytes_per_s.map_or_else(|| "none".to_owned(), |rate| output::rate(rate as f64));
                Ok(done("set-rate", 0, vec![format!("the rate of {whose} is {rate} until the next reload")]))
            }
            Request::Kick { session } => {
                let kicked = service.kick(&session)?;
                let detail = format!("ended: {} of {} ({})", kicked.what, kicked.client, kicked.name);
                Ok(done("kick", 1, vec![detail]))
            }
            Request::Revoke { client } => {
                let ended = service.revoke(&client)?;
                let count = output::count(ended as u64, "session");
                let detail = format!("the client '{client}' is not known until the next reload; {count} of it ended");
                Ok(done("revoke", ended, vec![detail]))
            }
            Request::Status | Request::Sessions | Request::Clients => Ok(AdminDoneBody::default()),
        }
    }

    fn status(&self) -> AdminStatusBody {
        let figures = self.0.service().status();
        let key = figures.listening.first().map(|(_, key)| key.to_string()).unwrap_or_default();
        AdminStatusBody {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            listen: figures.listening.iter().map(|(addr, _)| addr.to_string()).collect(),
            key,
            config: self.0.config().map(|path| path.display().to_string()),
            seconds: figures.age.as_secs_f64(),
            state: if figures.drains { "draining" } else { "serving" }.to_owned(),
            drain_s: figures.drain_deadline.map(|left| left.as_secs_f64()),
            load: AdminLoadBody {
                sessions: figures.sessions as u64,
                sessions_max: figures.sessions_max,
                memory_bytes: figures.memory_taken,
                memory_max: figures.memory_max,
                rate_per_s: figures.rate,
            },
            roots: figures.roots.into_iter().map(|(name, rate_per_s, has)| root_body(name, rate_per_s, has)).collect(),
            clients: figures.clients as u64,
            mover: self.1.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

fn done(did: &str, sessions: usize, details: Vec<String>) -> AdminDoneBody {
    AdminDoneBody { did: did.to_owned(), sessions: sessions as u64, details }
}

fn body(session: SessionFigures) -> AdminSessionBody {
    AdminSessionBody {
        session: session.name,
        client: session.client,
        peer: session.peer.to_string(),
        what: session.what,
        protect: if session.protection == Protection::Private { "private" } else { "safe" }.to_owned(),
        seconds: session.age.as_secs_f64(),
        files_committed: session.files,
        files_failed: session.failed,
        bytes_committed: session.pace.bytes_committed,
        bytes_moved: session.pace.bytes_moved,
        bytes_per_s: session.pace.bytes_per_s,
        limited_by: session.pace.limited_by.map(|limit| limit.name().to_owned()),
    }
}

fn client_body(client: ClientFigures) -> AdminClientBody {
    AdminClientBody {
        client: client.name,
        key: client.key.to_string(),
        roots: client.roots.into_iter().map(|(root, rights)| AdminGrantBody { root, rights }).collect(),
        bench: client.bench,
        rate_per_s: client.rate,
        sessions: Some(client.sessions as u64),
        stored: client.stored.map(stored_body),
    }
}

fn root_body(name: String, rate_per_s: Option<u64>, stored: Option<StoredFigures>) -> AdminRootBody {
    AdminRootBody { name, rate_per_s, stored: stored.map(stored_body) }
}

fn stored_body(figures: StoredFigures) -> AdminStoredBody {
    let StoredFigures { has, bytes_max, files_max } = figures;
    AdminStoredBody { bytes: has.bytes, bytes_max, files: has.files, files_max }
}
