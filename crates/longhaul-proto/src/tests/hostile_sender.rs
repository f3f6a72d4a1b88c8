//! A sender that lies, or someone on a `safe` lane who does: the receiver writes nothing unverified
//! and holds bounded state.

use std::time::Duration;

use longhaul_core::limits::{
    CHUNKS_WANTED_MAX, ENTRIES_UNSETTLED_MAX, EXTRAS_COST_MAX, LINK_BYTES_MAX, PAGE_ENTRIES_MAX, PAGE_EXTRAS_COST,
    PAGES_UNANSWERED_MAX, PATH_BYTES_MAX,
};
use longhaul_core::{
    Attempt, BundleId, Digest, Entry, EntryKind, Extras, FaultCode, FileId, LaneId, Unit, Xattr, XattrName,
};

use super::items::{CHUNK, file, item};
use super::victim::{CV, NOW, Victim, chunk, fault};
use crate::receiver::{Landed, LandedRow, ReceiverAction, Ticket};
use crate::time::Timestamp;
use crate::wire::message::{Declared, Ending, FileEnd, Finding, Message, Outcome, Page, PageExtras};

fn writes(actions: &[ReceiverAction]) -> usize {
    actions.iter().filter(|a| matches!(a, ReceiverAction::Write { .. } | ReceiverAction::WriteBundle { .. })).count()
}

#[test]
fn messages_that_break_the_protocol_end_the_session() {
    let end = |file| Message::FileEnd(FileEnd { file: FileId(file), root: [0; 32] });
    let page = |first, entries| Message::Page(Page { first: FileId(first), last: false, entries });
    let link = |target: &[u8]| item("l", EntryKind::Symlink { target: target.to_vec() }).entry;
    for (what, messages) in [
        ("a page with a gap", vec![page(3, vec![file("x", 1).entry])]),
        ("a page again", vec![page(0, vec![file("x", 1).entry])]),
        ("a page at the end of all numbers", vec![page(u64::MAX, vec![file("x", 1).entry])]),
        ("an empty page that is not the last", vec![page(2, vec![])]),
        ("a page of too many", vec![page(2, vec![file("x", 1).entry; PAGE_ENTRIES_MAX + 1])]),
        ("a link to nothing", vec![page(2, vec![link(b"")])]),
        ("a link with a NUL", vec![page(2, vec![link(b"a\0b")])]),
        ("a link that is too long", vec![page(2, vec![link(&[b'x'; LINK_BYTES_MAX + 1])])]),
        ("the end of a small file", vec![end(1)]),
        ("the end of an entry to come", vec![end(2)]),
        ("two ends", vec![end(0), end(0)]),
        ("the failure of an entry to come", vec![fault(2, FaultCode::Io)]),
        ("goodbye in the middle", vec![Message::Bye(Ending::default())]),
        ("extras that were not agreed on", vec![Message::Extras(PageExtras::default())]),
        ("what only a receiver says", vec![Message::Complete(Ending::default())]),
    ] {
        let mut victim = Victim::wanting();
        messages.into_iter().for_each(|message| victim.say(message));
        victim.assert_refused(FaultCode::Protocol, what);
    }
}

#[test]
fn extras_that_belong_to_no_entry_of_the_next_page_end_the_session() {
    let some = |value: usize| {
        let name = XattrName::try_from(b"user.a".to_vec()).expect("a name");
        Extras { xattrs: vec![Xattr { name, value: vec![0; value] }], ..Extras::default() }
    };
    let of = |ids: &[u64], value| {
        let entries = ids.iter().map(|id| (FileId(*id), some(value))).collect();
        Message::Extras(PageExtras { entries })
    };
    let page = |last| Message::Page(Page { first: FileId(0), last, entries: vec![file("x", 1).entry] });
    for (what, messages) in [
        ("none at all", vec![of(&[], 1)]),
        ("twice", vec![of(&[0], 1), of(&[0], 1)]),
        ("of an entry beyond the page", vec![of(&[0, 1], 1), page(false)]),
        ("of an entry that came", vec![page(false), of(&[0], 1)]),
        ("out of order", vec![of(&[1, 0], 1)]),
        ("two of one entry", vec![of(&[0, 0], 1)]),
        ("longer than one entry may have", vec![of(&[0], EXTRAS_COST_MAX)]),
        ("more than a page may have", vec![of(&[0, 1], (PAGE_EXTRAS_COST + EXTRAS_COST_MAX) / 2)]),
        ("behind the last page", vec![page(true), of(&[1], 1)]),
    ] {
        let mut victim = Victim::taking_extras();
        messages.into_iter().for_each(|message| victim.say(message));
        victim.assert_refused(FaultCode::Protocol, what);
    }
    let mut victim = Victim::taking_extras();
    victim.say(of(&[0], 7));
    victim.say(page(false));
    let surveyed = std::iter::from_fn(|| victim.poll()).find_map(|action| match action {
        ReceiverAction::Survey(held) => held[0].entry.meta.extras.as_deref().cloned(),
        _ => None,
    });
    assert_eq!(surveyed, Some(some(7)));
}

#[test]
fn pages_beyond_the_credit_end_the_session() {
    let mut victim = Victim::new();
    for at in 0..=PAGES_UNANSWERED_MAX {
        victim.page(vec![file(&format!("f{at}"), 1).entry]);
    }
    victim.assert_refused(FaultCode::Protocol, "a page more");
}

#[test]
fn directories_that_never_end_end_the_session() {
    let dir = |name: &str| item(name, EntryKind::Dir).entry;
    for (what, entries) in [
        ("one beside another that is open", vec![dir("a"), dir("b")]),
        ("the end of another one", vec![dir("a"), dir("a/b"), item("a", EntryKind::DirEnd).entry]),
        ("the end of none", vec![item("a", EntryKind::DirEnd).entry]),
    ] {
        let mut victim = Victim::new();
        victim.page(entries);
        victim.assert_refused(FaultCode::Protocol, what);
    }
    let mut victim = Victim::new();
    victim.page(vec![dir("a"), dir("a/b")]);
    victim.obey();
    victim.page(vec![dir("a/c")]);
    victim.assert_refused(FaultCode::Protocol, "one on a later page");
}

#[test]
fn a_sender_that_is_behind_with_reading_is_asked_for_nothing_more() {
    let mut victim = Victim::new();
    victim.receiver.handle_backlog(NOW, true);
    let large = (0..PAGES_UNANSWERED_MAX).map(|at| file(&format!("large{at}"), 4 * CHUNK).entry);
    large.for_each(|entry| victim.page(vec![entry]));
    let asks = |action: &ReceiverAction| {
        matches!(
            action,
            ReceiverAction::Create(..) | ReceiverAction::Send(Message::PageCredit(_) | Message::WantChunks(_))
        )
    };
    let actions = victim.obey();
    assert!(!actions.iter().any(asks), "{actions:?}");
    assert_eq!(
        actions.iter().filter(|a| matches!(a, ReceiverAction::Send(Message::Answer(_)))).count(),
        8,
        "what is owed"
    );
    victim.receiver.handle_backlog(NOW, false);
    let actions = victim.obey();
    let count = |is: fn(&ReceiverAction) -> bool| actions.iter().filter(|action| is(action)).count();
    assert_eq!(count(|a| matches!(a, ReceiverAction::Send(Message::PageCredit(_)))), 1, "{actions:?}");
    assert_eq!(count(|a| matches!(a, ReceiverAction::Send(Message::WantChunks(_)))), 8, "{actions:?}");
}

#[test]
fn without_memory_for_more_entries_no_page_is_asked_for_and_those_that_are_held_come() {
    let mut victim = Victim::new();
    victim.receiver.handle_cramped(NOW, true);
    let large = (0..PAGES_UNANSWERED_MAX).map(|at| file(&format!("large{at}"), 4 * CHUNK).entry);
    large.for_each(|entry| victim.page(vec![entry]));
    let is_credit = |action: &ReceiverAction| matches!(action, ReceiverAction::Send(Message::PageCredit(_)));
    let actions = victim.obey();
    assert!(!actions.iter().any(is_credit), "{actions:?}");
    let wants = actions.iter().filter(|a| matches!(a, ReceiverAction::Send(Message::WantChunks(_)))).count();
    assert_eq!(wants, 8, "only by going on does it come to hold less: {actions:?}");
    victim.receiver.handle_cramped(NOW, false);
    assert_eq!(victim.obey().iter().filter(|action| is_credit(action)).count(), 1);
}

#[test]
fn what_is_staged_waits_for_no_others_where_there_is_no_memory_for_them() {
    for is_cramped in [false, true] {
        let mut victim = Victim::new();
        let links = ["a", "b"].map(|name| item(name, EntryKind::Symlink { target: b"x".to_vec() }).entry);
        victim.page(links.to_vec());
        victim.obey();
        let barrier =
            |victim: &mut Victim| victim.obey().iter().any(|action| matches!(action, ReceiverAction::Barrier(_)));
        victim.receiver.handle_cramped(NOW, is_cramped);
        victim.receiver.handle_stage(NOW, vec![(FileId(0), Ok(()))]);
        assert!(!barrier(&mut victim), "another may join");
        victim.receiver.handle_stage(NOW, vec![(FileId(1), Ok(()))]);
        assert_eq!(barrier(&mut victim), is_cramped);
        // The same when it is found out later.
        victim.receiver.handle_cramped(NOW, true);
        assert_eq!(barrier(&mut victim), !is_cramped);
    }
}

#[test]
fn long_names_narrow_the_window_before_they_fill_the_memory() {
    let mut victim = Victim::new();
    let mut held = 0;
    let mut pages_free = PAGES_UNANSWERED_MAX;
    while pages_free > 0 {
        let entries: Vec<_> = (0..15).map(|at| long_entry(victim.next + at)).collect();
        held += entries.iter().map(|entry| 3 * entry.path.as_bytes().len()).sum::<usize>();
        victim.page(entries);
        pages_free -= 1;
        for action in victim.obey() {
            if let ReceiverAction::Send(Message::PageCredit(credit)) = action {
                pages_free = credit.upto - victim.next / 15;
            }
        }
    }
    assert!(victim.receiver.unsettled() < ENTRIES_UNSETTLED_MAX / 8);
    assert!(held <= 16 << 20, "{held} bytes of names");
}

fn long_entry(number: u64) -> Entry {
    let name = format!("{number:0>250}");
    let parts = vec![name; PATH_BYTES_MAX / 251];
    file(&parts.join("/"), 1).entry
}

#[test]
fn data_that_no_one_wants_is_dropped() {
    let mut victim = Victim::wanting();
    let other_file = Unit::Chunk { file: FileId(77), index: Default::default() };
    for (unit, attempt) in [(chunk(9), 1), (chunk(u64::MAX), 1), (other_file, 1), (chunk(0), 2), (chunk(0), 0)] {
        let landed = victim.landed(unit, attempt, CV, Some(CV));
        victim.land(landed);
        let actions = victim.obey();
        assert!(matches!(actions[..], [ReceiverAction::DropPayload(_)]), "{unit} {attempt}: {actions:?}");
    }
    let good = victim.landed(chunk(0), 1, CV, Some(CV));
    victim.land(good.clone());
    assert_eq!(writes(&victim.obey()), 1);
    let again = Landed { ticket: Ticket { seq: 99, ..good.ticket }, ..good };
    victim.land(again);
    assert!(
        matches!(victim.obey()[..], [ReceiverAction::DropPayload(_)]),
        "a chunk that is verified is not written again"
    );
}

#[test]
fn a_chunk_of_another_length_ends_the_session_where_the_sender_is_known_and_is_damage_where_not() {
    let mut known = Victim::wanting();
    let mut landed = known.landed(chunk(0), 1, CV, Some(CV));
    landed.piece.unit_len -= 1;
    known.land(landed.clone());
    known.assert_refused(FaultCode::Protocol, "a short chunk");

    let mut unknown = Victim::wanting();
    landed.declared = None;
    unknown.land(landed);
    let digests = vec![Declared { lane: LaneId(0), seq: 0, unit: chunk(0), attempt: Attempt(1), digest: CV }];
    unknown.say(Message::Digests(digests));
    assert_eq!(writes(&unknown.obey()), 0);
    assert!(!unknown.receiver.is_over());
}

#[test]
fn a_header_that_names_another_unit_or_attempt_than_was_declared_is_damage() {
    for (unit, attempt) in [(chunk(1), 1), (chunk(0), 2), (Unit::Bundle(BundleId(0)), 1)] {
        for declared_first in [false, true] {
            let mut victim = Victim::wanting();
            let landed = victim.landed(unit, attempt, CV, None);
            let declared = Declared { lane: LaneId(0), seq: 0, unit: chunk(0), attempt: Attempt(1), digest: CV };
            let digests = Message::Digests(vec![declared]);
            if declared_first {
                victim.say(digests);
                victim.land(landed);
            } else {
                victim.land(landed);
                victim.say(digests);
            }
            let actions = victim.obey();
            assert_eq!(writes(&actions), 0);
            let again = |a: &ReceiverAction| matches!(a, ReceiverAction::Send(Message::Verdicts(list)) if list[0].unit == chunk(0) && list[0].finding == Finding::Again);
            assert!(actions.iter().any(again), "{actions:?}");
        }
    }
}

#[test]
fn a_chunk_that_is_called_the_same_and_is_not_here_is_damage() {
    let mut victim = Victim::wanting();
    let mut landed = victim.landed(chunk(0), 1, CV, Some(CV));
    (landed.piece.same, landed.piece.len) = (true, 0);
    victim.land(landed);
    let actions = victim.obey();
    assert_eq!(writes(&actions), 0);
    let again = |a: &ReceiverAction| matches!(a, ReceiverAction::Send(Message::Verdicts(list)) if list[0].finding == Finding::Again);
    assert!(actions.iter().any(again), "{actions:?}");
}

#[test]
fn a_bundle_of_unwanted_files_or_of_none_ends_the_session() {
    let row = |file, len| LandedRow { file: FileId(file), len, declared: [5; 32], computed: [5; 32], same: false };
    for (what, rows) in [
        ("a file of chunks", vec![row(0, 100)]),
        ("another length", vec![row(1, 99)]),
        ("one file twice", vec![row(1, 100), row(1, 100)]),
        ("no files", vec![]),
    ] {
        let mut victim = Victim::wanting();
        let root = Digest::Root([7; 32]);
        let mut landed = victim.landed(Unit::Bundle(BundleId(0)), 1, root, Some(root));
        landed.rows = rows;
        victim.land(landed);
        victim.assert_refused(FaultCode::Protocol, what);
    }
}

#[test]
fn a_file_of_a_good_bundle_with_another_root_fails_alone() {
    let mut victim = Victim::wanting();
    let root = Digest::Root([7; 32]);
    let mut landed = victim.landed(Unit::Bundle(BundleId(0)), 1, root, Some(root));
    landed.rows = vec![LandedRow { file: FileId(1), len: 100, declared: [5; 32], computed: [6; 32], same: false }];
    victim.land(landed);
    let actions = victim.obey();
    assert_eq!(writes(&actions), 0);
    let mismatch = |a: &ReceiverAction| matches!(a, ReceiverAction::Settled(_, Outcome::Failed(fault)) if fault.code == FaultCode::Mismatch);
    assert!(actions.iter().any(mismatch));
}

#[test]
fn bad_bundles_without_end_are_not_remembered_without_end() {
    let mut victim = Victim::wanting();
    for id in 0..=ENTRIES_UNSETTLED_MAX as u64 {
        let landed = victim.landed(Unit::Bundle(BundleId(id)), 1, Digest::Root([1; 32]), Some(Digest::Root([2; 32])));
        victim.land(landed);
    }
    victim.assert_refused(FaultCode::Protocol, "more bundles than files");
}

#[test]
fn holes_forged_without_end_on_a_safe_lane_are_not_held_without_end() {
    let mut victim = Victim::wanting();
    for _ in 0..=ENTRIES_UNSETTLED_MAX + CHUNKS_WANTED_MAX {
        let mut landed = victim.landed(chunk(0), 1, CV, None);
        (landed.piece.hole, landed.piece.len) = (true, 0);
        victim.land(landed);
    }
    victim.assert_refused(FaultCode::Lost, "holes without end");
}

#[test]
fn digests_declared_without_end_or_twice_end_the_session() {
    let declared = |seq| Declared { lane: LaneId(0), seq, unit: chunk(0), attempt: Attempt(1), digest: CV };
    let mut victim = Victim::wanting();
    victim.say(Message::Digests(vec![declared(5), declared(5)]));
    victim.assert_refused(FaultCode::Protocol, "one arrival declared twice");

    let mut victim = Victim::wanting();
    let count = (ENTRIES_UNSETTLED_MAX + CHUNKS_WANTED_MAX) as u64;
    (0..=count).for_each(|seq| victim.say(Message::Digests(vec![declared(seq)])));
    victim.assert_refused(FaultCode::Protocol, "declarations without end");
}

#[test]
fn data_that_is_never_announced_ends_the_session_in_time() {
    let mut victim = Victim::wanting();
    let landed = victim.landed(chunk(0), 1, CV, None);
    victim.receiver.handle_landed(Timestamp(5), landed);
    let deadline = victim.receiver.poll_timeout().expect("someone waits");
    assert_eq!(deadline, Timestamp(5).after(Duration::from_secs(30)));
    victim.receiver.handle_timeout(Timestamp(deadline.0 - 1));
    assert!(!victim.receiver.is_over());
    victim.receiver.handle_timeout(deadline);
    victim.assert_refused(FaultCode::Lost, "forged data");
}

#[test]
fn lengths_at_the_end_of_all_numbers_do_no_harm() {
    let mut victim = Victim::new();
    let huge = |name, len| Entry {
        kind: EntryKind::File { len, sparse: true, inode: longhaul_core::Inode::default() },
        ..file(name, 0).entry
    };
    victim.page(vec![huge("a", u64::MAX), huge("b", u64::MAX), huge("c", u64::MAX - 1)]);
    let wants: u64 = victim
        .obey()
        .iter()
        .map(|action| match action {
            ReceiverAction::Send(Message::WantChunks(want)) => want.count,
            _ => 0,
        })
        .sum();
    assert_eq!(wants, CHUNKS_WANTED_MAX as u64);
    (0..3).for_each(|id| victim.say(fault(id, FaultCode::Vanished)));
    let failed = victim.obey().iter().filter(|a| matches!(a, ReceiverAction::Settled(_, Outcome::Failed(_)))).count();
    assert_eq!((failed, victim.receiver.unsettled()), (3, 0));
}

#[test]
fn a_full_disk_of_the_sender_is_no_reason_to_end_the_session_here() {
    let mut victim = Victim::wanting();
    victim.say(fault(0, FaultCode::NoSpace));
    let actions = victim.obey();
    assert!(actions.iter().any(|a| matches!(a, ReceiverAction::Release(FileId(0)))));
    assert!(!victim.receiver.is_over());
}

#[test]
fn many_files_that_fail_at_once_are_cheap() {
    let mut victim = Victim::new();
    for page in 0..PAGES_UNANSWERED_MAX {
        let entries = (0..PAGE_ENTRIES_MAX).map(|at| file(&format!("d{page}/f{at}"), 2 * CHUNK).entry).collect();
        victim.page(entries);
    }
    victim.obey();
    (0..victim.next).rev().for_each(|id| victim.say(fault(id, FaultCode::Vanished)));
    victim.obey();
    assert_eq!(victim.receiver.unsettled(), 0);
}
