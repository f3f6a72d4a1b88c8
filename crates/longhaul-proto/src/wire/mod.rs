//! The bytes: control messages and their framing, lane frames, bundle tables, grants, the first
//! words over ssh.
//!
//! Everything here parses bytes of a peer: they are bounded before they are believed, and never
//! cause a panic.

pub mod bundle;
pub mod data;
pub mod frame;
pub mod grant;
pub mod message;
pub mod ssh;
