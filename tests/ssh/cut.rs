//! An ssh that is killed while a real sshd serves it: the run goes on by itself, and where it was
//! killed too it goes on by the same command. Needs root.

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use super::real::{Site, wait_until};
use crate::fixture::tree::{self, Tree};
use crate::fixture::{Outcome, Running, files};

const LEN: u64 = 64 << 20;

/// Bytes that were durable, at least so many, when more than that were there.
fn wait_for_unsynced(running: &Running, least: u64) -> u64 {
    running.wait_event(|event| {
        let (durable, received) = (event["bytes_durable"].as_u64()?, event["bytes_received"].as_u64()?);
        (durable >= least && received >= durable + (2 << 20)).then_some(durable)
    })
}

/// Signals processes. One may have ended by itself, as an ssh does whose far end was killed.
fn kill(pids: &[u32], signal: Signal) {
    for pid in pids {
        let told = kill_process(Pid::from_raw(*pid as i32).unwrap(), signal);
        assert!(matches!(told, Ok(()) | Err(Errno::SRCH)), "{pid}: {told:?}");
    }
}

fn number(outcome: &Outcome, name: &str) -> u64 {
    outcome.summary()[name].as_u64().unwrap()
}

/// A push of 64 MiB that takes some seconds, to a host at which no port for lanes is open.
fn push(site: &Site) -> Running {
    files::make(site.client.path("f"), 1, LEN as usize);
    let to = site.server.path("d");
    let run = site.run("push").args(["--rate", "12MB/s", "--chunk-size", "1MiB"]);
    run.args(["f", &format!("far:{}/", to.display())]).start()
}

fn closed() -> Site {
    let site = Site::new();
    site.net.close("near", true);
    site.net.close("far", true);
    site
}

fn assert_whole(site: &Site, outcome: &Outcome) {
    let to = site.server.path("d/f");
    tree::assert_same(&Tree::of(site.client.path("f")), &Tree::of(&to), outcome);
    let told = outcome.events_of("file").into_iter().find_map(|file| file["b3"].as_str().map(str::to_owned));
    assert_eq!(told.as_deref(), Some(files::b3sum(&to).as_str()), "{outcome}");
    assert_eq!(tree::leftovers(site.server.path("d")), [""; 0]);
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn an_ssh_that_is_killed_is_started_again_and_what_was_durable_is_not_sent_again() {
    let site = closed();
    let running = push(&site);
    wait_for_unsynced(&running, LEN / 2);
    kill(&site.ssh_of(&running), Signal::KILL);
    let outcome = running.fail(0);
    let moved = number(&outcome, "bytes_moved");
    // Two seconds of it were on their way or not synced, but not half of the file.
    assert!(moved < LEN + LEN * 7 / 16, "{moved}: {outcome}");
    assert_whole(&site, &outcome);
    wait_until("the far processes end", || site.serving().is_empty());
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn a_run_waits_for_its_own_far_process_that_has_not_ended_yet() {
    let site = closed();
    let running = push(&site);
    wait_for_unsynced(&running, 4 << 20);
    // It holds the journal, and cannot end.
    let earlier = site.serving();
    kill(&earlier, Signal::STOP);
    kill(&site.ssh_of(&running), Signal::KILL);
    wait_until("another far process is there", || site.serving().len() > earlier.len());
    // The only way to see that it waits is to let it.
    std::thread::sleep(std::time::Duration::from_secs(5));
    kill(&earlier, Signal::CONT);
    let outcome = running.fail(0);
    assert_eq!(number(&outcome, "files_committed"), 1, "{outcome}");
    // It waits over there, and is not turned away to come again.
    assert_eq!(outcome.stderr.matches("dialling again").count(), 1, "{outcome}");
    assert_whole(&site, &outcome);
    wait_until("the far processes end", || site.serving().is_empty());
}

#[test]
#[ignore = "needs root: run by .ci/run"]
fn what_was_not_synced_when_all_were_killed_comes_again_by_the_same_command() {
    let site = closed();
    let running = push(&site);
    let durable = wait_for_unsynced(&running, 4 << 20);
    // None of them may put anything in order.
    let (far, ssh) = (site.serving(), site.ssh_of(&running));
    kill(&far, Signal::KILL);
    running.signal(Signal::KILL);
    kill(&ssh, Signal::KILL);
    drop(running);
    wait_until("the far processes end", || site.serving().is_empty());
    assert!(!site.server.path("d/f").exists());
    let outcome = push(&site).fail(0);
    let resumed = number(&outcome, "bytes_resumed");
    assert!((durable..LEN).contains(&resumed), "{resumed} of {durable} and more: {outcome}");
    assert_whole(&site, &outcome);
}
