//! A complete file or link under its temporary name, waiting to be durable and published.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_core::{RelPath, TargetId};
use rustix::io::Errno;

use super::body::{Body, DiskBody};
use super::device::Mark;
use super::extras::sums::SumsToCatalogue;
use super::temp::Temp;
use super::{Replace, TargetFile};
use crate::bytes::WriteAt;
use crate::catalogue::FileMark;
use crate::error::DiskError;
use crate::load::LoadShare;
use crate::stat::Identity;
use crate::walk::Dir;

/// A file or link that is complete but not published. Dropped unpublished, a small file or link is
/// removed. A large file, which another session may continue, is removed only by
/// [`Staged::discard`].
#[derive(Debug)]
pub struct Staged {
    path: RelPath,
    content: StagedContent,
    /// The identity of the file, if further names of it may come.
    identity: Option<Identity>,
    /// Checksums that are to be catalogued once it has its name.
    sums: Option<Box<SumsToCatalogue>>,
}

#[derive(Debug)]
enum StagedContent {
    /// Nothing, for transfers without a disk.
    Void,
    /// A small file or link on a disk.
    Small {
        temp: Temp,
        content: Content,
        /// The moment from which on no sync of its file system may have failed.
        mark: Mark,
        /// The part of it that is still to be written.
        share: LoadShare,
    },
    /// A large file, still open.
    Large(Arc<TargetFile>),
    /// A small file that is no file of this host.
    Given(Arc<dyn WriteAt>),
}

/// The content of a small file or link that must be synced before the name may be published.
#[derive(Debug)]
pub(crate) enum Content {
    /// A file that is still open, as there are few of them.
    Open(HeldFd),
    /// A file, closed, as there are so many that the whole file system will be synced.
    Closed,
    /// A file that was synced by itself.
    Synced,
    /// A link: durable with its directory.
    Link,
    /// Another name of a durable file: durable with its directory.
    Name,
}

/// The part of a staged name on one target: one temporary name on a disk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StagedPart<'s> {
    /// The final name.
    pub(crate) path: &'s RelPath,
    /// The temporary one.
    pub(crate) temp: &'s Temp,
    /// The moment from which on no sync of its file system may have failed.
    pub(crate) mark: &'s Mark,
    /// The content that must be synced before the name may be published.
    pub(crate) unsynced: Unsynced<'s>,
}

/// The content of a part, as far as it must be synced.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unsynced<'s> {
    /// It is open.
    Open(BorrowedFd<'s>),
    /// It is closed.
    Closed,
    /// It was synced, or it is a link.
    Nothing,
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
    /// A small file of another kind than a file of this host, for a
    /// [`TargetTree`](crate::TargetTree) that a library user wrote.
    pub fn of(path: &RelPath, bytes: Arc<dyn WriteAt>) -> Staged {
        Staged::with(path.clone(), StagedContent::Given(bytes))
    }

    /// A small file or link that was begun at `mark`.
    pub(crate) fn small(path: &RelPath, temp: Temp, content: Content, (mark, share): (Mark, LoadShare)) -> Staged {
        Staged::with(path.clone(), StagedContent::Small { temp, content, mark, share })
    }

    /// A large file, all of whose bodies are sealed.
    pub fn large(file: Arc<TargetFile>) -> Staged {
        Staged::with(file.path().clone(), StagedContent::Large(file))
    }

    pub(crate) fn void(path: &RelPath) -> Staged {
        Staged::with(path.clone(), StagedContent::Void)
    }

    fn with(path: RelPath, content: StagedContent) -> Staged {
        Staged { path, content, identity: None, sums: None }
    }

    /// The same with what it is known by, and its checksums that are to be catalogued.
    #[must_use]
    pub(crate) fn known_as(self, identity: Option<Identity>, sums: Option<SumsToCatalogue>) -> Staged {
        Staged { identity, sums: sums.map(Box::new), ..self }
    }

    /// Checksums that are to be catalogued once it has its name. `None`: there are none, or they
    /// are kept with the file.
    pub(crate) fn sums_to_catalogue(&self) -> Option<&SumsToCatalogue> {
        self.sums.as_deref()
    }

    /// The identity of the file, as it was when it was complete. `None` unless its metadata says
    /// that it has several names.
    pub fn identity(&self) -> Option<Identity> {
        self.identity
    }

    /// The target on which it lies, or the first of its bodies does.
    pub fn home(&self) -> TargetId {
        match &self.content {
            StagedContent::Small { share, .. } => share.target(),
            StagedContent::Large(file) => file.home(),
            StagedContent::Void | StagedContent::Given(_) => TargetId::FIRST,
        }
    }

    /// The targets on which it or a part of it lies.
    pub(crate) fn targets(&self) -> BTreeSet<TargetId> {
        let striped = match &self.content {
            StagedContent::Large(file) => file.striped(),
            _ => None,
        };
        striped.into_iter().flat_map(|striped| striped.targets()).chain([self.home()]).collect()
    }

    /// Whether it is a striped file.
    pub(crate) fn is_striped(&self) -> bool {
        matches!(&self.content, StagedContent::Large(file) if file.striped().is_some())
    }

    /// Its final name.
    pub fn path(&self) -> &RelPath {
        &self.path
    }

    /// The length of a large file. `None` of others.
    pub fn length_of_large(&self) -> Option<u64> {
        match &self.content {
            StagedContent::Large(file) => Some(file.len()),
            StagedContent::Void | StagedContent::Small { .. } | StagedContent::Given(_) => None,
        }
    }

    /// Its bytes on each target, in order, as far as they are no files of this host: the bodies of
    /// a large file, or those that [`Staged::of`] was given.
    pub fn bytes(&self) -> impl Iterator<Item = &Arc<dyn WriteAt>> {
        let (small, large) = match &self.content {
            StagedContent::Given(bytes) => (Some(bytes), None),
            StagedContent::Large(file) => (None, Some(file)),
            StagedContent::Void | StagedContent::Small { .. } => (None, None),
        };
        small.into_iter().chain(large.into_iter().flat_map(|file| file.bodies().iter().filter_map(Body::bytes)))
    }

    /// Removes it now, if it was not published.
    pub fn discard(&self) {
        match &self.content {
            StagedContent::Void => {}
            StagedContent::Small { temp, .. } => _ = temp.discard(),
            StagedContent::Large(file) => file.discard(),
            StagedContent::Given(bytes) => bytes.discard(),
        }
    }

    /// Its parts on disks, the first of which has the name by which it is known.
    pub(crate) fn parts(&self) -> impl DoubleEndedIterator<Item = StagedPart<'_>> {
        let path = &self.path;
        let (small, large) = match &self.content {
            StagedContent::Small { temp, content, mark, .. } => {
                (Some(StagedPart { path, temp, mark, unsynced: content.unsynced() }), None)
            }
            StagedContent::Large(file) => (None, Some(file)),
            StagedContent::Void | StagedContent::Given(_) => (None, None),
        };
        let large = large.into_iter().flat_map(|file| file.on_disk());
        small.into_iter().chain(large.map(move |body| StagedPart::of_body(path, body)))
    }

    /// The directory in which it has the name that it is known by, and that name now.
    pub(crate) fn stands_at(&self) -> Option<(&Arc<Dir>, &[u8])> {
        let temp = self.parts().next()?.temp;
        let name = if temp.stands() { temp.name() } else { self.path.name().unwrap_or_default() };
        Some((temp.dir(), name))
    }

    /// Whether the result of its sync may still be believed.
    pub(crate) fn is_believed(&self) -> bool {
        match &self.content {
            // Its own sync went well, or it would not be staged; its name waits for that of its
            // directory.
            StagedContent::Small { content: Content::Synced, .. } if !self.is_published() => true,
            _ => self.parts().all(|part| part.mark.holds()),
        }
    }

    /// Whether it has its final name.
    pub(crate) fn is_published(&self) -> bool {
        self.parts().next().is_some_and(|part| !part.temp.stands())
    }

    /// Moves it to its final name. Of several parts the first one, by which it is known, comes
    /// last: where its name stands, all others do.
    pub(crate) fn publish(&self, replace: Replace) -> Result<(), DiskError> {
        let Some(name) = self.path.name() else { return Ok(()) };
        if !self.is_believed() {
            return Err(DiskError::Doubted { path: (&self.path).into() });
        }
        let Some(sums) = &self.sums else { return self.rename(name, replace) };
        let is = || self.stands_at().and_then(|(dir, name)| FileMark::at(dir, name).ok());
        sums.following(is, || self.rename(name, replace))
    }

    fn rename(&self, name: &[u8], replace: Replace) -> Result<(), DiskError> {
        self.parts().rev().try_for_each(|part| part.publish(name, replace))?;
        if let StagedContent::Small { temp, content: Content::Name, .. } = &self.content {
            // A rename to a name of the same file does nothing, and leaves both.
            let _ = temp.dir().kernel().unlinkat(temp.dir(), temp.name());
        }
        Ok(())
    }

    /// Makes its bytes durable, as far as they are no files of this host.
    pub(crate) fn sync_given(&self) -> Result<(), DiskError> {
        self.bytes().try_for_each(|bytes| bytes.sync()).map_err(|error| DiskError::call("sync", &self.path, error))
    }
}

impl<'s> StagedPart<'s> {
    /// A body of the large file that will be `path`.
    fn of_body(path: &'s RelPath, body: &'s DiskBody) -> StagedPart<'s> {
        StagedPart { path, temp: body.temp(), mark: body.mark(), unsynced: Unsynced::Open(body.as_fd()) }
    }

    fn publish(&self, name: &[u8], replace: Replace) -> Result<(), DiskError> {
        let dir = self.temp.dir();
        let outcome = match replace {
            Replace::Allowed => dir.kernel().renameat(dir, self.temp.name(), name, Replace::Allowed),
            Replace::Never => rename_to_free(self.temp, name),
        };
        match outcome {
            Ok(()) => {
                self.temp.taken();
                Ok(())
            }
            Err(Errno::ISDIR | Errno::NOTEMPTY) => {
                Err(DiskError::Exists { path: self.path.into(), what: "a directory is not replaced" })
            }
            Err(Errno::EXIST) => Err(DiskError::Appeared { path: self.path.into() }),
            Err(Errno::OPNOTSUPP) if replace == Replace::Never => {
                Err(DiskError::OnlyReplaces { path: self.path.into() })
            }
            Err(error) => Err(DiskError::call("publish", self.path, error)),
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
    fn unsynced(&self) -> Unsynced<'_> {
        match self {
            Content::Open(held) => Unsynced::Open(held.fd.as_fd()),
            Content::Closed => Unsynced::Closed,
            Content::Synced | Content::Link | Content::Name => Unsynced::Nothing,
        }
    }
}
