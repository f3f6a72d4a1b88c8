//! Plays syncs, writing back and power cuts: how volatile changes come to the medium, or never do.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use longhaul_disk::InodeId;
use rustix::io::Errno;

use super::errors::Scope;
use super::faults::{Mutant, SyncFs};
use super::model::Medium;
use super::state::{Open, State, Step, What};
use super::view::{Change, Kind, NodeId, SECTOR, Shown, View, text, write_file};

impl State {
    /// Syncs one file or directory.
    pub(crate) fn sync(&mut self, of: Open, what: What) -> Result<(), Errno> {
        let node = self.node(of.inode);
        let path = self.path(node);
        let (is_dir, is_journal) = (self.kinds.get(&node) == Some(&Kind::Dir), self.is_journal(node));
        let revised = self.revised.take_if(|revised| *revised == node).is_some();
        let skipped = match self.faults.mutant {
            Some(Mutant::DirsNotSynced) => is_dir,
            Some(Mutant::DataNotSynced) => what == What::SyncedData && !is_journal,
            Some(Mutant::JournalNotSynced) => is_journal,
            Some(Mutant::NoBarrier) => what == What::Synced && !is_dir,
            Some(Mutant::RevisionNotSynced) => revised,
            _ => false,
        };
        if skipped {
            return Ok(());
        }
        let since = if self.faults.mutant == Some(Mutant::StandingNotSynced) && is_dir { self.run_began } else { 0 };
        self.write_back(node);
        let names = is_dir || (what == What::Synced && self.nature.sync_covers_names);
        self.make_durable(since, |change| {
            change.data_of() == Some(node)
                || what == What::Synced && change.time_of() == Some(node)
                || names && (change.dir() == Some(node) || change.names() == Some(node))
        });
        if self.errors.hear(of, node, Scope::File) {
            let ignored = self.faults.mutant == Some(Mutant::SyncErrorIgnored) && !is_journal;
            return if ignored { Ok(()) } else { Err(Errno::IO) };
        }
        self.steps.push(Step { what, path });
        Ok(())
    }

    /// Syncs everything.
    pub(crate) fn sync_file_system(&mut self, of: Open) -> Result<(), Errno> {
        if self.nature.syncfs == SyncFs::Nothing {
            return Ok(());
        }
        let dirty: Vec<NodeId> = self.log.iter().filter_map(|(_, change)| change.data_of()).collect();
        dirty.into_iter().for_each(|node| self.write_back(node));
        let mutant = self.faults.mutant;
        let since = if mutant == Some(Mutant::StandingNotSynced) { self.run_began } else { 0 };
        self.make_durable(since, |change| match mutant {
            Some(Mutant::DirsNotSynced) => change.dir().is_none(),
            Some(Mutant::NoBarrier) => change.data_of().is_none(),
            _ => true,
        });
        let node = self.node(of.inode);
        let is_heard = self.nature.syncfs == SyncFs::Whole && mutant != Some(Mutant::FileSystemErrorIgnored);
        if self.errors.hear(of, node, Scope::FileSystem) && is_heard {
            return Err(Errno::IO);
        }
        self.steps.push(Step { what: What::SyncedFileSystem, path: Vec::new() });
        Ok(())
    }

    fn make_durable(&mut self, since: u64, covers: impl Fn(&Change) -> bool) {
        let State { log, medium, .. } = self;
        log.retain(|(number, change)| {
            let covered = *number >= since && covers(change);
            if covered {
                medium.apply(change);
            }
            !covered
        });
    }

    /// Writes dirty pages of a file back. Bytes on the bad sector are lost, and never tried again.
    pub(crate) fn write_back(&mut self, node: NodeId) {
        let Some(bad) = self.bad.get(&node).copied() else { return };
        let (mut kept, mut lost) = (Vec::with_capacity(self.log.len()), false);
        for (number, change) in std::mem::take(&mut self.log) {
            if change.data_of() != Some(node) {
                kept.push((number, change));
                continue;
            }
            for part in change.sectors() {
                match &part {
                    Change::Write { offset, bytes, .. }
                        if offset / SECTOR as u64 == bad / SECTOR as u64 && !bytes.is_empty() =>
                    {
                        lost = true;
                        if self.nature.lost_extends {
                            kept.push((number, Change::Extend { node, len: offset + bytes.len() as u64 }));
                        }
                    }
                    _ => kept.push((number, part)),
                }
            }
        }
        self.log = kept;
        if lost {
            self.errors.raise(node);
            self.lost.push(node);
        }
    }

    /// Writes something back, as the system does by itself.
    pub(crate) fn write_back_something(&mut self) {
        let bad: Vec<NodeId> = self.bad.keys().copied().collect();
        if !bad.is_empty() {
            let node = self.rng.pick(&bad);
            self.write_back(node);
        }
    }

    /// Cuts the power: any part of the volatile changes comes through, each sector for itself. Of
    /// names either those up to some moment come through, or any.
    pub(crate) fn cut(&mut self) {
        let volatile = self.log.iter().map(|(_, change)| change).chain(self.unfinished()).cloned();
        let changes: Vec<Change> = volatile.flat_map(Change::sectors).collect();
        let some = self.rng.below(1000);
        let permille = self.rng.pick(&[0, 1000, 500, some, some]);
        let in_order = self.rng.permille(500);
        let last_name = self.rng.below(changes.len() as u64 + 1) as usize;
        let mut image = self.medium.clone();
        for (at, change) in changes.iter().enumerate() {
            let survives = match change.dir() {
                Some(_) if in_order => at < last_name,
                _ => self.rng.permille(permille),
            };
            if survives {
                image.apply(change);
            }
        }
        self.image = Some(image);
    }

    /// The content of a medium if nothing more goes wrong: dirty pages are written back.
    pub(crate) fn settled(&mut self) -> View {
        let bad: Vec<NodeId> = self.bad.keys().copied().collect();
        bad.into_iter().for_each(|node| self.write_back(node));
        let mut view = self.medium.clone();
        self.log.iter().for_each(|(_, change)| view.apply(change));
        view
    }
}

impl Medium {
    /// Writes the content after a power cut into an empty directory.
    pub(crate) fn write_image(&self, into: &Path) {
        let modes = self.modes();
        let state = self.state();
        let image = state.image.as_ref().expect("the power went");
        image.write_out(&state.kinds, &modes, into);
    }

    /// Drops clean pages: from now on programs see the medium's bytes in place of lost writes.
    pub(crate) fn drop_cache(&self) {
        let state = &mut *self.state();
        let view = state.settled();
        for node in std::mem::take(&mut state.lost) {
            let path = state.path(node);
            let (Some(content), true) = (view.nodes.get(&node), state.seen(&path) == Some(node)) else { continue };
            let at = self.scratch.join(text(&path));
            let before = std::fs::metadata(&at).expect("it is seen");
            write_file(&at, content);
            let file = std::fs::File::options().write(true).open(&at).expect("opened");
            file.set_modified(before.modified().expect("a time")).expect("its time is set back");
        }
    }

    /// The modes of the files in the scratch directory, which are not part of the model.
    fn modes(&self) -> HashMap<NodeId, u32> {
        let mut modes = HashMap::new();
        let state = self.state();
        let mut dirs = vec![self.scratch.clone()];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).expect("listed") {
                let path = entry.expect("an entry").path();
                let stat = std::fs::symlink_metadata(&path).expect("examined");
                let known = state.known(InodeId { dev: stat.dev(), ino: stat.ino() });
                modes.extend(known.map(|node| (node, stat.mode() & 0o7777)));
                if stat.is_dir() {
                    dirs.push(path);
                }
            }
        }
        modes
    }

    /// All paths other than longhaul's own, and what each shows.
    pub(crate) fn shown_in(view: &View) -> Vec<Shown> {
        let own = |path: &[u8]| path.split(|byte| *byte == b'/').any(|name| name.starts_with(b".longhaul"));
        view.shown().into_iter().filter(|shown| !own(&shown.path)).collect()
    }
}
