//! Lists the partials beneath a path, and which of them are being written.
//!
//! In: a principal and a path. Out: names in order, of that principal's partials only. Journals are
//! read as far as they go; none is opened for writing, locked or cut, so that a listing is never
//! taken for a session. It knows no messages and no temporaries.

use longhaul_core::{Fault, Layout, Meta, Mtime, PlainText, RelPath, SessionTag};
use longhaul_disk::JournalReader;
use longhaul_proto::journal::{JournalledPartial, Opened, Replay, Replayed};
use longhaul_proto::wire::message::{Listed, ListedKind, ListedPartial};

use super::RootJournals;

impl RootJournals {
    /// The partials of `principal` at `beneath` and under it, named from there, sorted. Journals
    /// that cannot be read are left out.
    ///
    /// # Errors
    /// A [`Fault`] when the shelf cannot be looked at.
    pub(crate) fn partials(&self, principal: &str, beneath: &RelPath) -> Result<Vec<Listed>, Fault> {
        self.partials_within(principal, beneath, &mut |_| Ok(()))
    }

    /// Lists as [`RootJournals::partials`] does. `room` is asked for the bytes of each name before
    /// it is kept.
    ///
    /// # Errors
    /// As [`RootJournals::partials`], and those of `room`.
    pub(crate) fn partials_within(
        &self,
        principal: &str,
        beneath: &RelPath,
        room: &mut dyn FnMut(u64) -> Result<(), Fault>,
    ) -> Result<Vec<Listed>, Fault> {
        let mut found = Vec::new();
        for tag in self.shelf.list()? {
            let reader = match self.shelf.look(tag) {
                Ok(Some(reader)) => reader,
                Ok(None) => continue,
                Err(error) => {
                    tracing::warn!(target: "longhaul::journal", %tag, %error, "a journal is left alone");
                    continue;
                }
            };
            if let Some(replayed) = read_of(&reader, self.layout, principal) {
                let written = reader.written()?;
                let elsewhere = self.is_elsewhere(tag, &reader)?;
                let Replayed { opened, files, .. } = replayed;
                for partial in files.into_values() {
                    let Some(name) = name_beneath(&partial.file.path, beneath) else { continue };
                    let user = self.user(&partial.file.path, &opened, elsewhere);
                    let listed = listed(name, &partial, &opened, written, user);
                    room(bytes(&listed))?;
                    found.push(listed);
                }
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Whether another process has the journal, and so writes its files.
    fn is_elsewhere(&self, tag: SessionTag, reader: &JournalReader) -> Result<WrittenBy, Fault> {
        // A session of this process may have left a journal that is open here: the paths that
        // sessions own say more.
        if self.books.is_open(tag) {
            return Ok(WrittenBy::NoOther);
        }
        Ok(if reader.is_live()? { WrittenBy::Another } else { WrittenBy::NoOther })
    }

    /// The owner that is writing a file of the journal of `opened`, for people. `None` if none is.
    fn user(&self, path: &RelPath, opened: &Opened, elsewhere: WrittenBy) -> Option<String> {
        match elsewhere {
            WrittenBy::Another => Some(user_of(opened)),
            // Another session may be writing to this path, but not into this partial.
            WrittenBy::NoOther => self.holds.owner(path).filter(|owner| *owner == opened.owner),
        }
    }
}

/// Whether a process other than this one has a journal.
#[derive(Clone, Copy)]
enum WrittenBy {
    Another,
    NoOther,
}

/// The owner of a session of another process, for people.
pub(super) fn user_of(opened: &Opened) -> String {
    format!("{} (process {})", opened.owner, opened.pid)
}

/// Replays a journal of this principal. `None` if it is another's or cannot be read. Only the
/// beginning is read of another's.
fn read_of(reader: &JournalReader, layout: Layout, principal: &str) -> Option<Replayed> {
    let mut replay = Replay::over(layout);
    let is_theirs = |replay: &Replay| replay.opened().is_some_and(|opened| opened.principal != principal);
    let read = reader.read(&mut |bytes| {
        replay.push(bytes);
        !replay.ended() && !is_theirs(&replay)
    });
    if let Err(error) = read {
        tracing::warn!(target: "longhaul::journal", tag = %reader.tag(), %error, "a journal cannot be read");
        return None;
    }
    replay.finish().ok().filter(|replayed| replayed.opened.principal == principal)
}

/// A path as seen from `top`. `None` if it lies elsewhere. `top` itself goes by its name.
pub(super) fn name_beneath(path: &RelPath, top: &RelPath) -> Option<Vec<u8>> {
    if path == top {
        return path.name().map(<[u8]>::to_vec);
    }
    if top.is_root() {
        return Some(path.as_bytes().to_vec());
    }
    path.as_bytes().strip_prefix(top.as_bytes())?.strip_prefix(b"/").map(<[u8]>::to_vec)
}

fn listed(name: Vec<u8>, partial: &JournalledPartial, opened: &Opened, written: Mtime, user: Option<String>) -> Listed {
    let file = &partial.file;
    let held = partial.held.bytes(file.map);
    // Nobody knows how long a stream would have been.
    let len = if file.map.is_unended() { held } else { file.map.len() };
    let kind = ListedKind::Partial(Box::new(ListedPartial {
        held,
        since_unix: opened.at_unix,
        principal: opened.principal.as_str().into(),
        owner: opened.owner.as_str().into(),
        temp: file.temp,
        user: user.map(PlainText::from),
    }));
    Listed { name, kind, len, meta: Meta::new(MODE, written) }
}

/// Bytes of memory that a listed partial takes.
pub(super) fn bytes(listed: &Listed) -> u64 {
    let texts = match &listed.kind {
        ListedKind::Partial(partial) => {
            let user = partial.user.as_ref().map_or(0, |user| user.as_str().len());
            size_of::<ListedPartial>() + partial.principal.as_str().len() + partial.owner.as_str().len() + user
        }
        _ => 0,
    };
    // A growing vector stands beside its double for a moment.
    (2 * size_of::<Listed>() + listed.name.len() + texts + ALLOCATIONS_BYTES) as u64
}

/// Bytes that an allocator adds to a name, a box and three texts.
const ALLOCATIONS_BYTES: usize = 5 * 16;
/// The mode of a temporary until it is sealed.
const MODE: u32 = 0o600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partials_are_named_from_where_one_looks() {
        let path = |text: &str| RelPath::new(text).expect("a path");
        let seen =
            |at: &str, top: &str| name_beneath(&path(at), &path(top)).map(|n| String::from_utf8(n).expect("text"));
        let root = name_beneath(&path("a/b"), &RelPath::root());
        assert_eq!(root, Some(b"a/b".to_vec()));
        assert_eq!(seen("a/b", "a"), Some("b".to_owned()));
        assert_eq!(seen("a/b", "a/b"), Some("b".to_owned()));
        assert_eq!(seen("ab/c", "a"), None);
        assert_eq!(seen("a", "a/b"), None);
    }
}
