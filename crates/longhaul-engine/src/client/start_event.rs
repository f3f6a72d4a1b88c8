//! Reports the start of a session before any other event of it.
//!
//! A session begins while its lanes are still being dialled, and its `start` event names the lanes
//! once the first of them has joined. In: events of the session, and lanes as they join or fail.
//! Out: the same events, behind the `start` event. It knows no sessions.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use longhaul_core::Fault;

use crate::api::{Event, Observer};
use crate::lanes::JoinedLane;

/// The observer of one session.
pub(crate) struct StartEvent {
    observer: Arc<dyn Observer>,
    /// Events that wait for the first lane. `None` after the `start` event was sent.
    waiting: Mutex<Option<HeldEvents>>,
}

struct HeldEvents {
    /// The `start` event, with the number of lanes that were granted and nothing known of them.
    start: Event,
    /// Lanes that could not be dialled.
    failed: u32,
    waiting: Vec<Event>,
}

impl StartEvent {
    /// Holds events back until a lane has joined, then sends `stands`, the start of a session with
    /// granted lanes, before them.
    pub(crate) fn new(observer: Arc<dyn Observer>, stands: Event) -> StartEvent {
        StartEvent { observer, waiting: Mutex::new(Some(HeldEvents { start: stands, failed: 0, waiting: Vec::new() })) }
    }

    /// Records the result of a dial.
    pub(crate) fn dialled(&self, joined: &Result<JoinedLane, Fault>) {
        let mut guard = self.lock();
        match joined {
            Ok(lane) => {
                let Some(mut waiting) = guard.take() else { return };
                if let Event::Start(start) = &mut waiting.start {
                    start.congestion = lane.congestion();
                }
                self.tell(waiting);
            }
            Err(_) => {
                if let Some(waiting) = guard.as_mut() {
                    waiting.failed += 1;
                }
            }
        }
    }

    /// Records the end of the session. A session that failed is reported only if any entry of it
    /// was settled.
    pub(crate) fn over(&self, fault: Option<&Fault>) {
        let mut guard = self.lock();
        if let Some(waiting) = guard.take_if(|waiting| fault.is_none() || waiting.has_news()) {
            self.tell(waiting);
        }
    }

    /// Called with the lock held, so that no event overtakes the start.
    fn tell(&self, mut waiting: HeldEvents) {
        if let Event::Start(start) = &mut waiting.start {
            start.lanes = start.lanes.saturating_sub(waiting.failed);
        }
        self.observer.event(waiting.start);
        waiting.waiting.into_iter().for_each(|event| self.observer.event(event));
    }

    fn lock(&self) -> MutexGuard<'_, Option<HeldEvents>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldEvents {
    /// Whether any entry was settled.
    fn has_news(&self) -> bool {
        self.waiting.iter().any(|event| matches!(event, Event::File(_) | Event::Skipped { .. }))
    }
}

impl Observer for StartEvent {
    fn lanes(&self, count: u32) {
        self.observer.lanes(count);
    }

    fn claim_kept(&self) {
        self.observer.claim_kept();
    }

    fn event(&self, event: Event) {
        let mut guard = self.lock();
        match guard.as_mut() {
            None => {
                drop(guard);
                self.observer.event(event);
            }
            Some(waiting) if waiting.waiting.len() < HELD_MAX => waiting.waiting.push(event),
            Some(_) => {
                if let Some(waiting) = guard.take() {
                    self.tell(waiting);
                }
                self.observer.event(event);
            }
        }
    }
}

/// Events that are held back at most. After this many entries were settled without a lane, it is no
/// longer waited for.
const HELD_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::{Blame, ChunkSize, FaultCode, LaneId};
    use longhaul_net::{LaneStream, Protection};

    use crate::api::{SkipReason, Start};
    use crate::lanes::StreamLane;

    /// Records the events that it hears.
    #[derive(Default)]
    struct Log(Mutex<Vec<String>>);

    impl Observer for Log {
        fn event(&self, event: Event) {
            let heard = match event {
                Event::Start(start) => format!("start {} {}", start.lanes, start.congestion),
                Event::Skipped { path, .. } => String::from_utf8_lossy(&path).into_owned(),
                Event::Progress(_) => "progress".to_owned(),
                other => format!("{other:?}"),
            };
            self.0.lock().expect("no panic").push(heard);
        }
    }

    fn telling() -> (Arc<Log>, StartEvent) {
        let log = Arc::new(Log::default());
        let start = Start {
            session: String::new(),
            direction: crate::api::Direction::Push,
            transport: crate::api::LaneKind::Tcp,
            protect: Protection::Safe,
            lanes: 3,
            chunk: ChunkSize::DEFAULT,
            congestion: "-".to_owned(),
            sync: None,
            notes: Vec::new(),
        };
        (log.clone(), StartEvent::new(log, Event::Start(start)))
    }

    fn heard(log: &Log) -> Vec<String> {
        std::mem::take(&mut *log.0.lock().expect("no panic"))
    }

    fn skipped(path: &str) -> Event {
        Event::Skipped { path: path.into(), placed: Vec::new(), reason: SkipReason::Fifo, message: String::new() }
    }

    fn lane() -> Result<JoinedLane, Fault> {
        let (stream, _) = LaneStream::pair().expect("a pair");
        Ok(StreamLane { id: LaneId(0), stream, taken: true }.into())
    }

    fn fault() -> Fault {
        Fault::new(FaultCode::Unreachable, Blame::Path, "no way")
    }

    #[test]
    fn what_is_told_follows_the_start_which_waits_for_the_first_lane() {
        let (log, telling) = telling();
        telling.event(skipped("a"));
        telling.event(Event::Progress(Default::default()));
        telling.dialled(&Err(fault()));
        assert_eq!(heard(&log), [""; 0]);
        telling.dialled(&lane());
        assert_eq!(heard(&log), ["start 2 none", "a", "progress"]);
        telling.dialled(&lane());
        telling.event(skipped("b"));
        telling.over(None);
        assert_eq!(heard(&log), ["b"]);
    }

    #[test]
    fn a_session_that_needed_no_lane_is_told_at_its_end() {
        let (log, telling) = telling();
        telling.event(skipped("a"));
        telling.over(None);
        assert_eq!(heard(&log), ["start 3 -", "a"]);
    }

    #[test]
    fn a_session_that_fails_before_it_has_a_lane_is_told_if_anything_came_to_its_end() {
        let (log, nothing) = telling();
        nothing.event(Event::Progress(Default::default()));
        nothing.over(Some(&fault()));
        assert_eq!(heard(&log), [""; 0]);
        let (log, something) = telling();
        something.event(skipped("a"));
        something.over(Some(&fault()));
        assert_eq!(heard(&log), ["start 3 -", "a"]);
    }

    #[test]
    fn so_much_is_held_and_no_more() {
        let (log, telling) = telling();
        (0..HELD_MAX).for_each(|_| telling.event(skipped("a")));
        assert_eq!(heard(&log), [""; 0]);
        telling.event(skipped("b"));
        let heard = heard(&log);
        assert_eq!((heard.len(), heard[0].as_str(), heard[HELD_MAX + 1].as_str()), (HELD_MAX + 2, "start 3 -", "b"));
    }
}
