//! Bodies of files in a file system: made under a temporary name, or opened once more.
//!
//! In: names and lengths, and what a journal says of a body. Out: [`Body`]s that are ready for
//! writes. A destination over one directory makes one for each file; one over several asks each of
//! its directories for its own. It knows no files and no chunks.

use std::os::fd::OwnedFd;

use longhaul_core::limits::STREAM_BYTES_MAX;
use longhaul_core::{RelPath, TempName};
use rustix::fs::{OFlags, Statx};

use super::super::Journalled;
use super::super::body::{Began, Body, Zeros};
use super::super::device::Mark;
use super::super::reopen::{Attempt, PRIVATE, claim, difference, reopen};
use super::super::temp::Temp;
use super::FsTarget;
use crate::direct::Handle;
use crate::error::{DiskError, ErrorKind};
use crate::stat::node_of_statx;

/// A body that an earlier session left, open again.
#[derive(Debug)]
pub struct ReopenedBody {
    /// The body.
    pub body: Body,
    /// The reason why it may not hold the bytes that its journal says. `None`: it is the file that
    /// was written, as long as it was, with as many blocks as its durable bytes need.
    pub differs: Option<&'static str>,
}

impl FsTarget {
    /// Creates a body of `len` bytes for the file that will be `path` under a temporary name of its
    /// own: the only body of a file, or one of several on several destinations.
    ///
    /// # Errors
    /// The system's error; nothing is left of it then.
    pub fn create_body(&self, path: &RelPath, len: u64, zeros: Zeros, temp: &TempName) -> Result<Body, DiskError> {
        let (dir, device) = self.parent(path)?;
        let mark = Mark::now(&device);
        let (temp, fd) = Temp::create_named(&dir, temp, PRIVATE)
            .map_err(|error| DiskError::call("create a temporary file for", path, error))?;
        claim(&fd);
        device.made(&fd, b"");
        // A failure here leaves nothing: the file is of no more use.
        let (handle, stat) = self.begin(path, len, fd, OFlags::empty()).inspect_err(|_| _ = temp.discard())?;
        let opened = (handle, node_of_statx(&stat));
        Ok(Body::disk(
            (len, zeros),
            opened,
            temp,
            (Began::Empty, mark, self.load.begin(if zeros == Zeros::LeftOut { 0 } else { known(len) })),
        ))
    }

    /// Opens a body that [`FsTarget::create_body`] made earlier, and compares it with what is
    /// `journalled` of it before its length is set. `None` if no such file stands, or if it is not
    /// ours alone.
    ///
    /// # Errors
    /// [`DiskError::InUse`] if it is open for writing still, here or elsewhere; otherwise the
    /// system's error.
    pub fn reopen_body(
        &self,
        path: &RelPath,
        len: u64,
        zeros: Zeros,
        temp: &TempName,
        journalled: &Journalled,
    ) -> Result<Option<ReopenedBody>, DiskError> {
        let (dir, device) = match self.parent(path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            outcome => outcome?,
        };
        let mark = Mark::now(&device);
        let fd = match reopen(&dir, temp) {
            Ok(Attempt::Usable(fd)) => fd,
            Ok(Attempt::Unusable) => return Ok(None),
            Ok(Attempt::InUse) => return Err(DiskError::InUse { path: path.into() }),
            Err(error) => return Err(DiskError::call("open the temporary file of", path, error)),
        };
        let (handle, stat) = self.begin(path, len, fd, OFlags::NONBLOCK)?;
        let may_have_holes = zeros == Zeros::LeftOut || !device.counts_blocks();
        let differs = difference(&stat, len, may_have_holes, journalled);
        let (temp, opened) = (Temp::outliving(&dir, temp), (handle, node_of_statx(&stat)));
        let share = self.load.begin(known(len).saturating_sub(journalled.bytes));
        let body = Body::disk((len, zeros), opened, temp, (Began::Written, mark, share));
        Ok(Some(ReopenedBody { body, differs }))
    }

    /// Prepares an open temporary for chunk writes. Returns its handle, and its `statx` from
    /// before.
    fn begin(&self, path: &RelPath, len: u64, fd: OwnedFd, flags: OFlags) -> Result<(Handle, Statx), DiskError> {
        let (handle, stat) = Handle::adopt(fd, path.into(), self.direct, flags)?;
        // Writes within the file's length may run side by side; each that would extend it would
        // wait for the others.
        let padded = len.checked_next_multiple_of(handle.align() as u64).unwrap_or(len);
        let handle = handle.written_by(self.kernel());
        // A stream has no length yet: its writes extend it, and what it is cut to is known when it
        // is sealed.
        if len == STREAM_BYTES_MAX {
            return Ok((handle, stat));
        }
        self.kernel().ftruncate(&handle, padded).map_err(|error| handle.error("set the length of", error))?;
        Ok((handle, stat))
    }
}

/// The bytes of a body that are known to come: none of a stream.
fn known(len: u64) -> u64 {
    if len == STREAM_BYTES_MAX { 0 } else { len }
}
