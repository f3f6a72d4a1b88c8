//! A real sshd and a real ssh, on two hosts that are namespaces, with ports that are open, closed
//! one way, or closed both ways. Needs root.

use std::sync::atomic::{AtomicU32, Ordering};

use super::logins::{Logins, Sshd, keygen};
use crate::fixture::tree::{self, Tree};
use crate::fixture::{Host, Outcome, PROGRAM, Run, Running, files, random, tool, tool_output};

const CLIENT: &str = "10.78.0.1";
const SERVER: &str = "10.78.0.2";
const GATE: &str = "10.78.0.3";
/// The ports of lanes.
const PORTS: &str = "50000-50099";

/// Two hosts and a gate between them, on one wire; gone when dropped.
pub(super) struct Net {
    name: String,
}

impl Net {
    fn new() -> Net {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("longhaul-ssh-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let net = Net { name };
        let bridge = net.at("wire");
        tool("ip", &["netns", "add", &bridge]);
        tool("ip", &["-n", &bridge, "link", "add", "bridge", "type", "bridge"]);
        tool("ip", &["-n", &bridge, "link", "set", "bridge", "up"]);
        for (end, addr) in [("near", CLIENT), ("far", SERVER), ("gate", GATE)] {
            let host = net.at(end);
            tool("ip", &["netns", "add", &host]);
            let ends = ["type", "veth", "peer", "name", "eth", "netns", &host];
            tool("ip", &[&["link", "add", end, "netns", &bridge], &ends[..]].concat());
            tool("ip", &["-n", &bridge, "link", "set", end, "master", "bridge", "up"]);
            tool("ip", &["-n", &host, "addr", "add", &format!("{addr}/24"), "dev", "eth"]);
            tool("ip", &["-n", &host, "link", "set", "eth", "up"]);
            tool("ip", &["-n", &host, "link", "set", "lo", "up"]);
        }
        net
    }

    pub(super) fn at(&self, end: &str) -> String {
        format!("{}-{end}", self.name)
    }

    pub(super) fn within(&self, end: &str) -> Vec<String> {
        ["ip", "netns", "exec", &self.at(end)].map(str::to_owned).to_vec()
    }

    /// Drops what comes to this host for the ports of lanes, and tells nobody, as a firewall in
    /// front of it does; or lets it in again.
    pub(super) fn silence(&self, end: &str, silent: bool) {
        let host = self.at(end);
        let is_first = !tool_output("ip", &["-n", &host, "rule", "list"]).contains("100:");
        if is_first {
            // Rules are asked for each packet, also of a connection that stands, and before the
            // table of local addresses.
            let each_packet = "echo 0 > /proc/sys/net/ipv4/ip_early_demux";
            tool("ip", &["netns", "exec", &host, "sh", "-c", each_packet]);
            tool("ip", &["-n", &host, "rule", "add", "lookup", "local", "pref", "100"]);
            tool("ip", &["-n", &host, "rule", "del", "pref", "0"]);
        }
        let what = if silent { "add" } else { "del" };
        for over in ["tcp", "udp"] {
            let rule = ["rule", what, "iif", "eth", "ipproto", over, "dport", PORTS, "blackhole", "pref", "20"];
            tool("ip", &[&["-n", &host], &rule[..]].concat());
        }
    }

    /// Lets no connection to a lane's port leave this host, or lets them again.
    pub(super) fn close(&self, end: &str, closed: bool) {
        let what = if closed { "add" } else { "del" };
        for over in ["tcp", "udp"] {
            let rule = ["rule", what, "ipproto", over, "dport", PORTS, "prohibit", "pref", "10"];
            tool("ip", &[&["-n", &self.at(end)], &rule[..]].concat());
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for end in ["near", "far", "gate", "wire"] {
            tool("ip", &["netns", "del", &self.at(end)]);
        }
    }
}

/// Two hosts with sshd at two of them, and a user who may log in there.
pub(super) struct Site {
    _daemons: Vec<Sshd>,
    pub(super) net: Net,
    pub(super) client: Host,
    logins: Logins,
    pub(super) server: Host,
}

impl Site {
    pub(super) fn new() -> Site {
        // sshd refuses keys beneath directories that others may write, so not beneath the build.
        let (net, client, server) = (Net::new(), Host::new(), Host::within("/root".as_ref()));
        let hosts = format!(
            "Host far\n HostName {SERVER}\nHost behind\n HostName {SERVER}\n ProxyJump gate\n\
             Host gate\n HostName {GATE}\n"
        );
        let logins = Logins::make(client.dir(), server.dir(), &[SERVER, GATE], &hosts);
        let _daemons = ["far", "gate"].map(|end| logins.serve(&net.within(end))).into();
        for host in ["far", "gate"] {
            logins.wait_for(&net.within("near"), host);
        }
        Site { _daemons, net, client, logins, server }
    }

    pub(super) fn run(&self, verb: &str) -> Run {
        let ssh = self.logins.ssh();
        let run = self.client.run([verb, "--json", "--remote-longhaul", PROGRAM, "--port-range", PORTS, "--ssh", &ssh]);
        run.beneath(self.net.within("near"))
    }

    /// Processes of longhaul that serve at the far host.
    pub(super) fn serving(&self) -> Vec<u32> {
        self.processes("far", b"--ssh-only")
    }

    /// Processes at a host whose command line holds these bytes. sshd's own shell is none of
    /// longhaul's.
    fn processes(&self, end: &str, word: &[u8]) -> Vec<u32> {
        let pids = tool_output("ip", &["netns", "pids", &self.net.at(end)]);
        let has_word = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.windows(word.len()).any(|part| part == word)
        };
        pids.split_whitespace().map(|pid| pid.parse().unwrap()).filter(has_word).collect()
    }

    /// The ssh processes of a run.
    pub(super) fn ssh_of(&self, running: &Running) -> Vec<u32> {
        let parent = running.pid().as_raw_nonzero().get().to_string();
        let is_of_run = |pid: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").and_then(|(_, behind)| behind.split(' ').nth(1)) == Some(parent.as_str())
        };
        self.processes("near", b"ssh").into_iter().filter(is_of_run).collect()
    }

    /// Pushes and pulls a tree by way of this host, and gives the transports that the two began
    /// with.
    pub(super) fn there_and_back(&self, host: &str) -> [String; 2] {
        let dir = self.client.make_dir("tree");
        files::make(dir.join("big"), 1, (20 << 20) + 3);
        files::make(dir.join("it's small"), 2, 100);
        let to = self.server.path(format!("to {host}"));
        let _ = std::fs::remove_dir_all(&to);
        let _ = std::fs::remove_dir_all(self.client.path(format!("from {host}")));
        let push = self.run("push").args(["tree/", &format!("{host}:{}", to.display())]).succeed();
        tree::assert_same(&Tree::of(&dir).beneath(), &Tree::of(&to).beneath(), &push);
        let pull = self.run("pull").args([&format!("{host}:{}/", to.display()), &format!("from {host}/")]).succeed();
        let back = self.client.path(format!("from {host}"));
        tree::assert_same(&Tree::of(&dir).beneath(), &Tree::of(&back).beneath(), &pull);
        let transport = |outcome: &Outcome| outcome.events_of("start")[0]["transport"].as_str().unwrap().to_owned();
        [transport(&push), transport(&pull)]
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn lanes_go_straight_or_back_where_a_port_is_open_and_through_ssh_where_none_is() {
    let site = Site::new();
    // On a busy machine a way may be found a moment too late.
    let beside_ssh = |what| {
        let mut tries = (0..5).map(|_| site.there_and_back("far"));
        assert!(tries.any(|began| began == ["tcp", "tcp"]), "{what}");
    };
    beside_ssh("open");
    site.net.close("near", true);
    beside_ssh("the other host can be reached by nobody, but dials");
    site.net.close("far", true);
    assert_eq!(site.there_and_back("far"), ["ssh", "ssh"], "closed both ways");
    site.net.close("near", false);
    beside_ssh("closed one way");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_jump_host_is_no_way_for_lanes_and_ssh_carries_them() {
    assert_eq!(Site::new().there_and_back("behind"), ["ssh", "ssh"]);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_transfer_leaves_ssh_when_a_port_is_opened_in_its_middle() {
    for (verb, ends) in [("push", ["f", "far:TO/"]), ("pull", ["far:TO/f", "got/"])] {
        let site = Site::new();
        let to = site.server.make_dir("d");
        site.net.close("near", true);
        site.net.close("far", true);
        files::make(site.client.path("f"), 1, 96 << 20);
        files::make(to.join("f"), 1, 96 << 20);
        let ends = ends.map(|end| end.replace("TO", to.to_str().unwrap()));
        let run = site.run(verb).args(["--rate", "8MB/s", "--chunk-size", "1MiB", "--if-exists", "replace"]).args(ends);
        let running = run.start();
        assert_eq!(running.wait_type("start")["transport"], "ssh");
        running
            .wait_event(|event| event["bytes_received"].as_u64().or(event["bytes_sent"].as_u64()).filter(|n| *n > 0));
        site.net.close("near", false);
        site.net.close("far", false);
        let lanes = running.wait_type("lanes");
        assert!(lanes["change"].as_str().unwrap().contains("straight"), "{verb}: {lanes}");
        let pid = running.pid().as_raw_nonzero().get();
        wait_for_lanes(&site.net.at("near"), pid);
        let outcome = running.fail(0);
        // A busy machine may hold a lane up at the end, which is given up then with the unit that
        // it sends and one that waits for it.
        let given_up = outcome.events_of("lanes").iter().filter(|lanes| lanes["change"] == "lose 1").count();
        let resent = outcome.summary()["bytes_resent"].as_u64().unwrap();
        assert!(resent <= given_up as u64 * (2 << 20), "nothing is lost on the way: {outcome}");
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn no_port_stays_open_at_the_client_once_lanes_came_back_to_it() {
    let site = Site::new();
    let to = site.server.make_dir("d");
    site.net.close("near", true);
    files::make(site.client.path("f"), 1, 48 << 20);
    let running = site.run("push").args(["--rate", "8MB/s", "f", &format!("far:{}/", to.display())]).start();
    let (near, pid) = (site.net.at("near"), running.pid().as_raw_nonzero().get());
    wait_for_lanes(&near, pid);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !tool_output("ip", &["netns", "exec", &near, "ss", "-Hltn"]).trim().is_empty() {
        assert!(std::time::Instant::now() < until, "a port is open still");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let outcome = running.fail(0);
    assert_eq!(outcome.summary()["files_committed"], 1, "{outcome}");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_transfer_whose_way_is_closed_goes_on_through_ssh_and_leaves_it_when_the_way_opens_again() {
    let site = Site::new();
    let to = site.server.make_dir("d");
    // The way that is tried again after 3, 6 and 12 s has to be found before the run is over.
    files::make(site.client.path("f"), 1, 144 << 20);
    let running = site.run("push").args(["--rate", "4MB/s", "f", &format!("far:{}/", to.display())]).start();
    let (near, pid) = (site.net.at("near"), running.pid().as_raw_nonzero().get());
    wait_for_lanes(&near, pid);
    site.net.close("near", true);
    site.net.close("far", true);
    // What stands is broken off, as by a gate that forgets its connections.
    for end in ["near", "far"] {
        let ports = "( sport >= 50000 and sport <= 50099 ) or ( dport >= 50000 and dport <= 50099 )";
        tool("ip", &["netns", "exec", &site.net.at(end), "ss", "-K", ports]);
    }
    let before = running.wait_type("progress")["bytes_sent"].as_u64().unwrap();
    running.wait_event(|event| event["bytes_sent"].as_u64().filter(|sent| *sent > before + (8 << 20)));
    site.net.close("near", false);
    site.net.close("far", false);
    wait_for_lanes(&near, pid);
    let outcome = running.fail(0);
    assert_eq!(outcome.summary()["files_committed"], 1, "{outcome}");
    let through = outcome.summary()["ssh"]["bytes"].as_u64().unwrap();
    assert!(through > 8 << 20, "{through}: {outcome}");
}

/// Waits until it is so.
pub(super) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < until, "not after 60 s: {what}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// Waits until a process has connections to ports of lanes.
pub(super) fn wait_for_lanes(netns: &str, pid: i32) {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let said = tool_output("ip", &["netns", "exec", netns, "ss", "-Htnp", "state", "established"]);
        let of_lane = |line: &&str| line.contains(&format!("pid={pid},")) && line.contains(":500");
        if said.lines().filter(of_lane).count() >= 2 {
            return;
        }
        assert!(std::time::Instant::now() < until, "no lane went straight:\n{said}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_host_with_another_key_is_refused_by_ssh_and_that_is_4() {
    let site = Site::new();
    let other = site.server.path("other");
    keygen(&other);
    let public = std::fs::read_to_string(other.with_extension("pub")).unwrap();
    files::write(site.client.path("known_hosts"), format!("{SERVER} {public}"));
    files::make(site.client.path("f"), 1, 10);
    let to = site.server.make_dir("d");
    let outcome = site.run("push").args(["f", &format!("far:{}", to.display())]).fail(4);
    assert!(outcome.stderr.contains("Host key verification failed"), "{outcome}");
    assert!(!to.join("f").exists());
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn runs_over_sshd_leave_no_process_behind_also_when_they_are_killed() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 4 << 20);
    let to = site.server.make_dir("d");
    let dest = format!("far:{}/", to.display());
    for n in 0..random::variable("SSH_RUNS").unwrap_or(8) {
        let running = site.run("push").args(["--if-exists", "replace", "--rate", "20MB/s", "f", &dest]).start();
        if n % 2 == 0 {
            running.wait_type("start");
            running.signal(rustix::process::Signal::KILL);
            drop(running);
        } else {
            running.fail(0);
        }
    }
    wait_until("the far processes end", || site.serving().is_empty());
    site.run("push").args(["--if-exists", "replace", "f", &dest]).succeed();
    wait_until("the far processes end", || site.serving().is_empty());
    wait_until("the ssh processes here end", || site.processes("near", b"ssh").is_empty());
    assert_eq!(tree::leftovers(&to), [""; 0]);
    let kept: Vec<_> = std::fs::read_dir(&to).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(kept, ["f"]);
}
