//! The keeper of journals: the machines that decide what is written to them, and in which order.
//!
//! [`Book`] decides for one journal file: how it begins, what makes it ours, what may be appended,
//! and that nothing may be any more after a failure. It gives [`JournalChange`]s, and is told how
//! each ended. Whoever carries them out has the file, its lock and its length, and decides nothing:
//! `engine::journals` on a disk, the simulator on a medium that fails. No I/O, clock or randomness
//! here.

mod book;
mod change;

pub use book::{Book, TakenPartial};
pub use change::{Abandoned, Beginning, Failed, JournalChange, JournalOp};
