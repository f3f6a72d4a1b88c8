//! Puts this very program at a far host, where the user asked for that and it is not there already.
//!
//! In: an [`SshHost`]. Out: the words that run the program there. It lies in a directory of the
//! user's cache that is named by the program's BLAKE3 and is nobody else's. Before each start a
//! script there looks whether owner, mode and SHA-256 (which every host can compute) are what they
//! must be; what is not is not run, and is put there anew. It changes nothing else there.

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
use longhaul_core::hint::Ssh;
use longhaul_core::{Blame, Fault, FaultCode};
use tokio::io::AsyncWriteExt;

use super::process::{Started, start};
use crate::api::{SshHost, Trust};
use crate::workers::blocking;

/// This program, and the words that run it at a far host.
pub(super) struct ThisProgram {
    bytes: Vec<u8>,
    /// The script's arguments behind what it is to do.
    names: String,
}

impl ThisProgram {
    /// Reads it.
    pub(super) async fn read() -> Result<ThisProgram, Fault> {
        blocking(|| {
            let bytes = contents()?;
            let b3 = blake3::hash(&bytes).to_hex();
            let sha256: String =
                digest::digest(&digest::SHA256, &bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
            Ok(ThisProgram { bytes, names: format!("{b3} {sha256}") })
        })
        .await
    }

    /// The words that run it there, with the arguments that follow. The shell ends with [`ABSENT`]
    /// if it is not there, or not as it must be.
    pub(super) fn words(&self) -> String {
        format!("sh -c '{SCRIPT}' longhaul run {}", self.names)
    }

    /// Puts it there.
    ///
    /// # Errors
    /// A [`Fault`] with the last words of the shell there, or of ssh.
    pub(super) async fn put(&self, host: &SshHost, trust: &Arc<dyn Trust>) -> Result<(), Fault> {
        let said = format!("putting longhaul ({} MB) at {}", self.bytes.len() / 1_000_000, host.host);
        trust.hear_ssh(said.as_bytes());
        let words = format!("sh -c '{SCRIPT}' longhaul put {} {}", self.names, host.trial);
        let Started { mut stdin, process, .. } = start(host, &words, Stdio::null(), trust.clone())?;
        let sent = stdin.write_all(&self.bytes).await;
        drop(stdin);
        let early = process.ended(PUT).await;
        match (early.code(), sent) {
            (Some(0), Ok(())) => Ok(()),
            (Some(UNSOUND), _) => {
                let why = early.words("the directory for longhaul there is somebody else's, or no directory");
                Err(Fault::new(FaultCode::Denied, Blame::Peer, why).about(&host.host))
            }
            (Some(DOES_NOT_RUN), _) => {
                let why = early.words("this longhaul does not run there");
                Err(Fault::new(FaultCode::Unsupported, Blame::Peer, why).about(&host.host).hint(Ssh::AllowRunning))
            }
            (Some(NOT_WRITTEN), _) => {
                let why = early.words("longhaul could not be written there");
                Err(Fault::new(FaultCode::Io, Blame::Peer, why).about(&host.host))
            }
            _ => Err(early.fault(host)),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the file of this program itself")]
fn contents() -> Result<Vec<u8>, Fault> {
    let failed = |e| Fault::new(FaultCode::Unclassified, Blame::Local, format_args!("cannot read this program: {e}"));
    std::fs::read("/proc/self/exe").map_err(failed)
}

/// A slow link, and a slow disk at its end, have this long behind the last byte.
const PUT: Duration = Duration::from_secs(600);
/// The shell at the far host found no sound program to run.
pub(super) const ABSENT: i32 = 97;
/// The directory cannot be used.
const UNSOUND: i32 = 98;
/// The program was put there and does not run.
const DOES_NOT_RUN: i32 = 99;
/// The program could not be written.
const NOT_WRITTEN: i32 = 96;

/// For a POSIX shell, in one line and without single quotes, as it stands between such. `$1` is
/// what to do, `$2` the BLAKE3 and `$3` the SHA-256 of the
/// program; `$4` is the argument with which it is tried out.
const SCRIPT: &str = concat!(
    r#"umask 077; d="${XDG_CACHE_HOME:-$HOME/.cache}/longhaul/$2"; f="$d/longhaul"; "#,
    r#"mine() { [ -O "$1" ] && [ ! -L "$1" ] && [ "$(stat -c %a "$1")" = 700 ]; }; "#,
    r#"is() { [ -f "$1" ] && [ "$(sha256sum <"$1" | cut -c1-64)" = "$2" ]; }; "#,
    r#"case "$1" in run) if mine "$d" && mine "$f" && is "$f" "$3"; then shift 3; exec "$f" "$@"; fi; exit 97;; "#,
    r#"put) mkdir -p "$d"; { [ -d "$d" ] && mine "$d"; } || exit 98; rm -f "$d"/.longhaul.*; t="$d/.longhaul.$$"; trap "rm -f \"\$t\"" EXIT; "#,
    r#"cat >"$t" && chmod 700 "$t" && is "$t" "$3" || exit 96; "$t" "$4" >/dev/null || exit 99; "#,
    r#"sync "$t" 2>/dev/null || sync; mv -f "$t" "$f" || exit 96; sync "$d" 2>/dev/null || sync;; esac"#,
);

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;
    use std::process::{Command, Output};

    use super::*;

    /// Has a shell do `what` with a program that is this script.
    fn shell(home: &Path, what: &str, program: &[u8], sent: &[u8]) -> Output {
        let sha256: String =
            digest::digest(&digest::SHA256, program).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let words = format!("sh -c '{SCRIPT}' longhaul {what} name {sha256} said it");
        let input = home.join("sent");
        put(&input, sent);
        let mut command = Command::new("sh");
        command.args(["-c", &words]).env("HOME", home).env_remove("XDG_CACHE_HOME");
        command.stdin(open(&input)).output().expect("a shell")
    }

    #[expect(clippy::disallowed_methods, reason = "files of the test")]
    fn put(path: &Path, bytes: &[u8]) {
        std::fs::write(path, bytes).expect("written");
    }

    #[expect(clippy::disallowed_methods, reason = "files of the test")]
    fn open(path: &Path) -> std::fs::File {
        std::fs::File::open(path).expect("opened")
    }

    const PROGRAM: &[u8] = b"#!/bin/sh\necho \"$@\"\n";

    #[test]
    fn a_program_is_put_there_once_and_run_as_long_as_it_is_what_it_was() {
        let home = tempfile::tempdir().expect("a directory");
        let run = || shell(home.path(), "run", PROGRAM, b"");
        assert_eq!(run().status.code(), Some(ABSENT));
        assert!(shell(home.path(), "put", PROGRAM, PROGRAM).status.success());
        assert_eq!(run().stdout, b"said it\n");
        let dir = home.path().join(".cache/longhaul/name");
        let left: Vec<_> = dir.read_dir().expect("a directory").map(|name| name.expect("a name").file_name()).collect();
        assert_eq!(left, ["longhaul"], "nothing but the program is left");
        let file = dir.join("longhaul");
        put(&file, b"#!/bin/sh\necho changed\n");
        assert_eq!(run().status.code(), Some(ABSENT), "another program is not run");
        put(&file, PROGRAM);
        assert_eq!(run().stdout, b"said it\n");
        mode(&file, 0o720);
        assert_eq!(run().status.code(), Some(ABSENT), "nor one that others may change");
        mode(&file, 0o700);
        mode(&dir, 0o777);
        assert_eq!(run().status.code(), Some(ABSENT), "nor one in a directory that others may change");
    }

    #[test]
    fn what_does_not_arrive_whole_or_does_not_run_is_not_kept() {
        let home = tempfile::tempdir().expect("a directory");
        let put = |program: &[u8], sent: &[u8]| shell(home.path(), "put", program, sent).status.code();
        assert_eq!(put(PROGRAM, &PROGRAM[..5]), Some(NOT_WRITTEN));
        let broken = b"#!/nowhere/at/all\n";
        assert_eq!(put(broken, broken), Some(DOES_NOT_RUN));
        let dir = home.path().join(".cache/longhaul/name");
        assert_eq!(dir.read_dir().expect("a directory").count(), 0);
    }

    #[test]
    fn a_link_in_the_place_of_the_directory_is_not_followed() {
        let home = tempfile::tempdir().expect("a directory");
        let parent = home.path().join(".cache/longhaul");
        assert_eq!(shell(home.path(), "put", PROGRAM, PROGRAM).status.code(), Some(0));
        let elsewhere = home.path().join("elsewhere");
        rename(&parent.join("name"), &elsewhere);
        symlink(&elsewhere, parent.join("name")).expect("a link");
        assert_eq!(shell(home.path(), "put", PROGRAM, PROGRAM).status.code(), Some(UNSOUND));
        assert_eq!(shell(home.path(), "run", PROGRAM, b"").status.code(), Some(ABSENT));
    }

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("changed");
    }

    #[expect(clippy::disallowed_methods, reason = "files of the test")]
    fn rename(from: &Path, to: &Path) {
        std::fs::rename(from, to).expect("renamed");
    }
}
