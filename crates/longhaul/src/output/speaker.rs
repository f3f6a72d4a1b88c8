//! The thread that hears the engine's events.
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
    Event(Event),
    Note(&'static str),
    Over,
}

impl Speaker {
    /// Sets the narrator to work.
    pub fn start(narrator: Narrator) -> Speaker {
        let (ear, heard) = sync_channel(EVENTS_QUEUED_MAX);
        Speaker { ear: Arc::new(Ear(ear)), thread: thread::spawn(move || narrate(narrator, heard)) }
    }

    /// What the engine tells its events.
    pub fn observer(&self) -> Arc<dyn Observer> {
        self.ear.clone()
    }

    /// What others than the engine have to say to people.
    pub fn voice(&self, talker: Talker) -> Voice {
        Voice { ear: self.ear.clone(), talker }
    }

    /// Waits until everything heard so far is told, and gives the narrator back. `None` if it
    /// panicked.
    pub fn finish(self) -> Option<Narrator> {
        // It can only be gone already if it panicked, which `join` tells.
        let _ = self.ear.0.send(Heard::Over);
        self.thread.join().ok()
    }
}

/// Says a note beside the events, at once.
#[derive(Clone)]
pub struct Voice {
    ear: Arc<Ear>,
    talker: Talker,
}

impl Voice {
    /// Says it where the narrator does not, or has too much to tell. Waits for nobody: standard
    /// error may be blocked.
    pub fn note(&self, text: &'static str) {
        if self.ear.0.try_send(Heard::Note(text)).is_err() {
            let talker = self.talker;
            // Without a thread it is not said; what it says is done all the same.
            let _ = thread::Builder::new().spawn(move || talker.note(text));
        }
    }
}

impl Observer for Ear {
    fn event(&self, event: Event) {
        // A narrator that is gone was told that the run is over: late events have no reader.
        let _ = self.0.send(Heard::Event(event));
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
            Ok(Heard::Event(event)) => narrator.hear(event),
            Ok(Heard::Note(text)) => narrator.note(text),
            Err(RecvTimeoutError::Timeout) => narrator.tick(),
            Ok(Heard::Over) | Err(RecvTimeoutError::Disconnected) => return narrator,
        }
    }
}

/// Enough for a reader that stops for a moment amid many small files (about 20 MB); beyond it the
/// session waits for its reader, as losing events would be lying.
const EVENTS_QUEUED_MAX: usize = 64 << 10;
