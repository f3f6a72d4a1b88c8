//! Scratch files: the files of a measurement, which lose their name as soon as they are open, and
//! files and devices that a measurement only reads.
//!
//! In: a directory that an operator named, or the path of a file or device. Out: a [`ScratchFile`]
//! whose two faces, a [`TargetFile`] and a [`SourceFile`], are those that a transfer has, so that
//! [`ChunkIo`](crate::ChunkIo) moves their bytes as it moves those of a transfer. Because the name
//! is gone, the system frees the blocks when the process ends, whatever ends it. Knows nothing of
//! what is measured.

use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::{RelPath, SessionTag, TempName};
use rustix::fs::{Advice, CWD, FileType, Mode, OFlags, SeekFrom, fadvise, fstat, fstatvfs, openat, seek};
use rustix::io::Errno;

use crate::destination::{FsTarget, TargetFile, Zeros};
use crate::direct::{DirectMode, Handle, IoMode};
use crate::error::{DiskError, PathText};
use crate::source::SourceFile;
use crate::stat::{Identity, identity_of, identity_of_statx, type_of};
use crate::walk::Dir;

/// A directory in which scratch files are made. Nothing else in it is touched.
pub struct ScratchDir {
    path: PathBuf,
    dir: Dir,
    target: FsTarget,
    direct: DirectMode,
}

/// A file without a name, open for writing and for reading.
#[derive(Debug)]
pub struct ScratchFile {
    target: Arc<TargetFile>,
    source: Arc<SourceFile>,
}

/// The size of a file system and how much of it is free, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fullness {
    /// The bytes that are used, by whomever.
    pub used: u64,
    /// The bytes that this user may still take: what is kept for root is not among them.
    pub available: u64,
}

impl Fullness {
    /// The used share as `df` counts it: of what is used and what may still be taken. 0 to 1.
    pub fn share(self) -> f64 {
        self.used as f64 / (self.size().max(1)) as f64
    }

    /// Used and available bytes together.
    pub fn size(self) -> u64 {
        self.used.saturating_add(self.available)
    }
}

impl ScratchDir {
    /// Holds a directory, which must exist.
    ///
    /// # Errors
    /// If it does not exist, is no directory, or may not be entered.
    pub fn open(path: &Path, direct: DirectMode) -> Result<ScratchDir, DiskError> {
        // A destination is made where it is missing; a directory to measure must be there.
        let dir = Dir::open_named(path)?;
        let target = FsTarget::open(path, direct)?;
        Ok(ScratchDir { path: path.to_owned(), dir, target, direct })
    }

    /// Its path, as the operator named it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The device that it lies on (`st_dev`).
    pub fn dev(&self) -> u64 {
        self.dir.dev()
    }

    /// How full its file system is.
    ///
    /// # Errors
    /// The system's error.
    pub fn fullness(&self) -> Result<Fullness, DiskError> {
        let stat = fstatvfs(&self.dir).map_err(|error| self.failed("look at the free space of", error))?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(Fullness { used: bytes(stat.f_blocks.saturating_sub(stat.f_bfree)), available: bytes(stat.f_bavail) })
    }

    /// Makes a file that may take `len` bytes, and removes its name.
    ///
    /// # Errors
    /// If the directory may not be written to, or the system refuses for another reason.
    pub fn create(&self, len: u64) -> Result<ScratchFile, DiskError> {
        let random = || getrandom::u64().map(u64::to_le_bytes);
        let name = random().and_then(|tag| Ok(TempName::new(SessionTag(tag), random()?)));
        let name = name.map_err(|_| self.failed("make a name in", Errno::AGAIN))?;
        let shown = RelPath::new(SHOWN).map_err(|source| DiskError::Name { path: SHOWN.into(), source })?;
        let whole = |error: DiskError| error.beneath(self.path.as_os_str().as_encoded_bytes());
        let body = self.target.create_body(&shown, len, Zeros::Written, &name).map_err(whole)?;
        let target = Arc::new(TargetFile::new(&shown, len, vec![body]));
        let reader = self.reader(&name, len).map_err(whole);
        target.discard();
        Ok(ScratchFile { target, source: Arc::new(reader?) })
    }

    /// Opens a file of this directory for reading, as long as it will be.
    fn reader(&self, name: &TempName, len: u64) -> Result<SourceFile, DiskError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(&self.dir, &name.file_name()[..], flags, Mode::empty())
            .map_err(|error| DiskError::call("open", SHOWN, error))?;
        let (handle, stat) = Handle::adopt(fd, SHOWN.into(), self.direct, flags)?;
        Ok(SourceFile::new(handle, Identity { len, ..identity_of_statx(&stat) }))
    }

    fn failed(&self, call: &'static str, error: Errno) -> DiskError {
        DiskError::call(call, self.path.as_path(), error)
    }
}

impl ScratchFile {
    /// The face that is written.
    pub fn target(&self) -> &Arc<TargetFile> {
        &self.target
    }

    /// The face that is read.
    pub fn source(&self) -> &Arc<SourceFile> {
        &self.source
    }

    /// Makes everything that was written durable.
    ///
    /// # Errors
    /// The system's error.
    pub fn sync(&self) -> Result<(), DiskError> {
        for body in self.target.on_disk() {
            let handle = body.handle();
            handle.kernel().fdatasync(handle).map_err(|error| handle.error("sync", error))?;
        }
        Ok(())
    }

    /// Asks the system to drop the file's pages from its cache. Those of a file that is read past
    /// the cache are none.
    pub fn forget_pages(&self) {
        if let Some(handle) = self.source.handle().filter(|handle| handle.mode() == IoMode::Buffered) {
            // Advice: where it is not taken, reads come from memory, which their rate shows.
            let _ = fadvise(handle.as_fd(), 0, None::<NonZeroU64>, Advice::DontNeed);
        }
    }
}

/// Opens a regular file or a block device for reading, and for nothing else.
///
/// # Errors
/// [`DiskError::NotAFile`] if it is anything else; otherwise the system's error.
pub fn open_for_scan(path: &Path, direct: DirectMode) -> Result<SourceFile, DiskError> {
    let failed = |call| move |error: Errno| DiskError::call(call, path, error);
    // `NONBLOCK` guards the opening: a fifo would wait for its writer.
    let fd = openat(CWD, path, SCAN_FLAGS, Mode::empty()).map_err(failed("open"))?;
    let stat = fstat(&fd).map_err(failed("examine"))?;
    let len = match type_of(&stat) {
        FileType::RegularFile => identity_of(&stat).len,
        FileType::BlockDevice => seek(&fd, SeekFrom::End(0)).map_err(failed("measure the length of"))?,
        _ => return Err(DiskError::NotAFile { path: path.into() }),
    };
    let (handle, _) = Handle::adopt(fd, PathText::from(path), direct, SCAN_FLAGS)?;
    Ok(SourceFile::new(handle, Identity { len, ..identity_of(&stat) }))
}

/// The flags with which a scan opens what it reads.
const SCAN_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK).union(OFlags::NOCTTY);
/// The name of a scratch file in messages: its own is gone.
const SHOWN: &[u8] = b"scratch file";

#[cfg(test)]
mod tests {
    use rustix::fs::fcntl_getfl;

    use super::*;
    use crate::error::ErrorKind;

    fn names(dir: &Path) -> usize {
        std::fs::read_dir(dir).expect("a directory").count()
    }

    #[test]
    fn a_scratch_file_has_no_name_while_it_is_open() {
        let dir = tempfile::tempdir().expect("tempdir");
        let scratch = ScratchDir::open(dir.path(), DirectMode::Auto).expect("open");
        let file = scratch.create(1 << 20).expect("create");
        assert_eq!((names(dir.path()), file.source().len(), file.target().len()), (0, 1 << 20, 1 << 20));
        file.sync().expect("sync");
        drop(file);
        assert_eq!(names(dir.path()), 0);
    }

    #[test]
    fn a_missing_directory_is_refused_and_not_made() {
        let dir = tempfile::tempdir().expect("tempdir");
        let missing = dir.path().join("missing");
        let error = ScratchDir::open(&missing, DirectMode::Auto).map(|_| ()).expect_err("no directory");
        assert_eq!((error.kind(), missing.exists()), (ErrorKind::NotFound, false));
    }

    #[test]
    fn a_scan_opens_for_reading_alone_and_takes_no_directory() {
        let dir = tempfile::tempdir().expect("tempdir");
        let path = dir.path().join("file");
        std::fs::write(&path, b"content").expect("write");
        let file = open_for_scan(&path, DirectMode::Buffered).expect("open");
        let flags = fcntl_getfl(file.handle().expect("a file")).expect("flags");
        assert_eq!((flags & OFlags::RWMODE, file.len()), (OFlags::RDONLY, 7));
        let refused = open_for_scan(dir.path(), DirectMode::Auto).expect_err("no file");
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
    }
}
