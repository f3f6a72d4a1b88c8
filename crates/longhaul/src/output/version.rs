//! The version: as a line for people, and as an object for scripts.
//!
//! In: what the build script and the compiler say of this build. Out: `--version`, plain and with
//! `--json`. It looks at nothing of the host that it runs on.

use std::io::{self, Write};

use serde::Serialize;

use super::events::JsonLines;

/// The build that runs: the answer to `--version --json`.
#[derive(Debug, Serialize)]
pub struct VersionBody {
    /// The version of the program.
    version: &'static str,
    /// The commit that it was built from, as 12 hex digits or as the packager named it. Null where
    /// that is not known: of a source archive, and of a debug build.
    commit: Option<&'static str>,
    /// The version of the protocol. Both sides of a transfer must speak the same.
    protocol: u32,
    /// The features of the package that were switched on for this build. There are none to switch
    /// yet.
    features: Vec<&'static str>,
    /// The memory allocator, with the C library whose it is: `system (gnu)` or `system (musl)`.
    allocator: &'static str,
    /// The library of cryptographic primitives, with its version where that is known.
    crypto: &'static str,
    /// The target that it was built for, as `x86_64-unknown-linux-gnu`.
    target: &'static str,
    /// Whether it is a `release` build or a `debug` build, which is slow.
    profile: &'static str,
}

impl VersionBody {
    /// This build.
    pub fn new() -> VersionBody {
        VersionBody {
            version: env!("CARGO_PKG_VERSION"),
            commit: Some(COMMIT).filter(|commit| !commit.is_empty()),
            protocol: longhaul_engine::PROTOCOL_VERSION.into(),
            features: env!("LONGHAUL_FEATURES").split_terminator(',').collect(),
            allocator: if cfg!(target_env = "musl") { "system (musl)" } else { "system (gnu)" },
            crypto: env!("LONGHAUL_CRYPTO"),
            target: env!("LONGHAUL_TARGET"),
            profile: PROFILE,
        }
    }

    /// The facts that tell builds apart, by name: for labels of metrics.
    pub fn labels(&self) -> Vec<(&'static str, String)> {
        vec![
            ("version", self.version.to_owned()),
            ("commit", self.commit.unwrap_or("unknown").to_owned()),
            ("protocol", self.protocol.to_string()),
            ("profile", self.profile.to_owned()),
        ]
    }

    /// One line: name, version, the commit that it was built from, and the protocol that it speaks.
    pub fn line(&self) -> String {
        let VersionBody { version, commit, protocol, profile, .. } = self;
        let commit = match (commit, *profile) {
            (Some(commit), _) => commit,
            (None, "release") => "unknown",
            (None, _) => "unknown, debug build",
        };
        format!("longhaul {version} (commit {commit}, protocol {protocol})")
    }
}

impl Default for VersionBody {
    fn default() -> VersionBody {
        VersionBody::new()
    }
}

impl<W: Write> JsonLines<W> {
    /// Tells the version.
    ///
    /// # Errors
    /// The error of writing.
    pub fn version(&mut self, version: &VersionBody) -> io::Result<()> {
        self.say("version", version)
    }
}

const COMMIT: &str = env!("LONGHAUL_BUILT_FROM");
const PROFILE: &str = env!("LONGHAUL_PROFILE");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_without_a_commit_says_so_in_both_forms() {
        let built = VersionBody { commit: None, profile: "release", ..VersionBody::new() };
        assert!(built.line().contains("(commit unknown, protocol "), "{}", built.line());
        let debug = VersionBody { profile: "debug", ..built };
        assert!(debug.line().contains("(commit unknown, debug build, protocol "), "{}", debug.line());
        let mut said = Vec::new();
        JsonLines::new(&mut said).version(&debug).unwrap();
        assert!(String::from_utf8(said).unwrap().contains("\"commit\":null,"));
        let known = VersionBody { commit: Some("0123456789ab"), ..debug };
        assert!(known.line().contains("(commit 0123456789ab, protocol "), "{}", known.line());
    }
}
