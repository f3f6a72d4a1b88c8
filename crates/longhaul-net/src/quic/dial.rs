//! Dials QUIC lanes. Each has a socket, an endpoint and a thread that drives both.
//!
//! Takes an address and keys; gives a connection whose peer has proved its key. The lane's own
//! thread may hash or wait for a disk: acknowledgements and repairs are the driver's, and never
//! wait for it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use quinn::{Connection, Endpoint, VarInt};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::config;
use super::driver::TurnRuntime;
use super::figures::Figures;
use super::socket::{self, PacedSocket};
use super::stream::{QuicStream, Shared, algorithm, outlive};
use super::{DONE, GIVEN_UP};
use crate::error::{NetError, Over};
use crate::keys::Identity;
use crate::public_key::PublicKey;
use crate::tls::{LANE, PeerCheck, client_config};
use crate::wire::{LaneOptions, bind_error};

/// Dials the holder of `pinned`, within the options' deadline.
pub(crate) fn dial(
    addr: SocketAddr,
    identity: &Identity,
    pinned: PublicKey,
    options: &LaneOptions,
) -> Result<QuicStream, NetError> {
    let failed = move |doing| move |source| NetError::Socket { addr: addr.to_string(), doing, source };
    let figures = Arc::new(Figures::default());
    figures.want(algorithm(&options.congestion)?);
    // Quinn tells of a failed handshake in words alone: which key was shown is compared when it is
    // over.
    let tls = client_config(identity, PeerCheck::Observe, LANE)?;
    let config = config::client(tls, &figures, socket::route_payload(addr, options.local))?;
    let udp = socket::dialling(addr, options.local).map_err(|source| match options.local {
        Some(local) => bind_error(local, source),
        None => failed("make a UDP socket")(source),
    })?;
    let (told, answer) = oneshot::channel();
    let (lives, lane) = oneshot::channel();
    let (deadline, local) = (options.deadline, options.local);
    let drive = move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(source) => return drop(told.send(Err(failed("start a driver")(source)))),
        };
        runtime.block_on(async move {
            let made = PacedSocket::new(udp).and_then(|socket| {
                let (socket, runtime) = (Arc::new(socket), Arc::new(TurnRuntime));
                Endpoint::new_with_abstract_socket(config::endpoint(), None, socket, runtime)
            });
            let endpoint = match made {
                Ok(endpoint) => endpoint,
                Err(source) => return drop(told.send(Err(failed("set a UDP socket up")(source)))),
            };
            match connect(&endpoint, config, addr, pinned, deadline).await {
                Ok(connection) => {
                    let _ = told.send(Ok(Shared::new(connection.clone(), figures, local)));
                    outlive(connection, lane).await;
                }
                Err(error) => drop(told.send(Err(error))),
            }
            endpoint.close(VarInt::from_u32(DONE), b"done");
            let _ = timeout(FAREWELL_MAX, endpoint.wait_idle()).await;
        });
    };
    thread::Builder::new().name("quic".to_owned()).spawn(drive).map_err(failed("start a driver"))?;
    let shared = answer.blocking_recv().unwrap_or_else(|_| Err(NetError::Crypto { doing: "drive QUIC" }))?;
    Ok(QuicStream::new(shared, lives))
}

async fn connect(
    endpoint: &Endpoint,
    config: quinn::ClientConfig,
    addr: SocketAddr,
    pinned: PublicKey,
    deadline: Duration,
) -> Result<Connection, NetError> {
    let peer = addr.to_string();
    let connecting =
        endpoint.connect_with(config, addr, "longhaul").map_err(|_| NetError::BadAddress { addr: peer.clone() })?;
    let connection = match timeout(deadline, connecting).await {
        Err(_) => return Err(NetError::NoAnswer { peer, seconds: deadline.as_secs(), over: Over::Udp }),
        Ok(connection) => connection.map_err(|e| NetError::quic(&peer, e))?,
    };
    let got = peer_key(&connection).ok_or_else(|| NetError::Crypto { doing: "read the key that QUIC proved" })?;
    if got != pinned {
        connection.close(VarInt::from_u32(GIVEN_UP), b"another key");
        return Err(NetError::PeerKeyMismatch { peer, expected: pinned, got });
    }
    Ok(connection)
}

/// The key that the other end has proved.
pub(crate) fn peer_key(connection: &Connection) -> Option<PublicKey> {
    let shown = connection.peer_identity()?.downcast::<Vec<rustls::pki_types::CertificateDer<'static>>>().ok()?;
    match shown.as_slice() {
        [key] => PublicKey::from_spki(key),
        _ => None,
    }
}

/// The time that the last packets of a connection have to leave; no caller waits for them.
const FAREWELL_MAX: Duration = Duration::from_secs(3);
