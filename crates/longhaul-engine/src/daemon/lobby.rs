//! Who may be heard: connections that have shown a key and not yet said what they want, or not yet
//! gone, bounded so that none of them costs the daemon much, and no address or key keeps the others
//! out.
//!
//! In: a client's key, or the address of someone who is none. Out: a [`Seat`], or none. Knows no
//! connections and no time.

use std::net::IpAddr;

use longhaul_net::{Loss, PublicKey, Seat, Seats, Source, Tally};

/// The seats of one daemon.
#[derive(Clone, Debug)]
pub(super) struct Lobby {
    clients: Seats,
    strangers: Seats,
}

impl Default for Lobby {
    fn default() -> Lobby {
        Lobby { clients: Seats::new(usize::MAX), strangers: Seats::new(STRANGERS_MAX) }
    }
}

impl Lobby {
    /// A seat for a holder of a client's key. `None` if others have all of that key's: what they
    /// are asking for is not broken off.
    pub(super) fn client(&self, key: PublicKey) -> Option<Seat> {
        self.clients.enter_free(Source::Key(key), OF_CLIENT_MAX)
    }

    /// A seat for someone whose key the daemon does not know, while it is told so. Anyone makes as
    /// many keys as there is time for, so that those of one address share; whoever sits for longest
    /// in the largest share has heard it by then.
    pub(super) fn stranger(&self, addr: IpAddr) -> (Seat, Loss) {
        self.strangers.enter(Source::of(addr))
    }

    /// The strangers that had to go before they did so by themselves, since this was last asked.
    pub(super) fn take_lost(&self) -> Tally {
        self.strangers.take_lost()
    }
}

/// Strangers at a time; each is told that it is one, and needs tens of KiB until it hangs up.
const STRANGERS_MAX: usize = 64;
/// Connections of one client's key that have not begun a session: as many as there may be sessions
/// by default, twice.
const OF_CLIENT_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_net::Identity;

    #[test]
    fn a_client_is_kept_out_by_its_own_key_alone() {
        let lobby = Lobby::default();
        let key = || Identity::generate().expect("a key").public();
        let (one, other) = (key(), key());
        let strangers: Vec<_> = (0..100).map(|_| lobby.stranger([192, 0, 2, 1].into())).collect();
        let crowd: Vec<_> = (0..1000).map_while(|_| lobby.client(one)).collect();
        assert_eq!(crowd.len(), OF_CLIENT_MAX);
        assert!(lobby.client(other).is_some());
        drop(crowd);
        assert!(lobby.client(one).is_some(), "who leaves makes room");
        drop(strangers);
    }
}
