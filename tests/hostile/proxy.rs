//! A TCP proxy between a client and a daemon: knows control connections from lanes, shows bytes to
//! a meddler, cuts lines.
//!
//! The client dials it for everything. The tests decide what it changes; it knows nothing of files
//! or sessions.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use longhaul_net::SAFE_MAGIC;

/// The kind of a connection, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Control,
    PrivateLane,
    SafeLane,
}

/// The way of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    ToDaemon,
    ToClient,
}

/// Sees all bytes that go one way over one connection. The bytes that it leaves in `bytes` go on;
/// nothing goes on until it returns.
pub(crate) trait Meddler: Send {
    fn pass(&mut self, bytes: &mut Vec<u8>);
}

/// A closure is a meddler.
impl<F: FnMut(&mut Vec<u8>) + Send> Meddler for F {
    fn pass(&mut self, bytes: &mut Vec<u8>) {
        self(bytes);
    }
}

/// Makes the meddler of one way of one connection. `None` lets it pass.
type Make = dyn Fn(Kind, Way) -> Option<Box<dyn Meddler>> + Send + Sync;

/// The running proxy; dropping it cuts everything.
pub(crate) struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    daemon: SocketAddr,
    make: Box<Make>,
    links: Mutex<Vec<Link>>,
    dialled: Condvar,
    over: AtomicBool,
}

/// A connection that is passed on.
struct Link {
    kind: Kind,
    client: TcpStream,
    daemon: TcpStream,
    /// Whether the daemon is not told that the client is gone.
    deserted: Arc<AtomicBool>,
}

impl Proxy {
    /// Listens on a free port and passes everything on to `daemon`, through the meddlers that
    /// `make` makes.
    pub(crate) fn start(
        daemon: SocketAddr,
        make: impl Fn(Kind, Way) -> Option<Box<dyn Meddler>> + Send + Sync + 'static,
    ) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared {
            daemon,
            make: Box::new(make),
            links: Mutex::default(),
            dialled: Condvar::new(),
            over: AtomicBool::new(false),
        });
        let accepting = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if accepting.over.load(Ordering::Acquire) {
                    return;
                }
                let shared = accepting.clone();
                // The tests are about broken connections: both ends notice for themselves.
                std::thread::spawn(move || drop(carry(&shared, stream)));
            }
        });
        Proxy { addr, shared }
    }

    /// The address that the client dials.
    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Ends all connections of a kind that stand now, at both ends.
    pub(crate) fn cut(&self, kind: Kind) {
        self.shared.links.lock().expect("links").iter().filter(|link| link.kind == kind).for_each(Link::cut);
    }

    /// Ends the first of all connections of a kind, at both ends.
    pub(crate) fn cut_first(&self, kind: Kind) {
        self.shared.links.lock().expect("links").iter().find(|link| link.kind == kind).expect("a connection").cut();
    }

    /// The client loses all connections, and the daemon hears nothing of that: its ends stay open
    /// and silent.
    pub(crate) fn desert(&self) {
        for link in self.shared.links.lock().expect("links").iter() {
            link.deserted.store(true, Ordering::Release);
            let _ = link.client.shutdown(Shutdown::Both);
        }
    }

    /// Waits until `count` connections of a kind were dialled in all.
    pub(crate) fn wait_count(&self, kind: Kind, count: usize) {
        let links = self.shared.links.lock().expect("links");
        let enough = |links: &mut Vec<Link>| links.iter().filter(|link| link.kind == kind).count() < count;
        let waited = self.shared.dialled.wait_timeout_while(links, REACHED_MAX, enough);
        assert!(!waited.expect("links").1.timed_out(), "no {count} connections in {REACHED_MAX:?}");
    }

    /// The number of connections of a kind so far.
    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.shared.links.lock().expect("links").iter().filter(|link| link.kind == kind).count()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        [Kind::Control, Kind::PrivateLane, Kind::SafeLane].into_iter().for_each(|kind| self.cut(kind));
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.addr);
    }
}

impl Link {
    fn cut(&self) {
        let _ = self.client.shutdown(Shutdown::Both);
        let _ = self.daemon.shutdown(Shutdown::Both);
    }
}

fn carry(shared: &Arc<Shared>, mut client: TcpStream) -> std::io::Result<()> {
    let (kind, first) = recognise(&mut client)?;
    let daemon = TcpStream::connect(shared.daemon)?;
    client.set_nodelay(true)?;
    daemon.set_nodelay(true)?;
    let deserted = Arc::new(AtomicBool::new(false));
    let link = Link { kind, client: client.try_clone()?, daemon: daemon.try_clone()?, deserted: deserted.clone() };
    shared.links.lock().expect("links").push(link);
    shared.dialled.notify_all();
    let (back_from, back_to) = (daemon.try_clone()?, client.try_clone()?);
    let back = (shared.make)(kind, Way::ToClient);
    let silent = deserted.clone();
    std::thread::spawn(move || pump(Vec::new(), back_from, back_to, back, &silent));
    pump(first, client, daemon, (shared.make)(kind, Way::ToDaemon), &deserted);
    Ok(())
}

/// Reads until the kind of the connection is clear. Returns the bytes read, too.
fn recognise(client: &mut TcpStream) -> std::io::Result<(Kind, Vec<u8>)> {
    let mut first = Vec::new();
    let holds = |bytes: &[u8], name: &[u8]| bytes.windows(name.len()).any(|w| w == name);
    let mut part = [0; 4096];
    loop {
        match client.read(&mut part)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            n => first.extend_from_slice(&part[..n]),
        }
        if first.starts_with(&SAFE_MAGIC) {
            return Ok((Kind::SafeLane, first));
        }
        if holds(&first, b"longhaul-lane/1") {
            return Ok((Kind::PrivateLane, first));
        }
        if holds(&first, b"longhaul/1") {
            return Ok((Kind::Control, first));
        }
    }
}

/// Passes on the bytes `from` one end, and its end too. While the daemon is `deserted`, it passes
/// neither.
fn pump(
    first: Vec<u8>,
    mut from: TcpStream,
    mut to: TcpStream,
    mut meddler: Option<Box<dyn Meddler>>,
    deserted: &AtomicBool,
) {
    let mut bytes = first;
    let mut part = vec![0; 64 << 10];
    loop {
        if !bytes.is_empty() {
            if let Some(meddler) = &mut meddler {
                meddler.pass(&mut bytes);
            }
            if to.write_all(&bytes).is_err() && !deserted.load(Ordering::Acquire) {
                let _ = from.shutdown(Shutdown::Both);
                return;
            }
        }
        match from.read(&mut part) {
            Ok(n) if n > 0 => {
                bytes.clear();
                bytes.extend_from_slice(&part[..n]);
            }
            _ if deserted.load(Ordering::Acquire) => return,
            _ => {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
        }
    }
}

/// A place where a meddler waits until the test lets it go on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<(Mutex<GateState>, Condvar)>);

#[derive(Debug, Default)]
struct GateState {
    reached: bool,
    open: bool,
}

impl Gate {
    /// Waits at the gate. It waits for ever only if the test died, which ends the process.
    pub(crate) fn pass(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().expect("gate");
        state.reached = true;
        changed.notify_all();
        while !state.open {
            state = changed.wait(state).expect("gate");
        }
    }

    /// Waits until a meddler stands at the gate.
    pub(crate) fn wait_reached(&self) {
        let (state, changed) = &*self.0;
        let waited = changed.wait_timeout_while(state.lock().expect("gate"), REACHED_MAX, |s| !s.reached);
        assert!(!waited.expect("gate").1.timed_out(), "nothing came to the gate in {REACHED_MAX:?}");
    }

    /// Lets everyone go on, now and later.
    pub(crate) fn open(&self) {
        let (state, changed) = &*self.0;
        state.lock().expect("gate").open = true;
        changed.notify_all();
    }
}

/// Holds a connection's way at `gate` once `bytes` have passed.
pub(crate) fn hold_after(bytes: u64, gate: Gate) -> Box<dyn Meddler> {
    let mut passed = 0;
    Box::new(move |part: &mut Vec<u8>| {
        passed += part.len() as u64;
        if passed > bytes {
            gate.pass();
        }
    })
}

/// Inverts one bit of the byte at `at` of a connection's way.
pub(crate) fn flip_at(at: u64) -> Box<dyn Meddler> {
    let mut passed = 0;
    Box::new(move |part: &mut Vec<u8>| {
        if let Some(byte) = at.checked_sub(passed).and_then(|at| part.get_mut(usize::try_from(at).ok()?)) {
            *byte ^= 1;
        }
        passed += part.len() as u64;
    })
}

/// The longest wait: longer than any working machine needs.
const REACHED_MAX: Duration = Duration::from_secs(60);
