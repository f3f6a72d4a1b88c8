//! Files of a scan that have several names: which of them came first.
//!
//! In: the finds of a scan, a file with several names among them. Out: the same, each of its later
//! names with the path of the first. A file is remembered until all of its names came, and so many
//! are remembered as fit a bound; any other is sent under each name by itself, and counted as lost.
//! Knows no destination.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use longhaul_core::{EntryKind, Inode, LossKind, LossReason, Mtime, RelPath, SeveralNames};

use super::Scanned;
use super::extras::SourceLosses;

/// The memory of files of a scan of which further names may come, as whoever asked for it sees it.
#[derive(Debug, Default)]
pub struct NamesMemory {
    bytes: AtomicUsize,
    is_refused: AtomicBool,
}

impl NamesMemory {
    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Has the scan forget them at its next file of several names, and remember no others.
    pub fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
    }
}

/// The files of a scan of which further names may come.
pub(crate) struct SourceNames<'s> {
    files: HashMap<(u64, u64), KnownFile>,
    /// Bytes that they take.
    bytes: usize,
    bytes_max: usize,
    memory: &'s NamesMemory,
    losses: &'s SourceLosses,
}

/// A file of which further names may come.
struct KnownFile {
    first: RelPath,
    /// Its version when its first name was found.
    version: (Inode, u64, Mtime),
    /// How many names have not come.
    left: u32,
}

impl<'s> SourceNames<'s> {
    /// No files.
    pub(crate) fn new(memory: &'s NamesMemory, losses: &'s SourceLosses) -> SourceNames<'s> {
        SourceNames { files: HashMap::new(), bytes: 0, bytes_max: REMEMBERED_BYTES_MAX, memory, losses }
    }

    /// A find with the first name of its file, if it has several names and this is not the first.
    pub(crate) fn named(&mut self, mut scanned: Scanned) -> Scanned {
        if let Scanned::Entry { entry, .. } = &mut scanned
            && let Some(count) = entry.meta.names.as_ref().map(|names| names.count)
        {
            entry.meta.names = match entry.kind {
                EntryKind::File { len, inode, .. } => {
                    self.name_of(&entry.path, (inode, len, entry.meta.mtime), count).map(Arc::new)
                }
                _ => None,
            };
        }
        scanned
    }

    fn name_of(&mut self, path: &RelPath, version: (Inode, u64, Mtime), count: u32) -> Option<SeveralNames> {
        let name = self.judge(path, version, count);
        self.memory.bytes.store(self.bytes, Ordering::Relaxed);
        name
    }

    fn judge(&mut self, path: &RelPath, version: (Inode, u64, Mtime), count: u32) -> Option<SeveralNames> {
        if self.memory.is_refused.load(Ordering::Relaxed) {
            (self.files, self.bytes, self.bytes_max) = (HashMap::new(), 0, 0);
        }
        let place = (version.0.dev, version.0.ino);
        let mut first = None;
        if let Some(known) = self.files.get_mut(&place) {
            if known.version == version {
                first = Some(known.first.clone());
                known.left -= 1;
            } else {
                self.lose(LossReason::Changed, path);
            }
            if first.is_none() || self.files.get(&place).is_some_and(|known| known.left == 0) {
                self.forget(place);
            }
        }
        if first.is_none() {
            let bytes = cost(path);
            if self.bytes + bytes > self.bytes_max {
                self.lose(LossReason::TooMany, path);
                return None;
            }
            self.bytes += bytes;
            self.files.insert(place, KnownFile { first: path.clone(), version, left: count.saturating_sub(1) });
        }
        Some(SeveralNames { first, count })
    }

    fn forget(&mut self, place: (u64, u64)) {
        if let Some(known) = self.files.remove(&place) {
            self.bytes -= cost(&known.first);
        }
    }

    fn lose(&self, reason: LossReason, path: &RelPath) {
        self.losses.add(LossKind::Hardlinks, reason, path);
    }
}

fn cost(path: &RelPath) -> usize {
    path.as_bytes().len() + FILE_BYTES
}

/// Bytes of the files that are remembered: some 240,000 with usual paths.
const REMEMBERED_BYTES_MAX: usize = 64 << 20;
/// Bytes that a file takes beside its path: some 104 in a table that is half full at worst.
const FILE_BYTES: usize = 208;

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::new(text).expect("a path")
    }

    fn version(ino: u64, secs: i64) -> (Inode, u64, Mtime) {
        let ctime = Mtime { secs, nanos: 0 };
        (Inode { dev: 1, ino, ctime }, 5, ctime)
    }

    fn first(names: Option<SeveralNames>) -> Option<String> {
        Some(names?.first?.escaped().to_string())
    }

    #[test]
    fn a_later_name_is_told_the_first_and_a_file_is_forgotten_behind_its_last_name() {
        let (memory, losses) = (NamesMemory::default(), SourceLosses::default());
        let mut names = SourceNames::new(&memory, &losses);
        assert_eq!(names.name_of(&path("a"), version(7, 1), 3), Some(SeveralNames { first: None, count: 3 }));
        assert_eq!(names.name_of(&path("other"), version(8, 1), 2), Some(SeveralNames { first: None, count: 2 }));
        assert_eq!(first(names.name_of(&path("b"), version(7, 1), 3)).as_deref(), Some("a"));
        assert_eq!(first(names.name_of(&path("c"), version(7, 1), 3)).as_deref(), Some("a"));
        assert_eq!((names.files.len(), names.bytes), (1, cost(&path("other"))));
        assert!(losses.so_far().is_empty());
    }

    #[test]
    fn what_there_is_no_memory_for_is_forgotten_and_the_names_after_it_are_counted() {
        let (memory, losses) = (NamesMemory::default(), SourceLosses::default());
        let mut names = SourceNames::new(&memory, &losses);
        names.name_of(&path("a"), version(7, 1), 3);
        assert_eq!(memory.bytes(), cost(&path("a")));
        memory.refuse();
        assert_eq!(names.name_of(&path("b"), version(7, 1), 3), None);
        assert_eq!((memory.bytes(), names.files.len()), (0, 0));
        let rows: Vec<_> = losses.so_far().rows().map(|loss| (loss.reason, loss.entries)).collect();
        assert_eq!(rows, [(LossReason::TooMany, 1)]);
    }

    #[test]
    fn a_file_that_changed_between_its_names_is_another_one_and_counted() {
        let (memory, losses) = (NamesMemory::default(), SourceLosses::default());
        let mut names = SourceNames::new(&memory, &losses);
        names.name_of(&path("a"), version(7, 1), 3);
        assert_eq!(first(names.name_of(&path("b"), version(7, 2), 3)), None);
        assert_eq!(first(names.name_of(&path("c"), version(7, 2), 3)).as_deref(), Some("b"));
        let rows: Vec<_> = losses.so_far().rows().map(|loss| (loss.reason, loss.entries)).collect();
        assert_eq!(rows, [(LossReason::Changed, 1)]);
    }

    #[test]
    fn no_more_files_are_remembered_than_fit_and_the_rest_is_counted() {
        let losses = SourceLosses::default();
        let memory = NamesMemory::default();
        let mut names = SourceNames { bytes_max: 2 * cost(&path("a")), ..SourceNames::new(&memory, &losses) };
        for (ino, name) in [(1, "a"), (2, "b"), (3, "c"), (3, "d")] {
            names.name_of(&path(name), version(ino, 1), 2);
        }
        assert_eq!((names.files.len(), names.bytes), (2, names.bytes_max));
        let rows: Vec<_> = losses.so_far().rows().map(|loss| (loss.reason, loss.entries, loss.first)).collect();
        assert_eq!(rows, [(LossReason::TooMany, 2, path("c"))]);
        // What is remembered still gets its names, and makes room.
        assert_eq!(first(names.name_of(&path("a2"), version(1, 1), 2)).as_deref(), Some("a"));
        assert!(names.name_of(&path("c"), version(3, 1), 2).is_some());
    }
}
