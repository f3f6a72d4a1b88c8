//! The mark of a target: a small text file in `.longhaul-set` at its top that says of which set it
//! is, its number there and how many targets there are.
//!
//! In: an open directory. Out: its mark, or a new one, durable before the call returns. The format
//! is that of `docs/SETS.md`. Follows no link. Knows nothing of the other targets.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use longhaul_core::Mtime;
use longhaul_core::limits::SET_DIR_NAME as DIR_NAME;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, fstat, openat, statat};
use rustix::io::{Errno, pread};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use crate::destination::Replace;
use crate::error::{DiskError, PathText, SetError};
use crate::kernel::Kernel;
use crate::lines::{path_of, push_path};
use crate::names::each_name;
use crate::set::{lock, secret};
use crate::set_id::SetId;
use crate::stat::{identity_of, len_of, type_of};
use crate::walk::Dir;

/// The way in which a set lays files over its targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SetLayout {
    /// Each file lies whole on one target, under its own path.
    #[default]
    Spread,
    /// The chunks of a large file lie on all targets, under the names of the set's own; smaller
    /// files lie as in [`SetLayout::Spread`].
    Stripe,
}

/// The mark of one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetMark {
    /// The set.
    pub set: SetId,
    /// Its layout.
    pub layout: SetLayout,
    /// The number of changes of the set's targets so far, from 1.
    pub generation: u64,
    /// The number of this target, from 0.
    pub number: u32,
    /// The directories of all targets, in order, as they were named when the set was made or
    /// changed last: where to look for the others. A disk may be mounted elsewhere by now.
    pub places: Vec<PathBuf>,
}

impl SetLayout {
    /// Its name, for people and scripts.
    pub const fn name(self) -> &'static str {
        match self {
            SetLayout::Spread => "spread",
            SetLayout::Stripe => "stripe",
        }
    }

    /// The layout of a name. `None` if there is none.
    pub fn parse(name: &str) -> Option<SetLayout> {
        [SetLayout::Spread, SetLayout::Stripe].into_iter().find(|layout| layout.name() == name)
    }
}

impl SetMark {
    /// The bytes of its file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let SetMark { set, layout, generation, number, places } = self;
        let (layout, count) = (layout.name(), places.len());
        let mut text =
            format!("{HEADER}\nset {set}\nlayout {layout}\ngeneration {generation}\ntarget {number} of {count}\n")
                .into_bytes();
        for place in places {
            text.extend_from_slice(b"place ");
            push_path(&mut text, place.as_os_str().as_bytes());
            text.push(b'\n');
        }
        text.extend_from_slice(b"end\n");
        text
    }

    /// The number of targets.
    pub fn count(&self) -> u32 {
        self.places.len() as u32
    }

    /// The mark of a text.
    ///
    /// # Errors
    /// The respect in which it is none.
    pub fn parse(text: &[u8]) -> Result<SetMark, &'static str> {
        let mut lines = text.strip_suffix(b"\nend\n").ok_or("it is not whole")?.split(|&b| b == b'\n');
        let header = lines.next().unwrap_or_default();
        if header != HEADER.as_bytes() {
            let ours = header.starts_with(HEADER.trim_end_matches(char::is_numeric).as_bytes());
            return Err(if ours { "it is of another version of longhaul" } else { "it is no mark of longhaul" });
        }
        let mut field = |name: &str| str::from_utf8(lines.next()?).ok()?.strip_prefix(name)?.strip_prefix(' ');
        let set = field("set").and_then(SetId::parse).ok_or("it names no set")?;
        let layout = field("layout").and_then(SetLayout::parse).ok_or("it names no layout that is known")?;
        let generation = field("generation").and_then(|n| n.parse().ok()).ok_or("it has no generation")?;
        let target = field("target").and_then(|text| text.split_once(" of "));
        let numbers = target.and_then(|(number, count)| Some((number.parse().ok()?, count.parse().ok()?)));
        let (number, count): (u32, usize) = numbers.ok_or("it has no number")?;
        let places: Option<Vec<PathBuf>> = lines
            .map(|line| path_of(line.strip_prefix(b"place ")?).map(OsString::from_vec).map(PathBuf::from))
            .collect();
        let places = places.ok_or("it says more than is known")?;
        if number as usize >= count || generation == 0 || places.len() != count {
            return Err("its numbers contradict each other");
        }
        Ok(SetMark { set, layout, generation, number, places })
    }

    /// Reads the mark of the target at `root`. `None` if it has none.
    pub(super) fn read(root: &Dir, dir: &PathText) -> Result<Option<SetMark>, DiskError> {
        SetMark::read_named(root, dir, MARK_NAME)
    }

    /// Reads the mark that the target at `root` is to have: see [`super::making`].
    pub(super) fn read_coming(root: &Dir, dir: &PathText) -> Result<Option<SetMark>, DiskError> {
        SetMark::read_named(root, dir, COMING_NAME)
    }

    fn read_named(root: &Dir, dir: &PathText, name: &[u8]) -> Result<Option<SetMark>, DiskError> {
        let bad = |why| DiskError::from(SetError::BadMark { dir: dir.clone(), why });
        let failed = |error| DiskError::call("read the mark of", dir, error);
        let Some(own) = own_dir(root).map_err(failed)? else { return Ok(None) };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = match openat(&own, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(bad("it is a symbolic link")),
            Err(error) => return Err(failed(error)),
        };
        let stat = fstat(&fd).map_err(failed)?;
        if type_of(&stat) != FileType::RegularFile {
            return Err(bad("it is no regular file"));
        }
        let top = fstat(root).map_err(failed)?;
        for held in [fstat(&own).map_err(failed)?, stat] {
            is_trusted(&held, &top).map_err(bad)?;
        }
        if len_of(&stat) > MARK_BYTES_MAX as u64 {
            return Err(bad("it is longer than any mark"));
        }
        let mut text = vec![0; len_of(&stat) as usize + 1];
        let mut len = 0;
        while len < text.len() {
            match pread(&fd, &mut text[len..], len as u64) {
                Ok(0) => break,
                Ok(read) => len += read,
                Err(Errno::INTR) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        SetMark::parse(&text[..len]).map(Some).map_err(bad)
    }

    /// Writes the mark of the target at `root` in the place of the one that stands, if any. It is
    /// durable when this returns.
    pub(super) fn write(&self, root: &Dir, dir: &PathText) -> Result<(), DiskError> {
        self.try_write(root, MARK_NAME).map_err(|error| DiskError::call("write the mark of", dir, error))
    }

    /// Writes the mark that the target at `root` is to have. It is durable when this returns.
    pub(super) fn write_coming(&self, root: &Dir, dir: &PathText) -> Result<(), DiskError> {
        self.try_write(root, COMING_NAME).map_err(|error| DiskError::call("write the coming mark of", dir, error))
    }

    /// The time at which the coming mark of the target at `root` was written. `None`: there is
    /// none.
    pub(super) fn coming_since(root: &Dir) -> Option<Mtime> {
        let own = own_dir(root).ok()??;
        let stat = statat(&own, COMING_NAME, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(identity_of(&stat).mtime)
    }

    /// Takes the target at `root` from its set for good: its mark gets another name, and all else
    /// stays.
    pub(super) fn retire(root: &Dir, dir: &PathText) -> Result<(), DiskError> {
        let retire = || {
            let own = own_dir(root)?.ok_or(Errno::NOENT)?;
            root.kernel().renameat(&own, MARK_NAME, RETIRED_NAME, Replace::Allowed)?;
            root.kernel().fsync(&own)
        };
        retire().map_err(|error| DiskError::call("retire the mark of", dir, error))
    }

    /// Removes the mark that the target at `root` was to have, if there is one.
    pub(super) fn forget_coming(root: &Dir, dir: &PathText) -> Result<(), DiskError> {
        let forget = || {
            let Some(own) = own_dir(root)? else { return Ok(()) };
            match root.kernel().unlinkat(&own, COMING_NAME) {
                Ok(()) => root.kernel().fsync(&own),
                Err(Errno::NOENT) => Ok(()),
                Err(error) => Err(error),
            }
        };
        forget().map_err(|error| DiskError::call("remove the coming mark of", dir, error))
    }

    /// Removes the mark of the target at `root`, which belongs to no set from then on, and the
    /// directory of the set's own files if nothing else is in it.
    pub(super) fn remove(root: &Dir, dir: &PathText) -> Result<(), DiskError> {
        let failed = |error| DiskError::call("remove the mark of", dir, error);
        let (kernel, Some(own)) = (root.kernel(), own_dir(root).map_err(failed)?) else { return Ok(()) };
        match kernel.unlinkat(&own, MARK_NAME) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(failed(error)),
        }
        kernel.fsync(&own).map_err(failed)?;
        // The rest says nothing without a mark.
        let _ = secret::remove(root);
        for name in [README_NAME, LOCK_NAME, COMING_NAME] {
            let _ = kernel.unlinkat(&own, name);
        }
        let _ = kernel.rmdirat(root, DIR_NAME);
        root.sync().map_err(failed)
    }

    fn try_write(&self, root: &Dir, name: &[u8]) -> Result<(), Errno> {
        let kernel = root.kernel();
        let own = made_own_dir(root)?;
        if statat(&own, README_NAME, AtFlags::SYMLINK_NOFOLLOW).is_err() {
            place(kernel, &own, README_NAME, README.as_bytes(), PUBLIC)?;
        }
        lock::make(root)?;
        place(kernel, &own, name, &self.to_bytes(), PUBLIC)?;
        kernel.fsync(&own)?;
        root.sync()
    }
}

/// Writes a small file under a name, durable before the name shows it.
pub(super) fn place(kernel: &Kernel, dir: &OwnedFd, name: &[u8], bytes: &[u8], mode: Mode) -> Result<(), Errno> {
    let new = [name, b".new"].concat();
    match kernel.unlinkat(dir, &new) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error),
    }
    let fd = kernel.create(dir, &new, OFlags::WRONLY, mode)?;
    let mut done = 0;
    while done < bytes.len() {
        match kernel.pwrite(&fd, &bytes[done..], done as u64) {
            Ok(0) => return Err(Errno::NOSPC),
            Ok(written) => done += written,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    kernel.fsync(&fd)?;
    kernel.renameat(dir, &new, name, Replace::Allowed)
}

/// The directory of a set's own files at the top of a target, made if it does not stand.
pub(super) fn made_own_dir(root: &Dir) -> Result<OwnedFd, Errno> {
    match root.kernel().mkdirat(root, DIR_NAME, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    own_dir(root)?.ok_or(Errno::NOENT)
}

/// Gives the directory of a set's own files on the target at `root`, and what is in it, to the
/// owner of that on another target of the set: root makes them, and others use them. What was given
/// away is not looked at again, as its owner may have changed what lies in it.
pub(super) fn give_own_dir(root: &Dir, like: &Dir) -> Result<(), Errno> {
    let (Some(own), Some(like)) = (own_dir(root)?, own_dir(like)?) else { return Ok(()) };
    let (made, owner) = (fstat(&own)?, fstat(&like)?);
    let is_given = (made.st_uid, made.st_gid) == (owner.st_uid, owner.st_gid) || made.st_uid != geteuid().as_raw();
    if is_given || !geteuid().is_root() {
        return Ok(());
    }
    let mut names = Vec::new();
    let listed = openat(&own, c".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    each_name(listed, |name| names.push(name.to_vec()))?;
    for name in names {
        let owner = match statat(&like, &name[..], AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => owner,
            outcome => outcome?,
        };
        root.kernel().give_to_owner_of(&owner, &own, &name)?;
    }
    root.kernel().give_to_owner_of(&owner, root, DIR_NAME)
}

/// The directory of a set's own files at the top of a target. `None` if it does not stand.
pub(super) fn own_dir(root: &Dir) -> Result<Option<OwnedFd>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match openat(root, DIR_NAME, flags, Mode::empty()) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Refuses what another user can have written: a mark, or the directory in which it lies, that
/// belongs neither to this user, nor to root, nor to whoever owns the whole target, or to which
/// others than its owner may write. Where nobody but this user or root can make anything at the top
/// of the target, one of them has given it to its owner: root adds targets to sets of others.
fn is_trusted(stat: &Stat, top: &Stat) -> Result<(), &'static str> {
    let own = [geteuid().as_raw(), 0];
    let was_given = own.contains(&top.st_uid) && top.st_mode & 0o022 == 0;
    if !was_given && ![own[0], own[1], top.st_uid].contains(&stat.st_uid) {
        return Err("it, or '.longhaul-set', belongs to another user");
    }
    if stat.st_mode & 0o022 != 0 {
        return Err("other users may write to it, or to '.longhaul-set': chmod go-w");
    }
    Ok(())
}

const PUBLIC: Mode = Mode::from_raw_mode(0o644);
const MARK_NAME: &[u8] = b"mark";
/// The mark that a target is to have: see [`super::making`].
const COMING_NAME: &[u8] = b"mark.coming";
/// The mark of a target in whose place another one stands.
const RETIRED_NAME: &[u8] = b"mark.retired";
/// The file that is locked while the set is used: see [`super::lock`].
pub(super) const LOCK_NAME: &[u8] = b"lock";
const README_NAME: &[u8] = b"README";
const HEADER: &str = "longhaul target set mark 1";
/// Longer than any mark: 1024 targets, each with a path of 4095 bytes.
const MARK_BYTES_MAX: usize = 5 << 20;
const README: &str = "\
This directory is one target of a longhaul target set: files of one tree are spread over several
directories on different disks. The file `mark` says of which set it is. Files beside this directory
are whole, plain files, and may be read by any program, but for those that say at their start that
they are longhaul striped files. Do not move any of them between targets by hand: `longhaul set`
does that. Do not remove or copy this directory.
";

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> SetMark {
        SetMark {
            set: SetId([0xa5; 16]),
            layout: SetLayout::Spread,
            generation: 3,
            number: 1,
            places: ["/d0", "/d1\nb", "/d\\2", "/d3"].map(PathBuf::from).to_vec(),
        }
    }

    /// The golden text of `docs/SETS.md`: targets that were marked once are read for ever.
    const GOLDEN: &str = "longhaul target set mark 1\nset a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5\nlayout spread\ngeneration 3\n\
                          target 1 of 4\nplace /d0\nplace /d1\\nb\nplace /d\\\\2\nplace /d3\nend\n";

    #[test]
    fn a_mark_is_the_golden_text_and_is_read_from_it() {
        assert_eq!(mark().to_bytes(), GOLDEN.as_bytes());
        assert_eq!(SetMark::parse(GOLDEN.as_bytes()), Ok(mark()));
    }

    #[test]
    fn a_text_that_is_torn_changed_or_newer_is_no_mark() {
        for len in 0..GOLDEN.len() {
            assert!(SetMark::parse(&GOLDEN.as_bytes()[..len]).is_err(), "{len} bytes");
        }
        for (from, to) in [
            ("mark 1", "mark 2"),
            ("longhaul", "shorthaul"),
            ("a5a5\n", "a5A5\n"),
            ("spread", "braid"),
            ("generation 3", "generation 0"),
            ("1 of 4", "4 of 4"),
            ("1 of 4", "-1 of 4"),
            ("end\n", "more\nend\n"),
            ("place /d3\n", ""),
            ("/d3", ""),
            (r"d1\n", r"d1\m"),
            ("layout", "LAYOUT"),
        ] {
            let text = GOLDEN.replacen(from, to, 1);
            assert!(SetMark::parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(SetMark::parse(b"\xff").is_err());
    }
}
