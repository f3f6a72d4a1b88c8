//! Scratch space on the disk to measure: sources that can be made cold, and fresh destinations.

use std::fs::{self, File};
use std::io::Write;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use rustix::fs::{Advice, fadvise, syncfs};
use rustix::process::geteuid;
use tempfile::TempDir;

/// A directory for one bench's data, removed when dropped.
pub(crate) struct Scratch {
    dir: TempDir,
}

/// One file of bytes that do not repeat.
pub(crate) struct FileData {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// Its BLAKE3, as `b3sum` prints it.
    pub(crate) b3: String,
}

/// A tree of equal small files in directories.
pub(crate) struct TreeData {
    pub(crate) path: PathBuf,
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

impl Scratch {
    /// Makes it in `dir`, or beneath the build directory.
    pub(crate) fn new(dir: Option<&Path>, target_dir: &Path) -> Result<Scratch> {
        let above = dir.map_or_else(|| target_dir.join("bench"), Path::to_owned);
        fs::create_dir_all(&above).with_context(|| format!("cannot make {}", above.display()))?;
        Ok(Scratch { dir: tempfile::Builder::new().prefix("scratch-").tempdir_in(&above)? })
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A new, empty directory in it.
    pub(crate) fn subdir(&self, name: &str) -> Result<PathBuf> {
        let path = self.path().join(name);
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(path)
    }

    /// A file of `bytes` bytes.
    pub(crate) fn file(&self, name: &str, bytes: u64) -> Result<FileData> {
        let path = self.path().join(name);
        let mut file = File::create(&path)?;
        let mut noise = Noise::seeded(name);
        let (mut hasher, mut left, mut block) = (blake3::Hasher::new(), bytes, vec![0; BLOCK]);
        while left > 0 {
            let part = &mut block[..left.min(BLOCK as u64) as usize];
            noise.fill(part);
            hasher.update(part);
            file.write_all(part)?;
            left -= part.len() as u64;
        }
        file.sync_all()?;
        Ok(FileData { path, bytes, b3: hasher.finalize().to_hex().to_string() })
    }

    /// `files` files of `len` bytes each, spread over `dirs` directories.
    pub(crate) fn tree(&self, name: &str, files: u64, dirs: u64, len: usize) -> Result<TreeData> {
        let path = self.subdir(name)?;
        let (mut noise, mut block) = (Noise::seeded(name), vec![0; len]);
        for n in 0..files {
            let dir = path.join(format!("d{:04}", n % dirs));
            if n < dirs {
                fs::create_dir(&dir)?;
            }
            noise.fill(&mut block);
            fs::write(dir.join(format!("file-{n:07}")), &block)?;
        }
        sync(&path)?;
        Ok(TreeData { path, files, bytes: files * len as u64 })
    }

    /// A file of `bytes` bytes that is all hole.
    pub(crate) fn hole(&self, name: &str, bytes: u64) -> Result<PathBuf> {
        let path = self.path().join(name);
        File::create(&path)?.set_len(bytes)?;
        Ok(path)
    }
}

/// Drops the files at `path` from the page cache, and as root all names and inodes too.
pub(crate) fn make_cold(path: &Path) -> Result<()> {
    sync(path)?;
    visit(path, &mut |file, _| Ok(fadvise(File::open(file)?, 0, None::<NonZeroU64>, Advice::DontNeed)?))?;
    if geteuid().is_root() {
        // Not permitted in some containers; then the files' pages are cold at least.
        if let Err(e) = fs::write("/proc/sys/vm/drop_caches", "3") {
            eprintln!("names and inodes stay cached: {e}");
        }
    }
    Ok(())
}

/// Writes out all of the file system that `path` lies on.
pub(crate) fn sync(path: &Path) -> Result<()> {
    Ok(syncfs(File::open(path)?)?)
}

/// Checks that `dir` holds that many files of that many bytes together.
pub(crate) fn check_arrived(dir: &Path, files: u64, bytes: u64) -> Result<()> {
    let (mut found, mut len) = (0, 0);
    visit(dir, &mut |_, file_len| {
        found += 1;
        len += file_len;
        Ok(())
    })?;
    ensure!((found, len) == (files, bytes), "{found} files of {len} bytes arrived, not {files} of {bytes}");
    Ok(())
}

/// Calls `each` for the regular file at `path`, or for all beneath, with its length.
fn visit(path: &Path, each: &mut dyn FnMut(&Path, u64) -> Result<()>) -> Result<()> {
    let meta = fs::symlink_metadata(path)?;
    if !meta.is_dir() {
        return each(path, meta.len());
    }
    fs::read_dir(path)?.try_for_each(|entry| visit(&entry?.path(), each))
}

/// Bytes that nothing compresses: an extendable output of BLAKE3.
struct Noise(blake3::OutputReader);

impl Noise {
    fn seeded(name: &str) -> Noise {
        Noise(blake3::Hasher::new().update(name.as_bytes()).finalize_xof())
    }

    fn fill(&mut self, block: &mut [u8]) {
        self.0.fill(block);
    }
}

const BLOCK: usize = 4 << 20;
