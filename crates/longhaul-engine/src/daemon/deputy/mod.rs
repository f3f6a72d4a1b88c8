//! Owns deputies: processes that serve the clients of one user of this host, as that user.
//!
//! In: clients of the daemon that have a user, and their lanes. Out: their sessions, in a process
//! in which the kernel's permissions decide. `broker` is the daemon's way to the process that
//! starts deputies; `message` and `channel` are what the daemon and a deputy say to each other.
//! On the daemon's side `deputies` knows those that run, `relay` passes the bytes of a control
//! connection on, `conversation` claims for each what a session has of the daemon, and `udp_lanes`
//! are its lanes over UDP, whose datagrams are passed on. On the deputy's side `process` hears the
//! daemon, and `link` is one conversation; `deeds` brings what its sessions do to files to the
//! daemon's audit log. The daemon believes a deputy as far as its user may go: a deputy names what
//! was given to it, in messages of bounded size, and gets no more than the daemon's own limits
//! leave.

mod broker;
mod channel;
mod conversation;
mod deeds;
mod deputies;
mod link;
mod message;
mod process;
mod relay;
mod udp_lanes;

pub use broker::{Broker, BrokerAnswer, BrokerRequest};
pub(super) use deputies::Deputies;
pub(super) use link::{DaemonLink, LinkedSession};
pub(super) use message::{AskedWords, Outcome};
pub use process::serve_deputy;
pub(super) use relay::serve as relay;
