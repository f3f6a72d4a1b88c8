//! The source side of a world: carries out the orders of the sender's machine, in any order.

use std::collections::{HashMap, HashSet, VecDeque};

use longhaul_core::digest::digest_of;
use longhaul_core::{
    Attempt, Blame, BundleId, ChunkIndex, ChunkMap, ChunkSize, Digest, DigestKind, Fault, FaultCode, FileId,
    FileOffset, Unit,
};

use super::plan::{CHUNK, Item, Plan};
use super::rng::Rng;
use super::wire::Ready;
use crate::Sender;
use crate::sender::Small;
use crate::wire::bundle::Packer;

/// An order of the machine that is not carried out yet.
#[derive(Debug)]
enum Job {
    Chunk { file: FileId, index: ChunkIndex, attempt: Attempt, map: ChunkMap, expect: Option<Digest> },
    Pack { bundle: BundleId, attempt: Attempt, files: Vec<Small> },
    Check(FileId),
}

/// The source side.
#[derive(Debug)]
pub(crate) struct Source {
    items: Vec<Item>,
    scanned: usize,
    faults: u32,
    jobs: Vec<Job>,
    pub(crate) ready: VecDeque<Ready>,
    reads: HashMap<(FileId, ChunkIndex), u32>,
    /// Files that were found changed or unreadable; they must not be committed.
    pub(crate) bad: HashSet<FileId>,
}

impl Source {
    pub(crate) fn new(plan: &Plan) -> Source {
        Source {
            items: plan.items.clone(),
            scanned: 0,
            faults: plan.source_faults,
            jobs: Vec::new(),
            ready: VecDeque::new(),
            reads: HashMap::new(),
            bad: HashSet::new(),
        }
    }

    pub(crate) fn scan(&mut self) -> Option<Item> {
        let item = self.items.get(self.scanned).cloned();
        self.scanned += 1;
        item
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    pub(crate) fn read(
        &mut self,
        file: FileId,
        index: ChunkIndex,
        attempt: Attempt,
        map: ChunkMap,
        expect: Option<Digest>,
    ) {
        assert_eq!(map.len(), self.items[file.0 as usize].bytes.len() as u64, "the length was frozen");
        self.jobs.push(Job::Chunk { file, index, attempt, map, expect });
    }

    pub(crate) fn pack(&mut self, bundle: BundleId, attempt: Attempt, files: Vec<Small>) {
        self.jobs.push(Job::Pack { bundle, attempt, files });
    }

    pub(crate) fn check(&mut self, file: FileId) {
        self.jobs.push(Job::Check(file));
    }

    /// Carries out one of the orders.
    pub(crate) fn step(&mut self, rng: &mut Rng, sender: &mut Sender) {
        let at = rng.below(self.jobs.len());
        match self.jobs.swap_remove(at) {
            Job::Chunk { file, index, attempt, map, expect } => {
                self.read_now(rng, sender, (file, index, attempt), map, expect)
            }
            Job::Pack { bundle, attempt, files } => self.pack_now(rng, sender, bundle, attempt, &files),
            Job::Check(file) => {
                let result = self.fate(rng, file, FaultCode::Changed);
                sender.handle_check_source(file, result);
            }
        }
    }

    /// Forgets the digest of a unit that a lane never sent whole: no digest of it was said, so that
    /// the next read is the first again.
    pub(crate) fn never_sent(&mut self, unit: Unit) {
        if let Unit::Chunk { file, index } = unit
            && let Some(reads) = self.reads.get_mut(&(file, index))
        {
            *reads -= 1;
        }
    }

    fn fate(&mut self, rng: &mut Rng, file: FileId, code: FaultCode) -> Result<(), Fault> {
        if !rng.permille(self.faults) {
            return Ok(());
        }
        self.bad.insert(file);
        Err(Fault::new(code, Blame::Local, "the source \n\x1b[31m is bad"))
    }

    fn read_now(
        &mut self,
        rng: &mut Rng,
        sender: &mut Sender,
        (file, index, attempt): (FileId, ChunkIndex, Attempt),
        map: ChunkMap,
        expect: Option<Digest>,
    ) {
        if let Err(fault) = self.fate(rng, file, FaultCode::Io) {
            return sender.handle_unreadable(file, &fault);
        }
        let (start, len) = (map.start_of(index), map.len_of(index).expect("a chunk of the file"));
        let mut bytes = self.items[file.0 as usize].bytes[start.0 as usize..][..len as usize].to_vec();
        let reads = self.reads.entry((file, index)).or_default();
        *reads += 1;
        if *reads > 1 && !bytes.is_empty() && rng.permille(self.faults * 4) {
            bytes[0] ^= 1;
        }
        let same = expect.is_some_and(|expect| digest_of(&bytes, map.kind(), start) == expect);
        let otherwise = bytes != self.items[file.0 as usize].bytes[start.0 as usize..][..len as usize];
        let hole = !same && !bytes.is_empty() && bytes.iter().all(|byte| *byte == 0);
        self.ready.push_back(Ready {
            unit: Unit::Chunk { file, index },
            attempt,
            payload: (!hole).then_some(bytes),
            same,
            len,
            kind: map.kind(),
            start,
            chunk: map.size(),
            otherwise,
        });
    }

    fn pack_now(&mut self, rng: &mut Rng, sender: &mut Sender, bundle: BundleId, attempt: Attempt, files: &[Small]) {
        let mut unit = vec![0xee; CHUNK];
        let mut packer = Packer::new(&mut unit, files.len());
        let (mut missing, mut kept) = (Vec::new(), 0);
        for Small { file, len, standing_root: stands } in files {
            let content = &self.items[file.0 as usize].bytes;
            assert_eq!(content.len() as u64, *len, "the length was frozen");
            packer.space(content.len()).expect("a bundle fits its unit").copy_from_slice(content);
            let root = *digest_of(content, DigestKind::Root, FileOffset(0)).bytes();
            match self.fate(rng, *file, FaultCode::Vanished) {
                Err(fault) => missing.push((*file, fault)),
                Ok(()) => {
                    match *stands == Some(root) {
                        true => packer.keep_same(*file, *len as usize, root),
                        false => packer.keep(*file, *len as usize, root),
                    }
                    kept += 1;
                }
            }
        }
        let (len, _) = packer.finish();
        unit.truncate(len);
        sender.handle_pack(bundle, missing, kept == 0);
        if kept > 0 {
            self.ready.push_back(Ready {
                unit: Unit::Bundle(bundle),
                attempt,
                len: len as u64,
                payload: Some(unit),
                same: false,
                kind: DigestKind::Root,
                start: FileOffset(0),
                chunk: ChunkSize::from_bytes(CHUNK as u64).expect("a size"),
                otherwise: false,
            });
        }
    }
}
