//! Trees of every kind: names of any bytes, empty files and directories, links, depth, holes, modes
//! and times, and names that are never sent.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::fs::FileType;

use crate::fixture::tree::{self, Kind, Tree};
use crate::fixture::{Trip, files};

#[test]
fn names_of_any_bytes_arrive_as_they_are() {
    for trip in Trip::each_way() {
        let top = trip.source().join("d");
        for (seed, name) in odd_names().iter().enumerate() {
            files::make(top.join(OsStr::from_bytes(name)), seed as u64, 100 + seed);
            let dir = [b"dir-", &name[..name.len().min(200)]].concat();
            files::make(top.join(OsStr::from_bytes(&dir)).join("f"), seed as u64, (1 << 20) + seed);
        }
        let outcome = trip.send(&["-v"], &["d"], "");
        tree::assert_same(&Tree::of(trip.source()).beneath(), &Tree::of(trip.dest()).beneath(), &trip);
        for name in odd_names() {
            let path = [b"d/", &name[..]].concat();
            let found = outcome.events_of("file").into_iter().find(|event| match std::str::from_utf8(&path) {
                Ok(path) => event["path"] == path,
                Err(_) => event["path_b64"] == STANDARD.encode(&path),
            });
            assert!(found.is_some_and(|event| event["status"] == "committed"), "{trip}: {path:?}: {outcome}");
        }
        for stream in [&outcome.stdout[..], outcome.stderr.as_bytes()] {
            let harmful = stream.iter().find(|&&b| b < 0x20 && b != b'\n' || b == 0x7f);
            assert_eq!(harmful, None, "{trip}: a name moves the cursor: {outcome:?}");
        }
        assert!(outcome.stderr.contains("\\x1b[31m") && outcome.stderr.contains("new\\x0aline"), "{trip}: {outcome}");
        assert!(outcome.stderr.contains("not-utf8-\\xff\\xfe"), "{trip}: {outcome}");
    }
}

#[test]
fn empty_files_and_empty_directories_arrive() {
    for trip in Trip::each_way() {
        fs::create_dir_all(trip.source().join("d/empty/emptier")).unwrap();
        files::make(trip.source().join("d/file"), 1, 0);
        files::make(trip.source().join("d/empty/file"), 1, 0);
        trip.send(&[], &["d"], "");
        tree::assert_same(&Tree::of(trip.source()).beneath(), &Tree::of(trip.dest()).beneath(), &trip);
    }
}

#[test]
fn a_tree_of_nothing_but_its_top_arrives() {
    for trip in Trip::each_way() {
        fs::create_dir(trip.source().join("d")).unwrap();
        let outcome = trip.send(&[], &["d"], "new");
        assert_eq!(outcome.counts(), (0, 0, 0), "{trip}: {outcome}");
        assert_eq!(Tree::of(trip.dest()).paths(), ["", "new", "new/d"], "{trip}");
    }
}

#[test]
fn links_arrive_as_links_whatever_they_point_to() {
    for trip in Trip::each_way() {
        let top = trip.source().join("d");
        files::make(top.join("real/file"), 1, 10);
        let targets: [&[u8]; 6] = [b"real/file", b"real", b"nowhere", b"/etc/passwd", b"../../..", b"x\xff\n\x1b[2J"];
        for (n, target) in targets.iter().enumerate() {
            files::link(OsStr::from_bytes(target), top.join(format!("link{n}")));
            files::set_mtime(top.join(format!("link{n}")), 1_000_000_000 + n as i64, 123_456_789);
        }
        files::link("itself", top.join("itself"));
        files::link(OsStr::from_bytes(&[b'x'; 4000]), top.join("long"));
        let outcome = trip.send(&[], &["d"], "");
        assert_eq!(outcome.counts(), (9, 0, 0), "{trip}: {outcome}");
        tree::assert_same(&Tree::of(trip.source()).beneath(), &Tree::of(trip.dest()).beneath(), &trip);
    }
}

#[test]
fn a_link_named_as_the_source_is_sent_as_a_link() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("real/file"), 1, 10);
        files::link("real", trip.source().join("link"));
        trip.send(&[], &["link"], "");
        assert_eq!(Tree::of(trip.dest()).node("link").kind, Kind::Link(b"real".to_vec()), "{trip}");
    }
}

#[test]
fn a_hundred_levels_of_directories_arrive() {
    for trip in Trip::each_way() {
        let mut dir = trip.source().join("d");
        for level in 0..100 {
            dir = dir.join(format!("level-{level}"));
            files::make(dir.join("f"), level, 50);
        }
        let outcome = trip.send(&[], &["d"], "");
        assert_eq!(outcome.counts(), (100, 0, 0), "{trip}: {outcome}");
        tree::assert_same(&Tree::of(trip.source()).beneath(), &Tree::of(trip.dest()).beneath(), &trip);
    }
}

#[test]
fn holes_stay_holes() {
    const MIB: u64 = 1 << 20;
    for trip in Trip::all() {
        let top = trip.source().join("d");
        fs::create_dir(&top).unwrap();
        files::make_sparse(top.join("all-hole"), 64 * MIB, &[]);
        files::make_sparse(top.join("data-at-the-end"), 32 * MIB + 5, &[(32 * MIB, 5)]);
        files::make_sparse(top.join("data-at-the-start"), 32 * MIB, &[(0, 5)]);
        files::make_sparse(
            top.join("islands"),
            48 * MIB + 1,
            &[(3 * MIB + 4096, 8192), (20 * MIB, 2 << 20), (40 * MIB - 1, 3)],
        );
        files::make_sparse(top.join("small"), 200_000, &[(100_000, 10)]);
        let outcome = trip.send(&[], &["d"], "");
        let context = format!("{trip}: {outcome}");
        tree::assert_same(&Tree::of(trip.source()).beneath(), &Tree::of(trip.dest()).beneath(), &context);
        for name in ["all-hole", "data-at-the-end", "data-at-the-start", "islands"] {
            assert_eq!(outcome.file(&format!("d/{name}"))["b3"], files::b3sum(top.join(name)), "{name}: {context}");
            let (before, after) = (blocks(&top.join(name)), blocks(&trip.dest().join("d").join(name)));
            // Holes are found in steps of some pages, so that islands may come out a little larger.
            assert!(
                after <= before + 4 * (64 << 10) / 512,
                "{name} had {before} blocks of 512 bytes and has {after}: {context}"
            );
        }
    }
}

#[test]
fn without_sparse_a_hole_arrives_as_zeros() {
    for trip in Trip::each_way() {
        files::make_sparse(trip.source().join("f"), 8 << 20, &[(1 << 20, 10)]);
        trip.send(&["--preserve", "-sparse"], &["f"], "g");
        let (sent, stands) = (Tree::of(trip.source().join("f")), Tree::of(trip.dest().join("g")));
        tree::assert_same(&sent, &stands, &trip);
        let blocks = blocks(&trip.dest().join("g"));
        assert!(blocks >= 8 << 11, "{trip}: only {blocks} blocks of 512 bytes");
    }
}

#[test]
fn modes_and_times_to_the_nanosecond_arrive_for_files_directories_and_links() {
    for trip in Trip::each_way() {
        let top = trip.source().join("d");
        for (n, mode) in [0o644, 0o600, 0o755, 0o444, 0o777, 0o640, 0o400].into_iter().enumerate() {
            let time = 1_234_567_890 + n as i64;
            for (kind, size) in [("small", 100), ("large", (1 << 20) + 100)] {
                let file = top.join(format!("{kind}-{mode:o}"));
                files::make(&file, n as u64, size);
                files::set_mode(&file, mode);
                files::set_mtime(&file, time, 987_654_321);
            }
        }
        files::make(top.join("before-1970"), 1, 10);
        files::set_mtime(top.join("before-1970"), -1_000_000, 1);
        files::make(top.join("far-future"), 1, 10);
        files::set_mtime(top.join("far-future"), 4_294_967_296, 999_999_999);
        files::link("nowhere", top.join("link"));
        files::set_mtime(top.join("link"), 1_111_111_111, 222_222_222);
        for (n, mode) in [0o755, 0o700, 0o500, 0o2755, 0o1777].into_iter().enumerate() {
            let dir = top.join(format!("dir-{mode:o}"));
            files::make(dir.join("inside"), 1, 10);
            // Set-group-id and sticky bits are not carried: with owners they would be.
            files::set_mode(&dir, mode & 0o777);
            files::set_mtime(&dir, 1_300_000_000 + n as i64, 111_222_333);
        }
        files::set_mtime(&top, 1_000_000_001, 5);
        let outcome = trip.send(&[], &["d"], "");
        tree::assert_same(
            &Tree::of(trip.source()).beneath(),
            &Tree::of(trip.dest()).beneath(),
            format!("{trip}: {outcome}"),
        );
    }
}

#[test]
fn thousands_of_small_files_arrive() {
    for trip in Trip::each_way() {
        for n in 0..3000_u64 {
            files::make(trip.source().join(format!("d/dir{}/f{n}", n % 30)), n, (n * 7 % 6000) as usize);
        }
        let outcome = trip.send(&["--memory", "8MiB"], &["d"], "");
        assert_eq!(outcome.counts(), (3000, 0, 0), "{trip}: {}", outcome.stderr);
        assert_eq!(outcome.events_of("file").iter().filter(|event| event["b3"].is_string()).count(), 3000, "{trip}");
        tree::assert_same(&Tree::of(trip.source()).beneath(), &Tree::of(trip.dest()).beneath(), &trip);
        assert_eq!(tree::leftovers(trip.dest()), [""; 0], "{trip}");
    }
}

#[test]
fn specials_are_skipped_and_named_without_failing() {
    for trip in Trip::each_way() {
        let top = trip.source().join("d");
        files::make(top.join("file"), 1, 10);
        files::make_special(top.join("pipe"), FileType::Fifo);
        files::make_special(top.join("socket"), FileType::Socket);
        let outcome = trip.send(&[], &["d"], "");
        assert_eq!(outcome.counts(), (1, 0, 0), "{trip}: {outcome}");
        assert_eq!(Tree::of(trip.dest()).paths(), ["", "d", "d/file"], "{trip}");
        for special in ["d/pipe is a fifo", "d/socket is a socket"] {
            assert!(outcome.stderr.contains(special), "{trip}: {special}: {outcome}");
        }
        let event = outcome.file("d/pipe");
        assert_eq!((&event["status"], &event["reason"]), (&"skipped".into(), &"fifo".into()), "{trip}: {event}");
        let alone = trip.send(&[], &["d/pipe"], "new");
        assert!(alone.stderr.contains("pipe is a fifo") && !trip.dest().join("new").exists(), "{trip}: {alone}");
    }
}

#[test]
fn names_of_our_own_are_never_sent() {
    for trip in Trip::each_way() {
        let top = trip.source().join("d");
        let ours = [".longhaul-0123456789abcdef0123456789abcdef", ".longhaul/journal"];
        let others = ["sub/.longhaul-x", "sub/.longhaul", ".longhaul-notes.txt"];
        for name in ours.into_iter().chain(others).chain(["kept"]) {
            files::make(top.join(name), 1, 10);
        }
        let outcome = trip.send(&[], &["d"], "");
        assert_eq!(outcome.counts(), (1, 0, 0), "{trip}: {outcome}");
        assert_eq!(Tree::of(trip.dest()).paths(), ["", "d", "d/kept", "d/sub"], "{trip}");
        for name in others.map(|name| format!("d/{name}")) {
            let event = outcome.file(&name);
            assert_eq!(event["reason"], "reserved name", "{trip}: {event}");
            let said = format!("{name} is a reserved name");
            assert!(outcome.stderr.contains(&said), "{trip}: {outcome}");
        }
        assert_eq!(outcome.events_of("file").len(), 4, "{trip}: others' work in progress is nobody's data: {outcome}");
        let alone = trip.send(&[], &["d/kept"], "new");
        assert_eq!(alone.counts(), (1, 0, 0), "{trip}: {alone}");
    }
}

/// Names that some program on the way might not take.
fn odd_names() -> Vec<Vec<u8>> {
    let longest = [b'n'; 255];
    let longest_two_byte = "\u{e9}".repeat(127);
    let names: [&[u8]; 18] = [
        &longest,
        longest_two_byte.as_bytes(),
        b"new\nline",
        b"not-utf8-\xff\xfe",
        b"\xc3",
        b"\x1b[31mred\x1b[0m",
        b"bell\x07tab\tdel\x7f",
        b"c1-\xc2\x9b31m",
        "right-\u{202e}to-left".as_bytes(),
        b" ",
        b" leading and trailing ",
        b"-rf",
        b"...",
        b"back\\slash",
        b"quote'\"`$(true)",
        b"*?[a]{b}",
        b"colon:name",
        b"~",
    ];
    names.iter().map(|name| name.to_vec()).collect()
}

fn blocks(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks()
}
