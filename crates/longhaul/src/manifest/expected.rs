//! A manifest that is read back: the names that it has, and the digest of each.
//!
//! In: a file of lines as `--manifest` and `b3sum` write them, or standard input. Out: an
//! [`Expected`], which is asked once for each file that is found. Of millions of names it keeps
//! each once, as a list that the engine reads too. Looks at none of the files.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use longhaul_core::digest::Hash32;
use longhaul_core::{Escaped, Gathering, PathList, RelPath};

use super::lines::parse;
use crate::error::{Error, ManifestFlaw};

/// The names of a manifest and their digests.
#[derive(Debug)]
pub struct Expected {
    names: Arc<PathList>,
    digests: HashMap<NameHash, Digested>,
}

/// The beginning of a name's BLAKE3. Two names of ten million have the same one with a probability
/// of 10^-25.
type NameHash = [u8; 16];

#[derive(Clone, Copy, Debug)]
struct Digested {
    digest: Hash32,
    is_found: bool,
}

/// The finding on a file that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It is what the manifest says.
    Same,
    /// It is something else.
    Changed,
    /// The manifest does not have it.
    Unknown,
}

impl Expected {
    /// Reads a manifest; `-` is standard input.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be read, [`Error::Manifest`] for a line that cannot be used.
    pub fn read(path: &Path) -> Result<Expected, Error> {
        let unread = || Error::file("read the manifest", path);
        if path == Path::new("-") {
            return Expected::of(io::stdin().lock(), path);
        }
        Expected::of(BufReader::new(File::open(path).map_err(unread())?), path)
    }

    fn of(mut lines: impl BufRead, path: &Path) -> Result<Expected, Error> {
        let (mut names, mut digests, mut line, mut count) = (Gathering::default(), HashMap::new(), Vec::new(), 0);
        let flawed = |line, flaw| Error::Manifest { path: path.to_owned(), line, flaw };
        loop {
            line.clear();
            let mut bounded = lines.by_ref().take(LINE_BYTES_MAX);
            if bounded.read_until(b'\n', &mut line).map_err(Error::file("read the manifest", path))? == 0 {
                break;
            }
            count += 1;
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            let (digest, name) = parse(text).map_err(|flaw| flawed(count, ManifestFlaw::Line(flaw)))?;
            let shown = || Escaped(&name).to_string();
            let name = RelPath::new(name.strip_prefix(b"./").unwrap_or(&name))
                .map_err(|why| flawed(count, ManifestFlaw::Name { name: shown(), why }))?;
            match digests.insert(hash(&name), Digested { digest, is_found: false }) {
                None => names.add(&name),
                Some(earlier) if earlier.digest == digest => {}
                Some(_) => return Err(flawed(count, ManifestFlaw::Twice { name: shown() })),
            }
        }
        let list = names.into_list();
        if list.len() != digests.len() {
            return Err(flawed(count, ManifestFlaw::Nested));
        }
        Ok(Expected { names: Arc::new(list), digests })
    }

    /// The names.
    pub fn names(&self) -> Arc<PathList> {
        self.names.clone()
    }

    /// Whether it has this name.
    pub fn has(&self, name: &RelPath) -> bool {
        self.digests.contains_key(&hash(name))
    }

    /// Takes a file that was found: `None` is one that has no digest, as it is no regular file.
    pub fn find(&mut self, name: &RelPath, digest: Option<&Hash32>) -> Finding {
        match self.digests.get_mut(&hash(name)) {
            None => Finding::Unknown,
            Some(wanted) => {
                wanted.is_found = true;
                if digest == Some(&wanted.digest) { Finding::Same } else { Finding::Changed }
            }
        }
    }

    /// The names that were not found, in order.
    pub fn missing(&self) -> impl Iterator<Item = RelPath> + '_ {
        self.names.iter().filter(|name| self.digests.get(&hash(name)).is_some_and(|wanted| !wanted.is_found))
    }
}

/// The longest line: a path of 4095 bytes, each of them escaped, behind a digest.
const LINE_BYTES_MAX: u64 = 16 << 10;

fn hash(name: &RelPath) -> NameHash {
    let mut short = [0; 16];
    short.copy_from_slice(&blake3::hash(name.as_bytes()).as_bytes()[..16]);
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::LineFlaw;

    fn expected(lines: &str) -> Result<Expected, ManifestFlaw> {
        Expected::of(lines.as_bytes(), Path::new("list")).map_err(|error| match error {
            Error::Manifest { flaw, .. } => flaw,
            other => panic!("{other}"),
        })
    }

    fn path(text: &str) -> RelPath {
        RelPath::new(text).unwrap()
    }

    #[test]
    fn each_name_is_found_once_with_its_digest() {
        let (ones, twos) = ("01".repeat(32), "02".repeat(32));
        let mut expected = expected(&format!("{ones}  a\n{twos}  ./d/b\n{ones}  a\n{ones}  c\r")).unwrap();
        assert_eq!(expected.find(&path("a"), Some(&[1; 32])), Finding::Same);
        assert_eq!(expected.find(&path("d/b"), Some(&[1; 32])), Finding::Changed);
        assert_eq!(expected.find(&path("x"), Some(&[1; 32])), Finding::Unknown);
        assert_eq!(expected.missing().collect::<Vec<_>>(), [path("c\r")]);
        assert_eq!(expected.find(&path("c\r"), None), Finding::Changed);
        assert_eq!(expected.missing().count(), 0);
    }

    #[test]
    fn names_that_lead_out_or_contradict_each_other_are_refused() {
        let (ones, twos) = ("01".repeat(32), "02".repeat(32));
        for name in ["../a", "/a", "a//b", ".longhaul/x"] {
            assert!(matches!(expected(&format!("{ones}  {name}\n")), Err(ManifestFlaw::Name { .. })), "{name}");
        }
        assert!(matches!(expected(&format!("{ones}  a\n{twos}  a\n")), Err(ManifestFlaw::Twice { .. })));
        assert!(matches!(expected(&format!("{ones}  a\n{twos}  a/b\n")), Err(ManifestFlaw::Nested)));
        assert!(matches!(expected("nothing\n"), Err(ManifestFlaw::Line(LineFlaw::Digest))));
        assert_eq!(expected("").unwrap().names().len(), 0);
    }
}
