//! `--extra-checksum md5,sha256`: checksums that need all bytes of a file in their order. Files
//! that come in chunks are read once more for them, and no others.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::{MIB, kept, reckoned};
use crate::fixture::{Host, Outcome, Trip, files};
use crate::hostile::{Direction, some_at_once};
use crate::resume::scene::{Death, LEN, Scene};

const MIXED: [&str; 2] = ["--extra-checksum", "md5,adler32,sha256"];
/// Files up to this length come in bundles.
const BUNDLED: usize = 256 << 10;

/// The checksum of a file by one of the system's programs.
fn sum_by(program: &str, path: &Path) -> String {
    let output = Command::new(program).arg("--").arg(path).output().expect("coreutils");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_start_matches('\\').split(' ').next().unwrap().to_owned()
}

/// Fails unless the event of a file and the line that is kept with it at `stands` have the
/// checksums of the file at `source`.
#[track_caller]
fn assert_mixed(outcome: &Outcome, path: &str, (stands, source): (&Path, &Path), context: &str) {
    let (adler32, _) = reckoned(&fs::read(source).unwrap());
    let (md5, sha256) = (sum_by("md5sum", source), sum_by("sha256sum", source));
    let event = outcome.file(path);
    assert_eq!(event["status"], "committed", "{context}: {path}: {outcome}");
    let told = ["md5", "sha256", "adler32"].map(|name| event[name].clone());
    assert_eq!(told, [json!(md5), json!(sha256), json!(adler32)], "{context}: {path}");
    assert_eq!(event.get("crc32c"), None, "{context}: {path}: nobody asked for it");
    let stat = fs::metadata(stands).unwrap();
    let mtime = format!("{}.{:09}", stat.mtime(), stat.mtime_nsec());
    let line = format!("1 len={} mtime={mtime} sha256={sha256} md5={md5} adler32={adler32}", stat.len());
    assert_eq!(kept(stands), Some(line), "{context}: {path}: {outcome}");
}

#[test]
fn every_file_has_them_every_way_and_only_files_of_chunks_are_read_once_more() {
    for trip in Trip::each_way() {
        let source = trip.source().join("d");
        let sizes = [0, 1, 5000, BUNDLED, BUNDLED + 1, MIB, 3 * MIB + 7];
        for len in sizes {
            files::make(source.join(format!("f{len}")), len as u64, len);
        }
        files::make_sparse(source.join("holes"), 9 * MIB as u64 + 5, &[(3 * MIB as u64, 100)]);
        let outcome = trip.send(&MIXED, &["d"], "");
        for name in sizes.iter().map(|len| format!("f{len}")).chain(["holes".to_owned()]) {
            let stands = trip.dest().join("d").join(&name);
            assert_mixed(&outcome, &format!("d/{name}"), (&stands, &source.join(&name)), &trip.to_string());
        }
        let read: usize = sizes.iter().filter(|len| **len > BUNDLED).sum::<usize>() + 9 * MIB + 5;
        assert_eq!(outcome.summary()["bytes_read_back"], read, "{trip}: {outcome}");
        assert!(outcome.events_of("not_kept").is_empty(), "{trip}: {outcome}");

        let before = kept(&trip.dest().join("d/f1"));
        let again = trip.send(&MIXED, &["d"], "");
        assert_eq!(again.file("d/f1")["status"], "skipped", "{trip}: {again}");
        assert_eq!((again.file("d/f1").get("md5"), kept(&trip.dest().join("d/f1"))), (None, before), "{trip}");
        assert_eq!(again.summary()["bytes_read_back"], 0, "{trip}: {again}");
    }
}

#[test]
fn a_file_that_goes_on_after_a_death_is_read_once_and_not_its_part_besides() {
    let deaths = [Death::ClientKilled, Death::DaemonKilled];
    let cases: Vec<_> = Direction::BOTH.into_iter().flat_map(|way| deaths.map(|death| (way, death))).collect();
    some_at_once(cases, |(direction, death)| {
        let context = format!("{direction:?}, {death:?}");
        let mut scene = Scene::new(direction);
        files::make(scene.source(), 1, LEN);
        let command = |scene: &Scene| scene.run("f", "f").args(MIXED);
        let durable = scene.die(command(&scene), death);
        let outcome = command(&scene).finish();
        scene.assert_continued(&outcome, LEN as u64, durable, &context);
        let site = &scene.wired.site;
        let stands = if direction == Direction::Push { site.root().join("f") } else { site.client.path("f") };
        assert_mixed(&outcome, "f", (&stands, &scene.source()), &context);
        assert_eq!(outcome.summary()["bytes_read_back"], LEN, "{context}: {outcome}");
    });
}

#[test]
fn what_is_copied_from_a_file_that_stood_or_read_back_from_the_disk_counts_as_all_else() {
    for trip in Trip::each_way() {
        let (source, stands) = (trip.source().join("f"), trip.dest().join("f"));
        files::make(&source, 1, 6 * MIB + 3);
        let outcome = trip.send(&[&MIXED[..], &["--verify", "disk"]].concat(), &["f"], "");
        assert_mixed(&outcome, "f", (&stands, &source), &trip.to_string());
        assert_eq!(outcome.summary()["bytes_read_back"], 2 * (6 * MIB + 3), "{trip}: once for each reason");
        let file = fs::File::options().write(true).open(&source).unwrap();
        file.write_all_at(b"changed", 2 * MIB as u64).unwrap();
        drop(file);
        let outcome = trip.send(&[&MIXED[..], &["--if-exists", "verify"]].concat(), &["f"], "");
        assert_mixed(&outcome, "f", (&stands, &source), &trip.to_string());
    }
}

#[test]
fn a_striped_file_has_those_of_its_bytes_in_their_order() {
    let host = Host::new();
    files::make(host.path("src/large"), 1, 9 * MIB + 7);
    files::make_sparse(host.path("src/sparse"), 12 * MIB as u64, &[(0, MIB), (7 * MIB as u64, 10)]);
    let dirs = ["a", "b", "c"].map(|name| host.make_dir(name));
    let targets = dirs.iter().flat_map(|dir| ["--target".into(), dir.clone().into_os_string()]);
    let layout = ["--layout", "stripe", "--stripe-from", "4MiB", "--chunk-size", "1MiB", "--allow-same-device"];
    let run = host.run(["copy", "--json"]).args(layout).args(targets).args(MIXED);
    let outcome = run.args(["src/", "in"]).succeed();
    for name in ["large", "sparse"] {
        let source = host.path("src").join(name);
        let event = outcome.file(name);
        let sums = (json!(sum_by("md5sum", &source)), json!(sum_by("sha256sum", &source)));
        assert_eq!((&event["md5"], &event["sha256"]), (&sums.0, &sums.1), "{name}: {outcome}");
    }
}

#[test]
fn a_stream_is_read_when_its_end_is_there() {
    for len in [3 * MIB + 11, 4 * MIB, 100] {
        let host = Host::new();
        let options = ["--json", "--chunk-size", "1MiB", "--extra-checksum", "md5"];
        fs::create_dir(host.path("in")).unwrap();
        let run = host.run(["copy"]).args(options).args(["-", "in/f"]).input(files::bytes(5, len));
        let outcome = run.succeed();
        let md5 = sum_by("md5sum", &host.path("in/f"));
        assert_eq!(outcome.events_of("file")[0]["md5"], Value::from(md5.clone()), "{len}: {outcome}");
        assert!(kept(&host.path("in/f")).is_some_and(|line| line.ends_with(&format!(" md5={md5}"))), "{outcome}");
    }
}

#[test]
fn people_see_them_where_each_file_is_named() {
    let host = Host::new();
    files::make(host.path("f"), 1, 5000);
    let outcome = host.run(["copy", "-v", "--extra-checksum", "md5", "f", "to/"]).succeed();
    let md5 = sum_by("md5sum", &host.path("f"));
    assert!(outcome.stderr.contains(&format!(", md5 {md5})")), "{outcome}");
}
