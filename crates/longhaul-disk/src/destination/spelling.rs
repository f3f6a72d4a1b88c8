//! Names that a directory does not tell apart: checks whether a file under one name is known there
//! by another spelling, and was put there by this very session.
//!
//! In: a name under which a file was found standing. Out: a refusal if it is the twin of another
//! name of the same transfer, which would silently take the first one's place. Costs nothing before
//! anything was made on the file system; then it costs a look at one more name for each directory,
//! to learn whether it folds case, and one at each name that may have another spelling there. Files
//! that changed there since are looked for in a listing. Remembers a bounded number of directories.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use longhaul_core::RelPath;
use rustix::fs::{AtFlags, StatxFlags, statat, statx};
use rustix::io::Errno;

use super::SyncMethod;
use super::device::Device;
use crate::error::DiskError;
use crate::names::each_name;
use crate::stat::place_of;
use crate::walk::Dir;

/// The known facts about the spelling of names where a session writes.
#[derive(Debug, Default)]
pub(crate) struct Spellings {
    hasher: RandomState,
    /// The directories that were asked about last, the latest in front.
    directories: Mutex<Vec<KnownSpelling>>,
}

/// A directory that was asked about.
#[derive(Debug)]
struct KnownSpelling {
    /// Device and inode.
    place: (u64, u64),
    /// Whether it takes upper and lower case for the same. `None` until a name with letters was
    /// met.
    folds_case: Option<bool>,
    /// Hashes of the names in it; empty until they were asked for.
    names: HashSet<u64>,
}

impl Spellings {
    /// Checks that the file that stands as `name` in `dir` was not made by this session under
    /// another spelling. `device` tells when the session began there, and whether its file system
    /// is known to compare all characters but ASCII letters as they are.
    pub(crate) fn check(&self, dir: &Dir, name: &[u8], device: &Device, path: &RelPath) -> Result<(), DiskError> {
        let examined = |error| DiskError::call("examine", path, error);
        let Some(began) = device.began() else { return Ok(()) };
        let mut known = self.directories.lock().unwrap_or_else(PoisonError::into_inner);
        let (first, others) = first(&mut known, dir.place());
        let may_fold = match first.folds_case {
            Some(folds) => folds,
            None => {
                first.folds_case = folds_case(dir, name).map_err(examined)?;
                first.folds_case == Some(true)
            }
        };
        if !may_fold && (name.is_ascii() || device.method() == SyncMethod::FileSystem) {
            return Ok(());
        }
        let hash = self.hasher.hash_one(name);
        // A file that stood before the session is no twin: to send a tree again lists nothing.
        if first.names.contains(&hash) || !is_since(dir, name, began).map_err(examined)? {
            return Ok(());
        }
        // It may have come since.
        first.names = HashSet::new();
        let mut is_spelled_so = false;
        let listed = dir.readable().and_then(|fd| {
            each_name(fd, |found| {
                is_spelled_so |= found == name;
                if first.names.len() < NAMES_MAX {
                    first.names.insert(self.hasher.hash_one(found));
                }
            })
        });
        listed.map_err(|error| DiskError::call("list the directory of", path, error))?;
        if first.names.len() + others.iter().map(|known| known.names.len()).sum::<usize>() > NAMES_MAX {
            others.iter_mut().for_each(|known| known.names = HashSet::new());
        }
        if is_spelled_so { Ok(()) } else { Err(DiskError::OtherSpelling { path: path.into() }) }
    }
}

/// Puts the directory at `place` in front. Returns it, and the others.
fn first(known: &mut Vec<KnownSpelling>, place: (u64, u64)) -> (&mut KnownSpelling, &mut [KnownSpelling]) {
    match known.iter().position(|known| known.place == place) {
        Some(at) => known[..=at].rotate_right(1),
        None => {
            known.truncate(DIRS_MAX - 1);
            known.insert(0, KnownSpelling { place, folds_case: None, names: HashSet::new() });
        }
    }
    let (first, others) = known.split_at_mut(1);
    (&mut first[0], others)
}

/// Whether a name was made, or given to its file, at that second of its file system's clock or
/// later.
fn is_since(dir: &Dir, name: &[u8], began: i64) -> Result<bool, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    let stat = match statx(dir, name, flags, StatxFlags::CTIME | StatxFlags::BTIME) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(false),
        Err(error) => return Err(error),
    };
    Ok(stat.stx_ctime.tv_sec.max(stat.stx_btime.tv_sec) >= began)
}

/// Whether `name`, which stands in `dir`, is found there with its letters' case turned too. `None`
/// if it has no letters.
fn folds_case(dir: &Dir, name: &[u8]) -> Result<Option<bool>, Errno> {
    if !name.iter().any(u8::is_ascii_alphabetic) {
        return Ok(None);
    }
    let turned: Vec<u8> = name
        .iter()
        .map(|b| if b.is_ascii_lowercase() { b.to_ascii_uppercase() } else { b.to_ascii_lowercase() })
        .collect();
    let place = |name: &[u8]| match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(place_of(&stat))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    };
    Ok(Some(match place(&turned)? {
        Some(found) => place(name)? == Some(found),
        None => false,
    }))
}

/// Names that are remembered: 16 MiB or so. In a larger directory that folds, each name beyond that
/// changed since the session began costs a listing.
const NAMES_MAX: usize = 1 << 20;
/// Directories that are remembered: a tree goes depth first, so those on one path, which is seldom
/// deeper.
const DIRS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::testing::path;

    /// A name that no directory lists and that leads to a file all the same, as another spelling
    /// does.
    const OTHERWISE: &str = "./\u{e9}";
    const SO: &str = "\u{e9}";

    fn scene() -> (tempfile::TempDir, Arc<Dir>, Device) {
        let top = tempfile::tempdir().expect("tempdir");
        let dir = Arc::new(Dir::open_named(top.path()).expect("dir"));
        let device = Device::watch(&dir).expect("device").syncing_each();
        (top, dir, device)
    }

    #[test]
    fn what_stood_before_the_session_lists_nothing_and_what_came_since_is_refused_by_another_spelling() {
        let (top, dir, device) = scene();
        let spellings = Spellings::default();
        let listed = || spellings.directories.lock().expect("lock").iter().any(|known| !known.names.is_empty());
        let check = |name: &str| spellings.check(&dir, name.as_bytes(), &device, &path("x"));
        std::fs::write(top.path().join(SO), b"").expect("file");
        assert!(check(OTHERWISE).is_ok(), "nothing was made yet");
        // Seconds are compared.
        std::thread::sleep(Duration::from_millis(1100));
        std::fs::write(top.path().join("made"), b"").expect("file");
        device.made(&dir, b"made");
        assert!(check(OTHERWISE).is_ok() && check(SO).is_ok() && !listed());
        std::fs::write(top.path().join("new"), b"").expect("file");
        std::fs::rename(top.path().join("new"), top.path().join(SO)).expect("rename");
        assert!(matches!(check(OTHERWISE), Err(DiskError::OtherSpelling { .. })));
        assert!(check(SO).is_ok() && listed());
    }

    #[test]
    fn the_session_begins_with_the_first_thing_made_by_the_file_systems_own_clock() {
        let (top, dir, device) = scene();
        assert_eq!(device.began(), None);
        device.made(&dir, b"missing");
        assert_eq!(device.began(), None);
        std::fs::write(top.path().join("made"), b"").expect("file");
        device.made(&dir, b"made");
        let stat = statat(&dir, "made", AtFlags::empty()).expect("stat");
        assert_eq!(device.began(), Some(stat.st_ctime));
    }

    #[test]
    fn directories_that_are_remembered_are_bounded_and_the_last_ones_stay() {
        let mut known = Vec::new();
        for inode in 0..200 {
            first(&mut known, (1, inode)).0.folds_case = Some(true);
            // In between again and again, as the one above.
            assert_eq!(first(&mut known, (1, 0)).0.folds_case, Some(true));
            assert!(known.len() <= DIRS_MAX);
        }
        assert_eq!(first(&mut known, (1, 1)).0.folds_case, None);
        assert_eq!(first(&mut known, (1, 199)).0.folds_case, Some(true));
    }
}
