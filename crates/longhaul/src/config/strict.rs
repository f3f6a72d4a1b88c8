//! Whether a file that decides who is trusted can be changed by somebody else: its owner and mode, and those of every
//! directory above it, as `sshd` does with `StrictModes`.
//!
//! In: the path of a config, an identity or a known-hosts file. Out: nothing, or the first path that is open to others and the
//! command that mends it. A directory that others may write to is fine if it is sticky, as `/tmp` is: nobody can take the next
//! name away from its owner there. What is no regular file (`/dev/null`, a pipe) is the caller's own doing.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use crate::error::Error;

/// Refuses a file that somebody else could have written, or could put another in place of. One that does not stand yet is judged
/// by the directories that do.
///
/// # Errors
/// [`Error::Exposed`] with the first path that is open to others; [`Error::File`] if one cannot be examined.
pub fn check(path: &Path) -> Result<(), Error> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => return Ok(()),
        Ok(_) => {
            let real = path.canonicalize().map_err(Error::file("find", path))?;
            check_one(path, &real)?;
            check_above(path, &real)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::file("examine", path)(error)),
    }
    // A link may lie elsewhere than what it leads to.
    let mut dir = path.parent();
    while let Some(above) = dir {
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        if let Ok(real) = above.canonicalize() {
            check_one(path, &real)?;
            return check_above(path, &real);
        }
        dir = above.parent();
    }
    Ok(())
}

fn check_above(file: &Path, real: &Path) -> Result<(), Error> {
    real.ancestors().skip(1).try_for_each(|dir| check_one(file, dir))
}

/// Judges one path; `file` is what is at stake.
fn check_one(file: &Path, at: &Path) -> Result<(), Error> {
    let metadata = fs::metadata(at).map_err(Error::file("examine", at))?;
    let (mode, owner) = (metadata.mode() & 0o7777, metadata.uid());
    let is_open = mode & OTHERS_WRITE != 0 && !(metadata.is_dir() && mode & STICKY != 0);
    if !is_open && is_believed(owner) {
        return Ok(());
    }
    let above = if metadata.is_dir() { Some(file.to_owned()) } else { None };
    Err(Error::Exposed(Box::new(Exposed { path: at.to_owned(), above, mode, owner, is_open })))
}

/// A path that somebody else can change.
#[derive(Debug)]
pub struct Exposed {
    path: PathBuf,
    /// The file that lies beneath it. `None`: it is the file itself.
    above: Option<PathBuf>,
    mode: u32,
    owner: u32,
    /// Its mode opens it, not its owner.
    is_open: bool,
}

impl std::fmt::Display for Exposed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Exposed { path, above, mode, owner, is_open } = self;
        let who = match mode & OTHERS_WRITE {
            _ if !is_open => "is in the hands of another user",
            OTHERS_WRITE => "may be written by its group and by everybody",
            EVERYBODY_WRITES => "may be written by everybody",
            _ => "may be written by its group",
        };
        write!(f, "{} {who} (mode {mode:04o}, owner {owner})", path.display())?;
        match above {
            Some(file) => write!(f, ", so {} is not believed", file.display()),
            None => write!(f, ", so it is not believed"),
        }
    }
}

impl Exposed {
    /// The command that mends it.
    pub(crate) fn hint(&self) -> String {
        let path = self.path.display();
        if !self.is_open {
            return format!("chown {} {path}", geteuid().as_raw());
        }
        let whose = match self.mode & OTHERS_WRITE {
            OTHERS_WRITE => "go",
            EVERYBODY_WRITES => "o",
            _ => "g",
        };
        format!("chmod {whose}-w {path}")
    }
}

/// Whether an owner is this user or one who could do anything anyway.
fn is_believed(owner: u32) -> bool {
    owner == 0 || owner == geteuid().as_raw() || owner == UNMAPPED && is_in_user_namespace()
}

/// Whether users outside of this namespace, root among them, are shown as nobody.
fn is_in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().ne(["0", "0", "4294967295"])
}

const OTHERS_WRITE: u32 = 0o022;
const EVERYBODY_WRITES: u32 = 0o002;
const STICKY: u32 = 0o1000;
/// The kernel's overflow user (`/proc/sys/kernel/overflowuid`), which nobody changes.
const UNMAPPED: u32 = 65534;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    /// A directory in a directory, with a file in it.
    fn scene() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().canonicalize().unwrap().join("a/b");
        fs::create_dir_all(&dir).unwrap();
        mode(&dir, 0o755);
        mode(dir.parent().unwrap(), 0o755);
        let file = dir.join("serve.toml");
        fs::write(&file, "").unwrap();
        mode(&file, 0o644);
        (top, dir, file)
    }

    fn refusal(path: &Path) -> (String, String) {
        let Err(Error::Exposed(exposed)) = check(path) else { panic!("{} is believed", path.display()) };
        (exposed.to_string(), exposed.hint())
    }

    #[test]
    fn a_file_that_others_may_write_is_refused_with_the_command_that_mends_it() {
        let (_top, _, file) = scene();
        check(&file).unwrap();
        for (bits, hint) in [(0o664, "chmod g-w"), (0o646, "chmod o-w"), (0o666, "chmod go-w"), (0o1622, "chmod go-w")]
        {
            mode(&file, bits);
            let (said, mends) = refusal(&file);
            assert!(said.contains(&format!("mode {bits:04o}")), "{said}");
            assert_eq!(mends, format!("{hint} {}", file.display()));
        }
    }

    #[test]
    fn a_directory_that_others_may_write_at_any_height_is_refused_unless_it_is_sticky() {
        let (_top, dir, file) = scene();
        for at in [dir.as_path(), dir.parent().unwrap()] {
            for (bits, fine) in [(0o775, false), (0o757, false), (0o777, false), (0o1777, true), (0o755, true)] {
                mode(at, bits);
                for path in [&file, &dir.join("missing"), &dir.join("to/be/made")] {
                    assert_eq!(check(path).is_ok(), fine, "{bits:o} {}", path.display());
                }
            }
        }
        mode(&dir, 0o777);
        let (said, mends) = refusal(&file);
        assert!(said.contains(&format!("so {} is not believed", file.display())), "{said}");
        assert_eq!(mends, format!("chmod go-w {}", dir.display()));
    }

    #[test]
    fn of_a_link_both_places_count() {
        let (_top, dir, file) = scene();
        let (_other, elsewhere, _) = scene();
        let link = elsewhere.join("link");
        symlink(&file, &link).unwrap();
        check(&link).unwrap();
        mode(&elsewhere, 0o777);
        assert!(refusal(&link).0.contains("link is not believed"));
        mode(&elsewhere, 0o755);
        mode(&dir, 0o777);
        assert!(refusal(&link).0.contains("link is not believed"));
    }

    #[test]
    fn another_users_file_or_directory_is_refused() {
        if !geteuid().is_root() {
            return;
        }
        let (_top, dir, file) = scene();
        for at in [&file, &dir] {
            chown(at, Some(12345), None).unwrap();
            let (said, mends) = refusal(&file);
            assert!(said.contains("another user") && said.contains("owner 12345"), "{said}");
            assert_eq!(mends, format!("chown 0 {}", at.display()));
            chown(at, Some(0), None).unwrap();
        }
    }

    #[test]
    fn what_is_no_file_is_the_callers_own_doing() {
        check(Path::new("/dev/null")).unwrap();
    }
}
