//! The notes of datasets that are staged beneath a tree: where each is, and whose.
//!
//! In: a note when a dataset begins to be staged. Out: all of them, to who looks after those that
//! nobody came back for: a tree is too large to be searched for them. Knows nothing of what is
//! staged; whoever writes or removes a note has the lock of the dataset's holder.

use std::os::fd::OwnedFd;

use longhaul_core::RelPath;
use rustix::fs::{Mode, OFlags, Timespec, Timestamps, UTIME_NOW, fstat};
use rustix::io::{Errno, pread};

use super::Shelf;
use super::dir::{ShelfDir, TRIES_MAX, opened_in};
use crate::error::{DiskError, PathText};
use crate::kernel::Replace;
use crate::names::each_name;
use crate::stat::meta_of;

/// A dataset that is staged beneath a tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StageNote {
    /// The path at which it shall appear.
    pub place: RelPath,
    /// The principal that stages it; of a campaign's dataset, that and the campaign.
    pub principal: String,
}

impl StageNote {
    /// The principal that stages it, whatever its campaign.
    pub fn owner(&self) -> &str {
        self.principal.split_once(BETWEEN).map_or(&self.principal, |(owner, _)| owner)
    }

    /// Whether it is that of a campaign, whose shards are moved over weeks.
    pub fn is_of_campaign(&self) -> bool {
        self.principal.contains(BETWEEN)
    }

    /// Whether another principal stages the same dataset of the same campaign.
    pub fn has_rival(&self, other: &StageNote) -> bool {
        let campaign = |note: &StageNote| note.principal.split_once(BETWEEN).map(|(_, campaign)| campaign.to_owned());
        let same = campaign(self).is_some() && campaign(self) == campaign(other);
        same && self.place == other.place && self.owner() != other.owner()
    }

    /// The name of its file: one for each place and principal.
    fn file_name(&self) -> Vec<u8> {
        let mut hasher = blake3::Hasher::new_derive_key("longhaul 1 note of a dataset");
        // A path has no zeros.
        hasher.update(self.place.as_bytes()).update(&[0]).update(self.principal.as_bytes());
        [hasher.finalize().to_hex()[..32].as_bytes(), SUFFIX].concat()
    }

    fn text(&self) -> Vec<u8> {
        [self.principal.as_bytes(), b"\n", self.place.as_bytes()].concat()
    }

    /// Reads a note of this name. `None` if it is no note, or that of another name.
    fn parse(name: &[u8], text: &[u8]) -> Option<StageNote> {
        let end = text.iter().position(|byte| *byte == b'\n')?;
        let principal = std::str::from_utf8(&text[..end]).ok()?.to_owned();
        let note = StageNote { place: RelPath::new(&text[end + 1..]).ok()?, principal };
        (note.file_name() == name).then_some(note)
    }
}

impl Shelf {
    /// Notes a dataset, durably, and that a session of it begins.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn note_stage(&self, note: &StageNote) -> Result<(), DiskError> {
        self.dirs.first().map_or(Ok(()), |dir| dir.note_stage(note))
    }

    /// The notes of all datasets that are staged, in the order of their places. One that cannot be
    /// read is left out.
    ///
    /// # Errors
    /// The system's error.
    pub fn stages(&self) -> Result<Vec<StageNote>, DiskError> {
        self.dirs.first().map_or(Ok(Vec::new()), ShelfDir::stages)
    }

    /// When a dataset was noted, in seconds since 1970. `None` if it is not.
    pub(crate) fn stage_noted(&self, note: &StageNote) -> Option<i64> {
        let (_, file) = self.dirs.first()?.stage_file(&note.file_name()).ok()??;
        fstat(file).ok().map(|stat| meta_of(&stat).mtime.secs)
    }

    /// Removes what sessions that were killed left of notes that they wrote, if it is older than
    /// `before`, in seconds since 1970.
    ///
    /// # Errors
    /// The system's error.
    pub fn remove_unwritten_stages(&self, before: i64) -> Result<(), DiskError> {
        self.dirs.first().map_or(Ok(()), |dir| dir.remove_unwritten_stages(before))
    }

    /// Removes a note, and the shelf if nothing else is on it. One that stays is found again.
    pub(crate) fn forget_stage(&self, note: &StageNote) {
        if let Some(dir) = self.dirs.first() {
            if let Ok(Some(fd)) = dir.dir() {
                let _ = dir.kernel().unlinkat(&fd, &note.file_name());
            }
            dir.remove_if_empty();
        }
    }
}

impl ShelfDir {
    fn note_stage(&self, note: &StageNote) -> Result<(), DiskError> {
        let name = note.file_name();
        if self.touch_stage(&name)? {
            return Ok(());
        }
        for _ in 0..TRIES_MAX {
            // `None`: another session removed the last journal, and the shelf with it.
            let Some(dir) = self.make()? else { continue };
            match self.write_stage(&dir, &name, &note.text()) {
                Err(Errno::NOENT) => {}
                outcome => return outcome.map_err(|error| DiskError::call("write", self.stage_path(&name), error)),
            }
        }
        Err(DiskError::call("write", self.stage_path(&name), Errno::BUSY))
    }

    /// Gives a note that stands the time of now. Gives whether one does.
    fn touch_stage(&self, name: &[u8]) -> Result<bool, DiskError> {
        let Some((dir, _file)) = self.stage_file(name)? else { return Ok(false) };
        match self.kernel().utimensat(&dir, name, &now()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(DiskError::call("set the time of", self.stage_path(name), error)),
        }
    }

    /// Writes a note whole: to another name, synced, renamed; and its directory is synced.
    fn write_stage(&self, dir: &OwnedFd, name: &[u8], text: &[u8]) -> Result<(), Errno> {
        let (kernel, new) = (self.kernel(), [name, NEW].concat());
        // One that a crash left.
        let _ = kernel.unlinkat(dir, &new);
        let file = kernel.create(dir, &new, OFlags::WRONLY, Mode::RUSR | Mode::WUSR)?;
        let written = match kernel.pwrite(&file, text, 0) {
            Ok(bytes) if bytes < text.len() => Err(Errno::NOSPC),
            outcome => outcome,
        };
        written
            .and_then(|_| kernel.fsync(&file))
            .and_then(|()| kernel.renameat(dir, &new, name, Replace::Allowed))
            .and_then(|()| kernel.fsync(dir))
            .inspect_err(|_| _ = kernel.unlinkat(dir, &new))
    }

    fn stages(&self) -> Result<Vec<StageNote>, DiskError> {
        let Some(dir) = self.dir()? else { return Ok(Vec::new()) };
        let (mut names, mut notes) = (Vec::new(), Vec::new());
        match each_name(&dir, |name| names.extend(name.ends_with(SUFFIX).then(|| name.to_vec()))) {
            // It was removed while we looked.
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(DiskError::call("list", PathText::from(self.bare_name()), error)),
        }
        for name in names {
            match self.stage(&name) {
                Ok(note) => notes.extend(note),
                Err(error) => {
                    tracing::warn!(target: "longhaul::dataset", %error, "the note of a staged dataset is left alone");
                }
            }
        }
        notes.sort_unstable();
        Ok(notes)
    }

    fn remove_unwritten_stages(&self, before: i64) -> Result<(), DiskError> {
        let Some(dir) = self.dir()? else { return Ok(()) };
        let mut names = Vec::new();
        let is_new = |name: &[u8]| name.strip_suffix(NEW).is_some_and(|name| name.ends_with(SUFFIX));
        match each_name(&dir, |name| names.extend(is_new(name).then(|| name.to_vec()))) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(DiskError::call("list", PathText::from(self.bare_name()), error)),
        }
        for name in &names {
            let is_old = self
                .stage_file(name)
                .ok()
                .flatten()
                .is_some_and(|(_, file)| fstat(file).is_ok_and(|stat| meta_of(&stat).mtime.secs < before));
            if is_old {
                let _ = self.kernel().unlinkat(&dir, name);
            }
        }
        if !names.is_empty() {
            self.remove_if_empty();
        }
        Ok(())
    }

    fn stage(&self, name: &[u8]) -> Result<Option<StageNote>, DiskError> {
        let Some((_, file)) = self.stage_file(name)? else { return Ok(None) };
        let (mut text, mut read) = (vec![0; NOTE_BYTES_MAX], 0);
        while read < text.len() {
            match pread(&file, &mut text[read..], read as u64) {
                Ok(0) => break,
                Ok(bytes) => read += bytes,
                Err(Errno::INTR) => {}
                Err(error) => return Err(DiskError::call("read", self.stage_path(name), error)),
            }
        }
        Ok(StageNote::parse(name, &text[..read]))
    }

    /// The directory of a note and its file. `None` if it does not stand.
    fn stage_file(&self, name: &[u8]) -> Result<Option<(OwnedFd, OwnedFd)>, DiskError> {
        let Some(dir) = self.dir()? else { return Ok(None) };
        let file = opened_in(&dir, name, OFlags::RDONLY, self.stage_path(name))?;
        Ok(file.map(|file| (dir, file)))
    }

    /// The path of a note, for messages.
    fn stage_path(&self, name: &[u8]) -> PathText {
        PathText::from([self.bare_name(), b"/", name].concat().as_slice())
    }
}

/// The times of a file that is used now.
fn now() -> Timestamps {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    Timestamps { last_access: now, last_modification: now }
}

/// The name of whoever stages a campaign's dataset: a principal, and the campaign.
pub(crate) fn stager_of(principal: &str, campaign: &str) -> String {
    format!("{principal}{BETWEEN}{campaign}")
}

/// The word between both. No principal has spaces.
const BETWEEN: &str = " campaign ";
/// The end of the name of a note.
const SUFFIX: &[u8] = b".dataset";
/// The end of the name of a note while it is written.
const NEW: &[u8] = b".new";
/// Bytes of a note at most: a path, and the text of a key.
const NOTE_BYTES_MAX: usize = 8 << 10;
