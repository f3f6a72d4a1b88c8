//! Further names of files: what becomes one, what never does, and what is left behind.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use longhaul_core::{LossReason, Meta, Mtime, Preserve, RelPath};

use super::super::super::TargetTree;
use super::super::FsTarget;
use super::{NameBefore, NameMade, NamedBytes};
use crate::destination::Replace;
use crate::direct::DirectMode;

fn path(text: &str) -> RelPath {
    RelPath::new(text).expect("a path")
}

/// A destination with a file `d/first` in it.
fn with_a_file() -> (tempfile::TempDir, FsTarget) {
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir_all(dir.path().join("top/d")).expect("a directory");
    fs::write(dir.path().join("top/d/first"), "content").expect("a file");
    let target = FsTarget::open(&dir.path().join("top"), DirectMode::Auto).expect("a destination");
    (dir, target)
}

/// The reasons for which names were refused.
fn refused(target: &FsTarget) -> Vec<LossReason> {
    target.losses().rows().map(|loss| loss.reason).collect()
}

#[test]
fn a_name_is_staged_published_and_leaves_nothing_else() {
    let (dir, target) = with_a_file();
    let of = |name: &str| fs::metadata(dir.path().join("top").join(name)).expect("it stands").ino();
    let NameMade::Staged(staged) =
        target.make_name(&path("second"), &path("d/first"), &|_, _, _| Ok(NamedBytes::Standing))
    else {
        panic!("not made")
    };
    assert!(!dir.path().join("top/second").exists(), "it has a temporary name");
    target.barrier_of_all(&[&staged]).expect("durable");
    target.publish(&staged, Replace::Never).expect("a rename");
    target.sync_dirs(std::slice::from_ref(&staged)).expect("durable");
    assert_eq!(of("second"), of("d/first"));
    let names = || fs::read_dir(dir.path().join("top")).expect("a list").count();
    assert_eq!(names(), 2, "the temporary is gone");
    // It is one already; and a rename that does nothing leaves nothing either.
    let again = |fine: NameBefore| {
        let proof = |_: &_, _, before| if before == fine { Ok(NamedBytes::Durable) } else { Err(LossReason::Unproven) };
        target.make_name(&path("second"), &path("d/first"), &proof)
    };
    assert!(matches!(again(NameBefore::Same), NameMade::Stood));
    assert!(
        matches!(again(NameBefore::Other), NameMade::Refused),
        "it is one, and may be of another file than was meant"
    );
    fs::remove_file(dir.path().join("top/second")).expect("removed");
    let NameMade::Staged(staged) =
        target.make_name(&path("second"), &path("d/first"), &|_, _, _| Ok(NamedBytes::Standing))
    else {
        panic!("not made")
    };
    fs::hard_link(dir.path().join("top/d/first"), dir.path().join("top/second")).expect("a link");
    target.publish(&staged, Replace::Allowed).expect("a rename");
    assert_eq!((names(), of("second")), (2, of("d/first")));
    assert_eq!(refused(&target), [LossReason::Unproven], "once, above");
}

#[test]
fn nothing_becomes_a_name_of_what_was_not_let_have_one() {
    let (dir, target) = with_a_file();
    let top = dir.path().join("top");
    fs::write(dir.path().join("outside"), "another's").expect("a file");
    symlink("../outside", top.join("out")).expect("a link");
    symlink("first", top.join("d/to-first")).expect("a link");
    symlink("..", top.join("up")).expect("a link");
    fs::create_dir(top.join("dir")).expect("a directory");
    let fine = |_: &_, _, _| Ok(NamedBytes::Durable);
    for (first, want) in [
        ("out", LossReason::Changed),
        ("d/to-first", LossReason::Changed),
        ("up/outside", LossReason::Changed),
        ("dir", LossReason::Changed),
        ("nothing", LossReason::Changed),
        ("no/where", LossReason::Changed),
    ] {
        let (dir, target) = (&top, FsTarget::open(&top, DirectMode::Auto).expect("a destination"));
        let made = target.make_name(&path("second"), &path(first), &fine);
        assert!(matches!(made, NameMade::Refused), "{first}: {made:?}");
        assert_eq!(refused(&target), [want], "{first}");
        assert!(dir.join("second").symlink_metadata().is_err(), "{first}");
    }
    let made = target.make_name(&path("second"), &path("d/first"), &|_, _, _| Err(LossReason::Unproven));
    assert!(matches!(made, NameMade::Refused), "{made:?}");
    assert_eq!(refused(&target), [LossReason::Unproven]);
    assert_eq!(fs::metadata(top.join("d/first")).expect("it stands").nlink(), 1);
    assert_eq!(fs::metadata(dir.path().join("outside")).expect("it stands").nlink(), 1);
}

#[test]
fn a_file_that_takes_the_first_name_while_it_is_judged_gets_no_other_name() {
    let (dir, target) = with_a_file();
    let top = dir.path().join("top");
    fs::write(top.join("d/another"), "another's").expect("a file");
    let made = target.make_name(&path("second"), &path("d/first"), &|_, _, _| {
        fs::rename(top.join("d/another"), top.join("d/first")).expect("a rename");
        Ok(NamedBytes::Durable)
    });
    assert!(matches!(made, NameMade::Refused), "{made:?}");
    assert_eq!(refused(&target), [LossReason::Changed]);
    assert_eq!(fs::metadata(top.join("d/first")).expect("it stands").nlink(), 1, "no temporary is left");
}

#[test]
fn the_bytes_of_a_file_that_stood_are_durable_before_it_gets_another_name() {
    let (_dir, target) = with_a_file();
    let syncs = |name: &str, bytes: NamedBytes| {
        let before = target.sync_counts().fdatasync;
        let made = target.make_name(&path(name), &path("d/first"), &|_, _, _| Ok(bytes));
        assert!(matches!(made, NameMade::Staged(_)), "{made:?}");
        target.sync_counts().fdatasync - before
    };
    assert_eq!((syncs("second", NamedBytes::Standing), syncs("third", NamedBytes::Durable)), (1, 0));
}

#[test]
fn a_file_is_known_by_what_it_was_when_it_was_complete_if_it_has_several_names() {
    let (dir, target) = with_a_file();
    let meta = Meta::new(0o644, Mtime { secs: 9, nanos: 0 });
    let alone = target.write_small(&path("alone"), b"x", &meta, Preserve::default()).expect("written");
    assert_eq!(alone.identity(), None);
    let several = Meta { names: Some(Default::default()), ..meta };
    let staged = target.write_small(&path("one"), b"xyz", &several, Preserve::default()).expect("written");
    let identity = staged.identity().expect("it has several");
    assert_eq!((identity.len, identity.mtime), (3, Mtime { secs: 9, nanos: 0 }));
    target.publish(&staged, Replace::Never).expect("a rename");
    assert_eq!(identity.ino, fs::metadata(dir.path().join("top/one")).expect("it stands").ino());
}
