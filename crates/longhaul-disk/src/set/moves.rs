//! The record of a move of a file between targets, and the end of a move that it tells of.
//!
//! In: a set that nobody else uses, and the record on a target. Out: the file stands once, on one
//! of the two targets, whole. The record is durable before the file gets its second name and stays
//! until the first one is gone, so that a name that a move has doubled is never taken for one that
//! stands twice by mistake. A name that was changed by somebody else meanwhile is left alone. Moves
//! no bytes.

use longhaul_core::{Mtime, RelPath, TargetId, TempName};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;

use crate::error::{DiskError, ErrorKind, PathText, SetError};
use crate::fill::read_up_to;
use crate::lines::{from_hex, hex, path_of, push_path};
use crate::set::mark::{own_dir, place};
use crate::set::{SetTarget, TargetSet, remove_bodies};
use crate::set_id::SetId;
use crate::stat::{identity_of, type_of};
use crate::walk::Dir;

/// A move that is under way. Its record lies on the target that the name is moved from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Move {
    /// The file's path beneath the set.
    pub(super) path: RelPath,
    /// Its new name until it is whole, and the id of a striped file.
    pub(super) temp: TempName,
    /// Its kind.
    pub(super) kind: MoveKind,
}

/// The kind of a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MoveKind {
    /// The name goes to another target.
    Name {
        /// The other target.
        to: TargetId,
        /// The inode number of the copy there.
        copy: u64,
        /// The file that is moved.
        from: FileVersion,
    },
    /// The name stays where it is, and its chunks get new bodies.
    Chunks {
        /// The id of the file that is replaced.
        old: TempName,
    },
}

/// A file as it was when its move began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileVersion {
    ino: u64,
    len: u64,
    mtime: Mtime,
    ctime: Mtime,
}

impl FileVersion {
    /// The version of a file with this `stat`.
    pub(super) fn of(stat: &Stat) -> FileVersion {
        let identity = identity_of(stat);
        FileVersion { ino: identity.ino, len: identity.len, mtime: identity.mtime, ctime: identity.ctime }
    }

    /// Its inode number.
    pub(super) fn ino(&self) -> u64 {
        self.ino
    }

    fn content(&self) -> (u64, Mtime) {
        (self.len, self.mtime)
    }
}

impl Move {
    /// The text of its record.
    fn to_bytes(&self, set: SetId) -> Vec<u8> {
        let mut text = format!("{HEADER}\nset {set}\ntemp {}\n", hex(self.temp.bytes())).into_bytes();
        let kind = match &self.kind {
            MoveKind::Name { to, copy, from: FileVersion { ino, len, mtime, ctime } } => format!(
                "to {}\ncopy {copy}\nfile {ino} {len} {} {} {} {}\n",
                to.0, mtime.secs, mtime.nanos, ctime.secs, ctime.nanos
            ),
            MoveKind::Chunks { old } => format!("old {}\n", hex(old.bytes())),
        };
        text.extend_from_slice(kind.as_bytes());
        text.extend_from_slice(b"path ");
        push_path(&mut text, self.path.as_bytes());
        text.extend_from_slice(b"\nend\n");
        text
    }

    /// The move of a text. `None` if it is none of this set.
    fn parse(text: &[u8], set: SetId) -> Option<Move> {
        let mut lines = text.strip_suffix(b"\nend\n")?.split(|byte| *byte == b'\n');
        let mut field = |name: &str| lines.next()?.strip_prefix(name.as_bytes());
        field(HEADER).filter(|rest| rest.is_empty())?;
        let text = |bytes: &'_ [u8]| String::from_utf8(bytes.to_vec()).ok();
        field("set ").and_then(text).and_then(|text| SetId::parse(&text)).filter(|known| *known == set)?;
        let temp = TempName::of(from_hex(field("temp ")?)?);
        let next = lines.next()?;
        let kind = if let Some(old) = next.strip_prefix(b"old ") {
            MoveKind::Chunks { old: TempName::of(from_hex(old)?) }
        } else {
            let to = TargetId(text(next.strip_prefix(b"to ")?)?.parse().ok()?);
            let mut field = |name: &str| text(lines.next()?.strip_prefix(name.as_bytes())?);
            let copy = field("copy ")?.parse().ok()?;
            let file = field("file ")?;
            let numbers: Vec<i64> = file.split(' ').map(|number| number.parse().ok()).collect::<Option<_>>()?;
            let [ino, len, mtime, mtime_nanos, ctime, ctime_nanos] = numbers.try_into().ok()?;
            let time = |secs, nanos: i64| Some(Mtime { secs, nanos: u32::try_from(nanos).ok()? });
            let (mtime, ctime) = (time(mtime, mtime_nanos)?, time(ctime, ctime_nanos)?);
            MoveKind::Name { to, copy, from: FileVersion { ino: ino as u64, len: len as u64, mtime, ctime } }
        };
        let path = RelPath::new(path_of(lines.next()?.strip_prefix(b"path ")?)?).ok()?;
        lines.next().is_none().then_some(Move { path, temp, kind })
    }

    /// Writes its record to the target that the name is moved from. It is durable when this
    /// returns.
    pub(super) fn record(&self, from: &SetTarget, set: &TargetSet) -> Result<(), DiskError> {
        let root = from.tree.root();
        let no_set = || SetError::NoSet { dir: from.tree.named().into() };
        let set = set.mark().ok_or_else(no_set)?.set;
        let write = || {
            let own = own_dir(root)?.ok_or(Errno::NOENT)?;
            place(root.kernel(), &own, MOVE_NAME, &self.to_bytes(set), Mode::RUSR | Mode::WUSR)?;
            root.kernel().fsync(&own)
        };
        write().map_err(|error| DiskError::call("write the record of a move to", from.tree.named(), error))
    }
}

/// Whether a target has the record of a move.
pub(super) fn is_moving(root: &Dir) -> bool {
    let own = own_dir(root).ok().flatten();
    own.is_some_and(|own| statat(own, MOVE_NAME, AtFlags::SYMLINK_NOFOLLOW).is_ok())
}

impl TargetSet {
    /// Ends all moves that were interrupted. The set must be held alone, with all of its targets.
    pub(super) fn settle_moves(&self) -> Result<(), DiskError> {
        self.targets().iter().try_for_each(|target| match self.recorded(target)? {
            Recorded::Nothing => Ok(()),
            Recorded::Move(known) => self.settle(target, &known),
            // It was torn before it counted, or is another set's: nothing was published for it.
            Recorded::Other => forget(target),
        })
    }

    fn recorded(&self, target: &SetTarget) -> Result<Recorded, DiskError> {
        let failed = |error| DiskError::call("read the record of a move on", target.tree.named(), error);
        let (Some(own), Some(mark)) = (own_dir(target.tree.root()).map_err(failed)?, self.mark()) else {
            return Ok(Recorded::Nothing);
        };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = match openat(own, MOVE_NAME, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(Recorded::Nothing),
            Err(error) => return Err(failed(error)),
        };
        let mut text = vec![0; MOVE_BYTES_MAX];
        let len = read_up_to(&fd, &mut text, 0).map_err(failed)?;
        Ok(Move::parse(&text[..len], mark.set).map_or(Recorded::Other, Recorded::Move))
    }

    /// Ends a move whose record lies on `from`: forward if its commit point was passed, else back.
    pub(super) fn settle(&self, from: &SetTarget, known: &Move) -> Result<(), DiskError> {
        match &known.kind {
            MoveKind::Name { to, copy, from: version } => {
                if let Some(to) = self.targets().iter().find(|target| target.id == *to) {
                    settle_name(known, (from, to), (*copy, version))?;
                }
            }
            MoveKind::Chunks { old } => self.settle_chunks(from, known, old)?,
        }
        forget(from)
    }

    /// The rename of the stripe file is the commit point: before it the new bodies go, after it the
    /// old ones.
    fn settle_chunks(&self, home: &SetTarget, known: &Move, old: &TempName) -> Result<(), DiskError> {
        let (Some(striping), Some(above)) = (self.striping(), known.path.parent()) else { return Ok(()) };
        let failed = |error| DiskError::call("end the move of", &known.path, error);
        let dir = match home.tree.dir(&above) {
            Ok(dir) => dir,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        let name = known.path.name().unwrap_or_default();
        let standing = match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => striping.stripes.header_of(&dir, name, &stat).map_err(failed)?,
            Err(Errno::NOENT) => None,
            Err(error) => return Err(failed(error)),
        };
        match standing {
            Some(header) if header.id == known.temp => {
                dir.sync().map_err(failed)?;
                remove_bodies(self, old);
            }
            _ => {
                gone(dir.kernel().unlinkat(&dir, &known.temp.file_name())).map_err(failed)?;
                dir.sync().map_err(failed)?;
                remove_bodies(self, &known.temp);
            }
        }
        Ok(())
    }
}

/// The record on a target.
enum Recorded {
    Nothing,
    Move(Move),
    Other,
}

/// The rename to the new name is the commit point. Until it, the copy goes; from it on, the
/// original, if it is still what was copied.
fn settle_name(
    known: &Move,
    (from, to): (&SetTarget, &SetTarget),
    (copy, version): (u64, &FileVersion),
) -> Result<(), DiskError> {
    let failed = |error| DiskError::call("end the move of", &known.path, error);
    let (Some(above), Some(name)) = (known.path.parent(), known.path.name()) else { return Ok(()) };
    let at = |target: &SetTarget| match target.tree.dir(&above) {
        Ok(dir) => Ok(Some(dir)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(error) => Err(error),
    };
    let Some(there) = at(to)? else { return Ok(()) };
    let temp = known.temp.file_name();
    let here = at(from)?;
    let original = here.as_ref().map_or(Ok(None), |dir| version_at(dir, name)).map_err(failed)?;
    let published = version_at(&there, name).map_err(failed)?.filter(|stands| stands.ino == copy);
    let Some(published) = published else {
        gone(there.kernel().unlinkat(&there, &temp)).map_err(failed)?;
        return there.sync().map_err(failed);
    };
    let (Some(here), Some(original)) = (here, original) else { return there.sync().map_err(failed) };
    if original == *version {
        // The new name is durable before the old one goes.
        there.sync().map_err(failed)?;
        gone(here.kernel().unlinkat(&here, name)).map_err(failed)?;
        return here.sync().map_err(failed);
    }
    // Somebody has changed the original since. The copy is of no use, unless that was changed too:
    // then the name stands twice, and is told as one that does.
    if published.content() == version.content() {
        gone(there.kernel().unlinkat(&there, name)).map_err(failed)?;
    }
    there.sync().map_err(failed)
}

/// The version of a file or link under a name. `None` if there is none.
fn version_at(dir: &Dir, name: &[u8]) -> Result<Option<FileVersion>, Errno> {
    match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if matches!(type_of(&stat), FileType::RegularFile | FileType::Symlink) => {
            Ok(Some(FileVersion::of(&stat)))
        }
        Ok(_) | Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes the record of a move that is ended.
fn forget(target: &SetTarget) -> Result<(), DiskError> {
    let root = target.tree.root();
    let removed = own_dir(root).and_then(|own| own.map_or(Ok(()), |own| gone(root.kernel().unlinkat(own, MOVE_NAME))));
    let shown: PathText = target.tree.named().into();
    removed.map_err(|error| DiskError::call("remove the record of a move from", shown, error))
}

/// The outcome of a removal, where it is as good that nothing stood there.
pub(super) fn gone(removed: Result<(), Errno>) -> Result<(), Errno> {
    match removed {
        Err(Errno::NOENT) => Ok(()),
        outcome => outcome,
    }
}

const HEADER: &str = "longhaul set move 1";
const MOVE_NAME: &[u8] = b"move";
/// Longer than any record: a path of 4095 bytes, each of which may be escaped.
const MOVE_BYTES_MAX: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written_and_a_torn_one_is_none() {
        let time = |secs| Mtime { secs, nanos: 5 };
        let from = FileVersion { ino: 7, len: 9, mtime: time(-3), ctime: time(4) };
        let name = MoveKind::Name { to: TargetId(2), copy: 8, from };
        for kind in [name, MoveKind::Chunks { old: TempName::of([1; 16]) }] {
            let path = RelPath::new(&b"a\\b/c\nd"[..]).expect("a path");
            let known = Move { path, temp: TempName::of([2; 16]), kind };
            let text = known.to_bytes(SetId([3; 16]));
            assert_eq!(Move::parse(&text, SetId([3; 16])), Some(known));
            assert_eq!(Move::parse(&text, SetId([4; 16])), None);
            assert!((0..text.len()).all(|len| Move::parse(&text[..len], SetId([3; 16])).is_none()));
        }
    }
}
