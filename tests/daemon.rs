//! The daemon as its administrator and its clients meet it.

use std::fs;
use std::path::Path;

use rustix::process::Signal;

use crate::fixture::tree::{self, Tree};
use crate::fixture::{ALL_RIGHTS, Daemon, DaemonConfig, Host, Run, Site, files};

#[test]
fn a_good_config_is_approved_without_serving() {
    let host = Host::new();
    let dir = host.make_dir("dir");
    let config = DaemonConfig::default().root("r", &dir, "read").client("c", host.key(), &[("r", "read")]).write(&host);
    let outcome = check(&host, &config).succeed();
    assert!(outcome.stdout.is_empty() && outcome.stderr.contains("1 root"), "{outcome}");
    assert_eq!(Tree::of(&dir).paths(), [""], "nothing is made: {outcome}");
}

#[test]
fn a_root_that_another_directory_took_the_place_of_is_refused_until_it_is_back() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 100);
    let push = || site.client.run(["push", "--json", "f"]).arg(site.url("in/"));
    push().succeed();
    let away = site.server.path("away");
    fs::rename(site.root(), &away).unwrap();
    for gone in [true, false] {
        if !gone {
            fs::create_dir(site.root()).unwrap();
        }
        let pull = site.client.run(["pull", "--json"]).arg(site.url("in/f")).arg("back/");
        for outcome in [push().fail(7), pull.fail(7), site.client.run(["ls"]).arg(site.url("")).fail(7)] {
            for said in ["something was mounted over or replaced root 'data'", "reload its configuration"] {
                assert!(outcome.stderr.contains(said), "{outcome}");
            }
        }
    }
    assert_eq!(Tree::of(site.root()).paths(), [""], "nothing goes to either");
    assert_eq!(Tree::of(&away).paths(), ["", "in", "in/f"]);
    fs::remove_dir(site.root()).unwrap();
    fs::rename(&away, site.root()).unwrap();
    assert_eq!(push().succeed().counts(), (0, 1, 0));
}

#[test]
fn the_config_of_the_contract_is_understood() {
    let host = Host::new();
    let dir = host.make_dir("dir");
    let config = host.path("serve.toml");
    let text = CONTRACT.replace("DIR", dir.to_str().unwrap()).replace("KEY", host.key());
    files::write(&config, &text);
    files::set_mode(&config, 0o600);
    check(&host, &config).succeed();
    files::write(&config, text.replace("[\"private\", \"safe\"]", "[\"private\", \"safe\"]\nlayout = \"stripe\""));
    let outcome = check(&host, &config).fail(2);
    assert!(outcome.stderr.contains("one directory is no set"), "{outcome}");
}

#[test]
fn a_bad_config_is_refused_with_the_place_of_what_is_wrong() {
    let host = Host::new();
    let dir = host.make_dir("dir");
    let root = format!("[[root]]\nname = 'r'\ntargets = ['{}']\n", dir.display());
    let key = host.key();
    let cases = [
        ("listen = 7\n".to_owned(), "serve.toml:1:10"),
        ("listen = ['nonsense']\n".to_owned(), "HOST:PORT"),
        ("surprise = 1\n".to_owned(), "surprise"),
        (format!("{root}colour = 'red'\n"), "colour"),
        (format!("{root}allow = ['write']\n"), "write"),
        (format!("{root}protect = ['public']\n"), "public"),
        (format!("{root}{root}"), "two roots"),
        (root.replace("'r'", "'a/b'"), "name"),
        (root.replace("'r'", "'.longhaul'"), "name"),
        (root.replace(&format!("'{}'", dir.display()), ""), "must name a directory"),
        (format!("{root}[[client]]\nname = 'c'\nkey = 'lhk1:short'\n"), "public key"),
        (format!("{root}[[client]]\nname = 'c'\nkey = '{key}'\nroots = {{ nowhere = ['read'] }}\n"), "nowhere"),
        (format!("{root}[[client]]\nname = 'c'\nkey = '{key}'\n[[client]]\nname = 'd'\nkey = '{key}'\n"), "'c'"),
        ("[limits]\nsessions = 0\n".to_owned(), "sessions"),
        ("[limits]\nmemory = 'plenty'\n".to_owned(), "plenty"),
        ("[limits]\nmemory = '1MiB'\n".to_owned(), "memory"),
        ("[limits]\nmemory = '900TiB'\n".to_owned(), "more than this host has"),
        ("[[root]\n".to_owned(), "serve.toml:1:"),
    ];
    for (text, flaw) in cases {
        let config = host.path("serve.toml");
        files::write(&config, &text);
        files::set_mode(&config, 0o600);
        for run in [check(&host, &config), host.run(["serve", "--config"]).arg(&config)] {
            let outcome = run.fail(2);
            assert!(outcome.stderr.contains(flaw), "{flaw:?} is not said: {text}\n{outcome}");
            assert!(outcome.stderr.contains("serve.toml"), "{outcome}");
        }
    }
}

#[test]
fn a_config_that_anybody_may_write_is_refused() {
    let host = Host::new();
    let dir = host.make_dir("dir");
    let config = DaemonConfig::default().root("r", &dir, "read").write(&host);
    files::set_mode(&config, 0o646);
    let outcome = check(&host, &config).fail(2);
    assert!(outcome.stderr.contains("chmod o-w"), "{outcome}");
}

#[test]
fn files_that_somebody_else_could_change_are_refused_with_the_command_that_mends_them() {
    let site = Site::new();
    let (server, client) = (&site.server, &site.client);
    let (config, identity) = (server.path("serve.toml"), server.config("identity"));
    let known_hosts = client.config("known_hosts");
    files::set_mode(&known_hosts, 0o644);
    let refused = |run: Run, mends: String| {
        let outcome = run.fail(2);
        assert!(outcome.stderr.contains(&mends), "{mends}: {outcome}");
    };
    let check = || check(server, &config);
    let list = || client.run(["ls", &site.url("")]);
    check().succeed();
    list().succeed();
    let shown = |path: &Path| path.canonicalize().unwrap().display().to_string();
    let dirs = [&config, &identity, &known_hosts].map(|path| path.parent().unwrap().to_owned());
    for (path, bad, good) in
        [(&config, 0o620, 0o600), (&dirs[0], 0o775, 0o755), (&identity, 0o620, 0o600), (&dirs[1], 0o770, 0o700)]
    {
        files::set_mode(path, bad);
        let mends = if path == &identity { "chmod 600 ".to_owned() } else { format!("chmod g-w {}", shown(path)) };
        refused(check(), mends);
        files::set_mode(path, good);
        check().succeed();
    }
    for (path, bad, good) in [(&known_hosts, 0o666, 0o600), (&dirs[2], 0o777, 0o700)] {
        files::set_mode(path, bad);
        refused(list(), format!("chmod go-w {}", shown(path)));
        files::set_mode(path, good);
        list().succeed();
    }
}

#[test]
fn what_a_config_most_likely_does_not_mean_is_told_when_it_is_checked_and_at_the_start() {
    let host = Host::new();
    let config = DaemonConfig::default().root("everything", Path::new("/"), "read,modify");
    let path = config.write(&host);
    let told = ["root 'everything' is the whole system: clients may change", "root 'everything' holds"];
    let outcome = check(&host, &path).succeed();
    let daemon = config.start(&host);
    for text in told {
        assert!(outcome.stderr.contains(text), "{text}: {outcome}");
        daemon.wait_log(text);
    }
    if rustix::process::geteuid().is_root() {
        daemon.wait_log("runs as root");
    }
}

#[test]
fn a_check_tells_what_is_missing_or_without_effect_and_scripts_get_a_summary() {
    let host = Host::new();
    let dir = host.make_dir("dir");
    let lonely = DaemonConfig::default().line("identity = 'no/such/dir/identity'").root("r", &dir, "read").write(&host);
    let outcome = check(&host, &lonely).arg("--json").succeed();
    for text in ["there is no client", "the directory no/such/dir does not exist"] {
        assert!(outcome.stderr.contains(text), "{text}: {outcome}");
        let told = |event: &serde_json::Value| event["message"].as_str().unwrap().contains(text);
        assert!(outcome.events_of("warning").iter().any(told), "{text}: {outcome}");
    }
    assert_eq!(outcome.summary()["exit"], 0, "{outcome}");
    let config = DaemonConfig::default().root("r", &dir, "read,create").client("idle", site_key(), &[]);
    let outcome = check(&host, &config.write(&host)).succeed();
    assert!(outcome.stderr.contains("client 'idle' may use no root"), "{outcome}");
}

#[test]
fn rules_that_contradict_each_other_are_an_error_wherever_the_config_is_read() {
    let host = Host::new();
    let (outer, inner) = (host.make_dir("outer"), host.make_dir("outer/inner"));
    files::link("outer/inner", host.path("link"));
    let of = DaemonConfig::default;
    let greedy = of().root("r", &inner, "read,create").client("greedy", host.key(), &[("r", "read,create,modify")]);
    let cases = [
        (greedy, "serve.toml:12:", "client 'greedy' has 'modify' in root 'r', which allows read, create"),
        (of().root("outer", &outer, "read").root("inner", &inner, "read"), ":10:11: ", "lies in root 'outer'"),
        (of().root("inner", &inner, "read").root("outer", &outer, "read"), ":10:11: ", "lies in root 'outer'"),
        (of().root("a", &inner, "read").root("b", &host.path("link"), "read"), ":10:11: ", "are one directory"),
        (of(), "serve.toml: ", "there is no root"),
        (of().client("c", host.key(), &[]), "serve.toml: ", "there is no root"),
    ];
    for (config, place, flaw) in cases {
        let path = config.write(&host);
        for run in [check(&host, &path), host.run(["serve", "--config"]).arg(&path)] {
            let outcome = run.arg("--json").fail(2);
            assert!(outcome.stderr.contains(place) && outcome.stderr.contains(flaw), "{place} {flaw}: {outcome}");
            assert_eq!(outcome.summary()["exit"], 2, "{outcome}");
        }
    }
    let inner_too = format!("inner={}", inner.display());
    let config = of().root("outer", &outer, "read").write(&host);
    let outcome = check(&host, &config).args(["--root", &inner_too]).fail(2);
    assert!(outcome.stderr.contains("--root: root 'inner'"), "{outcome}");
    let measured = of().may_bench().client("meter", host.key(), &[]).write(&host);
    check(&host, &measured).succeed();
}

/// A key that no host has.
fn site_key() -> &'static str {
    "lhk1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
}

#[test]
fn a_daemon_without_any_config_says_where_it_looked_and_how_to_begin() {
    let host = Host::new();
    let outcome = host.run(["serve"]).fail(2);
    for text in ["/etc/longhaul/serve.toml", "longhaul/serve.toml does not exist", "--root NAME=DIR", "key authorize"] {
        assert!(outcome.stderr.contains(text), "{text}: {outcome}");
    }
}

#[test]
fn a_root_that_is_no_directory_is_3_and_a_missing_config_2() {
    let host = Host::new();
    let config = DaemonConfig::default().root("r", &host.path("missing"), "read").write(&host);
    let outcome = check(&host, &config).fail(3);
    assert!(outcome.stderr.contains("missing"), "{outcome}");
    check(&host, &host.path("no-such.toml")).fail(2);
}

#[test]
fn roots_on_the_command_line_are_offered_to_the_clients_of_the_config() {
    let (client, server) = (Host::new(), Host::new());
    let (plain, full) = (server.make_dir("plain"), server.make_dir("full"));
    let config = DaemonConfig::default().client("tester", client.key(), &[]).write(&server);
    let run = server.run(["serve", "--json", "--config"]).arg(&config);
    let read_only = format!("plain={}", plain.display());
    let daemon =
        Daemon::start(run.args(["--root", &read_only, "--root", &format!("full={}:{ALL_RIGHTS}", full.display())]));
    let ls = client.run(["ls", "-l", "--trust-on-first-use", &daemon.url("")]).succeed();
    assert_eq!(ls.stdout_text(), "full/  read,create,modify,delete\nplain/  read\n", "{ls}");
    server.run(["serve", "--root", "nonsense"]).fail(2);
}

#[test]
fn an_address_that_cannot_be_listened_at_is_told_with_the_systems_reason_and_what_to_do() {
    let (host, other) = (Host::new(), Host::new());
    let dir = host.make_dir("dir");
    let daemon = DaemonConfig::default().root("r", &dir, "read").start(&host);
    let path = DaemonConfig::default().root("r", &dir, "read").write(&other);
    let config = std::fs::read_to_string(&path).unwrap();
    let serve = |listen: &str| {
        std::fs::write(&path, config.replace("127.0.0.1:0", listen)).unwrap();
        other.run(["serve", "--config"]).arg(&path).fail(2).stderr
    };
    for (listen, why, hint) in [
        (daemon.addr(), "in use", "another process listens there"),
        ("192.0.2.1:0", "annot assign requested address", "this host has no such address"),
    ] {
        let said = serve(listen);
        assert!(said.contains(&format!("cannot listen on {listen}")), "{said}");
        assert!(said.contains(why) && said.contains(hint), "{listen}: {said}");
        assert!(!said.contains("HOST:PORT"), "nothing is wrong with how it is written: {said}");
    }
    let said = serve("7214");
    assert!(said.contains("HOST:PORT"), "{said}");
}

#[test]
fn a_daemon_that_nobody_may_use_says_how_to_let_somebody_in() {
    let host = Host::new();
    let dir = host.make_dir("dir");
    let daemon = DaemonConfig::default().root("r", &dir, "read").start(&host);
    daemon.wait_log("nobody may connect yet");
    daemon.wait_log("longhaul key authorize");
}

#[test]
fn a_session_leaves_one_line_when_it_opens_and_one_when_it_ends() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 1000);
    site.client.run(["push", "f", &site.url("")]).succeed();
    let opened = site.daemon.wait_log("opened: push to data/");
    let ended = site.daemon.wait_log("ended: push to data/");
    for line in [&opened, &ended] {
        assert!(line.contains("client=tester") && line.contains("peer=127.0.0.1:"), "{line}");
    }
    assert!(ended.contains("complete") && ended.contains("files=1") && ended.contains("bytes=1000"), "{ended}");
    let sessions = site.daemon.log().lines().filter(|line| line.contains("longhaul::session")).count();
    assert_eq!(sessions, 2, "{}", site.daemon.log());
}

#[test]
fn the_line_at_a_sessions_end_tells_where_processor_time_went() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 32 << 20);
    site.client.run(["push", "f", &site.url("")]).succeed();
    site.client.run(["pull", &site.url("f"), "back"]).succeed();
    for what in ["push to data/", "pull from data/f"] {
        let ended = site.daemon.wait_log(&format!("ended: {what}"));
        let words = ended.split(' ').find_map(|word| word.strip_prefix("cpu_s=")).expect(&ended);
        let stages: Vec<(&str, f64)> = words
            .split(',')
            .map(|word| word.split_once(':').map(|(stage, seconds)| (stage, seconds.parse().unwrap())).expect(&ended))
            .collect();
        assert_eq!(stages.iter().map(|(stage, _)| *stage).collect::<Vec<_>>(), ["hash", "net", "files"], "{ended}");
        // 32 MiB take some milliseconds to hash and to decrypt or encrypt, on any machine.
        assert!(stages[0].1 > 0.0 && stages[1].1 > 0.0, "{ended}");
    }
}

#[test]
fn a_hostile_name_cannot_forge_a_line_of_the_log() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 10);
    let forged = "x\nINFO longhaul::session: ended: all is well \x1b[2J";
    site.client.run(["push", "f", &site.url(forged)]).succeed();
    site.daemon.wait_log("ended: push");
    let log = site.daemon.log();
    assert!(!log.contains('\x1b') && !log.lines().any(|line| line.starts_with("INFO")), "{log}");
}

#[test]
fn one_pull_takes_sources_from_several_roots_if_every_one_allows_it() {
    let (client, server) = (Host::new(), Host::new());
    let [one, two, closed, secret] = ["one", "two", "closed", "secret"].map(|name| server.make_dir(name));
    files::make(one.join("f"), 1, 3000);
    files::make(one.join("d/large"), 2, (2 << 20) + 1);
    files::make(two.join("g"), 3, 100);
    files::make(closed.join("h"), 4, 100);
    files::make(secret.join("i"), 5, 100);
    let rights = [("one", "read"), ("two", "read"), ("closed", "create"), ("secret", "read")];
    let daemon = DaemonConfig::default()
        .root("one", &one, ALL_RIGHTS)
        .root("two", &two, ALL_RIGHTS)
        .root("closed", &closed, ALL_RIGHTS)
        .root_protected("secret", &secret, ALL_RIGHTS, "private")
        .client("tester", client.key(), &rights)
        .start(&server);
    client.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
    let pull = |protect: &str, sources: &[&str]| {
        let run = client.run(["pull", "--json", "--protect", protect]);
        run.args(sources.iter().map(|source| daemon.url(source))).arg("got/").finish()
    };
    for (protect, sources) in [("private", ["one/f", "closed/h"]), ("safe", ["one/f", "secret/i"])] {
        let outcome = pull(protect, &sources);
        assert_eq!(outcome.code, 4, "{outcome}");
        assert!(!client.path("got").exists(), "{outcome}");
    }
    let outcome = pull("safe", &["one/f", "two/", "one/d"]);
    assert_eq!((outcome.code, outcome.counts()), (0, (3, 0, 0)), "{outcome}");
    let got = Tree::of(client.path("got"));
    assert_eq!(got.paths(), ["", "d", "d/large", "f", "g"], "{outcome}");
    assert_eq!(got.node("d/large"), Tree::of(&one).node("d/large"), "{outcome}");
    assert_eq!(got.node("g"), Tree::of(&two).node("g"), "{outcome}");
    daemon.wait_log("ended: pull from one/f and 2 more: complete");
}

#[test]
fn a_read_only_client_may_pull_and_list_and_nothing_else() {
    let site = Site::granting(DaemonConfig::default(), "read", ALL_RIGHTS);
    files::make(site.root().join("f"), 1, 100);
    files::make(site.client.path("g"), 2, 100);
    site.client.run(["ls", &site.url("")]).succeed();
    site.client.run(["pull", &site.url("f"), "got"]).succeed();
    let before = Tree::of(site.root());
    for (source, dest) in [("g", "g"), ("g", "f"), ("g", "new/dir/")] {
        let outcome = site.client.run(["push", "--json", source, &site.url(dest)]).fail(4);
        assert!(outcome.stderr.contains("'create'"), "{outcome}");
        tree::assert_same(&before, &Tree::of(site.root()), outcome);
    }
}

#[test]
fn a_client_without_modify_may_add_but_not_replace() {
    let site = Site::granting(DaemonConfig::default(), "read,create", ALL_RIGHTS);
    files::make(site.root().join("d/stands"), 1, 50);
    files::make(site.client.path("d/stands"), 2, 100);
    files::make(site.client.path("d/new"), 2, 100);
    let outcome = site.client.run(["push", "--json", "--if-exists", "replace", "d", &site.url("")]).fail(23);
    assert_eq!(outcome.counts(), (1, 0, 1), "{outcome}");
    assert!(outcome.stderr.contains("'modify'"), "{outcome}");
    assert_eq!(fs::read(site.root().join("d/stands")).unwrap(), files::bytes(1, 50), "{outcome}");
    // The same file again is skipped, which needs no right to replace.
    let again = site.client.run(["push", "--json", "d/new", &site.url("d/")]).succeed();
    assert_eq!(again.counts(), (0, 1, 0), "{again}");
}

#[test]
fn a_client_without_read_can_neither_list_nor_pull() {
    let site = Site::granting(DaemonConfig::default(), "create,modify", ALL_RIGHTS);
    files::make(site.client.path("g"), 2, 100);
    site.client.run(["push", "g", &site.url("")]).succeed();
    site.client.run(["ls", &site.url("")]).fail(4);
    site.client.run(["pull", &site.url("g"), "got"]).fail(4);
    assert!(!site.client.path("got").exists());
}

#[test]
fn two_clients_at_once_do_not_disturb_each_other() {
    let (first, second, server) = (Host::new(), Host::new(), Host::new());
    let root = server.make_dir("data");
    let daemon = DaemonConfig::default()
        .root("data", &root, ALL_RIGHTS)
        .client("first", first.key(), &[("data", ALL_RIGHTS)])
        .client("second", second.key(), &[("data", ALL_RIGHTS)])
        .start(&server);
    files::make(root.join("shared"), 9, (6 << 20) + 1);
    for (seed, host) in [(1, &first), (2, &second)] {
        for n in 0..200 {
            files::make(host.path(format!("d/f{n}")), seed * 1000 + n, 2000);
        }
        files::make(host.path("d/large"), seed, (12 << 20) + 5);
    }
    let push = |host: &Host, to: &str| {
        host.run(["push", "--json", "--peer-key", daemon.key(), "--chunk-size", "1MiB", "d/", &daemon.url(to)]).start()
    };
    let pull = |host: &Host| {
        host.run(["pull", "--json", "--peer-key", daemon.key(), &daemon.url("data/shared"), "got"]).start()
    };
    let running = [push(&first, "data/one"), push(&second, "data/two"), pull(&first), pull(&second)];
    for run in running {
        run.fail(0);
    }
    for (host, name) in [(&first, "one"), (&second, "two")] {
        tree::assert_same(&Tree::of(host.path("d")), &Tree::of(root.join(name)), name);
        assert_eq!(fs::read(host.path("got")).unwrap(), files::bytes(9, (6 << 20) + 1), "{name}");
    }
}

#[test]
fn one_session_more_than_allowed_is_told_to_come_back_and_does() {
    let site = Site::with(DaemonConfig::default().line("[limits]\nsessions = 1"));
    files::make_sparse(site.client.path("long"), 1 << 40, &[]);
    files::make(site.client.path("f"), 1, 10);
    let running = site.client.run(["push", "--json", "long", &site.url("")]).start();
    running.wait_type("start");
    let outcome = site.client.run(["push", "--json", "--retry-for", "0", "f", &site.url("")]).fail(5);
    assert_eq!(outcome.events_of("fault")[0]["code"], "busy", "{outcome}");
    let patient = site.client.run(["push", "f", &site.url("")]).start();
    patient.wait_stderr("dialling again");
    running.signal(Signal::INT);
    running.fail(130);
    patient.fail(0);
}

#[test]
fn a_daemon_without_sessions_ends_at_once_on_either_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let site = Site::new();
        site.daemon.signal(signal);
        let outcome = site.daemon.finish();
        assert_eq!(outcome.code, 0, "{outcome}");
    }
}

#[test]
fn a_restarted_daemon_serves_the_same_key_and_files() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 1000);
    site.client.run(["push", "f", &site.url("")]).succeed();
    let key = site.daemon.key().to_owned();
    site.daemon.signal(Signal::TERM);
    assert_eq!(site.daemon.finish().code, 0);
    let daemon = Daemon::start(site.server.run(["serve", "--json", "--config", "serve.toml"]));
    assert_eq!(daemon.key(), key);
    site.client.run(["pull", "--peer-key", &key, &daemon.url("data/f"), "g"]).succeed();
    assert_eq!(fs::read(site.client.path("g")).unwrap(), files::bytes(1, 1000));
}

#[test]
fn a_whole_root_can_be_pulled_and_pushed_into() {
    let site = Site::new();
    files::make(site.client.path("d/sub/f"), 1, 100);
    site.client.run(["push", "d/", &site.url("")]).succeed();
    assert_eq!(Tree::of(site.root()).paths(), ["", "sub", "sub/f"]);
    for (url, dest) in [(site.url(""), "with-slash"), (site.daemon.url("data"), "without")] {
        site.client.run(["pull", &url, dest]).succeed();
        let (stands, got) = (Tree::of(site.root()).beneath(), Tree::of(site.client.path(dest)).beneath());
        tree::assert_same(&stands, &got, dest);
    }
}

#[test]
fn links_beneath_a_root_are_served_as_links_and_never_followed() {
    let site = Site::new();
    files::make(site.server.path("secret/f"), 1, 100);
    files::link("../secret", site.root().join("way-out"));
    files::make(site.client.path("f"), 2, 100);
    site.client.run(["pull", &site.url("way-out"), "got"]).succeed();
    assert!(site.client.path("got").is_symlink());
    for location in ["way-out/", "way-out/f"] {
        let outcome = site.client.run(["pull", "--json", &site.url(location), "never"]).finish();
        assert_ne!(outcome.code, 0, "{outcome}");
        assert!(!site.client.path("never/f").exists() && !site.client.path("never").is_file(), "{outcome}");
        let outcome = site.client.run(["ls", &site.url(location)]).finish();
        assert!(outcome.code != 0 || outcome.stdout_text().starts_with("way-out"), "{outcome}");
    }
    let outcome = site.client.run(["push", "f", &site.url("way-out/")]).finish();
    assert_ne!(outcome.code, 0, "{outcome}");
    assert_eq!(Tree::of(site.server.path("secret")).paths(), ["", "f"]);
}

fn check(host: &Host, config: &std::path::Path) -> Run {
    host.run(["serve", "--check-config", "--config"]).arg(config)
}

/// The example of the contract, with one directory for the root.
const CONTRACT: &str = r#"
listen   = ["[::]:7214"]
identity = "identity"
state    = "/var/lib/longhaul"

[limits]
sessions = 64
memory   = "4GiB"

[[root]]
name    = "atlas"
targets = ["DIR"]
allow   = ["read", "create", "modify"]
protect = ["private", "safe"]

[[client]]
name  = "triumf"
key   = "KEY"
roots = { atlas = ["read", "create"] }
"#;
