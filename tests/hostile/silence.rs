//! Lanes that fall silent in the middle while everything else lives: the peer on control, other lanes, this side's own work.

use std::time::{Duration, Instant};

use longhaul_core::digest::digest_of;
use longhaul_core::{Attempt, BundleId, ChunkIndex, DigestKind, FileId, FileOffset, Unit};
use longhaul_proto::Message;
use longhaul_proto::wire::data::{Header, Piece};
use longhaul_proto::wire::message::{Heartbeat, Transfer};

use super::proxy::{Gate, Kind, hold_after};
use super::{Direction, End, Wired, at_once, client, peer, stocked};
use crate::fixture::{PROTECTIONS, files, tree};

#[test]
fn a_lane_that_is_held_in_the_middle_of_a_chunk_ends_the_session_though_control_lives() {
    let cases = PROTECTIONS.into_iter().flat_map(|protect| Direction::BOTH.map(|direction| (protect, direction)));
    at_once(4, cases, |(protect, direction)| {
        let gate = Gate::default();
        let holding = gate.clone();
        let wired = Wired::new(move |kind, way| {
            let payload = kind != Kind::Control && way == direction.way();
            payload.then(|| hold_after(2 << 20, holding.clone()))
        });
        wired.source(direction, |path| files::make(path, 1, (6 << 20) + 17));
        let outcome = wired.run(direction, protect, "threads").fail(5);
        assert!(!wired.end(direction, End::To).exists(), "{outcome}");
        gate.open();
        wired.assert_absent(direction, &outcome.to_string());
    });
}

#[test]
fn a_lane_that_falls_silent_is_noticed_while_another_keeps_the_session_busy() {
    let site = stocked();
    let mut client = client(&site);
    client.agree(Transfer { lanes: 2, ..peer::push_to("data", "got") });
    let small = |n: u64| peer::file(&format!("small-{n}"), 5);
    let entries = [peer::file("large", 2 << 20)].into_iter().chain((1..=ROUNDS).map(small)).collect();
    client.speech.say(&peer::page(0, entries));
    let (mut silent, mut busy) = (client.join(0), client.join(1));
    client.speech.hear_until(|message| matches!(message, Message::WantChunks(_)).then_some(())).expect("wanted");
    // Half a chunk, and nothing more.
    let half = peer::chunk(FileId(0), ChunkIndex(0), Attempt::FIRST, 1 << 20);
    silent.send(&[&Header::Piece(half).encode(), &files::bytes(1, 512 << 10)]).expect("sent");
    let since = Instant::now();
    for n in 1..=ROUNDS {
        let unit = peer::packed(&[(FileId(n), b"12345")]);
        let digest = digest_of(&unit, DigestKind::Root, FileOffset(0));
        let piece = Piece { unit: Unit::Bundle(BundleId(n)), ..peer::bundle(unit.len() as u64) };
        peer::send_unit(&mut busy, piece, &unit, digest.bytes());
        client.speech.say(&Message::Heartbeat(Heartbeat { stalled: false }));
        let refused = client.speech.hear_until(|message| match message {
            Message::Refuse(fault) => Some(Some(fault)),
            Message::Verdicts(_) => Some(None),
            _ => None,
        });
        if let Some(fault) = refused.expect("a verdict or a refusal") {
            assert_eq!(fault.code.name(), "lost", "{fault}");
            assert!(since.elapsed() >= Duration::from_secs(30), "given up after {:?}", since.elapsed());
            drop((client, silent, busy));
            site.daemon.wait_log("ended: push to data/got");
            assert_eq!(tree::leftovers(site.root()), [""; 0]);
            return;
        }
        // The pace of the busy lane: it must outlast the patience for the silent one.
        std::thread::sleep(Duration::from_secs(1));
    }
    panic!("{ROUNDS} s of silence on a lane were not noticed:\n{}", site.daemon.log());
}

/// Files that the busy lane brings, one a second.
const ROUNDS: u64 = 50;
