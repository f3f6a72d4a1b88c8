//! Files that a transfer expects: what a sealed list says of them, by their names.
//!
//! In: from whoever made the list. Out: to the receiving side, which asks of each entry of a sender
//! whether it is the file that is meant, before anything is written; and to a sender on this host,
//! which asks the same of each entry that its scan finds. Plain data; touches no disk.

use std::collections::BTreeMap;

use longhaul_core::{Blame, Entry, EntryKind, Fault, FaultCode, Mtime, RelPath};
use serde::{Deserialize, Serialize};

/// The files that are expected, by their names at the source. Other names may come too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(RelPath, ExpectedFile)>", into = "Vec<(RelPath, ExpectedFile)>")]
pub struct ExpectedFiles(BTreeMap<RelPath, ExpectedFile>);

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
}

impl From<Vec<(RelPath, ExpectedFile)>> for ExpectedFiles {
    fn from(files: Vec<(RelPath, ExpectedFile)>) -> ExpectedFiles {
        files.into_iter().collect()
    }
}

impl From<ExpectedFiles> for Vec<(RelPath, ExpectedFile)> {
    fn from(files: ExpectedFiles) -> Vec<(RelPath, ExpectedFile)> {
        files.0.into_iter().collect()
    }
}

impl FromIterator<(RelPath, ExpectedFile)> for ExpectedFiles {
    fn from_iter<T: IntoIterator<Item = (RelPath, ExpectedFile)>>(files: T) -> ExpectedFiles {
        ExpectedFiles(files.into_iter().collect())
    }
}

impl ExpectedFiles {
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
        };
        let message = format_args!("'{}' {how}", entry.path.escaped());
        Err(Fault::new(FaultCode::Changed, Blame::Peer, message).about(entry.path.escaped()))
    }

    /// The file that is expected under a name. `None`: any.
    pub(crate) fn of(&self, path: &RelPath) -> Option<&ExpectedFile> {
        self.0.get(path)
    }

    /// Whether a file is expected under a name above this path.
    pub(crate) fn is_above(&self, path: &RelPath) -> bool {
        std::iter::successors(path.parent(), RelPath::parent).any(|above| self.0.contains_key(&above))
    }

    /// How an entry differs from the file that is expected under its name. `None`: it does not, or
    /// none is expected.
    pub(crate) fn difference(&self, entry: &Entry) -> Option<FileDifference> {
        match (&entry.kind, self.0.get(&entry.path)?) {
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
        ] {
            let entry = Entry { path: path(name), kind, meta };
            let checked = expected.check(&entry);
            assert_eq!(checked.is_ok(), fine, "{entry:?}");
            assert!(checked.is_ok() || checked.is_err_and(|fault| fault.code == FaultCode::Changed), "{entry:?}");
        }
    }
}
