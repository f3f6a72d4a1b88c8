//! [`SpreadTarget`]: a destination over a set in which each file lies whole on one target.
//!
//! Each file goes to the target that will have it soonest (`core/load`), one that stands already to
//! the target where it stands. Each target is an [`FsTarget`] of its own, which does the work: this
//! one decides which, makes directories on the targets where files need them, and keeps a name from
//! standing on two. Knows nothing of digests and peers.

mod bases;
mod dirs;
mod names;
mod stripes;
mod sums;

use std::collections::BTreeMap;
use std::sync::Arc;

use longhaul_core::{
    Candidate, ChunkIndex, ChunkMap, Losses, Meta, Place, Preserve, RelPath, SessionTag, TargetId, TempName, soonest,
};
use rustix::io::Errno;

use super::{Drafts, TargetSet, one_of, remove_bodies, two_targets};
use crate::at_once::at_once;
use crate::destination::{
    Back, FsTarget, Journalled, Made, NameMade, NameProof, Reopened, Replace, Room, Staged, SyncCounts, SyncMethod,
    TargetFile, TargetTree, TreePolicy,
};
use crate::direct::DirectMode;
use crate::error::{DiskError, ErrorKind};
use crate::load::{TargetCondition, TargetLoad, may_go_elsewhere};
use crate::stat::{Identity, Standing};
use crate::stripe::Header;

use dirs::OpenDirs;
use stripes::StripeWriter;

/// A destination over all targets of a set.
pub struct SpreadTarget {
    set: Arc<TargetSet>,
    /// Its path beneath the top of the set.
    base: RelPath,
    /// In the order of the set's targets that are there.
    targets: Vec<FsTarget>,
    dirs: OpenDirs,
    /// The writer of striped files. `None`: the layout has none.
    striping: Option<StripeWriter>,
}

impl SpreadTarget {
    /// Opens the directory at `path` beneath a set as the destination, on all of its targets, as
    /// [`FsTarget::beneath`] does on one.
    ///
    /// # Errors
    /// As [`FsTarget::beneath`]; [`DiskError::Set`] if the directory stands on no target and a
    /// target is missing.
    pub fn beneath(
        set: &Arc<TargetSet>,
        path: &RelPath,
        direct: DirectMode,
        policy: TreePolicy,
    ) -> Result<SpreadTarget, DiskError> {
        if set.stat(path)?.is_none() {
            set.need_all_for_new_names()?;
        }
        bases::make_like_standing(set, path)?;
        let targets = set.targets().iter().map(|target| {
            let open = FsTarget::beneath(&target.tree, path, direct, policy)?;
            Ok(open.loading(Arc::clone(&target.load), set.targets().len()))
        });
        let targets = targets.collect::<Result<Vec<_>, DiskError>>()?;
        let striping = StripeWriter::of(set, path, direct)?;
        let (set, base) = (Arc::clone(set), path.clone());
        Ok(SpreadTarget { set, base, targets, dirs: OpenDirs::default(), striping })
    }

    /// As [`FsTarget::keeping_standing_dirs`].
    #[must_use]
    pub fn keeping_standing_dirs(self) -> SpreadTarget {
        let targets = self.targets.into_iter().map(FsTarget::keeping_standing_dirs).collect();
        SpreadTarget { targets, dirs: self.dirs.keeping_standing(), ..self }
    }

    /// As [`FsTarget::tagged`].
    #[must_use]
    pub fn tagged(self, tag: SessionTag) -> SpreadTarget {
        SpreadTarget { targets: self.targets.into_iter().map(|target| target.tagged(tag)).collect(), ..self }
    }

    /// The target at a place among those that are there.
    fn at(&self, at: usize) -> &FsTarget {
        &self.targets[at]
    }

    /// The target of a file that was made here.
    fn home(&self, id: TargetId) -> &FsTarget {
        self.at(self.set.targets().iter().position(|target| target.id == id).unwrap_or(0))
    }

    /// The entry that stands at `path`, and its target.
    fn standing(&self, path: &RelPath) -> Result<Option<(usize, Standing)>, DiskError> {
        one_of(self.set.targets(), path, |at, _| match self.at(at).examine(path) {
            // Something else than a directory stands above it on this target: if a directory does
            // on another, that name itself is refused.
            Err(error) if error.kind() == ErrorKind::NotADirectory => Ok(None),
            Err(_) if self.set.goes_on_without() && self.at(at).condition() == TargetCondition::Failed => Ok(None),
            outcome if self.set.goes_on_without() => self.at(at).judged(outcome),
            outcome => outcome,
        })
    }

    /// The target where the file at `path` stands, for what is done to standing files.
    fn where_it_stands(&self, path: &RelPath) -> Result<&FsTarget, DiskError> {
        Ok(self.at(self.standing(path)?.map_or(0, |(at, _)| at)))
    }

    /// Makes something of `len` bytes under the name `path` on the target that will have it
    /// soonest, and the directories above it; on another one, if that target fails or is full.
    fn make<T>(
        &self,
        path: &RelPath,
        len: u64,
        make: impl Fn(&FsTarget) -> Result<T, DiskError>,
    ) -> Result<T, DiskError> {
        let standing = self.standing(path)?.map(|(at, _)| at);
        if standing.is_none() {
            self.set.need_all_for_new_names()?;
        }
        let mut tried = 0;
        loop {
            let at = self.choose(path, len, standing)?;
            let target = self.at(at);
            let made = self.dirs.reach(&self.targets, at, path).and_then(|()| make(target));
            tried += 1;
            match target.judged(made) {
                Err(error) if may_go_elsewhere(&error) && tried < self.targets.len() => {}
                outcome => return outcome,
            }
        }
    }

    /// The place of the target for `len` bytes under the name `path`, which stands on the target at
    /// `standing`.
    fn choose(&self, path: &RelPath, len: u64, standing: Option<usize>) -> Result<usize, DiskError> {
        let no_room = || DiskError::call("find a target with room for", path, Errno::NOSPC);
        let among = match standing {
            Some(at) => match self.at(at).condition() {
                TargetCondition::Failed => return Err(self.at(at).down().unwrap_or_else(no_room)),
                TargetCondition::Full => return Err(no_room()),
                // It is waited for.
                TargetCondition::Well | TargetCondition::Hung => vec![at],
            },
            None => self.takers(),
        };
        let candidates: Vec<_> = among.into_iter().map(|at| self.candidate(at)).collect();
        // Its place among the candidates, as these have only that.
        soonest(&candidates, len).map(|TargetId(at)| at as usize).ok_or_else(no_room)
    }

    /// The places of the targets that take something new: those that are well, or else all that did
    /// not fail.
    fn takers(&self) -> Vec<usize> {
        let conditions: Vec<TargetCondition> = self.targets.iter().map(FsTarget::condition).collect();
        let of = |is_one: &dyn Fn(TargetCondition) -> bool| -> Vec<usize> {
            (0..conditions.len()).filter(|at| is_one(conditions[*at])).collect()
        };
        let well = of(&|condition| condition == TargetCondition::Well);
        if well.is_empty() { of(&|condition| condition != TargetCondition::Failed) } else { well }
    }

    fn candidate(&self, at: usize) -> Candidate {
        let room = self.at(at).room(&RelPath::root());
        self.at(at).candidate(TargetId(at as u32), room)
    }

    /// The target on which a temporary stands. `None` if it stands on none.
    ///
    /// # Errors
    /// The system's error; [`DiskError::Set`] if it may stand on a target that is missing.
    fn target_of_temp(&self, path: &RelPath, temp: &TempName) -> Result<Option<&FsTarget>, DiskError> {
        for target in &self.targets {
            match target.has_temp(path, temp) {
                Ok(true) => return Ok(Some(target)),
                Ok(false) => {}
                Err(_) if target.condition() == TargetCondition::Failed => {}
                Err(error) if error.kind() == ErrorKind::NotADirectory => {}
                Err(error) => return Err(error),
            }
        }
        self.set.away().map_or(Ok(None), Err)
    }

    /// The header of a temporary on a target, if it is that of a striped file.
    fn draft(
        &self,
        target: &FsTarget,
        path: &RelPath,
        temp: &TempName,
    ) -> Result<Option<(&StripeWriter, Header)>, DiskError> {
        let Some(striping) = &self.striping else { return Ok(None) };
        Ok(striping.draft(target, path, temp)?.map(|header| (striping, header)))
    }

    /// Remembers which files were committed on which targets, in case one of them fails.
    fn remember(&self, committed: &[Staged]) {
        for staged in committed.iter().filter(|staged| staged.is_published()) {
            let Ok(name) = self.base.concat(staged.path()) else { continue };
            let targets = staged.targets();
            for target in self.set.targets().iter().filter(|target| targets.contains(&target.id)) {
                target.load.committed(name.clone());
            }
        }
    }

    /// Does something on each target with the staged files that lie there, on all at once.
    fn on_each(
        &self,
        staged: &[&Staged],
        act: impl Fn(&FsTarget, &[&Staged]) -> Result<(), DiskError> + Sync,
    ) -> Result<(), DiskError> {
        let parts = self.set.targets().iter().zip(&self.targets).map(|(known, target)| {
            let own: Vec<&Staged> = staged.iter().copied().filter(|one| one.home() == known.id).collect();
            (target, own)
        });
        let parts: Vec<_> = parts.collect();
        at_once(&parts, |(target, own)| act(target, own))
    }
}

impl TargetTree for SpreadTarget {
    fn examine(&self, path: &RelPath) -> Result<Option<Standing>, DiskError> {
        Ok(self.standing(path)?.map(|(_, standing)| standing))
    }

    fn make_dir(&self, path: &RelPath) -> Result<Made, DiskError> {
        // A file of this name may be about to be published on another target.
        let _naming = self.set.naming();
        let standing = self.standing(path)?;
        if standing.is_none() {
            self.set.need_all_for_new_names()?;
        }
        self.dirs.open(&self.targets, path, standing)
    }

    fn create(
        &self,
        path: &RelPath,
        map: ChunkMap,
        sparse: bool,
        temp: &TempName,
    ) -> Result<Arc<TargetFile>, DiskError> {
        if let Some(striping) = self.striping.as_ref().filter(|striping| striping.takes(map, sparse.into())) {
            return self.make(path, 0, |home| striping.create(home, path, (map, sparse.into()), temp));
        }
        // How much of a sparse file are holes is not known.
        let len = if sparse || map.is_unended() { 0 } else { map.len() };
        self.make(path, len, |target| target.create(path, map, sparse, temp))
    }

    fn reopen(
        &self,
        path: &RelPath,
        map: ChunkMap,
        sparse: bool,
        temp: &TempName,
        journalled: &Journalled,
    ) -> Result<Option<Reopened>, DiskError> {
        let Some(target) = self.target_of_temp(path, temp)? else { return Ok(None) };
        match target.condition() {
            TargetCondition::Well | TargetCondition::Hung => {}
            // It stays until the target is well and the directory is swept.
            TargetCondition::Failed => return Ok(None),
            // It had no room for the rest.
            TargetCondition::Full => return self.remove_temp(path, temp).map(|()| None),
        }
        // Another session may have given the name on another target: this one could never be
        // published, and is begun anew there.
        match self.standing(path)? {
            Some((at, _)) if self.at(at).load_id() != target.load_id() => Ok(None),
            _ => match self.draft(target, path, temp)? {
                Some((striping, header)) => {
                    // What lies on a missing target cannot be gone on with, and is not given up.
                    self.set.away().map_or(Ok(()), Err)?;
                    striping.reopen(target, path, (map, sparse.into()), &header, journalled)
                }
                None => target.reopen(path, map, sparse, temp, journalled),
            },
        }
        .or_else(|error| match target.judged(Err(error)) {
            Err(error) if may_go_elsewhere(&error) => Ok(None),
            outcome => outcome,
        })
    }

    fn remove_temp(&self, path: &RelPath, temp: &TempName) -> Result<(), DiskError> {
        let Some(target) = self.target_of_temp(path, temp)? else { return Ok(()) };
        if self.draft(target, path, temp)?.is_none() {
            return target.remove_temp(path, temp);
        }
        self.set.away().map_or(Ok(()), Err)?;
        target.remove_temp(path, temp)?;
        remove_bodies(&self.set, temp);
        Ok(())
    }

    fn sweep(&self, path: &RelPath, orphan: &dyn Fn(&TempName) -> bool) -> Result<usize, DiskError> {
        let sweep = |target: &FsTarget| {
            let dir = match target.dir_at(path)? {
                Some(dir) => dir,
                None => return Ok(0),
            };
            let Some(drafts) = Drafts::of(&self.set) else { return target.sweep(path, orphan) };
            let removed = target.swept(path, &|temp| drafts.may_go(&dir, temp, orphan))?;
            drafts.remove(&removed);
            Ok(removed.len())
        };
        self.targets.iter().try_fold(0, |swept, target| Ok(swept + sweep(target)?))
    }

    fn sync_names(&self, dirs: &[RelPath]) -> Result<(), DiskError> {
        self.targets.iter().try_for_each(|target| target.sync_names(dirs))
    }

    fn make_hole(&self, file: &TargetFile, place: Place, len: u64) -> Result<(), DiskError> {
        let home = self.home(file.home());
        home.judged(home.make_hole(file, place, len))
    }

    fn write_small(&self, path: &RelPath, bytes: &[u8], meta: &Meta, preserve: Preserve) -> Result<Staged, DiskError> {
        self.make(path, bytes.len() as u64, |target| target.write_small(path, bytes, meta, preserve))
    }

    fn make_link(&self, path: &RelPath, target: &[u8], meta: &Meta, preserve: Preserve) -> Result<Staged, DiskError> {
        self.make(path, 0, |at| at.make_link(path, target, meta, preserve))
    }

    fn make_name(&self, path: &RelPath, first: &RelPath, proof: &NameProof<'_>) -> NameMade {
        self.stage_name(path, first, proof)
    }

    fn sync_data(&self, file: &TargetFile) -> Result<Vec<ChunkIndex>, DiskError> {
        let home = self.home(file.home());
        match (file.striped(), file.on_disk().next()) {
            (Some(striped), Some(stripe)) => home.judged(striped.sync(home, stripe)),
            _ => home.judged(home.sync_data(file)),
        }
    }

    fn read_staged(&self, staged: &Staged, len: usize, slot: &mut [u8]) -> Result<Back, DiskError> {
        let home = self.home(staged.home());
        home.judged(home.read_staged(staged, len, slot))
    }

    fn read_standing(
        &self,
        path: &RelPath,
        offset: u64,
        len: usize,
        slot: &mut [u8],
    ) -> Result<(Back, Identity), DiskError> {
        self.where_it_stands(path)?.read_standing(path, offset, len, slot)
    }

    fn fit(&self, path: &RelPath, is: &Meta, wanted: &Meta, preserve: Preserve) -> Result<(), DiskError> {
        self.where_it_stands(path)?.fit(path, is, wanted, preserve)
    }

    fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        self.targets.iter().for_each(|target| losses.add_all(&target.losses()));
        losses
    }

    fn retouch(
        &self,
        path: &RelPath,
        expect: &Identity,
        meta: Option<&Meta>,
        preserve: Preserve,
    ) -> Result<(), DiskError> {
        self.where_it_stands(path)?.retouch(path, expect, meta, preserve)
    }

    fn seal(&self, file: Arc<TargetFile>, meta: &Meta, preserve: Preserve) -> Result<Staged, DiskError> {
        let home = self.home(file.home());
        let Some(striped) = file.striped() else { return home.judged(home.seal(file, meta, preserve)) };
        for stripe in file.on_disk() {
            let len = home.judged(striped.seal(home, stripe, meta))?;
            home.judged(home.seal_stripe((stripe, file.path()), len, meta, preserve))?;
        }
        Ok(Staged::large(file))
    }

    /// Files on a target that hangs wait until it answers, and hold up no others.
    fn barrier(&self, staged: &[&Staged]) -> Result<Vec<usize>, DiskError> {
        let hangs = |one: &Staged| self.home(one.home()).condition() == TargetCondition::Hung;
        let (later, now): (Vec<_>, Vec<_>) = staged.iter().enumerate().partition(|(_, one)| hangs(one));
        self.barrier_of_all(&now.into_iter().map(|(_, one)| *one).collect::<Vec<_>>())?;
        Ok(later.into_iter().map(|(at, _)| at).collect())
    }

    fn barrier_of_all(&self, staged: &[&Staged]) -> Result<(), DiskError> {
        self.on_each(staged, |target, own| match own.is_empty() {
            true => Ok(()),
            false => target.judged(target.barrier_of_all(own)),
        })
    }

    fn believe(&self, staged: &Staged) {
        self.home(staged.home()).believe(staged);
    }

    fn publish(&self, staged: &Staged, replace: Replace) -> Result<(), DiskError> {
        let _naming = self.set.naming();
        let own = |at: usize| self.set.targets()[at].id == staged.home();
        if let Some((at, standing)) = one_of(self.set.targets(), staged.path(), |at, _| {
            if own(at) { Ok(None) } else { self.at(at).look_at(staged.path()) }
        })? {
            let dirs = usize::from(matches!(standing, Standing::Dir { .. }));
            return Err(two_targets(staged.path(), (self.set.targets()[at].id, staged.home()), dirs));
        }
        let home = self.home(staged.home());
        let Some(striping) = &self.striping else { return home.judged(home.publish(staged, replace)) };
        striping.refuse_copy(staged)?;
        striping.replaces(home, staged, replace)?;
        home.judged(home.publish(staged, replace)).inspect_err(|_| striping.forget(staged.path()))
    }

    fn sync_dirs(&self, staged: &[Staged]) -> Result<(), DiskError> {
        let all: Vec<&Staged> = staged.iter().collect();
        self.on_each(&all, |target, own| {
            // What was made on a target that hangs is synced with what is published there, or at
            // the end.
            if own.is_empty() && !staged.is_empty() && target.condition() == TargetCondition::Hung {
                return Ok(());
            }
            target.judged(target.sync_dirs_of(own))
        })?;
        if let Some(striping) = &self.striping {
            striping.remove_replaced(&self.set, staged);
        }
        self.remember(staged);
        Ok(())
    }

    fn finish_dir(&self, path: &RelPath, meta: &Meta, preserve: Preserve) -> Result<(), DiskError> {
        self.dirs.finish(&self.targets, path, (meta, preserve))
    }

    fn check_place(&self) -> Result<(), DiskError> {
        self.targets.iter().try_for_each(TargetTree::check_place)
    }

    /// The room of all targets together, which has the first one's device number: a file that fits
    /// all of them and no single one is refused when its temporary is made.
    fn room(&self, path: &RelPath) -> Option<Room> {
        let rooms: Option<Vec<Room>> = self.targets.iter().map(|target| target.room(path)).collect();
        // Targets on one file system share its room.
        let by_device: BTreeMap<u64, Room> = rooms?.into_iter().map(|room| (room.device, room)).collect();
        by_device.into_values().reduce(|sum, room| Room {
            device: sum.device,
            bytes: sum.bytes.saturating_add(room.bytes),
            total: sum.total.saturating_add(room.total),
            inodes: sum.inodes.zip(room.inodes).map(|(sum, more)| sum.saturating_add(more)),
            is_firm: sum.is_firm && room.is_firm,
        })
    }

    fn has_temp(&self, path: &RelPath, temp: &TempName) -> Result<bool, DiskError> {
        self.target_of_temp(path, temp).map(|target| target.is_some())
    }

    fn occupied(&self, path: &RelPath, temp: &TempName) -> Option<u64> {
        let target = self.target_of_temp(path, temp).ok()??;
        let bodies = match self.draft(target, path, temp).ok()? {
            Some(_) => self.set.striping().map_or(0, |known| known.stripes.occupied(temp)),
            None => 0,
        };
        Some(target.occupied(path, temp)?.saturating_add(bodies))
    }

    fn sync_counts(&self) -> SyncCounts {
        let stores = self.striping.iter().flat_map(|striping| striping.stores()).map(|store| store.sync_counts());
        self.targets.iter().map(TargetTree::sync_counts).chain(stores).fold(SyncCounts::default(), SyncCounts::plus)
    }

    fn sync_method(&self) -> Option<SyncMethod> {
        self.targets.iter().filter_map(TargetTree::sync_method).next()
    }

    fn loads(&self) -> Vec<Arc<TargetLoad>> {
        self.set.loads().cloned().collect()
    }
}

#[cfg(test)]
mod tests;
