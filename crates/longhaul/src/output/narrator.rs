//! The telling of one run: each event goes to all that want it, and then the end.
//!
//! In: events through `speaker`, at last the engine's report. Out: JSON lines or a dry run's
//! mapping on standard output; progress, faults and the last line on standard error; settled files
//! to the manifest. Moves nothing, and stops the run only if standard output is gone.

use std::io::{self, Stdout, Write};
use std::os::unix::ffi::OsStrExt;

use longhaul_core::{ByteCount, Escaped, Fault, FaultCode};
use longhaul_engine::{
    Event, FileEvent, FileStatus, FilesAtRisk, LanesChange, LanesTuned, MetadataLoss, PathFigures, Progress, Redial,
    Report, Start, StopTrigger, TargetFigures,
};

use super::causes::Causes;
use super::closing::{self, ClosingRun, EndOfStream, Failed};
use super::events::protection;
use super::meter::Meter;
use super::progress::{Show, Shown};
use super::slow::{self, SlowTargets};
use super::sync::{SyncCounts, SyncTold};
use super::{JsonLines, Summary, Talker, road, units, words};
use crate::destination::Destination;
use crate::error::Error;
use crate::exit::Exit;
use crate::manifest::Manifest;
use crate::naming::Naming;

/// The wanted output, and its forms.
pub struct Telling {
    /// The messages on standard error.
    pub talker: Talker,
    /// Whether events go to standard output.
    pub json: bool,
    /// The form of progress.
    pub show: Show,
    /// The rate that was asked for, bytes/s.
    pub rate: Option<u64>,
    /// Whether this is a dry run, whose mapping goes to standard output.
    pub dry_run: bool,
    /// The manifest, if one is wanted.
    pub manifest: Option<Manifest>,
    /// The place of the files.
    pub destination: Destination,
    /// The users' names of files.
    pub naming: Naming,
    /// Whether the source is a stream, and what proves its end.
    pub end_of_stream: EndOfStream,
    /// Stops the run when standard output cannot be written.
    pub stop: StopTrigger,
}

/// The end of a run.
pub struct End<'a> {
    /// The engine's report.
    pub report: &'a Report,
    /// The number of sources that the command line named.
    pub sources: usize,
    /// The command as a shell would take it, to be run again.
    pub command: String,
}

/// Tells one run.
pub struct Narrator {
    telling: Telling,
    json: JsonLines<Stdout>,
    shown: Shown,
    meter: Meter,
    planned: Planned,
    /// The targets that were named as slow.
    slow: SlowTargets,
    failed: Failed,
    /// The causes by which files failed.
    causes: Causes,
    /// The last fault told: the engine may give a fault as an event and again in its report.
    reported: Option<Fault>,
    /// Whether the run is a sync, and its finds.
    sync: (SyncTold, SyncCounts),
    /// Whether there was a session at all, and so something to count.
    session: Session,
    stdout_failed: Option<io::Error>,
}

/// Whether the session came about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Session {
    Never,
    Stood,
}

/// The files and bytes that a dry run would move.
#[derive(Default)]
struct Planned {
    files: u64,
    bytes: u64,
}

impl Narrator {
    /// A narrator that is ready for the first event.
    pub fn new(telling: Telling) -> Narrator {
        Narrator {
            json: JsonLines::new(io::stdout()).of_destination(telling.talker.destination()),
            shown: Shown::new(telling.show, telling.rate).of_stream(telling.end_of_stream),
            telling,
            meter: Meter::default(),
            planned: Planned::default(),
            slow: SlowTargets::default(),
            failed: Failed::default(),
            causes: Causes::default(),
            reported: None,
            sync: (SyncTold::Never, SyncCounts::default()),
            session: Session::Never,
            stdout_failed: None,
        }
    }

    /// The same, of a run that may be a sync.
    #[must_use]
    pub fn counting(mut self, told: SyncTold) -> Narrator {
        self.sync.0 = told;
        self
    }

    /// Tells an event.
    pub fn hear(&mut self, event: Event) {
        match event {
            Event::Start(start) => self.start(&start),
            Event::Progress(progress) => self.progress(&progress),
            Event::File(file) => self.file(&file),
            Event::Skipped { path, placed, reason, message } => {
                self.telling.talker.note(&message);
                if self.telling.json {
                    self.print(|json| json.skipped(&path, &placed, &reason.to_string()));
                }
            }
            Event::Redial(redial) => self.redial(&redial),
            Event::Redialled(session) => {
                self.telling.talker.note(format_args!("connected again, session {session}"));
            }
            Event::Lanes(tuned) => self.lanes(&tuned),
            Event::Paths(figures) => self.paths(&figures),
            Event::Road(figures) if self.telling.json => self.print(|json| json.road(&figures)),
            Event::Targets(figures) => self.targets(&figures),
            Event::AtRisk(files) => self.at_risk(&files),
            Event::NotKept(loss) => self.not_kept(&loss),
            Event::Left(order) => self.left(&order),
            Event::Unheard(names) => self.unheard(names),
            Event::Fault(fault) => self.fault(fault),
            // Nothing that a program must know has no words here.
            _ => {}
        }
    }

    /// Whether passing time is to be shown, by [`Narrator::tick`].
    pub(super) fn ticks(&self) -> bool {
        self.shown.ticks()
    }

    /// Shows that time has passed.
    pub(super) fn tick(&self) {
        self.shown.tick();
    }

    /// Prints a note for users.
    pub fn note(&self, text: &str) {
        self.telling.talker.note(text);
    }

    /// Tells the end, in the order that scripts rely on: the summary is the last line.
    pub fn conclude(mut self, end: &End) -> Exit {
        self.shown.end();
        let mut exit = Exit::of_report(end.report, end.sources);
        let manifest = self.finish_manifest(end);
        if let Some(error) = self.stdout_failed {
            return super::stdout_failed(error);
        }
        for rest in self.causes.rest() {
            self.telling.talker.fault(&rest);
        }
        if let Some(fault) = &end.report.fault {
            self.fault(fault.clone());
        }
        if let Err(error) = manifest {
            let fault = Fault::from(error);
            exit = if exit == Exit::Complete { fault.code.into() } else { exit };
            self.fault(fault);
        }
        self.last_lines(end, exit);
        match self.stdout_failed {
            Some(error) => super::stdout_failed(error),
            None => exit,
        }
    }

    fn last_lines(&mut self, end: &End, exit: Exit) {
        let talker = self.telling.talker;
        if self.telling.dry_run && !self.telling.json && end.report.fault.is_none() {
            self.print_planned();
        }
        if self.session == Session::Stood {
            let (dry, capped) = (self.telling.dry_run, self.shown.was_capped());
            let run = ClosingRun { dry, capped, end: self.telling.end_of_stream };
            self.failed.lines().iter().for_each(|line| talker.say(line));
            talker.say(closing::summary(end.report, exit, run));
            end.report.troubled_targets.iter().for_each(|troubled| talker.say(slow::trouble(troubled)));
            self.last_of_sync();
            closing::held(end.report, run).iter().for_each(|line| talker.say(line));
        }
        if end.report.files_at_risk > 0 {
            talker.hint(closing::CHECK_FILES_AT_RISK);
        }
        if let Some(taken) = end.report.ways.road.as_ref().filter(|_| talker.names_files()) {
            talker.say(road::line(taken));
        }
        if let Some(io) = end.report.io.as_ref().filter(|_| talker.names_files()) {
            talker.say(closing::io(io));
            closing::bound(io).iter().for_each(|line| talker.say(line));
        }
        // A run that never began has nothing to continue, and neither has a stream.
        let is_of_files = closing::stream(end.report).is_none() && self.telling.end_of_stream == EndOfStream::NoStream;
        if exit.resumable() && self.session == Session::Stood && is_of_files {
            talker.hint(format_args!("to continue, run it again: {}", end.command));
        }
        if self.telling.json {
            let summary = Summary::of(end.report, exit).of_stream(self.telling.end_of_stream);
            self.print(|json| json.summary(&summary));
        }
    }

    /// Tells what a sync found.
    fn last_of_sync(&mut self) {
        let (told, counts) = match self.sync {
            (SyncTold::Never, _) => return,
            (told @ SyncTold::AsSettled, counts) | (told @ SyncTold::Before(counts), _) => (told, counts),
        };
        self.telling.talker.say(counts.line(told));
        if self.telling.json {
            self.print(|json| counts.event(json, told));
        }
    }

    fn start(&mut self, start: &Start) {
        self.session = Session::Stood;
        let talker = self.telling.talker;
        if self.telling.show != Show::Nothing {
            talker.say(start_line(start));
        }
        start.notes.iter().for_each(|fact| talker.note(words::note(*fact)));
        if self.telling.json {
            self.print(|json| json.start(start));
        }
    }

    fn progress(&mut self, progress: &Progress) {
        let pace = self.meter.absorb(progress);
        self.shown.update(progress, &pace, self.telling.talker);
        if self.telling.json {
            self.print(|json| json.progress(progress, &pace));
        }
    }

    fn file(&mut self, file: &FileEvent) {
        if let FileStatus::Failed(fault) = &file.status {
            self.failed.add(&file.placed);
            let fault = self.telling.naming.of_file(file, fault);
            let at_dest = self.telling.naming.is_at_destination(&fault);
            if self.causes.is_news(&fault, at_dest) {
                self.fault(fault);
            }
        }
        self.sync.1.settle(file);
        if let Some(manifest) = &mut self.telling.manifest {
            manifest.hear(file);
        }
        if file.status == FileStatus::Planned && file.regular {
            self.planned.files += 1;
            self.planned.bytes += file.bytes;
        }
        if self.telling.json {
            self.print(|json| json.file(file));
        } else if file.status == FileStatus::Planned {
            self.print_mapping(file, &format!("{} bytes", file.bytes));
        } else if self.telling.dry_run && file.status == FileStatus::Skipped {
            self.print_mapping(file, "is there already");
        }
        if self.telling.talker.names_files() {
            self.telling.talker.say(file_line(file));
        }
    }

    fn fault(&mut self, fault: Fault) {
        // Stopping for want of a reader is this side's own doing.
        let own = self.stdout_failed.is_some() && fault.code == FaultCode::Terminated;
        if own || self.reported.as_ref().is_some_and(|told| is_the_same(told, &fault)) {
            return;
        }
        // A thousand files may fail alike: what to do about it is said once.
        let said = self.reported.as_ref().is_some_and(|told| told.hint == fault.hint);
        let brief = if said { Fault { hint: None, ..fault.clone() } } else { fault.clone() };
        self.telling.talker.fault(&brief);
        if self.telling.json {
            self.print(|json| json.fault(&fault));
        }
        self.reported = Some(fault);
    }

    /// Tells that a session ended and another one begins. This is no failure: users get a note,
    /// scripts a fault that says so.
    fn redial(&mut self, redial: &Redial) {
        let Redial { fault, wait } = redial;
        let seconds = wait.as_secs_f64();
        self.shown.lose();
        let next = if fault.code == FaultCode::TargetFailed { "going on" } else { "dialling again" };
        self.telling.talker.warn(format_args!("{fault}; {next} in {seconds:.1} s"));
        if self.telling.json {
            self.print(|json| json.fault(fault));
        }
    }

    fn paths(&mut self, figures: &[PathFigures]) {
        if self.telling.json {
            self.print(|json| json.paths(figures));
        }
    }

    /// Tells how the targets do, and names one when it becomes slow.
    fn targets(&mut self, figures: &[TargetFigures]) {
        for note in self.slow.news(figures) {
            self.telling.talker.note(note);
        }
        if self.telling.json {
            self.print(|json| json.targets(figures));
        }
    }

    /// Tells which files are at risk on a target that failed.
    fn at_risk(&mut self, files: &FilesAtRisk) {
        self.telling.talker.warn(closing::at_risk(files));
        if self.telling.json {
            self.print(|json| json.at_risk(files));
        }
    }

    /// Tells which metadata could not be kept.
    fn not_kept(&mut self, loss: &MetadataLoss) {
        self.telling.talker.warn(closing::not_kept(loss));
        if self.telling.json {
            self.print(|json| json.not_kept(loss));
        }
    }

    /// Tells that the run leaves a copy that goes on without it. There is nothing to sum up.
    fn left(&mut self, order: &str) {
        self.session = Session::Never;
        if self.telling.json {
            self.print(|json| json.left(order));
        } else {
            self.telling.talker.say(format_args!(
                "order {order} goes on: the same command with --attach {order} in place of --detach waits for its end"
            ));
        }
    }

    /// Tells that names were not told of one by one.
    fn unheard(&mut self, names: u64) {
        self.telling.talker.warn(format_args!(
            "{names} names that did not fail were not told of one by one, as this host took in too slowly what it was told"
        ));
        if self.telling.json {
            self.print(|json| json.unheard(names));
        }
    }

    /// Tells a change of lanes. It is news only for users who ask for details, and for scripts; but
    /// who was told that data goes through ssh hears when it does no longer.
    fn lanes(&mut self, tuned: &LanesTuned) {
        let LanesTuned { lanes, change, reason, .. } = tuned;
        if self.telling.talker.names_files() || matches!(change, LanesChange::Straight(_)) {
            self.telling.talker.note(format_args!("lanes {change} ({lanes} before): {reason}"));
        }
        if self.telling.json {
            self.print(|json| json.lanes(tuned));
        }
    }

    /// Writes the manifest, unless the run did not come to its end: an incomplete list would be
    /// taken for a complete one.
    fn finish_manifest(&mut self, end: &End) -> Result<(), Error> {
        let Some(manifest) = self.telling.manifest.take() else { return Ok(()) };
        let talker = self.telling.talker;
        if end.report.fault.is_some() {
            if self.session == Session::Stood {
                let path = Escaped(manifest.path().as_os_str().as_bytes()).to_string();
                talker.warn(format_args!(
                    "the manifest {path} is not written, as the run ended early; the run that comes to its end lists all files"
                ));
            }
            return Ok(());
        }
        let takes_stdout = manifest.takes_stdout();
        let omissions = match manifest.finish() {
            Err(Error::File { source, .. }) if takes_stdout => {
                self.stdout_failed = Some(source);
                return Ok(());
            }
            finished => finished?,
        };
        closing::omissions(&omissions).iter().for_each(|line| talker.warn(line));
        Ok(())
    }

    fn print_mapping(&mut self, file: &FileEvent, what: &str) {
        let placed = self.telling.destination.shown(file);
        let line = format!("{} -> {placed} ({what})\n", file.path.escaped());
        self.print_text(&line);
    }

    fn print_planned(&mut self) {
        let Planned { files, bytes } = self.planned;
        self.print_text(&format!(
            "{}, {bytes} bytes ({}) would be sent\n",
            units::count(files, "file"),
            ByteCount(bytes)
        ));
    }

    fn print_text(&mut self, text: &str) {
        self.print(|_| {
            let mut stdout = io::stdout().lock();
            stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush())
        });
    }

    /// Writes to standard output, and stops the run if that fails: the program that started it
    /// would hear nothing.
    fn print(&mut self, write: impl FnOnce(&mut JsonLines<Stdout>) -> io::Result<()>) {
        if self.stdout_failed.is_some() {
            return;
        }
        if let Err(error) = write(&mut self.json) {
            self.stdout_failed = Some(error);
            self.telling.stop.stop(FaultCode::Terminated);
        }
    }
}

fn start_line(start: &Start) -> String {
    let Start { transport, lanes, congestion, .. } = start;
    let protect = protection(start.protect);
    let lanes = units::count((*lanes).into(), "lane");
    let transport = transport.name();
    format!("{lanes} ({transport}, {protect}, {congestion}), chunks of {}", ByteCount(start.chunk.bytes()))
}

fn file_line(file: &FileEvent) -> String {
    let what = match file.status {
        FileStatus::Committed => "done",
        FileStatus::Staged => "staged",
        FileStatus::Skipped => "there already",
        FileStatus::Linked => "linked",
        FileStatus::Planned => "would be sent",
        FileStatus::Failed(_) => "failed",
    };
    let sums = file.sums.known().iter().filter_map(|sum| Some(format!(", {} {}", sum.name(), file.sums.hex(sum)?)));
    format!("{what}: {} ({}{})", file.placed.escaped(), ByteCount(file.bytes), sums.collect::<String>())
}

/// Whether a fault was told before, perhaps with its object's whole path if it has a shorter one
/// now.
fn is_the_same(told: &Fault, fault: &Fault) -> bool {
    let (whole, object) = (told.object.as_str(), fault.object.as_str());
    let is_shorter = !object.is_empty() && whole.strip_suffix(object).is_some_and(|above| above.ends_with('/'));
    let cause = |fault: &Fault| (fault.code, fault.blame, fault.author);
    told == fault
        || is_shorter && cause(told) == cause(fault) && told.message.replace(whole, object) == fault.message.as_str()
}
