//! A session beside a TCP connection of somebody else: each share that it may take, as the other
//! one feels it.

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
struct Rival {
    near: TcpStream,
    threads: Vec<JoinHandle<()>>,
}

impl Rival {
    /// Begins, and waits until its first losses are repaired.
    fn start(far: &Far) -> Rival {
        let (at, there) = (far.wan.far().address(0), far.wan.far());
        let listener = there.run(|| TcpListener::bind((at, 0)).unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let near = far.wan.near().run(|| TcpStream::connect(address).unwrap()).unwrap();
        set_tcp_congestion(&near, "cubic").unwrap();
        let (mut sink, mut out) = (listener.accept().unwrap().0, near.try_clone().unwrap());
        let sends = thread::spawn(move || while out.write_all(&[0; 64 << 10]).is_ok() {});
        let takes = thread::spawn(move || while sink.read(&mut [0; 256 << 10]).is_ok_and(|n| n > 0) {});
        let rival = Rival { near, threads: vec![sends, takes] };
        let begun = Instant::now();
        while rival.acked() < 40 << 20 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{} bytes in a minute", rival.acked());
            thread::sleep(Duration::from_millis(50));
        }
        rival
    }

    /// Bytes that arrived so far.
    fn acked(&self) -> u64 {
        tcp::state(&self.near).unwrap().acked
    }

    fn end(self) {
        self.near.shutdown(Shutdown::Both).unwrap();
        self.threads.into_iter().for_each(|one| one.join().unwrap());
    }
}

/// The parts of the line that a rival has, and that a session beside it has; and the session.
struct Parts {
    theirs: f64,
    ours: f64,
    session: Value,
}

fn beside(share: &str) -> Parts {
    let far = Far::new(PATH);
    let rival = Rival::start(&far);
    let run = far.client.run(["bench", "net", "--json", "--seconds", "12", "--direction", "push", "--share", share]);
    let run = run.args(["--peer-key", far.daemon.key()]).arg(far.daemon.url(""));
    let (begun, before) = (Instant::now(), rival.acked());
    let outcome = run.beneath(far.wan.near().prefix()).succeed();
    let theirs = (rival.acked() - before) as f64 * 8.0 / begun.elapsed().as_secs_f64() / LINE;
    rival.end();
    let session = outcome.events_of("bench_net").remove(0);
    let ours = session["bytes_per_s"].as_f64().unwrap() * 8.0 / LINE;
    Parts { theirs, ours, session }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_session_leaves_a_stranger_what_its_share_says() {
    let [all, fair, polite] = ["all", "fair", "polite"].map(beside);
    let parts = |parts: &Parts| format!("{:.2} theirs, {:.2} ours", parts.theirs, parts.ours);
    let context = format!("all {}, fair {}, polite {}", parts(&all), parts(&fair), parts(&polite));
    assert!(all.ours > 0.6 && all.theirs < 0.3, "{context}");
    assert!(fair.theirs > 0.25 && fair.theirs > 1.5 * all.theirs && fair.ours > 0.2, "{context}");
    assert!(polite.theirs > fair.theirs && polite.theirs > 0.6 && polite.ours < 0.35, "{context}");
    assert!(fair.session["lanes"].as_u64() <= Some(8), "{context}: {}", fair.session);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn alone_a_session_fills_its_path_and_hardly_its_queue() {
    let far = Far::new(PATH);
    let run = far.client.run(["bench", "net", "--json", "--seconds", "8", "--direction", "push"]);
    let run = run.args(["--peer-key", far.daemon.key()]).arg(far.daemon.url(""));
    let outcome = run.beneath(far.wan.near().prefix()).succeed();
    let session = outcome.events_of("bench_net").remove(0);
    assert!(session["bytes_per_s"].as_f64().unwrap() * 8.0 > 0.8 * LINE, "{session}");
    let forward = far.forward();
    assert!(forward.dropped_queue * 50 < forward.packets, "{forward:?} {session}");
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
