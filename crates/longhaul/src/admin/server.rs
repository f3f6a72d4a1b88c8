//! Hears requests at the administrator's socket and answers them.
//!
//! In: connections of this host. Out: requests to an [`Upkeep`], and its answers as lines. Whoever
//! is neither root nor the daemon's own user is refused before a byte is read. A request is short
//! and must come soon, an answer must be taken soon, and few connections are heard at a time.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::{Blame, Fault, FaultCode};
use rustix::process::geteuid;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::socket::AdminSocket;
use super::wire::{ASKED_BYTES_MAX, Answer, Request};

/// Does what an administrator asks for.
pub trait Upkeep: Send + Sync + 'static {
    /// Does it, and returns the answers, without the last one.
    fn answer(&self, request: Request) -> impl Future<Output = Vec<Answer>> + Send;
}

/// Hears requests for as long as the task lives.
pub async fn serve(socket: AdminSocket, upkeep: Arc<impl Upkeep>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // The semaphore is never closed.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        match socket.listener.accept().await {
            Ok((stream, _)) => {
                let upkeep = upkeep.clone();
                tokio::spawn(async move {
                    if let Err(error) = hear(stream, &*upkeep, PATIENCE).await {
                        tracing::debug!(target: "longhaul::serve", %error, "a request of an administrator came to nothing");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(target: "longhaul::serve", %error, "cannot accept at the socket of the administrator");
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// Hears one request and answers it.
async fn hear(mut stream: UnixStream, upkeep: &impl Upkeep, patience: Duration) -> io::Result<()> {
    let answers = match allow(stream.peer_cred()?.uid(), geteuid().as_raw()) {
        Ok(()) => match timeout(patience, read_request(&mut stream)).await {
            Ok(Ok(request)) => upkeep.answer(request).await,
            Ok(Err(fault)) => vec![Answer::Fault(Box::new(fault))],
            Err(_) => return Err(io::ErrorKind::TimedOut.into()),
        },
        Err(fault) => vec![Answer::Fault(Box::new(fault))],
    };
    for answer in answers.into_iter().chain([Answer::End]) {
        let mut line = serde_json::to_vec(&answer)?;
        line.push(b'\n');
        timeout(PATIENCE, stream.write_all(&line)).await??;
    }
    timeout(PATIENCE, stream.shutdown()).await?
}

/// Refuses everybody but root and the daemon's own user.
fn allow(uid: u32, own: u32) -> Result<(), Fault> {
    if uid == 0 || uid == own {
        return Ok(());
    }
    let why = format_args!("user {uid} may not look after this daemon: it is run by user {own}");
    Err(Fault::new(FaultCode::Denied, Blame::Local, why).hint_in_words("ask as root, or as the daemon's own user"))
}

async fn read_request(stream: &mut UnixStream) -> Result<Request, Fault> {
    let mut line = Vec::new();
    let lost = |error: io::Error| Fault::new(FaultCode::Lost, Blame::Local, error);
    BufReader::new(stream.take(ASKED_BYTES_MAX)).read_until(b'\n', &mut line).await.map_err(lost)?;
    Request::parse(&line).ok_or_else(|| {
        let why = "this is no request of an administrator that this build knows";
        Fault::new(FaultCode::Usage, Blame::Local, why)
    })
}

/// Connections that are heard at a time. Others wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 16;
/// How long a request may take to come, and each line of an answer to be taken.
const PATIENCE: Duration = Duration::from_secs(10);
/// A listener that fails is tried again after this.
const ACCEPT_RETRY: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    struct Echo;

    impl Upkeep for Echo {
        async fn answer(&self, request: Request) -> Vec<Answer> {
            let heard = format!("{request:?}");
            vec![Answer::Fault(Box::new(Fault::new(FaultCode::Busy, Blame::Local, heard)))]
        }
    }

    async fn said(words: &[u8]) -> String {
        let (mut here, there) = UnixStream::pair().unwrap();
        let heard = tokio::spawn(async move { hear(there, &Echo, PATIENCE).await });
        here.write_all(words).await.unwrap();
        here.shutdown().await.unwrap();
        let mut text = String::new();
        here.read_to_string(&mut text).await.unwrap();
        heard.await.unwrap().unwrap();
        text
    }

    #[test]
    fn root_and_the_daemons_own_user_are_heard_and_nobody_else() {
        assert!(allow(0, 77).is_ok() && allow(77, 77).is_ok());
        for (uid, own) in [(78, 77), (1000, 0), (u32::MAX, 77)] {
            assert_eq!(allow(uid, own).unwrap_err().code, FaultCode::Denied);
        }
    }

    #[tokio::test]
    async fn a_request_is_answered_and_whatever_is_none_is_refused() {
        let answer = said(b"{\"ask\":\"status\"}\n").await;
        assert!(answer.contains("Status") && answer.ends_with("\"end\"\n"), "{answer}");
        let endless = vec![b'a'; 1 << 20];
        for words in [&b""[..], b"\n", b"{\"ask\":\"status\"}", b"\xff\xfe\n", b"{\"ask\":\"sta\n", &endless[..4096]] {
            let answer = said(words).await;
            assert!(answer.contains("Usage") && answer.ends_with("\"end\"\n"), "{answer}");
        }
    }

    #[tokio::test]
    async fn a_connection_that_says_nothing_is_given_up() {
        let (_here, there) = UnixStream::pair().unwrap();
        assert_eq!(hear(there, &Echo, Duration::ZERO).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
