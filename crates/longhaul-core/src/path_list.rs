//! A long list of paths in one run of bytes, as `--files-from` names them: a million paths take
//! little more than their bytes.
//!
//! In: paths in any order from a reader of a list, or parts of one in its order from a peer. Out:
//! the paths in order, and whether a path lies in one of them or above one. Reads no file and knows
//! no session.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::path::{PathError, RelPath};

/// A list of paths, each once, in the order of their components, none beneath another.
///
/// In memory, on the wire and written down it is the same: each path followed by a NUL, one behind
/// the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct PathList {
    bytes: Vec<u8>,
    count: usize,
}

impl TryFrom<Vec<u8>> for PathList {
    type Error = PathListError;
    fn try_from(bytes: Vec<u8>) -> Result<PathList, PathListError> {
        let mut list = PathList::default();
        list.append(&bytes)?;
        Ok(list)
    }
}

impl From<PathList> for Vec<u8> {
    fn from(list: PathList) -> Vec<u8> {
        list.bytes
    }
}

/// The reason why bytes are no further part of a [`PathList`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathListError {
    /// The last path has no NUL behind it.
    #[error("a list of names does not end where a name does")]
    Torn,
    /// One of them is no path that could travel.
    #[error("a list of names holds one that is none: {0}")]
    Path(PathError),
    /// A path does not follow the one before it, or lies in it.
    #[error("a list of names is not in order")]
    Order,
}

impl PathList {
    /// The list of these paths. A path that is named twice, or lies beneath another one, is left
    /// out.
    pub fn new<'p>(paths: impl IntoIterator<Item = &'p RelPath>) -> PathList {
        let mut gathering = Gathering::default();
        paths.into_iter().for_each(|path| gathering.add(path));
        gathering.into_list()
    }

    /// How many paths there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The paths in order.
    pub fn iter(&self) -> impl Iterator<Item = RelPath> + '_ {
        // Each was a path when it was taken in.
        split(&self.bytes).filter_map(|path| RelPath::new(path).ok())
    }

    /// Whether `path` is one of them.
    pub fn contains(&self, path: &RelPath) -> bool {
        self.starts_at(self.position(path.as_bytes()), path.as_bytes())
    }

    /// Whether `path` is one of them or lies beneath one.
    pub fn covers(&self, path: &RelPath) -> bool {
        let at = self.position(path.as_bytes());
        // Nothing stands between a path and its content in this order, so only the path before can
        // hold it.
        self.starts_at(at, path.as_bytes()) || self.before(at).is_some_and(|last| lies_in(path.as_bytes(), last))
    }

    /// Whether `path` is a directory above one of them, or the root.
    pub fn leads_to(&self, path: &RelPath) -> bool {
        let at = self.position(path.as_bytes());
        split(&self.bytes[at..]).next().is_some_and(|next| lies_in(next, path.as_bytes()))
    }

    /// Its bytes in parts of at most `bytes_max`, which hold whole paths; an empty list gives one
    /// empty part.
    pub fn parts(&self, bytes_max: usize) -> impl Iterator<Item = &[u8]> {
        let mut rest = Some(&self.bytes[..]);
        std::iter::from_fn(move || {
            let all = rest.take()?;
            if all.len() <= bytes_max {
                return Some(all);
            }
            let end = all[..bytes_max].iter().rposition(|&b| b == 0).map_or(all.len(), |nul| nul + 1);
            rest = Some(&all[end..]).filter(|left| !left.is_empty());
            Some(&all[..end])
        })
    }

    /// Takes in the next part of a list, in its order.
    ///
    /// # Errors
    /// The [`PathListError`] that names the error in it; the list is of no use then.
    pub fn append(&mut self, part: &[u8]) -> Result<(), PathListError> {
        if part.last().is_some_and(|&last| last != 0) {
            return Err(PathListError::Torn);
        }
        let mut last = self.before(self.bytes.len());
        for path in split(part) {
            RelPath::check(path).map_err(PathListError::Path)?;
            if last.is_some_and(|last| compare(last, path).is_ge() || lies_in(path, last)) {
                return Err(PathListError::Order);
            }
            last = Some(path);
        }
        let added = split(part).count();
        // No more than asked for: a list that doubled would take memory that nobody has claimed.
        self.bytes.reserve_exact(part.len());
        self.bytes.extend_from_slice(part);
        self.count += added;
        Ok(())
    }

    /// Where the first path begins that is not before `path`.
    fn position(&self, path: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.bytes.len());
        while low < high {
            let begin = self.begin_of(low + (high - low) / 2);
            let len = self.bytes[begin..].iter().position(|&b| b == 0).unwrap_or(0);
            if compare(&self.bytes[begin..begin + len], path).is_lt() {
                low = begin + len + 1;
            } else {
                high = begin;
            }
        }
        low
    }

    /// Where the path begins that the byte at `at` belongs to; its NUL does.
    fn begin_of(&self, at: usize) -> usize {
        self.bytes[..at].iter().rposition(|&b| b == 0).map_or(0, |nul| nul + 1)
    }

    fn starts_at(&self, at: usize, path: &[u8]) -> bool {
        self.bytes[at..].strip_prefix(path).is_some_and(|rest| rest.first() == Some(&0))
    }

    /// The path that ends before `at`.
    fn before(&self, at: usize) -> Option<&[u8]> {
        let nul = at.checked_sub(1)?;
        Some(&self.bytes[self.begin_of(nul)..nul])
    }
}

/// Paths on their way into a [`PathList`], in any order.
#[derive(Debug, Default)]
pub struct Gathering {
    bytes: Vec<u8>,
    /// Where the last path begins, if there is one.
    last: Option<usize>,
    is_unsorted: bool,
}

impl Gathering {
    /// Adds a path.
    pub fn add(&mut self, path: &RelPath) {
        let path = path.as_bytes();
        if let Some(last) = self.last {
            let last = &self.bytes[last..self.bytes.len() - 1];
            if path == last || lies_in(path, last) {
                return;
            }
            self.is_unsorted |= compare(last, path).is_gt();
        }
        self.last = Some(self.bytes.len());
        self.bytes.extend_from_slice(path);
        self.bytes.push(0);
    }

    /// The list of the paths that were added.
    pub fn into_list(mut self) -> PathList {
        if !self.is_unsorted {
            self.bytes.shrink_to_fit();
            return PathList { count: split(&self.bytes).count(), bytes: self.bytes };
        }
        let mut begins: Vec<usize> = Vec::with_capacity(split(&self.bytes).count());
        let mut at = 0;
        for path in split(&self.bytes) {
            begins.push(at);
            at += path.len() + 1;
        }
        let path_at = |begin: usize| split(&self.bytes[begin..]).next().unwrap_or_default();
        begins.sort_unstable_by(|&a, &b| compare(path_at(a), path_at(b)));
        let mut list = PathList { bytes: Vec::with_capacity(self.bytes.len()), count: 0 };
        let mut last: Option<&[u8]> = None;
        for path in begins.into_iter().map(path_at) {
            if last.is_none_or(|last| path != last && !lies_in(path, last)) {
                list.bytes.extend_from_slice(path);
                list.bytes.push(0);
                list.count += 1;
                last = Some(path);
            }
        }
        list.bytes.shrink_to_fit();
        list
    }
}

/// The paths of bytes in which each has a NUL behind it.
fn split(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let nul = rest.iter().position(|&b| b == 0)?;
        let path = &rest[..nul];
        rest = &rest[nul + 1..];
        Some(path)
    })
}

/// The order of components, in which the content of a directory stands right behind it.
fn compare(a: &[u8], b: &[u8]) -> Ordering {
    let key = |&byte: &u8| if byte == b'/' { 0 } else { byte };
    match a.iter().zip(b).find(|(a, b)| a != b) {
        Some((a, b)) => key(a).cmp(&key(b)),
        None => a.len().cmp(&b.len()),
    }
}

/// Whether `path` is beneath `dir`.
fn lies_in(path: &[u8], dir: &[u8]) -> bool {
    match path.strip_prefix(dir) {
        Some(rest) => !rest.is_empty() && (dir.is_empty() || rest[0] == b'/'),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::new(text).expect("a path")
    }

    fn list(texts: &[&str]) -> PathList {
        PathList::new(&texts.iter().map(|text| path(text)).collect::<Vec<_>>())
    }

    fn names(list: &PathList) -> Vec<String> {
        list.iter().map(|path| path.escaped().to_string()).collect()
    }

    #[test]
    fn paths_in_any_order_become_a_list_in_the_order_of_their_components() {
        for (given, want) in [
            (&["b", "a"][..], &["a", "b"][..]),
            (&["a-b", "a/b", "a/a", "a0"], &["a/a", "a/b", "a-b", "a0"]),
            (&["a/x", "a", "a/y", "b"], &["a", "b"]),
            (&["a", "b", "a"], &["a", "b"]),
            (&["a/b", "a/b/c", "a/bc"], &["a/b", "a/bc"]),
            (&["a", "", "b"], &["."]),
            (&[], &[]),
        ] {
            let list = list(given);
            assert_eq!(names(&list), want, "{given:?}");
            assert_eq!(list.len(), want.len());
            assert_eq!(list.is_empty(), want.is_empty());
        }
    }

    #[test]
    fn a_list_knows_what_lies_in_its_paths_and_what_leads_to_them() {
        let list = list(&["a/b", "a-b", "d/e/f", "z"]);
        for covered in ["a/b", "a/b/c", "a/b/c/d", "a-b", "a-b/x", "d/e/f", "z", "z/z"] {
            assert!(list.covers(&path(covered)), "{covered}");
        }
        for not in ["", "a", "a/a", "a/bc", "a/c", "a-", "a-c", "d", "d/e", "d/e/fg", "y", "zz", "~"] {
            assert!(!list.covers(&path(not)) && !list.contains(&path(not)), "{not}");
        }
        for (at, is_one) in [("a/b", true), ("a-b", true), ("z", true), ("a/b/c", false), ("z/z", false)] {
            assert_eq!(list.contains(&path(at)), is_one, "{at}");
        }
        for above in ["", "a", "d", "d/e"] {
            assert!(list.leads_to(&path(above)), "{above}");
        }
        for not in ["a/b", "a/b/c", "a-b", "d/e/f", "b", "z", "~"] {
            assert!(!list.leads_to(&path(not)), "{not}");
        }
        let all = super::tests::list(&[""]);
        assert!(all.covers(&path("anything/at/all")) && all.covers(&RelPath::root()));
        assert!(!PathList::default().covers(&RelPath::root()) && !PathList::default().leads_to(&RelPath::root()));
    }

    #[test]
    fn a_list_travels_in_parts_of_whole_paths() {
        let texts: Vec<String> = (0..1000).map(|n| format!("dir{}/name-{n}", n % 7)).collect();
        let whole = list(&texts.iter().map(String::as_str).collect::<Vec<_>>());
        let mut received = PathList::default();
        for part in whole.parts(100) {
            assert!(part.len() <= 100 && part.last() == Some(&0));
            received.append(part).expect("a part");
        }
        assert_eq!(received, whole);
        assert_eq!(PathList::default().parts(100).collect::<Vec<_>>(), [b""]);
        assert_eq!(list(&["a"]).parts(2).count(), 1);
    }

    #[test]
    fn parts_that_are_not_in_order_or_hold_no_paths_are_refused() {
        for (parts, want) in [
            (&[&b"a\0b"[..]][..], PathListError::Torn),
            (&[b"b\0a\0"], PathListError::Order),
            (&[b"a\0a\0"], PathListError::Order),
            (&[b"a\0", b"a\0"], PathListError::Order),
            (&[b"b\0", b"a\0"], PathListError::Order),
            (&[b"a\0", b"a/b\0"], PathListError::Order),
            (&[b"a-b\0a/b\0"], PathListError::Order),
            (&[b"\0", b"a\0"], PathListError::Order),
            (&[b"a\0../b\0"], PathListError::Path(PathError::Dots)),
            (&[b"/a\0"], PathListError::Path(PathError::Absolute)),
            (&[b".longhaul\0"], PathListError::Path(PathError::Reserved)),
        ] {
            let mut list = PathList::default();
            let result = parts.iter().try_for_each(|part| list.append(part));
            assert_eq!(result, Err(want), "{parts:?}");
        }
        let mut fine = PathList::default();
        assert_eq!([&b"a/b\0"[..], b"", b"a-b\0a0\0"].iter().try_for_each(|part| fine.append(part)), Ok(()));
        assert_eq!(fine.len(), 3);
    }
}
