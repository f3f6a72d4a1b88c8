//! Connections that are no sessions: rubbish, other protocols, half a handshake, silence, by the
//! hundred. Honest clients get in.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use longhaul_core::LaneId;
use longhaul_net::{Identity, LaneOptions, LaneStream, NetErrorKind, SAFE_MAGIC};
use longhaul_proto::wire::message::Request;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::peer::{Client, hello, plain_opening};
use super::proxy::{Kind, Proxy, Way};
use super::{assert_serves, daemon_addr};
use crate::fixture::{Site, files};

/// The bytes that are said on a connection; it is cut off after some of them.
fn noises() -> Vec<(&'static str, Vec<u8>)> {
    let hello = client_hello();
    let mut broken = hello.clone();
    let middle = broken.len() / 2;
    broken[middle..].fill(0x41);
    vec![
        ("nothing", vec![]),
        ("a web browser", b"GET / HTTP/1.1\r\nHost: storage\r\n\r\n".to_vec()),
        ("a mail client", b"EHLO me\r\n".to_vec()),
        ("a shell user", b"SSH-2.0-OpenSSH_9.6\r\n".to_vec()),
        ("zeros", vec![0; 5000]),
        ("random bytes", files::bytes(7, 5000)),
        ("the first byte of TLS", vec![0x16]),
        ("TLS of another kind", [&[0x16, 3, 1, 2, 0][..], &files::bytes(8, 512)].concat()),
        ("an endless record", [&[0x16, 3, 1, 0xff, 0xff][..], &[1; 40_000]].concat()),
        ("half a client hello", hello[..hello.len() / 2].to_vec()),
        ("a client hello and no more", hello),
        ("a broken client hello", broken),
        ("half a magic", SAFE_MAGIC[..4].to_vec()),
        ("a lane and no more", SAFE_MAGIC.to_vec()),
        ("half an opening", [&SAFE_MAGIC[..], &[9; 10]].concat()),
        ("a lane of no session", [&SAFE_MAGIC[..], &plain_opening([1; 16], LaneId(0), &[2; 16])].concat()),
        ("a lane with rubbish", [&SAFE_MAGIC[..], &files::bytes(9, 5000)].concat()),
    ]
}

/// The first bytes of an honest client.
pub(super) fn client_hello() -> Vec<u8> {
    let site = Site::new();
    let (said, hear) = std::sync::mpsc::channel();
    let proxy = Proxy::start(daemon_addr(&site), move |kind, way| {
        let said = said.clone();
        (kind == Kind::Control && way == Way::ToDaemon)
            .then(|| -> Box<dyn super::Meddler> { Box::new(move |bytes: &mut Vec<u8>| drop(said.send(bytes.clone()))) })
    });
    let url = format!("lh://{}/data/", proxy.addr());
    site.client.run(["ls", "--peer-key", site.daemon.key(), &url]).succeed();
    hear.recv().unwrap()
}

fn dial(site: &Site, words: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(daemon_addr(site)).unwrap();
    // The daemon may have heard enough before all was said.
    let _ = stream.write_all(words);
    stream
}

#[test]
fn who_does_not_speak_longhaul_is_cut_off_in_time_and_hurts_nobody() {
    let site = Site::new();
    let noises = noises();
    let noisy: Vec<_> = noises.iter().map(|(what, words)| (what, dial(&site, words))).collect();
    assert_serves(&site, "noise");
    for (what, mut stream) in noisy {
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut heard = Vec::new();
        let end = stream.read_to_end(&mut heard);
        let timed_out = end.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
        assert!(!timed_out, "{what} is still connected after the deadline");
        assert!(heard.len() < 4096, "{what} was told {} bytes", heard.len());
    }
    // Clients that hang up at once, in the middle of a message.
    noises.iter().for_each(|(_, words)| drop(dial(&site, words)));
    assert_serves(&site, "noise that hangs up");
}

/// The number of connections: more than the daemon greets at once, and more than a runtime has
/// threads to wait with.
const CROWD: usize = 700;

#[test]
fn a_crowd_that_says_nothing_keeps_nobody_out() {
    raise_descriptor_limit();
    let hello = client_hello();
    for (what, words) in [("silent", &[][..]), ("half greeted", &hello[..100]), ("lanes without proof", &SAFE_MAGIC)] {
        let site = Site::new();
        let crowd: Vec<_> = (0..CROWD).map(|_| dial(&site, words)).collect();
        assert_serves(&site, &format!("{CROWD} connections, {what}"));
        drop(crowd);
    }
}

#[test]
fn a_stranger_is_refused_before_anything_that_it_says_is_looked_at() {
    let site = Site::new();
    let stranger = || Client::dial(daemon_addr(&site), Identity::generate().unwrap());
    assert_eq!(stranger().speech.end(), "denied", "it has said nothing");
    let mut honest = stranger();
    honest.speech.say(&hello(Request::Roots));
    assert_eq!(honest.speech.end(), "denied");
    // No message begins so: a daemon that looked at it would report a broken protocol.
    for rubbish in [&[0xff; 4][..], &[0; 4], &[1, 0, 0, 0, 0xee], &files::bytes(5, 100_000)] {
        let mut odd = stranger();
        odd.speech.say_bytes(rubbish);
        assert_eq!(odd.speech.end(), "denied");
    }
}

#[test]
fn strangers_that_do_not_hang_up_keep_nobody_out_and_fill_no_log() {
    let site = Site::new();
    let stranger = || Client::dial(daemon_addr(&site), Identity::generate().unwrap());
    let lingering: Vec<_> = (0..STRANGERS).map(|_| stranger()).collect();
    assert_eq!(stranger().speech.end(), "denied", "one more is told at once");
    assert_serves(&site, "strangers that linger");
    site.daemon.wait_log("more unknown keys were refused");
    let log = site.daemon.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("unknown key")).collect();
    assert!(lines.len() <= 3, "two of one source, and the count of the others: {lines:#?}");
    let counted = lines.iter().find(|line| line.contains("refused=")).expect("a count");
    assert!(counted.contains("127.0.0.1="), "{counted}");
    drop(lingering);
}

/// Threads of a process.
fn threads(pid: i32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().count()
}

#[test]
fn lanes_of_strangers_are_hung_up_on_at_once_and_take_no_thread() {
    let site = Site::new();
    let addr = daemon_addr(&site);
    let pinned = Client::dial(addr, Identity::generate().unwrap()).speech.control.peer_key;
    let before = threads(site.daemon.pid());
    for _ in 0..20 {
        let stranger = Identity::generate().unwrap();
        let mut private = LaneStream::dial_private(addr, &stranger, pinned, &LaneOptions::default()).unwrap();
        let error = private.recv_exact(&mut [0]).unwrap_err();
        assert_ne!(error.kind(), NetErrorKind::TimedOut, "{error}");

        let mut safe = dial(&site, &[&SAFE_MAGIC[..], &plain_opening([1; 16], LaneId(0), &[2; 16])].concat());
        safe.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
        let end = safe.read(&mut [0]);
        assert!(end.as_ref().map_or_else(|e| e.kind() != std::io::ErrorKind::WouldBlock, |n| *n == 0), "{end:?}");
    }
    let after = threads(site.daemon.pid());
    assert!(after <= before + 2, "{before} threads, and {after} then");
}

/// The number of strangers: more than the daemon sends away at a time.
const STRANGERS: usize = 80;

/// Raises the limit of descriptors: a crowd needs more than a process has by default.
pub(super) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}
