//! The administrator of a running daemon: what the local socket tells, and what it changes.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::{ALL_RIGHTS, Daemon, DaemonConfig, Host, Outcome, Run, Running, Site, files};

const MIB: usize = 1 << 20;

/// A site whose daemon has a socket, and whose root has this rate.
fn site(rate: &str) -> Site {
    let config = DaemonConfig::default().line("state = 'state'").root_line(rate);
    Site::with(config)
}

fn admin(site: &Site, words: &[&str]) -> Run {
    let run = site.server.run(["admin"]).args(words);
    run.args(["--socket", "state/admin.sock"])
}

fn socket(site: &Site) -> PathBuf {
    site.server.path("state/admin.sock")
}

/// Makes a file at the daemon that takes a minute to pull at the least rate.
fn slow_file(site: &Site) -> Vec<u8> {
    let bytes = files::bytes(1, 4 * MIB);
    fs::write(site.root().join("f"), &bytes).unwrap();
    bytes
}

/// A pull of it that has begun.
fn pulling(site: &Site) -> Running {
    let running = site.client.run(["pull", "--json", &site.url("f"), "got"]).start();
    running.wait_type("start");
    running
}

fn events(outcome: &Outcome, kind: &str) -> Vec<Value> {
    outcome.events_of(kind)
}

const SLOW: &str = "rate = '64KiB/s'";

#[test]
fn status_sessions_and_clients_are_told_to_people_and_to_scripts() {
    let site = site(SLOW);
    slow_file(&site);
    let running = pulling(&site);
    let start = running.wait_type("start");
    let status = admin(&site, &["status", "--json"]).succeed();
    let told = &events(&status, "admin_status")[0];
    assert_eq!((told["state"].as_str(), told["load"]["sessions"].as_u64()), (Some("serving"), Some(1)), "{status}");
    assert_eq!((told["listen"][0].as_str(), told["key"].as_str()), (Some(site.daemon.addr()), Some(site.daemon.key())));
    assert_eq!((told["roots"][0]["rate_per_s"].as_u64(), told["clients"].as_u64()), (Some(65536), Some(1)));
    assert_eq!(status.summary()["exit"], 0);
    let sessions = admin(&site, &["sessions", "--json"]).succeed();
    let told = &events(&sessions, "admin_session")[0];
    assert_eq!((told["client"].as_str(), told["what"].as_str()), (Some("tester"), Some("pull from data/f")));
    assert_eq!(told["session"], start["session"], "{sessions}");
    let clients = admin(&site, &["clients", "--json"]).succeed();
    let told = &events(&clients, "admin_client")[0];
    assert_eq!((told["key"].as_str(), told["sessions"].as_u64()), (Some(site.client.key()), Some(1)), "{clients}");
    for (words, wanted) in [
        ("status", ["state", "serving", "1 of 64", "data (524 kbit/s (65.5 kB/s))"]),
        ("sessions", ["SESSION", "tester", "127.0.0.1:", "pull from data/f"]),
        ("clients", ["CLIENT", "tester", site.client.key(), "data=read,create,modify"]),
    ] {
        let outcome = admin(&site, &[words]).succeed();
        let text = outcome.stdout_text();
        assert!(wanted.iter().all(|part| text.contains(part)), "{outcome}");
    }
}

#[test]
fn a_session_that_is_kicked_dials_again_and_another_rate_holds_at_once() {
    let site = site(SLOW);
    let bytes = slow_file(&site);
    let running = pulling(&site);
    let name = events(&admin(&site, &["sessions", "--json"]).succeed(), "admin_session")[0]["session"].clone();
    admin(&site, &["kick", "not-a-session"]).fail(3);
    let kicked = admin(&site, &["kick", &name.as_str().unwrap()[..12]]).succeed();
    assert!(kicked.stdout_text().contains("pull from data/f of tester"), "{kicked}");
    running.wait_stderr("the daemon's administrator ended this session");
    site.daemon.wait_log("ended: pull from data/f: busy: the daemon's administrator ended this session");
    // It would take a minute at the rate of the root.
    admin(&site, &["set-rate", "none", "--root", "data"]).succeed();
    running.fail(0);
    assert!(fs::read(site.client.path("got")).unwrap() == bytes);
    let told = &events(&admin(&site, &["status", "--json"]).succeed(), "admin_status")[0];
    assert!(told["roots"][0]["rate_per_s"].is_null(), "{told}");
    for (words, code) in [
        (&["set-rate", "1MB/s", "--client", "tester"][..], 0),
        (&["set-rate", "1MB/s"], 0),
        (&["set-rate", "1MB/s", "--client", "nobody"], 3),
        (&["set-rate", "1MB/s", "--root", "nowhere"], 3),
        (&["set-rate", "1"], 2),
        (&["set-rate", "1KiB/s"], 2),
    ] {
        admin(&site, words).fail(code);
    }
    let told = &events(&admin(&site, &["clients", "--json"]).succeed(), "admin_client")[0];
    assert_eq!(told["rate_per_s"].as_u64(), Some(1_000_000), "{told}");
    admin(&site, &["reload"]).succeed();
    let told = &events(&admin(&site, &["status", "--json"]).succeed(), "admin_status")[0];
    assert_eq!(told["roots"][0]["rate_per_s"].as_u64(), Some(65536), "the file's again: {told}");
}

#[test]
fn a_client_that_is_revoked_is_a_stranger_until_the_next_reload() {
    let site = site(SLOW);
    slow_file(&site);
    let running = pulling(&site);
    admin(&site, &["revoke", "nobody"]).fail(3);
    let revoked = admin(&site, &["revoke", "tester", "--json"]).succeed();
    assert_eq!(events(&revoked, "admin_done")[0]["sessions"], 1, "{revoked}");
    let denied = running.finish();
    assert_eq!(denied.code, 4, "{denied}");
    assert_eq!(denied.events_of("fault")[0]["code"], "denied", "{denied}");
    site.client.run(["ls", &site.url("f")]).fail(4);
    let reloaded = admin(&site, &["reload"]).succeed();
    assert!(reloaded.stdout_text().contains("new clients: tester"), "{reloaded}");
    site.client.run(["ls", &site.url("f")]).succeed();
}

#[test]
fn a_reload_that_fails_says_why_to_whoever_asked_for_it() {
    let site = site("");
    let config = site.server.path("serve.toml");
    let good = fs::read_to_string(&config).unwrap();
    fs::write(&config, format!("surprise = 1\n{good}")).unwrap();
    let refused = admin(&site, &["reload", "--json"]).fail(2);
    let fault = &refused.events_of("fault")[0];
    assert!(fault["message"].as_str().unwrap().contains("serve.toml:1:1: unknown key 'surprise'"), "{refused}");
    assert_eq!(refused.summary()["exit"], 2, "{refused}");
    for (from, to) in [("state = 'state'", "state = 'other'"), ("state = 'state'", "")] {
        fs::write(&config, good.replace(from, to)).unwrap();
        let refused = admin(&site, &["reload"]).fail(2);
        assert!(refused.stderr.contains("a running daemon keeps its socket"), "{refused}");
    }
    fs::write(&config, &good).unwrap();
    assert!(admin(&site, &["reload"]).succeed().stdout_text().contains("nothing has changed"));
}

#[test]
fn a_daemon_that_drains_takes_no_session_lets_those_that_run_end_and_can_be_told_to_go_on() {
    let site = site(SLOW);
    let bytes = slow_file(&site);
    let running = pulling(&site);
    let drained = admin(&site, &["drain", "--json"]).succeed();
    assert_eq!(events(&drained, "admin_done")[0]["sessions"], 1, "{drained}");
    let refused = site.client.run(["pull", "--json", "--retry-for", "0", &site.url("f"), "other"]).fail(5);
    let fault = &refused.events_of("fault")[0];
    assert!(fault["code"] == "busy" && fault["message"].as_str().unwrap().contains("drained"), "{refused}");
    site.client.run(["ls", &site.url("f")]).succeed();
    assert!(admin(&site, &["status"]).succeed().stdout_text().contains("draining"));
    admin(&site, &["set-rate", "none", "--root", "data"]).succeed();
    running.fail(0);
    assert!(fs::read(site.client.path("got")).unwrap() == bytes);
    admin(&site, &["drain", "--end"]).succeed();
    site.client.run(["pull", &site.url("f"), "other"]).succeed();
}

#[test]
fn what_still_runs_at_the_deadline_of_a_drain_ends_in_order_and_can_be_gone_on_with() {
    let site = site("rate = '4MB/s'");
    let bytes = files::bytes(2, 64 * MIB);
    fs::write(site.client.path("f"), &bytes).unwrap();
    let push = || site.client.run(["push", "--json", "--retry-for", "0", "--chunk-size", "1MiB", "f", &site.url("")]);
    let running = push().start();
    running.wait_event(|event| event["bytes_durable"].as_u64().filter(|bytes| *bytes >= 2 << 20));
    let far = admin(&site, &["drain", "--deadline", "1h"]).succeed();
    assert!(far.stdout_text().contains("ended in 3600 s"), "{far}");
    let told = &events(&admin(&site, &["status", "--json"]).succeed(), "admin_status")[0];
    assert!(told["drain_s"].as_f64().unwrap() > 3000.0, "{told}");
    admin(&site, &["drain", "--deadline", "0"]).succeed();
    let ended = running.finish();
    assert_eq!((ended.code, &ended.events_of("fault")[0]["code"]), (5, &Value::from("busy")), "{ended}");
    admin(&site, &["drain", "--end"]).succeed();
    admin(&site, &["set-rate", "none", "--root", "data"]).succeed();
    let outcome = push().succeed();
    assert!(outcome.summary()["bytes_resumed"].as_u64().unwrap() >= 2 << 20, "{outcome}");
    assert!(fs::read(site.root().join("f")).unwrap() == bytes);
}

#[test]
fn twenty_sessions_lose_nothing_by_a_reload_a_kick_of_each_and_a_drain() {
    let site = site("rate = '8MB/s'");
    let name = |n: u64| format!("f{n}");
    for n in 0..20 {
        files::make(site.client.path(name(n)), n + 1, 2 * MIB);
    }
    let push = |n: u64| {
        let words = ["push", "--json", "--chunk-size", "1MiB", &name(n), &site.url("")].map(str::to_owned);
        site.client.run(words).start()
    };
    let running: Vec<Running> = (0..20).map(push).collect();
    running.iter().for_each(|run| drop(run.wait_type("start")));
    admin(&site, &["reload"]).succeed();
    let sessions = events(&admin(&site, &["sessions", "--json"]).succeed(), "admin_session");
    assert!(!sessions.is_empty());
    for session in sessions {
        // One that has ended by itself is not there any more.
        let code = admin(&site, &["kick", session["session"].as_str().unwrap()]).finish().code;
        assert!(code == 0 || code == 3, "{code}");
    }
    admin(&site, &["drain", "--deadline", "0"]).succeed();
    admin(&site, &["drain", "--end"]).succeed();
    admin(&site, &["set-rate", "none", "--root", "data"]).succeed();
    for (n, run) in (0..).zip(running) {
        run.fail(0);
        assert!(fs::read(site.root().join(name(n))).unwrap() == files::bytes(n + 1, 2 * MIB), "{n}");
    }
}

#[test]
fn the_socket_is_the_users_alone_and_goes_with_the_daemon() {
    let site = site("");
    let path = socket(&site);
    let found = fs::symlink_metadata(&path).unwrap();
    assert!(found.file_type().is_socket() && found.permissions().mode() & 0o777 == 0o600);
    assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    let config = site.server.path("serve.toml");
    let second = site.server.run(["serve", "--config"]).arg(&config).fail(2);
    assert!(second.stderr.contains("cannot listen at the socket state/admin.sock"), "{second}");
    admin(&site, &["status"]).succeed();
    // Without --socket the config says where it is.
    site.server.run(["admin", "status", "--config"]).arg(&config).succeed();
    site.daemon.signal(Signal::TERM);
    site.daemon.wait_gone();
    assert!(!path.exists());
    let gone = admin(&site, &["status"]).fail(5);
    assert!(gone.stderr.contains("no daemon can be asked at state/admin.sock"), "{gone}");
}

#[test]
fn a_daemon_without_a_socket_cannot_be_asked_and_one_where_others_write_does_not_start() {
    let site = Site::new();
    let config = site.server.path("serve.toml");
    let outcome = site.server.run(["admin", "status", "--config"]).arg(&config).fail(2);
    assert!(outcome.stderr.contains("it names no socket for 'longhaul admin'"), "{outcome}");
    let open = site.server.make_dir("open");
    files::set_mode(&open, 0o777);
    for run in [["serve", "--config"].as_slice(), &["serve", "--check-config", "--config"]] {
        let run = site.server.run(run).arg(&config).args(["--socket", "open/admin.sock"]);
        let outcome = run.fail(2);
        assert!(outcome.stderr.contains("chmod go-w"), "{outcome}");
    }
}

#[test]
fn words_that_are_no_request_get_a_refusal_and_harm_nobody() {
    let site = site("");
    let said = |words: &[u8]| {
        let mut stream = UnixStream::connect(socket(&site)).unwrap();
        // It may hang up in the middle of what it refuses.
        let _ = stream.write_all(words);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        answer
    };
    let long = [b"{\"ask\":\"kick\",\"session\":\"".as_slice(), &vec![b'a'; 8 << 20], b"\"}\n"].concat();
    for words in [&b"\n"[..], b"GET / HTTP/1.1\r\n\r\n", b"{\"ask\":\"status\"}", b"\xff\n", b"{\"ask\":\"format\"}\n"]
    {
        let answer = said(words);
        assert!(answer.contains("fault") && answer.ends_with("\"end\"\n"), "{words:?}: {answer}");
    }
    said(&long);
    // More than are heard at a time, none of which says a word.
    let silent: Vec<_> = (0..12).map(|_| UnixStream::connect(socket(&site)).unwrap()).collect();
    admin(&site, &["status"]).succeed();
    drop(silent);
    admin(&site, &["status"]).succeed();
}

#[test]
fn who_is_taken_out_of_the_config_is_shut_out_once_the_daemon_has_reloaded() {
    let (server, clients) = (Host::new(), [Host::new(), Host::new()]);
    let root = server.make_dir("data");
    let config = DaemonConfig::default().line("state = 'state'").root("data", &root, ALL_RIGHTS);
    let config = config.client("alice", clients[0].key(), &[("data", "read")]);
    let daemon: Daemon = config.client("bob", clients[1].key(), &[("data", "read,create")]).start(&server);
    let ls = |client: &Host| client.run(["ls", "--peer-key", daemon.key(), &daemon.url("data/")]);
    let key = |words: &[&str]| server.run(["key"]).args(words).args(["--config", "serve.toml"]);
    let listed = key(&["list"]).succeed();
    for part in ["alice", "bob", clients[0].key(), "data=read,create"] {
        assert!(listed.stdout_text().contains(part), "{part}: {listed}");
    }
    key(&["revoke", "carol"]).fail(2);
    let said = key(&["revoke", "alice"]).succeed();
    assert!(said.stderr.contains("alice is taken out") && said.stderr.contains("longhaul admin reload"), "{said}");
    ls(&clients[0]).succeed();
    server.run(["admin", "reload", "--config", "serve.toml"]).succeed();
    ls(&clients[0]).fail(4);
    ls(&clients[1]).succeed();
    key(&["revoke", clients[1].key()]).succeed();
    let listed = key(&["list", "--json"]).succeed();
    assert!(listed.events_of("admin_client").is_empty() && listed.summary()["exit"] == 0, "{listed}");
}
