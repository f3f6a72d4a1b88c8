//! `udp`: one native UDP lane alone, from memory to memory, between two processes in network
//! namespaces of their own, over a veth pair.
//!
//! Each row is a rate and an MTU. CPU time is that of each whole process, start included, as
//! `/proc` counts it; beside it the part that hashes, and the context switches. It makes the
//! namespaces itself, and needs root for that. See docs/BENCHMARKS.md.

#![allow(clippy::disallowed_methods, reason = "benches set up and count what they need")]

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, process};

use anyhow::{Context, Result, bail, ensure};
use longhaul_core::ChunkSize;
use longhaul_engine::{UdpReport, UdpRun, receive_over_udp, send_over_udp};
use longhaul_net::{GreetLimits, Greeted, Identity, Listener, PeerCheck, QuicListener, ServerTls, dial_control, greet};
use rustix::time::{ClockId, clock_gettime};

/// A row of the table.
#[derive(Clone, Copy)]
struct Row {
    mtu: u32,
    /// Bits/s of payload. `None` for no rate.
    rate: Option<u64>,
    bytes: u64,
}

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().collect();
    if let [_, role, rest @ ..] = &arguments[..]
        && ["send", "receive"].contains(&role.as_str())
    {
        return end(role, rest);
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        eprintln!("not a measurement: run it with `cargo bench -p longhaul-engine --bench udp`");
        return Ok(());
    }
    let gigabytes = if arguments.iter().any(|argument| argument == "--quick") { 1 } else { 5 };
    println!("sender / receiver, each for 10^9 bytes of payload: CPU s beside hashing, hashing, context switches");
    for mtu in [1500, 9000] {
        let pair = Pair::new(mtu)?;
        for rate in [Some(1_000_000_000), Some(3_000_000_000), Some(10_000_000_000), None] {
            let bytes = gigabytes * if rate.is_none() { 2_000_000_000 } else { 1_000_000_000 };
            print(&pair, Row { mtu, rate, bytes })?;
        }
    }
    Ok(())
}

/// Two namespaces with a veth pair between them.
struct Pair {
    names: [String; 2],
}

impl Pair {
    fn new(mtu: u32) -> Result<Pair> {
        let pair = Pair { names: ["a", "b"].map(|end| format!("lh-udp-{}-{end}", process::id())) };
        let [a, b] = &pair.names;
        for name in &pair.names {
            ip(&format!("netns add {name}"))?;
        }
        ip(&format!("-n {a} link add lane mtu {mtu} type veth peer name lane mtu {mtu} netns {b}"))?;
        for (name, host) in pair.names.iter().zip([1, 2]) {
            ip(&format!("-n {name} addr add 192.0.2.{host}/24 dev lane"))?;
            ip(&format!("-n {name} link set lane up"))?;
        }
        Ok(pair)
    }

    fn start(&self, at: usize, role: &str, row: Row) -> Result<Child> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[at]]).arg(env::current_exe()?);
        command.args([role, &row.bytes.to_string(), &row.rate.unwrap_or(0).to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().context("cannot start an end")
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn ip(arguments: &str) -> Result<()> {
    let status = Command::new("ip").args(arguments.split(' ')).status().context("cannot run ip")?;
    ensure!(status.success(), "ip {arguments} failed: it needs root");
    Ok(())
}

fn print(pair: &Pair, row: Row) -> Result<()> {
    let mut receiver = pair.start(1, "receive", row)?;
    // The receiver says its key and its ports, the sender reads them.
    let mut lines = Lines::of(&mut receiver)?;
    let said = lines.next()?;
    let mut sender = pair.start(0, "send", row)?;
    let mut stdin = sender.stdin.take().context("a pipe")?;
    writeln!(stdin, "{said}")?;
    drop(stdin);
    let sent = Lines::of(&mut sender)?.next()?;
    let received = lines.next()?;
    for mut end in [sender, receiver] {
        ensure!(end.wait()?.success(), "an end failed");
    }
    let rate = row.rate.map_or("no rate".to_owned(), |rate| format!("{} Gbit/s", rate / 1_000_000_000));
    println!("MTU {} {rate:>10}: {sent} / {received}", row.mtu);
    Ok(())
}

/// The words of a process, line by line.
struct Lines(std::io::BufReader<std::process::ChildStdout>);

impl Lines {
    fn of(child: &mut Child) -> Result<Lines> {
        Ok(Lines(std::io::BufReader::new(child.stdout.take().context("a pipe")?)))
    }

    fn next(&mut self) -> Result<String> {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut self.0, &mut line)?;
        ensure!(!line.is_empty(), "an end said nothing");
        Ok(line.trim_end().to_owned())
    }
}

/// One end, in a process of its own.
fn end(role: &str, arguments: &[String]) -> Result<()> {
    let [bytes, rate] = arguments else { bail!("bytes and rate") };
    let (bytes, rate): (u64, u64) = (bytes.parse()?, rate.parse()?);
    let chunk = ChunkSize::DEFAULT;
    let units = u32::try_from(bytes / chunk.bytes())?;
    let rate = Some(rate / 8).filter(|rate| *rate > 0);
    let run = UdpRun { units, chunk, window: 32, rate };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let begun = Instant::now();
    let report = match role {
        "receive" => runtime.block_on(receive(run))?,
        _ => send(&runtime, run)?,
    };
    print_end(&report, begun.elapsed());
    Ok(())
}

async fn receive(run: UdpRun) -> Result<UdpReport> {
    let identity = Identity::generate()?;
    let tls = ServerTls::new(&identity, GreetLimits::default())?;
    let listener = Listener::bind("192.0.2.2:0".parse()?)?;
    let mut port = QuicListener::bind(listener.local_addr(), &tls)?;
    let knocks = port.take_knocks().context("a port")?;
    println!("{} {}", identity.public(), listener.local_addr());
    let Greeted::Control(control) = greet(listener.accept().await?.0, &tls).await? else { bail!("no control") };
    receive_over_udp(&control, knocks, run).await.map_err(|fault| anyhow::anyhow!("{fault:?}"))
}

fn send(runtime: &tokio::runtime::Runtime, run: UdpRun) -> Result<UdpReport> {
    let mut said = String::new();
    std::io::stdin().read_line(&mut said)?;
    let (key, addr) = said.trim_end().split_once(' ').context("a key and a port")?;
    let (identity, check) = (Identity::generate()?, PeerCheck::Pinned(key.parse()?));
    let control = runtime.block_on(dial_control(addr, &identity, check))?;
    let to: SocketAddr = addr.parse()?;
    send_over_udp(&control, to, run).map_err(|fault| anyhow::anyhow!("{fault:?}"))
}

fn print_end(report: &UdpReport, wall: Duration) {
    let gb = report.bytes as f64 / 1e9;
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let cpu_s = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    let hash = report.hash_cpu_s;
    let mut line = format!("{:.3} + {:.3}, {:.0}", (cpu_s - hash) / gb, hash / gb, switches() as f64 / gb);
    line += &format!(" [lane {:.3}, {:.2} Gbit/s", report.cpu_s / gb, report.bytes as f64 * 8e-9 / report.seconds);
    if report.datagram_bytes > 0 {
        line += &format!(
            ", {} B, resent {:.2} %, lost {}",
            report.datagram_bytes,
            100.0 * report.resent as f64 / report.bytes as f64,
            report.lost
        );
    } else {
        line += &format!(", dropped {}", report.dropped);
    }
    println!("{line}, {:.1} s]", wall.as_secs_f64());
}

/// Context switches of all threads that live.
fn switches() -> u64 {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return 0 };
    tasks.flatten().map(|task| switches_of(&task.path())).sum()
}

fn switches_of(task: &Path) -> u64 {
    let status = fs::read_to_string(task.join("status")).unwrap_or_default();
    let counts = status.lines().filter_map(|line| line.split_once("voluntary_ctxt_switches:"));
    counts.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum()
}
