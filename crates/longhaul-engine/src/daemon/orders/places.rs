//! Bounds the orders that a daemon has under way, and the names that it looks up for them.
//!
//! In: the key of the client that orders. Out: a [`Share`] that is held for as long as the order
//! goes on, be it between two sessions; or a refusal. It knows no sessions: these count otherwise.

use std::net::SocketAddr;
use std::sync::Arc;

use longhaul_core::{Blame, Fault, FaultCode, hint};
use longhaul_net::{NetError, PublicKey};
use tokio::sync::{Semaphore, oneshot};

use super::ends::OrderEnds;
use crate::daemon::shares::{ClientShares, Full, Share};

/// The addresses of a host, or the reason why there are none.
type LookedUp = Result<Vec<SocketAddr>, NetError>;

/// The places of orders. Clones share them.
#[derive(Clone)]
pub(in crate::daemon) struct OrderPlaces {
    under_way: ClientShares,
    lookups: Arc<Semaphore>,
    ends: OrderEnds,
}

impl Default for OrderPlaces {
    fn default() -> OrderPlaces {
        let under_way = ClientShares::new("orders to fetch", ORDERS_MAX, ORDERS_OF_CLIENT_MAX);
        OrderPlaces { under_way, lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)), ends: OrderEnds::default() }
    }
}

impl OrderPlaces {
    /// A place for one more order of a client.
    ///
    /// # Errors
    /// [`FaultCode::Busy`] with the limit that stands in the way.
    pub(super) fn begin(&self, client: PublicKey) -> Result<Share, Fault> {
        self.under_way.claim(client, 1).map_err(|full| {
            let why = match full {
                Full::Client { claims } => format!(
                    "this key has {claims} orders to fetch under way here, and has no more at a time than \
                     {ORDERS_OF_CLIENT_MAX}, or fewer while many keys have some"
                ),
                _ => format!("the daemon is at its limit of {ORDERS_MAX} orders to fetch under way"),
            };
            Fault::new(FaultCode::Busy, Blame::Local, why).hint(hint::Again::Later)
        })
    }

    /// How orders ended.
    pub(in crate::daemon) fn ends(&self) -> &OrderEnds {
        &self.ends
    }

    /// Has a name looked up for the order that has this place, and gives the place back. `None`:
    /// that was broken off. A lookup for which nobody waits any more keeps its place, and that of
    /// its order, until the system gives it up: else one key could come to have all lookups.
    pub(super) async fn look_up(
        &self,
        lookup: impl Future<Output = LookedUp> + Send + 'static,
        order: Share,
    ) -> Option<(Share, LookedUp)> {
        let place = self.lookups.clone().acquire_owned().await.ok()?;
        let (tell, told) = oneshot::channel();
        tokio::spawn(async move {
            let _place = place;
            let resolved = lookup.await;
            let _ = tell.send((order, resolved));
        });
        told.await.ok()
    }

    /// Has every later lookup broken off.
    #[cfg(test)]
    pub(super) fn close_lookups(&self) {
        self.lookups.close();
    }
}

/// Orders under way at a time, each with a connection and the memory of its follower: as many as
/// sessions by default.
const ORDERS_MAX: u64 = 64;
/// Orders of one client's key among them.
const ORDERS_OF_CLIENT_MAX: u64 = 8;
/// Names that are looked up at a time, each in a thread of its own: more than one key has orders.
const LOOKUPS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_bounded_by_key_and_in_all_until_they_end() {
        let places = OrderPlaces::default();
        let key = |n: u8| PublicKey::from_bytes([n; 32]);
        let fill = |n: u8| -> Vec<Share> { (0..1000).map_while(|_| places.begin(key(n)).ok()).collect() };
        let mut of_one = fill(0);
        assert_eq!(of_one.len() as u64, ORDERS_OF_CLIENT_MAX);
        let refusal = places.begin(key(0)).expect_err("it has all that it may");
        assert_eq!(refusal.code, FaultCode::Busy);
        assert!(refusal.message.contains("this key has 8 orders"), "{}", refusal.message);
        of_one.pop();
        of_one.push(places.begin(key(0)).expect("one has ended"));
        let others: Vec<_> = (1..=255).flat_map(fill).collect();
        assert_eq!((of_one.len() + others.len()) as u64, ORDERS_MAX);
        let refusal = places.begin(PublicKey::from_bytes([9; 32])).expect_err("the daemon has all that it may");
        assert_eq!(refusal.code, FaultCode::Busy);
        drop(others);
        assert!(places.begin(key(1)).is_ok(), "whose end makes room");
    }
    #[tokio::test]
    async fn a_lookup_that_hangs_keeps_the_place_of_its_order_when_nobody_waits_any_more() {
        let places = OrderPlaces::default();
        let key = PublicKey::from_bytes([1; 32]);
        let mut orders: Vec<Share> = (0..ORDERS_OF_CLIENT_MAX).flat_map(|_| places.begin(key)).collect();
        let (ends, hangs) = oneshot::channel::<()>();
        let (has_ended, ended) = oneshot::channel();
        let lookup = async move {
            let _ = hangs.await;
            let _ = has_ended.send(());
            Ok(Vec::new())
        };
        let order = orders.pop().expect("a place");
        let waited = tokio::time::timeout(std::time::Duration::ZERO, places.look_up(lookup, order)).await;
        assert!(waited.is_err(), "nobody waits for it any more");
        assert!(places.begin(key).is_err(), "its order has its place still");
        ends.send(()).expect("it hangs");
        ended.await.expect("it ends");
        while places.begin(key).is_err() {
            tokio::task::yield_now().await;
        }
    }
}
