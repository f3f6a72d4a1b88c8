//! File systems that hear of each sync by itself: over FUSE they are not told that a whole file
//! system was synced.

use crate::fixture::device::{Fuse, Memory};
use crate::fixture::tree::{self, Tree};
use crate::fixture::{Host, engines, files};

#[test]
#[ignore = "needs root: run by .ci/run"]
fn every_file_and_directory_is_synced_where_a_whole_file_system_cannot_be() {
    for &engine in engines() {
        let host = Host::new();
        let mount = Fuse::mount(&host.make_dir("mount"), Memory::new());
        for n in 0..120 {
            files::make(host.path("src").join(format!("{}/{n}", n % 7)), n, 10 + 70 * n as usize);
        }
        files::make(host.path("src/large"), 1000, (3 << 20) + 17);
        files::link("large", host.path("src/link"));
        let run = host.run(["push", "--json", "--chunk-size", "1MiB", "--engine", engine, "src/", "mount/dst/"]);
        let outcome = run.succeed();
        let (unsynced, dirs, syncs) = {
            let memory = mount.lock();
            (memory.named_unsynced().to_vec(), memory.unsynced_dirs(), memory.file_syncs())
        };
        let context = format!("engine {engine}: {syncs} syncs of files arrived");
        assert_eq!(unsynced, [""; 0], "{context}: these were not synced before they got their names: {outcome}");
        assert_eq!(dirs, [0; 0], "{context}: these directories were not synced: {outcome}");
        assert!(syncs >= 121, "{context}");
        tree::assert_same(&Tree::of(host.path("src")), &Tree::of(host.path("mount/dst")), &context);
        assert_eq!(tree::leftovers(host.path("mount")), [""; 0], "{context}");
    }
}
