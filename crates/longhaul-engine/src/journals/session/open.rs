//! Opens the temporary of a file: a new one, or the one of a partial.
//!
//! In: an order to open. Out: an open temporary and, where a partial is continued, the chunks that
//! are held. A new temporary is recorded before it stands; chunks of an old one that are not
//! trusted are recorded as lost before any of it is written anew. It knows no messages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::{Blame, ChunkMap, ChunkSize, EntryKind, Fault, FaultCode, TempName};
use longhaul_disk::{DiskError, ErrorKind, Journalled, TargetFile, TargetTree};
use longhaul_proto::journal::keeper::{FoundPartial, Proof};
use longhaul_proto::journal::{FileRecord, Record};
use longhaul_proto::receiver::{Created, EntryRef, Partial, Source};

use super::{SessionJournal, stamp_of};
use crate::budget;
use crate::random::nonce;

/// The temporary of a partial that is continued, and the chunks that are held.
type GoneOn = (Arc<TargetFile>, Arc<Partial>);

impl SessionJournal {
    /// Opens the temporary of a file: the partial's, if that is to be continued and stands, else a
    /// new one, which is recorded first.
    ///
    /// # Errors
    /// A [`Fault`] of the disk. A new temporary is removed then, and a partial stays as it is.
    pub(crate) fn open(
        &self,
        tree: &dyn TargetTree,
        entry: &EntryRef,
        partial: Option<&Arc<Partial>>,
        chunk: ChunkSize,
        preserve_holes: bool,
    ) -> Result<(Arc<TargetFile>, Created), Fault> {
        let (map, sparse) = match entry.entry.kind {
            EntryKind::File { len, sparse, .. } => (ChunkMap::new(len, chunk), sparse),
            EntryKind::Stream { .. } => (ChunkMap::unended(chunk), false),
            _ => return Err(Fault::new(FaultCode::Internal, Blame::Bug, "chunks for something that is no file")),
        };
        let sparse = sparse && preserve_holes;
        if let Some(found) = self.take_found(entry.id) {
            let gone_on = match partial {
                Some(partial) => self.go_on(tree, entry, sparse, &found, partial),
                None => {
                    warn_of_large_chunks(entry, map.len(), &found, chunk);
                    Ok(None)
                }
            };
            match gone_on {
                Ok(Some((file, proven))) => {
                    self.claims().files.continued(entry.id, &found);
                    return Ok((file, Created::Continued(proven)));
                }
                Ok(None) => self.drop_partial(tree, &entry.placed, &found)?,
                Err(fault) => {
                    // It still is what it was, for another session.
                    if let Some(claim) = self.claims().paths.get_mut(&entry.id) {
                        claim.found = Some(found);
                    }
                    return Err(fault);
                }
            }
        }
        self.make(tree, entry, map, sparse)
    }

    /// Makes a new temporary.
    fn make(
        &self,
        tree: &dyn TargetTree,
        entry: &EntryRef,
        map: ChunkMap,
        sparse: bool,
    ) -> Result<(Arc<TargetFile>, Created), Fault> {
        let mut random = [0; 8];
        random.copy_from_slice(&nonce()?[..8]);
        let temp = TempName::new(self.holder.tag, random);
        let (path, source) = (self.full(&entry.placed)?, stamp_of(entry));
        self.begin(std::iter::once(entry))?;
        let book = self.own()?;
        let record = FileRecord { number: 0, path, map, source, sparse, temp };
        let announced = book.as_ref().map(|book| book.announce(record));
        let entered = book.zip(announced.transpose()?);
        match (tree.create(&entry.placed, map, sparse, &temp), entered) {
            (Ok(file), entered) => {
                if let Some((book, record)) = entered {
                    self.claims().files.begun(entry.id, book.tag(), &record, file.node());
                }
                Ok((file, Created::Fresh))
            }
            (Err(error), Some((book, FileRecord { number, .. }))) => {
                book.append(vec![Record::Dropped { number }])?;
                Err(error.into())
            }
            (Err(error), None) => Err(error.into()),
        }
    }

    /// Continues a partial, as far as it is what its journal says. `None` if its temporary does not
    /// stand.
    fn go_on(
        &self,
        tree: &dyn TargetTree,
        entry: &EntryRef,
        sparse: bool,
        found: &FoundPartial,
        partial: &Arc<Partial>,
    ) -> Result<Option<GoneOn>, Fault> {
        let taken = &found.taken;
        let journalled = Journalled { node: taken.placed.map(|placed| placed.node), bytes: partial.bytes() };
        let map = partial.map();
        let reopened =
            once_let_go(|| tree.reopen(&entry.placed, map, sparse, &taken.file.temp, &journalled), LET_GO_WITHIN);
        let Some(reopened) = reopened? else { return Ok(None) };
        let held = longhaul_core::ByteCount(partial.bytes());
        tracing::debug!(target: "longhaul::journal", path = %entry.placed.escaped(), %held, "a file is gone on with, as its journal stands");
        let other_boot =
            (!found.is_of_boot(self.author.origin.boot)).then_some("the host was started anew since it was written");
        let file = reopened.file;
        let (proven, proof) = match reopened.differs.or(other_boot) {
            None => (partial.clone(), None),
            Some(why) => {
                let (proven, lost) = self.prove(tree, &file, partial, why)?;
                (proven, Some(Proof { lost, node: file.node() }))
            }
        };
        let offered = (partial.source() == Source::Changed).then(|| stamp_of(entry));
        self.write_steps(&found.continuing(offered, proof), &[])?;
        Ok(Some((file, proven)))
    }
}

/// Opens a temporary as soon as its last process has let go. Its journal is locked by us, so no
/// session that lives has it. But a process that was killed with I/O in flight, above all with
/// `io_uring`, keeps its files for a moment.
fn once_let_go<T>(open: impl Fn() -> Result<T, DiskError>, within: Duration) -> Result<T, DiskError> {
    let until = Instant::now() + within;
    loop {
        match open() {
            Err(error) if error.kind() == ErrorKind::InUse && Instant::now() < until => std::thread::sleep(LOOK_EVERY),
            outcome => return outcome,
        }
    }
}

/// Warns of a partial that is not continued because no buffer holds its chunks, and says which
/// setting would continue it.
fn warn_of_large_chunks(entry: &EntryRef, len: u64, found: &FoundPartial, chunk: ChunkSize) {
    let map = found.taken.file.map;
    if map.len() == len && map.size() > chunk {
        tracing::warn!(
            target: "longhaul::journal",
            path = %entry.placed.escaped(),
            chunk = %longhaul_core::ByteCount(map.size().bytes()),
            "what was received earlier of this file is sent again, as its chunks are too large for the buffers; with buffers of {} or more on the receiving side it would have been continued",
            budget::memory_for(map.size()),
        );
    }
}

/// How long a process's files are waited for. The kernel takes milliseconds to end a process's I/O;
/// on a loaded host, or with a disk that stalls, seconds.
const LET_GO_WITHIN: Duration = Duration::from_secs(5);
/// The wait between two attempts to open a file that is in use.
const LOOK_EVERY: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn what_a_killed_process_still_holds_is_opened_once_it_has_let_go() {
        let in_use = || DiskError::InUse { path: (&longhaul_core::RelPath::root()).into() };
        let tries = Cell::new(0);
        let open = || {
            tries.set(tries.get() + 1);
            if tries.get() < 3 { Err(in_use()) } else { Ok(tries.get()) }
        };
        assert_eq!(once_let_go(open, LET_GO_WITHIN).expect("it was let go"), 3);
        let held = once_let_go(|| Err::<(), _>(in_use()), Duration::ZERO);
        assert!(held.is_err_and(|error| error.kind() == ErrorKind::InUse), "not for ever");
    }
}
