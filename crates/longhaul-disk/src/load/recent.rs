//! [`RecentFiles`]: the files that were committed on a target of late, by name.
//!
//! In: names as files are committed. Out: all of them at once, when the target fails: they are *at
//! risk*, as a disk that fails may lose what it called durable. It is bounded, and knows no
//! targets.

use std::collections::VecDeque;

use longhaul_core::RelPath;

/// Files that were committed on a target since it was last well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecentFiles {
    names: VecDeque<RelPath>,
    count: u64,
}

impl RecentFiles {
    /// Adds a file. The oldest name goes, if there are too many.
    pub(super) fn add(&mut self, name: RelPath) {
        self.count += 1;
        self.names.push_back(name);
        if self.names.len() > RECENT_NAMES_MAX {
            self.names.pop_front();
        }
    }

    /// Adds files that were committed after these.
    pub(super) fn extend(&mut self, later: RecentFiles) {
        let unnamed = later.count - later.names.len() as u64;
        later.names.into_iter().for_each(|name| self.add(name));
        self.count += unnamed;
    }

    /// The number of files.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The names of the latest of them, beneath the top of the set, the latest first.
    pub fn names(&self) -> impl Iterator<Item = &RelPath> {
        self.names.iter().rev()
    }
}

/// Names that are kept of a target. With a hundred bytes each they take a megabyte.
const RECENT_NAMES_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn files(numbers: std::ops::Range<usize>) -> RecentFiles {
        let mut files = RecentFiles::default();
        numbers.for_each(|n| files.add(RelPath::new(format!("f{n}")).expect("a name")));
        files
    }

    #[test]
    fn the_latest_names_are_kept_and_all_are_counted() {
        for (count, named) in
            [(0, 0), (1, 1), (RECENT_NAMES_MAX, RECENT_NAMES_MAX), (RECENT_NAMES_MAX + 1, RECENT_NAMES_MAX)]
        {
            let files = files(0..count);
            assert_eq!((files.count(), files.names().count()), (count as u64, named));
            let latest = files.names().next().map(|name| name.as_bytes().to_vec());
            assert_eq!(latest, count.checked_sub(1).map(|n| format!("f{n}").into_bytes()));
        }
        let mut both = files(0..3);
        both.extend(files(3..3 * RECENT_NAMES_MAX));
        assert_eq!((both.count(), both.names().count()), (3 * RECENT_NAMES_MAX as u64, RECENT_NAMES_MAX));
    }
}
