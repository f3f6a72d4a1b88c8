//! Owns the daemon's door: the addresses on which it listens, and the first bytes of each
//! connection.
//!
//! In: addresses, and connections from the network. Out: conversations to `serve`, lanes to the
//! registry (`lanes/registry.rs`), which brings each to its session. It must not know the messages
//! that follow.

use std::fmt::Display;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::hint::Network;
use longhaul_core::{Blame, Escaped, Fault, FaultCode};
use longhaul_net::{
    GreetLimits, Greeted, Knocks, LaneStream, Listener, NetError, PublicKey, QuicListener, Seldom, ServerTls,
    bind_pair, greet, system_words,
};
use longhaul_proto::join::{OPENING_BYTES, Opening};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use super::audit::AuditRecord;
use super::current::Current;
use super::liveness::{Liveness, LoopQuestions};
use super::notices::LOOK_EVERY;
use super::{Daemon, ServeConfig, serve};
use crate::lanes::join::Unjoined;
use crate::lanes::registry::Registry;
use crate::lanes::udp::accepted::AcceptedUdp;
use crate::lanes::udp::desk::Desk;

/// The listeners at one address.
pub(super) type Listening = (Listener, QuicListener);

/// The bounds on connections that are not known yet, in a process that may have `descriptors` open
/// files (`None`: any number). If those will not do for the sessions that the configuration admits,
/// the log says so.
pub(super) fn limits(config: &ServeConfig, descriptors: Option<u64>) -> GreetLimits {
    let limits = GreetLimits { opening_bytes: OPENING_BYTES, ..GreetLimits::within(descriptors) };
    let sessions = config.sessions as u64;
    let need = limits.descriptors() + sessions * SESSION_DESCRIPTORS + DAEMON_DESCRIPTORS;
    if let Some(limit) = descriptors.filter(|limit| *limit < need) {
        tracing::warn!(
            target: "longhaul::serve",
            limit,
            need,
            "too few open files are allowed for {sessions} sessions of {SESSION_DESCRIPTORS} each: raise the hard limit \
             (ulimit -Hn, LimitNOFILE= of systemd), or lower sessions in [limits]"
        );
    }
    limits
}

/// Makes the sockets for these addresses, over TCP, and over UDP at the port of the same number. It
/// needs no runtime, so that a process can do it before it gives up its rights.
///
/// # Errors
/// A [`Fault`] that names the address that cannot be had.
pub fn bind_addresses(addresses: &[String]) -> Result<Vec<OwnedFd>, Fault> {
    let mut sockets = Vec::new();
    for address in addresses {
        let before = sockets.len();
        for addr in address.to_socket_addrs().map_err(|e| misnamed(address, &e))? {
            sockets.extend(bind_pair(addr).map_err(|e| cannot_listen(address, addr, &e))?);
        }
        if sockets.len() == before {
            return Err(refusal(Escaped(address.as_bytes()), "the name has no address").hint(Network::NameOwnAddress));
        }
    }
    Ok(sockets)
}

/// Listens at sockets that were made before.
pub(super) fn listen(sockets: Vec<OwnedFd>, tls: &ServerTls) -> Result<Vec<Listening>, Fault> {
    longhaul_net::listen_passed(sockets, tls).map_err(|error| match error {
        NetError::Socket { addr, source, .. } => refusal(addr, system_words(&source)),
        other => refusal("a socket that was passed on", other),
    })
}

/// Listens over both. For port 0 a port is looked for that is free for both.
pub(super) fn listen_twice(addr: SocketAddr, tls: &ServerTls) -> Result<Listening, NetError> {
    let mut listening = longhaul_net::listen_passed(bind_pair(addr)?.into(), tls)?;
    // Two sockets at one address are one pair.
    listening.pop().ok_or(NetError::BadAddress { addr: addr.to_string() })
}

fn misnamed(address: &str, error: &io::Error) -> Fault {
    refusal(Escaped(address.as_bytes()), system_words(error)).hint(Network::NameHostAndPort)
}

/// The fault of an address, with the system's words and advice.
fn cannot_listen(address: &str, addr: SocketAddr, error: &NetError) -> Fault {
    let NetError::Socket { doing, source, .. } = error else {
        return refusal(Escaped(address.as_bytes()), error);
    };
    let words = system_words(source);
    let port = addr.port();
    let hint = match source.kind() {
        io::ErrorKind::AddrInUse => Some(Network::FreePort { port }.into()),
        io::ErrorKind::AddrNotAvailable => Some(Network::NameOwnAddress.into()),
        io::ErrorKind::PermissionDenied if port < 1024 => Some(Network::TakeHigherPort.into()),
        _ => None,
    };
    let over = if doing.contains("UDP") { " over UDP" } else { "" };
    // A name, or port 0, stands for the address that was really tried.
    let tried = if addr.to_string() == address { String::new() } else { format!("{addr}: ") };
    let fault = refusal(format_args!("{}{over}", Escaped(address.as_bytes())), format_args!("{tried}{words}"));
    Fault { hint, ..fault }
}

fn refusal(address: impl Display, why: impl Display) -> Fault {
    Fault::new(FaultCode::Usage, Blame::Local, format_args!("cannot listen on {address}: {why}"))
}

/// Begins to accept.
pub(super) fn open(
    current: &Arc<Current>,
    listeners: Vec<Listening>,
    tls: &Arc<ServerTls>,
    liveness: &Liveness,
) -> Vec<JoinHandle<()>> {
    let mut tasks = vec![tokio::spawn(tell(current.clone(), tls.clone()))];
    for (tcp, mut quic) in listeners {
        let addr = tcp.local_addr();
        let [of_tcp, of_quic, of_udp] = ["TCP", "QUIC", "UDP"]
            .map(|over| liveness.watch_loop(format!("the loop that accepts over {over} at {addr}")));
        if let Some(drivers) = quic.drivers() {
            liveness.watch_threads(format!("the threads that drive QUIC at {addr}"), drivers.clone());
        }
        tasks.push(tokio::spawn(accept(current.clone(), tcp, tls.clone(), of_tcp)));
        if let Some(knocks) = quic.take_knocks() {
            if !knocks.shares() {
                current.now().registry.bar_udp();
            }
            tasks.push(tokio::spawn(accept_udp(current.clone(), knocks, of_udp)));
        }
        tasks.push(tokio::spawn(accept_quic(current.clone(), quic, of_quic)));
    }
    tasks
}

/// Reports floods to the log, for as long as the daemon accepts.
async fn tell(current: Arc<Current>, tls: Arc<ServerTls>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let daemon = current.now();
        let mut lost = tls.take_lost();
        lost.merge(daemon.lobby.take_lost());
        lost.merge(daemon.registry.take_lost());
        daemon.live.tallies.gave_way(lost.total());
        let unsaid = daemon.notices.tell(lost);
        if unsaid > 0 {
            let code = Some(FaultCode::Denied);
            daemon.live.audit.keep(&AuditRecord { count: Some(unsaid), code, ..AuditRecord::default() });
        }
    }
}

async fn accept(current: Arc<Current>, listener: Listener, tls: Arc<ServerTls>, mut questions: LoopQuestions) {
    let mut failures = Seldom::new(FAILURES_TOLD_EVERY);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = questions.answer() => continue,
        };
        match accepted {
            Ok((stream, peer)) => {
                tokio::spawn(receive(current.clone(), stream, peer, tls.clone()));
            }
            Err(e) => {
                if let Some(untold) = failures.once_more(Instant::now()) {
                    tracing::warn!(target: "longhaul::serve", error = %e, untold, "cannot accept connections");
                }
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// Accepts over QUIC, which carries only lanes.
async fn accept_quic(current: Arc<Current>, mut listener: QuicListener, mut questions: LoopQuestions) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = questions.answer() => continue,
        };
        let Some((stream, key)) = accepted else { return };
        let daemon = current.now();
        tokio::spawn(async move { bring_private(&daemon, stream, key).await });
    }
}

/// Takes lanes over UDP. Nobody gets an answer who does not prove to belong to a session.
async fn accept_udp(current: Arc<Current>, mut knocks: Knocks, mut questions: LoopQuestions) {
    let (mut desk, mut begun) = (Desk::new(Instant::now()), current.now().registry.begun());
    loop {
        let knock = tokio::select! {
            knock = knocks.next() => knock,
            Ok(()) = begun.changed() => {
                let registry = current.now().registry.clone();
                let heard = desk.hear_kept(&knocks, &registry);
                heard.into_iter().for_each(|(from, heard)| bring_udp(&registry, from, heard));
                continue;
            }
            () = questions.answer() => continue,
        };
        let Some(knock) = knock else { return };
        let (daemon, from) = (current.now(), knock.from);
        match desk.hear_for(&knock, &knocks, &daemon.live.deputies) {
            Some(Ok(())) => continue,
            Some(Err(error)) => {
                tracing::warn!(target: "longhaul::serve", peer = %from, %error, "a UDP lane was not passed on");
                continue;
            }
            None => {}
        }
        match desk.hear(&knock, &knocks, &daemon.registry) {
            Some(heard) => bring_udp(&daemon.registry, from, heard),
            None => desk.keep(knock, &daemon.registry),
        }
    }
}

/// Brings a lane over UDP that was answered to its session.
fn bring_udp(registry: &Registry, from: SocketAddr, heard: Result<AcceptedUdp, Unjoined>) {
    match heard {
        Ok(accepted) => {
            let registry = registry.clone();
            tokio::spawn(async move { registry.bring_udp(accepted).await });
        }
        Err(unjoined) => {
            let fault = Fault::from(unjoined);
            tracing::warn!(target: "longhaul::serve", peer = %from, %fault, "a UDP lane was turned away");
        }
    }
}

/// Greets a connection and hands it to `serve` or to the registry.
pub(super) async fn receive(current: Arc<Current>, stream: TcpStream, peer: SocketAddr, tls: Arc<ServerTls>) {
    match greet(stream, &tls).await {
        // Boxed, so that silent connections do not need room for a conversation.
        Ok(Greeted::Control(control)) => Box::pin(serve::serve(current, control)).await,
        Ok(Greeted::PrivateLane(stream, key)) => bring_private(&current.now(), stream, key).await,
        Ok(Greeted::SafeLane(stream, opening)) => bring_safe(&current.now(), stream, &opening, peer.ip()).await,
        Err(e) => tracing::debug!(target: "longhaul::serve", %peer, error = %e, "a connection came to nothing"),
    }
}

/// Brings a private lane to its session, if its key is a client's, or that of a grant's bearer.
pub(super) async fn bring_private(daemon: &Daemon, stream: LaneStream, key: PublicKey) {
    if let Ok(client) = daemon.client(&key) {
        return match client.uid() {
            Some(uid) => daemon.live.deputies.bring_private(uid, stream, key).await,
            None => daemon.registry.bring_private(stream, key).await,
        };
    }
    if daemon.live.grants.has_bearer(&key) {
        return daemon.registry.bring_private(stream, key).await;
    }
    tracing::debug!(target: "longhaul::serve", peer = ?stream.peer_addr(), %key, "a lane with an unknown key");
}

/// Brings a safe lane to its session, which may be a deputy's.
async fn bring_safe(daemon: &Daemon, stream: LaneStream, opening: &[u8], from: IpAddr) {
    let session = opening.first_chunk::<OPENING_BYTES>().map(|bytes| Opening::decode(bytes).session);
    let left = match session {
        Some(session) => daemon.live.deputies.bring_safe(stream, &session, opening),
        None => None,
    };
    if let Some(stream) = left {
        daemon.registry.bring_safe(stream, opening, from).await;
    }
}

/// A listener that fails for another reason than a shortage is tried again after this.
const ACCEPT_RETRY: Duration = Duration::from_millis(200);
const FAILURES_TOLD_EVERY: Duration = Duration::from_secs(60);
/// Descriptors of one session at most, as counted in one that wrote as many files as it may: 256
/// large ones and small ones in batches, lanes, directories, journals.
const SESSION_DESCRIPTORS: u64 = 700;
/// Descriptors of roots, sockets, logs, and connections of clients that have not begun a session.
const DAEMON_DESCRIPTORS: u64 = 256;
