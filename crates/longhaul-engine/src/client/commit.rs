//! Has the dataset of a campaign appear, all of whose files were staged by the sessions of its
//! shards.
//!
//! In: the list of all files, and where they are staged. Out: a [`Report`] of one session, which
//! offers the list as any other session offers what it has scanned: each file stands where it is
//! staged, and is asked for by nobody; one that does not stand cannot be sent, and nothing appears.
//! It reads no source, and knows no queue.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use longhaul_core::filter::Filter;
use longhaul_core::{
    Blame, DatasetPart, Entry, EntryKind, Fault, FaultCode, IfExists, Inode, Meta, Mtime, Preserve, RelPath,
};
use longhaul_disk::{DiskError, Identity, ScanRequest, Scanned, SourceFile, SourceRef, SourceTree};
use longhaul_manifest::{Item, ItemKind};
use longhaul_proto::wire::message::Placing;

use super::possible::possible;
use super::{Publishing, Run, at_daemon, conclude};
use crate::api::{Credentials, Job, JobDestination, Observer, Report, Settings, Stop};
use crate::session::totals::Totals;

/// All files and links of a campaign's dataset, where they shall lie in it.
pub trait CampaignFiles: Send + Sync + 'static {
    /// Gives each to `sink`, in the order of the bytes of their paths, until `sink` breaks off. It
    /// may be asked again, and gives the same. Directories are those that something lies in: others
    /// are passed over.
    ///
    /// # Errors
    /// The fault of a list that cannot be read to its end.
    fn each(&self, sink: &mut dyn FnMut(Item) -> ControlFlow<()>) -> Result<(), Fault>;
}

/// Has the dataset of a job appear, whose claim is that of its campaign's commit. What the job says
/// of sources is not read. Settings about files do not matter: none is sent.
pub async fn commit_dataset(
    list: Arc<dyn CampaignFiles>,
    job: Job,
    credentials: Option<Credentials>,
    settings: Settings,
    (observer, stop): (Arc<dyn Observer>, Stop),
) -> Report {
    let begun = Instant::now();
    let result = committed(list, job, credentials, settings, (observer.clone(), stop)).await;
    conclude(result, &*observer, begun)
}

async fn committed(
    list: Arc<dyn CampaignFiles>,
    job: Job,
    credentials: Option<Credentials>,
    settings: Settings,
    (observer, stop): (Arc<dyn Observer>, Stop),
) -> Result<Totals, Fault> {
    let settings = settings_of_list(settings);
    possible(&settings, &job)?;
    if job.dataset.is_none() || job.claim.is_none() {
        let why = "the dataset of a campaign appears by a claim, and under a name";
        return Err(Fault::new(FaultCode::Usage, Blame::Local, why));
    }
    let publishing = Publishing { claim: job.claim, dataset: job.dataset, part: Some(DatasetPart::Commit) };
    let run = Run { publishing, ..Run::within_process(settings, observer, stop)? };
    let tree: Arc<dyn SourceTree> = Arc::new(ListedSource { list });
    match job.to {
        JobDestination::Remote(reach, path) => {
            run.push_tree((tree, Placing::Beneath), &at_daemon(credentials, reach)?, path).await
        }
        JobDestination::Local(dest) => run.copy_listed(tree, &dest).await,
        JobDestination::Stream(_) => {
            Err(Fault::new(FaultCode::Usage, Blame::Local, "a dataset does not appear in a stream"))
        }
    }
}

/// The settings of a session that sends nothing. What the shards have carried over stays as it is.
fn settings_of_list(mut settings: Settings) -> Settings {
    settings.metadata.preserve = Preserve { links: true, ..Preserve::NOTHING };
    (settings.filter, settings.files_from) = (Filter::default(), None);
    (settings.dry_run, settings.digests) = (false, false);
    if settings.if_exists == IfExists::Verify {
        settings.if_exists = IfExists::SkipSame;
    }
    settings
}

/// A source of which there is nothing but the list.
struct ListedSource {
    list: Arc<dyn CampaignFiles>,
}

impl SourceTree for ListedSource {
    fn scan(&self, _what: &ScanRequest<'_>, sink: &mut dyn FnMut(Scanned) -> ControlFlow<()>) {
        let mut walk = ListWalk { open: Vec::new(), number: 0, sink };
        let mut flow = ControlFlow::Continue(());
        let listed = self.list.each(&mut |item| {
            flow = walk.take(item);
            flow
        });
        if flow.is_break() || walk.leave(None).is_break() {
            return;
        }
        if let Err(fault) = listed {
            tracing::warn!(target: "longhaul::dataset", %fault, "the list of a campaign's files cannot be read");
            let (path, how) = ((&RelPath::root()).into(), "the list of the campaign's files cannot be read");
            let _ = sink(Scanned::Failed { path: RelPath::root(), error: DiskError::Changed { path, how } });
        }
    }

    fn open(&self, at: &SourceRef, _expect: &Identity) -> Result<Arc<SourceFile>, DiskError> {
        let how = "it does not stand as it was listed where it is staged";
        Err(DiskError::Changed { path: at.path().into(), how })
    }
}

/// A walk through a list, in which each directory begins before what lies in it, and ends behind.
struct ListWalk<'s> {
    /// The directories that are begun, each in the one before.
    open: Vec<RelPath>,
    /// The entries so far.
    number: u64,
    sink: &'s mut dyn FnMut(Scanned) -> ControlFlow<()>,
}

impl ListWalk<'_> {
    fn take(&mut self, item: Item) -> ControlFlow<()> {
        let kind = match &item.kind {
            ItemKind::Dir => return ControlFlow::Continue(()),
            ItemKind::File { .. } => EntryKind::File { len: item.bytes(), sparse: false, inode: Inode::default() },
            ItemKind::Link { target } => EntryKind::Symlink { target: target.clone() },
        };
        let above = item.path.parent().unwrap_or_default();
        self.leave(Some(&above))?;
        self.enter(&above)?;
        self.say(item.path, kind, item.mtime.unwrap_or_default())
    }

    /// Ends the directories in which a directory does not lie. `None`: all of them.
    fn leave(&mut self, dir: Option<&RelPath>) -> ControlFlow<()> {
        while let Some(last) = self.open.last() {
            if dir.is_some_and(|dir| dir.beneath(last).is_some()) {
                break;
            }
            let last = last.clone();
            self.open.pop();
            self.say(last, EntryKind::DirEnd, Mtime::default())?;
        }
        ControlFlow::Continue(())
    }

    /// Begins a directory, and those above it that are not begun.
    fn enter(&mut self, dir: &RelPath) -> ControlFlow<()> {
        let innermost = self.open.last();
        let is_new = |above: &RelPath| !above.is_root() && Some(above) != innermost;
        let new: Vec<RelPath> =
            std::iter::successors(Some(dir.clone()), RelPath::parent).take_while(|above| is_new(above)).collect();
        for above in new.into_iter().rev() {
            self.open.push(above.clone());
            self.say(above, EntryKind::Dir, Mtime::default())?;
        }
        ControlFlow::Continue(())
    }

    fn say(&mut self, path: RelPath, kind: EntryKind, mtime: Mtime) -> ControlFlow<()> {
        self.number += 1;
        let len = if let EntryKind::File { len, .. } = kind { len } else { 0 };
        let identity = Identity { dev: 0, ino: self.number, len, mtime, ctime: mtime };
        let source = SourceRef::new(path.clone());
        (self.sink)(Scanned::Entry { entry: Entry { path, kind, meta: Meta::new(MODE, mtime) }, source, identity })
    }
}

/// The mode of entries of which none is carried over.
const MODE: u32 = 0o755;

#[cfg(test)]
mod tests {
    use longhaul_core::Sums;

    use super::*;

    struct ListedPaths(&'static [&'static str]);

    impl CampaignFiles for ListedPaths {
        fn each(&self, sink: &mut dyn FnMut(Item) -> ControlFlow<()>) -> Result<(), Fault> {
            for path in self.0 {
                let path = RelPath::new(*path).expect("a path");
                if sink(Item::file(path, Some(3), Sums::default())).is_break() {
                    return Ok(());
                }
            }
            Err(Fault::new(FaultCode::Io, Blame::Local, "it ends too early"))
        }
    }

    #[test]
    fn each_directory_of_a_list_begins_once_and_ends_behind_what_lies_in_it() {
        let list = Arc::new(ListedPaths(&["a", "d-x", "d/e/f", "d/e/g", "d/h", "z/y/x"]));
        let filter = Filter::default();
        let request = ScanRequest::of_all(&filter, Preserve::NOTHING);
        let (mut said, mut failed) = (Vec::new(), 0);
        ListedSource { list }.scan(&request, &mut |found| {
            match found {
                Scanned::Entry { entry, .. } => {
                    let path = entry.path.escaped().to_string();
                    said.push(match entry.kind {
                        EntryKind::Dir => format!("({path}"),
                        EntryKind::DirEnd => format!("{path})"),
                        _ => path,
                    });
                }
                Scanned::Failed { .. } => failed += 1,
                other => panic!("{other:?}"),
            }
            ControlFlow::Continue(())
        });
        assert_eq!(said.join(" "), "a d-x (d (d/e d/e/f d/e/g d/e) d/h d) (z (z/y z/y/x z/y) z)");
        assert_eq!(failed, 1, "a list that ends too early is no list");
    }
}
