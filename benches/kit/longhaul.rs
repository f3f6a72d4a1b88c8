//! The program under test: keys, a daemon on a free port, and the commands that push to it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::process::{Kept, Ran, cpu_s, peak_rss, run};

/// A built binary, and a home for its keys.
pub(crate) struct Longhaul {
    program: PathBuf,
    home: PathBuf,
    client_key: String,
    /// Lines at the head of the configuration of its daemons.
    head: String,
}

/// A daemon that serves one directory as the root `bench`; ended when dropped.
pub(crate) struct Daemon {
    child: Kept,
    addr: String,
    key: String,
    /// Kept open: a daemon that cannot write ends.
    _out: BufReader<ChildStdout>,
}

/// The figures that a push told at its end.
#[derive(Debug, Deserialize)]
pub(crate) struct Summary {
    pub(crate) bytes_committed: u64,
    pub(crate) files_committed: u64,
    /// CPU seconds by stage of the side that ran the command.
    pub(crate) stages: std::collections::BTreeMap<String, f64>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Event {
    Listening {
        addr: String,
        key: String,
    },
    File {
        b3: Option<String>,
    },
    Summary(Summary),
    #[serde(other)]
    Other,
}

impl Longhaul {
    /// The binary at `program`; keys and configs are made in `home`.
    pub(crate) fn new(program: &Path, home: PathBuf) -> Result<Longhaul> {
        let mut longhaul =
            Longhaul { program: program.to_owned(), home, client_key: String::new(), head: String::new() };
        longhaul.client_key = longhaul.generate("client.key")?;
        longhaul.generate("daemon.key")?;
        Ok(longhaul)
    }

    /// Another host, with `home` for its keys: its daemons have a key of their own, know the same
    /// client, and may dial this daemon for it.
    pub(crate) fn another_host(&self, home: PathBuf, dials: &Daemon) -> Result<Longhaul> {
        fs::copy(self.home.join("client.key"), home.join("client.key"))?;
        let head = format!("third_party.dial = ['{}']\n", dials.addr);
        let other = Longhaul { program: self.program.clone(), home, client_key: self.client_key.clone(), head };
        other.generate("daemon.key")?;
        Ok(other)
    }

    /// Has the client know the key of a daemon, for commands about several of them.
    pub(crate) fn trust(&self, daemon: &Daemon) -> Result<()> {
        run(self.command().args(["key", "trust", &daemon.addr, &daemon.key])).map(drop)
    }

    /// A push or copy among daemons that the client trusts, with events; source and destination are
    /// still to be added.
    pub(crate) fn transfer(&self, what: &str, protect: &str) -> Command {
        let mut command = self.command();
        command.arg(what).arg("--identity").arg(self.home.join("client.key"));
        command.args(["--protect", protect, "--retry-for", "0", "--json"]);
        command
    }

    /// A command of the program, free of the caller's environment and config.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"LONGHAUL_")).for_each(
            |(name, _)| {
                command.env_remove(name);
            },
        );
        command.env("XDG_CONFIG_HOME", &self.home);
        // Each run meets its path for the first time.
        command.env("XDG_STATE_HOME", "/dev/null");
        command
    }

    /// A command that loads the program and does nothing.
    pub(crate) fn warm_up(&self) -> Option<Command> {
        let mut command = self.command();
        command.arg("--version");
        Some(command)
    }

    /// Starts a daemon that serves `dir`, on loopback.
    pub(crate) fn serve(&self, dir: &Path) -> Result<Daemon> {
        self.serve_at(dir, IpAddr::V4(Ipv4Addr::LOCALHOST), |_| {})
    }

    /// Starts a daemon that listens at `address`, on the host where `place` has the command run.
    pub(crate) fn serve_at(&self, dir: &Path, address: IpAddr, place: impl FnOnce(&mut Command)) -> Result<Daemon> {
        self.serve_dirs((&[dir.to_owned()], ""), address, place)
    }

    /// Starts a daemon whose root is a target set, on loopback. `limit` hears its process before
    /// anything is sent.
    pub(crate) fn serve_set(
        &self,
        (dirs, layout): (&[PathBuf], &str),
        limit: impl FnOnce(u32) -> Result<()>,
    ) -> Result<Daemon> {
        let lines = format!("layout = \"{layout}\"\n");
        let daemon = self.serve_dirs((dirs, &lines), IpAddr::V4(Ipv4Addr::LOCALHOST), |_| {})?;
        limit(daemon.child.0.id())?;
        Ok(daemon)
    }

    fn serve_dirs(
        &self,
        root: (&[PathBuf], &str),
        address: IpAddr,
        place: impl FnOnce(&mut Command),
    ) -> Result<Daemon> {
        let (config, log) = (self.home.join("serve.toml"), File::create(self.home.join("daemon.log"))?);
        fs::write(&config, self.config(root, SocketAddr::new(address, 0))?)?;
        let mut command = self.command();
        command
            .arg("serve")
            .arg("--config")
            .arg(&config)
            .arg("--json")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log);
        place(&mut command);
        let mut child = command.spawn().with_context(|| format!("cannot start {}", self.program.display()))?;
        let mut out = BufReader::new(child.stdout.take().context("a daemon without output")?);
        let child = Kept(child);
        let mut line = String::new();
        out.read_line(&mut line)?;
        match serde_json::from_str(&line) {
            Ok(Event::Listening { addr, key }) => Ok(Daemon { child, addr, key, _out: out }),
            _ => {
                anyhow::bail!("the daemon does not listen: {line}{}", fs::read_to_string(self.home.join("daemon.log"))?)
            }
        }
    }

    /// A push of `source` (its contents, if it ends in a slash) into a directory beneath the
    /// daemon's root.
    pub(crate) fn push(&self, daemon: &Daemon, protect: &str, source: &Path, dir: &str) -> Command {
        self.push_to(daemon, &daemon.addr, protect, source, dir)
    }

    /// The same by way of another address.
    pub(crate) fn push_to(&self, daemon: &Daemon, addr: &str, protect: &str, source: &Path, dir: &str) -> Command {
        let mut command = self.push_by_default(daemon);
        command.args(["--protect", protect, "--retry-for", "0", "--progress", "none"]);
        let slash = if dir.is_empty() { "" } else { "/" };
        command.arg(source).arg(format!("lh://{addr}/bench/{dir}{slash}"));
        command
    }

    /// A pull of a path beneath the daemon's root into a directory.
    pub(crate) fn pull(&self, daemon: &Daemon, protect: &str, path: &str, into: &Path) -> Command {
        let mut command = self.command();
        command.arg("pull").arg("--identity").arg(self.home.join("client.key")).args(["--peer-key", &daemon.key]);
        command.args(["--protect", protect, "--retry-for", "0", "--progress", "none"]);
        command.arg(format!("lh://{}/bench/{path}", daemon.addr)).arg(into);
        command
    }

    /// A listing of the daemon's root.
    pub(crate) fn list(&self, daemon: &Daemon) -> Command {
        let mut command = self.command();
        command.arg("ls").arg("--identity").arg(self.home.join("client.key")).args(["--peer-key", &daemon.key]);
        command.arg(format!("lh://{}/bench/", daemon.addr));
        command
    }

    /// A push with the options for keys and no others; source and destination are still to be
    /// added.
    pub(crate) fn push_by_default(&self, daemon: &Daemon) -> Command {
        let mut command = self.command();
        command.arg("push").arg("--identity").arg(self.home.join("client.key")).args(["--peer-key", &daemon.key]);
        command
    }

    /// A command of `job` on a queue; of what is still to be added.
    pub(crate) fn job(&self, queue: &str, what: &str) -> Command {
        let mut command = self.command();
        command.args(["job", what]).env("LONGHAUL_QUEUE", queue);
        if what == "run" {
            // The owner of the campaigns, whom its mover trusts then.
            command.arg("--identity").arg(self.home.join("client.key"));
        }
        command
    }

    /// The addition of a campaign to a directory beneath a daemon's root, as [`Longhaul::push`]
    /// moves; its sources are still to be added.
    pub(crate) fn job_add(&self, queue: &str, daemon: &Daemon, name: &str, protect: &str) -> Command {
        let mut command = self.job(queue, "add");
        command.args(["--name", name, "--identity"]).arg(self.home.join("client.key"));
        command.args(["--peer-key", &daemon.key, "--protect", protect]);
        command
    }

    /// A measurement of the network with the options for keys and no others; what and where are
    /// still to be added.
    #[allow(dead_code, reason = "not every bench measures the network alone")]
    pub(crate) fn bench_net(&self, daemon: &Daemon) -> Command {
        let mut command = self.command();
        command.args(["bench", "net", "--identity"]).arg(self.home.join("client.key"));
        command.args(["--peer-key", &daemon.key]);
        command
    }

    /// The public key of the client.
    pub(crate) fn client_key(&self) -> &str {
        &self.client_key
    }

    fn generate(&self, name: &str) -> Result<String> {
        let ran = run(self.command().args(["key", "generate", "--identity"]).arg(self.home.join(name)))?;
        Ok(ran.out.trim().to_owned())
    }

    fn config(&self, (dirs, lines): (&[PathBuf], &str), listen: SocketAddr) -> Result<String> {
        let quoted = |path: &Path| {
            let text = path.to_str().filter(|text| !text.contains(['\'', '\n']));
            Ok::<_, anyhow::Error>(format!(
                "'{}'",
                text.with_context(|| format!("{} cannot be written in TOML", path.display()))?
            ))
        };
        let targets = dirs.iter().map(|dir| quoted(dir)).collect::<Result<Vec<_>>>()?.join(", ");
        let (identity, key, head) = (quoted(&self.home.join("daemon.key"))?, &self.client_key, &self.head);
        Ok(format!(
            "{head}listen = [\"{listen}\"]\nidentity = {identity}\n\
             [[root]]\nname = \"bench\"\ntargets = [{targets}]\n{lines}allow = [\"read\", \"create\", \"modify\"]\n\
             protect = [\"private\", \"safe\"]\n\
             [[client]]\nname = \"bench\"\nkey = \"{key}\"\nroots = {{ bench = [\"read\", \"create\", \"modify\"] }}\n\
             bench = true\nshare = \"all\"\n"
        ))
    }
}

impl Daemon {
    /// `host:port`.
    pub(crate) fn addr(&self) -> &str {
        &self.addr
    }

    /// The location of a path beneath its root.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("lh://{}/bench/{path}", self.addr)
    }

    /// CPU seconds so far.
    pub(crate) fn cpu_s(&self) -> Result<f64> {
        cpu_s(self.child.0.id())
    }

    /// Does some work, and gives the CPU seconds beside it that the daemon spent meanwhile.
    pub(crate) fn spends<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
        let before = self.cpu_s()?;
        let done = work()?;
        Ok((done, self.cpu_s()? - before))
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.0.id()
    }

    /// The most memory it ever held, in bytes.
    pub(crate) fn peak_rss(&self) -> Result<u64> {
        peak_rss(self.child.0.id())
    }
}

impl Summary {
    /// The summary of a push with `--json`; if it moved one file, its digest must be `b3`.
    pub(crate) fn of(ran: &Ran, b3: Option<&str>) -> Result<Summary> {
        let mut summary = None;
        for line in ran.out.lines() {
            match serde_json::from_str(line)? {
                Event::File { b3: said } if b3.is_some() => {
                    ensure!(said.as_deref() == b3, "the digest is {said:?}, not {b3:?}")
                }
                Event::Summary(last) => summary = Some(last),
                _ => {}
            }
        }
        summary.context("the push ended without a summary")
    }

    /// Its stages as rounds record them.
    pub(crate) fn stages(self) -> Vec<(String, f64)> {
        self.stages.into_iter().collect()
    }
}
