//! Owns the control channel: framed messages over any byte stream, read and written by two tasks.
//!
//! In: messages from a session loop, by way of its [`Outbox`]. Out: messages to the reader's
//! caller. It does not know the meaning of messages.

use longhaul_core::{Blame, Fault, FaultCode, hint};
use longhaul_proto::Message;
use longhaul_proto::wire::frame::{LENGTH_BYTES, announced};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::outbox::{BATCH_BYTES, Outbox, Queue};

/// A byte stream to read from.
pub(crate) type ReadHalf = Box<dyn AsyncRead + Send + Unpin>;
/// A byte stream to write to.
pub(crate) type WriteHalf = Box<dyn AsyncWrite + Send + Unpin>;

/// Reads one message. `None` at a clean end between messages.
///
/// # Errors
/// A [`Fault`] when the stream breaks or the bytes are no message.
pub(crate) async fn read_message(reader: &mut ReadHalf) -> Result<Option<Message>, Fault> {
    read_frame(reader).await?.map(|frame| decode(&frame)).transpose()
}

/// Reads the bytes of one message. `None` at a clean end between messages.
///
/// # Errors
/// A [`Fault`] when the stream breaks or the frame is longer than any message.
pub(crate) async fn read_frame(reader: &mut ReadHalf) -> Result<Option<Vec<u8>>, Fault> {
    let mut header = [0; LENGTH_BYTES];
    match reader.read_exact(&mut header).await {
        Ok(_) => {}
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(e) => return Err(lost(&e)),
    }
    let mut bytes = vec![0; announced(header).map_err(Fault::protocol)?];
    reader.read_exact(&mut bytes).await.map_err(|e| lost(&e))?;
    Ok(Some(bytes))
}

/// Decodes a message.
///
/// # Errors
/// A [`Fault`] if the bytes are no message.
pub(crate) fn decode(frame: &[u8]) -> Result<Message, Fault> {
    Message::decode(frame).map_err(Fault::protocol)
}

/// Writes one message and flushes it; for the handshake, before the writer task runs.
///
/// # Errors
/// A [`Fault`] when the stream breaks, or when the message is longer than any peer would take.
pub(crate) async fn write_message(writer: &mut WriteHalf, message: &Message) -> Result<(), Fault> {
    let bytes = message.try_encode().map_err(|e| {
        Fault::new(FaultCode::Usage, Blame::Local, format_args!("the request is too long: {e}"))
            .hint(hint::Names::NameFewer)
    })?;
    writer.write_all(&bytes).await.map_err(|e| lost(&e))?;
    writer.flush().await.map_err(|e| lost(&e))
}

/// Starts the writer task. It ends, with the stream shut down, when the [`Outbox`] is dropped and
/// everything is written.
pub(crate) fn start_writer(mut writer: WriteHalf) -> (Outbox, tokio::task::JoinHandle<()>) {
    let outbox = Outbox::new();
    let queue = outbox.queue.clone();
    let task = tokio::spawn(async move {
        if write_all(&mut writer, &queue).await.is_err() {
            queue.break_off();
        }
        let _ = writer.shutdown().await;
    });
    (outbox, task)
}

async fn write_all(writer: &mut WriteHalf, queue: &Queue) -> std::io::Result<()> {
    let mut batch = Vec::with_capacity(BATCH_BYTES);
    while queue.fill(&mut batch).await {
        let mut rest = &batch[..];
        while !rest.is_empty() {
            match writer.write(rest).await? {
                0 => return Err(std::io::ErrorKind::WriteZero.into()),
                taken => {
                    queue.took(taken);
                    rest = &rest[taken..];
                }
            }
        }
        writer.flush().await?;
        batch.clear();
    }
    Ok(())
}

fn lost(e: &std::io::Error) -> Fault {
    Fault::new(FaultCode::Lost, Blame::Path, format_args!("the control connection broke: {e}")).hint(hint::Again::Now)
}
