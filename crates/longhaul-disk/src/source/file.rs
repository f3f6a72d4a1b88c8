//! A source file held open for a transfer: its frozen length and identity, and the check whether
//! they still hold.
//!
//! Made by a [`SourceTree`](crate::SourceTree), read by [`ChunkIo`](crate::ChunkIo).

use std::time::Instant;

use rustix::fs::{SeekFrom, fstat, seek};
use rustix::io::Errno;

use crate::direct::{Handle, IoMode};
use crate::error::{DiskError, PathText};
use crate::stat::{Identity, identity_of};

/// A source file, open for reading. Shared by the requests on it; closed with the last of them.
#[derive(Debug)]
pub struct SourceFile {
    identity: Identity,
    /// `None`: no file at all, for transfers without a disk.
    handle: Option<Handle>,
    /// The time from which a file that does not exist is not read any more.
    until: Option<Instant>,
}

impl SourceFile {
    pub(crate) fn new(handle: Handle, identity: Identity) -> SourceFile {
        SourceFile { identity, handle: Some(handle), until: None }
    }

    /// A file of `len` bytes that does not exist; only the void engine reads it, and only until
    /// `until`.
    pub(crate) fn void(identity: Identity, until: Option<Instant>) -> SourceFile {
        SourceFile { identity, handle: None, until }
    }

    /// The error of a file whose time is over. `None` for any other.
    pub(crate) fn over(&self) -> Option<DiskError> {
        let path = || PathText::from(&b"void"[..]);
        let is_over = self.until.is_some_and(|until| Instant::now() >= until);
        is_over.then(|| DiskError::Changed { path: path(), how: "its time is over" })
    }

    /// Its length in bytes when it was opened, which is the length that is sent.
    pub fn len(&self) -> u64 {
        self.identity.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.identity.len == 0
    }

    /// The identity that it had when it was opened.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The device it lies on (`st_dev`).
    pub fn dev(&self) -> u64 {
        self.identity.dev
    }

    /// The way in which it is really read.
    pub fn mode(&self) -> IoMode {
        self.handle.as_ref().map_or(IoMode::Buffered, Handle::mode)
    }

    /// Whether it is still the version that was opened. If it is after the last read, all reads
    /// were of that version.
    ///
    /// # Errors
    /// The system's error.
    pub fn unchanged(&self) -> Result<bool, DiskError> {
        let Some(handle) = &self.handle else { return Ok(true) };
        let stat = fstat(handle).map_err(|error| handle.error("examine", error).at_source())?;
        Ok(identity_of(&stat) == self.identity)
    }

    /// Whether any of `len` bytes at `offset` is not in a hole. File systems without holes say yes.
    ///
    /// # Errors
    /// The system's error.
    pub fn data_in(&self, offset: u64, len: u64) -> Result<bool, DiskError> {
        let Some(handle) = &self.handle else { return Ok(true) };
        // Requests carry their own offsets, so moving the descriptor's disturbs no request.
        match seek(handle, SeekFrom::Data(offset)) {
            Ok(data) => Ok(data < offset.saturating_add(len)),
            Err(Errno::NXIO) => Ok(false),
            Err(Errno::INVAL) => Ok(true),
            Err(error) => Err(handle.error("look for holes in", error).at_source()),
        }
    }

    pub(crate) fn handle(&self) -> Option<&Handle> {
        self.handle.as_ref()
    }

    /// The error of a file that ended before its length at opening.
    pub(crate) fn shrank(&self) -> DiskError {
        let path = self.handle.as_ref().map_or_else(|| PathText::from(&b"void"[..]), |handle| handle.path().clone());
        DiskError::Changed { path, how: "it ends before the length it had" }
    }
}
