//! Descriptors that the process began with, beyond the standard ones. Takes their numbers, gives
//! them an owner; opens nothing and knows nothing of what they are.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FileType, fstat};
use rustix::io::{FdFlags, fcntl_setfd};

/// Takes over sockets that whoever started this process passed on, once: a second call gets none.
/// Call it before the process opens anything of its own for good.
///
/// # Errors
/// `InvalidInput` if one is no socket, or a standard descriptor; then none is taken.
pub fn take_sockets(numbers: impl Iterator<Item = RawFd>) -> io::Result<Vec<OwnedFd>> {
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(Vec::new());
    }
    let numbers: Vec<RawFd> = numbers.collect();
    for number in &numbers {
        let refused = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
        if *number <= 2 {
            return Err(refused(format!("descriptor {number} is a standard one")));
        }
        // SAFETY: the borrow is for this call alone, which fails for a number that is not open.
        let is_socket = fstat(unsafe { BorrowedFd::borrow_raw(*number) })
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket);
        if !is_socket {
            return Err(refused(format!("descriptor {number} is no socket")));
        }
    }
    for number in &numbers {
        // What this process starts does not get them.
        // SAFETY: as above.
        fcntl_setfd(unsafe { BorrowedFd::borrow_raw(*number) }, FdFlags::CLOEXEC)?;
    }
    // SAFETY: each is open, was passed to this process, and nothing else in it owns one: the
    // numbers are handed out once, before there are sockets of its own.
    Ok(numbers.into_iter().map(|number| unsafe { OwnedFd::from_raw_fd(number) }).collect())
}

static TAKEN: AtomicBool = AtomicBool::new(false);

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd, IntoRawFd};
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn sockets_are_handed_out_once_and_nothing_else_is() {
        let socket = UnixDatagram::unbound().unwrap().into_raw_fd();
        let taken = take_sockets([socket].into_iter()).unwrap();
        assert_eq!(taken.iter().map(AsRawFd::as_raw_fd).collect::<Vec<_>>(), [socket]);
        assert!(take_sockets([socket].into_iter()).unwrap().is_empty());
        TAKEN.store(false, Ordering::SeqCst);
        let file = tempfile::tempfile().unwrap();
        assert!(take_sockets([file.as_raw_fd()].into_iter()).is_err());
        TAKEN.store(false, Ordering::SeqCst);
        assert!(take_sockets([0].into_iter()).is_err());
    }
}
