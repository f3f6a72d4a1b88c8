//! Locks on files, and on single bytes of them, that belong to an open file description, not to a
//! process: the opening holds the lock, threads of one process exclude each other like processes,
//! and the lock ends with the opening.
//!
//! Takes descriptors, gives answers. Chosen over `flock` for one reason: it can tell whether a file
//! is locked without locking it, so that a look never makes another process believe that the file
//! is in use.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Locks a file that is open for writing, at once. False if somebody else holds it.
///
/// # Errors
/// The error of the system; `Unsupported`, or "no locks available", if the file system has no
/// locks.
pub fn try_lock(fd: impl AsFd) -> io::Result<bool> {
    match set(&fd, libc::F_OFD_SETLK, libc::F_WRLCK) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Locks one byte of a file that is open for writing, at once, whether the file is so long or not.
/// False if somebody else holds it.
///
/// # Errors
/// As [`try_lock`].
pub fn try_lock_byte(fd: impl AsFd, at: u64) -> io::Result<bool> {
    let start = libc::off_t::try_from(at).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    match set_range(&fd, libc::F_OFD_SETLK, libc::F_WRLCK, (start, 1)) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Locks a file that is open for reading, at once, beside others that do the same: it keeps out
/// those who lock it for writing. False if one of those holds it.
///
/// # Errors
/// As [`try_lock`].
pub fn try_share(fd: impl AsFd) -> io::Result<bool> {
    match set(&fd, libc::F_OFD_SETLK, libc::F_RDLCK) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Locks a file that is open for writing, as soon as nobody else holds it.
///
/// # Errors
/// As [`try_lock`].
pub fn lock(fd: impl AsFd) -> io::Result<()> {
    loop {
        match set(&fd, libc::F_OFD_SETLKW, libc::F_WRLCK) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome.map(drop),
        }
    }
}

/// Gives a lock back, even if a child that was forked meanwhile still has the descriptor.
///
/// # Errors
/// The error of the system.
pub fn unlock(fd: impl AsFd) -> io::Result<()> {
    set(&fd, libc::F_OFD_SETLK, libc::F_UNLCK).map(drop)
}

/// Whether somebody else, through another opening, holds the lock of this file.
///
/// # Errors
/// As [`try_lock`].
pub fn is_locked(fd: impl AsFd) -> io::Result<bool> {
    Ok(set(&fd, libc::F_OFD_GETLK, libc::F_WRLCK)? != libc::F_UNLCK)
}

/// Makes one call for the whole file; gives the kind of lock that the system left in the request.
fn set(fd: &impl AsFd, command: libc::c_int, kind: libc::c_int) -> io::Result<libc::c_int> {
    // From the first byte to any end.
    set_range(fd, command, kind, (0, 0))
}

/// The same for so many bytes from one on; zero bytes are all.
fn set_range(
    fd: &impl AsFd,
    command: libc::c_int,
    kind: libc::c_int,
    (start, len): (libc::off_t, libc::off_t),
) -> io::Result<libc::c_int> {
    // SAFETY: the structure holds integers only (and padding), for which zero is a value.
    let mut request: libc::flock = unsafe { std::mem::zeroed() };
    request.l_type = kind as libc::c_short;
    request.l_whence = libc::SEEK_SET as libc::c_short;
    (request.l_start, request.l_len) = (start, len);
    // Zero for the process: no process's but the opening's. SAFETY: the descriptor is open while it
    // is borrowed, and the call reads and writes this one structure, which outlives it.
    let outcome = unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), command, &raw mut request) };
    if outcome == -1 { Err(io::Error::last_os_error()) } else { Ok(libc::c_int::from(request.l_type)) }
}

const _: () = assert!(size_of::<libc::off_t>() == 8, "these locks take 64-bit offsets, whatever the pointers");

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn twice() -> (tempfile::NamedTempFile, File, File) {
        let file = tempfile::NamedTempFile::new().expect("file");
        let (a, b) = (file.reopen().expect("open"), file.reopen().expect("open"));
        (file, a, b)
    }

    #[test]
    fn a_second_opening_is_kept_out_even_in_the_same_process() {
        let (_file, a, b) = twice();
        assert!(!is_locked(&b).expect("ask"));
        assert!(try_lock(&a).expect("free"));
        assert!(!try_lock(&b).expect("held"));
        assert!(is_locked(&b).expect("ask") && !is_locked(&a).expect("one's own is not somebody else's"));
        unlock(&a).expect("unlock");
        assert!(try_lock(&b).expect("free again"));
    }

    #[test]
    fn one_byte_is_locked_and_others_are_not_and_it_goes_with_the_opening() {
        let (_file, a, b) = twice();
        let far = i64::MAX as u64 - 1;
        assert!(try_lock_byte(&a, 7).expect("free") && try_lock_byte(&a, far).expect("free"));
        assert!(!try_lock_byte(&b, 7).expect("held") && !try_lock_byte(&b, far).expect("held"));
        assert!(try_lock_byte(&b, 8).expect("another byte"));
        assert!(try_lock_byte(&b, u64::MAX).is_err());
        drop(a);
        assert!(try_lock_byte(&b, 7).expect("free again"));
    }

    #[test]
    fn a_shared_lock_keeps_out_those_who_write_and_no_others() {
        let (file, a, b) = twice();
        let c = file.reopen().expect("open");
        assert!(try_share(&a).expect("free") && try_share(&b).expect("shared"));
        assert!(!try_lock(&c).expect("held by two"));
        drop(a);
        assert!(!try_lock(&c).expect("held by one"));
        drop(b);
        assert!(try_lock(&c).expect("free"));
        assert!(!try_share(file.reopen().expect("open")).expect("held"));
    }

    #[test]
    fn the_lock_goes_with_the_opening_and_with_no_other() {
        let (file, a, b) = twice();
        assert!(try_lock(&a).expect("free"));
        drop(file.reopen().expect("a third opening"));
        assert!(is_locked(&b).expect("ask"), "closing another opening takes nothing away");
        drop(a);
        assert!(!is_locked(&b).expect("ask"));
    }

    #[test]
    fn asking_takes_nothing_and_waiting_ends_with_the_holder() {
        let (_file, a, b) = twice();
        assert!(!is_locked(&a).expect("ask"));
        assert!(try_lock(&b).expect("asking locked nothing"));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| lock(&a));
            unlock(&b).expect("unlock");
            waiting.join().expect("thread").expect("locked");
        });
        assert!(is_locked(&b).expect("ask"));
    }
}
