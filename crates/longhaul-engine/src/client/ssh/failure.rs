//! Words what went wrong when ssh ended before longhaul spoke at the other host.
//!
//! In: how ssh ended, and its last lines. Out: a [`Fault`]. It runs nothing.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use longhaul_core::hint::{Again, Ssh};
use longhaul_core::{Blame, Fault, FaultCode, PlainText};

use crate::api::SshHost;

/// How an ssh ended.
#[derive(Debug)]
pub(super) struct EndOfSsh {
    /// `None`: it had to be killed.
    pub(super) status: Option<ExitStatus>,
    /// Its last lines.
    pub(super) said: Vec<String>,
}

impl EndOfSsh {
    /// The exit code, of ssh or of what it ran. `None` without one.
    pub(super) fn code(&self) -> Option<i32> {
        self.status?.code()
    }

    /// `why`, and the last line that was said.
    pub(super) fn words(&self, why: &str) -> String {
        format!("{why}{}", last(&self.said))
    }

    /// The fault of an ssh that ended so before longhaul spoke.
    pub(super) fn fault(&self, host: &SshHost) -> Fault {
        failure(host, self.status, &self.said)
    }
}

fn failure(host: &SshHost, status: Option<ExitStatus>, said: &[String]) -> Fault {
    let name = &host.host;
    let last = last(said);
    let fault = |code, blame, why: &str| Fault::new(code, blame, format_args!("{why}{last}")).about(name);
    let Some(status) = status else {
        return fault(FaultCode::TimedOut, Blame::Path, "ssh did not end").hint(Again::Now);
    };
    match (status.code(), status.signal()) {
        (Some(SSH_FAILED), _) => of_ssh(name, said),
        (Some(NOT_FOUND), _) => {
            let why = format!("'{}' is not found by the shell there", host.remote);
            fault(FaultCode::Unsupported, Blame::Peer, &why).hint(Ssh::PutThere)
        }
        (Some(NOT_EXECUTABLE), _) => {
            let why = format!("'{}' cannot be run there", host.remote);
            fault(FaultCode::Unsupported, Blame::Peer, &why).hint(Ssh::AllowRunning)
        }
        (Some(2), _) => {
            let why =
                format!("'{}' there does not know how to be started by ssh: it is of an older version", host.remote);
            fault(FaultCode::Unsupported, Blame::Peer, &why).hint(Ssh::PutThere)
        }
        (Some(0), _) => {
            let why = "ssh ran something that is not longhaul, and ended";
            fault(FaultCode::Unsupported, Blame::Peer, why).hint(Ssh::LookAtCommand)
        }
        (Some(code), _) => {
            let why = format!("ssh, or what it ran there, ended with the code {code}");
            fault(FaultCode::Unclassified, Blame::Peer, &why)
        }
        (None, signal) => {
            let why = format!("ssh was ended by the signal {}", signal.unwrap_or(0));
            fault(FaultCode::Lost, Blame::Local, &why).hint(Again::Now)
        }
    }
}

/// The last line that says what is wrong, behind a colon.
fn last(said: &[String]) -> String {
    let line = said.iter().rev().find(|line| !line.starts_with("hint:"));
    line.map(|line| format!(": {}", PlainText::of(line))).unwrap_or_default()
}

/// The fault of ssh itself, told by its own words: it has one code for everything.
fn of_ssh(host: &str, said: &[String]) -> Fault {
    let text = said.join("\n");
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let last = said.last().map_or("it does not say why", String::as_str);
    let (code, blame) = if has(&["HOST IDENTIFICATION HAS CHANGED", "Host key verification failed"])
        || has(&["Permission denied", "Too many authentication failures", "No more authentication methods"])
    {
        (FaultCode::Denied, Blame::Peer)
    } else if has(&["Could not resolve hostname"]) && !has(&["Temporary failure"]) {
        (FaultCode::NotFound, Blame::Local)
    } else if has(&["Bad configuration option", "terminating, ", "unknown option", "illegal option"]) {
        (FaultCode::Usage, Blame::Local)
    } else {
        (FaultCode::Unreachable, Blame::Path)
    };
    let hint = match code {
        FaultCode::Denied => Ssh::TryByHand,
        FaultCode::Usage | FaultCode::NotFound => Ssh::LookAtCommand,
        _ => Ssh::TryByHand,
    };
    Fault::new(code, blame, format_args!("ssh to {host} failed: {}", PlainText::of(last))).about(host).hint(hint)
}

/// The code of ssh for each of its own failures.
const SSH_FAILED: i32 = 255;
/// The codes of a shell for a command that it does not find, and for one that it cannot run.
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;

#[cfg(test)]
mod tests {
    use super::*;

    fn host() -> SshHost {
        SshHost {
            host: "node7".into(),
            command: vec!["ssh".into()],
            remote: "longhaul".into(),
            arguments: String::new(),
            ahead: String::new(),
            trial: String::new(),
            install: false,
            ports: None,
            places: Vec::new(),
        }
    }

    #[test]
    fn what_ssh_and_shells_say_decides_on_the_code() {
        for (code, said, want) in [
            (255, "Permission denied (publickey).", FaultCode::Denied),
            (255, "Host key verification failed.", FaultCode::Denied),
            (255, "ssh: Could not resolve hostname nowhere: Name or service not known", FaultCode::NotFound),
            (255, "ssh: Could not resolve hostname x: Temporary failure in name resolution", FaultCode::Unreachable),
            (255, "ssh: connect to host node7 port 22: Connection refused", FaultCode::Unreachable),
            (255, "", FaultCode::Unreachable),
            (127, "bash: longhaul: command not found", FaultCode::Unsupported),
            (126, "sh: ./longhaul: Permission denied", FaultCode::Unsupported),
            (2, "unexpected argument", FaultCode::Unsupported),
            (0, "", FaultCode::Unsupported),
            (9, "", FaultCode::Unclassified),
        ] {
            let said: Vec<String> = [said].iter().filter(|line| !line.is_empty()).map(|&line| line.into()).collect();
            let fault = failure(&host(), Some(ExitStatus::from_raw(code << 8)), &said);
            assert_eq!(fault.code, want, "{code} {said:?}: {fault}");
        }
        assert_eq!(failure(&host(), None, &[]).code, FaultCode::TimedOut);
    }

    #[test]
    fn what_the_other_host_says_cannot_write_on_a_terminal() {
        let fault = failure(&host(), Some(ExitStatus::from_raw(127 << 8)), &["\x1b]0;owned\x07".to_owned()]);
        assert!(!fault.message.chars().any(char::is_control), "{fault}");
    }
}
