//! The messages about metadata beyond modes and times: the extras of a page, the files of it that
//! have several names, what was lost of them, and the further checksums of files.
//!
//! Plain data. Which of it a session carries is agreed by the bits of its hello and welcome.

use serde::{Deserialize, Serialize};

use longhaul_core::{Algorithm, Algorithms, Extras, FileId, Preserve, SeveralNames};

/// The extras of the entries of the page that follows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageExtras {
    /// Entries that have extras, in order.
    pub entries: Vec<(FileId, Extras)>,
}

impl PageExtras {
    /// Their cost: bytes that they take here.
    pub fn cost(&self) -> usize {
        self.entries.iter().map(|(_, extras)| extras.cost()).sum()
    }
}

/// The files of the page that follows that have several names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageNames {
    /// Entries of files that have several names, in order.
    pub entries: Vec<(FileId, SeveralNames)>,
}

impl PageNames {
    /// Their cost: bytes that they take here.
    pub fn cost(&self) -> usize {
        self.entries.iter().map(|(_, names)| names.cost()).sum()
    }
}

/// The further checksums of a file whose outcome follows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettledSums {
    /// The file.
    pub file: FileId,
    /// The checksums that were agreed on, one behind the other, in the order of their numbers.
    pub sums: Vec<u8>,
}

/// Bit of [`Hello::caps`](super::Hello::caps): the receiver is to compute the Adler-32 of each file
/// that it commits, to keep it with the file, and to say it before the outcome. Bit of
/// [`Welcome::caps`](super::Welcome::caps): it does so, or knows what the other side does.
pub const CAP_ADLER32: u64 = 1 << 16;
/// The same for CRC-32C.
pub const CAP_CRC32C: u64 = 1 << 17;
/// The same for MD5.
pub const CAP_MD5: u64 = 1 << 19;
/// The same for SHA-256.
pub const CAP_SHA256: u64 = 1 << 20;

/// The bits of the checksums that two sides may agree on.
const SUMS: [(Algorithm, u64); 4] = [
    (Algorithm::Adler32, CAP_ADLER32),
    (Algorithm::Crc32c, CAP_CRC32C),
    (Algorithm::Md5, CAP_MD5),
    (Algorithm::Sha256, CAP_SHA256),
];

fn bits_of_sums(sums: Algorithms) -> u64 {
    SUMS.iter().filter(|(algorithm, _)| sums.has(*algorithm)).map(|(_, bit)| bit).sum()
}

fn sums_of_bits(caps: u64) -> Algorithms {
    let said = SUMS.iter().filter(|(_, bit)| caps & bit != 0);
    said.fold(Algorithms::NONE, |sums, (algorithm, _)| sums.with(*algorithm))
}

/// Bit of [`Hello::caps`](super::Hello::caps): extended attributes are to be carried over.
pub const CAP_WANTS_XATTRS: u64 = 2;

/// Bit of [`Hello::caps`](super::Hello::caps): owners and groups are to be carried over.
pub const CAP_WANTS_OWNER: u64 = 4;
/// Bit of [`Hello::caps`](super::Hello::caps): access lists are to be carried over.
pub const CAP_WANTS_ACLS: u64 = 8;
/// Bit of [`Hello::caps`](super::Hello::caps): names of one file are to become names of one file.
pub const CAP_WANTS_HARDLINKS: u64 = 16;

/// Bit of [`Welcome::caps`](super::Welcome::caps): extended attributes are, as was asked for.
pub const CAP_CARRIES_XATTRS: u64 = 16;
/// Bit of [`Welcome::caps`](super::Welcome::caps): owners and groups are, as was asked for.
pub const CAP_CARRIES_OWNER: u64 = 32;
/// Bit of [`Welcome::caps`](super::Welcome::caps): access lists are, as was asked for.
pub const CAP_CARRIES_ACLS: u64 = 64;
/// Bit of [`Welcome::caps`](super::Welcome::caps): names of one file become such, as was asked for.
pub const CAP_CARRIES_HARDLINKS: u64 = 128;

/// The bits of one kind of metadata that both sides must know.
struct KindBits {
    /// The kind.
    kind: fn(&mut Preserve) -> &mut bool,
    /// The bit of a hello that asks for it.
    wants: u64,
    /// The bit of a welcome that agrees to it.
    carries: u64,
}

/// All of these kinds.
const EXTRAS: [KindBits; 4] = [
    KindBits { kind: |preserve| &mut preserve.xattrs, wants: CAP_WANTS_XATTRS, carries: CAP_CARRIES_XATTRS },
    KindBits { kind: |preserve| &mut preserve.owner, wants: CAP_WANTS_OWNER, carries: CAP_CARRIES_OWNER },
    KindBits { kind: |preserve| &mut preserve.acls, wants: CAP_WANTS_ACLS, carries: CAP_CARRIES_ACLS },
    KindBits { kind: |preserve| &mut preserve.hardlinks, wants: CAP_WANTS_HARDLINKS, carries: CAP_CARRIES_HARDLINKS },
];

/// The bits of a hello that ask for the extras and checksums in `preserve`.
pub fn extras_wanted(mut preserve: Preserve) -> u64 {
    let kinds: u64 = EXTRAS.iter().filter(|bits| *(bits.kind)(&mut preserve)).map(|bits| bits.wants).sum();
    kinds | bits_of_sums(preserve.sums)
}

/// The bits of a welcome that agree to the extras and checksums in `preserve`.
pub fn extras_carried(mut preserve: Preserve) -> u64 {
    let kinds: u64 = EXTRAS.iter().filter(|bits| *(bits.kind)(&mut preserve)).map(|bits| bits.carries).sum();
    kinds | bits_of_sums(preserve.sums)
}

/// `preserve` with the extras and checksums that the bits of a hello ask for, and no others.
pub fn with_extras_of_hello(preserve: Preserve, caps: u64) -> Preserve {
    let mut agreed = Preserve { sums: sums_of_bits(caps), ..preserve };
    for bits in EXTRAS {
        *(bits.kind)(&mut agreed) = caps & bits.wants != 0;
    }
    agreed
}

/// The extras and checksums in `preserve` that the bits of a welcome do not agree to.
pub fn extras_refused(preserve: Preserve, caps: u64) -> Preserve {
    let mut refused = Preserve { sums: preserve.sums.without(sums_of_bits(caps)), ..preserve };
    for bits in EXTRAS {
        *(bits.kind)(&mut refused) &= caps & bits.carries == 0;
    }
    refused
}

/// The form of [`Preserve`] within a request: the four kinds that every build knows.
pub(super) mod without_extras {
    use longhaul_core::Preserve;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes it.
    pub(crate) fn serialize<S: Serializer>(preserve: &Preserve, serializer: S) -> Result<S::Ok, S::Error> {
        let Preserve { mode, times, links, sparse, .. } = *preserve;
        (mode, times, links, sparse).serialize(serializer)
    }

    /// Reads it.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Preserve, D::Error> {
        let (mode, times, links, sparse) = Deserialize::deserialize(deserializer)?;
        Ok(Preserve { mode, times, links, sparse, ..Preserve::NOTHING })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_hello_asks_for_is_what_a_welcome_agrees_to_and_nothing_else() {
        let all = SUMS.iter().fold(Algorithms::NONE, |sums, (algorithm, _)| sums.with(*algorithm));
        let one = Algorithms::NONE.with(Algorithm::Md5);
        let summing = [all, one].map(|sums| Preserve { sums, ..Preserve::EVERYTHING });
        for wanted in [Preserve::default(), Preserve::EVERYTHING].into_iter().chain(summing) {
            let asked = extras_wanted(wanted);
            let heard = with_extras_of_hello(Preserve::EVERYTHING.without_extras(), asked);
            assert_eq!((heard.links, heard.sums), (true, wanted.sums));
            assert_eq!(extras_wanted(heard), asked);
            let caps = extras_carried(heard) | super::super::CAP_TAKES_STREAMS;
            assert!(!extras_refused(wanted, caps).may_lose());
            // A build that knows none of them says nothing of them.
            assert_eq!(extras_wanted(extras_refused(wanted, super::super::CAP_TAKES_STREAMS)), asked);
        }
    }
}
