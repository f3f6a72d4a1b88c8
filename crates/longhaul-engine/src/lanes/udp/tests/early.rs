//! Lanes that are asked for before their session has begun.

use std::net::IpAddr;

use longhaul_core::LaneId;
use longhaul_proto::udp::join::{UdpJoin, early_session};

use super::super::desk::UdpSessions;
use super::super::desk::tests::{SESSION, header};
use super::super::early::EarlyJoins;
use super::seats::expecting;
use super::*;
use crate::lanes::registry::Registry;

#[test]
fn a_lane_that_was_asked_for_before_its_session_is_answered_as_that_begins() {
    let (mut world, registry) = (World::new(), Registry::default());
    let begun = registry.begun();
    let joining = world.dialling_early(0);
    let knock = world.knock();
    assert!(world.desk.hear(&knock, &world.knocks, &registry).is_none());
    world.desk.keep(knock, &registry);
    assert!(world.desk.hear_kept(&world.knocks, &registry).is_empty());
    let registered = registry.expect(SESSION, expecting(world.acceptor().0, 5));
    assert!(begun.has_changed().expect("a registry"));
    let (_, accepted) = world.desk.hear_kept(&world.knocks, &registry).pop().expect("it is expected");
    let accepted = accepted.unwrap_or_else(|e| panic!("{e:?}"));
    assert_eq!(accepted.session, SESSION);
    let mut dialled = joining.recv_timeout(PATIENCE).expect("an answer").unwrap_or_else(|e| panic!("{e:?}"));
    dialled.lane.send.send_alone(&header(&dialled), &[0; 5]).expect("sent");
    assert!(accepted.first().is_ok(), "both ends have the same keys");
    assert_eq!(registry.early_count(), 1);
    let early_name = early_session(&world.dialer.key);
    let is_had = |name, lane| registry.terms(name, LaneId(lane)).is_some();
    assert!(is_had(&early_name, 3) && is_had(&SESSION, 4) && !is_had(&early_name, 4));
    drop(registered);
    assert_eq!(registry.early_count(), 0, "a session that is over leaves no name");
}

#[test]
fn knocks_of_strangers_wait_in_a_bounded_place_of_which_each_host_has_a_share() {
    let world = &mut World::new();
    let _joining = world.dialling_early(0);
    let honest = world.knock();
    let now = Instant::now();
    let keep = |joins: &mut EarlyJoins, host: u8, port: u16, lane: u32| {
        let join = UdpJoin { lane: LaneId(lane), ..UdpJoin::claimed(&honest.datagram).expect("a join") };
        let mut knock = honest.clone();
        knock.from = ([192, 0, 2, host], port).into();
        joins.keep(now, knock, join);
    };
    let ports_of = |joins: &mut EarlyJoins, host: [u8; 4]| -> Vec<u16> {
        let all = joins.take(now, |_| true);
        all.iter().filter(|knock| knock.from.ip() == IpAddr::from(host)).map(|knock| knock.from.port()).collect()
    };
    let mut joins = EarlyJoins::default();
    (1..=100).for_each(|port| keep(&mut joins, 1, port, 0));
    (0..3).for_each(|_| keep(&mut joins, 2, 7, 3));
    keep(&mut joins, 2, 8, 4);
    assert_eq!(joins.take(now, |join| join.lane == LaneId(3)).len(), 1, "who asks again has one place");
    assert_eq!(ports_of(&mut joins, [192, 0, 2, 1]), (69..=100).collect::<Vec<u16>>());
    // Hosts beyond all places: the oldest go.
    (1..=200).for_each(|host| keep(&mut joins, host, 1, 0));
    assert_eq!(joins.take(now, |_| true).len(), 128);
    keep(&mut joins, 1, 1, 0);
    assert!(joins.take(now + Duration::from_secs(10), |_| true).is_empty(), "its dialler asks no more");
}
