//! Memory that was freed and that the allocator still keeps: the call that gives it back.
//!
//! In: nothing. Out: nothing but free pages, to the system. It knows no owner of memory.
//!
//! glibc keeps freed memory in the arena of the thread that asked for it, up to eight arenas a core
//! (mallopt(3), `M_ARENA_MAX`), and returns by itself only what lies at an arena's end.

/// Gives whole free pages of all arenas back to the system, malloc_trim(3). Each arena is locked
/// meanwhile, for some 0.1 ms for each MiB that goes back (measured: docs/DECISIONS.md, Memory).
/// Does nothing with an allocator that has no such call.
pub fn give_back_free_memory() {
    // SAFETY: the call takes a number, touches only memory that is free, and may be made by any
    // thread at any time.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use super::*;

    /// Bytes of memory that this process has.
    #[expect(clippy::disallowed_methods, reason = "a file of the kernel's, beneath no root")]
    fn resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").expect("status");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("KiB") << 10
    }

    #[test]
    fn what_was_freed_beneath_memory_in_use_goes_back() {
        let freed = 64 << 20;
        let many: Vec<Vec<u8>> = (0..freed >> 10).map(|_| vec![1; 1 << 10]).collect();
        // It lies above the others, so that the allocator cannot cut its arena behind it.
        let stays = vec![1; 1 << 10];
        drop(many);
        let before = resident();
        give_back_free_memory();
        let after = resident();
        assert!(after + freed / 2 < before, "{before} bytes before, {after} after");
        drop(stays);
    }
}
