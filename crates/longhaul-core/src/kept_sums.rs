//! The form in which checksums are kept with a file: one line of text in an extended attribute.
//!
//! In: checksums, and the length and time of their file. Out: that line, or what a line says.
//! A line may be anybody's, and is believed by no one who was not told to; one whose length or time
//! is no longer the file's says nothing of it. Knows no files.

use std::fmt;

use crate::checksum::{Algorithm, FileSums, Sums, unhex};
use crate::manifest::Mtime;

/// Checksums as they are kept with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptSums {
    /// The checksums, and the length of the file when they were computed.
    pub file: FileSums,
    /// The time of its last change then.
    pub mtime: Mtime,
}

/// The name of the attribute that has the line.
pub const KEPT_SUMS_NAME: &str = "user.longhaul.checksum";

impl KeptSums {
    /// Reads a line. `None` if it is none, or of a form that is not known.
    pub fn parse(line: &[u8]) -> Option<KeptSums> {
        let text = std::str::from_utf8(line).ok().filter(|text| text.len() <= KEPT_SUMS_BYTES_MAX)?;
        let mut words = text.split(' ');
        let form = words.next()?;
        let len = words.next()?.strip_prefix("len=")?.parse().ok()?;
        let (secs, nanos) = words.next()?.strip_prefix("mtime=")?.split_once('.')?;
        let (secs, nanos): (i64, u32) = (secs.parse().ok()?, nanos.parse().ok()?);
        let mut sums = Sums::default();
        for word in words {
            let (name, hex) = word.split_once('=')?;
            let one = Sums::one(Algorithm::of_name(name)?, &unhex(hex.as_bytes())?)?;
            sums = sums.united(&one).ok()?;
        }
        let mtime = (nanos < 1_000_000_000).then(|| Mtime::said(secs, nanos))?;
        (form == FORM).then_some(KeptSums { file: FileSums { len, sums }, mtime })
    }

    /// Whether they are those of a file that has this length and time.
    pub fn is_of(&self, len: u64, mtime: Mtime) -> bool {
        (self.file.len, self.mtime) == (len, mtime)
    }
}

/// The line.
impl fmt::Display for KeptSums {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FileSums { len, sums } = &self.file;
        write!(f, "{FORM} len={len} mtime={}.{:09}", self.mtime.secs, self.mtime.nanos)?;
        for algorithm in sums.known().iter() {
            write!(f, " {}={}", algorithm.name(), sums.hex(algorithm).unwrap_or_default())?;
        }
        Ok(())
    }
}

/// The first word of a line, which another form would change.
const FORM: &str = "1";
/// Bytes of a line at most: that of all checksums has some 450.
pub const KEPT_SUMS_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::checksum::{Algorithms, Hashing};

    fn kept(len: u64, mtime: Mtime, sums: Sums) -> KeptSums {
        KeptSums { file: FileSums { len, sums }, mtime }
    }

    #[test]
    fn a_line_is_as_it_is_documented_and_says_nothing_of_a_file_that_was_written_to() {
        let mut hashing = Hashing::new(Algorithms::NONE.with(Algorithm::Adler32).with(Algorithm::Crc32c));
        hashing.update(b"123456789");
        let mtime = Mtime::said(-3, 7);
        let kept = kept(9, mtime, hashing.finish());
        let line = "1 len=9 mtime=-3.000000007 adler32=091e01de crc32c=e3069283";
        assert_eq!(kept.to_string(), line);
        assert_eq!(KeptSums::parse(line.as_bytes()), Some(kept.clone()));
        assert!(kept.is_of(9, mtime) && !kept.is_of(8, mtime) && !kept.is_of(9, Mtime::said(-3, 8)));
    }

    #[test]
    fn what_is_no_such_line_is_no_checksum() {
        for bad in [
            "",
            "1",
            "2 len=9 mtime=0.0 adler32=091e01de",
            "1 len=-9 mtime=0.0",
            "1 len=9 mtime=0",
            "1 len=9 mtime=0.1000000000",
            "1 len=9 mtime=0.0 adler32=091e01",
            "1 len=9 mtime=0.0 adler32=091e01dg",
            "1 len=9 mtime=0.0 adler=091e01de",
            "1 len=9 mtime=0.0 adler32=091e01de adler32=091e01df",
            "1 len=9 mtime=0.0 ",
        ] {
            assert_eq!(KeptSums::parse(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(KeptSums::parse(&[0xff; 9]), None);
        assert_eq!(KeptSums::parse(format!("1 len=9 mtime=0.{}", "0".repeat(1024)).as_bytes()), None);
    }

    proptest! {
        #[test]
        fn what_is_kept_is_read_back(len: u64, secs: i64, nanos in 0..1_000_000_000_u32, bits in 0..128_u8) {
            let known = Algorithms::of_bits(bits).unwrap_or_default();
            let bytes: Vec<u8> = (0..known.bytes()).map(|at| (at as u64 ^ len) as u8).collect();
            let kept = kept(len, Mtime::said(secs, nanos), Sums::of_bytes(known, &bytes).unwrap_or_default());
            prop_assert_eq!(KeptSums::parse(kept.to_string().as_bytes()), Some(kept));
        }

        #[test]
        fn any_bytes_are_a_line_or_none(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = KeptSums::parse(&line);
        }
    }
}
