//! Random trees, of which a plan takes some names; before they go, and in the very moment at which
//! they do, others change the tree.
//!
//! In: seeds. Out: the first promise that is broken: nothing goes but what the plan lists, as it
//! was when it was listed; everything else is where it was, byte for byte; and what had not changed
//! is gone. Must not know how names are moved.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Mutex;

use longhaul_core::Mtime;

use super::*;
use crate::kernel::{Call, InodeId, Interposer, Passage};

/// Trees that are played.
const TREES: u64 = 300;
/// Trees among which one shows that a mover which does not compare breaks a promise.
const CARELESS_TREES: u64 = 20;

/// Numbers that follow from a seed (splitmix64).
struct TreeRandom(u64);

impl TreeRandom {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}

/// A name that stands somewhere, and its bytes or the target of its link.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SeenName {
    facts: NameFacts,
    content: Vec<u8>,
}

type SeenNames = BTreeMap<String, SeenName>;

impl SeenName {
    fn at(path: &Path) -> Option<SeenName> {
        let found = fs::symlink_metadata(path).ok()?;
        let (kind, content) = match found.file_type() {
            of if of.is_file() => (NameKind::File, fs::read(path).expect("readable")),
            of if of.is_symlink() => {
                (NameKind::Link, fs::read_link(path).expect("a link").into_os_string().into_encoded_bytes())
            }
            of if of.is_dir() => (NameKind::Dir, Vec::new()),
            _ => (NameKind::Special, Vec::new()),
        };
        let mtime = Mtime { secs: found.mtime(), nanos: found.mtime_nsec() as u32 };
        let facts = NameFacts { kind, dev: found.dev(), ino: found.ino(), bytes: found.len(), mtime };
        Some(SeenName { facts, content })
    }

    /// Whether the other one is this one, where it was.
    fn is(&self, other: &SeenName) -> bool {
        self.facts.is_still(&other.facts) && self.content == other.content
    }
}

/// All names beneath a directory, but for longhaul's own.
fn seen(top: &Path) -> SeenNames {
    let mut names = SeenNames::new();
    let mut left = vec![String::new()];
    while let Some(dir) = left.pop() {
        for name in fs::read_dir(top.join(&dir)).into_iter().flatten() {
            let name = name.expect("listed").file_name().into_string().expect("plain");
            if name.starts_with(".longhaul") {
                continue;
            }
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            let found = SeenName::at(&top.join(&path)).expect("it stands");
            if found.facts.kind == NameKind::Dir {
                left.push(path.clone());
            }
            names.insert(path, found);
        }
    }
    names
}

/// Puts another file or link in the place of one, which is the same to whoever looks at its bytes
/// and its time alone.
fn replace(path: &Path) {
    let beside = path.with_extension("beside");
    if path.is_symlink() {
        symlink(fs::read_link(path).expect("a link"), &beside).expect("a link");
    } else {
        let time = fs::metadata(path).expect("it stands").modified().expect("a time");
        fs::copy(path, &beside).expect("copied");
        fs::File::options().write(true).open(&beside).expect("opened").set_modified(time).expect("a time");
    }
    fs::rename(&beside, path).expect("renamed");
}

/// Somebody who changes a name in the moment in which it is moved. Syncs do nothing here.
#[derive(Debug, Default)]
struct Meddler {
    /// The name that goes next, if it is to be changed then.
    next: Mutex<Option<PathBuf>>,
    /// The names that were changed, as they were then.
    changed: Mutex<Vec<(PathBuf, SeenName)>>,
}

impl Meddler {
    fn note(&self, path: PathBuf) {
        let found = SeenName::at(&path).expect("it was made");
        self.changed.lock().expect("no panic").push((path, found));
    }
}

impl Interposer for Meddler {
    fn begin(&self, call: &Call<'_>) -> Passage {
        let next = || self.next.lock().expect("no panic").take();
        match call {
            Call::Sync { .. } | Call::SyncData { .. } => return Passage::Answered(Ok(())),
            Call::Rename { .. } => {
                if let Some(path) = next() {
                    replace(&path);
                    self.note(path);
                }
            }
            Call::RemoveDir { .. } => {
                if let Some(path) = next() {
                    let late = path.join("late");
                    fs::write(&late, "late").expect("written");
                    self.note(late);
                }
            }
            _ => {}
        }
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

/// Whether a mover compares.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Care {
    /// It moves what still is what was planned.
    AsPlanned,
    /// It moves what has the names of the plan: the bug that the promises are for.
    AsFound,
}

/// How often each thing happened.
type Ends = BTreeMap<String, u64>;

struct RemovalWorld {
    random: TreeRandom,
    top: tempfile::TempDir,
    tree: Arc<Tree>,
    meddler: Arc<Meddler>,
    /// Names in the order in which they go.
    plan: Vec<(String, NameFacts)>,
    /// Numbers of names that nothing else has.
    fresh: u32,
    ends: Ends,
}

impl RemovalWorld {
    fn new(seed: u64) -> RemovalWorld {
        let top = tempfile::tempdir().expect("scratch");
        let meddler = Arc::new(Meddler::default());
        let tree = Tree::open(top.path()).expect("a tree").behind(&Kernel::behind(meddler.clone()));
        let random = TreeRandom(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let mut world = RemovalWorld { random, top, tree, meddler, plan: Vec::new(), fresh: 0, ends: Ends::new() };
        (0..16).for_each(|_| world.plant());
        world.make_plan();
        world
    }

    fn fresh(&mut self) -> String {
        self.fresh += 1;
        format!("n{}", self.fresh)
    }

    /// A directory of the tree, or its top.
    fn some_dir(&mut self) -> PathBuf {
        let names = seen(self.top.path());
        let dirs = names.iter().filter(|(_, seen)| seen.facts.kind == NameKind::Dir);
        let dirs: Vec<_> = dirs.map(|(name, _)| self.top.path().join(name)).collect();
        let at = self.random.below(dirs.len() + 1);
        dirs.get(at).cloned().unwrap_or_else(|| self.top.path().to_owned())
    }

    fn plant(&mut self) {
        let (dir, name) = (self.some_dir(), self.fresh());
        let path = dir.join(name);
        match self.random.below(6) {
            0 | 1 => fs::create_dir(path).expect("a directory"),
            2 => symlink("nowhere", path).expect("a link"),
            bytes => fs::write(path, vec![b'x'; bytes * 7]).expect("a file"),
        }
    }

    /// Lists about half of the names, what lies in a directory before the directory.
    fn make_plan(&mut self) {
        for name in seen(self.top.path()).into_keys().rev() {
            if self.random.below(2) == 0 {
                let facts = facts(&self.tree, &name);
                self.plan.push((name, facts));
            }
        }
    }

    /// Somebody changes the tree.
    fn change(&mut self) {
        let names: Vec<_> = seen(self.top.path()).into_iter().collect();
        let Some((name, found)) = names.get(self.random.below(names.len().max(1))) else { return };
        let (at, is_dir) = (self.top.path().join(name), found.facts.kind == NameKind::Dir);
        let remove = || if is_dir { fs::remove_dir_all(&at) } else { fs::remove_file(&at) }.expect("removed");
        let file = || fs::File::options().append(true).open(&at).expect("opened");
        let aside = self.fresh();
        let aside = self.top.path().join(aside);
        match self.random.below(9) {
            0 if found.facts.kind == NameKind::File => file().write_all(b"more").expect("written"),
            1 if found.facts.kind == NameKind::File => {
                file().set_modified(std::time::UNIX_EPOCH).expect("a time");
            }
            2 if !is_dir => replace(&at),
            3 => remove(),
            4 => {
                remove();
                fs::create_dir(&at).expect("a directory");
            }
            5 => {
                remove();
                symlink("elsewhere", &at).expect("a link");
            }
            6 => {
                fs::rename(&at, &aside).expect("renamed");
                symlink(&aside, &at).expect("a link");
            }
            7 => fs::rename(&at, &aside).expect("renamed"),
            _ => self.plant(),
        }
    }

    /// Moves the names of the plan from one to another, in a run of its own.
    fn run(&mut self, names: std::ops::Range<usize>, care: Care) -> Result<(), String> {
        let (kept_in, mut now) = (kept(self.top.path(), ""), seen(self.top.path()));
        let kept_before = seen(&kept_in);
        let mut grace = Grace::open(&self.tree, "x").expect("a grace directory");
        for (name, planned) in self.plan[names].iter().cloned() {
            if self.random.below(5) == 0 {
                *self.meddler.next.lock().expect("no panic") = Some(self.top.path().join(&name));
            }
            let found = || self.tree.facts(&path(&*name)).ok().flatten();
            let facts = if care == Care::AsFound { found().unwrap_or(planned) } else { planned };
            let end = grace.withdraw(&path(&*name), &facts).map_err(|error| error.to_string())?;
            *self.ends.entry(format!("{end:?}")).or_default() += 1;
            self.meddler.next.lock().expect("no panic").take();
            for (path, changed) in self.meddler.changed.lock().expect("no panic").drain(..) {
                let name = path.strip_prefix(self.top.path()).expect("beneath it").to_str().expect("plain");
                now.insert(name.to_owned(), changed);
                *self.ends.entry("meddled".to_owned()).or_default() += 1;
            }
            let had = now.get(&name).is_some_and(|seen| planned.is_still(&seen.facts));
            if had && planned.kind != NameKind::Dir && end != Withdrawn::Moved {
                return Err(format!("{name} had not changed, and its end is {end:?}"));
            }
        }
        drop(grace);
        self.check(&now, &kept_before)
    }

    /// Holds the promises after a run: `now` is the tree as it was before, with what was changed
    /// meanwhile.
    fn check(&self, now: &SeenNames, kept_before: &SeenNames) -> Result<(), String> {
        let (after, kept) = (seen(self.top.path()), seen(&kept(self.top.path(), "")));
        let planned: BTreeMap<&str, &NameFacts> = self.plan.iter().map(|(name, facts)| (&**name, facts)).collect();
        for (name, seen) in now {
            let moved = match (after.get(name), planned.get(&**name)) {
                (Some(stays), _) if seen.is(stays) => continue,
                (None, Some(facts)) if facts.is_still(&seen.facts) => kept.get(name),
                (other, facts) => return Err(format!("{name}: {seen:?} became {other:?}, planned as {facts:?}")),
            };
            let is_there = moved.is_some_and(|moved| seen.is(moved) || is_dir(seen) && is_dir(moved));
            if !is_there {
                return Err(format!("{name}: {seen:?} went, and {moved:?} came"));
            }
        }
        if let Some(name) = after.keys().find(|name| !now.contains_key(*name)) {
            return Err(format!("{name} came from nowhere"));
        }
        for (name, seen) in &kept {
            let is_above =
                || planned.keys().any(|path| path.strip_prefix(&**name).is_some_and(|rest| rest.starts_with('/')));
            let is_planned = planned.get(&**name).is_some_and(|facts| facts.is_still(&seen.facts) || is_dir(seen));
            let may_be_kept = is_planned || is_dir(seen) && is_above();
            if !may_be_kept {
                return Err(format!("{name} is kept, and no plan had it: {seen:?}"));
            }
        }
        let lost = kept_before.iter().find(|(name, seen)| !is_dir(seen) && kept.get(*name) != Some(*seen));
        lost.map_or(Ok(()), |(name, _)| Err(format!("{name} was kept, and is no more")))
    }
}

fn is_dir(seen: &SeenName) -> bool {
    seen.facts.kind == NameKind::Dir
}

/// Plays a tree: a run of a part of the plan, as of one that was stopped, changes, and all of it.
fn play(seed: u64, care: Care) -> Result<Ends, String> {
    let mut world = RemovalWorld::new(seed);
    let all = world.plan.len();
    let part = world.random.below(all + 1);
    if world.random.below(2) == 0 {
        world.run(0..part, care)?;
    }
    (0..world.random.below(7)).for_each(|_| world.change());
    world.run(0..all, care)?;
    Ok(world.ends)
}

#[test]
fn nothing_but_what_a_plan_lists_goes_whatever_others_do_meanwhile() {
    let mut ends = Ends::new();
    for seed in 0..TREES {
        let played = play(seed, Care::AsPlanned).unwrap_or_else(|broken| panic!("seed {seed}: {broken}"));
        played.into_iter().for_each(|(end, times)| *ends.entry(end).or_default() += times);
    }
    println!("{ends:?}");
    for end in ["Moved", "MovedBefore", "Gone", "Changed", "NotEmpty", "meddled"] {
        assert!(ends.get(end).is_some_and(|times| *times >= TREES / 10), "{end} in {ends:?}");
    }
}

#[test]
fn a_mover_that_does_not_compare_breaks_a_promise() {
    let found = (0..CARELESS_TREES).find_map(|seed| play(seed, Care::AsFound).err());
    println!("{}", found.expect("it moves what was never planned"));
}
