//! Counts what ssh costs a run: the bytes that went through it, and the CPU time of its processes.
//!
//! In: the tunnel and the process of each ssh session of a run. Out: figures for the report. It
//! starts nothing and ends nothing.

use std::sync::{Arc, Mutex, PoisonError};

use longhaul_net::Tunnel;
use rustix::param::clock_ticks_per_second;

use crate::api::SshFigures;

/// The ssh sessions of a run. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct SshCosts(Arc<Mutex<Vec<Counted>>>);

/// One ssh session.
enum Counted {
    /// It lasts.
    Running { tunnel: Tunnel, pid: Option<u32> },
    /// It is over.
    Ended(SshFigures),
}

/// The place of one session among the costs.
pub(super) struct CostPlace {
    costs: SshCosts,
    number: usize,
}

impl SshCosts {
    /// Counts another session.
    pub(super) fn enter(&self, tunnel: Tunnel, pid: Option<u32>) -> CostPlace {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = all.len();
        all.push(Counted::Running { tunnel, pid });
        CostPlace { costs: self.clone(), number }
    }

    /// The cost of all of them so far. `None` if ssh led nowhere in this run.
    pub(crate) fn figures(&self) -> Option<SshFigures> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(Counted::figures).reduce(|sum, one| SshFigures {
            bytes: sum.bytes + one.bytes,
            cpu_s: sum.cpu_s.zip(one.cpu_s).map(|(sum, one)| sum + one),
        })
    }
}

impl Counted {
    fn figures(&self) -> SshFigures {
        match self {
            Counted::Running { tunnel, pid } => {
                SshFigures { bytes: tunnel.carried(), cpu_s: pid.and_then(cpu_seconds) }
            }
            Counted::Ended(figures) => *figures,
        }
    }
}

impl CostPlace {
    /// Reads the costs for the last time. The tunnel is held no longer.
    pub(super) fn end(&self) {
        let mut all = self.costs.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(one) = all.get_mut(self.number) {
            *one = Counted::Ended(one.figures());
        }
    }
}

/// CPU seconds of a process that was not waited for yet. `None` if nothing is known of it.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel about a child of this process")]
fn cpu_seconds(pid: u32) -> Option<f64> {
    cpu_seconds_of(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// CPU seconds in the text of `/proc/PID/stat` (proc_pid_stat(5): `utime` and `stime`, fields 14
/// and 15, in clock ticks). The name of the program in field 2 may hold anything.
fn cpu_seconds_of(stat: &str) -> Option<f64> {
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_whitespace().skip(11).map(str::parse::<u64>);
    let (user, system) = (fields.next()?.ok()?, fields.next()?.ok()?);
    Some((user + system) as f64 / clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_program_does_not_shift_the_fields() {
        let ticks = clock_ticks_per_second();
        let stat = format!("7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 {ticks} {ticks} 0 0 20 0 1 0 5 6 7");
        assert_eq!(cpu_seconds_of(&stat), Some(2.0));
        assert_eq!(cpu_seconds_of("7 (a) S 1"), None);
        assert!(cpu_seconds(std::process::id()).is_some());
    }
}
