//! The user as whom a process goes on, and the powers that it gives up for good.
//!
//! In: an account, or the numbers of a user. Out: a process that has its numbers and groups and no
//! capability, or an error, after which it must not go on. The kernel keeps most of this for each
//! thread, so there may be only one. Knows nothing of why, nor of files.

use std::io;

use rustix::process::{Gid, Pid, Signal, Uid, getgid, getgroups, getppid, getuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    no_new_privs, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use crate::accounts::Account;

/// Goes on as this user: with its supplementary groups, its group and its number, without any
/// capability, and without a way to get one (`no_new_privs`). The kernel keeps capabilities and
/// `no_new_privs` for each thread, so a process that has begun others is refused.
///
/// # Errors
/// `ResourceBusy` if there is another thread; the system's error, as `PermissionDenied` for a
/// process that is neither root nor this user already. Then some of it may have been done.
pub fn become_user(account: &Account) -> io::Result<()> {
    if threads()? != 1 {
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, "the process has begun other threads"));
    }
    // Only who may still change them gives these up; nobody gets one back without them.
    let _ = give_up_bounding_set();
    if !is_only(account) {
        // SAFETY: the name is a C string that outlives the call; the others take numbers alone.
        unsafe {
            checked(libc::initgroups(account.name.as_ptr(), account.gid))?;
            checked(libc::setresgid(account.gid, account.gid, account.gid))?;
            checked(libc::setresuid(account.uid, account.uid, account.uid))?;
        }
    }
    give_up_capabilities()?;
    if is_only(account) { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Keeps this thread, and those that it begins, from getting powers by running another program.
///
/// # Errors
/// The system's error.
pub fn refuse_new_privileges() -> io::Result<()> {
    Ok(set_no_new_privs(true)?)
}

/// The number of threads of this process.
///
/// # Errors
/// The system's error, where `/proc` is missing.
#[expect(clippy::disallowed_methods, reason = "the kernel's own directory, which is no destination's")]
pub fn threads() -> io::Result<usize> {
    Ok(std::fs::read_dir("/proc/self/task")?.count())
}

/// Whether the real, the effective and the saved user and group are this account's.
fn is_only(account: &Account) -> bool {
    let (mut users, mut groups) = ([u32::MAX; 3], [u32::MAX; 3]);
    // SAFETY: each pointer is valid for writes of one number.
    let asked = unsafe {
        libc::getresuid(&mut users[0], &mut users[1], &mut users[2])
            | libc::getresgid(&mut groups[0], &mut groups[1], &mut groups[2])
    };
    asked == 0 && users == [account.uid; 3] && groups == [account.gid; 3]
}

fn checked(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

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
pub fn become_deputy(user: &UserNumbers, parent: u32) -> io::Result<()> {
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
    give_up_bounding_set()?;
    set_thread_groups(&groups)?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    give_up_capabilities()?;
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

/// Empties the set of all that this process, or what it starts, could ever have.
fn give_up_bounding_set() -> io::Result<()> {
    all_capabilities().try_for_each(|capability| Ok(remove_capability_from_bounding_set(capability)?))
}

/// Gives up all capabilities, and the ways to get one.
fn give_up_capabilities() -> io::Result<()> {
    clear_ambient_capability_set()?;
    set_capabilities(None, NO_CAPABILITIES)?;
    refuse_new_privileges()
}

/// The capabilities that this process, or what it starts, could ever have.
fn all_capabilities() -> impl Iterator<Item = CapabilitySet> {
    // The system has fewer, and says so for those that it does not know.
    (0..64)
        .map(|bit| CapabilitySet::from_bits_retain(1 << bit))
        .filter(|one| capability_is_in_bounding_set(*one).is_ok_and(|is_in| is_in))
}

const NO_CAPABILITIES: CapabilitySets = CapabilitySets {
    effective: CapabilitySet::empty(),
    permitted: CapabilitySet::empty(),
    inheritable: CapabilitySet::empty(),
};
