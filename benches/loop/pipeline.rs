//! The limit that our own disk engine sets: direct reads and writes overlapped, committed and
//! synced as a transfer would, but without network and digest.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use anyhow::{Context, Result, bail};
use longhaul_core::filter::Filter;
use longhaul_core::{ChunkMap, ChunkSize, Entry, Place, Preserve, SessionTag, TempName};
use longhaul_disk::{
    ChunkIo, DirectMode, DiskError, EngineKind, FsSource, FsTarget, Replace, ScanRequest, Scanned, SourceFile,
    SourceSpec, SourceTree, TargetFile, TargetTree,
};
use longhaul_sys::{Slab, Slot};

use crate::kit::Sides;

/// Copies a file into a directory.
pub(crate) fn copy(source: &Path, dir: &Path) -> Result<Sides> {
    let tree = FsSource::open(vec![SourceSpec { path: source.to_owned(), contents: false }], DirectMode::Auto);
    let (entry, file) = open(&tree)?;
    let target = FsTarget::open(dir, DirectMode::Auto)?;
    let map = ChunkMap::new(file.len(), ChunkSize::DEFAULT);
    let written = target.create(&entry.path, map, false, &TempName::new(SessionTag(*b"benchmrk"), [0; 8]))?;
    let slab = Slab::new(CHUNK, SLOTS)?;
    let engine = || ChunkIo::start(EngineKind::Auto, DEPTH, &slab);
    Pipeline {
        reader: engine()?,
        writer: engine()?,
        slab: slab.clone(),
        from: file,
        to: written.clone(),
        done: channel(),
    }
    .run()
    .inspect_err(|_| written.discard())?;
    target.sync_data(&written)?;
    let staged = target.seal(written, &entry.meta, Preserve::default())?;
    target.barrier(&[&staged])?;
    target.publish(&staged, Replace::Never)?;
    target.sync_dirs(std::slice::from_ref(&staged))?;
    Ok(Sides::default())
}

/// The one file of a source.
fn open(tree: &FsSource) -> Result<(Entry, Arc<SourceFile>)> {
    let (filter, mut found) = (Filter::default(), None);
    let what = ScanRequest::of_all(&filter, Preserve::default());
    tree.scan(&what, &mut |one| {
        found = Some(one);
        ControlFlow::Break(())
    });
    match found.context("nothing to read")? {
        Scanned::Entry { entry, source, identity } => Ok((entry, tree.open(&source, &identity)?)),
        other => bail!("no file to read: {other:?}"),
    }
}

/// Reading ahead of writing, through the slots of one slab.
struct Pipeline {
    reader: ChunkIo,
    writer: ChunkIo,
    slab: Arc<Slab>,
    from: Arc<SourceFile>,
    to: Arc<TargetFile>,
    done: (Sender<Done>, Receiver<Done>),
}

enum Done {
    Read { slot: Slot, offset: u64, len: usize, result: Result<(), DiskError> },
    Written { slot: Option<Slot>, len: usize, result: Result<(), DiskError> },
}

impl Pipeline {
    fn run(self) -> Result<()> {
        let (mut next, mut written, mut reading) = (0, 0, 0);
        while written < self.from.len() {
            while next < self.from.len()
                && reading < DEPTH
                && let Some(slot) = self.slab.try_claim()
            {
                next += self.read(next, slot);
                reading += 1;
            }
            match self.done.1.recv()? {
                Done::Read { slot, offset, len, result } => {
                    result?;
                    reading -= 1;
                    self.write(offset, len, slot);
                }
                Done::Written { slot, len, result } => {
                    drop(slot);
                    result?;
                    written += len as u64;
                }
            }
        }
        Ok(())
    }

    fn read(&self, offset: u64, slot: Slot) -> u64 {
        let (len, done) = ((self.from.len() - offset).min(CHUNK as u64) as usize, self.done.0.clone());
        // Sending fails only when the run is over, and then no thread waits for the slot.
        let tell = move |slot, result| drop(done.send(Done::Read { slot, offset, len, result }));
        self.reader.read(self.from.clone(), offset, len, slot, Box::new(tell));
        len as u64
    }

    fn write(&self, offset: u64, len: usize, slot: Slot) {
        let done = self.done.0.clone();
        let tell = move |slot, result| drop(done.send(Done::Written { slot, len, result }));
        self.writer.write(self.to.clone(), Place::whole(offset), len, slot, Box::new(tell));
    }
}

/// The chunk size, as a transfer has it by default.
const CHUNK: usize = 4 << 20;
const SLOTS: usize = 64;
const DEPTH: usize = 8;
