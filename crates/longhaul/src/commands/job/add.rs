//! `job add`: makes a campaign of locations, options of transfers, and rules.
//!
//! In: arguments. Out: a campaign in the queue, signed by its owner's key, and not planned yet.
//! Asks no daemon: a source at one is
//! looked at when it is planned.

#![allow(clippy::disallowed_methods, reason = "only the kind of a named source is looked at")]

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use longhaul_core::{Blame, DatasetName, Escaped, Fault, FaultCode, IfExists, RelPath, units};
use longhaul_engine::{Dialler, Settings};
use longhaul_jobs::queue::{NewCampaign, add_campaign};
use longhaul_jobs::{
    Calendar, CampaignKey, HookWish, HookWishes, Micros, Priority, QueueId, RetryRules, Store, Weight,
};

use super::{JobOutput, figures, keys_kept, queue_failed, queue_place, told};
use crate::cli::OutputOptions;
use crate::cli::job::JobAddArgs;
use crate::commands::Context;
use crate::error::{Error, Flaw, LocationFlaw, Origin};
use crate::jobs::mover::random;
use crate::jobs::{CampaignPlace, CampaignSource, CampaignSpec, ShardBounds, sign_campaign};
use crate::keys;
use crate::location::{LocalPath, Location};
use crate::output::Talker;
use crate::settings::{self, Layers, Talk, TransferSettings};
use crate::values;

/// Adds the campaign.
pub(super) fn add(
    args: &JobAddArgs,
    layers: &Layers,
    talk: Talk,
    context: Context,
    telling: &mut JobOutput,
) -> Result<(), Error> {
    let (new, identity) = new_campaign(args, layers)?;
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
        let id = add_campaign(rows, &new)?;
        if let Some(owner) = &owner {
            sign_campaign(rows, (id, &new), (owner, fresh))?;
        }
        Ok(id)
    });
    let id = added.map_err(queue_failed)?;
    let figures = figures(&mut store, id)?;
    telling.added(&told(&figures));
    telling.note(format_args!("next: longhaul job plan {}", figures.campaign.name));
    Ok(())
}

/// The campaign, and the file of its owner's key if one was named.
fn new_campaign(args: &JobAddArgs, layers: &Layers) -> Result<(NewCampaign, Option<PathBuf>), Error> {
    let settings = settings::transfer(&args.transfer, layers)?;
    refuse_foreign(args, &settings)?;
    let keys = keys_kept::kept(&settings.keys)?;
    let identity = keys.identity.clone();
    let spec = spec(args, settings, layers)?.met_with(keys).encode()?;
    let key = random()?;
    let name = args.name.clone().unwrap_or_else(|| named_by(&key));
    let new = NewCampaign {
        key: CampaignKey(key),
        name,
        priority: priority(&args.priority)?.unwrap_or_default(),
        weight: weight(&args.weight)?.unwrap_or_default(),
        deadline: deadline(&args.deadline)?,
        calendar: calendar(&args.calendar)?.unwrap_or_default(),
        retry: retry_rules(&args.retry_rules)?.unwrap_or_default(),
        spec,
        hooks: hooks(&args.hook)?,
    };
    Ok((new, identity))
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
fn named_by(key: &[u8; 16]) -> String {
    key[..4].iter().fold("campaign-".to_owned(), |name, byte| format!("{name}{byte:02x}"))
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
    if !transfer.writes.also.is_empty() {
        return refuse("a campaign has one destination", "leave --also out, and add a campaign for each destination");
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

fn spec(args: &JobAddArgs, settings: TransferSettings, layers: &Layers) -> Result<CampaignSpec, Error> {
    let (sources, dest) =
        args.transfer.ends().filter(|(sources, _)| !sources.is_empty()).ok_or(Error::Combination {
            why: "a campaign needs a SOURCE and a DEST",
            hint: "write SOURCE... DEST; '.' is the current directory",
        })?;
    let to = place(dest)?.0;
    let sources = sources.iter().map(|text| source(text)).collect::<Result<Vec<_>, _>>()?;
    let site = sources.first().map(|source| source.top.site());
    if sources.iter().any(|source| Some(source.top.site()) != site) {
        let why = "the sources of a campaign are all at one host, and these are not";
        return Err(Error::Combination { why, hint: "add a campaign for each host" });
    }
    refuse_overlap(&sources)?;
    let is_far = |place: &CampaignPlace| matches!(place, CampaignPlace::Daemon { .. });
    let dialler = settings.third_party.dialler;
    if is_far(&to) && sources.iter().any(|source| is_far(&source.top)) {
        refuse_between(&settings)?;
    } else if dialler != Dialler::default() {
        let why = "--dialler is for campaigns from one daemon to another, and movers take part in this one";
        return Err(Error::Combination { why, hint: "leave it out" });
    }
    let mut engine = settings.engine;
    (engine.files_from, engine.dry_run, engine.digests) = (None, false, false);
    if layers.given("retry-for", &args.transfer.network.retry_for).is_none() {
        // The link's own pauses follow, which all movers know of.
        engine.retry_for = RETRY_FOR;
    }
    if let Some(name) = &settings.dataset {
        refuse_dataset((&to, name), &engine)?;
    }
    let files = parsed("shard-files", &args.shard_files, |text| whole(text, SHARD_FILES_LARGEST))?;
    let bytes = parsed("shard-bytes", &args.shard_bytes, |text| Ok(units::parse_size(text)?.0))?;
    let spec = CampaignSpec::new(sources, to, engine, ShardBounds { files, bytes });
    Ok(spec.as_dataset(settings.dataset).dialled_by(dialler))
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

/// Refuses sources whose names would be the same at the destination, or might be: one would take
/// the other's place, and both would count as moved.
fn refuse_overlap(sources: &[CampaignSource]) -> Result<(), Error> {
    let places: Vec<RelPath> =
        sources.iter().map(|source| source.only.clone().unwrap_or(source.onto.clone())).collect();
    for (at, one) in places.iter().enumerate() {
        if places[at + 1..].iter().any(|other| one.beneath(other).is_some() || other.beneath(one).is_some()) {
            return Err(Error::Combination {
                why: "two sources of the campaign would have the same names at the destination",
                hint: "add a campaign for each, or give directories without a slash behind and with different names",
            });
        }
    }
    Ok(())
}

/// A source: a directory with or without its name, or a file.
fn source(text: &OsStr) -> Result<CampaignSource, Error> {
    let (top, is_content) = place(text)?;
    match top {
        CampaignPlace::Here(path) => source_here(LocalPath { path, slash: is_content }, text),
        CampaignPlace::Daemon { ref path, .. } => {
            let name = path.path.name().filter(|_| !is_content).unwrap_or_default();
            let onto = RelPath::new(name).map_err(|_| unusable(text, LocationFlaw::Root))?;
            Ok(CampaignSource { top, only: None, onto })
        }
    }
}

fn source_here(LocalPath { path, slash }: LocalPath, text: &OsStr) -> Result<CampaignSource, Error> {
    let found = std::fs::symlink_metadata(&path).map_err(|error| missing(&path, error))?;
    let is_dir = std::fs::metadata(&path).is_ok_and(|found| found.is_dir());
    let name = path.file_name().map_or(&b""[..], OsStr::as_bytes);
    let name = RelPath::new(name).map_err(|why| unusable(text, LocationFlaw::Path(why)))?;
    if slash || (is_dir && !found.is_symlink()) {
        let onto = if slash { RelPath::root() } else { name };
        return Ok(CampaignSource { top: CampaignPlace::Here(path), only: None, onto });
    }
    let top = path.parent().unwrap_or(Path::new("/")).to_owned();
    Ok(CampaignSource { top: CampaignPlace::Here(top), only: Some(name), onto: RelPath::root() })
}

fn missing(path: &Path, error: std::io::Error) -> Error {
    let shown = Escaped(path.as_os_str().as_bytes()).to_string();
    let code = match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => FaultCode::NotFound,
        std::io::ErrorKind::PermissionDenied => FaultCode::Denied,
        _ => FaultCode::Io,
    };
    Fault::new(code, Blame::Local, format_args!("cannot examine '{shown}': {error}")).about(shown).into()
}

/// The place of a location, and whether it ended in a slash. A path of this host becomes absolute:
/// movers run elsewhere.
pub(super) fn place(text: &OsStr) -> Result<(CampaignPlace, bool), Error> {
    match Location::parse(text)? {
        Location::Local(local) => {
            let path = std::path::absolute(&local.path).map_err(Error::file("find", &local.path))?;
            Ok((CampaignPlace::Here(path), local.slash))
        }
        Location::Daemon(daemon) => {
            let path = daemon.path.ok_or_else(|| unusable(text, LocationFlaw::NoRoot))?;
            let slash = path.slash;
            Ok((CampaignPlace::Daemon { host: daemon.host, port: daemon.port, path }, slash))
        }
        Location::Ssh(_) => Err(Error::Combination {
            why: "a campaign over ssh is not built yet",
            hint: "serve the directory there, and name it as lh://HOST/ROOT/PATH",
        }),
    }
}

fn unusable(text: &OsStr, flaw: LocationFlaw) -> Error {
    Error::Location { location: longhaul_core::Escaped(text.as_bytes()).to_string(), flaw }
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

    #[test]
    fn sources_that_would_take_each_others_names_are_refused() {
        let source = |onto: &str, only: Option<&str>| CampaignSource {
            top: CampaignPlace::Here("/x".into()),
            only: only.map(|name| RelPath::new(name).unwrap()),
            onto: RelPath::new(onto).unwrap(),
        };
        for (sources, fine) in [
            (vec![source("a", None), source("b", None)], true),
            (vec![source("a", None), source("a", None)], false),
            (vec![source("a", None), source("", Some("f")), source("", Some("g"))], true),
            (vec![source("", Some("f")), source("", Some("f"))], false),
            (vec![source("a", None), source("", Some("a"))], false),
            (vec![source("", None), source("b", None)], false),
            (vec![source("", None)], true),
        ] {
            assert_eq!(refuse_overlap(&sources).is_ok(), fine, "{sources:?}");
        }
    }

    #[test]
    fn a_directory_goes_under_its_name_unless_it_ends_in_a_slash_and_a_file_lies_in_its_directory() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("ds")).unwrap();
        std::fs::write(dir.path().join("f"), "x").unwrap();
        let read = |name: &str| source(dir.path().join(name).as_os_str()).unwrap();
        assert_eq!(read("ds").onto, RelPath::new("ds").unwrap());
        assert!(read("ds/").onto.is_root() && read("ds/").only.is_none());
        let file = read("f");
        assert_eq!((file.only, file.onto.is_root()), (Some(RelPath::new("f").unwrap()), true));
        assert!(source(dir.path().join("none").as_os_str()).is_err());
        let far = source(OsStr::new("lh://h/root/a/b")).unwrap();
        assert_eq!((far.onto, far.top.site().as_str()), (RelPath::new("b").unwrap(), "h:7214"));
    }
}
