//! What a receiver makes of a name: where it goes, and whether what stands there may be skipped or
//! replaced. Pure rules.

use std::collections::BTreeSet;

use longhaul_core::{Blame, Clock, Entry, EntryKind, Fault, FaultCode, IfExists, Mtime, PathError, RelPath};

use super::Replace;

/// Where entries go beneath the destination, and which tops a sender may name at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Landing {
    /// The one source's own name and the name it takes instead.
    rename: Option<(Option<Vec<u8>>, Vec<u8>)>,
    /// The first components that were asked for; none: any.
    tops: Option<BTreeSet<Vec<u8>>>,
}

impl Landing {
    /// Beneath the destination, under their own names.
    pub fn beneath() -> Landing {
        Landing::default()
    }

    /// The one source takes `name` instead of its own.
    #[must_use]
    pub fn renamed_to(mut self, name: Vec<u8>) -> Landing {
        self.rename = Some((None, name));
        self
    }

    /// Only these first components may come: what was asked for.
    #[must_use]
    pub fn only(mut self, tops: BTreeSet<Vec<u8>>) -> Landing {
        self.tops = Some(tops);
        self
    }

    /// The new name, if the source is renamed.
    pub fn renamed(&self) -> Option<&[u8]> {
        self.rename.as_ref().map(|(_, name)| name.as_slice())
    }

    /// Where `path` goes. The first entry of a renamed transfer fixes the top that is renamed;
    /// another top is refused.
    ///
    /// # Errors
    /// A [`Fault`] when the sender names what was not asked for, or the new path is too long.
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

/// What may happen to names that stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// As the user asked.
    pub if_exists: IfExists,
    /// Whether rights allow replacing.
    pub may_modify: bool,
}

/// What stands under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing.
    Absent,
    /// A regular file.
    File {
        /// Its length.
        len: u64,
        /// Its time.
        mtime: Mtime,
        /// What its file system keeps of a time.
        clock: Clock,
    },
    /// A directory, maybe made just now.
    Dir,
    /// A symbolic link.
    Symlink {
        /// What it points to.
        target: Vec<u8>,
    },
    /// A fifo, socket or device.
    Special,
}

/// What to do with a file or link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PolicyDecision {
    Send,
    Skip,
    /// Skip it if its content is the same, else send what differs.
    Compare,
    Fail(Fault),
}

impl Policy {
    /// Whether names that stand may be replaced at all.
    pub fn may_replace(self) -> bool {
        self.may_modify && self.if_exists != IfExists::Fail
    }

    /// Whether a rename to a name where `seen` stood may replace. Where nothing stood, what stands
    /// there by then was seen by nobody: another's file, or one of this transfer's whose name the
    /// destination takes for the same.
    pub(super) fn replace(self, seen: &Seen) -> Replace {
        if self.may_replace() && *seen != Seen::Absent { Replace::Allowed } else { Replace::Never }
    }

    /// What to do with a file or link that would stand where `seen` stands. Where that is
    /// `doubtful`, what the system shows of it proves nothing, and reading it would not either: it
    /// is made anew, or left to whoever may do that.
    pub(super) fn decide(self, entry: &Entry, placed: &RelPath, seen: &Seen, doubtful: bool) -> PolicyDecision {
        let fail = |code, message: &str, hint: &str| {
            PolicyDecision::Fail(Fault::new(code, Blame::Local, message).about(placed.escaped()).hint(hint))
        };
        match seen {
            Seen::Absent => PolicyDecision::Send,
            Seen::Dir => fail(
                FaultCode::InTheWay,
                "a directory stands where the file goes",
                "remove it or choose another destination",
            ),
            // What was not made by copying is not unmade by it: a device is no place that a file
            // may take.
            Seen::Special => fail(
                FaultCode::InTheWay,
                "a fifo, socket or device stands where it goes, and is never replaced",
                "remove it or choose another destination",
            ),
            _ if self.if_exists == IfExists::Fail => {
                fail(FaultCode::Exists, "the name is taken", "--if-exists replace would replace it")
            }
            _ if doubtful && !self.may_modify => fail(
                FaultCode::Denied,
                "the disk failed while this was made durable, so that it may be damaged, and this key may not replace it",
                "ask for the right 'modify' on this root, or have the file removed",
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
                "ask for the right 'modify' on this root",
            ),
            _ => PolicyDecision::Send,
        }
    }
}

/// Whether what stands there is what would be sent, as far as can be told without reading it.
pub fn is_same(entry: &Entry, seen: &Seen) -> bool {
    match (&entry.kind, seen) {
        (EntryKind::File { len, inode, .. }, Seen::File { len: stands, mtime, clock }) => {
            len == stands && clock.is_same(entry.meta.mtime, inode.ctime, *mtime)
        }
        (EntryKind::Symlink { target }, Seen::Symlink { target: stands }) => target == stands,
        _ => false,
    }
}

/// Whether a file stands there that is as long as the one that would be sent.
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
            meta: Meta { mode: 0o644, mtime },
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
            meta: Meta { mode: 0o644, mtime },
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
