//! The rules of a receiver for names: where an entry goes, and whether a standing file may be
//! skipped or replaced.
//!
//! Pure rules: nothing is asked, and nothing is remembered but the renamed top.

use std::collections::BTreeSet;

use longhaul_core::{
    Blame, Clock, Entry, EntryKind, Fault, FaultCode, Hint, IfExists, Mtime, PathError, RelPath, hint,
};

use super::Replace;

/// The places of entries beneath the destination, and the tops that a sender may name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Landing {
    /// The one source's own name and the name it takes instead.
    rename: Option<(Option<Vec<u8>>, Vec<u8>)>,
    /// The first components that were asked for. `None` if any may come.
    tops: Option<BTreeSet<Vec<u8>>>,
}

impl Landing {
    /// The landing beneath the destination, under the own names of the sources.
    pub fn beneath() -> Landing {
        Landing::default()
    }

    /// The one source takes `name` instead of its own.
    #[must_use]
    pub fn renamed_to(mut self, name: Vec<u8>) -> Landing {
        self.rename = Some((None, name));
        self
    }

    /// Admits only these first components, which were asked for.
    #[must_use]
    pub fn only(mut self, tops: BTreeSet<Vec<u8>>) -> Landing {
        self.tops = Some(tops);
        self
    }

    /// The new name, if the source is renamed.
    pub fn renamed(&self) -> Option<&[u8]> {
        self.rename.as_ref().map(|(_, name)| name.as_slice())
    }

    /// The place of `path`. The first entry of a renamed transfer fixes the top that is renamed;
    /// another top is refused.
    ///
    /// # Errors
    /// A [`Fault`] when the sender names a path that was not asked for, or the new path is too
    /// long.
    pub fn place(&mut self, path: &RelPath) -> Result<RelPath, Fault> {
        let unasked =
            || Fault::protocol(format_args!("the sender names '{}', which was not asked for", path.escaped()));
        let top = path.split_top();
        if let Some(tops) = &self.tops
            && !top.as_ref().is_some_and(|(name, _)| tops.contains(*name))
        {
            return Err(unasked());
        }
        let Some((from, to)) = &mut self.rename else { return Ok(path.clone()) };
        let Some((name, rest)) = top else { return Err(unasked()) };
        if from.get_or_insert_with(|| name.to_vec()) != name {
            return Err(unasked());
        }
        let too_long = |e: PathError| Fault::new(FaultCode::Unsupported, Blame::Local, e).about(path.escaped());
        RelPath::root().join(to).and_then(|top| top.concat(&rest)).map_err(too_long)
    }
}

/// The rules for names that stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The user's choice for names that stand.
    pub if_exists: IfExists,
    /// Whether the rights of the key allow replacing.
    pub may_modify: bool,
}

/// The standing file under a name, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing.
    Absent,
    /// A regular file.
    File {
        /// Its length.
        len: u64,
        /// Its modification time.
        mtime: Mtime,
        /// The part of a time that its file system keeps.
        clock: Clock,
    },
    /// A directory, maybe made just now.
    Dir,
    /// A symbolic link.
    Symlink {
        /// Its target.
        target: Vec<u8>,
    },
    /// A fifo, socket or device.
    Special,
}

/// The decision on a file or link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PolicyDecision {
    Send,
    Skip,
    /// Skip it if its content is the same, else send the chunks that differ.
    Compare,
    Fail(Fault),
}

impl Policy {
    /// Whether names that stand may be replaced at all.
    pub fn may_replace(self) -> bool {
        self.may_modify && self.if_exists != IfExists::Fail
    }

    /// Whether a rename to the name of `seen` may replace. If nothing stood there, a file that
    /// stands there later was seen by nobody: it is another's, or one of this transfer whose name
    /// the destination takes for the same.
    pub(super) fn replace(self, seen: &Seen) -> Replace {
        if self.may_replace() && *seen != Seen::Absent { Replace::Allowed } else { Replace::Never }
    }

    /// The decision on a file or link whose name has `seen`. If the name is `doubtful`, the system
    /// may show content that the medium does not have, and reading it would prove nothing: the file
    /// is sent anew, or denied to a key that may not replace it.
    pub(super) fn decide(self, entry: &Entry, placed: &RelPath, seen: &Seen, doubtful: bool) -> PolicyDecision {
        let fail = |code, message: &str, hint: Hint| {
            PolicyDecision::Fail(Fault::new(code, Blame::Local, message).about(placed.escaped()).hint(hint))
        };
        match seen {
            Seen::Absent => PolicyDecision::Send,
            Seen::Dir => fail(
                FaultCode::InTheWay,
                "a directory stands where the file goes",
                hint::Names::RemoveOrChooseAnother.into(),
            ),
            // A device, fifo or socket was not made by copying, and is never replaced by it.
            Seen::Special => fail(
                FaultCode::InTheWay,
                "a fifo, socket or device stands where it goes, and is never replaced",
                hint::Names::RemoveOrChooseAnother.into(),
            ),
            _ if self.if_exists == IfExists::Fail => {
                fail(FaultCode::Exists, "the name is taken", hint::Names::Replace.into())
            }
            _ if doubtful && !self.may_modify => fail(
                FaultCode::Denied,
                "the disk failed while this was made durable, so that it may be damaged, and this key may not replace it",
                hint::Daemon::AskForModifyOrRemoval.into(),
            ),
            _ if doubtful => PolicyDecision::Send,
            seen if self.if_exists == IfExists::SkipSame && is_same(entry, seen) => PolicyDecision::Skip,
            seen if self.if_exists == IfExists::Verify && same_len(entry, seen) => PolicyDecision::Compare,
            seen @ Seen::Symlink { .. } if self.if_exists == IfExists::Verify && is_same(entry, seen) => {
                PolicyDecision::Skip
            }
            _ if !self.may_modify => fail(
                FaultCode::Denied,
                "the name is taken and this key may not replace it",
                hint::Daemon::AskForModify.into(),
            ),
            _ => PolicyDecision::Send,
        }
    }
}

/// Whether the standing file is the same as the entry, as far as can be told without reading it.
pub fn is_same(entry: &Entry, seen: &Seen) -> bool {
    match (&entry.kind, seen) {
        (EntryKind::File { len, inode, .. }, Seen::File { len: stands, mtime, clock }) => {
            len == stands && clock.is_same(entry.meta.mtime, inode.ctime, *mtime)
        }
        (EntryKind::Symlink { target }, Seen::Symlink { target: stands }) => target == stands,
        _ => false,
    }
}

/// Whether the standing file is the entry, of which it is known that an earlier session committed
/// it: of a stream nobody knows the length.
pub(super) fn is_committed(entry: &Entry, seen: &Seen) -> bool {
    match (&entry.kind, seen) {
        (EntryKind::Stream { inode, .. }, Seen::File { mtime, clock, .. }) => {
            clock.is_same(entry.meta.mtime, inode.ctime, *mtime)
        }
        _ => is_same(entry, seen),
    }
}

/// Whether the standing file is as long as the entry.
fn same_len(entry: &Entry, seen: &Seen) -> bool {
    match (&entry.kind, seen) {
        (EntryKind::File { len, .. }, Seen::File { len: stands, .. }) => len == stands,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_core::Meta;

    fn path(text: &str) -> RelPath {
        RelPath::new(text).expect("valid")
    }

    #[test]
    fn a_renamed_source_lands_under_its_new_name_and_no_other_top_may_come() {
        let mut landing = Landing::beneath().renamed_to(b"new".to_vec());
        assert_eq!(landing.place(&path("old")), Ok(path("new")));
        assert_eq!(landing.place(&path("old/x/y")), Ok(path("new/x/y")));
        assert!(landing.place(&path("other")).is_err());
        assert!(landing.place(&RelPath::root()).is_err());
    }

    #[test]
    fn only_the_tops_that_were_asked_for_may_come() {
        let mut landing = Landing::beneath().only([b"a".to_vec()].into());
        assert_eq!(landing.place(&path("a/b")), Ok(path("a/b")));
        assert!(landing.place(&path("b")).is_err());
    }

    #[test]
    fn what_stands_is_skipped_replaced_or_refused_as_policy_and_rights_say() {
        let mtime = Mtime { secs: 9, nanos: 0 };
        let entry = Entry {
            path: path("f"),
            kind: EntryKind::File { len: 5, sparse: false, inode: longhaul_core::Inode::default() },
            meta: Meta::new(0o644, mtime),
        };
        let clock = Clock::Exact;
        let same = Seen::File { len: 5, mtime, clock };
        let other = Seen::File { len: 6, mtime, clock };
        let older = Seen::File { len: 5, mtime: Mtime { secs: 3, nanos: 0 }, clock };
        let code = |if_exists, may_modify, seen: &Seen| match (Policy { if_exists, may_modify }).decide(
            &entry,
            &entry.path,
            seen,
            false,
        ) {
            PolicyDecision::Send => "send",
            PolicyDecision::Skip => "skip",
            PolicyDecision::Compare => "compare",
            PolicyDecision::Fail(fault) => fault.code.name(),
        };
        for (if_exists, may_modify, seen, want) in [
            (IfExists::SkipSame, true, &Seen::Absent, "send"),
            (IfExists::SkipSame, false, &same, "skip"),
            (IfExists::SkipSame, true, &other, "send"),
            (IfExists::SkipSame, false, &other, "denied"),
            (IfExists::Replace, true, &same, "send"),
            (IfExists::Replace, false, &same, "denied"),
            (IfExists::Fail, true, &same, "exists"),
            (IfExists::Fail, true, &Seen::Absent, "send"),
            (IfExists::Verify, true, &same, "compare"),
            (IfExists::Verify, false, &older, "compare"),
            (IfExists::Verify, true, &other, "send"),
            (IfExists::Verify, false, &other, "denied"),
            (IfExists::Verify, true, &Seen::Symlink { target: b"x".to_vec() }, "send"),
            (IfExists::Verify, true, &Seen::Absent, "send"),
            (IfExists::Verify, true, &Seen::Dir, "in-the-way"),
            (IfExists::SkipSame, true, &Seen::Dir, "in-the-way"),
            (IfExists::SkipSame, true, &Seen::Special, "in-the-way"),
            (IfExists::Replace, true, &Seen::Special, "in-the-way"),
        ] {
            assert_eq!(code(if_exists, may_modify, seen), want, "{if_exists:?} {may_modify} {seen:?}");
        }
    }

    #[test]
    fn a_doubtful_name_is_sent_anew_or_denied_and_never_skipped_or_compared() {
        let mtime = Mtime { secs: 9, nanos: 0 };
        let entry = Entry {
            path: path("f"),
            kind: EntryKind::File { len: 5, sparse: false, inode: longhaul_core::Inode::default() },
            meta: Meta::new(0o644, mtime),
        };
        let same = Seen::File { len: 5, mtime, clock: Clock::Exact };
        for if_exists in [IfExists::SkipSame, IfExists::Verify, IfExists::Replace] {
            let decide = |may_modify| Policy { if_exists, may_modify }.decide(&entry, &entry.path, &same, true);
            assert_eq!(decide(true), PolicyDecision::Send, "{if_exists:?}");
            assert!(
                matches!(decide(false), PolicyDecision::Fail(fault) if fault.code == FaultCode::Denied),
                "{if_exists:?}"
            );
        }
        let fails = Policy { if_exists: IfExists::Fail, may_modify: true }.decide(&entry, &entry.path, &same, true);
        assert!(matches!(fails, PolicyDecision::Fail(fault) if fault.code == FaultCode::Exists));
    }
}
