//! The digests of what a mover delivers, kept for the next verification: at the end of a claim, and
//! now and then before, as a mover may be killed.
//!
//! In: the count of a shard. Out: a record on the shelf, and the fault of one that cannot be kept.
//! Must not know how a file is sent.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::Fault;
use tokio::time::{Instant, sleep};

use super::Mover;
use super::session::blocking;
use super::tally::Tally;
use crate::jobs::records::{self, DigestOrigin, DigestRecord, KnownDigest, RecordFound};

/// Where the digests of a shard are kept.
pub(super) struct DigestKeeper<'a> {
    /// The mover, which tells what goes wrong.
    pub(super) mover: &'a Mover,
    /// The record.
    pub(super) path: PathBuf,
    /// The random id of the claim, in words.
    pub(super) tag: String,
}

impl DigestKeeper<'_> {
    /// Keeps the digests of files that were sent, as they come to be many, or old.
    pub(super) async fn keep_meanwhile(&self, tally: &Arc<Tally>) -> Infallible {
        let (mut kept, mut last) = (0, Instant::now());
        loop {
            sleep(LOOK_EVERY).await;
            let sent = tally.sent();
            if is_due(sent - kept, last.elapsed()) {
                self.keep(tally).await;
                (kept, last) = (sent, Instant::now());
            }
        }
    }

    /// Keeps the digests of all files that were sent in this claim. What cannot be kept is told,
    /// and read as for the first time by the next verification: it stops nothing.
    pub(super) async fn keep(&self, tally: &Arc<Tally>) {
        let (path, tag, tally) = (self.path.clone(), self.tag.clone(), Arc::clone(tally));
        match blocking(move || keep_digests(&path, &tag, &tally)).await {
            Ok(None) => {}
            Ok(Some(fault)) | Err(fault) => self.mover.observer.trouble(&fault),
        }
    }
}

fn keep_digests(path: &Path, tag: &str, tally: &Tally) -> Option<Fault> {
    let known = |bytes, b3| KnownDigest { bytes, b3, origin: DigestOrigin::Delivery };
    let sent = tally.standing().into_iter().filter_map(|(path, file)| Some((path, known(file.bytes, file.b3?))));
    let sent: Vec<_> = sent.collect();
    if sent.is_empty() {
        return None;
    }
    match DigestRecord::add(path, tag, sent) {
        Ok(RecordFound::Well) => None,
        Ok(RecordFound::Damaged) => Some(records::damaged(path)),
        Err(error) => Some(records::unkept(path, &error)),
    }
}

/// Whether digests of so many files that were not kept for so long are to be kept.
fn is_due(files: u64, time: Duration) -> bool {
    files >= FILES_UNKEPT_MAX || files > 0 && time >= KEPT_EVERY
}

/// How often it looks, and what is lost at most if the mover is killed.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const FILES_UNKEPT_MAX: u64 = 1000;
const KEPT_EVERY: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_kept_when_they_are_many_or_old_and_never_if_there_are_none() {
        for (files, seconds, due) in [(0, 9999, false), (1, 29, false), (1, 30, true), (999, 1, false), (1000, 0, true)]
        {
            assert_eq!(is_due(files, Duration::from_secs(seconds)), due, "{files} files, {seconds} s");
        }
    }
}
