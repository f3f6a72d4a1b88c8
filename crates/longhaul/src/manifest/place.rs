//! The place of a manifest: a regular file, which is replaced as a whole, or anything else that can
//! be written to, which is not.
//!
//! In: the path of `--manifest`. Out: a [`ManifestPlace`] that takes the finished lines. Links are
//! followed to their targets; a descriptor of this process is written to as it stands. Knows
//! nothing of the content of lines.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The place that takes the lines.
#[derive(Debug)]
pub(super) enum ManifestPlace {
    /// Standard output.
    Stdout,
    /// A pipe, a fifo, a device, or an open file of some process.
    Stream(File),
    /// A regular file, or a free name: its path without links at its end.
    File(PathBuf),
}

impl ManifestPlace {
    /// Finds the kind of `path`, and opens it unless it is a regular file. A fifo waits for its
    /// reader.
    pub(super) fn find(path: &Path) -> io::Result<ManifestPlace> {
        if path == Path::new("-") {
            return Ok(ManifestPlace::Stdout);
        }
        let mut path = path.to_owned();
        for _ in 0..LINKS_MAX {
            if let Some((descriptors, number)) = descriptor(&path) {
                let own = fs::canonicalize("/proc/self/fd").is_ok_and(|own| own == descriptors);
                let is_stdout = own && number == "1";
                return if is_stdout { Ok(ManifestPlace::Stdout) } else { open(&path).map(ManifestPlace::Stream) };
            }
            match fs::symlink_metadata(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(ManifestPlace::File(path)),
                Err(error) => return Err(error),
                Ok(found) if found.is_symlink() => {
                    let target = fs::read_link(&path)?;
                    path = parent(&path).join(target);
                }
                Ok(found) if found.is_file() => return Ok(ManifestPlace::File(path)),
                Ok(found) if found.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
                Ok(found) if found.file_type().is_socket() => {
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a socket"));
                }
                Ok(_) => return open(&path).map(ManifestPlace::Stream),
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidInput, "too many levels of symbolic links"))
    }

    /// The regular file that takes the lines. `None` for other places.
    pub(super) fn file(&self) -> Option<&Path> {
        if let ManifestPlace::File(path) = self { Some(path) } else { None }
    }

    /// Whether standard output takes them.
    pub(super) fn is_stdout(&self) -> bool {
        matches!(self, ManifestPlace::Stdout)
    }

    /// Whether it is the file that stands at `other`.
    pub(super) fn is_file_at(&self, other: &Path) -> bool {
        let ManifestPlace::File(path) = self else { return false };
        let same = |a: fs::Metadata, b: fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
        fs::metadata(path).is_ok_and(|here| fs::metadata(other).is_ok_and(|there| same(here, there)))
    }

    /// The directory in which lines may wait: the one that they go to, or the next above it that
    /// exists. `None` if they go to no file.
    pub(super) fn nearest_dir(&self) -> Option<PathBuf> {
        let ManifestPlace::File(path) = self else { return None };
        let mut dir = parent(path);
        while !dir.is_dir() && dir.parent().is_some() {
            dir = parent(dir);
        }
        Some(dir.to_owned())
    }

    /// Whether the directory exists that it lies in.
    pub(super) fn has_dir(&self) -> bool {
        if let ManifestPlace::File(path) = self { parent(path).is_dir() } else { true }
    }

    /// Takes all lines. A regular file then stands whole and durable; after a failure it stands as
    /// before.
    pub(super) fn take(self, mut lines: File) -> io::Result<()> {
        match self {
            ManifestPlace::Stdout => {
                let mut stdout = io::stdout().lock();
                io::copy(&mut lines, &mut stdout)?;
                stdout.flush()
            }
            ManifestPlace::Stream(mut stream) => io::copy(&mut lines, &mut stream).map(drop),
            ManifestPlace::File(path) => replace(&path, &mut lines),
        }
    }
}

fn replace(path: &Path, lines: &mut File) -> io::Result<()> {
    let permissions = match fs::symlink_metadata(path) {
        Ok(found) if found.is_file() => found.permissions(),
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "something else came to stand there")),
        Err(_) => fs::Permissions::from_mode(0o666),
    };
    let stood = path.exists();
    let dir = parent(path);
    fs::create_dir_all(dir)?;
    let mut file = tempfile::Builder::new().prefix(".longhaul-").permissions(permissions.clone()).tempfile_in(dir)?;
    io::copy(lines, &mut file)?;
    if stood {
        // Its mode is the old one, not the part that the umask leaves.
        file.as_file().set_permissions(permissions)?;
    }
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    File::open(dir)?.sync_all()
}

/// Opens a path that is no regular file. An open file of a process is appended to.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).custom_flags(NOCTTY).open(path)
}

/// The directory of descriptors in which a path names one, and its number there.
fn descriptor(path: &Path) -> Option<(PathBuf, &str)> {
    let number = path.file_name()?.to_str()?;
    let dir = fs::canonicalize(parent(path)).ok()?;
    (dir.starts_with("/proc") && dir.ends_with("fd")).then_some((dir, number))
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The most links that are followed: as many as the system follows.
const LINKS_MAX: usize = 40;
/// Flag of opening (`O_NOCTTY`): a terminal does not become this process's own by being written to.
const NOCTTY: i32 = 0o400;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn lines(text: &str) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        io::Seek::rewind(&mut file).unwrap();
        file
    }

    #[test]
    fn a_regular_file_is_replaced_and_keeps_its_mode_and_links_to_it_stay() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link, far) = (dir.path().join("list"), dir.path().join("link"), dir.path().join("far"));
        fs::write(&file, "old").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("list", &link).unwrap();
        symlink(&link, &far).unwrap();
        ManifestPlace::find(&far).unwrap().take(lines("new")).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink() && fs::symlink_metadata(&far).unwrap().is_symlink());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_link_to_nothing_has_what_it_names_made() {
        let dir = tempfile::tempdir().unwrap();
        symlink("new", dir.path().join("link")).unwrap();
        ManifestPlace::find(&dir.path().join("link")).unwrap().take(lines("x")).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("new")).unwrap(), "x");
    }

    #[test]
    fn fifos_devices_and_descriptors_are_written_to_and_stay_what_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        make_fifo(&fifo);
        let reader = std::thread::spawn({
            let fifo = fifo.clone();
            move || fs::read_to_string(fifo).unwrap()
        });
        ManifestPlace::find(&fifo).unwrap().take(lines("through")).unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        assert!(fs::symlink_metadata(&fifo).unwrap().file_type().is_fifo());
        ManifestPlace::find(Path::new("/dev/null")).unwrap().take(lines("gone")).unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        assert!(ManifestPlace::find(Path::new("/dev/stdout")).unwrap().is_stdout());
        assert!(ManifestPlace::find(Path::new("-")).unwrap().is_stdout());
        let mut open = File::create(dir.path().join("open")).unwrap();
        open.write_all(b"before ").unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&open);
        ManifestPlace::find(Path::new(&format!("/dev/fd/{number}"))).unwrap().take(lines("after")).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("open")).unwrap(), "before after");
        let full = ManifestPlace::find(Path::new("/dev/full")).unwrap().take(lines("x")).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    }

    fn make_fifo(path: &Path) {
        let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
    }

    #[test]
    fn what_cannot_take_lines_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(ManifestPlace::find(dir.path()).unwrap_err().kind(), io::ErrorKind::IsADirectory);
        symlink("loop", dir.path().join("loop")).unwrap();
        assert!(ManifestPlace::find(&dir.path().join("loop")).is_err());
        let _listener = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
        assert!(ManifestPlace::find(&dir.path().join("socket")).is_err());
    }
}
