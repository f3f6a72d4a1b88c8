//! Judges the promises by the state of a medium: the content of final names, the program's reports,
//! and the claims of journals.
//!
//! In: states of a medium and the reports of a program. Out: broken promises, as [`Broken`]. It
//! knows no calls.

use std::collections::BTreeMap;

use longhaul_core::digest::digest_of;
use longhaul_proto::journal;

use super::model::Medium;
use super::promise::{Broken, Promise};
use super::source::Source;
use super::view::{Kind, Kinds, Shown, View, text};

/// Files that were there before the first run, or were put there by another program.
pub(crate) type Before = BTreeMap<Vec<u8>, Vec<u8>>;

/// A state of the medium.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State<'a> {
    pub(crate) view: &'a View,
    pub(crate) kinds: &'a Kinds,
}

impl State<'_> {
    /// A final name shows nothing, the file that stood there before, or a version that was offered,
    /// whole.
    pub(crate) fn names(&self, source: &Source, before: &Before) -> Result<(), Broken> {
        for Shown { path, node } in Medium::shown_in(self.view) {
            let right = match &self.kinds[&node] {
                Kind::Dir => source.dirs.contains(&path),
                Kind::Link(target) => source.links.get(&path) == Some(target),
                Kind::File => {
                    let bytes = self.view.bytes(node);
                    let offered = source.files.get(&path).into_iter().flatten();
                    let known = offered.map(|version| &version.bytes).chain(before.get(&path));
                    known.into_iter().any(|known| known == bytes)
                }
            };
            if !right {
                let bytes = self.view.bytes(node);
                let zeros = bytes.iter().filter(|byte| **byte == 0).count();
                return Err(Promise::Names.broken(format_args!(
                    "{} shows what was never offered: {} bytes, {zeros} of them zero",
                    text(&path),
                    bytes.len()
                )));
            }
        }
        Ok(())
    }

    /// A file stands under its final name with this content.
    pub(crate) fn stands(&self, path: &[u8], is_right: impl Fn(&[u8]) -> bool) -> Result<(), String> {
        let Some(node) = self.view.find(path) else { return Err(format!("{} is not there", text(path))) };
        if self.kinds.get(&node) != Some(&Kind::File) {
            return Err(format!("{} is no file", text(path)));
        }
        if !is_right(self.view.bytes(node)) {
            return Err(format!("{} has another content", text(path)));
        }
        Ok(())
    }

    /// All offered files stand, possibly in an earlier version that has the same size and time.
    pub(crate) fn complete(&self, source: &Source) -> Result<(), Broken> {
        for path in source.files.keys() {
            self.stands(path, |bytes| source.may_be(path, bytes)).map_err(|what| Promise::Complete.broken(what))?;
        }
        for (path, target) in &source.links {
            let node = self.view.find(path);
            if node.is_none_or(|node| self.kinds.get(&node) != Some(&Kind::Link(target.clone()))) {
                return Err(Promise::Complete.broken(format_args!("the link {} is not there", text(path))));
            }
        }
        match source.dirs.iter().find(|dir| self.view.find(dir).is_none()) {
            Some(dir) => Err(Promise::Complete.broken(format_args!("the directory {} is not there", text(dir)))),
            None => Ok(()),
        }
    }

    /// Every chunk that a journal calls durable is in its temporary. Returns the bytes of each file
    /// that a later session may continue: those of the best partial of its path.
    pub(crate) fn journals(&self) -> Result<BTreeMap<Vec<u8>, u64>, Broken> {
        let mut held: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for Shown { path, node } in self.view.shown() {
            if !path.starts_with(b".longhaul/") || !path.ends_with(b".journal") {
                continue;
            }
            let Ok(replayed) = journal::replay(self.view.bytes(node)) else { continue };
            for partial in replayed.files.values() {
                let file = &partial.file;
                let dir = file.path.parent().map_or_else(Vec::new, |dir| dir.as_bytes().to_vec());
                let temp = [&dir, &b"/"[..], &file.temp.file_name()].concat();
                let Some(node) = self.view.find(&temp) else { continue };
                let bytes = self.view.bytes(node);
                for (index, digest) in partial.held.iter() {
                    let (start, len) = (file.map.start_of(index), file.map.len_of(index).unwrap_or(0) as usize);
                    let content = bytes.get(start.0 as usize..).and_then(|rest| rest.get(..len));
                    if content.is_none_or(|content| digest_of(content, file.map.kind(), start).bytes() != digest) {
                        let name = text(file.path.as_bytes());
                        let what = format_args!("chunk {} of {name} is journalled and not in its temporary", index.0);
                        return Err(Promise::Durable.broken(what));
                    }
                }
                let best = held.entry(file.path.as_bytes().to_vec()).or_default();
                *best = (*best).max(partial.held.bytes(file.map));
            }
        }
        Ok(held)
    }

    /// The durable bytes of each offered file: those under its name, if it is whole, or those in a
    /// partial.
    pub(crate) fn durable(&self, source: &Source) -> Result<Durable, Broken> {
        let held = self.journals()?;
        let of = |path: &Vec<u8>| {
            let whole = self.stands(path, |bytes| source.current(path).bytes == bytes).is_ok();
            if whole { source.current(path).bytes.len() as u64 } else { held.get(path).copied().unwrap_or(0) }
        };
        Ok(Durable(source.files.keys().map(|path| (path.clone(), of(path))).collect()))
    }
}

impl State<'_> {
    /// The claims of the journals, for a person.
    pub(crate) fn told_journals(&self) -> String {
        let journals = self.view.shown().into_iter().filter(|shown| shown.path.ends_with(b".journal"));
        let one = |shown: Shown| {
            let bytes = self.view.bytes(shown.node);
            let said = journal::replay(bytes).map(|replayed| {
                let held = |partial: &journal::JournalledPartial| {
                    let temp = text(&partial.file.temp.file_name()).to_owned();
                    format!("{} {} in {temp}", text(partial.file.path.as_bytes()), partial.held.bytes(partial.file.map))
                };
                let files: Vec<String> = replayed.files.values().map(held).collect();
                format!("{} sound, {:?}, {files:?}", replayed.valid_len, replayed.end)
            });
            format!("; {} of {} bytes: {said:?}", text(&shown.path), bytes.len())
        };
        journals.map(one).collect()
    }
}

/// Bytes that are durable, by file.
#[derive(Debug)]
pub(crate) struct Durable(BTreeMap<Vec<u8>, u64>);

impl Durable {
    pub(crate) fn sum(&self) -> u64 {
        self.0.values().sum()
    }

    /// The files that are not durable in full.
    pub(crate) fn missing(&self, source: &Source) -> String {
        let part = |(path, durable): (&Vec<u8>, &u64)| {
            let len = source.current(path).bytes.len() as u64;
            (*durable < len).then(|| format!("{}: {durable} of {len}", text(path)))
        };
        self.0.iter().filter_map(part).collect::<Vec<_>>().join(", ")
    }
}
