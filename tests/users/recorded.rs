//! The audit log of a daemon whose clients have users.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{House, MIB};
use crate::fixture::files;

impl House {
    /// The records since the last call, when the last of them is the end of a session.
    pub(super) fn records_to_the_end(&self) -> Vec<Value> {
        self.records_to_an_end(|_| true)
    }

    /// The same, once the last session to end is such a one.
    pub(super) fn records_to_an_end(&self, is_last: impl Fn(&Value) -> bool) -> Vec<Value> {
        let (log, until) = (self.server.path("audit.jsonl"), Instant::now() + Duration::from_secs(60));
        loop {
            let text = fs::read_to_string(&log).unwrap();
            let all: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            if all.last().is_some_and(|record| record["deed"] == "session_ended" && is_last(record)) {
                // The daemon goes on at the end of what is there.
                fs::File::options().write(true).open(&log).unwrap().set_len(0).unwrap();
                return all;
            }
            assert!(Instant::now() < until, "{text}");
            std::thread::yield_now();
        }
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn each_file_of_a_user_is_recorded_before_the_end_of_its_session_as_that_clients() {
    let house = House::new();
    fs::create_dir(house.alice.path("tree")).unwrap();
    (0..300).for_each(|n| files::make(house.alice.path(format!("tree/{n}")), n, 1000 + n as usize));
    files::make(house.alice.path("tree/large"), 1, 9 * MIB);
    house.alice.run(["push", "tree/", &house.url("a")]).succeed();
    let recorded = house.records_to_the_end();
    let of = |deed: &str| -> Vec<&Value> { recorded.iter().filter(|record| record["deed"] == deed).collect() };
    let paths: BTreeSet<_> = of("committed").iter().map(|record| record["path"].as_str().unwrap()).collect();
    assert_eq!((paths.len(), of("committed").len()), (301, 301), "{recorded:#?}");
    assert_eq!(of("session_ended")[0]["count"].as_u64(), Some(301));
    let large = of("committed").into_iter().find(|record| record["path"] == "a/large").unwrap();
    let b3 = blake3::hash(&fs::read(house.path("a/large")).unwrap()).to_hex().to_string();
    assert_eq!((large["b3"].as_str(), large["bytes"].as_u64()), (Some(&*b3), Some(9 << 20)), "{large}");
    assert_eq!((large["client"].as_str(), large["key"].as_str()), (Some("of alice"), Some(house.alice.key())));
    assert_eq!((large["root"].as_str(), &large["session"]), (Some("data"), &of("session_ended")[0]["session"]));

    house.bob.run(["pull", &house.url("a"), "back"]).succeed();
    let recorded = house.records_to_the_end();
    let of =
        |deed: &str| recorded.iter().filter(|record| record["deed"] == deed && record["client"] == "of bob").count();
    assert_eq!((of("opened"), of("sent"), of("session_ended")), (301, 301, 1), "{recorded:#?}");
}
