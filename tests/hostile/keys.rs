//! Clients without permission: keys that are unknown or changed, roots that do not exist, rights
//! that are not given. Exit 4, nothing written.

use std::fs;

use longhaul_net::Identity;

use crate::fixture::{DaemonConfig, Host, Outcome, Site, files, tree};

/// Fails unless a denied run told why, and changed nothing at the daemon.
#[track_caller]
fn assert_denied(outcome: &Outcome, before: &tree::Tree, root: &std::path::Path) {
    assert_eq!(outcome.code, 4, "{outcome}");
    assert_eq!(outcome.summary()["status"], "denied", "{outcome}");
    tree::assert_same(before, &tree::Tree::of(root), outcome);
}

#[test]
fn a_key_that_the_daemon_does_not_know_is_denied_and_its_administrator_told() {
    let site = Site::new();
    let stranger = Host::new();
    let key = stranger.key().to_owned();
    files::make(stranger.path("f"), 1, 1000);
    files::make(site.root().join("stands"), 2, 1000);
    let before = tree::Tree::of(site.root());
    let pinned = ["--json", "--peer-key", site.daemon.key()];
    for words in [vec!["push", "f", &site.url("f")], vec!["pull", &site.url("stands"), "g"], vec!["ls", &site.url("")]]
    {
        let outcome = stranger.run(words).args(pinned).finish();
        assert_denied(&outcome, &before, &site.root());
    }
    let line = site.daemon.wait_log("an unknown key was refused");
    assert!(line.contains("WARN") && line.contains(&key) && line.contains("peer=127.0.0.1:"), "{line}");
    assert!(!site.daemon.log().contains("authorize"), "nobody is let in by pasting a line: {}", site.daemon.log());
    assert!(!stranger.path("g").exists());
}

#[test]
fn a_daemon_whose_key_changed_is_refused_even_on_first_use() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 1000);
    let other = Identity::generate().unwrap().public();
    let line = format!("{} {other}\n", site.daemon.addr());
    fs::write(site.client.config("known_hosts"), &line).unwrap();
    let before = tree::Tree::of(site.root());
    for more in [&[][..], &["--trust-on-first-use"]] {
        let outcome = site.client.run(["push", "--json"]).args(more).args(["f", &site.url("f")]).finish();
        assert_denied(&outcome, &before, &site.root());
        let said = outcome.events_of("fault")[0].to_string();
        assert!(said.contains(site.daemon.key()) && said.contains(&other.to_string()), "both keys are named: {said}");
        assert_eq!(fs::read_to_string(site.client.config("known_hosts")).unwrap(), line, "nothing is trusted anew");
    }
    let outcome = site.client.run(["push", "--json", "--peer-key", &other.to_string(), "f", &site.url("f")]).finish();
    assert_denied(&outcome, &before, &site.root());
}

#[test]
fn a_daemon_that_nobody_trusted_is_denied_with_the_line_that_would() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 1000);
    fs::remove_file(site.client.config("known_hosts")).unwrap();
    let before = tree::Tree::of(site.root());
    let outcome = site.client.run(["push", "--json", "f", &site.url("f")]).finish();
    assert_denied(&outcome, &before, &site.root());
    let hint = outcome.events_of("fault")[0]["hint"].as_str().unwrap().to_owned();
    assert!(hint.contains(&format!("longhaul key trust {} {}", site.daemon.addr(), site.daemon.key())), "{hint}");
    assert!(!site.client.config("known_hosts").exists());
}

#[test]
fn a_root_that_is_not_there_is_denied_like_one_that_is_not_ones_own() {
    let (client, server) = (Host::new(), Host::new());
    let (mine, other) = (server.make_dir("mine"), server.make_dir("other"));
    let daemon = DaemonConfig::default()
        .root("mine", &mine, "read,create,modify")
        .root("other", &other, "read,create,modify")
        .client("tester", client.key(), &[("mine", "read,create")])
        .start(&server);
    files::make(client.path("f"), 1, 1000);
    let before = tree::Tree::of(server.dir());
    let said = ["other", "nowhere"].map(|root| {
        let url = daemon.url(&format!("{root}/f"));
        let outcome = client.run(["push", "--json", "--peer-key", daemon.key(), "f", &url]).finish();
        assert_denied(&outcome, &before, server.dir());
        outcome.events_of("fault")[0]["message"].as_str().unwrap().replace(root, "ROOT")
    });
    assert_eq!(said[0], said[1], "what roots there are is not told");
}

#[test]
fn what_the_rights_do_not_grant_is_denied_and_nothing_is_written() {
    // The root's rights, the client's rights, of which only those may be granted that the root
    // allows, and the request.
    for (root_may, client_may, words) in [
        ("read", "read,create,modify", &["push", "f", "URL/new"][..]),
        ("read,create,modify", "read", &["push", "f", "URL/new"]),
        ("read,create,modify", "read,modify", &["push", "f", "URL/new"]),
        ("read,create", "read,create,modify", &["push", "f", "URL/stands"]),
        ("read,create,modify", "read,create", &["push", "f", "URL/stands"]),
        ("read,create,modify", "read,create", &["push", "--if-exists", "replace", "f", "URL/stands"]),
        ("read,create,modify", "read,create", &["push", "--if-exists", "verify", "f", "URL/stands"]),
        ("read,create,modify", "create,modify", &["push", "--if-exists", "verify", "f", "URL/stands"]),
        ("create,modify", "read,create,modify", &["push", "--if-exists", "verify", "f", "URL/stands"]),
        ("create,modify", "read,create", &["pull", "URL/stands", "g"]),
        ("read,create,modify", "create,modify", &["pull", "URL/stands", "g"]),
        ("read,create,modify", "create", &["ls", "URL/"]),
    ] {
        let (client, server) = (Host::new(), Host::new());
        let root = server.make_dir("data");
        files::make(root.join("stands"), 2, 1000);
        files::make(client.path("f"), 1, (1 << 20) + 5);
        let config = DaemonConfig::default().root("data", &root, root_may);
        let both: Vec<_> = client_may.split(',').filter(|word| root_may.split(',').any(|may| may == *word)).collect();
        let daemon = config.client("tester", client.key(), &[("data", &both.join(","))]).start(&server);
        let before = tree::Tree::of(&root);
        let words = words.iter().map(|word| word.replace("URL", &daemon.url("data")));
        let outcome = client.run(words).args(["--json", "--peer-key", daemon.key()]).finish();
        assert_denied(&outcome, &before, &root);
        assert!(!client.path("g").exists(), "{outcome}");
    }
}

#[test]
fn who_may_not_modify_leaves_standing_directories_as_they_are() {
    let (client, server) = (Host::new(), Host::new());
    let root = server.make_dir("data");
    let daemon = DaemonConfig::default()
        .root("data", &root, "read,create,modify")
        .client("tester", client.key(), &[("data", "read,create")])
        .start(&server);
    fs::create_dir_all(root.join("d")).unwrap();
    files::set_mode(root.join("d"), 0o700);
    files::make(client.path("d/new"), 1, 1000);
    files::set_mode(client.path("d"), 0o777);
    let run = client.run(["push", "--json", "--peer-key", daemon.key(), "d", &daemon.url("data/")]);
    let outcome = run.succeed();
    assert_eq!(tree::Tree::of(&root).node("d").mode, 0o700, "a mode is not replaced without the right to: {outcome}");
}
