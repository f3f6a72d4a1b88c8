//! One conversation of the daemon: hello, is it allowed, then a session or a listing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use longhaul_core::filter::Filter;
use longhaul_core::limits::{CHUNK_BYTES_USER_MIN, CONGESTION_NAME_BYTES_MAX, LANE_STALL_SECONDS};
use longhaul_core::{Blame, ByteCount, ChunkSize, Fault, FaultCode, IfExists, LaneId, PathList, Role};
use longhaul_disk::{EngineKind, ErrorKind, Shape, SourceTree, Tree};
use longhaul_net::{Congestion, Control, PublicKey};
use longhaul_proto::Message;
use longhaul_proto::join::JoinKey;
use longhaul_proto::receiver::{Config, Policy, SkippedDigests, SyncGroup};
use longhaul_proto::wire::message::{
    Far, FarSource, Flow, Follows, Lanes, Protect, Request, Transfer, Transport, VERSION, Welcome,
};
use tokio::sync::mpsc;

use super::access::{need, need_protection};
use super::buffers::{Buffers, Need};
use super::listing::{Names, Places};
use super::memory::{LONGEST, Measured};
use super::rates::{Claim, Entered};
use super::request::{self, hear_rest};
use super::runs::Place;
use super::shares::{Full, Share};
use super::{ClientConfig, Daemon, strangers};
use crate::api::{Event, FileStatus, Observer};
use crate::budget::{self, Machinery, Means};
use crate::faults::net_fault;
use crate::journals::{Store, Who, run_of};
use crate::lanes::pool::LaneRules;
use crate::lanes::registry::{Expecting, Registered};
use crate::lanes::replace::{Grants, Regrow};
use crate::lanes::tune::TuningRules;
use crate::lanes::worker::pacer;
use crate::place::{self, Destination, Opening};
use crate::random::nonce;
use crate::session::allowed::Asked;
use crate::session::channel::{ReadHalf, write_message};
use crate::session::control::{Link, LinkParts};
use crate::session::course::{ReceiveCourse, SendCourse, Wanted};
use crate::session::handshake;
use crate::session::idle::Idle;
use crate::session::overhead::Overhead;
use crate::session::receiver::Receiving;
use crate::session::sender::Sending;
use crate::session::totals::Totals;
use crate::session::{receiver, sender};
use crate::workers::blocking;

/// Runs a conversation to its end.
pub(super) async fn serve(daemon: Arc<Daemon>, mut control: Control) {
    let peer = control.peer_addr;
    // Before anything that it says is looked at.
    if !daemon.knows(&control.peer_key) {
        return strangers::refuse(&daemon, control).await;
    }
    // Until it has a session, which is counted otherwise, or its answer.
    let Some(place) = daemon.lobby.client(control.peer_key) else {
        daemon.notices.crowded(peer, control.peer_key);
        return strangers::turn_away(&daemon, control, busy("connections that have not begun")).await;
    };
    let request = handshake::hear(&mut control.reader).await;
    let follows = request.as_ref().map_or(Follows::Nothing, request::follows);
    let hung_up = request.as_ref().is_err_and(|fault| fault.code == FaultCode::Lost);
    let admitted = match request {
        Ok(request) => admit(&daemon, &mut control, request).await,
        Err(fault) => Err(fault),
    };
    match admitted {
        Ok(Admitted::Listing(names)) => {
            if let Err(fault) = names.tell(&mut control.writer).await {
                tracing::debug!(target: "longhaul::serve", %peer, %fault, "a listing was broken off");
            }
        }
        Ok(Admitted::Session(prepared)) => {
            drop(place);
            run_session(&daemon, control, *prepared).await;
        }
        // Nobody was refused: the client hung up, as one does that does not take this daemon's key.
        Err(_) if hung_up => {
            drop(place);
            let why = "a client left before it asked for anything: it may not trust this daemon's key";
            tracing::info!(target: "longhaul::session", %peer, key = %control.peer_key, "{why}");
        }
        Err(fault) => {
            tracing::info!(target: "longhaul::session", %peer, code = fault.code.name(), "refused: {fault}");
            if follows == Follows::Nothing {
                drop(place);
                refuse(&mut control, fault).await;
            } else {
                refuse_listing(&mut control, fault).await;
            }
        }
    }
}

async fn refuse(control: &mut Control, fault: Fault) {
    let _ = write_message(&mut control.writer, &Message::Refuse(fault)).await;
    let _ = tokio::io::AsyncWriteExt::shutdown(&mut control.writer).await;
}

/// Refuses a client that may still be saying what it wants: what it says is read for a moment more, as a connection that is closed on
/// words which nobody read takes the refusal with it.
async fn refuse_listing(control: &mut Control, fault: Fault) {
    refuse(control, fault).await;
    let mut nowhere = tokio::io::sink();
    let _ = tokio::time::timeout(HEARD_OUT, tokio::io::copy(&mut control.reader, &mut nowhere)).await;
}

fn busy(what: &str) -> Fault {
    Fault::new(FaultCode::Busy, Blame::Local, format_args!("the daemon is at its limit of {what}"))
        .hint("try again later")
}

enum Admitted {
    Listing(Box<Names>),
    Session(Box<Prepared>),
}

/// A session that is allowed and has what it needs.
struct Prepared {
    client: String,
    claim: Claim,
    what: String,
    transfer: Transfer,
    side: Side,
    measured: Option<Measured>,
    lanes: u32,
    lanes_max: u32,
    chunk_max: ChunkSize,
    machinery: Machinery,
    /// Bytes of all of its buffers.
    memory: ByteCount,
    held: Held,
}

/// What a session has of the daemon. Its place among the runs goes last: then it has let go.
struct Held {
    _session: Share,
    buffers: Buffers,
    place: Place,
}

/// The daemon's side of a transfer.
pub(super) enum Side {
    Receive(Destination, Policy),
    /// With what the `Welcome` says of the sources.
    Send(Arc<dyn SourceTree>, Wanted, u64),
}

async fn admit(daemon: &Arc<Daemon>, control: &mut Control, request: Request) -> Result<Admitted, Fault> {
    let client = daemon.client(&control.peer_key)?.clone();
    let places = || Places::take(&daemon.listings, &daemon.memory, client.key);
    match request {
        Request::Roots => Ok(Admitted::Listing(Box::new(Names::roots(daemon, &client, places()?)))),
        Request::List { root, path } => {
            let (config, rights) = daemon.root(&client, &root)?;
            need(rights.read, "read", config)?;
            let (tree, _) = daemon.root_parts(&root).await?;
            Names::beneath(tree, path, places()?).await.map(|names| Admitted::Listing(Box::new(names)))
        }
        Request::Partials { root, path } => {
            let (config, rights) = daemon.root(&client, &root)?;
            // They are its own: who may only push sees them too.
            need(rights.read || rights.create, "read", config)?;
            let Who { principal, .. } = Who::client(&client.key, &client.name);
            let parts = daemon.root_parts(&root).await?;
            Names::partials(parts, principal, path, places()?).await.map(|names| Admitted::Listing(Box::new(names)))
        }
        Request::Transfer(transfer) => {
            let prepared = prepare(daemon, &client, *transfer, &mut control.reader).await;
            prepared.map(|prepared| Admitted::Session(Box::new(prepared)))
        }
    }
}

async fn prepare(
    daemon: &Arc<Daemon>,
    client: &ClientConfig,
    mut transfer: Transfer,
    reader: &mut ReadHalf,
) -> Result<Prepared, Fault> {
    if transfer.set != 0
        || !transfer.initiator
        || transfer.lanes == 0
        || transfer.flow.congestion.len() > CONGESTION_NAME_BYTES_MAX
        || transfer.flow.transport == Transport::Quic && transfer.protect == Protect::Safe
        || transfer.chunk.bytes() < CHUNK_BYTES_USER_MIN
        || transfer.chunk_max < transfer.chunk
    {
        return Err(Fault::new(
            FaultCode::Unsupported,
            Blame::Local,
            "this build does not know how to do what is asked",
        ));
    }
    // Before anybody makes room for it.
    need_allowed(daemon, client, &transfer)?;
    if transfer.role == Role::Receiver {
        need_congestion(&transfer.flow)?;
    }
    let measured = daemon.measured(client, &transfer)?;
    // Before the limits: the earlier session of this run may hold what they would refuse.
    let run = if transfer.run == [0; 16] { nonce()? } else { transfer.run };
    let place = daemon.runs.take_over(client.key, run).await?;
    let session = session_place(daemon, client.key).await?;
    let stop = place.stop().or(daemon.stop.clone());
    let rest = hear_rest(reader, &mut transfer, (&daemon.memory, client.key), stop).await?;
    // Those that came since, too.
    need_allowed(daemon, client, &transfer)?;
    let (side, what) = match measured {
        Some(measured) => measured.side(&transfer),
        None => side(daemon, client, &transfer, rest.names).await?,
    };
    let claim = claim(daemon, client, &transfer)?;
    let chunk_max = match &side {
        Side::Receive(destination, _) => destination.chunk_max(transfer.chunk).min(transfer.chunk_max),
        Side::Send(..) => transfer.chunk_max,
    };
    let chunk_max = chunk_max.min(budget::largest_chunk(daemon.config.memory, transfer.chunk));
    let mut needed = Need::new(daemon.config.memory, chunk_max)?;
    let memory = needed.memory;
    if matches!(&side, Side::Receive(_, policy) if transfer.read_back || policy.if_exists == IfExists::Verify) {
        needed.reserve += chunk_max.bytes() * budget::READ_BACK_SLOTS as u64;
    }
    if transfer.flow.transport == Transport::Quic {
        needed.reserve += budget::windows(memory.get());
    }
    if measured.is_some() {
        // What it will send is there before it begins.
        needed.reserve += memory.get() - budget::memory_for(chunk_max).get();
    }
    if transfer.digests && matches!(&side, Side::Receive(..)) {
        needed.reserve += budget::digest_bytes(chunk_max) * budget::DIGEST_SLOTS as u64;
    }
    let buffers = buffers(daemon, client.key, needed).await?;
    if let Some(claim) = rest.claim {
        buffers.absorb(claim);
    }
    let slots = budget::slots(memory, chunk_max)?;
    let lanes = budget::lanes(transfer.lanes.max(transfer.flow.lanes_max), slots);
    let means = Means {
        slots,
        lanes: match transfer.flow.transport {
            Transport::Tcp => lanes,
            Transport::Quic => budget::lanes_quic(lanes, memory.get()),
        },
        // Nothing is waited for where there is no disk: what is read ahead would only be late when the time is over.
        depth: if measured.is_some() { Some(1) } else { daemon.config.depth },
        engine: if measured.is_some() { EngineKind::Void } else { daemon.config.engine },
        chunk: chunk_max,
    };
    let mut machinery = Machinery::start(transfer.role.other(), means)?;
    if measured.is_none() {
        buffers.feed(&machinery.slab);
    }
    if measured.is_some() && transfer.role == Role::Receiver {
        machinery = blocking(move || {
            machinery.fill_with_noise();
            Ok(machinery)
        })
        .await?;
    }
    let transfer_lanes = transfer.lanes;
    Ok(Prepared {
        client: client.name.clone(),
        claim,
        what,
        transfer,
        side,
        measured,
        lanes: means.lanes.min(transfer_lanes),
        lanes_max: means.lanes,
        chunk_max,
        machinery,
        memory,
        held: Held { _session: session, buffers, place },
    })
}

/// One of the sessions that there may be. Where all are taken, one in which nothing moves makes room for a client that has none.
async fn session_place(daemon: &Daemon, client: PublicKey) -> Result<Share, Fault> {
    match daemon.sessions.claim(client, 1) {
        Err(Full::Daemon) if !daemon.sessions.has_any(client) && daemon.runs.make_room(client).await => {
            daemon.sessions.claim(client, 1)
        }
        claimed => claimed,
    }
    .map_err(|full| daemon.sessions.refusal(full))
}

/// The memory that a session begins with. Where nothing is left, one in which nothing moves makes room for a client that has none; but
/// not for one that wants much more than others, which would have to send several away.
async fn buffers(daemon: &Daemon, client: PublicKey, needed: Need) -> Result<Buffers, Fault> {
    let claim = || Buffers::claim(&daemon.memory, client, needed);
    let modest = needed.first() <= 2 * budget::memory_for(ChunkSize::DEFAULT).get();
    match claim() {
        Err(Full::Daemon) if modest && !daemon.memory.has_any(client) && daemon.runs.make_room(client).await => claim(),
        claimed => claimed,
    }
    .map_err(|full| daemon.memory.refusal(full))
}

fn congestion(flow: &Flow) -> Congestion {
    if flow.congestion.is_empty() { Congestion::Auto } else { Congestion::Named(flow.congestion.to_string()) }
}

/// What the session may carry: a pull from several roots stands beneath the caps of all of them.
fn claim(daemon: &Daemon, client: &ClientConfig, transfer: &Transfer) -> Result<Claim, Fault> {
    let roots = match &transfer.far {
        Far::Destination { root, .. } => BTreeSet::from([root]),
        Far::Sources { sources, .. } => sources.iter().map(|source| &source.root).collect(),
        Far::Memory { .. } => BTreeSet::new(),
    };
    let configs = roots.into_iter().map(|root| Ok(daemon.root(client, root)?.0)).collect::<Result<Vec<_>, Fault>>()?;
    Ok(Claim::new(client, &configs, pacer::Rates::from_wire(transfer.flow.rate)))
}

/// What a client asks for by name must be there when its lanes join.
fn need_congestion(flow: &Flow) -> Result<(), Fault> {
    let tried = match flow.transport {
        Transport::Tcp => congestion(flow).try_out_for_peer(),
        Transport::Quic => congestion(flow).try_over_quic(),
    };
    tried.map_err(|e| net_fault(&e))
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
            need(rights.read || !transfer.digests, "read", config).map_err(|fault| {
                fault.hint(
                    "for --manifest the daemon reads the files that are skipped: leave it out, or ask the daemon's administrator for 'read'",
                )
            })?;
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
        _ => Err(contradiction()),
    }
}

fn contradiction() -> Fault {
    Fault::protocol("a transfer whose roles contradict each other")
}

/// Opens this side of a transfer that is allowed; `names` are all that is wanted beneath its one source, if any are given.
async fn side(
    daemon: &Arc<Daemon>,
    client: &ClientConfig,
    transfer: &Transfer,
    names: Option<PathList>,
) -> Result<(Side, String), Fault> {
    let direct = daemon.config.io;
    match (&transfer.far, transfer.role) {
        (Far::Destination { root, path, placing, if_exists }, Role::Sender) => {
            let (config, rights) = daemon.root(client, root)?;
            let policy = Policy { if_exists: *if_exists, may_modify: rights.modify };
            let opening = Opening { direct, dry_run: transfer.dry_run, placing: *placing, may_modify: rights.modify };
            let ((tree, store), path) = (daemon.root_parts(root).await?, path.clone());
            let what = format!("push to {root}/{}", path.escaped());
            let who = Who::client(&client.key, &client.name);
            let run = run_of(transfer.run);
            let within = config.policy;
            let place = move || place::served_destination((&tree, &store, within), (&who, run), &path, opening);
            let destination = blocking(place).await?;
            let destination = Destination { place: format!("root {root}"), ..destination };
            Ok((Side::Receive(destination, policy), what))
        }
        (Far::Sources { sources, rules, .. }, Role::Receiver) => {
            let Some(first) = sources.first() else { return Err(contradiction()) };
            let mut roots = BTreeMap::new();
            for source in sources {
                if !roots.contains_key(&source.root) {
                    let (tree, _) = daemon.root_parts(&source.root).await?;
                    roots.insert(source.root.clone(), tree);
                }
            }
            let place = |source: &FarSource| {
                let tree = roots.get(&source.root).cloned().ok_or_else(contradiction)?;
                Ok((source.root.clone(), tree, source.path.clone(), source.contents))
            };
            let places = sources.iter().map(place).collect::<Result<Vec<_>, Fault>>()?;
            let filter = Filter::new(rules.clone()).map_err(|e| Fault::new(FaultCode::Usage, Blame::Peer, e))?;
            let more = if sources.len() > 1 { format!(" and {} more", sources.len() - 1) } else { String::new() };
            let what = format!("pull from {}/{}{more}", first.root, first.path.escaped());
            let wanted = Wanted { filter, names: names.map(Arc::new), preserve: transfer.preserve };
            let open =
                move || place::served_sources(places, direct, &wanted).map(|(source, shape)| (source, shape, wanted));
            let (source, shape, wanted) = blocking(open).await?;
            if let Shape::Missing(missing) = &shape {
                // Before the client makes anything of its destination.
                return Err(missing.first().map_or_else(contradiction, |(_, error)| error.fault()));
            }
            Ok((Side::Send(source, wanted, handshake::source_caps(&shape)), what))
        }
        _ => Err(contradiction()),
    }
}

async fn run_session(daemon: &Arc<Daemon>, control: Control, prepared: Prepared) {
    let begun = Instant::now();
    let peer = control.peer_addr;
    let (client, what) = (prepared.client.clone(), prepared.what.clone());
    let protection = handshake::from_wire(prepared.transfer.protect);
    tracing::info!(target: "longhaul::session", %peer, %client, protect = ?protection, "opened: {what}");
    let counter = Arc::new(Counter::default());
    if prepared.measured.is_some() {
        // Its own time and the end are within that, or the client is not one that means well.
        prepared.held.place.end_after(LONGEST + LONGEST / 10);
    }
    let measured = prepared.measured;
    let totals = match welcome(daemon, control, &prepared, counter.clone()).await {
        Ok((link, registered, welcome)) => {
            let totals = converse(link, prepared, &welcome, daemon.config.sync).await;
            drop(registered);
            totals
        }
        Err(fault) => Totals::ended_by(fault),
    };
    let seconds = begun.elapsed().as_secs_f64();
    let (files, failed) = (counter.committed.load(Ordering::Relaxed), counter.failed.load(Ordering::Relaxed));
    let bytes = if measured.is_some() { totals.bytes_moved() } else { counter.bytes.load(Ordering::Relaxed) };
    // That a source ends by the clock is no failure.
    let failed = if measured.is_some_and(Measured::is_timed) { 0 } else { failed };
    let end = totals.fault.as_ref().map_or_else(|| "complete".to_owned(), |f| format!("{}: {f}", f.code.name()));
    tracing::info!(target: "longhaul::session", %peer, %client, files, failed, bytes, seconds = format_args!("{seconds:.3}"), cpu_s = %cpu_seconds(&totals.stages), "ended: {what}: {end}");
}

/// CPU seconds of this side by stage, as a word of a log line: `hash:0.412,net:0.360,files:0.020`.
fn cpu_seconds(stages: &[(&str, f64)]) -> String {
    if stages.is_empty() {
        return "none".to_owned();
    }
    stages.iter().map(|(stage, seconds)| format!("{stage}:{seconds:.3}")).collect::<Vec<_>>().join(",")
}

/// Welcomes the client and names its lanes.
async fn welcome(
    daemon: &Arc<Daemon>,
    mut control: Control,
    prepared: &Prepared,
    observer: Arc<Counter>,
) -> Result<(Link, (Registered, Entered), Welcome), Fault> {
    let chunk = prepared.transfer.chunk;
    let events = mpsc::unbounded_channel();
    let (entered, rate) = daemon.rates.enter(prepared.claim.clone(), events.0.clone());
    let welcome = Welcome {
        version: VERSION,
        caps: match &prepared.side {
            Side::Receive(destination, _) => handshake::sync_caps(destination.tree.sync_method()),
            Side::Send(_, _, caps) => *caps,
        },
        session: nonce()?,
        chunk,
        chunk_max: prepared.chunk_max,
        bundled_max: handshake::bundled_max(chunk),
        lanes_max: prepared.lanes_max,
        rate: rate.unwrap_or(0),
        memory_bytes: prepared.measured.map_or(0, |measured| measured.bytes),
    };
    let (count, transport) = (prepared.lanes, prepared.transfer.flow.transport);
    let registered = daemon.registry.expect(
        welcome.session,
        Expecting {
            key: JoinKey(control.exporter),
            peer: control.peer_key,
            protection: handshake::from_wire(prepared.transfer.protect),
            open: Expecting::ids(count),
            next: count,
            congestion: match prepared.transfer.role {
                // The name is the receiver's wish for what is sent from here.
                Role::Receiver => congestion(&prepared.transfer.flow),
                Role::Sender => Congestion::Auto,
            },
            sink: events.0.clone(),
        },
    );
    write_message(&mut control.writer, &Message::Welcome(welcome.clone())).await?;
    write_message(&mut control.writer, &Message::Lanes(Lanes { first: LaneId(0), count, transport })).await?;
    let (reader, writer) = (control.reader, control.writer);
    let presence = match &prepared.side {
        Side::Receive(destination, _) => destination.presence.clone(),
        Side::Send(..) => Arc::default(),
    };
    let role = prepared.transfer.role.other();
    let rules = LaneRules {
        role,
        target: count,
        lanes_max: prepared.lanes_max,
        transport,
        windows: budget::windows(prepared.memory.get()),
        tuning: (role == Role::Sender).then_some(TuningRules {
            lanes: count,
            lanes_max: prepared.lanes_max,
            unit: welcome.chunk.bytes(),
            choose_congestion: prepared.transfer.flow.congestion.is_empty(),
            choose_transport: prepared.transfer.flow.choose,
        }),
        rates: pacer::Rates { own: rate, asked: pacer::Rates::from_wire(prepared.transfer.flow.rate) },
        stall_after: Duration::from_secs(LANE_STALL_SECONDS),
        regrow: Regrow::Grant(Grants::new(count, registered.opener())),
    };
    let stop = prepared.held.place.stop().or(daemon.stop.clone());
    let idle = Idle::new(daemon.config.idle, prepared.held.place.activity());
    let mut link = Link::start(LinkParts { reader, writer, observer, stop, presence, events, rules });
    link.set_idle(idle);
    link.set_overhead(Overhead::claimed(prepared.held.buffers.more()));
    if transport != Transport::Quic {
        link.set_quic_room(prepared.held.buffers.room(budget::windows(prepared.memory.get())));
    }
    Ok((link, (registered, entered), welcome))
}

async fn converse(link: Link, prepared: Prepared, welcome: &Welcome, sync: SyncGroup) -> Totals {
    // What is held goes at the end of this.
    let Prepared { transfer, side, measured, machinery: Machinery { slab, io, depth }, held, .. } = prepared;
    let (chunk, bundled_max, preserve) = (welcome.chunk, welcome.bundled_max, transfer.preserve);
    match side {
        Side::Receive(destination, policy) => {
            let config = Config {
                chunk,
                chunk_max: welcome.chunk_max,
                bundled_max,
                policy,
                landing: destination.landing,
                preserve,
                dry_run: transfer.dry_run,
                group: sync,
                read_back: transfer.read_back,
                digests: if transfer.digests { SkippedDigests::Told } else { SkippedDigests::Unwanted },
            };
            let asked = measured.map_or_else(Asked::default, |measured| Asked::one_file(measured.bytes));
            let (base, place) = (destination.base, destination.place);
            let mut course = ReceiveCourse::after(held.place.committed_before());
            let ledger = destination.ledger;
            let receiving = Receiving { tree: destination.tree, slab, io, config, asked, base, place, ledger };
            receiver::run(link, receiving, &mut course).await;
            if course.totals.fault.is_some() {
                held.place.remember(course.committed);
            }
            course.totals
        }
        Side::Send(source, wanted, _) => {
            let mut course = SendCourse::default();
            let sending = Sending {
                tree: source,
                slab,
                io,
                depth,
                chunk,
                chunk_max: welcome.chunk_max,
                bundled_max,
                wanted,
                timed: measured.is_some_and(Measured::is_timed),
            };
            sender::run(link, sending, &mut course).await;
            course.totals
        }
    }
}

impl Daemon {
    /// A root's tree and its partials, if the directory that is held for it is still the one at its path.
    async fn root_parts(&self, root: &str) -> Result<(Arc<Tree>, Arc<Store>), Fault> {
        let known = self.roots.get(root).map(|(_, tree, store)| (tree.clone(), store.clone()));
        let (tree, store) =
            known.ok_or_else(|| Fault::new(FaultCode::Internal, Blame::Bug, "a root without its tree"))?;
        let root = root.to_owned();
        blocking(move || match tree.check_place() {
            Ok(()) => Ok((tree, store)),
            Err(error) if error.kind() == ErrorKind::Moved => Err(Fault::new(
                FaultCode::Io,
                Blame::Local,
                format_args!("something was mounted over or replaced root '{root}' since this daemon started"),
            )
            .about(&root)
            .hint("have the daemon restarted once the right directory is there")),
            Err(error) => Err(error.fault().about(&root)),
        })
        .await
    }
}

/// How long a client that was refused in the middle of its request is heard.
const HEARD_OUT: Duration = Duration::from_secs(5);

/// Counts for the log line at a session's end.
#[derive(Default)]
struct Counter {
    committed: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
}

impl Observer for Counter {
    fn event(&self, event: Event) {
        if let Event::File(file) = event {
            match file.status {
                FileStatus::Committed if file.regular => {
                    self.committed.fetch_add(1, Ordering::Relaxed);
                    self.bytes.fetch_add(file.bytes, Ordering::Relaxed);
                }
                FileStatus::Failed(_) => drop(self.failed.fetch_add(1, Ordering::Relaxed)),
                _ => {}
            }
        }
    }
}
