//! The promise of durability as the kernel sees it: the order of writes, syncs and renames, taken
//! from `strace`.
//!
//! For every final name: all writes and metadata of its temporary -> a sync that covers them -> the
//! rename -> a sync of the directory, and of the directory above each that was made -> only then
//! the word that it is committed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;

use crate::fixture::left::Left;
use crate::fixture::tree::Tree;
use crate::fixture::{ALL_RIGHTS, DaemonConfig, Host, engines, files};

/// A system call as `strace -f -y` prints it.
#[derive(Debug)]
struct Call {
    name: String,
    /// Arguments and result.
    text: String,
    /// The lines at which it begins and ends.
    begins: usize,
    ends: usize,
}

/// The system calls of one run of the program.
struct Trace(Vec<Call>);

impl Trace {
    /// Copies `from` to `to` beneath strace.
    fn of_copy(host: &Host, engine: &str, from: &str, to: &str) -> Trace {
        let log = host.path("trace");
        let strace = ["strace", "-f", "-y", "-s", "4096", "-e", CALLS, "-o", log.to_str().unwrap()];
        let run =
            host.run(["copy", "--json", "--engine", engine, "--chunk-size", "1MiB", "--memory", "64MiB", from, to]);
        run.beneath(strace).succeed();
        Trace::parse(&fs::read_to_string(log).expect("these tests need strace: apt-get install strace"))
    }

    fn parse(log: &str) -> Trace {
        let (mut calls, mut unfinished) = (Vec::new(), BTreeMap::new());
        for (at, line) in log.lines().enumerate() {
            let Some((pid, rest)) = line.split_once(char::is_whitespace) else { continue };
            let rest = rest.trim_start();
            if let Some(begun) = rest.strip_suffix("<unfinished ...>") {
                unfinished.insert(pid, (at, begun));
                continue;
            }
            let (begins, text) = match rest.strip_prefix("<... ").and_then(|rest| rest.split_once("resumed>")) {
                Some((_, end)) => {
                    let (begins, begun) = unfinished.remove(pid).expect("what is resumed was begun");
                    (begins, format!("{begun}{end}"))
                }
                None => (at, rest.to_owned()),
            };
            let Some((name, text)) = text.split_once('(') else { continue };
            calls.push(Call { name: name.to_owned(), text: text.to_owned(), begins, ends: at });
        }
        Trace(calls)
    }

    /// Calls of these names that succeeded and hold `text`.
    fn all<'a>(&'a self, names: &'a [&str], text: String) -> impl Iterator<Item = &'a Call> {
        self.0
            .iter()
            .filter(move |call| names.contains(&call.name.as_str()) && call.succeeded() && call.text.contains(&text))
    }

    /// Fails unless the file at `path`, or everything, was synced between two moments.
    #[track_caller]
    fn assert_synced(&self, path: &Path, after: usize, before: usize, what: &str) {
        let whole = self.all(&["syncfs"], String::new());
        let mut syncs = self.all(&["fsync", "fdatasync"], held(path)).chain(whole);
        let found = syncs.any(|sync| sync.begins > after && sync.ends < before);
        assert!(found, "{what}: no sync of {} between lines {after} and {before} of the trace", path.display());
    }
}

impl Call {
    fn succeeded(&self) -> bool {
        self.text.rsplit_once(" = ").is_some_and(|(_, result)| !result.starts_with(['-', '?']))
    }

    /// The number of bytes that a `write` or `pwrite64` wrote.
    fn result(&self) -> u64 {
        let result = self.text.rsplit_once(" = ").map_or("0", |(_, result)| result);
        result.split(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok()).unwrap_or(0)
    }
}

/// A descriptor of `path` as strace shows it.
fn held(path: &Path) -> String {
    format!("<{}>", path.display())
}

/// Checks the promise for every file beneath `top`, which the traced run made.
#[track_caller]
fn assert_promise(trace: &Trace, top: &Path, writes_are_seen: bool, context: &str) {
    let made: Vec<PathBuf> = trace.all(&["mkdirat", "mkdir"], String::new()).filter_map(made_directory).collect();
    assert!(made.contains(&top.to_owned()), "{context}: {} was made: {made:?}", top.display());
    for path in Tree::of(top).paths() {
        let path = if path.is_empty() { top.to_owned() } else { top.join(path) };
        if path.is_file() {
            assert_file(trace, top, &path, &made, writes_are_seen, &format!("{context}: {}", path.display()));
        }
    }
}

fn made_directory(call: &Call) -> Option<PathBuf> {
    let name = call.text.split('"').nth(1)?;
    let above = call.text.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map(|(path, _)| path);
    Some(Path::new(above.unwrap_or("/")).join(name))
}

#[track_caller]
fn assert_file(trace: &Trace, top: &Path, path: &Path, made: &[PathBuf], writes_are_seen: bool, what: &str) {
    let (dir, name) = (path.parent().unwrap(), path.file_name().unwrap().to_str().unwrap());
    let renames: Vec<_> = trace.all(RENAMES, format!("{}, \"{name}\"", held(dir))).collect();
    assert_eq!(renames.len(), 1, "{what}: one rename");
    let rename = renames[0];
    let temporary = dir.join(rename.text.split('"').nth(1).unwrap());
    let touches: Vec<_> = trace.all(TOUCHES, held(&temporary)).collect();
    let last =
        touches.iter().map(|call| call.ends).max().unwrap_or_else(|| panic!("{what}: nothing touched {temporary:?}"));
    if writes_are_seen {
        let written: u64 =
            touches.iter().filter(|call| WRITES.contains(&call.name.as_str())).map(|call| call.result()).sum();
        let len = fs::metadata(path).unwrap().len();
        assert!(written >= len, "{what}: {written} of {len} bytes were seen being written");
    }
    assert!(last < rename.begins, "{what}: touched after its rename");
    trace.assert_synced(&temporary, last, rename.begins, what);
    let told =
        format!("\\\"path\\\":\\\"{}\\\",\\\"status\\\":\\\"committed\\\"", path.strip_prefix(top).unwrap().display());
    let word = trace.all(&["write"], told).next();
    let word = word.unwrap_or_else(|| panic!("{what}: never said to be committed"));
    trace.assert_synced(dir, rename.ends, word.begins, what);
    for made in path.ancestors().filter(|dir| made.contains(&dir.to_path_buf())) {
        let mkdir =
            trace.all(&["mkdirat", "mkdir"], String::new()).find(|call| made_directory(call).as_deref() == Some(made));
        trace.assert_synced(made.parent().unwrap(), mkdir.unwrap().ends, word.begins, what);
    }
}

/// The watched calls.
const CALLS: &str = "trace=write,pwrite64,pwritev,pwritev2,writev,ftruncate,fallocate,fchmod,utimensat,fsync,fdatasync,syncfs,\
    rename,renameat,renameat2,linkat,unlinkat,mkdir,mkdirat";
const WRITES: &[&str] = &["write", "pwrite64", "pwritev", "pwritev2", "writev"];
/// The calls that change a file's content or metadata.
const TOUCHES: &[&str] =
    &["write", "pwrite64", "pwritev", "pwritev2", "writev", "ftruncate", "fallocate", "fchmod", "utimensat"];
const RENAMES: &[&str] = &["rename", "renameat", "renameat2", "linkat"];

/// Copies the files that `make` makes to a destination whose ancestors are missing, and checks the
/// promise.
fn check(make: impl Fn(&Path)) {
    for &engine in engines() {
        let host = Host::new();
        make(&host.path("from"));
        let trace = Trace::of_copy(&host, engine, "from/", "new/above/to/");
        // The ring's writes are no system calls of their own; its order is the machine's, which is
        // the same for both.
        assert_promise(&trace, &host.path("new/above/to"), engine == "threads", &format!("engine {engine}"));
        let (sent, stands) = (Tree::of(host.path("from")).beneath(), Tree::of(host.path("new/above/to")).beneath());
        crate::fixture::tree::assert_same(&sent, &stands, engine);
    }
}

#[test]
fn few_files_are_synced_before_and_after_their_rename() {
    check(|from| {
        files::make(from.join("large-1"), 1, (3 << 20) + 5);
        files::make(from.join("deep/er/large-2"), 2, 2 << 20);
        files::make(from.join("deep/small-1"), 3, 1000);
        files::make(from.join("deep/er/small-2"), 4, 0);
    });
}

#[test]
fn many_files_are_synced_before_and_after_their_renames() {
    check(|from| {
        for n in 0..60 {
            files::make(from.join(format!("dir-{}/small-{n}", n % 3)), n, 500 + n as usize);
        }
        files::make(from.join("dir-1/large"), 99, (1 << 20) + 1);
    });
}

#[test]
fn what_is_replaced_stands_until_the_new_one_is_durable() {
    for &engine in engines() {
        let host = Host::new();
        files::make(host.path("from/f"), 1, (2 << 20) + 3);
        files::make(host.path("to/f"), 2, 1 << 20);
        let trace = Trace::of_copy(&host, engine, "from/", "to/");
        assert_file(&trace, &host.path("to"), &host.path("to/f"), &[], engine == "threads", engine);
        let old = trace.all(TOUCHES, held(&host.path("to/f"))).count();
        assert_eq!(old, 0, "engine {engine}: nothing is written to a final name");
    }
}

#[test]
fn what_an_abandoned_partial_left_is_gone_for_good_before_its_journal_is() {
    let server = Host::new();
    let (root, log) = (server.make_dir("data"), server.path("trace"));
    let left = Left { tag: 1, principal: "key:nobody", path: "d/old", held: 3 };
    left.lay_aged(&root, 15 * 86_400);
    let config = DaemonConfig::default().root("data", &root, ALL_RIGHTS);
    let strace = ["strace", "-D", "-f", "-y", "-s", "4096", "-e", CALLS, "-o", log.to_str().unwrap()];
    let daemon = config.start_as(&server, |run| run.beneath(strace));
    daemon.wait_log("an abandoned partial was removed");
    daemon.signal(Signal::TERM);
    daemon.finish();
    let trace = Trace::parse(&fs::read_to_string(log).expect("these tests need strace: apt-get install strace"));
    let gone = |path: &Path| {
        let name = format!("\"{}\"", path.file_name().unwrap().to_str().unwrap());
        trace.all(&["unlinkat"], name).next().unwrap_or_else(|| panic!("{} is removed", path.display()))
    };
    let (temporary, journal) = (gone(&left.temporary(&root)), gone(&left.journal(&root)));
    trace.assert_synced(&root.join("d"), temporary.ends, journal.begins, "temporaries before the journal");
    trace.assert_synced(&root, journal.ends, usize::MAX, "the journal");
}
