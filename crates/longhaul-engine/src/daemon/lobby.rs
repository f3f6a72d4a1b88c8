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
    /// Bearers of grants, by their own key.
    bearers: Seats,
    /// The same, by the client that signed the grant.
    issuers: Seats,
    strangers: Seats,
}

impl Default for Lobby {
    fn default() -> Lobby {
        let unbounded = || Seats::new(usize::MAX);
        let (clients, bearers, issuers) = (unbounded(), unbounded(), unbounded());
        Lobby { clients, bearers, issuers, strangers: Seats::new(STRANGERS_MAX) }
    }
}

impl Lobby {
    /// A seat for a holder of a client's key. `None` if other connections of that key have all its
    /// seats: their requests are not broken off.
    fn client(&self, key: PublicKey) -> Option<Seat> {
        self.clients.enter_free(Source::Key(key), OF_CLIENT_MAX)
    }

    /// The seats of whoever asks by the rights of a client: its own, or those of a bearer of its
    /// grant.
    pub(super) fn place(&self, client: PublicKey, bearer: Option<PublicKey>) -> Option<(Seat, Option<Seat>)> {
        match bearer {
            None => self.client(client).map(|seat| (seat, None)),
            Some(bearer) => self.bearer(bearer, client).map(|(seat, of_issuer)| (seat, Some(of_issuer))),
        }
    }

    /// Seats for a stranger that is heard by a grant, which takes none of the client's own. `None`
    /// if others of its key, or by grants of this issuer, have all that there are.
    fn bearer(&self, bearer: PublicKey, issuer: PublicKey) -> Option<(Seat, Seat)> {
        let seat = self.bearers.enter_free(Source::Key(bearer), OF_BEARER_MAX)?;
        Some((seat, self.issuers.enter_free(Source::Key(issuer), OF_ISSUER_MAX)?))
    }

    /// A seat for a stranger, a connection whose key the daemon does not know, while it is told so.
    /// Strangers can make any number of keys, so those of one address share the seats; the one that
    /// has sat longest in the largest share has heard its refusal by the time it gives way.
    pub(super) fn stranger(&self, addr: IpAddr) -> (Seat, Loss) {
        self.strangers.enter(Source::of(addr))
    }

    /// The connections of clients, and of those to which they lend rights, that have not begun
    /// anything.
    pub(super) fn waiting(&self) -> usize {
        self.clients.taken() + self.bearers.taken()
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
/// The same of one bearer of grants: a daemon that fetches dials once for each order.
const OF_BEARER_MAX: usize = 16;
/// The same of all bearers of one client's grants, which may be for any number of keys.
const OF_ISSUER_MAX: usize = 64;

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

    #[test]
    fn bearers_of_grants_take_no_seat_of_a_client_and_are_bounded_by_key_and_by_issuer() {
        let lobby = Lobby::default();
        let key = |n: u8| PublicKey::from_bytes([n; 32]);
        let (issuer, other) = (key(0), key(1));
        let crowd: Vec<_> = (0..1000).map_while(|_| lobby.bearer(key(2), issuer)).collect();
        assert_eq!(crowd.len(), OF_BEARER_MAX);
        let crowds: Vec<_> = (3..=255).flat_map(|n| lobby.bearer(key(n), issuer)).collect();
        assert_eq!(crowd.len() + crowds.len(), OF_ISSUER_MAX, "however many keys it signs for");
        assert_eq!(lobby.waiting(), OF_ISSUER_MAX);
        assert!(lobby.client(issuer).is_some(), "its own connections are let in");
        assert!(lobby.bearer(key(3), other).is_some(), "and bearers of others");
        drop((crowd, crowds));
        assert!(lobby.bearer(key(2), issuer).is_some(), "who leaves makes room");
    }
}
