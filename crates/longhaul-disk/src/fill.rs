//! Reads ranges of open files: whole, past the page cache where that is asked for and possible, and
//! with the end of the file as an answer.
//!
//! In: an open file and a range. Out: its bytes, and whether the page cache could be passed by.
//! Knows no names and no digests.

use std::num::NonZeroU64;
use std::os::fd::AsFd;

use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, pread};

use crate::direct::{Handle, IoMode};
use crate::error::DiskError;

/// The result of a read from the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Back {
    /// The number of bytes read: fewer than asked for where the file ends earlier.
    pub len: usize,
    /// Whether they came past the page cache.
    pub mode: IoMode,
}

/// The treatment of cached pages of a range, where the page cache cannot be passed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cached {
    /// They are dropped first: the medium is asked.
    Dropped,
    /// They are kept: they are as good.
    Kept,
}

/// Reads through an open file.
pub(crate) fn fill(
    handle: &Handle,
    offset: u64,
    len: usize,
    slot: &mut [u8],
    cached: Cached,
) -> Result<Back, DiskError> {
    if cached == Cached::Dropped {
        let read = handle.kernel().read_medium(handle, offset, &mut slot[..len]);
        if let Some(len) = read.map_err(|error| handle.error("read back", error))? {
            return Ok(Back { len, mode: IoMode::Direct });
        }
    }
    let (mut done, mut dropped) = (0, cached == Cached::Kept);
    while done < len {
        let (at, align) = (offset + done as u64, handle.align());
        let end = len.next_multiple_of(align);
        let mode = handle.mode();
        if mode == IoMode::Direct && (!at.is_multiple_of(align as u64) || end > slot.len()) {
            handle.fall_back("a request is not aligned")?;
            continue;
        }
        if mode == IoMode::Buffered && !std::mem::replace(&mut dropped, true) {
            // Clean pages are dropped; after the sync all of them are clean.
            let _ = fadvise(handle, offset, NonZeroU64::new(len as u64), Advice::DontNeed);
        }
        match pread(handle, &mut slot[done..end], at) {
            // The end of the file.
            Ok(0) => break,
            Ok(read) => done += read,
            Err(Errno::INTR) => {}
            Err(Errno::INVAL) if mode == IoMode::Direct => handle.fall_back("the first request was refused")?,
            Err(error) => return Err(handle.error("read back", error)),
        }
        // Behind a direct read that is no multiple of the alignment nothing follows.
        if mode == IoMode::Direct && !done.is_multiple_of(align) {
            break;
        }
    }
    Ok(Back { len: done.min(len), mode: handle.mode() })
}

/// Fills `buf` from `offset` on, through the page cache. Returns how many bytes there were: fewer
/// where the file ends.
pub(crate) fn read_up_to(fd: impl AsFd, buf: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buf.len() {
        match pread(&fd, &mut buf[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
