//! Tells what a daemon answered its administrator: tables for people, events for scripts.
//!
//! In: the bodies of answers. Out: lines on standard output, and the exit code. It asks nothing.

use std::io::{self, Write};

use longhaul_core::{ByteCount, Rights};
use serde::{Deserialize, Serialize};

use super::events::{JsonLines, Summary};
use super::human::clean;
use super::units;
use crate::exit::Exit;
use crate::settings::Talk;

/// A daemon as a whole (`admin status`).
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct AdminStatusBody {
    /// The version of the program that runs.
    pub version: String,
    /// The id of the process.
    pub pid: u32,
    /// The addresses on which it accepts.
    pub listen: Vec<String>,
    /// Its public key, `lhk1:...`.
    pub key: String,
    /// Its config file. Null if it was started without one.
    pub config: Option<String>,
    /// Seconds since it began to serve.
    pub seconds: f64,
    /// `serving`, or `draining` while no session may begin.
    pub state: String,
    /// Seconds until the sessions that run are ended. Null if they are not.
    pub drain_s: Option<f64>,
    /// Sessions that run, and what they share.
    pub load: AdminLoadBody,
    /// The roots.
    pub roots: Vec<AdminRootBody>,
    /// The number of clients that may connect.
    pub clients: u64,
    /// The mover beside it. Null if it has none, or has not heard of it yet.
    pub mover: Option<AdminMoverBody>,
}

/// The mover beside a daemon.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct AdminMoverBody {
    /// Shards that it may move at a time.
    pub movers: u32,
    /// Shards that it moves.
    pub shards_moving: u64,
    /// Shards that it has settled or handed back.
    pub shards_ended: u64,
    /// Files that failed in them.
    pub files_failed: u64,
    /// Bytes that became durable by it.
    pub bytes_moved: u64,
    /// The last fault that concerned no single file. Null if there was none.
    pub fault: Option<String>,
}

/// The use that sessions make of a daemon.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct AdminLoadBody {
    /// Sessions that run.
    pub sessions: u64,
    /// Sessions that may run at a time.
    pub sessions_max: u64,
    /// Bytes of memory that sessions and listings have.
    pub memory_bytes: u64,
    /// Bytes of memory that they may have.
    pub memory_max: u64,
    /// The rate of all sessions together, in bytes per second. Null: no limit.
    pub rate_per_s: Option<u64>,
}

/// A root of a daemon.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct AdminRootBody {
    /// Its name.
    pub name: String,
    /// The rate of all sessions on it, in bytes per second. Null: no limit.
    pub rate_per_s: Option<u64>,
    /// The count of what clients have stored in it. Null where nothing bounds that.
    pub stored: Option<AdminStoredBody>,
}

/// The count of what is stored by transfers, and what may be.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct AdminStoredBody {
    /// Bytes of files.
    pub bytes: u64,
    /// Bytes that there may be. Null: no limit.
    pub bytes_max: Option<u64>,
    /// Files and links.
    pub files: u64,
    /// Files and links that there may be. Null: no limit.
    pub files_max: Option<u64>,
}

/// A session that runs (`admin sessions`).
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct AdminSessionBody {
    /// Its name, 32 hex digits: `session` of the `start` event of its client.
    pub session: String,
    /// The name of its client.
    pub client: String,
    /// The address that it came from.
    pub peer: String,
    /// Its doing, as the log says it: `push to ROOT/PATH`, `pull from ROOT/PATH`.
    pub what: String,
    /// The protection of its lanes, `private` or `safe`.
    pub protect: String,
    /// Seconds since it began.
    pub seconds: f64,
    /// Files and links that it committed.
    pub files_committed: u64,
    /// Files and links that failed.
    pub files_failed: u64,
    /// Bytes of the committed files.
    pub bytes_committed: u64,
    /// Payload bytes that were sent or received.
    pub bytes_moved: u64,
    /// Payload bytes of the last second.
    pub bytes_per_s: u64,
    /// The part that limited the last second, as in `progress`. Null where it is not known.
    pub limited_by: Option<String>,
}

/// A client that may connect to a daemon (`admin clients`, `key list`).
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct AdminClientBody {
    /// Its name.
    pub client: String,
    /// Its public key, `lhk1:...`.
    pub key: String,
    /// Its rights.
    pub roots: Vec<AdminGrantBody>,
    /// Whether it may measure.
    pub bench: bool,
    /// The rate of its sessions together, in bytes per second. Null: no limit.
    pub rate_per_s: Option<u64>,
    /// Its sessions that run. Null where a file was asked and no daemon.
    pub sessions: Option<u64>,
    /// The count of what it has stored in all roots. Null where nothing bounds that, or no daemon
    /// was asked.
    pub stored: Option<AdminStoredBody>,
}

/// The rights of a client at a root.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct AdminGrantBody {
    /// The root.
    pub root: String,
    /// The rights: of `read`, `create`, `modify` and `delete`.
    pub rights: Rights,
}

/// A deed that a daemon was asked for is done.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct AdminDoneBody {
    /// The deed: `reload`, `drain`, `end-drain`, `set-rate`, `kick` or `revoke`.
    pub did: String,
    /// Sessions that are concerned: those that were ended, or that still run while it drains.
    pub sessions: u64,
    /// The details, each in a line for people.
    pub details: Vec<String>,
}

/// The form of what is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminForm {
    /// Tables for people.
    Tables,
    /// Events for scripts.
    Events,
}

impl AdminForm {
    /// The form that a user asked for.
    pub fn of(talk: Talk) -> AdminForm {
        if talk.json { AdminForm::Events } else { AdminForm::Tables }
    }
}

/// Tells answers, on `out`.
pub struct AdminTelling<W: Write> {
    out: W,
    form: AdminForm,
    rows: Vec<Vec<String>>,
    written: io::Result<()>,
}

impl<W: Write> AdminTelling<W> {
    /// Tells in this form.
    pub fn new(out: W, form: AdminForm) -> AdminTelling<W> {
        AdminTelling { out, form, rows: Vec::new(), written: Ok(()) }
    }

    /// Tells the daemon as a whole.
    pub fn status(&mut self, body: &AdminStatusBody) {
        if self.form == AdminForm::Events {
            return self.event(|lines| lines.say("admin_status", body));
        }
        let AdminLoadBody { sessions, sessions_max, memory_bytes, memory_max, rate_per_s } = body.load;
        let state = match body.drain_s {
            Some(left) => format!("{}, sessions are ended in {}", body.state, units::span(left)),
            None => body.state.clone(),
        };
        let mut lines = vec![
            ("state", state),
            ("listening", body.listen.join(", ")),
            ("key", body.key.clone()),
            ("config", body.config.clone().unwrap_or_else(|| "none".to_owned())),
            ("version", format!("{}, process {}", body.version, body.pid)),
            ("running", units::span(body.seconds)),
            ("sessions", format!("{sessions} of {sessions_max}")),
            ("memory", format!("{} of {}", ByteCount(memory_bytes), ByteCount(memory_max))),
            ("rate", rate(rate_per_s)),
            ("clients", body.clients.to_string()),
        ];
        let root = |root: &AdminRootBody| {
            let rate = root.rate_per_s.map(|_| rate(root.rate_per_s));
            let facts: Vec<String> = rate.into_iter().chain(root.stored.as_ref().map(stored)).collect();
            if facts.is_empty() { root.name.clone() } else { format!("{} ({})", root.name, facts.join(", ")) }
        };
        if let Some(mover) = &body.mover {
            let AdminMoverBody { movers, shards_moving, shards_ended, bytes_moved, fault, .. } = mover;
            let fault = fault.as_ref().map(|fault| format!("; last fault: {fault}")).unwrap_or_default();
            let (ended, moved) = (units::count(*shards_ended, "shard"), ByteCount(*bytes_moved));
            lines.push(("mover", format!("{shards_moving} of {movers} at work, {ended} ended, {moved}{fault}")));
        }
        lines.push(("roots", body.roots.iter().map(root).collect::<Vec<_>>().join(", ")));
        self.rows = lines.into_iter().map(|(name, text)| vec![name.to_owned(), text]).collect();
        self.table();
    }

    /// Tells the sessions that run.
    pub fn sessions(&mut self, bodies: &[AdminSessionBody]) {
        if self.form == AdminForm::Events {
            return bodies.iter().for_each(|body| self.event(|lines| lines.say("admin_session", body)));
        }
        let heads = ["SESSION", "CLIENT", "FROM", "TIME", "FILES", "MOVED", "RATE", "LIMITED BY", "WHAT"];
        self.rows = vec![heads.map(str::to_owned).to_vec()];
        self.rows.extend(bodies.iter().map(|body| {
            vec![
                body.session.get(..SHORT_NAME).unwrap_or(&body.session).to_owned(),
                body.client.clone(),
                body.peer.clone(),
                units::span(body.seconds),
                body.files_committed.to_string(),
                ByteCount(body.bytes_moved).to_string(),
                units::bytes_rate(body.bytes_per_s as f64),
                body.limited_by.clone().unwrap_or_else(|| "-".to_owned()),
                body.what.clone(),
            ]
        }));
        self.table();
    }

    /// Tells the clients that may connect.
    pub fn clients(&mut self, bodies: &[AdminClientBody]) {
        if self.form == AdminForm::Events {
            return bodies.iter().for_each(|body| self.event(|lines| lines.say("admin_client", body)));
        }
        let knows_sessions = bodies.iter().any(|body| body.sessions.is_some());
        let mut heads = vec!["CLIENT", "KEY", "RATE", "RIGHTS"];
        if knows_sessions {
            heads.insert(1, "SESSIONS");
        }
        let bounds_stored = bodies.iter().any(|body| body.stored.is_some());
        if bounds_stored {
            heads.insert(heads.len() - 1, "STORED");
        }
        self.rows = vec![heads.into_iter().map(str::to_owned).collect()];
        self.rows.extend(bodies.iter().map(|body| {
            let grant = |grant: &AdminGrantBody| {
                format!("{}={}", grant.root, grant.rights.names().collect::<Vec<_>>().join(","))
            };
            let mut rights: Vec<String> = body.roots.iter().map(grant).collect();
            rights.extend(body.bench.then(|| "bench".to_owned()));
            let mut row = vec![body.client.clone(), body.key.clone(), rate(body.rate_per_s), rights.join(" ")];
            if knows_sessions {
                row.insert(1, body.sessions.unwrap_or(0).to_string());
            }
            if bounds_stored {
                let stored = body.stored.as_ref().map_or_else(|| "-".to_owned(), stored);
                row.insert(row.len() - 1, stored);
            }
            row
        }));
        self.table();
    }

    /// Tells that a deed is done.
    pub fn done(&mut self, body: &AdminDoneBody) {
        if self.form == AdminForm::Events {
            return self.event(|lines| lines.say("admin_done", body));
        }
        for line in &body.details {
            self.line(line);
        }
    }

    /// Ends with the summary, and returns the exit code.
    pub fn end(mut self) -> Exit {
        if self.form == AdminForm::Events && self.written.is_ok() {
            self.written = JsonLines::new(&mut self.out).summary(&Summary::nothing(Exit::Complete));
        }
        let flushed = self.written.and_then(|()| self.out.flush());
        flushed.map_or_else(super::stdout_failed, |()| Exit::Complete)
    }

    fn event(&mut self, say: impl FnOnce(&mut JsonLines<&mut W>) -> io::Result<()>) {
        if self.written.is_ok() {
            self.written = say(&mut JsonLines::new(&mut self.out));
        }
    }

    /// Prints the rows with their columns beneath each other. Only the last column is not padded.
    fn table(&mut self) {
        let rows: Vec<Vec<String>> = std::mem::take(&mut self.rows);
        let rows: Vec<Vec<String>> =
            rows.into_iter().map(|row| row.iter().map(|cell| clean(cell).to_string()).collect()).collect();
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let width =
            |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        for row in &rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let gap = width - cell.chars().count() + 2;
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', gap));
            }
            self.line(line.trim_end());
        }
    }

    fn line(&mut self, text: &str) {
        if self.written.is_ok() {
            self.written = writeln!(self.out, "{}", clean(text));
        }
    }
}

/// The count against what may be, as `3.0 GiB of 10 GiB, 12 files`.
fn stored(body: &AdminStoredBody) -> String {
    let of = |has: String, most: Option<String>| most.map_or(has.clone(), |most| format!("{has} of {most}"));
    let bytes = of(ByteCount(body.bytes).to_string(), body.bytes_max.map(|most| ByteCount(most).to_string()));
    let files = of(body.files.to_string(), body.files_max.map(|most| most.to_string()));
    format!("{bytes}, {files} files")
}

fn rate(bytes_per_s: Option<u64>) -> String {
    bytes_per_s.map_or_else(|| "none".to_owned(), |rate| units::rate(rate as f64))
}

/// Digits of a session's name in a table: enough to tell a daemon's sessions apart.
const SHORT_NAME: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    fn told(form: AdminForm, tell: impl FnOnce(&mut AdminTelling<&mut Vec<u8>>)) -> String {
        let mut out = Vec::new();
        let mut telling = AdminTelling::new(&mut out, form);
        tell(&mut telling);
        assert_eq!(telling.end(), Exit::Complete);
        String::from_utf8(out).unwrap()
    }

    fn sessions() -> Vec<AdminSessionBody> {
        let body = |name: &str, client: &str| AdminSessionBody {
            session: name.repeat(32),
            client: client.to_owned(),
            what: "push to data/x\ny".to_owned(),
            ..AdminSessionBody::default()
        };
        vec![body("a", "lab"), body("b", "a longer name")]
    }

    #[test]
    fn a_table_has_its_columns_beneath_each_other_and_a_name_no_line_of_its_own() {
        let text = told(AdminForm::Tables, |telling| telling.sessions(&sessions()));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        let column = lines[0].find("CLIENT").unwrap();
        assert!(lines[1][column..].starts_with("lab ") && lines[2][column..].starts_with("a longer name "), "{text}");
    }

    #[test]
    fn events_end_with_a_summary() {
        let text = told(AdminForm::Events, |telling| telling.sessions(&sessions()));
        let kinds: Vec<_> = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()).collect();
        let kinds: Vec<_> = kinds.iter().map(|event| event["type"].as_str().unwrap()).collect();
        assert_eq!(kinds, ["admin_session", "admin_session", "summary"]);
    }
}
