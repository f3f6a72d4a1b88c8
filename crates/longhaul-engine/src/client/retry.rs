//! Decides whether and when to dial again after a session was lost.
//!
//! In: how each attempt ended, and when it last moved anything. Out: a pause, or the end. The waits
//! double from 0.2 s to 15 s; the patience is counted from the last progress. It dials nothing
//! itself and knows no addresses.

use std::sync::Arc;
use std::time::{Duration, Instant};

use longhaul_core::{Blame, Fault, FaultCode};

use crate::api::{Event, Observer, Redial, Stop};

/// The patience of one run.
#[derive(Debug)]
pub(crate) struct Patience {
    retry_for: Duration,
    /// Whether there was a session.
    met: bool,
    /// The time of the last progress. Before the first, when the run began.
    since: Instant,
    wait: Duration,
    /// State of the jitter's generator.
    dice: u64,
}

impl Patience {
    /// Dials again for `retry_for` after the last progress. 0: never. `dice` makes runs that were
    /// cut off together come back apart.
    pub(crate) fn new(retry_for: Duration, now: Instant, dice: u64) -> Patience {
        Patience { retry_for, met: false, since: now, wait: WAIT_FIRST, dice: dice | 1 }
    }

    /// Records that a session began.
    pub(crate) fn has_met(&mut self) {
        self.met = true;
    }

    /// Whether there was a session before.
    pub(crate) fn met(&self) -> bool {
        self.met
    }

    /// How long to wait before dialling again after `fault`. `None` when that is of no use, or the
    /// patience is over. `progressed`: when anything last moved.
    fn after(&mut self, now: Instant, fault: &Fault, progressed: Option<Instant>) -> Option<Duration> {
        let passing = match fault.code {
            FaultCode::Lost | FaultCode::TimedOut | FaultCode::Unreachable => self.met,
            // A daemon that says so is there.
            FaultCode::Busy => true,
            // Its siblings take what was to go there.
            FaultCode::TargetFailed => true,
            // Other sessions of a daemon may end; on this host no other session does.
            FaultCode::Exhausted => fault.blame == Blame::Peer,
            _ => false,
        };
        if let Some(progressed) = progressed.filter(|at| *at > self.since) {
            self.since = progressed;
            self.wait = WAIT_FIRST;
        }
        let left = (self.since + self.retry_for).saturating_duration_since(now);
        if !passing || left.is_zero() {
            return None;
        }
        let wait = self.wait.mul_f64(0.75 + self.roll() * 0.5);
        self.wait = (self.wait * 2).min(WAIT_MAX);
        Some(wait.min(left))
    }

    /// Waits before another attempt and reports the wait. Returns `fault` if there is to be no
    /// other attempt.
    ///
    /// # Errors
    /// `fault`, or the fault of a run that was stopped meanwhile.
    pub(crate) async fn wait(
        &mut self,
        fault: Fault,
        progressed: Option<Instant>,
        observer: &Arc<dyn Observer>,
        stop: &mut Stop,
    ) -> Result<(), Fault> {
        let Some(wait) = self.after(Instant::now(), &fault, progressed) else { return Err(fault) };
        observer.event(Event::Redial(Redial { fault, wait }));
        tokio::select! {
            biased;
            code = stop.stopped() => Err(Fault::new(code, Blame::Local, "stopped while waiting to dial again")),
            () = tokio::time::sleep(wait) => Ok(()),
        }
    }

    /// Begins anew without a wait, as `fault` was no trouble of the link, and says so.
    pub(crate) fn begin_anew(&mut self, now: Instant, fault: Fault, observer: &Arc<dyn Observer>) {
        (self.since, self.wait) = (now, WAIT_FIRST);
        observer.event(Event::Redial(Redial { fault, wait: Duration::ZERO }));
    }

    /// A number from 0 to 1.
    fn roll(&mut self) -> f64 {
        // xorshift64: jitter needs no better dice.
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// The first wait.
const WAIT_FIRST: Duration = Duration::from_millis(200);
/// The longest wait, without the jitter.
const WAIT_MAX: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(code: FaultCode) -> Fault {
        Fault::new(code, Blame::Path, "x")
    }

    fn patient(met: bool) -> (Patience, Instant) {
        let now = Instant::now();
        let mut patience = Patience::new(Duration::from_secs(600), now, 7);
        if met {
            patience.has_met();
        }
        (patience, now)
    }

    #[test]
    fn only_what_may_pass_is_waited_for_and_an_unknown_daemon_only_if_it_speaks() {
        use FaultCode::*;
        for (code, first, later) in [
            (Lost, false, true),
            (TimedOut, false, true),
            (Unreachable, false, true),
            (Busy, true, true),
            (TargetFailed, true, true),
            (Denied, false, false),
            (Usage, false, false),
            (Protocol, false, false),
            (Changed, false, false),
            (NoSpace, false, false),
            (Interrupted, false, false),
        ] {
            for (met, want) in [(false, first), (true, later)] {
                let (mut patience, now) = patient(met);
                assert_eq!(patience.after(now, &fault(code), None).is_some(), want, "{code:?}, met: {met}");
            }
        }
    }

    #[test]
    fn waits_double_to_a_quarter_of_a_minute_and_end_with_the_patience() {
        let (mut patience, start) = patient(true);
        let (mut now, mut waits) = (start, Vec::new());
        while let Some(wait) = patience.after(now, &fault(FaultCode::Lost), None) {
            waits.push(wait.as_secs_f64());
            now += wait;
        }
        assert!((0.15..=0.25).contains(&waits[0]), "{waits:?}");
        assert!(waits.windows(2).take(6).all(|pair| pair[1] > pair[0]), "{waits:?}");
        assert!(waits.iter().all(|wait| *wait <= 18.75), "{waits:?}");
        assert_eq!(now - start, Duration::from_secs(600));
    }

    #[test]
    fn progress_renews_the_patience_and_shortens_the_wait() {
        let (mut patience, now) = patient(true);
        for _ in 0..9 {
            patience.after(now, &fault(FaultCode::Lost), None);
        }
        let later = now + Duration::from_secs(599);
        let wait = patience.after(later, &fault(FaultCode::Lost), Some(later)).expect("there was progress");
        assert!(wait < Duration::from_millis(300));
        assert!(patience.after(later + Duration::from_secs(599), &fault(FaultCode::Lost), Some(later)).is_some());
        assert_eq!(patience.after(later + Duration::from_secs(600), &fault(FaultCode::Lost), Some(later)), None);
    }

    #[test]
    fn no_patience_ends_at_once() {
        let now = Instant::now();
        let mut patience = Patience::new(Duration::ZERO, now, 7);
        patience.has_met();
        assert_eq!(patience.after(now + Duration::from_secs(9), &fault(FaultCode::Lost), Some(now)), None);
    }
}
