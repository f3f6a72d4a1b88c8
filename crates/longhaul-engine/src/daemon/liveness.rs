//! Shows from outside that a daemon lives: that each loop which accepts comes round, that the
//! threads which drive QUIC do, and that no session hangs in the middle of a round.
//!
//! In: the loops, which answer when they are asked. Out: to whoever supervises the daemon, that all
//! answered, or which one did not. A disk that hangs is no reason: sessions wait for it in order,
//! and a daemon that is started again would hang at it too. It knows no connections.

use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::session::rounds::SessionRounds;

/// Whether one daemon lives. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Liveness {
    loops: Arc<Mutex<Vec<(String, Watched)>>>,
    rounds: SessionRounds,
}

/// The part of a daemon that did not answer in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck(String);

/// The questions to a loop that accepts.
pub(super) struct LoopQuestions(mpsc::Receiver<oneshot::Sender<()>>);

#[derive(Clone, Debug)]
enum Watched {
    Loop(mpsc::Sender<oneshot::Sender<()>>),
    Threads(Handle),
}

impl Liveness {
    /// Waits until everything has answered, `within` at most.
    ///
    /// # Errors
    /// The first part that does not answer.
    pub async fn check(&self, within: Duration) -> Result<(), Stuck> {
        let loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let answers = loops.into_iter().map(|(name, watched)| {
            tokio::spawn(async move {
                let answered = timeout(within, watched.answers()).await;
                if answered == Ok(true) { Ok(()) } else { Err(Stuck(name)) }
            })
        });
        for answer in answers.collect::<Vec<_>>() {
            answer.await.unwrap_or_else(|error| Err(Stuck(error.to_string())))?;
        }
        let longest = self.rounds.longest();
        if longest > within { Err(Stuck(format!("a session (for {} s)", longest.as_secs()))) } else { Ok(()) }
    }

    /// Watches the loops of these sessions, and what is added.
    pub(super) fn of(rounds: SessionRounds) -> Liveness {
        Liveness { loops: Arc::default(), rounds }
    }

    /// Watches a loop that accepts, by a name for the log.
    pub(super) fn watch_loop(&self, name: String) -> LoopQuestions {
        let (asker, questions) = mpsc::channel(1);
        self.watch(name, Watched::Loop(asker));
        LoopQuestions(questions)
    }

    /// Watches the threads of a runtime.
    pub(super) fn watch_threads(&self, name: String, threads: Handle) {
        self.watch(name, Watched::Threads(threads));
    }

    fn watch(&self, name: String, watched: Watched) {
        self.loops.lock().unwrap_or_else(PoisonError::into_inner).push((name, watched));
    }
}

impl Watched {
    /// Whether it answers; it may take for ever.
    async fn answers(&self) -> bool {
        match self {
            Watched::Loop(asker) => {
                let (answer, answered) = oneshot::channel();
                asker.send(answer).await.is_ok() && answered.await.is_ok()
            }
            Watched::Threads(threads) => threads.spawn(async {}).await.is_ok(),
        }
    }
}

impl LoopQuestions {
    /// Answers the next question. Never returns if nobody asks any more. Cancelled, it loses
    /// nothing.
    pub(super) async fn answer(&mut self) {
        match self.0.recv().await {
            Some(question) => drop(question.send(())),
            None => pending().await,
        }
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn a_loop_that_does_not_come_round_is_named_and_one_that_does_is_not() {
        let liveness = Liveness::default();
        liveness.watch_threads("threads".to_owned(), Handle::current());
        let mut questions = liveness.watch_loop("the door".to_owned());
        assert_eq!(liveness.check(WITHIN).await, Err(Stuck("the door".to_owned())));
        let comes_round = tokio::spawn(async move {
            loop {
                questions.answer().await;
            }
        });
        assert_eq!(liveness.check(Duration::from_secs(60)).await, Ok(()));
        assert_eq!(liveness.check(Duration::from_secs(60)).await, Ok(()));
        comes_round.abort();
        assert!(comes_round.await.is_err());
        assert_eq!(liveness.check(Duration::from_secs(60)).await, Err(Stuck("the door".to_owned())), "it has ended");
    }

    #[tokio::test]
    async fn threads_that_are_all_busy_are_named() {
        let liveness = Liveness::default();
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        liveness.watch_threads("the drivers".to_owned(), threads.handle().clone());
        assert_eq!(liveness.check(Duration::from_secs(60)).await, Ok(()));
        let (go_on, waits) = std::sync::mpsc::channel::<()>();
        let busy = threads.spawn(async move { waits.recv().is_ok() });
        assert_eq!(liveness.check(WITHIN).await, Err(Stuck("the drivers".to_owned())));
        drop(go_on);
        assert!(!busy.await.unwrap());
        threads.shutdown_background();
    }

    #[tokio::test]
    async fn a_session_that_hangs_in_its_round_is_named() {
        let rounds = SessionRounds::default();
        let (liveness, round) = (Liveness::of(rounds.clone()), rounds.enter());
        round.begin();
        assert_eq!(liveness.check(Duration::from_secs(60)).await, Ok(()), "it has only begun");
        let stuck = liveness.check(Duration::ZERO).await.unwrap_err();
        assert!(stuck.to_string().starts_with("a session"), "{stuck}");
        round.end();
        assert_eq!(liveness.check(Duration::ZERO).await, Ok(()));
    }
}
