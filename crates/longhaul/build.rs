//! Names the commit that a release was built from, for `--version`.
//!
//! In: the repository, if this is built from one. Out: the variable `LONGHAUL_BUILT_FROM` to the
//! compiler. A tarball has no commit. A debug build has none either, as it would have to be made
//! anew after each commit. A failure here does not fail the build.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={NAMED}");
    let profile = env::var("PROFILE").unwrap_or_default();
    let commit = match env::var(NAMED) {
        Ok(named) if !named.is_empty() => named,
        _ if profile == "release" => commit().unwrap_or_else(|| "unknown".to_owned()),
        _ => "unknown, debug build".to_owned(),
    };
    println!("cargo::rustc-env=LONGHAUL_BUILT_FROM={commit}");
}

/// The commit of the repository whose top this workspace is. A repository that only surrounds the
/// workspace is another project's.
fn commit() -> Option<String> {
    let top = git(&["rev-parse", "--show-toplevel"])?;
    let workspace = Path::new(&env::var("CARGO_MANIFEST_DIR").ok()?).join("../..").canonicalize().ok()?;
    if Path::new(&top).canonicalize().ok()? != workspace {
        return None;
    }
    // It is written to by each commit and checkout.
    if let Some(log) =
        git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"]).filter(|log| Path::new(log).exists())
    {
        println!("cargo::rerun-if-changed={log}");
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty() && !text.contains('\n'))
}

/// The variable by which a packager names the commit.
const NAMED: &str = "LONGHAUL_COMMIT";
