//! `cargo xtask handshakes`: pushes a file over an emulated path with each transport, looks at
//! every packet at the client's end, and prints the table of round trips that docs/WIRE.md quotes.
//!
//! In: a built program and root, for namespaces and a look at packets. Out: a table for each
//! transport on standard output. It judges nothing, and must not know what is in a packet: all of
//! it is encrypted but the kind of a datagram of a lane over UDP.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use clap::Args;
use longhaul_wan::{Change, Config, Link, Wan};

use crate::kit::{self, Longhaul, table};
use crate::sniff::{Over, Passed, Seen, Sniffer};

/// The options of the chore
#[derive(Debug, Args)]
pub(crate) struct HandshakesArgs {
    /// The program to look at [default: target/debug/longhaul]
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Bytes of the file that is pushed
    #[arg(long, value_name = "BYTES", default_value_t = 1000)]
    bytes: usize,
    /// How the lanes are protected: private, or safe, which only lanes over TCP can be
    #[arg(long, value_name = "LEVEL", default_value = "private")]
    protect: String,
}

/// Looks, and prints.
pub(crate) fn run(args: &HandshakesArgs) -> Result<()> {
    let program = args.program.clone().unwrap_or_else(|| PathBuf::from("target/debug/longhaul"));
    let program = program.canonicalize().with_context(|| format!("{} is not built", program.display()))?;
    let home = tempfile::tempdir()?;
    let longhaul = Longhaul::new(&program, home.path().to_owned())?;
    let source = home.path().join("file");
    fs::write(&source, vec![7; args.bytes])?;
    println!("bytes of payload within TCP or UDP; `>` leaves the client, `<` comes; times in round trips of 1 s");
    let transports = if args.protect == "safe" { &["tcp"][..] } else { &["tcp", "udp", "quic"] };
    for transport in transports {
        let target = home.path().join(transport);
        fs::create_dir(&target)?;
        let (passed, took) = push(&longhaul, transport, &["--protect", &args.protect], &source, &target)?;
        println!("\n{transport}: {} from start to exit", round_trips(took));
        print!("{}", table(&rows(&passed)?));
    }
    Ok(())
}

/// Pushes the file once, with these options. Returns what passed, and how long the program ran.
fn push(
    longhaul: &Longhaul,
    transport: &str,
    options: &[&str],
    source: &Path,
    target: &Path,
) -> Result<(Vec<Passed>, Duration)> {
    let mut link = Link { mtu: 1500, ..Link::default() };
    link.apply(&format!("rate=1Gbit/s,rtt={}us", ROUND_TRIP.as_micros()).parse::<Change>()?);
    let wan = Wan::new(&Config { links: vec![link], ..Config::default() })?;
    let daemon = longhaul.serve_at(target, wan.far().address(0).into(), |command| wan.far().adopt(command))?;
    let mut sniffer = wan.near().run(|| Sniffer::open(Seen::Both))??;
    let over = AtomicBool::new(false);
    let (passed, took) = thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut passed = Vec::new();
            while !over.load(Ordering::Relaxed) {
                passed.extend(sniffer.next(Duration::from_millis(20))?);
            }
            Ok::<_, std::io::Error>(passed)
        });
        let mut command = longhaul.push_by_default(&daemon);
        command
            .args(["--transport", transport])
            .args(options)
            .arg(source)
            .arg(format!("lh://{}/bench/", daemon.addr()));
        wan.near().adopt(&mut command);
        let begun = Instant::now();
        let ran = kit::run(&mut command);
        let took = begun.elapsed();
        over.store(true, Ordering::Relaxed);
        let passed = looks.join().map_err(|_| anyhow!("the look at packets panicked"))??;
        ran.map(|_| (passed, took))
    })?;
    drop(daemon);
    Ok((passed, took))
}

/// The rows of the table: what left or came together on connections that did the same.
fn rows(passed: &[Passed]) -> Result<Vec<Vec<String>>> {
    let first = passed.first().context("no packet was seen")?;
    // The client speaks first.
    let client = *first.from.ip();
    let mut names: BTreeMap<SocketAddrV4, String> = BTreeMap::new();
    let mut rows = vec![["time", "connection", "", "bytes"].map(str::to_owned).to_vec()];
    let mut groups: Vec<Group> = Vec::new();
    for packet in passed {
        let leaves = *packet.from.ip() == client;
        let end = if leaves { packet.from } else { packet.to };
        let said = match (packet.over, packet.payload.len()) {
            (Over::Tcp(flags), 0) if flags & SYN != 0 => "SYN".to_owned(),
            (Over::Tcp(flags), 0) if flags & FIN != 0 => "FIN".to_owned(),
            // An acknowledgement alone.
            (Over::Tcp(_), 0) => continue,
            (Over::Tcp(_), bytes) => bytes.to_string(),
            (Over::Udp, bytes) => format!("{}{bytes}", kind(&packet.payload)),
        };
        let is_tcp = packet.over != Over::Udp;
        let count = names.len();
        let name = names.entry(end).or_insert_with(|| match (is_tcp, count) {
            (true, 0) => "control".to_owned(),
            (true, _) => format!("lane {count}"),
            (false, _) => format!("UDP {count}"),
        });
        let at = packet.at - first.at;
        match groups.iter_mut().rev().find(|group| group.name == *name && group.leaves == leaves) {
            Some(group) if at - group.last < TOGETHER => {
                group.said.push(said);
                group.last = at;
            }
            _ => groups.push(Group { at, last: at, name: name.clone(), leaves, said: vec![said] }),
        }
    }
    for group in groups {
        let way = if group.leaves { ">" } else { "<" };
        rows.push(vec![round_trips(group.at), group.name, way.to_owned(), folded(&group.said)]);
    }
    Ok(rows)
}

/// Packets that left or came together on one connection.
struct Group {
    at: Duration,
    last: Duration,
    name: String,
    leaves: bool,
    said: Vec<String>,
}

/// The kind of a datagram: docs/WIRE.md, section 10, and RFC 9000, section 17.
fn kind(datagram: &[u8]) -> &'static str {
    match datagram.first() {
        Some(0x21) => "JOIN ",
        Some(0x22) => "JOINED ",
        Some(0x23) => "DATA ",
        Some(0x24) => "UNIT ",
        Some(0x25) => "STATUS ",
        Some(0x26) => "PROBE ",
        Some(0x27) => "END ",
        Some(0x28) => "CLOSE ",
        Some(first) if first & 0xf0 == 0xc0 => "Initial ",
        Some(first) if first & 0xf0 == 0xe0 => "Handshake ",
        _ => "",
    }
}

/// Equal ones in a row are told once, with their number.
fn folded(said: &[String]) -> String {
    let runs = said.chunk_by(|one, next| one == next);
    let text = |run: &[String]| if run.len() == 1 { run[0].clone() } else { format!("{} x {}", run.len(), run[0]) };
    runs.map(text).collect::<Vec<_>>().join(" + ")
}

fn round_trips(time: Duration) -> String {
    format!("{:.2}", time.div_duration_f64(ROUND_TRIP))
}

const ROUND_TRIP: Duration = Duration::from_secs(1);
/// Packets that leave within so short a time leave together.
const TOGETHER: Duration = Duration::from_millis(50);
const SYN: u8 = 2;
const FIN: u8 = 1;
