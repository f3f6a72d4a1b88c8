//! The requests of an administrator and the answers, as JSON.
//!
//! A connection has one request, on one line, and then answers, each on a line of its own; the last
//! one is `end`. In: lines. Out: values. It knows no socket.

use longhaul_core::Fault;
use serde::{Deserialize, Serialize};

use crate::output::{AdminClientBody, AdminDoneBody, AdminSessionBody, AdminStatusBody};

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// The daemon as a whole.
    Status,
    /// The sessions that run.
    Sessions,
    /// The clients that may connect.
    Clients,
    /// Read the configuration again.
    Reload,
    /// Let no session begin.
    Drain {
        /// When those that run are ended, in milliseconds from now. `None`: never.
        deadline_ms: Option<u64>,
    },
    /// Let sessions begin again.
    EndDrain,
    /// Set a rate until the next reload. Without a client and a root it is that of all sessions.
    SetRate {
        /// Bytes/s. `None`: no rate.
        bytes_per_s: Option<u64>,
        /// The client whose sessions share it.
        client: Option<String>,
        /// The root whose sessions share it.
        root: Option<String>,
    },
    /// End one session.
    Kick {
        /// The first digits of its name.
        session: String,
    },
    /// Know a client no more until the next reload, and end its sessions.
    Revoke {
        /// Its name.
        client: String,
    },
}

impl Request {
    /// Reads the line of a request. `None` if it is none.
    pub fn parse(line: &[u8]) -> Option<Request> {
        line.strip_suffix(b"\n").and_then(|line| serde_json::from_slice(line).ok())
    }

    /// The line of this request.
    pub fn line(&self) -> Vec<u8> {
        // Texts and numbers can always be written.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// A line of an answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// The daemon as a whole.
    Status(Box<AdminStatusBody>),
    /// A session that runs.
    Session(Box<AdminSessionBody>),
    /// A client that may connect.
    Client(Box<AdminClientBody>),
    /// The deed that was asked for is done.
    Done(AdminDoneBody),
    /// It was not.
    Fault(Box<Fault>),
    /// Nothing follows.
    End,
}

/// The longest request: its words are names.
pub(super) const ASKED_BYTES_MAX: u64 = 4 << 10;
/// The longest line of an answer: a client has rights at as many roots as there are.
pub(super) const ANSWERED_LINE_BYTES_MAX: u64 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_one_form_and_nothing_else_is_one() {
        for (request, line) in [
            (Request::Status, r#"{"ask":"status"}"#),
            (Request::Drain { deadline_ms: None }, r#"{"ask":"drain","deadline_ms":null}"#),
            (
                Request::SetRate { bytes_per_s: Some(9), client: None, root: Some("r".to_owned()) },
                r#"{"ask":"set-rate","bytes_per_s":9,"client":null,"root":"r"}"#,
            ),
            (Request::Kick { session: "ab".to_owned() }, r#"{"ask":"kick","session":"ab"}"#),
        ] {
            let line = format!("{line}\n");
            assert_eq!(request.line(), line.as_bytes());
            assert_eq!(Request::parse(line.as_bytes()), Some(request));
        }
        for line in
            ["", "{}", "[]", r#"{"ask":"format"}"#, r#"{"ask":"kick"}"#, r#"{"ask":"kick","session":"a","x":1}"#]
        {
            assert_eq!(Request::parse(format!("{line}\n").as_bytes()), None, "{line}");
        }
    }
}
