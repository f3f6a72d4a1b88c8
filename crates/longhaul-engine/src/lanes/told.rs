//! Remembers what people were told of a path, and finds what there is to tell.
//!
//! In: the state of a path, at each look of the pool; of lanes over UDP and QUIC also the control
//! that decides their rate. Out: changes for people, each with its reason. A decision is told
//! once, and others on the path that come and go each few seconds at most. It decides nothing, and
//! knows no sockets and no messages.

use std::time::{Duration, Instant};

use longhaul_core::PathShare;
use longhaul_proto::tuning::Why;
use longhaul_proto::udp::control::{KnownRate, UdpControl, UdpPhase, UdpRateLimit};

use super::tune::{LaneTask, TuningStep};
use crate::api::LanesChange;

/// A state of the path as people are told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToldState {
    /// Its rate is known, and this session has it.
    Full,
    /// Others have a part of it.
    Shared,
}

/// The state of a path that was told last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastTold(Option<(ToldState, Instant)>);

/// The decisions of one control of lanes over UDP or QUIC that were told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToldControl {
    state: LastTold,
    /// The outcome of a known rate as the session began. `None` once that was looked at.
    first: Option<KnownRate>,
    /// The same as it was told last.
    known: KnownRate,
    share: PathShare,
}

impl ToldState {
    /// The state of the path of this control. `None` while its rate is looked for, and where
    /// something else than the path holds the lanes up.
    pub(crate) fn of(control: &UdpControl) -> Option<ToldState> {
        if matches!(control.phase(), UdpPhase::Start | UdpPhase::Drain) {
            return None;
        }
        match control.limit() {
            UdpRateLimit::Shared => Some(ToldState::Shared),
            UdpRateLimit::Path => Some(ToldState::Full),
            _ => None,
        }
    }

    /// Why lanes keep a rate on a path that was seen to carry `most` bytes/s.
    pub(crate) fn reason(self, most: u64) -> Why {
        match self {
            ToldState::Full => Why::PathFull { most },
            ToldState::Shared => Why::PathShared { most },
        }
    }
}

impl LastTold {
    /// Whether this is to be told now. Others come and go; a line each second would tell nobody
    /// more.
    pub(crate) fn tells(&mut self, now: Instant, state: ToldState) -> bool {
        let is_old = self.0.is_some_and(|(was, at)| state == was || now - at < TELL_EVERY);
        if !is_old {
            self.0 = Some((state, now));
        }
        !is_old
    }
}

impl ToldControl {
    /// A control that begins, of which nothing was told.
    pub(crate) fn of(control: &UdpControl) -> ToldControl {
        let (first, share) = (Some(control.known_rate()), control.share());
        ToldControl { state: LastTold::default(), first, known: KnownRate::Unused, share }
    }

    /// The changes since the last call. `state`: that of the path, if lanes stand that have it to
    /// themselves.
    pub(crate) fn changes(&mut self, now: Instant, control: &UdpControl, state: Option<ToldState>) -> Vec<TuningStep> {
        let paced = |reason| step(LanesChange::Paced(control.rate()), reason);
        let outcomes = self.first.take().into_iter().chain([control.known_rate()]);
        let of_known: Vec<_> = outcomes.filter_map(|outcome| self.known_rate(outcome, control)).collect();
        let mut steps: Vec<_> = of_known.into_iter().map(paced).collect();
        let before = std::mem::replace(&mut self.share, control.share());
        if before == PathShare::All && self.share != PathShare::All {
            steps.push(step(LanesChange::Fair, Why::AllArrivesInPart));
        }
        let news = state.filter(|state| self.state.tells(now, *state));
        steps.extend(news.map(|state| paced(state.reason(control.capacity()))));
        steps
    }

    /// The news that the rate which an earlier session left has this outcome. `None` if that is
    /// none.
    fn known_rate(&mut self, outcome: KnownRate, control: &UdpControl) -> Option<Why> {
        let before = std::mem::replace(&mut self.known, outcome);
        let left = control.known_rate_left();
        (before != outcome).then_some(match outcome {
            KnownRate::Tried => Why::KnownRateTried { left },
            KnownRate::Proven => Why::KnownRateProven { left },
            KnownRate::Wrong(sign) => Why::KnownRateWrong { left, sign },
            KnownRate::Unused => Why::KnownRateUnproven { left },
        })
    }
}

fn step(change: LanesChange, reason: Why) -> TuningStep {
    TuningStep { task: LaneTask::Nothing, change, reason }
}

/// The time between two states that people are told of.
const TELL_EVERY: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use longhaul_core::LaneId;
    use longhaul_proto::time::Timestamp;
    use longhaul_proto::tuning::KnownRateSign;
    use longhaul_proto::udp::control::{KnownPath, UdpControlConfig, UdpLaneLimit};
    use longhaul_proto::udp::sending::UdpSample;
    use longhaul_proto::udp::status::Counts;

    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(20);

    /// A session over a line of 20 ms that carries 50 MB/s, looked at each 5 ms.
    struct Line {
        control: UdpControl,
        told: ToldControl,
        start: Instant,
        ms: u64,
        counts: Counts,
        lost: u32,
        said: Vec<String>,
    }

    impl Line {
        fn new(share: PathShare, known: Option<u64>) -> Line {
            let known = known.map(|rate| KnownPath { rate, round_trip: ROUND_TRIP });
            let config = UdpControlConfig { share, ceiling: None, known, round_trip: ROUND_TRIP };
            let control = UdpControl::new(Timestamp(0), config);
            let told = ToldControl::of(&control);
            let (start, counts) = (Instant::now(), Counts::default());
            Line { control, told, start, ms: 0, counts, lost: 0, said: Vec::new() }
        }

        /// Lets so many milliseconds pass, in which one packet of so many is lost. 0: none.
        fn pass(&mut self, ms: u64, lost_of: u32) -> &mut Line {
            for _ in 0..ms / 5 {
                self.ms += 5;
                let is_full = self.control.rate() >= LINE;
                let packets = self.control.rate().min(LINE) * 5 / 1_000_000;
                self.counts.packets += packets;
                self.counts.bytes += packets * 1000;
                let lost = if lost_of == 0 { 0 } else { (packets as u32).div_ceil(lost_of) };
                self.lost += lost;
                let queue = Duration::from_millis(if is_full { 8 } else { 0 });
                let sample = UdpSample {
                    round_trip: Some(ROUND_TRIP + queue),
                    arrived_us: Some(self.ms as u32 * 1000),
                    delay: Some(queue.as_micros() as u16 / 100),
                    counts: self.counts,
                    lost,
                    sent: self.counts.packets + u64::from(self.lost),
                    datagram_bytes: 1028,
                    flying_bytes: self.control.rate() / 50,
                };
                self.control.observe(Timestamp(self.ms * 1000), LaneId(0), &sample, UdpLaneLimit::Path);
                self.look();
            }
            self
        }

        fn look(&mut self) {
            let now = self.start + Duration::from_millis(self.ms);
            let steps = self.told.changes(now, &self.control, ToldState::of(&self.control));
            self.said.extend(steps.iter().map(|step| format!("{}: {}", step.change, step.reason)));
        }

        fn said(&self, words: &str) -> usize {
            self.said.iter().filter(|line| line.contains(words)).count()
        }
    }

    /// Bytes/s that the line carries.
    const LINE: u64 = 50_000_000;

    #[test]
    fn a_state_of_the_path_is_told_of_once_with_the_rate_that_lanes_keep() {
        let Line { control, mut told, start, .. } = Line::new(PathShare::Fair, None);
        let mut at = |seconds, state| -> Vec<_> {
            let steps = told.changes(start + Duration::from_secs(seconds), &control, state);
            steps.into_iter().map(|step| (step.change, step.reason)).collect()
        };
        let most = control.capacity();
        let paced = || LanesChange::Paced(control.rate());
        assert_eq!(at(0, None), []);
        assert_eq!(at(0, Some(ToldState::Full)), [(paced(), Why::PathFull { most })]);
        assert_eq!(at(6, Some(ToldState::Full)), []);
        assert_eq!(at(7, Some(ToldState::Shared)), [(paced(), Why::PathShared { most })]);
    }

    #[test]
    fn a_known_rate_that_arrives_is_told_of_as_tried_and_then_as_proven() {
        let mut line = Line::new(PathShare::Fair, Some(LINE));
        line.look();
        assert_eq!(line.said, ["paced at 25.0 MB/s: an earlier session left 50.0 MB/s, of which half is tried"]);
        line.pass(1000, 0);
        assert_eq!(line.said("half of the 50.0 MB/s that an earlier session left arrived"), 1, "{:?}", line.said);
        assert_eq!(line.said("too much"), 0, "{:?}", line.said);
    }

    #[test]
    fn a_known_rate_that_is_left_at_the_first_losses_is_told_of_with_that_reason() {
        let mut line = Line::new(PathShare::Fair, Some(LINE));
        line.pass(1000, 3);
        assert_eq!(line.said("of which half is tried"), 1, "{:?}", line.said);
        assert_eq!(line.said("is too much: packets were lost"), 1, "{:?}", line.said);
        assert_eq!(line.control.known_rate(), KnownRate::Wrong(KnownRateSign::Lost));
    }

    #[test]
    fn the_end_of_a_trial_between_two_looks_is_told_of_after_its_beginning() {
        let mut line = Line::new(PathShare::Fair, Some(LINE));
        let told = line.told;
        line.pass(1000, 3);
        (line.told, line.said) = (told, Vec::new());
        line.look();
        assert!(line.said[0].contains("half is tried") && line.said[1].contains("too much"), "{:?}", line.said);
    }

    #[test]
    fn a_first_visit_says_nothing_of_a_known_rate() {
        let mut line = Line::new(PathShare::Fair, None);
        line.pass(2000, 0);
        assert_eq!(line.said("an earlier session"), 0, "{:?}", line.said);
    }

    #[test]
    fn who_may_not_take_all_any_more_says_so_once() {
        let mut line = Line::new(PathShare::All, None);
        line.pass(500, 0).control.set_share(PathShare::Fair);
        line.pass(500, 0);
        assert_eq!(line.said("fair: less than half of what was sent arrived"), 1, "{:?}", line.said);
    }

    #[test]
    fn others_that_come_and_go_are_told_of_each_few_seconds() {
        let (mut last, now) = (LastTold::default(), Instant::now());
        assert!(last.tells(now, ToldState::Full) && !last.tells(now, ToldState::Shared));
        let later = now + TELL_EVERY;
        assert!(!last.tells(later, ToldState::Full) && last.tells(later, ToldState::Shared));
    }
}
