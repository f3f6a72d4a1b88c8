//! Divides among the clients of a daemon its sessions, its memory or its listings.
//!
//! In: claims by client key. Out: a [`Share`] that gives back its amount when it is dropped, or the
//! limit that stands in the way. A quarter is kept free for clients that have nothing of it yet, so
//! that one key alone never keeps the others out. Claims that grow leave room for new ones, of the
//! same client too. It knows no connections and no time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::{Blame, Fault, FaultCode, hint};
use longhaul_net::PublicKey;
use tokio::sync::Notify;

/// The amount of one thing, and the clients that have it. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct ClientShares {
    of: &'static str,
    book: Arc<Mutex<ShareAccount<PublicKey>>>,
    given_back: Arc<Notify>,
    wanted: Arc<Notify>,
}

/// A client's claim. Dropping it gives everything back.
#[derive(Debug)]
pub(super) struct Share {
    shares: ClientShares,
    client: PublicKey,
    amount: u64,
}

/// The limit that a claim runs against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// The client has so many claims already; the rest is for other clients.
    Client { claims: u64 },
    /// The client has as much as its own limit allows, which is this.
    Own { limit: u64 },
    /// Nothing is left.
    Daemon,
}

/// The rule, for any type of client key.
#[derive(Debug)]
struct ShareAccount<K> {
    total: u64,
    /// The number of claims that one client may have.
    claims_max: u64,
    /// The amount with which a claim usually begins, where claims grow.
    begins: u64,
    /// Whether some is kept for others. Where all claims are of one client, nothing is.
    keeps_free: bool,
    taken: u64,
    clients: HashMap<K, Had>,
    /// The most that some clients may have.
    limits: HashMap<K, u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Had {
    claims: u64,
    amount: u64,
}

impl<K: Copy + Eq + Hash> ShareAccount<K> {
    fn new(total: u64, claims_max: u64) -> ShareAccount<K> {
        let (clients, limits) = (HashMap::new(), HashMap::new());
        ShareAccount { total, claims_max, begins: 0, keeps_free: true, taken: 0, clients, limits }
    }

    fn claim(&mut self, client: K, amount: u64) -> Result<(), Full> {
        let Had { claims, amount: had } = self.clients.get(&client).copied().unwrap_or_default();
        if claims >= self.claims_max {
            return Err(Full::Client { claims });
        }
        // A claim of nothing yet does not keep a client from its first amount.
        let others = if had == 0 { 0 } else { claims };
        self.take(client, others, amount, (0, self.total / KEPT_FREE))?;
        self.clients.entry(client).or_default().claims += 1;
        Ok(())
    }

    /// Adds a claim of nothing, which may grow. It takes no room until it does.
    fn claim_later(&mut self, client: K) {
        self.clients.entry(client).or_default().claims += 1;
    }

    /// Adds to a claim. Claims that have begun leave room for those that are to begin: for any
    /// client's first claim, and besides the quarter for further claims of this client, unless
    /// others have taken that.
    fn grow(&mut self, client: K, amount: u64) -> Result<(), Full> {
        let had = self.clients.get(&client).copied().unwrap_or_default();
        let room = (self.total / KEPT_FREE / 2).max(self.begins);
        let with_quarter = room + self.total / KEPT_FREE;
        let is_alone = self.taken == had.amount;
        let left = if is_alone { with_quarter } else { room };
        self.take(client, had.claims.saturating_sub(1), amount, (left, with_quarter))
    }

    /// Takes an amount for a client that has `others` other claims. It leaves at least `left`, or
    /// `left_by_many` if the client has other claims.
    fn take(&mut self, client: K, others: u64, amount: u64, (left, left_by_many): (u64, u64)) -> Result<(), Full> {
        let had = self.clients.get(&client).map_or(0, |had| had.amount);
        if let Some(&limit) = self.limits.get(&client).filter(|limit| had.saturating_add(amount) > **limit) {
            return Err(Full::Own { limit });
        }
        let free = self.total.saturating_sub(self.taken);
        let (left, left_by_many) = if self.keeps_free { (left, left_by_many) } else { (0, 0) };
        if free < amount.saturating_add(left) {
            return Err(Full::Daemon);
        }
        if others > 0 && free < amount.saturating_add(left_by_many) {
            return Err(Full::Client { claims: others });
        }
        self.taken += amount;
        self.clients.entry(client).or_default().amount += amount;
        Ok(())
    }

    fn shrink(&mut self, client: K, amount: u64) {
        self.taken -= amount;
        if let Some(had) = self.clients.get_mut(&client) {
            had.amount -= amount;
        }
    }

    fn give_back(&mut self, client: K, amount: u64) {
        self.taken -= amount;
        if let Some(had) = self.clients.get_mut(&client) {
            had.claims -= 1;
            had.amount -= amount;
            if had.claims == 0 {
                self.clients.remove(&client);
            }
        }
    }
}

impl ClientShares {
    /// `total` of something, which `of` names in the plural for people. One client may have
    /// `claims_max` claims.
    pub(super) fn new(of: &'static str, total: u64, claims_max: u64) -> ClientShares {
        let book = Arc::new(Mutex::new(ShareAccount::new(total, claims_max)));
        ClientShares { of, book, given_back: Arc::default(), wanted: Arc::default() }
    }

    /// The same of something of which claims begin with `begins`, and grow.
    pub(super) fn growing(of: &'static str, total: u64, begins: u64) -> ClientShares {
        let book = Arc::new(Mutex::new(ShareAccount { begins, ..ShareAccount::new(total, u64::MAX) }));
        ClientShares { of, book, given_back: Arc::default(), wanted: Arc::default() }
    }

    /// The same of something that is one client's alone: nothing is kept free.
    pub(super) fn whole(of: &'static str, total: u64) -> ClientShares {
        let book = Arc::new(Mutex::new(ShareAccount { keeps_free: false, ..ShareAccount::new(total, u64::MAX) }));
        ClientShares { of, book, given_back: Arc::default(), wanted: Arc::default() }
    }

    /// Waits until somebody has wanted some of it since the last call, in vain or not.
    pub(super) async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Has another total from now on, and these limits of single clients. Claims that stand are
    /// kept, be they more.
    pub(super) fn limit(&self, total: u64, limits: HashMap<PublicKey, u64>) {
        let mut book = self.lock();
        (book.total, book.limits) = (total, limits);
    }

    /// The amount that is taken, and the total.
    pub(super) fn taken(&self) -> (u64, u64) {
        let book = self.lock();
        (book.taken, book.total)
    }

    /// Claims for a client.
    ///
    /// # Errors
    /// The limit that stands in the way.
    pub(super) fn claim(&self, client: PublicKey, amount: u64) -> Result<Share, Full> {
        self.wanted.notify_one();
        self.lock().claim(client, amount)?;
        Ok(Share { shares: self.clone(), client, amount })
    }

    /// Adds a claim of nothing yet, which may grow.
    pub(super) fn claim_later(&self, client: PublicKey) -> Share {
        self.lock().claim_later(client);
        Share { shares: self.clone(), client, amount: 0 }
    }

    /// Whether a client has any claim.
    pub(super) fn has_any(&self, client: PublicKey) -> bool {
        self.lock().clients.contains_key(&client)
    }

    /// The fault for a client that cannot have a share.
    pub(super) fn refusal(&self, full: Full) -> Fault {
        let of = self.of;
        let busy = |message: std::fmt::Arguments<'_>| Fault::new(FaultCode::Busy, Blame::Local, message);
        match full {
            Full::Client { claims } => {
                let what = if claims == 1 { "session or listing" } else { "sessions or listings" };
                busy(format_args!(
                    "this key has {claims} {what} here, and what the daemon has left of {of} is kept for other keys"
                ))
                .hint(hint::Daemon::WaitOrAskForLimits)
            }
            Full::Own { limit } => busy(format_args!(
                "this key has all of the {of} that its client may have here: {of} = {limit} in the daemon's config"
            ))
            .hint(hint::Daemon::WaitOrAskForLimits),
            Full::Daemon => busy(format_args!("the daemon is at its limit of {of}")).hint(hint::Daemon::AskForLimits),
        }
    }

    /// Waits until all claims are given back.
    pub(super) async fn all_given_back(&self) {
        loop {
            let given_back = self.given_back.notified();
            if self.lock().clients.is_empty() {
                return;
            }
            given_back.await;
        }
    }

    /// No code that holds the lock can panic halfway.
    fn lock(&self) -> MutexGuard<'_, ShareAccount<PublicKey>> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Adds to the claim.
    ///
    /// # Errors
    /// The limit that stands in the way.
    pub(super) fn grow(&mut self, amount: u64) -> Result<(), Full> {
        self.shares.wanted.notify_one();
        self.shares.lock().grow(self.client, amount)?;
        self.amount += amount;
        Ok(())
    }

    /// Gives a part of the claim back.
    pub(super) fn shrink(&mut self, amount: u64) {
        let amount = amount.min(self.amount);
        self.shares.lock().shrink(self.client, amount);
        self.amount -= amount;
        self.shares.given_back.notify_waiters();
    }

    /// Makes a part of the claim one of its own.
    pub(super) fn split(&mut self, amount: u64) -> Share {
        let mut other = self.shares.claim_later(self.client);
        other.amount = amount.min(self.amount);
        self.amount -= other.amount;
        other
    }

    /// Its amount.
    pub(super) fn amount(&self) -> u64 {
        self.amount
    }

    /// Takes in another claim of the same client: both are one from now on.
    pub(super) fn absorb(&mut self, mut other: Share) {
        debug_assert_eq!(self.client, other.client, "a claim of another client");
        self.amount += std::mem::take(&mut other.amount);
    }

    /// The fault for the client of a claim that cannot grow.
    pub(super) fn refusal(&self, full: Full) -> Fault {
        self.shares.refusal(full)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.shares.lock().give_back(self.client, self.amount);
        self.shares.given_back.notify_waiters();
    }
}

/// One part in four is for clients that have nothing yet: less would let a few busy keys take all,
/// more would stand empty. Claims that grow leave half of that besides: 512 MiB of the default
/// memory of a daemon, in which 32 sessions begin.
const KEPT_FREE: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_net::Identity;

    #[test]
    fn what_is_one_clients_alone_may_be_taken_whole_and_grows() {
        let shares = ClientShares::whole("memory", 100);
        let key = PublicKey::from_bytes([1; 32]);
        let mut share = shares.claim(key, 60).expect("it fits");
        let other = shares.claim(key, 40).expect("it fits too");
        assert_eq!(share.grow(1).err(), Some(Full::Daemon));
        shares.limit(150, HashMap::new());
        assert!(share.grow(50).is_ok() && share.amount() == 110);
        drop(other);
        assert_eq!(shares.taken(), (110, 150));
    }

    #[test]
    fn a_part_of_a_claim_outlives_the_rest() {
        let shares = ClientShares::growing("memory", 100, 10);
        let key = PublicKey::from_bytes([1; 32]);
        let mut share = shares.claim(key, 60).expect("it fits");
        let part = share.split(20);
        assert_eq!((share.amount(), part.amount(), shares.taken()), (40, 20, (60, 100)));
        drop(share);
        assert_eq!(shares.taken(), (20, 100));
        drop(part);
        assert!(shares.taken() == (0, 100) && !shares.has_any(key));
    }

    #[test]
    fn a_client_gets_no_more_than_its_own_limit_and_others_do() {
        let shares = ClientShares::growing("memory", 1000, 100);
        let [bound, other] = [1, 2].map(|n| PublicKey::from_bytes([n; 32]));
        shares.limit(1000, HashMap::from([(bound, 150)]));
        let mut share = shares.claim(bound, 100).expect("it fits");
        assert_eq!(share.grow(60).err(), Some(Full::Own { limit: 150 }));
        assert!(share.grow(50).is_ok());
        assert_eq!(shares.claim(bound, 1).err(), Some(Full::Own { limit: 150 }));
        let said = shares.refusal(Full::Own { limit: 150 }).message;
        assert!(said.contains("memory = 150"), "{said}");
        assert!(shares.claim(other, 400).is_ok());
        drop(share);
        assert!(shares.claim(bound, 150).is_ok());
    }

    #[test]
    fn a_smaller_total_lets_nobody_in_before_enough_is_given_back() {
        let shares = ClientShares::new("sessions", 4, u64::MAX);
        let key = |n: u8| PublicKey::from_bytes([n; 32]);
        let mut had: Vec<_> = (0..4).map(|n| shares.claim(key(n), 1).expect("it fits")).collect();
        shares.limit(2, HashMap::new());
        assert_eq!(shares.taken(), (4, 2));
        for _ in 0..2 {
            assert_eq!(shares.claim(key(9), 1).err(), Some(Full::Daemon));
            had.pop();
        }
        assert_eq!(shares.claim(key(9), 1).err(), Some(Full::Daemon));
        had.pop();
        assert!(shares.claim(key(9), 1).is_ok());
    }

    #[test]
    fn one_client_leaves_a_quarter_for_those_that_have_nothing() {
        let mut book = ShareAccount::new(64, u64::MAX);
        let had = (0..100).take_while(|_| book.claim('a', 1).is_ok()).count();
        assert_eq!(had, 48);
        assert_eq!(book.claim('a', 1), Err(Full::Client { claims: 48 }));
        for newcomer in 0..16 {
            assert_eq!(book.claim(char::from(b'b' + newcomer), 1), Ok(()), "{newcomer}");
        }
        assert_eq!(book.claim('z', 1), Err(Full::Daemon));
        book.give_back('a', 1);
        assert_eq!(book.claim('a', 1), Err(Full::Client { claims: 47 }), "what comes free is for others first");
        assert_eq!(book.claim('z', 1), Ok(()));
    }

    #[test]
    fn a_single_one_is_for_whoever_comes_first() {
        let mut book = ShareAccount::new(1, u64::MAX);
        assert_eq!(book.claim('a', 1), Ok(()));
        assert_eq!(book.claim('b', 1), Err(Full::Daemon));
        book.give_back('a', 1);
        assert_eq!(book.claim('b', 1), Ok(()));
    }

    #[test]
    fn what_grows_leaves_room_for_what_begins_of_its_own_client_and_of_others() {
        for sessions in 1..=12 {
            for total in [128, 256, 1024, 4096] {
                let mut book = ShareAccount { begins: 16, ..ShareAccount::new(total, u64::MAX) };
                let begun = (0..sessions).take_while(|_| book.claim('a', 16).is_ok()).count();
                while (0..begun).any(|_| book.grow('a', 4).is_ok()) {}
                let of = format!("{begun} sessions, {total} in all, {} taken", book.taken);
                // A daemon in which claims began without growing is full of beginnings.
                if book.taken > 16 * begun as u64 {
                    assert_eq!(book.claim('a', 16), Ok(()), "{of}");
                }
                assert_eq!(book.claim('b', 16), Ok(()), "{of}");
            }
        }
    }

    #[test]
    fn who_comes_second_grows_into_the_quarter_and_leaves_room_to_begin() {
        let mut book = ShareAccount { begins: 16, ..ShareAccount::new(256, u64::MAX) };
        assert_eq!(book.claim('a', 16), Ok(()));
        assert_eq!(book.grow('a', 144), Ok(()));
        assert_eq!(book.grow('a', 1), Err(Full::Daemon));
        assert_eq!(book.claim('b', 16), Ok(()));
        assert_eq!(book.grow('b', 48), Ok(()));
        assert_eq!(book.grow('b', 1), Err(Full::Daemon));
        assert!(book.claim('c', 16).is_ok() && book.claim('d', 16).is_ok(), "one can always begin");
    }

    #[test]
    fn a_claim_of_nothing_is_in_nobodys_way() {
        let mut book = ShareAccount { begins: 16, ..ShareAccount::new(64, u64::MAX) };
        assert!((0..3).all(|_| book.claim('a', 16).is_ok()));
        book.claim_later('a');
        assert_eq!(book.grow('a', 1), Err(Full::Daemon));
        book.claim_later('b');
        assert_eq!(book.claim('b', 16), Ok(()), "nor in its own");
    }

    #[test]
    fn a_client_has_no_more_claims_than_it_may() {
        let mut book = ShareAccount::new(1000, 4);
        assert!((0..4).all(|_| book.claim('a', 1).is_ok()));
        assert_eq!(book.claim('a', 1), Err(Full::Client { claims: 4 }));
        assert_eq!(book.claim('b', 1), Ok(()));
    }

    #[test]
    fn a_refusal_says_whose_limit_it_is() {
        let shares = ClientShares::new("sessions", 4, u64::MAX);
        let key = || Identity::generate().expect("a key").public();
        let (one, other) = (key(), key());
        let mut held: Vec<_> = (0..3).map(|_| shares.claim(one, 1).expect("a share")).collect();
        let own = shares.refusal(shares.claim(one, 1).expect_err("its share"));
        assert!(own.code == FaultCode::Busy && own.message.contains("this key has 3 sessions"), "{own}");
        held.push(shares.claim(other, 1).expect("the quarter"));
        let all = shares.refusal(shares.claim(key(), 1).expect_err("all"));
        assert!(all.message.contains("limit of sessions") && all.hint.is_some(), "{all}");
    }

    #[test]
    fn a_claim_that_is_taken_in_by_another_is_none_of_its_own_any_more() {
        let shares = ClientShares::growing("memory", 64, 16);
        let client = Identity::generate().expect("a key").public();
        let mut first = shares.claim_later(client);
        first.grow(20).expect("it is free");
        let mut second = shares.claim(client, 16).expect("room");
        second.absorb(first);
        let had = shares.lock().clients[&client];
        assert_eq!((had.claims, had.amount, shares.lock().taken), (1, 36, 36));
        drop(second);
        assert!(!shares.has_any(client) && shares.lock().taken == 0);
    }

    #[tokio::test]
    async fn all_is_given_back_when_the_last_share_is_dropped() {
        let shares = ClientShares::new("memory", 4, u64::MAX);
        shares.all_given_back().await;
        let mut share = shares.claim(Identity::generate().expect("a key").public(), 1).expect("a share");
        share.grow(2).expect("it is free");
        let waiting = tokio::spawn({
            let shares = shares.clone();
            async move { shares.all_given_back().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(share);
        waiting.await.expect("no panic");
    }
}
