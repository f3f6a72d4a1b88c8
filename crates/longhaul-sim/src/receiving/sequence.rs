//! A destination that writes chunks in the order of the files, and keeps what comes early: the
//! small model of one that is a stream.
//!
//! In: files in the order in which they are begun, and jobs that write their chunks. Out: the jobs
//! whose turn has come. Starts nothing itself.

use std::collections::BTreeMap;

use longhaul_core::{ChunkIndex, FileId};

use super::job::Job;

/// The chunks that wait for their turn.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    files: BTreeMap<FileId, InSequence>,
}

/// A file of which chunks are still to be written.
#[derive(Debug)]
struct InSequence {
    next: u64,
    chunks: u64,
    early: BTreeMap<u64, Job>,
}

impl Sequence {
    /// A file of so many chunks is begun, behind those with smaller ids.
    pub(super) fn enter(&mut self, file: FileId, chunks: u64) {
        self.files.insert(file, InSequence { next: 0, chunks, early: BTreeMap::new() });
    }

    /// Takes the write of a chunk. Gives the writes whose turn has come.
    pub(super) fn put(&mut self, file: FileId, index: ChunkIndex, job: Job) -> Vec<Job> {
        if let Some(file) = self.files.get_mut(&file) {
            file.early.insert(index.0, job);
        }
        self.due()
    }

    /// A file has its outcome. Gives the writes whose turn has come by that.
    pub(super) fn leave(&mut self, file: FileId) -> Vec<Job> {
        self.files.remove(&file);
        self.due()
    }

    /// Gives every write that waits: the session ends, and they will fail.
    pub(super) fn give_up(&mut self) -> Vec<Job> {
        let files = std::mem::take(&mut self.files);
        files.into_values().flat_map(|file| file.early.into_values()).collect()
    }

    /// The chunks that wait.
    pub(super) fn early(&self) -> usize {
        self.files.values().map(|file| file.early.len()).sum()
    }

    fn due(&mut self) -> Vec<Job> {
        let mut due = Vec::new();
        while let Some(mut first) = self.files.first_entry() {
            let file = first.get_mut();
            while let Some(job) = file.early.remove(&file.next) {
                due.push(job);
                file.next += 1;
            }
            if file.next < file.chunks {
                break;
            }
            first.remove();
        }
        due
    }
}
