//! Owns the tests' shared helpers: networks from words, sockets on both hosts, datagrams with
//! numbers. Must not judge.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use longhaul_wan::{Change, Config, Counters, Link, Path, Wan};

/// The longest wait of a test: long enough on any machine that is not broken.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) fn change(words: &str) -> Change {
    words.parse().unwrap()
}

/// A link that is alike both ways.
pub(crate) fn link(words: &str) -> Link {
    let mut path = Path::default();
    change(words).apply(&mut path);
    Link::even(path)
}

pub(crate) fn wan(links: Vec<Link>) -> Wan {
    wan_of(links, 1)
}

pub(crate) fn wan_of(links: Vec<Link>, seed: u64) -> Wan {
    Wan::new(&Config { links, seed, ..Config::default() }).expect("root, and a kernel with TUN")
}

pub(crate) fn forward(wan: &Wan) -> Counters {
    wan.counters().unwrap()[0].forward
}

/// Datagram sockets on both hosts, the near one connected to the far one; nothing is sent back.
pub(crate) struct Datagrams {
    pub(crate) near: UdpSocket,
    pub(crate) far: UdpSocket,
}

impl Datagrams {
    pub(crate) fn new(wan: &Wan, link: usize) -> Datagrams {
        let (near, far) = (IpAddr::from(wan.near().address(link)), IpAddr::from(wan.far().address(link)));
        let bind = |address: IpAddr| move || UdpSocket::bind((address, 0)).unwrap();
        let near = wan.near().run(bind(near)).unwrap();
        let far = wan.far().run(bind(far)).unwrap();
        near.connect(far.local_addr().unwrap()).unwrap();
        far.set_nonblocking(true).unwrap();
        Datagrams { near, far }
    }

    /// Sends `count` datagrams of `bytes` bytes that begin with their number. Returns those that
    /// arrive, in order, once each is accounted for. Few are sent at a time, so that no socket's
    /// buffer overflows.
    pub(crate) fn send_all(&self, wan: &Wan, count: u32, bytes: usize) -> Vec<Vec<u8>> {
        let mut arrived = Vec::new();
        for first in (0..count).step_by(AT_A_TIME) {
            let numbers = first..count.min(first + AT_A_TIME as u32);
            for number in numbers.clone() {
                self.near.send(&datagram(number, bytes)).unwrap();
            }
            until(|| {
                let counted = forward(wan);
                counted.packets >= u64::from(numbers.end)
                    && counted.packets + counted.duplicated == counted.delivered_packets + counted.dropped()
            });
            arrived.extend(std::iter::from_fn(|| receive(&self.far)));
        }
        arrived
    }
}

const AT_A_TIME: usize = 50;

/// A number, then bytes that follow from it.
pub(crate) fn datagram(number: u32, bytes: usize) -> Vec<u8> {
    let mut datagram = number.to_be_bytes().to_vec();
    datagram.extend((4..bytes as u32).map(|at| (at.wrapping_mul(31) ^ number) as u8));
    datagram
}

pub(crate) fn number(datagram: &[u8]) -> u32 {
    u32::from_be_bytes(datagram[..4].try_into().unwrap())
}

fn receive(socket: &UdpSocket) -> Option<Vec<u8>> {
    let mut room = vec![0; 65_536];
    match socket.recv(&mut room) {
        Ok(len) => Some(room[..len].to_vec()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        Err(error) => panic!("receiving: {error}"),
    }
}

/// Waits until `done` returns true.
pub(crate) fn until(mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < PATIENCE, "it did not happen in {PATIENCE:?}");
        // Asking takes a thread on each host: asking without pause would slow down the hosts.
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A connection between the hosts, over the link that the address belongs to.
pub(crate) fn connection(wan: &Wan, far: IpAddr) -> (TcpStream, TcpStream) {
    let listener = wan.far().run(move || TcpListener::bind((far, 0)).unwrap()).unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let near = wan.near().run(move || TcpStream::connect(address).unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    for end in [&near, &far] {
        end.set_read_timeout(Some(PATIENCE)).unwrap();
        end.set_write_timeout(Some(PATIENCE)).unwrap();
    }
    (near, far)
}

/// Sends `bytes` bytes. Returns the bytes that arrived, and the time from the first byte to the
/// last.
pub(crate) fn stream(wan: &Wan, far: IpAddr, bytes: usize) -> (Vec<u8>, Duration) {
    let (mut near, mut far) = connection(wan, far);
    let sent = content(bytes);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            near.write_all(&sent).unwrap();
            near.shutdown(std::net::Shutdown::Write).unwrap();
            // Until the far end has closed: packets that are sent again meanwhile must find this
            // end alive.
            let _ = near.read(&mut [0]);
        });
        let mut arrived = vec![0; 1];
        far.read_exact(&mut arrived).unwrap();
        let began = Instant::now();
        far.read_to_end(&mut arrived).unwrap();
        let time = began.elapsed();
        drop(far);
        (arrived, time)
    })
}

pub(crate) fn content(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}
