//! The bodies of a target file: its bytes on one target each.
//!
//! A body on a disk is made by [`FsTarget`](crate::FsTarget), one of another kind by
//! [`Body::of`]. [`ChunkIo`](crate::ChunkIo) writes both, each through the queue of its own device.
//! Owns the blocks reserved ahead of the writes and the list of ranges written before; knows
//! nothing of chunks, digests or peers.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_core::limits::STREAM_BYTES_MAX;
use longhaul_core::{FileNode, RelPath};
use rustix::io::Errno;

use super::device::Mark;
use super::readback;
use super::reopen::zero;
use super::stream::StreamBody;
use super::temp::Temp;
use crate::bytes::WriteAt;
use crate::direct::{Handle, IoMode};
use crate::error::DiskError;
use crate::fill::Back;
use crate::load::LoadShare;

/// The bytes of a file on one target.
#[derive(Debug)]
pub struct Body {
    len: AtomicU64,
    content: BodyContent,
}

/// Where the bytes of a body go.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all bodies are files of this host, and none is moved often")]
enum BodyContent {
    /// To a file of this host.
    Disk(DiskBody),
    /// To anything else.
    Given(GivenBody),
    /// Out in order, with the bytes of other files before and behind them.
    Stream(StreamBody),
}

/// A body in a file of this host.
#[derive(Debug)]
pub(crate) struct DiskBody {
    handle: Handle,
    node: FileNode,
    temp: Temp,
    /// Held by the one buffered write that is under way.
    turn: tokio::sync::Mutex<()>,
    /// The moment from which on no sync of its file system may have failed: its own last good sync.
    mark: Mark,
    /// The part of it that is still to be written.
    share: LoadShare,
    /// Whether the temporary name is durable.
    is_named: AtomicBool,
    began: Began,
    zeros: Zeros,
    reserved: Mutex<Reserved>,
    written: Mutex<Ranges>,
}

/// A body that is no file of this host.
#[derive(Debug)]
pub(crate) struct GivenBody {
    queue: u64,
    bytes: Arc<dyn WriteAt>,
}

/// The content of a file when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Began {
    /// The file is new and empty.
    Empty,
    /// An earlier session wrote to the file: any range may hold data.
    Written,
}

/// The treatment of blocks that are all zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zeros {
    /// They are written as any other.
    Written,
    /// They are left out where nothing was written yet, and so stay holes.
    LeftOut,
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

impl Body {
    /// A body of `len` bytes of another kind than a file of this host, for a
    /// [`TargetTree`](crate::TargetTree) that a library user wrote. Bodies with the same `queue`
    /// share the threads that write them.
    pub fn of(len: u64, queue: u64, bytes: Arc<dyn WriteAt>) -> Body {
        Body { len: len.into(), content: BodyContent::Given(GivenBody { queue, bytes }) }
    }

    /// A body of `len` bytes in an open file.
    pub(crate) fn disk(
        (len, zeros): (u64, Zeros),
        (handle, node): (Handle, FileNode),
        temp: Temp,
        (began, mark, share): (Began, Mark, LoadShare),
    ) -> Body {
        let is_worth_it = (RESERVED_FILE_BYTES_MIN..STREAM_BYTES_MAX).contains(&len);
        let reserved = Reserved { end: 0, off: zeros == Zeros::LeftOut || !is_worth_it };
        let body = DiskBody {
            handle,
            node,
            temp,
            turn: tokio::sync::Mutex::default(),
            mark,
            share,
            is_named: AtomicBool::new(false),
            began,
            zeros,
            reserved: Mutex::new(reserved),
            written: Mutex::default(),
        };
        Body { len: len.into(), content: BodyContent::Disk(body) }
    }

    /// A body of `len` bytes that go out in order.
    pub(crate) fn stream(len: u64, body: StreamBody) -> Body {
        Body { len: len.into(), content: BodyContent::Stream(body) }
    }

    /// The length that it will have, in bytes. Of a stream: [`STREAM_BYTES_MAX`] until it is known.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Sets the length of a stream, which is known now.
    pub(crate) fn end_at(&self, len: u64) {
        self.len.store(len, Ordering::Release);
    }

    /// Whether it will have no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its bytes, where it is no file of this host.
    pub fn bytes(&self) -> Option<&Arc<dyn WriteAt>> {
        self.given().map(|given| &given.bytes)
    }

    /// It, where it is a file of this host.
    pub(crate) fn on_disk(&self) -> Option<&DiskBody> {
        if let BodyContent::Disk(body) = &self.content { Some(body) } else { None }
    }

    /// It, where it is no file of this host.
    pub(crate) fn given(&self) -> Option<&GivenBody> {
        if let BodyContent::Given(given) = &self.content { Some(given) } else { None }
    }

    /// It, where its bytes go out in order.
    pub(crate) fn in_stream(&self) -> Option<&StreamBody> {
        if let BodyContent::Stream(body) = &self.content { Some(body) } else { None }
    }

    /// Removes its temporary name, or gives its bytes up.
    pub(crate) fn discard(&self) {
        match &self.content {
            BodyContent::Disk(body) => _ = body.temp.discard(),
            BodyContent::Given(given) => given.bytes.discard(),
            BodyContent::Stream(body) => body.discard(),
        }
    }

    /// Makes a range read as zeros. It costs nothing where nothing was written.
    pub(crate) fn make_hole(&self, path: &RelPath, range: Range<u64>) -> Result<(), DiskError> {
        match &self.content {
            BodyContent::Disk(body) if body.may_hold_data(range.clone()) => zero(&body.handle, range),
            BodyContent::Disk(_) => Ok(()),
            BodyContent::Given(given) => {
                let mut at = range.start;
                while at < range.end {
                    let len = (range.end - at).min(ZEROS.len() as u64);
                    given.write_all(path, &ZEROS[..len as usize], at)?;
                    at += len;
                }
                Ok(())
            }
            // A sender is told to send every byte.
            BodyContent::Stream(_) => Err(DiskError::call("leave a hole in", path, Errno::OPNOTSUPP)),
        }
    }

    /// Reads `len` bytes at `offset` back from the medium into the start of `slot`.
    pub(crate) fn read_back(
        &self,
        path: &RelPath,
        offset: u64,
        len: usize,
        slot: &mut [u8],
    ) -> Result<Back, DiskError> {
        match &self.content {
            BodyContent::Disk(body) => readback::read(body.temp.dir(), body.temp.name(), path, offset, len, slot),
            BodyContent::Given(given) => {
                let slot = slot.get_mut(..len).ok_or_else(|| DiskError::Bounds { path: path.into(), offset, len })?;
                let len = given.read_back(path, slot, offset)?;
                // It was not taken out of a cache of ours.
                Ok(Back { len, mode: IoMode::Direct })
            }
            BodyContent::Stream(_) => Err(readback::impossible(path)),
        }
    }
}

impl From<bool> for Zeros {
    /// The treatment in a file that is sparse, or is not.
    fn from(sparse: bool) -> Zeros {
        if sparse { Zeros::LeftOut } else { Zeros::Written }
    }
}

impl DiskBody {
    /// The open file.
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// The identity of the file, under any name.
    pub(crate) fn node(&self) -> FileNode {
        self.node
    }

    /// Its temporary name.
    pub(crate) fn temp(&self) -> &Temp {
        &self.temp
    }

    /// The moment from which on no sync of its file system may have failed.
    pub(crate) fn mark(&self) -> &Mark {
        &self.mark
    }

    /// The part of it that is still to be written, as a part of its target's load.
    pub(crate) fn share(&self) -> &LoadShare {
        &self.share
    }

    /// The device that it lies on (`st_dev`).
    pub(crate) fn dev(&self) -> u64 {
        self.temp.dir().dev()
    }

    /// The lock of the one write through the page cache that is under way.
    pub(crate) fn turn(&self) -> &tokio::sync::Mutex<()> {
        &self.turn
    }

    /// Whether its temporary name is durable.
    pub(crate) fn is_named(&self) -> bool {
        self.is_named.load(Ordering::Acquire)
    }

    /// Notes that its temporary name is durable.
    pub(crate) fn named(&self) {
        self.is_named.store(true, Ordering::Release);
    }

    /// Notes that `range` is about to be written. Returns whether zeros in it may be left out, as
    /// it can only be a hole yet. A chunk that is written again (it failed verification before)
    /// must overwrite the old bytes.
    pub(crate) fn may_leave_holes(&self, range: Range<u64>) -> bool {
        self.zeros == Zeros::LeftOut
            && self.began == Began::Empty
            && self.written.lock().unwrap_or_else(PoisonError::into_inner).insert(range)
    }

    /// Whether anything but a hole may lie in `range`.
    pub(crate) fn may_hold_data(&self, range: Range<u64>) -> bool {
        self.began == Began::Written || self.written.lock().unwrap_or_else(PoisonError::into_inner).overlaps(range)
    }

    /// The offset and length to reserve before a write that ends at `end`, in a body of `len`
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

impl AsFd for DiskBody {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

impl GivenBody {
    /// The number of its queue.
    pub(crate) fn queue(&self) -> u64 {
        self.queue
    }

    /// Writes all of `buf` at `offset`. `path` names the file in messages.
    pub(crate) fn write_all(&self, path: &RelPath, buf: &[u8], offset: u64) -> Result<(), DiskError> {
        let mut done = 0;
        while done < buf.len() {
            match self.bytes.write_at(&buf[done..], offset + done as u64) {
                Ok(0) => return Err(DiskError::call("write", path, io::Error::from(io::ErrorKind::WriteZero))),
                Ok(written) => done += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(DiskError::call("write", path, error)),
            }
        }
        Ok(())
    }

    /// Fills `buf` with what is kept from `offset` on. Returns how many bytes there were.
    fn read_back(&self, path: &RelPath, buf: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        let mut done = 0;
        while done < buf.len() {
            match self.bytes.read_back(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(DiskError::call("read back", path, error)),
            }
        }
        Ok(done)
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

static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

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
