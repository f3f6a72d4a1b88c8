//! A journal of ext4 that is aborted: the kernel says so to one sync, and calls the next ones good
//! until a change begins.
//!
//! The device is an image in a tmpfs that is then filled, so that no block of it can be written for
//! the first time: neither are those of the journal, which `mkfs` leaves out. Owns that device.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use longhaul_core::{Meta, Mtime, Preserve, RelPath};
use longhaul_disk::{DirectMode, FsTarget, Replace, TargetTree};

/// An ext4 whose device can be made to take no more writes.
struct Volume {
    scratch: tempfile::TempDir,
    device: String,
}

impl Volume {
    fn new() -> Volume {
        let scratch = tempfile::tempdir().expect("scratch");
        let (memory, mount) = (scratch.path().join("memory"), scratch.path().join("mount"));
        fs::create_dir(&memory).expect("made");
        fs::create_dir(&mount).expect("made");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", "size=24M", "tmpfs"]).arg(&memory));
        let image = memory.join("image");
        File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("a sparse image");
        let lazy = "lazy_itable_init=1,lazy_journal_init=1";
        run(Command::new("mkfs.ext4").args(["-q", "-E", lazy]).arg(&image));
        let device = run(Command::new("losetup").args(["--find", "--show"]).arg(&image)).trim().to_owned();
        run(Command::new("mount").args(["-o", "noinit_itable", &device]).arg(&mount));
        Volume { scratch, device }
    }

    fn mount(&self) -> PathBuf {
        self.scratch.path().join("mount")
    }

    /// From now on no block is written that was not written before.
    fn fill(&self) {
        let mut file = File::create(self.scratch.path().join("memory/fill")).expect("made");
        while file.write(&[0xFF; 1 << 16]).is_ok_and(|written| written > 0) {}
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.mount()).status();
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
        let _ = Command::new("umount").arg(self.scratch.path().join("memory")).status();
    }
}

/// Runs a command to its good end; gives what it printed.
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A destination there, with a file that is renamed and whose name is not durable.
fn renamed(volume: &Volume) -> (FsTarget, longhaul_disk::Staged) {
    let target = FsTarget::open(&volume.mount(), DirectMode::Auto).expect("opened");
    let path = RelPath::new("file").expect("a path");
    let meta = Meta::new(0o640, Mtime::default());
    let staged = target.write_small(&path, b"content", &meta, Preserve::default()).expect("written");
    target.barrier(&[&staged]).expect("synced");
    volume.fill();
    target.publish(&staged, Replace::Never).expect("renamed");
    (target, staged)
}

#[test]
#[ignore = "needs root: mounts"]
fn no_sync_behind_a_failed_one_is_believed_where_the_journal_was_aborted() {
    let volume = Volume::new();
    let (target, staged) = renamed(&volume);
    let staged = [staged];
    target.sync_dirs(&staged).expect_err("the journal cannot be written");
    // As for a file whose content was proven otherwise.
    target.believe(&staged[0]);
    target.sync_dirs(&staged).expect_err("nor was it since");
}

#[test]
#[ignore = "needs root: mounts"]
fn no_first_sync_is_believed_where_another_process_was_told_that_the_journal_was_aborted() {
    let volume = Volume::new();
    let beside = volume.mount().join("beside");
    write(&beside, b"1");
    let (target, staged) = renamed(&volume);
    write(&beside, b"2");
    let told = File::open(&beside).and_then(|file| file.sync_all());
    told.expect_err("it is the first to be told");
    target.sync_dirs(&[staged]).expect_err("the name is not durable");
}

fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
