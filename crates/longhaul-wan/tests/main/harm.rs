//! Tests of the harm that a path does to packets besides taking time. Takes the kit's networks.

use std::net::IpAddr;

use crate::kit::{Datagrams, content, datagram, forward, link, number, stream, wan};

#[test]
#[ignore = "needs root"]
fn damage_that_the_checksum_tells_never_reaches_a_program() {
    let wan = wan(vec![link("corrupt=0.2")]);
    let arrived = Datagrams::new(&wan, 0).send_all(&wan, 2_000, 600);
    let counted = forward(&wan);
    assert!((310..=490).contains(&counted.corrupted), "{counted:?}");
    assert_eq!(arrived.len() as u64, 2_000 - counted.corrupted);
    assert!(arrived.iter().all(|found| *found == datagram(number(found), 600)));
}

#[test]
#[ignore = "needs root"]
fn silent_damage_reaches_the_program_one_bit_at_a_time() {
    let wan = wan(vec![link("corrupt-silently=0.2")]);
    let arrived = Datagrams::new(&wan, 0).send_all(&wan, 2_000, 600);
    let changed = arrived.iter().zip(0..).map(|(found, sent)| {
        let pairs = found.iter().zip(datagram(sent, 600));
        pairs.map(|(found, sent)| (found ^ sent).count_ones()).sum::<u32>()
    });
    let changed: Vec<_> = changed.filter(|bits| *bits > 0).collect();
    assert_eq!(arrived.len(), 2_000, "all pass the receiver's checks");
    assert_eq!(changed.len() as u64, forward(&wan).corrupted_silently);
    assert!((310..=490).contains(&changed.len()) && changed.iter().all(|bits| *bits == 1), "{changed:?}");
}

#[test]
#[ignore = "needs root"]
fn tcp_carries_a_stream_through_everything_that_can_be_told() {
    let words = "rate=200Mbit/s,rtt=2ms,loss=1e-3@3,duplicate=2e-3,reorder=2e-3,corrupt=2e-3";
    let wan = wan(vec![link(words)]);
    for far in [IpAddr::from(wan.far().address(0)), wan.far().address6(0).expect("a kernel with IPv6").into()] {
        let (arrived, _) = stream(&wan, far, 10_000_000);
        assert!(arrived == content(10_000_000), "over {far}");
    }
    let counted = forward(&wan);
    for seen in [counted.dropped_loss, counted.duplicated, counted.reordered, counted.corrupted] {
        assert!(seen > 0, "{counted:?}");
    }
    assert!(counted.frames < counted.delivered_frames, "super-packets were cut: {counted:?}");
    assert_eq!((counted.dropped_emulator, counted.dropped_device), (0, 0));
}

#[test]
#[ignore = "needs root"]
fn silent_damage_in_a_stream_is_not_noticed_by_tcp() {
    let wan = wan(vec![link("rate=200Mbit/s,rtt=2ms,corrupt-silently=1e-2")]);
    let (arrived, _) = stream(&wan, wan.far().address(0).into(), 10_000_000);
    let bits = arrived.iter().zip(content(10_000_000)).map(|(found, sent)| u64::from((found ^ sent).count_ones()));
    let (bits, counted) = (bits.sum::<u64>(), forward(&wan));
    assert_eq!(arrived.len(), 10_000_000);
    // A damaged segment that is sent again, and was not needed, changes nothing.
    assert!(bits > 0 && bits <= counted.corrupted_silently, "{bits} of {counted:?}");
}

#[test]
#[ignore = "needs root"]
fn late_packets_are_overtaken_and_copies_follow_at_once() {
    let wan = wan(vec![link("rtt=1ms,reorder=0.02@20ms,duplicate=0.1")]);
    let arrived = Datagrams::new(&wan, 0).send_all(&wan, 1_000, 40);
    let counted = forward(&wan);
    assert_eq!(arrived.len() as u64, 1_000 + counted.duplicated, "{counted:?}");
    let overtaken = arrived.windows(2).filter(|pair| number(&pair[1]) < number(&pair[0])).count();
    assert!(overtaken > 0 && counted.reordered > 0 && counted.duplicated > 0, "{overtaken} in {counted:?}");
}
