//! An entry of a catalogue of checksums as its bytes, and the mark by which a file is known again.
//!
//! In: the system's facts about a file, or the bytes of a slot. Out: the bytes of an entry and its
//! place, or the entry that a slot has. Anything may stand in a slot. Reads and writes no
//! catalogue.

use std::os::fd::AsFd;

use longhaul_core::Mtime;
use longhaul_core::checksum::{Algorithms, FileSums, Sums};
use longhaul_core::kept_sums::KeptSums;
use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, statx};
use rustix::io::Errno;

use crate::stat::identity_of_statx;

/// A file and its version, as far as they can be known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileMark {
    /// Device (`st_dev`).
    pub(crate) dev: u64,
    /// Inode number.
    pub(crate) ino: u64,
    /// Length in bytes.
    pub(crate) len: u64,
    /// Last change of the content.
    pub(crate) mtime: Mtime,
    /// The times that nobody can set: see [`stamp_of`].
    stamp: Stamp,
}

type Stamp = [u8; STAMP_BYTES];

/// Checksums of a file, and its mark when they were kept.
///
/// # The bytes of a slot
///
/// Numbers are little-endian.
///
/// | bytes | what |
/// |---|---|
/// | 0 to 7 | device |
/// | 8 to 15 | inode |
/// | 16 to 23 | length |
/// | 24 to 35 | last change of the content: seconds (signed), nanoseconds |
/// | 36 | 1 |
/// | 37 | the bits of the algorithms |
/// | 38, 39 | 0 |
/// | 40 to 51 | the stamp: 12 bytes of the BLAKE3 of the last change of any kind and the birth |
/// | 52 to 59 | the second since 1970 in which it was kept |
/// | 60 to 115 | the checksums, in the order of their bits; zeros behind them |
/// | 116 to 127 | the first 12 bytes of the BLAKE3 of the bytes before |
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CatalogueEntry {
    /// The file.
    pub(super) mark: FileMark,
    /// Its checksums.
    pub(super) sums: Sums,
    /// The second since 1970 in which they were kept.
    pub(super) kept_at: u64,
}

impl FileMark {
    /// The mark of an open file.
    pub(crate) fn of(file: impl AsFd) -> Result<FileMark, Errno> {
        FileMark::looked_up(file, b"", AtFlags::EMPTY_PATH)
    }

    /// The mark of a file under this name, as its server has it by now. A link is not followed.
    pub(crate) fn at(dir: impl AsFd, name: &[u8]) -> Result<FileMark, Errno> {
        FileMark::looked_up(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::STATX_FORCE_SYNC)
    }

    fn looked_up(dir: impl AsFd, name: &[u8], flags: AtFlags) -> Result<FileMark, Errno> {
        let stat = statx(dir, name, flags, StatxFlags::BASIC_STATS | StatxFlags::BTIME)?;
        match FileType::from_raw_mode(stat.stx_mode.into()) {
            FileType::RegularFile => Ok(FileMark::of_statx(&stat)),
            _ => Err(Errno::INVAL),
        }
    }

    fn of_statx(stat: &Statx) -> FileMark {
        let identity = identity_of_statx(stat);
        let born = Mtime::said(stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec);
        let has_birth = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
        let stamp = stamp_of(identity.ctime, has_birth.then_some(born));
        FileMark { dev: identity.dev, ino: identity.ino, len: identity.len, mtime: identity.mtime, stamp }
    }

    /// Whether it is of this inode.
    pub(super) fn is_of_inode(&self, other: &FileMark) -> bool {
        (self.dev, self.ino) == (other.dev, other.ino)
    }
}

impl CatalogueEntry {
    /// Its bytes. `None` if the checksums are more than a slot has room for.
    pub(super) fn slot(&self) -> Option<[u8; SLOT_BYTES]> {
        let FileMark { dev, ino, len, mtime, stamp } = self.mark;
        let mut bytes = Vec::with_capacity(SLOT_BYTES);
        [dev, ino, len].iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        bytes.extend(mtime.secs.to_le_bytes());
        bytes.extend(mtime.nanos.to_le_bytes());
        bytes.extend([USED, self.sums.known().bits(), 0, 0]);
        bytes.extend(stamp);
        bytes.extend(self.kept_at.to_le_bytes());
        bytes.extend(self.sums.bytes());
        if bytes.len() > DIGEST_AT {
            return None;
        }
        bytes.resize(DIGEST_AT, 0);
        let digest = digest_of(&bytes);
        bytes.extend(digest);
        bytes.try_into().ok()
    }

    /// The entry in a slot. `None` if it is empty, or not whole.
    pub(super) fn parse(slot: &[u8]) -> Option<CatalogueEntry> {
        let (said, digest) = slot.split_at_checked(DIGEST_AT)?;
        // Empty ones are the most.
        if said.get(USED_AT) != Some(&USED) || digest != digest_of(said) {
            return None;
        }
        let mut rest = said;
        let (dev, ino, len) = (number(&mut rest)?, number(&mut rest)?, number(&mut rest)?);
        let mtime = time(&mut rest)?;
        let &[USED, bits, 0, 0] = taken::<4>(&mut rest)? else { return None };
        let (stamp, kept_at) = (*taken(&mut rest)?, number(&mut rest)?);
        let known = Algorithms::of_bits(bits)?;
        let sums = Sums::of_bytes(known, rest.get(..known.bytes())?)?;
        Some(CatalogueEntry { mark: FileMark { dev, ino, len, mtime, stamp }, sums, kept_at })
    }

    /// The same as they would be kept with the file.
    pub(super) fn kept(self) -> KeptSums {
        KeptSums { file: FileSums { len: self.mark.len, sums: self.sums }, mtime: self.mark.mtime }
    }
}

/// The bucket of a file's entry, of so many.
pub(super) fn page_of(mark: &FileMark, buckets: u64) -> u64 {
    let mut inode = [0; 16];
    inode[..8].copy_from_slice(&mark.dev.to_le_bytes());
    inode[8..].copy_from_slice(&mark.ino.to_le_bytes());
    let hash = blake3::hash(&inode);
    hash.as_bytes().first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes) % buckets)
}

/// The slot of a bucket to which an entry goes: that of the same inode, else an empty one, else the
/// one that was kept first. One that was kept in a time to come, by a clock that was wrong, counts
/// as the first.
pub(super) fn place_in(page: &[u8], entry: &CatalogueEntry) -> usize {
    let slots: Vec<_> = page.chunks_exact(SLOT_BYTES).map(CatalogueEntry::parse).collect();
    let is_same = |slot: &Option<CatalogueEntry>| slot.as_ref().is_some_and(|slot| slot.mark.is_of_inode(&entry.mark));
    let age = |slot: &Option<CatalogueEntry>| {
        slot.as_ref().map_or(0, |slot| if slot.kept_at > entry.kept_at { 0 } else { slot.kept_at })
    };
    let same = slots.iter().position(is_same).or_else(|| slots.iter().position(Option::is_none));
    same.or_else(|| (0..slots.len()).min_by_key(|at| age(&slots[*at]))).unwrap_or(0)
}

/// A digest of the times of an inode that nobody can set: the last change of its content, metadata
/// or names, and its birth, where the file system tells it. The change shows that a file was
/// written to, also where its length and time are those of before; the birth shows that it is
/// another file.
fn stamp_of(changed: Mtime, born: Option<Mtime>) -> Stamp {
    let mut hasher = blake3::Hasher::new();
    for time in [Some(changed), born].into_iter().flatten() {
        hasher.update(&time.secs.to_le_bytes()).update(&time.nanos.to_le_bytes());
    }
    hasher.finalize().as_bytes().first_chunk().copied().unwrap_or_default()
}

fn digest_of(said: &[u8]) -> [u8; DIGEST_BYTES] {
    blake3::hash(said).as_bytes().first_chunk().copied().unwrap_or_default()
}

fn taken<'b, const N: usize>(rest: &mut &'b [u8]) -> Option<&'b [u8; N]> {
    let (first, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(first)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    taken(rest).map(|bytes| u64::from_le_bytes(*bytes))
}

fn time(rest: &mut &[u8]) -> Option<Mtime> {
    let secs = i64::from_le_bytes(*taken(rest)?);
    let nanos = u32::from_le_bytes(*taken(rest)?);
    (nanos < 1_000_000_000).then(|| Mtime::said(secs, nanos))
}

/// Bytes of a slot: a part of a sector, so that no crash writes half of one on most disks.
pub(super) const SLOT_BYTES: usize = 128;
const DIGEST_BYTES: usize = 12;
const DIGEST_AT: usize = SLOT_BYTES - DIGEST_BYTES;
const STAMP_BYTES: usize = 12;
const USED_AT: usize = 36;
/// The byte there of a slot that has an entry.
const USED: u8 = 1;

#[cfg(test)]
mod tests {
    use longhaul_core::Algorithm;
    use proptest::prelude::*;

    use super::*;

    fn entry(ino: u64, kept_at: u64) -> CatalogueEntry {
        let time = Mtime::said(ino as i64, 7);
        let sums = Sums::one(Algorithm::Adler32, &[1, 2, 3, 4]).expect("a checksum");
        let mark = FileMark { dev: 3, ino, len: 9, mtime: time, stamp: stamp_of(time, Some(time)) };
        CatalogueEntry { mark, sums, kept_at }
    }

    fn page(entries: impl IntoIterator<Item = CatalogueEntry>) -> Vec<u8> {
        let mut page: Vec<u8> = entries.into_iter().flat_map(|entry| entry.slot().expect("room")).collect();
        page.resize(4096, 0);
        page
    }

    #[test]
    fn all_further_checksums_have_room_and_those_of_b3_beside_them_have_none() {
        let all = Algorithms::NONE.with(Algorithm::Adler32).with(Algorithm::Crc32c);
        let all = all.with(Algorithm::Md5).with(Algorithm::Sha256);
        let with = |known: Algorithms| {
            let sums = Sums::of_bytes(known, &vec![5; known.bytes()]).expect("checksums");
            CatalogueEntry { sums, ..entry(1, 1) }
        };
        let slot = with(all).slot().expect("room");
        assert_eq!(CatalogueEntry::parse(&slot), Some(with(all)));
        assert_eq!(with(all.with(Algorithm::Blake3)).slot(), None);
    }

    #[test]
    fn a_stamp_holds_for_one_change_and_one_birth() {
        let [one, other] = [7, 8].map(|nanos| Mtime::said(1, nanos));
        let stamps = [(one, Some(one)), (one, Some(other)), (other, Some(one)), (one, None)];
        let all: std::collections::HashSet<_> = stamps.map(|(changed, born)| stamp_of(changed, born)).into();
        assert_eq!(all.len(), 4);
    }

    #[test]
    fn a_slot_of_which_any_byte_is_another_is_empty() {
        let slot = entry(5, 8).slot().expect("room");
        for at in 0..SLOT_BYTES {
            let mut torn = slot;
            torn[at] ^= 0x10;
            assert_eq!(CatalogueEntry::parse(&torn), None, "{at}");
        }
        assert_eq!(CatalogueEntry::parse(&[0; SLOT_BYTES]), None);
    }

    #[test]
    fn an_entry_takes_the_place_of_its_inode_then_an_empty_one_then_the_oldest() {
        let full = |first: u64| page((0..32).map(|at| entry(at, if at == first { 10 } else { 20 + at })));
        assert_eq!(place_in(&full(7), &entry(30, 99)), 30, "the same inode");
        let mut holed = full(7);
        holed[9 * SLOT_BYTES] ^= 1;
        assert_eq!(place_in(&holed, &entry(99, 99)), 9, "one that is torn");
        assert_eq!(place_in(&full(7), &entry(99, 99)), 7, "the oldest");
        assert_eq!(place_in(&full(7), &entry(99, 50)), 31, "one of a time to come");
        assert_eq!(place_in(&page([]), &entry(99, 99)), 0);
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_entry_or_none(slot in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = CatalogueEntry::parse(&slot);
        }

        #[test]
        fn an_entry_is_read_back(inode: (u64, u64), len: u64, secs: i64, nanos in 0..1_000_000_000_u32, stamp: Stamp, kept_at: u64) {
            let mark = FileMark { dev: inode.0, ino: inode.1, len, mtime: Mtime::said(secs, nanos), stamp };
            let entry = CatalogueEntry { mark, kept_at, ..entry(1, 1) };
            prop_assert_eq!(CatalogueEntry::parse(&entry.slot().expect("room")), Some(entry));
        }
    }
}
