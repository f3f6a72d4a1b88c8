//! Races the ways that a lane may take to a far host: straight to it, back from it, or through ssh.
//!
//! In: the tunnel, the addresses to which ssh leads, and the far side's one-time key. Out: lanes
//! over the way that was found, or through the tunnel as long as there is none. The far host is
//! asked to dial back at a port that is open for as long as nobody has found a better way, and only
//! whoever holds the far side's key gets in there. It knows no sessions.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::ops::{ControlFlow, RangeInclusive};
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

/// Connects lanes: all that is needed for it but the tunnel.
struct LaneDialer {
    near: NearSide,
    far: FarSide,
    signals: mpsc::UnboundedSender<SshSignal>,
    /// The port at which the far host may dial. `None` if it need not.
    back: Mutex<Option<Arc<ReverseListener>>>,
}

/// The way that was found, and lanes that were connected to find it.
#[derive(Default)]
struct FoundWay {
    way: watch::Sender<Option<LaneWay>>,
    /// Dials straight to the far host that failed.
    failed: watch::Sender<usize>,
    ready: Mutex<Vec<(LaneStream, Instant)>>,
}

/// See the module. When it is dropped, the far process ends.
pub(crate) struct Ways {
    dialer: Arc<LaneDialer>,
    found: Arc<FoundWay>,
    /// `None` once the ways are closed.
    tunnel: Mutex<Option<Tunnel>>,
    process: Mutex<Option<SshProcess>>,
    runtime: Handle,
}

impl Ways {
    /// Takes over an ssh session. It looks for no way yet.
    pub(super) fn new(tunnel: Tunnel, process: SshProcess, far: FarSide, near: NearSide) -> Arc<Ways> {
        let (signals, to_say) = mpsc::unbounded_channel();
        tokio::spawn(say(tunnel.clone(), to_say));
        Arc::new(Ways {
            dialer: Arc::new(LaneDialer { near, far, signals, back: Mutex::default() }),
            found: Arc::default(),
            tunnel: Mutex::new(Some(tunnel)),
            process: Mutex::new(Some(process)),
            runtime: Handle::current(),
        })
    }

    /// Begins to look for ways.
    pub(crate) fn find(self: &Arc<Ways>) {
        let far = &self.dialer.far;
        for to in far.to.clone() {
            self.try_out(std::future::ready(()), move |dialer, found| {
                let lane = dialer.straight((to, None), Transport::Tcp, Protection::Private, None);
                lane.map(|lane| (LaneWay::Straight(to), lane)).inspect_err(|_| found.failed.send_modify(|n| *n += 1))
            });
        }
        if let Some(local) = far.addresses.iter().find_map(|far| local_to(*far))
            && let Ok(back) = ReverseListener::bind(local, self.dialer.near.ports.clone())
        {
            *lock(&self.dialer.back) = Some(Arc::new(back));
            // A straight way is the better one, and is there by then where no packet is lost.
            let (mut failed, straight) = (self.found.failed.subscribe(), far.to.len());
            let first = async move {
                let _ = timeout(BACK_AFTER, failed.wait_for(|failed| *failed >= straight)).await;
            };
            self.try_out(first, |dialer, _| dialer.back(Protection::Private).map(|lane| (LaneWay::Back, lane)));
        }
    }

    /// The address to dial first. `None` if none is known.
    pub(super) fn first(&self) -> Option<SocketAddr> {
        self.dialer.far.to.first().copied()
    }

    /// Connects a lane on a thread of its own, and tries again as long as there is no way. The far
    /// side has shown its key on a lane that stands, so that nobody else is taken for it.
    fn try_out(
        self: &Arc<Ways>,
        first: impl Future<Output = ()> + Send + 'static,
        connect: impl Fn(&LaneDialer, &FoundWay) -> Result<(LaneWay, LaneStream), NetError> + Clone + Send + 'static,
    ) {
        // A dial that is under way must not keep the session from its end.
        let (ways, over) = (Arc::downgrade(self), self.found.way.subscribe());
        let mut wait = AGAIN_FIRST;
        self.runtime.spawn(async move {
            first.await;
            while let Some(tried) = ways.upgrade().filter(|ways| ways.way().is_none()) {
                let (dialer, found, connect) = (tried.dialer.clone(), tried.found.clone(), connect.clone());
                drop(tried);
                let trying = tokio::task::spawn_blocking(move || match connect(&dialer, &found) {
                    Ok((way, lane)) => found.take(way, lane, &dialer),
                    Err(error) => tracing::debug!(target: "longhaul::session", %error, "no way beside ssh there"),
                });
                if trying.await.is_err() || sleep_unless_over(wait, over.clone()).await.is_break() {
                    return;
                }
                wait = (wait * 2).min(AGAIN_MAX);
            }
        });
    }

    fn way(&self) -> Option<LaneWay> {
        *self.found.way.borrow()
    }

    /// Waits for a way for about as long as one takes to be found where no packet is lost.
    pub(crate) async fn give_time(&self, round_trip: Duration) {
        let mut found = self.found.way.subscribe();
        let _ = timeout((round_trip * 2).clamp(WAY_WAIT_MIN, WAY_WAIT_MAX), found.wait_for(Option::is_some)).await;
    }

    /// Whether lanes over `transport` have a way beside ssh.
    pub(crate) fn carries(&self, transport: Transport) -> bool {
        self.way().is_some_and(|way| way.carries(transport))
    }

    /// Calls `then` once lanes over `transport` have a way, unless these ways are dropped before.
    pub(crate) fn when_found(&self, transport: Transport, then: impl FnOnce() + Send + 'static) {
        let mut found = self.found.way.subscribe();
        tokio::spawn(async move {
            let is_one = |way: &Option<LaneWay>| way.is_some_and(|way| way.carries(transport));
            if found.wait_for(is_one).await.is_ok() {
                then();
            }
        });
    }

    /// Tells the far side that lanes over `transport` may be granted.
    pub(crate) fn tell_far_side(&self, transport: Transport) -> impl FnOnce() + Send + 'static {
        let signals = self.dialer.signals.clone();
        move || {
            // Where the session is over, nobody needs to know.
            let _ = signals.send(SshSignal::WayFound(transport));
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
        let protection = self.dialer.near.protection;
        let over_way = match (transport, self.way()) {
            (Transport::Ssh, _) | (_, None) => return self.through_ssh(),
            (Transport::Tcp, Some(_)) if let Some(lane) = self.found.take_ready(segment_max, protection) => {
                return Ok(lane);
            }
            (transport, Some(LaneWay::Straight(to))) => {
                self.dialer.straight((to, chosen), transport, protection, segment_max)
            }
            (Transport::Tcp, Some(LaneWay::Back)) => self.dialer.back(protection),
            (_, Some(LaneWay::Back)) => Err(NetError::Unreachable {
                peer: "the other host".to_owned(),
                source: io::Error::new(io::ErrorKind::Unsupported, "it dials back over TCP alone"),
            }),
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

    fn through_ssh(&self) -> Result<LaneStream, NetError> {
        let gone = || NetError::Closed { peer: "the other host over ssh".to_owned() };
        let tunnel = lock(&self.tunnel).clone().ok_or_else(gone)?;
        let stream = self.runtime.block_on(open(&tunnel, ConnectionKind::Greeted))?;
        let failed = |source| NetError::Lost { peer: "the other host over ssh".to_owned(), source };
        let stream = stream.into_std().map_err(failed)?;
        stream.set_nonblocking(false).map_err(failed)?;
        let time = Duration::from_secs(HANDSHAKE_SECONDS_MAX);
        let LaneDialer { near, far, .. } = &*self.dialer;
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
            *lock(&dialer.back) = None;
        }
    }

    /// A lane that was connected to find the way, if it is not too old to join.
    fn take_ready(&self, segment_max: Option<u32>, protection: Protection) -> Option<LaneStream> {
        let mut ready = lock(&self.ready);
        ready.retain(|(_, since)| since.elapsed() < READY_FOR);
        let is_fit = segment_max.is_none() && protection == Protection::Private;
        if is_fit { ready.pop().map(|(lane, _)| lane) } else { None }
    }
}

impl LaneDialer {
    fn straight(
        &self,
        (to, chosen): (SocketAddr, Option<&Chosen>),
        transport: Transport,
        protection: Protection,
        segment_max: Option<u32>,
    ) -> Result<LaneStream, NetError> {
        let (local, to) = chosen.map_or((None, to), |path| path.addresses(to));
        // Ssh is there for a lane that has no answer in this time.
        let options = LaneOptions { local, segment_max, deadline: STRAIGHT_ANSWERS, ..self.near.options.clone() };
        LaneStream::dial((transport, protection), to, &self.near.identity, self.far.key, &options)
    }

    fn back(&self, protection: Protection) -> Result<LaneStream, NetError> {
        let gone = || NetError::TimedOut { peer: "the other host".to_owned(), doing: "dialling back" };
        let back = lock(&self.back).clone().ok_or_else(gone)?;
        let _ = self.signals.send(SshSignal::DialBack { port: back.port() });
        let congestion = &self.near.options.congestion;
        back.lane((protection, congestion), &self.near.identity, self.far.key, STRAIGHT_ANSWERS)
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

/// Sleeps before the next try, and breaks off when the ways are dropped or one of them was found.
async fn sleep_unless_over(wait: Duration, mut over: watch::Receiver<Option<LaneWay>>) -> ControlFlow<()> {
    match timeout(wait, over.wait_for(Option::is_some)).await {
        Err(_) => ControlFlow::Continue(()),
        Ok(_) => ControlFlow::Break(()),
    }
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
const WAY_WAIT_MIN: Duration = Duration::from_millis(100);
const WAY_WAIT_MAX: Duration = Duration::from_millis(500);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_try_that_sleeps_ends_with_its_session_or_with_a_way() {
        let from = tokio::time::Instant::now();
        let found = FoundWay::default();
        let sleeping = tokio::spawn(sleep_unless_over(AGAIN_MAX, found.way.subscribe()));
        tokio::task::yield_now().await;
        drop(found);
        assert!(sleeping.await.expect("it ends").is_break());
        let found = FoundWay::default();
        let sleeping = tokio::spawn(sleep_unless_over(AGAIN_MAX, found.way.subscribe()));
        tokio::task::yield_now().await;
        found.way.send_replace(Some(LaneWay::Back));
        assert!(sleeping.await.expect("it ends").is_break());
        assert_eq!(from.elapsed(), Duration::ZERO);
        let found = FoundWay::default();
        assert!(sleep_unless_over(AGAIN_MAX, found.way.subscribe()).await.is_continue());
        assert_eq!(from.elapsed(), AGAIN_MAX);
    }
}
