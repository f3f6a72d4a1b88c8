//! The places of the files of this user and of the daemon.
//!
//! In: variables. Out: paths to `config`, `keys` and `commands`. Opens nothing.

use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use crate::error::Error;
use crate::values::Environment;

/// The directories of this user and of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    user: Option<PathBuf>,
    state: Option<PathBuf>,
    system: PathBuf,
    /// The service manager's copies of secrets, which this process alone can read.
    credentials: Option<PathBuf>,
    /// Whether this is root without a directory of its own for configuration: its daemon is the
    /// system's.
    is_system: bool,
}

impl Places {
    /// The directories by these variables: `$XDG_CONFIG_HOME/longhaul`, else
    /// `$HOME/.config/longhaul`; `$XDG_STATE_HOME/longhaul`, else
    /// `$HOME/.local/state/longhaul`; and `/etc/longhaul`. A variable that is no absolute path
    /// counts as unset, as the XDG specification says.
    pub fn of(environment: Environment) -> Places {
        let absolute = |name| environment(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || absolute("HOME").map(|home| home.join(".config"));
        let local = || absolute("HOME").map(|home| home.join(".local/state"));
        let state = absolute("XDG_STATE_HOME").or_else(local).map(|state| state.join("longhaul"));
        let user = absolute("XDG_CONFIG_HOME").or_else(home).map(|config| config.join("longhaul"));
        let is_system = geteuid().is_root() && environment("XDG_CONFIG_HOME").is_none();
        let credentials = absolute("CREDENTIALS_DIRECTORY");
        Places { user, state, system: PathBuf::from("/etc/longhaul"), credentials, is_system }
    }

    /// A file of this user.
    ///
    /// # Errors
    /// [`Error::NoHome`] if neither variable is set.
    pub fn of_user(&self, name: &'static str) -> Result<PathBuf, Error> {
        self.user.as_ref().map(|dir| dir.join(name)).ok_or(Error::NoHome { what: name })
    }

    /// The file in which this user's runs keep what they found out about paths. `None` if the user
    /// has no place for it.
    pub fn paths(&self) -> Option<PathBuf> {
        self.state.as_ref().map(|dir| dir.join("paths.json"))
    }

    /// The file of this user's queue of campaigns. `None` if the user has no place for it.
    pub fn queue(&self) -> Option<PathBuf> {
        self.state.as_ref().map(|dir| dir.join("queue.db"))
    }

    /// The catalogue of checksums of this user's files, where their file systems do not keep them.
    /// `None` if the user has no place for it.
    pub fn checksums(&self) -> Option<PathBuf> {
        self.in_state(CHECKSUMS)
    }

    /// A file or directory of this user's state. `None` if the user has no place for it.
    pub fn in_state(&self, name: &str) -> Option<PathBuf> {
        self.state.as_ref().map(|dir| dir.join(name))
    }

    /// The client's config file. `None` if the user has no place for it.
    pub fn client_config(&self) -> Option<PathBuf> {
        self.user.as_ref().map(|dir| dir.join("config.toml"))
    }

    /// The file of this user's hooks. `None` if the user has no place for it.
    pub fn hooks(&self) -> Option<PathBuf> {
        self.user.as_ref().map(|dir| dir.join("hooks.toml"))
    }

    /// The daemon's config: the named one, else the system's if it exists, else this user's.
    ///
    /// # Errors
    /// [`Error::NoHome`] if none was named, the system has none and the user has no place for it.
    pub fn serve_config(&self, named: Option<PathBuf>) -> Result<PathBuf, Error> {
        let system = self.system.join(SERVE_CONFIG);
        match named {
            Some(path) => Ok(path),
            None if system.exists() => Ok(system),
            None => self.of_user(SERVE_CONFIG),
        }
    }

    /// The daemon's config that is to be changed: the one that a daemon would read. If there is
    /// none yet, root begins the system's.
    ///
    /// # Errors
    /// As [`Places::serve_config`].
    pub fn serve_config_to_edit(&self, named: Option<PathBuf>) -> Result<PathBuf, Error> {
        if !self.is_system || named.is_some() {
            return self.serve_config(named);
        }
        let read = self.serve_config(None).ok().filter(|read| read.exists());
        Ok(read.unwrap_or_else(|| self.system.join(SERVE_CONFIG)))
    }

    /// The error for a daemon that has no config in any of the searched places.
    pub fn no_serve_config(&self) -> Error {
        let looked_for = [Some(&self.system), self.user.as_ref()].into_iter().flatten();
        let missing = |dir: &PathBuf| format!("{} does not exist", dir.join(SERVE_CONFIG).display());
        Error::NoServeConfig { looked_for: looked_for.map(missing).collect() }
    }

    /// The daemon's identity when its config names none: the one that the service manager hands
    /// over, or beside a config in one of the two standard places, else this user's own.
    ///
    /// # Errors
    /// [`Error::NoHome`] if the user has no place for it.
    pub fn serve_identity(&self, config: Option<&Path>) -> Result<PathBuf, Error> {
        let handed_over = self.credentials.as_ref().map(|dir| dir.join(IDENTITY)).filter(|path| path.exists());
        if let Some(identity) = handed_over {
            return Ok(identity);
        }
        match config {
            Some(path) if path == self.system.join(SERVE_CONFIG) => Ok(self.system.join(IDENTITY)),
            _ => self.of_user(IDENTITY),
        }
    }
}

/// The name of the catalogue of checksums in a directory of state.
pub const CHECKSUMS: &str = "checksums";
const SERVE_CONFIG: &str = "serve.toml";
const IDENTITY: &str = "identity";

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn places(pairs: &[(&str, &str)]) -> Places {
        Places::of(&|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)))
    }

    #[test]
    fn the_users_files_lie_where_xdg_says() {
        let both = places(&[("XDG_CONFIG_HOME", "/x"), ("HOME", "/h")]);
        assert_eq!(both.of_user("identity").unwrap(), PathBuf::from("/x/longhaul/identity"));
        let home = places(&[("XDG_CONFIG_HOME", "relative"), ("HOME", "/h")]);
        assert_eq!(home.client_config(), Some("/h/.config/longhaul/config.toml".into()));
        assert!(matches!(places(&[]).of_user("identity"), Err(Error::NoHome { what: "identity" })));
    }

    #[test]
    fn what_runs_find_out_lies_where_xdg_says() {
        let found = |pairs: &[(&str, &str)]| places(pairs).paths();
        assert_eq!(found(&[("XDG_STATE_HOME", "/s"), ("HOME", "/h")]), Some("/s/longhaul/paths.json".into()));
        assert_eq!(
            found(&[("XDG_STATE_HOME", "relative"), ("HOME", "/h")]),
            Some("/h/.local/state/longhaul/paths.json".into())
        );
        assert_eq!(found(&[]), None);
    }

    #[test]
    fn root_begins_the_systems_config_unless_it_names_a_place_of_its_own() {
        let own = places(&[("XDG_CONFIG_HOME", "/x"), ("HOME", "/h")]);
        let begun = |places: &Places| places.serve_config_to_edit(None).unwrap();
        assert_eq!(begun(&Places { system: "/none".into(), ..own }), PathBuf::from("/x/longhaul/serve.toml"));
        let any = Places { system: "/none".into(), ..places(&[("HOME", "/h")]) };
        let dir = if geteuid().is_root() { "/none" } else { "/h/.config/longhaul" };
        assert_eq!(begun(&any), Path::new(dir).join("serve.toml"));
        assert_eq!(any.serve_config_to_edit(Some("/y.toml".into())).unwrap(), PathBuf::from("/y.toml"));
        let home = tempfile::tempdir().unwrap();
        let used = home.path().join(".config/longhaul/serve.toml");
        std::fs::create_dir_all(used.parent().unwrap()).unwrap();
        std::fs::write(&used, "").unwrap();
        let running = Places { system: "/none".into(), ..places(&[("HOME", home.path().to_str().unwrap())]) };
        assert_eq!(begun(&running), used, "the one that a daemon reads so far");
        let said = any.no_serve_config().to_string();
        assert!(said.contains("/none/serve.toml") && said.contains("/h/.config/longhaul/serve.toml"), "{said}");
    }

    #[test]
    fn an_identity_that_the_service_manager_hands_over_is_the_daemons() {
        let handed_over = tempfile::tempdir().unwrap();
        let dir = handed_over.path().to_str().unwrap();
        let places = places(&[("XDG_CONFIG_HOME", "/x"), ("CREDENTIALS_DIRECTORY", dir)]);
        let system = Path::new("/etc/longhaul/serve.toml");
        assert_eq!(places.serve_identity(Some(system)).unwrap(), PathBuf::from("/etc/longhaul/identity"));
        let identity = handed_over.path().join("identity");
        std::fs::write(&identity, "").unwrap();
        assert_eq!(places.serve_identity(Some(system)).unwrap(), identity);
        assert_eq!(places.of_user("identity").unwrap(), PathBuf::from("/x/longhaul/identity"), "a client has its own");
    }

    #[test]
    fn a_named_daemon_config_wins_and_uses_the_users_identity() {
        let places = places(&[("XDG_CONFIG_HOME", "/x")]);
        assert_eq!(places.serve_config(Some("/y/z.toml".into())).unwrap(), PathBuf::from("/y/z.toml"));
        assert_eq!(places.serve_identity(Some(Path::new("/y/z.toml"))).unwrap(), PathBuf::from("/x/longhaul/identity"));
        let system = Path::new("/etc/longhaul/serve.toml");
        assert_eq!(places.serve_identity(Some(system)).unwrap(), PathBuf::from("/etc/longhaul/identity"));
    }
}
