//! Owns the files of the destination side that are not settled: open temporaries, staged names, and
//! the batch that is being committed.
//!
//! In: temporaries that were opened, names that were staged, the machine's order what becomes of
//! them. Out: to the jobs that write, sync, commit or remove them. It does nothing on the disk
//! itself.

use std::collections::HashMap;
use std::sync::Arc;

use longhaul_core::{ChunkIndex, ChunkMap, FileId, FileOffset, Layout, Place};
use longhaul_disk::{Staged, TargetFile};
use longhaul_proto::receiver::Created;

use super::batch::Batch;

/// A temporary that takes chunks.
#[derive(Clone, Debug)]
pub(crate) struct OpenTarget {
    target: Arc<TargetFile>,
    layout: Layout,
    map: ChunkMap,
    created: Created,
}

/// Files that are not settled.
#[derive(Debug, Default)]
pub(super) struct UnsettledFiles {
    open: HashMap<FileId, OpenTarget>,
    staged: HashMap<FileId, Staged>,
    batch: Arc<Batch>,
}

impl OpenTarget {
    /// A temporary that was created or opened at a destination of this layout, and its chunks.
    pub(super) fn new(target: Arc<TargetFile>, layout: Layout, map: ChunkMap, created: Created) -> OpenTarget {
        OpenTarget { target, layout, map, created }
    }

    /// The open file.
    pub(super) fn target(&self) -> &Arc<TargetFile> {
        &self.target
    }

    /// Its chunks.
    pub(super) fn map(&self) -> ChunkMap {
        self.map
    }

    /// Whether it is new, or continues a partial.
    pub(super) fn created(&self) -> &Created {
        &self.created
    }

    /// The offset and the length of a chunk.
    pub(super) fn range_of(&self, index: ChunkIndex) -> (FileOffset, usize) {
        let start = self.map.start_of(index);
        // Behind the last chunk of a stream there may be padding.
        let left = self.target.len().saturating_sub(start.0);
        (start, self.map.len_of(index).unwrap_or(0).min(left) as usize)
    }

    /// Where a chunk of it goes.
    pub(super) fn place(&self, index: ChunkIndex) -> Place {
        self.layout.place_of(self.map, index)
    }
}

impl UnsettledFiles {
    /// Takes a temporary that was created.
    pub(super) fn opened(&mut self, file: FileId, open: OpenTarget) {
        self.open.insert(file, open);
    }

    /// The temporary of a file. `None` if it is not open.
    pub(super) fn get(&self, file: FileId) -> Option<&OpenTarget> {
        self.open.get(&file)
    }

    /// The same, for a job that needs only the file.
    pub(super) fn target(&self, file: FileId) -> Option<Arc<TargetFile>> {
        self.get(file).map(|open| open.target.clone())
    }

    /// Takes a staged name in place of the temporary of its file.
    pub(super) fn staged(&mut self, file: FileId, staged: Staged) {
        self.open.remove(&file);
        self.staged.insert(file, staged);
    }

    /// Makes a batch of staged names. Returns it, and the one before.
    pub(super) fn begin_batch(&mut self, files: &[FileId]) -> (Arc<Batch>, Arc<Batch>) {
        let batch = Arc::new(files.iter().filter_map(|id| Some((*id, self.staged.remove(id)?))).collect());
        (Arc::clone(&batch), std::mem::replace(&mut self.batch, batch))
    }

    /// Takes files out of the batch: they are staged as before it. `None` if others use the batch.
    pub(super) fn postpone(&mut self, files: &[FileId]) -> Option<()> {
        if !files.is_empty() {
            let postponed = Arc::get_mut(&mut self.batch)?.take(files);
            self.staged.extend(postponed);
        }
        Some(())
    }

    /// The batch that is being committed.
    pub(super) fn batch(&self) -> Arc<Batch> {
        self.batch.clone()
    }

    /// Takes the batch out.
    pub(super) fn end_batch(&mut self) -> Arc<Batch> {
        std::mem::take(&mut self.batch)
    }

    /// Takes a file out: its temporary, and the batch that holds its staged name, which is one of
    /// its own or the batch that failed.
    pub(super) fn take(&mut self, file: FileId) -> (Option<OpenTarget>, Option<Arc<Batch>>) {
        let staged = self.staged.remove(&file).map(|staged| Arc::new(Batch::from_iter([(file, staged)])));
        let staged = staged.or_else(|| self.batch.has(file).then(|| self.batch.clone()));
        (self.open.remove(&file), staged)
    }

    /// Takes a file out that is in no batch.
    pub(super) fn take_unbatched(&mut self, file: FileId) -> (Option<OpenTarget>, Option<Staged>) {
        (self.open.remove(&file), self.staged.remove(&file))
    }

    /// The files that are open, and those that are staged and in no batch.
    pub(super) fn unbatched(&self) -> Vec<FileId> {
        self.open.keys().chain(self.staged.keys()).copied().collect()
    }
}
