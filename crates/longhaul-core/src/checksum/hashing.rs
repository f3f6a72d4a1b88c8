//! Checksums of the bytes of a file in their order, several at once.
//!
//! In: bytes. Out: the checksums of all of them. Knows no files.

use std::fmt;

use blake3::Hasher;
use md5::Md5;
use sha2::{Digest, Sha256};

use super::{Algorithm, Algorithms, Sums};

/// Checksums being computed, over the bytes of a file in order.
pub struct Hashing {
    wanted: Algorithms,
    bytes: u64,
    blake3: Option<Box<Hasher>>,
    sha256: Option<Sha256>,
    md5: Option<Md5>,
    adler32: Option<simd_adler32::Adler32>,
    crc32c: Option<u32>,
}

/// The algorithms.
impl fmt::Debug for Hashing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hashing({})", self.wanted)
    }
}

impl Hashing {
    /// Begins those of `wanted` that are computed.
    pub fn new(wanted: Algorithms) -> Hashing {
        Hashing {
            wanted,
            bytes: 0,
            blake3: wanted.has(Algorithm::Blake3).then(Default::default),
            sha256: wanted.has(Algorithm::Sha256).then(Sha256::new),
            md5: wanted.has(Algorithm::Md5).then(Md5::new),
            adler32: wanted.has(Algorithm::Adler32).then(simd_adler32::Adler32::new),
            crc32c: wanted.has(Algorithm::Crc32c).then_some(0),
        }
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        if let Some(blake3) = &mut self.blake3 {
            blake3.update(bytes);
        }
        if let Some(sha256) = &mut self.sha256 {
            sha256.update(bytes);
        }
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
        if let Some(adler32) = &mut self.adler32 {
            adler32.write(bytes);
        }
        if let Some(crc32c) = &mut self.crc32c {
            *crc32c = crc32c::crc32c_append(*crc32c, bytes);
        }
    }

    /// The number of bytes that it took.
    pub fn hashed(&self) -> u64 {
        self.bytes
    }

    /// The checksums of all bytes so far.
    pub fn finish(&self) -> Sums {
        let mut sums = Sums::default();
        for algorithm in self.wanted.iter() {
            let bytes = match algorithm {
                Algorithm::Blake3 => self.blake3.as_ref().map(|hasher| hasher.finalize().as_bytes().to_vec()),
                Algorithm::Sha256 => self.sha256.as_ref().map(|sha256| sha256.clone().finalize().to_vec()),
                Algorithm::Md5 => self.md5.as_ref().map(|md5| md5.clone().finalize().to_vec()),
                Algorithm::Adler32 => self.adler32.as_ref().map(|adler| adler.clone().finish().to_be_bytes().to_vec()),
                Algorithm::Crc32c => self.crc32c.map(|crc| crc.to_be_bytes().to_vec()),
                Algorithm::Sha1 | Algorithm::Sha512 => None,
            };
            if let Some(bytes) = bytes {
                sums.known = sums.known.with(algorithm);
                sums.bytes.extend(bytes);
            }
        }
        sums
    }
}
