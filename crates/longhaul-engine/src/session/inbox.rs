//! Owns the messages of the other side that the session loop has not dealt with yet, counted in
//! bytes.
//!
//! In: the control channel. Out: messages in the loop's queue of events, each with the room that it
//! takes there. The reader waits for the loop, which waits for nobody, and at a receiver for an
//! [`Outbox`](super::outbox::Outbox) that holds more than may follow from its requests. It does not
//! know the meaning of messages.

use std::sync::Arc;

use longhaul_core::Fault;
use longhaul_core::limits::MESSAGE_BYTES_MAX;
use longhaul_proto::Message;
use longhaul_proto::wire::frame::LENGTH_BYTES;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::SessionEvent;
use super::channel::{ReadHalf, decode, read_frame};
use super::outbox::Queue;

/// A message, and its room in the inbox, which is free again once it was dealt with.
#[derive(Debug)]
pub(crate) struct Inbound {
    pub(super) message: Message,
    pub(super) room: OwnedSemaphorePermit,
}

/// The room for messages that wait for the loop.
#[derive(Clone, Debug)]
pub(super) struct Inbox(Arc<Semaphore>);

impl Inbox {
    pub(super) fn new() -> Inbox {
        Inbox(Arc::new(Semaphore::new(INBOX_BYTES_MAX)))
    }

    /// From now on the other side is heard out, and its messages are dropped.
    pub(super) fn close(&self) {
        self.0.close();
    }

    /// Room for a message of this many bytes. `None` once nobody listens any more.
    async fn room(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = (bytes + LENGTH_BYTES).clamp(MESSAGE_COST_MIN, INBOX_BYTES_MAX);
        self.0.clone().acquire_many_owned(u32::try_from(bytes).ok()?).await.ok()
    }
}

/// Reads the control channel to its end. A receiver gives its `outbox`: nothing is read while that
/// has no room.
pub(super) async fn read_all(
    mut reader: ReadHalf,
    inbox: Inbox,
    outbox: Option<Arc<Queue>>,
    sink: UnboundedSender<SessionEvent>,
) {
    let ended = loop {
        if let Some(outbox) = &outbox {
            outbox.has_room().await;
        }
        match next(&mut reader, &inbox).await {
            Ok(Some(Some(inbound))) => {
                if sink.send(SessionEvent::Inbound(inbound)).is_err() {
                    return;
                }
            }
            Ok(Some(None)) => {}
            Ok(None) => break None,
            Err(fault) => break Some(fault),
        }
    };
    let _ = sink.send(SessionEvent::ControlEnded(ended));
}

/// The next message, if anybody listens. `None` at the end of the channel. A decoded message may
/// take many times its bytes, so it gets its room before it is decoded.
async fn next(reader: &mut ReadHalf, inbox: &Inbox) -> Result<Option<Option<Inbound>>, Fault> {
    let Some(frame) = read_frame(reader).await? else { return Ok(None) };
    let Some(room) = inbox.room(frame.len()).await else { return Ok(Some(None)) };
    Ok(Some(Some(Inbound { message: decode(&frame)?, room })))
}

/// Bytes of encoded messages that may wait for the loop: two of the longest. Decoded, a settlement
/// takes 50 times its two bytes, so this is 13 MB at most. A loop takes them in within
/// milliseconds, and later messages wait in the connection's buffers.
const INBOX_BYTES_MAX: usize = 256 << 10;
const _: () = assert!(MESSAGE_BYTES_MAX + 1 + LENGTH_BYTES <= INBOX_BYTES_MAX, "the longest message must fit");
/// Bytes that a short message costs, with its place in the queue.
const MESSAGE_COST_MIN: usize = 512;

#[cfg(test)]
mod tests {
    use longhaul_proto::wire::message::Heartbeat;
    use tokio::io::{AsyncWriteExt, duplex, split};
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    fn heartbeat() -> Vec<u8> {
        Message::Heartbeat(Heartbeat { stalled: false, answer: true }).encode()
    }

    #[tokio::test]
    async fn messages_that_nobody_deals_with_are_not_read_without_end() {
        let (near, far) = duplex(1 << 10);
        let (sink, mut events) = unbounded_channel();
        let inbox = Inbox::new();
        let reader = tokio::spawn(read_all(Box::new(split(near).0), inbox.clone(), None, sink));
        let flood = tokio::spawn(async move {
            let (_reads, mut far) = split(far);
            for _ in 0..20_000 {
                far.write_all(&heartbeat()).await.expect("it is heard out");
            }
        });
        while inbox.0.available_permits() >= MESSAGE_COST_MIN {
            assert!(!flood.is_finished(), "all of it was read");
            tokio::task::yield_now().await;
        }
        // The reader can do nothing more, however often it is its turn.
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        assert_eq!(events.len(), INBOX_BYTES_MAX / MESSAGE_COST_MIN);
        // A message that is dealt with makes room for others.
        drop(events.recv().await);
        while events.len() < INBOX_BYTES_MAX / MESSAGE_COST_MIN {
            tokio::task::yield_now().await;
        }
        // At the end of the session the rest is read, so that the connection is closed and not
        // reset.
        inbox.close();
        flood.await.expect("everything was read");
        reader.await.expect("it ends");
        assert_eq!(events.len(), INBOX_BYTES_MAX / MESSAGE_COST_MIN + 1, "and that it ended");
    }
}
