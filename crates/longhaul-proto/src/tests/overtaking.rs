//! Messages of a lower class overtake those of a higher: each such case that once could break a
//! session, by name.

use longhaul_core::{Attempt, Blame, BundleId, ChunkIndex, Digest, Fault, FaultCode, FileId, LaneId, Unit};

use super::hostile_receiver::{asked_for, sent, settled, verdict, want};
use super::items::{CHUNK, file};
use super::victim::{CV, NOW, Victim, chunk, fault};
use crate::receiver::{Created, ReceiverAction, Seen};
use crate::sender::{self, Sender, Unfinished};
use crate::wire::message::{Finding, LaneClosed, Message, Outcome};

#[test]
fn wants_may_come_behind_the_outcome_of_their_file() {
    let mut sender = asked_for(vec![file("large", 9 * CHUNK)]);
    sender.handle_message(want(0, 0, 4));
    let fault = Fault::new(FaultCode::Io, Blame::Local, "cannot write");
    sender.handle_message(settled(0, Outcome::Failed(fault)));
    sender.handle_message(want(0, 4, 4));
    assert!(!sender.is_over());
    sender.audit();
}

#[test]
fn a_good_verdict_may_overtake_the_report_of_what_was_sent() {
    let root = Digest::Root([1; 32]);
    let bundle = Unit::Bundle(BundleId(0));
    let cv = Digest::Cv([2; 32]);
    let mut sender = asked_for(vec![file("large", 9 * CHUNK)]);
    sender.handle_message(want(0, 0, 1));
    assert_eq!(sender.outstanding(), (1, 1));
    sender.handle_message(verdict(bundle, 1, Finding::Good(root)));
    sender.handle_message(verdict(chunk(0), 1, Finding::Good(cv)));
    sender.handle_sent(sent(bundle, 1, root));
    sender.handle_sent(sent(chunk(0), 1, cv));
    assert_eq!(sender.outstanding(), (0, 0));
}

#[test]
fn an_outcome_is_said_before_the_wants_that_it_makes_room_for() {
    let mut victim = Victim::new();
    victim.page(vec![file("a", 2000 * CHUNK).entry, file("b", 2000 * CHUNK).entry]);
    victim.obey();
    victim.say(fault(0, FaultCode::Vanished));
    let actions = victim.obey();
    let settled = actions.iter().position(|a| matches!(a, ReceiverAction::Send(Message::Settled(_))));
    let wants = actions.iter().position(|a| matches!(a, ReceiverAction::Send(Message::WantChunks(_))));
    assert!(settled.is_some() && settled < wants, "{actions:?}");
}

#[test]
fn what_arrives_of_a_file_that_failed_is_dropped_while_its_last_write_is_awaited() {
    let mut victim = Victim::wanting();
    let first = victim.landed(chunk(0), 1, CV, Some(CV));
    victim.land(first);
    victim.obey();
    // Of this nothing is kept.
    victim.say(fault(0, FaultCode::Usage));
    let second = victim.landed(chunk(1), 1, CV, Some(CV));
    victim.land(second);
    assert!(matches!(victim.obey()[..], [ReceiverAction::DropPayload(_)]));
    victim.receiver.handle_write(NOW, FileId(0), ChunkIndex(0), Ok(()));
    assert!(matches!(
        victim.obey()[..],
        [ReceiverAction::Discard(_), ReceiverAction::Settled(..), ReceiverAction::Send(_)]
    ));
}

#[test]
fn a_chunk_that_changed_in_a_sending_between_fails_its_file_before_a_good_one_can_seal_it() {
    let (one, other) = (Digest::Cv([1; 32]), Digest::Cv([2; 32]));
    let reads = |sender: &mut Sender| {
        sender.audit();
        let actions: Vec<_> = std::iter::from_fn(|| sender.poll_action()).collect();
        let read = |action: &sender::SenderAction| {
            matches!(action, sender::SenderAction::ReadChunk { attempt: Attempt(3), .. })
        };
        let changed = |action: &sender::SenderAction| matches!(action, sender::SenderAction::Send(Message::FileFault(fault)) if fault.code == FaultCode::Changed);
        (actions.iter().any(read), actions.iter().any(changed))
    };
    for (second, read, changed) in [(other, false, true), (one, true, false)] {
        let mut sender = asked_for(vec![file("large", 2 * CHUNK)]);
        sender.handle_message(want(0, 0, 2));
        (0..2).for_each(|index| sender.handle_sent(sent(chunk(index), 1, one)));
        sender.handle_check_source(FileId(0), Ok(()));
        sender.handle_message(verdict(chunk(0), 1, Finding::Again));
        // The verdict on the second sending overtakes its report.
        sender.handle_message(verdict(chunk(0), 2, Finding::Again));
        assert_eq!(reads(&mut sender), (false, false));
        sender.handle_sent(sent(chunk(0), 2, second));
        assert_eq!(reads(&mut sender), (read, changed));
        sender.handle_message(verdict(chunk(1), 1, Finding::Good(one)));
        assert!(!sender.is_over());
    }
}

#[test]
fn a_chunk_that_was_judged_bad_and_went_down_with_its_lane_is_sent_as_the_next_sending() {
    let mut sender = asked_for(vec![file("large", 2 * CHUNK)]);
    sender.handle_lane_joined(LaneId(0));
    sender.handle_message(want(0, 0, 1));
    sender.handle_message(verdict(chunk(0), 1, Finding::Again));
    sender.handle_lane_ended(LaneId(0), Some(Unfinished { unit: chunk(0), attempt: Attempt(1) }));
    sender.handle_message(Message::LaneClosed(LaneClosed { lane: LaneId(0), landed: 1 }));
    let actions: Vec<_> = std::iter::from_fn(|| sender.poll_action()).collect();
    let read = actions.iter().rev().find_map(|action| match action {
        sender::SenderAction::ReadChunk { attempt, .. } => Some(*attempt),
        _ => None,
    });
    assert_eq!(read, Some(Attempt(2)), "{actions:?}");
    assert!(!sender.is_over());
}

#[test]
fn a_bundle_that_is_wanted_again_is_packed_without_the_files_that_have_their_outcome() {
    let bundle = Unit::Bundle(BundleId(0));
    let mut sender = asked_for(vec![file("small", 10)]);
    sender.handle_sent(sent(bundle, 1, Digest::Root([1; 32])));
    sender.handle_message(settled(0, Outcome::Committed(Some([3; 32]))));
    sender.handle_message(verdict(bundle, 1, Finding::Again));
    sender.audit();
    let actions: Vec<_> = std::iter::from_fn(|| sender.poll_action()).collect();
    let files = actions.iter().rev().find_map(|action| match action {
        sender::SenderAction::Pack { attempt: Attempt(2), files, .. } => Some(files),
        _ => None,
    });
    let ids: Option<Vec<u64>> = files.map(|files| files.iter().map(|small| small.file.0).collect());
    assert_eq!(ids, Some((1..8).collect()), "{actions:?}");
    (1..8).for_each(|file| sender.handle_message(settled(file, Outcome::Committed(Some([3; 32])))));
    sender.handle_message(verdict(bundle, 2, Finding::Again));
    sender.audit();
    assert!(
        !std::iter::from_fn(|| sender.poll_action()).any(|action| matches!(action, sender::SenderAction::Pack { .. }))
    );
}

#[test]
fn a_file_that_fails_while_its_temporary_is_made_ends_when_that_is_over_and_leaves_nothing() {
    let broken = || Fault::new(FaultCode::Io, Blame::Local, "cannot make it");
    for (made, discards) in [(Ok(Created::Fresh), 1), (Err(broken()), 0)] {
        let mut victim = Victim::new();
        victim.page(vec![file("large", 4 * CHUNK).entry]);
        let surveyed = |action: &ReceiverAction| matches!(action, ReceiverAction::Survey(_));
        assert!(std::iter::from_fn(|| victim.receiver.poll_action()).any(|action| surveyed(&action)));
        victim.receiver.handle_survey(NOW, FileId(0), vec![Ok(Seen::Absent.into())]);
        while victim.poll().is_some() {}
        // Of this nothing is kept.
        victim.say(fault(0, FaultCode::Usage));
        assert!(victim.receiver.poll_action().is_none(), "it waits for its temporary");
        victim.receiver.handle_create(NOW, FileId(0), made);
        let actions = victim.obey();
        assert_eq!(actions.iter().filter(|a| matches!(a, ReceiverAction::Discard(_))).count(), discards);
        let told = |a: &ReceiverAction| matches!(a, ReceiverAction::Settled(_, Outcome::Failed(fault)) if fault.code == FaultCode::Usage);
        assert!(actions.iter().any(told), "the first reason is told: {actions:?}");
    }
}
