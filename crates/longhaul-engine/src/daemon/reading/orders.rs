//! Has the orders of a conversation carried out, one after the other, and tells what was found.
//!
//! In: an order. Out: findings and names, as they come, and signs of life between them. Work that
//! nobody hears of is stopped. It reads nothing itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::limits::PAGE_BYTES_MAX;
use longhaul_core::{Blame, Fault, FaultCode, RelPath};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{FoundName, FoundNames, FoundThing, ReadOrder, ReadingWord};
use tokio::io::sink;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::files::{ReadingTree, need_sound};
use super::findings::Findings;
use super::names::NamesListed;
use crate::api::{Stop, StopTrigger};
use crate::daemon::live::{Counts, SessionCounter};
use crate::session::channel::{WriteHalf, write_message};
use crate::session::idle::Activity;
use crate::session::stopped::stopped;

/// The orders of a conversation, one after the other.
pub(super) struct ReadingOrders<'c> {
    /// The files.
    pub(super) tree: Arc<ReadingTree>,
    /// Ends the conversation.
    pub(super) stop: Stop,
    /// Shows since when nothing was asked for.
    pub(super) activity: Activity,
    /// The figures of the conversation.
    pub(super) counts: &'c mut Counts,
    /// Shows the same to the administrator.
    pub(super) counter: Arc<SessionCounter>,
    /// The way to the client.
    pub(super) writer: &'c mut WriteHalf,
}

impl ReadingOrders<'_> {
    /// Says what has some names.
    pub(super) async fn look(&mut self, names: Vec<RelPath>) -> Result<(), Fault> {
        need_sound(&names)?;
        let (tree, (findings, found), (stopper, stop)) = (self.tree.clone(), Findings::channel(), Stop::new());
        let work = async move { tree.look_at_all(names, findings, stop).await };
        self.tell(found, work, &stopper).await
    }

    /// Reads files, and tells each as it is read.
    pub(super) async fn read(&mut self, order: ReadOrder) -> Result<(), Fault> {
        need_sound(&order.names)?;
        let (tree, (findings, found), (stopper, stop)) = (self.tree.clone(), Findings::channel(), Stop::new());
        let work = async move { tree.read(order, findings, stop).await };
        self.tell(found, work, &stopper).await
    }

    /// Tells findings as they come, and now and then that the work is under way: the other side
    /// takes silence for an end. If nobody hears them any more, or the conversation is to end, the
    /// work is stopped, and awaited. It is a task of its own, which a client that takes nothing
    /// does not hold up.
    async fn tell(
        &mut self,
        mut found: mpsc::Receiver<FoundName>,
        work: impl Future<Output = Result<(), Fault>> + Send + 'static,
        stopper: &StopTrigger,
    ) -> Result<(), Fault> {
        let (mut work, mut done) = (tokio::spawn(work), None);
        let (mut stop, mut ends, mut said) = (self.stop.clone(), None, Ok(()));
        loop {
            let next = tokio::select! {
                biased;
                code = stop.stopped(), if ends.is_none() => {
                    stopper.stop(code);
                    ends = Some(code);
                    continue;
                }
                next = found.recv() => next,
                ended = &mut work, if done.is_none() => {
                    // Everything that it found is in the channel.
                    found.close();
                    done = Some(ended);
                    continue;
                }
                () = sleep(SIGN_OF_LIFE_EVERY) => {
                    if said.is_ok() {
                        said = self.say_alive().await;
                    }
                    if said.is_err() {
                        stopper.stop(FaultCode::Lost);
                    }
                    continue;
                }
            };
            let Some(first) = next else { break };
            let names = batch(first, &mut found);
            self.count(&names);
            if said.is_ok() {
                said = self.say(ReadingWord::Found(FoundNames { names, last: false })).await;
            }
            if said.is_err() {
                stopper.stop(FaultCode::Lost);
            }
        }
        let done = match done {
            Some(done) => done,
            None => work.await,
        };
        if let Some(code) = ends {
            return Err(stopped(code));
        }
        said?;
        done.map_err(|error| Fault::new(FaultCode::Internal, Blame::Bug, error))??;
        self.say(ReadingWord::Found(FoundNames { names: Vec::new(), last: true })).await
    }

    /// Lists a directory. One that cannot be listed is a finding: others still can.
    pub(super) async fn list(&mut self, dir: RelPath) -> Result<(), Fault> {
        let opening = NamesListed::open(self.tree.clone(), dir);
        let mut listed = match self.while_it_reads(opening, &AtomicBool::default()).await? {
            Ok(listed) => listed,
            Err(fault) => return self.say_unlisted(fault).await,
        };
        let unwanted = listed.unwanted();
        loop {
            match self.while_it_reads(listed.next(), &unwanted).await? {
                Ok(page) => {
                    let is_last = page.last;
                    self.say(ReadingWord::Names(page)).await?;
                    if is_last {
                        return Ok(());
                    }
                }
                Err(fault) => return self.say_unlisted(fault).await,
            }
        }
    }

    async fn say_unlisted(&mut self, fault: Fault) -> Result<(), Fault> {
        let names = vec![FoundName { at: 0, found: FoundThing::Failed(fault) }];
        self.say(ReadingWord::Found(FoundNames { names, last: true })).await
    }

    /// Waits for names, and says now and then that it lives. If nobody hears that any more, or the
    /// conversation is to end, the thread that reads is stopped, and awaited: it has what the
    /// conversation holds.
    async fn while_it_reads<T>(
        &mut self,
        reading: impl Future<Output = Result<T, Fault>>,
        unwanted: &AtomicBool,
    ) -> Result<Result<T, Fault>, Fault> {
        let (mut stop, mut reading) = (self.stop.clone(), std::pin::pin!(reading));
        let ended = loop {
            tokio::select! {
                biased;
                code = stop.stopped() => break stopped(code),
                read = &mut reading => return Ok(read),
                () = sleep(SIGN_OF_LIFE_EVERY) => {
                    if let Err(fault) = self.say_alive().await {
                        break fault;
                    }
                }
            }
        };
        unwanted.store(true, Ordering::Relaxed);
        let _ = reading.await;
        Err(ended)
    }

    /// Counts what was read, and what could not be.
    fn count(&mut self, names: &[FoundName]) {
        for name in names {
            match &name.found {
                FoundThing::Read { bytes, .. } => {
                    self.counts.read += 1;
                    self.counts.pace.bytes_committed = self.counts.pace.bytes_committed.saturating_add(*bytes);
                }
                FoundThing::Failed(_) => self.counts.failed += 1,
                _ => {}
            }
        }
        self.counter.set(*self.counts);
    }

    /// Says that the work goes on.
    async fn say_alive(&mut self) -> Result<(), Fault> {
        self.say(ReadingWord::Found(FoundNames { names: Vec::new(), last: false })).await
    }

    /// Says something. A word that is under way when the conversation is to end does not hold that
    /// up for long.
    pub(super) async fn say(&mut self, word: ReadingWord) -> Result<(), Fault> {
        let (mut stop, message) = (self.stop.clone(), Message::Reading(word));
        let ended = async {
            let code = stop.stopped().await;
            sleep(WORD_TAKEN_AT_END_WITHIN).await;
            stopped(code)
        };
        let said = tokio::select! {
            biased;
            said = timeout(FINDING_TAKEN_WITHIN, write_message(self.writer, &message)) => said.unwrap_or_else(|_| {
                Err(Fault::new(FaultCode::TimedOut, Blame::Peer, "the findings on files are not taken"))
            }),
            fault = ended => Err(fault),
        };
        match said {
            Ok(()) => self.activity.set(Instant::now()),
            // No other word may follow one that left in part.
            Err(_) => *self.writer = Box::new(sink()),
        }
        said
    }
}

/// The findings that are there, as many as fit a message.
fn batch(first: FoundName, found: &mut mpsc::Receiver<FoundName>) -> Vec<FoundName> {
    let (mut bytes, mut names) = (bytes_of(&first), vec![first]);
    while bytes < PAGE_BYTES_MAX / 2
        && let Ok(next) = found.try_recv()
    {
        bytes += bytes_of(&next);
        names.push(next);
    }
    names
}

/// Bytes of a finding in a message, at most: a fault has texts of 3 KiB.
fn bytes_of(name: &FoundName) -> usize {
    FINDING_BYTES
        + match &name.found {
            FoundThing::Link { target } => target.len(),
            FoundThing::Failed(_) => FINDING_TEXTS_BYTES,
            _ => 0,
        }
}

/// Bytes of a finding besides texts.
const FINDING_BYTES: usize = 64;
/// Bytes of the texts of a fault.
const FINDING_TEXTS_BYTES: usize = 4 << 10;
/// A conversation ends if a finding is not taken for this long.
const FINDING_TAKEN_WITHIN: Duration = Duration::from_secs(30);
/// Time between two signs of life.
const SIGN_OF_LIFE_EVERY: Duration = Duration::from_secs(4);
/// How long a word may still take that is under way when the conversation is to end.
const WORD_TAKEN_AT_END_WITHIN: Duration = Duration::from_secs(2);
