//! `serve`: a daemon in the foreground, until SIGTERM or Ctrl-C.
//!
//! In: the daemon's config and the roots of the command line. Out: log lines on standard error,
//! `listening` events on standard output. `reload` reads the config again, `upkeep` does what an
//! administrator asks for, `watch` has the audit log and the listener of whoever watches. The
//! service itself is the engine's.

mod mover;
mod reload;
mod upkeep;
mod watch;

use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;

use longhaul_core::FaultCode;
use longhaul_engine::{Broker, Marks, ServeConfig, Service, TargetSet, Writing, bind_addresses, privileges};
use longhaul_net::Identity;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use self::mover::{MoverBeside, MoverFigures};
use self::reload::{Fixed, Reloader, Sources};
use self::upkeep::Asked;
use self::watch::WatchParts;
use super::{Context, LogForm};
use crate::admin::{self, AdminSocket, place};
use crate::cli::ServeArgs;
use crate::config::{ClientFile, CommandLineRoot, Daemon, MoverConfig, check_strictly, grants_in};
use crate::confine::{self, Confined, OwnFiles, Purpose};
use crate::error::Error;
use crate::exit::Exit;
use crate::keys;
use crate::notify;
use crate::output::{self, JsonLines, Listening, Summary, Talker};
use crate::settings::{self, Layers, Talk};
use crate::signals::{self, Asking, Hangup};

/// The process that starts others for users, and the socket to it.
type StartedBroker = (Child, OwnedFd);
/// The mover, and the socket to it.
type StartedMover = (Child, UnixStream);

/// Runs the command.
///
/// # Errors
/// An error that is found before the form of output is known.
pub(super) fn run(args: &ServeArgs, context: Context) -> Result<Exit, Error> {
    // The client's config file sets the output of transfers, not the log of a daemon.
    let talk = settings::talk(&args.talk, &Layers::new(context.environment, ClientFile::default()))?;
    if let Some(confined) = &args.ssh_only {
        return super::pipe::run(confined.as_deref(), args.ahead.as_deref(), talk, context);
    }
    Ok(serve(args, talk, context).unwrap_or_else(|error| output::refuse(talk.json, error)))
}

fn serve(args: &ServeArgs, talk: Talk, context: Context) -> Result<Exit, Error> {
    let talker = Talker::new(talk);
    let path = config_path(args, context)?;
    let roots = args.root.iter().map(|text| CommandLineRoot::parse(text)).collect::<Result<Vec<_>, _>>()?;
    let daemon = Daemon::load(path.as_deref(), roots.clone())?;
    context.log(level(talk), if daemon.watching.log_json { LogForm::Json } else { LogForm::Text });
    let identity_default = || context.places().serve_identity(path.as_deref());
    let identity = daemon.identity.clone().map_or_else(identity_default, Ok)?;
    let files: Vec<&Path> = path.as_deref().into_iter().chain([identity.as_path()]).collect();
    let mut doubts = daemon.doubts(&files);
    if args.check_config {
        doubts.extend(daemon.gaps(&identity));
    }
    let socket_named = args.socket.clone().or_else(|| context.variable("socket")).map(PathBuf::from);
    let socket = place(socket_named.clone(), daemon.admin_socket.as_deref(), daemon.state.as_deref());
    let (config, confinement, state, watching) = (daemon.config, daemon.confinement, daemon.state, daemon.watching);
    let needed = || {
        let (config_file, state) = (path.as_deref(), state.as_deref());
        let (socket, audit, http) = (socket.as_deref(), watching.audit.as_deref(), watching.http_socket());
        let files = OwnFiles { config: config_file, identity: &identity, state, socket, audit, http };
        confine::needs(&config, &confinement, files)
    };
    // A check looks at the file, whoever starts it.
    if args.check_config {
        check_identity(&identity)?;
        socket.as_deref().map_or(Ok(()), admin::check)?;
        watching.check()?;
        daemon.mover.as_ref().map_or(Ok(()), |mover| super::mover::check(mover, state.as_deref()))?;
        doubts.extend(check_targets(&config)?);
        let confined = confine::confine(&confinement, &needed(), Purpose::Check)?;
        return Ok(tell_checked(&config, doubts, &confined, (talk, talker)));
    }
    let passed = notify::sockets()?;
    for doubt in &doubts {
        tracing::warn!(target: "longhaul::serve", "{}", output::clean(doubt));
    }
    tell_the_lonely(&config, path.as_deref(), talker);
    // While this process has one thread, may change users and has no secret.
    let broker = start_broker(&config, path.as_deref(), talk)?;
    let form = if watching.log_json { LogForm::Json } else { LogForm::Text };
    let mover = start_mover(daemon.mover.as_ref(), path.as_deref(), (&identity, level(talk), form))?;
    let loaded = keys::load_or_make(&identity, talker)?;
    let sockets = if passed.is_empty() { bind_addresses(&config.listen)? } else { tell_passed(passed, talker) };
    // Here powers are given up, for good: what needs them stands above, and threads begin below.
    let confined = confine::confine(&confinement, &needed(), Purpose::Serve)?;
    tell_confined(&confined);
    let identity_default = identity_default().ok();
    let fixed =
        Fixed { identity, identity_default, confinement, socket_named, socket, watching, mover: daemon.mover, state };
    let sources = Sources { config: path, roots, fixed, confined: Arc::new(confined) };
    super::block_on(listen_until_stopped((config, sockets, (broker, mover)), loaded, sources, (talk, talker)))?
}

/// Starts the process that starts others for users, if a client has one.
fn start_broker(config: &ServeConfig, path: Option<&Path>, talk: Talk) -> Result<Option<StartedBroker>, Error> {
    let (Some(path), true) = (path, config.clients.iter().any(|client| client.user.is_some())) else {
        return Ok(None);
    };
    if !privileges::may_become_others() {
        let why = "clients have a user, and this process may not change to it";
        let hint =
            "start the daemon as root, with CAP_SETUID, CAP_SETGID and CAP_SETPCAP, or take 'user' and 'uid' out";
        return Err(Error::Combination { why, hint });
    }
    super::broker::start(path, level(talk)).map(Some)
}

/// Starts the mover, if the config has one: that is in a file, which the mover reads itself.
fn start_mover(
    mover: Option<&MoverConfig>,
    path: Option<&Path>,
    (identity, level, form): (&Path, &str, LogForm),
) -> Result<Option<StartedMover>, Error> {
    let (Some(_), Some(path)) = (mover, path) else { return Ok(None) };
    super::mover::start(path, identity, (level, form)).map(Some)
}

/// Tells how this process is confined; what is missing is a warning.
fn tell_confined(confined: &Confined) {
    if confined.lacks() {
        tracing::warn!(target: "longhaul::serve", "confinement: {confined}");
    } else {
        tracing::info!(target: "longhaul::serve", "confinement: {confined}");
    }
}

fn tell_passed(passed: Vec<OwnedFd>, talker: Talker) -> Vec<OwnedFd> {
    let count = output::count(passed.len() as u64, "socket");
    talker.note(format_args!("the service manager passed {count}: `listen` of the configuration is not used"));
    passed
}

/// The level from which on the log has lines.
fn level(talk: Talk) -> &'static str {
    match talk.verbose {
        _ if talk.quiet => "warn",
        0 => "info",
        _ => "debug",
    }
}

/// Looks at the targets of all sets, and writes nothing. Returns what is missing.
fn check_targets(config: &ServeConfig) -> Result<Vec<String>, Error> {
    let mut doubts = Vec::new();
    for root in config.roots.iter().filter(|root| root.targets.dirs.len() > 1) {
        let is_written = root.allow.may_change();
        let writing = if is_written { Writing::Wanted } else { Writing::Never };
        let set = TargetSet::open(&root.targets, Marks::Imagined, writing);
        let set = set.map_err(|error| error.fault().about(&root.name))?;
        doubts.extend(set.missing().iter().map(|target| {
            let (name, number, dir, why) = (&root.name, target.id.0, target.dir.display(), &target.why);
            format!("root '{name}': target {number} ({dir}) is missing: {why}")
        }));
    }
    Ok(doubts)
}

/// Tells the doubts and the end of a check.
fn tell_checked(
    config: &ServeConfig,
    mut doubts: Vec<String>,
    confined: &Confined,
    (talk, talker): (Talk, Talker),
) -> Exit {
    if confined.lacks() {
        doubts.push(format!("the daemon would not be confined as it could be: {confined}"));
    }
    doubts.iter().for_each(|doubt| talker.warn(doubt));
    let count = |number: usize, what| output::count(number as u64, what);
    let (roots, clients) = (count(config.roots.len(), "root"), count(config.clients.len(), "client"));
    let found = match doubts.len() {
        0 => "nothing wrong".to_owned(),
        some => format!("nothing wrong, {} to look at", count(some, "warning")),
    };
    talker.note(format_args!("confinement: {confined}"));
    talker.note(format_args!("{roots}, {clients}: {found}"));
    if !talk.json {
        return Exit::Complete;
    }
    let mut lines = JsonLines::new(io::stdout());
    let told = doubts.iter().try_for_each(|doubt| lines.warning(&output::clean(doubt)));
    let told = told.and_then(|()| lines.summary(&Summary::nothing(Exit::Complete)));
    told.map_or_else(output::stdout_failed, |()| Exit::Complete)
}

/// The config to read. `None` if there is none and roots of the command line tell what to serve.
fn config_path(args: &ServeArgs, context: Context) -> Result<Option<PathBuf>, Error> {
    let named = args.config.clone().or_else(|| context.variable("config"));
    let is_named = named.is_some();
    let path = match context.places().serve_config(named.map(PathBuf::from)) {
        Err(Error::NoHome { .. }) if !args.root.is_empty() => return Ok(None),
        path => path?,
    };
    if !is_named && args.root.is_empty() && !path.exists() {
        return Err(context.places().no_serve_config());
    }
    Ok(if !is_named && !args.root.is_empty() && !path.exists() { None } else { Some(path) })
}

/// Checks that a missing identity will be made where no other user could put another, and that one
/// that stands is usable.
fn check_identity(path: &Path) -> Result<(), Error> {
    if path.exists() {
        keys::load(path)?;
    }
    check_strictly(path)
}

/// Warns of a daemon without clients: it is allowed, but surely not intended.
fn tell_the_lonely(config: &ServeConfig, path: Option<&Path>, talker: Talker) {
    if config.clients.is_empty() {
        let root = config.roots.first().map_or("ROOT", |root| root.name.as_str());
        let config = path.map_or(String::new(), |path| format!(" --config {}", path.display()));
        talker.note("no client is authorised, so nobody may connect yet");
        talker.note(format_args!(
            "to let one in, run: longhaul key authorize KEY --name NAME --root {root}=read{config} - and reload ('longhaul admin reload', or SIGHUP)"
        ));
    }
}

async fn listen_until_stopped(
    (config, sockets, (broker, mover)): (ServeConfig, Vec<OwnedFd>, (Option<StartedBroker>, Option<StartedMover>)),
    identity: Arc<Identity>,
    sources: Sources,
    (talk, talker): (Talk, Talker),
) -> Result<Exit, Error> {
    let (stop, stopped) = oneshot::channel::<FaultCode>();
    let asked = Arc::new(Notify::new());
    // The daemon may be gone already when the signal comes.
    signals::watch(Asking::default(), Hangup::Asks(asked.clone()), move |code| {
        let _ = stop.send(code);
    })
    .map_err(Error::file("watch the signals of", "this process"))?;
    let serving = serving(&config);
    let (key, socket) = (identity.public(), sources.fixed.socket.as_deref().map(AdminSocket::bind).transpose()?);
    let watch = WatchParts::begin(&sources.fixed.watching).await?;
    let broker = broker.map(|(child, socket)| {
        tokio::task::spawn_blocking(move || outlived(child));
        Broker::over(socket)
    });
    let used = sources.fixed.state.as_deref().map(grants_in);
    let abroad = (sources.fixed.confinement.dial.clone(), used);
    let service = Service::start_at(config, identity, sockets, (watch.audit(), broker), abroad).await?;
    watch.runs(&service);
    let figures = MoverFigures::default();
    let mut mover = mover.map(|mover| MoverBeside::hear(mover, figures.clone())).transpose()?;
    let reloader = Reloader::new(sources, key, service.handle(), watch.log());
    let admin = look_after(reloader, asked, (socket, figures));
    if let Err(error) = tell_listening(&service, talk, talker) {
        service.shutdown();
        return Ok(output::stdout_failed(error));
    }
    notify::ready(serving);
    tokio::spawn(notify::feed_watchdog(service.liveness()));
    // A watcher that is gone is no stop: the sessions have done nothing wrong.
    let code = match stopped.await {
        Ok(code) => code,
        Err(_) => pending().await,
    };
    service.shutdown();
    notify::stopping("ending every session in order");
    talker.note(format_args!("{}: ending every session in order; once more to stop at once", code.name()));
    if let Some(mover) = &mut mover {
        mover.ask_to_end().await;
    }
    service.wait().await;
    if let Some(mover) = mover {
        mover.end().await;
    }
    watch.end().await;
    // Its socket goes with it.
    if let Some(admin) = admin {
        admin.abort();
        let _ = admin.await;
    }
    Ok(Exit::Complete)
}

/// Waits for the end of the process that starts others for users. The daemon cannot start another
/// one: it has given up the right to.
fn outlived(mut child: Child) {
    let status = match child.wait() {
        // It ends in order when this process does.
        Ok(status) if status.success() => return,
        Ok(status) => status.to_string(),
        Err(error) => error.to_string(),
    };
    tracing::error!(
        target: "longhaul::serve",
        status,
        "the process that starts others for users has ended: clients with a user are refused until the daemon is started again"
    );
}

/// The line that a service manager shows of a daemon that accepts.
fn serving(config: &ServeConfig) -> String {
    let count = |number: usize, what| output::count(number as u64, what);
    format!("serving {} to {}", count(config.roots.len(), "root"), count(config.clients.len(), "client"))
}

/// Begins to hear signals for a reload, and an administrator. Returns the task of the latter.
fn look_after(
    reloader: Arc<Reloader>,
    asked: Arc<Notify>,
    (socket, figures): (Option<AdminSocket>, MoverFigures),
) -> Option<JoinHandle<()>> {
    tokio::spawn(reloader.clone().reload_when_asked(asked));
    socket.map(|socket| tokio::spawn(admin::serve(socket, Arc::new(Asked(reloader, figures)))))
}

fn tell_listening(service: &Service, talk: Talk, talker: Talker) -> io::Result<()> {
    let mut lines = JsonLines::new(io::stdout());
    for (addr, key) in service.listening() {
        talker.say(format_args!("listening on {addr}, key {key}"));
        if talk.json {
            lines.listening(&Listening { addr: addr.to_string(), key: key.to_string() })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_would_be_refused_when_an_identity_is_made_is_refused_when_it_is_checked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity");
        check_identity(&path).unwrap();
        set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(check_identity(&path), Err(Error::Exposed(_))));
    }
}
