//! `ssh`: the time until the first byte is there that a push or a pull moves over ssh, against the
//! time that ssh itself takes to have `true` run there, over emulated paths of two round trips.
//!
//! Both hosts are namespaces of this machine, with a real sshd at the far one; needs root. See
//! docs/BENCHMARKS.md.

#![allow(clippy::disallowed_methods, reason = "benches set up and count their own scratch files")]
#![allow(clippy::unwrap_used, reason = "the logins are shared with tests")]

mod kit;
#[path = "../tests/ssh/logins.rs"]
mod logins;

use std::fs;
use std::path::Path;

use anyhow::{Result, anyhow};
use kit::{Bench, Options, median, table};
use logins::Logins;
use longhaul_wan::{Change, Config, Link, Wan};
use serde::Serialize;

/// One run, and ssh alone beside it.
#[derive(Serialize)]
struct First {
    verb: &'static str,
    rtt_ms: u32,
    /// Seconds from the start of the command to the first byte at its destination.
    first_byte_s: f64,
    /// Seconds that `ssh HOST true` took.
    ssh_s: f64,
}

/// Two hosts, and logins from the one to the other.
struct Hosts<'a> {
    wan: &'a Wan,
    logins: &'a Logins,
    near: &'a Path,
    far: &'a Path,
}

fn main() -> Result<()> {
    let Some(options) = Options::parse() else { return Ok(()) };
    let bench = Bench::start("ssh", env!("CARGO_TARGET_TMPDIR"), options)?;
    let wan = Wan::new(&Config { links: vec![Link::default()], ..Config::default() })?;
    // sshd refuses keys beneath directories that others may write.
    let (near, far) = (bench.scratch.subdir("near")?, tempfile::tempdir_in("/root")?);
    let address = wan.far().address(0).to_string();
    let logins = Logins::make(&near, far.path(), &[&address], &format!("Host far\n HostName {address}\n"));
    let _sshd = logins.serve(&wan.far().prefix());
    logins.wait_for(&wan.near().prefix(), "far");
    for dir in [&near, far.path()] {
        fs::write(dir.join("f"), [7; 1000])?;
    }
    let hosts = Hosts { wan: &wan, logins: &logins, near: &near, far: far.path() };
    print(&measure(&bench, &hosts)?);
    bench.finish();
    Ok(())
}

fn measure(bench: &Bench, hosts: &Hosts<'_>) -> Result<Vec<First>> {
    let mut all = Vec::new();
    for round in 0..bench.options.rounds() {
        for rtt_ms in RTT_MS {
            hosts.wan.change(0, None, &format!("rtt={rtt_ms}ms").parse::<Change>()?)?;
            for verb in VERBS {
                let first = hosts.first_byte(verb, rtt_ms, round)?;
                bench.recorder.record(&first)?;
                all.push(first);
            }
        }
    }
    Ok(all)
}

impl Hosts<'_> {
    fn first_byte(&self, verb: &'static str, rtt_ms: u32, round: usize) -> Result<First> {
        let name = format!("{verb}-{rtt_ms}-{round}");
        let remote = |name: &str| format!("far:{}", self.far.join(name).display());
        let local = |name: &str| self.near.join(name).display().to_string();
        let (ends, arrives) = match verb {
            "push" => ([local("f"), remote(&name)], self.far.join(&name)),
            _ => ([remote("f"), local(&name)], self.near.join(&name)),
        };
        let mut words = self.wan.near().prefix().to_vec();
        let (program, ssh) = (env!("CARGO_BIN_EXE_longhaul"), self.logins.ssh());
        words.extend([program, verb, "--remote-longhaul", program, "--ssh", &ssh].map(str::to_owned));
        words.extend(ends);
        let mut command = logins::command(&words);
        let first_byte = logins::time_to(command.env("XDG_CONFIG_HOME", self.near), &arrives);
        let ssh = self.logins.own_time(&self.wan.near().prefix(), "far").map_err(|said| anyhow!("ssh: {said}"))?;
        Ok(First { verb, rtt_ms, first_byte_s: first_byte.as_secs_f64(), ssh_s: ssh.as_secs_f64() })
    }
}

fn print(all: &[First]) {
    let of = |verb: &str, rtt_ms: u32, what: fn(&First) -> f64| {
        median(&all.iter().filter(|first| first.verb == verb && first.rtt_ms == rtt_ms).map(what).collect::<Vec<_>>())
    };
    let head = ["", "round trip ms", "first byte s", "ssh itself s", "beyond it ms"].map(str::to_owned).to_vec();
    let row = |verb: &str, rtt_ms| {
        let (first, ssh) = (of(verb, rtt_ms, |one| one.first_byte_s), of(verb, rtt_ms, |one| one.ssh_s));
        let beyond = of(verb, rtt_ms, |one| one.first_byte_s - one.ssh_s);
        vec![
            verb.to_owned(),
            rtt_ms.to_string(),
            format!("{first:.3}"),
            format!("{ssh:.3}"),
            format!("{:.0}", beyond * 1e3),
        ]
    };
    let rows = VERBS.iter().flat_map(|verb| RTT_MS.map(|rtt_ms| row(verb, rtt_ms)));
    print!("\n{}", table(&[vec![head], rows.collect()].concat()));
    for verb in VERBS {
        let [near, long] = RTT_MS.map(|rtt_ms| of(verb, rtt_ms, |one| one.first_byte_s - one.ssh_s));
        let trips = (long - near) * 1e3 / f64::from(RTT_MS[1] - RTT_MS[0]);
        println!("{verb}: {trips:.2} round trips beyond those of ssh; target 3");
    }
}

const VERBS: [&str; 2] = ["push", "pull"];
const RTT_MS: [u32; 2] = [20, 220];
