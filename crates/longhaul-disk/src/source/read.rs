//! Opens a source file that a scan has found: it is the same file in the same version, or an error
//! says how it differs.

use std::fmt;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::RelPath;
use rustix::fs::{Advice, Mode, OFlags, fadvise, fstat, openat};
use rustix::io::{Errno, pread};

use crate::direct::{DirectMode, Handle};
use crate::error::{DiskError, ErrorKind, PathText};
use crate::source::{SourceFile, SourceRef};
use crate::stat::{Identity, identity_of, identity_of_statx};
use crate::stripe::StripedFile;
use crate::walk::Walk;

/// Opens a file for chunk reads. `prefix` is the users' name for the directory that `walk` begins
/// in.
pub(crate) fn open_checked(
    walk: &Walk,
    (at, prefix): (&RelPath, &[u8]),
    expect: &Identity,
    direct: DirectMode,
    noatime: &AtomicBool,
) -> Result<SourceFile, DiskError> {
    let whole = |error: DiskError| error.beneath(prefix);
    let (dir, name) = walk.parent(at).map_err(gone).map_err(whole)?;
    let (fd, extra) = open_quietly(noatime, |extra| openat(&dir, name, FLAGS | extra, Mode::empty()))
        .map_err(|error| whole(gone(DiskError::call("open", at, error))))?;
    let shown = PathText::from(at).beneath(prefix);
    let striped = match dir.stripes() {
        Some(stripes) => stripes.found_in(&fd).map_err(|error| DiskError::call("read", &shown, error).at_source())?,
        None => None,
    };
    // A stripe file is read through the page cache, and its bodies as asked.
    let io = if striped.is_some() { DirectMode::Buffered } else { direct };
    let (handle, stat) = Handle::adopt(fd, shown, io, FLAGS | extra).map_err(DiskError::at_source)?;
    let identity = identity_of_statx(&stat);
    if let (Some(stripes), Some(header)) = (dir.stripes(), striped) {
        let shows = Identity { len: header.map.len(), ..identity };
        check(at, &shows, expect).map_err(whole)?;
        let file = StripedFile::open(stripes, (&handle, handle.path()), &header, direct)?;
        return Ok(SourceFile::striped(handle, file, shows));
    }
    check(at, &identity, expect).map_err(whole)?;
    Ok(SourceFile::new(handle, identity))
}

/// A small file that is open, is the one that was scanned, and is being fetched. Closed when
/// dropped.
#[derive(Debug)]
pub struct SmallFile<'a> {
    content: SmallContent<'a>,
    at: &'a RelPath,
    /// The users' name for the directory that it lies beneath.
    prefix: &'a [u8],
    expect: &'a Identity,
}

/// The bytes of a small file that was not opened here.
pub(crate) trait SmallBytes: fmt::Debug + Send + Sync {
    /// Reads them all into `buf`, which has their length.
    fn read(self: Box<Self>, buf: &mut [u8]) -> Result<(), DiskError>;
}

/// Where the bytes of a small file come from.
#[derive(Debug)]
enum SmallContent<'a> {
    /// A descriptor that was opened for this.
    Descriptor(OwnedFd),
    /// A file that was opened as any other.
    Open(Arc<SourceFile>),
    /// Somebody who has them, or will.
    Given(Box<dyn SmallBytes + 'a>),
}

impl<'a> SmallFile<'a> {
    /// A small file of a tree of another kind: `file` is the one at `at`, opened as any other.
    pub fn of(file: Arc<SourceFile>, at: &'a RelPath, expect: &'a Identity) -> SmallFile<'a> {
        SmallFile { content: SmallContent::Open(file), at, prefix: b"", expect }
    }

    /// A small file whose bytes somebody gives. That one knows the path for users.
    pub(crate) fn given(bytes: Box<dyn SmallBytes + 'a>, at: &'a SourceRef, expect: &'a Identity) -> SmallFile<'a> {
        SmallFile { content: SmallContent::Given(bytes), at: &at.path, prefix: b"", expect }
    }

    pub(crate) fn open(
        walk: &Walk,
        (at, prefix): (&'a RelPath, &'a [u8]),
        expect: &'a Identity,
        noatime: &AtomicBool,
    ) -> Result<SmallFile<'a>, DiskError> {
        let whole = |error: DiskError| error.beneath(prefix);
        let (dir, name) = walk.parent(at).map_err(gone).map_err(whole)?;
        let (fd, _) = open_quietly(noatime, |extra| openat(&dir, name, FLAGS | extra, Mode::empty()))
            .map_err(|error| whole(gone(DiskError::call("open", at, error))))?;
        check_open(&fd, at, expect).map_err(whole)?;
        // Advice: a file system that does not take it is read as well, only later.
        let _ = fadvise(&fd, 0, NonZeroU64::new(expect.len), Advice::WillNeed);
        Ok(SmallFile { content: SmallContent::Descriptor(fd), at, prefix, expect })
    }

    /// Reads the whole file into `buf`, which has the length of the file, and checks that it was
    /// not written to meanwhile.
    ///
    /// # Errors
    /// [`DiskError::Bounds`] if `buf` is longer or shorter, [`DiskError::Changed`] if the file has
    /// changed.
    pub fn read(self, buf: &mut [u8]) -> Result<(), DiskError> {
        let prefix = self.prefix;
        self.read_whole(buf).map_err(|error| error.beneath(prefix))
    }

    fn read_whole(self, buf: &mut [u8]) -> Result<(), DiskError> {
        let at = self.at;
        if buf.len() as u64 != self.expect.len {
            return Err(DiskError::Bounds { path: at.into(), offset: 0, len: buf.len() });
        }
        let fd = match self.content {
            SmallContent::Descriptor(fd) => fd,
            SmallContent::Open(file) => return file.read_whole(buf),
            SmallContent::Given(bytes) => return bytes.read(buf),
        };
        let mut filled = 0;
        while filled < buf.len() {
            match pread(&fd, &mut buf[filled..], filled as u64) {
                Ok(0) => return Err(DiskError::Changed { path: at.into(), how: "it ends before the length it had" }),
                Ok(read) => filled += read,
                Err(Errno::INTR) => {}
                Err(error) => return Err(DiskError::call("read", at, error).at_source()),
            }
        }
        check_open(&fd, at, self.expect)
    }
}

/// Checks that an open file is the one expected.
fn check_open(fd: &OwnedFd, at: &RelPath, expect: &Identity) -> Result<(), DiskError> {
    let stat = fstat(fd).map_err(|error| DiskError::call("examine", at, error).at_source())?;
    if stat.st_nlink == 0 {
        return Err(DiskError::Vanished { path: at.into() });
    }
    check(at, &identity_of(&stat), expect)
}

/// Opens without touching the access time, which only the owner may; once refused, it is not tried
/// again. Also returns the flag that was used.
fn open_quietly(
    noatime: &AtomicBool,
    open: impl Fn(OFlags) -> Result<OwnedFd, Errno>,
) -> Result<(OwnedFd, OFlags), Errno> {
    if noatime.load(Ordering::Relaxed) {
        match open(OFlags::NOATIME) {
            Err(Errno::PERM) => noatime.store(false, Ordering::Relaxed),
            outcome => return outcome.map(|fd| (fd, OFlags::NOATIME)),
        }
    }
    open(OFlags::empty()).map(|fd| (fd, OFlags::empty()))
}

fn check(at: &RelPath, is: &Identity, expect: &Identity) -> Result<(), DiskError> {
    let how = if (is.dev, is.ino) != (expect.dev, expect.ino) {
        "another file has its name"
    } else if is.len != expect.len {
        "its length is another"
    } else if is != expect {
        "it was written to"
    } else {
        return Ok(());
    };
    Err(DiskError::Changed { path: at.into(), how })
}

/// The error of a file that was scanned and is not found any more: it has vanished.
fn gone(error: DiskError) -> DiskError {
    match (error.kind(), error.path()) {
        (ErrorKind::NotFound, Some(path)) => DiskError::Vanished { path: path.clone() },
        _ => error.at_source(),
    }
}

/// Flags of opening. A fifo put in the file's place must not block the opening.
const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
