//! Tests of this crate over real sockets, by topic. This file has their shared helpers.

mod accepting;
mod dialling;
mod handed_over;
mod lanes;
mod private_lanes;
mod quic_lanes;
mod record_noise;
mod speed;
mod udp_lanes;

use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::Mutex;

use crate::control::dial_control_within;
use crate::{
    Control, GreetLimits, Greeted, Identity, LaneOptions, LaneStream, Listener, NetError, PeerCheck, PublicKey,
    ServerTls, greet,
};

/// Long enough for a busy machine; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// A port that greets all connections, in a runtime of its own.
struct Port {
    runtime: Runtime,
    addr: SocketAddr,
    key: PublicKey,
    greeted: Mutex<tokio::sync::mpsc::UnboundedReceiver<Result<Greeted, NetError>>>,
}

impl Port {
    fn open() -> Port {
        Port::with(GreetLimits { deadline: PATIENCE, ..GreetLimits::default() })
    }

    fn with(limits: GreetLimits) -> Port {
        Port::serving(limits, |tls| tls)
    }

    fn serving(limits: GreetLimits, change: impl FnOnce(ServerTls) -> ServerTls) -> Port {
        let runtime = Runtime::new().unwrap();
        let identity = identity();
        let tls = change(ServerTls::new(&identity, limits).unwrap());
        let (sender, greeted) = tokio::sync::mpsc::unbounded_channel();
        let inside = runtime.enter();
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let addr = listener.local_addr();
        runtime.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (tls, sender) = (tls.clone(), sender.clone());
                tokio::spawn(async move { sender.send(greet(stream, &tls).await) });
            }
        });
        drop(inside);
        Port { runtime, addr, key: identity.public(), greeted: Mutex::new(greeted) }
    }

    /// The result of the next greeting.
    fn next(&self) -> Result<Greeted, NetError> {
        self.runtime.block_on(async {
            let mut greeted = self.greeted.lock().await;
            tokio::time::timeout(PATIENCE, greeted.recv()).await.expect("somebody is greeted").unwrap()
        })
    }

    fn dial(&self, identity: &Identity, check: PeerCheck) -> Result<Control, NetError> {
        self.runtime.block_on(dial_control_within(&self.addr.to_string(), identity, check, PATIENCE))
    }

    /// An honest client gets in: both ends.
    fn control(&self) -> (Control, Control) {
        let dialled = self.dial(&identity(), PeerCheck::Pinned(self.key)).unwrap();
        match self.next().unwrap() {
            Greeted::Control(accepted) => (dialled, accepted),
            other => panic!("{other:?}"),
        }
    }

    fn private_lane(&self) -> (LaneStream, LaneStream) {
        let mut dialled = LaneStream::dial_private(self.addr, &identity(), self.key, &LaneOptions::default()).unwrap();
        dialled.set_deadline(None).unwrap();
        match self.next().unwrap() {
            Greeted::PrivateLane(accepted, _) => (dialled, accepted),
            other => panic!("{other:?}"),
        }
    }

    fn safe_lane(&self) -> (LaneStream, LaneStream) {
        let mut dialled = LaneStream::dial_safe(self.addr, &LaneOptions::default()).unwrap();
        dialled.set_deadline(None).unwrap();
        match self.next().unwrap() {
            Greeted::SafeLane(accepted, _) => (dialled, accepted),
            other => panic!("{other:?}"),
        }
    }
}

fn private_pair() -> (LaneStream, LaneStream) {
    LaneStream::pair_private(&identity(), &identity()).unwrap()
}

fn identity() -> Identity {
    Identity::generate().unwrap()
}

/// Bytes that repeat at no power of two, different for each seed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut words = std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        bytes.extend(words.next().unwrap());
    }
    bytes.truncate(len);
    bytes
}

/// Runs in a thread; the result must come within [`PATIENCE`].
fn meanwhile<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> impl FnOnce() -> T {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(work()));
    move || receiver.recv_timeout(PATIENCE).expect("the other thread comes to an end")
}
