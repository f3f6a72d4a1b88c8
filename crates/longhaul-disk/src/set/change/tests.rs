//! Tests of changes of a set's targets: each is stopped before each of its calls, and gone on with.

use super::testing::Stops;
use super::*;
use crate::kernel::Kernel;
use crate::set::{Marks, Writing};
use crate::testing::once_let_go;

struct Scene {
    _top: tempfile::TempDir,
    dirs: Vec<PathBuf>,
}

fn scene(targets: usize, layout: SetLayout) -> Scene {
    let top = tempfile::tempdir().expect("scratch");
    let dirs: Vec<PathBuf> = (0..=targets).map(|n| top.path().join(format!("d{n}"))).collect();
    dirs.iter().for_each(|dir| std::fs::create_dir(dir).expect("made"));
    let named = TargetDirs { layout, ..named(&dirs[..targets]) };
    TargetSet::open(&named, Marks::Made, Writing::Wanted).expect("a set");
    Scene { _top: top, dirs }
}

fn named(dirs: &[PathBuf]) -> TargetDirs {
    TargetDirs { same_device: SameDevice::Allowed, ..TargetDirs::set(dirs.to_vec()) }
}

/// Alone, once other tests' children have let go.
fn alone(dirs: &[PathBuf]) -> Result<Arc<TargetSet>, DiskError> {
    let is_held = |answer: &Result<_, DiskError>| matches!(answer, Err(DiskError::Set(SetError::InUse { .. })));
    once_let_go(|| TargetSet::open_alone(&named(dirs)), is_held)
}

fn opens(dirs: &[PathBuf]) -> Result<Arc<TargetSet>, DiskError> {
    TargetSet::open(&named(dirs), Marks::Needed, Writing::Wanted)
}

fn marks(dirs: &[PathBuf]) -> Vec<Option<SetMark>> {
    dirs.iter().map(|dir| mark_at(dir).expect("readable")).collect()
}

/// Stops `change` after each number of calls on fresh scenes, and does it again. Returns how often
/// it was stopped.
fn stopped_everywhere(
    layout: SetLayout,
    change: impl Fn(&Scene, &TargetSet) -> Result<(), DiskError>,
    (ways_in, done): (&[usize], impl Fn(&Scene)),
) -> u32 {
    for calls in 0.. {
        let scene = scene(3, layout);
        let set = alone(&scene.dirs[..3]).expect("opened");
        let outcome = change(&scene, &set.behind(&Kernel::behind(Stops::after(calls))));
        drop(set);
        // Whatever was written: the set is what it was or what it becomes, or is refused.
        let before = opens(&scene.dirs[..3]);
        if let Err(error) = &before {
            assert!(matches!(error, DiskError::Set(_)), "{calls}: {error}");
        }
        drop(before);
        if outcome.is_ok() {
            done(&scene);
            return calls;
        }
        for way in ways_in {
            let set = alone(&scene.dirs[*way..=*way]).unwrap_or_else(|error| panic!("{calls}, from {way}: {error}"));
            change(&scene, &set).unwrap_or_else(|error| panic!("{calls}, from {way}: {error}"));
        }
        done(&scene);
    }
    0
}

#[test]
fn an_addition_that_stops_anywhere_is_gone_on_with_from_any_target() {
    for layout in [SetLayout::Spread, SetLayout::Stripe] {
        for ways_in in [&[0][..], &[2, 0], &[1, 1]] {
            let add = |scene: &Scene, set: &TargetSet| set.add_target(&scene.dirs[3], SameDevice::Allowed);
            let stopped = stopped_everywhere(
                layout,
                add,
                (ways_in, |scene: &Scene| {
                    let set = opens(&scene.dirs).expect("four targets");
                    assert_eq!(set.targets().len(), 4);
                    assert!(opens(&scene.dirs[..3]).is_err(), "three are not all");
                    let marks = marks(&scene.dirs);
                    assert!(marks.iter().flatten().all(|mark| mark.generation == 2 && mark.places == scene.dirs));
                    assert_eq!(marks.iter().flatten().map(|mark| mark.number).collect::<Vec<_>>(), [0, 1, 2, 3]);
                }),
            );
            assert!(stopped > 15, "{layout:?}: {stopped}");
        }
    }
}

#[test]
fn a_removal_that_stops_anywhere_is_gone_on_with() {
    for layout in [SetLayout::Spread, SetLayout::Stripe] {
        let remove = |scene: &Scene, set: &TargetSet| match set.retire_target(&scene.dirs[2]) {
            // It was through but for the last sync.
            Err(DiskError::Set(SetError::NoTarget { .. })) => Ok(()),
            outcome => outcome,
        };
        let stopped = stopped_everywhere(
            layout,
            remove,
            (&[0], |scene: &Scene| {
                assert_eq!(opens(&scene.dirs[..2]).expect("two targets").targets().len(), 2);
                assert!(marks(&scene.dirs)[2].is_none());
            }),
        );
        assert!(stopped > 8, "{stopped}");
    }
}

#[test]
fn a_target_that_was_removed_is_a_new_one_for_any_set() {
    let scene = scene(3, SetLayout::Stripe);
    alone(&scene.dirs[..1]).expect("opened").retire_target(&scene.dirs[2]).expect("removed");
    assert_eq!(std::fs::read_dir(&scene.dirs[2]).expect("there").count(), 0);
    let other = TargetDirs { layout: SetLayout::Stripe, ..named(&scene.dirs[2..]) };
    assert!(TargetSet::open(&other, Marks::Made, Writing::Wanted).is_ok());
}

#[test]
fn targets_that_are_mounted_elsewhere_are_written_down_wherever_it_stops() {
    for calls in 0.. {
        let mut scene = scene(3, SetLayout::Stripe);
        let moved: Vec<Relocation> = [0, 2]
            .map(|n| {
                let new = scene.dirs[n].with_extension("new");
                Relocation { old: std::mem::replace(&mut scene.dirs[n], new.clone()), new }
            })
            .to_vec();
        moved.iter().for_each(|one| std::fs::rename(&one.old, &one.new).expect("moved"));
        let news: Vec<PathBuf> = moved.iter().map(|one| one.new.clone()).collect();
        assert!(matches!(alone(&news[..1]), Err(DiskError::Set(SetError::Absent { .. }))));
        let set = alone(&news).expect("opened");
        let outcome = set.behind(&Kernel::behind(Stops::after(calls))).relocate_targets(&moved);
        drop(set);
        alone(&news).expect("opened").relocate_targets(&moved).expect("again");
        let found = TargetDirs::of_target(&scene.dirs[1]).expect("a mark");
        assert_eq!(found.dirs, scene.dirs[..3]);
        assert!(opens(&scene.dirs[..3]).is_ok());
        assert!(marks(&scene.dirs[..3]).iter().flatten().all(|mark| mark.generation == 2));
        if outcome.is_ok() {
            assert!(calls > 8, "{calls}");
            break;
        }
    }
}

#[test]
fn wrong_changes_are_refused_and_write_nothing() {
    let scene = scene(3, SetLayout::Stripe);
    let [d0, d2, new] = [0, 2, 3].map(|n| scene.dirs[n].clone());
    let before = marks(&scene.dirs);
    let set = alone(&scene.dirs[..1]).expect("opened");
    std::fs::write(new.join("data"), b"x").expect("written");
    let refused = |outcome: Result<(), DiskError>| match outcome {
        Err(DiskError::Set(error)) => format!("{error:?}").split(' ').next().unwrap_or_default().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(set.add_target(&new, SameDevice::Allowed)), "NotEmpty");
    std::fs::remove_file(new.join("data")).expect("removed");
    assert_eq!(refused(set.add_target(&new, SameDevice::Refused)), "SameDevice");
    std::fs::create_dir(d0.join("in")).expect("made");
    assert_eq!(refused(set.add_target(&d0.join("in"), SameDevice::Allowed)), "Nested");
    let one = |old: &Path, new: &Path| [Relocation { old: old.to_owned(), new: new.to_owned() }];
    assert_eq!(refused(set.relocate_targets(&one(&d2, &d0))), "OtherTarget");
    assert_eq!(refused(set.relocate_targets(&one(&d0, &new))), "NoTarget");
    assert_eq!(refused(set.retire_target(&d0)), "NotLast");
    assert_eq!(refused(set.retire_target(&new)), "NoTarget");
    std::fs::write(d2.join(".longhaul-set/bodies/.longhaul-00000000000000000000000000000001"), b"x").expect("written");
    assert_eq!(refused(set.retire_target(&d2)), "Holds");
    std::fs::write(d2.join("x"), b"x").expect("written");
    assert_eq!(refused(set.retire_target(&d2)), "Holds");
    let (other, half) = (self::scene(2, SetLayout::Stripe), self::scene(3, SetLayout::Stripe));
    assert_eq!(refused(set.add_target(&other.dirs[0], SameDevice::Allowed)), "OtherSet");
    assert_eq!(marks(&scene.dirs), before);
    drop(set);
    // A directory that was nearly added, and another one that was added then.
    let set = alone(&half.dirs[..1]).expect("opened");
    let nearly = half.dirs[0].with_extension("nearly");
    std::fs::create_dir(&nearly).expect("made");
    let mark = set.known_mark().expect("a mark");
    let next = mark.next([&mark.places[..], std::slice::from_ref(&nearly)].concat());
    next.of(3).write(Tree::open(&nearly).expect("there").root(), &nearly.as_path().into()).expect("written");
    set.add_target(&half.dirs[3], SameDevice::Allowed).expect("added");
    drop(set);
    let set = alone(&half.dirs[..1]).expect("opened");
    assert_eq!(refused(set.add_target(&nearly, SameDevice::Allowed)), "Former");
    drop(set);
    let mixed = [&half.dirs[..3], &[nearly]].concat();
    assert!(matches!(opens(&mixed), Err(DiskError::Set(SetError::Generations { .. }))));
}

#[test]
fn a_set_that_is_used_is_not_changed_and_one_that_is_changed_not_used() {
    let scene = scene(3, SetLayout::Spread);
    let used = opens(&scene.dirs[..3]).expect("opened");
    assert!(matches!(TargetSet::open_alone(&named(&scene.dirs[..1])), Err(DiskError::Set(SetError::InUse { .. }))));
    drop(used);
    let changed = alone(&scene.dirs[..1]).expect("opened");
    let copy = changed.standing_at(&longhaul_core::RelPath::root()).expect("looked");
    drop(changed);
    assert!(matches!(opens(&scene.dirs[..3]), Err(DiskError::Set(SetError::Changing { .. }))), "a copy holds it");
    drop(copy);
    let opened = once_let_go(|| opens(&scene.dirs[..3]), Result::is_err);
    assert!(opened.is_ok());
}
