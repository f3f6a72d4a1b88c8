//! Races of names: a local process exchanges a directory beneath a root with a link that leads out
//! of it, as fast as it can, while a client has the daemon work below that name.
//!
//! In every case nothing outside is touched: the kernel tells of each access (`inotify`), and the
//! content, modes, times and names there stay. Nothing that stands outside reaches a client. The
//! daemon is not confined by its kernel here (`confine = 'off'`), so that its own walk has to hold.
//! `SWAPS_SECONDS` is the time of each case (1); from ten seconds on 10,000 files come at once.

use std::cell::Cell;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{CWD, RenameFlags, XattrFlags, renameat_with, setxattr};
use rustix::io::Errno;

use crate::fixture::tree::{self, Tree};
use crate::fixture::{DaemonConfig, Outcome, Site, files, random};

/// A root in which `top/d` is now a directory and now a link to `outside`, which has the same names
/// as the directory. `top/l` is the other one of both.
struct Race {
    site: Site,
    outside: PathBuf,
    before: Tree,
    watch: OwnedFd,
    swapper: Swapper,
    until: Instant,
    /// Files that a client sends at a time.
    count: usize,
    /// Whether it sends 10,000 instead, until a round has worked.
    many: Cell<bool>,
}

/// The thread that exchanges both names.
struct Swapper {
    stop: Arc<AtomicBool>,
    swaps: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Swapper {
    fn start(top: &Path) -> Swapper {
        let (stop, swaps) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (names, stopped, count) = ([top.join("d"), top.join("l")], stop.clone(), swaps.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                renameat_with(CWD, &names[0], CWD, &names[1], RenameFlags::EXCHANGE).unwrap();
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Swapper { stop, swaps, thread: Some(thread) }
    }

    fn stop(&mut self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
        self.swaps.load(Ordering::Relaxed)
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Race {
    fn begin() -> Race {
        let site = Site::with(DaemonConfig::default().line("[limits]\nconfine = 'off'").keeping());
        let seconds: u64 = random::variable("SWAPS_SECONDS").unwrap_or(1);
        let (top, outside) = (site.root().join("top"), site.server.make_dir("outside"));
        for n in 0..STANDING {
            files::make(top.join(name(n)), n as u64, 500);
            files::write(outside.join(format!("f{n:05}")), CANARY);
            files::set_mtime(outside.join(format!("f{n:05}")), 1_000_000_000, 7);
            setxattr(outside.join(format!("f{n:05}")), "user.canary", CANARY.as_bytes(), XattrFlags::empty()).unwrap();
        }
        files::write(outside.join("sub/canary"), CANARY);
        fs::create_dir(top.join("d/sub")).unwrap();
        files::link(&outside, top.join("l"));
        let before = Tree::of(&outside);
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        for dir in [&outside, &outside.join("sub")] {
            // A process that another test starts meanwhile has a copy of what was opened here
            // until it begins, and closes it late. Whoever comes later opens first.
            let but_closes = WatchFlags::ALL_EVENTS.difference(WatchFlags::CLOSE);
            inotify::add_watch(&watch, dir, but_closes).unwrap();
        }
        let swapper = Swapper::start(&top);
        let until = Instant::now() + Duration::from_secs(seconds);
        let many = Cell::new(seconds >= 10);
        Race { site, outside, before, watch, swapper, until, count: 100, many }
    }

    /// Makes the files that a client sends, with names, a content and a time of their own each
    /// round.
    fn make_source(&self, names: &str, round: u64, len: usize) {
        let source = self.site.client.path("src");
        if source.exists() {
            fs::remove_dir_all(&source).unwrap();
        }
        for n in 0..if self.many.get() { 10_000 } else { self.count } {
            let file = source.join(format!("d/{names}{n:05}"));
            files::make(&file, round << 20 | n as u64, len);
            files::set_mtime(&file, 1_500_000_000 + round as i64, 0);
        }
    }

    /// Runs the client again and again, until the time is over, there were some rounds, and `done`
    /// says that one has worked; then judges.
    fn run(mut self, act: impl Fn(&Race, u64) -> Outcome, done: impl Fn(&Outcome) -> bool) {
        let (mut round, mut worked) = (0, 0);
        let deadline = self.until + PATIENCE;
        while Instant::now() < self.until || worked == 0 || round < ROUNDS_MIN {
            let outcome = act(&self, round);
            assert_ne!(outcome.code, 2, "{outcome}");
            assert!(!outcome.stdout_text().contains("canary"), "a name from outside: {outcome}");
            worked += u64::from(done(&outcome));
            round += 1;
            self.many.set(self.many.get() && worked == 0);
            assert!(worked > 0 || Instant::now() < deadline, "no round of {round} has worked: {outcome}");
            self.assert_untouched(&outcome);
        }
        let swaps = self.swapper.stop();
        println!("{swaps} exchanges in {round} rounds, of which {worked} have worked");
        assert!(swaps > 100, "{swaps} exchanges make no race");
        tree::assert_same(&self.before, &Tree::of(&self.outside), "outside");
        let mut value = [0; 16];
        let len = rustix::fs::getxattr(self.outside.join("f00000"), "user.canary", &mut value[..]).unwrap();
        assert_eq!(&value[..len], CANARY.as_bytes());
    }

    /// Fails on any access outside that the kernel has told of.
    fn assert_untouched(&self, outcome: &Outcome) {
        let mut room = [MaybeUninit::uninit(); 4096];
        match inotify::Reader::new(&self.watch, &mut room).next() {
            Err(Errno::AGAIN) => {}
            Err(error) => panic!("inotify: {error}"),
            Ok(event) => panic!("an access outside: {:?} {:?}\n{outcome}", event.events(), event.file_name()),
        }
    }

    /// A push of everything into `top`, or into the directory whose name is exchanged.
    fn push(&self, round: u64, words: &[&str]) -> Outcome {
        let ways = [("src/d/", "top/d/"), ("src/", "top/"), ("src/d/", "top/d/sub/"), ("src/d", "top/")];
        let (from, to) = ways[round as usize % ways.len()];
        let line = [&["push", "--json", "--retry-for", "0"], words, &[from]].concat();
        self.site.client.run(line).arg(self.site.url(to)).finish()
    }
}

fn name(n: usize) -> String {
    format!("d/f{n:05}")
}

/// Whether the client has sent a file.
fn sent(outcome: &Outcome) -> bool {
    outcome.counts().0 > 0
}

const CANARY: &str = "CANARY";
/// Files of the same names in the directory and outside.
const STANDING: usize = 20;
/// The least number of rounds: half of them begin at the name that is exchanged, and half of those
/// find the link there, so that one without a guard is seen in 63 of 64 runs.
const ROUNDS_MIN: u64 = 12;
/// The longest wait for a round that works, beyond the time of the case.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn nothing_outside_is_touched_while_files_arrive() {
    let race = Race::begin();
    race.run(
        |race, round| {
            race.make_source(&format!("r{round}-"), round, 100);
            race.push(round, &[])
        },
        sent,
    );
}

#[test]
fn nothing_outside_is_touched_while_files_take_the_place_of_others() {
    let race = Race::begin();
    race.run(
        |race, round| {
            race.make_source("f", round, 100);
            race.push(round, &["--if-exists", "replace"])
        },
        sent,
    );
}

#[test]
fn nothing_outside_is_touched_while_files_in_chunks_come_and_fail() {
    let race = Race { count: 2, many: Cell::new(false), ..Race::begin() };
    race.run(
        |race, round| {
            race.make_source("f", round, 1500 << 10);
            race.push(round, &["--if-exists", "replace", "--chunk-size", "1MiB"])
        },
        sent,
    );
}

#[test]
fn nothing_outside_is_touched_while_modes_and_times_of_what_stands_are_fitted() {
    let race = Race { count: STANDING, many: Cell::new(false), ..Race::begin() };
    race.make_source("f", 0, 500);
    race.run(
        |race, round| {
            for n in 0..STANDING {
                let file = race.site.client.path("src").join(name(n));
                files::set_mode(&file, if round % 2 == 0 { 0o640 } else { 0o751 });
                files::set_mtime(&file, 1_600_000_000 + round as i64, 0);
            }
            race.push(round, &["--if-exists", "verify"])
        },
        |outcome| matches!(outcome.counts(), (committed, skipped, _) if committed + skipped > 0),
    );
}

#[test]
fn nothing_outside_is_touched_while_attributes_are_set() {
    let race = Race { count: STANDING, many: Cell::new(false), ..Race::begin() };
    race.make_source("f", 0, 500);
    race.run(
        |race, round| {
            for path in (0..STANDING).map(name).chain(["d".to_owned()]) {
                let path = race.site.client.path("src").join(path);
                setxattr(path, "user.round", round.to_string().as_bytes(), XattrFlags::empty()).unwrap();
            }
            race.push(round, &["--if-exists", "verify", "--preserve", "+xattrs"])
        },
        |outcome| matches!(outcome.counts(), (committed, skipped, _) if committed + skipped > 0),
    );
}

#[test]
fn nothing_outside_is_listed() {
    let list = |race: &Race, round: u64| {
        let path = ["top/", "top/d/", "top/d", "top/d/sub/"][round as usize % 4];
        race.site.client.run(["ls", "--json"]).arg(race.site.url(path)).finish()
    };
    Race::begin().run(list, |outcome| outcome.code == 0);
}

#[test]
fn nothing_outside_is_sent() {
    let pull = |race: &Race, round: u64| {
        let path = ["top/", "top/d/", "top/d/f00000", "top/d/sub/"][round as usize % 4];
        let got = race.site.client.path("got");
        let line = ["pull", "--json", "--retry-for", "0", "--preserve", "+xattrs"];
        let outcome = race.site.client.run(line).arg(race.site.url(path)).arg("got/").finish();
        if got.exists() {
            let is_canary = |node: &tree::Node| node.kind == tree::Kind::File(CANARY.into());
            assert!(!Tree::of(&got).0.values().any(is_canary), "content from outside: {outcome}");
            fs::remove_dir_all(&got).unwrap();
        }
        outcome
    };
    Race::begin().run(pull, sent);
}
