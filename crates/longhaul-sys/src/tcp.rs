//! What the kernel knows of a TCP connection. Takes a socket, gives an answer; changes nothing.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// How long the other host has acknowledged nothing, while data is on its way to it; none when nothing is. A host that
/// takes no data for now still acknowledges the kernel's probes; only one that is gone, or not reached, stays silent. (After
/// a pause the time begins before the data left: it means something to those who ask again and again.)
///
/// # Errors
/// What `getsockopt` says, for what is no TCP socket.
pub fn unacknowledged(socket: impl AsFd) -> io::Result<Option<Duration>> {
    let info = info(socket)?;
    Ok((info.tcpi_unacked > 0).then(|| Duration::from_millis(info.tcpi_last_ack_recv.into())))
}

/// How long ago the last payload came in from the network, read or not: since the connection stood, if none did. The kernel's own
/// probes carry none.
///
/// # Errors
/// What `getsockopt` says, for what is no TCP socket.
pub fn quiet(socket: impl AsFd) -> io::Result<Duration> {
    let info = info(socket)?;
    Ok(Duration::from_millis(info.tcpi_last_data_recv.into()))
}

fn info(socket: impl AsFd) -> io::Result<libc::tcp_info> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed; the kernel writes at most `len` bytes, which `info` has.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it holds integers only, for which zeros are a value; an older kernel leaves the last of them so.
    Ok(unsafe { info.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    #[test]
    fn what_was_delivered_is_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (mut far, _) = listener.accept().expect("accepted");
        near.write_all(b"x").expect("sent");
        far.read_exact(&mut [0]).expect("received");
        assert_eq!(unacknowledged(&near).expect("TCP"), None);
    }

    #[test]
    fn data_that_came_in_is_heard_before_it_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (mut far, _) = listener.accept().expect("accepted");
        let begun = std::time::Instant::now();
        while quiet(&near).expect("TCP") < Duration::from_millis(50) {
            assert!(begun.elapsed() < Duration::from_secs(30), "a silent connection was never quiet");
            std::thread::yield_now();
        }
        let sent = std::time::Instant::now();
        far.write_all(b"x").expect("sent");
        near.peek(&mut [0]).expect("arrived");
        assert!(quiet(&near).expect("TCP") < sent.elapsed() + Duration::from_millis(20));
        near.read_exact(&mut [0]).expect("read");
    }

    #[test]
    fn what_is_no_tcp_socket_is_an_error() {
        let (socket, _other) = UnixStream::pair().expect("a pair");
        assert!(unacknowledged(&socket).is_err());
    }
}
