//! The sender's end by itself: how units are laid out in messages, when something is missing, and
//! what a receiver may not say.

use longhaul_core::limits::UDP_UNITS_OPEN_MAX;
use longhaul_proto::udp::UdpBreach;
use longhaul_proto::udp::packet::{OuterBody, Serial, SizeSearch, UnitCut};
use longhaul_proto::udp::plan::{Description, MessageRoom, Purpose, UdpPlan};
use longhaul_proto::udp::sending::UdpSending;
use longhaul_proto::udp::status::{Counts, LargestArrived, PartUnit, Status, UnitStanding};

use super::hands::*;

#[test]
fn a_unit_goes_in_messages_of_equal_datagrams_with_its_description_first_and_its_digest_last() {
    let room = MessageRoom { bytes: 1232 * 4, datagrams: 64 };
    for (bytes, messages_before_digest, want) in [
        (0, 0, vec![(0, Description::Last)]),
        (0, 9, vec![(0, Description::Last), (0, Description::Last)]),
        (10, 0, vec![(1, Description::First)]),
        (1000, 0, vec![(1, Description::Last)]),
        (PIECE, 0, vec![(1, Description::Last)]),
        (PIECE * 3, 0, vec![(3, Description::Last)]),
        (PIECE * 3, 9, vec![(3, Description::Last), (0, Description::Last)]),
        (PIECE * 3 + 1, 0, vec![(3, Description::Last), (1, Description::None)]),
        (PIECE * 4, 1, vec![(3, Description::Last), (1, Description::Last)]),
        (PIECE * 8, 1, vec![(3, Description::Last), (4, Description::None), (1, Description::Last)]),
        (PIECE * 6 + 500, 1, vec![(3, Description::Last), (4, Description::None), (0, Description::Last)]),
        (PIECE * 5 + 500, 9, vec![(3, Description::Last), (3, Description::None), (0, Description::Last)]),
    ] {
        let (mut sending, mut next, mut sent) = (sender(1), 0, Vec::new());
        let unit = sending.begin(bytes).expect("it is admitted");
        for message in 0..10 {
            if message >= messages_before_digest {
                sending.digest_known(unit.serial);
            }
            let Some(plan) = sending.next(ms(1), room) else { continue };
            sending.sent(ms(1), &plan, number(next));
            next += plan.count() as u64;
            sent.push((pieces(&plan).0.len(), pieces(&plan).1));
        }
        assert_eq!(sent, want, "{bytes} bytes, the digest after {messages_before_digest} messages");
    }
}

#[test]
fn a_piece_is_missing_once_later_packets_have_overtaken_it_by_an_eighth_of_a_round_trip() {
    // Message n is sent at 10 n ms: packets 0 to 2 at 10, 3 to 5 at 20, ...
    let room = MessageRoom { bytes: 1232 * 3, datagrams: 64 };
    for (largest, waited_ms, want) in [
        // Packets of one message are not overtaken before the last of them has waited.
        (2, 0, vec![]),
        (2, 9, vec![]),
        (2, 10, vec![1]),
        // The second message is 10 ms younger, which is an eighth of 80 ms.
        (4, 0, vec![1]),
        (5, 9, vec![1]),
        (5, 10, vec![1, 4]),
        (8, 0, vec![1, 4]),
    ] {
        let (mut sending, mut next) = (sender(1), 0);
        sending.begin(PIECE * 12).expect("it is admitted");
        sending.digest_known(Serial(0));
        for turn in 1..=5 {
            let plan = sending.next(ms(10 * turn), room).expect("a message");
            sending.sent(ms(10 * turn), &plan, number(next));
            next += plan.count() as u64;
        }
        // The first message has the description as its third packet: pieces 1 and 3 are packets 1
        // and 4.
        let mut status = status(largest, vec![part(5, 2)], vec![gap(1), gap(3)]);
        status.largest = status.largest.map(|largest| LargestArrived { waited_us: waited_ms * 1000, ..largest });
        let now = ms(10 * (largest / 3 + 1) + 80 + u64::from(waited_ms));
        let heard = sending.status(now, number(0), &status).expect("a sound status");
        let missing: Vec<u16> = want.iter().map(|packet| if *packet == 1 { 1 } else { 3 }).collect();
        assert_eq!(heard.sample.map(|sample| sample.lost), Some(want.len() as u32), "{largest} {waited_ms}");
        match sending.next(now, ROOM) {
            Some(plan) if !want.is_empty() => assert_eq!(pieces(&plan), (missing, Description::None, Purpose::Repair)),
            other => assert!(want.is_empty() && other.is_none(), "{largest} {waited_ms}: {other:?}"),
        }
    }
}

#[test]
fn the_round_trip_is_that_of_the_largest_packet_without_its_waiting() {
    let (mut sending, mut next) = (sender(1), 0);
    sending.begin(PIECE).expect("it is admitted");
    flush(&mut sending, ms(10), &mut next, ROOM);
    let mut first = status(0, vec![UnitStanding::Absent(1)], vec![]);
    first.largest = Some(LargestArrived { number: number(0), waited_us: 30_000, at_us: 7 });
    let sample = |sending: &mut UdpSending, now, at, status: &Status| {
        sending.status(ms(now), number(at), status).expect("a sound status").sample
    };
    let heard = sample(&mut sending, 120, 0, &first).expect("it is new");
    assert_eq!((heard.round_trip, heard.arrived_us), (Some(ROUND_TRIP), Some(7)));
    assert_eq!(sample(&mut sending, 150, 1, &first).map(|sample| sample.round_trip), Some(None), "no larger one came");
    assert_eq!(sample(&mut sending, 150, 1, &first), None, "a status that came twice, or late");
}

#[test]
fn a_status_that_came_before_the_last_message_left_makes_no_question_come_sooner() {
    let (mut sending, mut next) = (sender(1), 0);
    sending.begin(PIECE * 6).expect("it is admitted");
    sending.digest_known(Serial(0));
    for at in [10, 95] {
        let plan = sending.next(ms(at), MessageRoom { bytes: 1232 * 4, datagrams: 64 }).expect("a message");
        sending.sent(ms(at), &plan, number(next));
        next += plan.count() as u64;
    }
    let status = status(3, vec![part(3, 0)], vec![]);
    let heard = sending.status(ms(90), number(0), &status).expect("a sound status");
    assert_eq!(heard.sample.map(|sample| (sample.round_trip, sample.lost)), Some((Some(ROUND_TRIP), 0)));
    // 80 + 4 x 30 of the round trip, 20 + 2 of the report.
    assert_eq!(sending.timeout(), Some(ms(95 + 222)));
}

#[test]
fn a_receiver_that_is_silent_is_asked_again_each_time_after_twice_as_long() {
    let (mut sending, mut next) = (sender(1), 0);
    sending.begin(PIECE).expect("it is admitted");
    sending.digest_known(Serial(0));
    flush(&mut sending, ms(0), &mut next, ROOM);
    // 80 + 4 x 40 of the round trip, 20 + 2 of the report.
    let (mut due, mut wait) = (262, 262);
    for _ in 0..4 {
        assert_eq!(sending.timeout(), Some(ms(due)));
        assert!(sending.next(ms(due - 1), ROOM).is_none());
        let asked = flush(&mut sending, ms(due), &mut next, ROOM);
        assert!(asked.len() == 1 && asked[0].is_word());
        assert_eq!(pieces(&asked[0]), (vec![], Description::Last, Purpose::Ask));
        wait *= 2;
        due += wait;
    }
    // An answer shows that the piece is missing, as the question overtook it.
    let heard = sending.status(ms(due), number(0), &status(next - 1, vec![UnitStanding::Absent(1)], vec![]));
    assert_eq!(heard.expect("a sound status").sample.map(|sample| sample.lost), Some(1));
}

#[test]
fn an_idle_lane_gives_a_sign_of_life_and_a_finished_one_ends() {
    let (mut sending, mut next) = (sender(4), 0);
    assert_eq!((sending.timeout(), sending.next(ms(4999), ROOM)), (Some(ms(5000)), None));
    let sign = flush(&mut sending, ms(5000), &mut next, ROOM);
    assert_eq!((&sign, sign[0].is_word()), (&vec![UdpPlan::Probe(SizeSearch(0), 32)], true));
    assert!(UdpPlan::End(0).is_word() && !UdpPlan::Probe(SizeSearch(0), 1372).is_word());
    assert_eq!(sending.timeout(), Some(ms(10_000)));
    sending.finish();
    assert_eq!(sending.begin(1), None);
    assert_eq!(flush(&mut sending, ms(5001), &mut next, ROOM), [UdpPlan::End(0)]);
    assert_eq!(sending.timeout(), Some(ms(5081)), "END is said each round trip");
    let ended = Status { ended: true, admit: Serial(4), ..status(1, vec![], vec![]) };
    assert!(sending.status(ms(5081), number(0), &ended).expect("a sound status").ended);
    assert_eq!((sending.timeout(), sending.next(ms(99_999), ROOM)), (None, None));
}

#[test]
fn a_repair_in_the_tail_is_sent_three_times_and_not_once_it_has_landed() {
    let (mut sending, mut next) = (sender(2), 0);
    sending.begin(PIECE * 3).expect("it is admitted");
    sending.digest_known(Serial(0));
    flush(&mut sending, ms(0), &mut next, ROOM);
    let mut heard = status(3, vec![part(3, 1)], vec![gap(1)]);
    heard.largest = heard.largest.map(|largest| LargestArrived { waited_us: 10_000, ..largest });
    sending.status(ms(90), number(0), &heard).expect("a sound status");
    let mut purposes = Vec::new();
    for now in 90..110 {
        let sent = flush(&mut sending, ms(now), &mut next, ROOM);
        purposes.extend(sent.iter().map(|plan| (now, pieces(plan).0, pieces(plan).2)));
    }
    let want = [(90, Purpose::Repair), (95, Purpose::Copy), (100, Purpose::Copy)].map(|(at, why)| (at, vec![1], why));
    assert_eq!(purposes, want);
    assert_eq!((sending.counts().resent, sending.counts().copies), (3, 2));

    // With something new to send there is no tail.
    let (mut sending, mut next) = (sender(2), 0);
    sending.begin(PIECE * 3).expect("it is admitted");
    sending.digest_known(Serial(0));
    flush(&mut sending, ms(0), &mut next, ROOM);
    sending.status(ms(90), number(0), &heard).expect("a sound status");
    sending.begin(PIECE).expect("it is admitted");
    let plan = sending.next(ms(90), ROOM).expect("a repair");
    assert_eq!(pieces(&plan).2, Purpose::Repair);
    sending.sent(ms(90), &plan, number(next));
    next += plan.count() as u64;
    let sent = flush(&mut sending, ms(96), &mut next, ROOM);
    assert!(sent.iter().all(|plan| pieces(plan).2 == Purpose::New), "{sent:?}");
}

#[test]
fn a_status_of_what_was_never_sent_ends_the_lane() {
    let setup = || {
        let (mut sending, mut next) = (sender(4), 0);
        sending.begin(PIECE * 3).expect("it is admitted");
        sending.begin(PIECE * 3).expect("it is admitted");
        sending.digest_known(Serial(0));
        let room = MessageRoom { bytes: 1232 * 4, datagrams: 4 };
        for _ in 0..2 {
            let plan = sending.next(ms(0), room).expect("a message");
            sending.sent(ms(0), &plan, number(next));
            next += plan.count() as u64;
        }
        // Unit 0 was sent whole (packets 0 to 3), unit 1 without its digest (4 to 7).
        sending
    };
    let first = |unit| status(7, vec![unit], vec![]);
    let counted =
        |packets, bytes| Status { counts: Counts { packets, bytes, ..Counts::default() }, ..first(part(3, 0)) };
    let second = |unit| status(7, vec![UnitStanding::Whole(1), unit], vec![]);
    let lacking = |reach| match part(reach, 0) {
        UnitStanding::Part(part) => UnitStanding::Part(PartUnit { lacks_unit: true, ..part }),
        other => other,
    };
    let later = UnitStanding::Part(PartUnit {
        cut: UnitCut(1),
        ..match lacking(1) {
            UnitStanding::Part(part) => part,
            _ => unreachable!(),
        }
    });
    for (case, status, is_sound) in [
        ("all of a unit that was sent", first(UnitStanding::Whole(1)), true),
        ("all pieces of one whose digest was not", second(lacking(3)), true),
        (
            "a packet that was not sent",
            Status { largest: status(8, vec![], vec![]).largest, ..first(part(3, 0)) },
            false,
        ),
        ("a piece that was not sent", first(part(4, 0)), false),
        ("a digest that was not sent", second(part(3, 0)), false),
        ("a whole unit that was not sent whole", second(UnitStanding::Whole(1)), false),
        ("units that were not begun", first(UnitStanding::Absent(3)), false),
        ("whole units that were not begun", Status { below: Serial(3), ..status(7, vec![], vec![]) }, false),
        ("a cut that was not made", second(later), false),
        ("less credit than before", Status { admit: Serial(3), ..first(part(3, 0)) }, false),
        ("as many packets as were sent", counted(8, 8 * 65_507), true),
        ("more packets than were sent", counted(9, 0), false),
        ("more bytes than were sent", counted(8, 8 * 65_507 + 1), false),
        ("the end of an open lane", Status { ended: true, ..first(UnitStanding::Whole(1)) }, false),
    ] {
        let mut sending = setup();
        let heard = sending.status(ms(80), number(0), &status);
        assert_eq!(heard.is_ok(), is_sound, "{case}: {heard:?}");
    }
    let mut sending = setup();
    sending.status(ms(80), number(0), &first(UnitStanding::Whole(1))).expect("a sound status");
    let older = Status { largest: status(6, vec![], vec![]).largest, ..first(UnitStanding::Whole(1)) };
    assert_eq!(sending.status(ms(90), number(1), &older), Err(UdpBreach::Status), "a smaller largest packet");
    for sinks in [counted(6, 700), counted(7, 699)] {
        let mut sending = setup();
        sending.status(ms(80), number(0), &counted(7, 700)).expect("a sound status");
        assert_eq!(sending.status(ms(90), number(1), &sinks), Err(UdpBreach::Status), "a total that sinks");
    }
}

#[test]
fn credit_bounds_what_is_begun() {
    let mut sending = sender(2);
    assert_eq!((sending.begin(1).is_some(), sending.begin(1).is_some(), sending.begin(1)), (true, true, None));
    let more = Status { admit: Serial(3), ..Status::default() };
    sending.status(ms(1), number(0), &more).expect("a sound status");
    assert_eq!(
        (sending.credit(), sending.begin(1).map(|unit| unit.serial), sending.begin(1)),
        (1, Some(Serial(2)), None)
    );
    let mut sending = sender(u32::MAX);
    assert_eq!(sending.credit(), UDP_UNITS_OPEN_MAX, "a first credit beyond what may be open");
    assert!((0..UDP_UNITS_OPEN_MAX).all(|_| sending.begin(0).is_some()) && sending.begin(0).is_none());
}

#[test]
fn what_a_body_of_a_plan_says_is_what_is_sent() {
    let (mut sending, mut next) = (sender(1), 0);
    sending.begin(PIECE + 9).expect("it is admitted");
    sending.digest_known(Serial(0));
    let sent = flush(&mut sending, ms(0), &mut next, ROOM);
    let datagrams: Vec<_> = sent[0].datagrams().collect();
    assert_eq!(datagrams[0].body, OuterBody::Data(place(0, 0)));
    assert!(sent.iter().all(|plan| !plan.is_word()));
    assert_eq!((datagrams[0].at.clone(), datagrams[0].bytes, datagrams[0].plain_bytes()), (0..PIECE, 1232, 1192));
    assert_eq!((datagrams[1].at.clone(), datagrams[1].bytes), (PIECE..PIECE + 9, 49));
    assert_eq!((sent[0].count(), sent[0].bytes(), sent[0].segment_bytes()), (2, 1232 + 49, 1232));
    assert_eq!(
        sent[1].datagrams().map(|datagram| (datagram.body, datagram.plain_bytes())).collect::<Vec<_>>(),
        [(OuterBody::Unit(UnitCut(0)), 104)]
    );
}
