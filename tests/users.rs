//! Clients that have a user of the daemon's host: their sessions run in processes of those users,
//! and the kernel decides what they may do there.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use crate::fixture::{ALL_RIGHTS, Daemon, DaemonConfig, Host, PROTECTIONS, Run, Running, files};

mod recorded;
mod removals;
mod udp;

const MIB: usize = 1 << 20;
/// Users that nobody has: they are known in the daemon's own view of `/etc` alone.
const ALICE: u32 = 61_001;
const BOB: u32 = 61_002;
/// A group of both.
const TEAM: u32 = 61_100;

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nlocal:x:997:997::/:/bin/false\n\
    alice:x:61001:61001::/:/bin/false\nbob:x:61002:61002::/:/bin/false\n\
    toor:x:0:0::/:/bin/sh\nwheel:x:61003:0::/:/bin/false\n";
const GROUP: &str = "root:x:0:\nlocal:x:997:\nalice:x:61001:\nbob:x:61002:\nteam:x:61100:alice,bob\n";

/// A daemon that knows these users, with a root `data` to whose top both may write, and a client of
/// each.
struct House {
    server: Host,
    alice: Host,
    bob: Host,
    daemon: Daemon,
}

/// A host that other users can reach.
fn open_host() -> Host {
    let host = Host::within(&std::env::temp_dir());
    files::set_mode(host.dir(), 0o755);
    host
}

/// Runs with the users of this file in place of the host's.
fn knowing_users(host: &Host, run: Run) -> Run {
    let (passwd, group) = (host.path("passwd"), host.path("group"));
    files::write(&passwd, PASSWD);
    files::write(&group, GROUP);
    let script = "mount --bind \"$1\" /etc/passwd && mount --bind \"$2\" /etc/group && shift 2 && exec \"$@\"";
    let words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"].map(PathBuf::from);
    run.beneath(words.into_iter().chain([passwd, group]))
}

fn config(root: &Path, alice: &Host, bob: &Host) -> DaemonConfig {
    let rights = [("data", ALL_RIGHTS)];
    let config = DaemonConfig::default().line("state = 'state'").watch("audit = 'audit.jsonl'\naudit_required = true");
    let config = config.root("data", root, ALL_RIGHTS);
    let config = config.client("of alice", alice.key(), &rights).client_line("user = 'alice'");
    config.client("of bob", bob.key(), &rights).client_line("uid = 61002")
}

impl House {
    fn new() -> House {
        let (server, alice, bob) = (open_host(), Host::new(), Host::new());
        let root = server.make_dir("data");
        files::set_mode(&root, 0o1777);
        let daemon = config(&root, &alice, &bob).start_as(&server, |run| knowing_users(&server, run));
        for client in [&alice, &bob] {
            client.run(["key", "trust", daemon.addr(), daemon.key()]).succeed();
        }
        House { server, alice, bob, daemon }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.server.path("data").join(name)
    }

    fn url(&self, path: &str) -> String {
        self.daemon.url(&format!("data/{path}"))
    }

    /// A directory of a user in the root.
    fn make_dir(&self, name: &str, (uid, gid): (u32, u32), mode: u32) {
        fs::create_dir(self.path(name)).unwrap();
        chown(self.path(name), Some(uid), Some(gid)).unwrap();
        files::set_mode(self.path(name), mode);
    }

    fn admin(&self, words: &[&str]) -> Run {
        self.server.run(["admin"]).args(words).args(["--socket", "state/admin.sock"])
    }

    /// The process that starts others.
    fn broker(&self) -> Process {
        let [broker] = children(self.daemon.pid()).try_into().expect("one process besides the daemon");
        assert_eq!(broker.name, "longhaul-broker");
        broker
    }

    /// The process of a user, which there is.
    fn deputy(&self, uid: u32) -> Process {
        let of_user = |process: &Process| process.ids("Uid") == [uid; 4];
        let found: Vec<_> = children(self.broker().pid).into_iter().filter(of_user).collect();
        let [deputy] = found.try_into().expect("one process of this user");
        assert_eq!(deputy.name, "longhaul-deputy");
        deputy
    }

    /// A push so slow that it runs until it is ended, of which some is durable at the daemon.
    fn begun<'a>(&self, client: &Host, words: impl IntoIterator<Item = &'a str>) -> Running {
        let running = client.run(["push", "--json", "--rate", "4MiB/s", "--chunk-size", "1MiB"]).args(words).start();
        running.wait_event(|event| event["bytes_durable"].as_u64().filter(|bytes| *bytes > 0));
        running
    }
}

/// A process, as `/proc` has it.
#[derive(Debug)]
struct Process {
    pid: i32,
    /// The name under which it was started.
    name: String,
    /// `status` of each of its threads.
    threads: Vec<String>,
}

impl Process {
    fn of(pid: i32) -> Option<Process> {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let name = String::from_utf8_lossy(line.split(|byte| *byte == 0).next()?).into_owned();
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
        let status = |task: fs::DirEntry| fs::read_to_string(task.path().join("status")).ok();
        let threads: Vec<_> = tasks.flatten().filter_map(status).collect();
        (!threads.is_empty()).then_some(Process { pid, name, threads })
    }

    /// The value of a field, which is the same in all threads.
    fn field(&self, name: &str) -> String {
        let values: BTreeSet<_> = self.threads.iter().map(|status| field(status, name)).collect();
        let [value] = values.into_iter().collect::<Vec<_>>().try_into().expect("all threads are alike");
        value
    }

    fn ids(&self, name: &str) -> Vec<u32> {
        self.field(name).split_whitespace().map(|id| id.parse().unwrap()).collect()
    }

    fn kill(&self) {
        let end = self.end();
        kill_process(Pid::from_raw(self.pid).unwrap(), Signal::KILL).unwrap();
        wait_gone(&end);
    }

    /// A descriptor that shows its end.
    fn end(&self) -> std::os::fd::OwnedFd {
        pidfd_open(Pid::from_raw(self.pid).unwrap(), PidfdFlags::empty()).unwrap()
    }
}

fn wait_gone(end: &std::os::fd::OwnedFd) {
    let patience = Timespec::try_from(Duration::from_secs(60)).unwrap();
    assert!(poll(&mut [PollFd::new(end, PollFlags::IN)], Some(&patience)).unwrap() > 0, "it stays");
}

fn field(status: &str, name: &str) -> String {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {name} in {status}")).trim().to_owned()
}

fn children(parent: i32) -> Vec<Process> {
    let numbers = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |process: &Process| process.field("PPid") == parent.to_string();
    numbers.filter_map(Process::of).filter(is_child).collect()
}

/// Sockets of these kinds that a process has open.
fn sockets(pid: i32, kinds: &[&str]) -> usize {
    let tables = kinds.iter().map(|table| fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default());
    let tables: Vec<String> = tables.collect();
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    let inodes: BTreeSet<_> = lines.filter_map(|line| line.split_whitespace().nth(9)).collect();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let links = open.filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.to_str()?.to_owned()));
    let inode = |link: String| link.strip_prefix("socket:[")?.strip_suffix(']').map(str::to_owned);
    links.filter_map(inode).filter(|inode| inodes.contains(inode.as_str())).count()
}

fn owner(path: impl AsRef<Path>) -> (u32, u32) {
    let meta = fs::symlink_metadata(path).unwrap();
    (meta.uid(), meta.gid())
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn two_users_push_and_pull_at_the_same_time_and_each_has_its_own_files_in_both_protections() {
    for protect in PROTECTIONS {
        let house = House::new();
        let push = |client: &Host, seed: u64, to: &str| {
            files::make(client.path("large"), seed, 24 * MIB + 5);
            fs::create_dir_all(client.path("tree/below")).unwrap();
            (0..50).for_each(|n| files::make(client.path(format!("tree/below/{n}")), seed + n, 1000));
            let run = client.run(["push", "--json", "--protect", protect, "--lanes", "4", "large", "tree"]);
            run.arg(house.url(to)).start()
        };
        let (of_alice, of_bob) = (push(&house.alice, 100, "a/"), push(&house.bob, 200, "b/"));
        of_alice.fail(0);
        of_bob.fail(0);
        for (client, dir, uid) in [(&house.alice, "a", ALICE), (&house.bob, "b", BOB)] {
            for name in ["", "large", "tree", "tree/below", "tree/below/7"] {
                assert_eq!(owner(house.path(&format!("{dir}/{name}"))), (uid, uid), "{protect}: {dir}/{name}");
            }
            assert!(fs::read(house.path(&format!("{dir}/large"))).unwrap() == fs::read(client.path("large")).unwrap());
        }
        let pull = |client: &Host, from: &str| {
            client.run(["pull", "--json", "--protect", protect, &house.url(from), "back/"]).start()
        };
        // Modes are the kernel's to check: what is for everybody, the other user reads too.
        let (of_alice, of_bob) = (pull(&house.alice, "b/large"), pull(&house.bob, "b/large"));
        of_alice.fail(0);
        of_bob.fail(0);
        for client in [&house.alice, &house.bob] {
            let same = fs::read(client.path("back/large")).unwrap() == fs::read(house.bob.path("large")).unwrap();
            assert!(same, "{protect}");
        }
        assert!(!house.path(".longhaul-61001").exists(), "nothing is left of transfers that are over");
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_process_of_a_user_has_nothing_but_what_that_user_has() {
    let house = House::new();
    files::make(house.alice.path("f"), 1, 64 * MIB);
    let running = house.begun(&house.alice, ["f", &house.url("")]);
    let deputy = house.deputy(ALICE);
    for none in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(u64::from_str_radix(&deputy.field(none), 16).unwrap(), 0, "{none}");
    }
    assert_eq!(deputy.field("NoNewPrivs"), "1");
    assert_eq!((deputy.ids("Uid"), deputy.ids("Gid")), (vec![ALICE; 4], vec![ALICE; 4]));
    assert_eq!(deputy.ids("Groups").into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([ALICE, TEAM]));
    // Nobody but root looks into it.
    assert_eq!(owner(format!("/proc/{}/mem", deputy.pid)), (0, 0));
    // The broker has one thread, and nothing through which a peer of the network could speak to it.
    let broker = house.broker();
    assert_eq!((broker.threads.len(), broker.ids("Uid")), (1, vec![0; 4]));
    let sockets = |pid| sockets(pid, &["tcp", "tcp6", "udp", "udp6"]);
    assert_eq!(sockets(broker.pid), 0);
    assert!(sockets(house.daemon.pid()) > 0 && sockets(deputy.pid) > 0, "the look finds those that there are");
    drop(running);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn the_kernel_decides_what_a_client_reads_and_where_it_writes() {
    let house = House::new();
    for (name, owner, mode) in [("secret", (ALICE, ALICE), 0o600), ("shared", (0, TEAM), 0o640)] {
        files::make(house.path(name), 1, 1000);
        chown(house.path(name), Some(owner.0), Some(owner.1)).unwrap();
        files::set_mode(house.path(name), mode);
    }
    let pull = |client: &Host, name: &str| {
        client.run(["pull", &house.url(name), &format!("got-{}", name.trim_end_matches('/'))]).finish()
    };
    assert_eq!(pull(&house.alice, "secret").code, 0);
    assert_eq!(pull(&house.alice, "shared").code, 0, "by a group that is not its primary one");
    let refused = pull(&house.bob, "secret");
    assert!(refused.code != 0 && refused.stderr.contains("ermission denied"), "{refused}");
    assert_eq!(pull(&house.bob, "shared").code, 0);
    // A directory of the group, of another user, and of root.
    house.make_dir("of-team", (0, TEAM), 0o2770);
    house.make_dir("of-alice", (ALICE, ALICE), 0o700);
    house.make_dir("of-root", (0, 0), 0o755);
    files::make(house.bob.path("f"), 2, 3 * MIB);
    let push = |to: &str| house.bob.run(["push", "f", &house.url(to)]).finish();
    let outcome = push("of-team/");
    assert_eq!((outcome.code, owner(house.path("of-team/f"))), (0, (BOB, TEAM)), "{outcome}");
    for closed in ["of-alice/", "of-root/"] {
        let outcome = push(closed);
        assert!(outcome.code != 0 && outcome.stderr.contains("ermission denied"), "{outcome}");
    }
    assert_eq!(fs::read_dir(house.path("of-alice")).unwrap().count(), 0);
    // A link at the daemon leads nowhere that the user may not go.
    files::link("/etc/shadow", house.path("link"));
    assert!(pull(&house.alice, "link/").code != 0);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn partials_are_their_users_alone_and_are_gone_on_with() {
    for protect in PROTECTIONS {
        let house = House::new();
        house.make_dir("both", (0, TEAM), 0o2770);
        files::make(house.alice.path("f"), 1, 64 * MIB);
        let running = house.begun(&house.alice, ["--protect", protect, "f", &house.url("both/")]);
        running.signal(Signal::KILL);
        running.finish();
        house.daemon.wait_log("ended: push to data/both");
        let shelf = house.path(".longhaul-61001");
        assert_eq!((owner(&shelf), fs::metadata(&shelf).unwrap().mode() & 0o777), ((ALICE, ALICE), 0o700));
        let left: Vec<_> = fs::read_dir(house.path("both")).unwrap().flatten().map(|entry| entry.path()).collect();
        let [partial] = left.as_slice() else { panic!("one partial: {left:?}") };
        let meta = fs::metadata(partial).unwrap();
        assert_eq!((meta.uid(), meta.mode() & 0o077), (ALICE, 0), "{meta:?}");
        // Another client's key finds nothing to go on with, and takes nothing away.
        files::make(house.bob.path("f"), 1, 64 * MIB);
        let other = house.bob.run(["push", "--json", "--protect", protect, "f", &house.url("both/")]).succeed();
        assert_eq!(other.summary()["bytes_resumed"].as_u64(), Some(0), "{other}");
        assert!(partial.exists() && shelf.exists(), "{other}");
        fs::remove_file(house.path("both/f")).unwrap();
        let again = house.alice.run(["push", "--json", "--protect", protect, "f", &house.url("both/")]).succeed();
        assert!(again.summary()["bytes_resumed"].as_u64().unwrap() > 0, "{again}");
        assert_eq!(owner(house.path("both/f")), (ALICE, TEAM));
        assert!(fs::read(house.path("both/f")).unwrap() == fs::read(house.alice.path("f")).unwrap());
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_shelf_that_is_not_its_users_is_never_believed() {
    let house = House::new();
    for (make, said) in [
        (&|path: &Path| fs::create_dir(path).unwrap() as (), "root's"),
        (&|path: &Path| files::link("/tmp", path), "a link"),
        (&|path: &Path| files::write(path, "x"), "a file"),
    ] as [(&dyn Fn(&Path), &str); 3]
    {
        let shelf = house.path(".longhaul-61001");
        make(&shelf);
        files::make(house.alice.path("f"), 1, 3 * MIB);
        let before = fs::symlink_metadata(&shelf).unwrap();
        house.alice.run(["push", "f", &house.url("in/")]).succeed();
        let after = fs::symlink_metadata(&shelf).unwrap();
        assert_eq!((before.ino(), before.mtime(), before.mode()), (after.ino(), after.mtime(), after.mode()), "{said}");
        let remove = if before.is_dir() { fs::remove_dir(&shelf) } else { fs::remove_file(&shelf) };
        remove.unwrap();
        fs::remove_file(house.path("in/f")).unwrap();
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_process_that_is_killed_ends_its_own_sessions_alone_and_its_client_goes_on() {
    let house = House::new();
    // It takes 12 s, in which the other one begins, however busy the host.
    files::make(house.alice.path("f"), 1, 48 * MIB);
    files::make(house.bob.path("f"), 2, 24 * MIB);
    let of_alice = house.begun(&house.alice, ["f", &house.url("a/")]);
    let of_bob = house.begun(&house.bob, ["f", &house.url("b/")]);
    house.deputy(ALICE).kill();
    house.daemon.wait_log("a process for a user of this host is over");
    let (of_alice, of_bob) = (of_alice.fail(0), of_bob.fail(0));
    assert!(of_alice.stderr.contains("dialling again"), "{of_alice}");
    assert!(!of_bob.stderr.contains("dialling again"), "{of_bob}");
    assert!(of_alice.summary()["bytes_moved"].as_u64().unwrap() < 96 * MIB as u64, "{of_alice}");
    assert!(fs::read(house.path("a/f")).unwrap() == fs::read(house.alice.path("f")).unwrap());
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn no_process_outlives_the_daemon_or_the_broker() {
    for (killed, signal) in [("daemon", Signal::KILL), ("daemon", Signal::TERM), ("broker", Signal::KILL)] {
        let house = House::new();
        files::make(house.alice.path("f"), 1, 64 * MIB);
        let running = house.begun(&house.alice, ["f", &house.url("")]);
        let (broker, deputy) = (house.broker(), house.deputy(ALICE));
        let ends = [broker.end(), deputy.end()];
        match killed {
            "daemon" => house.daemon.signal(signal),
            _ => broker.kill(),
        }
        ends.iter().for_each(wait_gone);
        if killed == "broker" {
            house.daemon.wait_log("the process that starts others for users has ended");
            let refused = house.bob.run(["ls", &house.url("")]).finish();
            assert!(refused.code != 0, "{refused}");
        } else {
            house.daemon.wait_gone();
        }
        drop(running);
        assert!(house.path(".longhaul-61001").exists(), "{killed}: it can be gone on with");
    }
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn an_administrator_sees_and_ends_the_sessions_of_users() {
    let house = House::new();
    files::make(house.alice.path("f"), 1, 64 * MIB);
    let running = house.begun(&house.alice, ["f", &house.url("")]);
    let until = Instant::now() + Duration::from_secs(60);
    let session = loop {
        let told = house.admin(&["sessions", "--json"]).succeed();
        let session = told.events_of("admin_session").remove(0);
        if session["bytes_moved"].as_u64() > Some(0) {
            break session;
        }
        assert!(Instant::now() < until, "{told}");
    };
    assert_eq!(session["client"].as_str(), Some("of alice"));
    assert!(session["what"].as_str().unwrap().starts_with("push to data/"), "{session}");
    assert_eq!(session["session"], running.wait_type("start")["session"]);
    let status = house.admin(&["status", "--json"]).succeed();
    assert!(status.events_of("admin_status")[0]["load"]["memory_bytes"].as_u64() > Some(0), "{status}");
    house.admin(&["kick", session["session"].as_str().unwrap()]).succeed();
    running.wait_stderr("the daemon's administrator ended this session");
    house.daemon.wait_log("busy: the daemon's administrator ended this session");
    running.wait_stderr("connected again");
    house.admin(&["drain"]).succeed();
    files::make(house.bob.path("f"), 2, 1000);
    let refused = house.bob.run(["push", "--retry-for", "0", "f", &house.url("b")]).fail(5);
    assert!(refused.stderr.contains("drained"), "{refused}");
    house.admin(&["drain", "--end"]).succeed();
    house.admin(&["revoke", "of alice"]).succeed();
    let outcome = running.finish();
    assert_eq!(outcome.code, 4, "{outcome}");
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_reload_reaches_the_process_that_starts_others() {
    let house = House::new();
    let carol = Host::new();
    carol.run(["key", "trust", house.daemon.addr(), house.daemon.key()]).succeed();
    files::make(carol.path("f"), 1, 1000);
    let rights = [("data", ALL_RIGHTS)];
    let root = house.server.path("data");
    let rewrite = |config: DaemonConfig| drop(config.write(&house.server));
    let with =
        |line: &str| config(&root, &house.alice, &house.bob).client("of carol", carol.key(), &rights).client_line(line);
    rewrite(with("uid = 61009\ngid = 61009"));
    house.admin(&["reload"]).succeed();
    carol.run(["push", "f", &house.url("c")]).succeed();
    assert_eq!(owner(house.path("c")), (61_009, 61_009));
    for bad in ["uid = 0", "user = 'toor'", "user = 'nobody-of-this-name'"] {
        rewrite(with(bad));
        house.admin(&["reload"]).fail(2);
        carol.run(["ls", &house.url("")]).succeed();
    }
    // Another user from now on: a session of the one before ends.
    rewrite(with("user = 'bob'"));
    house.admin(&["reload"]).succeed();
    carol.run(["push", "f", &house.url("d")]).succeed();
    assert_eq!(owner(house.path("d")), (BOB, BOB));
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_mapping_that_fails_denies() {
    let host = open_host();
    let dir = host.make_dir("dir");
    let rights = [("r", "read")];
    let cases = [
        ("uid = 0", "no client is served as root"),
        ("user = 'root'", "no client is served"),
        ("user = 'toor'", "as which no client is served"),
        ("uid = 997", "name it by user"),
        ("uid = -1", "a number from 1000 on"),
        ("uid = 4294967295", "a number from 1000 on"),
        ("uid = 61009", "give its gid too"),
        ("uid = 61001\ngid = 0", "other than root's"),
        ("gid = 61001", "a client with a uid"),
        ("user = 'alice'\nuid = 61001", "leave one out"),
        ("user = 'wheel'", "primary group of this user is root's"),
        ("user = 'nobody-of-this-name'", "knows no user"),
        ("user = ''", "is not the name of a user"),
        ("user = \"alice\\n\"", "is not the name of a user"),
        ("user = \"al\\u0000ice\"", "is not the name of a user"),
        ("user = '61001'", "is not the name of a user"),
        ("user = 'alice:x'", "is not the name of a user"),
    ];
    for (line, said) in cases {
        let config = DaemonConfig::default().root("r", &dir, "read").client("c", host.key(), &rights).client_line(line);
        let config = config.write(&host);
        for words in [&["serve", "--check-config", "--config"][..], &["serve", "--config"]] {
            let outcome = knowing_users(&host, host.run(words).arg(&config)).fail(2);
            assert!(outcome.stderr.contains(said) && outcome.stderr.contains("serve.toml:"), "{line}: {outcome}");
        }
    }
    for line in ["user = 'local'", "uid = 61001", "uid = 61009\ngid = 61009", "user = 'alice'\ngid = 61100"] {
        let config = DaemonConfig::default().root("r", &dir, "read").client("c", host.key(), &rights).client_line(line);
        let config = config.write(&host);
        knowing_users(&host, host.run(["serve", "--check-config", "--config"]).arg(&config)).succeed();
    }
    let config = DaemonConfig::default().root("r", &dir, "read").client("c", host.key(), &rights);
    let config = config.client_line("uid = 61001").write(&host);
    let unable = host.run(["serve", "--config"]).arg(&config).beneath(["setpriv", "--bounding-set", "-setuid"]);
    let outcome = knowing_users(&host, unable).fail(2);
    assert!(outcome.stderr.contains("may not change to it"), "{outcome}");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
}
