//! A destination that is no tree: its files leave in order, as one stream of bytes, and can neither
//! be looked up nor taken back.
//!
//! Takes the orders of a [`TargetTree`](super::TargetTree), and chunks in any order. Gives the
//! bytes of one file, or a tar archive, in blocks of one size. `lineup` has the order, `outflow`
//! says when it flows, `blocks` cuts, `sink` is the descriptor, `output` the thread that writes.
//! Knows nothing of peers and digests.

mod blocks;
mod lineup;
mod outflow;
mod output;
mod sink;
mod tar;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::{ChunkIndex, ChunkMap, Meta, Preserve, RelPath, TempName};
use longhaul_sys::Slot;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::body::Body;
use super::{Made, Replace, Staged, TargetFile, TargetTree, Zeros};
use crate::bytes::WriteAt;
use crate::error::DiskError;
use crate::stat::Standing;

use self::lineup::Turn;
pub(crate) use self::output::ChunkOut;
pub use self::output::{StreamFigures, StreamOutput};
pub use self::sink::StreamSink;
use self::tar::TarKind;

/// The form of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamShape {
    /// The content of the bytes.
    pub form: StreamForm,
    /// Bytes of a block, from 64 KiB to 16 MiB: each leaves in one write. Default: 1 MiB.
    pub block_bytes: usize,
    /// The last block.
    pub last: LastBlock,
    /// The filling of buffers before the first block leaves.
    pub prefill: Prefill,
    /// The metadata that an archive has.
    pub preserve: Preserve,
}

/// The content of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamForm {
    /// The bytes of one file.
    #[default]
    Plain,
    /// A tar archive of any number of files, directories and links.
    Tar,
}

/// The last block of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum LastBlock {
    /// It is as short as the rest is.
    #[default]
    Short,
    /// It is filled up with zeros.
    Padded,
}

/// The filling of buffers before the first block of a stream leaves, and again after each
/// under-run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Prefill {
    /// Each block leaves as soon as it is whole.
    #[default]
    None,
    /// Buffers of this many bytes, or all that there are, if these are fewer.
    Bytes(u64),
    /// A share of the buffers, 1 to 100 percent.
    Percent(u8),
}

impl StreamShape {
    /// The smallest block, in bytes: a tape that is written in smaller ones stands still more often
    /// than it runs.
    pub const BLOCK_BYTES_LEAST: usize = 64 << 10;
    /// The largest block, in bytes: the longest that drives of today take.
    pub const BLOCK_BYTES_MOST: usize = 16 << 20;
}

impl Default for StreamShape {
    fn default() -> StreamShape {
        StreamShape {
            form: StreamForm::Plain,
            block_bytes: 1 << 20,
            last: LastBlock::Short,
            prefill: Prefill::None,
            preserve: Preserve::default(),
        }
    }
}

/// The destination of one session that goes out as a stream. Nothing stands in it.
///
/// An entry of an archive counts as published when it is on its way: its last bytes may wait for a
/// block that is not whole. [`TargetTree::finish`] brings them out. The one file of a plain stream
/// is published only when all of it is out.
#[derive(Debug)]
pub struct StreamTarget {
    output: Arc<StreamOutput>,
    /// Whether a plain stream has its file.
    is_taken: AtomicBool,
}

/// The body of a file in a stream.
#[derive(Debug)]
pub(crate) struct StreamBody {
    output: Arc<StreamOutput>,
    turn: Turn,
}

/// An entry without chunks, staged.
#[derive(Debug)]
struct StagedEntry(Vec<u8>);

impl StreamTarget {
    /// The destination of a session whose files go out there.
    pub fn new(output: Arc<StreamOutput>) -> StreamTarget {
        StreamTarget { output, is_taken: AtomicBool::new(false) }
    }

    /// The bytes that go before an entry.
    fn head(&self, path: &RelPath, kind: TarKind<'_>, meta: &Meta) -> Vec<u8> {
        let shape = self.output.shape();
        match shape.form {
            StreamForm::Plain => Vec::new(),
            StreamForm::Tar => tar::head(path, kind, meta, shape.preserve),
        }
    }

    /// Refuses a second file of a plain stream.
    fn take_turn(&self, path: &RelPath) -> Result<(), DiskError> {
        let is_second = self.output.shape().form == StreamForm::Plain && self.is_taken.swap(true, Ordering::Relaxed);
        let what = "one file has gone there already, and only an archive holds several";
        if is_second { Err(DiskError::Exists { path: path.into(), what }) } else { Ok(()) }
    }

    /// Refuses what a plain stream cannot be.
    fn needs_archive(&self, path: &RelPath) -> Result<(), DiskError> {
        match self.output.shape().form {
            StreamForm::Plain => Err(DiskError::NotAFile { path: path.into() }),
            StreamForm::Tar => Ok(()),
        }
    }
}

impl TargetTree for StreamTarget {
    fn examine(&self, _path: &RelPath) -> Result<Option<Standing>, DiskError> {
        Ok(None)
    }

    fn make_dir(&self, path: &RelPath) -> Result<Made, DiskError> {
        self.needs_archive(path).map(|()| Made::Created)
    }

    fn create(
        &self,
        path: &RelPath,
        map: ChunkMap,
        sparse: bool,
        temp: &TempName,
    ) -> Result<Arc<TargetFile>, DiskError> {
        self.create_known(path, map, Zeros::from(sparse), temp, &Meta { mode: 0o644, ..Meta::default() })
    }

    fn create_known(
        &self,
        path: &RelPath,
        map: ChunkMap,
        _zeros: Zeros,
        _temp: &TempName,
        meta: &Meta,
    ) -> Result<Arc<TargetFile>, DiskError> {
        self.take_turn(path)?;
        let len = map.len();
        let turn = self.output.enter(len, self.head(path, TarKind::File(len), meta));
        let body = Body::stream(len, StreamBody { output: self.output.clone(), turn });
        Ok(Arc::new(TargetFile::new(path, len, vec![body])))
    }

    fn write_small(&self, path: &RelPath, bytes: &[u8], meta: &Meta, _: Preserve) -> Result<Staged, DiskError> {
        self.take_turn(path)?;
        let mut entry = self.head(path, TarKind::File(bytes.len() as u64), meta);
        entry.extend_from_slice(bytes);
        if self.output.shape().form == StreamForm::Tar {
            entry.resize(entry.len() + tar::padding(bytes.len() as u64), 0);
        }
        Ok(Staged::of(path, Arc::new(StagedEntry(entry))))
    }

    fn make_link(&self, path: &RelPath, target: &[u8], meta: &Meta, _: Preserve) -> Result<Staged, DiskError> {
        self.needs_archive(path)?;
        Ok(Staged::of(path, Arc::new(StagedEntry(self.head(path, TarKind::Link(target), meta)))))
    }

    /// Nothing can be made durable before the end.
    fn sync_data(&self, _file: &TargetFile) -> Result<Vec<ChunkIndex>, DiskError> {
        Ok(Vec::new())
    }

    fn seal(&self, file: Arc<TargetFile>, _meta: &Meta, _preserve: Preserve) -> Result<Staged, DiskError> {
        Ok(Staged::large(file))
    }

    fn barrier_of_all(&self, _staged: &[&Staged]) -> Result<(), DiskError> {
        Ok(())
    }

    fn publish(&self, staged: &Staged, _replace: Replace) -> Result<(), DiskError> {
        for bytes in staged.bytes() {
            let any: &dyn Any = &**bytes;
            if let Some(StagedEntry(entry)) = any.downcast_ref() {
                self.output.append(entry.clone())?;
            }
        }
        if self.output.shape().form == StreamForm::Plain { self.output.end() } else { Ok(()) }
    }

    /// A directory comes behind its entries, so that what is extracted into it does not change its
    /// time.
    fn finish_dir(&self, path: &RelPath, meta: &Meta, _preserve: Preserve) -> Result<(), DiskError> {
        if path.is_root() { Ok(()) } else { self.output.append(self.head(path, TarKind::Dir, meta)) }
    }

    fn finish(&self) -> Result<(), DiskError> {
        self.output.end()
    }
}

impl StreamBody {
    /// Takes a chunk: it goes out when everything before it is out.
    pub(crate) fn take(&self, offset: u64, len: usize, slot: Slot, out: ChunkOut) {
        self.output.take(self.turn, offset, len, slot, out);
    }

    /// Takes the file out of the stream, if it is not out as a whole.
    pub(crate) fn discard(&self) {
        self.output.leave(self.turn);
    }
}

impl Drop for StreamBody {
    fn drop(&mut self) {
        self.discard();
    }
}

impl WriteAt for StagedEntry {
    fn write_at(&self, _buf: &[u8], _offset: u64) -> io::Result<usize> {
        Err(Errno::OPNOTSUPP.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
