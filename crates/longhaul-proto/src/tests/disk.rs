//! The disk of a world: completes the orders of `target` in any order, well or not, and reports
//! them.

use std::collections::BTreeSet;

use std::sync::Arc;

use longhaul_core::digest::{Digest, digest_of};
use longhaul_core::{Blame, ChunkIndex, ChunkMap, Clock, EntryKind, Fault, FaultCode, FileId};

use super::rng::Rng;
use super::target::{Op, Standing, Step, Target, Temp};
use crate::journal::HeldChunks;
use crate::receiver::{Base, EntryRef, JournalEntry, Partial, Receiver, Replace, Room, Seen, Surveyed};
use crate::time::Timestamp;

impl Target {
    /// The free room, if the plan limits it.
    fn room(&self) -> Option<Room> {
        let (room, taken) = self.room;
        room.map(|room| Room { device: 1, bytes: room - taken, inodes: None })
    }

    fn fate(&self, rng: &mut Rng) -> Result<(), Fault> {
        let (times, code) = self.faults;
        match rng.permille(times) {
            true => Err(Fault::new(code, Blame::Local, "the disk says no")),
            false => Ok(()),
        }
    }

    /// Completes one of the operations under way and reports it.
    pub(crate) fn step(&mut self, rng: &mut Rng, now: Timestamp, receiver: &mut Receiver) {
        let mut at = rng.below(self.ops.len());
        if matches!(self.ops[at], Op::Survey(_)) {
            // Surveys are done in the order given.
            let first = self.ops.iter().enumerate().filter_map(|(at, op)| match op {
                Op::Survey(held) => Some((held[0].id, at)),
                _ => None,
            });
            at = first.min().expect("there is one").1;
        }
        let op = self.ops.swap_remove(at);
        // A journal that fails ends the session: worlds of their own.
        let result = if matches!(op, Op::Journal(_)) { Ok(()) } else { self.fate(rng) };
        match op {
            Op::Survey(held) => {
                assert_eq!(held[0].id.0, self.surveyed);
                self.surveyed += held.len() as u64;
                let seen = held.iter().map(|held| self.fate(rng).map(|()| self.survey(held))).collect();
                receiver.handle_survey(now, held[0].id, seen);
            }
            Op::MeasureRoom => receiver.handle_measure_room(now, self.room()),
            Op::Create(held, created) => {
                self.temp(held.id).outstanding = 0;
                if result.is_err() {
                    self.temps.remove(&held.id);
                }
                receiver.handle_create(now, held.id, result.map(|()| created));
            }
            Op::Write { file, index, bytes } => {
                let data = |bytes: &&Vec<u8>| bytes.iter().any(|byte| *byte != 0);
                self.room.1 += bytes.as_ref().filter(data).map_or(0, |bytes| bytes.len() as u64);
                assert!(self.room.0.is_none_or(|room| self.room.1 <= room), "more is written than there is room for");
                let temp = self.temp(file);
                temp.outstanding -= 1;
                if result.is_ok() {
                    temp.written.insert(index.0);
                    if let Some(bytes) = bytes {
                        let start = temp.map.start_of(index).0 as usize;
                        temp.bytes[start..][..bytes.len()].copy_from_slice(&bytes);
                        self.maybe_spoil(rng, file, index.0, start);
                    }
                }
                receiver.handle_write(now, file, index, result);
            }
            Op::ReadStanding(files) => {
                let root = |bytes: Vec<u8>| *blake3::hash(&bytes).as_bytes();
                let results = files.iter().map(|held| (held.id, self.read_standing(rng, held).map(root))).collect();
                receiver.handle_read_standing(now, results);
            }
            Op::DigestSkipped(files) => {
                let mut results = Vec::new();
                for held in &files {
                    let read = self.read_standing(rng, held);
                    receiver.handle_digest_progress(read.as_ref().map_or(0, Vec::len) as u64);
                    results.push((held.id, read.map(|bytes| Some(*blake3::hash(&bytes).as_bytes()))));
                }
                receiver.handle_digest_skipped(now, results);
            }
            Op::ReadStandingChunks { base, chunks } => {
                let results = chunks
                    .into_iter()
                    .map(|index| (index, self.read_standing_chunk(rng, &base, index).map(|(_, digest)| digest)));
                let results = results.collect();
                receiver.handle_read_standing_chunks(now, base.entry.id, results);
            }
            Op::Copy { base, index, digest } => {
                let read =
                    self.read_standing_chunk(rng, &base, index).and_then(|(bytes, found)| match found == digest {
                        true => Ok(bytes),
                        false => Err(written_to()),
                    });
                self.stood.copies += 1;
                let file = base.entry.id;
                let temp = self.temp(file);
                temp.outstanding -= 1;
                let result = result.and(read).map(|bytes| {
                    temp.written.insert(index.0);
                    let start = temp.map.start_of(index).0 as usize;
                    temp.bytes[start..][..bytes.len()].copy_from_slice(&bytes);
                    start
                });
                if let Ok(start) = result {
                    self.maybe_spoil(rng, file, index.0, start);
                }
                receiver.handle_write(now, file, index, result.map(drop));
            }
            Op::Retouch(files) => {
                let results = files.iter().map(|held| (held.id, self.retouch(rng, held))).collect();
                receiver.handle_retouch(now, results);
            }
            Op::Stage(files) => {
                let results = files.into_iter().map(|(held, bytes)| (held.id, self.stage_one(rng, held.id, bytes)));
                let results = results.collect();
                receiver.handle_stage(now, results);
            }
            Op::Seal(file) => {
                let temp = self.temp(file);
                temp.outstanding -= 1;
                if result.is_ok() {
                    temp.steps.insert(Step::Staged);
                }
                receiver.handle_stage(now, vec![(file, result)]);
            }
            Op::Sync { file, speaks_for } => {
                let temp = self.temp(file);
                temp.outstanding -= 1;
                match result {
                    Ok(()) => temp.synced.extend(&speaks_for),
                    Err(_) => temp.unsynced = true,
                }
                receiver.handle_sync_data(now, file, result);
            }
            Op::ReadBack { file, chunks } => {
                self.temp(file).outstanding -= 1;
                let results = chunks.into_iter().map(|index| (index, self.fate(rng).map(|()| self.read(file, index))));
                let results = results.collect();
                receiver.handle_read_back(now, file, results);
            }
            Op::ReadBackStaged(files) => {
                self.checks.0 += files.len();
                let root = |temp: &Temp| *blake3::hash(&temp.bytes).as_bytes();
                let results = files.into_iter().map(|id| (id, self.fate(rng).map(|()| root(self.temp(id)))));
                let results = results.collect();
                receiver.handle_read_staged(now, results);
            }
            Op::Journal(records) => {
                if result.is_ok() {
                    records.iter().for_each(|record| self.remember(record));
                }
                receiver.handle_journal(now, result);
            }
            Op::Tidy => receiver.handle_tidy(Ok(())),
            Op::Barrier(batch) => {
                if result.is_ok() {
                    batch.iter().for_each(|id| self.make_staged_durable(*id));
                }
                receiver.handle_barrier(now, result);
            }
            Op::Publish(renames) => {
                let results = renames.into_iter().map(|(id, replace)| (id, self.rename(rng, id, replace))).collect();
                receiver.handle_publish(now, results);
            }
            Op::SyncDirs(batch) => {
                if result.is_ok() {
                    for id in &batch {
                        self.temp(*id).steps.insert(Step::RenameDurable);
                    }
                }
                receiver.handle_sync_dirs(now, result);
            }
            Op::FinishDirs(dirs) => {
                let results = dirs.iter().map(|held| (held.id, self.fate(rng))).collect();
                receiver.handle_finish_dirs(now, results);
            }
        }
    }

    /// The content of the standing file, if it can be read and nobody wrote to it since this entry
    /// read it first.
    fn read_standing(&mut self, rng: &mut Rng, held: &EntryRef) -> Result<Vec<u8>, Fault> {
        self.fate(rng)?;
        self.stood.reads += 1;
        if rng.permille(self.stood.restless)
            && let Some(byte) = self.stood.contents.get_mut(&held.placed).and_then(|bytes| bytes.first_mut())
        {
            *byte ^= 0xff;
            *self.stood.versions.entry(held.placed.clone()).or_default() += 1;
        }
        self.untouched(held)?;
        Ok(match self.names.get(&held.placed) {
            Some(Standing::File(_, bytes)) => bytes.clone(),
            _ => self.stood.contents.get(&held.placed).cloned().ok_or_else(written_to)?,
        })
    }

    fn untouched(&mut self, held: &EntryRef) -> Result<(), Fault> {
        let version = self.stood.versions.get(&held.placed).copied().unwrap_or_default();
        match *self.stood.read.entry(held.id).or_insert(version) == version {
            true => Ok(()),
            false => Err(written_to()),
        }
    }

    fn read_standing_chunk(
        &mut self,
        rng: &mut Rng,
        base: &Base,
        index: ChunkIndex,
    ) -> Result<(Vec<u8>, Digest), Fault> {
        let bytes = self.read_standing(rng, &base.entry)?;
        let (start, len) = (base.map.start_of(index), base.map.len_of(index).expect("a chunk") as usize);
        let bytes = bytes.get(start.0 as usize..start.0 as usize + len).ok_or_else(written_to)?.to_vec();
        let digest = digest_of(&bytes, base.map.kind(), start);
        Ok((bytes, digest))
    }

    fn retouch(&mut self, rng: &mut Rng, held: &EntryRef) -> Result<(), Fault> {
        self.untouched(held)?;
        let restless = std::mem::take(&mut self.stood.restless);
        let bytes = self.read_standing(rng, held);
        self.stood.restless = restless;
        self.stood.equal.insert(held.id, bytes?);
        Ok(())
    }

    /// Lets the medium keep other bytes than were written, at times.
    fn maybe_spoil(&mut self, rng: &mut Rng, file: FileId, chunk: u64, start: usize) {
        let (spoils, place) = (self.medium.spoils, (self.temp(file).held.placed.clone(), chunk));
        let always = self.medium.always.contains(&place);
        let spoils = self.medium.is_read_back && (always || rng.permille(spoils));
        let temp = self.temp(file);
        temp.spoilt.remove(&chunk);
        if let Some(byte) = temp.bytes.get_mut(start).filter(|_| spoils) {
            *byte ^= 1;
            temp.spoilt.insert(chunk);
        }
    }

    /// The digest of a chunk as the medium gives it back. If it differs from the written one, the
    /// chunk counts as never written.
    fn read(&mut self, file: FileId, index: ChunkIndex) -> Digest {
        self.checks.0 += 1;
        let temp = self.temp(file);
        let (start, len) = (temp.map.start_of(index), temp.map.len_of(index).expect("a chunk") as usize);
        let kept = &temp.bytes[start.0 as usize..][..len];
        let digest = digest_of(kept, temp.map.kind(), start);
        if !temp.spoilt.contains(&index.0) {
            temp.checked.insert(index.0);
        } else {
            temp.written.remove(&index.0);
            temp.synced.remove(&index.0);
            self.checks.1 += 1;
        }
        digest
    }

    fn remember(&mut self, record: &JournalEntry) {
        if let JournalEntry::Chunks { file, chunks } = record
            && self.temps.contains_key(file)
        {
            self.make_durable(*file, &chunks.iter().map(|(index, _)| index.0).collect());
        }
    }

    /// The survey of a name: the standing file, and the partial of an earlier session.
    fn survey(&mut self, held: &EntryRef) -> Surveyed {
        let left = self.left.iter().find(|left| left.path == held.placed);
        let partial = left.map(|left| {
            let map = ChunkMap::new(left.bytes.len() as u64, left.chunk);
            let mut held = HeldChunks::new();
            for at in &left.held {
                let start = map.start_of(ChunkIndex(*at));
                let len = map.len_of(ChunkIndex(*at)).expect("a chunk") as usize;
                let digest = digest_of(&left.bytes[start.0 as usize..][..len], map.kind(), start);
                held.insert(ChunkIndex(*at), *digest.bytes());
            }
            Arc::new(Partial::new(map, left.source, held))
        });
        Surveyed { found: self.look(held), partial, committed: false, doubtful: false }
    }

    fn look(&mut self, held: &EntryRef) -> Seen {
        let seen = match self.names.get(&held.placed) {
            None => Seen::Absent,
            Some(Standing::Before(seen)) => seen.clone(),
            Some(Standing::File(_, bytes)) => {
                Seen::File { len: bytes.len() as u64, mtime: held.entry.meta.mtime, clock: Clock::Exact }
            }
            Some(Standing::Link(_, target)) => Seen::Symlink { target: target.clone() },
        };
        if held.entry.kind == EntryKind::Dir && seen == Seen::Absent && !self.dry_run {
            self.names.insert(held.placed.clone(), Standing::Before(Seen::Dir));
            return Seen::Dir;
        }
        seen
    }

    fn stage_one(&mut self, rng: &mut Rng, id: FileId, bytes: Vec<u8>) -> Result<(), Fault> {
        let result = self.fate(rng);
        match result {
            Ok(()) => {
                let is_file = matches!(self.temp(id).held.entry.kind, EntryKind::File { .. });
                let temp = self.temp(id);
                temp.bytes = bytes;
                temp.steps.insert(Step::Staged);
                if is_file {
                    self.maybe_spoil(rng, id, 0, 0);
                }
            }
            Err(_) => drop(self.temps.remove(&id)),
        }
        result
    }

    fn make_durable(&mut self, file: FileId, chunks: &BTreeSet<u64>) {
        let temp = self.temp(file);
        let map = temp.map;
        let new: Vec<u64> = chunks.difference(&temp.durable).copied().collect();
        temp.durable.extend(&new);
        self.durable_bytes += new.iter().filter_map(|at| map.len_of(ChunkIndex(*at))).sum::<u64>();
    }

    fn make_staged_durable(&mut self, id: FileId) {
        let temp = self.temp(id);
        temp.steps.insert(Step::Durable);
        if temp.held.entry.kind != EntryKind::Dir && !matches!(temp.held.entry.kind, EntryKind::Symlink { .. }) {
            let all = (0..temp.map.chunks()).collect();
            self.make_durable(id, &all);
        }
    }

    fn rename(&mut self, rng: &mut Rng, id: FileId, replace: Replace) -> Result<(), Fault> {
        self.fate(rng)?;
        let (placed, standing) = {
            let temp = self.temp(id);
            let standing = match temp.held.entry.kind {
                EntryKind::Symlink { .. } => Standing::Link(id, temp.bytes.clone()),
                _ => Standing::File(id, temp.bytes.clone()),
            };
            (temp.held.placed.clone(), standing)
        };
        match self.names.get(&placed) {
            Some(Standing::Before(Seen::Dir)) => {
                return Err(Fault::new(FaultCode::InTheWay, Blame::Local, "a directory stands there"));
            }
            Some(_) if replace == Replace::Never => {
                return Err(Fault::new(FaultCode::Exists, Blame::Local, "the name is taken"));
            }
            _ => drop(self.names.insert(placed, standing)),
        }
        self.temp(id).steps.insert(Step::Renamed);
        Ok(())
    }
}

fn written_to() -> Fault {
    Fault::new(FaultCode::Busy, Blame::Local, "somebody writes to what stands")
}
