//! `key revoke`: one `[[client]]` less in the daemon's config.
//!
//! In: a client's key or name. Out: the file without its block, in the place of which a comment
//! says so, and everything else as it was, comments too; or an error and the file untouched. An
//! edit counts only if the file means the same as before but for this client. Knows nothing of a
//! running daemon.

use std::path::Path;

use longhaul_net::PublicKey;
use toml::Value;

use super::authorize::lock_directory;
use super::serve::Daemon;
use crate::error::Error;

/// Takes the client of this key or name out of the config at `path`. Returns its name.
///
/// # Errors
/// [`Error::NoSuchClient`], [`Error::NotEditable`] if it stands there in another form than a table
/// of its own, [`Error::Config`] if the file is broken, [`Error::Exposed`], [`Error::File`] if it
/// cannot be read or written.
pub fn revoke(path: &Path, client: &str) -> Result<String, Error> {
    // Renaming over a symlink would leave the file that it points to as it was.
    let path = path.canonicalize().map_err(Error::file("read", path))?;
    let _lock = lock_directory(&path).map_err(Error::file("lock the directory of", &path))?;
    super::strict::check(&path)?;
    let text = super::read(&path)?;
    let daemon = Daemon::parse_alone(&path, &text)?;
    let key: Option<PublicKey> = client.parse().ok();
    let meant = daemon.config.clients.iter().position(|known| key == Some(known.key) || known.name == client);
    let Some(number) = meant else { return Err(Error::NoSuchClient { path }) };
    let name = daemon.config.clients[number].name.clone();
    let shorter = without_block(&text, number, &name).filter(|shorter| {
        let left = Daemon::parse_alone(&path, shorter).ok();
        left.is_some_and(|left| is_same_without(&daemon, number, &left))
    });
    match shorter {
        Some(shorter) => super::replace(&path, &shorter).map(|()| name),
        None => Err(Error::NotEditable { path, client: name }),
    }
}

/// Whether a config means the same as another one without its client of this number.
fn is_same_without(daemon: &Daemon, number: usize, left: &Daemon) -> bool {
    let mut wanted = daemon.config.clone();
    wanted.clients.remove(number);
    let others = |daemon: &Daemon| {
        (daemon.identity.clone(), daemon.state.clone(), daemon.admin_socket.clone(), daemon.watching.clone())
    };
    format!("{wanted:?}") == format!("{:?}", left.config) && others(daemon) == others(left)
}

/// The text without the lines of the table of a client. Comments and empty lines that stand before
/// the next table belong to that.
fn without_block(text: &str, number: usize, name: &str) -> Option<String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let begins = |line: &str| header(line).is_some_and(|(brackets, name)| brackets == 2 && name == "client");
    let first = lines.iter().enumerate().filter(|(_, line)| begins(line)).map(|(at, _)| at).nth(number)?;
    let is_other = |line: &str| header(line).is_some_and(|(_, name)| !name.starts_with("client.")) || begins(line);
    let next = lines[first + 1..].iter().position(|line| is_other(line)).map_or(lines.len(), |at| first + 1 + at);
    let says_nothing = |line: &&&str| line.trim().is_empty() || line.trim_start().starts_with('#');
    let last = next - lines[first..next].iter().rev().take_while(says_nothing).count();
    let name = Value::String(name.escape_debug().to_string()).to_string();
    let note = format!("# The client {name} was taken out by 'longhaul key revoke'.\n");
    Some([&lines[..first].concat(), &note, &lines[last..].concat()].map(String::as_str).concat())
}

/// Brackets and name of a line that begins a table.
fn header(line: &str) -> Option<(usize, String)> {
    let line = line.trim_start();
    let brackets = line.chars().take_while(|c| *c == '[').count();
    let (name, _) = line[brackets..].split_once(']')?;
    let bare: String = name.chars().filter(|c| !c.is_whitespace() && !matches!(c, '"' | '\'')).collect();
    (brackets == 1 || brackets == 2).then_some((brackets, bare))
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_net::Identity;

    fn file(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("serve.toml");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    fn keys() -> [String; 2] {
        [(); 2].map(|()| Identity::generate().unwrap().public().to_string())
    }

    /// Two clients, the second one with a table of its own for its rights.
    fn text([a, b]: &[String; 2]) -> String {
        format!(
            "# ours\n[[root]]\nname = 'r'\ntargets = ['/d']\n\n# Alice, until May\n[[client]]\nname = 'alice' # hers\n\
             key = '{a}'\nroots = {{ r = ['read'] }}\n\n# Bob\n  [[ client ]] # his\nname = 'bob'\nkey = '{b}'\n\
             [client.roots]\nr = [\n  'read',\n]\n\n# Bounds\n[limits]\nsessions = 3\n# the end\n"
        )
    }

    #[test]
    fn a_client_is_taken_out_by_name_or_key_and_all_else_stays() {
        let keys = keys();
        let whole = text(&keys);
        let note = |name: &str| format!("# The client \"{name}\" was taken out by 'longhaul key revoke'.\n");
        for (meant, name, from, to) in [
            ("alice", "alice", "[[client]]\nname = 'alice'", "\n# Bob\n"),
            (keys[0].as_str(), "alice", "[[client]]\nname = 'alice'", "\n# Bob\n"),
            ("bob", "bob", "  [[ client ]]", "\n# Bounds\n"),
        ] {
            let (_dir, path) = file(&whole);
            assert_eq!(revoke(&path, meant).unwrap(), name);
            let (from, to) = (whole.find(from).unwrap(), whole.find(to).unwrap());
            let want = format!("{}{}{}", &whole[..from], note(name), &whole[to..]);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), want, "{meant}");
        }
    }

    #[test]
    fn whatever_cannot_be_taken_out_safely_changes_nothing() {
        let keys = keys();
        let inline = format!("client = [{{ name = 'alice', key = '{}' }}]\n", keys[0]);
        let hidden = format!("{}identity = \"\"\"\n[[client]]\n\"\"\"\n", "") + &text(&keys);
        for (text, meant) in
            [(inline, "alice"), (hidden, "bob"), (text(&keys), "carol"), ("[[client".to_owned(), "alice")]
        {
            let (_dir, path) = file(&text);
            let refused = revoke(&path, meant).unwrap_err();
            let known =
                matches!(refused, Error::NotEditable { .. } | Error::NoSuchClient { .. } | Error::Config { .. });
            assert!(known, "{refused}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
