//! A file system that goes away in the middle of a transfer, as it does with its disk, and comes
//! back. Needs root.

use std::path::{Path, PathBuf};

use crate::fixture::device::wait_until_detached;
use crate::fixture::{Host, files, tool};
use crate::hostile::Direction;

use super::scene::{LEN, Scene};

/// An XFS of its own; unmounted when dropped, also by a panic.
struct Xfs {
    mount: PathBuf,
    /// Holds the image, and goes last.
    host: Host,
}

impl Xfs {
    /// Makes an XFS and mounts it on a directory. (XFS is never smaller than 300 MiB.)
    fn on(mount: &Path) -> Xfs {
        let xfs = Xfs { mount: mount.to_owned(), host: Host::new() };
        std::fs::File::create(xfs.image()).unwrap().set_len(320 << 20).unwrap();
        tool("mkfs.xfs", &["-q", xfs.image().to_str().unwrap()]);
        xfs.mount();
        xfs
    }

    fn image(&self) -> PathBuf {
        self.host.path("image")
    }

    fn mount(&self) {
        tool("mount", &["-o", "loop", self.image().to_str().unwrap(), self.mount.to_str().unwrap()]);
    }

    fn unmount(&self) {
        tool("umount", &[self.mount.to_str().unwrap()]);
        // A mount of a file system that lives on somewhere is one of the same that was shut down.
        wait_until_detached(&self.image());
    }

    /// Shuts the file system down: from now on nothing is written, not even the log that was not
    /// yet written; every operation fails.
    fn shut_down(&self) {
        tool("xfs_io", &["-x", "-c", "shutdown", self.mount.to_str().unwrap()]);
    }
}

impl Drop for Xfs {
    fn drop(&mut self) {
        // Lazily: a daemon of the test may still be on its way out. The loop device goes with the
        // mount.
        tool("umount", &["-l", self.mount.to_str().unwrap()]);
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_file_system_that_is_shut_down_in_mid_write_takes_the_rest_when_it_is_back() {
    for direction in Direction::BOTH {
        let context = format!("{direction:?}");
        let mut scene = Scene::new(direction);
        files::make(scene.source(), 1, LEN);
        let xfs = match direction {
            Direction::Push => {
                let (root, mut xfs) = (scene.wired.site.root(), None);
                scene.restart(|| xfs = Some(Xfs::on(&root)));
                xfs.unwrap()
            }
            Direction::Pull => Xfs::on(&scene.wired.site.client.make_dir("to")),
        };
        // The directory below the mount, on either side.
        let to = if direction == Direction::Push { "f" } else { "to/f" };
        let (running, durable) = scene.start(scene.run("f", to), 0);
        xfs.shut_down();
        scene.gate.open();
        let outcome = running.fail(7);
        assert_eq!(outcome.events_of("fault").last().unwrap()["code"], "io", "{context}: {outcome}");
        let again = || {
            xfs.unmount();
            xfs.mount();
        };
        match direction {
            Direction::Push => scene.restart(again),
            Direction::Pull => again(),
        }
        assert!(!xfs.mount.join("f").exists(), "{context}");
        let outcome = scene.run("f", to).finish();
        scene.assert_continued(&outcome, LEN as u64, durable, &context);
        scene.assert_same("f", to, &context);
    }
}
