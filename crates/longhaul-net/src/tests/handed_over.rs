//! Promises of lanes that are handed over to another process: they go on as if nothing had
//! happened, and nothing but such a lane can be handed over.

use super::{Port, identity, meanwhile, noise, private_pair};
use crate::{GreetLimits, Greeted, LaneOptions, LaneParts, LaneStream, ServerTls};

/// A port whose server hands lanes over.
fn port() -> Port {
    Port::serving(GreetLimits { deadline: super::PATIENCE, ..GreetLimits::default() }, ServerTls::handing_over)
}

/// The lane, as another process would put it together from what it was sent.
fn handed_over(lane: LaneStream) -> LaneStream {
    let (socket, parts) = lane.take_apart().expect("a lane that can be handed over");
    let sent = serde_json::to_vec(&parts).unwrap();
    let parts: LaneParts = serde_json::from_slice(&sent).unwrap();
    LaneStream::put_together(socket, parts).unwrap()
}

/// Sends bytes both ways at once, and the end.
fn converse(mut near: LaneStream, mut far: LaneStream) {
    let other = meanwhile(move || {
        for round in 0..40 {
            near.send(&[&noise(round, 50_000)]).unwrap();
            let mut heard = vec![0; 50_000];
            near.recv_exact(&mut heard).unwrap();
            assert!(heard == noise(round + 100, 50_000), "round {round}");
        }
        near.finish();
        assert!(!near.recv_or_end(&mut [0]).unwrap());
    });
    for round in 0..40 {
        let mut heard = vec![0; 50_000];
        far.recv_exact(&mut heard).unwrap();
        assert!(heard == noise(round, 50_000), "round {round}");
        far.send(&[&noise(round + 100, 50_000)]).unwrap();
    }
    assert!(!far.recv_or_end(&mut [0]).unwrap());
    far.finish();
    other();
}

#[test]
fn a_private_lane_goes_on_and_renews_its_keys_on_both_sides() {
    let (mut near, far) = port().private_lane();
    let mut far = handed_over(far);
    for lane in [&mut near, &mut far] {
        lane.private_mut().unwrap().records().set_limit(5);
    }
    converse(near, far);
}

#[test]
fn a_safe_lane_goes_on() {
    let (near, far) = port().safe_lane();
    converse(near, handed_over(far));
}

#[test]
fn bytes_that_came_right_behind_the_handshake_go_with_the_lane() {
    let port = port();
    let mut near = LaneStream::dial_private(port.addr, &identity(), port.key, &LaneOptions::default()).unwrap();
    near.send(&[b"early words"]).unwrap();
    let Greeted::PrivateLane(far, _) = port.next().unwrap() else { panic!("a private lane") };
    let mut far = handed_over(far);
    let mut heard = [0; 11];
    far.recv_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"early words");
}

#[test]
fn a_lane_of_a_server_that_hands_none_over_stays() {
    assert!(Port::open().private_lane().1.take_apart().is_none());
    assert!(private_pair().0.take_apart().is_none());
}
