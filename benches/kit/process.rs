//! Child processes and their cost: CPU time and peak memory as the kernel counts them, in `/proc`.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use rustix::time::{ClockId, clock_gettime};

/// A child whose output goes to files, so that no reader is needed while it is measured.
pub(crate) struct Running {
    child: Child,
    name: String,
    out: File,
    err: File,
}

/// A child that ended.
pub(crate) struct Ran {
    pub(crate) status: ExitStatus,
    /// CPU seconds, those of its own children included.
    pub(crate) cpu_s: f64,
    pub(crate) out: String,
    pub(crate) err: String,
    name: String,
}

/// A child that is ended when this is dropped: by SIGTERM, and if that does not help, by SIGKILL.
pub(crate) struct Kept(pub(crate) Child);

/// Runs a command to its end, which must be a good one.
pub(crate) fn run(command: &mut Command) -> Result<Ran> {
    Running::start(command)?.wait()?.good()
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Result<Running> {
        let (out, err) = (tempfile::tempfile()?, tempfile::tempfile()?);
        let name = format!("{:?}", command.get_program());
        let child = command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(err.try_clone()?).spawn();
        Ok(Running { child: child.with_context(|| format!("cannot start {name}"))?, name, out, err })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The most memory it ever held, in bytes, while it lives.
    pub(crate) fn peak_rss(&self) -> Result<u64> {
        peak_rss(self.child.id())
    }

    /// The text that it wrote to standard output so far.
    pub(crate) fn out(&self) -> Result<String> {
        text(&self.out)
    }

    pub(crate) fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(Pid::from_child(&self.child), signal)?)
    }

    /// Whether it has ended; it keeps its entry in the process table until [`Running::wait`].
    pub(crate) fn ended(&self) -> Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        Ok(waitid(WaitId::Pid(Pid::from_child(&self.child)), options)?.is_some())
    }

    /// Looks at it every 10 ms until `over` says so, for `within` at most.
    pub(crate) fn look_until(&self, within: Duration, mut over: impl FnMut(&Running) -> Result<bool>) -> Result<()> {
        let begun = Instant::now();
        while !over(self)? {
            ensure!(begun.elapsed() < within, "{} did not get there in {within:?}: {}", self.name, text(&self.err)?);
            thread::sleep(POLL);
        }
        Ok(())
    }

    pub(crate) fn wait(mut self) -> Result<Ran> {
        // The process table still knows its CPU time between its end and its burial.
        waitid(WaitId::Pid(Pid::from_child(&self.child)), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        let cpu_s = cpu_s(self.child.id())?;
        let status = self.child.wait()?;
        Ok(Ran { status, cpu_s, out: text(&self.out)?, err: text(&self.err)?, name: self.name })
    }
}

impl Ran {
    /// Itself, if its exit status is 0.
    pub(crate) fn good(self) -> Result<Ran> {
        if !self.status.success() {
            bail!("{}: {}: {}", self.name, self.status, self.err.trim());
        }
        Ok(self)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(15) {
            match self.0.try_wait() {
                Ok(None) => thread::sleep(POLL),
                _ => return,
            }
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// CPU seconds of a process and of those of its children that it has buried.
pub(crate) fn cpu_s(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold anything; behind it: state, and as the 12th to 15th field
    // the times.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(4);
    Ok(fields.map(|ticks| ticks.parse::<u64>()).sum::<Result<u64, _>>()? as f64 / TICKS_PER_S)
}

/// The most memory that a living process ever held, in bytes.
pub(crate) fn peak_rss(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("the process is gone")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}

/// CPU seconds that all processors together were busy since the machine started.
pub(crate) fn machine_busy_s() -> Result<f64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let ticks: Vec<u64> =
        stat.lines().next().unwrap_or_default().split_whitespace().skip(1).map(str::parse).collect::<Result<_, _>>()?;
    // user, nice, system, idle, iowait, irq, softirq, steal
    ensure!(ticks.len() >= 8, "the kernel does not say how busy it is");
    Ok((ticks[..3].iter().sum::<u64>() + ticks[5..8].iter().sum::<u64>()) as f64 / TICKS_PER_S)
}

/// CPU seconds of this process so far.
pub(crate) fn own_cpu_s() -> f64 {
    seconds(ClockId::ProcessCPUTime)
}

/// CPU seconds of this thread so far.
pub(crate) fn thread_cpu_s() -> f64 {
    seconds(ClockId::ThreadCPUTime)
}

/// A TCP port that is free just now, for servers that cannot choose one themselves.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// All of a file; its position, which a child shares and writes at, stays where it is.
fn text(file: &File) -> Result<String> {
    let mut bytes = vec![0; usize::try_from(file.metadata()?.len())?];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// USER_HZ: 100 on every Linux there is.
const TICKS_PER_S: f64 = 100.0;
/// The time between two looks at a child: short against the measured time, long against the look.
const POLL: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_charged_for_its_own_children_too() {
        let busy = "sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done'; echo said";
        let ran = run(Command::new("sh").args(["-c", busy])).expect("a shell");
        assert!(ran.cpu_s > 0.0);
        assert_eq!(ran.out, "said\n");
    }

    #[test]
    fn a_command_that_fails_tells_what_it_said() {
        let error = run(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).err().expect("an error");
        assert!(error.to_string().contains("why"), "{error}");
    }
}
