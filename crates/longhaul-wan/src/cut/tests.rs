//! Tests of the cutting of super-packets, against a segmentation written down independently. Takes
//! sample packets; must not use the cutter's own helpers.

use super::*;
use crate::sample::{Sample, V4, V6};

const KINDS: [(u8, u8); 4] = [(V4, TCP), (V6, TCP), (V4, UDP), (V6, UDP)];

fn rendered(frame: &[u8], cut: Cut) -> Vec<u8> {
    let shape = Shape::read(frame).unwrap();
    let mut cutter = Cutter::new();
    let (head, body) = cutter.render(frame, &shape, &cut);
    [head, body].concat()
}

fn cut(first: u16, count: u16) -> Cut {
    Cut { first, count, damage: None }
}

/// Whether the checksums hold that the receiver will check: the IP header's, and the transport's if
/// it is not left to the device.
fn is_sound(sample: &Sample, frame: &[u8]) -> bool {
    let packet = &frame[OFFLOAD_BYTES..];
    let ip = sample.version == V6 || Sum::default().add(&packet[..20]).checksum() == 0;
    let start = sample.ip_headers();
    let sum = [packet[start + sample.sum_offset()], packet[start + sample.sum_offset() + 1]];
    let transport = if frame[0] & NEEDS_CHECKSUM == 0 {
        sample.pseudo(packet).add(&packet[start..]).checksum() == 0
    } else {
        u16::from_be_bytes(sum) == sample.pseudo(packet).folded()
    };
    ip && transport
}

fn payload(sample: &Sample, frame: &[u8]) -> Vec<u8> {
    frame[OFFLOAD_BYTES + sample.ip_headers() + sample.transport_headers()..].to_vec()
}

#[test]
fn what_is_whole_is_not_touched() {
    for (version, protocol) in KINDS {
        let frame = Sample { version, protocol, payload: 5000, segment: 1000 }.frame();
        assert_eq!(rendered(&frame, cut(0, 5)), frame);
    }
}

#[test]
fn every_run_of_every_super_packet_is_a_sound_packet_with_its_own_payload() {
    for (version, protocol) in KINDS {
        let sample = Sample { version, protocol, payload: 4500, segment: 1000 };
        let frame = sample.frame();
        let whole = payload(&sample, &frame);
        for first in 0..5 {
            for count in 1..=5 - first {
                let run = rendered(&frame, cut(first, count));
                let (from, to) = (usize::from(first) * 1000, (usize::from(first + count) * 1000).min(4500));
                assert_eq!(payload(&sample, &run), whole[from..to], "{first}+{count}");
                assert!(is_sound(&sample, &run), "{version} {protocol} {first}+{count}");
                let shape = Shape::read(&run).unwrap();
                assert_eq!(shape.segments, count, "still a super-packet of that many");
                assert_eq!(shape.bytes as usize, run.len() - OFFLOAD_BYTES);
            }
        }
    }
}

#[test]
fn a_run_says_its_length_place_and_end_as_the_kernel_would() {
    let frame = Sample { version: V4, protocol: TCP, payload: 4500, segment: 1000 }.frame();
    for (first, count, sequence, flags) in [
        (0, 1, 0xffff_ff00u32, 0x90u8),
        (0, 2, 0xffff_ff00, 0x90),
        (1, 2, 0xffff_ff00u32.wrapping_add(1000), 0x10),
        (3, 2, 0xffff_ff00u32.wrapping_add(3000), 0x19),
        (4, 1, 0xffff_ff00u32.wrapping_add(4000), 0x19),
    ] {
        let run = rendered(&frame, cut(first, count));
        let packet = &run[OFFLOAD_BYTES..];
        assert_eq!(packet[2..4], (packet.len() as u16).to_be_bytes(), "total length");
        assert_eq!(packet[4..6], 0xfffeu16.wrapping_add(first).to_be_bytes(), "identification");
        assert_eq!(packet[24..28], sequence.to_be_bytes(), "sequence of {first}+{count}");
        assert_eq!(packet[33], flags, "flags of {first}+{count}");
    }
}

#[test]
fn a_run_of_udp_says_the_length_of_all_its_datagrams() {
    let frame = Sample { version: V6, protocol: UDP, payload: 4500, segment: 1000 }.frame();
    let run = rendered(&frame, cut(3, 2));
    let packet = &run[OFFLOAD_BYTES..];
    assert_eq!(packet[4..6], 1508u16.to_be_bytes(), "IPv6 payload length");
    assert_eq!(packet[44..46], 1508u16.to_be_bytes(), "UDP length");
    assert_eq!(Offload::read(&run).unwrap().segment, 1000);
}

#[test]
fn a_bit_that_is_told_changes_the_packet_and_not_its_checksum() {
    for (version, protocol) in KINDS {
        for segment in [0, 1000] {
            let sample = Sample { version, protocol, payload: 2500, segment };
            let frame = sample.frame();
            let last = Shape::read(&frame).unwrap().segments - 1;
            for bit in 0..20_000 {
                let told = rendered(&frame, Cut { damage: Some(Damage::Told(bit)), ..cut(last, 1) });
                assert_eq!(told[0] & NEEDS_CHECKSUM, 0, "the receiver has to look itself");
                assert!(!is_sound(&sample, &told), "{version} {protocol} {segment} {bit}");
            }
        }
    }
}

#[test]
fn a_silent_bit_changes_the_payload_and_passes_every_check() {
    for (version, protocol) in KINDS {
        for segment in [0, 1000] {
            let sample = Sample { version, protocol, payload: 2500, segment };
            let frame = sample.frame();
            let last = Shape::read(&frame).unwrap().segments - 1;
            let plain = payload(&sample, &rendered(&frame, cut(last, 1)));
            for bit in 0..20_000 {
                let silent = rendered(&frame, Cut { damage: Some(Damage::Silent(bit)), ..cut(last, 1) });
                assert!(is_sound(&sample, &silent), "{version} {protocol} {segment} {bit}");
                let bits = plain.iter().zip(payload(&sample, &silent)).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
                assert_eq!(bits, 1);
            }
        }
    }
}

#[test]
fn a_packet_without_payload_is_never_changed_silently() {
    let frame = Sample { version: V4, protocol: TCP, payload: 0, segment: 0 }.frame();
    assert_eq!(rendered(&frame, Cut { damage: Some(Damage::Silent(7)), ..cut(0, 1) }), frame);
    let told = rendered(&frame, Cut { damage: Some(Damage::Told(7)), ..cut(0, 1) });
    assert_ne!(told, frame);
}

#[test]
fn a_datagram_without_a_checksum_gets_one_so_that_the_damage_can_be_told() {
    let sample = Sample { version: V4, protocol: UDP, payload: 100, segment: 0 };
    let mut frame = sample.frame();
    frame[OFFLOAD_BYTES + 26..OFFLOAD_BYTES + 28].fill(0);
    let told = rendered(&frame, Cut { damage: Some(Damage::Told(3)), ..cut(0, 1) });
    assert!(told[OFFLOAD_BYTES + 26..OFFLOAD_BYTES + 28] != [0, 0] && !is_sound(&sample, &told));
    let silent = rendered(&frame, Cut { damage: Some(Damage::Silent(3)), ..cut(0, 1) });
    assert_eq!(silent[OFFLOAD_BYTES + 26..OFFLOAD_BYTES + 28], [0, 0]);
}

#[test]
fn other_protocols_are_damaged_behind_their_ip_header() {
    let mut frame = Sample { version: V4, protocol: UDP, payload: 100, segment: 0 }.frame();
    frame[OFFLOAD_BYTES + 9] = 1;
    for bit in 0..1000 {
        let told = rendered(&frame, Cut { damage: Some(Damage::Told(bit)), ..cut(0, 1) });
        assert_eq!(told[..OFFLOAD_BYTES + 20], frame[..OFFLOAD_BYTES + 20]);
        assert_ne!(told, frame);
    }
}
