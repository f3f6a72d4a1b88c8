//! The open file of a catalogue, and the syncs that make its entries durable.
//!
//! In: batches of entries that were written, in the order of their numbers. Out: whether a batch is
//! durable. One sync serves all batches that were written before it. Knows no entries.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::kernel::Kernel;

/// The file of a catalogue, open.
#[derive(Debug)]
pub(super) struct OpenCatalogue {
    fd: OwnedFd,
    /// Batches that were written.
    written: AtomicU64,
    synced: Mutex<CatalogueSyncs>,
}

/// The syncs so far, by the last batch that was written before them.
#[derive(Debug, Default)]
struct CatalogueSyncs {
    /// The batches up to this one are durable, but for those of `failed`.
    durable: u64,
    /// A sync failed that those up to this one waited for. The system says so once: a later sync
    /// that goes well says nothing of them.
    failed: u64,
}

impl OpenCatalogue {
    /// The file of this descriptor, before anything is written.
    pub(super) fn of(fd: OwnedFd) -> OpenCatalogue {
        OpenCatalogue { fd, written: AtomicU64::new(0), synced: Mutex::default() }
    }

    /// The file.
    pub(super) fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// The number of the batch whose entries were all written just now.
    pub(super) fn wrote(&self) -> u64 {
        self.written.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Makes a batch durable.
    pub(super) fn sync(&self, batch: u64, kernel: &Kernel) -> io::Result<()> {
        let mut synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
        if batch <= synced.failed {
            return Err(io::Error::other("a sync of it failed"));
        }
        if batch > synced.durable {
            let all = self.written.load(Ordering::SeqCst);
            match kernel.fdatasync(self.fd.as_fd()) {
                Ok(()) => synced.durable = all,
                Err(error) => {
                    synced.failed = all;
                    return Err(error.into());
                }
            }
        }
        Ok(())
    }
}
