//! Plays one small transfer with each of its calls failed once: whichever fails, all reports are
//! true, and the same command then comes to its end with nothing left.

use rustix::io::Errno;

use super::faults::{Failure, Faults, Nature};
use super::promise::Broken;
use super::rng::Rng;
use super::source::Source;
use super::world::{World, plain_settings, scratch};

/// A large file of a few chunks, small ones, directories and a link.
pub(crate) fn small_tree(dir: &std::path::Path, chunk: usize) -> Source {
    let (mut source, mut rng) = (Source::empty(dir), Rng::new(0, 2));
    source.add_dir("d");
    source.add_dir("d/e");
    for (path, len) in
        [("large", 3 * chunk + 5), ("d/large", chunk + 1), ("d/small", 100), ("d/e/empty", 0), ("small", 7)]
    {
        let bytes = rng.bytes(len);
        source.put(path, bytes, &mut rng);
    }
    source.add_link("link", b"d/small");
    source
}

fn world() -> World {
    let scratch = scratch();
    let source = small_tree(&scratch.path().join("source"), CHUNK as usize);
    World::new(scratch, source, Nature::default(), plain_settings(CHUNK), Rng::new(0, 1))
}

/// Plays that transfer with these faults, then without any. Returns the number of calls that the
/// first of them made.
fn with(faults: Faults) -> Result<u64, Broken> {
    let mut world = world();
    let told = format!("{:?} at {:?}, cut at {:?}:", faults.failure, faults.fail_at, faults.cut_at);
    let before = world.medium.clone();
    world.faulty(faults).map_err(|broken| broken.when(&told))?;
    let calls = before.state().calls;
    world.converge().map_err(|broken| broken.when(&told))?;
    Ok(calls)
}

/// Plays it with a fault at each call, or at each `stride`th.
fn each(stride: usize, fault: impl Fn(u64) -> Faults) {
    let calls = with(Faults::default()).expect("nothing goes wrong");
    assert!(calls > 40, "{calls} calls are too few to be all of them");
    // Threads may make some calls more or less from run to run.
    let broken = (1..=calls + 2).step_by(stride).filter_map(|at| with(fault(at)).err());
    let broken: Vec<String> = broken.map(|broken| broken.to_string()).collect();
    assert!(broken.is_empty(), "{} of {calls} calls broke a promise:\n{}", broken.len(), broken.join("\n"));
}

fn failing(errno: Errno) -> impl Fn(u64) -> Faults {
    move |at| Faults { fail_at: Some(at), failure: Failure::Once(errno), ..Faults::default() }
}

#[test]
fn every_call_that_fails_with_an_io_error_is_recovered_from() {
    each(1, failing(Errno::IO));
}

#[test]
fn calls_that_are_denied_are_recovered_from() {
    each(2, failing(Errno::ACCESS));
}

#[test]
fn calls_on_a_full_disk_are_recovered_from() {
    each(2, failing(Errno::NOSPC));
}

#[test]
fn calls_with_a_stale_handle_are_recovered_from() {
    each(3, failing(Errno::STALE));
}

#[test]
fn interrupted_calls_are_recovered_from() {
    each(3, failing(Errno::INTR));
}

#[test]
fn a_disk_that_fails_from_some_call_on_is_recovered_from() {
    each(2, |at| Faults { fail_at: Some(at), failure: Failure::FromThen(Errno::IO), ..Faults::default() });
}

#[test]
fn a_power_cut_at_each_call_is_recovered_from() {
    each(1, |at| Faults { cut_at: Some(at), ..Faults::default() });
}

const CHUNK: u64 = 4096;
