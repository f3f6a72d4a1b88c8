//! Progress for people: a bar on a terminal, a line now and then elsewhere.
//!
//! In: counters and their [`Pace`]. Out: standard error. Says what the session counts, never more: bytes durable, not sent.

use std::io::{self, IsTerminal};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use longhaul_core::ByteCount;
use longhaul_engine::Progress;

use super::meter::Pace;
use super::{Talker, units};
use crate::settings::{Environment, ProgressForm, Talk};

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
    /// What was asked for, as far as standard error can show it. With each file named, lines and a bar would tear each
    /// other apart: there only lines.
    pub fn choose(form: ProgressForm, talk: Talk, environment: Environment) -> Show {
        let terminal = io::stderr().is_terminal() && environment("TERM").is_none_or(|term| term != "dumb");
        Show::on(form, talk, terminal)
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
pub(super) enum Shown {
    Bar(ProgressBar),
    Plain { next: f64 },
    Nothing,
}

impl Shown {
    pub(super) fn new(show: Show) -> Shown {
        match show {
            Show::Bar => Shown::Bar(bar()),
            Show::Plain => Shown::Plain { next: PLAIN_SECONDS },
            Show::Nothing => Shown::Nothing,
        }
    }

    /// Shows new counters.
    pub(super) fn update(&mut self, progress: &Progress, pace: &Pace, talker: Talker) {
        match self {
            Shown::Bar(bar) => {
                bar.set_length(pace.bytes_to_move.max(1));
                bar.set_position(progress.bytes_durable);
                bar.set_message(line(progress, pace));
            }
            Shown::Plain { next } if progress.seconds >= *next => {
                talker.note(line(progress, pace));
                *next = following(progress.seconds);
            }
            Shown::Plain { .. } | Shown::Nothing => {}
        }
    }

    /// Prints something else without tearing the bar.
    pub(super) fn aside(&self, print: impl FnOnce()) {
        match self {
            Shown::Bar(bar) => bar.suspend(print),
            Shown::Plain { .. } | Shown::Nothing => print(),
        }
    }

    /// Takes the bar away.
    pub(super) fn end(&self) {
        if let Shown::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

fn bar() -> ProgressBar {
    // The template is fixed: a mistake in it shows as the library's own bar, not as a failed transfer.
    let style = ProgressStyle::with_template("[{bar:24}] {msg}").unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr()).with_style(style.progress_chars("=> "))
}

/// When a plain line is due after one at `seconds`.
fn following(seconds: f64) -> f64 {
    let step = if seconds < PLAIN_SLOW_AFTER_SECONDS { PLAIN_SECONDS } else { PLAIN_SLOW_SECONDS };
    ((seconds / step).floor() + 1.0) * step
}

fn line(progress: &Progress, pace: &Pace) -> String {
    let total = if progress.scanned { "" } else { "+" };
    let mut text = format!(
        "{} of {}{total}, {} of {}{total} files, {}",
        ByteCount(progress.bytes_durable),
        ByteCount(pace.bytes_to_move),
        progress.files_committed,
        progress.files_total,
        units::rate(pace.bytes_per_s),
    );
    if let Some(eta) = pace.eta_s {
        text.push_str(&format!(", {} left", units::span(eta)));
    }
    if let Some(limited) = progress.limited_by {
        text.push_str(&format!(", limited by {}", limited.by));
    }
    text
}

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

    #[test]
    fn a_line_says_what_is_durable_how_fast_and_what_limits() {
        let progress = Progress {
            bytes_durable: 3 << 30,
            files_committed: 2,
            files_total: 5,
            scanned: true,
            limited_by: Some(Limited { by: "target", share: 0.7 }),
            ..Progress::default()
        };
        let pace = Pace { bytes_per_s: 1.176e9, eta_s: Some(62.0), bytes_to_move: 4 << 30 };
        assert_eq!(
            line(&progress, &pace),
            "3.0 GiB of 4.0 GiB, 2 of 5 files, 9.41 Gbit/s (1.18 GB/s), 1:02 left, limited by target"
        );
        let early = line(&Progress::default(), &Pace { bytes_per_s: 0.0, eta_s: None, bytes_to_move: 0 });
        assert_eq!(early, "0 B of 0 B+, 0 of 0+ files, 0 bit/s (0 B/s)");
    }
}
