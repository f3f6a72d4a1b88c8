//! Accepts connections at the listener for whoever watches, and bounds what each may cost: their
//! number, the size of a request's head, and the time of all of it.
//!
//! In: a Unix socket or an address. Out: requests to `answer`, one connection in a task of its own.
//! It knows no path of a request.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::Watched;
use super::answer::answer;
use crate::admin::AdminSocket;
use crate::config::HttpPlace;
use crate::error::Error;

/// A listener for whoever watches.
#[derive(Debug)]
pub enum HttpListener {
    /// At a Unix socket. Its file goes with it.
    Socket(AdminSocket),
    /// At an address.
    Address(TcpListener),
}

impl HttpListener {
    /// Listens. Needs a runtime.
    ///
    /// # Errors
    /// [`Error::File`] for an address that cannot be had; the errors of [`AdminSocket::bind`].
    pub async fn bind(place: &HttpPlace) -> Result<HttpListener, Error> {
        match place {
            // Who may read its directory may ask: the members of the daemon's group.
            HttpPlace::Socket(path) => AdminSocket::bind_as(path, 0o660).map(HttpListener::Socket),
            HttpPlace::Address(address) => {
                let listener = TcpListener::bind(address).await;
                listener.map(HttpListener::Address).map_err(Error::file("listen for HTTP at", address.to_string()))
            }
        }
    }

    /// The address at which it listens. `None`: it is a socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            HttpListener::Socket(_) => None,
            HttpListener::Address(listener) => listener.local_addr().ok(),
        }
    }
}

/// Answers requests for as long as the task lives.
pub async fn serve(listener: HttpListener, watched: Watched) {
    let places = Arc::new(Semaphore::new(HTTP_CONNECTIONS_MAX));
    loop {
        // The semaphore is never closed.
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let accepted: io::Result<()> = match &listener {
            HttpListener::Socket(socket) => socket.accept().await.map(|stream| {
                tokio::spawn(hold(stream, watched.clone(), place));
            }),
            HttpListener::Address(listener) => listener.accept().await.map(|(stream, _)| {
                tokio::spawn(hold(stream, watched.clone(), place));
            }),
        };
        if let Err(error) = accepted {
            tracing::warn!(target: "longhaul::serve", %error, "cannot accept connections over HTTP");
            sleep(ACCEPT_RETRY).await;
        }
    }
}

/// Answers the requests of one connection.
async fn hold<S: AsyncRead + AsyncWrite + Unpin>(stream: S, watched: Watched, _place: impl Send) {
    let service = service_fn(|request| {
        let watched = watched.clone();
        async move { Ok::<_, Infallible>(answer(&watched, &request).await) }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_BYTES_MAX)
        .half_close(true);
    match timeout(CONNECTION_MAX, http.serve_connection(TokioIo::new(stream), service)).await {
        Ok(Ok(())) | Err(_) => {}
        Ok(Err(error)) => tracing::debug!(target: "longhaul::serve", %error, "a connection over HTTP was broken off"),
    }
}

/// Connections at a time. Others wait in the kernel's queue.
const HTTP_CONNECTIONS_MAX: usize = 32;
/// How long the head of a request may take to come.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// How long a connection may last, with all of its requests and answers.
const CONNECTION_MAX: Duration = Duration::from_secs(60);
/// Bytes of a request's head, and its headers. A browser sends less than a quarter of that.
const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// A listener that fails is tried again after this.
const ACCEPT_RETRY: Duration = Duration::from_millis(200);
