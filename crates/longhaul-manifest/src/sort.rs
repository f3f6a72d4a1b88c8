//! The sort of a list of any length in bounded memory: sorted runs in files without names, and
//! their merge.
//!
//! In: items in any order. Out: the same in order, every name once. Holds as many bytes as its
//! maker says, and one block of each of up to 64 runs. Knows no list.

use std::fs::File;
use std::io::{BufReader, BufWriter, Seek};
use std::path::{Path, PathBuf};

use crate::error::ManifestError;
use crate::item::{Item, ItemKind};
use crate::merge::{Merge, united};
use crate::segment::{SegmentReader, SegmentWriter};

/// Items being sorted.
pub struct Sorter {
    dir: PathBuf,
    bytes_max: usize,
    held: Vec<Item>,
    held_bytes: usize,
    /// The runs, each with the number of times that its items were merged: the higher first.
    runs: Vec<(u32, File)>,
}

/// Items in order.
pub struct Sorted(Merge<SortedRun>);

/// A run being read: of a file, or of what is in memory still.
enum SortedRun {
    File { reader: Box<SegmentReader<BufReader<File>>>, dir: PathBuf },
    Memory(std::vec::IntoIter<Item>),
}

impl Sorter {
    /// Sorts with about so many bytes of memory, and runs in the directory `dir`.
    pub fn new(dir: &Path, bytes_max: usize) -> Sorter {
        Sorter { dir: dir.to_owned(), bytes_max, held: Vec::new(), held_bytes: 0, runs: Vec::new() }
    }

    /// Takes an item.
    ///
    /// # Errors
    /// If a run cannot be written, two items contradict each other, or no reader would take it.
    pub fn add(&mut self, item: Item) -> Result<(), ManifestError> {
        if let Some(why) = item.flaw() {
            return Err(ManifestError::Unlistable { path: item.path, why });
        }
        self.held_bytes += memory_of(&item);
        self.held.push(item);
        if self.held_bytes >= self.bytes_max { self.spill() } else { Ok(()) }
    }

    /// Gives the items in order.
    ///
    /// # Errors
    /// As [`Sorter::add`].
    pub fn finish(mut self) -> Result<Sorted, ManifestError> {
        let held = self.in_order()?;
        let files = std::mem::take(&mut self.runs).into_iter();
        let mut runs = files.map(|(_, file)| self.reading(file)).collect::<Result<Vec<_>, _>>()?;
        runs.push(SortedRun::Memory(held.into_iter()));
        Ok(Sorted(Merge::new(runs)))
    }

    /// Writes what is in memory to a run. Runs are merged as soon as there are as many as may be
    /// open: those of the lowest level that has several, so that no item is merged more often than
    /// there are levels.
    fn spill(&mut self) -> Result<(), ManifestError> {
        let held = self.in_order()?;
        let run = self.run(held.into_iter().map(Ok))?;
        self.runs.push((0, run));
        while self.runs.len() >= RUNS_MAX {
            // Levels only fall from the first to the last.
            let last_two = self.runs.len() - 2;
            let level = self.runs[last_two].0;
            let first = self.runs.iter().position(|(of, _)| *of <= level).unwrap_or(last_two);
            let merged = self.runs.split_off(first).into_iter().map(|(_, file)| self.reading(file));
            let run = self.run(Merge::new(merged.collect::<Result<Vec<_>, _>>()?))?;
            self.runs.push((level + 1, run));
        }
        Ok(())
    }

    /// The items in memory, in order and each name once.
    fn in_order(&mut self) -> Result<Vec<Item>, ManifestError> {
        self.held_bytes = 0;
        let mut held = std::mem::take(&mut self.held);
        held.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        let mut failed = None;
        held.dedup_by(|later, kept| {
            if later.path != kept.path {
                return false;
            }
            match united(kept.clone(), later) {
                Ok(item) => *kept = item,
                Err(error) => drop(failed.get_or_insert(error)),
            }
            true
        });
        failed.map_or(Ok(held), Err)
    }

    fn run(&self, items: impl Iterator<Item = Result<Item, ManifestError>>) -> Result<File, ManifestError> {
        let failed = || ManifestError::file("write a temporary file in", &self.dir);
        let file = tempfile::tempfile_in(&self.dir).map_err(failed())?;
        let mut writer = SegmentWriter::new(BufWriter::new(file)).map_err(failed())?;
        for item in items {
            writer.add(&item?).map_err(failed())?;
        }
        let (out, _) = writer.finish().map_err(failed())?;
        out.into_inner().map_err(|error| failed()(error.into_error()))
    }

    fn reading(&self, mut file: File) -> Result<SortedRun, ManifestError> {
        let failed = || ManifestError::file("read a temporary file in", &self.dir);
        file.rewind().map_err(failed())?;
        let reader = SegmentReader::new(BufReader::new(file)).map_err(failed())?;
        Ok(SortedRun::File { reader: Box::new(reader), dir: self.dir.clone() })
    }
}

impl Iterator for SortedRun {
    type Item = Result<Item, ManifestError>;

    fn next(&mut self) -> Option<Result<Item, ManifestError>> {
        match self {
            SortedRun::File { reader, dir } => {
                reader.next_item().map_err(ManifestError::file("read a temporary file in", dir)).transpose()
            }
            SortedRun::Memory(items) => items.next().map(Ok),
        }
    }
}

impl Iterator for Sorted {
    type Item = Result<Item, ManifestError>;

    fn next(&mut self) -> Option<Result<Item, ManifestError>> {
        self.0.next()
    }
}

/// The memory that an item takes.
fn memory_of(item: &Item) -> usize {
    let target = match &item.kind {
        ItemKind::Link { target } => target.len(),
        ItemKind::File { .. } | ItemKind::Dir => 0,
    };
    ITEM_BYTES + item.path.as_bytes().len() + item.sums.bytes().len() + target
}

/// Runs that are merged at once: a file and a block of a few hundred KiB each.
const RUNS_MAX: usize = 64;
/// Memory of an item besides its path, checksums and target: itself, and what the allocator adds.
const ITEM_BYTES: usize = size_of::<Item>() + 32;

#[cfg(test)]
mod tests {
    use longhaul_core::RelPath;

    use super::*;

    #[test]
    fn the_targets_of_links_count_as_memory() {
        let dir = tempfile::tempdir().unwrap();
        let mut sorter = Sorter::new(dir.path(), 64 << 10);
        for n in 0..32 {
            let (path, target) = (RelPath::new(format!("{n:02}")).unwrap(), vec![b'x'; 4095]);
            let kind = ItemKind::Link { target };
            sorter.add(Item { kind, ..Item::dir(path) }).unwrap();
        }
        assert_eq!(sorter.runs.len(), 2);
        assert_eq!(sorter.finish().unwrap().map(Result::unwrap).count(), 32);
    }

    #[test]
    fn a_list_of_any_length_has_a_bounded_number_of_files_open() {
        let dir = tempfile::tempdir().unwrap();
        let mut sorter = Sorter::new(dir.path(), 1);
        let count = 6 * RUNS_MAX;
        for n in 0..count {
            // Every item is a run of its own.
            let path = RelPath::new(format!("{:04}", (n * 7919) % count)).unwrap();
            sorter.add(Item::dir(path)).unwrap();
            assert!(sorter.runs.len() < RUNS_MAX, "{n}");
            assert!(sorter.runs.is_sorted_by_key(|(level, _)| u32::MAX - level), "{n}");
        }
        let sorted: Vec<Item> = sorter.finish().unwrap().map(Result::unwrap).collect();
        assert!(sorted.len() == count && sorted.is_sorted_by(|one, other| one.path < other.path));
    }
}
