//! `set`: makes target sets and looks them over.
//!
//! In: directories, or a root of the daemon's config. Out: findings, to `output`. The engine knows
//! what a set is. Moves no data.

use std::io::{self, BufWriter};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use longhaul_core::RelPath;
use longhaul_engine::{Marks, SetFind, TargetDirs, TargetSet, Writing, walk_set};

use super::Context;
use crate::cli::{SetArgs, SetInitArgs, SetVerb};
use crate::config::{ClientFile, Daemon};
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, SetTelling, TellsFiles};
use crate::settings::{self, Layers, Talk};

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
        SetVerb::Ls(args) => survey(args, TellsFiles::Each, talk, context),
        SetVerb::Check(args) => survey(args, TellsFiles::No, talk, context),
    };
    Ok(outcome.unwrap_or_else(|error| output::refuse(talk.json, error)))
}

impl SetVerb {
    fn talk(&self) -> &crate::cli::TalkOptions {
        match self {
            SetVerb::Init(args) => &args.talk,
            SetVerb::Ls(args) | SetVerb::Check(args) => &args.talk,
        }
    }
}

fn init(args: &SetInitArgs, layers: &Layers, talk: Talk) -> Result<Exit, Error> {
    let dirs = settings::new_set(args, layers)?;
    let set = TargetSet::open(&dirs, Marks::Made, Writing::Wanted).map_err(|error| error.fault())?;
    Ok(SetTelling::new(BufWriter::new(io::stdout()), talk, TellsFiles::No).end(&set))
}

/// Walks a set: tells its files if they are wanted, and what is wrong.
fn survey(args: &SetArgs, files: TellsFiles, talk: Talk, context: Context) -> Result<Exit, Error> {
    let set = opened(args, context)?;
    let mut telling = SetTelling::new(BufWriter::new(io::stdout()), talk, files);
    walk_set(&set, &RelPath::root(), |find| {
        match find {
            SetFind::File { path, target, bytes } => telling.file(&path, target, bytes),
            SetFind::Wrong(fault) => telling.wrong(&fault),
        }
        if telling.is_deaf() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(telling.end(&set))
}

/// The set that the arguments name, whatever its disks.
fn opened(args: &SetArgs, context: Context) -> Result<Arc<TargetSet>, Error> {
    let dirs = match &args.root {
        Some(root) => targets_of_root(root, args.config.as_deref().map(PathBuf::from), context)?,
        None => match args.dirs.as_slice() {
            [dir] => TargetDirs::of_target(Path::new(dir)).map_err(|error| error.fault())?,
            dirs => TargetDirs::set(dirs.iter().map(PathBuf::from).collect()),
        },
    };
    let dirs = TargetDirs { same_device: longhaul_engine::SameDevice::Allowed, ..dirs };
    Ok(TargetSet::open(&dirs, Marks::Needed, Writing::Never).map_err(|error| error.fault())?)
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
