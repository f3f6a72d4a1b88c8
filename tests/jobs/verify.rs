//! `job verify`: what was delivered is read back within its budget; what is lost, changed or
//! damaged is told, once as new. By that a person copies it anew.

use std::fs;
use std::os::unix::fs::FileExt;

use rustix::process::Signal;
use serde_json::Value;

use super::{plant, queue};
use crate::fixture::{Host, Site, files};

/// A campaign that was delivered to `to`, in shards of thirty files.
pub(super) fn delivered(host: &Host) {
    plant(&host.path("ds"));
    host.run(["job", "add", "--name", "all", "--shard-files", "30", "ds/", "to"]).succeed();
    host.run(["job", "plan", "all"]).succeed();
    host.run(["job", "run", "--drain"]).succeed();
}

/// Lets a cycle pass, without waiting for it, and the leases of verifiers that are gone.
pub(super) fn let_cycle_pass(host: &Host) {
    let rows = rusqlite::Connection::open(queue(host)).unwrap();
    rows.execute("UPDATE verification SET last = min(last, 1), until = 0, failed = 0", []).unwrap();
}

/// Changes a byte of a file, and nothing that a look at it tells.
pub(super) fn damage(host: &Host, name: &str) {
    let path = host.path(name);
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 7).unwrap();
    file.write_all_at(&[byte[0] ^ 1], 7).unwrap();
    file.set_modified(before).unwrap();
}

pub(super) fn verify<'a>(options: &[&'a str]) -> Vec<&'a str> {
    [&["job", "verify", "--json", "all", "--once"], options].concat()
}

/// The bad files that a run told, as path, kind and whether they were known.
pub(super) fn bad(events: Vec<Value>) -> Vec<(String, String, bool)> {
    let text = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
    let mut bad: Vec<_> = events
        .iter()
        .map(|event| (text(event, "path"), text(event, "kind"), event["known"].as_bool().unwrap()))
        .collect();
    bad.sort();
    bad
}

fn sum(events: &[Value], field: &str) -> u64 {
    events.iter().map(|event| event[field].as_u64().unwrap()).sum()
}

pub(super) fn named(bad: &[(&str, &str, bool)]) -> Vec<(String, String, bool)> {
    bad.iter().map(|(path, kind, known)| ((*path).to_owned(), (*kind).to_owned(), *known)).collect()
}

#[test]
fn what_movers_delivered_is_compared_with_what_they_sent_and_read_once_in_a_cycle() {
    let host = Host::new();
    delivered(&host);
    let told = host.run(verify(&["--budget", "1MiB/s"])).succeed();
    let (shards, figures) = (told.events_of("job_verified"), told.events_of("job_verify").remove(0));
    let total = figures["total"].clone();
    assert_eq!((shards.len(), sum(&shards, "files"), sum(&shards, "files_first")), (4, 101, 0));
    assert_eq!(Some(sum(&shards, "bytes")), total["bytes"].as_u64());
    assert_eq!(
        (&total["files"], &figures["never"]["files"], &figures["bad"]),
        (&101.into(), &0.into(), &Value::Array(vec![]))
    );
    let seconds = told.events_of("summary")[0]["seconds"].as_f64().unwrap();
    let least = total["bytes"].as_u64().unwrap() as f64 / f64::from(1 << 20);
    assert!(seconds > least * 0.9, "{seconds} s for what takes {least} s");

    let again = host.run(verify(&[])).succeed();
    assert_eq!(again.events_of("job_verified"), [] as [Value; 0], "nothing is due");
    let pace =
        &host.run(verify(&["--budget", "64KiB/s", "--cycle", "1h"])).succeed().events_of("job_verify")[0]["pace"];
    assert_eq!((&pace["suffices"], &pace["budget_bytes_per_s"]), (&true.into(), &65536.into()));
    // What is beyond all days is as little as it would be in a year of a real archive.
    let rows = rusqlite::Connection::open(queue(&host)).unwrap();
    rows.execute("UPDATE shard SET bytes = bytes + 1000000000000, done_bytes = done_bytes + 1000000000000", [])
        .unwrap();
    let told = host.run(["job", "verify", "all", "--once", "--budget", "64KiB/s"]).succeed();
    assert!(told.stderr.contains("the budget does not suffice"), "{}", told.stderr);
}

#[test]
fn lost_changed_and_damaged_files_are_told_as_new_once_and_copied_anew_by_hand() {
    let host = Host::new();
    delivered(&host);
    host.run(verify(&[])).succeed();
    damage(&host, "to/1/01");
    fs::remove_file(host.path("to/2/02")).unwrap();
    files::make(host.path("to/3/03"), 7, 17);
    fs::remove_file(host.path("to/link")).unwrap();
    host.run(verify(&[])).succeed();
    let_cycle_pass(&host);
    let found = |known| {
        named(&[
            ("1/01", "damaged", known),
            ("2/02", "lost", known),
            ("3/03", "changed", known),
            ("link", "lost", known),
        ])
    };
    assert_eq!(bad(host.run(verify(&[])).fail(6).events_of("job_bad_file")), found(false));
    let_cycle_pass(&host);
    assert_eq!(bad(host.run(verify(&[])).fail(6).events_of("job_bad_file")), found(true), "they stay bad");
    host.run(verify(&[])).fail(6);

    let_cycle_pass(&host);
    let told = host.run(verify(&[])).fail(6).events_of("job_bad_file");
    let paths = |kinds: &[&str]| {
        let of = told.iter().filter(|event| kinds.contains(&event["kind"].as_str().unwrap()));
        of.map(|event| format!("{}\n", event["path"].as_str().unwrap())).collect::<String>()
    };
    fs::write(host.path("lost.list"), paths(&["lost"])).unwrap();
    fs::write(host.path("damaged.list"), paths(&["damaged"])).unwrap();
    host.run(["copy", "--files-from", "lost.list", "ds/", "to"]).succeed();
    host.run(["copy", "--files-from", "damaged.list", "--if-exists", "replace", "ds/", "to"]).succeed();
    let_cycle_pass(&host);
    let told = host.run(verify(&[])).fail(23);
    assert_eq!(bad(told.events_of("job_bad_file")), named(&[("3/03", "changed", true)]), "nobody has mended that");
    assert_eq!(sum(&told.events_of("job_verified"), "files_first"), 0);
    let_cycle_pass(&host);
    let told = host.run(verify(&["--ignore-changed"])).succeed();
    assert_eq!(sum(&told.events_of("job_verified"), "files_ignored"), 1);
    for name in ["1/01", "2/02"] {
        assert_eq!(fs::read(host.path("ds").join(name)).unwrap(), fs::read(host.path("to").join(name)).unwrap());
    }
    assert_eq!(fs::read_link(host.path("to/link")).unwrap(), fs::read_link(host.path("ds/link")).unwrap());
}

#[test]
fn a_file_that_stood_already_is_known_from_its_first_reading_on() {
    let host = Host::new();
    plant(&host.path("ds"));
    host.run(["copy", "ds/", "to"]).succeed();
    host.run(["job", "add", "--name", "all", "ds/", "to"]).succeed();
    host.run(["job", "plan", "all"]).succeed();
    host.run(["job", "run", "--drain"]).succeed();
    let first = host.run(verify(&[])).succeed().events_of("job_verified");
    assert_eq!((sum(&first, "files"), sum(&first, "files_first")), (101, 100));
    damage(&host, "to/5/05");
    for known in [false, true] {
        let_cycle_pass(&host);
        let told = host.run(verify(&[])).fail(6);
        assert_eq!(bad(told.events_of("job_bad_file")), named(&[("5/05", "damaged", known)]));
        assert_eq!(sum(&told.events_of("job_verified"), "files_first"), 0);
    }
}

#[test]
fn a_destination_that_is_not_mounted_makes_no_file_a_lost_one() {
    let host = Host::new();
    delivered(&host);
    fs::rename(host.path("to"), host.path("away")).unwrap();
    host.run(verify(&[])).fail(3);
    fs::create_dir(host.path("to")).unwrap();
    let told = host.run(verify(&[])).fail(3);
    assert!(told.stderr.contains("is mounted"), "{}", told.stderr);
    assert_eq!(told.events_of("job_verify")[0]["bad"], Value::Array(vec![]), "nothing was recorded");
    fs::remove_dir(host.path("to")).unwrap();
    fs::rename(host.path("away"), host.path("to")).unwrap();
    host.run(verify(&[])).succeed();

    fs::remove_dir_all(host.path("to")).unwrap();
    fs::create_dir(host.path("to")).unwrap();
    let_cycle_pass(&host);
    host.run(verify(&[])).fail(3);
    let told = host.run(verify(&["--believe-losses"])).fail(23);
    assert_eq!(told.events_of("job_verify")[0]["bad"][0]["files"], 101);
    // They are known, and no reason for doubts any more.
    let_cycle_pass(&host);
    let told = host.run(verify(&[])).fail(23);
    assert!(told.events_of("job_bad_file").iter().all(|event| event["known"] == true));
}

#[test]
fn large_files_one_in_a_batch_are_not_lost_where_the_disk_is_not_mounted() {
    let host = Host::new();
    for name in 0..3 {
        files::make(host.path(format!("ds/{name}")), name, 10_000);
    }
    host.run(["job", "add", "--name", "all", "--shard-files", "1", "ds/", "to"]).succeed();
    host.run(["job", "plan", "all"]).succeed();
    host.run(["job", "run", "--drain"]).succeed();
    fs::rename(host.path("to"), host.path("away")).unwrap();
    fs::create_dir(host.path("to")).unwrap();
    let told = host.run(verify(&[])).fail(3);
    assert_eq!(told.events_of("job_verify")[0]["bad"], Value::Array(vec![]), "nothing was recorded");
    fs::remove_dir(host.path("to")).unwrap();
    fs::rename(host.path("away"), host.path("to")).unwrap();
    host.run(verify(&[])).succeed();
    // The disk is there: it is lost indeed.
    fs::remove_file(host.path("to/0")).unwrap();
    let_cycle_pass(&host);
    let told = host.run(verify(&[])).fail(23);
    assert_eq!(bad(told.events_of("job_bad_file")), named(&[("0", "lost", false)]));
}

#[test]
fn a_shard_that_cannot_be_read_and_a_damaged_record_stop_nothing_else() {
    let host = Host::new();
    delivered(&host);
    let records = records(&host);
    let shards = fs::read_dir(&records).unwrap().map(|entry| entry.unwrap().path());
    let mut shards: Vec<_> = shards.filter(|path| path.extension().is_none()).collect();
    shards.sort_by_key(|path| path.file_name().unwrap().to_str().unwrap().parse::<u64>().unwrap());
    fs::write(&shards[0], "no record").unwrap();
    let told = host.run(verify(&[])).succeed();
    assert!(told.stderr.contains("are damaged"), "{}", told.stderr);
    let read = told.events_of("job_verified");
    assert_eq!((sum(&read, "files"), read.len()), (101, 4));
    let first = sum(&read, "files_first");
    assert!((1..=30).contains(&first), "those of one shard: {first}");

    // A record that cannot be read.
    fs::remove_file(&shards[1]).unwrap();
    files::link(&shards[1], &shards[1]);
    damage(&host, "to/1/01");
    for _ in 0..2 {
        let_cycle_pass(&host);
        let told = host.run(verify(&[])).fail(6);
        let ends = told.events_of("job_verified");
        let of = |state: &str| ends.iter().filter(|event| event["state"] == state).count();
        assert_eq!((of("failed"), of("read")), (1, 3), "{ends:?}");
    }
    assert_eq!(host.run(verify(&[])).fail(6).events_of("job_verified").len(), 1, "the next run tries it at once");
}

/// The directory with the digests of what was delivered.
fn records(host: &Host) -> std::path::PathBuf {
    let manifests = queue(host).with_extension("db.manifests");
    let mut dirs = fs::read_dir(&manifests).unwrap().map(|entry| entry.unwrap().path().join("delivered"));
    dirs.find(|dir| dir.exists()).unwrap()
}

#[test]
fn a_verifier_that_is_killed_or_stopped_is_followed_by_one_that_reads_the_rest() {
    let host = Host::new();
    delivered(&host);
    // A second for each shard.
    let slow = ["job", "verify", "--json", "all", "--budget", "160KiB/s"];
    for signal in [Signal::KILL, Signal::TERM] {
        let running = host.run(slow).start();
        running.wait_event(|event| (event["type"] == "job_verified").then_some(()));
        running.signal(signal);
        running.finish();
    }
    let rows = rusqlite::Connection::open(queue(&host)).unwrap();
    let read = |text: &str| rows.query_row(text, [], |row| row.get::<_, i64>(0)).unwrap();
    let through = read("SELECT count(*) FROM verification WHERE last > 0");
    assert!((2..4).contains(&through), "{through} shards were read");
    rows.execute("UPDATE verification SET until = 0", []).unwrap();
    let told = host.run(verify(&[])).succeed();
    assert_eq!(told.events_of("job_verified").len() as i64, 4 - through);
    assert_eq!(told.events_of("job_verify")[0]["never"]["files"], 0);
}

/// A campaign that was delivered to a daemon, in shards of thirty files.
pub(super) fn delivered_far(site: &Site) {
    let host = &site.client;
    plant(&host.path("ds"));
    host.run(["job", "add", "--name", "all", "--shard-files", "30", "ds/", &site.url("in")]).succeed();
    host.run(["job", "plan", "all"]).succeed();
    host.run(["job", "run", "--drain"]).succeed();
}

#[test]
fn files_at_a_daemon_are_read_there_and_compared_with_what_was_sent() {
    let site = Site::new();
    let (host, server) = (&site.client, &site.server);
    delivered_far(&site);
    let told = host.run(verify(&["--budget", "1MiB/s"])).succeed();
    let (shards, figures) = (told.events_of("job_verified"), told.events_of("job_verify").remove(0));
    assert_eq!((shards.len(), sum(&shards, "files"), sum(&shards, "files_first")), (4, 101, 0));
    assert_eq!(Some(sum(&shards, "bytes")), figures["total"]["bytes"].as_u64());
    let seconds = told.events_of("summary")[0]["seconds"].as_f64().unwrap();
    let least = figures["total"]["bytes"].as_u64().unwrap() as f64 / f64::from(1 << 20);
    assert!(seconds > least * 0.9, "{seconds} s for what takes {least} s");
    assert_eq!(host.run(verify(&[])).succeed().events_of("job_verified"), [] as [Value; 0], "nothing is due");

    damage(server, "data/in/1/01");
    let root = site.root();
    fs::remove_file(root.join("in/2/02")).unwrap();
    files::make(root.join("in/3/03"), 7, 17);
    fs::remove_file(root.join("in/link")).unwrap();
    for known in [false, true] {
        let_cycle_pass(host);
        let told = host.run(verify(&[])).fail(6);
        let found =
            [("1/01", "damaged", known), ("2/02", "lost", known), ("3/03", "changed", known), ("link", "lost", known)];
        assert_eq!(bad(told.events_of("job_bad_file")), named(&found));
        assert_eq!(sum(&told.events_of("job_verified"), "files_first"), 0);
    }
    // The daemon's host may read them itself, and finds the same.
    let_cycle_pass(host);
    let at = root.join("in");
    let told = host.run(verify(&["--at", at.to_str().unwrap()])).fail(6);
    assert_eq!(bad(told.events_of("job_bad_file")).len(), 4);
}

#[test]
fn a_destination_at_a_daemon_that_is_not_there_makes_no_file_a_lost_one() {
    let site = Site::new();
    let host = &site.client;
    delivered_far(&site);
    let (at, away) = (site.root().join("in"), site.root().join("away"));
    fs::rename(&at, &away).unwrap();
    host.run(verify(&[])).fail(3);
    fs::create_dir(&at).unwrap();
    let told = host.run(verify(&[])).fail(3);
    assert!(told.stderr.contains("is mounted"), "{}", told.stderr);
    assert_eq!(told.events_of("job_verify")[0]["bad"], Value::Array(vec![]), "nothing was recorded");
    fs::remove_dir(&at).unwrap();
    fs::rename(&away, &at).unwrap();
    host.run(verify(&[])).succeed();
    // Nor does a daemon that is not reached.
    let_cycle_pass(host);
    site.daemon.kill();
    let told = host.run(verify(&[])).fail(5);
    assert_eq!(told.events_of("job_verify")[0]["bad"], Value::Array(vec![]), "nothing was recorded");
    // One that starts anew is waited for.
    let_cycle_pass(host);
    let run = host.run(verify(&[])).start();
    let _again = site.restarted();
    let told = run.finish();
    assert_eq!((told.code, sum(&told.events_of("job_verified"), "files")), (0, 101), "{told}");
}
