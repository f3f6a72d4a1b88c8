//! One journal file: appended to, synced, cut, read. Owns its length, and makes sure that nothing
//! is written after a failure.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use longhaul_core::{Mtime, SessionTag};
use longhaul_sys::lock;
use rustix::fs::fstat;
use rustix::io::{Errno, pread};

use crate::error::DiskError;
use crate::kernel::Kernel;
use crate::shelf::locks::{self, Locked};
use crate::shelf::{Shelf, shown};
use crate::stat::{len_of, meta_of};

/// A journal of ours: locked, until it is dropped, against every other opening.
#[derive(Debug)]
pub struct Journal {
    shelf: Shelf,
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
}

/// A journal open for reading, which keeps no other session from it.
#[derive(Debug)]
pub struct JournalReader {
    tag: SessionTag,
    fd: OwnedFd,
}

impl Journal {
    pub(super) fn new(shelf: Shelf, (tag, fd): (SessionTag, OwnedFd), len: u64, locked: Locked) -> Journal {
        Journal {
            shelf,
            tag,
            fd,
            locked,
            len: Mutex::new(len),
            reserved: AtomicU64::new(len),
            abandoned: AtomicBool::new(false),
        }
    }

    /// The tag of the session that owns it.
    pub fn tag(&self) -> SessionTag {
        self.tag
    }

    /// Whether no other session can have it. Without locks on the file system another session may.
    pub fn is_locked(&self) -> bool {
        self.locked == Locked::Yes
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        *self.len.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nothing was written to it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes `bytes` behind the last; durable only after [`Journal::sync`]. Calls come one after
    /// the other.
    ///
    /// # Errors
    /// The system's error: then none of `bytes` is in it, and the next append may succeed. If the
    /// part that was written could not be cut off again, every later call is
    /// [`DiskError::Abandoned`].
    pub fn append(&self, bytes: &[u8]) -> Result<(), DiskError> {
        let mut len = self.len.lock().unwrap_or_else(PoisonError::into_inner);
        self.usable()?;
        self.reserve(*len + bytes.len() as u64);
        if let Err(error) = write_all(self.kernel(), &self.fd, bytes, *len) {
            if self.kernel().ftruncate(&self.fd, *len).is_err() {
                self.abandoned.store(true, Ordering::Release);
            }
            return Err(DiskError::call("append to", shown(self.tag), error));
        }
        *len += bytes.len() as u64;
        Ok(())
    }

    /// Makes durable all that was appended before the call. Appends may go on meanwhile.
    ///
    /// # Errors
    /// The system's error: then the journal is abandoned, and every later call fails.
    pub fn sync(&self) -> Result<(), DiskError> {
        self.usable()?;
        let synced = self.kernel().fdatasync(&self.fd).and_then(|()| self.shelf.takes_changes());
        synced.map_err(|error| {
            // The system may forget the data that it could not write, and say "done" the next time.
            self.abandoned.store(true, Ordering::Release);
            DiskError::call("sync", shown(self.tag), error)
        })
    }

    /// Cuts it to its first `len` bytes, durably.
    ///
    /// # Errors
    /// As [`Journal::sync`]; [`DiskError::Bounds`] if it is shorter.
    pub fn truncate(&self, len: u64) -> Result<(), DiskError> {
        let mut standing = self.len.lock().unwrap_or_else(PoisonError::into_inner);
        self.usable()?;
        if len > *standing {
            return Err(DiskError::Bounds { path: shown(self.tag), offset: len, len: 0 });
        }
        let cut = self.kernel().ftruncate(&self.fd, len);
        cut.map_err(|error| DiskError::call("cut", shown(self.tag), error))?;
        *standing = len;
        self.sync()
    }

    /// Makes the records that another session left in it durable: that session may have died before
    /// its last sync, or after one that failed, and the system then gives bytes back that are on no
    /// medium. They are written again as they are.
    ///
    /// # Errors
    /// As [`Journal::sync`].
    pub fn reassert(&self) -> Result<(), DiskError> {
        self.usable()?;
        let (mut offset, mut outcome) = (0, Ok(()));
        self.read(&mut |piece| {
            outcome = write_all(self.kernel(), &self.fd, piece, offset);
            offset += piece.len() as u64;
            outcome.is_ok()
        })?;
        outcome.map_err(|error| DiskError::call("write again", shown(self.tag), error))?;
        // A sync that failed is not believed when it is tried again: its error is told once.
        self.shelf.sync().inspect_err(|_| self.abandoned.store(true, Ordering::Release))?;
        self.sync()
    }

    /// The time of the last write.
    ///
    /// # Errors
    /// The system's error.
    pub fn written(&self) -> Result<Mtime, DiskError> {
        written(&self.fd, self.tag)
    }

    /// Gives all its bytes to `sink`, in pieces of up to a megabyte, until `sink` returns false.
    ///
    /// # Errors
    /// The system's error.
    pub fn read(&self, sink: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), DiskError> {
        read(&self.fd, self.tag, sink)
    }

    /// Removes it, and the shelf too if it was the last journal there.
    ///
    /// # Errors
    /// The system's error; the journal then stands, and is free to be taken.
    pub fn remove(self) -> Result<(), DiskError> {
        let shelf = self.shelf.clone();
        shelf.unlink(self.tag)?;
        drop(self);
        shelf.remove_if_empty();
        Ok(())
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
        self.shelf.root.kernel()
    }

    /// Whether nothing failed so that every later call would fail.
    pub fn is_usable(&self) -> bool {
        !self.abandoned.load(Ordering::Acquire)
    }

    /// The error of a call after such a failure.
    pub fn abandoned(&self) -> DiskError {
        DiskError::Abandoned { path: shown(self.tag) }
    }

    fn usable(&self) -> Result<(), DiskError> {
        if self.is_usable() { Ok(()) } else { Err(self.abandoned()) }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Closing would be enough, if no child had been forked at this moment that has not begun
        // its own program yet.
        let _ = lock::unlock(&self.fd);
    }
}

impl JournalReader {
    pub(super) fn new(tag: SessionTag, fd: OwnedFd) -> JournalReader {
        JournalReader { tag, fd }
    }

    /// The tag of the session that owns it.
    pub fn tag(&self) -> SessionTag {
        self.tag
    }

    /// Its length in bytes.
    ///
    /// # Errors
    /// The system's error.
    #[expect(clippy::len_without_is_empty, reason = "whether it is empty says nothing of what it promises")]
    pub fn len(&self) -> Result<u64, DiskError> {
        let stat = fstat(&self.fd).map_err(|error| DiskError::call("examine", shown(self.tag), error))?;
        Ok(len_of(&stat))
    }

    /// Whether a live session, of this process or another, has it locked.
    ///
    /// # Errors
    /// The system's error.
    pub fn is_live(&self) -> Result<bool, DiskError> {
        locks::is_locked(&self.fd).map_err(|error| DiskError::call("examine the lock of", shown(self.tag), error))
    }

    /// Like [`Journal::written`].
    ///
    /// # Errors
    /// The system's error.
    pub fn written(&self) -> Result<Mtime, DiskError> {
        written(&self.fd, self.tag)
    }

    /// Like [`Journal::read`]. The read may end in the middle of a record that is being appended.
    ///
    /// # Errors
    /// The system's error.
    pub fn read(&self, sink: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), DiskError> {
        read(&self.fd, self.tag, sink)
    }
}

fn written(fd: &OwnedFd, tag: SessionTag) -> Result<Mtime, DiskError> {
    let stat = fstat(fd).map_err(|error| DiskError::call("examine", shown(tag), error))?;
    Ok(meta_of(&stat).mtime)
}

fn read(fd: &OwnedFd, tag: SessionTag, sink: &mut dyn FnMut(&[u8]) -> bool) -> Result<(), DiskError> {
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

const FIRST_PIECE_BYTES: usize = 4 << 10;
const PIECE_BYTES: usize = 1 << 20;

/// Bytes of room that are kept ahead: the records of two thousand chunks.
const RESERVE_BYTES: u64 = 64 << 10;
