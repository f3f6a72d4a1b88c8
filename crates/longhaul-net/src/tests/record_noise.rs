//! Records of any kind, content and padding, sealed with the right keys: a peer that has joined may
//! send them. What comes out is the payload up to the first that is wrong, never a panic, never
//! more.
//!
//! In: sequences drawn from a seed. Compared with a model of RFC 8446 (sections 5.1, 5.4, 6 and
//! 4.6.3).

use super::private_lanes::raw_send;
use super::{noise, private_pair};
use crate::LaneStream;
use crate::records::{FRAGMENT_BYTES_MAX, RECORD_BYTES_MAX};

/// A record's parts: `content || kind || zeros`, as TLS 1.3 seals it.
struct Sealed {
    kind: u8,
    content: Vec<u8>,
    padding: usize,
    /// The announcement of new keys, after which the sender takes them.
    renews: bool,
}

/// The state of the stream behind a record.
#[derive(Debug, PartialEq, Eq)]
enum Then {
    GoesOn,
    Ends,
    Breaks,
}

/// Numbers of one seed.
struct Draw(Vec<u8>, usize);

impl Draw {
    fn below(&mut self, bound: usize) -> usize {
        let bytes = [self.0[self.1], self.0[self.1 + 1], self.0[self.1 + 2]];
        self.1 += 3;
        (usize::from(bytes[0]) << 16 | usize::from(bytes[1]) << 8 | usize::from(bytes[2])) % bound
    }

    fn record(&mut self, number: usize) -> Sealed {
        let kind = [PAYLOAD, PAYLOAD, PAYLOAD, ALERT, HANDSHAKE, 0, 20, 24, 255][self.below(9)];
        let len = match self.below(6) {
            0 => 0,
            1 => 1,
            2 => FRAGMENT_BYTES_MAX,
            _ => self.below(300),
        };
        let padding = [0, 0, 0, 1, 40][self.below(5)];
        let content = match (kind, self.below(4)) {
            (ALERT, 0) => vec![1, 0],
            (ALERT, 1) => vec![1, 90],
            (ALERT, 2) => vec![2, self.below(256) as u8],
            (ALERT, _) => noise(number as u64, len.min(3)),
            (HANDSHAKE, 0 | 1) => KEY_UPDATE.to_vec(),
            (HANDSHAKE, 2) => vec![24, 0, 0, 1, 2],
            _ => noise(number as u64, len),
        };
        let renews = kind == HANDSHAKE && content == KEY_UPDATE;
        // One byte stands for the kind within what one record may hold.
        let padding = if renews { 0 } else { padding.min(FRAGMENT_BYTES_MAX - content.len()) };
        Sealed { kind, content, padding, renews }
    }
}

/// The right result of a record at the receiver: its payload, and how the stream goes on. `idle`
/// counts records without payload.
fn model(sealed: &Sealed, idle: &mut usize) -> (Vec<u8>, Then) {
    // Where the kind is 0 it is padding, and the last byte of the content is the kind.
    let mut inner = [&sealed.content[..], &[sealed.kind]].concat();
    while inner.last() == Some(&0) {
        inner.pop();
    }
    let Some(kind) = inner.pop() else { return (Vec::new(), Then::Breaks) };
    *idle = if kind == PAYLOAD && !inner.is_empty() { 0 } else { *idle + 1 };
    match (kind, &inner[..]) {
        _ if *idle > 32 => (Vec::new(), Then::Breaks),
        (PAYLOAD, _) => (inner, Then::GoesOn),
        (ALERT, [_, 0]) => (Vec::new(), Then::Ends),
        (ALERT, [_, 90]) => (Vec::new(), Then::GoesOn),
        (HANDSHAKE, [24, 0, 0, 1, 0 | 1]) => (Vec::new(), Then::GoesOn),
        _ => (Vec::new(), Then::Breaks),
    }
}

/// Seals a record as the peer of `from` would get it.
fn seal(from: &mut LaneStream, sealed: &Sealed, out: &mut Vec<u8>) {
    let records = from.private_mut().expect("a private lane").records();
    let mut room = vec![0; RECORD_BYTES_MAX];
    let len = if sealed.renews {
        records.renew_now(&mut room)
    } else if sealed.padding == 0 {
        records.seal_as(sealed.kind, &sealed.content, &mut room)
    } else {
        let content = [&sealed.content[..], &[sealed.kind], &vec![0; sealed.padding - 1]].concat();
        records.seal_as(0, &content, &mut room)
    };
    out.extend_from_slice(&room[..len.expect("sealed")]);
}

#[test]
fn any_sequence_of_records_is_payload_up_to_the_first_that_is_wrong() {
    for seed in 0..300 {
        let (mut a, mut b) = private_pair();
        let mut draw = Draw(noise(seed * 0x9e37_79b9, 1 << 12), 0);
        let (mut bytes, mut payload, mut idle, mut then) = (Vec::new(), Vec::new(), 0, Then::GoesOn);
        for number in 0..1 + draw.below(40) {
            let record = draw.record(number);
            if bytes.len() + RECORD_BYTES_MAX > SOCKET_BYTES {
                break;
            }
            seal(&mut a, &record, &mut bytes);
            let (said, next) = model(&record, &mut idle);
            payload.extend(said);
            then = next;
            if then != Then::GoesOn {
                // Nothing behind it is heard.
                seal(
                    &mut a,
                    &Sealed { kind: PAYLOAD, content: b"more".to_vec(), padding: 0, renews: false },
                    &mut bytes,
                );
                break;
            }
        }
        raw_send(&a, &bytes);
        if then != Then::Ends {
            a.handle().close();
        }
        let mut read = Vec::new();
        while read.len() < payload.len() {
            let mut part = vec![0; (1 + draw.below(40_000)).min(payload.len() - read.len())];
            b.recv_exact(&mut part).unwrap_or_else(|e| panic!("seed {seed}, {} of {}: {e}", read.len(), payload.len()));
            read.extend(part);
        }
        assert!(read == payload, "seed {seed}");
        match (b.recv_or_end(&mut [0; 4]), then) {
            (Ok(false), Then::Ends) | (Err(_), Then::GoesOn | Then::Breaks) => {}
            (end, then) => panic!("seed {seed}: {end:?} where the model says {then:?}"),
        }
    }
}

#[test]
fn noise_in_place_of_a_record_is_an_error() {
    for seed in 0..300 {
        let (a, mut b) = private_pair();
        let mut bytes = noise(seed, 1 + seed as usize * 97 % 20_000);
        if seed % 3 > 0 {
            // Looks like a record, of its own length or any.
            let len = if seed % 3 == 1 { bytes.len() as u16 } else { u16::from(bytes[0]) << 8 };
            bytes.splice(0..0, [PAYLOAD, 3, 3, (len >> 8) as u8, len as u8]);
        }
        raw_send(&a, &bytes);
        a.handle().close();
        assert!(b.recv_exact(&mut [0; 5]).is_err(), "seed {seed}");
        assert!(b.recv_or_end(&mut [0]).is_err(), "seed {seed}: a broken lane stays broken");
    }
}

const PAYLOAD: u8 = 23;
const HANDSHAKE: u8 = 22;
const ALERT: u8 = 21;
const KEY_UPDATE: &[u8] = &[24, 0, 0, 1, 0];
/// Bytes that a socket pair takes before a read.
const SOCKET_BYTES: usize = 100 << 10;
