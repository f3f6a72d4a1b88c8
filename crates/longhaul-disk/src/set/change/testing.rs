//! A process that dies between two calls, for tests.

use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use super::{finish_marks, with_newest_coming};
use crate::error::DiskError;
use crate::kernel::{Call, InodeId, Interposer, Kernel, Passage};
use crate::set::TargetDirs;
use crate::set::open::{FoundTargets, Looked, look};

/// Finishes the marks of a change that was interrupted, as every opening for a change does, and
/// stops after so many calls.
pub(in crate::set) fn finish_and_stop(named: &TargetDirs, calls: u32) -> Result<(), DiskError> {
    let (named, kernel) = (named.newest()?, Kernel::behind(Stops::after(calls)));
    let (found, _) = look(&named.dirs)?;
    let found: FoundTargets<'_> =
        found.into_iter().map(|(id, looked)| (id, Looked { tree: looked.tree.behind(&kernel), ..looked })).collect();
    finish_marks(&with_newest_coming(found)?).map(drop)
}

/// Lets a number of calls through; the process is dead for the others. Syncs are not made, as no
/// power is cut here.
#[derive(Debug)]
pub(crate) struct Stops {
    left: Mutex<u32>,
}

impl Stops {
    pub(crate) fn after(calls: u32) -> Arc<Stops> {
        Arc::new(Stops { left: Mutex::new(calls) })
    }
}

impl Interposer for Stops {
    fn begin(&self, call: &Call<'_>) -> Passage {
        let mut left = self.left.lock().expect("no panic");
        match left.checked_sub(1) {
            Some(fewer) => {
                *left = fewer;
                match call {
                    Call::Sync { .. } | Call::SyncData { .. } | Call::SyncFileSystem { .. } => {
                        Passage::Answered(Ok(()))
                    }
                    _ => Passage::Made(0),
                }
            }
            None => Passage::Answered(Err(Errno::IO)),
        }
    }

    fn end(&self, _: u64, _: Result<Option<InodeId>, Errno>) {}

    fn read_medium(&self, _: InodeId, _: u64, _: &mut [u8]) -> Option<usize> {
        None
    }

    fn file_system_type(&self) -> Option<u64> {
        None
    }
}
