//! Tests of opening sets: the right directories make one, and every wrong one is named before
//! anything is written.

use std::os::unix::fs::PermissionsExt;

use longhaul_core::RelPath;
use longhaul_core::limits::SET_DIR_NAME as DIR_NAME;

use super::*;

struct Scene {
    _top: tempfile::TempDir,
    dirs: Vec<PathBuf>,
}

fn scene(count: usize) -> Scene {
    let top = tempfile::tempdir().expect("scratch");
    let dirs: Vec<PathBuf> = (0..count).map(|n| top.path().join(format!("d{n}"))).collect();
    dirs.iter().for_each(|dir| std::fs::create_dir(dir).expect("made"));
    Scene { _top: top, dirs }
}

/// All of these directories lie on one file system, as tests need no disks.
fn named(dirs: &[PathBuf]) -> TargetDirs {
    TargetDirs { same_device: SameDevice::Allowed, ..TargetDirs::set(dirs.to_vec()) }
}

fn open(dirs: &[PathBuf]) -> Result<Arc<TargetSet>, SetError> {
    opened_with(&named(dirs), Marks::Made)
}

fn opened_with(dirs: &TargetDirs, marks: Marks) -> Result<Arc<TargetSet>, SetError> {
    TargetSet::open(dirs, marks, Writing::Wanted).map_err(|error| match error {
        DiskError::Set(error) => error,
        other => panic!("{other}"),
    })
}

fn mark(dir: &Path) -> Option<SetMark> {
    SetMark::read(Tree::open(dir).expect("there").root(), &dir.into()).expect("readable")
}

#[test]
fn directories_without_marks_become_a_set_that_is_found_again_from_any_of_them() {
    let scene = scene(3);
    let set = open(&scene.dirs).expect("a set");
    let marks: Vec<_> = scene.dirs.iter().map(|dir| mark(dir).expect("a mark")).collect();
    assert!(marks.iter().all(|mark| mark.set == marks[0].set && mark.count() == 3 && mark.generation == 1));
    assert_eq!(marks.iter().map(|mark| mark.number).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(set.mark(), Some(&marks[0]));
    let again = open(&scene.dirs).expect("the same set");
    assert_eq!(again.mark(), set.mark());
    for dir in &scene.dirs {
        assert_eq!(TargetDirs::of_target(dir).expect("named").dirs, scene.dirs);
    }
}

#[test]
fn nothing_is_written_where_marks_are_only_imagined_needed_or_anything_is_wrong() {
    let scene = scene(2);
    assert!(opened_with(&named(&scene.dirs), Marks::Imagined).is_ok());
    assert!(matches!(opened_with(&named(&scene.dirs), Marks::Needed), Err(SetError::NoSet { .. })));
    assert!(matches!(opened_with(&TargetDirs::set(scene.dirs.clone()), Marks::Made), Err(SetError::SameDevice { .. })));
    let twice = [scene.dirs[0].clone(), scene.dirs[0].clone()];
    assert!(matches!(open(&twice), Err(SetError::NamedTwice { .. })));
    std::fs::write(scene.dirs[1].join("other-data"), b"x").expect("written");
    assert!(matches!(open(&scene.dirs), Err(SetError::NotEmpty { .. })));
    let absent = [scene.dirs[0].clone(), scene.dirs[1].join("absent")];
    assert!(matches!(open(&absent), Err(SetError::Missing { .. })));
    assert!(scene.dirs.iter().all(|dir| mark(dir).is_none()));
}

#[test]
fn a_tree_that_stands_may_become_the_first_target() {
    let scene = scene(2);
    std::fs::write(scene.dirs[0].join("old"), b"x").expect("written");
    let set = open(&scene.dirs).expect("a set");
    assert!(set.stat(&RelPath::new("old").expect("a path")).expect("looked").is_some());
}

#[test]
fn disks_in_the_wrong_place_are_named_before_a_byte_is_written() {
    let (one, other) = (scene(3), scene(3));
    open(&one.dirs).expect("a set");
    open(&other.dirs).expect("another set");
    let exchanged = [one.dirs[0].clone(), one.dirs[2].clone(), one.dirs[1].clone()];
    assert!(matches!(open(&exchanged), Err(SetError::OtherPlace { number: 2, place: 1, .. })));
    let mixed = [one.dirs[0].clone(), other.dirs[1].clone(), one.dirs[2].clone()];
    assert!(matches!(open(&mixed), Err(SetError::OtherSet { .. })));
    let fewer = &one.dirs[..2];
    assert!(matches!(open(fewer), Err(SetError::OtherCount { count: 3, named: 2, .. })));
    // The old content of a disk, from before the set was changed.
    let old = mark(&one.dirs[1]).expect("a mark");
    let changed = SetMark { generation: 2, ..old.clone() };
    changed.write(Tree::open(&one.dirs[1]).expect("there").root(), &"d1".as_bytes().into()).expect("written");
    assert!(matches!(open(&one.dirs), Err(SetError::Generations { .. })));
}

#[test]
fn a_set_with_a_missing_target_is_used_as_its_operator_says() {
    let scene = scene(3);
    open(&scene.dirs).expect("a set");
    let path = RelPath::new("new").expect("a path");
    for gone in ["unmounted", "without its directory"] {
        match gone {
            "unmounted" => std::fs::remove_dir_all(scene.dirs[1].join(std::str::from_utf8(DIR_NAME).expect("text"))),
            _ => std::fs::remove_dir(&scene.dirs[1]),
        }
        .expect("removed");
        let rule = |on_missing| TargetDirs { on_missing, ..named(&scene.dirs) };
        assert!(matches!(opened_with(&rule(OnMissing::Refuse), Marks::Made), Err(SetError::Missing { .. })), "{gone}");
        for (on_missing, takes_new) in [(OnMissing::ReadOnly, false), (OnMissing::Continue, true)] {
            let set = opened_with(&rule(on_missing), Marks::Made).expect("usable");
            let missing: Vec<u32> = set.missing().iter().map(|target| target.id.0).collect();
            assert_eq!(missing, [1], "{gone}");
            assert_eq!(set.need_all_for_new_names().is_ok(), takes_new, "{gone}");
            assert_eq!(set.stat(&path).expect("looked"), None);
        }
    }
    assert!(mark(&scene.dirs[0]).is_some());
}

#[test]
fn a_mark_that_is_torn_or_a_link_is_no_mark() {
    for forged in [&b"longhaul target set mark 1\nset"[..], b""] {
        let scene = scene(2);
        open(&scene.dirs).expect("a set");
        let at = scene.dirs[1].join(".longhaul-set/mark");
        std::fs::write(&at, forged).expect("written");
        assert!(matches!(open(&scene.dirs), Err(SetError::BadMark { .. })));
        std::fs::remove_file(&at).expect("removed");
        std::os::unix::fs::symlink(scene.dirs[0].join(".longhaul-set/mark"), &at).expect("linked");
        assert!(matches!(open(&scene.dirs), Err(SetError::BadMark { .. })));
    }
}

#[test]
fn a_mark_that_another_user_can_have_written_is_none() {
    let scene = scene(2);
    open(&scene.dirs).expect("a set");
    let own = scene.dirs[1].join(".longhaul-set");
    for (at, kept) in [(own.join("mark"), 0o644), (own, 0o755)] {
        let mode = |mode| std::fs::set_permissions(&at, PermissionsExt::from_mode(mode)).expect("chmod");
        for open_to_others in [kept | 0o020, kept | 0o002] {
            mode(open_to_others);
            let refused = open(&scene.dirs).expect_err("forged");
            assert!(matches!(&refused, SetError::BadMark { why, .. } if why.contains("chmod go-w")), "{refused}");
        }
        mode(kept);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&at, Some(12345), None).expect("chown");
            let top = |mode| std::fs::set_permissions(&scene.dirs[1], PermissionsExt::from_mode(mode)).expect("chmod");
            top(0o755);
            open(&scene.dirs).expect("nobody but root can have put it there");
            top(0o1777);
            let refused = open(&scene.dirs).expect_err("forged");
            assert!(matches!(&refused, SetError::BadMark { why, .. } if why.contains("another user")), "{refused}");
            std::os::unix::fs::chown(&scene.dirs[1], Some(12345), None).expect("chown");
            open(&scene.dirs).expect("it belongs to whoever owns the target");
            top(0o755);
            for given in [&at, &scene.dirs[1]] {
                std::os::unix::fs::chown(given, Some(0), None).expect("chown");
            }
        }
    }
    open(&scene.dirs).expect("the set as it was");
}
