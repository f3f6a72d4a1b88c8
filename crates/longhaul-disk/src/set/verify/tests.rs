//! Tests of verifications that are stopped and gone on with.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicU32;

use rustix::process::geteuid;

use super::*;
use crate::destination::Replace;
use crate::kernel::Kernel;
use crate::set::change::testing::Stops;
use crate::set::rebalance::tests::Scene;
use crate::set::rebalance::tests::striped::{self, CHUNKS, put};

/// A set with two striped files.
fn scene() -> Scene {
    let scene = striped::scene();
    put(&scene, "d/second", Replace::Never);
    scene
}

/// The finds of a run, and how it ended.
#[derive(Debug)]
struct Told {
    right: Vec<String>,
    damaged: Vec<(String, u64)>,
    other: Vec<String>,
    /// The files and bytes that were taken over.
    continued: Option<(u64, u64)>,
    has_record: bool,
    end: VerifyEnd,
    /// How often it was asked whether it is to stop.
    asked: u32,
}

/// Verifies, and stops when it was asked so many times.
fn verify(set: &TargetSet, beginning: Beginning, most: u32) -> Told {
    let asked = AtomicU32::new(0);
    let is_stopped = || asked.fetch_add(1, Ordering::Relaxed) >= most;
    let (mut right, mut damaged, mut other, mut continued, mut has_record) = (vec![], vec![], vec![], None, true);
    let wanted = Verification { rate: None, beginning, is_stopped: &is_stopped };
    let end = set.verify(&wanted, &mut |find| {
        match find {
            Verified::Right { path, .. } => right.push(path.escaped().to_string()),
            Verified::Wrong { path, error: DiskError::Set(SetError::Damaged { chunk, .. }) } => {
                damaged.push((path.escaped().to_string(), chunk));
            }
            Verified::Wrong { error, .. } | Verified::Unseen(error) => other.push(error.to_string()),
            Verified::Continued { files, bytes, began } => {
                assert!(began.secs > 1_700_000_000, "{began:?}");
                continued = Some((files, bytes));
            }
            Verified::NoRecord(_) => has_record = false,
        }
        ControlFlow::Continue(())
    });
    right.sort();
    Told { right, damaged, other, continued, has_record, end, asked: asked.into_inner() }
}

fn record_of(scene: &Scene) -> PathBuf {
    scene.dirs[0].join(".longhaul-set/verify")
}

const BOTH: [&str; 2] = ["d/second", "d/striped"];
const NEVER: u32 = u32::MAX;

#[test]
fn a_verification_that_is_stopped_anywhere_is_gone_on_with_and_reads_no_chunk_twice() {
    let whole = verify(&scene().alone(), Beginning::Continued, NEVER);
    assert_eq!(
        (whole.end, whole.continued, whole.right.as_slice()),
        (VerifyEnd::Through, None, &BOTH.map(String::from)[..])
    );
    let mut resumed = 0;
    for most in 0..whole.asked {
        let scene = scene();
        let set = scene.alone();
        let first = verify(&set, Beginning::Continued, most);
        assert_eq!(first.end, VerifyEnd::Stopped, "{most}");
        assert!(record_of(&scene).exists(), "{most}");
        let second = verify(&set, Beginning::Continued, NEVER);
        assert_eq!((second.end, &second.right, &second.other), (VerifyEnd::Through, &whole.right, &vec![]), "{most}");
        let (files, bytes) = second.continued.unwrap_or_default();
        assert_eq!((files as usize, bytes), (first.right.len(), files * striped::bytes().0.len()), "{most}");
        // It asks once for each chunk, and a few times more for each body, file and directory.
        let read = second.asked.min(whole.asked) as i64;
        assert!(read <= i64::from(whole.asked) - i64::from(most) + 8, "{most}: {read} of {}", whole.asked);
        resumed += u32::from(second.continued.is_some());
        assert!(!record_of(&scene).exists(), "{most}");
    }
    assert!(u64::from(resumed) >= CHUNKS, "{resumed}");
}

/// Changes a byte at the start of each body.
fn spoil(scene: &Scene) {
    for dir in &scene.dirs {
        let bodies = fs::read_dir(dir.join(".longhaul-set/bodies")).expect("listed");
        for body in bodies.map(|one| one.expect("one").path()).filter(|path| !path.ends_with("README")) {
            let mut bytes = fs::read(&body).expect("read");
            bytes[5] ^= 1;
            fs::write(&body, bytes).expect("written");
        }
    }
}

#[test]
fn what_was_found_before_is_told_again_and_what_is_new_or_replaced_is_read() {
    let scene = scene();
    let set = scene.alone();
    spoil(&scene);
    let mut most = 0;
    // The first of them is found, and then it stops.
    let found = loop {
        let told = verify(&set, Beginning::Anew, most);
        if let [damaged] = &told.damaged[..] {
            break damaged.clone();
        }
        most += 1;
    };
    spoil(&scene);
    let second = verify(&set, Beginning::Continued, NEVER);
    assert_eq!((second.damaged.as_slice(), second.right.len(), second.end), (&[found][..], 1, VerifyEnd::Through));
    let anew = verify(&set, Beginning::Continued, NEVER);
    assert_eq!((anew.damaged.len(), anew.right.len(), anew.continued), (0, 2, None));
    // One is right; the other one stands for what came or was replaced meanwhile.
    let mut most = 0;
    while verify(&set, Beginning::Anew, most).right.is_empty() {
        most += 1;
    }
    spoil(&scene);
    let third = verify(&set, Beginning::Continued, 0);
    assert_eq!((third.continued.map(|sums| sums.0), third.damaged.len()), (Some(1), 0));
    drop(set);
    BOTH.iter().for_each(|name| put(&scene, name, Replace::Allowed));
    put(&scene, "d/third", Replace::Never);
    spoil(&scene);
    let last = verify(&scene.alone(), Beginning::Continued, NEVER);
    assert_eq!((last.right.len(), last.damaged.len()), (0, 3), "{last:?}");
    assert_eq!(verify(&scene.alone(), Beginning::Anew, NEVER).damaged.len(), 3);
}

#[test]
fn a_name_that_cannot_be_looked_at_is_told_and_its_neighbours_are_read() {
    if geteuid().is_root() {
        eprintln!("SKIPPED: root may read everything");
        return;
    }
    let scene = scene();
    for dir in &scene.dirs {
        let Ok(stripe) = fs::metadata(dir.join("d/striped")) else { continue };
        let file = fs::File::create(dir.join("d/shut")).expect("made");
        file.set_len(stripe.len()).expect("as long as a stripe file");
        file.set_permissions(PermissionsExt::from_mode(0o000)).expect("shut");
    }
    let told = verify(&scene.alone(), Beginning::Continued, NEVER);
    assert_eq!((told.right.as_slice(), told.end), (&BOTH.map(String::from)[..], VerifyEnd::Through));
    assert!(told.other.len() == 1 && told.other[0].contains("d/shut"), "{:?}", told.other);
}

#[test]
fn a_verification_without_a_record_says_so_and_reads_all_the_same() {
    let scene = scene();
    let outside = scene.dirs[1].join("outside");
    for kind in ["link", "directory", "held"] {
        let at = record_of(&scene);
        match kind {
            "link" => std::os::unix::fs::symlink(&outside, &at).expect("made"),
            "directory" => fs::create_dir(&at).expect("made"),
            _ => fs::write(&at, b"").expect("made"),
        }
        let file = (kind == "held").then(|| fs::OpenOptions::new().read(true).write(true).open(&at).expect("open"));
        if let Some(file) = &file {
            assert!(longhaul_sys::lock::try_lock(file).expect("locks"));
        }
        let told = verify(&scene.alone(), Beginning::Continued, NEVER);
        assert_eq!((told.has_record, told.right.len(), told.end), (false, 2, VerifyEnd::Through), "{kind}");
        assert_eq!(verify(&scene.alone(), Beginning::Continued, 3).end, VerifyEnd::Lost, "{kind}");
        assert!(!outside.exists() && at.symlink_metadata().is_ok(), "{kind}");
        fs::remove_file(&at).or_else(|_| fs::remove_dir(&at)).expect("removed");
    }
    // Another generation of the set has nothing of this one.
    let set = scene.alone();
    verify(&set, Beginning::Continued, 3);
    let text = fs::read_to_string(record_of(&scene)).expect("read");
    fs::write(record_of(&scene), text.replace("generation 1", "generation 2")).expect("written");
    assert_eq!(verify(&set, Beginning::Continued, NEVER).continued, None);
}

#[test]
fn a_record_that_is_removed_while_its_lock_is_awaited_is_begun_anew() {
    let scene = scene();
    let (set, at) = (scene.alone(), record_of(&scene));
    let open_here = || {
        let links =
            fs::read_dir("/proc/self/fd").expect("listed").filter_map(|one| fs::read_link(one.ok()?.path()).ok());
        links.filter(|link| *link == at).count()
    };
    // A busy machine may keep the lock from being let go in time.
    let told = (0..20).map(|_| {
        let file = fs::File::create_new(&at).expect("made");
        assert!(longhaul_sys::lock::try_lock(&file).expect("locks"));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| verify(&set, Beginning::Continued, 3));
            while open_here() < 2 && !waiting.is_finished() {
                std::thread::yield_now();
            }
            fs::remove_file(&at).expect("removed");
            drop(file);
            waiting.join().expect("no panic")
        })
    });
    let told = told.into_iter().find(|told| told.has_record).expect("the lock was let go");
    assert_eq!(told.end, VerifyEnd::Stopped);
    assert!(at.exists(), "the next one goes on with it");
}

#[test]
fn a_record_that_cannot_be_written_at_any_call_spoils_nothing() {
    for calls in 0..12 {
        let scene = scene();
        let set = scene.alone();
        let told = verify(&set.behind(&Kernel::behind(Stops::after(calls))), Beginning::Continued, NEVER);
        assert_eq!((told.right.len(), told.end), (2, VerifyEnd::Through), "{calls}");
        let again = verify(&set, Beginning::Continued, NEVER);
        assert_eq!((again.right.len(), again.end, again.has_record), (2, VerifyEnd::Through, true), "{calls}");
    }
}
