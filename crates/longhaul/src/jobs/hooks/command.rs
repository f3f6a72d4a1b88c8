//! A hook that is a program: without a shell, in a group of processes of its own, with an
//! environment of this program's making.
//!
//! In: a line of this host's own file, and a document for its standard input. Out: whether it ended
//! well. What it leaves running in its group is ended with it. Must not know what is in the
//! document.

use std::io::{self, PipeReader, Read, Write, pipe};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::{FaultCode, PlainText};
use longhaul_jobs::Notice;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::HookFailure;

/// Runs it. If this is dropped, it is ended.
pub(super) async fn run(line: &[String], notice: &Notice, document: Vec<u8>) -> Result<(), HookFailure> {
    let failed = |words: &dyn std::fmt::Display| HookFailure::new(FaultCode::Io, words);
    let Some((program, arguments)) = line.split_first() else { return Err(failed(&"it has no program")) };
    let mut command = Command::new(program);
    command.args(arguments).current_dir("/").env_clear().envs(ENVIRONMENT).process_group(0);
    command.env("LONGHAUL_HOOK", notice.hook.as_str()).env("LONGHAUL_EVENT", notice.event.kind.name());
    let group = ProgramGroup::default();
    let ended = EndsProgram(group.clone());
    let ran = tokio::task::spawn_blocking(move || attend(command, &document, &group)).await;
    drop(ended);
    let ran = ran.map_err(|error| failed(&error))?;
    let (status, said) = ran.map_err(|error| failed(&format_args!("cannot run {program}: {error}")))?;
    let words = said.lines().rfind(|line| !line.trim().is_empty()).map(PlainText::from);
    let words = words.map(|words| format!(": {words}")).unwrap_or_default();
    if status.success() {
        tracing::debug!(hook = notice.hook.as_str(), "the hook was told{words}");
        return Ok(());
    }
    Err(failed(&format_args!("{program} ended with {status}{words}")))
}

/// Runs a program to its end. Gives its status, and the beginning of what it said.
fn attend(mut command: Command, document: &[u8], group: &ProgramGroup) -> io::Result<(ExitStatus, String)> {
    let (document_read, mut input) = pipe()?;
    // It fits the pipe; where this host has no room for that, nobody is waited for.
    fcntl_setfl(&input, OFlags::NONBLOCK)?;
    input.write_all(document)?;
    drop(input);
    let (output, theirs) = pipe()?;
    command.stdin(Stdio::from(document_read)).stdout(theirs.try_clone()?).stderr(theirs);
    let mut child = command.spawn()?;
    // Its own ends of the pipe are held by the command.
    drop(command);
    group.begin(&child);
    let end = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    let said = end.map_err(io::Error::from).and_then(|end| listen(output, &end, group));
    // Its number is its own for as long as nobody has asked for its status.
    group.end();
    match said {
        Ok(said) => Ok((child.wait()?, String::from_utf8_lossy(&said).into_owned())),
        Err(error) => {
            // Nobody waits for one that not even SIGKILL ends, as on a file system that hangs.
            let _ = child.try_wait();
            Err(error)
        }
    }
}

/// Reads what a program says until it has ended, and keeps the beginning.
///
/// # Errors
/// The errors of the system, and that it was too late, of a program that goes on though it was
/// ended.
fn listen(mut output: PipeReader, end: &OwnedFd, group: &ProgramGroup) -> io::Result<Vec<u8>> {
    let (mut kept, mut room, mut is_open, mut last_reads) = (Vec::new(), [0; 4096], true, 0);
    let mut over_since = None;
    loop {
        if group.is_over() && over_since.get_or_insert_with(Instant::now).elapsed() > KILLED_WITHIN {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut events = vec![PollFd::new(end, PollFlags::IN)];
        if is_open {
            events.push(PollFd::new(&output, PollFlags::IN));
        }
        match poll(&mut events, Some(&LOOK_EVERY)) {
            Err(rustix::io::Errno::INTR) => continue,
            polled => polled?,
        };
        let happened = |at: usize| events.get(at).is_some_and(|event| !event.revents().is_empty());
        let (has_ended, has_said) = (happened(0), happened(1));
        drop(events);
        last_reads += u32::from(has_ended);
        if has_ended && (!has_said || last_reads > LAST_READS_MAX) {
            return Ok(kept);
        }
        if has_said {
            let count = output.read(&mut room)?;
            is_open = count > 0;
            kept.extend_from_slice(&room[..count.min(OUTPUT_BYTES_KEPT.saturating_sub(kept.len()))]);
        }
    }
}

/// The group of a program's processes.
#[derive(Clone, Debug, Default)]
struct ProgramGroup(Arc<Mutex<GroupState>>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum GroupState {
    /// The program is not there yet.
    #[default]
    Absent,
    Running(Pid),
    /// Nothing of it may go on.
    Over,
}

impl ProgramGroup {
    fn state(&self) -> MutexGuard<'_, GroupState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program has begun. If it is over before, it ends at once.
    fn begin(&self, child: &Child) {
        let mut state = self.state();
        let before = std::mem::replace(&mut *state, GroupState::Running(Pid::from_child(child)));
        drop(state);
        if before == GroupState::Over {
            self.end();
        }
    }

    /// Whether it was ended.
    fn is_over(&self) -> bool {
        *self.state() == GroupState::Over
    }

    /// Ends whatever runs of it.
    fn end(&self) {
        let mut state = self.state();
        if let GroupState::Running(group) = std::mem::replace(&mut *state, GroupState::Over) {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Ends a program for which nobody waits any more.
struct EndsProgram(ProgramGroup);

impl Drop for EndsProgram {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Bytes of its output that are kept.
const OUTPUT_BYTES_KEPT: usize = 4096;
/// The time in which a program is gone that was ended, and that of a look whether it was.
const KILLED_WITHIN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Reads of what it had said when it ended: what left its group may go on writing.
const LAST_READS_MAX: u32 = 16;
/// The whole environment of a program, besides the hook's key and the event.
const ENVIRONMENT: [(&str, &str); 2] = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("LANG", "C.UTF-8")];
