//! The queue's file: that it answers as the store in memory does, survives `kill -9`, and keeps
//! what it has to keep as it has to.
//!
//! In: files in directories of their own. Out: their rows. Must not know statements.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests make files of their own, and stop at the first failure"
)]

#[allow(dead_code, reason = "tests of the next schema use the rest of it")]
mod continued;
mod file;
mod kills;
mod older;
mod pair;
mod random;
mod same;
mod scale;
