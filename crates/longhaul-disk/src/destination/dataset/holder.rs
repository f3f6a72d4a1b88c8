//! The holder of a dataset: its lock, the last renames, and what a process that was killed left.
//!
//! In: the directory in which a dataset shall appear, and its name. Out: [`Holder`] to the stage.
//! Must not know what lies in the dataset.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::DatasetName;
use longhaul_sys::lock;
use rustix::fs::{
    AtFlags, Mode, OFlags, StatxAttributes, StatxFlags, Timespec, Timestamps, UTIME_NOW, fstat, openat, statat, statx,
};
use rustix::io::{Errno, pread};
use rustix::process::geteuid;

use super::campaign::{self, CampaignMark};
use super::lock::{HolderLock, Taken, lock_in};
use super::roots::ROOTS;
use super::{DatasetError, DatasetOrder, Published, let_owner_in, remove_flat, shown_of};
use crate::destination::random;
use crate::error::{DiskError, PathText};
use crate::kernel::Replace;
use crate::names::each_name;
use crate::shelf::{SHELF_NAME, Shelf, StageNote};
use crate::stat::{meta_of, place_of};
use crate::walk::Dir;

/// The directory of ours in which a dataset is staged, and the one in which it shall appear.
#[derive(Debug)]
pub(super) struct Holder {
    /// The directory that the dataset shall appear in.
    pub(super) parent: Arc<Dir>,
    /// Its own.
    pub(super) dir: Arc<Dir>,
    name: DatasetName,
    /// The path at which the dataset shall appear.
    shown: PathText,
    own_name: String,
    /// The shelf with the note of it. `None`: of a directory that a user named.
    note: Option<(Shelf, StageNote)>,
    /// Whether it was removed: what has its names from then on is another session's.
    cleared: AtomicBool,
    /// When it was last noted that a session has it.
    told: Mutex<Instant>,
    /// Held until the end.
    lock: OwnedFd,
    /// How it is held.
    hold: HolderLock,
}

impl Holder {
    /// Makes the holder, or takes the one that stands, and locks it.
    pub(super) fn take(
        (parent, at): (Arc<Dir>, &Path),
        order: DatasetOrder<'_>,
        patience: Duration,
    ) -> Result<Holder, DatasetError> {
        let name = order.name;
        let shown = PathText::from(at.join(shown_of(name)).as_path());
        let stager = order.stager();
        let (own, until) = (own_name(name, &stager).0, Instant::now() + patience);
        loop {
            let mut taken = lock_in((&parent, own.as_bytes()), &shown, HolderLock::Alone)?;
            if taken.is_none() && order.part.is_of_shard() {
                taken = lock_in((&parent, own.as_bytes()), &shown, HolderLock::Beside)?;
            }
            match taken {
                Some(taken) => {
                    if taken.hold == HolderLock::Alone {
                        let written = parent.kernel().pwrite(&taken.lock, &record_of(name, &stager), 0);
                        written.map_err(|error| DiskError::call("stage", &shown, error))?;
                    }
                    return Ok(Holder::locked((parent, taken), (name.clone(), own, shown), None));
                }
                None if Instant::now() < until => std::thread::sleep(LOOK_AGAIN),
                None => return Err(DatasetError::Busy { path: shown }),
            }
        }
    }

    /// The holder that stands and that no session has, to be looked after. `None` if one has it.
    pub(super) fn idle(
        (parent, at): (Arc<Dir>, &Path),
        (name, stager): (DatasetName, &str),
        note: Option<(Shelf, StageNote)>,
    ) -> Result<Option<Holder>, DatasetError> {
        let shown = PathText::from(at.join(shown_of(&name)).as_path());
        let (own, _) = own_name(&name, stager);
        let taken = lock_in((&parent, own.as_bytes()), &shown, HolderLock::Alone)?;
        Ok(taken.map(|taken| Holder::locked((parent, taken), (name, own, shown), note)))
    }

    /// Whether its record says that it is that of its name and of this stager.
    pub(super) fn is_recorded(&self, stager: &str) -> Result<bool, DatasetError> {
        let text = record_of(&self.name, stager);
        let mut found = vec![0; text.len() + 1];
        let read = pread(&self.lock, &mut found, 0).map_err(|error| self.failed("read the record of", error))?;
        Ok(found[..read] == text)
    }

    /// Whether a note tells of last steps that were not ended: the lock is free for a moment
    /// between the session that had it alone and others, and one may have died in them then.
    pub(super) fn is_in_last_steps(&self) -> Result<bool, DatasetError> {
        let mut noted = false;
        let looked = self.dir.readable().and_then(|fd| each_name(fd, |name| noted |= Note::parse(name).is_some()));
        looked.map(|()| noted).map_err(|error| self.failed("look at what is staged of", error))
    }

    /// Whether nobody else has it.
    pub(super) fn is_alone(&self) -> bool {
        self.hold == HolderLock::Alone
    }

    /// Lets other sessions of the same campaign have it too.
    pub(super) fn let_others_in(&mut self) -> Result<(), DatasetError> {
        match lock::try_share(&self.lock) {
            Ok(true) => self.hold = HolderLock::Beside,
            // Nobody else can have it: it is this session's alone.
            Ok(false) => return Err(DatasetError::Busy { path: self.shown() }),
            Err(error) => return Err(DiskError::call("lock what is staged of", &self.shown, error).into()),
        }
        Ok(())
    }

    /// The mark of the campaign whose dataset has the name. `None` if there is none.
    pub(super) fn mark_of_name(&self) -> Result<Option<CampaignMark>, DatasetError> {
        campaign::noted(&self.parent, self.name.as_bytes()).map_err(|error| self.failed("examine", error))
    }

    fn locked(
        (parent, Taken { dir, lock, hold }): (Arc<Dir>, Taken),
        (name, own_name, shown): (DatasetName, String, PathText),
        note: Option<(Shelf, StageNote)>,
    ) -> Holder {
        let (cleared, told) = (AtomicBool::default(), Mutex::new(Instant::now()));
        Holder { parent, dir, name, shown, own_name, note, cleared, told, lock, hold }
    }

    /// The same holder, of which a shelf has a note as long as it stands.
    pub(super) fn noted(mut self, shelf: Shelf, note: StageNote) -> Result<Holder, DatasetError> {
        shelf.note_stage(&note)?;
        self.note = Some((shelf, note));
        Ok(self)
    }

    /// Notes that a session uses it, once a minute: one that is killed leaves no other sign of
    /// files that are too small for journals.
    pub(super) fn use_goes_on(&self) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.elapsed() >= TELL_EVERY {
            *told = Instant::now();
            self.note_use();
        }
    }

    /// Notes that a session has used it up to now.
    pub(super) fn note_use(&self) {
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        let _ = self.dir.kernel().utimensat(self.dir.as_ref(), LOCK, &times);
    }

    /// When it was used last, in seconds since 1970.
    pub(super) fn used(&self) -> Result<i64, DatasetError> {
        used(&self.dir).map_err(|error| self.failed("examine what is staged of", error))
    }

    /// Removes what a session left that died while it tried renames.
    pub(super) fn remove_tried(&self) {
        let kernel = self.dir.kernel();
        let _ = kernel.rmdirat(self.dir.as_ref(), TRIED);
        for end in ["a", "b"] {
            let _ = kernel.rmdirat(self.parent.as_ref(), self.sibling(end).as_bytes());
        }
    }

    /// The directory itself.
    pub(super) fn dir(&self) -> Arc<Dir> {
        Arc::clone(&self.dir)
    }

    /// Its name in the directory in which the dataset shall appear.
    pub(super) fn shown_name(&self) -> &str {
        &self.own_name
    }

    /// The path at which the dataset shall appear.
    pub(super) fn shown(&self) -> PathText {
        self.shown.clone()
    }

    /// Whether anything has the dataset's name.
    pub(super) fn name_stands(&self) -> Result<bool, DatasetError> {
        match statat(self.parent.as_ref(), self.name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(self.failed("examine", error)),
        }
    }

    /// Tries the renames that the end needs, on empty directories and where it makes them.
    pub(super) fn try_renames(&self, replace: Replace) -> Result<(), DatasetError> {
        let (kernel, dir, parent) = (self.dir.kernel(), self.dir.as_ref(), self.parent.as_ref());
        let [one, other] = ["a", "b"].map(|end| self.sibling(end));
        let (one, other) = (one.as_bytes(), other.as_bytes());
        let remove = || {
            let _ = kernel.rmdirat(dir, TRIED);
            for name in [one, other] {
                let _ = kernel.rmdirat(parent, name);
            }
        };
        remove();
        let tried = || -> Result<(), Errno> {
            kernel.mkdirat(dir, TRIED, Mode::RWXU)?;
            kernel.move_new((dir, TRIED), (parent, one))?;
            kernel.move_new((parent, one), (parent, other))?;
            if replace == Replace::Allowed {
                kernel.mkdirat(parent, one, Mode::RWXU)?;
                kernel.exchange((parent, one), (parent, other))?;
            }
            Ok(())
        };
        let outcome = tried();
        remove();
        outcome.map_err(|error| match error {
            Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP => {
                self.unable("its file system has no renames that replace nothing, or none that exchange two names")
            }
            error => self.failed("stage", error),
        })
    }

    /// Refuses a name that stands and that no rename would move.
    pub(super) fn need_movable_name(&self) -> Result<(), DatasetError> {
        let failed = |error| self.failed("examine", error);
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let stat = match statat(self.parent.as_ref(), self.name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            outcome => outcome.map_err(failed)?,
        };
        // Where the system does not say so, another device tells it of most.
        let mounted = statx(self.parent.as_ref(), self.name.as_bytes(), flags, StatxFlags::empty())
            .is_ok_and(|stat| stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT));
        if mounted || place_of(&stat).0 != self.parent.dev() {
            return Err(self.unable("a file system is mounted there, and no rename moves it"));
        }
        let (above, user) = (fstat(self.parent.as_ref()).map_err(failed)?, geteuid());
        let is_ours = |owner: u32| owner == user.as_raw();
        if above.st_mode & STICKY != 0 && !user.is_root() && !is_ours(stat.st_uid) && !is_ours(above.st_uid) {
            return Err(self.unable("another user has it, and the sticky bit of the directory keeps it there"));
        }
        Ok(())
    }

    /// Ends the last steps in the middle of which a process was killed, or that failed: a dataset
    /// that did not get its name is staged again, and an old one goes to its own name.
    pub(super) fn recover(&self) -> Result<(), DatasetError> {
        let failed = |error| self.failed("look at what is staged of", error);
        let mut notes = Vec::new();
        each_name(self.dir.readable().map_err(failed)?, |name| notes.extend(Note::parse(name))).map_err(failed)?;
        let (parent, ready) = (self.parent.as_ref(), self.sibling(READY));
        match statat(parent, ready.as_bytes(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => {}
            Err(error) => return Err(failed(error)),
            Ok(stat) if notes.iter().any(|note| note.ino == place_of(&stat).1) => {
                // To move it into another directory, its owner must be let in.
                let_in(parent, ready.as_bytes()).map_err(failed)?;
                let back = self.dir.kernel().move_new((parent, ready.as_bytes()), (self.dir.as_ref(), TREE));
                back.map_err(|error| self.failed("stage again", error))?;
            }
            Ok(_) => drop(self.keep_old()?),
        }
        if !notes.is_empty() {
            // A rename of the killed process may not be durable yet, and the notes tell of it.
            self.sync()?;
        }
        for note in notes {
            let _ = self.dir.kernel().rmdirat(self.dir.as_ref(), note.name().as_bytes());
        }
        self.let_in()
    }

    /// Lets the owner into the dataset, if it is staged: a session sets its mode before its end.
    fn let_in(&self) -> Result<(), DatasetError> {
        match let_in(&self.dir, TREE) {
            Err(Errno::NOENT) => Ok(()),
            outcome => outcome.map_err(|error| self.failed("let the owner into", error)),
        }
    }

    /// Moves the dataset beside its name, under one of ours. Whoever finds it there after a crash
    /// knows by the note which of both it is: the new one, or the old one.
    pub(super) fn make_ready(&self) -> Result<(), DatasetError> {
        let (kernel, dir) = (self.dir.kernel(), self.dir.as_ref());
        let failed = |error| self.failed("move", error);
        let stat = statat(dir, TREE, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        let note = Note { ino: place_of(&stat).1 };
        kernel.mkdirat(dir, note.name().as_bytes(), Mode::RWXU).map_err(failed)?;
        self.dir.sync().map_err(failed)?;
        kernel.move_new((dir, TREE), (self.parent.as_ref(), self.sibling(READY).as_bytes())).map_err(failed)
    }

    /// Gives the dataset that is ready its name. It is exchanged for what has that, if that may be
    /// replaced. A fault behind that is told with it: the dataset has appeared all the same.
    pub(super) fn publish(&self, replace: Replace) -> Result<Published, DatasetError> {
        let (kernel, ready) = (self.dir.kernel(), self.sibling(READY));
        let (ready, name) = ((self.parent.as_ref(), ready.as_bytes()), (self.parent.as_ref(), self.name.as_bytes()));
        if replace == Replace::Allowed {
            match kernel.exchange(ready, name) {
                Ok(()) => {
                    let kept = self.sync().and_then(|()| self.keep_old());
                    let (old, fault) = kept.map_or_else(|fault| (None, Some(fault)), |old| (Some(old), None));
                    return Ok(Published { replaced: true, old, fault });
                }
                // Nothing has the name any more.
                Err(Errno::NOENT) => {}
                Err(error) => return Err(self.failed("exchange", error)),
            }
        }
        match kernel.move_new(ready, name) {
            Err(Errno::EXIST) => return Err(DatasetError::Stands { path: self.shown() }),
            outcome => outcome.map_err(|error| self.failed("give its name to", error))?,
        }
        Ok(Published { replaced: false, old: None, fault: self.sync().err() })
    }

    /// Gives what stood under the dataset's name the name under which it is kept.
    fn keep_old(&self) -> Result<Vec<u8>, DatasetError> {
        let failed = |error| self.failed("keep the old directory of", error);
        let id = u64::from_le_bytes(random().map_err(failed)?);
        let old = [self.name.as_bytes(), format!(".{id:016x}~").as_bytes()].concat();
        let (parent, ready) = (self.parent.as_ref(), self.sibling(READY));
        self.dir.kernel().move_new((parent, ready.as_bytes()), (parent, &old)).map_err(failed)?;
        self.sync()?;
        Ok(old)
    }

    /// A name of ours beside the holder and the dataset.
    fn sibling(&self, end: &str) -> String {
        format!("{}.{end}", self.own_name)
    }

    /// Makes the directory durable in which the dataset has its name.
    pub(super) fn sync(&self) -> Result<(), DatasetError> {
        self.parent.sync().map_err(|error| self.failed("sync the directory of", error))
    }

    fn unable(&self, why: &'static str) -> DatasetError {
        DatasetError::Unable { path: self.shown(), why }
    }

    fn failed(&self, call: &'static str, error: Errno) -> DatasetError {
        DiskError::call(call, &self.shown, error).into()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // What others have is theirs to remove. The last of them has it alone.
        if self.is_alone() || lock::try_lock(&self.lock).unwrap_or(false) {
            self.clear();
        }
    }
}

impl Holder {
    /// Removes a holder in which no dataset is staged, and that of none tells that is in its last
    /// steps. Its journals then speak of nothing.
    pub(super) fn clear(&self) {
        if self.cleared.load(Ordering::Relaxed) {
            return;
        }
        let (kernel, dir) = (self.dir.kernel(), self.dir.as_ref());
        // An empty one is no dataset that came.
        let _ = kernel.rmdirat(dir, TREE);
        let (own, mut has_more) = ([LOCK, SHELF_NAME, ROOTS], false);
        let looked = self.dir.readable().and_then(|fd| each_name(fd, |name| has_more |= !own.contains(&name)));
        if looked.is_err() || has_more || remove_flat(&self.dir, SHELF_NAME).is_err() {
            return;
        }
        self.cleared.store(true, Ordering::Relaxed);
        // Under the lock, so that it is never the note of the next session.
        self.note.iter().for_each(|(shelf, note)| shelf.forget_stage(note));
        // The lock goes last: whoever waits for it sees that it has no name.
        let _ = kernel.unlinkat(dir, ROOTS);
        let _ = kernel.unlinkat(dir, LOCK);
        let _ = kernel.rmdirat(self.parent.as_ref(), self.own_name.as_bytes());
    }
}

/// A note of the dataset that is in its last steps: an empty directory in the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note {
    /// The inode of the new one.
    ino: u64,
}

impl Note {
    fn name(&self) -> String {
        format!("{READY}.{}", self.ino)
    }

    fn parse(name: &[u8]) -> Option<Note> {
        let ino = std::str::from_utf8(name).ok()?.strip_prefix(READY)?.strip_prefix('.')?;
        Some(Note { ino: ino.parse().ok()? })
    }
}

/// Lets the owner into a directory, never following a link.
fn let_in(parent: &Dir, name: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = openat(parent, name, flags, Mode::empty())?;
    let_owner_in(parent.kernel(), fd).map(drop)
}

/// When a holder was used last, in seconds since 1970: when a session began or ended, said
/// that it goes on, or wrote to a journal in it.
pub(super) fn used(holder: &Dir) -> Result<i64, Errno> {
    let time = |dir: &dyn AsFd, name: &[u8]| match statat(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(meta_of(&stat).mtime.secs),
        Err(Errno::NOENT) => Ok(i64::MIN),
        Err(error) => Err(error),
    };
    let mut newest = fstat(holder).map(|stat| meta_of(&stat).mtime.secs)?.max(time(holder, LOCK)?);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let shelf = match openat(holder, SHELF_NAME, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(newest),
        outcome => outcome?,
    };
    newest = newest.max(fstat(&shelf).map(|stat| meta_of(&stat).mtime.secs)?);
    let mut failed = Ok(());
    each_name(&shelf, |name| match time(&shelf, name) {
        Ok(written) => newest = newest.max(written),
        Err(error) => failed = Err(error),
    })?;
    failed.map(|()| newest)
}

/// The name of a holder, and the bytes of its digits: one for each dataset, user and stager. It
/// is long enough that nobody finds a name of a dataset that leads to the holder of another one.
pub(super) fn own_name(name: &DatasetName, stager: &str) -> (String, [u8; 16]) {
    let mut hasher = blake3::Hasher::new_derive_key("longhaul 1 dataset holder");
    hasher.update(&geteuid().as_raw().to_le_bytes());
    // A name of a dataset has no zeros.
    hasher.update(name.as_bytes()).update(&[0]).update(stager.as_bytes());
    let hash = hasher.finalize();
    let mut digits = [0; 16];
    digits.copy_from_slice(&hash.as_bytes()[..16]);
    (format!(".longhaul-dataset-{}", &hash.to_hex()[..32]), digits)
}

/// The text in the lock of a holder: the dataset's name, and whose it is.
fn record_of(name: &DatasetName, stager: &str) -> Vec<u8> {
    [name.as_bytes(), b"\n", stager.as_bytes(), b"\n"].concat()
}

/// The dataset in its holder.
pub(super) const TREE: &[u8] = b"tree";
/// The lock in it.
pub(super) const LOCK: &[u8] = b"name";
/// The end of the name of a dataset in its last steps, and the beginning of that of its note.
const READY: &str = "ready";
/// An empty directory with which renames are tried.
const TRIED: &[u8] = b"a";
/// The bit of a directory from which others move only what is theirs (`S_ISVTX`).
const STICKY: u32 = 0o1000;
/// How often a session that goes on says so.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// Between two looks at a lock that another session has.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
