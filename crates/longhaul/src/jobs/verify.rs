//! The verifier: reads back what a campaign has delivered to a directory of this host, the files
//! that were read the longest time ago first, at no more than a budget.
//!
//! `batch` looks at some files and reads them, `shard` has the names and digests of a shard.
//! In: a queue, manifests, and orders how much and how long to read. Out: rows of bad files and of
//! the last readings, and events to a [`VerifyObserver`]. A verifier that is killed loses the batch
//! in hand. Must not know the command line.

mod batch;
mod shard;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::{Blame, ByteCount, Fault, FaultCode};
use longhaul_jobs::pace::time_of;
use longhaul_jobs::queue::{
    FoundBad, VerifyAsk, VerifyHeard, VerifyNews, VerifyNext, VerifyShard, VerifyTurn, mend, note_verified,
    take_to_verify,
};
use longhaul_jobs::tenure::BEAT_EVERY;
use longhaul_jobs::{BadKind, CampaignId, ClaimId, JobsError, Rows, ShardId};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use self::batch::{BatchFindings, ReadRules};
use self::shard::ShardFiles;
use super::faults::fault_of_jobs;
use super::mover::{Halt, random};
use super::queue::SharedQueue;
use super::shelf::Shelf;

/// The orders of a verifier.
#[derive(Clone, Debug)]
pub struct VerifyOrders {
    /// The campaign.
    pub campaign: CampaignId,
    /// The directory of this host that is the campaign's destination. `None`: it is one of this
    /// host by its name.
    pub at: Option<PathBuf>,
    /// Each byte is read once in this time.
    pub cycle: Duration,
    /// The rate that is not exceeded, bytes/s. `None`: as fast as it goes.
    pub budget: Option<u64>,
    /// When it ends by itself.
    pub until: VerifyUntil,
    /// The time for which it reads. `None`: any.
    pub time_max: Option<Duration>,
    /// Bad files of these kinds are copied anew.
    pub mends: Vec<BadKind>,
    /// The use of files that somebody wrote to.
    pub changed: ChangedUse,
    /// The use of shards of which nearly nothing can be read.
    pub absences: AbsenceUse,
    /// Buffers. `None`: the engine's.
    pub memory: Option<ByteCount>,
}

/// When a verifier ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyUntil {
    /// It does not: it waits until something is due.
    Never,
    /// Once nothing is due.
    NothingDue,
}

/// The use of files that have another length, time or kind than they were delivered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangedUse {
    /// They are bad: somebody changed them.
    Bad,
    /// They are passed over: those who may do so replaced them.
    PassedOver,
}

/// The use of many files of a shard that are lost or cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbsenceUse {
    /// The disk may not be mounted: nothing is recorded, and the verifier ends.
    Doubted,
    /// They are lost.
    Believed,
}

/// Hears what a verifier does. It must return quickly.
pub trait VerifyObserver: Send + Sync {
    /// A file is bad.
    fn bad(&self, news: &BadNews);
    /// A shard was read, or given back.
    fn shard_read(&self, read: &ShardRead);
    /// Bad files are copied anew by the next mover.
    fn mended(&self, files: u64);
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
    /// Another verifier has it, or a mover moves it again.
    Gone,
}

/// A verifier.
pub struct Verifier {
    queue: SharedQueue,
    shelf: Shelf,
    orders: VerifyOrders,
    observer: Arc<dyn VerifyObserver>,
}

impl Verifier {
    /// A verifier of a campaign of a queue whose manifests lie on a shelf.
    pub fn new(
        (queue, shelf): (SharedQueue, Shelf),
        orders: VerifyOrders,
        observer: Arc<dyn VerifyObserver>,
    ) -> Verifier {
        Verifier { queue, shelf, orders, observer }
    }

    /// Reads shards until its orders or `halt` end it. Gives the code of what ended it early:
    /// timed-out for the time of its orders.
    ///
    /// # Errors
    /// The fault of a queue that does not answer, of a manifest that cannot be read, of a
    /// destination that is none of this host or not there, and the one of files of which so many
    /// are lost that the disk may not be mounted.
    pub async fn run(&self, halt: Halt) -> Result<Option<FaultCode>, Fault> {
        let (stopper, stopping) = watch::channel(None);
        tokio::select! {
            ended = self.read_shards(stopping) => ended,
            never = stop_in_time(halt, self.orders.time_max, &stopper) => match never {},
        }
    }

    async fn read_shards(&self, mut stopping: Halt) -> Result<Option<FaultCode>, Fault> {
        self.mend_bad().await?;
        loop {
            if let Some(code) = *stopping.borrow() {
                return Ok(Some(code));
            }
            let id = ClaimId(random()?);
            let ask = VerifyAsk { campaign: self.orders.campaign, cycle: self.orders.cycle, id };
            match self.transact(move |rows| take_to_verify(rows, &ask)).await? {
                VerifyTurn::Shard(given) => {
                    let read = self.read_shard(&given, id, &mut stopping).await?;
                    self.observer.shard_read(&read);
                    if read.files_bad > 0 {
                        self.mend_bad().await?;
                    }
                }
                VerifyTurn::NothingDue(_) if self.orders.until == VerifyUntil::NothingDue => return Ok(None),
                VerifyTurn::NothingDue(due) => {
                    let pause = due.unwrap_or(LOOK_EVERY).min(LOOK_EVERY).max(LOOK_PAUSE_MIN);
                    wait(sleep(pause), &mut stopping).await;
                }
            }
        }
    }

    /// Reads a shard as far as it goes.
    async fn read_shard(&self, given: &VerifyShard, id: ClaimId, stopping: &mut Halt) -> Result<ShardRead, Fault> {
        let mut files = match self.files_of(given).await {
            Ok(files) => files,
            Err(fault) => return Err(self.give_back((given, id, given.entry), fault).await),
        };
        let mut read = ShardRead::of(given.shard.id);
        let mut entry = given.entry;
        loop {
            let batch = files.batch(entry, self.batch_bytes());
            let begun = Instant::now();
            let looked = tokio::select! {
                looked = batch::read(&files, &batch, self.rules(), stopping.clone()) => looked,
                () = self.keep_lease((given, id, entry)) => {
                    return Ok(ShardRead { end: ShardReadEnd::Gone, ..read });
                }
            };
            let findings = match looked {
                Ok(Some(findings)) => findings,
                Ok(None) => {
                    let news = news_of(given, id, (entry, VerifyNext::GivesBack), BatchFindings::default());
                    self.note(news).await?;
                    return Ok(ShardRead { end: ShardReadEnd::GivenBack, ..read });
                }
                Err(fault) => return Err(self.give_back((given, id, entry), fault).await),
            };
            entry = batch.end;
            let is_through = files.is_through(entry);
            let bytes = findings.bytes;
            read.add(&findings);
            self.keep_findings(&mut files, &findings).await;
            self.tell_bad(given, &findings);
            let next = if is_through { VerifyNext::IsThrough } else { VerifyNext::GoesOn };
            let heard = self.note(news_of(given, id, (entry, next), findings)).await?;
            if heard == VerifyHeard::Gone {
                return Ok(ShardRead { end: ShardReadEnd::Gone, ..read });
            }
            // The transfers keep the rate by themselves, but for their beginnings.
            if let Some(budget) = self.orders.budget {
                wait(sleep_until(begun + time_of(bytes, budget)), stopping).await;
            }
            if is_through {
                return Ok(read);
            }
        }
    }

    /// The names and digests of a shard.
    async fn files_of(&self, given: &VerifyShard) -> Result<ShardFiles, Fault> {
        let shard = given.shard.clone();
        let segment = self.transact(move |rows| segment_of(rows, &shard)).await?;
        let (shelf, given, at) = (self.shelf.clone(), given.clone(), self.orders.at.clone());
        blocking(move || ShardFiles::open(&shelf, &segment, &given, at.as_deref())).await?
    }

    fn rules(&self) -> ReadRules {
        let VerifyOrders { budget, memory, changed, absences, .. } = self.orders;
        ReadRules { budget, memory, changed, absences }
    }

    /// Bytes of a batch: what is lost if the verifier is killed, but for a file that is larger.
    fn batch_bytes(&self) -> u64 {
        self.orders
            .budget
            .map_or(READ_BYTES_MAX, |budget| budget.saturating_mul(BATCH_SECONDS).clamp(READ_BYTES_MIN, READ_BYTES_MAX))
    }

    /// Notes the digests of files that were read for the first time. What cannot be noted is read
    /// so again.
    async fn keep_findings(&self, files: &mut ShardFiles, findings: &BatchFindings) {
        if !files.note(findings) {
            return;
        }
        let (record, path) = files.record();
        if let Err(error) = blocking(move || record.write(&path)).await.unwrap_or(Ok(())) {
            let message = format_args!("digests of files that were read cannot be kept: {error}");
            let fault = Fault::new(FaultCode::Io, Blame::Local, message);
            self.observer
                .trouble(&fault.hint_in_words("see that the directory of the queue's manifests can be written"));
        }
    }

    fn tell_bad(&self, given: &VerifyShard, findings: &BatchFindings) {
        for found in &findings.bad {
            let is_known = given.bad.iter().any(|bad| (&bad.path, bad.kind) == (&found.path, found.kind));
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

    /// Gives a shard back behind a fault, which ends the verifier.
    async fn give_back(&self, (given, id, entry): (&VerifyShard, ClaimId, u64), fault: Fault) -> Fault {
        let news = news_of(given, id, (entry, VerifyNext::GivesBack), BatchFindings::default());
        if let Err(error) = self.queue.transact(move |rows| note_verified(rows, &news)).await {
            tracing::debug!(%error, "the shard waits until the lease of its verifier has passed");
        }
        fault
    }

    /// Has bad files copied anew, as far as that was asked for.
    async fn mend_bad(&self) -> Result<(), Fault> {
        if self.orders.mends.is_empty() {
            return Ok(());
        }
        let (mut files, mut after) = (0, Some(ShardId(0)));
        while let Some(from) = after {
            let (campaign, kinds) = (self.orders.campaign, self.orders.mends.clone());
            let (more, next) = self.transact(move |rows| mend(rows, campaign, &kinds, from)).await?;
            (files, after) = (files + more, next);
        }
        if files > 0 {
            self.observer.mended(files);
        }
        Ok(())
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

impl ShardRead {
    fn of(shard: ShardId) -> ShardRead {
        let end = ShardReadEnd::Through;
        ShardRead { shard, end, files: 0, bytes: 0, files_first: 0, files_bad: 0, files_passed_over: 0 }
    }

    fn add(&mut self, findings: &BatchFindings) {
        self.files += findings.files;
        self.bytes += findings.bytes;
        self.files_first += findings.first.len() as u64;
        self.files_bad += findings.bad.len() as u64;
        self.files_passed_over += findings.passed_over;
    }
}

fn news_of(given: &VerifyShard, id: ClaimId, (entry, next): (u64, VerifyNext), findings: BatchFindings) -> VerifyNews {
    VerifyNews { shard: given.shard.id, id, entry, well: findings.well, bad: findings.bad, next }
}

fn segment_of(rows: &mut dyn Rows, shard: &longhaul_jobs::Shard) -> Result<longhaul_jobs::Segment, JobsError> {
    let segments = rows.segments(shard.campaign)?;
    let found = segments.into_iter().find(|segment| segment.number == shard.part.segment);
    found.ok_or(JobsError::BadRow("a shard is of a segment that is not there"))
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
/// The pause behind a failure of the store, and the time after which a verifier gives up on it.
const STORE_PAUSE: Duration = Duration::from_secs(5);
const STORE_PATIENCE: Duration = Duration::from_secs(60);
