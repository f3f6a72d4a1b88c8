//! `serve --ssh-only`: a daemon for the one client behind standard input and output, which ssh has
//! led here.
//!
//! In: the directory that it is confined to, if it is, and what sshd says of the connection. Out:
//! the bytes of the session on standard output, and nothing else; warnings on standard error, which
//! ssh carries to the user. The service itself is the engine's.

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};

use longhaul_engine::{PipeConfig, RootConfig, ServeConfig, StateFiles, Stop, SumsCatalogue, serve_pipe};
use rustix::fs::{FileType, fstat};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::{Context, LogForm};
use crate::config::{CommandLineRoot, Daemon};
use crate::error::Error;
use crate::exit::Exit;
use crate::settings::Talk;
use crate::signals::{self, Asking, Hangup};

/// Runs the command. `confined` is `None` where everything is served that the account may do, and
/// `ahead` holds bytes of standard input that came before it.
///
/// # Errors
/// An error of the arguments, or of a session that could not begin.
pub(super) fn run(
    confined: Option<&OsStr>,
    ahead: Option<&OsStr>,
    talk: Talk,
    context: Context,
) -> Result<Exit, Error> {
    context.log(if talk.verbose > 1 { "debug" } else { "warn" }, LogForm::Text);
    if io::stdin().is_terminal() || io::stdout().is_terminal() {
        let why = "--ssh-only speaks with longhaul at the other end of ssh, and here is a terminal";
        return Err(Error::Combination { why, hint: "write HOST:PATH in push, pull, copy or ls at the other host" });
    }
    let confined = match confined {
        Some(dir) => Some(confining(dir)?),
        // A command that sshd was told to run whatever is asked for is there to confine.
        None if (context.environment)("SSH_ORIGINAL_COMMAND").is_some() => {
            let why = "a forced command confines its key, and --ssh-only names no directory";
            return Err(Error::Combination { why, hint: "write --ssh-only DIR[:RIGHTS] in authorized_keys" });
        }
        None => None,
    };
    let config = PipeConfig {
        confined,
        between: between(context),
        ahead: ahead.map(OsStr::to_owned).or_else(|| asked_for(context)).and_then(|word| word.into_string().ok()),
        // One client, with one session and perhaps a listing.
        serve: ServeConfig { sessions: SESSIONS, state: state(context), ..Daemon::without_file() },
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let (trigger, stop) = Stop::new();
    let served = super::block_on(async move {
        // Whoever stops it ends its session in order; the client goes on with the next one.
        signals::watch(Asking::default(), Hangup::Stops, move |code| trigger.stop(code))
            .map_err(Error::file("watch the signals of", "this process"))?;
        let (reader, writer) = pipes().map_err(Error::file("use", "standard input and output"))?;
        Ok::<_, Error>(serve_pipe(config, reader, writer, stop).await?)
    })?;
    served.map(|()| Exit::Complete)
}

/// The state of the account's user.
fn state(context: Context) -> StateFiles {
    StateFiles { catalogue: context.places().checksums().map(SumsCatalogue::at), ..StateFiles::default() }
}

/// The root that a key is confined to. Nobody who may write there shall have a shell by that: the
/// files that sshd and shells read as somebody logs in lie in the home.
fn confining(text: &OsStr) -> Result<RootConfig, Error> {
    let root: RootConfig = CommandLineRoot::of_dir(text)?.into();
    let dir = root.targets.dirs.first().and_then(|dir| std::fs::canonicalize(dir).ok());
    // sshd sets it from the user database.
    let home = std::env::var_os("HOME").and_then(|home| std::fs::canonicalize(home).ok());
    let is_written = root.allow.may_change();
    if let (Some(dir), Some(home), true) = (dir, home, is_written)
        && (home.starts_with(&dir) || dir.starts_with(home.join(".ssh")))
    {
        let why = "a key that may write to the home of its account, or above it, may do everything there";
        return Err(Error::Combination { why, hint: "confine it to a directory in the home, or to :read" });
    }
    Ok(root)
}

/// The word behind `--ahead` in what the client asked for where sshd runs a forced command instead.
fn asked_for(context: Context) -> Option<OsString> {
    let command = (context.environment)("SSH_ORIGINAL_COMMAND")?;
    let mut words = command.to_str()?.split_ascii_whitespace().skip_while(|word| *word != "--ahead");
    words.nth(1).map(OsString::from)
}

/// The addresses of the ssh connection, as sshd tells them: the client's, and this host's.
fn between(context: Context) -> Option<(IpAddr, IpAddr)> {
    let told = (context.environment)("SSH_CONNECTION")?;
    let told = told.to_str()?;
    let mut words = told.split_ascii_whitespace();
    let (client, _port, here) = (words.next()?, words.next()?, words.next()?);
    // An address of a link has the link's name behind it.
    let address = |text: &str| text.split('%').next()?.parse::<IpAddr>().ok().map(|ip| ip.to_canonical());
    Some((address(client)?, address(here)?))
}

/// Sessions at a time, of which the client has one.
const SESSIONS: usize = 4;

type Reader = Box<dyn AsyncRead + Send + Unpin>;
type Writer = Box<dyn AsyncWrite + Send + Unpin>;

/// Standard input and output. sshd gives either pipes or sockets.
fn pipes() -> io::Result<(Reader, Writer)> {
    let (input, output) = (io::stdin().as_fd().try_clone_to_owned()?, io::stdout().as_fd().try_clone_to_owned()?);
    let reader: Reader = match kind(&input)? {
        FileType::Socket => Box::new(socket(input)?),
        FileType::Fifo => Box::new(pipe::Receiver::from_owned_fd(input)?),
        _ => return Err(no_pipe()),
    };
    let writer: Writer = match kind(&output)? {
        FileType::Socket => Box::new(socket(output)?),
        FileType::Fifo => Box::new(pipe::Sender::from_owned_fd(output)?),
        _ => return Err(no_pipe()),
    };
    Ok((reader, writer))
}

fn no_pipe() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "they are neither pipes nor sockets: only ssh starts this")
}

fn kind(fd: &OwnedFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(fstat(fd)?.st_mode))
}

fn socket(fd: OwnedFd) -> io::Result<UnixStream> {
    let stream = std::os::unix::net::UnixStream::from(fd);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}
