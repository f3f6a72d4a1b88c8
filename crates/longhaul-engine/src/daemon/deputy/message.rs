//! Owns the messages between the daemon and its deputies.
//!
//! In and out: both sides of `channel`. The two are always of one build: the deputy is the
//! daemon's own binary. It knows no socket.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use longhaul_core::{Fault, FaultCode, PlainText, Transport};
use longhaul_net::{Control, LaneParts, PassedSeat, Protection, UdpSecret};
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use super::super::ServeConfig;
use super::super::live::{Counts, Needs, SessionName};
use super::deeds::Deed;
use crate::lanes::udp::join::UdpTerms;
use longhaul_net::PublicKey;
use longhaul_proto::join::JoinKey;

/// The daemon's number of a conversation, good at the deputy that was given it.
pub(super) type TalkId = u64;

/// A message of the daemon.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToDeputy {
    /// A client has come: the descriptor leads to its control connection.
    Converse(Box<TalkOpening>),
    /// A lane has come: the descriptor is its socket. It has a key if it is private.
    Lane {
        /// The key that its dialler proved.
        key: Option<[u8; 32]>,
        /// The first bytes of a safe lane, which are still to be received.
        opening: Vec<u8>,
        /// The host that it came from.
        from: IpAddr,
        /// Everything of it but its socket.
        parts: LaneParts,
    },
    /// A lane over UDP has come: the descriptor is the end of a pair through which its datagrams
    /// are passed on.
    UdpLane {
        /// The JOIN that came for it, which has proved.
        join: Vec<u8>,
        /// The seat, of which the daemon has the socket.
        seat: PassedSeat,
    },
    /// A session may begin, or may not.
    Granted(TalkId, Result<Granted, Fault>),
    /// The memory that the conversation has now, in bytes: the answer to [`ToDaemon::Memory`].
    Memory(TalkId, u64),
    /// The rate that the session may carry from now on, bytes/s.
    Rate(TalkId, Option<u64>),
    /// The session is to end, in order and with this code.
    End(TalkId, FaultCode),
}

/// The beginning of a conversation.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TalkOpening {
    /// Its number.
    pub(super) talk: TalkId,
    /// The name of its session, if it comes to one.
    pub(super) session: SessionName,
    /// The facts of the control connection that the daemon has proved.
    pub(super) facts: ControlFacts,
    /// The configuration, as far as it concerns the client.
    pub(super) config: ServeConfig,
    /// Whether the audit log takes records now. `None`: there is no log.
    pub(super) recorded: Option<Result<(), Fault>>,
    /// Whether lanes over UDP can have sockets at the daemon's ports.
    pub(super) has_udp: bool,
}

/// A control connection without its bytes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ControlFacts {
    key: [u8; 32],
    exporter: [u8; 32],
    udp: UdpSecret,
    peer: SocketAddr,
    here: SocketAddr,
    rtt: Duration,
    segment_bytes: u32,
}

/// A session that may begin.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Granted {
    /// The rate that it may carry, bytes/s.
    pub(super) rate: Option<u64>,
}

/// A message of a deputy.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ToDaemon {
    /// A session wants to begin.
    Begin(TalkId, SessionWish),
    /// The conversation could use so many bytes of memory more.
    Memory(TalkId, u64),
    /// The figures of the session.
    Figures(TalkId, Counts),
    /// The session has ended, and holds nothing any more.
    Ended(TalkId),
    /// The outcome of what the client asked for.
    Outcome(TalkId, Outcome),
    /// A record of a file, for the audit log.
    Deed(TalkId, Deed),
    /// The conversation is over.
    Over(TalkId),
}

/// The outcome of a request, for the daemon's records and sums.
#[derive(Debug, Serialize, Deserialize)]
pub(in super::super) enum Outcome {
    /// Names were told, or not all of them for this reason.
    Listed(AskedWords, Option<FaultCode>),
    /// It was refused.
    Refused(AskedWords, FaultCode),
    /// Its session is over, with these figures.
    Ended(Counts, Option<FaultCode>),
}

/// A request in words.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(in super::super) struct AskedWords {
    /// The root.
    pub(in super::super) root: Option<PlainText>,
    /// The path beneath it, escaped.
    pub(in super::super) path: Option<PlainText>,
    /// The kind of request.
    pub(in super::super) what: PlainText,
}

/// A session that wants to begin.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SessionWish {
    /// Its doing, as the log says it.
    pub(super) what: PlainText,
    /// The protection of its lanes.
    pub(super) protection: Protection,
    /// The transport of its first lanes.
    pub(super) transport: Transport,
    /// Whether the daemon's side receives.
    pub(super) receives: bool,
    /// The rights that it begins with.
    pub(super) needs: Needs,
    /// The rate that its client keeps by itself, bytes/s.
    pub(super) own_rate: Option<u64>,
}

impl ControlFacts {
    /// The facts of a connection.
    pub(super) fn of(control: &Control) -> ControlFacts {
        let Control { peer_key, exporter, udp, peer_addr, local_addr, rtt, segment_bytes, .. } = control;
        let (key, peer, here) = (*peer_key.as_bytes(), *peer_addr, *local_addr);
        ControlFacts {
            key,
            exporter: *exporter,
            udp: udp.clone(),
            peer,
            here,
            rtt: *rtt,
            segment_bytes: *segment_bytes,
        }
    }

    /// The secrets of the UDP lanes of its session, which has this name.
    pub(super) fn udp_terms(&self, session: SessionName) -> UdpTerms {
        let (key, secret) = (JoinKey(self.exporter), self.udp.clone());
        UdpTerms { session, key, secret, round_trip: self.rtt }
    }

    /// The connection whose bytes come through `stream`.
    pub(super) fn over(self, stream: UnixStream) -> Control {
        let ControlFacts { key, exporter, udp, peer, here, rtt, segment_bytes } = self;
        let (reader, writer) = stream.into_split();
        let (reader, writer) = (Box::new(reader), Box::new(writer));
        let peer_key = PublicKey::from_bytes(key);
        Control {
            reader,
            writer,
            peer_key,
            exporter,
            udp,
            peer_addr: peer,
            local_addr: here,
            rtt,
            segment_bytes,
            takes_unasked: false,
        }
    }
}
