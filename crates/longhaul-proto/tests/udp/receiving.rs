//! The receiver's end by itself: where pieces go, when something is reported, and what a sender may
//! not say.

use longhaul_core::limits::UDP_UNITS_OPEN_MAX;
use longhaul_proto::Timestamp;
use longhaul_proto::udp::UdpBreach;
use longhaul_proto::udp::packet::{DataPlace, PieceBytes, SendTime, Serial, SizeSearch, UnitBody, UnitCut};
use longhaul_proto::udp::plan::MessageRoom;
use longhaul_proto::udp::receiving::{Arrived, Look, UdpReceiving};
use longhaul_proto::udp::status::{LargestArrived, Status};

use super::hands::*;

#[test]
fn a_piece_is_opened_into_its_slot_only_where_it_lacks_and_fits() {
    let mut receiving = receiver(3);
    let full = PIECE as usize;
    assert_eq!(receiving.look(&place(1, 2), full), Look::First);
    let landed = receiving.landed(arrived(0, ms(1)), &place(1, 2), full).expect("it lands");
    assert_eq!((landed.at, landed.whole), (2 * PIECE..3 * PIECE, None));
    let other = DataPlace { piece_bytes: PieceBytes::new(1200).expect("in bounds"), ..place(1, 3) };
    let later = DataPlace { cut: UnitCut(1), ..place(1, 3) };
    let largest = (SLOT / PIECE) as u16;
    for (case, place, bytes, want) in [
        ("the next one", place(1, 3), full, Look::Land(3 * PIECE..4 * PIECE)),
        ("a short last one", place(1, 4), 7, Look::Land(4 * PIECE..4 * PIECE + 7)),
        ("a short one before one that landed", place(1, 1), 7, Look::Wrong),
        ("one that landed", place(1, 2), full, Look::Seen),
        ("of another size", other, full, Look::Wrong),
        ("of a later cut", later, full, Look::First),
        ("of another unit", place(2, 0), full, Look::First),
        ("of a unit that is not admitted", place(3, 0), full, Look::Beyond),
        (
            "the last in the slot",
            place(1, largest - 1),
            full,
            Look::Land((u64::from(largest) - 1) * PIECE..u64::from(largest) * PIECE),
        ),
        ("one beyond the slot", place(1, largest), full, Look::Wrong),
        ("one beyond the slot of a new unit", place(2, largest), full, Look::Wrong),
        ("longer than its pieces", place(1, 3), full + 1, Look::Wrong),
        ("an empty one", place(1, 3), 0, Look::Wrong),
    ] {
        assert_eq!(receiving.look(&place, bytes), want, "{case}");
    }
    assert_eq!((receiving.counts().twice, receiving.counts().wrong), (0, 7), "nothing was opened");
    // Its length is known now.
    receiving.unit(arrived(1, ms(1)), UnitCut(0), &body(1, 3 * PIECE + 5, None)).expect("a sound unit");
    for (piece, bytes, want) in [
        (3, 5, Look::Land(3 * PIECE..3 * PIECE + 5)),
        (3, 4, Look::Wrong),
        (3, full, Look::Wrong),
        (4, 5, Look::Wrong),
        (1, full, Look::Land(PIECE..2 * PIECE)),
    ] {
        assert_eq!(receiving.look(&place(1, piece), bytes), want, "piece {piece}, {bytes} bytes");
    }
}

#[test]
fn of_pieces_whose_place_has_landed_each_eighth_is_opened_and_counts_for_eight_if_it_is_forged() {
    let mut receiving = receiver(1);
    receiving.landed(arrived(9, ms(1)), &place(0, 0), PIECE as usize).expect("it lands");
    let mut opened = 0;
    for _ in 0..160 {
        assert_eq!(receiving.look(&place(0, 0), PIECE as usize), Look::Seen);
        if receiving.samples() {
            receiving.refused_sample();
            opened += 1;
        }
    }
    assert_eq!((opened, receiving.counts().wrong, receiving.counts().twice), (20, 160, 0));
}

#[test]
fn a_unit_is_whole_with_all_pieces_and_its_digest_in_any_order() {
    let bytes = PIECE + 5;
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1], [0, 3, 1, 2]] {
        let mut receiving = receiver(2);
        let mut whole = Vec::new();
        for (step, what) in (0..).zip(order) {
            let came = arrived(step, ms(step));
            let landed = match what {
                0 => receiving.landed(came, &place(0, 0), PIECE as usize).expect("it lands").whole,
                1 => receiving.landed(came, &place(0, 1), 5).expect("it lands").whole,
                2 => receiving.unit(came, UnitCut(0), &body(0, bytes, None)).expect("a sound unit").whole,
                _ => receiving.unit(came, UnitCut(0), &body(0, bytes, Some([9; 32]))).expect("a sound unit").whole,
            };
            whole.push(landed);
        }
        // Without the digest it goes on; the description without it is not needed.
        let last = order.iter().rposition(|what| *what != 2).expect("there are others");
        let want: Vec<_> = (0..4).map(|at| (at == last).then_some(body(0, bytes, Some([9; 32])))).collect();
        assert_eq!(whole, want, "{order:?}");
        assert_eq!((receiving.below(), receiving.look(&place(0, 0), 5)), (Serial(1), Look::Seen));
    }
}

#[test]
fn a_new_cut_forgets_the_pieces_of_the_old_one_and_these_are_dropped() {
    let mut receiving = receiver(1);
    receiving.unit(arrived(0, ms(1)), UnitCut(0), &body(0, 3 * PIECE, Some([1; 32]))).expect("a sound unit");
    receiving.landed(arrived(1, ms(1)), &place(0, 0), PIECE as usize).expect("it lands");
    let anew = DataPlace { cut: UnitCut(1), piece_bytes: PieceBytes::new(1800).expect("in bounds"), ..place(0, 0) };
    assert_eq!(receiving.look(&anew, 1800), Look::First);
    receiving.landed(arrived(2, ms(1)), &anew, 1800).expect("it lands");
    assert_eq!(receiving.look(&place(0, 1), PIECE as usize), Look::Seen);
    let old = receiving.unit(arrived(3, ms(1)), UnitCut(0), &body(0, 3 * PIECE, Some([1; 32]))).expect("it is late");
    assert_eq!((old.first, old.whole), (None, None));
    let described = UnitBody { piece_bytes: anew.piece_bytes, ..body(0, 3 * PIECE, Some([1; 32])) };
    let news = receiving.unit(arrived(4, ms(1)), UnitCut(1), &described).expect("a sound unit");
    assert_eq!((news.first, news.whole), (Some(described), None));
    let last = DataPlace { piece: 1, ..anew };
    assert_eq!(receiving.landed(arrived(5, ms(1)), &last, 1776).expect("it lands").whole, Some(described));
}

#[test]
fn a_unit_has_the_same_length_and_digest_in_every_cut() {
    let mut receiving = receiver(1);
    let cut = |cut| DataPlace { cut: UnitCut(cut), ..place(0, 0) };
    receiving.unit(arrived(0, ms(1)), UnitCut(0), &body(0, 2 * PIECE + 9, Some([1; 32]))).expect("a sound unit");
    for (case, piece, bytes, want) in [
        ("a full one", 1, PIECE, Look::First),
        ("the last one", 2, 9, Look::First),
        ("a short one within", 1, 9, Look::Wrong),
        ("one beyond the end", 3, PIECE, Look::Wrong),
        ("one across the end", 2, PIECE, Look::Wrong),
    ] {
        assert_eq!(receiving.look(&DataPlace { piece, ..cut(1) }, bytes as usize), want, "{case}");
    }
    // What was said of it two cuts ago counts, though a description without the digest came since.
    receiving.landed(arrived(1, ms(1)), &cut(1), PIECE as usize).expect("it lands");
    receiving.unit(arrived(2, ms(1)), UnitCut(1), &body(0, 2 * PIECE + 9, None)).expect("a sound unit");
    receiving.landed(arrived(3, ms(1)), &cut(2), PIECE as usize).expect("it lands");
    let other = body(0, 2 * PIECE + 9, Some([2; 32]));
    assert_eq!(receiving.unit(arrived(4, ms(1)), UnitCut(2), &other), Err(UdpBreach::Unit));
}

#[test]
fn a_sender_that_contradicts_itself_ends_the_lane() {
    let setup = || {
        let mut receiving = receiver(3);
        receiving.landed(arrived(0, ms(1)), &place(0, 2), 7).expect("it lands");
        receiving.landed(arrived(1, ms(1)), &place(1, 2), PIECE as usize).expect("it lands");
        receiving.unit(arrived(2, ms(1)), UnitCut(0), &body(2, 9, Some([1; 32]))).expect("a sound unit");
        receiving
    };
    let larger = UnitBody { piece_bytes: PieceBytes::new(2000).expect("in bounds"), ..body(1, SLOT, None) };
    for (case, cut, body, want) in [
        ("as its short piece says", 0, body(0, 2 * PIECE + 7, None), None),
        ("longer than its short piece says", 0, body(0, 2 * PIECE + 8, None), Some(UdpBreach::Unit)),
        ("as long as its pieces", 0, body(1, 3 * PIECE, None), None),
        ("shorter than its pieces", 0, body(1, 3 * PIECE - 1, None), Some(UdpBreach::Unit)),
        ("of other pieces", 0, larger, Some(UdpBreach::Unit)),
        ("of other pieces in a new cut", 1, larger, None),
        ("the same again", 0, body(2, 9, None), None),
        ("of another length", 0, body(2, 8, None), Some(UdpBreach::Unit)),
        ("of another digest", 0, body(2, 9, Some([2; 32])), Some(UdpBreach::Unit)),
        ("the same in a new cut", 1, body(2, 9, Some([1; 32])), None),
        ("of another length in a new cut", 1, body(2, 8, None), Some(UdpBreach::Unit)),
        ("of another digest in a new cut", 1, body(2, 9, Some([2; 32])), Some(UdpBreach::Unit)),
        ("not as long as its short piece of an old cut", 1, body(0, 2 * PIECE, None), Some(UdpBreach::Unit)),
        ("larger than the slot", 0, body(1, SLOT + 1, None), Some(UdpBreach::NotAdmitted)),
        ("not admitted", 0, body(3, 9, None), Some(UdpBreach::NotAdmitted)),
    ] {
        let heard = setup().unit(arrived(3, ms(1)), UnitCut(cut), &body);
        assert_eq!(heard.err(), want, "{case}");
    }
    for (units, want) in [(2, Some(UdpBreach::End)), (3, None), (4, Some(UdpBreach::End))] {
        assert_eq!(setup().end(arrived(4, ms(1)), units).err(), want, "{units} units");
    }
    let mut receiving = setup();
    receiving.admit(ms(1), 1);
    receiving.end(arrived(4, ms(1)), 3).expect("a sound end");
    assert_eq!(receiving.end(arrived(5, ms(1)), 4), Err(UdpBreach::End), "another end");
    assert_eq!(receiving.look(&place(3, 0), 1), Look::Beyond, "a unit behind the end");
}

#[test]
fn a_status_is_due_soon_after_a_packet_and_now_and_then_while_something_lacks() {
    let mut receiving = receiver(2);
    let due = |receiving: &UdpReceiving| receiving.timeout().0 / 1000;
    assert_eq!(due(&receiving), 5000, "a sign of life");
    receiving.landed(arrived(0, ms(100)), &place(0, 0), PIECE as usize).expect("it lands");
    assert_eq!(due(&receiving), 20, "the first after long, at once: a quarter of a round trip is over");
    assert_eq!(receiving.report(ms(100), 1000).len(), 1);
    assert_eq!(due(&receiving), 140, "half a round trip, as something lacks");
    receiving.landed(arrived(1, ms(101)), &place(0, 1), PIECE as usize).expect("it lands");
    assert_eq!(due(&receiving), 103, "2 ms after the last packet");
    receiving.landed(arrived(2, ms(102)), &place(0, 2), PIECE as usize).expect("it lands");
    receiving.landed(arrived(3, ms(119)), &place(0, 3), PIECE as usize).expect("it lands");
    assert_eq!(due(&receiving), 120, "a quarter of a round trip, while packets come");
    assert_eq!((receiving.report(ms(119), 1000).len(), receiving.report(ms(120), 1000).len()), (0, 1));
    receiving.probe(arrived(4, ms(121)), SizeSearch(0), 1400);
    assert_eq!(due(&receiving), 121, "a probe is answered at once");
    assert_eq!(receiving.report(ms(121), 1000)[0].probe, 1400);
    receiving.unit(arrived(5, ms(122)), UnitCut(0), &body(0, 4 * PIECE, Some([0; 32]))).expect("a sound unit");
    assert_eq!(receiving.report(ms(124), 1000)[0].below, Serial(1));
    assert_eq!(due(&receiving), 5124, "nothing lacks");
    receiving.admit(ms(200), 1);
    assert_eq!(due(&receiving), 220, "credit that nobody waits for");
}

#[test]
fn credit_that_a_sender_may_wait_for_is_said_at_once() {
    let mut receiving = receiver(1);
    receiving.landed(arrived(0, ms(100)), &place(0, 0), PIECE as usize).expect("it lands");
    receiving.report(ms(102), 1000);
    receiving.admit(ms(103), 1);
    assert_eq!(receiving.timeout(), ms(104), "2 ms after the last status at the soonest");
    let status = receiving.report(ms(104), 1000);
    assert_eq!(status[0].admit, Serial(2));
    receiving.admit(ms(110), UDP_UNITS_OPEN_MAX);
    assert_eq!((receiving.credit(), receiving.admit(ms(110), 1)), (UDP_UNITS_OPEN_MAX - 1, 0), "no more may be open");
}

#[test]
fn credit_that_may_be_lost_is_said_again_until_the_sender_uses_it() {
    let mut receiving = receiver(1);
    receiving.unit(arrived(0, ms(100)), UnitCut(0), &body(0, PIECE, Some([1; 32]))).expect("a sound unit");
    receiving.landed(arrived(1, ms(100)), &place(0, 0), PIECE as usize).expect("it lands");
    receiving.admit(ms(100), 3);
    let said = |receiving: &mut UdpReceiving, times: usize| -> Vec<u64> {
        let mut last = 0;
        let next = |_| {
            let now = receiving.timeout();
            assert_eq!(receiving.report(now, 1000)[0].admit, Serial(4));
            now.0.saturating_sub(std::mem::replace(&mut last, now.0)) / 1000
        };
        (0..times).map(next).skip(1).collect()
    };
    // Half a round trip, and then each time twice as long, up to that of a sign of life.
    assert_eq!(said(&mut receiving, 11), [40, 80, 160, 320, 640, 1280, 2560, 5000, 5000, 5000]);
    // The sender has heard of one unit more at least, and perhaps of no other.
    receiving.unit(arrived(2, ms(60_000)), UnitCut(0), &body(1, PIECE, Some([1; 32]))).expect("a sound unit");
    receiving.landed(arrived(3, ms(60_000)), &place(1, 0), PIECE as usize).expect("it lands");
    assert_eq!(said(&mut receiving, 4), [40, 80, 160]);
    receiving.end(arrived(4, ms(61_000)), 2).expect("a sound end");
    assert_eq!(said(&mut receiving, 3), [5000, 5000], "there is nothing more to begin");
    // What the join has said needs no word.
    let mut receiving = receiver(2);
    receiving.unit(arrived(0, ms(100)), UnitCut(0), &body(0, PIECE, Some([1; 32]))).expect("a sound unit");
    receiving.landed(arrived(1, ms(100)), &place(0, 0), PIECE as usize).expect("it lands");
    receiving.admit(ms(100), 2);
    assert_eq!(said(&mut receiving, 3), [5000, 5000]);
}

#[test]
fn a_status_says_how_long_the_largest_waited_and_the_smallest_delay_whatever_the_clocks_say() {
    let mut receiving = receiver(1);
    // Delays of -2, 1 and 0 units across the end of the sender's 16 bits.
    let mut came = |packet, at_us: u64, sent| {
        let arrived = Arrived { number: number(packet), sent: SendTime(sent), at: Timestamp(at_us) };
        receiving.landed(arrived, &place(0, packet as u16), PIECE as usize).expect("it lands");
    };
    came(3, 1_000_000, 10_002_u64 as u16);
    came(1, 1_000_100, 10_000);
    came(2, 1_000_200, 10_002);
    let status = receiving.report(Timestamp(1_002_200), 1000);
    let largest = LargestArrived { number: number(3), waited_us: 2200, at_us: 1_000_000 };
    assert_eq!((status[0].largest, status[0].delay), (Some(largest), Some(-2_i16 as u16)));
    let later = receiving.report(Timestamp(1_042_200), 1000);
    assert_eq!((later[0].delay, later[0].counts.packets), (None, 3));
}

#[test]
fn more_gaps_than_fit_a_packet_are_said_in_several_and_understood_together() {
    let mut receiving = receiver(4);
    let mut sending = sender(4);
    let mut next = 0;
    for serial in 0..3_u32 {
        sending.begin(PIECE * 400).expect("it is admitted");
        sending.digest_known(Serial(serial));
    }
    flush(&mut sending, ms(1), &mut next, MessageRoom { bytes: 1232, datagrams: 1 });
    // Every other piece of the units 0 and 2 comes, and nothing of the unit between them.
    for serial in [0, 2] {
        for piece in (1..400).step_by(2) {
            receiving
                .landed(arrived(u64::from(piece), ms(40)), &place(serial, piece), PIECE as usize)
                .expect("it lands");
        }
    }
    receiving.probe(arrived(next - 1, ms(41)), SizeSearch(0), 1232);
    let report = receiving.report(ms(60), 68 + 404);
    assert_eq!(report.len(), 5, "200 + 1 + 200 gaps of 4 bytes");
    assert!(report[..4].iter().all(|status| !status.standing.complete) && report[4].standing.complete);
    let mut lost = 0;
    for (at, status) in (0..).zip(&report) {
        assert!(status.encode().len() <= 68 + 404);
        let status = &Status::decode(&status.encode()).expect("it parses");
        lost += sending.status(ms(101), number(at), status).expect("a sound status").sample.expect("it is new").lost;
    }
    // The descriptions of two lack, too; that of the third is the largest packet and not overtaken.
    assert_eq!((lost, sending.counts().landed), (200 + 400 + 200 + 2, 400));
}

#[test]
fn a_report_is_bounded_and_what_it_leaves_out_is_not_taken_for_missing() {
    let (mut receiving, mut sending, mut next) = (receiver(2), sender(2), 0);
    let pieces = (SLOT / PIECE) as u16;
    sending.begin(PIECE * u64::from(pieces)).expect("it is admitted");
    flush(&mut sending, ms(1), &mut next, ROOM);
    for piece in (1..pieces).step_by(2) {
        receiving.landed(arrived(u64::from(piece), ms(40)), &place(0, piece), PIECE as usize).expect("it lands");
    }
    let report = receiving.report(ms(90), 0);
    assert_eq!((report.len(), report.iter().any(|status| status.standing.complete)), (32, false));
    let mut lost = 0;
    for (at, status) in (0..).zip(&report) {
        lost += sending.status(ms(131), number(at), status).expect("a sound status").sample.expect("it is new").lost;
    }
    assert_eq!(lost, 32, "a gap in each packet, though no packet has room");
}

#[test]
fn a_piece_that_the_sender_sent_again_counts_and_one_that_was_recorded_does_not() {
    let mut receiving = receiver(1);
    receiving.landed(arrived(5, ms(1)), &place(0, 0), PIECE as usize).expect("it lands");
    for (packet, is_newer, twice) in [(5, false, 0), (4, false, 0), (6, true, 1), (6, false, 1), (9, true, 2)] {
        assert_eq!(receiving.look(&place(0, 0), PIECE as usize), Look::Seen);
        assert_eq!(receiving.is_newer(number(packet)), is_newer, "{packet}");
        receiving.again(arrived(packet, ms(2)));
        assert_eq!(receiving.counts().twice, twice, "{packet}");
    }
    assert_eq!(receiving.report(ms(50), 1000)[0].largest.map(|largest| largest.number), Some(number(9)));
    assert_eq!(receiving.counts().packets, 1);
}

#[test]
fn packets_that_are_played_again_are_not_answered_and_their_send_times_do_not_count() {
    let mut receiving = receiver(2);
    let whole = body(0, 0, Some([0; 32]));
    let whole =
        UnitBody { header: longhaul_proto::wire::data::Piece { unit_len: 9, hole: true, ..whole.header }, ..whole };
    let at = |packet, sent, millis| Arrived { number: number(packet), sent: SendTime(sent), at: ms(millis) };
    receiving.unit(at(0, 1000, 100), UnitCut(0), &whole).expect("a sound unit");
    receiving.probe(at(1, 1000, 100), SizeSearch(0), 1400);
    receiving.end(at(2, 1000, 100), 2).expect("a sound end");
    let first = receiving.report(ms(101), 1000);
    assert_eq!((first.len(), first[0].delay, first[0].counts.packets), (1, Some(0), 1));
    let due = receiving.timeout();
    receiving.unit(at(0, 1000, 110), UnitCut(0), &whole).expect("a sound unit");
    receiving.probe(at(1, 1000, 110), SizeSearch(0), 1400);
    receiving.end(at(2, 1000, 110), 2).expect("a sound end");
    assert_eq!(receiving.timeout(), due);
    let again = receiving.report(due, 1000);
    assert_eq!((again[0].delay, again[0].counts), (None, first[0].counts));
    // The same with numbers of their own are answered.
    receiving.end(at(3, 1000, 150), 2).expect("a sound end");
    assert_eq!(receiving.timeout(), ms(150));
}
