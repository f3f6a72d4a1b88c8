//! A network that goes away and comes back: namespaces joined by a link that is taken down in the
//! middle of a transfer. Needs root.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::fixture::tree::{self, Tree};
use crate::fixture::{ALL_RIGHTS, DaemonConfig, Host, files, tool};
use crate::hostile::Direction;

/// The length of a file: long enough for five outages, a second of progress before each, at the
/// link's rate.
const LEN: usize = (90 << 20) + 17;
const RATE: &str = "80mbit";

/// Two network namespaces and a link between them; gone when dropped.
struct Net {
    near: String,
    far: String,
}

const NEAR: &str = "10.77.0.1";
const FAR: &str = "10.77.0.2";

impl Net {
    fn new() -> Net {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("longhaul-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let net = Net { near: format!("{name}-near"), far: format!("{name}-far") };
        tool("ip", &["netns", "add", &net.near]);
        tool("ip", &["netns", "add", &net.far]);
        let ends =
            ["link", "add", "wire", "netns", &net.near, "type", "veth", "peer", "name", "wire", "netns", &net.far];
        tool("ip", &ends);
        for (end, addr) in [(&net.near, NEAR), (&net.far, FAR)] {
            tool("ip", &["-n", end, "addr", "add", &format!("{addr}/24"), "dev", "wire"]);
            tool("ip", &["-n", end, "link", "set", "wire", "up"]);
            // The burst holds the bytes that the kernel hands over as one packet.
            let shape = ["dev", "wire", "root", "tbf", "rate", RATE, "burst", "256kb", "latency", "50ms"];
            tool("tc", &[&["-n", end, "qdisc", "add"], &shape[..]].concat());
        }
        net
    }

    /// The words before a command that is to run at one end.
    fn within(end: &str) -> [&str; 4] {
        ["ip", "netns", "exec", end]
    }

    /// Takes one end of the link down for `time`.
    fn cut(end: &str, time: Duration) {
        tool("ip", &["-n", end, "link", "set", "wire", "down"]);
        std::thread::sleep(time);
        tool("ip", &["-n", end, "link", "set", "wire", "up"]);
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for end in [&self.near, &self.far] {
            tool("ip", &["netns", "del", end]);
        }
    }
}

/// Makes one transfer, in which the link is down five times, at either end, once for long.
fn outlive_outages(direction: Direction) {
    let (client, server, net) = (Host::new(), Host::new(), Net::new());
    let root = server.make_dir("data");
    let config = DaemonConfig::default().listen(FAR).root("data", &root, ALL_RIGHTS);
    let config = config.client("tester", client.key(), &[("data", ALL_RIGHTS)]);
    let daemon = config.start_as(&server, |run| run.beneath(Net::within(&net.far)));
    let (near, far) = (client.path("f"), root.join("f"));
    let (verb, source, url) = match direction {
        Direction::Push => ("push", &near, daemon.url("data/f")),
        Direction::Pull => ("pull", &far, daemon.url("data/f")),
    };
    files::make(source, 1, LEN);
    let ends = if direction == Direction::Push { ["f", &url] } else { [&url, "f"] };
    let run = client.run([verb, "--json", "--retry-for", "2min", "--peer-key", daemon.key(), "--chunk-size", "1MiB"]);
    let running = run.args(["--lanes", "2", "--memory", "16MiB"]).args(ends).beneath(Net::within(&net.near)).start();
    for (n, seconds) in [3, 3, 20, 3, 3].into_iter().enumerate() {
        let received = running.last_so_far("bytes_received").unwrap_or(0);
        let more = running.wait_event(|event| event["bytes_received"].as_u64().filter(|bytes| *bytes > received));
        assert!(more < LEN as u64, "{direction:?}: it was over before outage {n}");
        Net::cut([&net.near, &net.far][n % 2], Duration::from_secs(seconds));
    }
    let outcome = running.finish();
    assert_eq!(outcome.code, 0, "{direction:?}: {outcome}\n{}", daemon.log());
    tree::assert_same(&Tree::of(&near), &Tree::of(&far), &outcome);
    daemon.wait_log("ended: ");
    assert_eq!(tree::leftovers(&root), [""; 0], "{direction:?}: {outcome}");
    assert_eq!(tree::leftovers(client.dir()), [""; 0], "{direction:?}: {outcome}");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_push_outlives_five_outages_of_its_link() {
    outlive_outages(Direction::Push);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_pull_outlives_five_outages_of_its_link() {
    outlive_outages(Direction::Pull);
}
