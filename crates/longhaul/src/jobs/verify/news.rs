//! The news of a verifier: bad files, files that were mended, shards that were read, and its end.
//!
//! In: findings. Out: plain data to a [`VerifyObserver`], and to whoever runs the verifier. Must
//! not know how a file is read.

use longhaul_core::{Fault, FaultCode};
use longhaul_jobs::queue::{FoundBad, VerifyShard};
use longhaul_jobs::{Amount, BadKind, ShardId};

use super::batch::BatchFindings;

/// Hears what a verifier does. It must return quickly.
pub trait VerifyObserver: Send + Sync {
    /// A file is bad, and stays so.
    fn bad(&self, news: &BadNews);
    /// A file of a shard was bad, and was copied anew.
    fn mended(&self, shard: ShardId, file: &MendedFile);
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

/// A file that was bad, was copied anew, and is well by another reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MendedFile {
    /// Its path in the manifest: bytes.
    pub path: Vec<u8>,
    /// Its length in bytes.
    pub bytes: u64,
    /// The way in which it was bad.
    pub kind: BadKind,
    /// The tree that it was copied from, as a user writes it, escaped.
    pub from: String,
    /// Where the file lies that stood under its name, as a user writes it, escaped. `None`: nothing
    /// stood there.
    pub kept: Option<String>,
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
    /// Files that were copied anew, and are well.
    pub mended: Amount,
    /// The place behind the last name that is noted.
    pub(super) reached: u64,
}

/// The end of a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardReadEnd {
    /// All of it was read.
    Through,
    /// Only files of it were read that were known to be bad, to mend them.
    Mended,
    /// It goes on there another time.
    GivenBack,
    /// Something of it cannot be read, for which the fault was told: it is tried again in a while.
    Failed,
    /// Another verifier has it, or a mover moves it again.
    Gone,
}

/// How a verifier ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyEnd {
    /// The code of what ended it early: timed-out for the time of its orders.
    pub early: Option<FaultCode>,
    /// The code of the first shard that could not be read.
    pub failed: Option<FaultCode>,
    /// Files that were copied anew, and are well.
    pub mended: Amount,
}

impl ShardRead {
    /// Nothing of it was read yet.
    pub(super) fn of(given: &VerifyShard) -> ShardRead {
        let (shard, end, reached) = (given.shard.id, ShardReadEnd::Through, given.entry);
        let mended = Amount::default();
        ShardRead {
            shard,
            end,
            files: 0,
            bytes: 0,
            files_first: 0,
            files_bad: 0,
            files_passed_over: 0,
            mended,
            reached,
        }
    }

    /// Another has the shard, which is no fault.
    pub(super) fn gone(&mut self) -> Result<(), Fault> {
        self.end = ShardReadEnd::Gone;
        Ok(())
    }

    /// Adds what was found in a batch.
    pub(super) fn add(&mut self, findings: &BatchFindings) {
        self.files += findings.files;
        self.bytes = self.bytes.saturating_add(findings.bytes);
        self.files_first += findings.first.len() as u64;
        self.files_bad += findings.bad.len() as u64;
        self.files_passed_over += findings.passed_over;
        self.mended.files += findings.mended.len() as u64;
        self.mended.bytes = findings.mended.iter().fold(self.mended.bytes, |sum, file| sum.saturating_add(file.bytes));
    }
}

impl VerifyEnd {
    /// Adds a shard.
    pub(super) fn add(&mut self, read: &ShardRead) {
        self.mended = self.mended.plus(read.mended).unwrap_or(self.mended);
    }
}
