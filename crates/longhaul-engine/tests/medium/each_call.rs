//! One small transfer, with each of its calls failed once: whatever fails, what is said is true, and the same command then
//! comes to its end with nothing left.

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

/// The calls of that transfer, and what is left of it.
fn with(failure: Option<(u64, Errno)>) -> Result<u64, Broken> {
    let mut world = world();
    let faults = match failure {
        Some((at, errno)) => Faults { fail_at: Some(at), failure: Failure::Once(errno), ..Faults::default() },
        None => Faults::default(),
    };
    world.faulty(faults)?;
    let calls = world.medium.state().calls;
    world.converge().map_err(|broken| broken.when(&format!("{failure:?}:")))?;
    Ok(calls)
}

/// Fails each call with this error, and with it only those of which `of` thinks so.
fn each(errno: Errno, stride: usize) {
    let calls = with(None).expect("nothing goes wrong");
    assert!(calls > 40, "{calls} calls are too few to be all of them");
    // Threads may make some calls more or less from run to run.
    let broken: Vec<String> =
        (1..=calls + 2).step_by(stride).filter_map(|at| with(Some((at, errno))).err()).map(|b| b.to_string()).collect();
    assert!(broken.is_empty(), "{} of {calls} calls that failed broke a promise:\n{}", broken.len(), broken.join("\n"));
}

#[test]
fn every_call_that_fails_with_an_io_error_is_recovered_from() {
    each(Errno::IO, 1);
}

#[test]
fn calls_that_are_denied_are_recovered_from() {
    each(Errno::ACCESS, 2);
}

#[test]
fn calls_on_a_full_disk_are_recovered_from() {
    each(Errno::NOSPC, 2);
}

#[test]
fn calls_with_a_stale_handle_are_recovered_from() {
    each(Errno::STALE, 3);
}

const CHUNK: u64 = 4096;
