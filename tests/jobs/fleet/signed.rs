//! Campaigns that owners signed: rows that somebody else changed, and owners that a mover does not
//! trust.
//!
//! Takes a server of its own, whose rows it changes by SQL, as whoever may write to the database
//! can; gives tests. Must not know the rules of the queue.

use super::{Fleet, counts};
use crate::fixture::postgres::Postgres;
use crate::fixture::{Host, Outcome, Run, files};

/// Adds and plans a campaign of one file of this host.
fn plan(fleet: &Fleet, name: &str) {
    files::make(fleet.host.path(name).join("f"), 1, 1000);
    fleet.run(["job", "add", "--name", name, name, &format!("to-{name}")]).succeed();
    fleet.run(["job", "plan", name]).succeed();
}

/// Whether the campaign's file stands at its destination.
fn stands(fleet: &Fleet, name: &str) -> bool {
    fleet.host.path(format!("to-{name}/{name}/f")).exists()
}

fn drains(fleet: &Fleet) -> Run {
    fleet.run(["job", "run", "--drain"])
}

fn assert_refused(outcome: &Outcome, name: &str, why: &str, owner: &str) {
    let said = format!("this mover does not move the campaign '{name}': ");
    assert!(outcome.stderr.contains(&said) && outcome.stderr.contains(why), "{outcome}");
    assert!(outcome.stderr.contains(owner), "{outcome}");
}

#[test]
fn a_mover_moves_nothing_that_was_changed_or_copied_in_the_database_and_goes_on_with_the_rest() {
    let server = Postgres::start();
    let host = &Host::new();
    let fleet = Fleet { host, queue: server.url("postgres") };
    plan(&fleet, "bent");
    plan(&fleet, "good");
    let turn = |from: &str, to: &str| {
        let spec = format!("convert_to(replace(convert_from(spec, 'UTF8'), '{from}', '{to}'), 'UTF8')");
        server.sql("postgres", &format!("UPDATE longhaul.campaign SET spec = {spec} WHERE name = 'bent'"));
    };
    turn("/to-bent", "/to-elsewhere");
    assert_refused(&drains(&fleet).fail(4), "bent", "is not what its owner signed", host.key());
    let owners = fleet.run(["job", "ls", "--json"]).succeed().events_of("job_campaign");
    let owners: Vec<_> = owners.iter().map(|campaign| campaign["owner"].as_str()).collect();
    assert_eq!(owners, [None, Some(host.key())]);
    let shown = fleet.run(["job", "show", "bent"]).succeed();
    assert!(shown.stdout_text().contains("is not what its owner signed"), "{shown}");
    assert!(stands(&fleet, "good") && !stands(&fleet, "bent") && !host.path("to-elsewhere").exists());
    assert_eq!(counts(&fleet.left("bent")), [0, 0, 1], "nothing of it is held or has failed");
    turn("/to-elsewhere", "/to-bent");
    drains(&fleet).succeed();
    assert!(stands(&fleet, "bent"));

    // All of its rows again, as another campaign that runs.
    std::fs::remove_dir_all(host.path("to-bent")).unwrap();
    let id = server.sql("postgres", "SELECT id FROM longhaul.campaign WHERE name = 'bent'");
    let copy = |table: &str, column: &str, change: &str| {
        format!(
            "CREATE TEMP TABLE copy AS SELECT * FROM longhaul.{table} WHERE {column} = {id};
            UPDATE copy SET {column} = 9000{change}; INSERT INTO longhaul.{table} SELECT * FROM copy; DROP TABLE copy;"
        )
    };
    let rows = [
        copy("campaign", "id", ", name = 'again', state = 1"),
        copy("signature", "campaign", ""),
        copy("segment", "campaign", ""),
        copy("shard", "campaign", ", id = 9001, state = 0, done_files = 0, done_bytes = 0"),
    ];
    server.sql("postgres", &rows.concat());
    assert_refused(&drains(&fleet).fail(4), "again", "is not what its owner signed", host.key());
    assert!(!stands(&fleet, "bent"));
}

#[test]
fn a_mover_moves_campaigns_of_owners_that_it_trusts_and_unsigned_ones_if_it_is_told_to() {
    let server = Postgres::start();
    let host = &Host::new();
    let fleet = Fleet { host, queue: server.url("postgres") };
    plan(&fleet, "one");
    host.run(["key", "generate", "--identity", "other"]).succeed();
    let by_other = |more: &[&str]| drains(&fleet).args(["--identity", "other"]).args(more);
    assert_refused(&by_other(&[]).fail(4), "one", "is not one of this mover's", host.key());
    let refused = by_other(&["--owner", "lhk1:none"]).fail(2);
    assert!(refused.stderr.contains("--owner"), "{refused}");
    assert!(!stands(&fleet, "one"));
    by_other(&["--owner", host.key()]).succeed();
    assert!(stands(&fleet, "one"));

    // Nobody but the owner plans it.
    files::make(host.path("two/f"), 1, 1000);
    fleet.run(["job", "add", "--name", "two", "two", "to-two"]).succeed();
    let refused = fleet.run(["job", "plan", "two", "--identity", "other"]).fail(4);
    assert!(refused.stderr.contains("was signed by"), "{refused}");
    fleet.run(["job", "plan", "two"]).succeed();
    server.sql("postgres", "DELETE FROM longhaul.signature");
    assert_refused(&drains(&fleet).fail(4), "two", "nobody has signed it", "--allow-unsigned");
    assert!(!stands(&fleet, "two"));
    drains(&fleet).args(["--allow-unsigned"]).succeed();
    assert!(stands(&fleet, "two"));
}
