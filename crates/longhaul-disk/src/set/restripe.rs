//! Writes a striped file anew, with its chunks on other targets.
//!
//! In: a set that nobody else uses, the path of a striped file, and a target for each of its
//! chunks. Out: the same file under the same name, in new bodies. In this order: the record of the
//! move; the new bodies, each chunk compared with its digest before it is written and once more as
//! it lies on the medium; the stripe file, under a temporary name; its rename, which is the one
//! commit point; the removal of the old bodies. Chooses nothing, and knows no sessions.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};

use longhaul_core::digest::{Digest, Hash32, digest_of};
use longhaul_core::stripe::Spot;
use longhaul_core::{ChunkIndex, DigestKind, RelPath, SessionTag, TargetId, TempName};
use rustix::fs::{AtFlags, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::destination::{Replace, random};
use crate::direct::{DirectMode, Handle};
use crate::error::{DiskError, PathText, SetError};
use crate::fill::{Cached, fill};
use crate::kernel::Kernel;
use crate::set::moves::{FileVersion, Move, MoveKind};
use crate::set::pace::Pace;
use crate::set::rebuild::StripeText;
use crate::set::verify::chunks_of;
use crate::set::{SetTarget, Striping, TargetSet};
use crate::stat::meta_of;
use crate::stripe::{Footer, Header, Record, StripedFile};

/// A striped file that is open, and where its chunks lie.
pub(super) struct Layout {
    fd: OwnedFd,
    /// Its metadata when it was opened.
    pub(super) stat: Stat,
    header: Header,
    /// Its bodies, open.
    pub(super) file: StripedFile,
    /// The place and digest of each chunk, by its number.
    pub(super) chunks: BTreeMap<u64, (Option<Spot>, Hash32)>,
}

impl Layout {
    /// The length of a chunk in bytes.
    pub(super) fn len_of(&self, chunk: u64) -> u64 {
        self.header.map.len_of(ChunkIndex(chunk)).unwrap_or(0)
    }

    fn digest(&self, digest: Hash32) -> Digest {
        match self.header.map.kind() {
            DigestKind::Root => Digest::Root(digest),
            DigestKind::Cv => Digest::Cv(digest),
        }
    }
}

/// A chunk on its way: its number, its old place, its slot in the new body, and its digest.
type Dealt = (u64, Spot, u64, Hash32);

impl TargetSet {
    /// The striped file at `path` of a target. `None`: it is no striped file.
    pub(super) fn layout_at(&self, home: &SetTarget, path: &RelPath) -> Result<Option<Layout>, DiskError> {
        let (Some(striping), Some(above), Some(name)) = (self.striping(), path.parent(), path.name()) else {
            return Ok(None);
        };
        let failed = |error| DiskError::call("read", path, error);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = openat(&home.tree.dir(&above)?, name, flags, Mode::empty()).map_err(failed)?;
        let Some(header) = striping.stripes.found_in(&fd).map_err(failed)? else { return Ok(None) };
        let file = StripedFile::open(&striping.stripes, (&fd, &path.into()), &header, DirectMode::Buffered)?;
        let chunks = chunks_of(striping, &fd, &header).map_err(failed)?;
        let stat = fstat(&fd).map_err(failed)?;
        Ok(Some(Layout { fd, stat, header, file, chunks }))
    }

    /// Writes a striped file anew, with each chunk on the target that `dealt` says. If it fails,
    /// the file stands as before, and nothing is left of the new bodies.
    ///
    /// # Errors
    /// [`SetError::Stays`] if it would not be the same; [`SetError::Damaged`] if it is not what was
    /// written; the system's error.
    pub(super) fn restripe(
        &self,
        (home, path): (&SetTarget, &RelPath),
        layout: &Layout,
        dealt: &BTreeMap<u64, TargetId>,
        pace: &Pace,
    ) -> Result<(), DiskError> {
        let Some(striping) = self.striping() else { return Ok(()) };
        let stays = |why| Err(SetError::Stays { path: path.into(), why }.into());
        if layout.stat.st_uid != geteuid().as_raw() || layout.stat.st_nlink != 1 {
            return stays("it belongs to another user or has several names, and cannot be written anew as it is");
        }
        if layout.header.path != path.as_bytes() {
            return stays("it was moved or copied there by hand");
        }
        let random = || random().map_err(|error| DiskError::call("name the bodies of", path, error));
        let (temp, old) = (TempName::new(SessionTag(random()?), random()?), layout.header.id);
        let known = Move { path: path.clone(), temp, kind: MoveKind::Chunks { old } };
        let written = known.record(home, self).and_then(|()| {
            let records = self.write_bodies(striping, (path, &temp), layout, (dealt, pace))?;
            let text = StripeText {
                id: temp,
                path: path.as_bytes(),
                map: layout.header.map,
                root: layout.header.whole.map(|whole| whole.root).unwrap_or_default(),
                meta: meta_of(&layout.stat),
                records,
            };
            need_unchanged(home, path, layout)?;
            self.write_stripe(striping, (home, path), text, Replace::Allowed)
        });
        let settled = self.settle(home, &known);
        written.and(settled)
    }

    /// Writes the new bodies, which are durable and proven when this returns. Returns the records.
    fn write_bodies(
        &self,
        striping: &Striping,
        (path, id): (&RelPath, &TempName),
        layout: &Layout,
        (dealt, pace): (&BTreeMap<u64, TargetId>, &Pace),
    ) -> Result<Vec<Record>, DiskError> {
        let mut on: BTreeMap<TargetId, Vec<Dealt>> = BTreeMap::new();
        let (mut records, mut holes) = (Vec::new(), Vec::new());
        for (chunk, (spot, digest)) in &layout.chunks {
            let spot = match spot {
                Some(old) => {
                    let target = dealt.get(chunk).copied().unwrap_or(old.target);
                    let chunks = on.entry(target).or_default();
                    let slot = chunks.len() as u64;
                    chunks.push((*chunk, *old, slot, *digest));
                    Some(Spot { target, slot })
                }
                None => {
                    holes.push((ChunkIndex(*chunk), *digest));
                    None
                }
            };
            records.push(Record::Chunk { index: ChunkIndex(*chunk), spot, digest: *digest });
        }
        for (target, chunks) in on {
            let there = self.bodies_there().find(|(known, _)| known.id == target);
            let (known, dir) = there.ok_or(SetError::Away { number: target.0 })?;
            let slots = chunks.iter().map(|(chunk, _, _, digest)| Some((ChunkIndex(*chunk), *digest))).collect();
            let footer = Footer {
                id: *id,
                target,
                path: path.as_bytes().to_vec(),
                map: layout.header.map,
                root: layout.header.whole.map(|whole| whole.root).unwrap_or_default(),
                meta: meta_of(&layout.stat),
                slots,
                holes: std::mem::take(&mut holes),
            };
            let body = NewBody { path, layout, kernel: known.tree.root().kernel(), dir, target };
            body.write(id, &chunks, (&footer.to_bytes(striping.stripes.key()), pace))?;
        }
        Ok(records)
    }
}

/// A body that is being written.
struct NewBody<'b> {
    path: &'b RelPath,
    layout: &'b Layout,
    kernel: &'b Kernel,
    /// The directory of bodies on its target.
    dir: BorrowedFd<'b>,
    target: TargetId,
}

impl NewBody<'_> {
    fn write(&self, id: &TempName, chunks: &[Dealt], (footer, pace): (&[u8], &Pace)) -> Result<(), DiskError> {
        let name = id.file_name();
        let fd = self.kernel.create(self.dir, &name, OFlags::RDWR, Mode::RUSR | Mode::WUSR);
        let fd = fd.map_err(|error| self.failed("make a body of", error))?;
        let map = self.layout.header.map;
        let mut buffer = vec![0; map.size().bytes() as usize + ALIGN];
        let aligned = buffer.as_ptr().align_offset(ALIGN).min(ALIGN);
        let slot = &mut buffer[aligned..];
        for (chunk, old, new, digest) in chunks {
            let body = self.layout.file.body(old.target).ok_or(SetError::Away { number: old.target.0 })?;
            let len = self.filled(body, (*chunk, old.slot, *digest), slot, Cached::Kept)?.ok_or_else(|| {
                SetError::Damaged { path: PathText::from(self.path), chunk: *chunk, target: old.target.0 }
            })?;
            self.write_at(&fd, &slot[..len], new << map.size().log2())?;
            pace.wait(len as u64);
        }
        self.write_at(&fd, footer, (chunks.len() as u64) << map.size().log2())?;
        self.kernel.fsync(&fd).map_err(|error| self.failed("sync a body of", error))?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let again = openat(self.dir, &name[..], flags, Mode::empty());
        let again = again.map_err(|error| self.failed("read back a body of", error))?;
        let (again, _) = Handle::adopt(again, self.path.into(), DirectMode::Auto, OFlags::NONBLOCK)?;
        let again = again.written_by(self.kernel);
        for (chunk, _, new, digest) in chunks {
            if self.filled(&again, (*chunk, *new, *digest), slot, Cached::Dropped)?.is_none() {
                return Err(SetError::Differs { path: self.path.into(), target: self.target.0 }.into());
            }
        }
        self.kernel.fsync(self.dir).map_err(|error| self.failed("sync the bodies of", error))
    }

    /// Reads a chunk from a slot of a body. Returns its length; `None` if it is not what its digest
    /// says.
    fn filled(
        &self,
        body: &Handle,
        (chunk, slot, digest): (u64, u64, Hash32),
        into: &mut [u8],
        cached: Cached,
    ) -> Result<Option<usize>, DiskError> {
        let map = self.layout.header.map;
        let len = self.layout.len_of(chunk) as usize;
        let read = fill(body, slot << map.size().log2(), len, into, cached)?;
        let is_right = read.len == len
            && digest_of(&into[..len], map.kind(), map.start_of(ChunkIndex(chunk))) == self.layout.digest(digest);
        Ok(is_right.then_some(len))
    }

    fn write_at(&self, fd: &OwnedFd, bytes: &[u8], offset: u64) -> Result<(), DiskError> {
        let mut done = 0;
        while done < bytes.len() {
            match self.kernel.pwrite(fd, &bytes[done..], offset + done as u64) {
                Ok(0) => return Err(self.failed("write a body of", Errno::NOSPC)),
                Ok(written) => done += written,
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.failed("write a body of", error)),
            }
        }
        Ok(())
    }

    fn failed(&self, call: &'static str, error: Errno) -> DiskError {
        DiskError::call(call, self.path, error)
    }
}

/// Checks that the stripe file that was read still has its name.
fn need_unchanged(home: &SetTarget, path: &RelPath, layout: &Layout) -> Result<(), DiskError> {
    let (Some(above), Some(name)) = (path.parent(), path.name()) else { return Ok(()) };
    let failed = |error| DiskError::call("examine", path, error);
    let stands = statat(&home.tree.dir(&above)?, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
    let open = fstat(&layout.fd).map_err(failed)?;
    let before = FileVersion::of(&layout.stat);
    match FileVersion::of(&stands) == before && FileVersion::of(&open) == before {
        true => Ok(()),
        false => Err(DiskError::Changed { path: path.into(), how: "it was replaced while it was copied" }),
    }
}

const ALIGN: usize = 4096;
