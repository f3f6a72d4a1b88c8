//! A source file held open for a transfer: its frozen length and identity, and the check whether
//! they still hold. Its bytes come from a descriptor, from a [`ReadAt`], or from nowhere.
//!
//! Made by a [`SourceTree`](crate::SourceTree), read by [`ChunkIo`](crate::ChunkIo).

use std::io;
use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{SeekFrom, fstat, seek};
use rustix::io::{Errno, pread};

use crate::bytes::ReadAt;
use crate::direct::{Handle, IoMode};
use crate::error::{DiskError, PathText};
use crate::stat::{Identity, identity_of, len_of};
use crate::stripe::StripedFile;

/// A source file, open for reading. Shared by the requests on it; closed with the last of them.
#[derive(Debug)]
pub struct SourceFile {
    identity: Identity,
    content: SourceContent,
}

/// Where the bytes of a source file come from.
#[derive(Debug)]
enum SourceContent {
    /// Nowhere: a file for transfers without a disk.
    Void {
        /// The time from which it is not read any more. `None`: it is read for ever.
        until: Option<Instant>,
    },
    /// A file of this host.
    Descriptor(Handle),
    /// The bodies of a striped file.
    Striped(StripedSource),
    /// Anything else.
    Given(GivenSource),
}

/// A striped file as a source.
#[derive(Debug)]
pub(crate) struct StripedSource {
    /// The stripe file.
    stripe: Handle,
    /// Its length, in bytes.
    stripe_len: u64,
    file: Arc<StripedFile>,
}

/// The bytes of a source file that is no file of this host.
#[derive(Debug)]
pub(crate) struct GivenSource {
    /// Its path, for messages.
    path: PathText,
    /// The bytes.
    bytes: Box<dyn ReadAt>,
}

impl SourceFile {
    /// A source file of another kind than a file of this host, for a
    /// [`SourceTree`](crate::SourceTree) that a library user wrote. Its identity says its length,
    /// and the number by which it shares the threads of one queue with others (`dev`). `path` names
    /// it in messages.
    pub fn of(path: impl Into<PathText>, identity: Identity, bytes: Box<dyn ReadAt>) -> SourceFile {
        SourceFile { identity, content: SourceContent::Given(GivenSource { path: path.into(), bytes }) }
    }

    pub(crate) fn new(handle: Handle, identity: Identity) -> SourceFile {
        SourceFile { identity, content: SourceContent::Descriptor(handle) }
    }

    /// A striped file, of which `stripe` is the stripe file, and `identity` is what it shows.
    pub(crate) fn striped(stripe: Handle, file: StripedFile, identity: Identity) -> SourceFile {
        let stripe_len = fstat(&stripe).map_or(0, |stat| len_of(&stat));
        let content = SourceContent::Striped(StripedSource { stripe, stripe_len, file: Arc::new(file) });
        SourceFile { identity, content }
    }

    /// A file of `len` bytes that does not exist; only the void engine reads it, and only until
    /// `until`.
    pub(crate) fn void(identity: Identity, until: Option<Instant>) -> SourceFile {
        SourceFile { identity, content: SourceContent::Void { until } }
    }

    /// The error of a file whose time is over. `None` for any other.
    pub(crate) fn over(&self) -> Option<DiskError> {
        let SourceContent::Void { until: Some(until) } = self.content else { return None };
        (Instant::now() >= until).then(|| self.changed("its time is over"))
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
        self.any_handle().map_or(IoMode::Buffered, Handle::mode)
    }

    /// The number of bytes of which offsets and lengths of reads must be multiples now; 1 through
    /// the page cache.
    pub fn align(&self) -> usize {
        self.any_handle().map_or(1, Handle::align)
    }

    /// Whether it is still the version that was opened. If it is after the last read, all reads
    /// were of that version.
    ///
    /// # Errors
    /// The system's error.
    pub fn unchanged(&self) -> Result<bool, DiskError> {
        match &self.content {
            SourceContent::Void { .. } => Ok(true),
            SourceContent::Descriptor(handle) => {
                let stat = fstat(handle).map_err(|error| handle.error("examine", error).at_source())?;
                Ok(identity_of(&stat) == self.identity)
            }
            SourceContent::Striped(StripedSource { stripe, stripe_len, .. }) => {
                let stat = fstat(stripe).map_err(|error| stripe.error("examine", error).at_source())?;
                let shows = Identity { len: self.identity.len, ..identity_of(&stat) };
                Ok(shows == self.identity && len_of(&stat) == *stripe_len)
            }
            SourceContent::Given(given) => given.bytes.unchanged().map_err(|error| given.error("examine", error)),
        }
    }

    /// Whether any of `len` bytes at `offset` is not in a hole. File systems without holes say yes.
    ///
    /// # Errors
    /// The system's error.
    pub fn data_in(&self, offset: u64, len: u64) -> Result<bool, DiskError> {
        let handle = match &self.content {
            SourceContent::Void { .. } | SourceContent::Striped(_) => return Ok(true),
            SourceContent::Given(given) => {
                let data = given.bytes.data_in(offset, len);
                return data.map_err(|error| given.error("look for holes in", error));
            }
            SourceContent::Descriptor(handle) => handle,
        };
        // Requests carry their own offsets, so moving the descriptor's disturbs no request.
        match seek(handle, SeekFrom::Data(offset)) {
            Ok(data) => Ok(data < offset.saturating_add(len)),
            Err(Errno::NXIO) => Ok(false),
            Err(Errno::INVAL) => Ok(true),
            Err(error) => Err(handle.error("look for holes in", error).at_source()),
        }
    }

    /// Reads the whole file into `buf`, which has its length, and checks that it was not written to
    /// meanwhile. A file that does not exist leaves `buf` as it is.
    pub(crate) fn read_whole(&self, buf: &mut [u8]) -> Result<(), DiskError> {
        let filled = match &self.content {
            SourceContent::Void { .. } => return Ok(()),
            SourceContent::Striped(striped) => {
                let len = buf.len();
                striped.file.fill(buf, len, 0)?
            }
            SourceContent::Given(given) => given.fill(buf, 0)?,
            SourceContent::Descriptor(handle) => {
                if handle.mode() == IoMode::Direct {
                    handle.fall_back("a small file is read whole")?;
                }
                let mut filled = 0;
                loop {
                    match pread(handle, &mut buf[filled..], filled as u64) {
                        Ok(0) => break filled,
                        Ok(read) => filled += read,
                        Err(Errno::INTR) => {}
                        Err(error) => return Err(handle.error("read", error).at_source()),
                    }
                }
            }
        };
        if filled < buf.len() {
            return Err(self.shrank());
        }
        if self.unchanged()? { Ok(()) } else { Err(self.changed("it was written to")) }
    }

    /// Its descriptor. `None` for a file that has none.
    pub(crate) fn handle(&self) -> Option<&Handle> {
        if let SourceContent::Descriptor(handle) = &self.content { Some(handle) } else { None }
    }

    /// It, where it is a striped file.
    pub(crate) fn in_stripes(&self) -> Option<&Arc<StripedFile>> {
        if let SourceContent::Striped(striped) = &self.content { Some(&striped.file) } else { None }
    }

    /// A descriptor that its bytes are read through.
    fn any_handle(&self) -> Option<&Handle> {
        self.handle().or_else(|| self.in_stripes()?.bodies().map(|(_, body)| body).next())
    }

    /// Its bytes, where it is no file of this host.
    pub(crate) fn given(&self) -> Option<&GivenSource> {
        if let SourceContent::Given(given) = &self.content { Some(given) } else { None }
    }

    /// The error of a file that ended before its length at opening.
    pub(crate) fn shrank(&self) -> DiskError {
        self.changed("it ends before the length it had")
    }

    /// Its path, for messages.
    pub(crate) fn path(&self) -> PathText {
        match &self.content {
            SourceContent::Void { .. } => PathText::from(&b"void"[..]),
            SourceContent::Descriptor(handle) => handle.path().clone(),
            SourceContent::Striped(striped) => striped.file.path().clone(),
            SourceContent::Given(given) => given.path.clone(),
        }
    }

    fn changed(&self, how: &'static str) -> DiskError {
        DiskError::Changed { path: self.path(), how }
    }
}

impl GivenSource {
    /// Its path, for messages.
    pub(crate) fn path(&self) -> &PathText {
        &self.path
    }

    /// Fills `buf` from `offset` on. Returns how many bytes there were: fewer where the file ends.
    pub(crate) fn fill(&self, buf: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        let mut filled = 0;
        while filled < buf.len() {
            match self.bytes.read_at(&mut buf[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error("read", error)),
            }
        }
        Ok(filled)
    }

    fn error(&self, call: &'static str, error: io::Error) -> DiskError {
        DiskError::call(call, &self.path, error).at_source()
    }
}
