//! The path of lanes over UDP and QUIC as the sessions of a run leave it to one another.
//!
//! In: the rate that an earlier session or run found, controls that find one, and breakers that
//! open. Out: the same to the next session: what a control and a breaker of that path begin with,
//! and whether lanes over UDP and QUIC may be dialled there. It knows no lanes.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_proto::udp::breaker::BreakerPast;
use longhaul_proto::udp::control::KnownPath;

/// A path of a run. Clones share what its sessions leave.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathPast {
    known: Option<KnownPath>,
    left: Arc<Mutex<PathLeft>>,
}

/// A control of lanes over QUIC, which finds out what the path carries.
pub(crate) trait PathFinder: fmt::Debug + Send + Sync {
    /// The path as the control has found it. `None` if it has found out nothing.
    fn finding(&self) -> Option<KnownPath>;
}

#[derive(Debug, Default)]
struct PathLeft {
    /// The control of the session that is under way, or was last.
    finder: Option<Box<dyn PathFinder>>,
    /// The finding of those before.
    found: Option<KnownPath>,
    /// The breaker that opened last: when, and what it left then.
    opened: Option<(Instant, BreakerPast)>,
}

impl PathPast {
    /// The same path, of which this is known as a session begins.
    pub(crate) fn with_known(&self, known: Option<KnownPath>) -> PathPast {
        PathPast { known, left: self.left.clone() }
    }

    /// The path as an earlier session or run left it. `None` if it is not known.
    pub(crate) fn known(&self) -> Option<KnownPath> {
        self.known
    }

    /// Asks this control for its finding from now on.
    pub(crate) fn found_by(&self, finder: Box<dyn PathFinder>) {
        let mut left = self.lock();
        left.found = left.finding();
        left.finder = Some(finder);
    }

    /// The path as lanes over QUIC found it in this run. `None` if they have found out nothing.
    pub(crate) fn finding(&self) -> Option<KnownPath> {
        self.lock().finding()
    }

    /// A breaker of the path has opened, and leaves this.
    pub(crate) fn broke(&self, now: Instant, past: BreakerPast) {
        self.lock().opened = Some((now, past));
    }

    /// The other end, which sends, went from UDP or QUIC to TCP, as a breaker of its own opened.
    /// Its session has said no more, so it is taken for as long as one of this end would be open.
    pub(crate) fn broke_there(&self, now: Instant) {
        if self.broken_for(now).is_none() {
            let past = self.breaker(now).opened_again();
            self.broke(now, past);
        }
    }

    /// The state with which a breaker of the path begins.
    pub(crate) fn breaker(&self, now: Instant) -> BreakerPast {
        let opened = self.lock().opened;
        opened.map_or_else(BreakerPast::default, |(at, past)| BreakerPast {
            open: past.open.saturating_sub(now.saturating_duration_since(at)),
            ..past
        })
    }

    /// The time for which no lane over UDP or QUIC is to be dialled there. `None` if one may be.
    pub(crate) fn broken_for(&self, now: Instant) -> Option<Duration> {
        Some(self.breaker(now).open).filter(|open| !open.is_zero())
    }

    fn lock(&self) -> MutexGuard<'_, PathLeft> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PathLeft {
    fn finding(&self) -> Option<KnownPath> {
        self.finder.as_ref().and_then(|finder| finder.finding()).or(self.found)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Has found out that.
    #[derive(Debug)]
    pub(crate) struct FixedFinding(pub(crate) Option<KnownPath>);

    impl PathFinder for FixedFinding {
        fn finding(&self) -> Option<KnownPath> {
            self.0
        }
    }

    fn known(rate: u64) -> Option<KnownPath> {
        Some(KnownPath { rate, round_trip: Duration::from_millis(20) })
    }

    #[test]
    fn a_path_is_shut_for_as_long_as_its_breaker_is_open_and_remembers_how_often_it_was() {
        let (path, now) = (PathPast::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        assert_eq!((path.broken_for(now), path.breaker(now)), (None, BreakerPast::default()));
        path.broke(now, BreakerPast { times: 1, open: Duration::from_secs(30) });
        let next = path.with_known(known(1));
        assert_eq!(next.broken_for(at(10)), Some(Duration::from_secs(20)), "sessions of a run share it");
        assert_eq!((next.broken_for(at(30)), next.breaker(at(30)).times), (None, 1));
    }

    #[test]
    fn an_end_that_hears_of_a_breaker_there_waits_twice_as_long_each_time() {
        let (path, mut now) = (PathPast::default(), Instant::now());
        for seconds in [30, 60, 120] {
            path.broke_there(now);
            path.broke_there(now + Duration::from_secs(1));
            assert_eq!(path.broken_for(now), Some(Duration::from_secs(seconds)), "once, however often it is said");
            now += Duration::from_secs(seconds);
        }
    }

    #[test]
    fn the_finding_of_an_earlier_session_stays_until_a_later_one_has_its_own() {
        let path = PathPast::default();
        path.found_by(Box::new(FixedFinding(known(7))));
        assert_eq!(path.finding(), known(7));
        path.found_by(Box::new(FixedFinding(None)));
        assert_eq!(path.finding(), known(7));
        path.found_by(Box::new(FixedFinding(known(8))));
        assert_eq!(path.finding(), known(8));
    }
}
