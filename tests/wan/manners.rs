//! The manners of a session: what it leaves to a TCP connection of somebody else, what it does to
//! the queue of a path of its own, and who may have all of one.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};

use longhaul_sys::tcp;
use rustix::net::sockopt::set_tcp_congestion;
use serde_json::Value;

use super::*;

/// Bits a second that the path carries.
const LINE: f64 = 200e6;
const PATH: &str = "rate=200Mbit/s,rtt=20ms,queue=0.6bdp";

/// A connection under cubic that sends as much as it can from near to far.
pub(super) struct Rival {
    near: TcpStream,
    threads: Vec<JoinHandle<()>>,
}

impl Rival {
    /// Begins, and waits until it is past its slow start.
    pub(super) fn start(far: &Far) -> Rival {
        let (at, there) = (far.wan.far().address(0), far.wan.far());
        let listener = there.run(|| TcpListener::bind((at, 0)).unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let near = far.wan.near().run(|| TcpStream::connect(address).unwrap()).unwrap();
        set_tcp_congestion(&near, "cubic").unwrap();
        let (mut sink, mut out) = (listener.accept().unwrap().0, near.try_clone().unwrap());
        let sends = thread::spawn(move || while out.write_all(&[0; 64 << 10]).is_ok() {});
        let takes = thread::spawn(move || while sink.read(&mut [0; 256 << 10]).is_ok_and(|n| n > 0) {});
        let rival = Rival { near, threads: vec![sends, takes] };
        rival.wait_for(20 << 20);
        rival
    }

    /// Waits until so many bytes have arrived.
    fn wait_for(&self, bytes: u64) {
        let begun = Instant::now();
        while self.acked() < bytes {
            assert!(begun.elapsed() < Duration::from_secs(60), "{} bytes in a minute", self.acked());
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Bytes that arrived so far.
    fn acked(&self) -> u64 {
        tcp::state(&self.near).unwrap().acked
    }

    pub(super) fn end(self) {
        self.near.shutdown(Shutdown::Both).unwrap();
        self.threads.into_iter().for_each(|one| one.join().unwrap());
    }
}

/// The parts of the line that a rival has, and that a session beside it has.
#[derive(Debug)]
struct Parts {
    theirs: f64,
    ours: f64,
}

/// The figures of a push of random bytes for so many seconds.
fn measured(far: &Far, seconds: &str, (transport, share): (&str, &str)) -> Value {
    let words = ["bench", "net", "--json", "--seconds", seconds, "--direction", "push", "--share", share];
    let run = far
        .client
        .run(words)
        .args(["--transport", transport])
        .args(["--peer-key", far.daemon.key()])
        .arg(far.daemon.url(""));
    run.beneath(far.wan.near().prefix()).succeed().events_of("bench_net").remove(0)
}

fn part_of_line(session: &Value) -> f64 {
    session["bytes_per_s"].as_f64().unwrap() * 8.0 / LINE
}

fn beside(transport: &str, share: &str) -> Parts {
    let far = Far::new(PATH);
    let rival = Rival::start(&far);
    let (begun, before) = (Instant::now(), rival.acked());
    let session = measured(&far, "12", (transport, share));
    let theirs = (rival.acked() - before) as f64 * 8.0 / begun.elapsed().as_secs_f64() / LINE;
    rival.end();
    Parts { theirs, ours: part_of_line(&session) }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_session_leaves_a_stranger_its_part_and_has_its_own() {
    let fair = beside("tcp", "fair");
    assert!(fair.theirs > 0.2 && fair.ours > 0.2, "{fair:?}");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn lanes_over_quic_leave_a_stranger_its_part_and_have_their_own() {
    let fair = beside("quic", "fair");
    assert!(fair.theirs > 0.2 && fair.ours > 0.1, "{fair:?}");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn polite_lanes_over_quic_leave_a_stranger_most_of_a_path_and_have_it_when_that_has_gone() {
    let far = Far::new(PATH);
    let rival = Rival::start(&far);
    let (begun, before) = (Instant::now(), rival.acked());
    let stranger = thread::spawn(move || {
        rival.wait_for(before + (100 << 20));
        rival.end();
        (100 << 20) as f64 * 8.0 / begun.elapsed().as_secs_f64() / LINE
    });
    let ours = part_of_line(&measured(&far, "16", ("quic", "polite")));
    let theirs = stranger.join().unwrap();
    // It has ten seconds of sixteen to itself, where the stranger leaves after five or six.
    assert!(theirs > 0.5 && ours > 0.2, "{theirs} and {ours}");
}

/// It goes back to TCP if somebody else is there, and other tests that have the processors look so.
#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_polite_session_that_is_alone_where_tcp_is_held_back_goes_over_to_udp() {
    super::auto::goes_over_to_udp("polite", Direction::Push);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn alone_a_session_fills_its_path_and_hardly_its_queue() {
    for transport in ["tcp", "quic"] {
        let far = Far::new(PATH);
        let session = measured(&far, "8", (transport, "fair"));
        // A busy machine fills it less. BBR without manners loses a tenth and more, and so do lanes
        // over QUIC.
        assert!(part_of_line(&session) > 0.4, "{session}");
        let forward = far.forward();
        assert!(forward.dropped_queue * 20 < forward.packets, "{forward:?} {session}");
    }
}

#[test]
fn all_of_a_path_is_for_those_whom_the_daemon_allows_it() {
    let (client, server) = (Host::new(), Host::new());
    let root = server.make_dir("data");
    let config = DaemonConfig::default().root("data", &root, ALL_RIGHTS);
    let daemon = config.client("tester", client.key(), &[("data", ALL_RIGHTS)]).start(&server);
    files::make(client.path("f"), 1, 100);
    let push = |share: &str| {
        let run = client.run(["push", "--share", share, "--peer-key", daemon.key(), "f"]);
        run.arg(daemon.url("data/f")).finish()
    };
    let refused = push("all");
    assert_eq!(refused.code, 4, "{refused}");
    assert!(refused.stderr.contains("--share fair"), "{refused}");
    for share in ["fair", "polite"] {
        assert_eq!(push(share).code, 0, "{share}: {}", daemon.log());
    }
}
