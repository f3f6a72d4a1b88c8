//! Tests of extras in a directory: what is set, what is fitted, what is lost and counted.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use longhaul_core::checksum::FileSums;
use longhaul_core::{Algorithm, Algorithms, Mtime, PartSums, XattrName};

use super::*;
use crate::destination::{FsTarget, TargetTree};
use crate::direct::DirectMode;
use crate::testing::{META, map, path, temp};
use crate::{Replace, TreePolicy};

const KEEP: Preserve = Preserve::EVERYTHING;

fn target() -> (tempfile::TempDir, FsTarget) {
    let dir = tempfile::tempdir().expect("tempdir");
    let target = FsTarget::open(dir.path(), DirectMode::Auto).expect("target");
    (dir, target)
}

fn xattr(name: &str, value: &[u8]) -> Xattr {
    Xattr { name: XattrName::try_from(name.as_bytes().to_vec()).expect("a name"), value: value.to_vec() }
}

fn having(xattrs: Vec<Xattr>) -> Meta {
    Meta { extras: Some(Arc::new(Extras { xattrs, ..Extras::default() })), ..META }
}

fn value(at: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 100];
    let len = fs::getxattr(at, name, &mut value[..]).ok()?;
    value.truncate(len);
    Some(value)
}

#[test]
fn files_have_their_attributes_before_their_names_and_keep_mode_and_times() {
    let (dir, target) = target();
    let meta = having(vec![xattr("user.a", b"1"), xattr("user.b", b"")]);
    let small = target.write_small(&path("small"), b"hello", &meta, KEEP).expect("write");
    let large = target.create(&path("large"), map(1_000_001), false, &temp()).expect("create");
    let large = target.seal(large, &meta, KEEP).expect("seal");
    let without = target.write_small(&path("without"), b"", &meta, KEEP.without_extras()).expect("write");
    for staged in [&small, &large, &without] {
        target.publish(staged, Replace::Never).expect("publish");
    }
    for name in ["small", "large"] {
        let at = dir.path().join(name);
        assert_eq!((value(&at, "user.a"), value(&at, "user.b")), (Some(b"1".to_vec()), Some(vec![])), "{name}");
        let stat = std::fs::metadata(&at).expect("stat");
        assert_eq!((stat.mode() & 0o7777, stat.mtime()), (0o640, META.mtime.secs), "{name}");
    }
    assert_eq!(value(&dir.path().join("without"), "user.a"), None);
    assert!(target.losses().is_empty());
}

#[test]
fn a_directory_loses_what_the_source_lacks_unless_the_source_could_not_be_read() {
    let (dir, target) = target();
    let at = dir.path().join("d");
    std::fs::create_dir(&at).expect("dir");
    for (incomplete, left) in [(true, Some(b"x".to_vec())), (false, None)] {
        fs::setxattr(&at, "user.stale", b"x", XattrFlags::empty()).expect("set");
        let extras = Extras { xattrs: vec![xattr("user.a", b"1")], incomplete, ..Extras::default() };
        target.make_dir(&path("d")).expect("made");
        let meta = Meta { mode: 0o750, extras: Some(Arc::new(extras)), ..META };
        target.finish_dir(&path("d"), &meta, KEEP).expect("finished");
        assert_eq!((value(&at, "user.stale"), value(&at, "user.a")), (left, Some(b"1".to_vec())), "{incomplete}");
        assert_eq!(std::fs::metadata(&at).expect("stat").mode() & 0o777, 0o750);
    }
}

#[test]
fn a_file_that_stands_is_written_to_only_where_something_differs_and_root_need_not_read_it() {
    let (dir, target) = target();
    let at = dir.path().join("f");
    // The kernel shows an ordinary user no attributes of a file that it may not read.
    let mode = if rustix::process::geteuid().is_root() { 0o200 } else { 0o600 };
    let meta = having(vec![xattr("user.a", b"1")]);
    let staged = target.write_small(&path("f"), b"x", &meta, KEEP).expect("write");
    target.publish(&staged, Replace::Never).expect("publish");
    std::fs::set_permissions(&at, std::fs::Permissions::from_mode(mode)).expect("mode");
    let is = || target.examine(&path("f")).expect("examined").expect("it stands").meta();
    let fit = |meta: &Meta| {
        let wanted = Meta { mode, ..meta.clone() };
        target.fit(&path("f"), &is(), &wanted, KEEP).expect("fitted");
        std::fs::metadata(&at).map(|stat| (stat.ctime(), stat.ctime_nsec())).expect("stat")
    };
    let before = std::fs::metadata(&at).map(|stat| (stat.ctime(), stat.ctime_nsec())).expect("stat");
    assert_eq!(fit(&meta), before);
    assert_ne!(fit(&having(vec![xattr("user.a", b"2"), xattr("user.b", b"3")])), before);
    std::fs::set_permissions(&at, std::fs::Permissions::from_mode(0o600)).expect("mode");
    assert_eq!((value(&at, "user.a"), value(&at, "user.b")), (Some(b"2".to_vec()), Some(b"3".to_vec())));
}

#[test]
fn kept_checksums_are_no_attribute_of_the_source_and_follow_the_time_of_what_stands() {
    let (dir, target) = target();
    let (at, wanted) = (dir.path().join("f"), Algorithms::NONE.with(Algorithm::Adler32));
    let mut part = PartSums::empty(wanted);
    part.update(b"x");
    let sums = Some(Arc::new(FileSums { len: 1, sums: part.sums() }));
    let foreign = having(vec![xattr("user.longhaul.checksum", b"1 len=1 mtime=0.0 adler32=00000000")]);
    let summing = Preserve { sums: wanted, ..KEEP };
    let staged = target.write_small(&path("f"), b"x", &Meta { sums, ..foreign.clone() }, summing).expect("write");
    target.publish(&staged, Replace::Never).expect("publish");
    let line = |mtime: Mtime| format!("1 len=1 mtime={}.{:09} adler32=00790079", mtime.secs, mtime.nanos).into_bytes();
    let kept = || value(&at, "user.longhaul.checksum");
    assert_eq!(kept(), Some(line(META.mtime)));
    // A second run that carries attributes, from a source that has one of this name or none.
    let is = || target.examine(&path("f")).expect("examined").expect("it stands").meta();
    for source in [having(vec![]), foreign.clone()] {
        target.fit(&path("f"), &is(), &source, KEEP).expect("fitted");
        assert_eq!(kept(), Some(line(META.mtime)));
    }
    // Its time is set once its bytes were found the same; and then it is written to by others.
    let identity = || target.read_standing(&path("f"), 0, 1, &mut [0; 4096]).expect("read").1;
    let later = Meta { mtime: Mtime { secs: META.mtime.secs + 5, ..META.mtime }, ..having(vec![]) };
    target.retouch(&path("f"), &identity(), Some(&later), KEEP).expect("touched");
    assert_eq!((is().mtime, kept()), (later.mtime, Some(line(later.mtime))));
    std::fs::write(&at, b"y").expect("write");
    target.retouch(&path("f"), &identity(), Some(&META), KEEP).expect("touched");
    assert_eq!((is().mtime, kept()), (META.mtime, Some(line(later.mtime))), "it is out of date, and says so");
    assert!(target.losses().is_empty());
}

#[test]
fn checksums_that_nobody_computed_fail_no_file_and_are_counted() {
    let (_dir, target) = target();
    let summing = Preserve { sums: Algorithms::NONE.with(Algorithm::Adler32), ..Preserve::default() };
    target.write_small(&path("f"), b"x", &META, summing).expect("write");
    let rows: Vec<_> = target.losses().rows().map(|row| (row.kind, row.reason, row.entries)).collect();
    assert_eq!(rows, [(LossKind::Checksums, LossReason::NotComputed, 1)]);
}

#[test]
fn what_a_policy_does_not_take_is_counted_and_fails_nothing() {
    let (dir, target) = target();
    let policy = TreePolicy { extras: ExtrasPolicy::NOTHING, ..TreePolicy::default() };
    let target = target.obeying(policy);
    let meta = having(vec![xattr("user.a", b"1")]);
    for name in ["a", "b"] {
        let staged = target.write_small(&path(name), b"", &meta, KEEP).expect("write");
        target.publish(&staged, Replace::Never).expect("publish");
    }
    assert_eq!(value(&dir.path().join("a"), "user.a"), None);
    let rows: Vec<_> = target.losses().rows().map(|loss| (loss.kind, loss.reason, loss.entries)).collect();
    assert_eq!(rows, [(LossKind::Xattrs, LossReason::Policy, 2)]);
}

#[test]
fn an_attribute_for_which_there_is_no_room_is_lost_and_an_error_of_the_disk_is_none() {
    for (error, want) in [
        (Errno::NOSPC, Some(LossReason::TooLong)),
        (Errno::TOOBIG, Some(LossReason::TooLong)),
        (Errno::OPNOTSUPP, Some(LossReason::Unsupported)),
        (Errno::PERM, Some(LossReason::Denied)),
        (Errno::IO, None),
        (Errno::ROFS, None),
    ] {
        assert_eq!(loss_of(error), want, "{error}");
    }
}
