//! Lanes of another process of this host, whose datagrams pass through the process that has the
//! port.
//!
//! Owns the lane's socket, and two threads that pass runs of datagrams on, one each way. In: a seat
//! at the port. Out: the end of a pair of sockets for the other process, which gets no socket at
//! the port: whoever has one may have it receive what others send there. So it hears one host at
//! one port, and speaks to that one. What comes while the other process has not taken in what came
//! before waits in the socket, which counts what it has no room for. It must not know keys, nor
//! what datagrams say.

use std::any::Any;
use std::io;
use std::net::{Shutdown, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use longhaul_sys::passing;
use longhaul_sys::udp::{self, Inbox, PassedHead, Readiness, Sent};
use serde::{Deserialize, Serialize};
use socket2::SockRef;

use super::carrier::LaneSocket;
use super::lane::CAPABLE;
use super::port::UdpSeat;
use crate::error::NetError;
use crate::tcp::LOWER_EFFORT;

/// A seat at the port without its socket, for another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PassedSeat {
    peer: SocketAddr,
    local: SocketAddr,
    route_bytes: u16,
}

/// A lane whose datagrams are passed on. It is over once the other process has closed its end.
#[derive(Debug)]
pub struct UdpRelay(Weak<RelayEnds>);

#[derive(Debug)]
struct RelayEnds {
    socket: UdpSocket,
    pair: OwnedFd,
    is_over: AtomicBool,
    /// The caller's claim on what a relay takes, given back when both threads have ended.
    _claim: RelayClaim,
}

/// The claim on what a relay takes. Dropping it gives it back.
pub type RelayClaim = Box<dyn Any + Send + Sync>;

impl UdpRelay {
    /// Bytes of its buffers.
    pub const BYTES: u64 = 2 * RUNS as u64 * (64 << 10);

    /// Whether nothing is passed on any more.
    pub fn is_over(&self) -> bool {
        self.0.upgrade().is_none_or(|ends| ends.is_over.load(Ordering::Acquire))
    }

    /// Ends it. What the other process has said before still leaves.
    pub fn close(&self) {
        self.0.upgrade().iter().for_each(|ends| ends.end());
    }
}

impl UdpSeat {
    /// Passes the datagrams of this seat on to another process. Gives what that needs: its end of a
    /// pair of sockets, and the rest of the seat. `claim` is kept as long as its threads run.
    ///
    /// # Errors
    /// [`NetError::Socket`] if there is no descriptor or thread for it.
    pub fn pass_on(self, claim: RelayClaim) -> Result<(OwnedFd, PassedSeat, UdpRelay), NetError> {
        let UdpSeat { socket, peer, route_bytes } = self;
        let failed = |source| NetError::Socket { addr: peer.to_string(), doing: "pass a UDP lane on", source };
        let LaneSocket::Own(socket) = socket else { return Err(failed(io::ErrorKind::InvalidInput.into())) };
        drop_strays(&socket).map_err(failed)?;
        let _ = udp::set_class(&socket, CAPABLE);
        let local = socket.local_addr().map_err(failed)?;
        let (pair, other) = passing::pair().map_err(failed)?;
        let ends = Arc::new(RelayEnds { socket, pair, is_over: AtomicBool::new(false), _claim: claim });
        let relay = UdpRelay(Arc::downgrade(&ends));
        let spawn = |ends: Arc<RelayEnds>, pass: fn(&RelayEnds) -> io::Result<()>| {
            let passing = move || {
                let passed = pass(&ends);
                // An end that hears no more may still have a last word.
                if !passed.as_ref().is_err_and(is_deafness) {
                    ends.end();
                }
                let why = passed.err().map(|error| error.to_string());
                tracing::debug!(?why, "the datagrams of a UDP lane are passed on no more");
            };
            thread::Builder::new().name("udp-relay".to_owned()).spawn(passing).map(drop).map_err(failed)
        };
        spawn(ends.clone(), RelayEnds::pass_out)?;
        // If there is no second thread the first one ends with the other process's end.
        spawn(ends, RelayEnds::pass_in)?;
        Ok((other, PassedSeat { peer, local, route_bytes }, relay))
    }

    /// The seat whose datagrams another process passes on through this end of a pair.
    pub fn passed(pair: OwnedFd, seat: &PassedSeat) -> UdpSeat {
        let PassedSeat { peer, local, route_bytes } = *seat;
        UdpSeat { socket: LaneSocket::passed(pair, local, peer), peer, route_bytes }
    }
}

/// Drops what came before the socket was connected, which is not of this lane. A flood of this
/// lane's own address does not keep the caller here: once as much has been dropped as the socket
/// holds, nothing of that is left.
fn drop_strays(socket: &UdpSocket) -> io::Result<()> {
    let (mut stray, mut dropped) = (Inbox::new(RUNS), 0);
    let holds = SockRef::from(socket).recv_buffer_size()?;
    while dropped < holds && stray.receive(socket)? > 0 {
        dropped += stray.runs().map(|run| run.bytes.len().max(HELD_BYTES_MIN)).sum::<usize>();
    }
    Ok(())
}

/// Whether this error says that the other process hears no more: it has shut its end, or closed it
/// before it had read everything.
fn is_deafness(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl RelayEnds {
    /// Passes on what the other host sends, until the lane is over. A run that is longer than any
    /// of a lane is dropped.
    fn pass_in(&self) -> io::Result<()> {
        let mut inbox = Inbox::new(RUNS);
        while self.waits(&self.socket, Readiness::Incoming)? {
            inbox.receive(&self.socket)?;
            let dropped = inbox.dropped();
            for run in inbox.runs().filter(|run| !run.bytes.is_empty()) {
                let datagram_bytes = u16::try_from(run.datagram_bytes).unwrap_or(u16::MAX);
                let head = PassedHead::Run { datagram_bytes, mark: run.mark, dropped };
                while udp::pass_on(&self.pair, head, run.bytes)? == Sent::Full {
                    if !self.waits(&self.pair, Readiness::Outgoing)? {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Passes on what the other process sends, until it has closed its end. When the lane is over
    /// that can say no more, and what it has said is passed on.
    fn pass_out(&self) -> io::Result<()> {
        let (mut inbox, mut cuts) = (Inbox::new(RUNS), Cutting::Kernel);
        loop {
            let goes_on = self.waits(&self.pair, Readiness::Incoming)?;
            match inbox.receive_passed(&self.pair, |order| self.obey(order)) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                // It was closed before it had read everything. That is told once, and first.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => continue,
                Ok(0) if !goes_on => return Ok(()),
                received => drop(received?),
            }
            for run in inbox.runs() {
                let cut = u16::try_from(run.datagram_bytes).unwrap_or(u16::MAX);
                self.send(run.bytes, cut, &mut cuts)?;
            }
        }
    }

    /// Carries out an order of the other process. It may not take more of the path than lanes do.
    fn obey(&self, order: PassedHead) {
        if let PassedHead::Class(class @ (CAPABLE | SCAVENGER)) = order {
            let _ = udp::set_class(&self.socket, class);
        }
    }

    /// Sends a run. What the kernel drops is lost as on the way.
    fn send(&self, run: &[u8], cut: u16, cuts: &mut Cutting) -> io::Result<()> {
        let mut rest = run;
        while !rest.is_empty() {
            let (dealt, sent) = match cuts {
                Cutting::Kernel => (0, udp::send_run(&self.socket, rest, cut)?),
                Cutting::Nobody => udp::send_each(&self.socket, rest, cut)?,
            };
            rest = rest.get(dealt * usize::from(cut)..).unwrap_or_default();
            match (sent, *cuts) {
                (Sent::Taken, _) => return Ok(()),
                (Sent::Full, _) => {
                    if !self.waits(&self.socket, Readiness::Outgoing)? {
                        return Ok(());
                    }
                }
                (Sent::NotCut, _) => {
                    // Kernels give the same error for datagrams that are too long for the way out.
                    let first = &rest[..rest.len().min(cut.into())];
                    match udp::send_run(&self.socket, first, cut)? {
                        Sent::TooLong => return Ok(()),
                        Sent::Full if !self.waits(&self.socket, Readiness::Outgoing)? => return Ok(()),
                        Sent::Full => {}
                        _ => {
                            *cuts = Cutting::Nobody;
                            rest = &rest[first.len()..];
                        }
                    }
                }
                (Sent::Dropped | Sent::TooLong, Cutting::Kernel) => return Ok(()),
                // One by one, the next may get through.
                (Sent::Dropped | Sent::TooLong, Cutting::Nobody) => {
                    rest = rest.get(usize::from(cut)..).unwrap_or_default();
                }
            }
        }
        Ok(())
    }

    /// Waits until a socket is ready, or may be. Gives whether the lane goes on.
    fn waits(&self, socket: impl AsFd, readiness: Readiness) -> io::Result<bool> {
        let is_over = || self.is_over.load(Ordering::Acquire);
        if !is_over() {
            udp::wait(socket, readiness, LOOK_EACH)?;
        }
        Ok(!is_over())
    }

    /// Ends both ways, and wakes their threads.
    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        let _ = SockRef::from(&self.pair).shutdown(Shutdown::Both);
        let _ = SockRef::from(&self.socket).shutdown(Shutdown::Read);
    }
}

/// The part that cuts a run into datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cutting {
    /// The kernel, or the network card.
    Kernel,
    /// They leave one by one.
    Nobody,
}

/// Runs that are received at once: 256 KiB each way, for a lane of which this process keeps nothing
/// else.
const RUNS: usize = 4;
/// Bytes of a socket's buffer that each run in it takes at least, as Linux counts them.
const HELD_BYTES_MIN: usize = 512;
/// The class of a lane of less importance.
const SCAVENGER: u8 = LOWER_EFFORT | CAPABLE;
/// The time between two looks whether the lane is over: nothing depends on it but the end of a
/// thread that nobody could wake.
const LOOK_EACH: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use longhaul_sys::udp::RUN_BYTES_MAX;

    use super::*;

    /// A host's socket, and this host's seat for it.
    fn seat() -> (UdpSocket, UdpSeat) {
        seat_at("127.0.0.1:0")
    }

    fn seat_at(address: &str) -> (UdpSocket, UdpSeat) {
        let bound = || UdpSocket::bind(address).expect("a port");
        let (host, here) = (bound(), bound());
        let (peer, local) = (host.local_addr().expect("bound"), here.local_addr().expect("bound"));
        host.set_read_timeout(Some(Duration::from_secs(30))).expect("taken");
        host.connect(local).expect("connected");
        // It came from somebody else, before the socket was connected.
        bound().send_to(b"stray", local).expect("sent");
        udp::wait(&here, Readiness::Incoming, Duration::from_secs(30)).expect("it came");
        here.connect(peer).expect("connected");
        udp::prepare(&here).expect("taken");
        (host, UdpSeat { socket: LaneSocket::Own(here), peer, route_bytes: 1472 })
    }

    fn receive(socket: &LaneSocket, inbox: &mut Inbox) -> Vec<Vec<u8>> {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(30) {
            socket.wait(Readiness::Incoming, Duration::from_millis(100)).expect("a socket");
            if socket.receive(inbox).expect("open") > 0 {
                return inbox.runs().flat_map(|run| run.datagrams().map(<[u8]>::to_vec).collect::<Vec<_>>()).collect();
            }
        }
        panic!("nothing came");
    }

    #[test]
    fn the_other_process_hears_and_speaks_to_one_host_until_either_side_ends_it() {
        let (host, seat) = seat();
        let (pair, rest, relay) = seat.pass_on(Box::new(())).expect("a relay");
        let seat = UdpSeat::passed(pair, &rest);
        assert_eq!((seat.peer, seat.route_bytes), (host.local_addr().expect("bound"), 1472));
        assert_eq!(seat.socket.peer_addr(), Some(seat.peer));
        host.send(b"question").expect("sent");
        let mut inbox = Inbox::new(4);
        assert_eq!(receive(&seat.socket, &mut inbox), [b"question".to_vec()], "and nothing that came before");
        let run: Vec<u8> = (0..2500u32).map(|at| (at / 1000) as u8).collect();
        assert_eq!(seat.socket.send_run(&run, 1000).expect("open"), Sent::Taken);
        let mut datagram = [0; 2000];
        for want in run.chunks(1000) {
            let len = host.recv(&mut datagram).expect("it comes");
            assert_eq!(&datagram[..len], want);
        }
        assert!(!relay.is_over());
        drop(seat);
        over(&relay);
    }

    fn over(relay: &UdpRelay) {
        let begun = Instant::now();
        while !relay.is_over() {
            assert!(begun.elapsed() < Duration::from_secs(5), "the other end is closed");
            thread::yield_now();
        }
    }

    #[test]
    fn a_datagram_that_is_longer_than_any_of_a_lane_is_dropped_and_the_lane_goes_on() {
        let (host, seat) = seat_at("[::1]:0");
        let (pair, rest, relay) = seat.pass_on(Box::new(())).expect("a relay");
        let seat = UdpSeat::passed(pair, &rest);
        for datagram in [&b"before"[..], &[7; RUN_BYTES_MAX + 1], b"after"] {
            assert_eq!(host.send(datagram).expect("sent"), datagram.len());
        }
        let (mut inbox, mut heard) = (Inbox::new(4), Vec::new());
        while heard.len() < 2 {
            heard.extend(receive(&seat.socket, &mut inbox));
        }
        assert_eq!(heard, [b"before".to_vec(), b"after".to_vec()]);
        assert!(!relay.is_over());
    }

    #[test]
    fn the_last_word_leaves_though_its_process_has_closed_its_end_without_reading() {
        let (host, seat) = seat();
        let (pair, rest, relay) = seat.pass_on(Box::new(())).expect("a relay");
        let seat = UdpSeat::passed(pair, &rest);
        host.send(b"nobody reads it").expect("sent");
        seat.socket.wait(Readiness::Incoming, Duration::from_secs(30)).expect("a socket");
        // Many are on their way when it is closed.
        let words: Vec<[u8; 2]> = (0..100u16).map(u16::to_be_bytes).collect();
        words.iter().for_each(|word| assert_eq!(seat.socket.send_run(word, 2).expect("open"), Sent::Taken));
        drop(seat);
        for word in words {
            let mut datagram = [0; 100];
            let len = host.recv(&mut datagram).expect("it comes");
            assert_eq!(&datagram[..len], word);
        }
        over(&relay);
    }

    #[test]
    fn the_claim_on_a_relay_is_given_back_once_its_threads_have_ended() {
        let (_host, seat) = seat();
        let claim = Arc::new(());
        let (pair, _, relay) = seat.pass_on(Box::new(claim.clone())).expect("a relay");
        assert_eq!(Arc::strong_count(&claim), 2);
        drop(pair);
        over(&relay);
        let begun = Instant::now();
        while Arc::strong_count(&claim) > 1 {
            assert!(begun.elapsed() < Duration::from_secs(5), "its threads end");
            thread::yield_now();
        }
    }

    #[test]
    fn a_relay_that_is_closed_is_over_for_the_other_process() {
        let (_host, seat) = seat();
        let (pair, rest, relay) = seat.pass_on(Box::new(())).expect("a relay");
        let seat = UdpSeat::passed(pair, &rest);
        relay.close();
        let mut inbox = Inbox::new(1);
        let begun = Instant::now();
        while seat.socket.receive(&mut inbox).is_ok() {
            assert!(begun.elapsed() < Duration::from_secs(5), "it is over");
            thread::yield_now();
        }
        assert!(relay.is_over());
    }

    #[test]
    fn the_other_process_gives_its_packets_no_class_above_the_usual() {
        let (host, seat) = seat();
        let (pair, _, relay) = seat.pass_on(Box::new(())).expect("a relay");
        let class = || relay.0.upgrade().map(|ends| rustix::net::sockopt::ip_tos(&ends.socket).expect("known"));
        for (asked, want) in [(SCAVENGER, SCAVENGER), (0xb8, SCAVENGER), (CAPABLE, CAPABLE)] {
            udp::pass_on(&pair, PassedHead::Class(asked), &[]).expect("open");
            // What is said after an order leaves after it was carried out.
            udp::pass_on(&pair, PassedHead::cut(1), &[asked]).expect("open");
            let mut datagram = [0; 2];
            assert_eq!((host.recv(&mut datagram).expect("it comes"), datagram[0]), (1, asked));
            assert_eq!(class(), Some(want), "{asked}");
        }
    }
}
