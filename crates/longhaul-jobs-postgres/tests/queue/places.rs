//! Servers and databases: who is let in, what is refused and left as it is, and what is waited for.
//!
//! In: servers of their own. Out: stores and errors. Must not know rows.

use std::process::Command;

use longhaul_jobs::{Site, SiteId, Store};
use longhaul_jobs_postgres::{Passwords, Place, PostgresError, PostgresStore, Refusal};

use crate::open;
use crate::postgres::{ADMIN, Postgres};

fn failure(url: &str) -> PostgresError {
    open(url).err().unwrap()
}

fn with_passwords(url: &str, passwords: &Passwords) -> Result<PostgresStore, PostgresError> {
    PostgresStore::open_or_make(&Place::parse(url).unwrap(), passwords)
}

#[test]
fn schemas_of_other_programs_and_of_newer_ones_are_refused_and_left_as_they_are() {
    let server = Postgres::start();
    let url = server.url("postgres");
    let missing = PostgresStore::open(&Place::parse(&url).unwrap(), &Passwords::default()).err().unwrap();
    assert!(matches!(missing, PostgresError::Refused { refusal: Refusal::Missing, .. }), "{missing}");
    assert_eq!(server.sql("postgres", "SELECT count(*) FROM pg_namespace WHERE nspname = 'longhaul'"), "0");
    drop(open(&url).unwrap());
    server.sql("postgres", "UPDATE longhaul.queue_version SET version = 99");
    let newer = failure(&url);
    assert!(matches!(newer, PostgresError::Refused { refusal: Refusal::Newer { found: 99, .. }, .. }), "{newer}");
    assert!(newer.to_string().contains("use the newer program"), "{newer}");

    server.sql("postgres", "CREATE SCHEMA theirs CREATE TABLE site (id bigint)");
    let foreign = failure(&format!("{url}?schema=theirs"));
    assert!(matches!(foreign, PostgresError::Refused { refusal: Refusal::Foreign, .. }), "{foreign}");
    let tables = "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = 'theirs'";
    assert_eq!(server.sql("postgres", tables), "1");

    server.sql("postgres", "CREATE SCHEMA ours; CREATE SCHEMA \"odd \"\"name\"");
    drop(open(&format!("{url}?schema=ours")).unwrap());
    drop(open(&format!("{url}?schema=odd%20%22name")).unwrap());
    server.sql("postgres", "CREATE DATABASE latin ENCODING LATIN1 LOCALE 'C' TEMPLATE template0");
    let latin = failure(&server.url("latin"));
    assert!(matches!(latin, PostgresError::Refused { refusal: Refusal::Encoding, .. }), "{latin}");
    let absent = failure(&server.url("absent"));
    assert!(matches!(absent, PostgresError::NoDatabase { .. }), "{absent}");
}

#[test]
fn programs_that_make_the_same_queue_at_once_make_one() {
    let server = Postgres::start();
    let url = server.url("postgres");
    std::thread::scope(|scope| {
        let opened: Vec<_> = (0..8).map(|_| scope.spawn(|| open(&url).map(drop))).collect();
        opened.into_iter().for_each(|one| one.join().unwrap().unwrap());
    });
    assert_eq!(server.sql("postgres", "SELECT count(*) FROM longhaul.queue_version"), "1");
}

#[test]
fn a_commit_is_durable_whatever_the_server_says_by_default() {
    let server =
        Postgres::with(&["fsync=off", "synchronous_commit=off", "default_transaction_isolation=read committed"]);
    let mut store = open(&server.url("postgres")).unwrap();
    // The log tells what a transaction was set to.
    server.sql("postgres", "ALTER SYSTEM SET log_statement = 'all'");
    server.sql("postgres", "SELECT pg_reload_conf()");
    let site = Site { id: SiteId(1), name: "here".to_owned(), movers_in: 1, movers_out: 1 };
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !server.log().contains("SERIALIZABLE READ WRITE") {
        store.transact(|rows| rows.put_site(&site)).unwrap();
        assert!(std::time::Instant::now() < until, "{}", server.log());
    }
    let log = server.log();
    let begun = log.split("SERIALIZABLE READ WRITE").nth(1).unwrap();
    assert!(begun.split("COMMIT").next().unwrap().contains("SET LOCAL synchronous_commit TO on"), "{log}");
}

#[test]
fn a_server_that_is_away_is_told_from_one_that_refuses() {
    let mut server = Postgres::cluster(&["fsync=off"]);
    let away = failure(&server.url("postgres"));
    assert!(matches!(away, PostgresError::Away { .. }), "{away}");
    let rules = "local all longhaul trust\nlocal all all scram-sha-256\n";
    std::fs::write(server.data().join("pg_hba.conf"), rules).unwrap();
    server.restart();
    server.sql("postgres", "CREATE ROLE mover LOGIN PASSWORD 'right'; CREATE ROLE guest LOGIN PASSWORD 'right'");
    server.sql("postgres", "CREATE SCHEMA longhaul AUTHORIZATION mover");
    let of = |user: &str| server.url("postgres").replace(&format!("{ADMIN}@"), &format!("{user}@"));
    for url in [of("mover"), of("mover:wrong"), of("nobody:right"), of("guest:right")] {
        let denied = failure(&url);
        assert!(matches!(denied, PostgresError::Denied { .. }), "{url}: {denied}");
        assert!(!denied.to_string().contains("right"), "{denied}");
    }
    drop(open(&of("mover:right")).unwrap());
    let given = Passwords { any: Some("right".to_owned().into()), file: None };
    drop(with_passwords(&of("mover"), &given).unwrap());
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pass");
    std::fs::write(&file, "localhost:*:postgres:mover:right\n").unwrap();
    let listed = Passwords { any: None, file: Some(file.clone()) };
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let open_to_others = with_passwords(&of("mover"), &listed).err().unwrap();
    assert!(matches!(open_to_others, PostgresError::PassFile { .. }), "{open_to_others}");
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    drop(with_passwords(&of("mover"), &listed).unwrap());
}

/// Has `openssl` make an authority, and a certificate for `localhost` by it, in a directory.
fn certificates(directory: &std::path::Path) {
    let made = |arguments: &str| {
        let done = Command::new("openssl").args(arguments.split(' ')).current_dir(directory).output().unwrap();
        assert!(done.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&done.stderr));
    };
    std::fs::write(directory.join("names"), "subjectAltName=DNS:localhost\n").unwrap();
    for name in ["authority", "other"] {
        made(&format!("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -keyout {name}.key -out {name}.crt"));
    }
    made("req -newkey rsa:2048 -nodes -subj /CN=server -keyout server.key -out server.csr");
    made(
        "x509 -req -in server.csr -CA authority.crt -CAkey authority.key -CAcreateserial -days 2 -extfile names -out server.crt",
    );
}

/// A server with a certificate for `localhost`, at a port of 127.0.0.1.
fn with_tls(directory: &std::path::Path) -> Postgres {
    certificates(directory);
    let mut server = Postgres::cluster(&["fsync=off", "ssl=on", "listen_addresses=127.0.0.1"]);
    let of_data = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(server.data()).unwrap());
    for name in ["server.key", "server.crt"] {
        let to = server.data().join(name);
        std::fs::copy(directory.join(name), &to).unwrap();
        std::fs::set_permissions(&to, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(&to, Some(of_data), None).unwrap();
    }
    std::fs::write(server.data().join("pg_hba.conf"), "local all all trust\nhostssl all all 127.0.0.1/32 trust\n")
        .unwrap();
    server.listen_anew();
    server.restart();
    server
}

#[test]
fn each_sslmode_is_as_private_as_it_says() {
    let directory = tempfile::tempdir().unwrap();
    let server = with_tls(directory.path());
    let of = |host: &str, options: &str| format!("postgres://{ADMIN}@{host}:{}/postgres?{options}", server.port());
    let file = |name: &str| directory.path().join(name).display().to_string();
    let checked = format!("sslmode=verify-full&sslrootcert={}", file("authority.crt"));
    for url in [of("localhost", ""), of("127.0.0.1", "sslmode=require"), of("localhost", &checked)] {
        let mut store = open(&url).unwrap_or_else(|error| panic!("{url}: {error}"));
        store.transact(|rows| rows.sites()).unwrap();
        let private = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)
            WHERE application_name = 'longhaul'";
        assert_eq!(server.sql("postgres", private), "t", "{url}");
    }
    let plain = failure(&of("localhost", "sslmode=disable"));
    assert!(matches!(plain, PostgresError::Denied { .. }), "{plain}");
    let others = format!("sslmode=verify-full&sslrootcert={}", file("other.crt"));
    for url in [of("localhost", &others), of("127.0.0.1", &checked), of("localhost", "sslmode=verify-full")] {
        let refused = failure(&url);
        assert!(matches!(refused, PostgresError::Tls { .. }), "{url}: {refused}");
    }
    let missing = failure(&of("localhost", "sslmode=verify-full&sslrootcert=/nothing"));
    assert!(matches!(missing, PostgresError::Authorities { .. }), "{missing}");
}
