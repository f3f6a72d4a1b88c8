//! The floor of `small`: the time that the file system itself takes to make as many files durable.
//!
//! Temporaries created, written and given their metadata by a thread per processor; then all of it
//! synced, all renamed, all synced again. Reads nothing, sends nothing, hashes nothing.

use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Result, anyhow};
use rustix::fs::syncfs;

/// Makes `files` files of `len` bytes in `dirs` directories beneath `target`, all of them durable
/// at the end.
pub(crate) fn write(target: &Path, files: u64, dirs: u64, len: usize) -> Result<()> {
    let (top, bytes) = (File::open(target)?, vec![7; len]);
    let dir = |n: u64| target.join(format!("d{n:04}"));
    (0..dirs).try_for_each(|n| fs::create_dir(dir(n)))?;
    on_all_processors(dirs, |d| {
        (d..files).step_by(dirs as usize).try_for_each(|n| create(&temporary(&dir(d), n), &bytes))
    })?;
    syncfs(&top)?;
    on_all_processors(dirs, |d| {
        let dir = dir(d);
        let place = |n| Ok(fs::rename(temporary(&dir, n), dir.join(format!("file-{n:07}")))?);
        (d..files).step_by(dirs as usize).try_for_each(place)
    })?;
    Ok(syncfs(&top)?)
}

fn create(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.set_permissions(Permissions::from_mode(0o644))?;
    Ok(file.set_times(FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)))?)
}

fn temporary(dir: &Path, n: u64) -> PathBuf {
    dir.join(format!(".temporary-{n:032x}"))
}

/// Does the work for each number below `count`, each thread taking the next.
fn on_all_processors(count: u64, work: impl Fn(u64) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicU64::new(0);
    let take = || {
        while let Some(n) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|n| *n < count) {
            work(n)?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads = thread::available_parallelism()?.get();
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(take)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread panicked"))?)
    })
}
