//! Sets the rates of the daemon's sessions: caps for all, for a root, for a client, shared fairly
//! among the sessions beneath them.
//!
//! In: sessions that begin and end, and caps that are set anew. Out: to each session its rate, at
//! its start and whenever that changes; and to the readings of a client the permit to hash holes.
//! Fair is max-min, weighted (Bertsekas and Gallager, *Data Networks*, 6.5.2): all rates rise
//! together, each as its weight, until a cap is reached; those beneath it stop there, the others
//! rise on. A session counts as if it could use any rate, up to the one that it was asked to keep
//! itself. It knows no sockets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use longhaul_net::PublicKey;
use tokio::sync::mpsc::UnboundedSender;

use super::{ClientConfig, RootConfig, ServeConfig};
use crate::lanes::worker::hole_costs::HolePermit;
use crate::session::SessionEvent;

/// The sessions that share rates, and the caps. Clones share them.
#[derive(Clone, Default)]
pub(super) struct RateLimits {
    book: Arc<Mutex<RateAccount>>,
}

#[derive(Default)]
struct RateAccount {
    next: u64,
    sessions: BTreeMap<u64, (RateClaim, UnboundedSender<SessionEvent>, Option<u64>)>,
    /// The rate of each cap in bytes/s. One that is not here holds nobody.
    caps: BTreeMap<Cap, u64>,
    /// The permits of clients that have files read here.
    permits: BTreeMap<PublicKey, HolePermit>,
}

/// The claim of a session to a part of the rates.
#[derive(Clone, Debug, Default)]
pub(super) struct RateClaim {
    /// Its weight against others.
    weight: u32,
    /// The rate that it keeps by itself, bytes/s. `None` for no rate.
    own_rate: Option<u64>,
    /// The same where it keeps that only if it is told, even beneath no cap.
    told_rate: Option<u64>,
    /// The caps beneath which it stands. Sessions beneath the same cap share it.
    caps: BTreeSet<Cap>,
}

/// The object of a cap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cap {
    /// All sessions.
    All,
    /// Sessions on a root.
    Root(String),
    /// Sessions of a client.
    Client(PublicKey),
}

/// A session's entry in the account. Dropping it removes the session, and its rate is shared anew.
pub(super) struct Entered {
    rates: RateLimits,
    id: u64,
}

impl RateClaim {
    /// The claim of a session of `client` on `roots`, if on any, which keeps `own` by itself. It
    /// counts beneath the cap of each root: it is not known before the bytes are read from which
    /// root they come.
    pub(super) fn new(client: &ClientConfig, roots: &[&RootConfig], own: Option<u64>) -> RateClaim {
        let of_roots = roots.iter().map(|root| Cap::Root(root.name.clone()));
        let caps = of_roots.chain([Cap::All, Cap::Client(client.key)]).collect();
        RateClaim { weight: client.weight, own_rate: own, told_rate: None, caps }
    }

    /// The same of a session whose two sides are daemons: its own rate was asked for by a third.
    pub(super) fn told(self) -> RateClaim {
        RateClaim { told_rate: self.own_rate, ..self }
    }
}

impl RateLimits {
    /// Sets all caps to those of a configuration, for sessions that run too: a cap is for all of
    /// them together.
    pub(super) fn set_all(&self, config: &ServeConfig) {
        let of_roots = config.roots.iter().filter_map(|root| Some((Cap::Root(root.name.clone()), root.rate?)));
        let of_clients = config.clients.iter().filter_map(|client| Some((Cap::Client(client.key), client.rate?)));
        let of_all = config.rate.map(|rate| (Cap::All, rate));
        let mut book = self.lock();
        book.caps = of_roots.chain(of_clients).chain(of_all).collect();
        book.share(None);
    }

    /// Sets one cap, bytes/s. `None` for no rate.
    pub(super) fn set(&self, cap: Cap, rate: Option<u64>) {
        let mut book = self.lock();
        match rate {
            Some(rate) => book.caps.insert(cap, rate),
            None => book.caps.remove(&cap),
        };
        book.share(None);
    }

    /// The rate of a cap, bytes/s. `None` for no rate.
    pub(super) fn cap(&self, cap: &Cap) -> Option<u64> {
        self.lock().caps.get(cap).copied()
    }

    /// Enters a session. Returns its rate now; changes go to `sink`.
    pub(super) fn enter(&self, claim: RateClaim, sink: UnboundedSender<SessionEvent>) -> (Entered, Option<u64>) {
        let mut book = self.lock();
        let id = book.next;
        book.next += 1;
        book.sessions.insert(id, (claim, sink, None));
        book.share(Some(id));
        let rate = book.sessions.get(&id).and_then(|(.., rate)| *rate);
        drop(book);
        (Entered { rates: self.clone(), id }, rate)
    }

    /// The permit by which all readings of a client hash holes: these cost it nothing, and would
    /// take as many processors as it has readings.
    pub(super) fn hole_permit(&self, client: PublicKey) -> HolePermit {
        let mut book = self.lock();
        book.permits.retain(|_, permit| !permit.is_last());
        book.permits.entry(client).or_default().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, RateAccount> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut book = self.rates.lock();
        book.sessions.remove(&self.id);
        book.share(None);
    }
}

impl RateAccount {
    /// Shares anew, and tells the sessions whose rate has changed, but for `newcomer`.
    fn share(&mut self, newcomer: Option<u64>) {
        let claims: Vec<_> = self.sessions.values().map(|(claim, ..)| claim).collect();
        let rates = shares(&claims, &self.caps);
        for ((id, (_, sink, now)), rate) in self.sessions.iter_mut().zip(rates) {
            if *now != rate {
                *now = rate;
                if Some(*id) != newcomer {
                    // A session that has ended hears nothing.
                    let _ = sink.send(SessionEvent::OwnRate(rate));
                }
            }
        }
    }
}

/// The rate of each session beneath these caps, bytes/s. `None` where no cap holds it.
fn shares(claims: &[&RateClaim], caps: &BTreeMap<Cap, u64>) -> Vec<Option<u64>> {
    let mut rates = vec![None; claims.len()];
    let mut rising: Vec<usize> = (0..claims.len()).collect();
    let held = claims.iter().flat_map(|claim| &claim.caps);
    let mut left: BTreeMap<&Cap, f64> = held.filter_map(|cap| Some((cap, *caps.get(cap)? as f64))).collect();
    // The level to which all have risen, for each unit of weight. Each turn stops one session at
    // least.
    let mut level = 0.0;
    while !rising.is_empty() {
        let weight_beneath = |cap: &Cap| -> f64 {
            rising.iter().filter(|&&s| claims[s].caps.contains(cap)).map(|&s| weight(claims[s])).sum()
        };
        let caps: BTreeMap<&Cap, (f64, f64)> = left
            .iter()
            .map(|(cap, left)| (*cap, (*left, weight_beneath(cap))))
            .filter(|(_, (_, w))| *w > 0.0)
            .collect();
        let by_caps = caps.values().map(|(left, weight)| level + left / weight);
        let by_own = rising.iter().filter_map(|&s| Some(claims[s].own_rate? as f64 / weight(claims[s])));
        let Some(reached) = by_caps.chain(by_own).min_by(f64::total_cmp) else { break };
        for (cap, (_, weight)) in &caps {
            if let Some(left) = left.get_mut(*cap) {
                *left -= (reached - level) * weight;
            }
        }
        level = reached;
        let full = |cap: &Cap| left.get(cap).is_some_and(|left| *left < 1.0);
        rising.retain(|&s| {
            let own = claims[s].own_rate.is_some_and(|own| own as f64 <= level * weight(claims[s]) + 1.0);
            let stops = own || claims[s].caps.iter().any(full);
            if stops {
                rates[s] = Some((level * weight(claims[s])).round().max(1.0) as u64);
            }
            !stops
        });
    }
    // Sessions that no cap stopped keep only their own rate, if they have one.
    let is_held = |claim: &RateClaim| claim.caps.iter().any(|cap| caps.contains_key(cap));
    rates.iter().zip(claims).map(|(rate, claim)| rate.filter(|_| is_held(claim)).or(claim.told_rate)).collect()
}

fn weight(claim: &RateClaim) -> f64 {
    f64::from(claim.weight.max(1))
}

#[cfg(test)]
mod tests {
    use longhaul_core::PathShare;

    use super::*;
    use tokio::sync::mpsc::unbounded_channel;

    /// A claim, and the caps that it stands beneath.
    type Claimed = (RateClaim, Vec<(Cap, u64)>);

    fn claim(weight: u32, own: Option<u64>, caps: &[(Cap, u64)]) -> Claimed {
        (
            RateClaim {
                weight,
                own_rate: own,
                told_rate: None,
                caps: caps.iter().map(|(cap, _)| cap.clone()).collect(),
            },
            caps.to_vec(),
        )
    }

    fn root(name: &str) -> Cap {
        Cap::Root(name.to_owned())
    }

    fn client(name: &str) -> Cap {
        Cap::Client(PublicKey::from_bytes([name.as_bytes()[0]; 32]))
    }

    fn shared(claims: &[Claimed]) -> Vec<Option<u64>> {
        let caps = claims.iter().flat_map(|(_, caps)| caps.iter().cloned()).collect();
        shares(&claims.iter().map(|(claim, _)| claim).collect::<Vec<_>>(), &caps)
    }

    #[test]
    fn without_caps_there_are_no_rates() {
        assert_eq!(shared(&[claim(1, None, &[]), claim(1, Some(5), &[])]), [None, None]);
    }

    #[test]
    fn a_cap_is_shared_by_weight() {
        let all = [(Cap::All, 1200)];
        assert_eq!(shared(&[claim(1, None, &all), claim(1, None, &all)]), [Some(600), Some(600)]);
        assert_eq!(shared(&[claim(1, None, &all), claim(3, None, &all)]), [Some(300), Some(900)]);
        assert_eq!(shared(&[claim(0, None, &all)]), [Some(1200)]);
    }

    #[test]
    fn what_one_cannot_use_goes_to_the_others() {
        let all = (Cap::All, 1200);
        let claims = [
            claim(1, Some(100), std::slice::from_ref(&all)),
            claim(1, None, &[all.clone(), (client("a"), 300)]),
            claim(1, None, &[all]),
        ];
        assert_eq!(shared(&claims), [Some(100), Some(300), Some(800)]);
    }

    #[test]
    fn the_lowest_cap_above_a_session_holds() {
        let a = |caps: &[(Cap, u64)]| claim(1, None, caps);
        let claims = [
            a(&[(root("x"), 1000), (client("a"), 10_000)]),
            a(&[(root("x"), 1000), (client("b"), 200)]),
            a(&[(root("y"), 500), (client("a"), 10_000)]),
            a(&[]),
        ];
        assert_eq!(shared(&claims), [Some(800), Some(200), Some(500), None]);
    }

    #[test]
    fn a_session_on_several_roots_stands_beneath_the_caps_of_all() {
        let root = |name: &str, rate| RootConfig {
            name: name.to_owned(),
            targets: longhaul_disk::TargetDirs::one(""),
            allow: crate::Rights::default(),
            protect: Vec::new(),
            rate,
            sessions: None,
            memory: None,
            bounds: crate::Bounds::default(),
            policy: longhaul_disk::TreePolicy::default(),
        };
        let client = ClientConfig {
            name: "c".to_owned(),
            key: longhaul_net::Identity::generate().expect("a key").public(),
            roots: BTreeMap::new(),
            rate: None,
            sessions: None,
            memory: None,
            bounds: crate::Bounds::default(),
            weight: 1,
            bench: false,
            share: PathShare::Fair,
            user: None,
        };
        let (free, slow, slower) = (root("free", None), root("slow", Some(100)), root("slower", Some(50)));
        let caps = BTreeMap::from([(Cap::Root("slow".to_owned()), 100), (Cap::Root("slower".to_owned()), 50)]);
        for roots in [vec![&free, &slow, &slower], vec![&slower, &slow, &free]] {
            let both = RateClaim::new(&client, &roots, None);
            let alone = RateClaim::new(&client, &[&slow], None);
            assert_eq!(shares(&[&both, &alone], &caps), [Some(50), Some(50)]);
        }
        let others = [RateClaim::new(&client, &[&slow, &free], None), RateClaim::new(&client, &[&slow], None)];
        let shared = shares(&[&others[0], &others[1]], &caps);
        assert_eq!(shared, [Some(50), Some(50)], "each has its part of the cap that both are beneath");
    }

    #[test]
    fn no_cap_is_exceeded_whatever_the_claims() {
        let mut seed = 7u64;
        let mut dice = |sides: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % sides
        };
        for _ in 0..500 {
            let caps = [(Cap::All, 5000), (root("x"), 900), (root("y"), 3000), (client("a"), 700), (client("b"), 4000)];
            let claims: Vec<_> = (0..1 + dice(6))
                .map(|_| {
                    let own = (dice(3) == 0).then(|| 1 + dice(2000));
                    let chosen: Vec<_> = caps.iter().filter(|_| dice(2) == 0).cloned().collect();
                    claim(dice(4) as u32, own, &chosen)
                })
                .collect();
            let rates = shared(&claims);
            for (cap, limit) in &caps {
                let beneath = claims.iter().zip(&rates).filter(|((claim, _), _)| claim.caps.contains(cap));
                let sum: u64 = beneath.filter_map(|(_, rate)| *rate).sum();
                assert!(sum <= limit + 10, "{claims:?} {rates:?}");
            }
            for ((claim, _), rate) in claims.iter().zip(&rates) {
                assert_eq!(rate.is_some(), !claim.caps.is_empty(), "{claims:?} {rates:?}");
            }
        }
    }

    #[test]
    fn sessions_hear_when_others_come_and_go_and_when_a_cap_is_set() {
        let rates = RateLimits::default();
        rates.set(Cap::All, Some(1000));
        let all = || RateClaim { weight: 1, own_rate: None, told_rate: None, caps: BTreeSet::from([Cap::All]) };
        let ((tx, mut first), (other, mut second)) = (unbounded_channel(), unbounded_channel());
        let (_first, rate) = rates.enter(all(), tx);
        assert_eq!(rate, Some(1000));
        let (entered, rate) = rates.enter(all(), other);
        assert_eq!(rate, Some(500));
        assert!(matches!(first.try_recv(), Ok(SessionEvent::OwnRate(Some(500)))));
        drop(entered);
        assert!(matches!(first.try_recv(), Ok(SessionEvent::OwnRate(Some(1000)))));
        assert!(second.try_recv().is_err(), "the newcomer is told when it enters");
        rates.set(Cap::All, Some(70));
        assert!(matches!(first.try_recv(), Ok(SessionEvent::OwnRate(Some(70)))));
        rates.set(Cap::All, None);
        assert!(matches!(first.try_recv(), Ok(SessionEvent::OwnRate(None))));
    }

    #[test]
    fn all_readings_of_a_client_have_one_permit_which_goes_with_the_last_of_them() {
        let (rates, key) = (RateLimits::default(), |n: u8| PublicKey::from_bytes([n; 32]));
        let (first, second) = (rates.hole_permit(key(1)), rates.hole_permit(key(1)));
        let _other = rates.hole_permit(key(2));
        assert!(rates.lock().permits.len() == 2 && !first.is_last());
        drop((first, second));
        let _third = rates.hole_permit(key(3));
        assert!(rates.lock().permits.keys().eq([key(2), key(3)].iter()));
    }

    #[test]
    fn the_rate_that_a_third_asked_for_holds_beneath_caps_and_without() {
        let rates = RateLimits::default();
        let cap = Cap::Root("r".to_owned());
        let claim = RateClaim { own_rate: Some(70), caps: [cap.clone()].into(), ..RateClaim::default() };
        let (sink, mut told) = unbounded_channel();
        let (_entered, rate) = rates.enter(claim.told(), sink);
        assert_eq!(rate, Some(70));
        rates.set(cap.clone(), Some(50));
        assert!(matches!(told.try_recv(), Ok(SessionEvent::OwnRate(Some(50)))));
        rates.set(cap, None);
        assert!(matches!(told.try_recv(), Ok(SessionEvent::OwnRate(Some(70)))));
    }
}
