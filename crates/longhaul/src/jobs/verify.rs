//! The verifier: reads back what a campaign has delivered to a directory of this host, or has a
//! daemon read it, the files that were read the longest time ago first, at no more than a budget.
//!
//! `batch` judges some files, `ground` looks at them and reads them, `shard` has the names and
//! digests of a shard, `opening` finds both, `doubt` judges whether losses are to be believed,
//! `trials` which faults pass, `halting` when it stops, `orders` are what it was told, `news` what
//! it tells, `mend` copies bad files anew. In: a queue, manifests, and orders how much and how
//! long to read. Out: rows of bad files and of the last readings, and events to a
//! [`VerifyObserver`]. A verifier that is killed loses the batch in hand. Must not know the
//! command line.

mod batch;
mod doubt;
mod ground;
mod halting;
mod mend;
mod news;
mod opening;
mod orders;
mod shard;
mod trials;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::{Blame, Fault, FaultCode};
use longhaul_jobs::pace::time_of;
use longhaul_jobs::queue::{
    VerifyAsk, VerifyHeard, VerifyNews, VerifyNext, VerifyShard, VerifyTurn, is_known_bad, note_verified,
    take_to_verify,
};
use longhaul_jobs::tenure::BEAT_EVERY;
use longhaul_jobs::{ClaimId, JobsError, Rows};
use longhaul_manifest::Item;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use self::batch::{BatchFindings, ReadRules};
use self::doubt::{BatchLosses, LossWatch};
use self::halting::{stop_in_time, wait};
use self::mend::ListRanges;
pub use self::news::{BadNews, MendedFile, ShardRead, ShardReadEnd, VerifyEnd, VerifyObserver};
pub use self::orders::{AbsenceUse, ChangedUse, MendOrders, VerifyOrders, VerifyUntil};
use self::shard::{NamesBatch, ShardFiles};
use self::trials::VerifyTrials;
use super::faults::fault_of_jobs;
use super::mover::{Halt, KeyRing, random};
use super::queue::SharedQueue;
use super::records::{self, DigestRecord};
use super::shelf::Shelf;

/// A verifier.
pub struct Verifier {
    queue: SharedQueue,
    shelf: Shelf,
    keys: Arc<dyn KeyRing>,
    orders: VerifyOrders,
    observer: Arc<dyn VerifyObserver>,
    /// The ranges of the sealed list of the campaign's dataset, as far as this run has read it.
    list_ranges: Arc<ListRanges>,
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
        Verifier { queue, shelf, keys, orders, observer, list_ranges: Arc::default() }
    }

    /// Reads shards until its orders or `halt` end it. A shard that cannot be read stops no other.
    /// What it did is in `end`, also if it fails.
    ///
    /// # Errors
    /// The fault of a queue that does not answer, and that of many shards in a row that cannot be
    /// read.
    pub async fn run(&self, halt: Halt, end: &mut VerifyEnd) -> Result<(), Fault> {
        let (stopper, stopping) = watch::channel(None);
        tokio::select! {
            ended = self.read_shards(stopping, end) => ended,
            never = stop_in_time(halt, self.orders.deadline, &stopper) => match never {},
        }
    }

    async fn read_shards(&self, mut stopping: Halt, end: &mut VerifyEnd) -> Result<(), Fault> {
        let mut trials = VerifyTrials::until(self.orders.deadline);
        let begun = self.transact(|rows| rows.now()).await?;
        self.mend_known(begun, (&mut trials, &mut *end), &mut stopping).await?;
        loop {
            if let Some(code) = *stopping.borrow() {
                end.early = Some(code);
                return Ok(());
            }
            let id = ClaimId(random()?);
            let ask = VerifyAsk { campaign: self.orders.campaign, cycle: self.orders.cycle, begun, id };
            match self.transact(move |rows| take_to_verify(rows, &ask)).await? {
                VerifyTurn::Shard(given) => {
                    let mut read = ShardRead::of(&given);
                    let tried = self.read_shard((&given, id), (&mut read, &mut trials), &mut stopping).await;
                    end.add(&read);
                    let Err(fault) = self.leave((&given, id, read.reached), tried).await? else {
                        trials.failed_in_a_row = 0;
                        self.observer.shard_read(&read);
                        continue;
                    };
                    let is_failed = read.end == ShardReadEnd::Failed;
                    trials.failed_in_a_row += u32::from(is_failed);
                    if trials.failed_in_a_row == FAILED_SHARDS_MAX {
                        return Err(fault);
                    }
                    self.observer.trouble(&fault);
                    self.observer.shard_read(&read);
                    if is_failed {
                        end.failed.get_or_insert(fault.code);
                    } else {
                        wait(sleep(trials.pause()), &mut stopping).await;
                    }
                }
                VerifyTurn::NothingDue(_) if self.orders.until == VerifyUntil::NothingDue => return Ok(()),
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
        (read, trials): (&mut ShardRead, &mut VerifyTrials),
        stopping: &mut Halt,
    ) -> Result<Result<(), Fault>, Fault> {
        let mut files = match self.open((given, id), (&mut *read, &mut *trials), stopping).await? {
            ControlFlow::Continue(files) => files,
            ControlFlow::Break(ended) => return Ok(ended),
        };
        loop {
            let batch = files.batch(read.reached, self.batch_bytes());
            let told = (&mut *read, &mut *trials);
            if let ControlFlow::Break(ended) = self.read_batch((given, id), (&mut files, batch), told, stopping).await?
            {
                return Ok(ended);
            }
        }
    }

    /// Opens a shard. Breaks off with its end, if it cannot be opened.
    async fn open(
        &self,
        (given, id): (&VerifyShard, ClaimId),
        (read, trials): (&mut ShardRead, &mut VerifyTrials),
        stopping: &mut Halt,
    ) -> Result<ControlFlow<Result<(), Fault>, ShardFiles>, Fault> {
        // To find and ask a daemon may take longer than a lease.
        let opened = tokio::select! {
            opened = self.while_kept((given, id, given.entry), self.files_of(given)) => opened,
            _ = stopping.wait_for(Option::is_some) => {
                return self.stop_here((given, id), read).await.map(|()| ControlFlow::Break(Ok(())));
            }
        };
        let files = match opened {
            None => return Ok(ControlFlow::Break(read.gone())),
            Some(opened) => match opened? {
                Ok(files) => files,
                Err(fault) => {
                    let fault = self.give_back((given, id), (read, trials), fault).await?;
                    return Ok(ControlFlow::Break(Err(fault)));
                }
            },
        };
        if let Some(fault) = files.damage() {
            self.observer.trouble(&fault);
        }
        Ok(ControlFlow::Continue(files))
    }

    /// Reads some names of a shard, mends what is bad of them, if it was told to, and waits as long
    /// as they take at the budget. Breaks off with the end of the shard.
    async fn read_batch(
        &self,
        (given, id): (&VerifyShard, ClaimId),
        (files, batch): (&mut ShardFiles, NamesBatch),
        (read, trials): (&mut ShardRead, &mut VerifyTrials),
        stopping: &mut Halt,
    ) -> Result<ControlFlow<Result<(), Fault>>, Fault> {
        let (whole, halt, begun) = (&*files, stopping.clone(), Instant::now());
        let judged = async {
            let Some(findings) = self.look_at(whole, &batch, halt).await? else { return Ok(None) };
            self.believe(&mut trials.watch, (given, whole), findings).await.map(Some)
        };
        let findings = match self.while_kept((given, id, read.reached), judged).await {
            None => return Ok(ControlFlow::Break(read.gone())),
            Some(Ok(None)) => return self.stop_here((given, id), read).await.map(|()| ControlFlow::Break(Ok(()))),
            Some(Ok(Some(findings))) => findings,
            Some(Err(fault)) => {
                let fault = self.give_back((given, id), (read, trials), fault).await?;
                return Ok(ControlFlow::Break(Err(fault)));
            }
        };
        let (claim, until) = ((given, id, read.reached), (stopping.clone(), trials.deadline));
        let findings = self.mend(claim, (&*files, &batch), findings, until).await;
        let (is_through, bytes) = (files.is_through(batch.end), findings.bytes);
        read.add(&findings);
        self.tell_found(given, &findings);
        if self.note_findings((given, id), batch.end, (files, findings)).await? == VerifyHeard::Gone {
            return Ok(ControlFlow::Break(read.gone()));
        }
        read.reached = batch.end;
        trials.goes_on();
        // The transfers keep the rate by themselves, but for their beginnings and for holes.
        let taken = self.orders.budget.map_or(Duration::ZERO, |budget| time_of(bytes, budget));
        let pause = wait(sleep(taken.saturating_sub(begun.elapsed())), stopping);
        if is_through {
            // Nobody keeps it any more.
            pause.await;
            return Ok(ControlFlow::Break(Ok(())));
        }
        Ok(match self.while_kept((given, id, read.reached), pause).await {
            Some(()) => ControlFlow::Continue(()),
            None => ControlFlow::Break(read.gone()),
        })
    }

    /// Does some work, and says meanwhile that it lives. `None`: the shard is another's.
    async fn while_kept<T>(&self, kept: (&VerifyShard, ClaimId, u64), work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.keep_lease(kept) => None,
        }
    }

    /// Gives a shard back as the verifier is to stop.
    async fn stop_here(&self, (given, id): (&VerifyShard, ClaimId), read: &mut ShardRead) -> Result<(), Fault> {
        let next = (read.reached, VerifyNext::GivesBack);
        self.note(news_of(given, id, next, BatchFindings::default())).await?;
        read.end = ShardReadEnd::GivenBack;
        Ok(())
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
        // A disk may go while a shard of large files is read.
        let mark = if glance.has_none() { files.mark_now().await } else { files.mark() };
        let (before, use_of) = (watch.clone(), self.orders.absences);
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

    fn tell_found(&self, given: &VerifyShard, findings: &BatchFindings) {
        for file in &findings.mended {
            self.observer.mended(given.shard.id, file);
        }
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

    /// Gives a shard back behind a fault, which it returns. Behind one of the shard, others go
    /// first for a while.
    async fn give_back(
        &self,
        (given, id): (&VerifyShard, ClaimId),
        (read, trials): (&mut ShardRead, &mut VerifyTrials),
        fault: Fault,
    ) -> Result<Fault, Fault> {
        let (end, next) = match trials.may_pass(&fault, self.orders.until) {
            true => (ShardReadEnd::GivenBack, VerifyNext::GivesBack),
            false => (ShardReadEnd::Failed, VerifyNext::Fails),
        };
        self.note(news_of(given, id, (read.reached, next), BatchFindings::default())).await?;
        read.end = end;
        Ok(fault)
    }

    /// Gives a shard back if it ended with a fault that ends the verifier.
    async fn leave(
        &self,
        (given, id, reached): (&VerifyShard, ClaimId, u64),
        tried: Result<Result<(), Fault>, Fault>,
    ) -> Result<Result<(), Fault>, Fault> {
        if tried.is_err() {
            let news = news_of(given, id, (reached, VerifyNext::GivesBack), BatchFindings::default());
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
