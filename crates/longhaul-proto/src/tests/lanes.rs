//! Tests of lost lanes, by hand on each machine.

use longhaul_core::digest::TreePart;
use longhaul_core::limits::LANES_EVER_MAX;
use longhaul_core::{Attempt, BundleId, ChunkIndex, ChunkSize, Digest, FaultCode, FileId, LaneId, Unit};

use super::hostile_receiver::{asked_for, verdict, want};
use super::items::{CHUNK, file};
use super::victim::{CV, Victim, chunk};
use crate::Sender;
use crate::receiver;
use crate::sender::{SenderAction, Sent, Unfinished};
use crate::wire::message::{
    Declared, Finding, LandedUnits, LaneClosed, LaneLost, LostChunk, Message, Outcome, Resume, SendAgain, Settlement,
    Tally, UdpLaneClosed,
};

const LANE: LaneId = LaneId(7);

/// A sender of which a bundle and four chunks are wanted; its orders are taken.
fn asked() -> Sender {
    let mut sender = asked_for(vec![file("large", 9 * CHUNK)]);
    sender.handle_message(want(0, 0, 4));
    sender.handle_lane_joined(LANE);
    sender.handle_lane_joined(LaneId(8));
    orders(&mut sender);
    sender
}

/// The units that the sender orders to be read, and its messages about lanes.
fn orders(sender: &mut Sender) -> (Vec<(Unit, Attempt)>, Vec<Message>) {
    let (mut reads, mut said) = (Vec::new(), Vec::new());
    while let Some(action) = sender.poll_action() {
        match action {
            SenderAction::ReadChunk { file, index, attempt, .. } => reads.push((Unit::Chunk { file, index }, attempt)),
            SenderAction::Pack { bundle, attempt, .. } => reads.push((Unit::Bundle(bundle), attempt)),
            SenderAction::Send(message @ Message::LaneLost(_)) => said.push(message),
            SenderAction::Abort(fault) => panic!("{fault}"),
            _ => {}
        }
    }
    sender.audit();
    (reads, said)
}

fn sent(unit: Unit, lane: LaneId, seq: u64) -> Sent {
    let digest = match unit {
        Unit::Chunk { .. } => CV,
        Unit::Bundle(_) => Digest::Root([1; 32]),
    };
    Sent { unit, attempt: Attempt::FIRST, digest, len: 10, unit_len: 10, lane, seq, declared: true }
}

fn closed(lane: LaneId, landed: u64) -> Message {
    Message::LaneClosed(LaneClosed { lane, landed })
}

/// A lane that brought all units below one, and these.
fn udp_closed<const N: usize>(below: u64, beyond: [u64; N]) -> Message {
    let landed = LandedUnits::with_beyond(below, beyond.into_iter());
    Message::UdpLaneClosed(UdpLaneClosed { lane: LANE, landed })
}

fn lost(lane: LaneId) -> Message {
    Message::LaneLost(LaneLost { lane })
}

#[test]
fn nothing_is_read_again_before_both_ends_have_closed_the_lane() {
    for receiver_first in [false, true] {
        let mut sender = asked();
        (0..3).for_each(|n| sender.handle_sent(sent(chunk(n), LANE, n)));
        let unfinished = Some(Unfinished { unit: chunk(3), attempt: Attempt::FIRST });
        if receiver_first {
            sender.handle_message(closed(LANE, 1));
        } else {
            sender.handle_lane_ended(LANE, unfinished);
        }
        let (reads, said) = orders(&mut sender);
        assert!(reads.is_empty(), "{reads:?}");
        assert_eq!(said.is_empty(), receiver_first, "it is said unless the receiver said it: {said:?}");
        if receiver_first {
            sender.handle_lane_ended(LANE, unfinished);
        } else {
            sender.handle_message(closed(LANE, 1));
        }
        let again = [1, 2, 3].map(|n| (chunk(n), Attempt::FIRST)).to_vec();
        assert_eq!(orders(&mut sender).0, again, "what landed is not, and it is the same sending");
    }
}

#[test]
fn of_a_lane_whose_units_come_in_any_order_those_that_landed_are_not_read_again() {
    let mut sender = asked();
    (0..3).for_each(|n| sender.handle_sent(sent(chunk(n), LANE, n)));
    let bundle = Unit::Bundle(BundleId(0));
    let in_hand = [chunk(3), bundle].map(|unit| Unfinished { unit, attempt: Attempt::FIRST });
    sender.handle_lane_ended(LANE, in_hand);
    sender.handle_message(udp_closed(0, [1]));
    let again = [chunk(0), chunk(2), chunk(3), bundle].map(|unit| (unit, Attempt::FIRST)).to_vec();
    assert_eq!(orders(&mut sender).0, again);
}

#[test]
fn landed_units_are_told_apart_by_their_numbers() {
    for others in [vec![], vec![3], vec![2, 3, 7], vec![3, 4, 5, 9, 11], vec![1000]] {
        let landed = LandedUnits::with_beyond(2, others.iter().copied());
        for number in 0..1100 {
            assert_eq!(landed.has(number), number < 2 || others.contains(&number), "{others:?} {number}");
        }
    }
    let hostile = LandedUnits { below: u64::MAX, beyond: vec![u32::MAX; 9] };
    assert!(hostile.has(0) && !hostile.has(u64::MAX));
}

#[test]
fn only_what_the_lost_lane_carried_and_no_verdict_has_named_is_read_again() {
    let mut sender = asked();
    let bundle = Unit::Bundle(BundleId(0));
    sender.handle_sent(sent(chunk(0), LANE, 0));
    sender.handle_sent(sent(chunk(1), LaneId(8), 0));
    sender.handle_sent(sent(bundle, LANE, 1));
    sender.handle_message(verdict(chunk(0), 1, Finding::Good(CV)));
    sender.handle_lane_ended(LANE, None);
    sender.handle_message(closed(LANE, 0));
    assert_eq!(orders(&mut sender).0, [(bundle, Attempt::FIRST)]);
    // It may be lost any number of times, also while it is in hand.
    sender.handle_lane_ended(LaneId(8), Some(Unfinished { unit: bundle, attempt: Attempt::FIRST }));
    sender.handle_message(closed(LaneId(8), 1));
    assert_eq!(orders(&mut sender).0, [(bundle, Attempt::FIRST)]);
    sender.handle_sent(sent(bundle, LaneId(9), 0));
    assert_eq!(sender.bytes_sent(), (40, 10), "what goes over a lane again is counted as such");
    assert_eq!(sender.bytes_done(), 30, "each of three units once");
}

#[test]
fn a_unit_that_a_lost_lane_had_in_hand_is_handed_over_for_the_first_time_when_another_has_it_whole() {
    let mut sender = asked();
    sender.handle_sent(sent(chunk(0), LANE, 0));
    // Lanes that break again and again with the same unit in hand.
    for lane in [LANE, LaneId(8)] {
        sender.handle_lane_joined(lane);
        sender.handle_lane_ended(lane, Some(Unfinished { unit: chunk(1), attempt: Attempt::FIRST }));
        sender.handle_message(closed(lane, 1));
        assert_eq!(orders(&mut sender).0, [(chunk(1), Attempt::FIRST)]);
        assert_eq!(sender.bytes_done(), 10, "a part of a unit is no unit");
    }
    sender.handle_sent(sent(chunk(1), LaneId(9), 0));
    assert_eq!(sender.bytes_done(), 20, "nothing is left to send");
    assert_eq!(sender.bytes_sent(), (20, 10));
    // Whole, lost, and in hand of a lane that breaks too: it was counted.
    sender.handle_lane_joined(LaneId(9));
    sender.handle_lane_ended(LaneId(9), None);
    sender.handle_message(closed(LaneId(9), 0));
    sender.handle_lane_joined(LaneId(10));
    sender.handle_lane_ended(LaneId(10), Some(Unfinished { unit: chunk(1), attempt: Attempt::FIRST }));
    sender.handle_message(closed(LaneId(10), 0));
    sender.handle_sent(sent(chunk(1), LaneId(11), 0));
    assert_eq!((sender.bytes_done(), sender.bytes_sent()), (20, (30, 20)));
}

#[test]
fn each_byte_of_a_file_is_done_once_whether_it_is_held_or_a_hole_or_equal_or_sent() {
    for is_equal in [false, true] {
        let mut sender = asked_for(vec![file("large", 9 * CHUNK)]);
        let part = TreePart { start: ChunkIndex(0), chunks: 4, digest: CV };
        let chunk_size = ChunkSize::from_bytes(CHUNK as u64).expect("a size");
        let resume = Resume { file: FileId(0), chunk: chunk_size, parts: vec![part], more: false };
        sender.handle_message(Message::Resume(resume));
        sender.handle_message(want(0, 4, 5));
        assert_eq!(sender.bytes_done(), 4 * CHUNK as u64, "what the receiver holds");
        for n in 4..9 {
            // Only the first of them goes over the lane.
            let len = if n == 4 { CHUNK as u64 } else { 0 };
            sender.handle_sent(Sent { len, unit_len: CHUNK as u64, ..sent(chunk(n), LANE, n) });
            // The receiver counts what is equal as resumed.
            sender.handle_message(Message::Tally(Tally { resumed: n * CHUNK as u64, ..Tally::default() }));
            assert_eq!(sender.bytes_done(), (n + 1) * CHUNK as u64);
        }
        let actions = std::iter::from_fn(|| sender.poll_action());
        let checked = actions.filter_map(|action| match action {
            SenderAction::CheckSource { root, .. } => Some(root),
            _ => None,
        });
        let root = checked.last().expect("all of it was read");
        sender.handle_check_source(FileId(0), Ok(()));
        (4..9).for_each(|n| sender.handle_message(verdict(chunk(n), 1, Finding::Good(CV))));
        let outcome = if is_equal { Outcome::Equal(root) } else { Outcome::Committed(Some(root)) };
        sender.handle_message(Message::Settled(vec![Settlement { file: FileId(0), outcome }]));
        assert!(orders(&mut sender).0.is_empty() && !sender.is_over());
        let done = if is_equal { 0 } else { 9 * CHUNK as u64 };
        assert_eq!(sender.bytes_done(), done, "a file that was not committed is done by its outcome");
    }
}

#[test]
fn a_unit_is_done_once_however_often_it_is_damaged_and_lost_with_its_lane_and_by_the_receiver() {
    let mut sender = asked();
    let units = [chunk(0), Unit::Bundle(BundleId(0))];
    let mut attempt = Attempt::FIRST;
    for lane in (20..26).map(LaneId) {
        // It comes damaged before or after this side's report, and the next sending is cut off.
        sender.handle_lane_joined(lane);
        let is_reported = lane.0 > 20;
        for unit in units {
            if is_reported {
                sender.handle_sent(Sent { attempt, ..sent(unit, lane, 0) });
            }
            if lane.0 < 22 {
                sender.handle_message(verdict(unit, attempt.0, Finding::Again));
            }
        }
        assert_eq!(sender.bytes_done(), if is_reported { 20 } else { 0 }, "each of two units, in {lane:?}");
        let in_hand = if lane.0 < 22 && is_reported { attempt.next() } else { attempt };
        sender.handle_lane_ended(lane, units.map(|unit| Unfinished { unit, attempt: in_hand }));
        sender.handle_message(closed(lane, 0));
        let (reads, _) = orders(&mut sender);
        attempt = reads.last().expect("it is read again").1;
        assert!(units.iter().all(|unit| reads.contains(&(*unit, attempt))), "{reads:?}");
    }
    sender.handle_sent(Sent { attempt, ..sent(chunk(0), LANE, 0) });
    sender.handle_message(verdict(chunk(0), attempt.0, Finding::Good(CV)));
    let lost = LostChunk { index: ChunkIndex(0), attempt: attempt.next(), digest: *CV.bytes() };
    sender.handle_message(Message::SendAgain(SendAgain { file: FileId(0), chunks: vec![lost] }));
    sender.handle_sent(Sent { attempt: attempt.next(), ..sent(chunk(0), LANE, 1) });
    assert!(!sender.is_over());
    assert_eq!(sender.bytes_done(), 20, "it was sent before the receiver lost it");
}

#[test]
fn a_unit_that_is_wanted_again_is_not_read_for_its_lost_lane_too() {
    let mut sender = asked();
    sender.handle_sent(sent(chunk(0), LANE, 0));
    sender.handle_message(verdict(chunk(0), 1, Finding::Again));
    assert_eq!(orders(&mut sender).0, [(chunk(0), Attempt(2))]);
    sender.handle_lane_ended(LANE, Some(Unfinished { unit: chunk(0), attempt: Attempt::FIRST }));
    sender.handle_message(closed(LANE, 0));
    assert_eq!(orders(&mut sender).0, []);
}

/// The verdict on the second sending may overtake this side's own report of it.
#[test]
fn a_source_that_changed_when_it_was_read_for_another_lane_fails_its_file_and_not_the_session() {
    let mut sender = asked();
    sender.handle_sent(sent(chunk(0), LANE, 0));
    sender.handle_lane_ended(LANE, None);
    sender.handle_message(closed(LANE, 0));
    assert_eq!(orders(&mut sender).0, [(chunk(0), Attempt::FIRST)]);
    let other = Digest::Cv([9; 32]);
    sender.handle_message(verdict(chunk(0), 1, Finding::Good(other)));
    sender.handle_sent(Sent { digest: other, ..sent(chunk(0), LaneId(8), 0) });
    let faults = std::iter::from_fn(|| sender.poll_action()).filter_map(|action| match action {
        SenderAction::Send(Message::FileFault(fault)) => Some(fault.code),
        SenderAction::Abort(fault) => panic!("{fault}"),
        _ => None,
    });
    assert_eq!(faults.collect::<Vec<_>>(), [FaultCode::Changed]);
}

#[test]
fn words_about_lanes_that_never_were_or_are_closed_change_nothing_at_the_sender() {
    let mut sender = asked();
    sender.handle_sent(sent(chunk(0), LANE, 0));
    for message in [lost(LaneId(99)), closed(LaneId(99), 0), lost(LANE), lost(LANE), closed(LANE, 0), closed(LANE, 9)] {
        sender.handle_message(message);
    }
    sender.handle_lane_ended(LANE, None);
    assert_eq!(orders(&mut sender).0, [(chunk(0), Attempt::FIRST)], "the first word counts");
    sender.handle_message(closed(LANE, 0));
    assert_eq!(orders(&mut sender).0, []);
    assert!(!sender.is_over());
}

#[test]
fn a_receiver_says_how_much_of_a_lane_it_took_in_once_its_end_is_closed() {
    let mut victim = Victim::wanting();
    assert!(victim.receiver.handle_lane_joined(LANE));
    victim.say(lost(LANE));
    let actions = victim.obey();
    assert!(matches!(actions[..], [receiver::ReceiverAction::CloseLane(LANE)]), "{actions:?}");
    victim.receiver.handle_lane_ended(super::victim::NOW, LANE, 3);
    assert_eq!(said(&victim.obey()), [closed(LANE, 3)]);
    // Both sides may find it lost at once: their words cross.
    victim.say(lost(LANE));
    assert_eq!(said(&victim.obey()), [closed(LANE, 3)]);
    victim.say(lost(LANE));
    victim.assert_refused(FaultCode::Protocol, "a lane that is lost again and again");
}

#[test]
fn a_receiver_names_the_units_that_came_beyond_one_that_did_not() {
    let mut victim = Victim::wanting();
    assert!(victim.receiver.handle_lane_joined(LANE));
    let landed = LandedUnits::with_beyond(3, [5, 6].into_iter());
    victim.receiver.handle_lane_ended(super::victim::NOW, LANE, landed);
    assert_eq!(said(&victim.obey()), [udp_closed(3, [5, 6])]);
    victim.say(lost(LANE));
    assert_eq!(said(&victim.obey()), [udp_closed(3, [5, 6])]);
}

#[test]
fn a_lane_that_the_sender_gave_up_before_it_joined_is_not_taken_in() {
    let mut victim = Victim::wanting();
    victim.say(lost(LANE));
    assert_eq!(said(&victim.obey()), [closed(LANE, 0)]);
    assert!(!victim.receiver.handle_lane_joined(LANE));
    for lane in 100..100 + LANES_EVER_MAX {
        victim.say(lost(LaneId(lane)));
    }
    victim.assert_refused(FaultCode::Protocol, "lanes without end");
}

#[test]
fn what_a_closed_lane_never_brought_is_not_owed_any_more() {
    let declared = |lane, seq| {
        let (unit, attempt) = (Unit::Chunk { file: FileId(0), index: ChunkIndex(seq) }, Attempt::FIRST);
        Message::Digests(vec![Declared { lane, seq, unit, attempt, digest: CV }])
    };
    let mut victim = Victim::wanting();
    assert!(victim.receiver.handle_lane_joined(LANE));
    victim.say(declared(LANE, 0));
    assert_eq!(victim.receiver.lanes_owing().into_iter().collect::<Vec<_>>(), [LANE]);
    victim.receiver.handle_lane_ended(super::victim::NOW, LANE, 0);
    // The sender may not have heard yet.
    victim.say(declared(LANE, 1));
    assert!(!victim.receiver.is_owed_arrivals());
    victim.obey();
    assert!(!victim.receiver.is_over());
}

/// The messages about lanes.
fn said(actions: &[receiver::ReceiverAction]) -> Vec<Message> {
    let of_lanes = |action: &receiver::ReceiverAction| match action {
        receiver::ReceiverAction::Send(
            message @ (Message::LaneLost(_) | Message::LaneClosed(_) | Message::UdpLaneClosed(_)),
        ) => Some(message.clone()),
        _ => None,
    };
    actions.iter().filter_map(of_lanes).collect()
}
