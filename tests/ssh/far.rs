//! A host that ssh leads to over a long path: the round trips that go by before the first byte is
//! there. The paths are `longhaul-wan`'s. Needs root.

use std::time::Duration;

use longhaul_wan::{Change, Config, Link, Wan};

use super::logins::{self, Logins, Sshd};
use crate::fixture::{Host, PROGRAM, files};

/// Two hosts that are far from each other, with an sshd at the far one.
struct Far {
    _sshd: Sshd,
    wan: Wan,
    client: Host,
    server: Host,
    logins: Logins,
}

impl Far {
    fn new() -> Far {
        let wan = Wan::new(&Config { links: vec![Link::default()], ..Config::default() }).unwrap();
        let (client, server) = (Host::new(), Host::within("/root".as_ref()));
        let address = wan.far().address(0).to_string();
        let logins = Logins::make(client.dir(), server.dir(), &[&address], &format!("Host far\n HostName {address}\n"));
        let _sshd = logins.serve(&wan.far().prefix());
        logins.wait_for(&wan.near().prefix(), "far");
        Far { _sshd, wan, client, server, logins }
    }

    /// Seconds until a file of one packet is there that a push or a pull brings, beyond those that
    /// ssh itself takes, over a path of this round trip.
    fn beyond_ssh(&self, verb: &str, rtt_ms: u32) -> f64 {
        self.wan.change(0, None, &format!("rtt={rtt_ms}ms").parse::<Change>().unwrap()).unwrap();
        let (mut whole, mut own) = (Duration::MAX, Duration::MAX);
        let tries = if rtt_ms == RTT_MS[0] { TRIES_NEAR } else { TRIES_FAR };
        for n in 0..tries {
            whole = whole.min(self.first_byte(verb, &format!("{verb}-{rtt_ms}-{n}")));
            own = own.min(self.logins.own_time(&self.wan.near().prefix(), "far").unwrap());
        }
        eprintln!("{verb} {rtt_ms} ms: {whole:?}, ssh itself {own:?}");
        whole.as_secs_f64() - own.as_secs_f64()
    }

    /// The time until it is there under this name.
    fn first_byte(&self, verb: &str, name: &str) -> Duration {
        let remote = |name: &str| format!("far:{}", self.server.path(name).display());
        let local = |name: &str| self.client.path(name).display().to_string();
        let (ends, arrives) = match verb {
            "push" => ([local("f"), remote(name)], self.server.path(name)),
            _ => ([remote("f"), local(name)], self.client.path(name)),
        };
        let mut words = self.wan.near().prefix().to_vec();
        let ssh = self.logins.ssh();
        words.extend([PROGRAM, verb, "--remote-longhaul", PROGRAM, "--ssh", &ssh].map(str::to_owned));
        words.extend(ends);
        let mut command = logins::command(&words);
        logins::time_to(command.env("XDG_CONFIG_HOME", self.client.config_home()), &arrives)
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn the_first_byte_takes_the_round_trips_of_its_design_beyond_those_of_ssh() {
    let far = Far::new();
    files::make(far.client.path("f"), 1, 1000);
    files::make(far.server.path("f"), 1, 1000);
    // The sender of a pull hears once more how much it may send. (The bench has the figures.)
    for (verb, expected) in [("push", 2.5), ("pull", 3.0)] {
        let [near, long] = RTT_MS.map(|rtt| far.beyond_ssh(verb, rtt));
        let round_trips = (long - near) * 1e3 / f64::from(RTT_MS[1] - RTT_MS[0]);
        eprintln!("{verb}: {round_trips:.2} round trips beyond ssh");
        // A busy machine adds to them, but less than another flight, which is half of one.
        assert!(round_trips < expected + 0.5, "{verb}: {round_trips:.2} round trips");
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn where_no_datagram_passes_straight_lanes_that_were_to_go_over_udp_go_over_tcp_without_a_retry() {
    let far = Far::new();
    far.wan.change(0, None, &"rtt=20ms,block=udp".parse::<Change>().unwrap()).unwrap();
    files::make(far.client.path("f"), 1, 3_000_000);
    let (there, ssh) = (far.server.path("there"), far.logins.ssh());
    let remote = format!("far:{}", there.display());
    let [near, back] = ["f", "back"].map(|name| far.client.path(name).display().to_string());
    for ends in [["push", &near, &remote], ["pull", &remote, &back]] {
        let mut words = far.wan.near().prefix().to_vec();
        words.push(PROGRAM.to_owned());
        words.extend(ends.map(str::to_owned));
        let options = ["--json", "--transport", "udp", "--retry-for", "0", "--remote-longhaul", PROGRAM, "--ssh", &ssh];
        words.extend(options.map(str::to_owned));
        let ran = logins::command(&words).env("XDG_CONFIG_HOME", far.client.config_home()).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{ends:?}: {said}");
        assert!(said.contains("over UDP in 4 s"), "{ends:?}: lanes over UDP were tried: {said}");
    }
    for copy in [there, back.into()] {
        assert!(std::fs::read(&copy).unwrap() == files::bytes(1, 3_000_000), "{}", copy.display());
    }
}

/// Round trips so far apart that what a busy machine takes is little beside the difference.
const RTT_MS: [u32; 2] = [20, 620];
/// The fastest of so many runs: others met a busy machine.
const TRIES_NEAR: usize = 6;
const TRIES_FAR: usize = 2;
