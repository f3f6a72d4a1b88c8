//! Reaches a daemon: dials, shows keys, asks, and has lanes dialled.
//!
//! In: a [`Remote`] and what is asked of it. Out: [`Agreed`] to the client, or a bare control
//! connection to `list`. Lanes are not waited for: the session begins, and they come to it. Knows
//! no disks and moves no payload.

use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::limits::HANDSHAKE_SECONDS_MAX;
use longhaul_core::{Blame, ChunkSize, Fault, FaultCode, PathShare, Role, Word};
use longhaul_disk::SyncMethod;
use longhaul_net::{
    Congestion, Control, LaneOptions, LaneStream, NetError, NetPath, PeerCheck, Protection, TransportFacts, WhenLong,
    dial_control_over,
};
use longhaul_proto::Message;
use longhaul_proto::tuning::Why;
use longhaul_proto::tuning::udp_lanes::UDP_LANES_MOST;
use longhaul_proto::wire::grant::SignedGrant;
use longhaul_proto::wire::message::{self, Far, Flow, Request, Transfer, Welcome};
use tokio::sync::mpsc;

use super::Run;
use super::ahead::{self, EarlyLanes};
use super::answer::{accept_answer, log_agreed};
use super::dialling::{LaneWays, UdpDoor, begin_over, udp_door};
use super::early_udp::EarlyUdp;
use super::retry::Patience;
use super::ssh::{self, NearSide, SshCosts, Ways};
use super::start_event::StartEvent;
use super::wish::Wish;
use crate::api::{Event, LanesChange, LanesReason, LanesTuned, Observer, Reach, Remote, Transport, Verify};
use crate::budget::{self, LANES_AUTO_MAX, LANES_EARLY, LANES_FAR, LANES_KNOWN_MAX, LANES_QUIC, LANES_UDP};
use crate::faults::dial_fault;
use crate::lanes::dial::paths::Chosen;
use crate::lanes::event::{LaneEvent, LaneListener};
use crate::lanes::join::try_path;
use crate::lanes::replace::Replacement;
use crate::lanes::udp::join::UdpTerms;
use crate::session;
use crate::session::handshake;
use crate::session::sender::first_page::FirstPage;
use crate::session::unasked::FirstFlight;

/// A session that was agreed on, its lanes being dialled.
pub(crate) struct Agreed {
    pub(crate) control: Control,
    /// The request, and the answer to it.
    pub(crate) transfer: Transfer,
    pub(crate) welcome: Welcome,
    /// Where lanes come in.
    pub(crate) events: (mpsc::UnboundedSender<session::SessionEvent>, mpsc::UnboundedReceiver<session::SessionEvent>),
    /// Lanes that there should be at first.
    pub(crate) granted: u32,
    /// Lanes that there may come to be.
    pub(crate) lanes_max: u32,
    /// Dials lanes of the session.
    pub(crate) replacement: Replacement,
    /// Hears of the session.
    pub(crate) telling: Arc<StartEvent>,
}

/// The part that all dials of one run share.
pub(crate) struct Dialling {
    /// Shown with each dial, so that the daemon knows the run's own earlier session.
    pub(crate) run: [u8; 16],
    pub(crate) patience: Patience,
    /// How what is pulled is made durable here.
    pub(crate) sync: Option<SyncMethod>,
    /// The page that is said right behind the hello of the first session, where this side sends.
    pub(crate) first: Option<FirstPage>,
    /// Sessions of the run so far.
    pub(crate) sessions: u64,
    /// The grant by which it fetches. `None`: by the rights of its own key.
    pub(crate) grant: Option<SignedGrant>,
}

impl Run {
    /// Dials, shows keys, asks, begins to dial lanes.
    pub(crate) async fn agree(
        &self,
        remote: &Remote,
        role: Role,
        wish: Wish,
        slots: usize,
        chunk_max: ChunkSize,
        dialling: &mut Dialling,
    ) -> Result<Agreed, Fault> {
        let mut stop = self.stop.clone();
        tokio::select! {
            biased;
            code = stop.stopped() => Err(Fault::new(code, Blame::Local, "stopped before the transfer began")),
            agreed = self.agree_unhurried(remote, role, wish, slots, chunk_max, dialling) => agreed,
        }
    }

    async fn agree_unhurried(
        &self,
        remote: &Remote,
        role: Role,
        wish: Wish,
        slots: usize,
        chunk_max: ChunkSize,
        dialling: &mut Dialling,
    ) -> Result<Agreed, Fault> {
        // No lane would join: nothing shall be begun.
        self.settings.congestion.try_over(self.transport())?;
        let (again, early, shown) = (dialling.patience.met(), EarlyLanes::default(), self.shown(role, dialling));
        // Nobody knows the key of lanes by a grant before that was heard.
        let is_first = !again && shown.grant.is_none();
        let when_long = (is_first && self.dials_early()).then(|| self.dial_early(remote, &early));
        let near = (self.near(), &self.ssh, when_long);
        let Reached { mut control, ways } = connect_over(remote, self.paths.as_slice(), again, Some(near)).await?;
        if !control.peer_addr.ip().is_unspecified() {
            self.paths.lead_to(control.peer_addr)?;
        }
        self.known.meet(&control).await;
        let broken = self.broken_for();
        let wanted = self.first_transport(ways.as_deref(), broken).await;
        let (lanes, lanes_max) = self.lanes_wanted(control.rtt, slots, wanted);
        let (lanes, transport) = lanes_over(ways.as_deref(), lanes, wanted);
        let mut transfer = self.transfer(role, wish.far.clone(), dialling.run, chunk_max, (lanes, lanes_max))?;
        begin_over(&mut transfer.flow, transport, (&wish, broken));
        let hello = handshake::hello(Request::Transfer(Box::new(transfer.clone())), wish.units);
        // On a long path their handshakes need not wait for the answer. A daemon that has an
        // earlier session to end takes its time.
        let connect = self.connect_of(remote, &control, ways.clone());
        let most = if ways.is_none() && self.dials_early() { LANES_EARLY } else { LANES_FAR };
        let count = if control.rtt >= budget::FAR && is_first && !self.settings.dry_run { lanes.min(most) } else { 0 };
        let (mut ahead, ahead_since) = early
            .take(&control)
            .unwrap_or_else(|| (ahead::connect(&connect, &self.paths, transport, count), Instant::now()));
        let udp_to = udp_door(&control, ways.clone());
        let early_udp = self.ask_early(&control, &udp_to, transport, count);
        let (first, asked) = (say_first(dialling, first_flight(&transfer, &control)).await, Instant::now());
        let wait = shown.patience(again.then_some(handshake::TAKE_OVER));
        let said = shown.around(hello).chain(wish.parts()).chain(first);
        let (welcome, granted) = handshake::ask(&mut control.reader, &mut control.writer, said, wait).await?;
        shown.need(&welcome).and_then(|()| handshake::need_udp(transport, &welcome, &granted))?;
        accept_answer(&mut transfer, &welcome, &granted)?;
        shown.claim.iter().for_each(|_| self.observer.claim_kept());
        dialling.patience.has_met();
        log_agreed(&welcome, &granted, self.protection(), asked.elapsed());
        let start = self.stands(again, role, (&welcome, &granted), dialling.sync);
        let telling = self.telling(start, (transport, granted.count), broken);
        // The acceptor waits so long for a lane to say where it belongs, or there are fewer than
        // were asked for.
        ahead.truncate(if ahead_since.elapsed() < AHEAD_MAX { granted.count as usize } else { 0 });
        let early_udp = early_udp.agreed(&welcome, &granted);
        let lane_ways = LaneWays { connect, udp_to, early_udp, flow: &transfer.flow };
        let dial = self.dial_of(&control, &welcome, lane_ways, ahead);
        let dialled = telling.clone();
        let replacement = Replacement::dialling(Arc::new(move |id, transport| {
            let joined = dial(id, transport);
            dialled.dialled(&joined);
            joined
        }));
        let events = mpsc::unbounded_channel();
        let listener: Arc<dyn LaneListener> = Arc::new(events.0.clone());
        replacement.dial_first(granted.first.0..granted.first.0 + granted.count, granted.transport, &listener);
        if let Some(ways) = ways {
            tell_of_ways(&ways, role, wanted, listener);
        }
        let lanes_max = welcome.lanes_max.min(lanes_max).max(granted.count);
        Ok(Agreed { control, transfer, welcome, events, granted: granted.count, lanes_max, replacement, telling })
    }

    /// Whether lanes may be dialled while the control connection is: encrypted ones over TCP, which
    /// need to know neither a key nor a session before their handshakes are over, to the one place
    /// that the route leads to.
    fn dials_early(&self) -> bool {
        let is_private_tcp = self.protection() == Protection::Private && self.transport() == message::Transport::Tcp;
        is_private_tcp && !self.settings.dry_run && self.paths.as_slice().is_empty()
    }

    /// Dials the first lanes with the control connection, once it shows that the path is long.
    fn dial_early(&self, remote: &Remote, early: &EarlyLanes) -> WhenLong {
        let count = self.settings.lanes.unwrap_or(LANES_EARLY).min(LANES_EARLY);
        early.when_long(remote.credentials.identity.clone(), self.near().1, count)
    }

    /// Asks for the first lanes of a session that is asked for now, if they go over UDP: their keys
    /// are those of the control connection.
    fn ask_early(&self, control: &Control, to: &UdpDoor, over: message::Transport, lanes: u32) -> EarlyUdp {
        let takes_one_way = over == message::Transport::Udp && self.paths.as_slice().is_empty();
        EarlyUdp::ask(to, &UdpTerms::of(control), if takes_one_way { lanes } else { 0 })
    }

    /// How many lanes to ask for at first, and at most, over a path of this round trip with so many
    /// buffers.
    pub(super) fn lanes_wanted(&self, rtt: Duration, slots: usize, over: message::Transport) -> (u32, u32) {
        let is_tcp = over == message::Transport::Tcp;
        let known = self.known.lanes().map(|lanes| lanes.min(LANES_KNOWN_MAX)).filter(|_| is_tcp);
        let (first, most) = match (over, known) {
            (message::Transport::Quic, _) => (LANES_QUIC, LANES_QUIC),
            // More where a thread is busy, or the session has to go back to TCP.
            (message::Transport::Udp, _) => (LANES_UDP, UDP_LANES_MOST),
            (_, Some(lanes)) => (lanes, LANES_AUTO_MAX),
            (_, None) => (budget::usual_lanes(rtt), LANES_AUTO_MAX),
        };
        let lanes_max = budget::lanes(self.settings.lanes.unwrap_or(most), slots);
        let lane_memory = TransportFacts::of(over).memory;
        let lanes_max = budget::lanes_with(lane_memory, lanes_max, self.settings.memory.get());
        let lanes = self.settings.lanes.unwrap_or(first).min(lanes_max);
        let why = match self.settings.lanes {
            Some(_) => "the settings ask for them, or the memory holds no more",
            None if known.is_some() => "an earlier run over this path did best with them",
            None if first == LANES_FAR => "a round trip of 5 ms or more begins with more",
            None => "the number to begin with",
        };
        tracing::debug!(target: "longhaul::session", lanes, at_most = lanes_max, why, "lanes are asked for");
        (lanes, lanes_max)
    }

    /// The request of a transfer in which this side has `role`.
    pub(super) fn transfer(
        &self,
        role: Role,
        far: Far,
        run: [u8; 16],
        chunk_max: ChunkSize,
        (lanes, lanes_max): (u32, u32),
    ) -> Result<Transfer, Fault> {
        Ok(Transfer {
            role,
            initiator: true,
            protect: handshake::to_wire(self.protection()),
            chunk: self.settings.chunk_size(),
            chunk_max,
            lanes,
            preserve: self.settings.metadata.preserve,
            dry_run: self.settings.dry_run,
            set: 0,
            far,
            run,
            read_back: self.settings.verify == Verify::Disk,
            flow: self.flow(lanes_max)?,
            digests: self.settings.digests && role == Role::Sender,
        })
    }

    /// This side of its lanes.
    fn near(&self) -> (Protection, LaneOptions) {
        (self.protection(), LaneOptions { congestion: self.settings.congestion.clone(), ..LaneOptions::default() })
    }

    /// How lanes of a session with a daemon are protected.
    pub(crate) fn protection(&self) -> Protection {
        self.settings.protect.unwrap_or(Protection::Private)
    }

    /// The transport of the first lanes.
    pub(crate) fn transport(&self) -> message::Transport {
        match self.settings.transport {
            Transport::Quic => message::Transport::Quic,
            Transport::Udp => message::Transport::Udp,
            Transport::Tcp | Transport::Auto => message::Transport::Tcp,
        }
    }

    /// The transport of the first lanes on these ways, or on the route to the host. Whoever asks
    /// for UDP where ssh leads has lanes over TCP, or through ssh, if no datagram comes: a way
    /// straight there is waited for a while, as only that carries any.
    async fn first_transport(&self, ways: Option<&Ways>, broken: Option<Duration>) -> message::Transport {
        let wanted = match broken {
            Some(_) => message::Transport::Tcp,
            None => self.transport(),
        };
        let Some(ways) = ways.filter(|_| wanted == message::Transport::Udp) else { return wanted };
        self.udp.has_others();
        if self.udp.is_closed() {
            return message::Transport::Tcp;
        }
        ways.wait(UDP_WAY_WAIT).await;
        if ways.carries(wanted) { wanted } else { message::Transport::Tcp }
    }

    /// The time for which no lane over UDP or QUIC is dialled on the path of now, as the breaker of
    /// an earlier session is open. `None` if one may be.
    fn broken_for(&self) -> Option<Duration> {
        self.known.past().broken_for(Instant::now())
    }

    /// Hears of a session that begins so, with lanes over this: also what it begins with because an
    /// earlier run left it, and why it begins over TCP, and stays there, if another transport was
    /// asked for or might be chosen.
    fn telling(
        &self,
        start: Event,
        (over, lanes): (message::Transport, u32),
        broken: Option<Duration>,
    ) -> Arc<StartEvent> {
        let telling = Arc::new(StartEvent::new(self.observer.clone(), start));
        let granted = Some(lanes).filter(|_| self.settings.lanes.is_none());
        let begun = self.known.begun(over, granted, &self.settings.congestion);
        begun.into_iter().for_each(|begun| telling.event(Event::Lanes(begun)));
        let is_free = over != self.transport() || self.may_change_transport() || self.may_mix_udp();
        if let Some(left) = broken.filter(|_| is_free && over == message::Transport::Tcp) {
            let reason = LanesReason::Search(Why::StillBroken { left });
            tracing::info!(target: "longhaul::session", %reason, "lanes go over TCP");
            telling.event(Event::Lanes(LanesTuned { seconds: 0.0, lanes, change: LanesChange::Tcp, reason }));
        }
        telling
    }

    /// Whether lanes may come to run over something else. QUIC has none without encryption, and
    /// other congestion controls; and it leaves others no part of the path.
    pub(crate) fn may_change_transport(&self) -> bool {
        self.settings.transport == Transport::Auto
            && self.settings.share == PathShare::All
            && self.protection() == Protection::Private
            && self.settings.congestion == Congestion::Auto
    }

    /// Whether lanes may run over UDP beside others over TCP, which are tried where TCP is held
    /// back, or to which the session goes back. They are always encrypted, have a control of their
    /// own, and take one path.
    fn may_mix_udp(&self) -> bool {
        let is_free = self.settings.congestion == Congestion::Auto;
        matches!(self.settings.transport, Transport::Auto | Transport::Udp)
            && is_free
            && self.protection() == Protection::Private
            && self.paths.as_slice().len() <= 1
    }

    /// How the data may flow.
    fn flow(&self, lanes_max: u32) -> Result<Flow, Fault> {
        let congestion = match &self.settings.congestion {
            Congestion::Auto => Word::default(),
            Congestion::Named(name) => Word::try_from(name.as_str()).map_err(|e| {
                Fault::new(FaultCode::Usage, Blame::Local, format_args!("not a congestion control: {e}"))
            })?,
        };
        let (transport, choose, share) = (self.transport(), self.may_change_transport(), self.settings.share);
        let exact_chunks = self.settings.chunk.is_some();
        let (knows_shared, takes_unasked, udp_beside_tcp) = (true, true, self.may_mix_udp());
        Ok(Flow {
            lanes_max,
            congestion,
            rate: self.settings.rate.unwrap_or(0),
            transport,
            choose,
            exact_chunks,
            share,
            knows_shared,
            udp_beside_tcp,
            takes_unasked,
            leaves_quic: true,
            tells_replaced: true,
        })
    }

    /// How lanes are connected, to whichever session they will belong.
    fn connect_of(&self, remote: &Remote, control: &Control, ways: Option<Arc<Ways>>) -> Connect {
        if let Some(ways) = ways {
            let (first, may_change) = (self.transport(), self.may_change_transport());
            return Arc::new(move |chosen, asked, segment_max| {
                let is_free = may_change || first != message::Transport::Tcp;
                let transport = if is_free || asked == message::Transport::Ssh { asked } else { first };
                tried(ways.connect(chosen, transport, segment_max)?)
            });
        }
        let (_, options) = self.near();
        let identity = remote.credentials.identity.clone();
        let (addr, pinned) = (control.peer_addr, control.peer_key);
        let several = self.paths.as_slice().len() > 1;
        let (protection, first, may_change) = (self.protection(), self.transport(), self.may_change_transport());
        Arc::new(move |chosen, asked, segment_max| {
            // What is granted is the other side's wish; what may be, this side's. A session goes
            // back from UDP and QUIC only to TCP.
            let is_free = may_change || first != message::Transport::Tcp;
            let transport = if is_free { asked } else { first };
            let (local, addr) = chosen.map_or((None, addr), |path| path.addresses(addr));
            let mut options = LaneOptions { local, segment_max, ..options.clone() };
            if transport == message::Transport::Tcp && first == message::Transport::Quic {
                // The user named one of QUIC's.
                options.congestion = Congestion::Auto;
            }
            if several {
                options.deadline = PATH_ANSWERS;
            }
            tried(LaneStream::dial((transport, protection), addr, &identity, pinned, &options)?)
        })
    }
}

/// The lanes of a session at first, and their transport: one through ssh as long as none of the
/// ways carries others.
fn lanes_over(ways: Option<&Ways>, lanes: u32, wanted: message::Transport) -> (u32, message::Transport) {
    match ways {
        Some(ways) if !ways.carries(wanted) => (1, message::Transport::Ssh),
        _ => (lanes, wanted),
    }
}

/// The first page of a push, with what goes before it. No message where none is to be said.
async fn say_first(dialling: &mut Dialling, flight: FirstFlight) -> Vec<Message> {
    match &mut dialling.first {
        Some(first) => first.take(flight).await,
        None => Vec::new(),
    }
}

/// The flight in which the first page of a push shall fit.
fn first_flight(transfer: &Transfer, control: &Control) -> FirstFlight {
    let takes = control.takes_unasked && !transfer.read_back && !transfer.dry_run;
    let flight = FirstFlight::over(control.rtt, control.segment_bytes);
    if takes { flight.with_files() } else { flight }
}

/// A lane whose path was tried, if that is to be done before it joins.
fn tried(mut stream: LaneStream) -> Result<LaneStream, NetError> {
    try_path(&mut stream)?;
    Ok(stream)
}

/// Connects a lane over a path, over what, with segments no larger than that, and tries the path;
/// blocks for as long as that takes.
pub(super) type Connect =
    Arc<dyn Fn(Option<&Chosen>, message::Transport, Option<u32>) -> Result<LaneStream, NetError> + Send + Sync>;
/// How lanes are protected, and their options; where is counted what ssh costs; and who hears that
/// the path is long.
type Near<'a> = ((Protection, LaneOptions), &'a SshCosts, Option<WhenLong>);

/// Has the session hear when lanes over `wanted` need not go over ssh any more, and the far side,
/// if that sends.
fn tell_of_ways(ways: &Arc<Ways>, role: Role, wanted: message::Transport, listener: Arc<dyn LaneListener>) {
    match role {
        Role::Sender => ways.when_found(wanted, move || listener.hear(LaneEvent::WayFound(wanted))),
        Role::Receiver => {
            let tell = ways.tell_far_side(wanted);
            ways.when_found(wanted, move || {
                listener.hear(LaneEvent::WayFound(wanted));
                tell();
            });
        }
    }
}

/// A control connection to a daemon whose key was judged.
pub(crate) async fn connect(remote: &Remote) -> Result<Reached, Fault> {
    connect_over(remote, &[], false, None).await
}

/// A daemon that was reached.
pub(crate) struct Reached {
    /// Its control connection.
    pub(crate) control: Control,
    /// The ways of lanes to it, if it was reached by ssh.
    pub(crate) ways: Option<Arc<Ways>>,
}

/// Dials, for the first time in this run or `again`. Without `near`, no lanes will be wanted.
async fn connect_over(
    remote: &Remote,
    paths: &[NetPath],
    again: bool,
    near: Option<Near<'_>>,
) -> Result<Reached, Fault> {
    let (host, port) = match &remote.reach {
        Reach::Address { host, port } => (host, port),
        Reach::Ssh(host) => {
            let has_lanes = near.is_some();
            let uncounted = SshCosts::default();
            let ((protection, options), costs, _) =
                near.unwrap_or(((Protection::Private, LaneOptions::default()), &uncounted, None));
            let (identity, ports) = (remote.credentials.identity.clone(), host.ports.map(|(low, high)| low..=high));
            let near = NearSide { identity, protection, options, ports };
            let (mut control, ways) = ssh::dial(host, &remote.credentials, near, paths, costs).await?;
            if has_lanes {
                ways.find();
                control.rtt = ways.give_time().await;
            }
            return Ok(Reached { control, ways: Some(ways) });
        }
    };
    let (at, identity) = (remote.reach.to_string(), &remote.credentials.identity);
    let when_long = near.and_then(|(_, _, when_long)| when_long);
    let dialled = dial_control_over(&at, paths, identity, PeerCheck::Observe, when_long).await;
    let control = dialled.map_err(|e| dial_fault(&e, again))?;
    tracing::debug!(
        target: "longhaul::session",
        peer = %control.peer_addr,
        from = %control.local_addr,
        round_trip_ms = control.rtt.as_micros() as f64 / 1000.0,
        "connected over TCP, keys are proved"
    );
    remote.credentials.trust.judge(host, *port, &control.peer_key)?;
    Ok(Reached { control, ways: None })
}

/// A lane that was connected longer ago than this is not used: the daemon closes it 10 s after its
/// handshake.
const AHEAD_MAX: Duration = Duration::from_secs(HANDSHAKE_SECONDS_MAX / 2);
/// A way beside ssh is waited for so long where lanes over UDP were asked for.
const UDP_WAY_WAIT: Duration = Duration::from_secs(2);
/// Where there are several paths, one that does not answer a lane within this is left for now.
const PATH_ANSWERS: Duration = Duration::from_secs(4);
