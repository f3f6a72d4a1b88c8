//! The secret of a set, by which its striped files are believed, and the directories of bodies.
//!
//! In: open directories of targets. Out: the secret, the same on all of them, and what lies beside
//! it. It lies in a directory that is never sent, listed or taken from a peer; it is believed only
//! if it belongs to this user or to root and nobody else may read it. Follows no link.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::destination::Replace;
use crate::error::{DiskError, PathText, SetError};
use crate::fill::read_up_to;
use crate::kernel::Kernel;
use crate::lines::{from_hex, hex};
use crate::names::each_name;
use crate::set::mark::{made_own_dir, own_dir, place};
use crate::stat::type_of;
use crate::stripe::{BODIES_NAME, SECRET_BYTES};
use crate::walk::Dir;

/// The secret of a set.
pub(super) type Secret = [u8; SECRET_BYTES];

/// A new one.
pub(super) fn new() -> Result<Secret, Errno> {
    let mut secret = [0; SECRET_BYTES];
    getrandom::fill(&mut secret).map_err(|_| Errno::AGAIN)?;
    Ok(secret)
}

/// Writes the secret of a new set to the target at `root`, and makes its directory of bodies. All
/// is durable when this returns. `EXIST` if there is a secret: it is never replaced, as bodies may
/// need it.
pub(super) fn write(root: &Dir, secret: &Secret) -> Result<(), Errno> {
    let own = made_own_dir(root)?;
    let text = format!("{HEADER}\n{}\nend\n", hex(secret));
    place_new(root.kernel(), &own, text.as_bytes())?;
    make_bodies(root, &own)
}

/// Gives the target at `root`, which `dir` names, the secret of a set that stands. If it has that
/// already, the rest is made that may be missing.
pub(super) fn copy(root: &Dir, dir: &PathText, secret: &Secret) -> Result<(), DiskError> {
    let failed = |error| DiskError::call("write the secret of", dir, error);
    match write(root, secret) {
        Err(Errno::EXIST) if read(root, dir)? == *secret => {
            let own = made_own_dir(root).map_err(failed)?;
            make_bodies(root, &own).map_err(failed)
        }
        Err(Errno::EXIST) => Err(SetError::HasSecret { dir: dir.clone() }.into()),
        outcome => outcome.map_err(failed),
    }
}

/// Whether anything has the name of the secret on the target at `root`.
pub(super) fn stands(root: &Dir) -> Result<bool, Errno> {
    let Some(own) = own_dir(root)? else { return Ok(false) };
    match statat(&own, SECRET_NAME, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(_) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes the secret and the directory of bodies of a target that has no bodies and belongs to no
/// set any more.
pub(super) fn remove(root: &Dir) -> Result<(), Errno> {
    let (kernel, Some(own)) = (root.kernel(), own_dir(root)?) else { return Ok(()) };
    let gone = |outcome| match outcome {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error),
    };
    match open_bodies(root) {
        Ok(bodies) => {
            gone(kernel.unlinkat(&bodies, README_NAME))?;
            // A crash may have left it.
            gone(kernel.unlinkat(&bodies, &[README_NAME, b".new"].concat()))?;
            gone(kernel.rmdirat(&own, BODIES_NAME))?;
        }
        Err(Errno::NOENT) => {}
        // There may be bodies, which need the secret.
        Err(error) => return Err(error),
    }
    gone(kernel.unlinkat(&own, SECRET_NAME))?;
    kernel.fsync(&own)
}

fn make_bodies(root: &Dir, own: &OwnedFd) -> Result<(), Errno> {
    let kernel = root.kernel();
    match kernel.mkdirat(own, BODIES_NAME, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    let bodies = open_bodies(root)?;
    place(kernel, &bodies, README_NAME, README.as_bytes(), Mode::from_raw_mode(0o644))?;
    kernel.fsync(&bodies)?;
    kernel.fsync(own)?;
    root.sync()
}

/// Writes the secret under a name of its own first, so that two processes do not meet.
fn place_new(kernel: &Kernel, own: &OwnedFd, text: &[u8]) -> Result<(), Errno> {
    // Those that a crash has left: whoever is here holds a lock of the set alone.
    let mut left = Vec::new();
    let listed = openat(own, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    each_name(listed, |name| left.extend(name.starts_with(OWN_NAME).then(|| name.to_vec())))?;
    left.iter().try_for_each(|name| kernel.unlinkat(own, name))?;
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|_| Errno::AGAIN)?;
    let name = [OWN_NAME, hex(&random).as_bytes()].concat();
    place(kernel, own, &name, text, PRIVATE)?;
    kernel.renameat(own, &name, SECRET_NAME, Replace::Never).inspect_err(|_| _ = kernel.unlinkat(own, &name))
}

/// Reads the secret of the target at `root`, which `dir` names.
pub(super) fn read(root: &Dir, dir: &PathText) -> Result<Secret, DiskError> {
    let bad = |why: &str| DiskError::from(SetError::BadSecret { dir: dir.clone(), why: why.to_owned() });
    let failed = |error| DiskError::call("read the secret of", dir, error);
    let own = own_dir(root).map_err(failed)?.ok_or_else(|| bad("there is none"))?;
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = match openat(&own, SECRET_NAME, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Err(bad("there is none")),
        Err(Errno::LOOP) => return Err(bad("it is a symbolic link")),
        Err(error) => return Err(failed(error)),
    };
    let stat = fstat(&fd).map_err(failed)?;
    let is_ours = stat.st_uid == geteuid().as_raw() || stat.st_uid == 0;
    if type_of(&stat) != FileType::RegularFile || stat.st_nlink != 1 || !is_ours {
        return Err(bad("it is no regular file of this user"));
    }
    if stat.st_mode & 0o077 != 0 {
        return Err(bad("other users may read or write it: give it the mode 0600"));
    }
    let mut text = [0; TEXT_BYTES_MAX];
    let len = read_up_to(&fd, &mut text, 0).map_err(failed)?;
    let secret = text[..len].strip_prefix(HEADER.as_bytes()).and_then(|text| text.strip_prefix(b"\n"));
    let secret = secret.and_then(|text| from_hex(text.strip_suffix(b"\nend\n")?));
    secret.ok_or_else(|| bad("it is damaged, or of another version of longhaul"))
}

/// The directory of bodies on the target at `root`.
pub(super) fn open_bodies(root: &Dir) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let own = own_dir(root)?.ok_or(Errno::NOENT)?;
    let bodies = openat(own.as_fd(), BODIES_NAME, flags, Mode::empty())?;
    let stat = fstat(&bodies)?;
    // What another local user may put there is no body of ours.
    let is_ours = (stat.st_uid == geteuid().as_raw() || stat.st_uid == 0) && stat.st_mode & 0o022 == 0;
    if is_ours { Ok(bodies) } else { Err(Errno::PERM) }
}

/// The same, to be listed. `None`: there is none.
pub(super) fn listed_bodies(root: &Dir) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Some(own) = own_dir(root)? else { return Ok(None) };
    match openat(&own, BODIES_NAME, flags, Mode::empty()) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

const SECRET_NAME: &[u8] = b"secret";
/// The start of the name of a secret until it has its own.
const OWN_NAME: &[u8] = b"secret-";
const README_NAME: &[u8] = b"README";
const HEADER: &str = "longhaul set secret 1";
const TEXT_BYTES_MAX: usize = 256;
const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);
const README: &str = "\
The files in this directory are bodies: the content of large files whose chunks lie on all targets
of a longhaul target set. Each has the name that the stripe file, which stands under the file's own
name in the tree of one target, tells. Do not rename, copy or remove them: `longhaul set` does that.
";
