//! Files that a daemon reads for their digests, while its administrator changes rates, rights and
//! sessions, and files that are holes for the most part.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::fixture::{DaemonConfig, Outcome, Run, Running, Site, files};

const MIB: u64 = 1 << 20;
/// The least rate, at which the image takes an hour.
const SLOW: &str = "rate = '64KiB/s'";

/// A site with a file of some bytes, and one of a hole with a few bytes in it.
fn site(rate: &str) -> Site {
    let config = DaemonConfig::default().line("state = 'state'").watch("audit = 'audit.jsonl'");
    let site = Site::with(config.root_line(rate));
    let dir = site.root().join("d");
    files::make(dir.join("a"), 1, 100);
    files::make_sparse(dir.join("image"), 256 * MIB, &[(5 * MIB, 4096)]);
    let lines = ["a", "image"].map(|name| format!("{}  {name}\n", files::b3sum(dir.join(name))));
    fs::write(site.client.path("list"), lines.concat()).unwrap();
    site
}

fn check(site: &Site) -> Run {
    site.client.run(["check", "--json", "list", &site.url("d")])
}

/// A check that is at the image: the daemon has opened it.
fn at_the_image(site: &Site) -> Running {
    let running = check(site).start();
    let until = Instant::now() + Duration::from_secs(60);
    let is_open = |line: &str| line.contains("\"deed\":\"opened\"") && line.contains("\"path\":\"d/image\"");
    while !fs::read_to_string(site.server.path("audit.jsonl")).unwrap_or_default().lines().any(is_open) {
        assert!(Instant::now() < until, "{}", site.daemon.log());
        std::thread::yield_now();
    }
    running
}

fn admin(site: &Site, words: &[&str]) -> Outcome {
    site.server.run(["admin"]).args(words).args(["--socket", "state/admin.sock"]).succeed()
}

/// The name of the only session, which reads.
fn reading(site: &Site) -> String {
    let sessions = admin(site, &["sessions", "--json"]);
    let found = sessions.events_of("admin_session");
    let [session] = &found[..] else { panic!("{sessions}") };
    assert_eq!((session["what"].as_str(), session["client"].as_str()), (Some("reading in data/d"), Some("tester")));
    session["session"].as_str().unwrap().to_owned()
}

#[test]
fn a_rate_that_is_set_reaches_a_hole_that_is_being_read() {
    let site = site(SLOW);
    let running = at_the_image(&site);
    reading(&site);
    admin(&site, &["set-rate", "none", "--root", "data"]);
    let outcome = running.finish();
    assert_eq!((outcome.code, &outcome.summary()["files_ok"]), (0, &2.into()), "{outcome}");
    let ended = site.daemon.wait_log("ended: reading in data/d: complete");
    for field in ["result=\"complete\"", "files_read=2", "failed=0", "seconds="] {
        assert!(ended.contains(field), "{field}: {ended}");
    }
    assert!([" files=", "moved_away", "limited_by", "cpu_s"].iter().all(|field| !ended.contains(field)), "{ended}");
}

#[test]
fn a_reading_that_is_kicked_is_gone_on_with_in_another_conversation() {
    let site = site(SLOW);
    let running = at_the_image(&site);
    let kicked = admin(&site, &["kick", &reading(&site)]);
    assert!(kicked.stdout_text().contains("reading in data/d of tester"), "{kicked}");
    site.daemon.wait_log("ended: reading in data/d: busy: the daemon's administrator ended this session");
    site.daemon.wait_log_after(1, "opened: reading in data/d");
    admin(&site, &["set-rate", "none", "--root", "data"]);
    let outcome = running.finish();
    assert_eq!((outcome.code, &outcome.summary()["files_ok"]), (0, &2.into()), "{outcome}");
}

#[test]
fn a_reading_ends_in_the_middle_of_a_file_when_its_client_is_killed() {
    let site = site(SLOW);
    let running = at_the_image(&site);
    running.signal(Signal::KILL);
    site.daemon.wait_log("ended: reading in data/d: lost");
    assert!(admin(&site, &["sessions", "--json"]).events_of("admin_session").is_empty());
}

#[test]
fn a_reading_ends_as_denied_when_its_client_is_revoked() {
    let site = site(SLOW);
    let running = at_the_image(&site);
    admin(&site, &["revoke", "tester"]);
    let outcome = running.fail(4);
    assert!(outcome.stderr.contains("has changed what this key may do"), "{outcome}");
    site.daemon.wait_log("ended: reading in data/d: denied");
}

#[test]
fn a_reading_ends_at_the_deadline_of_a_drain_and_goes_on_when_that_is_over() {
    let site = site(SLOW);
    let running = at_the_image(&site);
    admin(&site, &["drain", "--deadline", "0"]);
    site.daemon.wait_log("ended: reading in data/d: busy");
    // One that would begin is refused at once, as it waits for nobody.
    check(&site).fail(5);
    admin(&site, &["drain", "--end"]);
    admin(&site, &["set-rate", "none", "--root", "data"]);
    let outcome = running.finish();
    assert_eq!((outcome.code, &outcome.summary()["files_ok"]), (0, &2.into()), "{outcome}");
}

#[test]
fn holes_have_the_digest_of_zeros_however_often_and_in_whatever_files_they_are_read() {
    let site = site("");
    let dir = site.root().join("d");
    files::make_sparse(dir.join("other"), 256 * MIB, &[(0, 1), (100 * MIB + 7, 5000)]);
    files::make_sparse(dir.join("odd"), 64 * MIB + 12_345, &[]);
    let names = ["a", "image", "other", "odd"].map(str::to_owned);
    let sums = files::b3sums(&dir, &names);
    let lines: Vec<_> = sums.iter().zip(&names).map(|(sum, name)| format!("{sum}  {name}\n")).collect();
    fs::write(site.client.path("list"), lines.concat()).unwrap();
    for _ in 0..2 {
        let outcome = check(&site).succeed();
        assert_eq!(outcome.summary()["files_ok"], 4, "{outcome}");
    }
    // Holes of a transfer are hashed by the same code.
    let pulled = site.client.run(["pull", "--json", &site.url("d/"), "got"]).succeed();
    assert_eq!(pulled.counts().0, 4, "{pulled}");
    assert_eq!(files::b3sums(&site.client.path("got"), &names), sums);
}
