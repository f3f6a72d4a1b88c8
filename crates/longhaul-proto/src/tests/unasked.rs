//! Small files that are said before anybody asked for them: once, before the first page, and
//! written only where the page would have asked for them.

use longhaul_core::limits::{PAGES_UNANSWERED_MAX, UNASKED_BYTES_MAX};
use longhaul_core::{
    Attempt, Blame, BundleId, ChunkSize, Clock, Digest, DigestKind, Extras, Fault, FaultCode, FileId, IfExists, Unit,
};

use super::items::{CHUNK, Item, file};
use super::victim::{NOW, Victim};
use crate::receiver::{Landed, LandedRow, Policy, ReceiverAction, Seen, Surveyed, Ticket};
use crate::sender::{Sender, SenderAction, SenderConfig};
use crate::wire::data::Piece;
use crate::wire::message::{Answer, Message, Offer, Outcome, Settlement};

const ROOT: [u8; 32] = [5; 32];
/// The bytes that a sender reckons with for an entry with a name of one letter.
const ENTRY: u64 = 71;

fn row(file: u64, len: u64) -> LandedRow {
    LandedRow { file: FileId(file), len, declared: ROOT, computed: ROOT, same: false }
}

fn unasked(rows: Vec<LandedRow>) -> Landed {
    let piece = Piece {
        unit: Unit::Bundle(BundleId(u64::MAX)),
        attempt: Attempt::FIRST,
        offset: 0,
        len: 100,
        unit_len: 100,
        chunk: ChunkSize::from_bytes(CHUNK as u64).expect("a size"),
        digest: DigestKind::Root,
        hole: false,
        same: false,
        trailer: false,
    };
    Landed { ticket: Ticket::UNASKED, piece, computed: Digest::Root([9; 32]), declared: None, rows }
}

/// The files that `actions` have written of what came unasked, whether its payload is dropped, and
/// the bits of the answer.
fn decided(actions: &[ReceiverAction]) -> (Vec<u64>, bool, Vec<u8>) {
    let (mut written, mut dropped, mut bits) = (Vec::new(), false, Vec::new());
    for action in actions {
        match action {
            ReceiverAction::WriteBundle { ticket: Ticket::UNASKED, files } => {
                written.extend(files.iter().map(|held| held.id.0));
            }
            ReceiverAction::DropPayload(Ticket::UNASKED) => dropped = true,
            ReceiverAction::Send(Message::Answer(answer)) => bits.clone_from(&answer.wanted),
            _ => {}
        }
    }
    (written, dropped, bits)
}

/// Says `rows` unasked, and then a page of three small files of 100 bytes, of which the survey
/// finds these.
fn surveyed(mut victim: Victim, rows: Vec<LandedRow>, found: [Seen; 3]) -> (Vec<u64>, bool, Vec<u8>) {
    victim.receiver.handle_unasked(NOW, unasked(rows));
    victim.page(["a", "b", "c"].map(|name| file(name, 100).entry).to_vec());
    let ordered: Vec<_> = std::iter::from_fn(|| victim.poll()).collect();
    assert!(ordered.iter().any(|action| matches!(action, ReceiverAction::Survey(_))));
    assert_eq!(decided(&ordered), (vec![], false, vec![]), "nothing is decided before the survey");
    victim.receiver.handle_survey(NOW, FileId(0), found.map(|seen| Ok(Surveyed::from(seen))).to_vec());
    let actions: Vec<_> = std::iter::from_fn(|| victim.poll()).collect();
    assert!(!actions.iter().any(|action| matches!(action, ReceiverAction::Abort(_))), "{actions:?}");
    decided(&actions)
}

/// A file that stands as `len` bytes, with the time of the items.
fn stands(len: u64) -> Seen {
    let meta = file("x", 0).entry.meta;
    Seen::File { len, mtime: meta.mtime, clock: Clock::default() }
}

#[test]
fn a_file_that_came_unasked_is_written_if_it_is_wanted_and_then_not_asked_for() {
    let absent = [Seen::Absent, Seen::Absent, Seen::Absent];
    let all = (vec![0, 1, 2], false, vec![0b000]);
    assert_eq!(surveyed(Victim::new(), vec![row(0, 100), row(1, 100), row(2, 100)], absent.clone()), all);
    let one = (vec![1], false, vec![0b101]);
    assert_eq!(surveyed(Victim::new(), vec![row(1, 100)], absent), one);
}

#[test]
fn a_file_that_is_not_wanted_so_is_not_written() {
    let absent = || [Seen::Absent, Seen::Absent, Seen::Absent];
    let damaged = LandedRow { computed: [6; 32], ..row(1, 100) };
    let bare = LandedRow { same: true, ..row(1, 100) };
    let fails = || Victim::with(Policy { if_exists: IfExists::Fail, may_modify: true });
    let compares = || Victim::with(Policy { if_exists: IfExists::Verify, may_modify: true });
    for (case, victim, rows, found, want) in [
        (
            "there",
            Victim::new(),
            vec![row(1, 100)],
            [Seen::Absent, stands(100), Seen::Absent],
            (vec![], true, vec![0b101]),
        ),
        (
            "in the way",
            Victim::new(),
            vec![row(1, 100)],
            [Seen::Absent, Seen::Dir, Seen::Absent],
            (vec![], true, vec![0b101]),
        ),
        ("refused", fails(), vec![row(1, 100)], [Seen::Absent, stands(99), Seen::Absent], (vec![], true, vec![0b101])),
        (
            "compared",
            compares(),
            vec![row(1, 100)],
            [Seen::Absent, stands(100), Seen::Absent],
            (vec![], true, vec![0b101]),
        ),
        ("damaged", Victim::new(), vec![damaged], absent(), (vec![], true, vec![0b111])),
        ("without bytes", Victim::new(), vec![bare], absent(), (vec![], true, vec![0b111])),
        ("another length", Victim::new(), vec![row(1, 99)], absent(), (vec![], true, vec![0b111])),
        (
            "beyond the page",
            Victim::new(),
            vec![row(3, 100), row(u64::MAX, 100)],
            absent(),
            (vec![], true, vec![0b111]),
        ),
        ("read back", Victim::reading_back(), vec![row(1, 100)], absent(), (vec![], true, vec![0b111])),
        (
            "one of two",
            Victim::new(),
            vec![row(0, 100), row(1, 100)],
            [Seen::Absent, stands(100), Seen::Absent],
            (vec![0], false, vec![0b100]),
        ),
    ] {
        assert_eq!(surveyed(victim, rows, found), want, "{case}");
    }
}

#[test]
fn files_that_come_unasked_twice_or_late_or_are_none_end_the_session() {
    let came = |victim: &mut Victim, rows| victim.receiver.handle_unasked(NOW, unasked(rows));
    let mut twice = Victim::new();
    came(&mut twice, vec![row(0, 1)]);
    came(&mut twice, vec![row(0, 1)]);
    twice.assert_refused(FaultCode::Protocol, "twice");
    let mut late = Victim::new();
    late.page(vec![file("a", 1).entry]);
    came(&mut late, vec![row(0, 1)]);
    late.assert_refused(FaultCode::Protocol, "behind the page");
    let mut none = Victim::new();
    came(&mut none, vec![]);
    none.assert_refused(FaultCode::Protocol, "none");
    let mut doubled = Victim::new();
    came(&mut doubled, vec![row(1, 100), row(0, 1), row(1, 100)]);
    let actions: Vec<_> = std::iter::from_fn(|| doubled.poll()).collect();
    assert!(decided(&actions).1, "its payload is dropped: {actions:?}");
    assert!(actions.iter().any(is_refusal), "a file twice in one bundle: {actions:?}");
}

fn is_refusal(action: &ReceiverAction) -> bool {
    matches!(action, ReceiverAction::Abort(fault) if fault.code == FaultCode::Protocol)
}

#[test]
fn files_that_found_no_buffer_are_asked_for_and_come_unasked_no_more() {
    let mut victim = Victim::new();
    victim.receiver.handle_unasked_dropped(NOW);
    victim.page(vec![file("a", 100).entry]);
    let (written, _, wanted) = decided(&victim.obey());
    assert_eq!((written, wanted), (vec![], vec![0b1]));
    for is_late in [false, true] {
        let mut victim = Victim::new();
        if is_late {
            victim.page(vec![file("a", 100).entry]);
        } else {
            victim.receiver.handle_unasked_dropped(NOW);
        }
        victim.receiver.handle_unasked_dropped(NOW);
        victim.assert_refused(FaultCode::Protocol, "twice, or late");
    }
}

#[test]
fn a_session_that_is_to_end_writes_nothing_that_came_unasked() {
    let mut victim = Victim::new();
    victim.receiver.handle_unasked(NOW, unasked(vec![row(1, 100)]));
    victim.page(["a", "b"].map(|name| file(name, 100).entry).to_vec());
    while victim.poll().is_some() {}
    let full = Fault::new(FaultCode::NoSpace, Blame::Local, "full");
    victim.receiver.handle_survey(NOW, FileId(0), vec![Err(full), Ok(Seen::Absent.into())]);
    let actions: Vec<_> = std::iter::from_fn(|| victim.poll()).collect();
    let (written, is_dropped, _) = decided(&actions);
    assert!(written.is_empty() && is_dropped, "{actions:?}");
}

fn sender(bytes: u64) -> Sender {
    let chunk = ChunkSize::from_bytes(CHUNK as u64).expect("a size");
    let mut sender = Sender::new(SenderConfig { chunk, chunk_min: chunk, chunk_max: chunk, bundled_max: 512 });
    sender.allow_unasked(bytes);
    sender
}

fn polled(sender: &mut Sender) -> Vec<SenderAction> {
    std::iter::from_fn(|| sender.poll_action()).collect()
}

/// The files that are to be read for being said unasked.
fn packed(actions: &[SenderAction]) -> Option<Vec<u64>> {
    actions.iter().find_map(|action| match action {
        SenderAction::PackUnasked(files) => Some(files.iter().map(|small| small.file.0).collect()),
        _ => None,
    })
}

fn has_page(actions: &[SenderAction]) -> bool {
    actions.iter().any(|action| matches!(action, SenderAction::Send(Message::Page(_))))
}

fn scan(sender: &mut Sender, items: Vec<Item>) {
    for item in items {
        sender.handle_scanned(item.entry);
    }
}

#[test]
fn the_first_page_waits_for_what_is_said_before_it_and_no_other_does() {
    let mut sender = sender(1000 + 5 * ENTRY);
    // With their table two files of 400 bytes fit, and a short one behind a long one.
    scan(&mut sender, vec![file("a", 400), file("b", 900), file("c", 400), file("d", 400), file("e", 0)]);
    sender.handle_scan_idle();
    let first = polled(&mut sender);
    assert_eq!(packed(&first), Some(vec![0, 2, 4]));
    assert!(!has_page(&first));
    sender.handle_scan_idle();
    assert!(polled(&mut sender).is_empty(), "one order, and no page yet");
    assert!(!sender.has_room() && sender.is_packing_unasked(), "the page grows no more");
    sender.handle_pack_unasked(vec![(FileId(0), ROOT)]);
    assert!(sender.has_room() && !sender.is_packing_unasked());
    assert!(has_page(&polled(&mut sender)));
    sender.handle_message(Message::Offer(Offer { pages: PAGES_UNANSWERED_MAX, renamed: None, base: "".into() }));
    scan(&mut sender, vec![file("f", 1)]);
    sender.allow_unasked(UNASKED_BYTES_MAX);
    sender.handle_scan_end();
    let second = polled(&mut sender);
    assert!(packed(&second).is_none() && has_page(&second));
}

#[test]
fn nothing_is_said_unasked_where_it_is_not_allowed_or_nothing_fits() {
    for bytes in [0, 55, 155 + ENTRY] {
        let mut sender = sender(bytes);
        scan(&mut sender, vec![file("a", 100)]);
        sender.handle_scan_end();
        let actions = polled(&mut sender);
        assert!(packed(&actions).is_none() && has_page(&actions), "{bytes}");
    }
    let mut sender = sender(156 + ENTRY);
    scan(&mut sender, vec![file("a", 100)]);
    sender.handle_scan_end();
    assert_eq!(packed(&polled(&mut sender)), Some(vec![0]));
}

#[test]
fn what_goes_before_the_page_is_a_part_of_the_flight() {
    let mut with_extras = file("a", 100).entry;
    with_extras.meta.extras = Some(Extras::default().into());
    let cost = Extras::default().cost() as u64;
    for (bytes, want) in [(155 + ENTRY + cost, None), (156 + ENTRY + cost, Some(vec![0]))] {
        let mut sender = sender(bytes);
        sender.handle_scanned(with_extras.clone());
        sender.handle_scan_end();
        assert_eq!(packed(&polled(&mut sender)), want, "{bytes}");
    }
}

/// A sender that has said the files 0 and 1 unasked, and their page.
fn said() -> Sender {
    let mut sender = sender(1000);
    scan(&mut sender, vec![file("a", 100), file("b", 100)]);
    sender.handle_scan_end();
    polled(&mut sender);
    sender.handle_pack_unasked(vec![(FileId(0), ROOT), (FileId(1), ROOT)]);
    polled(&mut sender);
    sender
}

fn settled(file: u64, root: [u8; 32]) -> Message {
    Message::Settled(vec![Settlement { file: FileId(file), outcome: Outcome::Committed(Some(root)) }])
}

#[test]
fn a_receiver_says_the_root_that_was_said_or_the_session_ends() {
    let mut sender = said();
    sender.handle_message(settled(0, ROOT));
    assert!(!sender.is_over());
    assert_eq!((sender.bytes_sent(), sender.bytes_done()), ((100, 0), 100));
    sender.handle_message(settled(1, [6; 32]));
    assert!(sender.is_over());
}

#[test]
fn a_receiver_that_wants_what_was_said_gets_it_once_more_and_no_oftener() {
    let mut sender = said();
    let answer = || Message::Answer(Answer { first: FileId(0), wanted: vec![0b11] });
    sender.handle_message(answer());
    let packs = |actions: &[SenderAction]| actions.iter().filter(|a| matches!(a, SenderAction::Pack { .. })).count();
    assert_eq!(packs(&polled(&mut sender)), 1);
    sender.handle_message(answer());
    let actions = polled(&mut sender);
    assert_eq!((packs(&actions), packed(&actions)), (0, None));
    assert!(sender.is_over(), "an answer to a page that was not sent");
}

#[test]
fn a_file_that_was_said_and_is_not_asked_for_is_begun_until_its_outcome() {
    let skipped = |file| Message::Settled(vec![Settlement { file: FileId(file), outcome: Outcome::Skipped }]);
    let answer = |bits| Message::Answer(Answer { first: FileId(0), wanted: vec![bits] });
    let begun = |sender: &Sender| [0, 1].map(|file| sender.is_begun(FileId(file)));
    let mut taken = said();
    assert_eq!(begun(&taken), [false, false], "nothing is known of them");
    taken.handle_message(answer(0b10));
    assert_eq!(begun(&taken), [true, true], "one is there, and one is wanted");
    taken.handle_message(settled(0, ROOT));
    assert_eq!(begun(&taken), [false, true]);
    let mut stands = said();
    stands.handle_message(skipped(0));
    stands.handle_message(answer(0));
    assert_eq!(begun(&stands), [false, true], "one stood there before");
    let mut unsaid = sender(0);
    scan(&mut unsaid, vec![file("a", 100)]);
    unsaid.handle_scan_end();
    polled(&mut unsaid);
    unsaid.handle_message(answer(0));
    assert_eq!(begun(&unsaid), [false, false], "nothing was said");
}
