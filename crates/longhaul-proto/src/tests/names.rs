//! Further names of files at a receiver: when they are made, what becomes of them where they cannot
//! be, and a sender that tells of names against the rules.

use longhaul_core::{Clock, Entry, EntryKind, FaultCode, FileId, Mtime, RelPath, SeveralNames};

use super::items::{CHUNK, file, item};
use super::victim::{NOW, Victim, fault};
use crate::receiver::{Named, ReceiverAction, Seen};
use crate::wire::message::{Message, Outcome, Page, PageNames};

const ROOT: [u8; 32] = [7; 32];

fn names(rows: &[(u64, Option<&str>)]) -> Message {
    let names = |first: &Option<&str>| {
        let first = first.map(|path| RelPath::new(path).expect("a path"));
        SeveralNames { first, count: 3 }
    };
    Message::Names(PageNames { entries: rows.iter().map(|(id, first)| (FileId(*id), names(first))).collect() })
}

/// A file that stands as the source has it.
fn same(len: usize) -> Seen {
    Seen::File { len: len as u64, mtime: Mtime { secs: 1_700_000_000, nanos: 5 }, clock: Clock::Exact }
}

/// A victim that has taken the only page, of files `a`, `b`, ... of these lengths: `a` has the
/// first name of one file, and all others are names of it. With its actions.
fn offered(files: &[(usize, Seen)]) -> (Victim, Vec<ReceiverAction>) {
    let mut victim = Victim::taking_extras();
    let of = |at: usize| char::from(b'a' + at as u8).to_string();
    let rows: Vec<_> = (0..files.len()).map(|at| (at as u64, (at > 0).then_some("a"))).collect();
    victim.say(names(&rows));
    let entries: Vec<Entry> = files.iter().enumerate().map(|(at, (len, _))| file(&of(at), *len).entry).collect();
    victim.say(Message::Page(Page { first: FileId(0), last: true, entries }));
    let mut actions = Vec::new();
    while let Some(action) = victim.poll() {
        if let ReceiverAction::Survey(_) = action {
            let found = files.iter().map(|(_, seen)| Ok(seen.clone().into())).collect();
            victim.receiver.handle_survey(NOW, FileId(0), found);
        }
        actions.push(action);
    }
    (victim, actions)
}

/// The entries that are to become names, each with the place of its first one.
fn ordered(actions: &[ReceiverAction]) -> Vec<(u64, String)> {
    let order = |action: &ReceiverAction| match action {
        ReceiverAction::MakeName { entry, first } => Some((entry.id.0, first.escaped().to_string())),
        _ => None,
    };
    actions.iter().filter_map(order).collect()
}

/// The entries that are wanted behind the answer to their page.
fn wanted_late(actions: &[ReceiverAction]) -> Vec<u64> {
    let wanted = |action: &ReceiverAction| match action {
        ReceiverAction::Send(Message::CheckFiles(check)) => Some(check.files.clone()),
        _ => None,
    };
    actions.iter().filter_map(wanted).flatten().filter(|(_, root)| root.is_none()).map(|(id, _)| id.0).collect()
}

fn outcomes(actions: &[ReceiverAction]) -> Vec<(u64, Outcome)> {
    let outcome = |action: &ReceiverAction| match action {
        ReceiverAction::Settled(held, outcome) => Some((held.id.0, outcome.clone())),
        _ => None,
    };
    actions.iter().filter_map(outcome).collect()
}

#[test]
fn another_name_of_a_file_that_stands_is_made_and_committed_and_never_wanted() {
    for len in [100, 4 * CHUNK] {
        let (mut victim, actions) = offered(&[(len, same(len)), (len, Seen::Absent)]);
        assert_eq!((ordered(&actions), wanted_late(&actions)), (vec![(1, "a".to_owned())], vec![]));
        let asks = |action: &ReceiverAction| match action {
            ReceiverAction::Send(Message::Answer(answer)) => answer.wanted.iter().any(|bits| *bits != 0),
            action => matches!(action, ReceiverAction::Send(Message::WantChunks(_)) | ReceiverAction::Create(..)),
        };
        assert!(!actions.iter().any(asks), "{actions:?}");
        victim.receiver.handle_name(NOW, FileId(1), Named::Staged(Some(ROOT)));
        assert!(matches!(victim.obey()[..], [ReceiverAction::Barrier(_)]), "it waits for nothing else");
        victim.receiver.handle_barrier(NOW, Ok(Vec::new()));
        assert!(outcomes(&victim.obey()).is_empty());
        victim.receiver.handle_publish(NOW, vec![(FileId(1), Ok(()))]);
        assert!(outcomes(&victim.obey()).is_empty(), "its name is not durable");
        victim.receiver.handle_sync_dirs(NOW, Ok(()));
        assert_eq!(outcomes(&victim.obey()), [(1, Outcome::Linked(Some(ROOT)))]);
    }
}

#[test]
fn a_name_waits_until_the_first_has_its_outcome() {
    let (mut victim, actions) = offered(&[(100, Seen::Absent), (100, Seen::Absent), (100, Seen::Absent)]);
    assert_eq!((ordered(&actions), wanted_late(&actions)), (vec![], vec![]));
    // The first fails: the next one is sent in its place, and the last becomes a name of that.
    victim.say(fault(0, FaultCode::Vanished));
    let actions = victim.obey();
    assert_eq!((ordered(&actions), wanted_late(&actions)), (vec![], vec![1]));
    victim.say(fault(1, FaultCode::Vanished));
    assert_eq!(wanted_late(&victim.obey()), [2]);
}

#[test]
fn names_of_which_four_first_ones_failed_wait_for_no_other() {
    let (mut victim, _) = offered(&vec![(100, Seen::Absent); 9]);
    for failed in 0..3 {
        victim.say(fault(failed, FaultCode::Vanished));
        assert_eq!(wanted_late(&victim.obey()), [failed + 1]);
    }
    victim.say(fault(3, FaultCode::Vanished));
    assert_eq!(wanted_late(&victim.obey()), [4, 5, 6, 7, 8]);
}

#[test]
fn a_name_that_cannot_be_made_is_sent_or_stays_what_it_is() {
    for len in [100, 4 * CHUNK] {
        let (mut victim, actions) = offered(&[(len, same(len)), (len, Seen::Absent), (len, same(len))]);
        assert_eq!(ordered(&actions).len(), 2);
        victim.receiver.handle_name(NOW, FileId(1), Named::Refused);
        let actions = victim.obey();
        assert_eq!(wanted_late(&actions), [1]);
        let wants = |action: &ReceiverAction| matches!(action, ReceiverAction::Send(Message::WantChunks(_)));
        assert_eq!(actions.iter().any(wants), len > CHUNK, "{actions:?}");
        victim.receiver.handle_name(NOW, FileId(2), Named::Refused);
        assert_eq!(outcomes(&victim.obey()), [(2, Outcome::Skipped)]);
    }
}

#[test]
fn a_name_that_is_one_already_is_skipped() {
    let (mut victim, _) = offered(&[(100, same(100)), (100, same(100)), (100, same(100))]);
    victim.receiver.handle_name(NOW, FileId(1), Named::Stood(None));
    victim.receiver.handle_name(NOW, FileId(2), Named::Stood(Some(ROOT)));
    assert_eq!(outcomes(&victim.obey()), [(1, Outcome::Skipped), (2, Outcome::Skipped)]);
}

#[test]
fn a_name_of_a_file_that_nobody_looked_at_comes_by_itself_unless_it_may_be_skipped() {
    let older = Seen::File { len: 100, mtime: Mtime { secs: 3, nanos: 0 }, clock: Clock::Exact };
    let (mut victim, actions) = offered(&[(100, Seen::Dir), (100, older.clone()), (100, older)]);
    assert_eq!(ordered(&actions).len(), 2, "the first failed at once");
    victim.receiver.handle_name(NOW, FileId(1), Named::Stood(None));
    let actions = victim.obey();
    assert_eq!((wanted_late(&actions), outcomes(&actions)), (vec![1], vec![]));
    victim.receiver.handle_name(NOW, FileId(2), Named::Stood(Some(ROOT)));
    assert_eq!(outcomes(&victim.obey()), [(2, Outcome::Equal(ROOT))]);
}

#[test]
fn names_that_were_not_agreed_on_or_belong_to_no_file_end_the_session() {
    let a = || file("a", 100).entry;
    let page = |entries| Message::Page(Page { first: FileId(0), last: false, entries });
    let dir = || item("d", EntryKind::Dir).entry;
    for (what, mut victim, messages) in [
        ("not agreed on", Victim::new(), vec![names(&[(0, None)])]),
        ("of a directory", Victim::taking_extras(), vec![names(&[(0, None)]), page(vec![dir()])]),
        ("of no entry", Victim::taking_extras(), vec![names(&[(1, None)]), page(vec![a()])]),
        ("out of order", Victim::taking_extras(), vec![names(&[(1, None), (0, None)])]),
        ("twice", Victim::taking_extras(), vec![names(&[(0, None)]), names(&[(0, None)])]),
        ("more than a page has", Victim::taking_extras(), vec![names(&vec![(0, None); 5000])]),
    ] {
        messages.into_iter().for_each(|message| victim.say(message));
        victim.assert_refused(FaultCode::Protocol, what);
    }
}

#[test]
fn a_first_name_that_was_never_offered_is_left_to_the_disk_to_judge_and_its_own_is_none() {
    let mut victim = Victim::taking_extras();
    victim.say(names(&[(0, Some("never/offered")), (1, Some("b"))]));
    victim.page(vec![file("a", 100).entry, file("b", 100).entry]);
    assert_eq!(ordered(&victim.obey()), [(0, "never/offered".to_owned())]);
}
