//! [`StagedTold`]: the files of a dataset of which a sending run has told that they are staged.
//!
//! In: entries and their outcomes, session by session: each session of a dataset lists the whole of
//! it. Out: whether observers have heard of one already. It knows no totals and no observers.

use std::hash::{BuildHasher, RandomState};

use longhaul_core::Entry;
use longhaul_proto::wire::message::Outcome;

/// The names that were told, as hashes: 8 bytes for each.
#[derive(Default)]
pub(super) struct StagedTold {
    /// Hashes of earlier sessions, sorted.
    before: Vec<u64>,
    /// Hashes of this session.
    now: Vec<u64>,
    hasher: RandomState,
}

impl StagedTold {
    /// Begins another session, in which entries that only stand are no news.
    pub(super) fn turn(&mut self) {
        self.before.append(&mut self.now);
        self.before.sort_unstable();
        self.before.dedup();
    }

    /// Whether an entry was told in an earlier session, and only stands now. One that was sent once
    /// more, or failed, is news: its digest is another one, or it is not there.
    pub(super) fn is_known(&mut self, entry: &Entry, outcome: &Outcome) -> bool {
        let hash = self.hasher.hash_one(entry.path.as_bytes());
        let found = self.before.binary_search(&hash);
        match (outcome, found) {
            (Outcome::Skipped | Outcome::Equal(_) | Outcome::Stands(_), Ok(_)) => return true,
            // Should it stand in the next session, that is news again.
            (Outcome::Failed(_), Ok(at)) => drop(self.before.remove(at)),
            (Outcome::Failed(_) | Outcome::Planned | Outcome::Unsent, _) | (_, Ok(_)) => {}
            (_, Err(_)) if self.before.len() + self.now.len() < TOLD_MAX => self.now.push(hash),
            (_, Err(_)) => {}
        }
        false
    }
}

/// Names that are remembered at most, in half a GiB. Names beyond these may be told twice.
const TOLD_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use longhaul_core::{Blame, EntryKind, Fault, FaultCode, Meta, RelPath};

    use super::*;

    #[test]
    fn what_only_stands_after_it_was_told_is_no_news_and_what_changed_or_failed_is() {
        let entry = |path: &str| Entry {
            path: RelPath::new(path).expect("a path"),
            kind: EntryKind::File { len: 1, sparse: false, inode: longhaul_core::Inode::default() },
            meta: Meta::default(),
        };
        let failed = || Outcome::Failed(Fault::new(FaultCode::Changed, Blame::Local, "changed"));
        let mut told = StagedTold::default();
        assert!(!told.is_known(&entry("a"), &Outcome::Committed(None)) && !told.is_known(&entry("b"), &failed()));
        told.turn();
        assert!(told.is_known(&entry("a"), &Outcome::Skipped) && told.is_known(&entry("a"), &Outcome::Stands([0; 32])));
        assert!(!told.is_known(&entry("b"), &Outcome::Skipped), "it failed before");
        assert!(!told.is_known(&entry("c"), &Outcome::Skipped), "nobody has heard of it");
        assert!(!told.is_known(&entry("a"), &Outcome::Committed(None)), "it was sent once more");
        assert!(!told.is_known(&entry("a"), &failed()));
        told.turn();
        assert!(!told.is_known(&entry("a"), &Outcome::Skipped), "the last word of it was that it failed");
        assert!(told.is_known(&entry("b"), &Outcome::Skipped));
    }
}
