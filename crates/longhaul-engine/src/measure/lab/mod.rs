//! The storage laboratory: what disks carry through the product's own engine, without a transfer.
//!
//! In: a run (of a sweep, of random requests, of a pile-up, a fill or a scan) and a [`Stop`]. Out:
//! a report for each setting. `flow` keeps requests in flight, `ground` makes the files, `latency`
//! counts, `choice` judges. All of it blocks, so it is called from plain threads. It knows no
//! network, no session and no text for people.
//!
//! [`Stop`]: crate::api::Stop

mod choice;
mod fill;
mod flow;
mod ground;
mod latency;
mod pileup;
mod random;
mod scan;
mod sweep;

pub use choice::{CLOSE_ENOUGH, SLOW_BELOW, SweepChoice, SweepPoint, choose, median_rate, slow_regions};
pub use fill::{FillEnd, FillReport, FillRun, FillSample, bench_fill};
pub use flow::Access;
pub use ground::LabDevices;
pub use latency::LatencyFigures;
pub use pileup::{Pileup, PileupReport, PileupRun};
pub use random::{RandomCase, RandomGround, RandomPlace, RandomReport, RandomRun};
pub use scan::{RegionReport, ScanRun, SpotScan};
pub use sweep::{SWEEP_DEPTH_MAX, Sweep, SweepCell, SweepReport, SweepRun};
