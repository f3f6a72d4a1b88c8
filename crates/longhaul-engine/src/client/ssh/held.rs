//! The output of an ssh, for a tunnel that begins to speak before it may hear: the first message of
//! the far side comes before anything that is the tunnel's.
//!
//! In: the output, by whoever has read that message. Out: what follows it, to the tunnel. It knows
//! no message.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::oneshot;

/// A reader that has nothing to read until it gets its source. Without one it is at its end as soon
/// as nobody can give it any.
pub(super) struct HeldOutput<R> {
    source: Result<R, oneshot::Receiver<R>>,
}

impl<R> HeldOutput<R> {
    /// The reader, and what takes its source.
    pub(super) fn new() -> (oneshot::Sender<R>, HeldOutput<R>) {
        let (give, given) = oneshot::channel();
        (give, HeldOutput { source: Err(given) })
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for HeldOutput<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            match &mut self.source {
                Ok(source) => return Pin::new(source).poll_read(cx, into),
                Err(given) => match Pin::new(given).poll(cx) {
                    Poll::Ready(Ok(source)) => self.source = Ok(source),
                    Poll::Ready(Err(_)) => return Poll::Ready(Ok(())),
                    Poll::Pending => return Poll::Pending,
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn it_waits_for_its_source_and_ends_if_there_will_be_none() {
        let (give, mut held) = HeldOutput::new();
        let reading = tokio::spawn(async move {
            let mut heard = Vec::new();
            held.read_to_end(&mut heard).await.map(|_| heard)
        });
        tokio::task::yield_now().await;
        assert!(!reading.is_finished());
        assert!(give.send(&b"what follows"[..]).is_ok());
        assert_eq!(reading.await.expect("no panic").expect("read"), b"what follows");
        let (give, mut held) = HeldOutput::<&[u8]>::new();
        drop(give);
        assert_eq!(held.read(&mut [0; 9]).await.expect("the end"), 0);
    }
}
