//! Looks at directories and files of the tree: by names in open directories, never through a link.
//!
//! In: jobs of the scan. Out: lists of names in order, and finds. Knows no order beyond one
//! directory.

#![allow(clippy::disallowed_methods, reason = "the tree's top is a path that the user named")]

use std::cmp::Ordering;
use std::fs::{self, File};
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::limits::{RESERVED_PREFIX, SET_DIR_NAME};
use longhaul_core::{Blame, Fault, FaultCode, Filter, Mtime, PathError, RelPath, TempName};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, Stat, fgetxattr, fstat, openat, readlinkat, statat};
use rustix::io::Errno;

use super::{Find, KeptElsewhere, KeptUse, Make, beneath};
use crate::error::{ManifestError, code_of, shown, words};
use crate::item::{Item, ItemKind};
use longhaul_core::checksum::{Algorithms, Hashing, Sums};
use longhaul_core::kept_sums::{KEPT_SUMS_BYTES_MAX, KEPT_SUMS_NAME, KeptSums};

/// Reads the tree.
pub(super) struct Reader {
    tree: PathBuf,
    top: OwnedFd,
    sums: Algorithms,
    kept: KeptUse,
    elsewhere: Vec<Arc<dyn KeptElsewhere>>,
    filter: Filter,
    /// The device and inode of the manifest's own directory.
    out: Option<(u64, u64)>,
}

/// An open directory and its names in the order of the paths at and beneath them.
pub(super) struct Listed {
    dir: OwnedFd,
    path: RelPath,
    names: Vec<u8>,
    steps: Vec<NameStep>,
    /// Finds on names that are in no step.
    pub(super) odd: Vec<Find>,
}

/// A step of the walk in a directory.
#[derive(Clone, Copy)]
struct NameStep {
    start: usize,
    length: u16,
    kind: StepKind,
}

/// The kind of a step. A directory has two: its own item, and its content, whose paths go on with a
/// slash. Names such as `a.b` come between the two of `a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepKind {
    /// The item of the name.
    Item,
    /// The content of the directory of the name.
    Content,
}

impl Listed {
    /// The kind of a step. `None` behind the last one.
    pub(super) fn kind(&self, at: usize) -> Option<StepKind> {
        self.steps.get(at).map(|step| step.kind)
    }

    /// The first step that is not done if all paths up to `last` are.
    pub(super) fn first_behind(&self, last: &[u8]) -> usize {
        self.steps.partition_point(|step| {
            let mut path = self.path.as_bytes().to_vec();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(self.name(step));
            match step.kind {
                StepKind::Item => path.as_slice() <= last,
                StepKind::Content => {
                    path.push(b'/');
                    path.as_slice() < last && !last.starts_with(&path)
                }
            }
        })
    }

    fn name(&self, step: &NameStep) -> &[u8] {
        &self.names[step.start..step.start + usize::from(step.length)]
    }

    /// The name of a step, and its path.
    fn at(&self, at: usize) -> Option<(&[u8], RelPath)> {
        let name = self.name(self.steps.get(at)?);
        // It was joined when it was listed.
        Some((name, self.path.join(name).ok()?))
    }

    fn push(&mut self, name: &[u8], kind: StepKind) {
        // A name has at most 255 bytes.
        self.steps.push(NameStep { start: self.names.len(), length: name.len() as u16, kind });
        if kind == StepKind::Content {
            self.steps.push(NameStep { start: self.names.len(), length: name.len() as u16, kind: StepKind::Item });
        }
        self.names.extend_from_slice(name);
    }

    fn sort(&mut self) {
        let mut steps = std::mem::take(&mut self.steps);
        steps.sort_unstable_by(|one, other| in_order((self.name(one), one.kind), (self.name(other), other.kind)));
        // Some file systems give a name twice while the directory changes.
        steps.dedup_by(|one, other| one.kind == other.kind && self.name(one) == self.name(other));
        self.steps = steps;
    }
}

/// The order of steps: that of the names, those of contents with a slash behind them.
fn in_order((one, one_kind): (&[u8], StepKind), (other, other_kind): (&[u8], StepKind)) -> Ordering {
    let tail = |kind| if kind == StepKind::Content { &b"/"[..] } else { b"" };
    let common = one.len().min(other.len());
    one[..common]
        .cmp(&other[..common])
        .then_with(|| one[common..].iter().chain(tail(one_kind)).cmp(other[common..].iter().chain(tail(other_kind))))
}

impl Reader {
    /// Holds the tree's top.
    pub(super) fn open(make: &Make) -> Result<Reader, ManifestError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = openat(CWD, &make.tree, flags, Mode::empty());
        let top = top.map_err(|error| ManifestError::file("open the directory", &make.tree)(error.into()))?;
        let (tree, filter, elsewhere) = (make.tree.clone(), make.filter.clone(), make.elsewhere.clone());
        Ok(Reader { tree, top, sums: make.sums, kept: make.kept, elsewhere, filter, out: None })
    }

    /// The same, which leaves this directory out.
    pub(super) fn leaving_out(self, out: &File) -> Reader {
        Reader { out: fstat(out).ok().map(|stat| place_of(&stat)), ..self }
    }

    /// Whether a name stands at the top.
    pub(super) fn has(&self, name: &[u8]) -> bool {
        statat(&self.top, name, AtFlags::SYMLINK_NOFOLLOW).is_ok()
    }

    /// Whether a path is that of the top.
    pub(super) fn is_top(&self, path: &Path) -> bool {
        let Ok(found) = statat(CWD, path, AtFlags::empty()) else { return false };
        fstat(&self.top).is_ok_and(|top| place_of(&top) == place_of(&found))
    }

    /// The inode of the top.
    pub(super) fn inode(&self) -> Result<u64, ManifestError> {
        let stat = fstat(&self.top).map_err(|error| ManifestError::file("examine", &self.tree)(error.into()))?;
        Ok(stat.st_ino)
    }

    /// The names of the top.
    pub(super) fn top(&self) -> io::Result<Listed> {
        let dir = openat(&self.top, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(self.names_of(dir, RelPath::root())?)
    }

    /// The names of the directory at a step of another one.
    pub(super) fn list(&self, above: &Listed, at: usize) -> Result<Listed, Fault> {
        let Some((name, path)) = above.at(at) else {
            return Err(Fault::new(FaultCode::Internal, Blame::Bug, "no step"));
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let listed = openat(&above.dir, name, flags, Mode::empty()).and_then(|dir| self.names_of(dir, path.clone()));
        listed.map_err(|error| self.fault("list", &path, error))
    }

    fn names_of(&self, dir: OwnedFd, path: RelPath) -> Result<Listed, Errno> {
        let mut listed = Listed { dir, path, names: Vec::new(), steps: Vec::new(), odd: Vec::new() };
        let mut scratch = [MaybeUninit::uninit(); SCRATCH_BYTES];
        // The descriptor is that of this listing alone, and is only looked beneath afterwards.
        let again = listed.dir.try_clone().map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let mut entries = RawDir::new(again, &mut scratch);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                self.sort_in(&mut listed, name, entry.file_type());
            }
        }
        listed.sort();
        Ok(listed)
    }

    fn sort_in(&self, listed: &mut Listed, name: &[u8], kind: FileType) {
        let path = match listed.path.join(name) {
            Ok(path) => path,
            Err(PathError::Reserved) => {
                let is_ours = name == RESERVED_PREFIX || name == SET_DIR_NAME || TempName::parse(name).is_some();
                if !is_ours {
                    listed.odd.push(Find::Skipped(listed.path.clone(), "name that longhaul keeps for itself"));
                }
                return;
            }
            Err(why) => {
                let whole = beneath(&self.tree, &listed.path).join(std::ffi::OsStr::from_bytes(name));
                let message = format!("cannot list '{}': {why}", shown(&whole));
                let fault = Fault::new(FaultCode::Unsupported, Blame::Local, message).about(shown(&whole));
                return listed.odd.push(Find::Fault(fault));
            }
        };
        let look = || statat(&listed.dir, name, AtFlags::SYMLINK_NOFOLLOW);
        let kind = match kind {
            FileType::Unknown => look().map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
            known => known,
        };
        let is_dir = kind == FileType::Directory;
        if !self.filter.verdict(&path, is_dir) {
            return;
        }
        if is_dir && self.out.is_some() && look().is_ok_and(|stat| Some(place_of(&stat)) == self.out) {
            return;
        }
        listed.push(name, if is_dir { StepKind::Content } else { StepKind::Item });
    }

    /// The find on a name. `None` if it is gone since it was listed.
    pub(super) fn read(
        &self,
        listed: &Listed,
        at: usize,
        buffer: &mut [u8],
        is_stopped: &dyn Fn() -> bool,
    ) -> Option<Find> {
        let (name, path) = listed.at(at)?;
        let stat = match statat(&listed.dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return None,
            Err(error) => return Some(Find::Fault(self.fault("examine", &path, error))),
        };
        let what = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile if self.sums.is_empty() => {
                let sums = self.kept_by_name(listed, name, &stat);
                return Some(file(path, &stat, sums));
            }
            FileType::RegularFile => return self.digest(listed, name, path, buffer, is_stopped),
            FileType::Directory => return Some(Find::Item(Item::dir(path))),
            FileType::Symlink => return Some(self.link(listed, name, path, &stat)),
            FileType::Fifo => "fifo",
            FileType::Socket => "socket",
            FileType::CharacterDevice | FileType::BlockDevice => "device",
            FileType::Unknown => "name of unknown kind",
        };
        Some(Find::Skipped(path, what))
    }

    fn link(&self, listed: &Listed, name: &[u8], path: RelPath, stat: &Stat) -> Find {
        match readlinkat(&listed.dir, name, Vec::new()) {
            Ok(target) => {
                let kind = ItemKind::Link { target: target.into_bytes() };
                self.listable(Item { path, kind, mtime: Some(mtime_of(stat)), sums: Sums::default() })
            }
            Err(error) => Find::Fault(self.fault("read the link", &path, error)),
        }
    }

    /// An item, unless no reader would take it.
    fn listable(&self, item: Item) -> Find {
        let Some(why) = item.flaw() else { return Find::Item(item) };
        let whole = beneath(&self.tree, &item.path);
        let message = format!("cannot list '{}': {why}", shown(&whole));
        Find::Fault(Fault::new(FaultCode::Unsupported, Blame::Local, message).about(shown(&whole)))
    }

    /// The checksums that are kept with a file that is open and has this length and time, or kept
    /// elsewhere, if they are to be believed.
    fn kept(&self, fd: impl AsFd, stat: &Stat) -> Sums {
        if self.kept == KeptUse::Ignored {
            return Sums::default();
        }
        let mut room = [0; KEPT_SUMS_BYTES_MAX];
        let len = fgetxattr(&fd, KEPT_SUMS_NAME, &mut room[..]).unwrap_or_default();
        let is_of_it = |kept: &KeptSums| kept.is_of(stat.st_size as u64, mtime_of(stat));
        let kept = room.get(..len).and_then(KeptSums::parse).filter(is_of_it);
        let elsewhere = || self.elsewhere.iter().find_map(|place| place.kept(fd.as_fd()).filter(is_of_it));
        kept.or_else(elsewhere).map(|kept| kept.file.sums).unwrap_or_default()
    }

    /// The same of a file that need not be read. One that cannot be opened has none.
    fn kept_by_name(&self, listed: &Listed, name: &[u8], stat: &Stat) -> Sums {
        if self.kept == KeptUse::Ignored {
            return Sums::default();
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = openat(&listed.dir, name, flags, Mode::empty());
        // Another file may have taken the name.
        let is_it = |fd: &OwnedFd| fstat(fd).is_ok_and(|now| version_of(&now) == version_of(stat));
        opened.ok().filter(is_it).map(|fd| self.kept(fd, stat)).unwrap_or_default()
    }

    /// Reads a file and computes its checksums; once more if it changes meanwhile. What is kept
    /// with it and believed is not computed.
    fn digest(
        &self,
        listed: &Listed,
        name: &[u8],
        path: RelPath,
        buffer: &mut [u8],
        is_stopped: &dyn Fn() -> bool,
    ) -> Option<Find> {
        for _ in 0..READS_OF_CHANGING {
            // A fifo that has taken the name meanwhile must not hold the scan up.
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let opened = openat(&listed.dir, name, flags, Mode::empty()).and_then(|fd| Ok((fstat(&fd)?, fd)));
            let (before, fd) = match opened {
                Ok(opened) => opened,
                Err(Errno::NOENT) => return None,
                Err(error) => return Some(Find::Fault(self.fault("open", &path, error))),
            };
            if FileType::from_raw_mode(before.st_mode) != FileType::RegularFile {
                break;
            }
            let kept = self.kept(&fd, &before);
            let lacking = self.sums.without(kept.known());
            if lacking.is_empty() {
                return Some(file(path, &before, kept));
            }
            let mut file_of = File::from(fd);
            let mut hashing = Hashing::new(lacking);
            let mut bytes = 0;
            loop {
                match file_of.read(buffer) {
                    Ok(0) => break,
                    Ok(read) => {
                        hashing.update(&buffer[..read]);
                        bytes += read as u64;
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
                        return Some(Find::Fault(self.fault("read", &path, errno)));
                    }
                }
                if is_stopped() {
                    return None;
                }
            }
            let is_same = fstat(file_of.as_fd()).is_ok_and(|after| version_of(&after) == version_of(&before));
            if is_same && bytes == before.st_size as u64 {
                // They have none in common.
                let sums = hashing.finish().united(&kept).unwrap_or_default();
                return Some(file(path, &before, sums));
            }
        }
        let whole = beneath(&self.tree, &path);
        let message = format!("'{}' changed while it was read, {READS_OF_CHANGING} times", shown(&whole));
        Some(Find::Fault(Fault::new(FaultCode::Changed, Blame::Local, message).about(shown(&whole))))
    }

    fn fault(&self, doing: &'static str, path: &RelPath, error: Errno) -> Fault {
        let (whole, error) = (beneath(&self.tree, path), io::Error::from(error));
        let message = format!("cannot {doing} '{}': {}", shown(&whole), words(&error));
        let fault = Fault::new(code_of(&error), Blame::Local, message).about(shown(&whole));
        fault.with_os_error(error.raw_os_error())
    }
}

fn file(path: RelPath, stat: &Stat, sums: Sums) -> Find {
    let kind = ItemKind::File { bytes: Some(stat.st_size as u64) };
    Find::Item(Item { path, kind, mtime: Some(mtime_of(stat)), sums })
}

fn mtime_of(stat: &Stat) -> Mtime {
    Mtime::said(stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or_default())
}

/// The marks by which a change of a file's content is known.
fn version_of(stat: &Stat) -> impl PartialEq + use<> {
    (stat.st_size, stat.st_mtime, stat.st_mtime_nsec, stat.st_ctime, stat.st_ctime_nsec)
}

fn place_of(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

/// The path of a tree without links.
pub(super) fn whole_path(tree: &Path) -> Result<Vec<u8>, ManifestError> {
    let whole = fs::canonicalize(tree).map_err(ManifestError::file("examine", tree))?;
    Ok(whole.into_os_string().into_vec())
}

/// Bytes of a directory that are read at a time.
const SCRATCH_BYTES: usize = 32 << 10;
/// Times that a file is read which changes under the reader.
const READS_OF_CHANGING: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_a_directory_gives_twice_is_one() {
        let dir = OwnedFd::from(tempfile::tempfile().unwrap());
        let (path, names, steps, odd) = (RelPath::root(), Vec::new(), Vec::new(), Vec::new());
        let mut listed = Listed { dir, path, names, steps, odd };
        let (item, content) = (StepKind::Item, StepKind::Content);
        for (name, kind) in [("b", item), ("a", content), ("b", item), ("a", content), ("a", item)] {
            listed.push(name.as_bytes(), kind);
        }
        listed.sort();
        let steps: Vec<_> = listed.steps.iter().map(|step| (listed.name(step), step.kind)).collect();
        assert_eq!(steps, [(&b"a"[..], item), (b"a", content), (b"b", item)]);
    }
}
