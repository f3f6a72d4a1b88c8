//! Finds out whether two sources would send the same top-level name: at the destination one of them
//! would have to give way.
//!
//! In: the sources and the part of each that is sent. Out: the first name found twice. Reads no
//! more than the listings of directories whose content is sent, and keeps a hash for each name; if
//! there are many names, for a part of them at a time. Looks into no subdirectory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};

use longhaul_core::RelPath;
use rustix::fs::{AtFlags, FileType, statat};

use crate::source::ScanRequest;
use crate::source::fs::FsSource;
use crate::source::scan::ScanPart;
use crate::stat::type_of;

/// A top-level name that two sources would send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SameName {
    /// The name.
    pub name: Vec<u8>,
    /// The two sources: their places in the order in which they were named.
    pub sources: (usize, usize),
}

/// Looks for a name that two sources send, keeping hashes of about `hashes_max` names at a time.
pub(super) fn find(source: &FsSource, what: &ScanRequest<'_>, hashes_max: usize) -> Option<SameName> {
    if source.tops.len() < 2 {
        return None;
    }
    let hasher = RandomState::new();
    let mut parts = 1;
    let mut part = 0;
    while part < parts {
        let mut search = Search { source, what, owners: HashMap::new(), found: None };
        for (at, top) in source.tops.iter().enumerate() {
            source.each_name(top, &mut |name| {
                let hash = hasher.hash_one(name);
                if hash % parts == part && search.owners.len() < hashes_max {
                    search.take(at, name, hash);
                }
            });
        }
        if search.found.is_some() {
            return search.found;
        }
        if search.owners.len() < hashes_max {
            part += 1;
        } else {
            // When parts are halved, the names of each finished part fall into two of the smaller
            // parts, which are finished as well.
            (part, parts) = (0, parts * 2);
        }
    }
    None
}

/// One pass over the names of all sources.
struct Search<'a> {
    source: &'a FsSource,
    what: &'a ScanRequest<'a>,
    /// The source that a name was found in, by the hash of the name.
    owners: HashMap<u64, usize>,
    found: Option<SameName>,
}

impl Search<'_> {
    fn take(&mut self, at: usize, name: &[u8], hash: u64) {
        match self.owners.entry(hash) {
            Entry::Vacant(entry) => {
                entry.insert(at);
            }
            Entry::Occupied(mut entry) => {
                let first = *entry.get();
                // The same directory on another target of its set.
                if first == at {
                    return;
                }
                if !sends(self.source, self.what, first, name) {
                    entry.insert(at);
                } else if self.found.is_none() && sends(self.source, self.what, at, name) {
                    self.found = Some(SameName { name: name.to_vec(), sources: (first, at) });
                }
            }
        }
    }
}

/// Whether the source at a place sends something under this top-level name.
fn sends(source: &FsSource, what: &ScanRequest<'_>, at: usize, name: &[u8]) -> bool {
    let (Ok(parts), Ok(path)) = (source.parts(&source.tops[at]), RelPath::new(name)) else { return false };
    let stat = |part: &ScanPart| statat(part.walk.root(), name, AtFlags::SYMLINK_NOFOLLOW).ok();
    let Some(stat) = parts.iter().find_map(stat) else { return false };
    let kind = type_of(&stat);
    let is_sent = match kind {
        FileType::RegularFile | FileType::Directory => true,
        FileType::Symlink => what.preserve.links,
        _ => false,
    };
    is_sent && what.filter.verdict(&path, kind == FileType::Directory)
}

/// Names whose hashes are kept at a time: some 36 MB. With more names the listings are read again
/// for each part.
pub(super) const HASHES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use longhaul_core::Preserve;
    use longhaul_core::filter::{Filter, Rule, RuleKind};

    use super::*;
    use crate::direct::DirectMode;
    use crate::source::fs::SourceSpec;

    fn found(top: &Path, sources: &[&str], exclude: &[&str], hashes_max: usize) -> Option<SameName> {
        let spec = |text: &&str| {
            let contents = text.ends_with('/');
            SourceSpec { path: top.join(text.trim_end_matches('/')), contents }
        };
        let rule = |pattern: &&str| Rule { kind: RuleKind::Exclude, pattern: (*pattern).into() };
        let filter = Filter::new(exclude.iter().map(rule).collect()).expect("rules");
        let what = ScanRequest::of_all(&filter, Preserve::default());
        let source = FsSource::open(sources.iter().map(spec).collect(), DirectMode::Auto);
        source.same_name_among(&what, hashes_max)
    }

    #[test]
    fn sources_of_one_name_are_found_whether_named_themselves_or_by_their_directory() {
        let dir = tempfile::tempdir().expect("tempdir");
        for file in ["a/x/f", "a/y", "a/only-a", "b/x/f", "b/z", "b/.longhaul-n", "c/y", "c/.longhaul-n", "d/x"] {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().expect("above")).expect("dirs");
            std::fs::write(path, b"").expect("file");
        }
        for (sources, exclude, want) in [
            (&["a/x", "b/x"][..], &[][..], Some(("x", 0, 1))),
            (&["a/x", "c/y", "b/x"], &[], Some(("x", 0, 2))),
            (&["a/x", "a/x"], &[], Some(("x", 0, 1))),
            (&["a/", "b/"], &[], Some(("x", 0, 1))),
            (&["a/", "b/x"], &[], Some(("x", 0, 1))),
            (&["b/z", "a/y", "c/"], &[], Some(("y", 1, 2))),
            (&["a/x", "c/y"], &[], None),
            (&["b/", "c/"], &[], None),
            (&["a/x/", "b/x"], &[], None),
            (&["a/x"], &[], None),
            (&["a/x", "gone/x"], &[], None),
            (&["gone/", "b/x"], &[], None),
            (&["a/", "b/"], &["x"], None),
            (&["a/", "b/"], &["y"], Some(("x", 0, 1))),
            // A directory that is left out is no file of that name.
            (&["a/", "d/"], &["x/"], None),
            (&["a/", "d/", "d/x"], &["x/"], Some(("x", 1, 2))),
        ] {
            let want = want.map(|(name, first, second)| SameName { name: name.into(), sources: (first, second) });
            assert_eq!(found(dir.path(), sources, exclude, HASHES_MAX), want, "{sources:?} {exclude:?}");
        }
    }

    #[test]
    fn of_more_names_than_are_kept_at_a_time_none_is_missed() {
        let dir = tempfile::tempdir().expect("tempdir");
        for sub in ["a", "b"] {
            std::fs::create_dir(dir.path().join(sub)).expect("dir");
            for n in 0..200 {
                std::fs::write(dir.path().join(sub).join(format!("{sub}{n}")), b"").expect("file");
            }
        }
        assert_eq!(found(dir.path(), &["a/", "b/"], &[], 16), None);
        std::fs::write(dir.path().join("b/a77"), b"").expect("file");
        let same = SameName { name: b"a77".to_vec(), sources: (0, 1) };
        assert_eq!(found(dir.path(), &["a/", "b/"], &[], 16), Some(same));
    }
}
