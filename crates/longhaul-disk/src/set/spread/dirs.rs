//! Directories of a spread destination whose content is still coming: the targets on which each
//! stands.
//!
//! A directory is made on one target at first, and on another one when a file comes there. At its
//! end it gets its mode and times on all of them. Knows no files.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use longhaul_core::{Meta, Preserve, RelPath};
use rustix::io::Errno;

use crate::destination::{FsTarget, Made, TargetTree};
use crate::error::DiskError;
use crate::load::TargetCondition;
use crate::stat::Standing;

/// The directories whose content is still coming. There are at most as many as are open at a time.
#[derive(Debug, Default)]
pub(super) struct OpenDirs {
    open: Mutex<HashMap<RelPath, OpenDir>>,
    /// Whether directories that stood before keep their mode and times.
    keeps_standing: bool,
}

#[derive(Debug)]
struct OpenDir {
    /// The places of the targets on which it stands.
    on: Vec<usize>,
    /// The permissions and times that it had on the first target where it stood before. `None`: it
    /// is new.
    stood: Option<Meta>,
    /// The number of targets on which it stood before: the first of `on`.
    stood_on: usize,
}

impl OpenDirs {
    /// Makes directories that stood before keep their mode and times.
    #[must_use]
    pub(super) fn keeping_standing(self) -> OpenDirs {
        OpenDirs { keeps_standing: true, ..self }
    }

    /// Opens the directory at `path` for what is coming. If `standing` says that it stands on some
    /// target, it is opened on each where it does; otherwise it is made on one.
    pub(super) fn open(
        &self,
        targets: &[FsTarget],
        path: &RelPath,
        standing: Option<(usize, Standing)>,
    ) -> Result<Made, DiskError> {
        if path.is_root() {
            return Ok(Made::Stood);
        }
        let mut open = self.lock();
        let Some((first, standing)) = standing else {
            let above = path.parent().unwrap_or_default();
            let at = open.get(&above).and_then(|dir| dir.on.first()).copied().unwrap_or(0);
            let answers =
                |at: &usize| !matches!(targets[*at].condition(), TargetCondition::Failed | TargetCondition::Hung);
            let at = if answers(&at) { at } else { (0..targets.len()).find(answers).unwrap_or(at) };
            let reached = self.reach_from(&mut open, targets, at, path);
            let made = targets[at].judged(reached.and_then(|()| targets[at].make_dir(path)))?;
            open.insert(path.clone(), OpenDir { on: vec![at], stood: None, stood_on: 0 });
            return Ok(made);
        };
        // It fails if something else than a directory stands there.
        let made = targets[first].make_dir(path)?;
        let mut on = vec![first];
        for (at, target) in targets.iter().enumerate().skip(first + 1) {
            if matches!(target.look_at(path)?, Some(Standing::Dir { .. })) {
                target.make_dir(path)?;
                on.push(at);
            }
        }
        let stood_on = on.len();
        open.insert(path.clone(), OpenDir { on, stood: Some(standing.meta()), stood_on });
        Ok(made)
    }

    /// Makes the directories above `path` on one target, as far as they are missing there.
    pub(super) fn reach(&self, targets: &[FsTarget], at: usize, path: &RelPath) -> Result<(), DiskError> {
        self.reach_from(&mut self.lock(), targets, at, path)
    }

    fn reach_from(
        &self,
        open: &mut HashMap<RelPath, OpenDir>,
        targets: &[FsTarget],
        at: usize,
        path: &RelPath,
    ) -> Result<(), DiskError> {
        let above = std::iter::successors(path.parent(), RelPath::parent).take_while(|dir| !dir.is_root());
        let mut missing: Vec<RelPath> =
            above.take_while(|dir| open.get(dir).is_none_or(|dir| !dir.on.contains(&at))).collect();
        while let Some(dir) = missing.pop() {
            match open.get_mut(&dir) {
                Some(known) => {
                    targets[at].make_dir(&dir)?;
                    known.on.push(at);
                }
                None => make_like(targets, at, &dir)?,
            }
        }
        Ok(())
    }

    /// Gives the directory at `path` its mode and times, on all targets where it stands.
    pub(super) fn finish(
        &self,
        targets: &[FsTarget],
        path: &RelPath,
        (meta, preserve): (&Meta, Preserve),
    ) -> Result<(), DiskError> {
        let known = self.lock().remove(path);
        let Some(OpenDir { on, stood, stood_on }) = known else {
            return if path.is_root() {
                targets.iter().try_for_each(|target| finish_on(target, path, (meta, preserve)))
            } else {
                Ok(())
            };
        };
        let finish = |(place, at): (usize, usize)| {
            // One that was made now beside one that stood gets what that one keeps.
            match stood.as_ref().filter(|_| place >= stood_on) {
                None => finish_on(&targets[at], path, (meta, preserve)),
                Some(stood) => {
                    let keeps = |carried: bool| self.keeps_standing || !carried;
                    let mode = if keeps(preserve.mode) { stood.mode } else { meta.mode };
                    let mtime = if keeps(preserve.times) { stood.mtime } else { meta.mtime };
                    let all = Preserve { mode: true, times: true, ..preserve };
                    let extras = meta.extras.clone();
                    finish_on(&targets[at], path, (&Meta { extras, ..Meta::new(mode, mtime) }, all))
                }
            }
        };
        // One that fails leaves no other with the mode of a directory that is still being filled.
        on.into_iter().enumerate().map(finish).fold(Ok(()), Result::and)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RelPath, OpenDir>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives a directory its mode and times on one target. One that failed takes them if it can.
fn finish_on(target: &FsTarget, path: &RelPath, (meta, preserve): (&Meta, Preserve)) -> Result<(), DiskError> {
    let finished = target.finish_dir(path, meta, preserve);
    if target.condition() == TargetCondition::Failed { Ok(()) } else { target.judged(finished) }
}

/// Makes a directory on one target that stands on others and gets no other content now: it has
/// their mode and times at once.
fn make_like(targets: &[FsTarget], at: usize, path: &RelPath) -> Result<(), DiskError> {
    // If it stands, its name is noted to be made durable: another session may have made it now.
    if targets[at].examine(path)?.is_some() {
        return Ok(());
    }
    let mut like = None;
    for target in targets {
        if let Some(standing @ Standing::Dir { .. }) = target.look_at(path)? {
            like = Some(standing.meta());
            break;
        }
    }
    let Some(meta) = like else { return Err(DiskError::call("enter", path, Errno::NOENT)) };
    targets[at].make_dir(path)?;
    targets[at].finish_dir(path, &meta, Preserve::default())
}
