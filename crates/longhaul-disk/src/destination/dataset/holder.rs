//! The holder of a dataset: its lock, the last renames, and what a process that was killed left.
//!
//! In: the directory in which a dataset shall appear, and its name. Out: [`Holder`] to the stage.
//! Must not know what lies in the dataset.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::DatasetName;
use longhaul_sys::lock;
use rustix::fs::{AtFlags, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::{DatasetError, DatasetOrder, remove_flat, shown_of};
use crate::destination::random;
use crate::error::{DiskError, PathText};
use crate::kernel::Replace;
use crate::names::each_name;
use crate::shelf::{SHELF_NAME, has_no_locks};
use crate::stat::place_of;
use crate::walk::Dir;

/// The directory of ours in which a dataset is staged, and the one in which it shall appear.
#[derive(Debug)]
pub(super) struct Holder {
    parent: Arc<Dir>,
    dir: Arc<Dir>,
    name: DatasetName,
    /// The path at which the dataset shall appear.
    shown: PathText,
    own_name: String,
    /// Held until the end.
    _lock: OwnedFd,
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
        let (own_name, until) = (own_name(&order), Instant::now() + patience);
        loop {
            let taken = lock_in(&parent, own_name.as_bytes(), name, &shown)?;
            match taken {
                Some((dir, lock)) => {
                    return Ok(Holder { parent, dir, name: name.clone(), shown, own_name, _lock: lock });
                }
                None if Instant::now() < until => std::thread::sleep(LOOK_AGAIN),
                None => return Err(DatasetError::Busy { path: shown }),
            }
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

    /// Tries the renames that the end needs, on empty directories.
    pub(super) fn try_renames(&self, replace: Replace) -> Result<(), DatasetError> {
        let (kernel, dir) = (self.dir.kernel(), self.dir.as_ref());
        let remove = || {
            for name in [TRIED, TRIED_TOO] {
                let _ = kernel.rmdirat(dir, name);
            }
        };
        remove();
        let tried = || -> Result<(), Errno> {
            kernel.mkdirat(dir, TRIED, Mode::RWXU)?;
            kernel.move_new((dir, TRIED), (dir, TRIED_TOO))?;
            if replace == Replace::Allowed {
                kernel.mkdirat(dir, TRIED, Mode::RWXU)?;
                kernel.exchange((dir, TRIED), (dir, TRIED_TOO))?;
            }
            Ok(())
        };
        let outcome = tried();
        remove();
        outcome.map_err(|error| match error {
            Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP => {
                let why = "its file system has no renames that replace nothing, or none that exchange two names";
                DatasetError::Unable { path: self.shown(), why }
            }
            error => self.failed("stage", error),
        })
    }

    /// Ends an exchange in the middle of which a process was killed: what was not exchanged is
    /// staged again, and an old dataset that was goes to its own name.
    pub(super) fn recover(&self) -> Result<(), DatasetError> {
        let mut found = Vec::new();
        let readable = self.dir.readable().map_err(|error| self.failed("look at what is staged of", error))?;
        let looked = each_name(readable, |name| found.extend(Ready::parse(name)));
        looked.map_err(|error| self.failed("look at what is staged of", error))?;
        for ready in found {
            let stat = statat(self.dir.as_ref(), ready.name().as_bytes(), AtFlags::SYMLINK_NOFOLLOW);
            let stat = stat.map_err(|error| self.failed("examine what is staged of", error))?;
            if place_of(&stat).1 == ready.ino {
                let dir = self.dir.as_ref();
                let back = dir.kernel().move_new((dir, ready.name().as_bytes()), (dir, TREE));
                back.map_err(|error| self.failed("stage again", error))?;
            } else {
                self.keep_old(&ready)?;
            }
        }
        Ok(())
    }

    /// Gives the dataset its name, which nothing has.
    pub(super) fn publish_new(&self) -> Result<(), DatasetError> {
        let to = (self.parent.as_ref(), self.name.as_bytes());
        match self.dir.kernel().move_new((self.dir.as_ref(), TREE), to) {
            Err(Errno::EXIST) => return Err(DatasetError::Stands { path: self.shown() }),
            outcome => outcome.map_err(|error| self.failed("give its name to", error))?,
        }
        self.sync()
    }

    /// Exchanges the dataset for what has its name, which is kept under another one. Gives that, or
    /// `None` if nothing had the name any more.
    pub(super) fn exchange(&self) -> Result<Option<Vec<u8>>, DatasetError> {
        let (kernel, dir) = (self.dir.kernel(), self.dir.as_ref());
        let failed = |error| self.failed("exchange", error);
        let stat = statat(dir, TREE, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        let id = random().map_err(failed)?;
        let ready = Ready { id: u64::from_le_bytes(id), ino: place_of(&stat).1 };
        let name = ready.name();
        kernel.move_new((dir, TREE), (dir, name.as_bytes())).map_err(failed)?;
        // Whoever finds it after a crash must know which of both it is.
        self.dir.sync().map_err(failed)?;
        let exchanged = kernel.exchange((dir, name.as_bytes()), (self.parent.as_ref(), self.name.as_bytes()));
        if let Err(error) = exchanged {
            kernel.move_new((dir, name.as_bytes()), (dir, TREE)).map_err(failed)?;
            if error != Errno::NOENT {
                return Err(failed(error));
            }
            self.publish_new()?;
            return Ok(None);
        }
        self.sync()?;
        self.keep_old(&ready).map(Some)
    }

    /// Gives what stood under the dataset's name the name under which it is kept.
    fn keep_old(&self, ready: &Ready) -> Result<Vec<u8>, DatasetError> {
        let old = [self.name.as_bytes(), format!(".{:016x}~", ready.id).as_bytes()].concat();
        let moved =
            self.dir.kernel().move_new((self.dir.as_ref(), ready.name().as_bytes()), (self.parent.as_ref(), &old));
        moved.map_err(|error| self.failed("keep the old directory of", error))?;
        self.sync()?;
        Ok(old)
    }

    /// Makes both directories durable, the one with the new name first.
    fn sync(&self) -> Result<(), DatasetError> {
        let synced = self.parent.sync().and_then(|()| self.dir.sync());
        synced.map_err(|error| self.failed("sync the directory of", error))
    }

    fn failed(&self, call: &'static str, error: Errno) -> DatasetError {
        DiskError::call(call, &self.shown, error).into()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Holder {
    /// Removes a holder in which no dataset is staged. Its journals then speak of nothing.
    pub(super) fn clear(&self) {
        let (kernel, dir) = (self.dir.kernel(), self.dir.as_ref());
        // An empty one is no dataset that came.
        let _ = kernel.rmdirat(dir, TREE);
        let mut has_more = false;
        let looked =
            self.dir.readable().and_then(|fd| each_name(fd, |name| has_more |= ![LOCK, SHELF_NAME].contains(&name)));
        if looked.is_err() || has_more || remove_flat(&self.dir, SHELF_NAME).is_err() {
            return;
        }
        // The lock goes last: whoever waits for it sees that it has no name.
        let _ = kernel.unlinkat(dir, LOCK);
        let _ = kernel.rmdirat(self.parent.as_ref(), self.own_name.as_bytes());
    }
}

/// A dataset that is being exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ready {
    /// The random part of the name under which the old one is kept.
    id: u64,
    /// The inode of the new one.
    ino: u64,
}

impl Ready {
    fn name(&self) -> String {
        format!("{READY}{:016x}.{}", self.id, self.ino)
    }

    fn parse(name: &[u8]) -> Option<Ready> {
        let (id, ino) = std::str::from_utf8(name).ok()?.strip_prefix(READY)?.split_once('.')?;
        Some(Ready { id: u64::from_str_radix(id, 16).ok()?, ino: ino.parse().ok()? })
    }
}

/// The holder of this name, made if it is missing, and its lock. `None` if another session has it,
/// or has just removed it.
fn lock_in(
    parent: &Dir,
    own: &[u8],
    name: &DatasetName,
    shown: &PathText,
) -> Result<Option<(Arc<Dir>, OwnedFd)>, DatasetError> {
    let failed = |call| move |error: Errno| DatasetError::from(DiskError::call(call, shown, error));
    match parent.kernel().mkdirat(parent, own, Mode::RWXU) {
        Ok(()) => parent.sync().map_err(failed("sync the directory of"))?,
        Err(Errno::EXIST) => {}
        Err(error) => return Err(failed("stage")(error)),
    }
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = match openat(parent, own, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        outcome => outcome.map_err(failed("open what is staged of"))?,
    };
    let stat = fstat(&fd).map_err(failed("examine what is staged of"))?;
    if stat.st_uid != geteuid().as_raw() || stat.st_mode & 0o022 != 0 {
        return Err(DiskError::Foreign { path: shown.clone() }.into());
    }
    let dir = Dir::of(fd, parent.kernel(), shown)?;
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = match openat(&dir, LOCK, flags, Mode::empty()) {
        Err(Errno::NOENT) => dir.kernel().create(&dir, LOCK, OFlags::RDWR, Mode::RUSR | Mode::WUSR),
        opened => opened,
    };
    let file = match opened {
        // Another session has just removed the holder, or made its lock.
        Err(Errno::NOENT | Errno::EXIST) => return Ok(None),
        opened => opened.map_err(failed("lock what is staged of"))?,
    };
    match lock::try_lock(&file) {
        Ok(true) => {}
        Ok(false) => return Ok(None),
        Err(error) if has_no_locks(&error) => {
            let why = "its file system has no locks, which keep two transfers apart";
            return Err(DatasetError::Unable { path: shown.clone(), why });
        }
        Err(source) => return Err(DiskError::call("lock what is staged of", shown, source).into()),
    }
    // The session before may have removed what it did not need.
    let place = fstat(&file).map(|stat| place_of(&stat)).map_err(failed("examine what is staged of"))?;
    let stands = |of: &Dir, name: &[u8], place| {
        statat(of, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| place_of(&stat) == place)
    };
    if !stands(&dir, LOCK, place) || !stands(parent, own, dir.place()) {
        return Ok(None);
    }
    let text = [name.as_bytes(), b"\n"].concat();
    parent.kernel().pwrite(&file, &text, 0).map_err(failed("stage"))?;
    Ok(Some((Arc::new(dir), file)))
}

/// The name of a holder: one for each dataset, user and principal. It is long enough that nobody
/// finds a name of a dataset that leads to the holder of another one.
fn own_name(order: &DatasetOrder<'_>) -> String {
    let mut hasher = blake3::Hasher::new_derive_key("longhaul 1 dataset holder");
    hasher.update(&geteuid().as_raw().to_le_bytes());
    // A name of a dataset has no zeros.
    hasher.update(order.name.as_bytes()).update(&[0]).update(order.principal.as_bytes());
    format!(".longhaul-dataset-{}", &hasher.finalize().to_hex()[..32])
}

/// The dataset in its holder.
pub(super) const TREE: &[u8] = b"tree";
/// The lock in it.
const LOCK: &[u8] = b"name";
/// The beginning of the name of a dataset that is being exchanged.
const READY: &str = "ready.";
/// Names of empty directories with which renames are tried.
const TRIED: &[u8] = b"a";
/// The other one.
const TRIED_TOO: &[u8] = b"b";
/// Between two looks at a lock that another session has.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
