//! Dispositions of signals that the process inherits and changes as a whole. Sets and reads them;
//! handles no signal.

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;

/// Lets writes beyond the limit on file sizes (`ulimit -f`) fail with `EFBIG`. By default SIGXFSZ
/// ends the process without a message.
///
/// # Errors
/// The error of the system; the signal then ends the process as before.
pub fn survive_file_size_limit() -> io::Result<()> {
    // SAFETY: SIG_IGN runs no code of ours; no other thread's memory is touched.
    let before = unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    if before == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether SIGHUP is ignored, as by `nohup`: the user who asked for that wants the process to go
/// on.
pub fn ignores_hangup() -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: without a new action the call only writes the present one to where `action` has room
    // for it.
    let asked = unsafe { libc::sigaction(libc::SIGHUP, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: the call succeeded, so that it has written the action.
    asked == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Ignores the signals by which people and service managers end a process: this one ends when
/// another one does.
///
/// # Errors
/// The error of the system.
pub fn outlive_signals() -> io::Result<()> {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        // SAFETY: SIG_IGN runs no code of ours; no other thread's memory is touched.
        if unsafe { libc::signal(signal, libc::SIG_IGN) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Has a process that is to be started ignore the interrupts of its terminal (Ctrl-C). Whoever
/// starts it ends it, in an order of its own.
pub fn deaf_to_interrupts(mut command: Command) -> Command {
    let deafen = || {
        // SAFETY: `signal` is async-signal-safe, and SIG_IGN runs no code of ours.
        let before = unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
        if before == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: between fork and exec the closure makes one async-signal-safe call, allocates nothing
    // and takes no lock.
    unsafe { command.pre_exec(deafen) };
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_deaf_to_interrupts_outlives_one() {
        let script = "kill -INT $$; echo alive";
        let said = deaf_to_interrupts(Command::new("sh")).args(["-c", script]).output().expect("a shell");
        assert_eq!(said.stdout, b"alive\n");
    }

    #[test]
    fn hangup_is_not_ignored_unless_somebody_asked_for_it() {
        // The tests themselves may run beneath nohup.
        let before = ignores_hangup();
        // SAFETY: as above.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
        assert!(ignores_hangup());
        // SAFETY: as above; the default action is as good.
        unsafe { libc::signal(libc::SIGHUP, if before { libc::SIG_IGN } else { libc::SIG_DFL }) };
        assert_eq!(ignores_hangup(), before);
    }
}
