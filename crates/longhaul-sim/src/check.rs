//! The promises of a transfer, and the checks that they hold: final names, chunks that are called
//! durable, commits, units that are sent again.
//!
//! Takes the words of the sessions and the state of the file system. Violations stop the world.
//! Judges by the medium, never by what a session believes.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::digest::{Digest, Hash32, digest_of};
use longhaul_core::{ChunkIndex, ChunkMap, Fault, FaultCode, SessionTag, SourceStamp, TempName};
use longhaul_proto::journal::{self, FileRecord, HeldChunks, JournalledPartial, Replayed};

use crate::env::Env;
use crate::fs::{Ino, Node, Op, View, parent};
use crate::ledger::Acked;
use crate::names::{self, in_dir, is_journal};

impl Env {
    /// Notes a broken promise, if it is the first.
    pub(crate) fn violate(&mut self, what: impl FnOnce() -> String) {
        if self.ledger.violation.is_none() {
            let what = what();
            self.say(|| format!("VIOLATION {what}"));
            self.ledger.violation = Some(what);
        }
    }

    /// Checks the fault of a session that is given up: it is never a protocol error between two
    /// honest machines, and never a bug.
    pub(crate) fn check_abort(&mut self, who: &str, fault: &Fault) {
        if matches!(fault.code, FaultCode::Protocol | FaultCode::Internal) {
            self.violate(|| format!("the {who} gives up: {fault}"));
        }
    }

    /// Checks after an operation that it changed no final name, or in an allowed way.
    pub(crate) fn check_op(&mut self, op: &Op) {
        let ino = match op {
            Op::Rename { from, to, .. } => {
                let path = to.clone();
                // A rename that failed leaves the standing file, whose times a comparison may have
                // set and not synced.
                let happened = !self.fs.cached().names.contains_key(from);
                if happened && self.fs.cached().file(&path).is_some_and(|ino| self.fs.is_unsettled(ino)) {
                    self.violate(|| format!("{path} is renamed before all of it is durable"));
                }
                return self.check_name(&path);
            }
            Op::Write { ino, .. } => {
                self.check_vouched(*ino);
                *ino
            }
            Op::SetLen(ino, _) => *ino,
            Op::SyncDir(_) => return self.check_names(),
            _ => return,
        };
        let named = self.fs.cached().names.iter().chain(&self.fs.medium().names);
        let named = named.filter(|(path, node)| **node == Node::File(ino) && !is_ours(path));
        if let Some(path) = named.map(|(path, _)| path.clone()).next() {
            self.violate(|| format!("{path} is written to under its final name"));
        }
    }

    /// Checks after a write to a temporary that it is still as every journal on the medium says. If
    /// not, a crash now would make the journal lie.
    fn check_vouched(&mut self, ino: Ino) {
        let view = self.fs.cached();
        let temp = view.names.iter().find(|(path, node)| **node == Node::File(ino) && names::temp(path).is_some());
        let Some(temp) = temp.and_then(|(path, _)| names::temp(path)) else { return };
        let bytes = &view.content(ino).bytes;
        let lies = partials(self.fs.medium()).find_map(|partial| {
            let map = partial.file.map;
            let held = partial.held.iter().filter(|_| partial.file.temp == temp);
            let mut wrong = held.filter(|(index, digest)| !is_there(bytes, map, *index, digest));
            wrong.next().map(|(index, _)| (partial.file.path.escaped().to_string(), index.0))
        });
        if let Some((path, chunk)) = lies {
            self.violate(|| format!("{path}: chunk {chunk} is overwritten while its journal vouches for it"));
        }
    }

    /// Checks that every final name shows an allowed version, to programs and on the medium.
    pub(crate) fn check_names(&mut self) {
        let leaves: Vec<String> = self.source.leaves().map(str::to_owned).collect();
        leaves.iter().for_each(|path| self.check_name(path));
    }

    fn check_name(&mut self, path: &str) {
        if let Err(what) = self.check_view(self.fs.cached(), path) {
            self.violate(|| format!("{path} shows {what}"));
        }
        if let Err(what) = self.check_view(self.fs.medium(), path) {
            self.violate(|| format!("{path} durably shows {what}"));
        }
    }

    fn check_view(&self, view: &View, path: &str) -> Result<(), &'static str> {
        let committed = self.ledger.committed.contains(path);
        let before = view.names.get(path).is_some_and(|node| self.ledger.stood(view, path, node));
        match view.names.get(path) {
            None if committed => Err("nothing, after its commit"),
            None => Ok(()),
            Some(Node::Dir | Node::Link(_) | Node::Special) if before && !committed => Ok(()),
            Some(Node::Dir) => Err("a directory"),
            Some(Node::Special) => Err("a device"),
            Some(Node::Link(target)) if self.source.link(path) == Some(target) => Ok(()),
            Some(Node::Link(_)) => Err("another link"),
            Some(Node::File(ino)) => {
                let bytes = &view.content(*ino).bytes;
                let offered = self.source.versions(path).iter().any(|v| v.offered && v.bytes == *bytes);
                match (offered, before, committed) {
                    (true, ..) | (_, true, false) => Ok(()),
                    (_, true, true) => Err("what was there before, after its commit"),
                    _ => Err("what no source ever was"),
                }
            }
        }
    }

    /// Notes and checks chunks of a file that a session calls durable.
    pub(crate) fn ack(&mut self, path: &str, stamp: SourceStamp, map: ChunkMap, chunks: &[(ChunkIndex, Digest)]) {
        if chunks.is_empty() {
            return;
        }
        let entry = self.ledger.acked.entry(path.to_owned());
        let acked = entry.or_insert_with(|| Acked { stamp, map, chunks: BTreeMap::new() });
        if (acked.stamp, acked.map) != (stamp, map) {
            *acked = Acked { stamp, map, chunks: BTreeMap::new() };
        }
        acked.chunks.extend(chunks.iter().copied());
        let new = Acked { stamp, map, chunks: chunks.iter().copied().collect() };
        // Nobody keeps the promise of an earlier session whose medium rots.
        let rots = !self.plan.scene.left.is_empty() && !self.plan.scene.always_spoilt.is_empty();
        if rots || self.stands(self.fs.medium(), path, stamp) {
            return;
        }
        if let Err(what) = self.holds(self.fs.medium(), path, &new, true) {
            self.violate(|| format!("{path}: chunks are called durable, but {what}"));
        }
    }

    /// Checks after a crash that everything called durable is there, and that every final name
    /// shows an allowed version.
    pub(crate) fn check_survivors(&mut self) {
        self.check_names();
        for (path, acked) in self.ledger.acked.clone() {
            let view = self.fs.cached();
            if !self.stands(view, &path, acked.stamp)
                && let Err(what) = self.holds(view, &path, &acked, false)
            {
                self.violate(|| format!("{path}: chunks were called durable, but {what}"));
            }
        }
    }

    /// Whether any version that was offered stands under a final name.
    pub(crate) fn stands_offered(&self, path: &str) -> bool {
        let view = self.fs.cached();
        let content = view.file(path).map(|ino| &view.content(ino).bytes);
        content.is_some_and(|content| self.source.versions(path).iter().any(|version| version.bytes == *content))
    }

    /// Whether that version stands under its final name.
    fn stands(&self, view: &View, path: &str, stamp: SourceStamp) -> bool {
        view.file(path).is_some_and(|ino| {
            let versions = self.source.versions(path).into_iter().filter(|v| v.stamp == stamp);
            versions.map(|v| &v.bytes).any(|bytes| *bytes == view.content(ino).bytes)
        })
    }

    /// Drops the journalled chunks of a file that begins anew. It is no violation if the file
    /// stands under its final name and is replaced.
    pub(crate) fn begins_anew(&mut self, path: &str, stamp: SourceStamp, had_partial: bool) {
        if self.stands(self.fs.cached(), path, stamp) {
            self.ledger.forget(path);
        }
        let lost = self.ledger.forget_lost(path, stamp);
        if lost > 0 {
            let what = if had_partial { "is not found again" } else { "is not offered" };
            self.violate(|| format!("{path} begins anew: what was journalled of it ({lost} chunks) {what}"));
        }
    }

    /// Whether a journal and a temporary in `view` hold these chunks.
    fn holds(&self, view: &View, path: &str, acked: &Acked, at_once: bool) -> Result<(), String> {
        let mut found = Err("no journal has the file".to_owned());
        for partial in partials(view).filter(|p| p.file.path.as_bytes() == path.as_bytes()) {
            if partial.file.source == acked.stamp && found.is_err() {
                found = partial_holds(view, path, &partial, acked).and_then(|temp| {
                    let durable = !at_once || self.fs.is_name_durable(&temp);
                    if durable { Ok(()) } else { Err("its temporary's name is not durable".to_owned()) }
                });
            }
        }
        found
    }

    /// Checks before a partial is given up for another one of its name that a crash would leave the
    /// other one.
    pub(crate) fn check_winner(&mut self, file: &FileRecord, held: &HeldChunks) {
        let has = |partial: &JournalledPartial| held.iter().all(|(at, digest)| partial.held.get(at) == Some(digest));
        let is_it = |partial: JournalledPartial| partial.file.temp == file.temp && has(&partial);
        if !partials(self.fs.medium()).any(is_it) {
            let path = file.path.escaped().to_string();
            self.violate(|| format!("{path}: a partial is given up for one that is not durable"));
        }
    }

    /// Checks before a journal forgets a partial that its temporary is gone, durably: nobody else
    /// would look for it.
    pub(crate) fn check_forgotten(&mut self, temp: &str) {
        if self.fs.cached().names.contains_key(temp) || self.fs.medium().names.contains_key(temp) {
            self.violate(|| format!("a journal forgets {temp}, which stands"));
        }
    }

    /// Checks before a temporary is made that a journal on the medium names its directory: whoever
    /// comes after a crash looks for it only there.
    pub(crate) fn check_named(&mut self, temp: &str) {
        let dir = parent(temp);
        let names_it = |replayed: &Replayed| replayed.dirs.iter().any(|path| path.as_bytes() == dir.as_bytes());
        if !journals(self.fs.medium()).any(|replayed| names_it(&replayed)) {
            self.violate(|| format!("{temp} is made, and no journal names its directory durably"));
        }
    }

    /// Checks before a journal forgets a directory that it has no temporaries there but those with
    /// records, and that a power cut brings none back.
    pub(crate) fn check_left(&mut self, tag: SessionTag, dir: &str) {
        let spoken: BTreeSet<TempName> =
            partials(self.fs.medium()).chain(partials(self.fs.cached())).map(|partial| partial.file.temp).collect();
        let is_orphan = |name: &&String| {
            let temp = names::temp(name).filter(|temp| temp.tag() == tag && parent(name) == dir);
            temp.is_some_and(|temp| !spoken.contains(&temp))
        };
        let names = self.fs.medium().names.keys().chain(self.fs.cached().names.keys());
        if let Some(temp) = names.into_iter().find(is_orphan).cloned() {
            self.violate(|| format!("a journal forgets '{dir}', where {temp} stands or may come back"));
        }
    }

    /// Checks a chunk that leaves with its payload.
    pub(crate) fn check_sent(&mut self, path: &str, stamp: SourceStamp, index: ChunkIndex) {
        let acked = self.ledger.acked.get(path).filter(|acked| acked.stamp == stamp);
        if acked.is_some_and(|acked| acked.chunks.contains_key(&index)) {
            self.violate(|| format!("chunk {} of {path} is sent again, which was journalled", index.0));
        }
    }

    /// Checks a file that a session calls committed: the offered version stands there durably, and
    /// its root is the declared one.
    pub(crate) fn check_commit(
        &mut self,
        path: &str,
        stamp: SourceStamp,
        root: Option<Hash32>,
        declared: Option<Hash32>,
    ) {
        self.ledger.forget(path);
        self.ledger.committed.insert(path.to_owned());
        if declared.is_some() && declared != root {
            self.violate(|| format!("{path} is committed with another root than was declared"));
        }
        if !self.fs.is_name_durable(path) {
            self.violate(|| format!("{path} is called committed, but its name is not durable"));
        }
        let medium = self.fs.medium();
        let stands = medium.file(path).map(|ino| &medium.content(ino).bytes);
        let offered = self.source.versions(path).iter().find(|v| v.stamp == stamp).map(|v| &v.bytes);
        if offered.is_some() && (stands != offered || root != offered.map(|bytes| *blake3::hash(bytes).as_bytes())) {
            self.violate(|| format!("{path} is called committed, but is not durably what was offered"));
        }
        self.check_name(path);
    }

    /// Whether the file at `first` is what was offered as `path` in that version.
    pub(crate) fn shows(&self, first: &str, path: &str, stamp: SourceStamp) -> bool {
        let view = self.fs.cached();
        let content = view.file(first).map(|ino| &view.content(ino).bytes);
        self.source.versions(path).iter().any(|v| v.stamp == stamp && Some(&v.bytes) == content)
    }

    /// Checks a name that a session calls one of a file that came before: it is durable, and the
    /// file is what was offered.
    pub(crate) fn check_link(&mut self, path: &str, stamp: SourceStamp, root: Option<Hash32>) {
        let offered =
            self.source.versions(path).iter().find(|v| v.stamp == stamp).map(|v| *blake3::hash(&v.bytes).as_bytes());
        if root.is_some() && root != offered {
            self.violate(|| format!("{path} is called a name of a file with another root than was offered"));
        }
        self.check_commit(path, stamp, offered, None);
    }

    /// Checks a standing file that a session calls equal to the source: it is, and durably.
    pub(crate) fn check_equal(&mut self, path: &str, stamp: SourceStamp, root: Hash32) {
        self.seen.equal += 1;
        self.ledger.committed.insert(path.to_owned());
        let medium = self.fs.medium();
        let stands = medium.file(path).map(|ino| &medium.content(ino).bytes);
        let offered = self.source.versions(path).iter().find(|v| v.stamp == stamp).map(|v| &v.bytes);
        if stands != offered || stands.is_none_or(|bytes| root != *blake3::hash(bytes).as_bytes()) {
            self.violate(|| format!("{path} is called equal, but is not durably what was offered"));
        }
    }

    /// Checks at the end that the destination is the source, durably, and that nothing of ours is
    /// left.
    pub(crate) fn check_end(&mut self) {
        self.check_names();
        let leaves: Vec<String> = self.source.leaves().map(str::to_owned).collect();
        for path in leaves {
            let medium = self.fs.medium();
            let right = match self.source.link(&path) {
                Some(target) => medium.names.get(&path) == Some(&Node::Link(target.to_vec())),
                None => medium.file(&path).is_some_and(|ino| {
                    let now = self.source.versions(&path).last().map(|version| version.stamp).unwrap_or_default();
                    let same = |stamp: &SourceStamp| (stamp.len, stamp.mtime) == (now.len, now.mtime);
                    let versions = self.source.versions(&path).into_iter().filter(|v| same(&v.stamp));
                    versions.map(|v| &v.bytes).any(|bytes| *bytes == medium.content(ino).bytes)
                }),
            };
            if !right {
                self.violate(|| format!("{path} is not there as it should be, after everything"));
            }
        }
        if let Some(left) = self.fs.cached().names.keys().find(|path| is_ours(path)).cloned() {
            self.violate(|| format!("{left} is left behind"));
        }
    }
}

/// Whether a partial has these chunks. Gives the name of its temporary.
fn partial_holds(view: &View, path: &str, partial: &JournalledPartial, acked: &Acked) -> Result<String, String> {
    let temp = in_dir(path, &partial.file.temp);
    let ino = view.file(&temp).ok_or("its temporary is not there")?;
    let bytes = &view.content(ino).bytes;
    for (index, digest) in &acked.chunks {
        if partial.held.get(*index) != Some(digest.bytes()) {
            return Err(format!("chunk {} is not journalled", index.0));
        }
        if !is_there(bytes, acked.map, *index, digest.bytes()) {
            return Err(format!("chunk {} is not in its temporary", index.0));
        }
    }
    Ok(temp)
}

/// All that the journals of a view have.
pub(crate) fn partials(view: &View) -> impl Iterator<Item = JournalledPartial> {
    journals(view).flat_map(|replayed| replayed.files.into_values())
}

/// The journals that stand in a view.
fn journals(view: &View) -> impl Iterator<Item = Replayed> {
    let journals = view.names.keys().filter(|name| is_journal(name));
    journals.filter_map(|name| journal::replay(&view.content(view.file(name)?).bytes).ok())
}

/// Whether a file has that chunk.
fn is_there(bytes: &[u8], map: ChunkMap, index: ChunkIndex, digest: &Hash32) -> bool {
    let (start, len) = (map.start_of(index), map.len_of(index).unwrap_or(0) as usize);
    let content = bytes.get(start.0 as usize..).and_then(|rest| rest.get(..len));
    content.is_some_and(|content| digest_of(content, map.kind(), start).bytes() == digest)
}

/// Whether a name is none of the source's.
pub(crate) fn is_ours(path: &str) -> bool {
    path.split('/').any(|name| name.starts_with(".longhaul"))
}
