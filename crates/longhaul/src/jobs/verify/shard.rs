//! The files of a shard that stand, where they stand, and the digests that are known of them.
//!
//! In: a shard, its segment, and the shelf. Out: batches of names, and the record of digests. Must
//! not know the queue's rules, nor how a file is read.

#![allow(clippy::disallowed_methods, reason = "it only looks whether a directory that a user named is there")]

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use longhaul_core::{Blame, Escaped, Fault, FaultCode, Hash32, RelPath};
use longhaul_jobs::Segment;
use longhaul_jobs::queue::VerifyShard;
use longhaul_manifest::{Algorithm, Item, ItemKind};

use super::doubt::{DestinationMark, PlaceMark};
use super::ground::FilesGround;
use crate::jobs::records::{self, DigestOrigin, DigestRecord, KnownDigest};
use crate::jobs::shelf::Shelf;
use crate::jobs::spec::{CampaignKeys, CampaignPlace, CampaignSpec};

/// The files of a shard, where they stand.
pub(super) struct ShardFiles {
    /// Where they stand.
    pub(super) ground: FilesGround,
    /// Whether they were given their times.
    pub(super) keeps_times: TimesKept,
    names: ShardNames,
    mark: DestinationMark,
}

/// The names of a shard, and what is known of them.
pub(super) struct ShardNames {
    /// The path beneath the campaign's destination beneath which they stand.
    pub(super) onto: RelPath,
    /// The number of their source among those of the campaign.
    source: usize,
    keeps_times: TimesKept,
    items: Vec<Item>,
    given_up: BTreeSet<Vec<u8>>,
    record: DigestRecord,
    record_path: PathBuf,
    is_damaged: bool,
}

/// Whether files were given the times of their sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimesKept {
    /// They were.
    Yes,
    /// They were not.
    No,
}

/// Names of a shard that follow each other.
pub(super) struct NamesBatch {
    /// The names that stand.
    pub(super) items: Vec<Item>,
    /// The place behind the last one, among all names of the shard.
    pub(super) end: u64,
}

impl ShardNames {
    /// Reads them, of manifests with these digests if they are given.
    ///
    /// # Errors
    /// The fault of a campaign or a manifest that cannot be understood.
    pub(super) fn read(
        (shelf, roots): (&Shelf, Option<&[Hash32]>),
        segment: &Segment,
        given: &VerifyShard,
    ) -> Result<ShardNames, Fault> {
        let spec = CampaignSpec::decode(&given.campaign.spec)?;
        let listing = shelf.listing((given.campaign.key, roots), segment, given.shard.part)?;
        let missing = || Fault::new(FaultCode::Usage, Blame::Local, "the campaign has no source for a shard of it");
        let source = spec.sources.get(listing.source).ok_or_else(missing)?;
        let onto = source.onto.clone();
        let preserve = spec.settings.metadata.preserve;
        let mut items = listing.items;
        items.retain(|item| preserve.links || item.is_file());
        let given_up = given.given_up.iter().map(|fault| fault.path.clone()).collect();
        let record_path = shelf.record(given.campaign.key, given.shard.id);
        let (record, is_damaged) = match DigestRecord::read(&record_path) {
            Err(error) if error.kind() == ErrorKind::InvalidData => (DigestRecord::default(), true),
            read => (read.map_err(|error| unread(&record_path, &error))?, false),
        };
        let keeps_times = if preserve.times { TimesKept::Yes } else { TimesKept::No };
        let source = listing.source;
        Ok(ShardNames { onto, source, keeps_times, items, given_up, record, record_path, is_damaged })
    }

    /// The same where they stand: beneath a destination with this mark, which `shown` names.
    pub(super) fn at(self, ground: FilesGround, (shown, mark): (String, PlaceMark)) -> ShardFiles {
        let mark = DestinationMark { shown, mark, file: self.record_path.with_file_name("destination") };
        ShardFiles { ground, keeps_times: self.keeps_times, names: self, mark }
    }
}

impl ShardFiles {
    /// The next names, of so many bytes at most, but of one file at least.
    pub(super) fn batch(&self, from: u64, bytes_max: u64) -> NamesBatch {
        let names = &self.names;
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(names.items.len());
        let (mut items, mut bytes, mut end) = (Vec::new(), 0_u64, from);
        for item in &names.items[from..] {
            bytes = bytes.saturating_add(item.bytes());
            if items.len() >= BATCH_NAMES_MAX || bytes > bytes_max && !items.is_empty() {
                break;
            }
            end += 1;
            if !names.given_up.contains(item.path.as_bytes()) {
                items.push(item.clone());
            }
        }
        NamesBatch { items, end: end as u64 }
    }

    /// The names among these paths of which a digest is known, in batches of so many bytes at most,
    /// but of one file at least. None of them moves the place behind the last name, which is `end`.
    pub(super) fn batches_of(&self, paths: &BTreeSet<&[u8]>, end: u64, bytes_max: u64) -> Vec<NamesBatch> {
        let (mut batches, mut bytes): (Vec<NamesBatch>, _) = (Vec::new(), 0_u64);
        let is_meant = |item: &&Item| paths.contains(item.path.as_bytes()) && self.known(item).is_some();
        for item in self.names.items.iter().filter(is_meant) {
            bytes = bytes.saturating_add(item.bytes());
            match batches.last_mut().filter(|_| bytes <= bytes_max) {
                Some(batch) => batch.items.push(item.clone()),
                None => {
                    bytes = item.bytes();
                    batches.push(NamesBatch { items: vec![item.clone()], end });
                }
            }
        }
        batches
    }

    /// The path beneath the campaign's destination beneath which they stand.
    pub(super) fn onto(&self) -> &RelPath {
        &self.names.onto
    }

    /// The number of their source among those of the campaign.
    pub(super) fn source(&self) -> usize {
        self.names.source
    }

    /// Whether no name is left behind so many.
    pub(super) fn is_through(&self, entry: u64) -> bool {
        entry >= self.names.items.len() as u64
    }

    /// The digest that a file had when it was delivered, or read first. `None`: it is not known.
    pub(super) fn known(&self, item: &Item) -> Option<Hash32> {
        let said = item.sums.get(Algorithm::Blake3).and_then(|b3| Hash32::try_from(b3).ok());
        let noted = || self.names.record.get(&item.path).filter(|known| is_of(known.bytes, item)).map(|known| known.b3);
        said.or_else(noted)
    }

    /// Notes digests of files that were read for the first time. Gives them as those of the record,
    /// and where that lies.
    pub(super) fn note(&mut self, first: Vec<(RelPath, u64, Hash32)>) -> (PathBuf, Vec<(RelPath, KnownDigest)>) {
        let origin = DigestOrigin::FirstReading;
        let fresh: Vec<_> =
            first.into_iter().map(|(path, bytes, b3)| (path, KnownDigest { bytes, b3, origin })).collect();
        for (path, known) in fresh.iter().cloned() {
            self.names.record.note(path, known);
        }
        (self.names.record_path.clone(), fresh)
    }

    /// The fault of a record that is damaged.
    pub(super) fn damage(&self) -> Option<Fault> {
        self.names.is_damaged.then(|| records::damaged(&self.names.record_path))
    }

    /// The mark of the destination, as it was when the shard was opened.
    pub(super) fn mark(&self) -> DestinationMark {
        self.mark.clone()
    }

    /// The mark of the destination now.
    pub(super) async fn mark_now(&self) -> DestinationMark {
        let mark = self.ground.mark_now().await.unwrap_or_else(|| self.mark.mark.clone());
        DestinationMark { mark, ..self.mark.clone() }
    }
}

/// Whether a digest of a file of this length may be that of an item. One without a length has any:
/// else each of its readings would be a first one, and nothing would ever be compared.
fn is_of(bytes: u64, item: &Item) -> bool {
    !matches!(item.kind, ItemKind::File { bytes: Some(given) } if given != bytes)
}

/// A campaign's destination, and the keys with which a daemon is met. `at` stands for it, where it
/// is a directory of this host that is written as a daemon's.
///
/// # Errors
/// The fault of a campaign that cannot be understood.
pub(super) fn destination_of(given: &VerifyShard, at: Option<&Path>) -> Result<(CampaignPlace, CampaignKeys), Fault> {
    let spec = CampaignSpec::decode(&given.campaign.spec)?;
    let place = at.map_or(spec.to, |at| CampaignPlace::Here(at.to_owned()));
    let place = match spec.dataset {
        Some(name) => place.with_dataset(&name).map_err(|error| Fault::new(FaultCode::Usage, Blame::Local, error))?,
        None => place,
    };
    Ok((place, spec.keys))
}

/// Refuses a directory that is not there: each of its files would be a lost one.
pub(super) fn is_there(top: &Path) -> Result<(), Fault> {
    let shown = || Escaped(top.as_os_str().as_encoded_bytes()).to_string();
    let (code, why) = match std::fs::metadata(top) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => (FaultCode::NotFound, "it is no directory".to_owned()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => (FaultCode::Denied, error.to_string()),
        Err(error) => (FaultCode::NotFound, error.to_string()),
    };
    let message = format_args!("the destination '{}' cannot be verified: {why}", shown());
    Err(Fault::new(code, Blame::Local, message).about(shown()).hint_in_words("see that its disk is mounted"))
}

fn unread(path: &Path, error: &std::io::Error) -> Fault {
    let shown = Escaped(path.as_os_str().as_encoded_bytes()).to_string();
    let message = format_args!("the digests of delivered files in '{shown}' cannot be read: {error}");
    Fault::new(FaultCode::Io, Blame::Local, message)
        .hint_in_words("see that the disk of the queue's manifests is well, and that the file is yours")
}

/// Names of a batch.
const BATCH_NAMES_MAX: usize = 2000;
