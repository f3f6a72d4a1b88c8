//! The servers of XRootD and GridFTP on loopback, in settings that their users would find sane, and
//! their clients.
//!
//! Comments beside the options give facts about them that were learnt by trial.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use rustix::process::geteuid;

use super::{Kind, plain, setup};
use crate::kit::{Kept, free_port, wait_for_port};

/// An XRootD data server; ended when dropped.
pub(crate) struct Xrootd {
    _child: Kept,
    port: u16,
}

/// A GridFTP server that takes anonymous users; ended when dropped.
pub(crate) struct GridFtp {
    _child: Kept,
    port: u16,
}

impl Xrootd {
    /// Exports `dir`; its config and logs lie in `home`.
    pub(crate) fn start(home: &Path, dir: &Path) -> Result<Xrootd> {
        let (home, port) = (home.join("xrootd"), free_port()?);
        fs::create_dir(&home)?;
        setup::open_to_all(&home)?;
        let config = home.join("config");
        let (admin, export) = (plain(&home)?, plain(dir)?);
        // It listens on all addresses, so it is told which clients to accept.
        let text = format!(
            "all.export {export}\nall.adminpath {admin}\nall.pidpath {admin}\nxrd.port {port}\nxrd.allow host localhost\n\
             xrd.allow host 127.0.0.1\n"
        );
        fs::write(&config, text)?;
        let mut command = Command::new("xrootd");
        command.arg("-c").arg(&config).arg("-l").arg(home.join("log")).args(["-n", "peers"]).current_dir(&home);
        if geteuid().is_root() {
            // It refuses to be root; the package makes it a user.
            command.args(["-R", "xrootd"]);
        }
        let child = quiet(&mut command, File::create(home.join("output"))?).spawn().context("cannot start xrootd")?;
        let child = Kept(child);
        wait_for_port(port, "xrootd")?;
        Ok(Xrootd { _child: child, port })
    }

    pub(crate) fn push(&self, source: &Path, kind: Kind, destination: &Path) -> Command {
        let mut command = Command::new("xrdcp");
        command.args(["--nopbar", "--force"]);
        let source = match kind {
            Kind::File => source.to_owned(),
            Kind::Tree => {
                // One file at a time by default, each with round trips of its own.
                command.args(["--recursive", "--parallel", "4"]);
                source.join("")
            }
        };
        // A path that is absolute needs a slash more than a URL has.
        command.arg(source).arg(format!("root://127.0.0.1:{}/{}/", self.port, destination.display()));
        command
    }
}

impl GridFtp {
    /// Serves all files that the user `nobody` may write to.
    pub(crate) fn start() -> Result<GridFtp> {
        let port = free_port()?;
        let mut command = Command::new("globus-gridftp-server");
        command.args(["-c", "/dev/null", "-daemon", "-port", &port.to_string(), "-allow-anonymous"]);
        command.args(["-control-interface", "127.0.0.1", "-data-interface", "127.0.0.1"]);
        if geteuid().is_root() {
            command.args(["-anonymous-user", "nobody", "-anonymous-group", "nogroup"]);
        }
        let child =
            quiet(&mut command, File::create("/dev/null")?).spawn().context("cannot start the GridFTP server")?;
        let child = Kept(child);
        wait_for_port(port, "the GridFTP server")?;
        Ok(GridFtp { _child: child, port })
    }

    pub(crate) fn push(&self, source: &Path, kind: Kind, destination: &Path) -> Command {
        let mut command = Command::new("globus-url-copy");
        // Without -fast there are no parallel streams; larger blocks than its own 256 KiB make it
        // several times slower.
        command.args(["-fast", "-p", "4"]);
        let slash = match kind {
            Kind::File => "",
            Kind::Tree => {
                command.args(["-r", "-cd", "-cc", "4", "-pp"]);
                "/"
            }
        };
        command.arg(format!("file://{}{slash}", source.display()));
        command.arg(format!("ftp://127.0.0.1:{}{}/", self.port, destination.display()));
        command
    }
}

fn quiet(command: &mut Command, log: File) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log)
}
