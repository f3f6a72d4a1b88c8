//! A deputy: the process of one user that serves the clients with that user. It is this program
//! under another name, which the broker starts.
//!
//! In: the numbers of the user. Out: a process that is that user's and nothing more, and only then
//! the socket to the daemon, over which the engine serves. It reads no configuration and has no
//! key.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;

use longhaul_engine::privileges::{UserNumbers, become_deputy};
use longhaul_engine::{Passing, Stop, receive_passed, serve_deputy};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use super::{Context, LogForm};
use crate::error::Error;
use crate::exit::Exit;
use crate::signals::{self, Asking, Hangup};

/// The name under which the program is a deputy.
pub(crate) const NAME: &str = "longhaul-deputy";
/// The message with which its socket comes.
pub(super) const SOCKET: &[u8] = b"socket";

/// Runs as a deputy. `line` has the numbers of the user, of its group and of the broker, the groups
/// and the level of the log.
///
/// # Errors
/// An error of a process that could not become that user's: it serves nobody.
pub(crate) fn run(line: &[OsString], context: Context) -> Result<Exit, Error> {
    let failed = || Error::file("become", "a process of a user of this host");
    let (user, broker, level) = parse(line).ok_or_else(|| failed()(io::ErrorKind::InvalidInput.into()))?;
    become_deputy(&user, broker).map_err(failed())?;
    // The user may not look into it either: it has secrets of lanes, and a socket to the daemon.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| failed()(error.into()))?;
    context.log(&level, LogForm::Text);
    let Some(socket) = socket().map_err(Error::file("receive", "the socket to the daemon"))? else {
        return Ok(Exit::Complete);
    };
    let (trigger, stop) = Stop::new();
    let served = super::block_on(async move {
        signals::watch(Asking::default(), Hangup::Stops, move |code| trigger.stop(code))
            .map_err(Error::file("watch the signals of", "this process"))?;
        Ok::<_, Error>(serve_deputy(socket, stop).await?)
    })?;
    served.map(|()| Exit::Complete)
}

fn parse(line: &[OsString]) -> Option<(UserNumbers, u32, String)> {
    let words = line.iter().skip(1).map(|word| word.to_str()).collect::<Option<Vec<_>>>()?;
    let [uid, gid, broker, groups, level] = words.as_slice() else { return None };
    let groups = groups.split(',').map(|group| group.parse().ok()).collect::<Option<Vec<u32>>>()?;
    let user = UserNumbers { uid: uid.parse().ok()?, gid: gid.parse().ok()?, groups };
    Some((user, broker.parse().ok()?, (*level).to_owned()))
}

/// The socket to the daemon. `None` if nobody wants this process any more.
fn socket() -> io::Result<Option<OwnedFd>> {
    let mut room = [0; SOCKET.len()];
    match receive_passed(io::stdin(), &mut room, Passing::Taken)? {
        Some((len, Some(socket))) if &room[..len] == SOCKET => Ok(Some(socket)),
        Some(_) => Err(io::ErrorKind::InvalidData.into()),
        None => Ok(None),
    }
}
