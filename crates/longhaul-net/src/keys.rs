//! The private Ed25519 key that is this side's identity.
//!
//! Owns the identity's file. Takes its path from the settings; gives the key to `tls`. Must not
//! know which peers are trusted.

#![allow(
    clippy::disallowed_methods,
    reason = "the identity is this side's own file: no root holds it and no peer names it"
)]

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine as _;
use base64::engine::GeneralPurpose;
use rustls::crypto::aws_lc_rs::sign::any_eddsa_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use zeroize::Zeroizing;

use crate::error::NetError;
use crate::public_key::PublicKey;

/// This side's private key. Cloning is cheap; the key itself is never shown.
#[derive(Clone)]
pub struct Identity {
    pair: Arc<Ed25519KeyPair>,
    certified: Arc<CertifiedKey>,
    public: PublicKey,
}

impl Identity {
    /// Makes a new identity, in memory only.
    ///
    /// # Errors
    /// [`NetError::Crypto`] if the system has no randomness to give.
    pub fn generate() -> Result<Identity, NetError> {
        let failed = |_| NetError::Crypto { doing: "make an Ed25519 key" };
        let pair = Ed25519KeyPair::generate().map_err(failed)?;
        let der = pair.to_pkcs8v1().map_err(failed)?;
        Identity::from_pkcs8(der.as_ref()).ok_or(NetError::Crypto { doing: "use a new Ed25519 key" })
    }

    /// Reads the identity in `path`: PEM, PKCS #8, as `openssl genpkey -algorithm ed25519` writes
    /// it too.
    ///
    /// # Errors
    /// [`NetError::KeyFile`] if it cannot be read (the source tells a missing file),
    /// [`NetError::IdentityExposed`] if group or others may do anything with it,
    /// [`NetError::IdentityKind`] and [`NetError::IdentityFormat`] if it is something else.
    pub fn load(path: &Path) -> Result<Identity, NetError> {
        let failed = |source| NetError::KeyFile { path: path.to_owned(), doing: "read the identity", source };
        // Opening a pipe would wait for a writer.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(NetError::IdentityKind { path: path.to_owned() });
        }
        let file = File::open(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(NetError::IdentityExposed { path: path.to_owned(), mode });
        }
        // Nothing of it stays in memory that is given back; room for all of it, as a buffer that
        // grows leaves copies.
        let mut pem = Zeroizing::new(Vec::with_capacity(IDENTITY_BYTES_MAX as usize + 1));
        file.take(IDENTITY_BYTES_MAX).read_to_end(&mut pem).map_err(failed)?;
        PrivatePkcs8KeyDer::from_pem_slice(&pem)
            .ok()
            .map(Zeroizing::new)
            .and_then(|der| Identity::from_pkcs8(der.secret_pkcs8_der()))
            .ok_or_else(|| NetError::IdentityFormat { path: path.to_owned() })
    }

    /// Writes the identity to `path`, which must not exist, with mode 0600. Missing directories
    /// above are made with mode 0700.
    ///
    /// # Errors
    /// [`NetError::KeyFile`], with `AlreadyExists` in its source if there is a file.
    pub fn save_new(&self, path: &Path) -> Result<(), NetError> {
        let der = self.pair.to_pkcs8v1().map_err(|_| NetError::Crypto { doing: "encode the identity" })?;
        let text = Zeroizing::new(BASE64_PADDED.encode(der.as_ref()));
        let pem = Zeroizing::new([PEM_BEGIN, "\n", &text, "\n", PEM_END, "\n"].concat());
        write_new(path, pem.as_bytes()).map_err(|source| NetError::KeyFile {
            path: path.to_owned(),
            doing: "write the identity",
            source,
        })
    }

    /// The public half.
    pub const fn public(&self) -> PublicKey {
        self.public
    }

    /// The Ed25519 signature of a message. Whoever has messages signed begins each with words of
    /// their own, so that none can be taken for that of another use of the key; TLS begins its with
    /// 64 spaces.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes.copy_from_slice(self.pair.sign(message).as_ref());
        bytes
    }

    /// The key in the form that rustls takes.
    pub(crate) fn certified(&self) -> Arc<CertifiedKey> {
        self.certified.clone()
    }

    fn from_pkcs8(der: &[u8]) -> Option<Identity> {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).ok()?;
        let public = PublicKey::from_bytes(pair.public_key().as_ref().try_into().ok()?);
        let signing = any_eddsa_type(&PrivatePkcs8KeyDer::from(der)).ok()?;
        let certified = CertifiedKey::new(vec![CertificateDer::from(public.to_spki())], signing);
        Some(Identity { pair: Arc::new(pair), certified: Arc::new(certified), public })
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("public", &self.public).finish_non_exhaustive()
    }
}

/// Makes the directories that lead to `path`, for this user only.
pub(crate) fn make_parents(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => DirBuilder::new().recursive(true).mode(0o700).create(parent),
        _ => Ok(()),
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    make_parents(path)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    // A half-written key that stays would be refused by every later run.
    file.write_all(bytes).and_then(|()| file.sync_all()).inspect_err(|_| {
        let _ = fs::remove_file(path);
    })
}

const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_END: &str = "-----END PRIVATE KEY-----";
/// A PEM file of an Ed25519 key has about 120 bytes; comments may stand around it.
const IDENTITY_BYTES_MAX: u64 = 64 << 10;
const BASE64_PADDED: GeneralPurpose = base64::engine::general_purpose::STANDARD;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_its_file_and_is_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/dir/identity");
        let identity = Identity::generate().unwrap();
        identity.save_new(&path).unwrap();
        assert_eq!(Identity::load(&path).unwrap().public(), identity.public());
        let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        let again = Identity::generate().unwrap().save_new(&path).unwrap_err();
        assert!(
            matches!(&again, NetError::KeyFile { source, .. } if source.kind() == io::ErrorKind::AlreadyExists),
            "{again}"
        );
        assert_eq!(Identity::load(&path).unwrap().public(), identity.public());
    }

    #[test]
    fn a_signature_is_of_one_message_and_one_key() {
        let (identity, other) = (Identity::generate().unwrap(), Identity::generate().unwrap());
        let signature = identity.sign(b"a message");
        assert!(identity.public().has_signed(b"a message", &signature));
        assert!(!identity.public().has_signed(b"a messagf", &signature));
        assert!(!other.public().has_signed(b"a message", &signature));
        assert!(!PublicKey::from_bytes([0xff; 32]).has_signed(b"a message", &signature), "bytes that are no key");
    }

    #[test]
    fn an_identity_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity");
        Identity::generate().unwrap().save_new(&path).unwrap();
        for mode in [0o640, 0o604, 0o660, 0o601] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let refused = Identity::load(&path).unwrap_err();
            assert!(matches!(refused, NetError::IdentityExposed { mode: seen, .. } if seen == mode), "{refused}");
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).unwrap();
        assert!(Identity::load(&path).is_ok());
    }

    #[test]
    fn files_without_a_key_are_told_from_missing_ones() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("identity");
        let missing = Identity::load(&path).unwrap_err();
        assert!(matches!(&missing, NetError::KeyFile { source, .. } if source.kind() == io::ErrorKind::NotFound));
        for text in ["", "hello", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"] {
            let _ = fs::remove_file(&path);
            write_new(&path, text.as_bytes()).unwrap();
            assert!(matches!(Identity::load(&path), Err(NetError::IdentityFormat { .. })), "{text:?}");
        }
    }
}
