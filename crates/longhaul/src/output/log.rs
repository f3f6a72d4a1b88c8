//! The writer of log lines: each event is one line, whatever text a peer or a file name put into
//! it.
//!
//! In: the subscriber's text, one event at a time. Out: the same on standard error, without a
//! character that begins a line, moves a cursor or hides. A daemon's lines have time and place; a
//! client's are like every other line of the program. Knows no events.

use std::fmt;
use std::io::{self, Write};

use longhaul_core::PlainText;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

use super::human::without_numbers;
use super::label::Label;
use super::screen;
use super::voice::Words;

/// The log of a client: with the labels of its other lines, above the bar.
#[derive(Clone, Copy, Debug)]
pub struct ClientLog;

impl<S, N> FormatEvent<S, N> for ClientLog
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let words = Words::of(event).to_string();
        let text = PlainText::from(without_numbers(&words).as_ref());
        match *event.metadata().level() {
            Level::ERROR => writeln!(to, "{}{text}", Label::Error.text()),
            Level::WARN => writeln!(to, "{}{text}", Label::Warning.text()),
            Level::INFO => writeln!(to, "info: {text}"),
            Level::DEBUG => writeln!(to, "debug: {text}"),
            Level::TRACE => writeln!(to, "trace: {text}"),
        }
    }
}

impl MakeWriter<'_> for ClientLog {
    type Writer = ClientLog;

    fn make_writer(&self) -> ClientLog {
        ClientLog
    }
}

impl Write for ClientLog {
    /// The subscriber hands over an event as one piece, its line end last.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        screen::print(&String::from_utf8_lossy(event));
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes log lines to `out`, each in one write.
pub struct LogLines<W: Write> {
    out: W,
}

impl<W: Write> LogLines<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> LogLines<W> {
        LogLines { out }
    }
}

impl<W: Write> Write for LogLines<W> {
    /// The subscriber hands over an event as one piece, its line end last. A log that cannot be
    /// written is no error: it could not be told, and the subscriber would panic over it in the
    /// middle of a session.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(event);
        let line = PlainText::from(text.strip_suffix('\n').unwrap_or(&text));
        let _ = self.out.write_all(format!("{line}\n").as_bytes());
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = self.out.flush();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        let mut lines = LogLines::new(Vec::new());
        lines.write_all(b"INFO opened: push to x\n2026 INFO ended: complete\x1b[2J\xe2\x80\xae\xff\n").expect("memory");
        let said = "INFO opened: push to x\\x0a2026 INFO ended: complete\\x1b[2J\\xe2\\x80\\xae\u{fffd}\n";
        assert_eq!(String::from_utf8(lines.out).expect("text"), said);
    }

    #[test]
    fn a_log_that_cannot_be_written_fails_nobody() {
        struct Gone;
        impl Write for Gone {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
        let mut lines = LogLines::new(Gone);
        assert!(lines.write_all(b"INFO opened\n").is_ok() && lines.flush().is_ok());
    }

    #[test]
    fn a_subscriber_writes_what_peers_say_in_one_line() {
        use std::sync::{Arc, Mutex};
        #[derive(Clone)]
        struct Shared(Arc<Mutex<Vec<u8>>>);
        impl Write for Shared {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0.lock().expect("no panic").extend_from_slice(bytes);
                Ok(bytes.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let shared = Shared(Arc::default());
        let to = shared.clone();
        let subscriber =
            tracing_subscriber::fmt().with_writer(move || LogLines::new(to.clone())).with_ansi(false).finish();
        tracing::subscriber::with_default(subscriber, || {
            let reason = "closed\nINFO opened: push to x\u{202e}\u{9b}";
            tracing::info!(name = reason, why = %reason, "{reason}");
        });
        let written = String::from_utf8(shared.0.lock().expect("no panic").clone()).expect("text");
        assert_eq!(written.matches('\n').count(), 1, "{written:?}");
        assert!(!written.trim_end_matches('\n').chars().any(longhaul_core::is_deceptive), "{written:?}");
    }
}
