//! Measures hosts, the paths between them, and disks: `net` against a daemon, `matrix` within this
//! process, `lab` the disks alone, `udp` one native UDP lane alone; `watch` looks at the lanes
//! meanwhile.
//!
//! In: a [`NetRun`], a [`CellRun`], or a run of [`lab`]. Out: a report of the same name. It knows
//! the client; nothing of the product knows it.

pub mod lab;
mod matrix;
mod net;
mod udp;
pub(crate) mod watch;

pub use matrix::{CellReport, CellRun, HalfReport, NOISE_NAME, bench_cell, io_mode};
pub use net::{NetReport, NetRun, Way, bench_net};
pub use udp::{UdpReport, UdpRun, receive_over_udp, send_over_udp};
pub(crate) use watch::LaneWatch;
pub use watch::{LaneFigures, LanesStood, SentFigures};
