//! [`StagedTold`]: the files of a dataset of which a sending run has told that they are staged.
//!
//! In: entries and their outcomes, session by session: each session of a dataset lists the whole of
//! it. Out: whether observers have heard of one already. It knows no totals and no observers.

use std::hash::{BuildHasher, RandomState};

use longhaul_core::Entry;
use longhaul_proto::wire::message::Outcome;

/// The names that were told, as hashes: 8 bytes for each, and up to a quarter more.
#[derive(Default)]
pub(super) struct StagedTold {
    /// Hashes by their first bits. Empty until the first name is told.
    groups: Vec<ToldGroup>,
    /// All hashes that are held.
    held: usize,
    /// The number of this session.
    session: u32,
    hasher: RandomState,
}

/// Some of the names. It is small, so that no look at it takes long.
#[derive(Clone, Default)]
struct ToldGroup {
    /// Hashes of earlier sessions, sorted.
    before: Vec<u64>,
    /// Hashes of the newest session that looked here.
    now: Vec<u64>,
    /// The number of that.
    session: u32,
}

impl ToldGroup {
    /// Begins another session here, if one did. Gives how many hashes were held twice.
    fn turn(&mut self, session: u32) -> usize {
        if self.session == session {
            return 0;
        }
        self.session = session;
        let held = self.before.len() + self.now.len();
        let now = std::mem::take(&mut self.now);
        self.before.reserve_exact(now.len());
        self.before.extend(now);
        self.before.sort_unstable();
        self.before.dedup();
        held - self.before.len()
    }

    fn push(&mut self, hash: u64) {
        if self.now.len() == self.now.capacity() {
            // A vector that grows by itself may be half empty.
            self.now.reserve_exact(self.now.len() / 4 + 4);
        }
        self.now.push(hash);
    }
}

impl StagedTold {
    /// Begins another session, in which entries that only stand are no news.
    pub(super) fn turn(&mut self) {
        self.session = self.session.wrapping_add(1);
    }

    /// Whether an entry was told in an earlier session, and only stands now. One that was sent once
    /// more, or failed, is news: its digest is another one, or it is not there.
    pub(super) fn is_known(&mut self, entry: &Entry, outcome: &Outcome) -> bool {
        let hash = self.hasher.hash_one(entry.path.as_bytes());
        if self.groups.is_empty() {
            self.groups.resize(GROUPS, ToldGroup::default());
        }
        let at = usize::try_from(hash >> (u64::BITS - GROUPS.ilog2())).unwrap_or_default();
        let Some(group) = self.groups.get_mut(at) else { return false };
        self.held -= group.turn(self.session);
        match (outcome, group.before.binary_search(&hash)) {
            (Outcome::Skipped | Outcome::Equal(_) | Outcome::Stands(_), Ok(_)) => return true,
            // Should it stand in the next session, that is news again.
            (Outcome::Failed(_), Ok(at)) => {
                group.before.remove(at);
                self.held -= 1;
            }
            (Outcome::Failed(_) | Outcome::Planned | Outcome::Unsent, _) | (_, Ok(_)) => {}
            (_, Err(_)) if self.held < TOLD_MAX => {
                group.push(hash);
                self.held += 1;
            }
            (_, Err(_)) => {}
        }
        false
    }
}

/// Names that are remembered at most, in half a GiB with the room that vectors keep. Names beyond
/// these may be told twice.
const TOLD_MAX: usize = 48 << 20;
/// Groups of names, a power of two: so one has 12,288 of those at most, give or take, and is sorted
/// in less than a millisecond.
const GROUPS: usize = 4096;

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

    #[test]
    fn of_many_names_each_is_known_as_it_was_told_last() {
        let entry = |n: usize| Entry {
            path: RelPath::new(format!("d/{n}").as_str()).expect("a path"),
            kind: EntryKind::File { len: 1, sparse: false, inode: longhaul_core::Inode::default() },
            meta: Meta::default(),
        };
        let failed = || Outcome::Failed(Fault::new(FaultCode::Changed, Blame::Local, "changed"));
        let mut told = StagedTold::default();
        let all = 3 * GROUPS;
        for n in 0..all {
            assert!(!told.is_known(&entry(n), &Outcome::Committed(None)));
        }
        assert_eq!(told.held, all);
        told.turn();
        for n in (0..all).filter(|n| n % 3 == 0) {
            assert!(!told.is_known(&entry(n), &failed()));
        }
        told.turn();
        for n in 0..all {
            assert_eq!(told.is_known(&entry(n), &Outcome::Skipped), n % 3 != 0, "{n}");
        }
        assert_eq!(told.held, all);
        told.turn();
        assert!((0..all).all(|n| told.is_known(&entry(n), &Outcome::Skipped)));
        let room: usize = told.groups.iter().map(|group| group.before.capacity() + group.now.capacity()).sum();
        assert!(room <= all + all / 4 + 8 * GROUPS, "{room}");
    }
}
