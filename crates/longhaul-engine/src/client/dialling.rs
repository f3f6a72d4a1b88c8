//! Dials lanes of a session and joins them to it, one at a time, over whatever they are to go.
//!
//! In: the secrets of a session that was agreed on, and how a lane is connected. Out: lanes that
//! have joined, and what became of each dial to whoever counts that: paths, the way of datagrams,
//! a measurement. It knows no messages.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::{Fault, FaultCode, LaneId, Word, hint};
use longhaul_net::{Control, NetError, Over};
use longhaul_proto::join::JoinKey;
use longhaul_proto::wire::message::{self, Flow, Welcome};

use super::Run;
use super::ahead::Ahead;
use super::connect::Connect;
use super::early_udp::EarlyUdp;
use super::ssh::Ways;
use super::udp_way::Dialled;
use super::wish::Wish;
use crate::lanes::dial::paths::Chosen;
use crate::lanes::join::{Unjoined, join};
use crate::lanes::past::PathPast;
use crate::lanes::replace::Dial;
use crate::lanes::udp::join::{JoinedUdp, UdpOrder, UdpTerms, dial};
use crate::lanes::{JoinedLane, StreamLane};

impl Run {
    /// How lanes of a session are dialled and joined to it: those first whose connections were
    /// begun before it was agreed on.
    pub(super) fn dial_of(
        &self,
        control: &Control,
        welcome: &Welcome,
        LaneWays { connect, udp_to, flow, early_udp }: LaneWays<'_>,
        ahead: Vec<Ahead>,
    ) -> Dial {
        let (key, session, ahead) = (JoinKey(control.exporter), welcome.session, Mutex::new(ahead));
        let (paths, segments, watch) = (self.paths.clone(), self.segments.clone(), self.watch.clone());
        let (addr, udp, dials) = (control.peer_addr, self.udp.clone(), self.udp.begin());
        let (terms, way_back) = (UdpTerms { session, ..UdpTerms::of(control) }, WayBack::of(self.known.past(), flow));
        let (begins_with_udp, mixes_udp) = (flow.transport == message::Transport::Udp, flow.udp_beside_tcp);
        Arc::new(move |id, transport| {
            way_back.note(transport);
            let is_udp = transport == message::Transport::Udp;
            if is_udp != begins_with_udp && !mixes_udp {
                // A session is asked for lanes over UDP as such, or has none of them.
                let why = format_args!("the other side grants a lane over {transport:?}, which was not asked for");
                return Err(Fault::protocol(why));
            }
            let mut silent = false;
            let begun = if is_udp { None } else { ahead.lock().unwrap_or_else(PoisonError::into_inner).pop() };
            let (chosen, mut begun) = match begun.and_then(|lane| lane.recv().ok().flatten()) {
                Some((chosen, connected)) => (chosen, Some(connected)),
                // Ssh chooses its own path.
                None if transport == message::Transport::Ssh => (None, None),
                None => (paths.choose(), None),
            };
            let over_stream = |segment_max: Option<u32>| -> Result<JoinedLane, Unjoined> {
                let connected = match begun.take().filter(|_| segment_max.is_none()) {
                    Some(connected) => connected,
                    None => connect(chosen.as_ref(), transport, segment_max),
                };
                silent = matches!(connected, Err(NetError::NoAnswer { over: Over::Udp, .. }));
                let mut stream = connected?;
                let taken = join(&mut stream, &key, session, id)?;
                Ok(StreamLane { id, stream, taken }.into())
            };
            let joined = if is_udp {
                let early = early_udp.take(id);
                let joined = early.unwrap_or_else(|| dial_udp(udp_to(chosen.as_ref()), id, &terms));
                silent = matches!(joined, Err(Unjoined::Net(NetError::NoAnswer { .. })));
                joined.map(|lane| JoinedLane::Udp(Box::new(lane))).map_err(Fault::from)
            } else {
                segments.dial(chosen.as_ref().map_or(0, Chosen::place), over_stream)
            };
            let joined = joined.map_err(|fault| hinted(fault, transport, addr.port()));
            if matches!(transport, message::Transport::Quic | message::Transport::Udp) {
                let dialled = match &joined {
                    Ok(_) => Dialled::Joined,
                    Err(_) if silent => Dialled::Silence(Instant::now()),
                    Err(_) => Dialled::Failed,
                };
                udp.dialled(&dials, dialled);
            }
            log_dialled(id, transport, &joined);
            if let (Some(watch), Ok(lane)) = (&watch, &joined) {
                watch.lane_joined(id, lane.handle());
            }
            if let Some(path) = chosen {
                match &joined {
                    Ok(lane) => path.joined(lane.handle()),
                    Err(fault) if matches!(fault.code, FaultCode::Unreachable | FaultCode::TimedOut) => path.failed(),
                    // It answered: what went wrong there is not the path's.
                    Err(_) => {}
                }
            }
            joined
        })
    }
}

/// The ways that lanes of a session go.
pub(super) struct LaneWays<'a> {
    /// How lanes that are streams are connected.
    pub(super) connect: Connect,
    /// Where lanes over UDP are dialled.
    pub(super) udp_to: UdpDoor,
    /// The first of these, which were asked for with the session.
    pub(super) early_udp: EarlyUdp,
    /// How the data may flow.
    pub(super) flow: &'a Flow,
}

/// The ends of a lane over UDP on a path: the local address, if it is given, and the port. `None`
/// where no way is known that datagrams could go.
pub(super) type UdpDoor = Arc<dyn Fn(Option<&Chosen>) -> Option<(Option<IpAddr>, SocketAddr)> + Send + Sync>;
/// Where lanes over UDP are dialled.
pub(super) fn udp_door(control: &Control, ways: Option<Arc<Ways>>) -> UdpDoor {
    let addr = control.peer_addr;
    Arc::new(move |chosen| {
        let (local, to) = match &ways {
            Some(ways) => ways.straight()?,
            None => (None, addr),
        };
        Some(chosen.map_or((local, to), |path| path.addresses(to)))
    })
}

/// Has a session begin over this, which may be another transport than its settings name: one whose
/// path is `broken` for so long yet begins over TCP and stays there, with the host's congestion
/// control, as the one that was named may be one that only QUIC has.
pub(super) fn begin_over(flow: &mut Flow, over: message::Transport, (wish, broken): (&Wish, Option<Duration>)) {
    if flow.transport == message::Transport::Quic && over == message::Transport::Tcp {
        flow.congestion = Word::default();
    }
    flow.transport = over;
    flow.choose &= broken.is_none();
    flow.udp_beside_tcp &= broken.is_none() && wish.may_mix_udp(over);
}

/// Notes when a session that began over UDP or QUIC goes back to TCP: the breaker of a side has
/// opened. The side that sends says no more of it than that.
struct WayBack {
    past: PathPast,
    begins_with: message::Transport,
    is_noted: AtomicBool,
}

impl WayBack {
    fn of(past: PathPast, flow: &Flow) -> WayBack {
        WayBack { past, begins_with: flow.transport, is_noted: AtomicBool::new(false) }
    }

    /// A lane is dialled over this.
    fn note(&self, over: message::Transport) {
        let left = matches!(self.begins_with, message::Transport::Udp | message::Transport::Quic);
        if left && over == message::Transport::Tcp && !self.is_noted.swap(true, Ordering::Relaxed) {
            self.past.broke_there(Instant::now());
        }
    }
}

/// Dials a lane over UDP.
fn dial_udp(ends: Option<(Option<IpAddr>, SocketAddr)>, id: LaneId, terms: &UdpTerms) -> Result<JoinedUdp, Unjoined> {
    let (local, to) = ends.ok_or_else(no_way)?;
    dial(&UdpOrder { to, local, id, admit: 0 }, terms)
}

/// The error of a lane over UDP to a host to which only ssh leads now.
fn no_way() -> NetError {
    let source = io::Error::new(io::ErrorKind::HostUnreachable, "no datagrams go through ssh");
    NetError::Unreachable { peer: "the other host".to_owned(), source }
}

/// A fault of a dial, with a hint where a firewall may drop UDP.
fn hinted(fault: Fault, transport: message::Transport, port: u16) -> Fault {
    match (transport, fault.code) {
        (message::Transport::Quic | message::Transport::Udp, FaultCode::TimedOut) if fault.hint.is_none() => {
            fault.hint(hint::Network::LetUdpThrough { port })
        }
        _ => fault,
    }
}

fn log_dialled(id: LaneId, transport: message::Transport, joined: &Result<JoinedLane, Fault>) {
    match joined {
        Ok(lane) => tracing::debug!(
            target: "longhaul::session",
            lane = id.0,
            over = ?transport,
            congestion = %lane.congestion(),
            largest_segment = lane.segment_max(),
            "a lane joined"
        ),
        Err(fault) => {
            tracing::debug!(target: "longhaul::session", lane = id.0, over = ?transport, %fault, "a lane did not join")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_begins_over_tcp_as_its_path_is_broken_asks_for_no_control_of_quics() {
        use message::Transport::{Quic, Tcp};
        let name = Word::try_from("rate").expect("a word");
        let asked = |transport| Flow { transport, choose: true, congestion: name.clone(), ..Flow::default() };
        let wish = Wish::pull(&[], Vec::new(), None);
        for (first, over, broken, left) in [
            (Quic, Tcp, Some(Duration::from_secs(30)), (Word::default(), false)),
            (Quic, Quic, None, (name.clone(), true)),
            (Tcp, Tcp, Some(Duration::from_secs(30)), (name.clone(), false)),
        ] {
            let mut flow = asked(first);
            begin_over(&mut flow, over, (&wish, broken));
            assert_eq!((flow.transport, (flow.congestion, flow.choose)), (over, left), "{first:?}");
        }
    }

    #[test]
    fn a_session_that_went_back_to_tcp_shuts_its_path_once_and_one_that_began_there_does_not() {
        use message::Transport::{Quic, Tcp, Udp};
        for (begins_with, over, shuts) in
            [(Udp, Tcp, true), (Quic, Tcp, true), (Quic, Quic, false), (Tcp, Tcp, false), (Tcp, Udp, false)]
        {
            let past = PathPast::default();
            let way_back = WayBack::of(past.clone(), &Flow { transport: begins_with, ..Flow::default() });
            way_back.note(over);
            way_back.note(over);
            let times = past.breaker(Instant::now()).times;
            assert_eq!(
                (past.broken_for(Instant::now()).is_some(), times),
                (shuts, u32::from(shuts)),
                "{begins_with:?}"
            );
        }
    }
}
