//! A process that dies between two calls, for tests.

use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use crate::kernel::{Call, InodeId, Interposer, Passage};

/// Lets a number of calls through; the process is dead for the others.
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
    fn begin(&self, _: &Call<'_>) -> Passage {
        let mut left = self.left.lock().expect("no panic");
        match left.checked_sub(1) {
            Some(fewer) => {
                *left = fewer;
                Passage::Made(0)
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
