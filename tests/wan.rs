//! Two hosts that are far from each other: the effects of long, lossy, narrow and broken paths on
//! transfers, and the effects that they must not have. The paths are `longhaul-wan`'s. Needs root.

mod auto;
mod crowds;
mod ends;
mod forged;
mod harm;
mod manners;
mod marks;
mod meetings;
mod quic;
mod road;
mod short;
mod udp;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use longhaul_wan::{Change, Config, Counters, Link, Path, Tuning, Wan};
use rustix::process::Signal;

use crate::fixture::tree::{self, Tree};
use crate::fixture::{ALL_RIGHTS, Daemon, DaemonConfig, Host, Outcome, Run, Running, files};
use crate::hostile::Direction;

pub(crate) const MIB: usize = 1 << 20;
pub(crate) const PROTECTIONS: [&str; 2] = ["private", "safe"];

/// A client and a daemon with a path between them.
pub(crate) struct Far {
    wan: Wan,
    pub(crate) client: Host,
    pub(crate) root: PathBuf,
    pub(crate) daemon: Daemon,
    _server: Host,
}

impl Far {
    /// A client and a daemon over a path such as `rate=100Mbit/s,rtt=40ms,loss=1e-2`.
    pub(crate) fn new(path: &str) -> Far {
        Far::with(path, "")
    }

    /// The same, with these lines in the daemon's `[limits]`.
    fn with(path: &str, limits: &str) -> Far {
        Far::over(wan(path, &[]), limits)
    }

    fn over(wan: Wan, limits: &str) -> Far {
        let at = wan.far().address(0);
        Far::at(at, wan, limits)
    }

    /// The same, whose daemon listens at this address.
    fn at(at: impl std::fmt::Display, wan: Wan, limits: &str) -> Far {
        let (client, server) = (Host::new(), Host::new());
        let root = server.make_dir("data");
        let config = DaemonConfig::default().listen(at).root("data", &root, ALL_RIGHTS);
        let config = config.may_bench().client("tester", client.key(), &[("data", ALL_RIGHTS)]);
        let config = config.client_line("share = 'all'");
        let config = if limits.is_empty() { config } else { config.line(&format!("[limits]\n{limits}")) };
        let daemon = config.start_as(&server, |run| run.beneath(wan.far().prefix()));
        Far { wan, client, root, daemon, _server: server }
    }

    /// A command of the client.
    pub(crate) fn run(&self, verb: &str) -> Run {
        let run = self.client.run([verb, "--json", "--retry-for", "2min", "--peer-key", self.daemon.key()]);
        run.beneath(self.wan.near().prefix())
    }

    /// Another daemon in place of the one that is gone, with the same configuration and port.
    fn restarted(&self) -> Daemon {
        let path = self._server.path("serve.toml");
        let (text, addr) = (std::fs::read_to_string(&path).unwrap(), self.daemon.addr());
        let any_port = format!("{}:0", self.wan.far().address(0));
        assert!(text.contains(&any_port), "{text}");
        std::fs::write(&path, text.replace(&any_port, addr)).unwrap();
        Daemon::start(self._server.run(["serve", "--json", "--config"]).arg(path).beneath(self.wan.far().prefix()))
    }

    /// The counters from near to far so far.
    fn forward(&self) -> Counters {
        self.wan.counters().unwrap()[0].forward
    }

    pub(crate) fn change(&self, change: &str) {
        self.wan.change(0, None, &change.parse::<Change>().unwrap()).unwrap();
    }

    /// Bytes a second from near to far, from now until `running` has brought `more` bytes.
    fn wire_rate(&self, running: &Running, more: u64) -> f64 {
        let (begun, bytes) = (Instant::now(), self.forward().delivered_bytes);
        let sent = running.last_so_far("bytes_sent").unwrap_or(0);
        running.wait_event(|event| event["bytes_sent"].as_u64().filter(|now| *now >= sent + more));
        (self.forward().delivered_bytes - bytes) as f64 / begun.elapsed().as_secs_f64()
    }
}

/// A run with these options that moves a file of so many MiB, which is made, and the file's places
/// at either end.
fn moving(far: &Far, direction: Direction, mib: usize, options: &[&str]) -> (Run, [PathBuf; 2]) {
    let (near, there) = (far.client.path("f"), far.root.join("f"));
    let url = far.daemon.url("data/f");
    let (verb, source, ends) = match direction {
        Direction::Push => ("push", &near, ["f", url.as_str()]),
        Direction::Pull => ("pull", &there, [url.as_str(), "f"]),
    };
    files::make(source, 1, mib * MIB);
    (far.run(verb).args(options).args(ends), [near, there])
}

/// Whether there is time for what the gate has none: `cargo xtask paths`.
fn is_long() -> bool {
    std::env::var_os("PATHS_LONG").is_some()
}

/// Hosts whose buffers limit each TCP connection to a hundredth of the path.
fn narrow_hosts(path: &str) -> Far {
    Far::over(wan(path, &[("net.ipv4.tcp_wmem", "4096 16384 65536")]), "")
}

/// Waits until the lanes are told of as one of these.
fn decision(running: &Running, changes: &[&str]) {
    running.wait_event(|event| {
        let of_these = changes.iter().any(|change| event["change"] == *change);
        (event["type"] == "lanes" && of_these).then_some(())
    });
}

/// A path with these kernel settings at both ends.
fn wan(path: &str, sysctls: &[(&str, &str)]) -> Wan {
    let mut link = Link { mtu: 9000, ..Link::even(Path::default()) };
    link.apply(&path.parse::<Change>().unwrap());
    let sysctls = sysctls.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    let tuning = Tuning { sysctls, ..Tuning::default() };
    Wan::new(&Config { links: vec![link], tuning, ..Config::default() }).unwrap()
}

/// A tree of small and large files, with directories and a link.
fn make_tree(top: &std::path::Path, large: usize) {
    for n in 0..200 {
        files::make(top.join(format!("dir-{}/{n}", n % 7)), n, 10 + 400 * n as usize);
    }
    files::make(top.join("large"), 1000, large);
    std::fs::create_dir_all(top.join("empty")).unwrap();
    files::link("large", top.join("link"));
}

/// Moves a tree in one direction over `path`. Returns the counters of the wire and the outcome.
pub(crate) fn moves_a_tree(path: &str, direction: Direction, options: &[&str], large: usize) -> (Counters, Outcome) {
    let far = Far::new(path);
    let (near, there) = (far.client.path("tree"), far.root.join("tree"));
    let (verb, source) = match direction {
        Direction::Push => ("push", &near),
        Direction::Pull => ("pull", &there),
    };
    make_tree(source, large);
    let url = far.daemon.url("data/tree/");
    let ends = if direction == Direction::Push { ["tree/", &url] } else { [&url, "tree/"] };
    let outcome = far.run(verb).args(options).args(ends).finish();
    let context = format!("{path} {direction:?} {options:?}: {outcome}\n{}", far.daemon.log());
    assert_eq!(outcome.code, 0, "{context}");
    tree::assert_same(&Tree::of(&near), &Tree::of(&there), &context);
    let counters = far.wan.counters().unwrap()[0];
    let wire = if direction == Direction::Push { counters.forward } else { counters.backward };
    (wire, outcome)
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_tree_arrives_right_over_a_long_path_with_and_without_loss() {
    for loss in ["0", "1e-2"] {
        for direction in [Direction::Push, Direction::Pull] {
            for protect in PROTECTIONS {
                let path = format!("rate=400Mbit/s,rtt=60ms,loss={loss}");
                let (wire, _) = moves_a_tree(&path, direction, &["--protect", protect], 20 * MIB + 5);
                assert_eq!(wire.dropped_loss > 0, loss != "0", "{wire:?}");
            }
        }
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn bits_that_change_on_the_way_and_no_checksum_of_the_network_tells_are_found() {
    let (wire, outcome) =
        moves_a_tree("rate=1Gbit/s,rtt=4ms,corrupt-silently=5e-4", Direction::Push, &["--protect", "safe"], 120 * MIB);
    assert!(wire.corrupted_silently > 0, "{wire:?}");
    let summary = outcome.summary();
    assert!(summary["bytes_resent"].as_u64() > Some(0), "{summary}");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn outages_of_one_five_and_thirty_seconds_are_survived() {
    let far = Far::new("rate=100Mbit/s,rtt=40ms");
    const LEN: usize = 90 * MIB;
    files::make(far.client.path("f"), 1, LEN);
    let running = far.run("push").args(["--chunk-size", "1MiB", "f"]).arg(far.daemon.url("data/f")).start();
    for seconds in [1, 5, 30] {
        let received = running.last_so_far("bytes_received").unwrap_or(0);
        let more = running.wait_event(|event| event["bytes_received"].as_u64().filter(|bytes| *bytes > received));
        assert!(more < LEN as u64, "it was over before the outage of {seconds} s");
        far.change("link=down");
        // The only way to be cut off for a time is to wait for it.
        std::thread::sleep(Duration::from_secs(seconds));
        far.change("link=up");
    }
    let outcome = running.finish();
    assert_eq!(outcome.code, 0, "{outcome}\n{}", far.daemon.log());
    tree::assert_same(&Tree::of(far.client.path("f")), &Tree::of(far.root.join("f")), &outcome);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_rate_is_not_exceeded_on_the_wire_whatever_the_lanes() {
    for lanes in ["1", "4", "auto"] {
        let far = Far::new("rate=1Gbit/s,rtt=20ms");
        files::make(far.client.path("f"), 1, 100 * MIB);
        let run = far.run("push").args(["--rate", "80Mbit/s", "--lanes", lanes, "f"]).arg(far.daemon.url("data/f"));
        let running = run.start();
        running.wait_event(|event| event["bytes_sent"].as_u64().filter(|sent| *sent > 8 << 20));
        let rate = far.wire_rate(&running, 30 << 20);
        // Headers and encryption come on top: about a hundredth here.
        assert!(rate < 10e6 * 1.06, "{lanes} lanes: {rate:.0} bytes/s on the wire");
        assert_eq!(running.finish().code, 0);
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn sessions_share_a_daemons_rate_while_they_run() {
    let far = Far::with("rate=1Gbit/s,rtt=10ms", "rate = '80Mbit/s'");
    for name in ["a", "b"] {
        files::make(far.client.path(name), 1, 60 * MIB);
    }
    let push = |name: &str| far.run("push").arg(name).arg(far.daemon.url(&format!("data/{name}"))).start();
    let first = push("a");
    first.wait_event(|event| event["bytes_sent"].as_u64().filter(|sent| *sent > 4 << 20));
    let second = push("b");
    second.wait_event(|event| event["bytes_sent"].as_u64().filter(|sent| *sent > 4 << 20));
    let rate = far.wire_rate(&second, 15 << 20);
    assert!(rate < 10e6 * 1.1, "{rate:.0} bytes/s on the wire for both");
    let alone = first.finish();
    assert_eq!((alone.code, second.finish().code), (0, 0), "{alone}\n{}", far.daemon.log());
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn lanes_are_tried_where_the_network_is_the_limit_and_every_decision_has_its_reason() {
    let far = Far::new("rate=80Mbit/s,rtt=30ms,loss=1e-3");
    files::make(far.client.path("f"), 1, 200 * MIB);
    // Who leaves others their part tries no more lanes where the path is full.
    let running = far.run("push").args(["--share", "all", "f"]).arg(far.daemon.url("data/f")).start();
    let added = running.wait_event(|event| {
        let is_more =
            event["type"] == "lanes" && event["change"].as_str().is_some_and(|change| change.starts_with('+'));
        is_more.then(|| event.clone())
    });
    assert!(added["reason"].as_str().is_some_and(|reason| reason.contains("MB/s")), "{added}");
    assert!(!far.client.path(PATHS).exists());
    // And judged, one way or the other.
    running
        .wait_event(|event| (event["type"] == "lanes" && event["t_s"].as_f64() > added["t_s"].as_f64()).then_some(()));
    let outcome = running.finish();
    assert_eq!(outcome.code, 0, "{outcome}\n{}", far.daemon.log());
    tree::assert_same(&Tree::of(far.client.path("f")), &Tree::of(far.root.join("f")), &outcome);
    // What it decided is kept, if it still held at the end.
    let known: serde_json::Value = serde_json::from_slice(&std::fs::read(far.client.path(PATHS)).unwrap()).unwrap();
    let is_fact = |path: &serde_json::Value| path["lanes"]["is"].is_u64() || path["congestion"]["is"].is_string();
    assert!(known["paths"].as_array().is_some_and(|paths| paths.iter().all(is_fact)), "{known}\n{outcome}");
}

/// The file in which a host's user keeps what is known of paths.
const PATHS: &str = ".local/state/longhaul/paths.json";

#[test]
#[ignore = "needs root: run by .ci/run"]
fn two_paths_carry_together_and_one_that_dies_hands_over_and_comes_back() {
    let mut link = Link { mtu: 9000, ..Link::even(Path::default()) };
    link.apply(&"rate=80Mbit/s,rtt=20ms".parse::<Change>().unwrap());
    let wan = Wan::new(&Config { links: vec![link.clone(), link], ..Config::default() }).unwrap();
    let (client, server) = (Host::new(), Host::new());
    let root = server.make_dir("data");
    let config = DaemonConfig::default().listen("0.0.0.0").root("data", &root, ALL_RIGHTS);
    let config = config.client("tester", client.key(), &[("data", ALL_RIGHTS)]);
    let daemon = config.start_as(&server, |run| run.beneath(wan.far().prefix()));
    let port = daemon.addr().rsplit_once(':').unwrap().1;
    files::make(client.path("f"), 1, 250 * MIB);
    let paths = [0, 1].map(|n| format!("{}={}", wan.near().address(n), wan.far().address(n)));
    let run = client.run(["push", "--json", "--retry-for", "1min", "--peer-key", daemon.key(), "--lanes", "4"]);
    let run = run.args(["--stall-timeout", "2s", "--path", &paths[0], "--path", &paths[1], "f"]);
    let url = format!("lh://{}:{port}/data/f", wan.far().address(0));
    let running = run.arg(url).beneath(wan.near().prefix()).start();
    let of = |event: &serde_json::Value, n: usize, what: &str| event["paths"][n][what].clone();
    let bytes = |event: &serde_json::Value, n: usize| of(event, n, "bytes").as_u64().unwrap_or(0);
    let told = |wanted: &dyn Fn(&serde_json::Value) -> bool| {
        running.wait_event(|event| (event["type"] == "paths" && wanted(event)).then(|| event.clone()))
    };
    let both = told(&|event| bytes(event, 0).min(bytes(event, 1)) > 8 << 20);
    wan.change(1, None, &Change::down(true)).unwrap();
    let one = told(&|event| of(event, 1, "down") == true && bytes(event, 0) > bytes(&both, 0) + (20 << 20));
    assert_eq!((of(&one, 1, "lanes"), of(&one, 0, "down")), (0.into(), false.into()), "{one}");
    wan.change(1, None, &Change::down(false)).unwrap();
    told(&|event| of(event, 1, "down") == false && bytes(event, 1) > bytes(&one, 1) + (4 << 20));
    let outcome = running.finish();
    assert_eq!(outcome.code, 0, "{outcome}\n{}", daemon.log());
    assert_eq!(outcome.summary()["paths"].as_array().map(Vec::len), Some(2), "{outcome}");
    tree::assert_same(&Tree::of(client.path("f")), &Tree::of(root.join("f")), &outcome);
}

/// A path, kernel settings, options, MiB to move, and the limit that is to be named.
type Limiting<'a> = (&'a str, &'a [(&'a str, &'a str)], &'a [&'a str], usize, &'a str);

#[test]
#[ignore = "needs root: run by .ci/run"]
fn what_of_the_network_limits_is_named_at_either_end() {
    const QUICK: &str = "rate=1Gbit/s,rtt=60ms,loss=0";
    // A daemon sets by name the controls that every user may choose; reno is always among them.
    let cases: &[Limiting] = &[
        ("rate=80Mbit/s,rtt=20ms,loss=0", &[], &[], 40, "network:rate"),
        (QUICK, &[], &["--rate", "80Mbit/s"], 40, "network:rate"),
        ("rate=1Gbit/s,rtt=60ms,loss=3e-3", &[], &["--lanes", "1", "--congestion", "reno"], 40, "network:loss"),
        (QUICK, &[("net.ipv4.tcp_wmem", "4096 16384 131072")], &["--lanes", "1"], 8, "network:window"),
        (QUICK, &[("net.ipv4.tcp_rmem", "4096 131072 131072")], &["--lanes", "1"], 8, "network:window"),
    ];
    for (path, sysctls, options, size, want) in cases {
        let far = Far::over(wan(path, sysctls), "");
        files::make(far.client.path("f"), 1, size * MIB);
        files::make(far.root.join("f"), 1, size * MIB);
        let options = [&["--if-exists", "replace"], *options].concat();
        let push = || far.run("push").args(&options).arg("f").arg(far.daemon.url("data/g"));
        let pull = || far.run("pull").args(&options).arg(far.daemon.url("data/f")).arg("g");
        for run in [&push as &dyn Fn() -> Run, &pull] {
            limited_by(want, path, || run().finish());
        }
    }
}

/// Sees that a run over a path names this limit. Others on this machine hold packets up as others
/// on the path would, for a moment, so one run in three is enough.
fn limited_by(want: &str, path: &str, run: impl Fn() -> Outcome) {
    let mut found = Vec::new();
    for _ in 0..3 {
        let outcome = run();
        assert_eq!(outcome.code, 0, "{outcome}");
        if outcome.summary()["limited_by"] == want {
            return;
        }
        found.push(outcome.to_string());
    }
    panic!("not {want} over {path}: {}", found.join("\n"));
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_measurement_finds_what_the_path_is() {
    let far = Far::new("rate=100Mbit/s,rtt=40ms,loss=1e-3");
    let bench = |direction: &str| {
        let run = far.client.run(["bench", "net", "--json", "--bytes", "40MiB", "--chunk-size", "1MiB"]);
        let run = run.args(["--lanes", "4", "--direction", direction, "--peer-key", far.daemon.key()]);
        let outcome = run.arg(far.daemon.url("")).beneath(far.wan.near().prefix()).succeed();
        outcome.events_of("bench_net").remove(0)
    };
    let (push, pull) = (bench("push"), bench("pull"));
    for run in [&push, &pull] {
        assert_eq!(run["bytes"], 40 * MIB, "{run}");
        let rtt = run["rtt_us_min"].as_u64().unwrap();
        assert!((40_000..80_000).contains(&rtt), "{run}");
        assert!(run["bytes_per_s"].as_u64().unwrap() <= 12_500_000, "no more than there is: {run}");
    }
    assert!(push["rtt_us_mean"].as_u64() >= push["rtt_us_min"].as_u64() && push["jitter_us"].is_u64(), "{push}");
    assert_eq!(push["path_mtu_bytes"], 9000, "{push}");
    let loss = push["loss"].as_f64().unwrap();
    assert!((1e-5..1.0).contains(&loss), "{push}");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_receiver_that_takes_nothing_and_says_nothing_is_named() {
    let far = Far::new("rate=200Mbit/s,rtt=20ms");
    files::make(far.client.path("f"), 1, 100 * MIB);
    let running = far.run("push").arg("f").arg(far.daemon.url("data/f")).start();
    running.wait_event(|event| event["bytes_sent"].as_u64().filter(|sent| *sent > 4 << 20));
    far.daemon.signal(Signal::STOP);
    running.wait_event(|event| (event["limited_by"] == "receiver").then_some(()));
    far.daemon.signal(Signal::CONT);
    assert_eq!(running.finish().code, 0, "{}", far.daemon.log());
}
