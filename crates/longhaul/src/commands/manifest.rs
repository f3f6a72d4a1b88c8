//! `manifest`: makes, shows, compares, merges and imports sealed manifests; `consistency` compares
//! a storage with its catalogue.
//!
//! In: directories, locations, manifests and lists of other programs. Out: sealed manifests, and
//! findings to `output`. The crate of manifests does the work; the engine lists what a daemon has.

mod consistency;
pub(super) mod local;
pub(super) mod remote;

use std::ffi::{OsStr, OsString};
use std::io::{self, BufWriter};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use longhaul_core::filter::{Filter, Rule, RuleKind};
use longhaul_core::{Escaped, Fault};
use longhaul_manifest::{
    Algorithm, Algorithms, Draft, Format, Item, Lists, ManifestError, Merge, Sealed, Sorter, diff, import,
};

use super::Context;
use crate::cli::{
    EXCLUDE, INCLUDE, ManifestDiffArgs, ManifestImportArgs, ManifestMergeArgs, ManifestShowArgs, ManifestVerb,
    TalkOptions,
};
use crate::error::{Error, Flaw, Origin};
use crate::exit::Exit;
use crate::location::Location;
use crate::output::{self, ItemForm, ManifestTelling};
use crate::settings;

/// The telling on standard output.
pub(super) type Output = ManifestTelling<BufWriter<io::Stdout>>;

/// Runs the command.
///
/// # Errors
/// An error that is found before the form of output is known.
pub(super) fn run(verb: &ManifestVerb, context: Context) -> Result<Exit, Error> {
    let layers = context.layers()?;
    let talk = settings::talk(talk_of(verb), &layers)?;
    context.talk(talk);
    let telling = ManifestTelling::new(BufWriter::new(io::stdout()), talk);
    let outcome = match verb {
        ManifestVerb::Make(args) => match Location::parse(&args.dir) {
            Ok(Location::Local(dir)) => local::make(&dir.path, args, context, telling),
            Ok(Location::Daemon(daemon)) => remote::make(&daemon, args, &layers, talk, context, telling),
            Ok(Location::Ssh(_)) => Err(Error::Combination {
                why: "a manifest of another host's files is made there, or by its daemon",
                hint: "run 'longhaul manifest make' at that host by ssh, or name the tree as lh://HOST/ROOT/PATH",
            }),
            Err(error) => Err(error),
        },
        ManifestVerb::Show(args) => show(args, telling),
        ManifestVerb::Diff(args) => Ok(compare(args, telling)),
        ManifestVerb::Consistency(args) => Ok(consistency::run(args, talk)),
        ManifestVerb::Merge(args) => Ok(merge(args, telling)),
        ManifestVerb::Import(args) => import_lists(args, telling),
    };
    Ok(outcome.unwrap_or_else(|error| output::refuse(talk.json, error)))
}

fn talk_of(verb: &ManifestVerb) -> &TalkOptions {
    match verb {
        ManifestVerb::Make(args) => &args.talk,
        ManifestVerb::Show(args) => &args.talk,
        ManifestVerb::Diff(args) => &args.talk,
        ManifestVerb::Consistency(args) => &args.talk,
        ManifestVerb::Merge(args) => &args.talk,
        ManifestVerb::Import(args) => &args.talk,
    }
}

fn show(args: &ManifestShowArgs, mut telling: Output) -> Result<Exit, Error> {
    let form = match &args.sums {
        Some(name) => Some(ItemForm::Sums(algorithm("sums", name)?)),
        None => args.list.then_some(ItemForm::Long),
    };
    let path = Path::new(&args.manifest);
    let told = Sealed::open(path).and_then(|sealed| {
        if form.is_none() {
            telling.sealed(path, &sealed);
        }
        if form.is_some() || args.check {
            for item in sealed.items() {
                let item = item?;
                if let Some(form) = form {
                    telling.item(&item, form);
                }
                if telling.is_deaf() {
                    break;
                }
            }
            telling.without_sums();
        }
        Ok(())
    });
    if let Err(error) = told {
        telling.failed(&fault(&error));
    }
    Ok(telling.end())
}

fn compare(args: &ManifestDiffArgs, mut telling: Output) -> Exit {
    let paths = [Path::new(&args.one), Path::new(&args.other)];
    let mut run = || {
        let (one, other) = (Sealed::open(paths[0])?, Sealed::open(paths[1])?);
        for (sealed, path) in [&one, &other].into_iter().zip(paths) {
            if sealed.head().omitted > 0 {
                telling.incomplete(path, sealed.head().omitted);
            }
        }
        let lists = one.head().lists.common(other.head().lists);
        diff(one.items(), other.items(), lists, |item, difference| {
            telling.difference(item, difference);
            if telling.is_deaf() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    };
    if let Err(error) = run() {
        telling.failed(&fault(&error));
    }
    telling.end_of_diff()
}

fn merge(args: &ManifestMergeArgs, telling: Output) -> Exit {
    let out = PathBuf::from(&args.out);
    let run = || {
        let manifests = args.manifests.iter().map(|path| Sealed::open(Path::new(path)));
        let manifests = manifests.collect::<Result<Vec<_>, _>>()?;
        let heads = || manifests.iter().map(Sealed::head);
        let lists = heads().map(|head| head.lists).reduce(Lists::common).unwrap_or_default();
        let omitted = heads().map(|head| head.omitted).fold(0, u64::saturating_add);
        let items = Merge::new(manifests.iter().map(Sealed::items).collect());
        // Of a kind that one of them does not list, the new one does not say which names there are.
        let items = items.filter(|item| item.as_ref().map_or(true, |item| lists.has(&item.kind)));
        sealed_of(Draft::begin(&out)?, items, lists, omitted)
    };
    concluded(run(), &out, telling)
}

fn import_lists(args: &ManifestImportArgs, telling: Output) -> Result<Exit, Error> {
    let format = match args.format.to_str() {
        Some("bagit") => Format::BagIt,
        Some("rucio") => Format::Rucio,
        Some("paths") => Format::Paths,
        _ => Format::Lines(algorithm("format", &args.format)?),
    };
    let out = PathBuf::from(&args.out);
    let run = || {
        let draft = Draft::begin(&out)?;
        let mut sorter = Sorter::new(&out, SORT_BYTES);
        for list in &args.lists {
            import(Path::new(list), format, &mut sorter)?;
        }
        sealed_of(draft, sorter.finish()?, Lists::FILES, 0)
    };
    Ok(concluded(run(), &out, telling))
}

/// A manifest of items in order.
fn sealed_of(
    mut draft: Draft,
    items: impl Iterator<Item = Result<Item, ManifestError>>,
    lists: Lists,
    omitted: u64,
) -> Result<Sealed, ManifestError> {
    for item in items {
        draft.add(&item?)?;
    }
    draft.seal(lists, omitted)
}

/// Tells how a manifest came out.
fn concluded(outcome: Result<Sealed, ManifestError>, out: &Path, mut telling: Output) -> Exit {
    match outcome {
        Ok(sealed) => telling.made(out, &sealed),
        Err(error) => telling.failed(&fault(&error)),
    }
    telling.end()
}

/// The fault of an error, with what to do next.
pub(super) fn fault(error: &ManifestError) -> Fault {
    let hint = match error {
        ManifestError::Head { .. } => "give the directory that 'longhaul manifest make' wrote, or its head.lhm",
        ManifestError::Segment { .. } => {
            "get that file once more from where the manifest came from, or make the manifest again"
        }
        ManifestError::Line { .. } => "say by --format what the list is, or mend the line",
        ManifestError::Conflict { .. } => {
            "find out which of the lists is right; 'longhaul manifest diff' tells all differences"
        }
        ManifestError::Stands { .. } => "name another directory with -o; a sealed manifest is never changed",
        ManifestError::Busy { .. } => "wait until it has ended",
        ManifestError::OtherDraft { .. } => {
            "give the same command as before to go on, with the directory mounted as it was, or name another one with -o"
        }
        ManifestError::OutIsTree { .. } => "name another directory with -o; it may lie in the tree, and is left out",
        ManifestError::Unlistable { .. } => "leave the name out, or give it another target",
        ManifestError::Thread => "run the same command again; it goes on",
        ManifestError::OneTarget { .. } => "serve the set, and name the tree as lh://HOST/ROOT/PATH",
        _ => "",
    };
    error.fault().hint_in_words(hint)
}

/// The algorithm that an option names.
fn algorithm(option: &'static str, text: &OsStr) -> Result<Algorithm, Error> {
    text.to_str()
        .and_then(Algorithm::of_name)
        .ok_or_else(|| unknown(option, text, "b3, sha256, md5, adler32, crc32c, sha1 or sha512"))
}

/// The algorithms that are to be computed.
fn computed(text: Option<&OsString>) -> Result<Algorithms, Error> {
    let Some(text) = text.filter(|text| *text != "none") else { return Ok(Algorithms::default()) };
    let one = |name| Algorithm::of_name(name).filter(|algorithm| algorithm.is_computed());
    let all = text
        .to_str()
        .and_then(|names| names.split(',').try_fold(Algorithms::default(), |all, name| Some(all.with(one(name)?))));
    all.ok_or_else(|| unknown("checksum", text, "a list of b3, sha256, md5, adler32 and crc32c, or none"))
}

fn unknown(option: &'static str, text: &OsStr, words: &'static str) -> Error {
    let message = format!("--{option}: '{}' is not known here", Escaped(text.as_encoded_bytes()));
    Error::CommandLine { message, hint: format!("it takes {words}") }
}

/// The filter of a scan: the config's patterns are those of transfers.
pub(super) fn filter(rules: &[(RuleKind, OsString)]) -> Result<Filter, Error> {
    let rules = rules.iter().map(|(kind, text)| match text.to_str() {
        Some(pattern) => Ok(Rule { kind: *kind, pattern: pattern.into() }),
        None => {
            let name = if *kind == RuleKind::Include { INCLUDE } else { EXCLUDE };
            Err(Error::Option { origin: Origin::Flag(name), flaw: Flaw::NotUtf8 })
        }
    });
    Ok(Filter::new(rules.collect::<Result<_, _>>()?)?)
}

/// Memory of a sort: half a million names or so, and 10^8 names make some two hundred runs.
const SORT_BYTES: usize = 128 << 20;
