//! JOINs of lanes over UDP that came before their session: a dialler says them with its request.
//!
//! In: datagrams of anybody, none of which was proved. Out: those that a session has come to
//! expect. Nobody is answered by it. It is bounded, and each host has a share of it; whoever floods
//! it with the addresses of others has honest diallers ask once more. It knows no keys.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use longhaul_core::limits::{HANDSHAKE_SECONDS_MAX, UDP_LANES_EARLY_MAX};
use longhaul_net::{Knock, Source};
use longhaul_proto::udp::join::UdpJoin;

/// The JOINs that wait, the oldest first. See the module.
#[derive(Debug, Default)]
pub(super) struct EarlyJoins(VecDeque<EarlyJoin>);

#[derive(Debug)]
struct EarlyJoin {
    since: Instant,
    knock: Knock,
    /// The fields of the knock.
    join: UdpJoin,
}

impl EarlyJoins {
    /// Keeps a knock with these fields, if it may be an early one. It takes the place of the oldest
    /// of its host if that has its share, else of the oldest of all if there is no other place.
    pub(super) fn keep(&mut self, now: Instant, knock: Knock, join: UdpJoin) {
        if !may_be_early(&join) {
            return;
        }
        self.expire(now);
        let (from, mut first_of_host, mut of_host) = (Source::of(knock.from.ip()), 0, 0);
        for (at, early) in self.0.iter().enumerate() {
            if early.join == join && early.knock.from == knock.from {
                return;
            }
            if Source::of(early.knock.from.ip()) == from {
                first_of_host = if of_host == 0 { at } else { first_of_host };
                of_host += 1;
            }
        }
        if of_host >= EARLY_OF_HOST {
            self.0.remove(first_of_host);
        } else if self.0.len() >= EARLY_JOINS {
            self.0.pop_front();
        }
        self.0.push_back(EarlyJoin { since: now, knock, join });
    }

    /// Takes the knocks out that are expected now.
    pub(super) fn take(&mut self, now: Instant, is_expected: impl Fn(&UdpJoin) -> bool) -> Vec<Knock> {
        self.expire(now);
        let (taken, left) = std::mem::take(&mut self.0).into_iter().partition(|early| is_expected(&early.join));
        self.0 = left;
        let taken: VecDeque<EarlyJoin> = taken;
        taken.into_iter().map(|early| early.knock).collect()
    }

    /// Forgets knocks whose dialler asks no more.
    fn expire(&mut self, now: Instant) {
        while self.0.front().is_some_and(|early| now.saturating_duration_since(early.since) >= KEPT_FOR) {
            self.0.pop_front();
        }
    }
}

/// Whether a JOIN may be one of before its session.
pub(super) fn may_be_early(join: &UdpJoin) -> bool {
    join.lane.0 < UDP_LANES_EARLY_MAX
}

/// JOINs that wait: 160 KB.
const EARLY_JOINS: usize = 128;
/// JOINs of one host among them: those of eight sessions.
const EARLY_OF_HOST: usize = 8 * UDP_LANES_EARLY_MAX as usize;
/// A request is answered within this, or its JOIN is of no use.
const KEPT_FOR: Duration = Duration::from_secs(HANDSHAKE_SECONDS_MAX);
