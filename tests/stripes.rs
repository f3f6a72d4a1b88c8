//! Target sets with the layout `stripe`: large files whose chunks lie on all targets, read,
//! compared, replaced, continued, damaged and forged.

mod hangs;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::fixture::device::Throttle;
use crate::fixture::tree::{self, Tree};
use crate::fixture::{Daemon, DaemonConfig, Host, LoopDisk, Run, files};

const MIB: usize = 1 << 20;

/// A host with a tree `src` of files of all sizes, and empty directories for `count` targets.
struct Scene {
    host: Host,
    dirs: Vec<PathBuf>,
}

/// The files of `src` that are striped, and their lengths in bytes.
const STRIPED: [(&str, usize); 3] = [("large/a", 17 * MIB + 7), ("large/b", 8 * MIB), ("large/sparse", 24 * MIB)];

impl Scene {
    fn new(count: usize) -> Scene {
        let host = Host::new();
        files::make(host.path("src/large/a"), 1, STRIPED[0].1);
        files::make(host.path("src/large/b"), 2, STRIPED[1].1);
        files::make(host.path("src/large/sparse"), 3, MIB);
        let sparse = fs::OpenOptions::new().write(true).open(host.path("src/large/sparse")).unwrap();
        sparse.set_len(STRIPED[2].1 as u64).unwrap();
        files::make(host.path("src/small"), 4, 5 * MIB);
        files::make(host.path("src/deep/er/tiny"), 5, 100);
        files::make(host.path("src/nothing"), 6, 0);
        files::set_mode(host.path("src/large/b"), 0o640);
        let dirs = (0..count).map(|n| host.make_dir(&format!("d{n}"))).collect();
        Scene { host, dirs }
    }

    /// `copy` to the targets, where files of 8 MiB and more are striped in chunks of 1 MiB.
    fn copy(&self, options: &[&str]) -> Run {
        let targets = self.dirs.iter().flat_map(|dir| ["--target".into(), dir.clone().into_os_string()]);
        let layout = ["--layout", "stripe", "--stripe-from", "8MiB", "--chunk-size", "1MiB"];
        self.host.run(["copy", "--json", "--allow-same-device"]).args(layout).args(targets).args(options)
    }

    fn export(&self, options: &[&str]) -> Run {
        self.host.run(["set", "export", "--json", "--set"]).arg(&self.dirs[1]).args(options)
    }

    fn source(&self) -> Tree {
        Tree::of(self.host.path("src")).beneath()
    }

    /// The names of bodies on a target.
    fn bodies(&self, target: usize) -> BTreeSet<String> {
        let names = fs::read_dir(self.dirs[target].join(".longhaul-set/bodies")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != "README").collect()
    }

    /// The names of bodies on any target.
    fn all_bodies(&self) -> BTreeSet<String> {
        (0..self.dirs.len()).flat_map(|target| self.bodies(target)).collect()
    }

    /// The path of the stripe file, or plain file, of this name.
    fn stripe(&self, name: &str) -> PathBuf {
        self.dirs.iter().map(|dir| dir.join(name)).find(|path| path.exists()).expect("it stands")
    }

    /// A daemon that serves them as the root `data`.
    fn daemon(&self) -> Daemon {
        let config = DaemonConfig::default().set("data", &self.dirs, "layout = \"stripe\"\nstripe_from = \"8MiB\"\n");
        let daemon = config.client("me", self.host.key(), &[("data", "read,create,modify")]).start(&self.host);
        self.host.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
        daemon
    }
}

fn first_line(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap()).lines().next().unwrap_or_default().to_owned()
}

#[test]
fn large_files_lie_on_all_targets_and_every_reader_sees_them_whole() {
    let scene = Scene::new(3);
    scene.copy(&["--verify", "disk", "src/", "in"]).succeed();
    for (name, len) in STRIPED {
        let stripe = scene.stripe(&format!("in/{name}"));
        assert_eq!(first_line(&stripe), "a longhaul striped file, version 1; read it with `longhaul set export`");
        assert!(fs::metadata(&stripe).unwrap().len() < len as u64 / 100, "{name}");
    }
    assert!((0..3).filter(|target| !scene.bodies(*target).is_empty()).count() > 1, "{:?}", scene.all_bodies());
    assert_eq!(fs::read(scene.stripe("in/small")).unwrap(), fs::read(scene.host.path("src/small")).unwrap());
    // The root that is told is that of the content.
    let root = files::b3sum(scene.host.path("src/large/a"));
    let header = String::from_utf8_lossy(&fs::read(scene.stripe("in/large/a")).unwrap()).into_owned();
    assert!(header.contains(&format!("\nroot {root}\n")), "{}", &header[..600]);
    // Exported: as a tree, as one file, as a stream.
    scene.export(&["in/", "back"]).succeed();
    tree::assert_same(&scene.source(), &Tree::of(scene.host.path("back")).beneath(), "exported");
    scene.export(&["in/large/a", "one"]).succeed();
    assert_eq!(files::b3sum(scene.host.path("one")), root);
    let streamed = scene.host.run(["set", "export", "--set"]).arg(&scene.dirs[0]).args(["in/large/a", "-"]).succeed();
    assert!(streamed.stdout == fs::read(scene.host.path("src/large/a")).unwrap());
    // The same command again has nothing to do.
    let outcome = scene.copy(&["src/", "in"]).succeed();
    assert_eq!(
        (outcome.summary()["bytes_committed"].as_u64(), outcome.summary()["files_skipped"].as_u64()),
        (Some(0), Some(6))
    );
    // `set ls` tells the lengths of the content.
    let listed = scene.host.run(["set", "ls"]).arg(&scene.dirs[2]).succeed().stdout_text().to_owned();
    assert!(listed.contains(&format!("\t{}\tin/large/a", STRIPED[0].1)), "{listed}");
}

#[test]
fn a_daemon_serves_striped_files_as_any_other() {
    let scene = Scene::new(4);
    let daemon = scene.daemon();
    let url = daemon.url("data/in");
    scene.host.run(["push", "--verify", "disk", "--manifest", "list", "src/", &url]).succeed();
    assert_eq!(scene.all_bodies().len(), 3);
    let listed = scene.host.run(["ls", "-l", &format!("{url}/large")]).succeed().stdout_text().to_owned();
    assert!(listed.contains(&STRIPED[0].1.to_string()), "{listed}");
    // Read in pieces that are no chunks of the set.
    for (to, chunk) in [("small-chunks", "1MiB"), ("large-chunks", "16MiB")] {
        scene.host.run(["pull", "--chunk-size", chunk, &format!("{url}/"), to]).succeed();
        tree::assert_same(&scene.source(), &Tree::of(scene.host.path(to)).beneath(), to);
        files::b3sum_check(&scene.host.path("list"), &scene.host.path(to)).unwrap();
    }
    let again = scene.host.run(["push", "--json", "src/", &url]).succeed();
    assert_eq!(again.summary()["bytes_committed"], 0, "{again}");
}

#[test]
fn a_file_that_is_compared_or_replaced_leaves_no_body_behind() {
    let scene = Scene::new(3);
    scene.copy(&["src/", "."]).succeed();
    let before = scene.all_bodies();
    let path = scene.host.path("src/large/a");
    let mut bytes = fs::read(&path).unwrap();
    bytes[5 * MIB] ^= 1;
    fs::write(&path, bytes).unwrap();
    let outcome = scene.copy(&["--if-exists", "verify", "src/", "."]).succeed();
    assert_eq!(outcome.summary()["bytes_resumed"], 16 * MIB as u64 + 7, "one chunk of 18 was sent: {outcome}");
    scene.export(&[".", "back"]).succeed();
    tree::assert_same(&scene.source(), &Tree::of(scene.host.path("back")).beneath(), "compared");
    let after = scene.all_bodies();
    assert_eq!((after.len(), after.intersection(&before).count()), (3, 2), "one file has new bodies");
    // A short file takes the place of a striped one, and the other way round.
    files::make(scene.host.path("src/large/b"), 9, 10);
    files::make(scene.host.path("src/small"), 9, 9 * MIB);
    scene.copy(&["--if-exists", "replace", "src/", "."]).succeed();
    scene.export(&["--if-exists", "replace", ".", "back"]).succeed();
    tree::assert_same(&scene.source(), &Tree::of(scene.host.path("back")).beneath(), "replaced");
    assert_eq!(scene.all_bodies().len(), 3);
    assert!(scene.dirs.iter().all(|dir| tree::leftovers(dir).iter().all(|name| name.starts_with(".longhaul-set"))));
}

#[test]
fn a_push_that_is_killed_goes_on_with_the_bytes_that_were_recorded() {
    let scene = Scene::new(3);
    files::make(scene.host.path("src/large/a"), 1, 200 * MIB);
    for round in 0..4 {
        let daemon = scene.daemon();
        let url = daemon.url("data/in");
        let push = ["push", "--json", "--retry-for", "0s", "--rate", "200Mbit/s", "src/", &url];
        let push = scene.host.run(push).start();
        // The other files have 37 MiB, and are among them until they are committed.
        let wanted = (round * 20 + 60) * MIB as u64;
        push.wait_event(|event| (event["bytes_durable"].as_u64()? > wanted).then_some(()));
        if round % 2 == 0 {
            daemon.kill()
        } else {
            push.signal(Signal::KILL)
        };
        push.finish();
    }
    let daemon = scene.daemon();
    let outcome = scene.host.run(["push", "--json", "src/", &daemon.url("data/in")]).succeed();
    let resumed = outcome.summary()["bytes_resumed"].as_u64().unwrap();
    assert!(resumed > 80 * MIB as u64, "{outcome}");
    scene.host.run(["pull", &format!("{}/", daemon.url("data/in")), "back"]).succeed();
    tree::assert_same(&scene.source(), &Tree::of(scene.host.path("back")).beneath(), "continued");
    assert_eq!(scene.all_bodies().len(), 3, "nothing is left of the attempts");
}

#[test]
fn a_file_that_only_looks_like_a_stripe_file_is_a_plain_file() {
    let scene = Scene::new(3);
    scene.copy(&["src/", "."]).succeed();
    // Pushed through the front door, with the bytes of a real one of another set.
    let other = Scene::new(2);
    other.copy(&["src/large/b", "."]).succeed();
    let forged = fs::read(other.stripe("b")).unwrap();
    fs::write(scene.host.path("src/forged"), &forged).unwrap();
    // And one of this set that was changed.
    let mut changed = fs::read(scene.stripe("large/b")).unwrap();
    let at = changed.windows(5).position(|bytes| bytes == b"large").unwrap();
    changed[at] = b'L';
    fs::write(scene.host.path("src/changed"), &changed).unwrap();
    scene.copy(&["src/", "."]).succeed();
    scene.export(&[".", "back"]).succeed();
    tree::assert_same(&scene.source(), &Tree::of(scene.host.path("back")).beneath(), "plain files");
    assert_eq!(fs::read(scene.host.path("back/forged")).unwrap(), forged);
}

#[test]
fn a_body_that_is_lost_or_damaged_is_named_and_no_wrong_byte_is_given() {
    let scene = Scene::new(3);
    scene.copy(&["src/", "."]).succeed();
    let stripe = fs::read(scene.stripe("large/a")).unwrap();
    let text = String::from_utf8_lossy(&stripe[..600]).into_owned();
    let id = text.lines().find_map(|line| line.strip_prefix("file ")).expect("an id");
    let name = format!(".longhaul-{id}");
    let lost = (0..3).find(|target| scene.bodies(*target).contains(&name)).expect("a body");
    fs::remove_file(scene.dirs[lost].join(".longhaul-set/bodies").join(name)).unwrap();
    let outcome = scene.export(&[".", "back"]).fail(23);
    assert!(outcome.stderr.contains("large/a"), "{outcome}");
    assert!(outcome.stderr.contains(&format!("its body is missing on target {lost}")), "{outcome}");
    assert!(!scene.host.path("back/large/a").exists());
    assert!(scene.host.path("back/large/b").exists());
    // Records that are damaged.
    let path = scene.stripe("large/b");
    let mut bytes = fs::read(&path).unwrap();
    bytes[12 * 1024 + 100] ^= 1;
    fs::write(&path, bytes).unwrap();
    let outcome = scene.export(&["large/b", "b"]).fail(7);
    assert!(outcome.stderr.contains("its records are damaged"), "{outcome}");
}

#[test]
fn the_secret_of_a_set_is_private_and_the_same_on_all_targets() {
    let scene = Scene::new(3);
    scene.copy(&["src/large/b", "."]).succeed();
    let secret = |target: usize| scene.dirs[target].join(".longhaul-set/secret");
    for target in 0..3 {
        assert_eq!(fs::metadata(secret(target)).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read(secret(target)).unwrap(), fs::read(secret(0)).unwrap());
    }
    files::set_mode(secret(1), 0o644);
    let outcome = scene.copy(&["src/small", "."]).fail(7);
    assert!(outcome.stderr.contains("other users may read or write it"), "{outcome}");
    files::set_mode(secret(1), 0o600);
    let text = fs::read_to_string(secret(1)).unwrap();
    let (first, hex) = text.split_once('\n').unwrap();
    fs::write(secret(1), format!("{first}\n{}", hex.replace(['0', '1', '2', '3'], "4"))).unwrap();
    let outcome = scene.copy(&["src/small", "."]).fail(7);
    assert!(outcome.stderr.contains("it is another than that of the first target"), "{outcome}");
}

#[test]
fn orphans_are_told_and_removed_only_when_nothing_may_need_them() {
    let scene = Scene::new(3);
    scene.copy(&["src/", "."]).succeed();
    let check = || scene.host.run(["set", "check", "--json"]).arg(&scene.dirs[0]);
    let collect = |deed: &str| scene.host.run(["set", "collect", "--json", deed]).arg(&scene.dirs[0]);
    assert_eq!(check().succeed().summary()["findings"], 0);
    // A stripe file that is lost leaves its bodies.
    let lost = fs::read(scene.stripe("large/a")).unwrap();
    let path = scene.stripe("large/a");
    fs::remove_file(&path).unwrap();
    let outcome = check().fail(23);
    let orphans: Vec<_> = outcome.events_of("set_orphan");
    assert!(!orphans.is_empty() && orphans.iter().all(|event| event["path"] == "large/a"), "{outcome}");
    let before = scene.all_bodies();
    assert_eq!(collect("--plan").succeed().events_of("set_orphan"), orphans);
    assert_eq!(scene.all_bodies(), before, "a plan removes nothing");
    // A copy of it under another name that cannot be proven keeps them, and so does a missing disk.
    let mut damaged = lost.clone();
    damaged[200] ^= 1;
    fs::write(&path, damaged).unwrap();
    assert!(collect("--apply").succeed().events_of("set_orphan").is_empty());
    fs::remove_file(&path).unwrap();
    let away = scene.dirs[2].with_extension("away");
    fs::rename(&scene.dirs[2], &away).unwrap();
    let outcome = collect("--apply").fail(7);
    assert!(outcome.stderr.contains("no orphan is removed: target 2 is missing"), "{outcome}");
    fs::rename(&away, &scene.dirs[2]).unwrap();
    assert_eq!(scene.all_bodies(), before);
    collect("--apply").succeed();
    assert_eq!(scene.all_bodies().len(), 2, "those of the other files stay");
    assert_eq!(check().succeed().summary()["findings"], 0);
    scene.export(&["large/b", "b"]).succeed();
    // A body that is missing is a finding.
    let target = (0..3).find(|target| !scene.bodies(*target).is_empty()).unwrap();
    let body = scene.bodies(target).pop_first().unwrap();
    fs::remove_file(scene.dirs[target].join(".longhaul-set/bodies").join(body)).unwrap();
    let outcome = check().fail(23);
    assert!(outcome.stderr.contains(&format!("its body is missing on target {target}")), "{outcome}");
}

#[test]
fn a_damaged_chunk_is_found_with_its_place_by_reading_all_of_them() {
    let scene = Scene::new(3);
    scene.copy(&["src/", "."]).succeed();
    let verify = || scene.host.run(["set", "verify", "--json", "--rate", "8Gbit/s"]).arg(&scene.dirs[0]);
    let outcome = verify().succeed();
    let bytes: usize = STRIPED.iter().map(|(_, len)| len).sum();
    assert_eq!(
        (outcome.summary()["files"].as_u64(), outcome.summary()["bytes"].as_u64()),
        (Some(3), Some(bytes as u64))
    );
    let header = String::from_utf8_lossy(&fs::read(scene.stripe("large/b")).unwrap()[..600]).into_owned();
    let name = format!(".longhaul-{}", header.lines().find_map(|line| line.strip_prefix("file ")).unwrap());
    let target = (0..3).find(|target| scene.bodies(*target).contains(&name)).unwrap();
    let body = scene.dirs[target].join(".longhaul-set/bodies").join(name);
    let mut content = fs::read(&body).unwrap();
    content[MIB / 2] ^= 1;
    fs::write(&body, content).unwrap();
    let outcome = verify().fail(6);
    let said = format!("it lies on target {target}");
    assert!(outcome.stderr.contains("of the striped file 'large/b'") && outcome.stderr.contains(&said), "{outcome}");
    assert_eq!(outcome.summary()["files"], 2, "the others are right: {outcome}");
}

#[test]
fn a_verification_that_is_stopped_or_killed_is_gone_on_with() {
    let scene = Scene::new(3);
    scene.copy(&["src/", "."]).succeed();
    let verify = |options: &[&str]| scene.host.run(["set", "verify", "--json"]).arg(&scene.dirs[1]).args(options);
    let slowly = ["--rate", "6MB/s"];
    let run = verify(&slowly).start();
    run.wait_type("set_file");
    run.signal(Signal::INT);
    let outcome = run.finish();
    assert_eq!(outcome.code, 130, "{outcome}");
    assert!(outcome.stderr.contains("it goes on where this ended"), "{outcome}");
    assert_eq!(outcome.summary()["status"], "interrupted", "{outcome}");
    let record = scene.dirs[0].join(".longhaul-set/verify");
    assert!(record.exists());
    let run = verify(&slowly).start();
    run.wait_type("set_continued");
    run.signal(Signal::KILL);
    run.finish();
    let outcome = verify(&[]).succeed();
    let continued = &outcome.events_of("set_continued")[0];
    assert!(continued["files"].as_u64() >= Some(1) && continued["began_s"].as_u64() > Some(1_700_000_000), "{outcome}");
    assert!(outcome.stderr.contains("going on with a verification that began"), "{outcome}");
    assert_eq!(outcome.summary()["files"], 3, "what was read before is told as well: {outcome}");
    assert!(!record.exists());
    let run = verify(&slowly).start();
    run.wait_type("set_file");
    run.signal(Signal::TERM);
    assert_eq!(run.finish().code, 143);
    assert!(record.exists());
    let outcome = verify(&["--restart"]).succeed();
    assert!(outcome.events_of("set_continued").is_empty(), "{outcome}");
}

#[test]
fn a_lost_stripe_file_is_made_again_from_its_bodies_and_nothing_is_replaced() {
    let scene = Scene::new(3);
    scene.copy(&["src/", "in"]).succeed();
    let rebuild = |deed: &str| scene.host.run(["set", "rebuild", "--json", deed]).arg(&scene.dirs[0]);
    assert!(rebuild("--plan").succeed().events_of("set_lost").is_empty());
    // The directory is lost on the home of one, and the stripe file of another.
    for (name, _) in STRIPED {
        fs::remove_file(scene.stripe(&format!("in/{name}"))).unwrap();
    }
    for dir in &scene.dirs {
        let _ = fs::remove_dir_all(dir.join("in/large"));
    }
    let planned = rebuild("--plan").succeed().events_of("set_lost");
    assert_eq!(planned.len(), 3);
    assert!(planned.iter().all(|event| event["state"] == "possible"), "{planned:?}");
    assert!(!scene.dirs.iter().any(|dir| dir.join("in/large").exists()));
    // Something else stands under the path of one by now.
    files::make(scene.dirs[0].join("in/large/b"), 77, 5);
    let made = rebuild("--apply").fail(23).events_of("set_lost");
    let state = |path: &str| made.iter().find(|event| event["path"] == path).map(|event| event["state"].clone());
    assert_eq!(state("in/large/a"), Some("made".into()), "{made:?}");
    assert_eq!(state("in/large/sparse"), Some("made".into()), "{made:?}");
    assert_eq!(state("in/large/b"), Some("impossible".into()), "{made:?}");
    assert_eq!(fs::metadata(scene.dirs[0].join("in/large/b")).unwrap().len(), 5);
    fs::remove_file(scene.dirs[0].join("in/large/b")).unwrap();
    rebuild("--apply").succeed();
    scene.export(&["in/", "back"]).succeed();
    let (source, back) = (scene.source(), Tree::of(scene.host.path("back")).beneath());
    for (name, _) in STRIPED {
        let at = |tree: &Tree| tree.0.get(name.as_bytes()).cloned();
        assert_eq!(at(&source), at(&back), "{name} has its content, permissions and time");
    }
    scene.host.run(["set", "verify"]).arg(&scene.dirs[0]).succeed();
}

#[test]
fn a_copy_of_a_stripe_file_is_refused_in_its_own_set_and_the_content_stays() {
    let scene = Scene::new(3);
    scene.copy(&["src/", "."]).succeed();
    // A backup of the raw file, restored by longhaul under its own path, and under another one.
    fs::create_dir_all(scene.host.path("backup/large")).unwrap();
    for name in ["backup/large/a", "backup/other"] {
        fs::copy(scene.stripe("large/a"), scene.host.path(name)).unwrap();
    }
    let outcome = scene.copy(&["--if-exists", "replace", "backup/", "."]).fail(23);
    assert_eq!(outcome.summary()["files_failed"], 2, "{outcome}");
    assert!(outcome.stderr.contains("is a copy of a stripe file of this very set"), "{outcome}");
    scene.export(&["large/a", "a"]).succeed();
    assert_eq!(files::b3sum(scene.host.path("a")), files::b3sum(scene.host.path("src/large/a")));
    assert!(!scene.dirs.iter().any(|dir| dir.join("other").exists()));
    scene.host.run(["set", "check"]).arg(&scene.dirs[0]).succeed();
}

#[test]
fn a_set_is_not_made_again_over_bodies_that_need_its_secret() {
    let scene = Scene::new(2);
    scene.copy(&["src/large/b", "."]).succeed();
    let home = usize::from(!scene.dirs[0].join("b").exists());
    for dir in &scene.dirs {
        fs::remove_file(dir.join(".longhaul-set/mark")).unwrap();
    }
    // Named so that all names are on the first target, as in a tree that becomes a set.
    let dirs = [&scene.dirs[home], &scene.dirs[1 - home]];
    let init = scene.host.run(["set", "init", "--layout", "stripe", "--allow-same-device"]).args(dirs).fail(7);
    assert!(init.stderr.contains("has the secret of a set already"), "{init}");
}

/// Three small disks, the first of which is smaller than its share of the files.
fn on_disks(sizes: &[u64]) -> (Scene, Vec<LoopDisk>) {
    let scene = Scene::new(0);
    let disks: Vec<_> =
        sizes.iter().zip(0..).map(|(size, n)| LoopDisk::new(&scene.host, &format!("d{n}"), *size)).collect();
    let dirs = disks.iter().map(|disk| disk.path().to_owned()).collect();
    (Scene { dirs, ..scene }, disks)
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_full_disk_gets_no_more_chunks_and_a_missing_one_is_named() {
    let (scene, disks) = on_disks(&[24 << 20, 192 << 20, 192 << 20]);
    files::make(scene.host.path("src/large/a"), 1, 150 * MIB);
    scene.copy(&["--memory", "32MiB", "src/", "."]).succeed();
    scene.host.run(["set", "verify"]).arg(&scene.dirs[0]).succeed();
    scene.export(&[".", "back"]).succeed();
    tree::assert_same(&scene.source(), &Tree::of(scene.host.path("back")).beneath(), "over a full disk");
    let before = scene.all_bodies();
    disks[2].unmount();
    let outcome = scene.export(&["--if-exists", "verify", ".", "again"]).fail(23);
    assert!(outcome.stderr.contains("missing"), "{outcome}");
    assert!(!scene.host.path("again/large/a").exists(), "a part of it lies there");
    scene.host.run(["set", "collect", "--apply"]).arg(&scene.dirs[0]).finish();
    disks[2].mount();
    assert_eq!(scene.all_bodies(), before);
    scene.host.run(["set", "check"]).arg(&scene.dirs[0]).succeed();
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_slow_disk_gets_the_chunks_that_it_can_carry() {
    let (scene, disks) = on_disks(&[512 << 20; 3]);
    files::make(scene.host.path("src/large/a"), 1, 200 * MIB);
    let throttle = Throttle::writes(disks[1].path(), 4_000_000);
    let run = scene.copy(&["--memory", "32MiB", "src/large/a", "."]);
    let outcome = run.beneath(throttle.words()).succeed();
    let held = |target: usize| -> u64 {
        let bodies = scene.bodies(target).into_iter();
        bodies.map(|name| fs::metadata(scene.dirs[target].join(".longhaul-set/bodies").join(name)).unwrap().len()).sum()
    };
    // Of its two siblings one may be far faster than the other, while a busy host caches for both.
    assert!(held(1) * 6 < held(0) + held(2), "{} {} {}\n{outcome}", held(0), held(1), held(2));
    assert!(outcome.stderr.contains("limited by target 1"), "{outcome}");
}

#[test]
fn a_stream_of_unknown_length_lies_whole_and_one_that_is_short_is_a_file_as_any_other() {
    let scene = Scene::new(3);
    let bytes = fs::read(scene.host.path("src/large/a")).unwrap();
    scene.copy(&["--memory", "64MiB", "-", "streamed"]).input(bytes.clone()).succeed();
    assert_eq!(fs::read(scene.stripe("streamed")).unwrap(), bytes, "it lies whole on one target");
    // It takes the place of a striped file, whose bodies go.
    scene.copy(&["src/large/b", "."]).succeed();
    assert_eq!(scene.all_bodies().len(), 1);
    scene.copy(&["--if-exists", "replace", "--memory", "64MiB", "-", "b"]).input(bytes.clone()).succeed();
    assert_eq!(fs::read(scene.stripe("b")).unwrap(), bytes);
    assert!(scene.all_bodies().is_empty());
    scene.host.run(["set", "check"]).arg(&scene.dirs[0]).succeed();
}
