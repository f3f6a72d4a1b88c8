//! Striped files on a disk that hangs: its file system is frozen in mid-transfer.

use std::fs;
use std::path::Path;

use super::{MIB, on_disks};
use crate::fixture::device::Throttle;
use crate::fixture::{LoopDisk, files};

/// A disk whose file system lets no write begin, until this is dropped.
struct Frozen<'d>(&'d LoopDisk);

impl Frozen<'_> {
    fn now(disk: &LoopDisk) -> Frozen<'_> {
        assert!(fsfreeze("--freeze", disk), "these tests need fsfreeze of util-linux");
        Frozen(disk)
    }
}

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        fsfreeze("--unfreeze", self.0);
    }
}

fn fsfreeze(what: &str, disk: &LoopDisk) -> bool {
    std::process::Command::new("fsfreeze").arg(what).arg(disk.path()).status().is_ok_and(|status| status.success())
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_disk_that_hangs_holds_up_no_other_is_named_and_loses_nothing() {
    let (scene, disks) = on_disks(&[512 << 20; 4]);
    files::make(scene.host.path("src/large/a"), 1, 800 * MIB);
    // All disks are busy, so that each has its share under way.
    let throttle = Throttle::writes(disks[0].path(), 20_000_000);
    let throttle = disks[1..].iter().fold(throttle, |throttle, disk| throttle.and_writes(disk.path(), 20_000_000));
    const MEMORY: u64 = 64 * MIB as u64;
    let run = scene.copy(&["--memory", "64MiB", "src/large/a", "."]).beneath(throttle.words()).start();
    let of = |event: &serde_json::Value, name: &str| event[name].as_u64();
    run.wait_event(|event| of(event, "bytes_durable").filter(|bytes| *bytes > 30 * MIB as u64));
    // Journals lie on the first two disks, and the file's home has its temporary. Nothing of them
    // is on one of the others.
    let is_home = |dir: &Path| {
        let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.into_iter().any(|name| name.len() == ".longhaul-".len() + 32)
    };
    let hanging = if is_home(&scene.dirs[3]) { 2 } else { 3 };
    let frozen = Frozen::now(&disks[hanging]);
    // How soon it is known to hang depends on what the disks took before: what arrives counts from
    // now on. Beyond all memory, the others have carried it.
    let received = run.last_so_far("bytes_received").expect("progress came before");
    run.wait_event(|event| (event["targets"][hanging]["state"] == "hung").then_some(()));
    run.wait_event(|event| of(event, "bytes_received").filter(|bytes| *bytes > received + 2 * MEMORY));
    run.wait_event(|event| of(event, "bytes_durable").filter(|bytes| *bytes > received + MEMORY));
    drop(frozen);
    let outcome = run.finish();
    assert_eq!(outcome.summary()["exit"], 0, "{outcome}");
    assert!(outcome.stderr.contains(&format!("target {hanging} ({}) does not answer", disks[hanging].text())));
    let summary = outcome.summary();
    let troubled = summary["troubled_targets"].as_array().unwrap();
    assert!(troubled.iter().any(|one| one["target"] == hanging && one["hung_s"].as_f64() > Some(0.0)), "{outcome}");
    scene.export(&["a", "back"]).succeed();
    assert_eq!(files::b3sum(scene.host.path("back")), files::b3sum(scene.host.path("src/large/a")));
    scene.host.run(["set", "check"]).arg(&scene.dirs[0]).succeed();
    scene.host.run(["set", "verify"]).arg(&scene.dirs[0]).succeed();
}
