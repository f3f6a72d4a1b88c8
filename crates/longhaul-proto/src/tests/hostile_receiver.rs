//! A receiver that lies: the sender reads only what it offered, no more than it must, and holds
//! bounded state.

use longhaul_core::digest::TreePart;
use longhaul_core::limits::{ATTEMPTS_MAX, CHUNKS_WANTED_MAX, ENTRIES_UNSETTLED_MAX, PAGE_ENTRIES_MAX};
use longhaul_core::{
    Attempt, BundleId, ChunkIndex, ChunkSize, Digest, EntryKind, Fault, FaultCode, FileId, LaneId, Unit,
};

use super::items::{CHUNK, file, many};
use crate::sender::{Sender, SenderAction, SenderConfig, Sent};
use crate::wire::message::{
    Answer, CheckFiles, Ending, Finding, LostChunk, Message, Offer, Outcome, PageCredit, Resume, SendAgain, Settlement,
    Verdict, WantChunks,
};

fn new_sender() -> Sender {
    let chunk = ChunkSize::from_bytes(CHUNK as u64).expect("a size");
    Sender::new(SenderConfig { chunk, chunk_min: chunk, chunk_max: chunk, bundled_max: u64::MAX })
}

fn offer(pages: u64) -> Message {
    Message::Offer(Offer { pages, renamed: None, base: "".into() })
}

/// A sender that has sent `items` and was asked for all of them.
pub(super) fn asked_for(items: Vec<super::items::Item>) -> Sender {
    let mut sender = offered(items);
    sender.handle_message(answer(0, &[0xff]));
    assert!(!sender.is_over());
    sender
}

/// A sender that has sent up to eight `items` in one page.
fn offered(items: Vec<super::items::Item>) -> Sender {
    let mut sender = new_sender();
    sender.handle_message(offer(8));
    let missing = 8 - items.len();
    for item in items {
        sender.handle_scanned(item.entry);
    }
    for at in 0..missing {
        sender.handle_scanned(file(&format!("more{at}"), 1).entry);
    }
    sender.handle_scan_end();
    sender
}

fn check_files(file: u64) -> Message {
    Message::CheckFiles(CheckFiles { files: vec![(FileId(file), Some([1; 32]))] })
}

fn answer(first: u64, wanted: &[u8]) -> Message {
    Message::Answer(Answer { first: FileId(first), wanted: wanted.to_vec() })
}

pub(super) fn want(file: u64, start: u64, count: u64) -> Message {
    Message::WantChunks(WantChunks { file: FileId(file), start: ChunkIndex(start), count })
}

pub(super) fn verdict(unit: Unit, attempt: u32, finding: Finding) -> Message {
    Message::Verdicts(vec![Verdict { unit, attempt: Attempt(attempt), finding }])
}

pub(super) fn settled(file: u64, outcome: Outcome) -> Message {
    Message::Settled(vec![Settlement { file: FileId(file), outcome }])
}

pub(super) fn send_again(file: u64, chunks: &[(u64, u32)]) -> Message {
    let lost = |(index, attempt): &(u64, u32)| LostChunk {
        index: ChunkIndex(*index),
        attempt: Attempt(*attempt),
        digest: [1; 32],
    };
    let chunks = chunks.iter().map(lost).collect();
    Message::SendAgain(SendAgain { file: FileId(file), chunks })
}

fn chunk(index: u64) -> Unit {
    Unit::Chunk { file: FileId(0), index: ChunkIndex(index) }
}

pub(super) fn sent(unit: Unit, attempt: u32, digest: Digest) -> Sent {
    Sent { unit, attempt: Attempt(attempt), digest, len: 1, unit_len: 1, lane: LaneId(0), seq: 0, declared: true }
}

fn actions(sender: &mut Sender) -> Vec<SenderAction> {
    sender.audit();
    std::iter::from_fn(|| sender.poll_action()).collect()
}

/// The session ends for a breach of the protocol, and nothing follows.
fn assert_refused(mut sender: Sender, what: &str) {
    let actions = actions(&mut sender);
    let Some(SenderAction::Abort(fault)) = actions.last() else { panic!("{what} passes: {actions:?}") };
    assert_eq!(fault.code, FaultCode::Protocol, "{what}");
    assert_eq!(actions.iter().filter(|a| matches!(a, SenderAction::Abort(_))).count(), 1);
    sender.handle_message(offer(1));
    sender.handle_sent(sent(chunk(0), 1, Digest::Cv([0; 32])));
    assert!(sender.poll_action().is_none(), "{what}: the end is the end");
}

#[test]
fn what_was_not_offered_is_never_read() {
    let large = || file("large", 4 * CHUNK);
    for (what, message) in [
        ("an entry beyond the manifest", answer(8, &[1])),
        ("an entry at the end of all numbers", answer(u64::MAX, &[1])),
        ("chunks of an entry beyond the manifest", want(8, 0, 1)),
        ("chunks of an entry before its answer", want(0, 0, 1)),
        ("an answer longer than a page", answer(0, &[0; PAGE_ENTRIES_MAX / 8 + 1])),
        ("a verdict on nothing", verdict(chunk(0), 1, Finding::Again)),
        ("a verdict on no bundle", verdict(Unit::Bundle(BundleId(0)), 1, Finding::Again)),
        ("an outcome of an entry beyond the manifest", settled(8, Outcome::Skipped)),
        ("a file of chunks, compared whole", check_files(0)),
        ("the end before any outcome", Message::Complete(Ending::default())),
        ("a second offer", offer(8)),
        ("what only a sender says", Message::Bye(Ending::default())),
    ] {
        let mut sender = offered(vec![large()]);
        sender.handle_message(message);
        assert_refused(sender, what);
    }
}

#[test]
fn what_was_offered_is_read_as_often_as_agreed_and_in_order() {
    let large = || file("large", 4 * CHUNK);
    for (what, messages) in [
        ("wanted twice", vec![answer(0, &[1])]),
        ("chunks out of order", vec![want(0, 1, 1)]),
        ("the same chunks twice", vec![want(0, 0, 2), want(0, 1, 1)]),
        ("more chunks than it has", vec![want(0, 0, 5)]),
        ("no chunks at all", vec![want(0, 0, 0)]),
        ("chunks without end", vec![want(0, 0, u64::MAX)]),
        ("chunks of a small file", vec![want(1, 0, 1)]),
        ("another attempt than was sent", vec![want(0, 0, 1), verdict(chunk(0), 2, Finding::Again)]),
        ("an outcome twice", vec![settled(0, Outcome::Skipped), settled(0, Outcome::Skipped)]),
        ("committed before it ended", vec![want(0, 0, 4), settled(0, Outcome::Committed(Some([0; 32])))]),
        ("called equal before it ended", vec![want(0, 0, 4), settled(0, Outcome::Equal([0; 32]))]),
        ("small and compared, and wanted", vec![check_files(1)]),
        ("compared, beyond the manifest", vec![check_files(8)]),
        ("committed without a root", vec![want(0, 0, 4), settled(0, Outcome::Committed(None))]),
    ] {
        let mut sender = asked_for(vec![large()]);
        messages.into_iter().for_each(|message| sender.handle_message(message));
        assert_refused(sender, what);
    }
}

#[test]
fn a_chunk_or_bundle_is_not_sent_again_without_end() {
    for unit in [chunk(0), Unit::Bundle(BundleId(0))] {
        let mut sender = asked_for(vec![file("large", 4 * CHUNK)]);
        sender.handle_message(want(0, 0, 4));
        for attempt in 1..=ATTEMPTS_MAX {
            assert!(!sender.is_over());
            sender.handle_sent(sent(unit, attempt, Digest::Cv([1; 32])));
            sender.handle_message(verdict(unit, attempt, Finding::Again));
        }
        assert_refused(sender, "another sending");
    }
    let mut sender = asked_for(vec![file("large", 4 * CHUNK)]);
    sender.handle_message(want(0, 0, 4));
    (0..2).for_each(|_| sender.handle_message(verdict(chunk(0), 1, Finding::Again)));
    assert_refused(sender, "a second verdict on one sending");
}

#[test]
fn only_what_was_sent_and_acknowledged_is_sent_again() {
    let good = |index| verdict(chunk(index), 1, Finding::Good(Digest::Cv([1; 32])));
    for (what, messages) in [
        ("never wanted", vec![send_again(0, &[(3, 2)])]),
        ("wanted and not judged", vec![send_again(0, &[(1, 2)])]),
        ("judged to be damaged", vec![verdict(chunk(1), 1, Finding::Again), send_again(0, &[(1, 3)])]),
        ("as a first sending", vec![good(0), send_again(0, &[(0, 1)])]),
        ("twice at once", vec![good(0), send_again(0, &[(0, 2), (0, 3)])]),
        ("twice", vec![good(0), send_again(0, &[(0, 2)]), send_again(0, &[(0, 3)])]),
        ("twice before its sending was reported", vec![good(1), send_again(0, &[(1, 2)]), send_again(0, &[(1, 3)])]),
        ("the sending that is under way", vec![good(1), send_again(0, &[(1, 1)])]),
        ("behind the end of the file", vec![good(0), send_again(0, &[(4, 2)])]),
        ("at the end of all numbers", vec![good(0), send_again(0, &[(u64::MAX, 2)])]),
        ("of a small file", vec![send_again(1, &[(0, 2)])]),
        ("of no entry", vec![send_again(8, &[(0, 2)])]),
        ("no chunks", vec![send_again(0, &[])]),
    ] {
        let mut sender = asked_for(vec![file("large", 4 * CHUNK)]);
        sender.handle_message(want(0, 0, 3));
        sender.handle_sent(sent(chunk(0), 1, Digest::Cv([1; 32])));
        messages.into_iter().for_each(|message| sender.handle_message(message));
        assert_refused(sender, what);
    }
    // One whose outcome or fault has crossed the message is no breach.
    let mut sender = asked_for(vec![file("large", 4 * CHUNK)]);
    sender.handle_message(want(0, 0, 1));
    sender.handle_unreadable(FileId(0), &Fault::protocol("gone"));
    sender.handle_message(send_again(0, &[(0, 2)]));
    sender.handle_message(settled(0, Outcome::Failed(Fault::protocol("failed"))));
    sender.handle_message(send_again(0, &[(0, 2)]));
    assert!(!sender.is_over());
}

#[test]
fn no_more_is_sent_again_than_may_be_wanted_at_once() {
    let most = 2 * CHUNKS_WANTED_MAX as u64;
    let mut sender = asked_for(vec![file("large", 4 * most as usize * CHUNK)]);
    for index in 0..2 {
        sender.handle_message(want(0, index, 1));
        sender.handle_sent(sent(chunk(index), 1, Digest::Cv([1; 32])));
        sender.handle_message(verdict(chunk(index), 1, Finding::Good(Digest::Cv([1; 32]))));
    }
    sender.handle_message(want(0, 2, most - 1));
    sender.handle_message(send_again(0, &[(0, 2)]));
    assert!(!sender.is_over(), "there is room for one");
    assert_eq!(sender.outstanding().1 as u64, most);
    sender.handle_message(send_again(0, &[(1, 2)]));
    assert_refused(sender, "one chunk too many");
}

#[test]
fn a_unit_is_given_up_after_its_last_sending_and_only_then() {
    for unit in [chunk(0), Unit::Bundle(BundleId(0))] {
        for sendings in 1..ATTEMPTS_MAX {
            let mut sender = asked_for(vec![file("large", 4 * CHUNK)]);
            sender.handle_message(want(0, 0, 4));
            for attempt in 1..sendings {
                sender.handle_sent(sent(unit, attempt, Digest::Cv([1; 32])));
                sender.handle_message(verdict(unit, attempt, Finding::Again));
            }
            sender.handle_message(verdict(unit, sendings, Finding::GivenUp));
            assert_refused(sender, "given up too soon");
        }
        let mut sender = asked_for(vec![file("large", 4 * CHUNK)]);
        sender.handle_message(want(0, 0, 4));
        let before = sender.outstanding();
        for attempt in 1..ATTEMPTS_MAX {
            sender.handle_sent(sent(unit, attempt, Digest::Cv([1; 32])));
            sender.handle_message(verdict(unit, attempt, Finding::Again));
        }
        // The last verdict overtakes the report of its unit, which is outstanding until the report
        // comes.
        sender.handle_message(verdict(unit, ATTEMPTS_MAX, Finding::GivenUp));
        assert_eq!(sender.outstanding(), before);
        sender.handle_sent(sent(unit, ATTEMPTS_MAX, Digest::Cv([1; 32])));
        assert_ne!(sender.outstanding(), before);
        let actions = actions(&mut sender);
        let faults = actions.iter().filter(|a| matches!(a, SenderAction::Send(Message::FileFault(_)))).count();
        assert_eq!(faults, if unit == chunk(0) { 0 } else { 7 }, "{actions:?}");
    }
}

#[test]
fn a_second_verdict_on_what_was_not_reported_yet_ends_the_session() {
    let good = Finding::Good(Digest::Cv([1; 32]));
    for unit in [chunk(0), Unit::Bundle(BundleId(0))] {
        for (first, second) in [(good, good), (good, Finding::Again), (Finding::Again, good)] {
            let mut sender = asked_for(vec![file("large", 4 * CHUNK)]);
            sender.handle_message(want(0, 0, 4));
            sender.handle_message(verdict(unit, 1, first));
            sender.handle_message(verdict(unit, 1, second));
            assert_refused(sender, "a second verdict");
        }
    }
}

#[test]
fn verdicts_on_bundles_that_were_never_sent_order_nothing() {
    let unit = Unit::Bundle(BundleId(0));
    let mut sender = asked_for(vec![]);
    assert_eq!(actions(&mut sender).iter().filter(|a| matches!(a, SenderAction::Pack { .. })).count(), 1);
    sender.handle_message(verdict(unit, 1, Finding::Again));
    assert!(actions(&mut sender).is_empty(), "it is packed again when it was sent");
    sender.handle_sent(sent(unit, 1, Digest::Root([1; 32])));
    assert!(matches!(actions(&mut sender)[..], [SenderAction::Pack { attempt: Attempt(2), .. }]));
}

#[test]
fn what_is_held_comes_in_chunks_that_a_session_may_have_begun_it_with() {
    let held = |file, log2, parts| {
        let chunk = ChunkSize::from_log2(log2).expect("a size");
        Message::Resume(Resume { file: FileId(file), chunk, parts, more: false })
    };
    let sender = || {
        let sizes = [12, 11, 14].map(|log2| ChunkSize::from_log2(log2).expect("a size"));
        let [chunk, chunk_min, chunk_max] = sizes;
        let mut sender = Sender::new(SenderConfig { chunk, chunk_min, chunk_max, bundled_max: 100 });
        sender.handle_message(offer(8));
        sender.handle_scanned(file("large", 100 << 10).entry);
        sender.handle_scan_end();
        sender.handle_message(answer(0, &[1]));
        sender
    };
    for (log2, fine) in [(10, false), (11, true), (12, true), (14, true), (15, false)] {
        let mut sender = sender();
        sender.handle_message(held(0, log2, Vec::new()));
        if fine {
            assert!(!sender.is_over(), "{log2}");
        } else {
            assert_refused(sender, "chunks of that size");
        }
    }
}

#[test]
fn pieces_in_which_files_are_held_are_not_remembered_without_end() {
    let mut sender = new_sender();
    sender.handle_message(offer(8));
    let chunks = 128 << 10;
    for at in 0..8 {
        let mut entry = file(&format!("f{at}"), 0).entry;
        entry.kind = EntryKind::File { len: (chunks * CHUNK) as u64, sparse: false, inode: Default::default() };
        sender.handle_scanned(entry);
    }
    sender.handle_scan_end();
    sender.handle_message(answer(0, &[0xff]));
    // Every other chunk, so that no two of them are neighbours that could be taken together.
    let part = |at: u64| TreePart { start: ChunkIndex(2 * at), chunks: 1, digest: Digest::Cv([0; 32]) };
    let mut told = 0;
    for file in 0..8 {
        for first in (0..chunks as u64 / 2).step_by(1024) {
            let parts = (first..first + 1024).map(part).collect();
            let chunk = ChunkSize::from_bytes(CHUNK as u64).expect("a size");
            sender.handle_message(Message::Resume(Resume { file: FileId(file), chunk, parts, more: true }));
            if sender.is_over() {
                assert!(told <= 128 << 10, "{told} pieces");
                return assert_refused(sender, "pieces without end");
            }
            told += 1024;
        }
        // An entry that is at its end is held in no pieces.
        if file == 0 {
            sender.handle_message(settled(0, Outcome::Skipped));
            told = 0;
        }
    }
    panic!("all pieces were remembered");
}

#[test]
fn files_are_not_begun_without_end() {
    let mut sender = new_sender();
    sender.handle_message(offer(8));
    for at in 0..1024 {
        sender.handle_scanned(file(&format!("f{at}"), 2 * CHUNK).entry);
    }
    sender.handle_scan_end();
    sender.handle_message(answer(0, &[0xff; 128]));
    for begun in 0..1024 {
        if sender.is_over() {
            assert!((700..=713).contains(&begun), "{begun} files");
            return assert_refused(sender, "files without end");
        }
        sender.handle_message(want(begun, 0, 1));
        // One that is at its end needs no descriptor.
        if begun < 200 {
            sender.handle_message(settled(begun, Outcome::Skipped));
            assert!(!sender.is_over());
            sender.audit();
        }
    }
    panic!("all were begun");
}

#[test]
fn a_receiver_that_is_behind_with_reading_is_sent_no_more_pages() {
    let mut sender = new_sender();
    sender.handle_message(offer(u64::MAX));
    sender.handle_backlog(true);
    assert!(!sender.has_room(), "no entry is taken");
    sender.handle_scan_end();
    assert!(actions(&mut sender).is_empty(), "no page leaves");
    sender.handle_backlog(false);
    assert!(matches!(actions(&mut sender)[..], [SenderAction::Send(Message::Page(_))]));
}

#[test]
fn a_digest_that_was_not_sent_is_not_acknowledged() {
    let other = Finding::Good(Digest::Cv([9; 32]));
    let mut before = asked_for(vec![file("large", 4 * CHUNK)]);
    before.handle_message(want(0, 0, 1));
    before.handle_sent(sent(chunk(0), 1, Digest::Cv([1; 32])));
    before.handle_message(verdict(chunk(0), 1, other));
    assert_refused(before, "a wrong digest");

    let mut overtaking = asked_for(vec![file("large", 4 * CHUNK)]);
    overtaking.handle_message(want(0, 0, 1));
    overtaking.handle_message(verdict(chunk(0), 1, other));
    overtaking.handle_sent(sent(chunk(0), 1, Digest::Cv([1; 32])));
    assert_refused(overtaking, "a wrong digest ahead of the report");

    let mut bundle = asked_for(vec![]);
    bundle.handle_sent(sent(Unit::Bundle(BundleId(0)), 1, Digest::Root([1; 32])));
    bundle.handle_message(verdict(Unit::Bundle(BundleId(0)), 1, Finding::Good(Digest::Root([2; 32]))));
    assert_refused(bundle, "a wrong digest of a bundle");

    let mut overtaking = asked_for(vec![]);
    overtaking.handle_message(verdict(Unit::Bundle(BundleId(0)), 1, Finding::Good(Digest::Root([2; 32]))));
    overtaking.handle_sent(sent(Unit::Bundle(BundleId(0)), 1, Digest::Root([1; 32])));
    assert_refused(overtaking, "a wrong digest of a bundle ahead of the report");
}

#[test]
fn another_root_than_was_said_is_not_a_commit() {
    let mut sender = asked_for(vec![file("large", 2 * CHUNK)]);
    sender.handle_message(want(0, 0, 2));
    sender.handle_sent(sent(chunk(0), 1, Digest::Cv([1; 32])));
    sender.handle_sent(sent(chunk(1), 1, Digest::Cv([2; 32])));
    sender.handle_check_source(FileId(0), Ok(()));
    sender.handle_message(settled(0, Outcome::Committed(Some([3; 32]))));
    assert_refused(sender, "another root");
}

#[test]
fn good_verdicts_on_what_was_never_sent_do_not_make_room_for_more() {
    let mut sender = asked_for(vec![file("large", 8 * CHUNKS_WANTED_MAX * CHUNK)]);
    for at in 0..8 * CHUNKS_WANTED_MAX as u64 {
        sender.handle_message(want(0, at, 1));
        sender.handle_message(verdict(chunk(at), 1, Finding::Good(Digest::Cv([0; 32]))));
        if sender.is_over() {
            assert!(at as usize <= 2 * CHUNKS_WANTED_MAX);
            return assert_refused(sender, "chunks without end");
        }
    }
    panic!("all chunks were ordered without one being sent");
}

#[test]
fn credit_without_end_does_not_make_the_sender_hold_the_whole_tree() {
    let mut sender = new_sender();
    sender.handle_message(offer(u64::MAX));
    sender.handle_message(Message::PageCredit(PageCredit { upto: u64::MAX }));
    let mut scanned = 0;
    while sender.has_room() {
        sender.handle_scanned(file(&format!("f{scanned}"), 0).entry);
        scanned += 1;
        assert!(scanned <= 4 * ENTRIES_UNSETTLED_MAX, "the whole tree is held");
    }
    assert_eq!(sender.unsettled(), scanned);
    assert!(!sender.is_over());
}

#[test]
fn settling_bundled_files_unseen_does_not_make_the_sender_hold_bundles_without_end() {
    let mut sender = new_sender();
    sender.handle_message(offer(u64::MAX));
    let mut first = 0;
    while !sender.is_over() {
        assert!(first < 4 * ENTRIES_UNSETTLED_MAX as u64, "bundles without end");
        for item in many(PAGE_ENTRIES_MAX - 2, PAGE_ENTRIES_MAX, 10) {
            sender.handle_scanned(item.entry);
        }
        sender.handle_message(answer(first, &wanted_but_the_directory()));
        let outcomes = (first..first + PAGE_ENTRIES_MAX as u64).map(FileId);
        let all = outcomes.map(|file| Settlement { file, outcome: Outcome::Skipped }).collect();
        sender.handle_message(Message::Settled(all));
        first += PAGE_ENTRIES_MAX as u64;
    }
    assert_refused(sender, "bundles without end");
}

/// All of a page of 1022 files between a directory and its end.
fn wanted_but_the_directory() -> Vec<u8> {
    let mut wanted = vec![0xff; PAGE_ENTRIES_MAX / 8];
    wanted[0] = 0xfe;
    wanted[PAGE_ENTRIES_MAX / 8 - 1] = 0x7f;
    wanted
}

#[test]
fn texts_of_a_receiver_reach_people_short_and_on_one_line() {
    let wild = Fault::new(FaultCode::Io, longhaul_core::Blame::Local, "a\nb\x1b[2J".repeat(3000)).about("x\ry");
    for message in [settled(0, Outcome::Failed(wild.clone())), Message::Refuse(wild.clone())] {
        let bytes = message.encode();
        let heard = Message::decode(&bytes[4..]).expect("decodes");
        let fault = match heard {
            Message::Refuse(fault) => fault,
            Message::Settled(list) => match list.into_iter().next().map(|settlement| settlement.outcome) {
                Some(Outcome::Failed(fault)) => fault,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        assert!(fault.message.len() <= 1024 && !fault.message.contains(['\n', '\x1b']), "{}", fault.message);
        assert_eq!(fault.object, "x\\x0dy");
    }
}
