//! Golden bytes: the prelude and every kind of record, as documented. A test that fails here means
//! that old and new builds no longer read each other's journals: append, never change (JOURNAL-8).

use std::num::NonZeroU32;

use longhaul_core::{Layout, Place, TargetId};
use longhaul_proto::journal::{End, Record, Replay, Writer, replay};

use super::model::{ID, chunks, file, node, opened, origin, paths, run, stamp, stretch};

/// Every kind of a journal of files once, in an order that makes sense.
pub(crate) fn one_of_each() -> Vec<Record> {
    [
        of_version_1(),
        vec![
            origin(0xb0, 0x40),
            Record::Dirs { paths: paths([1, 2]) },
            Record::Placed { number: 1, node: node(300) },
            Record::Placed { number: 1, node: node(301) },
            Record::Left { path: paths([1]).remove(0) },
        ],
    ]
    .concat()
}

/// The kinds of a journal of doubts.
fn doubts() -> Vec<Record> {
    vec![opened(300), Record::Doubtful { paths: paths([1, 2]) }, Record::Certain { paths: paths([2]) }]
}

/// The kinds of version 1.
fn of_version_1() -> Vec<Record> {
    vec![
        opened(300),
        file(1, 20),
        file(200, 3),
        Record::Chunks { number: 1, runs: vec![run(2, [0xaa, 0xbb]), run(9, [0xcc])] },
        Record::Done { number: 200 },
        Record::Revised { number: 1, source: stamp(2), lost: vec![stretch(3, 1)] },
        file(201, 3),
        Record::Dropped { number: 201 },
        opened(301),
        chunks(1, 4, 1),
    ]
}

#[test]
fn a_journal_is_these_bytes() {
    assert_eq!(lines(one_of_each()), [&[PRELUDE], &GOLDEN[..], &GOLDEN_SINCE_2[..]].concat());
}

#[test]
fn a_journal_of_doubts_is_these_bytes() {
    assert_eq!(lines(doubts()), [&[PRELUDE], &GOLDEN[..1], &GOLDEN_DOUBTS[..]].concat());
}

/// Two chunks of a file, on the second of three targets.
fn over_three_targets() -> Vec<Record> {
    let place = Place { target: TargetId(1), offset: 1024 };
    vec![opened(300), file(1, 20), Record::ChunksAt { number: 1, place, runs: vec![run(4, [0xaa]), run(7, [0xbb])] }]
}

#[test]
fn a_journal_of_a_destination_with_several_targets_is_these_bytes() {
    let layout = Layout::over(NonZeroU32::new(3).expect("some"));
    let lines = lines_over(layout, over_three_targets());
    assert_eq!(lines, [&[PRELUDE_OF_VERSION_3], &GOLDEN[..2], &GOLDEN_SINCE_3[..]].concat());
    let mut replay = Replay::over(layout);
    lines.iter().for_each(|line| replay.push(&unhex(line)));
    let replayed = replay.finish().expect("sound");
    assert_eq!((replayed.end, replayed.files[&1].held.len()), (End::Clean, 2));
}

/// JOURNAL-8: a journal of a build of version 1 is read, and continued with kinds that such a build
/// knows.
#[test]
fn a_journal_of_version_1_is_read_and_keeps_its_kinds() {
    let mut bytes: Vec<u8> = unhex(PRELUDE_OF_VERSION_1);
    GOLDEN.iter().for_each(|line| bytes.extend(unhex(line)));
    let replayed = replay(&bytes).expect("sound");
    assert_eq!((replayed.end, replayed.valid_len as usize), (End::Clean, bytes.len()));
    assert_eq!((replayed.files.len(), replayed.done.len()), (1, 1));
    assert!(replayed.files.values().all(|partial| partial.placed.is_none()));
    let mut writer = replayed.writer;
    assert_eq!(writer.version(), 1);
    let before = bytes.len();
    for record in [origin(1, 2), Record::Placed { number: 1, node: node(3) }, Record::Dirs { paths: paths([1]) }] {
        writer.record(&record, &mut bytes);
    }
    assert_eq!(bytes.len(), before, "no kind that is newer than the journal");
    writer.record(&opened(302), &mut bytes);
    writer.record(&Record::Done { number: 1 }, &mut bytes);
    let again = replay(&bytes).expect("sound");
    assert_eq!((again.end, again.files.len(), again.done.len()), (End::Clean, 0, 2));
}

fn lines(records: Vec<Record>) -> Vec<String> {
    lines_over(Layout::WHOLE, records)
}

fn lines_over(layout: Layout, records: Vec<Record>) -> Vec<String> {
    let mut prelude = Vec::new();
    let mut writer = Writer::begin_over(layout, ID, &mut prelude);
    let mut lines = vec![hex(&prelude)];
    for record in records {
        let mut bytes = Vec::new();
        writer.record(&record, &mut bytes);
        lines.push(hex(&bytes));
    }
    lines
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const PRELUDE_OF_VERSION_1: &str = "4c486a726e6c01007369787465656e206279746573206964cdb8a37b0da7cd14";
const PRELUDE: &str = "4c486a726e6c02007369787465656e2062797465732069645933a517910ee019";
const PRELUDE_OF_VERSION_3: &str = "4c486a726e6c03007369787465656e2062797465732069640f45b80e6c6ce329";
const GOLDEN_SINCE_3: [&str; 1] = [
    "680000000d01000000010000000004000000000000040000000000000001000000aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa070000000000000001000000bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb0775a34cd2029aae",
];
const GOLDEN_SINCE_2: [&str; 5] = [
    "2000000007b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b040404040404040404040404040404040e3cf59d0770e37c4",
    "09000000090203642f3103642f321579c7a4696a19a6",
    "0d0000000801828604ac020180c49fd50c073bec3e9a4114cc57",
    "070000000801828604ad0200e0ca7af33f22582c",
    "040000000a03642f313261c35c2421a9ce",
];
const GOLDEN_DOUBTS: [&str; 2] =
    ["090000000b0203642f3103642f32652c8efe2a6d488e", "050000000c0103642f32d026dd8b814e1fc4"];
const GOLDEN: [&str; 10] = [
    "2600000001087569643a3130303003616461e72480e2cfaa06ac02070707070707070707070707070707071121e6392e5e5af4",
    "2f000000020104642f6631ff9f010af0a2040505808080808040ff93ebdc038286040100090909090909090900000000000000015ad199b6b73b944b",
    "3100000002c80106642f66323030ff170af0a2040505808080808040ff93ebdc038286040101090909090909090900000000000000c864932d1a8b561848",
    "7c0000000301000000020000000000000002000000aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb090000000000000001000000cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc4edbcedf13e8bc66",
    "0200000004c801cb5fb0e27cf86084",
    "180000000601f0a2040505808080808040ff93ebdc03828604020103013f30d3b0b49a8a1d",
    "3100000002c90106642f66323031ff170af0a2040505808080808040ff93ebdc038286040100090909090909090900000000000000c9efdfba06a872f3d8",
    "0200000005c9013765bbe6881606ee",
    "2600000001087569643a3130303003616461e72480e2cfaa06ad0207070707070707070707070707070707107473e5f57c5516",
    "3000000003010000000400000000000000010000000000000000000000000000000000000000000000000000000000000000000000dcb971fd3049b544",
];
