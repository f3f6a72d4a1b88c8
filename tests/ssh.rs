//! A host that ssh leads to: longhaul is started there and ends with its client, paths mean what
//! they mean to a shell there, and what goes wrong is said. Here ssh is a script that runs its
//! command on this host; `real` has a real sshd, in namespaces, and
//! `far` one at the end of a long path; with `cut` ssh is killed, with `silent` packets vanish.
//! `SSH_RUNS` is the number of runs of which nothing is to be left behind.

mod cut;
mod far;
mod logins;
mod real;
mod silent;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::fixture::tree::{self, Tree};
use crate::fixture::{Host, PROGRAM, Run, files, random};

/// The name of a host to which nothing but ssh leads, and of one that can be dialled.
const FAR: &str = "me@far.invalid";
const NEAR: &str = "localhost";

/// A client, and the home of a user at another host.
struct Hosts {
    client: Host,
    server: Host,
    ssh: PathBuf,
}

impl Hosts {
    fn new() -> Hosts {
        Hosts::saying("")
    }

    /// A host whose shell runs these commands before each one that it is given.
    fn saying(first: &str) -> Hosts {
        let (client, server) = (Host::new(), Host::new());
        // Of this name, so that it is asked which host it dials.
        let ssh = client.make_dir("bin").join("ssh");
        let home = server.make_dir("home");
        let script = format!(
            "#!/bin/sh\nconfig=\nwhile :; do case \"$1\" in -G) config=1; shift;; --) shift; break;; -*) shift;; *) break;; \
             esac; done\nif [ \"$config\" ]; then echo \"hostname ${{1#*@}}\"; exit; fi\nshift\ncd '{home}'\nHOME='{home}' SSH_CONNECTION='127.0.0.1 1 127.0.0.1 22'\n\
             export HOME SSH_CONNECTION\nunset XDG_CACHE_HOME\n{first}\nexec sh -c \"$*\"\n",
            home = home.display()
        );
        files::write(&ssh, script);
        files::set_mode(&ssh, 0o755);
        Hosts { client, server, ssh }
    }

    fn home(&self) -> PathBuf {
        self.server.path("home")
    }

    fn run(&self, verb: &str) -> Run {
        self.run_there(verb, PROGRAM)
    }

    /// A command for which longhaul lies at this path of the other host.
    fn run_there(&self, verb: &str, longhaul: &str) -> Run {
        let run = self.client.run([verb, "--json", "--remote-longhaul", longhaul, "--ssh"]);
        run.arg(&self.ssh)
    }

    /// Processes that serve this client.
    fn serving(&self) -> Vec<u32> {
        let home = self.home();
        let of = |entry: fs::DirEntry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let line = fs::read(entry.path().join("cmdline")).ok()?;
            let cwd = fs::read_link(entry.path().join("cwd")).ok()?;
            (cwd == home && line.windows(10).any(|part| part == b"--ssh-only")).then_some(pid)
        };
        fs::read_dir("/proc").unwrap().filter_map(|entry| of(entry.ok()?)).collect()
    }

    /// Waits until nobody serves any more.
    fn assert_ends(&self) {
        let until = Instant::now() + Duration::from_secs(30);
        while !self.serving().is_empty() {
            assert!(Instant::now() < until, "still there: {:?}", self.serving());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A tree with names that a shell would take for something else.
fn make_tree(top: &Path) {
    files::make(top.join("big"), 1, (9 << 20) + 5);
    files::make(top.join("a b/it's \"$HOME\" `x`\n;*"), 2, 77);
    files::make(top.join("-n/empty"), 3, 0);
    fs::write(top.join(OsStr::from_bytes(b"\xff\xfe")), "bytes").unwrap();
}

#[test]
fn a_tree_goes_there_and_back_straight_and_through_ssh_alone() {
    for host in [NEAR, FAR] {
        let hosts = Hosts::new();
        let dir = hosts.client.make_dir("t $(x)'");
        make_tree(&dir);
        let there = format!("{host}:sub dir/it's/");
        let outcome = hosts.run("push").args(["t $(x)'", &there]).succeed();
        let start = &outcome.events_of("start")[0];
        assert_eq!(start["transport"] == "ssh", host == FAR, "{outcome}");
        let stands = hosts.home().join("sub dir/it's/t $(x)'");
        tree::assert_same(&Tree::of(&dir), &Tree::of(&stands), &outcome);
        let from = format!("{host}:sub dir/it's/t $(x)'");
        let outcome = hosts.run("pull").args([&from, "back/"]).succeed();
        let back = hosts.client.path("back/t $(x)'");
        tree::assert_same(&Tree::of(&dir), &Tree::of(&back), &outcome);
        hosts.assert_ends();
        assert_eq!(tree::leftovers(hosts.home()), [""; 0]);
    }
}

#[test]
fn paths_mean_what_they_mean_to_a_shell_there() {
    let hosts = Hosts::new();
    files::make(hosts.client.path("f"), 1, 1000);
    let real = hosts.server.make_dir("elsewhere");
    files::link(&real, hosts.home().join("link"));
    let absolute = hosts.server.path("abs/new");
    for (to, stands) in [
        ("".to_owned(), hosts.home().join("f")),
        ("~/x/".to_owned(), hosts.home().join("x/f")),
        ("named".to_owned(), hosts.home().join("named")),
        ("link".to_owned(), real.join("f")),
        ("link/../up".to_owned(), hosts.server.path("up")),
        (format!("{}/", absolute.display()), absolute.join("f")),
    ] {
        let outcome = hosts.run("push").args(["f", &format!("{NEAR}:{to}")]).succeed();
        assert!(stands.exists(), "{to}: {outcome}");
        assert!(hosts.home().join("link").is_symlink(), "{to}");
    }
    let outcome = hosts.run("pull").args([&format!("{NEAR}:link/"), "got/"]).succeed();
    assert!(hosts.client.path("got/f").exists(), "{outcome}");
    let listed = hosts.run("ls").arg(format!("{NEAR}:")).succeed();
    for name in ["f", "x", "named", "link"] {
        assert!(listed.stdout_text().contains(&format!("\"{name}\"")), "{listed}");
    }
}

#[test]
fn what_is_not_there_is_3_and_named_with_its_host() {
    let hosts = Hosts::new();
    let outcome = hosts.run("pull").args([&format!("{NEAR}:no/such"), "d"]).fail(3);
    assert!(outcome.stderr.contains("localhost:no/such"), "{outcome}");
    assert!(!hosts.client.path("d").exists());
    let outcome = hosts.run("ls").arg(format!("{NEAR}:nothing")).fail(3);
    assert!(outcome.stderr.contains("nothing"), "{outcome}");
    hosts.assert_ends();
}

#[test]
fn a_push_that_is_killed_goes_on_by_the_same_command_and_its_far_process_ends() {
    for host in [NEAR, FAR] {
        let hosts = Hosts::new();
        let len = 48 << 20;
        files::make(hosts.client.path("f"), 1, len);
        let to = format!("{host}:d/");
        let push = || hosts.run("push").args(["--rate", "12MB/s", "--chunk-size", "1MiB", "f", &to]);
        let running = push().start();
        running.wait_event(|event| event["bytes_durable"].as_u64().filter(|bytes| *bytes >= 4 << 20));
        running.signal(Signal::KILL);
        drop(running);
        hosts.assert_ends();
        let outcome = hosts.run("push").args(["f", &to]).succeed();
        let resumed = outcome.summary()["bytes_resumed"].as_u64().unwrap();
        assert!(resumed >= 4 << 20 && resumed < len as u64, "{resumed}: {outcome}");
        tree::assert_same(&Tree::of(hosts.client.path("f")), &Tree::of(hosts.home().join("d/f")), &outcome);
        assert_eq!(tree::leftovers(hosts.home().join("d")), [""; 0]);
    }
}

#[test]
fn a_run_whose_ssh_is_killed_starts_it_again_and_goes_on() {
    let hosts = Hosts::new();
    files::make(hosts.client.path("f"), 1, 32 << 20);
    let push = hosts.run("push").args(["--rate", "8MB/s", "--chunk-size", "1MiB", "f", &format!("{FAR}:d/")]);
    let running = push.start();
    running.wait_event(|event| event["bytes_durable"].as_u64().filter(|bytes| *bytes >= 4 << 20));
    let pids = hosts.serving();
    assert!(!pids.is_empty());
    for pid in pids {
        let _ = rustix::process::kill_process(rustix::process::Pid::from_raw(pid as i32).unwrap(), Signal::KILL);
    }
    let outcome = running.fail(0);
    let moved = outcome.summary()["bytes_moved"].as_u64().unwrap();
    assert!(moved < (32 << 20) + (20 << 20), "what was durable is not sent again: {outcome}");
    tree::assert_same(&Tree::of(hosts.client.path("f")), &Tree::of(hosts.home().join("d/f")), &outcome);
    hosts.assert_ends();
}

#[test]
fn what_start_files_of_the_shell_there_print_does_no_harm() {
    let hosts = Hosts::saying("echo Welcome to node7; printf 'no end of line'");
    files::make(hosts.client.path("f"), 1, 1000);
    hosts.run("push").args(["f", &format!("{NEAR}:")]).succeed();
    assert!(hosts.home().join("f").exists());
}

#[test]
fn a_longhaul_that_is_missing_or_of_another_form_is_7_and_says_what_to_do() {
    let hosts = Hosts::new();
    files::make(hosts.client.path("f"), 1, 10);
    let to = format!("{NEAR}:");
    let outcome = hosts.run_there("push", "/no such/longhaul").args(["f", &to]).fail(7);
    assert!(outcome.stderr.contains("--install"), "{outcome}");
    let other = hosts.server.path("other");
    files::write(&other, "#!/bin/sh\nprintf '\\nlonghaul-ssh 99\\n'\ncat >/dev/null\n");
    files::set_mode(&other, 0o755);
    let outcome = hosts.run_there("push", other.to_str().unwrap()).args(["f", &to]).fail(7);
    assert!(outcome.stderr.contains("one version"), "{outcome}");
    let old = hosts.server.path("old");
    files::write(&old, "#!/bin/sh\necho \"unexpected argument '--ssh-only'\" >&2\nexit 2\n");
    files::set_mode(&old, 0o755);
    let outcome = hosts.run_there("push", old.to_str().unwrap()).args(["f", &to]).fail(7);
    assert!(outcome.stderr.contains("older version"), "{outcome}");
    assert!(!hosts.home().join("f").exists());
}

#[test]
fn an_ssh_that_is_not_there_or_fails_is_told_with_its_own_words() {
    let host = Host::new();
    files::make(host.path("f"), 1, 10);
    host.run(["push", "--ssh", "/no/such/ssh", "f", "h:"]).fail(2);
    let fails = host.path("fails");
    files::write(&fails, "#!/bin/sh\nprintf 'me@h: Permission denied (publickey).\\033[2J\\n' >&2\nexit 255\n");
    files::set_mode(&fails, 0o755);
    let outcome = host.run(["push", "--json", "--ssh", fails.to_str().unwrap(), "f", "h:"]).fail(4);
    assert!(outcome.stderr.contains("Permission denied"), "{outcome}");
    assert!(!outcome.stderr.contains('\x1b'), "{outcome}");
}

#[test]
fn with_install_this_program_is_put_there_once_and_what_is_not_it_is_not_run() {
    let hosts = Hosts::new();
    files::make(hosts.client.path("f"), 1, 100);
    let push = || {
        let run = hosts.client.run(["push", "--json", "--if-exists", "replace", "--install", "--ssh"]);
        run.arg(&hosts.ssh).args(["f", &format!("{NEAR}:")]).succeed()
    };
    assert!(push().stderr.contains("putting longhaul"));
    let cache = hosts.home().join(".cache/longhaul");
    let dirs: Vec<_> = fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(dirs.len(), 1);
    assert_eq!(dirs[0].file_name().unwrap().to_str().unwrap(), files::b3sum(PROGRAM));
    assert!(!push().stderr.contains("putting longhaul"), "it is there");
    let file = dirs[0].join("longhaul");
    files::write(file.with_extension("new"), "#!/bin/sh\ntouch ran\n");
    files::set_mode(file.with_extension("new"), 0o700);
    fs::rename(file.with_extension("new"), &file).unwrap();
    assert!(push().stderr.contains("putting longhaul"), "it was changed");
    assert!(!hosts.home().join("ran").exists());
    assert_eq!(files::b3sum(&file), files::b3sum(PROGRAM));
}

#[test]
fn a_forced_command_confines_its_key_to_one_directory_and_its_rights() {
    let hosts = Hosts::new();
    let only = hosts.home().join("only");
    fs::create_dir(&only).unwrap();
    files::write(only.join("stands"), "old");
    files::write(hosts.home().join("secret"), "secret");
    files::link(hosts.home(), only.join("out"));
    files::make(hosts.client.path("f"), 1, 1000);
    files::make(hosts.client.path("stands"), 2, 5);
    // As sshd does it: whatever the client asks for, this is run.
    let forced = hosts.client.make_dir("forced").join("ssh");
    let script = fs::read_to_string(&hosts.ssh)
        .unwrap()
        .replace("exec sh -c \"$*\"", &format!("exec '{PROGRAM}' serve --ssh-only only:read,create"));
    files::write(&forced, script);
    files::set_mode(&forced, 0o755);
    let run = |verb: &str| hosts.client.run([verb, "--json", "--ssh", forced.to_str().unwrap()]);
    for (to, stands) in [("", "f"), ("/deep/er/", "deep/er/f"), ("~/x", "x")] {
        let outcome = run("push").args(["f", &format!("{NEAR}:{to}")]).succeed();
        assert!(only.join(stands).exists(), "{to}: {outcome}");
    }
    run("push").args(["f", &format!("{NEAR}:../")]).fail(4);
    run("pull").args([&format!("{NEAR}:../secret"), "got"]).fail(4);
    run("pull").args([&format!("{NEAR}:out/secret"), "got"]).fail(23);
    assert!(!hosts.client.path("got").exists());
    run("push").args(["--protect", "safe", "f", &format!("{NEAR}:")]).fail(4);
    run("push").args(["f", &format!("{NEAR}:.longhaul/x")]).fail(4);
    run("push").args(["--if-exists", "replace", "stands", &format!("{NEAR}:")]).fail(4);
    assert_eq!(fs::read(only.join("stands")).unwrap(), b"old");
    let listed = run("ls").arg(format!("{NEAR}:")).succeed();
    assert!(listed.stdout_text().contains("\"deep\"") && !listed.stdout_text().contains("secret"), "{listed}");
    hosts.assert_ends();
}

#[test]
fn a_forced_command_that_confines_to_nothing_or_to_the_home_is_refused() {
    let hosts = Hosts::new();
    let serve = |words: &[&str]| {
        let run = hosts.client.run(["serve", "--ssh-only"]).args(words).env("HOME", hosts.home());
        run.env("SSH_ORIGINAL_COMMAND", "longhaul serve --ssh-only").fail(2)
    };
    let home = hosts.home();
    let home = home.to_str().unwrap();
    serve(&[]);
    serve(&[""]);
    assert!(serve(&[&format!("{home}:read,create")]).stderr.contains("may do everything"));
    // No names are moved away over ssh.
    assert!(serve(&["only:read,delete"]).stderr.contains("read, create, modify"));
    serve(&[&format!("{home}/..:create")]);
}

#[test]
fn lanes_without_encryption_and_over_quic_go_to_a_host_that_ssh_leads_to() {
    let hosts = Hosts::new();
    files::make(hosts.client.path("f"), 1, 9 << 20);
    for (n, options) in [["--protect", "safe"], ["--transport", "quic"], ["--lanes", "16"]].iter().enumerate() {
        for host in [NEAR, FAR] {
            let to = format!("{host}:{n}/");
            let outcome = hosts.run("push").args(options).args(["f", &to]).succeed();
            tree::assert_same(
                &Tree::of(hosts.client.path("f")),
                &Tree::of(hosts.home().join(n.to_string()).join("f")),
                &outcome,
            );
            let outcome =
                hosts.run("pull").args(options).args([&format!("{to}f"), &format!("got{n}{host}/")]).succeed();
            assert_eq!(outcome.summary()["files_committed"], 1, "{outcome}");
        }
    }
}

#[test]
fn lanes_over_udp_go_straight_to_a_host_that_ssh_leads_to_and_others_where_they_cannot() {
    let hosts = Hosts::new();
    files::make(hosts.client.path("f"), 1, (9 << 20) + 1);
    for (host, transport) in [(NEAR, "udp"), (FAR, "ssh")] {
        let to = format!("{host}:{transport}/");
        let push = hosts.run("push").args(["--transport", "udp", "f", &to]).succeed();
        assert_eq!(push.events_of("start")[0]["transport"], transport, "{push}");
        tree::assert_same(&Tree::of(hosts.client.path("f")), &Tree::of(hosts.home().join(transport).join("f")), &push);
        let got = format!("got {transport}");
        let pull = hosts.run("pull").args(["--transport", "udp", &format!("{to}f"), &got]).succeed();
        assert_eq!(pull.events_of("start")[0]["transport"], transport, "{pull}");
        tree::assert_same(&Tree::of(hosts.client.path("f")), &Tree::of(hosts.client.path(&got)), &pull);
    }
}

#[test]
fn what_no_file_may_be_called_is_2_and_means_nothing_else() {
    let hosts = Hosts::new();
    files::make(hosts.client.path("f"), 1, 10);
    for to in ["data/.longhaul-x", ".longhaul"] {
        hosts.run("push").args(["f", &format!("{NEAR}:{to}")]).fail(2);
        hosts.run("pull").args([&format!("{NEAR}:{to}"), "got"]).fail(2);
    }
    assert!(!hosts.home().join("f").exists());
}

#[test]
fn lanes_take_the_addresses_that_the_user_names_also_where_ssh_leads_to_none() {
    let hosts = Hosts::new();
    files::make(hosts.client.path("f"), 1, 9 << 20);
    let paths = ["--path", "127.0.0.1=127.0.0.2", "--path", "127.0.0.1=127.0.0.3", "--lanes", "4"];
    for host in [NEAR, FAR] {
        let to = format!("{host}:d {host}/");
        // On a busy machine lanes may come so late that the run begins over ssh.
        let carried = |outcome: &crate::fixture::Outcome| {
            let paths = outcome.summary()["paths"].as_array().unwrap().clone();
            assert_eq!(paths.len(), 2, "{outcome}");
            paths.iter().map(|path| path["bytes"].as_u64().unwrap()).sum::<u64>()
        };
        let push = hosts.run("push").args(paths).args(["f", &to]).succeed();
        assert!(carried(&push) >= 9 << 20, "{push}");
        let pull = hosts.run("pull").args(paths).args([&format!("{to}f"), &format!("got {host}/")]).succeed();
        assert!(carried(&pull) >= 9 << 20, "{pull}");
    }
    // One that is not there carries nothing, and the other one carries everything.
    let odd = ["--path", "127.0.0.1=192.0.2.1", "--path", "127.0.0.1=127.0.0.2", "--lanes", "2"];
    hosts.run("push").args(odd).args(["f", &format!("{NEAR}:odd/")]).succeed();
    hosts.assert_ends();
}

#[test]
fn the_summary_says_what_went_through_ssh_and_what_that_cost() {
    let hosts = Hosts::new();
    files::make(hosts.client.path("f"), 1, 9 << 20);
    let through = |host: &str| {
        let outcome = hosts.run("push").args(["--if-exists", "replace", "f", &format!("{host}:")]).succeed();
        assert!(outcome.summary()["ssh"]["cpu_s"].is_number(), "{outcome}");
        (outcome.summary()["ssh"]["bytes"].as_u64().unwrap(), outcome.stderr)
    };
    let (bytes, said) = through(FAR);
    assert!(bytes > 9 << 20 && said.contains("through ssh at"), "{bytes}: {said}");
    let (bytes, said) = through(NEAR);
    assert!(bytes < 1 << 20 && !said.contains("through ssh at"), "{bytes}: {said}");
}

#[test]
fn many_runs_leave_no_process_and_no_file_behind() {
    let hosts = Hosts::new();
    files::make(hosts.client.path("f"), 1, 5000);
    for n in 0..random::variable("SSH_RUNS").unwrap_or(10) {
        let host = if n % 2 == 0 { NEAR } else { FAR };
        hosts.run("push").args(["f", &format!("{host}:d/{n}")]).succeed();
    }
    hosts.assert_ends();
    assert_eq!(tree::leftovers(hosts.home()), [""; 0]);
}
