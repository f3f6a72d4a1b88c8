//! Tests of the program: its command's environment, its exit codes, its counters, and that no
//! process is left behind. Takes the built binary.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::kit::until;

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_longhaul-wan"))
}

#[test]
#[ignore = "needs root"]
fn the_command_runs_on_the_near_host_and_its_exit_code_is_the_programs() {
    let script = "test $WAN_NEAR = 10.77.0.1 && test $WAN_FAR_1 = 10.77.1.2 && grep -q wan1 /proc/net/dev && exit 41";
    let links = ["--link", "rate=1Gbit/s", "--link", "rate=2Gbit/s"];
    let status = program().args(links).args(["--", "sh", "-c", script]).status().unwrap();
    assert_eq!(status.code(), Some(41));
    let status = program().args(["--", "sh", "-c", "kill -9 $$"]).status().unwrap();
    assert_eq!(status.code(), Some(137));
}

#[test]
#[ignore = "needs root"]
fn the_counters_say_what_the_hosts_said_to_each_other() {
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("counters.json");
    // The shell's own way to send a datagram, to a port where no program listens: an ICMP error
    // comes back.
    let words = ["--seed", "5", "--", "bash", "-c", "echo hello > /dev/udp/$WAN_FAR/9; sleep 0.2"];
    let status = program().arg("--counters").arg(&file).args(words).status().unwrap();
    assert!(status.success());
    let said: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let link = &said["links"][0];
    assert_eq!((&said["v"], &said["seed"]), (&1.into(), &5.into()));
    assert_eq!(link["forward"]["delivered_packets"], 1, "{said}");
    assert_eq!(link["forward"]["bytes"], 28 + 6, "{said}");
    assert_eq!(link["backward"]["packets"], 1, "{said}");
}

#[test]
#[ignore = "needs root"]
fn the_far_line_runs_beside_the_command_and_ends_with_it() {
    let scratch = tempfile::tempdir().unwrap();
    let (pid, seen) = (scratch.path().join("pid"), scratch.path().join("seen"));
    let line = format!("sleep 60 & echo $! > {}; grep -o wan0 /proc/net/dev > {}; wait", pid.display(), seen.display());
    let wait = format!("until test -s {}; do sleep 0.01; done", seen.display());
    let status = program().args(["--far", &line, "--", "sh", "-c", &wait]).status().unwrap();
    assert!(status.success());
    let sleeper = std::fs::read_to_string(pid).unwrap();
    until(|| !is_running(sleeper.trim()));
}

#[test]
#[ignore = "needs root"]
fn nothing_is_left_when_the_program_is_killed() {
    let words = ["--far", "echo $$; exec sleep 60", "--", "sh", "-c", "echo $$; exec sleep 60"];
    let mut wan = program().args(words).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = BufReader::new(wan.stdout.take().unwrap()).lines();
    let pids: Vec<_> = (0..2).map(|_| said.next().unwrap().unwrap()).collect();
    assert!(pids.iter().all(|pid| is_running(pid)), "{pids:?}");
    wan.kill().unwrap();
    wan.wait().unwrap();
    until(|| !pids.iter().any(|pid| is_running(pid)));
}

#[test]
#[ignore = "needs root"]
fn who_may_not_make_networks_is_told_what_is_needed() {
    let home = tempfile::tempdir_in("/tmp").unwrap();
    let copy = home.path().join("longhaul-wan");
    std::fs::copy(env!("CARGO_BIN_EXE_longhaul-wan"), &copy).unwrap();
    std::fs::set_permissions(home.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let ran = Command::new(&copy).args(["--", "id", "-u"]).uid(65_534).gid(65_534).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    if ran.status.success() {
        // This kernel lets every user make them: the command keeps its own user.
        assert_eq!(String::from_utf8_lossy(&ran.stdout).trim(), "65534");
    } else {
        assert_eq!(ran.status.code(), Some(2), "{said}");
        assert!(said.contains("this needs root, or unprivileged user namespaces"), "{said}");
    }
}

#[test]
fn what_is_not_understood_ends_with_code_2_and_says_how_it_is_written() {
    let ran = program().args(["--rate", "fast", "--", "true"]).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(2), "{said}");
    assert!(said.contains(r#"no rate: "fast"; it is written like 1Gbit/s"#), "{said}");
}

/// Whether a process runs. A zombie does not: it waits for the process that inherited it.
fn is_running(pid: &str) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}
