//! Tests of replacements that are stopped, gone on with, and stopped again. The old target is lost
//! as soon as the commit point is behind: nothing may be asked of it from then on.

use super::*;
use crate::kernel::{Call, InodeId, Interposer, Passage};
use crate::set::change::testing::finish_and_stop;

pub(super) struct Small {
    _top: tempfile::TempDir,
    pub(super) dirs: Vec<PathBuf>,
    pub(super) named: TargetDirs,
    pub(super) wanted: Replacement,
}

/// A set of three targets with a few files on each, of which the second is to be replaced.
pub(super) fn small(layout: SetLayout) -> Small {
    let top = tempfile::tempdir().expect("scratch");
    let dirs: Vec<PathBuf> = (0..3).map(|n| top.path().join(format!("d{n}"))).collect();
    let new = top.path().join("new");
    dirs.iter().chain([&new]).for_each(|dir| fs::create_dir(dir).expect("made"));
    let named = TargetDirs { same_device: SameDevice::Allowed, ..TargetDirs::set(dirs.clone()) };
    let named = TargetDirs { layout, ..named };
    TargetSet::open(&named, Marks::Made, Writing::Wanted).expect("a set");
    for (n, dir) in dirs.iter().enumerate() {
        fs::create_dir(dir.join("d")).expect("made");
        fs::create_dir(dir.join(".longhaul")).expect("made");
        fs::write(dir.join(".longhaul/journal"), b"a journal").expect("written");
        fs::write(dir.join(format!("d/file-{n}")), vec![n as u8; 5000]).expect("written");
    }
    let (old, same_device) = (dirs[1].clone(), SameDevice::Allowed);
    let wanted = Replacement { old, new, same_device, state: OldTarget::Readable, rate: None };
    Small { _top: top, dirs, named, wanted }
}

/// Copies a directory and all in it with its modes, and syncs nothing.
fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir(to).expect("made");
    fs::set_permissions(to, fs::metadata(from).expect("there").permissions()).expect("set");
    for entry in fs::read_dir(from).expect("listed").map(|one| one.expect("one")) {
        let (path, copy) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().expect("a type").is_dir() {
            true => copy_dir(&path, &copy),
            false => _ = fs::copy(&path, &copy).expect("copied"),
        }
    }
}

impl Small {
    fn all_dirs(&self) -> impl Iterator<Item = (&PathBuf, PathBuf)> {
        self.dirs.iter().chain([&self.wanted.new]).map(|dir| (dir, dir.with_extension("kept")))
    }

    /// Keeps all directories as they are, for [`Small::reset`].
    fn keep(&self) {
        self.all_dirs().for_each(|(dir, kept)| copy_dir(dir, &kept));
    }

    /// Makes all directories what they were when they were kept: much sooner than a new set.
    fn reset(&self) {
        for (dir, kept) in self.all_dirs() {
            // A test may have moved it.
            let _ = fs::remove_dir_all(dir);
            copy_dir(&kept, dir);
        }
    }

    fn generation(&self, n: usize) -> u64 {
        mark_of(&self.dirs[n]).expect("readable").map_or(0, |mark| mark.generation)
    }

    /// Whether the commit point is behind.
    fn is_committed(&self) -> bool {
        self.generation(0) == 2 || self.generation(2) == 2
    }

    /// Spoils the old target if the commit point is behind.
    fn spoil(&self) {
        if self.is_committed() && self.dirs[1].join("d").exists() {
            fs::remove_dir_all(self.dirs[1].join("d")).expect("removed");
        }
    }

    fn stop_after(&self, calls: u32) -> bool {
        let set = open(&self.wanted).unwrap_or_else(|error| panic!("{calls}: {error}"));
        let outcome = run(&set.behind(&Kernel::behind(Stops::after(calls))), &self.wanted, Moving::Done);
        self.spoil();
        matches!(outcome, Ok((ReplaceEnd::Done, _)))
    }

    /// Goes on to the end, and looks at what has become of it.
    fn need_done(&self, (expected, after): (&[String], &str)) {
        assert!(self.generation(1) <= 1, "{after}: the old one was given a newer mark");
        let set = open(&self.wanted).unwrap_or_else(|error| panic!("{after}: {error}"));
        assert!(self.generation(1) <= 1, "{after}: the old one was given a newer mark");
        // Without its syncs.
        let behind = set.behind(&Kernel::behind(Stops::after(u32::MAX)));
        let end = run(&behind, &self.wanted, Moving::Done).unwrap_or_else(|error| panic!("{after}: {error}"));
        assert_eq!((end.0, end.1.len()), (ReplaceEnd::Done, 0), "{after}");
        drop((set, behind));
        assert_eq!(names(&self.wanted.new), expected, "{after}");
        let dirs = vec![self.dirs[0].clone(), self.wanted.new.clone(), self.dirs[2].clone()];
        let named = TargetDirs { dirs, ..self.named.clone() };
        let set = once_let_go(|| TargetSet::open(&named, Marks::Needed, Writing::Wanted), Result::is_err);
        let set = set.unwrap_or_else(|error| panic!("{after}: {error}"));
        assert_eq!((set.missing().len(), set.mark().map(|mark| mark.generation)), (0, Some(2)), "{after}");
    }
}

#[test]
fn a_replacement_that_stops_twice_anywhere_loses_nothing_that_the_old_target_loses_after_the_commit_point() {
    let (mut committed, scene) = (0, small(SetLayout::Stripe));
    scene.keep();
    for first in 0.. {
        let mut is_over = false;
        for second in 0.. {
            let found = stopped_twice_after(&scene, (first, second));
            scene.reset();
            committed += u32::from(found.is_committed);
            is_over = found.is_over;
            // Before the commit point the steps are those of one stop: a few are enough.
            if found.is_through || (!found.is_committed && first % 8 != 0) {
                break;
            }
        }
        if is_over {
            break;
        }
    }
    assert!(committed > 100, "{committed}");
}

/// The state of a replacement after two stops.
struct Stopped {
    /// It was over before the first one.
    is_over: bool,
    /// It was over before the second one.
    is_through: bool,
    /// The first one was after the commit point.
    is_committed: bool,
}

fn stopped_twice_after(scene: &Small, (first, second): (u32, u32)) -> Stopped {
    let expected = names(&scene.dirs[1]);
    let is_over = scene.stop_after(first);
    let is_committed = scene.is_committed();
    let is_through = match is_committed {
        // The marks are finished when the set is opened, and the rest after that.
        true => finish_and_stop(&scene.wanted_dirs(), second).is_ok(),
        false => scene.stop_after(second * 3 + first % 3),
    };
    scene.spoil();
    if is_committed && is_through {
        scene.stop_after(second % 5);
    }
    scene.need_done((&expected, &format!("{first} and {second} calls")));
    Stopped { is_over, is_through, is_committed }
}

impl Small {
    /// The directories as the command names them.
    fn wanted_dirs(&self) -> TargetDirs {
        TargetDirs::set(vec![self.wanted.old.clone(), self.wanted.new.clone()])
    }

    /// A replacement that was stopped directly behind its commit point.
    fn committed() -> (Small, Vec<String>) {
        let scene = small(SetLayout::Stripe);
        scene.keep();
        for calls in 0.. {
            let expected = names(&scene.dirs[1]);
            scene.stop_after(calls);
            if scene.is_committed() {
                return (scene, expected);
            }
            scene.reset();
        }
        unreachable!("it is committed after some calls")
    }
}

/// The file system of the old target has become read-only.
#[derive(Debug)]
struct ReadOnly {
    own: u64,
}

impl Interposer for ReadOnly {
    fn begin(&self, call: &Call<'_>) -> Passage {
        match call {
            Call::Rename { dir, .. } | Call::Create { dir, .. } if dir.ino == self.own => {
                Passage::Answered(Err(Errno::ROFS))
            }
            _ => Passage::Made(0),
        }
    }

    fn end(&self, _: u64, _: Result<Option<InodeId>, Errno>) {}

    fn read_medium(&self, _: InodeId, _: u64, _: &mut [u8]) -> Option<usize> {
        None
    }

    fn file_system_type(&self) -> Option<u64> {
        None
    }
}

#[test]
fn an_old_target_that_is_read_only_or_spoiled_after_the_commit_point_keeps_the_command_from_nothing() {
    let (scene, expected) = Small::committed();
    let own = fs::metadata(scene.dirs[1].join(".longhaul-set")).expect("there").ino();
    let set = open(&scene.wanted).expect("opened, without a word to the old one");
    let done = run(&set.behind(&Kernel::behind(Arc::new(ReadOnly { own }))), &scene.wanted, Moving::Done);
    assert!(matches!(done, Ok((ReplaceEnd::Done, _))), "{done:?}");
    drop(set);
    assert_eq!(scene.generation(1), 1, "it keeps its mark");
    scene.need_done((&expected, "read-only"));
    // Its mark is torn or gone.
    for torn in [true, false] {
        let (scene, expected) = Small::committed();
        let mark = scene.dirs[1].join(".longhaul-set/mark");
        if torn { fs::write(mark, b"longhaul") } else { fs::remove_file(mark) }.expect("spoiled");
        let set = open(&scene.wanted).expect("opened");
        assert!(matches!(run(&set, &scene.wanted, Moving::Done), Ok((ReplaceEnd::Done, _))), "torn: {torn}");
        drop(set);
        assert_eq!(names(&scene.wanted.new), expected, "torn: {torn}");
    }
}

fn mark_of(dir: &Path) -> Result<Option<SetMark>, DiskError> {
    SetMark::read(Tree::open(dir)?.root(), &dir.into())
}

#[test]
fn a_target_whose_disk_is_mounted_elsewhere_is_replaced_by_one_at_its_old_place_wherever_it_stops() {
    let scene = small(SetLayout::Stripe);
    scene.keep();
    let away = scene.dirs[1].with_extension("away");
    let wanted = Replacement { old: away.clone(), new: scene.dirs[1].clone(), ..scene.wanted.clone() };
    for calls in 0.. {
        let expected = names(&scene.dirs[1]);
        fs::rename(&scene.dirs[1], &away).expect("moved");
        fs::rename(&scene.wanted.new, &scene.dirs[1]).expect("moved");
        let set = open(&wanted).expect("opened");
        let outcome = run(&set.behind(&Kernel::behind(Stops::after(calls))), &wanted, Moving::Done);
        drop(set);
        if scene.is_committed() {
            let _ = fs::remove_dir_all(away.join("d"));
        }
        let set = open(&wanted).unwrap_or_else(|error| panic!("{calls}: {error}"));
        // Without its syncs.
        let behind = set.behind(&Kernel::behind(Stops::after(u32::MAX)));
        let end = run(&behind, &wanted, Moving::Done).unwrap_or_else(|error| panic!("{calls}: {error}"));
        assert_eq!((end.0, end.1.len()), (ReplaceEnd::Done, 0), "{calls}");
        drop((set, behind));
        assert_eq!(names(&scene.dirs[1]), expected, "{calls}");
        assert!(matches!(mark_of(&away), Ok(None)), "{calls}");
        if matches!(outcome, Ok((ReplaceEnd::Done, _))) {
            break;
        }
        fs::remove_dir_all(&away).expect("removed");
        scene.reset();
    }
}
