//! Plans of worlds of one session, in which anything may be the case at the destination and
//! anything may go wrong but a crash.
//!
//! Takes a seed; gives plain data that the world plays. Decides nothing later on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use longhaul_core::{Algorithm, Algorithms, FaultCode, IfExists};
use longhaul_proto::receiver::{Landing, SkippedDigests, Source, SyncGroup};

use crate::plan::{CHUNK, HangRates, Item, LaneRates, Plan, Rates, Terms};
use crate::rng::Rng;
use crate::scene::{Left, Scene, Standing};

impl Terms {
    /// The further checksums of files.
    pub(crate) fn sums(&self) -> Algorithms {
        if self.in_order { Algorithms::NONE.with(Algorithm::Md5) } else { Algorithms::NONE }
    }
}

impl HangRates {
    /// None in most worlds.
    pub(crate) fn drawn(rng: &mut Rng) -> HangRates {
        let mut rare = |most: u64| if rng.permille(250) { rng.below(most) as u32 } else { 0 };
        HangRates { chunks: rare(400), files: rare(600) }
    }
}

impl Plan {
    /// One session that sends `items`, under the most ordinary circumstances.
    pub(crate) fn one_session(items: Vec<Item>) -> Plan {
        Plan {
            items,
            standing_files: Vec::new(),
            lanes: 2,
            safe: true,
            bundled_max: 256,
            terms: Terms::new(IfExists::SkipSame, SyncGroup { bytes: 8 << 10, age: Duration::from_secs(1) }),
            chunks_of: vec![CHUNK],
            delay_us: 2_000,
            disk_us: 2_000,
            rates: Rates::default(),
            blows: Vec::new(),
            scene: Scene { is_one_session: true, look_us: 2_000, fault: Some(FaultCode::Io), ..Scene::default() },
        }
    }

    /// Anything may be the case and anything may go wrong.
    pub(crate) fn varied(seed: u64) -> Plan {
        let rng = &mut Rng::new(seed);
        let mut plan = Plan::one_session(tree(rng));
        plan.terms.if_exists = *rng.pick(&[IfExists::SkipSame, IfExists::Replace, IfExists::Fail, IfExists::Verify]);
        plan.terms.may_modify = rng.permille(700);
        plan.terms.dry_run = rng.permille(50);
        plan.terms.read_back = rng.permille(400);
        plan.terms.digests = if rng.permille(300) { SkippedDigests::Told } else { SkippedDigests::Unwanted };
        plan.terms.group = SyncGroup {
            bytes: *rng.pick(&[0, 1, 2048, 20_000, 1 << 30]),
            age: Duration::from_millis(*rng.pick(&[0, 1, 1000])),
        };
        if rng.permille(500) {
            plan.terms.landing = Landing::beneath().only(tops(&plan.items));
        }
        let stands = if plan.terms.if_exists == IfExists::Verify { 500 } else { 60 };
        for item in plan.items.iter().filter(|item| !matches!(item, Item::DirEnd(_))) {
            if rng.permille(stands) {
                plan.scene.standing.push((item.path().to_owned(), standing(rng, item)));
            }
        }
        let left = plan.items.iter().filter_map(|item| if rng.permille(300) { left(rng, item) } else { None });
        // If two entries have one name, one of them has a partial.
        let left: BTreeMap<String, Left> = left.map(|left| (left.path.clone(), left)).collect();
        plan.scene.left = left.into_values().collect();
        plan.scene.any_class_order = rng.permille(300);
        plan.scene.look_us = *rng.pick(&[0, 100, 2_000, 20_000]);
        plan.bundled_max = *rng.pick(&[0, 100, 256, 968, u64::MAX]);
        plan.lanes = 1 + rng.below(4) as u32;
        plan.safe = rng.permille(600);
        plan.delay_us = *rng.pick(&[200, 5_000, 100_000]);
        plan.disk_us = *rng.pick(&[100, 2_000, 20_000]);
        plan.rates = rates(rng);
        plan.scene.claims_late = rng.permille(700);
        plan.scene.hesitates = *rng.pick(&[0, 0, 100, 900]);
        plan.rates.names.unseen = if rng.permille(300) { rng.below(60) as u32 } else { 0 };
        plan.rates.hangs = HangRates::drawn(rng);
        plan.overtaking(rng).saying_unasked(rng).reading_in_order(rng)
    }

    /// Lets some worlds have checksums that need all bytes in order. Drawn behind the rest, so that
    /// the worlds of all seeds are otherwise as before this existed.
    pub(crate) fn reading_in_order(mut self, rng: &mut Rng) -> Plan {
        self.terms.in_order = rng.permille(250);
        self
    }

    /// Lets senders say small files before anybody asked for them, in half of the worlds. Nobody
    /// does in a dry run.
    pub(crate) fn saying_unasked(mut self, rng: &mut Rng) -> Plan {
        let bytes = *rng.pick(&[0, 0, 1_000, 8_000]);
        self.terms.unasked_bytes = if self.terms.dry_run { 0 } else { bytes };
        self
    }
}

fn rates(rng: &mut Rng) -> Rates {
    let mut rare = |most: u64| if rng.permille(400) { rng.below(most) as u32 } else { 0 };
    let disk_faults = rare(60);
    Rates {
        flips: rare(300),
        alters: rare(200),
        lanes: LaneRates { losses: rare(300), retirements: rare(200), straggler: None, overtaking: false },
        disk_faults,
        read_faults: disk_faults,
        spoils: rare(150),
        restless: rare(100),
        source_faults: rare(60),
        ..Rates::default()
    }
}

fn tree(rng: &mut Rng) -> Vec<Item> {
    let mut items = Vec::new();
    let budget = rng.below(60);
    grow(rng, "t", budget, &mut items);
    if rng.permille(300) {
        let doubles: Vec<_> = items.iter().filter(|_| rng.permille(100)).cloned().collect();
        items.extend(doubles.into_iter().filter(|item| !matches!(item, Item::Dir(_) | Item::DirEnd(_))));
    }
    items
}

fn grow(rng: &mut Rng, dir: &str, mut budget: u64, items: &mut Vec<Item>) {
    items.push(Item::Dir(dir.to_owned()));
    for at in 0.. {
        if budget == 0 {
            break;
        }
        budget -= 1;
        let path = format!("{dir}/{at}");
        match rng.below(15) {
            13 | 14 => items.extend(Item::name(rng, path, items)),
            12 => items.push(Item::Unsent { path, failure: rng.permille(500).then_some(FaultCode::Denied) }),
            0 => items.push(Item::Link { path, target: b"../somewhere".to_vec() }),
            1 => {
                let chunks = 1 + rng.index(6);
                let mut bytes = rng.bytes(chunks * CHUNK + 3);
                bytes.chunks_mut(CHUNK).step_by(2).for_each(|chunk| chunk.fill(0));
                items.push(Item::File { path, bytes, sparse: true });
            }
            2 | 3 => {
                let inner = rng.below(budget + 1);
                budget -= inner;
                grow(rng, &path, inner, items);
            }
            _ => {
                let len = *rng.pick(SIZES);
                items.push(Item::File { path, bytes: rng.bytes(len), sparse: false });
            }
        }
    }
    items.push(Item::DirEnd(dir.to_owned()));
}

fn standing(rng: &mut Rng, item: &Item) -> Standing {
    let content = match item {
        Item::File { bytes, .. } => nearly(rng, bytes),
        _ => Vec::new(),
    };
    match rng.below(6) {
        // Nothing could be made beneath another node.
        _ if matches!(item, Item::Dir(_)) && rng.permille(900) => Standing::Dir,
        0 => Standing::Dir,
        1 => Standing::Link(b"elsewhere".to_vec()),
        2 => Standing::Special,
        3 => Standing::Current([content, b"+".to_vec()].concat()),
        4 => Standing::Older(content),
        _ => Standing::Current(content),
    }
}

/// The same content, or one that differs in places.
fn nearly(rng: &mut Rng, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let often = *rng.pick(&[0, 0, 100, 1000]);
    for part in bytes.chunks_mut(CHUNK / 2) {
        if rng.permille(often) {
            part[0] ^= 1;
        }
    }
    bytes
}

/// Some of the chunks of a file, in an earlier session's temporary.
fn left(rng: &mut Rng, item: &Item) -> Option<Left> {
    let Item::File { path, bytes, .. } = item else { return None };
    let chunk = *rng.pick(&[CHUNK, CHUNK, 2 * CHUNK]);
    let source = *rng.pick(&[Source::Same, Source::Changed]);
    let most = rng.below(1001) as u32;
    let chunks = bytes.len().div_ceil(chunk).max(1) as u64;
    let held: BTreeSet<u64> = (0..chunks).filter(|_| rng.permille(most)).collect();
    let mut bytes = bytes.clone();
    for (at, content) in (0..).zip(bytes.chunks_mut(chunk)) {
        let other = if held.contains(&at) { source == Source::Changed && rng.permille(300) } else { rng.permille(700) };
        if other {
            content.fill(0xa5);
        }
    }
    Some(Left { path: path.clone(), bytes, chunk, held, source, gone: rng.permille(100) })
}

fn tops(items: &[Item]) -> BTreeSet<Vec<u8>> {
    items.iter().filter_map(|item| item.path().split('/').next()).map(|top| top.as_bytes().to_vec()).collect()
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
