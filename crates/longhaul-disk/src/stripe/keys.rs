//! The key of a set, by which its striped files are believed: a peer or a user who does not know it
//! can make no file that passes for one of them.
//!
//! In: the set's id and its secret. Out: MACs. Knows no file.

use longhaul_core::digest::Hash32;

use crate::set_id::SetId;

/// The key of a set.
#[derive(Clone)]
pub(crate) struct SetKey {
    set: SetId,
    secret: [u8; SECRET_BYTES],
}

/// The part of a striped file that a MAC is for: one never passes for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sealed {
    /// The header of a stripe file.
    Header,
    /// A block of records in a stripe file.
    Block,
    /// The footer of a body.
    Footer,
}

impl SetKey {
    /// The key of a set with this secret.
    pub(crate) fn new(set: SetId, secret: [u8; SECRET_BYTES]) -> SetKey {
        SetKey { set, secret }
    }

    /// The set.
    pub(crate) fn set(&self) -> SetId {
        self.set
    }

    /// The MAC of some bytes: BLAKE3 under a key that is derived from the secret, the set and the
    /// part that they are.
    pub(crate) fn mac(&self, sealed: Sealed, parts: &[&[u8]]) -> Hash32 {
        let context = match sealed {
            Sealed::Header => "longhaul 2026-11 striped file: header",
            Sealed::Block => "longhaul 2026-11 striped file: block",
            Sealed::Footer => "longhaul 2026-11 striped file: footer",
        };
        let mut derived = blake3::Hasher::new_derive_key(context);
        derived.update(&self.secret).update(&self.set.0);
        let mut keyed = blake3::Hasher::new_keyed(derived.finalize().as_bytes());
        parts.iter().for_each(|part| _ = keyed.update(part));
        *keyed.finalize().as_bytes()
    }

    /// Whether a MAC is the one of some bytes. It takes as long whatever the answer is.
    pub(crate) fn proves(&self, sealed: Sealed, parts: &[&[u8]], mac: &[u8]) -> bool {
        let Ok(mac) = Hash32::try_from(mac) else { return false };
        blake3::Hash::from_bytes(mac) == blake3::Hash::from_bytes(self.mac(sealed, parts))
    }
}

/// It does not show the secret.
impl std::fmt::Debug for SetKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SetKey({})", self.set)
    }
}

/// Bytes of a set's secret.
pub(crate) const SECRET_BYTES: usize = 32;
