//! [`StripedFile`]: the content of a striped file, put together from its bodies.
//!
//! In: a header, the stripe file and the bodies on the targets. Out: where the bytes of a range
//! lie, or the bytes. Every body that a chunk lies in is opened before a byte is read, so that a
//! file of which a part is missing is named at once. Knows no trees and no peers.

use std::collections::BTreeMap;
use std::os::fd::AsFd;

use longhaul_core::stripe::Spot;
use longhaul_core::{ChunkIndex, ChunkMap, TargetId, TempName};
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

use super::header::HEADER_BYTES;
use super::records::{RECORD_BYTES, Record, records_in, unblock};
use super::{Header, Stripes};
use crate::direct::{DirectMode, Handle};
use crate::error::{DiskError, PathText, SetError};
use crate::fill::{Cached, fill, read_up_to};

/// A striped file, open for reading.
#[derive(Debug)]
pub(crate) struct StripedFile {
    map: ChunkMap,
    path: PathText,
    /// The place of each chunk. `None`: a hole.
    spots: Vec<Option<Spot>>,
    bodies: BTreeMap<TargetId, Handle>,
}

/// The place of some bytes that lie in one body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whereabouts {
    /// The body on this target.
    pub(crate) target: TargetId,
    /// The offset in it.
    pub(crate) offset: u64,
}

/// The end of the proven records of a stripe file, and the number of its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogEnd {
    /// The number of blocks.
    pub(crate) blocks: u32,
    /// The offset behind the last one, in bytes.
    pub(crate) end: u64,
}

impl StripedFile {
    /// Opens the striped file whose header was read from `fd`. `path` names it in messages.
    ///
    /// # Errors
    /// [`SetError::Striped`] if its records or a body are not what they have to be, or a target is
    /// missing that holds one; the system's error.
    pub(crate) fn open(
        stripes: &Stripes,
        (fd, path): (impl AsFd, &PathText),
        header: &Header,
        direct: DirectMode,
    ) -> Result<StripedFile, DiskError> {
        let bad = |why: String| DiskError::from(SetError::Striped { path: path.clone(), why });
        let whole = header.whole.ok_or_else(|| bad("it is not whole".into()))?;
        let chunks = usize::try_from(header.map.chunks()).map_err(|_| bad("it is too long for this host".into()))?;
        // A proven header says how long it is; its records take as many bytes.
        if (chunks as u64).saturating_mul(RECORD_BYTES as u64) > whole.end {
            return Err(bad("it has fewer records than chunks".into()));
        }
        let mut spots: Vec<Option<Option<Spot>>> = vec![None; chunks];
        let take = |record: Record| match record {
            Record::Chunk { index, spot, .. } => {
                let known = spots.get_mut(index.0 as usize);
                known.map(|known| *known = Some(spot)).is_some()
            }
            Record::Body { .. } => true,
        };
        let log = read_blocks(stripes, &fd, (&header.id, whole.blocks), take);
        let log = log.map_err(|error| DiskError::call("read", path, error))?;
        if (log.blocks, log.end) != (whole.blocks, whole.end) {
            return Err(bad("its records are damaged".into()));
        }
        let spots: Option<Vec<Option<Spot>>> = spots.into_iter().collect();
        let spots = spots.ok_or_else(|| bad("the place of a chunk is not recorded".into()))?;
        let mut ends: BTreeMap<TargetId, u64> = BTreeMap::new();
        for (index, spot) in spots.iter().enumerate() {
            if let Some(Spot { target, slot }) = spot {
                let len = header.map.len_of(ChunkIndex(index as u64)).unwrap_or(0);
                let end = (slot << header.map.size().log2()) + len;
                let known = ends.entry(*target).or_default();
                *known = (*known).max(end);
            }
        }
        let body = |(target, end)| Ok((target, open_body(stripes, &header.id, path, direct, (target, end))?));
        let bodies = ends.into_iter().map(body).collect::<Result<_, DiskError>>();
        // The bodies of a file that was replaced meanwhile are gone, which is no damage.
        let bodies = bodies.map_err(|error| match fstat(&fd) {
            Ok(stat) if stat.st_nlink == 0 => DiskError::Vanished { path: path.clone() },
            _ => error,
        })?;
        Ok(StripedFile { map: header.map, path: path.clone(), spots, bodies })
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.map.len()
    }

    /// Its path, for messages.
    pub(crate) fn path(&self) -> &PathText {
        &self.path
    }

    /// Its body on a target.
    pub(crate) fn body(&self, target: TargetId) -> Option<&Handle> {
        self.bodies.get(&target)
    }

    /// Its bodies.
    pub(crate) fn bodies(&self) -> impl Iterator<Item = (TargetId, &Handle)> {
        self.bodies.iter().map(|(target, body)| (*target, body))
    }

    /// The place of a range that lies in one chunk, and in no hole. `None` for any other.
    pub(crate) fn whereabouts(&self, offset: u64, len: usize) -> Option<Whereabouts> {
        let log2 = self.map.size().log2();
        let (first, last) = (offset >> log2, offset.checked_add((len as u64).saturating_sub(1))? >> log2);
        if first != last {
            return None;
        }
        let Spot { target, slot } = (*self.spots.get(usize::try_from(first).ok()?)?)?;
        let within = offset & (self.map.size().bytes() - 1);
        Some(Whereabouts { target, offset: (slot << log2) + within })
    }

    /// Fills `buf` from `offset` on. Returns how many bytes there were: fewer where the file ends.
    /// `buf` may be longer than `len`: direct I/O may change what is behind.
    ///
    /// # Errors
    /// The system's error; [`DiskError::Changed`] if a body ends before it should.
    pub(crate) fn fill(&self, buf: &mut [u8], len: usize, offset: u64) -> Result<usize, DiskError> {
        let len = len.min(buf.len()).min(usize::try_from(self.len().saturating_sub(offset)).unwrap_or(usize::MAX));
        let size = self.map.size().bytes();
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let part = (len - done).min((size - (at & (size - 1))) as usize);
            match self.whereabouts(at, part) {
                None => buf[done..done + part].fill(0),
                Some(Whereabouts { target, offset }) => {
                    let body = self.body(target).ok_or_else(|| self.ends_early())?;
                    if fill(body, offset, part, &mut buf[done..], Cached::Kept)?.len < part {
                        return Err(self.ends_early());
                    }
                }
            }
            done += part;
        }
        Ok(done)
    }

    fn ends_early(&self) -> DiskError {
        DiskError::Changed { path: self.path.clone(), how: "a body of it ends before the length it had" }
    }
}

/// Reads the records of a stripe file, as far as they are proven. A record that `take` refuses ends
/// them as well.
pub(crate) fn read_log(
    stripes: &Stripes,
    fd: impl AsFd,
    id: &TempName,
    take: impl FnMut(Record) -> bool,
) -> Result<LogEnd, Errno> {
    read_blocks(stripes, fd, (id, u32::MAX), take)
}

/// Reads no more than `most` blocks.
pub(crate) fn read_blocks(
    stripes: &Stripes,
    fd: impl AsFd,
    (id, most): (&TempName, u32),
    mut take: impl FnMut(Record) -> bool,
) -> Result<LogEnd, Errno> {
    let mut log = LogEnd { blocks: 0, end: HEADER_BYTES as u64 };
    let mut bytes = Vec::new();
    while log.blocks < most {
        let mut first = [0; RECORD_BYTES];
        let is_there = read_up_to(&fd, &mut first, log.end)? == RECORD_BYTES;
        let Some(count) = records_in(&first, log.blocks).filter(|_| is_there) else { return Ok(log) };
        bytes.resize((count + 1) * RECORD_BYTES, 0);
        if read_up_to(&fd, &mut bytes, log.end)? < bytes.len()
            || !unblock(stripes.key(), id, log.blocks, &bytes, &mut take)
        {
            return Ok(log);
        }
        log = LogEnd { blocks: log.blocks + 1, end: log.end + bytes.len() as u64 };
    }
    Ok(log)
}

/// Opens the body on a target, which holds bytes up to `end`.
fn open_body(
    stripes: &Stripes,
    id: &TempName,
    path: &PathText,
    direct: DirectMode,
    (target, end): (TargetId, u64),
) -> Result<Handle, DiskError> {
    let bad = |why: String| DiskError::from(SetError::Striped { path: path.clone(), why });
    let on = |what: &str| match stripes.bodies(target) {
        Some(known) => format!("{what} on target {} ('{}')", target.0, known.named.display()),
        None => format!("{what} on target {}, which the set does not have", target.0),
    };
    let Some(dir) = stripes.bodies(target).and_then(|known| known.dir.as_ref()) else {
        return Err(bad(on("the disk of a part of it is missing:")));
    };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = openat(dir, &id.file_name()[..], flags, Mode::empty()).map_err(|error| match error {
        Errno::NOENT | Errno::LOOP => bad(on("its body is missing")),
        error => DiskError::call("open a body of", path, error).at_source(),
    })?;
    let (handle, stat) = Handle::adopt(fd, path.clone(), direct, OFlags::NONBLOCK)?;
    match FileType::from_raw_mode(stat.stx_mode.into()) == FileType::RegularFile && stat.stx_size >= end {
        true => Ok(handle),
        false => Err(bad(on("its body is shorter than it was"))),
    }
}
