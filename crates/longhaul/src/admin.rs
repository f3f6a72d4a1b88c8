//! The socket by which an administrator looks after a running daemon.
//!
//! `wire` has the requests and answers, one JSON object a line. `socket` makes the socket, and
//! finds the path of another daemon's. `server` hears one connection at a time to its end, lets in
//! root and the daemon's own user alone, and gives requests to an [`Upkeep`]. `client` asks. In:
//! requests of this host's administrator. Out: what `commands::serve` and the engine do and tell.
//! It never sees a byte of a peer of the network.

mod client;
mod server;
mod socket;
mod wire;

pub use client::ask;
pub use server::{Upkeep, serve};
pub use socket::{AdminSocket, SOCKET_NAME, check, place};
pub use wire::{Answer, Request};
