//! Sessions, named for the promise that must hold, each in a world of its own.

mod chaos;
mod compare;
mod damage;
mod groups;
mod hangs;
mod in_order;
mod lanes;
mod names;
mod partials;
mod readback;
mod room;
mod sequence;
mod size;
mod skipped;
mod spread;
mod tables;

use std::collections::BTreeSet;

use longhaul_core::{ChunkIndex, Fault, FaultCode, FileId, RelPath, TempName, Unit};
use longhaul_proto::journal::FileRecord;
use longhaul_proto::receiver::{Receiver, Source};
use longhaul_proto::wire::message::{Finding, Outcome};

use crate::check::partials;
use crate::names::in_dir;
use crate::plan::{CHUNK, Item, Plan};
use crate::rng::Rng;
use crate::scene::{Left, Scene};
use crate::sending::SenderEnd;
use crate::session::Session;
use crate::watched::ReceiverEnd;

/// Plays a plan to a good end.
fn play(plan: Plan, seed: u64) -> Session {
    Session::new(plan, seed).run_well()
}

/// A file with a content of its own.
fn file(path: &str, len: usize) -> Item {
    let seed = path.bytes().fold(len as u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    Item::File { path: path.to_owned(), bytes: Rng::new(seed).bytes(len), sparse: false }
}

/// A file of `chunks` chunks of which every other is a hole, and three bytes.
fn sparse(path: &str, chunks: usize) -> Item {
    let Item::File { path, mut bytes, .. } = file(path, chunks * CHUNK + 3) else { panic!("no file") };
    bytes.chunks_mut(CHUNK).step_by(2).for_each(|chunk| chunk.fill(0));
    Item::File { path, bytes, sparse: true }
}

/// `count` files of `len` bytes, `per_dir` in a directory.
fn many(count: usize, per_dir: usize, len: usize) -> Vec<Item> {
    let mut items = Vec::new();
    for at in 0..count {
        let dir = format!("d{}", at / per_dir);
        if at % per_dir == 0 {
            items.push(Item::Dir(dir.clone()));
        }
        items.push(file(&format!("{dir}/f{at}"), len));
        if at % per_dir == per_dir - 1 || at == count - 1 {
            items.push(Item::DirEnd(dir));
        }
    }
    items
}

/// The content of a file.
fn bytes(item: &Item) -> &[u8] {
    match item {
        Item::File { bytes, .. } => bytes,
        other => panic!("no file: {other:?}"),
    }
}

/// Chunks of `item` as an earlier session left them; chunks that it did not journal have other
/// bytes.
fn left(item: &Item, chunk: usize, held: BTreeSet<u64>, source: Source) -> Left {
    let mut bytes = bytes(item).to_vec();
    for (at, content) in (0..).zip(bytes.chunks_mut(chunk)) {
        if !held.contains(&at) {
            content.fill(0xa5);
        }
    }
    Left { path: item.path().to_owned(), bytes, chunk, held, source, gone: false }
}

/// The same plan with these partials.
fn with_left(plan: Plan, left: Vec<Left>) -> Plan {
    Plan { scene: Scene { left, ..plan.scene.clone() }, ..plan }
}

fn chunk(file: u64, index: u64) -> Unit {
    Unit::Chunk { file: FileId(file), index: ChunkIndex(index) }
}

fn is_committed(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Committed(_))
}

impl Session {
    /// The outcome of the entry with that path, at the sender.
    fn outcome(&self, path: &str) -> &Outcome {
        let at = self.world.env.plan.items.iter().position(|item| item.path() == path).expect("an entry");
        &self.sender().outcomes[&FileId(at as u64)]
    }

    /// The code with which the entry failed. `None` if it did not.
    fn failure(&self, path: &str) -> Option<FaultCode> {
        match self.outcome(path) {
            Outcome::Failed(fault) => Some(fault.code),
            _ => None,
        }
    }

    /// The outcomes of all entries, at the sender.
    fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.sender().outcomes.values()
    }

    /// The number of entries that failed.
    fn failed(&self) -> usize {
        self.outcomes().filter(|outcome| matches!(outcome, Outcome::Failed(_))).count()
    }

    /// Chunks that were asked for.
    fn wanted(&self) -> usize {
        self.receiver().seen.wanted
    }

    /// How often each unit went to a lane.
    fn sendings(&self) -> &std::collections::BTreeMap<Unit, u32> {
        &self.sender().units.sendings
    }

    /// Sendings but the first of each unit.
    fn sent_again(&self) -> u32 {
        self.sendings().values().map(|count| count - 1).sum()
    }

    /// Units that went down with lanes: taken by one that is closed, and not brought by it.
    fn went_down(&self) -> u64 {
        let receiver = self.world.receivers.first().expect("a session is under way");
        self.sender().taken_by_closed().map(|(lane, taken)| taken - receiver.brought_by(lane)).sum()
    }

    /// Units that were judged wrong and sent again.
    fn judged_wrong(&self) -> usize {
        self.receiver().seen.findings.iter().filter(|(_, finding)| *finding == Finding::Again).count()
    }

    /// Whether something stands under that path.
    fn stands(&self, path: &str) -> bool {
        self.world.env.fs.cached().names.contains_key(path)
    }

    /// The receiver's machine, if its session has begun.
    fn began(&self) -> Option<&Receiver> {
        self.world.receivers.first().map(|receiver| &*receiver.machine)
    }

    /// The faults that ended either side, if any did.
    fn faults(&self) -> [Option<Fault>; 2] {
        let sender = match &self.sender().ended {
            Some(SenderEnd::Aborted(fault)) => Some(fault.clone()),
            _ => None,
        };
        let receiver = match &self.receiver().seen.end {
            Some(ReceiverEnd::Aborted(fault)) => Some(fault.clone()),
            _ => None,
        };
        [sender, receiver]
    }

    /// Chunks from which another session may continue.
    fn kept(&self) -> usize {
        let medium = self.world.env.fs.medium();
        let temp = |path: &RelPath, temp: &TempName| in_dir(&String::from_utf8_lossy(path.as_bytes()), temp);
        let stands = |file: &FileRecord| medium.names.contains_key(&temp(&file.path, &file.temp));
        partials(medium).filter(|partial| stands(&partial.file)).map(|partial| partial.held.iter().count()).sum()
    }
}
