//! A hook that is a server: one POST over a connection of its own, with TLS for `https`.
//!
//! In: a URL of this host's own file, and a document. Out: whether the server took it: any status
//! of the 200s. Nothing of the answer is read but its head, and no redirection is followed. Must
//! not know what is in the document.

use std::path::Path;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use longhaul_core::FaultCode;
use longhaul_jobs_postgres::authorities;
use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::HookFailure;

/// The URL of a hook: `http://` or `https://`, a host, and perhaps a port, a path and a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookUrl {
    uri: Uri,
    host: String,
    port: u16,
    is_private: bool,
}

impl HookUrl {
    /// Reads a URL. `None` if it is none of that form.
    pub fn parse(text: &str) -> Option<HookUrl> {
        let uri: Uri = text.parse().ok()?;
        let is_private = match uri.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let port = match authority.port_u16() {
            Some(port) => port,
            // A port that is none is not left out.
            None if authority.as_str() != authority.host() => return None,
            None if is_private => 443,
            None => 80,
        };
        (!host.is_empty()).then(|| HookUrl { port, is_private, host, uri })
    }
}

/// Sends the document.
pub(super) async fn send(url: &HookUrl, file: Option<&Path>, document: Vec<u8>) -> Result<(), HookFailure> {
    let unreachable =
        |error: std::io::Error| HookFailure::new(FaultCode::Unreachable, format_args!("{}: {error}", url.host));
    let stream = TcpStream::connect((url.host.as_str(), url.port)).await.map_err(unreachable)?;
    if !url.is_private {
        return post(stream, url, document).await;
    }
    let denied = |error: &dyn std::fmt::Display| HookFailure::new(FaultCode::Denied, error);
    let (file, name) = (file.map(Path::to_owned), ServerName::try_from(url.host.clone()));
    // Files are read there.
    let roots = tokio::task::spawn_blocking(move || authorities(file.as_deref())).await;
    let roots = roots.map_err(|error| denied(&error))?.map_err(|error| denied(&error))?;
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| denied(&error))?;
    let config = builder.with_root_certificates(roots).with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(name.map_err(|error| denied(&error))?, stream).await.map_err(unreachable)?;
    post(stream, url, document).await
}

async fn post<S>(stream: S, url: &HookUrl, document: Vec<u8>) -> Result<(), HookFailure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let lost = |error: hyper::Error| HookFailure::new(FaultCode::Lost, format_args!("{}: {error}", url.host));
    let mut http = http1::Builder::new();
    http.max_buf_size(ANSWER_HEAD_BYTES_MAX).max_headers(ANSWER_HEADERS_MAX);
    let (mut sender, connection) = http.handshake(TokioIo::new(stream)).await.map_err(lost)?;
    let host = url.uri.authority().map_or("", |authority| authority.as_str());
    let target = url.uri.path_and_query().map_or("/", |target| target.as_str());
    let request = Request::post(target)
        .header(HOST, host)
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("longhaul/", env!("CARGO_PKG_VERSION")))
        .header(CONNECTION, "close")
        .body(Full::new(Bytes::from(document)));
    let request = request.map_err(|error| HookFailure::new(FaultCode::Internal, error))?;
    let carried = tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(lost);
    carried.abort();
    let status = answer?.status();
    if status.is_success() {
        return Ok(());
    }
    Err(HookFailure::new(FaultCode::Io, format_args!("{} answered {status}", url.host)))
}

/// Bytes of an answer's head, and its headers.
const ANSWER_HEAD_BYTES_MAX: usize = 64 << 10;
const ANSWER_HEADERS_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_of_http_and_has_a_host_and_no_user() {
        let port = |text| HookUrl::parse(text).map(|url| (url.host, url.port, url.is_private));
        assert_eq!(port("http://h"), Some(("h".to_owned(), 80, false)));
        assert_eq!(port("https://h.example/a?b=c"), Some(("h.example".to_owned(), 443, true)));
        assert_eq!(port("http://[::1]:8080/x"), Some(("::1".to_owned(), 8080, false)));
        for text in ["", "h", "/x", "ftp://h/", "http://", "http://u:p@h/", "http://h:99999/", "file:///etc/passwd"] {
            assert_eq!(port(text), None, "{text}");
        }
    }
}
