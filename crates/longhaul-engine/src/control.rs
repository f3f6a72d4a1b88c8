//! The control channel: framed messages over any byte stream, read and written by two tasks.
//!
//! In: messages from a session loop, in three classes, the urgent first. Out: messages to the session's event queue.
//! Reading never waits for writing. Knows nothing of what the messages mean.

use std::sync::Arc;

use longhaul_core::{Blame, Fault, FaultCode};
use longhaul_proto::Message;
use longhaul_proto::wire::frame::{LENGTH_BYTES, announced};
use longhaul_proto::wire::message::Class;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// A byte stream to read from.
pub(crate) type ReadHalf = Box<dyn AsyncRead + Send + Unpin>;
/// A byte stream to write to.
pub(crate) type WriteHalf = Box<dyn AsyncWrite + Send + Unpin>;

/// Reads one message; `None` at a clean end between messages.
///
/// # Errors
/// A [`Fault`] when the stream breaks or what came is no message.
pub(crate) async fn read_message(reader: &mut ReadHalf) -> Result<Option<Message>, Fault> {
    let mut header = [0; LENGTH_BYTES];
    match reader.read_exact(&mut header).await {
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(e) => return Err(lost(&e)),
    }
    let mut bytes = vec![0; announced(header).map_err(Fault::protocol)?];
    reader.read_exact(&mut bytes).await.map_err(|e| lost(&e))?;
    Message::decode(&bytes).map(Some).map_err(Fault::protocol)
}

/// Writes one message and flushes it; for the handshake, before the writer task runs.
///
/// # Errors
/// A [`Fault`] when the stream breaks, or when the message is longer than any peer would take.
pub(crate) async fn write_message(writer: &mut WriteHalf, message: &Message) -> Result<(), Fault> {
    let bytes = message.try_encode().map_err(|e| {
        Fault::new(FaultCode::Usage, Blame::Local, format_args!("the request is too long: {e}"))
            .hint("name fewer files or patterns in one run")
    })?;
    writer.write_all(&bytes).await.map_err(|e| lost(&e))?;
    writer.flush().await.map_err(|e| lost(&e))
}

/// Where a session loop puts messages. Each queue's bound is the other side's credit, not a number here.
#[derive(Clone, Debug)]
pub(crate) struct Outbox {
    queues: Arc<[mpsc::UnboundedSender<Message>; 3]>,
}

impl Outbox {
    /// Queues a message in its class. After the channel broke it goes nowhere: the reader says so.
    pub(crate) fn send(&self, message: Message) {
        let queue = match message.class() {
            Class::Verdict => 0,
            Class::Want => 1,
            Class::Page => 2,
        };
        let _ = self.queues[queue].send(message);
    }
}

/// Starts the writer task. It ends, with the stream shut down, when every [`Outbox`] is dropped and all is written.
pub(crate) fn start_writer(mut writer: WriteHalf) -> (Outbox, tokio::task::JoinHandle<()>) {
    let (urgent_tx, mut urgent) = mpsc::unbounded_channel::<Message>();
    let (want_tx, mut want) = mpsc::unbounded_channel::<Message>();
    let (page_tx, mut page) = mpsc::unbounded_channel::<Message>();
    let task = tokio::spawn(async move {
        let mut batch = Vec::with_capacity(BATCH_BYTES);
        loop {
            let first = tokio::select! {
                biased;
                Some(message) = urgent.recv() => message,
                Some(message) = want.recv() => message,
                Some(message) = page.recv() => message,
                else => break,
            };
            batch.clear();
            batch.extend_from_slice(&first.encode());
            while batch.len() < BATCH_BYTES
                && let Ok(message) = urgent.try_recv().or_else(|_| want.try_recv()).or_else(|_| page.try_recv())
            {
                batch.extend_from_slice(&message.encode());
            }
            if writer.write_all(&batch).await.is_err() || writer.flush().await.is_err() {
                break;
            }
        }
        let _ = writer.shutdown().await;
    });
    (Outbox { queues: Arc::new([urgent_tx, want_tx, page_tx]) }, task)
}

/// Messages that wait together leave in one write of about this size.
const BATCH_BYTES: usize = 128 << 10;

fn lost(e: &std::io::Error) -> Fault {
    Fault::new(FaultCode::Lost, Blame::Path, format_args!("the control connection broke: {e}"))
        .hint("run the same command again")
}
