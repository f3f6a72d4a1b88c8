//! Walks one source depth first, streaming: a stack of open directories, each with one batch of
//! names. On a rotating disk the names of a batch are visited in the order of their inodes.
//!
//! A source in a target set is walked on all targets at once: a directory is the union of those of
//! its name, and a name that stands on two targets and is no directory on both is a failure.
//!
//! Gives every find to the sink at once. Resolves nothing by itself: each name is looked up in the
//! open directory that listed it, and never followed.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use longhaul_core::limits::{RESERVED_PREFIX, SET_DIR_NAME};
use longhaul_core::{Entry, EntryKind, Meta, PathError, RelPath, SeveralNames, TargetId, TempName};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat, openat, readlinkat, statat};
use rustix::io::Errno;

use crate::error::{DiskError, ErrorKind};
use crate::set::two_targets;
use crate::source::extras::{ExtrasReader, SourceLosses, Spot};
use crate::source::{ScanRequest, Scanned, SourceRef};
use crate::stat::{
    Identity, dev_of, identity_of, inode_of, is_sparse, len_of, meta_of, place_of, special_name, type_of,
};
use crate::sysfs::{Media, Medium};
use crate::walk::{Dir, Walk};

/// One source being scanned.
pub(crate) struct Scan<'s> {
    parts: &'s [ScanPart],
    pub(crate) what: &'s ScanRequest<'s>,
    sink: &'s mut dyn FnMut(Scanned) -> ControlFlow<()>,
    stack: Vec<Level>,
    /// Makes hashes of names. A name whose hash is another's is left out: one in 10^12 trees of ten
    /// million names.
    hasher: RandomState,
    media: &'s Media,
    extras: ExtrasReader<'s>,
    scratch: Box<[MaybeUninit<u8>]>,
}

/// The part of a source on one target: the whole source, unless it lies in a target set.
pub(crate) struct ScanPart {
    /// The number by which its files are opened.
    pub(crate) base: u32,
    /// The number of the target.
    pub(crate) target: TargetId,
    /// The walk beneath its directory.
    pub(crate) walk: Arc<Walk>,
}

/// A directory of one part.
struct PartDir<D> {
    /// The place of the part.
    part: usize,
    dir: D,
}

/// An entry that was looked up by its path.
pub(crate) struct FoundAt {
    /// The directories that it was found in, each of another part: more than one for a directory.
    dirs: Vec<PartDir<Arc<Dir>>>,
    pub(crate) stat: Stat,
}

/// A directory being read.
struct Level {
    /// The directories of its name, each of another part.
    dirs: Rc<[PartDir<OwnedFd>]>,
    /// The place of the one that is being read.
    reading: usize,
    /// Hashes of names that stand on several targets and were visited, or refused, already. (A
    /// directory may be made on a target after the target's turn.)
    seen: HashSet<u64>,
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
        (parts, media, losses): (&'s [ScanPart], &'s Media, &'s SourceLosses),
        what: &'s ScanRequest<'s>,
        sink: &'s mut dyn FnMut(Scanned) -> ControlFlow<()>,
    ) -> Scan<'s> {
        Scan {
            parts,
            what,
            sink,
            stack: Vec::new(),
            hasher: RandomState::new(),
            media,
            extras: ExtrasReader::new(what.preserve, losses),
            scratch: Box::new_uninit_slice(SCRATCH_BYTES),
        }
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
            Ok(found) if !self.is_wanted(path, &found.stat) => {}
            Ok(found) => self.found(&found.dirs, path.clone(), &found.stat)?,
            Err(error) => self.failed(path, error)?,
        }
        self.drain()
    }

    /// The entry at `path`.
    pub(crate) fn look_up(&self, path: &RelPath) -> Result<FoundAt, DiskError> {
        let mut found: Option<FoundAt> = None;
        let mut absent = None;
        for (part, known) in self.parts.iter().enumerate() {
            let (dir, stat) = match look_up_in(&known.walk, path) {
                Ok(seen) => seen,
                // On one target a file may stand where another one has a directory: that name
                // itself is refused.
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                    absent.get_or_insert(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            match &mut found {
                None => found = Some(FoundAt { dirs: vec![PartDir { part, dir }], stat }),
                Some(before) => match self.together(path, (before.dirs[0].part, &before.stat), (part, &stat)) {
                    None => before.dirs.push(PartDir { part, dir }),
                    Some(error) => return Err(error),
                },
            }
        }
        match (found, absent) {
            (Some(found), _) => Ok(found),
            (None, Some(error)) => Err(error),
            (None, None) => Err(DiskError::call("examine", path, Errno::NOENT)),
        }
    }

    /// The directory at `path` of a part, open to be read. `None` if it cannot be opened.
    pub(crate) fn dir_of(&self, part: usize, path: &RelPath) -> Option<OwnedFd> {
        self.parts[part].walk.dir(path).ok()?.readable().ok()
    }

    /// The error of one name in two parts. `None` if it is a directory in both.
    fn together(&self, path: &RelPath, one: (usize, &Stat), other: (usize, &Stat)) -> Option<DiskError> {
        let dirs = [one, other].iter().filter(|(_, stat)| type_of(stat) == FileType::Directory).count();
        let targets = [one.0, other.0].map(|part| self.parts[part].target);
        (dirs < 2).then(|| two_targets(path, targets.into(), dirs))
    }

    /// Whether the filter lets an entry through.
    fn is_wanted(&self, path: &RelPath, stat: &Stat) -> bool {
        path.is_root() || self.what.filter.verdict(path, type_of(stat) == FileType::Directory)
    }

    /// Visits all entries of the directories on the stack.
    fn drain(&mut self) -> ControlFlow<()> {
        while let Some(level) = self.stack.last_mut() {
            match level.next(&mut self.scratch) {
                Next::Child(path) => {
                    let (dirs, at) = (Rc::clone(&level.dirs), level.reading);
                    self.child(&dirs, at, path)?;
                }
                Next::Reserved(name) => {
                    let (dirs, at, path) = (Rc::clone(&level.dirs), level.reading, level.path.clone());
                    self.reserved(&dirs[at].dir, path, name)?;
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
                        let PartDir { part, dir } = &level.dirs[0];
                        self.entry((*part, Spot::Open(dir.as_fd())), level.path, EntryKind::DirEnd, &level.stat)?;
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Visits a name that the directory at a place among `dirs` listed.
    fn child(&mut self, dirs: &[PartDir<OwnedFd>], at: usize, path: RelPath) -> ControlFlow<()> {
        let name = name_in_parent(&path);
        let failed = |error| DiskError::call("examine", &path, error);
        let stat = match statat(&dirs[at].dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // Gone since it was listed: treated as if it had never been.
            Err(Errno::NOENT) => return ControlFlow::Continue(()),
            Err(error) => return self.failed(&path, failed(error)),
        };
        if !self.is_wanted(&path, &stat) {
            return ControlFlow::Continue(());
        }
        let mut on = vec![PartDir { part: dirs[at].part, dir: dirs[at].dir.as_fd() }];
        let mut conflict = None;
        for (_, other) in dirs.iter().enumerate().filter(|(place, _)| *place != at) {
            match statat(&other.dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(there) => match self.together(&path, (dirs[at].part, &stat), (other.part, &there)) {
                    None => on.push(PartDir { part: other.part, dir: other.dir.as_fd() }),
                    Some(error) => drop(conflict.get_or_insert(error)),
                },
                Err(Errno::NOENT) => {}
                Err(error) => return self.failed(&path, failed(error)),
            }
        }
        let stands_elsewhere = on.len() > 1 || conflict.is_some();
        if dirs.len() > 1 && (stands_elsewhere || type_of(&stat) == FileType::Directory) {
            let hash = self.hasher.hash_one(name);
            if self.stack.last_mut().is_some_and(|level| !level.seen.insert(hash)) {
                return ControlFlow::Continue(());
            }
        }
        match conflict {
            Some(error) => self.failed(&path, error),
            None => self.found(&on, path, &stat),
        }
    }

    /// Reports that a source itself, which has this reserved name in the walk's root, is not sent.
    pub(crate) fn reserved_top(&mut self, name: &[u8]) -> ControlFlow<()> {
        let root = RelPath::root();
        let stat = |part: &ScanPart| statat(part.walk.root(), name, AtFlags::SYMLINK_NOFOLLOW).map(drop);
        match self.parts.iter().map(stat).reduce(Result::or).unwrap_or(Err(Errno::NOENT)) {
            Ok(()) => (self.sink)(Scanned::Reserved { dir: root, name: name.to_vec() }),
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
        let is_ours =
            if is_dir { name == RESERVED_PREFIX || name == SET_DIR_NAME } else { TempName::parse(&name).is_some() };
        if is_ours || !self.what.filter.verdict_of_bytes(&beneath(&at, &name), is_dir) {
            return ControlFlow::Continue(());
        }
        (self.sink)(Scanned::Reserved { dir: at, name })
    }

    /// Reports the entry `path`, a name in `dirs`; a directory goes onto the stack.
    fn found<D: AsFd>(&mut self, dirs: &[PartDir<D>], path: RelPath, stat: &Stat) -> ControlFlow<()> {
        let PartDir { part, dir } = &dirs[0];
        match type_of(stat) {
            FileType::RegularFile => {
                let stripes = self.parts[*part].walk.root().stripes();
                let striped = stripes.map_or(Ok(None), |known| known.header_of(dir, name_in_parent(&path), stat));
                let inode = inode_of(stat);
                let spot = Spot::In(dir.as_fd());
                match striped {
                    Ok(None) => {
                        let kind = EntryKind::File { len: len_of(stat), sparse: is_sparse(stat), inode };
                        self.entry((*part, spot), path, kind, stat)
                    }
                    Ok(Some(header)) => {
                        let kind = EntryKind::File { len: header.map.len(), sparse: false, inode };
                        self.entry((*part, spot), path, kind, stat)
                    }
                    Err(error) => self.failed(&path, DiskError::call("examine", &path, error)),
                }
            }
            FileType::Directory => self.enter(dirs, path, stat),
            FileType::Symlink if self.what.preserve.links => match readlinkat(dir, name_in_parent(&path), Vec::new()) {
                Ok(target) => {
                    self.entry((*part, Spot::Nowhere), path, EntryKind::Symlink { target: target.into_bytes() }, stat)
                }
                Err(error) => self.failed(&path, DiskError::call("read the link", &path, error)),
            },
            FileType::Symlink => (self.sink)(Scanned::Skipped { path, why: "symbolic link" }),
            other => (self.sink)(Scanned::Skipped { path, why: special_name(other) }),
        }
    }

    fn enter<D: AsFd>(&mut self, dirs: &[PartDir<D>], path: RelPath, stat: &Stat) -> ControlFlow<()> {
        if self.stack.len() >= DEPTH_MAX {
            let error = DiskError::TooDeep { path: (&path).into(), limit: DEPTH_MAX };
            return self.failed(&path, error);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let open = |PartDir { part, dir }: &PartDir<D>| {
            let dir = openat(dir, name_in_parent(&path), flags, Mode::empty())?;
            Ok(PartDir { part: *part, dir })
        };
        match dirs.iter().map(open).collect::<Result<Rc<[_]>, Errno>>() {
            Ok(open) => {
                self.entry((open[0].part, Spot::Nowhere), path.clone(), EntryKind::Dir, stat)?;
                let order = match self.media.medium_of(dev_of(stat)) {
                    Medium::Rotating => NameOrder::Inode,
                    Medium::Flash | Medium::Unknown => NameOrder::Listed,
                };
                let is_file_meant = self.what.files.is_some_and(|files| files.has(&path));
                // It is over at once then, on each target.
                let (reading, ended) = if is_file_meant { (open.len() - 1, true) } else { (0, false) };
                let (names, next, seen) = (Vec::new(), 0, HashSet::new());
                self.stack.push(Level { dirs: open, reading, seen, path, stat: *stat, names, next, ended, order });
                ControlFlow::Continue(())
            }
            Err(error) => self.failed(&path, DiskError::call("list", &path, error)),
        }
    }

    /// Gives an entry to send, which lies at a spot in a part of the source, to the sink.
    pub(crate) fn entry(
        &mut self,
        (part, spot): (usize, Spot<'_>),
        path: RelPath,
        kind: EntryKind,
        stat: &Stat,
    ) -> ControlFlow<()> {
        let source = SourceRef { source: self.parts[part].base, path: path.clone() };
        // The length that a striped file shows.
        let len = if let EntryKind::File { len, .. } = kind { len } else { len_of(stat) };
        let extras = self.extras.read(spot, &path, &kind, stat);
        let names = self.several_names(&kind, stat);
        let entry = Entry { path, kind, meta: Meta { extras, names, ..meta_of(stat) } };
        (self.sink)(Scanned::Entry { entry, source, identity: Identity { len, ..identity_of(stat) } })
    }

    /// How many names a file has, if that is wanted and more than one.
    fn several_names(&self, kind: &EntryKind, stat: &Stat) -> Option<Arc<SeveralNames>> {
        let count = u32::try_from(stat.st_nlink).unwrap_or(u32::MAX);
        let has_several = self.what.preserve.hardlinks && matches!(kind, EntryKind::File { .. }) && count > 1;
        has_several.then(|| Arc::new(SeveralNames { first: None, count }))
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
                if self.reading + 1 == self.dirs.len() {
                    return Next::End;
                }
                (self.reading, self.ended) = (self.reading + 1, false);
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
        let mut listing = RawDir::new(&self.dirs[self.reading].dir, scratch);
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

impl FoundAt {
    /// The part in which it was found first.
    pub(crate) fn part(&self) -> usize {
        self.dirs[0].part
    }
}

/// The `stat` of the entry at `path` of one part, and the directory that it was looked up in.
fn look_up_in(walk: &Walk, path: &RelPath) -> Result<(Arc<Dir>, Stat), DiskError> {
    let dir = match path.is_root() {
        true => walk.root().clone(),
        false => walk.parent(path)?.0,
    };
    let stat = statat(&dir, name_in_parent(path), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(|error| DiskError::call("examine", path, error))?;
    // The user named it, the directory did not list it: it may be another spelling.
    if !path.is_root() && type_of(&stat) == FileType::Directory && dir.has_shelf_at(place_of(&stat)) {
        return Err(DiskError::Alias { path: path.into() });
    }
    Ok((dir, stat))
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
