//! `cargo xtask deb`: the Debian package of the program as it is handed out.
//!
//! In: the sources. Out: `target/deb/longhaul_VERSION_ARCHITECTURE.deb`. `package` makes it. Needs
//! `dpkg-dev` (Debian's, on a Debian system of the release that the package is for).

mod package;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use package::Package;

/// The arguments of `deb`.
#[derive(Args)]
pub(crate) struct DebArgs {
    /// Pack this program as it is, instead of a release that is built for it
    #[arg(long)]
    program: Option<PathBuf>,
}

/// Builds the program, unless one is given, and the package.
pub(crate) fn run(args: &DebArgs) -> Result<()> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let program = match &args.program {
        Some(program) => program.clone(),
        None => {
            let mut cargo = Command::new(env!("CARGO"));
            let status = cargo.args(["build", "--release", "--locked", "--package", "longhaul"]).status()?;
            ensure!(status.success(), "cargo build failed: {status}");
            target.join("release/longhaul")
        }
    };
    let libraries = libraries()?;
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the repository")?;
    let package = Package { repository, program: &program, libraries: &libraries, compression: "xz" };
    let deb = package.build(&target.join("deb"))?;
    println!("{} ({:.1} MB)", deb.display(), std::fs::metadata(&deb)?.len() as f64 / 1e6);
    Ok(())
}

/// The crates in the program, a line each: name, version and licence.
fn libraries() -> Result<String> {
    let mut cargo = Command::new(env!("CARGO"));
    let tree = ["tree", "--locked", "--package", "longhaul", "--edges", "normal", "--prefix", "none"];
    let output = cargo.args(tree).args(["--format", "{p}  {l}"]).output().context("cannot run cargo tree")?;
    ensure!(output.status.success(), "cargo tree failed: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    // Our own crates have a path behind their version.
    let lines = text.lines().map(|line| line.trim_end_matches(" (*)")).filter(|line| !line.starts_with("longhaul"));
    let lines: BTreeSet<String> = lines.map(|line| format!("{line}\n").replace(" (proc-macro)", "")).collect();
    Ok(lines.into_iter().collect())
}
