//! Reaches a daemon: dials, shows keys, asks, and joins lanes.
//!
//! In: a [`Remote`] and what is asked of it. Out: [`Agreed`] to `transfer`, or a bare control connection to `list`. Knows no
//! disks and moves no payload.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::limits::{CHUNK_BYTES_USER_MIN, HANDSHAKE_SECONDS_MAX};
use longhaul_core::{Blame, ChunkSize, Fault, FaultCode, LaneId, Role};
use longhaul_net::{
    Congestion, Control, Identity, LaneOptions, LaneStream, NetError, NetPath, PeerCheck, Protection, PublicKey,
    dial_control_over,
};
use longhaul_proto::join::JoinKey;
use longhaul_proto::wire::message::{self, Far, Flow, Lanes, Request, Transfer, Welcome};

use super::Run;
use super::paths::Chosen;
use super::redial::Patience;
use crate::api::{Remote, Transport, Verify};
use crate::budget::{self, LANES_AUTO_MAX, LANES_DEFAULT, LANES_FAR, LANES_QUIC};
use crate::faults::net_fault;
use crate::handshake;
use crate::lane::join::join;
use crate::session::JoinedLane;
use crate::session::regrow::Dial;

/// A session that was agreed on, its lanes joined.
pub(super) struct Agreed {
    pub(super) control: Control,
    pub(super) welcome: Welcome,
    pub(super) lanes: Vec<JoinedLane>,
    /// Lanes that there should be at first: some of them may still be missing.
    pub(super) granted: u32,
    /// Lanes that there may come to be.
    pub(super) lanes_max: u32,
    /// Dials further lanes of the session.
    pub(super) dial: Dial,
    /// An earlier session of the same run stood before.
    pub(super) again: bool,
}

/// What all dials of one run have in common.
pub(super) struct Dialling {
    /// Shown with each dial, so that the daemon knows the run's own earlier session.
    pub(super) run: [u8; 16],
    pub(super) patience: Patience,
}

impl Run {
    /// Dials, shows keys, asks, joins lanes.
    pub(super) async fn agree(
        &self,
        remote: &Remote,
        role: Role,
        far: Far,
        slots: usize,
        chunk_max: ChunkSize,
        dialling: &mut Dialling,
    ) -> Result<Agreed, Fault> {
        let mut stop = self.stop.clone();
        tokio::select! {
            biased;
            code = stop.stopped() => Err(Fault::new(code, Blame::Local, "stopped before the transfer began")),
            agreed = self.agree_unhurried(remote, role, far, slots, chunk_max, dialling) => agreed,
        }
    }

    async fn agree_unhurried(
        &self,
        remote: &Remote,
        role: Role,
        far: Far,
        slots: usize,
        chunk_max: ChunkSize,
        dialling: &mut Dialling,
    ) -> Result<Agreed, Fault> {
        let mut control = connect_over(remote, self.paths.as_slice()).await?;
        self.paths.lead_to(control.peer_addr)?;
        let protection = self.settings.protect.unwrap_or(Protection::Private);
        let (first, most) = match self.settings.transport {
            Transport::Quic => (LANES_QUIC, LANES_QUIC),
            _ if control.rtt >= budget::FAR => (LANES_FAR, LANES_AUTO_MAX),
            _ => (LANES_DEFAULT, LANES_AUTO_MAX),
        };
        let lanes_max = budget::lanes(self.settings.lanes.unwrap_or(most), slots);
        let wanted = self.settings.lanes.unwrap_or(first).min(lanes_max);
        let request = Request::Transfer(Box::new(Transfer {
            role,
            initiator: true,
            protect: handshake::to_wire(protection),
            chunk: self.settings.chunk,
            chunk_max,
            lanes: wanted,
            preserve: self.settings.preserve,
            dry_run: self.settings.dry_run,
            set: 0,
            far,
            run: dialling.run,
            read_back: self.settings.verify == Verify::Disk,
            flow: self.flow(lanes_max, protection),
        }));
        let again = dialling.patience.met();
        let patience = if again { TAKE_OVER } else { HANDSHAKE };
        let (welcome, granted) = handshake::ask(&mut control.reader, &mut control.writer, request, patience).await?;
        let sizes = [welcome.chunk.bytes(), welcome.chunk_max.bytes(), chunk_max.bytes()];
        if welcome.chunk.bytes() > self.settings.chunk.bytes() || !sizes.is_sorted() {
            return Err(Fault::protocol("the other side chose larger chunks than were offered"));
        }
        if welcome.chunk.bytes() < CHUNK_BYTES_USER_MIN || granted.count > wanted {
            return Err(Fault::protocol("the other side chose smaller chunks or more lanes than there may be"));
        }
        dialling.patience.has_met();
        let dial = self.dial_of(remote, &control, &welcome, protection);
        let lanes = dial_lanes(&dial, &granted).await?;
        let lanes_max = welcome.lanes_max.min(lanes_max).max(granted.count);
        Ok(Agreed { control, welcome, lanes, granted: granted.count, lanes_max, dial, again })
    }

    /// How the data may flow.
    pub(super) fn flow(&self, lanes_max: u32, protection: Protection) -> Flow {
        let congestion = match &self.settings.congestion {
            Congestion::Auto => String::new(),
            Congestion::Named(name) => name.clone(),
        };
        let transport = match self.settings.transport {
            Transport::Quic => message::Transport::Quic,
            Transport::Tcp | Transport::Auto => message::Transport::Tcp,
        };
        // QUIC has no lanes without encryption, and other congestion controls.
        let choose = self.settings.transport == Transport::Auto
            && protection == Protection::Private
            && self.settings.congestion == Congestion::Auto;
        Flow { lanes_max, congestion, rate: self.settings.rate.unwrap_or(0), transport, choose }
    }

    /// How lanes of a session are dialled and joined to it.
    fn dial_of(&self, remote: &Remote, control: &Control, welcome: &Welcome, protection: Protection) -> Dial {
        let key = JoinKey(control.exporter);
        let options = LaneOptions { congestion: self.settings.congestion.clone(), ..LaneOptions::default() };
        let (identity, session) = (remote.identity.clone(), welcome.session);
        let (addr, pinned) = (control.peer_addr, control.peer_key);
        let (paths, segments, watch) = (self.paths.clone(), self.segments.clone(), self.watch.clone());
        let flow = self.flow(0, protection);
        Arc::new(move |id, transport| {
            // What is granted is the other side's wish; what may be, this side's.
            let transport = if flow.choose { transport } else { flow.transport };
            let chosen = paths.choose();
            let (local, addr) = chosen.as_ref().map_or((None, addr), |path| path.addresses(addr));
            let mut options = LaneOptions { local, ..options.clone() };
            if paths.as_slice().len() > 1 {
                options.deadline = PATH_ANSWERS;
            }
            let joined = segments.dial(chosen.as_ref().map_or(0, Chosen::place), |segment_max| {
                options.segment_max = segment_max;
                let mut stream = dial_lane((transport, protection), addr, &identity, pinned, &options)?;
                join(&mut stream, &key, session, id)?;
                Ok(JoinedLane { id, stream })
            });
            let joined = joined.map_err(|fault| match (transport, fault.code) {
                (message::Transport::Quic, FaultCode::TimedOut) => {
                    let port = addr.port();
                    fault.hint(format_args!(
                        "a firewall may drop UDP to port {port}: let it through, or use --transport tcp"
                    ))
                }
                _ => fault,
            });
            if let (Some(watch), Ok(lane)) = (&watch, &joined) {
                watch.joined(id, lane.stream.handle());
            }
            if let Some(path) = chosen {
                match &joined {
                    Ok(lane) => path.joined(lane.stream.handle()),
                    Err(fault) if matches!(fault.code, FaultCode::Unreachable | FaultCode::TimedOut) => path.failed(),
                    // It answered: what went wrong there is not the path's.
                    Err(_) => {}
                }
            }
            joined
        })
    }
}

/// Dials all lanes at once: one round trip more or less, whatever their number.
async fn dial_lanes(dial: &Dial, granted: &Lanes) -> Result<Vec<JoinedLane>, Fault> {
    let one = |n: u32| {
        let (dial, id, transport) = (dial.clone(), LaneId(granted.first.0 + n), granted.transport);
        tokio::task::spawn_blocking(move || dial(id, transport))
    };
    let dialling: Vec<_> = (0..granted.count).map(one).collect();
    let (mut lanes, mut last) = (Vec::with_capacity(dialling.len()), None);
    for lane in dialling {
        match lane.await.map_err(|e| Fault::new(FaultCode::Internal, Blame::Bug, e))? {
            Ok(lane) => lanes.push(lane),
            Err(fault) => last = Some(fault),
        }
    }
    // Others may be missing for now, as where one of several paths is down: they are granted again.
    match last {
        Some(fault) if lanes.is_empty() || !fault.retry() => Err(fault),
        _ => Ok(lanes),
    }
}

/// A control connection to a daemon whose key was judged.
pub(crate) async fn connect(remote: &Remote) -> Result<Control, Fault> {
    connect_over(remote, &[]).await
}

async fn connect_over(remote: &Remote, paths: &[NetPath]) -> Result<Control, Fault> {
    let host = if remote.host.contains(':') { format!("[{}]", remote.host) } else { remote.host.clone() };
    let addr = format!("{host}:{}", remote.port);
    let dialled = dial_control_over(&addr, paths, &remote.identity, PeerCheck::Observe).await;
    let control = dialled.map_err(|e| net_fault(&e))?;
    remote.trust.judge(&remote.host, remote.port, &control.peer_key)?;
    Ok(control)
}

fn dial_lane(
    (transport, protection): (message::Transport, Protection),
    addr: std::net::SocketAddr,
    identity: &Identity,
    pinned: PublicKey,
    options: &LaneOptions,
) -> Result<LaneStream, NetError> {
    match (transport, protection) {
        (message::Transport::Quic, _) => LaneStream::dial_quic(addr, identity, pinned, options),
        (message::Transport::Tcp, Protection::Private) => LaneStream::dial_private(addr, identity, pinned, options),
        (message::Transport::Tcp, Protection::Safe) => LaneStream::dial_safe(addr, options),
    }
}

/// Where there are several paths, one that does not answer a lane within this is left for now.
const PATH_ANSWERS: Duration = Duration::from_secs(4);
/// A daemon answers within this, ...
const HANDSHAKE: Duration = Duration::from_secs(HANDSHAKE_SECONDS_MAX);
/// ... unless it first has to end this run's own earlier session, for which it takes up to 30 s.
const TAKE_OVER: Duration = Duration::from_secs(40);
