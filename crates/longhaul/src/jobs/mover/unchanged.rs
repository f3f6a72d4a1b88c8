//! Holds a shard's transfers to the files that were planned: what is another file by now is not
//! moved.
//!
//! In: a shard with its count of files. Out: files of it that failed, and jobs that expect what the
//! manifest says. Must not know claims.

use std::path::PathBuf;
use std::sync::Arc;

use longhaul_core::FaultCode;
use longhaul_engine::{Job, JobDestination, JobSource};

use super::session::{Work, blocking};
use super::source::{Look, differing};
use super::tally::Tally;

/// Marks files as changed that are others than when the campaign was planned: before they are sent,
/// as far as they lie on this host.
pub(super) async fn mark_changed(work: &Work, top: Option<PathBuf>) {
    let Some(top) = top else { return };
    mark(work, Look { top, files: work.tally.open() }).await;
}

/// The same behind a transfer: a source that was written to between the first look and the
/// engine's. A source at a daemon needs none: the engine refused what the manifest does not say.
pub(super) async fn mark_changed_behind(work: &Work) {
    let Some(top) = source_top(&work.job) else { return };
    mark(work, Look { top, files: work.tally.standing() }).await;
}

/// The job of a shard, of which this host sends or takes only what the manifest says.
pub(super) fn expecting(job: &Job, tally: &Tally) -> Job {
    let (mut job, expected) = (job.clone(), Some(Arc::new(tally.expected())));
    match &mut job.to {
        JobDestination::Local(dest) => dest.expected = expected,
        _ => job.expected = expected,
    }
    job
}

async fn mark(work: &Work, look: Look) {
    for (path, words) in blocking(move || differing(&look)).await.unwrap_or_default() {
        work.tally.fail(&path, FaultCode::Changed, words);
    }
}

/// The directory of this host in which the sources lie.
pub(super) fn source_top(job: &Job) -> Option<PathBuf> {
    match &job.from {
        JobSource::Local(sources) => sources.first().map(|source| source.path.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::{RelPath, Word};
    use longhaul_engine::{LocalDest, LocalSource, Reach, RemotePath};
    use longhaul_jobs::AlikeWatch;
    use longhaul_manifest::Item;

    use super::*;

    #[test]
    fn what_is_sent_from_this_host_and_what_it_receives_must_be_what_the_manifest_says() {
        let item = Item::file(RelPath::new("f").unwrap(), Some(3), Default::default());
        let tally = Tally::new(&[item], &[], AlikeWatch::default());
        let path = RemotePath { root: Word::try_from("r").unwrap(), path: RelPath::root(), slash: true };
        let reach = Reach::Address { host: "node".to_owned(), port: 7214 };
        let push = expecting(&Job::push(vec![LocalSource::contents("/from")], reach.clone(), path.clone()), &tally);
        assert_eq!(push.expected.as_deref(), Some(&tally.expected()));
        let pull = expecting(&Job::pull(reach, vec![path], LocalDest::directory("/to")), &tally);
        let JobDestination::Local(to) = pull.to else { panic!("it is of this host") };
        assert_eq!((to.expected.as_deref(), pull.expected), (Some(&tally.expected()), None));
    }
}
