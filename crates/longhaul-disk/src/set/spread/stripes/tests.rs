//! Tests of the order in which the parts of a striped file become durable.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use longhaul_core::digest::digest_of;
use longhaul_core::{ChunkIndex, Preserve, RelPath};
use longhaul_sys::Slab;
use rustix::io::Errno;

use super::*;
use crate::destination::{TargetTree, TreePolicy};
use crate::kernel::{Call, InodeId, Interposer, Kernel, Passage};
use crate::set::{Marks, SameDevice, SetLayout, SpreadTarget, TargetDirs, Writing};
use crate::testing::{META, content, map, path, temp, write};
use crate::{ChunkIo, EngineKind};

/// Watches the calls for a striped file, and notes what comes too early.
#[derive(Debug, Default)]
struct Order {
    /// The directories of bodies.
    body_dirs: BTreeSet<InodeId>,
    state: Mutex<OrderState>,
    token: AtomicU64,
}

#[derive(Debug, Default)]
struct OrderState {
    bodies: BTreeSet<InodeId>,
    /// Bodies that were written to.
    written: BTreeSet<InodeId>,
    /// Files that were written to since their last sync.
    dirty: BTreeSet<InodeId>,
    /// Calls under way: files that are made in a directory of bodies, and files that are synced.
    made: BTreeSet<u64>,
    synced: BTreeMap<u64, InodeId>,
    records: usize,
    renames: usize,
    too_early: Vec<String>,
}

impl Interposer for Order {
    fn begin(&self, call: &Call<'_>) -> Passage {
        let token = self.token.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock().expect("no panic");
        match call {
            Call::Create { dir, .. } if self.body_dirs.contains(dir) => _ = state.made.insert(token),
            Call::Write { file, offset, .. } if !state.bodies.contains(file) => {
                // Records, and the header that makes the file whole.
                let dirty = state.dirty.intersection(&state.bodies).count();
                if dirty > 0 {
                    state.too_early.push(format!("a write to the stripe file at {offset}, {dirty} bodies not synced"));
                }
                state.records += 1;
                state.dirty.insert(*file);
            }
            Call::Write { file, .. } => {
                state.written.insert(*file);
                state.dirty.insert(*file);
            }
            // A body that was only made longer holds nothing.
            Call::SetLen { file, .. } if state.written.contains(file) => _ = state.dirty.insert(*file),
            Call::SyncData { of } | Call::Sync { of } => _ = state.synced.insert(token, of.inode),
            Call::Rename { .. } => {
                state.renames += 1;
                if !state.dirty.is_empty() {
                    let dirty = state.dirty.len();
                    state.too_early.push(format!("the name, {dirty} files not synced"));
                }
            }
            _ => {}
        }
        Passage::Made(token)
    }

    fn end(&self, token: u64, outcome: Result<Option<InodeId>, Errno>) {
        let mut state = self.state.lock().expect("no panic");
        if let (true, Ok(Some(body))) = (state.made.remove(&token), &outcome) {
            state.bodies.insert(*body);
        }
        if let (Some(file), Ok(_)) = (state.synced.remove(&token), &outcome) {
            state.dirty.remove(&file);
        }
    }

    fn read_medium(&self, _: InodeId, _: u64, _: &mut [u8]) -> Option<usize> {
        None
    }

    fn file_system_type(&self) -> Option<u64> {
        None
    }
}

#[test]
fn bodies_are_synced_before_their_records_and_everything_before_the_name() {
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
    let inode = |dir: &PathBuf| {
        let stat = std::fs::metadata(dir.join(".longhaul-set/bodies")).expect("there");
        InodeId { dev: stat.dev(), ino: stat.ino() }
    };
    let order = Arc::new(Order { body_dirs: dirs.iter().map(inode).collect(), ..Order::default() });
    let set = set.behind(&Kernel::behind(order.clone()));
    let target =
        SpreadTarget::beneath(&set, &RelPath::root(), DirectMode::Auto, TreePolicy::default()).expect("opened");
    let chunk = map(1).size().bytes();
    let (map, bytes) = (map(5 * chunk + 9), content(5 * chunk + 9));
    let slab = Slab::new(chunk as usize, 1).expect("slab");
    let io = ChunkIo::start(EngineKind::Threads, 2, &slab).expect("engine");
    let file = target.create(&path("large"), map, false, &temp()).expect("made");
    for index in (0..map.chunks()).map(ChunkIndex) {
        let (start, len) = (map.start_of(index), map.len_of(index).expect("a chunk") as usize);
        let part = &bytes[start.0 as usize..start.0 as usize + len];
        file.note_digest(index, digest_of(part, map.kind(), start));
        let mut slot = slab.try_claim().expect("it came back");
        slot[..len].copy_from_slice(part);
        write(&io, &file, start.0, len, slot).1.expect("written");
        if index.0 % 2 == 1 {
            target.sync_data(&file).expect("synced");
        }
    }
    let staged = target.seal(file, &META, Preserve::default()).expect("sealed");
    target.barrier(&[&staged]).expect("durable");
    target.publish(&staged, Replace::Never).expect("published");
    target.sync_dirs(&[staged]).expect("durable");
    let state = order.state.lock().expect("no panic");
    assert_eq!(state.too_early, [""; 0]);
    assert!(!state.bodies.is_empty() && state.records >= 4 && state.renames == 1, "{state:?}");
}
