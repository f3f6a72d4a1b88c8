//! Tests on file systems of their own, which need root: mounts and loop devices.
//!
//! In: the public tree of a destination. Out: its promises, kept on a device that stops taking
//! writes. Knows nothing of sessions.

#![allow(clippy::disallowed_methods, reason = "tests look at the disk behind the crate's back")]

mod aborted;
