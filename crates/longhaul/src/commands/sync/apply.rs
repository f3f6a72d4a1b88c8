//! `sync --delete apply`: moves away the names of a plan.
//!
//! In: the two trees, and the digest of a plan. Out: each name of the plan in the grace directory,
//! or where it was. Looks at each name once more, at both ends, right before it goes. What was
//! moved is removed by nobody but a person.

use std::path::{Path, PathBuf};

use longhaul_core::{Blame, Fault, FaultCode, Filter, Mtime, RelPath};
use longhaul_engine::{Grace, NameKind, Withdrawn};

use super::pair::{Pair, StepSignals};
use super::plan::STATE_NAME;
use crate::cli::SyncArgs;
use crate::commands::Context;
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, RemovalFinding, RemovalTelling};
use crate::removal::{PlanShelf, PlannedName, RemovalPlan, digest_of, is_kept};
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

impl Removal {
    fn run(mut self, plan: &RemovalPlan, digest: &str, telling: &mut RemovalTelling) -> Result<(), Error> {
        self.need_planned(plan)?;
        let day = output::time(Mtime { secs: i64::try_from(plan.made).unwrap_or(0), nanos: 0 });
        let label = format!("{}-{}", day.get(..DAY_LETTERS).unwrap_or("plan"), &digest[..LABEL_DIGITS]);
        let mut grace = Grace::open(&self.pair.dest, &label).map_err(|error| Error::from(Fault::from(error)))?;
        let mut ended = None;
        for name in &plan.names {
            if let Some(code) = self.signals.stopped.get() {
                let message = "stopped: names that were not moved are where they were";
                let fault = Fault::new(*code, Blame::Local, message);
                ended = Some(fault.hint_in_words("the same command goes on"));
                break;
            }
            match self.moved(name, &mut grace) {
                Ok(finding) => telling.found(&name.path, finding, name.facts.bytes),
                Err(Unmoved::All(fault)) => {
                    ended = Some(fault);
                    break;
                }
                Err(Unmoved::One(fault)) => {
                    telling.fault(&fault);
                    telling.found(&name.path, RemovalFinding::Failed, name.facts.bytes);
                }
            }
            if telling.is_deaf() {
                break;
            }
        }
        if let Err(error) = grace.sync() {
            ended = Some(error.into());
        }
        telling.kept_in(&self.pair.dest_path.join(Grace::place(&label)));
        ended.iter().for_each(|fault| telling.failed(fault));
        self.signals.asking.end();
        Ok(())
    }

    /// Refuses trees that are not those of the plan, or not as they were.
    fn need_planned(&mut self, plan: &RemovalPlan) -> Result<(), Fault> {
        let refused =
            |message: &str, hint: &str| Fault::new(FaultCode::Usage, Blame::Local, message).hint_in_words(hint);
        let dest = self.pair.dest_path.as_os_str().as_encoded_bytes();
        if plan.source != self.pair.source.written() || plan.destination != dest {
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

    /// Moves a name, if nothing speaks against it now.
    fn moved(&mut self, name: &PlannedName, grace: &mut Grace) -> Result<RemovalFinding, Unmoved> {
        if !is_sent(&self.filter, &name.path, name.facts.kind) {
            return Ok(RemovalFinding::Excluded);
        }
        if is_kept(&name.path) || name.facts.kind == NameKind::Special {
            return Ok(RemovalFinding::Changed);
        }
        if !self.pair.source.is_absent(&name.path, &self.signals.stop).map_err(Unmoved::at_source)? {
            return Ok(RemovalFinding::AtSource);
        }
        Ok(match grace.withdraw(&name.path, &name.facts).map_err(|error| Unmoved::One(error.into()))? {
            Withdrawn::Moved => RemovalFinding::Moved,
            Withdrawn::MovedBefore => RemovalFinding::MovedBefore,
            Withdrawn::Gone => RemovalFinding::Gone,
            Withdrawn::Changed => RemovalFinding::Changed,
            Withdrawn::NotEmpty => RemovalFinding::NotEmpty,
        })
    }
}

/// The fault by which a name was not moved.
enum Unmoved {
    /// It is one of this name.
    One(Fault),
    /// No name can be looked at behind it.
    All(Fault),
}

impl Unmoved {
    /// Judges a fault of the source: all but those of one path are of its connection, or of its
    /// top.
    fn at_source(fault: Fault) -> Unmoved {
        match fault.code {
            FaultCode::Denied | FaultCode::InTheWay | FaultCode::Io | FaultCode::Unsupported => Unmoved::One(fault),
            _ => Unmoved::All(fault),
        }
    }
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

/// Letters of a date, `2026-11-29`.
const DAY_LETTERS: usize = 10;
/// Digits of the digest in the name of the grace directory.
const LABEL_DIGITS: usize = 16;
