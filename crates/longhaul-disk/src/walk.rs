//! The one place that turns a [`RelPath`] into a directory: component by component from a held
//! root, never through a symbolic link.
//!
//! Gives open directories, on which all other modules call `*at()` with a single name. An open
//! directory stays the same one, whatever is renamed or linked in its place later. Keeps a bounded
//! number of them open.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use longhaul_core::limits::{RESERVED_PREFIX, SET_DIR_NAME};
use longhaul_core::{Clock, RelPath};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;

use crate::error::{DiskError, ErrorKind, PathText};
use crate::kernel::Kernel;
use crate::stripe::{Header, Stripes};

/// An open directory (a place to call `*at()` on, not to read from), and the device it lies on.
#[derive(Debug)]
pub(crate) struct Dir {
    fd: OwnedFd,
    dev: u64,
    ino: u64,
    /// The precision of times on its file system, once that was asked.
    clock: OnceLock<Clock>,
    /// The kernel interface through which all changes in it are made.
    kernel: Kernel,
    /// The striped files of the set that it lies in. `None`: it lies in none that has some.
    stripes: Option<Arc<Stripes>>,
}

/// A held root and the directories beneath it that were used last.
#[derive(Debug)]
pub(crate) struct Walk {
    root: Arc<Dir>,
    cache: Mutex<Cache>,
    cached_max: usize,
}

#[derive(Debug, Default)]
struct Cache {
    /// Directories by the bytes of their path, so that a parent is looked up without being copied.
    dirs: HashMap<Box<[u8]>, (Arc<Dir>, u64)>,
    uses: u64,
}

impl Dir {
    /// Opens the directory that the operator named, following links as any program does.
    pub(crate) fn open_named(path: &Path) -> Result<Dir, DiskError> {
        Dir::open_behind(path, &Kernel::default())
    }

    /// Opens such a directory, to be changed through `kernel`.
    pub(crate) fn open_behind(path: &Path, kernel: &Kernel) -> Result<Dir, DiskError> {
        let fd = openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        Dir::new(fd.map_err(|error| DiskError::call("open", path, error))?, kernel, || path.into())
    }

    /// Opens one component beneath this directory, without following it.
    pub(crate) fn enter(&self, name: &[u8], at: &RelPath) -> Result<Dir, DiskError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => {
                let dir = Dir { stripes: self.stripes.clone(), ..Dir::new(fd, &self.kernel, || at.into())? };
                if may_be_alias(name) && self.has_shelf_at(dir.place()) {
                    return Err(DiskError::Alias { path: at.into() });
                }
                Ok(dir)
            }
            Err(Errno::NOTDIR) => Err(self.not_a_directory(name, at)),
            Err(error) => Err(DiskError::call("enter", at, error)),
        }
    }

    /// Whether the shelf of this directory has this device and inode: a name that led there would
    /// be another spelling of the shelf's, of a kind that no rule about names knows.
    pub(crate) fn has_shelf_at(&self, place: (u64, u64)) -> bool {
        [RESERVED_PREFIX, SET_DIR_NAME].iter().any(|own| {
            statat(&self.fd, *own, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| crate::stat::place_of(&stat) == place)
        })
    }

    fn new(fd: OwnedFd, kernel: &Kernel, path: impl Fn() -> PathText) -> Result<Dir, DiskError> {
        let stat = fstat(&fd).map_err(|error| DiskError::call("examine", path(), error))?;
        let (dev, ino) = crate::stat::place_of(&stat);
        Ok(Dir { fd, dev, ino, clock: OnceLock::new(), kernel: kernel.clone(), stripes: None })
    }

    /// The same directory, opened once more, as one of a set with striped files.
    pub(crate) fn knowing(&self, stripes: &Arc<Stripes>) -> Result<Dir, Errno> {
        let (fd, kernel) = (self.fd.try_clone().map_err(|_| Errno::MFILE)?, self.kernel.clone());
        let stripes = Some(Arc::clone(stripes));
        Ok(Dir { fd, dev: self.dev, ino: self.ino, clock: OnceLock::new(), kernel, stripes })
    }

    /// The directory of this descriptor, for names that are ours.
    pub(crate) fn of(fd: OwnedFd, kernel: &Kernel, path: &PathText) -> Result<Dir, DiskError> {
        Dir::new(fd, kernel, || path.clone())
    }

    /// The header of the file at `name`, which has this `stat`, if it is a striped file.
    pub(crate) fn striped(&self, name: &[u8], stat: &Stat) -> Result<Option<Header>, Errno> {
        self.stripes.as_ref().map_or(Ok(None), |stripes| stripes.header_of(self, name, stat))
    }

    /// The striped files of the set that it lies in.
    pub(crate) fn stripes(&self) -> Option<&Arc<Stripes>> {
        self.stripes.as_ref()
    }

    /// The error of a name that is no directory: a link, or any other thing.
    fn not_a_directory(&self, name: &[u8], at: &RelPath) -> DiskError {
        let link = statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
        if link { DiskError::Escape { path: at.into() } } else { DiskError::NotADirectory { path: at.into() } }
    }

    /// The device it lies on (`st_dev`).
    pub(crate) fn dev(&self) -> u64 {
        self.dev
    }

    /// The device and inode of this directory.
    pub(crate) fn place(&self) -> (u64, u64) {
        (self.dev, self.ino)
    }

    /// Checks that this is the directory that the operator's `path` leads to.
    pub(crate) fn check_named(&self, path: &Path) -> Result<(), DiskError> {
        match Dir::open_named(path) {
            Ok(found) if found.place() == self.place() => Ok(()),
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Err(error),
            _ => Err(DiskError::Moved { path: path.into() }),
        }
    }

    /// Checks that `name` in this directory is the directory `place`, which has the path `at`. If
    /// `place` is `None`, it checks that a directory stands there.
    pub(crate) fn check_below(&self, name: &[u8], place: Option<(u64, u64)>, at: &RelPath) -> Result<(), DiskError> {
        match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if place.is_some_and(|place| crate::stat::place_of(&stat) == place) => Ok(()),
            Ok(stat) if place.is_none() && crate::stat::type_of(&stat) == FileType::Directory => Ok(()),
            Ok(_) | Err(Errno::NOENT) => Err(DiskError::Moved { path: at.into() }),
            Err(error) => Err(DiskError::call("examine", at, error)),
        }
    }

    /// The precision of times of the files in it.
    pub(crate) fn clock(&self) -> Clock {
        *self.clock.get_or_init(|| self.kernel.file_system_type(&self.fd).map_or(Clock::Unknown, clock_of_type))
    }

    /// The kernel interface through which it is changed.
    pub(crate) fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// A descriptor of the same directory that can be read and synced.
    pub(crate) fn readable(&self) -> Result<OwnedFd, Errno> {
        openat(&self.fd, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    }

    /// Makes the names in it durable.
    pub(crate) fn sync(&self) -> Result<(), Errno> {
        self.kernel.fsync(self.readable()?)
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Walk {
    /// Walks beneath `root`, with at most `cached_max` directories held open beside it.
    pub(crate) fn new(root: Arc<Dir>, cached_max: usize) -> Walk {
        Walk { root, cache: Mutex::default(), cached_max }
    }

    /// The same with at most so many directories held open.
    pub(crate) fn holding(self, cached_max: usize) -> Walk {
        Walk { cached_max: cached_max.max(CACHED_DIRS_LEAST), ..self }
    }

    /// The root itself.
    pub(crate) fn root(&self) -> &Arc<Dir> {
        &self.root
    }

    /// The directory at `path`.
    pub(crate) fn dir(&self, path: &RelPath) -> Result<Arc<Dir>, DiskError> {
        if path.is_root() {
            return Ok(Arc::clone(&self.root));
        }
        if let Some(dir) = self.cached(path.as_bytes()) {
            return Ok(dir);
        }
        let (above, name) = self.parent(path)?;
        let dir = Arc::new(above.enter(name, path)?);
        self.keep(path.as_bytes(), &dir);
        Ok(dir)
    }

    /// The directory that `path` lies in, and its name there.
    ///
    /// # Errors
    /// [`DiskError::Exists`] for the root, which has no parent of ours.
    pub(crate) fn parent<'p>(&self, path: &'p RelPath) -> Result<(Arc<Dir>, &'p [u8]), DiskError> {
        let bytes = path.as_bytes();
        if bytes.is_empty() {
            return Err(DiskError::Exists { path: path.into(), what: "it is the top directory" });
        }
        let Some(slash) = bytes.iter().rposition(|&b| b == b'/') else {
            return Ok((Arc::clone(&self.root), bytes));
        };
        let name = &bytes[slash + 1..];
        if let Some(dir) = self.cached(&bytes[..slash]) {
            return Ok((dir, name));
        }
        Ok((self.descend(&bytes[..slash])?, name))
    }

    /// Opens the directory at the path `bytes` from the root down, starting behind the deepest
    /// ancestor that is held already.
    fn descend(&self, bytes: &[u8]) -> Result<Arc<Dir>, DiskError> {
        let (mut dir, mut done) = self.deepest_cached(bytes);
        for name in bytes[done..].split(|&b| b == b'/').filter(|name| !name.is_empty()) {
            done += name.len() + usize::from(done > 0);
            let at = RelPath::new(&bytes[..done]).map_err(|source| DiskError::Name { path: bytes.into(), source })?;
            dir = Arc::new(dir.enter(name, &at)?);
            self.keep(&bytes[..done], &dir);
        }
        Ok(dir)
    }

    fn deepest_cached(&self, bytes: &[u8]) -> (Arc<Dir>, usize) {
        let mut end = bytes.len();
        while let Some(slash) = bytes[..end].iter().rposition(|&b| b == b'/') {
            end = slash;
            if let Some(dir) = self.cached(&bytes[..end]) {
                return (dir, end);
            }
        }
        (Arc::clone(&self.root), 0)
    }

    fn cached(&self, bytes: &[u8]) -> Option<Arc<Dir>> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.uses += 1;
        let now = cache.uses;
        let (dir, used) = cache.dirs.get_mut(bytes)?;
        *used = now;
        Some(Arc::clone(dir))
    }

    fn keep(&self, bytes: &[u8], dir: &Arc<Dir>) {
        if self.cached_max == 0 {
            return;
        }
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if cache.dirs.len() >= self.cached_max {
            cache.forget_oldest();
        }
        cache.uses += 1;
        let now = cache.uses;
        cache.dirs.insert(bytes.into(), (Arc::clone(dir), now));
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner).dirs.len()
    }
}

impl Cache {
    /// Drops the quarter that was not used for the longest time: one sweep pays for many
    /// insertions.
    fn forget_oldest(&mut self) {
        let mut used: Vec<u64> = self.dirs.values().map(|(_, used)| *used).collect();
        let quarter = used.len() / 4;
        let (_, &mut limit, _) = used.select_nth_unstable(quarter);
        self.dirs.retain(|_, (_, used)| *used > limit);
    }
}

/// Whether a file system may take a name for the shelf's. Every spelling that any file system is
/// known to take for it has its first letter, behind dots and blanks at most, or is made up with a
/// `~`, or has bytes that are not ASCII. To look for the shelf beside each other name would be a
/// call over the network for each directory.
fn may_be_alias(name: &[u8]) -> bool {
    let letter = |name: &[u8]| name.iter().find(|b| !matches!(b, b'.' | b' ')).map(u8::to_ascii_lowercase);
    !name.is_ascii() || name.contains(&b'~') || letter(name) == letter(RESERVED_PREFIX)
}

/// The clock of a file system by its type (`f_type`). It is unknown if another host or program
/// keeps the file system.
fn clock_of_type(file_system_type: u64) -> Clock {
    match file_system_type {
        EXT4 => Clock::ExactOrSeconds,
        XFS | BTRFS | TMPFS | F2FS => Clock::Exact,
        EXFAT => Clock::Centiseconds,
        FAT => Clock::EvenSeconds,
        _ => Clock::Unknown,
    }
}

/// The file system types, from `linux/magic.h`.
const EXT4: u64 = 0xEF53;
const XFS: u64 = 0x5846_5342;
const BTRFS: u64 = 0x9123_683E;
const TMPFS: u64 = 0x0102_1994;
const F2FS: u64 = 0xF2F5_2010;
const EXFAT: u64 = 0x2011_BAB0;
const FAT: u64 = 0x4D44;
/// Directories that a session keeps open beneath one root: a descriptor each, and enough for a
/// tree's working set. Where a process may open few files it is an eighth of them: a copy has two
/// such roots, and needs some hundred descriptors besides.
pub(crate) fn cached_dirs_max() -> usize {
    let limit = longhaul_sys::nofile_limit().and_then(|limit| usize::try_from(limit / 8).ok());
    limit.map_or(CACHED_DIRS_MAX, |eighth| eighth.clamp(CACHED_DIRS_MIN, CACHED_DIRS_MAX))
}

/// The least that each of many walks keeps: a few levels of a path.
const CACHED_DIRS_LEAST: usize = 4;
const CACHED_DIRS_MAX: usize = 512;
/// The least that is kept. With fewer than a deep path has levels, each name of it would be looked
/// up anew.
const CACHED_DIRS_MIN: usize = 32;

#[cfg(test)]
mod oracle;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use std::os::unix::fs::symlink;

    fn path(bytes: &str) -> RelPath {
        RelPath::new(bytes).expect("path")
    }

    fn walk(top: &Path, cached_max: usize) -> Walk {
        Walk::new(Arc::new(Dir::open_named(top).expect("root")), cached_max)
    }

    #[test]
    fn a_link_is_never_entered_wherever_it_stands() {
        let top = tempfile::tempdir().expect("tempdir");
        std::fs::create_dir_all(top.path().join("real/below")).expect("dirs");
        symlink("real", top.path().join("leaf")).expect("link");
        symlink("/etc", top.path().join("real/out")).expect("link");
        let walk = walk(top.path(), 8);
        for (at, end) in
            [("leaf", "leaf"), ("leaf/below", "leaf"), ("real/out", "real/out"), ("real/out/x", "real/out")]
        {
            let error = walk.dir(&path(at)).expect_err(at);
            assert_eq!(error.kind(), ErrorKind::Escape);
            assert_eq!(error.path().map(PathText::as_bytes), Some(end.as_bytes()));
        }
        assert!(walk.dir(&path("real/below")).is_ok());
    }

    #[test]
    fn a_held_directory_stays_itself_when_a_link_takes_its_name() {
        let top = tempfile::tempdir().expect("tempdir");
        std::fs::create_dir(top.path().join("d")).expect("dir");
        std::fs::create_dir(top.path().join("other")).expect("dir");
        let walk = walk(top.path(), 8);
        let below = path("d/x");
        let (held, _) = walk.parent(&below).expect("held");
        std::fs::rename(top.path().join("d"), top.path().join("moved")).expect("rename");
        symlink("other", top.path().join("d")).expect("link");
        let (again, name) = walk.parent(&below).expect("cached");
        assert!(Arc::ptr_eq(&held, &again));
        openat(&again, name, OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).expect("create");
        assert!(top.path().join("moved/x").exists());
        assert!(!top.path().join("other/x").exists());
    }

    #[test]
    fn the_shelf_is_looked_for_behind_its_spellings_and_not_behind_most_names() {
        for alias in crate::shelf::ALIASES {
            assert!(may_be_alias(alias), "{}", String::from_utf8_lossy(alias));
        }
        for name in ["LONGHA~1", "LO12AB~1", "X12345~6", "L12345_6", " . Longhaul"] {
            assert!(may_be_alias(name.as_bytes()), "{name}");
        }
        for name in ["data", "2024-01-31", ".git", "a.long.name", "..", " "] {
            assert!(!may_be_alias(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_file_system_of_another_host_or_program_may_have_any_clock() {
        for (number, clock) in [
            (0xEF53, Clock::ExactOrSeconds),
            (0x5846_5342, Clock::Exact),
            (0x4D44, Clock::EvenSeconds),
            (0x2011_BAB0, Clock::Centiseconds),
            (0x6573_5546, Clock::Unknown),
            (0x6969, Clock::Unknown),
            (0xFF53_4D42, Clock::Unknown),
        ] {
            assert_eq!(clock_of_type(number), clock, "{number:#x}");
        }
    }

    #[test]
    fn files_and_missing_names_are_told_apart() {
        let top = tempfile::tempdir().expect("tempdir");
        std::fs::write(top.path().join("f"), b"").expect("file");
        let walk = walk(top.path(), 8);
        assert_eq!(walk.dir(&path("f/x")).expect_err("file").kind(), ErrorKind::NotADirectory);
        assert_eq!(walk.dir(&path("gone/x")).expect_err("gone").kind(), ErrorKind::NotFound);
        assert_eq!(walk.parent(&RelPath::root()).expect_err("root").kind(), ErrorKind::Exists);
    }

    #[test]
    fn held_directories_are_bounded_and_depth_is_not() {
        let top = tempfile::tempdir().expect("tempdir");
        let walk = walk(top.path(), 16);
        let mut at = RelPath::root();
        for _ in 0..1000 {
            let parent = walk.dir(&at).expect("parent");
            rustix::fs::mkdirat(&parent, c"dd", Mode::RWXU).expect("mkdir");
            at = at.join(b"dd").expect("join");
            assert!(walk.held() <= 16);
        }
        let fresh = super::tests::walk(top.path(), 0);
        assert!(fresh.dir(&at).is_ok());
        assert_eq!(fresh.held(), 0);
        remove_deep(top.path());
    }

    /// `remove_dir_all` keeps a descriptor per level, which a low limit forbids: go down in place
    /// instead.
    fn remove_deep(top: &Path) {
        while let Ok(entries) = std::fs::read_dir(top.join("dd")) {
            if entries.count() == 0 {
                break;
            }
            std::fs::rename(top.join("dd/dd"), top.join("next")).expect("lift");
            std::fs::remove_dir(top.join("dd")).expect("remove");
            std::fs::rename(top.join("next"), top.join("dd")).expect("back");
        }
    }
}
