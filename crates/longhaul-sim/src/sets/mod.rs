//! Worlds of target sets: the real machines of striped files
//! ([`Draft`](longhaul_core::stripe::Draft),
//! [`ChunkScheduler`](longhaul_core::load::ChunkScheduler)) over virtual targets that are slow,
//! hang, fail, are full, lose their caches, come back as they were before, or are exchanged.
//!
//! In: seeds. Out: a world that ended as it should, or the first broken promise. What carries the
//! machines' decisions out is a model of `longhaul-disk`'s `destination/striped.rs`, in the order
//! that `docs/SETS.md` demands. It knows no sessions, and nothing of where chunks come from.

mod check;
mod commit;
mod disk;
mod host;
mod mutants;
mod pass;
mod plan;
mod play;
mod process;
mod reading;
mod resume;
mod striped;
mod target;
mod texts;
mod world;

pub use mutants::SetMutant;
pub use play::{SetOptions, SetPlayed, SetTallies, play_many_sets, play_set};
