//! Mends files that earlier readings have found, before anything else is read: a shard need not be
//! due for that.
//!
//! In: rows of bad files. Out: news of those files alone. The place at which the reading of a shard
//! goes on stays. Must not know how a file is copied.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use longhaul_core::Fault;
use longhaul_jobs::queue::{VerifyAsk, VerifyNext, VerifyShard, take_to_mend};
use longhaul_jobs::{ClaimId, Micros, ShardId};

use super::staging::Staging;
use crate::jobs::mover::{Halt, random};
use crate::jobs::spec::CampaignPlace;
use crate::jobs::verify::batch::BatchFindings;
use crate::jobs::verify::news::{ShardRead, ShardReadEnd, VerifyEnd};
use crate::jobs::verify::orders::MendOrders;
use crate::jobs::verify::trials::VerifyTrials;
use crate::jobs::verify::{Verifier, blocking, news_of};

impl Verifier {
    /// Mends what is known to be bad, shard by shard, if the verifier was told to. Each shard is
    /// tried once.
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
        let mut after = ShardId(0);
        while stopping.borrow().is_none() {
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
                end.failed.get_or_insert(fault.code);
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
}
