//! Checksums of files: which there are, how they are computed, combined, written and compared.
//!
//! In: bytes, or digests of other programs. Out: [`Sums`], the checksums that are known of a file.
//! Knows no files.

mod hashing;
mod parts;

use std::fmt;

use serde::{Deserialize, Serialize};

pub use hashing::Hashing;
pub use parts::{ChunkSums, PartSums};

/// A kind of checksum. Its number is its bit in the bytes of a segment; numbers are only ever
/// added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Algorithm {
    /// BLAKE3, 32 bytes.
    Blake3 = 0,
    /// SHA-256, 32 bytes.
    Sha256 = 1,
    /// MD5, 16 bytes.
    Md5 = 2,
    /// Adler-32, 4 bytes, big endian.
    Adler32 = 3,
    /// CRC-32C (Castagnoli), 4 bytes, big endian.
    Crc32c = 4,
    /// SHA-1, 20 bytes.
    Sha1 = 5,
    /// SHA-512, 64 bytes.
    Sha512 = 6,
}

impl Algorithm {
    /// All of them, in the order of their numbers.
    pub const ALL: [Algorithm; 7] = [
        Algorithm::Blake3,
        Algorithm::Sha256,
        Algorithm::Md5,
        Algorithm::Adler32,
        Algorithm::Crc32c,
        Algorithm::Sha1,
        Algorithm::Sha512,
    ];

    /// The name, as users write it.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::Blake3 => "b3",
            Algorithm::Sha256 => "sha256",
            Algorithm::Md5 => "md5",
            Algorithm::Adler32 => "adler32",
            Algorithm::Crc32c => "crc32c",
            Algorithm::Sha1 => "sha1",
            Algorithm::Sha512 => "sha512",
        }
    }

    /// The algorithm of a name. `None`: there is none.
    pub fn of_name(name: &str) -> Option<Algorithm> {
        Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
    }

    /// Bytes of a checksum.
    pub const fn bytes(self) -> usize {
        match self {
            Algorithm::Blake3 | Algorithm::Sha256 => 32,
            Algorithm::Md5 => 16,
            Algorithm::Adler32 | Algorithm::Crc32c => 4,
            Algorithm::Sha1 => 20,
            Algorithm::Sha512 => 64,
        }
    }

    /// Whether [`Hashing`] computes it. Others are only read from lists.
    pub const fn is_computed(self) -> bool {
        !matches!(self, Algorithm::Sha1 | Algorithm::Sha512)
    }

    /// Whether the checksum of a file follows from those of its parts, whatever their order.
    const fn combines(self) -> bool {
        matches!(self, Algorithm::Adler32 | Algorithm::Crc32c)
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of algorithms. It is written down as its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Algorithms(u8);

/// Bits of which one is no algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:#x} has a bit that is no checksum")]
pub struct NoAlgorithm(u8);

impl TryFrom<u8> for Algorithms {
    type Error = NoAlgorithm;
    fn try_from(bits: u8) -> Result<Algorithms, NoAlgorithm> {
        Algorithms::of_bits(bits).ok_or(NoAlgorithm(bits))
    }
}

impl From<Algorithms> for u8 {
    fn from(algorithms: Algorithms) -> u8 {
        algorithms.0
    }
}

impl Algorithms {
    /// No algorithm.
    pub const NONE: Algorithms = Algorithms(0);

    /// The set with these bits. `None` if one of them is no algorithm.
    pub fn of_bits(bits: u8) -> Option<Algorithms> {
        (bits < 1 << Algorithm::ALL.len()).then_some(Algorithms(bits))
    }

    /// Their bits.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it has this one.
    pub const fn has(self, algorithm: Algorithm) -> bool {
        self.0 & algorithm.bit() != 0
    }

    /// The set with one more.
    #[must_use]
    pub const fn with(self, algorithm: Algorithm) -> Algorithms {
        Algorithms(self.0 | algorithm.bit())
    }

    /// The algorithms that both have.
    #[must_use]
    pub const fn common(self, other: Algorithms) -> Algorithms {
        Algorithms(self.0 & other.0)
    }

    /// The algorithms that `other` has not.
    #[must_use]
    pub const fn without(self, other: Algorithms) -> Algorithms {
        Algorithms(self.0 & !other.0)
    }

    /// The ones that combine: chunks may come in any order ([`PartSums`]).
    #[must_use]
    pub fn combining(self) -> Algorithms {
        self.iter().filter(|algorithm| algorithm.combines()).fold(Algorithms::NONE, Algorithms::with)
    }

    /// The ones that need all bytes of a file in their order.
    #[must_use]
    pub fn in_order(self) -> Algorithms {
        self.without(self.combining())
    }

    /// The ones that are computed of each chunk as it comes: all that combine, but none if the file
    /// is read in order for another one.
    #[must_use]
    pub fn by_chunk(self) -> Algorithms {
        if self.in_order().is_empty() { self } else { Algorithms::NONE }
    }

    /// All of both.
    #[must_use]
    pub const fn and(self, other: Algorithms) -> Algorithms {
        Algorithms(self.0 | other.0)
    }

    /// The algorithms, in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = Algorithm> {
        Algorithm::ALL.into_iter().filter(move |algorithm| self.has(*algorithm))
    }

    /// Bytes of all checksums together.
    pub fn bytes(self) -> usize {
        self.iter().map(Algorithm::bytes).sum()
    }
}

/// Their names, with a blank between; `-` if there is none.
impl fmt::Display for Algorithms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("-");
        }
        for (at, algorithm) in self.iter().enumerate() {
            write!(f, "{}{}", if at > 0 { " " } else { "" }, algorithm.name())?;
        }
        Ok(())
    }
}

/// The checksums that are known of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "SumsRead")]
pub struct Sums {
    known: Algorithms,
    /// One behind the other, in the order of their numbers.
    bytes: Vec<u8>,
}

/// Checksums as they are read, before their length is checked.
#[derive(Deserialize)]
struct SumsRead {
    known: Algorithms,
    bytes: Vec<u8>,
}

/// Checksums that have not the length of their algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} bytes are not as many as the checksums have")]
struct WrongLength(usize);

impl TryFrom<SumsRead> for Sums {
    type Error = WrongLength;
    fn try_from(SumsRead { known, bytes }: SumsRead) -> Result<Sums, WrongLength> {
        Sums::of_bytes(known, &bytes).ok_or(WrongLength(bytes.len()))
    }
}

/// The checksums of a whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSums {
    /// Its length, in bytes.
    pub len: u64,
    /// Its checksums.
    pub sums: Sums,
}

/// The comparison of what is known of two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// Every checksum that both have is the same one.
    Same,
    /// One that both have differs.
    Differ(Algorithm),
    /// They have none in common.
    Nothing,
}

impl Sums {
    /// The checksums of these algorithms, from their bytes in order. `None` if the bytes are more
    /// or fewer than the algorithms have.
    pub fn of_bytes(known: Algorithms, bytes: &[u8]) -> Option<Sums> {
        (known.bytes() == bytes.len()).then(|| Sums { known, bytes: bytes.to_vec() })
    }

    /// One checksum alone. `None` if it has not the length of its algorithm.
    pub fn one(algorithm: Algorithm, bytes: &[u8]) -> Option<Sums> {
        Sums::of_bytes(Algorithms::default().with(algorithm), bytes)
    }

    /// The algorithms that are known.
    pub const fn known(&self) -> Algorithms {
        self.known
    }

    /// All bytes, in the order of the algorithms' numbers.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The checksum of an algorithm. `None`: it is not known.
    pub fn get(&self, algorithm: Algorithm) -> Option<&[u8]> {
        if !self.known.has(algorithm) {
            return None;
        }
        let before: usize = self.known.iter().take_while(|other| *other < algorithm).map(Algorithm::bytes).sum();
        self.bytes.get(before..before + algorithm.bytes())
    }

    /// The checksum of an algorithm in hex. `None`: it is not known.
    pub fn hex(&self, algorithm: Algorithm) -> Option<String> {
        self.get(algorithm).map(hex)
    }

    /// Compares with those of another file.
    pub fn compare(&self, other: &Sums) -> Agreement {
        let mut found = Agreement::Nothing;
        for algorithm in self.known.iter().filter(|algorithm| other.known.has(*algorithm)) {
            if self.get(algorithm) != other.get(algorithm) {
                return Agreement::Differ(algorithm);
            }
            found = Agreement::Same;
        }
        found
    }

    /// All that is known here or there.
    ///
    /// # Errors
    /// The algorithm of which both say something else.
    pub fn united(&self, other: &Sums) -> Result<Sums, Algorithm> {
        if let Agreement::Differ(algorithm) = self.compare(other) {
            return Err(algorithm);
        }
        let known = self.known.and(other.known);
        let one = |algorithm| self.get(algorithm).or_else(|| other.get(algorithm)).unwrap_or_default();
        Ok(Sums { known, bytes: known.iter().flat_map(one).copied().collect() })
    }
}

/// The Adler-32 of two stretches of bytes, one behind the other, from the checksum of each and the
/// length of the second.
pub fn adler32_combine(first: u32, second: u32, second_bytes: u64) -> u32 {
    let length = second_bytes % u64::from(ADLER_MODULUS);
    let (a1, b1) = (u64::from(first & 0xffff), u64::from(first >> 16));
    let (a2, b2) = (u64::from(second & 0xffff), u64::from(second >> 16));
    let modulus = u64::from(ADLER_MODULUS);
    // Each checksum begins with 1, so that one of the two ones is taken off.
    let a = (a1 + a2 + modulus - 1) % modulus;
    let b = (b1 + b2 + length * ((a1 + modulus - 1) % modulus)) % modulus;
    (b as u32) << 16 | a as u32
}

/// The CRC-32C of two stretches of bytes, one behind the other, from the checksum of each and the
/// length of the second.
pub fn crc32c_combine(first: u32, second: u32, second_bytes: u64) -> u32 {
    // The first stretch counts as if as many zeros followed it: its polynomial times x^(8 n). The
    // length is taken bit by bit, with the square of the factor for each.
    let (mut shifted, mut factor, mut left) = (first, CRC_BYTE, second_bytes);
    while left > 0 {
        if left & 1 == 1 {
            shifted = times(shifted, factor);
        }
        factor = times(factor, factor);
        left >>= 1;
    }
    shifted ^ second
}

/// The product of two polynomials over GF(2), modulo that of CRC-32C; the highest bit is x^0.
fn times(one: u32, mut other: u32) -> u32 {
    let (mut product, mut bit) = (0, 1 << 31);
    while bit > 0 {
        if one & bit != 0 {
            product ^= other;
        }
        other = other >> 1 ^ if other & 1 == 1 { CRC_POLYNOMIAL } else { 0 };
        bit >>= 1;
    }
    product
}

/// Hex of bytes, in lower case.
pub fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // A string takes everything.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of hex in either case. `None` if it is none.
pub fn unhex(text: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = text.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect()
}

/// The largest prime below 2^16.
const ADLER_MODULUS: u32 = 65_521;
/// The polynomial of CRC-32C, its bits in reverse.
const CRC_POLYNOMIAL: u32 = 0x82F6_3B78;
/// The polynomial x^8, its bits in reverse: the step of one byte.
const CRC_BYTE: u32 = 1 << 23;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all() -> Algorithms {
        Algorithm::ALL.into_iter().fold(Algorithms::default(), Algorithms::with)
    }

    #[test]
    fn checksums_are_those_of_other_programs() {
        let mut hashing = Hashing::new(all());
        hashing.update(b"1234");
        hashing.update(b"56789");
        let sums = hashing.finish();
        assert_eq!(sums.hex(Algorithm::Crc32c).as_deref(), Some("e3069283"));
        assert_eq!(sums.hex(Algorithm::Adler32).as_deref(), Some("091e01de"));
        assert_eq!(sums.hex(Algorithm::Md5).as_deref(), Some("25f9e794323b453885f5181f1b624d0b"));
        let sha256 = "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225";
        assert_eq!(sums.hex(Algorithm::Sha256).as_deref(), Some(sha256));
        assert_eq!(sums.hex(Algorithm::Blake3), Some(blake3::hash(b"123456789").to_hex().to_string()));
        assert_eq!(
            sums.known(),
            Algorithm::ALL.into_iter().filter(|one| one.is_computed()).fold(Algorithms::default(), Algorithms::with)
        );
    }

    #[test]
    fn every_algorithm_combines_or_needs_the_bytes_in_order() {
        let combining = Algorithms::NONE.with(Algorithm::Adler32).with(Algorithm::Crc32c);
        assert_eq!((all().combining(), all().in_order()), (combining, all().without(combining)));
        assert_eq!(combining.in_order(), Algorithms::NONE);
        assert_eq!((combining.by_chunk(), combining.with(Algorithm::Md5).by_chunk()), (combining, Algorithms::NONE));
    }

    #[test]
    fn what_two_lists_know_is_united_unless_they_contradict() {
        let one = Sums::one(Algorithm::Adler32, &[1; 4]).unwrap();
        let other = Sums::one(Algorithm::Blake3, &[2; 32]).unwrap();
        let both = one.united(&other).unwrap();
        assert_eq!(
            (both.get(Algorithm::Adler32), both.get(Algorithm::Blake3)),
            (Some(&[1; 4][..]), Some(&[2; 32][..]))
        );
        assert_eq!((one.compare(&other), one.compare(&both)), (Agreement::Nothing, Agreement::Same));
        let contrary = Sums::one(Algorithm::Adler32, &[3; 4]).unwrap();
        assert_eq!(both.united(&contrary), Err(Algorithm::Adler32));
    }

    proptest! {
        #[test]
        fn checksums_of_parts_combine_to_that_of_the_whole(
            first in proptest::collection::vec(any::<u8>(), 0..5000),
            second in proptest::collection::vec(any::<u8>(), 0..5000),
        ) {
            let whole = [first.as_slice(), &second].concat();
            let adler = |bytes: &[u8]| { let mut sum = simd_adler32::Adler32::new(); sum.write(bytes); sum.finish() };
            let length = second.len() as u64;
            prop_assert_eq!(adler32_combine(adler(&first), adler(&second), length), adler(&whole));
            let crc = crc32c::crc32c;
            prop_assert_eq!(crc32c_combine(crc(&first), crc(&second), length), crc(&whole));
        }

        #[test]
        fn hex_is_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..70)) {
            prop_assert_eq!(unhex(hex(&bytes).as_bytes()), Some(bytes.clone()));
            prop_assert_eq!(unhex(hex(&bytes).to_uppercase().as_bytes()), Some(bytes));
        }
    }
}
