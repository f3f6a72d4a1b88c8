//! Plans of names that are to be moved away from a destination, as its source has them no more.
//!
//! In: names with their facts. Out: a plan as text, whose digest names it, and the same plan read
//! back. Decides nothing and looks at no tree. `shelf` has the places of plans.
//!
//! A plan is lines of text, each ended by a newline; words are parted by one blank, paths and
//! locations are escaped as in messages, and come last:
//!
//! ```text
//! longhaul removal plan 1
//! source LOCATION
//! source-device NUMBER, or - where it is not known
//! destination LOCATION
//! destination-device NUMBER
//! made SECONDS since 1970
//! file|link|dir DEVICE INODE BYTES SECONDS NANOSECONDS PATH
//! ```
//!
//! Its digest is the BLAKE3 of all of it. A reader writes what it has read once more, and refuses a
//! plan that is another text.

mod shelf;

use std::fmt::Write as _;

use longhaul_core::{Mtime, RelPath};
use longhaul_engine::{NameFacts, NameKind};

pub use shelf::{KnownDevice, PlanShelf};

/// A name that is to be moved away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedName {
    /// Its path beneath the destination.
    pub path: RelPath,
    /// The facts by which it is known again.
    pub facts: NameFacts,
}

/// A plan of names that are to be moved away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovalPlan {
    /// The tree that has them no more: a path without links, or `lh://HOST:PORT/ROOT/PATH`.
    pub source: Vec<u8>,
    /// The device of the source. `None`: a daemon has it.
    pub source_device: Option<u64>,
    /// The tree that has them, in the same form.
    pub destination: Vec<u8>,
    /// The device of the destination; at a daemon that of its root.
    pub destination_device: u64,
    /// When it was made, in seconds since 1970.
    pub made: u64,
    /// The names, in the order in which they go: what lies in a directory before the directory.
    pub names: Vec<PlannedName>,
}

impl RemovalPlan {
    /// The plan as text.
    pub fn text(&self) -> String {
        let mut text = format!("{HEAD}\n");
        let escaped = |bytes: &[u8]| longhaul_core::Escaped(bytes).to_string();
        let device = self.source_device.map_or_else(|| "-".to_owned(), |device| device.to_string());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "source {}\nsource-device {device}", escaped(&self.source));
        let _ = writeln!(text, "destination {}", escaped(&self.destination));
        let _ = writeln!(text, "destination-device {}\nmade {}", self.destination_device, self.made);
        for PlannedName { path, facts } in &self.names {
            let NameFacts { dev, ino, bytes, mtime, .. } = facts;
            let (kind, Mtime { secs, nanos }) = (kind_name(facts.kind), mtime);
            let _ = writeln!(text, "{kind} {dev} {ino} {bytes} {secs} {nanos} {}", path.escaped());
        }
        text
    }

    /// Reads a plan. `None`: the text is none.
    pub fn parse(text: &str) -> Option<RemovalPlan> {
        let mut lines = text.strip_suffix('\n')?.split('\n');
        if lines.next()? != HEAD {
            return None;
        }
        let mut field = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        let source = unescaped(field("source")?)?;
        let source_device = match field("source-device")? {
            "-" => None,
            number => Some(number.parse().ok()?),
        };
        let destination = unescaped(field("destination")?)?;
        let destination_device = field("destination-device")?.parse().ok()?;
        let made = field("made")?.parse().ok()?;
        let names = lines.map(name_of_line).collect::<Option<Vec<_>>>()?;
        let plan = RemovalPlan { source, source_device, destination, destination_device, made, names };
        (plan.text() == text).then_some(plan)
    }

    /// The files and links among the names.
    pub fn files(&self) -> u64 {
        self.names.iter().filter(|name| name.facts.kind != NameKind::Dir).count() as u64
    }

    /// The bytes of the files.
    pub fn bytes(&self) -> u64 {
        let files = self.names.iter().filter(|name| name.facts.kind == NameKind::File);
        files.fold(0, |sum, name| sum.saturating_add(name.facts.bytes))
    }
}

/// The digest that names a plan, in hex.
pub fn digest_of(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

fn name_of_line(line: &str) -> Option<PlannedName> {
    let mut words = line.splitn(7, ' ');
    let kind = match words.next()? {
        "file" => NameKind::File,
        "link" => NameKind::Link,
        "dir" => NameKind::Dir,
        _ => return None,
    };
    let (dev, ino) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let bytes = words.next()?.parse().ok()?;
    let mtime = Mtime { secs: words.next()?.parse().ok()?, nanos: words.next()?.parse().ok()? };
    let path = RelPath::new(unescaped(words.next()?)?).ok().filter(|path| !path.is_root())?;
    Some(PlannedName { path, facts: NameFacts { kind, dev, ino, bytes, mtime } })
}

const fn kind_name(kind: NameKind) -> &'static str {
    match kind {
        NameKind::File => "file",
        NameKind::Link => "link",
        NameKind::Dir => "dir",
        NameKind::Special => "special",
    }
}

/// The bytes of an escaped text.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        if byte != b'\\' {
            bytes.push(byte);
            rest = behind;
            continue;
        }
        let digits = behind.strip_prefix(b"x")?.get(..2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = &behind[3..];
    }
    Some(bytes)
}

/// The first line of a plan.
const HEAD: &str = "longhaul removal plan 1";

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> RemovalPlan {
        let mtime = Mtime { secs: -5, nanos: 7 };
        let name = |path: &[u8], kind, bytes| PlannedName {
            path: RelPath::new(path).unwrap(),
            facts: NameFacts { kind, dev: 3, ino: 4, bytes, mtime },
        };
        RemovalPlan {
            source: b"/so\\u rce\n".to_vec(),
            source_device: None,
            destination: b"/d\xff".to_vec(),
            destination_device: 9,
            made: 17,
            names: vec![
                name(b"a/b c\n\\", NameKind::File, 12),
                name(b"l", NameKind::Link, 2),
                name(b"a", NameKind::Dir, 9),
            ],
        }
    }

    #[test]
    fn a_plan_is_read_as_it_was_written_and_counts_its_files() {
        let plan = plan();
        assert_eq!(RemovalPlan::parse(&plan.text()), Some(plan.clone()));
        assert_eq!((plan.files(), plan.bytes()), (2, 12));
    }

    #[test]
    fn a_text_that_is_no_plan_is_none_however_close_it_comes() {
        let text = plan().text();
        for (from, to) in [
            ("plan 1", "plan 2"),
            ("file 3", "fifo 3"),
            ("file 3", "file 03"),
            ("dir 3 4 9 -5 7 a", "dir 3 4 9 -5 7 ../a"),
            ("dir 3 4 9 -5 7 a", "dir 3 4 9 -5 7 .longhaul/x"),
            ("dir 3 4 9 -5 7 a", "dir 3 4 9 -5 7 "),
            ("made 17\n", ""),
            ("\\x0a", "\\x0"),
        ] {
            let other = text.replacen(from, to, 1);
            assert_ne!(other, text, "{from}");
            assert_eq!(RemovalPlan::parse(&other), None, "{to}");
        }
        assert_eq!(RemovalPlan::parse(text.trim_end()), None, "it is cut off");
    }
}
