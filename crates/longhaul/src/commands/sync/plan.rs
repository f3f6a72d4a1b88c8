//! `sync --delete plan`: lists what stands at the destination and not at the source.
//!
//! In: two trees. Out: a plan in a file, and its names and digest to `output`. Moves nothing. A
//! plan is refused as a whole where anything is doubtful: a source that is empty, is on another
//! device than before, or could not be read, and more names than a user said.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_core::{Blame, Fault, FaultCode, Filter, RelPath, is_kept};
use longhaul_engine::{NameFacts, NameKind, Remote};
use longhaul_manifest::{Difference, Item, ItemKind, Lists, Make, Sealed, diff};

use super::dest::DestEnd;
use super::pair::{FarPlace, Pair, SourceEnd, StepSignals};
use crate::cli::SyncArgs;
use crate::commands::manifest::{fault, local, remote};
use crate::commands::{Context, block_on};
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, ManifestTelling, RemovalFinding, RemovalTelling};
use crate::removal::{KnownDevice, PlanShelf, PlannedName, RemovalPlan, digest_of};
use crate::settings::{self, Talk};

/// Runs the step.
///
/// # Errors
/// An error that is found before the form of output is known.
pub(super) fn run(args: &SyncArgs, context: Context) -> Result<Exit, Error> {
    let layers = context.layers()?;
    let talk = settings::talk(&args.transfer.output.talk, &layers)?;
    context.talk(talk);
    let mut telling = RemovalTelling::new(talk);
    let mut planned = || -> Result<(), Error> {
        let settings = settings::transfer(&args.transfer, &layers)?;
        super::need_whole(&settings)?;
        let most = args.rule.max_delete.as_ref().map(|text| number(text)).transpose()?;
        let signals = StepSignals::watch()?;
        let shelf = PlanShelf::open(context.places().in_state(STATE_NAME).ok_or(Error::NoHome { what: "plans" })?)?;
        let pair = Pair::open(&args.transfer.locations, &settings, (talk, context, &signals))?;
        let planner = Planner { pair, signals, shelf, filter: settings.engine.filter, talk, most };
        planner.run(args.rule.plan.as_ref().map(PathBuf::from), &mut telling)
    };
    match planned() {
        Ok(()) => Ok(telling.end()),
        Err(error) => Ok(output::refuse(talk.json, error)),
    }
}

fn number(text: &std::ffi::OsStr) -> Result<u64, Error> {
    let found = text.to_str().and_then(|text| text.parse().ok());
    found.ok_or_else(|| super::combination("--max-delete takes a number of files", "write it as digits alone"))
}

/// A plan being made.
struct Planner {
    pair: Pair,
    signals: StepSignals,
    shelf: PlanShelf,
    filter: Filter,
    talk: Talk,
    /// The most files that are planned, if a user said so.
    most: Option<u64>,
}

/// The names that only the destination has, as the two lists say.
#[derive(Default)]
struct OnlyThere {
    paths: Vec<RelPath>,
    /// Bytes of the paths.
    bytes: usize,
    /// Files and links at the destination, without datasets that were replaced.
    files_there: u64,
}

impl Planner {
    fn run(mut self, file: Option<PathBuf>, telling: &mut RemovalTelling) -> Result<(), Error> {
        let known = self.shelf.known_device(&self.pair.source.written(), &self.pair.dest.written())?;
        self.need_same_device(&known)?;
        self.pair.dest.rest();
        let scratch = self.shelf.scratch()?;
        let source = self.listed_source(&scratch.path().join("source"))?;
        let files = source.items().any(|item| item.is_ok_and(|item| item.kind != ItemKind::Dir));
        if !files {
            let message = "the source has no files, and a plan would have everything go";
            let hint = "look whether its disk is mounted; to empty a destination, remove what is in it by hand";
            return Err(refused(message, hint).into());
        }
        let dest = self.listed_dest(&scratch.path().join("destination"))?;
        let only_there = only_there(&source, &dest).map_err(Error::from)?;
        drop(scratch);
        let files_there = only_there.files_there;
        let names = self.names(only_there, telling)?;
        let plan = RemovalPlan {
            source: self.pair.source.written(),
            source_device: self.pair.source.device(),
            destination: self.pair.dest.written(),
            destination_device: self.pair.dest.device(),
            made: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            names,
        };
        self.need_few(plan.files(), files_there)?;
        self.signals.asking.end();
        if let Some(device) = plan.source_device {
            PlanShelf::write(&known.file, &format!("{device}\n"))?;
        }
        for name in &plan.names {
            telling.found(&name.path, RemovalFinding::Planned, name.facts.bytes);
        }
        if plan.names.is_empty() {
            return Ok(());
        }
        let text = plan.text();
        let digest = digest_of(&text);
        let file = file.unwrap_or_else(|| self.shelf.plan(&digest));
        PlanShelf::write(&file, &text)?;
        telling.planned(&plan, &digest, &file);
        Ok(())
    }

    fn need_same_device(&self, known: &KnownDevice) -> Result<(), Fault> {
        match (known.device, self.pair.source.device()) {
            (Some(before), Some(now)) if before != now => {
                let message = format_args!(
                    "the source is on another device than at the plan before ({now}, and {before} then): its disk may not be mounted"
                );
                let hint = format!("if it was moved there, remove {} and plan again", known.file.display());
                Err(refused(message, hint))
            }
            _ => Ok(()),
        }
    }

    /// Refuses more files than a user said, or a tenth of those at the destination.
    fn need_few(&self, files: u64, files_there: u64) -> Result<(), Fault> {
        let most = self.most.unwrap_or(files_there / 10);
        if files <= most {
            return Ok(());
        }
        let message = format_args!(
            "{files} of the {files_there} files at the destination are not at the source, and {most} may go: no plan is made"
        );
        Err(refused(message, format!("if they are to go, say --max-delete {files}")))
    }

    /// A directory of this host as a sealed list, with nothing left out that could not be read.
    fn listed(&self, out: &Path, tree: &Path) -> Result<Sealed, Fault> {
        let asked = Make { filter: self.filter.clone(), ..Make::new(tree, out) };
        let telling = ManifestTelling::new(std::io::BufWriter::new(std::io::stdout()), self.talk);
        let (_, sealed) = local::scan(&asked, Arc::clone(&self.signals.stopped), telling);
        whole(sealed?)
    }

    fn listed_source(&self, out: &Path) -> Result<Sealed, Error> {
        match &self.pair.source {
            SourceEnd::Here { tree, .. } => Ok(self.listed(out, tree.named())?),
            SourceEnd::There { remote, place, .. } => self.gathered(out, (remote, place)),
        }
    }

    fn listed_dest(&self, out: &Path) -> Result<Sealed, Error> {
        match &self.pair.dest {
            DestEnd::Here { tree, .. } => Ok(self.listed(out, tree.named())?),
            DestEnd::There(dest) => self.gathered(out, (&dest.remote, &dest.place)),
        }
    }

    /// A directory at a daemon as a sealed list, with nothing left out that could not be read.
    fn gathered(&self, out: &Path, (remote, place): (&Remote, &FarPlace)) -> Result<Sealed, Error> {
        let mut telling = ManifestTelling::new(std::io::BufWriter::new(std::io::stdout()), self.talk);
        let (filter, stop) = (self.filter.clone(), &self.signals.stop);
        let gathered = remote::gather((remote, place.path.clone()), filter, out, stop, &mut telling);
        Ok(whole(block_on(gathered)??)?)
    }

    /// The names that may be planned, with their facts, in the order in which they go.
    fn names(&mut self, only_there: OnlyThere, telling: &mut RemovalTelling) -> Result<Vec<PlannedName>, Fault> {
        let mut names = Vec::with_capacity(only_there.paths.len());
        // What lies in a directory sorts behind it.
        let paths: Vec<_> = only_there.paths.into_iter().rev().collect();
        for paths in paths.chunks(self.pair.dest.names_max()) {
            let found = self.pair.dest.look(paths)?;
            for (path, found) in paths.iter().zip(found) {
                if let Some(code) = self.signals.stopped.get() {
                    return Err(Fault::new(*code, Blame::Local, "stopped while the plan was made: there is none"));
                }
                let Some(found) = found? else { continue };
                if let Some(name) = self.planned(path, found.facts, telling)? {
                    names.push((name, found.within));
                }
            }
        }
        Ok(emptied(names))
    }

    /// The name in the plan, if nothing speaks against it.
    fn planned(
        &mut self,
        path: &RelPath,
        facts: NameFacts,
        telling: &mut RemovalTelling,
    ) -> Result<Option<PlannedName>, Fault> {
        if facts.kind == NameKind::Special {
            return Ok(None);
        }
        if facts.dev != self.pair.dest.device() {
            telling.found(path, RemovalFinding::Elsewhere, facts.bytes);
            return Ok(None);
        }
        // A daemon may be one of this host.
        if let SourceEnd::Here { place, .. } = &self.pair.source
            && *place == (facts.dev, facts.ino)
        {
            return Err(
                refused("the source lies in the destination", "name two trees that are apart").about(path.escaped())
            );
        }
        // The list leaves out names of kinds that are not sent; those stand at the source too.
        match self.pair.source.is_absent(path, &self.signals.stop) {
            Ok(true) => Ok(Some(PlannedName { path: path.clone(), facts })),
            Ok(false) => Ok(None),
            // Nobody looks through a link that stands above the name there.
            Err(fault) if fault.code == FaultCode::InTheWay => {
                telling.found(path, RemovalFinding::InTheWay, facts.bytes);
                Ok(None)
            }
            Err(fault) => Err(fault),
        }
    }
}

/// Leaves out directories in which something stays: beside each name stands how many it has in it.
fn emptied(names: Vec<(PlannedName, u64)>) -> Vec<PlannedName> {
    let mut going: HashMap<RelPath, u64> = HashMap::new();
    let mut kept = Vec::with_capacity(names.len());
    for (name, within) in names {
        if name.facts.kind == NameKind::Dir && within != going.remove(&name.path).unwrap_or(0) {
            continue;
        }
        *going.entry(name.path.parent().unwrap_or_default()).or_default() += 1;
        kept.push(name);
    }
    kept
}

/// The names that the second list has and the first has not.
fn only_there(source: &Sealed, dest: &Sealed) -> Result<OnlyThere, Fault> {
    let (mut found, mut is_over) = (OnlyThere::default(), false);
    let compared = diff(source.items(), dest.items(), Lists::ALL, |item: &Item, difference| {
        let is_there = difference != Difference::Removed;
        found.files_there += u64::from(is_there && item.kind != ItemKind::Dir && !is_kept(&item.path));
        if difference == Difference::Added && !is_kept(&item.path) {
            found.bytes += item.path.as_bytes().len() + PATH_COST;
            found.paths.push(item.path.clone());
        }
        is_over = found.bytes > PATHS_BYTES_MAX;
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    compared.map_err(|error| fault(&error))?;
    if is_over {
        let message = format_args!("{} names and more are not at the source: no plan has so many", found.paths.len());
        return Err(refused(message, "plan for directories beneath SOURCE and DEST, one after the other"));
    }
    Ok(found)
}

/// A list without gaps.
fn whole(sealed: Sealed) -> Result<Sealed, Fault> {
    match sealed.head().omitted {
        0 => Ok(sealed),
        omitted => {
            let names = if omitted == 1 { "1 name".to_owned() } else { format!("{omitted} names") };
            let message = format_args!("{names} could not be read: no plan is made of a list with gaps");
            Err(refused(message, "mend what was said above, or leave those names out with --exclude"))
        }
    }
}

fn refused(message: impl std::fmt::Display, hint: impl std::fmt::Display) -> Fault {
    Fault::new(FaultCode::Usage, Blame::Local, message).hint_in_words(hint)
}

/// The directory of plans in this user's state.
pub(super) const STATE_NAME: &str = "sync";
/// Memory of the names that only the destination has: a million or two.
const PATHS_BYTES_MAX: usize = 256 << 20;
/// Memory of a name beside its bytes.
const PATH_COST: usize = 96;
