//! The sealed list that a dataset has in it, as the dataset says of itself which files it has.
//!
//! In: the directory of a dataset on this host. Out: the digests of some of its files by that list,
//! or the fault of a list that is lost or damaged. Writes nothing, and makes no list anew. Must not
//! know candidates.

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
use longhaul_manifest::{Algorithm, HEAD_NAME, ManifestError, Sealed};

/// The digest of a sealed list, and some of the files in it.
pub(super) type ListedFiles = (Hash32, BTreeMap<RelPath, SealedFile>);

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
/// Blocks while the list is read, to the last of them: damage behind that is not found.
///
/// # Errors
/// The fault of a list that is not there, or is damaged; `terminated` once it is over.
pub(super) fn listed(dataset: &Path, paths: &BTreeSet<RelPath>, is_over: &AtomicBool) -> Result<ListedFiles, Fault> {
    let (sealed, mut found) = (open(dataset)?, BTreeMap::new());
    let Some(last) = paths.last() else { return Ok((sealed.digest(), found)) };
    for item in sealed.items() {
        need_reader(is_over)?;
        let item = item.map_err(|error| unusable(&error))?;
        if item.path.as_bytes() > last.as_bytes() {
            break;
        }
        if item.is_file() && paths.contains(&item.path) {
            let b3 = item.sums.get(Algorithm::Blake3).and_then(|b3| Hash32::try_from(b3).ok());
            found.insert(item.path, SealedFile { b3, mtime: item.mtime });
        }
    }
    Ok((sealed.digest(), found))
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
/// mounted is asked by others. Blocks while it does.
///
/// # Errors
/// As [`listed`].
pub(super) fn check(dataset: &Path, is_over: &AtomicBool) -> Result<(), Fault> {
    match std::fs::symlink_metadata(dataset) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        _ => {}
    }
    let sealed = open(dataset)?;
    sealed.items().try_for_each(|item| {
        need_reader(is_over)?;
        item.map(|_| ()).map_err(|error| unusable(&error))
    })
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
    use longhaul_manifest::{Draft, Item, Lists};
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn path(name: &str) -> RelPath {
        RelPath::new(name).unwrap()
    }

    /// A dataset with a sealed list of the files `a` to `c`, and of one without a digest.
    fn dataset(top: &Path) -> PathBuf {
        let dataset = top.join("run-7");
        std::fs::create_dir(&dataset).unwrap();
        let mut draft = Draft::begin(&dataset.join(OsStr::from_bytes(DATASET_MANIFEST_NAME))).unwrap();
        for (name, byte) in [("a", 1), ("b", 2), ("bare", 0), ("c", 3)] {
            let sums = Sums::one(Algorithm::Blake3, &[byte; 32]).unwrap();
            let sums = if byte == 0 { Sums::default() } else { sums };
            draft.add(&Item::file(path(name), Some(7), sums)).unwrap();
        }
        draft.seal(Lists::ALL, 0).unwrap();
        dataset
    }

    #[test]
    fn the_digests_of_files_are_those_that_the_list_has_and_others_are_not_in_it() {
        let top = tempfile::tempdir().unwrap();
        let dataset = dataset(top.path());
        let (end, paths) = (ReadingEnd::default(), BTreeSet::from(["a", "b", "bare", "bb"].map(path)));
        let (digest, found) = listed(&dataset, &paths, &end.flag()).unwrap();
        let file = |b3| SealedFile { b3, mtime: None };
        let expected = [(path("a"), file(Some([1; 32]))), (path("b"), file(Some([2; 32]))), (path("bare"), file(None))];
        assert_eq!(found, BTreeMap::from(expected));
        assert_eq!(digest_of(&dataset).unwrap(), digest);
        check(&dataset, &end.flag()).unwrap();
    }

    #[test]
    fn a_reading_for_which_nobody_waits_any_more_ends() {
        let top = tempfile::tempdir().unwrap();
        let dataset = dataset(top.path());
        let end = ReadingEnd::default();
        let is_over = end.flag();
        drop(end);
        assert_eq!(check(&dataset, &is_over).unwrap_err().code, FaultCode::Terminated);
        let listed = listed(&dataset, &BTreeSet::from([path("c")]), &is_over);
        assert_eq!(listed.unwrap_err().code, FaultCode::Terminated);
    }

    #[test]
    fn a_link_with_the_name_of_a_dataset_is_not_followed() {
        let top = tempfile::tempdir().unwrap();
        let dataset = dataset(top.path());
        let (link, end) = (top.path().join("link"), ReadingEnd::default());
        std::os::unix::fs::symlink(&dataset, &link).unwrap();
        for fault in [check(&link, &end.flag()).unwrap_err(), digest_of(&link).unwrap_err()] {
            assert_eq!(fault.code, FaultCode::Mismatch);
            assert!(fault.message.as_str().contains("not the dataset itself"), "{}", fault.message);
        }
    }

    #[test]
    fn a_list_that_is_lost_or_damaged_or_another_kind_of_file_is_a_fault_and_is_not_waited_for() {
        let top = tempfile::tempdir().unwrap();
        assert_eq!(digest_of(&top.path().join("none")).unwrap_err().code, FaultCode::NotFound);
        let end = ReadingEnd::default();
        check(&top.path().join("none"), &end.flag()).unwrap();
        let dataset = dataset(top.path());
        let dir = dataset.join(OsStr::from_bytes(DATASET_MANIFEST_NAME));
        let segment = {
            let sealed = Sealed::open(&dir).unwrap();
            sealed.file(&sealed.head().segments[0])
        };
        let whole = std::fs::read(&segment).unwrap();
        std::fs::write(&segment, &whole[..whole.len() - 1]).unwrap();
        assert!(check(&dataset, &end.flag()).is_err());
        assert!(listed(&dataset, &BTreeSet::from([path("a")]), &end.flag()).is_err());
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
