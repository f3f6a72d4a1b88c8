//! Answers a request of whoever watches.
//!
//! In: the head of a request; a body is never read. Out: the whole answer. Only `GET` and `HEAD`
//! are known. The name that is asked for (`Host`) must be one of this host's or of the
//! configuration: otherwise a page that a browser loaded from elsewhere could have its own name
//! lead here, and read all of this. It decides nothing about the daemon.

use http_body_util::Full;
use hyper::body::{Body, Bytes};
use hyper::header::{ALLOW, CONNECTION, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use super::Watched;
use super::page;
use crate::output::json_line;

/// An answer before its headers.
pub(super) struct HttpAnswer {
    status: StatusCode,
    kind: &'static str,
    body: String,
}

impl HttpAnswer {
    /// A text for people.
    pub(super) fn text(status: StatusCode, body: impl Into<String>) -> HttpAnswer {
        HttpAnswer { status, kind: "text/plain; charset=utf-8", body: body.into() }
    }

    fn of(status: StatusCode, why: &str) -> HttpAnswer {
        HttpAnswer::text(status, format!("{why}\n"))
    }
}

/// Answers a request.
pub(super) async fn answer<B: Body>(watched: &Watched, request: &Request<B>) -> Response<Full<Bytes>> {
    let told = match refused(&watched.0.hosts, request) {
        Some(refusal) => refusal,
        None => match request.uri().path() {
            "/livez" => match watched.is_alive().await {
                Ok(()) => HttpAnswer::text(StatusCode::OK, "ok\n"),
                Err(why) => HttpAnswer::of(StatusCode::SERVICE_UNAVAILABLE, &why),
            },
            "/readyz" => {
                let reasons = watched.unready();
                match reasons.is_empty() {
                    true => HttpAnswer::text(StatusCode::OK, "ok\n"),
                    false => HttpAnswer::of(StatusCode::SERVICE_UNAVAILABLE, &reasons.join("\n")),
                }
            }
            "/" => HttpAnswer { status: StatusCode::OK, kind: HTML, body: page::page(&watched.status()) },
            "/style.css" => HttpAnswer { status: StatusCode::OK, kind: CSS, body: page::STYLE.to_owned() },
            "/script.js" => HttpAnswer { status: StatusCode::OK, kind: SCRIPT, body: page::SCRIPT.to_owned() },
            "/status.json" => status(watched),
            "/metrics" => HttpAnswer { status: StatusCode::OK, kind: METRICS, body: watched.metrics() },
            _ => HttpAnswer::of(
                StatusCode::NOT_FOUND,
                "there is nothing here: try /, /status.json, /livez, /readyz or /metrics",
            ),
        },
    };
    let mut response = dressed(told);
    if !request.body().is_end_stream() {
        // It is not read, and what follows it would be taken for another request.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

fn status(watched: &Watched) -> HttpAnswer {
    // Texts and numbers can always be written.
    let body = json_line(&watched.status()).unwrap_or_default();
    HttpAnswer { status: StatusCode::OK, kind: JSON, body: format!("{body}\n") }
}

/// The refusal of a request that is none of ours. `None`: it is answered.
fn refused<B>(hosts: &[String], request: &Request<B>) -> Option<HttpAnswer> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return Some(HttpAnswer::of(StatusCode::METHOD_NOT_ALLOWED, "this can only be read"));
    }
    let mut named = request.headers().get_all(HOST).iter();
    let (Some(host), None) = (named.next(), named.next()) else {
        return Some(HttpAnswer::of(StatusCode::BAD_REQUEST, "a request has one Host"));
    };
    let in_target = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    let known = [Some(host.as_bytes()), in_target].into_iter().flatten().all(|host| is_ours(hosts, host));
    let why = "this is not the host that was asked for; an administrator can name others in http_hosts";
    (!known).then(|| HttpAnswer::of(StatusCode::MISDIRECTED_REQUEST, why))
}

/// Whether a `HOST` or `HOST:PORT` is a name of this host, or one of the configuration.
fn is_ours(hosts: &[String], host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !host.ends_with(']') && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.to_ascii_lowercase();
    ["localhost", "127.0.0.1", "[::1]"].contains(&&*name) || hosts.contains(&name)
}

/// The answer with the headers that every answer has.
fn dressed(told: HttpAnswer) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(told.body)));
    *response.status_mut() = told.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(told.kind));
    for (name, value) in HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    if told.status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const JSON: &str = "application/json";
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// No other page may read, frame or run anything of this, and nothing is kept.
const HEADERS: [(&str, &str); 7] = [
    ("cache-control", "no-store"),
    (
        "content-security-policy",
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'",
    ),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("referrer-policy", "no-referrer"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: Request<()>) -> Option<StatusCode> {
        refused(&["watch.example.org".to_owned()], &request).map(|refusal| refusal.status)
    }

    #[test]
    fn only_names_of_this_host_and_of_the_configuration_are_answered() {
        for host in ["localhost", "LOCALHOST:7215", "127.0.0.1:1", "[::1]:7215", "[::1]", "watch.example.org:80"] {
            assert_eq!(status(Request::get("/metrics").header(HOST, host).body(()).unwrap()), None, "{host}");
        }
        for host in
            ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", "::1", "[::1", "a@localhost"]
        {
            let asked = Request::get("/metrics").header(HOST, host).body(()).unwrap();
            assert_eq!(status(asked), Some(StatusCode::MISDIRECTED_REQUEST), "{host}");
        }
        let elsewhere = Request::get("http://evil.example/metrics").header(HOST, "localhost").body(()).unwrap();
        assert_eq!(status(elsewhere), Some(StatusCode::MISDIRECTED_REQUEST));
        let none = Request::get("/metrics").body(()).unwrap();
        assert_eq!(status(none), Some(StatusCode::BAD_REQUEST));
        let two = Request::get("/metrics").header(HOST, "localhost").header(HOST, "evil.example").body(()).unwrap();
        assert_eq!(status(two), Some(StatusCode::BAD_REQUEST));
    }

    #[test]
    fn nothing_but_reading_is_known() {
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PATCH", "BREW"] {
            let asked = Request::builder().method(method).uri("/metrics").header(HOST, "localhost").body(()).unwrap();
            assert_eq!(status(asked), Some(StatusCode::METHOD_NOT_ALLOWED), "{method}");
        }
    }
}
