//! Looks at this process as the system sees it: descriptors, memory, processor time.
//!
//! In: `/proc/self`. Out: figures; a figure that cannot be read is left out. It knows no daemon.

#![allow(clippy::disallowed_methods, reason = "it reads /proc, which has no data of anybody")]

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// The figures of this process.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProcessFigures {
    /// Descriptors that are open.
    pub(super) descriptors: Option<u64>,
    /// As many as may be.
    pub(super) descriptors_max: Option<u64>,
    /// Bytes of memory that are resident.
    pub(super) resident_bytes: Option<u64>,
    /// Seconds of processor time.
    pub(super) cpu_seconds: Option<f64>,
}

impl ProcessFigures {
    /// The figures now.
    pub(super) fn now() -> ProcessFigures {
        ProcessFigures {
            // The one by which they are counted is among them.
            descriptors: fs::read_dir("/proc/self/fd").ok().map(|all| (all.count() as u64).saturating_sub(1)),
            descriptors_max: getrlimit(Resource::Nofile).current,
            resident_bytes: fs::read_to_string("/proc/self/statm").ok().as_deref().and_then(resident),
            cpu_seconds: fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(cpu),
        }
    }
}

fn resident(statm: &str) -> Option<u64> {
    statm.split(' ').nth(1)?.parse::<u64>().ok().map(|pages| pages.saturating_mul(page_size() as u64))
}

/// Fields 14 and 15; the second one is the program's name, which may hold anything.
fn cpu(stat: &str) -> Option<f64> {
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ').skip(11).map_while(|field| field.parse::<u64>().ok());
    let ticks = fields.next()?.saturating_add(fields.next()?);
    Some(ticks as f64 / clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_all_of_them() {
        let now = ProcessFigures::now();
        assert!(now.descriptors > Some(2) && now.descriptors_max > now.descriptors, "{now:?}");
        assert!(now.resident_bytes > Some(1 << 16) && now.cpu_seconds.is_some(), "{now:?}");
        assert_eq!(
            cpu("1 (a) b) S 1 1 1 0 -1 4194304 1 0 0 0 100 50 0 0"),
            Some(150.0 / clock_ticks_per_second() as f64)
        );
    }
}
