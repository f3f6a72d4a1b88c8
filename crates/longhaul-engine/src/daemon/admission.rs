//! Admission to the daemon: a request is authorised, its place and memory are reserved, its side is
//! opened.
//!
//! In: a request and the client's key. Out: an [`Admitted`] that holds all that the conversation
//! needs, or the refusal. Says nothing to the client itself, so that another door may ask the same.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_core::limits::{CHUNK_BYTES_USER_MIN, CONGESTION_NAME_BYTES_MAX, LANES_MAX};
use longhaul_core::{Blame, ByteCount, ChunkSize, Fault, FaultCode, IfExists, Rights, Role, Transport, hint};
use longhaul_disk::EngineKind;
use longhaul_net::{Congestion, Protection, PublicKey, TransportFacts};
use longhaul_proto::Message;
use longhaul_proto::wire::message::{Far, Flow, Request, Transfer};

use super::access::{need, need_protection, need_share};
use super::audit::SessionAudit;
use super::bounds::{self, Watch};
use super::buffers::{Buffers, Need};
use super::deputy::{DaemonLink, LinkedSession};
use super::grants::{self, LentRights};
use super::listing::{ListedNames, Places};
use super::live::{MayModify, Needs};
use super::memory::Measured;
use super::orders::{AwaitedEnd, FOLLOWER_BYTES, answers};
use super::rates::RateClaim;
use super::reading::{self, Reading};
use super::removal::{self, Removal};
use super::request::hear_rest;
use super::root_places::RootPlace;
use super::runs::RunSeat;
use super::shares::{Full, Share};
use super::side::{self, Side};
use super::{ClientConfig, Daemon, RootConfig};
use crate::api::StopTrigger;
use crate::budget::{self, MemoryPlan, SessionBuffers};
use crate::journals::Principal;
use crate::lanes::worker::pacer;
use crate::random::nonce;
use crate::session::allowed::Allowed;
use crate::session::channel::ReadHalf;
use crate::session::dataset::LIST_BYTES;
use crate::session::handshake::{self, Shown};
use crate::session::opened::Destination;
use crate::workers::blocking;

/// A conversation that is allowed and has what it needs.
pub(super) enum Admitted {
    /// Names to tell.
    Listing(Box<ListedNames>),
    /// Names to look at and to move away.
    Removal(Box<Removal>),
    /// Files to read where they lie.
    Reading(Box<Reading>),
    /// A session to begin.
    Session(Box<Admission>),
    /// The end of an order of the client's to tell.
    OrderEnd(AwaitedEnd),
    /// An answer behind which nothing goes on.
    Answer(Box<Message>),
}

/// A session that is allowed and has what it needs.
pub(super) struct Admission {
    pub(super) client: String,
    pub(super) claim: RateClaim,
    pub(super) description: String,
    pub(super) transfer: Transfer,
    pub(super) side: Side,
    pub(super) measured: Option<Measured>,
    pub(super) lanes: u32,
    pub(super) lanes_max: u32,
    pub(super) chunk_max: ChunkSize,
    pub(super) machinery: SessionBuffers,
    /// Bytes of all of its buffers.
    pub(super) memory: ByteCount,
    pub(super) holdings: Holdings,
}

/// The things that a session has of the daemon. Fields are given back in the order of their
/// declaration: first its place among the sessions, then its memory, and last its place among the
/// runs, as a session that waits for that may begin at once.
pub(super) struct Holdings {
    /// Its records.
    pub(super) audit: Arc<SessionAudit>,
    /// The key of the client whose rights it has.
    pub(super) client: PublicKey,
    /// The grant by which the other side has them. `None`: it is that client.
    pub(super) lent: Option<LentRights>,
    /// The entries that may come to its destination, by that grant.
    pub(super) allowed: Allowed,
    /// It counts as one of the sessions for as long as it is held.
    _session: Share,
    /// In a deputy: what it has of the daemon, which is told before another session of the run
    /// begins.
    pub(super) linked: Option<LinkedSession>,
    _watch: Option<Watch>,
    pub(super) buffers: Buffers,
    pub(super) place: RunSeat,
}

/// Answers whether `request` of `client` is allowed, and takes what it needs. The other side has
/// proved a key, at an address. A transfer shows this around its hello.
pub(super) async fn admit(
    daemon: &Arc<Daemon>,
    (peer, reader): ((PublicKey, SocketAddr), &mut ReadHalf),
    client: &ClientConfig,
    (request, shown): (Request, Shown),
) -> Result<Admitted, Fault> {
    let places = || Places::take(&daemon.listings, &daemon.memory, client.key);
    match request {
        // A few bytes, which take no place of a listing.
        Request::Roots if shown.asks_skills || shown.lends => Ok(Admitted::Answer(Box::new(answers::skills(daemon)))),
        Request::Roots => {
            // An older client could not read the list.
            let known = Rights { read: true, create: true, modify: true, delete: shown.removes };
            Ok(Admitted::Listing(Box::new(ListedNames::roots(daemon, (client, known), places()?))))
        }
        Request::List { root, path } if shown.removes => {
            let removal = removal::admit(daemon, peer.1, client, (&root, path)).await?;
            Ok(Admitted::Removal(Box::new(removal)))
        }
        Request::List { root, path } if shown.reads => {
            let reading = reading::admit(daemon, peer.1, client, (&root, path)).await?;
            Ok(Admitted::Reading(Box::new(reading)))
        }
        Request::List { root, path } => {
            let (config, rights) = daemon.root(client, &root)?;
            need(rights.read, "read", config)?;
            let (tree, _, path) = daemon.spot(&root, path).await?;
            if shown.locates {
                let located = ListedNames::located(tree, path, places()?).await?;
                return Ok(Admitted::Listing(Box::new(located)));
            }
            ListedNames::beneath(tree, path, places()?).await.map(|names| Admitted::Listing(Box::new(names)))
        }
        Request::Partials { root, path } => {
            let (config, rights) = daemon.root(client, &root)?;
            // They are its own: who may only push sees them too.
            need(rights.read || rights.create, "read", config)?;
            let Principal { principal, .. } = daemon.principal(client);
            let (set, store, path) = daemon.spot(&root, path).await?;
            ListedNames::partials((set, store), principal, path, places()?)
                .await
                .map(|names| Admitted::Listing(Box::new(names)))
        }
        Request::Transfer(transfer) => {
            let (audit, lends) = (daemon.live.audit.session(client, peer), shown.claim.filter(|_| shown.lends));
            lends.map_or(Ok(()), |_| answers::need_lending(daemon))?;
            let prepared = prepare((daemon, audit), client, (*transfer, shown), reader).await?;
            match lends {
                Some(claim) => Ok(Admitted::Answer(Box::new(answers::kept(&claim, (&prepared, peer.1))?))),
                None => Ok(Admitted::Session(Box::new(prepared))),
            }
        }
        Request::Order { id } => daemon.runs.orders().ends().find(client.key, id).map(Admitted::OrderEnd),
    }
}

/// Admits a transfer: it is authorised, its places are reserved, its side is opened, and its
/// buffers are mapped, in this order.
pub(super) async fn prepare(
    (daemon, audit): (&Arc<Daemon>, Arc<SessionAudit>),
    client: &ClientConfig,
    (mut transfer, shown): (Transfer, Shown),
    reader: &mut ReadHalf,
) -> Result<Admission, Fault> {
    let followed = if shown.order.is_some() { FOLLOWER_BYTES as u64 } else { 0 };
    // Before anybody makes room for it, or an earlier session of its run ends for it.
    authorise(daemon, client, &transfer)?;
    transfer.flow.udp_beside_tcp &= has_udp(daemon, &transfer);
    daemon.live.drain.admit()?;
    let measured = daemon.measured(client, &transfer)?;
    // Before the limits: the earlier session of this run may hold what they would refuse.
    let run = if transfer.run == [0; 16] { nonce()? } else { transfer.run };
    let mut place = daemon.runs.take_over(client.key, run).await?;
    if let (Far::Destination { root, path, .. }, Some(name)) = (&transfer.far, &shown.dataset) {
        place.stages((root.to_string(), path.clone(), name.clone()))?;
    }
    let session = session_place(daemon, client.key).await?;
    let stop = place.stop().or(daemon.stop.clone());
    let mut rest = hear_rest(reader, (&mut transfer, shown.list), (&daemon.memory, client.key), stop).await?;
    let allowed = grants::allowed(&mut rest, (transfer.role, shown.list))?;
    // The roots that came since need rights too.
    need_allowed(daemon, client, &transfer)?;
    let linked = match &daemon.live.link {
        Some(link) => Some(begin(link, &transfer, needs(daemon, client, &transfer)?, place.trigger()).await?),
        None => None,
    };
    let root_places = root_places(daemon, client, &transfer)?;
    let (mut side, description) = match measured {
        Some(measured) => measured.side(&transfer),
        None => side::open(daemon, client, &transfer, (rest.names, shown), &audit).await?,
    };
    let claim = claim(daemon, client, &transfer)?;
    let roots = roots_of(daemon, client, &transfer)?;
    let _watch = bounds::within(daemon, client, roots.first().copied(), &mut side, place.trigger());
    let all = memory_of(daemon, client, &roots);
    let chunk_max = side.chunk_max(&transfer).min(budget::largest_chunk(all, transfer.chunk));
    let mut needed = needed(all, &transfer, &side, measured, chunk_max)?;
    needed.reserve += followed;
    let memory = needed.memory;
    if let Some(link) = &daemon.live.link {
        link.reserve(needed.first()).await;
    }
    let buffers = buffers(daemon, client.key, (needed, root_places)).await?;
    if let Some(claim) = rest.claim {
        buffers.absorb(claim);
    }
    let plan = memory_plan(daemon, &transfer, measured, (memory, chunk_max))?;
    let plan = MemoryPlan { lanes: plan.lanes.min(bounds::lanes_max(client, &roots)), ..plan };
    let lanes_max = plan.lanes;
    let machinery = mapped(&transfer, measured, plan, &buffers).await?;
    let lanes = lanes_max.min(transfer.lanes);
    let (lent, of, client) = (None, client.key, client.name.clone());
    let holdings = Holdings { audit, client: of, lent, allowed, _session: session, linked, _watch, buffers, place };
    Ok(Admission {
        client,
        claim,
        description,
        transfer,
        side,
        measured,
        lanes,
        lanes_max,
        chunk_max,
        machinery,
        memory,
        holdings,
    })
}

impl Daemon {
    /// The principal whose partials a client may continue: its key, or the user whose account it
    /// is.
    fn principal(&self, client: &ClientConfig) -> Principal {
        match self.roots.account {
            Some(_) => Principal::local(),
            None => Principal::client(&client.key, &client.name),
        }
    }
}

/// Checks that this build understands a transfer, that the client may ask for it, and that the
/// congestion control exists that it names.
pub(super) fn authorise(daemon: &Daemon, client: &ClientConfig, transfer: &Transfer) -> Result<(), Fault> {
    if transfer.set != 0
        || !transfer.initiator
        || transfer.lanes == 0
        || transfer.flow.congestion.len() > CONGESTION_NAME_BYTES_MAX
        || transfer.flow.transport == Transport::Ssh && daemon.roots.account.is_none()
        || !facts(transfer).protections.contains(&handshake::from_wire(transfer.protect))
        || transfer.chunk.bytes() < CHUNK_BYTES_USER_MIN
        || transfer.chunk_max < transfer.chunk
    {
        let why = "this build does not know how to do what is asked";
        return Err(Fault::new(FaultCode::Unsupported, Blame::Local, why));
    }
    if transfer.flow.transport == Transport::Quic && daemon.live.link.is_some() {
        let why = "this key is served as a user of the daemon's host, over TCP and UDP alone";
        return Err(Fault::new(FaultCode::Unsupported, Blame::Local, why).hint(hint::Network::UseTcp));
    }
    need_share(transfer.flow.share, client)?;
    if transfer.flow.transport == Transport::Udp && daemon.registry.bars_udp() {
        let why = "lanes over UDP cannot have sockets at this daemon's port: its log says why";
        return Err(Fault::new(FaultCode::Unsupported, Blame::Local, why).hint(hint::Network::UseTcp));
    }
    need_allowed(daemon, client, transfer)?;
    if transfer.role == Role::Receiver {
        need_congestion(&transfer.flow)?;
    }
    Ok(())
}

/// Whether lanes of a transfer may run over UDP beside others over TCP: where this daemon has such
/// lanes, which are always encrypted.
fn has_udp(daemon: &Daemon, transfer: &Transfer) -> bool {
    let begins_well = matches!(transfer.flow.transport, Transport::Tcp | Transport::Ssh | Transport::Udp);
    let is_private = handshake::from_wire(transfer.protect) == Protection::Private;
    begins_well && is_private && !daemon.registry.bars_udp()
}

/// The rights that a transfer begins with.
fn needs(daemon: &Daemon, client: &ClientConfig, transfer: &Transfer) -> Result<Needs, Fault> {
    let may_modify = match &transfer.far {
        Far::Destination { root, .. } if daemon.root(client, root)?.1.modify => MayModify::Yes,
        _ => MayModify::No,
    };
    Ok(Needs::of(transfer, may_modify).of_user(client.uid()))
}

/// Has the daemon let a session of a deputy begin.
async fn begin(
    link: &Arc<DaemonLink>,
    transfer: &Transfer,
    needs: Needs,
    trigger: StopTrigger,
) -> Result<LinkedSession, Fault> {
    let protection = handshake::from_wire(transfer.protect);
    let receives = transfer.role == Role::Sender;
    let (asked, lanes) = ((side::described(transfer), receives, needs), (protection, transfer.flow.transport));
    link.begin(asked, lanes, transfer.flow.rate, trigger).await
}

/// The facts of the transport that a session begins with.
fn facts(transfer: &Transfer) -> TransportFacts {
    TransportFacts::of(transfer.flow.transport)
}

/// The memory that the sessions of a client on these roots may have together.
pub(super) fn memory_of(daemon: &Daemon, client: &ClientConfig, roots: &[&RootConfig]) -> ByteCount {
    let bounds = roots.iter().map(|root| root.memory).chain([client.memory]);
    bounds.flatten().fold(daemon.config.memory, ByteCount::min)
}

/// The memory that a session needs, where there are `all` bytes for it and others: for its chunks,
/// and in reserve for everything else that it keeps.
fn needed(
    all: ByteCount,
    transfer: &Transfer,
    side: &Side,
    measured: Option<Measured>,
    chunk_max: ChunkSize,
) -> Result<Need, Fault> {
    let mut needed = Need::new(all, chunk_max)?;
    let memory = needed.memory.get();
    let reads = transfer.read_back || !transfer.preserve.sums.is_empty();
    if matches!(side, Side::Receive(_, policy) if reads || policy.if_exists == IfExists::Verify) {
        needed.reserve += chunk_max.bytes() * budget::READ_BACK_SLOTS as u64;
    }
    needed.reserve += budget::windows_of(facts(transfer).memory, memory);
    needed.reserve += budget::UDP_LANE_BYTES * u64::from(udp_lanes(transfer));
    if measured.is_some() {
        // The chunks that it sends are there before it begins.
        needed.reserve += memory - budget::memory_for(chunk_max).get();
    }
    // The list of a dataset has the roots of what was staged before.
    let has_list = |destination: &Destination| destination.dataset.as_ref().is_some_and(|dataset| dataset.is_listed());
    let lists = |destination: &Destination| transfer.digests || has_list(destination);
    if matches!(side, Side::Receive(destination, _) if lists(destination)) {
        needed.reserve += budget::digest_bytes(chunk_max) * budget::DIGEST_SLOTS as u64;
    }
    if matches!(side, Side::Receive(destination, _) if has_list(destination)) {
        needed.reserve += LIST_BYTES;
    }
    Ok(needed)
}

/// The lanes over UDP for which memory is set aside as a session begins: its first ones.
pub(super) fn udp_lanes(transfer: &Transfer) -> u32 {
    if transfer.flow.transport == Transport::Udp { transfer.lanes.min(LANES_MAX) } else { 0 }
}

/// The slots, lanes and I/O engine of a session with so many bytes of buffers.
fn memory_plan(
    daemon: &Daemon,
    transfer: &Transfer,
    measured: Option<Measured>,
    (memory, chunk): (ByteCount, ChunkSize),
) -> Result<MemoryPlan, Fault> {
    let slots = budget::slots(memory, chunk)?;
    let lanes = budget::lanes(transfer.lanes.max(transfer.flow.lanes_max), slots);
    let lanes = budget::lanes_with(facts(transfer).memory, lanes, memory.get());
    // Nothing is waited for where there is no disk: what is read ahead would only be late when the
    // time is over.
    let (depth, engine) = match measured {
        Some(_) => (Some(1), EngineKind::Void),
        None => (daemon.config.depth, daemon.config.engine),
    };
    Ok(MemoryPlan { slots, lanes, depth, engine, chunk, affinity: daemon.affinity.clone() })
}

/// Maps the buffers of a session. They grow as `claimed` does; a measurement's are claimed whole,
/// and filled with noise where it sends.
async fn mapped(
    transfer: &Transfer,
    measured: Option<Measured>,
    plan: MemoryPlan,
    claimed: &Buffers,
) -> Result<SessionBuffers, Fault> {
    let lanes = budget::lanes_to_read_for(facts(transfer).memory, plan.lanes, plan.slots);
    let buffers = SessionBuffers::start(transfer.role.other(), MemoryPlan { lanes, ..plan })?;
    if measured.is_none() {
        claimed.feed(&buffers.slab);
        return Ok(buffers);
    }
    if transfer.role == Role::Sender {
        return Ok(buffers);
    }
    blocking(move || {
        buffers.fill_with_noise();
        Ok(buffers)
    })
    .await
}

/// One of the sessions that there may be. Where all are taken, one in which nothing moves makes
/// room for a client that has none.
pub(super) async fn session_place(daemon: &Daemon, client: PublicKey) -> Result<Share, Fault> {
    match daemon.sessions.claim(client, 1) {
        Err(Full::Daemon) if !daemon.sessions.has_any(client) && daemon.runs.make_room(client).await => {
            daemon.sessions.claim(client, 1)
        }
        claimed => claimed,
    }
    .map_err(|full| daemon.sessions.refusal(full))
}

/// The memory that a session begins with. Where nothing is left, one in which nothing moves makes
/// room for a client that has none; but not for one that wants much more than others, which would
/// have to send several away.
pub(super) async fn buffers(
    daemon: &Daemon,
    client: PublicKey,
    (needed, mut roots): (Need, Vec<RootPlace>),
) -> Result<Buffers, Fault> {
    roots.iter_mut().try_for_each(|root| root.begin(needed.first()))?;
    let mut claim = || Buffers::claim(&daemon.memory, client, needed, &mut roots);
    let modest = needed.first() <= 2 * budget::memory_for(ChunkSize::DEFAULT).get();
    match claim() {
        Err(Full::Daemon) if modest && !daemon.memory.has_any(client) && daemon.runs.make_room(client).await => claim(),
        claimed => claimed,
    }
    .map_err(|full| daemon.memory.refusal(full))
}

/// The rate that the session may carry: a pull from several roots stands beneath the caps of all of
/// them.
fn claim(daemon: &Daemon, client: &ClientConfig, transfer: &Transfer) -> Result<RateClaim, Fault> {
    let configs = roots_of(daemon, client, transfer)?;
    Ok(RateClaim::new(client, &configs, pacer::LaneRates::from_wire(transfer.flow.rate)))
}

/// The roots that a transfer is on, each once.
fn roots_of<'d>(daemon: &'d Daemon, client: &ClientConfig, transfer: &Transfer) -> Result<Vec<&'d RootConfig>, Fault> {
    let roots = match &transfer.far {
        Far::Destination { root, .. } => BTreeSet::from([root]),
        Far::Sources { sources, .. } => sources.iter().map(|source| &source.root).collect(),
        Far::Memory { .. } => BTreeSet::new(),
    };
    roots.into_iter().map(|root| Ok(daemon.root(client, root)?.0)).collect()
}

/// The places of a session on its roots.
fn root_places(daemon: &Daemon, client: &ClientConfig, transfer: &Transfer) -> Result<Vec<RootPlace>, Fault> {
    roots_of(daemon, client, transfer)?.into_iter().map(|root| daemon.live.places.take(root)).collect()
}

/// Refuses a congestion control that a client names and that would not be there when its lanes
/// join.
fn need_congestion(flow: &Flow) -> Result<(), Fault> {
    congestion(flow).try_for_peer(flow.transport).map_err(Fault::from)
}

/// Checks the rights that a transfer needs, and its protection. Opens nothing.
fn need_allowed(daemon: &Daemon, client: &ClientConfig, transfer: &Transfer) -> Result<(), Fault> {
    let protection = handshake::from_wire(transfer.protect);
    match (&transfer.far, transfer.role) {
        (Far::Destination { root, if_exists, .. }, Role::Sender) => {
            let (config, rights) = daemon.root(client, root)?;
            need(rights.create, "create", config)?;
            // What stands is told the client as digests, of which short content could be guessed.
            need(rights.read || *if_exists != IfExists::Verify, "read", config)?;
            need(rights.read || !transfer.digests, "read", config)
                .map_err(|fault| fault.hint(hint::Daemon::AskForRead))?;
            need_protection(protection, config)
        }
        (Far::Sources { sources, .. }, Role::Receiver) => {
            if sources.is_empty() {
                return Err(Fault::protocol("a pull of no sources"));
            }
            let roots: BTreeSet<_> = sources.iter().map(|source| &source.root).collect();
            roots.into_iter().try_for_each(|root| {
                let (config, rights) = daemon.root(client, root)?;
                need(rights.read, "read", config)?;
                need_protection(protection, config)
            })
        }
        // Whether it may measure is another question.
        (Far::Memory { .. }, _) => Ok(()),
        _ => Err(side::contradiction()),
    }
}

/// The congestion control that a client asks for.
pub(super) fn congestion(flow: &Flow) -> Congestion {
    if flow.congestion.is_empty() { Congestion::Auto } else { Congestion::Named(flow.congestion.to_string()) }
}
