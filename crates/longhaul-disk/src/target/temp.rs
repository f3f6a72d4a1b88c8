//! Temporary names: how they look, and that each goes away with its owner unless it was published.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::limits::RESERVED_PREFIX;
use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

use crate::walk::Dir;

/// A temporary name in the directory of the final one. Dropping it removes the name, best effort.
#[derive(Debug)]
pub(crate) struct Temp {
    dir: Arc<Dir>,
    name: [u8; NAME_BYTES],
    standing: AtomicBool,
}

impl Temp {
    /// Makes something under a fresh random name in `dir`, by `make`; tries again if the name is taken.
    pub(crate) fn make<T>(dir: &Arc<Dir>, mut make: impl FnMut(&[u8]) -> Result<T, Errno>) -> Result<(Temp, T), Errno> {
        for _ in 0..TRIES_MAX {
            let name = random_name()?;
            match make(&name) {
                Ok(made) => return Ok((Temp { dir: Arc::clone(dir), name, standing: AtomicBool::new(true) }, made)),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::EXIST)
    }

    /// Creates a file under a fresh name.
    pub(crate) fn create(dir: &Arc<Dir>, flags: OFlags, mode: Mode) -> Result<(Temp, OwnedFd), Errno> {
        let flags = flags | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Temp::make(dir, |name| openat(dir, name, flags, mode))
    }

    /// The directory.
    pub(crate) fn dir(&self) -> &Arc<Dir> {
        &self.dir
    }

    /// The name in it.
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    /// The name stands no more (it was renamed).
    pub(crate) fn taken(&self) {
        self.standing.store(false, Ordering::Relaxed);
    }

    /// Removes the name, if it stands.
    pub(crate) fn discard(&self) {
        if self.standing.swap(false, Ordering::Relaxed)
            && let Err(error) = unlinkat(&self.dir, self.name(), AtFlags::empty())
        {
            tracing::warn!(name = %String::from_utf8_lossy(&self.name), %error, "cannot remove a temporary file");
        }
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        self.discard();
    }
}

fn random_name() -> Result<[u8; NAME_BYTES], Errno> {
    let mut random = [0; RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(|_| Errno::AGAIN)?;
    let mut name = [b'-'; NAME_BYTES];
    name[..RESERVED_PREFIX.len()].copy_from_slice(RESERVED_PREFIX);
    for (hex, byte) in name[RESERVED_PREFIX.len() + 1..].chunks_exact_mut(2).zip(random) {
        hex[0] = HEX[usize::from(byte >> 4)];
        hex[1] = HEX[usize::from(byte & 15)];
    }
    Ok(name)
}

const HEX: &[u8; 16] = b"0123456789abcdef";
const RANDOM_BYTES: usize = 16;
/// `.longhaul-` and 32 hex digits, whatever the final name: that one may have 255 bytes already.
const NAME_BYTES: usize = RESERVED_PREFIX.len() + 1 + 2 * RANDOM_BYTES;
/// 128 random bits do not collide; a second miss means that something else is wrong.
const TRIES_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_reserved_random_and_short() {
        let (a, b) = (random_name().expect("a"), random_name().expect("b"));
        assert_ne!(a, b);
        assert!(a.starts_with(b".longhaul-") && a.len() == 42);
        assert!(a[10..].iter().all(u8::is_ascii_hexdigit));
    }
}
