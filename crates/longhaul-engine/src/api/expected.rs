//! Files that a transfer expects: what a sealed list says of them, by their names.
//!
//! In: from whoever made the list. Out: to the receiving side, which asks of each entry of a sender
//! whether it is the file that is meant, before anything is written; and to a sender on this host,
//! which asks the same of each entry that its scan finds. Plain data; touches no disk.

use std::collections::{BTreeMap, BTreeSet};

use longhaul_core::{Blame, Entry, EntryKind, Fault, FaultCode, Mtime, RelPath};
use serde::{Deserialize, Serialize};

/// The files that are expected, by their names at the source. Other names may come too unless it
/// says otherwise, but none beneath one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "ExpectedForm", into = "ExpectedForm")]
pub struct ExpectedFiles {
    files: BTreeMap<RelPath, ExpectedFile>,
    /// The only names that may come. `None`: any.
    only: Option<OnlyNames>,
}

/// The only names that may come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OnlyNames {
    names: BTreeSet<RelPath>,
    /// The directories above them.
    above: BTreeSet<RelPath>,
}

/// The form in which it is kept: paths are no keys there.
#[derive(Serialize, Deserialize)]
struct ExpectedForm {
    files: Vec<(RelPath, ExpectedFile)>,
    only: Option<Vec<RelPath>>,
}

/// A file that is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExpectedFile {
    /// A regular file.
    File {
        /// Its length.
        bytes: u64,
        /// Its time. `None`: any.
        mtime: Option<Mtime>,
    },
    /// A symbolic link, to anywhere.
    Link,
}

/// The difference of a file from the one that is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileDifference {
    /// It has another length.
    Length {
        /// Its length.
        is: u64,
        /// The one that was expected.
        expected: u64,
    },
    /// It has another time.
    Time,
    /// It is another kind of file.
    Kind,
    /// Nobody has asked for its name.
    Unasked,
}

impl From<ExpectedForm> for ExpectedFiles {
    fn from(form: ExpectedForm) -> ExpectedFiles {
        let files = form.files.into_iter().collect::<ExpectedFiles>();
        match &form.only {
            Some(names) => files.only(names),
            None => files,
        }
    }
}

impl From<ExpectedFiles> for ExpectedForm {
    fn from(expected: ExpectedFiles) -> ExpectedForm {
        let only = expected.only.map(|only| only.names.into_iter().collect());
        ExpectedForm { files: expected.files.into_iter().collect(), only }
    }
}

impl FromIterator<(RelPath, ExpectedFile)> for ExpectedFiles {
    fn from_iter<T: IntoIterator<Item = (RelPath, ExpectedFile)>>(files: T) -> ExpectedFiles {
        ExpectedFiles { files: files.into_iter().collect(), only: None }
    }
}

impl ExpectedFiles {
    /// The same, where no other names may come than these and the directories above them. Nothing
    /// else is expected of a name that has no file here.
    pub fn only<'n>(self, names: impl IntoIterator<Item = &'n RelPath>) -> ExpectedFiles {
        let mut only = OnlyNames::default();
        for name in names {
            let mut above = name.parent();
            while let Some(dir) = above.filter(|dir| !only.above.contains(dir)) {
                above = dir.parent();
                only.above.insert(dir);
            }
            only.names.insert(name.clone());
        }
        ExpectedFiles { only: Some(only), ..self }
    }

    /// Refuses an entry that is another file than the one that is expected under its name.
    ///
    /// # Errors
    /// A `changed` fault of the sender that says how it differs.
    pub(crate) fn check(&self, entry: &Entry) -> Result<(), Fault> {
        let Some(difference) = self.difference(entry) else { return Ok(()) };
        let how = match difference {
            FileDifference::Length { is, expected } => {
                format!("has {is} bytes at the source, and {expected} were expected")
            }
            FileDifference::Time => "was written to at the source since it was listed".to_owned(),
            FileDifference::Kind => "is another kind of file at the source than the one that was expected".to_owned(),
            FileDifference::Unasked => "comes from the source, and nobody has asked for it".to_owned(),
        };
        let message = format_args!("'{}' {how}", entry.path.escaped());
        Err(Fault::new(FaultCode::Changed, Blame::Peer, message).about(entry.path.escaped()))
    }

    /// The bytes of the largest file that is expected. 0 if none is, or links alone.
    pub fn largest(&self) -> u64 {
        let bytes = |file: &ExpectedFile| match file {
            ExpectedFile::File { bytes, .. } => *bytes,
            ExpectedFile::Link => 0,
        };
        self.files.values().map(bytes).max().unwrap_or(0)
    }

    /// The file that is expected under a name. `None`: any.
    pub(crate) fn of(&self, path: &RelPath) -> Option<&ExpectedFile> {
        self.files.get(path)
    }

    /// Whether a file is expected under a name above this path.
    pub(crate) fn is_above(&self, path: &RelPath) -> bool {
        std::iter::successors(path.parent(), RelPath::parent).any(|above| self.files.contains_key(&above))
    }

    /// How an entry differs from the file that is expected under its name. `None`: it does not, or
    /// none is expected.
    pub(crate) fn difference(&self, entry: &Entry) -> Option<FileDifference> {
        let Some(expected) = self.files.get(&entry.path) else {
            return self.difference_beneath(entry).or_else(|| self.unasked(entry));
        };
        match (&entry.kind, expected) {
            // The sender says why it does not send it.
            (EntryKind::Unsent { .. }, _) | (EntryKind::Symlink { .. }, ExpectedFile::Link) => None,
            (EntryKind::File { len, .. }, ExpectedFile::File { bytes, .. }) if len != bytes => {
                Some(FileDifference::Length { is: *len, expected: *bytes })
            }
            (EntryKind::File { .. }, ExpectedFile::File { mtime, .. }) => {
                mtime.filter(|mtime| *mtime != entry.meta.mtime).map(|_| FileDifference::Time)
            }
            _ => Some(FileDifference::Kind),
        }
    }

    /// The same of an entry that is not expected itself. Nothing lies beneath a file that is: a
    /// sender that has a directory in its place could send any number of files in it.
    fn difference_beneath(&self, entry: &Entry) -> Option<FileDifference> {
        let is_sent = !matches!(entry.kind, EntryKind::Unsent { .. });
        (is_sent && self.is_above(&entry.path)).then_some(FileDifference::Kind)
    }

    /// Whether nobody has asked for an entry, if only some names may come: a sender could fill the
    /// disk with others.
    fn unasked(&self, entry: &Entry) -> Option<FileDifference> {
        let only = self.only.as_ref()?;
        let is_asked = match &entry.kind {
            EntryKind::Unsent { .. } => true,
            EntryKind::Dir | EntryKind::DirEnd => entry.path.is_root() || only.above.contains(&entry.path),
            _ => only.names.contains(&entry.path),
        };
        (!is_asked).then_some(FileDifference::Unasked)
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::{Inode, Meta};

    use super::*;

    #[test]
    fn an_entry_of_another_kind_length_or_time_than_expected_is_refused_and_other_names_may_come() {
        let at = |secs| Mtime { secs, nanos: 1 };
        let file = |len, secs| {
            let kind = EntryKind::File { len, sparse: false, inode: Inode::default() };
            (kind, Meta { mtime: at(secs), ..Meta::default() })
        };
        let link = || (EntryKind::Symlink { target: b"x".to_vec() }, Meta::default());
        let dir = || (EntryKind::Dir, Meta::default());
        let unsent = || (EntryKind::Unsent { failure: Some(FaultCode::Denied), why: "denied".into() }, Meta::default());
        let path = |name: &str| RelPath::new(name).expect("a path");
        let expected: ExpectedFiles = [
            (path("f"), ExpectedFile::File { bytes: 3, mtime: Some(at(5)) }),
            (path("any-time"), ExpectedFile::File { bytes: 3, mtime: None }),
            (path("l"), ExpectedFile::Link),
        ]
        .into_iter()
        .collect();
        for (name, (kind, meta), fine) in [
            ("f", file(3, 5), true),
            ("f", file(4, 5), false),
            ("f", file(3, 6), false),
            ("f", link(), false),
            ("f", dir(), false),
            ("f", unsent(), true),
            ("any-time", file(3, 9), true),
            ("any-time", file(0, 9), false),
            ("l", link(), true),
            ("l", file(3, 5), false),
            ("other", file(7, 7), true),
            ("f/beneath", file(3, 5), false),
            ("f/beneath/it", dir(), false),
            ("f/beneath", unsent(), true),
            ("other/f", file(7, 7), true),
        ] {
            let entry = Entry { path: path(name), kind, meta };
            let checked = expected.check(&entry);
            assert_eq!(checked.is_ok(), fine, "{entry:?}");
            assert!(checked.is_ok() || checked.is_err_and(|fault| fault.code == FaultCode::Changed), "{entry:?}");
        }
    }

    #[test]
    fn where_only_some_names_may_come_all_others_are_refused_but_directories_above_them() {
        let path = |name: &str| RelPath::new(name).expect("a path");
        let file = || EntryKind::File { len: 3, sparse: false, inode: Inode::default() };
        let asked = [path("a/b/f"), path("any")];
        let files = [(path("a/b/f"), ExpectedFile::File { bytes: 3, mtime: None })];
        let expected = files.into_iter().collect::<ExpectedFiles>().only(&asked);
        let unsent = EntryKind::Unsent { failure: Some(FaultCode::Denied), why: "denied".into() };
        for (name, kind, difference) in [
            ("a/b/f", file(), None),
            ("any", file(), None),
            ("a", EntryKind::Dir, None),
            ("a/b", EntryKind::Dir, None),
            ("a/b", EntryKind::DirEnd, None),
            ("junk", unsent, None),
            ("junk", file(), Some(FileDifference::Unasked)),
            ("junk", EntryKind::Dir, Some(FileDifference::Unasked)),
            ("a/b", file(), Some(FileDifference::Unasked)),
            ("a/junk", file(), Some(FileDifference::Unasked)),
            ("any", EntryKind::Dir, Some(FileDifference::Unasked)),
            ("any/beneath", file(), Some(FileDifference::Unasked)),
            ("a/b/f/beneath", file(), Some(FileDifference::Kind)),
        ] {
            let entry = Entry { path: path(name), kind, meta: Meta::default() };
            assert_eq!(expected.difference(&entry), difference, "{entry:?}");
        }
        let kept = ExpectedFiles::from(ExpectedForm::from(expected.clone()));
        assert_eq!(kept, expected);
    }
}
