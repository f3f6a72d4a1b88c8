//! Looks after datasets that are staged, and that no session has.
//!
//! In: the note of one beneath a served tree, and how old it may be; or the directory that a user
//! named, and whose it is. Out: last steps that a crash cut off are ended, and one that nobody came
//! back for, or whose campaign was cancelled, is gone; or its size, for who asks. It takes the lock
//! of the holder, so it never has one of a session, nor one that is about to appear.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use longhaul_core::{DatasetName, RelPath};
use longhaul_sys::lock;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;

use super::holder::{self, Holder};
use super::prune::{Removed, remove};
use super::{DatasetError, DatasetOrder, DatasetStage, below};
use crate::error::{DiskError, ErrorKind};
use crate::kernel::Kernel;
use crate::names::names_until;
use crate::shelf::StageNote;
use crate::stat::{len_of, place_of, type_of};
use crate::tree::Tree;
use crate::walk::{Dir, Walk, cached_dirs_max};

/// The facts of a dataset that is staged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageFacts {
    /// Bytes of the files that are whole, as far as they were counted: of very many names the
    /// first ones.
    pub bytes: u64,
    /// When the last session of it began or ended, in seconds since 1970.
    pub used: i64,
    /// The digits in the name of its holder.
    pub holder: [u8; 16],
    /// Whether a session has it.
    pub in_use: bool,
}

/// The answer to a look for what is staged.
#[derive(Debug)]
pub enum FoundStage {
    /// Nothing is.
    Nothing,
    /// A session has it.
    InUse,
    /// Something is, and no session begins to stage it while this is held.
    Idle(IdleStage),
}

/// A staged dataset that no session has. See [`FoundStage::Idle`].
#[derive(Debug)]
pub struct IdleStage(Box<Holder>);

/// The budget of one listing: what it may still count of staged datasets, all of them together.
/// Files behind it are not counted.
#[derive(Debug)]
pub struct CountLeft {
    /// Names.
    pub(super) names: usize,
    /// Bytes of the paths of directories: each is held, and opened name by name.
    pub(super) path_bytes: usize,
}

impl Default for CountLeft {
    fn default() -> CountLeft {
        CountLeft { names: COUNTED_MAX, path_bytes: COUNTED_PATH_BYTES_MAX }
    }
}

impl CountLeft {
    fn take_name(&mut self) -> ControlFlow<()> {
        match self.names.checked_sub(1) {
            Some(left) => self.names = left,
            None => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    /// The path of a directory in another one, if there is room for it.
    fn take_dir(&mut self, above: &RelPath, name: &[u8]) -> Option<RelPath> {
        self.path_bytes = self.path_bytes.checked_sub(above.as_bytes().len() + 1 + name.len())?;
        above.join(name).ok()
    }
}

impl DatasetStage {
    /// Looks after a staged dataset that no session has: an old dataset whose place it took gets
    /// its own name, and what is staged goes if its last use was `before` that time, in seconds
    /// since 1970. `None`: however old it is, it stays. A note of nothing goes if no session has
    /// begun since `noted_before`. `on_removed` hears every so often what went, also of a removal
    /// that fails. Gives all that was removed.
    ///
    /// # Errors
    /// A [`DatasetError`] of the disk; then it is tried again the next time.
    pub fn look_after(
        tree: &Tree,
        note: &StageNote,
        (before, noted_before): (Option<i64>, i64),
        on_removed: &mut dyn FnMut(Removed),
    ) -> Result<Option<Removed>, DatasetError> {
        let shelf = tree.shelf();
        let Some(parent) = parent_of(tree, note)? else {
            // Where there is nothing to be locked, the time tells that no session begins just now.
            if shelf.stage_noted(note).is_some_and(|time| time < noted_before) {
                shelf.forget_stage(note);
                // One that began all the same has made its holder before it looked at the note.
                if parent_of(tree, note)?.is_some() {
                    shelf.note_stage(note)?;
                }
            }
            return Ok(None);
        };
        let Ok(name) = DatasetName::new(note.place.name().unwrap_or_default()) else { return Ok(None) };
        let dir = below(tree.named(), &note.place.parent().unwrap_or_default());
        let noted = Some((shelf, note.clone()));
        let Some(holder) = Holder::idle((parent, &dir), (name, note.principal.as_str()), noted)? else {
            return Ok(None);
        };
        holder.recover()?;
        let used = holder.used()?;
        if before.is_none_or(|before| used >= before) {
            return Ok(None);
        }
        emptied(&holder, on_removed).map(Some)
    }

    /// Looks for what is staged in a directory that a user named. It makes nothing, and what it
    /// finds is that of this very name, principal and campaign: the name of the holder says so, and
    /// so does the record in it.
    ///
    /// # Errors
    /// A [`DatasetError`] of the disk, or of a holder that another user made.
    pub fn find(dir: &Path, order: &DatasetOrder<'_>) -> Result<FoundStage, DatasetError> {
        let parent = match Dir::open_behind(dir, &Kernel::default()) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(FoundStage::Nothing);
            }
            outcome => Arc::new(outcome?),
        };
        let stager = order.stager();
        let (own, _) = holder::own_name(order.name, &stager);
        match statat(parent.as_ref(), own.as_bytes(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(FoundStage::Nothing),
            outcome => outcome.map_err(|error| DiskError::call("examine what is staged in", dir, error))?,
        };
        let Some(holder) = Holder::idle((parent, dir), (order.name.clone(), stager.as_str()), None)? else {
            return Ok(FoundStage::InUse);
        };
        // One that a crash left without a record has nothing in it, and goes with its end.
        Ok(if holder.is_recorded(&stager)? {
            FoundStage::Idle(IdleStage(Box::new(holder)))
        } else {
            FoundStage::Nothing
        })
    }

    /// Whether anything is staged of what is noted.
    ///
    /// # Errors
    /// A [`DatasetError`] of the disk.
    pub fn stands(tree: &Tree, note: &StageNote) -> Result<bool, DatasetError> {
        parent_of(tree, note).map(|parent| parent.is_some())
    }

    /// The facts of a staged dataset, of whose files it counts what is `left` to be counted. `None`
    /// if there is nothing of it. Locks nothing.
    ///
    /// # Errors
    /// A [`DatasetError`] of the disk.
    pub fn facts(tree: &Tree, note: &StageNote, left: &mut CountLeft) -> Result<Option<StageFacts>, DatasetError> {
        let Some(parent) = parent_of(tree, note)? else { return Ok(None) };
        let Ok(name) = DatasetName::new(note.place.name().unwrap_or_default()) else { return Ok(None) };
        let (own, digits) = holder::own_name(&name, &note.principal);
        let failed = |error| DatasetError::from(DiskError::call("examine what is staged of", &note.place, error));
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = match openat(parent.as_ref(), own.as_bytes(), flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
            outcome => outcome.map_err(failed)?,
        };
        let dir = Arc::new(Dir::of(fd, parent.kernel(), &(&note.place).into())?);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let in_use = match openat(&dir, holder::LOCK, flags, Mode::empty()) {
            Ok(file) => lock::is_locked(file).unwrap_or(false),
            Err(Errno::NOENT) => false,
            Err(error) => return Err(failed(error)),
        };
        let used = holder::used(&dir).map_err(failed)?;
        Ok(Some(StageFacts { bytes: bytes_in(&dir, left)?, used, holder: digits, in_use }))
    }
}

impl IdleStage {
    /// Removes what is staged, and all that lies beside it. What a crash left of the last steps is
    /// ended before: an old dataset gets its own name, and stays. Whatever stays as this fails is
    /// found again.
    ///
    /// # Errors
    /// A [`DatasetError`] of the disk.
    pub fn remove(self) -> Result<Removed, DatasetError> {
        self.0.recover()?;
        emptied(&self.0, &mut |_| {})
    }
}

/// Removes what is staged in a holder. What else is in it goes with its end.
fn emptied(holder: &Holder, on_removed: &mut dyn FnMut(Removed)) -> Result<Removed, DatasetError> {
    let mut removed = Removed::default();
    remove(&holder.dir(), holder::TREE, &mut |more| {
        removed.add(more);
        on_removed(more);
    })?;
    holder.remove_tried();
    Ok(removed)
}

/// The directory in which a dataset shall appear. `None` if it, or the holder in it, is not there.
fn parent_of(tree: &Tree, note: &StageNote) -> Result<Option<Arc<Dir>>, DatasetError> {
    let parent = match tree.dir(&note.place.parent().unwrap_or_default()) {
        Ok(parent) => parent,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::Escape) => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let Ok(name) = DatasetName::new(note.place.name().unwrap_or_default()) else { return Ok(None) };
    let (own, _) = holder::own_name(&name, &note.principal);
    match statat(parent.as_ref(), own.as_bytes(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(Some(parent)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(DiskError::call("examine what is staged of", &note.place, error).into()),
    }
}

/// The bytes of the files in what is staged, as far as they may be counted.
fn bytes_in(holder: &Arc<Dir>, left: &mut CountLeft) -> Result<u64, DatasetError> {
    let walk = Walk::new(Arc::clone(holder), cached_dirs_max());
    let (mut bytes, mut to_do) = (0_u64, vec![DatasetStage::top_path()]);
    while let Some(path) = to_do.pop() {
        let dir = match walk.dir(&path) {
            Ok(dir) => dir,
            // A session may be at it, and what its mode forbids is not counted.
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Denied) => continue,
            Err(error) => return Err(error.into()),
        };
        let Ok(fd) = dir.readable() else { continue };
        if dir.dev() != place_of(&rustix::fs::fstat(holder.as_ref()).map_err(|e| looked(&path, e))?).0 {
            continue;
        }
        names_until(fd, |name| {
            left.take_name()?;
            let stat = statat(dir.as_ref(), name, AtFlags::SYMLINK_NOFOLLOW);
            match stat.map(|stat| (type_of(&stat), len_of(&stat))) {
                Ok((FileType::RegularFile, len)) => bytes = bytes.saturating_add(len),
                Ok((FileType::Directory, _)) => to_do.extend(left.take_dir(&path, name)),
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .map_err(|error| looked(&path, error))?;
        if left.names == 0 {
            break;
        }
    }
    Ok(bytes)
}

fn looked(path: &RelPath, error: Errno) -> DatasetError {
    DiskError::call("look through what is staged in", path, error).into()
}

/// Names that are counted for a listing at most: a second or two of work.
const COUNTED_MAX: usize = 100_000;
/// Bytes of paths that are held for it at most.
const COUNTED_PATH_BYTES_MAX: usize = 8 << 20;
