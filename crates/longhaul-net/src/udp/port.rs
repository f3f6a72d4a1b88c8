//! The listening port of native UDP lanes, which is that of QUIC: datagrams that are none of QUIC's
//! are told apart, and each lane gets a connected socket of its own at the same address.
//!
//! Owns the door between both, and the sockets that share the port's address. In: what came to the
//! port. Out: [`Knock`]s, and connected sockets. It answers nobody, and keeps nothing of a stranger
//! but places in a short queue, of which each network has a share. It must not know what makes a
//! knock good.

use std::hash::{BuildHasher, RandomState};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_core::limits::UDP_DATAGRAM_BYTES_SAFE;
use longhaul_sys::udp;
use quinn::udp::RecvMeta;
use tokio::sync::mpsc;

use super::carrier::LaneSocket;
use super::socket::{PortAddr, connected_payload};
use crate::error::NetError;
use crate::wire::canonical;

/// A datagram that came to the port and is none of QUIC's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knock {
    /// Its bytes: as many as a JOIN has, beginning like one.
    pub datagram: Vec<u8>,
    /// Its sender, as it says.
    pub from: SocketAddr,
    /// The address of this host that it was sent to, as far as the kernel tells.
    to: Option<IpAddr>,
    /// As the port's socket writes addresses.
    from_raw: SocketAddr,
}

/// The side of QUIC: sorts what comes to its socket.
#[derive(Debug)]
pub(crate) struct Door {
    queue: mpsc::Sender<Knock>,
    waiting: Arc<Waiting>,
}

impl Door {
    /// A door, and the knocks at it.
    pub(crate) fn new(socket: &UdpSocket) -> io::Result<(Door, Knocks)> {
        let (queue, knocks) = mpsc::channel(KNOCKS_WAITING);
        let waiting = Arc::new(Waiting::default());
        let port = PortAddr::of(socket)?;
        let shares = share(socket, &port);
        if let Err(error) = &shares {
            tracing::warn!(addr = %port.addr, %error, "native UDP lanes cannot have sockets at this port: clients take others");
        }
        Ok((Door { queue, waiting: waiting.clone() }, Knocks { knocks, waiting, port, shares: shares.is_ok() }))
    }

    /// Takes out all that is none of QUIC's.
    pub(crate) fn sort(&self, buffers: &mut [IoSliceMut<'_>], metas: &mut [RecvMeta]) {
        for (bytes, meta) in buffers.iter_mut().zip(metas) {
            let (len, stride) = (meta.len.min(bytes.len()), meta.stride.max(1));
            let mut kept = 0;
            // The kernel joins datagrams of one address and one length, whatever they are.
            for start in (0..len).step_by(stride) {
                let end = (start + stride).min(len);
                if is_foreign(bytes[start]) {
                    self.knock(&bytes[start..end], meta);
                    continue;
                }
                if kept < start {
                    bytes.copy_within(start..end, kept);
                }
                kept += end - start;
            }
            meta.len = kept;
        }
    }

    fn knock(&self, datagram: &[u8], meta: &RecvMeta) {
        let from = canonical(meta.addr);
        if !may_be_join(datagram) || !self.waiting.enter(from.ip()) {
            return;
        }
        let knock = Knock { datagram: datagram.to_vec(), from, to: meta.dst_ip, from_raw: meta.addr };
        // When the queue is full the datagram is lost, as it may be on the way.
        if self.queue.try_send(knock).is_err() {
            self.waiting.leave(from.ip());
        }
    }
}

/// The knocks that wait, by where they come from: so one stranger cannot take all places. Networks
/// that fall into the same share by chance have it together; nobody can choose whose he falls into.
#[derive(Debug)]
struct Waiting {
    key: RandomState,
    shares: [AtomicUsize; SHARES],
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting { key: RandomState::new(), shares: [const { AtomicUsize::new(0) }; SHARES] }
    }
}

impl Waiting {
    /// Takes a place of this address. Gives whether there was one.
    fn enter(&self, from: IpAddr) -> bool {
        let one_more = |waiting| (waiting < KNOCKS_EACH).then_some(waiting + 1);
        self.share(from).fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Gives the place back.
    fn leave(&self, from: IpAddr) {
        self.share(from).fetch_sub(1, Ordering::Relaxed);
    }

    fn share(&self, from: IpAddr) -> &AtomicUsize {
        // Whoever has one address of IPv6 has 2^64.
        let network = match from {
            IpAddr::V4(v4) => u64::from(v4.to_bits()),
            IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64,
        };
        &self.shares[self.key.hash_one(network) as usize % SHARES]
    }
}

/// The side of lanes.
#[derive(Debug)]
pub struct Knocks {
    knocks: mpsc::Receiver<Knock>,
    waiting: Arc<Waiting>,
    port: PortAddr,
    /// Whether sockets beside the port's own can be had.
    shares: bool,
}

impl Knocks {
    /// Whether lanes can have sockets at the port: some hosts do not let them share its address.
    pub fn shares(&self) -> bool {
        self.shares
    }

    /// The next one. `None` when the port is closed.
    pub async fn next(&mut self) -> Option<Knock> {
        let knock = self.knocks.recv().await?;
        self.waiting.leave(knock.from.ip());
        Some(knock)
    }

    /// A socket at the port's address that hears whoever knocked, and nobody else, and that answers
    /// from the address that was knocked at. The caller has checked that the knock is good: it
    /// costs a descriptor.
    ///
    /// # Errors
    /// [`NetError::Socket`].
    pub fn seat(&self, knock: &Knock) -> Result<UdpSeat, NetError> {
        let failed =
            |source| NetError::Socket { addr: knock.from.to_string(), doing: "make a UDP lane's socket", source };
        if !self.shares {
            return Err(failed(io::ErrorKind::AddrInUse.into()));
        }
        let connected = |ip| {
            let socket = self.port.beside(ip)?;
            socket.connect(knock.from_raw)?;
            Ok(socket)
        };
        let seat = connected(self.port.addr.ip()).map_err(failed)?;
        let at = seat.local_addr().map_err(failed)?.ip();
        let socket = match knock.to {
            // This host has several addresses, and would answer from another. Bound to one of them
            // it takes everybody's datagrams to there until it is connected, some microseconds
            // later: those are lost, as they may be on the way, and open nothing.
            Some(to) if to.to_canonical() != at.to_canonical() => connected(to).map_err(failed)?,
            _ => seat,
        };
        let route_bytes = connected_payload(&socket, knock.from);
        Ok(UdpSeat { socket: LaneSocket::Own(socket), peer: knock.from, route_bytes })
    }
}

/// A socket apart for one lane at the port.
#[derive(Debug)]
pub struct UdpSeat {
    /// The socket.
    pub(crate) socket: LaneSocket,
    /// The other end.
    pub(crate) peer: SocketAddr,
    /// The largest UDP payload that the route takes at this host, bytes.
    pub route_bytes: u16,
}

impl UdpSeat {
    /// The other end.
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }
}

/// Lets sockets of lanes share the port's address, and keeps strangers' datagrams at the port.
fn share(socket: &UdpSocket, port: &PortAddr) -> io::Result<()> {
    // It is said after the port was bound: nobody else can have been there before, and another
    // daemon that wants the port is told that it is taken.
    udp::share_address(socket)?;
    // The program needs a group, and a group two sockets. It stays when this one is closed.
    udp::keep_first(&port.beside(port.addr.ip())?)
}

/// Whether a datagram with this first byte is none of QUIC's, whose fixed bit is set (RFC 9000,
/// 17.2). Neither end of ours greases it (RFC 9287).
fn is_foreign(first: u8) -> bool {
    first & 0x40 == 0
}

/// Whether a datagram may be a JOIN (section 10.1 of `docs/WIRE.md`): the length, the kind and the
/// version of one. All else that is none of QUIC's is nothing to anybody here.
fn may_be_join(datagram: &[u8]) -> bool {
    datagram.len() == usize::from(UDP_DATAGRAM_BYTES_SAFE) && datagram.starts_with(&[0x21, 1])
}

/// Knocks that wait to be looked at. Each is looked at in microseconds; all have 320 kB.
const KNOCKS_WAITING: usize = 256;
/// Knocks of one share among them: as many lanes as a session has, and some.
const KNOCKS_EACH: usize = 32;
/// Shares by networks.
const SHARES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// A datagram that begins so, with a number in it.
    fn datagram(first: [u8; 2], number: u8) -> Vec<u8> {
        let mut bytes = vec![number; usize::from(UDP_DATAGRAM_BYTES_SAFE)];
        bytes[..2].copy_from_slice(&first);
        bytes
    }

    fn door() -> (Door, Knocks) {
        Door::new(&UdpSocket::bind("127.0.0.1:0").expect("a port")).expect("a door")
    }

    /// Sorts datagrams that came together. Gives those that are left to QUIC.
    fn sort(door: &Door, from: &str, datagrams: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = datagrams.concat();
        let (addr, len, stride) =
            (SocketAddr::new(from.parse().expect("an address"), 7), bytes.len(), datagrams[0].len());
        let mut metas = [RecvMeta { addr, len, stride, ..RecvMeta::default() }];
        door.sort(&mut [IoSliceMut::new(&mut bytes)], &mut metas);
        bytes.truncate(metas[0].len);
        bytes
    }

    fn waiting(knocks: &mut Knocks) -> Vec<Knock> {
        let mut waiting = Vec::new();
        while let Ok(knock) = knocks.knocks.try_recv() {
            knocks.waiting.leave(knock.from.ip());
            waiting.push(knock);
        }
        waiting
    }

    #[test]
    fn datagrams_that_came_together_are_told_apart_one_by_one() {
        let (door, mut knocks) = door();
        let [quic, join] = [[0x40, 1], [0x21, 1]].map(|first| move |number| datagram(first, number));
        let short = |mut bytes: Vec<u8>| {
            bytes.truncate(700);
            bytes
        };
        for (run, to_quic, to_lanes) in [
            (
                vec![quic(1), join(2), quic(3), join(4), short(quic(5))],
                [quic(1), quic(3), short(quic(5))].concat(),
                vec![2, 4],
            ),
            (vec![join(1), quic(2)], quic(2), vec![1]),
            (vec![quic(1), join(2)], quic(1), vec![2]),
            (vec![quic(1), quic(2), short(quic(3))], [quic(1), quic(2), short(quic(3))].concat(), vec![]),
            (vec![join(1), join(2)], vec![], vec![1, 2]),
        ] {
            assert_eq!(sort(&door, "192.0.2.1", &run), to_quic);
            assert_eq!(waiting(&mut knocks).iter().map(|knock| knock.datagram[9]).collect::<Vec<_>>(), to_lanes);
        }
    }

    #[test]
    fn what_cannot_be_a_join_takes_no_place() {
        let (door, mut knocks) = door();
        for (case, first, len, is_kept) in [
            ("a join", [0x21, 1], 1232, true),
            ("a shorter one", [0x21, 1], 1231, false),
            ("a longer one", [0x21, 1], 1233, false),
            ("another version", [0x21, 2], 1232, false),
            ("an answer", [0x22, 1], 1232, false),
            ("a piece", [0x23, 1], 1232, false),
        ] {
            let mut bytes = datagram(first, 0);
            bytes.resize(len, 0);
            assert_eq!(sort(&door, "192.0.2.1", &[bytes]), b"");
            assert_eq!(waiting(&mut knocks).len(), usize::from(is_kept), "{case}");
        }
    }

    #[test]
    fn a_stranger_has_a_share_of_the_places_and_gets_it_back() {
        let (door, mut knocks) = door();
        for _ in 0..2 {
            for (from, other) in [("192.0.2.1", "198.51.100."), ("2001:db8::1", "2001:db8:0:")] {
                for number in 0..100 {
                    // All addresses of a network of IPv6 are one stranger's.
                    let from = if from.contains(':') { format!("2001:db8::{number:x}") } else { from.to_owned() };
                    sort(&door, &from, &[datagram([0x21, 1], 0)]);
                }
                // It shares its places with one of 64 others by chance.
                let others =
                    (1..9).map(|n| if other.contains(':') { format!("{other}{n}::1") } else { format!("{other}{n}") });
                others.for_each(|other| drop(sort(&door, &other, &[datagram([0x21, 1], 1)])));
                let kept = waiting(&mut knocks);
                let own = kept.iter().filter(|knock| knock.datagram[9] == 0).count();
                assert_eq!(own, KNOCKS_EACH);
                assert!(kept.len() > own, "all of eight others fall into the same share once in 10^14 times");
            }
        }
    }
}
