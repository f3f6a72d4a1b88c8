//! The walk against the kernel's own confined one: `openat2` with `RESOLVE_BENEATH`,
//! `RESOLVE_NO_SYMLINKS` and `RESOLVE_NO_MAGICLINKS`, which the walk does without as older kernels
//! do. In made-up trees both find the same inodes by the same paths, and both find nothing by the
//! same others, for reasons of the same kind.

use std::os::unix::fs::symlink;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use rustix::fs::{FileType, ResolveFlags, mkdirat, mknodat, openat2, symlinkat};

use super::*;

/// A thing that is put into a tree under a path, as far as that can be.
#[derive(Clone, Debug)]
enum Made {
    Dir,
    File,
    Fifo,
    LinkTo(&'static str),
}

/// The result of either walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// Device and inode.
    Place((u64, u64)),
    Missing,
    NoDirectory,
    /// A link stands in the way, or the path leads out of the tree.
    Escape,
}

fn confined(root: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let path = if path.is_empty() { b"." } else { path };
    openat2(root, path, flags | OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
}

fn of_kernel(opened: Result<OwnedFd, Errno>) -> Found {
    match opened {
        Ok(fd) => Found::Place(crate::stat::place_of(&fstat(fd).expect("stat"))),
        Err(Errno::NOENT) => Found::Missing,
        Err(Errno::NOTDIR) => Found::NoDirectory,
        Err(Errno::LOOP | Errno::XDEV) => Found::Escape,
        Err(error) => panic!("openat2: {error}"),
    }
}

fn of_walk(walked: Result<(u64, u64), DiskError>) -> Found {
    match walked {
        Ok(place) => Found::Place(place),
        Err(error) => match error.kind() {
            ErrorKind::NotFound => Found::Missing,
            ErrorKind::NotADirectory => Found::NoDirectory,
            ErrorKind::Escape => Found::Escape,
            _ => panic!("{error}"),
        },
    }
}

/// The directory at a path, by the walk.
fn walk_dir(walk: &Walk, path: &RelPath) -> Found {
    of_walk(walk.dir(path).map(|dir| dir.place()))
}

/// The name at a path, which is not followed, by the walk.
fn walk_name(walk: &Walk, path: &RelPath) -> Found {
    of_walk(walk.parent(path).and_then(|(dir, name)| {
        let stat = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW);
        Ok(crate::stat::place_of(&stat.map_err(|error| DiskError::call("examine", path, error))?))
    }))
}

/// Puts things into a tree, never beyond it.
fn make(top: &OwnedFd, nodes: &[(Vec<&str>, Made)]) {
    for (path, made) in nodes {
        let Some((name, above)) = path.split_last() else { continue };
        let Ok(dir) = confined(top, above.join("/").as_bytes(), OFlags::DIRECTORY) else { continue };
        // Another thing may have the name.
        let _ = match made {
            Made::Dir => mkdirat(&dir, *name, Mode::RWXU),
            Made::File => mknodat(&dir, *name, FileType::RegularFile, Mode::RWXU, 0),
            Made::Fifo => mknodat(&dir, *name, FileType::Fifo, Mode::RWXU, 0),
            Made::LinkTo(target) => symlinkat(*target, &dir, *name),
        };
    }
}

/// Names of few letters, so that paths often hit something.
fn names() -> impl Strategy<Value = &'static str> {
    select(vec!["a", "b", "c", "d", "LONGHA~1", "\u{e9}"])
}

fn nodes() -> impl Strategy<Value = Vec<(Vec<&'static str>, Made)>> {
    let targets = vec![
        "..",
        "../..",
        "../../..",
        ".",
        "/",
        "/etc",
        "/proc/self/root",
        "/proc/self/cwd",
        "/proc/self/fd/0",
        "/dev/fd",
        "a",
        "a/b",
        "../a",
        "./b",
        "../../b/c",
        "missing",
        "",
    ];
    let links = select(targets.into_iter().filter(|target| !target.is_empty()).collect::<Vec<_>>());
    let made = prop_oneof![
        4 => Just(Made::Dir),
        2 => Just(Made::File),
        1 => Just(Made::Fifo),
        3 => links.prop_map(Made::LinkTo),
    ];
    vec((vec(names(), 1..4), made), 0..24)
}

/// Paths as a peer could say them: also with what no path of ours has.
fn paths() -> impl Strategy<Value = Vec<String>> {
    let part = prop_oneof![12 => names(), 1 => Just(".."), 1 => Just("."), 1 => Just(""), 1 => Just("etc")];
    let path = (vec(part, 0..5), prop_oneof![8 => Just(""), 1 => Just("/")]);
    vec(path.prop_map(|(parts, front)| format!("{front}{}", parts.join("/"))), 48)
}

/// Compares both walks at each path. Returns how many paths found something.
fn agree(top: &Path, paths: &[String]) -> usize {
    let root = Dir::open_named(top).expect("root");
    let fresh = Walk::new(Arc::new(Dir::open_named(top).expect("root")), 0);
    let cached = Walk::new(Arc::new(Dir::open_named(top).expect("root")), 8);
    let mut found = 0;
    for said in paths {
        let Ok(path) = RelPath::new(said.as_str()) else {
            let is_odd = |part: &str| matches!(part, "" | "." | ".." | "LONGHA~1");
            assert!(said.split('/').any(is_odd), "{said:?} is refused by its form");
            continue;
        };
        let dir = of_kernel(confined(&root, path.as_bytes(), OFlags::DIRECTORY));
        found += usize::from(matches!(dir, Found::Place(_)));
        for walk in [&fresh, &cached] {
            assert_eq!(walk_dir(walk, &path), dir, "the directory {said:?}");
            if !path.is_root() {
                let name = of_kernel(confined(&root, path.as_bytes(), OFlags::NOFOLLOW));
                assert_eq!(walk_name(walk, &path), name, "the name {said:?}");
            }
        }
    }
    found
}

fn has_openat2(top: &Path) -> bool {
    let root = Dir::open_named(top).expect("root");
    let answer = confined(&root, b"", OFlags::DIRECTORY);
    if let Err(error) = &answer {
        eprintln!("SKIPPED: openat2: {error}");
    }
    answer.is_ok()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn the_walk_and_the_kernels_own_confined_one_find_the_same(nodes in nodes(), paths in paths()) {
        let top = tempfile::tempdir().expect("tempdir");
        if has_openat2(top.path()) {
            make(&Dir::open_named(top.path()).expect("root").readable().expect("readable"), &nodes);
            agree(top.path(), &paths);
        }
    }
}

#[test]
fn every_way_out_of_a_tree_is_closed_in_both() {
    let outside = tempfile::tempdir().expect("tempdir");
    let top = tempfile::tempdir().expect("tempdir");
    if !has_openat2(top.path()) {
        return;
    }
    std::fs::create_dir_all(top.path().join("a/b")).expect("dirs");
    std::fs::create_dir(outside.path().join("b")).expect("dir");
    for (target, name) in [(outside.path(), "abs"), (Path::new(".."), "up"), (Path::new("/proc/self/cwd"), "magic")] {
        symlink(target, top.path().join("a").join(name)).expect("link");
    }
    let paths = ["", "a", "a/b", "a/abs", "a/abs/b", "a/up/a", "a/magic", "a/magic/x", "a/x/y"].map(str::to_owned);
    assert_eq!(agree(top.path(), &paths), 3, "the root and two directories");
}
