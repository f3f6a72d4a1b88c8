//! A file whose length, mode or time the system refuses to set when it is whole: it fails, and
//! leaves nothing.
#![allow(clippy::disallowed_methods, reason = "tests set their scratch up directly")]

use std::sync::Arc;

use longhaul_core::{ByteCount, ChunkSize};
use longhaul_disk::{Call, DirectMode, FsSource, FsTarget, InodeId, Interposer, Passage, SourceSpec};
use longhaul_engine::{Event, Observer, Settings, Stop, run_between};
use rustix::io::Errno;

const CHUNK: u64 = 1 << 20;
const LEN: u64 = 3 * CHUNK + 5;

/// The call that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    Length,
    Mode,
    Time,
}

impl Interposer for Refused {
    fn begin(&self, call: &Call<'_>) -> Passage {
        let refuses = match call {
            // The temporary is longer until it is whole.
            Call::SetLen { len, .. } => *self == Refused::Length && *len == LEN,
            Call::SetMode { .. } => *self == Refused::Mode,
            Call::SetTime { .. } => *self == Refused::Time,
            _ => false,
        };
        if refuses { Passage::Answered(Err(Errno::PERM)) } else { Passage::Made(0) }
    }

    fn end(&self, _: u64, _: Result<Option<InodeId>, Errno>) {}

    fn read_medium(&self, _: InodeId, _: u64, _: &mut [u8]) -> Option<usize> {
        None
    }

    fn file_system_type(&self) -> Option<u64> {
        None
    }
}

struct Nobody;

impl Observer for Nobody {
    fn event(&self, _: Event) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_cannot_be_sealed_leaves_no_temporary() {
    for refused in [Refused::Length, Refused::Mode, Refused::Time] {
        let scratch = tempfile::tempdir().expect("scratch");
        let (from, to) = (scratch.path().join("from"), scratch.path().join("to"));
        for dir in [&from, &to] {
            std::fs::create_dir_all(dir).expect("made");
        }
        std::fs::write(from.join("f"), vec![7; LEN as usize]).expect("written");
        let target = FsTarget::open_behind(&to, DirectMode::Auto, Arc::new(refused)).expect("opened");
        let source = FsSource::open(vec![SourceSpec { path: from, contents: true }], DirectMode::Auto);
        let settings = Settings {
            lanes: Some(1),
            chunk: ChunkSize::from_bytes(CHUNK),
            memory: ByteCount(16 << 20),
            ..Settings::default()
        };
        let (_trigger, stop) = Stop::new();
        let report = run_between(Arc::new(source), Arc::new(target), settings, Arc::new(Nobody), stop).await;
        // The directory may fail by the same call.
        assert!(!report.failures.is_empty(), "{refused:?}");
        let left: Vec<_> = std::fs::read_dir(&to).expect("listed").map(|entry| entry.expect("a name").path()).collect();
        assert!(left.is_empty(), "{refused:?} leaves {left:?}");
    }
}
