//! Runs the real engine and the real disk crate on a medium that loses, tears and fails. Programs
//! see a scratch directory; the bytes that would survive are kept in memory and decide whether a
//! promise was kept.
//!
//! `worlds` plays many worlds, each from a seed: `MEDIUM_WORLDS` is their number (300),
//! `MEDIUM_FROM` the first, and `MEDIUM_SEED=7` plays one and prints its steps. A seed fixes a
//! world's files, settings and faults; threads are the system's, so their order is not the same in
//! each play. It needs no root rights.
#![allow(clippy::disallowed_methods, reason = "tests set their scratch up and look at it directly")]

mod altered;
mod check;
mod each_call;
mod errors;
mod faults;
mod model;
mod mutants;
mod order;
mod promise;
mod rng;
mod run;
mod source;
mod state;
mod syncing;
mod view;
mod world;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use faults::Mutant;
use promise::Broken;
use world::{Tallies, play};

#[test]
fn worlds() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let (from, count) = match number("MEDIUM_SEED") {
        Some(seed) => (seed, number("MEDIUM_WORLDS").unwrap_or(1)),
        None => (number("MEDIUM_FROM").unwrap_or(0), number("MEDIUM_WORLDS").unwrap_or(300)),
    };
    let again = number("MEDIUM_AGAIN").unwrap_or(0);
    let (seen, failures) = play_many(from, count, None, again > 0);
    println!("{count} worlds from {from}: {seen:?}");
    let told: Vec<String> = failures.iter().map(Broken::to_string).collect();
    assert!(told.is_empty(), "{} of {count} worlds broke a promise:\n{}", told.len(), told.join("\n"));
    let plays_enough = seen.cuts > 0 && seen.losses > 0 && seen.owed > 0 && seen.failed > 0;
    assert!(plays_enough || count < 100, "these worlds have seen too little: {seen:?}");
}

/// Plays worlds side by side, until one fails or, if `all`, to the end.
fn play_many(from: u64, count: u64, mutant: Option<Mutant>, all: bool) -> (Tallies, Vec<Broken>) {
    let (next, stop) = (AtomicU64::new(from), AtomicBool::new(false));
    let (sum, failures) = (Mutex::new(Tallies::default()), Mutex::new(Vec::new()));
    let work = || {
        while !stop.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= from + count {
                break;
            }
            match play(seed, mutant) {
                Ok(seen) => sum.lock().expect("no panic").add(&seen),
                Err(broken) => {
                    stop.store(!all, Ordering::Relaxed);
                    failures.lock().expect("no panic").push(broken);
                }
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from) * 2;
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    (sum.into_inner().expect("no panic"), failures.into_inner().expect("no panic"))
}

impl Tallies {
    fn add(&mut self, other: &Tallies) {
        self.runs += other.runs;
        self.cuts += other.cuts;
        self.losses += other.losses;
        self.resumed += other.resumed;
        self.owed += other.owed;
        self.committed += other.committed;
        self.failed += other.failed;
    }
}
