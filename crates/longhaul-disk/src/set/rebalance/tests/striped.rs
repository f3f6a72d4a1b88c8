//! Tests of moves of the chunks of striped files.

use longhaul_core::digest::digest_of;
use longhaul_core::{ChunkIndex, ChunkMap, ChunkSize, Meta, Preserve};
use longhaul_sys::Slab;

use super::*;
use crate::destination::{Replace, TargetTree, TreePolicy};
use crate::direct::DirectMode;
use crate::set::{Beginning, Orphans, SpreadTarget, Verification, Verified, VerifyEnd};
use crate::testing::{META, path, temp, write};
use crate::{ChunkIo, EngineKind};

pub(in crate::set) const CHUNKS: u64 = 6;

/// A scene with a striped file, whose last chunk is short and of which one is a hole, and a plain
/// one.
pub(in crate::set) fn scene() -> Scene {
    let scene = Scene::new(SetLayout::Stripe);
    put(&scene, "d/striped", Replace::Never);
    std::fs::write(scene.dirs[0].join("plain"), b"plain").expect("written");
    scene
}

/// Puts the striped file under a name.
pub(in crate::set) fn put(scene: &Scene, name: &str, replace: Replace) {
    let set = TargetSet::open(&scene.named, Marks::Made, Writing::Wanted).expect("a set");
    let target =
        SpreadTarget::beneath(&set, &RelPath::root(), DirectMode::Buffered, TreePolicy::default()).expect("opened");
    let (map, bytes) = bytes();
    let slab = Slab::new(map.size().bytes() as usize, 1).expect("slab");
    let io = ChunkIo::start(EngineKind::Threads, 1, &slab).expect("engine");
    target.make_dir(&path("d")).expect("made");
    let file = target.create(&path(name), map, false, &temp()).expect("made");
    for index in (0..map.chunks()).map(ChunkIndex) {
        let (start, len) = (map.start_of(index), map.len_of(index).expect("a chunk") as usize);
        let part = &bytes[start.0 as usize..start.0 as usize + len];
        file.note_digest(index, digest_of(part, map.kind(), start));
        let mut slot = slab.try_claim().expect("it came back");
        slot[..len].copy_from_slice(part);
        write(&io, &file, start.0, len, slot).1.expect("written");
    }
    let meta = Meta { mode: 0o640, ..META };
    let staged = target.seal(file, &meta, Preserve::default()).expect("sealed");
    target.barrier(&[&staged]).expect("durable");
    target.publish(&staged, replace).expect("published");
    target.sync_dirs(&[staged]).expect("durable");
}

pub(in crate::set) fn bytes() -> (ChunkMap, Vec<u8>) {
    let len = (CHUNKS - 1) * (1 << 20) + 9;
    (ChunkMap::new(len, ChunkSize::from_bytes(1 << 20).expect("a size")), content(len))
}

/// The striped file as a reader of the set gets it: its content, mode and time.
fn read(set: &TargetSet) -> (Vec<u8>, Meta) {
    let found = set.targets().iter().find_map(|home| set.layout_at(home, &path("d/striped")).ok().flatten());
    let layout = found.expect("it stands");
    let mut bytes = vec![0; layout.file.len() as usize];
    let len = bytes.len();
    assert_eq!(layout.file.fill(&mut bytes, len, 0).expect("read"), len);
    (bytes, crate::stat::meta_of(&layout.stat))
}

/// The numbers of bodies on the targets.
fn bodies(scene: &Scene) -> Vec<usize> {
    let count = |dir: &PathBuf| std::fs::read_dir(dir.join(".longhaul-set/bodies")).expect("listed").count() - 1;
    scene.dirs.iter().map(count).collect()
}

pub(in crate::set) fn need_whole(set: &TargetSet, after: &str) {
    assert!(read(set) == (bytes().1, Meta { mode: 0o640, ..META }), "{after}");
    let survey = set.survey_bodies(Orphans::Told).expect("looked");
    assert_eq!((survey.orphans.len(), survey.wrong.len()), (0, 0), "{after}: {survey:?}");
    let mut wrong = 0;
    let mut count = |find| {
        wrong += usize::from(!matches!(find, Verified::Right { .. }));
        ControlFlow::Continue(())
    };
    let wanted = Verification { rate: None, beginning: Beginning::Anew, is_stopped: &|| false };
    assert_eq!(set.verify(&wanted, &mut count), VerifyEnd::Through);
    assert_eq!(wrong, 0, "{after}");
}

#[test]
fn a_drained_target_has_no_bodies_and_no_stripe_files() {
    for drained in 0..3 {
        let scene = scene();
        let set = scene.alone();
        need_whole(&set, "before");
        let before = [0, 1, 2].map(|n| bodies(&scene)[n] > 0 || scene.dirs[n].join("d/striped").exists());
        let wanted = Rebalance { drained: Some(scene.dirs[drained].clone()), rate: None };
        let (moved, left) = run(&set, &wanted, Moving::Done);
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(moved.contains(&"d/striped".to_owned()), before[drained], "{moved:?}");
        need_whole(&set, "after");
        assert_eq!(bodies(&scene)[drained], 0);
        assert!(!scene.dirs[drained].join("d").exists());
        drop(set);
        let lost = set_without_its_stripe_file(&scene);
        assert_eq!(lost, [None], "its new bodies have footers");
    }
}

/// Why the files cannot be made again whose stripe files are removed.
fn set_without_its_stripe_file(scene: &Scene) -> Vec<Option<String>> {
    let stripe = scene.dirs.iter().map(|dir| dir.join("d/striped")).find(|path| path.exists()).expect("it stands");
    std::fs::remove_file(stripe).expect("removed");
    let lost = scene.alone().rebuild(crate::set::Rebuilding::Planned).expect("looked");
    lost.into_iter().map(|file| file.why_not).collect()
}

#[test]
fn a_move_of_chunks_that_stops_anywhere_leaves_the_file_whole_and_is_gone_on_with() {
    // Most of the time goes into syncs, which wait beside each other.
    std::thread::scope(|scope| {
        for first in 0..WORKERS {
            scope.spawn(move || {
                let is_over = |calls: &u32| stopped_after(*calls) && *calls > 50;
                (first..).step_by(WORKERS as usize).find(is_over)
            });
        }
    });
}

/// Moves chunks, and stops after so many calls; goes on then. Returns whether it was over before.
fn stopped_after(calls: u32) -> bool {
    let scene = scene();
    let set = scene.alone();
    let drained = (0..3).find(|n| bodies(&scene)[*n] > 0).expect("a body");
    let wanted = Rebalance { drained: Some(scene.dirs[drained].clone()), rate: None };
    let (_, left) = run(&set.behind(&Kernel::behind(Stops::after(calls))), &wanted, Moving::Done);
    assert!(read(&set).0 == bytes().1, "{calls}: read while it is interrupted");
    drop(set);
    let set = scene.alone();
    need_whole(&set, &format!("{calls} calls"));
    assert!(scene.leftovers().len() <= 1, "{calls}: {:?}", scene.leftovers());
    let (_, again) = run(&set, &wanted, Moving::Done);
    assert!(again.is_empty(), "{calls}: {again:?}");
    need_whole(&set, &format!("finished after {calls} calls"));
    assert_eq!(bodies(&scene)[drained], 0);
    left.is_empty()
}

/// Threads that stop moves, each after other numbers of calls.
const WORKERS: u32 = 8;

#[test]
fn chunks_go_to_a_target_that_was_added() {
    let scene = scene();
    let set = scene.alone();
    let new = scene.dirs[0].with_extension("new");
    std::fs::create_dir(&new).expect("made");
    set.add_target(&new, SameDevice::Allowed).expect("added");
    drop(set);
    let set = once_let_go(|| TargetSet::open_alone(&scene.named), Result::is_err).expect("opened");
    let drained = bodies(&scene).iter().position(|count| *count > 0).expect("a body");
    let wanted = Rebalance { drained: Some(scene.dirs[drained].clone()), rate: None };
    let (_, left) = run(&set, &wanted, Moving::Done);
    assert!(left.is_empty(), "{left:?}");
    need_whole(&set, "after");
    assert_eq!(std::fs::read_dir(new.join(".longhaul-set/bodies")).expect("listed").count(), 2);
}

#[test]
fn a_damaged_chunk_is_named_and_the_file_stays() {
    let scene = scene();
    let set = scene.alone();
    let before = bodies(&scene);
    let drained = (0..3).find(|n| before[*n] > 0).expect("a body");
    let dir = scene.dirs[drained].join(".longhaul-set/bodies");
    let mut names = std::fs::read_dir(dir).expect("listed").map(|one| one.expect("one").path());
    let body = names.find(|path| !path.ends_with("README")).expect("a body");
    let mut damaged = std::fs::read(&body).expect("read");
    damaged[5] ^= 1;
    std::fs::write(&body, damaged).expect("written");
    let wanted = Rebalance { drained: Some(scene.dirs[drained].clone()), rate: None };
    let (_, left) = run(&set, &wanted, Moving::Done);
    assert!(matches!(&left[..], [DiskError::Set(SetError::Damaged { chunk: _, .. })]), "{left:?}");
    assert_eq!(bodies(&scene), before);
}
