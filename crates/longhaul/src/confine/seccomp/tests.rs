//! Tests of the filter, as data and in a thread of its own.

use seccompiler::apply_filter;

use super::*;

/// Runs a filter on a call of this processor's own kind, as the kernel would, and returns the error
/// with which the call is refused.
fn judged(program: &[sock_filter], call: i64, arguments: [u64; 2]) -> Option<i32> {
    let arch: u32 = if cfg!(target_arch = "x86_64") { 0xC000_003E } else { 0xC000_00B7 };
    let word = |at: u32| match at {
        0 => call as u32,
        4 => arch,
        16 | 24 => arguments[(at as usize - 16) / 8] as u32,
        20 | 28 => (arguments[(at as usize - 20) / 8] >> 32) as u32,
        other => panic!("no word at {other}"),
    };
    let (mut at, mut a) = (0, 0_u32);
    loop {
        let sock_filter { code, jt, jf, k } = program[at];
        at += 1;
        let code = u32::from(code);
        let jump = |holds: bool| usize::from(if holds { jt } else { jf });
        match (code & 0x07, code & 0xf0) {
            (libc::BPF_LD, _) => a = word(k),
            (libc::BPF_ALU, libc::BPF_AND) => a &= k,
            (libc::BPF_JMP, libc::BPF_JA) => at += k as usize,
            (libc::BPF_JMP, libc::BPF_JEQ) => at += jump(a == k),
            (libc::BPF_JMP, libc::BPF_JGT) => at += jump(a > k),
            (libc::BPF_JMP, libc::BPF_JGE) => at += jump(a >= k),
            (libc::BPF_RET, _) if k == libc::SECCOMP_RET_ALLOW => return None,
            (libc::BPF_RET, _) if k & 0xffff_0000 == libc::SECCOMP_RET_ERRNO => return Some((k & 0xffff) as i32),
            (libc::BPF_RET, _) => panic!("the call {call} ends the process: {k:#x}"),
            other => panic!("no such instruction: {other:?}"),
        }
    }
}

#[test]
fn calls_that_move_files_pass_and_those_of_other_trades_do_not() {
    let program = program().unwrap();
    let judge = |call, arguments| judged(&program, call, arguments);
    let of_files = [
        libc::SYS_openat,
        libc::SYS_openat2,
        libc::SYS_read,
        libc::SYS_pwritev2,
        libc::SYS_renameat2,
        libc::SYS_linkat,
        libc::SYS_symlinkat,
        libc::SYS_unlinkat,
        libc::SYS_fchown,
        libc::SYS_fchownat,
        libc::SYS_fchmodat,
        libc::SYS_utimensat,
        libc::SYS_statx,
        libc::SYS_fsetxattr,
        libc::SYS_lsetxattr,
        libc::SYS_fallocate,
        libc::SYS_copy_file_range,
        libc::SYS_syncfs,
        libc::SYS_flock,
        libc::SYS_ioctl,
    ];
    let of_threads = [
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_epoll_wait,
        libc::SYS_futex,
        libc::SYS_sched_setaffinity,
        libc::SYS_mbind,
        libc::SYS_mlock,
        libc::SYS_prlimit64,
        libc::SYS_rseq,
        libc::SYS_sendmmsg,
        libc::SYS_connect,
        libc::SYS_getrandom,
        libc::SYS_tgkill,
        libc::SYS_exit_group,
    ];
    // setxattrat to file_setattr, less open_tree_attr.
    let new = [463, 464, 465, 466, 468, 469];
    for call in of_files.into_iter().chain(of_threads).chain(new) {
        assert_eq!(judge(call, [0, 0]), None, "the call {call}");
    }
    for call in REFUSED {
        assert_eq!(judge(*call, [0, 0]), Some(libc::EPERM), "the call {call}");
    }
    for call in [libc::SYS_clone3, NEWEST_CALL + 1, 0x4000_0000 | libc::SYS_read] {
        assert_eq!(judge(call, [0, 0]), Some(libc::ENOSYS), "the call {call}");
    }
}

#[test]
fn threads_and_sockets_of_ip_pass_and_processes_namespaces_and_other_sockets_do_not() {
    let program = program().unwrap();
    let thread = (libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_THREAD | libc::CLONE_SETTLS) as u64;
    let judge = |call, arguments| judged(&program, call, arguments);
    assert_eq!(judge(libc::SYS_clone, [thread, 0]), None);
    for flags in [libc::SIGCHLD as u64, thread | libc::CLONE_NEWUSER as u64, thread | libc::CLONE_NEWNET as u64] {
        assert_eq!(judge(libc::SYS_clone, [flags, 0]), Some(libc::EPERM), "{flags:#x}");
    }
    for call in [libc::SYS_socket, libc::SYS_socketpair] {
        for (family, kind, passes) in [
            (libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, true),
            (libc::AF_INET6, libc::SOCK_DGRAM | libc::SOCK_NONBLOCK, true),
            (libc::AF_UNIX, libc::SOCK_STREAM, true),
            (libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, true),
            (libc::AF_INET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, false),
            (libc::AF_PACKET, libc::SOCK_DGRAM, false),
            (libc::AF_ALG, libc::SOCK_SEQPACKET, false),
            (libc::AF_VSOCK, libc::SOCK_STREAM, false),
        ] {
            let refused = (!passes).then_some(libc::EPERM);
            assert_eq!(judge(call, [family as u64, kind as u64]), refused, "{call}: {family}, {kind:#x}");
        }
    }
}

#[test]
fn a_thread_with_the_filter_works_and_runs_no_program() {
    let program = program().unwrap();
    let confined = move || {
        if let Err(error) = apply_filter(&program) {
            eprintln!("SKIPPED: seccomp: {error}");
            return;
        }
        let refused = std::process::Command::new("/bin/true").status().unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied);
        // A thread that begins later has it too, and is begun at all.
        let later = || std::process::Command::new("/bin/true").status().is_err();
        assert!(std::thread::spawn(later).join().unwrap());
        assert!(std::net::TcpListener::bind("127.0.0.1:0").is_ok());
    };
    std::thread::spawn(confined).join().unwrap();
}
