//! [`JournalCopy`]: one journal file, on one target: appended to, synced, cut, read.
//!
//! In: bytes from the journal that it is a copy of. Out: the system's answers. Owns its length, and
//! makes sure that nothing is written after a failure. Knows no other copies.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::{Mtime, SessionTag};
use longhaul_sys::lock;
use rustix::fs::fstat;
use rustix::io::{Errno, pread};

use crate::error::DiskError;
use crate::kernel::Kernel;
use crate::shelf::dir::{ShelfDir, shown};
use crate::shelf::epoch::{self, Epoch};
use crate::shelf::hands::Hand;
use crate::shelf::locks::Locked;
use crate::stat::meta_of;

/// A journal file of ours: locked, until it is dropped, against every other opening.
#[derive(Debug)]
pub(crate) struct JournalCopy {
    shelf: ShelfDir,
    tag: SessionTag,
    fd: OwnedFd,
    locked: Locked,
    /// The offset of the next append. Held while bytes are appended.
    len: Mutex<u64>,
    /// The offset up to which room is reserved.
    reserved: AtomicU64,
    /// Whether a sync failed, or the remains of a failed append could not be cut off: then nothing
    /// in it is to be relied on any more.
    abandoned: AtomicBool,
    hand: Arc<Hand>,
}

impl JournalCopy {
    /// An open journal file of so many bytes.
    pub(super) fn new(shelf: ShelfDir, (tag, fd): (SessionTag, OwnedFd), len: u64, locked: Locked) -> JournalCopy {
        JournalCopy {
            shelf,
            tag,
            fd,
            locked,
            len: Mutex::new(len),
            reserved: AtomicU64::new(len),
            abandoned: AtomicBool::new(false),
            hand: Arc::default(),
        }
    }

    /// Whether no other session can have it. Without locks on the file system another session may.
    pub(crate) fn is_locked(&self) -> bool {
        self.locked == Locked::Yes
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> u64 {
        *self.len.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes `bytes` behind the last; durable only after [`JournalCopy::sync`]. Calls come one
    /// after the other.
    ///
    /// # Errors
    /// The system's error: then none of `bytes` is in it, and the next append may succeed. If the
    /// part that was written could not be cut off again, every later call is
    /// [`DiskError::Abandoned`].
    pub(crate) fn append(&self, bytes: &[u8]) -> Result<(), DiskError> {
        let mut len = self.len.lock().unwrap_or_else(PoisonError::into_inner);
        self.usable()?;
        self.reserve(*len + bytes.len() as u64);
        if let Err(error) = write_all(self.kernel(), &self.fd, bytes, *len) {
            if self.kernel().ftruncate(&self.fd, *len).is_err() {
                self.abandon();
            }
            return Err(DiskError::call("append to", self.shelf.shown(self.tag), error));
        }
        *len += bytes.len() as u64;
        Ok(())
    }

    /// Makes durable all that was appended before the call. Appends may go on meanwhile.
    ///
    /// # Errors
    /// The system's error: then the journal is abandoned, and every later call fails.
    pub(crate) fn sync(&self) -> Result<(), DiskError> {
        self.usable()?;
        let synced = self.kernel().fdatasync(&self.fd).and_then(|()| self.shelf.takes_changes());
        synced.map_err(|error| {
            // The system may forget the data that it could not write, and say "done" the next time.
            self.abandon();
            DiskError::call("sync", self.shelf.shown(self.tag), error)
        })
    }

    /// Cuts it to its first `len` bytes, durably.
    ///
    /// # Errors
    /// As [`JournalCopy::sync`]; [`DiskError::Bounds`] if it is shorter.
    pub(crate) fn truncate(&self, len: u64) -> Result<(), DiskError> {
        let mut standing = self.len.lock().unwrap_or_else(PoisonError::into_inner);
        self.usable()?;
        if len > *standing {
            return Err(DiskError::Bounds { path: self.shelf.shown(self.tag), offset: len, len: 0 });
        }
        let cut = self.kernel().ftruncate(&self.fd, len);
        cut.map_err(|error| DiskError::call("cut", self.shelf.shown(self.tag), error))?;
        *standing = len;
        self.sync()
    }

    /// Makes the records that another session left in it durable: that session may have died before
    /// its last sync, or after one that failed, and the system then gives bytes back that are on no
    /// medium. They are written again as they are.
    ///
    /// # Errors
    /// As [`JournalCopy::sync`].
    pub(crate) fn reassert(&self) -> Result<(), DiskError> {
        self.usable()?;
        let (mut offset, mut outcome) = (0, Ok(()));
        self.read(&mut |piece| {
            outcome = write_all(self.kernel(), &self.fd, piece, offset);
            offset += piece.len() as u64;
            outcome.is_ok()
        })?;
        outcome.map_err(|error| DiskError::call("write again", self.shelf.shown(self.tag), error))?;
        // A sync that failed is not believed when it is tried again: its error is told once.
        self.shelf.sync().inspect_err(|_| self.abandon())?;
        self.sync()
    }

    /// The time of the last write.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn written(&self) -> Result<Mtime, DiskError> {
        written(&self.fd, self.tag)
    }

    /// Gives all its bytes to `sink`, in pieces of up to a megabyte, until `sink` returns false.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn read(&self, sink: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), DiskError> {
        read(&self.fd, self.tag, sink)
    }

    /// Removes its name, and its epoch. It stays locked.
    ///
    /// # Errors
    /// The system's error; it then stands.
    pub(super) fn unlink(&self) -> Result<(), DiskError> {
        self.shelf.unlink(self.tag)
    }

    /// Makes its bytes those of the file of another copy, durably. What it had is written over from
    /// the beginning, and it is cut at the end: where it is a beginning of the other, it stays one
    /// all the while.
    ///
    /// # Errors
    /// As [`JournalCopy::sync`]; an error of the other one.
    pub(super) fn become_like(&self, other: &OwnedFd) -> Result<(), DiskError> {
        let mut len = self.len.lock().unwrap_or_else(PoisonError::into_inner);
        self.usable()?;
        let (mut offset, mut outcome) = (0, Ok(()));
        read(other, self.tag, &mut |piece| {
            outcome = write_all(self.kernel(), &self.fd, piece, offset);
            offset += piece.len() as u64;
            outcome.is_ok()
        })?;
        let cut = outcome.and_then(|()| self.kernel().ftruncate(&self.fd, offset));
        cut.map_err(|error| DiskError::call("write the copy", self.shelf.shown(self.tag), error))?;
        *len = offset;
        self.shelf.sync().inspect_err(|_| self.abandon())?;
        self.sync()
    }

    /// Its epoch.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn epoch(&self) -> Result<Epoch, DiskError> {
        epoch::read(&self.shelf, self.tag)
    }

    /// Gives it an epoch, durably.
    ///
    /// # Errors
    /// The system's error: then it is abandoned.
    pub(super) fn set_epoch(&self, epoch: Epoch) -> Result<(), DiskError> {
        self.usable()?;
        epoch::write(&self.shelf, self.tag, epoch).inspect_err(|_| self.abandon())
    }

    /// The shelf that it lies on.
    pub(super) fn shelf(&self) -> &ShelfDir {
        &self.shelf
    }

    /// The thread that acts on it where there are others.
    pub(super) fn hand(&self) -> &Arc<Hand> {
        &self.hand
    }

    /// The error of a call that did not come back.
    pub(super) fn unanswered(&self) -> DiskError {
        DiskError::call("wait for", self.shelf.shown(self.tag), Errno::TIMEDOUT)
    }

    /// Its open file.
    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Lets every later call on it fail.
    pub(super) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
    }

    /// Lets calls on it be made again, after which nothing of what it had is relied on. Not if one
    /// is still under way.
    pub(super) fn revive(&self) -> bool {
        let may = !self.hand.is_busy();
        if may {
            self.abandoned.store(false, Ordering::Release);
        }
        may
    }

    /// Reserves some room ahead of the appended bytes, so that the journal has room for the chunks
    /// that fit on a disk before it is full. Where that fails, the append reports its own error.
    fn reserve(&self, end: u64) {
        let from = self.reserved.load(Ordering::Relaxed);
        if end > from {
            let upto = end + RESERVE_BYTES;
            let _ = self.kernel().reserve(&self.fd, from, upto - from);
            self.reserved.store(upto, Ordering::Relaxed);
        }
    }

    fn kernel(&self) -> &Kernel {
        self.shelf.kernel()
    }

    /// Whether nothing failed so that every later call would fail.
    pub(crate) fn is_usable(&self) -> bool {
        !self.abandoned.load(Ordering::Acquire)
    }

    /// The error of a call after such a failure.
    pub(crate) fn abandoned(&self) -> DiskError {
        DiskError::Abandoned { path: self.shelf.shown(self.tag) }
    }

    fn usable(&self) -> Result<(), DiskError> {
        if self.is_usable() { Ok(()) } else { Err(self.abandoned()) }
    }
}

impl Drop for JournalCopy {
    fn drop(&mut self) {
        // Closing would be enough, if no child had been forked at this moment that has not begun
        // its own program yet.
        let _ = lock::unlock(&self.fd);
    }
}

/// The time of the last write to a journal file.
pub(super) fn written(fd: &OwnedFd, tag: SessionTag) -> Result<Mtime, DiskError> {
    let stat = fstat(fd).map_err(|error| DiskError::call("examine", shown(tag), error))?;
    Ok(meta_of(&stat).mtime)
}

/// Gives the bytes of a journal file to `sink`, until that returns false.
pub(super) fn read(fd: &OwnedFd, tag: SessionTag, sink: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), DiskError> {
    // Most callers want only the beginning, which names the owner.
    let mut piece = vec![0; FIRST_PIECE_BYTES];
    let mut offset = 0;
    loop {
        match pread(fd, &mut piece, offset) {
            Ok(0) => return Ok(()),
            Ok(read) if sink(&piece[..read]) => {
                offset += read as u64;
                piece.resize((2 * piece.len()).min(PIECE_BYTES), 0);
            }
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(DiskError::call("read", shown(tag), error)),
        }
    }
}

/// Writes all of `bytes` at `offset`.
fn write_all(kernel: &Kernel, fd: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match kernel.pwrite(fd, bytes, offset) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Bytes of the first piece that is read.
pub(super) const FIRST_PIECE_BYTES: usize = 4 << 10;
/// Bytes of a piece at most.
pub(super) const PIECE_BYTES: usize = 1 << 20;

/// Bytes of room that are kept ahead: the records of two thousand chunks.
const RESERVE_BYTES: u64 = 64 << 10;
