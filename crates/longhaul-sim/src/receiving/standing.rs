//! Reads standing files to compare them, and copies equal chunks into the temporary.
//!
//! Takes orders; gives digests and starts jobs. Only the sessions write to standing files, so there
//! is no version to watch here. Judges nothing.

use std::sync::Arc;

use longhaul_core::digest::{Digest, Hash32, digest_of};
use longhaul_core::{Blame, ChunkIndex, DigestKind, Fault, FaultCode, FileId, FileOffset};
use longhaul_proto::receiver::{Base, EntryRef};

use super::RecvSession;
use super::book::text;
use super::job::{Job, Step, Then};
use crate::env::Env;
use crate::fs::{Ino, Op};
use crate::mutants::Mutant;

impl RecvSession {
    /// The root of the standing file under a small file's name.
    pub(super) fn read_standing(&self, env: &mut Env, held: &EntryRef) -> Result<Hash32, Fault> {
        let ino = look_at(env, held)?;
        let bytes = &env.fs.cached().content(ino).bytes;
        Ok(*digest_of(bytes, DigestKind::Root, FileOffset(0)).bytes())
    }

    /// Reports the digests of the standing file in the places of chunks.
    pub(super) fn read_standing_chunks(&mut self, env: &mut Env, base: &Base, chunks: &[ChunkIndex]) {
        let digest = |bytes: &[u8], index| digest_of(bytes, base.map.kind(), base.map.start_of(index));
        let read = |index: &ChunkIndex| (*index, standing_chunk(env, base, *index).map(|bytes| digest(&bytes, *index)));
        let found = chunks.iter().map(read).collect();
        self.machine.handle_read_standing_chunks(env.clock.now(), base.entry.id, found);
    }

    /// Reports files that were found equal, if nobody wrote to them meanwhile.
    pub(super) fn retouched(&mut self, env: &mut Env, results: Vec<(FileId, Result<(), Fault>)>) {
        let results = results.into_iter().map(|(id, result)| (id, result.and(env.untouched(id)))).collect();
        self.machine.handle_retouch(env.clock.now(), results);
    }

    /// Reads skipped files for their roots.
    pub(super) fn digest_skipped(&mut self, env: &mut Env, files: &[Arc<EntryRef>]) {
        let mut found = Vec::new();
        for held in files {
            let root = self.read_standing(env, held);
            let len = standing(env, held).map_or(0, |ino| env.fs.cached().content(ino).bytes.len());
            self.machine.handle_digest_progress(if root.is_ok() { len as u64 } else { 0 });
            found.push((held.id, root.map(Some)));
        }
        self.machine.handle_digest_skipped(env.clock.now(), found);
    }

    /// Writes a chunk of the standing file to the temporary, if it still has its digest.
    pub(super) fn copy(&mut self, env: &mut Env, base: &Base, index: ChunkIndex, digest: Digest) {
        let mut job = Job::new(Then::Written(base.entry.id, index));
        let Some(temp) = self.temps.get(&base.entry.id) else {
            return env.violate(|| format!("a copy of {:?} without its temporary", base.entry.id));
        };
        let (start, ino) = (base.map.start_of(index), temp.ino);
        env.seen.copied += 1;
        match standing_chunk(env, base, index) {
            Ok(bytes) if digest_of(&bytes, base.map.kind(), start) != digest => {
                job.failed = Some(Fault::new(FaultCode::Busy, Blame::Local, "what stands there was written to"));
            }
            Ok(_) if env.is(Mutant::EqualNotCopied) => {}
            Ok(bytes) => job = job.op(Op::Write { ino, offset: start.0 as usize, bytes }),
            Err(fault) => job.failed = Some(fault),
        }
        self.start_job(env, job);
    }

    /// Sets the times of files that were found equal.
    pub(super) fn retouch(&mut self, env: &mut Env, files: &[Arc<EntryRef>], metadata: bool) {
        let mut job = Job::new(Then::Retouched(files.iter().map(|held| held.id).collect()));
        for held in files.iter().filter(|_| metadata) {
            if let Ok(ino) = standing(env, held) {
                job = job.step(Step::new(Op::SetTime(ino, held.entry.meta.mtime)).of(held.id));
            }
        }
        self.start_job(env, job);
    }
}

/// The file that stands under an entry's name.
fn standing(env: &Env, held: &EntryRef) -> Result<Ino, Fault> {
    let gone = || Fault::new(FaultCode::NotFound, Blame::Local, "nothing stands there any more");
    env.fs.cached().file(&text(&held.placed)).ok_or_else(gone)
}

/// The file that stands under an entry's name, and is looked at now.
fn look_at(env: &mut Env, held: &EntryRef) -> Result<Ino, Fault> {
    let ino = standing(env, held)?;
    env.look_at_standing(held.id, ino, &text(&held.placed)).map(|()| ino)
}

fn standing_chunk(env: &mut Env, base: &Base, index: ChunkIndex) -> Result<Vec<u8>, Fault> {
    let ino = look_at(env, &base.entry)?;
    let bytes = &env.fs.cached().content(ino).bytes;
    let (start, len) = (base.map.start_of(index).0 as usize, base.map.len_of(index).unwrap_or(0) as usize);
    let short = || Fault::new(FaultCode::Busy, Blame::Local, "what stands there is shorter than it was");
    Ok(bytes.get(start..start + len).ok_or_else(short)?.to_vec())
}
