//! Mends files that earlier readings have found, before anything else is read: a shard need not be
//! due for that.
//!
//! In: rows of bad files. Out: news of those files alone. The place at which the reading of a shard
//! goes on stays. Must not know how a file is copied.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use longhaul_core::{Blame, Fault, FaultCode};
use longhaul_jobs::pace::time_of;
use longhaul_jobs::queue::{VerifyAsk, VerifyNext, VerifyShard, take_to_mend};
use longhaul_jobs::{ClaimId, Micros, ShardId, ShardState};
use tokio::time::{Instant, sleep, sleep_until};

use super::candidate::MENDING_PASSES;
use super::sealed::{self, ReadingEnd};
use super::staging::Staging;
use crate::jobs::mover::{Halt, random};
use crate::jobs::spec::CampaignPlace;
use crate::jobs::verify::batch::BatchFindings;
use crate::jobs::verify::halting::wait;
use crate::jobs::verify::news::{ShardRead, ShardReadEnd, VerifyEnd};
use crate::jobs::verify::orders::MendOrders;
use crate::jobs::verify::trials::VerifyTrials;
use crate::jobs::verify::{FAILED_SHARDS_MAX, Verifier, blocking, news_of};

impl Verifier {
    /// Mends what is known to be bad, shard by shard, if the verifier was told to. Each shard is
    /// tried once, in half of the time of the orders at most: the rest is for what is due. A daemon
    /// that is away, and many shards that cannot be read, end it, and not the verifier. A sealed
    /// list of a dataset that is lost or damaged is told, and stays as it is.
    ///
    /// # Errors
    /// The fault of a queue that does not answer, and of a campaign that cannot be understood.
    pub(in crate::jobs::verify) async fn mend_known(
        &self,
        begun: Micros,
        (trials, end): (&mut VerifyTrials, &mut VerifyEnd),
        stopping: &mut Halt,
    ) -> Result<(), Fault> {
        let Some(orders) = &self.orders.mend else { return Ok(()) };
        if let CampaignPlace::Here(dest) = self.destination(orders) {
            blocking(move || Staging::clear_at(&dest)).await?;
        }
        let half = trials.deadline.map(|end| end - end.saturating_duration_since(Instant::now()) / 2);
        // Of which half is for the list, so that a long one does not keep files from being mended.
        let checked_by = half.map(|half| half - half.saturating_duration_since(Instant::now()) / 2);
        tokio::select! {
            checked = self.check_list(orders, end) => checked?,
            () = until(checked_by) => {
                let message = "the sealed list of the dataset was not read to its end: it takes too much of \
                               --max-time, and nobody knows whether all of it is whole";
                let fault = Fault::new(FaultCode::TimedOut, Blame::Local, message);
                self.observer.trouble(&fault.hint_in_words("let it run longer now and then, with a larger --max-time"));
            }
            _ = stopping.wait_for(Option::is_some) => return Ok(()),
        }
        let whole = std::mem::replace(&mut trials.deadline, half);
        let mended = self.mend_shards((orders, begun), (&mut *trials, end), stopping).await;
        trials.deadline = whole;
        mended
    }

    /// Tells that the sealed list of the campaign's dataset is lost or damaged, once the dataset
    /// has appeared. Whatever is mended is asked for in the list again by whoever mends it, who
    /// need not read all of it any more.
    async fn check_list(&self, orders: &MendOrders, end: &mut VerifyEnd) -> Result<(), Fault> {
        let Some(dataset) = self.dataset_here(orders)? else { return Ok(()) };
        let id = self.orders.campaign;
        let commit = self.transact(move |rows| rows.commit_of(id)).await?;
        if commit.is_none_or(|commit| commit.state != ShardState::Done) {
            return Ok(());
        }
        // Whoever no longer waits for it ends it.
        let (reading, ranges) = (ReadingEnd::default(), self.list_ranges.clone());
        let is_over = reading.flag();
        if let Err(fault) = blocking(move || sealed::check(&dataset, (&ranges, &is_over))).await? {
            self.observer.trouble(&fault);
            end.failed.get_or_insert(fault.code);
        }
        Ok(())
    }

    async fn mend_shards(
        &self,
        (orders, begun): (&MendOrders, Micros),
        (trials, end): (&mut VerifyTrials, &mut VerifyEnd),
        stopping: &mut Halt,
    ) -> Result<(), Fault> {
        let (mut after, mut failed) = (ShardId(0), 0);
        let is_over = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= Instant::now());
        while stopping.borrow().is_none() && failed < FAILED_SHARDS_MAX && !is_over(trials.deadline) {
            let (id, kinds) = (ClaimId(random()?), orders.kinds.clone());
            let ask = VerifyAsk { campaign: self.orders.campaign, cycle: self.orders.cycle, begun, id };
            let taken = self.transact(move |rows| take_to_mend(rows, &ask, (after, &kinds))).await?;
            let Some(given) = taken else { return Ok(()) };
            after = given.shard.id;
            let mut read = ShardRead::of(&given);
            let tried = self.mend_shard((&given, id), orders, (&mut read, &mut *trials), stopping).await;
            end.add(&read);
            if let Err(fault) = self.leave((&given, id, read.reached), tried).await? {
                self.observer.trouble(&fault);
                self.observer.shard_read(&read);
                if read.end != ShardReadEnd::Failed {
                    wait(sleep(trials.pause()), stopping).await;
                    return Ok(());
                }
                end.failed.get_or_insert(fault.code);
                failed += 1;
                continue;
            }
            self.observer.shard_read(&read);
        }
        Ok(())
    }

    /// Reads the files of a shard that are known to be bad, and mends them. Gives the fault of a
    /// shard that cannot be read.
    async fn mend_shard(
        &self,
        (given, id): (&VerifyShard, ClaimId),
        orders: &MendOrders,
        (read, trials): (&mut ShardRead, &mut VerifyTrials),
        stopping: &mut Halt,
    ) -> Result<Result<(), Fault>, Fault> {
        let mut files = match self.open((given, id), (&mut *read, &mut *trials), stopping).await? {
            ControlFlow::Continue(files) => files,
            ControlFlow::Break(ended) => return Ok(ended),
        };
        let meant = given.bad.iter().filter(|file| orders.kinds.contains(&file.kind));
        let paths: BTreeSet<&[u8]> = meant.map(|file| file.path.as_slice()).collect();
        for batch in files.batches_of(&paths, read.reached, self.batch_bytes()) {
            let bytes = batch.items.iter().fold(0_u64, |sum, item| sum.saturating_add(item.bytes()));
            if self.takes_too_long(bytes, trials.deadline) {
                tracing::info!(shard = given.shard.id.0, bytes, "too large to be mended in the time that is left");
                continue;
            }
            let told = (&mut *read, &mut *trials);
            if let ControlFlow::Break(ended) = self.read_batch((given, id), (&mut files, batch), told, stopping).await?
            {
                return Ok(ended);
            }
        }
        read.end = ShardReadEnd::Mended;
        let next = (read.reached, VerifyNext::GivesBack);
        self.note(news_of(given, id, next, BatchFindings::default())).await.map(|_| Ok(()))
    }

    /// Whether files of so many bytes cannot be read and mended in the time that is left.
    fn takes_too_long(&self, bytes: u64, deadline: Option<Instant>) -> bool {
        let (Some(budget), Some(deadline)) = (self.orders.budget, deadline) else { return false };
        let left = deadline.saturating_duration_since(Instant::now());
        time_of(bytes, budget).saturating_mul(MENDING_PASSES + 1) > left
    }
}

/// Waits until then. `None`: for ever.
async fn until(then: Option<Instant>) {
    match then {
        Some(then) => sleep_until(then).await,
        None => std::future::pending().await,
    }
}
