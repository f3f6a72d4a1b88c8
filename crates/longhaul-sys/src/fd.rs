//! Facts and flags of open descriptors that direct I/O needs. Takes descriptors, gives answers;
//! opens and closes nothing.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{AtFlags, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, statx};

/// The alignment that O_DIRECT asks of a file: powers of two, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DioAlign {
    /// Alignment of the memory; 0 if the file system does no direct I/O on this file.
    pub mem: u32,
    /// Alignment of offsets and lengths; 0 if the file system does no direct I/O on this file.
    pub offset: u32,
}

/// The alignment for direct I/O on this file. `None` if the file system, or the kernel (before
/// 6.1), does not say.
pub fn dio_align(fd: impl AsFd) -> Option<DioAlign> {
    let stat = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let said = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::DIOALIGN);
    said.then_some(DioAlign { mem: stat.stx_dio_mem_align, offset: stat.stx_dio_offset_align })
}

/// Sets or clears O_DIRECT on an open file, for every descriptor that shares the opening.
///
/// # Errors
/// The error of `fcntl`; `InvalidInput` if the file system does no direct I/O.
pub fn set_direct(fd: impl AsFd, direct: bool) -> io::Result<()> {
    let mut flags = fcntl_getfl(&fd)?;
    flags.set(OFlags::DIRECT, direct);
    Ok(fcntl_setfl(&fd, flags)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn direct_is_set_and_cleared_where_it_is_offered() {
        let file = tempfile::tempfile().expect("tempfile");
        if let Some(align) = dio_align(&file) {
            assert_eq!(align.mem == 0, align.offset == 0);
        }
        if set_direct(&file, true).is_ok() {
            assert!(fcntl_getfl(&file).expect("flags").contains(OFlags::DIRECT));
            set_direct(&file, false).expect("clearing");
        }
        assert!(!fcntl_getfl(&file).expect("flags").contains(OFlags::DIRECT));
    }

    #[test]
    fn a_pipe_has_no_alignment() {
        let (reader, _writer) = io::pipe().expect("pipe");
        assert_eq!(dio_align(&reader), None);
    }
}
