//! The public Ed25519 key that names a peer, and its text and DER forms.
//!
//! Takes a text from a configuration or bytes from TLS; gives keys to the whole crate and its
//! users, and short names to logs. Knows no files and no errors but its own.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::digest;
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde::{Deserialize, Serialize};

/// The public half of a peer's Ed25519 key. Its text is `lhk1:` and 43 characters of standard
/// base64, not padded; a padded text is read as well.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Makes a key from its 32 bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> PublicKey {
        PublicKey(bytes)
    }

    /// The 32 bytes of the key.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// A shorter name for logs and for principals: 32 hex digits, the first half of the key's
    /// SHA-256.
    pub fn fingerprint(&self) -> String {
        let digest = digest::digest(&digest::SHA256, &self.0);
        digest.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether a signature of a message was made with the private half.
    pub fn has_signed(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0).verify(message, signature).is_ok()
    }

    /// The key as TLS shows it: a SubjectPublicKeyInfo in DER (RFC 8410).
    pub(crate) fn to_spki(self) -> Vec<u8> {
        [SPKI_PREFIX, &self.0].concat()
    }

    /// Reads the key that TLS showed; `None` if it is no Ed25519 key.
    pub(crate) fn from_spki(spki: &[u8]) -> Option<PublicKey> {
        spki.strip_prefix(SPKI_PREFIX)?.try_into().ok().map(PublicKey)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", BASE64.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = BadKey;

    fn from_str(text: &str) -> Result<PublicKey, BadKey> {
        let bad = |why| BadKey { text: text.to_owned(), why };
        let digits = text.strip_prefix(PREFIX).ok_or_else(|| bad("it does not begin with lhk1:"))?;
        let bytes = BASE64.decode(digits).map_err(|_| bad("it is not base64"))?;
        bytes.try_into().map(PublicKey).map_err(|_| bad("it has not 32 bytes"))
    }
}

/// The text is not a public key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a longhaul key: {why}")]
pub struct BadKey {
    /// The text that was given.
    pub text: String,
    /// The reason why it is no key.
    pub why: &'static str,
}

const PREFIX: &str = "lhk1:";
/// DER of `SEQUENCE { SEQUENCE { OID 1.3.101.112 }, BIT STRING of 32 bytes }`, before the key
/// itself.
const SPKI_PREFIX: &[u8] = &[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_encode_padding(false).with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::Identity;

    #[test]
    fn a_key_survives_its_text_with_or_without_padding() {
        let key = Identity::generate().unwrap().public();
        let text = key.to_string();
        assert!(text.starts_with("lhk1:") && text.len() == 5 + 43, "{text}");
        assert_eq!(text.parse::<PublicKey>().unwrap(), key);
        assert_eq!(format!("{text}=").parse::<PublicKey>().unwrap(), key);
        assert_eq!(PublicKey::from_spki(&key.to_spki()), Some(key));
        assert_eq!(key.fingerprint().len(), 32);
    }

    #[test]
    fn texts_that_are_no_keys_are_refused() {
        let key = Identity::generate().unwrap().public().to_string();
        for bad in ["", "lhk1:", "lhk2:AAAA", &key[5..], &key[..40], &format!("{key}AAAA"), "lhk1:not base64 at all"] {
            assert!(bad.parse::<PublicKey>().is_err_and(|error| error.text == bad), "{bad:?}");
        }
    }
}
