//! Striped files: one file whose chunks lie in bodies on several targets of a set, found by a
//! stripe file under its name.
//!
//! In: the key of the set, and the directory of bodies on each target. Out: what a name is that
//! looks like a stripe file ([`Stripes::header_of`]), its content ([`StripedFile`]), and the
//! formats in which one is written. A stripe file is believed only with its MAC; anything else with
//! its length is a plain file. Knows no trees, no sessions and no peers.

mod footer;
mod header;
mod keys;
mod read;
mod records;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::{TargetId, TempName};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::fill::read_up_to;
use crate::stat::{len_of, place_of, type_of};

pub(crate) use footer::{Footer, TRAILER_BYTES};
pub(crate) use header::{HEADER_BYTES, Header, Whole};
pub(crate) use keys::{SECRET_BYTES, SetKey};
pub(crate) use read::{LogEnd, StripedFile, Whereabouts, read_blocks, read_log};
pub(crate) use records::{BLOCK_RECORDS_MAX, CHUNKS_MAX, Record, block};

/// The striped files of a set: the key by which they are believed, and where their bodies lie.
#[derive(Debug)]
pub(crate) struct Stripes {
    key: SetKey,
    /// One for each target, in order.
    targets: Vec<BodyDir>,
    /// Striped files that were compared lately, which is done chunk by chunk; the last one used
    /// comes last.
    compared: Mutex<Vec<Compared>>,
}

/// The directory of bodies on one target.
#[derive(Debug)]
pub(crate) struct BodyDir {
    /// The target.
    pub(crate) target: TargetId,
    /// The directory of the target, as the operator named it.
    pub(crate) named: PathBuf,
    /// The directory. `None`: the target is missing.
    pub(crate) dir: Option<OwnedFd>,
}

/// A striped file that was compared: its version, its id, and itself.
type Compared = (Version, TempName, Arc<StripedFile>);

/// Device, inode, length and time of change of a stripe file.
type Version = (u64, u64, u64, i64, i64);

impl Stripes {
    /// The striped files of the set with this key.
    pub(crate) fn new(key: SetKey, targets: Vec<BodyDir>) -> Stripes {
        Stripes { key, targets, compared: Mutex::default() }
    }

    /// The key of the set.
    pub(crate) fn key(&self) -> &SetKey {
        &self.key
    }

    /// The directory of bodies on a target, or what is wrong with the target.
    fn bodies(&self, target: TargetId) -> Option<&BodyDir> {
        self.targets.iter().find(|known| known.target == target)
    }

    /// The directories of bodies that are there.
    pub(crate) fn there(&self) -> impl Iterator<Item = (TargetId, BorrowedFd<'_>)> {
        self.targets.iter().filter_map(|known| Some((known.target, known.dir.as_ref()?.as_fd())))
    }

    /// The header of the file at `name`, which has this `stat`. `None` for any other file: also for
    /// one that only looks like a stripe file.
    pub(crate) fn header_of(&self, dir: impl AsFd, name: &[u8], stat: &Stat) -> Result<Option<Header>, Errno> {
        if !may_be_stripe(stat) {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match openat(dir, name, flags, Mode::empty()) {
            Ok(fd) => self.header_in(&fd),
            Err(Errno::LOOP) => Ok(None),
            // Another user's: it cannot be told what it is, and its bodies are that user's too.
            Err(Errno::ACCESS | Errno::PERM) if stat.st_uid != geteuid().as_raw() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The header of an open file. `None` for a file that is no whole striped file.
    pub(crate) fn header_in(&self, fd: impl AsFd) -> Result<Option<Header>, Errno> {
        Ok(self.any_header_in(fd)?.filter(|header| header.whole.is_some()))
    }

    /// The header of an open file that may be any file at all.
    pub(crate) fn found_in(&self, fd: impl AsFd) -> Result<Option<Header>, Errno> {
        if may_be_stripe(&fstat(&fd)?) { self.header_in(fd) } else { Ok(None) }
    }

    /// The same, also of one that is not whole.
    pub(crate) fn any_header_in(&self, fd: impl AsFd) -> Result<Option<Header>, Errno> {
        let mut bytes = vec![0; HEADER_BYTES];
        let len = read_up_to(fd, &mut bytes, 0)?;
        Ok(Header::parse(&bytes[..len], &self.key))
    }

    /// The header of a temporary of this name, if it is that of a striped file, whole or not.
    pub(crate) fn draft_at(&self, dir: impl AsFd, temp: &TempName) -> Result<Option<Header>, Errno> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = match openat(dir, &temp.file_name()[..], flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO | Errno::ACCESS) => return Ok(None),
            Err(error) => return Err(error),
        };
        let stat = fstat(&fd)?;
        let is_ours = stat.st_uid == geteuid().as_raw() && stat.st_nlink == 1;
        if type_of(&stat) != FileType::RegularFile || !is_ours {
            return Ok(None);
        }
        Ok(self.any_header_in(&fd)?.filter(|header| header.id == *temp))
    }

    /// The striped file with this `stat`, if it was compared lately.
    pub(crate) fn compared(&self, stat: &Stat) -> Option<Arc<StripedFile>> {
        let mut compared = self.lock_compared();
        let at = compared.iter().position(|(version, ..)| *version == version_of(stat))?;
        let known = compared.remove(at);
        let file = Arc::clone(&known.2);
        compared.push(known);
        Some(file)
    }

    /// Remembers a striped file that is being compared. It keeps its blocks, should it be removed.
    pub(crate) fn remember(&self, stat: &Stat, id: TempName, file: &Arc<StripedFile>) {
        let mut compared = self.lock_compared();
        if compared.len() >= COMPARED_MAX {
            compared.remove(0);
        }
        compared.push((version_of(stat), id, Arc::clone(file)));
    }

    /// Lets go of the file of this id, whose bodies are removed.
    pub(crate) fn forget(&self, id: &TempName) {
        self.lock_compared().retain(|(_, known, _)| known != id);
    }

    /// Lets go of all files that were compared.
    pub(crate) fn forget_all(&self) {
        self.lock_compared().clear();
    }

    fn lock_compared(&self) -> MutexGuard<'_, Vec<Compared>> {
        self.compared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that the bodies of this id occupy, on the targets that are there.
    pub(crate) fn occupied(&self, id: &TempName) -> u64 {
        let blocks = self.there().filter_map(|(_, dir)| {
            let stat = statat(dir, &id.file_name()[..], AtFlags::SYMLINK_NOFOLLOW).ok()?;
            u64::try_from(stat.st_blocks).ok()
        });
        blocks.fold(0, |sum, blocks| sum.saturating_add(blocks.saturating_mul(512)))
    }
}

/// Whether a file may be a stripe file by its length, which is chosen so that only one plain file
/// in 4096 has to be looked into.
pub(crate) fn may_be_stripe(stat: &Stat) -> bool {
    let len = len_of(stat);
    type_of(stat) == FileType::RegularFile && len > HEADER_BYTES as u64 && len % LEN_UNIT == LEN_REST
}

/// The length of a stripe file whose records end at `end`.
pub(crate) fn stripe_file_len(end: u64) -> u64 {
    end + (LEN_UNIT + LEN_REST - end % LEN_UNIT) % LEN_UNIT
}

#[allow(clippy::unnecessary_cast, reason = "the fields' types differ between architectures")]
fn version_of(stat: &Stat) -> Version {
    let (dev, ino) = place_of(stat);
    (dev, ino, len_of(stat), stat.st_ctime as i64, stat.st_ctime_nsec as i64)
}

/// Striped files that are held open for comparison at most.
const COMPARED_MAX: usize = 8;
const LEN_UNIT: u64 = 4096;
const LEN_REST: u64 = 1224;
/// The directory of bodies, in the directory of the set's own files on each target.
pub(crate) const BODIES_NAME: &[u8] = b"bodies";

#[cfg(test)]
pub(crate) mod testing {
    //! A key and an id for tests of the formats.

    use longhaul_core::TempName;

    use super::SetKey;
    use crate::set_id::SetId;

    pub(crate) const ID: TempName = TempName::of([0xc3; 16]);

    pub(crate) fn key() -> SetKey {
        SetKey::new(SetId([0xa5; 16]), [7; 32])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stripe_file_has_a_length_that_few_files_have() {
        for end in [12_288, 12_336, 13_511, 13_512, 13_513, u64::from(u32::MAX)] {
            let len = stripe_file_len(end);
            assert!(len >= end && len < end + LEN_UNIT && len % LEN_UNIT == LEN_REST, "{end} {len}");
        }
    }
}
