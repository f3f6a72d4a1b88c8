//! Movers beside one that leads.
//!
//! Takes the datasets and figures of `jobs`; gives tests. Must not know the rules of the queue.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{left, plant, queue};
use crate::fixture::Host;

/// Has another mover lead for a while.
fn let_another_one_lead(host: &Host) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let until = i64::try_from((now + Duration::from_secs(14)).as_micros()).unwrap();
    let rows = rusqlite::Connection::open(queue(host)).unwrap();
    assert_eq!(rows.execute("UPDATE leader SET holder = zeroblob(16), until = ?", [until]).unwrap(), 1);
}

#[test]
fn a_mover_that_does_not_lead_ends_well_before_the_leader_says_that_the_campaign_is_done() {
    let host = Host::new();
    plant(&host.path("ds"));
    host.run(["job", "add", "--name", "all", "ds", "to"]).succeed();
    host.run(["job", "plan", "all"]).succeed();
    host.run(["job", "run", "--drain"]).succeed();
    let rows = rusqlite::Connection::open(queue(&host)).unwrap();
    assert_eq!(rows.execute("UPDATE campaign SET state = 1", []).unwrap(), 1);
    let_another_one_lead(&host);
    host.run(["job", "run", "all", "--drain"]).succeed();
    // It said so itself only if this took so long that it led.
    assert!(["running", "done"].contains(&left(&host, "all")["state"].as_str().unwrap()));
}
