//! `job plan`: lists a campaign's files as sealed manifests and cuts them into shards; with
//! `--shards` it writes lists instead, with no queue.
//!
//! In: a campaign or a family of them, or a directory. Out: manifests, and shards in the queue; or
//! lists of names. A source that was listed by an earlier run, or for another member of the family,
//! is not listed again. Moves nothing.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, BufWriter};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use longhaul_core::{Blame, Fault, FaultCode, Filter, Mtime, PlainText, RelPath};
use longhaul_engine::{Reach, Remote, Stop};
use longhaul_jobs::queue::note_omitted;
use longhaul_jobs::{Campaign, CampaignState, JobsError, OmittedName, Store};
use longhaul_manifest::{Draft, Item, ItemKind, Lists, Make, ManifestError, Sealed, Sums, is_unfinished};
use longhaul_net::Identity;

use super::add::parsed;
use super::{JobOutput, campaigns, keys_kept, of_one, queue_failed, queue_place, shared};
use crate::cli::job::JobPlanArgs;
use crate::commands::manifest::{self, local, remote};
use crate::commands::{Context, block_on};
use crate::error::{Error, Flaw, LocationFlaw};
use crate::exit::Exit;
use crate::jobs::parts::write_parts;
use crate::jobs::plan::{need_all_names, plan_shards};
use crate::jobs::spec::beneath;
use crate::jobs::{
    CampaignKeys, CampaignPlace, CampaignSource, CampaignSpec, Owners, QueuePlace, QueueStore, Shelf, Signed, Unsigned,
    fault_of_manifest, signed,
};
use crate::keys;
use crate::location::Location;
use crate::output::{ManifestTelling, Talker};
use crate::settings::{self, Layers, Talk};
use crate::signals::{self, Asking, Hangup};

/// Plans a campaign, or writes lists.
pub(super) fn plan(
    args: &JobPlanArgs,
    layers: &Layers,
    talk: Talk,
    context: Context,
    telling: &mut JobOutput,
) -> Result<(), Error> {
    let mut lister = Lister::new(args, layers, talk, context)?;
    match (&args.shards, &args.out) {
        (Some(_), Some(out)) => write_lists(args, Path::new(out), &mut lister, telling),
        _ => plan_campaign(args, context, &mut lister, telling),
    }
}

fn plan_campaign(
    args: &JobPlanArgs,
    context: Context,
    lister: &mut Lister,
    telling: &mut JobOutput,
) -> Result<(), Error> {
    if !args.filters.rules.is_empty() {
        let why = "the filters of a campaign are given when it is added";
        return Err(Error::Combination { why, hint: "leave --include and --exclude out, or add another campaign" });
    }
    let file = queue_place(&args.queue.queue, context)?;
    let mut store = file.open()?;
    let all = campaigns(&mut store, &args.what.to_string_lossy())?;
    if let [one] = all.as_slice() {
        return plan_one((&file, &mut store), one, lister, telling);
    }
    plan_members((&file, &mut store), &all, lister, telling)
}

/// Plans the members of a family that are not planned yet. Where the sources of one cannot be
/// listed, so cannot those of the others that read the same, and the rest can.
fn plan_members(
    (file, store): (&QueuePlace, &mut QueueStore),
    all: &[Campaign],
    lister: &mut Lister,
    telling: &mut JobOutput,
) -> Result<(), Error> {
    let mut open = all.to_vec();
    open.retain(|campaign| campaign.state == CampaignState::Planning);
    // A family of which nothing is to be planned is refused as a campaign is.
    if open.is_empty() {
        return plan_one((file, store), &all[0], lister, telling);
    }
    for campaign in &open {
        if let Some(code) = lister.stopped.get() {
            telling.note(format_args!("{} and those behind it are not planned", campaign.name));
            telling.exits((*code).into());
            break;
        }
        // The listing of those before it may have taken hours.
        let id = campaign.id;
        let now = store.transact(|rows| rows.campaign(id)).map_err(queue_failed)?;
        let Some(campaign) = now.as_ref().filter(|now| now.state == CampaignState::Planning) else {
            telling.note(format_args!("{} is not to be planned any more, and is passed over", campaign.name));
            continue;
        };
        let from = CampaignSpec::decode(&campaign.spec).map_or_else(|_| campaign.name.clone(), |spec| spec.site_from());
        if let Some(other) = lister.unlisted.get(&from) {
            telling.note(format_args!("{} reads the sources of {other}, and is not planned either", campaign.name));
            continue;
        }
        if let Err(error) = plan_one((file, &mut *store), campaign, lister, telling) {
            telling.failed(&of_one(&campaign.name, error));
        }
    }
    Ok(())
}

fn plan_one(
    (file, store): (&QueuePlace, &mut QueueStore),
    campaign: &Campaign,
    lister: &mut Lister,
    telling: &mut JobOutput,
) -> Result<(), Error> {
    if campaign.state != CampaignState::Planning {
        let (campaign, state) = (campaign.id, campaign.state.name());
        return Err(queue_failed(JobsError::WrongState { campaign, state }));
    }
    let signed = store.transact(|rows| signed(rows, campaign)).map_err(queue_failed)?;
    let (spec, shelf) = (CampaignSpec::decode(&campaign.spec)?, file.shelf());
    let owner = match signed {
        // Movers of this user move it.
        Signed::Nobody if file.is_file() => None,
        signed => Some(lister.owner(signed, &campaign.name, &spec.keys)?),
    };
    let (mut manifests, mut omitted) = (Vec::new(), 0_u64);
    for (number, source) in spec.sources.iter().enumerate() {
        let out = shelf.manifest(campaign.key, number);
        let key = owner.as_ref().map(Identity::public);
        let shared = shared::taken((&mut *store, &shelf), (campaign, &spec), number, key)?;
        let listed = lister.sealed((source, &spec.keys), &spec.settings.filter, &out, &shelf);
        if listed.is_err() {
            lister.unlisted.insert(spec.site_from(), campaign.name.clone());
        }
        let (sealed, faults) = listed?;
        omitted = omitted.saturating_add(sealed.head().omitted);
        let mut names: Vec<_> = faults.into_iter().map(|fault| omitted_name(campaign, number, fault)).collect();
        if let Some(list) = shared {
            telling.note(format_args!("{} takes the list of {} from {}", campaign.name, source.shown(), list.of));
            names = list.omitted;
        }
        // Right behind each source: the next planner finds its manifest sealed, and does not look
        // for these names again.
        store.transact(|rows| note_omitted(rows, campaign.id, omitted, &names)).map_err(queue_failed)?;
        manifests.push(sealed);
    }
    if let Err(fault) = need_all_names(&spec, &manifests) {
        // The next planner lists those sources anew: the names may be readable by then.
        for (number, _) in manifests.iter().enumerate().filter(|(_, sealed)| sealed.head().omitted > 0) {
            shelf.remove_manifest(campaign.key, number)?;
        }
        return Err(fault.into());
    }
    let stopped = || lister.stopped.get().copied();
    let planned = plan_shards(store, campaign, &spec, (&manifests, owner.as_ref()), &stopped)?;
    telling.planned(&campaign.name, planned.shards, planned.total, omitted);
    Ok(())
}

/// A name that could not be read, as the campaign keeps it.
fn omitted_name(campaign: &Campaign, source: usize, fault: Fault) -> OmittedName {
    let Fault { object, code, message, .. } = fault;
    OmittedName { campaign: campaign.id, source: source as u64, object, code, message }
}

/// Lists a directory, and writes the names as so many lists.
fn write_lists(args: &JobPlanArgs, out: &Path, lister: &mut Lister, telling: &mut JobOutput) -> Result<(), Error> {
    let count = parsed("shards", &args.shards, |text| {
        let number = text.parse().ok().filter(|number| *number <= LISTS).and_then(NonZero::new);
        number.ok_or_else(|| Flaw::Number { given: text.to_owned(), least: 1, most: LISTS })
    })?;
    let top = match Location::parse(&args.what)? {
        Location::Local(path) => CampaignPlace::Here(path.path),
        Location::Daemon(daemon) => match daemon.path {
            Some(path) => CampaignPlace::Daemon { host: daemon.host, port: daemon.port, path },
            None => return Err(Error::Location { location: name_of(&args.what), flaw: LocationFlaw::NoRoot }),
        },
        Location::Ssh(_) => {
            let why = "files of a host that ssh leads to are listed there";
            return Err(Error::Combination { why, hint: "run this command at that host" });
        }
    };
    refuse_used(out)?;
    let source = CampaignSource { top, only: None, onto: RelPath::root() };
    let shelf = Shelf::at(out.to_owned());
    let filter = manifest::filter(&args.filters.rules)?;
    let (sealed, _) = lister.sealed((&source, &CampaignKeys::default()), &filter, &out.join(LISTED), &shelf)?;
    for list in write_parts(&sealed, out, count.unwrap_or(NonZero::<u32>::MIN))? {
        telling.part(&list.path, list.total);
    }
    if sealed.head().omitted > 0 {
        telling.exits(Exit::Partial);
    }
    Ok(())
}

/// Refuses a directory with anything in it: lists of another source, or of a run that was killed,
/// must not be taken for these. A scan that was killed goes on: it knows its source.
#[allow(clippy::disallowed_methods, reason = "the user names the directory")]
fn refuse_used(out: &Path) -> Result<(), Error> {
    match std::fs::read_dir(out).map(|mut names| (names.next(), names.next())) {
        Ok((Some(_), None)) if is_unfinished(&out.join(LISTED)) => Ok(()),
        Ok((Some(_), _)) => {
            let message = format_args!("the directory '{}' is not empty", out.display());
            let fault = Fault::new(FaultCode::Usage, Blame::Local, message);
            Err(fault.hint_in_words("remove it, or name another one with --out").into())
        }
        Ok((None, _)) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Error::file("read", out)(error)),
    }
}

fn name_of(text: &OsString) -> String {
    longhaul_core::Escaped(text.as_encoded_bytes()).to_string()
}

/// Lists sources, here and at daemons, until a signal stops it.
struct Lister<'a> {
    args: &'a JobPlanArgs,
    layers: &'a Layers<'a>,
    talk: Talk,
    context: Context<'a>,
    asking: Asking,
    stopped: Arc<OnceLock<FaultCode>>,
    stop: Stop,
    /// The hosts whose sources could not be listed, and the campaign for which that was tried.
    unlisted: BTreeMap<String, String>,
}

impl<'a> Lister<'a> {
    fn new(
        args: &'a JobPlanArgs,
        layers: &'a Layers<'a>,
        talk: Talk,
        context: Context<'a>,
    ) -> Result<Lister<'a>, Error> {
        let (asking, stopped, (trigger, stop)) = (Asking::default(), Arc::new(OnceLock::new()), Stop::new());
        let on_signal = Arc::clone(&stopped);
        signals::watch(asking.clone(), Hangup::Stops, move |code| {
            on_signal.set(code).unwrap_or_default();
            trigger.stop(code);
        })
        .map_err(Error::file("watch the signals of", "this process"))?;
        let unlisted = BTreeMap::new();
        Ok(Lister { args, layers, talk, context, asking, stopped, stop, unlisted })
    }

    /// The manifest of a source in `out`: the one that stands there, or a new one with the faults
    /// of names that could not be read.
    fn sealed(
        &mut self,
        (source, kept): (&CampaignSource, &CampaignKeys),
        filter: &Filter,
        out: &Path,
        shelf: &Shelf,
    ) -> Result<(Sealed, Vec<Fault>), Error> {
        if let Ok(sealed) = Sealed::open(out) {
            return Ok((sealed, Vec::new()));
        }
        shelf.make_room(out)?;
        // Its events are those of a scan, and its end is told by this command.
        let mut telling = ManifestTelling::new(BufWriter::new(io::stdout()), self.talk);
        let sealed = match (&source.top, &source.only) {
            (CampaignPlace::Here(top), Some(name)) => one_file(top, name, out),
            (CampaignPlace::Here(top), None) => {
                let asked = Make { filter: filter.clone(), ..Make::new(top, out) };
                let (told, sealed) = local::scan(&asked, Arc::clone(&self.stopped), telling);
                telling = told;
                sealed
            }
            (CampaignPlace::Daemon { host, port, path }, _) => {
                let remote = self.remote((host, *port), kept)?;
                let gathered = remote::gather((&remote, path.clone()), filter.clone(), out, &self.stop, &mut telling);
                block_on(gathered)?
            }
        };
        Ok((sealed?, telling.omissions()))
    }

    /// The key with which the plan of a campaign is signed: that of its owner.
    fn owner(&self, signed: Signed, name: &str, kept: &CampaignKeys) -> Result<Identity, Error> {
        let name = PlainText::from(name);
        let signer = Owners::any(Unsigned::Refused).owner(&signed);
        let signer = signer.map_err(|refusal| refusal.fault(format_args!("the campaign '{name}' is not planned")))?;
        let keys = keys_kept::met_with(&settings::keys(&self.args.keys, self.layers)?, kept)?;
        let path = keys.identity.map_or_else(|| self.context.places().of_user("identity"), Ok)?;
        let identity = keys::load(&path)?;
        if identity.public() == signer {
            return Ok(identity);
        }
        let own = identity.public();
        let message = format_args!("the campaign '{name}' was signed by {signer}, and '{}' is {own}", path.display());
        let fault = Fault::new(FaultCode::Denied, Blame::Local, message);
        Err(fault.hint_in_words("its owner plans it: name the file of that key with --identity").into())
    }

    fn remote(&self, (host, port): (&str, u16), kept: &CampaignKeys) -> Result<Remote, Error> {
        let keys = keys_kept::met_with(&settings::keys(&self.args.keys, self.layers)?, kept)?;
        let talker = Talker::new(self.talk);
        let credentials = keys::credentials(&keys, &self.context.places(), talker, &self.asking)?;
        Ok(credentials.at(Reach::Address { host: host.to_owned(), port }))
    }
}

/// The manifest of one file of this host.
#[allow(clippy::disallowed_methods, reason = "only its length and its time are looked at, as a scan does")]
fn one_file(top: &Path, name: &RelPath, out: &Path) -> Result<Sealed, Fault> {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::MetadataExt;
    let path: PathBuf = beneath(top, name);
    let failed = |error: io::Error| Fault::from(Error::file("examine", &path)(error));
    let found = std::fs::symlink_metadata(&path).map_err(failed)?;
    let kind = if found.is_symlink() {
        ItemKind::Link { target: std::fs::read_link(&path).map_err(failed)?.as_os_str().as_bytes().to_vec() }
    } else {
        ItemKind::File { bytes: Some(found.len()) }
    };
    let mtime = Mtime::said(found.mtime(), u32::try_from(found.mtime_nsec()).unwrap_or_default());
    let item = Item { path: name.clone(), kind, mtime: Some(mtime), sums: Sums::default() };
    let sealed = || -> Result<Sealed, ManifestError> {
        let mut draft = Draft::begin(out)?;
        draft.add(&item)?;
        draft.seal(Lists::ALL, 0)
    };
    sealed().map_err(|error| fault_of_manifest(&error))
}

/// The manifest beside lists.
const LISTED: &str = "manifest";
/// The most lists that can be asked for.
const LISTS: u32 = 100_000;
