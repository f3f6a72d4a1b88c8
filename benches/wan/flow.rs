//! Owns an ordinary TCP connection, under cubic or BBR, that sends as much as it can beside the
//! measured push. Takes a path; gives the bytes that it carried between two moments. Must not know
//! what else is on the path.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use longhaul_sys::tcp;
use rustix::net::sockopt::set_tcp_congestion;
use serde::Serialize;

use crate::far::Far;

/// The congestion control of such a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Congestion {
    Cubic,
    Bbr,
}

/// A connection that sends until it is ended.
pub(crate) struct Flow {
    near: TcpStream,
    sends: JoinHandle<()>,
    receives: JoinHandle<Result<Vec<Seen>>>,
}

/// The data that it carried in a time.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Carried {
    pub(crate) seconds: f64,
    pub(crate) goodput_bits_per_s: f64,
    /// The resent share of the sent bytes.
    pub(crate) resent_share: f64,
}

/// Its counters at a moment.
struct Seen {
    at: Instant,
    received: u64,
    sent: u64,
    resent: u64,
}

impl Flow {
    /// Begins to send from near to far.
    pub(crate) fn start(far: &Far, congestion: Congestion) -> Result<Flow> {
        let (near, there) = far.pair()?;
        let name = match congestion {
            Congestion::Cubic => "cubic",
            Congestion::Bbr => "bbr",
        };
        set_tcp_congestion(&near, name).with_context(|| format!("{name} is not to be had on this host"))?;
        let (mut out, watched) = (near.try_clone()?, near.try_clone()?);
        // It ends by an error, when the socket is shut down.
        let sends = thread::spawn(move || while out.write_all(&ZEROS).is_ok() {});
        let receives = thread::spawn(move || receive(there, &watched));
        Ok(Flow { near, sends, receives })
    }

    /// Ends it. Returns the data that it carried from `from` to `to`.
    pub(crate) fn end(self, from: Instant, to: Instant) -> Result<Carried> {
        // If it is over already, the receiver says so.
        let _ = self.near.shutdown(Shutdown::Both);
        let _ = self.sends.join();
        let seen = self.receives.join().map_err(|_| anyhow!("the receiver panicked"))??;
        let first = seen.iter().find(|seen| seen.at >= from).context("the flow was not seen")?;
        let last = seen.iter().rfind(|seen| seen.at <= to).context("the flow was not seen")?;
        let seconds = last.at.saturating_duration_since(first.at).as_secs_f64();
        Ok(Carried {
            seconds,
            goodput_bits_per_s: (last.received - first.received) as f64 * 8.0 / seconds,
            resent_share: (last.resent - first.resent) as f64 / (last.sent - first.sent).max(1) as f64,
        })
    }
}

/// Reads to the end, and looks at the sender's counters meanwhile.
fn receive(mut there: TcpStream, sender: &TcpStream) -> Result<Vec<Seen>> {
    there.set_read_timeout(Some(SAMPLE))?;
    let (mut seen, mut received, mut buf) = (Vec::<Seen>::new(), 0, vec![0; 1 << 20]);
    loop {
        match there.read(&mut buf) {
            Ok(0) => return Ok(seen),
            Ok(n) => received += n as u64,
            Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => return Ok(seen),
        }
        let at = Instant::now();
        if seen.last().is_none_or(|last| at - last.at >= SAMPLE) {
            let state = tcp::state(sender)?;
            seen.push(Seen { at, received, sent: state.sent, resent: state.resent });
        }
    }
}

const SAMPLE: Duration = Duration::from_millis(250);
static ZEROS: [u8; 256 << 10] = [0; 256 << 10];
