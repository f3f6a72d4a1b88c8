//! The tables of states in the doc comments of the machines, held to the steps that the machines
//! take.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::IfExists;
use longhaul_proto::receiver::{Landing, SkippedDigests};
use longhaul_proto::steps;

use super::{bytes, file};
use crate::plan::{Item, Plan};
use crate::play::{Options, play};
use crate::scene::Standing;
use crate::session::{Session, play_session};

/// The states that have a table, with the text of the file that defines each.
const TABLES: &[(&str, &str)] = &[
    ("EntryState", include_str!("../../../longhaul-proto/src/receiver/manifest.rs")),
    ("LargeStage", include_str!("../../../longhaul-proto/src/receiver/large.rs")),
    ("ChunkState", include_str!("../../../longhaul-proto/src/receiver/chunks.rs")),
    ("BatchStage", include_str!("../../../longhaul-proto/src/receiver/commit.rs")),
    ("SessionPhase", include_str!("../../../longhaul-proto/src/receiver/session.rs")),
    ("OfferState", include_str!("../../../longhaul-proto/src/sender/mod.rs")),
];

/// The word for any state but the first and last.
const ANY: &str = "any";
/// The word for the state of a thing that does not exist yet.
const NEW: &str = "(new)";
/// The word for the state of a thing that is no more.
const SETTLED: &str = "(settled)";

/// A row: the state before and after.
type Row = (String, String);

/// The rows of the table in the doc comment of a state.
fn rows(name: &str, source: &str) -> BTreeSet<Row> {
    let before = source.split(&format!("enum {name} {{")).next().expect("the file defines it");
    let (_, block) = before.rsplit_once("/// ```text\n").expect("it has a table");
    let mut lines = block.lines().map_while(|line| line.strip_prefix("/// ")).take_while(|line| *line != "```");
    let header = lines.next().expect("a table has a header");
    let next = header.find("next ").expect("the last column is the next state");
    let word = |text: &str| text.split_whitespace().next().unwrap_or_default().to_owned();
    lines.map(|line| (word(line), word(line.get(next..).unwrap_or_default()))).collect()
}

/// The steps that machines took in worlds of both kinds.
fn steps_taken() -> BTreeMap<&'static str, BTreeSet<Row>> {
    let mut taken = BTreeMap::<_, BTreeSet<Row>>::new();
    let mut take = || {
        for step in steps::taken() {
            let row = (step.from.unwrap_or_else(|| NEW.to_owned()), step.to.unwrap_or_else(|| SETTLED.to_owned()));
            taken.entry(step.table).or_default().insert(row);
        }
    };
    let unreadable = [true, false].map(with_unreadable_standing_file);
    for plan in unreadable.into_iter().chain([with_a_path_too_long(), untidy(), with_a_name_to_read()]) {
        Session::new(plan, 1).run();
        take();
    }
    // The sync of a batch fails in some of these, and nothing of the batch is left.
    for seed in 0..SICK_DISKS {
        let mut plan = Plan::one_session(vec![file("small", 9)]);
        plan.rates.disk_faults = 300;
        Session::new(plan, seed).run();
        take();
    }
    for seed in 0..SESSIONS {
        let _ = play_session(seed);
        take();
    }
    for seed in 0..COMMANDS {
        play(seed, Options::default()).unwrap_or_else(|failure| panic!("{failure}"));
        take();
    }
    taken
}

/// A tree whose deepest file has no place, as its top is given a longer name.
fn with_a_path_too_long() -> Plan {
    let dirs: Vec<String> = (1..=16).map(|depth| vec!["d".repeat(255); depth].join("/").split_off(254)).collect();
    let deep = file(&format!("{}/{}", dirs[15], "f".repeat(200)), 1);
    let ends = dirs.iter().rev().cloned().map(Item::DirEnd);
    let mut plan = Plan::one_session(dirs.iter().cloned().map(Item::Dir).chain([deep]).chain(ends).collect());
    plan.terms.landing = Landing::beneath().renamed_to(vec![b'n'; 255]);
    plan
}

/// A small file that stands and cannot be read.
fn with_unreadable_standing_file(may_modify: bool) -> Plan {
    let small = file("small", 9);
    let mut plan = Plan::one_session(vec![small.clone()]);
    plan.scene.standing.push(("small".to_owned(), Standing::Older(bytes(&small).to_vec())));
    (plan.terms.if_exists, plan.terms.may_modify, plan.rates.read_faults) = (IfExists::Verify, may_modify, 1000);
    plan
}

/// Two names of a file that stand as files of their own, and are read for their roots.
fn with_a_name_to_read() -> Plan {
    let small = file("a", 9);
    let content = Standing::Current(bytes(&small).to_vec());
    let mut plan = Plan::one_session(vec![small, Item::Name { path: "b".to_owned(), of: 0 }]);
    plan.scene.standing = ["a", "b"].map(|path| (path.to_owned(), content.clone())).into();
    plan.terms.digests = SkippedDigests::Told;
    plan
}

/// A destination that cannot be tidied.
fn untidy() -> Plan {
    let mut plan = Plan::one_session(vec![file("small", 9)]);
    plan.scene.is_untidy = true;
    plan
}

const SICK_DISKS: u64 = 400;
const SESSIONS: u64 = 300;
const COMMANDS: u64 = 40;

#[test]
fn machines_take_the_steps_of_their_tables_and_no_others() {
    let taken = steps_taken();
    let mut flaws = Vec::new();
    for (name, source) in TABLES {
        let (rows, taken) = (rows(name, source), &taken[name]);
        let covers = |(from, to): &Row, step: &Row| (from == &step.0 || from == ANY && step.0 != NEW) && to == &step.1;
        let unlisted = taken.iter().filter(|step| !rows.iter().any(|row| covers(row, step)));
        let unseen = rows.iter().filter(|row| !taken.iter().any(|step| covers(row, step)));
        flaws.extend(unlisted.map(|(from, to)| format!("{name}: {from} -> {to} is not in the table")));
        flaws.extend(unseen.map(|(from, to)| format!("{name}: {from} -> {to} was never taken")));
    }
    assert!(flaws.is_empty(), "{}", flaws.join("\n"));
}
