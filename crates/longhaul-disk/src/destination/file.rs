//! A target file under its temporary name, into whose bodies chunks are written until the file is
//! sealed.
//!
//! Made by a [`TargetTree`](crate::TargetTree), written by [`ChunkIo`](crate::ChunkIo). Owns the
//! bodies; where a chunk goes is the caller's business. Knows nothing of chunks, digests or peers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_core::digest::Digest;
use longhaul_core::limits::STREAM_BYTES_MAX;
use longhaul_core::{ChunkIndex, FileNode, Meta, Place, Preserve, RelPath, TargetId};
use rustix::fs::fstat;
use rustix::io::Errno;

use super::body::{Body, DiskBody};
use super::readback::impossible;
use super::stream::StreamBody;
use super::striped::Striped;
use crate::bytes::WriteAt;
use crate::direct::{Handle, IoMode};
use crate::error::DiskError;
use crate::fill::Back;

/// A target file, open for writing under a temporary name, which stays until the file is published
/// or discarded.
#[derive(Debug)]
pub struct TargetFile {
    path: RelPath,
    len: AtomicU64,
    /// One body for each target. None: no file at all, for transfers without a disk.
    bodies: Vec<Body>,
    /// The bodies that its chunks go to, if it is striped: the first of `bodies`, which is the only
    /// one, is its stripe file then.
    striped: Option<Arc<Striped>>,
}

impl TargetFile {
    /// The file that will be `path`, of `len` bytes in all, with one body on each of its targets. A
    /// file without bodies takes all bytes and keeps none.
    pub fn new(path: &RelPath, len: u64, bodies: Vec<Body>) -> TargetFile {
        TargetFile { path: path.clone(), len: len.into(), bodies, striped: None }
    }

    /// A striped file of `len` bytes, with its stripe file.
    pub(crate) fn in_stripes(path: &RelPath, len: u64, stripe: Body, striped: Striped) -> TargetFile {
        TargetFile { path: path.clone(), len: len.into(), bodies: vec![stripe], striped: Some(Arc::new(striped)) }
    }

    /// The bodies that its chunks go to, if it is striped.
    pub(crate) fn striped(&self) -> Option<&Arc<Striped>> {
        self.striped.as_ref()
    }

    /// Whether it is to be told of each hole, by
    /// [`TargetTree::make_hole`](crate::TargetTree::make_hole).
    pub fn notes_holes(&self) -> bool {
        self.striped.is_some() || self.is_in_stream()
    }

    /// Notes the digest of a chunk that is about to be written, or is a hole.
    pub fn note_digest(&self, index: ChunkIndex, digest: Digest) {
        if let Some(striped) = &self.striped {
            striped.note_digest(index, digest);
        }
    }

    /// Its final name.
    pub fn path(&self) -> &RelPath {
        &self.path
    }

    /// The length it will have, in bytes. Of a stream: more than any file has, until it is known.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Sets the length of a stream, which is known now. It lies in one body. Nothing changes in a
    /// file whose length was known.
    pub fn end_if_unended(&self, len: u64) {
        if self.len() == STREAM_BYTES_MAX {
            self.len.store(len, Ordering::Release);
            self.bodies.iter().for_each(|body| body.end_at(len));
        }
    }

    /// Whether it will have no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The target of its first body.
    pub fn home(&self) -> TargetId {
        self.on_disk().next().map_or(TargetId::FIRST, |body| body.share().target())
    }

    /// Its bodies, in the order of their targets.
    pub fn bodies(&self) -> &[Body] {
        &self.bodies
    }

    /// The identity on this host of its first body, under any name. `None` for a body that is no
    /// file of this host.
    pub fn node(&self) -> Option<FileNode> {
        self.bodies.first()?.on_disk().map(DiskBody::node)
    }

    /// The way in which its first body is really written.
    pub fn mode(&self) -> IoMode {
        if let Some(striped) = &self.striped {
            return striped.mode();
        }
        let body = self.bodies.first().and_then(Body::on_disk);
        body.map(DiskBody::handle).map_or(IoMode::Buffered, Handle::mode)
    }

    /// Whether its bytes go out in order, as a part of a stream.
    pub fn is_in_stream(&self) -> bool {
        self.bodies.iter().any(|body| body.in_stream().is_some())
    }

    /// Removes the temporary names now. The blocks are freed when the last request on the file has
    /// ended.
    pub fn discard(&self) {
        match (&self.striped, self.on_disk().next()) {
            (Some(striped), Some(stripe)) => {
                // The bodies of a file whose name was given after all are not removed: by a link,
                // where no rename would do.
                let is_alone = fstat(stripe).is_ok_and(|stat| stat.st_nlink == 1);
                if stripe.temp().discard() && is_alone {
                    striped.discard();
                }
            }
            _ => self.bodies.iter().for_each(Body::discard),
        }
    }

    /// The body on a target.
    pub(crate) fn body(&self, target: TargetId) -> Option<&Body> {
        match &self.striped {
            Some(striped) => striped.body(target),
            None => self.bodies.get(target.0 as usize),
        }
    }

    /// The body on a target, where its bytes go out in order.
    pub(crate) fn in_stream(&self, target: TargetId) -> Option<&StreamBody> {
        self.body(target).and_then(Body::in_stream)
    }

    /// The bodies that are files of this host.
    pub(crate) fn on_disk(&self) -> impl DoubleEndedIterator<Item = &DiskBody> {
        self.bodies.iter().filter_map(Body::on_disk)
    }

    /// The error of a request of `len` bytes at a place that the file does not have. `None` if it
    /// has it.
    pub(crate) fn lacks(&self, place: Place, len: usize) -> Option<DiskError> {
        if let Some(striped) = &self.striped {
            let has_it = striped.chunk_at(place.offset, len).is_some();
            return (!has_it).then(|| DiskError::Bounds { path: (&self.path).into(), offset: place.offset, len });
        }
        let end = place.offset.checked_add(len as u64);
        let fits = |body: &Body| end.is_some_and(|end| end <= body.len());
        let has_it = self.bodies.is_empty() || self.body(place.target).is_some_and(fits);
        (!has_it).then(|| DiskError::Bounds { path: (&self.path).into(), offset: place.offset, len })
    }

    /// Makes `len` bytes at a place read as zeros.
    pub(crate) fn make_hole(&self, place: Place, len: u64) -> Result<(), DiskError> {
        if let Some(striped) = &self.striped {
            striped.is_hole(place.offset);
            return Ok(());
        }
        match self.body(place.target) {
            Some(body) => body.make_hole(&self.path, place.offset..place.offset.saturating_add(len)),
            None => self.lacks(place, 0).map_or(Ok(()), Err),
        }
    }

    /// Reads `len` bytes at a place back from the medium into the start of `slot`.
    pub(crate) fn read_back(&self, place: Place, len: usize, slot: &mut [u8]) -> Result<Back, DiskError> {
        let place = match &self.striped {
            Some(striped) => match striped.place_of(place.offset) {
                Some(place) => place,
                // A hole lies nowhere.
                None => {
                    let slot = slot.get_mut(..len).ok_or_else(|| impossible(&self.path))?;
                    slot.fill(0);
                    return Ok(Back { len, mode: IoMode::Direct });
                }
            },
            None => place,
        };
        match self.body(place.target) {
            Some(body) => body.read_back(&self.path, place.offset, len, slot),
            None => Err(impossible(&self.path)),
        }
    }

    /// Makes durable what was written to bodies that are no files of this host.
    ///
    /// # Errors
    /// The first error of a body. A body that is a file of this host is refused: only the tree that
    /// made it can sync its name too.
    pub(crate) fn sync_given(&self) -> Result<(), DiskError> {
        self.each_given("sync", WriteAt::sync)
    }

    /// Ends the writes of bodies that are no files of this host.
    ///
    /// # Errors
    /// As [`TargetFile::sync_given`].
    pub(crate) fn seal_given(&self, meta: &Meta, preserve: Preserve) -> Result<(), DiskError> {
        self.each_given("set the metadata of", |bytes| bytes.seal(meta, preserve))
    }

    fn each_given(&self, call: &'static str, act: impl Fn(&dyn WriteAt) -> io::Result<()>) -> Result<(), DiskError> {
        self.bodies.iter().try_for_each(|body| match body.bytes() {
            Some(bytes) => act(&**bytes).map_err(|error| DiskError::call(call, &self.path, error)),
            None => Err(DiskError::call(call, &self.path, Errno::OPNOTSUPP)),
        })
    }
}
