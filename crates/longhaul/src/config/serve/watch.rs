//! `[watch]`: what a daemon tells of itself, and where.
//!
//! In: the values of the table. Out: a [`Watching`]. Opens nothing.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use super::file::{Wrong, at, wrong};
use crate::error::Flaw;

/// The words of a daemon about itself: its log, its audit log, and the HTTP listener with its state
/// and its metrics.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Watch {
    /// The form of log lines on standard error: `text` or `json`, one object a line. [default:
    /// "text"]
    log_format: Option<Spanned<String>>,
    /// The file of the audit log: one JSON object a line for each session, each file that is opened
    /// for a client, sent, committed or replaced, each listing and each refusal. It is made with
    /// mode 0600, and opened anew at SIGHUP. [default: none]
    audit: Option<PathBuf>,
    /// Whether nothing may be done that is not recorded: a session of which a record is lost ends
    /// as `io`, and none begins while the audit log cannot be written. Otherwise lost records are
    /// counted, and the log and the audit log say how many. [default: false]
    audit_required: Option<Spanned<bool>>,
    /// Where state and metrics are told over HTTP, for reading alone: `unix:PATH` or `IP:PORT` of a
    /// loopback address. [default: none]
    http: Option<Spanned<String>>,
    /// Names, besides `localhost` and the loopback addresses, by which that listener may be asked
    /// for (the `Host` of a request). [default: []]
    http_hosts: Option<Vec<Spanned<String>>>,
    /// Whether `http` may be an address that other hosts reach. Names of clients and paths are told
    /// there, to everybody who asks. [default: false]
    http_anywhere: Option<bool>,
}

/// The words of a daemon about itself, and where they go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watching {
    /// Whether log lines are JSON.
    pub log_json: bool,
    /// The file of the audit log.
    pub audit: Option<PathBuf>,
    /// Whether nothing may be done that is not recorded.
    pub audit_required: bool,
    /// Where it is told over HTTP.
    pub http: Option<HttpPlace>,
    /// Further names that requests may ask for.
    pub http_hosts: Vec<String>,
}

impl Watching {
    /// The Unix socket at which it is told over HTTP.
    pub fn http_socket(&self) -> Option<&Path> {
        match &self.http {
            Some(HttpPlace::Socket(path)) => Some(path),
            Some(HttpPlace::Address(_)) | None => None,
        }
    }
}

/// The place of the HTTP listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpPlace {
    /// A Unix socket.
    Socket(PathBuf),
    /// An address.
    Address(SocketAddr),
}

/// Judges the table.
pub(super) fn judge(watch: Watch) -> Result<Watching, Wrong> {
    let log_json = match &watch.log_format {
        None => false,
        Some(word) => match word.get_ref().as_str() {
            "text" => false,
            "json" => true,
            given => at(word, Err(Flaw::Unknown { given: given.to_owned(), allowed: "text, json" }))?,
        },
    };
    let audit_required = watch.audit_required.as_ref().is_some_and(|required| *required.get_ref());
    if let Some(required) = watch.audit_required.filter(|required| *required.get_ref())
        && watch.audit.is_none()
    {
        return Err(wrong(&required, "audit_required needs the file of the audit log: name it as audit"));
    }
    let http = watch.http.as_ref().map(|place| at(place, http_place(place.get_ref()))).transpose()?;
    if let (Some(place), Some(HttpPlace::Address(address))) = (&watch.http, &http)
        && !watch.http_anywhere.unwrap_or(false)
        && !address.ip().to_canonical().is_loopback()
    {
        return Err(wrong(place, EXPOSED));
    }
    let hosts = watch.http_hosts.unwrap_or_default().into_iter().map(host).collect::<Result<_, _>>()?;
    Ok(Watching { log_json, audit: watch.audit, audit_required, http, http_hosts: hosts })
}

fn http_place(text: &str) -> Result<HttpPlace, &'static str> {
    if let Some(path) = text.strip_prefix("unix:") {
        return if path.starts_with('/') { Ok(HttpPlace::Socket(path.into())) } else { Err(PLACE) };
    }
    text.parse().map(HttpPlace::Address).map_err(|_| PLACE)
}

/// A name of a host, without a port: what a request may have as its `Host`.
fn host(name: Spanned<String>) -> Result<String, Wrong> {
    let text = name.get_ref();
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
    let is_name = !text.is_empty() && text.bytes().all(fits) && (text.starts_with('[') || !text.contains(':'));
    if !is_name {
        return Err(wrong(&name, "a name in http_hosts is that of a host, without a port, as watch.example.org"));
    }
    Ok(name.into_inner().to_ascii_lowercase())
}

const PLACE: &str = "http is unix:PATH with an absolute path, or IP:PORT, as 127.0.0.1:7215";
const EXPOSED: &str = "other hosts reach this address, and everybody who asks there is told names of clients and paths: take \
                       127.0.0.1:PORT or unix:PATH, or say http_anywhere = true";
