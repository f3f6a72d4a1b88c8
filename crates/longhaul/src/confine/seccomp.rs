//! seccomp: the kernel refuses all threads of this process the system calls that a daemon which
//! moves files never makes.
//!
//! In: nothing. Out: words for the log; or the reason why nothing is refused. It must not know what
//! is served, and no path: calls are refused by number, and few of them by a number among their
//! arguments. `docs/DECISIONS.md` says why calls are refused and not allowed by name.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter_all_threads, sock_filter,
};

/// Refuses them. Returns words for the log.
///
/// # Errors
/// The reason why nothing is refused, in words.
pub(super) fn refuse_calls() -> Result<String, String> {
    let program = program().map_err(|error| format!("there is no filter for this processor: {error}"))?;
    apply_filter_all_threads(&program).map_err(|error| format!("the kernel refuses it: {error}"))?;
    Ok(format!("{} system calls refused", rules().map_or(0, |rules| rules.len()) + 1))
}

/// The filter as the kernel runs it.
fn program() -> Result<BpfProgram, BackendError> {
    let arch = std::env::consts::ARCH.try_into()?;
    let refused = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let filter: BpfProgram = SeccompFilter::new(rules()?, SeccompAction::Allow, refused, arch)?.try_into()?;
    // Behind the check of the architecture, which is the first three instructions.
    let (checked, rest) = filter.split_at(ARCH_CHECK_LEN.min(filter.len()));
    Ok([checked, &unknown_calls(), rest].concat())
}

/// Instructions that answer as a kernel does that has no such call: for `clone3`, whose flags the
/// filter cannot see, so that the C library takes `clone`; and for all calls that are newer than
/// this list, and those of the 32-bit form that bit 30 marks.
fn unknown_calls() -> [sock_filter; 4] {
    let no_such_call = u32::from(SeccompAction::Errno(libc::ENOSYS.unsigned_abs()));
    let step = |code: u32, k: u32, jt, jf| sock_filter { code: code as u16, jt, jf, k };
    [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_clone3 as u32, 1, 0),
        step(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, NEWEST_CALL as u32, 0, 1),
        step(libc::BPF_RET | libc::BPF_K, no_such_call, 0, 0),
    ]
}

/// The refused calls, and of some of them the arguments with which they are.
fn rules() -> Result<BTreeMap<i64, Vec<SeccompRule>>, BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = REFUSED.iter().map(|call| (*call, Vec::new())).collect();
    rules.insert(libc::SYS_clone, processes()?);
    rules.insert(libc::SYS_socket, sockets()?);
    rules.insert(libc::SYS_socketpair, sockets()?);
    Ok(rules)
}

/// A thread is begun, but no process and no namespace.
fn processes() -> Result<Vec<SeccompRule>, BackendError> {
    let flags = |mask: i32, value: i32| condition(0, SeccompCmpOp::MaskedEq(mask as u32 as u64), value);
    let mut rules = vec![SeccompRule::new(vec![flags(libc::CLONE_THREAD, 0)?])?];
    for flag in NAMESPACES {
        rules.push(SeccompRule::new(vec![flags(*flag, *flag)?])?);
    }
    Ok(rules)
}

/// Sockets are of IP, of this host, or ask the kernel about the network; none is raw.
fn sockets() -> Result<Vec<SeccompRule>, BackendError> {
    let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let others = families.iter().map(|family| condition(0, SeccompCmpOp::Ne, *family)).collect::<Result<_, _>>()?;
    let raw = vec![
        condition(0, SeccompCmpOp::Ne, libc::AF_NETLINK)?,
        condition(1, SeccompCmpOp::MaskedEq(SOCKET_KIND), libc::SOCK_RAW)?,
    ];
    Ok(vec![SeccompRule::new(others)?, SeccompRule::new(raw)?])
}

fn condition(argument: u8, comparison: SeccompCmpOp, value: i32) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, comparison, value as u32 as u64)
}

/// Instructions by which `seccompiler` checks the architecture.
const ARCH_CHECK_LEN: usize = 3;
/// The newest call that was looked at for this list: `file_setattr` (Linux 6.17). From 424 on the
/// numbers are the same on all processors.
const NEWEST_CALL: c_long = 469;
/// `open_tree_attr` (Linux 6.15).
const OPEN_TREE_ATTR: c_long = 467;
/// The bits of a socket's kind; the others are flags.
const SOCKET_KIND: u64 = 0xf;

const NAMESPACES: &[i32] = &[
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
];

/// The calls that are refused whatever their arguments.
#[rustfmt::skip]
const REFUSED: &[c_long] = &[
    // Other programs and other processes.
    libc::SYS_execve, libc::SYS_execveat, libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev,
    libc::SYS_process_madvise, libc::SYS_pidfd_getfd, libc::SYS_kcmp,
    #[cfg(target_arch = "x86_64")] libc::SYS_fork,
    #[cfg(target_arch = "x86_64")] libc::SYS_vfork,
    // Users and powers.
    libc::SYS_setuid, libc::SYS_setgid, libc::SYS_setreuid, libc::SYS_setregid, libc::SYS_setresuid,
    libc::SYS_setresgid, libc::SYS_setfsuid, libc::SYS_setfsgid, libc::SYS_setgroups, libc::SYS_capset,
    libc::SYS_add_key, libc::SYS_request_key, libc::SYS_keyctl,
    // Namespaces, mounts, another root.
    libc::SYS_unshare, libc::SYS_setns, libc::SYS_chroot, libc::SYS_pivot_root, libc::SYS_mount, libc::SYS_umount2,
    libc::SYS_move_mount, libc::SYS_open_tree, OPEN_TREE_ATTR, libc::SYS_fsopen, libc::SYS_fsconfig,
    libc::SYS_fsmount, libc::SYS_fspick, libc::SYS_mount_setattr,
    // Files by number, beyond every directory; devices and fifos.
    libc::SYS_open_by_handle_at, libc::SYS_name_to_handle_at, libc::SYS_mknodat, libc::SYS_fanotify_init,
    #[cfg(target_arch = "x86_64")] libc::SYS_mknod,
    // Parts of the kernel that a flaw in would lead into it.
    libc::SYS_bpf, libc::SYS_perf_event_open, libc::SYS_userfaultfd, libc::SYS_personality, libc::SYS_lookup_dcookie,
    #[cfg(target_arch = "x86_64")] libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")] libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")] libc::SYS_ioperm,
    // The host as a whole.
    libc::SYS_init_module, libc::SYS_finit_module, libc::SYS_delete_module, libc::SYS_kexec_load,
    #[cfg(target_arch = "x86_64")] libc::SYS_kexec_file_load,
    libc::SYS_reboot, libc::SYS_swapon, libc::SYS_swapoff, libc::SYS_acct, libc::SYS_quotactl, libc::SYS_quotactl_fd,
    libc::SYS_syslog, libc::SYS_sethostname, libc::SYS_setdomainname, libc::SYS_settimeofday, libc::SYS_clock_settime,
    libc::SYS_clock_adjtime, libc::SYS_adjtimex, libc::SYS_vhangup, libc::SYS_nfsservctl,
];

#[cfg(test)]
mod tests;
