//! Reads every chunk of the striped files of a set and compares it with the digest in its record.
//!
//! In: a set, and how fast it may read. Out: findings, each with the chunk and the target that it
//! lies on. The disks of a file are read at the same time, each in the order of its slots, past the
//! page cache where that is possible. A run that is stopped leaves a record, with which the next
//! one goes on. Changes nothing else. Knows no sessions.

mod record;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::digest::{Digest, Hash32, digest_of};
use longhaul_core::stripe::Spot;
use longhaul_core::{ChunkIndex, DigestKind, Mtime, RelPath, TargetId};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;

use crate::at_once::at_once;
use crate::direct::{DirectMode, Handle};
use crate::error::{DiskError, ErrorKind, PathText, SetError};
use crate::fill::{Cached, fill};
use crate::names::each_name;
use crate::set::pace::Pace;
use crate::set::verify::record::{FileState, VerifyRecord};
use crate::set::{SetTarget, Striping, TargetSet};
use crate::stat::type_of;
use crate::stripe::{Header, Record, StripedFile, read_blocks};
use crate::tree::Tree;

pub use record::Beginning;

/// A verification that is wanted.
pub struct Verification<'v> {
    /// Bytes that are read per second at most, over all disks. `None`: as fast as the disks.
    pub rate: Option<u64>,
    /// Whether it goes on with an earlier one.
    pub beginning: Beginning,
    /// Whether it is to stop now. Asked at each chunk, by several threads.
    pub is_stopped: &'v (dyn Fn() -> bool + Sync),
}

/// The end of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VerifyEnd {
    /// It went through everything.
    Through,
    /// It was stopped, and the next one goes on with it.
    Stopped,
    /// It was stopped, and left no record.
    Lost,
}

/// A find of a verification.
#[derive(Debug)]
pub enum Verified {
    /// A striped file was read whole, and is what its records say.
    Right {
        /// Its path beneath the set.
        path: RelPath,
        /// The number of its home.
        target: u32,
        /// Its length in bytes.
        bytes: u64,
    },
    /// A striped file is not, or cannot be read.
    Wrong {
        /// Its path beneath the set.
        path: RelPath,
        /// The reason.
        error: DiskError,
    },
    /// A directory or name cannot be looked at.
    Unseen(DiskError),
    /// An earlier verification is gone on with. Its files are told as if they were read now.
    Continued {
        /// When it began.
        began: Mtime,
        /// The number of files that were read whole by then and are right.
        files: u64,
        /// Their bytes.
        bytes: u64,
    },
    /// No record can be kept: if this verification is stopped, the next one begins anew.
    NoRecord(DiskError),
}

impl TargetSet {
    /// Reads all striped files and gives each to `sink` until that breaks off, or the verification
    /// is stopped.
    pub fn verify(&self, wanted: &Verification<'_>, sink: &mut dyn FnMut(Verified) -> ControlFlow<()>) -> VerifyEnd {
        let Some(striping) = self.striping() else { return VerifyEnd::Through };
        let (record, why_none) = VerifyRecord::open(self, wanted.beginning);
        let (began, (files, bytes)) = (record.earlier().began, record.earlier().sums());
        let continued = (!record.earlier().is_empty()).then_some(Verified::Continued { began, files, bytes });
        let first = why_none.map(Verified::NoRecord).or(continued);
        let (pace, is_stopped) = (Pace::new(wanted.rate), wanted.is_stopped);
        let work = VerifyWork { striping, record: &record, pace, is_stopped };
        let flow = first.map_or(ControlFlow::Continue(()), &mut *sink);
        let flow = if flow.is_continue() { work.run(self.targets(), sink) } else { flow };
        match flow {
            ControlFlow::Continue(()) => {
                record.remove();
                VerifyEnd::Through
            }
            ControlFlow::Break(()) if record.leave() => VerifyEnd::Stopped,
            ControlFlow::Break(()) => VerifyEnd::Lost,
        }
    }
}

/// A verification under way.
struct VerifyWork<'v> {
    striping: &'v Striping,
    record: &'v VerifyRecord,
    pace: Pace,
    is_stopped: &'v (dyn Fn() -> bool + Sync),
}

impl VerifyWork<'_> {
    fn run(&self, targets: &[SetTarget], sink: &mut dyn FnMut(Verified) -> ControlFlow<()>) -> ControlFlow<()> {
        for target in targets {
            let mut paths = vec![RelPath::root()];
            while let Some(path) = paths.pop() {
                match entries(&target.tree, &path, &mut paths, self.striping) {
                    Ok(found) => found.into_iter().try_for_each(|found| {
                        let verified = match found {
                            Ok(path) => self.verify_at(target, path),
                            Err(error) => Some(Verified::Unseen(error)),
                        };
                        verified.map_or(ControlFlow::Break(()), &mut *sink)
                    })?,
                    Err(error) => sink(Verified::Unseen(error))?,
                }
                if (self.is_stopped)() {
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Reads a striped file, as far as earlier runs have not. `None` if that was stopped.
    fn verify_at(&self, target: &SetTarget, path: RelPath) -> Option<Verified> {
        match self.verify_file(&target.tree, &path) {
            Ok(Some(bytes)) => Some(Verified::Right { path, target: target.id.0, bytes }),
            Ok(None) => None,
            Err(error) => Some(Verified::Wrong { path, error }),
        }
    }

    /// Reads a striped file. Returns its length; `None` if it was stopped.
    fn verify_file(&self, tree: &Tree, path: &RelPath) -> Result<Option<u64>, DiskError> {
        let (Some(above), Some(name)) = (path.parent(), path.name()) else { return Ok(Some(0)) };
        let failed = |error| DiskError::call("read", path, error);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat(&tree.dir(&above)?, name, flags, Mode::empty()).map_err(failed)?;
        let gone = || DiskError::Changed { path: path.into(), how: "it was replaced" };
        let stripes = &self.striping.stripes;
        let header = stripes.found_in(&fd).map_err(failed)?.ok_or_else(gone)?;
        let none = BTreeMap::new();
        let read_before = match self.record.of(&header.id) {
            Some(FileState::Right { .. }) => return Ok(Some(header.map.len())),
            Some(FileState::Damaged { chunk, target }) => return Err(damaged(path, *chunk, *target)),
            Some(FileState::Begun(slots)) => slots,
            None => &none,
        };
        let file = StripedFile::open(stripes, (&fd, &path.into()), &header, DirectMode::Auto)?;
        let mut on: BTreeMap<TargetId, Vec<(u64, ChunkIndex, Hash32)>> = BTreeMap::new();
        for (index, (spot, digest)) in chunks_of(self.striping, &fd, &header).map_err(failed)? {
            if let Some(spot) = spot.filter(|spot| read_before.get(&spot.target).is_none_or(|read| spot.slot >= *read))
            {
                on.entry(spot.target).or_default().push((spot.slot, ChunkIndex(index), digest));
            }
        }
        let mut work = Vec::new();
        for (target, mut chunks) in on {
            chunks.sort_unstable_by_key(|(slot, ..)| *slot);
            let body = file.body(target).ok_or_else(gone)?;
            work.push((target, body, chunks));
        }
        let stop = AtomicBool::new(false);
        let read = at_once(&work, |(target, body, chunks)| {
            let read = self.verify_body(&header, path, (*target, body), (chunks, &stop));
            read.inspect_err(|_| stop.store(true, Ordering::Relaxed))
        });
        match read {
            Ok(()) if (self.is_stopped)() => Ok(None),
            Ok(()) => {
                self.record.note_right(&header.id, header.map.len());
                Ok(Some(header.map.len()))
            }
            Err(error) => {
                if let DiskError::Set(SetError::Damaged { chunk, target, .. }) = &error {
                    self.record.note_damaged(&header.id, *chunk, *target);
                }
                Err(error)
            }
        }
    }

    /// Reads chunks of one body.
    fn verify_body(
        &self,
        header: &Header,
        path: &RelPath,
        (target, body): (TargetId, &Handle),
        (chunks, stop): (&[(u64, ChunkIndex, Hash32)], &AtomicBool),
    ) -> Result<(), DiskError> {
        let map = header.map;
        let mut buffer = vec![0; map.size().bytes() as usize + ALIGN];
        let aligned = buffer.as_ptr().align_offset(ALIGN).min(ALIGN);
        let slot = &mut buffer[aligned..];
        let is_over = || stop.load(Ordering::Relaxed) || (self.is_stopped)();
        for (at, index, digest) in chunks.iter().take_while(|_| !is_over()) {
            let len = map.len_of(*index).unwrap_or(0) as usize;
            let read = fill(body, at << map.size().log2(), len, slot, Cached::Dropped)?;
            let expected = match map.kind() {
                DigestKind::Root => Digest::Root(*digest),
                DigestKind::Cv => Digest::Cv(*digest),
            };
            if read.len < len || digest_of(&slot[..len], map.kind(), map.start_of(*index)) != expected {
                return Err(damaged(path, index.0, target.0));
            }
            self.record.note_slots(&header.id, target, at + 1);
            self.pace.wait_unless(len as u64, &is_over);
        }
        Ok(())
    }
}

fn damaged(path: &RelPath, chunk: u64, target: u32) -> DiskError {
    SetError::Damaged { path: PathText::from(path), chunk, target }.into()
}

/// The striped files in the directory at `path` of a tree, and the names in it that cannot be
/// looked at. Directories in it are added to `dirs`.
fn entries(
    tree: &Tree,
    path: &RelPath,
    dirs: &mut Vec<RelPath>,
    striping: &Striping,
) -> Result<Vec<Result<RelPath, DiskError>>, DiskError> {
    let failed = |error| DiskError::call("list", path, error);
    let dir = match tree.dir(path) {
        // It was removed meanwhile.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        outcome => outcome?,
    };
    let mut names = Vec::new();
    each_name(dir.readable().map_err(failed)?, |name| names.push(name.to_vec())).map_err(failed)?;
    let mut found = Vec::new();
    for name in names {
        let Ok(below) = path.join(&name) else { continue };
        let header = match statat(&dir, &name[..], AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if type_of(&stat) == FileType::Directory => {
                dirs.push(below);
                continue;
            }
            Ok(stat) => striping.stripes.header_of(&dir, &name, &stat),
            Err(error) => Err(error),
        };
        match header {
            Ok(Some(_)) => found.push(Ok(below)),
            Ok(None) | Err(Errno::NOENT) => {}
            // The others of the directory are read all the same.
            Err(error) => found.push(Err(DiskError::call("examine", &below, error))),
        }
    }
    Ok(found)
}

/// The places of the chunks of a striped file, with their digests.
pub(super) fn chunks_of(
    striping: &Striping,
    fd: &OwnedFd,
    header: &Header,
) -> Result<BTreeMap<u64, (Option<Spot>, Hash32)>, Errno> {
    let mut chunks = BTreeMap::new();
    let blocks = header.whole.map_or(0, |whole| whole.blocks);
    read_blocks(&striping.stripes, fd, (&header.id, blocks), |record| {
        if let Record::Chunk { index, spot, digest } = record {
            chunks.insert(index.0, (spot, digest));
        }
        true
    })?;
    Ok(chunks)
}

/// The alignment of memory for direct I/O.
const ALIGN: usize = 4096;

#[cfg(test)]
mod tests;
