//! Tests of checksums in the catalogue while their file gets names and metadata.

use std::fs::{File, FileTimes, hard_link};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, SystemTime};

use longhaul_core::Algorithm;
use longhaul_core::checksum::Sums;

use super::*;
use crate::TreePolicy;
use crate::testing::path;

/// A directory with a file whose checksums are in a catalogue.
struct Scene {
    dir: tempfile::TempDir,
    catalogue: SumsCatalogue,
    keeper: ExtrasKeeper,
    file: File,
}

impl Scene {
    fn new() -> Scene {
        let dir = tempfile::tempdir().expect("tempdir");
        let catalogue = SumsCatalogue::at(dir.path().join("catalogue"));
        let keeper = ExtrasKeeper::under(TreePolicy::default()).cataloguing(Some(catalogue.clone()));
        std::fs::write(dir.path().join("f"), "content").expect("written");
        let file = File::options().write(true).open(dir.path().join("f")).expect("open");
        let scene = Scene { dir, catalogue, keeper, file };
        scene.set_time(1);
        let sums = FileSums { len: 7, sums: Sums::one(Algorithm::Adler32, &[1; 4]).expect("a checksum") };
        let fates = scene.catalogue.keep(&[(FileMark::of(&scene.file).expect("a mark"), &sums)], Durable::Now);
        assert_eq!(fates, [EntryFate::Kept]);
        scene
    }

    fn set_time(&self, second: u64) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        self.file.set_times(FileTimes::new().set_modified(time)).expect("a time");
    }

    /// Has somebody else write to the file, and set the time of before.
    fn write(&self, second: u64) {
        let changed = || self.file.metadata().map(|is| (is.ctime(), is.ctime_nsec())).expect("times");
        let before = changed();
        while changed() == before {
            self.file.write_all_at(b"CONTENT", 0).expect("written");
            self.set_time(second);
        }
    }

    fn link(&self, name: &str) -> Option<SumsToCatalogue> {
        let (from, to) = (self.dir.path().join("f"), self.dir.path().join(name));
        let dir = File::open(self.dir.path()).expect("open");
        let (linked, sums) = self.keeper.linking((&dir, b"f"), &path(name), || hard_link(from, to));
        linked.expect("linked");
        sums
    }

    fn losses(&self) -> Vec<(LossReason, u64)> {
        self.keeper.losses().rows().map(|row| (row.reason, row.entries)).collect()
    }

    fn is_found(&self) -> bool {
        self.catalogue.find(&self.file).is_some()
    }
}

#[test]
fn further_names_keep_the_checksums_of_a_file_until_somebody_else_writes_to_it() {
    let scene = Scene::new();
    let sums = ["a", "b"].map(|name| scene.link(name).expect("it has checksums"));
    let mark = || FileMark::of(&scene.file).expect("a mark");
    assert!(sums.iter().all(|sums| sums.hold_for(&mark())));
    scene.write(1);
    assert!(!sums.iter().any(|sums| sums.hold_for(&mark())), "its length and time are those of before");
    assert!(scene.losses().is_empty());
    assert!(scene.link("c").is_none());
    assert_eq!(scene.losses(), [(LossReason::Changed, 1)]);
}

#[test]
fn an_entry_follows_a_time_that_was_set_here_and_no_other() {
    let follow = |scene: &Scene, set: i64| {
        let catalogued = scene.keeper.catalogued(&scene.file).expect("catalogued");
        scene.set_time(2);
        scene.keeper.follow((&scene.file, &path("f")), &catalogued, |time| time.secs == set);
        (scene.is_found(), scene.losses())
    };
    assert_eq!(follow(&Scene::new(), 2), (true, vec![]));
    assert_eq!(follow(&Scene::new(), 3), (false, vec![(LossReason::Changed, 1)]));
}
