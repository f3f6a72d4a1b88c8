//! Sockets of this host and datagrams in bulk.

use std::net::{SocketAddr, UdpSocket};
use std::time::Instant;

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
fn what_was_joined_and_dropped_is_counted_datagram_by_datagram() {
    let (near, far) = pair();
    sockopt::set_socket_recv_buffer_size(&far, 4096).expect("taken");
    let mut inbox = Inbox::new(16);
    for _ in 0..50 {
        send_run(&near, &[7; 10_000], 1000).expect("sent");
    }
    let mut kept = 0;
    while inbox.receive(&far).expect("received") > 0 {
        kept += inbox.runs().map(|run| run.datagrams().count() as u32).sum::<u32>();
    }
    send_run(&near, &[7; 10_000], 1000).expect("sent");
    hear(&mut inbox, &far, 10_000);
    assert!(kept < 500 && inbox.dropped() == 500 - kept, "{kept} kept, {} dropped", inbox.dropped());
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
