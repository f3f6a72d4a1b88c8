//! The results of jobs, as they are reported to the receiver's machine.
//!
//! Takes jobs that have come to their end; calls the machine's `handle_*`, and enters the chunks
//! that are called durable.

use std::collections::BTreeSet;
use std::sync::Arc;

use longhaul_core::digest::{Digest, Hash32, digest_of};
use longhaul_core::{Blame, ChunkIndex, Clock, DigestKind, EntryKind, Fault, FaultCode, FileId, FileOffset};
use longhaul_proto::receiver::{EntryRef, JournalEntry, Named, Seen, Surveyed};

use super::book::text;
use super::job::{Job, Then};
use super::{Phase, RecvSession, Temp, stamp_of};
use crate::env::Env;
use crate::events::Event;
use crate::fs::Node;
use crate::mutants::Mutant;

impl RecvSession {
    pub(super) fn report(&mut self, env: &mut Env, job: Job) {
        let now = env.clock.now();
        let result = job.result();
        let each = |ids: &[FileId]| ids.iter().map(|id| (*id, job.result_of(*id))).collect::<Vec<_>>();
        match &job.then {
            Then::Opened => self.opened(env, result),
            Then::Closed => self.closed(env),
            Then::Nothing => {}
            _ if self.phase != Phase::Running => {}
            Then::Surveyed(page, dirs) => {
                if result.is_ok() {
                    self.dirs.synced.extend(dirs.iter().cloned());
                }
                let found = page.iter().map(|held| self.surveyed(env, &job, held)).collect();
                self.machine.handle_survey(now, page[0].id, found);
            }
            // Where the room is not told, a write that does not fit fails.
            Then::Measured => self.machine.handle_measure_room(now, env.room()),
            Then::Created(file, created) => {
                if result.is_err() {
                    self.temps.remove(file);
                }
                self.machine.handle_create(now, *file, result.map(|()| created.clone()));
            }
            Then::Written(file, index) => self.written(env, (*file, *index), result),
            Then::Standing(files) => {
                let found = files.iter().map(|held| (held.id, self.read_standing(env, held))).collect();
                self.machine.handle_read_standing(now, found);
            }
            Then::SkippedDigested(files) => self.digest_skipped(env, files),
            Then::StandingChunks(base, chunks) => self.read_standing_chunks(env, base, chunks),
            Then::Retouched(ids) => self.retouched(env, each(ids)),
            Then::Staged(ids) => {
                let results = each(ids);
                for (id, result) in &results {
                    if result.is_err() && !self.book.is_recorded(*id) {
                        self.temps.remove(id);
                    }
                }
                self.machine.handle_stage(now, results);
            }
            Then::NotNamed(file, named) => self.named(env, *file, *named),
            Then::Named(file, root) => {
                let named = if result.is_ok() { Named::Staged(*root) } else { Named::Refused };
                self.named(env, *file, named);
            }
            Then::Synced(file, covered) => self.synced(env, *file, result.map(|()| covered)),
            Then::ReadBack(..) | Then::ReadInOrder(..) | Then::StagedReadBack(_) => self.read_again(env, &job.then),
            Then::Journalled(records) => {
                if result.is_ok() {
                    records.iter().for_each(|record| self.acknowledge(env, record));
                }
                self.machine.handle_journal(now, result);
            }
            Then::Barrier(postponed) => self.machine.handle_barrier(now, result.map(|()| postponed.clone())),
            Then::Published(ids) => self.machine.handle_publish(now, each(ids)),
            Then::DirsSynced => self.machine.handle_sync_dirs(now, result),
            // Standing names were made durable when they were surveyed; the journal goes when the
            // session is over.
            Then::Tidied => self.machine.handle_tidy(result.and_then(|()| env.tidied())),
            Then::DirsFinished(ids) => self.machine.handle_finish_dirs(now, each(ids)),
        }
    }

    /// Reads again what was written.
    fn read_again(&mut self, env: &mut Env, then: &Then) {
        let now = env.clock.now();
        match then {
            Then::ReadBack(file, chunks) => {
                let found = chunks.iter().map(|index| (*index, self.read_chunk(env, *file, *index))).collect();
                self.machine.handle_read_back(now, *file, found);
            }
            Then::ReadInOrder(file, chunks) => {
                let mut found: Vec<(ChunkIndex, Result<Digest, Fault>)> = Vec::new();
                for index in chunks {
                    // The first error ends it.
                    if found.last().is_some_and(|(_, last)| last.is_err()) {
                        break;
                    }
                    found.push((*index, self.read_written(env, *file, *index)));
                }
                self.machine.handle_read_in_order(now, *file, found);
            }
            Then::StagedReadBack(ids) => {
                let found = ids.iter().map(|id| (*id, self.read_small(env, *id))).collect();
                self.machine.handle_read_staged(now, found);
            }
            _ => {}
        }
    }

    /// A chunk is written, or that failed.
    fn written(&mut self, env: &mut Env, (file, index): (FileId, ChunkIndex), result: Result<(), Fault>) {
        if let Some(temp) = self.temps.get_mut(&file).filter(|_| result.is_ok()) {
            temp.unsynced.insert(index);
        }
        self.machine.handle_write(env.clock.now(), file, index, result);
    }

    /// A file is synced, but for the chunks that are lost, or that failed.
    fn synced(&mut self, env: &mut Env, file: FileId, covered: Result<&BTreeSet<ChunkIndex>, Fault>) {
        if let Some(temp) = self.temps.get_mut(&file) {
            temp.name_synced |= covered.is_ok();
        }
        let result = covered.map(|covered| self.lost(env, file, covered));
        self.machine.handle_sync_data(env.clock.now(), file, result);
    }

    /// The digest of a chunk on the medium, which lacks bytes that were never synced.
    fn read_chunk(&self, env: &mut Env, file: FileId, index: ChunkIndex) -> Result<Digest, Fault> {
        env.look()?;
        let temp = self.temps.get(&file).ok_or_else(gone)?;
        Ok(digest_in(temp, &env.fs.medium().content(temp.ino).bytes, index))
    }

    /// The digest of a chunk as it was written, be it synced or not.
    fn read_written(&self, env: &mut Env, file: FileId, index: ChunkIndex) -> Result<Digest, Fault> {
        env.look()?;
        let temp = self.temps.get(&file).ok_or_else(gone)?;
        Ok(digest_in(temp, &env.fs.cached().content(temp.ino).bytes, index))
    }

    /// The chunks that a sync gives up, as their target hangs: other bytes stand in their place.
    /// Some may have been written since it began.
    fn lost(&mut self, env: &mut Env, file: FileId, covered: &BTreeSet<ChunkIndex>) -> Vec<ChunkIndex> {
        let often = env.plan.rates.hangs.chunks;
        let Some(temp) = self.temps.get_mut(&file) else { return Vec::new() };
        let lost = covered.iter().chain(&temp.unsynced).filter(|_| env.mishap(often));
        let lost: Vec<ChunkIndex> = lost.copied().collect();
        temp.unsynced.retain(|index| !lost.contains(index));
        for index in &lost {
            let noise = env.rng.bytes(temp.map.len_of(*index).unwrap_or(0) as usize);
            env.fs.overwrite(temp.ino, temp.map.start_of(*index).0 as usize, noise);
        }
        temp.lost.extend(&lost);
        env.seen.chunks_lost += lost.len() as u64;
        if env.is(Mutant::LostIsSynced) { Vec::new() } else { lost }
    }

    fn read_small(&self, env: &mut Env, file: FileId) -> Result<Hash32, Fault> {
        env.look()?;
        let temp = self.temps.get(&file).ok_or_else(gone)?;
        Ok(*digest_of(&env.fs.medium().content(temp.ino).bytes, DigestKind::Root, FileOffset(0)).bytes())
    }

    fn opened(&mut self, env: &mut Env, result: Result<(), Fault>) {
        match result {
            Ok(()) if self.phase == Phase::Opening => {
                self.phase = Phase::Running;
                // The first page needs no offer.
                env.clock.after(0, Event::Scan(self.no));
            }
            Ok(()) => {}
            Err(fault) => {
                env.say(|| format!("s{} has no journal: {fault}", self.no.0));
                self.say(env, &longhaul_proto::Message::Refuse(fault));
                self.close(env);
            }
        }
    }

    /// The result of the survey of a name, which may fail alone.
    fn surveyed(&mut self, env: &mut Env, job: &Job, held: &EntryRef) -> Result<Surveyed, Fault> {
        self.dirs.pass(held)?;
        let stands_for_itself = !matches!(held.entry.kind, EntryKind::DirEnd | EntryKind::Unsent { .. });
        let looked = job.result_of(held.id).and_then(|()| if stands_for_itself { env.examine() } else { Ok(()) });
        looked.inspect_err(|fault| self.dirs.fail(held, fault))?;
        Ok(self.look(env, held))
    }

    /// The survey of a name: the standing file, and the partial of an earlier session.
    fn look(&self, env: &Env, held: &EntryRef) -> Surveyed {
        let path = text(&held.placed);
        let view = env.fs.cached();
        let seen = match view.names.get(&path) {
            None => Seen::Absent,
            Some(Node::Dir) => Seen::Dir,
            Some(Node::Special) => Seen::Special,
            Some(Node::Link(target)) => Seen::Symlink { target: target.clone() },
            Some(Node::File(ino)) => {
                let content = view.content(*ino);
                Seen::File { len: content.bytes.len() as u64, mtime: content.time, clock: Clock::Exact }
            }
        };
        let stamp = stamp_of(held).filter(|_| !env.is(Mutant::Forgetful));
        let partial = stamp.and_then(|stamp| self.book.partial(&path, stamp));
        let committed = stamp.is_some_and(|stamp| self.book.was_done(&path, stamp));
        Surveyed { found: seen, partial, committed, doubtful: false }
    }

    /// Enters chunks that are called durable from now on.
    fn acknowledge(&mut self, env: &mut Env, record: &JournalEntry) {
        let JournalEntry::Chunks { file, chunks } = record else { return };
        let Some(temp) = self.temps.get(file) else { return };
        let held: &Arc<EntryRef> = &temp.entry;
        if let (Some(stamp), EntryKind::File { .. }) = (stamp_of(held), &held.entry.kind) {
            let bytes: u64 = chunks.iter().filter_map(|(at, _)| temp.map.len_of(*at)).sum();
            *self.durable.entry(*file).or_default() += bytes;
            env.ack(&text(&held.placed), stamp, temp.map, chunks);
        }
    }
}

/// The digest of a chunk of a file that has these bytes.
fn digest_in(temp: &Temp, bytes: &[u8], index: ChunkIndex) -> Digest {
    let (start, len) = (temp.map.start_of(index), temp.map.len_of(index).unwrap_or(0) as usize);
    let kept = bytes.get(start.0 as usize..).unwrap_or_default();
    digest_of(&kept[..kept.len().min(len)], temp.map.kind(), start)
}

fn gone() -> Fault {
    Fault::new(FaultCode::Internal, Blame::Bug, "a look at what is not there")
}
