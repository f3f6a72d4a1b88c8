//! The place of a queue: the URL of a database.
//!
//! In: a URL as PostgreSQL's own programs take it, and passwords. Out: who is dialled, and how. The
//! password is never shown. Must not know the environment, nor where files lie by custom.
//!
//! ```text
//! postgres://USER[:PASSWORD]@HOST[:PORT]/DATABASE[?OPTION=VALUE&...]
//! ```
//!
//! A host with slashes (`%2Frun%2Fpostgresql`) is a directory with the server's socket. What is not
//! understood is refused: an option that is passed over might have made the connection safe.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use zeroize::Zeroizing;

use crate::connection::Dialling;
use crate::error::PostgresError;
use crate::passfile::{self, Asked};
use crate::tls::{Privacy, Sealer};

/// The place of a queue.
#[derive(Clone)]
pub struct Place {
    host: String,
    port: u16,
    user: String,
    password: Option<Zeroizing<String>>,
    database: String,
    schema: String,
    privacy: Privacy,
    manifests: Option<PathBuf>,
}

/// The passwords that may be used where a URL has none.
#[derive(Clone, Default)]
pub struct Passwords {
    /// A password for whichever server is dialled.
    pub any: Option<Zeroizing<String>>,
    /// A file with a line for each server.
    pub file: Option<PathBuf>,
}

impl Place {
    /// Whether a text is meant to be the URL of a database.
    pub fn is_meant(text: &[u8]) -> bool {
        SCHEMES.iter().any(|scheme| text.starts_with(scheme.as_bytes()))
    }

    /// The place of a URL.
    ///
    /// # Errors
    /// [`PostgresError::Url`] with the flaw, and without the password.
    pub fn parse(url: &str) -> Result<Place, PostgresError> {
        let rest = SCHEMES.iter().find_map(|scheme| url.strip_prefix(scheme));
        let rest = rest.ok_or_else(|| flaw("it does not begin with postgres://"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (server, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, address) = server.rsplit_once('@').unwrap_or(("", server));
        let (user, password) = login.split_once(':').map_or((login, None), |(user, password)| (user, Some(password)));
        let (host, port) = host_and_port(address)?;
        let mut options = Options::of(query)?;
        let host = options.take("host").map_or_else(|| decoded(host), Ok)?;
        let port = options.take("port").map_or_else(|| Ok(port.to_owned()), Ok)?;
        let user = options.take("user").map_or_else(|| decoded(user), Ok)?;
        let database = options.take("dbname").map_or_else(|| decoded(database), Ok)?;
        let password = password.map(decoded).transpose()?.or(options.take("password")).map(Zeroizing::new);
        let privacy = privacy(options.take("sslmode"), options.take("sslrootcert"))?;
        let schema = options.take("schema").unwrap_or_else(|| SCHEMA.to_owned());
        let manifests = options.take("manifests").map(PathBuf::from);
        options.end()?;
        if user.is_empty() {
            return Err(flaw("it names no user: write postgres://USER@HOST/DATABASE"));
        }
        if host.contains(',') {
            return Err(flaw(
                "it names several hosts, and one is dialled: name the primary, or an address that follows it",
            ));
        }
        let of_server = schema.starts_with("pg_") || ["$user", "information_schema"].contains(&schema.as_str());
        if schema.is_empty() || schema.len() > NAME_BYTES || of_server || schema.contains('\0') {
            return Err(flaw("the name of its schema is empty, longer than 63 bytes, or one of the server's own"));
        }
        if manifests.as_ref().is_some_and(|dir| !dir.is_absolute()) {
            return Err(flaw("the directory of manifests must begin with a slash"));
        }
        let port = if port.is_empty() { Ok(PORT) } else { port.parse() };
        let port = port.ok().filter(|port| *port > 0).ok_or_else(|| flaw("its port is no number from 1 to 65535"))?;
        let host = if host.is_empty() { SOCKETS.to_owned() } else { host };
        let database = if database.is_empty() { user.clone() } else { database };
        Ok(Place { host, port, user, password, database, schema, privacy, manifests })
    }

    /// The directory of the manifests of its campaigns, if the URL names one.
    pub fn manifests(&self) -> Option<&std::path::Path> {
        self.manifests.as_deref()
    }

    /// A name for files that belong to this place: letters, digits, dots, dashes and underlines.
    pub fn file_name(&self) -> String {
        let mut name = String::from("postgres");
        for part in [self.host.as_str(), &self.port.to_string(), &self.database, &self.schema] {
            name.push('-');
            for byte in part.bytes() {
                match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' => name.push(char::from(byte)),
                    other => name.push_str(&format!("_{other:02x}")),
                }
            }
        }
        name
    }

    /// The means of a connection.
    pub(crate) fn dialling(&self, passwords: &Passwords) -> Result<Dialling, PostgresError> {
        let place = self.to_string();
        let mut config = Config::new();
        config.user(&self.user).dbname(&self.database).port(self.port).application_name("longhaul");
        config.connect_timeout(DIAL_TIME).tcp_user_timeout(SILENCE).keepalives_idle(SILENCE / 2);
        config.keepalives_interval(SILENCE / 6).keepalives_retries(3);
        // A socket of this host is as private as it can be.
        let of_host = self.host.starts_with('/');
        let privacy = if of_host { &Privacy::Disable } else { &self.privacy };
        config.host(&self.host).ssl_mode(privacy.mode());
        if let Some(password) = self.password(passwords)? {
            config.password(password.as_bytes());
        }
        let sealer = Sealer::new(privacy, &place)?;
        Ok(Dialling { place, schema: self.schema.clone(), config, sealer })
    }

    fn password(&self, passwords: &Passwords) -> Result<Option<Zeroizing<String>>, PostgresError> {
        if let Some(given) = self.password.as_ref().or(passwords.any.as_ref()) {
            return Ok(Some(given.clone()));
        }
        let Some(file) = &passwords.file else { return Ok(None) };
        // Lines of servers that are dialled by their socket have the name of this host.
        let host = if self.host.starts_with('/') { "localhost" } else { self.host.as_str() };
        passfile::password(file, Asked { host, port: self.port, database: &self.database, user: &self.user })
    }
}

/// The place without user and password.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.replace('/', "%2F") };
        write!(f, "postgres://{host}:{}/{}", self.port, self.database)?;
        if self.schema == SCHEMA { Ok(()) } else { write!(f, "?schema={}", self.schema) }
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({self})")
    }
}

impl fmt::Debug for Passwords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passwords").field("file", &self.file).finish_non_exhaustive()
    }
}

/// The options behind a URL, each of which is taken once.
struct Options(Vec<(String, String)>);

impl Options {
    fn of(query: &str) -> Result<Options, PostgresError> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').ok_or_else(|| flaw("an option has no value"))?;
            Ok((decoded(name)?, decoded(value)?))
        });
        Ok(Options(pairs.collect::<Result<_, PostgresError>>()?))
    }

    fn take(&mut self, name: &str) -> Option<String> {
        let at = self.0.iter().position(|(given, _)| given == name)?;
        Some(self.0.remove(at).1)
    }

    /// The end of the options that are known.
    fn end(self) -> Result<(), PostgresError> {
        if self.0.is_empty() {
            return Ok(());
        }
        // Its name is not told: behind a password with a question mark in it, it is a part of that.
        Err(flaw(&format!("an option is not known here, or given twice; there are {OPTIONS}")))
    }
}

fn privacy(mode: Option<String>, file: Option<String>) -> Result<Privacy, PostgresError> {
    match (mode.as_deref(), file) {
        (Some("verify-full"), file) => Ok(Privacy::VerifyFull(file.filter(|file| file != "system").map(PathBuf::from))),
        (_, Some(_)) => Err(flaw("sslrootcert is used with sslmode=verify-full alone")),
        (Some("disable"), None) => Ok(Privacy::Disable),
        (Some("prefer") | None, None) => Ok(Privacy::Prefer),
        (Some("require"), None) => Ok(Privacy::Require),
        (Some(other), None) => Err(flaw(&format!(
            "sslmode={other} is not supported: it is disable, prefer, require or verify-full, which alone checks whom it \
             speaks to"
        ))),
    }
}

/// Host and port of an address, as they are written.
fn host_and_port(address: &str) -> Result<(&str, &str), PostgresError> {
    let Some(rest) = address.strip_prefix('[') else { return Ok(address.split_once(':').unwrap_or((address, ""))) };
    let (host, behind) = rest.split_once(']').ok_or_else(|| flaw("a bracket of its host is not closed"))?;
    match behind.strip_prefix(':') {
        Some(port) => Ok((host, port)),
        None if behind.is_empty() => Ok((host, "")),
        None => Err(flaw("there is something between its host and its port")),
    }
}

/// A part of a URL, in which `%2F` stands for a slash.
fn decoded(part: &str) -> Result<String, PostgresError> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        let (Some(high), Some(low)) = (digit(rest.next()), digit(rest.next())) else {
            return Err(flaw("there are no two digits behind a %"));
        };
        bytes.push((high * 16 + low) as u8);
    }
    let text = String::from_utf8(bytes).map_err(|_| flaw("a part of it is no text"))?;
    if text.contains('\0') { Err(flaw("a part of it has a zero byte")) } else { Ok(text) }
}

fn flaw(why: &str) -> PostgresError {
    PostgresError::Url { why: why.to_owned() }
}

const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];
const OPTIONS: &str = "host, port, user, password, dbname, sslmode, sslrootcert, schema and manifests";
/// The schema of a queue for which none is named.
const SCHEMA: &str = "longhaul";
/// Bytes of a name at the server.
const NAME_BYTES: usize = 63;
const PORT: u16 = 5432;
/// The directory of the server's socket, where systems have it.
const SOCKETS: &str = "/var/run/postgresql";
/// One address of the server is tried for so long.
const DIAL_TIME: Duration = Duration::from_secs(5);
/// A server that is silent for so long is gone.
const SILENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn place(url: &str) -> Place {
        Place::parse(url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    #[test]
    fn a_url_is_read_as_postgresqls_own_programs_read_it() {
        let full =
            place("postgresql://me:se%3Acret@db.example:6432/queue?sslmode=verify-full&sslrootcert=/ca&schema=q");
        assert_eq!((full.host.as_str(), full.port, full.user.as_str()), ("db.example", 6432, "me"));
        assert_eq!((full.database.as_str(), full.schema.as_str()), ("queue", "q"));
        assert_eq!(full.password.as_ref().map(|password| password.as_str()), Some("se:cret"));
        assert_eq!(full.privacy, Privacy::VerifyFull(Some("/ca".into())));
        let least = place("postgres://me@");
        assert_eq!((least.host.as_str(), least.port, least.database.as_str()), (SOCKETS, PORT, "me"));
        assert_eq!((least.schema.as_str(), least.privacy), (SCHEMA, Privacy::Prefer));
        let socket = place("postgres://me@%2Frun%2Fpg:5433/q");
        assert_eq!((socket.host.as_str(), socket.port), ("/run/pg", 5433));
        assert_eq!(place("postgres://me@/q?host=/run/pg").host, "/run/pg");
        assert_eq!(
            (place("postgres://me@[::1]:7/q").host.as_str(), place("postgres://me@[::1]/q").port),
            ("::1", PORT)
        );
    }

    #[test]
    fn a_place_is_shown_without_its_user_and_password() {
        let place = place("postgres://me:secret@[::1]/q?schema=s");
        assert_eq!(place.to_string(), "postgres://[::1]:5432/q?schema=s");
        assert_eq!(format!("{place:?}"), "Place(postgres://[::1]:5432/q?schema=s)");
        assert_eq!(place.file_name(), "postgres-_3a_3a1-5432-q-s");
        let config = place.dialling(&Passwords::default()).unwrap().config;
        assert!(!format!("{config:?}").contains("secret"), "{config:?}");
    }

    #[test]
    fn what_is_not_understood_is_refused_and_the_password_is_not_told() {
        for (url, why) in [
            ("postgres://me:secret@h/q?sslmode=verify-ca", "verify-ca"),
            ("postgres://me:secret@h/q?sslmode=allow", "allow"),
            ("postgres://me:secret@h/q?sslmode=require&sslrootcert=/ca", "sslrootcert"),
            ("postgres://me:secret@h/q?channel_binding=require", "an option is not known"),
            ("postgres://me:a?secret=b@h/q", "an option is not known"),
            ("postgres://me:secret@h/q?schema=a&schema=b", "schema"),
            ("postgres://me:secret@h/q?schema=pg_x", "the name of its schema"),
            ("postgres://me:secret@h/q?schema=$user", "the name of its schema"),
            ("postgres://me:secret@h/q?schema=information_schema", "the name of its schema"),
            ("postgres://me:secret@h/q?manifests=here", "manifests"),
            ("postgres://me:secret@one,two/q", "several hosts"),
            ("postgres://me:secret@h:0/q", "port"),
            ("postgres://me:secret@h:x/q", "port"),
            ("postgres://me:secret@[h/q", "bracket"),
            ("postgres://me:secret@h/%4", "%"),
            ("postgres://h/q", "user"),
            ("mysql://me:secret@h/q", "postgres://"),
        ] {
            let refused = Place::parse(url).unwrap_err().to_string();
            assert!(refused.contains(why) && !refused.contains("secret"), "{url}: {refused}");
        }
    }
}
