//! Shared parts of the fuzz targets: an allocator that counts, so that each input checks that no
//! more memory is held than the peer paid for; the reading of a stream of control messages; and the
//! count of messages that wait for a peer that reads nothing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use longhaul_proto::Message;
use longhaul_proto::wire::frame::{LENGTH_BYTES, announced};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);

// SAFETY: every call goes to the system's allocator as it came; only numbers are kept beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let held = HELD.fetch_add(layout.size(), Ordering::Relaxed).wrapping_add(layout.size());
        if held as isize > LIMIT.load(Ordering::Relaxed) as isize && LIMIT.load(Ordering::Relaxed) != usize::MAX {
            // No panic here: unwinding would allocate.
            std::process::abort();
        }
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs `run`; the process aborts, which libFuzzer reports, if it ever holds more than `bytes` at
/// once.
pub fn within<T>(bytes: usize, run: impl FnOnce() -> T) -> T {
    HELD.store(0, Ordering::Relaxed);
    LIMIT.store(bytes, Ordering::Relaxed);
    let result = run();
    LIMIT.store(usize::MAX, Ordering::Relaxed);
    result
}

/// The messages of a stream, up to the first bytes that are none.
pub fn messages(mut bytes: &[u8]) -> Vec<Message> {
    let mut messages = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() {
        let Some(body) = announced(*length).ok().and_then(|len| rest.get(..len)) else { break };
        let Ok(message) = Message::decode(body) else { break };
        messages.push(message);
        bytes = &rest[body.len()..];
    }
    messages
}

/// The bytes that a machine has said to a peer that never reads, beside the bytes that this peer
/// has said.
#[derive(Debug, Default)]
pub struct Unread {
    heard: usize,
    said: usize,
}

impl Unread {
    /// Counts a message from the peer.
    pub fn hear(&mut self, message: &Message) {
        self.heard += message.encode().len();
    }

    /// Counts a message to the peer.
    pub fn say(&mut self, message: &Message) {
        self.said += message.encode().len();
    }

    /// Whether so many bytes wait that no new work is begun. The limit is lower than the real one,
    /// as inputs are short.
    pub fn is_backlogged(&self) -> bool {
        self.said > 2048
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.said
    }

    /// Bytes that the peer paid.
    pub fn paid(&self) -> usize {
        self.heard
    }
}
