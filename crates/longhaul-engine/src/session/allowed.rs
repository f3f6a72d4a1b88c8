//! Checks a manifest against the request of a pull, or against the memory of a measurement: other
//! entries are refused, whatever the sender says.
//!
//! In: the sources, names and rules of a pull, or the length of the one file of a measurement. Out:
//! a verdict on each manifest page. The sender selects by the same rules; this checks that it did.
//! A copy asks whether its scan would come upon its destination. It touches no disk.

use std::sync::Arc;

use longhaul_core::filter::Filter;
use longhaul_core::{Entry, EntryKind, Fault, PathList, RelPath};

use crate::api::ExpectedFiles;

/// The entries that may come. The default allows any: a daemon takes all that its clients push.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowed {
    names: Option<AllowedNames>,
    filter: Filter,
    no_links: bool,
    /// Whether entries without a known length are refused.
    no_streams: bool,
    /// The length in bytes that the one file may have. 0 once it came, `None` where any number of
    /// files may come.
    one_file: Option<u64>,
    /// The files that are expected. Others of the same names fail one by one.
    expected: Option<Arc<ExpectedFiles>>,
}

/// Names that were requested, and the directories above them.
#[derive(Clone, Debug)]
struct AllowedNames {
    /// The source in which they lie. It is the root if the content of a directory was requested.
    top: RelPath,
    wanted: Arc<PathList>,
    extent: NamesExtent,
}

/// How much is allowed with a name.
#[derive(Clone, Copy, Debug)]
enum NamesExtent {
    /// The name, and everything that lies beneath it.
    Within,
    /// The name alone, which is none of a directory.
    Alone,
}

impl Allowed {
    /// Allows entries that pass these rules.
    pub(crate) fn passing(filter: Filter) -> Allowed {
        Allowed { filter, no_streams: true, ..Allowed::default() }
    }

    /// Allows one file of at most `bytes` bytes, and nothing else.
    pub(crate) fn one_file(bytes: u64) -> Allowed {
        Allowed { one_file: Some(bytes), ..Allowed::default() }
    }

    /// Narrows it to these names beneath `top`, which is the root if the content of a directory was
    /// requested.
    #[must_use]
    pub(crate) fn named(self, top: RelPath, wanted: Arc<PathList>) -> Allowed {
        Allowed { names: Some(AllowedNames { top, wanted, extent: NamesExtent::Within }), ..self }
    }

    /// Allows these names of files and links, the directories above them, and nothing beneath: a
    /// directory under one of them is refused.
    pub(crate) fn exactly(wanted: Arc<PathList>) -> Allowed {
        let names = AllowedNames { top: RelPath::root(), wanted, extent: NamesExtent::Alone };
        Allowed { names: Some(names), ..Allowed::default() }
    }

    /// Narrows it to entries other than symbolic links.
    #[must_use]
    pub(crate) fn without_links(self) -> Allowed {
        Allowed { no_links: true, ..self }
    }

    /// Expects these files under their names. `None`: any.
    #[must_use]
    pub(crate) fn expecting(self, expected: Option<Arc<ExpectedFiles>>) -> Allowed {
        Allowed { expected, ..self }
    }

    /// The files that are expected.
    pub(crate) fn expected(&self) -> Option<Arc<ExpectedFiles>> {
        self.expected.clone()
    }

    /// Refuses a page with an entry that was not requested.
    ///
    /// # Errors
    /// A [`Fault`] of the peer that names the entry.
    pub(crate) fn check(&mut self, entries: &[Entry]) -> Result<(), Fault> {
        for entry in entries {
            self.take_one_file(entry)?;
        }
        match entries.iter().find(|entry| !self.covers(entry)) {
            None => Ok(()),
            Some(entry) => Err(Fault::protocol(format_args!(
                "the sender names '{}', which was not asked for",
                entry.path.escaped()
            ))),
        }
    }

    fn take_one_file(&mut self, entry: &Entry) -> Result<(), Fault> {
        let Some(most) = self.one_file else { return Ok(()) };
        match entry.kind {
            EntryKind::File { len, .. } if (1..=most).contains(&len) => {
                self.one_file = Some(0);
                Ok(())
            }
            _ => Err(Fault::protocol("the sender names more than the one file that was agreed")),
        }
    }

    /// Whether a directory of this name may come.
    pub(crate) fn has_dir(&self, path: &RelPath) -> bool {
        self.has(path, true)
    }

    fn covers(&self, entry: &Entry) -> bool {
        let is_dir = matches!(entry.kind, EntryKind::Dir | EntryKind::DirEnd);
        let is_link = matches!(entry.kind, EntryKind::Symlink { .. });
        // An entry that is not sent may be named by the directory in which it lies.
        let is_unsent = matches!(entry.kind, EntryKind::Unsent { .. });
        let is_stream = matches!(entry.kind, EntryKind::Stream { .. });
        let is_refused = is_link && self.no_links || is_stream && self.no_streams;
        !is_refused && (self.has(&entry.path, is_dir) || is_unsent && self.has(&entry.path, true))
    }

    fn has(&self, path: &RelPath, is_dir: bool) -> bool {
        self.names.as_ref().is_none_or(|names| names.cover(path, is_dir))
            && (self.filter.rules().is_empty() || self.passes(path, is_dir))
    }

    /// Whether the rules send the path and enter every directory above it.
    fn passes(&self, path: &RelPath, is_dir: bool) -> bool {
        self.filter.verdict(path, is_dir)
            && std::iter::successors(path.parent(), RelPath::parent).all(|above| self.filter.verdict(&above, true))
    }
}

impl AllowedNames {
    fn cover(&self, path: &RelPath, is_dir: bool) -> bool {
        let is_one = |name: &RelPath| match self.extent {
            NamesExtent::Within => self.wanted.covers(name),
            NamesExtent::Alone => !is_dir && self.wanted.contains(name),
        };
        match path.beneath(&self.top) {
            Some(name) => is_one(&name) || is_dir && self.wanted.leads_to(&name),
            // The directories above the source lead to its names.
            None => is_dir && !self.wanted.is_empty() && self.top.beneath(path).is_some(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::Meta;
    use longhaul_core::filter::{Rule, RuleKind};

    fn path(text: &str) -> RelPath {
        RelPath::new(text).expect("a path")
    }

    fn covers(asked: &Allowed, text: &str, kind: EntryKind) -> bool {
        asked.clone().check(&[Entry { path: path(text), kind, meta: Meta::default() }]).is_ok()
    }

    #[test]
    fn names_bring_what_lies_in_them_and_the_directories_above() {
        let asked = Allowed::default().named(path("top"), Arc::new(PathList::new(&[path("a"), path("b/c")])));
        let file = || EntryKind::File { len: 1, sparse: false, inode: longhaul_core::Inode::default() };
        for at in ["top/a", "top/a/x/y", "top/b/c"] {
            assert!(covers(&asked, at, file()), "{at}");
        }
        for at in ["top", "top/b", ""] {
            assert!(covers(&asked, at, EntryKind::Dir) && covers(&asked, at, EntryKind::DirEnd), "{at}");
            assert!(!covers(&asked, at, file()), "{at}");
        }
        for at in ["top/ab", "top/b/d", "b/c", "top/b/cd"] {
            assert!(!covers(&asked, at, file()), "{at}");
        }
        assert!(covers(&Allowed::default().named(path(""), Arc::new(PathList::new(&[path("")]))), "anything", file()));
    }

    #[test]
    fn names_alone_bring_nothing_that_lies_in_them_and_are_none_of_directories() {
        let asked = Allowed::exactly(Arc::new(PathList::new(&[path("a"), path("b/c")])));
        let file = || EntryKind::File { len: 1, sparse: false, inode: longhaul_core::Inode::default() };
        let link = || EntryKind::Symlink { target: b"x".to_vec() };
        let unsent = || EntryKind::Unsent { failure: None, why: "it changed".into() };
        for at in ["a", "b/c"] {
            assert!(covers(&asked, at, file()) && covers(&asked, at, link()) && covers(&asked, at, unsent()), "{at}");
            assert!(!covers(&asked, at, EntryKind::Dir) && !covers(&asked, at, EntryKind::DirEnd), "{at}");
        }
        for at in ["b", ""] {
            assert!(covers(&asked, at, EntryKind::Dir) && covers(&asked, at, EntryKind::DirEnd), "{at}");
            assert!(covers(&asked, at, unsent()) && !covers(&asked, at, file()), "{at}");
        }
        for at in ["a/x", "a/x/y", "b/c/d", "b/d", "d"] {
            for kind in [file(), link(), unsent(), EntryKind::Dir] {
                assert!(!covers(&asked, at, kind), "{at}");
            }
        }
    }

    #[test]
    fn rules_hold_for_every_directory_above_and_links_may_be_left_out() {
        let rule = Rule { kind: RuleKind::Exclude, pattern: "out/".into() };
        let asked = Allowed::passing(Filter::new(vec![rule]).expect("rules"));
        let link = || EntryKind::Symlink { target: b"x".to_vec() };
        assert!(covers(&asked, "in/x", link()));
        assert!(!covers(&asked, "in/out/x/y", link()));
        assert!(covers(&asked, "in/out", link()), "only directories are excluded");
        assert!(!covers(&asked.without_links(), "in/x", link()));
    }

    #[test]
    fn what_is_not_sent_may_be_named_by_its_directory() {
        let rule = |kind, pattern: &str| Rule { kind, pattern: pattern.into() };
        let rules = vec![rule(RuleKind::Include, "d/"), rule(RuleKind::Exclude, "*")];
        let asked = Allowed::passing(Filter::new(rules).expect("rules"));
        let unsent = || EntryKind::Unsent { failure: None, why: "reserved name .longhaul-x".into() };
        assert!(covers(&asked, "d", unsent()) && !covers(&asked, "e", unsent()));
        assert!(!covers(&asked, "d", EntryKind::Symlink { target: b"x".to_vec() }));
    }

    #[test]
    fn of_one_file_that_was_agreed_no_other_comes_and_no_longer_one() {
        let file = |len| {
            let kind = EntryKind::File { len, sparse: false, inode: longhaul_core::Inode::default() };
            Entry { path: path("f"), kind, meta: Meta::default() }
        };
        let dir = || Entry { path: path("d"), kind: EntryKind::Dir, meta: Meta::default() };
        for (entries, fine) in [
            (vec![file(9)], true),
            (vec![file(10)], true),
            (vec![file(11)], false),
            (vec![file(u64::MAX)], false),
            (vec![file(0)], false),
            (vec![file(4), file(4)], false),
            (vec![dir()], false),
            (vec![file(4), dir()], false),
        ] {
            assert_eq!(Allowed::one_file(10).check(&entries).is_ok(), fine, "{entries:?}");
        }
        let mut asked = Allowed::one_file(10);
        assert!(asked.check(&[file(1)]).is_ok() && asked.check(&[file(1)]).is_err(), "on a later page");
    }
}
