//! `--verify disk`: everything is read back from the medium before it is committed, every way, and
//! past the page cache.

use std::fs;

use crate::fixture::tree::{self, Tree};
use crate::fixture::{Host, Trip, engines, files};

#[test]
fn everything_is_read_back_on_every_way() {
    for trip in Trip::all() {
        let source = trip.source().join("d");
        let mut bytes = 0;
        for (n, len) in [0, 1, 5000, 256 << 10, 300_000, 1 << 20, (3 << 20) + 7].into_iter().enumerate() {
            files::make(source.join(format!("f{n}")), n as u64, len);
            bytes += len as u64;
        }
        files::link("f1", source.join("link"));
        let outcome = trip.send(&["--verify", "disk"], &["d"], "");
        tree::assert_same(&Tree::of(&source), &Tree::of(trip.dest().join("d")), trip.to_string());
        let summary = outcome.summary();
        assert_eq!(summary["bytes_read_back"].as_u64(), Some(bytes), "{trip}: {outcome}");
        assert_eq!(summary["bytes_misread"].as_u64(), Some(0), "{trip}: {outcome}");
        assert_eq!(tree::leftovers(trip.dest()), [""; 0], "{trip}");
    }
}

#[test]
fn without_it_nothing_is_read_back() {
    for trip in Trip::each_way() {
        files::make(trip.source().join("f"), 1, 2 << 20);
        let outcome = trip.send(&["--verify", "wire"], &["f"], "");
        assert_eq!(outcome.summary()["bytes_read_back"].as_u64(), Some(0), "{trip}: {outcome}");
    }
}

#[test]
fn chunks_are_read_back_past_the_page_cache_under_their_temporary_name() {
    for &engine in engines() {
        let host = Host::new();
        files::make(host.path("from/large"), 1, (3 << 20) + 5);
        files::make(host.path("from/small"), 2, 5000);
        let log = host.path("trace");
        let calls = "trace=openat,fcntl,pread64,fdatasync,renameat,renameat2";
        let strace = ["strace", "-f", "-y", "-s", "8", "-e", calls, "-o", log.to_str().unwrap()];
        let options = ["--engine", engine, "--verify", "disk", "--chunk-size", "1MiB", "--memory", "64MiB"];
        host.run(["copy", "--json"]).args(options).args(["from/", "to/"]).beneath(strace).succeed();
        let trace = fs::read_to_string(log).expect("these tests need strace: apt-get install strace");
        let of_temporaries = |call: &str| {
            let begins =
                |line: &&str| line.split_once(' ').is_some_and(|(_, rest)| rest.trim_start().starts_with(call));
            trace.lines().filter(begins).filter(|line| line.contains("/.longhaul-")).collect::<Vec<_>>()
        };
        // Three whole chunks, the tail and the small file; any other read of a temporary is the end
        // of one.
        let reads = of_temporaries("pread64(");
        assert!(reads.len() >= 5, "engine {engine}: {reads:?}");
        let direct = of_temporaries("fcntl(").iter().filter(|line| line.contains("O_DIRECT")).count();
        // One for writing the large one, and one for each that is read back.
        assert!(direct >= 6, "engine {engine}: {direct} descriptors of temporaries are direct");
        let position = |call: &str| trace.lines().position(|line| line.contains(call) && line.contains("/.longhaul-"));
        assert!(position("fdatasync(") < position("pread64("), "engine {engine}: read back before the sync");
    }
}
