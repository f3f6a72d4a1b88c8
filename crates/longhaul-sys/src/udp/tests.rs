//! Sockets of this host and datagrams in bulk.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Instant;

use super::message::{Control, empty_header};
use super::*;

fn bound() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").expect("a port")
}

/// Two sockets that are connected to each other.
fn pair() -> (UdpSocket, UdpSocket) {
    let (near, far) = (bound(), bound());
    near.connect(far.local_addr().expect("bound")).expect("connected");
    far.connect(near.local_addr().expect("bound")).expect("connected");
    for socket in [&near, &far] {
        prepare(socket).expect("taken");
    }
    (near, far)
}

/// Datagrams until there are as many bytes: their lengths, and how many runs they came in.
fn hear(inbox: &mut Inbox, socket: &UdpSocket, bytes: usize) -> (Vec<Vec<u8>>, usize) {
    let (mut heard, mut runs, begun) = (Vec::new(), 0, Instant::now());
    while heard.iter().map(Vec::len).sum::<usize>() < bytes {
        assert!(begun.elapsed() < Duration::from_secs(30), "sent and never received");
        wait(socket, Readiness::Incoming, Duration::from_millis(100)).expect("a socket");
        runs += inbox.receive(socket).expect("received");
        heard.extend(inbox.runs().flat_map(|run| run.datagrams().map(<[u8]>::to_vec).collect::<Vec<_>>()));
    }
    (heard, runs)
}

/// Bytes of which each datagram of a thousand begins with its own number.
fn numbered(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at / 1000) as u8).collect()
}

#[test]
fn a_run_leaves_with_one_call_and_comes_as_the_datagrams_that_it_was_cut_into() {
    let (near, far) = pair();
    let run = numbered(40_300);
    assert_eq!(send_run(&near, &run, 1000).expect("sent"), Sent::Taken);
    let (heard, runs) = hear(&mut Inbox::new(16), &far, run.len());
    assert_eq!(heard.iter().map(Vec::len).collect::<Vec<_>>(), [&[1000; 40][..], &[300]].concat());
    assert_eq!(heard.concat(), run);
    assert!(runs < 41, "datagrams in a row come together");
}

#[test]
fn where_the_kernel_does_not_cut_it_says_so_and_datagrams_go_one_by_one() {
    let (near, far) = pair();
    // A socket without checksums cannot have them computed for each part.
    set(near.as_fd(), libc::SOL_SOCKET, libc::SO_NO_CHECK, 1).expect("taken");
    let run = numbered(40_300);
    assert_eq!(send_run(&near, &run, 1000).expect("sent"), Sent::NotCut);
    assert_eq!(send_run(&near, &run[..1000], 1000).expect("sent"), Sent::Taken, "one datagram needs no cut");
    assert_eq!(send_each(&near, &run[1000..], 1000).expect("sent"), (40, Sent::Taken));
    let (heard, _) = hear(&mut Inbox::new(4), &far, run.len());
    assert_eq!((heard.len(), heard.concat()), (41, run));
}

#[test]
fn more_datagrams_than_one_call_takes_are_sent_by_several() {
    let (near, far) = pair();
    let run = numbered(2 * Gather::DATAGRAMS * 10 + 5);
    assert_eq!(send_each(&near, &run, 10).expect("sent"), (2 * Gather::DATAGRAMS + 1, Sent::Taken));
    assert_eq!(hear(&mut Inbox::new(16), &far, run.len()).0.concat(), run);
}

#[test]
fn what_the_buffer_had_no_room_for_is_counted() {
    let (near, far) = pair();
    sockopt::set_socket_recv_buffer_size(&far, 4096).expect("taken");
    let mut inbox = Inbox::new(16);
    for _ in 0..100 {
        send_run(&near, &[7; 1000], 1000).expect("sent");
    }
    let mut kept = 0;
    while inbox.receive(&far).expect("received") > 0 {
        kept += inbox.runs().map(|run| run.datagrams().count() as u32).sum::<u32>();
    }
    assert_eq!(inbox.dropped(), 0, "what was kept came before what was not");
    // The next one that has room tells of all before.
    send_run(&near, &[7; 1000], 1000).expect("sent");
    hear(&mut inbox, &far, 1000);
    assert!(kept < 100 && inbox.dropped() == 100 - kept, "{kept} kept, {} dropped", inbox.dropped());
}

#[test]
fn a_datagram_came_when_it_reached_the_socket_and_not_when_it_was_taken() {
    let (near, far) = pair();
    let (mut inbox, begun) = (Inbox::new(16), Instant::now());
    // The kernel begins to stamp what comes a little after it is asked to.
    loop {
        assert!(begun.elapsed() < Duration::from_secs(10), "no stamps");
        let before = Instant::now();
        send_run(&near, b"x", 1000).expect("sent");
        let sent = Instant::now();
        // This thread has other things to do.
        while sent.elapsed() < Duration::from_millis(20) {
            std::thread::yield_now();
        }
        send_run(&near, b"y", 1000).expect("sent");
        hear(&mut inbox, &far, 2);
        let came: Vec<_> = inbox.runs().map(|run| run.came).collect();
        let apart = Duration::from_millis(1);
        if came[0] < sent + apart {
            assert!(came[0] + apart > before && came[1] + apart > sent + Duration::from_millis(20), "{came:?}");
            break;
        }
    }
}

#[test]
fn a_clock_that_was_set_makes_no_datagram_come_before_the_socket_was_empty() {
    let (emptied, ms) = (Instant::now(), Duration::from_millis);
    for (waited, want) in [(0, 20), (5, 15), (20, 0), (21, 0), (u64::MAX, 0)] {
        assert_eq!(inbox::came_at(emptied + ms(20), ms(waited), emptied), emptied + ms(want), "{waited} ms");
    }
}

#[test]
fn marks_are_sent_and_told_over_either_family() {
    for any in ["127.0.0.1:0", "[::1]:0"] {
        let (near, far) = (UdpSocket::bind(any).expect("a port"), UdpSocket::bind(any).expect("a port"));
        near.connect(far.local_addr().expect("bound")).expect("connected");
        prepare(&far).expect("taken");
        for (class, want) in [(0, Mark::Deaf), (2, Mark::Capable), (4, Mark::Deaf), (7, Mark::Congested)] {
            set_class(&near, class).expect("taken");
            send_run(&near, b"x", 1000).expect("sent");
            let mut inbox = Inbox::new(1);
            hear(&mut inbox, &far, 1);
            assert_eq!(inbox.runs().next().map(|run| run.mark), Some(want), "{any} {class}");
        }
    }
}

/// The next datagrams: the class of each, where it comes from, and its length.
fn hear_classes(socket: &UdpSocket, count: usize) -> Vec<(u8, IpAddr, usize)> {
    let next = |_| {
        let (mut bytes, mut control) = ([0_u8; 2000], Control::empty());
        assert!(wait(socket, Readiness::Incoming, Duration::from_secs(30)).expect("a socket"), "sent");
        let from = socket.peek_from(&mut bytes).expect("a datagram").1.ip().to_canonical();
        let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let mut header = empty_header();
        header.msg_iov = &raw mut vector;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr();
        header.msg_controllen = Control::BYTES as _;
        // SAFETY: the socket is open; `header` names buffers that outlive the call, with their
        // lengths.
        let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) };
        let mut class = 0;
        control.values(Control::BYTES, |level, kind, data| {
            if [(libc::IPPROTO_IP, libc::IP_TOS), (libc::IPPROTO_IPV6, libc::IPV6_TCLASS)].contains(&(level, kind)) {
                // One byte, or a number that has no other.
                class = data.iter().fold(0, |all, byte| all | byte);
            }
        });
        (class, from, usize::try_from(len).expect("a length"))
    };
    (0..count).map(next).collect()
}

#[test]
fn a_run_has_its_own_class_and_source_whatever_the_others_of_its_socket_have() {
    for (near, far, from) in [
        ("127.0.0.1:0", "127.0.0.1:0", None),
        ("0.0.0.0:0", "127.0.0.1:0", Some("127.0.0.2")),
        ("[::1]:0", "[::1]:0", Some("::1")),
        ("[::]:0", "127.0.0.1:0", None),
        ("[::]:0", "127.0.0.1:0", Some("127.0.0.3")),
        ("[::]:0", "127.0.0.1:0", Some("::ffff:127.0.0.4")),
    ] {
        let (near, far) = (UdpSocket::bind(near).expect("a port"), UdpSocket::bind(far).expect("a port"));
        let (mut to, is_v6) = (far.local_addr().expect("bound"), is_ipv6(near.as_fd()).expect("a socket"));
        set(far.as_fd(), libc::IPPROTO_IP, libc::IP_RECVTOS, 1).expect("taken");
        if let (IpAddr::V4(v4), true) = (to.ip(), is_v6) {
            to.set_ip(v4.to_ipv6_mapped().into());
        } else if is_v6 {
            set(far.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1).expect("taken");
        }
        let from: Option<IpAddr> = from.map(|from| from.parse().expect("an address"));
        let bytes = numbered(2500);
        for class in [4, 6, 0] {
            let run = ClassedRun { bytes: &bytes, datagram_bytes: 1000, to, from, class };
            assert_eq!(send_classed(&near, &run).expect("sent"), Sent::Taken, "{run:?}");
            let from = from.unwrap_or(to.ip()).to_canonical();
            assert_eq!(hear_classes(&far, 3), [1000, 1000, 500].map(|len| (class, from, len)), "{run:?}");
            assert_eq!(send_classed(&near, &ClassedRun { bytes: b"x", ..run }).expect("sent"), Sent::Taken);
            assert_eq!(hear_classes(&far, 1), [(class, from, 1)], "one datagram: {run:?}");
            near.send_to(b"usual", to).expect("sent");
            assert_eq!(hear_classes(&far, 1)[0].0, 0, "{run:?}");
        }
    }
}

#[test]
fn nothing_to_receive_is_no_error_and_nobody_there_is_no_end() {
    let (near, far) = pair();
    let mut inbox = Inbox::new(1);
    assert_eq!(inbox.receive(&near).expect("nothing"), 0);
    assert!(!wait(&near, Readiness::Incoming, Duration::ZERO).expect("a socket"));
    assert!(wait(&near, Readiness::Outgoing, Duration::ZERO).expect("a socket"), "it has room");
    drop(far);
    // The first is refused by a note that the next call, whichever it is, hears of.
    send_run(&near, b"x", 1000).expect("sent");
    assert_eq!(send_run(&near, b"x", 1000).expect("sent"), Sent::Taken);
    assert_eq!(inbox.receive(&near).expect("a note"), 0);
    assert_eq!(send_run(&near, &[0; 65_508], 65_508).expect("sent"), Sent::TooLong);
}

#[test]
fn a_note_that_nobody_was_there_costs_no_datagram_that_is_sent_later() {
    for cuts in [true, false] {
        let (near, far) = pair();
        let addr = far.local_addr().expect("bound");
        drop(far);
        send_run(&near, b"x", 1000).expect("sent");
        let far = UdpSocket::bind(addr).expect("the same port");
        prepare(&far).expect("taken");
        let run = numbered(40_300);
        if cuts {
            assert_eq!(send_run(&near, &run, 1000).expect("sent"), Sent::Taken);
        } else {
            assert_eq!(send_each(&near, &run, 1000).expect("sent"), (41, Sent::Taken));
        }
        assert_eq!(hear(&mut Inbox::new(16), &far, run.len()).0.concat(), run);
    }
}

#[test]
fn only_an_error_that_stays_is_that_of_the_call() {
    let left = [libc::EMSGSIZE, libc::ECONNREFUSED, libc::EHOSTUNREACH, libc::EMSGSIZE];
    for (notes, own, want) in [
        (0, Some(libc::EAGAIN), Ok(Sent::Full)),
        (1, None, Ok(Sent::Taken)),
        (NOTES_PASSED, None, Ok(Sent::Taken)),
        (1, Some(libc::EMSGSIZE), Ok(Sent::TooLong)),
        (1, Some(libc::EBADF), Err(Some(libc::EBADF))),
    ] {
        let mut errors = left[..notes].iter().copied().map(Some).chain(std::iter::repeat(own));
        let sent = past_notes(|| match errors.next().flatten() {
            Some(code) => Err(io::Error::from_raw_os_error(code)),
            None => Ok(()),
        });
        assert_eq!(outcome(sent).map_err(|e| e.raw_os_error()), want, "{notes} {own:?}");
    }
}

/// Another socket at the same address.
fn second(addr: SocketAddr) -> std::os::fd::OwnedFd {
    use rustix::net::{AddressFamily, SocketType, bind, socket};
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).expect("a socket");
    share_address(&socket).expect("taken");
    bind(&socket, &addr).expect("shared");
    socket
}

#[test]
fn a_connected_socket_takes_its_peers_datagrams_and_the_first_all_others() {
    let first = bound();
    let addr = first.local_addr().expect("bound");
    share_address(&first).expect("taken");
    let strangers: Vec<_> = (0..32).map(|_| bound()).collect();
    let peer = bound();
    for stranger in strangers.iter().chain([&peer]) {
        stranger.connect(addr).expect("connected");
    }
    let lane = second(addr);
    keep_first(&lane).expect("the address is shared");
    let (mut at_first, mut at_lane) = (Inbox::new(16), Inbox::new(16));
    let knock = || strangers.iter().for_each(|stranger| assert_eq!(stranger.send(b"?").expect("sent"), 1));
    // The lane's socket is not connected yet.
    knock();
    peer.send(b"first").expect("sent");
    assert_eq!(hear(&mut at_first, &first, 32 + 5).0.len(), 33);
    rustix::net::connect(&lane, &peer.local_addr().expect("bound")).expect("connected");
    knock();
    peer.send(b"second").expect("sent");
    assert_eq!(hear(&mut at_first, &first, 32).0.concat(), [b'?'; 32]);
    let lane = UdpSocket::from(lane);
    assert_eq!(hear(&mut at_lane, &lane, 6).0.concat(), b"second");
    assert_eq!((at_first.receive(&first).expect("open"), at_lane.receive(&lane).expect("open")), (0, 0));
    // And it answers from the address that the peer knows.
    lane.send(b"reply").expect("sent");
    assert_eq!(peer.recv(&mut [0; 8]).expect("received"), 5);
}
