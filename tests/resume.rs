//! The same command run again continues, whatever ended it, whichever command sends to the path,
//! with whatever options.
//!
//! A proxy holds the payload, so that part of a file is durable and the rest is not. Bytes that the
//! client was told to be durable must not be sent again. See `resume/scene.rs`.

pub(crate) mod scene;
mod shutdown;

use std::os::unix::fs::FileExt;

use rustix::process::Signal;

use crate::fixture::tree::{self, Tree};
use crate::fixture::{ALL_RIGHTS, DaemonConfig, Host, PROTECTIONS, Run, Site, files};
use crate::hostile::proxy::{Gate, Kind, Proxy, hold_after};
use crate::hostile::{Direction, daemon_addr, some_at_once};
use scene::{Death, LEN, Scene, last, printed, resumed, wait_durable};

const MIB: u64 = 1 << 20;

/// Both directions with each of these.
fn both<T: Copy>(cases: &[T]) -> Vec<(Direction, T)> {
    Direction::BOTH.into_iter().flat_map(|direction| cases.iter().map(move |case| (direction, *case))).collect()
}

#[test]
fn a_file_goes_on_after_the_death_of_either_end() {
    let ways: Vec<_> =
        PROTECTIONS.into_iter().flat_map(|protect| both(&Death::ALL.map(|death| (protect, death)))).collect();
    some_at_once(ways, |(direction, (protect, death))| {
        let context = format!("{direction:?}, {protect}, {death:?}");
        let mut scene = Scene::new(direction);
        files::make(scene.source(), 1, LEN);
        let command = |scene: &Scene| scene.run("f", "f").args(["--protect", protect]);
        let durable = scene.die(command(&scene), death);
        let outcome = command(&scene).finish();
        scene.assert_continued(&outcome, LEN as u64, durable, &context);
        scene.assert_same("f", "f", &context);
    });
}

#[test]
fn what_an_earlier_session_brought_is_verified_on_the_disk_too() {
    some_at_once(Direction::BOTH, |direction| {
        let context = format!("{direction:?}");
        let mut scene = Scene::new(direction);
        files::make(scene.source(), 1, LEN);
        let command = |scene: &Scene| scene.run("f", "f").args(["--verify", "disk"]);
        scene.die(command(&scene), Death::ClientKilled);
        let site = &scene.wired.site;
        let end = if direction == Direction::Push { site.root() } else { site.client.dir().to_owned() };
        let left = tree::leftovers(&end).into_iter().map(|name| end.join(name));
        let temp = left.filter(|path| path.is_file()).find(|path| path.parent() == Some(&end)).unwrap();
        // In place: the file is still the one that was written. Some of these chunks are held,
        // others are sent again.
        let file = std::fs::File::options().read(true).write(true).open(temp).unwrap();
        for chunk in 0..6 {
            let mut byte = [0];
            file.read_exact_at(&mut byte, chunk * MIB + 77).unwrap();
            file.write_all_at(&[byte[0] ^ 0x10], chunk * MIB + 77).unwrap();
        }
        file.sync_all().unwrap();
        drop(file);
        let outcome = command(&scene).fail(6);
        assert!(outcome.stderr.contains("than an earlier session wrote"), "{context}: {outcome}");
        assert!(!end.join("f").exists(), "{context}: {outcome}");
        let outcome = command(&scene).finish();
        scene.assert_anew(&outcome, LEN as u64, &context);
        scene.assert_same("f", "f", &context);
    });
}

#[test]
fn an_interrupted_run_prints_the_command_that_continues_it() {
    let deaths = [Death::ClientInterrupted, Death::ClientTerminated, Death::DaemonKilled];
    some_at_once(both(&deaths), |(direction, death)| {
        let context = format!("{direction:?}, {death:?}");
        // A name that a shell would take apart.
        let name = "it's $HOME; a `name`";
        let mut scene = Scene::new(direction);
        files::make(scene.source().with_file_name(name), 1, LEN);
        let (running, durable) = scene.start(scene.run(name, name), 0);
        let ended = scene.end(running, death);
        let outcome = printed(&scene.wired.site.client, &ended).finish();
        scene.assert_continued(&outcome, LEN as u64, durable, &context);
        // A daemon that was killed did not tell the bytes that it holds.
        if death != Death::DaemonKilled {
            let held = ended.summary()["bytes_held"].as_u64().unwrap();
            assert_eq!(held, resumed(&outcome), "{context}: {ended}");
        }
        scene.assert_same(name, name, &context);
    });
}

#[test]
fn a_directory_without_a_slash_goes_on_in_the_same_place_by_the_command_that_is_printed() {
    some_at_once(both(&[Death::ClientInterrupted, Death::DaemonKilled]), |(direction, death)| {
        let context = format!("{direction:?}, {death:?}");
        let mut scene = Scene::new(direction);
        let top = scene.source();
        for n in 0..3 {
            files::make(top.join(format!("sub/large-{n}")), 100 + n, 12 << 20);
        }
        let (running, durable) = scene.start(scene.run("f", "new/deep"), 0);
        let ended = scene.end(running, death);
        let outcome = printed(&scene.wired.site.client, &ended).finish();
        let skipped: u64 = outcome.events_of("file").iter().filter(|file| file["status"] == "skipped").map(bytes).sum();
        assert!(resumed(&outcome) > 0, "{context}: {outcome}");
        assert!(resumed(&outcome) + skipped >= durable, "{context}: of {durable}: {outcome}");
        assert_eq!(scene.moved(&outcome), 36 * MIB - resumed(&outcome) - skipped, "{context}: {outcome}");
        scene.assert_same("f", "new/deep/f", &context);
        scene.assert_only("new", &["", "deep", "deep/f", "deep/f/sub"], &context);
        let again = printed(&scene.wired.site.client, &ended).succeed();
        assert_eq!((scene.moved(&again), resumed(&again)), (0, 0), "{context}: {again}");
        scene.assert_only("new", &["", "deep", "deep/f", "deep/f/sub"], &context);
    });
}

#[test]
fn a_tree_goes_on_after_the_death_of_either_end() {
    some_at_once(both(&Death::ALL), |(direction, death)| {
        let context = format!("{direction:?}, {death:?}");
        let mut scene = Scene::new(direction);
        let top = scene.source();
        for n in 0..40 {
            files::make(top.join(format!("small/{n}")), n, 1000 + n as usize);
        }
        let small = (0..40).map(|n| 1000 + n).sum::<u64>();
        for n in 0..3 {
            files::make(top.join(format!("large-{n}")), 100 + n, 12 << 20);
        }
        files::link("large-0", top.join("link"));
        std::fs::create_dir_all(top.join("empty/below")).unwrap();
        files::set_mtime(&top, 1_000_000_001, 7);
        let (running, durable) = scene.start(scene.run("f/", "f/"), small);
        scene.end(running, death);
        let outcome = scene.run("f/", "f/").finish();
        assert_eq!(outcome.code, 0, "{context}: {outcome}");
        // Committed files are skipped, partials are continued.
        let skipped: u64 = outcome.events_of("file").iter().filter(|file| file["status"] == "skipped").map(bytes).sum();
        let resumed = resumed(&outcome);
        assert!(resumed > 0 && resumed + skipped >= durable, "{context}: of {durable}, {resumed}: {outcome}");
        // Small files that were not committed come in a bundle, whose table is sent besides.
        let (moved, wanted) = (scene.moved(&outcome), small + 36 * MIB - resumed - skipped);
        assert!((wanted..wanted + TABLE_BYTES_MAX).contains(&moved), "{context}: {moved} for {wanted}: {outcome}");
        scene.assert_same("f", "f", &context);
    });
}

/// More than the table of a bundle of forty files takes.
const TABLE_BYTES_MAX: u64 = 4096;

fn bytes(file: &serde_json::Value) -> u64 {
    file["bytes"].as_u64().unwrap()
}

#[test]
fn of_a_source_that_changed_only_what_differs_is_sent() {
    some_at_once(both(&[()]), |(direction, ())| {
        let context = format!("{direction:?}");
        let mut scene = Scene::new(direction);
        files::make(scene.source(), 1, LEN);
        let durable = scene.die(scene.run("f", "f"), Death::ClientKilled);
        // A byte of the first chunk, which was among the first to arrive, and one of the last,
        // which was not.
        let source = std::fs::File::options().write(true).open(scene.source()).unwrap();
        source.write_all_at(b"!", 5).unwrap();
        source.write_all_at(b"!", LEN as u64 - 1).unwrap();
        drop(source);
        let outcome = scene.run("f", "f").finish();
        assert_eq!(outcome.code, 0, "{context}: {outcome}");
        let (resumed, moved) = (resumed(&outcome), scene.moved(&outcome));
        assert!(resumed > 0 && resumed + MIB >= durable, "{context}: of {durable}, {resumed}: {outcome}");
        assert_eq!(moved, LEN as u64 - resumed, "{context}: {outcome}");
        scene.assert_same("f", "f", &context);
    });
}

#[test]
fn a_source_of_another_size_is_sent_anew() {
    some_at_once(both(&[LEN - 1, LEN + 1]), |(direction, len)| {
        let context = format!("{direction:?}, {len}");
        let mut scene = Scene::new(direction);
        files::make(scene.source(), 1, LEN);
        scene.die(scene.run("f", "f"), Death::ClientKilled);
        files::make(scene.source(), 1, len);
        let outcome = scene.run("f", "f").finish();
        scene.assert_anew(&outcome, len as u64, &context);
        scene.assert_same("f", "f", &context);
    });
}

/// Options of the first run and of the one that continues it.
type Options = (&'static [&'static str], &'static [&'static str]);

#[test]
fn a_partial_goes_on_with_other_options_than_it_began_with() {
    let options: [Options; 6] = [
        (&["--lanes", "2"], &["--lanes", "1"]),
        (&["--lanes", "2"], &["--lanes", "5"]),
        (&["--protect", "safe"], &["--protect", "private"]),
        (&["--protect", "private"], &["--protect", "safe"]),
        (&["--chunk-size", "1MiB", "--memory", "16MiB"], &["--chunk-size", "4MiB", "--memory", "32MiB"]),
        (&["--chunk-size", "2MiB", "--memory", "32MiB"], &["--chunk-size", "1MiB", "--memory", "8MiB"]),
    ];
    some_at_once(both(&options), |(direction, (first, second))| {
        let context = format!("{direction:?}, {first:?}, {second:?}");
        let mut scene = Scene::new(direction);
        files::make(scene.source(), 1, LEN);
        let durable = scene.die(scene.run("f", "f").args(first), Death::ClientKilled);
        let outcome = scene.run("f", "f").args(second).finish();
        scene.assert_continued(&outcome, LEN as u64, durable, &context);
        scene.assert_same("f", "f", &context);
    });
}

#[test]
fn a_partial_of_chunks_that_memory_does_not_hold_is_sent_anew() {
    some_at_once(both(&[()]), |(direction, ())| {
        let context = format!("{direction:?}");
        let mut scene = Scene::held_after(direction, 18 << 20);
        files::make(scene.source(), 1, 2 * LEN);
        scene.die(scene.run("f", "f").args(["--chunk-size", "8MiB", "--memory", "64MiB"]), Death::ClientKilled);
        let outcome = scene.run("f", "f").args(["--memory", "4MiB"]).finish();
        scene.assert_anew(&outcome, 2 * LEN as u64, &context);
        scene.assert_same("f", "f", &context);
    });
}

#[test]
fn a_partial_belongs_to_the_path_and_not_to_the_command() {
    // A directory's content and the one file in it, in both orders.
    let commands = [("f/", "d/"), ("f/one", "d/one"), ("f/one", "d/")];
    let orders: Vec<_> =
        commands.iter().flat_map(|a| commands.iter().map(move |b| (*a, *b))).filter(|(a, b)| a != b).collect();
    some_at_once(both(&orders), |(direction, (first, second))| {
        let context = format!("{direction:?}, {first:?}, {second:?}");
        let mut scene = Scene::new(direction);
        files::make(scene.source().join("one"), 1, LEN);
        let durable = scene.die(scene.run(first.0, first.1), Death::ClientKilled);
        let outcome = scene.run(second.0, second.1).finish();
        scene.assert_continued(&outcome, LEN as u64, durable, &context);
        scene.assert_same("f/one", "d/one", &context);
    });
}

#[test]
fn a_path_that_a_living_session_writes_is_refused_and_the_holder_named() {
    some_at_once(both(&PROTECTIONS), |(direction, protect)| {
        let context = format!("{direction:?}, {protect}");
        let scene = Scene::new(direction);
        files::make(scene.source(), 1, LEN);
        let (running, _) = scene.start(scene.run("f", "f").args(["--protect", protect]), 0);
        let refused = scene.run("f", "f").args(["--protect", protect]).fail(5);
        let fault = &refused.events_of("fault")[0];
        assert_eq!(fault["code"], "busy", "{context}: {refused}");
        let holder = match direction {
            Direction::Push => "client 'tester'".to_owned(),
            Direction::Pull => format!("(process {})", running.pid().as_raw_nonzero()),
        };
        let message = fault["message"].as_str().unwrap();
        assert!(message.contains(&holder) && message.contains(" s"), "{context}: {refused}");
        scene.gate.open();
        let outcome = running.fail(0);
        assert_eq!((resumed(&outcome), scene.moved(&outcome)), (0, LEN as u64), "{context}: {outcome}");
        scene.assert_same("f", "f", &context);
    });
}

/// A daemon with two clients, the first of whom reaches it through a gate.
struct Strangers {
    site: Site,
    other: Host,
    proxy: Proxy,
    gate: Gate,
}

impl Strangers {
    fn new() -> Strangers {
        let other = Host::new();
        let site = Site::with(DaemonConfig::default().client("other", other.key(), &[("data", ALL_RIGHTS)]));
        let gate = Gate::default();
        let holding = gate.clone();
        let proxy = Proxy::start(daemon_addr(&site), move |kind, _| {
            (kind != Kind::Control).then(|| hold_after(6 << 20, holding.clone()))
        });
        Strangers { site, other, proxy, gate }
    }

    fn push(&self, host: &Host, addr: impl std::fmt::Display) -> Run {
        let run = host.run(["push", "--json", "--retry-for", "0", "--peer-key", self.site.daemon.key()]);
        let run = run.args(["--lanes", "2", "--chunk-size", "1MiB", "--memory", "16MiB", "--if-exists", "replace"]);
        run.args(["f".to_owned(), format!("lh://{addr}/data/f")])
    }
}

#[test]
fn nobody_continues_what_another_key_left() {
    let strangers = Strangers::new();
    let Strangers { site, other, proxy, gate } = &strangers;
    for host in [&site.client, other] {
        files::make(host.path("f"), 1, LEN);
        files::set_mtime(host.path("f"), 1_000_000_000, 0);
    }
    let running = strangers.push(&site.client, proxy.addr()).start();
    gate.wait_reached();
    let durable = wait_durable(&running, 0);
    running.signal(Signal::KILL);
    running.fail(137);
    gate.open();
    site.daemon.wait_log("ended: ");
    let outcome = strangers.push(other, site.daemon.addr()).succeed();
    assert_eq!((resumed(&outcome), last(&outcome, "bytes_sent")), (0, LEN as u64), "{outcome}");
    assert!(!tree::leftovers(site.root()).is_empty(), "what the first left is still there");
    // It is still there for its owner.
    let outcome = strangers.push(&site.client, site.daemon.addr()).succeed();
    let resumed = resumed(&outcome);
    assert!(resumed >= durable, "{durable}, {outcome}");
    assert_eq!(last(&outcome, "bytes_sent"), LEN as u64 - resumed, "{outcome}");
    tree::assert_same(&Tree::of(site.client.path("f")), &Tree::of(site.root().join("f")), &outcome);
    assert_eq!(tree::leftovers(site.root()), [""; 0], "{outcome}");
}

/// The length of a copied file: long enough for a reader that takes 40 ms for each MiB to be found
/// in the middle.
const COPIED: usize = (160 << 20) + 17;

/// Copies `src` to `dst` within one process, one read at a time, each of which takes its time.
fn slow_copy(host: &Host, from: &str) -> Run {
    let slow = ["-e", "trace=pread64,preadv,preadv2", "-e", "inject=pread64,preadv,preadv2:delay_enter=40000"];
    let strace = ["strace", "-D", "-f", "-qq", "-o", "/dev/null"].into_iter().chain(slow);
    copy(host, from).args(["--depth", "1", "--engine", "threads"]).beneath(strace)
}

fn copy(host: &Host, from: &str) -> Run {
    host.run(["copy", "--json", "--chunk-size", "1MiB", "--memory", "16MiB", from, "dst"])
}

#[test]
fn a_copy_within_one_process_goes_on_after_its_death() {
    let ways = [("src/", "dst"), ("src", "dst/src")];
    for (signal, code, (from, to)) in
        [(Signal::KILL, 137, ways[0]), (Signal::INT, 130, ways[1]), (Signal::TERM, 143, ways[0])]
    {
        let host = Host::new();
        files::make(host.path("src/large"), 1, COPIED);
        // Its name comes first, so that it is there long before the large one.
        files::make(host.path("src/a-small"), 2, 1000);
        let running = slow_copy(&host, from).start();
        // The small file travels in a bundle whose frame counts as sent: it must not travel twice.
        running.wait_event(|event| (event["type"] == "file" && event["bytes"] == 1000).then_some(()));
        let durable = wait_durable(&running, 1000);
        running.signal(signal);
        let ended = running.fail(code);
        assert!(!host.path(to).join("large").exists(), "{ended}");
        let again = if code == 137 { copy(&host, from) } else { printed(&host, &ended) };
        let outcome = again.succeed();
        let resumed = resumed(&outcome);
        assert!(resumed > 0 && resumed + 1000 >= durable, "{code}: of {durable}, {resumed}: {outcome}");
        let moved = last(&outcome, "bytes_sent").max(last(&outcome, "bytes_received"));
        let total = COPIED as u64 + 1000;
        assert!(moved <= total - resumed && moved >= COPIED as u64 - resumed, "{code}: {moved}, {resumed}: {outcome}");
        tree::assert_same(&Tree::of(host.path("src")), &Tree::of(host.path(to)), &outcome);
        assert_eq!(tree::leftovers(host.dir()), [""; 0], "{outcome}");
    }
}
