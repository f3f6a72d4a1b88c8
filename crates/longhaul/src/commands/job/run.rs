//! `job run`: the mover as a command.
//!
//! In: arguments. Out: shards that were moved, told as they begin and end, and the exit. The first
//! signal hands shards back in order.

use std::ffi::OsString;
use std::io::{BufWriter, Stdout};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::{Fault, FaultCode};
use longhaul_engine::Credentials;
use longhaul_jobs::queue::Granted;
use longhaul_jobs::{CampaignId, CampaignState, Rows, Store};
use longhaul_net::PublicKey;
use tokio::sync::watch;

use super::add::{flawed, parsed};
use super::keys_kept::met_with;
use super::{Figures, JobOutput, campaigns, figures, queue_failed, queue_place};
use crate::cli::job::JobRunArgs;
use crate::commands::{Context, block_on};
use crate::config::Places;
use crate::error::{Error, Flaw};
use crate::exit::Exit;
use crate::jobs::{
    CampaignKeys, CampaignSpec, Hooks, KeyRing, LocalGround, Mover, MoverEnd, MoverObserver, MoverOrders, Owners,
    QueuePlace, QueueStore, Refusal, ShardEnd, SharedQueue, Unsigned, signed,
};
use crate::keys;
use crate::output::{JobTelling, ShardToldEnd, Talker, exit_of_campaign};
use crate::settings::{self, Keys, Layers, Talk};
use crate::signals::{self, Asking, Hangup};
use crate::values;

/// Runs the mover.
pub(super) fn run(
    args: &JobRunArgs,
    layers: &Layers,
    talk: Talk,
    context: Context,
    telling: JobOutput,
) -> Result<Exit, Error> {
    let file = queue_place(&args.queue.queue, context)?;
    let given = settings::keys(&args.keys, layers)?;
    let mut orders = orders(args, owners(args, &given, (&file, context))?)?;
    let mut store = file.open()?;
    if let Some(name) = &args.campaign {
        orders.campaigns = campaigns(&mut store, name)?.iter().map(|found| found.id).collect();
    }
    let watched = unfinished(&mut store, &orders.campaigns, &orders.owners)?;
    let asking = Asking::default();
    let keys = Arc::new(RunKeys { given, places: context.places(), talker: Talker::new(talk), asking: asking.clone() });
    let keys = needs_keys(&keys, &orders, (&mut store, &watched))?.then_some(keys as Arc<dyn KeyRing>);
    let (stop, halt) = watch::channel(None);
    signals::watch(asking.clone(), Hangup::Stops, move |code| {
        stop.send_replace(Some(code));
    })
    .map_err(Error::file("watch the signals of", "this process"))?;
    let hooks = hooks(args, context)?;
    let told = Arc::new(MoverTold(Mutex::new(Some(telling))));
    let drains = orders.until == MoverEnd::Drained;
    let queue = SharedQueue::new(store);
    let mover = Mover::new((queue.clone(), file.shelf()), keys, orders, told.clone())?;
    let mover = mover.with_hooks(hooks).cataloguing(context.places().checksums());
    let ended = block_on(mover.run(halt))?;
    asking.end();
    let mut telling = told.take(talk);
    match ended {
        Err(fault) => telling.failed(&fault),
        Ok(Some(FaultCode::TimedOut)) => {
            let exit = exit_of_all(&queue, &watched)?;
            telling.exits(if exit.1 { exit.0 } else { Exit::Temporary });
        }
        Ok(Some(code)) => telling.exits(code.into()),
        Ok(None) if drains => telling.exits(exit_of_all(&queue, &watched)?.0),
        Ok(None) => {}
    }
    Ok(telling.end())
}

/// The hooks of this host.
fn hooks(args: &JobRunArgs, context: Context) -> Result<Hooks, Error> {
    let named = args.hooks.clone().or_else(|| context.variable("hooks").map(PathBuf::from));
    match (named, context.places().hooks()) {
        (Some(named), _) => Hooks::load(&named),
        (None, Some(path)) if path.exists() => Hooks::load(&path),
        _ => Ok(Hooks::default()),
    }
}

/// The owners whose campaigns are moved: this user, and those that are named. A queue in a file is
/// this user's alone, so that all that it has is moved, unless somebody is named.
fn owners(args: &JobRunArgs, given: &Keys, place: (&QueuePlace, Context)) -> Result<Owners, Error> {
    let named = |text: &OsString| {
        let key = text.to_str().ok_or(Flaw::NotUtf8).and_then(values::key);
        key.map_err(|flaw| flawed("owner", flaw))
    };
    let keys = args.owner.iter().map(named).collect::<Result<Vec<_>, _>>()?;
    owners_with((keys, &args.allow_unsigned), given, place)
}

/// The same with these keys, and these names of campaigns that nobody signed.
pub(super) fn owners_with(
    (mut keys, unsigned): (Vec<PublicKey>, &[String]),
    given: &Keys,
    (file, context): (&QueuePlace, Context),
) -> Result<Owners, Error> {
    if file.is_file() && keys.is_empty() {
        return Ok(Owners::any(Unsigned::Moved));
    }
    let path = given.identity.clone().map_or_else(|| context.places().of_user("identity"), Ok);
    keys.extend(path.ok().map(|path| keys::public(&path)).transpose()?.flatten());
    Ok(Owners::these(keys, Unsigned::Named(unsigned.iter().cloned().collect())))
}

fn orders(args: &JobRunArgs, owners: Owners) -> Result<MoverOrders, Error> {
    let movers = parsed("movers", &args.movers, |text| {
        let number = text.parse().ok().filter(|number| *number <= MOVERS_OF_RUN).and_then(NonZero::new);
        number.ok_or_else(|| Flaw::Number { given: text.to_owned(), least: 1, most: MOVERS_OF_RUN })
    })?;
    Ok(MoverOrders {
        campaigns: Vec::new(),
        names: Vec::new(),
        until: if args.drain { MoverEnd::Drained } else { MoverEnd::Never },
        time_max: parsed("max-time", &args.max_time, values::retry_for)?,
        movers: movers.unwrap_or(NonZero::<u32>::MIN),
        memory: parsed("memory", &args.memory, values::size)?,
        ground: LocalGround::Any,
        owners,
    })
}

/// The campaigns that are not over: those whose end the exit tells of. Those that only other movers
/// move are not among them, unless one of them was named.
fn unfinished(store: &mut QueueStore, only: &[CampaignId], owners: &Owners) -> Result<Vec<CampaignId>, Error> {
    let all = store.transact(|rows| {
        let ids = match only {
            [] => rows.campaign_ids()?,
            only => only.to_vec(),
        };
        let read = |rows: &mut dyn Rows, id| match rows.campaign(id) {
            // A row that makes no sense stops no other.
            Err(error) if error.is_of_rows() => Ok(None),
            other => other,
        };
        let mut counted = Vec::new();
        for id in ids {
            let Some(campaign) = read(rows, id)? else { continue };
            let of_others = |refusal: Refusal| refusal.is_of_others();
            let is_running = campaign.state == CampaignState::Running;
            let counts = !only.is_empty()
                || is_running && !owners.admit(&campaign.name, signed(rows, &campaign)?).is_err_and(of_others);
            counted.extend(counts.then_some(id));
        }
        Ok(counted)
    });
    all.map_err(queue_failed)
}

/// Whether any transfer needs a key: a mover that waits for more needs it too. Keys of the
/// campaigns that are watched and moved are looked for at once, so that nothing is claimed where
/// none of the campaigns can be moved for a key that is missing. Where some can, the others fail by
/// themselves.
fn needs_keys(
    keys: &RunKeys,
    orders: &MoverOrders,
    (store, watched): (&mut QueueStore, &[CampaignId]),
) -> Result<bool, Error> {
    let (mut needs, mut moves_some, mut keyless) = (orders.until == MoverEnd::Never, false, None);
    for id in watched {
        let Figures { campaign, signed, .. } = figures(store, *id)?;
        // Whoever cannot have it moved names no file of this host either.
        if orders.owners.admit(&campaign.name, signed).is_err() {
            continue;
        }
        // A spec that cannot be read holds its shards, and no others.
        let Ok(spec) = CampaignSpec::decode(&campaign.spec) else { continue };
        let loaded = if spec.needs_key() { keys.load(&spec.keys).map(drop) } else { Ok(()) };
        needs |= spec.needs_key();
        moves_some |= loaded.is_ok();
        keyless = keyless.or(loaded.err());
    }
    match keyless {
        Some(error) if !moves_some => Err(error),
        _ => Ok(needs),
    }
}

/// The keys of a run: what it was given itself counts more than what a campaign keeps.
pub(super) struct RunKeys {
    /// The keys that it was given.
    pub(super) given: Keys,
    /// Where keys lie that nobody named.
    pub(super) places: Places,
    /// Whom a daemon's key is told to.
    pub(super) talker: Talker,
    /// Whether somebody is asked about it now.
    pub(super) asking: Asking,
}

impl RunKeys {
    fn load(&self, campaign: &CampaignKeys) -> Result<Credentials, Error> {
        keys::credentials(&met_with(&self.given, campaign)?, &self.places, self.talker, &self.asking)
    }
}

impl KeyRing for RunKeys {
    fn credentials(&self, campaign: &CampaignKeys) -> Result<Credentials, Fault> {
        self.load(campaign).map_err(Fault::from)
    }
}

/// The exit of these campaigns together, and whether they are all over.
fn exit_of_all(queue: &SharedQueue, watched: &[CampaignId]) -> Result<(Exit, bool), Error> {
    let (mut store, mut exit, mut all_over) = (queue.store(), Exit::Complete, true);
    for id in watched {
        let Figures { campaign, left, .. } = figures(&mut store, *id)?;
        all_over &= matches!(campaign.state, CampaignState::Done | CampaignState::Cancelled);
        exit = exit.worse(exit_of_campaign(&campaign, &left));
    }
    Ok((exit, all_over))
}

/// Tells what the mover does.
struct MoverTold(Mutex<Option<JobOutput>>);

impl MoverTold {
    fn telling(&self) -> MutexGuard<'_, Option<JobOutput>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The telling, for the end. Whoever tells after that is not heard.
    fn take(&self, talk: Talk) -> JobTelling<BufWriter<Stdout>> {
        self.telling().take().unwrap_or_else(|| JobTelling::new(BufWriter::new(std::io::stdout()), talk))
    }
}

impl MoverObserver for MoverTold {
    fn shard_begins(&self, granted: &Granted) {
        if let Some(telling) = &mut *self.telling() {
            telling.shard(granted, None);
        }
    }

    fn shard_ends(&self, granted: &Granted, end: &ShardEnd) {
        if let Some(telling) = &mut *self.telling() {
            let ShardEnd { state, files_failed, bytes_moved, fence, unclaimed } = *end;
            let end = ShardToldEnd { state, files_failed, bytes_moved, fence, unclaimed };
            telling.shard(granted, Some(&end));
        }
    }

    fn trouble(&self, fault: &Fault) {
        if let Some(telling) = &mut *self.telling() {
            telling.trouble(fault);
        }
    }
}

/// Shards that one process may move at a time.
const MOVERS_OF_RUN: u32 = 64;
