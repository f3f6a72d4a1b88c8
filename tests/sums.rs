//! `--extra-checksum`: Adler-32 and CRC-32C of what was received, told with each file and kept with
//! it, however its bytes came.

mod catalogue;
mod in_order;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use serde_json::{Value, json};

use crate::fixture::{Host, Outcome, Trip, files};
use crate::hostile::{Direction, some_at_once};
use crate::resume::scene::{Death, LEN, Scene};

const BOTH: [&str; 2] = ["--extra-checksum", "adler32,crc32c"];
const MIB: usize = 1 << 20;

/// The checksums of some bytes, reckoned here by what defines them.
fn reckoned(bytes: &[u8]) -> (String, String) {
    let (mut a, mut b) = (1_u32, 0_u32);
    for byte in bytes {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    let step = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    let table: Vec<u32> = (0..256).map(|byte| (0..8).fold(byte, |crc, _| step(crc))).collect();
    let crc = bytes.iter().fold(!0, |crc: u32, byte| table[(crc as u8 ^ byte) as usize] ^ crc >> 8);
    (format!("{b:04x}{a:04x}"), format!("{:08x}", !crc))
}

/// The line that is kept with a file.
fn kept(path: &Path) -> Option<String> {
    let mut value = vec![0; 1024];
    let len = rustix::fs::getxattr(path, "user.longhaul.checksum", &mut value[..]).ok()?;
    Some(String::from_utf8(value[..len].to_vec()).unwrap())
}

/// Fails unless the event of a file and the line that is kept with it at `stands` have the
/// checksums of `bytes`.
#[track_caller]
fn assert_summed(outcome: &Outcome, path: &str, (stands, bytes): (&Path, &[u8]), context: &str) {
    let (adler32, crc32c) = reckoned(bytes);
    let event = outcome.file(path);
    assert_eq!(event["status"], "committed", "{context}: {path}: {outcome}");
    assert_eq!((&event["adler32"], &event["crc32c"]), (&json!(adler32), &json!(crc32c)), "{context}: {path}");
    let stat = fs::metadata(stands).unwrap();
    let mtime = format!("{}.{:09}", stat.mtime(), stat.mtime_nsec());
    let line = format!("1 len={} mtime={mtime} adler32={adler32} crc32c={crc32c}", bytes.len());
    assert_eq!(kept(stands), Some(line), "{context}: {path}: {outcome}");
}

#[test]
fn every_file_has_its_checksums_every_way() {
    for trip in Trip::each_way() {
        let source = trip.source().join("d");
        let sizes = [0, 1, 5000, 256 << 10, (256 << 10) + 1, MIB, 3 * MIB + 7];
        let names: Vec<String> = sizes.iter().map(|len| format!("f{len}")).collect();
        for (name, len) in names.iter().zip(sizes) {
            files::make(source.join(name), len as u64, len);
        }
        files::make_sparse(source.join("holes"), 9 * MIB as u64 + 5, &[(3 * MIB as u64, 100)]);
        files::link("f1", source.join("link"));
        let outcome = trip.send(&BOTH, &["d"], "");
        assert_eq!(outcome.counts(), (9, 0, 0), "{trip}: {outcome}");
        for name in names.iter().map(String::as_str).chain(["holes"]) {
            let stands = trip.dest().join("d").join(name);
            let bytes = fs::read(source.join(name)).unwrap();
            assert_summed(&outcome, &format!("d/{name}"), (&stands, &bytes), &trip.to_string());
        }
        assert_eq!(outcome.file("d/link")["adler32"], Value::Null, "{trip}: a link has none");
    }
}

#[test]
fn without_the_option_nothing_is_told_or_kept_and_times_may_be_the_receivers_own() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("small"), 1, 100);
        files::make(trip.source().join("large"), 2, 2 * MIB);
        let outcome = trip.send(&[], &["small", "large"], "plain/");
        for name in ["small", "large"] {
            assert_eq!(outcome.file(name).get("adler32"), None, "{trip}: {outcome}");
            assert_eq!(kept(&trip.dest().join("plain").join(name)), None, "{trip}");
        }
        let options = [&BOTH[..], &["--preserve", "mode"]].concat();
        let outcome = trip.send(&options, &["small", "large"], "own/");
        for name in ["small", "large"] {
            let bytes = fs::read(trip.source().join(name)).unwrap();
            assert_summed(&outcome, name, (&trip.dest().join("own").join(name), &bytes), &trip.to_string());
        }
    }
}

#[test]
fn a_file_that_goes_on_after_a_death_has_the_checksums_of_all_its_bytes() {
    let deaths = [Death::ClientKilled, Death::DaemonKilled];
    let cases: Vec<_> = Direction::BOTH.into_iter().flat_map(|way| deaths.map(|death| (way, death))).collect();
    some_at_once(cases, |(direction, death)| {
        let context = format!("{direction:?}, {death:?}");
        let mut scene = Scene::new(direction);
        files::make(scene.source(), 1, LEN);
        let command = |scene: &Scene| scene.run("f", "f").args(BOTH);
        let durable = scene.die(command(&scene), death);
        let outcome = command(&scene).finish();
        scene.assert_continued(&outcome, LEN as u64, durable, &context);
        let site = &scene.wired.site;
        let stands = if direction == Direction::Push { site.root().join("f") } else { site.client.path("f") };
        assert_summed(&outcome, "f", (&stands, &fs::read(scene.source()).unwrap()), &context);
    });
}

#[test]
fn a_file_that_changed_has_new_checksums_though_most_of_it_is_copied_from_what_stood() {
    for trip in Trip::each_way() {
        let (source, stands) = (trip.source().join("f"), trip.dest().join("f"));
        files::make(&source, 1, 6 * MIB + 3);
        trip.send(&BOTH, &["f"], "");
        let before = kept(&stands);
        let file = fs::File::options().write(true).open(&source).unwrap();
        file.write_all_at(b"changed", 2 * MIB as u64).unwrap();
        drop(file);
        let options = [&BOTH[..], &["--if-exists", "verify"]].concat();
        let outcome = trip.send(&options, &["f"], "");
        assert_summed(&outcome, "f", (&stands, &fs::read(&source).unwrap()), &trip.to_string());
        assert_ne!(kept(&stands), before, "{trip}");
    }
}

#[test]
fn a_striped_file_has_the_checksums_of_its_bytes_in_their_order() {
    let host = Host::new();
    files::make(host.path("src/large"), 1, 9 * MIB + 7);
    files::make_sparse(host.path("src/sparse"), 12 * MIB as u64, &[(0, MIB), (7 * MIB as u64, 10)]);
    let dirs = ["a", "b", "c"].map(|name| host.make_dir(name));
    let targets = dirs.iter().flat_map(|dir| ["--target".into(), dir.clone().into_os_string()]);
    let layout = ["--layout", "stripe", "--stripe-from", "4MiB", "--chunk-size", "1MiB", "--allow-same-device"];
    let run = host.run(["copy", "--json"]).args(layout).args(targets).args(BOTH);
    let outcome = run.args(["src/", "in"]).succeed();
    for name in ["large", "sparse"] {
        let bytes = fs::read(host.path("src").join(name)).unwrap();
        let (adler32, crc32c) = reckoned(&bytes);
        let event = outcome.file(name);
        assert_eq!((&event["adler32"], &event["crc32c"]), (&json!(adler32), &json!(crc32c)), "{name}: {outcome}");
        let stripe = dirs.iter().map(|dir| dir.join("in").join(name)).find(|path| path.exists()).unwrap();
        let line = kept(&stripe).unwrap_or_default();
        assert!(line.starts_with(&format!("1 len={} mtime=", bytes.len())), "{name}: {line}");
        assert!(line.ends_with(&format!(" adler32={adler32} crc32c={crc32c}")), "{name}: {line}");
    }
}

#[test]
fn streams_have_checksums_too() {
    let host = Host::new();
    let bytes = files::bytes(5, 3 * MIB + 11);
    let options = ["--json", "--chunk-size", "1MiB", "--extra-checksum", "adler32,crc32c"];
    let run = host.run(["copy"]).args(options).args(["-", "in/f"]).input(bytes.clone());
    fs::create_dir(host.path("in")).unwrap();
    let outcome = run.succeed();
    let event = &outcome.events_of("file")[0];
    let (adler32, crc32c) = reckoned(&bytes);
    assert_eq!((&event["adler32"], &event["crc32c"]), (&json!(adler32), &json!(crc32c)), "{outcome}");
    assert!(kept(&host.path("in/f")).is_some_and(|line| line.contains(&adler32)), "{outcome}");
}

#[test]
fn a_checksum_that_is_not_computed_is_refused_before_anything_is_made() {
    let host = Host::new();
    files::make(host.path("f"), 1, 5);
    for name in ["sha1", "sha512", "crc32", "Adler32", ""] {
        let outcome = host.run(["copy", "--extra-checksum", name, "f", "to/"]).fail(2);
        assert!(outcome.stderr.contains("adler32, crc32c, md5, sha256"), "{name}: {outcome}");
        assert!(!host.path("to").exists(), "{name}: {outcome}");
    }
}

#[test]
fn people_see_the_checksums_where_each_file_is_named() {
    let host = Host::new();
    files::make(host.path("f"), 1, 5000);
    let outcome = host.run(["copy", "-v", "--extra-checksum", "crc32c", "f", "to/"]).succeed();
    let crc32c = reckoned(&fs::read(host.path("f")).unwrap()).1;
    assert!(outcome.stderr.contains(&format!(", crc32c {crc32c})")), "{outcome}");
}

#[test]
fn the_same_command_again_leaves_the_kept_checksums_and_no_source_brings_its_own() {
    for trip in Trip::each_way() {
        let source = trip.source().join("f");
        files::make(&source, 1, 5000);
        let set = |name: &str, value: &str| {
            rustix::fs::setxattr(&source, name, value.as_bytes(), rustix::fs::XattrFlags::empty()).unwrap();
        };
        set("user.longhaul.checksum", "1 len=9 mtime=1.000000000 adler32=00000000");
        set("user.mine", "yes");
        let options = [&BOTH[..], &["--preserve", "+xattrs"]].concat();
        let outcome = trip.send(&options, &["f"], "");
        let (stands, bytes) = (trip.dest().join("f"), fs::read(&source).unwrap());
        assert_summed(&outcome, "f", (&stands, &bytes), &trip.to_string());
        let before = kept(&stands);
        let outcome = trip.send(&options, &["f"], "");
        assert_eq!(outcome.file("f")["status"], "skipped", "{trip}: {outcome}");
        assert_eq!(kept(&stands), before, "{trip}");
        let outcome = trip.send(&["--preserve", "+xattrs"], &["f"], "plain/");
        assert_eq!(kept(&trip.dest().join("plain/f")), None, "{trip}: {outcome}");
        let mut value = [0; 8];
        let len = rustix::fs::getxattr(trip.dest().join("plain/f"), "user.mine", &mut value[..]);
        assert_eq!(len, Ok(3), "{trip}: other attributes travel");
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn files_that_nobody_may_write_to_have_kept_checksums_where_the_owner_is_not_almighty() {
    let host = Host::new();
    for (name, len) in [("d/small", 100), ("d/large", 2 * MIB)] {
        files::make(host.path(name), 1, len);
        files::set_mode(host.path(name), 0o444);
    }
    // Such a root may write to what it owns as any other user.
    let bare = ["setpriv", "--bounding-set", "-dac_override", "--inh-caps", "-dac_override", "--"];
    for (preserve, to) in [("mode,times", "plain"), ("+xattrs", "extras")] {
        let run = host.run(["copy", "--json", "--preserve", preserve]).args(BOTH).args(["d/", to]);
        let outcome = run.beneath(bare).succeed();
        for name in ["small", "large"] {
            let stands = host.path(to).join(name);
            assert_eq!(fs::metadata(&stands).unwrap().mode() & 0o777, 0o444, "{to}/{name}");
            let bytes = fs::read(&stands).unwrap();
            assert_summed(&outcome, name, (&stands, &bytes), to);
        }
        assert!(outcome.events_of("not_kept").is_empty(), "{outcome}");
    }
}
