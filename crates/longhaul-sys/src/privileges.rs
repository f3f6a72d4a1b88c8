//! The user, groups and capabilities of this process. Gives them away for good; takes none.
//!
//! In: the numbers of a user. Out: a process of that user, or an error that it must end for. The
//! kernel keeps all of this for each thread, so there may be only one.

use std::io;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{Gid, Pid, Signal, Uid, getgid, getgroups, getppid, getuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    no_new_privs, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

/// A user of the host, in numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserNumbers {
    /// The user. Never 0.
    pub uid: u32,
    /// The primary group.
    pub gid: u32,
    /// All groups, with or without the primary one.
    pub groups: Vec<u32>,
}

/// Makes this process one of this user, without any capability and without a way to get one, and
/// looks whether that is so. It is asked to end (SIGTERM) when the process with the number
/// `parent`, which started it, ends.
///
/// # Errors
/// The system's error. The process may be half of either then, and must end.
pub fn become_user(user: &UserNumbers, parent: u32) -> io::Result<()> {
    if user.uid == 0 || user.uid == u32::MAX || user.gid == u32::MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a number that stands for no ordinary user"));
    }
    let threads = threads()?;
    if threads != 1 {
        return Err(io::Error::other(format!("a process with {threads} threads, of which one would change")));
    }
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    let groups: Vec<Gid> = user.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    // While it may still be done.
    for capability in all_capabilities() {
        remove_capability_from_bounding_set(capability)?;
    }
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    clear_ambient_capability_set()?;
    set_capabilities(None, NO_CAPABILITIES)?;
    set_no_new_privs(true)?;
    // The kernel forgets it as the user changes.
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    if getppid().map(Pid::as_raw_nonzero).map(|pid| pid.get().unsigned_abs()) != Some(parent) {
        return Err(io::Error::other("whoever started it has ended"));
    }
    check(user)
}

/// Whether this process may become one of another user, for good.
pub fn may_become_others() -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::SETPCAP;
    capabilities(None).is_ok_and(|held| held.effective.contains(needed))
}

/// Checks that this process is nothing but that user's.
fn check(user: &UserNumbers) -> io::Result<()> {
    let wrong = |what: &str| Err(io::Error::other(format!("{what} stayed what it was")));
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    let held = capabilities(None)?;
    if held.effective.union(held.permitted).union(held.inheritable) != CapabilitySet::empty()
        || all_capabilities().next().is_some()
    {
        return wrong("a capability");
    }
    if getuid() != uid
        || rustix::process::geteuid() != uid
        || set_thread_res_uid(None::<Uid>, Uid::ROOT, None::<Uid>).is_ok()
    {
        return wrong("the user");
    }
    let mut groups: Vec<u32> = getgroups()?.into_iter().map(Gid::as_raw).collect();
    let mut wanted = user.groups.clone();
    groups.sort_unstable();
    groups.dedup();
    wanted.sort_unstable();
    wanted.dedup();
    if getgid() != gid || rustix::process::getegid() != gid || groups != wanted {
        return wrong("a group");
    }
    if !no_new_privs()? {
        return wrong("the way to new privileges");
    }
    Ok(())
}

/// The capabilities that this process, or what it starts, could ever have.
fn all_capabilities() -> impl Iterator<Item = CapabilitySet> {
    // The system has fewer, and says so for those that it does not know.
    (0..64)
        .map(|bit| CapabilitySet::from_bits_retain(1 << bit))
        .filter(|one| capability_is_in_bounding_set(*one).is_ok_and(|is_in| is_in))
}

/// The threads of this process.
fn threads() -> io::Result<u64> {
    let file = openat(CWD, "/proc/self/status", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut room = [0; 8 << 10];
    let len = rustix::io::read(file, &mut room)?;
    let status = String::from_utf8_lossy(&room[..len]);
    let count = status.lines().find_map(|line| line.strip_prefix("Threads:")?.trim().parse().ok());
    count.ok_or_else(|| io::Error::other("/proc does not say how many threads there are"))
}

const NO_CAPABILITIES: CapabilitySets = CapabilitySets {
    effective: CapabilitySet::empty(),
    permitted: CapabilitySet::empty(),
    inheritable: CapabilitySet::empty(),
};
