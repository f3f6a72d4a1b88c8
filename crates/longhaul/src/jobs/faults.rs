//! Errors of the queue and of manifests as faults: a code, words, and what to do next.
//!
//! In: errors of `longhaul-jobs`, `longhaul-jobs-sqlite` and `longhaul-manifest`. Out: [`Fault`].
//! Must not know where they are told.

use longhaul_core::{Blame, Fault, FaultCode};
use longhaul_jobs::JobsError;
use longhaul_jobs_sqlite::SqliteError;
use longhaul_manifest::ManifestError;

/// The fault of an error of the queue.
pub fn fault_of_jobs(error: &JobsError) -> Fault {
    if let JobsError::Store { source } = error
        && let Some(error) = source.downcast_ref()
    {
        return fault_of_sqlite(error);
    }
    let (code, hint) = match error {
        JobsError::NoCampaign(_) => (FaultCode::NotFound, "'longhaul job ls' lists the campaigns"),
        JobsError::NameTaken(_) => (FaultCode::Usage, "give another name with --name"),
        JobsError::BadName(_) => (FaultCode::Usage, "give a name that can be typed with --name"),
        JobsError::WrongState { .. } => (FaultCode::Usage, "'longhaul job show' tells how far the campaign is"),
        JobsError::PlanTakenBack(_) => (FaultCode::Busy, "plan it again: sources are not listed anew"),
        JobsError::TooMuch(_) => (FaultCode::Unsupported, "split it into several campaigns"),
        JobsError::BadRow(_) => (FaultCode::Io, "take the last backup of the queue's file"),
        _ => (FaultCode::Internal, ""),
    };
    let blame = if code == FaultCode::Internal { Blame::Bug } else { Blame::Local };
    Fault::new(code, blame, error).hint_in_words(hint)
}

/// The fault of an error of the queue's file.
pub fn fault_of_sqlite(error: &SqliteError) -> Fault {
    let (code, hint) = match error {
        SqliteError::Newer { .. } => (FaultCode::Usage, "use the newer program, or another file with --queue"),
        SqliteError::Foreign { .. } => (FaultCode::Usage, "name another file with --queue"),
        SqliteError::NoWal { .. } => (FaultCode::Unsupported, "name a file on a local disk with --queue"),
        _ => (FaultCode::Io, "see that the disk is well and has room, and that the file is yours"),
    };
    Fault::new(code, Blame::Local, error).hint_in_words(hint)
}

/// The fault of an error of a campaign's manifest.
pub fn fault_of_manifest(error: &ManifestError) -> Fault {
    error.fault().hint_in_words("cancel the campaign, and add it again: its manifest is what its shards are made of")
}
