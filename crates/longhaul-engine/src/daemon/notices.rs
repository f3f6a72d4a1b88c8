//! Reports strangers and floods to the log, in a bounded number of lines, with addresses and
//! counts.
//!
//! In: refusals, and tallies of connections that gave way. Out: lines at WARN. A refusal has a line
//! of its own while there are few, so that an administrator finds the newcomer's; the others are
//! counted by source, and reported once a minute. No line has a command that would let a key in:
//! its reader cannot know whose key it is. It knows no connections.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use longhaul_core::Fault;
use longhaul_net::{PublicKey, Seldom, Source, Tally};

/// The reports that are due.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// The path of the configuration that names clients, as it is printed.
    config: String,
    book: Mutex<NoticeCounts>,
    /// Connections turned away, by keys of clients, of which there are as many as the configuration
    /// names.
    crowds: Mutex<HashMap<PublicKey, Seldom>>,
}

impl Notices {
    /// No reports yet, for a daemon whose clients are named in `config`.
    pub(super) fn new(config: Option<&Path>) -> Notices {
        let config = config.map_or_else(|| "none".to_owned(), |path| path.display().to_string());
        Notices { config, ..Notices::default() }
    }

    /// Records that a key that is no client's was refused. Returns whether it had a line of its
    /// own.
    pub(super) fn refused(&self, peer: SocketAddr, key: PublicKey) -> bool {
        let has_line = self.book().refused(Instant::now(), Source::of(peer.ip()));
        if has_line {
            let config = self.config.as_str();
            tracing::warn!(target: "longhaul::session", %peer, %key, config, "an unknown key was refused: the config names no client of this key");
        } else {
            tracing::debug!(target: "longhaul::session", %peer, %key, "an unknown key was refused");
        }
        has_line
    }

    /// Records that a grant was refused which a key showed that is no client's. Returns whether it
    /// had a line of its own.
    pub(super) fn grant_refused(&self, (peer, key): (SocketAddr, PublicKey), why: &Fault) -> bool {
        let has_line = self.book().refused(Instant::now(), Source::of(peer.ip()));
        if has_line {
            tracing::warn!(target: "longhaul::session", %peer, %key, code = why.code.name(), "refused: {why}");
        } else {
            tracing::debug!(target: "longhaul::session", %peer, %key, "refused: {why}");
        }
        has_line
    }

    /// Records that a connection was turned away because its client's key has too many that wait to
    /// be heard.
    pub(super) fn crowded(&self, peer: SocketAddr, key: PublicKey) {
        let mut crowds = self.crowds.lock().unwrap_or_else(PoisonError::into_inner);
        let crowd = crowds.entry(key).or_insert_with(|| Seldom::new(MINUTE));
        if let Some(untold) = crowd.once_more(Instant::now()) {
            let text = "a client has too many connections that have not begun: one was turned away";
            tracing::warn!(target: "longhaul::serve", %peer, %key, untold, "{text}");
        }
    }

    /// Logs the counts that have come together, if it is time. `lost`: connections that gave way to
    /// others meanwhile. Returns the number of refusals among them.
    pub(super) fn tell(&self, lost: Tally) -> u64 {
        let Some(Due { unsaid, lost, minute }) = self.book().due(Instant::now(), lost) else { return 0 };
        let within = if minute { "within the last minute" } else { "just now" };
        if unsaid.total() > 0 {
            let (refused, most) = (unsaid.total(), most(&unsaid));
            tracing::warn!(target: "longhaul::session", refused, %most, "more unknown keys were refused {within}");
        }
        if lost.total() > 0 {
            let (closed, most) = (lost.total(), most(&lost));
            let text = "connections had to give way to others before it was known whose they are";
            tracing::warn!(target: "longhaul::serve", closed, %most, "{text}, {within}");
        }
        unsaid.total()
    }

    /// No code that holds the lock can panic halfway.
    fn book(&self) -> MutexGuard<'_, NoticeCounts> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sources with the highest counts, as `192.0.2.1:120,2001:db8::/64:7`.
fn most(tally: &Tally) -> String {
    let most = tally.most(SOURCES_TOLD_MAX);
    most.iter().map(|(source, count)| format!("{source}={count}")).collect::<Vec<_>>().join(",")
}

/// The refusals of the last minute, with a line of their own and without.
#[derive(Debug, Default)]
struct NoticeCounts {
    /// When the lines of single refusals began to be counted. The counts are by source, and of all.
    minute: Option<Instant>,
    lines: HashMap<Source, usize>,
    lines_all: usize,
    unsaid: Tally,
    lost: Tally,
    summary_logged: Option<Instant>,
}

/// Counts to report now.
#[derive(Debug, PartialEq, Eq)]
struct Due {
    unsaid: Tally,
    lost: Tally,
    /// Whether they were gathered since an earlier report.
    minute: bool,
}

impl NoticeCounts {
    /// Whether a refusal gets a line of its own. If not, it is counted.
    fn refused(&mut self, now: Instant, source: Source) -> bool {
        if self.minute.is_none_or(|minute| now >= minute + MINUTE) {
            self.minute = Some(now);
            self.lines.clear();
            self.lines_all = 0;
        }
        let of_source = self.lines.get(&source).copied().unwrap_or(0);
        if self.lines_all >= LINES_MAX || of_source >= LINES_OF_SOURCE_MAX {
            self.unsaid.add(source);
            return false;
        }
        self.lines.insert(source, of_source + 1);
        self.lines_all += 1;
        true
    }

    /// The counts to report, once a minute at most. `None` if it is not time or there are none.
    fn due(&mut self, now: Instant, lost: Tally) -> Option<Due> {
        self.lost.merge(lost);
        let minute = self.summary_logged.is_some_and(|told| now < told + 2 * MINUTE);
        if self.unsaid.total() + self.lost.total() == 0 || self.summary_logged.is_some_and(|told| now < told + MINUTE) {
            return None;
        }
        self.summary_logged = Some(now);
        Some(Due { unsaid: std::mem::take(&mut self.unsaid), lost: std::mem::take(&mut self.lost), minute })
    }
}

/// Time between two looks at the counts: the first report of a flood comes this long after it
/// began.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(2);
const MINUTE: Duration = Duration::from_secs(60);
/// Refusals with a line of their own within a minute, of all sources and of one. A newcomer tries
/// once or twice before it asks.
const LINES_MAX: usize = 16;
const LINES_OF_SOURCE_MAX: usize = 2;
/// Sources that a line names.
const SOURCES_TOLD_MAX: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn from(n: u32) -> Source {
        Source::of(std::net::Ipv4Addr::from_bits(n << 8).into())
    }

    fn tally(counts: &[(Source, u64)]) -> Tally {
        let mut tally = Tally::default();
        counts.iter().for_each(|(source, count)| (0..*count).for_each(|_| tally.add(*source)));
        tally
    }

    #[test]
    fn refusals_have_a_few_lines_a_minute_and_are_counted_beyond() {
        let (mut book, start) = (NoticeCounts::default(), Instant::now());
        let lines = (0..1000).filter(|_| book.refused(start, from(1))).count();
        assert_eq!(lines, LINES_OF_SOURCE_MAX);
        let others = (0..1000).filter(|n| book.refused(start, from(n + 2))).count();
        assert_eq!(lines + others, LINES_MAX, "however many sources there are");
        assert_eq!(book.unsaid.total(), 2000 - LINES_MAX as u64);
        assert_eq!(book.unsaid.most(1), [(from(1), 1000 - LINES_OF_SOURCE_MAX as u64)]);
        assert!(book.refused(start + MINUTE, from(1)), "the next minute has lines again");
    }

    #[test]
    fn counts_are_told_at_once_and_then_once_a_minute() {
        let (mut book, start) = (NoticeCounts::default(), Instant::now());
        let second = Duration::from_secs(1);
        assert_eq!(book.due(start, Tally::default()), None);
        let first = book.due(start, tally(&[(from(1), 3)])).expect("the first of a flood is told");
        assert_eq!((first.lost.total(), first.minute), (3, false));
        let told: Vec<_> = (1..180).filter_map(|n| book.due(start + second * n, tally(&[(from(2), 10)]))).collect();
        assert_eq!(told.iter().map(|due| due.lost.total()).collect::<Vec<_>>(), [600, 600]);
        assert!(told.iter().all(|due| due.minute));
        assert_eq!(most(&told[0].lost), format!("{}=600", from(2)));
    }
}
