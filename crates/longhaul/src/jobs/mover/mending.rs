//! The files of a shard that a verification found bad: they are copied in place of what stands at
//! the destination, before the others are compared. And the digests of what was delivered, for the
//! next verification.
//!
//! In: paths of the queue, and the count of a shard. Out: the parts of its transfers, and a record
//! on the shelf. Must not know how a file is read.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::{FaultCode, IfExists, RelPath};
use longhaul_jobs::queue::Granted;

use super::tally::Tally;
use crate::jobs::records::{DigestOrigin, DigestRecord, KnownDigest};

/// The bad files of a shard.
#[derive(Debug, Default)]
pub(super) struct Mending {
    paths: BTreeSet<Vec<u8>>,
    is_over: AtomicBool,
}

/// The names of one transfer.
#[derive(Debug)]
pub(super) struct TransferPart {
    /// The names.
    pub(super) names: Vec<RelPath>,
    /// The rule for names that stand at the destination. `None`: the campaign's.
    pub(super) if_exists: Option<IfExists>,
}

impl Mending {
    /// The bad files of a shard that was granted, of which the tally counts all. If the others
    /// stand, nothing of them is looked at: their sources may be others by now, or gone.
    pub(super) fn of(granted: &Granted, tally: &Tally) -> Mending {
        let paths: BTreeSet<_> = granted.mending.iter().cloned().collect();
        if granted.rest_stands {
            tally.keep_only(&paths);
        }
        Mending { paths, is_over: AtomicBool::new(false) }
    }

    /// The names of the next transfer: bad files first.
    pub(super) fn part(&self, open: Vec<RelPath>) -> TransferPart {
        let is_bad = |name: &RelPath| self.paths.contains(name.as_bytes());
        if self.is_over.load(Ordering::Relaxed) || !open.iter().any(is_bad) {
            return TransferPart { names: open, if_exists: None };
        }
        TransferPart { names: open.into_iter().filter(is_bad).collect(), if_exists: Some(IfExists::Replace) }
    }

    /// A transfer has ended without a fault. If it was that of bad files, and others are open, the
    /// shard goes on. A bad file that the transfer did not name fails, as it must not be taken for
    /// one that stands.
    pub(super) fn goes_on(&self, part: &TransferPart, tally: &Tally) -> bool {
        if part.if_exists.is_none() {
            return false;
        }
        self.is_over.store(true, Ordering::Relaxed);
        let open = || tally.open().into_iter().map(|(path, _)| path);
        for path in open().filter(|path| self.paths.contains(path.as_bytes())) {
            let message = format_args!("the source had no '{}' to mend it with", path.escaped());
            tally.fail(&path, FaultCode::NotFound, message);
        }
        open().next().is_some()
    }
}

/// Notes the digests of the files that a claim has sent. What cannot be noted is read as for the
/// first time by the next verification, so it stops nothing.
pub(super) fn keep_digests(record_path: &Path, tally: &Tally) {
    let sent = tally.standing().into_iter().filter_map(|(path, file)| Some((path, file.bytes, file.b3?)));
    let sent: Vec<_> = sent.collect();
    if sent.is_empty() {
        return;
    }
    let read = match DigestRecord::read(record_path) {
        Err(error) if error.kind() == ErrorKind::InvalidData => Ok(DigestRecord::default()),
        read => read,
    };
    let kept = read.and_then(|mut record| {
        for (path, bytes, b3) in sent {
            record.note(path, KnownDigest { bytes, b3, origin: DigestOrigin::Delivery });
        }
        record.write(record_path)
    });
    if let Err(error) = kept {
        tracing::debug!(path = %record_path.display(), %error, "digests of delivered files cannot be kept");
    }
}

#[cfg(test)]
mod tests {
    use longhaul_jobs::AlikeWatch;
    use longhaul_manifest::Item;

    use super::*;

    fn path(name: &str) -> RelPath {
        RelPath::new(name).unwrap()
    }

    #[test]
    fn bad_files_are_replaced_first_and_one_that_no_transfer_names_has_failed() {
        let items = ["a", "b", "c"].map(|name| Item::file(path(name), Some(1), Default::default()));
        let tally = Tally::new(&items, &[], AlikeWatch::default());
        let mending = Mending { paths: [b"b".to_vec()].into(), ..Mending::default() };
        let open = || tally.open().into_iter().map(|(path, _)| path).collect::<Vec<_>>();
        let part = mending.part(open());
        assert_eq!((part.names.as_slice(), part.if_exists), ([path("b")].as_slice(), Some(IfExists::Replace)));
        assert!(mending.goes_on(&part, &tally));
        assert_eq!(tally.faults().iter().map(|fault| fault.path.as_slice()).collect::<Vec<_>>(), [b"b"]);
        let part = mending.part(open());
        assert_eq!((part.names.as_slice(), part.if_exists), ([path("a"), path("c")].as_slice(), None));
        assert!(!mending.goes_on(&part, &tally), "it was the last part");
    }

    #[test]
    fn files_that_stood_before_are_counted_and_not_looked_at() {
        let items = ["a", "b", "c"].map(|name| Item::file(path(name), Some(7), Default::default()));
        let tally = Tally::new(&items, &[], AlikeWatch::default());
        tally.keep_only(&[b"b".to_vec()].into());
        assert_eq!(tally.figures().done, longhaul_jobs::Amount { files: 2, bytes: 14 });
        assert_eq!(tally.open().into_iter().map(|(path, _)| path).collect::<Vec<_>>(), [path("b")]);
    }
}
