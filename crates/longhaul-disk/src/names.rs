//! Reading the names in a directory, without `.` and `..`. Takes an open directory that can be
//! read; knows nothing of the meaning of names.

use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::AsFd;

use rustix::fs::RawDir;
use rustix::io::Errno;

/// Gives each bare name to `sink`.
pub(crate) fn each_name(dir: impl AsFd, mut sink: impl FnMut(&[u8])) -> Result<(), Errno> {
    names_until(dir, |name| {
        sink(name);
        ControlFlow::Continue(())
    })
}

/// Gives bare names to `sink` until that has enough.
pub(crate) fn names_until(dir: impl AsFd, mut sink: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<(), Errno> {
    let mut scratch = [MaybeUninit::uninit(); SCRATCH_BYTES];
    let mut entries = RawDir::new(dir, &mut scratch);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." && sink(name).is_break() {
            break;
        }
    }
    Ok(())
}

const SCRATCH_BYTES: usize = 16 << 10;
