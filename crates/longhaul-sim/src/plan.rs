//! The plan of a world: the tree that is sent, the standing files at the destination, the speed of
//! link and disk, and the faults.
//!
//! Takes a seed; gives plain data that the world plays. Decides nothing later on.

use std::time::Duration;

use longhaul_core::{ChunkSize, FaultCode, IfExists, LaneId, Preserve};
use longhaul_proto::receiver::{Cut, Landing, Policy, ReceiverConfig, SkippedDigests, SyncGroup, WantOrder};

use crate::rng::Rng;
use crate::scene::Scene;

/// The ordinary chunk size.
pub(crate) const CHUNK: usize = 1024;

/// A name of the source's tree.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Dir(String),
    DirEnd(String),
    File {
        path: String,
        bytes: Vec<u8>,
        sparse: bool,
    },
    Link {
        path: String,
        target: Vec<u8>,
    },
    /// Another name of the file at a place before it.
    Name {
        path: String,
        of: usize,
    },
    /// Something that is not sent, as it cannot be read (with that code) or is not wanted.
    Unsent {
        path: String,
        failure: Option<FaultCode>,
    },
}

/// Something that goes wrong at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blow {
    /// The receiver's host dies: volatile changes are lost, in part or whole.
    CrashReceiver,
    /// The receiver's process dies.
    KillReceiver,
    /// The sender dies.
    KillSender,
    /// The connections end; the sides notice at different times, the receiver maybe never.
    LoseSession,
    /// Nothing passes the link for a while.
    Partition,
    /// A file of the source becomes another version.
    ChangeSource,
    /// The user interrupts the receiver.
    Interrupt,
    /// The receiver's disk refuses everything of a kind for a while.
    FailDisk,
}

/// How often things go wrong by themselves until the last blow, in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rates {
    /// Sendings whose payload is damaged so that no checksum of the transport notices.
    pub(crate) flips: u32,
    /// Sendings whose header is altered on the way so that it still parses (`safe` lanes).
    pub(crate) alters: u32,
    /// Sendings that arrive twice (`safe` lanes).
    pub(crate) replays: u32,
    /// Sendings that cost their lane.
    pub(crate) lanes: LaneRates,
    /// Roots that leave the sender damaged.
    pub(crate) false_roots: u32,
    /// Operations of the receiver's disk that fail, in part or whole.
    pub(crate) disk_faults: u32,
    /// Operations of the receiver's disk that take seconds.
    pub(crate) disk_stalls: u32,
    /// Targets that hang.
    pub(crate) hangs: HangRates,
    /// Names that cannot be read, looked at or removed.
    pub(crate) names: NameRates,
    /// Looks at files of the receiver's disk that fail.
    pub(crate) read_faults: u32,
    /// Writes of chunks and small files of which the medium keeps other bytes.
    pub(crate) spoils: u32,
    /// Reads of a standing file at which somebody writes to it.
    pub(crate) restless: u32,
    /// Sources that cannot be read, have changed, or give other bytes when they are read again.
    pub(crate) source_faults: u32,
}

/// How often something fails that is done with a name at the destination, in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NameRates {
    /// Journals that a session finds and cannot read.
    pub(crate) journals_unread: u32,
    /// Names of a page that cannot be looked at, each by itself.
    pub(crate) unseen: u32,
    /// Removals that fail.
    pub(crate) removals: u32,
}

/// How often a target hangs, in a thousand. The disk does not wait for it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HangRates {
    /// Chunks that a sync should cover and whose bytes it gives up.
    pub(crate) chunks: u32,
    /// Files of a batch that its barrier postpones.
    pub(crate) files: u32,
}

/// How often a sending costs its lane, in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LaneRates {
    /// The lane is lost: it breaks, or one side gives it up.
    pub(crate) losses: u32,
    /// The sender ends the lane in order afterwards.
    pub(crate) retirements: u32,
    /// A lane on which a unit takes so many times as long, and which the sender gives up when there
    /// is nothing left to hand over. `None` if all lanes are alike.
    pub(crate) straggler: Option<(LaneId, u64)>,
    /// Whether units overtake each other on a lane, as they do in datagrams.
    pub(crate) overtaking: bool,
}

/// The terms of the sessions, on which both sides agree.
#[derive(Clone, Debug)]
pub(crate) struct Terms {
    /// The rule for names that stand.
    pub(crate) if_exists: IfExists,
    /// Whether names that stand may be replaced.
    pub(crate) may_modify: bool,
    /// The places of entries at the destination.
    pub(crate) landing: Landing,
    /// Whether nothing is changed.
    pub(crate) dry_run: bool,
    /// The readers of the roots of skipped files.
    pub(crate) digests: SkippedDigests,
    /// The group syncs of written chunks.
    pub(crate) group: SyncGroup,
    /// Whether everything is read back from the medium before it is journalled or renamed.
    pub(crate) read_back: bool,
    /// Whether files have checksums that need their bytes in order.
    pub(crate) in_order: bool,
    /// The order in which chunks are asked for. In sequence the destination writes them in it.
    pub(crate) order: WantOrder,
    /// Bytes of small files that a sender may say before anybody asked for them. 0: none.
    pub(crate) unasked_bytes: u64,
}

impl Terms {
    /// Ordinary terms, but for these.
    pub(crate) fn new(if_exists: IfExists, group: SyncGroup) -> Terms {
        Terms {
            if_exists,
            may_modify: true,
            landing: Landing::beneath(),
            dry_run: false,
            digests: SkippedDigests::Unwanted,
            group,
            read_back: false,
            in_order: false,
            order: WantOrder::Any,
            unasked_bytes: 0,
        }
    }
}

/// A world before it begins.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) items: Vec<Item>,
    /// The files that stand at the destination already.
    pub(crate) standing_files: Vec<(String, Vec<u8>)>,
    pub(crate) lanes: u32,
    pub(crate) safe: bool,
    pub(crate) bundled_max: u64,
    /// The terms of all sessions.
    pub(crate) terms: Terms,
    /// The chunk sizes of sessions, in turn: a partial keeps its own.
    pub(crate) chunks_of: Vec<usize>,
    /// Longest way of a message, in microseconds; the shortest is a quarter of it.
    pub(crate) delay_us: u64,
    /// Longest operation of the disk at ordinary times, in microseconds; the shortest is a quarter
    /// of it.
    pub(crate) disk_us: u64,
    pub(crate) rates: Rates,
    /// The blows, each with the number of events after the one before.
    pub(crate) blows: Vec<(u64, Blow)>,
    /// Special circumstances; none in the worlds of seeds.
    pub(crate) scene: Scene,
}

impl Plan {
    /// The world of a seed.
    pub(crate) fn random(seed: u64) -> Plan {
        let rng = &mut Rng::new(seed);
        let items = tree(rng);
        let before = items.iter().filter_map(|item| standing(rng, item)).collect();
        let chunks: u64 = items.iter().map(Item::chunks).sum();
        let blows = (0..rng.below(6)).map(|_| (1 + rng.below(60 + 6 * chunks), blow(rng))).collect();
        let mut rare = |most: u64| if rng.permille(300) { rng.below(most) as u32 } else { 0 };
        let rates = Rates {
            flips: rare(200),
            alters: rare(100),
            replays: rare(60),
            false_roots: rare(300),
            disk_faults: rare(30),
            disk_stalls: rare(60),
            ..Rates::default()
        };
        Plan {
            items,
            standing_files: before,
            lanes: 1 + rng.below(4) as u32,
            safe: rng.permille(600),
            bundled_max: *rng.pick(&[0, 100, 256, 968]),
            terms: Terms::new(
                IfExists::SkipSame,
                SyncGroup {
                    bytes: *rng.pick(&[1, 2048, 8192, 1 << 30]),
                    age: Duration::from_millis(*rng.pick(&[1, 50, 1000])),
                },
            ),
            delay_us: *rng.pick(&[200, 5_000, 100_000]),
            disk_us: *rng.pick(&[100, 2_000, 20_000]),
            rates,
            blows,
            chunks_of: Vec::new(),
            scene: Scene::default(),
        }
        .reading_back(rng)
        .losing_lanes(rng)
        .comparing(rng)
        .hiding_journals(rng)
        .claiming_late(rng)
        .hanging(rng)
        .overtaking(rng)
        .saying_unasked(rng)
        .reading_in_order(rng)
    }

    /// Lets units overtake each other on the lanes of some worlds, as in datagrams, which are
    /// always encrypted.
    pub(crate) fn overtaking(mut self, rng: &mut Rng) -> Plan {
        self.rates.lanes.overtaking = rng.permille(500) && !self.safe;
        self
    }

    /// Lets targets hang in some worlds.
    fn hanging(mut self, rng: &mut Rng) -> Plan {
        self.rates.hangs = HangRates::drawn(rng);
        self
    }

    fn claiming_late(mut self, rng: &mut Rng) -> Plan {
        self.scene.claims_late = rng.permille(500);
        self.rates.names.removals = if rng.permille(200) { rng.below(400) as u32 } else { 0 };
        self.rates.names.unseen = if rng.permille(150) { rng.below(60) as u32 } else { 0 };
        self
    }

    fn hiding_journals(mut self, rng: &mut Rng) -> Plan {
        self.rates.names.journals_unread = if rng.permille(200) { rng.below(400) as u32 } else { 0 };
        self
    }

    /// Lets some worlds read back, use larger chunks, or replace. Drawn behind the rest, so that
    /// the worlds of all seeds are otherwise as before this existed.
    fn reading_back(mut self, rng: &mut Rng) -> Plan {
        self.terms.read_back = rng.permille(300);
        self.chunks_of = (0..3).map(|_| if rng.permille(150) { 2 * CHUNK } else { CHUNK }).collect();
        self.terms.if_exists = if rng.permille(150) { IfExists::Replace } else { IfExists::SkipSame };
        self
    }

    /// Lets some worlds compare: more files stand there, in part with the content that is sent.
    fn comparing(mut self, rng: &mut Rng) -> Plan {
        if !rng.permille(250) {
            return self;
        }
        self.terms.if_exists = IfExists::Verify;
        self.standing_files = self.items.iter().filter_map(|item| nearly(rng, item)).collect();
        self
    }

    fn losing_lanes(mut self, rng: &mut Rng) -> Plan {
        self.rates.lanes.losses = if rng.permille(300) { rng.below(150) as u32 } else { 0 };
        self
    }

    /// The same world in which nothing goes wrong.
    pub(crate) fn ideal(&self) -> Plan {
        Plan { rates: Rates::default(), blows: Vec::new(), ..self.clone() }
    }

    /// The chunk size of the command's session of that number, from 1.
    pub(crate) fn chunk_of(&self, session: u32) -> ChunkSize {
        let bytes = self.chunks_of[session as usize % self.chunks_of.len()];
        ChunkSize::from_bytes(bytes as u64).expect("a power of two in bounds")
    }

    /// The smallest chunk that any session begins a file with.
    pub(crate) fn chunk_min() -> ChunkSize {
        ChunkSize::from_bytes(CHUNK as u64).expect("a power of two in bounds")
    }

    /// The largest chunk that any session takes.
    pub(crate) fn chunk_max() -> ChunkSize {
        ChunkSize::from_bytes(2 * CHUNK as u64).expect("a power of two in bounds")
    }

    /// A small world where nothing goes wrong by itself: three chunks and two small files.
    pub(crate) fn quiet(seed: u64) -> Plan {
        let rng = &mut Rng::new(seed);
        let file =
            |rng: &mut Rng, path: &str, len| Item::File { path: path.to_owned(), bytes: rng.bytes(len), sparse: false };
        let items = vec![
            Item::Dir("t".to_owned()),
            file(rng, "t/large", 2 * CHUNK + 100),
            file(rng, "t/small", 70),
            file(rng, "t/tiny", 1),
            Item::DirEnd("t".to_owned()),
        ];
        Plan {
            standing_files: vec![("t/small".to_owned(), rng.bytes(50))],
            items,
            lanes: 2,
            safe: true,
            bundled_max: 256,
            terms: Terms::new(IfExists::SkipSame, SyncGroup { bytes: 1, age: Duration::from_millis(1) }),
            chunks_of: vec![CHUNK],
            delay_us: 2_000,
            disk_us: 500,
            rates: Rates::default(),
            blows: Vec::new(),
            scene: Scene { claims_late: seed % 2 == 1, ..Scene::default() },
        }
    }

    /// The terms for the receiver of the command's session of that number, from 1.
    pub(crate) fn receiver_config(&self, session: u32) -> ReceiverConfig {
        let terms = &self.terms;
        ReceiverConfig {
            chunk: self.chunk_of(session),
            chunk_max: Plan::chunk_max(),
            bundled_max: self.bundled_max,
            policy: Policy { if_exists: terms.if_exists, may_modify: terms.may_modify },
            landing: terms.landing.clone(),
            preserve: Preserve { hardlinks: true, sums: terms.sums(), ..Preserve::default() },
            dry_run: terms.dry_run,
            group: terms.group,
            read_back: terms.read_back,
            digests: terms.digests,
            order: terms.order,
            // Files that are begun by every other session are cut.
            cut: (session % 2 == 1).then(|| {
                let least = Plan::chunk_min();
                Cut { lanes: self.lanes, chunk_min: least, even_min: least }
            }),
        }
    }

    /// Chunks of the whole tree.
    pub(crate) fn chunks(&self) -> u64 {
        self.items.iter().map(Item::chunks).sum()
    }
}

impl Item {
    /// Its path at the source.
    pub(crate) fn path(&self) -> &str {
        match self {
            Item::Dir(path) | Item::DirEnd(path) => path,
            Item::File { path, .. } | Item::Link { path, .. } => path,
            Item::Name { path, .. } | Item::Unsent { path, .. } => path,
        }
    }

    /// Another name of a file among `items`. `None` if there is none.
    pub(crate) fn name(rng: &mut Rng, path: String, items: &[Item]) -> Option<Item> {
        let files: Vec<usize> = (0..items.len()).filter(|at| matches!(items[*at], Item::File { .. })).collect();
        (!files.is_empty()).then(|| Item::Name { path, of: *rng.pick(&files) })
    }

    fn chunks(&self) -> u64 {
        match self {
            Item::File { bytes, .. } => bytes.len().div_ceil(CHUNK) as u64,
            _ => 0,
        }
    }
}

fn blow(rng: &mut Rng) -> Blow {
    use Blow::*;
    *rng.pick(&[
        CrashReceiver,
        CrashReceiver,
        CrashReceiver,
        KillReceiver,
        KillSender,
        KillSender,
        LoseSession,
        LoseSession,
        Partition,
        ChangeSource,
        ChangeSource,
        Interrupt,
        FailDisk,
    ])
}

fn tree(rng: &mut Rng) -> Vec<Item> {
    let mut items = Vec::new();
    let (mut large, mut budget) = (1 + rng.below(3), rng.below(12));
    let top = "t".to_owned();
    items.push(Item::Dir(top.clone()));
    let mut dirs = vec![top];
    for at in 0.. {
        let dir = dirs.last().cloned().unwrap_or_default();
        let path = format!("{dir}/{at}");
        if large > 0 {
            large -= 1;
            let len = *rng.pick(LARGE);
            items.push(file(rng, path, len));
        } else if budget > 0 {
            budget -= 1;
            match rng.below(8) {
                0 if rng.permille(500) => items.push(Item::Link { path, target: b"../elsewhere".to_vec() }),
                0 => items.extend(Item::name(rng, path, &items)),
                1 | 2 => {
                    items.push(Item::Dir(path.clone()));
                    dirs.push(path);
                    large += rng.below(2);
                }
                3 if dirs.len() > 1 => items.extend(dirs.pop().map(Item::DirEnd)),
                _ => {
                    let len = *rng.pick(SMALL);
                    items.push(file(rng, path, len));
                }
            }
        } else {
            break;
        }
    }
    items.extend(dirs.into_iter().rev().map(Item::DirEnd));
    items
}

fn file(rng: &mut Rng, path: String, len: usize) -> Item {
    let mut bytes = rng.bytes(len);
    let sparse = rng.permille(150);
    if sparse {
        bytes.chunks_mut(CHUNK).step_by(2).for_each(|chunk| chunk.fill(0));
    }
    Item::File { path, bytes, sparse }
}

/// Other content under the same name, in some cases.
fn standing(rng: &mut Rng, item: &Item) -> Option<(String, Vec<u8>)> {
    let Item::File { path, bytes, .. } = item else { return None };
    let len = if rng.permille(500) { bytes.len() } else { bytes.len() + 1 };
    // Its directory must stand as well: only the top one does.
    let at_top = path.matches('/').count() == 1;
    (at_top && rng.permille(200)).then(|| (path.clone(), rng.bytes(len)))
}

/// The same content under the same name, or one that differs in some chunks, in most cases.
fn nearly(rng: &mut Rng, item: &Item) -> Option<(String, Vec<u8>)> {
    let Item::File { path, bytes, .. } = item else { return None };
    let mut bytes = bytes.clone();
    let differs = *rng.pick(&[0, 0, 200, 1000]);
    for chunk in bytes.chunks_mut(CHUNK) {
        if rng.permille(differs) {
            chunk[0] ^= 1;
        }
    }
    let at_top = path.matches('/').count() == 1;
    (at_top && rng.permille(800)).then(|| (path.clone(), bytes))
}

const LARGE: &[usize] = &[
    CHUNK - 1,
    CHUNK,
    CHUNK + 1,
    2 * CHUNK,
    3 * CHUNK + 511,
    5 * CHUNK + 7,
    9 * CHUNK + 513,
    17 * CHUNK,
    40 * CHUNK - 1,
];
const SMALL: &[usize] = &[0, 1, 99, 100, 101, 255, 256, 257, 500, 967, 968, 969];
