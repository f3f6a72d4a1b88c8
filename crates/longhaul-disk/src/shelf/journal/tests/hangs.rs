//! Tests of journals of which one disk hangs: no call on it comes back until it is let go.

use std::sync::Condvar;
use std::time::Instant;

use super::*;
use crate::load::TargetCondition;

/// A disk on which calls that change something do not come back as long as it hangs.
#[derive(Debug, Default)]
struct Hanging {
    hangs: Mutex<bool>,
    changed: Condvar,
}

impl Hanging {
    fn set(&self, hangs: bool) {
        *self.hangs.lock().expect("no panic") = hangs;
        self.changed.notify_all();
    }
}

impl Interposer for Hanging {
    fn begin(&self, _: &Call<'_>) -> Passage {
        let hangs = self.hangs.lock().expect("no panic");
        drop(self.changed.wait_while(hangs, |hangs| *hangs).expect("no panic"));
        Passage::Made(0)
    }

    fn end(&self, _: u64, _: Result<Option<InodeId>, Errno>) {}

    fn read_medium(&self, _: InodeId, _: u64, _: &mut [u8]) -> Option<usize> {
        None
    }

    fn file_system_type(&self) -> Option<u64> {
        None
    }
}

/// Some disks that may hang, and a journal of one record on the first two.
struct Scene {
    disks: Disks,
    hanging: Vec<Arc<Hanging>>,
    loads: Vec<Arc<TargetLoad>>,
    journal: Journal,
}

impl Scene {
    fn new(count: usize) -> Scene {
        let disks = Disks::new(count);
        let hanging: Vec<Arc<Hanging>> = (0..count).map(|_| Arc::default()).collect();
        let seen = hanging.iter().enumerate().map(|(n, disk)| (n, Arc::clone(disk) as Arc<dyn Interposer>));
        let (shelf, loads) = disks.shelf_behind(seen.collect());
        let journal = shelf.create(TAG).expect("created");
        write(&journal, 1).expect("written");
        Scene { disks, hanging, loads, journal }
    }

    /// Waits until nothing is under way on a copy that counts no more.
    fn wait_until_ended(&self) {
        while self.journal.copies().idle.iter().any(|copy| copy.hand().is_busy()) {
            std::thread::yield_now();
        }
    }

    fn is(&self, n: usize) -> TargetCondition {
        self.loads[n].condition()
    }
}

#[test]
fn a_journal_goes_on_without_a_disk_that_hangs_and_gets_a_copy_on_another() {
    // COPIES-2 and COPIES-9.
    for hung in [0, 1] {
        let scene = Scene::new(3);
        scene.hanging[hung].set(true);
        write(&scene.journal, 2).expect("written on the other one");
        assert_eq!(scene.is(hung), TargetCondition::Hung);
        write(&scene.journal, 3).expect("written on two again");
        let all = content(&scene.journal);
        assert_eq!(all.len(), 24);
        assert_eq!(scene.disks.with_copy(), [0, 1, 2]);
        for n in (0..3).filter(|n| *n != hung) {
            assert_eq!(std::fs::read(scene.disks.journal_at(n)).expect("there"), all, "disk {n}");
        }
        scene.hanging[hung].set(false);
        scene.wait_until_ended();
        // It is as if the process had died.
        let Scene { disks, hanging, journal, .. } = scene;
        drop((journal, hanging));
        let journal = open(&disks.all()).expect("it stands");
        assert!(journal.is_sure(), "the old copy says of itself that it is old");
        assert_eq!(content(&journal), all);
        write(&journal, 4).expect("written");
        assert_eq!(disks.with_copy().len(), 2, "the old copy goes");
    }
}

#[test]
fn a_copy_on_a_disk_that_hung_is_made_anew_once_the_disk_answers() {
    let scene = Scene::new(2);
    scene.hanging[0].set(true);
    write(&scene.journal, 2).expect("written");
    // It is looked for at once and, as it hangs, again after a while.
    let look_now = || scene.journal.copies().look = Some(Instant::now());
    look_now();
    write(&scene.journal, 3).expect("written");
    assert_eq!(scene.journal.copies().live.len(), 1);
    scene.hanging[0].set(false);
    scene.loads[0].answered();
    scene.wait_until_ended();
    look_now();
    write(&scene.journal, 4).expect("written");
    let all = content(&scene.journal);
    assert_eq!(all.len(), 32);
    for n in 0..2 {
        assert_eq!(std::fs::read(scene.disks.journal_at(n)).expect("there"), all, "disk {n}");
    }
    assert_eq!(scene.journal.copies().look, None);
    scene.journal.remove().expect("removed");
    assert!(scene.disks.with_copy().is_empty());
}

#[test]
fn a_journal_is_removed_while_one_of_its_disks_hangs() {
    let scene = Scene::new(2);
    scene.hanging[1].set(true);
    scene.journal.remove().expect("removed");
    assert_eq!(scene.disks.with_copy(), [1]);
    scene.hanging[1].set(false);
    // Its removal was under way, and ends.
    while !scene.disks.with_copy().is_empty() {
        std::thread::yield_now();
    }
}

#[test]
fn a_copy_that_was_removed_never_counts_again() {
    // COPIES-7 and COPIES-9: disk 0 has an old copy, which goes when the journal is taken over.
    let scene = Scene::new(3);
    scene.hanging[0].set(true);
    write(&scene.journal, 2).expect("written");
    write(&scene.journal, 3).expect("written on two again");
    scene.hanging[0].set(false);
    scene.wait_until_ended();
    let Scene { disks, journal, .. } = scene;
    drop(journal);
    let hanging: Vec<Arc<Hanging>> = (0..3).map(|_| Arc::default()).collect();
    let seen = hanging.iter().enumerate().map(|(n, disk)| (n, Arc::clone(disk) as Arc<dyn Interposer>));
    let (shelf, _loads) = disks.shelf_behind(seen.collect());
    let journal = open(&shelf).expect("it stands");
    write(&journal, 4).expect("written");
    assert_eq!(disks.with_copy(), [1, 2]);
    hanging[1].set(true);
    write(&journal, 5).expect("written on the other one");
    write(&journal, 6).expect("written on two again");
    let all = content(&journal);
    for n in [0, 2] {
        assert_eq!(std::fs::read(disks.journal_at(n)).expect("it has a name"), all, "disk {n}");
    }
    hanging[1].set(false);
}

#[test]
fn a_disk_that_hangs_as_it_is_to_take_a_copy_holds_up_nothing_and_keeps_no_lock() {
    let scene = Scene::new(3);
    scene.hanging[0].set(true);
    scene.hanging[2].set(true);
    write(&scene.journal, 2).expect("written on disk 1");
    write(&scene.journal, 3).expect("written on disk 1, though disk 2 makes no copy");
    assert_eq!(scene.is(2), TargetCondition::Hung);
    let Scene { disks, hanging, journal, .. } = scene;
    drop(journal);
    let journal = open(&disks.shelf(&[1])).expect("it stands, and nobody has it");
    assert_eq!(content(&journal).len(), 24);
    hanging.iter().for_each(|disk| disk.set(false));
    while disks.with_copy().contains(&2) {
        std::thread::yield_now();
    }
}
