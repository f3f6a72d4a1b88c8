//! The head of a sealed manifest: a small text that names its segments, and whose own digest names
//! the dataset.
//!
//! In: the segments, or the bytes of a file that anybody may have written. Out: the text, or a
//! [`Head`]. One head has one text: what is read is compared with what would be written. Knows no
//! files.

use std::fmt::Write;

use longhaul_core::Hash32;

use crate::error::HeadFlaw;
use crate::item::ItemKind;
use longhaul_core::checksum::{Algorithm, Algorithms, hex, unhex};

/// The name of the head's file.
pub const HEAD_NAME: &str = "head.lhm";
/// Items of a segment at most.
pub const SEGMENT_ITEMS_MAX: u64 = 1_000_000;
/// Segments of a manifest at most: 10^11 items.
pub(crate) const SEGMENTS_MAX: usize = 100_000;
/// Bytes of a head at most: a line for each segment, with three numbers of 20 digits.
pub(crate) const SEALED_HEAD_BYTES_MAX: u64 = 1024 + SEGMENTS_MAX as u64 * 192;
/// The first line; the number is the version.
const FIRST_LINE: &str = "longhaul manifest 1";

/// A segment as the head names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The digest of its content, which is the name of its file.
    pub digest: Hash32,
    /// Its items.
    pub items: u64,
    /// Its files.
    pub files: u64,
    /// Bytes of its files, as far as their lengths are known.
    pub bytes: u64,
    /// The checksums that any of its files has.
    pub known: Algorithms,
}

impl Segment {
    /// The name of its file.
    pub fn file_name(&self) -> String {
        format!("{}.lhs", hex(&self.digest))
    }

    /// Its line in the head.
    pub(crate) fn line(&self) -> String {
        let Segment { digest, items, files, bytes, known } = self;
        format!("segment {} {items} {files} {bytes} {known}\n", hex(digest))
    }

    /// Reads such a line without its newline. `None` if it is none.
    pub(crate) fn of_line(line: &str) -> Option<Segment> {
        let mut words = line.strip_prefix("segment ")?.splitn(5, ' ');
        let digest = unhex(words.next()?.as_bytes())?.try_into().ok()?;
        let mut number = || words.next()?.parse().ok();
        let (items, files, bytes) = (number()?, number()?, number()?);
        let known = algorithms(words.next()?)?;
        let is_one = (1..=SEGMENT_ITEMS_MAX).contains(&items) && files <= items;
        is_one.then_some(Segment { digest, items, files, bytes, known })
    }
}

/// The kinds of items that a manifest lists beside files. Of another kind it says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    /// Directories.
    pub dirs: bool,
    /// Symbolic links.
    pub links: bool,
}

impl Lists {
    /// Files alone, as in a list of checksums.
    pub const FILES: Lists = Lists { dirs: false, links: false };
    /// All kinds.
    pub const ALL: Lists = Lists { dirs: true, links: true };

    /// The kinds that both list.
    #[must_use]
    pub const fn common(self, other: Lists) -> Lists {
        Lists { dirs: self.dirs && other.dirs, links: self.links && other.links }
    }

    /// Whether items of this kind are listed.
    pub const fn has(self, kind: &ItemKind) -> bool {
        match kind {
            ItemKind::File { .. } => true,
            ItemKind::Dir => self.dirs,
            ItemKind::Link { .. } => self.links,
        }
    }

    fn words(self) -> &'static str {
        match (self.dirs, self.links) {
            (false, false) => "files",
            (true, false) => "files dirs",
            (false, true) => "files links",
            (true, true) => "files dirs links",
        }
    }

    fn of_words(words: &str) -> Option<Lists> {
        let all = [(false, false), (true, false), (false, true), (true, true)];
        all.map(|(dirs, links)| Lists { dirs, links }).into_iter().find(|lists| lists.words() == words)
    }
}

/// The head of a sealed manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Kinds that it lists.
    pub lists: Lists,
    /// Names of the tree that could not be read, and stand in no segment. 0: it is complete.
    pub omitted: u64,
    /// The segments, in the order of their items.
    pub segments: Vec<Segment>,
}

impl Head {
    /// Its items.
    pub fn items(&self) -> u64 {
        self.sum(|segment| segment.items)
    }

    /// Its files.
    pub fn files(&self) -> u64 {
        self.sum(|segment| segment.files)
    }

    /// Bytes of its files, as far as their lengths are known.
    pub fn bytes(&self) -> u64 {
        self.sum(|segment| segment.bytes)
    }

    /// The checksums that any of its files has.
    pub fn known(&self) -> Algorithms {
        self.segments.iter().fold(Algorithms::default(), |known, segment| known.and(segment.known))
    }

    fn sum(&self, of: impl Fn(&Segment) -> u64) -> u64 {
        self.segments.iter().map(of).fold(0, u64::saturating_add)
    }

    /// Its text.
    pub fn text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        // A string takes everything.
        let _ = writeln!(text, "lists {}", self.lists.words());
        let _ = writeln!(text, "checksums {}", self.known());
        let _ = writeln!(text, "items {}", self.items());
        let _ = writeln!(text, "files {}", self.files());
        let _ = writeln!(text, "bytes {}", self.bytes());
        let _ = writeln!(text, "omitted {}", self.omitted);
        self.segments.iter().for_each(|segment| text.push_str(&segment.line()));
        text
    }

    /// Its digest, which names the dataset: the BLAKE3 of its text.
    pub fn digest(&self) -> Hash32 {
        *blake3::hash(self.text().as_bytes()).as_bytes()
    }

    /// Reads a head.
    ///
    /// # Errors
    /// The flaw in it.
    pub fn parse(bytes: &[u8]) -> Result<Head, HeadFlaw> {
        if bytes.len() as u64 > SEALED_HEAD_BYTES_MAX {
            return Err(HeadFlaw::Long);
        }
        let text = str::from_utf8(bytes).map_err(|_| HeadFlaw::Version)?;
        let mut lines = text.lines().enumerate();
        if lines.next().is_none_or(|(_, line)| line != FIRST_LINE) {
            return Err(HeadFlaw::Version);
        }
        let mut head = Head::default();
        for (at, line) in lines {
            head.read(at, line).ok_or(HeadFlaw::Line(at + 1))?;
        }
        // The lines that only sum up are compared here, and so is the spelling of all.
        if head.text().as_bytes() == bytes { Ok(head) } else { Err(HeadFlaw::Sums) }
    }

    fn read(&mut self, at: usize, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(' ')?;
        match (at, word) {
            (1, "lists") => self.lists = Lists::of_words(rest)?,
            (2, "checksums") | (3, "items") | (4, "files") | (5, "bytes") => {}
            (6, "omitted") => self.omitted = rest.parse().ok()?,
            (7.., "segment") if self.segments.len() < SEGMENTS_MAX => self.segments.push(Segment::of_line(line)?),
            _ => return None,
        }
        Some(())
    }
}

/// The algorithms of a text as [`Algorithms`] prints it.
fn algorithms(text: &str) -> Option<Algorithms> {
    if text == "-" {
        return Some(Algorithms::default());
    }
    text.split(' ').try_fold(Algorithms::default(), |all, name| Some(all.with(Algorithm::of_name(name)?)))
}
