//! One conversation, as the deputy has it: what its session asks of the daemon.
//!
//! In: a session that wants to begin, memory that is needed, figures. Out: the grant or the
//! refusal, the memory of the conversation as a pool that grows ahead of what is used, the rate as
//! it changes, and the end. It knows no bytes of the client.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use longhaul_core::{Blame, Fault, FaultCode, PlainText, Transport};
use tokio::sync::{Mutex as AsyncMutex, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{interval, sleep};

use super::super::live::{Needs, SessionCounter, SessionName};
use super::super::shares::ClientShares;
use super::message::{Granted, Outcome, SessionWish, TalkId, ToDaemon};
use crate::api::StopTrigger;
use crate::session::SessionEvent;
use longhaul_net::Protection;

/// A conversation's way to the daemon. See the module.
pub(in super::super) struct DaemonLink {
    talk: TalkId,
    session: SessionName,
    says: mpsc::UnboundedSender<ToDaemon>,
    pool: ClientShares,
    /// Counts the answers about memory.
    answers: watch::Sender<u64>,
    /// Held while the daemon is asked for memory.
    asking: AsyncMutex<()>,
    heard: Mutex<LinkState>,
}

#[derive(Default)]
struct LinkState {
    begin: Option<oneshot::Sender<Result<Granted, Fault>>>,
    rate: Option<u64>,
    sink: Option<mpsc::UnboundedSender<SessionEvent>>,
    trigger: Option<StopTrigger>,
    /// The session is to end, and has not begun yet.
    ends: Option<FaultCode>,
}

/// A session that the daemon lets run. The daemon takes back what it had when this is dropped.
pub(in super::super) struct LinkedSession {
    link: Arc<DaemonLink>,
    figures: Option<JoinHandle<()>>,
}

impl DaemonLink {
    /// The link of a conversation, which has no memory yet.
    pub(super) fn new(talk: TalkId, session: SessionName, says: mpsc::UnboundedSender<ToDaemon>) -> DaemonLink {
        let (pool, answers) = (ClientShares::whole("memory", 0), watch::Sender::new(0));
        DaemonLink { talk, session, says, pool, answers, asking: AsyncMutex::default(), heard: Mutex::default() }
    }

    /// The name of its session.
    pub(in super::super) fn session(&self) -> SessionName {
        self.session
    }

    /// The memory of the conversation.
    pub(super) fn pool(&self) -> &ClientShares {
        &self.pool
    }

    /// Asks the daemon to let the session begin, and to end it by `trigger`.
    pub(in super::super) async fn begin(
        self: &Arc<Self>,
        (what, receives, needs): (String, bool, Needs),
        (protection, transport): (Protection, Transport),
        own_rate: u64,
        trigger: StopTrigger,
    ) -> Result<LinkedSession, Fault> {
        let (answer, answered) = oneshot::channel();
        {
            let mut heard = self.heard();
            if let Some(code) = heard.ends {
                return Err(Fault::new(code, Blame::Local, "the session ends before it began"));
            }
            (heard.begin, heard.trigger) = (Some(answer), Some(trigger));
        }
        let (what, own_rate) = (PlainText::from(what), Some(own_rate));
        let wish = SessionWish { what, protection, transport, receives, needs, own_rate };
        self.say(ToDaemon::Begin(self.talk, wish));
        // From now on the daemon may have given something.
        let session = LinkedSession { link: self.clone(), figures: None };
        let gone = |_| Fault::new(FaultCode::Busy, Blame::Local, "the daemon has ended");
        let granted = answered.await.map_err(gone)??;
        let mut heard = self.heard();
        // A change of it may have come by now.
        heard.rate = heard.rate.or(granted.rate);
        drop(heard);
        Ok(session)
    }

    /// Waits for the memory with which a request is answered, as far as the daemon has it. Who has
    /// asked for nothing yet is given none.
    pub(in super::super) async fn reserve_first(&self) {
        self.reserve(AHEAD).await;
    }

    /// Waits until `bytes` of memory could be claimed, as far as the daemon has them.
    pub(in super::super) async fn reserve(&self, bytes: u64) {
        let _alone = self.asking.lock().await;
        let (taken, total) = self.pool.taken();
        let missing = (taken + bytes).saturating_sub(total);
        if missing > 0 {
            let mut answers = self.answers.subscribe();
            answers.mark_unchanged();
            self.say(ToDaemon::Memory(self.talk, missing));
            let _ = answers.changed().await;
        }
    }

    /// Keeps more memory in the pool than is used, as lanes and lists do not wait for it.
    pub(super) async fn keep_ahead(self: Arc<Self>) {
        loop {
            self.pool.wanted().await;
            let (taken, before) = self.pool.taken();
            self.reserve(AHEAD.max(taken / 2)).await;
            if self.pool.taken().1 == before {
                // The daemon has none, or it was there already.
                sleep(ASKED_AGAIN).await;
            }
        }
    }

    /// Hears what the daemon has granted.
    pub(super) fn granted(&self, granted: Result<Granted, Fault>) {
        if let Some(begin) = self.heard().begin.take() {
            let _ = begin.send(granted);
        }
    }

    /// Hears how much memory there is.
    pub(super) fn has_memory(&self, bytes: u64) {
        self.pool.limit(bytes, std::collections::HashMap::new());
        self.answers.send_modify(|answers| *answers += 1);
    }

    /// Hears another rate.
    pub(super) fn set_rate(&self, rate: Option<u64>) {
        let mut heard = self.heard();
        heard.rate = rate;
        if let Some(sink) = &heard.sink {
            // A session that has ended hears nothing.
            let _ = sink.send(SessionEvent::OwnRate(rate));
        }
    }

    /// Hears that the session is to end.
    pub(super) fn end(&self, code: FaultCode) {
        let mut heard = self.heard();
        heard.ends = Some(code);
        if let Some(trigger) = &heard.trigger {
            trigger.stop(code);
        }
    }

    /// Tells the daemon the outcome of what the client asked for.
    pub(in super::super) fn outcome(&self, outcome: Outcome) {
        self.say(ToDaemon::Outcome(self.talk, outcome));
    }

    fn say(&self, message: ToDaemon) {
        // A daemon that is gone ends this process.
        let _ = self.says.send(message);
    }

    fn heard(&self) -> MutexGuard<'_, LinkState> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DaemonLink {
    fn drop(&mut self) {
        self.say(ToDaemon::Over(self.talk));
    }
}

impl LinkedSession {
    /// The rate of the session now, bytes/s. Changes go to `sink` from now on.
    pub(in super::super) fn rate(&self, sink: mpsc::UnboundedSender<SessionEvent>) -> Option<u64> {
        let mut heard = self.link.heard();
        heard.sink = Some(sink);
        heard.rate
    }

    /// Shows the session's figures to the daemon, once a second.
    pub(in super::super) fn show(&mut self, counter: Arc<SessionCounter>) {
        let (says, talk) = (self.link.says.clone(), self.link.talk);
        self.figures = Some(tokio::spawn(async move {
            let mut seconds = interval(FIGURES_EVERY);
            while says.send(ToDaemon::Figures(talk, counter.counts())).is_ok() {
                seconds.tick().await;
            }
        }));
    }
}

impl Drop for LinkedSession {
    fn drop(&mut self) {
        if let Some(figures) = &self.figures {
            figures.abort();
        }
        let mut heard = self.link.heard();
        (heard.sink, heard.trigger) = (None, None);
        drop(heard);
        self.link.say(ToDaemon::Ended(self.link.talk));
    }
}

/// Bytes that the pool has beyond what is used, at least: four chunks of the default size.
const AHEAD: u64 = 16 << 20;
/// When the daemon is asked again for memory that it did not have.
const ASKED_AGAIN: Duration = Duration::from_millis(500);
/// How often figures are shown: as often as an administrator's list changes.
const FIGURES_EVERY: Duration = Duration::from_secs(1);
