//! Finds out whether a destination of this host lies in a directory that is to be sent: its scan
//! would find the files that were just written.
//!
//! Takes paths as the operator named them; gives the path from the source down to the destination.
//! Directories are told by device and inode, so neither links nor bind mounts hide one in the
//! other. Makes and changes nothing; knows nothing of filters.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use longhaul_core::RelPath;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlink, statat};

use crate::error::ErrorKind;
use crate::source::SourceSpec;
use crate::stat::{dev_of, type_of};
use crate::walk::Dir;

/// The path down from the directory that `source` names to `dest`, which need not exist yet. It is
/// the root if they are the same, or if the names between cannot be told. `None` if `dest` does not
/// lie in it, or `source` is no directory.
pub fn way_into(source: &SourceSpec, dest: &Path) -> Option<RelPath> {
    let top = directory_of(source)?;
    let (dir, missing) = deepest_standing(dest)?;
    let levels = levels_below(&dir, top)?;
    Some(names_below(&dir, levels, &missing).unwrap_or_default())
}

/// The device and inode of a directory.
type DirectoryId = (u64, u64);

/// The directory that a scan of `source` begins with. A link is sent as a link unless its content
/// was asked for.
fn directory_of(source: &SourceSpec) -> Option<DirectoryId> {
    let is_name = !source.contents && source.path.file_name().is_some();
    let flags = if is_name { AtFlags::SYMLINK_NOFOLLOW } else { AtFlags::empty() };
    let stat = statat(CWD, &source.path, flags).ok()?;
    (type_of(&stat) == FileType::Directory).then(|| place(&stat))
}

/// The directory that stands at `path`, or the nearest above it that does, with the names that are
/// missing then, the last first.
fn deepest_standing(path: &Path) -> Option<(Dir, Vec<PathBuf>)> {
    let mut missing = Vec::new();
    let mut at = path;
    loop {
        match Dir::open_named(at) {
            Ok(dir) => return Some((dir, missing)),
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return None,
            Err(_) => {}
        }
        // `..` as a last name has none of its own; the names between cannot be told then.
        missing.push(at.file_name().map_or_else(|| PathBuf::from(".."), PathBuf::from));
        at = match at.parent() {
            Some(above) if !above.as_os_str().is_empty() => above,
            Some(_) if at != Path::new(".") => Path::new("."),
            _ => return None,
        };
    }
}

/// The number of levels that `dir` lies below `top`. `None` if it does not.
fn levels_below(dir: &Dir, top: DirectoryId) -> Option<usize> {
    let mut at = place(&fstat(dir).ok()?);
    let mut above: Option<OwnedFd> = None;
    for levels in 0.. {
        if at == top {
            return Some(levels);
        }
        let fd = above.as_ref().map_or_else(|| dir.as_fd(), AsFd::as_fd);
        let up = openat(fd, c"..", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        let next = place(&fstat(&up).ok()?);
        if next == at {
            return None;
        }
        (at, above) = (next, Some(up));
    }
    None
}

/// The last `levels` names of the path of `dir` as the system knows it, and the missing ones below.
fn names_below(dir: &Dir, levels: usize, missing: &[PathBuf]) -> Option<RelPath> {
    let path = readlink(format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd()), Vec::new()).ok()?.into_bytes();
    let names: Vec<&[u8]> = path.split(|&b| b == b'/').filter(|name| !name.is_empty()).collect();
    let standing = &names[names.len().checked_sub(levels)?..];
    let missing = missing.iter().rev().map(|name| name.as_os_str().as_encoded_bytes());
    RelPath::new(standing.iter().copied().chain(missing).collect::<Vec<_>>().join(&b'/')).ok()
}

#[allow(clippy::unnecessary_cast, reason = "the field's type differs between architectures")]
fn place(stat: &Stat) -> DirectoryId {
    (dev_of(stat), stat.st_ino as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// The way into `source` from a top with `a/b/c`, `ab` and the file `a/f` in it, and links to
    /// `a` and `a/b`.
    fn way(source: &str, contents: bool, dest: &str) -> Option<String> {
        let top = tempfile::tempdir().expect("tempdir");
        std::fs::create_dir_all(top.path().join("a/b/c")).expect("dirs");
        std::fs::create_dir(top.path().join("ab")).expect("dir");
        std::fs::write(top.path().join("a/f"), b"").expect("file");
        symlink("a", top.path().join("link")).expect("link");
        symlink("../a/b", top.path().join("ab/deep")).expect("link");
        let spec = SourceSpec { path: top.path().join(source), contents };
        way_into(&spec, &top.path().join(dest)).map(|way| way.escaped().to_string())
    }

    #[test]
    fn a_destination_within_is_found_with_the_way_to_it_wherever_it_ends() {
        for (dest, expected) in
            [("a", "."), ("a/b", "b"), ("a/b/c", "b/c"), ("a/new", "new"), ("a/b/new/er", "b/new/er"), ("a/f", "f")]
        {
            assert_eq!(way("a", false, dest).as_deref(), Some(expected), "{dest}");
            assert_eq!(way("a", true, dest).as_deref(), Some(expected), "{dest}");
        }
    }

    #[test]
    fn what_lies_beside_or_above_is_not_within() {
        for dest in [".", "ab", "ab/new", "new", "a/.."] {
            assert_eq!(way("a", true, dest), None, "{dest}");
        }
        assert_eq!(way("a/f", false, "a/f"), None, "a file is no directory");
        assert_eq!(way("gone", true, "gone/x"), None);
    }

    #[test]
    fn links_hide_nothing() {
        assert_eq!(way("a", false, "ab/deep/x").as_deref(), Some("b/x"));
        assert_eq!(way("link", true, "a/b").as_deref(), Some("b"));
        assert_eq!(way("link", false, "a/b"), None, "the link itself is sent");
    }
}
