//! A simulator: the real sender and receiver machines, with a virtual clock, link and disk, from
//! one seed. Journals have the real format, are replayed by the real code, and what is written to
//! them is decided by the real machine (`crates/longhaul-proto/src/journal/keeper`). Everything
//! that can go wrong does, and the promises are checked at every step.
//!
//! Worlds of seeds play a whole command, with crashes. Worlds of one session play what may be the
//! case at the destination, and what may go wrong besides; the receiver's orders are held to their
//! rules there (`watched`).
//!
//! Worlds of sets ([`play_set`]) play how striped files are written to several targets; worlds of
//! roads ([`play_road`]) what is remembered of paths, and lies.
//!
//! Takes seeds. Gives the result of each: a world that ended as it should, or the first broken
//! promise with the events that led to it. For development only: nothing of the product depends on
//! it.

mod check;
mod clock;
mod env;
mod events;
mod exhaust;
mod fs;
mod ledger;
mod left;
mod link;
mod mutants;
mod names;
mod plan;
mod play;
mod receiving;
mod rng;
mod roads;
mod scene;
mod sending;
mod session;
mod sets;
mod source;
mod tallies;
#[cfg(test)]
mod tests;
mod trace;
mod varied;
mod watched;
mod world;

pub use exhaust::{Exhausted, ExhaustedLanes, crash_everywhere, fail_everywhere};
pub use mutants::Mutant;
pub use play::{Failure, Options, Played, play, play_many};
pub use roads::{RoadMutant, RoadOptions, RoadTallies, play_many_roads, play_road};
pub use session::play_session;
pub use sets::{SetMutant, SetOptions, SetPlayed, SetTallies, play_many_sets, play_set};
pub use tallies::Tallies;
