//! An event of the log as a sentence: its message, its facts, its cause.
//!
//! In: events of the crates below. Out: `what (name value, ...): why` to a client's log. Knows no
//! levels and no event's meaning.

use std::fmt::{self, Write as _};

use tracing::Event;
use tracing::field::{Field, Visit};

/// The parts of an event: its message, its facts, its cause.
#[derive(Debug, Default)]
pub(super) struct Words {
    message: String,
    facts: String,
    cause: String,
}

impl Words {
    /// The words of one event.
    pub(super) fn of(event: &Event<'_>) -> Words {
        let mut words = Words::default();
        event.record(&mut words);
        words
    }
}

impl Visit for Words {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a String cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            "error" | "fault" | "why" | "reason" => write!(self.cause, ": {value:?}"),
            name => {
                let comma = if self.facts.is_empty() { "" } else { ", " };
                write!(self.facts, "{comma}{} {value:?}", name.replace('_', " "))
            }
        };
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Words { message, facts, cause } = self;
        match facts.is_empty() {
            true => write!(f, "{message}{cause}"),
            false => write!(f, "{message} ({facts}){cause}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::Subscriber;
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

    use super::*;

    #[derive(Clone, Default)]
    struct Heard(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Heard {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            self.0.lock().expect("no panic").push(Words::of(event).to_string());
        }
    }

    #[test]
    fn an_event_is_a_sentence_with_its_facts_and_its_cause() {
        let heard = Heard::default();
        let subscriber = tracing_subscriber::registry().with(heard.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(error = %"no space left", "no journal can be written");
            tracing::info!(lane = 3, over = "tcp", "a lane joined");
            tracing::info!(peer = %"192.0.2.1:7214", segment_bytes = 1440, why = "silence", "smaller segments");
        });
        let said = [
            "no journal can be written: no space left",
            "a lane joined (lane 3, over tcp)",
            "smaller segments (peer 192.0.2.1:7214, segment bytes 1440): silence",
        ];
        assert_eq!(*heard.0.lock().expect("no panic"), said);
    }
}
