//! Tests of moves between targets: each is stopped before each of its calls, and no name is lost,
//! changed or doubled for good.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::kernel::Kernel;
use crate::set::change::testing::Stops;
use crate::set::{Marks, SameDevice, SetLayout, TargetDirs, Writing};
use crate::testing::{content, once_let_go};

pub(in crate::set) struct Scene {
    _top: tempfile::TempDir,
    pub(in crate::set) dirs: Vec<PathBuf>,
    pub(in crate::set) named: TargetDirs,
}

/// A name as any reader of the set sees it: its content, mode and time.
type Names = BTreeMap<String, (Vec<u8>, u32, i64)>;

impl Scene {
    fn new(layout: SetLayout) -> Scene {
        let top = tempfile::tempdir().expect("scratch");
        let dirs: Vec<PathBuf> = (0..3).map(|n| top.path().join(format!("d{n}"))).collect();
        dirs.iter().for_each(|dir| std::fs::create_dir(dir).expect("made"));
        let (same_device, stripe_from) = (SameDevice::Allowed, 1 << 20);
        let named = TargetDirs { same_device, layout, stripe_from, ..TargetDirs::set(dirs.clone()) };
        TargetSet::open(&named, Marks::Made, Writing::Wanted).expect("a set");
        Scene { _top: top, dirs, named }
    }

    /// A scene with names of all kinds on target 0.
    fn filled() -> Scene {
        let scene = Scene::new(SetLayout::Spread);
        let at = |name: &str| scene.dirs[0].join(name);
        std::fs::create_dir_all(at("a/b")).expect("made");
        std::fs::create_dir(at("empty")).expect("made");
        std::fs::create_dir(scene.dirs[1].join("a")).expect("made");
        std::fs::set_permissions(at("a/b"), PermissionsExt::from_mode(0o750)).expect("set");
        for (name, len, mode) in [("large", (2 << 20) + 7, 0o640), ("a/b/small", 100, 0o755), ("a/nothing", 0, 0o600)] {
            std::fs::write(at(name), content(len)).expect("written");
            std::fs::set_permissions(at(name), PermissionsExt::from_mode(mode)).expect("set");
        }
        symlink("nowhere", at("a/link")).expect("made");
        std::fs::write(scene.dirs[1].join("a/other"), b"stays").expect("written");
        scene
    }

    pub(in crate::set) fn alone(&self) -> Arc<TargetSet> {
        once_let_go(|| TargetSet::open_alone(&self.named), Result::is_err).expect("opened")
    }

    /// Drains target 0. Returns what was moved, and what was left.
    fn drain(&self, set: &TargetSet, moving: Moving) -> (Vec<String>, Vec<DiskError>) {
        let wanted = Rebalance { drained: Some(self.dirs[0].clone()), rate: None };
        run(set, &wanted, moving)
    }

    /// All names, each of which stands once.
    fn names(&self) -> Names {
        let mut names = Names::new();
        for dir in &self.dirs {
            gather(dir, Path::new(""), &mut names);
        }
        names
    }

    fn leftovers(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for dir in &self.dirs {
            let mut dirs = vec![dir.clone()];
            while let Some(dir) = dirs.pop() {
                for entry in std::fs::read_dir(dir).expect("listed").map(|entry| entry.expect("an entry")) {
                    let name = entry.file_name().into_string().expect("text");
                    if entry.file_type().expect("a type").is_dir() && name != ".longhaul-set" {
                        dirs.push(entry.path());
                    }
                    if name.starts_with(".longhaul-") && name != ".longhaul-set" {
                        found.push(entry.path());
                    }
                }
            }
            found.extend(Some(dir.join(".longhaul-set/move")).filter(|record| record.exists()));
        }
        found
    }
}

fn run(set: &TargetSet, wanted: &Rebalance, moving: Moving) -> (Vec<String>, Vec<DiskError>) {
    let (mut moved, mut left) = (Vec::new(), Vec::new());
    let outcome = set.rebalance(wanted, moving, &mut |find| {
        match find {
            Moved::Moved { path, .. } => moved.push(path.escaped().to_string()),
            Moved::Left(error) => left.push(error),
        }
        ControlFlow::Continue(())
    });
    outcome.expect("looked");
    (moved, left)
}

fn gather(top: &Path, below: &Path, names: &mut Names) {
    for entry in std::fs::read_dir(top.join(below)).expect("listed").map(|entry| entry.expect("an entry")) {
        let name = entry.file_name().into_string().expect("text");
        let (path, stat) = (below.join(&name), entry.path().symlink_metadata().expect("examined"));
        if name.starts_with(".longhaul") {
            continue;
        }
        if stat.is_dir() {
            gather(top, &path, names);
            continue;
        }
        let bytes = match stat.is_symlink() {
            true => std::fs::read_link(entry.path()).expect("a link").into_os_string().into_encoded_bytes(),
            false => std::fs::read(entry.path()).expect("read"),
        };
        let before = names.insert(path.to_string_lossy().into_owned(), (bytes, stat.mode(), stat.mtime()));
        assert!(before.is_none(), "{} stands twice", path.display());
    }
}

#[test]
fn a_drained_target_is_empty_and_every_name_is_as_it_was() {
    let scene = Scene::filled();
    let before = scene.names();
    let time = |dir: &str| std::fs::metadata(scene.dirs[1].join(dir)).expect("there").mtime();
    let set = scene.alone();
    let (planned, left) = scene.drain(&set, Moving::Planned);
    assert_eq!((planned.len(), left.len()), (4, 0));
    assert_eq!(scene.names(), before);
    let of_a = time("a");
    let (moved, left) = scene.drain(&set, Moving::Done);
    assert_eq!((moved, left.len()), (planned, 0));
    assert_eq!(scene.names(), before);
    assert_eq!(time("a"), of_a);
    let rest: Vec<_> =
        std::fs::read_dir(&scene.dirs[0]).expect("listed").map(|one| one.expect("one").file_name()).collect();
    assert_eq!(rest, [".longhaul-set"]);
    let stands = |dir: &str| scene.dirs[1..].iter().find(|top| top.join(dir).is_dir()).map(|top| top.join(dir));
    assert!(stands("empty").is_some());
    assert_eq!(std::fs::metadata(stands("a/b").expect("there")).expect("there").mode() & 0o777, 0o750);
    assert_eq!(scene.drain(&set, Moving::Done).0.len(), 0);
}

#[test]
fn a_drain_that_stops_anywhere_loses_and_doubles_nothing_and_is_gone_on_with() {
    for calls in 0.. {
        let scene = Scene::filled();
        let before = scene.names();
        let set = scene.alone();
        let (_, left) = scene.drain(&set.behind(&Kernel::behind(Stops::after(calls))), Moving::Done);
        drop(set);
        // No name is lost at any moment: on one target at least each stands as it was.
        for (name, (bytes, ..)) in &before {
            let stands = |dir: &PathBuf| std::fs::read(dir.join(name)).is_ok_and(|found| found == *bytes);
            assert!(name == "a/link" || scene.dirs.iter().any(stands), "{calls}: {name}");
        }
        // Whoever opens the set to write to it ends the move.
        let opened = once_let_go(|| TargetSet::open(&scene.named, Marks::Made, Writing::Wanted), Result::is_err);
        drop(opened.expect("opened"));
        assert_eq!(scene.names(), before, "after {calls} calls");
        assert!(scene.leftovers().len() <= 1, "{:?}", scene.leftovers());
        let (_, again) = scene.drain(&scene.alone(), Moving::Done);
        assert!(again.is_empty(), "{again:?}");
        assert_eq!(scene.names(), before, "finished after {calls} calls");
        assert!(["large", "a", "empty"].iter().all(|name| scene.dirs[0].join(name).symlink_metadata().is_err()));
        if left.is_empty() && calls > 200 {
            break;
        }
    }
}

#[test]
fn a_name_that_was_changed_while_it_was_moved_is_left_alone() {
    let scene = Scene::filled();
    for calls in 0..60 {
        let set = scene.alone();
        let _ = scene.drain(&set.behind(&Kernel::behind(Stops::after(calls))), Moving::Done);
        drop(set);
        // While the move is interrupted, somebody writes to the original.
        let large = scene.dirs[0].join("large");
        if large.exists() {
            std::fs::write(&large, format!("newer {calls}")).expect("written");
            drop(scene.alone());
            let names = scene.names();
            assert_eq!(names["large"].0, format!("newer {calls}").into_bytes());
        }
    }
}

#[test]
fn what_would_not_be_the_same_stays() {
    let scene = Scene::filled();
    std::fs::hard_link(scene.dirs[0].join("large"), scene.dirs[0].join("second")).expect("linked");
    std::fs::create_dir_all(scene.dirs[1].join("a/b")).expect("made");
    std::fs::write(scene.dirs[1].join("a/b/small"), b"another").expect("written");
    let unfinished = scene.dirs[0].join("a/.longhaul-00000000000000000000000000000001");
    std::fs::write(&unfinished, b"a part").expect("written");
    let set = scene.alone();
    let (moved, left) = scene.drain(&set, Moving::Done);
    let taken = scene.dirs[2].join("a/b/small").exists() || !scene.dirs[0].join("a/b/small").exists();
    assert!(!taken, "a name that stands twice is not moved");
    assert_eq!(moved.len(), 2, "{moved:?}");
    assert_eq!(left.len(), 3, "{left:?}");
    assert!(unfinished.exists());
}

#[test]
fn targets_end_about_equally_full() {
    let scene = Scene::new(SetLayout::Spread);
    for n in 0..40 {
        std::fs::write(scene.dirs[0].join(format!("f{n}")), content(1 << 20)).expect("written");
    }
    let before = scene.names();
    let set = scene.alone();
    let (moved, left) = run(&set, &Rebalance::default(), Moving::Done);
    assert!((24..=28).contains(&moved.len()) && left.is_empty(), "{} {left:?}", moved.len());
    assert_eq!(scene.names(), before);
    let count = |dir: &PathBuf| std::fs::read_dir(dir).expect("listed").count() - 1;
    assert!(scene.dirs.iter().all(|dir| (11..=17).contains(&count(dir))));
    assert!(run(&set, &Rebalance::default(), Moving::Done).0.is_empty(), "once is enough");
}

pub(in crate::set) mod striped;
