//! Races the ways that a lane may take to a far host: straight to it, back from it, or through ssh.
//!
//! In: the tunnel, the addresses to which ssh leads, and the far side's one-time key. Out: lanes
//! over the way that was found, or through the tunnel as long as there is none. The far host is
//! asked to dial back at a port that is open for as long as nobody has found a better way, and only
//! whoever holds the far side's key gets in there. It knows no sessions.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::Transport;
use longhaul_core::limits::HANDSHAKE_SECONDS_MAX;
use longhaul_net::{Identity, LaneOptions, LaneStream, NetError, Protection, PublicKey, ReverseListener, Tunnel};
use longhaul_proto::wire::ssh::SshSignal;
use tokio::io::AsyncWriteExt;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::process::SshProcess;
use crate::lanes::dial::paths::Chosen;
use crate::ssh::ConnectionKind;

/// The far side, as far as it is known.
pub(super) struct FarSide {
    /// Its one-time key.
    pub(super) key: PublicKey,
    /// Where it listens, by the addresses to which ssh leads.
    pub(super) to: Vec<SocketAddr>,
    /// These addresses.
    pub(super) addresses: Vec<IpAddr>,
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
    Straight(SocketAddr),
    /// The far host dials.
    Back,
}

/// See the module. When it is dropped, the far process ends.
pub(crate) struct Ways {
    near: NearSide,
    far: FarSide,
    /// `None` once the ways are closed.
    tunnel: Mutex<Option<Tunnel>>,
    process: Mutex<Option<SshProcess>>,
    signals: mpsc::UnboundedSender<SshSignal>,
    found: watch::Sender<Option<LaneWay>>,
    /// Lanes that were connected to find a way, and when.
    ready: Mutex<Vec<(LaneStream, Instant)>>,
    /// The port at which the far host may dial.
    back: Mutex<Option<Arc<ReverseListener>>>,
    runtime: Handle,
}

impl Ways {
    /// Begins to look for ways.
    pub(super) fn find(tunnel: Tunnel, process: SshProcess, far: FarSide, near: NearSide) -> Arc<Ways> {
        let (signals, to_say) = mpsc::unbounded_channel();
        tokio::spawn(say(tunnel.clone(), to_say));
        let ways = Arc::new(Ways {
            near,
            far,
            tunnel: Mutex::new(Some(tunnel)),
            process: Mutex::new(Some(process)),
            signals,
            found: watch::Sender::new(None),
            ready: Mutex::default(),
            back: Mutex::default(),
            runtime: Handle::current(),
        });
        for to in ways.far.to.clone() {
            ways.try_out(move |ways| {
                ways.straight(to, None, Transport::Tcp, None).map(|lane| (LaneWay::Straight(to), lane))
            });
        }
        if let Some(local) = ways.far.addresses.iter().find_map(|far| local_to(*far))
            && let Ok(back) = ReverseListener::bind(local, ways.near.ports.clone())
        {
            *lock(&ways.back) = Some(Arc::new(back));
            ways.try_out(|ways| ways.back().map(|lane| (LaneWay::Back, lane)));
        }
        ways
    }

    /// The address to dial first. `None` if none is known.
    pub(super) fn first(&self) -> Option<SocketAddr> {
        self.far.to.first().copied()
    }

    /// Connects a lane on a thread of its own, and tries again as long as there is no way; the
    /// first lane that stands is the way.
    fn try_out(
        self: &Arc<Ways>,
        connect: impl Fn(&Ways) -> Result<(LaneWay, LaneStream), NetError> + Clone + Send + 'static,
    ) {
        let (ways, mut wait) = (Arc::downgrade(self), AGAIN_FIRST);
        self.runtime.spawn(async move {
            while let Some(tried) = ways.upgrade().filter(|ways| !ways.has_way()) {
                let connect = connect.clone();
                // It must not keep the ways: nobody waits for a dial that is of no use any more.
                let trying = tokio::task::spawn_blocking(move || match connect(&tried) {
                    Ok((way, lane)) => tried.has_found(way, lane),
                    Err(error) => tracing::debug!(target: "longhaul::session", %error, "no way beside ssh there"),
                });
                if trying.await.is_err() {
                    return;
                }
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(AGAIN_MAX);
            }
        });
    }

    fn has_found(&self, way: LaneWay, lane: LaneStream) {
        let is_first = self.found.send_if_modified(|found| {
            let is_first = found.is_none();
            found.get_or_insert(way);
            is_first
        });
        if is_first {
            tracing::debug!(target: "longhaul::session", ?way, "a way beside ssh");
            lock(&self.ready).push((lane, Instant::now()));
        }
        if let LaneWay::Straight(_) = way
            && *self.found.borrow() == Some(way)
        {
            // Nobody shall dial back any more.
            *lock(&self.back) = None;
        }
    }

    /// Waits for a way for about as long as one takes to be found where no packet is lost.
    pub(super) async fn give_time(&self, round_trip: Duration) {
        let mut found = self.found.subscribe();
        let _ = timeout((round_trip * 2).clamp(WAY_WAIT_MIN, WAY_WAIT_MAX), found.wait_for(Option::is_some)).await;
    }

    /// Whether there is a way beside ssh.
    pub(crate) fn has_way(&self) -> bool {
        self.found.borrow().is_some()
    }

    /// Calls `then` once a way is found, unless these ways are dropped before.
    pub(crate) fn when_found(&self, then: impl FnOnce() + Send + 'static) {
        let mut found = self.found.subscribe();
        tokio::spawn(async move {
            if found.wait_for(Option::is_some).await.is_ok() {
                then();
            }
        });
    }

    /// Tells the far side that lanes over another way may be granted.
    pub(crate) fn tell_far_side(&self) -> impl FnOnce() + Send + 'static {
        let signals = self.signals.clone();
        move || {
            // Where the session is over, nobody needs to know.
            let _ = signals.send(SshSignal::WayFound);
        }
    }

    /// Connects a lane over `transport`: over the way that was found, and through ssh if there is
    /// none, or if it is of no use any more. Blocks.
    pub(crate) fn connect(
        &self,
        chosen: Option<&Chosen>,
        transport: Transport,
        segment_max: Option<u32>,
    ) -> Result<LaneStream, NetError> {
        let way = *self.found.borrow();
        let over_way = match (transport, way) {
            (Transport::Ssh, _) | (_, None) => return self.through_ssh(),
            (Transport::Tcp, Some(_)) if let Some(lane) = self.take_ready(segment_max) => return Ok(lane),
            (transport, Some(LaneWay::Straight(to))) => self.straight(to, chosen, transport, segment_max),
            (_, Some(LaneWay::Back)) => self.back(),
        };
        match over_way {
            Err(NetError::Unreachable { .. } | NetError::NoAnswer { .. } | NetError::TimedOut { .. })
                if transport == Transport::Tcp =>
            {
                self.through_ssh()
            }
            lane => lane,
        }
    }

    /// A lane that was connected to find the way, if it is not too old to join.
    fn take_ready(&self, segment_max: Option<u32>) -> Option<LaneStream> {
        let mut ready = lock(&self.ready);
        ready.retain(|(_, since)| since.elapsed() < READY_FOR);
        if segment_max.is_some() { None } else { ready.pop().map(|(lane, _)| lane) }
    }

    fn straight(
        &self,
        to: SocketAddr,
        chosen: Option<&Chosen>,
        transport: Transport,
        segment_max: Option<u32>,
    ) -> Result<LaneStream, NetError> {
        let (local, to) = chosen.map_or((None, to), |path| path.addresses(to));
        let options = LaneOptions { local, segment_max, ..self.near.options.clone() };
        LaneStream::dial((transport, self.near.protection), to, &self.near.identity, self.far.key, &options)
    }

    fn back(&self) -> Result<LaneStream, NetError> {
        let gone = || NetError::TimedOut { peer: "the other host".to_owned(), doing: "dialling back" };
        let back = lock(&self.back).clone().ok_or_else(gone)?;
        let _ = self.signals.send(SshSignal::DialBack { port: back.port() });
        back.lane(self.near.protection, &self.near.identity, self.far.key, DIAL_BACK)
    }

    fn through_ssh(&self) -> Result<LaneStream, NetError> {
        let gone = || NetError::Closed { peer: "the other host over ssh".to_owned() };
        let tunnel = lock(&self.tunnel).clone().ok_or_else(gone)?;
        let stream = self.runtime.block_on(open(&tunnel, ConnectionKind::Greeted))?;
        let failed = |source| NetError::Lost { peer: "the other host over ssh".to_owned(), source };
        let stream = stream.into_std().map_err(failed)?;
        stream.set_nonblocking(false).map_err(failed)?;
        let time = Duration::from_secs(HANDSHAKE_SECONDS_MAX);
        LaneStream::over_tunnel(stream, self.near.protection, &self.near.identity, self.far.key, time)
    }
}

impl Drop for Ways {
    fn drop(&mut self) {
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

async fn open(tunnel: &Tunnel, kind: ConnectionKind) -> Result<tokio::net::UnixStream, NetError> {
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

/// A way is waited for at least and at most so long before data begins through ssh.
const WAY_WAIT_MIN: Duration = Duration::from_millis(30);
const WAY_WAIT_MAX: Duration = Duration::from_millis(500);
/// The far side closes a lane that does not say where it belongs after 10 s.
const READY_FOR: Duration = Duration::from_secs(5);
/// The far side gets this long to dial back.
const DIAL_BACK: Duration = Duration::from_secs(HANDSHAKE_SECONDS_MAX);
/// How long the far process may take to end, after which ssh is killed.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// The wait before a way is tried again, which doubles up to the second.
const AGAIN_FIRST: Duration = Duration::from_secs(3);
const AGAIN_MAX: Duration = Duration::from_secs(60);
/// A port that stands for any: no packet goes there.
const DISCARD: u16 = 9;
