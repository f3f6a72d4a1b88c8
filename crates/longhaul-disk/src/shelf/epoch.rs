//! The epoch of a copy of a journal: which copies count, written beside the copy on its target.
//!
//! In: a shelf and a tag. Out: the [`Epoch`] of the copy there. An epoch is written whole: to
//! another name, synced, renamed, and the shelf is synced. Knows no other targets.
//!
//! ```text
//! longhaul journal epoch 1
//! epoch 3
//! copies 2
//! trust sure
//! end
//! ```

use std::os::fd::OwnedFd;
use std::time::{SystemTime, UNIX_EPOCH};

use longhaul_core::SessionTag;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, pread};

use super::dir::{SUFFIX, ShelfDir, file_name};
use crate::error::{DiskError, PathText};
use crate::kernel::{Kernel, Replace};
use crate::names::each_name;

/// The epoch of a copy (COPIES-3): only the copies of the highest one count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Epoch {
    /// It grows each time that other copies come to count.
    pub(super) number: u64,
    /// The number of copies that count since then.
    pub(super) copies: u32,
    /// Whether it is known to say all that the journal ever said.
    pub(super) trust: Trust,
}

/// Whether a journal is known to say all that it ever said (COPIES-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    Sure,
    /// A copy that is not there, or was not, may have said more.
    Unsure,
}

impl Epoch {
    /// The epoch of a copy beside which none is written: a journal begins with two copies.
    pub(super) const FIRST: Epoch = Epoch { number: 0, copies: 2, trust: Trust::Sure };

    /// The number of the epoch that follows now. Copies that went on without each other counted on
    /// their own: of those, the one that did so last is to count.
    pub(super) fn number_after(self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.number.saturating_add(1).max(now)
    }

    fn text(self) -> String {
        let trust = match self.trust {
            Trust::Sure => "sure",
            Trust::Unsure => "unsure",
        };
        format!("{HEAD}\nepoch {}\ncopies {}\ntrust {trust}\nend\n", self.number, self.copies)
    }

    /// Reads a text. One that is damaged counts least, and is not relied on.
    fn parse(text: &[u8]) -> Epoch {
        parse(text).unwrap_or(Epoch { trust: Trust::Unsure, ..Epoch::FIRST })
    }
}

fn parse(text: &[u8]) -> Option<Epoch> {
    let mut lines = std::str::from_utf8(text).ok()?.split('\n');
    let mut line = |name: &str| lines.next()?.strip_prefix(name);
    line(HEAD)?;
    let number = line("epoch ")?.parse().ok()?;
    let copies = line("copies ")?.parse().ok()?;
    let trust = match line("trust ")? {
        "sure" => Trust::Sure,
        "unsure" => Trust::Unsure,
        _ => return None,
    };
    line("end").map(|_| Epoch { number, copies, trust })
}

/// The epoch of the copy of this tag on a shelf.
///
/// # Errors
/// The system's error.
pub(super) fn read(shelf: &ShelfDir, tag: SessionTag) -> Result<Epoch, DiskError> {
    let Some(dir) = shelf.dir()? else { return Ok(Epoch::FIRST) };
    let failed = |error| DiskError::call("read", shown(tag), error);
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(&dir, name(tag, ""), flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(Epoch::FIRST),
        Err(error) => return Err(failed(error)),
    };
    let mut text = [0; EPOCH_BYTES_MAX];
    loop {
        match pread(&file, &mut text, 0) {
            Ok(read) => return Ok(Epoch::parse(&text[..read])),
            Err(Errno::INTR) => {}
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Writes the epoch of the copy of this tag on a shelf, durably.
///
/// # Errors
/// The system's error: then either epoch may stand.
pub(super) fn write(shelf: &ShelfDir, tag: SessionTag, epoch: Epoch) -> Result<(), DiskError> {
    let failed = |error| DiskError::call("write", shown(tag), error);
    let dir = shelf.dir()?.ok_or_else(|| failed(Errno::NOENT))?;
    let (kernel, new) = (shelf.kernel(), name(tag, NEW));
    // One that a crash left.
    let _ = kernel.unlinkat(&dir, &new);
    let file = kernel.create(&dir, &new, OFlags::WRONLY, Mode::RUSR | Mode::WUSR).map_err(failed)?;
    let text = epoch.text();
    let written = match kernel.pwrite(&file, text.as_bytes(), 0) {
        Ok(bytes) if bytes == text.len() => Ok(()),
        Ok(_) => Err(Errno::NOSPC),
        Err(error) => Err(error),
    };
    let named = written
        .and_then(|()| kernel.fsync(&file))
        .and_then(|()| kernel.renameat(&dir, &new, &name(tag, ""), Replace::Allowed))
        .and_then(|()| kernel.fsync(&dir))
        .and_then(|()| shelf.takes_changes());
    named.map_err(failed)
}

/// Removes the epoch of a copy that was removed. One that stays does no harm.
pub(super) fn remove(kernel: &Kernel, dir: &OwnedFd, tag: SessionTag) {
    for suffix in ["", NEW] {
        let _ = kernel.unlinkat(dir, &name(tag, suffix));
    }
}

/// Removes the epochs from a shelf on which no journal stands: a crash left them. An epoch is only
/// written beside a journal.
pub(super) fn remove_left(kernel: &Kernel, dir: &OwnedFd) {
    let (mut left, mut journals) = (Vec::new(), 0);
    let listed = each_name(dir, |name| {
        let stem = name.split(|byte| *byte == b'.').next().unwrap_or_default();
        match SessionTag::parse(stem) {
            Some(_) if name.ends_with(SUFFIX) => journals += 1,
            Some(_) if [EPOCH, NEW].iter().any(|suffix| name.ends_with(suffix.as_bytes())) => left.push(name.to_vec()),
            _ => {}
        }
    });
    if listed.is_ok() && journals == 0 {
        for name in left {
            let _ = kernel.unlinkat(dir, &name);
        }
    }
}

fn name(tag: SessionTag, suffix: &str) -> Vec<u8> {
    format!("{tag}{EPOCH}{suffix}").into_bytes()
}

/// The path of the copy, for messages.
fn shown(tag: SessionTag) -> PathText {
    let journal = file_name(tag);
    PathText::from([super::dir::NAME, b"/", &journal, b" (its epoch)"].concat().as_slice())
}

const HEAD: &str = "longhaul journal epoch 1";
const EPOCH: &str = ".epoch";
const NEW: &str = ".new";
/// Bytes of a text at most: the numbers have at most 20 and 10 digits.
const EPOCH_BYTES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_read_as_it_was_written_and_a_damaged_one_is_not_relied_on() {
        let epoch = Epoch { number: 3, copies: 2, trust: Trust::Sure };
        assert_eq!(epoch.text(), "longhaul journal epoch 1\nepoch 3\ncopies 2\ntrust sure\nend\n");
        let most = Epoch { number: u64::MAX, copies: u32::MAX, trust: Trust::Unsure };
        for epoch in [epoch, most, Epoch::FIRST] {
            assert_eq!(Epoch::parse(epoch.text().as_bytes()), epoch);
            assert!(epoch.text().len() < EPOCH_BYTES_MAX);
        }
        let damaged = Epoch { trust: Trust::Unsure, ..Epoch::FIRST };
        for text in [&b""[..], b"longhaul journal epoch 1\nepoch 3\ncopies 2\ntrust sure\n", &[0; 64]] {
            assert_eq!(Epoch::parse(text), damaged);
        }
    }
}
