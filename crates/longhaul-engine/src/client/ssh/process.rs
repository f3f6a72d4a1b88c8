//! Runs ssh, with the user's own configuration, agent and jump hosts.
//!
//! Owns the process. In: an [`SshHost`]. Out: its pipes, and how it ended. No word of the far shell
//! is made of a path: paths pass through the pipe. What ssh says to the user goes to whoever is to
//! hear it. It knows no messages.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longhaul_core::{Blame, Fault, FaultCode};
use rustix::process::{Pid, Signal};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::failure::EndOfSsh;
use crate::api::{SshHost, Trust};

/// An ssh that was started.
pub(super) struct Started {
    /// Its standard input.
    pub(super) stdin: ChildStdin,
    /// Its standard output. `None` if that goes elsewhere.
    pub(super) stdout: Option<ChildStdout>,
    /// The process.
    pub(super) process: SshProcess,
}

/// An ssh that runs. Dropping it ends it.
pub(super) struct SshProcess {
    child: Child,
    /// The last lines that it said.
    said: Arc<Mutex<VecDeque<String>>>,
    hearing: JoinHandle<()>,
}

/// Has the shell of the host run these words, with its standard output at `output`.
pub(super) fn start(host: &SshHost, words: &str, output: Stdio, trust: Arc<dyn Trust>) -> Result<Started, Fault> {
    let mut command = command(host, &[])?;
    command.args(end_of_options(host)).arg(&host.host).arg(words);
    command.stdin(Stdio::piped()).stdout(output).stderr(Stdio::piped());
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().map_err(|e| {
        let code = if e.kind() == std::io::ErrorKind::NotFound { FaultCode::Usage } else { FaultCode::Unclassified };
        Fault::new(code, Blame::Local, format_args!("cannot run {program}: {e}"))
    })?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (Some(stdin), Some(stderr)) = (stdin, stderr) else {
        return Err(Fault::new(FaultCode::Internal, Blame::Bug, "ssh without pipes"));
    };
    let said = Arc::<Mutex<VecDeque<String>>>::default();
    let hearing = tokio::spawn(hear(stderr, said.clone(), trust));
    Ok(Started { stdin, stdout, process: SshProcess { child, said, hearing } })
}

/// The command that runs ssh, with `more` options.
pub(super) fn command(host: &SshHost, more: &[&str]) -> Result<Command, Fault> {
    let (program, words) = host
        .command
        .split_first()
        .ok_or_else(|| Fault::new(FaultCode::Usage, Blame::Local, "the command that runs ssh is empty"))?;
    let mut command = longhaul_sys::signals::deaf_to_interrupts(std::process::Command::new(program));
    command.args(words);
    if is_openssh(program) {
        command.args(OPTIONS);
        if !has_terminal() {
            // Nobody is there who could answer.
            command.arg("-oBatchMode=yes");
        }
    }
    command.args(more);
    Ok(command.into())
}

/// The word behind which nothing is an option.
pub(super) fn end_of_options(host: &SshHost) -> Option<&'static str> {
    host.command.first().is_some_and(|program| is_openssh(program)).then_some("--")
}

/// Whether this program takes OpenSSH's options.
pub(super) fn is_openssh(program: &str) -> bool {
    Path::new(program).file_name() == Some(OsStr::new("ssh"))
}

/// Whether somebody could answer a question.
#[expect(clippy::disallowed_methods, reason = "the terminal of this process, and no file of the user")]
pub(super) fn has_terminal() -> bool {
    std::fs::OpenOptions::new().read(true).write(true).open("/dev/tty").is_ok()
}

impl SshProcess {
    /// Its number. `None` once it was waited for.
    pub(super) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits for the end of an ssh that has so long for it.
    pub(super) async fn ended(mut self, patience: Duration) -> EndOfSsh {
        let status = self.end(patience).await;
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        EndOfSsh { status, said }
    }

    /// Waits for its end, and kills it if that takes longer. `None` if it had to be killed.
    pub(super) async fn end(&mut self, patience: Duration) -> Option<ExitStatus> {
        let status = timeout(patience, self.child.wait()).await.ok().and_then(Result::ok);
        if status.is_none() {
            let _ = self.child.kill().await;
        }
        let _ = timeout(PATIENCE, &mut self.hearing).await;
        status
    }
}

/// Ends it. As it is told so and not killed, it leaves the terminal as it found it if it was asking
/// for a password.
impl Drop for SshProcess {
    fn drop(&mut self) {
        let running = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(pid) = running {
            // It may have ended in this moment.
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
    }
}

/// Passes each line on and keeps the last ones.
async fn hear(stderr: ChildStderr, said: Arc<Mutex<VecDeque<String>>>, trust: Arc<dyn Trust>) {
    let mut reader = BufReader::new(stderr);
    loop {
        let mut line = Vec::new();
        match (&mut reader).take(SSH_LINE_BYTES_MAX).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let line = line.trim_ascii_end();
        if line.is_empty() {
            continue;
        }
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() == LINES_KEPT {
            said.pop_front();
        }
        said.push_back(String::from_utf8_lossy(line).into_owned());
        drop(said);
        trust.hear_ssh(line);
    }
}

/// No terminal and no forwarding: what the user's configuration says of these is for a shell, and
/// would fail or be of no use here. Everything else is the user's.
const OPTIONS: [&str; 7] = [
    "-T",
    "-x",
    "-oForwardAgent=no",
    "-oClearAllForwardings=yes",
    "-oPermitLocalCommand=no",
    "-oRemoteCommand=none",
    "-oRequestTTY=no",
];
/// The last words of an ssh that has ended are heard within this.
const PATIENCE: Duration = Duration::from_secs(5);
const LINES_KEPT: usize = 16;
const SSH_LINE_BYTES_MAX: u64 = 4 << 10;
