//! Names that a client with a user has moved away: as that user, to a directory of its own.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};

use super::{ALICE, BOB, House, owner};
use crate::fixture::files;

#[test]
#[ignore = "needs root: run by .ci/run"]
fn names_go_as_the_user_who_has_them_moved_and_only_where_that_user_may() {
    let house = House::new();
    (0..40).for_each(|n| files::make(house.alice.path(format!("src/{n}")), n, 100));
    let dest = house.url("a/");
    house.alice.run(["push", "src/", &dest]).succeed();
    files::make(house.path("a/only"), 7, 50);
    chown(house.path("a/only"), Some(ALICE), Some(ALICE)).unwrap();
    house.make_dir("a/bobs", (BOB, BOB), 0o755);
    files::make(house.path("a/bobs/x"), 8, 50);
    let planned = house.alice.run(["sync", "src/", &dest, "--delete", "plan"]).succeed();
    let last = planned.stdout_text().lines().last().unwrap();
    let digest = last.strip_prefix("digest: ").unwrap();
    let told = house.alice.run(["sync", "src/", &dest, "--delete", "apply", digest]).fail(23);
    let lines: Vec<_> = told.stdout_text().lines().collect();
    assert_eq!(lines, ["moved: only", "failed: bobs/x", "not-empty: bobs"], "{told}");
    assert!(house.path("a/bobs/x").exists() && !house.path("a/only").exists());
    let shelf = house.path(".longhaul-61001");
    let label = fs::read_dir(shelf.join("grace")).unwrap().next().unwrap().unwrap().path();
    assert_eq!((owner(label.join("a/only")), owner(&label)), ((ALICE, ALICE), (ALICE, ALICE)));
    assert_eq!(fs::metadata(&label).unwrap().mode() & 0o777, 0o700);
    let ended = house.daemon.wait_log("moved_away=1");
    assert!(ended.contains("ended: removal in data/a"), "{ended}");
    // The session that looked has ended before, and the log says its words ahead of the records.
    let recorded = house.records_to_an_end(|ended| ended["count"] == 1);
    let of = |deed: &str| -> Vec<_> { recorded.iter().filter(|record| record["deed"] == deed).collect() };
    assert_eq!(of("moved_away").len(), 1, "{recorded:#?}");
    assert!(of("moved_away")[0]["path"] == "a/only" && of("moved_away")[0]["client"] == "of alice");
    assert_eq!(of("failed")[0]["code"], "denied", "{recorded:#?}");
    assert_eq!(of("session_ended").last().unwrap()["count"], 1, "{recorded:#?}");
}
