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
pub(super) const LINE: f64 = 200e6;
const PATH: &str = "rate=200Mbit/s,rtt=20ms,queue=0.6bdp";

/// Connections that send as much as they can from near to far.
pub(super) struct Rival {
    flows: Vec<TcpStream>,
    threads: Vec<JoinHandle<()>>,
}

impl Rival {
    /// One under cubic.
    pub(super) fn start(far: &Far) -> Rival {
        Rival::many(far, "cubic", 1)
    }

    /// Several under a congestion control. Begins, and waits until they are past their slow start.
    pub(super) fn many(far: &Far, congestion: &str, count: usize) -> Rival {
        let mut rival = Rival { flows: Vec::new(), threads: Vec::new() };
        (0..count).for_each(|_| rival.add(far, congestion));
        rival.wait_for(20 << 20);
        rival
    }

    fn add(&mut self, far: &Far, congestion: &str) {
        let (at, there) = (far.wan.far().address(0), far.wan.far());
        let listener = there.run(|| TcpListener::bind((at, 0)).unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let near = far.wan.near().run(|| TcpStream::connect(address).unwrap()).unwrap();
        set_tcp_congestion(&near, congestion).unwrap();
        let (mut sink, mut out) = (listener.accept().unwrap().0, near.try_clone().unwrap());
        self.threads.push(thread::spawn(move || while out.write_all(&[0; 64 << 10]).is_ok() {}));
        self.threads.push(thread::spawn(move || while sink.read(&mut [0; 256 << 10]).is_ok_and(|n| n > 0) {}));
        self.flows.push(near);
    }

    /// Waits until so many bytes have arrived.
    fn wait_for(&self, bytes: u64) {
        let begun = Instant::now();
        while self.acked() < bytes {
            assert!(begun.elapsed() < Duration::from_secs(60), "{} bytes in a minute", self.acked());
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Bytes of all of them that arrived so far.
    pub(super) fn acked(&self) -> u64 {
        self.flows.iter().map(|flow| tcp::state(flow).unwrap().acked).sum()
    }

    pub(super) fn end(self) {
        self.flows.iter().for_each(|flow| flow.shutdown(Shutdown::Both).unwrap());
        self.threads.into_iter().for_each(|one| one.join().unwrap());
    }
}

/// The parts of the line that a rival has, and that a session beside it has.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) theirs: f64,
    pub(super) ours: f64,
}

/// A push of random bytes for so many seconds, with these options.
pub(super) fn measuring(far: &Far, seconds: &str, options: &[&str]) -> Run {
    let words = ["bench", "net", "--json", "--seconds", seconds, "--direction", "push"];
    let run = far.client.run(words).args(options).args(["--peer-key", far.daemon.key()]).arg(far.daemon.url(""));
    run.beneath(far.wan.near().prefix())
}

/// The figures of such a push.
fn measured(far: &Far, seconds: &str, options: &[&str]) -> Value {
    measuring(far, seconds, options).succeed().events_of("bench_net").remove(0)
}

pub(super) fn part_of_line(session: &Value) -> f64 {
    session["bytes_per_s"].as_f64().unwrap() * 8.0 / LINE
}

/// A session with these options beside connections of somebody else.
pub(super) fn beside(options: &[&str], congestion: &str, count: usize) -> Parts {
    let far = Far::new(PATH);
    let rival = Rival::many(&far, congestion, count);
    let (begun, before) = (Instant::now(), rival.acked());
    let session = measured(&far, "12", options);
    let part = |bytes: u64| bytes as f64 * 8.0 / begun.elapsed().as_secs_f64() / LINE;
    let theirs = part(rival.acked() - before);
    // What is told as moved are whole chunks: of sixteen lanes none may have ended.
    let of = |field: &str| session[field].as_u64().unwrap();
    let ours = part(of("wire_bytes_sent") - of("wire_bytes_resent"));
    rival.end();
    Parts { theirs, ours }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_session_leaves_a_stranger_its_part_and_has_its_own() {
    let fair = beside(&["--transport", "tcp"], "cubic", 1);
    assert!(fair.theirs > 0.2 && fair.ours > 0.2, "{fair:?}");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn lanes_over_quic_leave_a_stranger_its_part_and_have_their_own() {
    let fair = beside(&["--transport", "quic"], "cubic", 1);
    assert!(fair.theirs > 0.2 && fair.ours > 0.1, "{fair:?}");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn sixteen_lanes_over_udp_leave_a_stranger_its_part_as_one_does_and_have_their_own() {
    let fair = beside(&["--transport", "udp", "--lanes", "16"], "cubic", 1);
    assert!(fair.theirs > 0.2 && fair.ours > 0.1, "{fair:?}");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn who_takes_all_holds_the_rate_that_was_asked_for_beside_a_stranger() {
    for transport in ["udp", "quic"] {
        let all = beside(&["--transport", transport, "--share", "all", "--rate", "160Mbit/s"], "cubic", 1);
        // A fair session has about half of the line.
        assert!(all.ours > 0.65, "{transport}: {all:?}");
    }
}

/// A polite session beside a stranger who leaves after some seconds.
fn polite_beside_a_stranger_who_leaves(transport: &str) {
    let far = Far::new(PATH);
    let rival = Rival::start(&far);
    let (begun, before) = (Instant::now(), rival.acked());
    let stranger = thread::spawn(move || {
        rival.wait_for(before + (100 << 20));
        rival.end();
        (100 << 20) as f64 * 8.0 / begun.elapsed().as_secs_f64() / LINE
    });
    let ours = part_of_line(&measured(&far, "16", &["--transport", transport, "--share", "polite"]));
    let theirs = stranger.join().unwrap();
    // It has ten seconds of sixteen to itself, where the stranger leaves after five or six.
    assert!(theirs > 0.5 && ours > 0.2, "{transport}: {theirs} and {ours}");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn polite_lanes_over_tcp_leave_a_stranger_most_of_a_path_and_have_it_when_that_has_gone() {
    polite_beside_a_stranger_who_leaves("tcp");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn polite_lanes_over_quic_leave_a_stranger_most_of_a_path_and_have_it_when_that_has_gone() {
    polite_beside_a_stranger_who_leaves("quic");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn polite_lanes_over_udp_leave_a_stranger_most_of_a_path_and_have_it_when_that_has_gone() {
    polite_beside_a_stranger_who_leaves("udp");
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
    for transport in ["tcp", "quic", "udp"] {
        let far = Far::new(PATH);
        let session = measured(&far, "8", &["--transport", transport]);
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
