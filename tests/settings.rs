//! Options, variables and the config file: their precedence, and the effect of each on a run.

use std::fs;

use crate::fixture::tree::{self, Tree};
use crate::fixture::{ALL_RIGHTS, DaemonConfig, Host, Site, Trip, engines, files};
use crate::hostile::proxy::{Gate, Kind, hold_after};
use crate::hostile::{Direction, Wired, some_at_once};

#[test]
fn a_flag_wins_over_the_environment_and_that_over_the_file() {
    let host = Host::new();
    files::make(host.path("f"), 1, 10);
    fs::create_dir_all(host.config_home().join("longhaul")).unwrap();
    let chunk = |flag: Option<&str>, variable: Option<&str>| {
        let run = host
            .run(["copy", "--json", "--if-exists", "replace"])
            .args(flag.map(|size| format!("--chunk-size={size}")));
        let run = match variable {
            Some(size) => run.env("LONGHAUL_CHUNK_SIZE", size),
            None => run,
        };
        run.args(["f", "g"]).succeed().events()[0]["chunk_bytes"].as_u64().unwrap() >> 20
    };
    assert_eq!(chunk(None, None), 4, "the default");
    files::write(host.config("config.toml"), "chunk-size = \"2MiB\"\n");
    assert_eq!(chunk(None, None), 2, "the file");
    assert_eq!(chunk(None, Some("8MiB")), 8, "the environment");
    assert_eq!(chunk(Some("16MiB"), Some("8MiB")), 16, "the flag");
}

#[test]
fn a_config_file_with_a_mistake_is_named_with_the_place() {
    let host = Host::new();
    files::make(host.path("f"), 1, 10);
    fs::create_dir_all(host.config_home().join("longhaul")).unwrap();
    for (text, flaw) in [("colour = 1\n", "colour"), ("lanes = \"many\"\n", "many"), ("lanes = \n", "config.toml:1:")] {
        files::write(host.config("config.toml"), text);
        let outcome = host.run(["copy", "f", "g"]).fail(2);
        assert!(outcome.stderr.contains("config.toml") && outcome.stderr.contains(flaw), "{text:?}: {outcome}");
        assert!(!host.path("g").exists(), "{outcome}");
    }
    let outcome = host.run(["copy", "f", "g"]).env("XDG_CONFIG_HOME", host.dir()).env("LONGHAUL_LANES", "many").fail(2);
    assert!(outcome.stderr.contains("LONGHAUL_LANES"), "{outcome}");
}

#[test]
fn lanes_that_do_not_fit_the_memory_are_left_out_and_that_is_said() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("f"), 1, 3 << 20);
        let outcome = trip.send(&["--lanes", "64", "--memory", "16MiB"], &["f"], "g");
        let start = &outcome.events()[0];
        // Lanes hold a chunk each, out of half of this side's memory (in a copy: of each half's
        // memory).
        let lanes = start["lanes"].as_u64().unwrap();
        assert!((1..=8).contains(&lanes), "{trip}: {outcome}");
        assert!(start["notes"].to_string().contains("instead of 64"), "{trip}: {outcome}");
        assert_eq!(files::b3sum(trip.dest().join("g")), files::b3sum(trip.source().join("f")), "{trip}");
    }
}

#[test]
fn any_depth_on_any_engine_carries_the_same_bytes() {
    let host = Host::new();
    files::make(host.path("f"), 1, (9 << 20) + 1);
    let digest = files::b3sum(host.path("f"));
    for engine in engines() {
        for depth in ["1", "3", "256", "auto"] {
            let run =
                host.run(["copy", "--json", "--chunk-size", "1MiB", "--if-exists", "replace", "--engine", engine]);
            let outcome = run.args(["--depth", depth, "f", "g"]).succeed();
            assert_eq!(files::b3sum(host.path("g")), digest, "engine {engine}, depth {depth}: {outcome}");
        }
    }
}

#[test]
fn the_smallest_memory_that_is_allowed_is_enough() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("d/large"), 1, (20 << 20) + 3);
        (0..50).for_each(|n| files::make(trip.source().join(format!("d/f{n}")), n, 10_000));
        let outcome = trip.send(&["--memory", "4MiB"], &["d"], "");
        assert_eq!(outcome.counts(), (51, 0, 0), "{trip}: {outcome}");
        tree::assert_same(&Tree::of(trip.source()).beneath(), &Tree::of(trip.dest()).beneath(), &trip);
        trip.run(&["--memory", "4095KiB"], &["d"], "").fail(2);
    }
}

#[test]
fn congestion_control_is_what_was_asked_for_or_a_reason_why_not() {
    let site = Site::new();
    files::make(site.client.path("f"), 1, 10);
    let offered = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
    for name in offered.split_whitespace() {
        let run = site.client.run(["push", "--json", "--if-exists", "replace", "--congestion", name]);
        let outcome = run.args(["f", &site.url("")]).succeed();
        assert_eq!(outcome.events()[0]["congestion"], name, "{outcome}");
    }
    let outcome = site.client.run(["push", "--congestion", "no-such-thing", "f", &site.url("g")]).finish();
    assert_ne!(outcome.code, 0, "{outcome}");
    assert!(outcome.stderr.contains("no-such-thing") && !site.root().join("g").exists(), "{outcome}");
}

#[test]
fn a_daemon_listens_on_every_address_of_its_config_with_brackets_around_ipv6() {
    let (client, server) = (Host::new(), Host::new());
    let dir = server.make_dir("dir");
    let config = DaemonConfig::default().root("r", &dir, ALL_RIGHTS).client("c", client.key(), &[("r", ALL_RIGHTS)]);
    let path = config.write(&server);
    let text = fs::read_to_string(&path).unwrap().replace("'127.0.0.1:0'", "'127.0.0.1:0', '[::1]:0'");
    fs::write(&path, text).unwrap();
    let daemon = server.run(["serve", "--json", "--config"]).arg(&path).start();
    let listening = |start: &str| {
        daemon.wait_event(|event| {
            let found = event["type"] == "listening" && event["addr"].as_str()?.starts_with(start);
            found.then(|| event["addr"].as_str().unwrap_or_default().to_owned())
        })
    };
    for (addr, name) in [(listening("127.0.0.1:"), "four"), (listening("[::1]:"), "six")] {
        files::make(client.path(name), 1, 100);
        client.run(["push", "--trust-on-first-use", name, &format!("lh://{addr}/r/")]).succeed();
        assert!(dir.join(name).exists(), "{addr}");
    }
}

#[test]
fn plain_progress_never_moves_the_cursor() {
    let host = Host::new();
    files::make(host.path("f"), 1, 3 << 20);
    for form in ["auto", "bar", "plain", "none"] {
        let outcome = host.run(["copy", "--if-exists", "replace", "--progress", form, "f", "g"]).succeed();
        assert!(!outcome.stderr.contains(['\r', '\x1b']), "{form}: {outcome:?}");
    }
}

#[test]
fn a_full_standard_output_is_an_error() {
    let host = Host::new();
    files::make(host.path("f"), 1, 10);
    let script = format!("{} copy --json f g > /dev/full", crate::fixture::PROGRAM);
    let outcome = host.run(["-c", &script]).program("bash").finish();
    assert_ne!(outcome.code, 0, "{outcome}");
    assert!(!outcome.stderr.is_empty() && !outcome.stderr.contains("panicked"), "{outcome}");
}

/// Moves 24 MiB through lanes that are held after 12, where the receiver syncs after `bytes` or a
/// minute. Returns the durable bytes once `told` takes a progress event.
fn durable_when(direction: Direction, bytes: &str, told: impl Fn(&serde_json::Value) -> bool) -> u64 {
    let gate = Gate::default();
    let holding = gate.clone();
    let limits = match direction {
        Direction::Push => format!("limits = {{ sync_interval = '1min', sync_bytes = '{bytes}' }}"),
        Direction::Pull => String::new(),
    };
    let wired = Wired::with(DaemonConfig::default().line(&limits), move |kind, way| {
        (kind != Kind::Control && way == direction.way()).then(|| hold_after(12 << 20, holding.clone()))
    });
    wired.source(direction, |path| files::make(path, 1, 24 << 20));
    let run = wired.run(direction, "safe", "auto");
    let run = match direction {
        Direction::Push => run,
        Direction::Pull => run.args(["--sync-interval", "1min", "--sync-bytes", bytes]),
    };
    let running = run.start();
    gate.wait_reached();
    let durable = running.wait_event(|event| if told(event) { event["bytes_durable"].as_u64() } else { None });
    gate.open();
    running.fail(0);
    wired.assert_copied(direction, bytes);
    durable
}

#[test]
fn what_a_crash_may_cost_is_as_much_and_as_long_as_is_said() {
    some_at_once(Direction::BOTH, |direction| {
        // By default it would all be durable a second after it arrived.
        let late = |event: &serde_json::Value| event["t_s"].as_f64().is_some_and(|seconds| seconds >= 3.5);
        assert_eq!(durable_when(direction, "64GiB", late), 0, "{direction:?}");
        let some = |event: &serde_json::Value| event["bytes_durable"].as_u64() > Some(0);
        assert!(durable_when(direction, "4MiB", some) >= 4 << 20, "{direction:?}");
    });
}
