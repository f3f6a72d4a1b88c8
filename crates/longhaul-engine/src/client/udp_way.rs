//! Finds out whether datagrams reach the daemon at all, in a run whose lanes all travel in them.
//!
//! In: how each lane over QUIC or UDP was dialled, and when the daemon was last heard over the
//! control connection. Out: whether another session is of any use. If no lane has ever joined, a
//! dial was met with silence, and the daemon was heard over TCP after that, a firewall drops UDP,
//! and that will not change within minutes. If both were silent there was an outage, which says
//! nothing of a firewall. It knows no sockets.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The record of one run. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct UdpWay(Arc<UdpVerdict>);

#[derive(Debug, Default)]
struct UdpVerdict {
    joined: AtomicBool,
    /// Whether the dials of a session were met with silence while TCP got through.
    closed: AtomicBool,
    /// Whether lanes go another way then.
    others: AtomicBool,
    /// Whether the run was told to go that way.
    went: AtomicBool,
    /// The dials of the session that is under way.
    dials: Mutex<Dials>,
}

/// The dials of one session. Clones share it: a late result does not count for a later session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dials(Arc<Mutex<Option<Instant>>>);

/// How a dial over QUIC or UDP ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialled {
    /// A lane joined.
    Joined,
    /// No datagram came back until then.
    Silence(Instant),
    /// Something answered, or nothing was sent.
    Failed,
}

impl UdpWay {
    /// Begins the dials of a session.
    pub(crate) fn begin(&self) -> Dials {
        let dials = Dials::default();
        *lock(&self.0.dials) = dials.clone();
        dials
    }

    /// Records the result of a dial.
    pub(crate) fn dialled(&self, dials: &Dials, dialled: Dialled) {
        match dialled {
            Dialled::Joined => self.0.joined.store(true, Ordering::Relaxed),
            Dialled::Silence(at) => drop(lock(&dials.0).get_or_insert(at)),
            Dialled::Failed => {}
        }
    }

    /// Ends a session. `heard`: when the daemon was last heard over the control connection.
    pub(crate) fn session_over(&self, heard: Option<Instant>) {
        let dials = std::mem::take(&mut *lock(&self.0.dials));
        let silent = *lock(&dials.0);
        if silent.zip(heard).is_some_and(|(silent, heard)| heard > silent) {
            self.0.closed.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that lanes of this run go another way if datagrams do not come through.
    pub(crate) fn has_others(&self) {
        self.0.others.store(true, Ordering::Relaxed);
    }

    /// Whether the run is of no use any more: no datagram has ever come through, and lanes go no
    /// other way.
    pub(crate) fn ends_run(&self) -> bool {
        self.is_closed() && !self.0.others.load(Ordering::Relaxed)
    }

    /// Whether lanes are to go another way from now on, as no datagram has ever come through. True
    /// once in a run.
    pub(crate) fn goes_another_way(&self) -> bool {
        let others = self.0.others.load(Ordering::Relaxed);
        others && self.is_closed() && !self.0.went.swap(true, Ordering::Relaxed)
    }

    /// Whether no datagram has ever come through, though the daemon was there.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.closed.load(Ordering::Relaxed) && !self.0.joined.load(Ordering::Relaxed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_way_is_closed_when_a_dial_was_met_with_silence_while_the_daemon_was_heard_and_none_has_ever_joined() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let session = |way: &UdpWay, dialled: Dialled, heard| {
            way.dialled(&way.begin(), dialled);
            way.session_over(heard);
            way.is_closed()
        };
        let way = UdpWay::default();
        assert!(!way.is_closed());
        assert!(!session(&way, Dialled::Failed, Some(now + second)));
        assert!(!session(&way, Dialled::Silence(now + second), Some(now)), "an outage");
        assert!(!session(&way, Dialled::Silence(now), None), "an outage from the first moment");
        assert!(!session(&way, Dialled::Failed, Some(now + second)), "the silence was another session's");
        assert!(session(&way, Dialled::Silence(now), Some(now + second)));
        assert!(way.ends_run() && !way.goes_another_way());
        way.has_others();
        assert!(way.is_closed() && !way.ends_run(), "lanes go over TCP");
        assert!(way.goes_another_way());
        assert!(!way.goes_another_way(), "the way that it went fails as any other");
        assert!(!session(&way, Dialled::Joined, Some(now + second)));
        assert!(!session(&way, Dialled::Silence(now), Some(now + second)), "one has joined");
    }

    #[test]
    fn a_dial_that_ends_behind_its_session_says_nothing_of_the_next_one() {
        let (way, now) = (UdpWay::default(), Instant::now());
        let late = way.begin();
        way.session_over(None);
        way.begin();
        way.dialled(&late, Dialled::Silence(now));
        way.session_over(Some(now + Duration::from_secs(1)));
        assert!(!way.is_closed());
    }
}
