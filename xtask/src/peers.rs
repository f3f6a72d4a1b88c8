//! `cargo xtask peers`: the same file and the same tree moved over loopback by several tools, each
//! as its users would run it, cold source, a final sync of the target counted for all.
//!
//! Prints the table of the README and records raw runs as the benches do. Must not judge.

mod servers;
mod setup;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use longhaul_core::units::parse_size;

use crate::kit::{
    Arrived, Contender, Course, Daemon, Longhaul, Recorder, RsyncDaemon, Run, Scratch, Sides, compete, median,
    run as finish,
};
use servers::{GridFtp, Xrootd};

/// What `peers` takes.
#[derive(Args)]
pub(crate) struct PeersArgs {
    /// Size of the one file
    #[arg(long, default_value = "4GiB", value_parser = |text: &str| parse_size(text).map(|size| size.get()))]
    size: u64,
    /// Number of 4 KiB files in the tree, a hundred to a directory
    #[arg(long, default_value_t = 20_000)]
    files: u64,
    /// Rounds of each; medians are printed
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// A directory on the disk to measure, reachable by every user [default: beneath target/]
    #[arg(long)]
    dir: Option<PathBuf>,
}

/// A tool in the comparison.
struct Peer<'a> {
    name: &'static str,
    /// The checks that protect a byte from its disk to the other one, by default and in these
    /// settings.
    checks: &'static str,
    /// A command that loads its programs and does nothing.
    warm_up: Vec<String>,
    push: Push<'a>,
}

/// Gives the command that moves a file, or the contents of a directory, into the directory `run` of
/// the target.
type Push<'a> = Box<dyn Fn(&Path, Kind) -> Command + 'a>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Tree,
}

/// Runs the comparison.
pub(crate) fn run(args: &PeersArgs) -> Result<()> {
    setup::install()?;
    let target_dir = setup::target_dir()?;
    let program = setup::build(&target_dir)?;
    let scratch = Scratch::new(args.dir.as_deref(), &target_dir)?;
    setup::open_to_all(scratch.path())?;
    plain(scratch.path())?;
    let recorder = Recorder::new("peers", false, scratch.path(), &target_dir)?;
    let (target, home) = (scratch.subdir("target")?, scratch.subdir("home")?);
    setup::open_to_all(&target)?;
    let rsync = RsyncDaemon::start(&home, &target)?;
    let xrootd = Xrootd::start(&home, &target)?;
    let gridftp = GridFtp::start()?;
    let longhaul = Longhaul::new(&program, home)?;
    let daemon = longhaul.serve(&target)?;
    let destination = target.join("run");
    let peers = [
        Peer {
            name: "cp",
            checks: "nothing (and no network)",
            warm_up: words(&["cp", "--version"]),
            push: cp(&destination),
        },
        Peer {
            name: "longhaul, private",
            checks: "encrypted; BLAKE3 of every chunk and file, end to end",
            warm_up: words(&[plain(&program)?, "--version"]),
            push: ours(&longhaul, &daemon, "private"),
        },
        Peer {
            name: "longhaul, safe",
            checks: "BLAKE3 of every chunk and file, end to end",
            warm_up: words(&[plain(&program)?, "--version"]),
            push: ours(&longhaul, &daemon, "safe"),
        },
        Peer {
            name: "rsync",
            checks: "checksum of each file",
            warm_up: words(&["rsync", "--version"]),
            push: rsync_push(&rsync),
        },
        Peer {
            name: "xrootd",
            checks: "CRC32C of each page on the wire",
            warm_up: words(&["xrdcp", "--version"]),
            push: Box::new(|source, kind| xrootd.push(source, kind, &destination)),
        },
        Peer {
            name: "GridFTP",
            checks: "nothing",
            warm_up: words(&["globus-url-copy", "-version"]),
            push: Box::new(|source, kind| gridftp.push(source, kind, &destination)),
        },
    ];
    let file = scratch.file("source", args.size)?;
    let by_file = course(args, &recorder, &peers, Kind::File, file.path, (file.bytes, 1), &target)?;
    let tree = scratch.tree("tree", args.files, args.files.div_ceil(100), 4096)?;
    let by_tree = course(args, &recorder, &peers, Kind::Tree, tree.path, (tree.bytes, tree.files), &target)?;
    println!("\n{}", markdown(&peers, &by_file, &by_tree));
    println!("\n{}.", recorder.host().line());
    println!("Versions: {}.", setup::versions()?.join(", "));
    println!("Raw results: {}", recorder.path().display());
    Ok(())
}

/// Lets all peers do one thing.
fn course(
    args: &PeersArgs,
    recorder: &Recorder,
    peers: &[Peer<'_>],
    kind: Kind,
    source: PathBuf,
    (bytes, files): (u64, u64),
    target: &Path,
) -> Result<Vec<Run>> {
    let course = Course {
        bytes,
        files,
        source: Some(source.clone()),
        target: Some(target.to_owned()),
        arrived: if kind == Kind::Tree { Arrived::Kept } else { Arrived::Removed },
        final_sync: true,
    };
    let mut contenders: Vec<Contender<'_>> = peers.iter().map(|peer| contender(peer, source.clone(), kind)).collect();
    compete(recorder, args.rounds.max(1), &course, &mut contenders)
}

fn contender<'a>(peer: &'a Peer<'_>, source: PathBuf, kind: Kind) -> Contender<'a> {
    let warm_up = peer.warm_up.split_first().map(|(program, args)| {
        let mut command = Command::new(program);
        command.args(args);
        command
    });
    let go = move |_: &Path| {
        let ran = finish(&mut (peer.push)(&source, kind))?;
        Ok(Sides { sender_cpu_s: Some(ran.cpu_s), ..Sides::default() })
    };
    Contender { name: peer.name, warm_up, go: Box::new(go) }
}

fn cp(destination: &Path) -> Push<'_> {
    Box::new(move |source, kind| {
        let mut command = Command::new("cp");
        match kind {
            Kind::File => command.arg(source).arg(destination),
            Kind::Tree => command.arg("-a").arg(source.join(".")).arg(destination),
        };
        command
    })
}

fn rsync_push(rsync: &RsyncDaemon) -> Push<'_> {
    Box::new(move |source, kind| match kind {
        Kind::File => rsync.push(&["-a", "--whole-file", "--inplace"], source, "run"),
        Kind::Tree => rsync.push(&["-a"], &source.join(""), "run"),
    })
}

fn ours<'a>(longhaul: &'a Longhaul, daemon: &'a Daemon, protect: &'static str) -> Push<'a> {
    Box::new(move |source, kind| {
        let source = if kind == Kind::Tree { source.join("") } else { source.to_owned() };
        let mut command = longhaul.push(daemon, protect, &source, "run");
        command.arg("-q");
        command
    })
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn markdown(peers: &[Peer<'_>], by_file: &[Run], by_tree: &[Run]) -> String {
    let (Some(file), Some(tree)) = (by_file.first(), by_tree.first()) else { return String::new() };
    let gb = file.bytes as f64 / 1e9;
    let mut text = format!(
        "| tool | one file of {gb:.1} GB | | CPU, whole machine | {} files of 4 KiB | | what is checked |\n\
         |---|--:|--:|--:|--:|--:|---|\n",
        tree.files
    );
    for peer in peers {
        let middle = |runs: &[Run], of: &dyn Fn(&Run) -> f64| {
            median(&runs.iter().filter(|run| run.what == peer.name).map(of).collect::<Vec<_>>())
        };
        let (file_s, tree_s) = (middle(by_file, &|run| run.seconds), middle(by_tree, &|run| run.seconds));
        let cpu = middle(by_file, &|run| run.machine_cpu_s) / gb;
        let (rate, files) = (file.bytes as f64 / 1e6 / file_s, tree.files as f64 / tree_s);
        text += &format!(
            "| {} | {file_s:.2} s | {rate:.0} MB/s | {cpu:.2} s/GB | {tree_s:.2} s | {files:.0} /s | {} |\n",
            peer.name, peer.checks
        );
    }
    text
}

/// A path as the text that a URL or a config needs.
fn plain(path: &Path) -> Result<&str> {
    path.to_str()
        .filter(|text| !text.contains(char::is_whitespace))
        .with_context(|| anyhow!("{} has characters that not all tools take: choose another --dir", path.display()))
}
