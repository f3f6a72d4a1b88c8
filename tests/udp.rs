//! Transfers over UDP lanes, whole: trees, streams, runs that go on with what others left, and what
//! happens where datagrams stay away. See `wan/udp.rs` for long paths.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::process::Signal;

use crate::fixture::tree::{self, Tree};
use crate::fixture::{Outcome, Run, Site, files};
use crate::hostile::{Direction, Wired, daemon_addr};

const MIB: usize = 1 << 20;

/// A command of the client that goes over UDP.
fn run(site: &Site, args: &[&str]) -> Run {
    let run = site.client.run([args[0], "--json", "--peer-key", site.daemon.key(), "--transport", "udp"]);
    run.args(&args[1..])
}

/// Moves `f` of the sending end through the ports of `far`.
fn moves(site: &Site, direction: Direction, far: SocketAddr, options: &[&str]) -> Run {
    let url = format!("lh://{far}/data/f");
    // The content of a directory, so that it stands under the same name at both ends.
    let slash = if ends(site, direction)[0].is_dir() { "/" } else { "" };
    let (verb, ends) = match direction {
        Direction::Push => ("push", [format!("f{slash}"), url]),
        Direction::Pull => ("pull", [format!("{url}{slash}"), "f".to_owned()]),
    };
    run(site, &[verb]).args(options).args(ends)
}

/// `f` at the client and at the daemon, the sending end first.
fn ends(site: &Site, direction: Direction) -> [std::path::PathBuf; 2] {
    let ends = [site.client.path("f"), site.root().join("f")];
    let [near, far] = ends.clone();
    if direction == Direction::Push { ends } else { [far, near] }
}

fn assert_same(site: &Site, outcome: &Outcome) {
    assert_eq!(outcome.code, 0, "{outcome}\n{}", site.daemon.log());
    let [near, far] = ends(site, Direction::Push);
    tree::assert_same(&Tree::of(near), &Tree::of(far), outcome);
}

#[test]
fn a_tree_of_every_kind_of_file_moves_over_udp_and_events_name_it() {
    for direction in Direction::BOTH {
        let site = Site::new();
        let [from, _] = ends(&site, direction);
        for n in 0..300 {
            files::make(from.join(format!("small-{}/{n}", n % 5)), n, 1 + 90 * n as usize);
        }
        files::make(from.join("empty"), 1, 0);
        files::make(from.join("large"), 2, 21 * MIB + 1);
        files::make_sparse(from.join("sparse"), 40 << 20, &[(0, 4096), (24 << 20, 5 * MIB)]);
        files::link("large", from.join("link"));
        let options = ["--chunk-size", "1MiB"];
        let outcome = moves(&site, direction, daemon_addr(&site), &options).finish();
        assert_same(&site, &outcome);
        let start = outcome.events_of("start").remove(0);
        assert_eq!((&start["transport"], &start["lanes"]), (&"udp".into(), &1.into()), "{start}");
        let again = moves(&site, direction, daemon_addr(&site), &options).succeed();
        assert_eq!(again.counts().0, 0, "{again}");
    }
}

#[test]
fn several_lanes_over_udp_share_few_buffers() {
    for direction in Direction::BOTH {
        let site = Site::new();
        let [from, _] = ends(&site, direction);
        files::make(&from, 1, 30 * MIB + 7);
        let options = ["--lanes", "3", "--chunk-size", "1MiB", "--memory", "6MiB"];
        assert_same(&site, &moves(&site, direction, daemon_addr(&site), &options).finish());
    }
}

#[test]
fn a_stream_goes_over_udp_either_way() {
    let site = Site::new();
    let bytes = files::bytes(1, 9 * MIB + 3);
    let options = ["--chunk-size", "1MiB", "--memory", "8MiB"];
    let url = site.url("f");
    run(&site, &["push"]).args(options).args(["-", &url]).input(bytes.clone()).succeed();
    let without_events = ["pull", "--peer-key", site.daemon.key(), "--transport", "udp", &url, "-"];
    let outcome = site.client.run(without_events).args(options).succeed();
    assert!(outcome.stdout == bytes, "{} bytes came", outcome.stdout.len());
}

#[test]
fn what_a_killed_client_left_is_gone_on_with_over_udp() {
    for direction in Direction::BOTH {
        let site = Site::new();
        let [from, _] = ends(&site, direction);
        files::make(&from, 1, 40 * MIB);
        let slow = ["--rate", "64Mbit/s", "--chunk-size", "1MiB", "--sync-interval", "100ms"];
        let running = moves(&site, direction, daemon_addr(&site), &slow).start();
        running.wait_event(|event| event["bytes_durable"].as_u64().filter(|durable| *durable >= 4 << 20));
        running.signal(Signal::KILL);
        drop(running.finish());
        let fast = ["--chunk-size", "1MiB"];
        let outcome = moves(&site, direction, daemon_addr(&site), &fast).finish();
        assert_same(&site, &outcome);
        assert!(outcome.summary()["bytes_resumed"].as_u64() >= Some(4 << 20), "{outcome}");
    }
}

#[test]
fn udp_has_no_congestion_control_that_can_be_chosen() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 10);
    let outcome = moves(&site, Direction::Push, daemon_addr(&site), &["--congestion", "bbr"]).fail(2);
    assert!(outcome.stderr.contains("none that can be chosen"), "{outcome}");
}

#[test]
fn where_no_datagram_passes_the_run_ends_at_once_and_says_so() {
    for drops in [true, false] {
        let way = Relayed::new();
        // A port that is closed, and one at which everything vanishes.
        let relay = drops.then(|| way.relay());
        if let Some(relay) = &relay {
            relay.limit.store(0, Ordering::Relaxed);
        }
        files::make(way.wired.site.client.path("f"), 1, MIB);
        let options = ["--retry-for", "10min"];
        let outcome = moves(&way.wired.site, Direction::Push, way.addr(), &options).fail(5);
        assert!(outcome.stderr.contains("over UDP") && outcome.stderr.contains("use --transport tcp"), "{outcome}");
    }
}

#[test]
fn a_lane_that_stands_still_while_another_moves_is_replaced_and_nothing_lacks() {
    for direction in Direction::BOTH {
        let way = Relayed::new();
        let relay = way.relay();
        let site = &way.wired.site;
        let [from, _] = ends(site, direction);
        files::make(&from, 1, 60 * MIB);
        // The first lane to carry so much comes to nothing from then on.
        relay.limit.store(3 << 20, Ordering::Relaxed);
        let options = ["--lanes", "2", "--chunk-size", "1MiB", "--memory", "16MiB", "--rate", "160Mbit/s"];
        let outcome = moves(site, direction, way.addr(), &options).args(["--stall-timeout", "1s"]).finish();
        assert_same(site, &outcome);
        assert!(relay.lanes() >= 3, "{} lanes: {outcome}", relay.lanes());
    }
}

/// A NAT forgets a lane and gives its next datagrams another port. There is no migration: the lane
/// is lost, and whoever sends from that port is a stranger.
#[test]
fn a_lane_whose_address_changes_is_replaced_and_nobody_answers_at_the_new_one() {
    let way = Relayed::new();
    let relay = way.relay();
    let site = &way.wired.site;
    files::make(site.client.path("f"), 1, 40 * MIB);
    relay.moved.is_used.store(true, Ordering::Relaxed);
    relay.limit.store(3 << 20, Ordering::Relaxed);
    let options = ["--lanes", "2", "--chunk-size", "1MiB", "--memory", "16MiB", "--rate", "160Mbit/s"];
    let outcome = moves(site, Direction::Push, way.addr(), &options).args(["--stall-timeout", "1s"]).finish();
    assert_same(site, &outcome);
    assert!(relay.lanes() >= 3, "{} lanes: {outcome}", relay.lanes());
    assert!(relay.moved.sent.load(Ordering::Relaxed) > 20, "{outcome}");
    let heard = relay.moved.port.recv(&mut [0; 2000]);
    assert!(heard.is_err(), "a stranger was answered with {heard:?} bytes");
}

/// A daemon behind a port that carries its connections, and may have a relay of datagrams beside.
struct Relayed {
    wired: Wired,
}

impl Relayed {
    fn new() -> Relayed {
        Relayed { wired: Wired::new(|_, _| None) }
    }

    fn addr(&self) -> SocketAddr {
        self.wired.proxy.addr()
    }

    /// A relay at the port of the same number.
    fn relay(&self) -> Relay {
        let port = UdpSocket::bind(self.addr()).expect("a port that nobody else has");
        Relay::start(port, daemon_addr(&self.wired.site))
    }
}

/// A relay of datagrams between clients and a daemon. One lane at most is cut off.
struct Relay {
    /// Bytes of a lane from the daemon or to it after which it is cut off, if no other was. The
    /// first of all is cut off at its first datagram if this is 0, and so are all others.
    limit: Arc<AtomicU64>,
    moved: Arc<Moved>,
    over: Arc<AtomicBool>,
    lanes: Arc<Mutex<HashMap<SocketAddr, Arc<UdpSocket>>>>,
    thread: Option<JoinHandle<()>>,
}

/// Another port of the relay, as of a NAT that has forgotten a lane: the daemon does not know it.
struct Moved {
    /// Whether the datagrams to the daemon of a lane that is cut off go on from here.
    is_used: AtomicBool,
    port: UdpSocket,
    sent: AtomicU64,
}

impl Moved {
    fn new() -> Moved {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap();
        port.set_nonblocking(true).unwrap();
        Moved { is_used: AtomicBool::new(false), port, sent: AtomicU64::new(0) }
    }

    fn send(&self, datagram: &[u8], daemon: SocketAddr) {
        if self.is_used.load(Ordering::Relaxed) && self.port.send_to(datagram, daemon).is_ok() {
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// How much a lane has carried, and which was cut off.
#[derive(Clone, Default)]
struct Cut(Arc<Mutex<CutState>>);

#[derive(Default)]
struct CutState {
    carried: HashMap<SocketAddr, u64>,
    off: Option<SocketAddr>,
}

impl Cut {
    /// Whether a datagram of so many bytes passes on the lane of this client.
    fn passes(&self, client: SocketAddr, bytes: usize, limit: u64) -> bool {
        let mut state = self.0.lock().unwrap();
        let carried = state.carried.entry(client).or_default();
        *carried += bytes as u64;
        if *carried > limit && state.off.is_none() {
            state.off = Some(client);
        }
        limit > 0 && state.off != Some(client)
    }
}

impl Relay {
    fn start(port: UdpSocket, daemon: SocketAddr) -> Relay {
        let (limit, over) = (Arc::new(AtomicU64::new(u64::MAX)), Arc::new(AtomicBool::new(false)));
        let (lanes, cut) = (Arc::new(Mutex::new(HashMap::new())), Cut::default());
        let port = Arc::new(port);
        port.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let moved = Arc::new(Moved::new());
        let (known, until, most, elsewhere) = (lanes.clone(), over.clone(), limit.clone(), moved.clone());
        let thread = thread::spawn(move || {
            let (mut datagram, mut backs) = (vec![0; 65_536], Vec::new());
            while !until.load(Ordering::Relaxed) {
                let Ok((len, client)) = port.recv_from(&mut datagram) else { continue };
                let mut lanes = known.lock().unwrap();
                let onward: &mut Arc<UdpSocket> = lanes.entry(client).or_insert_with(|| {
                    let onward = Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
                    onward.connect(daemon).unwrap();
                    onward.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
                    backs.push(back(
                        client,
                        (onward.clone(), port.clone()),
                        (until.clone(), most.clone()),
                        cut.clone(),
                    ));
                    onward
                });
                if cut.passes(client, len, most.load(Ordering::Relaxed)) {
                    let _ = onward.send(&datagram[..len]);
                } else {
                    elsewhere.send(&datagram[..len], daemon);
                }
            }
            backs.into_iter().for_each(|back: JoinHandle<()>| back.join().unwrap());
        });
        Relay { limit, moved, over, lanes, thread: Some(thread) }
    }

    /// The number of lanes that ever asked to join.
    fn lanes(&self) -> usize {
        self.lanes.lock().unwrap().len()
    }
}

/// Carries what the daemon says to a client.
fn back(
    client: SocketAddr,
    (from, to): (Arc<UdpSocket>, Arc<UdpSocket>),
    (until, limit): (Arc<AtomicBool>, Arc<AtomicU64>),
    cut: Cut,
) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut datagram = vec![0; 65_536];
        while !until.load(Ordering::Relaxed) {
            let Ok(len) = from.recv(&mut datagram) else { continue };
            if cut.passes(client, len, limit.load(Ordering::Relaxed)) {
                let _ = to.send_to(&datagram[..len], client);
            }
        }
    })
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
