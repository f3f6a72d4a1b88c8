//! Lists of other programs, as items: lines of checksums, BagIt's manifests, Rucio's JSON lines,
//! and lines of paths.
//!
//! In: a list in any order. Out: items to a [`Sorter`]. A list may come from a stranger: no line is
//! longer than a mebibyte, and a name is one beneath a directory. Knows no segment.

#![allow(clippy::disallowed_methods, reason = "a list is a file of its user, beside the data and no part of it")]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use longhaul_core::RelPath;
use serde::Deserialize;

use crate::error::{LineFlaw, ManifestError};
use crate::item::Item;
use crate::sort::Sorter;
use longhaul_core::checksum::{Algorithm, Sums, unhex};

/// The form of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A checksum in hex, blanks and a name in each line, as `b3sum`, `md5sum` and `xrdadler32`
    /// print them.
    Lines(Algorithm),
    /// A bag: its `manifest-ALGORITHM.txt` files, or one of them.
    BagIt,
    /// An object a line, as Rucio's server gives the files or replicas of a dataset.
    Rucio,
    /// A path a line, as storages are dumped for Rucio's auditor. A slash at its beginning is no
    /// part of it.
    Paths,
}

/// Reads a list; `-` is standard input. Gives the number of names in it.
///
/// # Errors
/// If it cannot be read, or a line cannot be used.
pub fn import(list: &Path, format: Format, sorter: &mut Sorter) -> Result<u64, ManifestError> {
    let mut names = 0;
    for (file, format) in files(list, format)? {
        let mut add = |item| {
            names += 1;
            sorter.add(item)
        };
        if file == Path::new("-") {
            read(std::io::stdin().lock(), &file, format, &mut add)?;
        } else {
            let opened = File::open(&file).map_err(ManifestError::file("read the list", &file))?;
            read(BufReader::new(opened), &file, format, &mut add)?;
        }
    }
    Ok(names)
}

/// The form of the lines of one file.
#[derive(Clone, Copy)]
enum LineForm {
    Sums(Algorithm),
    Bag(Algorithm),
    Json,
    Path,
}

/// The files that a list is of, each with the form of its lines.
fn files(list: &Path, format: Format) -> Result<Vec<(PathBuf, LineForm)>, ManifestError> {
    let bag = |file: PathBuf| {
        let name = file.file_name()?.to_str()?;
        let algorithm = name.strip_prefix("manifest-")?.strip_suffix(".txt")?;
        Some((file.clone(), LineForm::Bag(Algorithm::of_name(algorithm)?)))
    };
    match format {
        Format::Lines(algorithm) => Ok(vec![(list.to_owned(), LineForm::Sums(algorithm))]),
        Format::Rucio => Ok(vec![(list.to_owned(), LineForm::Json)]),
        Format::Paths => Ok(vec![(list.to_owned(), LineForm::Path)]),
        Format::BagIt => {
            let failed = || ManifestError::file("read the bag", list);
            let mut found: Vec<_> = if fs::metadata(list).map_err(failed())?.is_dir() {
                let names = fs::read_dir(list).map_err(failed())?;
                let names = names.collect::<Result<Vec<_>, _>>().map_err(failed())?;
                names.into_iter().filter_map(|name| bag(name.path())).collect()
            } else {
                bag(list.to_owned()).into_iter().collect()
            };
            found.sort_by(|one, other| one.0.cmp(&other.0));
            let none = || std::io::Error::new(std::io::ErrorKind::NotFound, NO_BAG);
            if found.is_empty() { Err(failed()(none())) } else { Ok(found) }
        }
    }
}

/// Reads the lines of a list.
fn read(
    mut lines: impl BufRead,
    path: &Path,
    form: LineForm,
    add: &mut dyn FnMut(Item) -> Result<(), ManifestError>,
) -> Result<(), ManifestError> {
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let flawed = |flaw| ManifestError::Line { path: path.to_owned(), line: number, flaw };
        let got = (&mut lines).take(LIST_LINE_BYTES_MAX + 1).read_until(b'\n', &mut line);
        if got.map_err(ManifestError::file("read the list", path))? == 0 {
            break;
        }
        if line.len() as u64 > LIST_LINE_BYTES_MAX {
            return Err(flawed(LineFlaw::Long));
        }
        let bare = line.strip_suffix(b"\n").unwrap_or(&line);
        // A name that ends so has it escaped.
        let bare = bare.strip_suffix(b"\r").unwrap_or(bare);
        let item = match form {
            _ if bare.trim_ascii().is_empty() => continue,
            LineForm::Sums(algorithm) => of_line(bare, algorithm),
            LineForm::Bag(algorithm) => of_bag(bare, algorithm),
            LineForm::Json => of_json(bare),
            LineForm::Path => of_path(bare),
        };
        add(item.map_err(flawed)?)?;
    }
    Ok(())
}

/// A line of `b3sum` and its like: the name follows two blanks, or a blank and a star; in a line
/// that begins with a backslash, a backslash or a newline in the name is escaped.
fn of_line(line: &[u8], algorithm: Algorithm) -> Result<Item, LineFlaw> {
    let (line, is_escaped) = line.strip_prefix(b"\\").map_or((line, false), |rest| (rest, true));
    let (sums, rest) = checksum(line, algorithm)?;
    // Some programs write one blank, and one name may begin with blanks.
    let name = rest.strip_prefix(b" ").ok_or(LineFlaw::Checksum(algorithm))?;
    let name = name.strip_prefix(b" ").or(name.strip_prefix(b"*")).unwrap_or(name);
    let name = if is_escaped { unescaped(name)? } else { name.to_vec() };
    Ok(Item::file(path_of(&name)?, None, sums))
}

/// A line of a bag: in its name, `%` is followed by two digits of hex for a newline, a carriage
/// return or itself.
fn of_bag(line: &[u8], algorithm: Algorithm) -> Result<Item, LineFlaw> {
    let (sums, rest) = checksum(line, algorithm)?;
    let encoded = rest.trim_ascii_start();
    if encoded.len() == rest.len() {
        return Err(LineFlaw::Checksum(algorithm));
    }
    let encoded = encoded.strip_prefix(b"*").unwrap_or(encoded);
    let (mut name, mut rest) = (Vec::with_capacity(encoded.len()), encoded);
    while let Some((byte, behind)) = rest.split_first() {
        let plain = [(&b"0A"[..], b'\n'), (b"0a", b'\n'), (b"0D", b'\r'), (b"0d", b'\r'), (b"25", b'%')];
        match plain.iter().find(|(code, _)| *byte == b'%' && behind.starts_with(code)) {
            Some((code, plain)) => {
                name.push(*plain);
                rest = &behind[code.len()..];
            }
            None => {
                name.push(*byte);
                rest = behind;
            }
        }
    }
    Ok(Item::file(path_of(&name)?, None, sums))
}

/// A file of a dataset as Rucio tells it; other fields are not looked at.
#[derive(Deserialize)]
struct RucioFile {
    #[serde(default)]
    scope: Option<String>,
    name: String,
    #[serde(default)]
    bytes: Option<u64>,
    #[serde(default)]
    adler32: Option<String>,
    #[serde(default)]
    md5: Option<String>,
}

fn of_json(line: &[u8]) -> Result<Item, LineFlaw> {
    let RucioFile { scope, name, bytes, adler32, md5 } = serde_json::from_slice(line).map_err(|_| LineFlaw::Json)?;
    let mut sums = Sums::default();
    for (text, algorithm) in [(md5, Algorithm::Md5), (adler32, Algorithm::Adler32)] {
        let Some(text) = text else { continue };
        let one = unhex(text.as_bytes()).and_then(|bytes| Sums::one(algorithm, &bytes));
        let one = one.ok_or(LineFlaw::Checksum(algorithm))?;
        sums = sums.united(&one).map_err(LineFlaw::Checksum)?;
    }
    // A name may begin with a slash, as that of a file in CMS does.
    let name = name.trim_start_matches('/');
    let path = scope.map_or_else(|| name.to_owned(), |scope| format!("{scope}/{name}"));
    Ok(Item::file(path_of(path.as_bytes())?, bytes, sums))
}

/// A line that is a path.
fn of_path(line: &[u8]) -> Result<Item, LineFlaw> {
    let start = line.iter().take_while(|byte| **byte == b'/').count();
    Ok(Item::file(path_of(&line[start..])?, None, Sums::default()))
}

/// The checksum at the beginning of a line, and what follows.
fn checksum(line: &[u8], algorithm: Algorithm) -> Result<(Sums, &[u8]), LineFlaw> {
    let digits = line.split_at_checked(2 * algorithm.bytes());
    let (hex, rest) = digits.ok_or(LineFlaw::Checksum(algorithm))?;
    let sums = unhex(hex).and_then(|bytes| Sums::one(algorithm, &bytes));
    Ok((sums.ok_or(LineFlaw::Checksum(algorithm))?, rest))
}

fn unescaped(name: &[u8]) -> Result<Vec<u8>, LineFlaw> {
    let (mut plain, mut bytes) = (Vec::with_capacity(name.len()), name.iter());
    while let Some(&byte) = bytes.next() {
        plain.push(match byte {
            b'\\' => match bytes.next() {
                Some(b'\\') => b'\\',
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                _ => return Err(LineFlaw::Name),
            },
            byte => byte,
        });
    }
    Ok(plain)
}

/// A name as a path; `./` at its beginning is no part of it.
fn path_of(mut name: &[u8]) -> Result<RelPath, LineFlaw> {
    while let Some(rest) = name.strip_prefix(b"./") {
        name = rest;
    }
    if name.is_empty() {
        return Err(LineFlaw::Name);
    }
    Ok(RelPath::new(name)?)
}

/// Bytes of a line at most, its newline among them: Rucio tells all replicas of a file in one.
const LIST_LINE_BYTES_MAX: u64 = 1 << 20;
const NO_BAG: &str = "it has no manifest-ALGORITHM.txt of an algorithm that is known";

#[cfg(test)]
mod tests {
    use super::*;

    fn items(text: &str, form: LineForm) -> Result<Vec<Item>, ManifestError> {
        let mut found = Vec::new();
        read(text.as_bytes(), Path::new("list"), form, &mut |item| {
            found.push(item);
            Ok(())
        })?;
        Ok(found)
    }

    fn names(text: &str, form: LineForm) -> Vec<String> {
        let found = items(text, form).unwrap();
        found.iter().map(|item| String::from_utf8_lossy(item.path.as_bytes()).into_owned()).collect()
    }

    #[test]
    fn lines_of_every_program_are_read() {
        let sum = "0".repeat(32);
        let text = format!("{sum}  a b\n{sum} *b\n\\{sum}  c\\nd\\\\e\n\n{sum}  ./f/g\n{sum}  cr\r\n{sum}   lead");
        let form = LineForm::Sums(Algorithm::Md5);
        assert_eq!(names(&text, form), ["a b", "b", "c\nd\\e", "f/g", "cr", " lead"]);
        assert_eq!(names("00f3015a data/x", LineForm::Sums(Algorithm::Adler32)), ["data/x"]);
    }

    #[test]
    fn a_bag_escapes_percent_and_line_ends_alone() {
        let sum = "ab".repeat(16);
        let text = format!("{sum}  data/a%0Ab%25c%41\r\n{sum} *data/d\n");
        assert_eq!(names(&text, LineForm::Bag(Algorithm::Md5)), ["data/a\nb%c%41", "data/d"]);
    }

    #[test]
    fn rucio_tells_scope_length_and_checksums() {
        let text = r#"{"scope":"mc","name":"/store/f","bytes":7,"adler32":"00f3015a","md5":null,"rses":{"A":[]}}"#;
        let found = items(text, LineForm::Json).unwrap();
        assert_eq!(found[0].path.as_bytes(), b"mc/store/f");
        assert_eq!((found[0].bytes(), found[0].sums.hex(Algorithm::Adler32).as_deref()), (7, Some("00f3015a")));
        assert_eq!(names(r#"{"name":"f","bytes":null}"#, LineForm::Json), ["f"]);
    }

    #[test]
    fn a_path_is_a_line_with_or_without_a_slash_before_it() {
        assert_eq!(names("/store/a b\n./c\r\n\n//d\n\\e", LineForm::Path), ["store/a b", "c", "d", "\\e"]);
    }

    #[test]
    fn a_line_that_cannot_be_used_is_named_by_its_number() {
        let sum = "0".repeat(32);
        let md5 = LineForm::Sums(Algorithm::Md5);
        for (text, form, line) in [
            (format!("{sum}  a\n{sum}\n"), md5, 2),
            (format!("{sum}  /a\n"), md5, 1),
            (format!("{sum}  a/../b\n"), md5, 1),
            (format!("\\{sum}  a\\t\n"), md5, 1),
            (format!("{}g  a\n", &sum[1..]), md5, 1),
            ("\n{}\n".to_owned(), LineForm::Json, 2),
            ("a\n/\n".to_owned(), LineForm::Path, 2),
            ("a/../b\n".to_owned(), LineForm::Path, 1),
            (r#"{"name":"a","adler32":"1"}"#.to_owned(), LineForm::Json, 1),
            ("x".repeat(LIST_LINE_BYTES_MAX as usize + 1), md5, 1),
        ] {
            match items(&text, form) {
                Err(ManifestError::Line { line: found, .. }) => assert_eq!(found, line, "{text}"),
                other => panic!("{other:?}"),
            }
        }
    }
}
