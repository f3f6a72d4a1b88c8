//! Counts what the daemon has done since it began, for whoever watches it.
//!
//! In: sessions that move bytes, settle files and end; requests that are refused. Out: sums by root
//! and client, and by outcome. It is bounded however many names a configuration has had. It knows
//! no session that runs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use longhaul_core::{Fault, FaultCode, PlainText};

/// The sums of one daemon. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Tallies {
    sums: Arc<Mutex<ServiceSums>>,
    faults: Arc<Mutex<VecDeque<RecentFault>>>,
}

/// A fault of the past.
#[derive(Clone, Debug)]
pub struct RecentFault {
    /// When it happened.
    pub at: SystemTime,
    /// The name of the client.
    pub client: String,
    /// The doing of the client, as the log says it, or the path of a file.
    pub what: String,
    /// Its code.
    pub code: FaultCode,
    /// Its message.
    pub message: PlainText,
}

/// The sums of a daemon since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceSums {
    /// Bytes and files of sessions, by root and client.
    pub moved: BTreeMap<(String, String), MovedSums>,
    /// Sessions that ended, by transport and outcome (`complete`, or the name of a code).
    pub ended: BTreeMap<(&'static str, &'static str), u64>,
    /// Requests of known clients that were refused, by the name of the code.
    pub refused: BTreeMap<&'static str, u64>,
    /// Connections whose key is no client's.
    pub strangers: u64,
    /// Connections that were turned away because their client had too many that had not begun.
    pub crowded: u64,
    /// Connections that gave way to others before it was known whose they are.
    pub gave_way: u64,
    /// Listings that were answered.
    pub listings: u64,
}

/// The sums of one root and client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MovedSums {
    /// Payload bytes that came.
    pub received_bytes: u64,
    /// Payload bytes that were sent.
    pub sent_bytes: u64,
    /// Files and links that have their names, here or at the client.
    pub files_committed: u64,
    /// Files and links that failed.
    pub files_failed: u64,
}

impl Tallies {
    /// The sums now.
    pub(super) fn now(&self) -> ServiceSums {
        self.lock().clone()
    }

    /// Adds what a session of a client did on a root.
    pub(super) fn moved(&self, whose: &(String, String), more: MovedSums) {
        let mut sums = self.lock();
        let has_room = sums.moved.len() < PAIRS_MAX || sums.moved.contains_key(whose);
        let others = || (OTHERS.to_owned(), OTHERS.to_owned());
        let sum = sums.moved.entry(if has_room { whose.clone() } else { others() }).or_default();
        sum.received_bytes += more.received_bytes;
        sum.sent_bytes += more.sent_bytes;
        sum.files_committed += more.files_committed;
        sum.files_failed += more.files_failed;
    }

    /// Counts a session that ended. `code`: `None` if it ended well.
    pub(super) fn ended(&self, transport: &'static str, code: Option<FaultCode>) {
        *self.lock().ended.entry((transport, code.map_or(COMPLETE, FaultCode::name))).or_default() += 1;
    }

    /// Counts a request that was refused.
    pub(super) fn refused(&self, code: FaultCode) {
        *self.lock().refused.entry(code.name()).or_default() += 1;
    }

    /// Counts a listing.
    pub(super) fn listed(&self) {
        self.lock().listings += 1;
    }

    /// Counts a connection of a stranger.
    pub(super) fn stranger(&self) {
        self.lock().strangers += 1;
    }

    /// Counts a connection of a client that has too many.
    pub(super) fn crowded(&self) {
        self.lock().crowded += 1;
    }

    /// Counts connections that gave way.
    pub(super) fn gave_way(&self, count: u64) {
        self.lock().gave_way += count;
    }

    /// Keeps a fault among the last ones.
    pub(super) fn fault(&self, client: &str, what: &str, fault: &Fault) {
        let (at, client, what) = (SystemTime::now(), client.to_owned(), PlainText::from(what).cut().to_string());
        let kept = RecentFault { at, client, what, code: fault.code, message: fault.message.clone().cut() };
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        if faults.len() == FAULTS_MAX {
            faults.pop_front();
        }
        faults.push_back(kept);
    }

    /// The last faults, the oldest first.
    pub(super) fn faults(&self) -> Vec<RecentFault> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, ServiceSums> {
        self.sums.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The outcome of a session that no fault ended.
pub(super) const COMPLETE: &str = "complete";
/// Faults that are kept.
const FAULTS_MAX: usize = 50;
/// Roots and clients beyond the bound.
const OTHERS: &str = "(others)";
/// Pairs of root and client that have sums of their own. A configuration has fewer, but each reload
/// may bring others.
const PAIRS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_faults_are_kept_and_no_more() {
        let tallies = Tallies::default();
        for number in 0..3 * FAULTS_MAX {
            let fault = Fault::new(FaultCode::Io, longhaul_core::Blame::Local, number);
            tallies.fault("lab", &"x".repeat(1 << 20), &fault);
        }
        let faults = tallies.faults();
        assert_eq!((faults.len(), faults[0].message.as_str()), (FAULTS_MAX, "100"));
        assert!(faults.iter().all(|fault| fault.what.len() <= longhaul_core::limits::PEER_TEXT_BYTES_MAX));
    }

    #[test]
    fn more_names_than_any_configuration_has_share_one_sum() {
        let tallies = Tallies::default();
        let one = MovedSums { received_bytes: 1, ..MovedSums::default() };
        for number in 0..2 * PAIRS_MAX {
            tallies.moved(&("data".to_owned(), format!("c{number}")), one);
        }
        let sums = tallies.now();
        assert_eq!(sums.moved.len(), PAIRS_MAX + 1);
        assert_eq!(sums.moved.values().map(|sum| sum.received_bytes).sum::<u64>(), 2 * PAIRS_MAX as u64);
    }
}
