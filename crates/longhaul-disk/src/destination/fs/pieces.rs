//! Parts of striped files in a directory: the stripe file under a temporary name of its own, and
//! the bodies in the directory of bodies of a target.
//!
//! In: orders of the set's destination ([`SpreadTarget`](crate::SpreadTarget)). Out: open files,
//! and what of them is durable. It knows no chunks and no records.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use longhaul_core::{Candidate, FileNode, Meta, Preserve, RelPath, TargetId, TempName};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, pread};

use super::super::Room;
use super::super::body::{Began, Body, DiskBody, Zeros};
use super::super::device::Mark;
use super::super::policy::TreePolicy;
use super::super::reopen::{Attempt, PRIVATE, claim, reopen};
use super::super::temp::Temp;
use super::FsTarget;
use super::home::Home;
use crate::direct::{DirectMode, Handle};
use crate::error::{DiskError, ErrorKind};
use crate::load::TargetLoad;
use crate::shelf::{Shelf, remove_idle};
use crate::stat::node_of_statx;
use crate::stripe::{Header, Stripes};
use crate::walk::Dir;

/// A part of a striped file that an earlier session left, open again.
pub(crate) struct ReopenedPart {
    /// It.
    pub(crate) body: Body,
    /// Its identity.
    pub(crate) node: FileNode,
    /// Its length, in bytes.
    pub(crate) len: u64,
    /// Bytes of the blocks that it has.
    pub(crate) block_bytes: u64,
}

impl FsTarget {
    /// The destination of bodies in `dir`, on the target with this load.
    pub(crate) fn store(dir: Arc<Dir>, direct: DirectMode, load: &Arc<TargetLoad>) -> Result<FsTarget, DiskError> {
        let shelf = Shelf::of(&dir);
        let home = (Home::Named(load.dir().to_owned()), TreePolicy::default());
        FsTarget::new((shelf, Arc::clone(load)), dir, direct, home)
    }

    /// The target as one that may take some bytes, under this number, with this room.
    pub(crate) fn candidate(&self, target: TargetId, room: Option<Room>) -> Candidate {
        Candidate {
            target,
            assigned_bytes: self.load.assigned_bytes(),
            rate: self.load.rate(),
            free_bytes: room.map(|room| room.bytes),
            is_firm: room.is_some_and(|room| room.is_firm),
            reserve_bytes: RESERVE_BYTES,
        }
    }

    /// Creates the stripe file of the file that will be `path`, which begins with `header`.
    pub(crate) fn create_stripe(&self, path: &RelPath, temp: &TempName, header: &[u8]) -> Result<Body, DiskError> {
        let (dir, device) = self.parent(path)?;
        let mark = Mark::now(&device);
        let body = self.create_in(&dir, path, temp, (DirectMode::Buffered, mark), (u64::MAX, Zeros::Written))?;
        if let Some(disk) = body.on_disk() {
            let written = self.write_at(disk, header, 0);
            written.map_err(|error| disk.handle().error("write", error)).inspect_err(|_| body.discard())?;
        }
        Ok(body)
    }

    /// Creates a body of the file that will be `path`, as long as it comes to be, in this directory
    /// of bodies.
    pub(crate) fn create_piece(&self, path: &RelPath, temp: &TempName, zeros: Zeros) -> Result<Body, DiskError> {
        let root = Arc::clone(self.walk.root());
        let mark = Mark::now(&self.syncer.watch(&root, path)?);
        self.create_in(&root, path, temp, (self.direct, mark), (u64::MAX, zeros))
    }

    fn create_in(
        &self,
        dir: &Arc<Dir>,
        path: &RelPath,
        temp: &TempName,
        (direct, mark): (DirectMode, Mark),
        (len, zeros): (u64, Zeros),
    ) -> Result<Body, DiskError> {
        let (temp, fd) = Temp::create_named(dir, temp, PRIVATE)
            .map_err(|error| DiskError::call("create a temporary file for", path, error))?;
        claim(&fd);
        mark.device().made(&fd, b"");
        let (handle, stat) =
            Handle::adopt(fd, path.into(), direct, OFlags::empty()).inspect_err(|_| _ = temp.discard())?;
        let opened = (handle.written_by(self.kernel()), node_of_statx(&stat));
        Ok(unreserved(Body::disk((len, zeros), opened, temp, (Began::Empty, mark, self.load.begin(0)))))
    }

    /// Opens a stripe file that [`FsTarget::create_stripe`] made earlier, as it is.
    pub(crate) fn reopen_stripe(&self, path: &RelPath, temp: &TempName) -> Result<Option<ReopenedPart>, DiskError> {
        let dir = match self.walk.parent(path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            outcome => outcome?.0,
        };
        self.reopen_in(&dir, path, temp, DirectMode::Buffered)
    }

    /// Opens a body that [`FsTarget::create_piece`] made earlier, as it is.
    pub(crate) fn reopen_piece(&self, path: &RelPath, temp: &TempName) -> Result<Option<ReopenedPart>, DiskError> {
        self.reopen_in(&Arc::clone(self.walk.root()), path, temp, self.direct)
    }

    /// Removes a body that no process is writing, if it stands.
    pub(crate) fn remove_piece(&self, path: &RelPath, temp: &TempName) -> Result<(), DiskError> {
        let removed = remove_idle(self.walk.root(), self.kernel(), temp);
        removed.map(drop).map_err(|error| DiskError::call("remove a body of", path, error))
    }

    fn reopen_in(
        &self,
        dir: &Arc<Dir>,
        path: &RelPath,
        temp: &TempName,
        direct: DirectMode,
    ) -> Result<Option<ReopenedPart>, DiskError> {
        let mark = Mark::now(&self.syncer.watch(dir, path)?);
        let fd = match reopen(dir, temp) {
            Ok(Attempt::Usable(fd)) => fd,
            Ok(Attempt::Unusable) => return Ok(None),
            Ok(Attempt::InUse) => return Err(DiskError::InUse { path: path.into() }),
            Err(error) => return Err(DiskError::call("open the temporary file of", path, error)),
        };
        let (handle, stat) = Handle::adopt(fd, path.into(), direct, OFlags::NONBLOCK)?;
        let node = node_of_statx(&stat);
        let block_bytes = match mark.device().counts_blocks() {
            true => stat.stx_blocks.saturating_mul(512),
            false => u64::MAX,
        };
        let opened = (handle.written_by(self.kernel()), node);
        let share = (Began::Written, mark, self.load.begin(0));
        let body = unreserved(Body::disk((u64::MAX, Zeros::Written), opened, Temp::outliving(dir, temp), share));
        Ok(Some(ReopenedPart { body, node, len: stat.stx_size, block_bytes }))
    }

    /// Opens the stripe file under a temporary name for reading.
    pub(crate) fn read_stripe(&self, path: &RelPath, temp: &TempName) -> Result<OwnedFd, DiskError> {
        let (dir, _) = self.walk.parent(path)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat(&dir, &temp.file_name()[..], flags, Mode::empty());
        fd.map_err(|error| DiskError::call("open the temporary file of", path, error))
    }

    /// The header of the temporary of the file at `path`, if it is that of a striped file.
    pub(crate) fn draft_at(
        &self,
        path: &RelPath,
        temp: &TempName,
        stripes: &Stripes,
    ) -> Result<Option<Header>, DiskError> {
        let dir = match self.walk.parent(path) {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
            outcome => outcome?.0,
        };
        stripes.draft_at(&dir, temp).map_err(|error| DiskError::call("read the temporary file of", path, error))
    }

    /// Writes all bytes to an offset of a part that is written through the page cache.
    pub(crate) fn write_at(&self, fd: impl AsFd, bytes: &[u8], offset: u64) -> Result<(), Errno> {
        let mut done = 0;
        while done < bytes.len() {
            match self.kernel().pwrite(&fd, &bytes[done..], offset + done as u64) {
                Ok(0) => return Err(Errno::NOSPC),
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Writes the first `len` bytes of a stripe file again as they were read from `fd`: a sync of
    /// an earlier session may have failed, and then no later one makes them durable.
    pub(crate) fn reassert(
        &self,
        path: &RelPath,
        (disk, fd): (&DiskBody, &OwnedFd),
        len: u64,
    ) -> Result<(), DiskError> {
        let mut piece = vec![0; REASSERTED_BYTES];
        let mut offset = 0;
        while offset < len {
            let most = piece.len().min(usize::try_from(len - offset).unwrap_or(usize::MAX));
            let written = match pread(fd, &mut piece[..most], offset) {
                // It is shorter than it was a moment ago.
                Ok(0) => Err(Errno::IO),
                Ok(read) => self.write_at(disk, &piece[..read], offset).map(|()| read),
                Err(Errno::INTR) => Ok(0),
                Err(error) => Err(error),
            };
            offset +=
                written.map_err(|error| DiskError::call("write again the temporary file of", path, error))? as u64;
        }
        Ok(())
    }

    /// Syncs what was written to a body, and its temporary name if that is not durable yet.
    pub(crate) fn sync_body(&self, path: &RelPath, body: &DiskBody) -> Result<(), DiskError> {
        self.syncer.data(path, body)?;
        // A sync that nobody waited for may have failed: the system tells that once, and a later
        // one proves nothing.
        if !body.mark().holds() {
            return Err(DiskError::Doubted { path: path.into() });
        }
        // Bytes can be found again only if the name is durable too.
        if !body.is_named() {
            self.syncer.names(&self.walk, path, body.temp().dir())?;
            body.named();
        }
        Ok(())
    }

    /// Cuts a body at `end`, appends its footer, and makes all of it durable.
    pub(crate) fn end_body(
        &self,
        path: &RelPath,
        body: &DiskBody,
        (end, footer): (u64, &[u8]),
    ) -> Result<(), DiskError> {
        let failed = |call, error| DiskError::call(call, path, error);
        let (dir, name) = (body.temp().dir(), body.temp().name());
        // The footer has a length of its own, which direct I/O would not take.
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat(dir, name, flags, Mode::empty()).map_err(|error| failed("open a body of", error))?;
        body.handle().kernel().ftruncate(body, end).map_err(|error| failed("set the length of a body of", error))?;
        match self.write_at(&fd, footer, end) {
            // It is of use only where the stripe file is lost: the file is whole without it.
            Err(error @ (Errno::NOSPC | Errno::DQUOT)) => {
                tracing::warn!(target: "longhaul::disk", path = %path.escaped(), %error, "a body has no footer");
                let cut = body.handle().kernel().ftruncate(body, end);
                cut.map_err(|error| failed("set the length of a body of", error))?;
            }
            written => written.map_err(|error| failed("write a body of", error))?,
        }
        self.syncer.file(body, path, body.mark())?;
        if !body.is_named() {
            self.syncer.names(&self.walk, path, dir)?;
            body.named();
        }
        let confirmed = body.mark().device().confirmed(Ok(()));
        confirmed.map_err(|error| failed("sync", error))?;
        if body.mark().holds() { Ok(()) } else { Err(DiskError::Doubted { path: path.into() }) }
    }

    /// Gives a stripe file, which will be `path`, its length, mode, extras and times.
    pub(crate) fn seal_stripe(
        &self,
        (body, path): (&DiskBody, &RelPath),
        len: u64,
        meta: &Meta,
        preserve: Preserve,
    ) -> Result<(), DiskError> {
        let cut = self.kernel().ftruncate(body, len);
        cut.map_err(|error| body.handle().error("set the length of", error))?;
        self.rules.extras.spare_striped(path, preserve);
        let preserve = Preserve { owner: false, ..preserve };
        let set = self.set_meta((body, path), Some(self.rules.modes.file(meta, preserve)), meta, preserve);
        // The catalogue knows a file by its length, which a stripe file has not.
        if let Some(sums) = set.map_err(|error| body.handle().error("set the metadata of", error))? {
            self.rules.extras.lose_sums(path, &sums);
        }
        body.mark().device().made(body, b"");
        Ok(())
    }
}

/// A body whose blocks are not reserved ahead: how much of a file it will hold is not known.
fn unreserved(body: Body) -> Body {
    body.on_disk().into_iter().for_each(DiskBody::stop_reserving);
    body
}

/// Bytes that are read and written again at a time.
const REASSERTED_BYTES: usize = 1 << 20;
/// Bytes that stay free on a target as long as another one has more: a file system that is all but
/// full is slow, and has no room for what its other users write.
const RESERVE_BYTES: u64 = 256 << 20;
