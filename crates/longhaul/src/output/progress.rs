//! Progress for users: a bar on a terminal, a line now and then elsewhere.
//!
//! In: counters and their [`Pace`], and several times a second a call that time has passed. Out:
//! standard error. Shows the arrived bytes and the durable part of them, never more.

use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

use longhaul_engine::{Limit, Progress};

use super::bar::View;
use super::closing::EndOfStream;
use super::meter::{self, Pace};
use super::{Talker, screen, words};
use crate::settings::Talk;
use crate::values::{Environment, ProgressForm};

/// The form that progress takes in this run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// A bar.
    Bar,
    /// A line every 10 s, after the first minute every 60 s.
    Plain,
    /// Nothing.
    Nothing,
}

impl Show {
    /// The form that was asked for, as far as standard error can show it. If each file is named,
    /// the bar gives way to lines, as the two would tear each other apart.
    pub fn choose(form: ProgressForm, talk: Talk, environment: Environment) -> Show {
        let terminal = io::stderr().is_terminal() && environment("TERM").is_none_or(|term| term != "dumb");
        Show::on(form, talk, terminal)
    }

    /// The same for one destination of several: two bars would tear each other apart.
    #[must_use]
    pub fn beside_others(self) -> Show {
        if self == Show::Bar { Show::Plain } else { self }
    }

    fn on(form: ProgressForm, talk: Talk, terminal: bool) -> Show {
        match form {
            _ if talk.quiet => Show::Nothing,
            ProgressForm::None => Show::Nothing,
            ProgressForm::Auto if terminal && talk.verbose == 0 => Show::Bar,
            ProgressForm::Bar if terminal => Show::Bar,
            _ => Show::Plain,
        }
    }
}

/// The progress shown at the moment.
pub(super) struct Shown {
    show: Show,
    /// The time when the run began.
    begun: Instant,
    latest: Option<Latest>,
    /// The time when the next plain line is due, in seconds of the session.
    next_plain: f64,
    /// The rate that was asked for, bytes/s.
    rate: Option<u64>,
    /// Whether the source is a stream, of which it is not known how much will come.
    is_stream: bool,
    /// Seconds in which the network limited, and the part of them in which the rate asked for was
    /// the limit.
    paced: (u64, u64),
}

/// The newest counters, and the time when they came.
#[derive(Clone, Copy)]
struct Latest {
    progress: Progress,
    pace: Pace,
    at: Instant,
    /// Whether the session is lost and no other stands yet.
    lost: bool,
}

impl Shown {
    /// Begins with nothing shown. `rate` is the value of `--rate` in bytes/s.
    pub(super) fn new(show: Show, rate: Option<u64>) -> Shown {
        let (begun, next_plain) = (Instant::now(), PLAIN_SECONDS);
        Shown { show, begun, latest: None, next_plain, rate, is_stream: false, paced: (0, 0) }
    }

    /// The same for a source that may be a stream.
    pub(super) fn of_stream(self, end: EndOfStream) -> Shown {
        Shown { is_stream: end != EndOfStream::NoStream, ..self }
    }

    /// Whether passing time is to be shown.
    pub(super) fn ticks(&self) -> bool {
        self.show == Show::Bar && self.latest.is_some()
    }

    /// Shows new counters.
    pub(super) fn update(&mut self, progress: &Progress, pace: &Pace, talker: Talker) {
        let latest = Latest { progress: *progress, pace: *pace, at: Instant::now(), lost: false };
        self.latest = Some(latest);
        if progress.limited_by.is_some_and(|limited| limited.by == Limit::NetworkRate) {
            self.paced.0 += 1;
            self.paced.1 += u64::from(self.is_capped(pace));
        }
        match self.show {
            Show::Bar => self.tick(),
            Show::Plain if progress.seconds >= self.next_plain => {
                talker.say(self.view(&latest).sentence());
                self.next_plain = following(progress.seconds);
            }
            Show::Plain | Show::Nothing => {}
        }
    }

    /// Notes that the session is lost: from now on the other side does not answer.
    pub(super) fn lose(&mut self) {
        if let Some(latest) = &mut self.latest {
            latest.lost = true;
        }
    }

    /// Draws the bar anew: time has passed, or the terminal was made wider or narrower.
    pub(super) fn tick(&self) {
        if let Some(latest) = self.latest.as_ref().filter(|_| self.show == Show::Bar) {
            screen::draw_bar(self.view(latest).bar(screen::columns()));
        }
    }

    /// Removes the bar.
    pub(super) fn end(&mut self) {
        if self.show == Show::Bar {
            self.latest = None;
            screen::clear_bar();
        }
    }

    fn view(&self, latest: &Latest) -> View {
        let Latest { progress, pace, .. } = latest;
        let silence = Duration::from_secs_f64(progress.silent_s.clamp(0.0, 1e9)) + latest.at.elapsed();
        let silent = latest.lost || silence.as_secs_f64() >= SILENT_AFTER_SECONDS;
        View {
            arrived: progress.bytes_arrived,
            durable: progress.bytes_durable,
            wanted: Some(pace.bytes_wanted).filter(|_| progress.scanned || !self.is_stream),
            scanned: progress.scanned,
            files_done: meter::settled(progress),
            files_total: progress.files_total,
            bytes_per_s: if silent { 0.0 } else { pace.bytes_per_s },
            elapsed_s: self.begun.elapsed().as_secs_f64(),
            eta_s: pace.eta_s.filter(|_| !silent),
            silent_s: silent.then_some(silence.as_secs_f64()),
            digested: progress.bytes_digested,
            limit: progress.limited_by.map(|limited| words::limit(limited.by, self.is_capped(pace))),
        }
    }

    /// Whether the rate asked for was the limit most of the time that the network was.
    pub(super) fn was_capped(&self) -> bool {
        self.paced.1 * 2 > self.paced.0
    }

    /// Whether the present rate is the one asked for with `--rate`.
    fn is_capped(&self, pace: &Pace) -> bool {
        self.rate.is_some_and(|rate| pace.bytes_per_s >= rate as f64 * NEARLY)
    }
}

/// The time when a plain line is due after one at `seconds`.
fn following(seconds: f64) -> f64 {
    let step = if seconds < PLAIN_SLOW_AFTER_SECONDS { PLAIN_SECONDS } else { PLAIN_SLOW_SECONDS };
    ((seconds / step).floor() + 1.0) * step
}

/// The time between two draws of a bar: time goes on, and a terminal may be made wider or narrower.
pub(super) const TICK: Duration = Duration::from_millis(250);
/// The silence that is worth telling, in seconds. Each side speaks at least once a second.
const SILENT_AFTER_SECONDS: f64 = 3.0;
/// The part of a rate asked for from which the rate counts as reached.
const NEARLY: f64 = 0.85;
const PLAIN_SECONDS: f64 = 10.0;
const PLAIN_SLOW_SECONDS: f64 = 60.0;
const PLAIN_SLOW_AFTER_SECONDS: f64 = 60.0;

#[cfg(test)]
mod tests {
    use longhaul_engine::Limited;

    use super::*;

    #[test]
    fn a_bar_is_drawn_only_where_it_can_be() {
        let (loud, quiet, files) =
            (Talk::default(), Talk { quiet: true, ..Talk::default() }, Talk { verbose: 1, ..Talk::default() });
        for (form, talk, terminal, want) in [
            (ProgressForm::Auto, loud, true, Show::Bar),
            (ProgressForm::Auto, loud, false, Show::Plain),
            (ProgressForm::Auto, files, true, Show::Plain),
            (ProgressForm::Bar, loud, false, Show::Plain),
            (ProgressForm::Bar, loud, true, Show::Bar),
            (ProgressForm::Plain, loud, true, Show::Plain),
            (ProgressForm::None, loud, true, Show::Nothing),
            (ProgressForm::Bar, quiet, true, Show::Nothing),
        ] {
            assert_eq!(Show::on(form, talk, terminal), want, "{form:?} {talk:?} {terminal}");
        }
    }

    #[test]
    fn plain_lines_come_every_ten_seconds_and_later_every_minute() {
        for (now, next) in [(10.2, 20.0), (19.9, 20.0), (50.0, 60.0), (60.1, 120.0), (185.0, 240.0)] {
            assert_eq!(following(now), next, "{now}");
        }
    }

    fn view(progress: Progress, lost: bool) -> View {
        let mut shown = Shown::new(Show::Nothing, Some(1000));
        let pace = Pace { bytes_per_s: 950.0, eta_s: Some(9.0), bytes_wanted: 10 };
        shown.update(&progress, &pace, Talker::silent());
        if lost {
            shown.lose();
        }
        shown.view(&shown.latest.expect("counters"))
    }

    #[test]
    fn a_stream_has_no_percents_before_its_end() {
        let of = |scanned, end| {
            let mut shown = Shown::new(Show::Nothing, None).of_stream(end);
            let pace = Pace { bytes_per_s: 950.0, eta_s: None, bytes_wanted: 10 };
            shown.update(&Progress { scanned, bytes_arrived: 5, ..Progress::default() }, &pace, Talker::silent());
            shown.view(&shown.latest.expect("counters")).sentence()
        };
        let early = of(false, EndOfStream::NotProven);
        assert!(early.starts_with("stream 5 B") && !early.contains('%'), "{early}");
        assert!(of(true, EndOfStream::Proven).starts_with("50% 5 B of 10 B"));
        assert!(of(false, EndOfStream::NoStream).starts_with("50% 5 B of 10 B+"));
    }

    #[test]
    fn what_is_there_already_is_done() {
        let rerun = Progress { files_total: 10, files_committed: 1, files_done_without: 9, ..Progress::default() };
        assert_eq!(view(rerun, false).files_done, 10);
    }

    #[test]
    fn an_outage_is_no_slow_network() {
        let limited_by = Some(Limited { by: Limit::NetworkRate, share: 1.0 });
        let well = Progress { limited_by, silent_s: 1.0, ..Progress::default() };
        let seen = view(well, false);
        assert_eq!((seen.silent_s, seen.bytes_per_s, seen.limit), (None, 950.0, Some("--rate")));
        for (silent_s, lost) in [(12.0, false), (0.0, true)] {
            let seen = view(Progress { silent_s, ..well }, lost);
            assert!(seen.silent_s.is_some_and(|seconds| (silent_s..silent_s + 9.0).contains(&seconds)), "{seen:?}");
            assert_eq!((seen.bytes_per_s, seen.eta_s), (0.0, None));
        }
    }
}
