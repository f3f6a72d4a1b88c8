//! Passwords of the database of a queue, which no command line and no row ever has.
//!
//! Takes a server of its own that asks for them; gives tests. Must not know the rules of the queue.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::fixture::postgres::{ADMIN, Postgres};
use crate::fixture::{Host, files};

/// A server that asks `mover` for a password, and the URL of that user without one.
fn guarded() -> (Postgres, String) {
    let mut server = Postgres::cluster(&["fsync=off"]);
    let rules = format!("local all {ADMIN} trust\nlocal all all scram-sha-256\n");
    fs::write(server.data().join("pg_hba.conf"), rules).unwrap();
    server.restart();
    server.sql("postgres", "CREATE ROLE mover LOGIN PASSWORD 'the right one'");
    server.sql("postgres", "CREATE SCHEMA longhaul AUTHORIZATION mover");
    let url = server.url("postgres").replace(&format!("{ADMIN}@"), "mover@");
    (server, url)
}

/// Writes a password file that only its owner may read.
fn passfile(path: &Path, password: &str) {
    files::write(path, format!("# of the queue\nlocalhost:*:postgres:mover:{password}\n"));
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn a_password_comes_from_the_environment_or_a_file_that_nobody_else_may_read_and_is_never_told() {
    let (_server, url) = guarded();
    let host = Host::new();
    files::make(host.path("ds/f"), 1, 1000);
    let job = |args: &[&str]| host.run(["job"]).args(args).env("LONGHAUL_QUEUE", &url);
    let (right, wrong, open) = (host.path("right"), host.path("wrong"), host.path("open"));
    passfile(&right, "the right one");
    passfile(&wrong, "another");
    passfile(&open, "the right one");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o640)).unwrap();

    job(&["ls"]).fail(4);
    job(&["ls"]).env("PGPASSFILE", &wrong).fail(4);
    job(&["ls"]).env("PGPASSWORD", "another").fail(4);
    let refused = job(&["ls"]).env("PGPASSFILE", &open).fail(4);
    assert!(refused.stderr.contains("open'") && !refused.stderr.contains("the right one"), "{refused}");

    let added = job(&["add", "--name", "all", "ds", "to"]).env("PGPASSWORD", "the right one").succeed();
    assert!(!added.stdout_text().contains("the right one"), "{added}");
    job(&["plan", "all"]).env("PGPASSFILE", &right).succeed();
    // The file of the user, where PostgreSQL's own programs look for it.
    passfile(&host.path(".pgpass"), "the right one");
    job(&["run", "--drain"]).succeed();
    assert!(host.path("to/ds/f").exists());
    // What is named comes before what is found.
    job(&["ls"]).env("PGPASSFILE", &wrong).fail(4);
}
