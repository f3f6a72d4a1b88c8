//! The marks of what leaves a host: the payload of a polite session is of less importance than
//! anybody else's to the routers on its way (DSCP LE, RFC 8622), and no other session's is.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use longhaul_wan::Host as WanHost;

use super::*;
use crate::hostile::forgery::sniff::{Seen, Sniffer};

const PATH: &str = "rate=200Mbit/s,rtt=10ms";
const LEN: usize = 4 * MIB;
/// DSCP LE, in the upper six bits of the class.
const LOWER_EFFORT: u8 = 1 << 2;
/// The numbers of these protocols in a header of IP.
const ICMP: u8 = 1;
const ICMP6: u8 = 58;

/// Bytes of the packets that left a host, by their class: IPv4's TOS, IPv6's traffic class.
type Classes = BTreeMap<u8, usize>;

/// Runs something, and looks at what leaves this host meanwhile.
fn looking_at<T>(host: &WanHost, run: impl FnOnce() -> T) -> (Classes, T) {
    let addresses = [Some(IpAddr::from(host.address(0))), host.address6(0).map(IpAddr::from)];
    let mut sniffer = host.run(|| Sniffer::open(Seen::Both)).unwrap().unwrap();
    let (over, begun) = (AtomicBool::new(false), Instant::now());
    thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut classes = Classes::new();
            while !over.load(Ordering::Relaxed) && begun.elapsed() < Duration::from_secs(120) {
                let Some(packet) = sniffer.next_packet(Duration::from_millis(20)).unwrap() else { continue };
                let Some((from, class)) = source_and_class(packet) else { continue };
                if addresses.contains(&Some(from)) {
                    *classes.entry(class).or_default() += packet.len();
                }
            }
            classes
        });
        let ran = run();
        over.store(true, Ordering::Relaxed);
        (looks.join().unwrap(), ran)
    })
}

/// The source of a packet, and its class. `None` if it is none of IP's, or a note of the system
/// itself, as that a port has nobody any more, which it gives a class of its own.
fn source_and_class(packet: &[u8]) -> Option<(IpAddr, u8)> {
    match packet.first()? >> 4 {
        4 if *packet.get(9)? == ICMP => None,
        6 if *packet.get(6)? == ICMP6 => None,
        4 => Some((<[u8; 4]>::try_from(packet.get(12..16)?).ok()?.into(), packet[1])),
        6 => Some((<[u8; 16]>::try_from(packet.get(8..24)?).ok()?.into(), packet[0] << 4 | packet[1] >> 4)),
        _ => None,
    }
}

/// Moves a file with these options, and gives the classes of what its sender sent.
fn classes(far: &Far, direction: Direction, options: &[&str]) -> Classes {
    let (run, [near, there]) = moving(far, direction, LEN / MIB, &[&["--if-exists", "replace"], options].concat());
    let sender = if direction == Direction::Push { far.wan.near() } else { far.wan.far() };
    let (classes, outcome) = looking_at(sender, || run.finish());
    assert_eq!(outcome.code, 0, "{outcome}\n{}", far.daemon.log());
    tree::assert_same(&Tree::of(&near), &Tree::of(&there), &outcome);
    [near, there].iter().for_each(|file| std::fs::remove_file(file).unwrap());
    classes
}

/// Sees that nearly all bytes had this class, which is all that ever has DSCP LE.
fn assert_class(classes: &Classes, class: u8, case: &dyn std::fmt::Debug) {
    let of = |wanted: &dyn Fn(u8) -> bool| -> usize {
        classes.iter().filter(|(class, _)| wanted(**class)).map(|(_, bytes)| bytes).sum()
    };
    let dscp = |class: u8| class >> 2;
    assert!(of(&|seen| seen == class) > LEN / 2, "{case:?}: {class} in {classes:?}");
    // Handshakes and control belong to everybody's traffic.
    let other = of(&|seen| dscp(seen) != dscp(class));
    let other_max = if dscp(class) == 0 { 0 } else { LEN / 10 };
    assert!(other <= other_max, "{case:?}: {class} in {classes:?}");
}

/// Moves files over a transport whose packets take part in congestion marks or not.
fn marks_what_is_polite(transport: &str, mark: u8) {
    let far = Far::new(PATH);
    for direction in [Direction::Push, Direction::Pull] {
        for (share, dscp) in [("polite", LOWER_EFFORT), ("fair", 0)] {
            let seen = classes(&far, direction, &["--transport", transport, "--share", share]);
            assert_class(&seen, dscp | mark, &(transport, direction, share));
        }
    }
    let wan = wan(PATH, &[]);
    // A kernel without IPv6 has nothing to mark.
    let Some(at) = wan.far().address6(0) else { return };
    let far = Far::at(format_args!("[{at}]"), wan, "");
    for direction in [Direction::Push, Direction::Pull] {
        let seen = classes(&far, direction, &["--transport", transport, "--share", "polite"]);
        assert_class(&seen, LOWER_EFFORT | mark, &(transport, direction, "IPv6"));
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn over_tcp_the_payload_of_a_polite_session_alone_is_marked() {
    marks_what_is_polite("tcp", 0);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn over_udp_the_payload_of_a_polite_session_alone_is_marked() {
    marks_what_is_polite("udp", 2);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn over_quic_the_payload_of_a_polite_session_alone_is_marked() {
    marks_what_is_polite("quic", 2);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn of_two_sessions_at_the_port_of_a_daemon_the_polite_one_alone_is_marked() {
    let far = Far::new(PATH);
    files::make(far.root.join("f"), 1, LEN);
    let (seen, outcomes) = looking_at(far.wan.far(), || {
        let shares = ["polite", "fair"];
        let pull = |share| far.run("pull").args(["--transport", "quic", "--share", share]);
        let running = shares.map(|share| pull(share).arg(far.daemon.url("data/f")).arg(share).start());
        running.map(Running::finish)
    });
    for outcome in outcomes {
        assert_eq!(outcome.code, 0, "{outcome}\n{}", far.daemon.log());
    }
    for class in [LOWER_EFFORT | 2, 2] {
        let bytes = seen.get(&class).copied().unwrap_or_default();
        // More may be of either: what a busy machine is late with is sent again.
        assert!(bytes > LEN / 10 * 9, "{class}: {seen:?}");
    }
}
