//! Scans only the named paths (`--files-from`): the names, all entries beneath those that are
//! directories, and the directories above them, in the same depth-first order as a whole scan.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};

use longhaul_core::{EntryKind, PathList, RelPath};
use rustix::fs::{FileType, Stat, fstat};

use crate::error::DiskError;
use crate::source::extras::Spot;
use crate::source::scan::Scan;
use crate::stat::{place_of, type_of};

/// The directories above the current name that were begun and not yet ended, outermost first, with
/// the part of the source in which each was found.
type Open = Vec<(RelPath, usize, Stat)>;

impl Scan<'_> {
    /// Scans the names beneath `top`.
    pub(crate) fn selected(&mut self, top: &RelPath, names: &PathList) -> ControlFlow<()> {
        let mut open = Open::new();
        // In the order of the list the names in one directory stand together.
        for name in names.iter() {
            self.named(top, &name, &mut open)?;
        }
        self.end_all(&mut open, |_| true)
    }

    fn named(&mut self, top: &RelPath, name: &RelPath, open: &mut Open) -> ControlFlow<()> {
        let full = match top.concat(name) {
            Ok(full) => full,
            Err(source) => return self.failed(top, DiskError::Name { path: name.into(), source }),
        };
        self.end_all(open, |dir| !lies_in(&full, dir))?;
        for above in between(top, &full).into_iter().skip(open.len()) {
            let (part, stat) = match self.look_up(&above) {
                Ok(found) if type_of(&found.stat) == FileType::Directory => (found.part(), found.stat),
                Ok(found) if type_of(&found.stat) == FileType::Symlink => {
                    return self.failed(&full, DiskError::Escape { path: (&above).into() });
                }
                Ok(_) => return self.failed(&full, DiskError::NotADirectory { path: (&above).into() }),
                Err(error) => return self.failed(&full, error),
            };
            if !above.is_root() && !self.what.filter.verdict(&above, true) {
                return ControlFlow::Continue(());
            }
            self.entry((part, Spot::Nowhere), above.clone(), EntryKind::Dir, &stat)?;
            open.push((above, part, stat));
        }
        self.tree(&full)
    }

    /// Ends open directories from the innermost on, as long as `is_over` says so.
    fn end_all(&mut self, open: &mut Open, is_over: impl Fn(&RelPath) -> bool) -> ControlFlow<()> {
        while let Some((dir, part, stat)) = open.pop_if(|(dir, ..)| is_over(dir)) {
            let open = self.open_again(part, &dir, &stat);
            let spot = open.as_ref().map_or(Spot::Nowhere, |fd| Spot::Open(fd.as_fd()));
            self.entry((part, spot), dir, EntryKind::DirEnd, &stat)?;
        }
        ControlFlow::Continue(())
    }

    /// The directory at `path` of a part, for its extras. `None` if none are wanted, or if another
    /// one stands there now.
    fn open_again(&self, part: usize, path: &RelPath, stat: &Stat) -> Option<OwnedFd> {
        if !self.what.preserve.has_extras() {
            return None;
        }
        let fd = self.dir_of(part, path)?;
        let is = fstat(&fd).ok()?;
        (place_of(&is) == place_of(stat)).then_some(fd)
    }
}

/// The directories from `top` down to the one that `path` lies in; empty for `top` itself.
fn between(top: &RelPath, path: &RelPath) -> Vec<RelPath> {
    let above = std::iter::successors(path.parent(), RelPath::parent);
    let mut above: Vec<RelPath> = above.take_while(|dir| lies_in(dir, top)).collect();
    above.reverse();
    above
}

/// Whether `path` is `dir` or beneath it.
fn lies_in(path: &RelPath, dir: &RelPath) -> bool {
    match path.as_bytes().strip_prefix(dir.as_bytes()) {
        Some(rest) => dir.is_root() || rest.is_empty() || rest.starts_with(b"/"),
        None => false,
    }
}
