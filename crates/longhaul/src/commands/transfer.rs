//! `push`, `pull`, `copy`: make a job of the engine from locations and options, and tell its run.
//!
//! In: parsed arguments. Out: the run's exit. Owns the rule which locations go together. Moves no
//! data itself. `out` has the forms of a destination on this host, `input` those of sources, and
//! `between` what is special about copies between two daemons, `several` has
//! one source go to several destinations.

mod between;
mod input;
mod out;
mod several;

use std::ffi::OsString;

use longhaul_core::{Escaped, PlainText};
use longhaul_engine::{
    Credentials, Job, JobDestination, JobSource as Sources, Reach, RemotePath, Settings, TargetDirs,
};

use self::input::SourcesHere;
use self::out::{Here, To};
use self::several::RunSignals;
use super::Context;
use crate::cli::TransferArgs;
use crate::destination::Destination;
use crate::error::{Error, LocationFlaw};
use crate::exit::Exit;
use crate::keys;
use crate::location::{DEFAULT_PORT, DaemonPath, LocalPath, Location, SshPath};
use crate::manifest::Manifest;
use crate::naming::Naming;
use crate::output::{self, End, EndOfStream, Narrator, Show, Speaker, SyncTold, Talker, Telling};
use crate::settings::{self, InputSettings, SshSettings, StreamSettings, Talk, ThirdPartySettings, TransferSettings};
use crate::signals::{self, Hangup};

/// The direction that the command's name allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    /// From this host to another, or within this host.
    Push,
    /// From another host to this one, or within this host.
    Pull,
    /// Any direction.
    Copy,
}

/// Runs the command.
///
/// # Errors
/// An error that is found before the form of output is known.
pub(super) fn run(direction: Direction, args: &TransferArgs, context: Context) -> Result<Exit, Error> {
    run_from((direction, None, SyncTold::Never), args, context)
}

/// Runs a copy that is a sync.
///
/// # Errors
/// As [`run`].
pub(super) fn sync(args: &TransferArgs, told: SyncTold, context: Context) -> Result<Exit, Error> {
    run_from((Direction::Copy, None, told), args, context)
}

/// Runs a copy whose sources lie beneath a set.
///
/// # Errors
/// As [`run`].
pub(super) fn export(set: TargetDirs, args: &TransferArgs, context: Context) -> Result<Exit, Error> {
    run_from((Direction::Copy, Some(set), SyncTold::Never), args, context)
}

/// The direction, the set beneath which the sources lie, and whether it is a sync.
type RunWay = (Direction, Option<TargetDirs>, SyncTold);

fn run_from(way: RunWay, args: &TransferArgs, context: Context) -> Result<Exit, Error> {
    let layers = context.layers()?;
    let talk = settings::talk(&args.output.talk, &layers)?;
    context.talk(talk);
    let asked = AskedTransfer { way, args, dest: None, talk, talker: Talker::new(talk), signals: RunSignals::new() };
    let done = settings::transfer(args, &layers).and_then(|settings| match args.writes.also.is_empty() {
        true => prepare(&asked, settings, context).and_then(Prepared::run),
        false => several::run(&asked, &settings, context),
    });
    Ok(done.unwrap_or_else(|error| output::refuse(talk.json, error)))
}

/// A transfer that is asked for, and how it is told.
struct AskedTransfer<'a> {
    way: RunWay,
    args: &'a TransferArgs,
    /// The destination, where it is not the last location.
    dest: Option<&'a OsString>,
    talk: Talk,
    talker: Talker,
    signals: RunSignals,
}

/// A transfer with everything that this side knows of it.
struct Prepared {
    job: Job,
    /// `None` where both ends are on this host.
    credentials: Option<Credentials>,
    settings: Settings,
    narrator: Narrator,
    talker: Talker,
    signals: RunSignals,
    sources: usize,
    command: String,
}

fn prepare(asked: &AskedTransfer<'_>, settings: TransferSettings, context: Context) -> Result<Prepared, Error> {
    let AskedTransfer { way: (direction, set, sync), args, talk, talker, .. } = asked;
    let (direction, set, talk, talker, signals) = (*direction, set.clone(), *talk, *talker, asked.signals.clone());
    // A command takes the place of the sources.
    let is_enough = |(sources, _): &(&[OsString], _)| !sources.is_empty() || settings.input.command.is_some();
    let (sources, dest) = args.ends().filter(is_enough).ok_or(Error::Combination {
        why: "a transfer needs a SOURCE and a DEST",
        hint: "write SOURCE... DEST; '.' is the current directory",
    })?;
    let dest = asked.dest.unwrap_or(dest);
    let mut ends = Ends::parse(direction, sources, dest, (settings.stream, &settings.input))?;
    if settings.engine.files_from.is_some() {
        ends.mean_contents();
    }
    consider(&ends, sources.len(), asked, &settings)?;
    let destination = ends.destination();
    let destination = match &settings.dataset {
        Some(name) => destination.within(name),
        None => destination,
    };
    let naming = ends.naming(destination.clone());
    let manifest = match settings.manifest {
        Some(path) if settings.engine.dry_run => {
            talker.note(format_args!("dry run: the manifest {} is not written", path.display()));
            None
        }
        path => path.map(|path| Manifest::create(path, ends.local_sources(), destination.clone())).transpose()?,
    };
    manifest.as_ref().map_or(Ok(()), |manifest| check_manifest(manifest, &ends, talk))?;
    settings.notes.iter().for_each(|note| talker.note(note));
    let credentials = match ends.far() {
        None => None,
        Some(Far::Daemon(_)) => Some(keys::credentials(&settings.keys, &context.places(), talker, &signals.asking)?),
        Some(Far::Ssh(_)) => Some(keys::one_time(talker)?),
    };
    if set.is_some() && ends.local_sources().is_empty() {
        let why = "the sources of an export are paths beneath its set, and another host is named";
        return Err(Error::Combination { why, hint: "name paths as 'ls' of the set shows them" });
    }
    let end_of_stream = ends.given().map_or(EndOfStream::NoStream, SourcesHere::end_of_stream);
    let job = ends.job(set, settings.targets, &settings.ssh)?;
    let ThirdPartySettings { following, dialler } = settings.third_party;
    let job = Job { claim: settings.claim, dataset: settings.dataset, following, dialler, ..job };
    let job = job.cataloguing(context.places().checksums());
    let show = Show::choose(settings.progress, talk, context.environment);
    let dry_run = settings.engine.dry_run;
    let show = if talker.destination().is_some() { show.beside_others() } else { show };
    let (json, rate, stop_on_deaf) = (talk.json, settings.engine.rate, signals.trigger.clone());
    let telling =
        Telling { talker, json, show, rate, dry_run, manifest, destination, naming, end_of_stream, stop: stop_on_deaf };
    let narrator = Narrator::new(telling).counting(*sync);
    let (sources, command) = (sources.len().max(1), quoted(&between::to_repeat(context.line)));
    Ok(Prepared { job, credentials, settings: settings.engine, narrator, talker, signals, sources, command })
}

/// Refuses a manifest that would go where something else does.
fn check_manifest(manifest: &Manifest, ends: &Ends, talk: Talk) -> Result<(), Error> {
    if talk.json && manifest.takes_stdout() {
        let why = "--json and --manifest both want standard output";
        return Err(Error::Combination { why, hint: "give --manifest a file, or leave one of them out" });
    }
    if ends.local_sources().iter().any(|source| manifest.replaces(&source.path)) {
        let why = "--manifest names a file that is to be sent: it would be replaced by the list";
        return Err(Error::Combination { why, hint: "give --manifest another name" });
    }
    Ok(())
}

/// Refuses what does not go together, and tells what is not as it may be expected.
fn consider(ends: &Ends, sources: usize, asked: &AskedTransfer<'_>, settings: &TransferSettings) -> Result<(), Error> {
    let &AskedTransfer { args, talk, talker, .. } = asked;
    if settings.engine.files_from.is_some() && sources > 1 {
        let why = "the names of --files-from are relative to one SOURCE, but several are given";
        return Err(Error::Combination { why, hint: "give one SOURCE" });
    }
    between::check(ends, settings)?;
    if let Some(given) = ends.given() {
        given.check(ends.here(), settings)?;
    }
    if let Some(here) = ends.here() {
        here.check(sources, settings, talk)?;
        if here.is_stream() && !settings.engine.dry_run {
            talker.note("a stream cannot be gone on with: if this run ends early, the next one begins it anew");
        }
    }
    if matches!(ends, Ends::Push(..)) && (args.writes.sync_interval.is_some() || args.writes.sync_bytes.is_some()) {
        talker.note(
            "--sync-interval and --sync-bytes act where files are written: in a push sync_interval and sync_bytes of the \
             daemon's [limits] decide",
        );
    }
    Ok(())
}

impl Prepared {
    fn run(self) -> Result<Exit, Error> {
        let Prepared { job, credentials, settings, narrator, talker, signals, sources, command } = self;
        let RunSignals { stop, trigger, asking } = signals;
        let speaker = Speaker::start(narrator);
        let (observer, voice) = (speaker.observer(), speaker.voice(talker));
        let stop_run = move |code| {
            trigger.stop(code);
            voice.note(STOPPING);
        };
        signals::watch(asking.clone(), Hangup::Stops, stop_run)
            .map_err(Error::file("watch the signals of", "this process"))?;
        let report = super::block_on(longhaul_engine::run(job, credentials, settings, observer, stop))?;
        // The last lines may wait for a reader that never comes.
        asking.end();
        match speaker.finish() {
            Some(narrator) => Ok(narrator.conclude(&End { report: &report, sources, command })),
            None => Ok(Exit::of_report(&report, sources)),
        }
    }
}

/// The answer to the first signal.
const STOPPING: &str = "stopping: writing down what has come; once more to stop now";

/// The two ends of a transfer, in a combination that is supported.
enum Ends {
    Local(SourcesHere, Here),
    Push(SourcesHere, Far),
    /// All sources are at one host.
    Pull(Vec<Far>, Here),
    /// All sources are at one daemon, and the destination is at another.
    ThirdParty(Vec<Far>, Far),
}

/// A path of another host.
#[derive(Clone)]
enum Far {
    Daemon(DaemonPath),
    Ssh(SshPath),
}

impl Far {
    /// Reads a location that is on another host. `None` for one of this host.
    fn of(location: Location, text: &[u8]) -> Result<Result<Far, LocalPath>, Error> {
        Ok(match location {
            Location::Local(path) => Err(path),
            Location::Daemon(daemon) => Ok(Far::Daemon(with_root(daemon, text)?)),
            Location::Ssh(path) => Ok(Far::Ssh(path)),
        })
    }

    /// Whether both are at one host.
    fn is_beside(&self, other: &Far) -> bool {
        match (self, other) {
            (Far::Daemon(one), Far::Daemon(other)) => (&one.host, one.port) == (&other.host, other.port),
            (Far::Ssh(one), Far::Ssh(other)) => one.host == other.host,
            _ => false,
        }
    }
}

impl Ends {
    fn parse(
        direction: Direction,
        sources: &[OsString],
        dest: &OsString,
        (out, input): (StreamSettings, &InputSettings),
    ) -> Result<Ends, Error> {
        let mut local = Vec::new();
        let mut remote = Vec::new();
        let stream = SourcesHere::stream(sources, input)?;
        for text in sources {
            match Far::of(Location::parse(text)?, text.as_encoded_bytes())? {
                Err(path) => local.push(path),
                Ok(far) => remote.push(far),
            }
        }
        let wrong = |why, hint| Err(Error::Combination { why, hint });
        let to = To::parse(dest, out)?;
        let is_here = !local.is_empty() || stream.is_some();
        let given = stream.map_or(SourcesHere::Paths(local), SourcesHere::Stream);
        if is_here && !remote.is_empty() {
            return wrong("some sources are on this host, some at another", "run one command for each");
        }
        match (direction, to) {
            (Direction::Push, _) if !remote.is_empty() => {
                wrong("push sends files of this host, but a source is at another", "use pull or copy")
            }
            (Direction::Pull, To::Far(_)) => {
                wrong("pull fetches to this host, but the destination is at another", "use push or copy")
            }
            (Direction::Pull, _) if is_here => wrong(
                "pull fetches from another host, but a source is on this one",
                "use copy, or write HOST:PATH or lh://HOST/ROOT/PATH",
            ),
            (_, To::Far(far)) if !remote.is_empty() => {
                let is_daemon = |far: &Far| matches!(far, Far::Daemon(_));
                match remote.first() {
                    Some(first) if !remote.iter().all(|far| far.is_beside(first)) => {
                        wrong("the sources are at different hosts", "run one command for each")
                    }
                    Some(first) if is_daemon(first) && is_daemon(&far) => Ok(Ends::ThirdParty(remote, far)),
                    _ => wrong(
                        "a copy between two other hosts is one between two daemons, and ssh leads to one of them",
                        "pull to a directory of this host, then push from it",
                    ),
                }
            }
            (_, To::Far(far)) => Ok(Ends::Push(given, far)),
            (_, To::Here(here)) => match remote.first() {
                None => Ok(Ends::Local(given, here)),
                Some(first) if remote.iter().all(|far| far.is_beside(first)) => Ok(Ends::Pull(remote, here)),
                Some(_) => wrong("the sources are at different hosts", "run one command for each"),
            },
        }
    }

    /// Sends the content of the sources, not the sources themselves: names of a list are relative
    /// to its one source, and land as they are.
    fn mean_contents(&mut self) {
        match self {
            Ends::Local(given, _) | Ends::Push(given, _) => given.mean_contents(),
            Ends::Pull(sources, _) | Ends::ThirdParty(sources, _) => {
                sources.iter_mut().for_each(|source| match source {
                    Far::Daemon(daemon) => daemon.path.iter_mut().for_each(|path| path.slash = true),
                    Far::Ssh(path) => path.slash = true,
                })
            }
        }
    }

    /// The destination, if it is on this host.
    fn here(&self) -> Option<&Here> {
        match self {
            Ends::Local(_, here) | Ends::Pull(_, here) => Some(here),
            Ends::Push(..) | Ends::ThirdParty(..) => None,
        }
    }

    /// The sources, if they are on this host.
    fn given(&self) -> Option<&SourcesHere> {
        match self {
            Ends::Local(given, _) | Ends::Push(given, _) => Some(given),
            Ends::Pull(..) | Ends::ThirdParty(..) => None,
        }
    }

    fn local_sources(&self) -> &[LocalPath] {
        self.given().map_or(&[], SourcesHere::paths)
    }

    fn destination(&self) -> Destination {
        match self {
            Ends::Local(_, here) | Ends::Pull(_, here) => here.destination(),
            Ends::Push(_, Far::Daemon(dest)) | Ends::ThirdParty(_, Far::Daemon(dest)) => Destination::daemon(dest),
            Ends::Push(_, Far::Ssh(dest)) | Ends::ThirdParty(_, Far::Ssh(dest)) => Destination::ssh(dest),
        }
    }

    fn naming(&self, destination: Destination) -> Naming {
        match self {
            Ends::Local(given, _) | Ends::Push(given, _) => Naming::from_here(given.paths(), destination),
            Ends::Pull(sources, _) | Ends::ThirdParty(sources, _) => {
                let (daemons, paths) = apart(sources);
                if paths.is_empty() {
                    Naming::from_daemon(&daemons, destination)
                } else {
                    Naming::from_ssh(&paths, destination)
                }
            }
        }
    }

    /// A path of the other host, if there is one.
    fn far(&self) -> Option<&Far> {
        match self {
            Ends::Local(..) => None,
            Ends::Push(_, far) => Some(far),
            Ends::Pull(sources, _) | Ends::ThirdParty(sources, _) => sources.first(),
        }
    }

    fn job(self, set: Option<TargetDirs>, targets: Option<TargetDirs>, ssh: &SshSettings) -> Result<Job, Error> {
        if targets.is_some() && matches!(self, Ends::Push(..) | Ends::ThirdParty(..)) {
            let why = "--target spreads a destination on this host, and the destination is at another";
            let hint = "leave it out; targets = [..] in a daemon's config spreads a root";
            return Err(Error::Combination { why, hint });
        }
        Ok(match self {
            Ends::Local(given, here) => Job::between(given.job(set), here.job(targets)),
            Ends::Push(given, far) => {
                let (reach, paths) = reached(&[far], ssh)?;
                let path = paths.into_iter().next().ok_or_else(|| no_root(b"lh://"))?;
                Job::between(given.job(set), JobDestination::Remote(reach, path))
            }
            Ends::Pull(sources, here) => {
                let (reach, paths) = reached(&sources, ssh)?;
                Job::between(Sources::Remote(reach, paths), here.job(targets))
            }
            Ends::ThirdParty(sources, far) => {
                let ((from, paths), (to, dest)) = (reached(&sources, ssh)?, reached(&[far], ssh)?);
                Job::third_party(from, paths, to, dest.into_iter().next().ok_or_else(|| no_root(b"lh://"))?)
            }
        })
    }
}

/// How the one host of all these paths is reached, and the paths there.
fn reached(far: &[Far], ssh: &SshSettings) -> Result<(Reach, Vec<RemotePath>), Error> {
    Ok(match apart(far) {
        (daemons, paths) if paths.is_empty() => {
            let host = daemons.first().map_or(String::new(), |daemon| daemon.host.clone());
            let port = daemons.first().map_or(DEFAULT_PORT, |daemon| daemon.port);
            (Reach::Address { host, port }, daemons.into_iter().filter_map(|daemon| daemon.path).collect())
        }
        (_, paths) => ssh.reach(&paths)?,
    })
}

/// The paths at daemons, and those that ssh leads to.
fn apart(far: &[Far]) -> (Vec<DaemonPath>, Vec<SshPath>) {
    let (mut daemons, mut paths) = (Vec::new(), Vec::new());
    for one in far {
        match one {
            Far::Daemon(daemon) => daemons.push(daemon.clone()),
            Far::Ssh(path) => paths.push(path.clone()),
        }
    }
    (daemons, paths)
}

/// Checks that a daemon's location has a root: a daemon alone is no source or destination.
fn with_root(daemon: DaemonPath, text: &[u8]) -> Result<DaemonPath, Error> {
    if daemon.path.is_some() { Ok(daemon) } else { Err(no_root(text)) }
}

fn no_root(text: &[u8]) -> Error {
    Error::Location { location: Escaped(text).to_string(), flaw: LocationFlaw::NoRoot }
}

/// The command line as a shell takes it, each unusual word in single quotes. A word that a terminal
/// would not show as it is stands in the quotes of shells that know `$'...'`.
fn quoted(line: &[OsString]) -> String {
    let words = line.iter().map(|word| {
        let text = word.to_string_lossy();
        if word.to_str().is_none_or(|text| *PlainText::from(text) != *text) {
            return escaped(word.as_encoded_bytes());
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:=@,+%[]".contains(c);
        if !text.is_empty() && text.chars().all(plain) {
            text.into_owned()
        } else {
            format!("'{}'", text.replace('\'', "'\\''"))
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

fn escaped(word: &[u8]) -> String {
    let mut text = "$'".to_owned();
    for &byte in word {
        match byte {
            b'\'' | b'\\' => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            // Three digits end the number, whatever follows.
            _ => text.push_str(&format!("\\{byte:03o}")),
        }
    }
    text.push('\'');
    text
}

#[cfg(test)]
mod tests;
