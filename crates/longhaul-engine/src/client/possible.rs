//! Refuses settings that no session could keep, before anything is dialled.
//!
//! In: settings, and what a job or a dial is to lead to. Out: a usage fault, or nothing. It knows
//! no connection.

use longhaul_core::{Blame, Fault, FaultCode, hint};
use longhaul_net::Protection;

use crate::api::{Job, JobDestination, JobSource, Settings, Transport};
use crate::budget;

/// Refuses settings that no session could keep.
pub(super) fn possible(settings: &Settings, job: &Job) -> Result<(), Fault> {
    budget::possible(settings.memory)?;
    if job.claim.is_some() && (settings.dry_run || matches!(job.to, JobDestination::Stream(_))) {
        let why = "a claim is kept by a directory that is written to: a dry run and a stream have none";
        return Err(Fault::new(FaultCode::Usage, Blame::Local, why));
    }
    if job.dataset.is_some() && is_stream(&job.from, &job.to) {
        let why = "a dataset is a directory of files, and a stream is none";
        return Err(Fault::new(FaultCode::Usage, Blame::Local, why));
    }
    let (what, hint) = match (settings.transport, settings.protect, &job.from, &job.to) {
        (Transport::Quic, _, JobSource::Local(_) | JobSource::Stream(_), JobDestination::Local(_)) => {
            ("between two local directories no lane runs over QUIC", hint::Network::LeaveTransportOut)
        }
        (Transport::Quic, Some(Protection::Safe), ..) => {
            ("lanes over QUIC are always encrypted", hint::Network::EncryptOrUseTcp)
        }
        (Transport::Udp, _, JobSource::Local(_) | JobSource::Stream(_), JobDestination::Local(_)) => {
            ("between two local directories no lane runs over UDP", hint::Network::LeaveTransportOut)
        }
        (Transport::Udp, Some(Protection::Safe), ..) => {
            ("lanes over UDP are always encrypted", hint::Network::EncryptOrUseTcp)
        }
        (_, _, from, to) if is_stream(from, to) && !settings.metadata.preserve.agreed_names().is_empty() => {
            let names = settings.metadata.preserve.agreed_names().join(", ");
            let what = format_args!("a stream has no place for {names}").to_string();
            let fault = Fault::new(FaultCode::Usage, Blame::Local, what);
            return Err(fault.hint(hint::Program::CarryLessInStream));
        }
        _ => return Ok(()),
    };
    Err(Fault::new(FaultCode::Usage, Blame::Local, what).hint(hint))
}

fn is_stream(from: &JobSource, to: &JobDestination) -> bool {
    matches!(from, JobSource::Stream(_)) || matches!(to, JobDestination::Stream(_))
}
