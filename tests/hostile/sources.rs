//! Sources that do not hold still: they grow, shrink, are written to, replaced or removed while
//! they are sent. None of that is committed, and the run says so.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::inotify;

use super::proxy::{Gate, Kind, hold_after};
use super::{Direction, End, Wired};
use crate::fixture::{PROTECTIONS, engines, files, tree};

/// The length of the source: more than sockets and the sender's buffers hold, so that the reading
/// is not over when the gate closes.
const LEN: usize = 32 << 20;

/// A change of a source.
type Change = (&'static str, fn(&Path));

const CHANGES: &[Change] = &[
    ("grows", |path| OpenOptions::new().append(true).open(path).unwrap().write_all(b"more").unwrap()),
    ("shrinks", |path| OpenOptions::new().write(true).open(path).unwrap().set_len(LEN as u64 / 2).unwrap()),
    ("shrinks to nothing", |path| drop(File::create(path).unwrap())),
    ("is written to at its end", |path| write_at(path, LEN as u64 - 100)),
    ("is written to where it was read already", |path| write_at(path, 10)),
    ("is written to, its time set back", |path| {
        let meta = fs::metadata(path).unwrap();
        write_at(path, LEN as u64 - 100);
        files::set_mtime(path, meta.mtime(), meta.mtime_nsec());
    }),
    ("vanishes", |path| fs::remove_file(path).unwrap()),
    ("is replaced", |path| {
        let other = path.with_extension("other");
        files::make(&other, 77, LEN);
        fs::rename(other, path).unwrap();
    }),
];

fn write_at(path: &Path, offset: u64) {
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(b"changed", offset).unwrap();
}

/// A proxy that closes the gate behind the second MiB of payload.
fn holding(direction: Direction) -> (Wired, Gate) {
    let gate = Gate::default();
    let holding = gate.clone();
    let wired = Wired::new(move |kind, way| {
        (kind != Kind::Control && way == direction.way()).then(|| hold_after(2 << 20, holding.clone()))
    });
    (wired, gate)
}

#[test]
fn a_source_that_changes_while_it_is_sent_is_not_committed() {
    let engine = engines().iter().cycle();
    let protect = PROTECTIONS.iter().cycle().skip(1);
    let ways = CHANGES.iter().flat_map(|change| Direction::BOTH.map(|direction| (change, direction)));
    for ((((what, change), direction), engine), protect) in ways.zip(engine).zip(protect) {
        let context = format!("a source that {what}, {direction:?}, {protect}, engine {engine}");
        let (wired, gate) = holding(direction);
        wired.source(direction, |path| files::make(path, 1, LEN));
        let running = wired.run(direction, protect, engine).start();
        gate.wait_reached();
        change(&wired.end(direction, End::From));
        gate.open();
        let outcome = running.finish();
        assert_eq!(outcome.code, 24, "{context}: {outcome}");
        wired.assert_absent(direction, &context);
        assert_eq!(outcome.counts(), (0, 0, 1), "{context}: {outcome}");
        assert_eq!(outcome.summary()["status"], "changed", "{context}: {outcome}");
        let told = if *what == "vanishes" { "vanished" } else { "changed" };
        assert_eq!(outcome.events_of("fault").last().unwrap()["code"], told, "{context}: {outcome}");
    }
}

#[test]
fn a_source_that_vanishes_before_it_is_opened_fails_alone() {
    for &engine in engines() {
        // The order in which the receiver begins several files is not fixed.
        assert!((0..TRIES).any(|_| vanishes_unopened(engine)), "engine {engine}: 'late' was always opened first");
    }
}

/// Removes a source while another is being read. Returns false if it was open by then, which is
/// another case.
fn vanishes_unopened(engine: &str) -> bool {
    let (wired, gate) = holding(Direction::Push);
    let client = &wired.site.client;
    files::make(client.path("f"), 1, LEN);
    files::make(client.path("late"), 2, 3 << 20);
    files::make(client.path("later"), 3, 3 << 20);
    let opened = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&opened, client.path("late"), inotify::WatchFlags::OPEN).unwrap();
    let url = format!("lh://{}/data/", wired.proxy.addr());
    let run = client.run(["push", "--json", "--retry-for", "0", "--peer-key", wired.site.daemon.key()]);
    let run = run.args(["--lanes", "1", "--chunk-size", "1MiB", "--memory", "8MiB", "--engine", engine]);
    let running = run.args(["f", "late", "later", &url]).start();
    gate.wait_reached();
    if rustix::io::read(&opened, &mut [0; 4096]).is_ok() {
        return false;
    }
    fs::remove_file(client.path("late")).unwrap();
    gate.open();
    let outcome = running.fail(24);
    assert_eq!(outcome.counts(), (2, 0, 1), "engine {engine}: {outcome}");
    assert_eq!(outcome.file("late")["status"], "failed", "engine {engine}: {outcome}");
    wired.assert_clean(engine);
    assert_eq!(tree::Tree::of(wired.site.root()).paths(), ["", "f", "later"], "engine {engine}: {outcome}");
    true
}

/// The number of tries: in about one of ten runs the small files are begun before the large one.
const TRIES: usize = 10;
