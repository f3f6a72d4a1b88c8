//! The sealed list that a dataset has in it, as the dataset says of itself which files it has.
//!
//! In: the directory of a dataset on this host. Out: the digests of some of its files by that list,
//! or the fault of a list that is lost or damaged. Whichever segments are read tell their ranges,
//! so that later readings leave out those that cannot have what they look for. Writes nothing, and
//! makes no list anew. Must not know candidates.

#![allow(clippy::disallowed_methods, reason = "it only looks whether names in a dataset are plain files")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::limits::DATASET_MANIFEST_NAME;
use longhaul_core::{Blame, Escaped, Fault, FaultCode, Hash32, Mtime, RelPath};
use longhaul_manifest::{Algorithm, HEAD_NAME, Item, ManifestError, Sealed};

use super::ranges::{ListRanges, SegmentRange};

/// Some of the files in a sealed list.
#[derive(Debug)]
pub(super) struct ListedFiles {
    /// The digest of the list.
    pub(super) list: Hash32,
    /// The files that were asked for and are in it.
    pub(super) files: BTreeMap<RelPath, SealedFile>,
    /// Segments that were read for them, each to its end.
    pub(super) segments_read: usize,
}

/// A file, as a sealed list has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SealedFile {
    /// Its BLAKE3. `None`: the list has none of it.
    pub(super) b3: Option<Hash32>,
    /// Its time. `None`: the list has none of it.
    pub(super) mtime: Option<Mtime>,
}

/// Ends the reading of a list, which blocks a thread, once nobody waits for it any more.
#[derive(Default)]
pub(super) struct ReadingEnd(Arc<AtomicBool>);

impl ReadingEnd {
    /// The flag that a reading looks at before each item.
    pub(super) fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }
}

impl Drop for ReadingEnd {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Says which of these paths are files of a dataset by its sealed list, and with which content.
/// Blocks while the list is read, to the end of the segment that the last of them would be in:
/// damage behind that is not found. Segments before it are left out if their ranges are known and
/// have none of the paths. Their names are the digests of what was read then: damage that came
/// since casts no doubt on the others.
///
/// # Errors
/// The fault of a list that is not there, or is damaged; `terminated` once it is over.
pub(super) fn listed(
    dataset: &Path,
    paths: &BTreeSet<RelPath>,
    (ranges, is_over): (&ListRanges, &AtomicBool),
) -> Result<ListedFiles, Fault> {
    let mut reading = ListReading::begin(dataset, (ranges, is_over))?;
    let (list, mut files) = (reading.sealed.digest(), BTreeMap::new());
    let last = paths.last().map(RelPath::as_bytes).unwrap_or_default();
    for number in 0..reading.sealed.head().segments.len() {
        if reading.behind.as_bytes() >= last {
            break;
        }
        if let Some(end) = ranges.end_without((list, number), &reading.behind, paths) {
            reading.behind = end;
            continue;
        }
        // To its end, where its digest is compared once more with what was read of it.
        reading.read(number, |item| {
            if item.is_file() && paths.contains(&item.path) {
                let b3 = item.sums.get(Algorithm::Blake3).and_then(|b3| Hash32::try_from(b3).ok());
                files.insert(item.path.clone(), SealedFile { b3, mtime: item.mtime });
            }
        })?;
    }
    Ok(ListedFiles { list, files, segments_read: reading.segments_read })
}

/// The digest of the sealed list of a dataset, which is another one in each other dataset. Reads
/// the head alone.
///
/// # Errors
/// As [`listed`].
pub(super) fn digest_of(dataset: &Path) -> Result<Hash32, Fault> {
    open(dataset).map(|sealed| sealed.digest())
}

/// Reads all of the sealed list of a dataset, if anything has the name of that: whether its disk is
/// mounted is asked by others. Blocks while it does. Notes the ranges of all segments in front of
/// damage.
///
/// # Errors
/// As [`listed`].
pub(super) fn check(dataset: &Path, (ranges, is_over): (&ListRanges, &AtomicBool)) -> Result<(), Fault> {
    match std::fs::symlink_metadata(dataset) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        _ => {}
    }
    let mut reading = ListReading::begin(dataset, (ranges, is_over))?;
    for number in 0..reading.sealed.head().segments.len() {
        reading.read(number, |_| ())?;
    }
    Ok(())
}

/// A sealed list that is read segment by segment, in order.
struct ListReading<'a> {
    sealed: Sealed,
    ranges: &'a ListRanges,
    is_over: &'a AtomicBool,
    /// The last path of the segments so far. The root: there is none.
    behind: RelPath,
    segments_read: usize,
}

impl<'a> ListReading<'a> {
    fn begin(dataset: &Path, (ranges, is_over): (&'a ListRanges, &'a AtomicBool)) -> Result<ListReading<'a>, Fault> {
        let sealed = open(dataset)?;
        Ok(ListReading { sealed, ranges, is_over, behind: RelPath::root(), segments_read: 0 })
    }

    /// Has `look` see each item of the segment with this number, and notes its range.
    fn read(&mut self, number: usize, mut look: impl FnMut(&Item)) -> Result<(), Fault> {
        self.segments_read += 1;
        let (mut first, mut last) = (None, None);
        for item in self.sealed.items_of(number, &self.behind) {
            need_reader(self.is_over)?;
            let item = item.map_err(|error| unusable(&error))?;
            look(&item);
            if first.is_none() {
                first = Some(item.path.clone());
            }
            last = Some(item.path);
        }
        if let (Some(first), Some(last)) = (first, last) {
            self.behind = last.clone();
            self.ranges.note((self.sealed.digest(), number), SegmentRange { first, last });
        }
        Ok(())
    }
}

fn need_reader(is_over: &AtomicBool) -> Result<(), Fault> {
    match is_over.load(Ordering::Relaxed) {
        true => Err(Fault::new(FaultCode::Terminated, Blame::Local, "the sealed list was not read to its end")),
        false => Ok(()),
    }
}

/// Opens it. What is no plain file is not opened: to open a fifo waits for ever. No link is
/// followed to a dataset either: what it leads to may be changed at any moment.
fn open(dataset: &Path) -> Result<Sealed, Fault> {
    if let Ok(found) = std::fs::symlink_metadata(dataset)
        && !found.is_dir()
    {
        let shown = Escaped(dataset.as_os_str().as_encoded_bytes()).to_string();
        let message = format_args!("'{shown}' is a link or a file, and not the dataset itself");
        let fault = Fault::new(FaultCode::Mismatch, Blame::Local, message).about(shown.clone());
        return Err(fault.hint_in_words("nothing is mended through a link: give the dataset itself that name again"));
    }
    let dir = dataset.join(OsStr::from_bytes(DATASET_MANIFEST_NAME));
    need(&dir, Metadata::is_dir)?;
    need(&dir.join(HEAD_NAME), Metadata::is_file)?;
    let sealed = Sealed::open(&dir).map_err(|error| unusable(&error))?;
    for segment in &sealed.head().segments {
        need(&sealed.file(segment), Metadata::is_file)?;
    }
    Ok(sealed)
}

fn need(path: &Path, is_right: fn(&Metadata) -> bool) -> Result<(), Fault> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if is_right(&found) => Ok(()),
        Ok(_) => {
            let shown = Escaped(path.as_os_str().as_encoded_bytes()).to_string();
            let message = format_args!("'{shown}' is another kind of file than a dataset has there");
            Err(advised(Fault::new(FaultCode::Mismatch, Blame::Local, message).about(shown.clone())))
        }
        Err(source) => {
            let path = PathBuf::from(path);
            Err(unusable(&ManifestError::File { doing: "read the sealed list of the dataset,", path, source }))
        }
    }
}

fn unusable(error: &ManifestError) -> Fault {
    let fault = error.fault();
    // No user has named the file: it is not what the dataset came with.
    let code = if matches!(error, ManifestError::Head { .. }) { FaultCode::Mismatch } else { fault.code };
    advised(Fault { code, ..fault })
}

fn advised(fault: Fault) -> Fault {
    fault.hint_in_words(
        "the sealed list is never written anew, and nothing is mended by the digests that it no longer confirms: \
         restore it from a backup, or have the campaign's files moved again under another name",
    )
}

#[cfg(test)]
mod tests {
    use longhaul_core::checksum::Sums;
    use longhaul_manifest::{Draft, Lists};
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn path(name: &str) -> RelPath {
        RelPath::new(name).unwrap()
    }

    /// A dataset with a sealed list of the files `a` to `c`, and of one without a digest.
    fn dataset(top: &Path) -> PathBuf {
        sealed(top, &[("a", 1), ("b", 2), ("bare", 0), ("c", 3)], 10)
    }

    /// A dataset with a sealed list of these files, with so many in a segment. Each has a digest of
    /// the given bytes, and none if that is 0. It takes the place of one that stands.
    fn sealed(top: &Path, files: &[(&str, u8)], of_segment: u64) -> PathBuf {
        let dataset = top.join("run-7");
        let dir = dataset.join(OsStr::from_bytes(DATASET_MANIFEST_NAME));
        let _ = std::fs::remove_dir_all(&dataset);
        std::fs::create_dir(&dataset).unwrap();
        let mut draft = Draft::begin(&dir).unwrap().with_segments_of(of_segment);
        for (name, byte) in files {
            let sums = Sums::one(Algorithm::Blake3, &[*byte; 32]).unwrap();
            let sums = if *byte == 0 { Sums::default() } else { sums };
            draft.add(&Item::file(path(name), Some(7), sums)).unwrap();
        }
        draft.seal(Lists::ALL, 0).unwrap();
        dataset
    }

    /// A dataset with a list of four segments of two files: `a` and `b`, `c` and `d`, and so on.
    fn segmented(top: &Path) -> PathBuf {
        sealed(top, &[("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", 5), ("f", 6), ("g", 7), ("h", 8)], 2)
    }

    /// Changes the last byte of the content of a segment.
    fn damage(dataset: &Path, number: usize) {
        let list = Sealed::open(&dataset.join(OsStr::from_bytes(DATASET_MANIFEST_NAME))).unwrap();
        let file = list.file(&list.head().segments[number]);
        let mut bytes = std::fs::read(&file).unwrap();
        // Sixteen bytes behind the last block end a segment.
        let at = bytes.len() - 17;
        bytes[at] ^= 1;
        std::fs::write(&file, bytes).unwrap();
    }

    /// Asks for these names. Gives those that the list has, and how many segments were read.
    fn ask(dataset: &Path, ranges: &ListRanges, names: &[&str]) -> Result<(Vec<String>, usize), Fault> {
        let paths = names.iter().map(|name| path(name)).collect();
        let listed = listed(dataset, &paths, (ranges, &AtomicBool::new(false)))?;
        Ok((listed.files.keys().map(|path| path.escaped().to_string()).collect(), listed.segments_read))
    }

    fn found(names: &[&str], segments_read: usize) -> (Vec<String>, usize) {
        (names.iter().map(|name| (*name).to_owned()).collect(), segments_read)
    }

    fn check_all(dataset: &Path, ranges: &ListRanges) -> Result<(), Fault> {
        check(dataset, (ranges, &AtomicBool::new(false)))
    }

    #[test]
    fn the_digests_of_files_are_those_that_the_list_has_and_others_are_not_in_it() {
        let top = tempfile::tempdir().unwrap();
        let dataset = dataset(top.path());
        let (ranges, paths) = (ListRanges::default(), BTreeSet::from(["a", "b", "bare", "bb"].map(path)));
        let file = |b3| SealedFile { b3, mtime: None };
        let expected = [(path("a"), file(Some([1; 32]))), (path("b"), file(Some([2; 32]))), (path("bare"), file(None))];
        let expected = BTreeMap::from(expected);
        // Once by a list that is not known yet, and once by one that is.
        for _ in 0..2 {
            let listed = listed(&dataset, &paths, (&ranges, &AtomicBool::new(false))).unwrap();
            assert_eq!(listed.files, expected);
            assert_eq!(digest_of(&dataset).unwrap(), listed.list);
            check_all(&dataset, &ranges).unwrap();
        }
    }

    #[test]
    fn segments_that_cannot_have_what_is_looked_for_are_read_once() {
        let top = tempfile::tempdir().unwrap();
        let (dataset, ranges) = (segmented(top.path()), ListRanges::default());
        assert_eq!(ask(&dataset, &ranges, &[]).unwrap(), found(&[], 0));
        assert_eq!(ask(&dataset, &ranges, &["a"]).unwrap(), found(&["a"], 1));
        assert_eq!(ask(&dataset, &ranges, &["0"]).unwrap(), found(&[], 0), "the first was read to its end");
        assert_eq!(ask(&dataset, &ranges, &["e", "ee"]).unwrap(), found(&["e"], 2), "the first is known");
        assert_eq!(ask(&dataset, &ranges, &["f"]).unwrap(), found(&["f"], 1), "the third alone");
        assert_eq!(ask(&dataset, &ranges, &["h"]).unwrap(), found(&["h"], 1), "the third is known as well");
        assert_eq!(ask(&dataset, &ranges, &["a", "h"]).unwrap(), found(&["a", "h"], 2));
        assert_eq!(ask(&dataset, &ranges, &["bb", "dd", "i"]).unwrap(), found(&[], 0), "between segments");
        assert_eq!(ask(&dataset, &ranges, &["aa", "b", "c"]).unwrap(), found(&["b", "c"], 2));
    }

    #[test]
    fn a_whole_reading_makes_the_ranges_of_all_segments_known() {
        let top = tempfile::tempdir().unwrap();
        let (dataset, ranges) = (segmented(top.path()), ListRanges::default());
        check_all(&dataset, &ranges).unwrap();
        for name in ["h", "a", "d", "e"] {
            assert_eq!(ask(&dataset, &ranges, &[name]).unwrap(), found(&[name], 1));
        }
        assert_eq!(ask(&dataset, &ranges, &["0", "z"]).unwrap(), found(&[], 0));
    }

    #[test]
    fn another_list_with_the_name_is_read_from_its_start_and_has_its_own_files_alone() {
        let top = tempfile::tempdir().unwrap();
        let ranges = ListRanges::default();
        let dataset = segmented(top.path());
        check_all(&dataset, &ranges).unwrap();
        let before = digest_of(&dataset).unwrap();
        // By the ranges of the earlier list its first two segments would be passed over.
        let dataset = sealed(top.path(), &[("a", 1), ("e", 9), ("ea", 1), ("f", 2), ("g", 7), ("h", 8)], 2);
        let paths = BTreeSet::from(["e", "h"].map(path));
        let listed = listed(&dataset, &paths, (&ranges, &AtomicBool::new(false))).unwrap();
        assert_ne!(listed.list, before);
        assert_eq!(listed.segments_read, 3);
        assert_eq!(listed.files[&path("e")].b3, Some([9; 32]));
        assert_eq!(ask(&dataset, &ranges, &["e"]).unwrap(), found(&["e"], 1), "and is known from then on");
        let dataset = segmented(top.path());
        assert_eq!(ask(&dataset, &ranges, &["e"]).unwrap(), found(&["e"], 3), "the earlier one is forgotten");
    }

    #[test]
    fn damage_is_found_in_a_segment_that_is_read_and_elsewhere_confirms_nothing_less() {
        let top = tempfile::tempdir().unwrap();
        let (dataset, ranges) = (segmented(top.path()), ListRanges::default());
        check_all(&dataset, &ranges).unwrap();
        damage(&dataset, 1);
        assert_eq!(ask(&dataset, &ranges, &["a", "e"]).unwrap(), found(&["a", "e"], 2), "it is whole elsewhere");
        for names in [&["c"][..], &["a", "d", "h"], &["cc"]] {
            let fault = ask(&dataset, &ranges, names).unwrap_err();
            assert!(fault.message.as_str().contains("is damaged"), "{names:?}: {}", fault.message);
        }
        check_all(&dataset, &ranges).unwrap_err();
        // Nobody has read the list while it was whole: what the damage hides is not known.
        let fresh = ListRanges::default();
        check_all(&dataset, &fresh).unwrap_err();
        assert_eq!(ask(&dataset, &fresh, &["b"]).unwrap(), found(&["b"], 1));
        assert!(ask(&dataset, &fresh, &["e"]).is_err());
    }

    #[test]
    fn a_segment_that_is_gone_is_a_fault_whether_it_would_be_read_or_not() {
        let top = tempfile::tempdir().unwrap();
        let (dataset, ranges) = (segmented(top.path()), ListRanges::default());
        check_all(&dataset, &ranges).unwrap();
        let list = Sealed::open(&dataset.join(OsStr::from_bytes(DATASET_MANIFEST_NAME))).unwrap();
        std::fs::remove_file(list.file(&list.head().segments[0])).unwrap();
        assert_eq!(ask(&dataset, &ranges, &["h"]).unwrap_err().code, FaultCode::NotFound);
        assert_eq!(digest_of(&dataset).unwrap_err().code, FaultCode::NotFound);
    }

    #[test]
    fn a_list_whose_segments_are_not_in_order_confirms_nothing_behind_that() {
        let top = tempfile::tempdir().unwrap();
        let (dataset, ranges) = (segmented(top.path()), ListRanges::default());
        let dir = dataset.join(OsStr::from_bytes(DATASET_MANIFEST_NAME));
        let mut head = Sealed::open(&dir).unwrap().head().clone();
        head.segments.swap(1, 2);
        std::fs::write(dir.join(HEAD_NAME), head.text()).unwrap();
        for _ in 0..2 {
            let fault = check_all(&dataset, &ranges).unwrap_err();
            assert!(fault.message.as_str().contains("do not ascend"), "{}", fault.message);
            assert_eq!(ask(&dataset, &ranges, &["a"]).unwrap(), found(&["a"], 1));
            assert!(ask(&dataset, &ranges, &["h"]).is_err());
        }
    }

    #[test]
    fn a_reading_for_which_nobody_waits_any_more_ends() {
        let top = tempfile::tempdir().unwrap();
        let dataset = dataset(top.path());
        let (end, ranges) = (ReadingEnd::default(), ListRanges::default());
        let is_over = end.flag();
        drop(end);
        assert_eq!(check(&dataset, (&ranges, &is_over)).unwrap_err().code, FaultCode::Terminated);
        let listed = listed(&dataset, &BTreeSet::from([path("c")]), (&ranges, &is_over));
        assert_eq!(listed.unwrap_err().code, FaultCode::Terminated);
    }

    #[test]
    fn a_link_with_the_name_of_a_dataset_is_not_followed() {
        let top = tempfile::tempdir().unwrap();
        let dataset = dataset(top.path());
        let (link, ranges) = (top.path().join("link"), ListRanges::default());
        std::os::unix::fs::symlink(&dataset, &link).unwrap();
        for fault in [check_all(&link, &ranges).unwrap_err(), digest_of(&link).unwrap_err()] {
            assert_eq!(fault.code, FaultCode::Mismatch);
            assert!(fault.message.as_str().contains("not the dataset itself"), "{}", fault.message);
        }
    }

    #[test]
    fn a_list_that_is_lost_or_damaged_or_another_kind_of_file_is_a_fault_and_is_not_waited_for() {
        let top = tempfile::tempdir().unwrap();
        assert_eq!(digest_of(&top.path().join("none")).unwrap_err().code, FaultCode::NotFound);
        let ranges = ListRanges::default();
        check_all(&top.path().join("none"), &ranges).unwrap();
        let dataset = dataset(top.path());
        let dir = dataset.join(OsStr::from_bytes(DATASET_MANIFEST_NAME));
        let segment = {
            let sealed = Sealed::open(&dir).unwrap();
            sealed.file(&sealed.head().segments[0])
        };
        let whole = std::fs::read(&segment).unwrap();
        std::fs::write(&segment, &whole[..whole.len() - 1]).unwrap();
        assert!(check_all(&dataset, &ranges).is_err());
        assert!(ask(&dataset, &ranges, &["a"]).is_err());
        std::fs::remove_file(&segment).unwrap();
        mknodat(CWD, &segment, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        assert_eq!(digest_of(&dataset).unwrap_err().code, FaultCode::Mismatch);
        std::fs::write(dir.join(HEAD_NAME), "no head").unwrap();
        assert_eq!(digest_of(&dataset).unwrap_err().code, FaultCode::Mismatch);
        std::fs::remove_dir_all(&dir).unwrap();
        std::os::unix::fs::symlink("elsewhere", &dir).unwrap();
        assert_eq!(digest_of(&dataset).unwrap_err().code, FaultCode::Mismatch);
    }
}
