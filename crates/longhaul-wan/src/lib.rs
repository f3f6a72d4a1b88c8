//! A wide-area network in one machine, for tests and rehearsals: two hosts (network namespaces)
//! joined by links with a rate, a delay, a queue, and all the harm that packets meet on long paths.
//!
//! Takes a [`Config`]; gives a [`Wan`] to run commands on both hosts, to change links in flight,
//! and to count packets. It is a program too (`cargo run -p longhaul-wan -- --help`). It knows
//! nothing of longhaul: a test must not share code with the program that it tests.
//!
//! # How it works
//!
//! Each host has one TUN device per link. A thread for each direction reads frames from one device,
//! lets a [`Path`] happen to them (a machine without clock or device), and writes them to the other
//! when it is time. Devices have offloads: a sender hands over super-packets of up to 64 KiB, which
//! count as the segments that they stand for, pass in one piece if they are all treated alike, and
//! are cut otherwise.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use longhaul_wan::{Config, Link, Path, Wan};
//!
//! let mut path = Path::default();
//! "rate=1Gbit/s,rtt=100ms,loss=1e-3".parse::<longhaul_wan::Change>()?.apply(&mut path);
//! let wan = Wan::new(&Config { links: vec![Link::even(path)], ..Config::default() })?;
//! let server = wan.far().command("iperf3").arg("-s").spawn()?;
//! let client = wan.near().command("iperf3").arg("-c").arg(wan.far().address(0).to_string()).status()?;
//! println!("{:?}", wan.counters()?);
//! # Ok(())
//! # }
//! ```

mod checksum;
mod counters;
mod cut;
mod device;
mod drive;
mod error;
mod fate;
mod ffi;
mod host;
mod line;
mod packet;
mod path;
mod pipe;
#[cfg(test)]
mod sample;
mod setting;
mod store;
pub mod units;
mod wan;

pub use counters::{Counters, LinkCounters};
pub use error::Error;
pub use fate::{Damage, Fate, Fates};
pub use host::{Host, Tuning};
pub use path::{Blocked, Bursts, Loss, Path, QUEUE_BYTES_MIN, Queue};
pub use setting::Change;
pub use units::Rate;
pub use wan::{Config, Direction, Link, Step, Wan};

/// Leaves for a user namespace in which the calling user may make networks. For programs that are
/// not root; the process must not have started a thread yet. Commands keep the user's own id.
///
/// # Errors
/// If the kernel has no such namespaces for ordinary users.
pub fn become_able() -> Result<(), Error> {
    host::become_able()
}
