//! What the kernel knows of a TCP connection. Takes descriptors, gives answers; changes nothing.

use std::io;
use std::mem::{MaybeUninit, offset_of, size_of};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use libc::{IPPROTO_TCP, TCP_INFO, getsockopt, socklen_t, tcp_info};

/// How long ago the last payload came in from the network, whether it was read or not; since the connection stood, if none
/// did. In milliseconds, as the kernel counts.
///
/// # Errors
/// What `getsockopt` says; `Unsupported` for a socket that is not TCP, by its words or by ours.
pub fn tcp_quiet(socket: impl AsFd) -> io::Result<Duration> {
    let mut info = MaybeUninit::<tcp_info>::zeroed();
    let mut len = size_of::<tcp_info>() as socklen_t;
    // SAFETY: the pointers are to memory of ours, and `len` is the size of what `info` points to; the kernel writes no more.
    let said = unsafe {
        getsockopt(socket.as_fd().as_raw_fd(), IPPROTO_TCP, TCP_INFO, info.as_mut_ptr().cast(), &raw mut len)
    };
    if said != 0 {
        return Err(io::Error::last_os_error());
    }
    if (len as usize) < offset_of!(tcp_info, tcpi_last_data_recv) + size_of::<u32>() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    // SAFETY: integers alone, so that all zeros, where the kernel wrote nothing, are a value too.
    let info = unsafe { info.assume_init() };
    Ok(Duration::from_millis(info.tcpi_last_data_recv.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    #[test]
    fn data_that_came_in_is_heard_before_it_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listen");
        let mut near = TcpStream::connect(listener.local_addr().expect("addr")).expect("dial");
        let (mut far, _) = listener.accept().expect("accept");
        let begun = Instant::now();
        while tcp_quiet(&near).expect("quiet") < Duration::from_millis(50) {
            assert!(begun.elapsed() < Duration::from_secs(30), "a silent connection was never quiet");
            std::thread::yield_now();
        }
        let sent = Instant::now();
        far.write_all(b"x").expect("send");
        near.peek(&mut [0]).expect("arrived");
        let tick = Duration::from_millis(20);
        assert!(tcp_quiet(&near).expect("quiet") < sent.elapsed() + tick);
        near.read_exact(&mut [0]).expect("read");
    }

    #[test]
    fn what_is_not_tcp_has_no_answer() {
        let (near, _far) = UnixStream::pair().expect("pair");
        assert!(tcp_quiet(&near).is_err());
    }
}
