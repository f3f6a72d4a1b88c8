//! The plan of a world: the tree that is sent, the standing files at the destination, and the
//! faults.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use longhaul_core::{ChunkSize, Clock, Entry, EntryKind, FaultCode, IfExists, Inode, Meta, Mtime, RelPath, Unit};

use super::rng::Rng;
use crate::receiver::{Landing, Policy, Seen, SkippedDigests, Source, SyncGroup};

pub(crate) const CHUNK: usize = 1024;

/// One entry of the tree, with its content.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) entry: Entry,
    pub(crate) bytes: Vec<u8>,
}

/// The partial that an earlier session left of a file.
#[derive(Clone, Debug)]
pub(crate) struct Left {
    pub(crate) path: RelPath,
    /// The bytes of its temporary. Bytes that are not journalled may be anything.
    pub(crate) bytes: Vec<u8>,
    pub(crate) chunk: ChunkSize,
    /// Chunks that are journalled.
    pub(crate) held: BTreeSet<u64>,
    pub(crate) source: Source,
    /// Whether its temporary is gone.
    pub(crate) gone: bool,
}

/// A world before it begins.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) items: Vec<Item>,
    pub(crate) standing: Vec<(RelPath, Seen)>,
    /// The content of the files among these.
    pub(crate) contents: Vec<(RelPath, Vec<u8>)>,
    /// In a thousand: somebody writes to a standing file when it is read.
    pub(crate) restless: u32,
    pub(crate) left: Vec<Left>,
    pub(crate) landing: Landing,
    pub(crate) policy: Policy,
    pub(crate) dry_run: bool,
    pub(crate) bundled_max: u64,
    pub(crate) lanes: usize,
    pub(crate) safe: bool,
    pub(crate) group: SyncGroup,
    /// Whether messages of different classes overtake each other at will, or only the urgent the
    /// others.
    pub(crate) any_class_order: bool,
    /// In a thousand turns: some time passes though nothing waits for it.
    pub(crate) dawdling: u32,
    /// In a thousand sendings: bytes of the unit are changed on the way.
    pub(crate) flips: u32,
    /// In a thousand sendings on a `safe` lane: its header is changed so that it still parses.
    pub(crate) alters: u32,
    /// In a thousand turns: a lane breaks, or one side gives it up.
    pub(crate) losses: u32,
    /// In a thousand turns: the sender ends a lane in order.
    pub(crate) retirements: u32,
    /// Units that never arrive as they were sent.
    pub(crate) always_flipped: HashSet<Unit>,
    /// In a thousand: an operation of the target's disk fails, with this code.
    pub(crate) disk_faults: (u32, FaultCode),
    /// Bytes of room at the target. `None` if it does not tell its room and has enough.
    pub(crate) room: Option<u64>,
    /// In a thousand: a source cannot be read, has changed, or gives other bytes when read again.
    pub(crate) source_faults: u32,
    /// Whether everything is read back from the medium.
    pub(crate) read_back: bool,
    /// The readers of the roots of skipped files.
    pub(crate) digests: SkippedDigests,
    /// In a thousand writes, if they are read back: the medium keeps other bytes.
    pub(crate) spoils: u32,
    /// Places that the medium keeps wrongly whenever they are written.
    pub(crate) always_spoilt: HashSet<(RelPath, u64)>,
}

impl Plan {
    /// `items` under the most ordinary circumstances.
    pub(crate) fn new(items: Vec<Item>) -> Plan {
        Plan {
            seed: 1,
            items,
            standing: Vec::new(),
            contents: Vec::new(),
            restless: 0,
            left: Vec::new(),
            landing: Landing::beneath(),
            policy: Policy { if_exists: IfExists::SkipSame, may_modify: true },
            dry_run: false,
            bundled_max: 256,
            lanes: 2,
            safe: true,
            group: SyncGroup { bytes: 8 << 10, age: Duration::from_secs(1) },
            any_class_order: false,
            dawdling: 20,
            flips: 0,
            alters: 0,
            losses: 0,
            retirements: 0,
            always_flipped: HashSet::new(),
            disk_faults: (0, FaultCode::Io),
            room: None,
            source_faults: 0,
            read_back: false,
            digests: SkippedDigests::Unwanted,
            spoils: 0,
            always_spoilt: HashSet::new(),
        }
    }

    pub(crate) fn seed(mut self, seed: u64) -> Plan {
        self.seed = seed;
        self
    }

    /// Anything may be the case and anything may go wrong.
    pub(crate) fn random(seed: u64) -> Plan {
        let mut rng = Rng::new(seed);
        let rng = &mut rng;
        let items = tree(rng);
        let if_exists = *rng.pick(&[IfExists::SkipSame, IfExists::Replace, IfExists::Fail, IfExists::Verify]);
        let (mut standing, mut contents) = (Vec::new(), Vec::new());
        for item in &items {
            if rng.permille(if if_exists == IfExists::Verify { 500 } else { 60 }) {
                standing.push((item.entry.path.clone(), standing_for(rng, item)));
                contents.push((item.entry.path.clone(), nearly(rng, item)));
            }
        }
        let left = items.iter().filter_map(|item| if rng.permille(300) { left_of(rng, item) } else { None }).collect();
        let rare = |rng: &mut Rng, most: u32| if rng.permille(400) { rng.below(most as usize) as u32 } else { 0 };
        Plan {
            standing,
            contents,
            restless: if rng.permille(200) { rng.below(100) as u32 } else { 0 },
            left,
            policy: Policy { if_exists, may_modify: rng.permille(700) },
            landing: if rng.permille(200) {
                Landing::beneath().only(tops(&items).into_iter().collect())
            } else {
                Landing::beneath()
            },
            dry_run: rng.permille(50),
            bundled_max: *rng.pick(&[0, 100, 256, 968, u64::MAX]),
            lanes: 1 + rng.below(4),
            safe: rng.permille(600),
            group: SyncGroup {
                bytes: *rng.pick(&[0, 1, 2048, 20_000, 1 << 30]),
                age: Duration::from_millis(*rng.pick(&[0, 1, 1000])),
            },
            any_class_order: rng.permille(300),
            flips: rare(rng, 300),
            alters: rare(rng, 200),
            losses: rare(rng, 60),
            retirements: rare(rng, 30),
            disk_faults: (rare(rng, 60), FaultCode::Io),
            source_faults: rare(rng, 60),
            read_back: rng.permille(400),
            digests: if rng.permille(300) { SkippedDigests::Told } else { SkippedDigests::Unwanted },
            spoils: rare(rng, 150),
            ..Plan::new(items).seed(seed)
        }
    }
}

/// Sizes on both sides of every edge there is.
const SIZES: &[usize] = &[
    0,
    1,
    99,
    100,
    101,
    255,
    256,
    257,
    967,
    968,
    969,
    CHUNK - 1,
    CHUNK,
    CHUNK + 1,
    2 * CHUNK - 1,
    2 * CHUNK,
    2 * CHUNK + 1,
    5 * CHUNK + 7,
    40 * CHUNK,
];

pub(crate) fn path(text: &str) -> RelPath {
    RelPath::new(text).expect("a path")
}

pub(crate) fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.next() as u8).collect()
}

pub(crate) fn file(name: &str, len: usize) -> Item {
    let seed = name.bytes().fold(len as u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    Item {
        bytes: bytes(seed, len),
        ..item(name, EntryKind::File { len: len as u64, sparse: false, inode: Inode::default() })
    }
}

pub(crate) fn item(name: &str, kind: EntryKind) -> Item {
    let meta = Meta { mode: 0o644, mtime: Mtime { secs: 1_700_000_000, nanos: 5 } };
    Item { entry: Entry { path: path(name), kind, meta }, bytes: Vec::new() }
}

/// Something that is not sent.
pub(crate) fn unsent(name: &str, failure: Option<FaultCode>) -> Item {
    item(name, EntryKind::Unsent { failure, why: "odd".into() })
}

/// A file of `chunks` chunks of which every other is a hole.
pub(crate) fn sparse(name: &str, chunks: usize) -> Item {
    let mut item = file(name, chunks * CHUNK + 3);
    item.entry.kind = EntryKind::File { len: item.bytes.len() as u64, sparse: true, inode: Inode::default() };
    item.bytes.chunks_mut(CHUNK).step_by(2).for_each(|chunk| chunk.fill(0));
    item
}

/// `count` files of `len` bytes, `per_dir` in a directory.
pub(crate) fn many(count: usize, per_dir: usize, len: usize) -> Vec<Item> {
    let mut items = Vec::new();
    for at in 0..count {
        let dir = format!("d{}", at / per_dir);
        if at % per_dir == 0 {
            items.push(item(&dir, EntryKind::Dir));
        }
        items.push(file(&format!("{dir}/f{at}"), len));
        if at % per_dir == per_dir - 1 || at == count - 1 {
            items.push(item(&dir, EntryKind::DirEnd));
        }
    }
    items
}

/// Some of the chunks of `item`, in an earlier session's temporary.
pub(crate) fn left_of(rng: &mut Rng, item: &Item) -> Option<Left> {
    if !matches!(item.entry.kind, EntryKind::File { .. }) {
        return None;
    }
    let chunk = *rng.pick(&[CHUNK, CHUNK, 2 * CHUNK]);
    let source = *rng.pick(&[Source::Same, Source::Changed]);
    let most = rng.below(1001) as u32;
    let held: BTreeSet<u64> =
        (0..item.bytes.len().div_ceil(chunk).max(1) as u64).filter(|_| rng.permille(most)).collect();
    let mut bytes = item.bytes.clone();
    for (at, content) in bytes.chunks_mut(chunk).enumerate() {
        let journalled = held.contains(&(at as u64));
        if !journalled && rng.permille(700) || source == Source::Changed && rng.permille(300) {
            content.fill(0xa5);
        }
    }
    Some(Left {
        path: item.entry.path.clone(),
        bytes,
        chunk: ChunkSize::from_bytes(chunk as u64)?,
        held,
        source,
        gone: rng.permille(100),
    })
}

fn tree(rng: &mut Rng) -> Vec<Item> {
    let mut items = Vec::new();
    let budget = rng.below(60);
    grow(rng, "t", budget, &mut items);
    if rng.permille(300) {
        let doubles: Vec<_> = items.iter().filter(|_| rng.permille(100)).cloned().collect();
        items.extend(doubles.into_iter().filter(|i| !matches!(i.entry.kind, EntryKind::Dir | EntryKind::DirEnd)));
    }
    items
}

fn grow(rng: &mut Rng, dir: &str, mut budget: usize, items: &mut Vec<Item>) {
    items.push(item(dir, EntryKind::Dir));
    for at in 0.. {
        if budget == 0 {
            break;
        }
        budget -= 1;
        let name = format!("{dir}/{at}");
        match rng.below(13) {
            12 => items.push(unsent(&name, rng.permille(500).then_some(FaultCode::Denied))),
            0 => items.push(item(&name, EntryKind::Symlink { target: b"../somewhere".to_vec() })),
            1 => items.push(sparse(&name, 1 + rng.below(6))),
            2 | 3 => {
                let inner = rng.below(budget + 1);
                budget -= inner;
                grow(rng, &name, inner, items);
            }
            _ => items.push(file(&name, *rng.pick(SIZES))),
        }
    }
    items.push(item(dir, EntryKind::DirEnd));
}

fn standing_for(rng: &mut Rng, item: &Item) -> Seen {
    match rng.below(5) {
        0 => Seen::Dir,
        1 => Seen::Symlink { target: b"elsewhere".to_vec() },
        2 => Seen::Special,
        3 => Seen::File { len: item.bytes.len() as u64 + 1, mtime: item.entry.meta.mtime, clock: Clock::Exact },
        _ => Seen::File { len: item.bytes.len() as u64, mtime: item.entry.meta.mtime, clock: Clock::Exact },
    }
}

/// The content of `item`, or something that differs from it in places.
pub(crate) fn nearly(rng: &mut Rng, item: &Item) -> Vec<u8> {
    let mut bytes = item.bytes.clone();
    let often = *rng.pick(&[0, 0, 100, 1000]);
    for chunk in bytes.chunks_mut(CHUNK / 2) {
        if rng.permille(often) {
            chunk[0] ^= 1;
        }
    }
    bytes
}

fn tops(items: &[Item]) -> Vec<Vec<u8>> {
    items.iter().filter_map(|i| i.entry.path.split_top().map(|(top, _)| top.to_vec())).collect()
}
