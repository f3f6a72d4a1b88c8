//! One request as a series of system calls, decided apart from the code that makes them: both
//! engines ask [`Transfer::next`] for the next call and give its result to [`Transfer::absorb`].
//!
//! It handles short reads and writes, the end of the file, alignment, the padded tail, the way back
//! from direct I/O, holes and reserving. Makes no call itself but the rare one that leaves direct
//! I/O.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::{Place, TargetId};
use rustix::io::Errno;
use tokio::sync::Mutex;

use crate::destination::{Body, DiskBody, TargetFile};
use crate::direct::{Handle, IoMode};
use crate::error::DiskError;
use crate::io::queue::Buffer;
use crate::source::SourceFile;

/// The read or write that is asked for.
pub(crate) enum Job {
    /// Fill the slot. `body`: from the body of a striped file on this target; `offset` is then that
    /// in the body.
    Read { file: Arc<SourceFile>, body: Option<TargetId>, offset: u64 },
    /// Write the slot to a place that the file has.
    Write { file: Arc<TargetFile>, place: Place },
}

/// The queue of a request: requests on one device share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum QueueId {
    /// The device of this number (`st_dev`).
    Disk(u64),
    /// Files that are no descriptors, by a number that their tree gave them. Threads serve them
    /// whatever the engine is, as a ring takes descriptors only.
    Given(u64),
}

/// One call to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Read into the slot's bytes `range` from `offset` of the file.
    Read { range: Range<usize>, offset: u64 },
    /// Write the slot's bytes `range` to `offset` of the file.
    Write { range: Range<usize>, offset: u64 },
    /// Reserve blocks, leaving the file's length alone.
    Reserve { offset: u64, len: u64 },
}

/// The progress of one request.
pub(crate) struct Transfer<'j> {
    job: &'j Job,
    offset: u64,
    len: usize,
    /// Bytes from the start that need nothing more.
    settled: usize,
    /// The alignment that the last step was made for; 1 when buffered.
    align: usize,
    leave_holes: bool,
    reserved: bool,
}

impl Job {
    /// The queue that serves it.
    pub(crate) fn queue(&self) -> QueueId {
        match self {
            Job::Read { file, body: Some(_), .. } => QueueId::Disk(self.handle().map_or(file.dev(), Handle::dev)),
            Job::Read { file, .. } if file.given().is_some() || file.in_stripes().is_some() => {
                QueueId::Given(file.dev())
            }
            Job::Read { file, .. } => QueueId::Disk(file.dev()),
            Job::Write { .. } => match (self.disk_body(), self.body().and_then(Body::given)) {
                (_, Some(given)) => QueueId::Given(given.queue()),
                (body, None) => QueueId::Disk(body.map_or(0, DiskBody::dev)),
            },
        }
    }

    /// The handle to read or write through. `None` for files without a disk, which need no I/O.
    pub(crate) fn handle(&self) -> Option<&Handle> {
        match self {
            Job::Read { file, body: Some(target), .. } => file.in_stripes()?.body(*target),
            Job::Read { file, .. } => file.handle(),
            Job::Write { .. } => self.disk_body().map(DiskBody::handle),
        }
    }

    /// The lock that a write through the page cache holds. The kernel lets one in per file anyway,
    /// and the waiting ones spin. (8 in flight on ext4, two cores: 0.20-0.24 CPU seconds per GB in
    /// turn, 0.22-0.51 all at once, on threads.)
    pub(crate) fn turn(&self) -> Option<&Mutex<()>> {
        self.disk_body().filter(|body| body.handle().mode() == IoMode::Buffered).map(DiskBody::turn)
    }

    /// The body that is written. `None` for a read, and for a file without bodies.
    fn body(&self) -> Option<&Body> {
        let Job::Write { file, place } = self else { return None };
        file.body(place.target)
    }

    fn disk_body(&self) -> Option<&DiskBody> {
        self.body().and_then(Body::on_disk)
    }

    /// Notes in the load of its target that it waits from now on.
    pub(crate) fn queued(&self, len: usize) {
        if let Some(body) = self.disk_body() {
            body.share().queue(len as u64);
        }
    }

    /// Notes there that it is over, and that the system had it for `took`. Gives the result, which
    /// says so if the target failed.
    pub(crate) fn served(&self, len: usize, took: Duration, result: Result<(), DiskError>) -> Result<(), DiskError> {
        let Some(body) = self.disk_body() else { return result };
        body.share().serve(len as u64, result.is_ok().then_some(took));
        body.share().judged(result)
    }

    /// Whether it is a whole chunk of a striped file, which has a slot of its own.
    fn is_in_slot(&self) -> bool {
        matches!(self, Job::Write { file, .. } if file.striped().is_some())
    }

    fn offset(&self) -> u64 {
        match self {
            Job::Read { offset, .. } => *offset,
            Job::Write { place, .. } => place.offset,
        }
    }

    /// The length of what is read or written, in bytes: of the source file, or of the body.
    fn whole_len(&self) -> u64 {
        match self {
            // A body that is open is as long as its chunks need.
            Job::Read { body: Some(_), .. } => u64::MAX,
            Job::Read { file, .. } => file.len(),
            Job::Write { .. } => self.body().map_or(0, Body::len),
        }
    }

    /// Reads or writes `len` bytes of a file that is no descriptor, and blocks meanwhile. `None`
    /// for any other file.
    pub(crate) fn move_given(&self, len: usize, buffer: &mut Buffer) -> Option<Result<(), DiskError>> {
        // Only chunks of striped files, which lie on disks of this host, share a buffer.
        let slot = buffer.own()?;
        match self {
            Job::Read { body: Some(_), .. } => None,
            Job::Read { file, offset, .. } if file.in_stripes().is_some() => {
                let filled = file.in_stripes().map(|striped| striped.fill(slot, len, *offset));
                filled.map(|filled| if filled? == len { Ok(()) } else { Err(file.shrank()) })
            }
            Job::Read { file, offset, .. } => file.given().map(|given| {
                let end = offset.checked_add(len as u64).filter(|end| *end <= file.len());
                let Some(slot) = slot.get_mut(..len).filter(|_| end.is_some()) else {
                    return Err(DiskError::Bounds { path: given.path().clone(), offset: *offset, len });
                };
                if given.fill(slot, *offset)? == len { Ok(()) } else { Err(file.shrank()) }
            }),
            Job::Write { file, place } => self.body().and_then(Body::given).map(|given| match slot.get(..len) {
                Some(slot) => given.write_all(file.path(), slot, place.offset),
                None => Err(DiskError::Bounds { path: file.path().into(), offset: place.offset, len }),
            }),
        }
    }
}

impl<'j> Transfer<'j> {
    /// Begins a request of `len` bytes on a slot of `slot_bytes`.
    pub(crate) fn begin(job: &'j Job, len: usize, slot_bytes: usize) -> Result<Transfer<'j>, DiskError> {
        let offset = job.offset();
        let mut transfer = Transfer { job, offset, len, settled: 0, align: 1, leave_holes: false, reserved: false };
        let Some(handle) = job.handle() else {
            transfer.settled = len;
            return Ok(transfer);
        };
        let end = offset.checked_add(len as u64).filter(|end| *end <= job.whole_len() && len <= slot_bytes);
        let Some(end) = end else {
            return Err(DiskError::Bounds { path: handle.path().clone(), offset, len });
        };
        transfer.leave_holes = job.disk_body().is_some_and(|body| body.may_leave_holes(offset..end));
        Ok(transfer)
    }

    /// The next call to make, if any. Before a write, [`Transfer::pad`] makes its buffer ready.
    pub(crate) fn next(&mut self, slot: &[u8]) -> Result<Option<Step>, DiskError> {
        if self.leave_holes {
            self.settled = self.end_of_blocks(slot, true);
        }
        let Some(handle) = self.job.handle().filter(|_| self.settled < self.len) else {
            return Ok(None);
        };
        self.settle_alignment(handle, slot.len())?;
        Ok(Some(match self.job {
            Job::Read { .. } => Step::Read { range: self.settled..self.padded(self.len), offset: self.position() },
            Job::Write { .. } => match self.reservation() {
                Some((offset, len)) => Step::Reserve { offset, len },
                None => self.write_step(slot),
            },
        }))
    }

    /// Takes the result of `step`: bytes moved (any number for a reservation).
    pub(crate) fn absorb(&mut self, step: &Step, outcome: io::Result<usize>) -> Result<(), DiskError> {
        let Some(handle) = self.job.handle() else { return Ok(()) };
        match (step, outcome) {
            (Step::Reserve { .. }, outcome) => self.absorb_reserve(handle, outcome),
            (_, Ok(moved)) => self.advance(handle, moved),
            (_, Err(error)) if error.raw_os_error() == Some(Errno::INTR.raw_os_error()) => Ok(()),
            (_, Err(error)) if self.align > 1 && error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                // Another request may have fallen back while this one was out: then just try again.
                if handle.mode() == IoMode::Direct { handle.fall_back("the first request was refused") } else { Ok(()) }
            }
            (Step::Read { .. }, Err(error)) => Err(handle.error("read", error).at_source()),
            (_, Err(error)) => Err(handle.error("write", error)),
        }
    }

    /// Fixes the alignment of the next step; falls back where the request does not fit it.
    fn settle_alignment(&mut self, handle: &Handle, slot_bytes: usize) -> Result<(), DiskError> {
        self.align = handle.align();
        if self.align == 1 {
            return Ok(());
        }
        let aligned = self.offset.is_multiple_of(self.align as u64) && self.settled.is_multiple_of(self.align);
        // Behind a chunk of a striped file nothing lies up to the end of its slot.
        let is_tail = self.offset + self.len as u64 == self.job.whole_len() || self.job.is_in_slot();
        let whole = self.len.is_multiple_of(self.align);
        let fits = match self.job {
            Job::Read { .. } => self.padded(self.len) <= slot_bytes,
            Job::Write { .. } => whole || (is_tail && self.padded(self.len) <= slot_bytes),
        };
        if aligned && fits {
            return Ok(());
        }
        handle.fall_back("a request is not aligned")?;
        self.align = 1;
        Ok(())
    }

    fn reservation(&mut self) -> Option<(u64, u64)> {
        if std::mem::replace(&mut self.reserved, true) {
            return None;
        }
        self.job.disk_body()?.reserve(self.offset + self.len as u64, self.job.whole_len())
    }

    fn write_step(&self, slot: &[u8]) -> Step {
        let end = if self.leave_holes { self.end_of_blocks(slot, false) } else { self.len };
        let padded = if end == self.len { self.padded(end) } else { end };
        Step::Write { range: self.settled..padded, offset: self.position() }
    }

    /// Makes the bytes that a write takes behind the request's last one zeros. A buffer that is
    /// shared had them made so before.
    pub(crate) fn pad(&self, step: &Step, buffer: &mut Buffer) {
        if let Step::Write { range, .. } = step
            && range.end > self.len
            && let Some(slot) = buffer.own()
        {
            slot[self.len..range.end].fill(0);
        }
    }

    /// The end of the run of blocks from `settled` on that are all zero (or, if `zero` is false,
    /// that are not).
    fn end_of_blocks(&self, slot: &[u8], zero: bool) -> usize {
        let mut at = self.settled;
        while at < self.len {
            let into_block = (self.offset + at as u64) % HOLE_BYTES;
            let end = self.len.min(at + (HOLE_BYTES - into_block) as usize);
            if is_zero(&slot[at..end]) != zero {
                break;
            }
            at = end;
        }
        at
    }

    fn advance(&mut self, handle: &Handle, moved: usize) -> Result<(), DiskError> {
        let mut settled = self.settled + moved;
        if settled < self.len {
            // A direct request must start aligned: the bytes behind the last whole block move
            // again.
            settled -= settled % self.align;
        }
        if settled <= self.settled {
            return Err(match self.job {
                Job::Read { file, .. } => file.shrank(),
                Job::Write { .. } => handle.error("write", io::Error::from(io::ErrorKind::WriteZero)),
            });
        }
        self.settled = settled.min(self.len);
        Ok(())
    }

    fn absorb_reserve(&self, handle: &Handle, outcome: io::Result<usize>) -> Result<(), DiskError> {
        let Err(error) = outcome else { return Ok(()) };
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            // There is no room for the whole reservation: for this write there may be, and the
            // write goes on.
            Some(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NODEV | Errno::NOSPC | Errno::DQUOT) => {
                self.job.disk_body().into_iter().for_each(DiskBody::stop_reserving);
                Ok(())
            }
            Some(Errno::INTR) => Ok(()),
            _ => Err(handle.error("reserve space for", error)),
        }
    }

    fn position(&self) -> u64 {
        self.offset + self.settled as u64
    }

    fn padded(&self, end: usize) -> usize {
        end.next_multiple_of(self.align)
    }
}

/// Whether all bytes are zero; in pieces, so that the compiler may compare many bytes at once and
/// data ends it early.
fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(256).all(|piece| piece.iter().fold(0, |any, byte| any | byte) == 0)
}

/// The size of blocks (aligned in the file) that are left as holes in sparse files if they are all
/// zero. A smaller size would cut data into many requests; a larger one would fill more holes.
const HOLE_BYTES: u64 = 16 << 10;

#[cfg(test)]
mod tests;
