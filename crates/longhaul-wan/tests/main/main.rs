//! The emulated network as programs meet it, against what was asked for. Needs root: `cargo test -p
//! longhaul-wan -- --ignored`.
//!
//! Bounds are wide, as a busy machine is late; what can be counted is counted.

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
