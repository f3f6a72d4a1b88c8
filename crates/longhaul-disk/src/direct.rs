//! An open file with its state of direct I/O: asked for, offered, or refused at the first request.
//!
//! The engines read and write through a [`Handle`]; [`SourceFile`](crate::SourceFile) and
//! [`TargetFile`](crate::TargetFile) each wrap one. Knows nothing of trees, and names only for
//! messages.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_sys::DioAlign;
use rustix::fs::{AtFlags, OFlags, Statx, StatxFlags, fcntl_setfl, statx};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{DiskError, PathText};
use crate::kernel::Kernel;

/// Whether files are opened for direct I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum DirectMode {
    /// Direct where the file system takes it, else buffered.
    #[default]
    Auto,
    /// Direct, or the file fails.
    Direct,
    /// Through the page cache.
    Buffered,
}

/// The way in which a file is really read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IoMode {
    /// Past the page cache.
    Direct,
    /// Through the page cache.
    Buffered,
}

/// An open file and its state of direct I/O.
#[derive(Debug)]
pub(crate) struct Handle {
    fd: OwnedFd,
    path: PathText,
    /// The device that it lies on (`st_dev`).
    dev: u64,
    /// Alignment in bytes of offsets and lengths of direct requests.
    align: usize,
    required: bool,
    direct: AtomicBool,
    /// The kernel interface through which it is written.
    kernel: Kernel,
}

impl Handle {
    /// Takes a file that was opened plainly with `flags`, and asks for direct I/O on it, if `mode`
    /// wants it and the file system takes it. Also returns the `statx` of the file.
    ///
    /// `O_NONBLOCK` among `flags` guards the opening only (a fifo put in place of the file would
    /// block) and is off afterwards: with it, a ring may answer "try again".
    pub(crate) fn adopt(
        fd: OwnedFd,
        path: PathText,
        mode: DirectMode,
        flags: OFlags,
    ) -> Result<(Handle, Statx), DiskError> {
        let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::DIOALIGN;
        let stat =
            statx(&fd, c"", AtFlags::EMPTY_PATH, wanted).map_err(|error| DiskError::call("examine", &path, error))?;
        let said = said_align(&stat);
        let offered = match said {
            Some(said) => usable_align(said),
            None => Some(ALIGN_UNKNOWN),
        };
        let kept = flags & OFlags::NOATIME;
        let direct = mode != DirectMode::Buffered
            && offered.is_some()
            && set_flags(&fd, &path, kept | OFlags::DIRECT, mode == DirectMode::Direct)?;
        if mode == DirectMode::Direct && !direct {
            return Err(DiskError::NoDirect { path, why: "the file system does not offer it" });
        }
        if !direct && flags.contains(OFlags::NONBLOCK) {
            set_flags(&fd, &path, kept, true)?;
        }
        let align = offered.unwrap_or(1);
        let required = mode == DirectMode::Direct;
        let direct = AtomicBool::new(direct);
        let dev = rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor);
        Ok((Handle { fd, path, dev, align, required, direct, kernel: Kernel::default() }, stat))
    }

    /// The same file, written through `kernel`.
    pub(crate) fn written_by(self, kernel: &Kernel) -> Handle {
        Handle { kernel: kernel.clone(), ..self }
    }

    /// The kernel interface through which it is written.
    pub(crate) fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The way in which the next request will go.
    pub(crate) fn mode(&self) -> IoMode {
        if self.direct.load(Ordering::Relaxed) { IoMode::Direct } else { IoMode::Buffered }
    }

    /// The alignment in bytes that offsets and lengths must have now; 1 when buffered.
    pub(crate) fn align(&self) -> usize {
        match self.mode() {
            IoMode::Direct => self.align,
            IoMode::Buffered => 1,
        }
    }

    /// Leaves direct I/O for good, or fails where it is required. Several requests may find out at
    /// the same time.
    pub(crate) fn fall_back(&self, why: &'static str) -> Result<(), DiskError> {
        if self.required {
            return Err(DiskError::NoDirect { path: self.path.clone(), why });
        }
        longhaul_sys::set_direct(&self.fd, false).map_err(|error| self.error("leave direct I/O on", error))?;
        if self.direct.swap(false, Ordering::Relaxed) {
            tracing::debug!(path = %self.path, why, "direct I/O refused, buffered instead");
        }
        Ok(())
    }

    /// The error of a failed call on this file.
    pub(crate) fn error(&self, call: &'static str, source: impl Into<io::Error>) -> DiskError {
        DiskError::call(call, &self.path, source)
    }

    /// The device that it lies on (`st_dev`).
    pub(crate) fn dev(&self) -> u64 {
        self.dev
    }

    /// Its path, for messages.
    pub(crate) fn path(&self) -> &PathText {
        &self.path
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sets the flags of an open file. Returns false if it refuses direct I/O and that is acceptable.
fn set_flags(fd: &OwnedFd, path: &PathText, flags: OFlags, required: bool) -> Result<bool, DiskError> {
    match fcntl_setfl(fd, flags) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL) if !required => Ok(false),
        Err(Errno::INVAL) => Err(DiskError::NoDirect { path: path.clone(), why: "the file system refuses it" }),
        Err(error) => Err(DiskError::call("open", path, error)),
    }
}

fn said_align(stat: &Statx) -> Option<DioAlign> {
    let said = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::DIOALIGN);
    said.then_some(DioAlign { mem: stat.stx_dio_mem_align, offset: stat.stx_dio_offset_align })
}

/// The alignment to use. `None` if slots cannot meet the one that the file system asks for.
fn usable_align(said: DioAlign) -> Option<usize> {
    let fits = |bytes: u32| bytes.is_power_of_two() && bytes as usize <= ALIGN_MAX;
    (fits(said.mem) && fits(said.offset)).then_some(said.offset as usize)
}

/// The alignment where the system does not say one (before Linux 6.1): no file system in use asks
/// for more.
const ALIGN_UNKNOWN: usize = 4096;
/// The alignment of slots in bytes, and of their lengths.
const ALIGN_MAX: usize = 4096;
