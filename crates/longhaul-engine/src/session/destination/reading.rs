//! Owns the threads that read the destination back, and what they have seen of standing files.
//!
//! In: jobs that read. Out: their reports. The threads exist only where reading was asked for. It
//! does not know what is read, and compares nothing.

use std::sync::Arc;

use longhaul_core::{Fault, FileId};
use longhaul_disk::{Affinity, TargetTree};

use super::digests::Digesters;
use super::jobs::JobReporter;
use super::readback::{Reader, Readers};
use super::standing::Versions;
use super::{DestinationDone, DestinationOptions};

/// The readers of a session.
pub(super) struct Readings {
    /// The versions of standing files that were read.
    versions: Versions,
    /// Threads that read back and read standing files. `None` if that is not wanted.
    readers: Option<Readers>,
    /// Threads that read skipped files. `None` if that is not wanted.
    digesters: Option<Digesters>,
    /// Where the threads run.
    affinity: Affinity,
    /// Held once by each job that reads back or reads standing files.
    under_way: Arc<()>,
}

impl Readings {
    /// Starts the threads that are wanted.
    pub(super) fn start(options: &DestinationOptions, affinity: Affinity) -> Result<Readings, Fault> {
        Ok(Readings {
            versions: Versions::default(),
            readers: options.reserve.map(|bytes| Readers::start(bytes, &affinity)).transpose()?,
            digesters: options.digests.map(|bytes| Digesters::start(bytes, &affinity)).transpose()?,
            affinity,
            under_way: Arc::default(),
        })
    }

    /// Starts threads that read back, with buffers of `slot_bytes`, if there are none.
    pub(super) fn want_readers(&mut self, slot_bytes: usize) -> Result<(), Fault> {
        if self.readers.is_none() {
            self.readers = Some(Readers::start(slot_bytes, &self.affinity)?);
        }
        Ok(())
    }

    /// Lends a reader to a job, which reports now or later.
    pub(super) fn lend(
        &self,
        reporter: &JobReporter,
        job: impl FnOnce(&dyn TargetTree, Reader) -> Option<DestinationDone> + Send + 'static,
    ) {
        if let Some(readers) = &self.readers {
            readers.lend(reporter.clone(), self.under_way.clone(), job);
        }
    }

    /// The versions of standing files that were read.
    pub(super) fn versions(&self) -> Versions {
        self.versions.clone()
    }

    /// Forgets an entry that is settled.
    pub(super) fn forget(&self, file: FileId) {
        self.versions.forget(file);
    }

    /// Threads that read skipped files, and the token of a job of theirs. `None` if that is not
    /// wanted.
    pub(super) fn digesters(&self) -> Option<(&Digesters, Arc<()>)> {
        self.digesters.as_ref().map(|digesters| (digesters, self.under_way.clone()))
    }

    /// Tells the threads that read skipped files to end.
    pub(super) fn stop_digests(&self) {
        self.digesters.iter().for_each(Digesters::stop);
    }

    /// Whether anything is being read.
    pub(super) fn is_at_work(&self) -> bool {
        Arc::strong_count(&self.under_way) > 1
    }
}
