//! `cargo xtask dist`: the program as it is handed out, and its debug information in a file beside
//! it.
//!
//! In: the sources. Out: `target/dist/longhaul`, stripped, and `target/dist/longhaul.debug`, which
//! gdb and perf find by the link in the program if both lie in one directory. Needs `objcopy`
//! (Debian: binutils).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Builds both files.
pub(crate) fn run() -> Result<()> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "build",
        "--release",
        "--locked",
        "--package",
        "longhaul",
        "--config",
        "profile.release.strip=\"none\"",
    ]);
    call(&mut cargo)?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let (whole, dir) = (target.join("release/longhaul"), target.join("dist"));
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let (program, debug) = (dir.join("longhaul"), dir.join("longhaul.debug"));
    call(Command::new("objcopy").arg("--only-keep-debug").args([&whole, &debug]))?;
    let link = format!("--add-gnu-debuglink={}", debug.display());
    call(Command::new("objcopy").args(["--strip-all", &link]).args([&whole, &program]))?;
    for path in [&program, &debug] {
        println!("{} ({:.1} MB)", path.display(), megabytes(path)?);
    }
    Ok(())
}

fn call(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {:?}", command.get_program()))?;
    ensure!(status.success(), "{:?} failed: {status}", command.get_program());
    Ok(())
}

fn megabytes(path: &Path) -> Result<f64> {
    Ok(std::fs::metadata(path).with_context(|| format!("cannot look at {}", path.display()))?.len() as f64 / 1e6)
}
