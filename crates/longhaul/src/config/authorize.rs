//! `key authorize`: one more `[[client]]` in the daemon's config.
//!
//! In: the client from the command line. Out: the file with a block appended, everything else in it
//! as it was, comments too; or an error and the file untouched. Knows nothing of a running daemon.

use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use longhaul_engine::Rights;
use longhaul_net::PublicKey;
use rustix::fs::{FlockOperation, flock};
use toml::Value;

use super::rights::names;
use super::serve::Daemon;
use crate::error::Error;

/// A client to let in.
#[derive(Clone, Debug)]
pub struct NewClient {
    /// The daemon's name for it.
    pub name: String,
    /// Its key.
    pub key: PublicKey,
    /// Its rights, by root.
    pub roots: Vec<(String, Rights)>,
    /// Whether it may measure with `bench net`.
    pub bench: bool,
}

/// Appends the client to the config at `path`, which is made if it does not exist. Returns the
/// roots of the client that the config does not have.
///
/// # Errors
/// [`Error::Authorized`] if the key or the name is there already, [`Error::BeyondRoot`] if a root
/// denies what the client is to have, [`Error::Config`] if the file is broken before or would be
/// after, [`Error::Exposed`], [`Error::File`] if it cannot be read or written.
pub fn authorize(path: &Path, client: &NewClient) -> Result<Vec<String>, Error> {
    // Renaming over a symlink would leave the file that it points to as it was.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let _lock = lock_directory(&path).map_err(Error::file("lock the directory of", &path))?;
    super::strict::check(&path)?;
    let text = match super::read(&path) {
        Err(Error::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => String::new(),
        read => read?,
    };
    let mut roots = Vec::new();
    let daemon = Daemon::parse_alone(&path, &text)?;
    for (root, rights) in &client.roots {
        let Some(known) = daemon.config.roots.iter().find(|known| known.name == *root) else {
            roots.push(root.clone());
            continue;
        };
        let beyond: Vec<_> = names(*rights).into_iter().filter(|right| !names(known.allow).contains(right)).collect();
        if !beyond.is_empty() {
            return Err(Error::BeyondRoot { path, root: root.clone(), rights: beyond });
        }
    }
    for known in &daemon.config.clients {
        let what = match known {
            same if same.key == client.key => "this key",
            same if same.name == client.name => "this name",
            _ => continue,
        };
        return Err(Error::Authorized { path, what, client: known.name.clone() });
    }
    let grown = format!("{}{}", ended(text), block(client));
    Daemon::parse_alone(&path, &grown)?;
    super::replace(&path, &grown)?;
    Ok(roots)
}

/// Locks the directory of the config: two administrators at once must not lose one's client. The
/// file itself cannot be locked, as it is replaced.
pub(super) fn lock_directory(path: &Path) -> io::Result<File> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).map_or(PathBuf::from("."), Path::to_owned);
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    let lock = File::open(dir)?;
    flock(&lock, FlockOperation::LockExclusive)?;
    Ok(lock)
}

fn ended(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

fn block(client: &NewClient) -> String {
    let quoted = |text: &str| Value::String(text.to_owned()).to_string();
    let right = |(root, rights): &(String, Rights)| {
        let words: Vec<String> = names(*rights).iter().map(|word| quoted(word)).collect();
        format!("{} = [{}]", quoted(root), words.join(", "))
    };
    let roots: Vec<String> = client.roots.iter().map(right).collect();
    let (name, key) = (quoted(&client.name), quoted(&client.key.to_string()));
    let mut block = format!("[[client]]\nname  = {name}\nkey   = {key}\n");
    if !roots.is_empty() {
        block += &format!("roots = {{ {} }}\n", roots.join(", "));
    }
    if client.bench {
        block += "bench = true\n";
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use longhaul_net::Identity;

    const READ: Rights = Rights { read: true, create: false, modify: false, delete: false };
    const CONFIG: &str = "# ours\n[[root]]\nname = 'atlas' # big\ntargets = ['/d']";

    fn client(name: &str) -> NewClient {
        let key = Identity::generate().unwrap().public();
        NewClient { name: name.to_owned(), key, roots: vec![("atlas".to_owned(), READ)], bench: false }
    }

    fn config(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("serve.toml");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    #[test]
    fn a_client_is_appended_and_all_else_stays() {
        let (_dir, path) = config(CONFIG);
        let (a, b) = (client("a"), client("b \"quoted\"\n"));
        assert_eq!(authorize(&path, &a).unwrap(), Vec::<String>::new());
        authorize(&path, &b).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with(&format!("{CONFIG}\n\n[[client]]\nname  = \"a\"\n")), "{text}");
        let clients = Daemon::parse_alone(&path, &text).unwrap().config.clients;
        assert_eq!(clients.iter().map(|c| c.key).collect::<Vec<_>>(), [a.key, b.key]);
        assert_eq!(clients[1].name, b.name);
        assert_eq!(clients[0].roots["atlas"], READ);
    }

    #[test]
    fn a_client_may_be_let_in_to_measure_and_for_nothing_else() {
        let (_dir, path) = config(CONFIG);
        authorize(&path, &client("a")).unwrap();
        authorize(&path, &NewClient { roots: Vec::new(), bench: true, ..client("b") }).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        let clients = Daemon::parse_alone(&path, &text).unwrap().config.clients;
        assert_eq!(clients.iter().map(|c| (c.bench, c.roots.len())).collect::<Vec<_>>(), [(false, 1), (true, 0)]);
    }

    #[test]
    fn a_missing_config_is_made_and_unknown_roots_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/serve.toml");
        assert_eq!(authorize(&path, &client("a")).unwrap(), ["atlas"]);
        assert!(std::fs::read_to_string(&path).unwrap().contains("[[client]]"));
    }

    #[test]
    fn a_key_or_name_that_is_there_changes_nothing() {
        let (_dir, path) = config(CONFIG);
        let first = client("a");
        authorize(&path, &first).unwrap();
        let before = std::fs::read_to_string(&path).unwrap();
        let same_key = NewClient { name: "other".to_owned(), ..first.clone() };
        for (again, named) in [(same_key, "this key"), (client("a"), "this name")] {
            let refused = authorize(&path, &again).unwrap_err();
            assert!(matches!(&refused, Error::Authorized { what, .. } if *what == named), "{refused}");
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap(), before);
    }

    #[test]
    fn a_right_that_the_root_denies_is_refused_and_changes_nothing() {
        let (_dir, path) = config(CONFIG);
        let greedy = NewClient { roots: vec![("atlas".to_owned(), Rights { create: true, ..READ })], ..client("a") };
        let refused = authorize(&path, &greedy).unwrap_err();
        assert!(matches!(&refused, Error::BeyondRoot { rights, .. } if *rights == ["create"]), "{refused}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), CONFIG);
    }

    #[test]
    fn a_broken_config_is_not_made_worse() {
        for text in ["nonsense = 1", "client = []", "[[root"] {
            let (_dir, path) = config(text);
            assert!(matches!(authorize(&path, &client("a")), Err(Error::Config { .. })), "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn a_symlinked_config_is_edited_where_it_lies() {
        let (dir, path) = config(CONFIG);
        let link = dir.path().join("link.toml");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        authorize(&link, &client("a")).unwrap();
        assert!(link.is_symlink());
        assert!(std::fs::read_to_string(&path).unwrap().contains("[[client]]"));
    }
}
