//! The place and the code of a fault that ended a shard's transfers: what a mover reports of it.
//!
//! In: a transfer, and the fault that ended it. Out: whether this host, the link or the shard is
//! ill, and the code by which it is treated. Must not know the queue.

use longhaul_core::{Blame, Fault, FaultCode};
use longhaul_engine::{Job, JobDestination, JobSource};
use longhaul_jobs::queue::BreakPlace;
use longhaul_jobs::{Treatment, treatment};

use super::tally::TallyFigures;

/// The place of a fault of this host: what may not be read here, is not here, or has no room here
/// is well on another host. Anything else every mover would meet.
pub(super) fn own_place(fault: &Fault) -> BreakPlace {
    match treatment(fault.code) {
        Treatment::Hold if fault.code != FaultCode::NotFound => BreakPlace::Shard,
        _ => BreakPlace::Host,
    }
}

/// The place of a fault that ended a transfer. What this host could not do while it sends to
/// another one is its own: its source, its memory, its disks. Where this host receives, if only
/// from itself, it is one end of the link, and each shard would meet the same. A way that does not
/// answer is the link's, and so is a daemon whose key is not trusted here.
pub(super) fn place_of(job: &Job, fault: &Fault) -> BreakPlace {
    let is_of_way = matches!(
        fault.code,
        FaultCode::Unreachable | FaultCode::Lost | FaultCode::TimedOut | FaultCode::Busy | FaultCode::Superseded
    );
    let is_of_daemon =
        matches!(&job.to, JobDestination::Remote(reach, _) if fault.object == reach.to_string().as_str());
    let sends = matches!((&job.from, &job.to), (JobSource::Local(_), JobDestination::Remote(..)));
    let is_own = sends && fault.blame == Blame::Local && !is_of_way && !is_of_daemon;
    if is_own { own_place(fault) } else { BreakPlace::Link }
}

/// Whether a session of a shard stood in this claim before a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionStood {
    /// None did.
    Never,
    /// One at least did.
    Before,
}

impl SessionStood {
    /// As a shard's figures have it.
    pub(super) fn of(figures: &TallyFigures) -> SessionStood {
        if figures.is_welcome { SessionStood::Before } else { SessionStood::Never }
    }
}

/// The code by which a fault that ended a transfer is treated.
pub(super) fn code_of(job: &Job, fault: &Fault, stood: SessionStood) -> FaultCode {
    let is_between = matches!((&job.from, &job.to), (JobSource::Remote(..), JobDestination::Remote(..)));
    match fault.code {
        // Nobody here stopped it: the other side did, and a pause follows as for a lost session.
        FaultCode::Interrupted | FaultCode::Terminated => FaultCode::Lost,
        // A daemon that was started again may have forgotten the grant, which was good: the next
        // one shows whether it is the key that is refused.
        FaultCode::Denied if is_between && stood == SessionStood::Before => FaultCode::Lost,
        code => code,
    }
}

#[cfg(test)]
mod tests {
    use longhaul_core::{RelPath, Word};
    use longhaul_engine::{LocalDest, LocalSource, Reach, RemotePath};

    use super::*;

    #[test]
    fn a_fault_of_this_host_is_its_own_while_it_sends_and_the_links_while_it_receives() {
        let reach = || Reach::Address { host: "node".to_owned(), port: 7214 };
        let path = || RemotePath { root: Word::try_from("r").unwrap(), path: RelPath::root(), slash: true };
        let push = Job::push(vec![LocalSource::contents("/from")], reach(), path());
        let pull = Job::pull(reach(), vec![path()], LocalDest::directory("/to"));
        let copy = Job::copy(vec![LocalSource::contents("/from")], LocalDest::directory("/to"));
        let fault = |code, blame| Fault::new(code, blame, "it failed");
        let untrusted = fault(FaultCode::Denied, Blame::Local).about("node:7214");
        for (job, fault, place) in [
            (&push, fault(FaultCode::Denied, Blame::Local), BreakPlace::Host),
            (&push, fault(FaultCode::NoSpace, Blame::Local), BreakPlace::Host),
            (&push, fault(FaultCode::Usage, Blame::Local), BreakPlace::Shard),
            (&copy, fault(FaultCode::Denied, Blame::Local), BreakPlace::Link),
            (&copy, fault(FaultCode::NoSpace, Blame::Local), BreakPlace::Link),
            (&pull, fault(FaultCode::NoSpace, Blame::Local), BreakPlace::Link),
            (&push, fault(FaultCode::NoSpace, Blame::Peer), BreakPlace::Link),
            (&push, fault(FaultCode::Lost, Blame::Local), BreakPlace::Link),
            (&push, untrusted, BreakPlace::Link),
        ] {
            assert_eq!(place_of(job, &fault), place, "{job:?} {fault:?}");
        }
    }

    #[test]
    fn a_grant_that_was_good_and_is_refused_later_closes_no_link() {
        let reach = || Reach::Address { host: "node".to_owned(), port: 7214 };
        let path = || RemotePath { root: Word::try_from("r").unwrap(), path: RelPath::root(), slash: true };
        let between = Job::third_party(reach(), vec![path()], reach(), path());
        let pull = Job::pull(reach(), vec![path()], LocalDest::directory("/to"));
        let denied = Fault::new(FaultCode::Denied, Blame::Peer, "x");
        assert_eq!(code_of(&between, &denied, SessionStood::Before), FaultCode::Lost);
        assert_eq!(code_of(&between, &denied, SessionStood::Never), FaultCode::Denied, "no session of it ever stood");
        assert_eq!(code_of(&pull, &denied, SessionStood::Before), FaultCode::Denied);
        let stopped = Fault::new(FaultCode::Terminated, Blame::Peer, "x");
        assert_eq!(code_of(&pull, &stopped, SessionStood::Never), FaultCode::Lost);
    }
}
