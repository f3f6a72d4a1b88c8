//! Tests of replaced targets: each replacement is stopped before each of its calls, and gone on
//! with.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use rustix::fs::FileType;
use rustix::process::geteuid;

use super::*;
use crate::kernel::Kernel;
use crate::set::change::testing::Stops;
use crate::set::rebalance::tests::Scene;
use crate::set::rebalance::tests::striped;
use crate::set::{Marks, SetLayout, TargetDirs, Writing};
use crate::set_id::SetId;
use crate::testing::once_let_go;

mod twice;

/// A set with a striped file, and names of all kinds on each target.
fn scene() -> (Scene, PathBuf) {
    let scene = striped::scene();
    for (n, dir) in scene.dirs.iter().enumerate() {
        let at = |name: &str| dir.join(name);
        fs::create_dir_all(at("deep/er")).expect("made");
        fs::create_dir(at(&format!("empty-{n}"))).expect("made");
        fs::write(at(&format!("deep/er/file-{n}")), vec![n as u8; 5000]).expect("written");
        fs::set_permissions(at(&format!("deep/er/file-{n}")), PermissionsExt::from_mode(0o4751)).expect("set");
        fs::hard_link(at(&format!("deep/er/file-{n}")), at(&format!("deep/link-{n}"))).expect("linked");
        symlink("nowhere", at(&format!("deep/symlink-{n}"))).expect("made");
        fs::write(at(&format!("deep/kind-{n}")), b"a file").expect("written");
        fs::create_dir(at(&format!("deep/sort-{n}"))).expect("made");
        fs::write(at(&format!("deep/sort-{n}/file")), b"in a directory").expect("written");
        fs::write(at(&format!("deep/er/.longhaul-0000000000000000000000000000000{n}")), b"unfinished")
            .expect("written");
        fs::create_dir_all(at(".longhaul")).expect("made");
        fs::write(at(".longhaul/journal"), b"a journal").expect("written");
        fs::set_permissions(at("deep/er"), PermissionsExt::from_mode(0o2550)).expect("set");
    }
    let new = scene.dirs[0].with_extension("new");
    fs::create_dir(&new).expect("made");
    (scene, new)
}

/// Names with their modes, times, number of names and digests. Those of the set's own are told
/// where they are copied.
fn names(top: &Path) -> Vec<String> {
    let (mut found, mut todo) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(top.join(&dir)).expect("listed").map(|one| one.expect("one")) {
            let (path, stat) = (dir.join(entry.file_name()), entry.path().symlink_metadata().expect("there"));
            let is_own = path.starts_with(".longhaul-set") && !path.starts_with(".longhaul-set/bodies");
            let is_dir_of_own = path == Path::new(".longhaul-set") || path == Path::new(".longhaul-set/bodies");
            let is_temp = entry.file_name().to_string_lossy().starts_with(".longhaul-0000");
            if stat.is_dir() {
                todo.push(path.clone());
            }
            if is_own || is_dir_of_own || is_temp || path.ends_with("README") || path == Path::new(".longhaul") {
                continue;
            }
            let content = match (stat.is_dir(), stat.is_symlink()) {
                (true, _) => Vec::new(),
                (_, true) => fs::read_link(entry.path()).expect("a link").into_os_string().into_encoded_bytes(),
                _ => fs::read(entry.path()).expect("read"),
            };
            let links = if stat.is_dir() { 0 } else { stat.nlink() };
            let digest = &blake3::hash(&content).to_hex()[..16];
            let (mode, time) = (stat.mode(), stat.mtime());
            found.push(format!("{} {mode:o} {time} {links} {} {digest}", path.display(), content.len()));
        }
    }
    found.sort();
    found
}

fn wanted(scene: &Scene, n: usize, new: &Path) -> Replacement {
    let (old, same_device) = (scene.dirs[n].clone(), SameDevice::Allowed);
    Replacement { old, new: new.to_owned(), same_device, state: OldTarget::Readable, rate: None }
}

fn open(wanted: &Replacement) -> Result<Arc<TargetSet>, DiskError> {
    let named = TargetDirs::set(vec![wanted.old.clone(), wanted.new.clone()]);
    let is_held = |answer: &Result<_, DiskError>| matches!(answer, Err(DiskError::Set(SetError::InUse { .. })));
    once_let_go(|| TargetSet::open_to_replace(&named, (&wanted.old, wanted.state)), is_held)
}

/// Replaces; returns how it ended and what was left.
fn run(set: &TargetSet, wanted: &Replacement, moving: Moving) -> Result<(ReplaceEnd, Vec<DiskError>), DiskError> {
    let mut left = Vec::new();
    let end = set.replace_target(wanted, moving, &mut |find| {
        if let Replaced::Left(error) = find {
            left.push(error);
        }
        ControlFlow::Continue(())
    })?;
    Ok((end, left))
}

/// The set with the new directory in the place of the old one.
fn reopened(scene: &Scene, n: usize, new: &Path) -> Arc<TargetSet> {
    let mut dirs = scene.dirs.clone();
    dirs[n] = new.to_owned();
    let named = TargetDirs { dirs, ..scene.named.clone() };
    let opened = once_let_go(|| TargetSet::open(&named, Marks::Needed, Writing::Wanted), Result::is_err);
    opened.expect("the new one is a target")
}

#[test]
fn the_new_target_has_all_that_the_old_one_has_and_the_old_one_is_none_any_more() {
    for n in 0..3 {
        let (scene, new) = scene();
        let before = names(&scene.dirs[n]);
        let wanted = wanted(&scene, n, &new);
        let set = open(&wanted).expect("opened");
        let planned = run(&set, &wanted, Moving::Planned).expect("planned");
        assert_eq!((planned.0, planned.1.len()), (ReplaceEnd::Planned, 0));
        assert_eq!(fs::read_dir(&new).expect("listed").count(), 0, "a plan writes nothing");
        let done = run(&set, &wanted, Moving::Done).expect("done");
        assert_eq!((done.0, done.1.len()), (ReplaceEnd::Done, 0), "{done:?}");
        drop(set);
        assert_eq!(names(&new), before, "{n}");
        assert_eq!(names(&scene.dirs[n]), before, "the old one keeps all");
        let set = reopened(&scene, n, &new);
        assert_eq!((set.targets().len(), set.missing().len()), (3, 0));
        striped::need_whole(&set, "replaced");
        assert_eq!(set.mark().map(|mark| mark.generation), Some(2));
        drop(set);
        assert!(matches!(TargetDirs::of_target(&scene.dirs[n]), Err(DiskError::Set(SetError::NoSet { .. }))));
        // With the old one in its place a target is missing.
        let old = TargetSet::open(&scene.named, Marks::Needed, Writing::Wanted);
        assert!(old.is_ok_and(|set| set.missing().len() == 1));
        let made = TargetSet::open(
            &TargetDirs { dirs: vec![scene.dirs[n].clone(), scene.dirs[n].with_extension("x")], ..scene.named.clone() },
            Marks::Made,
            Writing::Wanted,
        );
        assert!(made.is_err());
        let again = run(&open(&wanted).expect("opened"), &wanted, Moving::Done).expect("again");
        assert_eq!(again.0, ReplaceEnd::Done);
    }
}

#[test]
fn a_replacement_that_stops_anywhere_is_gone_on_with() {
    std::thread::scope(|scope| {
        for first in 0..WORKERS {
            scope.spawn(move || (first..).step_by(WORKERS as usize).find(|calls| stopped_after(*calls)));
        }
    });
}

/// Stops after so many calls, lets others change the set if they can, and goes on. Returns whether
/// it was over before.
fn stopped_after(calls: u32) -> bool {
    let n = (calls % 3) as usize;
    let (scene, new) = scene();
    let wanted = wanted(&scene, n, &new);
    let set = open(&wanted).expect("opened");
    let outcome = run(&set.behind(&Kernel::behind(Stops::after(calls))), &wanted, Moving::Done);
    let is_over = matches!(outcome, Ok((ReplaceEnd::Done, _)));
    drop(set);
    let is_held = |answer: &Result<_, DiskError>| matches!(answer, Err(DiskError::Set(SetError::Changing { .. })));
    let used = once_let_go(|| TargetSet::open(&scene.named, Marks::Needed, Writing::Wanted), is_held);
    match used.as_ref().map(|set| set.missing().len()) {
        // It is what it was, and is changed.
        Ok(0) => {
            let at = |name: &str| scene.dirs[n].join(name);
            fs::set_permissions(at("deep/er"), PermissionsExt::from_mode(0o700)).expect("set");
            fs::remove_dir(at(&format!("empty-{n}"))).expect("removed");
            fs::remove_file(at(&format!("deep/link-{n}"))).expect("removed");
            fs::write(at(&format!("deep/er/file-{n}")), b"other").expect("written");
            fs::create_dir(at(&format!("deep/symlink-{n}.d"))).expect("made");
            fs::write(at(&format!("deep/symlink-{n}.d/new")), b"new").expect("written");
            // A file becomes a directory, and a directory a file.
            fs::remove_file(at(&format!("deep/kind-{n}"))).expect("removed");
            fs::create_dir(at(&format!("deep/kind-{n}"))).expect("made");
            fs::write(at(&format!("deep/kind-{n}/file")), b"in a directory").expect("written");
            fs::remove_dir_all(at(&format!("deep/sort-{n}"))).expect("removed");
            fs::write(at(&format!("deep/sort-{n}")), b"a file").expect("written");
        }
        // Its new target stands, but for the last steps.
        Ok(_) => {}
        Err(error) => assert!(matches!(error, DiskError::Set(SetError::Generations { .. })), "{calls}: {error}"),
    }
    drop(used);
    let expected = names(&scene.dirs[n]);
    let again = run(&open(&wanted).unwrap_or_else(|error| panic!("{calls}: {error}")), &wanted, Moving::Done);
    let (end, left) = again.unwrap_or_else(|error| panic!("{calls}: {error}"));
    assert_eq!((end, left.len()), (ReplaceEnd::Done, 0), "{calls}: {left:?}");
    assert_eq!(names(&new), expected, "{calls}");
    striped::need_whole(&reopened(&scene, n, &new), &format!("{calls} calls"));
    assert!(!scene.dirs[n].join(".longhaul-set/mark").exists(), "{calls}");
    assert!(!new.join(".longhaul-set/mark.coming").exists(), "{calls}");
    is_over
}

/// Threads that stop replacements, each after other numbers of calls.
const WORKERS: u32 = 8;

#[test]
fn what_was_copied_before_is_kept_unless_it_may_have_been_changed_since() {
    let (scene, new) = scene();
    let wanted = wanted(&scene, 1, &new);
    let set = open(&wanted).expect("opened");
    // It copies everything, and fails before the marks.
    fs::write(scene.dirs[1].join("z"), b"z").expect("written");
    assert!(rustix::fs::mknodat(rustix::fs::CWD, scene.dirs[1].join("fifo"), FileType::Fifo, Mode::RWXU, 0).is_ok());
    let open_end = run(&set, &wanted, Moving::Done).expect("copied");
    assert_eq!((open_end.0, open_end.1.len()), (ReplaceEnd::Open, 1));
    let (copy, since) = (new.join("z"), new.join(".longhaul-set/mark.coming"));
    let time = fs::metadata(&copy).expect("there").modified().expect("a time");
    for (began, kept) in [(Duration::from_secs(3600), true), (Duration::ZERO, false)] {
        fs::write(&copy, b"Z").expect("written");
        fs::File::options().write(true).open(&copy).expect("open").set_modified(time).expect("set");
        let file = fs::File::options().write(true).open(&since).expect("open");
        file.set_modified(SystemTime::now() + began).expect("set");
        run(&set, &wanted, Moving::Done).expect("copied");
        assert_eq!(fs::read(&copy).expect("read") == b"Z", kept, "{began:?}");
    }
    // What cannot be copied is given up if that is said.
    drop(set);
    let wanted = Replacement { state: OldTarget::Failing, ..wanted };
    let done = run(&open(&wanted).expect("opened"), &wanted, Moving::Done).expect("copied");
    assert_eq!((done.0, done.1.len()), (ReplaceEnd::Done, 1));
    assert_eq!(reopened(&scene, 1, &new).missing().len(), 0);
}

#[test]
fn journals_that_cannot_be_listed_are_left_as_any_other_name() {
    let (scene, new) = scene();
    fs::remove_dir_all(scene.dirs[1].join(".longhaul")).expect("removed");
    fs::write(scene.dirs[1].join(".longhaul"), b"no directory").expect("written");
    for (state, end) in [(OldTarget::Readable, ReplaceEnd::Open), (OldTarget::Failing, ReplaceEnd::Done)] {
        let wanted = Replacement { state, ..wanted(&scene, 1, &new) };
        let done = run(&open(&wanted).expect("opened"), &wanted, Moving::Done).expect("copied");
        assert_eq!((done.0, done.1.len()), (end, 1), "{state:?}: {:?}", done.1);
        assert!(new.join("deep/er/file-1").exists(), "{state:?}");
    }
}

#[test]
fn a_plan_leaves_what_another_set_was_to_have_in_the_new_directory() {
    let (scene, new) = scene();
    let (wanted, places) = (wanted(&scene, 1, &new), vec![new.clone(), new.with_extension("other")]);
    let set = open(&wanted).expect("opened");
    let tree = Tree::open(&new).expect("there");
    let other = SetMark { set: SetId([7; 16]), places, number: 0, ..set.known_mark().expect("a mark").clone() };
    other.write_coming(tree.root(), &new.as_path().into()).expect("written");
    secret::write(tree.root(), &[7; 32]).expect("written");
    let own = |name: &str| new.join(".longhaul-set").join(name).exists();
    assert_eq!(run(&set, &wanted, Moving::Planned).expect("planned").0, ReplaceEnd::Planned);
    assert!(own("mark.coming") && own("secret"), "a plan writes nothing");
    assert_eq!(run(&set, &wanted, Moving::Done).expect("done").0, ReplaceEnd::Done);
    drop(set);
    striped::need_whole(&reopened(&scene, 1, &new), "replaced");
}

#[test]
fn a_program_keeps_its_capabilities() {
    let plain = twice::small(SetLayout::Spread);
    let [from, to] = [&plain.dirs[1], &plain.wanted.new].map(|dir| dir.join("d/file-1"));
    // Revision 2, effective: CAP_NET_BIND_SERVICE.
    let mut known = [0; 20];
    (known[0], known[3], known[5]) = (1, 2, 4);
    let name = c"security.capability";
    if let Err(error) = rustix::fs::setxattr(&from, name, &known, rustix::fs::XattrFlags::empty()) {
        eprintln!("SKIPPED: cannot give capabilities to a file (needs root): {error}");
        return;
    }
    let done = run(&open(&plain.wanted).expect("opened"), &plain.wanted, Moving::Done).expect("done");
    assert_eq!((done.0, done.1.len()), (ReplaceEnd::Done, 0), "{:?}", done.1);
    let mut found = [0; 64];
    let len = rustix::fs::getxattr(&to, name, &mut found[..]).expect("it has them");
    assert_eq!(found[..len], known);
}

#[test]
fn a_lost_target_is_replaced_by_an_empty_one_and_what_is_lost_with_it_is_told() {
    for n in 0..3 {
        let (scene, new) = scene();
        let has_body = fs::read_dir(scene.dirs[n].join(".longhaul-set/bodies")).expect("listed").count() > 1;
        let is_home = scene.dirs[n].join("d/striped").exists();
        let other = scene.dirs[(n + 1) % 3].clone();
        let wanted = Replacement { state: OldTarget::Lost, ..wanted(&scene, n, &new) };
        let named = TargetDirs::of_target(&other).expect("a target");
        let open = || {
            let is_held = |answer: &Result<_, DiskError>| matches!(answer, Err(DiskError::Set(SetError::InUse { .. })));
            once_let_go(|| TargetSet::open_to_replace(&named, (&wanted.old, wanted.state)), is_held)
        };
        assert!(matches!(open(), Err(DiskError::Set(SetError::Present { .. }))), "it is there");
        fs::rename(&scene.dirs[n], scene.dirs[n].with_extension("away")).expect("moved");
        let mut calls = 0;
        loop {
            let set = open().unwrap_or_else(|error| panic!("{n} {calls}: {error}"));
            let outcome = run(&set.behind(&Kernel::behind(Stops::after(calls))), &wanted, Moving::Done);
            if let Ok((end, left)) = outcome {
                assert_eq!(end, ReplaceEnd::Done);
                // After the commit point nothing is missing that could tell it.
                assert!(left.len() <= usize::from(has_body && !is_home), "{n} {calls}: {left:?}");
                break;
            }
            calls += 1;
        }
        let set = reopened(&scene, n, &new);
        let wrong = set.survey_bodies(Orphans::Told).expect("looked").wrong;
        assert_eq!(wrong.len(), usize::from(has_body && !is_home), "{n}: {wrong:?}");
        drop(set);
        // The old one that comes back is none of the set.
        fs::rename(scene.dirs[n].with_extension("away"), &scene.dirs[n]).expect("moved");
        let back = TargetSet::open(&scene.named, Marks::Needed, Writing::Wanted);
        assert!(matches!(back, Err(DiskError::Set(SetError::Generations { .. }))), "{n}");
    }
}

#[test]
fn wrong_replacements_are_refused_and_write_nothing() {
    let (scene, new) = scene();
    let wanted = wanted(&scene, 1, &new);
    let set = open(&wanted).expect("opened");
    let refused = |wanted: &Replacement| match run(&set, wanted, Moving::Done) {
        Err(DiskError::Set(error)) => format!("{error:?}").split(' ').next().unwrap_or_default().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&Replacement { same_device: SameDevice::Refused, ..wanted.clone() }), "SameDevice");
    assert_eq!(
        refused(&Replacement { old: new.clone(), new: scene.dirs[1].with_extension("."), ..wanted.clone() }.with_dir()),
        "NoTarget"
    );
    fs::create_dir(scene.dirs[0].join("in")).expect("made");
    assert_eq!(refused(&Replacement { new: scene.dirs[0].join("in"), ..wanted.clone() }), "Nested");
    let [live, lost] = [scene.dirs[0].clone(), scene.dirs[0].with_extension("lost")];
    assert_eq!(refused(&Replacement { new: live.clone(), ..wanted.clone() }), "Former");
    assert_eq!(refused(&Replacement { old: lost, state: OldTarget::Lost, ..wanted.clone() }), "NoTarget");
    fs::write(new.join("data"), b"x").expect("written");
    assert_eq!(refused(&wanted), "NotEmpty");
    fs::remove_file(new.join("data")).expect("removed");
    fs::create_dir(new.join(".longhaul")).expect("made");
    assert_eq!(refused(&wanted), "NotEmpty", "the journals of others are none of the set");
    let (other, _) = self::scene();
    assert_eq!(refused(&Replacement { new: other.dirs[0].clone(), ..wanted.clone() }), "OtherSet");
    drop(set);
    assert!(!new.join(".longhaul-set").exists());
    assert_eq!(TargetDirs::of_target(&scene.dirs[0]).expect("a mark").dirs, scene.dirs);
}

#[test]
fn journals_that_are_gone_from_the_old_target_do_not_come_back_on_the_new_one() {
    let (scene, new) = scene();
    let wanted = wanted(&scene, 1, &new);
    let fifo = scene.dirs[1].join("fifo");
    assert!(rustix::fs::mknodat(rustix::fs::CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).is_ok());
    let first = run(&open(&wanted).expect("opened"), &wanted, Moving::Done).expect("copied");
    assert_eq!(first.0, ReplaceEnd::Open);
    assert!(new.join(".longhaul/journal").exists());
    // The transfers are finished, and their shelf goes.
    fs::remove_dir_all(scene.dirs[1].join(".longhaul")).expect("removed");
    fs::remove_file(fifo).expect("removed");
    let done = run(&open(&wanted).expect("opened"), &wanted, Moving::Done).expect("done");
    assert_eq!((done.0, done.1.len()), (ReplaceEnd::Done, 0));
    assert!(!new.join(".longhaul").exists());
}

#[test]
fn a_replacement_that_was_begun_before_another_change_begins_anew() {
    let (scene, new) = scene();
    let wanted = wanted(&scene, 1, &new);
    let set = open(&wanted).expect("opened");
    let stopped = run(&set.behind(&Kernel::behind(Stops::after(45))), &wanted, Moving::Done);
    assert!(!matches!(stopped, Ok((ReplaceEnd::Done, _))), "{stopped:?}");
    assert_eq!(set.known_mark().expect("a mark").generation, 1);
    assert!(new.join("deep").exists() || fs::read_dir(new.join(".longhaul-set")).expect("listed").count() > 1);
    let added = scene.dirs[0].with_extension("added");
    fs::create_dir(&added).expect("made");
    set.add_target(&added, SameDevice::Allowed).expect("added");
    drop(set);
    let done = run(&open(&wanted).expect("opened"), &wanted, Moving::Done).expect("done");
    assert_eq!((done.0, done.1.len()), (ReplaceEnd::Done, 0));
    assert_eq!(names(&new), names(&scene.dirs[1]));
}

#[test]
fn what_root_makes_on_a_new_target_belongs_to_the_user_of_the_set() {
    if !geteuid().is_root() {
        eprintln!("SKIPPED: cannot give files away (needs root)");
        return;
    }
    let (scene, new) = scene();
    let added = new.with_extension("added");
    fs::create_dir(&added).expect("made");
    let plain = twice::small(SetLayout::Spread);
    // A set with striped files is used by the user who owns its secret, and by no other, root
    // among them.
    for (named, wanted) in [(&scene.named, wanted(&scene, 1, &new)), (&plain.named, plain.wanted.clone())] {
        named.dirs.iter().for_each(|dir| give(dir));
        let opened = once_let_go(|| TargetSet::open_alone(named), is_in_use);
        if named.layout == SetLayout::Stripe {
            assert!(matches!(opened, Err(DiskError::Set(SetError::BadSecret { .. }))));
            continue;
        }
        opened.expect("opened").add_target(&added, SameDevice::Allowed).expect("added");
        let done = run(&open(&wanted).expect("opened"), &wanted, Moving::Done).expect("done");
        assert_eq!((done.0, done.1.len()), (ReplaceEnd::Done, 0));
        for (dir, names) in [(&wanted.new, &["", ".longhaul", ".longhaul/journal", "d/file-1"][..]), (&added, &[])] {
            for name in names.iter().chain(&[".longhaul-set", ".longhaul-set/lock", ".longhaul-set/README"]) {
                let stat = dir.join(name).symlink_metadata().unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!((stat.uid(), stat.gid()), (12345, 54321), "{} {name}", dir.display());
            }
        }
    }
}

fn is_in_use(answer: &Result<Arc<TargetSet>, DiskError>) -> bool {
    matches!(answer, Err(DiskError::Set(SetError::InUse { .. })))
}

/// Gives a directory and all in it to another user.
fn give(dir: &Path) {
    std::os::unix::fs::lchown(dir, Some(12345), Some(54321)).expect("given");
    for entry in fs::read_dir(dir).expect("listed").map(|one| one.expect("one")) {
        match entry.file_type().expect("a type").is_dir() {
            true => give(&entry.path()),
            false => std::os::unix::fs::lchown(entry.path(), Some(12345), Some(54321)).expect("given"),
        }
    }
}

impl Replacement {
    fn with_dir(self) -> Replacement {
        fs::create_dir_all(&self.new).expect("made");
        self
    }
}
