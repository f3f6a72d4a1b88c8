//! Disks of a known speed: XFS on loop devices, and a cgroup in which each takes and gives so many
//! bytes a second and no more. A disk can be made slower, or hang, while it is used. Needs root.
//!
//! Takes a directory for the images. All is given back when dropped.

#![allow(dead_code, reason = "each bench uses its part")]

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::fs::{major, minor};

/// Disks, and the limit of each.
pub(crate) struct SlowDisks {
    disks: Vec<Disk>,
    mounts: Vec<PathBuf>,
    /// The cgroup of everything that no other has: the kernel's own threads write there.
    controller: PathBuf,
    cgroup: PathBuf,
}

struct Disk {
    /// Its device, as the cgroup names it.
    device: String,
    limit: u64,
}

impl SlowDisks {
    /// Makes a disk for each limit (bytes per second), of `bytes` bytes each.
    pub(crate) fn new(dir: &Path, limits: &[u64], bytes: u64) -> Result<SlowDisks> {
        let controller = controller().context("no blkio cgroup of version 1 is mounted")?;
        let cgroup = controller.join(format!("longhaul-bench-{}", std::process::id()));
        fs::create_dir(&cgroup)?;
        let mut disks = SlowDisks { disks: Vec::new(), mounts: Vec::new(), controller, cgroup };
        for (n, limit) in limits.iter().enumerate() {
            let (image, mount) = (dir.join(format!("{n}.img")), dir.join(format!("disk{n}")));
            File::create(&image)?.set_len(bytes)?;
            fs::create_dir(&mount)?;
            tool(Command::new("mkfs.xfs").args(["-q", "-f", "-K"]).arg(&image))?;
            tool(Command::new("mount").args(["-o", "loop"]).args([&image, &mount]))?;
            disks.mounts.push(mount.clone());
            let dev = fs::metadata(&mount)?.dev();
            disks.disks.push(Disk { device: format!("{}:{}", major(dev), minor(dev)), limit: *limit });
            disks.set_limit(n, *limit)?;
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

    /// Gives a disk another limit (bytes per second) from now on.
    pub(crate) fn set_limit(&self, disk: usize, limit: u64) -> Result<()> {
        self.throttle(&self.cgroup, disk, limit)
    }

    /// Stops a disk: what it is asked from now on takes ages, for processes and for the kernel.
    /// (A flush that has nothing to write still passes.)
    pub(crate) fn hang(&self, disk: usize) -> Result<()> {
        self.throttle(&self.cgroup, disk, STANDSTILL)?;
        self.throttle(&self.controller, disk, STANDSTILL)
    }

    /// Lets a disk that hangs go on: what it was asked is done now.
    pub(crate) fn go_on(&self, disk: usize) -> Result<()> {
        self.throttle(&self.controller, disk, UNLIMITED)?;
        self.throttle(&self.cgroup, disk, self.disks[disk].limit)
    }

    /// Bytes written to each disk so far, those of its file system among them.
    pub(crate) fn written(&self) -> Result<Vec<u64>> {
        self.moved(SECTORS_WRITTEN)
    }

    /// Bytes read from each disk so far, those of its file system among them.
    pub(crate) fn read(&self) -> Result<Vec<u64>> {
        self.moved(SECTORS_READ)
    }

    /// The bytes of the sectors that stand at this place among the figures of each disk.
    fn moved(&self, place: usize) -> Result<Vec<u64>> {
        let moved = |disk: &Disk| {
            let stat = fs::read_to_string(format!("/sys/dev/block/{}/stat", disk.device))?;
            let sectors = stat.split_whitespace().nth(place).context("no sectors in the disk's figures")?;
            Ok(sectors.parse::<u64>()? * 512)
        };
        self.disks.iter().map(moved).collect()
    }

    fn throttle(&self, cgroup: &Path, disk: usize, limit: u64) -> Result<()> {
        let line = format!("{} {limit}", self.disks[disk].device);
        for file in ["blkio.throttle.write_bps_device", "blkio.throttle.read_bps_device"] {
            fs::write(cgroup.join(file), &line)?;
        }
        Ok(())
    }
}

impl Drop for SlowDisks {
    fn drop(&mut self) {
        // A disk that hangs cannot be unmounted, and the rule for the kernel's threads would
        // outlive this.
        for disk in 0..self.disks.len() {
            let _ = self.throttle(&self.cgroup, disk, UNLIMITED);
            let _ = self.throttle(&self.controller, disk, UNLIMITED);
        }
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

/// The limit at which a request of 512 bytes takes minutes, bytes per second: the least there is.
const STANDSTILL: u64 = 1;
/// The limit that removes a rule.
const UNLIMITED: u64 = 0;
/// The place of the sectors read among the figures of a block device.
const SECTORS_READ: usize = 2;
/// The place of the sectors written among the figures of a block device.
const SECTORS_WRITTEN: usize = 6;
