//! Owns the emulated path with a daemon at its far end. Takes a case; gives a push that runs at the
//! near end, and the counters of the path. Must not know what is moved.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use longhaul_wan::{Change, Config, Counters, Link, Wan};

use crate::case::Case;
use crate::kit::{Daemon, Longhaul};
use crate::meetings::PathQueue;

/// Both hosts; the daemon is ended before they go.
pub(crate) struct Far {
    pub(crate) daemon: Daemon,
    wan: Wan,
}

impl Far {
    /// A daemon of its own that serves `target`.
    pub(crate) fn new(longhaul: &Longhaul, case: &Case, target: &Path) -> Result<Far> {
        Far::with_queue(longhaul, case, PathQueue::Bdp(1.0), target)
    }

    /// The same with this queue.
    pub(crate) fn with_queue(longhaul: &Longhaul, case: &Case, queue: PathQueue, target: &Path) -> Result<Far> {
        let mut link = Link { mtu: case.mtu, ..Link::default() };
        let (rate, rtt, loss) = (case.rate.as_bits(), case.rtt.as_micros(), case.loss);
        let path = format!("rate={rate}bit/s,rtt={rtt}us,loss={loss},{}", queue.setting(case.rate));
        link.apply(&path.parse::<Change>()?);
        let wan = Wan::new(&Config { links: vec![link], ..Config::default() })?;
        let address = wan.far().address(0).into();
        let daemon = longhaul.serve_at(target, address, |command| wan.far().adopt(command))?;
        Ok(Far { daemon, wan })
    }

    /// A push of `source` with no option but the keys, from the near host.
    pub(crate) fn push(&self, longhaul: &Longhaul, source: &Path) -> Command {
        let mut command = longhaul.push_by_default(&self.daemon);
        command.arg(source).arg(format!("lh://{}/bench/", self.daemon.addr()));
        self.wan.near().adopt(&mut command);
        command
    }

    /// A measurement of the path to the far host with no disk at either end, from the near host.
    pub(crate) fn measure(&self, longhaul: &Longhaul, seconds: u64) -> Command {
        let mut command = longhaul.bench_net(&self.daemon);
        command.args(["--direction", "push", "--seconds", &seconds.to_string(), "--json"]);
        command.arg(format!("lh://{}/", self.daemon.addr()));
        self.wan.near().adopt(&mut command);
        command
    }

    /// The same command from the near host.
    pub(crate) fn near(&self, mut command: Command) -> Command {
        self.wan.near().adopt(&mut command);
        command
    }

    /// A TCP connection that belongs to no transfer: its near end, and its far end.
    pub(crate) fn pair(&self) -> Result<(TcpStream, TcpStream)> {
        let listener = self.wan.far().run(|| TcpListener::bind((self.wan.far().address(0), 0)))??;
        let address = listener.local_addr()?;
        let near = self.wan.near().run(|| TcpStream::connect(address))??;
        Ok((near, listener.accept()?.0))
    }

    /// The counters from near to far so far.
    pub(crate) fn forward(&self) -> Result<Counters> {
        Ok(self.wan.counters()?.first().context("a network of one link")?.forward)
    }
}

/// The bytes on the way from which they are payload: all handshakes together take less.
pub(crate) const PAYLOAD_FROM_BYTES: u64 = 100_000;
