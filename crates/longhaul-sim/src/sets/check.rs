//! The promises about the files of a set, and whether they are kept.
//!
//! In: what a process says (a chunk is durable, a name is given, a file is committed), and the
//! targets. Out: the first promise that is broken. It looks at media, and believes no process.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use longhaul_core::stripe::{PlacedChunk, Spot};

use super::disk::{DiskView, NodeId, SetDir, SetName};
use super::host::Host;
use super::plan::{PlannedVersion, SetPlan};
use super::reading::{Found, slot_at};
use super::texts::{FileNo, PathNo, TEXT_BLOCKS, VersionNo, digest_of_chunk};

/// The knowledge of the files of a world.
#[derive(Debug, Default)]
pub(crate) struct SetLedger {
    /// The first promise that was broken.
    pub(crate) violation: Option<String>,
    pub(crate) versions: Vec<PlannedVersion>,
    pub(crate) files: BTreeMap<FileNo, FileFate>,
    /// Files that the journal names: they are to be continued.
    pub(crate) journal: BTreeSet<FileNo>,
    /// The version of each path that was committed last.
    pub(crate) committed: BTreeMap<PathNo, FileNo>,
    /// Bytes of buffers that writes to each target hold.
    pinned: BTreeMap<usize, u64>,
    share_bytes: u64,
}

/// The fate of a striped file.
#[derive(Clone, Debug)]
pub(crate) struct FileFate {
    pub(crate) version: VersionNo,
    pub(crate) home: usize,
    pub(crate) stripe: NodeId,
    /// Chunks that were called durable.
    pub(crate) journalled: BTreeSet<u64>,
    /// Whether its rename was ordered.
    pub(crate) is_published: bool,
    /// Targets on which parts of it are.
    touches: BTreeSet<usize>,
    /// Whether one of them came back as it was before.
    is_tainted: bool,
    /// Whether it is being removed, to be begun anew.
    is_discarded: bool,
    /// Targets that had no room for a footer.
    pub(crate) without_footer: BTreeSet<usize>,
    /// Slots that were given away by this process.
    given: BTreeSet<(usize, u64)>,
    /// The place of each chunk whose write came back first.
    won: HashSet<(u64, Spot)>,
}

impl SetLedger {
    pub(crate) fn new(plan: &SetPlan, share_bytes: u64) -> SetLedger {
        SetLedger { versions: plan.versions.clone(), share_bytes, ..SetLedger::default() }
    }

    /// Notes a broken promise. Only the first one counts.
    pub(crate) fn broken(&mut self, what: impl FnOnce() -> String) {
        self.violation.get_or_insert_with(what);
    }

    pub(crate) fn planned(&self, version: VersionNo) -> &PlannedVersion {
        &self.versions[version.0 as usize]
    }

    /// Whether a chunk of a version is all zeros.
    pub(crate) fn is_hole(&self, version: VersionNo, index: u64) -> bool {
        self.planned(version).holes >> index & 1 == 1
    }

    /// The path of a file.
    pub(crate) fn path_of(&self, file: FileNo) -> PathNo {
        self.planned(self.files[&file].version).path
    }

    fn content(&self, version: VersionNo) -> Vec<Option<(VersionNo, u64)>> {
        let chunk = |index| (!self.is_hole(version, index)).then_some((version, index));
        (0..self.planned(version).chunks).map(chunk).collect()
    }

    /// Notes that a file is begun.
    pub(crate) fn begun(&mut self, file: FileNo, version: VersionNo, (home, stripe): (usize, NodeId)) {
        let fate = FileFate {
            version,
            home,
            stripe,
            journalled: BTreeSet::new(),
            is_published: false,
            touches: BTreeSet::from([home]),
            is_tainted: false,
            is_discarded: false,
            without_footer: BTreeSet::new(),
            given: BTreeSet::new(),
            won: HashSet::new(),
        };
        self.files.insert(file, fate);
    }

    /// Notes that another process begins: buffers are gone, and slots are counted anew.
    pub(crate) fn process_begins(&mut self) {
        self.pinned.clear();
        self.files.values_mut().for_each(|fate| fate.given.clear());
    }

    /// Notes that a target came back as it was before.
    pub(crate) fn came_back_old(&mut self, target: usize) {
        let touched = self.files.values_mut().filter(|fate| fate.touches.contains(&target));
        touched.for_each(|fate| fate.is_tainted = true);
    }

    /// Notes that a file is going to be removed, and begun anew.
    pub(crate) fn discards(&mut self, file: FileNo) {
        self.files.entry(file).and_modify(|fate| fate.is_discarded = true);
    }

    /// Notes a write of a chunk that is about to be ordered.
    pub(crate) fn begins_write(&mut self, file: FileNo, spot: Spot, chunk_bytes: u64) {
        let target = spot.target.0 as usize;
        let fate = self.files.entry(file).and_modify(|fate| _ = fate.touches.insert(target));
        let mut is_new = false;
        fate.and_modify(|fate| is_new = fate.given.insert((target, spot.slot)));
        if !is_new {
            self.broken(|| format!("slot {} of file {} on target {target} is given twice", spot.slot, file.0));
        }
        let pinned = self.pinned.entry(target).or_default();
        *pinned += chunk_bytes;
        let (pinned, share) = (*pinned, self.share_bytes.max(chunk_bytes));
        if pinned > share {
            self.broken(|| format!("target {target} holds {pinned} bytes of buffers, its share is {share}"));
        }
    }

    /// Notes that a write came back, and its buffer is let go.
    pub(crate) fn ends_write(&mut self, target: usize, chunk_bytes: u64) {
        let pinned = self.pinned.entry(target).or_default();
        *pinned = pinned.saturating_sub(chunk_bytes);
    }

    /// Notes that the write of a chunk was the first to come back.
    pub(crate) fn wins(&mut self, file: FileNo, index: u64, spot: Spot) {
        self.files.entry(file).and_modify(|fate| _ = fate.won.insert((index, spot)));
    }

    /// Whether no part of a file was damaged, and each body has its footer.
    pub(crate) fn is_whole(&self, file: FileNo) -> bool {
        let fate = &self.files[&file];
        !fate.is_tainted && fate.without_footer.is_empty()
    }

    fn is_published(&self, file: FileNo) -> bool {
        self.files.get(&file).is_some_and(|fate| fate.is_published)
    }

    /// Files that may stand under a path: what was committed last, and what was to replace it.
    fn standing(&self, path: PathNo) -> impl Iterator<Item = (FileNo, &FileFate)> {
        let committed = self.committed.get(&path).copied();
        let least = committed.map(|file| self.files[&file].version);
        let of_path = self.files.iter().filter(move |(file, _)| self.path_of(**file) == path);
        let may = move |(file, fate): &(&FileNo, &FileFate)| {
            Some(**file) == committed || fate.is_published && least.is_none_or(|least| fate.version > least)
        };
        of_path.filter(may).map(|(file, fate)| (*file, fate))
    }
}

impl Host {
    /// Whether a body holds a chunk as its digest says.
    fn holds(&self, view: DiskView, file: FileNo, chunk: &PlacedChunk) -> bool {
        let Some(Spot { target, slot }) = chunk.spot else { return true };
        let disk = &self.targets[target.0 as usize].disk;
        let Some(body) = disk.find(view, SetName::Body(file)) else { return false };
        let content = self.texts.chunk(disk.blocks(view, body.ino, slot_at(slot)));
        content.is_some_and(|(version, index)| digest_of_chunk(version, index) == chunk.digest)
    }

    /// The last record of each chunk of a file, by its medium.
    fn recorded(&self, file: FileNo, fate: &FileFate) -> BTreeMap<u64, PlacedChunk> {
        let stripe = self.stripe_in(DiskView::Medium, fate.home, fate.stripe.ino);
        let blocks = stripe.filter(|stripe| stripe.header.file == file).map(|stripe| stripe.blocks);
        blocks.into_iter().flatten().flat_map(|block| block.chunks).map(|chunk| (chunk.index.0, chunk)).collect()
    }

    /// Notes records that are about to be appended.
    pub(crate) fn note_records(&mut self, file: FileNo, chunks: &[PlacedChunk]) {
        let Some(fate) = self.ledger.files.get(&file) else { return };
        let loser =
            chunks.iter().find(|chunk| chunk.spot.is_some_and(|spot| !fate.won.contains(&(chunk.index.0, spot))));
        if let Some(chunk) = loser {
            let (index, spot) = (chunk.index.0, chunk.spot);
            self.ledger
                .broken(|| format!("chunk {index} of file {} is recorded at {spot:?}, whose write lost", file.0));
        }
    }

    /// Notes chunks that are called durable.
    pub(crate) fn note_journalled(&mut self, file: FileNo, chunks: &[PlacedChunk]) {
        if let Some(fate) = self.ledger.files.get_mut(&file) {
            fate.journalled.extend(chunks.iter().map(|chunk| chunk.index.0));
        }
        self.ledger.journal.insert(file);
        let footers = |()| (0..self.targets.len()).try_for_each(|target| self.check_footer(target, file));
        let broken = self.journalled_is_there(file).and_then(footers).err();
        broken.into_iter().for_each(|why| self.ledger.broken(|| format!("as it is called durable: {why}")));
    }

    /// Whether every chunk that was called durable is on the media.
    fn journalled_is_there(&self, file: FileNo) -> Result<(), String> {
        let fate = &self.ledger.files[&file];
        if fate.is_tainted || fate.is_discarded {
            return Ok(());
        }
        let home = &self.targets[fate.home].disk;
        let names = [SetName::Temp(file), SetName::Final(self.ledger.path_of(file))];
        if !names.iter().any(|name| home.find(DiskView::Medium, *name) == Some(fate.stripe)) {
            return Err(format!("the stripe file of file {} has no name", file.0));
        }
        let recorded = self.recorded(file, fate);
        for index in &fate.journalled {
            let Some(chunk) = recorded.get(index) else {
                return Err(format!("chunk {index} of file {} is not recorded", file.0));
            };
            if !self.holds(DiskView::Medium, file, chunk) {
                return Err(format!("chunk {index} of file {} is not at {:?}", file.0, chunk.spot));
            }
        }
        Ok(())
    }

    /// Notes that a file is about to get its name.
    pub(crate) fn note_publish(&mut self, file: FileNo) {
        self.ledger.files.entry(file).and_modify(|fate| fate.is_published = true);
        let broken = self.is_durable(file).err();
        broken.into_iter().for_each(|why| self.ledger.broken(|| format!("as it gets its name: {why}")));
    }

    /// Whether a file is whole and right on the media, with all of its footers.
    fn is_durable(&self, file: FileNo) -> Result<(), String> {
        let fate = &self.ledger.files[&file];
        if fate.is_tainted {
            return Ok(());
        }
        let stripe = self.stripe_in(DiskView::Medium, fate.home, fate.stripe.ino);
        let Some(whole) = stripe.as_ref().and_then(|stripe| stripe.header.whole) else {
            return Err(format!("the stripe file of file {} is not whole", file.0));
        };
        let recorded = self.recorded(file, fate);
        let read = stripe.map_or(0, |stripe| stripe.blocks.len());
        if read < whole.1 as usize {
            return Err(format!("file {} has {read} of {} blocks of records", file.0, whole.1));
        }
        for (index, content) in (0..).zip(self.ledger.content(fate.version)) {
            let chunk = recorded.get(&index).filter(|chunk| chunk.spot.is_none() == content.is_none());
            let is_right = |chunk: &&PlacedChunk| chunk.digest == digest_of_chunk(fate.version, index);
            let chunk = chunk.filter(is_right).filter(|chunk| self.holds(DiskView::Medium, file, chunk));
            chunk.ok_or_else(|| format!("chunk {index} of file {} is not durable", file.0))?;
        }
        let used: BTreeSet<usize> =
            recorded.values().filter_map(|chunk| chunk.spot).map(|spot| spot.target.0 as usize).collect();
        used.difference(&fate.without_footer).try_for_each(|target| self.has_footer(file, *target, &recorded))
    }

    fn has_footer(&self, file: FileNo, target: usize, recorded: &BTreeMap<u64, PlacedChunk>) -> Result<(), String> {
        let missing = || format!("the body of file {} on target {target} has no footer", file.0);
        let disk = &self.targets[target].disk;
        let body = disk.find(DiskView::Medium, SetName::Body(file)).ok_or_else(missing)?;
        let (_, footer) = self.footer_in(DiskView::Medium, target, body.ino).ok_or_else(missing)?;
        let on = |chunk: &&PlacedChunk| chunk.spot.is_some_and(|spot| spot.target.0 as usize == target);
        let says: BTreeSet<u64> = footer.placed.iter().filter(on).map(|chunk| chunk.index.0).collect();
        let has: BTreeSet<u64> = recorded.values().filter(on).map(|chunk| chunk.index.0).collect();
        (says == has).then_some(()).ok_or_else(|| format!("the footer of file {} on target {target} is wrong", file.0))
    }

    /// Notes that a file is called committed.
    pub(crate) fn note_committed(&mut self, file: FileNo) {
        let (path, fate) = (self.ledger.path_of(file), &self.ledger.files[&file]);
        if self.targets[fate.home].disk.find(DiskView::Medium, SetName::Final(path)) != Some(fate.stripe) {
            self.ledger.broken(|| format!("file {} is called committed, and its name is not durable", file.0));
        }
        self.ledger.committed.insert(path, file);
        self.ledger.journal.remove(&file);
        self.seen.committed += 1;
    }

    /// Checks every promise, after a crash and at the end.
    pub(crate) fn check(&mut self, view: DiskView) {
        if self.is_swapped {
            // Nobody reads a set that is refused.
            return;
        }
        let paths: BTreeSet<PathNo> = self.ledger.versions.iter().map(|version| version.path).collect();
        let broken = paths.into_iter().find_map(|path| self.check_path(view, path).err());
        let broken =
            broken.or_else(|| self.ledger.journal.iter().find_map(|file| self.journalled_is_there(*file).err()));
        let broken = broken.or_else(|| self.check_footers().err());
        broken.into_iter().for_each(|why| self.ledger.broken(|| why));
    }

    /// Checks that a path shows what was committed, or what was to replace it.
    fn check_path(&mut self, view: DiskView, path: PathNo) -> Result<(), String> {
        let found = self.read(view, path);
        let committed = self.ledger.committed.get(&path).copied();
        let cannot_read = |target: &usize| self.targets[*target].is_away || self.targets[*target].fails(self.now);
        let is_excused = |fate: &FileFate| fate.is_tainted || fate.touches.iter().any(cannot_read);
        let excused = self.ledger.standing(path).any(|(_, fate)| is_excused(fate));
        match found {
            Found::Bytes(file, content) => {
                let version = self.ledger.files[&file].version;
                if content != self.ledger.content(version) {
                    return Err(format!("path {} shows wrong bytes", path.0));
                }
                let is_one = self.ledger.standing(path).any(|(other, _)| other == file);
                let is_allowed = is_one || excused && self.ledger.is_published(file);
                if !is_allowed {
                    return Err(format!("path {} shows file {}, and {committed:?} was committed", path.0, file.0));
                }
            }
            Found::Nothing if committed.is_none() || excused => {}
            Found::Nothing => return Err(format!("path {} shows nothing, and {committed:?} was committed", path.0)),
            // Nobody was promised anything, and a target that may have the name cannot be read.
            Found::Said(_) if excused || committed.is_none() && (0..self.targets.len()).any(|at| cannot_read(&at)) => {
                self.seen.said += 1;
            }
            Found::Said(why) => {
                return Err(format!("path {} cannot be read, of which {committed:?} was committed: {why}", path.0));
            }
        }
        let whole = committed.filter(|file| !is_excused(&self.ledger.files[file]));
        whole.map_or(Ok(()), |file| match self.ledger.standing(path).count() {
            1 => self.is_durable(file),
            _ => Ok(()),
        })
    }

    /// A footer is a promise of the chunks before it.
    fn check_footers(&self) -> Result<(), String> {
        let names = self.names(DiskView::Medium, SetDir::Bodies);
        names.into_iter().try_for_each(|(target, name)| match name {
            SetName::Body(file) => self.check_footer(target, file),
            SetName::Temp(_) | SetName::Final(_) => Ok(()),
        })
    }

    fn check_footer(&self, target: usize, file: FileNo) -> Result<(), String> {
        if self.ledger.files.get(&file).is_some_and(|fate| fate.is_tainted) {
            return Ok(());
        }
        let Some(node) = self.targets[target].disk.find(DiskView::Medium, SetName::Body(file)) else { return Ok(()) };
        let Some((at, footer)) = self.footer_in(DiskView::Medium, target, node.ino) else { return Ok(()) };
        let spots = footer.placed.iter().filter_map(|chunk| Some((chunk, chunk.spot?)));
        let is_there = |(chunk, spot): &(&PlacedChunk, Spot)| {
            slot_at(spot.slot) + TEXT_BLOCKS <= at && self.holds(DiskView::Medium, file, chunk)
        };
        let missing = spots.filter(|(_, spot)| spot.target.0 as usize == target).find(|placed| !is_there(placed));
        missing.map_or(Ok(()), |(chunk, _)| {
            let index = chunk.index.0;
            Err(format!("the footer of file {} on target {target} names chunk {index}, which is not there", file.0))
        })
    }

    /// Checks what a rebuild has made of a path whose stripe file was lost: its committed version,
    /// or nothing. Returns whether it was made.
    pub(crate) fn check_rebuilt(&mut self, path: PathNo, file: FileNo) -> bool {
        let version = self.ledger.files[&file].version;
        match self.read(DiskView::Cached, path) {
            Found::Nothing => false,
            Found::Bytes(found, content) if found == file && content == self.ledger.content(version) => true,
            other => {
                self.ledger.broken(|| format!("path {} of file {} was rebuilt as {other:?}", path.0, file.0));
                false
            }
        }
    }
}
