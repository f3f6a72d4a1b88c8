//! Reads back the held chunks of a partial that is not what its journal says, or that an earlier
//! boot wrote.
//!
//! In: an open temporary and the journalled digests. Out: the chunks that the medium really holds,
//! and those that it does not. It ends soon when the session does. It decides nothing: `open`
//! records the chunks that are lost.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use longhaul_core::digest::{Digest, digest_of};
use longhaul_core::{Blame, ByteCount, ChunkIndex, Fault, FaultCode, hint};
use longhaul_disk::{TargetFile, TargetTree};
use longhaul_proto::journal::{HeldChunks, Stretch};
use longhaul_proto::receiver::Partial;
use longhaul_sys::Slab;

use super::{SessionJournal, lock};

/// The readings back of a session: one at a time, as each needs a buffer.
#[derive(Debug, Default)]
pub(super) struct Proofs {
    /// Locked while a partial is read back.
    turn: Mutex<()>,
    /// Whether nobody waits any more for partials that are read back.
    is_over: AtomicBool,
}

impl SessionJournal {
    /// Stops reading back at the next chunk, because the session is over.
    pub(crate) fn stop_proving(&self) {
        self.proofs.is_over.store(true, Ordering::Relaxed);
    }

    /// Reads every held chunk back from the medium. Returns those that are right, and those to
    /// revise away.
    pub(super) fn prove(
        &self,
        tree: &dyn TargetTree,
        file: &TargetFile,
        partial: &Arc<Partial>,
        why: &'static str,
    ) -> Result<(Arc<Partial>, Vec<Stretch>), Fault> {
        let (layout, map, path) = (tree.layout(), partial.map(), file.path().escaped());
        let _turn = lock(&self.proofs.turn);
        tracing::info!(
            target: "longhaul::journal",
            %path, bytes = %ByteCount(partial.bytes()), why, "what was received earlier is read back before it is gone on with"
        );
        let slab = Slab::new((map.size().bytes() as usize).max(BUFFER_BYTES_MIN), 1).map_err(|e| {
            Fault::new(FaultCode::Unsupported, Blame::Local, format_args!("cannot map a buffer to read back: {e}"))
                .hint(hint::Memory::Lower)
        })?;
        let mut slot = slab.claim().ok_or_else(interrupted)?;
        let (mut held, mut lost) = (HeldChunks::new(), Lost::default());
        for (index, digest) in partial.iter() {
            if self.proofs.is_over.load(Ordering::Relaxed) {
                return Err(interrupted());
            }
            let (start, len) = (map.start_of(index), map.len_of(index).unwrap_or(0) as usize);
            let found: Option<Digest> = match tree.read_back(file, layout.place_of(map, index), len, &mut slot) {
                Ok(back) => (back.len == len).then(|| digest_of(&slot[..len], map.kind(), start)),
                Err(error) => {
                    tracing::warn!(target: "longhaul::journal", %error, "a chunk cannot be read back and is sent again");
                    None
                }
            };
            if found == Some(digest) {
                held.insert(index, *digest.bytes());
            } else {
                lost.add(index);
            }
        }
        if !lost.0.is_empty() {
            let chunks: u64 = lost.0.iter().map(|stretch| stretch.count).sum();
            tracing::warn!(target: "longhaul::journal", %path, chunks, "chunks that were received earlier are damaged and are sent again");
        }
        Ok((Arc::new(Partial::new(map, partial.source(), held)), lost.0))
    }
}

/// Chunks that are not what they were, in order.
#[derive(Default)]
struct Lost(Vec<Stretch>);

impl Lost {
    fn add(&mut self, index: ChunkIndex) {
        match self.0.last_mut() {
            Some(last) if last.start.0 + last.count == index.0 => last.count += 1,
            _ => self.0.push(Stretch { start: index, count: 1 }),
        }
    }
}

fn interrupted() -> Fault {
    Fault::new(FaultCode::Interrupted, Blame::Local, "the session ended while an earlier one's data was read back")
}

/// Bytes of a buffer at least: direct reads come in whole blocks.
const BUFFER_BYTES_MIN: usize = 64 << 10;
