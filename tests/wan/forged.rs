//! Somebody right beside the receiver of a lane over UDP who sees all that the sender says, and
//! says pieces in its name as fast as one thread can: with the right addresses and index, numbers
//! to come, and places that lack, but with tags that are wrong.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, ipproto, sendto, socket_with};

use super::*;
use crate::hostile::forgery::forge::{datagrams, in_the_name_of, scattered};
use crate::hostile::forgery::sniff::{Over, Passed, Seen, Sniffer};

/// The last piece that the sender said: who said it to whom, and its header.
type LastPiece = (SocketAddrV4, SocketAddrV4, [u8; HEADER]);

/// A forgery while it lasts.
#[derive(Default)]
struct Forging {
    last: Mutex<Option<LastPiece>>,
    begins: AtomicBool,
    over: AtomicBool,
    sent: AtomicU64,
}

impl Forging {
    /// Takes down each last piece of a lane to `port`.
    fn listen(&self, mut sniffer: Sniffer, port: u16) {
        while !self.over.load(Ordering::Relaxed) {
            let Ok(Some(packet)) = sniffer.next(Duration::from_millis(20)) else { continue };
            let Passed { from, to, over, payload, .. } = packet;
            if over != Over::Udp || to.port() != port || payload.first() != Some(&DATA) {
                continue;
            }
            let headers = datagrams(&payload).filter_map(|piece| piece.first_chunk().copied());
            if let Some(header) = headers.last() {
                *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((from, to, header));
            }
        }
    }

    /// Says pieces without a pause once it has begun.
    fn forge(&self, raw: &OwnedFd) {
        let mut n = 0;
        while !self.over.load(Ordering::Relaxed) {
            let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
            let Some((from, to, header)) = last.filter(|_| self.begins.load(Ordering::Relaxed)) else {
                thread::sleep(Duration::from_millis(1));
                continue;
            };
            let bytes = HEADER + usize::from(u16::from_le_bytes([header[22], header[23]])) + TAG;
            let mut datagram: Vec<u8> = (0..bytes as u64).map(|at| scattered(at) as u8).collect();
            for _ in 0..256 {
                n += 1;
                datagram[..HEADER].copy_from_slice(&forged(header, n));
                let packet = in_the_name_of(from, to, &datagram);
                if sendto(raw, &packet, SendFlags::DONTWAIT, &to).is_ok() {
                    self.sent.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

/// Ends a forgery when it is dropped, however the test ends.
struct EndsForging<'f>(&'f Forging);

impl Drop for EndsForging<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
    }
}

/// The header of a piece that is about to be said by the sender, or was just said, of this unit or
/// the next, with a number that is near.
fn forged(header: [u8; HEADER], n: u64) -> [u8; HEADER] {
    let (dice, mut forged) = (scattered(n), header);
    let of = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight bytes"));
    let (number, serial, piece) = (of(8), of(16) as u32, (of(16) >> 32) as u16);
    forged[8..16].copy_from_slice(&(number + dice % 4096).to_le_bytes());
    forged[16..20].copy_from_slice(&serial.wrapping_add((dice >> 16) as u32 % 2).to_le_bytes());
    let piece = piece.saturating_add((dice >> 24) as u16 % 256).saturating_sub(32);
    forged[20..22].copy_from_slice(&piece.to_le_bytes());
    forged
}

/// Bytes a second that arrived between the events of a transfer in this span of its time.
fn rate(outcome: &Outcome, from: f64, to: f64) -> f64 {
    let told = outcome.events_of("progress").into_iter().filter_map(|event| {
        let at = event["t_s"].as_f64().filter(|at| (from..to).contains(at))?;
        Some((at, event["bytes_received"].as_f64()?))
    });
    let told: Vec<(f64, f64)> = told.collect();
    let (first, last) = (told[0], told[told.len() - 1]);
    assert!(last.0 - first.0 > 1.5, "{from} to {to} s: too short for a rate: {told:?}");
    (last.1 - first.1) / (last.0 - first.0)
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn pieces_forged_beside_the_receiver_as_fast_as_can_be_neither_land_nor_slow_a_lane() {
    let mut link = Link { mtu: 1500, ..Link::even(Path::default()) };
    link.apply(&"rate=80Mbit/s,rtt=20ms".parse::<Change>().unwrap());
    let far = Far::over(Wan::new(&Config { links: vec![link], ..Config::default() }).unwrap(), "");
    let (run, [near, there]) = moving(&far, Direction::Push, 80, &["--transport", "udp"]);
    let (forging, hosts) = (Forging::default(), [far.wan.near(), far.wan.far()]);
    let sniffer = hosts[0].run(|| Sniffer::open(Seen::Both)).unwrap().expect("root may");
    let raw = || socket_with(AddressFamily::INET, SocketType::RAW, SocketFlags::CLOEXEC, Some(ipproto::RAW));
    let raw = hosts[1].run(raw).unwrap().expect("root may");
    let port = far.daemon.addr().rsplit_once(':').and_then(|(_, port)| port.parse().ok()).expect("a port");
    let (outcome, begun_s, forwarded) = thread::scope(|scope| {
        scope.spawn(|| forging.listen(sniffer, port));
        scope.spawn(|| forging.forge(&raw));
        let end = EndsForging(&forging);
        let running = run.start();
        let at = |bytes: u64| {
            running.wait_event(|event| event["t_s"].as_f64().filter(|_| event["bytes_received"].as_u64() > Some(bytes)))
        };
        // Its start is over, and then it has some seconds for itself.
        at(15 << 20);
        let begun_s = at(42 << 20);
        let before = far.forward().packets;
        forging.begins.store(true, Ordering::Relaxed);
        let outcome = running.finish();
        drop(end);
        (outcome, begun_s, far.forward().packets - before)
    });
    assert_eq!(outcome.code, 0, "{outcome}\n{}", far.daemon.log());
    tree::assert_same(&Tree::of(&near), &Tree::of(&there), &outcome);
    let sent = forging.sent.load(Ordering::Relaxed);
    assert!(sent > 3 * forwarded, "{sent} were forged beside {forwarded} that were not");
    // A lane that is lost is replaced, and what it had in hand goes again.
    assert_eq!(outcome.summary()["bytes_resent"], 0, "{outcome}");
    assert!(outcome.events_of("fault").is_empty(), "{outcome}");
    let started_s = outcome
        .events_of("progress")
        .into_iter()
        .find_map(|event| event["t_s"].as_f64().filter(|_| event["bytes_received"].as_u64() > Some(10 << 20)));
    let (alone, beneath) = (rate(&outcome, started_s.unwrap(), begun_s + 0.01), rate(&outcome, begun_s, f64::INFINITY));
    eprintln!("{alone:.0} bytes/s alone, {beneath:.0} beneath {sent} forged packets, {forwarded} true ones");
    assert!(beneath > alone / 2.0, "{alone:.0} bytes/s alone, {beneath:.0} beneath {sent} forged packets: {outcome}");
}

/// Bytes of the header of a piece, and of its tag, and its first byte: docs/WIRE.md, section 10.
const HEADER: usize = 24;
const TAG: usize = 16;
const DATA: u8 = 0x23;
