//! Owns the socket's file: where it lies, who may change that place, and its end.
//!
//! In: a path. Out: a listener at a socket of mode 0600, in directories that only root and the
//! daemon's user may write to, so that nobody else can put another one there. A socket that a dead
//! daemon left is replaced; one at which somebody listens is not.

#![allow(clippy::disallowed_methods, reason = "it makes and removes the administrator's own socket")]

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use tokio::net::UnixListener;

use crate::config::check_strictly;
use crate::error::{EVERYBODY_WRITES, Error, Exposed};

/// The name of the socket in the directory `state`.
pub const SOCKET_NAME: &str = "admin.sock";

/// A socket at which a daemon listens. It is removed when this is dropped.
#[derive(Debug)]
pub struct AdminSocket {
    /// Accepts.
    pub(super) listener: UnixListener,
    path: PathBuf,
    /// Device and inode of its file.
    id: (u64, u64),
}

/// The path of the socket: the one that is named, else that of the config's own key, else in the
/// directory `state`. `None` if there is none of them.
pub fn place(named: Option<PathBuf>, key: Option<&Path>, state: Option<&Path>) -> Option<PathBuf> {
    named.or_else(|| key.map(Path::to_owned)).or_else(|| state.map(|state| state.join(SOCKET_NAME)))
}

/// Checks that nobody else could put another socket there. Makes nothing.
///
/// # Errors
/// [`Error::Exposed`], [`Error::File`], [`Error::NoSocket`] for another file that stands there.
pub fn check(path: &Path) -> Result<(), Error> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(Error::NoSocket { path: path.to_owned() }),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::file("examine", path)(error)),
        _ => {}
    }
    // The name of a file that does not exist is judged by the directories above it.
    check_strictly(&path.with_file_name(UNUSED_NAME))?;
    refuse_shared(path)
}

/// Refuses a directory in which others may make names, though they cannot take ours away: whoever
/// is there first with this name would be asked in the daemon's place.
fn refuse_shared(path: &Path) -> Result<(), Error> {
    let dir = directory(path);
    let found = match fs::metadata(dir) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(Error::file("examine", dir)(error)),
    };
    let open = found.mode() & EVERYBODY_WRITES;
    if open == 0 {
        return Ok(());
    }
    let (mode, owner, user) = (found.mode() & 0o7777, found.uid(), geteuid().as_raw());
    let exposed = Exposed { path: dir.to_owned(), above: Some(path.to_owned()), mode, owner, open, user };
    Err(Error::Exposed(Box::new(exposed)))
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl AdminSocket {
    /// Listens at `path`; missing directories are made. Needs a runtime.
    ///
    /// # Errors
    /// As [`check`]; [`Error::File`] also where another daemon listens.
    pub fn bind(path: &Path) -> Result<AdminSocket, Error> {
        AdminSocket::bind_as(path, 0o600)
    }

    /// The same with a socket of this mode.
    ///
    /// # Errors
    /// The same.
    pub fn bind_as(path: &Path, mode: u32) -> Result<AdminSocket, Error> {
        let dir = directory(path);
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(Error::file("make the directory", dir))?;
        check(path)?;
        AdminSocket::bind_in(path, mode).map_err(Error::file("listen at the socket", path))
    }

    /// Waits for a connection. Cancelled, it loses none.
    ///
    /// # Errors
    /// The system's.
    pub async fn accept(&self) -> io::Result<tokio::net::UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }

    fn bind_in(path: &Path, mode: u32) -> io::Result<AdminSocket> {
        match UnixStream::connect(path) {
            Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(_) => fs::remove_file(path)?,
        }
        // Nobody else can enter the directory's names, and nobody at all the socket before it has
        // its own name and mode.
        let new = path.with_file_name(format!(".{}.{}", SOCKET_NAME, std::process::id()));
        if let Err(error) = fs::remove_file(&new)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let listener = UnixListener::bind(&new)?;
        fs::set_permissions(&new, PermissionsExt::from_mode(mode))?;
        fs::rename(&new, path)?;
        Ok(AdminSocket { listener, path: path.to_owned(), id: id(path)? })
    }
}

fn id(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        // Another daemon may have its own there by now. If it cannot be removed, the next daemon
        // replaces it.
        if id(&self.path).is_ok_and(|id| id == self.id) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A name that no file has.
const UNUSED_NAME: &str = ".longhaul-admin-check";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_socket_comes_before_the_key_and_that_before_the_state() {
        let (named, key, state) = (PathBuf::from("/n"), Path::new("/k"), Path::new("/s"));
        assert_eq!(place(Some(named.clone()), Some(key), Some(state)), Some(named));
        assert_eq!(place(None, Some(key), Some(state)), Some(key.to_owned()));
        assert_eq!(place(None, None, Some(state)), Some("/s/admin.sock".into()));
        assert_eq!(place(None, None, None), None);
    }

    #[tokio::test]
    async fn a_socket_is_its_users_alone_replaces_a_dead_one_and_goes_with_its_daemon() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/admin.sock");
        fs::create_dir(dir.path().join("state")).unwrap();
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let socket = AdminSocket::bind(&path).unwrap();
        let found = fs::symlink_metadata(&path).unwrap();
        assert!(found.file_type().is_socket() && found.permissions().mode() & 0o777 == 0o600);
        let taken = AdminSocket::bind(&path).unwrap_err();
        assert!(matches!(&taken, Error::File { source, .. } if source.kind() == io::ErrorKind::AddrInUse), "{taken}");
        assert!(path.exists(), "it is not taken away from whoever listens");
        drop(socket);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn no_socket_is_made_where_others_could_put_another_or_a_file_stands() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        fs::create_dir(&open).unwrap();
        for mode in [0o777, 0o1777] {
            fs::set_permissions(&open, PermissionsExt::from_mode(mode)).unwrap();
            let refused = AdminSocket::bind(&open.join("admin.sock")).unwrap_err();
            assert!(matches!(refused, Error::Exposed(_)), "{mode:o}: {refused}");
        }
        let file = dir.path().join("file");
        fs::write(&file, "mine").unwrap();
        let refused = AdminSocket::bind(&file).unwrap_err();
        assert!(matches!(refused, Error::NoSocket { .. }), "{refused}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    }
}
