//! The rows about delivered files, in memory.
//!
//! In: reads and writes of the rules. Out: rows. Must not know a rule.

use std::collections::BTreeMap;

use super::{Memory, bounded, sum};
use crate::error::JobsError;
use crate::ids::{Amount, CampaignId, Due, Micros, ShardId};
use crate::rows::{BadFile, BadKind, Shard, ShardState, Verification};
use crate::store::{BadSum, VerificationRows, VerificationSums};

impl Memory {
    /// All files that are bad.
    pub fn all_bad_files(&self) -> impl Iterator<Item = &BadFile> {
        self.files.bad.values()
    }

    /// The settled shards of a campaign of which something stands.
    fn delivered(&self, campaign: CampaignId) -> impl Iterator<Item = &Shard> {
        let is_settled = |shard: &&Shard| matches!(shard.state, ShardState::Done | ShardState::Partial);
        let of = move |shard: &&Shard| shard.campaign == campaign && shard.done.files > 0;
        self.shards.values().filter(is_settled).filter(of)
    }

    /// The end of the last reading of a shard. One that a clock noted which ran ahead is none.
    fn last_read(&self, shard: ShardId, believed: Micros) -> Micros {
        let last = self.files.verifications.get(&shard).map_or(Micros(0), |row| row.last);
        if last > believed { Micros(0) } else { last }
    }
}

impl VerificationRows for Memory {
    fn verification(&mut self, shard: ShardId) -> Result<Option<Verification>, JobsError> {
        Ok(self.files.verifications.get(&shard).cloned())
    }

    fn put_verification(&mut self, row: &Verification) -> Result<(), JobsError> {
        let unlisted = row.unlisted.map_or(Amount::default(), |unlisted| unlisted.amount);
        bounded(&[row.last.0, row.entry, row.until.0, row.failed.0, unlisted.files, unlisted.bytes])?;
        self.files.verifications.insert(row.shard, row.clone());
        Ok(())
    }

    fn first_to_verify(
        &mut self,
        campaign: CampaignId,
        leases: Due,
        (believed, failed_before): (Micros, Micros),
    ) -> Result<Option<(ShardId, Micros)>, JobsError> {
        let is_free = |shard: &&Shard| {
            let is_due = |row: &Verification| row.failed < failed_before || row.failed > believed;
            let row = self.files.verifications.get(&shard.id);
            row.is_none_or(|row| leases.has_passed(row.until) && is_due(row))
        };
        let free = self.delivered(campaign).filter(is_free);
        let first = free.map(|shard| (self.last_read(shard.id, believed), shard.id)).min();
        Ok(first.map(|(last, shard)| (shard, last)))
    }

    fn verification_sums(
        &mut self,
        campaign: CampaignId,
        stale_before: Micros,
        believed: Micros,
    ) -> Result<VerificationSums, JobsError> {
        let mut sums = VerificationSums::default();
        for shard in self.delivered(campaign) {
            sums.total = sum(sums.total, shard.done)?;
            match self.last_read(shard.id, believed) {
                Micros(0) => sums.never = sum(sums.never, shard.done)?,
                last => {
                    sums.oldest = Some(sums.oldest.map_or(last, |oldest| oldest.min(last)));
                    if last < stale_before {
                        sums.stale = sum(sums.stale, shard.done)?;
                    }
                }
            }
        }
        Ok(sums)
    }

    fn bad_files_of(&mut self, shard: ShardId) -> Result<Vec<BadFile>, JobsError> {
        Ok(self.files.bad.values().filter(|file| file.shard == shard).cloned().collect())
    }

    fn put_bad_file(&mut self, file: &BadFile) -> Result<(), JobsError> {
        bounded(&[file.files, file.bytes, file.first.0, file.last.0])?;
        self.files.bad.insert((file.shard, file.path.clone()), file.clone());
        Ok(())
    }

    fn remove_bad_file(&mut self, shard: ShardId, path: &[u8]) -> Result<(), JobsError> {
        self.files.bad.remove(&(shard, path.to_owned()));
        Ok(())
    }

    fn bad_shard(&mut self, campaign: CampaignId, after: ShardId) -> Result<Option<ShardId>, JobsError> {
        let of = self.files.bad.values().filter(|file| file.campaign == campaign && file.shard > after);
        Ok(of.map(|file| file.shard).min())
    }

    fn bad_sums(&mut self, campaign: CampaignId) -> Result<Vec<BadSum>, JobsError> {
        let mut sums: BTreeMap<BadKind, BadSum> = BTreeMap::new();
        for file in self.files.bad.values().filter(|file| file.campaign == campaign) {
            let fresh = BadSum { kind: file.kind, amount: Amount::default() };
            let row = sums.entry(file.kind).or_insert(fresh);
            row.amount = sum(row.amount, Amount { files: file.files, bytes: file.bytes })?;
        }
        Ok(sums.into_values().collect())
    }
}
