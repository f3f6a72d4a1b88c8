//! Targets that have no room or take no writes: small file systems of their own, mounted from an
//! image. Needs root.

use std::fs;
use std::path::{Path, PathBuf};

use crate::fixture::{Daemon, DaemonConfig, Host, Mode, Outcome, Run, files, modes, tool, tree};

/// A small ext4 file system; unmounted when dropped, also by a panic.
struct Small {
    mount: PathBuf,
    /// Holds image and mount point, and goes last.
    host: Host,
}

impl Small {
    fn new(bytes: u64) -> Small {
        let host = Host::new();
        let (image, mount) = (host.path("image"), host.make_dir("mount"));
        fs::File::create(&image).unwrap().set_len(bytes).unwrap();
        tool("mkfs.ext4", &["-q", "-m", "0", "-F", image.to_str().unwrap()]);
        tool("mount", &["-o", "loop", image.to_str().unwrap(), mount.to_str().unwrap()]);
        Small { mount, host }
    }

    /// A file system in memory, with these options.
    fn in_memory(options: &str) -> Small {
        let host = Host::new();
        let mount = host.make_dir("mount");
        tool("mount", &["-t", "tmpfs", "-o", options, "tmpfs", mount.to_str().unwrap()]);
        Small { mount, host }
    }

    fn remount(&self, options: &str) {
        tool("mount", &["-o", &format!("remount,{options}"), self.mount.to_str().unwrap()]);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.mount.join(name)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        // Lazily: a daemon of the test may still be on its way out. The loop device goes with the
        // mount.
        tool("umount", &["-l", self.mount.to_str().unwrap()]);
    }
}

/// Free space on the file system of `path`, in bytes.
fn free(path: &Path) -> u64 {
    let stat = rustix::fs::statvfs(path).unwrap();
    stat.f_bavail * stat.f_frsize
}

/// Fails unless no file is left and the space is free again.
#[track_caller]
fn assert_given_back(small: &Small, before: u64, context: &str) {
    assert_eq!(tree::leftovers(&small.mount), [""; 0], "{context}");
    // The inodes of names that stood may have grown the directory by a block.
    assert!(free(&small.mount) + (64 << 10) >= before, "{context}: {} of {before} bytes are free", free(&small.mount));
}

/// Makes the files to send.
type Load = fn(&Path);

/// Loads that do not fit: one file in chunks; many files in bundles.
const LOADS: [(&str, Load); 2] = [
    ("one large file", |path| files::make(path, 1, 40 << 20)),
    ("many small files", |path| (0..300).for_each(|n| files::make(path.join(n.to_string()), n, 128 << 10))),
];

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_full_disk_ends_the_transfer_as_unable_and_keeps_only_what_can_be_continued() {
    for mode in modes() {
        for (load, make) in LOADS {
            for verb in ["copy", "pull", "push"] {
                let context = format!("{verb} of {load}, {mode}");
                let small = Small::new(24 << 20);
                let before = free(&small.mount);
                let outcome = fill(&small, verb, mode, make);
                assert_eq!(outcome.code, 7, "{context}: {outcome}");
                assert_eq!(outcome.events_of("fault").last().unwrap()["code"], "no-space", "{context}: {outcome}");
                let target = small.path("f");
                assert!(load != "one large file" || !target.exists(), "{context}: {outcome}");
                assert_committed_whole(&small, &target, &context);
                if target.exists() {
                    fs::remove_dir_all(&target).unwrap();
                }
                // The kept partial can be continued; the rest of the space is free.
                assert_eq!(tree::orphans(&small.mount), [""; 0], "{context}");
                for kept in tree::leftovers(&small.mount).iter().filter(|path| !path.contains('/')) {
                    let path = small.path(kept);
                    if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
                }
                assert_given_back(&small, before, &context);
            }
        }
    }
}

/// A command that moves the made files to `f` on a small file system, and the hosts at its ends.
struct Filling {
    client: Host,
    /// The host with the daemon's configuration.
    _server: Host,
    daemon: Daemon,
    verb: &'static str,
    mode: Mode,
    target: PathBuf,
    slash: &'static str,
}

impl Filling {
    fn new(small: &Small, verb: &'static str, mode: Mode, make: Load) -> Filling {
        let (client, server) = (Host::new(), Host::new());
        let root = if verb == "push" { small.mount.clone() } else { server.make_dir("data") };
        let config = DaemonConfig::default().root("data", &root, "read,create,modify");
        let config = config.line(&format!("engine = '{}'\nio = '{}'", mode.engine, mode.io));
        let daemon = config.client("tester", client.key(), &[("data", "read,create,modify")]).start(&server);
        let source = if verb == "pull" { root.join("f") } else { client.path("f") };
        make(&source);
        // What lies in a directory goes to the target itself.
        let slash = if source.is_dir() { "/" } else { "" };
        Filling { slash, client, _server: server, daemon, verb, mode, target: small.path("f") }
    }

    fn run(&self) -> Outcome {
        let outcome = self.command().finish();
        if self.verb == "push" {
            self.daemon.wait_log("ended: ");
            assert!(!self.daemon.log().contains("panicked"), "{}", self.daemon.log());
        }
        outcome
    }

    fn command(&self) -> Run {
        let (near, far) = (self.client.path("f"), self.daemon.url("data/f"));
        let (near, target) = (near.to_str().unwrap(), self.target.to_str().unwrap());
        let (from, to) = match self.verb {
            "push" => (near, far.as_str()),
            "pull" => (far.as_str(), target),
            _ => (near, target),
        };
        let from = &format!("{from}{}", self.slash);
        let key = self.daemon.key();
        let run = self.client.run([self.verb, "--json", "--retry-for", "0", "--peer-key", key, "--chunk-size", "1MiB"]);
        run.args(self.mode.args()).args(["--memory", "16MiB", from, to])
    }
}

/// Moves the files that `make` makes to `f` on the small file system.
fn fill(small: &Small, verb: &'static str, mode: Mode, make: Load) -> Outcome {
    Filling::new(small, verb, mode, make).run()
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_full_disk_that_is_freed_takes_the_rest() {
    for mode in modes() {
        for verb in ["copy", "pull", "push"] {
            let context = format!("{verb}, {mode}");
            let small = Small::new(24 << 20);
            let ballast = small.path("ballast");
            // Of a longer file blocks are reserved ahead.
            let filling = Filling::new(&small, verb, mode, |path| files::make(path, 1, 15 << 20));
            // There is room for it when it is begun. Then another file takes that room.
            let running = filling.command().args(["--rate", "4MB/s"]).start();
            running.wait_event(|event| event["bytes_durable"].as_u64().filter(|bytes| *bytes > 0));
            let mut other = fs::File::create(&ballast).unwrap();
            let piece = files::bytes(9, 1 << 20);
            while std::io::Write::write_all(&mut other, &piece).is_ok() {}
            // What is open takes its room even without a name.
            drop(other);
            let outcome = running.finish();
            assert_eq!(outcome.code, 7, "{context}: {outcome}");
            assert_named(&outcome, "is full", &context);
            assert_eq!(tree::orphans(&small.mount), [""; 0], "{context}");
            fs::remove_file(&ballast).unwrap();
            let outcome = filling.run();
            assert_eq!(outcome.code, 0, "{context}: {outcome}");
            // Not all that was there room for: what waited to be written may have been the first of
            // it.
            let resumed = outcome.summary()["bytes_resumed"].as_u64().unwrap();
            assert!(resumed > 0, "{context}: {resumed}: {outcome}");
            assert!(fs::read(&filling.target).unwrap() == files::bytes(1, 15 << 20), "{context}");
            assert_eq!(tree::leftovers(&small.mount), [""; 0], "{context}");
        }
    }
}

/// Fails unless one fault for want of room names the file system, the host and `what`, once.
#[track_caller]
fn assert_named(outcome: &Outcome, what: &str, context: &str) {
    let faults = outcome.events_of("fault");
    let [fault] = faults.as_slice() else { panic!("{context}: one fault: {outcome}") };
    assert_eq!(fault["code"], "no-space", "{context}: {outcome}");
    let said = fault["message"].as_str().unwrap();
    let named = said.starts_with("the file system of ") && said.contains(" on host ") && said.contains(what);
    assert!(named, "{context}: {outcome}");
}

/// The disk has room for three files of nine megabytes, and not for a fourth.
#[test]
#[ignore = "needs root: run by .ci/run"]
fn of_files_that_do_not_all_fit_those_that_do_are_committed_and_one_line_says_why_the_rest_is_not() {
    for mode in modes() {
        for verb in ["copy", "pull", "push"] {
            let context = format!("{verb}, {mode}");
            let small = Small::new(64 << 20);
            let ballast = free(&small.mount) - (32 << 20);
            fs::write(small.path("ballast"), files::bytes(9, ballast as usize)).unwrap();
            let filling = Filling::new(&small, verb, mode, |path| {
                (0..6).for_each(|n| files::make(path.join(n.to_string()), n, 9 << 20));
            });
            let outcome = filling.run();
            assert_eq!(outcome.code, 7, "{context}: {outcome}");
            assert_eq!(outcome.counts(), (3, 0, 1), "{context}: {outcome}");
            assert_named(&outcome, "has no room for this file: it needs 9.0 MiB more", &context);
            let standing = tree::Tree::of(&filling.target).paths().len();
            assert_eq!(standing, 4, "{context}: the directory and three files");
            assert_eq!(tree::leftovers(&small.mount), [""; 0], "{context}: nothing was begun in vain");
        }
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_disk_without_a_byte_is_full_each_time_and_no_empty_journal_stays() {
    for mode in modes() {
        for verb in ["copy", "pull", "push"] {
            for (load, make) in LOADS {
                let context = format!("{verb} of {load}, {mode}");
                let small = Small::new(24 << 20);
                let filling = Filling::new(&small, verb, mode, make);
                if !filling.slash.is_empty() {
                    fs::create_dir(&filling.target).unwrap();
                }
                let mut other = fs::File::create(small.path("ballast")).unwrap();
                for piece in [vec![7; 1 << 20], vec![7; 4096], vec![7; 1]] {
                    while std::io::Write::write_all(&mut other, &piece).is_ok() {}
                }
                for again in 0..2 {
                    let outcome = filling.run();
                    assert_eq!(outcome.code, 7, "{context}, {again}: {outcome}");
                    assert_named(&outcome, "", &context);
                    let left = tree::leftovers(&small.mount);
                    assert!(!left.iter().any(|path| path.ends_with(".journal")), "{context}: {left:?}");
                }
            }
        }
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_file_system_without_inodes_is_named_once_and_keeps_what_it_took() {
    for verb in ["copy", "pull", "push"] {
        for mode in modes() {
            let small = Small::in_memory("size=24m,nr_inodes=100");
            let make: Load = |path| (0..200).for_each(|n| files::make(path.join(n.to_string()), n, 100));
            let outcome = fill(&small, verb, mode, make);
            let context = format!("{verb}, {mode}");
            assert_eq!(outcome.code, 7, "{context}: {outcome}");
            assert_named(&outcome, "has no inodes", &context);
            let (committed, skipped, failed) = outcome.counts();
            assert!(committed > 50 && skipped == 0 && failed == 1, "{context}: {outcome}");
        }
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_damaged_file_whose_copy_finds_no_room_beside_it_before_it_is_moved_stays_as_it_is_and_is_mended_once_there_is_some()
 {
    let small = Small::in_memory("size=1m");
    let host = &small.host;
    files::make(host.path("ds/large"), 5, 600 << 10);
    host.run(["job", "add", "--name", "all", "ds/"]).arg(small.path("to")).succeed();
    host.run(["job", "plan", "all"]).succeed();
    host.run(["job", "run", "--drain"]).succeed();
    let (place, mut broken) = (small.path("to/large"), fs::read(host.path("ds/large")).unwrap());
    let time = fs::metadata(&place).unwrap().modified().unwrap();
    broken[7] ^= 1;
    fs::write(&place, &broken).unwrap();
    fs::File::options().write(true).open(&place).unwrap().set_modified(time).unwrap();
    let mend = ["job", "verify", "--json", "all", "--once", "--mend"];
    let told = host.run(mend).fail(6);
    let found = told.events_of("job_bad_file");
    assert!(found.len() == 1 && found[0]["message"].as_str().unwrap().contains("it was not mended"), "{told}");
    assert_eq!(fs::read(&place).unwrap(), broken, "{told}");
    assert!(!small.path("to/.longhaul/grace").exists(), "{told}");
    assert!(tree::leftovers(&small.mount).iter().all(|path| !path.contains("/mend-")), "{told}");
    small.remount("size=4m");
    let told = host.run(mend).succeed();
    assert_eq!(told.events_of("job_mended").len(), 1, "{told}");
    assert_eq!(fs::read(&place).unwrap(), fs::read(host.path("ds/large")).unwrap());
}

/// Fails unless all small files that were committed before the disk was full are whole.
fn assert_committed_whole(small: &Small, target: &Path, context: &str) {
    let Ok(entries) = fs::read_dir(target) else { return };
    for entry in entries {
        let entry = entry.unwrap();
        let number: u64 = entry.file_name().to_str().unwrap().parse().unwrap();
        let bytes = fs::read(entry.path()).unwrap();
        assert!(
            bytes == files::bytes(number, 128 << 10),
            "{context}: {number} is not whole on {}",
            small.host.dir().display()
        );
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_disk_mounted_read_only_ends_the_transfer_as_unable() {
    for mode in modes() {
        for verb in ["copy", "pull", "push"] {
            let small = Small::new(24 << 20);
            small.remount("ro");
            let outcome = fill(&small, verb, mode, |path| files::make(path, 1, 2 << 20));
            assert_eq!(outcome.code, 7, "{verb}, {mode}: {outcome}");
            let fault = &outcome.events_of("fault")[0];
            assert_eq!(fault["code"], "read-only", "{verb}, {mode}: {outcome}");
        }
    }
}
