//! Keys and configurations by which an ssh logs in at an sshd, and the times that ssh and longhaul
//! take over a path. Also part of the bench `ssh`.
//!
//! In: directories, addresses, and the words that run a command at a host. Out: processes and
//! seconds. Must not know which hosts these are and what is between them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// An sshd that lets one key in, and the ssh that holds it. The files lie in the directories of the
/// two hosts.
pub(crate) struct Logins {
    sshd: PathBuf,
    ssh: PathBuf,
}

/// An sshd that runs. It ends when this is dropped, and so do the sessions that it serves still:
/// those whose clients are beyond a path that is gone would wait for them.
pub(crate) struct Sshd(Child);

impl Drop for Sshd {
    fn drop(&mut self) {
        let children = format!("/proc/{0}/task/{0}/children", self.0.id());
        let sessions = fs::read_to_string(children).unwrap_or_default();
        let pids = sessions.split_whitespace().filter_map(|pid| pid.parse().ok()).filter_map(Pid::from_raw);
        for session in pids {
            let _ = kill_process(session, Signal::TERM);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Logins {
    /// Makes all of it for a far host that has these addresses. `hosts` begins the configuration of
    /// ssh. sshd refuses keys beneath a directory that others may write.
    pub(crate) fn make(near: &Path, far: &Path, addresses: &[&str], hosts: &str) -> Logins {
        let (key, host_key, keys) = (near.join("key"), far.join("host_key"), far.join("authorized_keys"));
        keygen(&key);
        keygen(&host_key);
        fs::write(&keys, fs::read(key.with_extension("pub")).unwrap()).unwrap();
        let sshd = far.join("sshd_config");
        let text = format!(
            "HostKey {host}\nAuthorizedKeysFile {keys}\nPidFile none\nUsePAM no\nStrictModes no\n\
             PasswordAuthentication no\nPermitRootLogin yes\nAllowTcpForwarding yes\nLogLevel ERROR\n",
            host = host_key.display(),
            keys = keys.display()
        );
        fs::write(&sshd, text).unwrap();
        fs::create_dir_all("/run/sshd").unwrap();
        let public = fs::read_to_string(host_key.with_extension("pub")).unwrap();
        let public = public.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        let known = near.join("known_hosts");
        fs::write(&known, addresses.iter().map(|at| format!("{at} {public}\n")).collect::<String>()).unwrap();
        let ssh = near.join("ssh_config");
        let text = format!(
            "{hosts}Host *\nIdentityFile {key}\nIdentitiesOnly yes\nUserKnownHostsFile {known}\n\
             StrictHostKeyChecking yes\nConnectTimeout 20\n",
            key = key.display(),
            known = known.display()
        );
        fs::write(&ssh, text).unwrap();
        Logins { sshd, ssh }
    }

    /// Starts sshd at the host where `within` has it run.
    pub(crate) fn serve(&self, within: &[String]) -> Sshd {
        let words = ["/usr/sbin/sshd", "-D", "-e", "-f", self.sshd.to_str().unwrap()].map(str::to_owned);
        Sshd(command(&[within, &words].concat()).stderr(Stdio::inherit()).spawn().unwrap())
    }

    /// The words that run ssh.
    pub(crate) fn ssh(&self) -> String {
        format!("ssh -F {}", self.ssh.display())
    }

    /// How long ssh itself takes to have `true` run there, from the host where `within` has it run.
    pub(crate) fn own_time(&self, within: &[String], host: &str) -> Result<Duration, String> {
        let words = ["ssh", "-F", self.ssh.to_str().unwrap(), host, "true"].map(str::to_owned);
        let begun = Instant::now();
        let asked = command(&[within, &words].concat()).output().unwrap();
        let took = begun.elapsed();
        if asked.status.success() { Ok(took) } else { Err(String::from_utf8_lossy(&asked.stderr).into_owned()) }
    }

    /// Waits until sshd takes a connection.
    pub(crate) fn wait_for(&self, within: &[String], host: &str) {
        let until = Instant::now() + Duration::from_secs(30);
        while let Err(said) = self.own_time(within, host) {
            assert!(Instant::now() < until, "{said}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The time from the start of a command until the bytes of a file of its are there. It is waited
/// for until its end, which must be a success.
pub(crate) fn time_to(command: &mut Command, file: &Path) -> Duration {
    let begun = Instant::now();
    let mut running = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    while !file.exists() && running.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    let took = begun.elapsed();
    let ended = running.wait_with_output().unwrap();
    assert!(ended.status.success() && file.exists(), "{command:?}: {}", String::from_utf8_lossy(&ended.stderr));
    took
}

/// A command of these words, free of the settings of longhaul that the caller has.
pub(crate) fn command(words: &[String]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"LONGHAUL_")) {
        command.env_remove(name);
    }
    command
}

/// Makes a pair of keys.
pub(crate) fn keygen(path: &Path) {
    let made = command(&["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f"].map(str::to_owned)).arg(path).output();
    let made = made.unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}
