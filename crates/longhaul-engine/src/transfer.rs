//! Runs a job from its initiator's side: push, pull, and copy within one process.
//!
//! In: a [`Job`] and [`Settings`]. Out: a [`Report`]. Dials, agrees, joins lanes, then hands over to a session loop.

use std::sync::Arc;
use std::time::Instant;

use longhaul_core::limits::CHUNK_BYTES_USER_MIN;
use longhaul_core::{Blame, ChunkSize, Fault, FaultCode, LaneId, RelPath, Role};
use longhaul_disk::{SourceTree, TargetTree};
use longhaul_net::{Control, Identity, LaneOptions, LaneStream, PeerCheck, Protection, PublicKey, dial_control};
use longhaul_proto::join::JoinKey;
use longhaul_proto::receiver::{Config, Landing, Policy, SyncGroup};
use longhaul_proto::wire::message::{Far, FarSource, Lanes, Request, Transfer, Welcome};
use tokio::sync::mpsc;

use crate::api::{
    self, Event, From, Job, LocalDest, LocalSource, Observer, Remote, RemotePath, Report, Settings, Start, Stop, To,
};
use crate::asked::Asked;
use crate::budget::{self, LANES_DEFAULT, Machinery, Means};
use crate::faults::net_fault;
use crate::handshake;
use crate::lane::join::{join, nonce};
use crate::place::{self, Destination, Opening};
use crate::report::Totals;
use crate::session::receive::Receiving;
use crate::session::send::Sending;
use crate::session::{self, JoinedLane, Link, LinkParts};

/// Runs a job to its end. Always gives a report; what ended it early is in there.
pub async fn run(job: Job, settings: Settings, observer: Arc<dyn Observer>, stop: Stop) -> Report {
    let begun = Instant::now();
    let run = Run { settings, observer: observer.clone(), stop };
    let result = match (job.from, job.to) {
        (From::Local(sources), To::Remote(remote, path)) => run.push(sources, &remote, path).await,
        (From::Remote(remote, paths), To::Local(dest)) => run.pull(&remote, paths, &dest).await,
        (From::Local(sources), To::Local(dest)) => run.copy(&sources, &dest).await,
        (From::Remote(..), To::Remote(..)) => {
            Err(Fault::new(FaultCode::Usage, Blame::Local, "copying from one daemon to another is not built yet")
                .hint("pull, then push"))
        }
    };
    conclude(result, &*observer, begun)
}

/// Copies between two trees that a library user made, in this process: any [`SourceTree`] to any [`TargetTree`], with
/// [`EngineKind::Void`](longhaul_disk::EngineKind::Void) for trees without a disk. No peer can ask for it.
pub async fn run_between(
    source: Arc<dyn SourceTree>,
    target: Arc<dyn TargetTree>,
    settings: Settings,
    observer: Arc<dyn Observer>,
    stop: Stop,
) -> Report {
    let begun = Instant::now();
    let destination = Destination { tree: target, landing: Landing::beneath(), base: String::new() };
    let result = Run { settings, observer: observer.clone(), stop }.embedded(source, destination).await;
    conclude(result, &*observer, begun)
}

fn conclude(result: Result<Totals, Fault>, observer: &dyn Observer, begun: Instant) -> Report {
    let totals = result.unwrap_or_else(Totals::ended_by);
    if let Some(fault) = &totals.fault {
        observer.event(Event::Fault(fault.clone()));
    }
    totals.into_report(begun.elapsed().as_secs_f64())
}

struct Run {
    settings: Settings,
    observer: Arc<dyn Observer>,
    stop: Stop,
}

/// A session that was agreed on, its lanes joined.
struct Agreed {
    control: Control,
    welcome: Welcome,
    lanes: Vec<JoinedLane>,
}

impl Run {
    async fn push(self, sources: Vec<LocalSource>, remote: &Remote, path: RemotePath) -> Result<Totals, Fault> {
        let contents = sources.iter().any(|s| s.contents);
        let far = Far::Destination {
            root: path.root.clone(),
            path: path.path.clone(),
            placing: place::placing(path.slash, sources.len(), contents),
            if_exists: self.settings.if_exists,
        };
        let slots = budget::slots(self.settings.memory, self.settings.chunk)?;
        let agreed = self.agree(remote, Role::Sender, far, slots).await?;
        let tree = place::local_source(&sources, self.settings.io);
        let lanes = agreed.lanes.len() as u32;
        let Machinery { slab, io } = self.machinery(Role::Sender, slots, lanes, agreed.welcome.chunk)?;
        let sending = Sending {
            tree,
            slab,
            io,
            chunk: agreed.welcome.chunk,
            bundled_max: agreed.welcome.bundled_max,
            filter: self.settings.filter.clone(),
            names: self.settings.files_from.clone(),
            preserve: self.settings.preserve,
        };
        let link = self.link(agreed, "push", slots);
        Ok(session::send::run(link, sending).await)
    }

    async fn pull(self, remote: &Remote, paths: Vec<RemotePath>, dest: &LocalDest) -> Result<Totals, Fault> {
        let opening = Opening {
            direct: self.settings.io,
            dry_run: self.settings.dry_run,
            placing: place::placing(dest.slash, paths.len(), paths.iter().any(contents)),
            may_modify: true,
        };
        let far = Far::Sources {
            sources: paths
                .iter()
                .map(|p| FarSource { root: p.root.clone(), path: p.path.clone(), contents: contents(p) })
                .collect(),
            rules: self.settings.filter.rules().to_vec(),
            names: self.settings.files_from.clone(),
        };
        let slots = budget::slots(self.settings.memory, self.settings.chunk)?;
        let agreed = self.agree(remote, Role::Receiver, far, slots).await?;
        let destination = place::local_destination(dest, opening)?;
        let tops: Option<Vec<Vec<u8>>> =
            paths.iter().map(|p| if contents(p) { None } else { p.path.name().map(<[u8]>::to_vec) }).collect();
        let landing = match tops {
            Some(tops) => destination.landing.only(tops),
            None => destination.landing,
        };
        let lanes = agreed.lanes.len() as u32;
        let Machinery { slab, io } = self.machinery(Role::Receiver, slots, lanes, agreed.welcome.chunk)?;
        let config = self.receiver_config(landing, &agreed.welcome);
        let link = self.link(agreed, "pull", slots);
        let asked = self.asked(&paths);
        Ok(session::receive::run(
            link,
            Receiving { tree: destination.tree, slab, io, config, asked, base: destination.base },
        )
        .await)
    }

    /// Both halves in this process.
    async fn copy(self, sources: &[LocalSource], dest: &LocalDest) -> Result<Totals, Fault> {
        let contents = sources.iter().any(|s| s.contents);
        let opening = Opening {
            direct: self.settings.io,
            dry_run: self.settings.dry_run,
            placing: place::placing(dest.slash, sources.len(), contents),
            may_modify: true,
        };
        // Checked before anything is made.
        self.half_slots()?;
        let destination = place::local_destination(dest, opening)?;
        let source = place::local_source(sources, self.settings.io);
        self.embedded(source, destination).await
    }

    /// Each half of a copy has half of the memory; the least that is allowed for both leaves two buffers to each.
    fn half_slots(&self) -> Result<usize, Fault> {
        budget::slots(self.settings.memory, self.settings.chunk).map(|slots| slots / 2)
    }

    /// The same machines, digests and commits as between hosts, over socket pairs.
    async fn embedded(self, tree: Arc<dyn SourceTree>, destination: Destination) -> Result<Totals, Fault> {
        let slots = self.half_slots()?;
        let protection = self.settings.protect.unwrap_or(Protection::Safe);
        let welcome = Welcome {
            version: longhaul_proto::wire::message::VERSION,
            caps: 0,
            session: nonce()?,
            chunk: self.settings.chunk,
            bundled_max: handshake::bundled_max(self.settings.chunk),
        };
        let wanted = self.settings.lanes.unwrap_or(LANES_DEFAULT);
        let (near, far) = lane_pairs(protection, budget::lanes(wanted, slots))?;
        self.announce("copy", "pair", &welcome, &near, protection, wanted);
        let (ours, theirs) = tokio::io::duplex(CONTROL_PIPE_BYTES);
        let lanes = near.len() as u32;
        let sender = self.machinery(Role::Sender, slots, lanes, welcome.chunk)?;
        let receiver = self.machinery(Role::Receiver, slots, lanes, welcome.chunk)?;
        let sending = Sending {
            tree,
            slab: sender.slab,
            io: sender.io,
            chunk: welcome.chunk,
            bundled_max: welcome.bundled_max,
            filter: self.settings.filter.clone(),
            names: self.settings.files_from.clone(),
            preserve: self.settings.preserve,
        };
        let config = self.receiver_config(destination.landing, &welcome);
        let receiving = Receiving {
            tree: destination.tree,
            slab: receiver.slab,
            io: receiver.io,
            config,
            asked: Asked::default(),
            base: destination.base,
        };
        let sender = session::send::run(self.half_link(ours, near, self.observer.clone()), sending);
        let receiver = tokio::spawn(session::receive::run(self.half_link(theirs, far, Arc::new(Nobody)), receiving));
        let mut totals = sender.await;
        let received = receiver
            .await
            .map_err(|e| Fault::new(FaultCode::Internal, Blame::Bug, format_args!("the receiving half died: {e}")))?;
        merge_halves(&mut totals, received);
        Ok(totals)
    }

    /// Dials, shows keys, asks, joins lanes.
    async fn agree(&self, remote: &Remote, role: Role, far: Far, slots: usize) -> Result<Agreed, Fault> {
        let mut stop = self.stop.clone();
        tokio::select! {
            biased;
            code = stop.stopped() => Err(Fault::new(code, Blame::Local, "stopped before the transfer began")),
            agreed = self.agree_unhurried(remote, role, far, slots) => agreed,
        }
    }

    async fn agree_unhurried(&self, remote: &Remote, role: Role, far: Far, slots: usize) -> Result<Agreed, Fault> {
        let mut control = connect(remote).await?;
        let protection = self.settings.protect.unwrap_or(Protection::Private);
        let wanted = budget::lanes(self.settings.lanes.unwrap_or(LANES_DEFAULT), slots);
        let request = Request::Transfer(Box::new(Transfer {
            role,
            initiator: true,
            protect: handshake::to_wire(protection),
            chunk: self.settings.chunk,
            lanes: wanted,
            preserve: self.settings.preserve,
            dry_run: self.settings.dry_run,
            set: 0,
            far,
        }));
        let (welcome, granted) = handshake::ask(&mut control.reader, &mut control.writer, request).await?;
        if welcome.chunk.bytes() > self.settings.chunk.bytes() {
            return Err(Fault::protocol("the other side chose larger chunks than were offered"));
        }
        if welcome.chunk.bytes() < CHUNK_BYTES_USER_MIN || granted.count > wanted {
            return Err(Fault::protocol("the other side chose smaller chunks or more lanes than there may be"));
        }
        let lanes = self.dial_lanes(remote, &control, &welcome, &granted, protection).await?;
        Ok(Agreed { control, welcome, lanes })
    }

    /// Dials all lanes at once: one round trip more or less, whatever their number.
    async fn dial_lanes(
        &self,
        remote: &Remote,
        control: &Control,
        welcome: &Welcome,
        granted: &Lanes,
        protection: Protection,
    ) -> Result<Vec<JoinedLane>, Fault> {
        let key = JoinKey(control.exporter);
        let options = LaneOptions { congestion: self.settings.congestion.clone(), ..LaneOptions::default() };
        let dial = |n: u32| {
            let (key, options, identity) = (key.clone(), options.clone(), remote.identity.clone());
            let (addr, pinned, session) = (control.peer_addr, control.peer_key, welcome.session);
            let id = LaneId(granted.first.0 + n);
            tokio::task::spawn_blocking(move || {
                let mut stream = dial_lane(protection, addr, &identity, pinned, &options)?;
                join(&mut stream, &key, session, id)?;
                Ok(JoinedLane { id, stream })
            })
        };
        let dialling: Vec<_> = (0..granted.count).map(dial).collect();
        let mut lanes = Vec::with_capacity(dialling.len());
        for lane in dialling {
            lanes.push(lane.await.map_err(|e| Fault::new(FaultCode::Internal, Blame::Bug, e))??);
        }
        Ok(lanes)
    }

    fn machinery(&self, role: Role, slots: usize, lanes: u32, chunk: ChunkSize) -> Result<Machinery, Fault> {
        Machinery::start(role, Means { slots, lanes, depth: self.settings.depth, engine: self.settings.engine, chunk })
    }

    /// What a pull of these sources may bring.
    fn asked(&self, paths: &[RemotePath]) -> Asked {
        let mut asked = Asked::passing(self.settings.filter.clone());
        if !self.settings.preserve.links {
            asked = asked.without_links();
        }
        match (&self.settings.files_from, paths) {
            (Some(names), [source]) => {
                let own = if contents(source) { None } else { source.path.name() };
                asked.named(&own.and_then(|name| RelPath::new(name).ok()).unwrap_or_default(), names)
            }
            _ => asked,
        }
    }

    fn receiver_config(&self, landing: Landing, welcome: &Welcome) -> Config {
        Config {
            chunk: welcome.chunk,
            bundled_max: welcome.bundled_max,
            policy: Policy { if_exists: self.settings.if_exists, may_modify: true },
            landing,
            preserve: self.settings.preserve,
            dry_run: self.settings.dry_run,
            group: SyncGroup::default(),
        }
    }

    /// The link of a session with a daemon.
    fn link(&self, agreed: Agreed, direction: &'static str, slots: usize) -> Link {
        let protection = self.settings.protect.unwrap_or(Protection::Private);
        let wanted = self.settings.lanes.unwrap_or(LANES_DEFAULT);
        debug_assert!(agreed.lanes.len() <= budget::lanes(wanted, slots) as usize || agreed.lanes.is_empty());
        self.announce(direction, "tcp", &agreed.welcome, &agreed.lanes, protection, wanted);
        self.link_over(agreed.control.reader, agreed.control.writer, agreed.lanes, self.observer.clone())
    }

    /// The link of one half of a copy.
    fn half_link(&self, pipe: tokio::io::DuplexStream, lanes: Vec<JoinedLane>, observer: Arc<dyn Observer>) -> Link {
        let (reader, writer) = tokio::io::split(pipe);
        self.link_over(Box::new(reader), Box::new(writer), lanes, observer)
    }

    fn link_over(
        &self,
        reader: crate::control::ReadHalf,
        writer: crate::control::WriteHalf,
        lanes: Vec<JoinedLane>,
        observer: Arc<dyn Observer>,
    ) -> Link {
        let events = mpsc::unbounded_channel();
        for lane in lanes {
            let _ = events.0.send(session::Event::Lane(lane));
        }
        Link::start(LinkParts { reader, writer, observer, stop: self.stop.clone(), events })
    }

    fn announce(
        &self,
        direction: &'static str,
        transport: &'static str,
        welcome: &Welcome,
        lanes: &[JoinedLane],
        protection: Protection,
        wanted: u32,
    ) {
        let mut notes = Vec::new();
        if (lanes.len() as u32) < wanted {
            notes.push(format!("{} lanes instead of {wanted}: more do not fit the memory of one side", lanes.len()));
        }
        if protection == Protection::Safe && transport != "pair" {
            notes.push(
                "NOT ENCRYPTED: --protect safe, whoever is on the way can read the data; every chunk is verified"
                    .to_owned(),
            );
        }
        if transport == "pair" {
            notes.push(
                "between two local directories lanes are safe by definition: nothing leaves this process".to_owned(),
            );
        }
        self.observer.event(Event::Start(Start {
            session: welcome.session.iter().map(|b| format!("{b:02x}")).collect(),
            direction,
            transport,
            protect: protection,
            lanes: lanes.len() as u32,
            chunk: welcome.chunk,
            congestion: lanes.first().map_or_else(|| "-".to_owned(), |lane| lane.stream.congestion()),
            notes,
        }));
    }
}

/// A whole root is pulled as what lies in it: it has no name of its own beneath itself.
fn contents(source: &RemotePath) -> bool {
    source.slash || source.path.is_root()
}

/// Bytes in flight between the control channels of two halves of one process.
const CONTROL_PIPE_BYTES: usize = 256 << 10;

/// A control connection to a daemon whose key was judged.
pub(crate) async fn connect(remote: &Remote) -> Result<Control, Fault> {
    let host = if remote.host.contains(':') { format!("[{}]", remote.host) } else { remote.host.clone() };
    let addr = format!("{host}:{}", remote.port);
    let control = dial_control(&addr, &remote.identity, PeerCheck::Observe).await.map_err(|e| net_fault(&e))?;
    remote.trust.judge(&remote.host, remote.port, &control.peer_key)?;
    Ok(control)
}

fn dial_lane(
    protection: Protection,
    addr: std::net::SocketAddr,
    identity: &Identity,
    pinned: PublicKey,
    options: &LaneOptions,
) -> Result<LaneStream, Fault> {
    match protection {
        Protection::Private => LaneStream::dial_private(addr, identity, pinned, options),
        Protection::Safe => LaneStream::dial_safe(addr, options),
    }
    .map_err(|e| net_fault(&e))
}

/// Lanes between two halves of this process.
fn lane_pairs(protection: Protection, count: u32) -> Result<(Vec<JoinedLane>, Vec<JoinedLane>), Fault> {
    let identities = match protection {
        Protection::Safe => None,
        Protection::Private => {
            let new = || Identity::generate().map_err(|e| net_fault(&e));
            Some((new()?, new()?))
        }
    };
    let pair = |n: u32| {
        let (a, b) = match &identities {
            None => LaneStream::pair(),
            Some((a, b)) => LaneStream::pair_private(a, b),
        }
        .map_err(|e| net_fault(&e))?;
        Ok((JoinedLane { id: LaneId(n), stream: a }, JoinedLane { id: LaneId(n), stream: b }))
    };
    (0..count).map(pair).collect::<Result<Vec<_>, _>>().map(|pairs| pairs.into_iter().unzip())
}

/// The sender's half is the one observed; the receiver's adds what only it knows.
fn merge_halves(totals: &mut Totals, received: Totals) {
    if let Some(theirs) = received.fault {
        let ours = totals.fault.as_ref().map(|f| f.code);
        if ours.is_none_or(|code| matches!(code, FaultCode::Lost)) {
            totals.fault = Some(theirs);
        }
    }
    // One process: its CPU time cannot be told apart but by stage.
    let cpu_us = |stages: &[(&str, f64)]| Some((stages.iter().map(|(_, s)| s).sum::<f64>() * 1e6) as u64);
    totals.sender_cpu_us = cpu_us(&totals.stages);
    totals.receiver_cpu_us = cpu_us(&received.stages);
    totals.stages = totals.stages.iter().zip(&received.stages).map(|((name, a), (_, b))| (*name, a + b)).collect();
}

/// An observer for the half of a copy that nobody watches.
struct Nobody;

impl Observer for Nobody {
    fn event(&self, _event: api::Event) {}
}
