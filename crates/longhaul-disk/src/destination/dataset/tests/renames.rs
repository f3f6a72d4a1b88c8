//! Tests of file systems that lack the renames by which a dataset appears.

use longhaul_core::FaultCode;

use super::*;

/// A system without one kind of renames.
#[derive(Debug)]
struct Without {
    renames: Replace,
    answer: Errno,
}

impl Interposer for Without {
    fn begin(&self, call: &Call<'_>) -> Passage {
        match call {
            Call::Rename { replace, .. } if *replace == self.renames => Passage::Answered(Err(self.answer)),
            _ => Passage::Made(0),
        }
    }

    fn end(&self, _token: u64, _outcome: Result<Option<InodeId>, Errno>) {}

    fn read_medium(&self, _file: InodeId, _offset: u64, _into: &mut [u8]) -> Option<usize> {
        None
    }

    fn file_system_type(&self) -> Option<u64> {
        None
    }
}

#[test]
fn where_renames_replace_or_cannot_exchange_a_dataset_is_refused_before_anything_is_staged() {
    for answer in [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP] {
        for (lacks, needs) in [(Replace::Never, Replace::Never), (Replace::Allowed, Replace::Allowed)] {
            let dir = tempfile::tempdir().expect("scratch");
            let top = dir.path().join("in");
            let kernel = Kernel::behind(Arc::new(Without { renames: lacks, answer }));
            let refused = staged(&top, needs, &kernel).expect_err("refused");
            assert!(matches!(refused, DatasetError::Unable { .. }), "{lacks:?}: {refused}");
            assert_eq!(refused.fault().code, FaultCode::Usage, "{refused}");
            assert!(refused.to_string().contains("no renames that replace nothing"), "{refused}");
            assert_eq!(names(&top), [""; 0], "nothing is left of what was tried");
        }
    }
    // A name that must be free is exchanged with nothing.
    let dir = tempfile::tempdir().expect("scratch");
    let kernel = Kernel::behind(Arc::new(Without { renames: Replace::Allowed, answer: Errno::INVAL }));
    staged(dir.path(), Replace::Never, &kernel).expect("staged");
}

#[test]
fn renames_that_fail_for_another_reason_are_a_failure_of_the_disk() {
    let dir = tempfile::tempdir().expect("scratch");
    let kernel = Kernel::behind(Arc::new(Without { renames: Replace::Never, answer: Errno::IO }));
    let failed = staged(dir.path(), Replace::Never, &kernel).expect_err("failed");
    assert!(matches!(failed, DatasetError::Disk(_)), "{failed}");
    assert_eq!(failed.fault().code, FaultCode::Io, "{failed}");
}
