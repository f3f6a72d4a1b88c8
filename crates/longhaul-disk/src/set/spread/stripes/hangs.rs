//! Tests of striped files on targets that hang: a kernel of ours holds the calls on one target back
//! until it is let go.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Condvar;
use std::sync::mpsc::{Receiver, channel};

use longhaul_core::digest::digest_of;
use longhaul_core::{ChunkIndex, ChunkMap, Preserve, RelPath, TargetId};
use longhaul_sys::Slab;
use rustix::io::Errno;

use super::*;
use crate::destination::{Body, TargetTree, TreePolicy};
use crate::kernel::{Call, InodeId, Interposer, Kernel, Passage};
use crate::set::{Marks, SameDevice, SetLayout, SpreadTarget, TargetDirs, TargetSet, Writing};
use crate::testing::{META, content, path, temp};
use crate::{ChunkIo, EngineKind};

/// The calls that hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hangs {
    Nothing,
    Writes,
    Syncs,
    Makes,
}

/// A disk with one directory of bodies, some of whose calls do not come back.
#[derive(Debug)]
struct HangingDisk {
    bodies_dir: InodeId,
    state: Mutex<HangingState>,
    changed: Condvar,
}

#[derive(Debug)]
struct HangingState {
    hangs: Hangs,
    bodies: BTreeSet<InodeId>,
    /// The number of calls that hang now.
    held: usize,
    /// Whether calls that hung fail in the end.
    fails: bool,
    /// Offsets that were written in the bodies there.
    written: Vec<u64>,
    /// Offsets and lengths that were written in other files, of all targets.
    written_elsewhere: Vec<(u64, usize)>,
    /// Files whose last change was followed by a sync.
    synced: BTreeSet<InodeId>,
}

impl HangingDisk {
    fn now(&self, hangs: Hangs) {
        self.state.lock().expect("no panic").hangs = hangs;
        self.changed.notify_all();
    }

    fn wait_until_held(&self, calls: usize) {
        let state = self.state.lock().expect("no panic");
        drop(self.changed.wait_while(state, |state| state.held < calls).expect("no panic"));
    }

    /// Waits for so long, or until no call is held any more.
    fn stays_held_for(&self, time: std::time::Duration) {
        let state = self.state.lock().expect("no panic");
        let waited = self.changed.wait_timeout_while(state, time, |state| state.held > 0);
        assert!(waited.expect("no panic").1.timed_out(), "a call is held");
    }

    fn written(&self) -> Vec<u64> {
        self.state.lock().expect("no panic").written.clone()
    }
}

impl Interposer for HangingDisk {
    fn begin(&self, call: &Call<'_>) -> Passage {
        let mut state = self.state.lock().expect("no panic");
        let (kind, makes) = match call {
            Call::Create { dir, .. } if *dir == self.bodies_dir => (Hangs::Makes, true),
            Call::Write { file, .. } if state.bodies.contains(file) => (Hangs::Writes, false),
            Call::SyncData { of } | Call::Sync { of } if state.bodies.contains(&of.inode) => (Hangs::Syncs, false),
            Call::Write { file, offset, bytes } => {
                state.written_elsewhere.push((*offset, bytes.len()));
                state.synced.remove(file);
                return Passage::Made(0);
            }
            Call::SetLen { file, .. } => {
                state.synced.remove(file);
                return Passage::Made(0);
            }
            Call::SyncData { of } | Call::Sync { of } => {
                state.synced.insert(of.inode);
                return Passage::Made(0);
            }
            _ => return Passage::Made(0),
        };
        if state.hangs == kind {
            state.held += 1;
            self.changed.notify_all();
            state = self.changed.wait_while(state, |state| state.hangs == kind).expect("no panic");
            state.held -= 1;
            self.changed.notify_all();
            if state.fails {
                return Passage::Answered(Err(Errno::IO));
            }
        }
        if let Call::Write { offset, .. } = call {
            state.written.push(*offset);
        }
        Passage::Made(u64::from(makes))
    }

    fn end(&self, token: u64, outcome: Result<Option<InodeId>, Errno>) {
        if let (1, Ok(Some(made))) = (token, outcome) {
            self.state.lock().expect("no panic").bodies.insert(made);
        }
    }

    fn read_medium(&self, _: InodeId, _: u64, _: &mut [u8]) -> Option<usize> {
        None
    }

    fn file_system_type(&self) -> Option<u64> {
        None
    }
}

/// A set of three targets, of which target 1 may hang, and a striped file in it.
struct Scene {
    dirs: Vec<PathBuf>,
    disk: Arc<HangingDisk>,
    target: SpreadTarget,
    io: ChunkIo,
    slab: Arc<Slab>,
    file: Arc<TargetFile>,
    temp: longhaul_core::TempName,
    map: ChunkMap,
    bytes: Vec<u8>,
    set: Arc<TargetSet>,
    _top: tempfile::TempDir,
}

const CHUNKS: u64 = 9;
const HANGING: TargetId = TargetId(1);

impl Scene {
    fn new() -> Scene {
        let top = tempfile::tempdir().expect("scratch");
        let dirs: Vec<PathBuf> = (0..3).map(|n| top.path().join(format!("d{n}"))).collect();
        dirs.iter().for_each(|dir| std::fs::create_dir(dir).expect("made"));
        let named = TargetDirs {
            same_device: SameDevice::Allowed,
            layout: SetLayout::Stripe,
            stripe_from: 1 << 20,
            ..TargetDirs::set(dirs.clone())
        };
        let set = TargetSet::open(&named, Marks::Made, Writing::Wanted).expect("a set");
        let stat = std::fs::metadata(dirs[1].join(".longhaul-set/bodies")).expect("there");
        let state = HangingState {
            hangs: Hangs::Nothing,
            bodies: BTreeSet::new(),
            held: 0,
            fails: false,
            written: Vec::new(),
            written_elsewhere: Vec::new(),
            synced: BTreeSet::new(),
        };
        let bodies_dir = InodeId { dev: stat.dev(), ino: stat.ino() };
        let disk = Arc::new(HangingDisk { bodies_dir, state: Mutex::new(state), changed: Condvar::new() });
        let set = set.behind(&Kernel::behind(disk.clone()));
        let target =
            SpreadTarget::beneath(&set, &RelPath::root(), DirectMode::Auto, TreePolicy::default()).expect("opened");
        let chunk = 1 << 20;
        let map = ChunkMap::new(CHUNKS * chunk - 7, longhaul_core::ChunkSize::from_bytes(chunk).expect("a size"));
        let slab = Slab::new(chunk as usize, CHUNKS as usize).expect("slab");
        let io = ChunkIo::start(EngineKind::Threads, 4, &slab).expect("engine");
        let temp = temp();
        let file = target.create(&path("large"), map, false, &temp).expect("made");
        let bytes = content(map.len());
        Scene { dirs, disk, target, io, slab, file, temp, map, bytes, set, _top: top }
    }

    /// Begins the write of a chunk. The result comes out.
    fn begin(&self, index: u64) -> Receiver<Result<(), DiskError>> {
        let (index, (tx, rx)) = (ChunkIndex(index), channel());
        let (start, len) = (self.map.start_of(index), self.map.len_of(index).expect("a chunk") as usize);
        let part = &self.bytes[start.0 as usize..start.0 as usize + len];
        self.file.note_digest(index, digest_of(part, self.map.kind(), start));
        let mut slot = self.slab.try_claim().expect("a slot");
        slot[..len].copy_from_slice(part);
        let done = move |_, result| _ = tx.send(result);
        self.io.write(Arc::clone(&self.file), longhaul_core::Place::whole(start.0), len, slot, Box::new(done));
        rx
    }

    fn put(&self, index: u64) {
        self.begin(index).recv().expect("it ends").expect("written");
    }

    fn striped(&self) -> &Arc<Striped> {
        self.file.striped().expect("striped")
    }

    /// Has the next chunk go to this target: the others have much to do.
    fn prefer(&self, target: TargetId) -> Vec<crate::load::LoadShare> {
        let others = self.set.targets().iter().filter(|other| other.id != target);
        others.map(|other| other.load.begin(1 << 40)).collect()
    }

    fn target_of(&self, index: u64) -> Option<TargetId> {
        self.striped().place_of(index << 20).map(|place| place.target)
    }

    fn is_on_hanging(&self, index: u64) -> bool {
        self.target_of(index) == Some(HANGING)
    }

    /// Writes chunks until one lies on each target. Returns the next chunk.
    fn warm_up(&self) -> u64 {
        for (index, target) in [0, 1, 2].into_iter().zip([TargetId(0), HANGING, TargetId(2)]) {
            // The first chunk of a body waits for it to be made; it may go elsewhere meanwhile.
            let held = self.prefer(target);
            self.striped().prepare(target);
            self.put(index);
            drop(held);
            assert_eq!(self.target_of(index), Some(target));
        }
        3
    }

    /// Seals and publishes the file. Returns what a reader gets.
    fn publish(&self) -> Vec<u8> {
        let staged = self.target.seal(Arc::clone(&self.file), &META, Preserve::default()).expect("sealed");
        self.target.barrier(&[&staged]).expect("durable");
        self.target.publish(&staged, Replace::Never).expect("published");
        self.target.sync_dirs(&[staged]).expect("durable");
        let found = self.set.targets().iter().find_map(|home| self.set.layout_at(home, &path("large")).ok().flatten());
        let layout = found.expect("it stands");
        let mut bytes = vec![0; layout.file.len() as usize];
        let len = bytes.len();
        assert_eq!(layout.file.fill(&mut bytes, len, 0).expect("read"), len);
        bytes
    }
}

#[test]
fn a_write_that_hangs_is_made_again_elsewhere_from_the_same_buffer() {
    let scene = Scene::new();
    let next = scene.warm_up();
    scene.disk.now(Hangs::Writes);
    let held = scene.prefer(HANGING);
    let hung = scene.begin(next);
    scene.disk.wait_until_held(1);
    drop(held);
    hung.recv().expect("it ends").expect("written elsewhere");
    assert!(!scene.is_on_hanging(next));
    assert_eq!(scene.set.targets()[1].load.condition(), TargetCondition::Hung);
    assert_eq!(scene.slab.free(), CHUNKS as usize - 1, "the write that hangs holds its buffer");
    // The others go to the targets that answer, and the transfer goes on.
    for index in next + 1..CHUNKS {
        scene.put(index);
        assert!(!scene.is_on_hanging(index));
    }
    assert_eq!(scene.target.sync_data(&scene.file).expect("synced"), []);
    // The file names the body of the target that hangs: its end waits for the write, whose slot is
    // used by nothing.
    let sealed = {
        let (file, target) = (Arc::clone(&scene.file), &scene.target);
        std::thread::scope(|scope| {
            let seal = scope.spawn(move || target.seal(file, &META, Preserve::default()).map(drop));
            assert!(!seal.is_finished());
            scene.disk.now(Hangs::Nothing);
            seal.join().expect("no panic")
        })
    };
    sealed.expect("sealed");
    assert!(scene.publish() == scene.bytes);
    assert_eq!(scene.set.targets()[1].load.condition(), TargetCondition::Well, "it answered");
    let footer_at = scene.disk.written().pop().expect("a footer");
    assert!(footer_at >= 1 << 20, "{footer_at}");
}

#[test]
fn a_body_that_no_chunk_lies_in_is_removed_once_its_write_has_ended_and_nobody_waits_for_it() {
    let scene = Scene::new();
    scene.disk.now(Hangs::Writes);
    let held = scene.prefer(HANGING);
    scene.striped().prepare(HANGING);
    let hung = scene.begin(0);
    scene.disk.wait_until_held(1);
    drop(held);
    (1..CHUNKS).for_each(|index| scene.put(index));
    hung.recv().expect("it ends").expect("written elsewhere");
    assert!((0..CHUNKS).all(|index| !scene.is_on_hanging(index)));
    assert!(scene.publish() == scene.bytes, "nobody waits for the target that hangs");
    let bodies = || std::fs::read_dir(scene.dirs[1].join(".longhaul-set/bodies")).expect("listed").count();
    assert_eq!(bodies(), 2, "the body stays as long as its write may land");
    scene.disk.now(Hangs::Nothing);
    let (io, slab) = (scene.io.clone(), Arc::clone(&scene.slab));
    drop(io);
    while slab.free() < CHUNKS as usize {
        std::thread::yield_now();
    }
    while bodies() > 1 {
        std::thread::yield_now();
    }
}

#[test]
fn chunks_on_a_target_whose_sync_hangs_are_given_up_and_those_that_were_synced_before_stay() {
    let scene = Scene::new();
    let next = scene.warm_up();
    assert_eq!(scene.target.sync_data(&scene.file).expect("synced"), []);
    let held = scene.prefer(HANGING);
    scene.put(next);
    drop(held);
    assert!(scene.is_on_hanging(next));
    // This one goes where there is less to do, which is the same target at times.
    scene.put(next + 1);
    let there: Vec<_> = (next..next + 2).filter(|index| scene.is_on_hanging(*index)).map(ChunkIndex).collect();
    scene.disk.now(Hangs::Syncs);
    let lost = scene.target.sync_data(&scene.file).expect("the others are synced");
    if scene.file.mode() != crate::IoMode::Direct {
        eprintln!("SKIPPED: no direct I/O on the scratch directory");
    }
    assert_eq!(lost, there);
    assert!(scene.is_on_hanging(1), "it was synced before");
    assert_eq!(scene.set.targets()[1].load.condition(), TargetCondition::Hung);
    // The sender sends it again.
    (next..CHUNKS).for_each(|index| scene.put(index));
    assert!(!scene.is_on_hanging(next));
    scene.disk.now(Hangs::Nothing);
    assert!(scene.publish() == scene.bytes);
}

#[test]
fn a_sync_that_takes_long_on_a_target_that_answers_writes_gives_nothing_up() {
    let scene = Scene::new();
    let next = scene.warm_up();
    scene.disk.now(Hangs::Syncs);
    let lost = std::thread::scope(|scope| {
        let sync = scope.spawn(|| scene.target.sync_data(&scene.file));
        scene.disk.wait_until_held(1);
        let began = std::time::Instant::now();
        let held = scene.prefer(HANGING);
        while began.elapsed() < longhaul_core::load::HANG_MIN * 2 {
            scene.put(next);
            assert!(scene.is_on_hanging(next));
            // The next write is a while later: the sync must not end meanwhile.
            scene.disk.stays_held_for(longhaul_core::load::HANG_MIN / 8);
        }
        drop(held);
        scene.disk.now(Hangs::Nothing);
        sync.join().expect("no panic").expect("synced")
    });
    assert_eq!(lost, []);
    (next..CHUNKS).for_each(|index| scene.put(index));
    assert!(scene.publish() == scene.bytes);
}

#[test]
fn a_body_that_cannot_be_made_holds_up_no_chunk() {
    let scene = Scene::new();
    scene.disk.now(Hangs::Makes);
    let held = scene.prefer(HANGING);
    let first = scene.begin(0);
    scene.disk.wait_until_held(1);
    drop(held);
    first.recv().expect("it ends").expect("written elsewhere");
    (1..CHUNKS).for_each(|index| scene.put(index));
    assert!(scene.publish() == scene.bytes);
    scene.disk.now(Hangs::Nothing);
}

#[test]
fn a_target_that_hangs_holds_its_share_of_the_buffers_and_no_more() {
    let scene = Scene::new();
    let next = scene.warm_up();
    scene.disk.now(Hangs::Writes);
    let held = scene.prefer(HANGING);
    let begun: Vec<_> = (next..CHUNKS).map(|index| scene.begin(index)).collect();
    scene.disk.wait_until_held(2);
    drop(held);
    begun.into_iter().for_each(|chunk| chunk.recv().expect("it ends").expect("written"));
    // Nine buffers, and a share for each of three targets and one more.
    assert_eq!(scene.slab.free(), CHUNKS as usize - 2);
    scene.disk.now(Hangs::Nothing);
    assert!(scene.publish() == scene.bytes);
}

#[test]
fn a_sync_that_nobody_waited_for_and_that_failed_is_not_forgotten() {
    let scene = Scene::new();
    let next = scene.warm_up();
    assert_eq!(scene.target.sync_data(&scene.file).expect("synced"), []);
    let held = scene.prefer(HANGING);
    scene.put(next);
    drop(held);
    assert!(scene.is_on_hanging(next));
    scene.disk.now(Hangs::Syncs);
    assert_eq!(scene.target.sync_data(&scene.file).expect("the others are synced"), [ChunkIndex(next)]);
    // It comes back at last, with an error that the system tells once.
    scene.disk.state.lock().expect("no panic").fails = true;
    scene.disk.now(Hangs::Nothing);
    let body = scene.striped().body(HANGING).and_then(Body::on_disk).expect("a body");
    while body.mark().holds() {
        std::thread::yield_now();
    }
    let synced = scene.target.home(HANGING).sync_body(&path("large"), body);
    assert!(matches!(synced, Err(DiskError::Doubted { .. })), "the medium may lack what was written: {synced:?}");
}

#[test]
fn records_of_a_file_that_is_continued_are_written_once_more_and_their_end_is_durable() {
    let scene = Scene::new();
    let next = scene.warm_up();
    assert_eq!(scene.target.sync_data(&scene.file).expect("synced"), []);
    let Scene { dirs, disk, target, io, slab, file, temp, map, .. } = scene;
    let home = target.home(file.home()).load_id().0 as usize;
    drop((io, file));
    while slab.free() < CHUNKS as usize {
        std::thread::yield_now();
    }
    let stripe = dirs[home].join(String::from_utf8_lossy(&temp.file_name()).into_owned());
    let stat = std::fs::metadata(stripe).expect("there");
    let (len, stripe) = (stat.len(), InodeId { dev: stat.dev(), ino: stat.ino() });
    {
        let mut state = disk.state.lock().expect("no panic");
        state.written_elsewhere.clear();
        state.synced.clear();
    }
    let journalled = Journalled { node: None, bytes: next << 20 };
    let reopened = target.reopen(&path("large"), map, false, &temp, &journalled).expect("reopened");
    assert!(reopened.is_some());
    let state = disk.state.lock().expect("no panic");
    let written = [(0, len as usize)];
    assert_eq!(state.written_elsewhere, written, "a sync of them may have failed, and the cache forgets that");
    assert!(state.synced.contains(&stripe), "what was cut off may come back with a block that is appended");
}
