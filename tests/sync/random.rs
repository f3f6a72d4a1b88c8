//! Random changes at both ends between a plan of names that go and its moves.
//!
//! In: seeds. Out: that nothing goes but what the plan lists, as it was when it was listed, and
//! only while the source has nothing of the name; and that everything else is where it was. Takes
//! the trees of `sync`. Must not know how names are moved.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use super::{apply, digest, mirrored};
use crate::fixture::random::variable;
use crate::fixture::{Host, Random, files};

/// Seeds that are played, of which each runs three programs: `REMOVAL_SEEDS` says otherwise.
const REMOVALS: u64 = 6;

/// The facts by which a plan knows a name, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StandingName {
    mode: u32,
    place: (u64, u64),
    /// The size and the time, of all but a directory.
    version: Option<(u64, i64, i64)>,
    bytes: Vec<u8>,
}

type StandingNames = BTreeMap<String, StandingName>;

/// All names beneath a directory, but for longhaul's own.
fn standing(top: &Path) -> StandingNames {
    let mut names = StandingNames::new();
    let mut left = vec![String::new()];
    while let Some(dir) = left.pop() {
        for name in fs::read_dir(top.join(&dir)).into_iter().flatten() {
            let name = name.unwrap().file_name().into_string().unwrap();
            if name.starts_with(".longhaul") {
                continue;
            }
            let path = if dir.is_empty() { name } else { format!("{dir}/{name}") };
            let at = top.join(&path);
            let found = fs::symlink_metadata(&at).unwrap();
            if found.is_dir() {
                left.push(path.clone());
            }
            let bytes = match found.file_type() {
                of if of.is_file() => fs::read(&at).unwrap(),
                of if of.is_symlink() => fs::read_link(&at).unwrap().into_os_string().into_encoded_bytes(),
                _ => Vec::new(),
            };
            let version = (!found.is_dir()).then(|| (found.size(), found.mtime(), found.mtime_nsec()));
            let place = (found.dev(), found.ino());
            names.insert(path, StandingName { mode: found.mode() & 0o170_000, place, version, bytes });
        }
    }
    names
}

/// Puts a file of the same bytes and the same time in the place of one.
fn replace(path: &Path) {
    let beside = path.with_extension("beside");
    fs::copy(path, &beside).unwrap();
    let time = fs::metadata(path).unwrap().modified().unwrap();
    fs::File::options().write(true).open(&beside).unwrap().set_modified(time).unwrap();
    fs::rename(&beside, path).unwrap();
}

/// Somebody changes a name at the destination, or makes one at the source.
fn change(host: &Host, random: &mut Random, number: u64) {
    let (top, names) = (host.path("dst"), standing(&host.path("dst")));
    let (name, found) = *random.one_of(&names.iter().collect::<Vec<_>>());
    let (at, aside) = (top.join(name), host.path(format!("dst/aside{number}")));
    let is_dir = found.version.is_none();
    let is_file = fs::symlink_metadata(&at).unwrap().is_file();
    let remove = || if is_dir { fs::remove_dir_all(&at).unwrap() } else { fs::remove_file(&at).unwrap() };
    match random.below(9) {
        0 if is_file => fs::write(&at, [&found.bytes[..], b"more"].concat()).unwrap(),
        1 if is_file => {
            let file = fs::File::options().append(true).open(&at).unwrap();
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        }
        2 if is_file => replace(&at),
        3 => remove(),
        4 => {
            remove();
            fs::create_dir(&at).unwrap();
        }
        5 => {
            remove();
            symlink("elsewhere", &at).unwrap();
        }
        6 => {
            fs::rename(&at, &aside).unwrap();
            symlink(&aside, &at).unwrap();
        }
        7 if !is_dir && !at_source(host, name) => files::make(host.path("src").join(name), number, 30),
        _ => files::make(aside, number, 60),
    }
}

/// Names that only the destination has: files in directories, links, empty directories.
fn plant(host: &Host, random: &mut Random) {
    for number in 0..12 {
        let dir = format!("dst/{}", random.one_of(&["d0", "d1", "e", "e/f", "g"]));
        fs::create_dir_all(host.path(&dir)).unwrap();
        let path = host.path(format!("{dir}/n{number}"));
        match random.below(4) {
            0 => symlink("nowhere", path).unwrap(),
            1 => fs::create_dir(path).unwrap(),
            _ => files::make(path, number, 40 + number as usize),
        }
    }
}

/// Holds the promises: `listed` is what the plan has, as it was then, and `now` the tree before the
/// moves. Gives the number of names that went.
fn check(host: &Host, listed: &StandingNames, now: &StandingNames) -> usize {
    let (after, kept) = (standing(&host.path("dst")), kept(host));
    let mut moved = 0;
    for (name, was) in now {
        match after.get(name) {
            Some(stays) => assert_eq!(was, stays, "{name} is not as it was"),
            None => {
                assert_eq!(listed.get(name), Some(was), "{name} went, and the plan lists something else");
                assert!(!at_source(host, name), "{name} went, and the source has it");
                let came = kept.get(name).unwrap_or_else(|| panic!("{name} is nowhere"));
                assert!(came == was || was.version.is_none() && came.version.is_none(), "{name} is another one now");
                moved += 1;
            }
        }
    }
    assert!(after.keys().all(|name| now.contains_key(name)), "something came from nowhere");
    let files = kept.iter().filter(|(_, kept)| kept.version.is_some());
    files.for_each(|(name, kept)| assert_eq!(Some(kept), listed.get(name), "{name} was not planned"));
    for (name, planned) in listed.iter().filter(|(_, planned)| planned.version.is_some()) {
        let goes = now.get(name) == Some(planned) && !at_source(host, name);
        assert_eq!(goes, kept.contains_key(name), "{name} goes if it had not changed, and only then");
    }
    moved
}

/// Whether the source has a name, so that it stays at the destination.
fn at_source(host: &Host, name: &str) -> bool {
    fs::symlink_metadata(host.path("src").join(name)).is_ok()
}

/// The names in the grace directory.
fn kept(host: &Host) -> StandingNames {
    let all = fs::read_dir(host.path("dst/.longhaul/grace"));
    let one = all.ok().and_then(|mut all| all.next()).map(|label| label.unwrap().path());
    one.map(|one| standing(&one)).unwrap_or_default()
}

#[test]
fn nothing_goes_but_what_a_plan_lists_as_it_was_then_whatever_changes_at_both_ends() {
    let (mut moved, mut stayed) = (0, 0);
    for seed in 0..variable("REMOVAL_SEEDS").unwrap_or(REMOVALS) {
        println!("REMOVAL_SEED={seed}");
        let mut random = Random(seed);
        let host = mirrored(&["only"]);
        plant(&host, &mut random);
        let planned = host.run(["sync", "src/", "dst", "--delete", "plan", "--max-delete", "99"]).succeed();
        let names = planned.stdout_text().lines().filter_map(|line| line.strip_prefix("planned: "));
        let names: BTreeSet<_> = names.map(str::to_owned).collect();
        let mut listed = standing(&host.path("dst"));
        listed.retain(|name, _| names.contains(name));
        assert_eq!(listed.len(), names.len(), "{planned}");
        (0..random.below(9)).for_each(|number| change(&host, &mut random, 100 + number));
        let now = standing(&host.path("dst"));
        let told = apply(&host, &digest(&planned)).finish();
        assert!([0, 23].contains(&told.code), "{told}");
        let went = check(&host, &listed, &now);
        (moved, stayed) = (moved + went, stayed + listed.len() - went);
    }
    assert!(moved > 0 && stayed > 0, "{moved} moved, {stayed} stayed");
}
