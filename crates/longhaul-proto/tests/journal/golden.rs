//! Golden bytes: the prelude and every kind of record, as documented. A test that fails here means that old and new builds
//! no longer read each other's journals: append, never change (JOURNAL-8).

use longhaul_proto::journal::{Record, Writer};

use super::model::{ID, chunks, file, opened, run, stamp, stretch};

/// Every kind once, in an order that makes sense.
pub(crate) fn one_of_each() -> Vec<Record> {
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
    let mut prelude = Vec::new();
    let mut writer = Writer::begin(ID, &mut prelude);
    let mut lines = vec![hex(&prelude)];
    for record in one_of_each() {
        let mut bytes = Vec::new();
        writer.record(&record, &mut bytes);
        lines.push(hex(&bytes));
    }
    assert_eq!(lines, GOLDEN);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const GOLDEN: [&str; 11] = [
    "4c486a726e6c01007369787465656e206279746573206964cdb8a37b0da7cd14",
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
