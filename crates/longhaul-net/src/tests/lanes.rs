//! Tests of lanes of either kind, over TCP and within the process.

use std::thread;
use std::time::Duration;

use super::quic_lanes::QuicPort;
use super::{PATIENCE, Port, meanwhile, noise};
use crate::{Congestion, LaneStream, More, NetErrorKind, PieceRoom, SAFE_MAGIC, UnitPart};

/// Two connected ends, made in each possible way.
fn pairs(port: &Port) -> Vec<(&'static str, (LaneStream, LaneStream))> {
    vec![
        ("safe over TCP", port.safe_lane()),
        ("private over TCP", port.private_lane()),
        ("safe in process", LaneStream::pair().unwrap()),
        ("private in process", super::private_pair()),
        ("over QUIC", QuicPort::open().lane()),
    ]
}

/// Sends all of `bytes` in pieces of odd sizes, gathered in odd ways.
fn send_oddly(lane: &mut LaneStream, bytes: &[u8]) {
    let mut rest = bytes;
    for (turn, &size) in ODD_SIZES.iter().cycle().enumerate() {
        let (piece, after) = rest.split_at(size.min(rest.len()));
        let (head, tail) = piece.split_at(piece.len() / 3);
        let (middle, end) = tail.split_at(tail.len() / 2);
        let more = if turn % 2 == 0 { More::Follows } else { More::No };
        match turn % 3 {
            0 => lane.send(&[piece]).unwrap(),
            1 => lane.send(&[head, &[], tail]).unwrap(),
            _ => lane.send_part(&UnitPart { header: head, offset: 0, payload: middle, trailer: end, more }).unwrap(),
        }
        rest = after;
        if rest.is_empty() {
            break;
        }
    }
    lane.finish();
}

fn recv_oddly(lane: &mut LaneStream, expected: &[u8]) {
    let mut buf = vec![0; 1 << 20];
    let mut rest = expected;
    for (turn, &size) in ODD_SIZES.iter().rev().cycle().enumerate() {
        let size = size.min(rest.len());
        match turn % 2 {
            0 => lane.recv_exact(&mut buf[..size]).unwrap(),
            _ => recv_as_unit(lane, &mut buf[..size]),
        }
        assert!(buf[..size] == rest[..size], "bytes differ");
        rest = &rest[size..];
        if rest.is_empty() {
            break;
        }
    }
    assert!(!lane.recv_or_end(&mut [0; 3]).unwrap(), "nothing follows");
}

/// Receives bytes as those of a unit, in pieces of a third of them or less.
fn recv_as_unit(lane: &mut LaneStream, unit: &mut [u8]) {
    let (mut received, bytes_max) = (0, unit.len() / 3 + 1);
    while received < unit.len() {
        let piece = lane.receive_piece(PieceRoom { unit, received, bytes_max }).unwrap();
        assert!(piece.offset == received && (1..=bytes_max).contains(&piece.len), "{piece:?} at {received}");
        received += piece.len;
    }
}

const ODD_SIZES: &[usize] =
    &[1, 48, 0, 262_144, 16_384, 16_383, 16_385, 5, 1 << 20, 4096, 17, 100_000, 32_768, 22, 300_001];

#[test]
fn what_a_lane_carried_is_known_when_it_is_gone() {
    let port = Port::open();
    for ends_in_order in [true, false] {
        let (mut a, mut b) = port.safe_lane();
        let (sender, receiver) = (a.handle(), b.handle());
        let all = SAFE_MAGIC.len() as u64 + 50_000;
        a.send(&[&[7; 50_000]]).unwrap();
        if ends_in_order {
            a.finish();
        } else {
            while sender.carried() < all {
                thread::yield_now();
            }
            sender.close();
        }
        drop(a);
        // The kernel counts a connection's opening and its end as a byte each.
        let carried = sender.carried();
        assert!((all..=all + 2).contains(&carried), "in order: {ends_in_order}: {carried}");
        b.recv_exact(&mut [0; 50_000]).unwrap();
        drop(b);
        let carried = receiver.carried();
        assert!((all..=all + 2).contains(&carried), "{carried}");
    }
}

#[test]
fn sixty_four_mebibytes_pass_in_odd_pieces_both_ways_at_once() {
    let port = Port::open();
    for (kind, (mut a, mut b)) in pairs(&port) {
        let (there, back) = (noise(1, 64 << 20), noise(2, 5 << 20));
        let (there2, back2) = (there.clone(), back.clone());
        let far = meanwhile(move || {
            recv_oddly(&mut b, &there2);
            send_oddly(&mut b, &back2);
        });
        send_oddly(&mut a, &there);
        recv_oddly(&mut a, &back);
        far();
        println!("{kind}: fine");
    }
}

#[test]
fn an_end_before_the_first_byte_is_clean_and_one_within_a_value_is_not() {
    let port = Port::open();
    for (kind, (mut a, mut b)) in pairs(&port) {
        a.send(&[b"1234567"]).unwrap();
        a.finish();
        let mut five = [0; 5];
        assert!(b.recv_or_end(&mut five).unwrap(), "{kind}");
        assert_eq!(b.recv_exact(&mut five).unwrap_err().kind(), NetErrorKind::Lost, "{kind}");

        let (mut a, mut b) = pairs(&port).into_iter().find(|(k, _)| *k == kind).unwrap().1;
        a.finish();
        assert!(!b.recv_or_end(&mut five).unwrap(), "{kind}");
        assert!(!b.recv_or_end(&mut five).unwrap(), "{kind}: and stays ended");
        // The other direction is still open.
        b.send(&[b"late!"]).unwrap();
        a.recv_exact(&mut five).unwrap();
        assert_eq!(&five, b"late!", "{kind}");
    }
}

#[test]
fn a_handle_wakes_a_blocked_receive() {
    let port = Port::open();
    for (kind, (mut a, _b)) in pairs(&port) {
        let handle = a.handle();
        let blocked = meanwhile(move || a.recv_exact(&mut [0; 10]).unwrap_err().kind());
        handle.clone().close();
        assert_eq!(blocked(), NetErrorKind::Closed, "{kind}");
        handle.close();
    }
}

#[test]
fn a_handle_wakes_a_blocked_send() {
    let port = Port::open();
    for (kind, (mut a, b)) in pairs(&port) {
        let handle = a.handle();
        let piece = noise(3, 1 << 16);
        let (filling, filled) = std::sync::mpsc::channel();
        let blocked = meanwhile(move || {
            loop {
                // Nobody receives, so one of these blocks; whether before or after the closing
                // makes no difference.
                if let Err(error) = a.send(&[&piece]) {
                    return error.kind();
                }
                let _ = filling.send(());
            }
        });
        filled.recv_timeout(PATIENCE).unwrap();
        handle.close();
        assert_eq!(blocked(), NetErrorKind::Closed, "{kind}");
        drop(b);
    }
}

#[test]
fn a_deadline_holds_for_the_whole_and_can_be_lifted() {
    let port = Port::open();
    for (kind, (mut a, mut b)) in pairs(&port) {
        b.set_deadline(Some(Duration::from_millis(100))).unwrap();
        let trickle = thread::spawn(move || {
            // Progress all the time, but four million single bytes take seconds.
            while a.send(&[b"x"]).is_ok() {}
        });
        let error = b.recv_exact(&mut vec![0; 4 << 20]).unwrap_err();
        assert_eq!(error.kind(), NetErrorKind::TimedOut, "{kind}: {error}");
        drop(b);
        trickle.join().unwrap();

        let (mut a, mut b) = pairs(&port).into_iter().find(|(k, _)| *k == kind).unwrap().1;
        b.set_deadline(Some(Duration::ZERO)).unwrap();
        assert_eq!(b.send(&[b"x"]).unwrap_err().kind(), NetErrorKind::TimedOut, "{kind}");
        b.set_deadline(None).unwrap();
        a.send(&[b"y"]).unwrap();
        b.recv_exact(&mut [0; 1]).unwrap();
    }
}

#[test]
fn nothing_asked_is_given_at_once() {
    let port = Port::open();
    for (kind, (mut a, mut b)) in pairs(&port) {
        assert!(b.recv_or_end(&mut []).unwrap(), "{kind}");
        a.send(&[]).unwrap();
        a.send(&[&[], &[]]).unwrap();
        a.finish();
        assert!(!b.recv_or_end(&mut [0]).unwrap(), "{kind}");
    }
}

#[test]
fn the_congestion_control_of_an_accepted_lane_can_be_chosen() {
    let port = Port::open();
    let (_a, b) = port.private_lane();
    b.set_congestion(&Congestion::Named("reno".to_owned())).unwrap();
    assert_eq!(b.congestion(), "reno");
    let (local, _) = LaneStream::pair().unwrap();
    assert_eq!((local.congestion(), local.peer_addr()), ("none".to_owned(), None));
}

#[test]
fn a_handle_does_not_keep_the_connection_open() {
    let port = Port::open();
    let (a, mut b) = port.safe_lane();
    let handle = a.handle();
    drop(a);
    assert!(!b.recv_or_end(&mut [0]).unwrap());
    handle.close();
}
