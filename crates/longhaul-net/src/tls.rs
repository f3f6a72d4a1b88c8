//! The one way in which longhaul uses TLS: version 1.3, raw public keys on both sides (RFC 7250),
//! no tickets, no early data.
//!
//! Owns the configurations of rustls, the check of the peer's key, and a server's limits of
//! greetings. Takes an [`Identity`] and a [`PeerCheck`]; gives configurations to `control`,
//! `accept` and `handshake`. Must not touch sockets.

use std::sync::Arc;
use std::time::Duration;

use longhaul_core::limits::HANDSHAKE_SECONDS_MAX;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::aws_lc_rs::{cipher_suite, default_provider, kx_group};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, CommonState, DigitallySignedStruct, DistinguishedName, OtherError,
    PeerIncompatible, ServerConfig, SignatureScheme,
};

use tokio::sync::Semaphore;

use crate::error::{KeyMismatch, NetError};
use crate::keys::Identity;
use crate::public_key::PublicKey;
use crate::seats::{Seats, Tally};
use crate::turns::Turns;

/// Which peer is accepted. In each case the peer must prove that it holds the key it shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerCheck {
    /// Only the holder of this key.
    Pinned(PublicKey),
    /// Anyone: the key is given to the caller, who decides (trust on first use, clients that a
    /// daemon may not know).
    Observe,
}

/// Limits of a server's effort for peers that it does not know yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GreetLimits {
    /// The time from the accepted connection to the known peer. Default: 10 s.
    pub deadline: Duration,
    /// Connections at a time that have not said yet what they are. At one more, the source that has
    /// most loses its oldest. Default: 2048, at least 1. Each costs a descriptor and a few KiB. A
    /// lower number makes it easier for a flood to push out the clients that share its address:
    /// they have `silent` / rate seconds to say something.
    pub silent: usize,
    /// Handshakes under way at a time over TCP, and a quarter as many over QUIC, bounded in the
    /// same manner. Default: 2048, at least 1. Each costs a descriptor and some 30 KiB over TCP.
    /// Clients that share an address with a flood have `handshakes` / rate seconds for theirs,
    /// which takes a round trip.
    pub handshakes: usize,
    /// Bytes that a safe lane must have said before it is given to the caller. Default: 0.
    pub opening_bytes: usize,
}

impl Default for GreetLimits {
    fn default() -> GreetLimits {
        let deadline = Duration::from_secs(HANDSHAKE_SECONDS_MAX);
        GreetLimits { deadline, silent: SILENT_MAX, handshakes: HANDSHAKES_MAX, opening_bytes: 0 }
    }
}

impl GreetLimits {
    /// The defaults for a process that may have this many descriptors (`None`: any number):
    /// strangers get no more than a quarter of them.
    #[must_use]
    pub fn within(descriptors: Option<u64>) -> GreetLimits {
        let descriptors = descriptors.and_then(|all| usize::try_from(all).ok()).unwrap_or(usize::MAX);
        let (silent, handshakes) = (SILENT_MAX.min(descriptors / 6), HANDSHAKES_MAX.min(descriptors / 12));
        GreetLimits { silent, handshakes, ..GreetLimits::default() }
    }

    /// The descriptors that greetings take at most.
    #[must_use]
    pub fn descriptors(&self) -> u64 {
        (self.silent + self.handshakes) as u64
    }
}

/// The keys, configurations and budgets of a server. Cloning is cheap, and clones share the budget
/// of connections being greeted.
#[derive(Clone, Debug)]
pub struct ServerTls {
    pub(crate) control: Arc<ServerConfig>,
    pub(crate) lane: Arc<ServerConfig>,
    pub(crate) deadline: Duration,
    pub(crate) opening_bytes: usize,
    /// Seats for connections over TCP that have not said yet what they are.
    pub(crate) silent: Seats,
    /// Seats for handshakes over TCP.
    pub(crate) handshakes: Seats,
    /// Seats for handshakes over QUIC of clients whose address was seen to answer. (Apart from TCP:
    /// neither can push the other out.)
    pub(crate) quic: Seats,
    /// Permits for handshakes over QUIC with addresses that may be anybody's. They take no seat
    /// from others, and others take none from them.
    pub(crate) unproven: Arc<Semaphore>,
    /// Turns at the processor for all of these handshakes.
    pub(crate) turns: Turns,
    /// Whether lanes keep what another process needs to go on with them.
    pub(crate) hands_over: bool,
}

impl ServerTls {
    /// Makes the configurations of a server with this identity.
    ///
    /// # Errors
    /// [`NetError::Crypto`] if the cryptographic library is not sound.
    pub fn new(identity: &Identity, limits: GreetLimits) -> Result<ServerTls, NetError> {
        Ok(ServerTls {
            control: server_config(identity, PeerCheck::Observe, CONTROL)?,
            lane: server_config(identity, PeerCheck::Observe, LANE)?,
            deadline: limits.deadline,
            opening_bytes: limits.opening_bytes,
            silent: Seats::new(limits.silent),
            handshakes: Seats::new(limits.handshakes),
            quic: Seats::new(limits.handshakes / QUIC_PART),
            unproven: Arc::new(Semaphore::new(UNPROVEN_MAX.min(limits.handshakes))),
            turns: Turns::new(COMPUTED_AT_ONCE),
            hands_over: false,
        })
    }

    /// The same server, whose lanes may be handed over to another process
    /// ([`crate::LaneStream::take_apart`]).
    #[must_use]
    pub fn handing_over(self) -> ServerTls {
        ServerTls { hands_over: true, ..self }
    }

    /// The connections that have not shown yet whose they are, and as many as there may be.
    #[must_use]
    pub fn greeting(&self) -> (usize, usize) {
        let crowds = [&self.silent, &self.handshakes, &self.quic];
        (crowds.iter().map(|seats| seats.taken()).sum(), crowds.iter().map(|seats| seats.seats()).sum())
    }

    /// The connections that gave way to others since this was last asked.
    #[must_use]
    pub fn take_lost(&self) -> Tally {
        let mut lost = self.silent.take_lost();
        lost.merge(self.handshakes.take_lost());
        lost.merge(self.quic.take_lost());
        lost
    }
}

/// The configuration of one dialled connection.
pub(crate) fn client_config(identity: &Identity, check: PeerCheck, alpn: &[u8]) -> Result<Arc<ClientConfig>, NetError> {
    let provider = provider();
    let verifier = Arc::new(KeyCheck::new(check, &provider));
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(|_| NetError::Crypto { doing: "set TLS up" })?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(identity.certified())));
    config.alpn_protocols = names(alpn);
    config.enable_sni = false;
    config.resumption = Resumption::disabled();
    config.enable_secret_extraction = alpn == LANE;
    Ok(Arc::new(config))
}

/// The configuration of every accepted connection of one kind.
pub(crate) fn server_config(identity: &Identity, check: PeerCheck, alpn: &[u8]) -> Result<Arc<ServerConfig>, NetError> {
    let provider = provider();
    let verifier = Arc::new(KeyCheck::new(check, &provider));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(|_| NetError::Crypto { doing: "set TLS up" })?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(identity.certified())));
    config.alpn_protocols = names(alpn);
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.enable_secret_extraction = alpn == LANE;
    Ok(Arc::new(config))
}

/// The names of a protocol, the one that is preferred first.
fn names(alpn: &[u8]) -> Vec<Vec<u8>> {
    let preferred = (alpn == CONTROL).then_some(CONTROL_UNASKED);
    preferred.into_iter().chain([alpn]).map(<[u8]>::to_vec).collect()
}

/// A name must be given to rustls; it is neither sent nor compared.
pub(crate) fn nominal_name() -> Result<ServerName<'static>, NetError> {
    ServerName::try_from("longhaul").map_err(|_| NetError::Crypto { doing: "name the peer to TLS" })
}

/// Gives the key that the peer has proved, after a handshake in which it must have agreed to
/// `alpn`, under whichever name.
pub(crate) fn proved_key(connection: &CommonState, alpn: &[u8]) -> Result<PublicKey, rustls::Error> {
    if !connection.alpn_protocol().is_some_and(|agreed| names(alpn).iter().any(|name| name == agreed)) {
        return Err(rustls::Error::NoApplicationProtocol);
    }
    match connection.peer_certificates() {
        Some([key]) => PublicKey::from_spki(key).ok_or(CertificateError::BadEncoding.into()),
        _ => Err(rustls::Error::NoCertificatesPresented),
    }
}

/// Default of [`GreetLimits::silent`]: with a flood of 1,500 connections a second from a client's
/// own address, it has more than a second to say what it is.
const SILENT_MAX: usize = 2048;
/// Default of [`GreetLimits::handshakes`]: with such a flood of whole hellos, as long for a round
/// trip.
const HANDSHAKES_MAX: usize = 2048;
/// The part of the handshakes that may run over QUIC: such a connection has windows of its own, and
/// costs some 100 KiB.
const QUIC_PART: usize = 4;
/// Handshakes under way with unproven addresses. A further address is asked to show that it
/// receives, before anything is spent on it: a round trip more.
const UNPROVEN_MAX: usize = 128;
/// Handshakes that are computed at a time; one processor does some thousands a second. The other
/// processors stay free for the rest of the process.
const COMPUTED_AT_ONCE: usize = 1;
/// The ALPN protocol of a control connection.
pub(crate) const CONTROL: &[u8] = b"longhaul/1";
/// The ALPN protocol of a control connection whose acceptor takes small files that it has not asked
/// for. It is the same protocol; an acceptor that does not know this name chooses the other.
pub(crate) const CONTROL_UNASKED: &[u8] = b"longhaul/1u";
/// The ALPN protocol of a private lane.
pub(crate) const LANE: &[u8] = b"longhaul-lane/1";

fn provider() -> Arc<CryptoProvider> {
    use cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256};
    // The dialler's order decides. AES-128 is the fastest by a tenth where the CPU has AES, the
    // slowest where it has not.
    let aes = [TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384];
    let cipher_suites = match has_aes() {
        true => [&aes[..], &[TLS13_CHACHA20_POLY1305_SHA256]].concat(),
        false => [&[TLS13_CHACHA20_POLY1305_SHA256], &aes[..]].concat(),
    };
    // Hybrid first: data recorded on the way today must not be readable by the machines of
    // tomorrow.
    let kx_groups = vec![kx_group::X25519MLKEM768, kx_group::X25519];
    Arc::new(CryptoProvider { cipher_suites, kx_groups, ..default_provider() })
}

#[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes")
}

#[cfg(target_arch = "aarch64")]
fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64")))]
fn has_aes() -> bool {
    false
}

/// Compares the key shown with the one expected, and checks the proof that the peer holds it.
#[derive(Debug)]
struct KeyCheck {
    check: PeerCheck,
    algorithms: WebPkiSupportedAlgorithms,
}

impl KeyCheck {
    fn new(check: PeerCheck, provider: &CryptoProvider) -> KeyCheck {
        KeyCheck { check, algorithms: provider.signature_verification_algorithms }
    }

    fn compare(&self, shown: &CertificateDer<'_>, more: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
        let got = PublicKey::from_spki(shown).filter(|_| more.is_empty()).ok_or(CertificateError::BadEncoding)?;
        match self.check {
            PeerCheck::Pinned(expected) if expected != got => {
                let mismatch = OtherError(Arc::new(KeyMismatch { expected, got }));
                Err(CertificateError::Other(mismatch).into())
            }
            PeerCheck::Pinned(_) | PeerCheck::Observe => Ok(()),
        }
    }
}

/// The methods that rustls asks of both of its verifiers alike, written once so that the two sides
/// cannot come to differ: TLS 1.3 alone, Ed25519 alone, raw public keys alone.
macro_rules! proof_of_a_raw_key {
    () => {
        fn verify_tls12_signature(
            &self,
            _message: &[u8],
            _shown: &CertificateDer<'_>,
            _proof: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Err(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig.into())
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            shown: &CertificateDer<'_>,
            proof: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
            verify_tls13_signature_with_raw_key(message, &key, proof, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            vec![SignatureScheme::ED25519]
        }

        fn requires_raw_public_keys(&self) -> bool {
            true
        }
    };
}

impl ServerCertVerifier for KeyCheck {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.compare(shown, more).map(|()| ServerCertVerified::assertion())
    }

    proof_of_a_raw_key!();
}

impl ClientCertVerifier for KeyCheck {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        more: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.compare(shown, more).map(|()| ClientCertVerified::assertion())
    }

    proof_of_a_raw_key!();
}
