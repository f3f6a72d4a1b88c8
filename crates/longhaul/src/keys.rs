//! Keys of this user and of the daemons that the user trusts: made when missing, judged when shown.
//!
//! In: files from `config::Places` or options. Out: the [`Identity`] and the [`Trust`] that the
//! engine asks. Owns the question on the terminal. Knows no sessions.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::{Blame, Escaped, Fault, FaultCode};
use longhaul_engine::{Credentials, PathMemory, Reach, Remote, Trust};
use longhaul_net::{Identity, KnownHosts, NetError, PublicKey};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::config::{Places, check_strictly};
use crate::error::Error;
use crate::location::{DaemonPath, host_port};
use crate::output::{self, Talker};
use crate::path_memory::PathFile;
use crate::settings::Keys;
use crate::signals::Asking;

/// Loads the identity in `path`, if it is this user's and no other user could have put it there.
///
/// # Errors
/// The errors of [`Identity::load`], [`Error::Exposed`].
pub fn load(path: &Path) -> Result<Identity, Error> {
    guard_memory();
    let identity = Identity::load(path)?;
    check_strictly(path)?;
    Ok(identity)
}

/// The public half of the identity in `path`. `None` if there is no such file.
///
/// # Errors
/// As [`load`].
pub fn public(path: &Path) -> Result<Option<PublicKey>, Error> {
    match load(path) {
        Err(Error::Net(NetError::KeyFile { source, .. })) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        loaded => Ok(Some(loaded?.public())),
    }
}

/// Keeps the memory of this process, in which its private key will be, out of core dumps and away
/// from other programs of the same user (`ptrace`, `/proc/PID/mem`). Only root can attach a
/// debugger to it then.
pub fn guard_memory() {
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::debug!(%error, "this process may leave its key in a core dump");
    }
}

/// Loads the known hosts in `path`, under the same conditions.
///
/// # Errors
/// The errors of [`KnownHosts::load`], [`Error::Exposed`].
pub fn known_hosts(path: &Path) -> Result<KnownHosts, Error> {
    check_strictly(path)?;
    Ok(KnownHosts::load(path)?)
}

/// Loads the identity in `path`. A missing one is made with mode 0600, and a note tells it.
///
/// # Errors
/// The errors of [`load`] and [`Identity::save_new`].
pub fn load_or_make(path: &Path, talker: Talker) -> Result<Arc<Identity>, Error> {
    match load(path) {
        Err(Error::Net(NetError::KeyFile { source, .. })) if source.kind() == io::ErrorKind::NotFound => {}
        loaded => return Ok(Arc::new(loaded?)),
    }
    check_strictly(path)?;
    let identity = Identity::generate()?;
    match identity.save_new(path) {
        // Another process made one in this moment.
        Err(NetError::KeyFile { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {
            return Ok(Arc::new(load(path)?));
        }
        saved => saved?,
    }
    talker.note(format_args!("made the identity {}: {}", path.display(), identity.public()));
    Ok(Arc::new(identity))
}

/// The daemon of a location, with this user's identity and a judge of its key.
///
/// # Errors
/// The errors of [`load_or_make`], [`Error::NoHome`].
pub fn remote(
    daemon: &DaemonPath,
    keys: &Keys,
    places: &Places,
    talker: Talker,
    asking: &Asking,
) -> Result<Remote, Error> {
    Ok(credentials(keys, places, talker, asking)?.at(reach(daemon)))
}

/// How the daemon of a location is reached.
pub fn reach(daemon: &DaemonPath) -> Reach {
    Reach::Address { host: daemon.host.clone(), port: daemon.port }
}

/// This user's identity and a judge of daemons' keys.
///
/// # Errors
/// The errors of [`load_or_make`], [`Error::NoHome`].
pub fn credentials(keys: &Keys, places: &Places, talker: Talker, asking: &Asking) -> Result<Credentials, Error> {
    let file = |named: &Option<PathBuf>, name| named.clone().map_or_else(|| places.of_user(name), Ok);
    let trust = HostTrust {
        known_hosts: file(&keys.known_hosts, "known_hosts")?,
        peer_key: keys.peer_key,
        trust_on_first_use: keys.trust_on_first_use,
        talker,
        asking: asking.clone(),
    };
    let identity = load_or_make(&file(&keys.identity, "identity")?, talker)?;
    let memory = places.paths().map(|file| Arc::new(PathFile::at(file)) as Arc<dyn PathMemory>);
    Ok(Credentials { identity, trust: Arc::new(trust), memory })
}

/// The credentials for one session over ssh: a key of this one time, which ssh brings to the other
/// side and back.
///
/// # Errors
/// The error of a system that gives no random numbers.
pub fn one_time(talker: Talker) -> Result<Credentials, Error> {
    Ok(Credentials { identity: Arc::new(Identity::generate()?), trust: Arc::new(SshVoice { talker }), memory: None })
}

/// Passes on what ssh says. No key comes to be judged: the far side's passes through the pipe.
struct SshVoice {
    talker: Talker,
}

impl Trust for SshVoice {
    fn judge(&self, host: &str, _: u16, _: &PublicKey) -> Result<(), Fault> {
        Err(Fault::new(
            FaultCode::Internal,
            Blame::Bug,
            format_args!("the key of {host}, which ssh leads to, was judged"),
        ))
    }

    fn hear_ssh(&self, line: &[u8]) {
        self.talker.note(format_args!("ssh: {}", Escaped(line)));
    }
}

/// Judges daemons' keys by the known-hosts file, a key pinned for this run, or the user.
pub struct HostTrust {
    known_hosts: PathBuf,
    peer_key: Option<PublicKey>,
    trust_on_first_use: bool,
    talker: Talker,
    asking: Asking,
}

impl Trust for HostTrust {
    fn judge(&self, host: &str, port: u16, key: &PublicKey) -> Result<(), Fault> {
        let daemon = host_port(host, port);
        if let Some(pinned) = self.peer_key {
            return if pinned == *key { Ok(()) } else { Err(other_key(&daemon, &pinned, key, "--peer-key names")) };
        }
        if self.unknown(host, port, key)?.is_none() {
            return Ok(());
        }
        // Another run of this command may have asked about the same daemon meanwhile.
        let _question = self.asking.start();
        let Some(mut known) = self.unknown(host, port, key)? else { return Ok(()) };
        if !self.trust_on_first_use && !self.asks(&daemon, key) {
            return Err(unknown_key(&daemon, key));
        }
        known.append(host, port, *key).map_err(Error::from)?;
        self.talker.note(format_args!("trusting {daemon} by {key} from now on"));
        Ok(())
    }
}

impl HostTrust {
    /// The known hosts, if the daemon is none of them. `None`: it is, by this key.
    fn unknown(&self, host: &str, port: u16, key: &PublicKey) -> Result<Option<KnownHosts>, Fault> {
        let known = known_hosts(&self.known_hosts)?;
        match known.lookup(host, port) {
            Some(pinned) if pinned == *key => Ok(None),
            Some(pinned) => {
                let fault = other_key(&host_port(host, port), &pinned, key, "it is known by");
                let file = self.known_hosts.display();
                Err(fault.hint_in_words(format_args!(
                    "somebody may be in between; if the daemon's key was really changed, take its line out of {file}"
                )))
            }
            None => Ok(Some(known)),
        }
    }

    /// Asks the user, if there is one to answer. To be called within a question's time.
    fn asks(&self, daemon: &str, key: &PublicKey) -> bool {
        if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
            return false;
        }
        let question = format!("{daemon} is not known. It shows the key\n  {key}\nTrust it from now on? [yes/no] ");
        // If the question has no reader, the answer below is an end of input: no.
        let _ = io::stderr().write_all(question.as_bytes());
        let mut answer = String::new();
        let read = io::stdin().lock().read_line(&mut answer);
        read.is_ok() && matches!(answer.trim(), "yes" | "y")
    }
}

fn unknown_key(daemon: &str, key: &PublicKey) -> Fault {
    Fault::new(FaultCode::Denied, Blame::Local, format_args!("its key {key} is not known"))
        .about(daemon)
        .hint_in_words(format_args!(
            "compare it with the key that the daemon prints when it starts, or that 'longhaul key show --identity FILE' prints \
             there (FILE: the identity of its serve.toml); if it is the same, run: longhaul key trust {daemon} {key}"
        ))
}

fn other_key(daemon: &str, pinned: &PublicKey, shown: &PublicKey, known: &str) -> Fault {
    let message = format_args!("it shows the key {shown}, but {known} {pinned}").to_string();
    Fault::new(FaultCode::Denied, Blame::Peer, output::clean(&message)).about(daemon)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> PublicKey {
        Identity::generate().unwrap().public()
    }

    fn trust(dir: &Path, first_use: bool) -> HostTrust {
        let (talker, asking) = (Talker::silent(), Asking::default());
        let known_hosts = dir.join("known_hosts");
        HostTrust { known_hosts, peer_key: None, trust_on_first_use: first_use, talker, asking }
    }

    #[test]
    fn an_unknown_key_is_denied_with_the_command_that_trusts_it() {
        let dir = tempfile::tempdir().unwrap();
        let shown = key();
        let fault = trust(dir.path(), false).judge("::1", 7214, &shown).unwrap_err();
        assert_eq!((fault.code, fault.object.as_str()), (FaultCode::Denied, "[::1]:7214"));
        let hint = fault.hint.unwrap().to_string();
        assert!(hint.ends_with(&format!("longhaul key trust [::1]:7214 {shown}")), "{hint}");
        assert!(!dir.path().join("known_hosts").exists());
    }

    #[test]
    fn the_first_use_is_remembered_and_a_changed_key_refused_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (key(), key());
        trust(dir.path(), true).judge("h", 1, &first).unwrap();
        trust(dir.path(), false).judge("h", 1, &first).unwrap();
        let fault = trust(dir.path(), true).judge("h", 1, &second).unwrap_err();
        assert_eq!(fault.code, FaultCode::Denied);
        assert!(fault.message.contains(&first.to_string()) && fault.message.contains(&second.to_string()));
        let hint = fault.hint.unwrap().to_string();
        assert!(hint.contains("known_hosts"), "{hint}");
    }

    #[test]
    fn a_key_pinned_for_the_run_is_the_only_one_taken() {
        let dir = tempfile::tempdir().unwrap();
        let (pinned, other) = (key(), key());
        let judge = HostTrust { peer_key: Some(pinned), ..trust(dir.path(), true) };
        judge.judge("h", 1, &pinned).unwrap();
        assert_eq!(judge.judge("h", 1, &other).unwrap_err().code, FaultCode::Denied);
        assert!(!dir.path().join("known_hosts").exists());
    }

    #[test]
    fn a_process_that_holds_a_key_leaves_no_core_and_lets_nobody_look_into_it() {
        let dir = tempfile::tempdir().unwrap();
        load_or_make(&dir.path().join("identity"), Talker::silent()).unwrap();
        assert_eq!(rustix::process::dumpable_behavior().unwrap(), DumpableBehavior::NotDumpable);
    }

    #[test]
    fn a_missing_identity_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("longhaul/identity");
        let made = load_or_make(&path, Talker::silent()).unwrap();
        let again = load_or_make(&path, Talker::silent()).unwrap();
        assert_eq!(made.public(), again.public());
    }
}
