//! The options of `job verify` that have bad files copied anew.
//!
//! In: arguments, and a campaign. Out: orders to mend, or the reason why it cannot be mended,
//! before anything is read. A campaign is mended by whoever may move it. Must not know how a file
//! is copied.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;

use longhaul_core::{Blame, Fault, FaultCode};
use longhaul_jobs::BadKind;

use super::add::{self, parsed};
use super::run::owners_with;
use super::{Figures, Named};
use crate::cli::job::JobMendArgs;
use crate::commands::Context;
use crate::error::{Error, Flaw};
use crate::jobs::{CampaignPlace, CampaignSpec, MendOrders, QueuePlace};
use crate::settings::Keys;

/// The orders to mend a campaign whose destination is at a directory of this host, if one is given.
/// `None`: its bad files are only told.
pub(super) fn orders(
    args: &JobMendArgs,
    (named, at): (&mut Named, Option<&Path>),
    (given, queue, context): (&Keys, &QueuePlace, Context),
) -> Result<Option<MendOrders>, Error> {
    let kinds = parsed("mend-kinds", &args.mend_kinds, kinds)?;
    if !args.mend && kinds.is_none() && args.mend_from.is_empty() {
        return Ok(None);
    }
    let Figures { campaign, signed, .. } = named.figures()?;
    // What it moves, and where to, is the owner's to say, whoever may write to the queue.
    let owners = owners_with((Vec::new(), &[]), given, (queue, context))?;
    let refused = format!("this verifier mends nothing of the campaign '{}'", campaign.name);
    let roots = owners.admit(&campaign.name, signed).map_err(|refusal| refusal.fault(refused))?;
    let spec = CampaignSpec::decode(&campaign.spec)?;
    let dest = at.map_or_else(|| spec.to.clone(), |at| CampaignPlace::Here(at.to_owned()));
    let standing = standing((&spec, dest))?;
    // That of a campaign that was cancelled, or is not planned yet, says nothing of its manifests.
    if roots.as_ref().is_some_and(Vec::is_empty) {
        return Err(Error::Combination {
            why: "no owner has signed what the campaign moves: it was cancelled, or it is not planned yet",
            hint: "leave --mend out; or plan the campaign first, or add it anew",
        });
    }
    let from = args.mend_from.iter().map(|text| replica(text, &standing)).collect::<Result<Vec<_>, _>>()?;
    let tops = spec.sources.iter().map(|source| &source.top).filter(|_| from.is_empty());
    refuse_one_key((given, &spec), from.iter().chain(tops).chain([&standing]))?;
    let kinds = kinds.unwrap_or_else(|| vec![BadKind::Lost, BadKind::Damaged]);
    Ok(Some(MendOrders { kinds, from, spec, begun: campaign, roots }))
}

/// The directory beneath which the files of a campaign stand. Only a dataset on this host tells
/// whether it is the campaign's own still: its sealed list is served by no daemon.
fn standing((spec, dest): (&CampaignSpec, CampaignPlace)) -> Result<CampaignPlace, Error> {
    match (&spec.dataset, &dest) {
        (None, _) => Ok(dest),
        (Some(_), CampaignPlace::Daemon { .. }) => Err(Error::Combination {
            why: "the dataset is at a daemon, which does not serve the sealed list in it: another dataset may have \
                  its name by now, and nothing in it is mended from here",
            hint: "run it on the daemon's host, with --at DIR for the directory that DEST is there; \
                   or leave --mend out",
        }),
        (Some(name), CampaignPlace::Here(_)) => {
            let refused = |error| Fault::new(FaultCode::Usage, Blame::Local, error);
            Ok(dest.with_dataset(name).map_err(refused)?)
        }
    }
}

/// Reads the kinds of bad files that are mended.
fn kinds(text: &str) -> Result<Vec<BadKind>, Flaw> {
    let kind = |name: &str| match name {
        "lost" => Ok(BadKind::Lost),
        "damaged" => Ok(BadKind::Damaged),
        _ => Err(Flaw::Form { given: text.to_owned(), form: "a list of lost and damaged" }),
    };
    text.split(',').map(kind).collect()
}

/// A tree from which copies are taken.
fn replica(text: &OsStr, dest: &CampaignPlace) -> Result<CampaignPlace, Error> {
    let (place, _) = add::place(text)?;
    if place.shown() == dest.shown() {
        return Err(Error::Combination {
            why: "--mend-from names the destination itself, whose files are to be mended",
            hint: "name another replica, or leave it out: then copies are taken from the campaign's own sources",
        });
    }
    match &place {
        CampaignPlace::Here(dir) if !dir.is_dir() => {
            let message = format_args!("the replica '{}' is no directory that can be looked at", place.shown());
            let fault = Fault::new(FaultCode::NotFound, Blame::Local, message).about(place.shown());
            Err(fault.hint_in_words("see that its disk is mounted").into())
        }
        _ => Ok(place),
    }
}

/// Refuses the key of one daemon where more than one are met.
fn refuse_one_key<'p>(
    (given, spec): (&Keys, &CampaignSpec),
    places: impl Iterator<Item = &'p CampaignPlace>,
) -> Result<(), Error> {
    let is_far = |place: &&CampaignPlace| matches!(place, CampaignPlace::Daemon { .. });
    let daemons: BTreeSet<_> = places.filter(is_far).map(CampaignPlace::site).collect();
    if daemons.len() > 1 && (given.peer_key.is_some() || spec.keys.peer_key.is_some()) {
        return Err(Error::Combination {
            why: "--peer-key is the key of one daemon, and more of them are met",
            hint: "trust each of them: longhaul key trust HOST[:PORT] KEY",
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_those_that_nobody_can_have_wanted() {
        assert_eq!(kinds("lost"), Ok(vec![BadKind::Lost]));
        assert_eq!(kinds("damaged,lost"), Ok(vec![BadKind::Damaged, BadKind::Lost]));
        for text in ["", "changed", "unread", "lost,changed", "lost,", "all"] {
            assert!(matches!(kinds(text), Err(Flaw::Form { .. })), "{text}");
        }
    }

    #[test]
    fn the_destination_is_no_replica_of_itself_and_a_directory_that_is_not_there_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let place = |dir: &Path| CampaignPlace::Here(dir.to_owned());
        let text = dir.path().as_os_str();
        assert!(replica(text, &place(dir.path())).is_err());
        assert!(replica(text, &place(&dir.path().join("to"))).is_ok());
        assert!(replica(dir.path().join("none").as_os_str(), &place(dir.path())).is_err());
    }
}
