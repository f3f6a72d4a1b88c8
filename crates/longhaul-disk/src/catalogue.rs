//! [`SumsCatalogue`]: checksums of files whose file systems keep none of them, in one file of this
//! side's own state.
//!
//! In: checksums, and the marks of the files that they are of. Out: the checksums of a file that
//! has the same mark still, or none. Several processes may write at once. A catalogue that is
//! damaged, another's or of no use fails nothing: it is told once, and whoever asked hears that
//! nothing was kept. `catalogue/slot.rs` has the bytes of an entry. Knows no trees and no
//! transfers.

mod open;
mod slot;

use std::collections::HashMap;
use std::fs::DirBuilder;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use longhaul_core::checksum::FileSums;
use longhaul_core::kept_sums::KeptSums;
use longhaul_sys::lock;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::{Errno, pread};
use rustix::process::geteuid;

use crate::kernel::Kernel;
use crate::shelf::has_no_locks;
use crate::stat::{len_of, type_of};

use open::OpenCatalogue;
pub(crate) use slot::FileMark;
use slot::{CatalogueEntry, SLOT_BYTES, page_of, place_in};

/// A catalogue of checksums. Cheap to make and to clone: nothing is opened before the first use.
///
/// # The file
///
/// It consists of pages of 4096 bytes. The first one has the line `longhaul checksums 1` and zeros
/// behind it; `1` is the form. Each other page is one of 65,536 buckets of 32 slots, and a file's
/// entry lies in the bucket that the hash of its device and inode names (`slot.rs`). So the file
/// has at most 256 MiB, has holes where nothing was kept, and never grows beyond: in a bucket that
/// is full, the entry that was written first gives way.
///
/// A slot ends with a digest of itself, and one whose digest is wrong is empty: a write that a
/// crash tore costs that entry, and never shows another file's checksums. Slots are written under a
/// lock of the whole file, and read and synced without it. A writer that does not get the lock for
/// long keeps nothing, and does not wait for it again for a while.
#[derive(Clone, Debug)]
pub struct SumsCatalogue(Arc<CatalogueFile>);

#[derive(Debug)]
struct CatalogueFile {
    path: PathBuf,
    access: CatalogueAccess,
    kernel: Kernel,
    used: Mutex<CatalogueUse>,
    /// The writers of this process take turns. Taken before `used`.
    turn: Mutex<WriterTurn>,
}

/// The turn of a writer.
#[derive(Debug, Default)]
struct WriterTurn {
    /// Another process holds the lock: until then nobody waits for it.
    rests_until: Option<Instant>,
}

/// The outcome of an entry that was to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryFate {
    Kept,
    /// It was kept, in the place of an older one of another file, which is gone.
    Displaced,
    /// It was not kept.
    Failed,
}

/// The use that is made of a catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CatalogueAccess {
    /// It is this user's: made when there is something to keep, and believed only if no other user
    /// may write to it.
    Own,
    /// It was named to be read, whoever's it is.
    Read,
}

/// The findings of a catalogue since it was made.
#[derive(Debug, Default)]
struct CatalogueUse {
    file: CatalogueState,
    /// Whether a failure was told.
    is_told: bool,
    /// Whether files can be known again on the file systems that were met, by device.
    known_again: HashMap<u64, bool>,
    /// The moment since which they are known: a device may become another file system.
    known_since: Option<Instant>,
}

/// The file of a catalogue.
#[derive(Debug, Default)]
enum CatalogueState {
    #[default]
    NotYet,
    /// It did not stand at this moment, or could not be used.
    Missing(Instant),
    Open(Arc<OpenCatalogue>),
}

/// When what was written must be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    /// Before the call returns.
    Now,
    /// With what is written later, or when the system gets to it.
    Later,
}

impl SumsCatalogue {
    /// This user's catalogue at `path`, which need not exist.
    pub fn at(path: impl Into<PathBuf>) -> SumsCatalogue {
        SumsCatalogue::with(path.into(), CatalogueAccess::Own)
    }

    /// The catalogue at `path`, which may be another user's, for reading alone.
    pub fn to_read(path: impl Into<PathBuf>) -> SumsCatalogue {
        SumsCatalogue::with(path.into(), CatalogueAccess::Read)
    }

    fn with(path: PathBuf, access: CatalogueAccess) -> SumsCatalogue {
        let (used, turn) = (Mutex::default(), Mutex::default());
        SumsCatalogue(Arc::new(CatalogueFile { path, access, kernel: Kernel::default(), used, turn }))
    }

    /// The checksums that are kept for an open file, if it is the one that they are of, and as it
    /// was then. `None` if there are none, or the catalogue cannot be read.
    pub fn find(&self, file: impl AsFd) -> Option<KeptSums> {
        let mark = self.stands().then(|| FileMark::of(&file).ok())??;
        self.find_of(file, &mark)
    }

    /// The checksums of a file that has this mark, and lies on the file system of `fd`.
    pub(crate) fn find_of(&self, fd: impl AsFd, mark: &FileMark) -> Option<KeptSums> {
        if self.stands() { self.0.find(fd, mark) } else { None }
    }

    /// Whether there is anything to find, as far as that is known.
    pub(crate) fn stands(&self) -> bool {
        self.0.may_stand()
    }

    /// Whether files can be known again on the file system of `fd`, which has this device: their
    /// inodes have lasting numbers there.
    pub(crate) fn knows_again(&self, fd: impl AsFd, dev: u64) -> bool {
        self.0.knows_again(fd, dev)
    }

    /// Keeps checksums of files, and says of each whether they were. A failure is told.
    #[must_use]
    pub(crate) fn keep(&self, files: &[(FileMark, &FileSums)], durable: Durable) -> Vec<EntryFate> {
        if files.is_empty() {
            return Vec::new();
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.0.keep(files, (durable, now)).unwrap_or_else(|error| {
            self.0.tell(&mut self.0.used(), "write to", &error);
            vec![EntryFate::Failed; files.len()]
        })
    }
}

impl CatalogueFile {
    fn used(&self) -> MutexGuard<'_, CatalogueUse> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is anything to find, as far as that is known.
    fn may_stand(&self) -> bool {
        let mut used = self.used();
        let looks = match used.file {
            CatalogueState::NotYet => true,
            CatalogueState::Missing(since) => since.elapsed() > LOOK_AGAIN,
            CatalogueState::Open(_) => false,
        };
        if looks {
            let missing = || CatalogueState::Missing(Instant::now());
            used.file = match self.open_standing() {
                Ok(file) => file.map_or_else(missing, |fd| CatalogueState::Open(Arc::new(OpenCatalogue::of(fd)))),
                Err(error) => {
                    self.tell(&mut used, "read", &error);
                    missing()
                }
            };
        }
        matches!(used.file, CatalogueState::Open(_))
    }

    fn knows_again(&self, fd: impl AsFd, dev: u64) -> bool {
        let mut used = self.used();
        if used.known_since.is_none_or(|since| since.elapsed() > LOOK_AGAIN) {
            used.known_again.clear();
            used.known_since = Some(Instant::now());
        }
        if let Some(known) = used.known_again.get(&dev) {
            return *known;
        }
        let number = self.kernel.file_system_type(fd);
        let is_known = number.is_ok_and(|number| LASTING.iter().any(|(lasting, _)| *lasting == number));
        if used.known_again.len() == DEVICES_KNOWN_MAX {
            used.known_again.clear();
        }
        used.known_again.insert(dev, is_known);
        is_known
    }

    fn find(&self, file: impl AsFd, mark: &FileMark) -> Option<KeptSums> {
        let mut page = [0; PAGE_BYTES];
        if let Err(error) = read_page(self.open_one()?.fd(), page_of(mark, BUCKETS), &mut page) {
            self.tell(&mut self.used(), "read", &error.into());
            return None;
        }
        let of_it = |slot: &[u8]| CatalogueEntry::parse(slot).filter(|entry| entry.mark == *mark);
        let entry = page.chunks_exact(SLOT_BYTES).find_map(of_it)?;
        // A device that is another file system now may have inodes of the same numbers.
        self.knows_again(file, mark.dev).then(|| entry.kept())
    }

    fn keep(&self, files: &[(FileMark, &FileSums)], (durable, now): (Durable, u64)) -> io::Result<Vec<EntryFate>> {
        let (open, fates) = {
            let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            let open = self.open_to_write(&mut turn)?;
            let fates = self.put_all(&open, &mut turn, (files, now))?;
            (open, fates)
        };
        let batch = open.wrote();
        // The others may write meanwhile.
        if durable == Durable::Now {
            open.sync(batch, &self.kernel)?;
        }
        Ok(fates)
    }

    /// The file, if it is open.
    fn open_one(&self) -> Option<Arc<OpenCatalogue>> {
        match &self.used().file {
            CatalogueState::Open(open) => Some(Arc::clone(open)),
            CatalogueState::NotYet | CatalogueState::Missing(_) => None,
        }
    }

    /// The file for a writer. One that was removed meanwhile is made anew.
    fn open_to_write(&self, turn: &mut WriterTurn) -> io::Result<Arc<OpenCatalogue>> {
        let stands = |open: &Arc<OpenCatalogue>| fstat(open.fd()).is_ok_and(|stat| stat.st_nlink > 0);
        if let Some(open) = self.open_one().filter(stands) {
            return Ok(open);
        }
        let open = Arc::new(OpenCatalogue::of(self.open_or_make(turn)?));
        self.used().file = CatalogueState::Open(Arc::clone(&open));
        Ok(open)
    }

    /// Writes a batch of entries under the lock.
    fn put_all(
        &self,
        open: &OpenCatalogue,
        turn: &mut WriterTurn,
        (files, now): (&[(FileMark, &FileSums)], u64),
    ) -> io::Result<Vec<EntryFate>> {
        let _lock = self.locked(open.fd(), turn)?;
        let put = |(mark, file): &(FileMark, &FileSums)| {
            let entry = CatalogueEntry { mark: *mark, sums: file.sums.clone(), kept_at: now };
            entry.slot().map_or(Ok(EntryFate::Failed), |slot| self.put(open.fd(), &entry, &slot))
        };
        files.iter().map(put).collect()
    }

    /// Writes an entry over the one of the same inode, else to an empty slot, else over the oldest.
    fn put(&self, fd: &OwnedFd, entry: &CatalogueEntry, slot: &[u8; SLOT_BYTES]) -> io::Result<EntryFate> {
        let (mut page, number) = ([0; PAGE_BYTES], page_of(&entry.mark, BUCKETS));
        read_page(fd, number, &mut page)?;
        let at = place_in(&page, entry);
        let before = &page[at * SLOT_BYTES..][..SLOT_BYTES];
        if before == slot {
            return Ok(EntryFate::Kept);
        }
        self.write(fd, slot, (number + 1) * PAGE_BYTES as u64 + (at * SLOT_BYTES) as u64)?;
        let is_of_another = |old: CatalogueEntry| !old.mark.is_of_inode(&entry.mark);
        let displaces = CatalogueEntry::parse(before).is_some_and(is_of_another);
        Ok(if displaces { EntryFate::Displaced } else { EntryFate::Kept })
    }

    fn write(&self, fd: &OwnedFd, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.kernel.pwrite(fd, bytes, at) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => (bytes, at) = (&bytes[written..], at + written as u64),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// The file, if it stands.
    fn open_standing(&self) -> io::Result<Option<OwnedFd>> {
        let mode = if self.access == CatalogueAccess::Own { OFlags::RDWR } else { OFlags::RDONLY };
        let fd = match openat(CWD, &self.path, mode | GUARDS, Mode::empty()) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
            opened => opened?,
        };
        let mut page = [0; PAGE_BYTES];
        self.check(&fd)?;
        match read_head(&fd, &mut page)? {
            FirstPage::Ours => Ok(Some(fd)),
            // Whoever makes it has not got far yet.
            FirstPage::Empty => Ok(None),
            FirstPage::Foreign => Err(foreign()),
        }
    }

    /// The file, made if it does not stand, with the directories above it.
    fn open_or_make(&self, turn: &mut WriterTurn) -> io::Result<OwnedFd> {
        if self.access == CatalogueAccess::Read {
            return Err(ErrorKind::PermissionDenied.into());
        }
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let flags = OFlags::RDWR | OFlags::CREATE | GUARDS;
        let fd = openat(CWD, &self.path, flags, Mode::RUSR | Mode::WUSR)?;
        self.check(&fd)?;
        let lock = self.locked(&fd, turn)?;
        let mut page = [0; PAGE_BYTES];
        match read_head(&fd, &mut page)? {
            FirstPage::Ours => {}
            FirstPage::Empty => {
                page[..HEAD.len()].copy_from_slice(HEAD);
                self.write(&fd, &page, 0)?;
                self.kernel.fdatasync(&fd)?;
                let dir = openat(CWD, dir, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
                self.kernel.fsync(&dir)?;
            }
            FirstPage::Foreign => return Err(foreign()),
        }
        drop(lock);
        Ok(fd)
    }

    /// Refuses a file that somebody else could have written, or that is none.
    fn check(&self, fd: &OwnedFd) -> io::Result<()> {
        let stat = fstat(fd)?;
        let is_file = type_of(&stat) == FileType::RegularFile;
        let is_others = stat.st_mode & 0o022 != 0 || stat.st_uid != geteuid().as_raw();
        match self.access {
            _ if !is_file => Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")),
            CatalogueAccess::Own if is_others => {
                Err(io::Error::new(ErrorKind::PermissionDenied, "another user could have written it"))
            }
            _ if len_of(&stat) > CATALOGUE_BYTES_MAX => Err(foreign()),
            _ => Ok(()),
        }
    }

    /// Keeps other writers out until the lock is dropped. Where there are no locks, two of them may
    /// cost each other an entry.
    fn locked<'f>(&self, fd: &'f OwnedFd, turn: &mut WriterTurn) -> io::Result<CatalogueLock<'f>> {
        let now = Instant::now();
        let patience = if turn.rests_until.is_some_and(|until| now < until) { Duration::ZERO } else { LOCK_PATIENCE };
        let until = now + patience;
        loop {
            match lock::try_lock(fd) {
                Ok(true) => {
                    turn.rests_until = None;
                    return Ok(CatalogueLock(fd));
                }
                Ok(false) if Instant::now() >= until => {
                    if !patience.is_zero() {
                        turn.rests_until = Some(Instant::now() + LOCK_REST);
                    }
                    return Err(io::Error::new(ErrorKind::WouldBlock, "another process has locked it"));
                }
                Ok(false) => thread::sleep(LOCK_PAUSE),
                Err(error) if has_no_locks(&error) => return Ok(CatalogueLock(fd)),
                Err(error) => return Err(error),
            }
        }
    }

    /// Tells a failure, once.
    fn tell(&self, used: &mut CatalogueUse, call: &str, error: &io::Error) {
        if std::mem::replace(&mut used.is_told, true) {
            return;
        }
        tracing::warn!(
            target: "longhaul::disk",
            file = %self.path.display(),
            %error,
            "cannot {call} the catalogue of checksums: where files cannot have their checksums as an attribute, none are kept or \
             found; if it is damaged, remove it, and a new one is made"
        );
    }
}

/// A lock that is held.
struct CatalogueLock<'f>(&'f OwnedFd);

impl Drop for CatalogueLock<'_> {
    fn drop(&mut self) {
        // It ends with the file at the latest.
        let _ = lock::unlock(self.0);
    }
}

/// The first page of a file.
enum FirstPage {
    Ours,
    /// Nothing was written there yet.
    Empty,
    Foreign,
}

fn read_head(fd: &OwnedFd, page: &mut [u8; PAGE_BYTES]) -> io::Result<FirstPage> {
    read_at(fd, page, 0)?;
    let (head, rest) = page.split_at(HEAD.len());
    let is_blank = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    Ok(match is_blank(rest) {
        true if head == HEAD => FirstPage::Ours,
        true if is_blank(head) => FirstPage::Empty,
        _ => FirstPage::Foreign,
    })
}

fn read_page(fd: &OwnedFd, number: u64, page: &mut [u8; PAGE_BYTES]) -> Result<(), Errno> {
    read_at(fd, page, (number + 1) * PAGE_BYTES as u64)
}

/// Reads a page. Bytes behind the end of the file are zeros.
fn read_at(fd: &OwnedFd, page: &mut [u8; PAGE_BYTES], at: u64) -> Result<(), Errno> {
    page.fill(0);
    let mut filled = 0;
    while filled < page.len() {
        match pread(fd, &mut page[filled..], at + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn foreign() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "it is no catalogue of checksums, or one of a later version")
}

/// The flags that let no link, fifo or child process do harm.
const GUARDS: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);
/// The line of the first page.
const HEAD: &[u8] = b"longhaul checksums 1\n";
const PAGE_BYTES: usize = 4096;
/// Buckets, each of a page: room for two million entries, and for one million as good as surely.
/// Tests have few, so that writers meet in them.
const BUCKETS: u64 = if cfg!(test) { 16 } else { 1 << 16 };
const CATALOGUE_BYTES_MAX: u64 = (BUCKETS + 1) * PAGE_BYTES as u64;
/// The time for which the lock is waited for: a batch of another process takes milliseconds.
const LOCK_PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 2 } else { 5 });
/// The time after it in which nobody of this process waits: each looks once.
const LOCK_REST: Duration = Duration::from_secs(60);
/// The pause between two tries.
const LOCK_PAUSE: Duration = Duration::from_millis(2);
/// The time after which it is looked again for a file that did not stand, and at file systems.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Devices that are remembered.
const DEVICES_KNOWN_MAX: usize = 64;
/// The file systems whose inodes keep their numbers, and do not give them to another file with the
/// same time of birth or change. Others (FAT, FUSE, SMB, overlays) make numbers up as files are
/// opened.
const LASTING: &[(u64, &str)] = &[
    (0xEF53, "ext2, ext3, ext4"),
    (0x5846_5342, "XFS"),
    (0x9123_683E, "Btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58F6, "ramfs"),
    (0x6969, "NFS"),
    (0x0BD0_0BD0, "Lustre"),
    (0x00C3_6400, "Ceph"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x2FC1_2FC1, "ZFS"),
    (0xF2F5_2010, "F2FS"),
    (0xCA45_1A4E, "bcachefs"),
    (0x0116_1970, "GFS2"),
    (0x7461_636F, "OCFS2"),
];

#[cfg(test)]
mod tests;
