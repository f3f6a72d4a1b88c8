//! An rsync daemon on loopback, with one writable module, as a distribution's rsync gives it.

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::geteuid;

use super::process::{Kept, free_port};

/// A running daemon; ended when dropped.
pub(crate) struct RsyncDaemon {
    _child: Kept,
    port: u16,
}

impl RsyncDaemon {
    /// Serves `dir`; its config and log are written in `home`.
    pub(crate) fn start(home: &Path, dir: &Path) -> Result<RsyncDaemon> {
        let (config, port) = (home.join("rsyncd.conf"), free_port()?);
        // As root it would become `nobody`, who may not write here.
        let user = if geteuid().is_root() { "uid = 0\ngid = 0\n" } else { "" };
        let (log, dir) = (home.join("rsyncd.log"), dir.display());
        fs::write(
            &config,
            format!(
                "address = 127.0.0.1\nport = {port}\nuse chroot = no\nreverse lookup = no\nlog file = {}\n{user}\
                 [bench]\npath = {dir}\nread only = no\n",
                log.display()
            ),
        )?;
        let mut command = Command::new("rsync");
        command.args(["--daemon", "--no-detach"]).arg(format!("--config={}", config.display()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = Kept(command.spawn().context("cannot start rsync (Debian package rsync)")?);
        wait_for_port(port, "rsync")?;
        Ok(RsyncDaemon { _child: child, port })
    }

    /// A command that sends the contents of `source` into a directory of the module.
    pub(crate) fn push(&self, options: &[&str], source: &Path, dir: &str) -> Command {
        let mut command = Command::new("rsync");
        command.args(options).arg(source).arg(format!("rsync://127.0.0.1:{}/bench/{dir}/", self.port));
        command
    }

    /// A command that loads rsync and does nothing.
    pub(crate) fn warm_up() -> Option<Command> {
        let mut command = Command::new("rsync");
        command.arg("--version");
        Some(command)
    }
}

/// Waits until a server accepts on a port.
pub(crate) fn wait_for_port(port: u16, who: &str) -> Result<()> {
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        ensure!(begun.elapsed() < Duration::from_secs(20), "{who} does not accept connections on port {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
