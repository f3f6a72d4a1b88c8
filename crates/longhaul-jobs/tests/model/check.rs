//! The promises, and the moments at which they are held.
//!
//! In: the world after a step, or at its end. Out: the first promise that is broken. Must not know
//! how the world came there.

use std::collections::BTreeMap;

use longhaul_core::FaultCode;
use longhaul_jobs::left::left;
use longhaul_jobs::queue::Granted;
use longhaul_jobs::{
    CampaignId, Due, FaultState, Fence, Hold, PermitPlace, Shard, ShardId, ShardKind, ShardState, Store, TimeLeft,
};

use crate::world::{World, path_of};

impl World {
    pub(crate) fn breaks(&mut self, promise: String) {
        self.broken.get_or_insert(promise);
    }

    /// Promises of the rows, after each transaction.
    pub(crate) fn check_rows(&mut self) {
        let due = Due::at(self.store.now, longhaul_jobs::tenure::LEASE);
        let shards: BTreeMap<ShardId, _> = self.store.all_shards().map(|shard| (shard.id, shard.clone())).collect();
        let mut live: BTreeMap<PermitPlace, u32> = BTreeMap::new();
        let mut found = None;
        for permit in self.store.all_permits().filter(|permit| !due.has_passed(permit.until)) {
            *live.entry(permit.place).or_default() += 1;
            if shards[&permit.shard].lease_of(permit.claim).is_none() {
                found = Some(format!("{permit:?} is of no claim that has its shard"));
            }
        }
        for (place, count) in live {
            let most = self.permits[&place];
            if count > most {
                found = Some(format!("{place:?} has {count} movers of {most}"));
            }
        }
        for shard in shards.values() {
            // A lease that had passed by a clock an hour ahead, and has not when that is set back,
            // may have lost its permits in between: its next heartbeat finds that.
            let permits =
                || self.store.all_permits().filter(|permit| permit.shard == shard.id && permit.claim == shard.claim);
            if let ShardState::Leased(lease) = shard.state
                && !self.clock_was_set
                && !due.has_passed(lease.until)
                && permits().count() != 3
            {
                found = Some(format!("{:?} is leased, and has {} permits", shard.id, permits().count()));
            }
            if let Err(error) = shard.left() {
                found = Some(format!("{error}"));
            }
            let stand = self.destination.standing(shard.id).len() as u64;
            if shard.done.files > stand {
                found = Some(format!("{:?} says that {} files stand, and {stand} do", shard.id, shard.done.files));
            }
            let fence = self.fences.entry(shard.id).or_insert(shard.claim);
            let (before, now) = (*fence, shard.claim);
            if now.fence < before.fence || now.fence == before.fence && now.id != before.id && now.fence != Fence(0) {
                found = Some(format!("{:?}: the fence went from {before:?} to {now:?}", shard.id));
            }
            *fence = now;
        }
        if let Some(promise) = found {
            self.breaks(promise);
        }
    }

    /// A shard was claimed: in open hours, not before one that was ready earlier, and with no
    /// higher rate than its link has.
    pub(crate) fn check_claim(&mut self, granted: &Granted) {
        let shard = &granted.shard;
        let is_earlier = |other: &&Shard| {
            let is_ready = other.link == shard.link && other.state == ShardState::Ready;
            is_ready && (other.turn.rank, other.id) < (shard.turn.rank, shard.id)
        };
        let earlier = self.store.all_shards().find(is_earlier).map(|other| other.id);
        if let Some(other) = earlier {
            self.breaks(format!("{:?} was claimed, and {other:?} was ready before it", shard.id));
        }
        if self.hours.are_closed(shard, self.store.now) {
            self.breaks(format!("{:?} was claimed in closed hours, at {:?}", shard.id, self.store.now));
        }
        let link = self.store.transact(|rows| rows.link(shard.link)).ok().flatten();
        let rate = link.and_then(|link| link.rate);
        if rate.is_some_and(|rate| granted.rate.is_none_or(|granted| granted > rate)) {
            self.breaks(format!("{:?} has the rate {:?}, and its link has {rate:?}", shard.id, granted.rate));
        }
        self.tally.rated += u64::from(rate.is_some());
    }

    /// After a leader's turn nobody has a shard whose lease has passed, or lasts longer than one
    /// does.
    pub(crate) fn check_leases(&mut self) {
        let due = Due::at(self.store.now, longhaul_jobs::tenure::LEASE);
        let passed = self.store.all_shards().find(|shard| match shard.state {
            ShardState::Leased(lease) => due.has_passed(lease.until),
            _ => false,
        });
        if let Some(id) = passed.map(|shard| shard.id) {
            self.breaks(format!("{id:?} is leased though its lease has passed"));
        }
    }

    /// A report was recorded: by the claim that has the shard, and what it says stands.
    pub(crate) fn check_report(&mut self, id: ShardId, rightful: bool) {
        if !rightful {
            self.breaks(format!("{id:?}: a report was recorded of a mover that has it no more"));
        }
        let Some(shard) = self.store.all_shards().find(|shard| shard.id == id).cloned() else { return };
        let rows = self.store.all_faults().filter(|fault| fault.shard == id);
        let failed: Vec<_> = rows.filter(|fault| fault.state == FaultState::GivenUp).collect();
        if failed.len() as u64 != shard.failed.files {
            self.breaks(format!("{id:?}: {} files failed, and {} have rows", shard.failed.files, failed.len()));
            return;
        }
        if !matches!(shard.state, ShardState::Done | ShardState::Partial) {
            return;
        }
        for file in 0..shard.total.files {
            let path = path_of(id, file);
            let stands = self.destination.published.contains_key(&(id, file));
            let fails = self.store.all_faults().any(|fault| fault.shard == id && fault.path == path);
            if !stands && !fails {
                self.breaks(format!("file {file} of {id:?} neither stands nor failed, and its shard is done"));
                return;
            }
        }
    }

    /// Promises of a world that came to its end: everything stands, failed or is held, the sums are
    /// exact, and nothing is taken any more.
    pub(crate) fn check_end(&mut self) {
        let campaigns = self.campaigns.clone();
        for campaign in campaigns {
            let sums = self.store.transact(|rows| left(rows, campaign));
            let sums = match sums {
                Ok(sums) => sums,
                Err(error) => return self.breaks(format!("the sums of a campaign: {error}")),
            };
            let accounted = sums
                .done
                .plus(sums.failed)
                .and_then(|sum| sum.plus(sums.left))
                .and_then(|sum| sum.plus(sums.cancelled));
            if accounted != Some(sums.total) || sums.left != sums.held {
                return self.breaks(format!("the sums of a campaign that is through: {sums:?}"));
            }
            if sums.left.files == 0 && sums.time != TimeLeft::Nothing {
                return self.breaks(format!("nothing is left and takes time: {sums:?}"));
            }
            self.check_commit(campaign);
            let rows: u64 = sums.faults.iter().map(|fault| fault.given_up.files).sum();
            if rows != sums.failed.files {
                return self.breaks(format!("{rows} rows for {} failed files", sums.failed.files));
            }
        }
        let taken = self.store.all_permits().next().copied();
        if let Some(permit) = taken {
            return self.breaks(format!("{permit:?} is taken, and nothing moves"));
        }
        self.check_files();
    }

    /// A dataset has appeared if its commit is done; and it is, unless something of its campaign
    /// is not, or a user must say something.
    fn check_commit(&mut self, campaign: CampaignId) {
        let of_campaign: Vec<_> = self.store.all_shards().filter(|shard| shard.campaign == campaign).cloned().collect();
        let Some(commit) = of_campaign.iter().find(|shard| shard.part.is_commit()) else { return };
        let has_appeared = self.destination.published.contains_key(&(commit.id, 0));
        self.tally.committed += u64::from(has_appeared);
        if commit.state == ShardState::Done && !has_appeared {
            return self.breaks(format!("{:?} is done, and its dataset has not appeared", commit.id));
        }
        let mut others = of_campaign.iter().filter(|shard| !shard.part.is_commit());
        if commit.state == ShardState::Held(Hold::AwaitsShards) && others.all(|shard| shard.state == ShardState::Done) {
            self.breaks(format!("{:?} waits for nothing", commit.id));
        }
    }

    fn check_files(&mut self) {
        let shards: Vec<_> = self.store.all_shards().cloned().collect();
        for shard in shards {
            let kind = shard.state.kind();
            self.tally.held += u64::from(kind == ShardKind::Held);
            for file in 0..shard.total.files {
                let stands = self.destination.published.contains_key(&(shard.id, file));
                let bad = self.bad.get(&(shard.id, file)).is_some_and(|bad| bad.0 == FaultCode::NotFound);
                let failed = self.store.all_faults().any(|fault| {
                    fault.path == path_of(shard.id, file)
                        && fault.shard == shard.id
                        && fault.state == FaultState::GivenUp
                });
                self.tally.given_up += u64::from(failed);
                let judged = !matches!(kind, ShardKind::Held | ShardKind::Cancelled);
                // A backup may be from before a file was tried again that stands now.
                let wrong = if self.tally.restored > 0 { !stands && !failed } else { stands == failed };
                if judged && wrong || bad && stands {
                    let state = shard.state;
                    return self.breaks(format!(
                        "file {file} of {:?} ({state:?}): stands {stands}, failed {failed}",
                        shard.id
                    ));
                }
            }
        }
    }
}
