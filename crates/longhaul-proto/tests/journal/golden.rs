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

const GOLDEN: [&str; 11] = [""; 11];
