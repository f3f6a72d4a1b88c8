//! Files of passwords, as PostgreSQL's own programs read them.
//!
//! In: a file, and who is dialled. Out: the password of the first line that fits. A file that
//! others can read is refused. Must not know where such files lie by custom.

#![allow(clippy::disallowed_methods, reason = "the file is this side's own: no root holds it and no peer names it")]

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use zeroize::Zeroizing;

use crate::error::PostgresError;

/// The server and the user that a password is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    /// The host, as it is dialled.
    pub(crate) host: &'a str,
    /// Its port.
    pub(crate) port: u16,
    /// The database.
    pub(crate) database: &'a str,
    /// The user.
    pub(crate) user: &'a str,
}

/// The password that a file has, if it has one. `None` as well if there is no such file.
pub(crate) fn password(path: &Path, asked: Asked) -> Result<Option<Zeroizing<String>>, PostgresError> {
    let failed = |why: String| PostgresError::PassFile { path: path.to_owned(), why };
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|error| failed(error.to_string()))?,
    };
    let found = file.metadata().map_err(|error| failed(error.to_string()))?;
    if !found.is_file() {
        return Err(failed("it is no file".to_owned()));
    }
    if found.mode() & OTHERS != 0 {
        return Err(failed("others can read it: take their rights away (chmod 600)".to_owned()));
    }
    let mut text = Zeroizing::new(String::new());
    let read = file.take(FILE_BYTES).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    if read as u64 == FILE_BYTES {
        return Err(failed("it is larger than a megabyte".to_owned()));
    }
    Ok(text.lines().find_map(|line| of_line(line, asked)))
}

/// The password of a line `host:port:database:user:password`, if it fits.
fn of_line(line: &str, asked: Asked) -> Option<Zeroizing<String>> {
    if line.starts_with('#') {
        return None;
    }
    let (mut fields, mut field) = (Vec::new(), Zeroizing::new(String::new()));
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ':' if fields.len() < 4 => fields.push(std::mem::take(&mut *field)),
            '\\' => field.extend(letters.next()),
            letter => field.push(letter),
        }
    }
    let port = asked.port.to_string();
    let wanted = [asked.host, &port, asked.database, asked.user];
    let fits = fields.len() == 4 && fields.iter().zip(wanted).all(|(field, wanted)| field == "*" || field == wanted);
    fits.then_some(field)
}

/// The rights of others than the owner.
const OTHERS: u32 = 0o077;
/// Bytes of a file that are read.
const FILE_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const ASKED: Asked<'_> = Asked { host: "db.example", port: 5432, database: "q", user: "mover" };

    fn of(line: &str) -> Option<String> {
        of_line(line, ASKED).map(|password| password.to_string())
    }

    #[test]
    fn the_first_line_that_fits_has_the_password() {
        assert_eq!(of("db.example:5432:q:mover:secret").as_deref(), Some("secret"));
        assert_eq!(of("*:*:*:mover:se\\:c\\\\ret:more").as_deref(), Some("se:c\\ret:more"));
        for other in ["db.example:5433:q:mover:x", "db:*:*:*:x", "#*:*:*:*:x", "*:*:*:x", "*:*:*:other:x", ""] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_and_one_that_is_not_there_has_none() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pass");
        assert!(password(&path, ASKED).unwrap().is_none());
        std::fs::write(&path, "# mine\nother:*:*:*:no\n*:*:*:*:yes\n").unwrap();
        let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        mode(0o640);
        let refused = password(&path, ASKED).unwrap_err().to_string();
        assert!(refused.contains("others can read it") && refused.contains("pass"), "{refused}");
        mode(0o600);
        assert_eq!(password(&path, ASKED).unwrap().unwrap().as_str(), "yes");
    }
}
