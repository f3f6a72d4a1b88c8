//! Worlds of roads: sessions over one path, one after the other, each of which is told what an
//! earlier one left of it. What is told may be a lie: the line became slower or longer, others are
//! on it by now, or the record was never true.
//!
//! In: seeds. Out: counts, or the first broken promise. The control of UDP lanes
//! (`longhaul_proto::udp::control`) is the real one; line, receiver and record are those of the
//! world. It knows no files and no lanes but one.

mod check;
mod mutants;
mod plan;
mod play;
mod road;

pub use mutants::RoadMutant;
pub use play::{RoadOptions, RoadTallies, play_many_roads, play_road};
