//! Tests of a receiver that compares standing files with their sources, against a sender that lies.

use longhaul_core::{Clock, FaultCode, FileId, IfExists, Unit};

use super::items::file;
use super::victim::{NOW, Victim};
use crate::receiver::{LandedRow, Policy, ReceiverAction, Seen};
use crate::wire::message::{Message, Outcome};

/// A victim that compares a small file (entry 0) and wants another (entry 1).
fn comparing() -> Victim {
    let mut victim = Victim::with(Policy { if_exists: IfExists::Verify, may_modify: true });
    victim.page(vec![file("stands", 100).entry, file("new", 100).entry]);
    let survey = |action: &ReceiverAction| matches!(action, ReceiverAction::Survey(_));
    while !victim.receiver.poll_action().is_some_and(|action| survey(&action)) {}
    let stands = Seen::File { len: 100, mtime: Default::default(), clock: Clock::Exact };
    victim.receiver.handle_survey(NOW, FileId(0), vec![Ok(stands.into()), Ok(Seen::Absent.into())]);
    victim.receiver.handle_read_standing(NOW, vec![(FileId(0), Ok([5; 32]))]);
    victim
}

#[test]
fn a_sender_that_calls_equal_what_is_not_or_was_not_asked_about_gets_nothing_committed() {
    let bundle = |victim: &mut Victim, row: LandedRow| {
        let root = longhaul_core::Digest::Root([7; 32]);
        let mut landed = victim.landed(Unit::Bundle(longhaul_core::BundleId(0)), 1, root, Some(root));
        landed.rows = vec![row];
        victim.land(landed);
    };
    let same = |file, root| LandedRow { file: FileId(file), len: 100, declared: root, computed: root, same: true };
    let mut victim = comparing();
    bundle(&mut victim, same(1, [5; 32]));
    victim.assert_refused(FaultCode::Protocol, "a file that nobody asked about");

    let mut victim = comparing();
    bundle(&mut victim, same(0, [6; 32]));
    let mismatch = |a: &ReceiverAction| matches!(a, ReceiverAction::Settled(_, Outcome::Failed(fault)) if fault.code == FaultCode::Mismatch);
    assert!(victim.obey().iter().any(mismatch), "another root than stands there");

    let mut victim = comparing();
    bundle(&mut victim, same(0, [5; 32]));
    let actions = victim.obey();
    assert!(actions.iter().any(|action| matches!(action, ReceiverAction::Retouch { .. })), "{actions:?}");
    assert!(
        actions.iter().any(|a| matches!(a, ReceiverAction::Send(Message::CheckFiles(check)) if check.files.len() == 1))
    );
}
