//! `sync --delete apply`: moves away the names of a plan.
//!
//! In: the two trees, and the digest of a plan. Out: each name of the plan in the grace directory,
//! or where it was. Looks at each name once more, at both ends, right before it goes: at the source
//! here, at the destination where that is. What was moved is removed by nobody but a person.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use longhaul_core::{Blame, Fault, FaultCode, Filter, RelPath, is_kept};
use longhaul_engine::{NameKind, PlanName, Stop, Withdrawn};

use super::dest::DestMover;
use super::pair::{Pair, SourceEnd, StepSignals};
use super::plan::STATE_NAME;
use crate::cli::SyncArgs;
use crate::commands::Context;
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, RemovalFinding, RemovalTelling};
use crate::removal::{PlanShelf, PlannedName, RemovalPlan, digest_of};
use crate::settings;

/// Runs the step.
///
/// # Errors
/// An error that is found before the form of output is known.
pub(super) fn run(args: &SyncArgs, context: Context) -> Result<Exit, Error> {
    let layers = context.layers()?;
    let talk = settings::talk(&args.transfer.output.talk, &layers)?;
    context.talk(talk);
    let mut telling = RemovalTelling::new(talk);
    let mut applied = || -> Result<(), Error> {
        let settings = settings::transfer(&args.transfer, &layers)?;
        super::need_whole(&settings)?;
        let (digest, locations) = match args.transfer.locations.split_last() {
            Some((digest, locations)) if locations.len() == 2 => (is_digest(digest)?, locations),
            _ => {
                return Err(super::combination(
                    "--delete apply needs SOURCE, DEST and the digest of a plan",
                    super::DELETE_HINT,
                ));
            }
        };
        if args.rule.max_delete.is_some() {
            let why = "--max-delete bounds a plan, and apply moves what its plan has";
            return Err(super::combination(why, "leave it out"));
        }
        let shelf = PlanShelf::open(context.places().in_state(STATE_NAME).ok_or(Error::NoHome { what: "plans" })?)?;
        let file = args.rule.plan.as_ref().map_or_else(|| shelf.plan(digest), PathBuf::from);
        let plan = read(&file, digest)?;
        let signals = StepSignals::watch()?;
        let pair = Pair::open(locations, &settings, (talk, context, &signals))?;
        Removal { pair, signals, filter: settings.engine.filter }.run(&plan, digest, &mut telling)
    };
    match applied() {
        Ok(()) => Ok(telling.end()),
        Err(error) => Ok(output::refuse(talk.json, error)),
    }
}

fn is_digest(text: &std::ffi::OsStr) -> Result<&str, Error> {
    let is_hex = |text: &&str| text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let digest = text.to_str().filter(is_hex);
    digest
        .ok_or_else(|| super::combination("the last word of --delete apply is no digest of a plan", super::DELETE_HINT))
}

/// The plan in a file, if it is the one of the digest.
fn read(file: &Path, digest: &str) -> Result<RemovalPlan, Error> {
    let text = PlanShelf::read(file)?;
    let found = if digest_of(&text) == digest { RemovalPlan::parse(&text) } else { None };
    found.ok_or_else(|| {
        let message = format_args!("'{}' is not the plan of this digest", file.display());
        let fault = Fault::new(FaultCode::Usage, Blame::Local, message);
        fault.hint_in_words("give the digest that '--delete plan' printed, and the same --plan FILE").into()
    })
}

/// The moves of a plan.
struct Removal {
    pair: Pair,
    signals: StepSignals,
    /// Names that it leaves out stay, though the plan has them.
    filter: Filter,
}

/// The doubts about the moves of names, by the source and by the filter.
struct Doubts<'r> {
    source: &'r mut SourceEnd,
    stop: &'r Stop,
    filter: &'r Filter,
}

/// A name that may go, or the end that it has already.
enum Judged {
    /// Nothing speaks against it so far.
    Goes,
    /// It stays.
    Stays(RemovalFinding),
    /// Nobody knows: it stays.
    Unknown(Fault),
}

impl Removal {
    fn run(mut self, plan: &RemovalPlan, digest: &str, telling: &mut RemovalTelling) -> Result<(), Error> {
        self.need_planned(plan)?;
        let name =
            PlanName { digest: blake3::Hash::from_hex(digest).map(Into::into).unwrap_or_default(), made: plan.made };
        let names_max = self.pair.dest.names_max();
        let Removal { pair: Pair { source, dest }, signals, filter } = &mut self;
        let mut mover = dest.mover(name)?;
        let mut doubts = Doubts { source, stop: &signals.stop, filter };
        let mut ended = None;
        for names in plan.names.chunks(names_max) {
            if let Some(code) = signals.stopped.get() {
                let message = "stopped: names that were not moved are where they were";
                let fault = Fault::new(*code, Blame::Local, message);
                ended = Some(fault.hint_in_words("the same command goes on"));
                break;
            }
            if let Err(fault) = doubts.settle(names, &mut mover, telling) {
                ended = Some(fault);
                break;
            }
            if telling.is_deaf() {
                break;
            }
        }
        if let Err(fault) = mover.sync() {
            ended = Some(fault);
        }
        telling.kept_in(mover.kept_in());
        ended.iter().for_each(|fault| telling.failed(fault));
        signals.asking.end();
        Ok(())
    }

    /// Refuses trees that are not those of the plan, or not as they were.
    fn need_planned(&mut self, plan: &RemovalPlan) -> Result<(), Fault> {
        let refused =
            |message: &str, hint: &str| Fault::new(FaultCode::Usage, Blame::Local, message).hint_in_words(hint);
        if plan.source != self.pair.source.written() || plan.destination != self.pair.dest.written() {
            return Err(refused("the plan is one of other trees", "give the SOURCE and DEST that were planned"));
        }
        let again = "look what was mounted meanwhile, and plan again";
        if plan.source_device != self.pair.source.device() {
            return Err(refused("the source is on another device than when it was planned", again));
        }
        if plan.destination_device != self.pair.dest.device() {
            return Err(refused("the destination is on another device than when it was planned", again));
        }
        if self.pair.source.is_empty(&self.signals.stop)? {
            return Err(refused("the source is empty: nothing is moved", again));
        }
        Ok(())
    }
}

impl Doubts<'_> {
    /// Moves those of some names against which nothing speaks, and tells what became of each. They
    /// are few enough that what was found at the source holds until the last of them goes; where
    /// that took long, it is looked for once more.
    ///
    /// # Errors
    /// The fault by which no name can be looked at or moved any more.
    fn settle(
        &mut self,
        names: &[PlannedName],
        mover: &mut DestMover<'_>,
        telling: &mut RemovalTelling,
    ) -> Result<(), Fault> {
        let mut left = names;
        while !left.is_empty() {
            let (begun, mut judged) = (Instant::now(), Vec::with_capacity(left.len()));
            let mut bytes = 0;
            while let Some(name) = left.get(judged.len()) {
                bytes += name.path.as_bytes().len();
                if !judged.is_empty() && (begun.elapsed() >= JUDGED_FOR || bytes > JUDGED_BYTES_MAX) {
                    break;
                }
                judged.push(self.judge(name)?);
            }
            let (now, later) = left.split_at(judged.len());
            left = later;
            let goes = |(name, judged): (_, &Judged)| matches!(judged, Judged::Goes).then_some(name);
            let going: Vec<&PlannedName> = now.iter().zip(&judged).filter_map(goes).collect();
            let mut ends = if going.is_empty() { Vec::new() } else { mover.withdraw(&going)? }.into_iter();
            for (name, judged) in now.iter().zip(judged) {
                let end = match judged {
                    Judged::Goes => ends.next().map_or(Ok(RemovalFinding::Failed), |end| end.map(found)),
                    Judged::Stays(finding) => Ok(finding),
                    Judged::Unknown(fault) => Err(fault),
                };
                end.as_ref().err().iter().for_each(|fault| telling.fault(fault));
                telling.found(&name.path, end.unwrap_or(RemovalFinding::Failed), name.facts.bytes);
            }
        }
        Ok(())
    }

    /// Judges a name by the filter and the source.
    ///
    /// # Errors
    /// The fault of a source of which no name can be looked at any more.
    fn judge(&mut self, name: &PlannedName) -> Result<Judged, Fault> {
        if !is_sent(self.filter, &name.path, name.facts.kind) {
            return Ok(Judged::Stays(RemovalFinding::Excluded));
        }
        if is_kept(&name.path) || name.facts.kind == NameKind::Special {
            return Ok(Judged::Stays(RemovalFinding::Changed));
        }
        match self.source.is_absent(&name.path, self.stop) {
            Ok(true) => Ok(Judged::Goes),
            Ok(false) => Ok(Judged::Stays(RemovalFinding::AtSource)),
            Err(fault) if is_of_one(&fault) => Ok(Judged::Unknown(fault)),
            Err(fault) => Err(fault),
        }
    }
}

/// The finding on a name that was to be moved.
fn found(end: Withdrawn) -> RemovalFinding {
    match end {
        Withdrawn::Moved => RemovalFinding::Moved,
        Withdrawn::MovedBefore => RemovalFinding::MovedBefore,
        Withdrawn::Gone => RemovalFinding::Gone,
        Withdrawn::Changed => RemovalFinding::Changed,
        Withdrawn::NotEmpty => RemovalFinding::NotEmpty,
    }
}

/// Whether a fault of the source is of one path. All others are of its connection, or of its top.
fn is_of_one(fault: &Fault) -> bool {
    matches!(fault.code, FaultCode::Denied | FaultCode::InTheWay | FaultCode::Io | FaultCode::Unsupported)
}

/// Whether a filter leaves neither a name out nor a directory above it.
fn is_sent(filter: &Filter, path: &RelPath, kind: NameKind) -> bool {
    let mut above = path.parent();
    while let Some(dir) = above {
        if !filter.verdict(&dir, true) {
            return false;
        }
        above = dir.parent();
    }
    filter.verdict(path, kind == NameKind::Dir)
}

/// How long what was found at the source is believed until the names go that it lacks.
const JUDGED_FOR: Duration = Duration::from_secs(2);
/// The most bytes of paths that are judged before they go, so that one order has them all.
const JUDGED_BYTES_MAX: usize = 32 << 10;
