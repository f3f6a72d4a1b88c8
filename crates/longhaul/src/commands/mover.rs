//! The mover of a daemon: a process beside it. It is this program under another name, which `serve`
//! starts before it confines itself, as a mover dials other daemons, reads what campaigns name, and
//! runs hooks, and a daemon does none of that.
//!
//! In: the daemon's configuration, which it reads itself by the same checks, and a socket on
//! standard input. Out: shards that are moved, lines of the log, and to the daemon its figures. A
//! fault ends neither of them: the queue is opened again after a while. It hands back what it moves
//! when the daemon is gone, or asks it to by closing the socket.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::{Blame, Fault, FaultCode};
use longhaul_engine::{Credentials, privileges};
use longhaul_jobs::queue::Granted;
use longhaul_jobs_postgres::Passwords;
use tokio::io::AsyncReadExt;
use tokio::sync::{Notify, watch};

use super::{Context, LogForm};
use crate::config::{CHECKSUMS, Daemon, MoverConfig, Places};
use crate::error::Error;
use crate::exit::Exit;
use crate::jobs::{
    CampaignKeys, Hooks, KeyRing, LocalGround, Mover, MoverEnd, MoverObserver, MoverOrders, Owners, QueuePlace,
    ShardEnd, SharedQueue, Unsigned,
};
use crate::keys;
use crate::output::{self, AdminMoverBody, Talker};
use crate::settings::{Keys, Talk};
use crate::signals::{self, Asking, Hangup};

/// The name under which the program is a daemon's mover.
pub(crate) const NAME: &str = "longhaul-mover";

/// Starts the mover of the daemon of the config at `path`. Returns it, and the daemon's end of the
/// socket to it.
///
/// # Errors
/// [`Error::File`] with the system's error.
pub(super) fn start(
    path: &Path,
    identity: &Path,
    (level, form): (&str, LogForm),
) -> Result<(Child, UnixStream), Error> {
    let failed = || Error::file("start the mover of", "this daemon");
    let (ours, theirs) = UnixStream::pair().map_err(failed())?;
    let absolute = |path: &Path| std::path::absolute(path).map_err(Error::file("find", path));
    let form = if form == LogForm::Json { "json" } else { "text" };
    let mut mover = Command::new(PROGRAM);
    mover.arg0(NAME).arg(absolute(path)?).arg(absolute(identity)?).args([level, form]).current_dir("/");
    mover.env_clear().envs(std::env::var_os("LONGHAUL_LOG").map(|log| ("LONGHAUL_LOG", log)));
    let child = mover.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).spawn().map_err(failed())?;
    Ok((child, ours))
}

/// Runs as a mover. `line` has the config, the daemon's key, and the level and the form of the log.
///
/// # Errors
/// An error of the config, or of a process that could not become the daemon's user.
pub(crate) fn run(line: &[OsString], context: Context) -> Result<Exit, Error> {
    let words: Vec<_> = line.iter().skip(1).collect();
    let [path, identity, level, form] = words.as_slice() else {
        let why = "the mover of a daemon is started by the daemon alone";
        return Err(Error::Combination { why, hint: "run 'longhaul job run'" });
    };
    let form = if *form == "json" { LogForm::Json } else { LogForm::Text };
    context.log(&level.to_string_lossy(), form);
    let path = PathBuf::from(path);
    let daemon = Daemon::load_alone(&path)?;
    let Some(config) = daemon.mover else { return Ok(Exit::Complete) };
    if let Some(user) = &daemon.confinement.user {
        let name = || user.name.to_string_lossy().into_owned();
        privileges::become_user(user).map_err(|source| Error::BecomeUser { user: name(), source })?;
    }
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(Error::file("use", "the socket to the daemon"))?;
    let catalogue = daemon.state.as_deref().map(|state| state.join(CHECKSUMS));
    let state = daemon.state.map(OsString::from);
    let places = Places::of(&|name| state.clone().filter(|_| name == "XDG_STATE_HOME"));
    let keys = Arc::new(DaemonKeys {
        given: Keys {
            identity: config.identity.clone(),
            known_hosts: config.known_hosts.clone(),
            trust_on_first_use: false,
            peer_key: None,
        },
        identity: PathBuf::from(identity),
        known_hosts: path.with_file_name("known_hosts"),
        places,
        catalogue,
    });
    super::block_on(serve(config, keys, UnixStream::from(socket)))?
}

/// Moves until it is asked to end.
async fn serve(config: MoverConfig, keys: Arc<DaemonKeys>, socket: UnixStream) -> Result<Exit, Error> {
    let failed = || Error::file("use", "the socket to the daemon");
    let (stop, halt) = watch::channel(None);
    let stop = Arc::new(stop);
    let stopped = stop.clone();
    // The daemon reads its configuration again then, and its mover goes on.
    let hangup = Hangup::Asks(Arc::new(Notify::new()));
    signals::watch(Asking::default(), hangup, move |code| {
        stopped.send_replace(Some(code));
    })
    .map_err(Error::file("watch the signals of", "this process"))?;
    let figures = socket.try_clone().map_err(failed())?;
    socket.set_nonblocking(true).map_err(failed())?;
    let mut socket = tokio::net::UnixStream::from_std(socket).map_err(failed())?;
    tokio::spawn(async move {
        // Nothing ever comes but the end.
        let _ = socket.read(&mut [0]).await;
        stop.send_replace(Some(FaultCode::Terminated));
    });
    let told = Arc::new(DaemonMoverTold::new(&config, figures));
    move_for_ever(&config, &keys, &told, halt).await;
    tracing::info!(target: "longhaul::serve", "the mover has ended, and has handed back what it was moving");
    Ok(Exit::Complete)
}

/// Moves, and begins anew behind a fault.
async fn move_for_ever(
    config: &MoverConfig,
    keys: &Arc<DaemonKeys>,
    told: &Arc<DaemonMoverTold>,
    mut halt: watch::Receiver<Option<FaultCode>>,
) {
    let mut pause = RESTART_PAUSE_MIN;
    while halt.borrow().is_none() {
        let begun = Instant::now();
        // In a task of its own: not even a mistake of this program ends more than this try.
        let (config, keys, to_tell, halted) = (config.clone(), keys.clone(), told.clone(), halt.clone());
        let moved = tokio::spawn(async move { move_once(&config, &keys, &to_tell, halted).await }).await;
        let fault = match moved {
            Ok(Ok(_)) => continue,
            Ok(Err(fault)) => fault,
            Err(error) => Fault::new(FaultCode::Internal, Blame::Bug, error),
        };
        told.trouble(&fault);
        pause = if begun.elapsed() > RESTART_PAUSE_MAX { RESTART_PAUSE_MIN } else { pause };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = halt.wait_for(Option::is_some) => {}
        }
        pause = (pause * 2).min(RESTART_PAUSE_MAX);
    }
}

async fn move_once(
    config: &MoverConfig,
    keys: &Arc<DaemonKeys>,
    told: &Arc<DaemonMoverTold>,
    halt: watch::Receiver<Option<FaultCode>>,
) -> Result<Option<FaultCode>, Fault> {
    let (place, hooks) = (queue_place(config, &keys.places)?, hooks(config)?);
    let opened = place.clone();
    // A server may be far away, and a disk busy.
    let queue = tokio::task::spawn_blocking(move || opened.open_or_make().map(SharedQueue::new)).await;
    let queue = queue.map_err(|error| Fault::new(FaultCode::Internal, Blame::Bug, error))??;
    let orders = MoverOrders {
        campaigns: Vec::new(),
        names: config.campaigns.clone(),
        until: MoverEnd::Never,
        time_max: None,
        movers: config.movers,
        memory: Some(config.memory),
        ground: LocalGround::Beneath(config.beneath.clone()),
        owners: owners(config, keys, &place)?,
    };
    tracing::info!(target: "longhaul::serve", "the mover serves the queue {}", output::clean(&place.to_string()));
    let (keys, catalogue) = (keys.clone() as Arc<dyn KeyRing>, keys.catalogue.clone());
    let mover = Mover::new((queue, place.shelf()), Some(keys), orders, told.clone())?;
    mover.with_hooks(hooks).cataloguing(catalogue).run(halt).await
}

/// The owners whose campaigns are moved: whoever has the mover's own key, and those that are named.
/// A queue in a file is the daemon's user's alone, so that all that it has is moved, unless
/// somebody is named.
fn owners(config: &MoverConfig, keys: &DaemonKeys, place: &QueuePlace) -> Result<Owners, Error> {
    let is_any = place.is_file() && config.owners.is_empty();
    let unsigned = match &config.allow_unsigned {
        Some(names) => Unsigned::Named(names.iter().cloned().collect()),
        None if is_any => Unsigned::Moved,
        None => Unsigned::Refused,
    };
    if is_any {
        return Ok(Owners::any(unsigned));
    }
    let own = keys::public(keys.given.identity.as_ref().unwrap_or(&keys.identity))?;
    Ok(Owners::these(config.owners.iter().copied().chain(own), unsigned))
}

/// The queue of a mover.
fn queue_place(config: &MoverConfig, places: &Places) -> Result<QueuePlace, Error> {
    let passwords = Passwords { any: None, file: config.passwords.clone() };
    QueuePlace::at(Some(OsString::from(&config.queue)), places, passwords)
}

fn hooks(config: &MoverConfig) -> Result<Hooks, Error> {
    config.hooks.as_deref().map(Hooks::load).transpose().map(Option::unwrap_or_default)
}

/// Looks at what a mover would begin with, and opens nothing but the file of its hooks.
///
/// # Errors
/// The mistake in one of them.
pub(super) fn check(config: &MoverConfig, state: Option<&Path>) -> Result<(), Error> {
    let state = state.map(|state| state.as_os_str().to_owned());
    let places = Places::of(&|name| state.clone().filter(|_| name == "XDG_STATE_HOME"));
    queue_place(config, &places)?;
    hooks(config).map(drop)
}

/// The keys of a daemon's mover: those of its table, and else those of the daemon. What a campaign
/// keeps is of its owner, who is not this host's: it names no key of this host, and nobody to be
/// trusted.
struct DaemonKeys {
    given: Keys,
    identity: PathBuf,
    known_hosts: PathBuf,
    places: Places,
    /// The daemon's catalogue of checksums.
    catalogue: Option<PathBuf>,
}

impl KeyRing for DaemonKeys {
    fn credentials(&self, _: &CampaignKeys) -> Result<Credentials, Fault> {
        let mut keys = self.given.clone();
        keys.identity.get_or_insert_with(|| self.identity.clone());
        keys.known_hosts.get_or_insert_with(|| self.known_hosts.clone());
        let talker = Talker::new(Talk { quiet: true, ..Talk::default() });
        Ok(keys::credentials(&keys, &self.places, talker, &Asking::default())?)
    }
}

/// Tells the log and the daemon what the mover does.
struct DaemonMoverTold {
    figures: Mutex<AdminMoverBody>,
    socket: UnixStream,
}

impl DaemonMoverTold {
    fn new(config: &MoverConfig, socket: UnixStream) -> DaemonMoverTold {
        // Whoever does not read loses figures, and stops nothing.
        let _ = socket.set_write_timeout(Some(SAY_TIME));
        let movers = config.movers.get();
        let told =
            DaemonMoverTold { figures: Mutex::new(AdminMoverBody { movers, ..AdminMoverBody::default() }), socket };
        told.say(|_| {});
        told
    }

    fn figures(&self) -> MutexGuard<'_, AdminMoverBody> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the figures, and says them to the daemon, a line at a time.
    fn say(&self, change: impl FnOnce(&mut AdminMoverBody)) {
        let mut figures = self.figures();
        change(&mut figures);
        // Texts and numbers can always be written.
        let mut line = serde_json::to_vec(&*figures).unwrap_or_default();
        line.push(b'\n');
        let _ = (&self.socket).write_all(&line);
    }
}

impl MoverObserver for DaemonMoverTold {
    fn shard_begins(&self, granted: &Granted) {
        let (campaign, shard) = (output::clean(&granted.campaign.name), granted.shard.id.0);
        tracing::info!(target: "longhaul::serve", shard, "the mover has claimed a shard of {campaign}");
        self.say(|figures| figures.shards_moving += 1);
    }

    fn shard_ends(&self, granted: &Granted, end: &ShardEnd) {
        let (campaign, shard) = (output::clean(&granted.campaign.name), granted.shard.id.0);
        let state = end.state.map_or("gone", |state| state.kind().name());
        let (failed, bytes) = (end.files_failed, end.bytes_moved);
        tracing::info!(target: "longhaul::serve", shard, state, failed, bytes, "the mover is through with a shard of {campaign}");
        self.say(|figures| {
            figures.shards_moving = figures.shards_moving.saturating_sub(1);
            figures.shards_ended += 1;
            figures.files_failed += failed;
            figures.bytes_moved += bytes;
        });
    }

    fn trouble(&self, fault: &Fault) {
        let words = output::clean(&format!("{}: {}", fault.code.name(), fault.message)).to_string();
        tracing::warn!(target: "longhaul::serve", "the mover: {words}");
        self.say(|figures| figures.fault = Some(words));
    }
}

/// This very program, also where another build has taken its place on the disk.
const PROGRAM: &str = "/proc/self/exe";
/// The pause behind a fault, which is doubled each time.
const RESTART_PAUSE_MIN: Duration = Duration::from_secs(5);
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(300);
/// The longest time that figures wait for the daemon.
const SAY_TIME: Duration = Duration::from_secs(1);
