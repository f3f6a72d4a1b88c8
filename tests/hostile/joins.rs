//! Lanes that try to join a session they do not belong to: recorded, reflected, unproved,
//! unprotected, late.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use longhaul_core::LaneId;
use longhaul_core::limits::TRIAL_BYTES_MAX;
use longhaul_net::{Identity, LaneOptions, LaneStream, NetErrorKind, SAFE_MAGIC};
use longhaul_proto::Message;
use longhaul_proto::join::{Claim, JoinKey, OPENING_BYTES, Opening, Prover, REPLY_BYTES};
use longhaul_proto::wire::data::Header;
use longhaul_proto::wire::message::{LaneClosed, Protect};

use super::peer::{Client, plain_opening, push_to};
use super::proxy::{Gate, Kind, Way, hold_after};
use super::{Direction, Wired, assert_serves, daemon_addr};
use crate::fixture::{ALL_RIGHTS, DaemonConfig, Host, Site, files, tree};

/// The bytes that the dialler of a `safe` lane says until it is joined: magic, opening, proof.
const JOIN_BYTES: usize = SAFE_MAGIC.len() + OPENING_BYTES + 32;

#[test]
fn a_recorded_join_is_good_for_no_second_connection() {
    let (recorded, gate) = (Arc::new(Mutex::new(Vec::new())), Gate::default());
    let (recorder, held) = (recorded.clone(), gate.clone());
    let wired = Wired::new(move |kind, way| {
        let (recorder, mut hold) = (recorder.clone(), hold_after(1 << 20, held.clone()));
        (kind == Kind::SafeLane && way == Way::ToDaemon).then(|| -> Box<dyn super::Meddler> {
            Box::new(move |bytes: &mut Vec<u8>| {
                recorder.lock().unwrap().extend_from_slice(bytes);
                hold.pass(bytes);
            })
        })
    });
    wired.source(Direction::Push, |path| files::make(path, 1, 3 << 20));
    let running = wired.run(Direction::Push, "safe", "threads").start();
    gate.wait_reached();
    let join = recorded.lock().unwrap()[..JOIN_BYTES].to_vec();
    let heard = dialogue(&wired.site, &join);
    assert_eq!(heard.len(), 0, "the lane's id is used: no word for a second connection, but {heard:?}");
    gate.open();
    let outcome = running.finish();
    assert_eq!(outcome.code, 0, "the session itself goes on: {outcome}");
    wired.assert_copied(Direction::Push, "after a replay");
}

/// Says `bytes` to the daemon and reads its answer to the end.
fn dialogue(site: &Site, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(daemon_addr(site)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut heard = Vec::new();
    // A reset is as good an end as any.
    let _ = stream.read_to_end(&mut heard);
    heard
}

/// A `safe` session that waits for its first lane, and the daemon's reply to an opening for it.
fn opening(site: &Site) -> (Client, TcpStream, [u8; REPLY_BYTES]) {
    let mut client = super::client(site);
    client.agree(longhaul_proto::wire::message::Transfer { protect: Protect::Safe, ..push_to("data", "") });
    let (stream, reply) = open_again(site, &client);
    (client, stream, reply)
}

fn open_again(site: &Site, client: &Client) -> (TcpStream, [u8; REPLY_BYTES]) {
    let mut stream = TcpStream::connect(daemon_addr(site)).unwrap();
    stream.write_all(&SAFE_MAGIC).unwrap();
    stream.write_all(&plain_opening(client.session(), LaneId(0), &NONCE)).unwrap();
    let mut reply = [0; REPLY_BYTES];
    stream.read_exact(&mut reply).unwrap();
    (stream, reply)
}

/// The proof that a dialler with the key would give to this reply.
fn proof(client: &Client, reply: &[u8; REPLY_BYTES]) -> [u8; 32] {
    let acceptor_nonce = reply[..16].try_into().unwrap();
    let claim = Claim { session: client.session(), lane: LaneId(0), dialer_nonce: NONCE, acceptor_nonce };
    JoinKey(client.speech.control.exporter).prove(Prover::Dialer, &claim)
}

/// Shows a proof. Returns whether the daemon closed the lane silently.
fn is_closed(mut stream: TcpStream, proof: &[u8]) -> bool {
    stream.write_all(proof).unwrap();
    stream.read(&mut [0]).unwrap_or(0) == 0
}

/// Shows a proof, and ends the lane in order. Returns whether the daemon says over control that it
/// stood.
fn joins(client: &mut Client, mut stream: TcpStream, proof: &[u8]) -> bool {
    stream.write_all(proof).unwrap();
    stream.write_all(&Header::End.encode()).unwrap();
    let closed = client.speech.hear_until(|message| match message {
        Message::LaneClosed(LaneClosed { lane, landed: 0 }) => Some(lane),
        _ => None,
    });
    closed == Some(LaneId(0))
}

#[test]
fn a_proof_is_good_for_its_own_connection_only() {
    let site = Site::new();
    let (mut client, first, to_first) = opening(&site);
    let (second, to_second) = open_again(&site, &client);
    assert_ne!(to_first[..16], to_second[..16], "the acceptor draws a nonce for each connection");
    assert!(is_closed(second, &proof(&client, &to_first)), "a proof for another connection was taken");
    let right = proof(&client, &to_first);
    assert!(joins(&mut client, first, &right), "the right proof was not taken");
    let opening = [&SAFE_MAGIC[..], &plain_opening(client.session(), LaneId(0), &NONCE)].concat();
    assert_eq!(dialogue(&site, &opening).len(), 0, "an id is good once");
}

#[test]
fn a_lane_joins_when_both_trials_are_over_and_none_is_longer_than_a_packet() {
    let site = Site::new();
    let mut client = super::client(&site);
    client.agree(longhaul_proto::wire::message::Transfer { protect: Protect::Safe, ..push_to("data", "") });
    let opening = |trial| Opening { session: client.session(), lane: LaneId(0), nonce: NONCE, trial }.encode();
    let too_long = [&SAFE_MAGIC[..], &opening(TRIAL_BYTES_MAX + 1)].concat();
    assert_eq!(dialogue(&site, &too_long).len(), 0, "a trial of more than a packet was begun");
    let mut stream = TcpStream::connect(daemon_addr(&site)).unwrap();
    stream.write_all(&[&SAFE_MAGIC[..], &opening(TRIAL_BYTES_MAX)].concat()).unwrap();
    let (mut reply, mut trial) = ([0; REPLY_BYTES], vec![0; TRIAL_BYTES_MAX as usize]);
    stream.read_exact(&mut reply).unwrap();
    stream.read_exact(&mut trial).unwrap();
    stream.write_all(&proof(&client, &reply)).unwrap();
    let last = trial.pop();
    stream.write_all(&trial).unwrap();
    // Proved and not tried: the id is still good for another connection.
    let (second, to_second) = open_again(&site, &client);
    let right = proof(&client, &to_second);
    assert!(joins(&mut client, second, &right), "an id was used by a lane that did not join");
    stream.write_all(&[last.unwrap()]).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap_or(0), 0, "two lanes joined under one id");
}

#[test]
fn the_daemons_own_proof_sent_back_to_it_is_refused() {
    let site = Site::new();
    let (_client, stream, reply) = opening(&site);
    assert!(is_closed(stream, &reply[16..]), "a reflected proof was taken");
    assert_serves(&site, "a reflected proof");
}

#[test]
fn a_private_session_takes_no_lane_without_its_key_and_protection() {
    let site = Site::new();
    let mut client = super::client(&site);
    client.agree(push_to("data", ""));
    let mut plain = TcpStream::connect(daemon_addr(&site)).unwrap();
    plain.write_all(&[&SAFE_MAGIC[..], &plain_opening(client.session(), LaneId(0), &NONCE)].concat()).unwrap();
    assert_eq!(plain.read(&mut [0; 64]).unwrap_or(0), 0, "a plain lane was answered");
    let stranger = Identity::generate().unwrap();
    let (addr, key) = (daemon_addr(&site), client.speech.control.peer_key);
    let mut lane = LaneStream::dial_private(addr, &stranger, key, &LaneOptions::default()).unwrap();
    let claim = Claim { session: client.session(), lane: LaneId(0), dialer_nonce: NONCE, acceptor_nonce: [0; 16] };
    let right = JoinKey(client.speech.control.exporter).prove(Prover::PrivateDialer, &claim);
    let _ = lane.send(&[&plain_opening(client.session(), LaneId(0), &NONCE), &right]);
    let heard = lane.recv_exact(&mut [0]);
    assert!(matches!(heard, Err(ref e) if e.kind() != NetErrorKind::TimedOut), "a lane under another key: {heard:?}");
    client.lane();
}

#[test]
fn safe_lanes_to_a_root_that_is_private_only_are_denied() {
    let (client, server) = (Host::new(), Host::new());
    let root = server.make_dir("data");
    files::make(root.join("stands"), 2, 1000);
    let daemon = DaemonConfig::default()
        .root_protected("data", &root, ALL_RIGHTS, "private")
        .client("tester", client.key(), &[("data", ALL_RIGHTS)])
        .start(&server);
    files::make(client.path("f"), 1, 1000);
    let before = tree::Tree::of(&root);
    for (verb, from, to) in [("push", "f", daemon.url("data/f").as_str()), ("pull", &daemon.url("data/stands"), "g")] {
        let run = client.run([verb, "--json", "--protect", "safe", "--peer-key", daemon.key(), from, to]);
        let outcome = run.fail(4);
        assert_eq!(outcome.events_of("fault")[0]["code"], "denied", "{outcome}");
    }
    tree::assert_same(&before, &tree::Tree::of(&root), "after safe lanes were denied");
    assert!(!client.path("g").exists());
}

const NONCE: [u8; 16] = [3; 16];
