//! The input of a stream: the standard input of this process, or the output of a command.
//!
//! In: where to read from. Out: bytes, and how it ended: a command must end well. It keeps nothing
//! of what it read.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use longhaul_core::{Blame, Fault, FaultCode};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::error::{DiskError, PathText};

/// Where the bytes of a stream come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamFrom {
    /// The standard input of this process.
    Stdin,
    /// The standard output of this command, which a shell (`sh -c`) runs.
    Command(OsString),
}

/// An open input.
#[derive(Debug)]
pub(super) struct InputPipe {
    file: File,
    name: PathText,
    command: Option<RunningCommand>,
}

/// A command that runs. Clones are about the same one.
#[derive(Clone, Debug)]
pub(super) struct RunningCommand(Arc<Mutex<CommandState>>);

#[derive(Debug)]
enum CommandState {
    /// It may run.
    Running(Child),
    /// Its output is at its end: it is being waited for.
    Ending,
    /// It was ended here, and is being waited for.
    Stopped,
}

impl StreamFrom {
    /// Its name, for people.
    pub fn name(&self) -> PathText {
        match self {
            StreamFrom::Stdin => PathText::from(&b"standard input"[..]),
            StreamFrom::Command(command) => PathText::from(command.as_encoded_bytes()),
        }
    }

    /// Opens it. A command begins to run.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn open(&self) -> Result<InputPipe, DiskError> {
        let name = self.name();
        let (fd, command) = match self {
            StreamFrom::Stdin => (io::stdin().as_fd().try_clone_to_owned(), None),
            StreamFrom::Command(command) => {
                let (out, running) = run(command).map_err(|error| DiskError::call("run", &name, error))?;
                (Ok(out), Some(running))
            }
        };
        let file = File::from(fd.map_err(|error| DiskError::call("open", &name, error))?);
        Ok(InputPipe { file, name, command })
    }
}

/// Runs a command. Gives its standard output.
fn run(command: &OsString) -> io::Result<(OwnedFd, RunningCommand)> {
    let mut child = Command::new("sh").arg("-c").arg(command).stdout(Stdio::piped()).spawn()?;
    let out = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    Ok((out.into(), RunningCommand(Arc::new(Mutex::new(CommandState::Running(child))))))
}

impl InputPipe {
    /// The command that it reads from, if any.
    pub(super) fn command(&self) -> Option<RunningCommand> {
        self.command.clone()
    }

    /// Reads bytes into `buf`. 0 at its end.
    ///
    /// # Errors
    /// A [`Fault`] with its name.
    pub(super) fn read(&mut self, buf: &mut [u8]) -> Result<usize, Fault> {
        loop {
            let error = match self.file.read(buf) {
                Ok(read) => return Ok(read),
                Err(error) => error,
            };
            match error.kind() {
                io::ErrorKind::Interrupted => {}
                // Another program with the same terminal or pipe may have set it so.
                io::ErrorKind::WouldBlock => match poll(&mut [PollFd::new(&self.file, PollFlags::IN)], None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(self.fault(error.into())),
                },
                _ => return Err(self.fault(error)),
            }
        }
    }

    fn fault(&self, error: io::Error) -> Fault {
        DiskError::call("read", &self.name, error).at_source().fault()
    }

    /// Hears how it ended, once nothing more comes.
    ///
    /// # Errors
    /// A [`Fault`] if the command did not end well.
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        let Some(command) = &self.command else { return Ok(()) };
        let state = {
            let mut state = command.lock();
            match &*state {
                // Whatever it wrote before, it was not let end.
                CommandState::Stopped => return Err(stopped(&self.name)),
                _ => std::mem::replace(&mut *state, CommandState::Ending),
            }
        };
        let CommandState::Running(mut child) = state else { return Ok(()) };
        let status =
            child.wait().map_err(|error| DiskError::call("wait for", &self.name, error).at_source().fault())?;
        if status.success() { Ok(()) } else { Err(ended_badly(&self.name, status)) }
    }
}

impl RunningCommand {
    /// Ends the command, as nobody reads what it says any more.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        if !matches!(&*state, CommandState::Running(_)) {
            return;
        }
        if let CommandState::Running(mut child) = std::mem::replace(&mut *state, CommandState::Stopped) {
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                // It may have ended by itself: it was not waited for, so that the number is its
                // still. (It has no process group of its own: a program that asks at the terminal,
                // as `ssh` does for a password, would be stopped there.)
                let _ = kill_process(pid, Signal::TERM);
            }
            // A program that lives on must not keep it as a zombie.
            let _ = thread::Builder::new().name("reap".to_owned()).spawn(move || child.wait());
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, CommandState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stopped(name: &PathText) -> Fault {
    let why = format_args!("the command '{name}' was stopped, so that what it wrote is not taken");
    Fault::new(FaultCode::Interrupted, Blame::Local, why)
}

fn ended_badly(name: &PathText, status: ExitStatus) -> Fault {
    let how = match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended badly".to_owned(),
    };
    let why = format_args!("the command '{name}' {how}, so that what it wrote is not taken");
    Fault::new(FaultCode::Unclassified, Blame::Local, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_was_stopped_has_not_ended_well_and_leaves_no_zombie() {
        let from = StreamFrom::Command("trap 'exit 0' TERM; echo begun; while :; do sleep 0.01; done".into());
        let mut pipe = from.open().expect("it runs");
        let mut said = [0; 6];
        let mut len = 0;
        while len < said.len() {
            len += pipe.read(&mut said[len..]).expect("read");
        }
        let command = pipe.command().expect("one");
        let pid = match &*command.lock() {
            CommandState::Running(child) => child.id(),
            state => panic!("{state:?}"),
        };
        command.stop();
        command.stop();
        assert_eq!(pipe.read(&mut said).expect("its end"), 0);
        let fault = pipe.end().expect_err("it was not let end");
        assert_eq!(fault.code, FaultCode::Interrupted, "{fault}");
        let gone = || std::fs::metadata(format!("/proc/{pid}")).is_err();
        let given_up = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !gone() {
            assert!(std::time::Instant::now() < given_up, "it stays as a zombie");
            thread::yield_now();
        }
    }
}
