//! Measures hosts and the paths between them, without disks: `net` against a daemon, `matrix`
//! within this process; `watch` looks at the lanes meanwhile.
//!
//! In: a [`NetRun`] or a [`CellRun`]. Out: a [`NetReport`] or a [`CellReport`]. It knows the
//! client; nothing of the product knows it.

mod matrix;
mod net;
pub(crate) mod watch;

pub use matrix::{CellReport, CellRun, HalfReport, NOISE_NAME, bench_cell, io_mode};
pub use net::{NetReport, NetRun, Way, bench_net};
pub(crate) use watch::LaneWatch;
pub use watch::{LaneFigures, SentFigures};
