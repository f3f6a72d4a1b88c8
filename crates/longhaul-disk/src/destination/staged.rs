//! A complete file or link under its temporary name, waiting to be durable and published.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_core::RelPath;
use rustix::io::Errno;

use super::device::Mark;
use super::temp::Temp;
use super::{Replace, TargetFile};
use crate::error::DiskError;
use crate::walk::Dir;

/// A file or link that is complete but not published. Dropped unpublished, a small file or link is
/// removed. A large file, which another session may continue, is removed only by
/// [`Staged::discard`].
#[derive(Debug)]
pub struct Staged {
    path: RelPath,
    /// `None`: no file at all, for transfers without a disk.
    body: Option<StagedBody>,
}

#[derive(Debug)]
struct StagedBody {
    temp: Arc<Temp>,
    content: Content,
    /// The moment from which on no sync may have failed. `None` for a large file, which has its
    /// own.
    mark: Option<Mark>,
}

/// The content that must be synced before the name may be published.
#[derive(Debug)]
pub(crate) enum Content {
    /// A large file, still open.
    Large(Arc<TargetFile>),
    /// A small file that is still open, as there are few of them.
    Small(HeldFd),
    /// A small file, closed, as there are so many that the whole file system will be synced.
    Closed,
    /// A small file that was synced by itself.
    Synced,
    /// A link: durable with its directory.
    Link,
}

/// A descriptor that is counted while it is held.
#[derive(Debug)]
pub(crate) struct HeldFd {
    fd: OwnedFd,
    open_staged: Arc<AtomicUsize>,
}

impl HeldFd {
    /// Holds `fd` unless `max` are held already.
    pub(crate) fn hold(fd: OwnedFd, held: &Arc<AtomicUsize>, max: usize) -> Option<HeldFd> {
        if held.fetch_add(1, Ordering::Relaxed) >= max {
            held.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(HeldFd { fd, open_staged: Arc::clone(held) })
    }
}

impl Drop for HeldFd {
    fn drop(&mut self) {
        self.open_staged.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Staged {
    /// A small file or link that was begun at `mark`.
    pub(crate) fn small(path: &RelPath, temp: Temp, content: Content, mark: Mark) -> Staged {
        Staged { path: path.clone(), body: Some(StagedBody { temp: Arc::new(temp), content, mark: Some(mark) }) }
    }

    /// A large file that is sealed.
    pub(crate) fn large(file: Arc<TargetFile>, temp: Arc<Temp>) -> Staged {
        let path = file.path().clone();
        Staged { path, body: Some(StagedBody { temp, content: Content::Large(file), mark: None }) }
    }

    pub(crate) fn void(path: &RelPath) -> Staged {
        Staged { path: path.clone(), body: None }
    }

    /// Its final name.
    pub fn path(&self) -> &RelPath {
        &self.path
    }

    /// Removes it now, if it was not published.
    pub fn discard(&self) {
        if let Some(body) = &self.body {
            body.temp.discard();
        }
    }

    /// The directory it is in.
    pub(crate) fn dir(&self) -> Option<&Arc<Dir>> {
        self.body.as_ref().map(|body| body.temp.dir())
    }

    /// The name that it has in its directory now.
    pub(crate) fn stands_under(&self) -> &[u8] {
        match &self.body {
            Some(body) if body.temp.stands() => body.temp.name(),
            _ => self.path.name().unwrap_or_default(),
        }
    }

    /// Its content, as far as it must be synced.
    pub(crate) fn content(&self) -> Option<&Content> {
        self.body.as_ref().map(|body| &body.content)
    }

    /// The moment from which on no sync of its file system may have failed.
    pub(crate) fn mark(&self) -> Option<&Mark> {
        let body = self.body.as_ref()?;
        match &body.content {
            Content::Large(file) => file.body().map(|body| &body.mark),
            _ => body.mark.as_ref(),
        }
    }

    /// Whether the result of its sync may still be believed.
    pub(crate) fn is_believed(&self) -> bool {
        match &self.body {
            // Its own sync went well, or it would not be staged; its name waits for that of its
            // directory.
            Some(StagedBody { content: Content::Synced, .. }) if !self.is_published() => true,
            _ => self.mark().is_none_or(Mark::holds),
        }
    }

    /// Whether it has its final name.
    pub(crate) fn is_published(&self) -> bool {
        self.body.as_ref().is_some_and(|body| !body.temp.stands())
    }

    /// Moves it to its final name.
    pub(crate) fn publish(&self, replace: Replace) -> Result<(), DiskError> {
        let (Some(body), Some(name)) = (&self.body, self.path.name()) else { return Ok(()) };
        if !self.is_believed() {
            return Err(DiskError::Doubted { path: (&self.path).into() });
        }
        let dir = body.temp.dir();
        let outcome = match replace {
            Replace::Allowed => dir.kernel().renameat(dir, body.temp.name(), name, Replace::Allowed),
            Replace::Never => rename_to_free(&body.temp, name),
        };
        match outcome {
            Ok(()) => {
                body.temp.taken();
                Ok(())
            }
            Err(Errno::ISDIR | Errno::NOTEMPTY) => {
                Err(DiskError::Exists { path: (&self.path).into(), what: "a directory is not replaced" })
            }
            Err(Errno::EXIST) => Err(DiskError::Appeared { path: (&self.path).into() }),
            Err(Errno::OPNOTSUPP) if replace == Replace::Never => {
                Err(DiskError::OnlyReplaces { path: (&self.path).into() })
            }
            Err(error) => Err(DiskError::call("publish", &self.path, error)),
        }
    }
}

/// Renames to a name where nothing may be replaced; by link and unlink on file systems that have no
/// such rename. `OPNOTSUPP` where neither works.
fn rename_to_free(temp: &Temp, name: &[u8]) -> Result<(), Errno> {
    let dir = temp.dir();
    let kernel = dir.kernel();
    match kernel.renameat(dir, temp.name(), name, Replace::Never) {
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
            // A file system without links says so in one of these ways; here it is no matter of
            // permissions.
            kernel.linkat(dir, temp.name(), name).map_err(|error| match error {
                Errno::PERM | Errno::NOSYS | Errno::INVAL => Errno::OPNOTSUPP,
                error => error,
            })?;
            kernel.unlinkat(dir, temp.name())
        }
        outcome => outcome,
    }
}

impl Content {
    /// The descriptor to sync. `None` if there is nothing to sync or the file is closed.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Content::Large(file) => file.body().map(|body| body.handle.as_fd()),
            Content::Small(held) => Some(held.fd.as_fd()),
            Content::Closed | Content::Synced | Content::Link => None,
        }
    }
}
