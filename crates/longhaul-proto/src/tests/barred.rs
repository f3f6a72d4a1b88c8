//! Tests of a receiver that loses the right to publish, event by event.

use std::time::Duration;

use longhaul_core::{Blame, EntryKind, Fault, FaultCode, FileId};

use super::items::item;
use super::victim::{NOW, Victim};
use crate::receiver::ReceiverAction;
use crate::time::Timestamp;

fn later() -> Timestamp {
    NOW.after(Duration::from_secs(1))
}

/// A fault that would be one of a file alone, and one that every file would meet.
fn refusals() -> [Fault; 2] {
    [FaultCode::Busy, FaultCode::NoSpace].map(|code| Fault::new(code, Blame::Local, "nobody can tell who may publish"))
}

/// Fails unless the session ends by this fault, and of no entry an outcome is told.
#[track_caller]
fn assert_ends(victim: &mut Victim, fault: &Fault) {
    let actions = victim.obey();
    let by = |action: &ReceiverAction| matches!(action, ReceiverAction::Abort(by) if by == fault);
    assert!(actions.iter().any(by), "{actions:?}");
    assert!(!actions.iter().any(|action| matches!(action, ReceiverAction::Settled(..))), "{actions:?}");
    assert!(victim.receiver.is_over() && !victim.receiver.has_batch());
}

#[test]
fn a_batch_that_may_not_be_renamed_ends_the_session_and_no_file_has_failed() {
    for fault in refusals() {
        let mut victim = Victim::new();
        let link = |name: &str| item(name, EntryKind::Symlink { target: b"target".to_vec() }).entry;
        victim.page(vec![link("a"), link("b")]);
        victim.obey();
        victim.receiver.handle_stage(NOW, (0..2).map(|id| (FileId(id), Ok(()))).collect());
        victim.receiver.handle_timeout(later());
        victim.obey();
        victim.receiver.handle_barrier(later(), Ok(Vec::new()));
        victim.obey();
        victim.receiver.handle_publish_refused(later(), &fault);
        assert_ends(&mut victim, &fault);
    }
}

#[test]
fn a_directory_that_may_not_be_changed_ends_the_session_and_has_not_failed() {
    for fault in refusals() {
        let mut victim = Victim::new();
        victim.page(vec![item("d", EntryKind::Dir).entry, item("d", EntryKind::DirEnd).entry]);
        let actions = victim.obey();
        assert!(actions.iter().any(|action| matches!(action, ReceiverAction::FinishDirs(_))), "{actions:?}");
        victim.receiver.handle_finish_dirs_refused(later(), &fault);
        assert_ends(&mut victim, &fault);
    }
}
