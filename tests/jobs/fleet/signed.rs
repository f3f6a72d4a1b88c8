//! Campaigns that owners signed: rows that somebody else changed, and owners that a mover does not
//! trust.
//!
//! Takes a server of its own, whose rows it changes by SQL, as whoever may write to the database
//! can; gives tests. Must not know the rules of the queue.

use std::time::Instant;

use super::{Fleet, counts};
use crate::fixture::postgres::{ADMIN, Postgres};
use crate::fixture::{Host, Outcome, Run, Site, files};
use crate::jobs::PATIENCE;

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
    // What others may move is no failure of this mover, unless it was named.
    assert_refused(&by_other(&[]).succeed(), "one", "is not one of this mover's", host.key());
    let named = fleet.run(["job", "run", "one", "--drain", "--identity", "other"]).fail(4);
    assert_refused(&named, "one", "is not one of this mover's", host.key());
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
    let another = drains(&fleet).args(["--allow-unsigned", "one"]).succeed();
    assert_refused(&another, "two", "nobody has signed it", "--allow-unsigned NAME");
    fleet.run(["job", "run", "two", "--drain"]).fail(4);
    assert!(!stands(&fleet, "two"));
    drains(&fleet).args(["--allow-unsigned", "two"]).succeed();
    assert!(stands(&fleet, "two"));
}

#[test]
fn a_family_in_a_database_is_planned_from_one_list_and_nobody_else_joins_it() {
    let server = Postgres::start();
    let host = &Host::new();
    let fleet = Fleet { host, queue: server.url("postgres") };
    files::make(host.path("ds/f"), 1, 1000);
    fleet.run(["job", "add", "--name", "raw", "ds", "one", "--also", "two"]).succeed();
    // As an older program adds it.
    plan(&fleet, "other");
    server.sql("postgres", "UPDATE longhaul.campaign SET name = 'raw/3' WHERE name = 'other'");
    let planned = fleet.run(["job", "plan", "raw"]).succeed();
    assert!(planned.stderr.contains("raw/2 takes the list of"), "{planned}");
    let shown = fleet.run(["job", "show", "--json", "raw"]).succeed().events_of("job_campaign");
    let names: Vec<_> = shown.iter().map(|campaign| campaign["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["raw/1", "raw/2"]);
    server.sql("postgres", "UPDATE longhaul.campaign SET name = 'other' WHERE name = 'raw/3'");
    drains(&fleet).succeed();
    assert!(host.path("one/ds/f").exists() && host.path("two/ds/f").exists());
    fleet.run(["job", "wait", "raw"]).succeed();
    // Nor is what another owner is said to have signed.
    let zeros = "decode(repeat('00', 32), 'hex')";
    let second = "(SELECT id FROM longhaul.campaign WHERE name = 'raw/2')";
    server.sql("postgres", &format!("UPDATE longhaul.signature SET owner = {zeros} WHERE campaign = {second}"));
    fleet.run(["job", "wait", "raw"]).fail(3);
}

#[test]
fn a_campaign_that_the_database_bends_while_it_is_added_is_not_signed() {
    let server = Postgres::start();
    let host = &Host::new();
    let fleet = Fleet { host, queue: server.url("postgres") };
    plan(&fleet, "good");
    let spec = "convert_to(replace(convert_from(NEW.spec, 'UTF8'), '/to-', '/tu-'), 'UTF8')";
    let bend = format!(
        "CREATE FUNCTION bend() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.spec := {spec}; RETURN NEW; END $$;
        CREATE TRIGGER bend BEFORE INSERT ON longhaul.campaign FOR EACH ROW EXECUTE FUNCTION bend()"
    );
    server.sql("postgres", &bend);
    files::make(host.path("bent/f"), 1, 1000);
    let refused = fleet.run(["job", "add", "--name", "bent", "bent", "to-bent"]).fail(4);
    assert!(refused.stderr.contains("gives back something else than what was written"), "{refused}");
    assert_eq!(server.sql("postgres", "SELECT name FROM longhaul.campaign"), "good", "nor is it there");
}

#[test]
fn a_mover_that_gets_no_second_connection_raises_its_claim_over_the_first_one() {
    let server = Postgres::start();
    let site = Site::new();
    let host = &site.client;
    server.sql("postgres", "CREATE ROLE few LOGIN; GRANT CREATE ON DATABASE postgres TO few");
    let fleet = Fleet { host, queue: server.url("postgres").replace(&format!("//{ADMIN}@"), "//few@") };
    files::make(host.path("ds/f"), 1, 1000);
    fleet.run(["job", "add", "--name", "all", "ds", &site.url("in")]).succeed();
    fleet.run(["job", "plan", "all"]).succeed();
    drains(&fleet).succeed();
    // As behind a restore: the destination has seen a claim that the queue does not know of.
    let fence = |set: &str| server.sql("postgres", &format!("UPDATE longhaul.shard SET {set} RETURNING fence"));
    let seen = fence("state = 0, done_files = 0, done_bytes = 0");
    fence("fence = 0");
    server.sql("postgres", "UPDATE longhaul.campaign SET state = 1; ALTER ROLE few CONNECTION LIMIT 1");
    // The server may need a moment to notice that earlier commands have ended.
    let until = Instant::now() + PATIENCE;
    while server.sql("postgres", "SELECT count(*) FROM pg_stat_activity WHERE usename = 'few'") != "0" {
        assert!(Instant::now() < until, "a command is connected yet");
    }
    drains(&fleet).succeed();
    assert!(server.log().contains("too many connections for role \"few\""), "{}", server.log());
    let raised = server.sql("postgres", "SELECT fence FROM longhaul.shard");
    assert!(raised.parse::<u64>().unwrap() > seen.parse().unwrap(), "{raised} {seen}");
}
