//! The places of the limits of a transfer, which travel as numbers.

use longhaul_proto::Message;
use longhaul_proto::wire::message::Limiting;

/// Limits travel by their place in the enum too.
#[test]
fn limits_keep_their_places() {
    let names = (0..10).map(|place| match Message::decode(&[28, 1, place, 0]) {
        Ok(Message::Limiting(Limiting { by: Some(limited) })) => limited.by.name(),
        other => panic!("{place}: {other:?}"),
    });
    let want = "source hash cpu network:loss network:window network:rate receiver target memory network:shared";
    assert!(names.eq(want.split(' ')));
    assert!(Message::decode(&[28, 1, 10, 0]).is_err(), "a new limit needs its place here");
}
