//! Tests of a catalogue as a file: what is found again and what is not, several writers, and files
//! that are of no use.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use longhaul_core::Algorithm;
use longhaul_core::checksum::Sums;

use super::*;

const CONTENT: &[u8] = b"content";

/// Puts something where the catalogue would be.
type Plant<'p> = &'p dyn Fn(&Path);

/// A directory with a place for a catalogue.
struct Scene(tempfile::TempDir);

impl Scene {
    fn new() -> Scene {
        Scene(tempfile::tempdir().expect("tempdir"))
    }

    fn at(&self) -> PathBuf {
        self.0.path().join("state/longhaul/checksums")
    }

    fn catalogue(&self) -> SumsCatalogue {
        SumsCatalogue::at(self.at())
    }

    /// Makes a file of a time long ago, and opens it.
    fn file(&self, name: &str) -> File {
        let path = self.0.path().join(name);
        fs::write(&path, CONTENT).expect("written");
        let file = File::options().read(true).write(true).open(path).expect("open");
        set_time(&file);
        file
    }
}

fn set_time(file: &File) {
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    file.set_times(FileTimes::new().set_modified(then)).expect("a time");
}

fn sums(byte: u8) -> FileSums {
    let sums = Sums::one(Algorithm::Adler32, &[byte; 4]).expect("a checksum");
    FileSums { len: CONTENT.len() as u64, sums }
}

fn fate(catalogue: &SumsCatalogue, mark: FileMark, byte: u8) -> EntryFate {
    let fates = catalogue.keep(&[(mark, &sums(byte))], Durable::Now);
    assert_eq!(fates.len(), 1);
    fates[0]
}

fn keep(catalogue: &SumsCatalogue, file: &File, byte: u8) -> bool {
    fate(catalogue, FileMark::of(file).expect("a mark"), byte) != EntryFate::Failed
}

/// Waits until what changes from now on shows another time of change than before.
fn tick(scene: &Scene) {
    let probe = scene.file("probe");
    let changed = || probe.metadata().map(|is| (is.ctime(), is.ctime_nsec())).expect("times");
    let before = changed();
    while changed() == before {
        set_time(&probe);
    }
}

fn found(catalogue: &SumsCatalogue, file: &File) -> Option<FileSums> {
    catalogue.find(file).map(|kept| kept.file)
}

#[test]
fn what_is_kept_is_found_by_whoever_looks_and_the_last_counts() {
    let scene = Scene::new();
    let (one, other) = (scene.file("one"), scene.file("other"));
    assert_eq!(found(&scene.catalogue(), &one), None);
    assert!(!scene.at().exists(), "a look makes nothing");
    let catalogue = scene.catalogue();
    assert!(keep(&catalogue, &one, 1) && keep(&catalogue, &one, 2));
    for reader in [catalogue, scene.catalogue(), SumsCatalogue::to_read(scene.at())] {
        assert_eq!(found(&reader, &one), Some(sums(2)));
        assert_eq!(found(&reader, &other), None);
    }
    assert_eq!(fs::metadata(scene.at()).expect("a file").permissions().mode() & 0o777, 0o600);
    assert!(fs::metadata(scene.at()).expect("a file").len() <= CATALOGUE_BYTES_MAX);
    assert!(!keep(&SumsCatalogue::to_read(scene.at()), &one, 3), "it was named to be read");
}

#[test]
fn another_version_or_another_file_of_the_name_is_not_believed() {
    let scene = Scene::new();
    let catalogue = scene.catalogue();
    let file = scene.file("file");
    assert!(keep(&catalogue, &file, 1));
    tick(&scene);
    file.write_all_at(b"CONTENT", 0).expect("written");
    assert_eq!(found(&catalogue, &file), None, "its time is another one");
    set_time(&file);
    assert_eq!(found(&catalogue, &file), None, "only the time of its last change is another one");
    file.set_len(3).expect("cut");
    set_time(&file);
    assert_eq!(found(&catalogue, &file), None, "its length is another one");
    drop(file);
    fs::remove_file(scene.0.path().join("file")).expect("removed");
    tick(&scene);
    let file = scene.file("file");
    assert_eq!(found(&catalogue, &file), None, "it has the length and the time, and is another file");
    assert!(keep(&catalogue, &file, 2));
    assert_eq!(found(&catalogue, &file), Some(sums(2)));
}

#[test]
fn an_entry_that_costs_another_one_says_so() {
    let scene = Scene::new();
    let (catalogue, mark) = (scene.catalogue(), FileMark::of(scene.file("file")).expect("a mark"));
    let page = page_of(&mark, BUCKETS);
    let of_inode = |ino| {
        let mut other = mark;
        other.ino = ino;
        other
    };
    let in_page = (0..).map(of_inode).filter(|mark| page_of(mark, BUCKETS) == page);
    let marks: Vec<_> = in_page.take(PAGE_BYTES / SLOT_BYTES + 1).collect();
    let (last, first) = marks.split_last().expect("some");
    assert!(first.iter().all(|mark| fate(&catalogue, *mark, 1) == EntryFate::Kept));
    assert_eq!(fate(&catalogue, first[3], 2), EntryFate::Kept, "it is in its own place");
    assert_eq!(fate(&catalogue, *last, 1), EntryFate::Displaced);
}

#[test]
fn a_process_that_holds_the_lock_for_long_is_waited_for_once() {
    let scene = Scene::new();
    let (catalogue, file) = (scene.catalogue(), scene.file("file"));
    assert!(keep(&catalogue, &file, 1));
    let other = File::options().write(true).open(scene.at()).expect("open");
    assert!(lock::try_lock(&other).expect("locks"));
    let began = Instant::now();
    assert!(!keep(&catalogue, &file, 2));
    assert!(began.elapsed() >= LOCK_PATIENCE);
    let again = Instant::now();
    assert!(!keep(&catalogue, &file, 2));
    assert!(again.elapsed() < LOCK_PATIENCE, "it waited again");
    assert_eq!(found(&catalogue, &file), Some(sums(1)), "who looks does not wait");
    drop(other);
    assert!(keep(&catalogue, &file, 3), "it is free");
    assert_eq!(found(&catalogue, &file), Some(sums(3)));
}

#[test]
fn several_writers_at_once_lose_nothing() {
    let scene = Scene::new();
    let shared = scene.catalogue();
    std::thread::scope(|scope| {
        for writer in 0..4_u8 {
            let (scene, shared) = (&scene, shared.clone());
            scope.spawn(move || {
                let catalogue = if writer % 2 == 0 { shared } else { scene.catalogue() };
                for name in 0..40 {
                    assert!(keep(&catalogue, &scene.file(&format!("{writer}-{name}")), writer));
                }
            });
        }
    });
    let catalogue = scene.catalogue();
    for writer in 0..4_u8 {
        for name in 0..40 {
            let path = scene.0.path().join(format!("{writer}-{name}"));
            assert_eq!(found(&catalogue, &File::open(path).expect("open")), Some(sums(writer)), "{writer}-{name}");
        }
    }
}

#[test]
fn a_slot_that_a_crash_tore_is_empty_and_is_written_to_again() {
    let scene = Scene::new();
    let file = scene.file("file");
    assert!(keep(&scene.catalogue(), &file, 1));
    let raw = File::options().read(true).write(true).open(scene.at()).expect("open");
    let mark = FileMark::of(&file).expect("a mark");
    raw.write_all_at(b"torn", (page_of(&mark, BUCKETS) + 1) * PAGE_BYTES as u64 + 62).expect("torn");
    let catalogue = scene.catalogue();
    assert_eq!(found(&catalogue, &file), None);
    assert!(keep(&catalogue, &file, 2));
    assert_eq!(found(&catalogue, &file), Some(sums(2)));
}

#[test]
fn a_file_that_is_no_catalogue_is_left_as_it_is_and_nothing_is_kept_or_found() {
    let foreign = "longhaul checksums 2\n".to_owned() + &"x".repeat(9000);
    let cases: [(&str, Plant<'_>); 5] = [
        ("of another form", &|at| fs::write(at, &foreign).expect("written")),
        ("a directory", &|at| fs::create_dir(at).expect("made")),
        ("a link", &|at| symlink("elsewhere", at).expect("linked")),
        ("too long", &|at| File::create(at).and_then(|file| file.set_len(CATALOGUE_BYTES_MAX + 1)).expect("made")),
        ("open to others", &|at| {
            fs::write(at, HEAD).expect("written");
            fs::set_permissions(at, fs::Permissions::from_mode(0o622)).expect("a mode");
        }),
    ];
    for (case, plant) in cases {
        let scene = Scene::new();
        let file = scene.file("file");
        fs::create_dir_all(scene.at().parent().expect("a directory")).expect("made");
        plant(&scene.at());
        let before = fs::read(scene.at()).ok();
        let catalogue = scene.catalogue();
        assert_eq!((found(&catalogue, &file), keep(&catalogue, &file, 1)), (None, false), "{case}");
        assert_eq!((fs::read(scene.at()).ok(), scene.0.path().join("elsewhere").exists()), (before, false), "{case}");
    }
}

#[test]
fn one_that_was_not_finished_is_finished_and_one_that_was_removed_is_made_anew() {
    let scene = Scene::new();
    let file = scene.file("file");
    fs::create_dir_all(scene.at().parent().expect("a directory")).expect("made");
    File::create(scene.at()).and_then(|file| file.set_len(PAGE_BYTES as u64)).expect("made");
    let catalogue = scene.catalogue();
    assert_eq!(found(&catalogue, &file), None);
    assert!(keep(&catalogue, &file, 1));
    fs::remove_file(scene.at()).expect("removed");
    assert!(keep(&catalogue, &file, 2));
    assert_eq!(found(&scene.catalogue(), &file), Some(sums(2)));
}
