//! Turns the facts of names into the wire's form, and back.
//!
//! In: facts of the disk's, or of a message. Out: the same in the other form. Judges nothing.

use longhaul_disk::{NameFacts, NameKind};
use longhaul_proto::wire::message::{KnownFacts, KnownKind};

/// Facts as they travel.
pub(crate) fn known_facts(facts: &NameFacts) -> KnownFacts {
    let NameFacts { kind, dev, ino, bytes, mtime } = *facts;
    let kind = match kind {
        NameKind::File => KnownKind::File,
        NameKind::Link => KnownKind::Link,
        NameKind::Dir => KnownKind::Dir,
        NameKind::Special => KnownKind::Special,
    };
    KnownFacts { kind, dev, ino, bytes, mtime }
}

/// Facts that a peer said.
pub(crate) fn facts_said(facts: &KnownFacts) -> NameFacts {
    let KnownFacts { kind, dev, ino, bytes, mtime } = *facts;
    let kind = match kind {
        KnownKind::File => NameKind::File,
        KnownKind::Link => NameKind::Link,
        KnownKind::Dir => NameKind::Dir,
        KnownKind::Special => NameKind::Special,
    };
    NameFacts { kind, dev, ino, bytes, mtime }
}
