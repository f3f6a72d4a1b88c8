//! Checks whether another user can change a file that decides who is trusted: by its owner and
//! mode, and those of every directory that is passed on the way to it, as `sshd` does with
//! `StrictModes`.
//!
//! In: the path of a config, an identity or a known-hosts file. Out: nothing, or the nearest path
//! that is open to others and the advice to close it. A directory that others may write to is fine
//! if it is sticky, as `/tmp` is: no other user can take the next name away from its owner there.
//! Files that the user's private group may write to are the user's alone. A path that is no regular
//! file (`/dev/null`, a pipe) is the caller's own choice. `LONGHAUL_STRICT_MODES=no` makes a
//! warning of each refusal.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use longhaul_core::PlainText;
use rustix::process::geteuid;

use crate::error::{EVERYBODY_WRITES, Error, Exposed, OTHERS_WRITE};
use crate::values;

/// Refuses a file that another user could have written, or could replace. A file that does not
/// exist yet is judged by the directories that do.
///
/// # Errors
/// [`Error::Exposed`] with the nearest path that is open to others; [`Error::File`] if one cannot
/// be examined.
pub fn check(path: &Path) -> Result<(), Error> {
    match judge(path, &User::of_this_process()) {
        Err(Error::Exposed(exposed)) if std::env::var_os(SWITCH).is_some_and(|text| is_off(&text)) => {
            warn(&exposed);
            Ok(())
        }
        judged => judged,
    }
}

/// Makes the same check for a given user.
fn judge(path: &Path, user: &User) -> Result<(), Error> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => return Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(Error::file("examine", path)(error)),
        _ => {}
    }
    // The nearest one first: the file itself is mended soonest.
    passed(path)?.iter().rev().try_for_each(|passed| judge_one(path, passed, user))
}

/// A file, directory or link on the way to a file.
struct Passed {
    path: PathBuf,
    metadata: Metadata,
    /// Whether it is a link in a directory where others may make names.
    is_open_link: bool,
}

/// Everything that is passed from the top to a file, as far as it exists: each directory that a
/// name is looked up in, also those in which only a link lies.
fn passed(path: &Path) -> Result<Vec<Passed>, Error> {
    let examined = |at: &Path, error| Error::file("examine", at)(error);
    let names = |path: &Path| -> Vec<OsString> {
        path.components()
            .rev()
            .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
            .map(|part| part.as_os_str().to_owned())
            .collect()
    };
    let mut to_come = names(&std::path::absolute(path).map_err(|error| examined(path, error))?);
    let mut links = 0;
    let mut at = PathBuf::from("/");
    let mut passed = Vec::new();
    while let Some(name) = to_come.pop() {
        if name == ".." {
            // No part of this one is a link. A user that may write to a directory cannot change
            // those above it.
            at.pop();
            continue;
        }
        let holder = fs::metadata(&at).map_err(|error| examined(&at, error))?;
        let is_open_link = holder.mode() & OTHERS_WRITE != 0;
        passed.push(Passed { path: at.clone(), metadata: holder, is_open_link: false });
        let next = at.join(&name);
        let metadata = match fs::symlink_metadata(&next) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => break,
            Err(error) => return Err(examined(&next, error)),
        };
        if metadata.is_dir() {
            at = next;
            continue;
        }
        let link = if metadata.is_symlink() { Some(fs::read_link(&next)) } else { None };
        passed.push(Passed { path: next.clone(), is_open_link: is_open_link && metadata.is_symlink(), metadata });
        let Some(target) = link else { continue };
        let target = target.map_err(|error| examined(&next, error))?;
        links += 1;
        if links > LINKS_MAX {
            return Err(examined(path, rustix::io::Errno::LOOP.into()));
        }
        to_come.extend(names(&target));
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
    }
    Ok(passed)
}

/// Judges one path on the way to `file`.
fn judge_one(file: &Path, passed: &Passed, user: &User) -> Result<(), Error> {
    let Passed { path, metadata, is_open_link } = passed;
    let (mode, owner) = (metadata.mode() & 0o7777, metadata.uid());
    // A link's own mode has no meaning, and its target can be changed only by replacing the link.
    let open = match () {
        () if metadata.is_symlink() || metadata.is_dir() && mode & STICKY != 0 => 0,
        () if user.private_group == Some(metadata.gid()) => mode & EVERYBODY_WRITES,
        () => mode & OTHERS_WRITE,
    };
    let is_ours = metadata.is_symlink() && !is_open_link || user.believes(owner);
    if open == 0 && is_ours {
        return Ok(());
    }
    let above = if metadata.is_file() { None } else { Some(file.to_owned()) };
    Err(Error::Exposed(Box::new(Exposed { path: path.clone(), above, mode, owner, open, user: user.uid })))
}

/// The user that runs this program.
struct User {
    uid: u32,
    /// The group that is this user's alone.
    private_group: Option<u32>,
}

impl User {
    fn of_this_process() -> User {
        let uid = geteuid().as_raw();
        let text = |path| fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
        User { uid, private_group: private_group(uid, &text("/etc/passwd"), &text("/etc/group")) }
    }

    /// Whether an owner is this user, or one who could change anything anyway.
    fn believes(&self, owner: u32) -> bool {
        owner == 0 || owner == self.uid || owner == UNMAPPED && is_in_user_namespace()
    }
}

/// The group of a user that has no other member: the primary one, if it has the user's name and no
/// other user is in it or has it as the primary one. If these files do not know the user or group
/// (a directory service does), it is the group whose number is the user's own, as the services that
/// make private groups number them. Root has none: nothing makes one for it.
fn private_group(uid: u32, passwd: &str, group: &str) -> Option<u32> {
    if uid == 0 {
        return None;
    }
    let fields = |line: &str| line.split(':').map(str::to_owned).collect::<Vec<String>>();
    let number = |fields: &[String], at: usize| fields.get(at).and_then(|text| text.parse::<u32>().ok());
    let users: Vec<Vec<String>> = passwd.lines().map(fields).collect();
    let groups: Vec<Vec<String>> = group.lines().map(fields).collect();
    let user = users.iter().find(|user| number(user, 2) == Some(uid));
    let gid = user.map_or(Some(uid), |user| number(user, 3))?;
    let is_elsewhere = users.iter().any(|other| number(other, 3) == Some(gid) && number(other, 2) != Some(uid));
    let mut same = groups.iter().filter(|group| number(group, 2) == Some(gid)).peekable();
    let is_private = match (user, same.peek()) {
        (Some(user), Some(_)) => same.all(|group| {
            let mut members = group.get(3).into_iter().flat_map(|list| list.split(',')).filter(|name| !name.is_empty());
            group.first() == user.first() && members.all(|member| Some(member) == user.first().map(String::as_str))
        }),
        (_, None) => gid == uid,
        (None, Some(_)) => false,
    };
    (is_private && !is_elsewhere).then_some(gid)
}

/// Whether the switch says that a warning is enough.
fn is_off(text: &std::ffi::OsStr) -> bool {
    text.to_str().is_some_and(|text| values::switch(text).is_ok_and(|on| !on))
}

/// Warns of an exposed path, once for each path: a file may be read for every connection.
fn warn(exposed: &Exposed) {
    static SAID: Mutex<Option<HashSet<PathBuf>>> = Mutex::new(None);
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if said.get_or_insert_default().insert(exposed.path.clone()) {
        let text = format!("warning: {exposed}; it is, as {SWITCH} is off");
        // If standard error is gone, there is nothing else to do.
        let _ = writeln!(io::stderr(), "{}", PlainText::from(text.as_str()));
    }
}

/// Whether users outside of this namespace, root among them, are shown as the user `nobody`.
fn is_in_user_namespace() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().ne(["0", "0", "4294967295"])
}

/// The variable that makes warnings of refusals: for file systems that keep no owners and modes. It
/// is no key of a config file, as that file itself is judged.
const SWITCH: &str = "LONGHAUL_STRICT_MODES";
const STICKY: u32 = 0o1000;
/// The kernel's overflow user (`/proc/sys/kernel/overflowuid`). Hosts do not change it in practice.
const UNMAPPED: u32 = 65534;
/// The most links in one path: as many as the kernel follows.
const LINKS_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    /// A directory in a directory, with a file in it.
    fn scene() -> (tempfile::TempDir, PathBuf, PathBuf) {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().canonicalize().unwrap().join("a/b");
        fs::create_dir_all(&dir).unwrap();
        mode(&dir, 0o755);
        mode(dir.parent().unwrap(), 0o755);
        let file = dir.join("serve.toml");
        fs::write(&file, "").unwrap();
        mode(&file, 0o644);
        (top, dir, file)
    }

    fn refusal(path: &Path) -> (String, String) {
        refusal_to(path, &User::of_this_process())
    }

    fn refusal_to(path: &Path, user: &User) -> (String, String) {
        let Err(Error::Exposed(exposed)) = judge(path, user) else { panic!("{} is believed", path.display()) };
        (exposed.to_string(), exposed.hint())
    }

    /// This user without a group of its own, and one with that of the tests' files.
    fn users(file: &Path) -> [User; 2] {
        let metadata = fs::metadata(file).unwrap();
        [None, Some(metadata.gid())].map(|private_group| User { uid: metadata.uid(), private_group })
    }

    #[test]
    fn a_file_that_others_may_write_is_refused_with_the_command_that_mends_it() {
        let (_top, _, file) = scene();
        let [alone, _] = users(&file);
        judge(&file, &alone).unwrap();
        for (bits, hint) in [(0o664, "chmod g-w"), (0o646, "chmod o-w"), (0o666, "chmod go-w"), (0o1622, "chmod go-w")]
        {
            mode(&file, bits);
            let (said, mends) = refusal_to(&file, &alone);
            assert!(said.contains(&format!("mode {bits:04o}")), "{said}");
            assert_eq!(mends, format!("{hint} {}", file.display()));
        }
    }

    #[test]
    fn a_directory_that_others_may_write_at_any_height_is_refused_unless_it_is_sticky() {
        let (_top, dir, file) = scene();
        let [alone, _] = users(&file);
        for at in [dir.as_path(), dir.parent().unwrap()] {
            for (bits, fine) in [(0o775, false), (0o757, false), (0o777, false), (0o1777, true), (0o755, true)] {
                mode(at, bits);
                for path in [&file, &dir.join("missing"), &dir.join("to/be/made")] {
                    assert_eq!(judge(path, &alone).is_ok(), fine, "{bits:o} {}", path.display());
                }
            }
        }
        mode(&dir, 0o777);
        let (said, mends) = refusal(&file);
        assert!(said.contains(&format!("so {} is not believed", file.display())), "{said}");
        assert!(mends.starts_with(&format!("chmod go-w {}, if nobody else", dir.display())), "{mends}");
        assert!(mends.contains("--identity") && mends.contains("XDG_CONFIG_HOME"), "{mends}");
    }

    #[test]
    fn what_the_users_private_group_may_write_is_the_users_alone() {
        let (_top, dir, file) = scene();
        let [alone, private] = users(&file);
        for (at, bits, others) in [(&file, 0o664, 0o666), (&dir, 0o775, 0o777)] {
            let before = fs::metadata(at).unwrap().mode() & 0o777;
            mode(at, bits);
            judge(&file, &private).unwrap();
            refusal_to(&file, &alone);
            mode(at, others);
            assert!(refusal_to(&file, &private).1.starts_with("chmod o-w"));
            mode(at, before);
        }
    }

    #[test]
    fn a_private_group_is_one_in_which_nobody_else_is() {
        const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/h:/bin/sh\nbob:x:1001:100::/h:/bin/sh\n";
        for (uid, passwd, group, want) in [
            (1000, PASSWD, "alice:x:1000:\n", Some(1000)),
            (1000, PASSWD, "alice:x:1000:alice\n", Some(1000)),
            (1000, PASSWD, "alice:x:1000:alice,bob\n", None),
            (1000, PASSWD, "alice:x:1000:\nagain:x:1000:bob\n", None),
            (1000, PASSWD, "staff:x:1000:\n", None),
            (1000, "alice:x:1000:1000::/h:\ncarol:x:1002:1000::/h:\n", "alice:x:1000:\n", None),
            (1001, PASSWD, "users:x:100:\n", None),
            // Users that only a directory service knows.
            (1001, PASSWD, "", None),
            (1000, PASSWD, "", Some(1000)),
            (70_001, PASSWD, "alice:x:1000:\n", Some(70_001)),
            (70_001, PASSWD, "ours:x:70001:\n", None),
            (0, PASSWD, "root:x:0:\n", None),
            (1000, "nonsense", "::\n:x:1000", None),
        ] {
            assert_eq!(private_group(uid, passwd, group), want, "{uid} {passwd:?} {group:?}");
        }
    }

    #[test]
    fn a_directory_that_holds_only_a_link_of_many_counts_too() {
        let (_top, dir, file) = scene();
        let (_other, between, _) = scene();
        let (_third, first, _) = scene();
        let [alone, _] = users(&file);
        symlink(&dir, between.join("dir")).unwrap();
        symlink(between.join("dir/serve.toml"), first.join("link")).unwrap();
        judge(&first.join("link"), &alone).unwrap();
        mode(&between, 0o777);
        assert!(refusal_to(&first.join("link"), &alone).0.contains("link is not believed"));
        mode(&between, 0o1777);
        judge(&first.join("link"), &alone).unwrap();
        if geteuid().is_root() {
            std::os::unix::fs::lchown(between.join("dir"), Some(12345), None).unwrap();
            assert!(refusal_to(&first.join("link"), &alone).0.contains("another user"));
        }
        // What is only left again is not asked for a name.
        let open = dir.join("open");
        fs::create_dir(&open).unwrap();
        mode(&open, 0o777);
        judge(&open.join("../serve.toml"), &alone).unwrap();
        symlink("loop", between.join("loop")).unwrap();
        assert!(judge(&between.join("loop"), &alone).is_err());
    }

    #[test]
    fn the_switch_is_off_only_where_it_says_so() {
        for (text, off) in [("no", true), ("0", true), ("off", true), ("", false), ("yes", false), ("nein", false)] {
            assert_eq!(is_off(std::ffi::OsStr::new(text)), off, "{text}");
        }
    }

    #[test]
    fn of_a_link_both_places_count() {
        let (_top, dir, file) = scene();
        let (_other, elsewhere, _) = scene();
        let link = elsewhere.join("link");
        symlink(&file, &link).unwrap();
        check(&link).unwrap();
        mode(&elsewhere, 0o777);
        assert!(refusal(&link).0.contains("link is not believed"));
        mode(&elsewhere, 0o755);
        mode(&dir, 0o777);
        assert!(refusal(&link).0.contains("link is not believed"));
    }

    #[test]
    fn another_users_file_or_directory_is_refused_and_nothing_of_that_user_is_to_be_changed() {
        if !geteuid().is_root() {
            return;
        }
        let (_top, dir, file) = scene();
        let user = User { uid: 23456, private_group: None };
        for at in [&file, &dir] {
            chown(at, Some(12345), None).unwrap();
            let (said, mends) = refusal(&file);
            assert!(said.contains("another user") && said.contains("owner 12345"), "{said}");
            assert!(mends.contains("the user 12345") && mends.contains("sudo -H"), "{mends}");
            let mends = refusal_to(&file, &user).1;
            let want = if at == &file { format!("chown 23456 {}", at.display()) } else { "keep".to_owned() };
            assert!(mends.starts_with(&want), "{mends}");
            chown(at, Some(0), None).unwrap();
        }
    }

    #[test]
    fn what_is_no_file_is_the_callers_own_doing() {
        check(Path::new("/dev/null")).unwrap();
    }
}
