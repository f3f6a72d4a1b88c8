//! The limit of `mem`: per lane one thread that hashes and sends and one that receives and hashes,
//! and nothing else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use anyhow::{Result, anyhow, ensure};
use longhaul_core::{ChunkHasher, ChunkIndex, ChunkSize, DigestKind};
use longhaul_engine::{LANES_DEFAULT, MEMORY_DEFAULT, Protection};
use longhaul_net::{Identity, LaneStream};
use longhaul_sys::Slab;

use crate::kit::{Sides, thread_cpu_s};

/// Carries `bytes`, a multiple of the chunk size.
pub(crate) fn carry(protection: Protection, bytes: u64) -> Result<Sides> {
    let (out, into) = (slab()?, slab()?);
    let next = AtomicU64::new(0);
    let chunks = bytes / ChunkSize::DEFAULT.bytes();
    let lanes = (0..LANES_DEFAULT).map(|_| pair(protection)).collect::<Result<Vec<_>>>()?;
    let (sender, receiver, received) = thread::scope(|scope| {
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for (a, b) in lanes {
            senders.push(
                scope.spawn(|| send(a, &out, || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|n| *n < chunks))),
            );
            receivers.push(scope.spawn(|| receive(b, &into)));
        }
        let (mut sender, mut receiver, mut received) = (0.0, 0.0, 0);
        for thread in senders {
            sender += thread.join().map_err(|_| anyhow!("a sender panicked"))??;
        }
        for thread in receivers {
            let (cpu_s, chunks) = thread.join().map_err(|_| anyhow!("a receiver panicked"))??;
            receiver += cpu_s;
            received += chunks;
        }
        Ok::<_, anyhow::Error>((sender, receiver, received))
    })?;
    ensure!(received == chunks, "{received} of {chunks} chunks arrived");
    Ok(Sides { sender_cpu_s: Some(sender), receiver_cpu_s: Some(receiver), stages_cpu_s: Vec::new() })
}

fn send(mut lane: LaneStream, slab: &Arc<Slab>, mut next: impl FnMut() -> Option<u64>) -> Result<f64> {
    let before = thread_cpu_s();
    while let Some(n) = next() {
        let slot = slab.claim().ok_or_else(|| anyhow!("no buffer"))?;
        let mut hasher = hasher(n);
        for piece in slot.chunks(PIECE) {
            hasher.update(piece);
            lane.send(&[piece])?;
        }
        std::hint::black_box(hasher.finish());
    }
    lane.finish();
    Ok(thread_cpu_s() - before)
}

fn receive(mut lane: LaneStream, slab: &Arc<Slab>) -> Result<(f64, u64)> {
    let before = thread_cpu_s();
    for n in 0.. {
        let mut slot = slab.claim().ok_or_else(|| anyhow!("no buffer"))?;
        let mut hasher = hasher(n);
        for (at, piece) in slot.chunks_mut(PIECE).enumerate() {
            match lane.recv_or_end(piece)? {
                true => hasher.update(piece),
                false => {
                    ensure!(at == 0, "a lane ended within a chunk");
                    return Ok((thread_cpu_s() - before, n));
                }
            }
        }
        std::hint::black_box(hasher.finish());
    }
    Err(anyhow!("a lane without end"))
}

fn hasher(n: u64) -> ChunkHasher {
    ChunkHasher::new(DigestKind::Cv, ChunkIndex(n).start(ChunkSize::DEFAULT))
}

fn pair(protection: Protection) -> Result<(LaneStream, LaneStream)> {
    Ok(match protection {
        Protection::Safe => LaneStream::pair()?,
        Protection::Private => LaneStream::pair_private(&Identity::generate()?, &Identity::generate()?)?,
    })
}

fn slab() -> Result<Arc<Slab>> {
    let chunk = ChunkSize::DEFAULT.bytes();
    Ok(Slab::new(chunk as usize, (MEMORY_DEFAULT.get() / chunk) as usize)?)
}

/// The size of a piece, as the engine's lanes have it.
const PIECE: usize = 256 << 10;
