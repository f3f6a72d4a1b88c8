//! Owns the orders of clients: to fetch from another daemon what a client lends, into a destination
//! of this one; or to send what the client may read to where it lends another daemon.
//!
//! In: an order in place of which a push or a pull was admitted, with the grant of its client. Out:
//! sessions with the other daemon, which count among those of this one; and the course and the end
//! of the order, which its client is told. `order` judges an order and carries it out; `fetch` and
//! `send` are its two directions, and `session` is what they share. `list` hears the names that an
//! order is about, `places` bound how many are under way, and `ends` remember how they ended.
//! `follower` is the client that is told, and `answers` are about orders without beginning one. It
//! moves no byte itself, which the client's own code does, and opens neither side of a copy.

pub(super) mod answers;
mod ends;
mod fetch;
mod follower;
pub(super) mod list;
mod order;
mod places;
mod send;
mod session;

pub(super) use ends::AwaitedEnd;
pub(super) use follower::FOLLOWER_BYTES;
pub(super) use order::{JudgedOrder, carry_out, judge};
pub(super) use places::OrderPlaces;
