//! A second model of the journal: sound records made at random, and the state after each of them.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::digest::Hash32;
use longhaul_core::{ChunkIndex, ChunkMap, ChunkSize, FileNode, Mtime, RelPath, SessionTag, SourceStamp, TempName};
use longhaul_proto::journal::{
    FileRecord, Finished, JournalId, Opened, Origin, Placement, Record, Replayed, Run, Stretch, Writer,
};
use proptest::collection::vec;
use proptest::prelude::*;

pub(crate) const ID: JournalId = JournalId(*b"sixteen bytes id");

/// An open file: its record, its chunks, its temporary.
type Open = (FileRecord, BTreeMap<u64, Hash32>, Option<Placement>);

/// A state: who, the open files with their chunks, the committed ones, directories and doubts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct State {
    pub(crate) opened: Opened,
    pub(crate) files: BTreeMap<u32, Open>,
    pub(crate) done: Vec<Finished>,
    pub(crate) dirs: BTreeSet<RelPath>,
    pub(crate) doubts: BTreeSet<RelPath>,
    origin: Origin,
}

/// A sound journal: its bytes, where each record ends, and the state there.
#[derive(Clone, Debug)]
pub(crate) struct Sound {
    pub(crate) bytes: Vec<u8>,
    pub(crate) ends: Vec<(usize, State)>,
}

impl State {
    pub(crate) fn of(replayed: &Replayed) -> State {
        let partial = |partial: &longhaul_proto::journal::JournalledPartial| {
            assert_eq!(partial.held.len(), partial.held.iter().count() as u64);
            let held = partial.held.iter().map(|(at, digest)| (at.0, *digest)).collect();
            (partial.file.clone(), held, partial.placed)
        };
        State {
            opened: replayed.opened.clone(),
            files: replayed.files.iter().map(|(number, one)| (*number, partial(one))).collect(),
            done: replayed.done.clone(),
            dirs: replayed.dirs.clone(),
            doubts: replayed.doubts.clone(),
            // It shows in what came of it.
            origin: Origin::default(),
        }
    }

    fn take(&mut self, record: &Record) {
        match record {
            Record::Opened(opened) => (self.opened, self.origin) = (opened.clone(), Origin::default()),
            Record::Origin(origin) => self.origin = *origin,
            Record::File(file) => drop(self.files.insert(file.number, (file.clone(), BTreeMap::new(), None))),
            Record::Chunks { number, runs } | Record::ChunksAt { number, runs, .. } => {
                let (_, held, _) = self.files.get_mut(number).expect("open");
                for run in runs {
                    held.extend((run.start.0..).zip(run.digests.iter().copied()));
                }
            }
            Record::Done { number } => {
                let (file, ..) = self.files.remove(number).expect("open");
                self.done.push(Finished { file, origin: self.origin });
            }
            Record::Dropped { number } => drop(self.files.remove(number).expect("open")),
            Record::Revised { number, source, lost } => {
                let (file, held, _) = self.files.get_mut(number).expect("open");
                file.source = *source;
                held.retain(|at, _| !lost.iter().any(|lost| (lost.start.0..lost.start.0 + lost.count).contains(at)));
            }
            Record::Placed { number, node } => {
                let (.., placed) = self.files.get_mut(number).expect("open");
                *placed = Some(Placement { node: *node, origin: self.origin });
            }
            Record::Dirs { paths } => self.dirs.extend(paths.iter().cloned()),
            Record::Left { path } => assert!(self.dirs.remove(path) || !self.dirs.contains(path)),
            Record::Doubtful { paths } => self.doubts.extend(paths.iter().cloned()),
            Record::Certain { paths } => self.doubts.retain(|path| !paths.contains(path)),
        }
    }
}

impl Sound {
    /// Writes down `records`.
    pub(crate) fn of(records: &[Record]) -> Sound {
        let mut bytes = Vec::new();
        let mut writer = Writer::begin(ID, &mut bytes);
        let (mut state, mut ends) = (State::default(), Vec::new());
        for record in records {
            writer.record(record, &mut bytes);
            assert_eq!(writer.len(), bytes.len() as u64);
            state.take(record);
            ends.push((bytes.len(), State { origin: Origin::default(), ..state.clone() }));
        }
        Sound { bytes, ends }
    }

    /// The end of the last record that lies before `at`, and the state there.
    pub(crate) fn before(&self, at: usize) -> Option<&(usize, State)> {
        self.ends.iter().rev().find(|(end, _)| *end <= at)
    }
}

pub(crate) fn opened(generation: u64) -> Record {
    Record::Opened(Opened {
        principal: "uid:1000".to_owned(),
        owner: "ada".to_owned(),
        pid: 4711,
        at_unix: 1_700_000_000,
        generation,
        session: [7; 16],
    })
}

/// A file of this many chunks.
pub(crate) fn file(number: u32, chunks: u64) -> Record {
    let size = ChunkSize::from_log2(10).expect("a size");
    Record::File(FileRecord {
        number,
        path: RelPath::new(format!("d/f{number}")).expect("a path"),
        map: ChunkMap::new(chunks * size.bytes() - 1, size),
        source: stamp(1),
        sparse: number.is_multiple_of(2),
        temp: TempName::new(SessionTag([9; 8]), u64::from(number).to_be_bytes()),
    })
}

pub(crate) fn stamp(ino: u64) -> SourceStamp {
    let mtime = Mtime { secs: -3, nanos: 5 };
    SourceStamp { len: 70_000, mtime, ctime: Mtime { secs: 1 << 40, nanos: 999_999_999 }, dev: 66_306, ino }
}

pub(crate) fn origin(boot: u8, run: u8) -> Record {
    Record::Origin(Origin { boot: [boot; 16], run: [run; 16] })
}

pub(crate) fn node(ino: u64) -> FileNode {
    let born = ino.is_multiple_of(2).then_some(Mtime { secs: 1_700_000_000, nanos: 7 });
    FileNode { dev: 66_306, ino, born }
}

/// Paths of these numbers.
pub(crate) fn paths(numbers: impl IntoIterator<Item = u8>) -> Vec<RelPath> {
    numbers.into_iter().map(|number| RelPath::new(format!("d/{number}")).expect("a path")).collect()
}

pub(crate) fn run(start: u64, digests: impl IntoIterator<Item = u8>) -> Run {
    Run { start: ChunkIndex(start), digests: digests.into_iter().map(|byte| [byte; 32]).collect() }
}

pub(crate) fn chunks(number: u32, start: u64, count: u8) -> Record {
    Record::Chunks { number, runs: vec![run(start, 0..count)] }
}

pub(crate) fn stretch(start: u64, count: u64) -> Stretch {
    Stretch { start: ChunkIndex(start), count }
}

const CHUNKS: u64 = 600;

/// Up to `max` sound records behind the first.
pub(crate) fn sound(max: usize) -> impl Strategy<Value = Vec<Record>> {
    let step = (0..15_u8, any::<prop::sample::Index>(), vec((0..CHUNKS, 1..9_u8), 1..4), any::<u8>());
    vec(step, 0..max).prop_map(|steps| {
        let (mut records, mut open, mut next, mut generation) = (vec![opened(0)], Vec::new(), 0, 0);
        for (what, which, places, byte) in steps {
            let pick = |open: &Vec<u32>| which.index(open.len());
            records.push(match what {
                0 => {
                    generation += 1 + u64::from(byte);
                    opened(generation)
                }
                1 if open.len() > 1 => Record::Done { number: open.swap_remove(pick(&open)) },
                2 if open.len() > 1 => Record::Dropped { number: open.swap_remove(pick(&open)) },
                3 if !open.is_empty() => {
                    let lost = places.iter().map(|(at, count)| stretch(*at, u64::from(*count))).collect();
                    Record::Revised { number: open[pick(&open)], source: stamp(u64::from(byte)), lost }
                }
                4 => origin(byte, byte ^ 1),
                5 if !open.is_empty() => Record::Placed { number: open[pick(&open)], node: node(u64::from(byte)) },
                6 => Record::Dirs { paths: paths([byte % 4, byte % 7]) },
                7 => Record::Left { path: paths([byte % 4]).remove(0) },
                8.. if !open.is_empty() => {
                    let runs = places.iter().map(|(at, count)| run(*at, (0..*count).map(|n| n ^ byte))).collect();
                    Record::Chunks { number: open[pick(&open)], runs }
                }
                _ => {
                    next += 1 + u32::from(byte);
                    open.push(next);
                    file(next, CHUNKS + 8)
                }
            });
        }
        records
    })
}
