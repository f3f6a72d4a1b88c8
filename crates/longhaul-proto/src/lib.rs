//! The protocol of longhaul's two sides: messages, lane frames, the proof that joins a lane, the
//! journal's format, and the machines that decide for sender and receiver.
//!
//! Sans-I/O: nothing here touches a socket, a file, a clock or a thread. Time comes in as
//! [`Timestamp`], payload goes around; only descriptions of it go through. `docs/WIRE.md` describes
//! the bytes.

pub mod join;
pub mod journal;
pub mod receiver;
pub mod sender;
#[cfg(any(test, feature = "audit"))]
pub mod steps;
#[cfg(not(any(test, feature = "audit")))]
mod steps;
pub mod time;
pub mod tuning;
pub mod udp;
pub mod wire;

#[cfg(test)]
mod tests;

pub use receiver::Receiver;
pub use sender::Sender;
pub use time::Timestamp;
pub use wire::message::Message;
