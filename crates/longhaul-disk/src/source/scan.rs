//! Walks one source depth first, streaming: a stack of open directories, each with one batch of
//! names. On a rotating disk the names of a batch are visited in the order of their inodes.
//!
//! Gives every find to the sink at once. Resolves nothing by itself: each name is looked up in the
//! open directory that listed it, and never followed.

use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use longhaul_core::limits::RESERVED_PREFIX;
use longhaul_core::{Entry, EntryKind, PathError, RelPath, TempName};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat, openat, readlinkat, statat};
use rustix::io::Errno;

use crate::error::DiskError;
use crate::source::{ScanRequest, Scanned, SourceRef};
use crate::stat::{dev_of, identity_of, inode_of, is_sparse, len_of, meta_of, place_of, special_name, type_of};
use crate::sysfs::{Media, Medium};
use crate::walk::Walk;

/// One source being scanned.
pub(crate) struct Scan<'s> {
    source: u32,
    pub(crate) walk: &'s Walk,
    pub(crate) what: &'s ScanRequest<'s>,
    sink: &'s mut dyn FnMut(Scanned) -> ControlFlow<()>,
    stack: Vec<Level>,
    media: &'s Media,
    scratch: Box<[MaybeUninit<u8>]>,
}

/// A directory being read.
struct Level {
    fd: Rc<OwnedFd>,
    path: RelPath,
    stat: Stat,
    /// Names listed and not yet visited, each followed by a NUL.
    names: Vec<u8>,
    next: usize,
    ended: bool,
    order: NameOrder,
}

/// The order in which the names of a batch are visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameOrder {
    /// As the system lists them.
    Listed,
    /// By inode number: file systems for rotating disks give neighbouring numbers to files that lie
    /// close to each other, and list names in the order of a hash.
    Inode,
}

/// The next name in a directory.
enum Next {
    Child(RelPath),
    Reserved(Vec<u8>),
    Unnameable(DiskError),
    Unreadable(Errno),
    End,
}

impl<'s> Scan<'s> {
    pub(crate) fn new(
        source: u32,
        (walk, media): (&'s Walk, &'s Media),
        what: &'s ScanRequest<'s>,
        sink: &'s mut dyn FnMut(Scanned) -> ControlFlow<()>,
    ) -> Scan<'s> {
        Scan { source, walk, what, sink, stack: Vec::new(), media, scratch: Box::new_uninit_slice(SCRATCH_BYTES) }
    }

    /// Scans `top`: one name in the walk's root, or (as the root path) its whole content.
    pub(crate) fn run(&mut self, top: &RelPath) -> ControlFlow<()> {
        match &self.what.files_from {
            Some(names) => self.selected(top, names),
            None => self.tree(top),
        }
    }

    /// Scans `path` and all beneath it.
    pub(crate) fn tree(&mut self, path: &RelPath) -> ControlFlow<()> {
        match self.look_up(path) {
            Ok((dir, stat)) => self.found(&*dir, path.clone(), &stat)?,
            Err(error) => self.failed(path, error)?,
        }
        self.drain()
    }

    /// The `stat` of the entry at `path`, and the directory that it was looked up in.
    pub(crate) fn look_up(&self, path: &RelPath) -> Result<(std::sync::Arc<crate::walk::Dir>, Stat), DiskError> {
        let dir = match path.is_root() {
            true => self.walk.root().clone(),
            false => self.walk.parent(path)?.0,
        };
        let stat = statat(&dir, name_in_parent(path), AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|error| DiskError::call("examine", path, error))?;
        // The user named it, the directory did not list it: it may be another spelling.
        if !path.is_root() && type_of(&stat) == FileType::Directory && dir.has_shelf_at(place_of(&stat)) {
            return Err(DiskError::Alias { path: path.into() });
        }
        Ok((dir, stat))
    }

    /// Visits all entries of the directories on the stack.
    fn drain(&mut self) -> ControlFlow<()> {
        while let Some(level) = self.stack.last_mut() {
            match level.next(&mut self.scratch) {
                Next::Child(path) => {
                    let dir = Rc::clone(&level.fd);
                    self.child(&dir, path)?;
                }
                Next::Reserved(name) => {
                    let (dir, path) = (Rc::clone(&level.fd), level.path.clone());
                    self.reserved(&*dir, path, name)?;
                }
                Next::Unnameable(error) => {
                    let path = level.path.clone();
                    self.failed(&path, error)?;
                }
                Next::Unreadable(error) => {
                    let path = level.path.clone();
                    self.failed(&path, DiskError::call("list", &path, error))?;
                }
                Next::End => {
                    if let Some(level) = self.stack.pop() {
                        self.entry(level.path, EntryKind::DirEnd, &level.stat)?;
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn child(&mut self, dir: &OwnedFd, path: RelPath) -> ControlFlow<()> {
        match statat(dir, name_in_parent(&path), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => self.found(dir, path, &stat),
            // Gone since it was listed: treated as if it had never been.
            Err(Errno::NOENT) => ControlFlow::Continue(()),
            Err(error) => self.failed(&path, DiskError::call("examine", &path, error)),
        }
    }

    /// Reports that a source itself, which has this reserved name in the walk's root, is not sent.
    pub(crate) fn reserved_top(&mut self, name: &[u8]) -> ControlFlow<()> {
        let root = RelPath::root();
        match statat(self.walk.root(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => (self.sink)(Scanned::Reserved { dir: root, name: name.to_vec() }),
            Err(error) => self.failed(&root, DiskError::call("examine", name, error)),
        }
    }

    /// Reports that a reserved name in the directory at `at` is not sent, unless it is left out
    /// anyway or is our own: the journals and temporaries of other transfers are no user's data,
    /// and come and go.
    pub(crate) fn reserved(&mut self, dir: impl AsFd, at: RelPath, name: Vec<u8>) -> ControlFlow<()> {
        let stat = match statat(dir, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return ControlFlow::Continue(()),
            Err(error) => {
                let path = beneath(&at, &name);
                return self.failed(&at, DiskError::call("examine", path.as_slice(), error));
            }
        };
        let is_dir = type_of(&stat) == FileType::Directory;
        let is_ours = if is_dir { name == RESERVED_PREFIX } else { TempName::parse(&name).is_some() };
        if is_ours || !self.what.filter.verdict_of_bytes(&beneath(&at, &name), is_dir) {
            return ControlFlow::Continue(());
        }
        (self.sink)(Scanned::Reserved { dir: at, name })
    }

    /// Reports the entry `path`, a name in `dir`; a directory goes onto the stack.
    fn found(&mut self, dir: impl AsFd, path: RelPath, stat: &Stat) -> ControlFlow<()> {
        let kind = type_of(stat);
        if !path.is_root() && !self.what.filter.verdict(&path, kind == FileType::Directory) {
            return ControlFlow::Continue(());
        }
        match kind {
            FileType::RegularFile => {
                let kind = EntryKind::File { len: len_of(stat), sparse: is_sparse(stat), inode: inode_of(stat) };
                self.entry(path, kind, stat)
            }
            FileType::Directory => self.enter(dir, path, stat),
            FileType::Symlink if self.what.preserve.links => match readlinkat(dir, name_in_parent(&path), Vec::new()) {
                Ok(target) => self.entry(path, EntryKind::Symlink { target: target.into_bytes() }, stat),
                Err(error) => self.failed(&path, DiskError::call("read the link", &path, error)),
            },
            FileType::Symlink => (self.sink)(Scanned::Skipped { path, why: "symbolic link" }),
            other => (self.sink)(Scanned::Skipped { path, why: special_name(other) }),
        }
    }

    fn enter(&mut self, dir: impl AsFd, path: RelPath, stat: &Stat) -> ControlFlow<()> {
        if self.stack.len() >= DEPTH_MAX {
            let error = DiskError::TooDeep { path: (&path).into(), limit: DEPTH_MAX };
            return self.failed(&path, error);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(dir, name_in_parent(&path), flags, Mode::empty()) {
            Ok(fd) => {
                self.entry(path.clone(), EntryKind::Dir, stat)?;
                let order = match self.media.medium_of(dev_of(stat)) {
                    Medium::Rotating => NameOrder::Inode,
                    Medium::Flash | Medium::Unknown => NameOrder::Listed,
                };
                let (fd, names) = (Rc::new(fd), Vec::new());
                self.stack.push(Level { fd, path, stat: *stat, names, next: 0, ended: false, order });
                ControlFlow::Continue(())
            }
            Err(error) => self.failed(&path, DiskError::call("list", &path, error)),
        }
    }

    /// Gives an entry to send to the sink.
    pub(crate) fn entry(&mut self, path: RelPath, kind: EntryKind, stat: &Stat) -> ControlFlow<()> {
        let source = SourceRef { source: self.source, path: path.clone() };
        let entry = Entry { path, kind, meta: meta_of(stat) };
        (self.sink)(Scanned::Entry { entry, source, identity: identity_of(stat) })
    }

    /// Gives a failure to the sink.
    pub(crate) fn failed(&mut self, path: &RelPath, error: DiskError) -> ControlFlow<()> {
        (self.sink)(Scanned::Failed { path: path.clone(), error: error.at_source() })
    }
}

impl Level {
    fn next(&mut self, scratch: &mut [MaybeUninit<u8>]) -> Next {
        loop {
            while let Some(len) = self.names[self.next..].iter().position(|&b| b == 0) {
                let name = &self.names[self.next..self.next + len];
                self.next += len + 1;
                match self.path.join(name) {
                    Ok(path) => return Next::Child(path),
                    Err(PathError::Reserved) => return Next::Reserved(name.to_vec()),
                    Err(PathError::Dots) => {}
                    Err(source) => {
                        let path = beneath(&self.path, name);
                        return Next::Unnameable(DiskError::Name { path: path.as_slice().into(), source });
                    }
                }
            }
            if self.ended {
                return Next::End;
            }
            if let Err(error) = self.refill(scratch) {
                self.ended = true;
                return Next::Unreadable(error);
            }
        }
    }

    /// Takes the names of one listing call.
    fn refill(&mut self, scratch: &mut [MaybeUninit<u8>]) -> Result<(), Errno> {
        self.names.clear();
        self.next = 0;
        let mut inodes = Vec::new();
        let mut listing = RawDir::new(&*self.fd, scratch);
        loop {
            match listing.next() {
                Some(entry) => {
                    let entry = entry?;
                    if self.order == NameOrder::Inode {
                        inodes.push((entry.ino(), self.names.len()));
                    }
                    self.names.extend_from_slice(entry.file_name().to_bytes_with_nul());
                }
                None => self.ended = true,
            }
            if self.ended || listing.is_buffer_empty() {
                break;
            }
        }
        if self.order == NameOrder::Inode {
            self.sort_names(inodes);
        }
        Ok(())
    }

    /// Sorts the names of the batch by their inodes. Of each name the inode is given, and where it
    /// begins in the batch.
    fn sort_names(&mut self, mut inodes: Vec<(u64, usize)>) {
        inodes.sort_unstable();
        let mut sorted = Vec::with_capacity(self.names.len());
        for (_, start) in inodes {
            sorted.extend(self.names[start..].iter().take_while(|byte| **byte != 0));
            sorted.push(0);
        }
        self.names = sorted;
    }
}

/// The bytes of a path for messages, even if its name cannot travel.
fn beneath(dir: &RelPath, name: &[u8]) -> Vec<u8> {
    if dir.is_root() { name.to_vec() } else { [dir.as_bytes(), name].join(&b'/') }
}

/// The name of `path` in the directory that it was found in; the root is found in itself.
fn name_in_parent(path: &RelPath) -> &[u8] {
    path.name().unwrap_or(b".")
}

/// Bytes of names that one listing call reads: some hundred names.
const SCRATCH_BYTES: usize = 32 << 10;
/// Directories within directories that a scan enters: each holds a descriptor and up to a batch of
/// names. Real trees have some tens; paths of 4095 bytes would allow 2048.
const DEPTH_MAX: usize = 1024;
