//! The place and the code of a fault that ended a shard's transfers: what a mover reports of it.
//!
//! In: a transfer, and the fault that ended it. Out: whether this host, the link or the shard is
//! ill, and the code by which it is treated. Must not know the queue.

use std::time::Duration;

use longhaul_core::hint::{Daemon, Hint};
use longhaul_core::{Author, Blame, Fault, FaultCode};
use longhaul_engine::{Job, JobDestination, JobSource, Reach, shard_grant_time};
use longhaul_jobs::queue::BreakPlace;
use longhaul_jobs::{Treatment, treatment};

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
/// from itself, it is one end of the link, and each shard would meet the same. Between two daemons
/// its own is what it says itself, and a grant that is refused: its clock may be wrong, or the
/// source have forgotten the grant. A way that does not answer is the link's, and so is a daemon
/// whose key is not trusted here.
pub(super) fn place_of(job: &Job, fault: &Fault) -> BreakPlace {
    let is_of_way = matches!(
        fault.code,
        FaultCode::Unreachable | FaultCode::Lost | FaultCode::TimedOut | FaultCode::Busy | FaultCode::Superseded
    );
    let is_about = |reach: &Reach| fault.object == reach.to_string().as_str();
    let (is_of_daemon, is_said_here) = match (&job.from, &job.to) {
        (JobSource::Local(_), JobDestination::Remote(to, _)) => (is_about(to), fault.blame == Blame::Local),
        (JobSource::Remote(from, _), JobDestination::Remote(to, _)) => {
            let is_here = fault.blame == Blame::Local && fault.author == Author::Local;
            (is_about(from) || is_about(to), is_here || is_of_grant(fault))
        }
        _ => (false, false),
    };
    if is_said_here && !is_of_way && !is_of_daemon { own_place(fault) } else { BreakPlace::Link }
}

/// Whether a fault is the refusal of a grant, and not of what its issuer may do.
fn is_of_grant(fault: &Fault) -> bool {
    fault.code == FaultCode::Denied && fault.hint == Some(Hint::Daemon(Daemon::SignAnotherGrant))
}

/// Whether a fault ended an order, given as this job with the files that it expects, that had
/// outlasted its grant. The daemon that carries it out may not dial again by that, and the next
/// order, by the same claim, has another one. It is the normal end of a long shard that the source
/// sends: its destination ends the session, and says that the time is over, or where the clocks of
/// the hosts differ, that the grant is not good any more. It cannot be asked for again and again:
/// each has lasted nearly as long as its grant is good.
pub(super) fn has_outlasted_grant(job: &Job, fault: &Fault, lasted: Duration) -> bool {
    let is_order = matches!((&job.from, &job.to), (JobSource::Remote(..), JobDestination::Remote(..)));
    let is_of_time = matches!(fault.code, FaultCode::Lost | FaultCode::TimedOut) || is_of_grant(fault);
    is_order && is_of_time && lasted >= shard_grant_time(job.expected.as_deref()).saturating_sub(CLOCKS_DIFFER_MAX)
}

/// The code by which a fault that ended a transfer is treated.
pub(super) fn code_of(fault: &Fault) -> FaultCode {
    match fault.code {
        // Nobody here stopped it: the other side did, and a pause follows as for a lost session.
        FaultCode::Interrupted | FaultCode::Terminated => FaultCode::Lost,
        code => code,
    }
}

/// By so much the clocks of the three hosts of an order may differ for its end to be taken for that
/// of its grant.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use longhaul_core::{RelPath, Word};
    use longhaul_engine::{ExpectedFile, LocalDest, LocalSource, Reach, RemotePath};

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
    fn between_two_daemons_its_own_faults_and_refused_grants_are_those_of_the_movers_host() {
        let reach = |host: &str| Reach::Address { host: host.to_owned(), port: 7214 };
        let path = || RemotePath { root: Word::try_from("r").unwrap(), path: RelPath::root(), slash: true };
        let job = Job::third_party(reach("a"), vec![path()], reach("b"), path());
        let own = |code| Fault::new(code, Blame::Local, "x");
        let grant = Fault::new(FaultCode::Denied, Blame::Local, "x").hint(Daemon::SignAnotherGrant).seen_from_afar();
        for (fault, place) in [
            (own(FaultCode::NotFound), BreakPlace::Host),
            (own(FaultCode::Exhausted), BreakPlace::Host),
            (own(FaultCode::Usage), BreakPlace::Shard),
            (own(FaultCode::Denied).about("a:7214"), BreakPlace::Link),
            (own(FaultCode::Denied).about("b:7214"), BreakPlace::Link),
            (own(FaultCode::Unreachable), BreakPlace::Link),
            (own(FaultCode::Denied).seen_from_afar(), BreakPlace::Link),
            (Fault::new(FaultCode::NotFound, Blame::Peer, "x").seen_from_afar(), BreakPlace::Link),
            (grant, BreakPlace::Host),
        ] {
            assert_eq!(place_of(&job, &fault), place, "{fault:?}");
        }
        assert_eq!(code_of(&own(FaultCode::Terminated)), FaultCode::Lost);
        assert_eq!(code_of(&own(FaultCode::Denied)), FaultCode::Denied);
    }

    #[test]
    fn an_order_goes_on_by_another_grant_only_where_its_link_was_lost_and_its_grant_is_over() {
        let reach = || Reach::Address { host: "node".to_owned(), port: 7214 };
        let path = || RemotePath { root: Word::try_from("r").unwrap(), path: RelPath::root(), slash: true };
        let order = Job::third_party(reach(), vec![path()], reach(), path());
        let push = Job::push(vec![LocalSource::contents("/from")], reach(), path());
        let fault = |code| Fault::new(code, Blame::Path, "x");
        let of_grant = || fault(FaultCode::Denied).hint(Daemon::SignAnotherGrant).seen_from_afar();
        let granted = shard_grant_time(None);
        let over = granted - CLOCKS_DIFFER_MAX;
        let before = over - Duration::from_secs(1);
        let large = [(RelPath::new("f").unwrap(), ExpectedFile::File { bytes: 1 << 40, mtime: None })];
        let order_of_large = Job { expected: Some(Arc::new(large.into_iter().collect())), ..order.clone() };
        let over_of_large = shard_grant_time(order_of_large.expected.as_deref()) - CLOCKS_DIFFER_MAX;
        for (job, fault, lasted, goes_on) in [
            (&order, fault(FaultCode::Lost), granted, true),
            (&order, fault(FaultCode::Lost), over, true),
            // Its daemon has dialled again for as long as it was to.
            (&order, fault(FaultCode::Lost), before, false),
            // The destination has ended the session, and the source has told so.
            (&order, fault(FaultCode::TimedOut), over, true),
            (&order, fault(FaultCode::TimedOut), before, false),
            // The source's clock is behind, so that it has dialled again.
            (&order, of_grant(), over, true),
            (&order, of_grant(), before, false),
            (&order, fault(FaultCode::Denied), granted, false),
            (&order, fault(FaultCode::NoSpace), granted, false),
            (&push, fault(FaultCode::Lost), granted, false),
            // Its grant is still good, as it has a file that is long read.
            (&order_of_large, fault(FaultCode::Lost), granted, false),
            (&order_of_large, fault(FaultCode::Lost), over_of_large - Duration::from_secs(1), false),
            (&order_of_large, fault(FaultCode::TimedOut), over_of_large, true),
        ] {
            assert_eq!(has_outlasted_grant(job, &fault, lasted), goes_on, "{fault:?} {lasted:?}");
        }
    }
}
