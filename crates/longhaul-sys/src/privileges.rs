//! The user as whom this process goes on, and the powers that it gives up for good.
//!
//! In: an account. Out: a process that has its numbers and groups and no capability, or the
//! system's error, after which it must not go on. Knows nothing of why, nor of files.

use std::io;

use rustix::thread::{CapabilitySet, CapabilitySets};

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
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        let is_known = rustix::thread::capability_is_in_bounding_set(capability);
        if is_known.is_ok_and(|is_in| is_in) && rustix::thread::remove_capability_from_bounding_set(capability).is_err()
        {
            break;
        }
    }
    if !is_only(account) {
        // SAFETY: the name is a C string that outlives the call; the others take numbers alone.
        unsafe {
            checked(libc::initgroups(account.name.as_ptr(), account.gid))?;
            checked(libc::setresgid(account.gid, account.gid, account.gid))?;
            checked(libc::setresuid(account.uid, account.uid, account.uid))?;
        }
    }
    let none = CapabilitySet::empty();
    rustix::thread::clear_ambient_capability_set()?;
    rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    refuse_new_privileges()?;
    if is_only(account) { Ok(()) } else { Err(io::ErrorKind::PermissionDenied.into()) }
}

/// Keeps this thread, and those that it begins, from getting powers by running another program.
///
/// # Errors
/// The system's error.
pub fn refuse_new_privileges() -> io::Result<()> {
    Ok(rustix::thread::set_no_new_privs(true)?)
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
