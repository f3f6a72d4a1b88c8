//! The labels before lines for users, and their colour.
//!
//! In: the value of `--color`, variables, whether standard error is a terminal. Out: the words
//! before a line. Prints nothing.

use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::values::{ColorWhen, Environment};

/// The word before a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Label {
    /// A step failed.
    Error,
    /// Something is not as it should be, and the run goes on.
    Warning,
    /// A fact worth knowing.
    Note,
    /// Advice what to do next.
    Hint,
}

/// Whether labels are coloured. There is one standard error for the whole process.
static COLORED: AtomicBool = AtomicBool::new(false);

/// Decides for this process whether labels are coloured.
pub fn set_color(when: ColorWhen, environment: Environment) {
    COLORED.store(colored(when, environment, io::stderr().is_terminal()), Ordering::Relaxed);
}

impl Label {
    /// The label as it is printed, with the space behind it.
    pub(super) fn text(self) -> &'static str {
        self.spelled(COLORED.load(Ordering::Relaxed))
    }

    fn spelled(self, colored: bool) -> &'static str {
        match (self, colored) {
            (Label::Error, false) => "error: ",
            (Label::Warning, false) => "warning: ",
            (Label::Note, false) => "note: ",
            (Label::Hint, false) => "hint: ",
            (Label::Error, true) => "\x1b[1;31merror:\x1b[0m ",
            (Label::Warning, true) => "\x1b[1;33mwarning:\x1b[0m ",
            (Label::Note, true) => "\x1b[1;36mnote:\x1b[0m ",
            (Label::Hint, true) => "\x1b[1;32mhint:\x1b[0m ",
        }
    }
}

/// Decides by the rules of <https://no-color.org> and <https://bixense.com/clicolors>: this
/// program's own option counts most, and an empty variable counts as unset.
fn colored(when: ColorWhen, environment: Environment, terminal: bool) -> bool {
    let variable = |name| environment(name).filter(|text| !text.is_empty());
    match when {
        ColorWhen::Always => true,
        ColorWhen::Never => false,
        ColorWhen::Auto if variable("NO_COLOR").is_some() => false,
        ColorWhen::Auto if variable("CLICOLOR_FORCE").is_some_and(|text| text != "0") => true,
        ColorWhen::Auto => terminal && variable("TERM").is_none_or(|term| term != "dumb"),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    #[test]
    fn labels_are_coloured_on_a_terminal_that_can_unless_somebody_says_otherwise() {
        use ColorWhen::{Always, Auto, Never};
        for (when, variables, terminal, want) in [
            (Auto, &[][..], true, true),
            (Auto, &[], false, false),
            (Auto, &[("TERM", "dumb")], true, false),
            (Auto, &[("TERM", "xterm")], true, true),
            (Auto, &[("NO_COLOR", "1")], true, false),
            (Auto, &[("NO_COLOR", "")], true, true),
            (Auto, &[("CLICOLOR_FORCE", "1")], false, true),
            (Auto, &[("CLICOLOR_FORCE", "0")], false, false),
            (Auto, &[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], true, false),
            (Always, &[("NO_COLOR", "1"), ("TERM", "dumb")], false, true),
            (Never, &[("CLICOLOR_FORCE", "1")], true, false),
        ] {
            let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, text)| OsString::from(text));
            assert_eq!(colored(when, &find, terminal), want, "{when:?} {variables:?} {terminal}");
        }
    }

    #[test]
    fn a_colour_is_over_before_the_text_begins() {
        for label in [Label::Error, Label::Warning, Label::Note, Label::Hint] {
            let (plain, colored) = (label.spelled(false), label.spelled(true));
            let word = plain.trim_end();
            assert!(colored.starts_with("\x1b[1;3") && colored.ends_with(&format!("{word}\x1b[0m ")), "{colored:?}");
        }
    }
}
