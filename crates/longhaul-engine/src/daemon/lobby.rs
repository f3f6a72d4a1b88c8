//! Owns the seats for connections that have shown a key and not yet made their request, or not yet
//! hung up. They are bounded so that none of them costs the daemon much, and no address or key
//! keeps the others out.
//!
//! In: a client's key, or the address of a stranger. Out: a [`Seat`], or `None`. It knows no
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
    /// A seat for a holder of a client's key. `None` if other connections of that key have all its
    /// seats: their requests are not broken off.
    pub(super) fn client(&self, key: PublicKey) -> Option<Seat> {
        self.clients.enter_free(Source::Key(key), OF_CLIENT_MAX)
    }

    /// A seat for a stranger, a connection whose key the daemon does not know, while it is told so.
    /// Strangers can make any number of keys, so those of one address share the seats; the one that
    /// has sat longest in the largest share has heard its refusal by the time it gives way.
    pub(super) fn stranger(&self, addr: IpAddr) -> (Seat, Loss) {
        self.strangers.enter(Source::of(addr))
    }

    /// The connections of clients that have not begun anything.
    pub(super) fn waiting(&self) -> usize {
        self.clients.taken()
    }

    /// The strangers that had to give way since the last call.
    pub(super) fn take_lost(&self) -> Tally {
        self.strangers.take_lost()
    }
}

/// Strangers at a time. Each is refused, and needs tens of KiB until it hangs up.
const STRANGERS_MAX: usize = 64;
/// Connections of one client's key that have not begun a session: twice the default number of
/// sessions.
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
