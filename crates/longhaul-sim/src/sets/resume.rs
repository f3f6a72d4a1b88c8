//! The beginning of a process after an earlier one: files that are continued from their records,
//! those that are begun anew, and what is swept away. The rules are those of `longhaul-disk`'s
//! `set/spread/stripes.rs`.
//!
//! In: the targets as programs see them, and the journal. Out: files to be written. Must not know
//! what happened before.

use std::collections::BTreeMap;

use longhaul_core::TargetId;
use longhaul_core::stripe::Draft;

use super::disk::{DiskView, NodeId, SetDir, SetName};
use super::host::{Host, Purpose};
use super::mutants::SetMutant;
use super::plan::OnUse;
use super::process::{Health, SetProcess};
use super::reading::records_at;
use super::striped::{DoerBody, SET_CHUNK, Stage, StripeDoer, map_of};
use super::target::{Order, OrderError};
use super::texts::{FileNo, SetText, StripeHeader, TEXT_BLOCKS, VersionNo};

/// The fate of a file that an earlier process left.
enum Resumed {
    Continued(Box<StripeDoer>),
    /// A part of it is not what was written.
    Unusable,
    /// It cannot be told yet.
    Later,
}

impl SetProcess {
    /// Takes over what the journal names, and sweeps what it does not name.
    pub(super) fn resume_all(&mut self, host: &mut Host) {
        // Of two files of one version, the later one is continued.
        let mut of_version: BTreeMap<VersionNo, FileNo> = BTreeMap::new();
        let journal: Vec<FileNo> = host.ledger.journal.iter().copied().collect();
        for file in journal {
            let version = host.ledger.files[&file].version;
            let older = match self.is_past(host, version) {
                true => Some(file),
                false => of_version.insert(version, file),
            };
            older.into_iter().for_each(|older| self.discard(host, older));
        }
        self.resuming = of_version.into_values().collect();
        for (target, name) in host.names(DiskView::Cached, SetDir::Tree) {
            let SetName::Temp(file) = name else { continue };
            if !host.ledger.journal.contains(&file) {
                host.order(target, Order::Remove(name), Purpose::Discard(file));
            }
        }
    }

    fn discard(&mut self, host: &mut Host, file: FileNo) {
        host.ledger.discards(file);
        let home = host.ledger.files[&file].home;
        host.order(home, Order::Remove(SetName::Temp(file)), Purpose::Discard(file));
    }

    /// Continues files that could not be continued before.
    pub(super) fn resume_more(&mut self, host: &mut Host) {
        for file in std::mem::take(&mut self.resuming) {
            match self.resume(host, file) {
                Resumed::Continued(doer) => {
                    host.seen.continued += 1;
                    host.say(|| format!("file {} is continued with {} chunks", file.0, doer.recorded.len()));
                    self.files.push(*doer);
                }
                Resumed::Unusable => {
                    host.say(|| format!("file {} cannot be continued", file.0));
                    host.seen.begun_anew += 1;
                    self.discard(host, file);
                }
                Resumed::Later => self.resuming.push(file),
            }
        }
        self.wake(host);
    }

    fn resume(&mut self, host: &mut Host, file: FileNo) -> Resumed {
        let fate = host.ledger.files[&file].clone();
        let home = fate.home;
        match host.targets[home].answers(host.now) {
            Err(OrderError::Io | OrderError::Hangs) => return Resumed::Later,
            Err(OrderError::NoSpace) | Ok(()) => {}
        }
        let planned = host.ledger.planned(fate.version).clone();
        let map = map_of(planned.chunks);
        let disk = &host.targets[home].disk;
        if disk.find(DiskView::Cached, SetName::Final(planned.path)) == Some(fate.stripe) {
            // It has its name, which may not be durable.
            let mut doer = StripeDoer::new((file, fate.version), (home, fate.stripe), Draft::new(map));
            doer.stage = Stage::Publish;
            return Resumed::Continued(Box::new(doer));
        }
        if disk.find(DiskView::Cached, SetName::Temp(file)) != Some(fate.stripe) {
            return Resumed::Unusable;
        }
        let stripe = host.stripe_in(DiskView::Cached, home, fate.stripe.ino);
        let Some(stripe) = stripe.filter(|stripe| stripe.header.file == file) else { return Resumed::Unusable };
        let is_in_use = host.is_in_use(home, fate.stripe.ino)
            || host
                .stands(DiskView::Cached, SetName::Body(file))
                .any(|(target, node)| host.is_in_use(target, node.ino));
        if is_in_use && !host.has(SetMutant::BodyInUseContinued) {
            return if self.plan.on_use == OnUse::Wait { Resumed::Later } else { Resumed::Unusable };
        }
        let (mut draft, mut bodies) = (Draft::new(map), BTreeMap::new());
        let mut doer_recorded = BTreeMap::new();
        for block in &stripe.blocks {
            bodies.extend(block.bodies.iter().copied());
            for chunk in &block.chunks {
                draft.recorded(*chunk);
                doer_recorded.insert(chunk.index.0, chunk.spot);
            }
        }
        if draft.bytes_there() < fate.journalled.len() as u64 * SET_CHUNK {
            return Resumed::Unusable;
        }
        let log_blocks = stripe.blocks.len() as u32;
        let mut found = BTreeMap::new();
        for (target, node) in bodies {
            match self.body_found(host, (file, &draft), target, node) {
                Ok(true) => {
                    found.insert(target, DoerBody { node, is_named: false, is_recorded: true });
                }
                Ok(false) => {}
                Err(resumed) => return resumed,
            }
        }
        if end_records(host, (home, fate.stripe.ino), log_blocks).is_err() {
            return Resumed::Unusable;
        }
        let mut doer = StripeDoer::new((file, fate.version), (home, fate.stripe), draft);
        doer.holes = doer_recorded.iter().filter(|(_, spot)| spot.is_none()).map(|(index, _)| *index).collect();
        (doer.recorded, doer.bodies, doer.log_blocks) = (doer_recorded, found, log_blocks);
        let missing: Vec<u64> = (0..planned.chunks).filter(|index| !doer.has(*index)).collect();
        doer.want(missing);
        remove_unrecorded(host, &doer);
        host.seen.resumed += doer.recorded.len() as u64;
        Resumed::Continued(Box::new(doer))
    }

    /// Whether a body is there, and is what was recorded.
    fn body_found(
        &self,
        host: &Host,
        (file, draft): (FileNo, &Draft),
        target: usize,
        node: NodeId,
    ) -> Result<bool, Resumed> {
        let on = TargetId(target as u32);
        let is_needed = draft.end_needed(on) > 0;
        match host.targets[target].answers(host.now) {
            Err(OrderError::Hangs) => return Err(Resumed::Later),
            Err(OrderError::Io) if is_needed => return Err(Resumed::Unusable),
            _ => {}
        }
        let disk = &host.targets[target].disk;
        let found = disk.find(DiskView::Cached, SetName::Body(file));
        let Some(found) = found else { return if is_needed { Err(Resumed::Unusable) } else { Ok(false) } };
        let chunks = draft.slots_on(on).iter().flatten().count();
        let is_long =
            disk.len(DiskView::Cached, found.ino) as u64 * SET_CHUNK / TEXT_BLOCKS as u64 >= draft.end_needed(on);
        let has_all = disk.blocks_used(DiskView::Cached, found.ino) >= chunks * TEXT_BLOCKS;
        if found == node && is_long && has_all { Ok(true) } else { Err(Resumed::Unusable) }
    }

    /// Whether a version was committed, or a later one of its path.
    pub(super) fn is_past(&self, host: &Host, version: VersionNo) -> bool {
        let path = host.ledger.planned(version).path;
        let committed = host.ledger.committed.get(&path);
        committed.is_some_and(|file| host.ledger.files[file].version >= version)
    }

    /// Begins the next versions, as many as are written at once.
    pub(super) fn start_files(&mut self, host: &mut Host) {
        for version in (0..host.ledger.versions.len() as u32).map(VersionNo) {
            if self.files.len() >= self.plan.files_at_once {
                return;
            }
            let path = host.ledger.planned(version).path;
            let with_path = |file: FileNo| host.ledger.path_of(file) == path;
            let is_busy =
                self.files.iter().any(|doer| with_path(doer.file)) || self.resuming.iter().any(|file| with_path(*file));
            if !self.is_past(host, version) && !is_busy && self.is_next(host, version) {
                self.start(host, version);
            }
        }
    }

    /// Whether all versions of the path before this one are past.
    fn is_next(&self, host: &Host, version: VersionNo) -> bool {
        let path = host.ledger.planned(version).path;
        let before = (0..version.0).map(VersionNo).filter(|other| host.ledger.planned(*other).path == path);
        before.into_iter().all(|other| self.is_past(host, other))
    }

    /// Begins a version. A name that stands keeps its target.
    fn start(&mut self, host: &mut Host, version: VersionNo) {
        let planned = host.ledger.planned(version).clone();
        if host.targets.iter().any(|target| target.fails(host.now)) {
            // The name may stand there. A new one is given once that can be told, or at random.
            if host.rng.permille(700) {
                return;
            }
        }
        let standing = host.stands(DiskView::Cached, SetName::Final(planned.path)).next();
        let mut homes: Vec<usize> = match standing {
            Some((home, _)) => vec![home],
            None => (0..self.targets.len()).collect(),
        };
        homes
            .retain(|home| self.targets[*home].health == Health::Well && host.targets[*home].answers(host.now).is_ok());
        if homes.is_empty() {
            return;
        }
        let home = *host.rng.pick(&homes);
        let file = FileNo(host.ledger.files.len() as u32);
        let Ok(stripe) = host.create(home, SetName::Temp(file)) else { return };
        let header = StripeHeader { file, path: planned.path, chunks: planned.chunks, whole: None };
        let header = host.texts.add(SetText::Header(header));
        host.put_text(home, stripe.ino, 0, header);
        host.ledger.begun(file, version, (home, stripe));
        host.say(|| format!("file {} of path {}, {} chunks, begins on {home}", file.0, planned.path.0, planned.chunks));
        let mut doer = StripeDoer::new((file, version), (home, stripe), Draft::new(map_of(planned.chunks)));
        let mut chunks: Vec<u64> = (0..planned.chunks).collect();
        for at in (1..chunks.len()).rev() {
            chunks.swap(at, host.rng.index(at + 1));
        }
        doer.want(chunks);
        self.files.push(doer);
        self.wake(host);
    }
}

/// Ends the records of a stripe file behind so many blocks.
fn end_records(host: &mut Host, (home, ino): (usize, usize), blocks: u32) -> Result<(), OrderError> {
    // A block behind one that was torn would count again once that one is written anew.
    host.cut(home, ino, records_at(blocks));
    if !host.has(SetMutant::CachedRecordsBelieved) {
        // A sync of them may have failed before: no later one would write them.
        for at in (0..=blocks as usize).map(|number| number * TEXT_BLOCKS) {
            let blocks = host.targets[home].disk.blocks(DiskView::Cached, ino, at);
            host.put(home, ino, at, blocks);
        }
    }
    // What was cut off may still be on the medium, and come back with a block that is appended.
    if host.has(SetMutant::CutNotSynced) { Ok(()) } else { host.sync(home, ino) }
}

/// Removes bodies that were made and never recorded, so that others can be made. One that an
/// earlier process may still write to stays.
pub(super) fn remove_unrecorded(host: &mut Host, doer: &StripeDoer) {
    let name = SetName::Body(doer.file);
    let unrecorded: Vec<_> = host.stands(DiskView::Cached, name).collect();
    for (target, node) in unrecorded.into_iter().filter(|(target, _)| !doer.bodies.contains_key(target)) {
        let answers = matches!(host.targets[target].answers(host.now), Ok(()) | Err(OrderError::NoSpace));
        if answers && !host.is_in_use(target, node.ino) {
            host.remove(target, name);
        }
    }
}
