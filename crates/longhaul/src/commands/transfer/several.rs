//! One source that goes to several destinations: DEST, and one more for each `--also`.
//!
//! In: the arguments of a transfer and its settings. Out: the worst exit of all destinations. Owns
//! the rules what such a run goes together with. Each destination is prepared, run and told as a
//! run with one is; the engine has them read the source together. Moves nothing itself.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::Component;

use longhaul_core::{Escaped, PlainText};
use longhaul_engine::{Deliveries, Following, RemotePath, Report, Stop, StopTrigger};
use tokio::task::JoinSet;

use super::input::SourcesHere;
use super::out::Here;
use super::{AskedTransfer, Direction, Ends, Far, Prepared, STOPPING, prepare};
use crate::commands::{Context, block_on_many};
use crate::error::Error;
use crate::exit::Exit;
use crate::location::{DaemonPath, LocalPath, Location, SshPath};
use crate::output::{self, DeliveriesTold, End, Speaker, Talker};
use crate::settings::TransferSettings;
use crate::signals::{self, Asking, Hangup};

/// The signals of a command, which stop all of its runs.
#[derive(Clone)]
pub(super) struct RunSignals {
    /// The stop that each run heeds.
    pub(super) stop: Stop,
    /// The trigger of it.
    pub(super) trigger: StopTrigger,
    /// The questions at the terminal that are open.
    pub(super) asking: Asking,
}

impl RunSignals {
    /// Signals of which none has come.
    pub(super) fn new() -> RunSignals {
        let (trigger, stop) = Stop::new();
        RunSignals { stop, trigger, asking: Asking::default() }
    }
}

/// Runs a transfer to several destinations.
///
/// # Errors
/// An error that is found before anything is moved.
pub(super) fn run(asked: &AskedTransfer<'_>, settings: &TransferSettings, context: Context) -> Result<Exit, Error> {
    check(asked, settings)?;
    let dests = destinations(asked, settings)?;
    let mut prepared = Vec::new();
    for (number, dest) in dests.iter().copied().enumerate() {
        let mut settings = settings.clone();
        if number > 0 {
            settings.notes.clear();
        }
        let talker = asked.talker.of_destination(name_of(dest));
        let (way, signals) = (asked.way.clone(), asked.signals.clone());
        prepared.push(prepare(&AskedTransfer { way, dest: Some(dest), talker, signals, ..*asked }, settings, context)?);
    }
    let deliveries = Deliveries::begin(settings.engine.clone(), dests.len())?;
    deliver(prepared, &deliveries, asked)
}

/// Refuses settings that are about one destination.
fn check(asked: &AskedTransfer<'_>, settings: &TransferSettings) -> Result<(), Error> {
    let wrong = |why, hint| Err(Error::Combination { why, hint });
    if asked.way.0 == Direction::Pull {
        let hint = "use push or copy where SOURCE is on this host";
        return wrong("pull fetches to one destination, and --also names another", hint);
    }
    if settings.input.command.is_some() {
        return wrong(OF_STREAM, ALONE);
    }
    if settings.manifest.is_some() {
        return wrong("--manifest lists what stands at one destination, and --also names another", ALONE);
    }
    if settings.claim.is_some() {
        return wrong("--claim is about one destination, and --also names another", ALONE);
    }
    if settings.targets.is_some() {
        return wrong("--target spreads one destination on this host, and --also names another", ALONE);
    }
    if settings.third_party.following != Following::ToTheEnd {
        return wrong("--detach and --attach are for one copy from daemon to daemon, and --also names another", ALONE);
    }
    Ok(())
}

/// The destinations, in the order of the command line, if each of them can be one of several.
fn destinations<'a>(asked: &AskedTransfer<'a>, settings: &TransferSettings) -> Result<Vec<&'a OsString>, Error> {
    let wrong = |why, hint| Err(Error::Combination { why, hint });
    let missing = Error::Combination { why: "a transfer needs a SOURCE and a DEST", hint: "write SOURCE... DEST" };
    let (sources, first) = asked.args.ends().filter(|(sources, _)| !sources.is_empty()).ok_or(missing)?;
    let dests: Vec<&OsString> = std::iter::once(first).chain(&asked.args.writes.also).collect();
    if dests.len() > Deliveries::MOST {
        return wrong("more than 16 destinations are named", "run several commands");
    }
    let (mut places, mut daemons) = (Vec::new(), HashSet::new());
    for dest in dests.iter().copied() {
        let place = place(Location::parse(dest)?);
        if places.contains(&place) {
            return wrong("a destination is named twice", "name each destination once");
        }
        places.push(place);
        match Ends::parse(asked.way.0, sources, dest, (settings.stream, &settings.input))? {
            Ends::Local(SourcesHere::Stream(_), _) | Ends::Push(SourcesHere::Stream(_), _) => {
                return wrong(OF_STREAM, ALONE);
            }
            Ends::Local(_, Here::Stream(_)) => {
                return wrong("a stream is the only destination, and --also names another", ALONE);
            }
            Ends::Pull(..) | Ends::ThirdParty(..) => {
                let why = "--also reads sources of this host once for several destinations, and a source is at another";
                return wrong(why, "run one command for each destination");
            }
            Ends::Push(_, Far::Daemon(daemon)) => {
                daemons.insert((daemon.host, daemon.port));
            }
            Ends::Local(..) | Ends::Push(..) => {}
        }
    }
    if daemons.len() > 1 && settings.keys.peer_key.is_some() {
        let why = "--peer-key is the key of one daemon, and several are named";
        return wrong(why, "trust each: longhaul key trust HOST[:PORT] KEY");
    }
    Ok(dests)
}

/// A location in the form that is the same however the same place is written: whether it ends in a
/// slash does not matter, nor does `.` within a path of this host. Links are not followed.
fn place(location: Location) -> Location {
    match location {
        Location::Local(LocalPath { path, .. }) => {
            let path = path.components().filter(|part| *part != Component::CurDir).collect();
            Location::Local(LocalPath { path, slash: false })
        }
        Location::Daemon(DaemonPath { host, port, path }) => {
            let path = path.map(|path| RemotePath { slash: false, ..path });
            Location::Daemon(DaemonPath { host, port, path })
        }
        Location::Ssh(path) => Location::Ssh(SshPath { slash: false, ..path }),
    }
}

/// The name of a destination in lines and events. It is kept until the process ends: there are no
/// more than 16.
fn name_of(dest: &OsString) -> &'static str {
    let text = match dest.to_str() {
        Some(text) => PlainText::from(text).to_string(),
        None => Escaped(dest.as_encoded_bytes()).to_string(),
    };
    Box::leak(text.into_boxed_str())
}

/// A destination while its run goes on.
struct DestinationRun {
    speaker: Speaker,
    sources: usize,
    command: String,
}

/// Runs all at the same time, and tells each end.
fn deliver(prepared: Vec<Prepared>, deliveries: &Deliveries, asked: &AskedTransfer<'_>) -> Result<Exit, Error> {
    let mut runs = Vec::new();
    let mut jobs = Vec::new();
    for Prepared { job, credentials, narrator, signals, sources, command, .. } in prepared {
        let speaker = Speaker::start(narrator);
        jobs.push((job, credentials, speaker.observer(), signals.stop));
        runs.push(DestinationRun { speaker, sources, command });
    }
    watch_signals(&runs, asked)?;
    let count = jobs.len();
    let asking = &asked.signals.asking;
    asking.runs(count);
    let reports = block_on_many(count, async {
        let mut set = JoinSet::new();
        for (number, (job, credentials, observer, stop)) in jobs.into_iter().enumerate() {
            let deliveries = deliveries.clone();
            set.spawn(async move { (number, deliveries.deliver(number, job, credentials, observer, stop).await) });
        }
        let mut reports: Vec<Option<Report>> = (0..count).map(|_| None).collect();
        while let Some(ended) = set.join_next().await {
            asking.runs(set.len());
            match ended {
                Ok((number, report)) => reports[number] = Some(report),
                Err(error) => tracing::error!(%error, "the run of a destination broke"),
            }
        }
        reports
    })?;
    // The last lines may wait for a reader that never comes.
    asked.signals.asking.end();
    Ok(conclude(runs, &reports, deliveries, asked))
}

fn watch_signals(runs: &[DestinationRun], asked: &AskedTransfer<'_>) -> Result<(), Error> {
    let voice = runs.first().map(|first| first.speaker.voice(asked.talker));
    let RunSignals { trigger, asking, .. } = asked.signals.clone();
    let stop_run = move |code| {
        trigger.stop(code);
        voice.iter().for_each(|voice| voice.note(STOPPING));
    };
    signals::watch(asking, Hangup::Stops, stop_run).map_err(Error::file("watch the signals of", "this process"))
}

/// Tells the end of each destination, and that of all.
fn conclude(
    runs: Vec<DestinationRun>,
    reports: &[Option<Report>],
    deliveries: &Deliveries,
    asked: &AskedTransfer<'_>,
) -> Exit {
    let exit_of = |(run, report): (&DestinationRun, &Option<Report>)| match report {
        Some(report) => Exit::of_report(report, run.sources),
        None => Exit::Unclassified,
    };
    let exits: Vec<Exit> = runs.iter().zip(reports).map(exit_of).collect();
    let mut exit = exits.iter().fold(Exit::Complete, |worst, exit| worst.worse(*exit));
    let complete = exits.iter().filter(|exit| **exit == Exit::Complete).count();
    let told = DeliveriesTold { destinations: exits.len(), complete, reading: deliveries.figures(), exit };
    // All events so far are told before the one that counts destinations.
    let ended: Vec<_> = runs.into_iter().map(|run| (run.speaker.finish(), run.sources, run.command)).collect();
    if asked.talk.json
        && let Err(error) = told.event()
    {
        return output::stdout_failed(error);
    }
    for ((narrator, sources, command), report) in ended.into_iter().zip(reports) {
        if let (Some(narrator), Some(report)) = (narrator, report) {
            exit = exit.worse(narrator.conclude(&End { report, sources, command }));
        }
    }
    if !asked.args.choice.dry_run {
        told.say(Talker::new(asked.talk));
    }
    exit
}

/// The reason why a stream goes to no second destination.
const OF_STREAM: &str = "a stream is read once and goes to one destination, and --also names another";
/// The advice about what is for one destination.
const ALONE: &str = "leave it out, or run one command for each destination";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_place_is_recognised_however_it_is_written() {
        let is_same = |one: &str, other: &str| {
            let place = |text: &str| place(Location::parse(text.as_ref()).unwrap());
            place(one) == place(other)
        };
        for (one, other) in [
            ("x", "./x/"),
            ("/a/./b", "/a//b/"),
            ("lh://h/r/d", "lh://h:7214/r/d/"),
            ("host:d", "host:d/"),
            (".", "./."),
        ] {
            assert!(is_same(one, other), "{one} {other}");
        }
        for (one, other) in [("host:", "host:/"), ("lh://h/r/d", "lh://h:7215/r/d"), ("x", "/x"), ("x", "host:x")] {
            assert!(!is_same(one, other), "{one} {other}");
        }
    }
}
