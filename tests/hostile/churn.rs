//! Floods: connections by the thousand each second over a long path, which say nothing, or
//! something and no more. Honest clients get in meanwhile, from the same address and from others.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use longhaul_net::SAFE_MAGIC;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};

use super::noise::{client_hello, raise_descriptor_limit};
use super::{assert_sane, daemon_addr};
use crate::fixture::Site;

/// A long path to the daemon: all bytes take half of [`ROUND_TRIP`] each way.
struct Distance {
    runtime: Runtime,
    addr: SocketAddr,
}

impl Distance {
    /// A path whose far end has this address.
    fn start(daemon: SocketAddr, from: &str) -> Distance {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let from = SocketAddr::new(from.parse::<IpAddr>().unwrap(), 0);
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let addr = listener.local_addr().unwrap();
        runtime.spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((near, _)) => drop(tokio::spawn(carry(near, daemon, from))),
                    // No descriptor is left at this moment.
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        });
        Distance { runtime, addr }
    }

    /// Begins to connect [`RATE`] times a second, and to say `words` each time. On a busy machine
    /// it is content with [`AT_ONCE`].
    fn flood(&self, words: Vec<u8>) -> Flood {
        let (addr, words) = (self.addr, Arc::new(words));
        let connected = Arc::new(watch::Sender::new(0));
        let count = connected.clone();
        let room = Arc::new(Semaphore::new(AT_ONCE));
        let task = self.runtime.spawn(async move {
            let mut ticks = interval(Duration::from_millis(10));
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            loop {
                ticks.tick().await;
                for _ in 0..RATE / 100 {
                    let Ok(place) = room.clone().try_acquire_owned() else { break };
                    let (words, connected) = (words.clone(), connected.clone());
                    tokio::spawn(async move {
                        let _place = place;
                        let Ok(mut stream) = TcpStream::connect(addr).await else { return };
                        let _ = stream.write_all(&words).await;
                        connected.send_modify(|count| *count += 1);
                        // Until it is hung up on.
                        while matches!(stream.read(&mut [0; 4096]).await, Ok(1..)) {}
                    });
                }
            }
        });
        Flood { connected: count, task }
    }
}

/// A flood that goes on until it is dropped.
struct Flood {
    connected: Arc<watch::Sender<usize>>,
    task: JoinHandle<()>,
}

impl Flood {
    /// Waits until `count` have connected.
    fn wait(&self, path: &Distance, count: usize) {
        let mut connected = self.connected.subscribe();
        let enough = async { timeout(FLOODED_MAX, connected.wait_for(|connected| *connected >= count)).await.is_ok() };
        assert!(path.runtime.block_on(enough), "no {count} connections in {FLOODED_MAX:?}");
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(near: TcpStream, daemon: SocketAddr, from: SocketAddr) -> std::io::Result<()> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(from)?;
    let far = socket.connect(daemon).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let ((near_reader, near_writer), (far_reader, far_writer)) = (near.into_split(), far.into_split());
    tokio::join!(delay(near_reader, far_writer), delay(far_reader, near_writer));
    Ok(())
}

/// Passes on the bytes `from` one end, and its end too, half of a round trip later.
async fn delay(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let (sender, mut on_its_way) = mpsc::unbounded_channel();
    let reading = async move {
        loop {
            let mut part = vec![0; 4096];
            let n = from.read(&mut part).await.unwrap_or(0);
            part.truncate(n);
            if sender.send((Instant::now() + ROUND_TRIP / 2, part)).is_err() || n == 0 {
                return;
            }
        }
    };
    let writing = async move {
        while let Some((at, part)) = on_its_way.recv().await {
            sleep_until(at).await;
            if part.is_empty() || to.write_all(&part).await.is_err() {
                return drop(to.shutdown().await);
            }
        }
    };
    tokio::join!(reading, writing);
}

/// The address of honest clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Honest {
    SameAddress,
    /// From an address of another network.
    Elsewhere,
}

/// Floods the daemon with connections that say `words`, while honest ones come.
fn assert_lists_on(what: &str, words: &[u8], honest: &[Honest]) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    raise_descriptor_limit();
    let site = Site::new();
    let flooded = Distance::start(daemon_addr(&site), "127.0.0.1");
    let other = Distance::start(daemon_addr(&site), "127.0.1.1");
    let flood = flooded.flood(words.to_vec());
    // More than there are places of any kind.
    flood.wait(&flooded, 3 * RATE);
    for from in honest {
        for n in 0..4 {
            let path = if *from == Honest::Elsewhere { &other } else { &flooded };
            let url = format!("lh://{}/", path.addr);
            let list = || site.client.run(["ls", "--peer-key", site.daemon.key(), &url]).finish();
            let mut outcome = list();
            // It shares the queue of the flood's address: on a busy machine its turn may come when
            // it has given up once.
            if outcome.code != 0 && *from == Honest::SameAddress {
                outcome = list();
            }
            let connected = *flood.connected.borrow();
            assert_eq!(outcome.code, 0, "{what}, {connected} so far; {from:?}, number {n}: {outcome}");
        }
    }
    drop(flood);
    // The operator is told the sources and the counts, and not each connection.
    let told = site.daemon.wait_log("give way");
    assert!(told.contains("WARN") && told.contains("127.0.0.1="), "{told}");
    let lines = site.daemon.log().lines().count();
    assert!(lines < 30, "{lines} lines: {}", site.daemon.log());
    assert_sane(&site, what);
}

#[test]
fn connections_by_the_thousand_that_say_nothing_keep_nobody_out() {
    assert_lists_on("silent connections", &[], &[Honest::Elsewhere, Honest::SameAddress]);
}

#[test]
fn lanes_by_the_thousand_that_prove_nothing_keep_nobody_out() {
    assert_lists_on("lanes without proof", &SAFE_MAGIC, &[Honest::Elsewhere, Honest::SameAddress]);
}

#[test]
fn hellos_by_the_thousand_keep_nobody_out() {
    // Each costs a key exchange: on a machine that cannot make as many as are asked for, those that
    // share the address wait in the same queue as the flood, and some of them for too long.
    assert_lists_on("client hellos", &client_hello(), &[Honest::Elsewhere]);
}

/// A lock for floods: one takes thousands of descriptors and much of a processor.
static ALONE: Mutex<()> = Mutex::new(());
/// The round trip of the flooded path, and of the path of honest clients.
const ROUND_TRIP: Duration = Duration::from_millis(200);
/// Connections that are there at once at most: more than there are places of any kind.
const AT_ONCE: usize = 3 * RATE;
/// Connections a second.
const RATE: usize = 1500;
/// The longest wait for the flood: longer than any machine needs to make it.
const FLOODED_MAX: Duration = Duration::from_secs(60);
