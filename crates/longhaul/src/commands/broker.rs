//! The broker: the small process that starts deputies, each a process of one user that serves that
//! user's clients. It is this program under another name, which `serve` starts before it gives up
//! the right to change users.
//!
//! In: the daemon's requests on standard input, and the users of its configuration, which it reads
//! itself by the same checks. Out: deputies, and to the daemon the end of the socket of each. It
//! hears no peer and opens no root. It has one thread, ends with the daemon, and no deputy outlives
//! it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use longhaul_engine::accounts::Account;
use longhaul_engine::{
    BrokerAnswer, BrokerRequest, ClientUser, Passing, outlive_signals, passing_pair, receive_passed, send_passed,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{Context, LogForm, deputy};
use crate::config::Daemon;
use crate::error::Error;
use crate::exit::Exit;

/// The name under which the program is a broker.
pub(crate) const NAME: &str = "longhaul-broker";

/// Starts a broker for the daemon of the config at `path`, which logs from `level` on. Returns it,
/// and the daemon's end of the socket to it.
///
/// # Errors
/// [`Error::File`] with the system's error.
pub(super) fn start(path: &Path, level: &str) -> Result<(Child, OwnedFd), Error> {
    let failed = || Error::file("start the process for clients with a user of", "this daemon");
    let (ours, theirs) = passing_pair().map_err(failed())?;
    let path = std::path::absolute(path).map_err(Error::file("find", path))?;
    // Its checks of files are not to be weakened by the environment.
    let mut broker = Command::new(PROGRAM);
    broker
        .arg0(NAME)
        .arg(path)
        .arg(level)
        .env_clear()
        .envs(std::env::var_os("LONGHAUL_LOG").map(|log| ("LONGHAUL_LOG", log)));
    let child = broker.stdin(theirs).stdout(Stdio::null()).spawn().map_err(failed())?;
    // Its own end is held by the command.
    drop(broker);
    let mut room = [0];
    match receive_passed(&ours, &mut room, Passing::Refused).map_err(failed())? {
        Some((len, _)) if BrokerAnswer::decode(&room[..len]) == Some(BrokerAnswer::Done) => Ok((child, ours)),
        _ => Err(failed()(io::Error::other("it has ended, and said why"))),
    }
}

/// Runs as a broker. `line` has the config and the level of the log.
///
/// # Errors
/// An error of the config.
pub(crate) fn run(line: &[OsString], context: Context) -> Result<Exit, Error> {
    let (Some(path), Some(level)) = (line.get(1), line.get(2).and_then(|level| level.to_str())) else {
        let why = "the process that starts others for users is started by a daemon alone";
        return Err(Error::Combination { why, hint: "run 'longhaul serve'" });
    };
    context.log(level, LogForm::Text);
    let failed = || Error::file("use", "the socket to the daemon");
    outlive_signals().map_err(failed())?;
    let path = PathBuf::from(path);
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(failed())?;
    let users = users_of(&path)?;
    let mut broker = Broker { path, level: level.to_owned(), users, read: None, deputies: Vec::new() };
    // The daemon goes on only once the configuration is known here too.
    send_passed(&socket, &BrokerAnswer::Done.encode(), None).map_err(failed())?;
    if let Err(error) = broker.serve(&socket) {
        tracing::error!(target: "longhaul::serve", %error, "the process that starts others for users ends");
    }
    drop(socket);
    broker.finish();
    Ok(Exit::Complete)
}

/// The users of a configuration.
fn users_of(path: &Path) -> Result<Vec<ClientUser>, Error> {
    Ok(Daemon::load_alone(path)?.config.clients.into_iter().filter_map(|client| client.user).collect())
}

/// See the module.
struct Broker {
    path: PathBuf,
    level: String,
    users: Vec<ClientUser>,
    /// The users that were read last, which the daemon has not taken yet.
    read: Option<Vec<ClientUser>>,
    deputies: Vec<Deputy>,
}

/// A deputy that was started.
struct Deputy {
    child: Child,
    /// Shows its end.
    end: OwnedFd,
}

impl Broker {
    /// Serves the daemon until it is gone.
    fn serve(&mut self, socket: &OwnedFd) -> io::Result<()> {
        loop {
            let is_asked = self.wait(Some(socket), None)?;
            if !is_asked {
                continue;
            }
            let mut room = [0; BrokerRequest::BYTES];
            let Some((len, _)) = receive_passed(socket, &mut room, Passing::Refused)? else { return Ok(()) };
            let (answer, deputy) = match BrokerRequest::decode(&room[..len]) {
                Some(BrokerRequest::Start { uid }) => self.answer(uid),
                Some(BrokerRequest::Read) => (self.read(), None),
                Some(BrokerRequest::Take) => (self.take(), None),
                None => return Err(io::Error::new(io::ErrorKind::InvalidData, "the daemon asks what is no request")),
            };
            send_passed(socket, &answer.encode(), deputy.as_ref().map(AsFd::as_fd))?;
        }
    }

    /// Waits for the daemon, or for the end of a deputy, whose remains are cleared away. Returns
    /// whether the daemon asks something.
    fn wait(&mut self, socket: Option<&OwnedFd>, time: Option<Duration>) -> io::Result<bool> {
        let time = time.map(|time| Timespec::try_from(time).unwrap_or_default());
        let mut events: Vec<_> = self.deputies.iter().map(|deputy| PollFd::new(&deputy.end, PollFlags::IN)).collect();
        events.extend(socket.map(|socket| PollFd::new(socket, PollFlags::IN)));
        match poll(&mut events, time.as_ref()) {
            Err(rustix::io::Errno::INTR) => return Ok(false),
            polled => polled?,
        };
        let is_asked = socket.is_some() && events.last().is_some_and(|event| !event.revents().is_empty());
        drop(events);
        self.deputies.retain_mut(|deputy| !matches!(deputy.child.try_wait(), Ok(Some(_))));
        Ok(is_asked)
    }

    /// Answers the wish for a deputy.
    fn answer(&mut self, uid: u32) -> (BrokerAnswer, Option<OwnedFd>) {
        let Some(user) = self.users.iter().find(|user| user.uid == uid) else {
            tracing::error!(target: "longhaul::serve", uid, "no client of the configuration has this user");
            return (BrokerAnswer::Refused, None);
        };
        match self.start(&user.clone()) {
            Ok(socket) => (BrokerAnswer::Done, Some(socket)),
            Err(error) => {
                tracing::error!(target: "longhaul::serve", uid, %error, "no process for this user can be started");
                (BrokerAnswer::Failed, None)
            }
        }
    }

    /// Starts a deputy. Its socket waits for it until it is that user's process.
    fn start(&mut self, user: &ClientUser) -> io::Result<OwnedFd> {
        let groups = groups_of(user)?;
        let ((ours, theirs), (way, door)) = (passing_pair()?, passing_pair()?);
        let groups = groups.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let numbers = [user.uid, user.gid, std::process::id()].map(|number| number.to_string());
        let mut command = Command::new(PROGRAM);
        command.arg0(deputy::NAME).args(&numbers).arg(groups).arg(&self.level).current_dir("/");
        let log = std::env::var_os("LONGHAUL_LOG").map(|log| ("LONGHAUL_LOG", log));
        let mut child = command.env_clear().envs(log).stdin(door).stdout(Stdio::null()).spawn()?;
        let begun = send_passed(&way, deputy::SOCKET, Some(theirs.as_fd()))
            .and_then(|()| Ok(pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?));
        match begun {
            Ok(end) => {
                self.deputies.push(Deputy { child, end });
                Ok(ours)
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Reads the configuration again, and takes nothing of it yet.
    fn read(&mut self) -> BrokerAnswer {
        match users_of(&self.path) {
            Ok(users) => {
                self.read = Some(users);
                BrokerAnswer::Done
            }
            Err(error) => {
                tracing::error!(target: "longhaul::serve", %error, "the configuration cannot be read for its users");
                BrokerAnswer::Failed
            }
        }
    }

    fn take(&mut self) -> BrokerAnswer {
        match self.read.take() {
            Some(users) => {
                self.users = users;
                BrokerAnswer::Done
            }
            None => BrokerAnswer::Failed,
        }
    }

    /// Waits until all deputies have ended, as they do when the daemon is gone. One that does not
    /// is killed.
    fn finish(mut self) {
        let until = Instant::now() + ENDS_WITHIN;
        while !self.deputies.is_empty() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.wait(None, Some(left)).is_err() {
                break;
            }
        }
        for Deputy { mut child, .. } in self.deputies {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The groups of a user, now.
fn groups_of(user: &ClientUser) -> io::Result<Vec<u32>> {
    let Some(name) = &user.name else { return Ok(vec![user.gid]) };
    match Account::of_name(name)? {
        Some(known) if known.uid == user.uid => known.groups(user.gid),
        _ => Err(io::Error::other("the name of this user stands for another one by now, or for none")),
    }
}

/// This very program, also where another build has taken its place on the disk.
const PROGRAM: &str = "/proc/self/exe";
/// Longer than deputies take to end their sessions in order.
const ENDS_WITHIN: Duration = Duration::from_secs(15);

/// Whether the program was started under the name of a broker or a deputy.
pub(crate) fn is_name(name: Option<&OsString>, of: &str) -> bool {
    name.is_some_and(|name| name == OsStr::new(of))
}
