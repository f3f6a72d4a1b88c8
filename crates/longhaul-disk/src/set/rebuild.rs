//! Makes stripe files again that were lost, from the footers of their bodies.
//!
//! In: orphans. Out: which files can be made again, and why others cannot; if that is asked for,
//! their stripe files. No name that stands is replaced, and of two files that had the same path
//! none is made: one of them is older, and which is not known. Knows no sessions.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::digest::Hash32;
use longhaul_core::stripe::Spot;
use longhaul_core::{ChunkIndex, ChunkMap, Meta, Preserve, RelPath, SessionTag, TargetId, TempName};
use rustix::fs::Mode;
use rustix::io::Errno;

use crate::destination::{FsTarget, Replace, Staged, TargetFile, TargetTree, TreePolicy};
use crate::direct::DirectMode;
use crate::error::DiskError;
use crate::set::bodies::{BodySurvey, Orphans};
use crate::set::{SetTarget, Striping, TargetSet};
use crate::stripe::{BLOCK_RECORDS_MAX, Footer, HEADER_BYTES, Header, Record, Whole, block, stripe_file_len};

/// A striped file of which only bodies are left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostFile {
    /// Its id.
    pub id: TempName,
    /// Its path beneath the set, any bytes.
    pub path: Vec<u8>,
    /// Its length in bytes.
    pub bytes: u64,
    /// The reason why it cannot be made again. `None`: it can, or was.
    pub why_not: Option<String>,
}

/// The content of a stripe file.
pub(super) struct StripeText<'t> {
    /// The file's id.
    pub(super) id: TempName,
    /// Its path beneath the top of the set.
    pub(super) path: &'t [u8],
    /// Its length and the size of its chunks.
    pub(super) map: ChunkMap,
    /// The BLAKE3 of its content.
    pub(super) root: Hash32,
    /// Its permissions and time.
    pub(super) meta: Meta,
    /// The places of its chunks, in any order.
    pub(super) records: Vec<Record>,
}

/// The use of stripe files that can be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rebuilding {
    /// They are told.
    Planned,
    /// They are made.
    Done,
}

impl TargetSet {
    /// Finds the striped files whose stripe files were lost, and makes those again that can be, if
    /// that is asked for. What is made is durable when this returns.
    ///
    /// # Errors
    /// As [`TargetSet::survey_bodies`].
    pub fn rebuild(&self, rebuilding: Rebuilding) -> Result<Vec<LostFile>, DiskError> {
        let Some(striping) = self.striping() else { return Ok(Vec::new()) };
        let (BodySurvey { doubt, .. }, footers) = self.orphans_with_footers(striping, Orphans::Told)?;
        let mut by_id: BTreeMap<TempName, Vec<Footer>> = BTreeMap::new();
        footers.into_iter().for_each(|footer| by_id.entry(footer.id).or_default().push(footer));
        let mut ids_at: BTreeMap<&[u8], BTreeSet<TempName>> = BTreeMap::new();
        for (id, footers) in &by_id {
            footers.iter().for_each(|footer| _ = ids_at.entry(&footer.path).or_default().insert(*id));
        }
        let mut files = Vec::new();
        for (id, footers) in &by_id {
            let Some(first) = footers.first() else { continue };
            let ready = match ids_at.get(&first.path[..]).is_some_and(|ids| ids.len() > 1) {
                true => Err("there are bodies of two files of this path: one of them is older".to_owned()),
                false => self.is_ready(footers, doubt.as_deref()),
            };
            let made = match (ready, rebuilding) {
                (Ok(path), Rebuilding::Done) => {
                    self.make_again(striping, &path, footers).map_err(|error| error.fault().message.to_string())
                }
                (ready, _) => ready.map(drop),
            };
            files.push(LostFile { id: *id, path: first.path.clone(), bytes: first.map.len(), why_not: made.err() });
        }
        Ok(files)
    }

    /// The path at which a file can be made again, or why it cannot.
    fn is_ready(&self, footers: &[Footer], doubt: Option<&str>) -> Result<RelPath, String> {
        let first = &footers[0];
        if footers.iter().any(|other| (&other.path, other.map, other.root) != (&first.path, first.map, first.root)) {
            return Err("its bodies contradict each other".to_owned());
        }
        let has: BTreeSet<u64> = chunks_of(footers).map(|(index, ..)| index.0).collect();
        let missing = first.map.chunks() - has.len() as u64;
        if missing > 0 {
            return Err(format!("{missing} of its {} chunks are in no body that is there", first.map.chunks()));
        }
        if let Some(doubt) = doubt {
            return Err(doubt.to_owned());
        }
        let path = RelPath::new(first.path.as_slice()).map_err(|error| error.to_string())?;
        match self.stat(&path) {
            Ok(None) => Ok(path),
            Ok(Some(_)) => Err("something stands under its path".to_owned()),
            Err(error) => Err(error.fault().message.to_string()),
        }
    }

    /// Makes a stripe file under its path.
    fn make_again(&self, striping: &Striping, path: &RelPath, footers: &[Footer]) -> Result<(), DiskError> {
        let Footer { id, map, root, meta, .. } = footers[0].clone();
        let home = self.home_for(path);
        make_dirs(home, path)?;
        let records = chunks_of(footers).map(|(index, spot, digest)| Record::Chunk { index, spot, digest }).collect();
        let text = StripeText { id, path: &footers[0].path, map, root, meta, records };
        self.write_stripe(striping, (home, path), text, Replace::Never)
    }

    /// Makes the stripe file of bodies that are durable, and gives it its name, which is durable
    /// when this returns.
    pub(super) fn write_stripe(
        &self,
        striping: &Striping,
        (home, path): (&SetTarget, &RelPath),
        mut text: StripeText<'_>,
        replace: Replace,
    ) -> Result<(), DiskError> {
        let id = text.id;
        let tree = FsTarget::beneath(&home.tree, &RelPath::root(), DirectMode::Buffered, TreePolicy::default())?;
        let tree = tree.tagged(SessionTag(id.tag().0)).loading(home.load.clone(), self.targets().len());
        text.records.sort_unstable_by_key(|record| match record {
            Record::Chunk { index, .. } => index.0,
            Record::Body { .. } => 0,
        });
        let key = striping.stripes.key();
        let (mut blocks, mut end) = (0, HEADER_BYTES as u64);
        let mut log = Vec::new();
        for part in text.records.chunks(BLOCK_RECORDS_MAX) {
            let bytes = block(key, &id, blocks, part);
            (blocks, end) = (blocks + 1, end + bytes.len() as u64);
            log.extend_from_slice(&bytes);
        }
        let whole = Some(Whole { root: text.root, blocks, end });
        let header = Header { id, path: text.path.to_vec(), map: text.map, whole }.to_bytes(key);
        let body = tree.create_stripe(path, &id, &header)?;
        let file = std::sync::Arc::new(TargetFile::new(path, text.map.len(), vec![body]));
        let made = || {
            for stripe in file.on_disk() {
                let written = tree.write_at(stripe, &log, HEADER_BYTES as u64);
                written.map_err(|error| stripe.handle().error("write", error))?;
                tree.seal_stripe((stripe, &RelPath::root()), stripe_file_len(end), &text.meta, Preserve::default())?;
            }
            let staged = Staged::large(file.clone());
            tree.barrier(&[&staged])?;
            tree.publish(&staged, replace)?;
            tree.sync_dirs(&[staged])
        };
        made().inspect_err(|_| file.discard())
    }

    /// The target on which the directory above a path stands; else the first one.
    fn home_for(&self, path: &RelPath) -> &SetTarget {
        let above = path.parent().unwrap_or_default();
        let stands = |target: &&SetTarget| target.tree.dir(&above).is_ok();
        self.targets().iter().find(stands).unwrap_or(&self.targets()[0])
    }
}

/// The chunks that bodies hold, each with its place and digest; holes have none.
fn chunks_of(footers: &[Footer]) -> impl Iterator<Item = (ChunkIndex, Option<Spot>, Hash32)> {
    let slots = footers.iter().flat_map(|footer| {
        let on = move |slot: u64| Spot { target: TargetId(footer.target.0), slot };
        let used = (0..).zip(&footer.slots).filter_map(|(slot, chunk)| Some((slot, (*chunk)?)));
        used.map(move |(slot, (index, digest))| (index, Some(on(slot)), digest))
    });
    // One of the bodies has the holes of the whole file.
    let holes = footers.iter().flat_map(|footer| &footer.holes);
    slots.chain(holes.map(|(index, digest)| (*index, None, *digest)))
}

/// Makes the directories above a path that were lost as well.
fn make_dirs(home: &SetTarget, path: &RelPath) -> Result<(), DiskError> {
    let mut above: Vec<RelPath> = std::iter::successors(path.parent(), RelPath::parent).collect();
    above.retain(|dir| !dir.is_root());
    for dir in above.iter().rev() {
        let (Some(parent), Some(name)) = (dir.parent(), dir.name()) else { continue };
        let parent_dir = home.tree.dir(&parent)?;
        match parent_dir.kernel().mkdirat(&parent_dir, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => parent_dir.sync().map_err(|error| DiskError::call("sync the directory", &parent, error))?,
            Err(Errno::EXIST) => {}
            Err(error) => return Err(DiskError::call("make the directory", dir, error)),
        }
    }
    Ok(())
}
