//! The listener of whoever watches a daemon: what it tells, and what it refuses.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::fixture::{ALL_RIGHTS, DaemonConfig, Host, Running, Site, files};

/// A site that is watched at a Unix socket.
fn site(config: DaemonConfig) -> Site {
    let (client, server) = (Host::new(), Host::new());
    let root = server.make_dir("data");
    let place = format!("http = 'unix:{}'", server.path("http.sock").display());
    let config = config.watch(&place).line("state = 'state'").root_line("rate = '64KiB/s'");
    let config = config.root("data", &root, ALL_RIGHTS).client("tester", client.key(), &[("data", ALL_RIGHTS)]);
    let daemon = config.start(&server);
    client.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
    Site { client, server, daemon }
}

fn socket(site: &Site) -> PathBuf {
    site.server.path("http.sock")
}

/// Says these bytes and hears everything that is answered.
fn said(site: &Site, words: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket(site)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // A daemon that has heard enough hangs up.
    let _ = stream.write_all(words).and_then(|()| stream.shutdown(std::net::Shutdown::Write));
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// The status, the head and the body of an answer.
fn asked(site: &Site, what: &str, host: &str) -> (u16, String, String) {
    let request = format!("{what} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    parts(&said(site, request.as_bytes()))
}

fn parts(answer: &[u8]) -> (u16, String, String) {
    let text = String::from_utf8(answer.to_vec()).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap();
    (status, head.to_ascii_lowercase(), body.to_owned())
}

fn get(site: &Site, path: &str) -> (u16, String) {
    let (status, _, body) = asked(site, &format!("GET {path}"), "localhost");
    (status, body)
}

/// Asks until the answer fits.
fn wait_for(site: &Site, path: &str, fits: impl Fn(u16, &str) -> bool) -> String {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let (status, body) = get(site, path);
        if fits(status, &body) {
            return body;
        }
        assert!(Instant::now() < until, "{status} {body}\n{}", site.daemon.log());
        std::thread::yield_now();
    }
}

/// A pull that takes a minute, and has begun.
fn pulling(site: &Site) -> Running {
    fs::write(site.root().join("f"), files::bytes(1, 4 << 20)).unwrap();
    let running = site.client.run(["pull", "--json", &site.url("f"), "got"]).start();
    running.wait_type("start");
    running
}

/// One sample: its name, its labels, its value.
type Sample = (String, BTreeMap<String, String>, f64);

/// Reads OpenMetrics by its rules, and panics at whatever breaks one: each family has its type and
/// help once and before its samples, families stay together, counters end in `_total`, the unit is
/// the end of the name, no sample comes twice, and the end is the end.
fn metrics(text: &str) -> Vec<Sample> {
    let body = text.strip_suffix("# EOF\n").unwrap_or_else(|| panic!("no end: {text}"));
    let (mut samples, mut families, mut seen) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let (mut family, mut kind) = (String::new(), String::new());
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (word, name, rest) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap_or(""));
            match word {
                "HELP" | "TYPE" | "UNIT" => {
                    if family != name {
                        assert!(families.insert(name.to_owned()), "{name} comes twice");
                        (family, kind) = (name.to_owned(), String::new());
                    }
                    if word == "TYPE" {
                        kind = rest.to_owned();
                    }
                    assert!(word != "UNIT" || name.ends_with(&format!("_{rest}")), "{line}");
                }
                other => panic!("{other}: {line}"),
            }
            continue;
        }
        let (name, labels, value) = sample(line);
        let suffix = name.strip_prefix(&family).unwrap_or_else(|| panic!("{line} is not of {family}"));
        let wanted = match &*kind {
            "counter" => "_total",
            "info" => "_info",
            "gauge" => "",
            other => panic!("{other}: {line}"),
        };
        assert_eq!(suffix, wanted, "{line}");
        assert!(seen.insert((name.clone(), labels.clone())), "twice: {line}");
        assert!(kind != "counter" || value >= 0.0, "{line}");
        samples.push((name, labels, value));
    }
    samples
}

fn sample(line: &str) -> Sample {
    let (head, value) = line.rsplit_once(' ').unwrap();
    let value = if value == "+Inf" { f64::INFINITY } else { value.parse().unwrap_or_else(|_| panic!("{line}")) };
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let Some((name, rest)) = head.split_once('{') else {
        assert!(is_name(head), "{line}");
        return (head.to_owned(), BTreeMap::new(), value);
    };
    assert!(is_name(name), "{line}");
    let (mut labels, mut left) = (BTreeMap::new(), rest.strip_suffix('}').unwrap());
    while !left.is_empty() {
        let (label, rest) = left.split_once("=\"").unwrap();
        assert!(is_name(label), "{line}");
        let mut text = String::new();
        let mut end = None;
        let mut letters = rest.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    end = Some(at);
                    break;
                }
                '\\' => text.push(match letters.next().unwrap().1 {
                    'n' => '\n',
                    other @ ('\\' | '"') => other,
                    other => panic!("\\{other}: {line}"),
                }),
                other => text.push(other),
            }
        }
        assert!(labels.insert(label.to_owned(), text).is_none(), "{line}");
        left = &rest[end.unwrap_or_else(|| panic!("{line}")) + 1..];
        left = left.strip_prefix(',').unwrap_or(left);
    }
    (name.to_owned(), labels, value)
}

fn value(samples: &[Sample], name: &str, wanted: &[(&str, &str)]) -> Option<f64> {
    let fits = |labels: &BTreeMap<String, String>| {
        wanted.iter().all(|(label, text)| labels.get(*label).is_some_and(|found| found == text))
    };
    samples.iter().find(|(found, labels, _)| found == name && fits(labels)).map(|(.., value)| *value)
}

#[test]
fn a_daemon_that_serves_is_alive_and_ready_and_says_why_when_it_is_not_ready() {
    let site = site(DaemonConfig::default());
    assert_eq!(get(&site, "/livez"), (200, "ok\n".to_owned()));
    wait_for(&site, "/readyz", |status, body| status == 200 && body == "ok\n");
    let admin =
        |words: &[&str]| site.server.run(["admin"]).args(words).args(["--socket", "state/admin.sock"]).succeed();
    admin(&["drain"]);
    assert_eq!(get(&site, "/readyz"), (503, "the daemon is being drained\n".to_owned()));
    assert_eq!(get(&site, "/livez").0, 200, "it lives");
    admin(&["drain", "--end"]);
    assert_eq!(get(&site, "/readyz").0, 200);
    fs::rename(site.root(), site.server.path("elsewhere")).unwrap();
    let why = wait_for(&site, "/readyz", |status, _| status == 503);
    assert!(why.starts_with("root 'data': "), "{why}");
    assert_eq!(get(&site, "/livez").0, 200, "another start would not help");
    fs::rename(site.server.path("elsewhere"), site.root()).unwrap();
    wait_for(&site, "/readyz", |status, _| status == 200);
}

#[test]
fn metrics_are_open_metrics_and_count_what_clients_do() {
    let site = site(DaemonConfig::default().watch("audit = 'audit.jsonl'"));
    let (_, head, _) = asked(&site, "GET /metrics", "localhost");
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"), "{head}");
    fs::write(site.client.path("f"), files::bytes(1, 5000)).unwrap();
    site.client.run(["push", "f", &site.url("g")]).succeed();
    site.client.run(["pull", &site.url("g"), "h"]).succeed();
    site.client.run(["pull", &site.url("nothing"), "h"]).fail(3);
    Host::new().run(["ls", &site.daemon.url(""), "--trust", "yes"]).start().finish();
    let running = pulling(&site);
    let ended = |body: &str| {
        let ended = value(&metrics(body), "longhaul_sessions_ended_total", &[("code", "complete")]);
        ended == Some(2.0) && value(&metrics(body), "longhaul_target_free_bytes", &[]).is_some()
    };
    let samples = metrics(&wait_for(&site, "/metrics", |_, body| ended(body)));
    let whose = [("root", "data"), ("client", "tester")];
    let of = |name: &str, labels: &[(&str, &str)]| {
        value(&samples, name, labels).unwrap_or_else(|| panic!("{name} {labels:?}: {samples:#?}"))
    };
    assert_eq!(of("longhaul_received_bytes_total", &whose), 5000.0);
    assert!(of("longhaul_sent_bytes_total", &whose) >= 5000.0);
    assert_eq!(of("longhaul_files_total", &[("root", "data"), ("result", "committed")]), 2.0);
    assert_eq!(of("longhaul_sessions", &[("client", "tester")]), 1.0);
    assert_eq!(of("longhaul_requests_refused_total", &[("code", "not-found")]), 1.0);
    assert_eq!((of("longhaul_ready", &[]), of("longhaul_draining", &[])), (1.0, 0.0));
    assert!(of("longhaul_memory_taken_bytes", &[]) > 0.0);
    assert!(of("longhaul_memory_limit_bytes", &[]) > of("longhaul_memory_taken_bytes", &[]));
    assert!(of("process_open_fds", &[]) > 5.0 && of("process_max_fds", &[]) > of("process_open_fds", &[]));
    assert!((0.0..=1.0).contains(&of("longhaul_target_fill_ratio", &[("root", "data"), ("target", "0")])));
    assert_eq!(of("longhaul_audit_records_lost_total", &[]), 0.0);
    assert_eq!(of("longhaul_build_info", &[("version", env!("CARGO_PKG_VERSION"))]), 1.0);
    assert!(of("process_start_time_seconds", &[]) > 1.7e9);
    let texts = samples.iter().flat_map(|(_, labels, _)| labels.values());
    let told: Vec<_> = texts.filter(|text| text.contains('/') || text.contains("127.")).collect();
    assert!(told.is_empty(), "no path and no address: {told:?}");
    drop(running);
}

#[test]
fn nothing_can_be_asked_for_by_another_name_or_changed_and_no_page_may_use_it() {
    let site = site(DaemonConfig::default().watch("http_hosts = ['watch.example.org']"));
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80"] {
        assert_eq!(asked(&site, "GET /metrics", host).0, 421, "{host}");
    }
    for host in ["localhost:99", "127.0.0.1", "[::1]:7215", "Watch.Example.org"] {
        assert_eq!(asked(&site, "GET /livez", host).0, 200, "{host}");
    }
    assert_eq!(asked(&site, "GET http://evil.example/metrics", "localhost").0, 421);
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"] {
        let (status, head, _) = asked(&site, &format!("{method} /metrics"), "localhost");
        assert!(status == 405 && head.contains("allow: get, head"), "{method}: {head}");
    }
    let (status, head, body) = asked(&site, "HEAD /metrics", "localhost");
    assert_eq!((status, body.as_str()), (200, ""));
    for header in
        ["content-security-policy: default-src 'none'", "x-content-type-options: nosniff", "cache-control: no-store"]
    {
        assert!(head.contains(header), "{head}");
    }
    assert!(!head.contains("access-control"), "{head}");
    assert_eq!(get(&site, "/../etc/passwd").0, 404);
    let found = fs::symlink_metadata(socket(&site)).unwrap();
    assert!(found.file_type().is_socket() && found.permissions().mode() & 0o777 == 0o660);
    site.daemon.signal(Signal::TERM);
    site.daemon.wait_gone();
    assert!(!socket(&site).exists(), "it goes with the daemon");
}

#[test]
fn an_address_that_other_hosts_reach_is_taken_only_if_that_is_said() {
    let host = Host::new();
    let root = host.make_dir("data");
    let config = |line: &str| DaemonConfig::default().watch(line).root("data", &root, "read");
    let outcome = host.run(["serve", "--config"]).arg(config("http = '0.0.0.0:0'").write(&host)).fail(2);
    assert!(outcome.stderr.contains("other hosts reach this address"), "{outcome}");
    for line in ["http = '127.0.0.1'", "http = 'unix:relative'", "http = 'localhost:1'", "http = ''"] {
        host.run(["serve", "--config"]).arg(config(line).write(&host)).fail(2);
    }
    let daemon = config("http = '127.0.0.1:0'").start(&host);
    let line = daemon.wait_log("watched over HTTP at 127.0.0.1:");
    let addr = line.rsplit(' ').next().unwrap();
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(parts(&answer).0, 200);
}

#[test]
fn garbage_never_ends_it_and_neither_do_many_that_say_nothing() {
    let site = site(DaemonConfig::default());
    let running = pulling(&site);
    let silent: Vec<_> = (0..100).map_while(|_| UnixStream::connect(socket(&site)).ok()).collect();
    drop(silent);
    let valid = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for round in 0..300 {
        let mut words = valid.clone();
        match round % 4 {
            // Bytes that are nothing.
            0 => words = (0..next() % 2000).map(|_| next() as u8).collect(),
            // A request of which some bytes are others.
            1 => (0..1 + next() % 8).for_each(|_| {
                let at = next() as usize % words.len();
                words[at] = next() as u8;
            }),
            // One that is cut.
            2 => words.truncate(next() as usize % words.len()),
            // One that is too long.
            _ => {
                words.truncate(words.len() - 2);
                words.extend(format!("x: {}\r\n", "y".repeat(next() as usize % 100_000)).as_bytes());
                words.extend((0..next() % 200).flat_map(|number| format!("h{number}: 1\r\n").into_bytes()));
                words.extend(b"Content-Length: 99999999\r\n\r\n");
            }
        }
        let answer = said(&site, &words);
        assert!(answer.len() < 1 << 20, "an answer is bounded");
    }
    assert_eq!(get(&site, "/livez").0, 200);
    let log = site.daemon.log();
    assert!(!log.contains("panicked"), "{log}");
    let before = running.last_so_far("bytes_received");
    running
        .wait_event(|event| (event["type"] == "progress" && event["bytes_received"].as_u64() > before).then_some(()));
}

/// A headless Chromium that is about to look at a page. `None`, said loudly, where there is none.
fn browser() -> Option<Command> {
    let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| has(name));
    if found.is_none() {
        eprintln!("SKIPPED: there is no Chromium here, so nobody looked at the status page (apt-get install chromium)");
    }
    let mut command = Command::new(found?);
    command.args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]);
    command.args([
        "--no-first-run",
        "--disable-extensions",
        "--disable-background-networking",
        "--virtual-time-budget=3000",
    ]);
    Some(command)
}

fn has(program: &str) -> bool {
    Command::new("which").arg(program).output().is_ok_and(|output| output.status.success())
}

/// Runs it to its end, for a minute at most, and returns what it printed.
fn run(host: &Host, mut browser: Command, words: &[String]) -> String {
    browser.arg(format!("--user-data-dir={}", host.path("profile").display())).args(words);
    let mut wrapped = Command::new("timeout");
    wrapped.args(["-k", "5", "120"]).arg(browser.get_program()).args(browser.get_args());
    let output = wrapped.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A daemon with everything that the page shows: sessions both ways, files that failed, a refusal.
fn busy_site() -> (Site, Vec<Running>, String) {
    let (client, server) = (Host::new(), Host::new());
    let (root, other) = (server.make_dir("data"), server.make_dir("archive"));
    let config = DaemonConfig::default().watch("http = '127.0.0.1:0'").watch("audit = 'audit.jsonl'");
    let config = config.root_line("rate = '256KiB/s'").root("data", &root, ALL_RIGHTS).root("archive", &other, "read");
    let rights = [("data", ALL_RIGHTS), ("archive", "read")];
    let config = config.client("<b>lab</b> & \"co\"", client.key(), &rights);
    let daemon = config.start(&server);
    client.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
    let line = daemon.wait_log("watched over HTTP at 127.0.0.1:");
    let address = line.rsplit(' ').next().unwrap().to_owned();
    let site = Site { client, server, daemon };
    let name = "<script>alert('x')</script>";
    fs::write(site.root().join("large"), files::bytes(1, 24 << 20)).unwrap();
    fs::write(site.client.path("up"), files::bytes(2, 24 << 20)).unwrap();
    fs::write(site.client.path("small"), files::bytes(3, 100)).unwrap();
    site.client.run(["pull", &site.url(name), "no"]).fail(3);
    site.client.run(["push", "small", &site.url("small")]).succeed();
    site.client.run(["push", "small", &site.daemon.url("archive/small")]).fail(4);
    let runs = [
        site.client.run(["pull", "--json", &site.url("large"), "got"]).start(),
        site.client.run(["push", "--json", "up", &site.url(&format!("run-7 {}", name.replace('/', "")))]).start(),
    ];
    runs.iter().for_each(|running| drop(running.wait_type("start")));
    (site, runs.into(), address)
}

#[test]
fn the_page_and_its_object_show_sessions_roots_and_faults_and_every_name_as_a_text() {
    let (site, runs, address) = busy_site();
    let ask = |path: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        parts(&answer)
    };
    let until = Instant::now() + Duration::from_secs(60);
    let status = loop {
        let (code, head, body) = ask("/status.json");
        assert!(code == 200 && head.contains("content-type: application/json"), "{head}");
        let status: Value = serde_json::from_str(&body).unwrap();
        let moves = |session: &Value| session["bytes_done"].as_u64() > Some(0) && session["lanes"].as_u64() > Some(0);
        let sessions = status["sessions"].as_array().unwrap();
        if sessions.len() == 2 && sessions.iter().all(moves) && !status["roots"].as_array().unwrap().is_empty() {
            break status;
        }
        assert!(Instant::now() < until, "{status:#}");
        std::thread::yield_now();
    };
    assert_eq!((status["state"].as_str(), status["v"].as_u64()), (Some("serving"), Some(1)));
    let directions: BTreeSet<_> =
        status["sessions"].as_array().unwrap().iter().map(|s| s["direction"].as_str()).collect();
    assert_eq!(directions, BTreeSet::from([Some("in"), Some("out")]));
    assert!(status["sessions"][0]["eta_s"].as_f64() > Some(1.0), "{status:#}");
    assert_eq!(status["paths"][0]["sessions"], 2);
    let codes: Vec<_> =
        status["faults"].as_array().unwrap().iter().map(|fault| fault["code"].as_str().unwrap()).collect();
    assert_eq!(codes, ["denied", "not-found"], "the latest first");
    let (code, head, page) = ask("/");
    assert!(code == 200 && head.contains("content-type: text/html") && head.contains("script-src 'self'"), "{head}");
    assert!(page.contains("&lt;b&gt;lab&lt;/b&gt; &amp; &quot;co&quot;"), "{page}");
    assert!(page.contains("&lt;script&gt;alert(") && !page.contains("<script>") && !page.contains("<b>lab"), "{page}");
    for (path, kind) in [("/style.css", "text/css"), ("/script.js", "text/javascript")] {
        let (code, head, _) = ask(path);
        assert!(code == 200 && head.contains(&format!("content-type: {kind}")), "{head}");
    }
    drop((runs, site));
}

#[test]
fn a_browser_draws_the_page_at_every_width_in_light_and_in_dark() {
    let Some(_) = browser() else { return };
    let (site, runs, address) = busy_site();
    let url = format!("http://{address}/");
    let dom = run(&site.server, browser().unwrap(), &["--dump-dom".to_owned(), url.clone()]);
    assert!(dom.contains("aria-pressed=\"false\">Pause</button>"), "the script ran and shows its button: {dom}");
    assert!(!dom.contains("alert('x')</script>"), "{dom}");
    let kept = std::env::var_os("LONGHAUL_SCREENSHOTS").map(PathBuf::from);
    let dir = kept.unwrap_or_else(|| site.server.make_dir("screenshots"));
    for (scheme, number) in [("light", 1), ("dark", 0)] {
        for (width, height) in [(400, 3000), (1000, 1500), (1800, 1100)] {
            let picture = dir.join(format!("{scheme}-{width}.png"));
            let words = [
                format!("--blink-settings=preferredColorScheme={number}"),
                format!("--window-size={width},{height}"),
                format!("--screenshot={}", picture.display()),
                url.clone(),
            ];
            run(&site.server, browser().unwrap(), &words);
            let bytes = fs::read(&picture).unwrap();
            // Width and height stand behind the signature and the name of the first part.
            let width_drawn = u32::from_be_bytes(bytes[16..20].try_into().unwrap());
            assert_eq!((&bytes[1..4], width_drawn), (&b"PNG"[..], width), "{}", picture.display());
            assert!(bytes.len() > 20_000, "{}: {} bytes are an empty page", picture.display(), bytes.len());
        }
    }
    drop((runs, site));
}
