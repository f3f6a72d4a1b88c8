//! The kernel's counters of a TCP connection, and the limit of its sending rate. Takes a socket,
//! gives an answer.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

/// A connection's counters as a sender, at one moment, as TCP has them. Bytes are payload; times
/// add up since the connection was opened. A kernel too old for a counter leaves it at zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionState {
    /// Payload that the other host has acknowledged (and one byte for the opening, at the end that
    /// dialled).
    pub acked: u64,
    /// Payload that was received.
    pub received: u64,
    /// Segments that the other host has, also those behind a gap that holds back
    /// [`ConnectionState::acked`]. Wraps around.
    pub delivered_segments: u32,
    /// Payload that was sent, including repeats.
    pub sent: u64,
    /// Payload that was sent again.
    pub resent: u64,
    /// Payload that waits in the socket and was not sent yet.
    pub unsent: u32,
    /// Segments that are on their way, or lost, and not acknowledged.
    pub unacked_segments: u32,
    /// How often in a row the retransmission timer ran out, so that the oldest segment was sent
    /// again. 0 as soon as the other host acknowledges anything.
    pub timeouts: u8,
    /// The shortest recent round trip. `None` before the first.
    pub min_rtt: Option<Duration>,
    /// The smoothed round trip.
    pub rtt: Duration,
    /// The smoothed mean deviation of round trips (RFC 6298).
    pub rtt_deviation: Duration,
    /// The largest packet that the way to the other host takes, as far as the kernel knows, in
    /// bytes. 0 if it does not say.
    pub path_mtu: u32,
    /// Payload of one segment.
    pub segment_bytes: u32,
    /// Time in which there was something to send or to be acknowledged.
    pub busy: Duration,
    /// Part of [`ConnectionState::busy`] in which the other host's window was the limit.
    pub receiver_limited: Duration,
    /// Part of [`ConnectionState::busy`] in which this host's send buffer was the limit.
    pub buffer_limited: Duration,
}

/// The counters now.
///
/// # Errors
/// The error of `getsockopt`, as for a descriptor that is no TCP socket.
pub fn state(socket: impl AsFd) -> io::Result<ConnectionState> {
    let info = info(socket)?;
    // The kernel gives its largest number for "never".
    let min_rtt = (info.tcpi_min_rtt != u32::MAX && info.tcpi_min_rtt != 0)
        .then(|| Duration::from_micros(info.tcpi_min_rtt.into()));
    Ok(ConnectionState {
        acked: info.tcpi_bytes_acked,
        received: info.tcpi_bytes_received,
        delivered_segments: info.tcpi_delivered,
        sent: info.tcpi_bytes_sent,
        resent: info.tcpi_bytes_retrans,
        unsent: info.tcpi_notsent_bytes,
        unacked_segments: info.tcpi_unacked,
        timeouts: info.tcpi_retransmits,
        min_rtt,
        rtt: Duration::from_micros(info.tcpi_rtt.into()),
        rtt_deviation: Duration::from_micros(info.tcpi_rttvar.into()),
        path_mtu: info.tcpi_pmtu,
        segment_bytes: info.tcpi_snd_mss,
        busy: Duration::from_micros(info.tcpi_busy_time),
        receiver_limited: Duration::from_micros(info.tcpi_rwnd_limited),
        buffer_limited: Duration::from_micros(info.tcpi_sndbuf_limited),
    })
}

/// Limits the rate at which a connection sends, in bytes of payload a second. `None` removes the
/// limit. TCP paces by itself: it needs no queueing discipline for that.
///
/// # Errors
/// The error of `setsockopt`.
pub fn set_pace(socket: impl AsFd, bytes_per_s: Option<u64>) -> io::Result<()> {
    let rate = bytes_per_s.map_or(u64::MAX, |rate| rate.clamp(1, u64::MAX - 1));
    // SAFETY: the descriptor is open while it is borrowed; the kernel reads the eight bytes of
    // `rate`, which it takes as the long form of this option.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const rate).cast(),
            size_of::<u64>() as libc::socklen_t,
        )
    };
    if result != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives a connection room to receive this many unread bytes, as far as the host allows. By itself
/// the kernel gives a new connection 64 KiB, and more a round trip after that was read: too late
/// for a sender that doubles its bytes on the way. Autotuning continues from there (setting the
/// size of the buffer would end it).
///
/// # Errors
/// The error of `setsockopt`.
pub fn make_room(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    // A low-water mark of this size makes the kernel give that room, which stays when the mark is
    // taken back.
    for least in [bytes.min(i32::MAX as u32), 1] {
        // SAFETY: the descriptor is open while it is borrowed; the kernel reads the four bytes of
        // `least`.
        let result = unsafe {
            libc::setsockopt(
                socket.as_fd().as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVLOWAT,
                (&raw const least).cast(),
                size_of::<u32>() as libc::socklen_t,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// How long the other host has acknowledged nothing, while data is on its way to it. `None` if no
/// data is. A host that takes no data for now still acknowledges the kernel's probes; only one that
/// is gone, or not reached, stays silent. (After a pause the time begins before the data left, so
/// it is meaningful only if it is asked for repeatedly.)
///
/// # Errors
/// The error of `getsockopt`, as for a descriptor that is no TCP socket.
pub fn unacknowledged(socket: impl AsFd) -> io::Result<Option<Duration>> {
    let info = info(socket)?;
    Ok((info.tcpi_unacked > 0).then(|| Duration::from_millis(info.tcpi_last_ack_recv.into())))
}

/// How long ago the last payload came in from the network, read or not: since the connection was
/// opened, if none did. The kernel's own probes carry none.
///
/// # Errors
/// The error of `getsockopt`, as for a descriptor that is no TCP socket.
pub fn quiet(socket: impl AsFd) -> io::Result<Duration> {
    let info = info(socket)?;
    Ok(Duration::from_millis(info.tcpi_last_data_recv.into()))
}

fn info(socket: impl AsFd) -> io::Result<libc::tcp_info> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the descriptor is open while it is borrowed; the kernel writes at most `len` bytes,
    // which `info` has.
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
    // SAFETY: it holds integers only, for which zeros are a value; an older kernel leaves the last
    // of them so.
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
    fn what_was_sent_and_acknowledged_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (mut far, _) = listener.accept().expect("accepted");
        near.write_all(&[7; 5000]).expect("sent");
        far.read_exact(&mut [0; 5000]).expect("received");
        let begun = std::time::Instant::now();
        while state(&near).expect("TCP").acked < 5000 {
            assert!(begun.elapsed() < Duration::from_secs(30), "received and never acknowledged");
            std::thread::yield_now();
        }
        let state = state(&near).expect("TCP");
        // The kernel counts the opening of the connection as a byte.
        assert!((5000..=5001).contains(&state.acked), "{state:?}");
        assert!(state.delivered_segments > 0, "{state:?}");
        assert_eq!((state.sent, state.resent, state.unsent), (5000, 0, 0));
        assert!(state.min_rtt.is_some_and(|rtt| rtt < Duration::from_secs(1)), "{state:?}");
        assert!(state.path_mtu > state.segment_bytes && state.rtt_deviation < Duration::from_secs(1), "{state:?}");
    }

    #[test]
    fn a_paced_connection_takes_its_time_and_a_freed_one_does_not() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (mut far, _) = listener.accept().expect("accepted");
        let drain = std::thread::spawn(move || std::io::copy(&mut far, &mut std::io::sink()).expect("received"));
        set_pace(&near, Some(4_000_000)).expect("taken");
        let begun = std::time::Instant::now();
        let acked = |bytes| {
            while state(&near).expect("TCP").acked < bytes {
                std::thread::yield_now();
            }
        };
        (&near).write_all(&[7; 2_000_000]).expect("sent");
        acked(2_000_000);
        // Half a second at the rate; the kernel lets the first burst through.
        assert!(begun.elapsed() > Duration::from_millis(250), "{:?}", begun.elapsed());
        set_pace(&near, None).expect("taken");
        near.write_all(&[7; 2_000_000]).expect("sent");
        drop(near);
        assert_eq!(drain.join().expect("ran"), 4_000_000);
    }

    #[test]
    fn room_is_made_and_kept_and_nobody_waits_for_it_to_fill() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut near = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (mut far, _) = listener.accept().expect("accepted");
        let room = || rustix::net::sockopt::socket_recv_buffer_size(&near).expect("a socket");
        let before = room();
        make_room(&near, 1 << 20).expect("taken");
        assert!(room() > before && room() >= 1 << 20, "{before} {}", room());
        far.write_all(b"x").expect("sent");
        near.read_exact(&mut [0]).expect("one byte is enough");
    }

    #[test]
    fn what_is_no_tcp_socket_is_an_error() {
        let (socket, _other) = UnixStream::pair().expect("a pair");
        assert!(unacknowledged(&socket).is_err());
        assert!(state(&socket).is_err());
    }
}
