//! `manifest`: sealed manifests are made, shown, compared, merged and imported; they are the same
//! at both ends of a copy, and survive kills.

use std::fs;
use std::path::Path;

use rustix::fs::FileType;
use rustix::process::Signal;

use crate::fixture::{Host, Outcome, Site, files};

/// A dataset of a few names.
fn plant(top: &Path) {
    files::make(top.join("a/large"), 1, 3 << 20);
    files::make(top.join("a/small"), 2, 100);
    files::make(top.join("a-b"), 3, 10);
    files::make(top.join("empty"), 4, 0);
    files::link("a/small", top.join("link"));
}

/// The digest that a command printed.
fn digest(outcome: &Outcome) -> String {
    let text = outcome.stdout_text().trim_end();
    assert!(text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()), "{outcome}");
    text.to_owned()
}

#[test]
fn a_copy_has_the_same_digest_and_whatever_differs_is_named() {
    let host = Host::new();
    plant(&host.path("ds"));
    let made = host.run(["manifest", "make", "ds", "-o", "one", "--checksum", "b3,adler32"]).succeed();
    host.run(["copy", "ds/", "there"]).succeed();
    let copy = host.run(["manifest", "make", "there", "-o", "two", "--checksum", "adler32,b3"]).succeed();
    assert_eq!(digest(&made), digest(&copy));
    assert_eq!(digest(&made), files::b3sum(host.path("one/head.lhm")));
    assert_eq!(host.run(["manifest", "diff", "one", "two"]).succeed().stdout_text(), "");

    fs::write(host.path("there/a-b"), "0123456789").unwrap();
    fs::remove_file(host.path("there/empty")).unwrap();
    fs::write(host.path("there/new\n"), "").unwrap();
    host.run(["manifest", "make", "there", "-o", "three", "--checksum", "b3"]).succeed();
    let outcome = host.run(["manifest", "diff", "one", "three"]).fail(6);
    assert_eq!(outcome.stdout_text(), "changed: a-b\nremoved: empty\nadded: new\\x0a\n");
    let outcome = host.run(["manifest", "diff", "--json", "three", "one/head.lhm"]).fail(6);
    let summary = outcome.summary();
    let counts = ["same", "added", "removed", "changed", "unknown"].map(|field| summary[field].as_u64().unwrap());
    assert_eq!(counts, [4, 1, 1, 1, 0], "{outcome}");
    host.run(["manifest", "make", "ds", "-o", "one"]).fail(2);
}

#[test]
fn a_daemon_is_listed_as_its_own_host_lists_it() {
    let site = Site::new();
    plant(&site.root().join("ds"));
    let here = site.server.path("here");
    let local = site.client.run(["manifest", "make"]).arg(site.root().join("ds")).arg("-o").arg(here).succeed();
    let far = site.client.run(["manifest", "make", &site.url("ds"), "-o", "far"]).succeed();
    assert_eq!(digest(&local), digest(&far));
    site.client.run(["manifest", "make", &site.url("ds"), "-o", "sums", "--checksum", "b3"]).fail(2);
    site.client.run(["manifest", "make", &site.url("nothing"), "-o", "none"]).fail(3);
}

#[test]
fn all_that_a_manifest_has_is_shown_and_comes_back_from_lists() {
    let host = Host::new();
    plant(&host.path("ds"));
    host.run(["manifest", "make", "ds", "-o", "one", "--checksum", "b3"]).succeed();
    let shown = host.run(["manifest", "show", "one"]).succeed();
    assert!(shown.stdout_text().contains("files     4\n"), "{shown}");
    let listed = host.run(["manifest", "show", "-l", "one"]).succeed();
    let names: Vec<_> = listed.stdout_text().lines().map(|line| line.split_whitespace().nth(3).unwrap()).collect();
    assert_eq!(names, ["a/", "a-b", "a/large", "a/small", "empty", "link"], "{listed}");
    let items = host.run(["manifest", "show", "--json", "-l", "one"]).succeed().events_of("item");
    assert_eq!(items[3]["checksums"]["b3"].as_str().unwrap(), files::b3sum(host.path("ds/a/small")));

    let sums = host.run(["manifest", "show", "--sums", "b3", "one"]).succeed();
    files::write(host.path("sums.b3"), &sums.stdout);
    host.run(["check", "sums.b3", "ds"]).succeed();
    let imported = host.run(["manifest", "import", "--format", "b3", "sums.b3", "-o", "two"]).succeed();
    host.run(["manifest", "diff", "one", "two"]).succeed();
    host.run(["manifest", "make", "ds", "-o", "plain"]).succeed();
    host.run(["manifest", "merge", "two", "plain", "-o", "three"]).succeed();
    host.run(["manifest", "diff", "one", "three"]).succeed();
    let again = host.run(["manifest", "merge", "two", "-o", "four"]).succeed();
    assert_eq!(digest(&imported), digest(&again));
    host.run(["manifest", "show", "--sums", "md5", "one"]).fail(23);
    host.run(["manifest", "show", "--json", "--sums", "md5", "one"]).fail(23);
    host.run(["manifest", "show", "--json", "--sums", "b3", "one"]).succeed();
}

/// The lines of a program of the system, for all files of the dataset.
fn lines_of(program: &str, top: &Path) -> String {
    let names = ["a-b", "a/large", "a/small", "empty"];
    let output = std::process::Command::new(program).args(names).current_dir(top).output().expect("coreutils");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn lists_of_any_checksum_keep_it_and_are_compared_by_what_both_sides_have() {
    let host = Host::new();
    plant(&host.path("ds"));
    let make = |out: &str, sums: &str| host.run(["manifest", "make", "ds", "-o", out, "--checksum", sums]).succeed();
    make("some", "md5,crc32c");
    make("others", "sha256");
    for (program, format) in [("md5sum", "md5"), ("sha256sum", "sha256")] {
        files::write(host.path(format), lines_of(program, &host.path("ds")));
        host.run(["manifest", "import", "--format", format, format, "-o", &format!("of-{format}")]).succeed();
        let shown = host.run(["manifest", "show", "--sums", format, &format!("of-{format}")]).succeed();
        assert_eq!(shown.stdout_text(), lines_of(program, &host.path("ds")), "{format}");
    }
    host.run(["manifest", "diff", "some", "of-md5"]).succeed();
    host.run(["manifest", "diff", "others", "of-sha256"]).succeed();
    host.run(["manifest", "merge", "of-md5", "of-sha256", "-o", "both"]).succeed();
    host.run(["manifest", "diff", "both", "others"]).succeed();
    let items = host.run(["manifest", "show", "--json", "-l", "both"]).succeed().events_of("item");
    let names: Vec<_> = items[0]["checksums"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, ["md5", "sha256"]);
    fs::write(host.path("ds/a-b"), "0123456789").unwrap();
    make("after", "md5");
    assert_eq!(host.run(["manifest", "diff", "both", "after"]).fail(6).stdout_text(), "changed: a-b\n");
}

#[test]
fn bags_lists_of_adler32_and_lines_of_rucio_come_in_from_files_directories_and_standard_input() {
    let host = Host::new();
    plant(&host.path("bag/data"));
    let in_bag = |program: &str| lines_of(program, &host.path("bag/data")).replace("  ", "  data/");
    let shown = |sums: &str, list: &str| host.run(["manifest", "show", "--sums", sums, list]).succeed().stdout;
    let import =
        |format: &str, list: &str, out: &str| host.run(["manifest", "import", "--format", format, list, "-o", out]);

    import("bagit", "bag", "none").fail(3);
    for (program, sums) in [("md5sum", "md5"), ("sha256sum", "sha256")] {
        files::write(host.path(format!("bag/manifest-{sums}.txt")), in_bag(program));
    }
    // Lists of the tags are none of the payload's.
    files::write(host.path("bag/tagmanifest-md5.txt"), "no line of a list\n");
    import("bagit", "bag", "both").succeed();
    assert_eq!(String::from_utf8(shown("md5", "both")).unwrap(), in_bag("md5sum"));
    assert_eq!(String::from_utf8(shown("sha256", "both")).unwrap(), in_bag("sha256sum"));
    import("bagit", "bag/manifest-md5.txt", "one").succeed();
    host.run(["manifest", "diff", "one", "both"]).succeed();
    import("bagit", "bag/tagmanifest-md5.txt", "tags").fail(3);

    // The checksums of no bytes and of "0123456789".
    let adler = "00000001 empty\n0aff020e a-b\n";
    fs::write(host.path("bag/data/a-b"), "0123456789").unwrap();
    host.run(["manifest", "import", "--format", "adler32", "-", "-o", "adler"]).input(adler).succeed();
    let made = ["manifest", "make", "bag/data", "--include", "/a-b", "--include", "/empty", "--exclude", "*"];
    host.run(made).args(["--checksum", "adler32", "-o", "made"]).succeed();
    host.run(["manifest", "diff", "adler", "made"]).succeed();
    let rucio = concat!(
        r#"{"scope":"mc23","name":"a-b","bytes":10,"adler32":"0aff020e","md5":"781e5e245d69b566979b86e28d23f2c7"}"#,
        "\n",
        r#"{"name":"/store/empty","bytes":0,"adler32":"00000001","state":"AVAILABLE"}"#,
        "\n",
    );
    host.run(["manifest", "import", "--format", "rucio", "-", "-o", "rucio"]).input(rucio).succeed();
    assert_eq!(String::from_utf8(shown("adler32", "rucio")).unwrap(), "0aff020e  mc23/a-b\n00000001  store/empty\n");
    let wrong = rucio.replace("00000001", "0000001");
    let refused = host.run(["manifest", "import", "--format", "rucio", "-", "-o", "wrong"]).input(wrong).fail(2);
    assert!(refused.stderr.contains("line 2"), "{refused}");
}

#[test]
fn what_a_transfer_kept_with_its_files_is_in_their_manifest_if_it_is_believed() {
    let host = Host::new();
    plant(&host.path("ds"));
    host.run(["copy", "--extra-checksum", "md5,adler32", "ds/", "there"]).succeed();
    files::write(host.path("md5"), lines_of("md5sum", &host.path("ds")));
    host.run(["manifest", "import", "--format", "md5", "md5", "-o", "want"]).succeed();
    host.run(["manifest", "make", "there", "-o", "plain"]).succeed();
    host.run(["manifest", "show", "--sums", "md5", "plain"]).fail(23);
    host.run(["manifest", "make", "there", "-o", "one", "--kept-checksums"]).succeed();
    let shown = host.run(["manifest", "show", "--json", "one"]).succeed();
    assert_eq!(shown.events_of("manifest")[0]["checksums"], serde_json::json!(["md5", "adler32"]), "{shown}");
    host.run(["manifest", "diff", "one", "want"]).succeed();
    fs::write(host.path("there/a-b"), "0123456789").unwrap();
    host.run(["manifest", "make", "there", "-o", "two", "--kept-checksums"]).succeed();
    let left = host.run(["manifest", "show", "--sums", "md5", "two"]).fail(23);
    assert_eq!(left.stdout_text().lines().count(), 3, "what was kept with the old content says nothing: {left}");
    host.run(["manifest", "make", "there", "-o", "three", "--kept-checksums", "--checksum", "md5"]).succeed();
    assert_eq!(host.run(["manifest", "diff", "want", "three"]).fail(6).stdout_text(), "changed: a-b\n");
}

#[test]
fn a_merge_has_only_the_kinds_that_all_of_its_manifests_list() {
    let host = Host::new();
    plant(&host.path("ds"));
    host.run(["manifest", "make", "ds", "-o", "one", "--checksum", "b3"]).succeed();
    let sums = host.run(["manifest", "show", "--sums", "b3", "one"]).succeed();
    files::write(host.path("sums.b3"), sums.stdout_text().replace('\n', "\r\n"));
    host.run(["manifest", "import", "--format", "b3", "sums.b3", "-o", "two"]).succeed();
    host.run(["manifest", "merge", "one", "two", "-o", "three"]).succeed();
    let shown = host.run(["manifest", "show", "--json", "three"]).succeed();
    let manifest = shown.events_of("manifest").remove(0);
    assert_eq!(manifest["lists"], serde_json::json!(["file"]), "{shown}");
    assert_eq!(manifest["items"], manifest["files"], "{shown}");
}

#[test]
fn a_manifest_is_not_made_in_the_tree_itself_or_over_an_unfinished_scan() {
    let host = Host::new();
    plant(&host.path("ds"));
    let outcome = host.run(["manifest", "make", "ds", "-o", "ds"]).fail(2);
    assert!(outcome.stderr.contains("name another directory with -o"), "{outcome}");
    host.run(["manifest", "make", "ds", "-o", "one", "--checksum", "b3"]).succeed();
    let sums = host.run(["manifest", "show", "--sums", "b3", "one"]).succeed();
    files::write(host.path("sums.b3"), &sums.stdout);
    files::write(host.path("two/progress.lhp"), "a scan");
    host.run(["manifest", "import", "--format", "b3", "sums.b3", "-o", "two"]).fail(2);
    host.run(["manifest", "merge", "one", "-o", "two"]).fail(2);
    assert!(!host.path("two/head.lhm").exists());
}

#[test]
fn a_damaged_manifest_is_told_and_a_list_that_is_none_is_refused() {
    let host = Host::new();
    plant(&host.path("ds"));
    host.run(["manifest", "make", "ds", "-o", "one", "--checksum", "b3"]).succeed();
    let segment = fs::read_dir(host.path("one")).unwrap().map(|name| name.unwrap().path());
    let segment = segment.into_iter().find(|path| path.extension().is_some_and(|ext| ext == "lhs")).unwrap();
    let mut bytes = fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&segment, bytes).unwrap();
    host.run(["manifest", "show", "one"]).succeed();
    let outcome = host.run(["manifest", "show", "--check", "one"]).fail(6);
    assert!(outcome.stderr.contains(segment.file_name().unwrap().to_str().unwrap()), "{outcome}");
    files::write(host.path("bad"), "no checksum  a\n");
    let outcome = host.run(["manifest", "import", "--format", "md5", "bad", "-o", "two"]).fail(2);
    assert!(outcome.stderr.contains("line 1"), "{outcome}");
    assert!(!host.path("two/head.lhm").exists());
    host.run(["manifest", "import", "--format", "xml", "bad", "-o", "three"]).fail(2);
    host.run(["manifest", "show", "nothing"]).fail(3);
}

#[test]
fn a_scan_that_is_killed_again_and_again_ends_as_one_that_is_not() {
    let host = Host::new();
    for n in 0..12_000 {
        files::make(host.path(format!("ds/{:02}/{n:05}", n / 500)), n, 40);
    }
    // A fifo is told as soon as all before it is listed.
    (1..24).for_each(|n| files::make_special(host.path(format!("ds/{n:02}/9")), FileType::Fifo));
    let make = |out: &str| host.run(["manifest", "make", "-v", "--json", "--checksum", "b3", "ds", "-o", out]);
    let whole = make("whole").succeed();
    let mut kills = 0;
    for _ in 0..KILLS {
        if host.path("killed/head.lhm").exists() {
            break;
        }
        let running = make("killed").start();
        // It is past another fifo, or at its end.
        running.wait_stderr("note: ");
        running.signal(Signal::KILL);
        running.finish();
        kills += 1;
    }
    assert!(kills > 0);
    if host.path("killed/head.lhm").exists() {
        // The last kill may have come behind the head: the same command removes what it left.
        make("killed").start().finish();
    } else {
        let outcome = make("killed").succeed();
        assert!(outcome.summary()["items_resumed"].as_u64().unwrap() >= 500, "{outcome}");
    }
    assert_eq!(
        fs::read(host.path("killed/head.lhm")).unwrap(),
        fs::read(host.path("whole/head.lhm")).unwrap(),
        "{whole}"
    );
    host.run(["manifest", "show", "--check", "killed"]).succeed();
    let left = fs::read_dir(host.path("killed")).unwrap().map(|name| name.unwrap().file_name());
    assert_eq!(left.count(), 2, "a segment and the head");
}

/// Kills of the scan.
const KILLS: u64 = 10;

#[test]
fn a_scan_of_a_daemon_that_is_killed_again_and_again_ends_as_one_that_is_not() {
    let site = Site::new();
    let top = site.root().join("ds");
    for n in 0..2_000 {
        files::make(top.join(format!("{:02}/{n:04}", n / 50)), n, 40);
    }
    // A fifo is told as soon as it is listed, and its directory may be done then or not.
    (0..40).for_each(|n| files::make_special(top.join(format!("{n:02}/fifo")), FileType::Fifo));
    let (host, from) = (&site.client, site.url("ds/"));
    let make = |out: &str| host.run(["manifest", "make", "-v", "--json", &from, "-o", out]);
    let whole = make("whole").succeed();
    for _ in 0..KILLS {
        if host.path("killed/head.lhm").exists() {
            break;
        }
        let running = make("killed").start();
        // "fifo, socket or device", or at its end "2000 files, ...".
        running.wait_stderr(", ");
        running.signal(Signal::KILL);
        running.finish();
    }
    if host.path("killed/head.lhm").exists() {
        make("killed").start().finish();
    } else {
        let outcome = make("killed").succeed();
        assert!(outcome.summary()["items_resumed"].as_u64().unwrap() >= 40, "{outcome}");
    }
    assert_eq!(
        fs::read(host.path("killed/head.lhm")).unwrap(),
        fs::read(host.path("whole/head.lhm")).unwrap(),
        "{whole}"
    );
    let left = fs::read_dir(host.path("killed")).unwrap().map(|name| name.unwrap().file_name());
    assert_eq!(left.count(), 2, "a segment and the head");
}

#[test]
fn a_storage_is_compared_with_its_catalogue_of_before_and_after() {
    let host = Host::new();
    for (number, name) in ["a", "d/new", "d/old", "dark", "e"].into_iter().enumerate() {
        files::make(host.path("storage").join(name), number as u64, 10);
    }
    host.run(["manifest", "make", "storage", "-o", "disk"]).succeed();
    // Out of order, with what came and what went while the storage was listed.
    fs::write(host.path("before"), "/lost\n/d/old\n/a\n/gone\n/e\n").unwrap();
    fs::write(host.path("after"), "e\nd/new\nsoon\nlost\na\n").unwrap();
    let told = host.run(["manifest", "consistency", "before", "disk", "after"]).fail(23);
    assert_eq!(told.stdout_text(), "dark: dark\nlost: lost\n");
    let told = host.run(["manifest", "consistency", "--json", "before", "disk/head.lhm", "after"]).fail(23);
    let summary = told.summary();
    let sums = ["consistent", "lost", "dark", "passing"].map(|name| summary[name].as_u64().unwrap());
    assert_eq!(sums, [4, 1, 1, 2]);
    assert_eq!(told.events_of("inconsistency")[0]["bytes"], 10);
    host.run(["manifest", "import", "before", "after", "--format", "paths", "-o", "both"]).succeed();
    host.run(["manifest", "consistency", "disk", "disk", "disk"]).succeed();
    fs::write(host.path("bad"), "a\n../b\n").unwrap();
    let told = host.run(["manifest", "consistency", "bad", "disk", "after"]).fail(2);
    assert!(told.stderr.contains("line 2"), "{told}");
    fs::write(host.path("disk/head.lhm"), "no head").unwrap();
    host.run(["manifest", "consistency", "before", "disk", "after"]).fail(2);
}
