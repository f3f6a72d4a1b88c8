//! Links between sites whose far end goes away: they pause and go on, and no shard is held for it.
//!
//! Takes the datasets of `jobs` and a daemon that is killed; gives tests. Must not know the rules
//! of the queue.

use std::time::{Duration, Instant};

use super::{PATIENCE, counts, left, plant, queue, wait_for_more_than};
use crate::fixture::tree::{self, Tree};
use crate::fixture::{Host, Site, files};

/// The times that the queue's one link failed in a row, and whether it pauses.
fn failures(host: &Host) -> (i64, bool) {
    let rows = rusqlite::Connection::open(queue(host)).unwrap();
    let of = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get::<_, i64>(1)? > 0));
    rows.query_row("SELECT failures, pause_until FROM link", [], of).unwrap()
}

#[test]
fn a_destination_that_dies_under_a_campaign_pauses_its_link_and_gets_each_file_once_it_is_back() {
    let site = Site::new();
    let host = &site.client;
    plant(&host.path("ds"));
    files::make(host.path("ds/z/large"), 7, 3 << 20);
    let add = ["job", "add", "--name", "all", "--rate", "256KiB/s", "--retry-for", "0s", "--shard-files", "50"];
    host.run(add).args(["ds", &site.url("in")]).succeed();
    host.run(["job", "plan", "all"]).succeed();
    let running = host.run(["job", "run", "--json", "--drain"]).start();
    let stood = wait_for_more_than(50, &site.root().join("in/ds"));
    assert_eq!(failures(host), (0, false));
    site.daemon.kill();
    site.daemon.wait_gone();
    let until = Instant::now() + PATIENCE;
    while failures(host) == (0, false) {
        assert!(Instant::now() < until, "its link does not pause");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(failures(host).1, "a link that failed pauses");
    let [done, failed, rest] = counts(&left(host, "all"));
    assert!(done >= 50 && failed == 0 && rest > 0, "a link's failure is none of a file's: {done} {failed} {rest}");

    let _daemon = site.restarted();
    // The pause passes.
    let rows = rusqlite::Connection::open(queue(host)).unwrap();
    rows.busy_timeout(PATIENCE).unwrap();
    rows.execute("UPDATE link SET pause_until = 0", []).unwrap();
    let outcome = running.finish();
    assert_eq!(outcome.code, 0, "{outcome}");
    assert_eq!(counts(&left(host, "all")), [102, 0, 0]);
    assert_eq!(failures(host).0, 0, "what goes well ends the count");
    assert!(host.run(["job", "report", "all"]).succeed().stdout.is_empty(), "no file has a fault");
    let states: Vec<_> = outcome.events_of("job_shard").iter().map(|shard| shard["state"].clone()).collect();
    assert!(states.iter().all(|state| state != "held") && states.contains(&"done".into()), "{states:?}");
    tree::assert_same(&Tree::of(host.path("ds")), &Tree::of(site.root().join("in/ds")), "what was moved");
    for (path, inode) in stood {
        use std::os::unix::fs::MetadataExt;
        assert_eq!(std::fs::symlink_metadata(&path).unwrap().ino(), inode, "{} was sent again", path.display());
    }
}
