//! Tests of an outbox: which bytes wait, in which order they leave, and when a peer has a backlog.

use longhaul_core::limits::{CHUNKS_WANTED_MAX, ENTRIES_UNSETTLED_MAX, PAGES_UNANSWERED_MAX};
use longhaul_core::{FileId, LaneId, Unit};
use longhaul_proto::wire::message::{LaneTarget, Limiting, Outcome, PageCredit, Rate, Settlement, Tally, Transport};

use super::*;

fn heartbeat(stalled: bool, answer: bool) -> Message {
    Message::Heartbeat(Heartbeat { stalled, answer })
}

fn settled(fault: Fault) -> Message {
    let list = (0..200).map(|id| Settlement { file: FileId(id), outcome: Outcome::Failed(fault.clone()) });
    Message::Settled(list.collect())
}

/// All messages that wait, in the order in which they leave.
async fn left(outbox: Outbox) -> Vec<Message> {
    let queue = outbox.queue.clone();
    drop(outbox);
    let (mut messages, mut batch) = (Vec::new(), Vec::new());
    while queue.fill(&mut batch).await {
        let mut rest = &batch[..];
        while let Some((len, body)) = rest.split_first_chunk::<4>() {
            let (body, behind) = body.split_at(u32::from_le_bytes(*len) as usize);
            messages.push(Message::decode(body).expect("a message"));
            rest = behind;
        }
        queue.took(batch.len());
        batch.clear();
    }
    assert_eq!(queue.gauge().waiting, 0);
    messages
}

#[tokio::test]
async fn messages_leave_by_class_and_within_it_in_order() {
    let outbox = Outbox::new();
    let credit = |upto| Message::PageCredit(PageCredit { upto });
    let lost = |lane| Message::LaneLost(longhaul_proto::wire::message::LaneLost { lane: LaneId(lane) });
    let page = Message::Page(longhaul_proto::wire::message::Page { first: FileId(0), last: true, entries: vec![] });
    for message in [page.clone(), credit(1), lost(1), credit(2), lost(2)] {
        outbox.send(message);
    }
    assert_eq!(left(outbox).await, [lost(1), lost(2), credit(1), credit(2), page]);
}

#[tokio::test]
async fn of_what_is_said_again_and_again_only_the_latest_waits_and_a_question_is_not_lost() {
    let outbox = Outbox::new();
    outbox.send(heartbeat(false, true));
    let tally = |received| Message::Tally(Tally { received, ..Tally::default() });
    let target = |count| Message::LaneTarget(LaneTarget { count, transport: Transport::Tcp });
    let rate = |bytes_per_s| Message::Rate(Rate { bytes_per_s });
    for at in 0..100_000u32 {
        outbox.send(heartbeat(true, false));
        outbox.send(tally(at.into()));
        outbox.send(Message::Limiting(Limiting { by: None }));
        outbox.send(rate(at.into()));
        outbox.send(target(at));
    }
    assert!(outbox.gauge().waiting < 1024, "{:?}", outbox.gauge());
    let limiting = Message::Limiting(Limiting { by: None });
    let latest = [heartbeat(true, true), tally(99_999), limiting, rate(99_999), target(99_999)];
    assert_eq!(left(outbox).await, latest);
}

#[tokio::test]
async fn what_waits_is_counted_until_the_connection_took_it() {
    let outbox = Outbox::new();
    let message = settled(Fault::new(FaultCode::Io, Blame::Local, "x".repeat(400)));
    let bytes = message.encode().len();
    let mut sent = 0;
    while !outbox.gauge().is_backlogged() {
        outbox.send(message.clone());
        sent += 1;
    }
    let gauge = outbox.gauge();
    assert!((sent * bytes..sent * (2 * bytes + WORD_BYTES)).contains(&gauge.waiting), "{sent} of {bytes}: {gauge:?}");
    let mut batch = Vec::new();
    assert!(outbox.queue.fill(&mut batch).await);
    // A message in hand is not written yet.
    let in_hand = outbox.gauge();
    assert_eq!(in_hand.taken, 0);
    outbox.queue.took(1);
    assert_eq!(outbox.gauge(), Gauge { waiting: in_hand.waiting - 1, taken: 1, ..in_hand });
    outbox.queue.took(batch.len() - 1);
    assert!(!outbox.gauge().is_backlogged());
}

#[test]
fn what_honest_sides_say_under_full_credit_is_no_backlog() {
    let digest = longhaul_core::Digest::Cv([7; 32]);
    let unit = Unit::Chunk { file: FileId(u64::MAX >> 20), index: longhaul_core::ChunkIndex(u64::MAX >> 20) };
    let declared = longhaul_proto::wire::message::Declared {
        lane: LaneId(4095),
        seq: u64::MAX >> 20,
        unit,
        attempt: longhaul_core::Attempt(3),
        digest,
    };
    let sender = Outbox::new();
    for _ in 0..(ENTRIES_UNSETTLED_MAX + CHUNKS_WANTED_MAX) / 1024 {
        sender.send(Message::Digests(vec![declared.clone(); 1024]));
    }
    let path = longhaul_core::RelPath::new("p".repeat(60)).expect("a path");
    let kind = longhaul_core::EntryKind::DirEnd;
    let entry = longhaul_core::Entry { path, kind, meta: longhaul_core::Meta::default() };
    for _ in 0..PAGES_UNANSWERED_MAX {
        let (first, entries) = (FileId(0), vec![entry.clone(); 900]);
        sender.send(Message::Page(longhaul_proto::wire::message::Page { first, last: false, entries }));
    }
    assert!(!sender.gauge().is_backlogged(), "{:?}", sender.gauge());
    let receiver = Outbox::new();
    let outcome = Outcome::Committed(Some([7; 32]));
    for _ in 0..ENTRIES_UNSETTLED_MAX / 1024 {
        let list = vec![Settlement { file: FileId(u64::MAX >> 20), outcome: outcome.clone() }; 1024];
        receiver.send(Message::Settled(list));
    }
    assert!(!receiver.gauge().is_backlogged(), "{:?}", receiver.gauge());
    let fault =
        Fault::new(FaultCode::Io, Blame::Local, "m".repeat(100)).about("o".repeat(100)).hint_in_words("h".repeat(80));
    for _ in 0..ENTRIES_UNSETTLED_MAX / 200 {
        receiver.send(settled(fault.clone()));
    }
    assert!(!receiver.gauge().stops_reading(), "{:?}", receiver.gauge());
}

#[test]
fn a_peer_that_takes_nothing_in_is_noticed_and_one_that_takes_little_where_much_waits() {
    let (begun, patience) = (Instant::now(), Duration::from_secs(30));
    let at = |seconds| begun + Duration::from_secs(seconds);
    let ends = |waiting: usize, bytes_each_second: u64| {
        let mut uptake = Uptake::new(begun, patience);
        let look =
            |s| uptake.look(at(s), Gauge { waiting, taken: s * bytes_each_second, ..Gauge::default() }).is_some();
        (0..300).find({
            let mut look = look;
            move |s| look(*s)
        })
    };
    assert_eq!(ends(1, 0), Some(30), "it reads nothing");
    assert_eq!(ends(1, 1), None, "slowly, and little waits");
    assert_eq!(ends(5 << 20, 1), Some(30), "a byte now and then");
    assert_eq!(ends(5 << 20, 10_000), None, "a slow path");
    assert_eq!(ends(0, 0), None, "there is nothing to read");
    let mut uptake = Uptake::new(begun, patience);
    assert!(uptake.look(at(100), Gauge { waiting: 0, taken: 0, ..Gauge::default() }).is_none());
    assert!(
        uptake.look(at(129), Gauge { waiting: 9, taken: 0, ..Gauge::default() }).is_none(),
        "it counts from when something waits"
    );
}

#[tokio::test]
async fn after_the_connection_broke_nothing_is_kept() {
    let outbox = Outbox::new();
    outbox.send(heartbeat(false, false));
    outbox.queue.break_off();
    outbox.send(settled(Fault::new(FaultCode::Io, Blame::Local, "x")));
    assert_eq!(outbox.gauge().waiting, 0);
    outbox.queue.has_room().await;
}

#[tokio::test]
async fn without_memory_a_receiver_reads_no_more_of_whom_it_would_still_hear() {
    let outbox = Outbox::new();
    while !outbox.gauge().is_backlogged() {
        outbox.send(settled(Fault::new(FaultCode::Io, Blame::Local, "m".repeat(900))));
    }
    assert!(!outbox.gauge().stops_reading());
    outbox.set_cramped(true);
    assert!(outbox.gauge().stops_reading());
    let waiting = tokio::spawn({
        let queue = outbox.queue.clone();
        async move { queue.has_room().await }
    });
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    outbox.set_cramped(false);
    waiting.await.expect("it reads on");
}
