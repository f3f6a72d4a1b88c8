//! [`StripeWriter`]: striped files of a destination over a set.
//!
//! In: files that are long enough, each with its home target. Out: stripe files and bodies that
//! are made, opened again, removed. Bodies of a draft go when its stripe file was removed just now,
//! and bodies of a file that was replaced once the name of the new one is durable; none go while a
//! target is missing. All others stay.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::stripe::{Draft, PlacedChunk};
use longhaul_core::{ChunkMap, Mtime, RelPath, TargetId, TempName};
use rustix::fs::{AtFlags, statat};
use rustix::io::Errno;

use crate::destination::{
    Body, FsTarget, Journalled, Reopened, ReopenedPart, Replace, Staged, Striped, StripedName, TargetFile, Zeros,
};
use crate::direct::DirectMode;
use crate::error::{DiskError, ErrorKind, SetError};
use crate::load::TargetCondition;
use crate::set::{Striping, TargetSet, remove_bodies};
use crate::stripe::{CHUNKS_MAX, Header, LogEnd, Record, Stripes, read_log};
use crate::walk::Dir;

/// The striped files of one destination.
pub(super) struct StripeWriter {
    striping: Striping,
    /// The destinations of bodies, in the order of the targets that are there.
    stores: Vec<Arc<FsTarget>>,
    /// The path of the destination beneath the top of the set.
    prefix: RelPath,
    /// Files that were replaced, by their paths, whose bodies are to be removed.
    replaced: Mutex<HashMap<RelPath, TempName>>,
}

impl StripeWriter {
    /// The striped files of the destination at `path` of a set. `None`: the set has none.
    pub(super) fn of(set: &TargetSet, path: &RelPath, direct: DirectMode) -> Result<Option<StripeWriter>, DiskError> {
        let Some(striping) = set.striping() else { return Ok(None) };
        let mut stores = Vec::new();
        for (target, fd) in set.bodies_there() {
            let failed = |error: std::io::Error| DiskError::call("open the bodies of", target.tree.named(), error);
            let fd = fd.try_clone_to_owned().map_err(failed)?;
            let dir = Dir::of(fd, target.tree.root().kernel(), &target.tree.named().into())?;
            stores.push(Arc::new(FsTarget::store(Arc::new(dir), direct, &target.load)?));
        }
        let (striping, prefix) = (striping.clone(), path.clone());
        Ok(Some(StripeWriter { striping, stores, prefix, replaced: Mutex::default() }))
    }

    /// Whether a new file is striped.
    pub(super) fn takes(&self, map: ChunkMap, zeros: Zeros) -> bool {
        let most = if zeros == Zeros::LeftOut { SPARSE_CHUNKS_MAX } else { CHUNKS_MAX };
        map.len() >= self.striping.from_bytes && map.chunks() <= most
    }

    /// The destinations of bodies.
    pub(super) fn stores(&self) -> &[Arc<FsTarget>] {
        &self.stores
    }

    /// Makes a striped file whose stripe file lies at `home`.
    pub(super) fn create(
        &self,
        home: &FsTarget,
        path: &RelPath,
        (map, zeros): (ChunkMap, Zeros),
        temp: &TempName,
    ) -> Result<Arc<TargetFile>, DiskError> {
        let striped = self.striped(path, (map, zeros), temp)?;
        let stripe = home.create_stripe(path, temp, &striped.unfinished())?;
        Ok(Arc::new(TargetFile::in_stripes(path, map.len(), stripe, striped)))
    }

    fn striped(&self, path: &RelPath, shape: (ChunkMap, Zeros), temp: &TempName) -> Result<Striped, DiskError> {
        let set_path = self.prefix.concat(path);
        let set_path = set_path.map_err(|source| DiskError::Name { path: path.into(), source })?;
        let name = StripedName { id: *temp, path: path.clone(), set_path: set_path.as_bytes().to_vec() };
        Ok(Striped::new(self.stripes(), &self.stores, name, shape))
    }

    fn stripes(&self) -> &Arc<Stripes> {
        &self.striping.stripes
    }

    /// The header of a temporary at `home`, if it is that of a striped file.
    pub(super) fn draft(&self, home: &FsTarget, path: &RelPath, temp: &TempName) -> Result<Option<Header>, DiskError> {
        home.draft_at(path, temp, self.stripes())
    }

    /// Opens a striped file that an earlier session left at `home`. `None` if any part of it is not
    /// what was written: then it is begun anew.
    pub(super) fn reopen(
        &self,
        home: &FsTarget,
        path: &RelPath,
        (map, zeros): (ChunkMap, Zeros),
        header: &Header,
        journalled: &Journalled,
    ) -> Result<Option<Reopened>, DiskError> {
        let temp = &header.id;
        let Some(stripe) = home.reopen_stripe(path, temp)?.filter(|_| header.map == map) else { return Ok(None) };
        if journalled.node.is_some_and(|node| node != stripe.node) {
            return Ok(None);
        }
        let (mut draft, bodies, log) = self.records(home, path, &stripe.body, (map, temp))?;
        if draft.bytes_there() < journalled.bytes {
            return Ok(None);
        }
        let mut found = Vec::new();
        for (target, (ino, born)) in bodies {
            let Some(store) = self.stores.iter().find(|store| store.load_id() == target) else { return Ok(None) };
            if store.condition() == TargetCondition::Failed && draft.end_needed(target) > 0 {
                return Ok(None);
            }
            let part = match store.judged(store.reopen_piece(path, temp))? {
                Some(part) => part,
                // It was given up, as nothing lies there.
                None if draft.end_needed(target) == 0 => continue,
                None => return Ok(None),
            };
            let ReopenedPart { node, len, block_bytes, .. } = &part;
            let needs: u64 = draft.slots_on(target).iter().flatten().filter_map(|(index, _)| map.len_of(*index)).sum();
            let has_all = zeros == Zeros::LeftOut || *block_bytes >= needs;
            if (node.ino, node.born) != (ino, born) || *len < draft.end_needed(target) || !has_all {
                return Ok(None);
            }
            draft.reopened(target, *len);
            found.push((target, part));
        }
        // A body that was made and never recorded holds nothing that counts.
        for store in self.stores.iter().filter(|store| !found.iter().any(|(target, _)| *target == store.load_id())) {
            store.remove_piece(path, temp)?;
        }
        let striped = self.striped(path, (map, zeros), temp)?.recorded(draft, log);
        for (target, ReopenedPart { body, len, .. }) in found {
            if !striped.reopened(target, body, len) {
                return Ok(None);
            }
        }
        let file = Arc::new(TargetFile::in_stripes(path, map.len(), stripe.body, striped));
        let differs = journalled.node.is_none().then_some("its journal does not say which file it is");
        Ok(Some(Reopened { file, differs }))
    }

    /// The records of a stripe file that an earlier session left, which end here from now on, and
    /// are written once more.
    fn records(
        &self,
        home: &FsTarget,
        path: &RelPath,
        stripe: &Body,
        (map, temp): (ChunkMap, &TempName),
    ) -> Result<(Draft, RecordedBodies, LogEnd), DiskError> {
        let fd = home.read_stripe(path, temp)?;
        let mut draft = Draft::new(map);
        let mut bodies = RecordedBodies::new();
        let log = read_log(self.stripes(), &fd, temp, |record| {
            if let Record::Body { target, ino, born } = record {
                // The last one counts, as of chunks.
                bodies.insert(target, (ino, born));
            }
            match record {
                Record::Chunk { index, spot, digest } => draft.recorded(PlacedChunk { index, spot, digest }),
                Record::Body { .. } => true,
            }
        });
        let log = log.map_err(|error| DiskError::call("read the temporary file of", path, error))?;
        // A block behind one that was torn would count again once that one is written anew.
        if let Some(disk) = stripe.on_disk() {
            let cut = disk.handle().kernel().ftruncate(disk, log.end);
            cut.map_err(|error| DiskError::call("cut the temporary file of", path, error))?;
            home.judged(home.reassert(path, (disk, &fd), log.end))?;
            // A power cut may leave what was cut off on the medium, behind the end of the file, and
            // a block that is appended would bring it back: so the cut is durable before that.
            home.judged(home.sync_body(path, disk))?;
        }
        Ok((draft, bodies, log))
    }

    /// Refuses a plain file with the bytes of a stripe file of this very set: it would show the
    /// content of another file, and share its bodies.
    pub(super) fn refuse_copy(&self, staged: &Staged) -> Result<(), DiskError> {
        let Some((dir, name)) = staged.stands_at().filter(|_| !staged.is_striped()) else { return Ok(()) };
        let failed = |error| DiskError::call("examine", staged.path(), error);
        let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        match self.stripes().header_of(dir, name, &stat).map_err(failed)? {
            None => Ok(()),
            Some(_) => Err(SetError::Copy { path: staged.path().into() }.into()),
        }
    }

    /// Forgets that a file is replaced.
    pub(super) fn forget(&self, path: &RelPath) {
        self.replaced().remove(path);
    }

    /// Notes before a file is published that it replaces a striped one.
    pub(super) fn replaces(&self, home: &FsTarget, staged: &Staged, replace: Replace) -> Result<(), DiskError> {
        self.forget(staged.path());
        if replace == Replace::Never {
            return Ok(());
        }
        let path = staged.path();
        let failed = |error| DiskError::call("examine", path, error);
        let (dir, name) = match home.place_of(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            outcome => outcome?,
        };
        let standing = match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => self.stripes().header_of(&dir, name, &stat).map_err(failed)?,
            Err(Errno::NOENT) => None,
            Err(error) => return Err(failed(error)),
        };
        // A stripe file that was moved or copied by hand may not be the only one with its bodies.
        let own = |header: &Header| self.prefix.concat(path).is_ok_and(|whole| whole.as_bytes() == header.path);
        if let Some(header) = standing.filter(own) {
            self.replaced().insert(path.clone(), header.id);
        }
        Ok(())
    }

    /// Removes the bodies of the files that these have replaced, whose names are durable now.
    pub(super) fn remove_replaced(&self, set: &TargetSet, staged: &[Staged]) {
        let gone: Vec<TempName> = {
            let mut replaced = self.replaced();
            let published = staged.iter().filter(|one| one.is_published());
            published.filter_map(|one| replaced.remove(one.path())).collect()
        };
        gone.iter().for_each(|id| remove_bodies(set, id));
    }

    fn replaced(&self) -> MutexGuard<'_, HashMap<RelPath, TempName>> {
        self.replaced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StripeWriter {
    /// Lets go of standing files that were compared: they may be gone by now, but for that.
    fn drop(&mut self) {
        self.stripes().forget_all();
    }
}

/// The inode number and the time of birth of each body that the records of a stripe file name.
type RecordedBodies = BTreeMap<TargetId, (u64, Option<Mtime>)>;

/// Chunks of a sparse file that is striped at most. A longer one lies whole: it may be all holes,
/// which cost its sender nothing and some 100 bytes of memory each here.
const SPARSE_CHUNKS_MAX: u64 = 1 << 20;

#[cfg(test)]
mod hangs;
#[cfg(test)]
mod tests;
