//! The requirements of the comparison: the other tools, and a release build of our own.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::geteuid;

use crate::kit::run;

/// Programs and the Debian packages that they come in.
const PROGRAMS: [(&str, &str); 5] = [
    ("rsync", "rsync"),
    ("xrootd", "xrootd-server"),
    ("xrdcp", "xrootd-client"),
    ("globus-gridftp-server", "globus-gridftp-server-progs"),
    ("globus-url-copy", "globus-gass-copy-progs"),
];

/// Installs missing programs, if this is root.
pub(crate) fn install() -> Result<()> {
    let missing: Vec<&str> =
        PROGRAMS.iter().filter(|(program, _)| !is_there(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !geteuid().is_root() {
        bail!("these are missing, and only root can install them: apt-get install {}", missing.join(" "));
    }
    eprintln!("installing {}", missing.join(" "));
    apt_get(&["update", "-qq"])?;
    apt_get(&[&["install", "-y", "-qq", "--no-install-recommends"][..], &missing].concat())
}

/// The directory in which cargo builds.
pub(crate) fn target_dir() -> Result<PathBuf> {
    #[derive(serde::Deserialize)]
    struct Metadata {
        target_directory: PathBuf,
    }
    let ran = run(cargo().args(["metadata", "--format-version", "1", "--no-deps"]))?;
    Ok(serde_json::from_str::<Metadata>(&ran.out)?.target_directory)
}

/// Builds the program for release. Returns its path.
pub(crate) fn build(target_dir: &Path) -> Result<PathBuf> {
    let status = cargo().args(["build", "--release", "--package", "longhaul", "--bin", "longhaul"]).status()?;
    ensure!(status.success(), "longhaul does not build");
    Ok(target_dir.join("release/longhaul"))
}

/// Lets servers with users of their own in.
pub(crate) fn open_to_all(dir: &Path) -> Result<()> {
    fs::set_permissions(dir, Permissions::from_mode(0o777)).with_context(|| format!("cannot open {}", dir.display()))
}

/// The compared tools with their versions, as Debian names them.
pub(crate) fn versions() -> Result<Vec<String>> {
    let packages = ["coreutils", "rsync", "xrootd-server", "globus-gridftp-server-progs"];
    let ran =
        run(Command::new("dpkg-query").args(["--show", "--showformat", "${Package} ${Version}\\n"]).args(packages))?;
    Ok(ran.out.lines().map(str::to_owned).collect())
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(["/usr/sbin".into()]).any(|dir| dir.join(program).exists())
}

fn apt_get(args: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    // The packages' own services need not start: each server here is started with a config of its
    // own.
    command.args(args).env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1").stdin(Stdio::null());
    let status = command.status().context("cannot run apt-get: only Debian and its kin are known here")?;
    ensure!(status.success(), "apt-get {} failed", args.join(" "));
    Ok(())
}
