//! Names that a directory does not tell apart: whether what stands under one is known there by another spelling, and was put
//! there by this very session.
//!
//! In: a name under which something was found standing. Out: a refusal if it is the twin of another name of the same transfer,
//! which would silently take the first one's place. Costs a look at one more name for each directory where letters count, and
//! a listing of the directory where they do not. Remembers one directory at a time.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use longhaul_core::RelPath;
use rustix::fs::{AtFlags, StatxFlags, statat, statx};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::error::DiskError;
use crate::names::each_name;
use crate::stat::place_of;
use crate::target::SyncMethod;
use crate::walk::Dir;

/// What is known of the spelling of names where a session writes.
#[derive(Debug)]
pub(crate) struct Spellings {
    /// When the session began, in seconds of the system's clock.
    began: i64,
    hasher: RandomState,
    last: Mutex<Last>,
}

/// The directory that was asked about last.
#[derive(Debug, Default)]
struct Last {
    /// Device and inode.
    place: Option<(u64, u64)>,
    /// Whether upper and lower case are one in it. `None`: no name with letters was met.
    folds_case: Option<bool>,
    /// Hashes of the names in it, once they were asked for.
    names: HashSet<u64>,
}

impl Spellings {
    /// From now on.
    pub(crate) fn new() -> Spellings {
        let began = clock_gettime(ClockId::RealtimeCoarse).tv_sec;
        Spellings { began, hasher: RandomState::new(), last: Mutex::default() }
    }

    /// Sees to it that what stands as `name` in `dir` is not what this session made under another spelling. `method` tells
    /// whether the file system is one of those that are known to compare all but ASCII letters as they are.
    pub(crate) fn check(&self, dir: &Dir, name: &[u8], method: SyncMethod, path: &RelPath) -> Result<(), DiskError> {
        let examined = |error| DiskError::call("examine", path, error);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.place != Some(dir.place()) {
            *last = Last { place: Some(dir.place()), ..Last::default() };
        }
        let may_fold = match last.folds_case {
            Some(folds) => folds,
            None => {
                last.folds_case = folds_case(dir, name).map_err(examined)?;
                last.folds_case == Some(true)
            }
        };
        if !may_fold && (name.is_ascii() || method == SyncMethod::FileSystem) {
            return Ok(());
        }
        let hash = self.hasher.hash_one(name);
        if last.names.contains(&hash) {
            return Ok(());
        }
        // It may have come since.
        last.names = HashSet::new();
        let mut is_spelled_so = false;
        let listed = dir.readable().and_then(|fd| {
            each_name(fd, |found| {
                is_spelled_so |= found == name;
                if last.names.len() < NAMES_MAX {
                    last.names.insert(self.hasher.hash_one(found));
                }
            })
        });
        listed.map_err(|error| DiskError::call("list the directory of", path, error))?;
        if is_spelled_so || !self.is_of_this_session(dir, name).map_err(examined)? {
            return Ok(());
        }
        Err(DiskError::OtherSpelling { path: path.into() })
    }

    /// Whether it was made, or given its name, since the session began.
    fn is_of_this_session(&self, dir: &Dir, name: &[u8]) -> Result<bool, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let stat = match statx(dir, name, flags, StatxFlags::CTIME | StatxFlags::BTIME) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(false),
            Err(error) => return Err(error),
        };
        Ok(stat.stx_ctime.tv_sec.max(stat.stx_btime.tv_sec) >= self.began)
    }
}

/// Whether `name`, which stands in `dir`, stands there with its letters' case turned too. `None`: it has no letters.
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

/// Names of one directory that are remembered: 16 MiB or so. In a larger one that folds, each name beyond costs a listing.
const NAMES_MAX: usize = 1 << 20;
