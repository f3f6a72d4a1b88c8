//! The audit log against names that would forge lines, files of others, and disks that are full.

#![allow(clippy::disallowed_methods, reason = "tests make the files that they look at")]

use std::fs;
use std::os::unix::fs::PermissionsExt;

use longhaul_engine::{AuditDeed, AuditWho};
use serde_json::Value;

use super::*;

fn record(path: &str) -> AuditRecord<'_> {
    AuditRecord { deed: AuditDeed::Opened, root: Some("data"), path: Some(path), ..AuditRecord::default() }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"))).collect()
}

#[test]
fn no_name_can_forge_a_line_or_hide_in_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    let (log, writer) = AuditFile::open(&path, Losses::Counted).unwrap();
    let name = "a\n{\"deed\":\"refused\"}\r\u{1b}[2J\"\\\u{202e}\u{7f}\u{2028}";
    log.keep(&AuditRecord {
        who: AuditWho { client: Some(name), ..AuditWho::default() },
        what: Some(name),
        ..record(name)
    })
    .unwrap();
    writer.close();
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches('\n').count(), 1);
    assert!(!text.trim_end().chars().any(longhaul_core::is_deceptive), "{text}");
    let told = &lines(&path)[0];
    assert_eq!((told["path"].as_str(), told["client"].as_str()), (Some(name), Some(name)));
    assert_eq!(told["code"], "ok");
}

#[test]
fn the_file_is_its_owners_alone_and_no_other_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    AuditFile::open(&path, Losses::Counted).unwrap().1.close();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    for mode in [0o644, 0o606, 0o620] {
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        assert!(AuditFile::open(&path, Losses::Counted).is_err(), "{mode:o}");
    }
    fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    AuditFile::open(&path, Losses::Counted).unwrap().1.close();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(AuditFile::open(&link, Losses::Counted).is_err());
    fs::hard_link(&path, dir.path().join("other")).unwrap();
    assert!(AuditFile::open(&path, Losses::Counted).is_err());
    assert!(AuditFile::open(dir.path(), Losses::Counted).is_err());
}

#[test]
fn a_part_of_a_line_that_a_crash_left_is_ended_and_what_follows_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.jsonl");
    fs::write(&path, "{\"deed\":\"op").unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    let (log, writer) = AuditFile::open(&path, Losses::Counted).unwrap();
    log.keep(&record("f")).unwrap();
    writer.close();
    let text = fs::read_to_string(&path).unwrap();
    let last = text.lines().last().unwrap();
    assert_eq!(serde_json::from_str::<Value>(last).unwrap()["path"], "f", "{text}");
    assert_eq!(text.lines().count(), 2);
}

#[test]
fn records_go_to_the_new_file_once_the_old_one_was_moved_away() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("audit.jsonl"), dir.path().join("audit.jsonl.1"));
    let (log, writer) = AuditFile::open(&path, Losses::Counted).unwrap();
    log.keep(&record("before")).unwrap();
    fs::rename(&path, &moved).unwrap();
    log.reopen();
    let until = Instant::now() + Duration::from_secs(60);
    while !path.exists() && Instant::now() < until {
        thread::yield_now();
    }
    log.keep(&record("after")).unwrap();
    writer.close();
    assert_eq!(lines(&path).last().unwrap()["path"], "after");
    assert_eq!(lines(&moved).len() + lines(&path).len(), 2);
}

/// A log whose file takes nothing: what is written there is an error.
fn full(losses: Losses) -> (AuditFile, AuditWriter) {
    let (queue, wake) = (Mutex::default(), Condvar::new());
    let log = AuditFile(Arc::new(Shared { path: "/dev/full".into(), losses, queue, wake }));
    let (shared, file) = (log.0.clone(), fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let thread = thread::spawn(move || write_all(&shared, file));
    (log.clone(), AuditWriter { log, thread })
}

fn until_it_fails(log: &AuditFile) {
    let until = Instant::now() + Duration::from_secs(60);
    while !log.figures().fails {
        assert!(Instant::now() < until, "the writer tells of its error");
        thread::yield_now();
    }
}

#[test]
fn a_disk_that_is_full_holds_nobody_up_and_what_is_lost_is_counted() {
    let (log, writer) = full(Losses::Counted);
    let long = "x".repeat(4096);
    let count = 3 * QUEUE_BYTES_MAX / long.len();
    log.keep(&record("first")).unwrap();
    until_it_fails(&log);
    for _ in 0..count {
        log.keep(&record(&long)).unwrap();
    }
    let figures = log.figures();
    assert!(figures.lost > count as u64 / 2 && figures.lost < count as u64, "{figures:?}");
    assert_eq!(figures.written, 0);
    assert!(log.ready().is_ok());
    writer.close();
}

#[test]
fn where_no_record_may_be_lost_the_loss_is_told_and_nothing_begins() {
    let (log, writer) = full(Losses::Never);
    log.keep(&record("first")).unwrap();
    until_it_fails(&log);
    assert_eq!(log.ready().map_err(|fault| fault.code), Err(FaultCode::Busy));
    let long = "x".repeat(1 << 20);
    let kept = (0..100).take_while(|_| log.keep(&record(&long)).is_ok()).count();
    assert!((1..=16).contains(&kept), "{kept}");
    writer.close();
}
