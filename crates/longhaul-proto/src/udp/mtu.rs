//! The size of a lane's datagrams, found without ICMP (datagram packetization layer path MTU
//! discovery, RFC 8899).
//!
//! In: the sizes that both routes carry, probes that came, whether large pieces land. Out: the
//! sizes to probe and when, and the size to use. Knows neither packets nor units.
//!
//! All sizes that may pass are probed at once, largest first, and not one after the other as the
//! RFC's example does: the answer is there after one round trip, and costs 28 KB on a route of
//! 9,000 bytes. What did not come is probed twice more, as probes are lost like everything else.

use std::time::Duration;

use longhaul_core::limits::{UDP_DATAGRAM_BYTES_MAX, UDP_DATAGRAM_BYTES_SAFE};

use super::packet::SizeSearch;
use crate::time::Timestamp;

/// Sizes of datagrams that pass on common paths, from packets less headers: 8,980 bytes (a tunnel
/// over 9,000) and 4,352 (FDDI, some clouds); 1,500 over IPv4 and over IPv6, 1,480 and 1,420 in
/// tunnels (IP in IP, WireGuard), less 48.
const COMMON_SIZES: [u16; 6] = [8932, 4304, 1472, 1452, 1432, 1372];
/// Rounds of probes.
const ROUNDS: u8 = 3;
/// Time after which larger sizes are tried again, as RFC 8899 recommends (PMTU_RAISE_TIMER).
const RAISE_AFTER: Duration = Duration::from_secs(600);
/// A path swallows large datagrams if none landed for three round trips, and for this time at
/// least: queues and sockets may lose everything for as long.
const HOLE_TIME: Duration = Duration::from_millis(200);

/// The search for the size of a lane's datagrams.
#[derive(Debug)]
pub struct Mtu {
    search: SizeSearch,
    /// The most that both routes carry, as their systems knew them at the join.
    route: u16,
    /// The most that this host's way out has not refused. It is forgotten when larger sizes are
    /// tried again.
    allowed: u16,
    size: u16,
    /// Sizes that are larger than `size` and still to be tried in this round, largest last.
    pending: Vec<u16>,
    rounds_left: u8,
    /// When the next round of probes begins, once nothing is pending.
    due: Timestamp,
    /// The first large datagram that was sent since one landed: its number, and when.
    large_since: Option<(u64, Timestamp)>,
    /// Whether such a one was overtaken by a packet that came: the path swallows large datagrams,
    /// or swallowed everything for some time. Large ones that are sent from then on tell which.
    is_doubted: bool,
}

impl Mtu {
    /// A search between 1,232 bytes, which the join has shown to pass, and the most that both
    /// routes carry. It begins at once.
    pub fn new(now: Timestamp, routes: [u16; 2]) -> Mtu {
        let [one, other] = routes.map(|bytes| bytes.clamp(UDP_DATAGRAM_BYTES_SAFE, UDP_DATAGRAM_BYTES_MAX));
        let route = one.min(other);
        let size = UDP_DATAGRAM_BYTES_SAFE;
        Mtu {
            search: SizeSearch(0),
            route,
            allowed: route,
            size,
            pending: Vec::new(),
            rounds_left: ROUNDS,
            due: now,
            large_since: None,
            is_doubted: false,
        }
    }

    /// Bytes of the datagrams that pieces are to fill.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// The search that probes belong to.
    pub fn search(&self) -> SizeSearch {
        self.search
    }

    /// Bytes of the datagram to probe with now, if one is due. [`Mtu::probed`] says that it went.
    pub fn probe(&mut self, now: Timestamp) -> Option<u16> {
        if self.pending.is_empty() && now >= self.due && self.size < self.route {
            if self.rounds_left == 0 {
                (self.rounds_left, self.allowed) = (ROUNDS, self.route);
            }
            self.rounds_left -= 1;
            self.pending = self.candidates();
            if self.pending.is_empty() {
                (self.rounds_left, self.due) = (0, now.after(RAISE_AFTER));
            }
        }
        self.pending.last().copied()
    }

    /// A probe of this size was sent. The next round begins after `answer`, the longest time that
    /// its answer may take.
    pub fn probed(&mut self, now: Timestamp, size: u16, answer: Duration) {
        self.pending.retain(|pending| *pending != size);
        if self.pending.is_empty() {
            self.due = now.after(if self.rounds_left == 0 { RAISE_AFTER } else { answer });
        }
    }

    /// When a probe is due; `None` while nothing larger can pass.
    pub fn timeout(&self) -> Option<Timestamp> {
        (self.size < self.route).then_some(if self.pending.is_empty() { self.due } else { Timestamp(0) })
    }

    /// The largest probe of the latest search that came, as the other end says.
    pub fn came(&mut self, search: SizeSearch, size: u16) {
        if search == self.search && size > self.size && size <= self.allowed {
            self.size = size;
            self.pending.retain(|pending| *pending > size);
        }
    }

    /// The system refuses to send so large a datagram (EMSGSIZE): nothing as large is tried before
    /// larger sizes are tried again. If datagrams have that size, smaller ones are looked for at
    /// once, and the smallest are sent until one is found. Refusing even those means nothing: the
    /// join has shown that they pass.
    pub fn refused(&mut self, size: u16) {
        if size <= UDP_DATAGRAM_BYTES_SAFE {
            return;
        }
        self.allowed = self.allowed.min(size - 1);
        self.pending.retain(|pending| *pending < size);
        if self.size >= size {
            (self.pending, self.rounds_left, self.due) = (Vec::new(), ROUNDS, Timestamp(0));
            self.search_anew();
        }
    }

    /// A datagram with this number was sent, of this size.
    pub(super) fn sent(&mut self, now: Timestamp, number: u64, size: u16) {
        if size > UDP_DATAGRAM_BYTES_SAFE && self.large_since.is_none() {
            self.large_since = Some((number, now));
        }
    }

    /// A large piece has landed.
    pub(super) fn landed(&mut self) {
        (self.large_since, self.is_doubted) = (None, false);
    }

    /// Whether the path swallows large datagrams: none has landed for long, though a packet that
    /// was sent after the first of them came (number `largest`), and then again none of those that
    /// were sent after that. If so the size is the smallest from now on, and larger ones are tried
    /// again after 600 s.
    pub(super) fn fell(&mut self, now: Timestamp, largest: u64, round_trip: Duration) -> bool {
        let Some((first, at)) = self.large_since else { return false };
        if self.size == UDP_DATAGRAM_BYTES_SAFE || largest <= first || now.since(at) < HOLE_TIME.max(round_trip * 3) {
            return false;
        }
        self.large_since = None;
        if !std::mem::replace(&mut self.is_doubted, true) {
            return false;
        }
        (self.pending, self.rounds_left, self.due) = (Vec::new(), 0, now.after(RAISE_AFTER));
        self.search_anew();
        true
    }

    /// The smallest datagrams are sent from now on, and what came of earlier probes proves nothing.
    fn search_anew(&mut self) {
        self.size = UDP_DATAGRAM_BYTES_SAFE;
        match self.search.0.checked_add(1) {
            Some(next) => self.search = SizeSearch(next),
            // A probe could not be told from one that came before.
            None => self.route = UDP_DATAGRAM_BYTES_SAFE,
        }
        self.landed();
    }

    /// Whether large datagrams are doubted: small ones should follow them soon.
    pub(super) fn is_doubted(&self) -> bool {
        self.is_doubted
    }

    /// Sizes that may pass, largest last.
    fn candidates(&self) -> Vec<u16> {
        let common = COMMON_SIZES.into_iter().filter(|size| *size < self.allowed);
        let mut sizes: Vec<u16> =
            [self.allowed].into_iter().chain(common).filter(|candidate| *candidate > self.size).collect();
        sizes.reverse();
        sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: Duration = Duration::from_millis(100);

    fn ms(millis: u64) -> Timestamp {
        Timestamp(millis * 1000)
    }

    /// The probes of one round.
    fn round(mtu: &mut Mtu, now: Timestamp) -> Vec<u16> {
        let mut sizes = Vec::new();
        while let Some(size) = mtu.probe(now) {
            sizes.push(size);
            mtu.probed(now, size, ANSWER);
        }
        sizes
    }

    #[test]
    fn all_sizes_are_tried_at_once_and_the_largest_that_comes_is_used() {
        let mut mtu = Mtu::new(ms(0), [8952, 65_507]);
        assert_eq!((mtu.size(), mtu.timeout()), (1232, Some(ms(0))));
        assert_eq!(round(&mut mtu, ms(0)), [8952, 8932, 4304, 1472, 1452, 1432, 1372]);
        mtu.came(SizeSearch(0), 1372);
        mtu.came(SizeSearch(0), 1432);
        assert_eq!((mtu.size(), mtu.timeout()), (1432, Some(ms(100))));
        assert!(round(&mut mtu, ms(99)).is_empty());
        assert_eq!(round(&mut mtu, ms(100)), [8952, 8932, 4304, 1472, 1452]);
        assert_eq!(round(&mut mtu, ms(200)), [8952, 8932, 4304, 1472, 1452]);
        assert_eq!((round(&mut mtu, ms(300)), mtu.timeout()), (vec![], Some(ms(600_200))));
        assert_eq!(round(&mut mtu, ms(600_200)), [8952, 8932, 4304, 1472, 1452]);
        mtu.came(SizeSearch(0), 8952);
        assert_eq!((mtu.size(), mtu.timeout()), (8952, None));
    }

    #[test]
    fn nothing_is_tried_beyond_the_routes_or_what_the_system_refuses() {
        let mut mtu = Mtu::new(ms(0), [1232, 9000]);
        assert_eq!((mtu.probe(ms(0)), mtu.timeout()), (None, None));
        let mut mtu = Mtu::new(ms(0), [1452, 9000]);
        assert_eq!(mtu.probe(ms(0)), Some(1452));
        mtu.refused(1452);
        assert_eq!(round(&mut mtu, ms(0)), [1432, 1372]);
        mtu.came(SizeSearch(0), 1452);
        assert_eq!(mtu.size(), 1232, "a size that was refused");
        mtu.came(SizeSearch(0), 1432);
        assert_eq!(mtu.size(), 1432);
    }

    #[test]
    fn what_the_system_refuses_is_tried_again_later_and_smaller_sizes_at_once() {
        let mut mtu = Mtu::new(ms(0), [1472, 9000]);
        round(&mut mtu, ms(0));
        mtu.came(SizeSearch(0), 1472);
        mtu.refused(1000);
        mtu.refused(1232);
        assert_eq!((mtu.size(), mtu.timeout()), (1472, None), "the join has shown that they pass");
        mtu.refused(1472);
        assert_eq!((mtu.size(), mtu.timeout()), (1232, Some(ms(0))));
        assert_eq!(round(&mut mtu, ms(1000)), [1471, 1452, 1432, 1372]);
        mtu.came(SizeSearch(0), 1471);
        assert_eq!((mtu.size(), mtu.search()), (1232, SizeSearch(1)), "a probe from before");
        mtu.came(SizeSearch(1), 1471);
        assert_eq!((mtu.size(), round(&mut mtu, ms(1100))), (1471, vec![]));
        assert_eq!(mtu.timeout(), Some(ms(601_100)), "what was refused need not be for ever");
        assert_eq!(round(&mut mtu, ms(601_100)), [1472]);
        mtu.came(SizeSearch(1), 1472);
        assert_eq!((mtu.size(), mtu.timeout()), (1472, None));
    }

    #[test]
    fn a_path_that_swallows_large_datagrams_gets_small_ones() {
        let found = |mtu: &mut Mtu| {
            round(mtu, ms(0));
            mtu.came(SizeSearch(0), 8952);
        };
        let (mut mtu, rtt) = (Mtu::new(ms(0), [8952, 8952]), Duration::from_millis(100));
        found(&mut mtu);
        mtu.sent(ms(1000), 70, 200);
        mtu.sent(ms(1000), 77, 8952);
        for (now, largest) in [(1299, 99), (1300, 77), (1300, 78), (1301, 79)] {
            assert!(!mtu.fell(ms(now), largest, rtt), "{now} {largest}");
        }
        // Only what is sent from now on tells it from a path that swallowed everything.
        assert!(mtu.is_doubted());
        mtu.sent(ms(1301), 80, 8952);
        for (now, largest, fell) in [(1600, 99, false), (1601, 80, false), (1601, 81, true)] {
            assert_eq!(mtu.fell(ms(now), largest, rtt), fell, "{now} {largest}");
        }
        assert_eq!((mtu.size(), mtu.timeout()), (1232, Some(ms(601_601))));
        mtu.came(SizeSearch(0), 8952);
        assert_eq!(mtu.size(), 1232, "a probe that came before the hole");
        assert_eq!(round(&mut mtu, ms(601_601)).len(), 7);
        mtu.came(SizeSearch(1), 8952);
        assert_eq!(mtu.size(), 8952);
        // One that landed is proof of the contrary, and a short round trip is none.
        let mut mtu = Mtu::new(ms(0), [8952, 8952]);
        found(&mut mtu);
        mtu.sent(ms(1000), 77, 8952);
        mtu.landed();
        assert!(!mtu.fell(ms(2000), 99, rtt));
        for (number, at, fell) in [(99, 2000, false), (199, 2200, true)] {
            mtu.sent(ms(at), number, 8952);
            assert!(!mtu.fell(ms(at + 199), number + 1, Duration::from_millis(1)));
            assert_eq!(mtu.fell(ms(at + 200), number + 1, Duration::from_millis(1)), fell);
        }
    }

    #[test]
    fn a_path_that_swallowed_everything_for_some_time_is_not_taken_for_one_that_swallows_large_ones() {
        let rtt = Duration::from_millis(100);
        let mut mtu = Mtu::new(ms(0), [8952, 8952]);
        round(&mut mtu, ms(0));
        mtu.came(SizeSearch(0), 8952);
        for outage in 0..3 {
            let (at, number) = (1000 + outage * 10_000, 100 * outage);
            mtu.sent(ms(at), number, 8952);
            assert!(!mtu.fell(ms(at + 3000), number + 1, rtt));
            mtu.sent(ms(at + 3000), number + 2, 8952);
            mtu.landed();
        }
    }
}
