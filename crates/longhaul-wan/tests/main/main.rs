//! Tests of the emulated network as programs meet it, against its settings. Needs root: `cargo test
//! -p longhaul-wan -- --ignored`.
//!
//! Bounds of times are wide, as a busy machine is late; packets are counted exactly where they can
//! be.

#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests set their scratch up directly, and fail by panicking"
)]

mod harm;
mod kit;
mod links;
mod paths;
mod program;
