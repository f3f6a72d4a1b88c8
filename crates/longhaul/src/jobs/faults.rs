//! Errors of the queue and of manifests as faults: a code, words, and what to do next.
//!
//! In: errors of `longhaul-jobs`, its two backends and `longhaul-manifest`. Out: [`Fault`]. Must
//! not know where they are told.

use longhaul_core::{Blame, Fault, FaultCode};
use longhaul_jobs::JobsError;
use longhaul_jobs_postgres::{PostgresError, Refusal};
use longhaul_jobs_sqlite::SqliteError;
use longhaul_manifest::ManifestError;

/// The fault of an error of the queue.
pub fn fault_of_jobs(error: &JobsError) -> Fault {
    if let JobsError::Store { source } = error {
        if let Some(error) = source.downcast_ref() {
            return fault_of_sqlite(error);
        }
        if let Some(error) = source.downcast_ref() {
            return fault_of_postgres(error);
        }
    }
    let (code, hint) = match error {
        JobsError::NoCampaign(_) => (FaultCode::NotFound, "'longhaul job ls' lists the campaigns"),
        JobsError::NameTaken(_) => (FaultCode::Usage, "give another name with --name"),
        JobsError::BadName(_) => (FaultCode::Usage, "give a name that can be typed with --name"),
        JobsError::BadSite(..) => (FaultCode::Usage, "'longhaul job site' lists the sites, and the hosts of each"),
        JobsError::WrongState { .. } => (FaultCode::Usage, "'longhaul job show' tells how far the campaign is"),
        JobsError::PlanTakenBack(_) => (FaultCode::Busy, "plan it again: sources are not listed anew"),
        JobsError::Altered(_) => {
            (FaultCode::Denied, "nothing was signed: find out who may write to the queue, and add the campaign there")
        }
        JobsError::TooMuch(_) => (FaultCode::Unsupported, "split it into several campaigns"),
        JobsError::BadRow(_) => (FaultCode::Io, "take the last backup of the queue"),
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

/// The fault of an error of the queue in a database.
pub fn fault_of_postgres(error: &PostgresError) -> Fault {
    let (code, hint) = match error {
        PostgresError::Url { .. } => {
            (FaultCode::Usage, "write --queue as postgres://USER@HOST:PORT/DATABASE, with the password in PGPASSFILE")
        }
        PostgresError::PassFile { .. } => {
            (FaultCode::Denied, "see that it is yours alone, or name another in PGPASSFILE")
        }
        PostgresError::Authorities { .. } => {
            (FaultCode::Usage, "name a file of certificates with sslrootcert= in --queue")
        }
        PostgresError::Away { .. } => {
            (FaultCode::Unreachable, "see that the server runs and can be reached from here, and run it again")
        }
        PostgresError::CommitUnknown { .. } => {
            (FaultCode::Lost, "look with 'longhaul job show' whether it was done, before it is done again")
        }
        PostgresError::Denied { .. } => (
            FaultCode::Denied,
            "give the password in PGPASSWORD or PGPASSFILE, and have the user granted the queue's schema",
        ),
        PostgresError::Tls { .. } => {
            (FaultCode::Denied, "name the host as its certificate does, and its authority with sslrootcert= in --queue")
        }
        PostgresError::NoDatabase { .. } => (FaultCode::NotFound, "have the database made, or name another in --queue"),
        PostgresError::Refused { refusal, .. } => of_refusal(*refusal),
        PostgresError::Busy { .. } => (FaultCode::Busy, "run it again later"),
        PostgresError::Full { .. } => (FaultCode::NoSpace, "see that the server's disk has room"),
        PostgresError::Failed { .. } => (FaultCode::Io, "look in the server's log"),
    };
    Fault::new(code, Blame::Local, error).hint_in_words(hint)
}

fn of_refusal(refusal: Refusal) -> (FaultCode, &'static str) {
    match refusal {
        Refusal::Newer { .. } => (FaultCode::Usage, "use the newer program, or another schema with schema= in --queue"),
        Refusal::Foreign => (FaultCode::Usage, "name another schema with schema= in --queue"),
        Refusal::Missing => (FaultCode::NotFound, "'longhaul job add' makes it; --queue names another place"),
        Refusal::OldServer | Refusal::Encoding => (FaultCode::Unsupported, "name another database in --queue"),
        Refusal::Standby => (FaultCode::Unsupported, "name the primary in --queue"),
    }
}

/// The fault of an error of a campaign's manifest.
pub fn fault_of_manifest(error: &ManifestError) -> Fault {
    error.fault().hint_in_words("cancel the campaign, and add it again: its manifest is what its shards are made of")
}
