//! The partials that an earlier session left, on the disk as it left them: a journal in the real
//! format, and the temporaries.
//!
//! Takes the plan's scene; changes the file system before the world begins.

use longhaul_core::digest::digest_of;
use longhaul_core::{ChunkIndex, ChunkMap, ChunkSize, SessionTag, SourceStamp, TempName};
use longhaul_proto::journal::{FileRecord, JournalId, Opened, Record, Run, Writer};
use longhaul_proto::receiver::Source;

use crate::fs::{Fs, Node};
use crate::names::{self, SHELF, in_dir};
use crate::plan::Plan;
use crate::rng::Rng;
use crate::scene::Left;
use crate::source::{SourceTree, rel_path};

/// Puts the plan's partials there. Those of which the source has no file are left out.
pub(crate) fn put(fs: &mut Fs, source: &SourceTree, plan: &Plan, rng: &mut Rng) {
    if plan.scene.left.is_empty() {
        return;
    }
    let tag = SessionTag(rng.array());
    let mut bytes = Vec::new();
    let mut writer = Writer::begin(JournalId(rng.array()), &mut bytes);
    writer.record(&Record::Opened(opened()), &mut bytes);
    for (number, left) in (0..).zip(&plan.scene.left) {
        let Some(version) = source.versions(&left.path).last().copied() else { continue };
        let map = map_of(left);
        let stamp = match left.source {
            Source::Same => version.stamp,
            Source::Changed => SourceStamp { ino: version.stamp.ino + 1, ..version.stamp },
        };
        let temp = TempName::new(tag, rng.array());
        let path = rel_path(&left.path);
        writer.record(&Record::File(FileRecord { number, path, map, source: stamp, sparse: false, temp }), &mut bytes);
        let runs = left.held.iter().map(|at| run(left, map, ChunkIndex(*at))).collect();
        if !left.held.is_empty() {
            writer.record(&Record::Chunks { number, runs }, &mut bytes);
        }
        if !left.gone {
            put_temp(fs, plan, left, &in_dir(&left.path, &temp));
        }
    }
    fs.put_node(SHELF, Node::Dir);
    fs.put(&names::journal(tag), &bytes, Default::default());
}

fn put_temp(fs: &mut Fs, plan: &Plan, left: &Left, name: &str) {
    if !fs.put_dirs_above(name) {
        return;
    }
    fs.put(name, &left.bytes, Default::default());
    let Some(ino) = fs.cached().file(name) else { return };
    for content in &plan.scene.always_spoilt {
        let place = left.bytes.chunks(left.chunk).position(|chunk| chunk == content.as_slice());
        place.into_iter().for_each(|at| fs.spoil(ino, at * left.chunk));
    }
}

fn map_of(left: &Left) -> ChunkMap {
    let size = ChunkSize::from_bytes(left.chunk as u64).expect("a size");
    ChunkMap::new(left.bytes.len() as u64, size)
}

fn run(left: &Left, map: ChunkMap, index: ChunkIndex) -> Run {
    let (start, len) = (map.start_of(index), map.len_of(index).expect("a chunk") as usize);
    let bytes = &left.bytes[start.0 as usize..][..len];
    Run { start: index, digests: vec![*digest_of(bytes, map.kind(), start).bytes()] }
}

fn opened() -> Opened {
    Opened {
        principal: "uid:1".to_owned(),
        owner: "someone".to_owned(),
        pid: 1,
        at_unix: 0,
        generation: 0,
        session: [0; 16],
    }
}
