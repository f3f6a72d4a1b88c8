//! Who may be heard: connections that have shown a key and not yet said what they want, bounded so that none of them costs the
//! daemon much, and no address or key keeps the others out.
//!
//! In: an address, and the key if it is a client's. Out: a [`Place`], or none. Knows no connections and no time.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_net::PublicKey;

/// The places of one daemon.
#[derive(Clone, Debug, Default)]
pub(super) struct Lobby(Arc<Mutex<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    strangers: usize,
    by_whom: HashMap<Whom, usize>,
}

/// Who shares places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Whom {
    /// Keys that the daemon does not know, by where they come from: anyone makes as many keys as there is time for.
    Stranger(IpAddr),
    /// The holders of one client's key, wherever they are.
    Client(PublicKey),
}

/// A place; dropping it leaves.
#[derive(Debug)]
pub(super) struct Place {
    lobby: Lobby,
    whom: Whom,
}

impl Lobby {
    /// A place for someone from `addr`, who is a client if it has a `client` key. None if its share or that of all strangers is
    /// taken: whoever means well needs a place for a round trip.
    pub(super) fn enter(&self, addr: IpAddr, client: Option<PublicKey>) -> Option<Place> {
        let whom = client.map_or_else(|| Whom::Stranger(neighbourhood(addr)), Whom::Client);
        let mut waiting = self.lock();
        let is_stranger = client.is_none();
        let share = if is_stranger { STRANGERS_OF_ADDRESS_MAX } else { OF_CLIENT_MAX };
        let there = waiting.by_whom.get(&whom).copied().unwrap_or(0);
        if there >= share || is_stranger && waiting.strangers >= STRANGERS_MAX {
            return None;
        }
        waiting.by_whom.insert(whom, there + 1);
        waiting.strangers += usize::from(is_stranger);
        Some(Place { lobby: self.clone(), whom })
    }

    /// No code that holds the lock can panic halfway.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.lobby.lock();
        waiting.strangers -= usize::from(matches!(self.whom, Whom::Stranger(_)));
        if let Some(there) = waiting.by_whom.get_mut(&self.whom) {
            *there -= 1;
            if *there == 0 {
                waiting.by_whom.remove(&self.whom);
            }
        }
    }
}

/// One host may have all of an IPv6 /64.
fn neighbourhood(addr: IpAddr) -> IpAddr {
    match addr.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))),
        v4 => v4,
    }
}

/// Strangers at a time; each is told that it is one, and needs tens of KiB until then.
const STRANGERS_MAX: usize = 64;
/// Of those, from one address: four that are full leave none, one leaves three quarters.
const STRANGERS_OF_ADDRESS_MAX: usize = 16;
/// Connections of one client's key that have not begun a session: as many as there may be sessions by default, twice.
const OF_CLIENT_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_net::Identity;

    fn addr(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_has_its_share_and_strangers_theirs() {
        let lobby = Lobby::default();
        let from = |n: u8| addr(&format!("192.0.2.{n}"));
        let crowd: Vec<_> = (0..100).map_while(|_| lobby.enter(from(1), None)).collect();
        assert_eq!(crowd.len(), STRANGERS_OF_ADDRESS_MAX);
        let others: Vec<_> = (2..100).map_while(|n| lobby.enter(from(n), None)).collect();
        assert_eq!(others.len(), STRANGERS_MAX - STRANGERS_OF_ADDRESS_MAX);
        drop(crowd);
        assert!(lobby.enter(from(1), None).is_some(), "who leaves makes room");
        drop(others);
        assert!(lobby.lock().by_whom.is_empty() && lobby.lock().strangers == 0);
    }

    #[test]
    fn a_client_is_kept_out_by_its_own_key_alone() {
        let lobby = Lobby::default();
        let key = || Some(Identity::generate().expect("a key").public());
        let (one, other) = (key(), key());
        let here = addr("192.0.2.1");
        let strangers: Vec<_> = (0..100).map_while(|_| lobby.enter(here, None)).collect();
        let crowd: Vec<_> = (0..1000).map_while(|_| lobby.enter(here, one)).collect();
        assert_eq!(crowd.len(), OF_CLIENT_MAX);
        assert!(lobby.enter(addr("192.0.2.2"), one).is_none(), "the same key from elsewhere");
        assert!(lobby.enter(here, other).is_some());
        drop(strangers);
    }

    #[test]
    fn the_addresses_of_one_host_share() {
        let lobby = Lobby::default();
        let crowd: Vec<_> = (0..100).map_while(|n| lobby.enter(addr(&format!("2001:db8::{n:x}")), None)).collect();
        assert_eq!(crowd.len(), STRANGERS_OF_ADDRESS_MAX);
        assert!(lobby.enter(addr("2001:db8:0:1::1"), None).is_some(), "another network");
        assert!(lobby.enter(addr("::ffff:192.0.2.1"), None).is_some());
        let mapped: Vec<_> = (0..100).map_while(|_| lobby.enter(addr("192.0.2.1"), None)).collect();
        assert_eq!(mapped.len(), STRANGERS_OF_ADDRESS_MAX);
        drop(crowd);
    }
}
