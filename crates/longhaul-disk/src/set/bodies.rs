//! The bodies of a set against the stripe files that name them: files of which a part is missing,
//! and orphans, which are bodies that nothing names.
//!
//! In: a set. Out: findings; and, if that is asked for, the orphans are removed. A body is no
//! orphan while anything may name it: a temporary of any kind with its id, a stripe file that
//! cannot be proven and has its id, a target that is missing, a name that cannot be looked at.
//! Changes nothing else. Knows no sessions.

use std::collections::{BTreeMap, HashSet};
use std::os::fd::OwnedFd;

use longhaul_core::limits::{RESERVED_PREFIX, SET_DIR_NAME};
use longhaul_core::{Escaped, RelPath, TargetId, TempName};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;

use crate::direct::DirectMode;
use crate::error::{DiskError, PathText};
use crate::fill::read_up_to;
use crate::names::each_name;
use crate::set::{SetTarget, Striping, TargetSet};
use crate::shelf::remove_idle;
use crate::stat::{len_of, type_of};
use crate::stripe::{Footer, Header, StripedFile, TRAILER_BYTES, may_be_stripe};
use crate::walk::Dir;

/// A body that nothing names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// The number of its target.
    pub target: u32,
    /// The id of the file that it was a part of.
    pub id: TempName,
    /// Its length in bytes.
    pub bytes: u64,
    /// The path of the file that it was a part of, as its footer tells. `None`: that file was never
    /// whole, or the footer is damaged.
    pub path: Option<Vec<u8>>,
}

/// The outcome of a look at all bodies of a set.
#[derive(Debug, Default)]
pub struct BodySurvey {
    /// Bodies that nothing names.
    pub orphans: Vec<Orphan>,
    /// Striped files that cannot be read, and names that cannot be looked at.
    pub wrong: Vec<DiskError>,
    /// The reason why orphans are not to be removed now. `None`: they may be.
    pub doubt: Option<String>,
}

/// The use of orphans that are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Orphans {
    /// They are told.
    Told,
    /// They are removed, if there is no doubt.
    Removed,
}

impl TargetSet {
    /// Looks at all bodies of a set, and at all names that may need them. A set without striped
    /// files has none.
    ///
    /// # Errors
    /// The system's error, if the bodies of a target cannot be listed or an orphan cannot be
    /// removed.
    pub fn survey_bodies(&self, orphans: Orphans) -> Result<BodySurvey, DiskError> {
        match self.striping() {
            Some(striping) => self.orphans_with_footers(striping, orphans).map(|(survey, _)| survey),
            None => Ok(BodySurvey::default()),
        }
    }

    /// The same, with the footers of the orphans that have one.
    pub(super) fn orphans_with_footers(
        &self,
        striping: &Striping,
        orphans: Orphans,
    ) -> Result<(BodySurvey, Vec<Footer>), DiskError> {
        let (mut survey, mut footers) = (BodySurvey::default(), Vec::new());
        // The bodies come first: a file that is committed meanwhile has its name by the time that
        // the names are looked at.
        let bodies = list_bodies(self)?;
        let mut named = self.named_ids(striping, &mut survey);
        if bodies.values().flatten().any(|(id, _)| !named.contains(id)) {
            // A name that was moved within its directory may have been missed once.
            named.extend(self.named_ids(striping, &mut BodySurvey::default()));
        }
        if let Some(missing) = self.missing().first() {
            survey.doubt = Some(format!("target {} is missing, and may have the names of some", missing.id.0));
        }
        for (target, dir) in self.bodies_there() {
            for (id, bytes) in bodies.get(&target.id).into_iter().flatten().filter(|(id, _)| !named.contains(id)) {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let fd = match openat(dir, &id.file_name()[..], flags, Mode::empty()) {
                    // A session that has ended meanwhile has removed it.
                    Err(Errno::NOENT) => continue,
                    outcome => outcome.map_err(|error| failed(target, error))?,
                };
                if longhaul_sys::lock::is_locked(&fd).unwrap_or(true) {
                    continue;
                }
                let footer = footer_of(striping, &fd).filter(|footer| (footer.id, footer.target) == (*id, target.id));
                let path = footer.as_ref().map(|footer| footer.path.clone());
                if path.as_deref().is_some_and(|path| self.has_stripe_file_like(path)) {
                    continue;
                }
                survey.orphans.push(Orphan { target: target.id.0, id: *id, bytes: *bytes, path });
                footers.extend(footer);
            }
        }
        if orphans == Orphans::Removed && survey.doubt.is_none() {
            for orphan in &survey.orphans {
                for (target, dir) in self.bodies_there().filter(|(target, _)| target.id.0 == orphan.target) {
                    let removed = remove_idle(dir, target.tree.root().kernel(), &orphan.id);
                    removed.map_err(|error| failed(target, error))?;
                }
            }
        }
        Ok((survey, footers))
    }

    /// Whether something stands at a path that begins as a stripe file, be it torn or cut.
    fn has_stripe_file_like(&self, path: &[u8]) -> bool {
        let Ok(path) = RelPath::new(path) else { return false };
        let (Some(above), Some(name)) = (path.parent(), path.name()) else { return false };
        self.targets().iter().any(|target| {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let start = || {
                let fd = openat(target.tree.dir(&above).ok()?, name, flags, Mode::empty()).ok()?;
                let mut start = [0; CLAIM_BYTES];
                let len = read_up_to(&fd, &mut start, 0).ok()?;
                Some(Header::begins(&start[..len]))
            };
            start().unwrap_or(false)
        })
    }

    /// The ids that any name of the set may need.
    fn named_ids(&self, striping: &Striping, survey: &mut BodySurvey) -> HashSet<TempName> {
        let mut names = Names { striping, named: HashSet::new(), survey };
        for target in self.targets() {
            let mut dirs = vec![RelPath::root()];
            while let Some(path) = dirs.pop() {
                let looked = target.tree.dir(&path).and_then(|dir| names.look(&dir, &path, &mut dirs));
                if let Err(error) = looked {
                    names.survey.doubt = Some(error.to_string());
                    names.survey.wrong.push(error);
                }
            }
        }
        names.named
    }
}

/// The ids that names of the set may need, as they are found.
struct Names<'s> {
    striping: &'s Striping,
    named: HashSet<TempName>,
    survey: &'s mut BodySurvey,
}

impl Names<'_> {
    /// Looks at the names in a directory; adds those of directories to `dirs`.
    fn look(&mut self, dir: &Dir, path: &RelPath, dirs: &mut Vec<RelPath>) -> Result<(), DiskError> {
        let failed = |error| DiskError::call("list", path, error);
        let mut names = Vec::new();
        each_name(dir.readable().map_err(failed)?, |name| names.push(name.to_vec())).map_err(failed)?;
        for name in names {
            if let Some(temp) = TempName::parse(&name) {
                self.named.insert(temp);
                continue;
            }
            // The journals, and the set's own files.
            if name == RESERVED_PREFIX || name == SET_DIR_NAME {
                continue;
            }
            let Ok(below) = path.join(&name) else {
                let what = Escaped(&name);
                self.survey.doubt = Some(format!("what lies at '{what}' in '{}' cannot be looked at", path.escaped()));
                continue;
            };
            let stat = match statat(dir, &name[..], AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(DiskError::call("examine", &below, error)),
            };
            match type_of(&stat) {
                FileType::Directory => dirs.push(below),
                FileType::RegularFile if may_be_stripe(&stat) => self.look_into(dir, &name, &below)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Looks into a file that may be a stripe file.
    fn look_into(&mut self, dir: &Dir, name: &[u8], path: &RelPath) -> Result<(), DiskError> {
        let failed = |error| DiskError::call("read", path, error);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = match openat(dir, name, flags, Mode::empty()) {
            Err(Errno::NOENT | Errno::LOOP) => return Ok(()),
            outcome => outcome.map_err(failed)?,
        };
        let stripes = &self.striping.stripes;
        let Some(header) = stripes.header_in(&fd).map_err(failed)? else {
            let mut start = [0; CLAIM_BYTES];
            let len = read_up_to(&fd, &mut start, 0).map_err(failed)?;
            self.named.extend(Header::claimed_id(&start[..len]));
            return Ok(());
        };
        self.named.insert(header.id);
        let open = StripedFile::open(stripes, (&fd, &PathText::from(path)), &header, DirectMode::Buffered);
        self.survey.wrong.extend(open.err());
        Ok(())
    }
}

/// The bodies on each target that is there, with their lengths.
fn list_bodies(set: &TargetSet) -> Result<BTreeMap<TargetId, Vec<(TempName, u64)>>, DiskError> {
    let mut bodies = BTreeMap::new();
    for (target, dir) in set.bodies_there() {
        let failed = |error| failed(target, error);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let listed = openat(dir, c".", flags, Mode::empty()).map_err(failed)?;
        let mut found = Vec::new();
        each_name(listed, |name| found.extend(TempName::parse(name))).map_err(failed)?;
        let len = |id: TempName| match statat(dir, &id.file_name()[..], AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some((id, len_of(&stat)))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(failed(error)),
        };
        let found: Vec<Option<_>> = found.into_iter().map(len).collect::<Result<_, _>>()?;
        bodies.insert(target.id, found.into_iter().flatten().collect());
    }
    Ok(bodies)
}

/// The footer of a body. `None` if it has none that is proven.
fn footer_of(striping: &Striping, fd: &OwnedFd) -> Option<Footer> {
    let len = len_of(&fstat(fd).ok()?);
    let mut trailer = [0; TRAILER_BYTES];
    let at = len.checked_sub(TRAILER_BYTES as u64)?;
    let read = read_up_to(fd, &mut trailer, at).ok()?;
    let footer_len = Footer::len_in(&trailer[..read])?;
    let at = len.checked_sub(footer_len)?;
    let mut bytes = vec![0; usize::try_from(footer_len).ok()?];
    let read = read_up_to(fd, &mut bytes, at).ok()?;
    Footer::parse(&bytes[..read], striping.stripes.key())
}

fn failed(target: &SetTarget, error: Errno) -> DiskError {
    DiskError::call("look at the bodies of", target.tree.named(), error)
}

/// Bytes at the start of a file in which a stripe file tells its id.
const CLAIM_BYTES: usize = 512;
