//! One line of progress, as wide as the terminal and no wider.
//!
//! In: a [`View`] of the counters, and how many columns there are. Out: text of plain ASCII, so
//! that a character is a column. Knows no terminal, no clock and no engine.

use longhaul_core::ByteCount;

use super::units;

/// The figures to show.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct View {
    /// Bytes of the files that are at the receiver.
    pub(super) arrived: u64,
    /// The part of `arrived` that is durable there.
    pub(super) durable: u64,
    /// Bytes of all files that are wanted, as far as known. `None` of a stream before its end.
    pub(super) wanted: Option<u64>,
    /// Whether all files are known.
    pub(super) scanned: bool,
    /// Files that are settled: under their final names, skipped or failed.
    pub(super) files_done: u64,
    /// Files that are known.
    pub(super) files_total: u64,
    /// The present rate of arriving bytes per second.
    pub(super) bytes_per_s: f64,
    /// Seconds since the run began.
    pub(super) elapsed_s: f64,
    /// Seconds to go. `None` until that can be said.
    pub(super) eta_s: Option<f64>,
    /// Seconds without a sign of the other side. `None` if they are too few to tell.
    pub(super) silent_s: Option<f64>,
    /// The limit of the speed, in words. `None` if it is not known.
    pub(super) limit: Option<&'static str>,
    /// Bytes of skipped files that were read for the manifest.
    pub(super) digested: u64,
}

/// A part of the line: its place, and its forms, the best first.
struct Part {
    place: BarPlace,
    forms: Vec<String>,
}

/// Places of parts, from left to right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum BarPlace {
    Percent,
    Amount,
    Files,
    Rate,
    Elapsed,
    Left,
    State,
}

impl View {
    /// The line for a terminal with `columns` columns. The last one stays free, as some terminals
    /// go on to the next line from it.
    pub(super) fn bar(&self, columns: usize) -> String {
        let room = columns.saturating_sub(1);
        let mut used = 0;
        let mut chosen: Vec<(BarPlace, String)> = Vec::new();
        for part in self.parts() {
            let join = [0, " ".len()].get(chosen.len()).copied().unwrap_or(GAP.len());
            if let Some(form) = part.forms.into_iter().find(|form| used + join + form.len() <= room) {
                used += join + form.len();
                chosen.push((part.place, form));
            }
        }
        chosen.sort_by_key(|(place, _)| *place);
        let text = joined(chosen.into_iter().map(|(_, form)| form));
        match room.saturating_sub(used) {
            // Its frame and the space behind it take three.
            left if left >= TRACK_MIN + 3 => format!("[{}] {text}", self.track((left - 3).min(TRACK_MAX))),
            _ => text,
        }
    }

    /// All parts, for a line in a log.
    pub(super) fn sentence(&self) -> String {
        let mut parts = self.parts();
        parts.sort_by_key(|part| part.place);
        joined(parts.into_iter().filter_map(|part| part.forms.into_iter().next()))
    }

    /// The parts, the most wanted first.
    fn parts(&self) -> Vec<Part> {
        let part = |place, forms: Vec<String>| Part { place, forms };
        let mut parts = vec![
            part(BarPlace::Percent, vec![self.percents()]),
            part(BarPlace::Rate, vec![units::rate(self.bytes_per_s), units::bytes_rate(self.bytes_per_s)]),
        ];
        match (self.silent_s, self.eta_s) {
            (Some(seconds), _) => {
                let seconds = seconds as u64;
                parts.push(part(BarPlace::State, vec![format!("no answer for {seconds} s"), "no answer".to_owned()]));
            }
            (None, Some(eta)) => parts.push(part(BarPlace::Left, vec![format!("{} left", units::span(eta))])),
            (None, None) => {}
        }
        let elapsed = units::span(self.elapsed_s);
        parts.push(part(BarPlace::Elapsed, vec![format!("{elapsed} elapsed"), elapsed]));
        if self.digested > 0 && self.bytes_per_s < 1.0 && self.silent_s.is_none() {
            let read = ByteCount(self.digested);
            parts.push(part(BarPlace::State, vec![format!("{read} of skipped files read"), format!("read: {read}")]));
        } else if let Some(limit) = self.limit.filter(|_| self.silent_s.is_none()) {
            parts.push(part(BarPlace::State, vec![format!("limited by {limit}"), format!("limit: {limit}")]));
        }
        parts.push(part(BarPlace::Amount, self.amounts()));
        let total = if self.scanned { "" } else { "+" };
        let noun = if self.files_total == 1 && self.scanned { "file" } else { "files" };
        let files = format!("{} of {}{total} {noun}", self.files_done, self.files_total);
        parts.push(part(BarPlace::Files, vec![files]));
        parts
    }

    fn amounts(&self) -> Vec<String> {
        let arrived = ByteCount(self.arrived);
        let total = if self.scanned { "" } else { "+" };
        let of = match self.wanted {
            Some(wanted) => format!("{arrived} of {}{total}", ByteCount(wanted)),
            None => arrived.to_string(),
        };
        let mut forms = Vec::new();
        if self.durable < self.arrived {
            forms.push(format!("{of} ({} of it safe on disk)", ByteCount(self.durable)));
            forms.push(format!("{of} ({} safe)", ByteCount(self.durable)));
        }
        forms.extend([of, arrived.to_string()]);
        forms
    }

    /// The beginning of the line: a stream has no percents before its end.
    fn percents(&self) -> String {
        if self.wanted.is_some() { format!("{}%", self.percent()) } else { "stream".to_owned() }
    }

    /// Whole percents that arrived; 100 only when everything is safe.
    fn percent(&self) -> u64 {
        match self.wanted.unwrap_or(0) {
            0 if self.scanned && self.files_done >= self.files_total => 100,
            0 => self.percent_of_files(),
            // No byte has come, as files that are there already are read.
            _ if self.digested > 0 && self.arrived == 0 => self.percent_of_files(),
            wanted if self.scanned && self.durable >= wanted => 100,
            wanted => (u128::from(self.arrived) * 100 / u128::from(wanted)).min(99) as u64,
        }
    }

    /// The same for files, if bytes do not show the progress.
    fn percent_of_files(&self) -> u64 {
        match self.files_total {
            0 => 0,
            total => (u128::from(self.files_done) * 100 / u128::from(total)).min(99) as u64,
        }
    }

    /// The track of the bar: durable bytes, arrived bytes, and bytes to come.
    fn track(&self, columns: usize) -> String {
        let share = |bytes: u64| match self.wanted.unwrap_or(0) {
            0 => 0,
            wanted => (u128::from(bytes.min(wanted)) * columns as u128 / u128::from(wanted)) as usize,
        };
        let (safe, arrived) = (share(self.durable), share(self.arrived.max(self.durable)));
        format!("{}{}{}", "=".repeat(safe), "-".repeat(arrived - safe), " ".repeat(columns - arrived))
    }
}

/// Joins the percents and the other parts, with commas between those.
fn joined(mut forms: impl Iterator<Item = String>) -> String {
    let first = forms.next().unwrap_or_default();
    let rest = forms.collect::<Vec<_>>().join(GAP);
    if rest.is_empty() { first } else { format!("{first} {rest}") }
}

const GAP: &str = ", ";
/// Columns of the track, least and most: fewer show nothing, more show nothing new.
const TRACK_MIN: usize = 12;
const TRACK_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> View {
        View {
            arrived: 110 << 20,
            durable: 62 << 20,
            wanted: Some(248 << 20),
            scanned: true,
            files_done: 2,
            files_total: 3,
            bytes_per_s: 17.2e6,
            elapsed_s: 12.3,
            eta_s: Some(8.0),
            silent_s: None,
            limit: Some("the source disk"),
            digested: 0,
        }
    }

    fn views() -> Vec<View> {
        let huge = View {
            arrived: u64::MAX - 1,
            durable: u64::MAX / 2,
            wanted: Some(u64::MAX),
            files_done: u64::MAX - 1,
            files_total: u64::MAX,
            bytes_per_s: 1e300,
            elapsed_s: 1e9,
            eta_s: Some(1e9),
            scanned: false,
            ..view()
        };
        let silent = |of: View| View { silent_s: Some(1234.0), eta_s: None, ..of };
        let slow = View { bytes_per_s: 12.34e6, limit: Some("TCP buffers"), ..view() };
        vec![
            View { wanted: Some(0), ..View::default() },
            view(),
            slow,
            huge,
            silent(view()),
            silent(huge),
            View { limit: None, eta_s: None, ..view() },
        ]
    }

    #[test]
    fn a_line_is_never_wider_than_the_terminal_and_from_40_columns_on_has_percent_and_rate() {
        for view in views() {
            for columns in 0..=250 {
                let line = view.bar(columns);
                assert!(line.is_ascii() && !line.contains('\n'), "{line:?}");
                assert!(line.len() < columns.max(1) || line.is_empty(), "{columns}: {line:?}");
                let (percent, rate) = (format!("{}%", view.percent()), units::rate(view.bytes_per_s));
                if columns >= 40 {
                    assert!(line.contains(&percent) && line.contains(&rate), "{columns}: {line:?}");
                }
                if columns >= 20 {
                    let bytes = units::bytes_rate(view.bytes_per_s);
                    assert!(line.contains(&percent) && line.contains(&bytes), "{columns}: {line:?}");
                }
            }
        }
    }

    #[test]
    fn a_wider_terminal_shows_more() {
        for (columns, want) in [
            (20, "44% 17.2 MB/s, 0:12"),
            (40, "44% 138 Mbit/s (17.2 MB/s), 0:08 left"),
            (80, "44% 138 Mbit/s (17.2 MB/s), 0:12 elapsed, 0:08 left, limited by the source disk"),
            (
                120,
                "44% 110.0 MiB of 248.0 MiB (62.0 MiB safe), 138 Mbit/s (17.2 MB/s), 0:12 elapsed, 0:08 left, limited by the source disk",
            ),
            (
                200,
                "[==========-------                       ] 44% 110.0 MiB of 248.0 MiB (62.0 MiB of it safe on disk), 2 of 3 files, \
                 138 Mbit/s (17.2 MB/s), 0:12 elapsed, 0:08 left, limited by the source disk",
            ),
        ] {
            assert_eq!(view().bar(columns), want, "{columns}");
        }
    }

    #[test]
    fn an_outage_is_said_first_and_promises_nothing() {
        let silent = View { silent_s: Some(12.7), eta_s: None, bytes_per_s: 0.0, ..view() };
        assert_eq!(silent.bar(40), "44% 0 bit/s (0 B/s), no answer for 12 s");
        assert!(!silent.bar(200).contains("limit"), "{}", silent.bar(200));
    }

    #[test]
    fn all_is_done_only_when_it_is_safe() {
        let arrived = View { arrived: 248 << 20, ..view() };
        assert_eq!((arrived.percent(), View { durable: 248 << 20, ..arrived }.percent()), (99, 100));
        assert_eq!(View { scanned: true, ..View::default() }.percent(), 100);
        assert_eq!(View { scanned: true, files_total: 1, ..View::default() }.percent(), 0);
        let reading = View { files_done: 3, files_total: 4, scanned: true, ..View::default() };
        assert_eq!(reading.percent(), 75, "nothing is to come, and a name is not settled");
        assert_eq!(View { wanted: Some(9), digested: 9, ..reading }.percent(), 75);
    }

    #[test]
    fn a_line_of_a_log_has_everything() {
        let said = "44% 110.0 MiB of 248.0 MiB (62.0 MiB of it safe on disk), 2 of 3 files, 138 Mbit/s (17.2 MB/s), \
                    0:12 elapsed, 0:08 left, limited by the source disk";
        assert_eq!(view().sentence(), said);
        let early = View { wanted: Some(5), ..View::default() };
        assert_eq!(early.sentence(), "0% 0 B of 5 B+, 0 of 0+ files, 0 bit/s (0 B/s), 0:00 elapsed");
    }
}
