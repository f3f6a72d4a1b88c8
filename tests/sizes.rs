//! Every size at which the pipeline changes, each way, on each engine and protection; `b3sum` is
//! the judge.

use crate::fixture::{Trip, files, tree};

#[test]
fn every_edge_size_arrives_whole_each_way_on_each_engine_and_protection() {
    for trip in Trip::all() {
        let names: Vec<String> = SIZES.iter().map(|size| format!("f{size}")).collect();
        for (&size, name) in SIZES.iter().zip(&names) {
            files::make(trip.source().join("d").join(name), size as u64, size);
        }
        let outcome = trip.send(&[], &["d"], "");
        assert_eq!(outcome.counts(), (SIZES.len() as u64, 0, 0), "{trip}: {outcome}");
        assert_eq!(outcome.summary()["bytes_committed"], SIZES.iter().sum::<usize>(), "{trip}: {outcome}");
        let digests = files::b3sums(&trip.source().join("d"), &names);
        for (name, digest) in names.iter().zip(&digests) {
            assert_eq!(outcome.file(&format!("d/{name}"))["b3"], **digest, "{trip}: {name}");
        }
        assert_eq!(files::b3sums(&trip.dest().join("d"), &names), digests, "{trip}");
        tree::assert_same(&tree::Tree::of(trip.source()).beneath(), &tree::Tree::of(trip.dest()).beneath(), &trip);
    }
}

#[test]
fn a_single_file_of_any_edge_size_arrives_under_the_name_it_is_given() {
    for trip in Trip::each_way() {
        for size in [0, 1, SMALL, SMALL + 1, CHUNK, CHUNK + 1] {
            let (name, new) = (format!("f{size}"), format!("g{size}"));
            files::make(trip.source().join(&name), size as u64, size);
            let outcome = trip.send(&[], &[&name], &new);
            let event = outcome.file(&name);
            let told = (event["bytes"].as_u64(), event["target"].as_str(), event["status"].as_str());
            let placed = event["target"].as_str().unwrap();
            assert_eq!(told, (Some(size as u64), Some(placed), Some("committed")), "{trip}: {outcome}");
            assert!(placed == new || placed.ends_with(&format!("/{new}")), "{trip}: {outcome}");
            assert_eq!(event["b3"], files::b3sum(trip.dest().join(&new)), "{trip}: {outcome}");
            tree::assert_same(
                &tree::Tree::of(trip.source().join(&name)),
                &tree::Tree::of(trip.dest().join(&new)),
                format!("{trip}, {size} bytes"),
            );
        }
        assert_eq!(tree::leftovers(trip.dest()), [""; 0], "{trip}");
    }
}

#[test]
fn any_chunk_size_gives_the_same_digest() {
    let trip = Trip::each_way().next().unwrap();
    files::make(trip.source().join("f"), 9, (9 << 20) + 4097);
    let digest = files::b3sum(trip.source().join("f"));
    for chunk in ["1MiB", "2MiB", "4MiB", "8MiB", "16MiB"] {
        let outcome = trip.send(&["--chunk-size", chunk, "--memory", "128MiB"], &["f"], chunk);
        assert_eq!(outcome.file("f")["b3"], *digest, "{trip}, {chunk}: {outcome}");
        assert_eq!(files::b3sum(trip.dest().join(chunk)), digest, "{trip}, {chunk}");
    }
}

#[test]
fn one_lane_or_many_carry_the_same_bytes() {
    for trip in Trip::all() {
        files::make(trip.source().join("f"), 3, 6 * CHUNK + 13);
        for lanes in [1_u64, 2, 7] {
            let name = format!("g{lanes}");
            let outcome = trip.send(&["--lanes", &lanes.to_string()], &["f"], &name);
            assert_eq!(outcome.events()[0]["lanes"], lanes, "{trip}: {outcome}");
            assert_eq!(files::b3sum(trip.dest().join(&name)), files::b3sum(trip.source().join("f")), "{trip}, {lanes}");
        }
    }
}

/// The chunk size that the trips use.
const CHUNK: usize = 1 << 20;
/// Files up to this size travel in bundles (with chunks of 1 MiB).
const SMALL: usize = 256 << 10;
/// Sizes around 0, a block of the digest, a sector, a page, the largest bundled file, a chunk, and
/// several of them.
const SIZES: &[usize] = &[
    0,
    1,
    511,
    512,
    513,
    1023,
    1024,
    1025,
    4095,
    4096,
    4097,
    SMALL - 1,
    SMALL,
    SMALL + 1,
    CHUNK - 4096,
    CHUNK - 1,
    CHUNK,
    CHUNK + 1,
    CHUNK + 511,
    2 * CHUNK - 1,
    2 * CHUNK,
    2 * CHUNK + 1,
    5 * CHUNK + 1023,
];
