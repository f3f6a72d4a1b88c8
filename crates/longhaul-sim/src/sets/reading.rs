//! The view of a reader of a set, and of `set rebuild`, which makes stripe files again of bodies:
//! the rules of `longhaul-disk`'s `stripe/read.rs` and `set/rebuild.rs`.
//!
//! In: the targets, as programs see them or as their media are. Out: a whole version, or the reason
//! why there is none. Changes nothing but what a rebuild makes.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::stripe::{PlacedChunk, Spot};

use super::disk::{DiskView, SetDir, SetName};
use super::host::Host;
use super::mutants::SetMutant;
use super::texts::{
    BodyFooter, FileNo, PathNo, RecordBlock, SetText, StripeHeader, TEXT_BLOCKS, VersionNo, digest_of_chunk,
};

/// The finding of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing stands there.
    Nothing,
    /// Chunks, each of a version, and the file that they belong to. `None`: zeros.
    Bytes(FileNo, Vec<Option<(VersionNo, u64)>>),
    /// The reader is told why it gets nothing.
    Said(String),
}

/// The content of a stripe file, as far as it is proven.
#[derive(Clone, Debug)]
pub(crate) struct StripeRead {
    pub(crate) header: StripeHeader,
    pub(crate) blocks: Vec<RecordBlock>,
}

/// The block at which the `number`th block of records of a stripe file begins.
pub(crate) fn records_at(number: u32) -> usize {
    TEXT_BLOCKS * (1 + number as usize)
}

/// The block at which a slot of a body begins.
pub(crate) fn slot_at(slot: u64) -> usize {
    TEXT_BLOCKS * slot as usize
}

impl Host {
    /// The stripe file in a file. `None`: its header is not proven.
    pub(crate) fn stripe_in(&self, view: DiskView, target: usize, ino: usize) -> Option<StripeRead> {
        let disk = &self.targets[target].disk;
        let header = self.texts.header(disk.blocks(view, ino, 0)[0])?.clone();
        let block = |number: u32| {
            let block = self.texts.records(disk.blocks(view, ino, records_at(number)))?;
            (block.file == header.file && block.number == number).then(|| block.clone())
        };
        let blocks = (0..).map_while(block).collect();
        Some(StripeRead { header, blocks })
    }

    /// Gives what a reader finds under a path.
    pub(crate) fn read(&self, view: DiskView, path: PathNo) -> Found {
        let said = |why: String| Found::Said(why);
        let unread = self.targets.iter().position(|target| target.is_away || target.fails(self.now));
        let mut standing = self.stands(view, SetName::Final(path)).filter(|(at, _)| !self.is_unread(*at));
        match (standing.next(), standing.next(), unread) {
            (_, Some(_), _) => said("it stands twice".into()),
            (None, _, Some(at)) => said(format!("it may stand on target {at}")),
            (None, _, None) => Found::Nothing,
            (Some((home, node)), None, _) => match self.stripe_in(view, home, node.ino) {
                None => said("its stripe file is not proven".into()),
                Some(stripe) => self.read_bodies(view, &stripe),
            },
        }
    }

    fn is_unread(&self, target: usize) -> bool {
        self.targets[target].is_away || self.targets[target].fails(self.now)
    }

    /// The content of a whole stripe file.
    pub(crate) fn read_bodies(&self, view: DiskView, stripe: &StripeRead) -> Found {
        let StripeHeader { file, chunks, whole, .. } = stripe.header;
        let Some((_, blocks)) = whole else { return Found::Said("it is not whole".into()) };
        if stripe.blocks.len() < blocks as usize {
            return Found::Said("its records are damaged".into());
        }
        let records = stripe.blocks[..blocks as usize].iter().flat_map(|block| &block.chunks);
        let placed: BTreeMap<u64, PlacedChunk> = records.map(|chunk| (chunk.index.0, *chunk)).collect();
        let mut bytes = Vec::with_capacity(chunks as usize);
        for index in 0..chunks {
            let Some(chunk) = placed.get(&index) else {
                return Found::Said(format!("the place of chunk {index} is not recorded"));
            };
            match self.read_chunk(view, file, chunk) {
                Ok(content) => bytes.push(content),
                Err(why) => return Found::Said(why),
            }
        }
        Found::Bytes(file, bytes)
    }

    /// A chunk of a striped file, compared with its digest.
    pub(crate) fn read_chunk(
        &self,
        view: DiskView,
        file: FileNo,
        chunk: &PlacedChunk,
    ) -> Result<Option<(VersionNo, u64)>, String> {
        let Some(Spot { target, slot }) = chunk.spot else { return Ok(None) };
        let at = target.0 as usize;
        if self.is_unread(at) {
            return Err(format!("target {at} of chunk {} cannot be read", chunk.index.0));
        }
        let disk = &self.targets[at].disk;
        let body = disk.find(view, SetName::Body(file)).ok_or_else(|| format!("its body on target {at} is missing"))?;
        if disk.len(view, body.ino) < slot_at(slot) + TEXT_BLOCKS {
            return Err(format!("its body on target {at} is too short"));
        }
        let content = self.texts.chunk(disk.blocks(view, body.ino, slot_at(slot)));
        let is_right = content.is_some_and(|(version, index)| digest_of_chunk(version, index) == chunk.digest);
        if !is_right && !self.has(SetMutant::OldImageBelieved) {
            return Err(format!("chunk {} on target {at} differs from its digest", chunk.index.0));
        }
        Ok(Some(content.unwrap_or((VersionNo(u32::MAX), 0))))
    }

    /// The footer at the end of a body.
    pub(crate) fn footer_in(&self, view: DiskView, target: usize, ino: usize) -> Option<(usize, &BodyFooter)> {
        let disk = &self.targets[target].disk;
        let at = disk.len(view, ino).checked_sub(TEXT_BLOCKS)?;
        Some((at, self.texts.footer(disk.blocks(view, ino, at))?))
    }

    /// Makes the stripe files again that were lost. Returns how many.
    pub(crate) fn rebuild(&mut self) -> usize {
        let names = self.names(DiskView::Cached, SetDir::Tree);
        let file_of = |(target, name): (usize, SetName)| {
            let node = self.targets[target].disk.find(DiskView::Cached, name)?;
            let header = self.stripe_in(DiskView::Cached, target, node.ino).map(|stripe| stripe.header.file);
            match name {
                SetName::Temp(file) => Some(file),
                _ => header,
            }
        };
        let named: BTreeSet<FileNo> = names.iter().copied().filter_map(file_of).collect();
        let mut footers: BTreeMap<FileNo, Vec<BodyFooter>> = BTreeMap::new();
        for (target, name) in self.names(DiskView::Cached, SetDir::Bodies) {
            let SetName::Body(file) = name else { continue };
            let Some(node) = self.targets[target].disk.find(DiskView::Cached, name) else { continue };
            if named.contains(&file) || self.is_in_use(target, node.ino) {
                continue;
            }
            let footer = self.footer_in(DiskView::Cached, target, node.ino).map(|(_, footer)| footer.clone());
            let footer = footer.filter(|footer| (footer.file, footer.target) == (file, target));
            footer.into_iter().for_each(|footer| footers.entry(file).or_default().push(footer));
        }
        let ready: Vec<_> = footers.iter().filter(|(_, own)| self.can_be_made(own, &footers)).collect();
        let ready: Vec<(FileNo, Vec<BodyFooter>)> = ready.into_iter().map(|(file, own)| (*file, own.clone())).collect();
        ready.iter().for_each(|(file, own)| self.make_again(*file, own));
        ready.len()
    }

    fn can_be_made(&self, own: &[BodyFooter], all: &BTreeMap<FileNo, Vec<BodyFooter>>) -> bool {
        let first = &own[0];
        let with_path = all.values().filter(|others| others.iter().any(|other| other.path == first.path)).count();
        let agrees =
            own.iter().all(|other| (other.path, other.chunks, other.root) == (first.path, first.chunks, first.root));
        let has: BTreeSet<u64> = own.iter().flat_map(|footer| &footer.placed).map(|chunk| chunk.index.0).collect();
        let is_free = self.stands(DiskView::Cached, SetName::Final(first.path)).next().is_none();
        let is_only = with_path == 1 || self.has(SetMutant::OlderRebuilt);
        agrees && is_free && has.len() as u64 == first.chunks && is_only
    }

    fn make_again(&mut self, file: FileNo, own: &[BodyFooter]) {
        let BodyFooter { path, chunks, root, .. } = own[0];
        if self.stands(DiskView::Cached, SetName::Final(path)).next().is_some() && self.has(SetMutant::OlderRebuilt) {
            return;
        }
        let home = self.rng.index(self.targets.len());
        let Ok(node) = self.create(home, SetName::Final(path)) else { return };
        let placed = own.iter().flat_map(|footer| footer.placed.clone()).collect();
        let header = StripeHeader { file, path, chunks, whole: Some((root, 1)) };
        let records = RecordBlock { file, number: 0, bodies: Vec::new(), chunks: placed };
        let texts = [SetText::Header(header), SetText::Records(records)].map(|text| self.texts.add(text));
        for (number, text) in texts.into_iter().enumerate() {
            self.put_text(home, node.ino, TEXT_BLOCKS * number, text);
        }
        self.say(|| format!("the stripe file of file {} is made again on target {home}", file.0));
    }
}
