//! Keys as users and administrators handle them: made, shown, authorised, trusted.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::fixture::{ALL_RIGHTS, Daemon, DaemonConfig, Host, Site, files};

#[test]
fn a_key_is_made_once_shown_again_and_kept_secret() {
    let host = Host::new();
    host.run(["key", "show"]).fail(3);
    let made = host.run(["key", "generate"]).succeed();
    assert!(made.stdout_text().starts_with("lhk1:"), "{made}");
    assert_eq!(host.run(["key", "show"]).succeed().stdout, made.stdout);
    let identity = fs::metadata(host.config("identity")).unwrap();
    assert_eq!(identity.mode() & 0o7777, 0o600);
    let again = host.run(["key", "generate"]).finish();
    assert_ne!(again.code, 0, "{again}");
    assert_eq!(host.run(["key", "show"]).succeed().stdout, made.stdout, "a second key replaced the first");
    let other = host.run(["key", "generate", "--identity", "other"]).succeed();
    assert_ne!(other.stdout, made.stdout);
}

#[test]
fn an_identity_that_others_may_read_is_refused() {
    let host = Host::new();
    host.key();
    files::set_mode(host.config("identity"), 0o644);
    let outcome = host.run(["key", "show"]).fail(2);
    assert!(outcome.stderr.contains("chmod 600"), "{outcome}");
}

#[test]
fn an_identity_that_is_no_file_is_told_so() {
    let host = Host::new();
    host.make_dir("d");
    let outcome = host.run(["key", "show", "--identity", "d"]).fail(2);
    assert!(outcome.stderr.contains("d is not a file") && !outcome.stderr.contains("chmod"), "{outcome}");
}

#[test]
fn the_first_transfer_makes_a_missing_identity_and_says_so() {
    let site = Site::new();
    let stranger = Host::new();
    let outcome = stranger.run(["ls", "--trust-on-first-use", &site.url("")]).fail(4);
    assert!(outcome.stderr.contains("made the identity"), "{outcome}");
    assert_eq!(fs::metadata(stranger.config("identity")).unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn a_daemon_makes_a_missing_identity_and_says_so() {
    let host = Host::new();
    let dir = host.make_dir("dir");
    let daemon = DaemonConfig::default().root("r", &dir, ALL_RIGHTS).start(&host);
    daemon.wait_log("made the identity");
    assert_eq!(host.run(["key", "show"]).succeed().stdout_text().trim(), daemon.key());
}

#[test]
fn an_authorised_client_gets_in_and_a_stranger_is_told_which_key_to_ask_for() {
    let (client, server) = (Host::new(), Host::new());
    let dir = server.make_dir("dir");
    files::make(dir.join("f"), 1, 100);
    let config = DaemonConfig::default().root("r", &dir, "read").write(&server);
    let start = || Daemon::start(server.run(["serve", "--json", "--config"]).arg(&config));
    let daemon = start();
    let pull = |daemon: &Daemon| client.run(["pull", "--json", "--peer-key", daemon.key(), &daemon.url("r/f"), "f"]);
    let refused = pull(&daemon).fail(4);
    assert_eq!(refused.events_of("fault")[0]["code"], "denied", "{refused}");
    let told = refused.events_of("fault")[0].clone();
    assert!(told["message"].as_str().unwrap().contains(client.key()), "{refused}");
    assert!(told["hint"].as_str().unwrap().contains("administrator"), "{refused}");
    let line = daemon.wait_log("an unknown key was refused");
    assert!(line.contains(client.key()) && line.contains("peer=127.0.0.1:"), "{line}");
    assert!(line.contains(config.to_str().unwrap()) && !line.contains("key authorize"), "{line}");
    drop(daemon);
    let authorize = |name: &str, root: &str| {
        server.run(["key", "authorize", client.key(), "--name", name, "--root", root, "--config"]).arg(&config)
    };
    authorize("tester", "r=read").succeed();
    let again = authorize("another-name", "r=read").finish();
    assert_ne!(again.code, 0, "one key twice: {again}");
    let daemon = start();
    pull(&daemon).succeed();
    assert_eq!(fs::read(client.path("f")).unwrap(), files::bytes(1, 100));
    daemon.wait_log("client=tester");
}

#[test]
fn a_client_that_is_let_in_to_measure_may_do_that_and_nothing_else() {
    let (client, server) = (Host::new(), Host::new());
    let dir = server.make_dir("dir");
    files::make(dir.join("f"), 1, 100);
    let config = DaemonConfig::default().root("r", &dir, "read").write(&server);
    server.run(["key", "authorize", client.key(), "--name", "meter", "--bench", "--config"]).arg(&config).succeed();
    let daemon = Daemon::start(server.run(["serve", "--json", "--config"]).arg(&config));
    let url = format!("lh://{}", daemon.addr());
    client.run(["bench", "net", "--bytes", "1MiB", "--peer-key", daemon.key(), &url]).succeed();
    client.run(["pull", "--peer-key", daemon.key(), &daemon.url("r/f"), "f"]).fail(4);
}

#[test]
fn an_unknown_daemon_key_off_a_terminal_is_4_with_the_line_to_paste() {
    let site = Site::new();
    let host = Host::new();
    files::make(host.path("f"), 1, 10);
    let outcome = host.run(["push", "--json", "f", &site.url("")]).fail(4);
    let line = format!("longhaul key trust {} {}", site.daemon.addr(), site.daemon.key());
    assert!(outcome.stderr.contains(&line), "{outcome}");
    assert!(outcome.stderr.contains("longhaul key show --identity FILE"), "{outcome}");
    assert!(outcome.summary()["files_committed"] == 0 && !site.root().join("f").exists(), "{outcome}");
    assert!(!host.config("known_hosts").exists(), "{outcome}");
    // The printed line works: from now on only the client's own key is in the way.
    host.run(line.split(' ').skip(1)).succeed();
    let outcome = host.run(["push", "f", &site.url("")]).fail(4);
    assert!(outcome.stderr.contains("does not know the key"), "{outcome}");
}

#[test]
fn trust_on_first_use_remembers_the_key_for_the_next_time() {
    let site = Site::new();
    fs::remove_file(site.client.config("known_hosts")).unwrap();
    site.client.run(["ls", &site.url("")]).fail(4);
    site.client.run(["ls", "--trust-on-first-use", &site.url("")]).succeed();
    let known = fs::read_to_string(site.client.config("known_hosts")).unwrap();
    assert!(known.contains(site.daemon.key()), "{known}");
    site.client.run(["ls", &site.url("")]).succeed();
}

#[test]
fn a_key_pinned_for_the_run_is_the_only_one_taken_and_not_remembered() {
    let site = Site::new();
    fs::remove_file(site.client.config("known_hosts")).unwrap();
    site.client.run(["ls", "--peer-key", site.daemon.key(), &site.url("")]).succeed();
    assert!(!site.client.config("known_hosts").exists());
    let outcome = site.client.run(["ls", "--peer-key", site.client.key(), &site.url("")]).fail(4);
    assert!(outcome.stderr.contains("--peer-key"), "{outcome}");
    site.daemon.wait_log("it may not trust this daemon's key");
}

#[test]
fn known_hosts_and_identity_may_lie_elsewhere() {
    let site = Site::new();
    fs::rename(site.client.config("known_hosts"), site.client.path("hosts")).unwrap();
    fs::rename(site.client.config("identity"), site.client.path("me")).unwrap();
    site.client.run(["ls", "--known-hosts", "hosts", "--identity", "me", &site.url("")]).succeed();
    let run = site.client.run(["ls", &site.url("")]);
    run.env("LONGHAUL_KNOWN_HOSTS", "hosts").env("LONGHAUL_IDENTITY", "me").succeed();
}

#[test]
fn a_pinned_key_is_never_exchanged_for_another() {
    let site = Site::new();
    let outcome = site.client.run(["key", "trust", site.daemon.addr(), site.client.key()]).fail(4);
    assert!(outcome.stderr.contains("known"), "{outcome}");
    site.client.run(["key", "trust", site.daemon.addr(), site.daemon.key()]).succeed();
    site.client.run(["ls", &site.url("")]).succeed();
}
