//! The bytes of files that are no files of this host: the seam for sources and targets of another
//! kind, be it a connection, an object store or a test's memory.
//!
//! [`SourceFile::of`](crate::SourceFile::of) and [`Body::of`](crate::Body::of) take them;
//! [`ChunkIo`](crate::ChunkIo) calls them from threads of their own, so that they may block. Knows
//! nothing of trees.

use std::any::Any;
use std::fmt;
use std::io;

use longhaul_core::{Meta, Preserve};

/// The bytes of a source file, readable at any offset by several threads at a time.
pub trait ReadAt: fmt::Debug + Send + Sync + 'static {
    /// Reads up to `buf.len()` bytes at `offset` into the start of `buf`. Returns their number; 0
    /// means that the file ends there.
    ///
    /// # Errors
    /// An error of any kind; [`io::ErrorKind::Interrupted`] has the call made again.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Whether it is still the version that was opened. Default: yes.
    ///
    /// # Errors
    /// An error if that cannot be told.
    fn unchanged(&self) -> io::Result<bool> {
        Ok(true)
    }

    /// Whether any of `len` bytes at `offset` is not in a hole. Default: yes.
    ///
    /// # Errors
    /// An error if that cannot be told.
    fn data_in(&self, offset: u64, len: u64) -> io::Result<bool> {
        let _ = (offset, len);
        Ok(true)
    }
}

/// The bytes of a file that is being received, writable at any offset by several threads at a time.
/// Dropped unpublished, they are gone.
pub trait WriteAt: Any + fmt::Debug + Send + Sync {
    /// Writes bytes of `buf`, from its start on, to `offset`. Returns their number.
    ///
    /// # Errors
    /// An error of any kind; [`io::ErrorKind::Interrupted`] has the call made again.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize>;

    /// Makes every write that was complete before the call durable.
    ///
    /// # Errors
    /// An error: then nothing since the last good sync is believed.
    fn sync(&self) -> io::Result<()>;

    /// Reads up to `buf.len()` bytes at `offset` back from where they are kept. Returns their
    /// number; 0 means that they end there. Default: refused.
    ///
    /// # Errors
    /// An error of any kind; [`io::ErrorKind::Interrupted`] has the call made again.
    fn read_back(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let _ = (buf, offset);
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    /// Ends the writes: sets the metadata of the whole file, where it has any. Default: nothing.
    ///
    /// # Errors
    /// An error of any kind.
    fn seal(&self, meta: &Meta, preserve: Preserve) -> io::Result<()> {
        let _ = (meta, preserve);
        Ok(())
    }

    /// Gives the bytes up. Default: nothing, for bytes that go when they are dropped.
    fn discard(&self) {}
}
