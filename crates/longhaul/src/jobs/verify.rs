//! The verifier: reads back what a campaign has delivered to a directory of this host, or has a
//! daemon read it, the files that were read the longest time ago first, at no more than a budget.
//!
//! `batch` judges some files, `ground` looks at them and reads them, `shard` has the names and
//! digests of a shard, `opening` finds both, `doubt` judges whether losses are to be believed,
//! `orders` are what it was told.
//! In: a queue, manifests, and orders how much and how long to read. Out: rows of bad files and of
//! the last readings, and events to a [`VerifyObserver`]. A verifier that is killed loses the batch
//! in hand. Must not know the command line.

mod batch;
mod doubt;
mod ground;
mod opening;
mod orders;
mod shard;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::{Blame, Fault, FaultCode};
use longhaul_jobs::pace::time_of;
use longhaul_jobs::queue::{
    FoundBad, VerifyAsk, VerifyHeard, VerifyNews, VerifyNext, VerifyShard, VerifyTurn, is_known_bad, note_verified,
    take_to_verify,
};
use longhaul_jobs::tenure::BEAT_EVERY;
use longhaul_jobs::{ClaimId, JobsError, Rows, ShardId};
use longhaul_manifest::Item;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use self::batch::{BatchFindings, ReadRules};
use self::doubt::{BatchLosses, LossWatch};
pub use self::orders::{AbsenceUse, ChangedUse, VerifyOrders, VerifyUntil};
use self::shard::{NamesBatch, ShardFiles};
use super::faults::fault_of_jobs;
use super::mover::{Halt, KeyRing, random};
use super::queue::SharedQueue;
use super::records::{self, DigestRecord};
use super::shelf::Shelf;

/// Hears what a verifier does. It must return quickly.
pub trait VerifyObserver: Send + Sync {
    /// A file is bad.
    fn bad(&self, news: &BadNews);
    /// A shard was read, or given back.
    fn shard_read(&self, read: &ShardRead);
    /// Something failed that concerns no single file.
    fn trouble(&self, fault: &Fault);
}

/// A file that is bad.
#[derive(Clone, Debug)]
pub struct BadNews {
    /// Its shard.
    pub shard: ShardId,
    /// The file.
    pub found: FoundBad,
    /// It was known to be bad in this way.
    pub is_known: bool,
}

/// How a verifier ended with a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardRead {
    /// The shard.
    pub shard: ShardId,
    /// The end that it came to.
    pub end: ShardReadEnd,
    /// Files that were looked at.
    pub files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Files of which nothing was known to compare them with: from now on there is.
    pub files_first: u64,
    /// Files that are bad.
    pub files_bad: u64,
    /// Files that somebody wrote to, and that are passed over.
    pub files_passed_over: u64,
}

/// The end of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardReadEnd {
    /// All of it was read.
    Through,
    /// It goes on there another time.
    GivenBack,
    /// Something of it cannot be read, which was told: it is tried again in a while.
    Failed,
    /// Another verifier has it, or a mover moves it again.
    Gone,
}

/// A verifier.
pub struct Verifier {
    queue: SharedQueue,
    shelf: Shelf,
    keys: Arc<dyn KeyRing>,
    orders: VerifyOrders,
    observer: Arc<dyn VerifyObserver>,
}

impl Verifier {
    /// A verifier of a campaign of a queue whose manifests lie on a shelf. A daemon that has the
    /// files is met with keys of this ring.
    pub fn new(
        (queue, shelf): (SharedQueue, Shelf),
        keys: Arc<dyn KeyRing>,
        orders: VerifyOrders,
        observer: Arc<dyn VerifyObserver>,
    ) -> Verifier {
        Verifier { queue, shelf, keys, orders, observer }
    }

    /// Reads shards until its orders or `halt` end it. A shard that cannot be read stops no other.
    ///
    /// # Errors
    /// The fault of a queue that does not answer, and that of many shards in a row that cannot be
    /// read.
    pub async fn run(&self, halt: Halt) -> Result<VerifyEnd, Fault> {
        let (stopper, stopping) = watch::channel(None);
        tokio::select! {
            ended = self.read_shards(stopping) => ended,
            never = stop_in_time(halt, self.orders.time_max, &stopper) => match never {},
        }
    }

    async fn read_shards(&self, mut stopping: Halt) -> Result<VerifyEnd, Fault> {
        let begun = self.transact(|rows| rows.now()).await?;
        let (mut watch, mut end, mut failed_in_a_row) = (LossWatch::default(), VerifyEnd::default(), 0);
        loop {
            if let Some(code) = *stopping.borrow() {
                return Ok(VerifyEnd { early: Some(code), ..end });
            }
            let id = ClaimId(random()?);
            let ask = VerifyAsk { campaign: self.orders.campaign, cycle: self.orders.cycle, begun, id };
            match self.transact(move |rows| take_to_verify(rows, &ask)).await? {
                VerifyTurn::Shard(given) => {
                    let mut read = ShardRead::of(given.shard.id);
                    let tried = self.read_shard((&given, id), (&mut read, &mut watch), &mut stopping).await;
                    let Err(fault) = self.leave((&given, id), tried).await? else {
                        failed_in_a_row = 0;
                        self.observer.shard_read(&read);
                        continue;
                    };
                    failed_in_a_row += 1;
                    if failed_in_a_row == FAILED_SHARDS_MAX {
                        return Err(fault);
                    }
                    self.observer.trouble(&fault);
                    self.observer.shard_read(&ShardRead { end: ShardReadEnd::Failed, ..read });
                    end.failed.get_or_insert(fault.code);
                }
                VerifyTurn::NothingDue(_) if self.orders.until == VerifyUntil::NothingDue => return Ok(end),
                VerifyTurn::NothingDue(due) => {
                    let pause = due.unwrap_or(LOOK_EVERY).min(LOOK_EVERY).max(LOOK_PAUSE_MIN);
                    wait(sleep(pause), &mut stopping).await;
                }
            }
        }
    }

    /// Reads a shard as far as it goes. Gives the fault of a shard that cannot be read.
    async fn read_shard(
        &self,
        (given, id): (&VerifyShard, ClaimId),
        (read, watch): (&mut ShardRead, &mut LossWatch),
        stopping: &mut Halt,
    ) -> Result<Result<(), Fault>, Fault> {
        let opened = tokio::select! {
            opened = self.files_of(given) => opened?,
            _ = stopping.wait_for(Option::is_some) => {
                let news = news_of(given, id, (given.entry, VerifyNext::GivesBack), BatchFindings::default());
                self.note(news).await?;
                read.end = ShardReadEnd::GivenBack;
                return Ok(Ok(()));
            }
        };
        let mut files = match opened {
            Ok(files) => files,
            Err(fault) => return self.give_back((given, id, given.entry), fault).await,
        };
        if let Some(fault) = files.damage() {
            self.observer.trouble(&fault);
        }
        let mut entry = given.entry;
        loop {
            let batch = files.batch(entry, self.batch_bytes());
            let begun = Instant::now();
            let looked = tokio::select! {
                looked = self.look_at(&files, &batch, stopping.clone()) => looked,
                () = self.keep_lease((given, id, entry)) => {
                    read.end = ShardReadEnd::Gone;
                    return Ok(Ok(()));
                }
            };
            let believed = match looked {
                Ok(Some(findings)) => self.believe(watch, (given, &files), findings).await,
                Ok(None) => {
                    let news = news_of(given, id, (entry, VerifyNext::GivesBack), BatchFindings::default());
                    self.note(news).await?;
                    read.end = ShardReadEnd::GivenBack;
                    return Ok(Ok(()));
                }
                Err(fault) => Err(fault),
            };
            let findings = match believed {
                Ok(findings) => findings,
                Err(fault) => return self.give_back((given, id, entry), fault).await,
            };
            entry = batch.end;
            let (is_through, bytes) = (files.is_through(entry), findings.bytes);
            read.add(&findings);
            self.tell_bad(given, &findings);
            if self.note_findings((given, id), entry, (&mut files, findings)).await? == VerifyHeard::Gone {
                read.end = ShardReadEnd::Gone;
                return Ok(Ok(()));
            }
            // The transfers keep the rate by themselves, but for their beginnings.
            if let Some(budget) = self.orders.budget {
                wait(sleep(time_of(bytes, budget).saturating_sub(begun.elapsed())), stopping).await;
            }
            if is_through {
                return Ok(Ok(()));
            }
        }
    }

    /// Reads a batch, unless it has a file that is never through in the time of the orders.
    async fn look_at(
        &self,
        files: &ShardFiles,
        batch: &NamesBatch,
        stopping: Halt,
    ) -> Result<Option<BatchFindings>, Fault> {
        if let (Some(budget), Some(most)) = (self.orders.budget, self.orders.time_max)
            && let Some(item) = batch.items.iter().find(|item| time_of(item.bytes(), budget) > most)
        {
            return Err(takes_too_long(item, time_of(item.bytes(), budget)));
        }
        batch::read(files, batch, self.rules(), stopping).await
    }

    /// Gives the findings, unless so many files are lost that the disk may not be mounted.
    async fn believe(
        &self,
        watch: &mut LossWatch,
        (given, files): (&VerifyShard, &ShardFiles),
        findings: BatchFindings,
    ) -> Result<BatchFindings, Fault> {
        let glance = BatchLosses::of(&findings, |found| is_known_bad(&given.bad, found));
        let (before, mark, use_of) = (watch.clone(), files.mark(), self.orders.absences);
        blocking(move || before.judge(glance, &mark, use_of)).await??;
        watch.add(glance);
        Ok(findings)
    }

    fn rules(&self) -> ReadRules {
        let VerifyOrders { budget, memory, changed, .. } = self.orders;
        ReadRules { budget, memory, changed }
    }

    /// Bytes of a batch: what is lost if the verifier is killed, but for a file that is larger.
    fn batch_bytes(&self) -> u64 {
        self.orders
            .budget
            .map_or(READ_BYTES_MAX, |budget| budget.saturating_mul(BATCH_SECONDS).clamp(READ_BYTES_MIN, READ_BYTES_MAX))
    }

    /// Notes findings, and then the digests of files that were read for the first time, while the
    /// shard is still this verifier's. What cannot be kept of them is read so again.
    async fn note_findings(
        &self,
        (given, id): (&VerifyShard, ClaimId),
        entry: u64,
        (files, mut findings): (&mut ShardFiles, BatchFindings),
    ) -> Result<VerifyHeard, Fault> {
        let is_through = files.is_through(entry);
        let first = std::mem::take(&mut findings.first);
        let next = if is_through && first.is_empty() { VerifyNext::IsThrough } else { VerifyNext::GoesOn };
        let heard = self.note(news_of(given, id, (entry, next), findings)).await?;
        if heard == VerifyHeard::Gone || first.is_empty() {
            return Ok(heard);
        }
        let (path, fresh) = files.note(first);
        let shown = path.clone();
        match blocking(move || DigestRecord::add(&path, &records::tag_of(id), fresh)).await? {
            // That it was damaged was told when the shard was opened.
            Ok(_) => {}
            Err(error) => self.observer.trouble(&records::unkept(&shown, &error)),
        }
        match is_through {
            true => self.note(news_of(given, id, (entry, VerifyNext::IsThrough), BatchFindings::default())).await,
            false => Ok(heard),
        }
    }

    fn tell_bad(&self, given: &VerifyShard, findings: &BatchFindings) {
        for found in &findings.bad {
            let is_known = is_known_bad(&given.bad, found);
            self.observer.bad(&BadNews { shard: given.shard.id, found: found.clone(), is_known });
        }
    }

    /// Says that it lives, until the shard is another's.
    async fn keep_lease(&self, (given, id, entry): (&VerifyShard, ClaimId, u64)) {
        loop {
            sleep(BEAT_EVERY).await;
            let beat = news_of(given, id, (entry, VerifyNext::GoesOn), BatchFindings::default());
            match self.queue.transact(move |rows| note_verified(rows, &beat)).await {
                Ok(VerifyHeard::Gone) => return,
                Ok(VerifyHeard::Recorded(_)) => {}
                // The next word of it is heard too, unless the shard is another's by then.
                Err(error) => self.observer.trouble(&fault_of_jobs(&error)),
            }
        }
    }

    /// Gives a shard back behind a fault of it: others go first for a while.
    async fn give_back(
        &self,
        (given, id, entry): (&VerifyShard, ClaimId, u64),
        fault: Fault,
    ) -> Result<Result<(), Fault>, Fault> {
        self.note(news_of(given, id, (entry, VerifyNext::Fails), BatchFindings::default())).await?;
        Ok(Err(fault))
    }

    /// Gives a shard back if it ended with a fault that ends the verifier.
    async fn leave(
        &self,
        (given, id): (&VerifyShard, ClaimId),
        tried: Result<Result<(), Fault>, Fault>,
    ) -> Result<Result<(), Fault>, Fault> {
        if tried.is_err() {
            let news = news_of(given, id, (given.entry, VerifyNext::GivesBack), BatchFindings::default());
            if let Err(error) = self.queue.transact(move |rows| note_verified(rows, &news)).await {
                tracing::debug!(%error, "the shard waits until the lease of its verifier has passed");
            }
        }
        tried
    }

    async fn note(&self, news: VerifyNews) -> Result<VerifyHeard, Fault> {
        self.transact(move |rows| note_verified(rows, &news)).await
    }

    /// Carries out a transaction; a store that fails is asked again for a minute.
    async fn transact<T: Send + 'static>(
        &self,
        work: impl Fn(&mut dyn Rows) -> Result<T, JobsError> + Clone + Send + 'static,
    ) -> Result<T, Fault> {
        let begun = Instant::now();
        loop {
            match self.queue.transact(work.clone()).await {
                Err(error @ JobsError::Store { .. }) if begun.elapsed() < STORE_PATIENCE => {
                    self.observer.trouble(&fault_of_jobs(&error));
                    sleep(STORE_PAUSE).await;
                }
                done => return done.map_err(|error| fault_of_jobs(&error)),
            }
        }
    }
}

/// How a verifier ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyEnd {
    /// The code of what ended it early: timed-out for the time of its orders.
    pub early: Option<FaultCode>,
    /// The code of the first shard that could not be read.
    pub failed: Option<FaultCode>,
}

impl ShardRead {
    fn of(shard: ShardId) -> ShardRead {
        let end = ShardReadEnd::Through;
        ShardRead { shard, end, files: 0, bytes: 0, files_first: 0, files_bad: 0, files_passed_over: 0 }
    }

    fn add(&mut self, findings: &BatchFindings) {
        self.files += findings.files;
        self.bytes = self.bytes.saturating_add(findings.bytes);
        self.files_first += findings.first.len() as u64;
        self.files_bad += findings.bad.len() as u64;
        self.files_passed_over += findings.passed_over;
    }
}

fn news_of(given: &VerifyShard, id: ClaimId, (entry, next): (u64, VerifyNext), findings: BatchFindings) -> VerifyNews {
    VerifyNews { shard: given.shard.id, id, entry, well: findings.well, bad: findings.bad, next }
}

fn takes_too_long(item: &Item, time: Duration) -> Fault {
    let (shown, seconds) = (item.path.escaped().to_string(), time.as_secs());
    let message = format_args!("reading '{shown}' takes {seconds} s at the budget, longer than the verifier is given");
    Fault::new(FaultCode::TimedOut, Blame::Local, message)
        .about(shown)
        .hint_in_words("let --max-time or --budget be larger: a file that was broken off begins anew")
}

/// Says when to stop: as somebody asks for it, or as the time is over.
async fn stop_in_time(
    mut halt: Halt,
    time_max: Option<Duration>,
    stopper: &watch::Sender<Option<FaultCode>>,
) -> Infallible {
    let deadline = async {
        match time_max {
            Some(time) => sleep(time).await,
            None => std::future::pending().await,
        }
    };
    let asked = async {
        match halt.wait_for(Option::is_some).await.map(|code| *code) {
            Ok(Some(code)) => code,
            _ => std::future::pending().await,
        }
    };
    let code = tokio::select! {
        code = asked => code,
        () = deadline => FaultCode::TimedOut,
    };
    stopper.send_replace(Some(code));
    std::future::pending().await
}

/// Waits for this, or until it is to stop.
async fn wait(time: impl Future<Output = ()>, stopping: &mut Halt) {
    tokio::select! {
        () = time => {}
        _ = stopping.wait_for(Option::is_some) => {}
    }
}

/// Runs work that may wait on a thread for it.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Fault> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Fault::new(FaultCode::Internal, Blame::Bug, error))
}

/// A verifier with nothing to read looks again so often: something may have been delivered.
const LOOK_EVERY: Duration = Duration::from_secs(60);
const LOOK_PAUSE_MIN: Duration = Duration::from_secs(1);
/// Bytes of a batch: those that the budget allows in some seconds, within bounds.
const BATCH_SECONDS: u64 = 20;
const READ_BYTES_MIN: u64 = 16 << 20;
const READ_BYTES_MAX: u64 = 4 << 30;
/// Shards in a row that cannot be read: what ails them ails the others too.
const FAILED_SHARDS_MAX: u32 = 10;
/// The pause behind a failure of the store, and the time after which a verifier gives up on it.
const STORE_PAUSE: Duration = Duration::from_secs(5);
const STORE_PATIENCE: Duration = Duration::from_secs(60);
