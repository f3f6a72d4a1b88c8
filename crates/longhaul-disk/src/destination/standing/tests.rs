//! Tests of standing files: they are read as they are, told apart from files that replaced them,
//! and changed only while they are the same version.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use longhaul_core::Mtime;
use longhaul_sys::Slab;

use super::*;
use crate::error::ErrorKind;
use crate::testing::{META, content, path};
use crate::{FsTarget, TargetTree};

const LEN: u64 = (1 << 20) + 5;

fn target() -> (tempfile::TempDir, FsTarget) {
    let dir = tempfile::tempdir().expect("tempdir");
    fs::write(dir.path().join("f"), content(LEN)).expect("a file");
    let target = FsTarget::open(dir.path(), DirectMode::Auto).expect("target");
    (dir, target)
}

fn read(target: &FsTarget, offset: u64, len: usize) -> Result<(Vec<u8>, Identity), DiskError> {
    let slab = Slab::new(1 << 20, 1).expect("slab");
    let mut slot = slab.claim().expect("slot");
    let (back, identity) = target.read_standing(&path("f"), offset, len, &mut slot)?;
    Ok((slot[..back.len].to_vec(), identity))
}

#[test]
fn pieces_of_any_length_are_read_and_are_of_one_version_as_long_as_nobody_writes() {
    let (dir, target) = target();
    let (whole, of) = read(&target, 0, 1 << 20).expect("read");
    let (tail, again) = read(&target, 1 << 20, 5).expect("read");
    assert_eq!([whole, tail].concat(), content(LEN));
    assert_eq!(of, again);
    fs::write(dir.path().join("other"), content(LEN)).expect("a file");
    fs::rename(dir.path().join("other"), dir.path().join("f")).expect("rename");
    assert_ne!(read(&target, 0, 5).expect("read").1, of);
    assert_eq!(
        target.retouch(&path("f"), &of, None, Preserve::default()).map_err(|e| e.kind()),
        Err(ErrorKind::Changed)
    );
}

#[test]
fn what_is_no_file_any_more_or_too_short_has_changed() {
    let (dir, target) = target();
    assert_eq!(read(&target, 1 << 20, 6).map_err(|e| e.kind()), Err(ErrorKind::Changed));
    let kind = |what: &str| {
        let found = read(&target, 0, 5).map_err(|e| e.kind());
        fs::remove_file(dir.path().join("f")).expect(what);
        found.expect_err(what)
    };
    fs::rename(dir.path().join("f"), dir.path().join("g")).expect("rename");
    symlink("g", dir.path().join("f")).expect("link");
    assert_eq!(kind("a link"), ErrorKind::Changed);
    rustix::fs::mkfifoat(rustix::fs::CWD, dir.path().join("f"), Mode::RUSR | Mode::WUSR).expect("fifo");
    assert_eq!(kind("a fifo"), ErrorKind::Changed);
    assert_eq!(read(&target, 0, 5).map_err(|e| e.kind()), Err(ErrorKind::Changed));
}

#[test]
fn mode_and_time_are_set_where_they_are_wanted_and_differ() {
    let (dir, target) = target();
    let (_, of) = read(&target, 0, 5).expect("read");
    target.retouch(&path("f"), &of, None, Preserve::default()).expect("the same");
    let stat = || fs::metadata(dir.path().join("f")).expect("stat");
    assert_ne!(stat().mtime(), META.mtime.secs, "touched without being asked to");
    target.retouch(&path("f"), &of, Some(&META), Preserve::default()).expect("touched");
    assert_eq!((stat().mtime(), stat().mtime_nsec()), (META.mtime.secs, META.mtime.nanos.into()));
    assert_eq!(stat().permissions().mode() & 0o777, META.mode);
    let (_, of) = read(&target, 0, 5).expect("read");
    let before = stat().ctime_nsec();
    target.retouch(&path("f"), &of, Some(&META), Preserve::default()).expect("nothing to do");
    assert_eq!(stat().ctime_nsec(), before, "touched though nothing differs");
    let later = Meta::new(0o600, Mtime { secs: 5, nanos: 0 });
    let none = Preserve { mode: false, times: false, ..Preserve::default() };
    target.retouch(&path("f"), &of, Some(&later), none).expect("nothing to do");
    assert_eq!(stat().ctime_nsec(), before, "touched though nothing is preserved");
}

#[test]
fn a_file_of_several_names_keeps_its_mode_and_time() {
    let (dir, target) = target();
    fs::hard_link(dir.path().join("f"), dir.path().join("snapshot")).expect("a link");
    let (_, of) = read(&target, 0, 5).expect("read");
    let stat = || fs::metadata(dir.path().join("snapshot")).expect("stat");
    let before = (stat().mode(), stat().mtime(), stat().ctime_nsec());
    target.retouch(&path("f"), &of, Some(&META), Preserve::default()).expect("left as it is");
    assert_eq!((stat().mode(), stat().mtime(), stat().ctime_nsec()), before);
    fs::remove_file(dir.path().join("snapshot")).expect("removed");
    let (_, of) = read(&target, 0, 5).expect("read");
    target.retouch(&path("f"), &of, Some(&META), Preserve::default()).expect("touched");
    assert_eq!(fs::metadata(dir.path().join("f")).expect("stat").mtime(), META.mtime.secs);
}
