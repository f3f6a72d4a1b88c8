//! Everything that strangers can do at once: thousands of silent connections, a thousand a second
//! that say rubbish, and fifty thousand forged first packets of QUIC a second. A client gets in and
//! its file arrives; the bench `flood` says how fast.

use std::net::UdpSocket;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::noise::raise_descriptor_limit;
use super::{assert_sane, assert_serves, daemon_addr};
use crate::fixture::{Site, files};

#[path = "../../benches/flood/attack.rs"]
mod attack;

use attack::{Attack, Waves, captured_initials};

/// Descriptors that a process has.
fn descriptors(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// The most memory that a process ever had, in MiB.
pub(super) fn peak_mib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() / 1024
}

#[test]
#[ignore = "needs the cores to itself: run by .ci/run"]
fn a_flood_of_everything_keeps_no_client_out_and_takes_no_more_than_its_share() {
    raise_descriptor_limit();
    let captured = captured_initials(64);
    assert_eq!(captured.len(), 64, "honest diallers say something");
    let site = Site::new();
    assert_serves(&site, "the start");
    let (addr, pid) = (daemon_addr(&site), site.daemon.pid());
    let before = descriptors(pid);
    let waves = Waves { silent: 10_000, rubbish: 1000, initials: 50_000 };
    let flood = Attack::start(addr, waves, &captured);
    assert!(flood.has_made(10_000, Duration::from_secs(60)), "{:?}", flood.counts());
    files::make(site.client.path("f"), 1, 16 << 20);
    for transport in ["tcp", "quic"] {
        let run = site.client.run(["push", "--json", "--transport", transport, "--if-exists", "replace", "f"]);
        let outcome = run.arg(site.url("f")).finish();
        assert_eq!(outcome.code, 0, "{transport}: {:?}: {outcome}", flood.counts());
    }
    let most = descriptors(pid);
    assert!(most <= before + STRANGERS_MAX, "{most} descriptors, and {before} before: {:?}", flood.counts());
    let (said, heard) = (flood.counts().said.load(Ordering::Relaxed), flood.counts().heard.load(Ordering::Relaxed));
    assert!(flood.counts().initials.load(Ordering::Relaxed) > 10_000, "{:?}", flood.counts());
    assert!(heard <= 3 * said, "{said} bytes were answered with {heard}");
    drop(flood);
    assert!(peak_mib(pid) < PEAK_MIB_MAX, "{} MiB", peak_mib(pid));
    let begun = Instant::now();
    // What the daemon has greeted it keeps for its 10 s.
    while descriptors(pid) > before + 20 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{} descriptors, and {before} before", descriptors(pid));
        thread::sleep(Duration::from_millis(50));
    }
    assert_serves(&site, "a flood");
    assert_sane(&site, "a flood");
}

#[test]
fn an_address_that_was_not_seen_to_answer_hears_no_more_than_three_times_what_it_said() {
    let site = Site::new();
    let captured = captured_initials(8);
    let sockets: Vec<UdpSocket> = captured
        .iter()
        .map(|packet| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.send_to(packet, daemon_addr(&site)).unwrap();
            socket
        })
        .collect();
    // A server says what it has to again and again as nobody answers; after this it has given up.
    let until = Instant::now() + Duration::from_secs(12);
    let mut answered = 0;
    for (socket, packet) in sockets.iter().zip(captured.iter()) {
        let mut heard = 0;
        while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            socket.set_read_timeout(Some(left)).unwrap();
            let Ok(len) = socket.recv(&mut [0; 2048]) else { break };
            heard += len;
        }
        // What came to the others waits in their sockets.
        socket.set_nonblocking(true).unwrap();
        while let Ok(len) = socket.recv(&mut [0; 2048]) {
            heard += len;
        }
        assert!(heard <= 3 * packet.len(), "{} bytes were answered with {heard}", packet.len());
        answered += heard;
    }
    assert!(answered > 0, "it is heard at all");
    assert_serves(&site, "packets that nobody stands behind");
}

/// Descriptors that strangers may have: places for silent connections and handshakes, and some more
/// that are just being closed or that carry the transfer.
const STRANGERS_MAX: usize = 2048 + 2048 + 512;
/// The most memory: buffers of a transfer, and some KiB for each stranger.
const PEAK_MIB_MAX: u64 = 700;
