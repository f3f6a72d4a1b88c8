//! `job add`: makes a campaign of locations, options of transfers, and rules; or a family of them,
//! one for each destination and each host of sources.
//!
//! `ends` are the locations. In: arguments. Out: campaigns in the queue, all or none, each signed
//! by its owner's key, and not planned yet. Asks no daemon: a source at one is looked at when it is
//! planned.

#![allow(clippy::disallowed_methods, reason = "only a destination that stands already is looked at")]

mod ends;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use longhaul_core::{Blame, DatasetName, Escaped, Fault, FaultCode, IfExists, units};
use longhaul_engine::{Dialler, Settings};
use longhaul_jobs::queue::{NewCampaign, add_campaign};
use longhaul_jobs::{
    Calendar, CampaignKey, HookWish, HookWishes, JobsError, Micros, Priority, QueueId, RetryRules, Store, Weight,
};

use self::ends::CampaignEnds;
pub(super) use self::ends::place;
use super::{JobOutput, figures, keys_kept, of_one, queue_failed, queue_place, told};
use crate::cli::OutputOptions;
use crate::cli::job::JobAddArgs;
use crate::commands::Context;
use crate::error::{Error, Flaw, Origin};
use crate::jobs::mover::random;
use crate::jobs::{
    CampaignPlace, CampaignSource, CampaignSpec, ShardBounds, member_key, member_name, name_clash, refuse_number,
    sign_campaign,
};
use crate::keys;
use crate::output::Talker;
use crate::settings::{self, Layers, Talk, TransferSettings};
use crate::values;

/// Adds the campaign, or all of a family.
pub(super) fn add(
    args: &JobAddArgs,
    layers: &Layers,
    talk: Talk,
    context: Context,
    telling: &mut JobOutput,
) -> Result<(), Error> {
    let AskedCampaigns { name, all, identity } = asked(args, layers)?;
    let file = queue_place(&args.queue, context)?;
    let owner = match (identity, context.places().of_user("identity")) {
        // Making another key would hide that the named one is not there.
        (Some(named), _) => Some(Arc::new(keys::load(&named)?)),
        // A service without a home has no key, and needs none to move what is its own.
        (None, Err(_)) if file.is_file() => None,
        (None, of_user) => {
            let path = of_user?;
            match keys::load_or_make(&path, Talker::new(talk)) {
                // Nor does one whose home it cannot write to. A key that is there and cannot be
                // used is an error.
                Err(error) if file.is_file() && path.symlink_metadata().is_err() => {
                    telling.note(format_args!("nobody signs the campaign: {}", Fault::from(error).message));
                    None
                }
                made => Some(made?),
            }
        }
    };
    let fresh = QueueId(random()?);
    let mut store = file.open_or_make()?;
    let added = store.transact(|rows| {
        if let Some(clash) = name_clash(rows, &name, all.len())? {
            return Ok(Err(clash));
        }
        let mut ids = Vec::with_capacity(all.len());
        for new in &all {
            let id = add_campaign(rows, new)?;
            if let Some(owner) = &owner {
                sign_campaign(rows, (id, new), (owner, fresh))?;
            }
            ids.push(id);
        }
        Ok(Ok(ids))
    });
    for id in added.map_err(queue_failed)?? {
        telling.added(&told(&figures(&mut store, id)?));
    }
    telling.note(format_args!("next: longhaul job plan {name}"));
    Ok(())
}

/// The campaigns that are asked for.
struct AskedCampaigns {
    /// The name of the one, or of the family.
    name: String,
    /// One for each destination and each host of sources, all with the same rules.
    all: Vec<NewCampaign>,
    /// The file of their owner's key, if one was named.
    identity: Option<PathBuf>,
}

fn asked(args: &JobAddArgs, layers: &Layers) -> Result<AskedCampaigns, Error> {
    let settings = settings::transfer(&args.transfer, layers)?;
    refuse_foreign(args, &settings)?;
    let keys = keys_kept::kept(&settings.keys)?;
    let identity = keys.identity.clone();
    let specs = specs(args, &settings, layers)?;
    if args.one && specs.len() > 1 {
        return Err(Error::Combination {
            why: "one campaign is asked for, and there are several destinations or sources at several hosts",
            hint: "nothing was added: leave --one out (in Python use jobs.add_all), or name sources of one host",
        });
    }
    let name = args.name.clone().map_or_else(|| random().map(|bytes| named_by(&bytes)), Ok)?;
    if name.is_empty() {
        return Err(queue_failed(JobsError::BadName(name)));
    }
    refuse_number(&name, specs.len())?;
    let rules = NewCampaign {
        priority: priority(&args.priority)?.unwrap_or_default(),
        weight: weight(&args.weight)?.unwrap_or_default(),
        deadline: deadline(&args.deadline)?,
        calendar: calendar(&args.calendar)?.unwrap_or_default(),
        retry: retry_rules(&args.retry_rules)?.unwrap_or_default(),
        hooks: hooks(&args.hook)?,
        ..NewCampaign::default()
    };
    let (family, mut all) = (random()?, Vec::with_capacity(specs.len()));
    for (number, spec) in (1..).zip(&specs) {
        let (key, name) = match specs.len() {
            1 => (CampaignKey(random()?), name.clone()),
            _ => (member_key(family, random()?), member_name(&name, number)),
        };
        let spec = spec.clone().met_with(keys.clone()).encode()?;
        all.push(NewCampaign { key, name, spec, ..rules.clone() });
    }
    Ok(AskedCampaigns { name, all, identity })
}

/// The hooks that are told of it, by their keys: no host of a mover runs anything else for it.
fn hooks(flags: &[OsString]) -> Result<HookWishes, Error> {
    let wish = |text: &OsString| {
        let text = text.to_str().ok_or(Flaw::NotUtf8)?;
        Ok(text.parse::<HookWish>()?)
    };
    let wishes = flags.iter().map(wish).collect::<Result<_, Flaw>>();
    let wishes = wishes.and_then(|wishes| Ok(HookWishes::new(wishes)?));
    wishes.map_err(|flaw| flawed("hook", flaw))
}

/// The name of a campaign for which none was given.
fn named_by(bytes: &[u8; 4]) -> String {
    bytes.iter().fold("campaign-".to_owned(), |name, byte| format!("{name}{byte:02x}"))
}

/// Refuses options of transfers that mean nothing in a campaign.
fn refuse_foreign(args: &JobAddArgs, settings: &TransferSettings) -> Result<(), Error> {
    let refuse = |why, hint| Err(Error::Combination { why, hint });
    let transfer = &args.transfer;
    if transfer.choice.files_from.is_some() || transfer.choice.from0 {
        return refuse("a campaign lists its files itself", "use --include and --exclude instead of --files-from");
    }
    if transfer.choice.dry_run {
        return refuse(
            "a campaign moves nothing before it is planned and run",
            "leave --dry-run out; 'longhaul job plan' tells its files and bytes",
        );
    }
    if transfer.output.manifest.is_some() {
        return refuse("a campaign has a sealed manifest of its own", "leave --manifest out");
    }
    let OutputOptions { detach, attach, .. } = &transfer.output;
    if *detach || attach.is_some() {
        return refuse("movers follow what they move to its end", "leave --detach and --attach out");
    }
    if settings.claim.is_some() {
        return refuse("movers show claims of their own", "leave --claim out");
    }
    keys_kept::refuse_ssh(&transfer.ssh)?;
    if settings.targets.is_some() {
        return refuse(
            "a campaign's destination on this host is one directory",
            "leave --target out; serve the set, and name it as lh://HOST/ROOT/PATH",
        );
    }
    Ok(())
}

/// The transfers of each campaign: one for each destination and each host of sources.
fn specs(args: &JobAddArgs, settings: &TransferSettings, layers: &Layers) -> Result<Vec<CampaignSpec>, Error> {
    let ends = ends::ends(&args.transfer)?;
    let members = ends.to.len() * ends.from.len();
    refuse_together(&ends, settings)?;
    let files = parsed("shard-files", &args.shard_files, |text| whole(text, SHARD_FILES_LARGEST))?;
    let bytes = parsed("shard-bytes", &args.shard_bytes, |text| Ok(units::parse_size(text)?.0))?;
    let mut engine = settings.engine.clone();
    (engine.files_from, engine.dry_run, engine.digests) = (None, false, false);
    if layers.given("retry-for", &args.transfer.network.retry_for).is_none() {
        // The link's own pauses follow, which all movers know of.
        engine.retry_for = RETRY_FOR;
    }
    let mut specs = Vec::with_capacity(members);
    for to in &ends.to {
        for sources in &ends.from {
            match refuse_ends((sources, to), settings) {
                Err(error) if members > 1 => return Err(of_one(&to.shown(), error).into()),
                done => done?,
            }
            let spec = CampaignSpec::new(sources.clone(), to.clone(), engine.clone(), ShardBounds { files, bytes });
            specs.push(spec.as_dataset(settings.dataset.clone()).dialled_by(settings.third_party.dialler));
        }
    }
    Ok(specs)
}

/// Refuses what the campaigns of a family cannot have together.
fn refuse_together(ends: &CampaignEnds, settings: &TransferSettings) -> Result<(), Error> {
    if ends.to.len() * ends.from.len() > FAMILY_MOST {
        let why = "more than 256 campaigns would be added: one for each destination and each host of sources";
        return Err(Error::Combination { why, hint: "add several families" });
    }
    if ends.from.len() > 1 && settings.dataset.is_some() {
        return Err(Error::Combination {
            why: "the files of a dataset come by one campaign, and sources at several hosts by one for each host",
            hint: "leave --as-dataset out, or add a dataset for each host",
        });
    }
    if ends.daemons() > 1 && ends.to.len() * ends.from.len() > 1 && settings.keys.peer_key.is_some() {
        return Err(Error::Combination {
            why: "--peer-key is the key of one daemon, and several are named",
            hint: "trust each: longhaul key trust HOST[:PORT] KEY",
        });
    }
    Ok(())
}

/// Refuses settings that a campaign with these sources and this destination cannot have.
fn refuse_ends((sources, to): (&[CampaignSource], &CampaignPlace), settings: &TransferSettings) -> Result<(), Error> {
    let is_far = |place: &CampaignPlace| matches!(place, CampaignPlace::Daemon { .. });
    if is_far(to) && sources.iter().any(|source| is_far(&source.top)) {
        refuse_between(settings)?;
    } else if settings.third_party.dialler != Dialler::default() {
        let why = "--dialler is for campaigns from one daemon to another, and movers take part in this one";
        return Err(Error::Combination { why, hint: "leave it out" });
    }
    match &settings.dataset {
        Some(name) => refuse_dataset((to, name), &settings.engine),
        None => Ok(()),
    }
}

/// Refuses a dataset that could not appear. What stands at a daemon is known when its first shard
/// is moved.
fn refuse_dataset((to, name): (&CampaignPlace, &DatasetName), settings: &Settings) -> Result<(), Error> {
    if !settings.metadata.preserve.times {
        return Err(Error::Combination {
            why: "the commit of a campaign knows its files by their times, and these are not kept",
            hint: "keep times, or leave --as-dataset out",
        });
    }
    let CampaignPlace::Here(dir) = to else { return Ok(()) };
    let path = dir.join(OsStr::from_bytes(name.as_bytes()));
    if settings.if_exists == IfExists::Replace || std::fs::symlink_metadata(&path).is_err() {
        return Ok(());
    }
    let shown = Escaped(path.as_os_str().as_bytes()).to_string();
    let why = format_args!("'{shown}' stands already: a dataset takes a name that is free");
    let fault = Fault::new(FaultCode::Exists, Blame::Local, why).about(&shown);
    Err(fault.hint_in_words("choose another name, or keep the old one beside it with --if-exists replace").into())
}

/// Refuses what only the host of the sources could do, or that of the destination, of which movers
/// of a campaign between two daemons are neither.
fn refuse_between(settings: &TransferSettings) -> Result<(), Error> {
    let refuse = |why, hint| Err(Error::Combination { why, hint });
    if settings.keys.peer_key.is_some() {
        let why = "--peer-key is the key of one daemon, and two are named";
        return refuse(why, "trust both: longhaul key trust HOST[:PORT] KEY");
    }
    if !settings.engine.paths.is_empty() {
        let why = "--path names addresses of this host, and no byte of a campaign between two daemons passes it";
        return refuse(why, "leave it out");
    }
    if settings.engine.metadata.accounts != Default::default() {
        let why = "a mapping of accounts is applied at a host that sends or receives, and this one does neither";
        return refuse(why, "leave it out, or run the mover on one of the two hosts and name its directory");
    }
    if settings.dataset.is_some() {
        let why = "a dataset of a campaign is not staged by an order from one daemon to another";
        return refuse(why, "leave it out, or run the mover on one of the two hosts and name its directory");
    }
    Ok(())
}

/// The value of an option of the queue, which no variable and no config file sets.
pub(super) fn parsed<T>(
    name: &'static str,
    flag: &Option<OsString>,
    parse: impl FnOnce(&str) -> Result<T, Flaw>,
) -> Result<Option<T>, Error> {
    let Some(text) = flag else { return Ok(None) };
    text.to_str().ok_or(Flaw::NotUtf8).and_then(parse).map(Some).map_err(|flaw| flawed(name, flaw))
}

/// The error of an option whose value cannot be used.
pub(super) fn flawed(name: &'static str, flaw: Flaw) -> Error {
    Error::Option { origin: Origin::Flag(name), flaw }
}

/// A number from 0 on.
fn whole(text: &str, most: u64) -> Result<u64, Flaw> {
    let least = u64::from(most == SHARD_FILES_LARGEST);
    let number = text.parse().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| Flaw::Number {
        given: text.to_owned(),
        least: least as u32,
        most: u32::try_from(most).unwrap_or(u32::MAX),
    })
}

/// The value of `--priority`.
pub(super) fn priority(flag: &Option<OsString>) -> Result<Option<Priority>, Error> {
    let number = parsed("priority", flag, |text| whole(text, 9))?;
    Ok(number.and_then(|number| u8::try_from(number).ok()).and_then(Priority::new))
}

/// The value of `--weight`.
pub(super) fn weight(flag: &Option<OsString>) -> Result<Option<Weight>, Error> {
    parsed("weight", flag, |text| {
        let weight = u16::try_from(whole(text, 1000)?).ok().and_then(Weight::new);
        weight.ok_or_else(|| Flaw::Form { given: text.to_owned(), form: "a number from 1 to 1000" })
    })
}

/// The value of `--deadline`.
pub(super) fn deadline(flag: &Option<OsString>) -> Result<Option<Micros>, Error> {
    parsed("deadline", flag, time_of_deadline)
}

/// The value of `--calendar`.
pub(super) fn calendar(flag: &Option<OsString>) -> Result<Option<Calendar>, Error> {
    parsed("calendar", flag, |text| Ok(text.parse::<Calendar>()?))
}

/// The value of `--retry-rules`.
pub(super) fn retry_rules(flag: &Option<OsString>) -> Result<Option<RetryRules>, Error> {
    parsed("retry-rules", flag, |text| Ok(text.parse::<RetryRules>()?))
}

/// Reads a deadline: a point of time, or a time from now.
fn time_of_deadline(text: &str) -> Result<Micros, Flaw> {
    let form = "a point of time as 2026-12-24T18:00:00Z, or a time from now as 36h or 10d";
    let flaw = || Flaw::Form { given: text.to_owned(), form };
    if let Ok(at) = text.parse::<Timestamp>() {
        return u64::try_from(at.as_microsecond()).map(Micros).map_err(|_| flaw());
    }
    let time = values::retry_for(text).map_err(|_| flaw())?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_err(|_| flaw())?;
    Ok(Micros(0).plus(now).plus(time))
}

/// For so long a lost session is dialled again within one claim.
const RETRY_FOR: Duration = Duration::from_secs(30);
/// The most campaigns that are added together.
const FAMILY_MOST: usize = 256;
/// The most files that a shard may be given.
const SHARD_FILES_LARGEST: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_a_point_of_time_or_a_time_from_now() {
        assert_eq!(time_of_deadline("1970-01-01T00:01:00Z"), Ok(Micros(60_000_000)));
        let (now, later) = (time_of_deadline("0").unwrap(), time_of_deadline("2h").unwrap());
        let hours = later.since(now).as_secs();
        assert!((7200..7210).contains(&hours), "{hours}");
        for text in ["", "soon", "2026-12-24", "1960-01-01T00:00:00Z"] {
            assert!(matches!(time_of_deadline(text), Err(Flaw::Form { .. })), "{text}");
        }
    }
}
