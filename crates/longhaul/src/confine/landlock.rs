//! Landlock: the kernel refuses this thread, and those that it begins, whatever lies beyond the
//! places that it was given.
//!
//! In: places with the access that each needs. Out: the version of Landlock, and the places that
//! are reached; or the reason why there is none. It must not know why a place is needed.

use std::os::fd::AsFd;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, LandlockStatus, NetPort, PathBeneath,
    PathFd, RestrictionStatus, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
    make_bitflags,
};
use rustix::fs::{FileType, fstat};

use super::reach::{Access, Need, Reach};

/// Confines this thread, which may connect to these ports over TCP. Returns words for the log and
/// the places that it reaches from now on.
///
/// # Errors
/// The reason why it is not confined, in words.
pub(super) fn restrict(needs: &[Need], dial: &[u16]) -> Result<(String, Reach), String> {
    let mut reach = Reach::default();
    let refused = |error: landlock::RulesetError| format!("the kernel refuses it: {error}");
    let ruleset = ruleset().map_err(refused)?;
    let ruleset = needs.iter().try_fold(ruleset, |ruleset, need| allow(ruleset, need, &mut reach))?;
    // Whoever dials may have to ask for names over TCP too.
    let ports = dial.iter().copied().chain((!dial.is_empty()).then_some(DNS_PORT));
    let ruleset = ports.into_iter().try_fold(ruleset, |ruleset, port| {
        ruleset.add_rule(NetPort::new(port, AccessNet::ConnectTcp)).map_err(refused)
    })?;
    let RestrictionStatus { ruleset, landlock, .. } = ruleset.restrict_self().map_err(refused)?;
    let version = match landlock {
        LandlockStatus::NotImplemented => {
            return Err("not in this kernel, or hidden by a filter of system calls".to_owned());
        }
        LandlockStatus::NotEnabled => return Err("not enabled in this kernel (lsm= at its start)".to_owned()),
        LandlockStatus::Available { effective_abi, .. } => effective_abi as i32,
    };
    if ruleset == RulesetStatus::NotEnforced {
        // Files move between directories when partials go on, and links are made of one file.
        return Err(format!("this kernel has version {version}, which forbids all renames between directories"));
    }
    Ok((format!("version {version}, {} places", reach.len()), reach))
}

/// The rules without any place: all uses of files that this program was tested with, TCP
/// connections of its own, and processes outside.
fn ruleset() -> Result<RulesetCreated, landlock::RulesetError> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::SoftRequirement)
        .handle_access(AccessFs::Refer)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(TESTED))?
        // A daemon is dialled, and dials nobody but where it is let.
        .handle_access(AccessNet::ConnectTcp)?
        .scope(Scope::Signal)?;
    // Service managers in containers may have an abstract socket.
    let is_abstract = std::env::var_os("NOTIFY_SOCKET").is_some_and(|name| name.as_encoded_bytes().starts_with(b"@"));
    if is_abstract { ruleset.create() } else { ruleset.scope(Scope::AbstractUnixSocket)?.create() }
}

fn allow(ruleset: RulesetCreated, need: &Need, reach: &mut Reach) -> Result<RulesetCreated, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", need.path.display());
    // A place that is missing now is not reached later.
    let Ok(place) = PathFd::new(&need.path) else { return Ok(ruleset) };
    let stat = fstat(place.as_fd()).map_err(|error| failed(&error))?;
    reach.add((stat.st_dev, stat.st_ino), need.access);
    let mut rights = rights(need.access);
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        rights &= AccessFs::from_file(TESTED);
    }
    ruleset.add_rule(PathBeneath::new(place, rights)).map_err(|error| failed(&error))
}

/// The rights of the kernel that a use needs. No use runs a program, or makes a device or a fifo.
fn rights(access: Access) -> BitFlags<AccessFs> {
    let read = make_bitflags!(AccessFs::{ReadFile | ReadDir});
    let write = read | make_bitflags!(AccessFs::{WriteFile | Truncate});
    let names = make_bitflags!(AccessFs::{MakeReg | MakeDir | MakeSym | RemoveFile | RemoveDir | Refer});
    match access {
        Access::Read => read,
        Access::Write => write,
        Access::Change => write | names,
        Access::Own => write | names | AccessFs::MakeSock,
    }
}

/// The port of name servers.
const DNS_PORT: u16 = 53;
/// The newest version whose restrictions this program was tested with; what a newer one can refuse
/// besides, it does not.
const TESTED: ABI = ABI::V6;

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the tests touch files of their own")]
mod tests {
    use std::fs;
    use std::io;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use super::*;

    fn need(path: &Path, access: Access) -> Need {
        Need { path: path.to_owned(), access, of: String::new(), checked: false }
    }

    /// Does something in a thread that reaches these places. `None`, and a line that says so, where
    /// the kernel cannot.
    fn within<T: Send>(needs: &[Need], act: impl FnOnce() -> T + Send) -> Option<T> {
        let confined = || {
            if let Err(why) = restrict(needs, &[]) {
                eprintln!("SKIPPED: landlock: {why}");
                return None;
            }
            Some(act())
        };
        std::thread::scope(|scope| scope.spawn(confined).join().unwrap())
    }

    fn denied<T>(result: io::Result<T>) -> bool {
        result.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    }

    #[test]
    fn a_thread_reaches_its_places_as_far_as_each_says_and_nothing_else() {
        let top = tempfile::tempdir().unwrap();
        let [outside, read, changed, own] = ["outside", "read", "changed", "own"].map(|name| {
            let dir = top.path().join(name);
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join("f"), "f").unwrap();
            dir
        });
        let needs = [
            need(&read, Access::Read),
            need(&changed, Access::Change),
            need(&own, Access::Own),
            need(&top.path().join("missing"), Access::Change),
        ];
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        within(&needs, || {
            assert!(denied(fs::read(outside.join("f"))) && denied(fs::read_dir(&outside)));
            assert!(denied(fs::write(outside.join("g"), "")) && denied(fs::remove_file(outside.join("f"))));
            std::os::unix::fs::symlink(outside.join("f"), changed.join("link")).unwrap();
            assert!(denied(fs::read(changed.join("link"))), "a link leads nowhere");
            assert_eq!(fs::read(read.join("f")).unwrap(), b"f");
            assert!(denied(fs::write(read.join("f"), "")) && denied(fs::create_dir(read.join("d"))));
            fs::create_dir(changed.join("d")).unwrap();
            fs::rename(changed.join("f"), changed.join("d/f")).unwrap();
            fs::hard_link(changed.join("d/f"), changed.join("again")).unwrap();
            fs::write(changed.join("again"), "longer").unwrap();
            assert!(fs::rename(changed.join("again"), outside.join("f")).is_err());
            assert!(denied(UnixListener::bind(changed.join("s"))), "sockets are the daemon's own");
            UnixListener::bind(own.join("s")).unwrap();
            assert!(denied(std::process::Command::new("/bin/true").status()), "no program is run");
            assert!(denied(TcpStream::connect(listener.local_addr().unwrap())), "nobody is dialled");
        });
        assert_eq!(fs::read(outside.join("f")).unwrap(), b"f");
    }

    #[test]
    fn no_use_of_a_place_runs_programs_or_makes_devices() {
        let never = make_bitflags!(AccessFs::{Execute | MakeChar | MakeBlock | MakeFifo | IoctlDev});
        for access in [Access::Read, Access::Write, Access::Change, Access::Own] {
            assert!((rights(access) & never).is_empty(), "{access:?}");
        }
        assert!(!rights(Access::Change).contains(AccessFs::MakeSock));
    }
}
