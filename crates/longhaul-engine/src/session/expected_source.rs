//! A source of which certain files are expected: others that a scan finds under their names are not
//! sent.
//!
//! In: another source, and a list. Out: the same entries, where a file that is not the one in the
//! list has failed, and a directory under its name too, of whose content nothing is told. The
//! source is asked to leave that content unread: it may be a tree of any size, and whoever waits
//! for the scan is not heard while nothing is told. A file that changes behind the scan is found
//! when it is opened, by the source itself: it asks for the version that the scan saw. Reads
//! nothing itself.

use std::ops::ControlFlow;
use std::sync::Arc;

use longhaul_core::{EntryKind, Losses, RelPath};
use longhaul_disk::{
    DiskError, FileNames, Identity, ScanRequest, Scanned, SmallFile, SourceFile, SourceRef, SourceTree,
};

use crate::api::{ExpectedFiles, FileDifference};

/// The source of a run that expects certain files of it.
pub(crate) struct ExpectedSource {
    tree: Arc<dyn SourceTree>,
    expected: Arc<ExpectedFiles>,
}

impl ExpectedSource {
    /// Expects these files of `tree`. `None`: any.
    pub(crate) fn over(tree: Arc<dyn SourceTree>, expected: Option<Arc<ExpectedFiles>>) -> Arc<dyn SourceTree> {
        match expected {
            Some(expected) => Arc::new(ExpectedSource { tree, expected }),
            None => tree,
        }
    }

    /// The find as it is told. `None`: nothing is told of it, as a directory stands under a name
    /// that was listed as one of a file, and that name has failed.
    fn judged(&self, found: Scanned) -> Option<Scanned> {
        let is_beneath = match &found {
            Scanned::Entry { entry, .. } => self.expected.is_above(&entry.path),
            Scanned::Skipped { path, .. } | Scanned::Failed { path, .. } => self.expected.is_above(path),
            Scanned::Reserved { dir, .. } => self.expected.of(dir).is_some() || self.expected.is_above(dir),
        };
        let Scanned::Entry { entry, .. } = &found else { return Some(found).filter(|_| !is_beneath) };
        let is_end = entry.kind == EntryKind::DirEnd && self.expected.of(&entry.path).is_some();
        if is_beneath || is_end {
            return None;
        }
        let Some(difference) = self.expected.difference(entry) else { return Some(found) };
        let how = match difference {
            FileDifference::Length { .. } => "it has another length than when it was listed",
            FileDifference::Time => "it was written to since it was listed",
            FileDifference::Kind => "it is another kind of file than when it was listed",
            FileDifference::Unasked => "nobody has asked for it",
        };
        let path = entry.path.clone();
        Some(Scanned::Failed { error: DiskError::Changed { path: (&path).into(), how }, path })
    }
}

impl FileNames for ExpectedFiles {
    fn has(&self, path: &RelPath) -> bool {
        self.of(path).is_some()
    }
}

impl SourceTree for ExpectedSource {
    fn scan(&self, what: &ScanRequest<'_>, sink: &mut dyn FnMut(Scanned) -> ControlFlow<()>) {
        let what = ScanRequest { files: Some(&*self.expected), ..what.clone() };
        self.tree.scan(&what, &mut |found| match self.judged(found) {
            Some(found) => sink(found),
            None => ControlFlow::Continue(()),
        });
    }

    fn open(&self, at: &SourceRef, expect: &Identity) -> Result<Arc<SourceFile>, DiskError> {
        self.tree.open(at, expect)
    }

    fn open_small<'a>(&'a self, at: &'a SourceRef, expect: &'a Identity) -> Result<SmallFile<'a>, DiskError> {
        self.tree.open_small(at, expect)
    }

    fn losses(&self) -> Losses {
        self.tree.losses()
    }

    fn shown(&self, at: &SourceRef) -> Vec<u8> {
        self.tree.shown(at)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "the test makes the files that are scanned")]

    use std::path::Path;
    use std::sync::Mutex;

    use longhaul_core::{Filter, Mtime, PathList, Preserve};
    use longhaul_disk::{DirectMode, FsSource, SourceSpec};

    use super::*;
    use crate::api::ExpectedFile;

    /// A directory that notes each entry which a scan of it finds.
    struct Noting {
        tree: FsSource,
        found: Mutex<Vec<String>>,
    }

    impl Noting {
        fn dir(dir: &Path) -> Arc<Noting> {
            let spec = SourceSpec { path: dir.to_owned(), contents: true };
            Arc::new(Noting { tree: FsSource::open(vec![spec], DirectMode::Auto), found: Mutex::default() })
        }
    }

    impl SourceTree for Noting {
        fn scan(&self, what: &ScanRequest<'_>, sink: &mut dyn FnMut(Scanned) -> ControlFlow<()>) {
            self.tree.scan(what, &mut |found| {
                if let Scanned::Entry { entry, .. } = &found {
                    self.found.lock().expect("a lock").push(entry.path.escaped().to_string());
                }
                sink(found)
            });
        }

        fn open(&self, at: &SourceRef, expect: &Identity) -> Result<Arc<SourceFile>, DiskError> {
            self.tree.open(at, expect)
        }
    }

    /// All that a scan of these names, or of everything, tells of a tree of which these files are
    /// expected.
    fn finds_of(tree: Arc<dyn SourceTree>, expected: ExpectedFiles, names: Option<&[RelPath]>) -> Vec<Scanned> {
        let tree = ExpectedSource::over(tree, Some(Arc::new(expected)));
        let filter = Filter::default();
        let files_from = names.map(|names| Arc::new(PathList::new(names)));
        let request = ScanRequest { files_from, ..ScanRequest::of_all(&filter, Preserve::default()) };
        let mut finds = Vec::new();
        tree.scan(&request, &mut |found| {
            finds.push(found);
            ControlFlow::Continue(())
        });
        finds
    }

    /// All that a scan tells of a directory of which these files are expected.
    fn finds(dir: &Path, expected: ExpectedFiles) -> Vec<Scanned> {
        finds_of(Noting::dir(dir), expected, None)
    }

    #[test]
    fn a_file_of_another_length_or_time_than_was_listed_is_not_sent_and_others_are() {
        let dir = tempfile::tempdir().expect("a directory");
        let names = ["as-listed", "longer", "later", "unlisted"];
        names.iter().for_each(|name| std::fs::write(dir.path().join(name), b"abc").expect("written"));
        let listed =
            |name: &str, bytes, mtime| (RelPath::new(name).expect("valid"), ExpectedFile::File { bytes, mtime });
        let past = Some(Mtime { secs: 1, nanos: 0 });
        let expected: ExpectedFiles =
            [listed("as-listed", 3, None), listed("longer", 2, None), listed("later", 3, past)].into_iter().collect();
        let (mut sent, mut failed) = (Vec::new(), Vec::new());
        for found in finds(dir.path(), expected) {
            match found {
                Scanned::Entry { entry, .. } => sent.push(entry.path.escaped().to_string()),
                Scanned::Failed { path, error } => failed.push((path.escaped().to_string(), error.fault().code)),
                other => panic!("{other:?}"),
            }
        }
        sent.retain(|name| names.contains(&name.as_str()));
        sent.sort();
        failed.sort_by(|one: &(String, _), other| one.0.cmp(&other.0));
        let changed = |name: &str| (name.to_owned(), longhaul_core::FaultCode::Changed);
        assert_eq!(
            (sent.as_slice(), failed),
            (&["as-listed".to_owned(), "unlisted".to_owned()][..], vec![changed("later"), changed("longer")])
        );
    }

    #[test]
    fn a_directory_under_the_name_of_a_listed_file_is_one_file_that_has_changed() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(dir.path().join("f/deep")).expect("made");
        ["f/x", "f/deep/y", "g"]
            .iter()
            .for_each(|name| std::fs::write(dir.path().join(name), b"abc").expect("written"));
        let listed = |name: &str| (RelPath::new(name).expect("valid"), ExpectedFile::File { bytes: 3, mtime: None });
        let expected: ExpectedFiles = [listed("f"), listed("g")].into_iter().collect();
        let mut told = Vec::new();
        for found in finds(dir.path(), expected) {
            let (path, how) = match &found {
                Scanned::Entry { entry, .. } => (&entry.path, "sent"),
                Scanned::Failed { path, .. } => (path, "failed"),
                other => panic!("{other:?}"),
            };
            told.extend((!path.is_root()).then(|| format!("{} {how}", path.escaped())));
        }
        told.sort();
        assert_eq!(told, ["f failed", "g sent"]);
    }

    #[test]
    fn a_directory_under_the_name_of_a_listed_file_is_not_read() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(dir.path().join("d/f/deep")).expect("made");
        ["d/f/x", "d/f/deep/y", "d/g"]
            .iter()
            .for_each(|name| std::fs::write(dir.path().join(name), b"abc").expect("written"));
        let names = ["d/f", "d/g"].map(|name| RelPath::new(name).expect("valid"));
        let expected =
            || names.iter().map(|name| (name.clone(), ExpectedFile::File { bytes: 3, mtime: None })).collect();
        for asked in [Some(&names[..]), None] {
            let tree = Noting::dir(dir.path());
            let told = finds_of(tree.clone(), expected(), asked);
            let failed = told.iter().filter_map(|found| match found {
                Scanned::Failed { path, error } => Some((path, error.fault().code)),
                _ => None,
            });
            assert_eq!(failed.collect::<Vec<_>>(), [(&names[0], longhaul_core::FaultCode::Changed)]);
            let mut found = std::mem::take(&mut *tree.found.lock().expect("a lock"));
            found.sort();
            assert_eq!(found, [".", ".", "d", "d", "d/f", "d/f", "d/g"], "each directory begins and ends");
        }
    }
}
