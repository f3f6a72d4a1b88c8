//! Disks of a known speed: XFS on loop devices, and a cgroup in which each takes and gives so many
//! bytes a second and no more. Needs root.
//!
//! Takes a directory for the images. All is given back when dropped.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::fs::{major, minor};

/// Disks, and the limit of each.
pub(crate) struct SlowDisks {
    mounts: Vec<PathBuf>,
    cgroup: PathBuf,
}

impl SlowDisks {
    /// Makes a disk for each limit (bytes per second), of `bytes` bytes each.
    pub(crate) fn new(dir: &Path, limits: &[u64], bytes: u64) -> Result<SlowDisks> {
        let controller = controller().context("no blkio cgroup of version 1 is mounted")?;
        let cgroup = controller.join(format!("longhaul-bench-{}", std::process::id()));
        fs::create_dir(&cgroup)?;
        let mut disks = SlowDisks { mounts: Vec::new(), cgroup };
        for (n, limit) in limits.iter().enumerate() {
            let (image, mount) = (dir.join(format!("{n}.img")), dir.join(format!("disk{n}")));
            File::create(&image)?.set_len(bytes)?;
            fs::create_dir(&mount)?;
            tool(Command::new("mkfs.xfs").args(["-q", "-f", "-K"]).arg(&image))?;
            tool(Command::new("mount").args(["-o", "loop"]).args([&image, &mount]))?;
            disks.mounts.push(mount.clone());
            let dev = fs::metadata(&mount)?.dev();
            let line = format!("{}:{} {limit}", major(dev), minor(dev));
            for file in ["blkio.throttle.write_bps_device", "blkio.throttle.read_bps_device"] {
                fs::write(disks.cgroup.join(file), &line)?;
            }
        }
        Ok(disks)
    }

    /// Their mount points.
    pub(crate) fn mounts(&self) -> &[PathBuf] {
        &self.mounts
    }

    /// Puts a process beneath the limits.
    pub(crate) fn limit(&self, pid: u32) -> Result<()> {
        Ok(fs::write(self.cgroup.join("cgroup.procs"), pid.to_string())?)
    }
}

impl Drop for SlowDisks {
    fn drop(&mut self) {
        for mount in &self.mounts {
            let _ = Command::new("umount").arg("-l").arg(mount).status();
        }
        let _ = fs::remove_dir(&self.cgroup);
    }
}

fn controller() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let mut fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let found = fields.find(|fields| fields[2] == "cgroup" && fields[3].split(',').any(|word| word == "blkio"))?;
    Some(PathBuf::from(found[1]))
}

fn tool(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(status.success(), "{command:?} failed");
    Ok(())
}
