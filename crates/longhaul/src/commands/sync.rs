//! `sync`: makes a destination have what its source has, and, as steps of their own, plans and
//! makes the moves of names that only the destination has.
//!
//! In: parsed arguments. Out: a transfer by the rules of `--if-exists`, or a plan, or the end of
//! one. `differing` has the names on which two manifests differ, `pair` the two trees, `dest`
//! the one that names leave, `listed` what a daemon has, `plan` and `apply` the two steps. Moves no
//! data itself.

mod apply;
mod dest;
mod differing;
mod listed;
mod pair;
mod plan;

use std::ffi::OsString;

use super::{Context, transfer};
use crate::cli::{SyncArgs, SyncOptions};
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{SyncCounts, SyncTold};
use crate::settings::{self, TransferSettings};

/// Runs the command.
///
/// # Errors
/// An error that is found before the form of output is known.
pub(super) fn run(mut args: SyncArgs, context: Context) -> Result<Exit, Error> {
    if args.transfer.output.detach || args.transfer.output.attach.is_some() {
        let why = "a sync ends with its sums, and a copy that was left (--detach, --attach) does not tell them";
        return Err(combination(why, "leave it out, or use longhaul copy"));
    }
    if !args.transfer.writes.also.is_empty() {
        let why = "a sync compares two trees, and --also names a third";
        return Err(combination(why, "run one sync for each destination, or use longhaul copy"));
    }
    let step = match args.rule.delete.as_deref().map(|step| step.to_str()) {
        None => {
            let told = compared(&mut args)?;
            return match told {
                Compared::Now(list, told) => {
                    // The list is read before the transfer begins.
                    let exit = transfer::sync(&args.transfer, told, context);
                    drop(list);
                    exit
                }
                Compared::Same(counts) => same(&args, counts, context),
            };
        }
        Some(Some("plan")) => plan::run,
        Some(Some("apply")) => apply::run,
        Some(_) => return Err(combination("--delete takes plan or apply", DELETE_HINT)),
    };
    if args.rule.compare.is_some() || !args.rule.manifests.is_empty() {
        let why = "--delete is about names alone, and nothing is compared for it";
        return Err(combination(why, "leave --compare out; a sync without --delete is the other step"));
    }
    step(&args, context)
}

/// Refuses settings that do not go with `--delete`, wherever they were written.
fn need_whole(settings: &TransferSettings) -> Result<(), Error> {
    if settings.engine.dry_run {
        let hint = "leave -n out, and look whether LONGHAUL_DRY_RUN or dry-run of the configuration says it";
        return Err(combination("--delete plan moves nothing, and is what a dry run would be", hint));
    }
    if settings.engine.files_from.is_some() || settings.targets.is_some() {
        let why = "--files-from and --target do not go with --delete, which is about whole trees in one directory";
        return Err(combination(why, "leave them out; --exclude leaves names alone"));
    }
    Ok(())
}

/// The rule by which a sync transfers.
enum Compared {
    /// By the names in a list, if there is one, whose differences are counted already.
    Now(Option<tempfile::NamedTempFile>, SyncTold),
    /// Two manifests have nothing that the destination lacks.
    Same(SyncCounts),
}

/// Turns `--compare` into the rules of a transfer.
fn compared(args: &mut SyncArgs) -> Result<Compared, Error> {
    let SyncOptions { compare, manifests, .. } = &args.rule;
    if compare.as_ref().is_some_and(|_| args.transfer.choice.if_exists.is_some()) {
        let why = "--compare and --if-exists both say what is done where DEST has the name";
        return Err(combination(why, "leave one of them out"));
    }
    let how = match compare.as_deref().map(|how| how.to_str()) {
        None => "metadata",
        Some(Some(how @ ("metadata" | "digest" | "manifest"))) => how,
        Some(_) => {
            return Err(combination("--compare takes metadata, digest or manifest", "leave it out for metadata"));
        }
    };
    let rule = if how == "metadata" { "skip-same" } else { "verify" };
    let choice = &mut args.transfer.choice;
    if how != "manifest" && !manifests.is_empty() {
        return Err(combination("--manifests are what --compare manifest compares", "write --compare manifest too"));
    }
    choice.if_exists.get_or_insert_with(|| OsString::from(rule));
    if how != "manifest" {
        return Ok(Compared::Now(None, SyncTold::default()));
    }
    let [of_source, of_dest] = manifests.as_slice() else {
        let why = "--compare manifest needs the manifest of SOURCE and that of DEST";
        return Err(combination(why, "make them with 'longhaul manifest make', and name both: --manifests A B"));
    };
    if choice.files_from.is_some() {
        let why = "--files-from and --compare manifest both say which names are looked at";
        return Err(combination(why, "leave one of them out"));
    }
    let [source, _] = args.transfer.locations.as_slice() else { return Err(combination(ONE_SOURCE, ONE_SOURCE_HINT)) };
    if !source.as_encoded_bytes().ends_with(b"/") {
        let why = "the names in two manifests are those of what SOURCE has, not of SOURCE itself";
        return Err(combination(
            why,
            "write a slash behind SOURCE, and have DEST name the tree of the second manifest",
        ));
    }
    let found = differing::list(of_source.as_ref(), of_dest.as_ref())?;
    if found.counts.differing() == 0 {
        return Ok(Compared::Same(found.counts));
    }
    choice.files_from = Some(found.list.path().as_os_str().to_owned());
    choice.from0 = true;
    Ok(Compared::Now(Some(found.list), SyncTold::Before(found.counts)))
}

/// Tells that there is nothing to transfer.
fn same(args: &SyncArgs, counts: SyncCounts, context: Context) -> Result<Exit, Error> {
    let layers = context.layers()?;
    let talk = settings::talk(&args.transfer.output.talk, &layers)?;
    context.talk(talk);
    Ok(counts.conclude(talk))
}

fn combination(why: &'static str, hint: &'static str) -> Error {
    Error::Combination { why, hint }
}

const ONE_SOURCE: &str = "this needs one SOURCE and DEST";
const ONE_SOURCE_HINT: &str = "run one command for each pair of trees";
const DELETE_HINT: &str = "'longhaul sync SOURCE DEST --delete plan' lists what would go, and '--delete apply' with the digest that \
    this prints, behind DEST, moves it away";
