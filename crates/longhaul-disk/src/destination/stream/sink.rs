//! The place to which a stream goes: standard output, or a device or fifo that was named.
//!
//! In: a descriptor or a path. Out: writes that wait for a slow reader, whether or not the
//! descriptor would, and a sync where bytes can be made durable. It knows no blocks and no files.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::error::{DiskError, PathText};

/// The place to which a stream goes.
#[derive(Debug)]
pub struct StreamSink {
    file: File,
    name: PathText,
}

impl StreamSink {
    /// The standard output of this process.
    ///
    /// # Errors
    /// The system's error.
    pub fn stdout() -> Result<StreamSink, DiskError> {
        let name = PathText::from(&b"standard output"[..]);
        let stdout = io::stdout().as_fd().try_clone_to_owned();
        let file = stdout.map_err(|error| DiskError::call("open", &name, error))?.into();
        Ok(StreamSink { file, name })
    }

    /// A character device, block device or fifo. A fifo is waited for until somebody reads it.
    ///
    /// # Errors
    /// [`DiskError::NotAFile`] if something else stands there; otherwise the system's error.
    pub fn device(path: &Path) -> Result<StreamSink, DiskError> {
        if !StreamSink::is_device(path) {
            return Err(DiskError::NotAFile { path: path.into() });
        }
        let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
            .map_err(|error| DiskError::call("open", path, error))?;
        Ok(StreamSink { file: file.into(), name: path.into() })
    }

    /// An open file of this name.
    #[cfg(test)]
    pub(super) fn of(file: File, name: &str) -> StreamSink {
        StreamSink { file, name: name.as_bytes().into() }
    }

    /// Whether a character device, block device or fifo stands at `path`. Links are followed.
    pub fn is_device(path: &Path) -> bool {
        let kind = rustix::fs::stat(path).map(|stat| FileType::from_raw_mode(stat.st_mode));
        matches!(kind, Ok(FileType::CharacterDevice | FileType::BlockDevice | FileType::Fifo))
    }

    /// Its name, for people.
    pub(super) fn name(&self) -> &PathText {
        &self.name
    }

    /// Makes what was written durable, where it goes to a file or a disk.
    pub(super) fn sync(&self) -> io::Result<()> {
        let kind = rustix::fs::fstat(&self.file).map(|stat| FileType::from_raw_mode(stat.st_mode))?;
        if matches!(kind, FileType::RegularFile | FileType::BlockDevice) { self.file.sync_data() } else { Ok(()) }
    }
}

impl Write for StreamSink {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        loop {
            match self.file.write(buf) {
                // Another program with the same terminal or pipe may have set it so.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], None) {
                        Ok(_) | Err(Errno::INTR) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                outcome => return outcome,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
