//! Lanes that are connected before their session is agreed on, so that their handshakes cost no
//! time of their own.
//!
//! In: the address that the control connection is dialled at, or the way of lanes once that stands.
//! Out: lanes that have tried their path and belong to no session yet, to `connect`. A lane that
//! proved another key than the control connection is dropped, and has heard nothing but the trial
//! of its path. Knows no session and no payload.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crossbeam_channel::{Receiver, bounded};
use longhaul_net::{Control, Identity, LaneOptions, LaneStream, NetError, PublicKey, WhenLong};
use longhaul_proto::wire::message;

use super::connect::Connect;
use crate::lanes::dial::paths::{Chosen, Paths};
use crate::lanes::join::try_path;

/// A lane that has not joined, or why there is none, and the path that was chosen for it.
pub(super) type Connected = (Option<Chosen>, Result<LaneStream, NetError>);

/// A lane that is being connected. `None` comes of one that is of no use.
pub(super) type Ahead = Receiver<Option<Connected>>;

/// Begins to connect so many lanes, if they are streams.
/// Those that are not taken are closed.
pub(super) fn connect(connect: &Connect, paths: &Paths, transport: message::Transport, count: u32) -> Vec<Ahead> {
    let one = |_| {
        let ((tell, told), connect, paths) = (bounded(1), connect.clone(), paths.clone());
        tokio::task::spawn_blocking(move || {
            let chosen = if transport == message::Transport::Ssh { None } else { paths.choose() };
            let connected = connect(chosen.as_ref(), transport, None);
            let _ = tell.send(Some((chosen, connected)));
        });
        told
    };
    let is_stream = transport != message::Transport::Udp;
    (0..if is_stream { count } else { 0 }).map(one).collect()
}

/// Private lanes over TCP that are dialled while the control connection is.
#[derive(Clone, Default)]
pub(super) struct EarlyLanes(Arc<Mutex<Option<Begun>>>);

/// Lanes that are being dialled.
struct Begun {
    addr: SocketAddr,
    at: Instant,
    lanes: Vec<Receiver<Proved>>,
}

/// A lane, and the key that the other end has proved.
type Proved = Result<(LaneStream, PublicKey), NetError>;

impl EarlyLanes {
    /// Dials so many lanes as soon as it shows that the path is long.
    pub(super) fn when_long(&self, identity: Arc<Identity>, options: LaneOptions, count: u32) -> WhenLong {
        let early = self.clone();
        Box::new(move |addr| {
            let at = Instant::now();
            let one = |_| {
                let ((tell, told), identity, options) = (bounded(1), identity.clone(), options.clone());
                tokio::task::spawn_blocking(move || {
                    let _ = tell.send(dial(addr, &identity, &options));
                });
                told
            };
            let lanes = (0..count).map(one).collect();
            *early.lock() = Some(Begun { addr, at, lanes });
        })
    }

    /// The lanes that lead to where the control connection does, if there are any, and when they
    /// were begun. A lane whose other end proves another key, or that came to nothing, is dialled
    /// anew by whoever takes it.
    pub(super) fn take(&self, control: &Control) -> Option<(Vec<Ahead>, Instant)> {
        let Begun { addr, at, lanes } = self.lock().take()?;
        if addr != control.peer_addr {
            return None;
        }
        let pinned = control.peer_key;
        let one = |lane: Receiver<Proved>| {
            let (tell, told) = bounded(1);
            tokio::task::spawn_blocking(move || {
                let connected = match lane.recv() {
                    Ok(Ok((stream, key))) if key == pinned => Some((None, Ok(stream))),
                    // The next dial goes on with smaller segments.
                    Ok(Err(error @ NetError::Swallowed { .. })) => Some((None, Err(error))),
                    _ => None,
                };
                let _ = tell.send(connected);
            });
            told
        };
        Some((lanes.into_iter().map(one).collect(), at))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Begun>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn dial(addr: SocketAddr, identity: &Identity, options: &LaneOptions) -> Proved {
    let (mut stream, key) = LaneStream::dial_private_observing(addr, identity, options)?;
    try_path(&mut stream)?;
    Ok((stream, key))
}
