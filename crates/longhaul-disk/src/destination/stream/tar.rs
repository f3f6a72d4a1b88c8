//! The form of a tar archive as POSIX has it: a header before each entry, its bytes, and zeros up
//! to the next record.
//!
//! In: paths and metadata. Out: headers, with an extended one before those whose values do not fit:
//! long names, sizes of 8 GiB and more, parts of a second. An archive is written from its first
//! byte to its last; owners are not known, and are left at 0. Writes nothing itself.

use longhaul_core::{Meta, Mtime, Preserve, RelPath};
use tar::{EntryType, Header};

/// An entry of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TarKind<'a> {
    /// A regular file of so many bytes.
    File(u64),
    /// A directory.
    Dir,
    /// A symbolic link.
    Link(&'a [u8]),
}

/// The header of an entry, and the extended one before it where it is needed.
pub(super) fn head(path: &RelPath, kind: TarKind<'_>, meta: &Meta, preserve: Preserve) -> Vec<u8> {
    let mut name = path.as_bytes().to_vec();
    let (entry_type, len, link, default_mode) = match kind {
        TarKind::File(len) => (EntryType::Regular, len, &[][..], 0o644),
        TarKind::Dir => (EntryType::Directory, 0, &[][..], 0o755),
        TarKind::Link(target) => (EntryType::Symlink, 0, target, 0o777),
    };
    if kind == TarKind::Dir {
        name.push(b'/');
    }
    let mtime = if preserve.times { meta.mtime } else { Mtime::default() };
    let mode = if preserve.mode { meta.mode & 0o7777 } else { default_mode };
    let mut extended = Vec::new();
    if name.len() > NAME_FIELD_BYTES {
        record(&mut extended, "path", &name);
    }
    if link.len() > NAME_FIELD_BYTES {
        record(&mut extended, "linkpath", link);
    }
    if len >= SIZE_END {
        record(&mut extended, "size", len.to_string().as_bytes());
    }
    if mtime.nanos > 0 || mtime.secs < 0 || mtime.secs as u64 >= TIME_END {
        record(&mut extended, "mtime", seconds(mtime).as_bytes());
    }
    let mut out = Vec::new();
    if !extended.is_empty() {
        let header = header(EntryType::XHeader, EXTENDED_NAME, &[], (extended.len() as u64, 0o644, Mtime::default()));
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(&extended);
        out.resize(out.len() + padding(extended.len() as u64), 0);
    }
    out.extend_from_slice(header(entry_type, &name, link, (len, mode, mtime)).as_bytes());
    out
}

/// Zeros behind `len` bytes of an entry.
pub(super) fn padding(len: u64) -> usize {
    (RECORD_BYTES - len % RECORD_BYTES) as usize % RECORD_BYTES as usize
}

/// The zeros at the end of an archive.
pub(super) const END_BYTES: usize = 2 * RECORD_BYTES as usize;

/// One header. Values that do not fit are cut: an extended header has them.
fn header(kind: EntryType, name: &[u8], link: &[u8], (len, mode, mtime): (u64, u32, Mtime)) -> Header {
    let mut header = Header::new_ustar();
    header.set_entry_type(kind);
    if let Some(ustar) = header.as_ustar_mut() {
        fill(&mut ustar.name, name);
        fill(&mut ustar.linkname, link);
    }
    header.set_size(if len < SIZE_END { len } else { 0 });
    header.set_mode(mode);
    header.set_mtime(u64::try_from(mtime.secs).unwrap_or(0).min(TIME_END - 1));
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    header
}

fn fill(field: &mut [u8], bytes: &[u8]) {
    let len = bytes.len().min(field.len());
    field[..len].copy_from_slice(&bytes[..len]);
}

/// A record of an extended header: its own length in decimals, the key, the value.
fn record(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while rest + len.to_string().len() > len {
        len += 1;
    }
    out.extend_from_slice(format!("{len} {key}=").as_bytes());
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// A time in decimals. The nanoseconds count upwards, also before 1970.
fn seconds(mtime: Mtime) -> String {
    match (mtime.secs, mtime.nanos) {
        (secs, 0) => secs.to_string(),
        (secs @ 0.., nanos) => format!("{secs}.{nanos:09}"),
        (secs, nanos) => {
            let whole = (secs + 1).unsigned_abs();
            format!("-{whole}.{:09}", 1_000_000_000 - nanos)
        }
    }
}

/// Bytes of a record, to which everything is aligned.
const RECORD_BYTES: u64 = 512;
/// Bytes of the fields for a name and for the target of a link.
const NAME_FIELD_BYTES: usize = 100;
/// Sizes from here on do not fit eleven octal digits.
const SIZE_END: u64 = 1 << 33;
/// Times from here on do not fit eleven octal digits.
const TIME_END: u64 = 1 << 33;
/// The name of an extended header, which no reader extracts.
const EXTENDED_NAME: &[u8] = b"././@PaxHeader";

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const META: Meta = Meta::new(0o640, Mtime { secs: 1_234_567_890, nanos: 0 });

    /// Reads a header as the library that other programs use does: path, link, size and mtime.
    fn read(bytes: &[u8]) -> (Vec<u8>, Option<Vec<u8>>, u64, Option<String>) {
        let mut archive = tar::Archive::new(bytes.chain(io_zeros()));
        let mut entry = archive.entries().expect("an archive").next().expect("an entry").expect("a good one");
        let extensions = entry.pax_extensions().expect("they parse");
        let mtime = extensions.into_iter().flatten().find_map(|extension| {
            let extension = extension.expect("a good one");
            (extension.key() == Ok("mtime")).then(|| extension.value().expect("text").to_owned())
        });
        (entry.path_bytes().into_owned(), entry.link_name_bytes().map(|link| link.into_owned()), entry.size(), mtime)
    }

    fn io_zeros() -> impl Read {
        std::io::repeat(0).take(END_BYTES as u64)
    }

    #[test]
    fn names_targets_and_sizes_of_any_length_are_read_back() {
        let long = ["d".repeat(200), "x".repeat(255)].join("/");
        for name in ["a", "with\nnewline", &"n".repeat(100), &"n".repeat(101), &long] {
            let path = RelPath::new(name.as_bytes()).expect("a path");
            for len in [0, 1, SIZE_END - 1, SIZE_END, 1 << 50] {
                let read = read(&head(&path, TarKind::File(len), &META, Preserve::default()));
                assert_eq!(read, (name.as_bytes().to_vec(), None, len, None));
            }
            let target = name.repeat(3).into_bytes();
            let read = read(&head(&path, TarKind::Link(&target), &META, Preserve::default()));
            assert_eq!((read.0, read.1), (name.as_bytes().to_vec(), Some(target)));
        }
    }

    #[test]
    fn times_keep_their_parts_of_a_second_on_both_sides_of_1970() {
        for (secs, nanos, text) in [
            (7, 0, None),
            (7, 5, Some("7.000000005")),
            (-1, 750_000_000, Some("-0.250000000")),
            (-3, 0, Some("-3")),
            (1 << 33, 0, Some("8589934592")),
        ] {
            let meta = Meta { mtime: Mtime { secs, nanos }, ..META };
            let path = RelPath::new(b"f").expect("a path");
            let read = read(&head(&path, TarKind::File(1), &meta, Preserve::default()));
            assert_eq!(read.3.as_deref(), text, "{secs} {nanos}");
        }
    }

    #[test]
    fn a_record_counts_its_own_digits() {
        for len in [1, 90, 93, 94, 95, 990, 992, 993, 994] {
            let mut out = Vec::new();
            record(&mut out, "k", &vec![b'x'; len]);
            let said: usize = String::from_utf8_lossy(&out).split(' ').next().expect("a number").parse().expect("one");
            assert_eq!(said, out.len());
        }
    }

    #[test]
    fn entries_are_padded_to_whole_records() {
        assert_eq!([0, 1, 511, 512, 513].map(padding), [0, 511, 1, 0, 511]);
    }
}
