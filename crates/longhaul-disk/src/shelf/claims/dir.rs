//! The claims in one shelf directory: locks on shards and on pages, and the files of pages.
//!
//! In: a shard, and what is to be kept of it. Out: what is kept, under a lock that every process
//! takes which uses this directory. Knows no other targets, and no rule about claims.
//!
//! Locks are single bytes of one file, which is never removed and holds nothing. A process that
//! dies gives its locks back. A page is read through a directory that was opened anew, so that NFS
//! asks its server which file has the name now.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use longhaul_sys::lock;
use rustix::fs::{AtFlags, Mode, OFlags, fstat, statat};
use rustix::io::{Errno, pread};

use super::super::dir::{ShelfDir, opened_in};
use super::super::locks::has_no_locks;
use super::ShardKey;
use super::page::{
    CLAIMS_HEAD_BYTES_MAX, CLAIMS_PAGE_BYTES_MAX, ClaimsOwner, KeptShowing, Page, SHARDS_A_PAGE, hex, owner_in_head,
};
use crate::error::{ClaimsError, DiskError, PathText};
use crate::kernel::Replace;
use crate::names::each_name;
use crate::stat::{len_of, meta_of, place_of};

/// The page of a shard: its campaign, and the first shard of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PageKey {
    campaign: [u8; 16],
    first: u64,
}

impl PageKey {
    fn of(shard: &ShardKey) -> PageKey {
        PageKey { campaign: shard.campaign, first: shard.shard - shard.shard % SHARDS_A_PAGE }
    }

    fn file_name(self) -> Vec<u8> {
        format!("{}-{:014x}{SUFFIX}", hex(&self.campaign), self.first / SHARDS_A_PAGE).into_bytes()
    }

    /// The page of a file's name.
    fn of_name(name: &[u8]) -> Option<PageKey> {
        let (campaign, number) = std::str::from_utf8(name).ok()?.strip_suffix(SUFFIX)?.split_once('-')?;
        let campaign = u128::from_str_radix(campaign, 16).ok()?.to_be_bytes();
        let first = u64::from_str_radix(number, 16).ok()?.checked_mul(SHARDS_A_PAGE)?;
        let key = PageKey { campaign, first };
        (key.file_name() == name).then_some(key)
    }

    /// The byte that is locked while the page is written.
    fn lock_byte(self) -> u64 {
        LOCKS_HALF + byte_of(&self.campaign, self.first)
    }
}

/// The byte that is locked while a shard's claim is shown, and while files of it are published. Two
/// shards with one byte only wait for each other.
pub(super) fn lock_byte(shard: &ShardKey) -> u64 {
    byte_of(&shard.campaign, shard.shard)
}

fn byte_of(campaign: &[u8; 16], number: u64) -> u64 {
    let hash = blake3::Hasher::new().update(campaign).update(&number.to_le_bytes()).finalize();
    let (first, _) = hash.as_bytes().split_at(8);
    first.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)) % LOCKS_HALF
}

impl ShelfDir {
    /// Locks a shard as soon as nobody else has it.
    pub(super) fn lock_shard(&self, shard: &ShardKey, patience: Duration) -> Result<OwnedFd, DiskError> {
        self.locked(lock_byte(shard), patience)?.ok_or_else(|| {
            let (path, seconds) = (self.beneath(LOCK_NAME), patience.as_secs());
            ClaimsError::Held { path, shard: shard.shard, seconds }.into()
        })
    }

    /// The showing that is kept on a shard. `None`: there is none.
    pub(super) fn kept(&self, shard: &ShardKey) -> Result<Option<KeptShowing>, DiskError> {
        let page = self.page(PageKey::of(shard))?;
        Ok(page.and_then(|page| page.kept.get(&shard.shard).copied()))
    }

    /// The shards of a campaign on which a showing is kept.
    pub(super) fn kept_shards(&self, campaign: &[u8; 16]) -> Result<BTreeSet<u64>, DiskError> {
        let mut shards = BTreeSet::new();
        for key in self.pages()?.into_iter().filter(|page| page.campaign == *campaign) {
            shards.extend(self.page(key)?.into_iter().flat_map(|page| page.kept.into_keys()));
        }
        Ok(shards)
    }

    /// Keeps a showing, durably. If it fails, either one may be kept.
    pub(super) fn keep(&self, shard: &ShardKey, showing: KeptShowing, owner: ClaimsOwner) -> Result<(), DiskError> {
        let key = PageKey::of(shard);
        let _lock = self.locked(key.lock_byte(), CLAIMS_PAGE_PATIENCE)?.ok_or_else(|| {
            let (path, seconds) = (self.beneath(LOCK_NAME), CLAIMS_PAGE_PATIENCE.as_secs());
            DiskError::from(ClaimsError::Held { path, shard: shard.shard, seconds })
        })?;
        let mut page = match self.page(key)? {
            Some(page) => page,
            None => {
                self.make_room(owner)?;
                Page { owner: Some(owner), ..Page::default() }
            }
        };
        page.kept.insert(shard.shard, showing);
        self.write(key, page.text(&key.campaign).as_bytes())
    }

    /// Locks a byte of the lock file. `None` if somebody else has it for longer than is waited for.
    fn locked(&self, byte: u64, patience: Duration) -> Result<Option<OwnedFd>, DiskError> {
        let (until, mut pause) = (Instant::now() + patience, LOCK_PAUSE_MIN);
        loop {
            let file = self.lock_file()?;
            loop {
                match self.try_byte(&file, byte) {
                    Ok(true) if self.is_lock_file(&file)? => return Ok(Some(file)),
                    // Somebody removed it by hand.
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(error) if has_no_locks(&error) => {
                        return Err(self.unlockable(error));
                    }
                    Err(error) => return Err(DiskError::call("lock", self.beneath(LOCK_NAME), error)),
                }
                if Instant::now() >= until {
                    return Ok(None);
                }
                std::thread::sleep(pause);
                pause = (pause * 2).min(LOCK_PAUSE_MAX);
            }
            if Instant::now() >= until {
                return Ok(None);
            }
        }
    }

    /// The fault of a lock call that says that there are no locks. Where claims are kept there were
    /// some, and a mover that went on without a claim might publish beside one of them: NFS says
    /// the same while its lock daemon is away, or has too many locks.
    fn unlockable(&self, error: std::io::Error) -> DiskError {
        let path = self.beneath(LOCK_NAME);
        match self.pages() {
            Ok(pages) if pages.is_empty() => ClaimsError::Unlockable { path }.into(),
            Ok(_) => ClaimsError::LocksAway { path, error }.into(),
            Err(failed) => failed,
        }
    }

    /// The pages that stand.
    fn pages(&self) -> Result<Vec<PageKey>, DiskError> {
        let Some(dir) = self.dir()? else { return Ok(Vec::new()) };
        let mut pages = Vec::new();
        each_name(&dir, |name| pages.extend(PageKey::of_name(name)))
            .map_err(|error| DiskError::call("list", self.beneath(b""), error))?;
        Ok(pages)
    }

    fn try_byte(&self, file: &OwnedFd, byte: u64) -> std::io::Result<bool> {
        match self.kernel().refuses_locks() {
            Some(error) => Err(error.into()),
            None => lock::try_lock_byte(file, byte),
        }
    }

    /// Opens the lock file, and makes it and the shelf if they do not stand.
    fn lock_file(&self) -> Result<OwnedFd, DiskError> {
        let path = || self.beneath(LOCK_NAME);
        for _ in 0..LOCK_FILE_TRIES_MAX {
            // `None`: another process removed its last journal, and the shelf with it.
            let Some(dir) = self.make()? else { continue };
            if let Some(file) = opened_in(&dir, LOCK_NAME, OFlags::RDWR, self.beneath(LOCK_NAME))? {
                return Ok(file);
            }
            match self.kernel().create(&dir, LOCK_NAME, OFlags::RDWR, Mode::RUSR | Mode::WUSR) {
                Ok(file) => return Ok(file),
                Err(Errno::EXIST | Errno::NOENT) => {}
                Err(error) => return Err(DiskError::call("create", path(), error)),
            }
        }
        Err(DiskError::call("create", path(), Errno::BUSY))
    }

    /// Whether a file is the one that others would lock now.
    fn is_lock_file(&self, file: &OwnedFd) -> Result<bool, DiskError> {
        let failed = |error| DiskError::call("examine", self.beneath(LOCK_NAME), error);
        let Some(dir) = self.dir()? else { return Ok(false) };
        match statat(&dir, LOCK_NAME, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(place_of(&stat) == place_of(&fstat(file).map_err(failed)?)),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }

    /// Reads a page. `None` if it does not stand.
    fn page(&self, key: PageKey) -> Result<Option<Page>, DiskError> {
        let Some(dir) = self.dir()? else { return Ok(None) };
        let name = key.file_name();
        let Some(file) = opened_in(&dir, &name, OFlags::RDONLY, self.beneath(&name))? else { return Ok(None) };
        let path = || self.beneath(&name);
        let damaged = |why| DiskError::from(ClaimsError::Damaged { path: path(), why });
        let len = len_of(&fstat(&file).map_err(|error| DiskError::call("examine", path(), error))?);
        let len = usize::try_from(len)
            .ok()
            .filter(|len| *len <= CLAIMS_PAGE_BYTES_MAX)
            .ok_or_else(|| damaged("it is too long"))?;
        let (mut text, mut read) = (vec![0; len], 0);
        while read < len {
            match pread(&file, &mut text[read..], read as u64) {
                Ok(0) => return Err(damaged("it is cut off")),
                Ok(bytes) => read += bytes,
                Err(Errno::INTR) => {}
                Err(error) => return Err(DiskError::call("read", path(), error)),
            }
        }
        Page::parse(&text, &key.campaign, key.first).map(Some).map_err(damaged)
    }

    /// Writes a page whole: to another name, synced, renamed; and its directory is synced.
    fn write(&self, key: PageKey, text: &[u8]) -> Result<(), DiskError> {
        let name = key.file_name();
        let failed = |error| DiskError::call("write", self.beneath(&name), error);
        let dir = self.dir()?.ok_or_else(|| failed(Errno::NOENT))?;
        let (kernel, new) = (self.kernel(), [&name[..], NEW].concat());
        // One that a crash left.
        let _ = kernel.unlinkat(&dir, &new);
        let file = kernel.create(&dir, &new, OFlags::WRONLY, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        let mut written = 0;
        while written < text.len() {
            match kernel.pwrite(&file, &text[written..], written as u64) {
                Ok(0) => return Err(failed(Errno::NOSPC)),
                Ok(bytes) => written += bytes,
                Err(Errno::INTR) => {}
                Err(error) => {
                    let _ = kernel.unlinkat(&dir, &new);
                    return Err(failed(error));
                }
            }
        }
        kernel
            .fsync(&file)
            .and_then(|()| kernel.renameat(&dir, &new, &name, Replace::Allowed))
            .and_then(|()| kernel.fsync(&dir))
            .and_then(|()| self.takes_changes())
            .map_err(failed)
    }

    /// Makes room for one more page of an owner, where it has as many as it may, or all have
    /// together: those go that nobody has written to for long, of an owner that has too many its
    /// own.
    fn make_room(&self, owner: ClaimsOwner) -> Result<(), DiskError> {
        let Some(dir) = self.dir()? else { return Ok(()) };
        let mut pages = self.pages()?;
        let (path, days) = (|| self.beneath(b""), |time: Duration| time.as_secs() / (24 * 3600));
        if pages.len() >= PAGES_OF_OWNER_MAX {
            let mut own = pages.clone();
            own.retain(|page| self.owner(&dir, *page) == Some(owner));
            if self.drop_old(&dir, &own, (PAGES_OF_OWNER_MAX, OWN_KEPT_FOR))? >= PAGES_OF_OWNER_MAX {
                let (count, days) = (own.len(), days(OWN_KEPT_FOR));
                return Err(ClaimsError::OwnerFull { path: path(), count, days }.into());
            }
            pages = self.pages()?;
        }
        let count = self.drop_old(&dir, &pages, (PAGES_MAX, KEPT_FOR))?;
        if count < PAGES_MAX {
            return Ok(());
        }
        Err(ClaimsError::Full { path: path(), count, days: days(KEPT_FOR) }.into())
    }

    /// Removes those of some pages that are older than an age, if there are as many as there may
    /// be. Gives how many are left.
    fn drop_old(&self, dir: &OwnedFd, pages: &[PageKey], (most, age): (usize, Duration)) -> Result<usize, DiskError> {
        let mut count = pages.len();
        if count >= most {
            for page in pages {
                count -= usize::from(self.remove_if_old(dir, *page, age)?);
            }
        }
        Ok(count)
    }

    /// The owner of a page. `None`: nobody is noted, or it went or cannot be read: then it counts
    /// for nobody.
    fn owner(&self, dir: &OwnedFd, page: PageKey) -> Option<ClaimsOwner> {
        let name = page.file_name();
        let file = opened_in(dir, &name, OFlags::RDONLY, self.beneath(&name)).ok()??;
        let mut head = [0; CLAIMS_HEAD_BYTES_MAX];
        let read = pread(&file, &mut head[..], 0).ok()?;
        owner_in_head(&head[..read])
    }

    /// Removes a page that nobody has written to for longer than `kept_for`, unless somebody is
    /// about to write it. Returns whether it went.
    fn remove_if_old(&self, dir: &OwnedFd, page: PageKey, kept_for: Duration) -> Result<bool, DiskError> {
        let name = page.file_name();
        let is_old = || {
            let stat = statat(dir, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW).ok()?;
            let written =
                UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(meta_of(&stat).mtime.secs).ok()?))?;
            SystemTime::now().duration_since(written).ok().filter(|age| *age > kept_for)
        };
        if is_old().is_none() {
            return Ok(false);
        }
        let Some(_lock) = self.locked(page.lock_byte(), Duration::ZERO)? else { return Ok(false) };
        Ok(is_old().is_some() && self.kernel().unlinkat(dir, &name).is_ok())
    }

    /// The path of a name in the shelf, for messages.
    fn beneath(&self, name: &[u8]) -> PathText {
        PathText::from([self.bare_name(), b"/", name].concat().as_slice())
    }
}

/// The file whose bytes are locked.
const LOCK_NAME: &[u8] = b"claims.lock";
/// The end of the name of a page.
const SUFFIX: &str = ".claims";
/// The end of the name of a page while it is written.
const NEW: &[u8] = b".new";
/// Bytes below this are locks of shards, and those from there on locks of pages. All are below the
/// largest offset of a file.
const LOCKS_HALF: u64 = 1 << 62;
/// Pages in one shelf at most: a million shards that lie side by side, in 170 MB at the very most.
pub(super) const PAGES_MAX: usize = 4096;
/// A page that nobody has written to for so long may go, if room is needed for another. Its
/// campaign is over, or its movers have claimed nothing of 256 shards for a season.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(90 * 24 * 3600);
/// Pages of one owner at most: a quarter of all, for some 260,000 shards. One client cannot keep
/// the others from being kept.
pub(super) const PAGES_OF_OWNER_MAX: usize = PAGES_MAX / 4;
/// A page of an owner that has as many as it may goes for another of its own, if nobody has written
/// to it for so long: a lease lasts a minute, and no mover of such a shard has been heard of for a
/// week, or its claim is shown once more.
pub(super) const OWN_KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long the lock of a page is waited for. It is held for one write.
pub const CLAIMS_PAGE_PATIENCE: Duration = Duration::from_secs(7);
/// The first pause before a lock is asked for again, ...
const LOCK_PAUSE_MIN: Duration = Duration::from_micros(200);
/// ... and the longest one.
const LOCK_PAUSE_MAX: Duration = Duration::from_millis(20);
/// The number of times that the shelf is made again after another process removed it.
const LOCK_FILE_TRIES_MAX: usize = 128;
