//! The list of `--files-from`: names relative to the one source, one a line or ended by NUL.
//!
//! In: the list's path, or `-`. Out: the names to `settings`, held once however many there are. The
//! list is read as rsync reads it: lines that are empty or begin with `#` or `;` do not count, and
//! a CR before the newline is no part of the name. In names that end in NUL every byte counts.

#![allow(clippy::disallowed_methods, reason = "the settings loader reads the files that options name")]

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::sync::Arc;

use longhaul_core::{Gathering, PathError, PathList, RelPath};

use crate::error::Error;

/// A list that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    /// Its names.
    pub(super) names: Arc<PathList>,
    /// Lines that ended in CR LF.
    crlf: u64,
    list: String,
}

impl Listed {
    /// The note for users about how the list was read. `None` if there is nothing to tell.
    pub(super) fn note(&self) -> Option<String> {
        let lines = if self.crlf == 1 { "line" } else { "lines" };
        let (crlf, list) = (self.crlf, &self.list);
        (crlf > 0).then(|| format!("{crlf} {lines} of {list} ended in CR LF: the CR was left out of the names"))
    }
}

/// The reason why a list cannot be used.
#[derive(Debug)]
enum Unusable {
    Unreadable(io::Error),
    Name(usize, PathError),
}

/// Reads the list.
///
/// # Errors
/// [`Error::File`] if it cannot be read, [`Error::ListedName`] for a name that leaves the source.
pub(super) fn read(list: &OsStr, nul: bool) -> Result<Listed, Error> {
    let (read, path) = if list == "-" {
        (parse(io::stdin().lock(), nul), OsStr::new("standard input"))
    } else {
        let file = File::open(list).map_err(Error::file("read", list))?;
        (parse(BufReader::with_capacity(READ_BYTES, file), nul), list)
    };
    match read {
        Ok((names, crlf)) => Ok(Listed {
            names: Arc::new(names),
            crlf,
            list: longhaul_core::Escaped(path.as_encoded_bytes()).to_string(),
        }),
        Err(Unusable::Unreadable(error)) => Err(Error::file("read", path)(error)),
        Err(Unusable::Name(number, why)) => Err(Error::ListedName { list: list.to_string_lossy().into(), number, why }),
    }
}

/// The names, and the number of lines that ended in CR LF.
fn parse(mut bytes: impl BufRead, nul: bool) -> Result<(PathList, u64), Unusable> {
    let end = if nul { 0 } else { b'\n' };
    let (mut names, mut crlf, mut line) = (Gathering::default(), 0, Vec::new());
    for number in 1.. {
        line.clear();
        if bytes.read_until(end, &mut line).map_err(Unusable::Unreadable)? == 0 {
            break;
        }
        let mut name = line.strip_suffix(&[end]).unwrap_or(&line);
        if !nul {
            if let Some(without) = name.strip_suffix(b"\r") {
                crlf += 1;
                name = without;
            }
            if name.starts_with(b"#") || name.starts_with(b";") {
                continue;
            }
        }
        if !name.is_empty() {
            names.add(&normal(name).map_err(|why| Unusable::Name(number, why))?);
        }
    }
    Ok((names.into_list(), crlf))
}

/// The normal form of a name, as rsync reads it: leading, trailing and repeated slashes and `.` do
/// not count; `..` is refused.
fn normal(name: &[u8]) -> Result<RelPath, PathError> {
    if RelPath::check(name).is_ok() {
        return RelPath::new(name);
    }
    let names = name.split(|&b| b == b'/').filter(|name| !name.is_empty() && *name != b".");
    names.into_iter().try_fold(RelPath::root(), |path, name| path.join(name))
}

/// Bytes of the list that are read at a time.
const READ_BYTES: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[u8], nul: bool) -> Vec<String> {
        let (names, _) = parse(list, nul).expect("a list");
        names.iter().map(|path| path.escaped().to_string()).collect()
    }

    fn refused(list: &[u8], nul: bool) -> (usize, PathError) {
        match parse(list, nul) {
            Err(Unusable::Name(number, why)) => (number, why),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_are_lines_or_end_in_nul() {
        assert_eq!(names(b"a\n\n./b/c/\n/d\ne", false), ["a", "b/c", "d", "e"]);
        assert_eq!(names(b"a\nb\0c\0", true), ["a\\x0ab", "c"]);
        assert_eq!(names(b"\xff\n", false), ["\\xff"]);
        assert!(names(b"", false).is_empty() && names(b"\n\n", false).is_empty());
        assert_eq!(names(b"./\n", false), ["."]);
    }

    #[test]
    fn lines_that_begin_with_a_comment_sign_are_no_names_and_names_that_end_in_nul_are_all_names() {
        assert_eq!(names(b"# list\n;old\na\n #b\nc#d\n", false), [" #b", "a", "c#d"]);
        assert_eq!(names(b"#a\0;b\0", true), ["#a", ";b"]);
        assert_eq!(names(b"./#a\n", false), ["#a"], "how such a name is named");
    }

    #[test]
    fn a_cr_before_the_newline_is_left_out_and_counted_but_none_of_a_name_that_ends_in_nul() {
        let (list, crlf) = parse(&b"a\r\n\r\n# x\r\nb\nc\rd\r"[..], false).expect("a list");
        let names_of: Vec<_> = list.iter().map(|path| path.escaped().to_string()).collect();
        assert_eq!((names_of, crlf), (vec!["a".to_owned(), "b".to_owned(), "c\\x0dd".to_owned()], 4));
        assert_eq!(names(b"a\r\0", true), ["a\\x0d"]);
        let listed = |crlf| Listed { names: Arc::default(), crlf, list: "l".to_owned() };
        assert_eq!(listed(0).note(), None);
        assert!(listed(1).note().expect("a note").starts_with("1 line of l ended in CR LF"));
    }

    #[test]
    fn a_name_that_leaves_the_source_is_numbered() {
        assert_eq!(refused(b"a\nb/../../c\n", false), (2, PathError::Dots));
        assert_eq!(refused(b"a\0.longhaul\0", true), (2, PathError::Reserved));
    }
}
