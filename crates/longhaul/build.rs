//! Says of a build what the compiler does not know, for `--version`: the commit, the target, the
//! features and the version of the cryptographic library.
//!
//! In: the repository, if this is built from one, `Cargo.lock`, and cargo's variables. Out:
//! variables `LONGHAUL_*` to the compiler. A tarball has no commit. A debug build has none either,
//! as it would have to be made anew after each commit. A failure here does not fail the build.

#![allow(clippy::disallowed_methods, reason = "a build reads the repository, outside of any root")]

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={NAMED}");
    let profile = env::var("PROFILE").unwrap_or_default();
    let commit = match env::var(NAMED) {
        Ok(named) if !named.is_empty() => named,
        _ if profile == "release" => commit().unwrap_or_default(),
        _ => String::new(),
    };
    println!("cargo::rustc-env=LONGHAUL_BUILT_FROM={commit}");
    println!("cargo::rustc-env=LONGHAUL_PROFILE={profile}");
    println!("cargo::rustc-env=LONGHAUL_TARGET={}", env::var("TARGET").unwrap_or_default());
    println!("cargo::rustc-env=LONGHAUL_FEATURES={}", features().join(","));
    println!("cargo::rustc-env=LONGHAUL_CRYPTO={}", crypto());
}

/// The features that are switched on, as cargo's variables spell them, in the spelling of the
/// manifest.
fn features() -> Vec<String> {
    let named = env::vars().filter_map(|(name, _)| Some(name.strip_prefix("CARGO_FEATURE_")?.to_owned()));
    let mut features: Vec<_> = named.map(|name| name.to_lowercase().replace('_', "-")).collect();
    features.sort();
    features
}

/// The library of primitives, with the version that `Cargo.lock` has.
fn crypto() -> String {
    let Some(lock) = workspace().map(|top| top.join("Cargo.lock")) else { return CRYPTO.to_owned() };
    println!("cargo::rerun-if-changed={}", lock.display());
    let text = fs::read_to_string(lock).unwrap_or_default();
    let name = format!("name = \"{CRYPTO}\"");
    let mut lines = text.lines().skip_while(|line| *line != name).skip(1);
    let version = lines.next().and_then(|line| line.strip_prefix("version = \"")?.strip_suffix('"'));
    version.map_or_else(|| CRYPTO.to_owned(), |version| format!("{CRYPTO} {version}"))
}

fn workspace() -> Option<PathBuf> {
    Path::new(&env::var("CARGO_MANIFEST_DIR").ok()?).join("../..").canonicalize().ok()
}

/// The commit of the repository whose top this workspace is. A repository that only surrounds the
/// workspace is another project's.
fn commit() -> Option<String> {
    let top = git(&["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != workspace()? {
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
/// The library of primitives (`deny.toml` allows no other).
const CRYPTO: &str = "aws-lc-rs";
