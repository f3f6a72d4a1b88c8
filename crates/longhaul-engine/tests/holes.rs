//! A hole is no reason to give up a lane, however long it is and however little time a lane has.
#![allow(clippy::disallowed_methods, reason = "tests set their scratch up directly")]

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use longhaul_core::{ByteCount, FaultCode};
use longhaul_engine::{
    Event, Job, JobDestination, JobSource, LocalDest, LocalSource, Observer, Protection, Settings, Stop, StopTrigger,
    run,
};

/// Ends the run after this many seconds: the hole is longer than anybody waits for.
struct EndsAfter(f64, StopTrigger);

impl Observer for EndsAfter {
    fn event(&self, event: Event) {
        if let Event::Progress(progress) = event
            && progress.seconds >= self.0
        {
            self.1.stop(FaultCode::Interrupted);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lanes_that_bring_nothing_but_holes_for_longer_than_the_stall_time_are_not_given_up() {
    let scratch = tempfile::tempdir().expect("scratch");
    let source = scratch.path().join("hole");
    File::create(&source).and_then(|file| file.set_len(1 << 40)).expect("a hole of 1 TiB");
    for protect in [Protection::Safe, Protection::Private] {
        let job = Job::between(
            JobSource::Local(vec![LocalSource::named(&source)]),
            JobDestination::Local(LocalDest::directory(scratch.path().join("to"))),
        );
        let settings = Settings {
            lanes: Some(2),
            protect: Some(protect),
            memory: ByteCount(64 << 20),
            stall_after: Duration::from_millis(100),
            ..Settings::default()
        };
        let (trigger, stop) = Stop::new();
        let report = run(job, None, settings, Arc::new(EndsAfter(4.0, trigger)), stop).await;
        assert_eq!(report.fault.map(|fault| fault.code), Some(FaultCode::Interrupted), "{protect:?}");
    }
}
