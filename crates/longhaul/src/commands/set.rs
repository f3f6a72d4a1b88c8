//! `set`: makes target sets and looks them over.
//!
//! In: directories, or a root of the daemon's config. Out: findings, to `output`. The engine knows
//! what a set is. Moves no data.

use std::ffi::{OsStr, OsString};
use std::io::{self, BufWriter};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::RelPath;
use longhaul_engine::{
    Beginning, Marks, Moving, OldTarget, Orphans, Rebalance, Rebuilding, Relocation, ReplaceEnd, Replacement,
    SameDevice, SetFind, Stop, TargetDirs, TargetSet, Writing, rebalance_set, rebuild_set, replace_target,
    survey_bodies, verify_set, walk_set,
};

use super::{Context, transfer};
use crate::cli::{
    SetAddArgs, SetArgs, SetDeedArgs, SetExportArgs, SetInitArgs, SetMvArgs, SetRebalanceArgs, SetReplaceArgs,
    SetRmArgs, SetVerb, SetVerifyArgs,
};
use crate::config::{ClientFile, Daemon};
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, SetTelling, TellsFiles};
use crate::settings::{self, Layers, Talk};
use crate::signals::{self, Asking, Hangup};

/// Runs the command.
///
/// # Errors
/// An error that is found before the form of output is known.
pub(super) fn run(verb: &SetVerb, context: Context) -> Result<Exit, Error> {
    // The settings of a client's transfers are no business of a set that stands.
    let layers = Layers::new(context.environment, ClientFile::default());
    let talk = settings::talk(verb.talk(), &layers)?;
    context.talk(talk);
    let outcome = match verb {
        SetVerb::Init(args) => init(args, &layers, talk),
        SetVerb::Add(args) => add(args, talk, context),
        SetVerb::Replace(args) => replace(args, &layers, talk, context),
        SetVerb::Mv(args) => mv(args, talk),
        SetVerb::Rm(args) => rm(args, talk),
        SetVerb::Ls(args) => survey(args, TellsFiles::Each, talk, context),
        SetVerb::Check(args) => survey(args, TellsFiles::No, talk, context),
        SetVerb::Verify(args) => verify(args, &layers, talk, context),
        SetVerb::Rebuild(args) => rebuild(args, talk, context),
        SetVerb::Collect(args) => collect(args, talk, context),
        SetVerb::Rebalance(args) => rebalance(args, &layers, talk, context),
        SetVerb::Export(args) => export(args, context),
    };
    Ok(outcome.unwrap_or_else(|error| output::refuse(talk.json, error)))
}

impl SetVerb {
    fn talk(&self) -> &crate::cli::TalkOptions {
        match self {
            SetVerb::Init(args) => &args.talk,
            SetVerb::Add(args) => &args.talk,
            SetVerb::Replace(args) => &args.talk,
            SetVerb::Mv(args) => &args.talk,
            SetVerb::Rm(args) => &args.talk,
            SetVerb::Ls(args) | SetVerb::Check(args) => &args.talk,
            SetVerb::Verify(args) => &args.set.talk,
            SetVerb::Rebuild(args) | SetVerb::Collect(args) => &args.set.talk,
            SetVerb::Rebalance(args) => &args.deed.set.talk,
            SetVerb::Export(args) => &args.transfer.output.talk,
        }
    }
}

fn init(args: &SetInitArgs, layers: &Layers, talk: Talk) -> Result<Exit, Error> {
    let dirs = settings::new_set(args, layers)?;
    let set = TargetSet::open(&dirs, Marks::Made, Writing::Wanted).map_err(|error| error.fault())?;
    Ok(SetTelling::new(BufWriter::new(io::stdout()), talk, TellsFiles::No).end(&set))
}

/// Adds a target.
fn add(args: &SetAddArgs, talk: Talk, context: Context) -> Result<Exit, Error> {
    let dirs: Vec<&OsStr> = args.set.iter().map(OsString::as_os_str).collect();
    let dirs = named(args.root.as_deref(), args.config.as_deref(), &dirs, context)?;
    let same_device = if args.allow_same_device { SameDevice::Allowed } else { SameDevice::Refused };
    let set = alone(&dirs)?;
    set.add_target(Path::new(&args.new), same_device).map_err(|error| error.fault())?;
    drop(set);
    tell_targets(Path::new(&args.new), talk)
}

/// Puts a directory in the place of a target.
fn replace(args: &SetReplaceArgs, layers: &Layers, talk: Talk, context: Context) -> Result<Exit, Error> {
    let rate = settings::rate_of(&args.rate, layers)?;
    let state = match (args.lost, args.give_up_unreadable) {
        (true, _) => OldTarget::Lost,
        (false, true) => OldTarget::Failing,
        (false, false) => OldTarget::Readable,
    };
    let (old, new) = (PathBuf::from(&args.old), PathBuf::from(&args.new));
    let dirs = match (&args.set, &args.root) {
        (None, None) if args.lost => {
            let hint = "name the set by another one of its targets: --set DIR, or --root NAME";
            return Err(Error::Combination { why: "a target that is lost cannot say of which set it is", hint });
        }
        // An earlier run may have come so far that only the new one has a mark.
        (None, None) => TargetDirs::set(vec![old.clone(), new.clone()]),
        _ => {
            let dirs: Vec<&OsStr> = args.set.iter().map(OsString::as_os_str).collect();
            named(args.root.as_deref(), args.config.as_deref(), &dirs, context)?
        }
    };
    let set = TargetSet::open_to_replace(&dirs, (&old, state)).map_err(|error| error.fault())?;
    let same_device = if args.allow_same_device { SameDevice::Allowed } else { SameDevice::Refused };
    let moving = if args.apply { Moving::Done } else { Moving::Planned };
    let mut telling = SetTelling::new(BufWriter::new(io::stdout()), talk, TellsFiles::No);
    let wanted = Replacement { old, new, same_device, state, rate };
    let end = replace_target(&set, &wanted, moving, |find| {
        match find {
            SetFind::Copied { path, kind, bytes } => telling.copied((&path, kind), bytes, moving),
            SetFind::Wrong(fault) => telling.wrong(&fault),
            _ => {}
        }
        if telling.is_deaf() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    telling.replaced(end, state);
    drop(set);
    let known = if end == ReplaceEnd::Done { &args.new } else { args.set.as_ref().unwrap_or(&args.old) };
    let set = match &args.root {
        Some(_) if end != ReplaceEnd::Done => TargetSet::open(&dirs, Marks::Needed, Writing::Never),
        _ => TargetDirs::of_target(Path::new(known)).and_then(|dirs| {
            let dirs = TargetDirs { same_device: SameDevice::Allowed, ..dirs };
            TargetSet::open(&dirs, Marks::Needed, Writing::Never)
        }),
    };
    Ok(telling.end(&*set.map_err(|error| error.fault())?))
}

/// Writes down where targets are mounted.
fn mv(args: &SetMvArgs, talk: Talk) -> Result<Exit, Error> {
    let (pairs, rest) = args.places.as_chunks::<2>();
    if !rest.is_empty() {
        let hint = "name the old and the new place of each target that has moved";
        return Err(Error::Combination { why: "a target is named without its new place", hint });
    }
    let moved: Vec<Relocation> =
        pairs.iter().map(|[old, new]| Relocation { old: old.into(), new: new.into() }).collect();
    let set = alone(&TargetDirs::set(moved.iter().map(|one| one.new.clone()).collect()))?;
    set.relocate_targets(&moved).map_err(|error| error.fault())?;
    drop(set);
    tell_targets(Path::new(&args.places[1]), talk)
}

/// Takes the last target from its set.
fn rm(args: &SetRmArgs, talk: Talk) -> Result<Exit, Error> {
    let dir = PathBuf::from(&args.dir);
    let set = alone(&TargetDirs::one(&dir))?;
    set.retire_target(&dir).map_err(|error| error.fault())?;
    let first = set.first().named().to_owned();
    drop(set);
    tell_targets(&first, talk)
}

/// The set that these directories are targets of, for this command alone.
fn alone(dirs: &TargetDirs) -> Result<Arc<TargetSet>, Error> {
    Ok(TargetSet::open_alone(dirs).map_err(|error| error.fault())?)
}

/// Tells the targets of the set that `dir` is a target of.
fn tell_targets(dir: &Path, talk: Talk) -> Result<Exit, Error> {
    let dirs = TargetDirs::of_target(dir).map_err(|error| error.fault())?;
    let dirs = TargetDirs { same_device: SameDevice::Allowed, ..dirs };
    let set = TargetSet::open(&dirs, Marks::Needed, Writing::Never).map_err(|error| error.fault())?;
    Ok(SetTelling::new(BufWriter::new(io::stdout()), talk, TellsFiles::No).end(&set))
}

/// Copies files out of a set.
fn export(args: &SetExportArgs, context: Context) -> Result<Exit, Error> {
    let dirs: Vec<&OsStr> = args.set.iter().map(OsString::as_os_str).collect();
    let set = named(args.root.as_deref(), args.config.as_deref(), &dirs, context)?;
    transfer::export(set, &args.transfer, context)
}

/// Walks a set: tells its files if they are wanted, and what is wrong.
fn survey(args: &SetArgs, files: TellsFiles, talk: Talk, context: Context) -> Result<Exit, Error> {
    let set = opened(args, context)?;
    let mut telling = SetTelling::new(BufWriter::new(io::stdout()), talk, files);
    walk_set(&set, &RelPath::root(), |find| {
        match find {
            SetFind::File { path, target, bytes } => telling.file(&path, target, bytes),
            SetFind::Wrong(fault) => telling.wrong(&fault),
            SetFind::Orphan(orphan) => telling.orphan(&orphan),
            _ => {}
        }
        if telling.is_deaf() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    if files == TellsFiles::No {
        tell_bodies(&set, Orphans::Told, &mut telling)?;
    }
    Ok(telling.end(&set))
}

/// Reads every chunk of the striped files of a set.
fn verify(args: &SetVerifyArgs, layers: &Layers, talk: Talk, context: Context) -> Result<Exit, Error> {
    let rate = settings::rate_of(&args.rate, layers)?;
    let beginning = if args.restart { Beginning::Anew } else { Beginning::Continued };
    let set = opened(&args.set, context)?;
    let (trigger, stop) = Stop::new();
    let asking = Asking::default();
    signals::watch(asking.clone(), Hangup::Stops, move |code| trigger.stop(code))
        .map_err(Error::file("watch the signals of", "this process"))?;
    let mut telling = SetTelling::new(BufWriter::new(io::stdout()), talk, TellsFiles::Each);
    let verified = verify_set(&set, (rate, beginning), &stop, |find| {
        match find {
            SetFind::File { path, target, bytes } => telling.file(&path, target, bytes),
            SetFind::Wrong(fault) => telling.wrong(&fault),
            SetFind::Continued { began, files, bytes } => telling.continued(began, (files, bytes)),
            SetFind::NoRecord(fault) => telling.no_record(&fault),
            _ => {}
        }
        telling.flush();
        if telling.is_deaf() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    asking.end();
    if let Err(fault) = verified {
        telling.stopped(&fault);
    }
    Ok(telling.end(&set))
}

/// Tells the striped files of a set whose stripe files were lost, or makes them again.
fn rebuild(args: &SetDeedArgs, talk: Talk, context: Context) -> Result<Exit, Error> {
    let deed = if args.apply { Rebuilding::Done } else { Rebuilding::Planned };
    let set = opened_for(&args.set, if args.apply { Writing::Wanted } else { Writing::Never }, context)?;
    let mut telling = SetTelling::new(BufWriter::new(io::stdout()), talk, TellsFiles::No);
    rebuild_set(&set, deed)?.iter().for_each(|file| telling.lost(file, deed));
    Ok(telling.end(&set))
}

/// Tells the orphans of a set, or removes them.
fn collect(args: &SetDeedArgs, talk: Talk, context: Context) -> Result<Exit, Error> {
    let set = opened_for(&args.set, if args.apply { Writing::Wanted } else { Writing::Never }, context)?;
    let mut telling = SetTelling::new(BufWriter::new(io::stdout()), talk, TellsFiles::No).collecting();
    let deed = if args.apply { Orphans::Removed } else { Orphans::Told };
    tell_bodies(&set, deed, &mut telling)?;
    Ok(telling.end(&set))
}

/// Tells which files and chunks have to go to other targets, or moves them.
fn rebalance(args: &SetRebalanceArgs, layers: &Layers, talk: Talk, context: Context) -> Result<Exit, Error> {
    let rate = settings::rate_of(&args.rate, layers)?;
    let drained = args.drain.as_ref().map(PathBuf::from);
    let SetDeedArgs { apply, set: named, .. } = &args.deed;
    let (moving, set) = match apply {
        true => (Moving::Done, alone(&dirs_of(named, context)?)?),
        false => (Moving::Planned, opened(named, context)?),
    };
    let mut telling = SetTelling::new(BufWriter::new(io::stdout()), talk, TellsFiles::No);
    rebalance_set(&set, &Rebalance { drained, rate }, moving, |find| {
        match find {
            SetFind::Moved { path, between, bytes } => telling.moved(&path, between, bytes, moving),
            SetFind::Wrong(fault) => telling.wrong(&fault),
            _ => {}
        }
        if telling.is_deaf() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(telling.end(&set))
}

fn tell_bodies(set: &TargetSet, deed: Orphans, telling: &mut SetTelling<BufWriter<io::Stdout>>) -> Result<(), Error> {
    let surveyed = survey_bodies(set, deed, |find| match find {
        SetFind::Wrong(fault) => telling.wrong(&fault),
        SetFind::Orphan(orphan) => telling.orphan(&orphan),
        _ => {}
    });
    surveyed.map_err(Error::from)
}

/// The set that the arguments name, whatever its disks.
fn opened(args: &SetArgs, context: Context) -> Result<Arc<TargetSet>, Error> {
    opened_for(args, Writing::Never, context)
}

fn opened_for(args: &SetArgs, writing: Writing, context: Context) -> Result<Arc<TargetSet>, Error> {
    let dirs = dirs_of(args, context)?;
    Ok(TargetSet::open(&dirs, Marks::Needed, writing).map_err(|error| error.fault())?)
}

fn dirs_of(args: &SetArgs, context: Context) -> Result<TargetDirs, Error> {
    let dirs: Vec<&OsStr> = args.dirs.iter().map(OsString::as_os_str).collect();
    named(args.root.as_deref(), args.config.as_deref(), &dirs, context)
}

/// The directories of the set that is a root of the daemon's config, or has these targets.
fn named(root: Option<&str>, config: Option<&OsStr>, dirs: &[&OsStr], context: Context) -> Result<TargetDirs, Error> {
    let dirs = match (root, dirs) {
        (Some(root), _) => targets_of_root(root, config.map(PathBuf::from), context)?,
        (None, [dir]) => TargetDirs::of_target(Path::new(dir)).map_err(|error| error.fault())?,
        (None, dirs) => TargetDirs::set(dirs.iter().map(PathBuf::from).collect()),
    };
    Ok(TargetDirs { same_device: SameDevice::Allowed, ..dirs })
}

fn targets_of_root(root: &str, config: Option<PathBuf>, context: Context) -> Result<TargetDirs, Error> {
    let named = config.or_else(|| context.variable("config").map(PathBuf::from));
    let path = context.places().serve_config(named)?;
    let daemon = Daemon::load(Some(&path), Vec::new())?;
    let found = daemon.config.roots.into_iter().find(|known| known.name == root);
    match found {
        Some(found) if found.targets.dirs.len() > 1 => Ok(found.targets),
        Some(_) => Err(Error::Combination {
            why: "this root is one directory and no set",
            hint: "name a root with several targets",
        }),
        None => Err(Error::Combination { why: "the config has no root of this name", hint: "see its [[root]] tables" }),
    }
}
