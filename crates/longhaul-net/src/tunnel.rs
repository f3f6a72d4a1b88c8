//! A tunnel: many connections inside one pair of byte streams, which lead to the other side.
//!
//! Owns the connections of a tunnel from their beginning to their end. In: a reader and a writer,
//! such as the pipes of an ssh process. Out: local sockets, each of which leads to one that the
//! other end of the tunnel gives out; lanes and control connections are made of them like of any
//! other. It must not know what is said over them.
//!
//! The bytes are those of yamux (the crate of this name): every connection has a window of its own,
//! and all of them share one of [`WINDOW_BYTES_MAX`], so that nobody who does not read keeps the
//! others waiting, and a tunnel takes no more memory than that.

use std::future::poll_fn;
use std::io;
use std::os::unix::net::UnixStream as BlockingStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ClientConfig;
use socket2::Socket;
use tokio::io::{AsyncRead, AsyncWrite, Join, copy_bidirectional};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt, TokioAsyncReadCompatExt};
use tokio_util::io::{InspectReader, InspectWriter};
use yamux::{Config, Connection, Mode, Stream};

use crate::error::NetError;
use crate::facts::Protection;
use crate::keys::Identity;
use crate::lane::LaneStream;
use crate::public_key::PublicKey;
use crate::tcp::TcpLane;
use crate::tls::{LANE, PeerCheck, client_config};
use crate::wire::Wire;

/// This side of a tunnel. Clones share it; it ends with the last of them, or when the other side
/// ends it.
#[derive(Clone, Debug)]
pub struct Tunnel {
    wanted: mpsc::Sender<OpenReply>,
    /// Held by each connection that this side opened, until both directions of it have ended.
    open: Arc<watch::Sender<usize>>,
    /// Bytes that went through the pipes below it, in both directions.
    carried: Arc<AtomicU64>,
    end: End,
}

/// Connections that the other side of a tunnel opened, in their order.
#[derive(Debug)]
pub struct TunnelDoor {
    incoming: mpsc::Receiver<UnixStream>,
}

/// Closed by whoever keeps a tunnel going, when it has ended.
type End = watch::Receiver<()>;
/// The pipes below a tunnel.
type Pipes = Join<Box<dyn AsyncRead + Send + Unpin>, Box<dyn AsyncWrite + Send + Unpin>>;
/// Where a connection goes that this side opens.
type OpenReply = oneshot::Sender<Result<Stream, NetError>>;

impl Tunnel {
    /// The side that opens connections.
    pub fn dialling<R, W>(reader: R, writer: W) -> Tunnel
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (wanted, asked) = mpsc::channel(STREAMS_MAX);
        // It opens none, and whatever came would be dropped.
        let (arrived, _) = mpsc::channel(1);
        let (going, end) = watch::channel(());
        let carried = Arc::<AtomicU64>::default();
        let count = |carried: Arc<AtomicU64>| {
            move |bytes: &[u8]| {
                carried.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            }
        };
        let pipes = pipes(
            InspectReader::new(reader, count(carried.clone())),
            InspectWriter::new(writer, count(carried.clone())),
        );
        tokio::spawn(drive(pipes, Mode::Client, asked, arrived, going));
        Tunnel { wanted, open: Arc::new(watch::Sender::new(0)), carried, end }
    }

    /// Bytes that went through the pipes below it so far, in both directions: everything of all of
    /// its connections.
    pub fn carried(&self) -> u64 {
        self.carried.load(Ordering::Relaxed)
    }

    /// Opens a connection to whoever takes it at the other side, where it arrives with the first
    /// bytes that are said on it.
    ///
    /// # Errors
    /// [`NetError::Lost`] if the tunnel has ended, or has too many connections already.
    pub async fn open(&self) -> Result<UnixStream, NetError> {
        // One too many would end all of them.
        if *self.open.borrow() + 1 >= STREAMS_MAX {
            return Err(lost(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                "as many connections as one ssh session carries",
            )));
        }
        let (opened, answer) = oneshot::channel();
        let ended = || lost(io::Error::new(io::ErrorKind::BrokenPipe, "the ssh session has ended"));
        self.wanted.send(opened).await.map_err(|_| ended())?;
        let stream = answer.await.map_err(|_| ended())??;
        bridge(stream, self.end.clone(), Some(self.open.clone()))
    }

    /// Waits until every connection that was opened has ended in both directions, so that the last
    /// words have passed.
    pub async fn is_idle(&self) {
        let _ = self.open.subscribe().wait_for(|open| *open == 0).await;
    }
}

impl TunnelDoor {
    /// The side that takes connections.
    pub fn accepting<R, W>(reader: R, writer: W) -> TunnelDoor
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (arrived, incoming) = mpsc::channel(STREAMS_MAX);
        let (_, asked) = mpsc::channel(1);
        let (going, _) = watch::channel(());
        tokio::spawn(drive(pipes(reader, writer), Mode::Server, asked, arrived, going));
        TunnelDoor { incoming }
    }

    /// The next connection. `None` when the tunnel has ended.
    pub async fn accept(&mut self) -> Option<UnixStream> {
        self.incoming.recv().await
    }
}

impl LaneStream {
    /// Begins a lane over a connection of a tunnel, to the holder of `pinned`. The time that it has
    /// holds until [`LaneStream::set_deadline`] is called. Blocks.
    ///
    /// # Errors
    /// As [`LaneStream::dial_private`] and [`LaneStream::dial_safe`].
    pub fn over_tunnel(
        stream: BlockingStream,
        protection: Protection,
        identity: &Identity,
        pinned: PublicKey,
        time: Duration,
    ) -> Result<LaneStream, NetError> {
        let mut wire = Wire::tunnelled(Socket::from(stream), FAR_END.to_owned());
        wire.set_deadline(Some(time))?;
        Ok(LaneStream::over(begin(wire, protection, identity, pinned)?.tunnelled()))
    }
}

/// Begins a lane over a connection that stands.
pub(crate) fn begin(
    wire: Wire,
    protection: Protection,
    identity: &Identity,
    pinned: PublicKey,
) -> Result<TcpLane, NetError> {
    let config = || -> Result<Arc<ClientConfig>, NetError> { client_config(identity, PeerCheck::Pinned(pinned), LANE) };
    match protection {
        Protection::Safe => TcpLane::safe_over(wire),
        Protection::Private => TcpLane::private_over(wire, config()?),
    }
}

/// The socket of an end, for a thread that blocks on it.
pub(crate) fn blocking_end(stream: UnixStream, peer: &str) -> Result<Socket, NetError> {
    let failed = |source| NetError::Socket { addr: peer.to_owned(), doing: "make the connection blocking", source };
    let stream = stream.into_std().map_err(failed)?;
    stream.set_nonblocking(false).map_err(failed)?;
    Ok(Socket::from(stream))
}

fn pipes(reader: impl AsyncRead + Send + Unpin + 'static, writer: impl AsyncWrite + Send + Unpin + 'static) -> Pipes {
    tokio::io::join(Box::new(reader), Box::new(writer))
}

/// Keeps a tunnel going until it ends or nobody has a use for it any more.
async fn drive(
    pipe: Pipes,
    mode: Mode,
    mut asked: mpsc::Receiver<OpenReply>,
    arrived: mpsc::Sender<UnixStream>,
    going: watch::Sender<()>,
) {
    let mut config = Config::default();
    config.set_max_num_streams(STREAMS_MAX);
    config.set_max_connection_receive_window(Some(WINDOW_BYTES_MAX));
    let mut connection = Connection::new(pipe.compat(), config, mode);
    let is_client = mode == Mode::Client;
    let mut opening = None;
    let is_over = poll_fn(|cx| {
        loop {
            if is_client && opening.is_none() {
                match asked.poll_recv(cx) {
                    Poll::Ready(Some(wanted)) => opening = Some(wanted),
                    Poll::Ready(None) => return Poll::Ready(false),
                    Poll::Pending => {}
                }
            }
            match open(&mut connection, &mut opening, cx) {
                Some(Ok(())) => continue,
                Some(Err(())) => return Poll::Ready(true),
                None => {}
            }
            match connection.poll_next_inbound(cx) {
                Poll::Ready(Some(Ok(stream))) => take(stream, &arrived, going.subscribe()),
                Poll::Ready(_) => return Poll::Ready(true),
                Poll::Pending => return Poll::Pending,
            }
        }
    })
    .await;
    // Closing one that is over would wait for its streams, which wait for the end of `going`.
    if !is_over {
        let _ = timeout(CLOSING, poll_fn(|cx| connection.poll_close(cx))).await;
    }
    // The crate does not wake streams that are open when this side closes.
    drop(going);
}

/// Opens the connection that is wanted, if one is. `None` if there is nothing to do now; an error
/// if the tunnel has ended.
fn open(
    connection: &mut Connection<Compat<Pipes>>,
    opening: &mut Option<OpenReply>,
    cx: &mut Context<'_>,
) -> Option<Result<(), ()>> {
    opening.as_ref()?;
    let Poll::Ready(opened) = connection.poll_new_outbound(cx) else { return None };
    let answer = opening.take()?;
    let has_ended = opened.is_err();
    let _ = answer.send(opened.map_err(|e| lost(io::Error::other(e))));
    Some(if has_ended { Err(()) } else { Ok(()) })
}

/// Gives a connection of the other side out. One for which there is no room is closed.
fn take(stream: Stream, arrived: &mpsc::Sender<UnixStream>, end: End) {
    if let Ok(given) = bridge(stream, end, None) {
        let _ = arrived.try_send(given);
    }
}

/// A local socket that leads to `stream`. It is counted among the `open` ones, if they are counted,
/// until both directions have ended.
fn bridge(stream: Stream, mut end: End, open: Option<Arc<watch::Sender<usize>>>) -> Result<UnixStream, NetError> {
    let failed = |source| NetError::Socket { addr: FAR_END.to_owned(), doing: "make a pair of sockets", source };
    let (given, mut kept) = UnixStream::pair().map_err(failed)?;
    if let Some(open) = &open {
        open.send_modify(|open| *open += 1);
    }
    tokio::spawn(async move {
        // Either way of an end is seen by whoever holds the other end of the pair.
        let mut stream = stream.compat();
        tokio::select! {
            _ = copy_bidirectional(&mut kept, &mut stream) => {}
            _ = end.changed() => {}
        }
        drop(kept);
        if let Some(open) = open {
            open.send_modify(|open| *open -= 1);
        }
    });
    Ok(given)
}

fn lost(source: io::Error) -> NetError {
    NetError::Lost { peer: FAR_END.to_owned(), source }
}

/// The other side of a tunnel, for messages.
const FAR_END: &str = "the other host over ssh";
/// The time that bytes on their way have to leave when this side closes.
const CLOSING: Duration = Duration::from_secs(1);
/// Connections of one tunnel at a time: control, signals, and some lanes.
const STREAMS_MAX: usize = 16;
/// Bytes that wait on this side of all connections of a tunnel together. OpenSSH's own window holds
/// 2 MiB, which it carries in a round trip at most; more than a few of these never wait here.
const WINDOW_BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
    }

    /// Both sides of a tunnel in memory.
    fn tunnel() -> (Tunnel, TunnelDoor) {
        let (near, far) = duplex(4096);
        let (near_reader, near_writer) = tokio::io::split(near);
        let (far_reader, far_writer) = tokio::io::split(far);
        (Tunnel::dialling(near_reader, near_writer), TunnelDoor::accepting(far_reader, far_writer))
    }

    #[test]
    fn connections_of_one_tunnel_do_not_wait_for_one_that_nobody_reads() {
        runtime().block_on(async {
            let (tunnel, mut door) = tunnel();
            let mut deaf = tunnel.open().await.expect("a connection");
            let flood = tokio::spawn(async move {
                let bytes = vec![7; 1 << 16];
                while deaf.write_all(&bytes).await.is_ok() {}
            });
            let _unread = door.accept().await.expect("the first");
            let mut heard = tunnel.open().await.expect("a second");
            let sent: Vec<u8> = (0..1u32 << 18).flat_map(u32::to_le_bytes).collect();
            let copy = sent.clone();
            let writing = tokio::spawn(async move {
                heard.write_all(&copy).await.expect("written");
                heard.shutdown().await.expect("ended");
            });
            let mut received = Vec::new();
            door.accept().await.expect("the second").read_to_end(&mut received).await.expect("read");
            assert!(received == sent, "{} bytes of {}", received.len(), sent.len());
            writing.await.expect("no panic");
            flood.abort();
        });
    }

    #[test]
    fn both_sides_hear_of_the_end_of_a_tunnel() {
        runtime().block_on(async {
            let (tunnel, mut door) = tunnel();
            let mut opened = tunnel.open().await.expect("a connection");
            opened.write_all(b"x").await.expect("written");
            let mut taken = door.accept().await.expect("it");
            let mut one = [0];
            taken.read_exact(&mut one).await.expect("read");
            drop(tunnel);
            assert_eq!(taken.read(&mut one).await.unwrap_or(0), 0, "the tunnel's owner has left");
            assert!(door.accept().await.is_none());
            assert_eq!(opened.read(&mut one).await.unwrap_or(0), 0);
        });
    }
}
