//! Lanes that were answered and say nothing: what they cost the port.

use std::collections::HashMap;

use longhaul_core::LaneId;
use longhaul_net::{Congestion, Protection, PublicKey};
use tokio::sync::mpsc::unbounded_channel;

use super::super::desk::tests::SESSION;
use super::super::join::UdpTerms;
use super::*;
use crate::lanes::event::LaneEvent;
use crate::lanes::registry::{Expecting, Registry};

#[test]
fn lanes_that_say_nothing_have_the_seats_of_their_key_and_end_with_their_session() {
    let mut world = World::new();
    let ((terms, runtime), registry) = (world.acceptor(), Registry::with_private_seats(2));
    let registered = registry.expect(SESSION, expecting(terms, 3));
    // Dropped at the end: an end that is gone is another thing than one that says nothing.
    let (mut dialled, mut brought) = (Vec::new(), Vec::new());
    for id in 0..3 {
        let (lane, accepted) = world.lane_of(&registry, id);
        assert_eq!(lane.id, LaneId(id));
        let (registry, accepted) = (registry.clone(), accepted.unwrap_or_else(|e| panic!("{e:?}")));
        dialled.push(lane);
        brought.push(runtime.spawn(async move { registry.bring_udp(accepted).await }));
    }
    let begun = Instant::now();
    runtime.block_on(brought.remove(0)).expect("no panic");
    assert!(begun.elapsed() < GIVES_WAY, "the first one makes room for the third: {:?}", begun.elapsed());
    assert!(brought.iter().all(|lane| !lane.is_finished()), "there are two seats");
    drop(registered);
    brought.into_iter().for_each(|lane| runtime.block_on(lane).expect("no panic"));
    assert!(begun.elapsed() < GIVES_WAY, "nobody waits for lanes of a session that is over: {:?}", begun.elapsed());
}

/// A session with these secrets that expects so many lanes, and hears of none.
pub(super) fn expecting(terms: UdpTerms, lanes: u32) -> Expecting {
    Expecting {
        key: terms.key.clone(),
        peer: PublicKey::from_bytes([2; 32]),
        protection: Protection::Private,
        open: Expecting::ids(lanes),
        next: lanes,
        congestion: Congestion::Auto,
        listener: Arc::new(unbounded_channel::<LaneEvent>().0),
        way_told: None,
        udp: Some(terms),
        slab: None,
        joining: HashMap::new(),
    }
}

/// A lane that is not closed waits for 10 s.
const GIVES_WAY: Duration = Duration::from_secs(8);
