//! Tests of the making of a set: it is stopped before each of its calls, and gone on with.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::io::Errno;

use super::*;
use crate::kernel::Kernel;
use crate::set::change::testing::Stops;
use crate::set::open::look;
use crate::set::{Marks, SameDevice, TargetSet, Writing};
use crate::testing::once_let_go;

struct Scene {
    _top: tempfile::TempDir,
    named: TargetDirs,
}

fn scene(layout: SetLayout) -> Scene {
    let top = tempfile::tempdir().expect("scratch");
    let dirs: Vec<PathBuf> = (0..3).map(|n| top.path().join(format!("d{n}"))).collect();
    dirs.iter().for_each(|dir| std::fs::create_dir(dir).expect("made"));
    std::fs::write(dirs[0].join("old"), b"a tree that stood").expect("written");
    let named = TargetDirs { layout, same_device: SameDevice::Allowed, ..TargetDirs::set(dirs) };
    Scene { _top: top, named }
}

/// Makes a set, and stops after so many calls.
fn make_and_stop(named: &TargetDirs, calls: u32) -> bool {
    let kernel = Kernel::behind(Stops::after(calls));
    let (found, _) = look(&named.dirs).expect("looked");
    let behind = |(id, looked): (TargetId, Looked<'_>)| (id, looked.dir.to_owned(), looked.tree.behind(&kernel));
    let behind: Vec<_> = found.into_iter().map(behind).collect();
    let found: Vec<_> =
        behind.iter().map(|(id, dir, tree)| (*id, Looked { dir, tree: tree.clone(), mark: None })).collect();
    make(&found, named).is_ok()
}

fn opens(named: &TargetDirs, marks: Marks) -> Result<std::sync::Arc<TargetSet>, DiskError> {
    once_let_go(|| TargetSet::open(named, marks, Writing::Wanted), is_held)
}

fn is_held(answer: &Result<std::sync::Arc<TargetSet>, DiskError>) -> bool {
    matches!(answer, Err(DiskError::Set(SetError::Changing { .. } | SetError::InUse { .. })))
}

fn own(dir: &Path, name: &str) -> bool {
    dir.join(".longhaul-set").join(name).exists()
}

#[test]
fn a_set_whose_making_stops_anywhere_is_made_by_the_same_command() {
    for layout in [SetLayout::Spread, SetLayout::Stripe] {
        for calls in 0.. {
            let scene = scene(layout);
            let is_over = make_and_stop(&scene.named, calls);
            let is_made = scene.named.dirs.iter().any(|dir| own(dir, "mark"));
            let looked = opens(&scene.named, Marks::Needed);
            assert_eq!(looked.is_ok(), is_made, "{layout:?} {calls}: {looked:?}");
            if let Ok(set) = looked {
                assert!(set.missing().is_empty(), "{layout:?} {calls}");
            }
            let set = opens(&scene.named, Marks::Made).unwrap_or_else(|error| panic!("{layout:?} {calls}: {error}"));
            assert_eq!((set.targets().len(), set.missing().len()), (3, 0), "{layout:?} {calls}");
            assert_eq!(set.mark().map(|mark| mark.layout), Some(layout));
            drop(set);
            assert!(scene.named.dirs.iter().all(|dir| own(dir, "mark")), "{layout:?} {calls}");
            let set = once_let_go(|| TargetSet::open_alone(&scene.named), is_held);
            assert!(set.is_ok(), "{layout:?} {calls}: {set:?}");
            assert!(!scene.named.dirs.iter().any(|dir| own(dir, "mark.coming")), "{layout:?} {calls}");
            if is_over {
                assert!(calls > 20, "{calls}");
                break;
            }
        }
    }
}

#[test]
fn a_set_whose_making_stopped_is_changed_as_one_that_was_made() {
    for calls in 0.. {
        let scene = scene(SetLayout::Stripe);
        let is_over = make_and_stop(&scene.named, calls);
        let alone = once_let_go(|| TargetSet::open_alone(&scene.named), is_held);
        let is_made = scene.named.dirs.iter().any(|dir| own(dir, "mark"));
        assert_eq!(alone.is_ok(), is_made, "{calls}: {alone:?}");
        drop(alone);
        assert!(!is_made || scene.named.dirs.iter().all(|dir| own(dir, "mark")), "{calls}");
        if is_over {
            break;
        }
    }
}

#[test]
fn directories_of_a_set_that_was_not_made_become_targets_of_another_one() {
    for layout in [SetLayout::Spread, SetLayout::Stripe] {
        for calls in 0.. {
            let scene = scene(SetLayout::Stripe);
            make_and_stop(&scene.named, calls);
            if scene.named.dirs.iter().any(|dir| own(dir, "mark")) {
                assert!(calls > 20, "{calls}");
                break;
            }
            let dirs = [0, 2].map(|n| scene.named.dirs[n].clone()).to_vec();
            let other = TargetDirs { dirs, layout, ..scene.named.clone() };
            make_and_stop(&other, 9);
            let set = opens(&other, Marks::Made).unwrap_or_else(|error| panic!("{layout:?} {calls}: {error}"));
            assert_eq!(set.mark().map(|mark| (mark.layout, mark.count())), Some((layout, 2)), "{calls}");
        }
    }
}

#[test]
fn a_secret_that_no_making_has_left_is_never_replaced() {
    let scene = scene(SetLayout::Stripe);
    let secret = secret::new().expect("random");
    let tree = crate::tree::Tree::open(&scene.named.dirs[1]).expect("there");
    secret::write(tree.root(), &secret).expect("written");
    for layout in [SetLayout::Spread, SetLayout::Stripe] {
        let made = opens(&TargetDirs { layout, ..scene.named.clone() }, Marks::Made);
        assert!(matches!(made, Err(DiskError::Set(SetError::HasSecret { .. }))), "{made:?}");
    }
    // A body lies there by now, whose secret an interrupted making has.
    let scene = self::scene(SetLayout::Stripe);
    let mut calls = 0;
    while !own(&scene.named.dirs[1], "secret") {
        make_and_stop(&scene.named, calls);
        calls += 1;
    }
    let body = scene.named.dirs[1].join(".longhaul-set/bodies/.longhaul-00000000000000000000000000000001");
    std::fs::create_dir_all(body.parent().expect("a parent")).expect("made");
    std::fs::write(&body, b"x").expect("written");
    let others = [0, 1].map(|n| scene.named.dirs[n].clone()).to_vec();
    let made = opens(&TargetDirs { dirs: others, ..scene.named.clone() }, Marks::Made);
    assert!(matches!(made, Err(DiskError::Set(SetError::HasSecret { .. }))), "{made:?}");
    assert!(body.exists() && own(&scene.named.dirs[1], "secret"));
}

#[test]
fn a_secret_stays_where_it_cannot_be_said_that_there_are_no_bodies() {
    let scene = scene(SetLayout::Stripe);
    let tree = crate::tree::Tree::open(&scene.named.dirs[1]).expect("there");
    secret::write(tree.root(), &secret::new().expect("random")).expect("written");
    let bodies = scene.named.dirs[1].join(".longhaul-set/bodies");
    // Others may put bodies there: it is not opened.
    std::fs::set_permissions(&bodies, PermissionsExt::from_mode(0o722)).expect("set");
    assert_eq!(secret::remove(tree.root()), Err(Errno::PERM));
    assert!(own(&scene.named.dirs[1], "secret"));
    for is_made in [true, false] {
        if is_made {
            std::fs::set_permissions(&bodies, PermissionsExt::from_mode(0o700)).expect("set");
        }
        assert_eq!(secret::remove(tree.root()), Ok(()));
        assert!(!own(&scene.named.dirs[1], "secret") && !bodies.exists());
    }
}
