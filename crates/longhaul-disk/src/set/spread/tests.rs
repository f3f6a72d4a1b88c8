//! Tests of receiving into a set: where files go, which directories are made, and names that stand
//! on two targets.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use longhaul_core::Mtime;

use super::*;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::sync::Mutex;

use longhaul_core::FaultCode;
use longhaul_sys::Slab;

use crate::kernel::{Call, InodeId, Interposer, Kernel, Passage};
use crate::set::{Marks, SameDevice, TargetDirs, Writing};
use crate::testing::{META, content, map, path, temp, write};
use crate::{ChunkIo, EngineKind};

const KEEP: Preserve = Preserve::EVERYTHING.without_extras();

struct Scene {
    _top: tempfile::TempDir,
    dirs: Vec<PathBuf>,
    set: Arc<TargetSet>,
}

impl Scene {
    fn new(count: usize) -> Scene {
        let top = tempfile::tempdir().expect("scratch");
        let dirs: Vec<PathBuf> = (0..count).map(|n| top.path().join(format!("d{n}"))).collect();
        dirs.iter().for_each(|dir| std::fs::create_dir(dir).expect("made"));
        let named = TargetDirs { same_device: SameDevice::Allowed, ..TargetDirs::set(dirs.clone()) };
        let set = TargetSet::open(&named, Marks::Made, Writing::Wanted).expect("a set");
        Scene { _top: top, dirs, set }
    }

    fn target(&self) -> SpreadTarget {
        SpreadTarget::beneath(&self.set, &RelPath::root(), DirectMode::Auto, TreePolicy::default()).expect("opened")
    }

    /// The places of the targets on which a path stands.
    fn on(&self, at: &str) -> Vec<usize> {
        let stands = |dir: &PathBuf| dir.join(at).symlink_metadata().is_ok();
        (0..self.dirs.len()).filter(|n| stands(&self.dirs[*n])).collect()
    }
}

fn put(target: &SpreadTarget, at: &str, bytes: &[u8], replace: Replace) -> Result<(), DiskError> {
    publish(target, target.write_small(&path(at), bytes, &META, KEEP)?, replace)
}

fn publish(target: &SpreadTarget, staged: Staged, replace: Replace) -> Result<(), DiskError> {
    target.barrier(&[&staged])?;
    target.publish(&staged, replace)?;
    target.sync_dirs(&[staged])
}

/// Names in a directory that are not of the set itself.
fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.filter(|name| name != ".longhaul-set").collect();
    names.sort();
    names
}

#[test]
fn files_that_are_open_at_a_time_go_to_different_targets_and_one_that_stands_keeps_its_own() {
    let scene = Scene::new(3);
    let target = scene.target();
    let files: Vec<_> =
        (0..3).map(|n| target.create(&path(format!("f{n}")), map(1 << 20), false, &temp()).expect("made")).collect();
    let mut homes: Vec<_> = files.iter().map(|file| file.home().0).collect();
    homes.sort_unstable();
    assert_eq!(homes, [0, 1, 2], "each is busy with one");
    for file in files {
        let staged = target.seal(file, &META, KEEP).expect("sealed");
        publish(&target, staged, Replace::Never).expect("published");
    }
    for at in ["f0", "f1", "f2"] {
        let before = scene.on(at);
        assert_eq!(before.len(), 1);
        put(&target, at, b"new", Replace::Allowed).expect("replaced");
        assert_eq!(scene.on(at), before, "{at}");
        assert_eq!(std::fs::read(scene.dirs[before[0]].join(at)).expect("there"), b"new");
    }
}

#[test]
fn directories_are_made_where_files_need_them_with_the_same_mode_and_time_everywhere() {
    let scene = Scene::new(3);
    let target = scene.target();
    for dir in ["a", "a/b", "empty"] {
        assert_eq!(target.make_dir(&path(dir)).expect("made"), Made::Created);
    }
    assert_eq!((scene.on("a/b").len(), scene.on("empty").len()), (1, 1));
    let open: Vec<_> = (0..3)
        .map(|n| target.write_small(&path(format!("a/b/f{n}")), &[7; 99], &META, KEEP).expect("staged"))
        .collect();
    open.into_iter().for_each(|staged| publish(&target, staged, Replace::Never).expect("published"));
    assert_eq!(scene.on("a/b"), [0, 1, 2]);
    let meta = Meta::new(0o751, Mtime::said(1_000_000, 5));
    for dir in ["a/b", "a", "empty"] {
        target.finish_dir(&path(dir), &meta, KEEP).expect("finished");
    }
    for dir in ["a/b", "a", "empty"] {
        for on in scene.on(dir) {
            let found = scene.dirs[on].join(dir).metadata().expect("there");
            assert_eq!(found.permissions().mode() & 0o7777, 0o751, "{dir} on {on}");
            assert_eq!(std::os::unix::fs::MetadataExt::mtime(&found), 1_000_000, "{dir} on {on}");
        }
    }
    // What stands on all of them is opened on all of them.
    assert_eq!(target.make_dir(&path("a/b")).expect("stands"), Made::Stood);
    target.finish_dir(&path("a/b"), &Meta { mode: 0o700, ..meta }, KEEP).expect("finished");
    for dir in &scene.dirs {
        assert_eq!(dir.join("a/b").metadata().expect("there").permissions().mode() & 0o777, 0o700);
    }
}

#[test]
fn a_directory_that_is_needed_on_one_more_target_later_is_like_the_others() {
    let scene = Scene::new(2);
    let target = scene.target();
    let busy = target.create(&path("busy"), map(64 << 20), false, &temp()).expect("made").home().0 as usize;
    std::fs::create_dir(scene.dirs[busy].join("old")).expect("made");
    std::fs::set_permissions(scene.dirs[busy].join("old"), PermissionsExt::from_mode(0o750)).expect("set");
    let _busy = scene.set.targets()[busy].load.begin(64 << 20);
    // The directory is not among those that this session opened.
    put(&target, "old/f", b"x", Replace::Never).expect("put");
    assert_eq!((scene.on("old/f"), scene.on("old")), (vec![1 - busy], vec![0, 1]));
    let mode = scene.dirs[1 - busy].join("old").metadata().expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o750);
}

#[test]
fn a_name_on_two_targets_is_refused_and_neither_of_its_files_is_touched() {
    let scene = Scene::new(3);
    for (on, text) in [(0, "one"), (2, "two")] {
        std::fs::write(scene.dirs[on].join("f"), text).expect("written");
    }
    std::fs::create_dir(scene.dirs[0].join("d")).expect("made");
    std::fs::write(scene.dirs[1].join("d"), "file").expect("written");
    let target = scene.target();
    for (at, first, second) in [("f", 0, 2), ("d", 0, 1)] {
        let refused = |error: DiskError| match error {
            DiskError::TwoTargets { first: one, second: other, .. } => {
                assert_eq!((one, other), (first, second), "{at}")
            }
            other => panic!("{at}: {other}"),
        };
        refused(target.examine(&path(at)).expect_err("two"));
        refused(put(&target, at, b"new", Replace::Allowed).expect_err("two"));
        refused(target.make_dir(&path(at)).expect_err("two"));
    }
    assert_eq!(std::fs::read(scene.dirs[0].join("f")).expect("there"), b"one");
    assert_eq!(std::fs::read(scene.dirs[2].join("f")).expect("there"), b"two");
    assert_eq!(names(&scene.dirs[1]), ["d"]);
}

#[test]
fn of_two_sessions_that_send_one_name_the_second_does_not_make_it_stand_twice() {
    let scene = Scene::new(2);
    let (one, other) = (scene.target(), scene.target());
    let early = one.write_small(&path("f"), b"early", &META, KEEP).expect("staged");
    let late = other.write_small(&path("f"), b"late", &META, KEEP).expect("staged");
    assert_ne!(early.home(), late.home(), "the first one made its target busy");
    publish(&one, early, Replace::Allowed).expect("published");
    let refused = publish(&other, late, Replace::Allowed).expect_err("it stands on the other target");
    assert_eq!(refused.kind(), ErrorKind::TwoTargets);
    assert_eq!(scene.on("f").len(), 1);
    assert!(names(&scene.dirs[1]).len() + names(&scene.dirs[0]).len() == 1, "no temporary is left");
}

#[test]
fn a_destination_that_stands_on_one_target_is_as_private_on_the_others() {
    let scene = Scene::new(3);
    std::fs::create_dir_all(scene.dirs[1].join("private/deep")).expect("made");
    std::fs::set_permissions(scene.dirs[1].join("private"), PermissionsExt::from_mode(0o700)).expect("set");
    SpreadTarget::beneath(&scene.set, &path("private/deep"), DirectMode::Auto, TreePolicy::default()).expect("opened");
    for dir in &scene.dirs {
        let mode = |at: &str| dir.join(at).metadata().expect("made").permissions().mode() & 0o777;
        assert_eq!(mode("private"), 0o700, "{}", dir.display());
    }
}

#[test]
fn a_directory_that_keeps_its_mode_has_it_on_targets_where_it_is_made_now() {
    let scene = Scene::new(2);
    std::fs::create_dir(scene.dirs[0].join("d")).expect("made");
    std::fs::set_permissions(scene.dirs[0].join("d"), PermissionsExt::from_mode(0o710)).expect("set");
    for (target, preserve) in
        [(scene.target().keeping_standing_dirs(), KEEP), (scene.target(), Preserve { mode: false, ..KEEP })]
    {
        let _ = std::fs::remove_dir_all(scene.dirs[1].join("d"));
        target.make_dir(&path("d")).expect("stands");
        let _busy = scene.set.targets()[0].load.begin(64 << 20);
        put(&target, "d/f", b"x", Replace::Allowed).expect("put");
        assert_eq!(scene.on("d"), [0, 1]);
        target.finish_dir(&path("d"), &Meta::new(0o777, Mtime::said(5, 0)), preserve).expect("finished");
        for dir in &scene.dirs {
            assert_eq!(dir.join("d").metadata().expect("there").permissions().mode() & 0o777, 0o710);
        }
        for on in scene.on("d/f") {
            std::fs::remove_file(scene.dirs[on].join("d/f")).expect("there");
        }
    }
}

#[test]
fn a_temporary_whose_name_stands_on_another_target_by_now_is_begun_anew() {
    let scene = Scene::new(2);
    let name = temp();
    let home = scene.target().create(&path("f"), map(1 << 20), false, &name).expect("made").home().0 as usize;
    std::fs::write(scene.dirs[1 - home].join("f"), b"other").expect("written");
    let target = scene.target();
    let found = target.reopen(&path("f"), map(1 << 20), false, &name, &Journalled::default()).expect("looked");
    assert!(found.is_none());
    target.remove_temp(&path("f"), &name).expect("removed");
    assert_eq!(target.create(&path("f"), map(1 << 20), false, &temp()).expect("made").home().0 as usize, 1 - home);
}

#[test]
fn a_sparse_file_longer_than_any_target_is_begun() {
    let scene = Scene::new(2);
    let target = scene.target();
    assert!(target.create(&path("sparse"), map(1 << 42), true, &temp()).is_ok());
    assert_eq!(
        target.create(&path("whole"), map(1 << 60), false, &temp()).expect_err("no room").kind(),
        ErrorKind::NoSpace
    );
}

#[test]
fn a_temporary_is_found_again_on_the_target_where_it_lies() {
    let scene = Scene::new(3);
    let target = scene.target();
    let names: Vec<_> = (0..3).map(|_| temp()).collect();
    let homes: Vec<_> = (0..3)
        .map(|n| target.create(&path(format!("f{n}")), map(1 << 20), false, &names[n]).expect("made").home())
        .collect();
    let again = scene.target();
    for (n, home) in homes.into_iter().enumerate() {
        let at = path(format!("f{n}"));
        assert!(again.has_temp(&at, &names[n]).expect("looked"));
        let journalled = Journalled::default();
        let found = again.reopen(&at, map(1 << 20), false, &names[n], &journalled).expect("opened").expect("stands");
        assert_eq!(found.file.home(), home);
        drop(found);
        again.remove_temp(&at, &names[n]).expect("removed");
        assert!(!again.has_temp(&at, &names[n]).expect("looked"));
    }
}

/// A disk that answers each write with an error, once it is broken.
#[derive(Debug)]
struct BadDisk {
    top: InodeId,
    answer: Mutex<Option<Errno>>,
    /// Its directories and files, and the calls that make some.
    own: Mutex<(BTreeSet<InodeId>, BTreeSet<u64>, u64)>,
}

impl BadDisk {
    fn breaks(&self, errno: Errno) {
        *self.answer.lock().expect("no panic") = Some(errno);
    }
}

impl Interposer for BadDisk {
    fn begin(&self, call: &Call<'_>) -> Passage {
        let mut own = self.own.lock().expect("no panic");
        own.2 += 1;
        let token = own.2;
        let (is_own, makes) = match call {
            Call::MakeDir { dir, .. } | Call::Create { dir, .. } => (*dir == self.top || own.0.contains(dir), true),
            Call::Write { file, .. } => (own.0.contains(file), false),
            _ => (false, false),
        };
        match *self.answer.lock().expect("no panic") {
            Some(errno) if is_own => Passage::Answered(Err(errno)),
            _ => {
                if is_own && makes {
                    own.1.insert(token);
                }
                Passage::Made(token)
            }
        }
    }

    fn end(&self, token: u64, outcome: Result<Option<InodeId>, Errno>) {
        let mut own = self.own.lock().expect("no panic");
        if own.1.remove(&token)
            && let Ok(Some(made)) = outcome
        {
            own.0.insert(made);
        }
    }

    fn read_medium(&self, _file: InodeId, _offset: u64, _into: &mut [u8]) -> Option<usize> {
        None
    }

    fn file_system_type(&self) -> Option<u64> {
        None
    }
}

/// A scene whose target 1 is a disk that can break.
fn with_bad_disk() -> (Scene, Arc<BadDisk>) {
    let scene = Scene::new(3);
    let stat = std::fs::metadata(&scene.dirs[1]).expect("there");
    let top = InodeId { dev: stat.dev(), ino: stat.ino() };
    let disk = Arc::new(BadDisk { top, answer: Mutex::default(), own: Mutex::default() });
    let set = scene.set.behind(&Kernel::behind(disk.clone()));
    (Scene { set, ..scene }, disk)
}

/// Gives the other targets so much to do that the disk that can break is chosen.
fn prefer_bad_disk(scene: &Scene) {
    [0, 2].into_iter().for_each(|at| std::mem::forget(scene.set.targets()[at].load.begin(1 << 50)));
}

#[test]
fn a_target_that_fails_is_given_nothing_more_and_its_siblings_take_what_was_to_go_there() {
    for errno in [Errno::IO, Errno::ROFS] {
        let (scene, disk) = with_bad_disk();
        let target = scene.target();
        let slab = Slab::new(4 << 20, 1).expect("slab");
        let io = ChunkIo::start(EngineKind::Threads, 2, &slab).expect("engine");
        let bytes = content(1 << 20);
        let temps: Vec<_> = (0..3).map(|_| temp()).collect();
        let open: Vec<_> = (0..3)
            .map(|n| target.create(&path(format!("f{n}")), map(1 << 20), false, &temps[n]).expect("made"))
            .collect();
        let on_bad = open.iter().position(|file| file.home() == TargetId(1)).expect("one on each");
        put(&target, "stands", b"before", Replace::Never).expect("there");
        disk.breaks(errno);
        let mut slot = slab.try_claim().expect("a slot");
        slot[..bytes.len()].copy_from_slice(&bytes);
        let (_, result) = write(&io, &open[on_bad], 0, bytes.len(), slot);
        let fault = result.expect_err("it does not take it").fault();
        assert_eq!(fault.code, FaultCode::TargetFailed, "{fault}");
        assert_eq!(scene.set.targets()[1].load.condition(), TargetCondition::Failed);
        let at = path(format!("f{on_bad}"));
        let none = Journalled::default();
        drop(open);
        assert!(target.reopen(&at, map(1 << 20), false, &temps[on_bad], &none).expect("no error").is_none());
        // As another session of the same set does.
        let again = scene.target();
        for n in 0..9 {
            let file = again.create(&path(format!("g{n}")), map(1 << 20), false, &temp()).expect("made");
            assert_ne!(file.home(), TargetId(1));
            put(&again, &format!("small{n}"), b"x", Replace::Never).expect("it goes elsewhere");
            assert!(!scene.on(&format!("small{n}")).contains(&1));
        }
    }
}

#[test]
fn a_target_that_is_found_broken_when_a_file_is_made_passes_it_on_at_once() {
    let (scene, disk) = with_bad_disk();
    prefer_bad_disk(&scene);
    disk.breaks(Errno::IO);
    let target = scene.target();
    for n in 0..9 {
        put(&target, &format!("small{n}"), b"x", Replace::Never).expect("it goes elsewhere");
        target.make_dir(&path(format!("dir{n}"))).expect("made elsewhere");
    }
    assert_eq!(names(&scene.dirs[1]), [""; 0]);
    assert_eq!(scene.set.targets()[1].load.condition(), TargetCondition::Failed, "it was tried");
}

#[test]
fn files_that_were_committed_on_a_target_are_at_risk_once_it_fails() {
    let (scene, disk) = with_bad_disk();
    prefer_bad_disk(&scene);
    let target = SpreadTarget::beneath(&scene.set, &path("in"), DirectMode::Auto, TreePolicy::default());
    let target = target.expect("opened");
    for n in 0..9 {
        put(&target, &format!("f{n}"), b"x", Replace::Never).expect("there");
    }
    let at_risk = |n: usize| {
        let files = scene.set.targets()[n].load.take_at_risk()?;
        let mut names: Vec<String> = files.names().map(|name| name.escaped().to_string()).collect();
        names.sort();
        Some(names)
    };
    assert!((0..3).all(|n| at_risk(n).is_none()));
    disk.breaks(Errno::IO);
    put(&target, "another", b"x", Replace::Never).expect("it goes elsewhere");
    let there: Vec<String> = (0..9).map(|n| format!("in/f{n}")).filter(|at| scene.on(at) == [1]).collect();
    assert_eq!(there.len(), 9);
    assert_eq!((at_risk(0), at_risk(1), at_risk(2)), (None, Some(there), None));
}

#[test]
fn a_name_that_stands_on_a_target_that_failed_is_not_replaced_elsewhere() {
    let (scene, disk) = with_bad_disk();
    let target = scene.target();
    for n in 0..3 {
        put(&target, &format!("f{n}"), b"before", Replace::Never).expect("there");
        // The next file goes to another one.
        std::mem::forget(scene.set.targets()[n].load.begin(1 << 40));
    }
    let at = (0..3).map(|n| format!("f{n}")).find(|at| scene.on(at) == [1]).expect("one on each");
    disk.breaks(Errno::ROFS);
    let error = put(&target, &at, b"after", Replace::Allowed).expect_err("it stands on a disk that is read-only");
    assert_eq!(error.fault().code, FaultCode::Io, "{error}");
    assert_eq!(scene.on(&at), [1]);
    assert_eq!(std::fs::read(scene.dirs[1].join(&at)).expect("there"), b"before");
}

#[test]
fn a_target_that_is_full_passes_files_on_and_a_set_without_room_says_so() {
    let (scene, disk) = with_bad_disk();
    prefer_bad_disk(&scene);
    disk.breaks(Errno::NOSPC);
    let target = scene.target();
    for n in 0..9 {
        put(&target, &format!("small{n}"), b"x", Replace::Never).expect("it goes elsewhere");
    }
    assert_eq!(names(&scene.dirs[1]), [""; 0]);
    assert_eq!(scene.set.targets()[1].load.condition(), TargetCondition::Full);
    // Its siblings are full as well.
    for at in [0, 2] {
        let full: Result<(), DiskError> = Err(DiskError::call("write", &path("x"), Errno::NOSPC));
        let _ = scene.set.targets()[at].load.judged(full);
    }
    let full: Result<(), DiskError> = Err(DiskError::call("write", &path("x"), Errno::NOSPC));
    let error = scene.set.targets()[0].load.judged(full).expect_err("it stays one");
    assert_eq!(error.fault().code, FaultCode::NoSpace, "{error}");
}

#[test]
fn files_on_a_target_that_hangs_are_postponed_and_the_others_made_durable() {
    let scene = Scene::new(3);
    let target = scene.target();
    let staged: Vec<Staged> = (0..3)
        .map(|n| {
            let one = target.write_small(&path(format!("f{n}")), b"x", &META, Preserve::default()).expect("staged");
            // The next file goes to another one.
            std::mem::forget(scene.set.targets()[one.home().0 as usize].load.begin(1 << 40));
            one
        })
        .collect();
    let all: Vec<&Staged> = staged.iter().collect();
    let hanging = staged.iter().position(|one| one.home() == TargetId(1)).expect("one on each");
    let load = &scene.set.targets()[1].load;
    load.hangs(std::time::Duration::from_secs(3));
    assert_eq!(target.barrier(&all).expect("the others are durable"), [hanging]);
    assert_ne!(target.create(&path("g"), map(1), false, &temp()).expect("made").home(), TargetId(1));
    load.answered();
    assert_eq!(target.barrier(&all).expect("durable"), [0; 0]);
}

#[test]
fn a_probe_passes_only_at_the_target_that_it_was_and_if_that_takes_a_file() {
    let (scene, disk) = with_bad_disk();
    let set = scene.set.mark().expect("a set").set;
    let probe = |number| super::super::probe::of(&scene.set.targets()[1].tree, set, TargetId(number))();
    assert!(probe(1).is_ok());
    assert!(probe(0).is_err(), "it is another target");
    assert!(!names(&scene.dirs[1].join(".longhaul-set")).iter().any(|name| name == "probe"), "it leaves nothing");
    disk.breaks(Errno::IO);
    assert!(probe(1).is_err(), "it takes nothing");
    disk.breaks(Errno::NOSPC);
    let moved = scene.dirs[1].with_extension("away");
    std::fs::rename(&scene.dirs[1], &moved).expect("moved");
    std::fs::create_dir(&scene.dirs[1]).expect("another one");
    assert!(probe(1).is_err(), "another directory is in its place");
}
