//! The queue's file: that it answers as the store in memory does, survives `kill -9`, and keeps
//! what it has to keep as it has to.
//!
//! In: files in directories of their own. Out: their rows. Must not know statements.

#![allow(clippy::disallowed_methods, reason = "the tests make files of their own")]

mod file;
mod kills;
mod random;
mod same;
mod scale;
