//! Reads every chunk of the striped files of a set and compares it with the digest in its record.
//!
//! In: a set, and how fast it may read. Out: findings, each with the chunk and the target that it
//! lies on. The disks of a file are read at the same time, each in the order of its slots, past the
//! page cache where that is possible. Changes nothing. Knows no sessions.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use longhaul_core::digest::{Digest, Hash32, digest_of};
use longhaul_core::stripe::Spot;
use longhaul_core::{ChunkIndex, DigestKind, RelPath, TargetId};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat};
use rustix::io::Errno;

use crate::at_once::at_once;
use crate::direct::{DirectMode, Handle};
use crate::error::{DiskError, PathText, SetError};
use crate::fill::{Cached, fill};
use crate::names::each_name;
use crate::set::pace::Pace;
use crate::set::{SetTarget, Striping, TargetSet};
use crate::stat::type_of;
use crate::stripe::{Header, Record, StripedFile, read_blocks};
use crate::tree::Tree;

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
}

impl TargetSet {
    /// Reads all striped files beneath `path`, at most `rate` bytes per second over all disks, and
    /// gives each to `sink` until that breaks off.
    ///
    /// # Errors
    /// The system's error if `path` cannot be looked at.
    pub fn verify(
        &self,
        path: &RelPath,
        rate: Option<u64>,
        sink: &mut dyn FnMut(Verified) -> ControlFlow<()>,
    ) -> Result<(), DiskError> {
        let Some(striping) = self.striping() else { return Ok(()) };
        let pace = Pace::new(rate);
        for target in self.targets() {
            let mut paths = vec![path.clone()];
            while let Some(path) = paths.pop() {
                let flow = match entries(&target.tree, &path, &mut paths, striping) {
                    Ok(found) => found.into_iter().try_for_each(|path| sink(verify_at(striping, target, path, &pace))),
                    Err(error) => sink(Verified::Unseen(error)),
                };
                if flow.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// The striped files in the directory at `path` of a tree, or the one at `path`. Directories in it
/// are added to `dirs`.
fn entries(
    tree: &Tree,
    path: &RelPath,
    dirs: &mut Vec<RelPath>,
    striping: &Striping,
) -> Result<Vec<RelPath>, DiskError> {
    let failed = |path: &RelPath| {
        let path = path.clone();
        move |error| DiskError::call("examine", &path, error)
    };
    let dir = match tree.dir(path) {
        Ok(dir) => dir,
        Err(error) => {
            let (Some(above), Some(name)) = (path.parent(), path.name()) else { return Err(error) };
            let Ok(above) = tree.dir(&above) else { return Ok(Vec::new()) };
            let stat = match statat(&above, name, AtFlags::SYMLINK_NOFOLLOW) {
                Err(Errno::NOENT) => return Ok(Vec::new()),
                outcome => outcome.map_err(failed(path))?,
            };
            let header = striping.stripes.header_of(&above, name, &stat).map_err(failed(path))?;
            return Ok(header.map(|_| path.clone()).into_iter().collect());
        }
    };
    let mut names = Vec::new();
    each_name(dir.readable().map_err(failed(path))?, |name| names.push(name.to_vec())).map_err(failed(path))?;
    let mut found = Vec::new();
    for name in names {
        let Ok(below) = path.join(&name) else { continue };
        let stat = match statat(&dir, &name[..], AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            outcome => outcome.map_err(failed(&below))?,
        };
        if type_of(&stat) == FileType::Directory {
            dirs.push(below);
        } else if striping.stripes.header_of(&dir, &name, &stat).map_err(failed(&below))?.is_some() {
            found.push(below);
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

fn verify_at(striping: &Striping, target: &SetTarget, path: RelPath, pace: &Pace) -> Verified {
    match verify_file(striping, &target.tree, &path, pace) {
        Ok(bytes) => Verified::Right { path, target: target.id.0, bytes },
        Err(error) => Verified::Wrong { path, error },
    }
}

/// Reads a striped file. Returns its length.
fn verify_file(striping: &Striping, tree: &Tree, path: &RelPath, pace: &Pace) -> Result<u64, DiskError> {
    let (Some(above), Some(name)) = (path.parent(), path.name()) else { return Ok(0) };
    let failed = |error| DiskError::call("read", path, error);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = openat(&tree.dir(&above)?, name, flags, Mode::empty()).map_err(failed)?;
    let gone = || DiskError::Changed { path: path.into(), how: "it was replaced" };
    let header = striping.stripes.found_in(&fd).map_err(failed)?.ok_or_else(gone)?;
    let file = StripedFile::open(&striping.stripes, (&fd, &path.into()), &header, DirectMode::Auto)?;
    let chunks = chunks_of(striping, &fd, &header).map_err(failed)?;
    let mut on: BTreeMap<TargetId, Vec<(u64, ChunkIndex, Hash32)>> = BTreeMap::new();
    for (index, (spot, digest)) in chunks {
        if let Some(spot) = spot {
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
    at_once(&work, |(target, body, chunks)| {
        let read = verify_body(&header, path, (*target, body), chunks, (pace, &stop));
        read.inspect_err(|_| stop.store(true, Ordering::Relaxed))
    })?;
    Ok(header.map.len())
}

/// Reads the chunks of one body.
fn verify_body(
    header: &Header,
    path: &RelPath,
    (target, body): (TargetId, &Handle),
    chunks: &[(u64, ChunkIndex, Hash32)],
    (pace, stop): (&Pace, &AtomicBool),
) -> Result<(), DiskError> {
    let map = header.map;
    let mut buffer = vec![0; map.size().bytes() as usize + ALIGN];
    let aligned = buffer.as_ptr().align_offset(ALIGN).min(ALIGN);
    let slot = &mut buffer[aligned..];
    for (at, index, digest) in chunks.iter().take_while(|_| !stop.load(Ordering::Relaxed)) {
        let len = map.len_of(*index).unwrap_or(0) as usize;
        let read = fill(body, at << map.size().log2(), len, slot, Cached::Dropped)?;
        let expected = match map.kind() {
            DigestKind::Root => Digest::Root(*digest),
            DigestKind::Cv => Digest::Cv(*digest),
        };
        if read.len < len || digest_of(&slot[..len], map.kind(), map.start_of(*index)) != expected {
            return Err(SetError::Damaged { path: PathText::from(path), chunk: index.0, target: target.0 }.into());
        }
        pace.wait(len as u64);
    }
    Ok(())
}

/// The alignment of memory for direct I/O.
const ALIGN: usize = 4096;
