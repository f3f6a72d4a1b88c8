//! The names in directories at a daemon, as they were listed last.
//!
//! In: paths beneath a source. Out: whether the source has them. Remembers the directories above
//! the last path alone, in bounded memory and for a bounded time. Knows no plan.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use longhaul_core::{Blame, Fault, FaultCode, RelPath};
use longhaul_engine::{Remote, RemotePath, Stop, list};

use crate::commands::block_on;

/// The directories above a path that were listed, the outermost one first.
#[derive(Default)]
pub(super) struct ListedAbove {
    dirs: Vec<ListedDir>,
}

/// A directory as it was listed.
struct ListedDir {
    path: RelPath,
    names: HashSet<Vec<u8>>,
    /// Memory of the names.
    bytes: usize,
    asked: Instant,
}

impl ListedAbove {
    /// Whether the top has no names. It is asked for anew.
    ///
    /// # Errors
    /// The fault of a top that cannot be listed.
    pub(super) fn is_empty(&mut self, top: (&Remote, &RemotePath), stop: &Stop) -> Result<bool, Fault> {
        self.dirs.clear();
        let listed = ListedDir::ask(top, RelPath::root(), stop)?;
        let is_empty = listed.names.is_empty();
        self.dirs.push(listed);
        Ok(is_empty)
    }

    /// Whether nothing has this path. Beneath a directory that is not there, nothing is asked.
    ///
    /// # Errors
    /// The fault of a directory that cannot be listed; [`FaultCode::Usage`] for a top without any
    /// names.
    pub(super) fn lacks(&mut self, top: (&Remote, &RemotePath), path: &RelPath, stop: &Stop) -> Result<bool, Fault> {
        let above = path.parent().unwrap_or_default();
        let still =
            |dir: &&ListedDir| dir.asked.elapsed() < KEPT_FOR && dir.path != *path && path.beneath(&dir.path).is_some();
        let kept = self.dirs.iter().take_while(still).count();
        self.dirs.truncate(kept);
        if self.dirs.is_empty() && self.is_empty(top, stop)? {
            return Err(emptied());
        }
        while let Some(deepest) = self.dirs.last() {
            let rest = path.beneath(&deepest.path).unwrap_or_default();
            let Some((name, _)) = rest.split_top() else { break };
            if !deepest.names.contains(name) {
                return Ok(true);
            }
            if deepest.path == above {
                return Ok(false);
            }
            let next = deepest.path.join(name).map_err(|_| unsupported("the path is longer than one may be", path))?;
            match ListedDir::ask(top, next, stop) {
                Ok(dir) => self.keep(dir),
                // It went since the one above was listed, or the disk of the source did.
                Err(fault) if fault.code == FaultCode::NotFound => {
                    return if self.is_empty(top, stop)? { Err(emptied()) } else { Ok(true) };
                }
                Err(fault) => return Err(fault),
            }
        }
        Ok(false)
    }

    fn keep(&mut self, dir: ListedDir) {
        self.dirs.push(dir);
        while self.dirs.len() > 1 && self.dirs.iter().map(|dir| dir.bytes).sum::<usize>() > LISTED_BYTES_MAX {
            self.dirs.remove(0);
        }
    }
}

impl ListedDir {
    /// The names in a directory at a daemon, in bounded memory.
    fn ask((remote, top): (&Remote, &RemotePath), dir: RelPath, stop: &Stop) -> Result<ListedDir, Fault> {
        let at = top.path.concat(&dir).map_err(|_| unsupported("the path is longer than one may be", &dir))?;
        let path = RemotePath { root: top.root.clone(), path: at, slash: true };
        let asked = Instant::now();
        let (mut names, mut bytes) = (HashSet::new(), 0);
        let sink = |listed: Vec<longhaul_engine::Listed>| {
            for one in listed {
                bytes += one.name.len() + NAME_COST;
                names.insert(one.name);
            }
            if bytes > LISTED_BYTES_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let listed = block_on(list(remote.clone(), Some(path), stop.clone(), sink));
        listed.map_err(Fault::from)??;
        if bytes > LISTED_BYTES_MAX {
            return Err(unsupported("the daemon lists more names in one directory than are remembered", &dir));
        }
        Ok(ListedDir { path: dir, names, bytes, asked })
    }
}

/// The fault of a source that has nothing any more.
pub(super) fn emptied() -> Fault {
    let message = "the source has come to be empty: nothing more is moved";
    Fault::new(FaultCode::Usage, Blame::Local, message).hint_in_words(AGAIN)
}

fn unsupported(why: &str, dir: &RelPath) -> Fault {
    Fault::new(FaultCode::Unsupported, Blame::Peer, why).about(dir.escaped())
}

/// The hint where a source is doubtful.
pub(super) const AGAIN: &str = "look whether its disk is mounted, and plan again";
/// The time for which a list of names is believed.
const KEPT_FOR: Duration = Duration::from_secs(30);
/// Memory of the names of one directory at a daemon, some two million, and of all that are kept.
const LISTED_BYTES_MAX: usize = 256 << 20;
/// Memory of a name beside its bytes.
const NAME_COST: usize = 64;
