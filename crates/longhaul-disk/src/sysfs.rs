//! The system's facts about devices, as `/sys` shows them: what kind a disk is, how long its queue
//! is, and which memory node a disk or a network interface belongs to.
//!
//! In: the directory where such a tree lies, device numbers, names of interfaces. Out: facts, each
//! of them missing where the system says nothing. It must not know what is read from a device, nor
//! which threads use it.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{major, minor};

use crate::cpus::CpuList;

/// A tree of `/sys`.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
}

/// The facts about a block device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceFacts {
    /// Whether it rotates.
    pub medium: Medium,
    /// Requests that its queue in the kernel takes. `None` if the system does not say.
    pub queue_requests: Option<u32>,
    /// The smallest piece that it reads or writes, in bytes. `None` if the system does not say.
    pub block_bytes: Option<u32>,
    /// The memory node that it is attached to. `None` if it belongs to none.
    pub node: Option<u32>,
}

/// The kind of a device, as far as it matters for the order of reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Medium {
    /// It has a head that must move: reads go in the order of their places.
    Rotating,
    /// Every place is as near as any other.
    Flash,
    /// The system does not say: a file system in memory, over the network, or over several devices.
    /// It is treated as flash.
    #[default]
    Unknown,
}

/// The kinds of devices, each looked up once.
#[derive(Debug, Default)]
pub(crate) struct Media {
    sysfs: Sysfs,
    known: Mutex<HashMap<u64, Medium>>,
}

impl Media {
    /// The kinds of devices as this tree has them.
    #[cfg(test)]
    pub(crate) fn of(sysfs: Sysfs) -> Media {
        Media { sysfs, known: Mutex::default() }
    }

    /// The kind of the device with this number.
    pub(crate) fn medium_of(&self, dev: u64) -> Medium {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        *known.entry(dev).or_insert_with(|| self.sysfs.device(dev).medium)
    }
}

impl Medium {
    /// Its name, in the log.
    pub const fn name(self) -> &'static str {
        match self {
            Medium::Rotating => "rotating",
            Medium::Flash => "flash",
            Medium::Unknown => "unknown",
        }
    }
}

impl Default for Sysfs {
    /// The tree of this host.
    fn default() -> Sysfs {
        Sysfs::at("/sys")
    }
}

impl Sysfs {
    /// A tree at `root`.
    pub fn at(root: impl Into<PathBuf>) -> Sysfs {
        Sysfs { root: root.into() }
    }

    /// The facts about the block device with this number, as `st_dev` has it. A partition has those
    /// of its disk. Nothing is known of a number that is no block device's.
    pub fn device(&self, dev: u64) -> DeviceFacts {
        let Ok(dir) = self.root.join(format!("dev/block/{}:{}", major(dev), minor(dev))).canonicalize() else {
            return DeviceFacts::default();
        };
        // A partition has no queue of its own; its directory lies in that of its disk.
        let queue = dir.ancestors().take(2).map(|dir| dir.join("queue")).find(|queue| queue.is_dir());
        let limit = |name: &str| number(&queue.as_ref()?.join(name));
        let medium = match limit("rotational") {
            Some(0) => Medium::Flash,
            Some(_) => Medium::Rotating,
            None => Medium::Unknown,
        };
        DeviceFacts {
            medium,
            queue_requests: limit("nr_requests").filter(|requests| *requests > 0),
            block_bytes: limit("logical_block_size").filter(|bytes| *bytes > 0),
            node: self.node_above(&dir),
        }
    }

    /// The memory node of a network interface. `None` if there is no such interface, or it belongs
    /// to no node.
    pub fn node_of_interface(&self, index: u32) -> Option<u32> {
        let dir = self.interface(index)?.join("device").canonicalize().ok()?;
        self.node_above(&dir)
    }

    /// The name of the network interface with this index.
    pub fn interface_name(&self, index: u32) -> Option<String> {
        Some(self.interface(index)?.file_name()?.to_string_lossy().into_owned())
    }

    /// The CPUs of each memory node of this host, by its number. Empty where the system has none.
    pub fn nodes(&self) -> Vec<(u32, CpuList)> {
        let dir = self.root.join("devices/system/node");
        let online = text(&dir.join("online")).and_then(|text| text.parse::<CpuList>().ok());
        let cpus = |node: u32| Some((node, text(&dir.join(format!("node{node}/cpulist")))?.parse().ok()?));
        online.iter().flat_map(CpuList::iter).filter_map(cpus).collect()
    }

    /// The directory of the interface with this index.
    #[expect(clippy::disallowed_methods, reason = "the kernel's own directory, which is no tree of a user")]
    fn interface(&self, index: u32) -> Option<PathBuf> {
        let all = std::fs::read_dir(self.root.join("class/net")).ok()?;
        let mut all = all.filter_map(|entry| Some(entry.ok()?.path()));
        all.find(|dir| number(&dir.join("ifindex")) == Some(index))
    }

    /// The memory node that the device of `dir` is attached to: that of the nearest directory above
    /// it which names one. -1 stands for none.
    fn node_above(&self, dir: &Path) -> Option<u32> {
        let root = self.root.canonicalize().ok()?;
        let within = dir.ancestors().take_while(|dir| dir.starts_with(&root));
        let said = within.filter_map(|dir| text(&dir.join("numa_node"))).next()?;
        said.parse().ok()
    }
}

fn number(path: &Path) -> Option<u32> {
    text(path)?.parse().ok()
}

/// The content of a file of one line, without the line's end.
#[expect(clippy::disallowed_methods, reason = "the kernel's own file, which is no tree of a user")]
fn text(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use rustix::fs::makedev;

    use super::*;

    /// A made-up tree. `files` are paths with their content.
    fn tree(files: &[(&str, &str)], links: &[(&str, &str)]) -> (tempfile::TempDir, Sysfs) {
        let scratch = tempfile::tempdir().expect("scratch");
        let place = |path: &str| {
            let path = scratch.path().join(path);
            fs::create_dir_all(path.parent().expect("above")).expect("directories");
            path
        };
        files.iter().for_each(|(path, content)| fs::write(place(path), content).expect("a file"));
        links.iter().for_each(|(path, to)| symlink(scratch.path().join(to), place(path)).expect("a link"));
        let sysfs = Sysfs::at(scratch.path());
        (scratch, sysfs)
    }

    #[test]
    fn a_partition_has_the_facts_of_its_disk() {
        let (_scratch, sysfs) = tree(
            &[
                ("devices/pci0/ata1/numa_node", "1\n"),
                ("devices/pci0/ata1/block/sda/queue/rotational", "1\n"),
                ("devices/pci0/ata1/block/sda/queue/nr_requests", "64\n"),
                ("devices/pci0/ata1/block/sda/queue/logical_block_size", "4096\n"),
                ("devices/pci0/ata1/block/sda/sda1/partition", "1\n"),
            ],
            &[("dev/block/8:0", "devices/pci0/ata1/block/sda"), ("dev/block/8:1", "devices/pci0/ata1/block/sda/sda1")],
        );
        let facts =
            DeviceFacts { medium: Medium::Rotating, queue_requests: Some(64), block_bytes: Some(4096), node: Some(1) };
        assert_eq!(sysfs.device(makedev(8, 0)), facts);
        assert_eq!(sysfs.device(makedev(8, 1)), facts);
    }

    #[test]
    fn a_device_of_no_node_and_one_that_says_nothing_are_told_from_the_others() {
        let (_scratch, sysfs) = tree(
            &[
                ("devices/virtual/block/loop0/queue/rotational", "0\n"),
                ("devices/virtual/block/loop0/queue/nr_requests", "many\n"),
                ("devices/pci0/numa_node", "-1\n"),
                ("devices/pci0/nvme/nvme0n1/size", "9\n"),
            ],
            &[("dev/block/7:0", "devices/virtual/block/loop0"), ("dev/block/259:0", "devices/pci0/nvme/nvme0n1")],
        );
        let flash = DeviceFacts { medium: Medium::Flash, ..DeviceFacts::default() };
        assert_eq!(sysfs.device(makedev(7, 0)), flash);
        assert_eq!(sysfs.device(makedev(259, 0)), DeviceFacts::default());
        assert_eq!(sysfs.device(makedev(0, 42)), DeviceFacts::default(), "a file system without a device");
    }

    #[test]
    fn interfaces_are_found_by_their_index_and_nodes_by_their_number() {
        let (_scratch, sysfs) = tree(
            &[
                ("devices/pci1/numa_node", "1\n"),
                ("devices/pci1/net/eth7/ifindex", "7\n"),
                ("devices/virtual/net/lo/ifindex", "1\n"),
                ("devices/system/node/online", "0-1\n"),
                ("devices/system/node/node0/cpulist", "0-1,4\n"),
                ("devices/system/node/node1/cpulist", "2-3\n"),
            ],
            &[
                ("class/net/eth7", "devices/pci1/net/eth7"),
                ("class/net/lo", "devices/virtual/net/lo"),
                ("devices/pci1/net/eth7/device", "devices/pci1"),
            ],
        );
        assert_eq!(sysfs.node_of_interface(7), Some(1));
        assert_eq!(sysfs.interface_name(7).as_deref(), Some("eth7"));
        assert_eq!((sysfs.node_of_interface(1), sysfs.node_of_interface(2)), (None, None));
        let nodes: Vec<_> = sysfs.nodes().into_iter().map(|(node, cpus)| (node, cpus.to_string())).collect();
        assert_eq!(nodes, [(0, "0-1,4".to_owned()), (1, "2-3".to_owned())]);
    }

    #[test]
    fn the_tree_of_this_host_has_its_loopback_interface() {
        assert_eq!(Sysfs::default().interface_name(1).as_deref(), Some("lo"));
    }
}
