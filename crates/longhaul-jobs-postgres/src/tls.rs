//! The TLS of a connection to the server.
//!
//! In: how far the server is to be checked, and the authorities that vouch for it. Out: what the
//! client library wants of a TLS. Must not know who asks.
//!
//! The modes are those of PostgreSQL's own programs. Only `verify-full` knows the server: `prefer`
//! and `require` keep those out who listen, and nobody who answers in its place.

#![allow(clippy::disallowed_methods, reason = "the file is this side's own: no root holds it and no peer names it")]

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

use crate::error::PostgresError;

/// How private a connection must be, and how far the server is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Privacy {
    /// There is no TLS.
    Disable,
    /// TLS if the server has it. Whoever answers is taken for the server.
    Prefer,
    /// Always TLS. Whoever answers is taken for the server.
    Require,
    /// Always TLS, and the server shows a certificate for its name. The authorities are those of
    /// the file, or of the host if none is named.
    VerifyFull(Option<PathBuf>),
}

impl Privacy {
    /// The library's word for it.
    pub(crate) fn mode(&self) -> SslMode {
        match self {
            Privacy::Disable => SslMode::Disable,
            Privacy::Prefer => SslMode::Prefer,
            Privacy::Require | Privacy::VerifyFull(_) => SslMode::Require,
        }
    }
}

/// Makes connections private.
#[derive(Clone)]
pub(crate) struct Sealer(Arc<ClientConfig>);

impl Sealer {
    /// The TLS of a connection.
    ///
    /// # Errors
    /// [`PostgresError::Authorities`] if none are there to check the server by.
    pub(crate) fn new(privacy: &Privacy, place: &str) -> Result<Sealer, PostgresError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
        // The provider has suites for the versions that it was made with.
        let failed = |error: rustls::Error| PostgresError::Tls { place: place.to_owned(), words: error.to_string() };
        let builder = builder.map_err(failed)?;
        let config = match privacy {
            Privacy::VerifyFull(file) => {
                builder.with_root_certificates(authorities(file.as_deref())?).with_no_client_auth()
            }
            Privacy::Disable | Privacy::Prefer | Privacy::Require => {
                let anyone = Arc::new(AnyServer(provider));
                builder.dangerous().with_custom_certificate_verifier(anyone).with_no_client_auth()
            }
        };
        Ok(Sealer(Arc::new(config)))
    }
}

/// The authorities of a file, or of this host.
///
/// # Errors
/// [`PostgresError::Authorities`] if there are none that could be read.
pub fn authorities(file: Option<&Path>) -> Result<RootCertStore, PostgresError> {
    let of_host = HOST_AUTHORITIES.iter().map(Path::new).find(|path| path.exists());
    let path = file.or(of_host).unwrap_or(Path::new(HOST_AUTHORITIES[0]));
    let failed = |why: String| PostgresError::Authorities { path: path.to_owned(), why };
    let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| failed(format!("it is no list of certificates: {error}")))?;
        match (store.add(certificate), file) {
            // Hosts keep old authorities that nobody can use.
            (Ok(()), _) | (Err(_), None) => {}
            (Err(error), Some(_)) => return Err(failed(error.to_string())),
        }
    }
    if store.is_empty() { Err(failed("it has no certificate".to_owned())) } else { Ok(store) }
}

/// The files in which systems keep the authorities that they trust.
const HOST_AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Takes whoever answers for the server; what it signs is checked all the same.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _shown: &CertificateDer<'_>,
        _more: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        proof: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, shown, proof, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        proof: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, shown, proof, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The TLS for one server.
pub(crate) struct SealerFor {
    connector: TlsConnector,
    server: ServerName<'static>,
}

impl MakeTlsConnect<Socket> for Sealer {
    type Stream = Sealed;
    type TlsConnect = SealerFor;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> Result<SealerFor, io::Error> {
        // A socket of this host has no name, and no TLS.
        let name = if host.is_empty() { "localhost" } else { host };
        let server = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
        Ok(SealerFor { connector: TlsConnector::from(Arc::clone(&self.0)), server })
    }
}

impl TlsConnect<Socket> for SealerFor {
    type Stream = Sealed;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Sealed>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        Box::pin(
            async move { self.connector.connect(self.server, socket).await.map(|stream| Sealed(Box::new(stream))) },
        )
    }
}

/// A private connection.
pub(crate) struct Sealed(Box<tokio_rustls::client::TlsStream<Socket>>);

impl AsyncRead for Sealed {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for Sealed {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

impl TlsStream for Sealed {
    /// Nothing: a binding needs the digest that the certificate was signed with.
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}
