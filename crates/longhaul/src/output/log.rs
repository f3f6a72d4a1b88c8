//! The writer of log lines: each event is one line, whatever text a peer or a file name put into
//! it.
//!
//! In: the subscriber's text, one event at a time. Out: the same on standard error, without a
//! character that begins a line, moves a cursor or hides. A daemon's lines have time and place; a
//! client's are like every other line of the program. Knows no events.

use std::fmt;
use std::io::{self, Write};

use longhaul_core::{PlainText, is_deceptive};
use serde::{Serialize, Serializer};
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
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

/// The log of a daemon as JSON: an object a line, with `time`, `level`, `target`, `message`, and
/// the facts of the event by their names.
#[derive(Clone, Copy, Debug)]
pub struct JsonLog;

impl<S, N> FormatEvent<S, N> for JsonLog
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let (mut time, mut facts) = (String::new(), Facts::default());
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        event.record(&mut facts);
        let metadata = event.metadata();
        let head = [("time", time), ("level", metadata.level().to_string()), ("target", metadata.target().to_owned())];
        let head = head.map(|(name, text)| (name, Value::String(text)));
        let message = Some(("message", Value::String(facts.message)));
        let line = JsonObject(head.into_iter().chain(message).chain(facts.others));
        writeln!(to, "{}", json_line(&line).map_err(|_| fmt::Error)?)
    }
}

/// The message of an event, and its other fields in their order.
#[derive(Default)]
struct Facts {
    message: String,
    others: Vec<(&'static str, Value)>,
}

impl Visit for Facts {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.others.push((field.name(), value.into()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.others.push((field.name(), value.into()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.others.push((field.name(), value.into()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.others.push((field.name(), value.into()));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.others.push((name, Value::String(format!("{value:?}")))),
        }
    }
}

/// An object with these members, in this order.
struct JsonObject<I>(I);

impl<I: Iterator<Item = (&'static str, Value)> + Clone> Serialize for JsonObject<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.clone())
    }
}

/// A value as JSON on one line, in which no character moves a cursor, turns the direction of
/// writing or shows nothing: each is written as `\\uNNNN`.
///
/// # Errors
/// A value that JSON cannot have.
pub fn json_line(value: &impl Serialize) -> serde_json::Result<String> {
    let text = serde_json::to_string(value)?;
    if !text.chars().any(is_deceptive) {
        return Ok(text);
    }
    // They stand only within texts: JSON itself has none.
    let mut plain = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_deceptive(character) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                // Writing to a String cannot fail.
                let _ = fmt::Write::write_fmt(&mut plain, format_args!("\\u{unit:04x}"));
            }
        } else {
            plain.push(character);
        }
    }
    Ok(plain)
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
    fn json_has_no_character_that_deceives_and_stays_the_same_value() {
        let said = "a\nb\u{1b}[2J\u{202e}\u{e0041}\"\\";
        let line = json_line(&said).unwrap();
        assert!(!line.chars().any(is_deceptive), "{line}");
        assert_eq!(serde_json::from_str::<String>(&line).unwrap(), said);
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
        let json = Shared(Arc::default());
        let to = json.clone();
        let as_json = tracing_subscriber::fmt().event_format(JsonLog);
        let as_json = as_json.with_writer(move || LogLines::new(to.clone())).finish();
        tracing::subscriber::with_default(as_json, || {
            let reason = "closed\nINFO opened: push to x\u{202e}\u{9b}";
            tracing::info!(name = reason, count = 3u64, why = %reason, "{reason}");
        });
        let written = String::from_utf8(json.0.lock().expect("no panic").clone()).expect("text");
        let told: Value = serde_json::from_str(&written).expect("one object");
        assert_eq!((told["count"].as_u64(), told["level"].as_str()), (Some(3), Some("INFO")));
        assert_eq!(told["message"], "closed\nINFO opened: push to x\u{202e}\u{9b}");
        tracing::subscriber::with_default(subscriber, || {
            let reason = "closed\nINFO opened: push to x\u{202e}\u{9b}";
            tracing::info!(name = reason, why = %reason, "{reason}");
        });
        let written = String::from_utf8(shared.0.lock().expect("no panic").clone()).expect("text");
        assert_eq!(written.matches('\n').count(), 1, "{written:?}");
        assert!(!written.trim_end_matches('\n').chars().any(longhaul_core::is_deceptive), "{written:?}");
    }
}
