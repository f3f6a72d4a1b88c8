//! Damaged texts of an operator: config files, known hosts, keys and locations are read or refused,
//! and nothing panics.
//!
//! The seeds and the parsers are those of the fuzz target `settings`, which takes minutes to build;
//! this plays a hundred thousand inputs in each run of the tests. Drawn from fixed seeds.

use std::fs;
use std::path::Path;

#[path = "../fuzz/parsers/settings.rs"]
mod settings;

/// Words that parsers stumble over.
const WORDS: &[&[u8]] = &[
    b"\"",
    b"'''",
    b"\"\"\"",
    b"[[root]]",
    b"[[client]]",
    b"[limits]",
    b"=",
    b"\n",
    b"\0",
    b"\xff",
    b"\xe2\x80\xae",
    b"\\",
    b"99999999999999999999",
    b"-1",
    b"9223372036854775807",
    b"1e400",
    b"16EiB",
    b"0",
    b"lhk1:",
    b"[::1]:",
    b":",
    b"@",
    b"/",
    b"..",
    b"{}",
    b"[]",
    b"true",
    b"#",
    b"\r\n",
    b"\xef\xbb\xbf",
    b"lh://",
    b"1GiB/s",
    b"0.0.0.0:65536",
];

struct Dice(u64);

impl Dice {
    /// A number below `bound` (xorshift64*).
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound.max(1)
    }

    /// A copy of `seed` with some bytes changed, left out, doubled or taken from `other`; its first
    /// byte, which names the parser, stays.
    fn damage(&mut self, seed: &[u8], other: &[u8]) -> Vec<u8> {
        let mut bytes = seed.to_vec();
        for _ in 0..1 + self.below(4) {
            let at = 1 + self.below(bytes.len());
            let at = at.min(bytes.len());
            let end = (at + self.below(40)).min(bytes.len());
            match self.below(6) {
                0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                1 => drop(bytes.drain(at..end)),
                2 => {
                    let part = bytes[at..end].to_vec();
                    drop(bytes.splice(at..at, part));
                }
                3 => bytes.truncate(at),
                4 => {
                    let from = self.below(other.len());
                    let to = (from + self.below(60)).min(other.len());
                    drop(bytes.splice(at..at, other[from..to].iter().copied()));
                }
                _ => drop(bytes.splice(at..at, WORDS[self.below(WORDS.len())].iter().copied())),
            }
        }
        bytes
    }
}

#[test]
fn damaged_settings_are_read_or_refused() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/settings");
    let mut files: Vec<_> = fs::read_dir(&dir).expect("seeds").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    let seeds: Vec<_> = files.iter().map(|file| fs::read(file).expect("a seed")).collect();
    assert!(seeds.len() >= 6, "{files:?}");
    let scratch = tempfile::tempdir().expect("a directory");
    let file = scratch.path().join("file");
    let mut dice = Dice(0x6c6f_6e67_6861_756c);
    for _ in 0..INPUTS {
        let (seed, other) = (&seeds[dice.below(seeds.len())], &seeds[dice.below(seeds.len())]);
        let bytes = dice.damage(seed, other);
        let parsed = std::panic::catch_unwind(|| settings::parse(&bytes, &file));
        assert!(parsed.is_ok(), "{:?}", String::from_utf8_lossy(&bytes));
    }
}

/// The number of inputs: two seconds.
const INPUTS: usize = 100_000;
