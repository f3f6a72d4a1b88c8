//! The mover: claims shards, moves each by one transfer of the engine, and settles them.
//!
//! `session` moves one shard, `faulted` says whose a fault of it is, `lease` keeps its claim
//! meanwhile, `claim` shows that to the destination, `ground` bounds the places of this host that
//! it may name, `tally` counts its files as the engine tells of them, `source` and `unchanged` look
//! whether sources are still what the manifest says, `commit` has a campaign's dataset appear,
//! `digests` keeps those of what was delivered for the next verification, `aside` knows the links
//! and campaigns that this host cannot serve now, `admitting` passes campaigns over whose owners it
//! does not trust, `served` says at its end what it left for that, `telling` tells hooks,
//! `discarding` removes what cancelled campaigns have staged on this host. In: a queue, manifests,
//! and orders how long to go on. Out: reports to the queue, and events to a [`MoverObserver`]. Any
//! mover may lead: the one that holds the leader's row schedules. Must not know the command line.

mod admitting;
mod aside;
mod claim;
mod commit;
mod digests;
mod discarding;
mod faulted;
mod ground;
mod lease;
mod served;
mod session;
mod source;
mod tally;
mod telling;
mod unchanged;

use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::{Blame, ByteCount, Fault, FaultCode};
use longhaul_engine::Credentials;
use longhaul_jobs::queue::{Ask, Granted, claim_among, lead, resign, schedule_among};
use longhaul_jobs::{CampaignId, CampaignState, ClaimId, JobsError, Link, LinkId, MoverId, Rows, ShardState};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinHandle, JoinSet};

use self::admitting::{AdmittedBut, Admitting};
use self::aside::HostAside;
use self::discarding::{DiscardPhase, finish_discarding};
pub use self::ground::LocalGround;
use self::telling::{FINISHING_MAX, HookPhase};
use super::families::ids_named;
use super::faults::fault_of_jobs;
use super::hooks::Hooks;
use super::owners::Owners;
use super::queue::{SharedQueue, is_drained};
use super::shelf::Shelf;
use super::spec::{CampaignKeys, HERE};

/// The orders of a mover.
#[derive(Clone, Debug)]
pub struct MoverOrders {
    /// Only the links of these campaigns are served. Empty: all.
    pub campaigns: Vec<CampaignId>,
    /// Only the links of campaigns with these names, or of these families, are served. Empty:
    /// all.
    pub names: Vec<String>,
    /// When it ends by itself.
    pub until: MoverEnd,
    /// The time for which it begins shards; those that run then are handed back. `None`: any.
    pub time_max: Option<Duration>,
    /// Shards that it moves at a time.
    pub movers: NonZero<u32>,
    /// Buffers of each transfer. `None`: as the campaign says.
    pub memory: Option<ByteCount>,
    /// The places of this host that campaigns may name.
    pub ground: LocalGround,
    /// The owners whose campaigns it moves.
    pub owners: Owners,
}

/// When a mover ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoverEnd {
    /// It does not: it waits for more.
    Never,
    /// Once nothing is left that could be moved without a user.
    Drained,
}

/// Hears what a mover does. It must return quickly.
pub trait MoverObserver: Send + Sync {
    /// A shard was claimed.
    fn shard_begins(&self, granted: &Granted);
    /// A shard was settled or handed back.
    fn shard_ends(&self, granted: &Granted, end: &ShardEnd);
    /// Something failed that concerns no single file.
    fn trouble(&self, fault: &Fault);
}

/// How a mover ended with a shard.
#[derive(Clone, Debug)]
pub struct ShardEnd {
    /// The state that it has now. `None`: another mover has it.
    pub state: Option<ShardState>,
    /// Files that failed in this claim.
    pub files_failed: u64,
    /// Bytes that became durable in this claim.
    pub bytes_moved: u64,
    /// The fence of its claim at the end.
    pub fence: u64,
    /// No claim was shown: the destination keeps none.
    pub unclaimed: bool,
}

/// Finds the key to show to the daemons of a campaign, and whom to trust there.
pub trait KeyRing: Send + Sync {
    /// The key of a campaign.
    ///
    /// # Errors
    /// The fault of a file that cannot be read, or is open to others.
    fn credentials(&self, campaign: &CampaignKeys) -> Result<Credentials, Fault>;
}

/// A mover.
pub struct Mover {
    queue: SharedQueue,
    shelf: Shelf,
    keys: Option<Arc<dyn KeyRing>>,
    orders: MoverOrders,
    observer: Arc<dyn MoverObserver>,
    id: MoverId,
    aside: HostAside,
    admitting: Arc<Admitting>,
    hooks: Hooks,
    /// The catalogue of checksums of files that come to this host. `None`: there is none.
    catalogue: Option<PathBuf>,
    /// Wakes whoever waits for a shard, as one was settled.
    settled: Notify,
    /// Wakes whoever removes what is staged, as a shard of a cancelled campaign ended.
    cancelled: Notify,
}

/// The reason why a mover stops. `None`: none yet.
pub type Halt = watch::Receiver<Option<FaultCode>>;

impl Mover {
    /// A mover of a queue whose manifests lie on a shelf. Without keys it serves what lies within
    /// this host.
    ///
    /// # Errors
    /// The fault of a system without random numbers.
    pub fn new(
        (queue, shelf): (SharedQueue, Shelf),
        keys: Option<Arc<dyn KeyRing>>,
        orders: MoverOrders,
        observer: Arc<dyn MoverObserver>,
    ) -> Result<Mover, Fault> {
        let id = MoverId(random()?);
        let aside = HostAside::new((orders.until == MoverEnd::Drained).then_some(OWN_FAULTS_MAX));
        let admitting = Arc::new(Admitting::new(orders.owners.clone()));
        let (hooks, catalogue, settled, cancelled) = (Hooks::default(), None, Notify::new(), Notify::new());
        Ok(Mover { queue, shelf, keys, orders, observer, id, aside, admitting, hooks, catalogue, settled, cancelled })
    }

    /// The same, which keeps checksums of files that come to this host in this catalogue, where
    /// their file systems do not keep them.
    #[must_use]
    pub fn cataloguing(self, catalogue: Option<PathBuf>) -> Mover {
        Mover { catalogue, ..self }
    }

    /// The same, with hooks of this host.
    #[must_use]
    pub fn with_hooks(self, hooks: Hooks) -> Mover {
        Mover { hooks, ..self }
    }

    /// Moves shards until its orders or `halt` end it. Gives the code of what halted it, if it was
    /// not its orders; shards that it held then are handed back.
    ///
    /// # Errors
    /// The fault of a queue that does not answer, and the one for which this host moved nothing of
    /// a link or a campaign that others could move.
    pub async fn run(self, halt: Halt) -> Result<Option<FaultCode>, Fault> {
        let (movers, time_max) = (self.orders.movers.get(), self.orders.time_max);
        let mover = Arc::new(self);
        let (stopper, stopping) = watch::channel(None);
        let (phase, phases) = watch::channel(HookPhase::Working);
        let telling = (!mover.hooks.is_empty()).then(|| tokio::spawn(Arc::clone(&mover).tell_hooks(phases)));
        let (discards, discard_phase) = watch::channel(DiscardPhase::Working);
        let discarding = tokio::spawn(Arc::clone(&mover).discard_cancelled(discard_phase));
        let mut working = JoinSet::new();
        for _ in 0..movers {
            working.spawn(Arc::clone(&mover).work(stopping.clone()));
        }
        let deadline = time_max.map(|time| tokio::time::Instant::now() + time);
        let (mut halt, mut ended) = (halt, Ok(None));
        loop {
            tokio::select! {
                code = halted(&mut halt), if stopper.borrow().is_none() => {
                    stopper.send_replace(Some(code));
                    ended = ended.map(|_| Some(code));
                }
                () = until(deadline), if stopper.borrow().is_none() => {
                    stopper.send_replace(Some(FaultCode::TimedOut));
                    ended = ended.map(|_| Some(FaultCode::TimedOut));
                }
                () = tokio::time::sleep(SCHEDULE_EVERY) => mover.schedule().await,
                done = working.join_next() => match done {
                    None => break,
                    Some(Ok(Ok(()))) => {}
                    Some(Ok(Err(fault))) => {
                        stopper.send_replace(Some(FaultCode::Terminated));
                        ended = Err(fault);
                    }
                    Some(Err(error)) => {
                        stopper.send_replace(Some(FaultCode::Terminated));
                        ended = Err(Fault::new(FaultCode::Internal, Blame::Bug, error));
                    }
                },
            }
        }
        // The campaigns whose last shard was settled are done now, and not at somebody's next turn.
        mover.schedule().await;
        if matches!(ended, Ok(None)) {
            ended = Ok(finish_discarding((discarding, &discards), deadline, &mut halt).await);
        }
        if let Some(telling) = telling {
            // Whoever halts it waits for its end; whoever limits its time can spare some seconds.
            let last = match ended {
                Ok(Some(code)) if code != FaultCode::TimedOut => HookPhase::Stopped,
                _ => HookPhase::Finishing,
            };
            finish_telling(telling, (&phase, last), &mut halt).await;
        }
        let who = mover.id;
        if let Err(error) = mover.queue.transact(move |rows| resign(rows, who)).await {
            tracing::debug!(%error, "the next leader waits until this one's lease has passed");
        }
        match ended {
            Ok(None) => mover.served_all().await.map(|()| None),
            ended => ended,
        }
    }

    /// One of the movers at a time.
    async fn work(self: Arc<Self>, mut stopping: Halt) -> Result<(), Fault> {
        let mut failing: Option<Instant> = None;
        while stopping.borrow().is_none() {
            let asked = tokio::time::Instant::now();
            match self.claim().await {
                Ok(Claimed::Shard(granted)) => {
                    failing = None;
                    self.observer.shard_begins(&granted);
                    let end = session::move_shard(&self, &granted, asked, stopping.clone()).await;
                    self.observer.shard_ends(&granted, &end);
                    self.settled.notify_waiters();
                    if end.state == Some(ShardState::Cancelled) {
                        self.cancelled.notify_one();
                    }
                }
                Ok(Claimed::Drained) if self.orders.until == MoverEnd::Drained => return Ok(()),
                Ok(Claimed::Drained | Claimed::Waits) => {
                    failing = None;
                    self.pause(CLAIM_EVERY, &mut stopping).await;
                }
                Err(error) => {
                    let fault = fault_of_jobs(&error);
                    if failing.get_or_insert_with(Instant::now).elapsed() > STORE_PATIENCE {
                        return Err(fault);
                    }
                    self.observer.trouble(&fault);
                    self.pause(STORE_PAUSE, &mut stopping).await;
                }
            }
        }
        Ok(())
    }

    /// Waits for a while, or until something was settled, or until it is to stop.
    async fn pause(&self, time: Duration, stopping: &mut Halt) {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.settled.notified() => {}
            _ = halted(stopping) => {}
        }
    }

    /// Claims a shard. If none is ready, it first schedules, should it lead. One that ends with its
    /// campaign claims nothing of another one once that is over. Links and campaigns that this host
    /// cannot serve now are left to others.
    async fn claim(&self) -> Result<Claimed, JobsError> {
        let (who, campaigns, claim_id) = (self.id, self.orders.campaigns.clone(), ClaimId(random_id()?));
        let start = u64::from(claim_id.0[0]);
        let served = self.served();
        let ends = !campaigns.is_empty() && self.orders.until == MoverEnd::Drained;
        let (aside, names) = (self.aside.now(Instant::now()), self.orders.names.clone());
        let admitting = Arc::clone(&self.admitting);
        let claimed = self
            .queue
            .transact(move |rows| {
                let mut links = links_of(rows, (&campaigns, &names), served)?;
                links.retain(|link| !aside.links.given_up.contains(link));
                let (waiting, given_up) = (&aside.campaigns.waiting, &aside.campaigns.given_up);
                let among = AdmittedBut { admitting: &admitting, not: waiting };
                let tried = AdmittedBut { admitting: &admitting, not: given_up };
                let count = links.len().max(1) as u64;
                links.rotate_left((start % count) as usize);
                if ends && is_drained(rows, &campaigns, &links, &tried)? {
                    return Ok(Claimed::Drained);
                }
                let asked: Vec<_> = links.iter().copied().filter(|link| !aside.links.waiting.contains(link)).collect();
                let ask = Ask { mover: who, links: &asked, id: claim_id };
                if let Some(granted) = claim_among(rows, &ask, &among)? {
                    return Ok(Claimed::Shard(Box::new(granted)));
                }
                if let Some(term) = lead(rows, who)? {
                    schedule_among(rows, who, term, &among)?;
                }
                match claim_among(rows, &ask, &among)? {
                    Some(granted) => Ok(Claimed::Shard(Box::new(granted))),
                    None if is_drained(rows, &campaigns, &links, &tried)? => Ok(Claimed::Drained),
                    None => Ok(Claimed::Waits),
                }
            })
            .await;
        self.admitting.untold().iter().for_each(|fault| self.observer.trouble(fault));
        claimed
    }

    /// The sites that it can move between.
    fn served(&self) -> SitesServed {
        self.keys.as_ref().map_or(SitesServed::ThisHost, |_| SitesServed::All)
    }

    /// A leader's turn, if it leads. A store that does not answer is told of by those who claim.
    async fn schedule(&self) {
        let who = self.id;
        let (admitting, aside) = (Arc::clone(&self.admitting), self.aside.now(Instant::now()));
        let turn = self.queue.transact(move |rows| {
            let Some(term) = lead(rows, who)? else { return Ok(()) };
            let among = AdmittedBut { admitting: &admitting, not: &aside.campaigns.waiting };
            schedule_among(rows, who, term, &among).map(drop)
        });
        if let Err(error) = turn.await {
            tracing::debug!(%error, "the leader's turn failed");
        }
        self.forget_ended().await;
    }

    /// Forgets the faults of campaigns that do not run any more: a mover may run for ever.
    async fn forget_ended(&self) {
        let known = self.aside.campaigns_known();
        if known.is_empty() {
            return;
        }
        let ended = self.queue.transact(move |rows| {
            let mut ended = Vec::new();
            for &id in &known {
                let runs = match rows.campaign(id) {
                    Err(error) if error.is_of_rows() => false,
                    found => found?.is_some_and(|campaign| campaign.state == CampaignState::Running),
                };
                ended.extend((!runs).then_some(id));
            }
            Ok(ended)
        });
        // They are asked for again at the next turn if the store does not answer.
        self.aside.forget(&ended.await.unwrap_or_default());
    }
}

/// The answer to a mover that wants a shard.
enum Claimed {
    Shard(Box<Granted>),
    /// Nothing is ready, and something will be.
    Waits,
    /// Nothing is left that could be moved without a user.
    Drained,
}

/// The sites that a mover can move between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SitesServed {
    /// All: it has a key.
    All,
    /// Directories of this host.
    ThisHost,
}

/// The links that a mover serves: those of some campaigns, or of some by their names, or all. One
/// without a key serves what lies within this host.
fn links_of(
    rows: &mut dyn Rows,
    (campaigns, names): (&[CampaignId], &[String]),
    served: SitesServed,
) -> Result<Vec<LinkId>, JobsError> {
    let here: Vec<_> = rows.sites()?.into_iter().filter(|site| site.name == HERE).map(|site| site.id).collect();
    let is_served = |link: &Link| served == SitesServed::All || here.contains(&link.from) && here.contains(&link.to);
    let mut links: Vec<LinkId> = rows.links()?.iter().filter(|link| is_served(link)).map(|link| link.id).collect();
    if campaigns.is_empty() && names.is_empty() {
        return Ok(links);
    }
    // A row that makes no sense stops no other.
    let (named, mut sums) = (ids_named(rows, names)?, Vec::new());
    for id in rows.campaign_ids()? {
        let is_meant = if campaigns.is_empty() { named.contains(&id) } else { campaigns.contains(&id) };
        if is_meant {
            sums.extend(rows.shard_sums(id)?);
        }
    }
    links.retain(|link| sums.iter().any(|sum| sum.link == *link));
    Ok(links)
}

/// Waits until something halts.
async fn halted(halt: &mut Halt) -> FaultCode {
    match halt.wait_for(Option::is_some).await.map(|code| *code) {
        Ok(Some(code)) => code,
        _ => std::future::pending().await,
    }
}

/// Lets hooks be told of what is due, unless the mover halts. None is begun behind a while, and
/// what is under way then has its own time.
async fn finish_telling(
    mut telling: JoinHandle<()>,
    (phase, last): (&watch::Sender<HookPhase>, HookPhase),
    halt: &mut Halt,
) {
    phase.send_replace(last);
    let told = tokio::select! {
        told = &mut telling => told,
        _ = halted(halt), if last == HookPhase::Finishing => stop_telling(&mut telling, phase).await,
        () = tokio::time::sleep(FINISHING_MAX) => {
            if last == HookPhase::Finishing {
                phase.send_replace(HookPhase::Ending);
            }
            tokio::select! {
                told = &mut telling => told,
                _ = halted(halt), if last == HookPhase::Finishing => stop_telling(&mut telling, phase).await,
            }
        }
    };
    if let Err(error) = told {
        tracing::debug!(%error, "hooks are told by the next mover");
    }
}

async fn stop_telling(telling: &mut JoinHandle<()>, phase: &watch::Sender<HookPhase>) -> Result<(), JoinError> {
    phase.send_replace(HookPhase::Stopped);
    telling.await
}

async fn until(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Bytes that nobody can foretell.
///
/// # Errors
/// The fault of a system that has none.
pub fn random<const N: usize>() -> Result<[u8; N], Fault> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| Fault::new(FaultCode::Internal, Blame::Local, format_args!("no random numbers: {error}")))?;
    Ok(bytes)
}

fn random_id<const N: usize>() -> Result<[u8; N], JobsError> {
    random().map_err(JobsError::store)
}

/// Faults of its own host in a row behind which a mover that ends by itself gives a link or a
/// campaign up, after some two minutes.
const OWN_FAULTS_MAX: u32 = 5;
/// A leader's turn comes so often.
const SCHEDULE_EVERY: Duration = Duration::from_secs(2);
/// A mover without a shard asks again so often.
const CLAIM_EVERY: Duration = Duration::from_secs(1);
/// The pause behind a failure of the store, and the time after which a mover gives up on it.
const STORE_PAUSE: Duration = Duration::from_secs(5);
const STORE_PATIENCE: Duration = Duration::from_secs(60);
