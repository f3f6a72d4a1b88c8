//! The directories that a sender has begun and not ended: a manifest goes depth first, so each lies
//! in the one before.
//!
//! In: each entry, as the sender names it. Out: a fault if a directory begins outside of the
//! innermost one, or another one ends. Therefore a part that keeps something for each directory
//! until its end keeps at most as many as a path has components. Knows nothing of where entries go.

use longhaul_core::{Entry, EntryKind, Fault, RelPath};

/// A stack of directories, as one path.
#[derive(Debug, Default)]
pub(super) struct OpenDirs {
    /// The directory that was begun last and is not ended. `None` before the first of a source, and
    /// behind its end.
    innermost: Option<RelPath>,
    /// The lengths of the paths of the directories around it, in bytes, the outermost first.
    above: Vec<usize>,
    /// Bytes of the names of files and links that did not lie in the innermost directory.
    astray_bytes: usize,
}

impl OpenDirs {
    /// Takes the next entry of the manifest. An entry that is not sent makes nothing, so that it
    /// may be named anywhere.
    ///
    /// # Errors
    /// A [`Fault`] of the peer if a directory begins outside of the innermost one, another one
    /// ends, or too many names lie elsewhere.
    pub(super) fn take(&mut self, entry: &Entry) -> Result<(), Fault> {
        match entry.kind {
            EntryKind::Unsent { .. } => Ok(()),
            EntryKind::Dir => self.begin(entry),
            EntryKind::DirEnd => self.end(entry),
            EntryKind::File { .. } | EntryKind::Stream { .. } | EntryKind::Symlink { .. } => self.take_leaf(entry),
        }
    }

    fn begin(&mut self, entry: &Entry) -> Result<(), Fault> {
        if let Some(innermost) = &self.innermost {
            if !lies_in(&entry.path, innermost) {
                return Err(misplaced("begins", entry));
            }
            self.above.push(innermost.as_bytes().len());
        }
        self.innermost = Some(entry.path.clone());
        Ok(())
    }

    fn end(&mut self, entry: &Entry) -> Result<(), Fault> {
        if self.innermost.as_ref() != Some(&entry.path) {
            return Err(misplaced("ends", entry));
        }
        let above = self.above.pop();
        let mut dirs = std::iter::successors(entry.path.parent(), RelPath::parent);
        self.innermost = above.and_then(|len| dirs.find(|dir| dir.as_bytes().len() == len));
        Ok(())
    }

    /// Each directory in which something is made costs memory until its own end.
    fn take_leaf(&mut self, entry: &Entry) -> Result<(), Fault> {
        let lies_there = match (&self.innermost, entry.path.parent()) {
            (Some(innermost), parent) => parent.as_ref() == Some(innermost),
            (None, parent) => parent.is_none_or(|parent| parent.is_root()),
        };
        if !lies_there {
            self.astray_bytes += entry.path.as_bytes().len();
            if self.astray_bytes > ASTRAY_BYTES_MAX {
                return Err(misplaced("names", entry));
            }
        }
        Ok(())
    }
}

fn lies_in(path: &RelPath, dir: &RelPath) -> bool {
    let rest = path.as_bytes().strip_prefix(dir.as_bytes());
    rest.is_some_and(|rest| if dir.is_root() { !rest.is_empty() } else { rest.starts_with(b"/") })
}

fn misplaced(what: &str, entry: &Entry) -> Fault {
    Fault::protocol(format_args!(
        "the sender {what} '{}' elsewhere than in the directory that it began last",
        entry.path.escaped()
    ))
}

/// The most bytes of names outside of their directory. No scan gives such names; they cost memory
/// as long as the session.
const ASTRAY_BYTES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use longhaul_core::{Inode, Meta};

    use super::*;

    fn entry(text: &str) -> Entry {
        let (path, kind) = match text.split_at(1) {
            ("+", path) => (path, EntryKind::Dir),
            ("-", path) => (path, EntryKind::DirEnd),
            ("?", path) => (path, EntryKind::Unsent { failure: None, why: "odd".into() }),
            (_, path) => (path, EntryKind::File { len: 1, sparse: false, inode: Inode::default() }),
        };
        Entry { path: RelPath::new(path).expect("a path"), kind, meta: Meta::default() }
    }

    /// How many entries are taken before one is refused.
    fn taken(entries: &str) -> usize {
        let mut dirs = OpenDirs::default();
        entries.split(' ').take_while(|text| dirs.take(&entry(text)).is_ok()).count()
    }

    #[test]
    fn what_a_scan_gives_is_taken() {
        for entries in [
            "=f +d =d/f +d/e =d/e/f -d/e =d/g -d +e -e =g",
            "+ =f +d =d/f -d - + =g -",
            "+a +a/b +a/b/c =a/b/c/d -a/b/c -a/b -a +a -a",
            "?x/y/z +d ?d ?d/e/f ? -d",
        ] {
            assert_eq!(taken(entries), entries.split(' ').count(), "{entries}");
        }
    }

    #[test]
    fn a_directory_elsewhere_than_in_the_one_that_was_begun_last_is_refused() {
        for (entries, fine) in [
            ("+a +b", 1),
            ("+a -a +b +c", 3),
            ("+a +ab", 1),
            ("+a +a", 1),
            ("+a +", 1),
            ("+ +", 1),
            ("+a +a/b/c -a/b/c -a -a", 4),
            ("+a -b", 1),
            ("+a +a/b -a", 2),
            ("-a", 0),
            ("+a/b -a", 1),
            ("+a/b -a/b +c", 3),
        ] {
            assert_eq!(taken(entries), fine, "{entries}");
        }
    }

    #[test]
    fn files_elsewhere_than_in_their_directory_are_not_taken_without_end() {
        let long = ["d"; 2000].join("/");
        let taken = |dirs: &str, file: &str| {
            let mut open = OpenDirs::default();
            dirs.split_terminator(' ').for_each(|dir| open.take(&entry(dir)).expect("a directory"));
            (0..2000).take_while(|_| open.take(&entry(&format!("={file}"))).is_ok()).count()
        };
        for (dirs, file) in [("", long.clone()), ("+a", long.clone()), ("+a +a/b -a/b", format!("a/b/{long}"))] {
            assert_eq!(taken(dirs, &file), ASTRAY_BYTES_MAX / file.len(), "{dirs}");
        }
        assert_eq!(taken("", "f"), 2000);
        assert_eq!(taken(&format!("+{long}"), &format!("{long}/f")), 2000);
    }
}
