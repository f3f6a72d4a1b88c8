//! The bytes: control messages and their framing, lane frames, bundle tables.
//!
//! Everything here parses what a peer sent: bounded before it is believed, never a panic.

pub mod bundle;
pub mod data;
pub mod frame;
pub mod message;
