//! [`ReadRoots`]: the roots of staged files that a commit has read. One that is cut off, however
//! often, does not read them again.
//!
//! In: the path of a file, its identity, and the root of what was read. Out: the root of a file
//! that is the same still, or none. An entry that is lost costs a reading, and nothing else: so
//! nothing is synced, and no failure is told. Must not know how a file is read.

use std::os::fd::OwnedFd;
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_core::RelPath;
use longhaul_core::digest::Hash32;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, pread};

use crate::kernel::Kernel;
use crate::stat::Identity;
use crate::walk::Dir;

/// The roots of staged files that were read, in one file of a holder: `BUCKETS` pages, each with
/// `SLOTS` entries, and holes where nothing was kept. The digest of a path and of the file's
/// identity names the page. In one that is full, an entry gives way.
#[derive(Debug)]
pub struct ReadRoots {
    /// `None`: it could not be opened, and nothing is kept.
    file: Option<OwnedFd>,
    kernel: Kernel,
}

impl ReadRoots {
    /// The roots of a holder that this session has alone.
    pub(super) fn in_holder(holder: &Dir) -> ReadRoots {
        let (kernel, flags) = (holder.kernel().clone(), OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC);
        let opened = match openat(holder, ROOTS, OFlags::RDWR | flags, Mode::empty()) {
            Err(Errno::NOENT) => kernel.create(holder, ROOTS, OFlags::RDWR, Mode::RUSR | Mode::WUSR),
            opened => opened,
        };
        if let Err(error) = &opened {
            tracing::warn!(target: "longhaul::dataset", %error, "roots of staged files are not kept");
        }
        ReadRoots { file: opened.ok(), kernel }
    }

    /// The root of a file that was read before, and is the same still.
    pub fn find(&self, path: &RelPath, is: &Identity) -> Option<Hash32> {
        if is.len < KEPT_FROM_BYTES {
            return None;
        }
        let key = key_of(path, is);
        let page = self.page(&key)?;
        page.chunks_exact(SLOT_BYTES).find(|slot| slot[..KEY_BYTES] == key).and_then(root_of)
    }

    /// Keeps the root of a file that was read, and that was this one before and behind that. One
    /// that is read as fast again, or that may have been written to a moment ago, is not kept.
    pub fn keep(&self, path: &RelPath, is: &Identity, root: &Hash32) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let settled = i64::try_from(now).unwrap_or(i64::MAX).saturating_sub(SETTLED_SECS);
        if is.len < KEPT_FROM_BYTES || is.ctime.secs >= settled || is.mtime.secs >= settled {
            return;
        }
        let key = key_of(path, is);
        let (Some(file), Some(page)) = (&self.file, self.page(&key)) else { return };
        let free = page.chunks_exact(SLOT_BYTES).position(|slot| slot[..KEY_BYTES] == key || root_of(slot).is_none());
        let at = free.unwrap_or(usize::from(key[8]) % SLOTS);
        let mut slot = [0; SLOT_BYTES];
        slot[..KEY_BYTES].copy_from_slice(&key);
        slot[KEY_BYTES..CHECKED_BYTES].copy_from_slice(root);
        let check = check_of(&slot[..CHECKED_BYTES]);
        slot[CHECKED_BYTES..].copy_from_slice(&check);
        let _ = self.kernel.pwrite(file, &slot, page_at(&key) + (at * SLOT_BYTES) as u64);
    }

    /// The page of a key, with zeros where nothing was kept. `None` if it cannot be read.
    fn page(&self, key: &[u8; KEY_BYTES]) -> Option<Vec<u8>> {
        let (mut page, mut read) = (vec![0; SLOTS * SLOT_BYTES], 0);
        while read < page.len() {
            match pread(self.file.as_ref()?, &mut page[read..], page_at(key) + read as u64) {
                Ok(0) => break,
                Ok(bytes) => read += bytes,
                Err(Errno::INTR) => {}
                Err(_) => return None,
            }
        }
        Some(page)
    }
}

/// The name of a version of a file.
fn key_of(path: &RelPath, is: &Identity) -> [u8; KEY_BYTES] {
    let mut hasher = blake3::Hasher::new_derive_key("longhaul 1 root of a staged file");
    for number in [is.len, is.ino, is.mtime.secs.cast_unsigned(), is.ctime.secs.cast_unsigned()] {
        hasher.update(&number.to_le_bytes());
    }
    hasher.update(&is.mtime.nanos.to_le_bytes()).update(&is.ctime.nanos.to_le_bytes()).update(path.as_bytes());
    let mut key = [0; KEY_BYTES];
    key.copy_from_slice(&hasher.finalize().as_bytes()[..KEY_BYTES]);
    key
}

/// Where the page of a key begins.
fn page_at(key: &[u8; KEY_BYTES]) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&key[..8]);
    u64::from_le_bytes(number) % BUCKETS * (SLOTS * SLOT_BYTES) as u64
}

/// The root in a slot. `None` if nothing was kept there, or a crash tore it.
fn root_of(slot: &[u8]) -> Option<Hash32> {
    let (kept, check) = slot.split_at_checked(CHECKED_BYTES)?;
    (check == check_of(kept)).then(|| kept[KEY_BYTES..].try_into().ok())?
}

fn check_of(kept: &[u8]) -> [u8; SLOT_BYTES - CHECKED_BYTES] {
    let mut check = [0; SLOT_BYTES - CHECKED_BYTES];
    let hash = blake3::derive_key("longhaul 1 entry of a root", kept);
    check.copy_from_slice(&hash[..SLOT_BYTES - CHECKED_BYTES]);
    check
}

/// The file in a holder.
pub(super) const ROOTS: &[u8] = b"roots";
/// Pages of the file: it has 1 GiB at most, and roots of 16 million files.
const BUCKETS: u64 = 1 << 18;
/// Entries of a page.
const SLOTS: usize = 64;
/// Bytes of an entry: the key, the root, and a digest of both.
const SLOT_BYTES: usize = 64;
const KEY_BYTES: usize = 24;
const CHECKED_BYTES: usize = KEY_BYTES + 32;
/// Files are kept from this length on: shorter ones are read about as fast as they are found.
const KEPT_FROM_BYTES: u64 = 4 << 20;
/// A file may be written to again within the tick of the clock in which it was changed last, and
/// nothing tells it.
const SETTLED_SECS: i64 = 2;

#[cfg(test)]
mod tests {
    use longhaul_core::Mtime;

    use super::*;
    use crate::destination::base;

    fn identity(len: u64, secs: i64) -> Identity {
        let time = Mtime { secs, nanos: 7 };
        Identity { dev: 1, ino: 2, len, mtime: time, ctime: time }
    }

    #[test]
    fn a_root_is_known_again_for_the_same_version_of_a_large_file_that_is_old_enough() {
        let dir = tempfile::tempdir().expect("scratch");
        let holder = base::named(dir.path(), &Kernel::default()).expect("open");
        let path = |name: &str| RelPath::new(name).expect("a path");
        let (old, young) = (identity(KEPT_FROM_BYTES, 1_000), identity(KEPT_FROM_BYTES, i64::MAX));
        let small = identity(KEPT_FROM_BYTES - 1, 1_000);
        let roots = ReadRoots::in_holder(&holder);
        for is in [&old, &young, &small] {
            roots.keep(&path("a"), is, &[7; 32]);
        }
        let again = ReadRoots::in_holder(&holder);
        assert_eq!(again.find(&path("a"), &old), Some([7; 32]));
        // Its device may have another number behind a restart.
        assert_eq!(again.find(&path("a"), &Identity { dev: 9, ..old }), Some([7; 32]));
        for (name, other) in [
            ("b", old),
            ("a", young),
            ("a", small),
            ("a", Identity { ino: 3, ..old }),
            ("a", Identity { ctime: Mtime { secs: 1_000, nanos: 8 }, ..old }),
        ] {
            assert_eq!(again.find(&path(name), &other), None, "{name} {other:?}");
        }
    }

    #[test]
    fn an_entry_that_a_crash_tore_is_none_and_is_written_anew() {
        let dir = tempfile::tempdir().expect("scratch");
        let holder = base::named(dir.path(), &Kernel::default()).expect("open");
        let (path, is) = (RelPath::new("a").expect("a path"), identity(KEPT_FROM_BYTES, 1_000));
        let roots = ReadRoots::in_holder(&holder);
        roots.keep(&path, &is, &[7; 32]);
        let at = page_at(&key_of(&path, &is));
        let file = roots.file.as_ref().expect("open");
        roots.kernel.pwrite(file, &[1], at + KEY_BYTES as u64).expect("written");
        assert_eq!(roots.find(&path, &is), None);
        roots.keep(&path, &is, &[8; 32]);
        assert_eq!(roots.find(&path, &is), Some([8; 32]));
    }
}
