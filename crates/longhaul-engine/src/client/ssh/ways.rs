//! Races the ways that a lane may take to a far host: straight to it, back from it, or through ssh.
//!
//! In: the tunnel, the addresses to which ssh leads, and the far side's one-time key. Out: lanes
//! over the way that was found, or through the tunnel as long as there is none. A way over which no
//! lane comes to stand any more is forgotten and looked for again. The far host is asked to dial
//! back at a port that is open only while a lane is expected there, and only whoever holds the far
//! side's key gets in. It knows no sessions.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use longhaul_core::Transport;
use longhaul_core::limits::HANDSHAKE_SECONDS_MAX;
use longhaul_net::{
    Identity, LaneOptions, LaneStream, NetError, NetPath, Protection, PublicKey, ReverseListener, Tunnel,
};
use longhaul_proto::wire::ssh::SshSignal;
use tokio::io::AsyncWriteExt;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::cost::{CostPlace, SshCosts};
use super::process::SshProcess;
use crate::lanes::dial::paths::Chosen;
use crate::ssh::ConnectionKind;

/// The far side, as far as it is known.
pub(super) struct FarSide {
    /// Its one-time key.
    pub(super) key: PublicKey,
    /// Where it listens.
    pub(super) doors: Vec<FarDoor>,
    /// The addresses to which ssh leads.
    pub(super) addresses: Vec<IpAddr>,
}

/// An address at which the far side accepts lanes, and the one of this host from which it is
/// dialled (`None`: the route chooses).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FarDoor {
    local: Option<IpAddr>,
    to: SocketAddr,
}

impl FarDoor {
    /// The doors of a far side that listens at this port: those of the paths that the user gave, or
    /// else those to which ssh leads. No other host is dialled.
    pub(super) fn all(port: u16, addresses: &[IpAddr], paths: &[NetPath]) -> Vec<FarDoor> {
        let of_route = [NetPath::default()];
        let paths = if paths.is_empty() { &of_route[..] } else { paths };
        let doors = paths.iter().flat_map(|path| {
            let to: Vec<IpAddr> = match path.remote {
                Some(remote) => vec![remote],
                None => addresses.iter().copied().filter(|to| is_alike(path.local, *to)).collect(),
            };
            to.into_iter().map(|to| FarDoor { local: path.local, to: SocketAddr::new(to, port) })
        });
        doors.collect()
    }
}

fn is_alike(local: Option<IpAddr>, to: IpAddr) -> bool {
    local.is_none_or(|local| local.is_ipv4() == to.is_ipv4())
}

/// This side of the lanes.
#[derive(Clone)]
pub(crate) struct NearSide {
    /// This run's one-time key.
    pub(crate) identity: Arc<Identity>,
    /// How lanes are protected.
    pub(crate) protection: Protection,
    /// Their options.
    pub(crate) options: LaneOptions,
    /// The ports of which one is listened at.
    pub(crate) ports: Option<RangeInclusive<u16>>,
}

/// A way beside ssh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaneWay {
    /// The far host is dialled at this address.
    Straight(FarDoor),
    /// The far host dials.
    Back,
}

/// Connects lanes: all that is needed for it but the tunnel.
struct LaneDialer {
    near: NearSide,
    far: FarSide,
    signals: mpsc::UnboundedSender<SshSignal>,
    /// The address of this host at which the far host may dial. `None` if it need not.
    back_at: Mutex<Option<IpAddr>>,
    /// The port at which lanes from there are expected now.
    back: Mutex<Weak<ReverseListener>>,
}

/// The way that was found, and lanes that were connected to find it.
#[derive(Default)]
struct FoundWay {
    way: watch::Sender<Option<LaneWay>>,
    /// Dials straight to the far host that failed.
    failed: watch::Sender<usize>,
    ready: Mutex<Vec<(LaneStream, Instant)>>,
    /// Lanes that did not come to stand over the way since the last one that did.
    refused: AtomicUsize,
}

/// See the module. When it is dropped, the far process ends.
pub(crate) struct Ways {
    dialer: Arc<LaneDialer>,
    found: Arc<FoundWay>,
    /// `None` once the ways are closed.
    tunnel: Mutex<Option<Tunnel>>,
    process: Mutex<Option<SshProcess>>,
    /// Lanes that were connected through ssh so far.
    through: Arc<AtomicUsize>,
    cost: CostPlace,
    runtime: Handle,
}

impl Ways {
    /// Takes over an ssh session. It looks for no way yet.
    pub(super) fn new(
        tunnel: Tunnel,
        process: SshProcess,
        far: FarSide,
        near: NearSide,
        costs: &SshCosts,
    ) -> Arc<Ways> {
        let (signals, to_say) = mpsc::unbounded_channel();
        tokio::spawn(say(tunnel.clone(), to_say));
        Arc::new(Ways {
            dialer: Arc::new(LaneDialer { near, far, signals, back_at: Mutex::default(), back: Mutex::default() }),
            found: Arc::default(),
            through: Arc::default(),
            cost: costs.enter(tunnel.clone(), process.id()),
            tunnel: Mutex::new(Some(tunnel)),
            process: Mutex::new(Some(process)),
            runtime: Handle::current(),
        })
    }

    /// Begins to look for ways.
    pub(crate) fn find(self: &Arc<Ways>) {
        self.find_after(Duration::ZERO);
    }

    fn find_after(self: &Arc<Ways>, pause: Duration) {
        let far = &self.dialer.far;
        for door in far.doors.clone() {
            let found = Arc::downgrade(&self.found);
            self.try_out(tokio::time::sleep(pause), move |dialer| {
                let lane = dialer.straight((door.local, door.to), Transport::Tcp, Protection::Private, None);
                let failed = |_: &NetError| found.upgrade().into_iter().for_each(|f| f.failed.send_modify(|n| *n += 1));
                lane.map(|lane| (LaneWay::Straight(door), lane)).inspect_err(failed)
            });
        }
        if let Some(local) = far.addresses.iter().find_map(|far| local_to(*far)) {
            *lock(&self.dialer.back_at) = Some(local);
            // A straight way is the better one, and is there by then where no packet is lost.
            let mut failed = self.found.failed.subscribe();
            let (straight, failed_before) = (far.doors.len(), *failed.borrow());
            let first = async move {
                tokio::time::sleep(pause).await;
                let all = failed.wait_for(|failed| *failed >= failed_before + straight);
                let _ = timeout(BACK_AFTER, all).await;
            };
            self.try_out(first, |dialer| dialer.back(Protection::Private).map(|lane| (LaneWay::Back, lane)));
        }
    }

    /// The address to dial first. `None` if none is known.
    pub(super) fn first(&self) -> Option<SocketAddr> {
        self.dialer.far.doors.first().map(|door| door.to)
    }

    /// Connects a lane on a thread of its own, and tries again as long as there is no way. The far
    /// side has shown its key on a lane that stands, so that nobody else is taken for it.
    fn try_out(
        self: &Arc<Ways>,
        first: impl Future<Output = ()> + Send + 'static,
        connect: impl Fn(&LaneDialer) -> Result<(LaneWay, LaneStream), NetError> + Clone + Send + 'static,
    ) {
        // A dial that is under way must not keep the session from its end.
        let (ways, mut wait) = (Arc::downgrade(self), AGAIN_FIRST);
        let mut way = self.found.way.subscribe();
        self.runtime.spawn(async move {
            first.await;
            while let Some(tried) = ways.upgrade().filter(|ways| ways.way().is_none()) {
                let (dialer, found, connect) = (tried.dialer.clone(), tried.found.clone(), connect.clone());
                drop(tried);
                let trying = tokio::task::spawn_blocking(move || match connect(&dialer) {
                    Ok((way, lane)) => found.take(way, lane, &dialer),
                    Err(error) => tracing::debug!(target: "longhaul::session", %error, "no way beside ssh there"),
                });
                if trying.await.is_err() {
                    return;
                }
                // It ends with the ways, or when there is one.
                if timeout(wait, way.wait_for(Option::is_some)).await.is_ok() {
                    return;
                }
                wait = (wait * 2).min(AGAIN_MAX);
            }
        });
    }

    fn way(&self) -> Option<LaneWay> {
        *self.found.way.borrow()
    }

    /// Waits for a way for as long as one takes to be found on a path that is short, so that ssh
    /// carries nothing there, and no longer: on any other path data begins through ssh. Gives about
    /// the round trip of the way, or the least that it may be where none was found.
    pub(crate) async fn give_time(&self) -> Duration {
        let begun = Instant::now();
        self.wait(WAY_WAIT).await;
        // One for the connection, and one for the keys.
        begun.elapsed() / 2
    }

    /// Waits for a way for so long.
    pub(crate) async fn wait(&self, at_most: Duration) {
        let mut found = self.found.way.subscribe();
        let _ = timeout(at_most, found.wait_for(Option::is_some)).await;
    }

    /// The ends of the way straight to the other host, if there is one now.
    pub(crate) fn straight(&self) -> Option<(Option<IpAddr>, SocketAddr)> {
        let Some(LaneWay::Straight(door)) = self.way() else { return None };
        Some((door.local, door.to))
    }

    /// Whether lanes over `transport` have a way beside ssh.
    pub(crate) fn carries(&self, transport: Transport) -> bool {
        self.way().is_some_and(|way| way.carries(transport))
    }

    /// Calls `then` whenever lanes over `transport` have found a way, until these ways are dropped,
    /// and again if lanes were connected through ssh meanwhile: those that were on their way there.
    pub(crate) fn when_found(&self, transport: Transport, then: impl Fn() + Send + 'static) {
        let (mut found, through) = (self.found.way.subscribe(), self.through.clone());
        tokio::spawn(async move {
            let is_one = |way: &Option<LaneWay>| way.is_some_and(|way| way.carries(transport));
            while found.wait_for(is_one).await.is_ok() {
                let before = through.load(Ordering::Relaxed);
                then();
                let went_another = async {
                    while through.load(Ordering::Relaxed) == before {
                        tokio::time::sleep(AGAIN_FIRST).await;
                    }
                };
                tokio::select! {
                    lost = found.wait_for(Option::is_none) => if lost.is_err() { return },
                    () = went_another => {}
                }
            }
        });
    }

    /// Tells the far side that lanes over `transport` may be granted.
    pub(crate) fn tell_far_side(&self, transport: Transport) -> impl Fn() + Send + 'static {
        let signals = self.dialer.signals.clone();
        move || {
            // Where the session is over, nobody needs to know.
            let _ = signals.send(SshSignal::WayFound(transport));
        }
    }

    /// Connects a lane over `transport`: over the way that was found, and through ssh if there is
    /// none, or if it is of no use any more. Blocks.
    pub(crate) fn connect(
        self: &Arc<Ways>,
        chosen: Option<&Chosen>,
        transport: Transport,
        segment_max: Option<u32>,
    ) -> Result<LaneStream, NetError> {
        let protection = self.dialer.near.protection;
        let over_way = match (transport, self.way()) {
            (Transport::Ssh, _) | (_, None) => return self.through_ssh(),
            (Transport::Tcp, Some(_)) if let Some(lane) = self.found.take_ready(segment_max, protection, chosen) => {
                return Ok(lane);
            }
            (transport, Some(LaneWay::Straight(door))) => {
                let ends = chosen.map_or((door.local, door.to), |path| path.addresses(door.to));
                self.dialer.straight(ends, transport, protection, segment_max)
            }
            (Transport::Tcp, Some(LaneWay::Back)) => self.dialer.back(protection),
            (_, Some(LaneWay::Back)) => Err(NetError::Unreachable {
                peer: "the other host".to_owned(),
                source: io::Error::new(io::ErrorKind::Unsupported, "it dials back over TCP alone"),
            }),
        };
        match over_way {
            Err(NetError::Unreachable { .. } | NetError::NoAnswer { .. } | NetError::TimedOut { .. })
                if transport == Transport::Tcp && self.give_up(chosen) =>
            {
                self.through_ssh()
            }
            lane => {
                if lane.is_ok() {
                    self.found.refused.store(0, Ordering::Relaxed);
                }
                lane
            }
        }
    }

    /// Forgets the way and looks for one again, if no lane came to stand over any path of late.
    /// Returns false if other paths are to be tried first.
    fn give_up(self: &Arc<Ways>, chosen: Option<&Chosen>) -> bool {
        let refused = self.found.refused.fetch_add(1, Ordering::Relaxed) + 1;
        if refused < chosen.map_or(1, Chosen::siblings) {
            return false;
        }
        // Several dials may fail at the same time: one of them begins to look.
        if self.found.forget() {
            tracing::debug!(target: "longhaul::session", "the way beside ssh carries nothing any more");
            let (ways, runtime) = (self.clone(), self.runtime.clone());
            runtime.spawn(async move { ways.find_after(AGAIN_FIRST) });
        }
        true
    }

    fn through_ssh(&self) -> Result<LaneStream, NetError> {
        let gone = || NetError::Closed { peer: "the other host over ssh".to_owned() };
        let tunnel = lock(&self.tunnel).clone().ok_or_else(gone)?;
        let stream = self.runtime.block_on(open(&tunnel, ConnectionKind::Greeted))?;
        let failed = |source| NetError::Lost { peer: "the other host over ssh".to_owned(), source };
        let stream = stream.into_std().map_err(failed)?;
        stream.set_nonblocking(false).map_err(failed)?;
        let time = Duration::from_secs(HANDSHAKE_SECONDS_MAX);
        let LaneDialer { near, far, .. } = &*self.dialer;
        self.through.fetch_add(1, Ordering::Relaxed);
        LaneStream::over_tunnel(stream, near.protection, &near.identity, far.key, time)
    }
}

impl LaneWay {
    /// Whether lanes over `transport` can go this way.
    fn carries(self, transport: Transport) -> bool {
        match self {
            LaneWay::Straight(_) => true,
            LaneWay::Back => transport == Transport::Tcp,
        }
    }
}

impl FoundWay {
    /// Takes a way over which a lane was connected. A straight one is better than one back.
    fn take(&self, way: LaneWay, lane: LaneStream, dialer: &LaneDialer) {
        let is_new = self.way.send_if_modified(|found| {
            let is_better = match (&found, way) {
                (None, _) => true,
                (Some(LaneWay::Back), LaneWay::Straight(_)) => true,
                (Some(_), _) => false,
            };
            if is_better {
                *found = Some(way);
            }
            is_better
        });
        if !is_new {
            return;
        }
        tracing::debug!(target: "longhaul::session", ?way, "a way beside ssh");
        lock(&self.ready).push((lane, Instant::now()));
        if let LaneWay::Straight(_) = way {
            // Nobody shall dial back any more.
            *lock(&dialer.back_at) = None;
        }
    }

    /// Forgets the way. Returns false if there was none.
    fn forget(&self) -> bool {
        lock(&self.ready).clear();
        self.refused.store(0, Ordering::Relaxed);
        self.way.send_if_modified(|way| way.take().is_some())
    }

    /// A lane that was connected to find the way, if it is not too old to join. It took the first
    /// path, so that it is none for a path that was `chosen`.
    fn take_ready(
        &self,
        segment_max: Option<u32>,
        protection: Protection,
        chosen: Option<&Chosen>,
    ) -> Option<LaneStream> {
        let mut ready = lock(&self.ready);
        ready.retain(|(_, since)| since.elapsed() < READY_FOR);
        let is_fit = segment_max.is_none() && protection == Protection::Private && chosen.is_none();
        if is_fit { ready.pop().map(|(lane, _)| lane) } else { None }
    }
}

impl LaneDialer {
    fn straight(
        &self,
        (local, to): (Option<IpAddr>, SocketAddr),
        transport: Transport,
        protection: Protection,
        segment_max: Option<u32>,
    ) -> Result<LaneStream, NetError> {
        // Ssh is there for a lane that has no answer in this time.
        let options = LaneOptions { local, segment_max, deadline: STRAIGHT_ANSWERS, ..self.near.options.clone() };
        LaneStream::dial((transport, protection), to, &self.near.identity, self.far.key, &options)
    }

    fn back(&self, protection: Protection) -> Result<LaneStream, NetError> {
        // It closes when the last lane that is expected has come or is waited for no more.
        let back = self.listen()?;
        let _ = self.signals.send(SshSignal::DialBack { port: back.port() });
        let congestion = &self.near.options.congestion;
        back.lane((protection, congestion), &self.near.identity, self.far.key, STRAIGHT_ANSWERS)
    }

    /// The port that is listened at already, or else a new one.
    fn listen(&self) -> Result<Arc<ReverseListener>, NetError> {
        let gone = || NetError::TimedOut { peer: "the other host".to_owned(), doing: "dialling back" };
        let at = lock(&self.back_at).ok_or_else(gone)?;
        let mut back = lock(&self.back);
        if let Some(open) = back.upgrade() {
            return Ok(open);
        }
        let open = Arc::new(ReverseListener::bind(at, self.near.ports.clone())?);
        *back = Arc::downgrade(&open);
        Ok(open)
    }
}

impl Drop for Ways {
    fn drop(&mut self) {
        self.cost.end();
        let (tunnel, process) = (lock(&self.tunnel).take(), lock(&self.process).take());
        let (Some(tunnel), Some(mut process)) = (tunnel, process) else { return };
        self.runtime.spawn(async move {
            // The last words pass before the pipe is closed, by which the far process ends.
            let _ = timeout(LAST_WORDS, tunnel.is_idle()).await;
            drop(tunnel);
            let status = process.end(LAST_WORDS).await;
            tracing::debug!(target: "longhaul::session", ?status, "ssh has ended");
        });
    }
}

/// Opens a connection of this kind.
pub(super) async fn open(tunnel: &Tunnel, kind: ConnectionKind) -> Result<tokio::net::UnixStream, NetError> {
    let mut stream = tunnel.open().await?;
    let failed = |source| NetError::Lost { peer: "the other host over ssh".to_owned(), source };
    stream.write_all(&[kind.byte()]).await.map_err(failed)?;
    Ok(stream)
}

/// Says the signals of a session, for as long as there may be any.
async fn say(tunnel: Tunnel, mut signals: mpsc::UnboundedReceiver<SshSignal>) {
    let Ok(mut stream) = open(&tunnel, ConnectionKind::Signals).await else { return };
    // It must not keep the tunnel.
    drop(tunnel);
    while let Some(signal) = signals.recv().await {
        if stream.write_all(&signal.encode()).await.is_err() {
            return;
        }
    }
}

/// The address of this host from which packets to `far` leave. Nothing is sent to find out.
fn local_to(far: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = if far.is_ipv4() { [0, 0, 0, 0].into() } else { std::net::Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect((far, DISCARD)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn lock<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A way is waited for so long before data begins through ssh: more than any handshakes take that
/// are not far away, and little beside the round trips of a path on which they are.
const WAY_WAIT: Duration = Duration::from_millis(25);
/// The far side closes a lane that does not say where it belongs after 10 s.
const READY_FOR: Duration = Duration::from_secs(5);
/// A lane that is dialled, or for which the far side is to dial, has this long to stand.
const STRAIGHT_ANSWERS: Duration = Duration::from_secs(4);
/// The far host is asked to dial back after this, if it can be dialled itself.
const BACK_AFTER: Duration = Duration::from_millis(250);
/// How long the far process may take to end, after which ssh is killed.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The wait before a way is tried again, which doubles up to the second.
const AGAIN_FIRST: Duration = Duration::from_secs(3);
const AGAIN_MAX: Duration = Duration::from_secs(60);
/// A port that stands for any: no packet goes there.
const DISCARD: u16 = 9;
