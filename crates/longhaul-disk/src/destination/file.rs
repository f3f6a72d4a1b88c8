//! A target file under its temporary name, into which chunks are written until the file is sealed.
//!
//! Made by a [`TargetTree`](crate::TargetTree), written by [`ChunkIo`](crate::ChunkIo). Owns the
//! blocks reserved ahead of the writes and the list of ranges written before; knows nothing of
//! chunks, digests or peers.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::{FileNode, RelPath};

use super::device::Mark;
use super::temp::Temp;
use crate::direct::{Handle, IoMode};

/// A target file, open for writing under a temporary name, which stays until the file is published
/// or discarded.
#[derive(Debug)]
pub struct TargetFile {
    path: RelPath,
    len: u64,
    sparse: bool,
    dev: u64,
    /// `None`: no file at all, for transfers without a disk.
    body: Option<Body>,
}

#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) handle: Handle,
    node: FileNode,
    pub(crate) temp: Arc<Temp>,
    /// Held by the one buffered write that is under way.
    pub(crate) turn: tokio::sync::Mutex<()>,
    /// The moment from which on no sync of its file system may have failed: its own last good sync.
    pub(crate) mark: Mark,
    /// Whether the temporary name is durable.
    pub(crate) named: AtomicBool,
    began: Began,
    reserved: Mutex<Reserved>,
    written: Mutex<Ranges>,
}

/// The content of a file when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Began {
    /// The file is new and empty.
    Empty,
    /// An earlier session wrote to the file: any range may hold data.
    Written,
}

/// The number of the target, among a file's targets, that a place lies on. There is one today.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct TargetId(pub u32);

/// The place where bytes of a file go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The target.
    pub target: TargetId,
    /// The offset there, in bytes.
    pub offset: u64,
}

/// The extent of the reserved blocks.
#[derive(Debug, Default)]
struct Reserved {
    end: u64,
    /// The file system does not reserve, or it is not worth it.
    off: bool,
}

/// Ranges of bytes, merged where they touch.
#[derive(Debug, Default)]
struct Ranges(BTreeMap<u64, u64>);

impl TargetFile {
    pub(crate) fn new(
        (path, len, sparse): (&RelPath, u64, bool),
        (handle, node): (Handle, FileNode),
        temp: Temp,
        (began, mark): (Began, Mark),
    ) -> TargetFile {
        let dev = temp.dir().dev();
        let reserved = Reserved { end: 0, off: sparse || len < RESERVED_FILE_BYTES_MIN };
        let body = Body {
            handle,
            node,
            temp: Arc::new(temp),
            turn: tokio::sync::Mutex::default(),
            mark,
            named: AtomicBool::new(false),
            began,
            reserved: Mutex::new(reserved),
            written: Mutex::default(),
        };
        TargetFile { path: path.clone(), len, sparse, dev, body: Some(body) }
    }

    /// A file that does not exist; only the void engine writes it.
    pub(crate) fn void(path: &RelPath, len: u64) -> TargetFile {
        TargetFile { path: path.clone(), len, sparse: false, dev: 0, body: None }
    }

    /// Its final name.
    pub fn path(&self) -> &RelPath {
        &self.path
    }

    /// The length it will have, in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it will have no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device it lies on (`st_dev`).
    pub fn dev(&self) -> u64 {
        self.dev
    }

    /// The identity of the file on this host, under any name. `None` for a file that does not
    /// exist.
    pub fn node(&self) -> Option<FileNode> {
        self.body.as_ref().map(|body| body.node)
    }

    /// The place where the bytes at `offset` go.
    pub fn place(&self, offset: u64) -> Place {
        Place { target: TargetId(0), offset }
    }

    /// The way in which it is really written.
    pub fn mode(&self) -> IoMode {
        self.body.as_ref().map_or(IoMode::Buffered, |body| body.handle.mode())
    }

    /// Removes the temporary name now. The blocks are freed when the last request on the file has
    /// ended.
    pub fn discard(&self) {
        if let Some(body) = &self.body {
            body.temp.discard();
        }
    }

    pub(crate) fn body(&self) -> Option<&Body> {
        self.body.as_ref()
    }

    /// Notes that `range` is about to be written. Returns whether zeros in it may be left out, as
    /// it can only be a hole yet. A chunk that is written again (it failed verification before)
    /// must overwrite the old bytes.
    pub(crate) fn may_leave_holes(&self, range: Range<u64>) -> bool {
        let Some(body) = self.body.as_ref().filter(|body| self.sparse && body.began == Began::Empty) else {
            return false;
        };
        body.written.lock().unwrap_or_else(PoisonError::into_inner).insert(range)
    }

    /// Whether anything but a hole may lie in `range`.
    pub(crate) fn may_hold_data(&self, range: Range<u64>) -> bool {
        self.body.as_ref().is_some_and(|body| {
            body.began == Began::Written || body.written.lock().unwrap_or_else(PoisonError::into_inner).overlaps(range)
        })
    }
}

impl Body {
    /// The offset and length to reserve before a write that ends at `end`, in a file of `len`
    /// bytes. The caller that gets them reserves them; other writes need not wait for that.
    pub(crate) fn reserve(&self, end: u64, len: u64) -> Option<(u64, u64)> {
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        if reserved.off || end <= reserved.end || reserved.end >= len {
            return None;
        }
        let from = reserved.end;
        reserved.end = len.min(end.saturating_add(RESERVE_AHEAD_BYTES));
        Some((from, reserved.end - from))
    }

    /// Notes that the file system cannot reserve, so that it is not asked again.
    pub(crate) fn stop_reserving(&self) {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner).off = true;
    }
}

impl Ranges {
    /// Whether any byte of a range is in a range of the set.
    fn overlaps(&self, range: Range<u64>) -> bool {
        self.0.range(..range.end).next_back().is_some_and(|(_, end)| *end > range.start)
    }

    /// Adds a range. Returns false if any of it was in the set before.
    fn insert(&mut self, range: Range<u64>) -> bool {
        let Range { mut start, mut end } = range;
        if start >= end {
            return true;
        }
        let mut fresh = true;
        // Everything that overlaps or touches: at most the one before `start` and those that begin
        // up to `end`.
        while let Some((&other_start, &other_end)) = self.0.range(..=end).next_back() {
            if other_end < start {
                break;
            }
            fresh &= other_end == start || other_start == end;
            self.0.remove(&other_start);
            start = start.min(other_start);
            end = end.max(other_end);
        }
        self.0.insert(start, end);
        fresh
    }
}

/// Blocks are reserved this far ahead of the highest write: few and large extents without claiming
/// a huge file's space long before it is needed.
const RESERVE_AHEAD_BYTES: u64 = 256 << 20;
/// Files from this size on have blocks reserved. Smaller ones are not worth the call: a few chunks
/// allocate well by themselves.
const RESERVED_FILE_BYTES_MIN: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge_and_report_what_was_there() {
        let mut ranges = Ranges::default();
        for (range, fresh) in [
            (10..20, true),
            (20..30, true),
            (0..10, true),
            (40..50, true),
            (30..40, true),
            (0..1, false),
            (49..60, false),
            (100..110, true),
            (70..105, false),
            (55..75, false),
        ] {
            assert_eq!(ranges.insert(range.clone()), fresh, "{range:?}");
        }
        for (range, there) in [(0..1, true), (109..200, true), (110..200, false), (50..60, true)] {
            assert_eq!(ranges.overlaps(range.clone()), there, "{range:?}");
        }
        assert_eq!(ranges.0.into_iter().collect::<Vec<_>>(), [(0, 110)]);
    }
}
