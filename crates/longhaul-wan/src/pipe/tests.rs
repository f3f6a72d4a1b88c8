//! Tests of the fates of frames in one direction, played without clock or device. Takes sample
//! shapes; must not know the pipe's fields.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::packet::{TCP, UDP};
use crate::path::{Blocked, Loss, Queue};
use crate::sample::{Sample, V4};
use crate::{Change, Rate};

const MS: Time = 1_000_000;

/// A frame of TCP with `segments` segments of 1448 bytes: 1500 as packets.
fn frame(segments: usize) -> Shape {
    Shape::read(&Sample { version: V4, protocol: TCP, payload: 1448 * segments, segment: 1448 }.frame()).unwrap()
}

fn pipe(path: Path) -> Pipe<u32> {
    Pipe::new(path, Fates::seeded(1))
}

fn path(text: &str) -> Path {
    let mut path = Path::default();
    text.parse::<Change>().unwrap().apply(&mut path);
    path
}

/// All arrivals until nothing is left, each when it is due: time, frame, first segment, number of
/// segments.
fn play(pipe: &mut Pipe<u32>) -> Vec<(Time, u32, u16, u16)> {
    let mut arrived = Vec::new();
    while let Some(now) = pipe.poll_timeout() {
        while let Some(delivery) = pipe.poll_delivery(now) {
            if let Delivery::Deliver(piece) = delivery {
                arrived.push((now, piece.of, piece.cut.first, piece.cut.count));
            }
        }
    }
    arrived
}

#[test]
fn a_super_packet_to_which_nothing_happens_arrives_in_one_piece_after_the_delay() {
    let mut pipe = pipe(path("delay=50ms"));
    assert_eq!(pipe.handle_frame(7, 1, frame(45)), 1);
    assert_eq!(play(&mut pipe), [(50 * MS + 7, 1, 0, 45)]);
    let counted = pipe.counters();
    assert_eq!((counted.packets, counted.bytes, counted.frames), (45, 45 * 1500, 1));
    assert_eq!((counted.delivered_packets, counted.delivered_bytes), (45, 45 * 1500));
}

#[test]
fn the_rate_is_charged_for_each_segments_headers_and_overhead() {
    for (overhead, bytes) in [("0", 1500), ("38", 1538)] {
        let mut pipe = pipe(path(&format!("rate=1Gbit/s,delay=10ms,overhead={overhead}")));
        pipe.handle_frame(0, 1, frame(40));
        pipe.handle_frame(0, 2, frame(1));
        assert_eq!(play(&mut pipe), [(10 * MS + 40 * bytes * 8, 1, 0, 40), (10 * MS + 41 * bytes * 8, 2, 0, 1)]);
    }
}

#[test]
fn an_idle_link_saves_nothing_up() {
    let mut pipe = pipe(path("rate=1Gbit/s"));
    for at in [0, 100 * MS] {
        pipe.handle_frame(at, 1, frame(1));
        pipe.handle_frame(at, 2, frame(1));
        assert_eq!(play(&mut pipe), [(at + 12_000, 1, 0, 1), (at + 24_000, 2, 0, 1)]);
    }
}

#[test]
fn a_slow_link_delivers_the_first_segment_before_the_last_is_sent() {
    let mut pipe = pipe(path("rate=12Mbit/s"));
    pipe.handle_frame(0, 1, frame(3));
    assert_eq!(play(&mut pipe), [(MS, 1, 0, 1), (2 * MS, 1, 1, 1), (3 * MS, 1, 2, 1)]);
}

#[test]
fn what_does_not_fit_the_queue_is_dropped_at_the_tail_packet_by_packet() {
    let mut pipe = pipe(path("rate=1Gbit/s,queue=15000"));
    assert_eq!(pipe.handle_frame(0, 1, frame(14)), 1);
    assert_eq!(pipe.handle_frame(0, 2, frame(1)), 0);
    // Three packets have been sent by then, so three fit.
    assert_eq!(pipe.handle_frame(36_000, 3, frame(9)), 1);
    let arrived: Vec<_> = play(&mut pipe).into_iter().map(|(_, of, first, count)| (of, first, count)).collect();
    assert_eq!(arrived, [(1, 0, 10), (3, 0, 3)]);
    let counted = pipe.counters();
    assert_eq!((counted.dropped_queue, counted.queue_bytes_max), (4 + 1 + 6, 15_000));
}

#[test]
fn a_policer_passes_what_its_bucket_holds_at_once_and_drops_the_rest() {
    let mut pipe = pipe(path("rate=1Gbit/s,delay=10ms,queue=bucket:15000"));
    assert_eq!(pipe.handle_frame(0, 1, frame(14)), 1);
    assert_eq!(pipe.poll_idle(0), 0, "nothing waits, so each frame is looked at when it comes");
    // The bucket has got three packets back by then.
    assert_eq!(pipe.handle_frame(36_000, 2, frame(9)), 1);
    assert_eq!(play(&mut pipe), [(10 * MS, 1, 0, 10), (10 * MS + 36_000, 2, 0, 3)]);
    assert_eq!(pipe.counters().dropped_queue, 4 + 6);
    // It is full again, and no fuller.
    assert_eq!(pipe.handle_frame(1000 * MS, 3, frame(14)), 1);
    assert_eq!(play(&mut pipe), [(1010 * MS, 3, 0, 10)]);
}

#[test]
fn a_packet_larger_than_the_queue_passes_when_nothing_waits() {
    let mut pipe = pipe(path("rate=1Gbit/s,queue=100"));
    pipe.handle_frame(0, 1, frame(3));
    assert_eq!(play(&mut pipe).len(), 1);
    assert_eq!(pipe.counters().dropped_queue, 2);
}

/// Numbers of the wire packets that arrive, when packets come in frames of these sizes, a
/// millisecond apart.
fn arrivals(path: &Path, sizes: &[usize], packets: usize) -> Vec<usize> {
    let mut pipe = pipe(path.clone());
    let (mut firsts, mut sent, mut now) = (HashMap::new(), 0, 0);
    for (of, size) in sizes.iter().cycle().enumerate() {
        let size = (*size).min(packets - sent);
        if size == 0 {
            break;
        }
        firsts.insert(of as u32, sent);
        pipe.handle_frame(now, of as u32, frame(size));
        (sent, now) = (sent + size, now + MS);
    }
    let numbers = |(_, of, first, count): (Time, u32, u16, u16)| {
        let start = firsts[&of] + usize::from(first);
        start..start + usize::from(count)
    };
    play(&mut pipe).into_iter().flat_map(numbers).collect()
}

#[test]
fn fates_belong_to_wire_packets_however_they_are_bundled() {
    for setting in ["loss=0.05", "loss=0.05@3", "loss=0.02,duplicate=0.05,corrupt=0.03,corrupt-silently=0.03"] {
        let path = path(setting);
        let single = arrivals(&path, &[1], 5000);
        for sizes in [&[45][..], &[1, 2, 40, 7], &[2]] {
            let bundled = arrivals(&path, sizes, 5000);
            assert_eq!(bundled, single, "{setting} in {sizes:?}");
        }
    }
}

#[test]
fn a_lost_segment_costs_its_time_on_the_wire_and_nothing_else() {
    // A seed that loses the third packet of the first forty, and no other.
    let lossy = Path { loss: Loss::Independent(0.02), ..path("rate=1Gbit/s") };
    let seed = (0..).find(|seed| {
        let mut dice = Fates::seeded(*seed);
        (0..40).all(|index| dice.throw(&lossy).lost == (index == 2))
    });
    let mut pipe: Pipe<u32> = Pipe::new(lossy, Fates::seeded(seed.unwrap()));
    assert_eq!(pipe.handle_frame(0, 1, frame(40)), 2);
    assert_eq!(play(&mut pipe), [(2 * 12_000, 1, 0, 2), (40 * 12_000, 1, 3, 37)]);
    assert_eq!(pipe.counters().dropped_loss, 1);
}

#[test]
fn duplicates_come_right_behind_and_late_packets_behind_others() {
    let mut pipe = pipe(path("delay=10ms,duplicate=1"));
    assert_eq!(pipe.handle_frame(0, 1, frame(2)), 4);
    let order: Vec<_> = play(&mut pipe).into_iter().map(|(_, _, first, _)| first).collect();
    assert_eq!((order, pipe.counters().duplicated), (vec![0, 0, 1, 1], 2));

    pipe.change(20 * MS, path("delay=10ms,reorder=1@5ms"));
    pipe.handle_frame(20 * MS, 2, frame(1));
    pipe.change(20 * MS, path("delay=10ms"));
    pipe.handle_frame(21 * MS, 3, frame(1));
    assert_eq!(play(&mut pipe), [(31 * MS, 3, 0, 1), (35 * MS, 2, 0, 1)]);
    assert_eq!(pipe.counters().reordered, 1);
}

#[test]
fn damage_befalls_one_packet_and_spares_those_without_payload_if_it_is_silent() {
    let mut pipe = pipe(path("corrupt-silently=1"));
    pipe.handle_frame(0, 1, frame(3));
    pipe.handle_frame(0, 2, frame(0));
    let mut damaged = Vec::new();
    while let Some(Delivery::Deliver(piece)) = pipe.poll_delivery(0) {
        damaged.push((piece.cut.count, piece.cut.damage.is_some()));
    }
    assert_eq!(damaged, [(1, true), (1, true), (1, true), (1, false)]);
    assert_eq!(pipe.counters().corrupted_silently, 3);
}

#[test]
fn large_packets_fall_into_the_hole_and_the_small_last_one_passes() {
    let mut pipe = pipe(path("hole=1499"));
    let shape = Shape::read(&Sample { version: V4, protocol: TCP, payload: 3000, segment: 1448 }.frame()).unwrap();
    pipe.handle_frame(0, 1, shape);
    assert_eq!(play(&mut pipe), [(0, 1, 2, 1)]);
    assert_eq!(pipe.counters().dropped_hole, 2);
    pipe.change(0, path("hole=1500"));
    pipe.handle_frame(0, 2, shape);
    assert_eq!(play(&mut pipe), [(0, 2, 0, 3)]);
}

#[test]
fn a_firewall_swallows_the_protocols_it_is_told_to() {
    let udp = Shape::read(&Sample { version: V4, protocol: UDP, payload: 100, segment: 0 }.frame()).unwrap();
    let (quic, strange) = (Shape { protocol: Protocol::Udp, ..udp }, Shape { protocol: Protocol::StrangeUdp, ..udp });
    let icmp = Shape { protocol: Protocol::Icmp, transport: 0, ..udp };
    let all = [frame(1), quic, icmp, strange];
    let none = Blocked::default();
    let blocked = |blocked| Path { blocked, ..Path::default() };
    for (path, passing) in [
        (blocked(Blocked { tcp: true, ..none }), &[1, 2, 3][..]),
        (blocked(Blocked { udp: true, ..none }), &[0, 2]),
        (blocked(Blocked { icmp: true, ..none }), &[0, 1, 3]),
        (blocked(Blocked { strange_udp: true, ..none }), &[0, 1, 2]),
    ] {
        let mut pipe = pipe(path);
        for (of, shape) in (0..).zip(all) {
            pipe.handle_frame(0, of, shape);
        }
        let passed: Vec<_> = play(&mut pipe).into_iter().map(|(_, of, ..)| of).collect();
        assert_eq!((&passed[..], pipe.counters().dropped_blocked), (passing, 4 - passing.len() as u64));
    }
}

#[test]
fn an_outage_takes_what_is_sent_and_what_is_under_way() {
    let mut pipe = pipe(path("delay=10ms"));
    pipe.handle_frame(0, 1, frame(2));
    pipe.handle_frame(8 * MS, 2, frame(2));
    pipe.change(5 * MS, path("delay=10ms,link=down"));
    assert_eq!(pipe.handle_frame(9 * MS, 3, frame(2)), 0);
    assert_eq!(pipe.poll_delivery(10 * MS), Some(Delivery::Discard(1)), "its hold ends all the same");
    pipe.change(15 * MS, path("delay=10ms"));
    assert_eq!(play(&mut pipe), [(18 * MS, 2, 0, 2)]);
    assert_eq!(pipe.counters().dropped_outage, 4);
}

#[test]
fn a_new_rate_applies_to_what_waits_and_to_the_rest_of_what_is_being_sent() {
    let mut pipe = pipe(path("rate=12Mbit/s"));
    pipe.handle_frame(0, 1, frame(1));
    pipe.handle_frame(0, 2, frame(1));
    pipe.change(MS / 2, path("rate=120Mbit/s"));
    assert_eq!(play(&mut pipe), [(MS / 2 + MS / 20, 1, 0, 1), (MS / 2 + MS / 20 + MS / 10, 2, 0, 1)]);
    pipe.handle_frame(10 * MS, 3, frame(1));
    pipe.handle_frame(10 * MS, 4, frame(1));
    pipe.change(10 * MS, path("delay=1ms"));
    assert_eq!(play(&mut pipe), [(11 * MS, 3, 0, 1), (11 * MS, 4, 0, 1)], "without a rate nothing waits");
}

#[test]
fn a_shorter_delay_lets_new_packets_overtake_old_ones() {
    let mut pipe = pipe(path("delay=50ms"));
    pipe.handle_frame(0, 1, frame(1));
    pipe.change(MS, path("delay=5ms"));
    pipe.handle_frame(MS, 2, frame(1));
    assert_eq!(play(&mut pipe), [(6 * MS, 2, 0, 1), (50 * MS, 1, 0, 1)]);
}

#[test]
fn the_rate_is_taken_until_what_waits_has_been_sent() {
    let mut pipe = pipe(path("rate=1Gbit/s,delay=9ms"));
    pipe.handle_frame(MS, 1, frame(3));
    assert_eq!((pipe.poll_idle(MS), pipe.poll_idle(MS + 30_000)), (MS + 36_000, MS + 36_000));
    assert_eq!(self::pipe(Path::default()).poll_idle(MS), MS);
}

#[test]
fn lateness_is_told() {
    let mut pipe = pipe(path("delay=1ms"));
    pipe.handle_frame(0, 1, frame(1));
    assert!(pipe.poll_delivery(MS + 2_500).is_some());
    let counted = pipe.counters();
    assert_eq!((counted.late_us_max, counted.late_ns_sum), (2, 2_500));
    assert!((counted.late_us_mean() - 2.5).abs() < 1e-9);
}

#[test]
fn what_found_no_memory_or_no_device_is_counted_against_the_emulator() {
    let mut pipe = pipe(Path::default());
    pipe.handle_overflow(frame(4));
    pipe.handle_frame(0, 1, frame(3));
    let Some(Delivery::Deliver(piece)) = pipe.poll_delivery(0) else { panic!("it is due") };
    pipe.handle_refusal(&piece);
    let counted = pipe.counters();
    assert_eq!((counted.packets, counted.dropped_emulator, counted.delivered_packets), (7, 7, 0));
    assert_eq!((counted.delivered_bytes, counted.delivered_frames), (0, 0));
}

proptest! {
    #[test]
    fn every_packet_is_delivered_or_counted_as_dropped_and_every_hold_ends(
        seed: u64,
        shares in proptest::array::uniform6(0.0f64..0.3),
        rate in 1u64..2000,
        (queue, polices) in (1000u64..200_000, proptest::bool::ANY),
        delay_us in 0u64..20_000,
        frames in proptest::collection::vec((1usize..46, 0u64..2_000_000), 1..60),
        down in proptest::bool::ANY,
    ) {
        let [loss, duplicate, reorder, corrupt, corrupt_silently, burst] = shares;
        let path = Path {
            rate: (rate > 200).then(|| Rate::mbit(rate)),
            delay: Duration::from_micros(delay_us),
            queue: if polices { Queue::Bucket(queue) } else { Queue::Bytes(queue) },
            loss: if burst > 0.15 { Loss::in_bursts(loss, 3.0) } else { Loss::Independent(loss) },
            duplicate, reorder, corrupt, corrupt_silently,
            ..Path::default()
        };
        let mut pipe = Pipe::new(path.clone(), Fates::seeded(seed));
        let (mut now, mut holds, mut ended) = (0, 0, 0);
        for (at, (segments, gap)) in frames.iter().enumerate() {
            now += gap;
            if down && at == frames.len() / 2 {
                pipe.change(now, Path { down: true, rate: Some(Rate::mbit(50)), ..path.clone() });
            }
            holds += pipe.handle_frame(now, at as u32, frame(*segments));
            ended += std::iter::from_fn(|| pipe.poll_delivery(now)).count();
        }
        while let Some(now) = pipe.poll_timeout() {
            ended += std::iter::from_fn(|| pipe.poll_delivery(now)).count();
        }
        prop_assert_eq!(holds as usize, ended);
        let counted = pipe.counters();
        prop_assert_eq!(counted.packets + counted.duplicated, counted.delivered_packets + counted.dropped());
        prop_assert!(counted.queue_bytes_max <= queue.max(1500));
    }
}
