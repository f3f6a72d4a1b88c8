//! Which CPUs the threads run on that move payload: those of the memory node of their device, or
//! those that the user names.
//!
//! In: the user's wish, the facts of [`Sysfs`], and calls from threads that have just begun. Out:
//! the affinity of those threads, and a record of it for the report. It must not know what a thread
//! does.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{major, minor};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::cpus::CpuList;
use crate::sysfs::Sysfs;

/// The wish where I/O threads and lanes run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Pin {
    /// On the memory node of their device or network interface. Anywhere on a host with one node.
    #[default]
    Auto,
    /// Anywhere.
    None,
    /// On these CPUs.
    Cpus(CpuList),
}

/// CPUs that a user named and this process may not use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot bind threads to the CPUs {named}: this process may use {allowed}")]
pub struct CpusError {
    /// The CPUs that were named.
    pub named: CpuList,
    /// The CPUs that the process may use.
    pub allowed: CpuList,
}

/// The work of a thread that begins, as far as it matters for the CPUs that it runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadWork {
    /// It reads and writes the block device with this number.
    Device(u64),
    /// It serves a lane over the network interface with this index.
    Interface(u32),
    /// It belongs to no device: only CPUs that the user named count. This is its name in the
    /// report.
    Elsewhere(&'static str),
}

/// Threads that are bound to CPUs, as the report has them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BoundThreads {
    /// The threads, such as `disk 8:1`, `lanes` or `lanes over eth0`.
    pub threads: String,
    /// The memory node whose CPUs these are. `None` where the user named the CPUs.
    pub node: Option<u32>,
    /// The CPUs, such as `0-3,8`.
    pub cpus: String,
}

/// Binds threads to CPUs. Clones share one record.
#[derive(Clone, Debug, Default)]
pub struct Affinity {
    host: Arc<HostAffinity>,
}

#[derive(Debug, Default)]
struct HostAffinity {
    rule: Rule,
    bound: Mutex<BTreeSet<BoundThreads>>,
}

/// The wish, once the host was asked.
#[derive(Debug, Default)]
enum Rule {
    /// Threads run anywhere.
    #[default]
    Anywhere,
    /// Threads run on the node of their device, of which these are the CPUs.
    Nodes { sysfs: Sysfs, nodes: Vec<(u32, CpuList)> },
    /// Threads run on these CPUs.
    Cpus(CpuList),
}

impl Affinity {
    /// The affinity that `pin` wishes for on this host.
    ///
    /// # Errors
    /// [`CpusError`] if none is named, or this process may not use one of them.
    pub fn new(pin: &Pin) -> Result<Affinity, CpusError> {
        Affinity::on(pin, Sysfs::default(), &allowed())
    }

    /// The same on a host with the tree `sysfs`, of whose CPUs the process may use `allowed`.
    fn on(pin: &Pin, sysfs: Sysfs, allowed: &CpuList) -> Result<Affinity, CpusError> {
        let rule = match pin {
            Pin::None => Rule::Anywhere,
            Pin::Cpus(cpus) if cpus.is_empty() || !cpus.without(allowed).is_empty() => {
                return Err(CpusError { named: cpus.clone(), allowed: allowed.clone() });
            }
            Pin::Cpus(cpus) => Rule::Cpus(cpus.clone()),
            Pin::Auto => match sysfs.nodes() {
                nodes if nodes.len() < 2 => Rule::Anywhere,
                nodes => {
                    // A node of which this process may use nothing is as good as none.
                    let usable = nodes.into_iter().map(|(node, cpus)| (node, cpus.and(allowed)));
                    Rule::Nodes { sysfs, nodes: usable.filter(|(_, cpus)| !cpus.is_empty()).collect() }
                }
            },
        };
        Ok(Affinity { host: Arc::new(HostAffinity { rule, bound: Mutex::default() }) })
    }

    /// Whether threads of a network interface are bound by its memory node, so that it is worth
    /// finding out which interface it is.
    pub fn is_by_node(&self) -> bool {
        matches!(self.host.rule, Rule::Nodes { .. })
    }

    /// Binds the calling thread to the CPUs of the rule. A thread that the system does not bind
    /// runs on where it is: that is slower, and nothing else.
    pub fn bind(&self, work: ThreadWork) {
        let Some((node, cpus)) = self.host.rule.cpus(work) else { return };
        let threads = self.host.rule.name(work);
        if let Err(error) = bind_this_thread(cpus) {
            tracing::warn!(threads, %cpus, %error, "cannot bind a thread to CPUs");
            return;
        }
        let bound = BoundThreads { threads, node, cpus: cpus.to_string() };
        self.host.bound.lock().unwrap_or_else(PoisonError::into_inner).insert(bound);
    }

    /// The threads that were bound so far.
    pub fn bound(&self) -> Vec<BoundThreads> {
        self.host.bound.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

impl Rule {
    /// The CPUs for a thread, with the node that they belong to. `None` if it runs anywhere.
    fn cpus(&self, work: ThreadWork) -> Option<(Option<u32>, &CpuList)> {
        match self {
            Rule::Anywhere => None,
            Rule::Cpus(cpus) => Some((None, cpus)),
            Rule::Nodes { sysfs, nodes } => {
                let node = match work {
                    ThreadWork::Device(dev) => sysfs.device(dev).node,
                    ThreadWork::Interface(index) => sysfs.node_of_interface(index),
                    ThreadWork::Elsewhere(_) => None,
                }?;
                nodes.iter().find(|(number, _)| *number == node).map(|(_, cpus)| (Some(node), cpus))
            }
        }
    }

    /// The name of the threads of this work in the report.
    fn name(&self, work: ThreadWork) -> String {
        match (work, self) {
            (ThreadWork::Device(dev), _) => format!("disk {}:{}", major(dev), minor(dev)),
            (ThreadWork::Interface(index), Rule::Nodes { sysfs, .. }) => match sysfs.interface_name(index) {
                Some(name) => format!("lanes over {name}"),
                None => "lanes".to_owned(),
            },
            (ThreadWork::Interface(_), _) => "lanes".to_owned(),
            (ThreadWork::Elsewhere(name), _) => name.to_owned(),
        }
    }
}

/// The CPUs that the calling thread may use. Empty if the system does not say.
fn allowed() -> CpuList {
    let Ok(set) = sched_getaffinity(None) else { return CpuList::default() };
    (0..CpuSet::MAX_CPU as u32).filter(|cpu| set.is_set(*cpu as usize)).collect()
}

fn bind_this_thread(cpus: &CpuList) -> io::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(cpu as usize));
    Ok(sched_setaffinity(None, &set)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> CpuList {
        text.parse().expect("a list")
    }

    /// A host whose nodes have these CPUs; disk 8:0 and interface 3 belong to node 1.
    fn host(nodes: &[&str]) -> (tempfile::TempDir, Sysfs) {
        let scratch = tempfile::tempdir().expect("scratch");
        let write = |path: &str, content: &str| {
            let path = scratch.path().join(path);
            std::fs::create_dir_all(path.parent().expect("above")).expect("directories");
            std::fs::write(path, content).expect("a file");
        };
        write("devices/system/node/online", &format!("0-{}\n", nodes.len() - 1));
        for (node, cpus) in nodes.iter().enumerate() {
            write(&format!("devices/system/node/node{node}/cpulist"), cpus);
        }
        write("dev/block/8:0/numa_node", "1\n");
        write("class/net/eth0/ifindex", "3\n");
        write("class/net/eth0/device/numa_node", "1\n");
        let sysfs = Sysfs::at(scratch.path());
        (scratch, sysfs)
    }

    /// The CPUs of a thread that does this work.
    fn cpus_after(affinity: &Affinity, work: ThreadWork) -> CpuList {
        let affinity = affinity.clone();
        let thread = std::thread::spawn(move || {
            affinity.bind(work);
            allowed()
        });
        thread.join().expect("it ends")
    }

    /// The device 8:0.
    const DISK: u64 = 0x800;

    #[test]
    fn threads_run_on_the_node_of_their_device_or_interface() {
        let here = allowed();
        let mine = here.iter().next().expect("a CPU");
        let (_scratch, sysfs) = host(&["900-901", &format!("{mine},902")]);
        let affinity = Affinity::on(&Pin::Auto, sysfs, &here).expect("an affinity");
        let own = std::iter::once(mine).collect::<CpuList>();
        assert_eq!(cpus_after(&affinity, ThreadWork::Device(DISK)), own);
        assert_eq!(cpus_after(&affinity, ThreadWork::Interface(3)), own);
        // Nothing is known of these.
        assert_eq!(cpus_after(&affinity, ThreadWork::Device(DISK + 1)), here);
        assert_eq!(cpus_after(&affinity, ThreadWork::Interface(4)), here);
        assert_eq!(cpus_after(&affinity, ThreadWork::Elsewhere("pack")), here);
        let bound = |threads: &str| BoundThreads { threads: threads.to_owned(), node: Some(1), cpus: mine.to_string() };
        assert_eq!(affinity.bound(), [bound("disk 8:0"), bound("lanes over eth0")]);
    }

    #[test]
    fn nothing_is_bound_on_one_node_or_where_nobody_wants_it() {
        let here = allowed();
        let mine = here.iter().next().expect("a CPU").to_string();
        let (_scratch, one) = host(&[&mine]);
        let (_scratch, two) = host(&[&mine, &mine]);
        for (pin, sysfs) in [(Pin::Auto, one), (Pin::None, two)] {
            let affinity = Affinity::on(&pin, sysfs, &here).expect("an affinity");
            assert_eq!(cpus_after(&affinity, ThreadWork::Device(DISK)), here);
            assert!(affinity.bound().is_empty() && !affinity.is_by_node(), "{pin:?}");
        }
    }

    #[test]
    fn named_cpus_are_used_by_all_and_must_be_there() {
        let here = allowed();
        let mine: CpuList = here.iter().take(1).collect();
        let affinity = Affinity::new(&Pin::Cpus(mine.clone())).expect("an affinity");
        assert_eq!(cpus_after(&affinity, ThreadWork::Device(DISK)), mine);
        assert_eq!(cpus_after(&affinity, ThreadWork::Elsewhere("pack")), mine);
        let names: Vec<_> = affinity.bound().into_iter().map(|bound| bound.threads).collect();
        assert_eq!(names, ["disk 8:0", "pack"]);
        for named in ["", "1023"] {
            let refused = Affinity::on(&Pin::Cpus(list(named)), Sysfs::default(), &list("0-3"));
            assert!(refused.is_err(), "{named:?}");
        }
    }
}
