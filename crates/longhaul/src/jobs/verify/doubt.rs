//! Whether losses are to be believed, or the disk is not mounted.
//!
//! In: how many names of each batch stand, and how many are lost. Out: a fault instead of findings
//! that nobody should believe. It remembers the last names, whatever batches and shards they were
//! of, and which directory DEST was when something stood there. Must not know the queue.

#![allow(clippy::disallowed_methods, reason = "it keeps a number beside the manifests, and looks at a directory")]

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use longhaul_core::{Blame, Fault, FaultCode};
use longhaul_jobs::BadKind;
use longhaul_jobs::queue::FoundBad;

use super::AbsenceUse;
use super::batch::BatchFindings;

/// The losses of a batch. Files that are known to be bad are none of either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchLosses {
    /// Names that are newly lost, or cannot be read.
    absent: u64,
    /// Names under which something stands.
    present: u64,
}

impl BatchLosses {
    /// The losses among findings.
    pub(super) fn of(findings: &BatchFindings, is_known: impl Fn(&FoundBad) -> bool) -> BatchLosses {
        let is_absent = |found: &&FoundBad| matches!(found.kind, BadKind::Lost | BadKind::Unread);
        let all = findings.bad.iter().filter(is_absent);
        let (all, known) = all.fold((0, 0), |(all, known), found| (all + 1, known + u64::from(is_known(found))));
        BatchLosses { absent: all - known, present: findings.files.saturating_sub(all) }
    }

    /// Whether names are lost and nothing stands.
    pub(super) fn has_none(self) -> bool {
        self.absent > 0 && self.present == 0
    }
}

/// The last names that a verifier looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct LossWatch {
    /// Whether each of them is lost, the last one at the end.
    recent: VecDeque<bool>,
}

/// The mark by which DEST is known again.
#[derive(Clone, Debug)]
pub(super) struct DestinationMark {
    /// The directory, for people.
    pub(super) shown: String,
    /// Its mark.
    pub(super) mark: PlaceMark,
    /// The file that keeps the mark.
    pub(super) file: PathBuf,
}

/// The mark of a directory.
#[derive(Clone, Debug)]
pub(super) enum PlaceMark {
    /// The number of the inode of this directory, as that of a directory on which nothing is
    /// mounted is another one.
    Inode(PathBuf),
    /// The mark that its daemon tells, which is another one after each start of its host.
    Told(String),
    /// It has none: it is never known again.
    Unknown,
}

impl LossWatch {
    /// Refuses losses of nearly all names that were looked at last. A few are believed if DEST is
    /// the directory in which something stood before.
    pub(super) fn judge(&self, batch: BatchLosses, mark: &DestinationMark, use_of: AbsenceUse) -> Result<(), Fault> {
        let is_doubted = batch.absent > 0 && use_of == AbsenceUse::Doubted && {
            let (absent, all) = self.with(batch);
            let is_nearly_all = absent * 100 >= all * DOUBTED_PERCENT;
            is_nearly_all && (all >= DOUBTED_NAMES_MIN || !mark.is_same())
        };
        if is_doubted {
            return Err(doubted(self.with(batch), mark));
        }
        if batch.present > 0 {
            // It is looked at only where losses are judged.
            if let Err(error) = mark.keep() {
                tracing::debug!(%error, "the mark of a destination cannot be kept");
            }
        }
        Ok(())
    }

    /// The lost ones among the last names, and all of these.
    fn with(&self, batch: BatchLosses) -> (u64, u64) {
        let all = batch.absent + batch.present;
        let more = self.recent.iter().rev().take(usize::try_from(RECENT_NAMES.saturating_sub(all)).unwrap_or(0));
        more.fold((batch.absent, all), |(absent, all), is_absent| (absent + u64::from(*is_absent), all + 1))
    }

    /// Remembers a batch.
    pub(super) fn add(&mut self, batch: BatchLosses) {
        let of = |count: u64, is_absent| (0..count.min(RECENT_NAMES)).map(move |_| is_absent);
        self.recent.extend(of(batch.present, false).chain(of(batch.absent, true)));
        let excess = self.recent.len().saturating_sub(usize::try_from(RECENT_NAMES).unwrap_or(0));
        self.recent.drain(..excess);
    }
}

impl DestinationMark {
    /// Whether it is the directory that was marked. If none was, that is not known.
    pub(super) fn is_same(&self) -> bool {
        let kept = std::fs::read_to_string(&self.file).ok();
        kept.is_some_and(|kept| self.number().is_ok_and(|number| kept == number))
    }

    fn number(&self) -> io::Result<String> {
        match &self.mark {
            PlaceMark::Inode(dest) => Ok(format!("{}\n", std::fs::metadata(dest)?.ino())),
            PlaceMark::Told(mark) => Ok(format!("{mark}\n")),
            PlaceMark::Unknown => Err(ErrorKind::Unsupported.into()),
        }
    }

    fn keep(&self) -> io::Result<()> {
        if self.is_same() {
            return Ok(());
        }
        match std::fs::write(&self.file, self.number()?) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if let Some(dir) = self.file.parent() {
                    std::fs::create_dir_all(dir)?;
                }
                std::fs::write(&self.file, self.number()?)
            }
            written => written,
        }
    }
}

fn doubted((absent, all): (u64, u64), mark: &DestinationMark) -> Fault {
    let shown = &mark.shown;
    let message = format_args!(
        "{absent} of the last {all} files are lost or cannot be read in '{shown}': nothing of them was recorded"
    );
    let hint = "see that the disk is mounted; if they are lost indeed, run it again with --believe-losses";
    Fault::new(FaultCode::NotFound, Blame::Local, message).about(shown).hint_in_words(hint)
}

/// The names that are judged together, whatever batches they are of.
const RECENT_NAMES: u64 = 20;
/// Names below which losses are believed of a directory that is known, and the part of more of
/// them that is doubted.
const DOUBTED_NAMES_MIN: u64 = 10;
const DOUBTED_PERCENT: u64 = 80;

#[cfg(test)]
mod tests {
    use super::*;

    fn losses(absent: u64, present: u64) -> BatchLosses {
        BatchLosses { absent, present }
    }

    #[test]
    fn losses_are_judged_over_batches_and_a_few_are_believed_only_where_something_stood() {
        let dir = tempfile::tempdir().unwrap();
        let dest = dir.path().join("dest");
        std::fs::create_dir(&dest).unwrap();
        let inode = PlaceMark::Inode(dest.clone());
        let mark =
            DestinationMark { shown: "dest".to_owned(), mark: inode, file: dir.path().join("delivered/destination") };
        let mut watch = LossWatch::default();
        let judge = |watch: &LossWatch, batch| watch.judge(batch, &mark, AbsenceUse::Doubted).is_ok();
        assert!(!judge(&watch, losses(1, 0)), "nothing tells that the disk is there");
        assert!(watch.judge(losses(1, 0), &mark, AbsenceUse::Believed).is_ok());
        assert!(judge(&watch, losses(0, 1)));
        // The disk is known now. One large file in a batch, and all of them are lost.
        for number in 0..9 {
            assert!(judge(&watch, losses(1, 0)), "file {number}");
            watch.add(losses(1, 0));
        }
        assert!(!judge(&watch, losses(1, 0)), "ten in a row");
        watch.add(losses(0, 500));
        assert!(judge(&watch, losses(10, 0)), "others stand");
        // Another directory has its name.
        std::fs::rename(&dest, dir.path().join("away")).unwrap();
        std::fs::create_dir(&dest).unwrap();
        assert!(!judge(&LossWatch::default(), losses(1, 0)));
        assert!(judge(&LossWatch::default(), losses(1, 9)), "something stands there");
        assert!(judge(&LossWatch::default(), losses(1, 0)), "and so it is known from then on");
    }

    #[test]
    fn what_is_known_to_be_bad_is_no_reason_for_doubts() {
        let found = |kind| FoundBad { path: vec![b'a'], bytes: 1, kind, message: "it is bad".into() };
        let bad = vec![found(BadKind::Lost), found(BadKind::Unread), found(BadKind::Changed)];
        let findings = BatchFindings { files: 5, bad, ..BatchFindings::default() };
        assert_eq!(BatchLosses::of(&findings, |found| found.kind == BadKind::Lost), losses(1, 3));
    }
}
