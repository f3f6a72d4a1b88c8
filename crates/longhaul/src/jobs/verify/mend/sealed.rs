//! The sealed list that a dataset has in it, as the dataset says of itself which files it has.
//!
//! In: the directory of a dataset on this host. Out: the digests of some of its files by that list,
//! or the fault of a list that is lost or damaged. Writes nothing, and makes no list anew. Must not
//! know candidates.

#![allow(clippy::disallowed_methods, reason = "it only looks whether names in a dataset are plain files")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use longhaul_core::limits::DATASET_MANIFEST_NAME;
use longhaul_core::{Blame, Escaped, Fault, FaultCode, Hash32, RelPath};
use longhaul_manifest::{Algorithm, HEAD_NAME, ManifestError, Sealed};

/// The digest of a sealed list, and the BLAKE3 of some of the files in it.
pub(super) type ListedDigests = (Hash32, BTreeMap<RelPath, Hash32>);

/// Says which of these paths are files of a dataset by its sealed list, and with which content.
/// Blocks while the list is read, to the last of them.
///
/// # Errors
/// The fault of a list that is not there, or is damaged.
pub(super) fn listed(dataset: &Path, paths: &BTreeSet<RelPath>) -> Result<ListedDigests, Fault> {
    let (sealed, mut found) = (open(dataset)?, BTreeMap::new());
    let Some(last) = paths.last() else { return Ok((sealed.digest(), found)) };
    for item in sealed.items() {
        let item = item.map_err(|error| unusable(&error))?;
        if item.path.as_bytes() > last.as_bytes() {
            break;
        }
        if item.is_file() && paths.contains(&item.path) {
            let b3 = item.sums.get(Algorithm::Blake3).and_then(|b3| Hash32::try_from(b3).ok());
            found.extend(b3.map(|b3| (item.path, b3)));
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

/// Reads all of the sealed list of a dataset, if that is there: whether its disk is mounted is
/// asked by others. Blocks while it does.
///
/// # Errors
/// As [`listed`].
pub(super) fn check(dataset: &Path) -> Result<(), Fault> {
    if !std::fs::symlink_metadata(dataset).is_ok_and(|found| found.is_dir()) {
        return Ok(());
    }
    open(dataset)?.items().try_for_each(|item| item.map(|_| ()).map_err(|error| unusable(&error)))
}

/// Opens it. What is no plain file is not opened: to open a fifo waits for ever.
fn open(dataset: &Path) -> Result<Sealed, Fault> {
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

    /// A dataset with a sealed list of the files `a` to `c`.
    fn dataset(top: &Path) -> PathBuf {
        let dataset = top.join("run-7");
        std::fs::create_dir(&dataset).unwrap();
        let mut draft = Draft::begin(&dataset.join(OsStr::from_bytes(DATASET_MANIFEST_NAME))).unwrap();
        for (name, byte) in [("a", 1), ("b", 2), ("c", 3)] {
            let sums = Sums::one(Algorithm::Blake3, &[byte; 32]).unwrap();
            draft.add(&Item::file(path(name), Some(7), sums)).unwrap();
        }
        draft.seal(Lists::ALL, 0).unwrap();
        dataset
    }

    #[test]
    fn the_digests_of_files_are_those_that_the_list_has_and_others_are_not_in_it() {
        let top = tempfile::tempdir().unwrap();
        let dataset = dataset(top.path());
        let (digest, found) = listed(&dataset, &BTreeSet::from([path("a"), path("b"), path("bb")])).unwrap();
        assert_eq!(found, BTreeMap::from([(path("a"), [1; 32]), (path("b"), [2; 32])]));
        assert_eq!(digest_of(&dataset).unwrap(), digest);
        check(&dataset).unwrap();
    }

    #[test]
    fn a_list_that_is_lost_or_damaged_or_another_kind_of_file_is_a_fault_and_is_not_waited_for() {
        let top = tempfile::tempdir().unwrap();
        assert_eq!(digest_of(&top.path().join("none")).unwrap_err().code, FaultCode::NotFound);
        check(&top.path().join("none")).unwrap();
        let dataset = dataset(top.path());
        let dir = dataset.join(OsStr::from_bytes(DATASET_MANIFEST_NAME));
        let segment = {
            let sealed = Sealed::open(&dir).unwrap();
            sealed.file(&sealed.head().segments[0])
        };
        let whole = std::fs::read(&segment).unwrap();
        std::fs::write(&segment, &whole[..whole.len() - 1]).unwrap();
        assert!(check(&dataset).is_err() && listed(&dataset, &BTreeSet::from([path("a")])).is_err());
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
