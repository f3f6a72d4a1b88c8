//! Shares of a bounded number of seats, and who gives up a seat when all are taken and one more
//! member comes.
//!
//! In: members, by their [`Source`]. Out: the member that has to go. Pure: knows no connections, no
//! time and no randomness. [`crate::Seats`] puts it between tasks.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::hash::Hash;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::public_key::PublicKey;

/// The origin of a connection, as far as shares go: a host, which lies in a network, or a key.
///
/// A host is an IPv4 address or an IPv6 /64, of which every host may use each address. (The default
/// of OpenSSH's PerSourceNetBlockSize, /128, lets the holder of one /64 be as many sources as it
/// likes.) A network is an IPv4 /24 or an IPv6 /48, the smallest that are routed by themselves and
/// the largest that are given out for the asking: the holder of a whole one is one source all the
/// same. A client's key is a source by itself, wherever it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// All who come from one host.
    Host(IpAddr),
    /// All who show one key.
    Key(PublicKey),
}

/// The network that a source belongs to. Seats are shared between networks first, and then between
/// the sources of one network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Network {
    Block(IpAddr),
    Key(PublicKey),
}

impl Source {
    /// The source that an address belongs to.
    #[must_use]
    pub fn of(addr: IpAddr) -> Source {
        Source::Host(block(addr, 32, 64))
    }

    pub(crate) fn network(self) -> Network {
        match self {
            Source::Host(addr) => Network::Block(block(addr, 24, 48)),
            Source::Key(key) => Network::Key(key),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Host(addr @ IpAddr::V4(_)) => write!(f, "{addr}"),
            Source::Host(addr @ IpAddr::V6(_)) => write!(f, "{addr}/64"),
            Source::Key(key) => write!(f, "{key}"),
        }
    }
}

/// The first address of the block that `addr` lies in.
fn block(addr: IpAddr, v4_bits: u32, v6_bits: u32) -> IpAddr {
    match addr.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & (u32::MAX << (32 - v4_bits)))),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << (128 - v6_bits)))),
    }
}

/// Members of a bounded crowd. When one more comes than there are seats, the network that has most,
/// and in it the host that has most, gives up its oldest member.
///
/// The largest group goes first, so that a flood takes seats from itself and never from a source
/// with fewer. The oldest of its members goes, not the newest: honest clients that share an address
/// with a flood (behind a NAT, or a tunnel) cannot be told apart from it, and this way each member
/// has `seats / rate` seconds before it goes, while an honest one needs a round trip. If the newest
/// went, an attacker that held all seats, which takes no rate at all, would keep out every other
/// client of the same address until its deadline.
///
/// No address is shut out for the past behaviour of others that used it (as OpenSSH's
/// PerSourcePenalties does): a single host could then lock out all clients that share its NAT. It
/// would save nothing either, as the cost of a stranger is bounded here.
#[derive(Debug)]
pub(crate) struct Crowd<T> {
    seats: usize,
    next: u64,
    members: HashMap<u64, (Source, T)>,
    networks: Groups<Network, Groups<Source, BTreeSet<u64>>>,
}

impl<T> Crowd<T> {
    /// An empty crowd with `seats` seats, at least one.
    pub(crate) fn new(seats: usize) -> Crowd<T> {
        Crowd { seats: seats.max(1), next: 0, members: HashMap::new(), networks: Groups::default() }
    }

    /// Adds a member. Returns its number and, if it was one too many, the older member that has to
    /// go.
    pub(crate) fn enter(&mut self, source: Source, member: T) -> (u64, Option<(Source, T)>) {
        let number = self.next;
        self.next += 1;
        self.members.insert(number, (source, member));
        self.change(source, |numbers| _ = numbers.insert(number));
        let goes = if self.members.len() > self.seats { self.networks.first_to_go() } else { None };
        (number, goes.and_then(|number| self.leave(number)))
    }

    /// Takes a member out. `None` if it went before.
    pub(crate) fn leave(&mut self, number: u64) -> Option<(Source, T)> {
        let (source, member) = self.members.remove(&number)?;
        self.change(source, |numbers| _ = numbers.remove(&number));
        Some((source, member))
    }

    /// The number of members.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// The number of members from one source.
    pub(crate) fn len_of(&self, source: Source) -> usize {
        let network = self.networks.groups.get(&source.network());
        network.and_then(|hosts| hosts.groups.get(&source)).map_or(0, BTreeSet::len)
    }

    /// The most members that fit.
    pub(crate) fn seats(&self) -> usize {
        self.seats
    }

    fn change(&mut self, source: Source, change: impl FnOnce(&mut BTreeSet<u64>)) {
        self.networks.change(source.network(), |hosts| hosts.change(source, change));
    }
}

/// A group of members, one of which would be the first to go.
trait Group: Default {
    fn len(&self) -> usize;
    fn first_to_go(&self) -> Option<u64>;
}

impl Group for BTreeSet<u64> {
    fn len(&self) -> usize {
        BTreeSet::len(self)
    }

    /// Numbers only grow: the lowest is the oldest.
    fn first_to_go(&self) -> Option<u64> {
        self.first().copied()
    }
}

/// Groups by name, and in the order in which they give up members: the last is the largest, and
/// among equally large ones the one with the oldest member.
#[derive(Debug)]
struct Groups<K, G> {
    len: usize,
    groups: HashMap<K, G>,
    order: BTreeSet<(usize, Reverse<u64>, K)>,
}

impl<K, G> Default for Groups<K, G> {
    fn default() -> Groups<K, G> {
        Groups { len: 0, groups: HashMap::new(), order: BTreeSet::new() }
    }
}

impl<K: Copy + Ord + Hash, G: Group> Groups<K, G> {
    /// Changes one group. It is made if it does not exist, and removed if it is empty afterwards.
    fn change(&mut self, name: K, change: impl FnOnce(&mut G)) {
        let rank = |group: &G| group.first_to_go().map(|number| (group.len(), Reverse(number), name));
        let group = self.groups.entry(name).or_default();
        let (len, before) = (group.len(), rank(group));
        change(group);
        self.len = self.len - len + group.len();
        let after = rank(group);
        if let Some(before) = before {
            self.order.remove(&before);
        }
        match after {
            Some(after) => drop(self.order.insert(after)),
            None => drop(self.groups.remove(&name)),
        }
    }
}

impl<K: Copy + Ord + Hash, G: Group> Group for Groups<K, G> {
    fn len(&self) -> usize {
        self.len
    }

    fn first_to_go(&self) -> Option<u64> {
        let (.., name) = self.order.last()?;
        self.groups.get(name).and_then(G::first_to_go)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(addr: &str) -> Source {
        Source::of(addr.parse().unwrap())
    }

    /// Lets `count` in from `source`; returns the sources of the members that had to go for them.
    fn flood(crowd: &mut Crowd<()>, source: Source, count: usize) -> Vec<Source> {
        (0..count).filter_map(|_| crowd.enter(source, ()).1).map(|(source, ())| source).collect()
    }

    #[test]
    fn a_flood_takes_seats_from_itself_and_leaves_the_few_of_others() {
        let mut crowd = Crowd::new(16);
        let (flooding, honest) = (from("192.0.2.1"), from("198.51.100.1"));
        let (first, _) = crowd.enter(honest, ());
        assert!(flood(&mut crowd, flooding, 1000).iter().all(|source| *source == flooding));
        let (second, gone) = crowd.enter(honest, ());
        assert_eq!(gone.unwrap().0, flooding, "a newcomer gets in");
        assert!(flood(&mut crowd, flooding, 1000).iter().all(|source| *source == flooding));
        assert!(crowd.leave(first).is_some() && crowd.leave(second).is_some());
    }

    #[test]
    fn within_a_source_the_oldest_goes_so_that_all_have_the_same_time() {
        let mut crowd = Crowd::new(4);
        let source = from("192.0.2.1");
        let gone: Vec<_> = (0..20).filter_map(|n| crowd.enter(source, n).1).map(|(_, n)| n).collect();
        assert_eq!(gone, (0..16).collect::<Vec<_>>());
    }

    #[test]
    fn the_addresses_of_one_network_are_one_source_when_it_is_the_largest() {
        for (network, honest) in [
            (["10.0.0.1", "10.0.0.2", "10.0.0.3"], "10.0.1.1"),
            (["2001:db8::1", "2001:db8:0:1::1", "2001:db8:0:ffff::1"], "2001:db8:1::1"),
        ] {
            let mut crowd = Crowd::new(4);
            let network = network.map(from);
            for source in network {
                assert!(flood(&mut crowd, source, 1).is_empty());
            }
            let (number, _) = crowd.enter(from(honest), ());
            for round in 0..9 {
                let source = network[round % 3];
                assert!(network.contains(&flood(&mut crowd, source, 1)[0]));
            }
            assert!(crowd.leave(number).is_some(), "{honest}");
        }
    }

    #[test]
    fn within_a_network_the_largest_host_goes_first() {
        let mut crowd = Crowd::new(8);
        let (flooding, neighbour) = (from("192.0.2.1"), from("192.0.2.2"));
        let (number, _) = crowd.enter(neighbour, ());
        assert!(flood(&mut crowd, flooding, 100).iter().all(|source| *source == flooding));
        assert!(crowd.leave(number).is_some());
    }

    #[test]
    fn of_sources_that_are_alike_the_oldest_member_goes_whatever_its_address() {
        let mut crowd = Crowd::new(3);
        let sources = ["203.0.113.1", "10.0.0.1", "198.51.100.1", "192.0.2.1", "11.0.0.1"].map(from);
        let gone: Vec<_> = sources.into_iter().flat_map(|source| flood(&mut crowd, source, 1)).collect();
        assert_eq!(gone, sources[..2]);
    }

    #[test]
    fn the_addresses_of_one_host_are_one_source() {
        assert_eq!(from("2001:db8::1"), from("2001:db8::ffff:1"));
        assert_ne!(from("2001:db8::1"), from("2001:db8:0:1::1"));
        assert_eq!(from("::ffff:192.0.2.1"), from("192.0.2.1"));
        assert_ne!(from("192.0.2.1"), from("192.0.2.2"));
        assert_eq!([from("192.0.2.1"), from("2001:db8::1")].map(|s| s.to_string()), ["192.0.2.1", "2001:db8::/64"]);
    }

    #[test]
    fn who_leaves_makes_room_and_nothing_of_it_stays() {
        let mut crowd = Crowd::new(2);
        let source = from("192.0.2.1");
        let numbers = [0, 1].map(|n| crowd.enter(source, n).0);
        assert_eq!((crowd.len(), crowd.len_of(source)), (2, 2));
        assert_eq!(crowd.leave(numbers[0]), Some((source, 0)));
        assert_eq!(crowd.leave(numbers[0]), None);
        assert!(crowd.enter(source, 2).1.is_none());
        crowd.leave(numbers[1]);
        crowd.leave(2);
        assert_eq!((crowd.len(), crowd.len_of(source)), (0, 0));
        assert!(crowd.networks.groups.is_empty() && crowd.networks.order.is_empty());
    }
}
