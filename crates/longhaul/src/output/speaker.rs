//! The thread that takes the engine's events.
//!
//! In: events, called from the session loop. Out: the same, in order, to a [`Narrator`] on a thread
//! of its own, which may wait for a slow terminal or pipe. Knows no event.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use longhaul_engine::{Event, Observer};

use super::progress::TICK;
use super::{Narrator, Talker};

/// The narrator at work.
pub struct Speaker {
    ear: Arc<Ear>,
    thread: JoinHandle<Narrator>,
}

struct Ear(SyncSender<Heard>);

enum Heard {
    Event(Box<Event>),
    Note(&'static str),
    Over,
}

impl Speaker {
    /// Sets the narrator to work.
    pub fn start(narrator: Narrator) -> Speaker {
        let (ear, heard) = sync_channel(EVENTS_QUEUED_MAX);
        Speaker { ear: Arc::new(Ear(ear)), thread: thread::spawn(move || narrate(narrator, heard)) }
    }

    /// The observer to which the engine gives its events.
    pub fn observer(&self) -> Arc<dyn Observer> {
        self.ear.clone()
    }

    /// A voice for notes that do not come from the engine.
    pub fn voice(&self, talker: Talker) -> Voice {
        Voice { ear: self.ear.clone(), talker }
    }

    /// Waits until all events so far are told, and gives the narrator back. `None` if it panicked.
    pub fn finish(self) -> Option<Narrator> {
        // It can only be gone already if it panicked, which `join` tells.
        let _ = self.ear.0.send(Heard::Over);
        self.thread.join().ok()
    }
}

/// Prints a note beside the events, at once.
#[derive(Clone)]
pub struct Voice {
    ear: Arc<Ear>,
    talker: Talker,
}

impl Voice {
    /// Prints the note if the narrator does not, or has too much to tell. Never waits: standard
    /// error may be blocked.
    pub fn note(&self, text: &'static str) {
        if self.ear.0.try_send(Heard::Note(text)).is_err() {
            let talker = self.talker;
            // If no thread can be started the note is not printed; the action that it tells is done
            // all the same.
            let _ = thread::Builder::new().spawn(move || talker.note(text));
        }
    }
}

impl Observer for Ear {
    fn event(&self, event: Event) {
        // A narrator that is gone was told that the run is over: late events have no reader.
        let _ = self.0.send(Heard::Event(Box::new(event)));
    }
}

fn narrate(mut narrator: Narrator, heard: Receiver<Heard>) -> Narrator {
    loop {
        // A bar shows time that passes; without one there is nothing to do until something happens.
        let next = match narrator.ticks() {
            true => heard.recv_timeout(TICK),
            false => heard.recv().map_err(RecvTimeoutError::from),
        };
        match next {
            Ok(Heard::Event(event)) => narrator.hear(*event),
            Ok(Heard::Note(text)) => narrator.note(text),
            Err(RecvTimeoutError::Timeout) => narrator.tick(),
            Ok(Heard::Over) | Err(RecvTimeoutError::Disconnected) => return narrator,
        }
    }
}

/// Events that wait for the narrator: enough for a reader that stops for half a second amid 15,000
/// small files a second. Beyond it the session waits for its reader, as no event may be lost. With
/// eight times as many, each of which tells a failure, a hostile peer took a process beyond 96 MiB.
const EVENTS_QUEUED_MAX: usize = 8 << 10;
